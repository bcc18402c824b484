//! A3C-L4S: an actor network sets p' of each sub-queue of coupled queues every 15 ms.
//!
//! Source: Satish, Kua and Pokhrel 2024 (the paper's section 3.2, table 1) and the authors' notebooks. The actor reads twelve gauges
//! of a sub-queue's PIE and gives the mean and the spread of a normal distribution of actions; here the mean is the action.
//!
//! How gauges are scaled is defined by the model card (min-max, as in the paper). An action from -1 to 1 is p' in the very scaling
//! in which the card has `drop_prob`, the probability in force: decoding is that scaling's inverse, as in the notebooks.
//!
//! Where sources differ:
//! - Packets, bytes and drops are those of the last period, as table 1 has them; the kernel's log, on which the authors train, has
//!   counters since the start and a time of day. The names of a card's inputs say which of the two its network reads.
//! - Delays, lengths and counts of a period end at [`Reading::most`]: a network is not asked about what it never saw.
//! - A sub-queue without a packet in the last period has p' 0, and the network is not asked: coupling rests with the queue.

use super::{Control, SubQueue};
use crate::policy::{Policy, Scratch};
use crate::{Gauges, KnobSet, Knobs, MS, Nanos, Rng, SEC, SubGauges, US};

/// Numbers that the actor reads.
pub const INPUTS: usize = 12;

/// One of them in the default reading.
pub struct Reading {
    /// Its name in a model card.
    pub name: &'static str,
    /// It ends here.
    pub most: f32,
}

const fn reading(name: &'static str, most: f32) -> Reading {
    Reading { name, most }
}

/// The default reading: of the last period.
pub const READINGS: [Reading; INPUTS] = [
    reading("burst_allowance_ms", 1000.0),
    reading("drop_prob", 1.0),
    reading("qdelay_ms", 100.0),
    reading("qdelay_old_ms", 100.0),
    reading("accu_prob", 10.0),
    reading("active_s", 10.0),
    reading("packets", 200.0),
    reading("bytes", 300_000.0),
    reading("length", 200.0),
    reading("len_bytes", 300_000.0),
    reading("drops", 20.0),
    reading("ecn", 1.0),
];

/// The names of the twelve in the kernel's log, in its order.
pub const PUBLISHED: [&str; INPUTS] = [
    "burst_allowance",
    "drop_prob",
    "current_qdelay",
    "qdelay_old",
    "accu_prob",
    "measurement_start",
    "tot_pkts",
    "tot_bytes",
    "length",
    "len_bytes",
    "drops",
    "ecn",
];

/// What the kernel's log holds of a sub-queue: times in ns, probabilities from 0 to 1 (`accu_prob` to 8.5 and somewhat more),
/// `ecn` 0 or 1.
fn log(g: &SubGauges) -> [f64; INPUTS] {
    [
        g.law.burst_allowance as f64,
        g.probability,
        g.law.delay as f64,
        g.law.delay_old as f64,
        g.law.accumulated,
        g.law.since as f64,
        g.arrivals as f64,
        g.arrived_bytes as f64,
        f64::from(g.backlog_packets),
        g.backlog_bytes as f64,
        g.drops as f64,
        f64::from(u8::from(g.low_latency)),
    ]
}

/// Parameters of [`A3c`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Time between decisions (default 15 ms, 1 us..10 s).
    pub period: Nanos,
}

impl Default for Params {
    fn default() -> Self {
        Self { period: 15 * MS }
    }
}

impl Params {
    /// What is wrong with these parameters, if anything.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        match (US..=10 * SEC).contains(&self.period) {
            true => Ok(()),
            false => Err("period must be 1us to 10s"),
        }
    }
}

