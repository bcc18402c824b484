//! LFQ's controller: a network sets a flow's limit at each tenth packet, from 60 features of that flow's traffic.
//!
//! Source: the LFQ paper's §III and its authors' code (github CN-TU/reinforcement-learning-for-per-flow-buffer-sizing). The
//! features are moving averages, each with ten weights: backlog, its deviation, limit, arrival and departure rate, time since
//! the last loss. The network's output, rounded, is the limit.
//!
//! Where sources differ:
//! - The ten weights are 2^-5 to 2^-14, as in the code; the paper prints 2^-4 to 2^-13 (`paper_weights`).
//! - A rate is 0 until the fewer of arrivals and departures reach 1/weight, as in the code; the paper says n packets.
//! - The first packet asks the network twice, as in the code (as the first ever, and as a tenth one): the averages of the
//!   limit differ.
//! - First gaps, and the time since the last loss, run from the flow's first packet; in the code from time 0, when the one flow
//!   that it has starts.
//!
//! An environment answers in the network's place: see [`Lfq::ask_outside`].
//!
//! For training there is an [`Experiment`]: at the first tenth packet after a given time the limit goes one up or one down
//! and stays there, and what follows is measured.

use crate::policy::{Activation, Affine, Card, Error, FORMAT, Head, Input, Policy, Scratch};
use crate::{Nanos, SEC};

/// Weights of each average.
const WEIGHTS: usize = 10;
/// Numbers that the network reads.
pub const FEATURES: usize = 6 * WEIGHTS;
/// Least and greatest limit that the network may set, packets.
pub const LIMITS: (u32, u32) = (1, 1000);
/// Limit of a flow before its first packet.
pub const INITIAL: u32 = 1;
/// Backlogs and limits are counted in this many packets.
const PACKETS: f64 = 100.0;
/// Rates in this many packets per second.
const RATE: f64 = 10_000.0;
/// Weight of the latest gap in the average that `ceiling` goes by.
const SERVICE_WEIGHT: f64 = 1.0 / 32.0;
/// Packets that `ceiling` leaves to every flow.
const LEAST_BOUND: u32 = 2;
/// Times since a loss in this many seconds.
const SINCE_LOSS: f64 = 10.0;

/// Parameters of the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets of a flow between two looks at it (default 10, at least 1).
    pub every: u32,
    /// The weights that the paper prints: 2^-4 to 2^-13 (default off).
    pub paper_weights: bool,
    /// A limit is at most what its flow sends in this time while it has packets waiting, at least 2 packets (default 0: no such
    /// bound, as published). The network learned from flows with 5 Mbit/s and more for themselves; a flow whose share is less
    /// gets a limit for about 5 Mbit/s, which is a long wait.
    pub ceiling: Nanos,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            every: 10,
            paper_weights: false,
            ceiling: 0,
        }
    }
}

impl Params {
    /// What is wrong with these parameters, if anything.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.every == 0 {
            return Err("every must be at least 1 packet");
        }
        Ok(())
    }
}

/// What is wrong with a network for this controller, if anything.
pub fn check(policy: &Policy) -> Result<(), &'static str> {
    if policy.inputs() != FEATURES {
        return Err("lfq's network reads 60 numbers, a flow's features");
    }
    if policy.outputs() != 1 {
        return Err("lfq's network gives 1 number, a limit in packets");
    }
    Ok(())
}

/// The limit that a network's output means.
#[inline]
pub fn limit_of(output: f32) -> u32 {
    // NaN becomes the least limit.
    let limit = libm::roundf(output).clamp(LIMITS.0 as f32, LIMITS.1 as f32) as u32;
    limit.max(LIMITS.0)
}

/// The names of the network's inputs, in order; the number at the end is the average's weight as a negative power of two.
pub fn features(params: &Params) -> Vec<String> {
    let first = first_power(params);
    let kinds = [
        "backlog_100p",
        "backlog_deviation_100p",
        "limit_100p",
        "arrivals_10000ps",
        "departures_10000ps",
        "since_loss_10s",
    ];
    let powers = first..first + WEIGHTS as i32;
    kinds
        .iter()
        .flat_map(|kind| powers.clone().map(move |power| format!("{kind}_{power}")))
        .collect()
}

