//! The control plane: a controller reads a queue's gauges on its cadence, follows its packets if it
//! wants to, and sets knobs.
//!
//! The driver of a queue also drives its controller: `initial` before the first packet; `decide`
//! every `period`; and, for one that watches packets, `on_arrival` before each packet is offered,
//! `on_departure` after each that left, `on_drop` for each that was given up; `on_probe` for each
//! answer to a probe of the path. Time, random numbers and clocks are arguments.

pub mod a3c;
pub mod cake_autorate;
pub mod fixed;
pub mod guard;
pub mod law;
pub mod learn;
pub mod learnqueue;
pub mod lfq;
pub mod outside;
pub mod pace;
pub mod pie;
pub mod rlaqm;
pub mod sqm_autorate;
pub mod wqm;

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::policy::Policy;
use crate::{Gauges, KnobSet, Knobs, Nanos, Rng, SubGauges};

/// A clock whose epoch is that of the gauges' `now`.
pub type Clock = Arc<dyn Fn() -> Nanos + Send + Sync>;

/// A packet that is about to be offered to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub now: Nanos,
    /// The sub-queue that it will join; `None` where the discipline has no sub-queues.
    pub sub_queue: Option<usize>,
    /// The sub-queue was given to another flow just now: what was known of it is void.
    pub fresh: bool,
    /// Packets queued there, without this one.
    pub held: u32,
    /// Bytes.
    pub len: u32,
}

/// A packet that has just left for the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When.
    pub now: Nanos,
    /// The sub-queue that it was in.
    pub sub_queue: Option<usize>,
    /// Packets queued there, with this one.
    pub held: u32,
    /// Bytes.
    pub len: u32,
    /// Time that it spent in the queue.
    pub sojourn: Nanos,
}

/// A packet that the queue has just given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When.
    pub now: Nanos,
    /// The sub-queue that it was in, or would have joined.
    pub sub_queue: Option<usize>,
}

/// The answer to a probe (an ICMP echo, say) that went out through a shaper, a modem and the
/// network to a reflector and came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// When it came back.
    pub now: Nanos,
    /// Which reflector answered, by number.
    pub reflector: u32,
    /// From its departure to its return.
    pub round_trip: Nanos,
    /// How long it took in the direction of this queue, by clocks that agree; `None` where the
    /// reflector gives no timestamps.
    pub one_way: Option<Nanos>,
}

/// Delay of the line in each direction beyond its least, as the traffic's own segments show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// The far host that it was seen with, by number.
    pub source: u64,
    /// On the way up.
    pub up: Nanos,
    /// On the way down.
    pub down: Nanos,
    /// How far the least round trip of a connection has fallen.
    pub fell: Nanos,
    /// The directions are distinguished; else each has the delay of both.
    pub apart: bool,
}

/// What a controller answers to an arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Set these knobs of the arrival's sub-queue (of the queue, where it has no sub-queues), then
    /// offer the packet.
    Set(Knobs),
    /// An outside controller decides. The packet and all later ones wait; [`Control::answered`]
    /// takes the answer.
    Ask,
}

impl Decision {
    /// All knobs stay as they are.
    pub const KEEP: Self = Self::Set(Knobs::KEEP);
}

/// A sub-queue as [`Control::decide`] sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SubQueue {
    /// Its readings.
    pub gauges: SubGauges,
    /// What the controller wants set there; comes as [`Knobs::KEEP`].
    pub knobs: Knobs,
}

/// The inputs of a decision, for learners and for explanations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Explanation<'a> {
    /// What the network read.
    pub inputs: &'a [f32],
    /// What it chose: the index of an action, or the value that was set.
    pub action: f32,
}

/// A controller of one queue.
pub trait Control: Any + Debug + Send + Sync + CloneControl {
    /// What records call it where it is no part of the queue: the name of its type.
    fn name(&self) -> String {
        let path = std::any::type_name::<Self>();
        let (path, _) = path.split_once('<').unwrap_or((path, ""));
        path.rsplit("::").next().unwrap_or(path).to_owned()
    }

