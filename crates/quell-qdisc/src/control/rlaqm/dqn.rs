//! A DQN for `rlaqm`'s networks of probabilities: double, multi-step, with replay and a target
//! network that follows slowly (Mnih et al. 2015; van Hasselt et al. 2016; Lillicrap et al. 2016
//! for the target). Its results are the same bits on every machine.
//!
//! It learns from the network's inputs and the action of each decision.

use super::argmax;
use crate::policy::{Activation, Adam, Affine, Card, Error, Init, Optimizer, Policy, Trainee};
use crate::{Rng, num};

/// RL-AQM's reward of a period, w (U^k - 0.5) + 2 / (1 + D / s) - 1.5: the paper's with w = 1, k =
/// 2 and s = 5 ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeriodReward {
    /// w.
    pub weight: f64,
    /// Whether k is 2, not 1.
    pub square: bool,
    /// s, ms.
    pub scale_ms: f64,
}

impl PeriodReward {
    /// The paper's reward.
    pub const PAPER: Self = Self {
        weight: 1.0,
        square: true,
        scale_ms: 5.0,
    };

    /// The reward of a period with this utilisation and this delay at its end.
    pub fn of(&self, delay_ms: f64, utilisation: f64) -> f64 {
        let used = if self.square {
            utilisation * utilisation
        } else {
            utilisation
        };
        self.weight * (used - 0.5) + 2.0 / (1.0 + delay_ms / self.scale_ms) - 1.5
    }
}

/// A reward computed from a network's inputs.
#[derive(Clone, Copy, Debug)]
pub struct InputReward {
    reward: PeriodReward,
    /// Index of the delay among the inputs, and whether that input is a logarithm.
    delay: (usize, bool),
    /// Index of the utilisation among the inputs.
    utilisation: usize,
}

impl InputReward {
    /// The reward for this network.
    ///
    /// # Errors
    /// If it does not read delay and utilisation.
    pub fn new(policy: &Policy, reward: PeriodReward) -> Result<Self, Error> {
        let inputs = &policy.card().inputs;
        let at = |name: &str| inputs.iter().position(|input| input.name == name);
        let delay = at("delay_ms").map(|k| (k, false));
        let delay = delay.or_else(|| at("log_delay").map(|k| (k, true)));
        let (Some(delay), Some(utilisation)) = (delay, at("utilisation")) else {
            let what = "the reward needs delay_ms or log_delay, and utilisation";
            return Err(Error::new(what).under("inputs"));
        };
        Ok(Self {
            reward,
            delay,
            utilisation,
        })
    }

    /// The reward of the period before a decision with these inputs.
    pub fn of(&self, row: &[f32]) -> f64 {
        let (at, logarithm) = self.delay;
        let delay = f64::from(row[at]);
        let delay_ms = if logarithm { libm::expm1(delay) } else { delay };
        self.reward.of(delay_ms, row[self.utilisation].into())
    }
}

/// Settings of the training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The reward.
    pub reward: PeriodReward,
    /// Discount per decision.
    pub gamma: f64,
    /// Number of decisions whose rewards a transition adds up; the target network estimates the
    /// value of the decisions after them.
    pub horizon: usize,
    /// Transitions of a batch.
    pub batch: usize,
    /// Transitions kept.
    pub replay: usize,
    /// Share of its distance by which the target network approaches the trained one with each
    /// batch, 0..1.
    pub follow: f32,
    /// Share of the mean error by which the baseline of rewards changes with each batch, 0..1; 0:
    /// there is no baseline.
    pub centring: f64,
    /// Error from which on Huber's loss is linear. If sums of rewards vary by much more than this,
    /// the values that are learned are medians, not means.
    pub error_limit: f32,
}

/// The network in training, and what it learns from. Plain data: a clone continues identically.
#[derive(Clone, Debug)]
pub struct Dqn {
    settings: Settings,
    seed: u64,
    online: Trainee,
    target: Trainee,
    adam: Adam,
    /// The mean of the weights at each [`Dqn::average`], and the number of these calls.
    mean: Vec<f32>,
    averaged: u32,
    /// Transitions: the inputs, the inputs `horizon` decisions later, the action, and the rewards
    /// in between.
    rows: Vec<f32>,
    reward: InputReward,
    /// Subtracted from the reward of each decision, so that values do not change with a link on
    /// which the rewards of all actions are higher or lower (Naik, Wan, Tomar and Sutton 2024,
    /// "Reward Centering", equation 6).
    baseline: f64,
}

