//! Ensures that in a network namespace there is one `quell live` per interface and one
//! `quell steer` per queue, whatever their users and folders of state files.
//!
//! Root and a service's user share no folder that is closed to other users, so a lock file cannot
//! exclude one from the other. The lock is a packet queue (NFQUEUE) to which no rule leads. The
//! kernel gives its number to one socket of a network namespace, requires CAP_NET_ADMIN, so that no
//! other user can take it, and frees it when the process ends for any reason.

use std::os::fd::OwnedFd;

use quell_qdisc::num;

use super::backend;
use crate::system::host;

/// First number of the locks of interfaces. Queues with packets have smaller numbers; tests of the
/// kernel use greater ones ([`backend::tells_connections`]).
const FIRST: u32 = 50_000;
/// Number of locks of interfaces. Interfaces whose indices are equal modulo this exclude each
/// other; the error message says so.
pub const COUNT: u32 = 15_000;

/// First number of the locks of steered queues, and how many there are: a prime, so that the roots
/// of as many interfaces have different locks.
const FIRST_STEERED: u32 = 39_300;
const STEERED: u32 = 10_691;
/// Distance between the numbers of an interface's queues and those of the next interface: more than
/// twice `PLACES`.
const APART: u32 = 151;
/// Queues of an interface whose places are equal modulo this exclude each other. It is greater than
/// the number of queues that one process steers.
const PLACES: u32 = 67;

/// Exclusive use of an interface, or of queues of one, until this value is dropped.
#[derive(Debug)]
pub struct Exclusive {
    /// `None` if there is no such interface, or the kernel has no packet queues; then there are no
    /// rules either.
    _queue: Option<OwnedFd>,
}

impl Exclusive {
    /// Takes an interface; `None` if another process has taken it, or one whose index differs by a
    /// multiple of [`COUNT`].
    pub fn take(dev: &str) -> Option<Self> {
        let Some(index) = host::index(dev) else {
            return Some(Self { _queue: None });
        };
        Self::reserve(&[num::low_u16((FIRST + index % COUNT).into())])
    }

    /// Takes queues of an interface, each given as whether it is a class, its handle and its
    /// parent. `None` if another process has one of them.
    pub fn take_queues(
        device: u32,
        queues: impl Iterator<Item = (bool, u32, u32)>,
    ) -> Option<Self> {
        let mut numbers: Vec<_> = queues.map(|queue| number(device, queue)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Self::reserve(&numbers)
    }

    fn reserve(numbers: &[u16]) -> Option<Self> {
        match backend::reserve(numbers) {
            Ok(None) => None,
            Ok(queue) => Some(Self { _queue: queue }),
            Err(_) => Some(Self { _queue: None }),
        }
    }
}

/// Number of a queue's lock.
fn number(device: u32, (class, handle, parent): (bool, u32, u32)) -> u16 {
    let place = if class { handle } else { parent };
    let place = ((place >> 16) * 31 + (place & 0xffff)) % PLACES;
    let at = u64::from(device) * u64::from(APART) + u64::from(2 * place + u32::from(class));
    num::low_u16(u64::from(FIRST_STEERED) + at % u64::from(STEERED))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn queues_of_mq_classes_and_roots_of_many_interfaces_have_locks_of_their_own() {
        let root = (false, 0x1_0000, u32::MAX);
        let roots: HashSet<_> = (0..STEERED).map(|device| number(device, root)).collect();
        assert_eq!(roots.len(), STEERED as usize);
        let below = (1..=64).map(|n| (false, 0x10_0000 + n, 0x1_0000 | n));
        let classes = (1..=8).flat_map(|n| {
            let class = 0x1_0000 | n << 4;
            [(true, class, 0x1_0000), (false, n << 20, class)]
        });
        for device in [1, 2, 70] {
            let of = |queues: &[_]| -> HashSet<_> {
                queues.iter().map(|queue| number(device, *queue)).collect()
            };
            assert_eq!(of(&below.clone().collect::<Vec<_>>()).len(), 64);
            assert_eq!(of(&classes.clone().collect::<Vec<_>>()).len(), 16);
        }
        assert!((0..9).all(|n| number(u32::MAX - n, root) < num::low_u16(FIRST.into())));
    }
}
