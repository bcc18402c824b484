//! HHF: a filter finds the heavy hitters among the flows and puts them in a queue of their own,
//! which gets less of the link.
//!
//! Sources: Estan and Varghese, "New directions in traffic measurement and accounting" (SIGCOMM
//! 2002); Linux 7.x `net/sched/sch_hhf.c`, tc-hhf(8). Deviations:
//! - times are counted in milliseconds, as by a kernel of 1000 ticks a second.

use crate::parts::flows::{FlowId, FlowList, Flows};
use crate::time::{Duration, Instant, MS, SEC};
use crate::{Dequeued, Discipline, DropCause, Drops, Gauges, MTU, Packet, Rng};

/// Bits of the hash that index a table.
const BITS: u32 = 10;
const PLACES: usize = 1 << BITS;
/// Arrays of counters.
const ARRAYS: usize = 4;

/// The two queues, as sub-queues.
const HEAVY: FlowId = 0;
const OTHERS: FlowId = 1;

/// Parameters, named as in tc-hhf(8).
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets in the whole queue (default 1000).
    pub limit: u32,
    /// Bytes of a queue per round (default 1514, one full-size packet).
    pub quantum: u32,
    /// Heavy hitters that may be known at once (default 2048).
    pub hh_limit: u32,
    /// Time after which the counters are cleared (default 40 ms).
    pub reset_timeout: Duration,
    /// Bytes within that time that make a flow a heavy hitter (default 128 KiB).
    pub admit_bytes: u32,
    /// Idle time after which a flow is no longer a heavy hitter (default 1 s).
    pub evict_timeout: Duration,
    /// Quanta of the other flows per quantum of the heavy hitters (default 2).
    pub non_hh_weight: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit: 1000,
            quantum: MTU,
            hh_limit: 2048,
            reset_timeout: 40 * MS,
            admit_bytes: 128 << 10,
            evict_timeout: SEC,
            non_hh_weight: 2,
        }
    }
}

impl Params {
    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.limit == 0 || self.quantum == 0 || self.non_hh_weight == 0 {
            return Err("limit, quantum and non_hh_weight must be at least 1");
        }
        if u64::from(self.quantum) * u64::from(self.non_hh_weight) > i32::MAX as u64 {
            return Err("quantum times non_hh_weight must be below 2147483648 bytes");
        }
        Ok(())
    }
}

/// A known heavy hitter.
#[derive(Clone, Copy, Debug)]
struct Known {
    hash: u32,
    /// Time of its last arrival, ms.
    seen: u64,
}

/// The `hhf` queue.
#[derive(Clone, Debug)]
pub struct Hhf<P> {
    params: Params,
    /// The two timeouts in whole milliseconds, rounded up.
    reset_ms: u64,
    evict_ms: u64,
    /// Bytes of flows that hash to a place, in each array.
    counters: Vec<[u32; ARRAYS]>,
    /// Time at which the counters were last cleared, ms.
    cleared: u64,
    /// Known heavy hitters in a table, by place.
    known: Vec<Vec<Known>>,
    count: u32,
    /// Heavy hitters that were admitted so far.
    admitted: u64,
    flows: Flows<P>,
}

impl<P: Packet> Hhf<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        let mut flows = Flows::new(2);
        assert_eq!((flows.flow_of(0), flows.flow_of(1)), (HEAVY, OTHERS));
        Self {
            reset_ms: params.reset_timeout.as_nanos().div_ceil(MS.as_nanos()),
            evict_ms: params.evict_timeout.as_nanos().div_ceil(MS.as_nanos()),
            counters: vec![[0; ARRAYS]; PLACES],
            cleared: 0,
            known: vec![Vec::new(); PLACES],
            count: 0,
            admitted: 0,
            flows,
            params,
        }
    }

    /// Heavy hitters that were admitted so far.
    pub fn admitted(&self) -> u64 {
        self.admitted
    }

    /// Whether the flow is a known heavy hitter. Also removes the idle entries that are before it
    /// in the list of its place, except the last entry of the list.
    #[inline]
    fn is_known(&mut self, now_ms: u64, hash: u32) -> bool {
        let known = &mut self.known[hash as usize % PLACES];
        let mut at = 0;
        while at < known.len() {
            if known[at].seen + self.evict_ms < now_ms {
                if at + 1 == known.len() {
                    return false;
                }
                known.remove(at);
                self.count -= 1;
            } else if known[at].hash == hash {
                known[at].seen = now_ms;
                return true;
            } else {
                at += 1;
            }
        }
        false
    }

    /// Enters a heavy hitter in the table; false if the table is full.
    #[cold]
    fn admit(&mut self, now_ms: u64, hash: u32) -> bool {
        let now = Known { hash, seen: now_ms };
        let known = &mut self.known[hash as usize % PLACES];
        let idle = known.iter_mut().find(|k| k.seen + self.evict_ms < now_ms);
        match idle {
            Some(place) => *place = now,
            None if self.count >= self.params.hh_limit => return false,
            None => {
                known.push(now);
                self.count += 1;
            }
        }
        self.admitted += 1;
        true
    }

    /// The queue of a packet: that of the heavy hitters if its flow is known as one, or if with the
    /// packet each of its counters is above `admit_bytes`. The bytes of heavy hitters are not
    /// counted. The counters of other flows rise only to the least of them plus the packet's
    /// length.
    #[inline]
    fn classify(&mut self, now_ms: u64, packet: &P) -> FlowId {
        if self.cleared + self.reset_ms < now_ms {
            self.counters.fill([0; ARRAYS]);
            self.cleared = now_ms;
        }
        let hash = packet.flow_hash();
        if self.is_known(now_ms, hash) {
            return HEAVY;
        }
        // Three parts of ten bits; the fourth is the XOR of these and the rest of the hash.
        let part = |i: u32| (hash >> (BITS * i)) as usize % PLACES;
        let left = (hash >> (3 * BITS)) as usize;
        let places = [
            part(0),
            part(1),
            part(2),
            part(0) ^ part(1) ^ part(2) ^ left,
        ];
        let counts = std::array::from_fn::<u32, ARRAYS, _>(|i| self.counters[places[i]][i]);
        let least = counts[0].min(counts[1]).min(counts[2]).min(counts[3]);
        let least = least.saturating_add(packet.len());
        if least > self.params.admit_bytes {
            return match self.admit(now_ms, hash) {
                true => HEAVY,
                false => OTHERS,
            };
        }
        for (i, place) in places.into_iter().enumerate() {
            let counter = &mut self.counters[place][i];
            *counter = least.max(*counter);
        }
        OTHERS
    }

    /// Bytes of a queue per round.
    #[inline]
    fn quantum(&self, queue: FlowId) -> i32 {
        let weight = match queue {
            HEAVY => 1,
            _ => self.params.non_hh_weight,
        };
        (weight * self.params.quantum).cast_signed()
    }
}

