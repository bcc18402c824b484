//! The control plane: a controller reads a queue's gauges on its cadence and sets its knobs.

pub mod fixed;
pub mod learnqueue;
pub mod lfq;
pub mod rlaqm;
pub mod wqm;

use fixed::Fixed;
use learnqueue::LearnQueue;
use rlaqm::RlAqm;
use wqm::Wqm;

use crate::{Gauges, Knobs, NEVER, Nanos, Rng};

/// A controller of one queue.
pub trait Control {
    /// Nanoseconds between decisions; `NEVER` for one that decides only on packets.
    fn period(&self) -> Nanos;
    /// Called every `period` with fresh gauges; what it returns is set at once.
    fn decide(&mut self, gauges: &Gauges, rng: &mut Rng) -> Knobs;
    /// The knobs to set before the first packet.
    fn initial(&mut self) -> Knobs {
        Knobs::default()
    }
}

/// Every controller, as plain data.
#[derive(Clone, Debug, Default)]
pub enum Controller {
    /// Nobody turns the knobs.
    #[default]
    None,
    /// Somebody outside does, every so many nanoseconds: the simulator stops and asks.
    External(Nanos),
    /// Knobs set once.
    Fixed(Fixed),
    /// LearnQueue.
    LearnQueue(LearnQueue),
    /// RL-AQM.
    RlAqm(RlAqm),
    /// WQM, reconstructed.
    Wqm(Wqm),
}

impl Control for Controller {
    fn period(&self) -> Nanos {
        match self {
            Controller::None => NEVER,
            Controller::External(period) => *period,
            Controller::Fixed(c) => c.period(),
            Controller::LearnQueue(c) => c.period(),
            Controller::RlAqm(c) => c.period(),
            Controller::Wqm(c) => c.period(),
        }
    }
    fn decide(&mut self, gauges: &Gauges, rng: &mut Rng) -> Knobs {
        match self {
            Controller::None | Controller::External(_) => Knobs::default(),
            Controller::Fixed(c) => c.decide(gauges, rng),
            Controller::LearnQueue(c) => c.decide(gauges, rng),
            Controller::RlAqm(c) => c.decide(gauges, rng),
            Controller::Wqm(c) => c.decide(gauges, rng),
        }
    }
    fn initial(&mut self) -> Knobs {
        match self {
            Controller::None | Controller::External(_) => Knobs::default(),
            Controller::Fixed(c) => c.initial(),
            Controller::LearnQueue(c) => c.initial(),
            Controller::RlAqm(c) => c.initial(),
            Controller::Wqm(c) => c.initial(),
        }
    }
}
