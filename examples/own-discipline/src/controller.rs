//! A controller that halves a FIFO's limit when packets wait longer than twice its target, and
//! raises it by one packet when they wait less than the target.

use quell_qdisc::prelude::*;

/// The controller.
#[derive(Clone, Debug)]
pub struct Halving {
    target: Duration,
}

impl Halving {
    /// A controller that aims at a delay of `target`.
    pub fn new(target: Duration) -> Self {
        Self { target }
    }
}

fn limit(packets: u32) -> Knobs {
    Knobs {
        limit_packets: Some(packets),
        ..Knobs::KEEP
    }
}

impl Control for Halving {
    fn period(&self) -> Duration {
        20 * MS
    }

    fn initial(&mut self) -> Knobs {
        limit(100)
    }

    fn decide(&mut self, gauges: &Gauges, _: &mut [SubQueue], _: &mut Rng) -> Knobs {
        let now = gauges.limit_packets;
        match gauges.sojourn {
            sojourn if sojourn > 2 * self.target => limit((now / 2).max(8)),
            sojourn if sojourn < self.target => limit((now + 1).min(1000)),
            _ => Knobs::KEEP,
        }
    }

    /// Needs the knob limit: a queue without it is refused before the run.
    fn knobs(&self) -> ControlledKnobs {
        ControlledKnobs::of_queue(KnobSet::LIMIT)
    }
}
