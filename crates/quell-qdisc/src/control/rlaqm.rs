//! RL-AQM: a small network sets a FIFO's drop probability every 20 ms.
//!
//! Source: the RL-AQM paper's §3 and its authors' code (github dhulfiqarelte/RLAQM). Every period
//! the controller reads the queue's delay D (ms, backlog over rate), the link's utilisation U since
//! the last decision and the probability p in force; the network ranks five steps of p, and the
//! best one is applied. While the queue is empty (D < 1 ms), two rules replace the network: if p is
//! 0, it stays 0; otherwise it falls by 0.1.
//!
//! Where sources differ:
//! - The second rule subtracts 0.1, as in the code; with the paper's table it would be 0.01.
//! - p stays within 0 and 0.5, as in the code; the paper names no range.
//! - With a network of steps, p is kept in hundredths, since every step is a multiple of 0.01:
//!   rounding errors do not accumulate, and "p is 0" is exact.
//! - The model card defines the scaling of inputs: the authors' network reads raw D, U, p.
//!
//! quell's own: a network whose card names outputs `drop = 0.02` ranks probabilities instead of
//! steps, and one with a single output gives p itself. Both read the inputs that their card names
//! ([`READINGS`]), no rule replaces them, and above the delay [`Params::ceiling`] p is 0.5.
//! docs/lab/rl-aqm.md says why.

pub mod dqn;
pub mod learn;

use super::{Control, Explanation, SubQueue};
use crate::num;
use crate::policy::{Policy, Scratch};
use crate::rate::Rate;
use crate::time::{Duration, Instant, MS, SEC, US};
use crate::{ControlledKnobs, Error, Gauges, KnobSet, Knobs, Rng};

/// The steps of p in hundredths, in the order of the network's outputs (Table I).
pub const STEPS: [i32; 5] = [0, 1, -1, 10, -10];
/// Largest p, in hundredths.
pub const MAX_HUNDREDTHS: i32 = 50;
/// Largest p.
const MAX_DROP: f64 = MAX_HUNDREDTHS as f64 / 100.0;
/// Below this delay, ms, the queue counts as empty, and a rule replaces the network.
const EMPTY_MS: f64 = 1.0;
/// Bytes of a packet, for [`Reading::Load`].
const PACKET_BYTES: f64 = 1400.0;
/// Largest value of [`Reading::Load`].
const MAX_LOAD: f64 = 4.0;

/// A possible input of a network of probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// D: the backlog over the rate, ms.
    Delay,
    /// D at the previous decision, ms.
    DelayBefore,
    /// ln(1 + D / ms).
    LogDelay,
    /// ln(1 + D / ms) at the previous decision.
    LogDelayBefore,
    /// U: bits sent since the last decision over those that the link could send.
    Utilisation,
    /// The probability in force.
    Drop,
    /// Packets that arrived since the last decision over packets of 1400 bytes that the link could
    /// send, at most 4.
    Load,
}

/// Names of the readings in a model card.
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
    pub period: Duration,
    /// Packets that the FIFO holds (default 5000, at least 1).
    pub limit: u32,
    /// The two rules for an empty queue replace a network of steps (default on).
    pub heuristics: bool,
    /// Delay above which p is 0.5, whatever a network of probabilities decides (default 20 ms; 0:
    /// no such delay).
    pub ceiling: Duration,
    /// Probability of taking a random action in place of the best (default 0; the paper evaluates
    /// with 0.01).
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
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
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

/// Meaning of a network's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outputs {
    /// A value for each of [`STEPS`]; the highest wins.
    Steps,
    /// A value for each of several probabilities; the highest wins.
    Levels,
    /// The probability itself.
    Level,
}

/// Inputs and outputs of a network.
#[derive(Clone, Debug, PartialEq)]
struct Form {
    readings: Vec<Reading>,
    outputs: Outputs,
    /// The probabilities of [`Outputs::Levels`].
    levels: Vec<f64>,
}

