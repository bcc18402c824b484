//! `lfq`: deficit round robin over flows, new ones first, each a drop-tail FIFO with a limit of its own that a network sets.
//!
//! Source: the LFQ paper's §III and its authors' `rl-queue-disc.cc`, which follows ns-3's FqCoDel. Deviations:
//! - a flow that empties is handled as RFC 8290, section 4.1.2 has it (the code takes it for new if any other flow is);
//! - more than one flow: the paper's experiments had one. What is remembered of a flow is bounded by the buckets. Flows that meet
//!   in a bucket share limit and features, as they share the FIFO; a bucket that was empty and silent for `idle` starts afresh
//!   when another flow comes to it. Its own flow finds what it left, however late.

use std::collections::VecDeque;

use crate::control::lfq::{Decision, Experiment, FEATURES, INITIAL, Lfq as Controller, State};
use crate::flows::{Flows, of_flow};
use crate::qdisc::Discipline;
use crate::{DropCause, Drops, Gauges, Got, Knobs, MTU, Nanos, Packet, Qdisc, Rng, SEC};

/// Parameters of [`Lfq`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Buckets (default 1024, at least 1).
    pub flows: u32,
    /// Bytes per flow and round, 1..=2^20 (default 1514, one full-size packet).
    pub quantum: u32,
    /// The same limit for every flow, packets, in place of the network's (default: none).
    pub limit: Option<u32>,
    /// A bucket that was silent for so long may go to another flow (default 3 s, as sch_fq's collection of garbage).
    pub idle: Nanos,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            flows: 1024,
            quantum: MTU,
            limit: None,
            idle: 3 * SEC,
        }
    }
}

impl Params {
    /// What is out of range, if anything.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.flows == 0 {
            return Err("flows must be at least 1");
        }
        if self.quantum == 0 || self.quantum > 1 << 20 {
            return Err("quantum must be 1 to 1048576 bytes");
        }
        if self.limit == Some(0) {
            return Err("limit must be at least 1 packet");
        }
        Ok(())
    }
}

/// A bucket's flow.
#[derive(Clone, Debug, Default)]
struct Bucket {
    /// Hash of the flow that it was given to; None before the first.
    owner: Option<u32>,
    last_arrival: Nanos,
    limit: u32,
    state: State,
}

impl Bucket {
    /// Time since the last arrival, as far as it counts as activity.
    #[inline]
    fn active(&self, now: Nanos, idle: Nanos) -> Nanos {
        now.saturating_sub(self.last_arrival).min(idle)
    }
}

/// The queue.
#[derive(Clone, Debug)]
pub struct Lfq<P> {
    params: Params,
    flows: Flows<P>,
    buckets: Vec<Bucket>,
    /// Who sets limits where `params.limit` does not.
    controller: Option<Box<Controller>>,
    /// Limit times time and time, summed over active flows up to each one's last arrival.
    limit_ns: u128,
    active_ns: u128,
    /// Packets that came while an answer from outside was awaited, the one that raised the question first.
    waiting: VecDeque<P>,
    /// The next packet is the first of them.
    resuming: bool,
}

