//! The least of many keys, one per flow: a tournament in which each flow's key meets its neighbour's, each winner the next, and so
//! on up to the root.
//!
//! A change of one key repeats the matches of its path, log2 of the flows at most, and ends early where the winner stays the
//! same. Nothing is allocated but where a flow appears that is beyond the leaves; they double then.

use super::flows::FlowId;

/// A key that is never least.
pub const LAST: u64 = u64::MAX;

/// The keys.
#[derive(Clone, Debug, Default)]
pub struct Tournament {
    /// The root at 1, the children of `i` at `2 i` and `2 i + 1`; leaves in the second half, one per flow.
    nodes: Vec<u64>,
}

impl Tournament {
    /// Sets a flow's key.
    #[inline]
    pub fn set(&mut self, flow: FlowId, key: u64) {
        let mut at = self.nodes.len() / 2 + flow as usize;
        if at >= self.nodes.len() {
            at = self.grow(flow);
        }
        let nodes = &mut self.nodes[..];
        nodes[at] = key;
        let mut least = key;
        while at > 1 {
            least = least.min(nodes[at ^ 1]);
            at /= 2;
            if nodes[at] == least {
                return;
            }
            nodes[at] = least;
        }
    }

    /// Makes leaves up to this flow's; its place.
    #[cold]
    fn grow(&mut self, flow: FlowId) -> usize {
        let (before, leaves) = (self.nodes.len() / 2, (flow as usize + 1).next_power_of_two());
        let mut nodes = vec![LAST; 2 * leaves];
        nodes[leaves..leaves + before].copy_from_slice(&self.nodes[before..]);
        for at in (1..leaves).rev() {
            nodes[at] = nodes[2 * at].min(nodes[2 * at + 1]);
        }
        self.nodes = nodes;
        leaves + flow as usize
    }

    /// A flow's key; [`LAST`] before it was set.
    #[inline]
    pub fn of(&self, flow: FlowId) -> u64 {
        let at = self.nodes.len() / 2 + flow as usize;
        self.nodes.get(at).copied().unwrap_or(LAST)
    }

    /// The least key; [`LAST`] without one.
    #[inline]
    pub fn least(&self) -> u64 {
        self.nodes.get(1).copied().unwrap_or(LAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_what_a_look_at_all_keys_finds() {
        let mut rng = crate::Rng::new(1, "tournament");
        let (mut keys, mut all) = (Tournament::default(), Vec::new());
        assert_eq!((keys.least(), keys.of(3)), (LAST, LAST));
        for step in 0..20_000 {
            let flow = rng.below(1 + step / 50) as FlowId;
            let key = match rng.below(8) {
                0 => LAST,
                _ => rng.below(1000),
            };
            if flow as usize >= all.len() {
                all.resize(flow as usize + 1, LAST);
            }
            all[flow as usize] = key;
            keys.set(flow, key);
            assert_eq!(keys.least(), *all.iter().min().unwrap(), "step {step}");
            assert_eq!(keys.of(flow), key);
        }
    }
}
