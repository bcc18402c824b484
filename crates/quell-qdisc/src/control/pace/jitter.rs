//! Jitter of the answers, which is not the delay of a queue.

use super::delays::Evidence;
use crate::time::{Duration, Instant};

/// A peak of the delay is an answer that is later, or earlier, than both of its neighbours; its
/// height is the smaller difference. A queue rises and falls over several answers, so few of them
/// are peaks, however long the queue is; of independent delays two thirds are. The height that
/// counts is the one below which `SHARE` of the last `KEPT` answers are (0 for an answer that is
/// not a peak), so one lying source in three has no effect.
const KEPT: usize = 256;
const SHARE: [usize; 2] = [3, 5];
/// Smallest number of answers for an allowance.
const MIN_COUNT: usize = 16;
/// Longest time between two neighbours.
const NEAR: Duration = Duration::from_millis(150);
/// The allowance is `FACTOR` of that height less `FREE`, at most `MAX_ALLOWANCE`.
const FACTOR: u64 = 6;
const FREE: Duration = Duration::from_millis(7);
const MAX_ALLOWANCE: Duration = Duration::from_millis(30);

/// The last two answers, and the heights of the answers before; 0 for one that is not a peak.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jitter {
    last: [Evidence; 2],
    heights: [Duration; KEPT],
    count: usize,
    allowance: Duration,
}

impl Jitter {
    pub(super) const NONE: Self = Self {
        last: [Evidence::NONE; 2],
        heights: [Duration::ZERO; KEPT],
        count: 0,
        allowance: Duration::ZERO,
    };

    /// The same heights for a clock that begins at 0.
    pub(super) fn at_zero(self) -> Self {
        Self {
            last: [Evidence::NONE; 2],
            ..self
        }
    }

    /// Adds a delay.
    pub(super) fn add(&mut self, evidence: Evidence) {
        let [first, middle] = self.last;
        self.last = [middle, evidence];
        if first.at == Instant::ZERO
            || evidence.at > middle.at + NEAR
            || middle.at > first.at + NEAR
        {
            return;
        }
        let [before, at, after] = [first, middle, evidence].map(|of| of.excess);
        let is_peak = (at > before && at > after) || (at < before && at < after);
        let height = match is_peak {
            true => at.abs_diff(before).min(at.abs_diff(after)),
            false => Duration::ZERO,
        };
        self.heights[self.count % KEPT] = height;
        self.count += 1;
        let mut heights = self.heights;
        let heights = &mut heights[..self.count.min(KEPT)];
        if heights.len() >= MIN_COUNT {
            let [share, of] = SHARE;
            let place = (heights.len() - 1) * share / of;
            let (_, height, _) = heights.select_nth_unstable(place);
            self.allowance = (FACTOR * *height).saturating_sub(FREE).min(MAX_ALLOWANCE);
        }
    }

    /// Time to add to the target.
    pub(super) fn allowance(&self) -> Duration {
        self.allowance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// The allowance in ms after 400 answers, one every 50 ms, with these delays in ms.
    fn allowance(mut late: impl FnMut(u64) -> f64) -> f64 {
        let mut jitter = Jitter::NONE;
        for k in 1..=400 {
            jitter.add(Evidence {
                source: k % 3,
                at: Instant::from_millis(50 * k),
                excess: Duration::from_nanos((late(k) * 1e6) as u64),
            });
        }
        jitter.allowance().as_millis_f64()
    }

    #[test]
    fn independent_delays_raise_the_target_and_those_of_a_queue_do_not() {
        let mut rng = Rng::new(1, "jitter");
        let even = allowance(|_| 20.0 * rng.f64());
        assert!((5.0..30.0).contains(&even), "{even}");
        assert!(allowance(|_| 200.0 * rng.f64()) <= 30.0);
        // Up to 60 ms within 300 ms, with the jitter of a usual line.
        let queue = |k: u64| 20.0 * (k % 6).min(6 - k % 6) as f64;
        let of_queue = allowance(|k| queue(k) + rng.exp(1.0));
        assert!(of_queue < 0.5, "{of_queue}");
    }

    #[test]
    fn one_source_in_three_that_lies_does_not_raise_the_target() {
        let of_lie = allowance(|k| if k % 3 == 0 { 300.0 } else { 0.0 });
        assert!(of_lie < 0.5, "{of_lie}");
    }
}
