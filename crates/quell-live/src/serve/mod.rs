//! The server of `quell live`, `quell watch` and `quell shell`: state as JSON on a Unix socket,
//! Prometheus metrics and the dashboard on loopback ports.

pub mod dashboard;
mod history;
mod http;
pub mod source;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quell_link::Error;
use quell_link::units::counted;
use serde_json::{Map, Value, json};

use crate::exposition::{Exposition, Family, Format, escaped};
use crate::firewall;
use crate::plane::link::View;
use crate::plane::prober::ReflectorTable;
use crate::plane::shared::{Snapshot, Watches};
use crate::serve::history::History;
use crate::serve::http::{refusal, reply};
use crate::serve::source::{QueueStatus, StatusSource};
use crate::system::{host, sandbox, sys};

/// Time after which a client is disconnected.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Most clients at the same time; a further one replaces the oldest.
const MAX_CLIENTS: usize = 32;
/// Largest request, bytes.
const MAX_REQUEST: usize = 4096;
/// Interval of the checks for timeouts while there are clients, and longest wait without clients.
const TICK: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_secs(60);

/// A value's JSON pointer in the state, and its metric: type, name and description.
type Metric = (&'static str, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const METRICS: &[Metric] = &[
    ("/read", "counter", "packets_total", "Packets that arrived."),
    ("/sent", "counter", "sent_packets_total", "Packets that were sent."),
    ("/bytes", "counter", "sent_bytes_total", "Bytes that left the discipline, with the link layer's."),
    ("/dropped", "counter", "dropped_packets_total", "Packets that the discipline dropped."),
    ("/marked", "counter", "marked_packets_total", "Packets that were sent with a mark set by quell."),
    ("/passed", "counter", "passed_packets_total", "Packets that bypassed the discipline: at its end, or while its loop was stalled."),
    ("/refused", "counter", "refused_packets_total", "Packets that never reached the discipline: no memory, or a large frame that cannot be separated."),
    ("/unsent", "counter", "unsent_packets_total", "Packets that the other side's device did not take."),
    ("/stalls", "counter", "stalls_total", "Times that the loop stalled and a watchdog let packets pass."),
    ("/missed", "counter", "late_packets_total", "Packets that were sent more than 1 ms late."),
    ("/decisions/asked", "counter", "decisions_total", "Decisions that a learned controller was asked for."),
    ("/decisions/taken", "counter", "decisions_taken_total", "Of these, decisions that its guard accepted."),
    ("/decisions/late", "counter", "decisions_late_total", "Of these, decisions that came too late."),
    ("/decisions/fallbacks", "counter", "guard_fallbacks_total", "Times that the classic controller took over."),
    ("/decisions/handed_back", "counter", "guard_handed_back_total", "Times that the classic controller handed back."),
    ("/held", "gauge", "held_packets", "Packets held now."),
    ("/backlog_packets", "gauge", "backlog_packets", "Packets in the discipline."),
    ("/backlog_bytes", "gauge", "backlog_bytes", "Bytes in the discipline."),
    ("/capacity_mbps", "gauge", "rate_mbps", "Rate of the link, Mbit/s."),
    ("/throughput_mbps", "gauge", "throughput_mbps", "Throughput of the last 100 ms, Mbit/s."),
    ("/sojourn_ms", "gauge", "sojourn_ms", "Mean time in the queue of packets that left in the last 100 ms, ms."),
    ("/limit_packets", "gauge", "limit_packets", "The limit in force."),
    ("/probability", "gauge", "probability", "The drop or mark probability in force."),
];
const FAILED: Family = Family {
    kind: "gauge",
    name: "queue_failed",
    about: "1 if the queue of another crate has failed; packets then bypass it.",
};
const SOJOURN: Family = Family {
    kind: "histogram",
    name: "sojourn_seconds",
    about: "Times in the queue of the packets that left it.",
};
const RESTORED: Family = Family {
    kind: "counter",
    name: "rules_restored_total",
    about: "Rules that another program removed and that were put back.",
};

