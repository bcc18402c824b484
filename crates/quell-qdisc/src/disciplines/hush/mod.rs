//! `hush`: flow queues served by deadline under one drop and mark law, whose settings a trained
//! policy computes from measurements of the link.
//!
//! - Order (`order.rs`): of the packets at the heads of the flow queues, the one with the earliest
//!   deadline is sent. A deadline is the packet's time of arrival plus its flow's handicap, which
//!   grows with the flow's share of the link over ten round trips. So the tail of the sojourn is
//!   close to that of a FIFO, and a flow with a small share is served first.
//! - Law ([`law`]): shaped like CoDel's, but it compares the time in which the whole backlog drains
//!   with a target. Experiments with a law for each flow queue gave far worse results.
//! - Victim (`scores.rs`): the law marks or drops at the head of the flow with the highest score,
//!   its bytes queued plus shares of its service, recently and over ten round trips. With the bytes
//!   queued alone, flows with one packet each would have equal scores, and the same flow would be
//!   chosen every time.
//! - Policy ([`policy`]): sets the law's parameters every quarter of a round trip (2 to 100 ms)
//!   from the gauges in [`link`].
//! - ECN: the law marks ECN-capable packets. It drops those of a flow with a small window, because
//!   a mark would not slow such a flow down enough. ECT(1) packets are also marked if their sojourn
//!   exceeds a step threshold.
//! - Guard ([`guard`]): checks the policy. While the policy is not trusted, fq_codel's law and
//!   deficit round robin serve the same queues.
//!
//! All decisions are computed in integers, so they are the same on every machine. Source: quell's
//! own; docs/explanation/hush.md.

pub mod fixed;
pub mod guard;
pub mod law;
pub mod link;
pub mod model;
mod order;
pub mod policy;
mod scores;
mod stand_in;

use std::sync::Arc;

use guard::{Guard, Reading};
use law::{Law, Settings, Verdict};
use link::Link;
pub use model::Model;
use order::Deadlines;
use policy::Policy;
use scores::{Scores, Shares};
use stand_in::StandIn;

use crate::control::guard::Stats;
use crate::num;
use crate::parts::flows::{FlowId, FlowList, Flows, of_flow};
use crate::time::{Duration, Instant};
use crate::{
    Admission, Dequeued, Discipline, DropCause, Drops, Ecn, Gauges, KnobSet, Knobs, MTU, Packet,
    PolicyGauges, Rng,
};

/// The order in which packets leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By deadline: between the order of arrival and fair queueing; see `order.rs`.
    #[default]
    Fair,
    /// In the order of arrival (`kappa` and `lead` 0); the victim is the flow with the highest
    /// score. While the policy is not trusted: deficit round robin.
    Arrival,
    /// One queue for all flows, in the order of arrival; the law acts on its head.
    Single,
}

/// Parameters of [`Hush`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets in the whole queue (default 10240, at least 1).
    pub limit: u32,
    /// Flow queues (hash buckets), 1 to 65536 (default 1024).
    pub flows: u32,
    /// Bytes per flow and round of deficit round robin, which serves while the policy is not
    /// trusted: 256 to 2^20 (default 1514, one full-size packet).
    pub quantum: u32,
    /// Bytes of memory in the whole queue, at most 2^31 (default 32 MiB).
    pub memory_limit: u64,
    /// Mark ECN-capable packets (default true).
    pub ecn: bool,
    /// The order in which packets leave (default: [`Order::Fair`]).
    pub order: Order,
    /// The policy's weights and constants (default: the model that quell ships).
    pub model: Arc<Model>,
    /// fq_codel's law and deficit round robin serve the queues; the policy's settings are computed
    /// and counted, but not applied (default off).
    pub dry_run: bool,
    /// Mark the next ECN-capable arrival of the flow instead of the packet at its head, as in a BPF
    /// program in Linux, which cannot write queued packets. While the policy is not trusted,
    /// fq_codel's law then drops only (default off).
    pub mark_next: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit: 10_240,
            flows: 1024,
            quantum: MTU,
            memory_limit: 32 << 20,
            ecn: true,
            order: Order::Fair,
            model: Model::shipped(),
            dry_run: false,
            mark_next: false,
        }
    }
}

