//! Coupled L4S and classic queues as FreeBSD's `dn_sched_l4s.c` of the A3C-L4S paper means them: pairs of sub-queues in deficit
//! round robin, a PIE for each, and the low-latency half of a pair marked at least k times as often as its classic half's p'.
//!
//! Sources: Satish, Kua and Pokhrel 2024 (the paper, its section 4 and equations 2, 3 and 5), the kernel file in
//! MPTCP-FreeBSD/FB13.1-AQM-L4S-SRC, FreeBSD's `dn_aqm_pie.h`, RFC 8033 (PIE) and RFC 9332 (coupling).
//!
//! PIE is FreeBSD's: microseconds, probabilities of 31 bits, the old delay in the early exit, no rule for delays above 250 ms,
//! a timer per sub-queue that runs while the sub-queue is in the rotation, everything forgotten when it comes back.
//!
//! The stated design is the default. A classic sub-queue's packets are dropped (marked, if ECN-capable) with p_C = p'^2; an
//! L4S sub-queue's are marked with p_L = max(own p', k p' of its classic partner). What the paper leaves open is as in
//! RFC 9332, section 4.2.3: from k p' = 1 on the L4S sub-queue drops with p_C and marks the rest, and the classic one no
//! longer marks. The own p' of an L4S sub-queue may pass 1: all packets are marked then, and dropped with the excess. PIE's
//! exits spare only what PIE itself asks for, not the coupling, which rests while the pair holds next to nothing. Packets are
//! picked independently: PIE's de-randomisation (RFC 8033, section 5.4) picks hardly more than half of p_C, which would undo
//! the balance that the square is for.
//!
//! [`Params::ineffective_coupling`] does what the kernel file does instead. The coupled probability is computed and then only
//! compared: below `max_ecnth` a packet that PIE picked is marked instead of dropped, and 0 refills the burst allowance. PIE
//! picks with each sub-queue's own p', not squared. p'^2 is a 32-bit product divided by 2^31, so 0, 1 or 2 units of 2^-31; and
//! the p' that the partner sees stays at its last value while a classic sub-queue rests.
//! Not modelled: the file keeps those values in globals that all schedulers of a machine share, and its Jenkins hash is the
//! caller's flow hash here.

use crate::dualpi2::Classifier;
use crate::parts::flows::{FlowId, Flows, Turn};
use crate::{
    Admission, Discipline, DropCause, Drops, Ecn, Gauges, Got, KnobSet, Knobs, LawGauges, MS, MTU,
    NEVER, Nanos, Packet, Rng, SEC, SubGauges, US,
};

/// Probability 1 (`PIE_MAX_PROB`).
const MAX_PROB: u32 = (1 << 31) - 1;
/// Nothing is dropped while so many bytes or fewer are queued (`2 * MEAN_PKTSIZE`).
const FLOOR: u32 = 1600;
/// FreeBSD keeps alpha and beta in units of 2^-13.
const SCALE: f64 = 8192.0;

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
    /// The coupled probability acts as in the published kernel file: hardly (default off).
    pub ineffective_coupling: bool,
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
            ineffective_coupling: false,
        }
    }
}

impl Params {
    /// These parameters as the published kernel file has them: every ECN-capable packet to the L4S half, marks below 10 %, and
    /// a coupling without effect.
    pub fn as_published(self) -> Self {
        Self {
            classifier: Classifier::AnyEct,
            max_ecnth: Some(0.1),
            ineffective_coupling: true,
            ..self
        }
    }