/// Writes what the actor reads of a sub-queue at `now`, `last` being its gauges a period ago. `published`: the kernel's log.
pub fn observe(
    published: bool,
    now: Nanos,
    last: &SubGauges,
    g: &SubGauges,
    out: &mut [f32; INPUTS],
) {
    if published {
        for (out, x) in out.iter_mut().zip(log(g)) {
            *out = x as f32;
        }
        return;
    }
    let ms = |t: Nanos| t as f64 / MS as f64;
    let since = |a: u64, b: u64| a.saturating_sub(b) as f64;
    let raw = [
        ms(g.law.burst_allowance),
        g.probability,
        ms(g.law.delay),
        ms(g.law.delay_old),
        g.law.accumulated,
        since(now, g.law.since) / SEC as f64,
        since(g.arrivals, last.arrivals),
        since(g.arrived_bytes, last.arrived_bytes),
        f64::from(g.backlog_packets),
        g.backlog_bytes as f64,
        since(g.drops, last.drops),
        f64::from(u8::from(g.low_latency)),
    ];
    for ((out, x), reading) in out.iter_mut().zip(raw).zip(&READINGS) {
        // NaN stays NaN: the guard has to see it.
        *out = if x as f32 > reading.most {
            reading.most
        } else {
            x as f32
        };
    }
}

/// No packet came in the period, and none is queued.
pub fn is_idle(last: &SubGauges, g: &SubGauges) -> bool {
    g.backlog_packets == 0 && g.arrivals == last.arrivals
}

/// Which reading a network was made for.
fn reads_published(policy: &Policy) -> Result<bool, &'static str> {
    let names = || policy.card().inputs.iter().map(|i| i.name.as_str());
    if names().eq(READINGS.iter().map(|r| r.name)) {
        return Ok(false);
    }
    if names().eq(PUBLISHED) {
        return Ok(true);
    }
    Err("a3c_l4s's network reads 12 gauges of a sub-queue, named as quell train a3c-l4s names them")
}

/// What is wrong with a network for this controller, if anything.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(policy: &Policy) -> Result<(), &'static str> {
    reads_published(policy)?;
    if policy.outputs() != 2 {
        return Err("a3c_l4s's network gives 2 numbers, mean and spread of the action");
    }
    if policy.card().inputs[1].scale == 0.0 {
        return Err("a3c_l4s's network must scale drop_prob by more than 0");
    }
    Ok(())
}

/// One sub-queue: its gauges a period ago, and what was decided then.
#[derive(Clone, Copy, Debug, Default)]
struct Sub {
    last: SubGauges,
    base_probability: Option<f64>,
}

/// The controller of one queue.
#[derive(Clone, Debug)]
pub struct A3c {
    params: Params,
    policy: Policy,
    scratch: Scratch,
    published: bool,
    inputs: [f32; INPUTS],
    subs: Vec<Sub>,
    broken: bool,
}

impl A3c {
    /// Asks `policy`.
    ///
    /// # Errors
    /// If the network does not read and give what this controller needs.
    pub fn new(params: Params, policy: Policy) -> Result<Self, &'static str> {
        check(&policy)?;
        Ok(Self {
            published: reads_published(&policy)?,
            scratch: policy.scratch(),
            policy,
            params,
            inputs: [0.0; INPUTS],
            subs: Vec::new(),
            broken: false,
        })
    }

    /// p' of a sub-queue by the network; None if its answer is no number.
    fn ask(&mut self, now: Nanos, last: &SubGauges, gauges: &SubGauges) -> Option<f64> {
        observe(self.published, now, last, gauges, &mut self.inputs);
        let mean = self.policy.forward(&self.inputs, &mut self.scratch)[0];
        let scaling = &self.policy.card().inputs[1];
        let p = f64::from(mean.clamp(-1.0, 1.0) / scaling.scale + scaling.offset);
        p.is_finite().then(|| p.clamp(0.0, 1.0))
    }
}

impl Control for A3c {
    fn period(&self) -> Nanos {
        self.params.period
    }

    fn reads_sub_queues(&self) -> bool {
        true
    }

    /// Returns the highest p' that it decides, for readers of the whole queue's gauges.
    fn decide(&mut self, gauges: &Gauges, subs: &mut [SubQueue], _rng: &mut Rng) -> Knobs {
        self.broken = false;
        self.subs.resize(subs.len(), Sub::default());
        let mut highest = 0.0_f64;
        for (index, sub) in subs.iter_mut().enumerate() {
            let last = self.subs[index].last;
            let p = match is_idle(&last, &sub.gauges) {
                true => Some(0.0),
                false => self.ask(gauges.now, &last, &sub.gauges),
            };
            self.broken |= p.is_none();
            let own = &mut self.subs[index];
            own.last = sub.gauges;
            own.base_probability = p.or(own.base_probability);
            sub.knobs.base_probability = own.base_probability;
            highest = highest.max(p.unwrap_or(0.0));
        }
        Knobs {
            base_probability: (!subs.is_empty()).then_some(highest),
            ..Knobs::KEEP
        }
    }

