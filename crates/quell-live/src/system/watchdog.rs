//! Lets packets pass when a loop stalls: it is stopped (SIGSTOP, a debugger), hangs, or gets no CPU
//! time.
//!
//! It is a separate process, forked before there are threads, so that nothing that stops
//! `quell live` stops it. Each loop counts its turns in shared memory. If a count stays the same
//! for [`STUCK_TIMEOUT`], the watchdog writes the message that the loop's backend has prepared to a
//! copy of the backend's socket. The watchdog of `quell live` dies with the watched process, so
//! that its copies of sockets keep no packet queue open. That of `quell steer` outlives the watched
//! process and then writes the prepared messages, too, which restore the knobs. A message that was
//! written for a stalled loop is not written again at the end, since an administrator may have
//! changed the knob since.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use quell_link::Error;
use quell_qdisc::num;

use super::{host, sandbox, sys};

/// Interval of the watchdog's checks.
const TICK: Duration = Duration::from_millis(50);
/// Checks without a turn of the loop after which packets are let through.
const TICKS: u32 = 5;
/// Time without a turn of the loop after which its packets are let through.
pub const STUCK_TIMEOUT: Duration = TICK.saturating_mul(TICKS);
/// Most loops that a watchdog watches.
pub const MAX_LOOPS: usize = 64;
/// Longest message of a loop, bytes.
const BYTES: usize = 128;

// States of a loop. Only the watchdog leaves RUNS, only the loop returns to it.

/// The watchdog has not written since the loop's last turn.
const RUNS: u32 = 0;
/// The loop has stalled, and the watchdog is writing its message.
const OPENING: u32 = 1;
/// The watchdog has written the message.
const OPEN: u32 = 2;

/// Memory that a loop shares with the watchdog.
#[repr(C)]
struct LoopState {
    turns: AtomicU32,
    state: AtomicU32,
    /// Replaces the last four bytes of the message that is written when the loop stalls.
    tail: AtomicU32,
}

/// The shared memory of both processes.
struct Shared(*mut LoopState);

// SAFETY: it holds atomics only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> io::Result<Self> {
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        let length = MAX_LOOPS * size_of::<LoopState>();
        // SAFETY: a new mapping, at an address that the kernel chooses; it is zeroed, which is
        // valid.
        match unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, -1, 0) } {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            at => Ok(Self(at.cast())),
        }
    }

    /// State of the loop with this number.
    fn loop_state(&self, place: usize) -> &LoopState {
        // SAFETY: the mapping has MAX_LOOPS of them, aligned, and lives as long as `self`.
        unsafe { &*self.0.add(place.min(MAX_LOOPS - 1)) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to `self`, and no reference into it exists.
        unsafe { libc::munmap(self.0.cast(), MAX_LOOPS * size_of::<LoopState>()) };
    }
}

/// A loop's handle with which it tells the watchdog that it runs.
#[derive(Clone)]
pub struct Heartbeat {
    shared: Arc<Shared>,
    place: usize,
}

