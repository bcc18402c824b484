//! FQ-FIFO, the queue of LFQ: deficit round robin over flows, new ones first. Each flow has a FIFO
//! with its own limit, which a controller sets.
//!
//! Source: the LFQ paper's §III and its authors' `rl-queue-disc.cc`, which follows ns-3's FqCoDel.
//! Deviations:
//! - a flow that empties is handled as in RFC 8290, section 4.1.2 (the authors' code treats it as
//!   new if any other flow is);
//! - more than one flow (the paper's experiments had one). Flows in the same bucket share its limit
//!   and its FIFO. A bucket that is empty and has had no arrivals for `idle` is assigned to the
//!   next other flow whose packet arrives. Until then its own flow may return, however late, and
//!   finds it unchanged.

use crate::num;
use crate::parts::flows::{Flows, of_flow};
use crate::time::{Duration, Instant, SEC};
use crate::{
    Admission, Dequeued, Discipline, DropCause, Drops, Gauges, KnobSet, Knobs, MTU, Packet, Rng,
    SubGauges,
};

/// Parameters of [`FqFifo`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Buckets (default 1024, at least 1).
    pub flows: u32,
    /// Bytes per flow and round, 1..=2^20 (default 1514, one full-size packet).
    pub quantum: u32,
    /// Limit of every flow, packets, until a knob sets another (default 100, at least 1).
    pub limit: u32,
    /// Time without arrivals after which a bucket may be assigned to another flow (default 3 s, as
    /// sch_fq's garbage collection).
    pub idle: Duration,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            flows: 1024,
            quantum: MTU,
            limit: 100,
            idle: 3 * SEC,
        }
    }
}

impl Params {
    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.flows == 0 {
            return Err("flows must be at least 1");
        }
        if self.quantum == 0 || self.quantum > 1 << 20 {
            return Err("quantum must be 1 to 1048576 bytes");
        }
        if self.limit == 0 {
            return Err("limit must be at least 1 packet");
        }
        Ok(())
    }
}

/// State of a bucket.
#[derive(Clone, Debug, Default)]
struct Bucket {
    /// Hash of the flow that it is assigned to; None before the first.
    owner: Option<u32>,
    last_arrival: Instant,
    limit: u32,
    /// Active time up to the last arrival, ns, and the integral of the limit over it.
    active_ns: u128,
    limit_ns: u128,
}

impl Bucket {
    /// Time since the last arrival that counts as active: at most `idle`.
    #[inline]
    fn active(&self, now: Instant, idle: Duration) -> Duration {
        now.saturating_since(self.last_arrival).min(idle)
    }
}

/// The `fq_fifo` queue.
#[derive(Clone, Debug)]
pub struct FqFifo<P> {
    params: Params,
    flows: Flows<P>,
    buckets: Vec<Bucket>,
}

impl<P: Packet> FqFifo<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        Self {
            flows: Flows::new(params.flows),
            buckets: Vec::new(),
            params,
        }
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Updates the bucket of an arriving packet. Returns its flow, and whether the bucket has just
    /// been assigned to it.
    #[inline]
    fn claim(&mut self, now: Instant, packet: &P) -> (u32, bool) {
        let hash = packet.flow_hash();
        let flow = self.flows.flow_of(self.flows.scale(hash));
        let empty = self.flows.get(flow).packets() == 0;
        let bucket = of_flow(&mut self.buckets, flow);
        let active = bucket.active(now, self.params.idle);
        if let Some(owner) = bucket.owner {
            bucket.active_ns += u128::from(active.as_nanos());
            bucket.limit_ns += u128::from(active.as_nanos()) * u128::from(bucket.limit);
            if owner != hash && empty && active == self.params.idle {
                bucket.owner = None;
            }
        }
        let fresh = bucket.owner.is_none();
        if fresh {
            bucket.owner = Some(hash);
            bucket.limit = self.params.limit;
        }
        bucket.last_arrival = now;
        (flow, fresh)
    }

    /// Mean limit of the flows that were active within `idle`.
    fn mean_limit(&self, now: Instant) -> u32 {
        let idle = self.params.idle;
        let active = |b: &&Bucket| b.owner.is_some() && b.active(now, idle) < idle;
        let active = self.buckets.iter().filter(active);
        let (count, sum) = active.fold((0, 0), |(n, s), b| (n + 1, s + u64::from(b.limit)));
        match (sum + count / 2).checked_div(count) {
            Some(mean) => num::low_u32(mean),
            None => self.params.limit,
        }
    }
}

