//! A loop's clock and its waiting: it sleeps, then polls the clock for the last stretch.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use quell_qdisc::{MS, Nanos, SEC, US, num};

use crate::plane::link::LiveLink;
use crate::system::sys;

/// Longest sleep, which bounds the time until a loop notices that it must stop.
const NAP: Nanos = 20 * MS;
/// Most time before a deadline that is spent polling the clock, since sleeps are inexact.
const SPIN: Nanos = 60 * US;
/// Longest time for which packets of a fast link are collected, to leave as a batch: this costs
/// much less CPU time.
const BATCH: Nanos = 50 * US;

/// A loop's clock, and how exact its sleeps are.
pub struct Pace {
    began: Instant,
    /// Time by which recent sleeps were too long, ns. The loop wakes that much before a deadline.
    oversleep: Nanos,
}

impl Pace {
    /// Starts a clock at 0.
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            oversleep: SPIN,
        }
    }

    /// Instant of time 0.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Time since the start, ns.
    pub fn now(&self) -> Nanos {
        num::low_u64(self.began.elapsed().as_nanos())
    }

    /// Waits, first asleep, then polling the clock, until the link has an event or `backend` is
    /// readable.
    pub fn rest(&mut self, link: &LiveLink, backend: BorrowedFd<'_>) {
        let first = link.next();
        let now = self.now();
        // The polling takes at most a quarter of a packet's time, so that a fast link does not cost
        // a whole core.
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
            // The longest recent excess, which decays by a sixteenth per sleep.
            let over = self.now().saturating_sub(now + sleep);
            self.oversleep = over.max(self.oversleep - self.oversleep / 16);
        }
    }
}
