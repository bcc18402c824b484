//! LearnQueue: tabular Q-learning of a queue's limit, one state up or down every 15 ms.
//!
//! Source: Bouacida and Shihada, "Practical and Dynamic Buffer Sizing Using LearnQueue", IEEE
//! Transactions on Mobile Computing 2019, sections 3.2 and 3.3, algorithm 1. The state is the
//! limit, the actions are the next smaller and the next larger limit.
//!
//! Deviations, each undone by [`Params::published_reward`]:
//!
//! - **The reward has the action's sign.** As printed, equation 14 rewards a limit, whatever the
//!   action was, and its best limit hardly depends on the target. With L the limit, d(L) the delay
//!   and e(L) the enqueue rate, the slope of the reward is −δ d'(L) + η (max_delay − T) e'(L), in
//!   which the target T is only a weight of e. Here an increase of the limit earns x = δ (T − d) +
//!   η T (1 − e), and a decrease −x. So the limit rises while x is positive and falls while it is
//!   negative: it settles where the mean of d is T (1 + (1 − e) η / δ). The rewards of a step up
//!   and of the step back down add up to 0, so that no cycle of actions pays.
//! - **Equation 12 is left out by default** (η 0): a term that is the same for both actions cannot
//!   decide between them.
//! - **Limits grow by 14 %**, 39 states from 1 to 400: a step of one packet is smaller than the
//!   saw-tooth of one TCP flow, and 400 of them take 6 s.
//! - **γ is 0 and ε 0.1 throughout**: the reward of a step already shows which of the two actions
//!   is right, so that each limit is a separate bandit problem. α is 1/visits, but at least 0.1, so
//!   that the table follows a change of the link.
//! - **A reward is credited to the action that caused it**, and an action that would leave the
//!   range is not punished: it does nothing.
//!
//! Where the paper contradicts itself or is not specific, both readings are available
//! ([`readings`]). The paper does not specify α, the first limit and the initial Q of the published
//! reward either. Here α is 1/visits (which equations 9 and 10 call for) unless `alpha` is given,
//! the first limit is 1 and Q is 0. They are calibrated on one and on five TCP flows, as `quell
//! reproduce learnqueue` shows. With a constant α, or a first limit of 400, the limit stays where
//! it began: the published rewards are positive, and untried actions count as 0.
//!
//! The table can be saved to a file, from which another queue starts (`table.rs`).

mod limits;
pub mod readings;
mod table;

pub use limits::Limits;
use readings::{Arithmetic, Credit, Discount, Length, QueueSize, Reward, Update};
use serde::{Deserialize, Serialize};
pub use table::{Card, FORMAT, Table};

use super::{Control, LearnedState, SubQueue};
use crate::num;
use crate::rate::Rate;
use crate::time::{Duration, MS, SEC, US};
use crate::{ControlledKnobs, Gauges, KnobSet, Knobs, Rng};