    fn knobs(&self) -> (KnobSet, KnobSet) {
        let own = KnobSet {
            base_probability: true,
            ..KnobSet::NONE
        };
        (own, own)
    }

    fn is_broken(&self) -> bool {
        self.broken
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::control::guard::{self, Guard};
    use crate::control::law::Law;
    use crate::l4s::{self, L4s};
    use crate::packet::TestPacket;
    use crate::policy::{Activation, Affine, Card, FORMAT, Head, Input};
    use crate::{Discipline, Ecn, LawGauges};

    /// One linear layer: mean = tanh(weight . scaled gauges + bias).
    fn network(names: [&str; INPUTS], weight: [f32; INPUTS], bias: f32) -> Policy {
        let inputs = names.iter().map(|name| Input {
            name: (*name).into(),
            // p' from 0 to 0.5 is -1 to 1; the rest is read as it is.
            offset: if *name == "drop_prob" { 0.25 } else { 0.0 },
            scale: if *name == "drop_prob" { 4.0 } else { 1.0 },
        });
        let head = |name: &str, activation| Head {
            name: name.into(),
            activation,
            outputs: vec![name.into()],
        };
        let card = Card {
            format: FORMAT,
            name: "by-hand".into(),
            what: "a test".into(),
            inputs: inputs.collect(),
            hidden: vec![],
            heads: vec![
                head("mean", Activation::Tanh),
                head("spread", Activation::Softplus),
            ],
            trained_on: "nothing".into(),
            seed: 0,
            quell: "0".into(),
            results: Default::default(),
        };
        let layer = |weight: [f32; INPUTS], bias| Affine {
            weight: weight.to_vec(),
            bias: vec![bias],
        };
        Policy::new(card, &[layer(weight, bias), layer([0.0; INPUTS], 0.0)]).unwrap()
    }

    fn names() -> [&'static str; INPUTS] {
        READINGS.map(|r| r.name)
    }

    fn controller(weight: [f32; INPUTS], bias: f32) -> A3c {
        A3c::new(Params::default(), network(names(), weight, bias)).unwrap()
    }

    fn busy(arrivals: u64, ms: u64) -> SubGauges {
        SubGauges {
            arrivals,
            backlog_packets: 3,
            law: LawGauges {
                delay: ms * MS,
                ..LawGauges::default()
            },
            ..SubGauges::default()
        }
    }

    /// What is decided of sub-queues that show this.
    fn decide(c: &mut dyn Control, now: Nanos, shown: &[SubGauges]) -> (Knobs, Vec<Option<f64>>) {
        let gauges = Gauges {
            now,
            ..Gauges::default()
        };
        let sub = |gauges: &SubGauges| SubQueue {
            gauges: *gauges,
            knobs: Knobs::KEEP,
        };
        let mut subs: Vec<SubQueue> = shown.iter().map(sub).collect();
        let knobs = c.decide(&gauges, &mut subs, &mut Rng::new(1, "a3c"));
        let each = subs.iter().map(|s| s.knobs.base_probability);
        (knobs, each.collect())
    }

    #[test]
    fn an_action_is_p_in_the_scaling_of_drop_prob() {
        for (bias, p) in [(0.0, 0.25), (100.0, 0.5), (-100.0, 0.0)] {
            let mut c = controller([0.0; INPUTS], bias);
            let (knobs, each) = decide(&mut c, 15 * MS, &[busy(1, 0)]);
            assert_eq!(knobs.base_probability, Some(p));
            assert_eq!(each, [Some(p)]);
        }
    }

    #[test]
    fn each_sub_queue_is_asked_about_by_itself_and_idle_ones_have_0() {
        let mut weight = [0.0; INPUTS];
        weight[2] = 0.01; // of the delay in ms
        let mut c = controller(weight, 0.0);
        let shown = [busy(5, 10), SubGauges::default(), busy(5, 40)];
        let (_, each) = decide(&mut c, 15 * MS, &shown);
        let p = |x: f64| libm::tanh(x) / 4.0 + 0.25;
        assert!((each[0].unwrap() - p(0.1)).abs() < 1e-6);
        assert_eq!(each[1], Some(0.0));
        assert!((each[2].unwrap() - p(0.4)).abs() < 1e-6);
    }

    #[test]
    fn counts_are_those_of_the_last_period_and_end_somewhere() {
        let mut out = [0.0; INPUTS];
        let last = busy(100, 0);
        let mut g = busy(130, 250);
        (g.drops, g.law.since) = (7, SEC);
        observe(false, 3 * SEC, &last, &g, &mut out);
        assert_eq!((out[2], out[5], out[6], out[10]), (100.0, 2.0, 30.0, 7.0));
        // As in the kernel's log.
        observe(true, 3 * SEC, &last, &g, &mut out);
        assert_eq!((out[2], out[5], out[6]), (250e6, 1e9, 130.0));
    }

    #[test]
    fn the_names_of_a_cards_inputs_say_what_its_network_reads() {
        let policy = network(PUBLISHED, [0.0; INPUTS], 0.0);
        assert!(A3c::new(Params::default(), policy).unwrap().published);
        let mut other = names();
        other[3] = "something";
        let policy = network(other, [0.0; INPUTS], 0.0);
        assert!(check(&policy).unwrap_err().contains("12 gauges"));
    }

    fn bed<C: Control>(mut controller: C, periods: u64) -> (L4s<TestPacket>, C) {
        let mut q = L4s::new(l4s::Params::default());
        let mut rng = Rng::new(1, "bed");
        for n in 1..=periods {
            let now = n * 15 * MS;
            q.run_timers(now);
            for ecn in [Ecn::NotEct, Ecn::Ect1] {
                let packet = TestPacket::new(n, 1514, 7, ecn);
                q.enqueue(now, packet, &mut rng, &mut Vec::new());
            }
            let gauges = Gauges {
                now,
                share: 1.0,
                backlog_packets: q.len() as u32,
                backlog_bytes: q.bytes(),
                ..Gauges::default()
            };
            let sub = |i| SubQueue {
                gauges: q.sub_gauges(now, i).unwrap(),
                knobs: Knobs::KEEP,
            };
            let mut subs: Vec<SubQueue> = (0..q.sub_queues()).map(sub).collect();
            let knobs = controller.decide(&gauges, &mut subs, &mut rng);
            q.set_knobs(&knobs);
            for (i, sub) in subs.iter().enumerate() {
                q.set_sub_knobs(i, &sub.knobs);
            }
        }
        (q, controller)
    }

    fn in_force(q: &L4s<TestPacket>) -> Vec<f64> {
        let all = (0..q.sub_queues()).map(|i| q.sub_gauges(0, i).unwrap().probability);
        all.collect()
    }

    #[test]
    fn what_it_decides_is_set_sub_queue_by_sub_queue() {
        let mut weight = [0.0; INPUTS];
        weight[11] = 100.0; // an L4S sub-queue gets all, a classic one half of the range
        let (q, _) = bed(controller(weight, 0.0), 3);
        let p = in_force(&q);
        let high = |x: &f64| (x - 0.5).abs() < 1e-6;
        assert!((p[0] - 0.25).abs() < 1e-6 && high(&p[3]), "{p:?}");
        assert_eq!([p[1], p[2], p[4], p[5]], [0.0; 4]);
    }

    fn guarded(learned: A3c) -> Guard {
        Guard::new(guard::Params::default(), Box::new(learned), Box::new(Law))
    }

    #[test]
    fn under_guard_a_broken_network_leaves_the_queue_to_its_own_law() {
        // Finite weights, whose sum with a length of some packets is infinite less infinite.
        let mut weight = [0.0; INPUTS];
        (weight[8], weight[9]) = (f32::MAX, f32::MIN);
        let (q, guard) = bed(guarded(controller(weight, 0.0)), 40);
        assert!(guard.stats().not_a_number > 30 && guard.stats().learned < 5);
        // PIE's burst allowance is over after ten periods, and no packet is dequeued: its own law is in control.
        assert!(in_force(&q)[0] < 0.25 && q.sub_queues() == 6);
        let (q, _) = bed(guarded(controller([0.0; INPUTS], 0.0)), 40);
        assert!((in_force(&q)[0] - 0.25).abs() < 1e-6);
    }
}