impl<P: Packet> Lfq<P> {
    /// An empty queue. Without a controller every flow's limit is `params.limit` (the controller's first one without it).
    pub fn new(params: Params, controller: Option<Controller>) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        Self {
            flows: Flows::new(params.flows),
            buckets: Vec::new(),
            controller: controller.map(Box::new),
            params,
            limit_ns: 0,
            active_ns: 0,
            waiting: VecDeque::new(),
            resuming: false,
        }
    }

    /// Takes limits from outside in the network's place, or from the network again; false without a network.
    pub fn ask_outside(&mut self, outside: bool) -> bool {
        let controller = self.controller.as_mut();
        controller.map(|c| c.ask_outside(outside)).is_some()
    }

    /// What the network would read, where a packet waits for an answer from outside.
    pub fn question(&self) -> Option<&[f32; FEATURES]> {
        self.controller.as_ref()?.question()
    }

    /// Answers it. The caller then offers, one by one, what [`Lfq::resume`] gives.
    pub fn answer(&mut self, limit: u32) {
        if let Some(controller) = &mut self.controller {
            controller.answer(limit);
        }
    }

    /// The next packet that waits, if no question is open.
    pub fn resume(&mut self) -> Option<P> {
        if self.question().is_some() {
            return None;
        }
        let next = self.waiting.pop_front();
        self.resuming = next.is_some();
        next
    }

    /// Makes an experiment; false without a network.
    pub fn set_experiment(&mut self, experiment: Experiment) -> bool {
        let controller = self.controller.as_mut();
        controller
            .map(|c| c.set_experiment(Some(experiment)))
            .is_some()
    }

    /// What the experiment decided and measured up to now, if it has decided.
    pub fn decision(&mut self, now: Nanos) -> Option<&Decision> {
        let held = self.flows.len() as u32;
        let decision = self
            .controller
            .as_mut()?
            .experiment_mut()?
            .decision
            .as_mut()?;
        decision.settle(now, held);
        Some(decision)
    }

    /// Mean limit of the flows that were active within `idle`.
    fn mean_limit(&self, now: Nanos) -> u32 {
        let idle = self.params.idle;
        let active = |b: &&Bucket| b.owner.is_some() && b.active(now, idle) < idle;
        let active = self.buckets.iter().filter(active);
        let (count, sum) = active.fold((0, 0), |(n, s), b| (n + 1, s + u64::from(b.limit)));
        match (sum + count / 2).checked_div(count) {
            Some(mean) => mean as u32,
            None => self.params.limit.unwrap_or(INITIAL),
        }
    }
}

impl<P: Packet> From<Lfq<P>> for Qdisc<P> {
    fn from(q: Lfq<P>) -> Self {
        Qdisc::Lfq(q)
    }
}

