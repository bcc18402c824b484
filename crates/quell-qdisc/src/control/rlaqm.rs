//! RL-AQM: a small network sets a FIFO's drop probability each 20 ms.
//!
//! Source: the RL-AQM paper's §3 and its authors' code (github dhulfiqarelte/RLAQM). Every period the controller reads the queue's
//! delay D (ms, backlog over rate), the link's utilisation U since the last decision and the probability p in force; the network
//! ranks five steps of p, and the best one is taken. Two rules go first: an empty queue (D < 1 ms) takes 0.1 off p, and leaves
//! it alone once it is 0.
//!
//! Where sources differ:
//! - The second rule takes 0.1 off, as the code does; the paper's table would make it 0.01.
//! - p stays within 0 and 0.5, as in the code; the paper names no range.
//! - p is kept in hundredths under the steps, since every step is a multiple of one: no rounding builds up, and "p is 0" is exact.
//! - How inputs are scaled is the model card's business: the authors' network reads raw D, U, p.
//!
//! quell's own: a network whose card names outputs `drop = 0.02` ranks probabilities instead of steps, and one with a single output
//! gives p itself. Both read what their card names ([`READINGS`]), no rule goes before them, and above [`Params::ceiling`] p is
//! 0.5. docs/lab/rl-aqm.md says why.

use super::{Control, Explanation, SubQueue};
use crate::policy::{Policy, Scratch};
use crate::{Gauges, KnobSet, Knobs, MS, Nanos, Rng, SEC, US};

/// The steps of p in hundredths, in the order of the network's outputs (Table I).
pub const STEPS: [i32; 5] = [0, 1, -1, 10, -10];
/// Largest p, in hundredths.
pub const MAX_HUNDREDTHS: i32 = 50;
/// Largest p.
const MAX_DROP: f64 = MAX_HUNDREDTHS as f64 / 100.0;
/// Below this delay, ms, the queue counts as empty (both rules).
const EMPTY_MS: f64 = 1.0;
/// Bytes of a packet, for [`Reading::Load`].
const PACKET_BYTES: f64 = 1400.0;
/// Most of [`Reading::Load`].
const MAX_LOAD: f64 = 4.0;

/// What a network of probabilities can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// D: the backlog over the rate, ms.
    Delay,
    /// D at the decision before, ms.
    DelayBefore,
    /// ln(1 + D / ms).
    LogDelay,
    /// The same of the decision before.
    LogDelayBefore,
    /// U: what left since the last decision over what the link could send.
    Utilisation,
    /// The probability in force.
    Drop,
    /// Packets that arrived since the last decision over what the link could send of 1400 bytes, at most 4.
    Load,
}

/// Their names on a model card.
pub const READINGS: [(&str, Reading); 7] = [
    ("delay_ms", Reading::Delay),
    ("delay_before_ms", Reading::DelayBefore),
    ("log_delay", Reading::LogDelay),
    ("log_delay_before", Reading::LogDelayBefore),
    ("utilisation", Reading::Utilisation),
    ("drop", Reading::Drop),
    ("load", Reading::Load),
];

/// Parameters of [`RlAqm`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Time between decisions (default 20 ms, 1 us..10 s).
    pub period: Nanos,
    /// Packets that the FIFO holds (default 5000, at least 1).
    pub limit: u32,
    /// The two rules for an empty queue go before a network of steps (default on).
    pub heuristics: bool,
    /// Delay above which p is 0.5, whatever a network of probabilities answers (default 20 ms; 0: none).
    pub ceiling: Nanos,
    /// Probability of taking a step at random in place of the best (default 0; the paper evaluates with 0.01).
    pub epsilon: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            period: 20 * MS,
            limit: 5000,
            heuristics: true,
            ceiling: 20 * MS,
            epsilon: 0.0,
        }
    }
}

