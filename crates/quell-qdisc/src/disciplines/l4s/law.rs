//! A sub-queue's PIE, as in FreeBSD's `dn_aqm_pie.h`: RFC 8033 with times in microseconds,
//! probabilities of 31 bits, the old delay in the early exit, no rule for delays above 250 ms, and
//! a timer that runs while the sub-queue is in the rotation; its state is reset when the sub-queue
//! returns to the rotation.

use super::Params;
use crate::Rng;
use crate::num;
use crate::time::{Duration, Instant, NEVER, US};

/// Probability 1 (`PIE_MAX_PROB`).
pub(super) const MAX_PROB: u32 = (1 << 31) - 1;
/// No packet is dropped while this many bytes or fewer are queued (`2 * MEAN_PKTSIZE`).
pub(super) const MIN_BACKLOG: u32 = 1600;
/// FreeBSD keeps alpha and beta in units of 2^-13.
pub(super) const SCALE: f64 = 8192.0;

/// The parameters as integers.
#[derive(Clone, Debug)]
pub(super) struct Units {
    pub(super) alpha: i64,
    pub(super) beta: i64,
    /// Target delay, microseconds.
    pub(super) target: i64,
    /// Probability, in units of 1/MAX_PROB, below which packets are marked instead of dropped.
    pub(super) max_ecnth: u64,
}

impl Units {
    pub(super) fn new(p: &Params) -> Self {
        Self {
            alpha: num::whole_i64(p.alpha * SCALE),
            beta: num::whole_i64(p.beta * SCALE),
            target: (p.target / US).cast_signed(),
            // As in FreeBSD, the threshold is rounded down to units of 2^-13.
            max_ecnth: p
                .max_ecnth
                .map_or(u64::MAX, |th| num::whole_u64(th * SCALE) << (31 - 13)),
        }
    }
}

/// One sub-queue's PIE (`struct pie_status`) and counters (`struct flow_stats`).
#[derive(Clone, Debug, Default)]
pub(super) struct Law {
    /// p', in units of 1/MAX_PROB; up to 2 in an L4S sub-queue of the stated design.
    pub(super) prob: u32,
    /// p' at the last update, which the partner reads under [`super::Coupling::Published`]; kept
    /// while the sub-queue is inactive.
    pub(super) shared: u32,
    /// Delay of the last packet that left, and at the last update, microseconds.
    pub(super) qdelay: i64,
    pub(super) qdelay_old: i64,
    /// Rest of the burst allowance.
    pub(super) burst: Duration,
    /// Sum of the probabilities since the last drop, in units of 1/MAX_PROB.
    pub(super) accu: u64,
    /// True while the sub-queue is in the rotation and its timer runs.
    pub(super) active: bool,
    /// A knob has set p', and PIE does not change it.
    pub(super) held: bool,
    pub(super) active_since: Instant,
    pub(super) next_update: Instant,
    /// Packets and bytes offered, and packets dropped.
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) drops: u64,
}

impl Law {
    /// `fq_activate_pie`.
    pub(super) fn activate(&mut self, now: Instant, params: &Params) {
        if !self.held {
            self.prob = 0;
        }
        self.qdelay_old = 0;
        self.burst = params.max_burst;
        self.accu = 0;
        self.active = true;
        self.active_since = now;
        self.next_update = now + params.tupdate;
    }

    /// `fq_deactivate_pie`. The designed coupling then ignores p', unless a knob has set it.
    pub(super) fn deactivate(&mut self) {
        self.active = false;
        self.next_update = NEVER;
    }

    /// `fq_calculate_drop_prob`.
    pub(super) fn update(
        &mut self,
        now: Instant,
        params: &Params,
        units: &Units,
        most: u32,
        empty: bool,
    ) {
        if empty {
            self.qdelay = 0;
        }
        if !self.held {
            self.prob = self.next_probability(units, most);
        }
        self.shared = self.prob;
        self.qdelay_old = self.qdelay;
        self.burst = self.burst.saturating_sub(params.tupdate);
        self.next_update = now + params.tupdate;
    }

