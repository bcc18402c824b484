//! Restricts each part of `quell live` and `quell steer`, once it is set up, to the capabilities
//! and system calls that it needs.
//!
//! A system call that is not allowed fails with EPERM, so that a missing entry does not stop
//! traffic. Capabilities and filters belong to a thread; the threads and programs that it starts
//! inherit them and cannot gain more.
#![allow(unsafe_code)]

use std::ffi::c_long;

use quell_qdisc::num;

use super::host::{NET_ADMIN, NET_RAW};
use super::sys;

/// Capabilities that `quell live` as a whole needs: for rules and queues, raw sockets, priorities,
/// and for AF_XDP's program and pinned frames.
const ALL: [u32; 5] = [NET_ADMIN, NET_RAW, SYS_NICE, IPC_LOCK, BPF];
const IPC_LOCK: u32 = 14;
const SYS_NICE: u32 = 23;
const BPF: u32 = 39;

/// System calls of every thread: memory, locks, time, signals, exit.
const BASE: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_set_robust_list,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_close,
    libc::SYS_ppoll,
    // For a panic's message.
    libc::SYS_write,
    libc::SYS_writev,
];

/// Further system calls of a packet loop, which receives and sends at open sockets.
const LOOP: &[c_long] = &[
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_getsockopt,
];

/// Further system calls of threads that serve clients: they accept connections at open sockets.
const SERVER: &[c_long] = &[libc::SYS_accept4, libc::SYS_recvfrom, libc::SYS_sendto];

/// System calls that neither the main thread nor the programs that it starts (iptables, nft) need.
const NEVER: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_open_by_handle_at,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_personality,
];

/// Restricts the process once everything is open: permanently limits its capabilities and those of
/// programs that it starts.
pub fn process() {
    sys::bound_capabilities(&ALL);
    sys::limit_capabilities(&ALL);
    filter(NEVER, false);
}

/// Restricts a packet loop; verdicts on packets need CAP_NET_ADMIN.
pub fn packets() {
    sys::limit_capabilities(&[NET_ADMIN]);
    allow(LOOP);
}

/// Restricts the watchdog; its message to a packet queue needs CAP_NET_ADMIN.
pub fn watchdog() {
    sys::limit_capabilities(&[NET_ADMIN]);
    // Without allocation, since this is a forked process.
    filter(WATCHDOG, true);
}

/// Restricts `quell steer` once everything is open, and the processes that it forks.
pub fn steering() {
    sys::bound_capabilities(&[NET_ADMIN]);
    sys::limit_capabilities(&[NET_ADMIN]);
    let mut calls = [libc::SYS_bpf; NEVER.len() + 1];
    calls[1..].copy_from_slice(NEVER);
    filter(&calls, false);
}

/// All system calls of the watchdog, whose process has one thread and allocates nothing.
const WATCHDOG: &[c_long] = &[
    libc::SYS_ppoll,
    // To delete a state file.
    libc::SYS_unlinkat,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_close,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit_group,
];

/// Restricts a thread that serves clients: no capabilities.
pub fn server() {
    sys::limit_capabilities(&[]);
    allow(SERVER);
}

/// Restricts the thread that probes reflectors, which receives packets of remote hosts at open
/// sockets: no capabilities.
pub fn reflectors() {
    sys::limit_capabilities(&[]);
    allow(&[libc::SYS_recvfrom, libc::SYS_sendto, libc::SYS_getrandom]);
}

/// Restricts the thread of a learner, which only computes: no capabilities, no further system
/// calls.
pub fn learner() {
    sys::limit_capabilities(&[]);
    allow(&[]);
}

/// For a test: prevents the start of processes.
#[cfg(test)]
pub fn forkless() {
    filter(&[libc::SYS_clone, libc::SYS_clone3], false);
}

fn allow(calls: &[c_long]) {
    let mut all = [0; 64];
    let each = BASE.iter().chain(calls);
    let mut count = 0;
    for (to, from) in all.iter_mut().zip(each) {
        *to = *from;
        count += 1;
    }
    filter(&all[..count], true);
}

/// The architecture's number for seccomp (linux/audit.h); on other architectures there is no
/// filter.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

/// First number of system calls of another ABI of the same machine (x32).
const FOREIGN: u32 = 0x4000_0000;

/// Allows this thread only `calls` (`only`), or all system calls except these.
fn filter(calls: &[c_long], only: bool) {
    let Some(architecture) = ARCHITECTURE else {
        return;
    };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let (listed, other) = match only {
        true => (libc::SECCOMP_RET_ALLOW, refuse),
        false => (refuse, libc::SECCOMP_RET_ALLOW),
    };
    let load = |offset| sys::filter_step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let least = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    let give = |what| sys::filter_step(libc::BPF_RET | libc::BPF_K, 0, 0, what);
    let mut program = [give(refuse); 80];
    let count = calls.len().min(program.len() - 8);
    // struct seccomp_data: the call's number, then the architecture.
    program[0] = load(4);
    program[1] = sys::filter_step(equal, 1, 0, architecture);
    program[2] = give(refuse);
    program[3] = load(0);
    program[4] = sys::filter_step(least, num::low_u8(count as u64) + 1, 0, FOREIGN);
    for (k, call) in calls[..count].iter().enumerate() {
        program[5 + k] = sys::filter_step(
            equal,
            num::low_u8((count - k) as u64) + 1,
            0,
            u32::try_from(*call).unwrap_or(u32::MAX),
        );
    }
    program[5 + count] = give(other);
    program[6 + count] = give(refuse);
    program[7 + count] = give(listed);
    sys::seccomp(&mut program[..8 + count]);
}
