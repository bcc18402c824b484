//! What `quell live`, `quell watch` and `quell shell` answer when asked: state as JSON on a Unix socket, Prometheus metrics and the
//! dashboard on loopback ports.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quell_link::Error;
use serde_json::{Map, Value, json};

use super::dashboard::{self, Look};
use super::worker::Watches;
use super::{firewall, host, sandbox, sys};
use crate::link::{BOUNDS, Sojourns, View};

/// How long who asks may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most who are served at a time; one more takes the place of the one that came first.
const MOST: usize = 32;
/// Most bytes of a question.
const QUESTION: usize = 4096;
/// How often the time of those who ask is looked at, and how long is waited where nobody does.
const TICK: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_secs(60);

/// A key of the state, its kind, its name in Prometheus and what it is.
type Metric = (&'static str, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const METRICS: &[Metric] = &[
    ("read", "counter", "packets_total", "Packets that came."),
    ("sent", "counter", "sent_packets_total", "Packets that went on."),
    ("bytes", "counter", "sent_bytes_total", "Bytes that left the discipline, with the link layer's."),
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

/// What those who ask are told.
pub trait Told: Send {
    /// As JSON.
    fn json(&self) -> Value;
    /// In Prometheus' text format.
    fn metrics(&self) -> String;
    /// Of whom: the dashboard's title.
    fn title(&self) -> String;
    /// Every queue for the dashboard.
    fn looks(&self) -> Vec<Look>;
}

/// What is told of `quell live`: an interface and its directions.
pub struct State {
    /// The interface.
    pub dev: String,
    /// Names and looks of the directions.
    pub directions: Vec<(&'static str, Watches)>,
    /// Their queue words, where they are managed.
    pub queues: Vec<(&'static str, String)>,
    /// Rules that somebody else removed and that were put back.
    pub restored: Arc<AtomicU64>,
}

impl Told for State {
    fn json(&self) -> Value {
        let look = |watch: &Watches| serde_json::to_value(watch.look()).unwrap_or_default();
        let directions: Map<String, Value> = self
            .directions
            .iter()
            .map(|(name, watch)| ((*name).to_owned(), look(watch)))
            .collect();
        let restored = self.restored.load(Ordering::Relaxed);
        json!({"dev": self.dev, "directions": directions, "rules_restored": restored})
    }

    fn metrics(&self) -> String {
        let state = self.json();
        let dev = escaped(&self.dev);
        let mut text = String::new();
        for (key, kind, name, about) in METRICS {
            text += &format!("# HELP quell_{name} {about}\n# TYPE quell_{name} {kind}\n");
            for (direction, _) in &self.directions {
                let value = &state["directions"][direction][key];
                if !value.is_null() {
                    text += &format!(
                        "quell_{name}{{dev=\"{dev}\",direction=\"{direction}\"}} {value}\n"
                    );
                }
            }
        }
        let (name, about) = (
            "quell_queue_failed",
            "1 where a queue that another crate brought works no more: packets pass.",
        );
        text += &format!("# HELP {name} {about}\n# TYPE {name} gauge\n");
        for (direction, _) in &self.directions {
            let failed = u8::from(!state["directions"][direction]["failure"].is_null());
            text += &format!("{name}{{dev=\"{dev}\",direction=\"{direction}\"}} {failed}\n");
        }
        let name = "quell_sojourn_seconds";
        let about = "Times in the queue of the packets that left it.";
        text += &format!("# HELP {name} {about}\n# TYPE {name} histogram\n");
        for (direction, watches) in &self.directions {
            let labels = format!("dev=\"{dev}\",direction=\"{direction}\"");
            text += &histogram(name, &labels, &watches.look().link.sojourns);
        }
        let name = "quell_rules_restored_total";
        let about = "Rules that somebody else removed and that were put back.";
        let restored = &state["rules_restored"];
        text + &format!(
            "# HELP {name} {about}\n# TYPE {name} counter\n{name}{{dev=\"{dev}\"}} {restored}\n"
        )
    }

    fn title(&self) -> String {
        self.dev.clone()
    }

    fn looks(&self) -> Vec<Look> {
        let words = |name| self.queues.iter().find(|(of, _)| *of == name);
        let look = |(name, watches): &(&'static str, Watches)| {
            let (look, words) = (watches.look(), words(*name));
            let view = View {
                drops: look.dropped,
                marks: look.marked,
                ..look.link
            };
            Look::new(*name, words.map_or("", |(_, words)| words), view)
        };
        self.directions.iter().map(look).collect()
    }
}

/// Sojourn times in Prometheus' text format: of every second bound, seconds.
fn histogram(name: &str, labels: &str, sojourns: &Sojourns) -> String {
    let (mut text, mut seen) = (String::new(), 0);
    for (k, count) in sojourns.counts.iter().enumerate() {
        seen += count;
        match BOUNDS.get(k) {
            Some(bound) if k % 2 == 0 => {
                let bound = *bound as f64 / 1e9;
                text += &format!("{name}_bucket{{{labels},le=\"{bound}\"}} {seen}\n");
            }
            _ => {}
        }
    }
    let sum = sojourns.sum as f64 / 1e9;
    text + &format!(
        "{name}_bucket{{{labels},le=\"+Inf\"}} {seen}\n{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {seen}\n"
    )
}

/// A label's value in Prometheus' text format.
pub fn escaped(text: &str) -> String {
    let text = text.replace('\\', r"\\").replace('"', "\\\"");
    text.replace('\n', r"\n")
}

/// What is answered at a socket.
#[derive(Clone, Debug)]
enum Asks {
    Status,
    Metrics,
    /// The token that a question needs.
    Dashboard(String),
}

/// Where a server is to answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places<'a> {
    /// A Unix socket for the state.
    pub status: Option<&'a str>,
    /// A loopback port for Prometheus.
    pub metrics: Option<u16>,
    /// A loopback port for the dashboard; 0: any that is free.
    pub dashboard: Option<u16>,
}

/// All sockets: bound at once, answering after `start`, until it is dropped.
#[derive(Default)]
pub struct Server {
    sockets: Vec<(Asks, OwnedFd)>,
    /// The dashboard's address with its token.
    pub dashboard: Option<String>,
    listening: Vec<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Where the Unix socket is, and which file that is.
    path: Option<(PathBuf, (u64, u64))>,
}

impl Server {
    /// Binds what is asked for.
    pub fn bind(places: Places<'_>) -> Result<Self, Error> {
        let mut made = Self::default();
        let no = |option: String, e: &io::Error| Error::new(host::reason(e)).key(option);
        if let Some(port) = places.metrics {
            let option = format!("--metrics {port}");
            if port == 0 {
                return Err(Error::new("is no port")
                    .key(option)
                    .remedy("give 1 to 65535"));
            }
            let listener = loopback(port).map_err(|e| no(option, &e))?;
            made.sockets.push((Asks::Metrics, listener.into()));
        }
        if let Some(port) = places.dashboard {
            let option = || format!("--dashboard {port}");
            let listener = loopback(port).map_err(|e| no(option(), &e))?;
            let (address, token) = (listener.local_addr(), dashboard::token());
            let address = address.map_err(|e| no(option(), &e))?;
            made.dashboard = Some(format!("http://{address}/?token={token}"));
            made.sockets.push((Asks::Dashboard(token), listener.into()));
        }
        if let Some(path) = places.status.map(PathBuf::from) {
            let option = || format!("--status {}", path.display());
            if path.as_os_str().is_empty() {
                // The system would take it for a socket without a file, which everybody may connect to.
                let error = Error::new("is no path").key("--status ''");
                return Err(error.remedy("give one, as in --status /run/quell-eth0.sock"));
            }
            remove_dead(&path);
            let listener = UnixListener::bind(&path).map_err(|e| no(option(), &e))?;
            listener
                .set_nonblocking(true)
                .map_err(|e| no(option(), &e))?;
            let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o600));
            made.path = file(&path).map(|file| (path, file));
            made.sockets.push((Asks::Status, listener.into()));
        }
        Ok(made)
    }

    /// Begins to answer.
    pub fn start(&mut self, state: Box<dyn Told>) {
        let sockets = std::mem::take(&mut self.sockets);
        let fds = sockets.iter().map(|(_, fd)| fd);
        self.listening = fds.filter_map(|fd| fd.try_clone().ok()).collect();
        if self.listening.is_empty() {
            return;
        }
        let stop = self.stop.clone();
        let answers = move || {
            sandbox::server();
            Answering {
                stop,
                state,
                sockets,
                clients: Vec::new(),
            }
            .run();
        };
        let thread = std::thread::Builder::new().name("quell-serve".into());
        self.thread = thread.spawn(answers).ok();
    }
}