/// Random initial layers of a network with this card and these widths of its hidden layers.
pub fn random_layers(card: &Card, hidden: &[usize], seed: u64) -> Vec<Affine> {
    let mut rng = Rng::new(seed, "first weights");
    let mut width = card.inputs.len();
    let mut layers = Vec::new();
    for &outputs in hidden {
        layers.push(Affine::random(width, outputs, Init::Uniform, &mut rng));
        width = outputs;
    }
    for head in &card.heads {
        let outputs = head.outputs.len();
        layers.push(Affine::random(width, outputs, Init::Uniform, &mut rng));
    }
    layers
}

impl Dqn {
    /// Continues from a network's weights.
    ///
    /// # Errors
    /// If it does not have one linear head with a value per action, or does not read delay and
    /// utilisation.
    pub fn new(policy: &Policy, settings: Settings, seed: u64) -> Result<Self, Error> {
        let reward = InputReward::new(policy, settings.reward)?;
        let card = policy.card();
        let head = &card.heads[0];
        if card.heads.len() != 1 || head.activation != Activation::Linear || head.outputs.len() < 2
        {
            let what = "a DQN's network has one linear head, a value per action";
            return Err(Error::new(what).under("heads"));
        }
        let online = Trainee::from_policy(policy);
        Ok(Self {
            settings,
            seed,
            target: online.clone(),
            adam: Adam::new(0.0),
            mean: online.weights().to_vec(),
            averaged: 0,
            rows: Vec::new(),
            online,
            reward,
            baseline: 0.0,
        })
    }

    /// Number of the network's inputs.
    pub fn width(&self) -> usize {
        self.online.policy().inputs()
    }

    /// Numbers in a transition.
    fn row(&self) -> usize {
        2 * self.width() + 2
    }

    /// Adds the transitions of an episode to the replay memory; returns the episode's mean reward
    /// per decision.
    ///
    /// # Panics
    /// If there are not as many rows of inputs as actions.
    pub fn keep(&mut self, inputs: &[f32], actions: &[f32]) -> f64 {
        let (n, steps, horizon) = (self.width(), actions.len(), self.settings.horizon);
        assert_eq!(inputs.len(), n * steps, "a row of inputs per action");
        let gains: Vec<f64> = inputs
            .chunks_exact(n)
            .map(|row| self.reward.of(row))
            .collect();
        for t in 0..steps.saturating_sub(horizon) {
            let mut sum = 0.0;
            // From the last to the first: each is discounted once more.
            for gain in gains[t + 1..=t + horizon].iter().rev() {
                sum = gain + self.settings.gamma * sum;
            }
            self.rows.extend_from_slice(&inputs[n * t..n * (t + 1)]);
            let later = t + horizon;
            self.rows
                .extend_from_slice(&inputs[n * later..n * (later + 1)]);
            self.rows.extend([actions[t], num::single(sum)]);
        }
        let most = self.settings.replay * self.row();
        self.rows.drain(..self.rows.len().saturating_sub(most));
        gains.iter().sum::<f64>() / steps.max(1) as f64
    }

