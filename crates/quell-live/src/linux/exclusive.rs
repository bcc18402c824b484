//! One `quell live` per interface of a network namespace, whoever runs it and wherever its state is.
//!
//! Root and a service's user have no folder in common that no stranger can write to, so a lock file cannot keep them apart. The lock is
//! a packet queue (NFQUEUE) to which no rule leads. The kernel gives its number to one socket of a network namespace, wants
//! CAP_NET_ADMIN there for it, so that no stranger can take it, and has it back when the process ends, however that ends.

use std::os::fd::OwnedFd;

use super::{backend, host};

/// Numbers from here on are locks; queues with packets have smaller ones, and greater ones are tried out
/// ([`backend::tells_connections`]).
const FIRST: u32 = 50_000;
/// How many there are. Interfaces whose numbers are the same modulo this exclude each other.
const COUNT: u32 = 15_000;

/// An interface that no other process has, until this is dropped.
#[derive(Debug)]
pub struct Exclusive {
    /// None if there is no such interface, or the kernel has no packet queues: then there are no rules either.
    _queue: Option<OwnedFd>,
}

impl Exclusive {
    /// Takes an interface; None if another process has it.
    pub fn take(dev: &str) -> Option<Self> {
        let Some(index) = host::index(dev) else {
            return Some(Self { _queue: None });
        };
        match backend::reserve((FIRST + index % COUNT) as u16) {
            Ok(None) => None,
            Ok(queue) => Some(Self { _queue: queue }),
            Err(_) => Some(Self { _queue: None }),
        }
    }
}
