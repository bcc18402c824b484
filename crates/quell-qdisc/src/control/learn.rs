//! Learning while the queue serves: the decisions that a controller gives its learner, and the
//! trial of the learner's networks.
//!
//! A controller that learns fills an [`Outbox`]; the driver of the queue lets the learner read it
//! and installs the network that the learner has trained. In `rlaqm`, a [`Trial`] then compares
//! this network with the one in force on the queue itself, in blocks of decisions in random order.
//! The new network replaces the other only if it earns more.

use std::fmt::Debug;

use super::networks::Critic;
use crate::Rng;
use crate::policy::Policy;

/// The learner of a controller, which trains beside the queue. Plain data: a clone continues
/// identically.
pub trait Learner: Debug + Send + Sync + CloneLearner {
    /// Moves everything from the outbox to the learner.
    fn take(&mut self, outbox: &mut Outbox);

    /// Trains if there is enough to learn from; returns what to install, if there is something new.
    fn train(&mut self) -> Option<Update>;
}

/// What a learner hands to its controller.
#[derive(Clone, Debug)]
pub struct Update {
    /// The trained network, which makes decisions.
    pub network: Policy,
    /// The critic, if the learner has one.
    pub critic: Option<Critic>,
    /// Number of resets of the controller that the learner knew of (`lfq`; else 0).
    pub resets: u32,
}

impl Update {
    /// Its networks.
    pub fn networks(&self) -> impl Iterator<Item = &Policy> {
        let critic = self.critic.as_ref().map(|critic| &critic.network);
        std::iter::once(&self.network).chain(critic)
    }
}

/// Copies a boxed learner; every learner that is `Clone` has it.
pub trait CloneLearner {
    /// A copy of this learner.
    fn clone_learner(&self) -> Box<dyn Learner>;
}

impl<T: Learner + Clone + 'static> CloneLearner for T {
    fn clone_learner(&self) -> Box<dyn Learner> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Learner> {
    fn clone(&self) -> Self {
        self.as_ref().clone_learner()
    }
}

/// Decisions for a learner, oldest first: the network's inputs and the action of each. `lfq` puts
/// experiments and their rewards in place of inputs and actions. The capacity is fixed.
#[derive(Clone, Debug)]
pub struct Outbox {
    width: usize,
    room: usize,
    inputs: Vec<f32>,
    actions: Vec<f32>,
    /// Indices of the decisions that start a sequence, because the one before was not carried out
    /// or is lost.
    starts: Vec<usize>,
    /// Whether the next decision starts a sequence.
    interrupted: bool,
    lost: u64,
}

impl Outbox {
    /// Room for `room` decisions of a network that reads `width` numbers.
    pub fn new(width: usize, room: usize) -> Self {
        Self {
            width,
            room,
            inputs: Vec::with_capacity(width * room),
            actions: Vec::with_capacity(room),
            starts: Vec::with_capacity(room),
            interrupted: true,
            lost: 0,
        }
    }

    /// Adds a decision; if there is no room, it is lost and counted.
    pub fn push(&mut self, inputs: &[f32], action: f32) {
        debug_assert_eq!(inputs.len(), self.width);
        if self.actions.len() == self.room {
            self.lost += 1;
            self.interrupted = true;
            return;
        }
        if std::mem::take(&mut self.interrupted) {
            self.starts.push(self.actions.len());
        }
        self.inputs.extend_from_slice(inputs);
        self.actions.push(action);
    }

    /// Removes the last decision, which was not carried out.
    pub fn interrupt(&mut self) {
        if !self.interrupted && self.actions.pop().is_some() {
            let left = self.actions.len();
            self.inputs.truncate(self.width * left);
            if self.starts.last() == Some(&left) {
                self.starts.pop();
            }
        }
        self.interrupted = true;
    }

    /// An empty outbox of the same size.
    pub fn empty_copy(&self) -> Self {
        Self::new(self.width, self.room)
    }

    /// Moves all decisions to `to` if that is empty; it must be of the same size. Neither allocates
    /// nor copies.
    pub fn move_to(&mut self, to: &mut Self) {
        debug_assert_eq!((self.width, self.room), (to.width, to.room));
        if to.actions.is_empty() {
            std::mem::swap(&mut self.inputs, &mut to.inputs);
            std::mem::swap(&mut self.actions, &mut to.actions);
            std::mem::swap(&mut self.starts, &mut to.starts);
        }
    }

