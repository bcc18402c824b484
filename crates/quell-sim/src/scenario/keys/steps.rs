//! A list of times and values: `[["0s", "6.5mbit"], ["25s", "13mbit"]]`.

use quell_link::Error;
use quell_link::field;
use quell_qdisc::time::{Duration, Instant};

use super::MAX_DURATION;
use crate::scenario::tree::Node;

/// Reader of such a list.
pub(super) struct Steps<V> {
    pub example: &'static str,
    pub value: fn(&str) -> Result<V, Error>,
}

impl<V> Steps<V> {
    /// Reads the list; times must ascend from 0.
    pub fn read(&self, node: &Node) -> Result<Vec<(Instant, V)>, Error> {
        let shape = || {
            Error::new("not a list of times and rates")
                .remedy(format!("write schedule = {}", self.example))
        };
        let items = match node {
            Node::List(items) if !items.is_empty() => items,
            _ => return Err(shape()),
        };
        let mut steps: Vec<(Instant, V)> = Vec::with_capacity(items.len());
        for item in items {
            let (from, value) = match item {
                Node::List(pair) => match &pair[..] {
                    [from, value] => from.text().zip(value.text()).ok_or_else(shape)?,
                    _ => return Err(shape()),
                },
                _ => return Err(shape()),
            };
            let from = Instant::ZERO + field::time(from, Duration::ZERO, MAX_DURATION)?;
            match steps.last() {
                None if from > Instant::ZERO => {
                    return Err(Error::new("the first step is not at 0s")
                        .remedy("begin with [\"0s\", RATE]"));
                }
                Some((last, _)) if from <= *last => {
                    let what = format!("{} comes after {}", written(from), written(*last));
                    return Err(Error::new(what).remedy("write the steps in ascending order"));
                }
                _ => steps.push((from, (self.value)(value)?)),
            }
        }
        Ok(steps)
    }
}

/// A step's time as text.
fn written(from: Instant) -> String {
    (from - Instant::ZERO).to_string()
}

/// Writes the list.
pub(super) fn write<V>(steps: &[(Instant, V)], show: impl Fn(&V) -> Node) -> Node {
    let step =
        |(from, value): &(Instant, V)| Node::List(vec![Node::Text(written(*from)), show(value)]);
    Node::List(steps.iter().map(step).collect())
}
