//! The first process in the namespaces. It makes the devices and runs the command; when it ends,
//! all processes, namespaces and devices of the shell end.
//!
//! It is cloned from a process that may have threads. So between `clone` and `exec` it makes system
//! calls only; [`Plan`] holds all that it needs. It dies with its parent, and since it is the first
//! process of its PID namespace, the kernel then kills all processes there. Namespaces and devices
//! vanish with the last process and the last descriptor of a device. Without a PID namespace it
//! becomes the parent of all orphans (PR_SET_CHILD_SUBREAPER), and kills them before it ends.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::device::{self, End};
use super::flows;
use crate::system::sys;

/// Capabilities that a shell needs, and that its command keeps for nested shells.
pub const CAPABILITIES: [u32; 2] = [12, 21]; // CAP_NET_ADMIN, CAP_SYS_ADMIN

/// A program with its arguments and environment, ready for `exec`.
pub struct Program {
    name: CString,
    arguments: Strings,
    environment: Strings,
}

/// NUL-terminated strings, and the array of pointers to them for C.
struct Strings {
    /// The strings to which `pointers` points.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Strings {
    fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|s| s.as_ptr());
        let pointers = pointers.chain([ptr::null()]).collect();
        Self {
            _strings: strings,
            pointers,
        }
    }
}

impl Program {
    /// The first of `arguments` is the program's name.
    pub fn new(arguments: Vec<CString>, environment: Vec<CString>) -> Self {
        Self {
            name: arguments.first().cloned().unwrap_or_default(),
            arguments: Strings::new(arguments),
            environment: Strings::new(environment),
        }
    }

    /// Becomes this program; returns errno if that fails.
    fn exec(&self) -> c_int {
        // SAFETY: both arrays end in a null pointer and point to strings that live as long as
        // `self`.
        unsafe {
            libc::execvpe(
                self.name.as_ptr(),
                self.arguments.pointers.as_ptr(),
                self.environment.pointers.as_ptr(),
            );
        }
        sys::errno()
    }
}

/// Instructions for the first process.
pub struct Plan {
    /// Lines for `uid_map` and `gid_map`, if the namespaces get a user namespace of their own.
    pub user: Option<(CString, CString)>,
    /// Whether to make a PID namespace, so that no process outlives the shell.
    pub processes: bool,
    /// Name of the device at both ends.
    pub device: CString,
    /// Whether the devices hand over large packets (GSO).
    pub offload: bool,
    /// The far side, if that is a namespace of its own.
    pub outer: Option<End>,
    /// The command's side.
    pub inner: End,
    /// Program that runs on the far side.
    pub server: Option<Program>,
    /// Program that runs behind the link.
    pub command: Program,
    /// Standard output and error of the command; `None`: those of this process.
    pub output: Option<(RawFd, RawFd)>,
}

impl Plan {
    /// The signal that ends the first process together with all others.
    pub fn end(&self) -> c_int {
        match self.processes {
            true => libc::SIGKILL,
            false => libc::SIGUSR1,
        }
    }
}

/// Kind of a report from the first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The far side's device; the value is 1 if it has IPv6. The message carries its descriptor.
    Outer = 1,
    /// The command's device; value and message as for [`Kind::Outer`].
    Inner,
    /// Everything is set up; the process waits for a message before it runs the command.
    Ready,
    /// A step failed; the value is errno.
    Failed,
    /// The command could not be executed; the value is errno.
    NoCommand,
    /// The server could not be executed; the value is errno.
    NoServer,
    /// The server ended; the value is its status.
    ServerEnded,
    /// The command ended; the value is its status.
    CommandEnded,
    /// A socket that lists the connections of the namespace of the far side (value 0) or of the
    /// command (1). The message carries its descriptor.
    Connections,
}

/// Step of the setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// No step: the report is not about a failed one.
    None,
    /// Writing the maps of the user namespace.
    User,
    /// Mounting a `/proc` that shows the PID namespace.
    Proc,
    /// Making a TUN device.
    Device,
    /// Configuring a device or the loopback device.
    Address,
    /// Making the second network namespace.
    Space,
    /// Starting a process.
    Fork,
}

/// A report from the first process.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Kind of the report.
    pub kind: Kind,
    /// Step that failed, if one did.
    pub step: Step,
    /// See [`Kind`].
    pub value: c_int,
}

impl Report {
    fn bytes(self) -> [u8; 6] {
        let v = self.value.to_ne_bytes();
        [self.kind as u8, self.step as u8, v[0], v[1], v[2], v[3]]
    }

