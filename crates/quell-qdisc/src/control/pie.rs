//! PIE as a controller: RFC 8033's law sets the drop probability of a plain FIFO. It is the
//! fallback of guarded queues.
//!
//! The law is that of [`parts::pie`](crate::parts::pie). Its delay is the backlog divided by the
//! link's rate (RFC 8033, section 5.2), and it is updated once per decision, whatever the period.
//! The FIFO drops each arrival with this probability, without PIE's burst allowance and without its
//! exceptions for short queues.

use super::{Control, SubQueue};
use crate::num;
use crate::parts::pie::{MAX_PROB, Params, Vars};
use crate::time::{Duration, SEC};
use crate::{ControlledKnobs, Gauges, KnobSet, Knobs, Rng};

/// The controller of one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Pie {
    params: Params,
    vars: Vars,
}

impl Pie {
    /// Starts without drops. The limit is the FIFO's own; `params.limit` is not used.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            vars: Vars::default(),
        }
    }
}

impl Control for Pie {
    fn period(&self) -> Duration {
        self.params.tupdate
    }

    fn decide(&mut self, gauges: &Gauges, _subs: &mut [SubQueue], _rng: &mut Rng) -> Knobs {
        // In an outage the delay is unknown; the last known one is used.
        if !gauges.rate.is_zero() {
            let delay = gauges.rate.transmission_time(gauges.backlog_bytes);
            self.vars.qdelay = delay.min(100 * SEC);
        }
        self.vars
            .calculate_probability(&self.params, gauges.backlog_bytes);
        Knobs {
            drop: Some(self.vars.probability()),
            ..Knobs::KEEP
        }
    }

    fn initial(&mut self) -> Knobs {
        Knobs {
            drop: Some(0.0),
            ..Knobs::KEEP
        }
    }

    fn knobs(&self) -> ControlledKnobs {
        let drop = KnobSet {
            drop: true,
            ..KnobSet::NONE
        };
        ControlledKnobs::of_queue(drop)
    }

    fn adopt(&mut self, knobs: &Knobs) {
        if let Some(p) = knobs.drop {
            self.vars.prob = num::whole_u64(p.clamp(0.0, 1.0) * MAX_PROB as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;
    use crate::time::MS;

    fn waiting(ms: u64) -> Gauges {
        Gauges {
            backlog_bytes: 1250 * ms,
            rate: Rate::from_mbit(10),
            ..Gauges::default()
        }
    }

    #[test]
    fn the_probability_rises_above_the_target_and_falls_below_it() {
        let mut pie = Pie::new(Params::default());
        assert_eq!(pie.period(), 15 * MS);
        let mut rng = Rng::new(1, "pie");
        let mut run = |ms: u64, n| {
            let last = (0..n).map(|_| pie.decide(&waiting(ms), &mut [], &mut rng).drop);
            last.last().flatten().unwrap()
        };
        let high = run(60, 200);
        assert!(high > 0.1, "{high}");
        // Each of 100 updates subtracts 0.125 Hz * 10 ms.
        assert!((high - run(5, 100) - 0.125).abs() < 0.08);
    }

    #[test]
    fn it_continues_from_the_probability_that_it_finds() {
        let mut pie = Pie::new(Params::default());
        pie.adopt(&Knobs {
            drop: Some(0.2),
            ..Knobs::default()
        });
        let p = pie
            .decide(&waiting(15), &mut [], &mut Rng::new(1, "pie"))
            .drop;
        assert!((p.unwrap() - 0.2).abs() < 0.03, "{p:?}");
    }
}