impl Heartbeat {
    /// Reports a turn of the loop. Returns true if the watchdog has written the loop's message
    /// since the last turn, so that the loop must undo its effect. `tail` replaces the last four
    /// bytes of the message for the next stall.
    pub fn turn(&self, tail: u32) -> bool {
        let loop_state = self.shared.loop_state(self.place);
        loop_state.tail.store(tail, Ordering::Relaxed);
        loop_state.turns.fetch_add(1, Ordering::Relaxed);
        // In the state OPENING the watchdog is still writing: a later turn returns true.
        loop_state
            .state
            .compare_exchange(OPEN, RUNS, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether the watchdog has written since the last turn, or is writing now.
    pub fn acted(&self) -> bool {
        self.shared
            .loop_state(self.place)
            .state
            .load(Ordering::Acquire)
            != RUNS
    }

    /// Turns that the loop has made.
    pub fn turns(&self) -> u32 {
        self.shared
            .loop_state(self.place)
            .turns
            .load(Ordering::Relaxed)
    }
}

/// Flag in [`PreparedMessage::place`]: the message is only written at the end of the watched
/// process.
const AT_END: u8 = 0x80;

/// A message that the watchdog writes when a loop stalls, or at the end of the watched process.
struct PreparedMessage {
    /// Number of the loop, and [`AT_END`].
    place: u8,
    fd: OwnedFd,
    bytes: Vec<u8>,
}

/// What the watchdog does when the watched process has ended.
enum ExitAction {
    /// Nothing: the watchdog ends, too.
    End,
    /// It writes the messages of all loops, then deletes this file.
    Restore(CString),
}

/// Handle of the watchdog's process.
pub struct Watchdog {
    shared: Arc<Shared>,
    at_exit: ExitAction,
    socket: OwnedFd,
    /// `None` once it has ended, since the kernel may reuse the process ID.
    pid: Option<c_int>,
    messages: Vec<PreparedMessage>,
    heartbeats: usize,
}

impl Watchdog {
    /// Starts a watchdog that ends with this process.
    pub fn start() -> Result<Self, Error> {
        Self::with(ExitAction::End)
    }

    /// Starts a watchdog that also writes the messages if this process ends without
    /// [`Self::dismiss`], and then deletes the file `state`.
    pub fn restoring(state: &Path) -> Result<Self, Error> {
        let path = CString::new(state.as_os_str().as_bytes());
        Self::with(ExitAction::Restore(path.unwrap_or_default()))
    }

    fn with(at_exit: ExitAction) -> Result<Self, Error> {
        let no = |e: io::Error| Error::new(format!("no watchdog: {}", host::reason(&e)));
        let shared = Arc::new(Shared::new().map_err(no)?);
        let (socket, pid) = fork(&shared, &at_exit).map_err(no)?;
        Ok(Self {
            shared,
            at_exit,
            socket,
            pid: Some(pid),
            messages: Vec::new(),
            heartbeats: 0,
        })
    }

    /// Registers one more loop.
    pub fn heartbeat(&mut self) -> Heartbeat {
        self.heartbeats += 1;
        Heartbeat {
            shared: self.shared.clone(),
            place: self.heartbeats - 1,
        }
    }

    /// Makes the watchdog write `bytes` to a copy of `fd` when the loop of this heartbeat stalls.
    pub fn guard(
        &mut self,
        heartbeat: &Heartbeat,
        fd: BorrowedFd<'_>,
        bytes: Vec<u8>,
    ) -> Result<(), Error> {
        self.prepare(num::low_u8(heartbeat.place as u64), fd, bytes)
    }

    /// Makes the watchdog write `bytes` to a copy of `fd` when this process has ended, but not when
    /// the loop stalls.
    pub fn guard_at_end(
        &mut self,
        heartbeat: &Heartbeat,
        fd: BorrowedFd<'_>,
        bytes: Vec<u8>,
    ) -> Result<(), Error> {
        self.prepare(num::low_u8(heartbeat.place as u64) | AT_END, fd, bytes)
    }

    fn prepare(&mut self, place: u8, fd: BorrowedFd<'_>, bytes: Vec<u8>) -> Result<(), Error> {
        let no = |e: io::Error| Error::new(format!("no watchdog: {}", host::reason(&e)));
        if usize::from(place & !AT_END) >= MAX_LOOPS || bytes.len() > BYTES {
            return Err(Error::new("no watchdog: too many loops"));
        }
        let fd = fd.try_clone_to_owned().map_err(no)?;
        let message = PreparedMessage { place, fd, bytes };
        message.send(&self.socket).map_err(no)?;
        self.messages.retain(|other| other.place != place);
        self.messages.push(message);
        Ok(())
    }

    /// Makes the watchdog forget all loops and close their sockets.
    pub fn dismiss(&mut self) {
        self.heartbeats = 0;
        for message in self.messages.drain(..) {
            let _ = sys::send(self.socket.as_fd(), &[message.place], None);
        }
    }

    /// Starts the watchdog again if it was killed; returns whether it was started. If the system
    /// refuses, the next call tries again.
    pub fn revive(&mut self) -> bool {
        if self.pid.is_some_and(runs) {
            return false;
        }
        self.pid = None;
        let Ok((socket, pid)) = fork(&self.shared, &self.at_exit) else {
            return false;
        };
        (self.socket, self.pid) = (socket, Some(pid));
        for message in &self.messages {
            let _ = message.send(&self.socket);
        }
        true
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // It ends when its socket is closed at this end; the signal ensures that.
        if let Some(pid) = self.pid {
            sys::kill(pid, libc::SIGKILL);
            sys::reap(pid);
        }
    }
}

/// Whether a child runs. One that has ended is reaped, which frees its process ID.
fn runs(pid: c_int) -> bool {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) == 0 }
}

