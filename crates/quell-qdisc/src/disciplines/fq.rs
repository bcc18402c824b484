//! `fq`: deficit round robin over flows, new ones first, each a drop-tail FIFO.
//!
//! Source: Linux `net/sched/sch_fq.c`. Deviations:
//! - no pacing (nor `maxrate`, horizon, timer slack) and no priority bands: a packet is eligible
//!   when it arrives;
//! - a flow is a bucket of `flow_hash & (flows - 1)`, as `orphan_mask` gives for forwarded packets;
//! - flows are never garbage-collected: Linux may free a flow that was idle for 3 s while it looks
//!   up another one, and the flow then starts again with `initial_quantum`;
//! - no fast path (a FIFO of up to eight packets that is served before all flows and filled while
//!   no flow has packets): it saves instructions in the kernel, but lets bursts bypass the round
//!   robin.

use crate::parts::flows::{FlowId, FlowList, Flows, of_flow};
use crate::time::{Duration, Instant, MS};
use crate::{
    Admission, Dequeued, Discipline, DropCause, Drops, Gauges, KnobSet, Knobs, MTU, Packet, Rng,
};

/// Parameters of [`Fq`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets in the whole queue (default 10000).
    pub limit: u32,
    /// Packets per flow, at most 65535 (default 100).
    pub flow_limit: u32,
    /// Bytes per flow and round, 1..=2^20 (default 3028, two full-size packets).
    pub quantum: u32,
    /// Credit of an unknown flow, bytes (default 15140, ten full-size packets: an initial window).
    pub initial_quantum: u32,
    /// A flow that was idle longer than this starts with at least a quantum (default 40 ms).
    pub refill_delay: Duration,
    /// ECN-capable packets that waited longer than this are marked CE (default: never).
    pub ce_threshold: Duration,
    /// Buckets, a power of two up to 65536 (default 1024).
    pub flows: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit: 10_000,
            flow_limit: 100,
            quantum: 2 * MTU,
            initial_quantum: 10 * MTU,
            refill_delay: 40 * MS,
            ce_threshold: Duration::MAX,
            flows: 1024,
        }
    }
}

impl Params {
    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.quantum == 0 || self.quantum > 1 << 20 {
            return Err("quantum must be 1 to 1048576 bytes");
        }
        if self.flow_limit > 65_535 {
            return Err("flow_limit must be at most 65535 packets");
        }
        if self.initial_quantum > i32::MAX as u32 {
            return Err("initial_quantum must be below 2^31 bytes");
        }
        if !self.flows.is_power_of_two() || self.flows > 65_536 {
            return Err("flows must be a power of two, at most 65536");
        }
        Ok(())
    }
}

/// State of a flow besides its packets.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    known: bool,
    /// Time at which it left the rotation.
    idle_since: Instant,
}

/// The `fq` queue.
#[derive(Clone, Debug)]
pub struct Fq<P> {
    params: Params,
    flows: Flows<P>,
    states: Vec<State>,
    marks: u64,
}

impl<P: Packet> Fq<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        Self {
            flows: Flows::new(params.flows),
            states: Vec::new(),
            params,
            marks: 0,
        }
    }

    /// Activates a flow with the credit that it had left when last served; a flow that is unknown
    /// or was idle for long gets more.
    #[inline]
    fn activate(&mut self, now: Instant, flow: FlowId) {
        let state = of_flow(&mut self.states, flow);
        let f = self.flows.get_mut(flow);
        if !state.known {
            state.known = true;
            f.deficit = self.params.initial_quantum.cast_signed();
        } else if now > state.idle_since.saturating_add(self.params.refill_delay) {
            f.deficit = f.deficit.max(self.params.quantum.cast_signed());
        }
        self.flows.move_to(flow, FlowList::New);
    }

    /// An emptied new flow always moves to the old ones, even if there are none. Here sch_fq
    /// differs from sch_fq_codel: a flow without credit thus gets its quantum before it leaves the
    /// rotation.
    #[inline]
    fn found_empty(&mut self, now: Instant, flow: FlowId) {
        if self.flows.get(flow).list() == FlowList::New {
            self.flows.move_to(flow, FlowList::Old);
        } else {
            self.flows.unlink(flow);
            of_flow(&mut self.states, flow).idle_since = now;
        }
    }
}