    /// Parses a received report; `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [kind, step, value @ ..] = <[u8; 6]>::try_from(bytes).ok()?;
        let kinds = [
            Kind::Outer,
            Kind::Inner,
            Kind::Ready,
            Kind::Failed,
            Kind::NoCommand,
            Kind::NoServer,
            Kind::ServerEnded,
            Kind::CommandEnded,
            Kind::Connections,
        ];
        let steps = [
            Step::None,
            Step::User,
            Step::Proc,
            Step::Device,
            Step::Address,
            Step::Space,
            Step::Fork,
        ];
        Some(Self {
            kind: kinds.into_iter().find(|k| *k as u8 == kind)?,
            step: steps.into_iter().find(|s| *s as u8 == step)?,
            value: c_int::from_ne_bytes(value),
        })
    }
}

/// Starts the first process; returns its process ID. `theirs` is its end of the socket, `ours` the
/// end that it must not keep.
pub fn start(plan: &Plan, theirs: &OwnedFd, ours: &OwnedFd) -> std::io::Result<c_int> {
    let mut flags = libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::SIGCHLD;
    if plan.user.is_some() {
        flags |= libc::CLONE_NEWUSER;
    }
    if plan.processes {
        flags |= libc::CLONE_NEWPID;
    }
    // SAFETY: without CLONE_VM and without a stack this is a fork: the child runs on a copy of
    // everything. It only makes system calls, since another thread may have held a lock (such as
    // the allocator's) when the memory was copied.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_ulong::from(flags.cast_unsigned()),
            0,
            0,
            0,
            0,
        )
    };
    match pid {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            // SAFETY: this process never drops `ours`: it leaves by `_exit`.
            unsafe { libc::close(ours.as_raw_fd()) };
            Init {
                plan,
                socket: theirs.as_fd(),
            }
            .run()
        }
        pid => Ok(c_int::try_from(pid).unwrap_or(-1)),
    }
}

struct Init<'a> {
    plan: &'a Plan,
    socket: BorrowedFd<'a>,
}