/// Parameters of [`LearnQueue`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// Time between decisions (default 15 ms, 1 us..10 s).
    #[serde(rename = "period_ns")]
    pub period: Duration,
    /// Largest limit, packets (default 400, 2..65536).
    pub max_size: u32,
    /// First limit, packets (default 1; at most `max_size`).
    pub initial: u32,
    /// Factor from one limit to the next, which is at least one packet larger (1 to 2, default
    /// 1.14). With 1, every limit is a state.
    #[serde(default = "published::step")]
    pub step: f64,
    /// Weight of the delay in the reward (default 0.5, 0..1000).
    pub delta: f64,
    /// Weight of the enqueue rate in the reward (default 0, 0..1000).
    pub eta: f64,
    /// Delay to hold (default 30 ms).
    #[serde(rename = "target_ns")]
    pub target: Duration,
    /// Bytes of a packet in `max_delay` (default 1500).
    pub packet_bytes: u32,
    /// The basic rate of `max_delay` (default 6.5 Mbit/s).
    #[serde(rename = "basic_bps")]
    pub basic_rate: Rate,
    /// Learning rate (above 0, at most 1; default: 1 / visits of the pair, for which Q-learning is
    /// proved to converge).
    pub alpha: Option<f64>,
    /// Lower bound of 1 / visits as the learning rate, so that the table follows a change of the
    /// link (default 0.1).
    #[serde(default = "published::alpha_min")]
    pub alpha_min: f64,
    /// First probability of exploring (default 0.1).
    pub epsilon: f64,
    /// ε decays only while it is above this (default 0.1).
    pub epsilon_min: f64,
    /// Factor on ε, and on 1 − γ, for every pair of limit and action that is tried for the first
    /// time (default 0.995).
    pub decay: f64,
    /// First discount (default 0).
    pub gamma: f64,
    /// γ grows only while it is below this (default 0).
    pub gamma_max: f64,
    /// Reward of a period.
    #[serde(rename = "published_reward", default = "published::reward")]
    pub reward: Reward,
    /// How a pair's value is updated.
    #[serde(rename = "literal_update")]
    pub update: Update,
    /// How the discount grows.
    #[serde(rename = "printed_gamma")]
    pub discount: Discount,
    /// The unit of a packet's length in equation 13.
    #[serde(rename = "bytes_max_delay")]
    pub length: Length,
    /// The queue size of equation 13.
    #[serde(rename = "current_max_delay")]
    pub queue_size: QueueSize,
    /// Which action a reward is credited to.
    #[serde(rename = "delayed_credit")]
    pub credit: Credit,
    /// Arithmetic of the table.
    #[serde(rename = "fixed_point")]
    pub arithmetic: Arithmetic,
}

/// Values of the keys that a table's card of format 1 does not have.
mod published {
    pub fn step() -> f64 {
        1.0
    }
    pub fn alpha_min() -> f64 {
        0.0
    }
    pub fn reward() -> super::Reward {
        super::Reward::Published
    }
}

impl Default for Params {
    fn default() -> Self {
        Self {
            period: 15 * MS,
            max_size: 400,
            initial: 1,
            step: 1.14,
            delta: 0.5,
            eta: 0.0,
            target: 30 * MS,
            packet_bytes: 1500,
            basic_rate: Rate::from_kbit(6500),
            alpha: None,
            alpha_min: 0.1,
            epsilon: 0.1,
            epsilon_min: 0.1,
            decay: 0.995,
            gamma: 0.0,
            gamma_max: 0.0,
            reward: Reward::default(),
            update: Update::default(),
            discount: Discount::default(),
            length: Length::default(),
            queue_size: QueueSize::default(),
            credit: Credit::default(),
            arithmetic: Arithmetic::default(),
        }
    }
}

impl Params {
    /// The reward of equations 11 to 14 and the paper's settings for it: one packet per step, ε
    /// from 0.9 to 0.1, γ from 0.1 to 0.9, α 1/visits, a period's reward credited to the action
    /// after it.
    pub fn published_reward(mut self) -> Self {
        self.reward = Reward::Published;
        self.step = published::step();
        self.eta = 0.5;
        (self.alpha, self.alpha_min) = (None, published::alpha_min());
        (self.epsilon, self.epsilon_min) = (0.9, 0.1);
        (self.gamma, self.gamma_max) = (0.1, 0.9);
        self.credit = Credit::Next;
        self
    }

