//! The readings (gauges) and settings (knobs) through which a discipline and a controller
//! communicate.

use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Readings of one queue. Counters start at the queue's creation; a controller that needs a
/// period's count keeps its last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Time of the reading.
    pub now: Instant,
    /// Packets queued.
    pub backlog_packets: u32,
    /// Bytes queued.
    pub backlog_bytes: u64,
    /// The limit in force, packets.
    pub limit_packets: u32,
    /// Sojourn time of the packet that left last; 0 before the first.
    pub sojourn: Duration,
    /// Time that the head of the queue has waited; 0 if empty.
    pub head_age: Duration,
    /// The link's current rate.
    pub rate: Rate,
    /// Share of the airtime (or of the link) that this queue gets, 0..1: 1 on a wire.
    pub share: f64,
    /// Moving average of the rate at which data is acknowledged in the airtime of the queue's
    /// frames; 0 on a wire.
    pub achieved: Rate,
    /// Share of the time in which the air is in use by any node, the queue's own included, 0..1; 0
    /// on a wire.
    pub busy: f64,
    /// Nodes that recently sent data on the same channel, the queue's own included: 1 on a wire.
    pub contenders: u32,
    /// Frames per aggregate: 1 on a wire.
    pub aggregate: f64,
    /// Packets offered to the discipline.
    pub arrivals: u64,
    /// Packets sent.
    pub departures: u64,
    /// Bytes sent.
    pub departed_bytes: u64,
    /// Packets dropped because a limit was reached.
    pub drops_overflow: u64,
    /// Packets dropped by a law or a knob.
    pub drops_early: u64,
    /// Bytes of all packets that were dropped.
    pub dropped_bytes: u64,
    /// Packets marked CE.
    pub marks: u64,
    /// The drop or mark probability in force, where the discipline has one.
    pub probability: f64,
    /// Packets queued, integrated over time, packet-nanoseconds: the difference of two readings
    /// over the time between them is the mean backlog.
    pub backlog_ns: u128,
}

/// The lowest rate of a shaper: `tc-cake`'s.
const MIN_RATE: Rate = Rate::from_bps(512);

/// Knobs that a controller sets; `None` leaves a knob unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Knobs {
    /// Limit in packets.
    pub limit_packets: Option<u32>,
    /// Drop probability, 0..1.
    pub drop: Option<f64>,
    /// Base probability p' of coupled queues, 0..1. Once set, the discipline's own law no longer
    /// changes it.
    pub base_probability: Option<f64>,
    /// Rate of the discipline's own shaper.
    pub rate: Option<Rate>,
    /// Hands the base probability back to the discipline's own law (before `base_probability`, if
    /// both are given).
    pub release: bool,
}

impl Knobs {
    /// All knobs stay as they are.
    pub const KEEP: Self = Self {
        limit_packets: None,
        drop: None,
        base_probability: None,
        rate: None,
        release: false,
    };

    /// Describes the first value that is out of range, if any: a limit is at least 1 packet, a
    /// probability from 0 to 1, a rate at least 512 bit/s.
    pub fn fault(&self) -> Option<String> {
        let share = |name: &str, p: Option<f64>| {
            let p = p.filter(|p| !(0.0..=1.0).contains(p))?;
            Some(format!("{name} = {p} is not from 0 to 1"))
        };
        if self.limit_packets == Some(0) {
            return Some("limit = 0 is not at least 1 packet".into());
        }
        if let Some(rate) = self.rate.filter(|rate| *rate < MIN_RATE) {
            let (bps, least) = (rate.bps(), MIN_RATE.bps());
            return Some(format!("rate = {bps} is not at least {least} bit/s"));
        }
        share("drop", self.drop).or_else(|| share("base_probability", self.base_probability))
    }
}

/// Which knobs a discipline has: for the queue as a whole, or for one of its sub-queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnobSet {
    /// [`Knobs::limit_packets`].
    pub limit: bool,
    /// [`Knobs::drop`].
    pub drop: bool,
    /// [`Knobs::base_probability`] and [`Knobs::release`].
    pub base_probability: bool,
    /// [`Knobs::rate`].
    pub rate: bool,
}

