//! The last samples as Prometheus metrics.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::super::dashboard::Look;
use super::super::serve::{Told, escaped};
use super::super::sys;
use super::message::{Counters, Handle, Key};
use super::meter::Rates;
use super::sampler::Sample;
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

/// A metric: its name, kind, what it is, and its value where there is one.
type Metric = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Row) -> Option<f64>,
);

#[rustfmt::skip]
const METRICS: &[Metric] = &[
    ("sent_bytes_total", "counter", "Bytes that left.", |r| Some(r.counters.bytes as f64)),
    ("sent_packets_total", "counter", "Packets that left.", |r| Some(r.counters.packets as f64)),
    ("dropped_packets_total", "counter", "Packets dropped.", |r| Some(r.counters.drops.into())),
    ("overlimits_total", "counter", "Times that a limit was met.", |r| Some(r.counters.overlimits.into())),
    ("requeued_packets_total", "counter", "Packets that the device gave back.", |r| Some(r.counters.requeues.into())),
    ("backlog_bytes", "gauge", "Bytes that wait.", |r| Some(r.counters.backlog_bytes.into())),
    ("backlog_packets", "gauge", "Packets that wait.", |r| Some(r.counters.backlog_packets.into())),
    ("rate_bps", "gauge", "Bits per second that left since the sample before.", |r| r.rates.bps),
    ("sojourn_seconds", "gauge", "The backlog divided by the rate seen while there was backlog.", |r| r.rates.sojourn_ms.map(|ms| ms / 1e3)),
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

    fn metrics(&self) -> String {
        let rows = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for (name, kind, about, value) in METRICS {
            let _ = write!(
                text,
                "# HELP quell_queue_{name} {about}\n# TYPE quell_queue_{name} {kind}\n"
            );
            for row in rows.iter() {
                let Some(value) = value(row) else { continue };
                let _ = writeln!(
                    text,
                    "quell_queue_{name}{{dev=\"{}\",type=\"{}\",handle=\"{}\",parent=\"{}\",kind=\"{}\"}} {value}",
                    escaped(&row.device),
                    if row.key.class { "class" } else { "qdisc" },
                    Handle(row.key.handle),
                    Handle(row.key.parent),
                    escaped(&row.kind)
                );
            }
        }
        text
    }
}