    /// Fits `count` batches, drawn at random from a stream named `stream`; returns the mean of
    /// Huber's loss.
    ///
    /// # Errors
    /// If a weight would not be finite: the weights are then those of the batch before, and the
    /// optimiser starts again.
    pub fn fit(&mut self, count: usize, rate: f32, stream: u64) -> Result<f64, Error> {
        let (n, width, batch) = (self.width(), self.row(), self.settings.batch);
        let kept = (self.rows.len() / width) as u64;
        if kept == 0 {
            return Ok(0.0);
        }
        let actions = self.online.policy().outputs();
        let gamma = self.settings.gamma;
        // The discounted sum of a reward of 1 in each decision up to the horizon.
        let discounted: f64 = (0..self.settings.horizon)
            .map(|k| libm::pow(gamma, k as f64))
            .sum();
        let beyond = num::single(libm::pow(self.settings.gamma, self.settings.horizon as f64));
        let mut rng = Rng::new(self.seed, &format!("replay {stream}"));
        self.adam.rate = rate;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let (mut taken, mut values) = (Vec::new(), vec![0.0; batch * actions]);
        let (mut slopes, mut scratch) = (Vec::new(), self.online.policy().scratch());
        let limit = self.settings.error_limit;
        let mut loss = 0.0;
        for _ in 0..count {
            before.clear();
            after.clear();
            taken.clear();
            for _ in 0..batch {
                let at = width * num::index(rng.below(kept));
                let row = &self.rows[at..at + width];
                before.extend_from_slice(&row[..n]);
                after.extend_from_slice(&row[n..2 * n]);
                taken.push((num::whole_usize(row[2 * n].into()), row[2 * n + 1]));
            }
            let baseline = num::single(self.baseline * discounted);
            // The network chooses the next action, the target network gives its value.
            self.target
                .policy()
                .forward_batch(&after, &mut scratch, &mut values);
            let chosen = self.online.forward(&after);
            for ((row, worth), (_, gain)) in chosen
                .chunks_exact(actions)
                .zip(values.chunks_exact(actions))
                .zip(&mut taken)
            {
                *gain += beyond * worth[argmax(row)] - baseline;
            }
            let answers = self.online.forward(&before);
            let mut surplus = 0.0;
            slopes.clear();
            slopes.resize(batch * actions, 0.0);
            for ((row, slope), (action, aim)) in answers
                .chunks_exact(actions)
                .zip(slopes.chunks_exact_mut(actions))
                .zip(&taken)
            {
                let off = row[*action] - aim;
                slope[*action] = off.clamp(-limit, limit) / (limit * batch as f32);
                surplus -= f64::from(off);
                let off = f64::from(off.abs());
                let limit = f64::from(limit);
                loss += if off < limit {
                    0.5 * off * off / limit
                } else {
                    off - 0.5 * limit
                };
            }
            self.baseline += self.settings.centring * surplus / (batch as f64 * discounted);
            self.online.backward(&slopes);
            let mut optimizer = Optimizer::Adam(std::mem::replace(&mut self.adam, Adam::new(0.0)));
            self.online.step(&mut optimizer)?;
            if let Optimizer::Adam(adam) = optimizer {
                self.adam = adam;
            }
            let followed: Vec<f32> = self
                .target
                .weights()
                .iter()
                .zip(self.online.weights())
                .map(|(t, o)| t + self.settings.follow * (o - t))
                .collect();
            self.target.set_weights(&followed)?;
        }
        Ok(loss / (count.max(1) * batch) as f64)
    }

    /// Number of decisions whose rewards a transition adds up.
    pub fn horizon(&self) -> usize {
        self.settings.horizon
    }

    /// The target network: a moving average of the weights.
    pub fn followed(&self) -> &Policy {
        self.target.policy()
    }

    /// Adds the current weights to their mean.
    pub fn average(&mut self) {
        self.averaged += 1;
        let share = 1.0 / self.averaged as f32;
        for (mean, w) in self.mean.iter_mut().zip(self.online.weights()) {
            *mean += share * (w - *mean);
        }
    }

    /// The layers as [`Policy::save`] takes them: the current ones, or their mean.
    ///
    /// # Errors
    /// If a mean is not finite.
    pub fn layers(&self, mean: bool) -> Result<Vec<Affine>, Error> {
        let mut network = self.online.clone();
        if mean {
            network.set_weights(&self.mean)?;
        }
        Ok(network.layers())
    }

    /// The state on which the next fit depends, besides settings and seed.
    pub fn state(&self) -> State {
        State {
            online: self.online.weights().to_vec(),
            target: self.target.weights().to_vec(),
            mean: self.mean.clone(),
            first: self.adam.first.clone(),
            second: self.adam.second.clone(),
            steps: self.adam.steps,
            averaged: self.averaged,
            baseline: self.baseline,
            rows: self.rows.clone(),
        }
    }

    /// Continues where `state` was taken.
    ///
    /// # Errors
    /// If it is of another network.
    pub fn restore(&mut self, state: State) -> Result<(), Error> {
        let count = self.online.weights().len();
        let fits = |v: &Vec<f32>| v.len() == count;
        let moments = |v: &Vec<f32>| fits(v) || (v.is_empty() && state.steps == 0);
        let whole = fits(&state.online)
            && fits(&state.target)
            && fits(&state.mean)
            && moments(&state.first)
            && moments(&state.second)
            && state.rows.len().is_multiple_of(self.row());
        if !whole {
            return Err(Error::new("the state of another network"));
        }
        self.online.set_weights(&state.online)?;
        self.target.set_weights(&state.target)?;
        self.mean = state.mean;
        self.averaged = state.averaged;
        self.adam = Adam {
            steps: state.steps,
            first: state.first,
            second: state.second,
            ..Adam::new(0.0)
        };
        self.baseline = state.baseline;
        self.rows = state.rows;
        Ok(())
    }
}