    /// What is wrong with these parameters, if anything.
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

/// The integers that the parameters come down to.
#[derive(Clone, Debug)]
struct Units {
    alpha: i64,
    beta: i64,
    /// Microseconds.
    target: i64,
    /// Marks are for probabilities below this.
    max_ecnth: u64,
}

impl Units {
    fn new(p: &Params) -> Self {
        Self {
            alpha: (p.alpha * SCALE) as i64,
            beta: (p.beta * SCALE) as i64,
            target: (p.target / US) as i64,
            // FreeBSD: the threshold in 2^-13, shifted up.
            max_ecnth: p
                .max_ecnth
                .map_or(u64::MAX, |th| ((th * SCALE) as u64) << (31 - 13)),
        }
    }
}

/// One sub-queue's PIE (`struct pie_status`) and counters (`struct flow_stats`).
#[derive(Clone, Debug, Default)]
struct Law {
    /// p', in units of 1/MAX_PROB; up to 2 in an L4S sub-queue of the stated design.
    prob: u32,
    /// What the partner sees under the ineffective coupling: p' at the last update, kept through rest.
    shared: u32,
    /// Delays, microseconds.
    qdelay: i64,
    qdelay_old: i64,
    burst: Nanos,
    accu: u64,
    /// In the rotation, its timer running.
    active: bool,
    /// p' is set from outside.
    held: bool,
    woke: Nanos,
    next_update: Nanos,
    packets: u64,
    bytes: u64,
    drops: u64,
}

impl Law {
    /// `fq_activate_pie`.
    fn wake(&mut self, now: Nanos, params: &Params) {
        if !self.held {
            self.prob = 0;
        }
        self.qdelay_old = 0;
        self.burst = params.max_burst;
        self.accu = 0;
        self.active = true;
        self.woke = now;
        self.next_update = now + params.tupdate;
    }

    /// `fq_deactivate_pie`; the design's coupling ends with the queue.
    fn rest(&mut self) {
        self.active = false;
        self.next_update = NEVER;
    }

    /// `fq_calculate_drop_prob`.
    fn update(&mut self, now: Nanos, params: &Params, units: &Units, most: u32, empty: bool) {
        if empty {
            self.qdelay = 0;
        }
        if !self.held {
            self.prob = self.next_probability(units, most);
        }
        self.shared = self.prob;
        self.qdelay_old = self.qdelay;
        self.burst = self.burst.saturating_sub(params.tupdate);
        self.next_update = now + params.tupdate;
    }

    fn next_probability(&self, units: &Units, highest: u32) -> u32 {
        let (prob, most) = (i64::from(self.prob), i64::from(MAX_PROB));
        let error = units.alpha.saturating_mul(self.qdelay - units.target);
        let change = units.beta.saturating_mul(self.qdelay - self.qdelay_old);
        // Truncates towards zero, as FreeBSD does by shifting the absolute value.
        let p = error
            .saturating_add(change)
            .saturating_mul((most << 12) / 1_000_000);
        let shift = self.tuning() + 13 + 12;
        let size = (p.unsigned_abs() >> shift) as i64;
        let next = if p < 0 {
            prob - size
        } else if prob >= most / 10 {
            // RFC 8033, section 5.5.
            prob + size.min(most / 50)
        } else {
            prob.saturating_add(size)
        };
        // RFC 8033, section 4.2: decay by 1/64 while both delays are 0.
        let decay = if self.qdelay == 0 && self.qdelay_old == 0 {
            next.max(0) >> 6
        } else {
            0
        };
        (next - decay).clamp(0, highest.into()) as u32
    }

    /// By how many bits the weights shrink (RFC 8033, section 4.2).
    fn tuning(&self) -> u32 {
        const STEPS: [(u32, u32); 6] = [
            (1_000_000, 11),
            (100_000, 9),
            (10_000, 7),
            (1_000, 5),
            (100, 3),
            (10, 1),
        ];
        let step = STEPS.iter().find(|(part, _)| self.prob < MAX_PROB / part);
        step.map_or(0, |(_, shift)| *shift)
    }

    /// Whether PIE lets everything pass, with this probability of dropping in force.
    fn spares(&self, prob: u32, units: &Units) -> bool {
        self.burst > 0 || (self.qdelay_old < units.target >> 1 && prob < MAX_PROB / 5)
    }

    /// The de-randomised dice (`drop_early`; RFC 8033, section 5.4).
    fn dice(&mut self, prob: u32, rng: &mut Rng) -> bool {
        if prob == 0 {
            self.accu = 0;
        }
        self.accu += u64::from(prob);
        if self.accu < u64::from(MAX_PROB) / 100 * 85 {
            return false;
        }
        if self.accu >= u64::from(MAX_PROB) / 10 * 85 {
            return true;
        }
        let hit = roll(prob, rng);
        if hit {
            self.accu = 0;
        }
        hit
    }

