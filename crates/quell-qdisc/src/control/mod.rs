//! The control plane: a controller reads a queue's gauges periodically, may watch its packets, and
//! sets knobs.
//!
//! The driver of a queue also drives its controller: `initial` before the first packet; `decide`
//! every `period`; and, for one that watches packets, `on_arrival` before each packet is offered,
//! `on_departure` after each departure, `on_drop` for each drop; `on_probe` for each answer to a
//! probe of the path. Time, random numbers and clocks are arguments.

pub mod a3c;
pub mod cake_autorate;
pub mod fixed;
pub mod guard;
pub mod law;
pub mod learn;
pub mod learnqueue;
pub mod lfq;
pub mod networks;
pub mod outside;
pub mod pace;
pub mod pie;
pub mod rlaqm;
pub mod sqm_autorate;
pub mod wqm;

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::policy::Error;
use crate::time::{Duration, Instant};
use crate::{ControlledKnobs, Gauges, Knobs, Rng, SubGauges};

/// A clock whose epoch is that of the gauges' `now`.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// A packet that is about to be offered to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time of arrival.
    pub now: Instant,
    /// The sub-queue that it will join; `None` where the discipline has no sub-queues.
    pub sub_queue: Option<usize>,
    /// Whether the sub-queue has just been assigned to another flow, so that its earlier state is
    /// void.
    pub fresh: bool,
    /// Packets in that sub-queue, without this one.
    pub held: u32,
    /// Length, bytes.
    pub len: u32,
}

/// A packet that has just left for the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Time of departure.
    pub now: Instant,
    /// The sub-queue that it was in.
    pub sub_queue: Option<usize>,
    /// Packets in that sub-queue, with this one.
    pub held: u32,
    /// Length, bytes.
    pub len: u32,
    /// Time that it spent in the queue.
    pub sojourn: Duration,
}

/// A packet that the queue has just dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Time of the drop.
    pub now: Instant,
    /// The sub-queue that it was in, or would have joined.
    pub sub_queue: Option<usize>,
}

/// The answer to a probe (such as an ICMP echo), which has crossed the shaper, the modem and the
/// network in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Time of its arrival.
    pub now: Instant,
    /// Number of the reflector that answered.
    pub reflector: u32,
    /// Time since the probe was sent.
    pub round_trip: Duration,
    /// One-way delay in the direction of this queue, by synchronised clocks; `None` if the
    /// reflector gives no timestamps.
    pub one_way: Option<Duration>,
}

/// Delay of the line in each direction above its minimum, measured on the traffic's own segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Number of the far host whose segments show it.
    pub source: u64,
    /// Upload delay.
    pub up: Duration,
    /// Download delay.
    pub down: Duration,
    /// Time by which this round trip was shorter than all recent ones of its connection.
    pub base_decrease: Duration,
    /// Whether the directions are distinguished; otherwise `up` and `down` are both the delay of
    /// both directions together.
    pub by_direction: bool,
}

/// A controller's answer to an arrival.
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
    /// Knobs that the controller sets there; initially [`Knobs::KEEP`].
    pub knobs: Knobs,
}

/// The inputs of a decision, for learners and for explanations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Explanation<'a> {
    /// Inputs of the network.
    pub inputs: &'a [f32],
    /// Output: the index of an action, or the value that was set.
    pub action: f32,
}

/// A controller of one queue.
///
/// ```
/// use quell_qdisc::prelude::*;
///
/// /// Halves a FIFO's limit while packets wait longer than 20 ms.
/// #[derive(Clone, Debug)]
/// struct Halving;
///
/// impl Control for Halving {
///     fn period(&self) -> Duration { 100 * MS }
///     fn decide(&mut self, gauges: &Gauges, _: &mut [SubQueue], _: &mut Rng) -> Knobs {
///         let halved = (gauges.limit_packets / 2).max(8);
///         Knobs { limit_packets: (gauges.sojourn > 20 * MS).then_some(halved), ..Knobs::KEEP }
///     }
/// }
/// # let gauges = Gauges { limit_packets: 100, sojourn: 30 * MS, ..Gauges::default() };
/// # let knobs = Halving.decide(&gauges, &mut [], &mut Rng::new(1, "halving"));
/// # assert_eq!((knobs.limit_packets, Halving.knobs()), (Some(50), ControlledKnobs::NONE));
/// ```
pub trait Control: Any + Debug + Send + Sync + CloneControl {
    /// Its name in records if it is not part of the queue; by default the name of its type.
    fn name(&self) -> String {
        let path = std::any::type_name::<Self>();
        let (path, _) = path.split_once('<').unwrap_or((path, ""));
        path.rsplit("::").next().unwrap_or(path).to_owned()
    }

    /// Time between decisions; [`Duration::MAX`] if it decides only on packets.
    fn period(&self) -> Duration;

    /// The knobs to set before the first packet.
    fn initial(&mut self) -> Knobs {
        Knobs::KEEP
    }

    /// True if it decides only on packets: a guard then calls `decide` only for the controller's
    /// periodic work, and ignores the knobs that it returns.
    fn decides_on_packets(&self) -> bool {
        self.period() == Duration::MAX
    }

    /// Called every `period` with current gauges, and with those of all sub-queues if it reads
    /// them. The returned knobs are set at once, then those in `sub_queues`.
    fn decide(&mut self, gauges: &Gauges, sub_queues: &mut [SubQueue], rng: &mut Rng) -> Knobs;

