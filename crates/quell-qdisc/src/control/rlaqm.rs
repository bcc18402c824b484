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
//! - p is kept in hundredths, since every step is a multiple of one: no rounding builds up, and "p is 0" is exact.
//! - How inputs are scaled is the model card's business: the authors' network reads raw D, U, p.

use super::{Control, Explanation, SubQueue};
use crate::policy::{Policy, Scratch};
use crate::{Gauges, KnobSet, Knobs, MS, Nanos, Rng, SEC, US};

/// The steps of p in hundredths, in the order of the network's outputs (Table I).
pub const STEPS: [i32; 5] = [0, 1, -1, 10, -10];
/// Largest p, in hundredths.
pub const MOST: i32 = 50;
/// Below this delay, ms, the queue counts as empty (both rules).
const EMPTY_MS: f64 = 1.0;

/// Parameters of [`RlAqm`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Time between decisions (default 20 ms, 1 us..10 s).
    pub period: Nanos,
    /// Packets that the FIFO holds (default 5000, at least 1).
    pub limit: u32,
    /// The two rules for an empty queue go before the network (default on).
    pub heuristics: bool,
    /// Probability of taking a step at random in place of the best (default 0; the paper evaluates with 0.01).
    pub epsilon: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            period: 20 * MS,
            limit: 5000,
            heuristics: true,
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

/// What is wrong with a network for this controller, if anything.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(policy: &Policy) -> Result<(), &'static str> {
    if policy.inputs() != 3 {
        return Err("rlaqm's network reads 3 numbers: delay_ms, utilisation, drop");
    }
    if policy.outputs() != STEPS.len() {
        return Err("rlaqm's network gives 5 numbers, one per step of the drop probability");
    }
    Ok(())
}

/// One decision, as a learner needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Delay in ms, utilisation, drop probability: what the network read.
    pub state: [f32; 3],
    /// Which of [`STEPS`] was taken.
    pub action: f32,
}

/// The controller of one queue.
#[derive(Clone, Debug)]
pub struct RlAqm {
    params: Params,
    policy: Policy,
    scratch: Scratch,
    /// p, in hundredths.
    hundredths: i32,
    /// Time and departed bytes at the last decision.
    last: (Nanos, u64),
    /// The link's rate when it last had one.
    rate_bps: u64,
    /// The network's last answer was no number.
    broken: bool,
    step: Option<Step>,
    /// Random steps are drawn from here, where it has a stream of its own for them.
    explore: Option<Rng>,
}

