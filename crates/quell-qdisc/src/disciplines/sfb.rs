//! SFB: BLUE in bins that flows share at random, which finds unresponsive flows without state per
//! flow.
//!
//! Sources: Feng, Kandlur, Saha and Shin, "Stochastic Fair Blue" (INFOCOM 2001); Linux 7.x
//! `net/sched/sch_sfb.c`, tc-sfb(8). As in Linux, the second set of bins learns only from arrivals
//! of flows whose probability is 1, and keeps its contents when the sets change roles; and an
//! arrival that finds no token restarts the count of tokens, so that a flow which sends faster than
//! `penalty_rate` gets nothing after its burst. Deviations:
//! - the inner queue is always the `pfifo` that `tc` makes;
//! - times are counted in milliseconds, as by a kernel of 1000 ticks a second.

use crate::num;
use crate::parts::hash::rehash;
use crate::parts::ring::Ring;
use crate::time::{Duration, Instant, MS};
use crate::{Dequeued, Discipline, DropCause, Drops, Gauges, Packet, Rng};

const LEVELS: usize = 8;
const BINS: usize = 16;
/// Probability 1 in the units of the bins.
pub const ONE: u32 = 0xffff;

/// Parameters, named as in tc-sfb(8).
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Time after which the hash of flows changes, ms; 0 for never (default 600000).
    pub rehash: u32,
    /// Time before a rehash during which the second set of bins learns, ms (default 60000).
    pub db: u32,
    /// Packets in the whole queue (default 1000, a device's `txqueuelen`).
    pub limit: u32,
    /// Packets in a flow's emptiest bin at which its arrivals are dropped (default 25).
    pub max: u32,
    /// Packets in a bin at which its probability rises (default 20).
    pub target: u32,
    /// Step up of a probability, 0..1 (default 0.0005).
    pub increment: f64,
    /// Step down of a probability, 0..1 (default 0.00005).
    pub decrement: f64,
    /// Packets per second that all unresponsive flows together may send (default 10).
    pub penalty_rate: u32,
    /// Packets that unresponsive flows may send at once (default 20).
    pub penalty_burst: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            rehash: 600_000,
            db: 60_000,
            limit: 1000,
            max: 25,
            target: 20,
            increment: 0.0005,
            decrement: 0.00005,
            penalty_rate: 10,
            penalty_burst: 20,
        }
    }
}

impl Params {
    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.limit == 0 || self.max == 0 || self.target == 0 {
            return Err("limit, max and target must be at least 1 packet");
        }
        if !(0.0..=1.0).contains(&self.increment) || !(0.0..=1.0).contains(&self.decrement) {
            return Err("increment and decrement must be 0 to 1");
        }
        Ok(())
    }
}

/// A step as `tc` rounds it.
fn step(probability: f64) -> u32 {
    num::whole_u32(probability * f64::from(ONE) + 0.5)
}

/// A bin, which the flows with the same four bits of their hashes share.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    /// Packets queued of the flows that share the bin.
    packets: u16,
    probability: u16,
}

/// A set of bins; each flow has one in every level.
#[derive(Clone, Debug)]
struct Bins {
    /// Key of the hash.
    key: u32,
    bins: [[Bin; BINS]; LEVELS],
}

impl Bins {
    fn new(key: u32) -> Self {
        Self {
            key,
            bins: [[Bin::default(); BINS]; LEVELS],
        }
    }

    /// The hash that selects a flow's bins. It is never 0: for a queued packet, 0 means that this
    /// set does not count it.
    #[inline]
    fn hash<P: Packet>(&self, packet: &P) -> u32 {
        rehash(packet.flow_hash(), self.key).max(1)
    }

    /// The bins of a flow: four bits of the hash for each level.
    #[inline]
    fn of(&mut self, hash: u32) -> impl Iterator<Item = &mut Bin> {
        let levels = self.bins.iter_mut().enumerate();
        levels.map(move |(level, bins)| &mut bins[(hash >> (4 * level)) as usize % BINS])
    }
}