    /// Decisions lost because there was no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Hands all decisions to `take` (inputs, action, whether a sequence starts with it) and
    /// removes them.
    pub fn drain(&mut self, mut take: impl FnMut(&[f32], f32, bool)) {
        let mut starts = self.starts.iter().copied().peekable();
        let rows = self.inputs.chunks_exact(self.width);
        for (at, (row, &action)) in rows.zip(&self.actions).enumerate() {
            take(row, action, starts.next_if_eq(&at).is_some());
        }
        self.inputs.clear();
        self.actions.clear();
        self.starts.clear();
    }
}

/// The blocks in which two networks are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Decisions of a block.
    pub length: u32,
    /// Decisions at the start of a block that do not count, because the queue is still in the state
    /// in which the other network left it.
    pub skipped: u32,
    /// Pairs of blocks after which the trial ends, at least 30.
    pub pairs: u32,
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The candidate earns more, by a paired one-sided test: at 99.5 % after a few pairs, at 95 %
    /// after the last.
    Better,
    /// It does not earn more, or was given up before the end.
    NotBetter,
    /// It earns less, by a paired one-sided test at 95 %.
    Worse,
}

/// Quantile of Student's t at 95 % with 29 degrees of freedom; with more of them it is smaller.
const T_OF_30: f64 = 1.6991;
/// Rows of a number of pairs and the quantile of Student's t at 99.5 % for it. Before the last
/// pair, a candidate is better if, after at least as many pairs, its mean gain exceeds its standard
/// error times the quantile.
const BETTER: [(u32, f64); 2] = [(4, 5.8409), (8, 3.4995)];
/// The same for a candidate that is worse, at 95 %, with its mean loss. Because the test is
/// repeated after each pair, it rejects more than one in twenty good candidates, but it lets no bad
/// one pass.
const WORSE: [(u32, f64); 2] = [(2, 6.3138), (4, 2.3534)];
/// After at least as many pairs, a candidate whose mean gain is not above 0 is given up.
const FUTILE: u32 = 12;

/// The comparison of a candidate with the network in force, the champion.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    blocks: Blocks,
    /// Whether the candidate has the first block of the pair.
    first: bool,
    /// Whether this is the second block of the pair.
    second: bool,
    /// Decisions of this block so far.
    at: u32,
    /// Sum of those of this block's rewards that count.
    sum: f64,
    /// Mean reward of the pair's first block.
    before: f64,
    /// Complete pairs.
    pairs: u32,
    /// Mean gain of a pair: the candidate's mean reward minus the champion's.
    mean: f64,
    /// Sum of the squared deviations of the gains from their mean (Welford 1962).
    squares: f64,
}

impl Trial {
    /// Begins a trial; the order of each pair is drawn from `rng`.
    pub fn new(blocks: Blocks, rng: &mut Rng) -> Self {
        debug_assert!(blocks.skipped < blocks.length && blocks.pairs >= 30);
        Self {
            blocks,
            first: rng.below(2) == 0,
            second: false,
            at: 0,
            sum: 0.0,
            before: 0.0,
            pairs: 0,
            mean: 0.0,
            squares: 0.0,
        }
    }

    /// True while the candidate decides.
    pub fn candidate_acts(&self) -> bool {
        self.first != self.second
    }

