//! `lfq learn`: the network continues to learn while the queue serves.
//!
//! Source: the LFQ paper's §VI (online learning) and its authors' `rl.cc`. In an experiment, which
//! begins at a random time of a flow, the flow's limit is fixed at one packet more or one packet
//! less than the network's answer. What the flow achieves from then on is the reward. If this is
//! more than a second network, the critic, expected, the chosen limit counts as the better one;
//! otherwise the limit that was not chosen does. The actor, the network that sets limits, is
//! trained towards the better limit (mean absolute error), the critic towards the reward (mean
//! squared error), with the experiments of one batch at a time. The inputs of both are the features
//! at the start of the experiment.
//!
//! Deviations, because a flow's end is not known in advance and flows of any length are used:
//! - An experiment begins at the first decision after a random time of up to `MAX_WAIT`, not of up
//!   to half of the flow's length, and ends after `EXPERIMENT` or with the flow. Then the network
//!   decides for at least `EXPERIMENT`, so that experiments take at most half of a flow's time.
//! - The two limits are one packet above and one below the network's answer at that packet. In the
//!   code they are beside its previous answer, ten packets earlier.
//! - The actor starts from a trained network, as the paper's conclusion proposes, the critic from
//!   random weights; for the first `WARM_UP` batches only the critic is trained. The critic is
//!   trained with Adam and on repeated earlier experiments, because plain gradient descent is too
//!   slow (`quell train lfq --critic-rate --replay`).
//! - A step of the actor is bounded, because the network may answer with hundreds of packets on a
//!   link unlike those of its training.
//!
//! When a guard's classic controller acts, or the network's answer is not finite, the experiments
//! end without a sample, and the network that the queue's words name is in force again; the actor
//! continues from it. Another queue can continue from actor and critic ([`Networks`]); Adam's
//! moments and earlier experiments are not saved.

use super::{FEATURES, LIMITS, Lfq};
use crate::control::learn::{self, Outbox, Update};
use crate::control::networks::{Critic, Networks, Second};
use crate::control::{
    Arrival, Control, Decision, Departure, Explanation, LearnedState, Loss, SubQueue,
};
use crate::policy::{Adam, Affine, Error, Init, Optimizer, Policy, Trainee};
use crate::time::{Duration, Instant, SEC};
use crate::{ControlledKnobs, Gauges, Knobs, Rng, num};

/// Upper bound of the random time before an experiment: half of the length of a flow in offline
/// training.
const MAX_WAIT: Duration = Duration::from_millis(2500);
/// Longest duration of an experiment: the length of a flow in offline training.
const EXPERIMENT: Duration = Duration::from_secs(5);
/// Time without packets after which a flow has ended.
const SILENCE: Duration = SEC;
/// An experiment in which fewer packets leave does not count.
const MIN_PACKETS: u32 = 20;
/// Interval of the search for flows that have ended.
const PERIOD: Duration = Duration::from_millis(100);
/// Experiments per training step.
const BATCH: usize = 40;
/// Batches for which only the critic is trained.
const WARM_UP: u64 = 10;
/// Largest learning rate of the actor's plain gradient descent: the paper's rate.
const ACTOR_RATE: f32 = 0.01;
/// Learning rate of the critic's Adam.
const CRITIC_RATE: f32 = 1e-3;
/// Number of past experiments that the critic remembers.
const PAST: usize = 4096;
/// Additional training steps of the critic per batch, each on `REPLAYED` remembered experiments.
const FITS: usize = 1;
const REPLAYED: usize = 256;
/// Numbers of an experiment in the outbox: features, its limit, the other limit, resets before it.
const WIDTH: usize = FEATURES + 3;
/// Number at which the count of resets returns to 0: `f32` represents all smaller ones exactly.
const RESETS: u32 = 1 << 24;
/// Bytes that the reward charges for each queued packet: the authors' segment size.
const PACKET: f64 = 1446.0;
/// A reward of 1 is this many bytes per second.
const UNIT: f64 = 1e6;

/// What an experiment earns, as with `quell train lfq --reward`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reward {
    /// The paper's: throughput minus this weight (1/s) times the mean of the queued data.
    Queue(f64),
    /// Throughput minus this weight (1e6 bytes/s per s) times the mean time in the queue.
    Delay(f64),
}