    pub(super) fn next_probability(&self, units: &Units, highest: u32) -> u32 {
        let (prob, most) = (i64::from(self.prob), i64::from(MAX_PROB));
        let error = units.alpha.saturating_mul(self.qdelay - units.target);
        let change = units.beta.saturating_mul(self.qdelay - self.qdelay_old);
        // Truncates towards zero, as FreeBSD does by shifting the absolute value.
        let p = error
            .saturating_add(change)
            .saturating_mul((most << 12) / 1_000_000);
        let shift = self.tuning() + 13 + 12;
        let size = (p.unsigned_abs() >> shift).cast_signed();
        let next = if p < 0 {
            prob - size
        } else if prob >= most / 10 {
            // RFC 8033, section 5.5.
            prob + size.min(most / 50)
        } else {
            prob.saturating_add(size)
        };
        // RFC 8033, section 4.2: decay by 1/64 while both delays are 0.
        let decay = if self.qdelay == 0 && self.qdelay_old == 0 {
            next.max(0) >> 6
        } else {
            0
        };
        num::low_u32((next - decay).clamp(0, highest.into()).cast_unsigned())
    }

    /// Right shift of the weights, bits (RFC 8033, section 4.2).
    pub(super) fn tuning(&self) -> u32 {
        const STEPS: [(u32, u32); 6] = [
            (1_000_000, 11),
            (100_000, 9),
            (10_000, 7),
            (1_000, 5),
            (100, 3),
            (10, 1),
        ];
        let step = STEPS.iter().find(|(part, _)| self.prob < MAX_PROB / part);
        step.map_or(0, |(_, shift)| *shift)
    }

    /// Whether PIE's early exits pass every packet at this drop probability.
    pub(super) fn passes_all(&self, prob: u32, units: &Units) -> bool {
        self.burst > Duration::ZERO || (self.qdelay_old < units.target >> 1 && prob < MAX_PROB / 5)
    }

    /// The de-randomised draw (`drop_early`; RFC 8033, section 5.4).
    pub(super) fn draw(&mut self, prob: u32, rng: &mut Rng) -> bool {
        if prob == 0 {
            self.accu = 0;
        }
        self.accu += u64::from(prob);
        if self.accu < u64::from(MAX_PROB) / 100 * 85 {
            return false;
        }
        if self.accu >= u64::from(MAX_PROB) / 10 * 85 {
            return true;
        }
        let hit = roll(prob, rng);
        if hit {
            self.accu = 0;
        }
        hit
    }

    /// `pie_enqueue`: a quiet queue gets its burst allowance back.
    pub(super) fn refill(&mut self, prob: u64, params: &Params, units: &Units) {
        let low = units.target >> 1;
        if prob == 0 && self.qdelay < low && self.qdelay_old < low {
            self.burst = params.max_burst;
        }
    }
}

/// True with probability p / 2^31.
pub(super) fn roll(prob: u32, rng: &mut Rng) -> bool {
    rng.u32() >> 1 < prob
}

/// p^2.
pub(super) fn square(prob: u32) -> u32 {
    num::low_u32(u64::from(prob) * u64::from(prob) / u64::from(MAX_PROB))
}

/// A probability in units of 1/MAX_PROB as 0..1.
pub(super) fn fraction(prob: u32) -> f64 {
    f64::from(prob.min(MAX_PROB)) / f64::from(MAX_PROB)
}

/// The decision on an arrival.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Keep,
    Mark,
    Drop,
}

impl Fate {
    /// Mark or drop, by the rule of `max_ecnth`.
    pub(super) fn mark_or_drop(prob: u64, units: &Units) -> Self {
        if prob < units.max_ecnth {
            Fate::Mark
        } else {
            Fate::Drop
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(prob: u32, qdelay: i64, before: i64) -> Law {
        Law {
            prob,
            qdelay,
            qdelay_old: before,
            ..Law::default()
        }
    }

    #[test]
    fn the_probability_decays_only_while_both_delays_are_0() {
        let units = Units {
            alpha: 0,
            beta: 0,
            ..Units::new(&Params::default())
        };
        let half = MAX_PROB / 2;
        let next = |now, before| law(half, now, before).next_probability(&units, MAX_PROB);
        assert_eq!(next(0, 0), half - (half >> 6));
        assert_eq!((next(0, 1), next(1, 0)), (half, half));
    }

    #[test]
    fn a_burst_is_allowed_again_while_both_delays_are_below_half_the_target() {
        let params = Params::default();
        let units = Units::new(&params);
        let half = units.target >> 1;
        let burst = |prob, now, before| {
            let mut law = law(0, now, before);
            law.refill(prob, &params, &units);
            law.burst
        };
        assert_eq!(burst(0, half - 1, half - 1), params.max_burst);
        assert_eq!(burst(0, half, half - 1), Duration::ZERO);
        assert_eq!(burst(0, half - 1, half), Duration::ZERO);
        assert_eq!(burst(1, 0, 0), Duration::ZERO);
    }
}
