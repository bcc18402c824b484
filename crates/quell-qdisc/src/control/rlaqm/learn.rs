//! `rlaqm learn`: the network continues to learn while the queue serves.
//!
//! The [`Learner`] trains a [`Dqn`] on the queue's own decisions, starting from the network's
//! weights, or from those that an earlier queue has learned ([`Networks`]). Its networks are tried
//! against the network in force (the champion); one of them replaces the champion only if it earns
//! more ([`Trial`]). While the queue is short, one decision in a hundred explores an action
//! adjacent to the best one.
//!
//! When a guard's classic controller acts, or the network's answer is not finite, nothing is
//! learned, the trial ends, and the network with which the queue started is in force again.

use super::dqn::{Dqn, InputReward, PeriodReward, Settings};
use super::{Adjacent, RlAqm};
use crate::control::learn::{self, Blocks, Outbox, Trial, Update, Verdict};
use crate::control::networks::{Networks, Second};
use crate::control::{Control, Explanation, LearnedState, SubQueue};
use crate::policy::{Error, Policy};
use crate::time::Duration;
use crate::{ControlledKnobs, Gauges, Knobs, Rng, num};

/// Probability of exploring an adjacent action.
const EPSILON: f64 = 0.01;
/// No exploration above this delay.
const MAX_DELAY: Duration = Duration::from_millis(50);
/// A network that is tried is rejected at once above this delay, so that a sender that floods the
/// link during trials does little harm. It is also the default delay of a guard
/// ([`crate::control::guard::Params::delay`]).
const MAX_TRIAL_DELAY: Duration = Duration::from_millis(250);
/// Length of a block of a trial.
const BLOCK: Duration = Duration::from_secs(5);
/// Time at the start of a block that does not count.
const SKIPPED: Duration = Duration::from_secs(1);
/// Pairs of blocks after which a trial ends.
const PAIRS: u32 = 30;
/// Length of the first pause after a network that was worse, in decisions. Each further pause is
/// twice as long, until a network is better.
const FIRST_PAUSE: u32 = 500;
/// Longest pause, in decisions.
const MAX_PAUSE: u32 = 16_000;
/// Decisions from one training step of the learner to the next.
const STEP_DECISIONS: usize = 250;
/// Batches of a training step.
const STEP_BATCHES: usize = 32;
/// Decisions before the first network is tried.
const FIRST: u64 = 3000;
/// Learning rate of Adam.
const RATE: f32 = 1e-3;

/// Settings of the learner. Discount, horizon, batch and the target network's speed are those of
/// `quell train rl-aqm --corrected`.
fn settings(reward: PeriodReward) -> Settings {
    Settings {
        reward,
        gamma: 0.95,
        horizon: 5,
        batch: 256,
        replay: 60_000,
        follow: 0.005,
        centring: 0.05,
        error_limit: 10.0,
    }
}

/// Counts of trials and their outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Trials that began.
    pub tried: u32,
    /// Trials whose candidate replaced the champion.
    pub promoted: u32,
    /// Times that the first network replaced another champion because of a guard or a fault.
    pub reset: u32,
}

/// An [`RlAqm`] that continues to learn.
#[derive(Clone, Debug)]
pub struct Learning {
    acting: RlAqm,
    /// The networks with which the queue started; kept so that the thread that serves packets
    /// never frees one.
    start: Networks,
    /// The network in force.
    champion: Policy,
    /// The network on trial.
    candidate: Option<(Policy, Trial)>,
    /// The learner's newest network.
    newest: Policy,
    /// The same network, until it is tried.
    next: Option<Policy>,
    /// Whether the first network has been tried after the learner's last one.
    first_tried: bool,
    /// Decisions until the learner's next network may be tried.
    pause_left: u32,
    /// Length of the pause after the next network that is worse, in decisions.
    pause: u32,
    reward: InputReward,
    outbox: Outbox,
    learner: Option<Box<dyn learn::Learner>>,
    /// Draws the order of blocks. Seeded from the queue's own stream at the first decision.
    rng: Option<Rng>,
    progress: Progress,
}