impl Params {
    /// What is wrong with these parameters, if anything.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        if !(US..=10 * SEC).contains(&self.period) {
            return Err("period must be 1us to 10s");
        }
        if self.limit == 0 {
            return Err("limit must be at least 1 packet");
        }
        if !(0.0..=1.0).contains(&self.epsilon) {
            return Err("epsilon must be between 0 and 1");
        }
        Ok(())
    }
}

/// What a network's outputs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outputs {
    /// Values of [`STEPS`].
    Steps,
    /// Values of probabilities.
    Levels,
    /// The probability.
    Level,
}

/// What a network reads and gives.
#[derive(Clone, Debug, PartialEq)]
struct Form {
    readings: Vec<Reading>,
    outputs: Outputs,
    /// The probabilities of [`Outputs::Levels`].
    levels: Vec<f64>,
}

impl Form {
    fn of(policy: &Policy) -> Result<Self, String> {
        let card = policy.card();
        let outputs = card.heads.iter().flat_map(|head| &head.outputs);
        let levels: Option<Vec<f64>> = outputs.map(|name| level(name)).collect();
        let (outputs, levels) = match levels {
            _ if policy.outputs() == 1 => (Outputs::Level, Vec::new()),
            Some(levels) => (Outputs::Levels, levels),
            None => return Self::of_steps(policy),
        };
        let reading = |name: &str| {
            let found = READINGS.iter().find(|(known, _)| *known == name);
            found.map(|(_, reading)| *reading).ok_or_else(|| {
                let known = READINGS.map(|(name, _)| name).join(", ");
                format!("rlaqm has no input `{name}`; it has {known}")
            })
        };
        let readings = card.inputs.iter().map(|input| reading(&input.name));
        Ok(Self {
            readings: readings.collect::<Result<_, _>>()?,
            outputs,
            levels,
        })
    }

    /// The paper's form; its inputs may have any names.
    fn of_steps(policy: &Policy) -> Result<Self, String> {
        if policy.inputs() != 3 {
            let what = "rlaqm's network of steps reads 3 numbers: delay_ms, utilisation, drop";
            return Err(what.into());
        }
        if policy.outputs() != STEPS.len() {
            let what = "rlaqm's network gives 5 numbers, one per step of the drop probability, or one per probability \
                        and named after it, as `drop = 0.1`, or the probability alone";
            return Err(what.into());
        }
        Ok(Self {
            readings: vec![Reading::Delay, Reading::Utilisation, Reading::Drop],
            outputs: Outputs::Steps,
            levels: Vec::new(),
        })
    }
}

/// The probability that an output's name says, as in `drop = 0.1`; none if it says none from 0 to 0.5.
pub fn level(name: &str) -> Option<f64> {
    let p = name.strip_prefix("drop = ")?.parse().ok()?;
    (0.0..=MAX_DROP).contains(&p).then_some(p)
}

/// What is wrong with a network for this controller, if anything.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(policy: &Policy) -> Result<(), String> {
    Form::of(policy).map(|_| ())
}

/// What is read at a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    delay_ms: f64,
    utilisation: f64,
    load: f64,
}

/// The controller of one queue.
#[derive(Clone, Debug)]
pub struct RlAqm {
    params: Params,
    policy: Policy,
    form: Form,
    scratch: Scratch,
    /// p.
    drop: f64,
    /// Time, departed bytes and arrivals at the last decision.
    last: (Nanos, u64, u64),
    /// D at the last decision.
    delay_before_ms: f64,
    /// The link's rate when it last had one.
    rate_bps: u64,
    /// The network's last answer was no number.
    broken: bool,
    /// What the network read at the last decision, and what was chosen of its outputs; where it has one, that.
    inputs: Vec<f32>,
    action: Option<f32>,
    /// Random steps are drawn from here, where it has a stream of its own for them.
    explore: Option<Rng>,
}