impl KnobSet {
    /// No knob at all.
    pub const NONE: Self = Self {
        limit: false,
        drop: false,
        base_probability: false,
        rate: false,
    };
    /// The limit alone.
    pub const LIMIT: Self = Self {
        limit: true,
        ..Self::NONE
    };
    /// The shaper's rate alone.
    pub const RATE: Self = Self {
        rate: true,
        ..Self::NONE
    };

    /// Names of the knobs in the set, as users write them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("limit", self.limit),
            ("drop", self.drop),
            ("base_probability", self.base_probability),
            ("rate", self.rate),
        ];
        all.into_iter().filter_map(|(name, is)| is.then_some(name))
    }

    /// The name of the first knob of `wanted` that is not in this set.
    pub fn misses(self, wanted: Self) -> Option<&'static str> {
        let mut names = wanted.names();
        names.find(|wanted| !self.names().any(|name| name == *wanted))
    }

    /// The name of the first knob that `knobs` sets and that is not in this set.
    pub fn lacks(self, knobs: &Knobs) -> Option<&'static str> {
        self.misses(Self {
            limit: knobs.limit_packets.is_some(),
            drop: knobs.drop.is_some(),
            base_probability: knobs.base_probability.is_some() || knobs.release,
            rate: knobs.rate.is_some(),
        })
    }
}

/// The knobs that a controller sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlledKnobs {
    /// Knobs of the queue as a whole.
    pub queue: KnobSet,
    /// Knobs of each of its sub-queues.
    pub sub_queues: KnobSet,
}

impl ControlledKnobs {
    /// No knob at all.
    pub const NONE: Self = Self::of_queue(KnobSet::NONE);

    /// Knobs of the queue as a whole only.
    pub const fn of_queue(queue: KnobSet) -> Self {
        Self {
            queue,
            sub_queues: KnobSet::NONE,
        }
    }

    /// Knobs of the sub-queues only.
    pub const fn of_sub_queues(sub_queues: KnobSet) -> Self {
        Self {
            queue: KnobSet::NONE,
            sub_queues,
        }
    }
}

/// Readings of one sub-queue: a flow of a fair queue, or a half of a coupled pair. Readings that a
/// discipline does not have are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SubGauges {
    /// Packets queued.
    pub backlog_packets: u32,
    /// Bytes queued.
    pub backlog_bytes: u64,
    /// Time that the head has waited; 0 if empty.
    pub head_age: Duration,
    /// The limit in force, packets, if the sub-queue has its own.
    pub limit_packets: u32,
    /// Time in which a sub-queue with its own limit was active, ns.
    pub active_ns: u128,
    /// The limit, integrated over that time, packet-nanoseconds.
    pub limit_ns: u128,
    /// Packets offered.
    pub arrivals: u64,
    /// Bytes offered.
    pub arrived_bytes: u64,
    /// Packets dropped for any cause.
    pub drops: u64,
    /// Drop or mark probability of its law, 0..1.
    pub probability: f64,
    /// True if it holds packets of low-latency flows (RFC 9331).
    pub low_latency: bool,
    /// State of its law.
    pub law: LawGauges,
}

