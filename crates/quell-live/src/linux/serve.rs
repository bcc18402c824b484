//! What `quell live` answers when asked: its state as JSON on a Unix socket, Prometheus metrics on a loopback port.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quell_link::Error;
use serde_json::{Map, Value, json};

use super::worker::Watch;
use super::{firewall, host, sandbox};

/// How long who asks may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A key of the state, its kind, its name in Prometheus and what it is.
type Metric = (&'static str, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const METRICS: &[Metric] = &[
    ("read", "counter", "packets_total", "Packets that came."),
    ("sent", "counter", "sent_packets_total", "Packets that went on."),
    ("dropped", "counter", "dropped_packets_total", "Packets that the discipline dropped."),
    ("marked", "counter", "marked_packets_total", "Packets that went on with a mark of ours."),
    ("passed", "counter", "passed_packets_total", "Packets that passed by the discipline: at its end, or while its loop stood still."),
    ("stalls", "counter", "stalls_total", "Times that the loop stood still and a watchdog let packets pass."),
    ("missed", "counter", "late_packets_total", "Packets that went on more than 1 ms late."),
    ("held", "gauge", "held_packets", "Packets held now."),
    ("backlog_packets", "gauge", "backlog_packets", "Packets in the discipline."),
    ("backlog_bytes", "gauge", "backlog_bytes", "Bytes in the discipline."),
    ("capacity_mbps", "gauge", "rate_mbps", "What the link offers, Mbit/s."),
    ("throughput_mbps", "gauge", "throughput_mbps", "What left in the last 100 ms, Mbit/s."),
    ("sojourn_ms", "gauge", "sojourn_ms", "Mean time in the queue of what left in the last 100 ms."),
    ("limit_packets", "gauge", "limit_packets", "The limit in force."),
    ("probability", "gauge", "probability", "The drop or mark probability in force."),
];

/// What is told: an interface and its directions.
pub struct State {
    /// The interface.
    pub dev: String,
    /// Names and looks of the directions.
    pub directions: Vec<(&'static str, Watch)>,
    /// Rules that somebody else removed and that were put back.
    pub restored: Arc<AtomicU64>,
}

impl State {
    /// As JSON.
    pub fn json(&self) -> Value {
        let look = |watch: &Watch| serde_json::to_value(watch.look()).unwrap_or_default();
        let directions: Map<String, Value> = self
            .directions
            .iter()
            .map(|(name, watch)| ((*name).to_owned(), look(watch)))
            .collect();
        let restored = self.restored.load(Ordering::Relaxed);
        json!({"dev": self.dev, "directions": directions, "rules_restored": restored})
    }

    /// In Prometheus' text format.
    pub fn metrics(&self) -> String {
        let state = self.json();
        let mut text = String::new();
        for (key, kind, name, about) in METRICS {
            text += &format!("# HELP quell_{name} {about}\n# TYPE quell_{name} {kind}\n");
            for (direction, _) in &self.directions {
                let value = &state["directions"][direction][key];
                if !value.is_null() {
                    let dev = &self.dev;
                    text += &format!(
                        "quell_{name}{{dev=\"{dev}\",direction=\"{direction}\"}} {value}\n"
                    );
                }
            }
        }
        let name = "quell_rules_restored_total";
        let about = "Rules that somebody else removed and that were put back.";
        let (dev, restored) = (&self.dev, &state["rules_restored"]);
        text + &format!(
            "# HELP {name} {about}\n# TYPE {name} counter\n{name}{{dev=\"{dev}\"}} {restored}\n"
        )
    }
}

/// Both sockets: bound at once, answering after `start`, until it is dropped.
#[derive(Default)]
pub struct Server {
    status: Option<(UnixListener, PathBuf)>,
    metrics: Option<TcpListener>,
    listening: Vec<OwnedFd>,
    path: Option<PathBuf>,
}

impl Server {
    /// Binds what is asked for.
    pub fn bind(status: Option<&str>, metrics: Option<u16>) -> Result<Self, Error> {
        let mut made = Self::default();
        let no = |option: String, e: &io::Error| Error::new(host::reason(e)).key(option);
        if let Some(port) = metrics {
            let option = || format!("--metrics {port}");
            if port == 0 {
                return Err(Error::new("is no port")
                    .key(option())
                    .remedy("give 1 to 65535"));
            }
            let listener =
                TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|e| no(option(), &e))?;
            // A dry run may not, and needs not.
            let _ = host::mark(listener.as_fd(), firewall::MARK);
            made.metrics = Some(listener);
        }
        if let Some(path) = status.map(PathBuf::from) {
            let option = || format!("--status {}", path.display());
            remove_dead(&path);
            let listener = UnixListener::bind(&path).map_err(|e| no(option(), &e))?;
            let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o600));
            made.path = Some(path.clone());
            made.status = Some((listener, path));
        }
        Ok(made)
    }

    /// Begins to answer.
    pub fn start(&mut self, state: State) {
        let state = Arc::new(state);
        if let Some((listener, _)) = self.status.take() {
            self.listening.extend(listener.try_clone().map(Into::into));
            let state = state.clone();
            begin(move || {
                for asked in listener.incoming() {
                    let Ok(mut asked) = asked else { return };
                    let _ = asked.set_write_timeout(Some(PATIENCE));
                    let _ = asked.write_all(format!("{:#}\n", state.json()).as_bytes());
                }
            });
        }
        if let Some(listener) = self.metrics.take() {
            self.listening.extend(listener.try_clone().map(Into::into));
            begin(move || {
                for asked in listener.incoming() {
                    let Ok(mut asked) = asked else { return };
                    let _ = asked.set_read_timeout(Some(PATIENCE));
                    let _ = asked.set_write_timeout(Some(PATIENCE));
                    let _ = asked.read(&mut [0; 4096]);
                    let body = state.metrics();
                    let head = format!(
                        "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    let _ = asked.write_all((head + &body).as_bytes());
                }
            });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for fd in &self.listening {
            host::shutdown(fd.as_fd());
        }
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

fn begin(work: impl FnOnce() + Send + 'static) {
    let _ = std::thread::Builder::new()
        .name("quell-serve".into())
        .spawn(|| {
            sandbox::server();
            work();
        });
}

/// Removes a socket that nobody listens on any more, as `kill -9` leaves it.
fn remove_dead(path: &Path) {
    use std::os::unix::fs::FileTypeExt;
    let socket = fs::metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if socket && UnixStream::connect(path).is_err() {
        let _ = fs::remove_file(path);
    }
}