    /// Adds the reward of the last decision; returns the verdict once there is one.
    pub fn note(&mut self, reward: f64, rng: &mut Rng) -> Option<Verdict> {
        self.at += 1;
        if self.at > self.blocks.skipped {
            self.sum += reward;
        }
        if self.at < self.blocks.length {
            return None;
        }
        let mean = self.sum / f64::from(self.blocks.length - self.blocks.skipped);
        (self.at, self.sum) = (0, 0.0);
        if !self.second {
            (self.before, self.second) = (mean, true);
            return None;
        }
        let gain = match self.candidate_acts() {
            true => mean - self.before,
            false => self.before - mean,
        };
        self.second = false;
        self.first = rng.below(2) == 0;
        self.pairs += 1;
        let n = f64::from(self.pairs);
        let off = gain - self.mean;
        self.mean += off / n;
        self.squares += off * (gain - self.mean);
        let error = libm::sqrt(self.squares / ((n - 1.0).max(1.0) * n));
        if self.pairs >= self.blocks.pairs {
            return Some(match self.mean > T_OF_30 * error {
                true => Verdict::Better,
                false => Verdict::NotBetter,
            });
        }
        let beyond = |bounds: [(u32, f64); 2], gain: f64| {
            let passes = |(pairs, t): (u32, f64)| self.pairs >= pairs && gain > t * error;
            bounds.into_iter().any(passes)
        };
        if beyond(BETTER, self.mean) {
            return Some(Verdict::Better);
        }
        if beyond(WORSE, -self.mean) {
            return Some(Verdict::Worse);
        }
        // Without a sign of a gain, another candidate has better prospects.
        let futile = self.pairs >= FUTILE && self.mean <= 0.0;
        futile.then_some(Verdict::NotBetter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_come_out_in_sequences() {
        let mut outbox = Outbox::new(1, 4);
        outbox.push(&[1.0], 1.0);
        outbox.push(&[2.0], 2.0);
        outbox.interrupt();
        outbox.interrupt();
        outbox.push(&[3.0], 3.0);
        let mut got = Vec::new();
        outbox.drain(|row, action, starts| got.push((row[0], action, starts)));
        // The second was not carried out.
        assert_eq!(got, [(1.0, 1.0, true), (3.0, 3.0, true)]);
        (4..10).for_each(|k| outbox.push(&[k as f32], 0.0));
        assert_eq!(outbox.lost(), 2);
        got.clear();
        outbox.drain(|row, action, starts| got.push((row[0], action, starts)));
        let starts: Vec<bool> = got.iter().map(|g| g.2).collect();
        assert_eq!((got[0].0, starts), (4.0, vec![false; 4]));
        outbox.push(&[10.0], 0.0);
        outbox.drain(|_, _, starts| assert!(starts, "two were lost before"));
    }

    #[test]
    fn decisions_move_to_another_outbox_once_that_is_empty() {
        let mut outbox = Outbox::new(1, 4);
        let mut other = outbox.empty_copy();
        outbox.push(&[1.0], 1.0);
        outbox.move_to(&mut other);
        outbox.push(&[2.0], 2.0);
        outbox.move_to(&mut other);
        let mut got = Vec::new();
        other.drain(|row, action, starts| got.push((row[0], action, starts)));
        outbox.move_to(&mut other);
        other.drain(|row, action, starts| got.push((row[0], action, starts)));
        assert_eq!(got, [(1.0, 1.0, true), (2.0, 2.0, false)]);
        // A decision that has moved cannot be taken back, but the next one starts a sequence.
        outbox.interrupt();
        outbox.push(&[3.0], 3.0);
        outbox.drain(|_, _, starts| assert!(starts));
    }

    const BLOCKS: Blocks = Blocks {
        length: 10,
        skipped: 2,
        pairs: 30,
    };

    /// The verdict on a candidate that earns this much more, on a queue whose rewards drift and
    /// vary, and the number of decisions of the trial.
    fn tried(gain: f64, seed: u64) -> (Verdict, u32) {
        let mut rng = Rng::new(seed, "trial");
        let mut noise = Rng::new(seed, "noise");
        let mut trial = Trial::new(BLOCKS, &mut rng);
        let mut load = 0.0;
        for decisions in 1.. {
            load += noise.f64() - 0.5;
            let own = if trial.candidate_acts() { gain } else { 0.0 };
            if let Some(verdict) = trial.note(own + noise.f64() + 0.1 * load, &mut rng) {
                return (verdict, decisions);
            }
        }
        unreachable!()
    }

    #[test]
    fn a_better_candidate_passes_and_a_worse_one_is_soon_rejected() {
        for seed in 0..20 {
            let (verdict, decisions) = tried(1.0, seed);
            assert_eq!(verdict, Verdict::Better);
            assert!(decisions <= 12 * 20, "{decisions}");
            let (verdict, decisions) = tried(-1.0, seed);
            assert_eq!(verdict, Verdict::Worse);
            assert!(decisions <= 10 * 20, "{decisions}");
            let (verdict, decisions) = tried(-20.0, seed);
            assert_eq!(verdict, Verdict::Worse);
            assert!(decisions <= 3 * 20, "{decisions}");
        }
    }

    #[test]
    fn one_that_is_no_better_passes_in_one_of_fifteen_trials() {
        let passed = (0..1000).filter(|&seed| tried(0.0, seed).0 == Verdict::Better);
        let passed = passed.count();
        assert!((40..=90).contains(&passed), "{passed} of 1000");
    }

    #[test]
    fn rewards_right_after_a_change_of_networks_do_not_count() {
        let mut rng = Rng::new(1, "trial");
        let mut trial = Trial::new(BLOCKS, &mut rng);
        let mut at = 0;
        loop {
            // The candidate earns 10 more in the first two decisions of its blocks, and a little
            // less later.
            let early = at % 10 < 2;
            let reward = match (trial.candidate_acts(), early) {
                (true, true) => 10.0,
                (true, false) => -0.01,
                _ => 0.0,
            };
            at += 1;
            if let Some(verdict) = trial.note(reward, &mut rng) {
                assert_eq!(verdict, Verdict::Worse);
                return;
            }
        }
    }
}
