//! Threads and processes: identity, scheduling, clock, random numbers, signals, children.

use std::ffi::c_int;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use quell_qdisc::time::Instant;

/// 32 random bits from the operating system; `None` if it gives none.
pub fn random() -> Option<u32> {
    let mut bytes = [0; 4];
    // SAFETY: the kernel writes at most `bytes.len()` bytes.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    (got == bytes.len().cast_signed()).then(|| u32::from_ne_bytes(bytes))
}

/// The effective user and group of this process.
pub fn identity() -> (u32, u32) {
    // SAFETY: no arguments, no errors.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Gives this thread real-time priority and exact timers, as far as allowed; returns whether it has
/// real-time priority.
pub fn be_punctual(priority: c_int) -> bool {
    // SAFETY: zero is a valid sched_param, which outlives the call; prctl takes numbers here. The
    // system call is made directly, since musl's function always fails.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1u64, 0, 0, 0);
        let mut param: libc::sched_param = std::mem::zeroed();
        param.sched_priority = priority;
        let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const param) == 0
    }
}

/// Lets this thread run only when nothing else wants its CPU (SCHED_IDLE).
pub fn be_idle() {
    // SAFETY: as in `be_punctual`.
    unsafe {
        let param: libc::sched_param = std::mem::zeroed();
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            libc::SCHED_IDLE,
            &raw const param,
        );
    }
}

/// Numbers of the CPUs that this process may use.
pub fn processors() -> Vec<usize> {
    // SAFETY: zero is a valid set, filled by the kernel for its size; numbers below CPU_SETSIZE lie
    // within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        let all = 0..libc::CPU_SETSIZE as usize;
        all.filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// Pins this thread to a CPU. No effect if that is offline by now.
pub fn pin(cpu: usize) {
    // SAFETY: zero is a valid set, which outlives the call; the number comes from `processors`.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// The time on CLOCK_MONOTONIC.
pub fn monotonic() -> Instant {
    // SAFETY: zero is a valid timespec to be filled; it outlives the call.
    let now = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now);
        now
    };
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    Instant::from_nanos(seconds * 1_000_000_000 + nanos)
}

/// Sends a signal to a process or, if `pid` is negative, to a process group; false if that failed.
pub fn kill(pid: c_int, signal: c_int) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::kill(pid, signal) == 0 }
}

/// Makes the kernel kill the program when the thread that starts it ends.
pub fn end_with_parent(command: &mut Command) {
    let parent = std::process::id().cast_signed();
    let prepare = move || {
        // SAFETY: numbers only; both calls may be made between fork and exec.
        let there = unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) == 0
                && libc::getppid() == parent
        };
        match there {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    };
    // SAFETY: the closure allocates nothing and makes system calls only.
    unsafe { command.pre_exec(prepare) };
}

/// Waits until a child has ended; returns its wait status (waitpid(2)), or `None` if there is no
/// such child.
pub fn reap(pid: c_int) -> Option<c_int> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    match unsafe { libc::waitpid(pid, &mut status, 0) } {
        -1 => None,
        _ => Some(status),
    }
}

/// Makes this process group the terminal's foreground group again, if standard input is a terminal.
pub fn take_terminal_back() {
    // SAFETY: signal dispositions are restored to what they were; no pointers besides.
    unsafe {
        if libc::isatty(0) == 1 {
            let was = libc::signal(libc::SIGTTOU, libc::SIG_IGN);
            libc::tcsetpgrp(0, libc::getpgrp());
            libc::signal(libc::SIGTTOU, was);
        }
    }
}
