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
    /// Base probability p' of coupled queues, 0..1.
    pub base_probability: Option<f64>,
}