/// Readings of one priority, as `tc -s qdisc` shows them: a tin of `cake`, a band of `prio` and
/// similar, or a class. Counters run from the queue's creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TinGauges {
    /// Its name as `tc` prints it; of no meaning for a class, which has a number.
    pub name: &'static str,
    /// The class's number in `tc`, its major number in the upper 16 bits; 0 if this is not a class.
    pub class: u32,
    /// Rate up to which it has its priority, or the guaranteed rate of a class of `htb`; 0 without
    /// one.
    pub threshold: Rate,
    /// COBALT's target.
    pub target: Duration,
    /// COBALT's interval.
    pub interval: Duration,
    /// Moving average of the sojourn time that rises fast and falls slowly.
    pub peak_delay: Duration,
    /// Moving average of the sojourn time, in which a packet has the weight 1/256.
    pub average_delay: Duration,
    /// Moving average of the sojourn time that falls fast and rises slowly.
    pub base_delay: Duration,
    /// Bytes queued.
    pub backlog_bytes: u64,
    /// Packets that arrived.
    pub packets: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Packets that left for the link.
    pub sent_packets: u64,
    /// Bytes that left for the link.
    pub sent_bytes: u64,
    /// Packets whose flow has a queue other than the one that its hash names.
    pub indirect_hits: u64,
    /// Times that a flow was assigned an idle queue.
    pub misses: u64,
    /// Times that a flow had to share a queue.
    pub collisions: u64,
    /// Packets dropped: in a tin by COBALT or at the memory limit, in a band or class for any
    /// cause.
    pub drops: u64,
    /// Packets marked.
    pub marks: u64,
    /// ACKs dropped because a later ACK replaces them.
    pub ack_drops: u64,
    /// Sparse flows.
    pub sparse_flows: u32,
    /// Flows in the rotation.
    pub bulk_flows: u32,
    /// Flows that BLUE drops from.
    pub unresponsive_flows: u32,
    /// The largest packet, bytes.
    pub max_len: u32,
    /// Bytes of a flow per round, before it is divided among its host's flows.
    pub quantum: u32,
}

/// State of a PIE (RFC 8033) that runs in a sub-queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LawGauges {
    /// Remaining time without drops.
    pub burst_allowance: Duration,
    /// Current queueing delay.
    pub delay: Duration,
    /// Queueing delay at the last update.
    pub delay_old: Duration,
    /// Sum of the probabilities since the last drop.
    pub accumulated: f64,
    /// Time at which the law last started.
    pub since: Instant,
}

/// Readings and settings of a policy inside a discipline ([`crate::hush`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyGauges {
    /// Drain time of the backlog above which the law acts.
    pub target: Duration,
    /// Time that it must stay above the target before the first action.
    pub wait: Duration,
    /// Time from the first action to the second.
    pub hold: Duration,
    /// Drain time above which packets are dropped at once; [`Duration::MAX`] without a cap.
    pub cap: Duration,
    /// Share of the time in which the link had nothing to send, 0..1.
    pub idle: f64,
    /// Geometric mean of the flows' base round trips.
    pub round_trip: Duration,
    /// Flows that sent recently.
    pub flows: u32,
    /// True while the policy decides; false while its guard's stand-in does.
    pub trusted: bool,
}

/// The sub-queue of an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Number of the sub-queue.
    pub sub_queue: usize,
    /// The sub-queue is new or has just been assigned to another flow, so earlier state for it is
    /// void.
    pub fresh: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_that_returns_a_probability_needs_that_knob() {
        let release = Knobs {
            release: true,
            ..Knobs::KEEP
        };
        assert_eq!(KnobSet::LIMIT.lacks(&release), Some("base_probability"));
        assert_eq!(KnobSet::LIMIT.lacks(&Knobs::KEEP), None);
    }

    #[test]
    fn values_that_no_knob_has_are_named() {
        let p = |p| Knobs {
            drop: p,
            base_probability: Some(1.0),
            ..Knobs::KEEP
        };
        assert_eq!(Knobs::KEEP.fault(), None);
        assert_eq!(p(Some(0.0)).fault(), None);
        for (value, text) in [(f64::NAN, "NaN"), (7.0, "7"), (-0.1, "-0.1")] {
            let wanted = format!("drop = {text} is not from 0 to 1");
            assert_eq!(p(Some(value)).fault(), Some(wanted));
        }
        let limit = |limit_packets| Knobs {
            limit_packets,
            ..Knobs::KEEP
        };
        assert!(limit(Some(0)).fault().is_some() && limit(Some(1)).fault().is_none());
    }
}
