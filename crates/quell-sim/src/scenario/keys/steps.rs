//! A list of times and values: `[["0s", "6.5mbit"], ["25s", "13mbit"]]`.

use quell_link::Error;
use quell_link::field;
use quell_link::units::format_time;
use quell_qdisc::Nanos;

use super::LONGEST;
use crate::scenario::tree::Node;

/// Reader of such a list.
pub(super) struct Steps<V> {
    pub example: &'static str,
    pub value: fn(&str) -> Result<V, Error>,
}

impl<V> Steps<V> {
    /// Reads the list; times must ascend from 0.
    pub fn read(&self, node: &Node) -> Result<Vec<(Nanos, V)>, Error> {
        let shape = || {
            Error::new("not a list of times and rates")
                .remedy(format!("write schedule = {}", self.example))
        };
        let items = match node {
            Node::List(items) if !items.is_empty() => items,
            _ => return Err(shape()),
        };
        let mut steps: Vec<(Nanos, V)> = Vec::with_capacity(items.len());
        for item in items {
            let (from, value) = match item {
                Node::List(pair) => match &pair[..] {
                    [from, value] => from.text().zip(value.text()).ok_or_else(shape)?,
                    _ => return Err(shape()),
                },
                _ => return Err(shape()),
            };
            let from = field::time(from, 0, LONGEST)?;
            match steps.last() {
                None if from > 0 => {
                    return Err(Error::new("the first step is not at 0s")
                        .remedy("begin with [\"0s\", RATE]"));
                }
                Some((last, _)) if from <= *last => {
                    let what = format!("{} comes after {}", format_time(from), format_time(*last));
                    return Err(Error::new(what).remedy("write the steps in ascending order"));
                }
                _ => steps.push((from, (self.value)(value)?)),
            }
        }
        Ok(steps)
    }
}

/// Writes the list.
pub(super) fn write<V>(steps: &[(Nanos, V)], show: impl Fn(&V) -> Node) -> Node {
    let step =
        |(from, value): &(Nanos, V)| Node::List(vec![Node::Text(format_time(*from)), show(value)]);
    Node::List(steps.iter().map(step).collect())
}
