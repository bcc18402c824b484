//! The kernel's notifications that something has changed. Their content is mostly ignored: callers
//! look up what has changed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use quell_link::Error;

use super::{host, sys};

/// NFNLGRP_NFTABLES (linux/netfilter/nfnetlink.h): every change of nf_tables, which iptables-nft
/// uses, too.
const NFTABLES: i32 = 7;
/// RTNLGRP_LINK (linux/rtnetlink.h).
const LINK: i32 = 1;
/// RTNLGRP_TC (linux/rtnetlink.h).
const TC: i32 = 4;

/// A socket that gets notifications.
#[derive(Debug)]
pub struct Notices(OwnedFd);

impl Notices {
    /// Notifications of changed rules of nf_tables.
    pub fn of_rules() -> Result<Self, Error> {
        Self::open(libc::NETLINK_NETFILTER, NFTABLES)
    }

    /// Notifications of interfaces: made, deleted, renamed, up, down, another MTU.
    pub fn of_links() -> Result<Self, Error> {
        Self::open(libc::NETLINK_ROUTE, LINK)
    }

    /// Notifications of disciplines, classes and filters that were made, changed or deleted, except
    /// by the socket with this port.
    pub fn of_queues(port: u32) -> Result<Self, Error> {
        let notices = Self::open(libc::NETLINK_ROUTE, TC)?;
        sys::leave_out(notices.as_fd(), port).map_err(|e| no(&e))?;
        Ok(notices)
    }

    /// Notifications of interfaces, disciplines, classes and filters, whoever changed them: to find
    /// out what was deleted.
    ///
    /// # Errors
    /// If the system refuses the socket.
    pub fn of_removals() -> io::Result<Self> {
        sys::notifications(libc::NETLINK_ROUTE, &[LINK, TC]).map(Self)
    }

    fn open(protocol: i32, group: i32) -> Result<Self, Error> {
        let fd = sys::notifications(protocol, &[group]);
        fd.map(Self).map_err(|e| no(&e))
    }

    /// Discards all pending notifications; returns whether there were any. Notifications that the
    /// kernel discarded because the socket's buffer was full count, too.
    pub fn drain(&self) -> bool {
        self.drain_matching(|_| true)
    }

    /// As [`Self::drain`], but a notification counts only if `is` returns true for it, or if the
    /// kernel discarded it.
    pub fn drain_matching(&self, is: impl Fn(&[u8]) -> bool) -> bool {
        let mut came = false;
        let mut buffer = [0; 8192];
        loop {
            match sys::receive_bytes(self.0.as_fd(), &mut buffer) {
                Ok(length) => came |= is(&buffer[..length]),
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => came = true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return came,
            }
        }
    }
}

fn no(error: &io::Error) -> Error {
    Error::new(format!("no netlink notifications: {}", host::reason(error)))
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