impl Params {
    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first parameter that is out of range.
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
            return Err("memlimit must be at most 2147483648 bytes");
        }
        Ok(())
    }
}

/// Most packets that a full queue drops from one flow before it searches for the next victim, as in
/// fq_codel.
const BATCH: u32 = 64;

/// The `hush` queue.
#[derive(Clone, Debug)]
pub struct Hush<P> {
    params: Params,
    /// In [`Order::Single`] all packets are in flow 0.
    flows: Flows<P>,
    /// Valid while `by_deadline`; otherwise the flows are in the lists of deficit round robin, or
    /// all packets are in flow 0.
    deadlines: Deadlines,
    scores: Box<Scores>,
    shares: Shares,
    /// Time at which the gauges or the policy are due next, whichever is earlier.
    due: Instant,
    link: Link,
    law: Law,
    policy: Box<Policy>,
    settings: Settings,
    guard: Box<Guard>,
    /// The guard's verdict, copied here because it is read for each packet.
    trusted: bool,
    /// Flows are served by deadline: the policy is trusted, and the order is not [`Order::Single`].
    by_deadline: bool,
    stand_in: Box<StandIn>,
    marks: u64,
    /// Marks still to be made on each flow's next arrivals ([`Params::mark_next`]).
    deferred_marks: Vec<u32>,
}

