//! One `quell live` per interface of a network namespace, whoever runs it and wherever its state is.
//!
//! Root and a service's user share no folder that is closed to other users, so a lock file cannot exclude one from the other. The lock
//! is a packet queue (NFQUEUE) to which no rule leads. The kernel gives its number to one socket of a network namespace, requires
//! CAP_NET_ADMIN, so that no other user can take it, and frees it when the process ends for any reason.

use std::os::fd::OwnedFd;

use quell_qdisc::num;

use crate::plane::backend;
use crate::system::host;

/// The first number of a lock. Queues with packets have smaller numbers; the kernel is tested with greater ones
/// ([`backend::tells_connections`]).
const FIRST: u32 = 50_000;
/// How many locks there are. Interfaces whose indices are equal modulo this exclude each other, which the message of the second says.
pub const COUNT: u32 = 15_000;

/// An interface that no other process has, until this is dropped.
#[derive(Debug)]
pub struct Exclusive {
    /// None if there is no such interface, or the kernel has no packet queues: then there are no rules either.
    _queue: Option<OwnedFd>,
}

impl Exclusive {
    /// Takes an interface; None if another process has it, or one whose index differs by a multiple of [`COUNT`].
    pub fn take(dev: &str) -> Option<Self> {
        let Some(index) = host::index(dev) else {
            return Some(Self { _queue: None });
        };
        match backend::reserve(num::low_u16((FIRST + index % COUNT).into())) {
            Ok(None) => None,
            Ok(queue) => Some(Self { _queue: queue }),
            Err(_) => Some(Self { _queue: None }),
        }
    }
}