/// A network with the paper's activations from its layers: three hidden ones with leaky ReLU, then the limit.
///
/// # Errors
/// If the layers do not fit together or hold a number that is not finite.
pub fn policy(params: &Params, layers: &[Affine]) -> Result<Policy, Error> {
    let input = |name| Input {
        name,
        offset: 0.0,
        scale: 1.0,
    };
    let card = Card {
        format: FORMAT,
        name: "lfq".into(),
        what: "LFQ in training".into(),
        inputs: features(params).into_iter().map(input).collect(),
        hidden: vec![Activation::LeakyRelu; 3],
        heads: vec![Head {
            name: "limit".into(),
            activation: Activation::Linear,
            outputs: vec!["packets".into()],
        }],
        trained_on: String::new(),
        seed: 0,
        quell: env!("CARGO_PKG_VERSION").into(),
        results: Default::default(),
    };
    Policy::new(card, layers)
}

fn first_power(params: &Params) -> i32 {
    if params.paper_weights { 4 } else { 5 }
}

type Averages = [f64; WEIGHTS];

/// What is remembered of one flow. 60 averages and a few counters, all 0 before the first packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    backlog: Averages,
    /// Squared distances from the mean.
    variance: Averages,
    limits: Averages,
    /// Seconds between arrivals, and between departures.
    arrival_gap: Averages,
    departure_gap: Averages,
    since_loss: Averages,
    arrivals: u64,
    departures: u64,
    last_arrival: Nanos,
    last_departure: Nanos,
    last_loss: Nanos,
    /// Arrivals until the network is asked again.
    countdown: u32,
    limit: u32,
    /// Seconds between departures while packets wait, and whether the last departure left one: for `ceiling` alone.
    service_gap: f64,
    left_some: bool,
    /// An experiment has set the limit for good.
    decided: bool,
}

impl State {
    /// A flow whose first packet comes now.
    pub fn new(now: Nanos) -> Self {
        Self {
            last_arrival: now,
            last_departure: now,
            last_loss: now,
            limit: INITIAL,
            ..Self::default()
        }
    }

    /// The limit in force, packets.
    #[inline]
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

/// Which way an experiment moves the limit, when, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// The decision falls at the first tenth packet that comes later than this.
    pub after: Nanos,
    /// One packet up, or one down.
    pub up: bool,
    /// Once it has fallen.
    pub decision: Option<Box<Decision>>,
}

/// What an experiment saw, did and measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// When the limit was set for good.
    pub at: Nanos,
    /// What the network would have read.
    pub features: [f32; FEATURES],
    /// The limit before.
    pub before: u32,
    /// The limit set, and the one that the other way would have set.
    pub limits: (u32, u32),
    /// Packets and bytes given on since.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time integral of the packets queued since.
    pub packet_ns: u128,
    /// When the integral was last brought up to date.
    since: Nanos,
}

impl Decision {
    /// The queue held so many packets up to now.
    #[inline]
    pub fn settle(&mut self, now: Nanos, held: u32) {
        self.packet_ns += u128::from(u64::from(held) * (now - self.since));
        self.since = now;
    }
}

/// The two limits that an experiment compares, one below and one above, moved into the range where an end is met.
pub fn window(limit: u32) -> (u32, u32) {
    let low = limit.saturating_sub(1).clamp(LIMITS.0, LIMITS.1 - 2);
    (low, low + 2)
}

/// The controller of all flows of a queue; what it remembers of each lies with the queue.
#[derive(Clone, Debug)]
pub struct Lfq {
    params: Params,
    policy: Policy,
    scratch: Scratch,
    weights: Averages,
    inputs: [f32; FEATURES],
    experiment: Option<Experiment>,
    outside: Option<Box<Outside>>,
}

/// Somebody else's answers in the network's place, for the packet that arrives; its first packet asks twice.
#[derive(Clone, Debug, Default)]
struct Outside {
    answers: [u32; 2],
    given: usize,
    used: usize,
    question: Option<[f32; FEATURES]>,
}

