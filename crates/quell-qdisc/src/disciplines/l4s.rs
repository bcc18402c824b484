//! Coupled L4S and classic queues as FreeBSD's `dn_sched_l4s.c` of the A3C-L4S paper means them: pairs of sub-queues in deficit
//! round robin, a PIE for each, and the low-latency half of a pair marked at least k times as often as its classic half's p'.
//!
//! Sources: Satish, Kua and Pokhrel 2024 (the paper, its section 4 and equations 2, 3 and 5), the kernel file in
//! MPTCP-FreeBSD/FB13.1-AQM-L4S-SRC, FreeBSD's `dn_aqm_pie.h`, RFC 8033 (PIE) and RFC 9332 (coupling).
//!
//! The stated design is the default; [`Coupling`] has the other reading.

mod designed;
mod law;
mod published;

use law::{Fate, Law, MAX_PROB, Units, share, square};

use crate::dualpi2::Classifier;
use crate::parts::flows::{FlowId, Flows, Turn};
use crate::{
    Admission, Discipline, DropCause, Drops, Ecn, Gauges, Got, KnobSet, Knobs, LawGauges, MS, MTU,
    NEVER, Nanos, Packet, Rng, SEC, SubGauges, US,
};

/// Parameters of [`L4s`], with FreeBSD's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Pairs of a classic and an L4S sub-queue, 1 to 1024 (default 3).
    pub pairs: u32,
    /// Packets in the whole queue (default 10240, at least 1). One too many: the longest sub-queue loses its head.
    pub limit: u32,
    /// Bytes per sub-queue and round, 1 to 2^20 (default 1514).
    pub quantum: u32,
    /// Delay that each sub-queue's PIE holds (default 15 ms, at most 10 s).
    pub target: Nanos,
    /// Time between updates of a probability (default 15 ms, 1 us..10 s).
    pub tupdate: Nanos,
    /// Time without drops for a sub-queue that wakes (default 150 ms, at most 10 s).
    pub max_burst: Nanos,
    /// Weight of the delay's distance from target, 1/s (default 0.125, 0..7).
    pub alpha: f64,
    /// Weight of the delay's change, 1/s (default 1.25, 0..7).
    pub beta: f64,
    /// k (default 2, 1..255).
    pub coupling_factor: u32,
    /// Who goes to the L4S sub-queues (default ECT(1) and CE, RFC 9331).
    pub classifier: Classifier,
    /// Marks only while the probability in force is below this and drops from there on; without it (default) marks always.
    pub max_ecnth: Option<f64>,
    /// Which reading of the coupling (default [`Coupling::Designed`]).
    pub coupling: Coupling,
}

/// How the two halves of a pair are coupled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Coupling {
    /// As the paper states it: k p' marks, p'^2 drops.
    #[default]
    Designed,
    /// As the published kernel file has it: the coupled probability hardly acts.
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
    /// These parameters, changed as in the published kernel file: every ECN-capable packet to the L4S half, marks below 10 %, and
    /// a coupling without effect.
    pub fn as_published(self) -> Self {
        Self {
            classifier: Classifier::AnyEct,
            max_ecnth: Some(0.1),
            coupling: Coupling::Published,
            ..self
        }
    }

    /// What is wrong with these parameters, if anything.
    ///
    /// # Errors
    /// The first thing that is wrong.
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

