//! What the server publishes: a command's queues as JSON, as metrics and for the dashboard.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Serialize;
use serde_json::Value;

use crate::exposition::Exposition;
use crate::plane::link::View;
use crate::plane::talkers::Largest;

/// A source of state for clients.
pub trait StatusSource: Send {
    /// The state as JSON.
    fn json(&self) -> Value;
    /// Writes the state as metrics.
    fn metrics(&self, out: &mut Exposition);
    /// Title of the dashboard.
    fn title(&self) -> String;
    /// All queues, for the dashboard.
    fn queues(&self) -> Vec<QueueStatus>;
}

/// A queue's row on the dashboard.
#[derive(Clone, Debug, Serialize)]
pub struct QueueStatus {
    /// Name: a direction, or an interface and a handle.
    pub name: String,
    /// Queue words, or the kind.
    pub queue: String,
    /// State of the queue.
    #[serde(flatten)]
    pub view: View,
    /// Packets by sojourn time, from `view.sojourns`.
    pub sojourns: Vec<u64>,
    /// The flows that send most: name and Mbit/s.
    pub flows: Vec<(String, f64)>,
    /// The hosts that send or receive most: name and Mbit/s.
    pub hosts: Vec<(String, f64)>,
    /// Present and past faults.
    pub faults: Vec<String>,
    /// Gauges of a queue that `quell attach` has put into the kernel, by title.
    pub gauges: BTreeMap<&'static str, f64>,
}

/// Names and rates, Mbit/s.
fn rates<K: Copy + Eq + Display>(largest: &Largest<K>) -> Vec<(String, f64)> {
    let named = |(key, bytes): (K, u64)| (key.to_string(), bytes as f64 * 8.0 / 1e6);
    largest.iter().map(named).collect()
}

impl QueueStatus {
    /// A row for this queue.
    pub fn new(name: impl Into<String>, queue: impl Into<String>, view: View) -> Self {
        Self {
            name: name.into(),
            queue: queue.into(),
            sojourns: view.sojourns.counts.to_vec(),
            flows: rates(&view.top_talkers.flows),
            hosts: rates(&view.top_talkers.hosts),
            faults: Vec::new(),
            gauges: BTreeMap::new(),
            view,
        }
    }
}