    /// `pie_enqueue`: a quiet queue gets its burst allowance back.
    fn refill(&mut self, prob: u64, params: &Params, units: &Units) {
        let low = units.target >> 1;
        if prob == 0 && self.qdelay < low && self.qdelay_old < low {
            self.burst = params.max_burst;
        }
    }
}

/// True with probability p / 2^31.
fn roll(prob: u32, rng: &mut Rng) -> bool {
    rng.u32() >> 1 < prob
}

/// p^2.
fn square(prob: u32) -> u32 {
    (u64::from(prob) * u64::from(prob) / u64::from(MAX_PROB)) as u32
}

fn share(prob: u32) -> f64 {
    f64::from(prob.min(MAX_PROB)) / f64::from(MAX_PROB)
}

/// What happens to an arrival.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Keep,
    Mark,
    Drop,
}

impl Fate {
    /// Mark or drop, by the rule of `max_ecnth`.
    fn hit(prob: u64, units: &Units) -> Self {
        if prob < units.max_ecnth {
            Fate::Mark
        } else {
            Fate::Drop
        }
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
        let prob = if self.params.ineffective_coupling {
            partner.shared
        } else if partner.active || partner.held {
            partner.prob
        } else {
            0
        };
        u64::from(prob) * u64::from(self.params.coupling_factor)
    }

    /// The kernel file's `prob`, which decides between mark and drop and refills the burst allowance.
    fn published(&self, queue: usize) -> u64 {
        let most = u64::from(MAX_PROB);
        if self.is_low(queue) {
            let own = u64::from(self.laws[queue].shared);
            return self.coupled(queue).max(own).min(most);
        }
        let prob = self.laws[queue].prob;
        u64::from(prob.wrapping_mul(prob)) / most
    }

    fn fate_as_published(&mut self, queue: usize, rng: &mut Rng) -> Fate {
        let prob = self.published(queue);
        let backlog = self.flows.backlog(queue as FlowId);
        let law = &mut self.laws[queue];
        let mut fate = Fate::Keep;
        if law.active
            && !law.spares(law.prob, &self.units)
            && backlog > FLOOR
            && law.dice(law.prob, rng)
        {
            fate = Fate::hit(prob, &self.units);
        }
        law.refill(prob, &self.params, &self.units);
        fate
    }

    fn fate_of_classic(&mut self, queue: usize, rng: &mut Rng) -> Fate {
        let backlog = self.flows.backlog(queue as FlowId);
        let law = &mut self.laws[queue];
        let prob = square(law.prob);
        let mut fate = Fate::Keep;
        if law.active
            && (law.held || !law.spares(prob, &self.units))
            && backlog > FLOOR
            && roll(prob, rng)
        {
            let k = u64::from(self.params.coupling_factor);
            fate = if u64::from(law.prob) * k >= u64::from(MAX_PROB) {
                // RFC 9332, section 4.2.3: overload.
                Fate::Drop
            } else {
                Fate::hit(prob.into(), &self.units)
            };
        }
        law.refill(law.prob.into(), &self.params, &self.units);
        fate
    }

    fn fate_of_low(&mut self, queue: usize, rng: &mut Rng) -> Fate {
        let backlog = self.flows.backlog(queue as FlowId);
        let partner = queue - self.params.pairs as usize;
        let pair = backlog + self.flows.backlog(partner as FlowId);
        let coupled = if pair > FLOOR { self.coupled(queue) } else { 0 };
        let classic = square(self.laws[partner].prob);
        let law = &mut self.laws[queue];
        let own =
            if backlog > FLOOR && law.active && (law.held || !law.spares(law.prob, &self.units)) {
                law.prob
            } else {
                0
            };
        law.refill(law.prob.into(), &self.params, &self.units);
        let most = u64::from(MAX_PROB);
        if own > MAX_PROB && roll(own - MAX_PROB, rng) {
            return Fate::Drop;
        }
        if coupled >= most {
            // RFC 9332, section 4.2.3: drops with p_C, marks the rest.
            return if roll(classic, rng) {
                Fate::Drop
            } else {
                Fate::Mark
            };
        }
        let prob = coupled.max(own.into()).min(most);
        if roll(prob as u32, rng) {
            return Fate::hit(prob, &self.units);
        }
        Fate::Keep
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
        let fate = if self.params.ineffective_coupling {
            self.fate_as_published(queue, rng)
        } else if self.is_low(queue) {
            self.fate_of_low(queue, rng)
        } else {
            self.fate_of_classic(queue, rng)
        };
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
                let most = match low && !self.params.ineffective_coupling {
                    true => 2 * MAX_PROB,
                    false => MAX_PROB,
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
        assert_eq!(bed.q.published(0), 1);
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