    /// Everything as algorithm 1 and equation 13 print it, in the integers of the paper's boards,
    /// starting from the largest limit.
    pub fn as_published(mut self) -> Self {
        self = self.published_reward();
        self.alpha = Some(0.1);
        self.initial = self.max_size;
        self.queue_size = QueueSize::Present;
        self.update = Update::Literal;
        self.discount = Discount::Printed;
        self.length = Length::Bytes;
        self.arithmetic = Arithmetic::Fixed;
        self
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        let share = |x: f64| (0.0..=1.0).contains(&x);
        if !(US..=10 * SEC).contains(&self.period) || self.target > 10 * SEC {
            return Err("period must be 1us to 10s, target at most 10s");
        }
        if !(2..=65_536).contains(&self.max_size) {
            return Err("max must be 2 to 65536 packets");
        }
        if !(1..=self.max_size).contains(&self.initial) {
            return Err("initial must be at least 1 packet and at most max");
        }
        if ![self.delta, self.eta]
            .iter()
            .all(|w| (0.0..=1000.0).contains(w))
        {
            return Err("delta and eta must be 0 to 1000");
        }
        if self.packet_bytes == 0
            || self.packet_bytes > 65_535
            || self.basic_rate < Rate::from_kbit(1)
        {
            return Err("packet must be 1 to 65535 bytes, basic_rate at least 1kbit");
        }
        if !(self.alpha.is_none_or(|a| share(a) && a > 0.0) && share(self.decay)) {
            return Err("alpha must be above 0 and at most 1, decay 0 to 1");
        }
        if ![self.epsilon, self.epsilon_min, self.gamma, self.gamma_max]
            .into_iter()
            .all(share)
        {
            return Err("epsilon and gamma must be 0 to 1");
        }
        if !share(self.alpha_min) || !(1.0..=2.0).contains(&self.step) {
            return Err("alpha_min must be 0 to 1, step 1 to 2");
        }
        Ok(())
    }

    /// `max_delay` of equation 13: the time that the queue size takes at the basic rate, ms. The
    /// queue size is the largest limit or `limit` ([`QueueSize`]).
    pub fn max_delay_ms(&self, limit: u32) -> f64 {
        let limit = match self.queue_size {
            QueueSize::Largest => self.max_size,
            QueueSize::Present => limit,
        };
        let bits = match self.length {
            Length::Bits => 8.0,
            Length::Bytes => 1.0,
        };
        f64::from(self.packet_bytes) * bits * f64::from(limit) / self.basic_rate.bps_f64() * 1000.0
    }

    /// The limits that are states.
    pub fn limits(&self) -> Limits {
        Limits::new(self.step, self.max_size)
    }

    /// Reward of a period, ms.
    pub fn reward(&self, period: &Period) -> f64 {
        let target_ms = self.target.as_millis_f64();
        let delay = self.delta * (target_ms - period.delay_ms);
        match self.reward {
            Reward::Published if period.bounded => -self.max_delay_ms(period.limit),
            // Equations 11, 12 and 14.
            Reward::Published => {
                let enqueue = self.max_delay_ms(period.limit) - target_ms;
                delay + self.eta * enqueue * period.enqueue_rate
            }
            Reward::Signed => {
                let x = delay + self.eta * target_ms * (1.0 - period.enqueue_rate);
                f64::from(period.direction) * x
            }
        }
    }
}

/// Quantities that determine a reward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// Direction of the action: -1 a smaller limit, 1 a larger one.
    pub direction: i8,
    /// Whether the action would have left the range.
    pub bounded: bool,
    /// The limit in force, packets.
    pub limit: u32,
    /// Delay of the packet that left last, ms.
    pub delay_ms: f64,
    /// The share of arrivals that found room.
    pub enqueue_rate: f64,
}

/// An action in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    /// Index in the [`Limits`].
    row: usize,
    /// 0: the next smaller limit, 1: the next larger one.
    action: usize,
    /// Whether the action would have left the range, so that it does nothing.
    bounded: bool,
}

/// Q in ms, or in integer microseconds.
#[derive(Clone, Debug, PartialEq)]
enum Values {
    Float(Vec<[f64; 2]>),
    Fixed(Vec<[i32; 2]>),
}

impl Values {
    fn none(params: &Params, size: usize) -> Self {
        match params.arithmetic {
            Arithmetic::Fixed => Values::Fixed(vec![[0; 2]; size]),
            Arithmetic::Float => Values::Float(vec![[0.0; 2]; size]),
        }
    }

    fn ms(&self, row: usize, action: usize) -> f64 {
        match self {
            Values::Float(q) => q[row][action],
            Values::Fixed(q) => f64::from(q[row][action]) / 1000.0,
        }
    }

    fn set_ms(&mut self, row: usize, action: usize, ms: f64) {
        match self {
            Values::Float(q) => q[row][action] = ms,
            Values::Fixed(q) => q[row][action] = num::whole_i32(libm::round(ms * 1000.0)),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Values::Float(q) => size_of_val(q.as_slice()),
            Values::Fixed(q) => size_of_val(q.as_slice()),
        }
    }
}

