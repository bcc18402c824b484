//! `rlaqm learn`: the network continues to learn while it serves.
//!
//! The [`Learner`] fits a [`Dqn`] to the queue's own decisions, from the network's weights on. What it has made is tried against the
//! network in force (the champion) and replaces it only if it earns more ([`Trial`]). Meanwhile one decision in a hundred
//! explores an action adjacent to the best, as long as the queue is short.
//!
//! While a guard's classic controller acts, or where a decision was at fault, nothing is learned, a trial ends, and the network with
//! which the queue started is in force again.

use super::dqn::{Dqn, Pay, PeriodReward, Settings};
use super::{Adjacent, RlAqm};
use crate::control::learn::{Blocks, Outbox, Trial, Verdict};
use crate::control::{Control, Explanation, SubQueue};
use crate::policy::{Error, Policy};
use crate::{Gauges, KnobSet, Knobs, MS, Nanos, Rng, SEC, num};

/// Probability of exploring an adjacent action.
const EPSILON: f64 = 0.01;
/// No exploration above this delay.
const MAX_DELAY: Nanos = 50 * MS;
/// Time of a block of a trial, and what is skipped of it.
const BLOCK: (Nanos, Nanos) = (10 * SEC, 2 * SEC);
/// Pairs of blocks after which a trial ends.
const PAIRS: u32 = 30;
/// Decisions without a trial after a network that was worse: at first, and at most; they double each time.
const PAUSE: (u32, u32) = (500, 16_000);
/// Decisions between two turns of the learner, and batches that it fits in one.
const TURN: (usize, usize) = (250, 32);
/// Decisions before the first network is tried.
const FIRST: u64 = 3000;
/// Learning rate of Adam.
const RATE: f32 = 1e-3;

/// How `rlaqm learn` learns, with this reward. Discount, horizon, batch and the target network's speed are those of
/// `quell train rl-aqm --corrected`.
fn settings(reward: PeriodReward) -> Settings {
    Settings {
        pay: reward,
        gamma: 0.95,
        horizon: 5,
        batch: 256,
        replay: 60_000,
        follow: 0.005,
        centring: 0.05,
    }
}

/// What it has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Networks that were tried, and those that replaced the one before.
    pub tried: u32,
    /// See `tried`.
    pub promoted: u32,
    /// Times that the first network was put in force again.
    pub reset: u32,
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Learning {
    acting: RlAqm,
    /// The network with which the queue started, and the one in force.
    first: Policy,
    champion: Policy,
    /// The network on trial.
    candidate: Option<(Policy, Trial)>,
    /// The newest one, which is tried next.
    next: Option<Policy>,
    /// The first network was tried since the last of the learner's.
    returned: bool,
    /// Decisions until another of the learner's is tried, and how many there will be when one is worse.
    rest: u32,
    pause: u32,
    pay: Pay,
    outbox: Outbox,
    learner: Option<Box<Learner>>,
    /// Order of blocks, and exploration. Seeded by the queue's own stream at the first decision.
    rng: Option<Rng>,
    progress: Progress,
}

impl Learning {
    /// Continues from a controller's network.
    ///
    /// # Errors
    /// If the network is not one of values, or does not read what the reward needs.
    pub fn new(acting: RlAqm, reward: PeriodReward) -> Result<Self, Error> {
        let first = acting.policy.clone();
        let learner = Learner::new(&first, reward)?;
        Ok(Self {
            pay: Pay::new(&first, reward)?,
            // More than a minute of decisions.
            outbox: Outbox::new(first.inputs(), 4096),
            learner: Some(Box::new(learner)),
            champion: first.clone(),
            first,
            acting,
            candidate: None,
            next: None,
            returned: true,
            rest: 0,
            pause: PAUSE.0,
            rng: None,
            progress: Progress::default(),
        })
    }

    /// What it has done so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The network in force.
    pub fn champion(&self) -> &Policy {
        &self.champion
    }

