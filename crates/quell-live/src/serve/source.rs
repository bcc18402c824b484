//! What the server publishes: the queues of a command, as JSON, as metrics and for the dashboard.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Serialize;
use serde_json::Value;

use crate::exposition::Exposition;
use crate::plane::link::View;
use crate::plane::talkers::Largest;

/// A source of status for clients.
pub trait StatusSource: Send {
    /// As JSON.
    fn json(&self) -> Value;
    /// As metrics.
    fn metrics(&self, out: &mut Exposition);
    /// Of whom: the dashboard's title.
    fn title(&self) -> String;
    /// Every queue for the dashboard.
    fn queues(&self) -> Vec<QueueStatus>;
}

/// A queue as the page shows it.
#[derive(Clone, Debug, Serialize)]
pub struct QueueStatus {
    /// Where it is: a direction, or an interface and a handle.
    pub name: String,
    /// Its queue words, or its kind.
    pub queue: String,
    /// What it does.
    #[serde(flatten)]
    pub view: View,
    /// The number of packets that waited up to each bound, as in the view.
    pub sojourns: Vec<u64>,
    /// The flows that send most: names and Mbit/s.
    pub flows: Vec<(String, f64)>,
    /// The hosts that send or receive most.
    pub hosts: Vec<(String, f64)>,
    /// What is or was wrong.
    pub faults: Vec<String>,
    /// What a law in the kernel reads and sets: titles and numbers.
    pub gauges: BTreeMap<&'static str, f64>,
}

/// Names and Mbit/s.
fn rates<K: Copy + Eq + Display>(largest: &Largest<K>) -> Vec<(String, f64)> {
    let named = |(key, bytes): (K, u64)| (key.to_string(), bytes as f64 * 8.0 / 1e6);
    largest.iter().map(named).collect()
}

impl QueueStatus {
    /// A look at this queue.
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