impl PreparedMessage {
    fn send(&self, socket: &OwnedFd) -> io::Result<()> {
        let mut message = vec![self.place];
        message.extend_from_slice(&self.bytes);
        sys::send(socket.as_fd(), &message, Some(self.fd.as_raw_fd()))
    }
}

/// Forks the watchdog; returns this process's end of the socket, and the process ID.
fn fork(shared: &Shared, at_exit: &ExitAction) -> io::Result<(OwnedFd, c_int)> {
    let (ours, theirs) = sys::socket_pair()?;
    // SAFETY: no pointers.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child only makes system calls and leaves by `_exit`: other threads may have held
    // locks when memory was copied.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => watch(theirs.as_fd(), shared, at_exit, parent),
        pid => Ok((ours, pid)),
    }
}

/// The watchdog's main loop.
fn watch(socket: BorrowedFd<'_>, shared: &Shared, at_exit: &ExitAction, parent: c_int) -> ! {
    detach(socket.as_raw_fd(), at_exit, parent);
    let mut loops: [Option<WatchedLoop>; MAX_LOOPS] = [const { None }; MAX_LOOPS];
    let mut message = [0; 1 + BYTES];
    loop {
        if sys::readable(socket, TICK) {
            match sys::receive(socket, &mut message) {
                Ok((n, fd)) if n > 0 => {
                    let place = usize::from(message[0] & !AT_END);
                    let at_end = message[0] & AT_END != 0;
                    if let Some(watched) = loops.get_mut(place) {
                        *watched = fd.map(|fd| WatchedLoop::new(fd, &message[1..n], at_end));
                    }
                }
                _ => {
                    if let ExitAction::Restore(state) = at_exit {
                        let (mut written, mut whole) = (0, true);
                        for (place, watched) in loops.iter().enumerate() {
                            let Some(watched) = watched else { continue };
                            match watched.end(shared.loop_state(place)) {
                                End::Written => written += 1,
                                End::InPart => whole = false,
                                End::Refused => {}
                            }
                        }
                        if written > 0 && whole {
                            sys::unlink(state);
                        }
                    }
                    exit()
                }
            }
            continue;
        }
        for (place, watched) in loops.iter_mut().enumerate() {
            if let Some(watched) = watched {
                watched.look(shared.loop_state(place));
            }
        }
    }
}

/// Result of writing at the end of the watched process.
enum End {
    /// Everything was written, now or when the loop stalled.
    Written,
    /// Only the first message was written.
    InPart,
    /// Nothing was written because of an error.
    Refused,
}

/// A loop's state in the watchdog's process.
struct WatchedLoop {
    fd: OwnedFd,
    bytes: [u8; BYTES],
    length: usize,
    at_end: bool,
    turns: u32,
    ticks: u32,
}

impl WatchedLoop {
    fn new(fd: OwnedFd, prepared: &[u8], at_end: bool) -> Self {
        let mut bytes = [0; BYTES];
        bytes[..prepared.len()].copy_from_slice(prepared);
        Self {
            fd,
            bytes,
            length: prepared.len(),
            at_end,
            turns: 0,
            ticks: 0,
        }
    }