impl Init<'_> {
    /// Sends a report, with a descriptor if one is given.
    fn tell(&self, kind: Kind, value: c_int, fd: Option<RawFd>) {
        let report = Report {
            kind,
            step: Step::None,
            value,
        };
        if sys::send(self.socket, &report.bytes(), fd).is_err() {
            exit(1); // quell has ended.
        }
    }

    /// Reports that a step failed, and ends this process.
    fn fail(&self, step: Step, error: &std::io::Error) -> ! {
        let report = Report {
            kind: Kind::Failed,
            step,
            value: error.raw_os_error().unwrap_or(0),
        };
        let _ = sys::send(self.socket, &report.bytes(), None);
        exit(1)
    }

    fn need<T>(&self, step: Step, result: std::io::Result<T>) -> T {
        match result {
            Ok(value) => value,
            Err(error) => self.fail(step, &error),
        }
    }

    fn run(&self) -> ! {
        // SAFETY: prctl takes numbers here, and both handlers do only what a handler may. Ctrl-C
        // reaches the command without this process.
        let ignored_hangup = unsafe {
            if !self.plan.processes {
                let handler = end as extern "C" fn(c_int) as libc::sighandler_t;
                libc::signal(self.plan.end(), handler);
                libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            }
            die_with_parent(self.plan.end());
            for signal in [libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_IGN);
            }
            // A caller may ignore SIGCHLD, which is inherited; the exit status of children would
            // then be lost.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            forwarded_signals(libc::SIG_BLOCK);
            let handler = forward as extern "C" fn(c_int) as libc::sighandler_t;
            libc::signal(libc::SIGTERM, handler);
            libc::signal(libc::SIGHUP, handler) == libc::SIG_IGN
        };
        self.enter();
        self.need(Step::Address, device::loopback_up());
        let mut server = -1;
        if let Some(end) = &self.plan.outer {
            self.device(Kind::Outer, end);
            if let Some(program) = &self.plan.server {
                server = self.fork(|| self.become_server(program));
                wait_for_listener();
            }
            // SAFETY: no pointers.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                self.fail(Step::Space, &std::io::Error::last_os_error());
            }
            self.need(Step::Address, device::loopback_up());
        }
        self.device(Kind::Inner, &self.plan.inner);
        // Nested shells send their packets through this namespace. Where /proc/sys cannot be
        // written, forwarding stays as it is.
        sys::write_file(c"/proc/sys/net/ipv4/ip_forward", b"1");
        sys::write_file(c"/proc/sys/net/ipv6/conf/all/forwarding", b"1");
        if self.plan.user.is_some() {
            sys::keep_capabilities(&CAPABILITIES);
        }
        self.tell(Kind::Ready, 0, None);
        let mut go = [0; 1];
        match sys::receive(self.socket, &mut go) {
            Ok((1, _)) => {}
            _ => exit(1),
        }
        let command = self.fork(|| self.become_command(ignored_hangup));
        COMMAND.store(command, Ordering::Relaxed);
        forwarded_signals(libc::SIG_UNBLOCK);
        self.wait(command, server)
    }

    /// Sets up the new user, mount and PID namespaces.
    fn enter(&self) {
        if let Some((uids, gids)) = &self.plan.user {
            // user_namespaces(7): without `deny` an unprivileged process may not write gid_map.
            sys::write_file(c"/proc/self/setgroups", b"deny");
            for (path, map) in [(c"/proc/self/uid_map", uids), (c"/proc/self/gid_map", gids)] {
                if !sys::write_file(path, map.as_bytes()) {
                    self.fail(Step::User, &std::io::Error::last_os_error());
                }
            }
        }
        let no_text = ptr::null::<c_char>();
        // SAFETY: strings end in a NUL. Mounts made here are not visible outside.
        unsafe {
            libc::mount(
                no_text,
                c"/".as_ptr(),
                no_text,
                libc::MS_REC | libc::MS_SLAVE,
                ptr::null(),
            );
            if self.plan.processes {
                let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
                let (proc, path) = (c"proc".as_ptr(), c"/proc".as_ptr());
                if libc::mount(proc, path, proc, flags, ptr::null()) != 0 {
                    self.fail(Step::Proc, &std::io::Error::last_os_error());
                }
            }
        }
    }

    /// Makes and configures a device, and sends its descriptor to quell.
    fn device(&self, kind: Kind, end: &End) {
        let file = self.need(
            Step::Device,
            device::tun(&self.plan.device, self.plan.offload),
        );
        let six = self.need(Step::Address, device::configure(&self.plan.device, end));
        self.tell(kind, six.into(), Some(file.as_raw_fd()));
        // Without this socket the record has no flows.
        if let Ok(socket) = flows::socket() {
            let near = c_int::from(kind == Kind::Inner);
            self.tell(Kind::Connections, near, Some(socket.as_raw_fd()));
        }
        // This process closes its descriptor here: the device must vanish when quell ends.
    }

    fn fork(&self, child: impl FnOnce() -> c_int) -> c_int {
        // SAFETY: this process has one thread; the child ends in `exec` or `_exit`.
        match unsafe { libc::fork() } {
            -1 => self.fail(Step::Fork, &std::io::Error::last_os_error()),
            0 => {
                if !self.plan.processes {
                    die_with_parent(libc::SIGKILL);
                }
                exit(child())
            }
            pid => pid,
        }
    }

    fn become_command(&self, ignored_hangup: bool) -> c_int {
        if let Some((out, err)) = self.plan.output {
            // SAFETY: no pointers; the descriptors were opened for this.
            unsafe {
                libc::dup2(out, 1);
                libc::dup2(err, 2);
            }
        }
        default_signals(ignored_hangup);
        self.exec(&self.plan.command, Kind::NoCommand)
    }

    fn become_server(&self, program: &Program) -> c_int {
        // SAFETY: no pointers but a string with a NUL. The server neither reads the command's input
        // nor writes into its output.
        unsafe {
            let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
            libc::dup2(nothing, 0);
            libc::dup2(2, 1);
            // Its own process group: signals to the command's group must not reach the server.
            libc::setpgid(0, 0);
        }
        default_signals(false);
        self.exec(program, Kind::NoServer)
    }

    /// Becomes the program, or reports the error and returns the exit status that shells use for
    /// it.
    fn exec(&self, program: &Program, failed: Kind) -> c_int {
        let error = program.exec();
        let report = Report {
            kind: failed,
            step: Step::None,
            value: error,
        };
        let _ = sys::send(self.socket, &report.bytes(), None);
        match error {
            libc::ENOENT | libc::ENOTDIR => 127,
            _ => 126,
        }
    }

    /// Reaps children until the command ends.
    fn wait(&self, command: c_int, server: c_int) -> ! {
        loop {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            let pid = unsafe { libc::waitpid(-1, &mut status, 0) };
            if pid == command {
                if !self.plan.processes {
                    // Before the report: quell ends this process when it receives that.
                    if server > 0 {
                        sys::kill(-server, libc::SIGKILL);
                    }
                    kill_children();
                }
                self.tell(Kind::CommandEnded, status, None);
                exit(0);
            } else if pid == server {
                self.tell(Kind::ServerEnded, status, None);
            } else if pid < 0 && sys::errno() == libc::ECHILD {
                exit(1);
            }
        }
    }
}