/// The controller of one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnQueue {
    params: Params,
    limits: Limits,
    limit: u32,
    epsilon: f64,
    gamma: f64,
    q: Values,
    visits: Vec<[u32; 2]>,
    discovered: u32,
    pending: Option<Pair>,
    /// Counters at the last decision.
    arrivals: u64,
    departures: u64,
    drops: u64,
}

impl LearnQueue {
    /// A controller with an empty table.
    pub fn new(params: Params) -> Self {
        let limits = params.limits();
        Self {
            limit: params.initial,
            epsilon: params.epsilon,
            gamma: params.gamma,
            q: Values::none(&params, limits.len()),
            visits: vec![[0; 2]; limits.len()],
            discovered: 0,
            pending: None,
            arrivals: 0,
            departures: 0,
            drops: 0,
            limits,
            params,
        }
    }

    /// A controller that starts with `table`; limits beyond the table's are untried.
    pub fn resume(params: Params, table: &Table) -> Self {
        let mut lq = Self::new(params);
        let known = lq.visits.len().min(table.visits.len());
        lq.visits[..known].copy_from_slice(&table.visits[..known]);
        for row in 0..known {
            for action in 0..2 {
                lq.q.set_ms(row, action, table.q.ms(row, action));
                if lq.visits[row][action] > 0 {
                    lq.discover();
                }
            }
        }
        lq
    }

    /// Its table so far.
    pub fn table(&self) -> Table {
        let (q, visits) = (self.q.clone(), self.visits.clone());
        Table::new(self.params.clone(), self.limit, q, visits)
    }

    /// Bytes of its Q table alone, as section 5 of the paper counts them, and of its whole state.
    pub fn memory(&self) -> (usize, usize) {
        let table = self.q.bytes();
        let visits = size_of_val(self.visits.as_slice());
        (
            table,
            table + visits + self.limits.bytes() + size_of::<Self>(),
        )
    }

    /// The limit in force.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The current probability of exploring.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// The current discount.
    pub fn gamma(&self) -> f64 {
        self.gamma
    }

    /// Number of pairs ever tried.
    pub fn discovered(&self) -> u32 {
        self.discovered
    }

    /// Q of an action (0: the next smaller limit, 1: the next larger one) at a limit from 1 to
    /// `max_size`, ms.
    pub fn q(&self, limit: u32, action: usize) -> f64 {
        self.q.ms(self.limits.row(limit), action)
    }

    /// Delay (ms) and enqueue rate of the period that just ended.
    fn observe(&mut self, gauges: &Gauges) -> (f64, f64) {
        let arrivals = gauges.arrivals - self.arrivals;
        let drops = gauges.drops_overflow - self.drops;
        let delay = match gauges.departures > self.departures {
            true => gauges.sojourn,
            false if gauges.backlog_packets > 0 => gauges.head_age,
            false => Duration::ZERO,
        };
        (self.arrivals, self.drops) = (gauges.arrivals, gauges.drops_overflow);
        self.departures = gauges.departures;
        let rate = match arrivals {
            0 => 1.0,
            n => n.saturating_sub(drops) as f64 / n as f64,
        };
        (delay.as_millis_f64(), rate)
    }

    /// ε-greedy; a tie is an increase (algorithm 1, lines 6 to 15).
    fn choose(&self, rng: &mut Rng) -> Pair {
        let row = self.limits.row(self.limit);
        let action = if rng.f64() < self.epsilon {
            num::index(rng.below(2))
        } else {
            usize::from(self.q.ms(row, 0) <= self.q.ms(row, 1))
        };
        let bounded = match action {
            0 => row == 0,
            _ => row + 1 == self.limits.len(),
        };
        Pair {
            row,
            action,
            bounded,
        }
    }

    /// Counts the visit; a discovery tunes ε and γ (lines 37 to 44).
    fn visit(&mut self, pair: Pair) {
        let visits = &mut self.visits[pair.row][pair.action];
        *visits = visits.saturating_add(1);
        if *visits == 1 {
            self.discover();
        }
    }