    /// True if `decide` needs the readings of sub-queues.
    fn reads_sub_queues(&self) -> bool {
        false
    }

    /// True if it needs to know of every packet.
    fn watches_packets(&self) -> bool {
        false
    }

    /// A packet is about to be offered.
    fn on_arrival(&mut self, _arrival: &Arrival) -> Decision {
        Decision::KEEP
    }

    /// A packet has left.
    fn on_departure(&mut self, _departure: &Departure) {}

    /// A packet was dropped.
    fn on_drop(&mut self, _loss: &Loss) {}

    /// A probe has come back; the gauges are of that moment. The returned knobs are set at once.
    fn on_probe(&mut self, _probe: &Echo, _gauges: &Gauges) -> Knobs {
        Knobs::KEEP
    }

    /// True if it uses the delay that the traffic's own segments show ([`Control::on_delay`]).
    fn uses_delay(&self) -> bool {
        false
    }

    /// The traffic's own segments have shown this delay; the gauges are of that moment. The
    /// returned knobs are set at once.
    fn on_delay(&mut self, _delay: &Delay, _gauges: &Gauges) -> Knobs {
        Knobs::KEEP
    }

    /// The knobs that it sets. A queue that lacks one of them is refused before the run. By default
    /// none, so that no queue is refused; knobs that the queue lacks are then ignored.
    fn knobs(&self) -> ControlledKnobs {
        ControlledKnobs::NONE
    }

    /// True if an outside controller decides every `period`: the driver asks it instead of calling
    /// `decide`.
    fn is_outside(&self) -> bool {
        false
    }

    /// From now on `on_arrival` returns [`Decision::Ask`] instead of evaluating its network; false
    /// if it has no network to replace.
    fn ask_outside(&mut self) -> bool {
        false
    }

    /// Inputs of the network while an answer to an arrival is pending; else empty.
    fn question(&self) -> &[f32] {
        &[]
    }

    /// Takes the answer to [`Decision::Ask`]. Returns what to set, or `Ask` if a further answer is
    /// needed first.
    fn answered(&mut self, _sub_queue: Option<usize>, knobs: &Knobs) -> Decision {
        Decision::Set(*knobs)
    }

    /// Continues from these knobs, which another controller set.
    fn adopt(&mut self, _knobs: &Knobs) {}

    /// Takes over what another controller, whose queue has ended, knew about the line. This
    /// controller is new: its time and its counters are 0. The returned knobs are set at once.
    fn resume(&mut self, _before: &dyn Control) -> Knobs {
        Knobs::KEEP
    }

    /// True if the last decision used a value that is not a number.
    fn is_broken(&self) -> bool {
        false
    }

    /// Inputs and output of the last decision, if a network made it.
    fn explain(&self) -> Option<Explanation<'_>> {
        None
    }

    /// What it has learned so far, if it learns while it serves, or is a guard of one that does.
    fn learned(&self) -> Option<LearnedState> {
        None
    }

    /// The learner that trains on its decisions, if there is one; only the first call returns it.
    fn learner(&mut self) -> Option<Box<dyn learn::Learner>> {
        None
    }

    /// The outbox with decisions for its learner, which empties it.
    fn samples(&mut self) -> Option<&mut learn::Outbox> {
        None
    }

    /// Installs networks that its learner has trained.
    fn install(&mut self, _update: learn::Update) {}

    /// Statistics of the guard, if this is one.
    fn guard(&self) -> Option<&guard::Stats> {
        None
    }

    /// Sets the clock on which a guard times decisions; other controllers ignore it.
    fn time_decisions(&mut self, _clock: Clock) {}
}

/// What a controller has learned.
#[derive(Clone, Debug, PartialEq)]
pub enum LearnedState {
    /// The table of `learnqueue`.
    Table(Box<learnqueue::Table>),
    /// The networks of `rlaqm learn` or `lfq learn`.
    Networks(networks::Networks),
}

impl LearnedState {
    /// The bytes of a file; `origin` says what has learned it, and where.
    ///
    /// # Errors
    /// If the file's card cannot be written, which does not happen.
    pub fn save(&self, origin: &str) -> Result<Vec<u8>, Error> {
        match self {
            Self::Table(table) => learnqueue::Table::clone(table).from(origin, 0).save(),
            Self::Networks(networks) => networks.save(origin),
        }
    }

    /// Reads a file that was saved with this origin. `self` is the state of the controller that is
    /// to use it, which has learned nothing yet; `file` is the file's name, for errors.
    ///
    /// # Errors
    /// If the bytes differ from what was saved, or if they have another origin or belong to a
    /// controller of another kind, with other limits or with another first network.
    pub fn load(&self, file: &str, bytes: &[u8], origin: &str) -> Result<Self, Error> {
        let (state, found, fits) = match self {
            Self::Table(untrained) => {
                let table = learnqueue::Table::load(file, bytes)?;
                let found = table.card().trained_on.clone();
                // The same words may mean other limits in another release.
                let fits = table.limits() == untrained.limits();
                (Self::Table(Box::new(table)), found, fits)
            }
            Self::Networks(untrained) => {
                let (networks, found) = untrained.load(file, bytes)?;
                (Self::Networks(networks), found, true)
            }
        };
        match found == origin && fits {
            true => Ok(state),
            false => Err(Error::new(format!("is of {found:?}")).at(file)),
        }
    }
}

/// Clones a controller behind its trait.
pub trait CloneControl {
    /// A copy of this controller.
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
