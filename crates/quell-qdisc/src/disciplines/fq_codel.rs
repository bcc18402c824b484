//! FQ-CoDel: deficit round robin over flows, each with a CoDel of its own.
//!
//! Sources: RFC 8290; Linux `net/sched/sch_fq_codel.c`. Deviations:
//! - memory is each packet's length plus [`PACKET_MEMORY`], instead of `truesize`;
//! - among flows with equally many bytes, the one used first counts as the longest, not the one
//!   with the lowest bucket;
//! - if the limit is lowered below the backlog, Linux drops at once; here each arrival drops a
//!   batch.

use super::codel::Judged;
use crate::discipline::{Backlog, FastPath, offer_each};
use crate::parts::flows::{FlowId, Flows, PACKET_MEMORY, of_flow};
use crate::time::Instant;
use crate::{
    Admission, Dequeued, Discipline, DropCause, Drops, Gauges, KnobSet, Knobs, MTU, Packet, Rng,
    codel,
};

/// Parameters of [`FqCodel`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets in the whole queue (default 10240, at least 1).
    pub limit: u32,
    /// Buckets, 1 to 65536 (default 1024).
    pub flows: u32,
    /// Bytes per flow and round, 256 to 2^20 (default 1514, one full-size packet).
    pub quantum: u32,
    /// Bytes of memory in the whole queue, at most 2^31 (default 32 MiB).
    pub memory_limit: u64,
    /// At most this many packets are dropped at once when the queue is full (default 64, at least
    /// 1).
    pub drop_batch: u32,
    /// CoDel's parameters, with ECN on by default; their `limit` is not used.
    pub codel: codel::Params,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit: 10_240,
            flows: 1024,
            quantum: MTU,
            memory_limit: 32 << 20,
            drop_batch: 64,
            codel: codel::Params {
                ecn: true,
                ..codel::Params::default()
            },
        }
    }
}

impl Params {
    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.limit == 0 {
            return Err("limit must be at least 1 packet");
        }
        if self.flows == 0 || self.flows > 65_536 {
            return Err("flows must be 1 to 65536");
        }
        if self.quantum < 256 || self.quantum > 1 << 20 {
            return Err("quantum must be 256 to 1048576 bytes");
        }
        if self.memory_limit > 1 << 31 {
            return Err("memory_limit must be at most 2147483648 bytes");
        }
        if self.drop_batch == 0 {
            return Err("drop_batch must be at least 1 packet");
        }
        self.codel.check()
    }
}

/// The `fq_codel` queue.
#[derive(Clone, Debug)]
pub struct FqCodel<P> {
    params: Params,
    flows: Flows<P>,
    laws: Vec<codel::State>,
    stats: codel::Stats,
}

/// One flow as its CoDel sees it.
pub(super) struct Source<'a, P> {
    pub(super) flows: &'a mut Flows<P>,
    pub(super) flow: FlowId,
}

impl<P: Packet> codel::Source<P> for Source<'_, P> {
    #[inline]
    fn head(&self) -> Option<&P> {
        self.flows.front(self.flow)
    }
    #[inline]
    fn pop(&mut self) -> Option<P> {
        self.flows.pop(self.flow)
    }
    /// Bytes of all flows, as in Linux: on a busy link the law acts on a flow's last packet too.
    /// RFC 8290 does not specify this.
    #[inline]
    fn backlog_bytes(&self) -> u64 {
        self.flows.bytes()
    }
}

impl<P: Packet> FqCodel<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        Self {
            flows: Flows::new(params.flows),
            laws: Vec::new(),
            params,
            stats: codel::Stats::default(),
        }
    }

    /// CoDel's counters over all flows.
    pub fn stats(&self) -> &codel::Stats {
        &self.stats
    }

    #[inline]
    fn full(&self) -> bool {
        self.flows.len() > self.params.limit as usize
            || self.flows.memory() > self.params.memory_limit
    }

    /// Drops from the head of the flow with the most bytes, until half of its bytes or `drop_batch`
    /// packets are dropped, so that one search serves many drops. The count of the flow's CoDel
    /// grows by these packets, so it drops more often (RFC 8290, section 4.1, and Linux).
    #[cold]
    fn drop_batch<D: Drops<P>>(&mut self, now: Instant, drops: &mut D) {
        let Some(fat) = self.flows.fattest() else {
            return;
        };
        let half = self.flows.backlog(fat) / 2;
        let (mut packets, mut bytes) = (0, 0);
        while let Some(packet) = self.flows.pop(fat) {
            packets += 1;
            bytes += packet.len();
            drops.drop(now, packet, DropCause::Overflow);
            if packets >= self.params.drop_batch || bytes >= half {
                break;
            }
        }
        let law = of_flow(&mut self.laws, fat);
        law.count = law.count.wrapping_add(packets);
    }
}