/// The state of `quell live`: an interface and its directions.
pub struct State {
    /// Name of the interface.
    pub dev: String,
    /// Names and watches of the directions.
    pub directions: Vec<(&'static str, Watches)>,
    /// Rules that another program removed and that were put back.
    pub restored: Arc<AtomicU64>,
    /// Statistics of the reflectors, with `--autorate`.
    pub reflectors: Option<ReflectorTable>,
}

impl StatusSource for State {
    fn json(&self) -> Value {
        let snapshot = |watch: &Watches| serde_json::to_value(watch.snapshot()).unwrap_or_default();
        let directions: Map<String, Value> = self
            .directions
            .iter()
            .map(|(name, watch)| ((*name).to_owned(), snapshot(watch)))
            .collect();
        let restored = self.restored.load(Ordering::Relaxed);
        let mut state =
            json!({"dev": self.dev, "directions": directions, "rules_restored": restored});
        if let Some(known) = &self.reflectors {
            state["reflectors"] = known.json();
        }
        state
    }

    fn metrics(&self, out: &mut Exposition) {
        let state = self.json();
        let dev = format!("dev=\"{}\"", escaped(&self.dev));
        let directions = || {
            self.directions.iter().map(|(direction, watches)| {
                let labels = format!("{dev},direction=\"{direction}\"");
                (labels, &state["directions"][direction], watches)
            })
        };
        for &(key, kind, name, about) in METRICS {
            out.family(Family { kind, name, about });
            for (labels, state, _) in directions() {
                if let Some(value) = state.pointer(key).filter(|value| !value.is_null()) {
                    out.sample(name, &labels, value);
                }
            }
        }
        out.family(FAILED);
        for (labels, state, _) in directions() {
            let failed = u8::from(!state["failure"].is_null());
            out.sample(FAILED.name, &labels, failed);
        }
        out.family(SOJOURN);
        for (labels, _, watches) in directions() {
            out.sojourns(SOJOURN.name, &labels, &watches.snapshot().link.sojourns);
        }
        out.family(RESTORED);
        out.sample(RESTORED.name, &dev, &state["rules_restored"]);
    }

    fn title(&self) -> String {
        self.dev.clone()
    }

    fn queues(&self) -> Vec<QueueStatus> {
        let snapshot = |(name, watches): &(&'static str, Watches)| {
            let snapshot = watches.snapshot();
            let view = View {
                drops: snapshot.dropped,
                marks: snapshot.marked,
                ..snapshot.link
            };
            let faults = faults(&snapshot);
            QueueStatus {
                faults,
                ..QueueStatus::new(*name, snapshot.queue, view)
            }
        };
        self.directions.iter().map(snapshot).collect()
    }
}

/// Present and past faults of a direction, a line each.
fn faults(snapshot: &Snapshot) -> Vec<String> {
    let failure = snapshot.failure.as_ref();
    let failure = failure.map(|why| format!("the queue has failed and packets pass: {why}"));
    let counts = [
        (snapshot.passed, "packet", "passed unmanaged"),
        (snapshot.stalls, "stall", "of the loop"),
        (
            snapshot.refused,
            "packet",
            "refused: no memory, or large frames",
        ),
        (snapshot.unsent, "packet", "not taken by the device"),
    ];
    let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
    let counts = counts.map(|(count, what, how)| format!("{} {how}", counted(count, what)));
    let (late, packets) = (snapshot.link.missed, snapshot.link.packets);
    let late = (late > 0).then(|| {
        let share = 100.0 * late as f64 / packets.max(late) as f64;
        let late = counted(late, "packet");
        format!("{late} left more than 1 ms late, {share:.2} % of all")
    });
    failure.into_iter().chain(counts).chain(late).collect()
}

/// What is served at a socket.
#[derive(Clone, Debug)]
enum Endpoint {
    Status,
    Metrics,
    /// Dashboard, with the token that a request needs.
    Dashboard(String),
}

/// Sockets at which a server listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Endpoints<'a> {
    /// Path of a Unix socket for the state.
    pub status: Option<&'a str>,
    /// Loopback port for Prometheus.
    pub metrics: Option<u16>,
    /// Loopback port for the dashboard; 0: any that is free.
    pub dashboard: Option<u16>,
}

/// The server. Its sockets are bound at first, and answer from [`Self::start`] until this value is
/// dropped.
#[derive(Default)]
pub struct Server {
    sockets: Vec<(Endpoint, OwnedFd)>,
    /// The dashboard's address with its token.
    pub dashboard: Option<String>,
    listening: Vec<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Path of the Unix socket, and the file's device and inode.
    path: Option<(PathBuf, (u64, u64))>,
}

