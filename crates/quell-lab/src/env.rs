//! A queue as an environment for reinforcement learning: a world that stops every period, gives an
//! observation and a reward, and takes an action that sets one knob. If every queue of a path has
//! an agent, each agent has its own observation, reward and action.
//!
//! An [`Env`] runs one episode after another, each in a new world whose seed and variations are
//! drawn from the environment's seed. Equal seeds and actions therefore give equal trajectories,
//! whatever other environments run. The first observation is that of the empty queue at time 0; a
//! scenario of 120 s with a period of 20 ms has 6000 steps.

mod reward;
mod vary;

use std::sync::Arc;

use quell_link::Error;
use quell_qdisc::control::lfq::{FEATURES, INITIAL, LIMITS};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, NEVER};
use quell_qdisc::{Gauges, Knobs, Rng, num};

pub use reward::{READINGS, Reading, ReadingInfo, Readings, Reward};
pub use vary::Randomization;

use quell_sim::scenario::Scenario;
use quell_sim::{Status, World};

/// Probabilities are multiples of a millionth, so that steps up and down return to exactly 0.
const MILLION: f64 = 1e6;

/// Features of an observation are clamped to this maximum.
const MAX_FEATURE: f32 = 1e6;

/// The knob that an action sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// The limit, packets.
    Limit,
    /// The probability with which each arrival is dropped.
    Drop,
    /// The base probability p' of coupled queues.
    BaseProbability,
}

/// When actions are taken, and whose knob they set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cadence {
    /// With this period; actions set the queue's knob.
    Every(Duration),
    /// At each packet for which the queue's own controller would evaluate its network. Actions set
    /// the knob of the packet's flow, the packet waits for the action, and an observation is the
    /// network's input.
    AtPackets,
}

impl Knob {
    /// A knob and its cadence by name; `flow_limit` is a flow's limit, set at packets whatever the
    /// period.
    ///
    /// # Errors
    /// If there is no such knob, or the period does not suit it.
    pub fn parse(name: &str, period: Duration) -> Result<(Self, Cadence), Error> {
        let every = Cadence::Every(period);
        match name {
            "limit" => Ok((Knob::Limit, every)),
            "drop" => Ok((Knob::Drop, every)),
            "base_probability" => Ok((Knob::BaseProbability, every)),
            "flow_limit" => Ok((Knob::Limit, Cadence::AtPackets)),
            _ => Err(Error::unknown(
                "knob",
                name,
                ["limit", "drop", "base_probability", "flow_limit"],
            )),
        }
    }

    /// The nearest value that the knob can have.
    fn snap(self, value: f64) -> f64 {
        match self {
            Knob::Limit => libm::round(value),
            Knob::Drop | Knob::BaseProbability => libm::round(value * MILLION) / MILLION,
        }
    }

    fn knobs(self, value: f64) -> Knobs {
        match self {
            Knob::Limit => Knobs {
                limit_packets: Some(num::whole_u32(value)),
                ..Knobs::KEEP
            },
            Knob::Drop => Knobs {
                drop: Some(value),
                ..Knobs::KEEP
            },
            Knob::BaseProbability => Knobs {
                base_probability: Some(value),
                ..Knobs::KEEP
            },
        }
    }

    fn read(self, g: &Gauges) -> f64 {
        match self {
            Knob::Limit => f64::from(g.limit_packets),
            Knob::Drop | Knob::BaseProbability => g.probability,
        }
    }
}

/// Effect of an action on the knob.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Move {
    /// -1: down, 1: up, 0: it stayed.
    pub direction: i8,
    /// Whether the action would have moved it out of its range.
    pub bounded: bool,
}

/// The possible actions.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Actions {
    /// Action k adds the k-th number, counted from 0, to the knob.
    Steps(Vec<f64>),
    /// Action k moves the knob by `steps[k]` places along a list of values.
    Along {
        /// Values of the knob, ascending.
        values: Vec<f64>,
        /// Number of places for each action.
        steps: Vec<f64>,
    },
    /// A number from 0 to 1 sets the knob within its range, on a linear scale (probabilities) or a
    /// logarithmic one (limits).
    Share,
    /// The queue follows its own law and actions are ignored. This measures a classic queue in the
    /// same environment.
    None,
}