/// Process ID of the command, once it runs.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// Forwards a signal to the command.
extern "C" fn forward(signal: c_int) {
    let command = COMMAND.load(Ordering::Relaxed);
    if command > 0 {
        sys::kill(command, signal);
    }
}

/// Kills all children, then ends this process.
extern "C" fn end(_: c_int) {
    kill_children();
    exit(1)
}

/// Makes the kernel send this process a signal when its parent ends.
fn die_with_parent(signal: c_int) {
    // SAFETY: no pointers.
    unsafe {
        libc::prctl(
            libc::PR_SET_PDEATHSIG,
            libc::c_ulong::from(signal.cast_unsigned()),
            0,
            0,
            0,
        );
    }
}

/// Kills the children, and the grandchildren, which become children when their parents end, until
/// none is left, for at most two seconds.
fn kill_children() {
    for _ in 0..2000 {
        let mut text = [0u8; 4096];
        // Needs CONFIG_PROC_CHILDREN, as CRIU does. Without it, the command and the server end by
        // the signal that they get at their parent's death.
        let n = sys::read_file(c"/proc/thread-self/children", &mut text);
        // A number that is cut off at the end of the buffer has no space behind it.
        for word in text[..n].split_inclusive(|b| *b == b' ') {
            let digits = word.strip_suffix(b" ").and_then(|w| str::from_utf8(w).ok());
            let child = digits.and_then(|w| w.parse().ok()).unwrap_or(0);
            // This /proc may number the processes of another namespace.
            if child > 0 && is_child(child) {
                sys::kill(child, libc::SIGKILL);
            }
        }
        // SAFETY: no pointers but a null one, for a status that is not needed.
        unsafe {
            loop {
                match libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG) {
                    -1 => return,
                    0 => break,
                    _ => {}
                }
            }
            if n == 0 && libc::access(c"/proc/thread-self/children".as_ptr(), libc::F_OK) != 0 {
                return;
            }
            libc::usleep(1000);
        }
    }
}

/// Whether this is a child of this process.
fn is_child(pid: c_int) -> bool {
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: all zeros are a value of this structure, and it outlives the call.
    unsafe {
        let mut about: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_PID, pid.cast_unsigned(), &mut about, how) == 0
    }
}

/// Blocks or unblocks the signals that [`forward`] handles. One that arrives before the command
/// runs, or before it has its own handlers, stays pending.
fn forwarded_signals(how: c_int) {
    // SAFETY: the set is initialised before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGHUP);
        libc::sigprocmask(how, &set, ptr::null_mut());
    }
}

fn exit(status: c_int) -> ! {
    // SAFETY: ends this process without running the exit handlers that the parent registered.
    unsafe { libc::_exit(status) }
}

/// Restores the default action of each signal that quell or Python ignores or handles.
fn default_signals(ignored_hangup: bool) {
    // SAFETY: no handlers are installed; an empty mask blocks nothing.
    unsafe {
        for signal in [
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGPIPE,
            libc::SIGXFSZ,
        ] {
            libc::signal(signal, libc::SIG_DFL);
        }
        if !ignored_hangup {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
    }
}

/// Waits up to two seconds until a TCP socket listens, or there is a UDP socket, in this network
/// namespace.
fn wait_for_listener() {
    let mut text = [0u8; 4096];
    for _ in 0..200 {
        for path in [c"/proc/thread-self/net/tcp", c"/proc/thread-self/net/tcp6"] {
            // A socket in state 0A listens (proc_pid_net(5)).
            let n = sys::read_file(path, &mut text);
            if text[..n].windows(4).any(|w| w == b" 0A ") {
                return;
            }
        }
        for path in [c"/proc/thread-self/net/udp", c"/proc/thread-self/net/udp6"] {
            // A heading, then a line per socket.
            let n = sys::read_file(path, &mut text);
            if text[..n].iter().filter(|b| **b == b'\n').count() > 1 {
                return;
            }
        }
        // SAFETY: no pointers.
        unsafe { libc::usleep(10_000) };
    }
}
