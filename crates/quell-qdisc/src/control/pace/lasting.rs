//! Delay that lasts although the rate is lowered: a queue, or a longer path.

use crate::time::{Duration, Instant, SEC};

/// A delay that lasts is not that of a queue if the smallest of a window is at least `STEADY` of
/// the largest. A window is `EXTRA` longer than a queue of the largest delay needs to empty.
pub(super) const STEADY: f64 = 0.67;
const EXTRA: Duration = SEC;

/// Rate, flow (see [`super::Pace::flow`]) and estimates when the delay first exceeded the target;
/// the delay in ns, rates in bit/s. The flow is compared, not the capacity, which is unknown for a
/// line that was never full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Before {
    pub(super) since: Instant,
    pub(super) delay: f64,
    pub(super) rate: f64,
    pub(super) flow: f64,
    pub(super) capacity: f64,
    pub(super) deviation: f64,
}

impl Before {
    /// Whether the delay fell faster than a queue can drain: the delay of a queue shrinks by at
    /// most `1 - least` of the elapsed time, since the shaper sends at least `least` of the
    /// capacity. Then the cause was a late answer, a false one or an outage that is over.
    pub(super) fn was_not_a_queue(&self, now: Instant, delay: f64, least: f64) -> bool {
        self.delay - delay > (1.0 - least) * now.saturating_since(self.since).as_nanos() as f64
    }
}

/// Delay that lasts although the rate is lowered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lasting {
    /// The state before it.
    pub(super) before: Before,
    /// Start of the present window.
    since: Instant,
    /// Smallest delay of the window, ns.
    smallest: f64,
    /// Largest delay of the window, ns.
    largest: f64,
    /// Number of delays in the window.
    count: u32,
}

impl Lasting {
    pub(super) fn new(before: Before, now: Instant) -> Self {
        Self {
            before,
            since: now,
            smallest: f64::INFINITY,
            largest: 0.0,
            count: 0,
        }
    }

    /// Adds a delay, ns. At the end of the window, in which a queue of the largest delay would have
    /// emptied, returns whether the delay stayed about the same although at most half as much is
    /// sent as before; `None` until then. `steady`: whether the delay of most sources stayed about
    /// the same.
    pub(super) fn is_not_a_queue(
        &mut self,
        now: Instant,
        delay: f64,
        flow: f64,
        least: f64,
        steady: bool,
    ) -> Option<bool> {
        self.smallest = self.smallest.min(delay);
        self.largest = self.largest.max(delay);
        self.count += 1;
        let empties = EXTRA.as_nanos() as f64 + self.largest / (1.0 - least);
        let is_over =
            now.saturating_since(self.since).as_nanos() as f64 > empties && self.count >= 8;
        let steady = steady || self.smallest >= self.largest * STEADY;
        is_over.then(|| steady && flow <= self.before.flow / 2.0)
    }
}