/// The queue. Sub-queues are numbered as in the kernel file: the classic ones, then their L4S partners in the same order.
#[derive(Clone, Debug)]
pub struct L4s<P> {
    params: Params,
    units: Units,
    flows: Flows<P>,
    laws: Vec<Law>,
    marks: u64,
    next_update: Nanos,
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
        share(self.laws[queue].prob)
    }

    /// The probability that the law of a sub-queue works with: p_C = p'^2, or p_L = max(own p', k p'), at most 1.
    pub fn coupled_probability(&self, queue: usize) -> f64 {
        let prob = if self.is_low(queue) {
            self.coupled(queue).max(self.laws[queue].prob.into())
        } else {
            square(self.laws[queue].prob).into()
        };
        share(prob.min(MAX_PROB.into()) as u32)
    }

    fn is_low(&self, queue: usize) -> bool {
        queue >= self.params.pairs as usize
    }

    #[inline]
    fn classify(&self, packet: &P) -> FlowId {
        let low = self.params.classifier.is_l4s(packet.ecn());
        let pairs = u64::from(self.params.pairs);
        let pair = ((u64::from(packet.flow_hash()) * pairs) >> 32) as FlowId;
        if low { pair + self.params.pairs } else { pair }
    }

    /// k p' of an L4S sub-queue's classic partner; may exceed 1.
    fn coupled(&self, queue: usize) -> u64 {
        let partner = &self.laws[queue - self.params.pairs as usize];
        match self.params.coupling {
            Coupling::Designed => designed::coupled(partner, &self.params),
            Coupling::Published => published::coupled(partner, &self.params),
        }
    }

    /// What happens to a packet that comes to this sub-queue.
    fn fate(&mut self, queue: usize, rng: &mut Rng) -> Fate {
        let (params, units) = (&self.params, &self.units);
        let backlog = self.flows.backlog(queue as FlowId);
        let pairs = params.pairs as usize;
        let (classic, low) = self.laws.split_at_mut(pairs);
        match (params.coupling, queue.checked_sub(pairs)) {
            (Coupling::Designed, None) => {
                designed::of_classic(&mut classic[queue], backlog, params, units, rng)
            }
            (Coupling::Designed, Some(pair)) => {
                let backlogs = (backlog, self.flows.backlog(pair as FlowId));
                let (law, partner) = (&mut low[pair], &classic[pair]);
                designed::of_low(law, partner, backlogs, params, units, rng)
            }
            (Coupling::Published, None) => {
                let law = &mut classic[queue];
                let prob = published::probability(law, None, params);
                published::of_any(law, prob, backlog, params, units, rng)
            }
            (Coupling::Published, Some(pair)) => {
                let law = &mut low[pair];
                let prob = published::probability(law, Some(&classic[pair]), params);
                published::of_any(law, prob, backlog, params, units, rng)
            }
        }
    }

    /// The active sub-queue with most packets, the first of equals, loses its head.
    fn drop_head<D: Drops<P>>(&mut self, now: Nanos, drops: &mut D) {
        let packets = |q: usize| self.flows.get(q as FlowId).packets();
        let mut longest = 0;
        for queue in 1..self.laws.len() {
            if packets(queue) > packets(longest) {
                longest = queue;
            }
        }
        if let Some(packet) = self.flows.pop(longest as FlowId) {
            self.laws[longest].drops += 1;
            self.laws[longest].accu = 0;
            drops.drop(now, packet, DropCause::Overflow);
        }
    }

    /// FreeBSD's round robin: only a debt passes the turn on, and a new sub-queue always passes through the old ones.
    #[inline]
    fn turn(&mut self) -> Option<FlowId> {
        loop {
            let flow = self
                .flows
                .first(Turn::New)
                .or_else(|| self.flows.first(Turn::Old))?;
            let f = self.flows.get_mut(flow);
            if f.deficit >= 0 {
                return Some(flow);
            }
            f.deficit += self.params.quantum as i32;
            self.flows.move_to(flow, Turn::Old);
        }
    }

    fn hold(&mut self, queue: usize, p: f64) {
        let law = &mut self.laws[queue];
        law.prob = (p.clamp(0.0, 1.0) * f64::from(MAX_PROB)) as u32;
        law.shared = law.prob;
        law.held = true;
    }
}

impl<P: Packet> Discipline<P> for L4s<P> {
    fn enqueue<D: Drops<P>>(&mut self, now: Nanos, mut packet: P, rng: &mut Rng, drops: &mut D) {
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
        if self.flows.get(flow).turn() == Turn::Off {
            self.flows.activate(flow, self.params.quantum);
            self.laws[queue].wake(now, &self.params);
            self.next_update = self.next_update.min(self.laws[queue].next_update);
        }
        if self.flows.len() > self.params.limit as usize {
            self.drop_head(now, drops);
        }
    }