impl<P: Packet> Discipline<P> for Hhf<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, _rng: &mut Rng, drops: &mut D) {
        let queue = self.classify((now - Instant::ZERO) / MS, &packet);
        self.flows.push(queue, packet).set_enqueued(now);
        if self.flows.get(queue).list() == FlowList::Off {
            self.flows.get_mut(queue).deficit = self.quantum(queue);
            let list = match queue {
                HEAVY => FlowList::Old,
                _ => FlowList::New,
            };
            self.flows.move_to(queue, list);
        }
        if self.flows.len() > self.params.limit as usize {
            let oldest = self.flows.pop(HEAVY).or_else(|| self.flows.pop(OTHERS));
            if let Some(oldest) = oldest {
                drops.drop(now, oldest, DropCause::Overflow);
            }
        }
    }

    #[inline]
    fn dequeue<D: Drops<P>>(
        &mut self,
        _now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        loop {
            let first = self.flows.first(FlowList::New);
            let Some(queue) = first.or_else(|| self.flows.first(FlowList::Old)) else {
                return Dequeued::Empty;
            };
            let quantum = self.quantum(queue);
            let deficit = &mut self.flows.get_mut(queue).deficit;
            if *deficit <= 0 {
                *deficit += quantum;
                self.flows.move_to(queue, FlowList::Old);
                continue;
            }
            let Some(packet) = self.flows.pop(queue) else {
                self.flows.found_empty(queue);
                continue;
            };
            self.flows.get_mut(queue).deficit -= packet.len().cast_signed();
            return Dequeued::Packet(packet);
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.flows.len()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.flows.bytes()
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.head_age = self.flows.head_age(now);
    }

    /// The first is the heavy hitters' queue, the second that of the others.
    fn flows(&self) -> Option<&Flows<P>> {
        Some(&self.flows)
    }

    /// The queue of a packet depends on earlier packets.
    fn sub_queue_of(&self, _packet: &P) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use crate::packet::TestPacket;

    struct Bed {
        q: Hhf<TestPacket>,
        rng: Rng,
        now: Instant,
        next: u64,
        dropped: Vec<(TestPacket, DropCause)>,
    }

    impl Bed {
        fn new(params: Params) -> Self {
            assert_eq!(params.check(), Ok(()));
            Self {
                q: Hhf::new(params),
                rng: Rng::new(1, "hhf"),
                now: Instant::ZERO,
                next: 0,
                dropped: Vec::new(),
            }
        }
        fn put(&mut self, flow: u32, n: u32) {
            for _ in 0..n {
                // A hash of 32 bits, as real ones are.
                let hash = flow.wrapping_mul(0x9e37_79b1);
                let packet = TestPacket::new(self.next, 1000, hash, Ecn::NotEct);
                self.next += 1;
                self.q
                    .enqueue(self.now, packet, &mut self.rng, &mut self.dropped);
            }
        }
        fn take(&mut self, n: usize) -> Vec<u64> {
            let mut next = || match self
                .q
                .dequeue(Instant::ZERO, &mut self.rng, &mut self.dropped)
            {
                Dequeued::Packet(packet) => Some(packet.id),
                _ => None,
            };
            (0..n).map_while(|_| next()).collect()
        }
        /// Packets of heavy hitters and of others.
        fn queued(&self) -> (u32, u32) {
            (
                self.q.flows.packets_of(HEAVY as usize),
                self.q.flows.packets_of(OTHERS as usize),
            )
        }
    }

    /// Ten packets of 1000 bytes make a heavy hitter.
    fn params() -> Params {
        Params {
            admit_bytes: 10_000,
            ..Params::default()
        }
    }

    #[test]
    fn a_flow_is_counted_apart_from_one_that_shares_some_of_its_counters() {
        let heavy = 7 | 8 << BITS | 9 << (2 * BITS) | 1 << (3 * BITS);
        // A flow that differs in one of the three parts, which also changes the fourth counter, or
        // in the rest alone; and the same flow.
        for (change, apart) in [
            (1, true),
            (1 << BITS, true),
            (1 << (2 * BITS), true),
            (1 << (3 * BITS), true),
            (0, false),
        ] {
            let mut bed = Bed::new(params());
            let mut put = |hash: u32, n: u32| {
                for _ in 0..n {
                    let packet = TestPacket::new(0, 1000, hash, Ecn::NotEct);
                    bed.q
                        .enqueue(Instant::ZERO, packet, &mut bed.rng, &mut bed.dropped);
                }
            };
            put(heavy, 10);
            put(heavy ^ change, 1);
            assert_eq!(
                bed.queued(),
                if apart { (0, 11) } else { (1, 10) },
                "{change:x}"
            );
        }
    }

    #[test]
    fn a_flow_is_a_heavy_hitter_from_the_packet_on_that_exceeds_admit_bytes() {
        let mut bed = Bed::new(params());
        bed.put(1, 10);
        assert_eq!((bed.queued(), bed.q.admitted()), ((0, 10), 0));
        bed.put(1, 5);
        assert_eq!((bed.queued(), bed.q.admitted()), ((5, 10), 1));
    }

    #[test]
    fn counters_are_cleared_after_reset_timeout() {
        let mut bed = Bed::new(params());
        for round in 0..20 {
            bed.now = Instant::from_millis(round * 50);
            bed.put(1, 9);
        }
        assert_eq!(bed.q.admitted(), 0);
        let mut bed = Bed::new(params());
        for round in 0..20 {
            bed.now = Instant::from_millis(round * 10);
            bed.put(1, 9);
        }
        assert_eq!(bed.q.admitted(), 1);
    }

    #[test]
    fn small_flows_that_share_counters_are_not_heavy_hitters() {
        let mut bed = Bed::new(params());
        // 400 flows of 5 kB within 40 ms: 2 MB in 1024 places.
        for flow in 1..=400 {
            bed.put(flow, 5);
            bed.take(5);
        }
        assert_eq!(bed.q.admitted(), 0);
    }

    #[test]
    fn an_idle_heavy_hitter_is_evicted() {
        let mut bed = Bed::new(params());
        bed.put(1, 11);
        bed.now = Instant::from_secs(1);
        bed.put(1, 1);
        assert_eq!(bed.queued(), (2, 10));
        bed.now = Instant::ZERO + 2 * SEC + MS;
        bed.put(1, 1);
        assert_eq!(bed.queued(), (2, 11));
        // It may become one again, in the same place of the table.
        bed.put(1, 10);
        assert_eq!((bed.q.admitted(), bed.q.count), (2, 1));
    }

    #[test]
    fn hh_limit_bounds_the_table() {
        let mut bed = Bed::new(Params {
            hh_limit: 2,
            limit: 10_000,
            ..params()
        });
        for flow in 1..=5 {
            bed.put(flow, 20);
        }
        assert_eq!((bed.q.admitted(), bed.queued()), (2, (20, 80)));
    }

    #[test]
    fn the_others_get_their_weight() {
        let mut bed = Bed::new(Params {
            quantum: 1000,
            non_hh_weight: 3,
            ..params()
        });
        bed.put(1, 200);
        bed.take(40);
        for flow in 2..42 {
            bed.put(flow, 3);
        }
        let before = bed.queued();
        bed.take(80);
        let after = bed.queued();
        let (heavy, others) = (before.0 - after.0, before.1 - after.1);
        assert!(
            heavy.abs_diff(20) <= 1 && others.abs_diff(60) <= 1,
            "{heavy} {others}"
        );
    }

    #[test]
    fn a_full_queue_drops_at_the_head_of_the_heavy_hitters_first() {
        let mut bed = Bed::new(Params {
            limit: 20,
            ..params()
        });
        bed.put(1, 15);
        bed.put(2, 7);
        let lost: Vec<u64> = bed.dropped.iter().map(|(p, _)| p.id).collect();
        // Packets 10 to 14 are the heavy hitter's.
        assert_eq!(lost, [10, 11]);
        bed.put(3, 5);
        assert_eq!(bed.dropped.last().map(|(p, _)| p.id), Some(1));
    }

    #[test]
    fn a_short_flow_passes_the_heavy_hitters() {
        let mut bed = Bed::new(params());
        bed.put(1, 30);
        bed.take(20);
        bed.put(2, 1);
        assert_eq!(bed.take(1), [30]);
    }
}