    /// Checks for a turn. It counts checks, not seconds, since a loop has not stalled if the
    /// machine was suspended.
    fn look(&mut self, loop_state: &LoopState) {
        let turns = loop_state.turns.load(Ordering::Relaxed);
        if turns != self.turns {
            (self.turns, self.ticks) = (turns, 0);
            return;
        }
        self.ticks = self.ticks.saturating_add(1);
        let stalled = self.ticks >= TICKS && !self.at_end;
        if stalled && loop_state.state.load(Ordering::Acquire) == RUNS {
            loop_state.state.store(OPENING, Ordering::Release);
            let tail = loop_state.tail.load(Ordering::Relaxed).to_ne_bytes();
            if let Some(last) = self.bytes[..self.length].last_chunk_mut() {
                *last = tail;
            }
            self.write();
            loop_state.state.store(OPEN, Ordering::Release);
        }
    }

    /// Writes what has not been written. Of the messages for the end, only the first is written if
    /// the loop had stalled: the others are valid only if the loop has noticed the changes that
    /// other programs made.
    fn end(&self, loop_state: &LoopState) -> End {
        if !self.at_end && loop_state.state.load(Ordering::Acquire) == OPEN {
            return End::Written;
        }
        let bytes = &self.bytes[..self.length];
        // A netlink message begins with its length.
        let first = bytes.first_chunk().map_or(0, |n| u32::from_ne_bytes(*n)) as usize;
        let part = self.at_end && self.ticks >= TICKS && first < bytes.len();
        let bytes = if part { &bytes[..first] } else { bytes };
        match sys::send_bytes(self.fd.as_fd(), bytes) {
            Err(_) => End::Refused,
            Ok(_) if part => End::InPart,
            Ok(_) => End::Written,
        }
    }

    fn write(&self) {
        let _ = sys::send_bytes(self.fd.as_fd(), &self.bytes[..self.length]);
    }
}

/// Detaches from what the fork has inherited: terminal, descriptors, privileges.
fn detach(socket: RawFd, at_exit: &ExitAction, parent: c_int) {
    // SAFETY: numbers and one string with a NUL; no closed descriptor is used afterwards.
    unsafe {
        if matches!(at_exit, ExitAction::End) {
            let kill = libc::SIGKILL as libc::c_ulong;
            libc::prctl(libc::PR_SET_PDEATHSIG, kill, 0, 0, 0);
            if libc::getppid() != parent {
                exit();
            }
        }
        libc::prctl(libc::PR_SET_NAME, c"quell-watchdog".as_ptr());
        // A new session, so that Ctrl-Z and Ctrl-C at the terminal do not reach it.
        libc::setsid();
        let (below, above) = (socket.cast_unsigned(), socket.cast_unsigned() + 1);
        if below > 0 {
            libc::syscall(libc::SYS_close_range, 0, below - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, above, libc::c_uint::MAX, 0);
    }
    // A higher priority than the loops', since a hanging loop may keep a CPU to itself.
    sys::be_punctual(2);
    sandbox::watchdog();
}

fn exit() -> ! {
    // SAFETY: ends this process without running the exit handlers that the parent has registered.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_that_cannot_be_restarted_keeps_no_process_id() {
        // In its own thread, since a seccomp filter is permanent.
        let test = std::thread::spawn(|| {
            let mut watchdog = Watchdog::start().expect("a watchdog");
            let pid = watchdog.pid.expect("its process id");
            assert!(!watchdog.revive(), "it runs");
            assert!(sys::kill(pid, libc::SIGKILL));
            while runs(pid) {
                std::thread::sleep(TICK);
            }
            sandbox::forkless();
            assert!(!watchdog.revive(), "none was started");
            assert_eq!(watchdog.pid, None);
        });
        test.join().expect("no panic");
    }

    #[test]
    fn a_killed_watchdog_is_restarted() {
        let mut watchdog = Watchdog::start().expect("a watchdog");
        let pid = watchdog.pid;
        assert!(sys::kill(pid.expect("its process id"), libc::SIGKILL));
        while !watchdog.revive() {
            std::thread::sleep(TICK);
        }
        assert!(watchdog.pid.is_some_and(runs) && watchdog.pid != pid);
    }
}
