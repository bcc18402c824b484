//! The kernel's notifications that something has changed; what it was is then looked up.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use quell_link::Error;

use super::{host, sys};

/// NFNLGRP_NFTABLES (linux/netfilter/nfnetlink.h): every change of the nf_tables that iptables-nft
/// uses, too.
const NFTABLES: i32 = 7;
/// RTNLGRP_LINK (linux/rtnetlink.h).
const LINK: i32 = 1;
/// RTNLGRP_TC.
const TC: i32 = 4;

/// Where notifications of one sort arrive.
#[derive(Debug)]
pub struct Notices(OwnedFd);

impl Notices {
    /// Of rules.
    pub fn of_rules() -> Result<Self, Error> {
        Self::open(libc::NETLINK_NETFILTER, NFTABLES)
    }

    /// Of interfaces: made, deleted, renamed, up, down, another MTU.
    pub fn of_links() -> Result<Self, Error> {
        Self::open(libc::NETLINK_ROUTE, LINK)
    }

    /// Of disciplines, classes and filters that others than the socket with this port have made,
    /// changed or deleted.
    pub fn of_queues(port: u32) -> Result<Self, Error> {
        let notices = Self::open(libc::NETLINK_ROUTE, TC)?;
        sys::leave_out(notices.as_fd(), port).map_err(|e| no(&e))?;
        Ok(notices)
    }

    /// Of interfaces, disciplines, classes and filters, among them all that are deleted.
    ///
    /// # Errors
    /// If the system refuses a socket.
    pub fn of_removals() -> io::Result<Self> {
        sys::notifications(libc::NETLINK_ROUTE, &[LINK, TC]).map(Self)
    }

    fn open(protocol: i32, group: i32) -> Result<Self, Error> {
        let fd = sys::notifications(protocol, &[group]);
        fd.map(Self).map_err(|e| no(&e))
    }

    /// Reads away what has come; whether anything has. Where the kernel had more to say than there
    /// was room for, it has.
    pub fn came(&self) -> bool {
        self.came_one(|_| true)
    }

    /// As [`Self::came`], of those messages that `is` says.
    pub fn came_one(&self, is: impl Fn(&[u8]) -> bool) -> bool {
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