impl Lfq {
    /// Asks `policy`.
    ///
    /// # Errors
    /// If the network does not read and give what this controller needs.
    pub fn new(params: Params, policy: Policy) -> Result<Self, &'static str> {
        check(&policy)?;
        let first = first_power(&params);
        Ok(Self {
            scratch: policy.scratch(),
            policy,
            weights: std::array::from_fn(|i| libm::ldexp(1.0, -(first + i as i32))),
            params,
            inputs: [0.0; FEATURES],
            experiment: None,
            outside: None,
        })
    }

    /// Makes an experiment of the first flow to meet its condition, or ends one.
    pub fn set_experiment(&mut self, experiment: Option<Experiment>) {
        self.experiment = experiment;
    }

    /// The experiment, if there is one.
    pub fn experiment_mut(&mut self) -> Option<&mut Experiment> {
        self.experiment.as_mut()
    }

    /// From now on nobody asks the network: [`Lfq::arrival_or_question`] waits for answers. Or the network again, where no answer is
    /// awaited.
    pub fn ask_outside(&mut self, outside: bool) {
        self.outside = outside.then(Box::default);
    }

    /// True if answers come from outside.
    #[inline]
    pub fn asks_outside(&self) -> bool {
        self.outside.is_some()
    }

    /// What the network would read, while an answer is awaited.
    pub fn question(&self) -> Option<&[f32; FEATURES]> {
        self.outside.as_ref()?.question.as_ref()
    }

    /// Answers the question with a limit, packets.
    pub fn answer(&mut self, limit: u32) {
        if let Some(outside) = &mut self.outside
            && outside.question.take().is_some()
            && outside.given < outside.answers.len()
        {
            outside.answers[outside.given] = limit.clamp(LIMITS.0, LIMITS.1);
            outside.given += 1;
        }
    }

    /// As [`Lfq::arrival`] with answers from outside: None, and nothing has changed, until all that the packet needs are there.
    pub fn arrival_or_question(&mut self, now: Nanos, flow: &mut State, held: u32) -> Option<bool> {
        if flow.countdown > 0 {
            return Some(self.arrival(now, flow, held));
        }
        self.outside.as_mut()?.used = 0;
        let mut trial = flow.clone();
        let joins = self.arrival(now, &mut trial, held);
        let outside = self.outside.as_mut()?;
        if outside.question.is_some() {
            return None;
        }
        outside.given = 0;
        *flow = trial;
        Some(joins)
    }

    /// The next answer from outside; without one, the question.
    #[cold]
    fn answered(&mut self) -> Option<u32> {
        let outside = self.outside.as_mut()?;
        if outside.used < outside.given {
            outside.used += 1;
            return Some(outside.answers[outside.used - 1]);
        }
        outside.question.get_or_insert(self.inputs);
        None
    }

    /// The experiment's decision, once it has fallen.
    #[inline]
    fn decision(&mut self) -> Option<&mut Decision> {
        self.experiment.as_mut()?.decision.as_deref_mut()
    }

    /// A packet of a flow arrives while `held` others wait: true if it may join them.
    #[inline]
    pub fn arrival(&mut self, now: Nanos, flow: &mut State, held: u32) -> bool {
        if flow.decided {
            if let Some(decision) = self.decision() {
                decision.settle(now, held);
            }
            flow.last_arrival = now;
            return held < flow.limit;
        }
        self.see_arrival(now, flow, held);
        if flow.arrivals == 1 {
            self.infer(flow);
        }
        if flow.countdown == 0 {
            flow.countdown = self.params.every;
            match &self.experiment {
                Some(e) if e.decision.is_none() && now > e.after => self.decide(now, flow),
                _ => self.infer(flow),
            }
        }
        flow.countdown -= 1;
        let joins = held < flow.limit;
        if !joins {
            flow.last_loss = now;
        }
        let since = seconds(now - flow.last_loss) / SINCE_LOSS;
        average(&mut flow.since_loss, &self.weights, since);
        joins
    }

    /// A packet of a flow leaves; before, `held` were queued.
    #[inline]
    pub fn departure(&mut self, now: Nanos, flow: &mut State, held: u32, bytes: u32) {
        if flow.decided {
            if let Some(decision) = self.decision() {
                decision.settle(now, held);
                decision.packets += 1;
                decision.bytes += u64::from(bytes);
            }
            return;
        }
        flow.departures += 1;
        let gap = seconds(now - flow.last_departure);
        flow.last_departure = now;
        average(&mut flow.departure_gap, &self.weights, gap);
        if self.params.ceiling > 0 {
            if flow.left_some {
                let first = flow.service_gap == 0.0;
                let weight = if first { 1.0 } else { SERVICE_WEIGHT };
                flow.service_gap += weight * (gap - flow.service_gap);
            }
            flow.left_some = held > 1;
        }
    }

    #[inline]
    fn see_arrival(&self, now: Nanos, flow: &mut State, held: u32) {
        let (w, held) = (&self.weights, f64::from(held) / PACKETS);
        flow.arrivals += 1;
        average(&mut flow.backlog, w, held);
        let means = flow.backlog.iter().zip(w);
        for (variance, (mean, w)) in flow.variance.iter_mut().zip(means) {
            let off = mean - held;
            *variance = w * (off * off) + (1.0 - w) * *variance;
        }
        let gap = seconds(now - flow.last_arrival);
        flow.last_arrival = now;
        average(&mut flow.arrival_gap, w, gap);
    }

    fn infer(&mut self, flow: &mut State) {
        read(&self.weights, flow, &mut self.inputs);
        if self.outside.is_some() {
            if let Some(limit) = self.answered() {
                self.set(flow, limit);
            }
            return;
        }
        let output = self.policy.forward(&self.inputs, &mut self.scratch)[0];
        self.set(flow, limit_of(output));
    }

    fn set(&self, flow: &mut State, limit: u32) {
        let limit = self.bounded(flow, limit);
        flow.limit = limit;
        average(&mut flow.limits, &self.weights, f64::from(limit) / PACKETS);
    }

    /// No more than `ceiling` allows.
    #[inline]
    fn bounded(&self, flow: &State, limit: u32) -> u32 {
        if self.params.ceiling == 0 || flow.service_gap == 0.0 {
            return limit;
        }
        let sent = seconds(self.params.ceiling) / flow.service_gap;
        limit.min((sent as u32).max(LEAST_BOUND))
    }

    #[cold]
    fn decide(&mut self, now: Nanos, flow: &mut State) {
        let Some(experiment) = &mut self.experiment else {
            return;
        };
        let mut features = [0.0; FEATURES];
        read(&self.weights, flow, &mut features);
        let (low, high) = window(flow.limit);
        let limits = if experiment.up {
            (high, low)
        } else {
            (low, high)
        };
        experiment.decision = Some(Box::new(Decision {
            at: now,
            features,
            before: flow.limit,
            limits,
            packets: 0,
            bytes: 0,
            packet_ns: 0,
            since: now,
        }));
        flow.decided = true;
        flow.limit = limits.0;
    }
}

fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SEC as f64
}

/// Ten exponentially weighted moving averages of the same value.
#[inline(always)]
fn average(averages: &mut Averages, weights: &Averages, value: f64) {
    for (a, w) in averages.iter_mut().zip(weights) {
        *a = w * value + (1.0 - w) * *a;
    }
}

/// The network's inputs.
#[inline]
fn read(weights: &Averages, flow: &State, out: &mut [f32; FEATURES]) {
    let packets = flow.arrivals.min(flow.departures) as f64;
    let rate = |gap: f64, weight: f64| {
        if gap == 0.0 || 1.0 / weight > packets {
            return 0.0;
        }
        1.0 / gap / RATE
    };
    for (i, &w) in weights.iter().enumerate() {
        out[i] = flow.backlog[i] as f32;
        out[10 + i] = libm::sqrt(flow.variance[i]) as f32;
        out[20 + i] = flow.limits[i] as f32;
        out[30 + i] = rate(flow.arrival_gap[i], w) as f32;
        out[40 + i] = rate(flow.departure_gap[i], w) as f32;
        out[50 + i] = flow.since_loss[i] as f32;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{MS, Rng, US};

    /// A network 60-8-8-8-1 of random weights whose output is about `bias`.
    pub(crate) fn network(seed: u64, bias: f32) -> Policy {
        let mut rng = Rng::new(seed, "weights");
        let widths = [FEATURES, 8, 8, 8, 1];
        let mut layers: Vec<Affine> = widths
            .windows(2)
            .map(|w| {
                let mut draw = |n| (0..n).map(|_| (4.0 * rng.f64() - 2.0) as f32).collect();
                Affine {
                    weight: draw(w[0] * w[1]),
                    bias: draw(w[1]),
                }
            })
            .collect();
        layers[3].bias[0] += bias;
        policy(&Params::default(), &layers).unwrap()
    }

    /// A network that always gives this number.
    pub(crate) fn constant(output: f32) -> Policy {
        let layer = |inputs: usize, outputs: usize, bias: f32| Affine {
            weight: vec![0.0; inputs * outputs],
            bias: vec![bias; outputs],
        };
        let layers = [
            layer(FEATURES, 1, 0.0),
            layer(1, 1, 0.0),
            layer(1, 1, 0.0),
            layer(1, 1, output),
        ];
        policy(&Params::default(), &layers).unwrap()
    }

    fn controller(policy: Policy) -> Lfq {
        Lfq::new(Params::default(), policy).unwrap()
    }

    /// The features over again, from everything that ever happened and the definitions alone.
    #[derive(Default)]
    struct Naive {
        /// Time, packets queued, whether it was dropped.
        arrivals: Vec<(f64, f64)>,
        departures: Vec<f64>,
        limits: Vec<f64>,
        since_loss: Vec<f64>,
    }

    impl Naive {
        fn mean(values: impl Iterator<Item = f64>, weight: f64) -> f64 {
            values.fold(0.0, |mean, x| weight * x + (1.0 - weight) * mean)
        }

        fn gaps(times: &[f64]) -> Vec<f64> {
            let before = std::iter::once(&0.0).chain(times);
            times.iter().zip(before).map(|(t, b)| t - b).collect()
        }

        fn features(&self, first: i32) -> Vec<f64> {
            let weights: Vec<f64> = (0..10).map(|i| 0.5_f64.powi(first + i)).collect();
            let backlog: Vec<f64> = self.arrivals.iter().map(|a| a.1 / 100.0).collect();
            let least = self.arrivals.len().min(self.departures.len()) as f64;
            let times: Vec<f64> = self.arrivals.iter().map(|a| a.0).collect();
            let rate = |times: &[f64], w: f64| {
                let gap = Self::mean(Self::gaps(times).into_iter(), w);
                let known = gap != 0.0 && least >= 1.0 / w;
                if known { 1.0 / gap / 10_000.0 } else { 0.0 }
            };
            let deviation = |w: f64| {
                let mut variance = 0.0;
                for (k, q) in backlog.iter().enumerate() {
                    let mean = Self::mean(backlog[..=k].iter().copied(), w);
                    variance = w * (mean - q) * (mean - q) + (1.0 - w) * variance;
                }
                variance.sqrt()
            };
            let each = |f: &dyn Fn(f64) -> f64| weights.iter().map(|&w| f(w)).collect::<Vec<_>>();
            [
                each(&|w| Self::mean(backlog.iter().copied(), w)),
                each(&deviation),
                each(&|w| Self::mean(self.limits.iter().map(|l| l / 100.0), w)),
                each(&|w| rate(&times, w)),
                each(&|w| rate(&self.departures, w)),
                each(&|w| Self::mean(self.since_loss.iter().map(|s| s / 10.0), w)),
            ]
            .concat()
        }
    }

    #[test]
    fn features_are_those_of_a_slow_reading_of_the_definitions() {
        for paper_weights in [false, true] {
            let params = Params {
                paper_weights,
                ..Params::default()
            };
            let mut c = Lfq::new(params, network(3, 8.0)).unwrap();
            let (mut flow, mut naive, mut rng) =
                (State::new(0), Naive::default(), Rng::new(5, "t"));
            let (mut now, mut held, mut last_loss) = (0, 0u32, 0.0);
            let (mut limits, mut asked) = (Vec::new(), 0);
            for step in 0..600u64 {
                now += rng.below(3 * MS);
                let t = seconds(now);
                if rng.below(100) < 55 {
                    naive.arrivals.push((t, f64::from(held)));
                    let nth = naive.arrivals.len() - 1;
                    let joins = c.arrival(now, &mut flow, held);
                    if nth.is_multiple_of(10) {
                        // The network read what was known just before its answer; the first packet asks twice.
                        for _ in 0..if nth == 0 { 2 } else { 1 } {
                            let x: Vec<f32> = naive
                                .features(if paper_weights { 4 } else { 5 })
                                .iter()
                                .map(|&x| x as f32)
                                .collect();
                            let mut scratch = c.policy.scratch();
                            let y = c.policy.forward(&x, &mut scratch)[0];
                            let limit = f64::from(y.round().clamp(1.0, 1000.0));
                            naive.limits.push(limit);
                            asked += 1;
                        }
                        for (i, (a, b)) in c
                            .inputs
                            .iter()
                            .zip(naive.features_at_last_question(paper_weights))
                            .enumerate()
                        {
                            assert!(
                                (f64::from(*a) - b).abs() <= 1e-6 * b.abs().max(1e-3),
                                "step {step}, feature {i}: {a} is not {b}"
                            );
                        }
                        limits.push(flow.limit());
                    }
                    assert_eq!(
                        f64::from(flow.limit()),
                        *naive.limits.last().unwrap(),
                        "step {step}"
                    );
                    assert_eq!(joins, held < flow.limit());
                    if joins {
                        held += 1;
                    } else {
                        last_loss = t;
                    }
                    naive.since_loss.push(t - last_loss);
                } else if held > 0 {
                    naive.departures.push(t);
                    c.departure(now, &mut flow, held, 1500);
                    held -= 1;
                }
            }
            assert!(asked > 20 && naive.departures.len() > 64 && last_loss > 0.0);
            limits.dedup();
            assert!(limits.len() > 2, "the limit moved: {limits:?}");
        }
    }

    impl Naive {
        /// The features without the last answer's own limit.
        fn features_at_last_question(&mut self, paper_weights: bool) -> Vec<f64> {
            let last = self.limits.pop().unwrap();
            let features = self.features(if paper_weights { 4 } else { 5 });
            self.limits.push(last);
            features
        }
    }

    #[test]
    fn outputs_are_rounded_to_packets_within_the_range() {
        for (output, limit) in [
            (-5.0, 1),
            (0.4, 1),
            (1.49, 1),
            (1.5, 2),
            (22.6, 23),
            (999.7, 1000),
            (1e9, 1000),
            (f32::MAX, 1000),
        ] {
            let mut flow = State::new(0);
            controller(constant(output)).arrival(0, &mut flow, 0);
            assert_eq!(flow.limit(), limit, "{output}");
        }
    }

    #[test]
    fn a_packet_joins_if_those_before_it_are_fewer_than_the_limit() {
        let mut c = controller(constant(3.0));
        let mut flow = State::new(0);
        let joined = [0, 1, 2, 3, 4].map(|held| c.arrival(0, &mut flow, held));
        assert_eq!(joined, [true, true, true, false, false]);
    }

    #[test]
    fn the_network_is_asked_at_the_first_and_each_tenth_packet() {
        let mut c = controller(constant(5.0));
        let mut flow = State::new(0);
        let asked: Vec<usize> = (0..25)
            .filter(|_| {
                let before = flow.limits;
                c.arrival(0, &mut flow, 0);
                flow.limits != before
            })
            .collect();
        assert_eq!(asked, [0, 10, 20]);
    }

    #[test]
    fn a_ceiling_bounds_the_limit_by_what_is_sent_while_packets_wait() {
        for (ceiling, held, limit) in [
            (0, 5, 50),
            (10 * MS, 5, 10),
            (500 * US, 5, 2),
            // Nothing was waiting: how fast the flow could be served is not known.
            (10 * MS, 1, 50),
        ] {
            let params = Params {
                ceiling,
                ..Params::default()
            };
            let mut c = Lfq::new(params, constant(50.0)).unwrap();
            let mut flow = State::new(0);
            for k in 1..=100 {
                c.arrival(k * MS, &mut flow, held - 1);
                c.departure(k * MS, &mut flow, held, 1500);
            }
            assert_eq!(flow.limit(), limit, "{ceiling} ns, {held} held");
        }
    }

    #[test]
    fn windows_are_two_wide_and_stay_in_range() {
        for (limit, expected) in [
            (1, (1, 3)),
            (2, (1, 3)),
            (3, (2, 4)),
            (500, (499, 501)),
            (999, (998, 1000)),
            (1000, (998, 1000)),
        ] {
            assert_eq!(window(limit), expected);
        }
    }

    #[test]
    fn an_experiment_acts_at_the_first_tenth_packet_after_its_time_and_freezes_the_limit() {
        for (up, limits) in [(false, (6, 8)), (true, (8, 6))] {
            let mut c = controller(constant(7.0));
            c.set_experiment(Some(Experiment {
                after: 20 * MS,
                up,
                decision: None,
            }));
            let mut flow = State::new(0);
            // Packet k comes at k ms: 20 is the third tenth one, at the time but not after it; 30 is.
            for k in 0..30 {
                c.arrival(k * MS, &mut flow, 0);
                assert_eq!(flow.limit(), 7);
            }
            c.arrival(30 * MS, &mut flow, 0);
            let d = c.decision().unwrap().clone();
            assert_eq!((d.at, d.before, d.limits), (30 * MS, 7, limits));
            // The 31st value of an average of zeros but for arrivals, limits and times.
            assert_eq!(d.features[..20], [0.0; 20]);
            assert!(d.features[20] > 0.0 && d.features[50] > 0.0);
            let frozen = flow.limit();
            for k in 31..100 {
                c.arrival(k * MS, &mut flow, 0);
                assert_eq!(flow.limit(), frozen);
            }
        }
    }

    #[test]
    fn an_experiment_adds_up_packets_over_time_and_bytes_that_left() {
        let mut c = controller(constant(7.0));
        c.set_experiment(Some(Experiment {
            after: 5 * US,
            up: true,
            decision: None,
        }));
        let mut flow = State::new(0);
        for k in 1..=11 {
            c.arrival(k * US, &mut flow, 2);
        }
        // 2 packets for 5 us, 3 for 10 us, 2 for 1 us, 0 for 4 us
        c.arrival(16 * US, &mut flow, 2);
        c.departure(26 * US, &mut flow, 3, 1500);
        c.departure(27 * US, &mut flow, 2, 700);
        let d = c.decision().unwrap();
        d.settle(31 * US, 0);
        assert_eq!(d.at, 11 * US);
        assert_eq!((d.packets, d.bytes), (2, 2200));
        assert_eq!(d.packet_ns, (2 * 5 + 3 * 10 + 2) * 1000);
    }

    #[test]
    fn sixty_names_tell_sixty_features() {
        let names = features(&Params::default());
        assert_eq!(names.len(), FEATURES);
        assert_eq!(
            (&names[0][..], &names[59][..]),
            ("backlog_100p_5", "since_loss_10s_14")
        );
        let paper = Params {
            paper_weights: true,
            ..Params::default()
        };
        assert_eq!(features(&paper)[0], "backlog_100p_4");
        let mut all = names;
        all.sort();
        all.dedup();
        assert_eq!(all.len(), FEATURES);
    }

    #[test]
    fn a_network_of_other_shape_is_refused() {
        let shape = |inputs: usize, outputs: usize| Affine {
            weight: vec![0.0; inputs * outputs],
            bias: vec![0.0; outputs],
        };
        let wrong = [shape(60, 4), shape(4, 4), shape(4, 4), shape(4, 2)];
        assert!(policy(&Params::default(), &wrong).is_err());
        assert!(policy(&Params::default(), &wrong[..2]).is_err());
    }
}
