//! A loop's clock and its waiting: it sleeps, then polls the clock for the last stretch.

use std::os::fd::BorrowedFd;
use std::time;

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant};

use crate::plane::link::LiveLink;
use crate::system::sys;

/// Longest sleep, which bounds the time until a loop notices that it must stop.
const NAP: Duration = Duration::from_millis(20);
/// Most time before a deadline that is spent polling the clock, since sleeps are inexact.
const SPIN: Duration = Duration::from_micros(60);
/// Longest time for which packets of a fast link are collected, to leave as a batch: this costs
/// much less CPU time.
const BATCH: Duration = Duration::from_micros(50);

/// A loop's clock, and how exact its sleeps are.
pub struct Pace {
    began: time::Instant,
    /// Time by which recent sleeps were too long. The loop wakes that much before a deadline.
    oversleep: Duration,
}

impl Pace {
    /// Starts a clock at 0.
    pub fn new() -> Self {
        Self {
            began: time::Instant::now(),
            oversleep: SPIN,
        }
    }

    /// Instant of time 0.
    pub fn began(&self) -> time::Instant {
        self.began
    }

    /// Time on this clock.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(num::low_u64(self.began.elapsed().as_nanos()))
    }

    /// Waits, first asleep, then polling the clock, until the link has an event or `backend` is
    /// readable.
    pub fn rest(&mut self, link: &LiveLink, backend: BorrowedFd<'_>) {
        let first = link.next();
        let now = self.now();
        // The polling takes at most a quarter of a packet's time, so that a fast link does not cost
        // a whole core.
        let packet = link.rate(now).transmission_time(1514);
        let punctual = first == link.next_send();
        let batch = match packet < BATCH {
            true => BATCH.min(packet * link.backlog() as u64),
            false => Duration::ZERO,
        };
        let deadline = first.saturating_add(batch);
        if deadline <= now {
            return;
        }
        let spin = match punctual {
            true => SPIN.min(packet / 4).min(self.oversleep),
            false => Duration::ZERO,
        };
        let left = deadline - now;
        if left <= spin {
            while self.now() < deadline {
                std::hint::spin_loop();
            }
            return;
        }
        let sleep = (left - spin).min(NAP);
        if !sys::readable(backend, time::Duration::from_nanos(sleep.as_nanos())) {
            // The longest recent excess, which decays by a sixteenth per sleep.
            let over = self.now().saturating_since(now + sleep);
            self.oversleep = over.max(self.oversleep - self.oversleep / 16);
        }
    }
}
