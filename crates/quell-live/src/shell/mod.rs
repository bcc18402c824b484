//! `quell shell`: a command in a network namespace behind an emulated link.

mod address;
mod device;
mod engine;
mod flows;
mod init;

use std::ffi::{CString, OsString, c_int};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quell_link::Error;
use serde_json::{Value, json};

use super::serve::{Endpoints, Server};
use crate::exposition::Exposition;
use crate::packet::header::random_key;
use crate::plane::link::{LiveLink, Params, View};
use crate::plane::report::Record;
use crate::serve::dashboard;
use crate::serve::source::{QueueStatus, StatusSource};
use crate::shell::address::{Block, Route};
use crate::shell::device::End;
use crate::shell::engine::Engine;
use crate::shell::flows::Watcher;
use crate::shell::init::{Kind, Plan, Program, Report, Step};
use crate::system::sys;

/// MTUs that IPv4 allows, bytes: from 68 (RFC 791, section 3.2) to the maximum of the length field.
const MTU: std::ops::RangeInclusive<u32> = 68..=65_535;
/// Smallest MTU of IPv6, bytes (RFC 8200, section 5).
const MTU_SIX: u32 = 1280;
/// Time in which the first process must set everything up. A server that does not listen takes 2 s
/// of it.
const SETUP_TIMEOUT: Duration = Duration::from_secs(20);

/// The command and the link.
pub struct Config {
    /// The direction toward the command.
    pub down: Params,
    /// The direction from the command.
    pub up: Params,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Program that runs on the far side, which then is a namespace of its own.
    pub server: Option<Vec<OsString>>,
    /// MTU of the link, bytes.
    pub mtu: u32,
    /// Whether the kernel may hand over many packets as one (GSO).
    pub offload: bool,
    /// Standard output and error of the command; `None`: those of this process.
    pub output: Option<(RawFd, RawFd)>,
    /// Whether the command waits for [`Shell::go`].
    pub hold: bool,
    /// A port on 127.0.0.1 for the dashboard; 0: any that is free.
    pub dashboard: Option<u16>,
}

/// Location of the link's far side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarSide {
    /// The caller's namespace.
    Caller,
    /// A namespace of its own, because a server was given.
    Server,
    /// A namespace of its own, because the caller may not change its own.
    Unprivileged,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExitStatus {
    /// It exited with this status.
    Status(i32),
    /// It was ended by this signal.
    Signal(i32),
    /// It could not be executed, with this errno.
    NotExecuted(i32),
}

impl ExitStatus {
    /// The exit status that shells use for it.
    pub fn status(self) -> i32 {
        match self {
            ExitStatus::Status(status) => status,
            ExitStatus::Signal(signal) => 128 + signal,
            ExitStatus::NotExecuted(libc::ENOENT | libc::ENOTDIR) => 127,
            ExitStatus::NotExecuted(_) => 126,
        }
    }

    fn new(status: c_int) -> Self {
        if libc::WIFSIGNALED(status) {
            return ExitStatus::Signal(libc::WTERMSIG(status));
        }
        ExitStatus::Status(libc::WEXITSTATUS(status))
    }
}

/// A command behind its link.
pub struct Shell {
    dashboard: Server,
    init: Init,
    engines: Option<(Engine, Engine)>,
    /// Observes TCP connections; `None` if the kernel refuses the sockets for it.
    connections: Option<Watcher>,
    /// Set when a device was deleted.
    gone: Arc<AtomicBool>,
    /// Whether [`Self::link_lost`] has reported that.
    gone_told: bool,
    /// Location of the link's far side.
    pub outside: FarSide,
    /// IPv4 address of the far side, and its IPv6 address if there is one.
    pub server: (String, Option<String>),
    /// Name of the device at both ends.
    pub device: String,
    /// Network of the shell's addresses, as in `100.64.0.0/18`.
    pub network: String,
    /// Errno, if the command could not be executed.
    not_executed: Option<c_int>,
    /// How the server ended, if it has.
    pub server_ended: Option<ExitStatus>,
}