/// State from [`Dqn::state`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // The fields of [`Dqn`].
pub struct State {
    pub online: Vec<f32>,
    pub target: Vec<f32>,
    pub mean: Vec<f32>,
    pub first: Vec<f32>,
    pub second: Vec<f32>,
    pub steps: u64,
    pub averaged: u32,
    pub baseline: f64,
    pub rows: Vec<f32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{FORMAT, Head, Input};

    const REWARD: PeriodReward = PeriodReward::PAPER;

    fn card(outputs: &[&str]) -> Card {
        let input = |name: &str| Input {
            name: name.into(),
            offset: 0.0,
            scale: 1.0,
        };
        Card {
            format: FORMAT,
            name: "test".into(),
            what: "a test".into(),
            inputs: ["log_delay", "utilisation"].map(input).to_vec(),
            hidden: vec![Activation::Relu],
            heads: vec![Head {
                name: "action".into(),
                activation: Activation::Linear,
                outputs: outputs.iter().map(|name| (*name).into()).collect(),
            }],
            trained_on: "nothing".into(),
            seed: 1,
            quell: "0".into(),
            results: Default::default(),
            origin: None,
        }
    }

    fn learner(horizon: usize, gamma: f64) -> Dqn {
        let card = card(&["drop = 0", "drop = 0.5"]);
        let layers = random_layers(&card, &[16], 1);
        let policy = Policy::new(card, &layers).unwrap();
        let settings = Settings {
            reward: REWARD,
            gamma,
            horizon,
            batch: 32,
            replay: 1000,
            follow: 0.05,
            centring: 0.0,
            error_limit: 1.0,
        };
        Dqn::new(&policy, settings, 1).unwrap()
    }

    /// The network's outputs for a queue with this delay on a full link.
    fn values(dqn: &Dqn, delay_ms: f64) -> Vec<f32> {
        let policy = dqn.online.policy();
        let inputs = [libm::log1p(delay_ms) as f32, 1.0];
        policy.forward(&inputs, &mut policy.scratch()).to_vec()
    }

    /// Keeps random decisions in a queue whose delay is 10 ms after the first action and 0 after
    /// the second; returns their mean reward.
    fn played(dqn: &mut Dqn, steps: usize) -> f64 {
        let mut rng = Rng::new(3, "play");
        let (mut inputs, mut actions, mut delay) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..steps {
            inputs.extend([libm::log1p(delay) as f32, 1.0]);
            let action = rng.below(2);
            actions.push(action as f32);
            delay = if action == 0 { 10.0 } else { 0.0 };
        }
        dqn.keep(&inputs, &actions)
    }