impl<P: Packet> Hush<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        Self {
            flows: Flows::new(params.flows),
            deadlines: Deadlines::default(),
            scores: Box::default(),
            shares: Shares::default(),
            due: Instant::ZERO,
            link: Link::default(),
            law: Law::default(),
            policy: Box::default(),
            settings: Settings {
                target: Duration::MAX,
                wait: Duration::MAX,
                hold: Duration::MAX,
                cap: Duration::MAX,
                step: Duration::MAX,
                power: 0,
            },
            guard: Box::new(Guard::new(params.dry_run)),
            trusted: !params.dry_run,
            by_deadline: !params.dry_run && params.order != Order::Single,
            stand_in: Box::new(StandIn::new(params.ecn && !params.mark_next)),
            marks: 0,
            deferred_marks: Vec::new(),
            params,
        }
    }

    /// The policy's last settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The gauges that the policy reads.
    pub fn link(&self) -> &Link {
        &self.link
    }

    #[inline]
    fn full(&self) -> bool {
        self.flows.len() > self.params.limit as usize
            || self.flows.memory() > self.params.memory_limit
    }

    /// Sets a flow's deadline from the packet at its head; removes an empty flow from the order.
    #[inline(always)]
    fn place(&mut self, flow: FlowId) {
        match self.flows.front(flow) {
            Some(head) => self
                .deadlines
                .place(flow, head.enqueued(), &self.link, false),
            None => self.deadlines.remove(flow),
        }
    }

    /// The flow with the highest score ([`Shares::score`]); in [`Order::Single`] always flow 0.
    /// `None` if nothing is queued.
    fn victim(&mut self) -> Option<FlowId> {
        if self.flows.is_empty() {
            return None;
        }
        match self.params.order {
            Order::Single => Some(0),
            _ => {
                let (flows, link, shares) = (&self.flows, &self.link, &self.shares);
                let of = |flow| shares.score(flows, link, flow);
                Some(self.scores.highest(of))
            }
        }
    }

    /// Drops the packet at the head of a flow; returns its bytes, 0 if there is none.
    fn drop_from<D: Drops<P>>(
        &mut self,
        now: Instant,
        flow: FlowId,
        cause: DropCause,
        drops: &mut D,
    ) -> u32 {
        let Some(packet) = self.flows.pop(flow) else {
            return 0;
        };
        drops.drop(now, packet, cause);
        packet.len()
    }

    /// Drops until the limits hold again. From each victim it drops just over half of its bytes, or
    /// [`BATCH`] packets if that is less, so that there is one search for many drops.
    #[cold]
    fn drop_batch<D: Drops<P>>(&mut self, now: Instant, drops: &mut D) {
        while self.full() {
            let Some(flow) = self.victim() else {
                return;
            };
            let half = u64::from(self.flows.backlog(flow) / 2);
            let (mut packets, mut bytes) = (0, 0);
            while packets < BATCH && bytes <= half && !self.flows.is_empty() {
                bytes += u64::from(self.drop_from(now, flow, DropCause::Overflow, drops));
                packets += 1;
            }
            if self.by_deadline {
                self.place(flow);
            }
        }
    }

    /// Updates the gauges if they are due; then, once the rate is known, lets the policy set the
    /// law if it is due.
    #[cold]
    fn learn(&mut self, now: Instant) {
        if now >= self.link.due {
            self.link.update(now);
        }
        if self.link.rate().is_zero() {
            self.due = self.link.due;
            return;
        }
        if now >= self.policy.due {
            let (model, link) = (&self.params.model, &self.link);
            self.settings = self.policy.decide(now, model, link, &mut self.law);
            if self.params.order == Order::Fair {
                self.deadlines
                    .scale(model.kappa, model.lead, self.settings.target);
            }
            if self.shares.follow(model, self.settings.target) {
                (0..num::count(self.flows.count())).for_each(|flow| self.scores.raise(flow));
            }
            self.supervise(now);
        }
        self.law.tune(&self.settings, self.link.rate());
        self.due = self.link.due.min(self.policy.due);
    }

    /// The packet that would be sent next.
    fn next_head(&self) -> Option<&P> {
        let first = |list| self.flows.first(list);
        let flow = match self.params.order {
            _ if self.by_deadline => self.deadlines.next(),
            Order::Single => Some(0),
            _ => first(FlowList::New).or_else(|| first(FlowList::Old)),
        };
        self.flows.front(flow?)
    }

    /// Reports the policy's decision to the guard and follows the guard's verdict.
    fn supervise(&mut self, now: Instant) {
        let reading = Reading {
            rate: self.link.rate(),
            round_trip: self.link.round_trip(),
            head_age: self
                .next_head()
                .map_or(Duration::ZERO, |head| now.saturating_since(head.enqueued())),
            queued: self.flows.bytes(),
            sent: self.link.sent(),
        };
        let target = self.stand_in.target();
        if (self.guard).check(now, &reading, &self.settings, target) {
            // The policy is trusted again: the law's state is from before it was suspended.
            self.law = Law::default();
        }
        if self.trusted != self.guard.trusts() {
            self.trusted = !self.trusted;
            self.change_order();
        }
    }

    /// Moves the flows from the order by deadline to the lists of deficit round robin, or back.
    #[cold]
    fn change_order(&mut self) {
        if !self.trusted {
            self.stand_in.forget();
        }
        if self.params.order == Order::Single {
            return;
        }
        self.by_deadline = self.trusted;
        for flow in 0..num::count(self.flows.count()) {
            if self.trusted {
                self.flows.unlink(flow);
                self.place(flow);
            } else if self.flows.get(flow).packets() > 0 {
                self.flows.activate(flow, self.params.quantum);
            }
        }
    }

    /// Applies the law before a packet leaves.
    #[inline(always)]
    fn apply_law<D: Drops<P>>(&mut self, now: Instant, drops: &mut D) {
        let verdict = self.law.judge(now, self.flows.bytes(), &self.settings);
        if verdict != Verdict::Pass {
            self.apply_verdict(now, verdict, drops);
        }
    }

    /// Drops packets while the backlog is above the cap, or marks or drops one packet.
    #[cold]
    fn apply_verdict<D: Drops<P>>(&mut self, now: Instant, mut verdict: Verdict, drops: &mut D) {
        // The last packet is neither marked nor dropped, whatever its size.
        while verdict != Verdict::Pass && self.flows.len() > 1 {
            self.law.actions += 1;
            let Some(flow) = self.victim() else {
                return;
            };
            if verdict == Verdict::Act {
                self.act(now, flow, drops);
                return;
            }
            self.drop_head(now, flow, drops);
            verdict = self.law.judge(now, self.flows.bytes(), &self.settings);
        }
    }

    /// Drops a flow's head because the law decided so.
    fn drop_head<D: Drops<P>>(&mut self, now: Instant, flow: FlowId, drops: &mut D) {
        self.drop_from(now, flow, DropCause::Early, drops);
        if self.params.order != Order::Single {
            self.place(flow);
        }
    }

    /// Marks a flow's head if it is ECN-capable and the flow's window is at least the model's
    /// `window` (which [`Order::Single`] does not check); otherwise drops it.
    fn act<D: Drops<P>>(&mut self, now: Instant, flow: FlowId, drops: &mut D) {
        let large = || {
            let window = self.link.window(flow, self.flows.backlog(flow));
            let least = i128::from(self.params.model.window) * i128::from(MTU);
            i128::from(window) << fixed::Q >= least
        };
        if self.params.ecn
            && (self.params.order == Order::Single || large())
            && self.mark_head(flow)
        {
            self.marks += 1;
            return;
        }
        self.drop_head(now, flow, drops);
    }

    /// Marks the head of a queue, or with [`Params::mark_next`] notes a mark for its flow's next
    /// arrival. False if the head is not ECN-capable.
    fn mark_head(&mut self, queue: FlowId) -> bool {
        let Some(head) = self.flows.front_mut(queue) else {
            return false;
        };
        if !self.params.mark_next {
            return head.mark();
        }
        let (ecn, hash) = (head.ecn(), head.flow_hash());
        if !matches!(ecn, Ecn::NotEct | Ecn::Ce) {
            let flow = self.flows.flow_of(self.flows.scale(hash));
            *of_flow(&mut self.deferred_marks, flow) += 1;
        }
        ecn != Ecn::NotEct
    }

    /// Marks an arrival if a mark is noted for its flow and it is ECN-capable and not yet marked.
    #[cold]
    fn apply_deferred_mark(&mut self, flow: FlowId, packet: &mut P) {
        let deferred = of_flow(&mut self.deferred_marks, flow);
        if *deferred > 0 && !matches!(packet.ecn(), Ecn::NotEct | Ecn::Ce) {
            *deferred -= 1;
            packet.set_ce();
        }
    }

    /// Enqueues a packet while flows are not served by deadline.
    #[cold]
    fn push_without_deadline(&mut self, now: Instant, flow: FlowId, packet: P) {
        let single = self.params.order == Order::Single;
        let queue = if single { 0 } else { flow };
        self.flows.push(queue, packet).set_enqueued(now);
        if !single {
            self.flows.activate(flow, self.params.quantum);
            self.scores.raise(flow);
        }
    }

    /// Dequeues while flows are not served by deadline, or when nothing is queued.
    #[cold]
    fn dequeue_without_deadline<D: Drops<P>>(
        &mut self,
        now: Instant,
        drops: &mut D,
    ) -> Dequeued<P> {
        let next = match self.trusted {
            _ if self.flows.count() == 0 => None,
            true if self.flows.is_empty() => None,
            true => {
                self.apply_law(now, drops);
                self.step(now, 0);
                self.flows.pop(0).map(|packet| (0, packet))
            }
            false if self.params.order == Order::Single => {
                let packet = self.stand_in.next_of(now, &mut self.flows, 0, drops);
                packet.map(|packet| (0, packet))
            }
            false => {
                let (flows, quantum) = (&mut self.flows, self.params.quantum);
                self.stand_in.next(now, flows, quantum, drops)
            }
        };
        let Some((queue, packet)) = next else {
            self.link.found_empty(now);
            return Dequeued::Empty;
        };
        let flow = match self.params.order {
            Order::Single => (self.flows).flow_of(self.flows.scale(packet.flow_hash())),
            _ => queue,
        };
        self.link
            .departed(now, flow, packet.len(), self.flows.is_empty());
        Dequeued::Packet(packet)
    }

    /// Marks the head of a queue if it is ECT(1), its sojourn is above the step, its own flow's
    /// backlog accounts for that ([`Self::causes_delay`]; [`Order::Single`] does not check it), and
    /// more than [`MTU`] bytes are queued besides it.
    #[inline(always)]
    fn step(&mut self, now: Instant, queue: FlowId) {
        if self
            .flows
            .front(queue)
            .is_some_and(|head| head.ecn() == Ecn::Ect1)
        {
            self.step_of_scalable(now, queue);
        }
    }

    /// [`Self::step`] for a head that is ECT(1).
    #[inline(never)]
    fn step_of_scalable(&mut self, now: Instant, queue: FlowId) {
        let (step, rest) = (self.settings.step, self.flows.bytes());
        if let Some(head) = self.flows.front(queue)
            && self.params.ecn
            && now.saturating_since(head.enqueued()) > step
            && rest > u64::from(MTU + head.len())
            && (self.params.order == Order::Single || self.causes_delay(queue, step))
            && self.mark_head(queue)
        {
            self.marks += 1;
        }
    }

    /// Whether the backlog would take more than `own` (a constant of the model) times `step` to
    /// drain if each active flow had as much queued as this one.
    fn causes_delay(&self, flow: FlowId, step: Duration) -> bool {
        let all = u64::from(self.flows.backlog(flow)) * u64::from(self.link.flows());
        let least = (u128::from(step.as_nanos())
            * u128::from(self.params.model.own.unsigned_abs()))
            >> fixed::Q;
        u128::from(self.link.drain(all).as_nanos()) > least
    }
}

