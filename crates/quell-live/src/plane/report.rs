//! The result record of a link that carried real packets.

use quell_link::Hist;
use quell_link::record::{Run, Summary};
use quell_qdisc::{MS, Nanos};
use serde::Serialize;

use crate::plane::link::LiveLink;

/// A packet that leaves so much later than it should counts as a missed opportunity to send.
pub const LATE: Nanos = MS;

/// The simulator's record, with what only real packets have.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The keys that a simulated run has; see [`LiveLink::record`].
    #[serde(flatten)]
    pub run: Run,
    /// What the machine did to it.
    pub live: MachineReport,
}

/// How well the machine kept up.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct MachineReport {
    /// Packets that left more than 1 ms later than the link's rate had it.
    pub missed: u64,
    /// How late packets left.
    pub late_ms: Summary,
    /// Packets that never reached the queue: no memory, or a large frame that cannot be separated.
    pub refused: u64,
    /// Packets that the other side's device did not take.
    pub unsent: u64,
    /// Marks written into packets that were then sent.
    pub marks_sent: u64,
    /// Packets read from the device.
    pub read: u64,
    /// Packets written to the other side's device.
    pub sent: u64,
    /// Writes that took: segments of a connection that leave at the same time are one.
    pub frames: u64,
    /// Packets that were still inside at the end.
    pub inside: u64,
    /// Whether the loop had real-time priority.
    pub realtime: bool,
}

impl Record {
    /// The record of a link after `now`, called `name`; `machine` and `late` are what the loop knows.
    pub fn new(
        name: &str,
        link: &mut LiveLink,
        now: Nanos,
        cpu_s: f64,
        machine: MachineReport,
        late: &Hist,
    ) -> Self {
        let run = link.record(now);
        let run = Run {
            scenario: name.to_owned(),
            // A packet comes and goes.
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
            late_ms: late.summary(1.0 / MS as f64),
            inside: link.inside() as u64,
            ..machine
        };
        Self { run, live }
    }
}
