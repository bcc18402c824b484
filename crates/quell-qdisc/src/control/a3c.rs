//! A3C-L4S: an actor network sets p' of each sub-queue of coupled queues every 15 ms.
//!
//! Source: Satish, Kua and Pokhrel 2024 (the paper's section 3.2, table 1) and the authors'
//! notebooks. The actor reads twelve gauges of a sub-queue's PIE and outputs the mean and the
//! spread of a normal distribution of actions; here the mean is the action.
//!
//! There are three [`Observation`]s; the names of a card's inputs determine which of them its
//! network reads:
//! - `Published`: the values of the kernel's log, on which the authors train. Its counters start
//!   with the queue, and `measurement_start` is a point in time.
//! - `Linear`: packets, bytes and drops of the last period (table 1).
//! - `Logarithmic`: logarithms of those, because useful values of p' and of delays span a factor of
//!   1000. The burst allowance, the probability in force and its accumulator are left out: in them
//!   an actor mainly reads its own past noise.
//!
//! The model card defines how gauges are scaled (min-max, as in the paper). In the first two
//! observations, an action from -1 to 1 is p' in the card's scaling of `drop_prob`, the probability
//! in force; the inverse of that scaling decodes it, as in the notebooks. In the third, an action
//! is p' from [`MIN_PROBABILITY`] to 1 on a logarithmic scale.
//!
//! Where it differs from the sources:
//! - Delays, lengths and counts of a period are limited to [`Reading::max`], so that a network
//!   does not read values that it never saw.
//! - A sub-queue without a packet in the last period has p' 0, and the network is not evaluated: an
//!   idle queue does not couple.

use super::{Control, SubQueue};
use crate::num;
use crate::policy::{Policy, Scratch};
use crate::time::{Duration, Instant, MS, SEC, US};
use crate::{ControlledKnobs, Error, Gauges, KnobSet, Knobs, Rng, SubGauges};

/// Number of gauges of a sub-queue that an actor may read.
pub const INPUTS: usize = 12;
/// p' of action -1 in [`Observation::Logarithmic`].
pub const MIN_PROBABILITY: f64 = 0.001;

/// The readings of a sub-queue that an actor gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// [`READINGS`]: the last period's gauges.
    Linear,
    /// [`LOGARITHMS`]: logarithms of those gauges.
    Logarithmic,
    /// [`PUBLISHED`]: the kernel's log.
    Published,
}

/// A gauge at the end of a period; of a counter, its increase in the period.
pub struct Reading {
    /// Its name in a model card.
    pub name: &'static str,
    /// Largest value; greater ones are limited to it.
    pub max: f32,
}

const fn reading(name: &'static str, max: f32) -> Reading {
    Reading { name, max }
}

/// Readings of [`Observation::Linear`].
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

/// ln(1 + a gauge of the last period / unit).
pub struct Logarithm {
    /// Its name in a model card.
    pub name: &'static str,
    /// Index of the gauge in [`READINGS`].
    gauge: usize,
    /// Unit of the gauge, below which the logarithm is about linear.
    unit: f64,
    /// Largest value of the gauge; greater ones are limited to it.
    max: f64,
}

const fn logarithm(name: &'static str, gauge: usize, unit: f64, max: f64) -> Logarithm {
    Logarithm {
        name,
        gauge,
        unit,
        max,
    }
}

/// Readings of [`Observation::Logarithmic`].
pub const LOGARITHMS: [Logarithm; 9] = [
    logarithm("ln_qdelay", 2, 1.0, 2000.0),
    logarithm("ln_qdelay_old", 3, 1.0, 2000.0),
    logarithm("ln_active", 5, 0.1, 10.0),
    logarithm("ln_packets", 6, 2.0, 200.0),
    logarithm("ln_bytes", 7, 3000.0, 300_000.0),
    logarithm("ln_length", 8, 2.0, 200.0),
    logarithm("ln_len_bytes", 9, 3000.0, 300_000.0),
    logarithm("ln_drops", 10, 1.0, 20.0),
    logarithm("ln_ecn", 11, 1.0, 1.0),
];

/// The names of the twelve values in the kernel's log, in its order.
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