/// Definition of an environment, the same for all its episodes and for all environments of a
/// vector.
#[derive(Clone, Debug)]
pub struct Task {
    /// The scenario; its duration is the length of an episode.
    pub scenario: Arc<Scenario>,
    /// Queue words of the bottleneck, and of every hop that has an agent.
    pub queue: String,
    /// Whether every queue of the path has its own agent; otherwise only the bottleneck has one.
    pub path: bool,
    /// The knob that actions set.
    pub knob: Knob,
    /// Least and greatest value of the knob.
    pub bounds: (f64, f64),
    /// Value of the knob at the start of an episode.
    pub initial: f64,
    /// When actions are taken.
    pub cadence: Cadence,
    /// The possible actions.
    pub actions: Actions,
    /// Readings that form an observation if actions are periodic.
    pub observe: Vec<Reading>,
    /// Reward of the time between two actions.
    pub reward: Reward,
    /// Variations between episodes.
    pub vary: Randomization,
}

impl Task {
    /// Checks the task and completes its scenario.
    ///
    /// # Errors
    /// If its parts do not fit together.
    pub fn checked(mut self) -> Result<Self, Error> {
        let (low, high) = self.bounds;
        let allowed = match (self.knob, self.cadence) {
            (Knob::Limit, Cadence::Every(_)) => (1.0, f64::from(u32::MAX)),
            (Knob::Limit, Cadence::AtPackets) => (f64::from(LIMITS.0), f64::from(LIMITS.1)),
            (Knob::Drop | Knob::BaseProbability, _) => (0.0, 1.0),
        };
        if !(allowed.0 <= low && low < high && high <= allowed.1) {
            return Err(Error::new(format!("{low} to {high} are not bounds"))
                .remedy(format!(
                    "write two numbers from {} to {}",
                    allowed.0, allowed.1
                ))
                .key("bounds"));
        }
        if !(low..=high).contains(&self.initial) {
            let what = format!("{} is not between {low} and {high}", self.initial);
            return Err(Error::new(what).key("initial"));
        }
        if let Cadence::Every(period) = self.cadence
            && (period == Duration::ZERO || period > self.scenario.duration)
        {
            return Err(Error::new("not between 1 ns and the scenario's duration").key("period"));
        }
        match &self.actions {
            Actions::Steps(s) | Actions::Along { steps: s, .. }
                if s.len() < 2 || s.iter().any(|x| !x.is_finite()) =>
            {
                return Err(Error::new("fewer than two numbers").key("steps"));
            }
            Actions::Along { values, .. }
                if values.first() != Some(&low)
                    || values.last() != Some(&high)
                    || !values.is_sorted_by(|a, b| a < b) =>
            {
                return Err(Error::new("not ascending numbers from bound to bound").key("along"));
            }
            _ => {}
        }
        if self.observe.is_empty() {
            return Err(Error::new("is empty")
                .remedy("name a reading")
                .key("observe"));
        }
        if self.reward.is_signed() && self.knob != Knob::Limit {
            return Err(Error::new("learnqueue rewards changes of the limit")
                .remedy("use knob limit, or learnqueue published_reward")
                .key("reward"));
        }
        let scenario = Arc::make_mut(&mut self.scenario);
        // No record is read. With a warm-up without end there are no histograms per flow.
        scenario.warmup = Duration::MAX;
        if self.path {
            for hop in &mut scenario.hops {
                hop.queue.clone_from(&self.queue);
            }
        }
        match (self.cadence, &self.actions) {
            (Cadence::Every(_), Actions::None) => {
                self.world(self.scenario.clone(), 1)?;
            }
            (Cadence::Every(_), _) => self.check_knob()?,
            (Cadence::AtPackets, Actions::None) => {
                return Err(Error::new("LFQ's reward is that of its own queue")
                    .remedy("use another environment")
                    .key("knob"));
            }
            (Cadence::AtPackets, _) => self.check_packets()?,
        }
        Ok(self)
    }