impl<P: Packet> Discipline<P> for Lfq<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Nanos, packet: P, _rng: &mut Rng, drops: &mut D) {
        if !std::mem::take(&mut self.resuming) && !self.waiting.is_empty() {
            return self.waiting.push_back(packet);
        }
        let hash = packet.flow_hash();
        let flow = self.flows.flow_of(self.flows.scale(hash));
        let held = self.flows.get(flow).packets();
        let bucket = of_flow(&mut self.buckets, flow);
        let active = bucket.active(now, self.params.idle);
        if let Some(owner) = bucket.owner {
            self.active_ns += u128::from(active);
            self.limit_ns += u128::from(active) * u128::from(bucket.limit);
            if owner != hash && held == 0 && active == self.params.idle {
                bucket.owner = None;
            }
        }
        if bucket.owner.is_none() {
            bucket.owner = Some(hash);
            bucket.state = State::new(now);
        }
        bucket.last_arrival = now;
        let joins = match (self.params.limit, &mut self.controller) {
            (None, Some(controller)) => {
                let joins = if controller.asks_outside() {
                    match controller.arrival_or_question(now, &mut bucket.state, held) {
                        Some(joins) => joins,
                        None => return self.waiting.push_front(packet),
                    }
                } else {
                    controller.arrival(now, &mut bucket.state, held)
                };
                bucket.limit = bucket.state.limit();
                joins
            }
            (limit, _) => {
                bucket.limit = limit.unwrap_or(bucket.state.limit());
                held < bucket.limit
            }
        };
        if !joins {
            return drops.drop(now, packet, DropCause::Overflow);
        }
        self.flows.activate(flow, self.params.quantum);
        self.flows.push(flow, packet).set_enqueued(now);
    }

    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, now: Nanos, _rng: &mut Rng, _drops: &mut D) -> Got<P> {
        if self.flows.is_empty() {
            return Got::Empty;
        }
        while let Some(flow) = self.flows.next_turn(self.params.quantum) {
            let Some(packet) = self.flows.pop(flow) else {
                self.flows.found_empty(flow);
                continue;
            };
            let f = self.flows.get_mut(flow);
            f.deficit -= packet.len() as i32;
            let held = f.packets() + 1;
            if let (None, Some(controller)) = (self.params.limit, &mut self.controller) {
                let state = &mut of_flow(&mut self.buckets, flow).state;
                controller.departure(now, state, held, packet.len());
            }
            return Got::Packet(packet);
        }
        Got::Empty
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
    fn gauges(&self, now: Nanos, gauges: &mut Gauges) {
        gauges.limit_packets = self.mean_limit(now);
        gauges.head_age = self.flows.head_age(now);
    }

    /// A limit set from outside holds for every flow from then on.
    fn set_knobs(&mut self, knobs: &Knobs) {
        if let Some(limit) = knobs.limit_packets {
            self.params.limit = Some(limit);
            for bucket in &mut self.buckets {
                bucket.limit = limit;
            }
        }
    }

    fn limit_integral(&self, now: Nanos) -> Option<(u128, u128)> {
        let idle = self.params.idle;
        let known = self.buckets.iter().filter(|b| b.owner.is_some());
        Some(
            known.fold((self.limit_ns, self.active_ns), |(sum, time), b| {
                let active = u128::from(b.active(now, idle));
                (sum + active * u128::from(b.limit), time + active)
            }),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::lfq::tests::{constant, network};
    use crate::control::lfq::{self, LIMITS};
    use crate::packet::{Ecn, TestPacket};
    use crate::{MS, NEVER};

    type Dropped = Vec<(TestPacket, DropCause)>;

    fn rng() -> Rng {
        Rng::new(1, "lfq")
    }

    fn queue(params: Params, policy: crate::policy::Policy) -> Lfq<TestPacket> {
        let controller = lfq::Lfq::new(lfq::Params::default(), policy).unwrap();
        Lfq::new(params, Some(controller))
    }

    /// Hash of a flow that meets no other one below 8 in 1024 buckets.
    fn hash(flow: u32) -> u32 {
        flow << 29
    }

    fn put(q: &mut Lfq<TestPacket>, now: Nanos, hash: u32, n: u64) -> usize {
        let mut drops: Dropped = Vec::new();
        for id in 0..n {
            let packet = TestPacket::new(id, 1514, hash, Ecn::NotEct);
            q.enqueue(now, packet, &mut rng(), &mut drops);
        }
        assert!(drops.iter().all(|d| d.1 == DropCause::Overflow));
        drops.len()
    }

    fn take(q: &mut Lfq<TestPacket>, now: Nanos) -> Option<u32> {
        match q.dequeue(now, &mut rng(), &mut Vec::new()) {
            Got::Packet(p) => Some(p.hash),
            _ => None,
        }
    }

    #[test]
    fn each_flow_has_its_limit_and_leaves_the_others_alone() {
        let mut q = queue(Params::default(), constant(4.0));
        assert_eq!(put(&mut q, 0, hash(1), 10), 6);
        assert_eq!(put(&mut q, 0, hash(2), 3), 0);
        assert_eq!(q.len(), 7);
    }

    #[test]
    fn flows_take_turns_by_bytes() {
        let mut q = queue(Params::default(), constant(100.0));
        put(&mut q, 0, hash(1), 20);
        put(&mut q, 0, hash(2), 20);
        let served: Vec<u32> = (0..6).map(|_| take(&mut q, MS).unwrap() >> 29).collect();
        assert_eq!(served, [1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn a_fixed_limit_holds_for_every_flow_and_a_knob_moves_it() {
        let fixed = Params {
            limit: Some(5),
            ..Params::default()
        };
        let mut q = Lfq::new(fixed, None);
        assert_eq!(put(&mut q, 0, hash(1), 8), 3);
        // Shrinking below the backlog drops nothing: what is there drains.
        q.set_knobs(&Knobs {
            limit_packets: Some(2),
            ..Knobs::default()
        });
        assert_eq!(q.len(), 5);
        assert_eq!(put(&mut q, 0, hash(1), 1), 1);
        assert_eq!(put(&mut q, 0, hash(2), 3), 1);
        for _ in 0..6 {
            take(&mut q, MS);
        }
        assert_eq!(
            put(&mut q, MS, hash(1), 3),
            2,
            "one was left below the limit of two"
        );
    }

    #[test]
    fn the_gauge_is_the_mean_limit_of_active_flows() {
        let mut q = queue(Params::default(), constant(40.0));
        let read = |q: &Lfq<TestPacket>, now| {
            let mut g = Gauges::default();
            q.gauges(now, &mut g);
            g.limit_packets
        };
        assert_eq!(read(&q, 0), INITIAL);
        put(&mut q, 0, hash(1), 1);
        assert_eq!(read(&q, SEC), 40);
        q.buckets[0].limit = 10;
        put(&mut q, 2 * SEC, hash(2), 1);
        assert_eq!(read(&q, 2 * SEC), 25);
        assert_eq!(read(&q, 4 * SEC), 40, "the first was silent for 3 s");
    }

    #[test]
    fn the_integral_is_each_flows_limit_over_its_active_time() {
        let mut q = queue(Params::default(), constant(40.0));
        put(&mut q, 0, hash(1), 1);
        put(&mut q, SEC, hash(2), 1);
        q.buckets[1].limit = 10;
        let s = u128::from(SEC);
        assert_eq!(q.limit_integral(2 * SEC), Some((90 * s, 3 * s)));
        assert_eq!(
            q.limit_integral(100 * SEC),
            Some((150 * s, 6 * s)),
            "3 s each"
        );
    }

    #[test]
    fn flows_that_meet_in_a_bucket_share_its_limit_and_its_features() {
        let one = Params {
            flows: 1,
            ..Params::default()
        };
        let (mut both, mut alone) = (
            queue(one.clone(), network(1, 9.0)),
            queue(one, network(1, 9.0)),
        );
        for k in 0..200 {
            put(&mut both, k * MS, hash(k as u32 % 2), 1);
            put(&mut alone, k * MS, hash(0), 1);
            if k % 3 > 0 {
                take(&mut both, k * MS);
                take(&mut alone, k * MS);
            }
        }
        assert_eq!(both.buckets.len(), 1);
        assert_eq!(both.buckets[0].state, alone.buckets[0].state);
    }

    #[test]
    fn a_bucket_starts_afresh_only_for_another_flow_and_only_when_idle() {
        let one = Params {
            flows: 1,
            ..Params::default()
        };
        // Which flow comes after a second of traffic, when, with a packet left in the bucket: does it start afresh?
        for (flow, pause, left, afresh) in [
            (2, 3 * SEC, false, true),
            (2, 2 * SEC, false, false),
            (2, 3 * SEC, true, false),
            (1, 3 * SEC, false, false),
            (1, 1000 * SEC, false, false),
        ] {
            let mut q = queue(one.clone(), network(2, 9.0));
            for k in 0..100 {
                put(&mut q, k * 10 * MS, hash(1), 1);
                take(&mut q, k * 10 * MS);
            }
            if left {
                put(&mut q, 990 * MS, hash(1), 1);
            }
            let now = 990 * MS + pause;
            put(&mut q, now, hash(flow), 1);
            let mut fresh = queue(one.clone(), network(2, 9.0));
            put(&mut fresh, now, hash(flow), 1);
            let same = q.buckets[0].state == fresh.buckets[0].state;
            assert_eq!(same, afresh, "flow {flow} after {pause} ns");
            assert_eq!(q.buckets[0].owner == Some(hash(2)), afresh);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_by_the_buckets() {
        let few = Params {
            flows: 16,
            idle: MS,
            ..Params::default()
        };
        let mut q = queue(few, network(3, 9.0));
        let mut rng = rng();
        for k in 0..20_000 {
            put(&mut q, k * MS / 4, rng.u32(), 1);
            take(&mut q, k * MS / 4);
        }
        assert_eq!(q.buckets.len(), 16);
        assert!(
            q.buckets
                .iter()
                .all(|b| (LIMITS.0..=LIMITS.1).contains(&b.limit))
        );
        let (sum, time) = q.limit_integral(NEVER).unwrap();
        assert!(sum >= time && time > 0);
    }

    #[test]
    fn one_network_sets_different_limits_for_different_flows() {
        let mut q = queue(Params::default(), network(4, 12.0));
        let mut apart = 0;
        for k in 0..3000u64 {
            put(&mut q, k * MS, hash(1), 1);
            if k % 10 == 0 {
                put(&mut q, k * MS, hash(2), 20);
            }
            take(&mut q, k * MS);
            take(&mut q, k * MS);
            apart += u32::from(q.buckets[0].limit != q.buckets[1].limit);
        }
        assert!(apart > 300, "{apart}");
    }
}