/// What the dashboard shows.
struct Links {
    device: String,
    views: [Arc<Mutex<View>>; 2],
    queues: [String; 2],
}

impl StatusSource for Links {
    fn json(&self) -> Value {
        json!({"dev": self.device, "queues": self.queues()})
    }

    // Only `quell live` and `quell watch` have a port for metrics.
    fn metrics(&self, _out: &mut Exposition) {}

    fn title(&self) -> String {
        self.device.clone()
    }

    fn queues(&self) -> Vec<QueueStatus> {
        let views = self.views.iter().zip(&self.queues);
        let view = |seen: &Mutex<View>| *seen.lock().unwrap_or_else(PoisonError::into_inner);
        ["down", "up"]
            .into_iter()
            .zip(views)
            .map(|(name, (seen, queue))| QueueStatus::new(name, queue, view(seen)))
            .collect()
    }
}

/// The first process in the namespaces, with the socket to it.
struct Init {
    pid: c_int,
    socket: OwnedFd,
    /// Signal that ends it together with all other processes in the namespaces.
    end: c_int,
}

impl Drop for Init {
    fn drop(&mut self) {
        sys::kill(self.pid, self.end);
        sys::reap(self.pid);
    }
}

impl Shell {
    /// Makes the namespaces and the link, and runs the command.
    ///
    /// # Errors
    /// If the configuration is wrong, or the kernel refuses a namespace, a device or the command.
    pub fn start(config: Config) -> Result<Self, Error> {
        if !MTU.contains(&config.mtu) {
            let error =
                Error::new(format!("{} bytes are not a packet size", config.mtu)).key("--mtu");
            return Err(error.remedy(format!("write {} to {}", MTU.start(), MTU.end())));
        }
        let privileged = sys::capable(&init::CAPABILITIES);
        let outside = match (privileged, &config.server) {
            (_, Some(_)) => FarSide::Server,
            (true, None) => FarSide::Caller,
            (false, None) => FarSide::Unprivileged,
        };
        let mut ours = None;
        let block = match outside {
            FarSide::Caller => {
                let (block, device) = take_block(config.offload)?;
                ours = Some(device);
                block
            }
            _ => {
                check_tun()?;
                Block::candidates(&[], &[]).remove(0)
            }
        };
        let six = config.mtu >= MTU_SIX;
        let end = |k, default_route| End {
            four: (block.address(k), block.prefix()),
            six: six.then(|| (block.address6(k), 96 + block.prefix())),
            mtu: config.mtu,
            default_route,
        };
        let mut six = true;
        if ours.is_some() {
            six = device::configure(&block.device, &end(1, false))
                .map_err(|e| failure(Step::Address, e.raw_os_error().unwrap_or(0)))?;
        }
        let server = (block.address(1).to_string(), block.address6(1).to_string());
        let environment = environment(&server.0, six.then_some(&server.1))?;
        let program = |words: Vec<OsString>| -> Result<Program, Error> {
            let words = words.into_iter().map(c_string);
            Ok(Program::new(
                words.collect::<Result<_, _>>()?,
                environment.clone(),
            ))
        };
        let mut plan = Plan {
            user: (!privileged).then(identity_maps),
            processes: true,
            device: block.device.clone(),
            offload: config.offload,
            outer: ours.is_none().then(|| end(1, false)),
            inner: end(2, true),
            server: config.server.map(&program).transpose()?,
            command: program(config.command)?,
            output: config.output,
        };
        let made = match set_up(&plan) {
            // Where /proc is restricted (containers), no second one can be mounted: do without a
            // PID namespace.
            Err(Failure {
                step: Step::Proc, ..
            }) => {
                plan.processes = false;
                set_up(&plan)
            }
            done => done,
        }
        .map_err(|f| failure(f.step, f.errno))?;
        let is_caller = ours.is_some();
        let Some((outer, inner)) = ours.or(made.outer).zip(made.inner) else {
            return Err(failure(Step::Device, 0));
        };
        let far = match is_caller {
            true => flows::socket().ok(),
            false => made.far,
        };
        let command = (block.address(2), block.address6(2));
        let connections = made
            .near
            .zip(far)
            .and_then(|(near, far)| Watcher::start(near, far, command).ok());
        let key = random_key();
        let gone = Arc::new(AtomicBool::new(false));
        let talkers = config.dashboard.is_some();
        let engine = |name, params: Params, from: &OwnedFd, to: &OwnedFd| {
            from.try_clone()
                .and_then(|from| Ok((from, to.try_clone()?)))
                .and_then(|ends| {
                    let link = LiveLink::new(Params { talkers, ..params });
                    Engine::start(name, link, ends, config.mtu, key, gone.clone())
                })
                .map_err(|e| Error::new(format!("cannot start the link: {e}")))
        };
        let queues = [&config.down, &config.up].map(|params| params.queue.canonical());
        let engines = (
            engine("down", config.down, &outer, &inner)?,
            engine("up", config.up, &inner, &outer)?,
        );
        // Bound only now, so that the first process has not inherited the socket.
        let mut dashboard = Server::bind(Endpoints {
            dashboard: config.dashboard,
            ..Endpoints::default()
        })?;
        dashboard.start(Box::new(Links {
            device: block.device.to_string_lossy().into_owned(),
            views: [engines.0.seen(), engines.1.seen()],
            queues,
        }));
        let shell = Self {
            dashboard,
            init: made.init,
            engines: Some(engines),
            connections,
            gone,
            gone_told: false,
            outside,
            server: (server.0, (six && made.six).then_some(server.1)),
            device: block.device.to_string_lossy().into_owned(),
            network: block.network(),
            not_executed: None,
            server_ended: None,
        };
        if !config.hold {
            shell.go()?;
        }
        Ok(shell)
    }