impl Form {
    fn of(policy: &Policy) -> Result<Self, Error> {
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
                Error::new(format!("rlaqm has no input `{name}`")).remedy(format!("it has {known}"))
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
    fn of_steps(policy: &Policy) -> Result<Self, Error> {
        if policy.inputs() != 3 {
            let what = "rlaqm's network of steps reads 3 numbers: delay_ms, utilisation, drop";
            return Err(Error::new(what));
        }
        if policy.outputs() != STEPS.len() {
            let what = "rlaqm's network gives 5 numbers, one per step of the drop probability, or one per probability \
                        and named after it, as `drop = 0.1`, or the probability alone";
            return Err(Error::new(what));
        }
        Ok(Self {
            readings: vec![Reading::Delay, Reading::Utilisation, Reading::Drop],
            outputs: Outputs::Steps,
            levels: Vec::new(),
        })
    }
}

/// The probability in an output's name, as in `drop = 0.1`; `None` if there is none from 0 to 0.5.
pub fn level(name: &str) -> Option<f64> {
    let p = name.strip_prefix("drop = ")?.parse().ok()?;
    (0.0..=MAX_DROP).contains(&p).then_some(p)
}

/// Checks that a network fits this controller.
///
/// # Errors
/// The first fault found.
pub fn check(policy: &Policy) -> Result<(), Error> {
    Form::of(policy).map(|_| ())
}

/// Readings at a decision.
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
    last: (Instant, u64, u64),
    /// D at the last decision.
    delay_before_ms: f64,
    /// The link's rate when it last had one.
    rate: Rate,
    /// Whether the network's last output was not a number.
    broken: bool,
    /// The network's inputs at the last decision.
    inputs: Vec<f32>,
    /// The last action: the index of the chosen output, or the only output.
    action: Option<f32>,
    /// Separate stream of random numbers for random steps, if there is one.
    explore: Option<Rng>,
    adjacent: Option<Adjacent>,
}

/// Exploration of actions adjacent to the best one, while the queue is short.
#[derive(Clone, Debug)]
struct Adjacent {
    /// Probability of exploring.
    epsilon: f64,
    /// Largest delay at which it explores.
    below: Duration,
    rng: Rng,
}

impl RlAqm {
    /// A controller that evaluates `policy`.
    ///
    /// # Errors
    /// If the network does not have the inputs and outputs that this controller needs.
    pub fn new(params: Params, policy: Policy) -> Result<Self, Error> {
        let form = Form::of(&policy)?;
        Ok(Self {
            scratch: policy.scratch(),
            inputs: vec![0.0; form.readings.len()],
            form,
            policy,
            params,
            drop: 0.0,
            last: (Instant::ZERO, 0, 0),
            delay_before_ms: 0.0,
            rate: Rate::from_bps(1),
            broken: false,
            action: None,
            explore: None,
            adjacent: None,
        })
    }

    /// Draws its random steps from a separate stream, so that they do not depend on the queue's
    /// other random draws.
    pub fn explore_with(&mut self, rng: Rng) {
        self.explore = Some(rng);
    }

    /// The drop probability in force.
    pub fn drop(&self) -> f64 {
        self.drop
    }

