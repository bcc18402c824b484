//! Coupled L4S and classic queues, as intended by `dn_sched_l4s.c`, the A3C-L4S paper's file for
//! FreeBSD: pairs of sub-queues in deficit round robin, each sub-queue with a PIE; the L4S half of
//! a pair marks with at least k times its classic half's p'.
//!
//! Sources: Satish, Kua and Pokhrel 2024 (the paper, its section 4 and equations 2, 3 and 5), the
//! kernel file in MPTCP-FreeBSD/FB13.1-AQM-L4S-SRC, FreeBSD's `dn_aqm_pie.h`, RFC 8033 (PIE) and
//! RFC 9332 (coupling).
//!
//! The default is the design that the paper states; [`Coupling`] has the published file's behaviour
//! as well.

mod designed;
mod law;
mod published;

use law::{Fate, Law, MAX_PROB, Units, fraction, square};

use crate::dualpi2::Classifier;
use crate::num;
use crate::parts::flows::{FlowId, FlowList, Flows};
use crate::time::{Duration, Instant, MS, NEVER, SEC, US};
use crate::{
    Admission, Dequeued, Discipline, DropCause, Drops, Ecn, Gauges, KnobSet, Knobs, LawGauges, MTU,
    Packet, Rng, SubGauges,
};

/// Parameters of [`L4s`], with FreeBSD's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Pairs of a classic and an L4S sub-queue, 1 to 1024 (default 3).
    pub pairs: u32,
    /// Packets in the whole queue (default 10240, at least 1). Above it the longest sub-queue drops
    /// its head.
    pub limit: u32,
    /// Bytes per sub-queue and round, 1 to 2^20 (default 1514).
    pub quantum: u32,
    /// Target delay of each sub-queue's PIE (default 15 ms, at most 10 s).
    pub target: Duration,
    /// Time between updates of a probability (default 15 ms, 1 us..10 s).
    pub tupdate: Duration,
    /// Time without drops after an idle sub-queue becomes active (default 150 ms, at most 10 s).
    pub max_burst: Duration,
    /// Weight of the delay's distance from target, 1/s (default 0.125, 0..7).
    pub alpha: f64,
    /// Weight of the delay's change, 1/s (default 1.25, 0..7).
    pub beta: f64,
    /// Coupling factor k (default 2, 1..255).
    pub coupling_factor: u32,
    /// Which packets go to the L4S sub-queues (default ECT(1) and CE, RFC 9331).
    pub classifier: Classifier,
    /// Probability from which on packets are dropped instead of marked; `None` (default): always
    /// marks.
    pub max_ecnth: Option<f64>,
    /// The coupling (default [`Coupling::Designed`]).
    pub coupling: Coupling,
}

/// How the two halves of a pair are coupled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Coupling {
    /// As the paper states it: k p' marks, p'^2 drops.
    #[default]
    Designed,
    /// As in the published kernel file: the coupled probability has hardly any effect.
    Published,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            pairs: 3,
            limit: 10_240,
            quantum: MTU,
            target: 15 * MS,
            tupdate: 15 * MS,
            max_burst: 150 * MS,
            alpha: 0.125,
            beta: 1.25,
            coupling_factor: 2,
            classifier: Classifier::L4sEct,
            max_ecnth: None,
            coupling: Coupling::Designed,
        }
    }
}

impl Params {
    /// These parameters, changed as in the published kernel file: every ECN-capable packet to the
    /// L4S half, marks below 10 %, and a coupling without effect.
    pub fn as_published(self) -> Self {
        Self {
            classifier: Classifier::AnyEct,
            max_ecnth: Some(0.1),
            coupling: Coupling::Published,
            ..self
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if !(1..=1024).contains(&self.pairs) {
            return Err("pairs must be 1 to 1024");
        }
        if self.limit == 0 {
            return Err("limit must be at least 1 packet");
        }
        if !(1..=1 << 20).contains(&self.quantum) {
            return Err("quantum must be 1 to 1048576 bytes");
        }
        if self.target > 10 * SEC || self.max_burst > 10 * SEC {
            return Err("target and max_burst must be at most 10s");
        }
        if !(US..=10 * SEC).contains(&self.tupdate) {
            return Err("tupdate must be between 1us and 10s");
        }
        if !(0.0..=7.0).contains(&self.alpha) || !(0.0..=7.0).contains(&self.beta) {
            return Err("alpha and beta must be between 0 and 7");
        }
        if !(1..=255).contains(&self.coupling_factor) {
            return Err("coupling_factor must be between 1 and 255");
        }
        if self.max_ecnth.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
            return Err("max_ecnth must be between 0 and 1");
        }
        Ok(())
    }
}

/// The queue. Sub-queues are numbered as in the kernel file: the classic ones, then their L4S
/// partners in the same order.
#[derive(Clone, Debug)]
pub struct L4s<P> {
    params: Params,
    units: Units,
    flows: Flows<P>,
    laws: Vec<Law>,
    marks: u64,
    next_update: Instant,
}

