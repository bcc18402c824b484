//! The latest samples as Prometheus metrics.

use std::sync::{Arc, Mutex, PoisonError};

use quell_qdisc::num;
use serde_json::{Value, json};

use super::meter::Rates;
use super::sampler::Sample;
use crate::bpf::page::Gauges;
use crate::exposition::{Exposition, Family, escaped};
use crate::plane::link::View;
use crate::rtnetlink::message::{Counters, Handle, Key};
use crate::serve::source::QueueStatus;
use crate::serve::source::StatusSource;
use crate::system::sys;

/// A queue's last sample.
#[derive(Clone, Debug)]
struct Row {
    device: String,
    kind: String,
    key: Key,
    counters: Counters,
    rates: Rates,
    gauges: Option<Gauges>,
}

/// A metric, and the function that reads its value, if a queue has one.
type Metric = (Family, fn(&Row) -> Option<f64>);

const fn counter(name: &'static str, about: &'static str) -> Family {
    let kind = "counter";
    Family { kind, name, about }
}

const fn gauge(name: &'static str, about: &'static str) -> Family {
    let kind = "gauge";
    Family { kind, name, about }
}

#[rustfmt::skip]
const METRICS: &[Metric] = &[
    (counter("queue_sent_bytes_total", "Bytes that left."), |r| Some(r.counters.bytes as f64)),
    (counter("queue_sent_packets_total", "Packets that left."), |r| Some(r.counters.packets as f64)),
    (counter("queue_dropped_packets_total", "Packets dropped."), |r| Some(r.counters.drops.into())),
    (counter("queue_overlimits_total", "Times that a limit was met."), |r| Some(r.counters.overlimits.into())),
    (counter("queue_requeued_packets_total", "Packets that the device gave back."), |r| Some(r.counters.requeues.into())),
    (gauge("queue_backlog_bytes", "Bytes that wait."), |r| Some(r.counters.backlog_bytes.into())),
    (gauge("queue_backlog_packets", "Packets that wait."), |r| Some(r.counters.backlog_packets.into())),
    (gauge("queue_rate_bps", "Bits per second that left since the sample before."), |r| r.rates.bps),
    (gauge("queue_sojourn_seconds", "The backlog divided by the rate seen while there was backlog."), |r| r.rates.sojourn_ms.map(|ms| ms / 1e3)),
    // Attached queues only.
    (counter("queue_marked_packets_total", "Packets marked (attached queues)."), |r| r.gauge("marks")),
    (counter("queue_overflowed_packets_total", "Packets dropped because of a limit (attached queues)."), |r| r.gauge("overflows")),
    (counter("queue_decisions_total", "Turns of the policy (attached hush, rlaqm)."), |r| r.gauge("decisions")),
    (gauge("queue_sojourn_p95_seconds", "Running 95th percentile of the sojourn (attached queues)."), |r| r.seconds("sojourn_p95_ns")),
    (gauge("queue_shaped_bps", "Rate that it is shaped to (attached queues)."), |r| r.gauge("knob_rate_bytes").map(|rate| rate * 8.0)),
    (gauge("queue_round_trip_seconds", "Usual base round trip of the flows (attached hush)."), |r| r.seconds("round_trip_ns")),
    (gauge("queue_target_seconds", "Target of the law (attached hush)."), |r| r.seconds("target_ns")),
    (gauge("queue_wait_seconds", "Time above the target before the first action (attached hush)."), |r| r.seconds("wait_ns")),
    (gauge("queue_hold_seconds", "Time between two actions (attached hush)."), |r| r.seconds("hold_ns")),
    (gauge("queue_cap_seconds", "Time above which packets are dropped (attached hush)."), |r| r.seconds("cap_ns")),
    (gauge("queue_idle_ratio", "Share of the time with nothing to send (attached hush)."), |r| r.gauge("idle")),
    (gauge("queue_flows", "Active flows (attached hush, fq_codel)."), |r| r.gauge("flows")),
    (gauge("queue_trusted", "1 while the policy decides, 0 while its stand-in does (attached hush)."), |r| r.gauge("trusted")),
    (gauge("queue_drop_probability", "Probability of a drop (attached rlaqm)."), |r| r.gauge("probability")),
    (gauge("queue_gauges_age_seconds", "Since the queue wrote its gauges (attached queues)."), |r| r.seconds("age_ns")),
];