    /// The dashboard's address, with its token.
    pub fn dashboard(&self) -> Option<&str> {
        self.dashboard.dashboard.as_deref()
    }

    /// Starts a command that was held ([`Config::hold`]).
    ///
    /// # Errors
    /// If the first process, which would start the command, is gone.
    pub fn go(&self) -> Result<(), Error> {
        sys::send(self.init.socket.as_fd(), &[1], None)
            .map(drop)
            .map_err(|e| failure(Step::Fork, e.raw_os_error().unwrap_or(0)))
    }

    /// Waits until the command has ended, for at most `timeout`.
    ///
    /// # Errors
    /// If the first process behind the link was killed.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>, Error> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !sys::readable(self.init.socket.as_fd(), left) {
                return Ok(None);
            }
            let Some((report, _)) = receive(&self.init.socket) else {
                return Err(Error::new("the first process behind the link was killed"));
            };
            match report.kind {
                Kind::CommandEnded => {
                    sys::take_terminal_back();
                    let ended = ExitStatus::new(report.value);
                    return Ok(Some(
                        self.not_executed.map_or(ended, ExitStatus::NotExecuted),
                    ));
                }
                Kind::NoCommand => self.not_executed = Some(report.value),
                Kind::NoServer => self.server_ended = Some(ExitStatus::NotExecuted(report.value)),
                Kind::ServerEnded => {
                    self.server_ended
                        .get_or_insert(ExitStatus::new(report.value));
                }
                _ => {}
            }
        }
    }

    /// True once, after a device was deleted: the link no longer exists, and both loops have ended
    /// or are about to.
    pub fn link_lost(&mut self) -> bool {
        let lost = self.gone.load(Ordering::Relaxed);
        lost && !std::mem::replace(&mut self.gone_told, true)
    }

    /// Forwards a signal (SIGTERM or SIGHUP) to the command.
    pub fn signal(&self, signal: i32) {
        sys::kill(self.init.pid, signal);
    }

    /// Views of both directions (down, up) while they run.
    pub fn view(&self) -> Option<(View, View)> {
        self.engines.as_ref().map(|(d, u)| (d.view(), u.view()))
    }

    /// Restarts the records of both directions within some milliseconds; with `series` their time
    /// series, too.
    pub fn restart(&self, series: bool) {
        if let Some((down, up)) = &self.engines {
            down.restart(series);
            up.restart(series);
        }
    }

    /// Ends all processes behind the link, and the link. Returns the records of both directions
    /// (down, up).
    ///
    /// # Errors
    /// If the loop of a direction has panicked.
    pub fn finish(mut self) -> Result<(Record, Record), Error> {
        let watched = self.connections.take();
        let stopped = self.engines.take();
        let records = stopped.and_then(|(d, u)| d.finish().zip(u.finish()));
        let (mut down, mut up) =
            records.ok_or_else(|| Error::new("the loop of a direction has panicked"))?;
        if let Some(watched) = watched {
            (down.run.flows, up.run.flows) = watched.finish(down.run.measured_s);
        }
        Ok((down, up))
    }
}

