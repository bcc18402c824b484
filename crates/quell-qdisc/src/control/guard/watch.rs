//! Finds controllers without effect: their decisions stay the same while the delay is too long and
//! does not fall. A network with saturated weights behaves like this, and each of its decisions is
//! a valid number.

use crate::time::{Duration, Instant};

use crate::{Gauges, Knobs};

/// The beginning of a span in which the delay was too long and did not fall, and no decision
/// became tighter.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Start {
    now: Instant,
    delay: Duration,
    tightness: f64,
}

/// Compares delay and decisions, period by period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Watch {
    since: Option<Start>,
}

impl Watch {
    /// Returns whether, for `span`, the delay has been above `bound`, has not fallen by a
    /// tenth, and no decision has become tighter. `proposed` is the tightness of the tightest
    /// decision since the last call; `in_force` is that of the knobs in force, if another
    /// controller decides.
    pub(super) fn is_stuck(
        &mut self,
        gauges: &Gauges,
        proposed: f64,
        in_force: Option<f64>,
        (bound, span): (Duration, Duration),
    ) -> bool {
        let delay = gauges.head_age;
        // While the link has no rate, no knob changes the delay.
        if delay <= bound || gauges.rate.is_zero() {
            self.since = None;
            return false;
        }
        let here = Start {
            now: gauges.now,
            delay,
            tightness: proposed,
        };
        let start = *self.since.get_or_insert(here);
        let falls = delay <= start.delay - start.delay / 10;
        let tightens = proposed > in_force.unwrap_or(start.tightness);
        if falls || tightens {
            self.since = Some(here);
            return false;
        }
        gauges.now.saturating_since(start.now) >= span
    }
}

/// A number that is larger for knobs that keep the queue shorter; `None` if no knob is set.
pub(super) fn tightness(knobs: &Knobs) -> Option<f64> {
    let limit = knobs.limit_packets.map(|limit| -f64::from(limit));
    knobs.base_probability.or(knobs.drop).or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;
    use crate::time::{MS, SEC};

    /// Whether it is stuck after each second, given that second's delay (ms) and decision.
    fn stuck_at(each: &[(u64, f64)]) -> Vec<bool> {
        let mut watch = Watch::default();
        let is_stuck = |(n, (delay, answer)): (usize, &(u64, f64))| {
            let gauges = Gauges {
                now: Instant::from_secs(n as u64),
                head_age: *delay * MS,
                rate: Rate::from_bps(1),
                ..Gauges::default()
            };
            watch.is_stuck(&gauges, *answer, None, (250 * MS, 2 * SEC))
        };
        each.iter().enumerate().map(is_stuck).collect()
    }

    #[test]
    fn a_decision_that_stays_while_the_delay_grows_is_stuck() {
        let grows = [(100, 0.0), (300, 0.0), (500, 0.0), (700, 0.0), (900, 0.0)];
        assert_eq!(stuck_at(&grows), [false, false, false, true, true]);
    }

    #[test]
    fn tighter_decisions_or_a_falling_delay_are_not_stuck() {
        let tightens = [(300, 0.0), (500, 0.1), (700, 0.2), (900, 0.3), (999, 0.4)];
        assert!(!stuck_at(&tightens).contains(&true));
        let falls = [(900, 0.1), (800, 0.1), (700, 0.1), (600, 0.1), (500, 0.1)];
        assert!(!stuck_at(&falls).contains(&true));
        // Alternating decisions do not help against a growing delay.
        let wiggles = [(300, 0.2), (500, 0.1), (700, 0.2), (900, 0.1), (999, 0.2)];
        assert!(stuck_at(&wiggles)[4]);
    }
}