impl<P: Packet> Discipline<P> for Hush<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, mut packet: P, _rng: &mut Rng, drops: &mut D) {
        let bucket = self.flows.scale(packet.flow_hash());
        let flow = self.flows.flow_of(bucket);
        if self.params.mark_next {
            self.apply_deferred_mark(flow, &mut packet);
        }
        self.link.arrived(now, flow, packet.len());
        if self.by_deadline {
            self.flows.push(flow, packet).set_enqueued(now);
            if self.flows.get(flow).packets() == 1 {
                self.deadlines.place(flow, now, &self.link, true);
            }
            self.scores.raise(flow);
        } else {
            self.push_without_deadline(now, flow, packet);
        }
        if self.full() {
            self.drop_batch(now, drops);
        }
    }

    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, now: Instant, _rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        if !self.flows.is_empty() && now >= self.due {
            self.learn(now);
        }
        if !self.by_deadline || self.flows.is_empty() {
            return self.dequeue_without_deadline(now, drops);
        }
        self.apply_law(now, drops);
        let Some(flow) = self.deadlines.next() else {
            debug_assert!(false, "a queued packet has a deadline");
            return Dequeued::Empty;
        };
        self.step(now, flow);
        let packet = self.flows.take(flow);
        self.link
            .departed(now, flow, packet.len(), self.flows.is_empty());
        self.place(flow);
        Dequeued::Packet(packet)
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
        self.marks + self.stand_in.marks()
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.head_age = self.flows.head_age(now);
        gauges.marks = self.marks();
    }

    fn flows(&self) -> Option<&Flows<P>> {
        (self.params.order != Order::Single).then_some(&self.flows)
    }

    fn admit(&mut self, _now: Instant, packet: &P) -> Option<Admission> {
        let bucket = self.flows.scale(packet.flow_hash());
        (self.params.order != Order::Single).then(|| self.flows.admit(bucket))
    }

    fn policy(&self) -> Option<PolicyGauges> {
        let s = &self.settings;
        (s.target != Duration::MAX).then(|| PolicyGauges {
            target: s.target,
            wait: s.wait,
            hold: s.hold,
            cap: s.cap,
            idle: self.link.idle() as f64 / (1 << 30) as f64,
            round_trip: self.link.round_trip(),
            flows: self.link.flows(),
            trusted: self.trusted,
        })
    }

    fn guard(&self) -> Option<&Stats> {
        Some(self.guard.stats())
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
mod tests;