impl Learning {
    /// Starts with the network of `acting`.
    ///
    /// # Errors
    /// If the network does not rank actions by value, or does not read what the reward needs.
    pub fn new(acting: RlAqm, reward: PeriodReward) -> Result<Self, Error> {
        let networks = Networks::untrained(&acting.policy);
        Self::resume(acting, reward, &networks)
    }

    /// Continues from these networks, if they began with the network of `acting`; otherwise the
    /// same as [`Learning::new`].
    ///
    /// # Errors
    /// As [`Learning::new`].
    pub fn resume(
        mut acting: RlAqm,
        reward: PeriodReward,
        networks: &Networks,
    ) -> Result<Self, Error> {
        let start = networks.or(Networks::untrained(&acting.policy));
        let (champion, newest) = (start.acting.clone(), start.second.network().clone());
        acting.policy = champion.clone();
        Ok(Self {
            reward: InputReward::new(&start.first, reward)?,
            // 82 s of decisions at the default period.
            outbox: Outbox::new(start.first.inputs(), 4096),
            learner: Some(Box::new(Learner::new(&newest, reward)?)),
            champion,
            start,
            acting,
            candidate: None,
            newest,
            next: None,
            first_tried: true,
            pause_left: 0,
            pause: FIRST_PAUSE,
            rng: None,
            progress: Progress::default(),
        })
    }

    /// Counts so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The network in force.
    pub fn champion(&self) -> &Policy {
        &self.champion
    }

    /// Adds a reward to the trial, if there is one. Ends the trial after its verdict, and begins
    /// the next one if there is a network to try. Selects the network of the next decision.
    fn advance_trial(&mut self, reward: f64, rng: &mut Rng) {
        if let Some((policy, trial)) = &mut self.candidate {
            let delay_ms = self.acting.delay_before_ms;
            let is_first = policy.is_same(&self.start.first);
            let is_long = delay_ms > MAX_TRIAL_DELAY.as_millis_f64();
            let verdict = match trial.candidate_acts() && is_long && !is_first {
                true => Some(Verdict::Worse),
                false => trial.note(reward, rng),
            };
            match verdict {
                Some(Verdict::Better) => {
                    self.progress.promoted += 1;
                    self.champion = policy.clone();
                    self.pause = FIRST_PAUSE;
                }
                Some(Verdict::Worse) if !is_first => {
                    self.pause_left = self.pause;
                    self.pause = (2 * self.pause).min(MAX_PAUSE);
                }
                _ => {}
            }
            if verdict.is_some() {
                self.candidate = None;
            }
        }
        if self.candidate.is_none()
            && let Some(policy) = self.next_candidate()
        {
            self.progress.tried += 1;
            self.candidate = Some((policy, Trial::new(self.blocks(), rng)));
        }
        let acting_next = match &self.candidate {
            Some((policy, trial)) if trial.candidate_acts() => policy,
            _ => &self.champion,
        };
        if !self.acting.policy.is_same(acting_next) {
            self.acting.policy = acting_next.clone();
        }
    }

    /// The network to try next: the learner's newest, after a pause if its last one was worse.
    /// After each of these the first network is tried, unless it is the champion: it may be the
    /// best again once a change of the link is over.
    fn next_candidate(&mut self) -> Option<Policy> {
        if !self.first_tried && !self.champion.is_same(&self.start.first) {
            self.first_tried = true;
            return Some(self.start.first.clone());
        }
        if self.pause_left > 0 {
            self.pause_left -= 1;
            return None;
        }
        let policy = self.next.take()?;
        self.first_tried = false;
        Some(policy)
    }

    fn blocks(&self) -> Blocks {
        let decisions = |time: Duration| num::count(num::index(time / self.acting.params.period));
        // The first reward of a block is always the other network's.
        let skipped = decisions(SKIPPED).max(1);
        Blocks {
            // At least one decision counts.
            length: decisions(BLOCK).max(skipped + 1),
            skipped,
            pairs: PAIRS,
        }
    }

    /// Returns to the first network: the last decision was not carried out, because a guard's
    /// classic controller acts or the network failed.
    fn reset(&mut self) {
        self.outbox.interrupt();
        (self.candidate, self.next) = (None, None);
        if !self.champion.is_same(&self.start.first) {
            self.progress.reset += 1;
            self.champion = self.start.first.clone();
        }
        self.acting.policy = self.champion.clone();
    }
}