/// Counters, named as in `tc -s`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Packets dropped by chance.
    pub earlydrop: u64,
    /// Packets of unresponsive flows that were dropped.
    pub penaltydrop: u64,
    /// Packets dropped because each of their bins was full.
    pub bucketdrop: u64,
    /// Packets dropped because the queue was full.
    pub queuedrop: u64,
    /// Packets marked.
    pub marked: u64,
}

/// The `sfb` queue.
#[derive(Clone, Debug)]
pub struct Sfb<P> {
    params: Params,
    increment: u16,
    decrement: u16,
    stats: Stats,
    sets: Box<[Bins; 2]>,
    /// Index of the set that decides.
    slot: usize,
    /// True while the second set learns.
    double_buffering: bool,
    /// Time at which the sets last changed roles, ms.
    rehashed: u64,
    /// Packets that unresponsive flows may still send.
    tokens: u32,
    /// Time at which the tokens were last counted, ms.
    token_time: u64,
    /// Packets, each with the hash that selects the bins which count it, for each set.
    ring: Ring<(P, [u32; 2])>,
    bytes: u64,
}

impl<P: Packet> Sfb<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        Self {
            increment: num::low_u16(step(params.increment).into()),
            decrement: num::low_u16(step(params.decrement).into()),
            stats: Stats::default(),
            sets: Box::new([Bins::new(1), Bins::new(2)]),
            slot: 0,
            double_buffering: false,
            rehashed: 0,
            tokens: params.penalty_burst,
            token_time: 0,
            ring: Ring::new(),
            bytes: 0,
            params,
        }
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Changes the sets' roles when due, or lets the second set learn.
    #[inline]
    fn keep_time(&mut self, now_ms: u64, rng: &mut Rng) {
        let interval = u64::from(self.params.rehash);
        if interval == 0 {
            return;
        }
        let limit = self.rehashed + interval;
        if now_ms > limit {
            self.sets[self.slot].key = rng.u32();
            self.slot ^= 1;
            self.double_buffering = false;
            self.rehashed = now_ms;
        } else if self.params.db > 0 && now_ms > limit.saturating_sub(self.params.db.into()) {
            self.double_buffering = true;
        }
    }

    /// Updates the probabilities of a flow's bins in a set; returns their least probability and
    /// fewest packets.
    #[inline]
    fn learn(&mut self, slot: usize, hash: u32) -> (u16, u16) {
        let (mut probability, mut packets) = (u16::MAX, u16::MAX);
        for bin in self.sets[slot].of(hash) {
            if bin.packets == 0 {
                bin.probability = bin.probability.saturating_sub(self.decrement);
            } else if u32::from(bin.packets) >= self.params.target {
                bin.probability = bin.probability.saturating_add(self.increment);
            }
            probability = probability.min(bin.probability);
            packets = packets.min(bin.packets);
        }
        (probability, packets)
    }

    /// Takes a token for a packet of an unresponsive flow. True if there is none, so that the
    /// packet must be dropped.
    #[inline]
    fn penalised(&mut self, now_ms: u64) -> bool {
        let (rate, burst) = (self.params.penalty_rate, self.params.penalty_burst);
        if rate == 0 || burst == 0 {
            return true;
        }
        if self.tokens == 0 {
            let age = (now_ms - self.token_time).min(10_000);
            self.tokens = num::low_u32((age * u64::from(rate) / 1000).min(burst.into()));
            self.token_time = now_ms;
        }
        if self.tokens == 0 {
            return true;
        }
        self.tokens -= 1;
        false
    }

    /// The cause if a packet must be dropped; may mark it instead.
    #[inline]
    fn judge(
        &mut self,
        now_ms: u64,
        packet: &mut P,
        hashes: &mut [u32; 2],
        rng: &mut Rng,
    ) -> Option<DropCause> {
        let hash = self.sets[self.slot].hash(packet);
        hashes[self.slot] = hash;
        let (probability, packets) = self.learn(self.slot, hash);
        if u32::from(packets) >= self.params.max {
            self.stats.bucketdrop += 1;
            return Some(DropCause::Overflow);
        }
        let probability = u32::from(probability);
        if probability >= ONE {
            if self.double_buffering {
                let other = self.slot ^ 1;
                hashes[other] = self.sets[other].hash(packet);
                self.learn(other, hashes[other]);
            }
            if self.penalised(now_ms) {
                self.stats.penaltydrop += 1;
                return Some(DropCause::Early);
            }
            return None;
        }
        let draw = rng.u32() & ONE;
        if draw >= probability {
            return None;
        }
        // Above a probability of one half, drops begin.
        if probability > ONE / 2 && draw < (probability - ONE / 2) * 2 {
            self.stats.earlydrop += 1;
            return Some(DropCause::Early);
        }
        if packet.mark() {
            self.stats.marked += 1;
            return None;
        }
        self.stats.earlydrop += 1;
        Some(DropCause::Early)
    }

    /// Changes the packet counts of a packet's bins.
    #[inline]
    fn count(&mut self, hashes: [u32; 2], change: fn(u16) -> u16) {
        for (set, hash) in self.sets.iter_mut().zip(hashes) {
            if hash != 0 {
                set.of(hash)
                    .for_each(|bin| bin.packets = change(bin.packets));
            }
        }
    }
}