impl RlAqm {
    /// Asks `policy`.
    ///
    /// # Errors
    /// If the network does not read and give what this controller needs.
    pub fn new(params: Params, policy: Policy) -> Result<Self, &'static str> {
        check(&policy)?;
        Ok(Self {
            scratch: policy.scratch(),
            policy,
            params,
            hundredths: 0,
            last: (0, 0),
            rate_bps: 1,
            broken: false,
            step: None,
            explore: None,
        })
    }

    /// Draws its random steps from a stream of their own, so that they do not depend on what else the queue draws.
    pub fn explore_with(&mut self, rng: Rng) {
        self.explore = Some(rng);
    }

    /// The drop probability in force.
    pub fn drop(&self) -> f64 {
        f64::from(self.hundredths) / 100.0
    }

    /// D in ms and U: what the network reads besides p. Starts the next period.
    fn observe(&mut self, gauges: &Gauges) -> (f64, f64) {
        // In an outage the last rate stays: D then says how long the backlog would have taken.
        if gauges.rate_bps > 0 {
            self.rate_bps = gauges.rate_bps;
        }
        let rate = self.rate_bps as f64;
        let delay_ms = gauges.backlog_bytes as f64 * 8e3 / rate;
        let seconds = gauges.now.saturating_sub(self.last.0).max(1) as f64 / SEC as f64;
        let bytes = gauges.departed_bytes.saturating_sub(self.last.1);
        self.last = (gauges.now, gauges.departed_bytes);
        (delay_ms, (bytes as f64 * 8.0 / (rate * seconds)).min(1.0))
    }

    /// The knob as it should stand now.
    pub fn knobs(&self) -> Knobs {
        Knobs {
            drop: Some(self.drop()),
            ..Knobs::default()
        }
    }

    /// Reads the gauges and moves the drop probability.
    pub fn step(&mut self, gauges: &Gauges, rng: &mut Rng) -> Step {
        let (delay_ms, utilisation) = self.observe(gauges);
        let state = [delay_ms as f32, utilisation as f32, self.drop() as f32];
        self.broken = false;
        let action = match self.explore.take() {
            None => self.action(delay_ms, state, rng),
            Some(mut own) => {
                let action = self.action(delay_ms, state, &mut own);
                self.explore = Some(own);
                action
            }
        };
        self.hundredths = (self.hundredths + STEPS[action]).clamp(0, MOST);
        let step = Step {
            state,
            action: action as f32,
        };
        self.step = Some(step);
        step
    }

    fn action(&mut self, delay_ms: f64, state: [f32; 3], rng: &mut Rng) -> usize {
        if self.params.heuristics && delay_ms < EMPTY_MS {
            return if self.hundredths == 0 { 0 } else { 4 };
        }
        if self.params.epsilon > 0.0 && rng.f64() < self.params.epsilon {
            return rng.below(STEPS.len() as u64) as usize;
        }
        let values = self.policy.forward(&state, &mut self.scratch);
        self.broken = !values.iter().all(|v| v.is_finite());
        // The first of equals, as numpy's argmax.
        let mut best = 0;
        for (action, value) in values.iter().enumerate() {
            if *value > values[best] {
                best = action;
            }
        }
        best
    }
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
            self.hundredths = (libm::round(p * 100.0) as i32).clamp(0, MOST);
        }
    }

    fn is_broken(&self) -> bool {
        self.broken
    }

    fn explain(&self) -> Option<Explanation<'_>> {
        self.step.as_ref().map(|step| Explanation {
            inputs: &step.state,
            action: step.action,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Activation, Affine, Card, FORMAT, Head, Input};

    const RATE: u64 = 10_000_000;

    /// One linear layer: the value of action a is `weight[a]` times (D/50, U, p) plus `bias[a]`.
    fn network(weight: [[f32; 3]; 5], bias: [f32; 5]) -> Policy {
        let input = |name: &str, scale| Input {
            name: name.into(),
            offset: 0.0,
            scale,
        };
        let card = Card {
            format: FORMAT,
            name: "by-hand".into(),
            what: "a test".into(),
            inputs: vec![
                input("delay_ms", 0.02),
                input("utilisation", 1.0),
                input("drop", 1.0),
            ],
            hidden: vec![],
            heads: vec![Head {
                name: "value".into(),
                activation: Activation::Linear,
                outputs: STEPS.iter().map(|s| s.to_string()).collect(),
            }],
            trained_on: "nothing".into(),
            seed: 0,
            quell: "0".into(),
            results: Default::default(),
            origin: None,
        };
        let affine = Affine {
            weight: weight.as_flattened().to_vec(),
            bias: bias.to_vec(),
        };
        Policy::new(card, &[affine]).unwrap()
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
        assert_eq!(c.observe(&busy(1, 10)), (10.0, 1.0));
        let half = Gauges {
            departed_bytes: 25_000 + 12_500,
            ..busy(2, 7)
        };
        assert_eq!(c.observe(&half), (7.0, 0.5));
        // A device queue can take more than the link sends: never above 1.
        let much = Gauges {
            departed_bytes: 1_000_000,
            ..busy(3, 0)
        };
        assert_eq!(c.observe(&much), (0.0, 1.0));
        // An outage keeps the rate.
        let dark = Gauges {
            rate_bps: 0,
            departed_bytes: 1_000_000,
            ..busy(4, 10)
        };
        assert_eq!(c.observe(&dark), (10.0, 0.0));
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
            seen[c.action(30.0, [30.0, 1.0, 0.0], &mut rng)] += 1;
        }
        // 1000 each, standard deviation 28.
        assert!(seen.iter().all(|n| (880..1120).contains(n)), "{seen:?}");
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