/// A flow's experiment, or its wait for the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Experiment {
    /// Whether it runs; otherwise the flow waits for the next one.
    runs: bool,
    /// Its start, or the earliest start of the next one.
    at: Instant,
    /// The network's inputs at the start.
    features: [f32; FEATURES],
    /// The limit in force, packets.
    limit: u32,
    /// The limit that was not chosen, packets.
    other: u32,
    /// Packets that have left.
    departed: u32,
    /// Bytes that have left.
    bytes: u64,
    /// Sum of the times in the queue of the packets that have left.
    sojourn: Duration,
    /// Packets queued, integrated over time up to `last`, packet-nanoseconds.
    packet_ns: u128,
    /// Time of the last arrival or departure.
    last: Instant,
    last_departure: Instant,
}

impl Experiment {
    /// No experiment runs, and the next one begins after `at`.
    fn not_before(at: Instant) -> Self {
        Self {
            runs: false,
            at,
            features: [0.0; FEATURES],
            limit: 0,
            other: 0,
            departed: 0,
            bytes: 0,
            sojourn: Duration::ZERO,
            packet_ns: 0,
            last: at,
            last_departure: at,
        }
    }

    /// Accounts for the time since the last event, in which `held` packets were queued.
    fn advance(&mut self, now: Instant, held: u32) {
        let since = now.saturating_since(self.last);
        self.packet_ns += u128::from(since.as_nanos()) * u128::from(held);
        self.last = now;
    }

    /// The reward up to the last departure; `None` if there is too little to measure.
    fn reward(&self, reward: Reward) -> Option<f64> {
        let nanos = self.last_departure.saturating_since(self.at);
        if self.departed < MIN_PACKETS || nanos == Duration::ZERO {
            return None;
        }
        let rate = self.bytes as f64 / nanos.as_secs_f64() / UNIT;
        Some(match reward {
            Reward::Queue(alpha) => {
                let queued = self.packet_ns as f64 / nanos.as_nanos() as f64;
                rate - alpha * queued * PACKET / UNIT
            }
            Reward::Delay(alpha) => {
                rate - alpha * self.sojourn.as_secs_f64() / f64::from(self.departed)
            }
        })
    }
}

/// Counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Experiments that gave a sample.
    pub experiments: u64,
    /// Networks that came into force.
    pub installed: u64,
    /// Times that the first network replaced another because of a guard or a fault.
    pub reset: u64,
}

/// An [`Lfq`] that continues to learn.
#[derive(Clone, Debug)]
pub struct Learning {
    acting: Lfq,
    /// The networks with which the queue started; kept so that the thread that serves packets
    /// never frees one.
    start: Networks,
    /// The critic of the network in force.
    critic: Critic,
    reward: Reward,
    flows: Vec<Experiment>,
    outbox: Outbox,
    learner: Option<Box<dyn learn::Learner>>,
    /// Draws the times of experiments, and which of the two limits is chosen. Seeded from the
    /// queue's own stream at the first period; no experiment begins before that.
    rng: Option<Rng>,
    /// Resets so far, modulo [`RESETS`]. A network that the learner trained on experiments before a
    /// reset does not come into force after it.
    resets: u32,
    progress: Progress,
}

impl Learning {
    /// Starts with the network of `acting`.
    ///
    /// # Errors
    /// If the critic cannot be made, which does not happen.
    ///
    /// # Panics
    /// If the network's weights are integers ([`Policy::to_integers`]).
    pub fn new(acting: Lfq, reward: Reward) -> Result<Self, Error> {
        let (untrained, rng) = untrained(&acting.policy)?;
        Ok(Self::from(acting, reward, untrained, rng))
    }

    /// Continues from these networks, if they began with the network of `acting`; otherwise the
    /// same as [`Learning::new`].
    ///
    /// # Errors
    /// As [`Learning::new`].
    ///
    /// # Panics
    /// As [`Learning::new`].
    pub fn resume(acting: Lfq, reward: Reward, networks: &Networks) -> Result<Self, Error> {
        let (untrained, rng) = untrained(&acting.policy)?;
        Ok(Self::from(acting, reward, networks.or(untrained), rng))
    }

    fn from(mut acting: Lfq, reward: Reward, start: Networks, rng: Rng) -> Self {
        let critic = match &start.second {
            Second::Critic(critic) => critic.clone(),
            Second::Newest(network) => Critic {
                network: network.clone(),
                batches: 0,
            },
        };
        acting.policy = start.acting.clone();
        Self {
            learner: Some(Box::new(Learner::new(&start, &critic, rng))),
            acting,
            start,
            critic,
            reward,
            flows: Vec::new(),
            outbox: Outbox::new(WIDTH, 1024),
            rng: None,
            resets: 0,
            progress: Progress::default(),
        }
    }

