//! Order of events: a tournament tree with one time per source, which is a timer of a flow or a
//! class of wires. Each node has eight children.
//!
//! A key has the time in its upper 47 bits and the source in its lower 17, so that one comparison
//! orders by time and then by source. 47 bits of nanoseconds are 39 hours; 17 bits are enough for
//! two timers of each of 65,535 flows.
//!
//! A heap needs fewer comparisons, but the processor cannot predict how far an entry sinks. Here a
//! change compares the eight keys of one group per level, up to the root.

use quell_qdisc::num;
use quell_qdisc::time::Instant;

/// The latest time that a key can hold; it means "never".
pub const MAX_TIME: Instant = Instant::from_nanos((1 << (64 - SOURCE_BITS)) - 1);
const SOURCE_BITS: u32 = 17;
/// Key of a source without a time.
const UNUSED: u64 = u64::MAX;

/// Keys of the eight children of a node, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Group([u64; 8]);

impl Group {
    const UNUSED: Self = Self([UNUSED; 8]);

    #[inline(always)]
    fn min_key(&self) -> u64 {
        let [a, b, c, d, e, f, g, h] = self.0;
        (a.min(b).min(c.min(d))).min(e.min(f).min(g.min(h)))
    }
}

/// The next times of all sources.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// The least key of all, copied from the root because it is read at each event.
    first: u64,
    /// Nodes of all levels, the highest level first: node i is in group i / 8, and group g holds
    /// the eight children of node g + 6. Group 1 is the highest level; group 0 is unused.
    groups: Vec<Group>,
    /// The node of source 0, which the nodes of the other sources follow.
    leaves: usize,
}

impl Default for Agenda {
    fn default() -> Self {
        Self {
            first: UNUSED,
            groups: vec![Group::UNUSED; 2],
            leaves: 8,
        }
    }
}

impl Agenda {
    /// The earliest time; `MAX_TIME` if there is none.
    #[inline]
    pub fn time(&self) -> Instant {
        Instant::from_nanos(self.first >> SOURCE_BITS)
    }

    /// The source of the earliest time. Call only while there is one.
    #[inline]
    pub fn source(&self) -> u32 {
        (self.first & ((1 << SOURCE_BITS) - 1)) as u32
    }

    /// Sets a source's time in place of the previous one; `MAX_TIME` or later means never.
    #[inline]
    pub fn set(&mut self, time: Instant, source: u32) {
        let key = time.min(MAX_TIME).as_nanos() << SOURCE_BITS | u64::from(source);
        if !self.place(key, source) {
            self.grow(source);
            self.place(key, source);
        }
    }

    /// Removes a source's time.
    #[inline]
    pub fn clear(&mut self, source: u32) {
        self.place(UNUSED, source);
    }

    /// Writes a source's key and updates the levels above it. Returns false if the tree has no node
    /// for the source.
    #[inline]
    fn place(&mut self, mut key: u64, source: u32) -> bool {
        let mut node = self.leaves + source as usize;
        loop {
            let Some(group) = self.groups.get_mut(node / 8) else {
                return false;
            };
            if group.0[node % 8] == key {
                return true; // so the levels above do not change either
            }
            group.0[node % 8] = key;
            key = group.min_key();
            if node < 16 {
                self.first = key;
                return true;
            }
            node = node / 8 + 6;
        }
    }

    /// Adds levels until `source` has a node.
    #[cold]
    fn grow(&mut self, source: u32) {
        let old = self.groups.split_off(self.leaves / 8);
        while self.leaves / 8 + source as usize / 8 >= self.groups.len() {
            self.leaves = 8 * (self.leaves - 6);
            self.groups.resize(self.leaves - 6, Group::UNUSED); // where the next level would begin
        }
        self.groups.fill(Group::UNUSED);
        let keys = old.iter().flat_map(|group| group.0);
        for (source, key) in keys.enumerate() {
            if key != UNUSED {
                self.place(key, num::count(source));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::Rng;

    #[test]
    fn the_earliest_comes_first_and_of_equal_times_the_lower_source() {
        let (mut agenda, mut rng) = (Agenda::default(), Rng::new(1, "agenda"));
        let mut model = vec![MAX_TIME; 1000];
        for round in 0..20_000_usize {
            // Sources appear one after the other, so that levels are added during the test.
            let source = rng.below(1 + round as u64 / 20) as usize;
            if rng.below(3) == 0 && model[source] < MAX_TIME {
                agenda.clear(source as u32);
                model[source] = MAX_TIME;
            } else {
                model[source] = Instant::from_nanos(rng.below(500));
                agenda.set(model[source], source as u32);
            }
            let earliest = *model.iter().min().unwrap();
            assert_eq!(agenda.time(), earliest);
            if earliest < MAX_TIME {
                let first = model.iter().position(|t| *t == earliest).unwrap();
                assert_eq!(agenda.source() as usize, first);
            }
        }
    }
}