/// The kernel's log of a sub-queue: times in ns, probabilities from 0 to 1 (`accu_prob`: from 0 to
/// slightly above 8.5), `ecn` 0 or 1.
fn log(g: &SubGauges) -> [f64; INPUTS] {
    [
        g.law.burst_allowance.as_nanos() as f64,
        g.probability,
        g.law.delay.as_nanos() as f64,
        g.law.delay_old.as_nanos() as f64,
        g.law.accumulated,
        g.law.since.as_nanos() as f64,
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
    pub period: Duration,
}

impl Default for Params {
    fn default() -> Self {
        Self { period: 15 * MS }
    }
}

impl Params {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        match (US..=10 * SEC).contains(&self.period) {
            true => Ok(()),
            false => Err("period must be 1us to 10s"),
        }
    }
}

impl Observation {
    /// The names of the readings, in order, as in a model card.
    pub fn names(self) -> Vec<&'static str> {
        match self {
            Self::Linear => READINGS.iter().map(|r| r.name).collect(),
            Self::Logarithmic => LOGARITHMS.iter().map(|l| l.name).collect(),
            Self::Published => PUBLISHED.to_vec(),
        }
    }

    /// Number of readings.
    pub fn width(self) -> usize {
        match self {
            Self::Linear | Self::Published => INPUTS,
            Self::Logarithmic => LOGARITHMS.len(),
        }
    }

    /// Writes the readings of a sub-queue at `now`; `last` are its gauges a period ago.
    pub fn observe(self, now: Instant, last: &SubGauges, g: &SubGauges, out: &mut [f32]) {
        match self {
            Self::Linear => {
                let of_period = of_period(now, last, g);
                for ((out, x), reading) in out.iter_mut().zip(of_period).zip(&READINGS) {
                    *out = at_most(num::single(x), reading.max);
                }
            }
            Self::Logarithmic => {
                let of_period = of_period(now, last, g);
                for (out, l) in out.iter_mut().zip(&LOGARITHMS) {
                    *out = num::single(libm::log1p(at_most(of_period[l.gauge], l.max) / l.unit));
                }
            }
            Self::Published => {
                for (out, x) in out.iter_mut().zip(log(g)) {
                    *out = num::single(x);
                }
            }
        }
    }
}

/// Limits a value. NaN stays NaN, so that the guard detects it.
fn at_most<T: PartialOrd>(x: T, max: T) -> T {
    if x > max { max } else { x }
}

/// The gauges of [`READINGS`], without their limits.
fn of_period(now: Instant, last: &SubGauges, g: &SubGauges) -> [f64; INPUTS] {
    let ms = |t: Duration| t.as_millis_f64();
    let since = |a: u64, b: u64| a.saturating_sub(b) as f64;
    [
        ms(g.law.burst_allowance),
        g.probability,
        ms(g.law.delay),
        ms(g.law.delay_old),
        g.law.accumulated,
        since(now.as_nanos(), g.law.since.as_nanos()) / SEC.as_nanos() as f64,
        since(g.arrivals, last.arrivals),
        since(g.arrived_bytes, last.arrived_bytes),
        f64::from(g.backlog_packets),
        g.backlog_bytes as f64,
        since(g.drops, last.drops),
        f64::from(u8::from(g.low_latency)),
    ]
}

/// p' of an action in [`Observation::Logarithmic`].
pub fn probability(action: f32) -> f64 {
    let action = f64::from(action.clamp(-1.0, 1.0));
    libm::exp(libm::log(MIN_PROBABILITY) * (1.0 - action) / 2.0)
}

/// True if no packet arrived in the period and none is queued.
pub fn is_idle(last: &SubGauges, g: &SubGauges) -> bool {
    g.backlog_packets == 0 && g.arrivals == last.arrivals
}

/// The observation that a network reads.
fn observation(policy: &Policy) -> Result<Observation, Error> {
    let inputs = &policy.card().inputs;
    [
        Observation::Linear,
        Observation::Logarithmic,
        Observation::Published,
    ]
    .into_iter()
    .find(|o| inputs.iter().map(|i| i.name.as_str()).eq(o.names()))
    .ok_or_else(|| {
        Error::new("a3c_l4s's network reads gauges of a sub-queue, named as quell train a3c-l4s names them")
    })
}

