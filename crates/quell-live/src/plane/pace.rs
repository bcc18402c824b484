//! A loop's clock, and how it waits: it sleeps, then looks at the clock for the last stretch.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use quell_qdisc::{MS, Nanos, SEC, US, num};

use crate::plane::link::LiveLink;
use crate::system::sys;

/// The longest sleep: how soon a loop hears that it is to stop.
const NAP: Nanos = 20 * MS;
/// Sleeping is not exact: the last stretch before a deadline is spent looking at the clock, at most
/// this long.
const SPIN: Nanos = 60 * US;
/// A queue on a fast link is emptied in batchs of at most this long: packets that leave together
/// cost much less.
const BATCH: Nanos = 50 * US;

/// When the loop began, and how well it sleeps.
pub struct Pace {
    began: Instant,
    /// How much longer sleeps take than they should, lately: so long before a deadline the loop is
    /// awake.
    oversleep: Nanos,
}

impl Pace {
    /// Time 0 is now.
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            oversleep: SPIN,
        }
    }

    /// When time 0 was.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Nanoseconds since the beginning.
    pub fn now(&self) -> Nanos {
        num::low_u64(self.began.elapsed().as_nanos())
    }

    /// Sleeps, then looks at the clock, until something is due at the link or `backend` can be
    /// read.
    pub fn rest(&mut self, link: &LiveLink, backend: BorrowedFd<'_>) {
        let first = link.next();
        let now = self.now();
        // At most a quarter of a packet's time: a fast link must not cost a whole core.
        let packet = 1514 * 8 * SEC / link.rate_bps(now).max(1);
        let punctual = first == link.next_send();
        let batch = match packet < BATCH {
            true => BATCH.min(packet * link.backlog() as Nanos),
            false => 0,
        };
        let deadline = first.saturating_add(batch);
        if deadline <= now {
            return;
        }
        let spin = match punctual {
            true => SPIN.min(packet / 4).min(self.oversleep),
            false => 0,
        };
        let left = deadline - now;
        if left <= spin {
            while self.now() < deadline {
                std::hint::spin_loop();
            }
            return;
        }
        let sleep = (left - spin).min(NAP);
        if !sys::readable(backend, Duration::from_nanos(sleep)) {
            // The longest of late, forgotten by and by.
            let over = self.now().saturating_sub(now + sleep);
            self.oversleep = over.max(self.oversleep - self.oversleep / 16);
        }
    }
}