/// Receives a report of the first process; `None` if it is gone.
fn receive(socket: &OwnedFd) -> Option<(Report, Option<OwnedFd>)> {
    let mut message = [0; 16];
    let (n, fd) = sys::receive(socket.as_fd(), &mut message).ok()?;
    Some((Report::parse(&message[..n])?, fd))
}

/// A step of the first process that failed.
struct Failure {
    step: Step,
    errno: c_int,
}

/// Result of the setup.
struct SetUp {
    init: Init,
    /// Devices of the far side and of the command.
    outer: Option<OwnedFd>,
    inner: Option<OwnedFd>,
    /// Whether both devices have IPv6.
    six: bool,
    /// Sockets that list the TCP connections of the far side and of the command.
    far: Option<OwnedFd>,
    near: Option<OwnedFd>,
}

/// Starts the first process and waits until it has set everything up.
fn set_up(plan: &Plan) -> Result<SetUp, Failure> {
    let fork = |e: std::io::Error| Failure {
        step: Step::Fork,
        errno: e.raw_os_error().unwrap_or(0),
    };
    let (ours, theirs) = sys::socket_pair().map_err(fork)?;
    let pid = init::start(plan, &theirs, &ours).map_err(fork)?;
    drop(theirs);
    let mut made = SetUp {
        init: Init {
            pid,
            socket: ours,
            end: plan.end(),
        },
        outer: None,
        inner: None,
        six: true,
        far: None,
        near: None,
    };
    loop {
        if !sys::readable(made.init.socket.as_fd(), SETUP_TIMEOUT) {
            return Err(Failure {
                step: Step::None,
                errno: libc::ETIMEDOUT,
            });
        }
        let Some((report, fd)) = receive(&made.init.socket) else {
            return Err(Failure {
                step: Step::None,
                errno: libc::EPIPE,
            });
        };
        match report.kind {
            Kind::Outer => {
                made.outer = fd;
                made.six &= report.value == 1;
            }
            Kind::Inner => {
                made.inner = fd;
                made.six &= report.value == 1;
            }
            Kind::Connections if report.value == 0 => made.far = fd,
            Kind::Connections => made.near = fd,
            Kind::Ready => return Ok(made),
            Kind::Failed => {
                return Err(Failure {
                    step: report.step,
                    errno: report.value,
                });
            }
            // Other reports before the command runs are about the server. They are discarded here;
            // only `wait` handles them.
            _ => {}
        }
    }
}

/// Makes the device of the first block whose device name is free in this namespace; returns both.
fn take_block(offload: bool) -> Result<(Block, OwnedFd), Error> {
    check_tun()?;
    let known =
        sys::interfaces().map_err(|e| failure(Step::Address, e.raw_os_error().unwrap_or(0)))?;
    let mut routes = Vec::new();
    let list = sys::routes(|message| {
        routes.extend(
            Route::parse(message)
                .into_iter()
                .filter(Route::concerns_pool),
        );
    });
    list.map_err(|e| failure(Step::Address, e.raw_os_error().unwrap_or(0)))?;
    for block in Block::candidates(&known, &routes) {
        match device::tun(&block.device, offload) {
            Ok(device) => return Ok((block, device)),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
            Err(e) => return Err(failure(Step::Device, e.raw_os_error().unwrap_or(0))),
        }
    }
    Err(Error::new("no addresses are left for another shell here")
        .remedy("nest at most 5 shells, and at most 7 in one; leave a part of 100.64.0.0/10 or 198.18.0.0/15 free"))
}

