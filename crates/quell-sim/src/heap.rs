//! A 4-ary heap of packed keys: time in the upper 47 bits, source in the lower 17, so that one compare orders by time and then
//! by source. 47 bits of nanoseconds are 39 hours; 17 bits are two timers for each of 65,535 flows.
//!
//! The root is at index 3, so that the four children of a node lie in one aligned group, and what is not used is the largest
//! key, so that a group is always whole.

use quell_qdisc::Nanos;

/// The longest time a key can hold, which stands for "never".
pub const MAX_TIME: Nanos = (1 << (64 - SOURCE_BITS)) - 1;
const SOURCE_BITS: u32 = 17;
const ROOT: usize = 3;
const UNUSED: u64 = u64::MAX;

/// The heap.
#[derive(Clone, Debug)]
pub struct Heap {
    keys: Vec<u64>,
    len: usize,
}

impl Default for Heap {
    fn default() -> Self {
        Self {
            keys: vec![UNUSED; ROOT + 1],
            len: 0,
        }
    }
}

#[inline]
fn pack(time: Nanos, source: u32) -> u64 {
    time << SOURCE_BITS | u64::from(source)
}

impl Heap {
    /// The earliest time; `MAX_TIME` if empty.
    #[inline]
    pub fn time(&self) -> Nanos {
        self.keys[ROOT] >> SOURCE_BITS
    }

    /// The source of the earliest entry. Call only while there is one.
    #[inline]
    pub fn source(&self) -> u32 {
        (self.keys[ROOT] & ((1 << SOURCE_BITS) - 1)) as u32
    }

    /// Adds an entry; one at or after `MAX_TIME` never comes.
    #[inline]
    pub fn push(&mut self, time: Nanos, source: u32) {
        if time >= MAX_TIME {
            return;
        }
        let key = pack(time, source);
        let mut i = ROOT + self.len;
        self.len += 1;
        if i >= self.keys.len() {
            self.keys.extend([UNUSED; 4]);
        }
        while i > ROOT {
            let parent = i / 4 + 2;
            if self.keys[parent] <= key {
                break;
            }
            self.keys[i] = self.keys[parent];
            i = parent;
        }
        self.keys[i] = key;
    }

    /// Takes the earliest entry away.
    #[inline]
    pub fn pop(&mut self) {
        if self.len == 0 {
            return;
        }
        self.len -= 1;
        let last = std::mem::replace(&mut self.keys[ROOT + self.len], UNUSED);
        if self.len > 0 {
            self.sift_down(last);
        }
    }

    /// Replaces the earliest entry: cheaper than `pop` and `push`.
    #[inline]
    pub fn replace_top(&mut self, time: Nanos, source: u32) {
        self.sift_down(pack(time, source));
    }

    #[inline]
    fn sift_down(&mut self, key: u64) {
        let mut i = ROOT;
        loop {
            let first = 4 * (i - 2);
            let Some(&[a, b, c, d]) = self.keys.get(first..first + 4) else {
                break;
            };
            let left = if b < a { (b, 1) } else { (a, 0) };
            let right = if d < c { (d, 3) } else { (c, 2) };
            let least = if right.0 < left.0 { right } else { left };
            if least.0 >= key {
                break;
            }
            self.keys[i] = least.0;
            i = first + least.1;
        }
        self.keys[i] = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::Rng;

    #[test]
    fn entries_come_out_by_time_and_then_by_source() {
        let (mut heap, mut model, mut rng) = (Heap::default(), Vec::new(), Rng::new(1, "heap"));
        for round in 0..20_000 {
            if round % 3 < 2 || model.is_empty() {
                let (t, s) = (rng.below(500), rng.below(50) as u32);
                heap.push(t, s);
                model.push((t, s));
            } else {
                model.sort_unstable_by(|a, b| b.cmp(a));
                assert_eq!((heap.time(), heap.source()), *model.last().unwrap());
                if round % 2 == 0 {
                    heap.pop();
                    model.pop();
                } else {
                    let t = rng.below(600);
                    heap.replace_top(t, 7);
                    *model.last_mut().unwrap() = (t, 7);
                }
            }
        }
    }
}
