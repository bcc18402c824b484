//! Channel access: one contender per node and access category, with its backoff (IEEE 802.11-2012,
//! 9.3.4 and 9.19.2).

use std::collections::VecDeque;

use quell_qdisc::{NEVER, Nanos, Rng, US};

use super::phy::{SIFS, SLOT};
use crate::scenario::wifi::{Access, Category, Countdown};

/// The parameters of one access category.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Idle time before the first slot.
    pub aifs: Nanos,
    /// The least contention window.
    pub cwmin: u32,
    /// The largest.
    pub cwmax: u32,
    /// How long one access may last; 0: one exchange.
    pub txop: Nanos,
}

impl Params {
    /// Those of 802.11n (table 8-105), as far as the scenario has no others.
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

/// What a contender has on the air, or is about to.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Between whom.
    pub link: u16,
    /// At which rate.
    pub mcs: u8,
    /// MPDUs in it.
    pub frames: u32,
    /// Bytes of its PSDU.
    pub bytes: u32,
    /// When its first frame began.
    pub began: Nanos,
}

/// Frames that the hardware has: for whom, and how many MPDUs they were when they were handed over.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// For whom.
    pub link: u16,
    /// MPDUs.
    pub frames: u32,
    /// Their bytes.
    pub bytes: u32,
}

/// One node's backoff in one access category.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Whose it is.
    pub node: u16,
    /// Its category, which decides among contenders of one node.
    pub category: Category,
    /// Its parameters.
    pub params: Params,
    /// What the hardware has been given.
    pub hardware: VecDeque<Claim>,
    /// The exchange in progress.
    pub exchange: Option<Exchange>,
    /// The links that it serves.
    pub links: Vec<u16>,
    /// Whose turn it is among them.
    pub turn: usize,
    /// When it will send; `NEVER` while it cannot.
    pub start_at: Nanos,
    /// Until when a burst of exchanges may last.
    pub txop_end: Nanos,
    /// When the first slot ends that counts; `NEVER` while the channel is busy.
    ready_at: Nanos,
    slots: u64,
    window: u32,
    /// Exchanges that failed in a row.
    pub failures: u32,
}

impl Contender {
    /// With nothing to send.
    pub fn new(node: u16, category: Category, params: Params) -> Self {
        Self {
            node,
            category,
            params,
            hardware: VecDeque::new(),
            exchange: None,
            links: Vec::new(),
            turn: 0,
            start_at: NEVER,
            txop_end: 0,
            ready_at: params.aifs,
            slots: 0,
            window: params.cwmin,
            failures: 0,
        }
    }

    /// The channel is idle from `base` on, at least.
    #[inline]
    pub fn idle_from(&mut self, base: Nanos) {
        self.ready_at = base + self.params.aifs;
    }

    /// Whatever the channel does, the first slot does not end earlier than an AIFS after `base`.
    #[inline]
    pub fn not_before(&mut self, base: Nanos) {
        if self.ready_at != NEVER {
            self.ready_at = self.ready_at.max(base + self.params.aifs);
        }
    }

    /// The channel is busy from `now` on: the backoff stops. By EDCA's rule a slot counts when it
    /// begins, also the one in which another node starts to send; by DCF's rule when it has passed.
    #[inline]
    pub fn freeze(&mut self, now: Nanos, countdown: Countdown) {
        if now >= self.ready_at {
            let passed = (now - self.ready_at) / SLOT + u64::from(countdown == Countdown::Edca);
            self.slots -= passed.min(self.slots);
        }
        self.ready_at = NEVER;
        self.start_at = NEVER;
    }

    /// When it sends, if it has anything and its node is free to. A count that ran out before there
    /// was anything to send lets it start at the next slot's boundary.
    #[inline]
    pub fn plan(&mut self, now: Nanos, free: bool) {
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

    /// It starts to send.
    pub fn start(&mut self) {
        self.slots = 0;
        self.ready_at = NEVER;
        self.start_at = NEVER;
    }

    /// A packet arrived while the channel was busy: without a backoff under way there has to be
    /// one.
    pub fn defer(&mut self, rng: &mut Rng) {
        if self.slots == 0 {
            self.draw(rng);
        }
    }

    /// An exchange went well.
    pub fn succeeded(&mut self, rng: &mut Rng) {
        self.reset();
        self.draw(rng);
    }

    /// An exchange failed: the window doubles, and starts over after `limit` failures in a row.
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