impl Server {
    /// Binds the requested sockets.
    pub fn bind(places: Endpoints<'_>) -> Result<Self, Error> {
        let mut made = Self::default();
        let no = |option: String, e: &io::Error| {
            let error = Error::new(host::reason(e)).key(option);
            match e.kind() {
                io::ErrorKind::AddrInUse => {
                    error.remedy("another program listens there; give another")
                }
                _ => error,
            }
        };
        if let Some(port) = places.metrics {
            let option = format!("--metrics {port}");
            if port == 0 {
                return Err(Error::new("is not a port")
                    .key(option)
                    .remedy("give 1 to 65535"));
            }
            let listener = loopback(port).map_err(|e| no(option, &e))?;
            made.sockets.push((Endpoint::Metrics, listener.into()));
        }
        if let Some(port) = places.dashboard {
            let option = || format!("--dashboard {port}");
            let listener = loopback(port).map_err(|e| no(option(), &e))?;
            let (address, token) = (listener.local_addr(), dashboard::token()?);
            let address = address.map_err(|e| no(option(), &e))?;
            made.dashboard = Some(format!("http://{address}/?token={token}"));
            made.sockets
                .push((Endpoint::Dashboard(token), listener.into()));
        }
        if let Some(path) = places.status.map(PathBuf::from) {
            let option = || format!("--status {}", path.display());
            if path.as_os_str().is_empty() {
                // The system would make a socket without a file, to which all users could connect.
                let error = Error::new("is not a path").key("--status ''");
                return Err(error.remedy("give one, as in --status /run/quell-eth0.sock"));
            }
            remove_dead(&path);
            // The umask sets the socket's mode at its creation: a later chmod could apply to
            // another file at the same path.
            let bind = || UnixListener::bind(&path);
            let listener = sys::with_umask(0o177, bind).map_err(|e| no(option(), &e))?;
            listener
                .set_nonblocking(true)
                .map_err(|e| no(option(), &e))?;
            made.path = file(&path).map(|file| (path, file));
            made.sockets.push((Endpoint::Status, listener.into()));
        }
        Ok(made)
    }

    /// Starts the thread that answers.
    pub fn start(&mut self, state: Box<dyn StatusSource>) {
        let sockets = std::mem::take(&mut self.sockets);
        let fds = sockets.iter().map(|(_, fd)| fd);
        self.listening = fds.filter_map(|fd| fd.try_clone().ok()).collect();
        if self.listening.is_empty() {
            return;
        }
        let stop = self.stop.clone();
        let answers = move || {
            sandbox::server();
            Connections {
                stop,
                state,
                sockets,
                clients: Vec::new(),
                history: History::default(),
            }
            .run();
        };
        let thread = host::thread("quell-serve");
        self.thread = thread.spawn(answers).ok();
    }
}

/// Time for which binding to a port in use is repeated, and the time between attempts, since the
/// processes of a killed `quell live` end one after the other.
const BIND_TIMEOUT: Duration = Duration::from_millis(500);
const BIND_PAUSE: Duration = Duration::from_millis(25);