impl RlAqm {
    /// Asks `policy`.
    ///
    /// # Errors
    /// If the network does not read and give what this controller needs.
    pub fn new(params: Params, policy: Policy) -> Result<Self, String> {
        let form = Form::of(&policy)?;
        Ok(Self {
            scratch: policy.scratch(),
            inputs: vec![0.0; form.readings.len()],
            form,
            policy,
            params,
            drop: 0.0,
            last: (0, 0, 0),
            delay_before_ms: 0.0,
            rate_bps: 1,
            broken: false,
            action: None,
            explore: None,
        })
    }

    /// Draws its random steps from a stream of their own, so that they do not depend on what else the queue draws.
    pub fn explore_with(&mut self, rng: Rng) {
        self.explore = Some(rng);
    }

    /// The drop probability in force.
    pub fn drop(&self) -> f64 {
        self.drop
    }

    /// What the network reads besides p and the decision before. Starts the next period.
    fn observe(&mut self, gauges: &Gauges) -> Seen {
        // In an outage the last rate stays: D then says how long the backlog would have taken.
        if gauges.rate_bps > 0 {
            self.rate_bps = gauges.rate_bps;
        }
        let rate = self.rate_bps as f64;
        let delay_ms = gauges.backlog_bytes as f64 * 8e3 / rate;
        let (then, departed, arrived) = self.last;
        let seconds = gauges.now.saturating_sub(then).max(1) as f64 / SEC as f64;
        let bytes = gauges.departed_bytes.saturating_sub(departed);
        let arrivals = gauges.arrivals.saturating_sub(arrived) as f64;
        self.last = (gauges.now, gauges.departed_bytes, gauges.arrivals);
        let packets = (rate * seconds / (8.0 * PACKET_BYTES)).max(1.0);
        let utilisation = (bytes as f64 * 8.0 / (rate * seconds)).min(1.0);
        Seen {
            delay_ms,
            utilisation,
            load: (arrivals / packets).min(MAX_LOAD),
        }
    }

    /// The knob as it should stand now.
    pub fn knobs(&self) -> Knobs {
        Knobs {
            drop: Some(self.drop),
            ..Knobs::default()
        }
    }

    /// Reads the gauges and moves the drop probability.
    pub fn step(&mut self, gauges: &Gauges, rng: &mut Rng) {
        let seen = self.observe(gauges);
        for (reading, input) in self.form.readings.iter().zip(&mut self.inputs) {
            *input = match reading {
                Reading::Delay => seen.delay_ms,
                Reading::DelayBefore => self.delay_before_ms,
                Reading::LogDelay => libm::log1p(seen.delay_ms),
                Reading::LogDelayBefore => libm::log1p(self.delay_before_ms),
                Reading::Utilisation => seen.utilisation,
                Reading::Drop => self.drop,
                Reading::Load => seen.load,
            } as f32;
        }
        self.delay_before_ms = seen.delay_ms;
        self.broken = false;
        self.action = Some(match self.explore.take() {
            None => self.act(seen.delay_ms, rng),
            Some(mut own) => {
                let action = self.act(seen.delay_ms, &mut own);
                self.explore = Some(own);
                action
            }
        });
    }

    /// Moves p; gives the number of the output that was chosen, or the only output.
    fn act(&mut self, delay_ms: f64, rng: &mut Rng) -> f32 {
        if self.form.outputs == Outputs::Steps {
            let action = self.choose_step(delay_ms, rng);
            let hundredths = libm::round(self.drop * 100.0) as i32 + STEPS[action];
            self.drop = f64::from(hundredths.clamp(0, MAX_HUNDREDTHS)) / 100.0;
            return action as f32;
        }
        let random = self.explores(rng);
        let (action, drop) = match (self.form.outputs, random) {
            (Outputs::Level, true) => {
                let drop = MAX_DROP * rng.f64();
                (drop as f32, drop)
            }
            (Outputs::Level, false) => {
                let value = self.values()[0];
                (value, f64::from(value).clamp(0.0, MAX_DROP))
            }
            (_, true) => {
                let at = rng.below(self.form.levels.len() as u64) as usize;
                (at as f32, self.form.levels[at])
            }
            (_, false) => {
                let at = argmax(self.values());
                (at as f32, self.form.levels[at])
            }
        };
        // A network that fails leaves p as it is.
        if !self.broken {
            self.drop = drop;
        }
        if self.params.ceiling > 0 && delay_ms > self.params.ceiling as f64 / MS as f64 {
            self.drop = MAX_DROP;
        }
        action
    }