impl<P: Packet> Discipline<P> for FqFifo<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, _rng: &mut Rng, drops: &mut D) {
        let (flow, _) = self.claim(now, &packet);
        if self.flows.get(flow).packets() >= self.buckets[flow as usize].limit {
            return drops.drop(now, packet, DropCause::Overflow);
        }
        self.flows.activate(flow, self.params.quantum);
        self.flows.push(flow, packet).set_enqueued(now);
    }

    #[inline]
    fn dequeue<D: Drops<P>>(
        &mut self,
        _now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        if self.flows.is_empty() {
            return Dequeued::Empty;
        }
        while let Some(flow) = self.flows.next_turn(self.params.quantum) {
            let Some(packet) = self.flows.pop(flow) else {
                self.flows.found_empty(flow);
                continue;
            };
            self.flows.get_mut(flow).deficit -= packet.len().cast_signed();
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

    /// `limit_packets` is the mean over active flows.
    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.mean_limit(now);
        gauges.head_age = self.flows.head_age(now);
    }

    fn knobs(&self) -> KnobSet {
        KnobSet::LIMIT
    }

    /// Sets the limit of every flow, also of future ones.
    fn set_knobs(&mut self, knobs: &Knobs) {
        if let Some(limit) = knobs.limit_packets {
            self.params.limit = limit;
            for bucket in &mut self.buckets {
                bucket.limit = limit;
            }
        }
    }

    fn flows(&self) -> Option<&Flows<P>> {
        Some(&self.flows)
    }

    fn sub_knobs(&self) -> KnobSet {
        KnobSet::LIMIT
    }

    #[inline]
    fn admit(&mut self, now: Instant, packet: &P) -> Option<Admission> {
        let (flow, fresh) = self.claim(now, packet);
        Some(Admission {
            sub_queue: flow as usize,
            fresh,
        })
    }

    fn sub_gauges(&self, now: Instant, sub_queue: usize) -> Option<SubGauges> {
        let bucket = self.buckets.get(sub_queue)?;
        let known = bucket.owner.is_some();
        let active = u128::from(
            (if known {
                bucket.active(now, self.params.idle)
            } else {
                Duration::ZERO
            })
            .as_nanos(),
        );
        Some(SubGauges {
            limit_packets: bucket.limit,
            active_ns: bucket.active_ns + active,
            limit_ns: bucket.limit_ns + active * u128::from(bucket.limit),
            ..self.flows.gauges(now, sub_queue)?
        })
    }

    fn set_sub_knobs(&mut self, sub_queue: usize, knobs: &Knobs) {
        if let (Some(limit), Some(bucket)) = (knobs.limit_packets, self.buckets.get_mut(sub_queue))
        {
            bucket.limit = limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Ecn, TestPacket};
    use crate::time::MS;

    type Dropped = Vec<(TestPacket, DropCause)>;

    fn rng() -> Rng {
        Rng::new(1, "fq_fifo")
    }

    fn queue(limit: u32) -> FqFifo<TestPacket> {
        FqFifo::new(Params {
            limit,
            ..Params::default()
        })
    }

    fn limit(packets: u32) -> Knobs {
        Knobs {
            limit_packets: Some(packets),
            ..Knobs::default()
        }
    }

    /// Hash of a flow from 0 to 7; each of these has its own of the 1024 buckets.
    fn hash(flow: u32) -> u32 {
        flow << 29
    }

    fn packet(hash: u32) -> TestPacket {
        TestPacket::new(0, 1514, hash, Ecn::NotEct)
    }

    fn put(q: &mut FqFifo<TestPacket>, now: Instant, hash: u32, n: u64) -> usize {
        let mut drops: Dropped = Vec::new();
        for _ in 0..n {
            q.enqueue(now, packet(hash), &mut rng(), &mut drops);
        }
        assert!(drops.iter().all(|d| d.1 == DropCause::Overflow));
        drops.len()
    }

    fn take(q: &mut FqFifo<TestPacket>, now: Instant) -> Option<u32> {
        match q.dequeue(now, &mut rng(), &mut Vec::new()) {
            Dequeued::Packet(p) => Some(p.hash),
            _ => None,
        }
    }

    #[test]
    fn each_flow_has_its_limit_and_leaves_the_others_alone() {
        let mut q = queue(4);
        assert_eq!(put(&mut q, Instant::ZERO, hash(1), 10), 6);
        assert_eq!(put(&mut q, Instant::ZERO, hash(2), 3), 0);
        assert_eq!(q.len(), 7);
        q.set_sub_knobs(1, &limit(5));
        assert_eq!(put(&mut q, Instant::ZERO, hash(2), 3), 1);
        assert_eq!(put(&mut q, Instant::ZERO, hash(1), 1), 1);
    }

    #[test]
    fn flows_take_turns_by_bytes() {
        let mut q = queue(100);
        put(&mut q, Instant::ZERO, hash(1), 20);
        put(&mut q, Instant::ZERO, hash(2), 20);
        let served: Vec<u32> = (0..6)
            .map(|_| take(&mut q, Instant::from_millis(1)).unwrap() >> 29)
            .collect();
        assert_eq!(served, [1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn the_knob_of_the_whole_queue_holds_for_every_flow() {
        let mut q = queue(5);
        assert_eq!(put(&mut q, Instant::ZERO, hash(1), 8), 3);
        // Shrinking below the backlog drops nothing: queued packets are sent.
        q.set_knobs(&limit(2));
        assert_eq!(q.len(), 5);
        assert_eq!(put(&mut q, Instant::ZERO, hash(1), 1), 1);
        assert_eq!(put(&mut q, Instant::ZERO, hash(2), 3), 1);
        for _ in 0..6 {
            take(&mut q, Instant::from_millis(1));
        }
        assert_eq!(
            put(&mut q, Instant::from_millis(1), hash(1), 3),
            2,
            "one was left below the limit of two"
        );
    }

    #[test]
    fn the_gauge_is_the_mean_limit_of_active_flows() {
        let mut q = queue(40);
        let read = |q: &FqFifo<TestPacket>, now| {
            let mut g = Gauges::default();
            q.gauges(now, &mut g);
            g.limit_packets
        };
        assert_eq!(read(&q, Instant::ZERO), 40);
        put(&mut q, Instant::ZERO, hash(1), 1);
        q.set_sub_knobs(0, &limit(10));
        assert_eq!(read(&q, Instant::from_secs(1)), 10);
        put(&mut q, Instant::from_secs(2), hash(2), 1);
        assert_eq!(read(&q, Instant::from_secs(2)), 25);
        assert_eq!(
            read(&q, Instant::from_secs(4)),
            40,
            "the first was silent for 3 s"
        );
    }

    #[test]
    fn a_sub_queues_integral_is_its_limit_over_its_active_time() {
        let mut q = queue(40);
        put(&mut q, Instant::ZERO, hash(1), 1);
        put(&mut q, Instant::from_secs(1), hash(2), 1);
        q.set_sub_knobs(1, &limit(10));
        let s = u128::from(SEC.as_nanos());
        let read = |q: &FqFifo<TestPacket>, now, sub| {
            let g = q.sub_gauges(now, sub).unwrap();
            (g.limit_ns, g.active_ns)
        };
        assert_eq!(read(&q, Instant::from_secs(2), 0), (80 * s, 2 * s));
        assert_eq!(read(&q, Instant::from_secs(2), 1), (10 * s, s));
        assert_eq!(
            read(&q, Instant::from_secs(100), 0),
            (120 * s, 3 * s),
            "3 s of silence"
        );
        assert_eq!(q.sub_gauges(Instant::ZERO, 2), None);
    }

    #[test]
    fn admission_may_be_requested_twice() {
        let (mut once, mut twice) = (queue(40), queue(40));
        for k in 0..5 {
            put(&mut once, Instant::from_secs(k), hash(1), 1);
            let first = twice
                .admit(Instant::from_secs(k), &packet(hash(1)))
                .unwrap();
            assert_eq!((first.sub_queue, first.fresh), (0, k == 0));
            assert!(
                !twice
                    .admit(Instant::from_secs(k), &packet(hash(1)))
                    .unwrap()
                    .fresh
            );
            put(&mut twice, Instant::from_secs(k), hash(1), 1);
            assert_eq!(
                once.sub_gauges(Instant::from_secs(k), 0),
                twice.sub_gauges(Instant::from_secs(k), 0),
                "second {k}"
            );
        }
    }

    #[test]
    fn a_bucket_is_given_away_only_to_another_flow_and_only_when_idle() {
        // The flow that arrives after a second of traffic, the pause, whether a packet is left in
        // the bucket, and whether it is assigned the bucket.
        for (flow, pause, left, given) in [
            (2, 3 * SEC, false, true),
            (2, 2 * SEC, false, false),
            (2, 3 * SEC, true, false),
            (1, 3 * SEC, false, false),
            (1, 1000 * SEC, false, false),
        ] {
            let mut q = FqFifo::new(Params {
                flows: 1,
                ..Params::default()
            });
            for k in 0..100 {
                put(&mut q, Instant::from_millis(k * 10), hash(1), 1);
                take(&mut q, Instant::from_millis(k * 10));
            }
            q.set_sub_knobs(0, &limit(7));
            if left {
                put(&mut q, Instant::from_millis(990), hash(1), 1);
            }
            let now = Instant::ZERO + 990 * MS + pause;
            let admission = q.admit(now, &packet(hash(flow))).unwrap();
            assert_eq!(admission.fresh, given, "flow {flow} after {pause:?} ns");
            let limit = q.sub_gauges(now, 0).unwrap().limit_packets;
            assert_eq!(limit, if given { 100 } else { 7 });
        }
    }

    #[test]
    fn the_state_is_bounded_by_the_buckets() {
        let mut q = FqFifo::new(Params {
            flows: 16,
            idle: MS,
            ..Params::default()
        });
        let mut rng = rng();
        for k in 0..20_000 {
            put(&mut q, Instant::ZERO + k * MS / 4, rng.u32(), 1);
            take(&mut q, Instant::ZERO + k * MS / 4);
        }
        assert_eq!((q.buckets.len(), q.sub_queues()), (16, 16));
    }
}