/// Listens on a port of 127.0.0.1.
fn loopback(port: u16) -> io::Result<TcpListener> {
    let begin = Instant::now();
    let listener = loop {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < BIND_TIMEOUT => {
                std::thread::sleep(BIND_PAUSE);
            }
            bound => break bound?,
        }
    };
    listener.set_nonblocking(true)?;
    // A dry run has no privilege for this, and does not need it.
    let _ = host::mark(listener.as_fd(), firewall::MARK);
    Ok(listener)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // This wakes the thread.
        for fd in &self.listening {
            host::shutdown(fd.as_fd());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Only this server's own file is removed; another one may have taken its place.
        if let Some((path, made)) = &self.path
            && file(path) == Some(*made)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Device and inode of the file at a path.
fn file(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// A connected client.
struct Client {
    fd: OwnedFd,
    endpoint: Endpoint,
    /// The request as far as received; `None` if none is expected.
    request: Option<Vec<u8>>,
    /// Bytes that have not been written.
    answer: Vec<u8>,
    /// Time at which it is disconnected.
    until: Instant,
}

/// The server's thread, which serves all clients without blocking on any of them.
struct Connections {
    stop: Arc<AtomicBool>,
    state: Box<dyn StatusSource>,
    sockets: Vec<(Endpoint, OwnedFd)>,
    clients: Vec<Client>,
    /// Stays empty without a dashboard.
    history: History,
}

impl Connections {
    fn run(&mut self) {
        let dashboard = |(endpoint, _): &_| matches!(endpoint, Endpoint::Dashboard(_));
        let keeps = self.sockets.iter().any(dashboard);
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
            let mut time = if self.clients.is_empty() { IDLE } else { TICK };
            if keeps {
                time = time.min(self.history.pause(Instant::now()));
            }
            sys::any_ready(&all, time);
            for k in 0..self.sockets.len() {
                let (endpoint, listener) = &self.sockets[k];
                if let Ok(fd) = sys::accept(listener.as_fd()) {
                    self.admit(fd, endpoint.clone());
                }
            }
            let (state, now) = (&*self.state, Instant::now());
            if keeps && self.history.pause(now).is_zero() {
                self.history.record(now, dashboard::shown(state).0);
            }
            let history = &self.history;
            self.clients
                .retain_mut(|client| client.serve(state, history) && now < client.until);
        }
    }

    /// Adds a client. If there are [`MAX_CLIENTS`], it disconnects the oldest.
    fn admit(&mut self, fd: OwnedFd, endpoint: Endpoint) {
        if self.clients.len() >= MAX_CLIENTS {
            self.clients.remove(0);
        }
        let (request, answer) = match endpoint {
            Endpoint::Status => (None, format!("{:#}\n", self.state.json()).into_bytes()),
            Endpoint::Metrics | Endpoint::Dashboard(_) => (Some(Vec::new()), Vec::new()),
        };
        self.clients.push(Client {
            fd,
            endpoint,
            request,
            answer,
            until: Instant::now() + CLIENT_TIMEOUT,
        });
    }
}

impl Client {
    /// Reads or writes without blocking; false when the client is done.
    fn serve(&mut self, state: &dyn StatusSource, history: &History) -> bool {
        if let Some(request) = &mut self.request {
            let mut piece = [0; MAX_REQUEST];
            match sys::receive_bytes(self.fd.as_fd(), &mut piece) {
                Ok(0) => return false,
                Ok(n) => request.extend_from_slice(&piece[..n]),
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
            let whole = request.windows(4).any(|w| w == b"\r\n\r\n");
            if !whole && request.len() < MAX_REQUEST {
                return true;
            }
            let answer = match whole {
                true => answer(request, &self.endpoint, state, history),
                // The missing part may have a header for which the request must be refused.
                false => refusal("431 Request Header Fields Too Large", "Too long\n"),
            };
            self.answer = answer.into_bytes();
            self.request = None;
        }
        write(self.fd.as_fd(), &mut self.answer)
    }
}

/// Writes without blocking; true if there is more to write.
fn write(fd: BorrowedFd<'_>, answer: &mut Vec<u8>) -> bool {
    match sys::write_socket(fd, answer) {
        Ok(n) => {
            answer.drain(..n);
            !answer.is_empty()
        }
        Err(e) => e.kind() == io::ErrorKind::WouldBlock,
    }
}

/// The answer to an HTTP request. The check of the header `Host` refuses web pages whose own domain
/// name resolves to this machine (DNS rebinding).
fn answer(
    request: &[u8],
    endpoint: &Endpoint,
    state: &dyn StatusSource,
    history: &History,
) -> String {
    if ambiguous(request) {
        return refusal("400 Bad Request", "Lines must end in CR LF\n");
    }
    let text = String::from_utf8_lossy(request);
    let mut headers = text.lines().skip(1).filter_map(|line| line.split_once(':'));
    let named = |name: &str, wanted: &str| name.trim().eq_ignore_ascii_case(wanted);
    if !headers.all(|(name, value)| !named(name, "host") || local(value.trim())) {
        return refusal("403 Forbidden", "Host must be 127.0.0.1 or localhost\n");
    }
    let line = text.lines().next().unwrap_or_default();
    if let Endpoint::Dashboard(token) = endpoint {
        return dashboard::answer(line, token, state, history);
    }
    if !line.starts_with("GET ") {
        return refusal("405 Method Not Allowed", "Only GET\n");
    }
    let mut headers = text.lines().skip(1).filter_map(|line| line.split_once(':'));
    let accept = headers.find(|(name, _)| named(name, "accept"));
    let format = Format::accepted(accept.map_or("", |(_, value)| value.trim()));
    let mut out = Exposition::new(format);
    state.metrics(&mut out);
    reply("200 OK", format.content_type(), "", &out.finish())
}

/// Whether lines can be split in two ways, which could hide a Host header: a lone CR, a NUL, or a
/// line that continues in the next one (RFC 9112, sections 2.2 and 5.2). No browser sends these.
fn ambiguous(request: &[u8]) -> bool {
    let odd = |pair: &[u8]| match pair {
        [b'\r', next] => *next != b'\n',
        [b'\n', next] => matches!(next, b' ' | b'\t'),
        _ => false,
    };
    request.contains(&0) || request.windows(2).any(odd)
}

/// Whether a `Host` header names this machine: 127.0.0.1 or localhost, with or without a port.
fn local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")
}

/// Removes a socket file that no process has open, such as `kill -9` leaves.
fn remove_dead(path: &Path) {
    use std::os::unix::fs::FileTypeExt;
    let socket = fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    // Unlike a stream socket, a datagram socket connects without waiting. To a socket of another
    // type that a process has open it gets EPROTOTYPE, not ECONNREFUSED.
    let connected = || UnixDatagram::unbound()?.connect(path);
    if socket && connected().is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn state(dev: &str) -> State {
        State {
            dev: dev.to_owned(),
            directions: vec![("egress", Watches::new(1))],
            restored: Arc::default(),
            reflectors: None,
        }
    }

    /// The metrics in Prometheus' text format.
    pub(crate) fn metrics(state: &State) -> String {
        let mut out = Exposition::new(Format::Prometheus);
        state.metrics(&mut out);
        out.finish()
    }

    #[test]
    fn faults_are_counted_in_singular_and_plural() {
        let faults = |number| {
            let link = View {
                missed: number,
                packets: 2000,
                ..View::default()
            };
            faults(&Snapshot {
                link,
                passed: number,
                stalls: number,
                ..Snapshot::default()
            })
        };
        let one = [
            "1 packet passed unmanaged",
            "1 stall of the loop",
            "1 packet left more than 1 ms late, 0.05 % of all",
        ];
        assert_eq!(faults(1), one);
        let two = [
            "2 packets passed unmanaged",
            "2 stalls of the loop",
            "2 packets left more than 1 ms late, 0.10 % of all",
        ];
        assert_eq!(faults(2), two);
        assert!(faults(0).is_empty());
    }

    #[test]
    fn a_port_at_which_a_stranger_listens_is_refused_in_a_line() {
        let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = stranger.local_addr().unwrap().port();
        let places = Endpoints {
            metrics: Some(port),
            ..Endpoints::default()
        };
        let error = Server::bind(places).err().unwrap().to_string();
        let text = format!(
            "--metrics {port}: Address already in use: another program listens there; give another"
        );
        assert_eq!(error.replace("; another", ": another"), text);
    }

    #[test]
    fn a_label_cannot_leave_its_quotes() {
        let text = metrics(&state("a\"} 1\\\nb"));
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
        for endpoint in [Endpoint::Metrics, Endpoint::Dashboard("t".to_owned())] {
            check_hosts(&endpoint);
        }
    }

    #[test]
    fn the_dashboard_needs_its_token_and_changes_nothing() {
        let endpoint = Endpoint::Dashboard("0123".to_owned());
        let ask = |line: &str| {
            let request = format!("{line} HTTP/1.1\r\nHost: localhost:1\r\n\r\n");
            answer(
                request.as_bytes(),
                &endpoint,
                &state("eth0"),
                &History::default(),
            )
        };
        assert!(ask("GET /?token=0123").contains("<title>"));
        let queues = ask("GET /state?token=0123");
        assert!(queues.starts_with("HTTP/1.0 200") && queues.contains(r#""name":"egress""#));
        let past = ask("GET /history?token=0123");
        assert!(past.starts_with("HTTP/1.0 200") && past.contains(r#""moments":[]"#));
        for (line, status) in [
            ("GET /", "403"),
            ("GET /state?token=", "403"),
            ("GET /state?token=01234", "403"),
            ("GET /history", "403"),
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

    fn check_hosts(endpoint: &Endpoint) {
        let ask = |host: &str| {
            let request = format!("GET /?token=t HTTP/1.1\r\n{host}\r\n\r\n");
            answer(
                request.as_bytes(),
                endpoint,
                &state("eth0"),
                &History::default(),
            )
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