    /// Counts so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The network in force.
    pub fn policy(&self) -> &Policy {
        &self.acting.policy
    }

    /// Begins an experiment around the limit that the network has just set; returns the flow's
    /// limit in packets.
    fn begin(&mut self, index: usize, now: Instant) -> u32 {
        let Some(rng) = &mut self.rng else {
            return self.acting.flows[index].limit;
        };
        let flow = &mut self.acting.flows[index];
        let low = flow.limit.saturating_sub(1).clamp(LIMITS.0, LIMITS.1 - 2);
        let up = rng.f64() < 0.5;
        let (limit, other) = match up {
            true => (low + 2, low),
            false => (low, low + 2),
        };
        flow.limit = limit;
        // No decision during the experiment.
        flow.countdown = u32::MAX;
        self.acting.limit = limit;
        self.flows[index] = Experiment {
            runs: true,
            features: self.acting.inputs,
            limit,
            other,
            ..Experiment::not_before(now)
        };
        limit
    }

    /// Ends a flow's experiment, if one runs; `counts`: its reward becomes a sample. The network
    /// decides again at the flow's next packet.
    fn end(&mut self, index: usize, now: Instant, counts: bool) {
        let experiment = &mut self.flows[index];
        if !experiment.runs {
            return;
        }
        if let Some(reward) = experiment.reward(self.reward).filter(|_| counts) {
            let mut row = [0.0; WIDTH];
            row[..FEATURES].copy_from_slice(&experiment.features);
            row[FEATURES] = num::single(f64::from(experiment.limit));
            row[FEATURES + 1] = num::single(f64::from(experiment.other));
            row[FEATURES + 2] = num::single(f64::from(self.resets));
            self.outbox.push(&row, num::single(reward));
            self.progress.experiments += 1;
        }
        self.acting.flows[index].countdown = 0;
        self.wait(index, now + EXPERIMENT);
    }

    /// Draws the start of a flow's next experiment, at `from` or up to [`MAX_WAIT`] later.
    fn wait(&mut self, index: usize, from: Instant) {
        let wait = self.rng.as_mut().map_or(0.0, |rng| rng.f64());
        let wait = Duration::from_nanos(num::whole_u64(wait * MAX_WAIT.as_nanos() as f64));
        self.flows[index] = Experiment::not_before(from + wait);
    }

    /// Returns to the first network, which continues to learn from there.
    fn reset(&mut self, now: Instant) {
        for index in 0..self.flows.len() {
            self.end(index, now, false);
        }
        self.resets = (self.resets + 1) % RESETS;
        if !self.acting.policy.is_same(&self.start.first) {
            self.progress.reset += 1;
            self.acting.policy = self.start.first.clone();
        }
    }
}

impl Control for Learning {
    /// Period of the search for flows that have ended, and of the exchange with the learner.
    /// Decisions are made when packets arrive.
    fn period(&self) -> Duration {
        PERIOD
    }

    fn decides_on_packets(&self) -> bool {
        true
    }

    fn decide(&mut self, gauges: &Gauges, _subs: &mut [SubQueue], rng: &mut Rng) -> Knobs {
        let now = gauges.now;
        if self.rng.is_none() {
            self.rng = Some(Rng::new(rng.u64(), "experiments"));
        }
        for index in 0..self.flows.len() {
            if now.saturating_since(self.flows[index].last) > SILENCE {
                self.end(index, now, true);
            }
        }
        Knobs::KEEP
    }

    fn watches_packets(&self) -> bool {
        true
    }

    #[inline]
    fn on_arrival(&mut self, arrival: &Arrival) -> Decision {
        let (index, now) = (arrival.sub_queue.unwrap_or(0), arrival.now);
        if index >= self.flows.len() {
            self.flows.resize(index + 1, Experiment::not_before(now));
        }
        let experiment = &mut self.flows[index];
        if arrival.fresh {
            self.end(index, now, true);
            self.wait(index, now);
        } else if experiment.runs {
            experiment.advance(now, arrival.held);
            if now - experiment.at > EXPERIMENT {
                self.end(index, now, true);
            }
        }
        let decision = self.acting.on_arrival(arrival);
        match decision {
            Decision::Set(knobs) if knobs.limit_packets.is_some() => {
                if self.acting.is_broken() {
                    self.reset(now);
                } else if now > self.flows[index].at {
                    let limit_packets = Some(self.begin(index, now));
                    return Decision::Set(Knobs {
                        limit_packets,
                        ..knobs
                    });
                }
                decision
            }
            _ => decision,
        }
    }