impl<P: Packet> Discipline<P> for Fq<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, _rng: &mut Rng, drops: &mut D) {
        if self.flows.len() >= self.params.limit as usize {
            return drops.drop(now, packet, DropCause::Overflow);
        }
        let flow = self
            .flows
            .flow_of(packet.flow_hash() & (self.params.flows - 1));
        if self.flows.get(flow).packets() >= self.params.flow_limit {
            return drops.drop(now, packet, DropCause::Overflow);
        }
        if self.flows.get(flow).list() == FlowList::Off {
            self.activate(now, flow);
        }
        self.flows.push(flow, packet).set_enqueued(now);
    }

    #[inline]
    fn dequeue<D: Drops<P>>(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        if self.flows.is_empty() {
            return Dequeued::Empty;
        }
        while let Some(flow) = self.flows.next_turn(self.params.quantum) {
            let Some(mut packet) = self.flows.pop(flow) else {
                self.found_empty(now, flow);
                continue;
            };
            self.flows.get_mut(flow).deficit -= packet.len().cast_signed();
            if now - packet.enqueued() > self.params.ce_threshold && packet.mark() {
                self.marks += 1;
            }
            return Dequeued::Packet(packet);
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
        self.marks
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.head_age = self.flows.head_age(now);
        gauges.marks = self.marks;
    }

    fn flows(&self) -> Option<&Flows<P>> {
        Some(&self.flows)
    }

    fn sub_queue_of(&self, packet: &P) -> Option<usize> {
        self.flows
            .used(packet.flow_hash() & (self.params.flows - 1))
            .map(|flow| flow as usize)
    }

    fn admit(&mut self, _now: Instant, packet: &P) -> Option<Admission> {
        Some(
            self.flows
                .admit(packet.flow_hash() & (self.params.flows - 1)),
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    use crate::packet::{Ecn, TestPacket};

    type Dropped = Vec<(TestPacket, DropCause)>;

    fn rng() -> Rng {
        Rng::new(1, "fq")
    }

    /// Offers `n` packets of `len` bytes of flow `hash` at `now`; their ids count up from `id`.
    fn put(q: &mut Fq<TestPacket>, now: Instant, hash: u32, id: u64, n: u64, len: u32) -> Dropped {
        let mut drops = Vec::new();
        for i in 0..n {
            q.enqueue(
                now,
                TestPacket::new(id + i, len, hash, Ecn::Ect0),
                &mut rng(),
                &mut drops,
            );
        }
        drops
    }

    fn take(q: &mut Fq<TestPacket>, now: Instant) -> TestPacket {
        match q.dequeue(now, &mut rng(), &mut Vec::new()) {
            Dequeued::Packet(p) => p,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn defaults_are_those_of_sch_fq() {
        let p = Params::default();
        assert_eq!(
            (p.limit, p.flow_limit, p.quantum, p.initial_quantum, p.flows),
            (10_000, 100, 3028, 15_140, 1024)
        );
        assert_eq!(p.refill_delay, 40 * MS);
        assert_eq!(p.check(), Ok(()));
    }

    #[test]
    fn a_flow_is_drop_tail_at_flow_limit_and_leaves_others_alone() {
        let mut q = Fq::new(Params::default());
        let drops = put(&mut q, Instant::ZERO, 1, 0, 101, 1514);
        assert_eq!(drops.len(), 1);
        assert_eq!((drops[0].0.id, drops[0].1), (100, DropCause::Overflow));
        assert!(put(&mut q, Instant::ZERO, 2, 1000, 100, 1514).is_empty());
    }

    #[test]
    fn the_whole_queue_is_drop_tail_at_limit() {
        let mut q = Fq::new(Params {
            limit: 150,
            ..Params::default()
        });
        put(&mut q, Instant::ZERO, 1, 0, 100, 1514);
        assert_eq!(put(&mut q, Instant::ZERO, 2, 100, 60, 1514).len(), 10);
        assert_eq!(q.len(), 150);
    }

    #[test]
    fn an_unknown_flow_starts_with_the_initial_quantum() {
        let mut q = Fq::new(Params::default());
        put(&mut q, Instant::ZERO, 1, 0, 50, 1514);
        put(&mut q, Instant::ZERO, 2, 100, 50, 1514);
        // Ten full-size packets of the first, ten of the second, then two and two.
        let flows: Vec<u32> = (0..24).map(|_| take(&mut q, Instant::ZERO).hash).collect();
        assert_eq!(flows[..10], [1; 10]);
        assert_eq!(flows[10..20], [2; 10]);
        assert_eq!(flows[20..], [1, 1, 2, 2]);
    }

    #[test]
    fn shares_in_bytes_differ_by_at_most_a_quantum_and_a_packet() {
        let mut q = Fq::new(Params {
            flow_limit: 10_000,
            initial_quantum: 3028,
            ..Params::default()
        });
        put(&mut q, Instant::ZERO, 1, 0, 4000, 300);
        put(&mut q, Instant::ZERO, 2, 10_000, 1000, 1514);
        let mut sent = [0i64; 3];
        for _ in 0..2000 {
            let p = take(&mut q, Instant::ZERO);
            sent[p.hash as usize] += i64::from(p.len);
            assert!((sent[1] - sent[2]).abs() <= 3028 + 1514, "{sent:?}");
        }
    }

    #[test]
    fn new_flows_go_before_old_ones() {
        let mut q = Fq::new(Params::default());
        put(&mut q, Instant::ZERO, 1, 0, 50, 1514);
        for _ in 0..11 {
            take(&mut q, Instant::ZERO);
        }
        put(&mut q, Instant::ZERO, 2, 100, 1, 100);
        assert_eq!(take(&mut q, Instant::ZERO).hash, 2);
        assert_eq!(take(&mut q, Instant::ZERO).hash, 1);
    }

    #[test]
    fn credit_outlives_idleness_and_is_refilled_after_the_refill_delay() {
        // A flow that spent its credit and was idle for 10 ms waits for the old flows; after 41 ms
        // it goes first.
        for (rest, first) in [(10 * MS, 1), (41 * MS, 2)] {
            let mut q = Fq::new(Params::default());
            put(&mut q, Instant::ZERO, 2, 0, 11, 1514);
            put(&mut q, Instant::ZERO, 1, 100, 90, 1514);
            for _ in 0..40 {
                take(&mut q, Instant::ZERO);
            }
            assert_eq!(
                q.flows.get(0).list(),
                FlowList::Off,
                "flow 2 left the rotation"
            );
            q.flows.get_mut(0).deficit = 0;
            put(&mut q, Instant::ZERO + rest, 2, 200, 1, 1514);
            assert_eq!(take(&mut q, Instant::ZERO + rest).hash, first);
        }
    }

    #[test]
    fn packets_beyond_ce_threshold_are_marked() {
        let mut q = Fq::new(Params {
            ce_threshold: MS,
            ..Params::default()
        });
        put(&mut q, Instant::ZERO, 1, 0, 2, 1514);
        assert_eq!(take(&mut q, Instant::from_millis(1)).ecn, Ecn::Ect0);
        assert_eq!(take(&mut q, Instant::from_secs(1)).ecn, Ecn::Ce);
        assert_eq!(q.marks(), 1);
    }
}
