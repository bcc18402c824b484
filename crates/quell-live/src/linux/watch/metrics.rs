//! The last samples as Prometheus metrics.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::super::dashboard::Look;
use super::super::serve::Told;
use super::super::sys;
use super::message::{Counters, Handle, Key};
use super::meter::Rates;
use super::sampler::Sample;
use crate::exposition::{Exposition, Family, escaped};
use crate::link::View;

/// A queue's last sample.
#[derive(Clone, Debug)]
struct Row {
    device: String,
    kind: String,
    key: Key,
    counters: Counters,
    rates: Rates,
}

/// A metric, and its value where there is one.
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
];

/// Where samples are left for those who ask.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// Those of one round, until it is whole.
    next: Vec<Row>,
    shown: Arc<Mutex<Vec<Row>>>,
}

impl Board {
    /// Adds a sample of this round.
    pub fn take(&mut self, sample: &Sample<'_>) {
        self.next.push(Row {
            device: sample.device.to_owned(),
            kind: sample.queue.kind.to_owned(),
            key: sample.queue.key,
            counters: sample.queue.counters,
            rates: sample.rates,
        });
    }

    /// Shows this round's samples in place of the last one's.
    pub fn turn(&mut self) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *shown, &mut self.next);
        self.next.clear();
    }
}

impl Row {
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

    /// For the dashboard. The kernel counts neither marks nor what the line offers in general.
    fn look(&self, now_s: f64) -> Look {
        let view = View {
            now_s,
            throughput_mbps: self.rates.bps.unwrap_or_default() / 1e6,
            sojourn_ms: self.rates.sojourn_ms,
            backlog_packets: self.counters.backlog_packets as usize,
            backlog_bytes: self.counters.backlog_bytes.into(),
            packets: self.counters.packets,
            bytes: self.counters.bytes,
            drops: self.counters.drops.into(),
            ..View::default()
        };
        let place = Handle(self.key.handle);
        Look::new(format!("{} {place}", self.device), self.kind.clone(), view)
    }
}

impl Told for Board {
    fn title(&self) -> String {
        "the kernel's queues".to_owned()
    }

    fn looks(&self) -> Vec<Look> {
        let now_s = sys::monotonic() as f64 / 1e9;
        let rows = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        rows.iter().map(|row| row.look(now_s)).collect()
    }

    fn json(&self) -> Value {
        json!({})
    }

    fn metrics(&self, out: &mut Exposition) {
        let rows = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for (family, value) in METRICS {
            out.family(*family);
            for row in rows.iter() {
                if let Some(value) = value(row) {
                    out.sample(family.name, &row.labels(), value);
                }
            }
        }
    }
}
