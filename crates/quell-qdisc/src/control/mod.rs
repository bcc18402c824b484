//! The control plane: a controller reads a queue's gauges on its cadence and sets its knobs.

pub mod a3c;
pub mod fixed;
pub mod guard;
pub mod learnqueue;
pub mod lfq;
pub mod pie;
pub mod rlaqm;
pub mod wqm;

use a3c::A3c;
use fixed::Fixed;
use guard::Guard;
use learnqueue::LearnQueue;
use pie::Pie;
use rlaqm::RlAqm;
use wqm::Wqm;

use crate::{Discipline, Gauges, Knobs, NEVER, Nanos, Packet, PieGauges, Qdisc, Rng};

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
    /// Goes on from these knobs, which somebody else set.
    fn adopt(&mut self, _knobs: &Knobs) {}
    /// The last decision rests on something that is no number.
    fn is_broken(&self) -> bool {
        false
    }
    /// Readings of one sub-queue, before `decide`: for a controller that turns them one by one.
    fn see(&mut self, _queue: usize, _gauges: &PieGauges) {}
    /// What the last decision is for one sub-queue.
    fn queue_knobs(&self, _queue: usize) -> Option<Knobs> {
        None
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
    /// The queue's own law, whoever turned its knobs before.
    Law,
    /// A3C-L4S.
    A3c(A3c),
    /// Knobs set once.
    Fixed(Fixed),
    /// Another controller under guard.
    Guard(Box<Guard>),
    /// LearnQueue.
    LearnQueue(LearnQueue),
    /// PIE on a FIFO.
    Pie(Pie),
    /// RL-AQM.
    RlAqm(RlAqm),
    /// WQM, reconstructed.
    Wqm(Wqm),
}

impl Control for Controller {
    fn period(&self) -> Nanos {
        match self {
            Controller::None | Controller::Law => NEVER,
            Controller::External(period) => *period,
            Controller::A3c(c) => c.period(),
            Controller::Fixed(c) => c.period(),
            Controller::Guard(c) => c.period(),
            Controller::LearnQueue(c) => c.period(),
            Controller::Pie(c) => c.period(),
            Controller::RlAqm(c) => c.period(),
            Controller::Wqm(c) => c.period(),
        }
    }
    fn decide(&mut self, gauges: &Gauges, rng: &mut Rng) -> Knobs {
        match self {
            Controller::None | Controller::External(_) => Knobs::default(),
            Controller::Law => Knobs {
                release: true,
                ..Knobs::default()
            },
            Controller::A3c(c) => c.decide(gauges, rng),
            Controller::Fixed(c) => c.decide(gauges, rng),
            Controller::Guard(c) => c.decide(gauges, rng),
            Controller::LearnQueue(c) => c.decide(gauges, rng),
            Controller::Pie(c) => c.decide(gauges, rng),
            Controller::RlAqm(c) => c.decide(gauges, rng),
            Controller::Wqm(c) => c.decide(gauges, rng),
        }
    }
    fn initial(&mut self) -> Knobs {
        match self {
            Controller::None | Controller::External(_) => Knobs::default(),
            Controller::Law => Knobs {
                release: true,
                ..Knobs::default()
            },
            Controller::A3c(c) => c.initial(),
            Controller::Fixed(c) => c.initial(),
            Controller::Guard(c) => c.initial(),
            Controller::LearnQueue(c) => c.initial(),
            Controller::Pie(c) => c.initial(),
            Controller::RlAqm(c) => c.initial(),
            Controller::Wqm(c) => c.initial(),
        }
    }
    fn adopt(&mut self, knobs: &Knobs) {
        match self {
            Controller::LearnQueue(c) => c.adopt(knobs),
            Controller::Pie(c) => c.adopt(knobs),
            Controller::RlAqm(c) => c.adopt(knobs),
            Controller::Wqm(c) => c.adopt(knobs),
            Controller::None
            | Controller::External(_)
            | Controller::Law
            | Controller::A3c(_)
            | Controller::Fixed(_)
            | Controller::Guard(_) => {}
        }
    }
    fn is_broken(&self) -> bool {
        match self {
            Controller::A3c(c) => c.is_broken(),
            Controller::RlAqm(c) => c.is_broken(),
            _ => false,
        }
    }
    fn see(&mut self, queue: usize, gauges: &PieGauges) {
        match self {
            Controller::A3c(c) => c.see(queue, gauges),
            Controller::Guard(c) => c.see(queue, gauges),
            _ => {}
        }
    }
    fn queue_knobs(&self, queue: usize) -> Option<Knobs> {
        match self {
            Controller::A3c(c) => c.queue_knobs(queue),
            Controller::Guard(c) => c.queue_knobs(queue),
            _ => None,
        }
    }
}

impl Controller {
    /// Lets it see every sub-queue; comes before `decide`.
    pub fn look<P: Packet>(&mut self, qdisc: &Qdisc<P>) {
        for queue in 0..qdisc.queues() {
            if let Some(gauges) = qdisc.queue_gauges(queue) {
                self.see(queue, &gauges);
            }
        }
    }

    /// Sets what it decided: these knobs, then those of single sub-queues.
    pub fn turn<P: Packet>(&self, knobs: &Knobs, qdisc: &mut Qdisc<P>) {
        qdisc.set_knobs(knobs);
        for queue in 0..qdisc.queues() {
            if let Some(knobs) = self.queue_knobs(queue) {
                qdisc.set_queue_knobs(queue, &knobs);
            }
        }
    }
}