    /// Checks a task whose actions are taken at packets.
    fn check_packets(&self) -> Result<(), Error> {
        if !matches!(self.reward, Reward::Lfq { .. }) {
            return Err(Error::new("a flow's limit has LFQ's reward only")
                .remedy("write lfq alpha 10")
                .key("reward"));
        }
        if self.path {
            return Err(Error::new("LFQ's queue has one agent")
                .remedy("use knob limit on a path")
                .key("knob"));
        }
        for scenario in self.vary.extremes(&self.scenario)? {
            self.world(Arc::new(scenario), 1)?;
        }
        Ok(())
    }

    /// A world that stops for the agents' actions.
    fn world(&self, scenario: Arc<Scenario>, seed: u64) -> Result<World, Error> {
        let mut world = World::builder(scenario)
            .queue(self.queue.as_str())
            .seed(seed)
            .build()?;
        match self.cadence {
            Cadence::Every(_) if self.actions == Actions::None => {}
            Cadence::Every(period) => {
                for queue in 0..self.agents() {
                    world.set_outside(queue, period)?;
                }
            }
            Cadence::AtPackets if world.ask_outside(0) => {}
            Cadence::AtPackets => {
                return Err(Error::new(format!(
                    "`{}` evaluates no network at packets",
                    self.queue
                ))
                .remedy("write lfq")
                .key("queue"));
            }
        }
        Ok(world)
    }

    /// Sets the knob of an idle queue and checks that it has changed.
    fn check_knob(&self) -> Result<(), Error> {
        for scenario in self.vary.extremes(&self.scenario)? {
            let mut world = World::builder(scenario)
                .queue(self.queue.as_str())
                .seed(1)
                .build()?;
            for value in [self.bounds.0, self.bounds.1] {
                let value = self.knob.snap(value);
                let set = world.set_knobs(0, None, &self.knob.knobs(value));
                // The value read may differ slightly: a discipline may store a probability as an
                // integer.
                if set.is_err() || (self.knob.read(&world.gauges(0)) - value).abs() > 1e-8 {
                    let what = format!("`{}` has no such knob", self.queue);
                    return Err(Error::new(what)
                        .remedy("fifo has limit and drop, dualpi2 has base_probability")
                        .key("knob"));
                }
            }
        }
        Ok(())
    }

    /// The value to which an action sets the knob, and the move.
    fn target(&self, knob: f64, action: f64) -> (f64, Move) {
        let (low, high) = self.bounds;
        let step = |steps: &[f64]| steps.get(num::whole_usize(action)).copied().unwrap_or(0.0);
        let target = match (&self.actions, self.knob) {
            (Actions::None, _) => knob,
            (Actions::Steps(steps), _) => knob + step(steps),
            (Actions::Along { values, steps }, _) => {
                let place = values.partition_point(|at| *at <= knob) as f64 - 1.0;
                let place = place + step(steps);
                match values.get(num::whole_usize(place)) {
                    Some(value) if place >= 0.0 => *value,
                    _ => f64::INFINITY.copysign(place),
                }
            }
            (Actions::Share, Knob::Drop | Knob::BaseProbability) => low + (high - low) * action,
            (Actions::Share, Knob::Limit) => low * libm::pow(high / low, action),
        };
        let moved = Move {
            direction: i8::from(target > knob) - i8::from(target < knob),
            bounded: !(low..=high).contains(&target),
        };
        (self.knob.snap(target.clamp(low, high)), moved)
    }