impl<P: Packet> L4s<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        let mut flows = Flows::new(2 * params.pairs);
        let law = Law {
            next_update: NEVER,
            ..Law::default()
        };
        for bucket in 0..2 * params.pairs {
            flows.flow_of(bucket);
        }
        Self {
            units: Units::new(&params),
            laws: vec![law; 2 * params.pairs as usize],
            flows,
            marks: 0,
            next_update: NEVER,
            params,
        }
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// p' of a sub-queue, 0..1.
    pub fn base_probability(&self, queue: usize) -> f64 {
        fraction(self.laws[queue].prob)
    }

    /// Probability that a sub-queue applies: p_C = p'^2, or p_L = max(own p', k p'), at most 1.
    pub fn coupled_probability(&self, queue: usize) -> f64 {
        let prob = if self.is_l4s_queue(queue) {
            self.coupled(queue).max(self.laws[queue].prob.into())
        } else {
            square(self.laws[queue].prob).into()
        };
        fraction(num::low_u32(prob.min(MAX_PROB.into())))
    }

    fn is_l4s_queue(&self, queue: usize) -> bool {
        queue >= self.params.pairs as usize
    }

    #[inline]
    fn classify(&self, packet: &P) -> FlowId {
        let l4s = self.params.classifier.is_l4s(packet.ecn());
        let pairs = u64::from(self.params.pairs);
        let pair = ((u64::from(packet.flow_hash()) * pairs) >> 32) as FlowId;
        if l4s { pair + self.params.pairs } else { pair }
    }

    /// k p' of an L4S sub-queue's classic partner; may exceed 1.
    fn coupled(&self, queue: usize) -> u64 {
        let partner = &self.laws[queue - self.params.pairs as usize];
        match self.params.coupling {
            Coupling::Designed => designed::coupled(partner, &self.params),
            Coupling::Published => published::coupled(partner, &self.params),
        }
    }

    /// Decides whether an arriving packet of this sub-queue is kept, marked or dropped.
    fn fate(&mut self, queue: usize, rng: &mut Rng) -> Fate {
        let (params, units) = (&self.params, &self.units);
        let backlog = self.flows.backlog(num::count(queue));
        let pairs = params.pairs as usize;
        let (classic, l4s) = self.laws.split_at_mut(pairs);
        match (params.coupling, queue.checked_sub(pairs)) {
            (Coupling::Designed, None) => {
                designed::decide_classic(&mut classic[queue], backlog, params, units, rng)
            }
            (Coupling::Designed, Some(pair)) => {
                let backlogs = (backlog, self.flows.backlog(num::count(pair)));
                let (law, partner) = (&mut l4s[pair], &classic[pair]);
                designed::decide_l4s(law, partner, backlogs, params, units, rng)
            }
            (Coupling::Published, None) => {
                let law = &mut classic[queue];
                let prob = published::probability(law, None, params);
                published::decide(law, prob, backlog, params, units, rng)
            }
            (Coupling::Published, Some(pair)) => {
                let law = &mut l4s[pair];
                let prob = published::probability(law, Some(&classic[pair]), params);
                published::decide(law, prob, backlog, params, units, rng)
            }
        }
    }

    /// Drops the head of the sub-queue with the most packets, the first of equals.
    fn drop_head<D: Drops<P>>(&mut self, now: Instant, drops: &mut D) {
        let packets = |q: usize| self.flows.get(num::count(q)).packets();
        let mut longest = 0;
        for queue in 1..self.laws.len() {
            if packets(queue) > packets(longest) {
                longest = queue;
            }
        }
        if let Some(packet) = self.flows.pop(num::count(longest)) {
            self.laws[longest].drops += 1;
            self.laws[longest].accu = 0;
            drops.drop(now, packet, DropCause::Overflow);
        }
    }

    /// FreeBSD's round robin: a sub-queue is served until its deficit is negative; it then gets a
    /// quantum and joins the old ones.
    #[inline]
    fn next_flow(&mut self) -> Option<FlowId> {
        loop {
            let flow = self
                .flows
                .first(FlowList::New)
                .or_else(|| self.flows.first(FlowList::Old))?;
            let f = self.flows.get_mut(flow);
            if f.deficit >= 0 {
                return Some(flow);
            }
            f.deficit += self.params.quantum.cast_signed();
            self.flows.move_to(flow, FlowList::Old);
        }
    }

    /// Sets p' of a sub-queue, whose PIE then stops.
    fn hold_probability(&mut self, queue: usize, p: f64) {
        let law = &mut self.laws[queue];
        law.prob = num::whole_u32(p.clamp(0.0, 1.0) * f64::from(MAX_PROB));
        law.shared = law.prob;
        law.held = true;
    }
}

