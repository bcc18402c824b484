//! The next event: one time per source, and the earliest of all, found by a tournament of groups of four.
//!
//! A key packs time in the upper 47 bits and source in the lower 17, so that one compare orders by time and then by source.
//! 47 bits of nanoseconds are 39 hours; 17 bits are two timers for each of 65,535 flows.
//!
//! A heap needs fewer compares, but the processor cannot predict how far an entry sinks. Here every change replays the
//! same few matches up to the root.

use quell_qdisc::Nanos;

/// The longest time a key can hold, which stands for "never".
pub const MAX_TIME: Nanos = (1 << (64 - SOURCE_BITS)) - 1;
const SOURCE_BITS: u32 = 17;
const UNUSED: u64 = u64::MAX;

/// The times of all sources.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// Level by level with the root at index 3, so that the four children of node i are the aligned group from 4 (i - 2) on.
    keys: Vec<u64>,
    /// Where the sources begin.
    leaves: usize,
}

const ROOT: usize = 3;

impl Default for Agenda {
    fn default() -> Self {
        Self {
            keys: vec![UNUSED; 8],
            leaves: 4,
        }
    }
}

impl Agenda {
    /// The earliest time; `MAX_TIME` if there is none.
    #[inline]
    pub fn time(&self) -> Nanos {
        self.keys[ROOT] >> SOURCE_BITS
    }

    /// The source of the earliest time. Call only while there is one.
    #[inline]
    pub fn source(&self) -> u32 {
        (self.keys[ROOT] & ((1 << SOURCE_BITS) - 1)) as u32
    }

    /// Notes a source's time in place of the one it had; at or after `MAX_TIME` it never comes.
    #[inline]
    pub fn set(&mut self, time: Nanos, source: u32) {
        let key = time.min(MAX_TIME) << SOURCE_BITS | u64::from(source);
        if self.leaves + source as usize >= self.keys.len() {
            self.grow(source);
        }
        self.place(key, source);
    }

    /// A source waits for nothing any more.
    #[inline]
    pub fn clear(&mut self, source: u32) {
        self.place(UNUSED, source);
    }

    #[inline]
    fn place(&mut self, key: u64, source: u32) {
        let mut i = self.leaves + source as usize;
        self.keys[i] = key;
        while i > ROOT {
            let Some(&[a, b, c, d]) = self.keys[i & !3..].first_chunk() else {
                return; // groups are whole
            };
            i = i / 4 + 2;
            self.keys[i] = a.min(b).min(c.min(d));
        }
    }

    /// Adds levels until `source` has a place.
    #[cold]
    fn grow(&mut self, source: u32) {
        let old = self.keys.split_off(self.leaves);
        while self.leaves + source as usize >= self.keys.len() {
            self.leaves = 4 * (self.leaves - 2);
            self.keys.resize(4 * (self.leaves - 2), UNUSED); // where the next level would begin
        }
        self.keys.fill(UNUSED);
        for (source, key) in old.into_iter().enumerate() {
            if key != UNUSED {
                self.place(key, source as u32);
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
            // Sources appear one after the other, so that levels are added under way.
            let source = rng.below(1 + round as u64 / 20) as usize;
            if rng.below(3) == 0 && model[source] < MAX_TIME {
                agenda.clear(source as u32);
                model[source] = MAX_TIME;
            } else {
                model[source] = rng.below(500);
                agenda.set(model[source], source as u32);
            }
            let least = *model.iter().min().unwrap();
            assert_eq!(agenda.time(), least);
            if least < MAX_TIME {
                let first = model.iter().position(|t| *t == least).unwrap();
                assert_eq!(agenda.source() as usize, first);
            }
        }
    }
}