    /// Time between decisions; [`crate::NEVER`] for one that decides on packets alone.
    fn period(&self) -> Nanos;

    /// The knobs to set before the first packet.
    fn initial(&mut self) -> Knobs {
        Knobs::KEEP
    }

    /// Called every `period` with fresh gauges, and with those of all sub-queues if it reads them.
    /// What it returns is set at once, then what it left in `sub_queues`.
    fn decide(&mut self, gauges: &Gauges, sub_queues: &mut [SubQueue], rng: &mut Rng) -> Knobs;

    /// `decide` wants the readings of sub-queues.
    fn reads_sub_queues(&self) -> bool {
        false
    }

    /// It wants to know of every packet.
    fn watches_packets(&self) -> bool {
        false
    }

    /// A packet is about to be offered.
    fn on_arrival(&mut self, _arrival: &Arrival) -> Decision {
        Decision::KEEP
    }

    /// A packet has left.
    fn on_departure(&mut self, _departure: &Departure) {}

    /// A packet was given up.
    fn on_drop(&mut self, _loss: &Loss) {}

    /// A probe has come back; the gauges are of that moment. What it returns is set at once.
    fn on_probe(&mut self, _probe: &Echo, _gauges: &Gauges) -> Knobs {
        Knobs::KEEP
    }

    /// It wants to know of the delay that the traffic's own segments show.
    fn hears_delay(&self) -> bool {
        false
    }

    /// The traffic's own segments have shown this delay; the gauges are of that moment. What it
    /// returns is set at once.
    fn on_delay(&mut self, _delay: &Delay, _gauges: &Gauges) -> Knobs {
        Knobs::KEEP
    }

    /// The knobs that it may set: of the queue, and of its sub-queues. Checked against those that a
    /// discipline has.
    fn knobs(&self) -> (KnobSet, KnobSet);

    /// An outside controller decides every `period`: the driver asks it instead of calling
    /// `decide`.
    fn is_outside(&self) -> bool {
        false
    }

    /// From now on `on_arrival` asks outside wherever a network would be asked; false if it asks no
    /// network then.
    fn ask_outside(&mut self) -> bool {
        false
    }

    /// What the network would read, while an answer to an arrival is awaited.
    fn question(&self) -> &[f32] {
        &[]
    }

    /// The answer to [`Decision::Ask`].
    fn answered(&mut self, _sub_queue: Option<usize>, knobs: &Knobs) -> Decision {
        Decision::Set(*knobs)
    }

    /// Continues from these knobs, which another controller set.
    fn adopt(&mut self, _knobs: &Knobs) {}

    /// The last decision rests on something that is no number.
    fn is_broken(&self) -> bool {
        false
    }

    /// What the last decision was made of, where a network made it.
    fn explain(&self) -> Option<Explanation<'_>> {
        None
    }

    /// What LearnQueue has learned so far, if this is one, also under a guard.
    fn learned(&self) -> Option<learnqueue::Table> {
        None
    }

    /// What learns from its decisions, if anything does; it is given away once.
    fn learner(&mut self) -> Option<Box<rlaqm::learn::Learner>> {
        None
    }

    /// The decisions for its learner, who empties this.
    fn samples(&mut self) -> Option<&mut learn::Outbox> {
        None
    }

    /// Takes a network that its learner made, and gives back one that it then has no use for.
    fn install(&mut self, policy: Policy) -> Option<Policy> {
        Some(policy)
    }

    /// What a guard did, if this is one.
    fn guard(&self) -> Option<&guard::Stats> {
        None
    }

    /// A guard times decisions on this clock from now on; others have no use for it.
    fn time_decisions(&mut self, _clock: Clock) {}
}

/// Clones a controller behind its trait.
pub trait CloneControl {
    /// The same controller again.
    fn clone_control(&self) -> Box<dyn Control>;
}

impl<T: Control + Clone> CloneControl for T {
    fn clone_control(&self) -> Box<dyn Control> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Control> {
    fn clone(&self) -> Self {
        self.as_ref().clone_control()
    }
}
