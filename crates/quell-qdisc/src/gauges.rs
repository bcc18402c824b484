//! What a discipline shows (gauges) and lets be set (knobs): the only words between it and a controller.

use crate::Nanos;

/// Readings of one queue. Counters run from the queue's creation; a controller that wants a period's share keeps the last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// When it was read.
    pub now: Nanos,
    /// Packets queued.
    pub backlog_packets: u32,
    /// Bytes queued.
    pub backlog_bytes: u64,
    /// The limit in force, packets.
    pub limit_packets: u32,
    /// Sojourn of the packet that left last; 0 before the first.
    pub sojourn: Nanos,
    /// How long the head of the queue has waited; 0 if empty.
    pub head_age: Nanos,
    /// The link's present rate, bit/s.
    pub rate_bps: u64,
    /// Share of the airtime (or of the link) that this queue gets, 0..1: 1 on a wire.
    pub share: f64,
    /// Where the air is shared: bits that arrive per second of the air that the queue's frames take; 0 on a wire.
    pub achieved_bps: u64,
    /// Share of the time in which the air is in use by anybody, the queue's own node included, 0..1; 0 on a wire.
    pub busy: f64,
    /// Nodes that lately sent data on the same channel, the queue's own included: 1 on a wire.
    pub contenders: u32,
    /// Frames per aggregate: 1 on a wire.
    pub aggregate: f64,
    /// Packets offered to the discipline.
    pub arrivals: u64,
    /// Packets given on.
    pub departures: u64,
    /// Bytes given on.
    pub departed_bytes: u64,
    /// Packets dropped because a limit was reached.
    pub drops_overflow: u64,
    /// Packets dropped by a law or a knob.
    pub drops_early: u64,
    /// Packets marked CE.
    pub marks: u64,
    /// The drop or mark probability in force, where the discipline has one.
    pub probability: f64,
}

/// What a controller sets; `None` leaves a knob as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Knobs {
    /// Limit in packets.
    pub limit_packets: Option<u32>,
    /// Drop probability, 0..1.
    pub drop: Option<f64>,
    /// Base probability p' of coupled queues, 0..1. From then on the discipline's own law leaves it alone.
    pub base_probability: Option<f64>,
    /// Hands the base probability back to the discipline's own law (before `base_probability`, if both are given).
    pub release: bool,
}

/// Readings of one sub-queue with a PIE of its own: the twelve of the A3C-L4S paper's table 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PieGauges {
    /// Time left without drops.
    pub burst_allowance: Nanos,
    /// The law's probability, p'.
    pub drop_prob: f64,
    /// Present delay.
    pub qdelay: Nanos,
    /// Delay at the last update.
    pub qdelay_old: Nanos,
    /// Probabilities summed since the last drop.
    pub accu_prob: f64,
    /// When the law started (FreeBSD: its first rate measurement).
    pub measurement_start: Nanos,
    /// Packets offered.
    pub total_packets: u64,
    /// Bytes offered.
    pub total_bytes: u64,
    /// Packets queued.
    pub backlog_packets: u32,
    /// Bytes queued.
    pub backlog_bytes: u64,
    /// Packets dropped, for whatever cause.
    pub drops: u64,
    /// It holds ECN-capable packets: an L4S sub-queue.
    pub ecn: bool,
}

impl PieGauges {
    /// Names in the order of [`PieGauges::array`], the published one.
    pub const NAMES: [&str; 12] = [
        "burst_allowance",
        "drop_prob",
        "current_qdelay",
        "qdelay_old",
        "accu_prob",
        "measurement_start",
        "tot_pkts",
        "tot_bytes",
        "length",
        "len_bytes",
        "drops",
        "ecn",
    ];

    /// All twelve as numbers: times in ns, probabilities from 0 to 1 (`accu_prob` to 8.5 and somewhat more), `ecn` 0 or 1.
    pub fn array(&self) -> [f64; 12] {
        [
            self.burst_allowance as f64,
            self.drop_prob,
            self.qdelay as f64,
            self.qdelay_old as f64,
            self.accu_prob,
            self.measurement_start as f64,
            self.total_packets as f64,
            self.total_bytes as f64,
            f64::from(self.backlog_packets),
            self.backlog_bytes as f64,
            self.drops as f64,
            f64::from(u8::from(self.ecn)),
        ]
    }
}