    #[inline]
    fn on_departure(&mut self, departure: &Departure) {
        self.acting.on_departure(departure);
        let now = departure.now;
        let experiment = self.flows.get_mut(departure.sub_queue.unwrap_or(0));
        if let Some(experiment) = experiment.filter(|e| e.runs) {
            experiment.advance(now, departure.held);
            experiment.departed += 1;
            experiment.bytes += u64::from(departure.len);
            experiment.sojourn += departure.sojourn;
            experiment.last_departure = now;
        }
    }

    #[inline]
    fn on_drop(&mut self, loss: &Loss) {
        self.acting.on_drop(loss);
    }

    fn knobs(&self) -> ControlledKnobs {
        Control::knobs(&self.acting)
    }

    fn adopt(&mut self, _knobs: &Knobs) {
        let now = self.flows.iter().map(|flow| flow.last).max();
        self.reset(now.unwrap_or(Instant::ZERO));
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
            acting: self.acting.policy.clone(),
            second: Second::Critic(self.critic.clone()),
        }))
    }

    fn learner(&mut self) -> Option<Box<dyn learn::Learner>> {
        self.learner.take()
    }

    fn samples(&mut self) -> Option<&mut Outbox> {
        Some(&mut self.outbox)
    }

    fn install(&mut self, update: Update) {
        let is_new = !self.acting.policy.is_same(&update.network);
        if is_new && update.resets == self.resets {
            self.progress.installed += 1;
            self.acting.policy = update.network;
        }
        if let Some(critic) = update.critic {
            self.critic = critic;
        }
    }
}

/// The networks of a queue that has learned nothing yet, with a critic of random weights, and the
/// random stream from which these were drawn.
fn untrained(first: &Policy) -> Result<(Networks, Rng), Error> {
    let mut rng = Rng::new(1, "critic");
    let actor = Trainee::from_policy(first);
    let layers = actor.layers();
    let layers = layers.iter().map(|layer| {
        let outputs = layer.bias.len();
        let inputs = layer.weight.len() / outputs;
        Affine::random(inputs, outputs, Init::Uniform, &mut rng)
    });
    let layers: Vec<Affine> = layers.collect();
    let networks = Networks {
        second: Second::Critic(Critic {
            network: Policy::new(first.card().clone(), &layers)?,
            batches: 0,
        }),
        ..Networks::untrained(first)
    };
    Ok((networks, rng))
}

/// Actor, critic, and the experiments that they have not yet learned from. Plain data: a clone
/// continues identically.
#[derive(Clone, Debug)]
pub struct Learner {
    first: Policy,
    actor: Trainee,
    critic: Trainee,
    adam: Optimizer,
    /// Resets before the last experiment.
    resets: f32,
    /// Experiments since the last batch.
    rows: Vec<f32>,
    rewards: Vec<f32>,
    /// Features and rewards of past experiments, at most [`PAST`]; a new one replaces the oldest.
    past: Vec<f32>,
    past_rewards: Vec<f32>,
    oldest: usize,
    batches: u64,
    rng: Rng,
}

impl Learner {
    fn new(start: &Networks, critic: &Critic, rng: Rng) -> Self {
        Self {
            critic: Trainee::from_policy(&critic.network),
            first: start.first.clone(),
            actor: Trainee::from_policy(&start.acting),
            adam: Optimizer::Adam(Adam::new(CRITIC_RATE)),
            resets: 0.0,
            rows: Vec::new(),
            rewards: Vec::new(),
            past: Vec::new(),
            past_rewards: Vec::new(),
            oldest: 0,
            batches: critic.batches,
            rng,
        }
    }