/// Gauges of attached queues that the dashboard shows: name, title and factor.
const LAW: [(&str, &str, f64); 8] = [
    ("target_ns", "target, ms", 1e-6),
    ("wait_ns", "wait, ms", 1e-6),
    ("hold_ns", "hold, ms", 1e-6),
    ("cap_ns", "cap, ms", 1e-6),
    ("round_trip_ns", "R, ms", 1e-6),
    ("idle", "idle, %", 100.0),
    ("flows", "active flows", 1.0),
    ("sojourn_p95_ns", "running p95, ms", 1e-6),
];

/// The latest samples, for the server's clients.
#[derive(Clone, Debug, Default)]
pub struct LatestSamples {
    /// Samples of the present round.
    next: Vec<Row>,
    /// Samples of the last round, which clients get.
    shown: Arc<Mutex<Vec<Row>>>,
}

impl LatestSamples {
    /// Adds a sample of this round.
    pub fn take(&mut self, sample: &Sample<'_>) {
        self.next.push(Row {
            device: sample.device.to_owned(),
            kind: sample.queue.kind.to_owned(),
            key: sample.queue.key,
            counters: sample.queue.counters,
            rates: sample.rates,
            gauges: sample.gauges,
        });
    }

    /// Publishes this round's samples in place of the last round's.
    pub fn turn(&mut self) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *shown, &mut self.next);
        self.next.clear();
    }
}

impl Row {
    fn gauge(&self, name: &str) -> Option<f64> {
        self.gauges.as_ref()?.get(name)
    }

    fn seconds(&self, name: &str) -> Option<f64> {
        self.gauge(name).map(|ns| ns / 1e9)
    }

    fn labels(&self) -> String {
        let kind = if self.key.class { "class" } else { "qdisc" };
        format!(
            "dev=\"{}\",type=\"{kind}\",handle=\"{}\",parent=\"{}\",kind=\"{}\"",
            escaped(&self.device),
            Handle(self.key.handle),
            Handle(self.key.parent),
            escaped(&self.kind)
        )
    }

    /// The row for the dashboard. Only attached queues have marks and the line's rate.
    fn status(&self, now_s: f64) -> QueueStatus {
        let view = View {
            now_s,
            throughput_mbps: self.rates.bps.unwrap_or_default() / 1e6,
            sojourn_ms: self.rates.sojourn_ms,
            backlog_packets: self.counters.backlog_packets as usize,
            backlog_bytes: self.counters.backlog_bytes.into(),
            packets: self.counters.packets,
            bytes: self.counters.bytes,
            drops: self.counters.drops.into(),
            marks: num::whole_u64(self.gauge("marks").unwrap_or_default()),
            capacity_mbps: self.gauge("knob_rate_bytes").unwrap_or_default() * 8.0 / 1e6,
            limit_packets: num::whole_u32(self.gauge("knob_limit_packets").unwrap_or_default()),
            probability: self.gauge("probability").unwrap_or_default(),
            trusted: self.gauge("trusted").map(|trusted| trusted > 0.0),
            ..View::default()
        };
        let place = Handle(self.key.handle);
        let mut status =
            QueueStatus::new(format!("{} {place}", self.device), self.kind.clone(), view);
        status.gauges = LAW
            .iter()
            .filter_map(|(name, title, scale)| Some((*title, self.gauge(name)? * scale)))
            .collect();
        status
    }
}

impl StatusSource for LatestSamples {
    fn title(&self) -> String {
        "the kernel's queues".to_owned()
    }

    fn queues(&self) -> Vec<QueueStatus> {
        let now_s = sys::monotonic().as_secs_f64();
        let rows = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        rows.iter().map(|row| row.status(now_s)).collect()
    }

    fn json(&self) -> Value {
        json!({})
    }

    fn metrics(&self, out: &mut Exposition) {
        let rows = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for (family, value) in METRICS {
            let each = rows.iter().filter_map(|row| Some((row, value(row)?)));
            let mut each = each.peekable();
            if each.peek().is_some() {
                out.family(*family);
            }
            for (row, value) in each {
                out.sample(family.name, &row.labels(), value);
            }
        }
    }
}