/// Checks that a network fits this controller.
///
/// # Errors
/// The first fault found.
pub fn check(policy: &Policy) -> Result<(), Error> {
    if observation(policy)? == Observation::Logarithmic {
        return match policy.outputs() {
            1 => Ok(()),
            _ => Err(Error::new(
                "a3c_l4s's network that reads logarithms gives 1 number, the action",
            )),
        };
    }
    if policy.outputs() != 2 {
        return Err(Error::new(
            "a3c_l4s's network gives 2 numbers, mean and spread of the action",
        ));
    }
    if policy.card().inputs[1].scale == 0.0 {
        return Err(Error::new(
            "a3c_l4s's network must scale drop_prob by more than 0",
        ));
    }
    Ok(())
}

/// One sub-queue: its gauges a period ago, and the p' decided then.
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
    observation: Observation,
    inputs: Vec<f32>,
    subs: Vec<Sub>,
    broken: bool,
}

impl A3c {
    /// A controller whose actor is `policy`.
    ///
    /// # Errors
    /// If the network does not have the inputs and outputs that this controller needs.
    pub fn new(params: Params, policy: Policy) -> Result<Self, Error> {
        check(&policy)?;
        let observation = observation(&policy)?;
        Ok(Self {
            observation,
            inputs: vec![0.0; observation.width()],
            scratch: policy.scratch(),
            policy,
            params,
            subs: Vec::new(),
            broken: false,
        })
    }

    /// p' of a sub-queue by the network; None if its output is not a number.
    fn evaluate(&mut self, now: Instant, last: &SubGauges, gauges: &SubGauges) -> Option<f64> {
        let observation = self.observation;
        observation.observe(now, last, gauges, &mut self.inputs);
        let mean = self.policy.forward(&self.inputs, &mut self.scratch)[0];
        let p = match observation {
            Observation::Logarithmic => probability(mean),
            Observation::Linear | Observation::Published => {
                let scaling = &self.policy.card().inputs[1];
                f64::from(mean.clamp(-1.0, 1.0) / scaling.scale + scaling.offset)
            }
        };
        p.is_finite().then(|| p.clamp(0.0, 1.0))
    }
}