    /// A step of the actor's gradient descent on the mean absolute error, unless a weight would not
    /// be finite. To first order, it changes the outputs by at most their mean (or 1 packet, if
    /// that is more): where outputs are hundreds of packets, a step at the full rate would be
    /// larger than they are.
    fn fit_actor(&mut self, features: &[f32], labels: &[f32]) {
        let count = labels.len() as f32;
        let outputs = self.actor.forward(features);
        let slope = |(output, label): (&f32, &f32)| match output.total_cmp(label) {
            std::cmp::Ordering::Less => -1.0 / count,
            std::cmp::Ordering::Equal => 0.0,
            std::cmp::Ordering::Greater => 1.0 / count,
        };
        let slopes: Vec<f32> = outputs.iter().zip(labels).map(slope).collect();
        let mean = outputs.iter().map(|o| f64::from(*o)).sum::<f64>() / f64::from(count);
        self.actor.backward(&slopes);
        // A step of rate r changes the outputs by r |gradient|^2 to first order.
        let squares = self.actor.gradients().iter().map(|g| f64::from(g * g));
        let bound = num::single(mean.max(1.0) / squares.sum::<f64>());
        let mut plain = Optimizer::Sgd {
            rate: ACTOR_RATE.min(bound),
        };
        // After an error the weights are unchanged.
        let _ = self.actor.step(&mut plain);
    }

    /// A step of the critic's Adam on the mean squared error.
    fn fit_critic(&mut self, features: &[f32], rewards: &[f32]) {
        let count = rewards.len() as f32;
        let outputs = self.critic.forward(features);
        let slope = |(output, reward): (&f32, &f32)| 2.0 * (output - reward) / count;
        let slopes: Vec<f32> = outputs.iter().zip(rewards).map(slope).collect();
        self.critic.backward(&slopes);
        if self.critic.step(&mut self.adam).is_err() {
            self.adam = Optimizer::Adam(Adam::new(CRITIC_RATE));
        }
    }

    fn remember(&mut self, features: &[f32], rewards: &[f32]) {
        for (row, reward) in features.chunks_exact(FEATURES).zip(rewards) {
            if self.past_rewards.len() < PAST {
                self.past.extend_from_slice(row);
                self.past_rewards.push(*reward);
            } else {
                self.past[self.oldest * FEATURES..][..FEATURES].copy_from_slice(row);
                self.past_rewards[self.oldest] = *reward;
                self.oldest = (self.oldest + 1) % PAST;
            }
        }
    }

    /// Fits the critic to random experiments of the past.
    fn replay(&mut self) {
        let (mut rows, mut rewards) = (Vec::new(), Vec::new());
        for _ in 0..REPLAYED {
            let at = num::index(self.rng.below(self.past_rewards.len() as u64));
            rows.extend_from_slice(&self.past[at * FEATURES..][..FEATURES]);
            rewards.push(self.past_rewards[at]);
        }
        self.fit_critic(&rows, &rewards);
    }
}

impl learn::Learner for Learner {
    fn take(&mut self, outbox: &mut Outbox) {
        outbox.drain(|row, reward, _| {
            if row[FEATURES + 2] != self.resets {
                // The first network is in force again.
                self.resets = row[FEATURES + 2];
                self.actor = Trainee::from_policy(&self.first);
                self.rows.clear();
                self.rewards.clear();
            }
            if self.rewards.len() < PAST {
                self.rows.extend_from_slice(row);
                self.rewards.push(reward);
            }
        });
    }

    /// Trains if there is a batch of new experiments; returns actor and critic.
    fn train(&mut self) -> Option<Update> {
        if self.rewards.len() < BATCH {
            return None;
        }
        let rows: Vec<f32> = self.rows.drain(..BATCH * WIDTH).collect();
        let rewards: Vec<f32> = self.rewards.drain(..BATCH).collect();
        let features: Vec<f32> = rows
            .chunks_exact(WIDTH)
            .flat_map(|row| &row[..FEATURES])
            .copied()
            .collect();
        let limits: Vec<[f32; 2]> = rows
            .chunks_exact(WIDTH)
            .map(|row| [row[FEATURES], row[FEATURES + 1]])
            .collect();
        let expected = self.critic.forward(&features).to_vec();
        self.fit_critic(&features, &rewards);
        self.remember(&features, &rewards);
        for _ in 0..FITS {
            self.replay();
        }
        self.batches += 1;
        if self.batches > WARM_UP {
            let better = rewards.iter().zip(&expected).zip(&limits);
            let labels: Vec<f32> = better
                .map(
                    |((reward, expected), [taken, other])| match reward > expected {
                        true => *taken,
                        false => *other,
                    },
                )
                .collect();
            self.fit_actor(&features, &labels);
        }
        Some(Update {
            network: self.actor.policy().clone(),
            critic: Some(Critic {
                network: self.critic.policy().clone(),
                batches: self.batches,
            }),
            resets: num::whole_u32(self.resets.into()),
        })
    }
}

#[cfg(test)]
mod tests;
