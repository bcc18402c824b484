//! The least of many keys, one per flow: a tree in which each inner node holds the least key of its
//! four children.
//!
//! A change of one key updates the nodes on its path to the root (at most half of log2 of the
//! number of leaves, rounded up) and stops at the first node that stays the same. Memory is
//! allocated only if a flow appears that is beyond the leaves.

use super::flows::FlowId;

/// The low bits of a key are the flow's number, so that of equal values that of the lowest flow is
/// the least.
const FLOW_BITS: u32 = 16;
/// The largest value.
pub const MAX_VALUE: u64 = (1 << (u64::BITS - FLOW_BITS)) - 2;
/// The key of a flow without a value.
const LAST: u64 = u64::MAX;

/// The tree of keys.
#[derive(Clone, Debug, Default)]
pub struct Tournament {
    /// The root is at 0, and the four children of `i` are at `4 i + 1` and after. The leaves, one
    /// per flow, begin at `inner`.
    nodes: Vec<u64>,
    /// Number of inner nodes.
    inner: usize,
    /// Number of leaves.
    leaves: usize,
}

impl Tournament {
    /// Sets a flow's value, at most [`MAX_VALUE`]. The flow's number must be below 2^16.
    #[inline(always)]
    pub fn set(&mut self, flow: FlowId, value: u64) {
        self.set_key(flow, value << FLOW_BITS | u64::from(flow));
    }

    /// Removes a flow's value.
    #[inline]
    pub fn remove(&mut self, flow: FlowId) {
        self.set_key(flow, LAST);
    }

    #[inline(always)]
    fn set_key(&mut self, flow: FlowId, key: u64) {
        if flow as usize >= self.leaves {
            self.grow(flow);
        }
        let mut at = self.inner + flow as usize;
        self.nodes[at] = key;
        while at > 0 {
            at = (at - 1) / 4;
            // The four children always exist; this checks the bounds once for all.
            let Some(children) = self.nodes[at..].get(3 * at + 1..3 * at + 5) else {
                return;
            };
            let least = children[0]
                .min(children[1])
                .min(children[2])
                .min(children[3]);
            if self.nodes[at] == least {
                return;
            }
            self.nodes[at] = least;
        }
    }

    /// Extends the leaves to include this flow's.
    #[cold]
    fn grow(&mut self, flow: FlowId) {
        let keys = self.nodes[self.inner..][..self.leaves].to_vec();
        self.leaves = (flow as usize + 1).next_power_of_two();
        self.inner = (self.leaves - 1).div_ceil(3);
        self.nodes = vec![LAST; 4 * self.inner + 1];
        self.nodes[self.inner..][..keys.len()].copy_from_slice(&keys);
        for at in (0..self.inner).rev() {
            let children = &self.nodes[4 * at + 1..4 * at + 5];
            self.nodes[at] = children.iter().copied().min().unwrap_or(LAST);
        }
    }

    /// The least value and its flow.
    #[inline(always)]
    pub fn least(&self) -> Option<(u64, FlowId)> {
        let key = *self.nodes.first()?;
        let flow = key & ((1 << FLOW_BITS) - 1);
        (key != LAST).then_some((key >> FLOW_BITS, flow as FlowId))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_value_equals_that_of_a_full_scan() {
        let mut rng = crate::Rng::new(1, "tournament");
        let (mut keys, mut all) = (Tournament::default(), Vec::new());
        assert_eq!(keys.least(), None);
        for step in 0..20_000 {
            let flow = rng.below(1 + step / 50) as FlowId;
            if flow as usize >= all.len() {
                all.resize(flow as usize + 1, None);
            }
            let value = match rng.below(8) {
                0 => None,
                _ => Some(rng.below(1000)),
            };
            all[flow as usize] = value.map(|value| (value, flow));
            match value {
                None => keys.remove(flow),
                Some(value) => keys.set(flow, value),
            }
            assert_eq!(
                keys.least(),
                all.iter().copied().flatten().min(),
                "step {step}"
            );
        }
    }
}