    fn dequeue<D: Drops<P>>(&mut self, now: Nanos, _rng: &mut Rng, _drops: &mut D) -> Got<P> {
        while let Some(flow) = self.turn() {
            let Some(packet) = self.flows.pop(flow) else {
                if self.flows.get(flow).turn() == Turn::New {
                    self.flows.move_to(flow, Turn::Old);
                } else {
                    self.flows.unlink(flow);
                    self.laws[flow as usize].rest();
                }
                continue;
            };
            self.flows.get_mut(flow).deficit -= packet.len() as i32;
            self.laws[flow as usize].qdelay = ((now - packet.enqueued()) / US) as i64;
            return Got::Packet(packet);
        }
        Got::Empty
    }

    #[inline]
    fn next_timer(&self) -> Nanos {
        self.next_update
    }

    fn on_timer(&mut self, now: Nanos) {
        let mut next = NEVER;
        let laws = self.laws.iter_mut().zip(self.flows.backlogs());
        for (queue, (law, &backlog)) in laws.enumerate() {
            if law.next_update <= now {
                let low = queue >= self.params.pairs as usize;
                let most = match (self.params.coupling, low) {
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

    /// `probability` is the highest p' of the classic sub-queues that are in the rotation or held.
    fn gauges(&self, now: Nanos, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.head_age = self.flows.head_age(now);
        gauges.marks = self.marks;
        let classic = &self.laws[..self.params.pairs as usize];
        let alive = classic.iter().filter(|law| law.active || law.held);
        gauges.probability = share(alive.map(|law| law.prob).max().unwrap_or(0));
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
                base_probability: knobs.base_probability.filter(|_| !self.is_low(queue)),
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

    fn admit(&mut self, _now: Nanos, packet: &P) -> Option<Admission> {
        Some(Admission {
            sub_queue: self.classify(packet) as usize,
            fresh: false,
        })
    }

    fn sub_len(&self, sub_queue: usize) -> u32 {
        self.flows.packets_of(sub_queue)
    }

    fn sub_gauges(&self, now: Nanos, sub_queue: usize) -> Option<SubGauges> {
        let law = self.laws.get(sub_queue)?;
        let micros = |t: i64| t.max(0) as u64 * US;
        Some(SubGauges {
            arrivals: law.packets,
            arrived_bytes: law.bytes,
            drops: law.drops,
            probability: share(law.prob),
            low_latency: self.is_low(sub_queue),
            law: LawGauges {
                burst_allowance: law.burst,
                delay: micros(law.qdelay),
                delay_old: micros(law.qdelay_old),
                accumulated: law.accu as f64 / f64::from(MAX_PROB),
                since: law.woke,
            },
            ..self.flows.gauges(now, sub_queue)?
        })
    }

    /// `base_probability` is p' of a classic sub-queue, or the own probability of an L4S one; its PIE stops until `release`.
    fn set_sub_knobs(&mut self, queue: usize, knobs: &Knobs) {
        if queue >= self.laws.len() {
            return;
        }
        if knobs.release {
            self.laws[queue].held = false;
        }
        if let Some(p) = knobs.base_probability {
            self.hold(queue, p);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::TestPacket;

    const FULL: u32 = 1514;

    struct Bed {
        q: L4s<TestPacket>,
        rng: Rng,
        dropped: Vec<(TestPacket, DropCause)>,
        next_id: u64,
    }

    impl Bed {
        fn new(params: Params) -> Self {
            assert_eq!(params.check(), Ok(()));
            Self {
                q: L4s::new(params),
                rng: Rng::new(1, "l4s"),
                dropped: Vec::new(),
                next_id: 0,
            }
        }

        /// Packets of a flow in this pair of three.
        fn add(&mut self, now: Nanos, n: u32, pair: u32, ecn: Ecn) {
            self.q.run_timers(now);
            for _ in 0..n {
                let hash = pair * (u32::MAX / 3) + 1000;
                let packet = TestPacket::new(self.next_id, FULL, hash, ecn);
                self.next_id += 1;
                self.q
                    .enqueue(now, packet, &mut self.rng, &mut self.dropped);
            }
        }

        fn take(&mut self, now: Nanos) -> Option<TestPacket> {
            self.q.run_timers(now);
            match self.q.dequeue(now, &mut self.rng, &mut self.dropped) {
                Got::Packet(p) => Some(p),
                _ => None,
            }
        }

        fn hold(&mut self, queue: usize, p: f64) {
            let knobs = Knobs {
                base_probability: Some(p),
                ..Knobs::default()
            };
            self.q.set_sub_knobs(queue, &knobs);
        }

        /// Shares of marked and of dropped among `n` arrivals at a sub-queue that already holds some packets.
        fn shares(&mut self, n: u32, ecn: Ecn) -> (f64, f64) {
            self.add(0, 3, 0, ecn);
            let (marks, drops) = (self.q.marks(), self.dropped.len());
            for _ in 0..n {
                self.add(0, 1, 0, ecn);
                if self.q.len() > 3 {
                    self.take(0);
                }
            }
            (
                (self.q.marks() - marks) as f64 / f64::from(n),
                (self.dropped.len() - drops) as f64 / f64::from(n),
            )
        }
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 0.01
    }

    #[test]
    fn defaults_are_freebsds() {
        let p = Params::default();
        assert_eq!((p.pairs, p.limit, p.quantum), (3, 10_240, 1514));
        assert_eq!(
            (p.target, p.tupdate, p.max_burst),
            (15 * MS, 15 * MS, 150 * MS)
        );
        assert_eq!((p.alpha, p.beta, p.coupling_factor), (0.125, 1.25, 2));
        let published = p.as_published();
        assert_eq!(published.classifier, Classifier::AnyEct);
        assert_eq!(published.max_ecnth, Some(0.1));
    }

    #[test]
    fn the_hash_picks_the_pair_and_the_ecn_field_the_half() {
        let index = |classifier, ecn| {
            let bed = Bed::new(Params {
                classifier,
                ..Params::default()
            });
            [0, 1, 2].map(|pair| {
                let hash = pair * (u32::MAX / 3) + 1000;
                bed.q.classify(&TestPacket::new(0, FULL, hash, ecn))
            })
        };
        assert_eq!(index(Classifier::L4sEct, Ecn::NotEct), [0, 1, 2]);
        assert_eq!(index(Classifier::L4sEct, Ecn::Ect0), [0, 1, 2]);
        assert_eq!(index(Classifier::L4sEct, Ecn::Ect1), [3, 4, 5]);
        assert_eq!(index(Classifier::L4sEct, Ecn::Ce), [3, 4, 5]);
        assert_eq!(index(Classifier::AnyEct, Ecn::Ect0), [3, 4, 5]);
        assert_eq!(index(Classifier::AnyEct, Ecn::NotEct), [0, 1, 2]);
    }

    #[test]
    fn classic_packets_are_dropped_with_the_square_and_l4s_packets_marked_with_k_times_the_base() {
        for p in [0.1, 0.3, 0.45] {
            let mut bed = Bed::new(Params::default());
            bed.hold(0, p);
            let (marks, drops) = bed.shares(20_000, Ecn::NotEct);
            assert!(marks == 0.0 && near(drops, p * p), "{p}: {drops}");
            let mut bed = Bed::new(Params::default());
            bed.hold(0, p);
            let (marks, drops) = bed.shares(20_000, Ecn::Ect1);
            assert!(drops == 0.0 && near(marks, 2.0 * p), "{p}: {marks}");
            // The classic sub-queue marks what can be marked.
            let mut bed = Bed::new(Params::default());
            bed.hold(0, p);
            let (marks, drops) = bed.shares(20_000, Ecn::Ect0);
            assert!(drops == 0.0 && near(marks, p * p), "{p}: {marks}");
        }
    }

    #[test]
    fn the_greater_of_the_own_and_the_coupled_probability_marks() {
        for (own, partner, expected) in [(0.5, 0.1, 0.5), (0.1, 0.25, 0.5), (0.3, 0.0, 0.3)] {
            let mut bed = Bed::new(Params::default());
            bed.hold(0, partner);
            bed.hold(3, own);
            // Another pair's probability plays no part.
            bed.hold(1, 0.49);
            assert!(near(bed.q.coupled_probability(3), expected));
            let (marks, _) = bed.shares(20_000, Ecn::Ect1);
            assert!(near(marks, expected), "{own} {partner}: {marks}");
        }
    }

    #[test]
    fn on_overload_l4s_packets_are_dropped_with_the_classic_probability_and_the_rest_marked() {
        let mut bed = Bed::new(Params::default());
        bed.hold(0, 0.6);
        let (marks, drops) = bed.shares(20_000, Ecn::Ect1);
        assert!(near(drops, 0.36) && near(marks, 0.64), "{drops} {marks}");
        let mut bed = Bed::new(Params::default());
        bed.hold(0, 0.6);
        let (marks, drops) = bed.shares(20_000, Ecn::Ect0);
        assert!(marks == 0.0 && near(drops, 0.36), "{drops} {marks}");
    }

    #[test]
    fn max_ecnth_turns_marks_into_drops_from_that_probability_on() {
        for (p, marked) in [(0.04, true), (0.06, false)] {
            let mut bed = Bed::new(Params {
                max_ecnth: Some(0.1),
                ..Params::default()
            });
            bed.hold(0, p);
            let (marks, drops) = bed.shares(20_000, Ecn::Ect1);
            let (hit, other) = if marked {
                (marks, drops)
            } else {
                (drops, marks)
            };
            assert!(near(hit, 2.0 * p) && other == 0.0, "{p}: {marks} {drops}");
        }
    }

    #[test]
    fn as_published_the_partner_only_decides_between_mark_and_drop() {
        // The L4S sub-queue's own probability picks, whatever the partner's is.
        for (partner, marked) in [(0.0, true), (0.04, true), (0.06, false)] {
            let mut bed = Bed::new(Params::default().as_published());
            bed.hold(0, partner);
            bed.hold(3, 0.09);
            // Past PIE's exits: 150 ms of a queue older than half the target.
            bed.add(0, 40, 0, Ecn::Ect1);
            bed.take(20 * MS);
            bed.take(400 * MS);
            let (marks, drops) = (bed.q.marks(), bed.dropped.len());
            let n = 20_000;
            for _ in 0..n {
                bed.add(400 * MS, 1, 0, Ecn::Ect1);
                if bed.q.len() > 30 {
                    bed.take(400 * MS);
                }
            }
            // De-randomised: nine packets pass, then one in 1 / 0.09 is picked.
            let expected = 1.0 / (9.0 + 1.0 / 0.09);
            let marks = (bed.q.marks() - marks) as f64 / n as f64;
            let drops = (bed.dropped.len() - drops) as f64 / n as f64;
            let (hit, other) = if marked {
                (marks, drops)
            } else {
                (drops, marks)
            };
            assert!(
                near(hit, expected) && other == 0.0,
                "{partner}: {marks} {drops}"
            );
        }
    }

    #[test]
    fn as_published_the_square_is_a_32_bit_product() {
        let mut bed = Bed::new(Params::default().as_published());
        bed.hold(0, 0.25);
        // 0.25 of 2^31 is 2^29 - 1 here: its square wraps to 2^32 - 2^30 + 1, over 2^31 gives 1.
        assert_eq!(bed.q.laws[0].prob, (1 << 29) - 1);
        let params = bed.q.params.clone();
        assert_eq!(published::probability(&bed.q.laws[0], None, &params), 1);
        assert!(near(bed.q.coupled_probability(0), 0.0625), "what was meant");
    }

    #[test]
    fn a_sub_queue_in_debt_waits_and_a_new_one_passes_through_the_old() {
        let mut bed = Bed::new(Params::default());
        bed.add(0, 6, 0, Ecn::NotEct);
        bed.add(0, 6, 1, Ecn::Ect1);
        // A credit of 0 still sends (FreeBSD): two packets first, one a round after.
        let order: Vec<_> = (0..8)
            .filter_map(|_| bed.take(0))
            .map(|p| p.id / 6)
            .collect();
        assert_eq!(order, [0, 0, 1, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn one_packet_too_many_costs_the_longest_sub_queue_its_head() {
        let mut bed = Bed::new(Params {
            limit: 10,
            ..Params::default()
        });
        bed.add(0, 3, 0, Ecn::NotEct);
        bed.add(0, 7, 1, Ecn::NotEct);
        bed.add(0, 1, 2, Ecn::NotEct);
        assert_eq!(bed.dropped.len(), 1);
        assert_eq!(
            (bed.dropped[0].0.id, bed.dropped[0].1),
            (3, DropCause::Overflow)
        );
        assert_eq!(
            bed.q.sub_gauges(0, 1).map(|g| (g.drops, g.backlog_packets)),
            Some((1, 6))
        );
    }

    #[test]
    fn a_sub_queue_that_left_the_rotation_wakes_with_a_fresh_law() {
        let mut bed = Bed::new(Params::default());
        bed.add(0, 100, 0, Ecn::NotEct);
        for ms in (10..900).step_by(10) {
            bed.take(ms * MS);
        }
        let g = bed.q.sub_gauges(0, 0).unwrap();
        assert!(
            g.probability > 0.0 && g.law.burst_allowance == 0 && g.law.delay > 800 * MS,
            "{g:?}"
        );
        for _ in 0..20 {
            bed.take(SEC);
        }
        bed.q.run_timers(2 * SEC);
        assert_eq!(bed.q.next_timer(), NEVER);
        bed.add(2 * SEC, 1, 0, Ecn::NotEct);
        let g = bed.q.sub_gauges(0, 0).unwrap();
        assert_eq!(
            (g.probability, g.law.burst_allowance, g.law.since),
            (0.0, 150 * MS, 2 * SEC)
        );
        assert_eq!(bed.q.next_timer(), 2 * SEC + 15 * MS);
    }

    #[test]
    fn the_probability_moves_as_the_kernel_file_has_it() {
        // One update of FreeBSD's integers by hand: from 0, delay 20 ms after 10 ms: alpha 1024 * 5000 + beta 10240 * 10000 us,
        // times floor((2^31 - 1) * 2^12 / 10^6) = 8796093, shifted right by 11 + 13 + 12.
        let units = Units::new(&Params::default());
        let mut law = Law {
            qdelay: 20_000,
            qdelay_old: 10_000,
            ..Law::default()
        };
        assert_eq!(
            law.next_probability(&units, MAX_PROB),
            ((107_520_000u64 * 8_796_093) >> 36) as u32
        );
        // High up the step is at most 2 %.
        law.prob = MAX_PROB / 2;
        law.qdelay = 300_000;
        assert_eq!(
            law.next_probability(&units, MAX_PROB),
            MAX_PROB / 2 + MAX_PROB / 50
        );
        // Idle, it decays by 1/64 after the integral's part.
        (law.qdelay, law.qdelay_old) = (0, 0);
        let less = law.prob - ((15_360_000u64 * 8_796_093) >> 25) as u32;
        assert_eq!(law.next_probability(&units, MAX_PROB), less - (less >> 6));
    }

    #[test]
    fn a_flood_of_unresponsive_l4s_packets_is_held_near_the_target() {
        let mut bed = Bed::new(Params::default());
        let mut late: Vec<Nanos> = Vec::new();
        for i in 0..120_000u64 {
            let now = i * MS / 4;
            bed.add(now, 1 + (i % 2) as u32, 0, Ecn::Ect1);
            if let Some(p) = bed.take(now)
                && i > 60_000
            {
                late.push(now - p.enqueued);
            }
        }
        late.sort_unstable();
        assert!(
            late[late.len() / 100 * 95] < 40 * MS,
            "{}",
            late[late.len() / 100 * 95]
        );
    }

    #[test]
    fn a_probability_from_outside_stays_until_it_is_released() {
        let mut bed = Bed::new(Params::default());
        let set = |bed: &mut Bed, knobs| bed.q.set_knobs(&knobs);
        set(
            &mut bed,
            Knobs {
                base_probability: Some(0.25),
                ..Knobs::default()
            },
        );
        bed.add(0, 50, 0, Ecn::NotEct);
        bed.take(300 * MS);
        let mut g = Gauges::default();
        bed.q.gauges(300 * MS, &mut g);
        assert!(near(g.probability, 0.25));
        assert_eq!(
            bed.q.base_probability(3),
            0.0,
            "the L4S half keeps its own law"
        );
        set(
            &mut bed,
            Knobs {
                release: true,
                ..Knobs::default()
            },
        );
        bed.take(400 * MS);
        assert!(bed.q.base_probability(0) > 0.26);
    }
}
