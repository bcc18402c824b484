//! The result record of a link that carried real packets.

use quell_link::Hist;
use quell_link::record::{Run, Summary};
use quell_qdisc::{MS, Nanos, SEC};
use serde::Serialize;

use crate::link::Link;

/// A packet that leaves so much later than it should counts as a missed opportunity to send.
pub const LATE: Nanos = MS;

/// Points of the sojourn's cumulative distribution.
const CDF_POINTS: usize = 200;

/// The simulator's record, with what only real packets have.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The keys that a simulated run has. Goodput counts what is behind the transport headers, retransmissions included: a
    /// queue cannot tell them. What only end points know (flows, RTT) is empty.
    #[serde(flatten)]
    pub run: Run,
    /// What the machine did to it.
    pub live: Machine,
}

/// How well the machine kept up.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Machine {
    /// Packets that left more than 1 ms later than the link's rate had it.
    pub missed: u64,
    /// How late packets left.
    pub late_ms: Summary,
    /// Packets that found no memory; they never reached the queue.
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
        link: &mut Link,
        now: Nanos,
        cpu_s: f64,
        machine: Machine,
        late: &Hist,
    ) -> Self {
        link.settle(now);
        let meter = link.meter();
        let c = link.measured(now);
        let (span, offered, drops) = (c.span, c.offered, c.drops.total());
        let ms = 1.0 / MS as f64;
        let mbps = |bytes: f64| bytes * 8e3 / span as f64;
        let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let run = Run {
            scenario: name.to_owned(),
            queue: link.params().queue.canonical(),
            seed: link.params().seed,
            measured_s: span as f64 / SEC as f64,
            goodput_mbps: mbps(c.payload as f64),
            throughput_mbps: mbps(c.departed_bytes as f64),
            capacity_mbps: mbps(offered),
            utilisation: match offered {
                0.0 => 0.0,
                offered => c.departed_bytes as f64 / offered,
            },
            sojourn_ms: meter.sojourns.summary(ms),
            sojourn_cdf: meter.sojourns.cdf(CDF_POINTS, ms),
            backlog_packets: meter.packets(),
            backlog_ms: meter.bytes(8e3 / link.mean_bps() as f64),
            limit_packets: link.mean_limit(),
            packets: c.departures,
            drops,
            marks: c.marks,
            loss_rate: ratio(drops, c.arrivals),
            mark_rate: ratio(c.marks, c.departures),
            drops_by_cause: c.drops,
            series: Some(link.series().clone()),
            events: c.arrivals + c.departures,
            cpu_s,
            packets_per_cpu_s: if cpu_s > 0.0 {
                c.departures as f64 / cpu_s
            } else {
                0.0
            },
            ..Run::default()
        };
        let live = Machine {
            late_ms: late.summary(ms),
            inside: link.inside() as u64,
            ..machine
        };
        Self { run, live }
    }
}
