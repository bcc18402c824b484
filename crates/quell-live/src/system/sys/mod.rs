//! The few system calls that the standard library lacks, each behind a safe function.
//!
//! The functions that a forked process calls (the watchdog, and `init` of `quell shell` before
//! `exec`) neither allocate nor lock.
#![allow(unsafe_code)]

mod capabilities;
mod files;
mod interfaces;
mod netlink;
mod poll;
mod process;
mod sockets;

use std::ffi::c_int;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

pub use capabilities::{
    bound_capabilities, capable, keep_capabilities, limit_capabilities, seccomp,
};
pub use files::{
    open, open_at, read, read_file, rename_at, terminal_size, unlink, unlink_at, with_umask, write,
    write_file,
};
pub use interfaces::{addresses, copy_name, interfaces, ioctl, ioctl_number, pointer, socket};
pub use netlink::{
    leave_out, netfilter, netlink_port, notifications, routes, rtnetlink, send_rtnetlink,
};
pub use poll::{any_readable, any_ready, readable, together, which_readable};
pub use process::{
    be_idle, be_punctual, end_with_parent, identity, kill, monotonic, pin, processors, random,
    reap, take_terminal_back,
};
pub use sockets::{
    Control, accept, control_message, filter_step, icmp, message_header, receive, receive_bytes,
    receive_copy, send, send_bytes, socket_pair, tap, write_socket,
};

/// The errno of the last system call.
pub fn errno() -> c_int {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Takes ownership of a descriptor that a system call has just returned.
fn owned(fd: c_int) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that the kernel has just returned has no other owner.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}