    /// Whether the next step is random.
    fn explores(&self, rng: &mut Rng) -> bool {
        self.params.epsilon > 0.0 && rng.f64() < self.params.epsilon
    }

    /// What the network answers.
    fn values(&mut self) -> &[f32] {
        let values = self.policy.forward(&self.inputs, &mut self.scratch);
        self.broken = !values.iter().all(|v| v.is_finite());
        values
    }

    /// The number of a step: of a rule, a random one, or the best.
    fn choose_step(&mut self, delay_ms: f64, rng: &mut Rng) -> usize {
        if self.params.heuristics && delay_ms < EMPTY_MS {
            return if self.drop == 0.0 { 0 } else { 4 };
        }
        if self.explores(rng) {
            return rng.below(STEPS.len() as u64) as usize;
        }
        argmax(self.values())
    }
}

/// The index of the greatest value, the first of equals, as numpy's argmax.
pub fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (at, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = at;
        }
    }
    best
}

impl Control for RlAqm {
    fn period(&self) -> Nanos {
        self.params.period
    }

    fn decide(&mut self, gauges: &Gauges, _subs: &mut [SubQueue], rng: &mut Rng) -> Knobs {
        self.step(gauges, rng);
        self.knobs()
    }

    fn initial(&mut self) -> Knobs {
        Knobs {
            limit_packets: Some(self.params.limit),
            ..self.knobs()
        }
    }

    fn knobs(&self) -> (KnobSet, KnobSet) {
        let drop = KnobSet {
            drop: true,
            ..KnobSet::LIMIT
        };
        (drop, KnobSet::NONE)
    }

    fn adopt(&mut self, knobs: &Knobs) {
        if let Some(p) = knobs.drop {
            self.drop = match self.form.outputs {
                Outputs::Steps => {
                    f64::from((libm::round(p * 100.0) as i32).clamp(0, MAX_HUNDREDTHS)) / 100.0
                }
                _ => p.clamp(0.0, MAX_DROP),
            };
        }
    }

    fn is_broken(&self) -> bool {
        self.broken
    }