    #[test]
    fn the_reward_is_the_papers() {
        assert_eq!(REWARD.of(0.0, 1.0), 1.0);
        assert_eq!(REWARD.of(5.0, 0.0), -1.0);
        let linear = PeriodReward {
            square: false,
            weight: 10.0,
            scale_ms: 20.0,
        };
        assert!((linear.of(20.0, 0.75) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_transition_has_the_discounted_rewards_of_the_decisions_after_it() {
        let mut dqn = learner(3, 0.5);
        let delays: [f64; 5] = [0.0, 5.0, 0.0, 45.0, 0.0];
        let inputs: Vec<f32> = delays
            .iter()
            .flat_map(|d| [libm::log1p(*d) as f32, 1.0])
            .collect();
        let mean = dqn.keep(&inputs, &[0.0, 1.0, 1.0, 0.0, 0.0]);
        // Rewards at full use: 1 at 0 ms, 0 at 5 ms, -0.8 at 45 ms.
        assert!((mean - (3.0 - 0.8) / 5.0).abs() < 1e-6, "{mean}");
        assert_eq!(dqn.rows.len(), 2 * dqn.row());
        let (first, second) = dqn.rows.split_at(dqn.row());
        assert_eq!((first[4], second[4]), (0.0, 1.0));
        assert!(
            (f64::from(first[5]) - (0.0 + 0.5 - 0.25 * 0.8)).abs() < 1e-6,
            "{first:?}"
        );
        assert!(
            (f64::from(second[5]) - (1.0 - 0.4 + 0.25)).abs() < 1e-6,
            "{second:?}"
        );
        assert_eq!(first[2..4], [libm::log1p(45.0) as f32, 1.0]);
    }

    #[test]
    fn the_oldest_transitions_are_left_out() {
        let mut dqn = learner(5, 0.95);
        played(&mut dqn, 700);
        played(&mut dqn, 700);
        assert_eq!(dqn.rows.len(), 1000 * dqn.row());
    }

    #[test]
    fn it_learns_which_action_is_worth_more_and_how_much() {
        let mut dqn = learner(1, 0.5);
        played(&mut dqn, 900);
        let first = dqn.fit(200, 1e-2, 0).unwrap();
        let last = dqn.fit(1000, 1e-3, 1).unwrap();
        assert!(last < first / 4.0, "{first} {last}");
        // The second action earns 1 each time: 1 / (1 - 0.5) = 2 in all. The first earns -1/3 once,
        // and then half of these 2.
        let values = values(&dqn, 10.0);
        assert!((values[1] - 2.0).abs() < 0.1, "{values:?}");
        assert!((values[0] - (-1.0 / 3.0 + 1.0)).abs() < 0.1, "{values:?}");
    }

    #[test]
    fn values_are_means_within_the_limit_of_errors_and_medians_beyond() {
        for (limit, expected) in [(100.0, 6.5), (0.1, 10.5)] {
            let mut dqn = learner(1, 0.0);
            dqn.settings.error_limit = limit;
            dqn.reward.reward.weight = 20.0;
            let mut rng = Rng::new(4, "use");
            // One period in five is idle: a reward of -9.5, else 10.5.
            let row = |idle| [0.0, if idle { 0.0 } else { 1.0 }];
            let inputs: Vec<f32> = (0..900).flat_map(|_| row(rng.below(5) == 0)).collect();
            dqn.keep(&inputs, &[0.0; 900]);
            dqn.fit(1500, 1e-2, 0).unwrap();
            dqn.fit(1500, 1e-3, 1).unwrap();
            let value = values(&dqn, 0.0)[0];
            assert!((value - expected).abs() < 1.0, "{limit}: {value}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bits_and_a_state_continues() {
        let centred = || {
            let mut dqn = learner(5, 0.95);
            dqn.settings.centring = 0.05;
            dqn
        };
        let (mut a, mut b) = (centred(), centred());
        for dqn in [&mut a, &mut b] {
            played(dqn, 500);
            dqn.fit(50, 1e-3, 0).unwrap();
            dqn.average();
        }
        let mut c = centred();
        c.restore(a.state()).unwrap();
        for dqn in [&mut b, &mut c] {
            dqn.fit(50, 5e-4, 1).unwrap();
            dqn.average();
        }
        assert_eq!(b.state(), c.state());
        let of_another = State {
            online: vec![0.0],
            ..b.state()
        };
        assert!(c.restore(of_another).is_err());
    }

    #[test]
    fn the_mean_is_that_of_the_weights_when_it_was_taken() {
        let mut dqn = learner(1, 0.5);
        played(&mut dqn, 300);
        let mut sum = vec![0.0; dqn.mean.len()];
        for stream in 0..3 {
            dqn.fit(10, 1e-3, stream).unwrap();
            dqn.average();
            sum.iter_mut()
                .zip(dqn.online.weights())
                .for_each(|(s, w)| *s += w / 3.0);
        }
        for (mean, expected) in dqn.mean.iter().zip(&sum) {
            assert!((mean - expected).abs() < 1e-6);
        }
        assert_ne!(dqn.layers(true).unwrap(), dqn.layers(false).unwrap());
    }

    #[test]
    fn another_network_is_refused() {
        let law = card(&["drop"]);
        let policy = Policy::new(law.clone(), &random_layers(&law, &[4], 1)).unwrap();
        let settings = learner(1, 0.5).settings;
        assert!(Dqn::new(&policy, settings, 1).is_err());
        let mut blind = card(&["drop = 0", "drop = 0.5"]);
        blind.inputs[1].name = "load".into();
        let policy = Policy::new(blind.clone(), &random_layers(&blind, &[4], 1)).unwrap();
        let error = Dqn::new(&policy, settings, 1).unwrap_err().to_string();
        assert!(error.contains("utilisation"), "{error}");
    }
}