    /// Counts a decision's reward in a trial; ends one, or begins one.
    fn compare(&mut self, reward: f64, rng: &mut Rng) {
        if let Some((policy, trial)) = &mut self.candidate {
            let verdict = trial.note(reward, rng);
            match verdict {
                Some(Verdict::Better) => {
                    self.progress.promoted += 1;
                    self.champion = policy.clone();
                    self.pause = PAUSE.0;
                }
                Some(Verdict::Worse) if !policy.is_same(&self.first) => {
                    self.rest = self.pause;
                    self.pause = (2 * self.pause).min(PAUSE.1);
                }
                _ => {}
            }
            if verdict.is_some() {
                self.candidate = None;
            }
        }
        if self.candidate.is_none()
            && let Some(policy) = self.other()
        {
            self.progress.tried += 1;
            let is_first = policy.is_same(&self.first);
            self.candidate = Some((policy, Trial::new(self.blocks(), is_first, rng)));
        }
        let acts = match &self.candidate {
            Some((policy, trial)) if trial.candidate_acts() => policy,
            _ => &self.champion,
        };
        if !self.acting.policy.is_same(acts) {
            self.acting.policy = acts.clone();
        }
    }

    /// The network to be tried next: the newest, after a pause if the last one was worse; in between the first, which is right again
    /// when the link is again as it was.
    fn other(&mut self) -> Option<Policy> {
        if !self.returned && !self.champion.is_same(&self.first) {
            self.returned = true;
            return Some(self.first.clone());
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let policy = self.next.take()?;
        self.returned = false;
        Some(policy)
    }

    fn blocks(&self) -> Blocks {
        let decisions = |time: Nanos| time / self.acting.params.period;
        let skipped = num::count(num::index(decisions(BLOCK.1)));
        Blocks {
            // Of a period of more than ten seconds, one that counts.
            length: num::count(num::index(decisions(BLOCK.0))).max(skipped + 1),
            skipped,
            pairs: PAIRS,
        }
    }

    /// What was decided last is not in force: a guard's classic controller acts, or the network failed.
    fn reset(&mut self) {
        self.outbox.interrupt();
        (self.candidate, self.next) = (None, None);
        if !self.champion.is_same(&self.first) {
            self.progress.reset += 1;
            self.champion = self.first.clone();
        }
        self.acting.policy = self.champion.clone();
    }
}

impl Control for Learning {
    fn period(&self) -> Nanos {
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
        // The reward is that of the decision before: it goes to whichever network made it.
        let reward = self.pay.of(&self.acting.inputs);
        match self.acting.action {
            Some(action) if !self.acting.is_broken() => {
                self.outbox.push(&self.acting.inputs, action);
                self.compare(reward, &mut own);
            }
            _ => self.reset(),
        }
        self.rng = Some(own);
        self.acting.knobs()
    }

    fn initial(&mut self) -> Knobs {
        self.acting.initial()
    }

    fn knobs(&self) -> (KnobSet, KnobSet) {
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

    fn learner(&mut self) -> Option<Box<Learner>> {
        self.learner.take()
    }

    fn samples(&mut self) -> Option<&mut Outbox> {
        Some(&mut self.outbox)
    }

    fn install(&mut self, policy: Policy) -> Option<Policy> {
        self.next.replace(policy)
    }
}

/// What learns. Plain data: a clone continues alike.
#[derive(Clone, Debug)]
pub struct Learner {
    dqn: Dqn,
    /// Decisions that are not yet among the transitions.
    inputs: Vec<f32>,
    actions: Vec<f32>,
    /// Decisions since the last turn, and in all.
    since: usize,
    seen: u64,
    turns: u64,
}

impl Learner {
    fn new(policy: &Policy, reward: PeriodReward) -> Result<Self, Error> {
        Ok(Self {
            dqn: Dqn::new(policy, settings(reward), 1)?,
            inputs: Vec::new(),
            actions: Vec::new(),
            since: 0,
            seen: 0,
            turns: 0,
        })
    }

    /// Takes the decisions out of the box.
    pub fn take(&mut self, outbox: &mut Outbox) {
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

    /// Learns if enough was seen since the last time, and gives the network that it then has.
    pub fn turn(&mut self) -> Option<Policy> {
        let (decisions, batches) = TURN;
        if self.since < decisions {
            return None;
        }
        self.since = 0;
        self.turns += 1;
        self.dqn.keep(&self.inputs, &self.actions);
        // The rewards of the last few are still to come.
        let done = self.actions.len().saturating_sub(self.dqn.horizon());
        self.inputs.drain(..self.dqn.width() * done);
        self.actions.drain(..done);
        self.dqn.fit(batches, RATE, self.turns).ok()?;
        (self.seen >= FIRST).then(|| self.dqn.followed().clone())
    }
}

#[cfg(test)]
mod tests;