/// Listens on a port of 127.0.0.1.
fn loopback(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    // A dry run may not, and needs not.
    let _ = host::mark(listener.as_fd(), firewall::MARK);
    Ok(listener)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It wakes from this.
        for fd in &self.listening {
            host::shutdown(fd.as_fd());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Only the file that was made here: another one may have taken its place.
        if let Some((path, made)) = &self.path
            && file(path) == Some(*made)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Which file a path leads to: its device and number.
fn file(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// Somebody who asks.
struct Client {
    fd: OwnedFd,
    asks: Asks,
    /// What came so far; None where nothing is waited for.
    question: Option<Vec<u8>>,
    answer: Vec<u8>,
    until: Instant,
}

/// All who ask are served by one thread, none of whom keeps another waiting.
struct Answering {
    stop: Arc<AtomicBool>,
    state: Box<dyn Told>,
    sockets: Vec<(Asks, OwnedFd)>,
    clients: Vec<Client>,
}

impl Answering {
    fn run(&mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let wanted = self.clients.iter().map(|client| {
                let writing = !client.answer.is_empty();
                (client.fd.as_fd(), writing)
            });
            let listening = self.sockets.iter();
            let all: Vec<_> = listening
                .map(|(_, fd)| (fd.as_fd(), false))
                .chain(wanted)
                .collect();
            let time = if self.clients.is_empty() { IDLE } else { TICK };
            sys::any_ready(&all, time);
            for k in 0..self.sockets.len() {
                let (asks, listener) = &self.sockets[k];
                if let Ok(fd) = sys::accept(listener.as_fd()) {
                    self.admit(fd, asks.clone());
                }
            }
            let (state, now) = (&*self.state, Instant::now());
            self.clients
                .retain_mut(|client| client.serve(state) && now < client.until);
        }
    }

    fn admit(&mut self, fd: OwnedFd, asks: Asks) {
        if self.clients.len() >= MOST {
            self.clients.remove(0);
        }
        let (question, answer) = match asks {
            Asks::Status => (None, format!("{:#}\n", self.state.json()).into_bytes()),
            Asks::Metrics | Asks::Dashboard(_) => (Some(Vec::new()), Vec::new()),
        };
        self.clients.push(Client {
            fd,
            asks,
            question,
            answer,
            until: Instant::now() + PATIENCE,
        });
    }
}

impl Client {
    /// Reads or writes what can be without waiting; false when it is done.
    fn serve(&mut self, state: &dyn Told) -> bool {
        if let Some(question) = &mut self.question {
            let mut piece = [0; QUESTION];
            match sys::receive_bytes(self.fd.as_fd(), &mut piece) {
                Ok(0) => return false,
                Ok(n) => question.extend_from_slice(&piece[..n]),
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
            let whole = question.windows(4).any(|w| w == b"\r\n\r\n");
            if !whole && question.len() < QUESTION {
                return true;
            }
            self.answer = answer(question, &self.asks, state).into_bytes();
            self.question = None;
        }
        write(self.fd.as_fd(), &mut self.answer)
    }
}

/// Writes what can be written; whether more is to be.
fn write(fd: BorrowedFd<'_>, answer: &mut Vec<u8>) -> bool {
    match sys::write_socket(fd, answer) {
        Ok(n) => {
            answer.drain(..n);
            !answer.is_empty()
        }
        Err(e) => e.kind() == io::ErrorKind::WouldBlock,
    }
}

/// The answer to a question in HTTP. A page in a browser that has had its own name lead to this machine gets none.
fn answer(question: &[u8], asks: &Asks, state: &dyn Told) -> String {
    let text = String::from_utf8_lossy(question);
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host")
            .then(|| value.trim().to_owned())
    };
    let host = text.lines().skip(1).find_map(header);
    let (status, body) = match (host.is_none_or(|host| local(&host)), asks) {
        (true, Asks::Dashboard(token)) => {
            let line = text.lines().next().unwrap_or_default();
            return dashboard::answer(line, token, state);
        }
        (true, _) => ("200 OK", state.metrics()),
        (false, _) => {
            let body = "Host is to be 127.0.0.1 or localhost\n";
            ("403 Forbidden", body.to_owned())
        }
    };
    let length = body.len();
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")
}

/// Removes a socket that nobody listens on any more, as `kill -9` leaves it.
fn remove_dead(path: &Path) {
    use std::os::unix::fs::FileTypeExt;
    let socket = fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if socket && UnixStream::connect(path).is_err() {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(dev: &str) -> State {
        State {
            dev: dev.to_owned(),
            directions: vec![("egress", Watches::new(1))],
            queues: vec![("egress", "codel".to_owned())],
            restored: Arc::default(),
        }
    }

    #[test]
    fn a_label_cannot_leave_its_quotes() {
        let text = state("a\"} 1\\\nb").metrics();
        let line = text
            .lines()
            .find(|line| line.starts_with("quell_packets_total"))
            .unwrap();
        assert_eq!(
            line,
            r#"quell_packets_total{dev="a\"} 1\\\nb",direction="egress"} 0"#
        );
    }

    #[test]
    fn only_this_machines_own_names_get_an_answer() {
        for asks in [Asks::Metrics, Asks::Dashboard("t".to_owned())] {
            check_hosts(&asks);
        }
    }

    #[test]
    fn the_dashboard_needs_its_token_and_changes_nothing() {
        let asks = Asks::Dashboard("0123".to_owned());
        let ask = |line: &str| {
            let question = format!("{line} HTTP/1.1\r\nHost: localhost:1\r\n\r\n");
            answer(question.as_bytes(), &asks, &state("eth0"))
        };
        assert!(ask("GET /?token=0123").contains("<title>"));
        let looks = ask("GET /state?token=0123");
        assert!(looks.starts_with("HTTP/1.0 200") && looks.contains(r#""queue":"codel""#));
        for (line, status) in [
            ("GET /", "403"),
            ("GET /state?token=", "403"),
            ("GET /state?token=01234", "403"),
            ("GET /else?token=0123", "404"),
            ("POST /state?token=0123", "405"),
            ("", "405"),
        ] {
            let said = ask(line);
            assert!(
                said.starts_with(&format!("HTTP/1.0 {status}")),
                "{line}: {said}"
            );
        }
    }

    #[test]
    fn times_in_the_queue_are_a_histogram() {
        let mut sojourns = Sojourns {
            sum: 2_500_000_000,
            ..Sojourns::default()
        };
        (sojourns.counts[0], sojourns.counts[7], sojourns.counts[31]) = (3, 2, 1);
        let text = histogram("s", "d=\"e\"", &sojourns);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], r#"s_bucket{d="e",le="0.0001"} 3"#);
        assert_eq!(lines[3], r#"s_bucket{d="e",le="0.001"} 3"#);
        assert_eq!(lines[4], r#"s_bucket{d="e",le="0.0022"} 5"#);
        assert_eq!(lines[15], r#"s_bucket{d="e",le="10"} 5"#);
        assert_eq!(
            lines[16..],
            [
                r#"s_bucket{d="e",le="+Inf"} 6"#,
                r#"s_sum{d="e"} 2.5"#,
                r#"s_count{d="e"} 6"#
            ]
        );
    }

    fn check_hosts(asks: &Asks) {
        let ask = |host: &str| {
            let question = format!("GET /?token=t HTTP/1.1\r\n{host}\r\n\r\n");
            answer(question.as_bytes(), asks, &state("eth0"))
        };
        for host in [
            "Host: 127.0.0.1:9100",
            "host: LOCALHOST",
            "Accept: text/plain",
        ] {
            assert!(ask(host).starts_with("HTTP/1.0 200"), "{host}");
        }
        for host in [
            "Host: evil.example",
            "Host: 127.0.0.1.evil.example:9100",
            "Host: localhost.evil",
        ] {
            assert!(ask(host).starts_with("HTTP/1.0 403"), "{host}");
        }
    }
}