    fn explain(&self) -> Option<Explanation<'_>> {
        self.action.map(|action| Explanation {
            inputs: &self.inputs,
            action,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Activation, Affine, Card, FORMAT, Head, Input};

    const RATE: u64 = 10_000_000;

    /// One linear layer over inputs with these names and scales: the matrix row by row, and the biases.
    fn linear(inputs: &[(&str, f32)], outputs: &[&str], weight: &[f32], bias: &[f32]) -> Policy {
        let input = |(name, scale): &(&str, f32)| Input {
            name: (*name).into(),
            offset: 0.0,
            scale: *scale,
        };
        let card = Card {
            format: FORMAT,
            name: "by-hand".into(),
            what: "a test".into(),
            inputs: inputs.iter().map(input).collect(),
            hidden: vec![],
            heads: vec![Head {
                name: "value".into(),
                activation: Activation::Linear,
                outputs: outputs.iter().map(|name| (*name).into()).collect(),
            }],
            trained_on: "nothing".into(),
            seed: 0,
            quell: "0".into(),
            results: Default::default(),
            origin: None,
        };
        let affine = Affine {
            weight: weight.into(),
            bias: bias.into(),
        };
        Policy::new(card, &[affine]).unwrap()
    }

    /// The value of action a is `weight[a]` times (D/50, U, p) plus `bias[a]`.
    fn network(weight: [[f32; 3]; 5], bias: [f32; 5]) -> Policy {
        let inputs = [("delay_ms", 0.02), ("utilisation", 1.0), ("drop", 1.0)];
        let outputs = STEPS.map(|step| step.to_string());
        linear(
            &inputs,
            &outputs.each_ref().map(|name| &name[..]),
            weight.as_flattened(),
            &bias,
        )
    }

    /// Always the same action.
    fn always(action: usize) -> Policy {
        let mut bias = [0.0; 5];
        bias[action] = 1.0;
        network([[0.0; 3]; 5], bias)
    }

    fn controller(params: Params, policy: Policy) -> RlAqm {
        RlAqm::new(params, policy).unwrap()
    }

    /// Readings at decision `n` (from 1) with this backlog, on a link that was busy since the start.
    fn busy(n: u64, backlog_ms: u64) -> Gauges {
        Gauges {
            now: n * 20 * MS,
            backlog_bytes: RATE / 8 * backlog_ms / 1000,
            rate_bps: RATE,
            departed_bytes: RATE / 8 * 20 * n / 1000,
            ..Gauges::default()
        }
    }

    /// Delay in ms and utilisation.
    fn read(c: &mut RlAqm, gauges: &Gauges) -> (f64, f64) {
        let seen = c.observe(gauges);
        (seen.delay_ms, seen.utilisation)
    }

    fn drops(c: &mut RlAqm, gauges: &[Gauges]) -> Vec<f64> {
        let mut rng = Rng::new(1, "t");
        gauges
            .iter()
            .map(|g| c.decide(g, &mut [], &mut rng).drop.unwrap())
            .collect()
    }

    #[test]
    fn no_random_number_is_drawn_unless_it_explores() {
        let drawn = |epsilon| {
            let params = Params {
                epsilon,
                ..Params::default()
            };
            let mut rng = Rng::new(1, "t");
            controller(params, always(1)).decide(&busy(1, 30), &mut [], &mut rng);
            rng.u64() != Rng::new(1, "t").u64()
        };
        assert_eq!((drawn(0.0), drawn(0.01)), (false, true));
    }

    #[test]
    fn the_first_of_equal_values_is_taken() {
        let policy = network([[0.0; 3]; 5], [0.0, 1.0, 0.0, 1.0, 0.0]);
        let mut c = controller(Params::default(), policy);
        assert_eq!(drops(&mut c, &[busy(1, 30)]), [0.01]);
    }

    #[test]
    fn each_action_is_its_step_of_table_1_and_p_stays_within_0_and_one_half() {
        for (action, expected) in [
            (0, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
            (1, [0.01, 0.02, 0.03, 0.04, 0.05, 0.06]),
            (2, [0.0; 6]),
            (3, [0.1, 0.2, 0.3, 0.4, 0.5, 0.5]),
            (4, [0.0; 6]),
        ] {
            let mut c = controller(Params::default(), always(action));
            let gauges: Vec<_> = (1..=6).map(|n| busy(n, 30)).collect();
            assert_eq!(drops(&mut c, &gauges), expected, "action {action}");
        }
    }

    #[test]
    fn an_empty_queue_takes_a_tenth_off_whatever_the_network_says() {
        let mut c = controller(Params::default(), always(1));
        let gauges: Vec<_> = (1..=12)
            .map(|n| busy(n, 30))
            .chain((13..=15).map(|n| busy(n, 0)))
            .collect();
        assert_eq!(drops(&mut c, &gauges)[11..], [0.12, 0.02, 0.0, 0.0]);
    }

    #[test]
    fn without_heuristics_the_network_is_asked_about_an_empty_queue_too() {
        let bare = Params {
            heuristics: false,
            ..Params::default()
        };
        let mut c = controller(bare, always(1));
        assert_eq!(drops(&mut c, &[busy(1, 0), busy(2, 0)]), [0.01, 0.02]);
    }

    #[test]
    fn delay_is_backlog_over_rate_and_utilisation_what_left_since() {
        let mut c = controller(Params::default(), always(0));
        // 12,500 bytes at 10 Mbit/s are 10 ms.
        assert_eq!(read(&mut c, &busy(1, 10)), (10.0, 1.0));
        let half = Gauges {
            departed_bytes: 25_000 + 12_500,
            ..busy(2, 7)
        };
        assert_eq!(read(&mut c, &half), (7.0, 0.5));
        // A device queue can take more than the link sends: never above 1.
        let much = Gauges {
            departed_bytes: 1_000_000,
            ..busy(3, 0)
        };
        assert_eq!(read(&mut c, &much), (0.0, 1.0));
        // An outage keeps the rate.
        let dark = Gauges {
            rate_bps: 0,
            departed_bytes: 1_000_000,
            ..busy(4, 10)
        };
        assert_eq!(read(&mut c, &dark), (10.0, 0.0));
    }

    #[test]
    fn the_network_reads_delay_utilisation_and_p_in_this_order() {
        // Up by 0.1 is worth D/50, down by 0.01 is worth 2.5 p, staying 0.65 U.
        let w = [
            [0.0, 0.65, 0.0],
            [0.0; 3],
            [0.0, 0.0, 2.5],
            [1.0, 0.0, 0.0],
            [0.0; 3],
        ];
        let mut c = controller(Params::default(), network(w, [0.0; 5]));
        let gauges: Vec<_> = [20, 45, 45, 45, 45, 45, 30]
            .iter()
            .zip(1..)
            .map(|(ms, n)| busy(n, *ms))
            .collect();
        // 20 ms: 0.4 < 0.65, stays. 45 ms: 0.9 is best until 2.5 p passes it at 0.4.
        assert_eq!(
            drops(&mut c, &gauges),
            [0.0, 0.1, 0.2, 0.3, 0.4, 0.39, 0.38]
        );
    }

    #[test]
    fn exploring_takes_every_step_alike() {
        let random = Params {
            epsilon: 1.0,
            ..Params::default()
        };
        let mut c = controller(random, always(0));
        let mut rng = Rng::new(1, "t");
        let mut seen = [0; 5];
        for _ in 0..5000 {
            seen[c.choose_step(30.0, &mut rng)] += 1;
        }
        // 1000 each, standard deviation 28.
        assert!(seen.iter().all(|n| (880..1120).contains(n)), "{seen:?}");
    }

    #[test]
    fn a_network_of_probabilities_sets_the_one_that_it_ranks_highest() {
        // ln(1 + D) less 2 against a constant: above 6.4 ms it is the second one.
        let outputs = ["drop = 0", "drop = 0.35"];
        let policy = linear(&[("log_delay", 1.0)], &outputs, &[0.0, 1.0], &[0.0, -2.0]);
        let mut c = controller(Params::default(), policy);
        // The rule for an empty queue is not of this form: p falls at once.
        let gauges = [busy(1, 6), busy(2, 7), busy(3, 0), busy(4, 20), busy(5, 21)];
        assert_eq!(drops(&mut c, &gauges), [0.0, 0.35, 0.0, 0.35, 0.5]);
        let seen = c.explain().unwrap();
        assert_eq!(
            (seen.inputs, seen.action),
            (&[libm::log1p(21.0) as f32][..], 1.0)
        );
    }

    #[test]
    fn a_law_is_a_network_with_one_output() {
        // PI: p + 0.02 (D - 5) + 0.01 (D - D before).
        let inputs = [("delay_ms", 1.0), ("delay_before_ms", 1.0), ("drop", 1.0)];
        let policy = linear(&inputs, &["drop"], &[0.03, -0.01, 1.0], &[-0.1]);
        let mut c = controller(Params::default(), policy);
        let p = drops(
            &mut c,
            &[busy(1, 9), busy(2, 9), busy(3, 5), busy(4, 0), busy(5, 40)],
        );
        for (p, expected) in p.iter().zip([0.17, 0.25, 0.21, 0.06, 0.5]) {
            assert!((p - expected).abs() < 1e-6, "{p} {expected}");
        }
    }

    #[test]
    fn without_a_ceiling_the_network_decides_at_every_delay() {
        let policy = linear(
            &[("load", 1.0)],
            &["drop = 0", "drop = 0.1"],
            &[0.0, 0.0],
            &[1.0, 0.0],
        );
        let with = |ceiling| Params {
            ceiling,
            ..Params::default()
        };
        for (ceiling, p) in [(0, 0.0), (30 * MS, 0.0), (29 * MS, 0.5)] {
            let mut c = controller(with(ceiling), policy.clone());
            assert_eq!(drops(&mut c, &[busy(1, 30)]), [p]);
        }
    }

    #[test]
    fn load_is_arrivals_over_what_the_link_sends() {
        let mut c = controller(Params::default(), always(0));
        let arrived = |n, arrivals| Gauges {
            arrivals,
            ..busy(n, 0)
        };
        // 20 ms at 10 Mbit/s are 17.86 packets of 1400 bytes.
        let load = |c: &mut RlAqm, n, arrivals| c.observe(&arrived(n, arrivals)).load;
        assert!((load(&mut c, 1, 25) - 1.4).abs() < 1e-12);
        assert_eq!(load(&mut c, 2, 25), 0.0);
        assert_eq!(load(&mut c, 3, 1000), 4.0);
    }

    #[test]
    fn exploring_takes_every_probability_alike_and_does_not_leave_the_range() {
        let random = Params {
            epsilon: 1.0,
            ceiling: 0,
            ..Params::default()
        };
        let outputs = ["drop = 0", "drop = 0.25", "drop = 0.5"];
        let ranks = linear(&[("drop", 1.0)], &outputs, &[0.0; 3], &[0.0; 3]);
        let gives = linear(&[("drop", 1.0)], &["drop"], &[0.0], &[9.0]);
        let gauges: Vec<_> = (1..=3000).map(|n| busy(n, 30)).collect();
        for policy in [ranks, gives] {
            let p = drops(&mut controller(random.clone(), policy), &gauges);
            let mean = p.iter().sum::<f64>() / 3000.0;
            assert!((mean - 0.25).abs() < 0.02, "{mean}");
            assert!(p.iter().all(|p| (0.0..=0.5).contains(p)));
        }
    }

    #[test]
    fn a_network_of_probabilities_reads_what_there_is() {
        let policy = linear(
            &[("jitter", 1.0)],
            &["drop = 0", "drop = 0.1"],
            &[0.0; 2],
            &[0.0; 2],
        );
        let error = RlAqm::new(Params::default(), policy).unwrap_err();
        assert!(
            error.contains("no input `jitter`; it has delay_ms, "),
            "{error}"
        );
        for (name, p) in [
            ("drop = 0.5", Some(0.5)),
            ("drop = 0.51", None),
            ("drop = nan", None),
            ("drop +0.1", None),
        ] {
            assert_eq!(level(name), p, "{name}");
        }
    }

    #[test]
    fn a_network_of_another_shape_is_refused() {
        let card = always(0).card().clone();
        let mut four = card.clone();
        four.heads[0].outputs.pop();
        let affine = |outputs: usize, inputs: usize| Affine {
            weight: vec![0.0; outputs * inputs],
            bias: vec![0.0; outputs],
        };
        let four = Policy::new(four, &[affine(4, 3)]).unwrap();
        assert!(
            RlAqm::new(Params::default(), four)
                .unwrap_err()
                .contains("5 numbers")
        );
        let mut two = card;
        two.inputs.pop();
        let two = Policy::new(two, &[affine(5, 2)]).unwrap();
        assert!(
            RlAqm::new(Params::default(), two)
                .unwrap_err()
                .contains("3 numbers")
        );
    }
}
