//! Waiting until descriptors are ready.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::{check, owned};

/// Waits until `fd` can be read or `timeout` is over; true if it can be read.
pub fn readable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    any_readable([fd], timeout)
}

/// Waits until one of them can be read or `timeout` is over; true if one can be read.
pub fn any_readable<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Duration) -> bool {
    poll(&mut fds.map(|fd| polled(fd, false)), timeout)
}

/// Waits until one of them can be read or `timeout` is over; returns which can.
pub fn which_readable<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    timeout: Duration,
) -> [bool; N] {
    // Entries with a negative descriptor are ignored (poll(2)).
    let mut polls = fds.map(|fd| libc::pollfd {
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events: libc::POLLIN,
        revents: 0,
    });
    poll(&mut polls, timeout);
    polls.map(|polled| polled.revents != 0)
}

/// An epoll descriptor that is readable while one of `fds` is; these must stay open.
pub fn together<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let all = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    for fd in fds {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: 0,
        };
        let (group, fd) = (all.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: the event outlives the call.
        check(unsafe { libc::epoll_ctl(group, libc::EPOLL_CTL_ADD, fd, &mut event) })?;
    }
    Ok(all)
}

/// Waits until one of them can be read (or written, if its flag is true) or `timeout` is over; true
/// if one can.
pub fn any_ready(fds: &[(BorrowedFd<'_>, bool)], timeout: Duration) -> bool {
    let mut polls: Vec<_> = fds.iter().map(|(fd, write)| polled(*fd, *write)).collect();
    poll(&mut polls, timeout)
}

fn polled(fd: BorrowedFd<'_>, write: bool) -> libc::pollfd {
    libc::pollfd {
        fd: fd.as_raw_fd(),
        events: if write { libc::POLLOUT } else { libc::POLLIN },
        revents: 0,
    }
}

fn poll(polls: &mut [libc::pollfd], timeout: Duration) -> bool {
    let time = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i32::MAX.into()),
        tv_nsec: timeout.subsec_nanos() as _,
    };
    let count = polls.len() as libc::nfds_t;
    // SAFETY: the structures outlive the call; no signal mask.
    unsafe { libc::ppoll(polls.as_mut_ptr(), count, &time, std::ptr::null()) > 0 }
}
