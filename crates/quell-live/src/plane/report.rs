//! The result record of a link that carried real packets.

use quell_link::Hist;
use quell_link::record::{Run, Summary};
use quell_qdisc::time::{Duration, Instant, MS};
use serde::Serialize;

use crate::plane::link::LiveLink;

/// A packet that leaves later than this after its due time counts as a missed opportunity to send.
pub const LATE: Duration = MS;

/// The record of a simulated run, extended by measures of the machine.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The keys of a simulated run; [`LiveLink::record`] says which of them are empty.
    #[serde(flatten)]
    pub run: Run,
    /// How well the machine kept up.
    pub live: MachineReport,
}

/// Measures of how well the machine kept up with the link.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct MachineReport {
    /// Packets that left more than 1 ms ([`LATE`]) after the time that the link's rate gave them.
    pub missed: u64,
    /// Times from packets' due times to their departures, ms.
    pub late_ms: Summary,
    /// Packets that were discarded before the queue: no free buffer, or a frame that cannot be
    /// parsed or split into packets.
    pub refused: u64,
    /// Packets that could not be written to the outgoing device.
    pub unsent: u64,
    /// Packets sent with a mark that quell wrote.
    pub marks_sent: u64,
    /// Packets read from the device.
    pub read: u64,
    /// Packets written to the outgoing device.
    pub sent: u64,
    /// Successful writes. Segments of a connection that leave at the same time may be written as
    /// one large frame.
    pub frames: u64,
    /// Packets still in the link at the end: delayed before the queue, queued, or on the line.
    pub inside: u64,
    /// Whether the loop had real-time priority.
    pub realtime: bool,
}

impl Record {
    /// The record of a link up to `now`, called `name`. The packet loop has counted `machine` and
    /// `late` (nanoseconds).
    pub fn new(
        name: &str,
        link: &mut LiveLink,
        now: Instant,
        cpu_s: f64,
        machine: MachineReport,
        late: &Hist,
    ) -> Self {
        let run = link.record(now);
        let run = Run {
            scenario: name.to_owned(),
            // A delivered packet is two events, arrival and departure; a dropped one is one.
            events: 2 * run.packets + run.drops,
            cpu_s,
            packets_per_cpu_s: if cpu_s > 0.0 {
                run.packets as f64 / cpu_s
            } else {
                0.0
            },
            ..run
        };
        let live = MachineReport {
            late_ms: late.summary(1e-6),
            inside: link.inside() as u64,
            ..machine
        };
        Self { run, live }
    }
}