impl<P: Packet> Discipline<P> for L4s<P> {
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, mut packet: P, rng: &mut Rng, drops: &mut D) {
        let flow = self.classify(&packet);
        let queue = flow as usize;
        self.laws[queue].packets += 1;
        self.laws[queue].bytes += u64::from(packet.len());
        let fate = self.fate(queue, rng);
        let capable = packet.ecn() != Ecn::NotEct;
        if fate == Fate::Mark && packet.mark() {
            self.marks += 1;
        } else if fate != Fate::Keep {
            self.laws[queue].drops += 1;
            self.laws[queue].accu = 0;
            let cause = if capable {
                DropCause::Forced
            } else {
                DropCause::Early
            };
            return drops.drop(now, packet, cause);
        }
        self.flows.push(flow, packet).set_enqueued(now);
        if self.flows.get(flow).list() == FlowList::Off {
            self.flows.activate(flow, self.params.quantum);
            self.laws[queue].activate(now, &self.params);
            self.next_update = self.next_update.min(self.laws[queue].next_update);
        }
        if self.flows.len() > self.params.limit as usize {
            self.drop_head(now, drops);
        }
    }

    fn dequeue<D: Drops<P>>(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        while let Some(flow) = self.next_flow() {
            let Some(packet) = self.flows.pop(flow) else {
                if self.flows.get(flow).list() == FlowList::New {
                    self.flows.move_to(flow, FlowList::Old);
                } else {
                    self.flows.unlink(flow);
                    self.laws[flow as usize].deactivate();
                }
                continue;
            };
            self.flows.get_mut(flow).deficit -= packet.len().cast_signed();
            self.laws[flow as usize].qdelay = ((now - packet.enqueued()) / US).cast_signed();
            return Dequeued::Packet(packet);
        }
        Dequeued::Empty
    }

    #[inline]
    fn next_timer(&self) -> Instant {
        self.next_update
    }

    fn on_timer(&mut self, now: Instant) {
        let mut next = NEVER;
        let laws = self.laws.iter_mut().zip(self.flows.backlogs());
        for (queue, (law, &backlog)) in laws.enumerate() {
            if law.next_update <= now {
                let l4s = queue >= self.params.pairs as usize;
                let most = match (self.params.coupling, l4s) {
                    (Coupling::Designed, true) => 2 * MAX_PROB,
                    _ => MAX_PROB,
                };
                law.update(now, &self.params, &self.units, most, backlog == 0);
            }
            next = next.min(law.next_update);
        }
        self.next_update = next;
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

    /// `probability` is the highest p' of the classic sub-queues that are in the rotation, or whose
    /// p' was set by a knob.
    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.head_age = self.flows.head_age(now);
        gauges.marks = self.marks;
        let classic = &self.laws[..self.params.pairs as usize];
        let alive = classic.iter().filter(|law| law.active || law.held);
        gauges.probability = fraction(alive.map(|law| law.prob).max().unwrap_or(0));
    }

    fn knobs(&self) -> KnobSet {
        KnobSet {
            base_probability: true,
            ..KnobSet::LIMIT
        }
    }

    /// `base_probability` sets p' of every classic sub-queue; their PIEs stop until `release`.
    fn set_knobs(&mut self, knobs: &Knobs) {
        if let Some(limit) = knobs.limit_packets {
            self.params.limit = limit;
        }
        for queue in 0..self.laws.len() {
            let whole = Knobs {
                base_probability: knobs.base_probability.filter(|_| !self.is_l4s_queue(queue)),
                ..*knobs
            };
            self.set_sub_knobs(queue, &whole);
        }
    }

    fn sub_queues(&self) -> usize {
        self.laws.len()
    }

    fn sub_knobs(&self) -> KnobSet {
        KnobSet {
            base_probability: true,
            ..KnobSet::NONE
        }
    }

    fn sub_queue_of(&self, packet: &P) -> Option<usize> {
        Some(self.classify(packet) as usize)
    }

    fn admit(&mut self, _now: Instant, packet: &P) -> Option<Admission> {
        Some(Admission {
            sub_queue: self.classify(packet) as usize,
            fresh: false,
        })
    }

    fn sub_len(&self, sub_queue: usize) -> u32 {
        self.flows.packets_of(sub_queue)
    }

    fn sub_gauges(&self, now: Instant, sub_queue: usize) -> Option<SubGauges> {
        let law = self.laws.get(sub_queue)?;
        let micros = |t: i64| t.max(0).cast_unsigned() * US;
        Some(SubGauges {
            arrivals: law.packets,
            arrived_bytes: law.bytes,
            drops: law.drops,
            probability: fraction(law.prob),
            low_latency: self.is_l4s_queue(sub_queue),
            law: LawGauges {
                burst_allowance: law.burst,
                delay: micros(law.qdelay),
                delay_old: micros(law.qdelay_old),
                accumulated: law.accu as f64 / f64::from(MAX_PROB),
                since: law.active_since,
            },
            ..self.flows.gauges(now, sub_queue)?
        })
    }

    /// `base_probability` is p' of a classic sub-queue, or the own probability of an L4S one; its
    /// PIE stops until `release`.
    fn set_sub_knobs(&mut self, queue: usize, knobs: &Knobs) {
        if queue >= self.laws.len() {
            return;
        }
        if knobs.release {
            self.laws[queue].held = false;
        }
        if let Some(p) = knobs.base_probability {
            self.hold_probability(queue, p);
        }
    }
}

#[cfg(test)]
mod tests;