    /// Checks an action. Steps are chosen by their index.
    ///
    /// # Errors
    /// If it is out of range or not a number.
    pub fn check_action(&self, action: f64) -> Result<(), Error> {
        let (fine, remedy) = match &self.actions {
            Actions::None => return Ok(()),
            Actions::Steps(steps) | Actions::Along { steps, .. } => (
                (0.0..steps.len() as f64).contains(&action),
                format!("choose 0 to {}", steps.len() - 1),
            ),
            Actions::Share => (
                (0.0..=1.0).contains(&action),
                "choose a number from 0 to 1".into(),
            ),
        };
        match fine {
            true => Ok(()),
            false => Err(Error::new(format!("there is no action {action}")).remedy(remedy)),
        }
    }

    /// Number of agents in an environment: the bottleneck's first, then those of the hops in order.
    pub fn agents(&self) -> usize {
        match self.path {
            true => 1 + self.scenario.hops.len(),
            false => 1,
        }
    }

    /// Number of features in an observation.
    pub fn width(&self) -> usize {
        match self.cadence {
            Cadence::AtPackets => FEATURES,
            Cadence::Every(_) => self.observe.len(),
        }
    }

    /// Least and greatest value of each feature of an observation.
    pub fn ranges(&self) -> Vec<(f64, f64)> {
        if self.cadence == Cadence::AtPackets {
            return vec![(0.0, f64::from(MAX_FEATURE)); FEATURES];
        }
        let one = |r: &Reading| match r {
            Reading::Knob => self.bounds,
            r => (0.0, r.info().max),
        };
        self.observe.iter().map(one).collect()
    }
}

/// One environment: the current episode and its agents' last readings.
#[derive(Clone, Debug)]
pub struct Env {
    world: World,
    episodes: Rng,
    agents: Vec<Agent>,
    over: bool,
}

/// One agent: its knob and the last readings of its queue.
#[derive(Clone, Debug, Default)]
struct Agent {
    /// The sub-queue of its knob; `None`: the queue.
    sub_queue: Option<usize>,
    knob: f64,
    moved: Move,
    last: Gauges,
    readings: Readings,
    reward: f64,
}

impl Agent {
    /// Updates the readings and the reward from the queue's gauges at the time of the next action.
    #[inline]
    fn see(&mut self, task: &Task, overhead: u32, gauges: Gauges) {
        // In an outage the last rate is kept, so that the delay is the time in which the backlog
        // would have drained.
        let rate = match gauges.rate {
            Rate::ZERO => self.last.rate,
            rate => rate,
        };
        let gauges = Gauges { rate, ..gauges };
        self.readings = Readings::of(self.knob, &self.last, &gauges);
        self.reward = match task.cadence {
            Cadence::Every(_) => task.reward.of(&self.readings, self.moved),
            Cadence::AtPackets => task.reward.of_step(overhead, &self.last, &gauges),
        };
        self.last = gauges;
    }
}

impl Env {
    /// An environment at the start of its first episode.
    ///
    /// # Errors
    /// If the world cannot be built.
    pub fn new(task: &Task, seed: u64) -> Result<Self, Error> {
        let mut episodes = Rng::new(seed, "episodes");
        let world = new_world(task, &mut episodes)?;
        let mut env = Self {
            world,
            episodes,
            agents: vec![Agent::default(); task.agents()],
            over: false,
        };
        env.begin_episode(task)?;
        Ok(env)
    }

    /// Begins the next episode.
    ///
    /// # Errors
    /// If the world cannot be built.
    pub fn reset(&mut self, task: &Task) -> Result<(), Error> {
        self.world = new_world(task, &mut self.episodes)?;
        self.begin_episode(task)
    }