impl<P: Packet> Discipline<P> for FqCodel<P> {
    #[inline(always)]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, _rng: &mut Rng, drops: &mut D) {
        let bucket = self.flows.scale(packet.flow_hash());
        let flow = self.flows.flow_of(bucket);
        self.flows.push(flow, packet).set_enqueued(now);
        self.flows.activate(flow, self.params.quantum);
        if self.full() {
            self.drop_batch(now, drops);
        }
    }

    #[inline(always)]
    fn dequeue<D: Drops<P>>(&mut self, now: Instant, _rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        while let Some(flow) = self.flows.next_turn(self.params.quantum) {
            let (params, law) = (&self.params.codel, of_flow(&mut self.laws, flow));
            let flows = &mut self.flows;
            let mut source = Source { flows, flow };
            match codel::judge(params, law, now, &source) {
                Judged::Empty => {}
                // Separate from `Acts`, so that the packet is moved only once.
                Judged::Sends => {
                    let packet = self.flows.take(flow);
                    self.flows.get_mut(flow).deficit -= packet.len().cast_signed();
                    return Dequeued::Packet(packet);
                }
                Judged::Acts(due) => {
                    let from = (&mut source, due);
                    let got = codel::act(params, law, &mut self.stats, now, from, drops);
                    if let Dequeued::Packet(packet) = &got {
                        self.flows.get_mut(flow).deficit -= packet.len().cast_signed();
                        return got;
                    }
                }
            }
            self.flows.found_empty(flow);
        }
        Dequeued::Empty
    }

    #[inline]
    fn len(&self) -> usize {
        self.flows.len()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.flows.bytes()
    }

    fn marks(&self) -> u64 {
        self.stats.marks + self.stats.ce_marks
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.head_age = self.flows.head_age(now);
        gauges.marks = self.marks();
    }

    fn flows(&self) -> Option<&Flows<P>> {
        Some(&self.flows)
    }

    fn admit(&mut self, _now: Instant, packet: &P) -> Option<Admission> {
        Some(self.flows.admit(self.flows.scale(packet.flow_hash())))
    }

    fn knobs(&self) -> KnobSet {
        KnobSet::LIMIT
    }

    fn set_knobs(&mut self, knobs: &Knobs) {
        if let Some(limit) = knobs.limit_packets {
            self.params.limit = limit;
        }
    }
}

