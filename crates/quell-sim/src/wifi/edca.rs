//! Channel access: one contender per node and access category, with its backoff (IEEE 802.11-2012,
//! 9.3.4 and 9.19.2).

use std::collections::VecDeque;

use quell_qdisc::Rng;
use quell_qdisc::time::{Duration, Instant, NEVER, US};

use crate::phy::{SIFS, SLOT};
use crate::scenario::wifi::{Access, Category, Countdown};

/// The parameters of one access category.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Idle time before the first slot.
    pub aifs: Duration,
    /// Minimum contention window, slots.
    pub cwmin: u32,
    /// Maximum contention window, slots.
    pub cwmax: u32,
    /// Limit of a transmission opportunity; 0: one exchange.
    pub txop: Duration,
}

impl Params {
    /// The scenario's values, and the defaults of 802.11n (table 8-105) for those that it does not
    /// set.
    pub fn new(category: Category, access: &Access) -> Self {
        let (aifsn, cwmin, cwmax, txop) = match category {
            Category::BestEffort => (3, 15, 1023, 0),
            Category::Video => (2, 7, 15, 3008),
            Category::Voice => (2, 3, 7, 1504),
        };
        let cwmin = access.cwmin.unwrap_or(cwmin);
        Self {
            aifs: SIFS + u64::from(access.aifsn.unwrap_or(aifsn)) * SLOT,
            cwmin,
            cwmax: access.cwmax.unwrap_or(cwmax).max(cwmin),
            txop: txop * US,
        }
    }
}

/// An exchange in progress or about to start.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Link, by number.
    pub link: u16,
    /// MCS of its PPDU.
    pub mcs: u8,
    /// Number of MPDUs.
    pub frames: u32,
    /// Size of its PSDU, bytes.
    pub bytes: u32,
    /// Start of its first frame.
    pub began: Instant,
}

/// Frames of one PPDU, handed to the hardware.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Link, by number.
    pub link: u16,
    /// Number of MPDUs when they were handed over.
    pub frames: u32,
    /// Their size, bytes.
    pub bytes: u32,
}

/// One node's backoff in one access category.
#[derive(Clone, Debug)]
pub struct Contender {
    pub node: u16,
    /// Its category, which is its priority among contenders of the same node.
    pub category: Category,
    pub params: Params,
    /// Claims handed to the hardware, the oldest first.
    pub hardware: VecDeque<Claim>,
    pub exchange: Option<Exchange>,
    /// The links that it serves, by number.
    pub links: Vec<u16>,
    /// Index in `links` of the link to be served next.
    pub next_link: usize,
    /// Time at which it will send; `NEVER` while it cannot.
    pub start_at: Instant,
    /// End of its transmission opportunity.
    pub txop_end: Instant,
    /// End of the AIFS, after which the backoff counts; `NEVER` while the channel is busy.
    ready_at: Instant,
    /// Slots left of the backoff.
    slots: u64,
    /// Contention window, slots.
    window: u32,
    /// Number of consecutive failed exchanges.
    pub failures: u32,
}

impl Contender {
    /// A contender with nothing to send.
    pub fn new(node: u16, category: Category, params: Params) -> Self {
        Self {
            node,
            category,
            params,
            hardware: VecDeque::new(),
            exchange: None,
            links: Vec::new(),
            next_link: 0,
            start_at: NEVER,
            txop_end: Instant::ZERO,
            ready_at: Instant::ZERO + params.aifs,
            slots: 0,
            window: params.cwmin,
            failures: 0,
        }
    }

    /// Lets the AIFS start at `base`, the time from which the channel is idle.
    #[inline]
    pub fn idle_from(&mut self, base: Instant) {
        self.ready_at = base + self.params.aifs;
    }

    /// On an idle channel, delays the end of the AIFS until an AIFS after `base`.
    #[inline]
    pub fn not_before(&mut self, base: Instant) {
        if self.ready_at != NEVER {
            self.ready_at = self.ready_at.max(base + self.params.aifs);
        }
    }

    /// The channel is busy from `now` on, so the backoff stops. By EDCA's rule a slot counts when
    /// it begins, including the one in which another node starts to send; by DCF's rule when it has
    /// passed.
    #[inline]
    pub fn freeze(&mut self, now: Instant, countdown: Countdown) {
        if now >= self.ready_at {
            let passed = (now - self.ready_at) / SLOT + u64::from(countdown == Countdown::Edca);
            self.slots -= passed.min(self.slots);
        }
        self.ready_at = NEVER;
        self.start_at = NEVER;
    }

    /// Sets the time to send, if there is anything to send and the node is `free`, that is, not in
    /// an exchange. If the backoff ended before there was anything to send, this is the next slot
    /// boundary.
    #[inline]
    pub fn plan(&mut self, now: Instant, free: bool) {
        self.start_at = if !free || self.hardware.is_empty() || self.ready_at == NEVER {
            NEVER
        } else {
            let counted = self.ready_at + self.slots * SLOT;
            if counted >= now {
                counted
            } else {
                self.ready_at + (now - self.ready_at).div_ceil(SLOT) * SLOT
            }
        };
    }

    /// Resets the backoff at the start of a transmission.
    pub fn start(&mut self) {
        self.slots = 0;
        self.ready_at = NEVER;
        self.start_at = NEVER;
    }

    /// A packet arrived while the channel was busy: draws a backoff if none is in progress.
    pub fn defer(&mut self, rng: &mut Rng) {
        if self.slots == 0 {
            self.draw(rng);
        }
    }

    /// An exchange succeeded: resets the window.
    pub fn succeeded(&mut self, rng: &mut Rng) {
        self.reset();
        self.draw(rng);
    }

    /// An exchange failed: the window doubles, and is reset after `limit` consecutive failures.
    pub fn failed(&mut self, limit: Option<u32>, rng: &mut Rng) {
        self.failures += 1;
        self.window = (2 * self.window + 1).min(self.params.cwmax);
        if limit.is_some_and(|limit| self.failures >= limit) {
            self.reset();
        }
        self.draw(rng);
    }

    fn reset(&mut self) {
        self.failures = 0;
        self.window = self.params.cwmin;
    }

    fn draw(&mut self, rng: &mut Rng) {
        self.slots = rng.below(u64::from(self.window) + 1);
    }
}