    fn discover(&mut self) {
        self.discovered += 1;
        let p = &self.params;
        if self.epsilon > p.epsilon_min {
            self.epsilon *= p.decay;
        }
        if self.gamma < p.gamma_max {
            self.gamma = match p.discount {
                Discount::Printed => 1.0 - p.decay * self.gamma,
                Discount::Mirrored => 1.0 - p.decay * (1.0 - self.gamma),
            };
        }
    }

    /// Updates Q (lines 46 and 47).
    fn learn(&mut self, pair: Pair, reward_ms: f64, next: u32) {
        let (row, next, action) = (pair.row, self.limits.row(next), pair.action);
        let alpha = match self.params.alpha {
            Some(alpha) => alpha,
            None => {
                let visits = f64::from(self.visits[row][action].max(1));
                (1.0 / visits).max(self.params.alpha_min)
            }
        };
        let literal = self.params.update == Update::Literal;
        match &mut self.q {
            Values::Float(q) => {
                let best = q[next][0].max(q[next][1]);
                let old = q[row][action];
                let goal = reward_ms + self.gamma * best;
                // The literal form need not converge; its range is that of the integers.
                let bound = f64::from(i32::MAX) / 1000.0;
                q[row][action] = match literal {
                    true => ((1.0 - alpha) * old + goal).clamp(-bound, bound),
                    false => old + alpha * (goal - old),
                };
            }
            Values::Fixed(q) => {
                let in_1024ths = |x: f64| num::whole_i64(libm::round(x * 1024.0));
                let (alpha, gamma) = (in_1024ths(alpha), in_1024ths(self.gamma));
                let best = i64::from(q[next][0].max(q[next][1]));
                let old = i64::from(q[row][action]);
                let goal = num::whole_i64(libm::round(reward_ms * 1000.0)) + gamma * best / 1024;
                let new = match literal {
                    true => (1024 - alpha) * old / 1024 + goal,
                    false => old + alpha * (goal - old) / 1024,
                };
                q[row][action] = num::low_i32(new.clamp(-i64::from(i32::MAX), i64::from(i32::MAX)));
            }
        }
    }

    fn reward(&self, pair: Pair, limit: u32, delay_ms: f64, enqueue_rate: f64) -> f64 {
        self.params.reward(&Period {
            direction: if pair.action == 0 { -1 } else { 1 },
            bounded: pair.bounded,
            limit,
            delay_ms,
            enqueue_rate,
        })
    }
}

impl Control for LearnQueue {
    fn period(&self) -> Duration {
        self.params.period
    }

    fn decide(&mut self, gauges: &Gauges, _subs: &mut [SubQueue], rng: &mut Rng) -> Knobs {
        let (delay, rate) = self.observe(gauges);
        if let Some(last) = self.pending.take() {
            let reward = self.reward(last, self.limit, delay, rate);
            self.learn(last, reward, self.limit);
        }
        let pair = self.choose(rng);
        let before = self.limit;
        self.limit = match (pair.bounded, pair.action) {
            (true, _) => before,
            (false, 0) => self.limits.at(pair.row - 1),
            (false, _) => self.limits.at(pair.row + 1),
        };
        self.visit(pair);
        if self.params.credit == Credit::Cause {
            self.pending = Some(pair);
        } else {
            let reward = self.reward(pair, before, delay, rate);
            self.learn(pair, reward, self.limit);
        }
        self.initial()
    }

    fn initial(&mut self) -> Knobs {
        Knobs {
            limit_packets: Some(self.limit),
            ..Knobs::default()
        }
    }

    fn knobs(&self) -> ControlledKnobs {
        ControlledKnobs::of_queue(KnobSet::LIMIT)
    }

    fn learned(&self) -> Option<LearnedState> {
        Some(LearnedState::Table(Box::new(self.table())))
    }

    fn adopt(&mut self, knobs: &Knobs) {
        if let Some(limit) = knobs.limit_packets {
            self.limit = limit.clamp(1, self.params.max_size);
        }
    }
}

#[cfg(test)]
mod tests;