/// Checks that TUN devices can be made.
fn check_tun() -> Result<(), Error> {
    match sys::open(c"/dev/net/tun", libc::O_RDWR) {
        Ok(_) => Ok(()),
        Err(e) => Err(failure(Step::Device, e.raw_os_error().unwrap_or(0))),
    }
}

/// The error message about a failed step, with its remedy.
fn failure(step: Step, errno: c_int) -> Error {
    let reason = std::io::Error::from_raw_os_error(errno);
    let (what, remedy) = match (step, errno) {
        (Step::Device, libc::ENOENT | libc::ENXIO | libc::ENODEV) => (
            "/dev/net/tun is missing".to_owned(),
            "load the module (modprobe tun); in a container: mkdir -p /dev/net; mknod /dev/net/tun c 10 200",
        ),
        (Step::Device, libc::EACCES) => (
            "no right to open /dev/net/tun".to_owned(),
            "run it as root, or let users open it: chmod 666 /dev/net/tun",
        ),
        (Step::Device | Step::Address, libc::EPERM) => (
            "this system does not let users have network namespaces".to_owned(),
            "run it as root",
        ),
        (Step::Fork | Step::User, libc::EPERM | libc::EACCES | libc::EINVAL) => (
            "this system does not let users have namespaces".to_owned(),
            "run it as root, or allow it: sysctl user.max_user_namespaces, \
             kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns",
        ),
        (Step::Fork | Step::Space, libc::ENOSPC) => (
            "no more namespaces are allowed".to_owned(),
            "raise sysctl user.max_net_namespaces (and user.max_user_namespaces, user.max_pid_namespaces)",
        ),
        (Step::None, libc::ETIMEDOUT) => (
            format!(
                "the network namespace was not set up within {} s",
                SETUP_TIMEOUT.as_secs()
            ),
            "the machine is too busy: run it again when it is not",
        ),
        (step, _) => (
            format!(
                "cannot set up the network namespace ({}): {reason}",
                doing(step)
            ),
            "",
        ),
    };
    match remedy {
        "" => Error::new(what),
        remedy => Error::new(what).remedy(remedy),
    }
}

fn doing(step: Step) -> &'static str {
    match step {
        Step::None => "waiting for it",
        Step::User => "mapping users",
        Step::Proc => "mounting /proc",
        Step::Device => "making a TUN device",
        Step::Address => "giving it addresses",
        Step::Space => "making the other side",
        Step::Fork => "starting a process",
    }
}

/// Maps of the user namespace: the caller's user and group keep their numbers.
fn identity_maps() -> (CString, CString) {
    let (user, group) = sys::identity();
    let map = |id| CString::new(format!("{id} {id} 1")).unwrap_or_default();
    (map(user), map(group))
}

/// The caller's environment without the dashboard's token, and with the far side's addresses in
/// `QUELL_SERVER` and `QUELL_SERVER6`.
fn environment(four: &str, six: Option<&String>) -> Result<Vec<CString>, Error> {
    let replaced = ["QUELL_SERVER", "QUELL_SERVER6", dashboard::TOKEN];
    let given = std::env::vars_os().filter(|(name, _)| replaced.iter().all(|other| name != other));
    let set = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
    let ours =
        std::iter::once(set("QUELL_SERVER", four)).chain(six.map(|a| set("QUELL_SERVER6", a)));
    let line = |(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        c_string(name)
    };
    given.chain(ours).map(line).collect()
}

fn c_string(text: OsString) -> Result<CString, Error> {
    CString::new(text.into_vec())
        .map_err(|_| Error::new("an argument of the command holds a NUL byte"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_why_a_namespace_was_not_set_up_has_a_remedy() {
        for (step, errno, remedy) in [
            (Step::Device, libc::ENOENT, "modprobe tun"),
            (Step::Space, libc::ENOSPC, "max_net_namespaces"),
            (
                Step::None,
                libc::ETIMEDOUT,
                "within 20 s; the machine is too busy",
            ),
        ] {
            let line = failure(step, errno).to_string();
            assert!(line.contains(remedy), "{line}");
        }
    }
}
