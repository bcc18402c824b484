//! Top talkers: the flows and hosts with the most bytes of the last second, in bounded memory.
//!
//! Source: Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in
//! Data Streams", ICDT 2005 (Space-Saving). A flow or host with more than 1/`KEPT` of a second's
//! bytes is always found, however many others there are. The count shown for it is a lower bound.

use crate::packet::header::{Host, Tuple};
use quell_qdisc::time::{Duration, Instant, SEC};

/// Counters for flows, and for hosts.
const KEPT: usize = 64;
/// Number of flows, and of hosts, that are shown.
const SHOWN: usize = 8;
const WINDOW: Duration = SEC;

/// Byte counters of the most frequent keys.
#[derive(Clone, Debug)]
struct Top<K> {
    counts: Vec<Count<K>>,
    /// Index of the counter used last. It is tried first, since packets of a flow arrive in trains.
    last: usize,
}

#[derive(Clone, Copy, Debug)]
struct Count<K> {
    key: K,
    bytes: u64,
    /// Part of `bytes` that may belong to earlier keys of this counter.
    uncertain: u64,
}

impl<K> Default for Top<K> {
    fn default() -> Self {
        Self {
            counts: Vec::with_capacity(KEPT),
            last: 0,
        }
    }
}

impl<K: Copy + Eq> Top<K> {
    fn add(&mut self, key: K, bytes: u64) {
        if self.counts.get(self.last).is_none_or(|c| c.key != key) {
            self.last = self.place(key);
        }
        self.counts[self.last].bytes += bytes;
    }

    /// Index of this key's counter: its own, a new one, or else the one with the fewest bytes,
    /// which it takes over.
    fn place(&mut self, key: K) -> usize {
        let (mut least, mut fewest) = (0, u64::MAX);
        for (k, count) in self.counts.iter().enumerate() {
            if count.key == key {
                return k;
            }
            if count.bytes < fewest {
                (least, fewest) = (k, count.bytes);
            }
        }
        if self.counts.len() < KEPT {
            self.counts.push(Count {
                key,
                bytes: 0,
                uncertain: 0,
            });
            return self.counts.len() - 1;
        }
        self.counts[least].key = key;
        self.counts[least].uncertain = fewest;
        least
    }

    /// The largest counts; all counters are cleared.
    fn take(&mut self) -> Largest<K> {
        let mut largest = Largest([None; SHOWN]);
        for count in self.counts.drain(..) {
            largest.add(count.key, count.bytes - count.uncertain);
        }
        largest
    }
}

/// The keys with the most bytes, the largest first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Largest<K>([Option<(K, u64)>; SHOWN]);

impl<K> Default for Largest<K> {
    fn default() -> Self {
        Self([const { None }; SHOWN])
    }
}

impl<K: Copy + Eq> Largest<K> {
    /// The keys with their bytes.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> + '_ {
        self.0.iter().flatten().copied()
    }

    /// Inserts a key, if it is among the largest.
    fn add(&mut self, key: K, bytes: u64) {
        let behind = |slot: &Option<(K, u64)>| slot.is_none_or(|(_, less)| less < bytes);
        if let Some(at) = self.0.iter().position(behind) {
            self.0[at..].rotate_right(1);
            self.0[at] = Some((key, bytes));
        }
    }

    /// Combines the keys of two links; the bytes of a key at both are added.
    fn and(self, other: Self) -> Self {
        let at = |all: &Self, key| all.iter().find(|(k, _)| *k == key).map_or(0, |(_, n)| n);
        let mut both = Self::default();
        for (key, bytes) in self.iter() {
            both.add(key, bytes + at(&other, key));
        }
        for (key, bytes) in other.iter().filter(|(key, _)| at(&self, *key) == 0) {
            both.add(key, bytes);
        }
        both
    }
}

/// The largest flows and hosts of the last full second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TopTalkers {
    /// Flows, with their arriving IP bytes per second.
    pub flows: Largest<Tuple>,
    /// Hosts, with their IP bytes per second; a packet counts for its source and its destination.
    pub hosts: Largest<Host>,
}

impl TopTalkers {
    /// Combines those of two links that share a line.
    pub fn and(self, other: Self) -> Self {
        Self {
            flows: self.flows.and(other.flows),
            hosts: self.hosts.and(other.hosts),
        }
    }
}

/// Counts the bytes of flows and hosts.
#[derive(Clone, Debug, Default)]
pub struct Talkers {
    flows: Top<Tuple>,
    hosts: Top<Host>,
    since: Instant,
    top: TopTalkers,
}

impl Talkers {
    /// Counts one or more packets of a flow, `bytes` in total.
    pub fn heard(&mut self, now: Instant, flow: Tuple, bytes: u64) {
        self.turn(now);
        self.flows.add(flow, bytes);
        for host in flow.hosts().into_iter().flatten() {
            self.hosts.add(host, bytes);
        }
    }