    /// The readings other than p and those of the previous decision. Starts the next period.
    fn observe(&mut self, gauges: &Gauges) -> Seen {
        // In an outage the last rate stays: D is then the time that the backlog would have taken.
        if !gauges.rate.is_zero() {
            self.rate = gauges.rate;
        }
        let rate = self.rate.bps_f64();
        let delay_ms = gauges.backlog_bytes as f64 * 8e3 / rate;
        let (then, departed, arrived) = self.last;
        let seconds = (gauges
            .now
            .saturating_since(then)
            .max(Duration::from_nanos(1)))
        .as_nanos() as f64
            / SEC.as_nanos() as f64;
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

    /// The knob to set now.
    pub fn knobs(&self) -> Knobs {
        Knobs {
            drop: Some(self.drop),
            ..Knobs::default()
        }
    }

    /// Reads the gauges and updates the drop probability.
    pub fn step(&mut self, gauges: &Gauges, rng: &mut Rng) {
        let seen = self.observe(gauges);
        for (reading, input) in self.form.readings.iter().zip(&mut self.inputs) {
            *input = num::single(match reading {
                Reading::Delay => seen.delay_ms,
                Reading::DelayBefore => self.delay_before_ms,
                Reading::LogDelay => libm::log1p(seen.delay_ms),
                Reading::LogDelayBefore => libm::log1p(self.delay_before_ms),
                Reading::Utilisation => seen.utilisation,
                Reading::Drop => self.drop,
                Reading::Load => seen.load,
            });
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

    /// Updates p; returns the index of the chosen output, or the only output.
    fn act(&mut self, delay_ms: f64, rng: &mut Rng) -> f32 {
        if self.form.outputs == Outputs::Steps {
            let action = self.choose_step(delay_ms, rng);
            let hundredths = num::whole_i32(libm::round(self.drop * 100.0)) + STEPS[action];
            self.drop = f64::from(hundredths.clamp(0, MAX_HUNDREDTHS)) / 100.0;
            return action as f32;
        }
        let random = self.explores(rng);
        let (action, drop) = match (self.form.outputs, random) {
            (Outputs::Level, true) => {
                let drop = MAX_DROP * rng.f64();
                (num::single(drop), drop)
            }
            (Outputs::Level, false) => {
                let value = self.values()[0];
                (value, f64::from(value).clamp(0.0, MAX_DROP))
            }
            (_, true) => {
                let at = num::index(rng.below(self.form.levels.len() as u64));
                (at as f32, self.form.levels[at])
            }
            (_, false) => {
                let best = argmax(self.values());
                let most = self.form.levels.len() - 1;
                let at = match self.explores_adjacent(delay_ms) {
                    None => best,
                    Some(_) if best == 0 => 1,
                    Some(true) if best < most => best + 1,
                    Some(_) => best - 1,
                };
                (at as f32, self.form.levels[at])
            }
        };
        // A network that fails leaves p as it is.
        if !self.broken {
            self.drop = drop;
        }
        if self.params.ceiling > Duration::ZERO && delay_ms > self.params.ceiling.as_millis_f64() {
            self.drop = MAX_DROP;
        }
        action
    }

    /// Whether the next step is random.
    fn explores(&self, rng: &mut Rng) -> bool {
        self.params.epsilon > 0.0 && rng.f64() < self.params.epsilon
    }

    /// The network's outputs.
    fn values(&mut self) -> &[f32] {
        let values = self.policy.forward(&self.inputs, &mut self.scratch);
        self.broken = !values.iter().all(|v| v.is_finite());
        values
    }

    /// The index of a step: by a rule, at random, or the best.
    fn choose_step(&mut self, delay_ms: f64, rng: &mut Rng) -> usize {
        if self.params.heuristics && delay_ms < EMPTY_MS {
            return if self.drop == 0.0 { 0 } else { 4 };
        }
        if self.explores(rng) {
            return num::index(rng.below(STEPS.len() as u64));
        }
        let best = argmax(self.values());
        match self.explores_adjacent(delay_ms) {
            None => best,
            // p + 0.01 or p - 0.01.
            Some(up) => 1 + usize::from(!up),
        }
    }

    /// Whether the next action is an adjacent one: `Some(true)` for the one above, `Some(false)`
    /// for the one below.
    fn explores_adjacent(&mut self, delay_ms: f64) -> Option<bool> {
        let adjacent = self.adjacent.as_mut()?;
        let calm = delay_ms <= adjacent.below.as_millis_f64();
        let draw = adjacent.rng.f64();
        (calm && draw < adjacent.epsilon).then(|| adjacent.rng.below(2) == 0)
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
    fn period(&self) -> Duration {
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

    fn knobs(&self) -> ControlledKnobs {
        let drop = KnobSet {
            drop: true,
            ..KnobSet::LIMIT
        };
        ControlledKnobs::of_queue(drop)
    }

    fn adopt(&mut self, knobs: &Knobs) {
        if let Some(p) = knobs.drop {
            self.drop = match self.form.outputs {
                Outputs::Steps => {
                    f64::from(num::whole_i32(libm::round(p * 100.0)).clamp(0, MAX_HUNDREDTHS))
                        / 100.0
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
pub(super) mod tests;