impl<P: Packet> Discipline<P> for Sfb<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, mut packet: P, rng: &mut Rng, drops: &mut D) {
        if self.ring.len() >= self.params.limit as usize {
            self.stats.queuedrop += 1;
            return drops.drop(now, packet, DropCause::Overflow);
        }
        let (now_ms, mut hashes) = ((now - Instant::ZERO) / MS, [0; 2]);
        self.keep_time(now_ms, rng);
        if let Some(cause) = self.judge(now_ms, &mut packet, &mut hashes, rng) {
            return drops.drop(now, packet, cause);
        }
        self.bytes += u64::from(packet.len());
        self.ring.push((packet, hashes)).0.set_enqueued(now);
        self.count(hashes, |packets| packets.saturating_add(1));
    }

    #[inline]
    fn dequeue<D: Drops<P>>(
        &mut self,
        _now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        let Some((packet, hashes)) = self.ring.pop() else {
            return Dequeued::Empty;
        };
        self.bytes -= u64::from(packet.len());
        self.count(hashes, |packets| packets.saturating_sub(1));
        Dequeued::Packet(packet)
    }

    #[inline]
    fn len(&self) -> usize {
        self.ring.len()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn marks(&self) -> u64 {
        self.stats.marked
    }

    /// The probability is the greatest of all bins, as `tc -s` shows it.
    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        let bins = self.sets[self.slot].bins.iter().flatten();
        let most = bins.map(|bin| bin.probability).max().unwrap_or(0);
        gauges.limit_packets = self.params.limit;
        gauges.probability = f64::from(most) / f64::from(ONE);
        gauges.marks = self.stats.marked;
        gauges.head_age = self
            .ring
            .front()
            .map_or(Duration::ZERO, |(p, _)| now - p.enqueued());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::TestPacket;

    use crate::Ecn;

    struct Bed {
        q: Sfb<TestPacket>,
        rng: Rng,
        now: Instant,
        dropped: Vec<DropCause>,
    }

    impl Bed {
        fn new(params: Params) -> Self {
            assert_eq!(params.check(), Ok(()));
            Self {
                q: Sfb::new(params),
                rng: Rng::new(1, "sfb"),
                now: Instant::ZERO,
                dropped: Vec::new(),
            }
        }
        fn put(&mut self, flow: u32, n: u32, ecn: Ecn) {
            let mut drops = Vec::new();
            for id in 0..n {
                let packet = TestPacket::new(id.into(), 1000, flow, ecn);
                self.q.enqueue(self.now, packet, &mut self.rng, &mut drops);
            }
            self.dropped.extend(drops.iter().map(|(_, cause)| *cause));
        }
        fn take(&mut self, n: u32) {
            for _ in 0..n {
                self.q.dequeue(self.now, &mut self.rng, &mut Vec::new());
            }
        }
        /// Sets the probabilities of a flow's bins.
        fn set(&mut self, flow: u32, probability: u16) {
            let packet = TestPacket::new(0, 1000, flow, Ecn::NotEct);
            let slot = self.q.slot;
            let hash = self.q.sets[slot].hash(&packet);
            let bins = self.q.sets[slot].of(hash);
            bins.for_each(|bin| bin.probability = probability);
        }
        /// The least probability of a flow's bins.
        fn get(&mut self, flow: u32) -> u16 {
            let packet = TestPacket::new(0, 1000, flow, Ecn::NotEct);
            let slot = self.q.slot;
            let hash = self.q.sets[slot].hash(&packet);
            let bins = self.q.sets[slot].of(hash);
            bins.map(|bin| bin.probability).min().unwrap_or(0)
        }
    }

    #[test]
    fn steps_are_rounded_as_in_tc() {
        // q_sfb.c: (65535 + 1000) / 2000 and (65535 + 10000) / 20000.
        let q: Sfb<TestPacket> = Sfb::new(Params::default());
        assert_eq!((q.increment, q.decrement), (33, 3));
    }

    #[test]
    fn a_flows_probability_rises_while_its_bins_hold_target_packets() {
        let mut bed = Bed::new(Params::default());
        bed.put(1, 20, Ecn::Ect0);
        assert_eq!(bed.get(1), 0);
        bed.put(1, 3, Ecn::Ect0);
        assert_eq!(bed.get(1), 3 * 33);
    }

    #[test]
    fn it_falls_with_each_arrival_that_finds_the_bins_empty() {
        let mut bed = Bed::new(Params::default());
        bed.set(1, 10);
        for left in [7, 4, 1, 0] {
            bed.put(1, 1, Ecn::Ect0);
            bed.take(1);
            assert_eq!(bed.get(1), left);
        }
    }

    #[test]
    fn a_flow_whose_bins_are_all_full_is_dropped_and_others_pass() {
        let mut bed = Bed::new(Params::default());
        bed.put(1, 40, Ecn::Ect0);
        // All its bins have at least 25 packets.
        let dropped = bed.q.stats().bucketdrop;
        assert!(dropped >= 14, "{dropped}");
        bed.put(2, 1, Ecn::Ect0);
        assert_eq!(bed.q.stats().bucketdrop, dropped);
        assert_eq!(bed.q.len() as u64, 41 - bed.dropped.len() as u64);
    }

    #[test]
    fn packets_are_marked_at_the_least_probability_of_their_bins_or_dropped_without_ecn() {
        let share = |ecn, probability| {
            let mut bed = Bed::new(Params {
                increment: 0.0,
                decrement: 0.0,
                ..Params::default()
            });
            bed.set(1, probability);
            for _ in 0..20_000 {
                bed.put(1, 1, ecn);
                bed.take(1);
            }
            let lost = bed.dropped.len() as f64 / 20_000.0;
            (bed.q.marks() as f64 / 20_000.0, lost)
        };
        let (marked, lost) = share(Ecn::Ect0, 13_107); // 0.2
        assert!((marked - 0.2).abs() < 0.01 && lost == 0.0, "{marked}");
        let (marked, lost) = share(Ecn::NotEct, 13_107);
        assert!((lost - 0.2).abs() < 0.01 && marked == 0.0, "{lost}");
        // Above one half twice the excess is dropped: at 0.75 one half, and one quarter is marked.
        let (marked, lost) = share(Ecn::Ect0, 49_151);
        assert!(
            (marked - 0.25).abs() < 0.02 && (lost - 0.5).abs() < 0.02,
            "{marked} {lost}"
        );
    }

    /// Packets that pass in 10 s, of a flow with probability 1 that sends one each `gap_ms`
    /// milliseconds.
    fn passed_at_probability_one(gap_ms: u64) -> usize {
        let mut bed = Bed::new(Params {
            decrement: 0.0,
            ..Params::default()
        });
        bed.set(1, u16::MAX);
        let arrivals = 10_000 / gap_ms;
        for arrival in 0..arrivals {
            bed.now = Instant::from_millis(arrival * gap_ms);
            bed.put(1, 1, Ecn::Ect0);
            bed.take(1);
        }
        assert_eq!(bed.q.stats().penaltydrop, bed.dropped.len() as u64);
        arrivals as usize - bed.dropped.len()
    }

    #[test]
    fn flows_that_do_not_respond_have_the_penalty_rate_together() {
        // 8 a second are below the rate of 10.
        assert_eq!(passed_at_probability_one(125), 80);
    }

    #[test]
    fn an_arrival_without_a_token_restarts_the_count_of_tokens() {
        // As in Linux: 1 ms brings no whole token, so that nothing passes after the burst.
        assert_eq!(passed_at_probability_one(1), 20);
        // After the burst of 20 there are 10, 5, 2, then 1 tokens, for the 1 s, 500, 250 and 100 ms
        // in which the tokens before were used; 50 ms give none.
        assert_eq!(passed_at_probability_one(50), 38);
    }

    #[test]
    fn without_a_penalty_rate_nothing_of_them_passes() {
        let mut bed = Bed::new(Params {
            decrement: 0.0,
            penalty_rate: 0,
            ..Params::default()
        });
        bed.set(1, u16::MAX);
        bed.put(1, 5, Ecn::Ect0);
        assert_eq!((bed.q.len(), bed.q.stats().penaltydrop), (0, 5));
    }

    #[test]
    fn the_second_set_learns_before_it_decides_and_packets_leave_the_bins_that_count_them() {
        let mut bed = Bed::new(Params {
            rehash: 1000,
            db: 500,
            decrement: 0.0,
            penalty_rate: 1_000_000,
            penalty_burst: 1_000_000,
            ..Params::default()
        });
        bed.set(1, u16::MAX);
        bed.now = Instant::from_millis(600);
        bed.put(1, 24, Ecn::Ect0);
        assert!(bed.q.double_buffering);
        let counted = |q: &Sfb<TestPacket>, set: usize| -> u32 {
            let bins = q.sets[set].bins.iter().flatten();
            bins.map(|bin| u32::from(bin.packets)).sum()
        };
        assert_eq!((counted(&bed.q, 0), counted(&bed.q, 1)), (24 * 8, 24 * 8));
        bed.now = Instant::from_millis(1001);
        bed.put(2, 1, Ecn::Ect0);
        assert_eq!((bed.q.slot, bed.q.double_buffering), (1, false));
        bed.take(25);
        assert_eq!((counted(&bed.q, 0), counted(&bed.q, 1)), (0, 0));
        assert!(bed.get(1) > 0);
    }

    #[test]
    fn without_rehash_the_sets_keep_their_roles() {
        let mut bed = Bed::new(Params {
            rehash: 0,
            ..Params::default()
        });
        bed.now = Instant::from_secs(5000);
        bed.put(1, 1, Ecn::Ect0);
        assert_eq!(bed.q.slot, 0);
    }

    #[test]
    fn the_limit_counts_packets_of_all_flows() {
        let mut bed = Bed::new(Params {
            limit: 10,
            ..Params::default()
        });
        for flow in 0..11 {
            bed.put(flow, 1, Ecn::NotEct);
        }
        assert_eq!((bed.q.len(), bed.q.stats().queuedrop), (10, 1));
    }
}