    /// The largest of the last full second.
    pub fn top(&mut self, now: Instant) -> TopTalkers {
        self.turn(now);
        self.top
    }

    /// Ends the second, if it is over.
    fn turn(&mut self, now: Instant) {
        let seconds = now.saturating_since(self.since) / WINDOW;
        if seconds == 0 {
            return;
        }
        self.since += seconds * WINDOW;
        let taken = TopTalkers {
            flows: self.flows.take(),
            hosts: self.hosts.take(),
        };
        // The counts belong to the last full second only if no whole second has passed since.
        self.top = if seconds == 1 {
            taken
        } else {
            TopTalkers::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow(number: u32) -> Tuple {
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[3] = 28;
        packet[9] = 17;
        packet[12..16].copy_from_slice(&number.to_be_bytes());
        packet[16..20].copy_from_slice(&[10, 0, 0, 1]);
        packet[20..24].copy_from_slice(&[0, 53, 1, 187]);
        crate::packet::header::classify(&packet, (1, 2)).tuple
    }

    #[test]
    fn a_heavy_flow_is_found_among_a_million() {
        let mut talkers = Talkers::default();
        for k in 0..1_000_000_u32 {
            talkers.heard(Instant::ZERO, flow(k + 10), 40);
            if k % 20 == 0 {
                talkers.heard(Instant::ZERO, flow(1), 40);
            }
        }
        assert!(talkers.flows.counts.len() <= KEPT && talkers.hosts.counts.len() <= KEPT);
        assert!(talkers.flows.counts.capacity() == KEPT);
        let top = talkers.top(Instant::from_secs(1));
        let (first, bytes) = top.flows.iter().next().unwrap();
        assert_eq!(first, flow(1));
        // It has sent 2 MB; the shown count is the certain part.
        assert!((1_900_000..=2_000_000).contains(&bytes), "{bytes}");
        // Every packet has this host.
        let names: Vec<_> = top.hosts.iter().map(|(h, _)| h.to_string()).collect();
        assert_eq!(names[0], "10.0.0.1");
        assert_eq!(first.to_string(), "udp 0.0.0.1:53 → 10.0.0.1:443");
    }

    #[test]
    fn a_second_without_packets_has_no_flows() {
        let mut talkers = Talkers::default();
        let half = Instant::from_millis(500);
        talkers.heard(half, flow(1), 1000);
        assert_eq!(talkers.top(half), TopTalkers::default(), "not yet full");
        let shown: Vec<_> = talkers.top(Instant::from_secs(1)).flows.iter().collect();
        assert_eq!(shown, [(flow(1), 1000)]);
        assert_eq!(talkers.top(Instant::from_secs(2)), TopTalkers::default());
        talkers.heard(Instant::from_secs(2), flow(2), 1000);
        assert_eq!(
            talkers.top(Instant::from_secs(9)),
            TopTalkers::default(),
            "of a second long ago"
        );
    }

    #[test]
    fn hosts_of_two_loops_are_added() {
        let (mut one, mut other) = (Largest::default(), Largest::default());
        (0..8).for_each(|k| one.add(k, 100 + k));
        (4..12).for_each(|k| other.add(k, 10 * k));
        let both: Vec<_> = one.and(other).iter().collect();
        assert_eq!(both[0], (7, 177));
        assert_eq!(both.len(), SHOWN);
        assert!(both.is_sorted_by(|a, b| a.1 >= b.1));
    }

    proptest! {
        /// The bounds of Space-Saving: no key's count exceeds what it sent, and each key that sent
        /// more than 1/64 has a counter.
        #[test]
        fn no_count_is_too_high_and_no_heavy_key_is_missed(
            sent in prop::collection::vec((0_u32..200, 1_u64..1500), 1..2000)
        ) {
            let (mut top, mut exact) = (Top::default(), std::collections::HashMap::new());
            for (key, bytes) in &sent {
                top.add(*key, *bytes);
                *exact.entry(*key).or_insert(0) += bytes;
            }
            let all: u64 = exact.values().sum();
            prop_assert_eq!(top.counts.iter().map(|c| c.bytes).sum::<u64>(), all);
            for count in &top.counts {
                prop_assert!(count.bytes - count.uncertain <= exact[&count.key]);
                prop_assert!(count.bytes >= exact[&count.key]);
            }
            for (key, bytes) in exact.iter().filter(|(_, bytes)| **bytes > all / KEPT as u64) {
                prop_assert!(top.counts.iter().any(|c| c.key == *key), "{} {}", key, bytes);
            }
        }
    }
}