impl<P: Packet> FastPath<P> for FqCodel<P> {
    #[inline(always)]
    fn offer_run<D: Drops<P>>(
        &mut self,
        now: Instant,
        len: u32,
        count: u32,
        make: impl Fn(u32) -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Option<Backlog> {
        let packets = self.flows.len() + count as usize;
        let memory = self.flows.memory() + u64::from(count) * (u64::from(len) + PACKET_MEMORY);
        if packets > self.params.limit as usize || memory > self.params.memory_limit {
            return None; // a batch may be dropped
        }
        offer_each(self, now, len, count, make, rng, drops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Ecn, TestPacket};
    use crate::parts::flows::FlowList;
    use crate::time::MS;

    type Dropped = Vec<(TestPacket, DropCause)>;
    /// Hashes of one bucket each: bucket = hash * 1024 >> 32.
    const A: u32 = 1 << 22;
    const B: u32 = 2 << 22;
    const C: u32 = 3 << 22;

    fn rng() -> Rng {
        Rng::new(1, "fq_codel")
    }

    fn put_ecn(
        q: &mut FqCodel<TestPacket>,
        now: Instant,
        hash: u32,
        n: u64,
        len: u32,
        ecn: Ecn,
    ) -> Dropped {
        let mut drops = Vec::new();
        for id in 0..n {
            q.enqueue(
                now,
                TestPacket::new(id, len, hash, ecn),
                &mut rng(),
                &mut drops,
            );
        }
        drops
    }

    fn put(q: &mut FqCodel<TestPacket>, now: Instant, hash: u32, n: u64, len: u32) -> Dropped {
        put_ecn(q, now, hash, n, len, Ecn::NotEct)
    }

    fn take(q: &mut FqCodel<TestPacket>, now: Instant, drops: &mut Dropped) -> TestPacket {
        match q.dequeue(now, &mut rng(), drops) {
            Dequeued::Packet(p) => p,
            other => panic!("{other:?}"),
        }
    }

    fn order(q: &mut FqCodel<TestPacket>, n: usize) -> Vec<u32> {
        (0..n)
            .map(|_| take(q, Instant::ZERO, &mut Vec::new()).hash >> 22)
            .collect()
    }

    #[test]
    fn defaults_are_those_of_linux_with_ecn_on() {
        let p = Params::default();
        assert_eq!((p.flows, p.limit, p.quantum), (1024, 10_240, 1514));
        assert_eq!((p.memory_limit, p.drop_batch), (33_554_432, 64));
        assert_eq!((p.codel.target, p.codel.interval), (5 * MS, 100 * MS));
        assert!(p.codel.ecn);
        assert_eq!(p.check(), Ok(()));
    }

    #[test]
    fn a_flow_keeps_its_turn_until_its_deficit_is_zero_or_less() {
        // Quantum 1514, packets of 757: after two the deficit is 0, which ends the turn.
        let mut q = FqCodel::new(Params::default());
        put(&mut q, Instant::ZERO, A, 6, 757);
        put(&mut q, Instant::ZERO, B, 6, 757);
        assert_eq!(order(&mut q, 8), [1, 1, 2, 2, 1, 1, 2, 2]);
        // Packets of 756: after two the deficit is 2, so a third follows.
        let mut q = FqCodel::new(Params::default());
        put(&mut q, Instant::ZERO, A, 6, 756);
        put(&mut q, Instant::ZERO, B, 6, 756);
        assert_eq!(order(&mut q, 6), [1, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn new_flows_go_before_old_ones() {
        let mut q = FqCodel::new(Params::default());
        put(&mut q, Instant::ZERO, A, 10, 1514);
        put(&mut q, Instant::ZERO, B, 10, 1514);
        order(&mut q, 4);
        put(&mut q, Instant::ZERO, C, 1, 100);
        assert_eq!(order(&mut q, 2), [3, 1]);
    }

    #[test]
    fn an_emptied_new_flow_goes_to_the_end_of_a_non_empty_old_list() {
        let mut q = FqCodel::new(Params::default());
        put(&mut q, Instant::ZERO, A, 10, 1514);
        put(&mut q, Instant::ZERO, B, 10, 1514);
        order(&mut q, 2);
        // C sends one small packet and, found empty by the next call, queues up behind A and B ...
        put(&mut q, Instant::ZERO, C, 1, 100);
        assert_eq!(order(&mut q, 2), [3, 1]);
        assert_eq!(q.flows.get(2).list(), FlowList::Old);
        // ... so its next packet is not that of a new flow: it waits for B. A is behind it, because
        // a full-size packet uses up a quantum.
        put(&mut q, Instant::ZERO, C, 1, 100);
        assert_eq!(order(&mut q, 3), [2, 3, 1]);
    }

    #[test]
    fn an_emptied_new_flow_is_removed_if_there_are_no_old_flows() {
        let mut q = FqCodel::new(Params::default());
        put(&mut q, Instant::ZERO, A, 1, 100);
        order(&mut q, 1);
        assert_eq!(
            q.dequeue(Instant::ZERO, &mut rng(), &mut Vec::new()),
            Dequeued::Empty
        );
        assert_eq!(q.flows.get(0).list(), FlowList::Off);
    }

    #[test]
    fn an_emptied_old_flow_is_removed_and_comes_back_as_new_with_a_quantum() {
        let mut q = FqCodel::new(Params::default());
        put(&mut q, Instant::ZERO, A, 2, 1514);
        put(&mut q, Instant::ZERO, B, 9, 1514);
        assert_eq!(order(&mut q, 5), [1, 2, 1, 2, 2]);
        assert_eq!(q.flows.get(0).list(), FlowList::Off);
        put(&mut q, Instant::ZERO, A, 1, 1514);
        assert_eq!(q.flows.get(0).list(), FlowList::New);
        assert_eq!(q.flows.get(0).deficit, 1514);
    }

    #[test]
    fn overlimit_drops_from_the_head_of_the_flow_with_most_bytes() {
        let mut q = FqCodel::new(Params {
            limit: 30,
            ..Params::default()
        });
        // B has more packets, A more bytes.
        put(&mut q, Instant::ZERO, A, 10, 1514);
        put(&mut q, Instant::ZERO, B, 20, 100);
        let drops = put(&mut q, Instant::ZERO, C, 1, 100);
        // Half of A's 15140 bytes: five packets of 1514 are 7570, exactly half.
        let ids: Vec<u64> = drops.iter().map(|(p, _)| p.id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4]);
        assert!(
            drops
                .iter()
                .all(|(p, c)| p.hash == A && *c == DropCause::Overflow)
        );
    }

    #[test]
    fn a_batch_is_at_most_64_packets() {
        let mut q = FqCodel::new(Params {
            limit: 1000,
            ..Params::default()
        });
        put(&mut q, Instant::ZERO, A, 1000, 1514);
        assert_eq!(put(&mut q, Instant::ZERO, B, 1, 100).len(), 64);
        assert_eq!(q.len(), 937);
    }

    #[test]
    fn a_batch_adds_its_packets_to_that_flows_codel_count() {
        let mut q = FqCodel::new(Params {
            limit: 1000,
            ..Params::default()
        });
        put(&mut q, Instant::ZERO, A, 1000, 1514);
        put(&mut q, Instant::ZERO, B, 1, 100);
        assert_eq!(q.laws.first().map(|l| l.count), Some(64));
        assert_eq!(q.laws.get(1).map_or(0, |l| l.count), 0);
    }

    #[test]
    fn memory_is_limited_too() {
        // 20 packets of 1514 + 790 bytes are 46080.
        let mut q = FqCodel::new(Params {
            memory_limit: 46_080,
            ..Params::default()
        });
        assert!(put(&mut q, Instant::ZERO, A, 20, 1514).is_empty());
        assert!(!put(&mut q, Instant::ZERO, A, 1, 1514).is_empty());
    }

    #[test]
    fn codels_mtu_test_uses_the_whole_queues_backlog() {
        // A has one packet at a time, which waits for 20 ms. Alone, its CoDel does not act: nothing
        // is queued behind the packet. With B's backlog, it acts.
        for beside in [0, 100] {
            let mut q = FqCodel::new(Params::default());
            let mut drops = Vec::new();
            for step in 0..40 {
                let now = Instant::from_millis(step * 20);
                put(&mut q, now, A, 1, 1000);
                put(&mut q, now, B, beside, 100);
                while q.flows.get(0).packets() > 0 {
                    take(&mut q, now + 20 * MS, &mut drops);
                }
            }
            assert_eq!(drops.iter().any(|(p, _)| p.hash == A), beside > 0);
        }
    }

    #[test]
    fn ecn_capable_packets_are_marked_and_others_dropped() {
        for (ecn, marked) in [(Ecn::Ect0, true), (Ecn::NotEct, false)] {
            let mut q = FqCodel::new(Params::default());
            put_ecn(&mut q, Instant::ZERO, A, 200, 1514, ecn);
            let mut drops = Vec::new();
            let mut marks = 0;
            for i in 0..100 {
                let p = take(&mut q, Instant::ZERO + 10 * MS + i * 5 * MS, &mut drops);
                marks += u64::from(p.ecn == Ecn::Ce);
            }
            assert_eq!(q.marks(), marks);
            assert_eq!((marks > 0, drops.is_empty()), (marked, marked));
        }
    }

    #[test]
    fn ce_threshold_marks_what_waited_longer() {
        let mut q = FqCodel::new(Params {
            codel: codel::Params {
                ce_threshold: Some(MS),
                ..Params::default().codel
            },
            ..Params::default()
        });
        put_ecn(&mut q, Instant::ZERO, A, 2, 1514, Ecn::Ect0);
        assert_eq!(
            take(&mut q, Instant::from_millis(1), &mut Vec::new()).ecn,
            Ecn::Ect0
        );
        assert_eq!(
            take(&mut q, Instant::from_millis(2), &mut Vec::new()).ecn,
            Ecn::Ce
        );
    }

    #[test]
    fn flows_do_not_share_their_codels() {
        // The packets of A wait for seconds; those of B leave at once and are never dropped.
        let mut q = FqCodel::new(Params::default());
        put(&mut q, Instant::ZERO, A, 2000, 1514);
        let mut drops = Vec::new();
        for i in 0..400 {
            let now = Instant::from_millis(i * 5);
            put(&mut q, now, B, 1, 1514);
            while take(&mut q, now, &mut drops).hash != B {}
        }
        assert!(drops.len() > 5 && drops.iter().all(|(p, _)| p.hash == A));
        assert_eq!(q.stats().drops, drops.len() as u64);
    }
}