impl Control for A3c {
    fn period(&self) -> Duration {
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
                false => self.evaluate(gauges.now, &last, &sub.gauges),
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

    fn knobs(&self) -> ControlledKnobs {
        let own = KnobSet {
            base_probability: true,
            ..KnobSet::NONE
        };
        ControlledKnobs {
            queue: own,
            sub_queues: own,
        }
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
            origin: None,
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

    /// The decision for sub-queues with these gauges.
    fn decide(c: &mut dyn Control, now: Instant, shown: &[SubGauges]) -> (Knobs, Vec<Option<f64>>) {
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
            let (knobs, each) = decide(&mut c, Instant::from_millis(15), &[busy(1, 0)]);
            assert_eq!(knobs.base_probability, Some(p));
            assert_eq!(each, [Some(p)]);
        }
    }

    #[test]
    fn each_sub_queue_is_decided_separately_and_idle_ones_get_0() {
        let mut weight = [0.0; INPUTS];
        weight[2] = 0.01; // of the delay in ms
        let mut c = controller(weight, 0.0);
        let shown = [busy(5, 10), SubGauges::default(), busy(5, 40)];
        let (_, each) = decide(&mut c, Instant::from_millis(15), &shown);
        let p = |x: f64| libm::tanh(x) / 4.0 + 0.25;
        assert!((each[0].unwrap() - p(0.1)).abs() < 1e-6);
        assert_eq!(each[1], Some(0.0));
        assert!((each[2].unwrap() - p(0.4)).abs() < 1e-6);
    }

    #[test]
    fn counts_are_those_of_the_last_period_and_are_limited() {
        let mut out = [0.0; INPUTS];
        let last = busy(100, 0);
        let mut g = busy(130, 250);
        (g.drops, g.law.since) = (7, Instant::from_secs(1));
        Observation::Linear.observe(Instant::from_secs(3), &last, &g, &mut out);
        assert_eq!((out[2], out[5], out[6], out[10]), (100.0, 2.0, 30.0, 7.0));
        // As in the kernel's log.
        Observation::Published.observe(Instant::from_secs(3), &last, &g, &mut out);
        assert_eq!((out[2], out[5], out[6]), (250e6, 1e9, 130.0));
    }

    #[test]
    fn the_names_of_a_cards_inputs_say_what_its_network_reads() {
        let policy = network(PUBLISHED, [0.0; INPUTS], 0.0);
        let published = A3c::new(Params::default(), policy).unwrap().observation;
        assert_eq!(published, Observation::Published);
        let mut other = names();
        other[3] = "something";
        let policy = network(other, [0.0; INPUTS], 0.0);
        assert!(
            check(&policy)
                .unwrap_err()
                .what
                .contains("gauges of a sub-queue")
        );
    }

    /// action = weight . logarithms.
    fn of_logarithms(weight: [f32; LOGARITHMS.len()]) -> Policy {
        let mut card = network(PUBLISHED, [0.0; INPUTS], 0.0).card().clone();
        let input = |l: &Logarithm| Input {
            name: l.name.into(),
            offset: 0.0,
            scale: 1.0,
        };
        card.inputs = LOGARITHMS.iter().map(input).collect();
        card.heads.truncate(1);
        card.heads[0].activation = Activation::Linear;
        let layer = Affine {
            weight: weight.to_vec(),
            bias: vec![0.0],
        };
        Policy::new(card, &[layer]).unwrap()
    }

    #[test]
    fn of_logarithms_an_action_is_p_by_equal_factors_and_the_delay_is_not_cut_at_100_ms() {
        let mut weight = [0.0; LOGARITHMS.len()];
        weight[0] = 0.1;
        let mut c = A3c::new(Params::default(), of_logarithms(weight)).unwrap();
        let shown = [0, 100, 400, 2000, 9000].map(|ms| busy(1, ms));
        let (_, each) = decide(&mut c, Instant::from_millis(15), &shown);
        // Action 0 is the geometric middle of 0.001 and 1; the delay ends at 2 s.
        let p = |ms: f64| libm::pow(0.001, (1.0 - 0.1 * libm::log1p(ms)) / 2.0);
        for (each, ms) in each.iter().zip([0.0, 100.0, 400.0, 2000.0, 2000.0]) {
            assert!(
                (each.unwrap() / p(ms) - 1.0).abs() < 1e-6,
                "{ms} ms: {each:?}"
            );
        }
        assert_eq!(
            (probability(-7.0), probability(7.0)),
            (libm::exp(libm::log(MIN_PROBABILITY)), 1.0)
        );
        assert!(probability(f32::NAN).is_nan(), "the guard has to see it");
    }

    #[test]
    fn a_network_of_logarithms_gives_one_number() {
        let mut card = of_logarithms([0.0; LOGARITHMS.len()]).card().clone();
        card.heads.push(card.heads[0].clone());
        let layer = || Affine {
            weight: vec![0.0; LOGARITHMS.len()],
            bias: vec![0.0],
        };
        let policy = Policy::new(card, &[layer(), layer()]).unwrap();
        assert!(check(&policy).unwrap_err().what.contains("gives 1 number"));
    }

    fn bed<C: Control>(mut controller: C, periods: u64) -> (L4s<TestPacket>, C) {
        let mut q = L4s::new(l4s::Params::default());
        let mut rng = Rng::new(1, "bed");
        for n in 1..=periods {
            let now = Instant::from_millis(n * 15);
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
        let all = (0..q.sub_queues()).map(|i| q.sub_gauges(Instant::ZERO, i).unwrap().probability);
        all.collect()
    }

    #[test]
    fn its_decisions_are_set_in_each_sub_queue() {
        let mut weight = [0.0; INPUTS];
        weight[11] = 100.0; // an L4S sub-queue gets the largest p', a classic one half of it
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
        // The weights are finite, but once packets are queued the sum is infinity minus infinity.
        let mut weight = [0.0; INPUTS];
        (weight[8], weight[9]) = (f32::MAX, f32::MIN);
        let (q, guard) = bed(guarded(controller(weight, 0.0)), 40);
        assert!(guard.stats().not_a_number > 30 && guard.stats().learned < 5);
        // PIE's burst allowance is over after ten periods, and no packet is dequeued: its own law
        // is in control.
        assert!(in_force(&q)[0] < 0.25 && q.sub_queues() == 6);
        let (q, _) = bed(guarded(controller([0.0; INPUTS], 0.0)), 40);
        assert!((in_force(&q)[0] - 0.25).abs() < 1e-6);
    }
}