    fn begin_episode(&mut self, task: &Task) -> Result<(), Error> {
        self.over = false;
        for queue in 0..self.agents.len() {
            let knob = match (task.cadence, &task.actions) {
                (Cadence::Every(_), Actions::None) => task.knob.read(&self.world.gauges(queue)),
                (Cadence::Every(_), _) => task.knob.snap(task.initial),
                (Cadence::AtPackets, _) => f64::from(INITIAL),
            };
            if task.cadence != Cadence::AtPackets && task.actions != Actions::None {
                self.world.set_knobs(queue, None, &task.knob.knobs(knob))?;
            }
            let last = self.world.gauges(queue);
            self.agents[queue] = Agent {
                sub_queue: None,
                knob,
                moved: Move::default(),
                last,
                readings: Readings::of(knob, &last, &last),
                reward: 0.0,
            };
        }
        if task.cadence == Cadence::AtPackets {
            self.run_to_action(0);
        }
        Ok(())
    }

    /// Runs until agent `index` has to act, or to the end; returns the queue's gauges then.
    fn run_to_action(&mut self, index: usize) -> Gauges {
        match self.world.run_until(NEVER) {
            Status::Decide {
                queue,
                sub_queue,
                gauges,
            } => {
                debug_assert_eq!(queue, index);
                self.agents[index].sub_queue = sub_queue;
                gauges
            }
            Status::Done => {
                self.over = true;
                self.world.gauges(index)
            }
        }
    }

    /// Takes each agent's action, in order, and runs the world to the next decision. After the last
    /// step of an episode, actions are ignored and the next episode begins (Gymnasium's next-step
    /// autoreset).
    ///
    /// # Errors
    /// If a knob cannot be set, or the next episode's world cannot be built.
    pub fn step(&mut self, task: &Task, actions: &[f64]) -> Result<(), Error> {
        if self.over {
            return self.reset(task);
        }
        if let (Cadence::Every(period), Actions::None) = (task.cadence, &task.actions) {
            let until = self.world.now() + period;
            self.world.run_until(until);
            self.over = until >= Instant::ZERO + task.scenario.duration;
            for (queue, agent) in self.agents.iter_mut().enumerate() {
                let gauges = self.world.gauges(queue);
                agent.knob = task.knob.read(&gauges);
                agent.see(task, 0, gauges);
            }
            return Ok(());
        }
        for (queue, (agent, &action)) in self.agents.iter_mut().zip(actions).enumerate() {
            (agent.knob, agent.moved) = task.target(agent.knob, action);
            let knobs = task.knob.knobs(agent.knob);
            self.world.set_knobs(queue, agent.sub_queue, &knobs)?;
        }
        // Queues request their actions one after another, in order, at the same instant.
        for index in 0..self.agents.len() {
            let gauges = self.run_to_action(index);
            let overhead = self.world.overhead(index);
            self.agents[index].see(task, overhead, gauges);
        }
        Ok(())
    }

    /// Writes an agent's observation to `out`, in the task's order.
    pub fn observe(&self, task: &Task, agent: usize, out: &mut [f32]) {
        match task.cadence {
            Cadence::Every(_) => {
                for (out, reading) in out.iter_mut().zip(&task.observe) {
                    *out = num::single(self.agents[agent].readings.get(*reading));
                }
            }
            // At the end of the episode no packet waits, so `out` keeps the last observation.
            Cadence::AtPackets => {
                for (out, x) in out.iter_mut().zip(self.world.question(agent)) {
                    *out = x.min(MAX_FEATURE);
                }
            }
        }
    }

    /// All of an agent's readings of the last period.
    pub fn readings(&self, agent: usize) -> &Readings {
        &self.agents[agent].readings
    }

    /// An agent's reward for the last period; 0 at the start of an episode.
    pub fn reward(&self, agent: usize) -> f64 {
        self.agents[agent].reward
    }

    /// Whether the scenario has ended.
    pub fn over(&self) -> bool {
        self.over
    }

    /// The world of the current episode.
    pub fn world(&self) -> &World {
        &self.world
    }
}

/// A new world, with its seed and variations drawn from the environment's random stream.
fn new_world(task: &Task, episodes: &mut Rng) -> Result<World, Error> {
    let seed = episodes.u64() >> 11;
    let scenario = task.vary.draw(&task.scenario, episodes);
    task.world(scenario, seed)
}

#[cfg(test)]
mod tests;