impl Control for Learning {
    fn period(&self) -> Duration {
        self.acting.period()
    }

    fn decide(&mut self, gauges: &Gauges, _subs: &mut [SubQueue], rng: &mut Rng) -> Knobs {
        let mut own = match self.rng.take() {
            Some(own) => own,
            None => {
                let seed = rng.u64();
                self.acting.adjacent = Some(Adjacent {
                    epsilon: EPSILON,
                    below: MAX_DELAY,
                    rng: Rng::new(seed, "steps beside the best"),
                });
                Rng::new(seed, "order of blocks")
            }
        };
        self.acting.step(gauges, rng);
        // The reward of the previous decision. At the start of a block it belongs to the other
        // network, but a block skips at least its first reward.
        let reward = self.reward.of(&self.acting.inputs);
        match self.acting.action {
            Some(action) if !self.acting.is_broken() => {
                self.outbox.push(&self.acting.inputs, action);
                self.advance_trial(reward, &mut own);
            }
            _ => self.reset(),
        }
        self.rng = Some(own);
        self.acting.knobs()
    }

    fn initial(&mut self) -> Knobs {
        self.acting.initial()
    }

    fn knobs(&self) -> ControlledKnobs {
        Control::knobs(&self.acting)
    }

    fn adopt(&mut self, knobs: &Knobs) {
        self.reset();
        self.acting.adopt(knobs);
    }

    fn is_broken(&self) -> bool {
        self.acting.is_broken()
    }

    fn explain(&self) -> Option<Explanation<'_>> {
        self.acting.explain()
    }

    fn learned(&self) -> Option<LearnedState> {
        Some(LearnedState::Networks(Networks {
            first: self.start.first.clone(),
            acting: self.champion.clone(),
            second: Second::Newest(self.newest.clone()),
        }))
    }

    fn learner(&mut self) -> Option<Box<dyn learn::Learner>> {
        self.learner.take()
    }

    fn samples(&mut self) -> Option<&mut Outbox> {
        Some(&mut self.outbox)
    }

    fn install(&mut self, update: Update) {
        self.newest = update.network.clone();
        self.next = Some(update.network);
    }
}

/// The DQN and the decisions that it has not yet learned from. Plain data: a clone continues
/// identically.
#[derive(Clone, Debug)]
pub struct Learner {
    dqn: Dqn,
    /// Decisions that are not yet transitions in the replay memory.
    inputs: Vec<f32>,
    actions: Vec<f32>,
    /// Decisions since the last training step.
    since: usize,
    /// All decisions so far.
    seen: u64,
    /// Training steps so far.
    steps: u64,
}

impl Learner {
    fn new(policy: &Policy, reward: PeriodReward) -> Result<Self, Error> {
        Ok(Self {
            dqn: Dqn::new(policy, settings(reward), 1)?,
            inputs: Vec::new(),
            actions: Vec::new(),
            since: 0,
            seen: 0,
            steps: 0,
        })
    }
}

impl learn::Learner for Learner {
    fn take(&mut self, outbox: &mut Outbox) {
        outbox.drain(|row, action, starts| {
            if starts {
                self.inputs.clear();
                self.actions.clear();
            }
            self.inputs.extend_from_slice(row);
            self.actions.push(action);
            self.since += 1;
            self.seen += 1;
        });
    }

    /// Returns the network only once it may be tried.
    fn train(&mut self) -> Option<Update> {
        if self.since < STEP_DECISIONS {
            return None;
        }
        self.since = 0;
        self.steps += 1;
        self.dqn.keep(&self.inputs, &self.actions);
        // Transitions of the last decisions need rewards that are still to come.
        let done = self.actions.len().saturating_sub(self.dqn.horizon());
        self.inputs.drain(..self.dqn.width() * done);
        self.actions.drain(..done);
        self.dqn.fit(STEP_BATCHES, RATE, self.steps).ok()?;
        (self.seen >= FIRST).then(|| Update {
            network: self.dqn.followed().clone(),
            critic: None,
            resets: 0,
        })
    }
}

#[cfg(test)]
mod tests;
