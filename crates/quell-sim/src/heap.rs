//! A 4-ary heap of packed keys: time in the upper 48 bits, source in the lower 16, so that one compare orders by time and then
//! by source. 48 bits of nanoseconds are 78 hours; 16 bits are 65,535 sources.

use quell_qdisc::{NEVER, Nanos};

/// The longest time a key can hold.
pub const MAX_TIME: Nanos = (1 << 48) - 1;

/// The heap.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    keys: Vec<u64>,
}

#[inline]
fn pack(time: Nanos, source: u16) -> u64 {
    debug_assert!(time <= MAX_TIME);
    time << 16 | u64::from(source)
}

impl Heap {
    /// The earliest time; `NEVER` if empty.
    #[inline]
    pub fn time(&self) -> Nanos {
        self.keys.first().map_or(NEVER, |k| k >> 16)
    }

    /// The earliest entry.
    #[inline]
    pub fn top(&self) -> Option<(Nanos, u16)> {
        self.keys.first().map(|&k| (k >> 16, k as u16))
    }

    /// Adds an entry.
    #[inline]
    pub fn push(&mut self, time: Nanos, source: u16) {
        let key = pack(time.min(MAX_TIME), source);
        let mut i = self.keys.len();
        self.keys.push(key);
        while i > 0 {
            let parent = (i - 1) / 4;
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
        if let Some(last) = self.keys.pop()
            && !self.keys.is_empty()
        {
            self.sift_down(last);
        }
    }

    /// Replaces the earliest entry: cheaper than `pop` and `push`.
    #[inline]
    pub fn replace_top(&mut self, time: Nanos, source: u16) {
        self.sift_down(pack(time, source));
    }

    #[inline]
    fn sift_down(&mut self, key: u64) {
        let keys = &mut self.keys[..];
        let mut i = 0;
        loop {
            let first = 4 * i + 1;
            if first >= keys.len() {
                break;
            }
            let end = (first + 4).min(keys.len());
            let mut least = first;
            for k in first + 1..end {
                if keys[k] < keys[least] {
                    least = k;
                }
            }
            if keys[least] >= key {
                break;
            }
            keys[i] = keys[least];
            i = least;
        }
        keys[i] = key;
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
                let (t, s) = (rng.below(500), rng.below(50) as u16);
                heap.push(t, s);
                model.push((t, s));
            } else {
                model.sort_unstable_by(|a, b| b.cmp(a));
                assert_eq!(heap.top(), model.last().copied());
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
