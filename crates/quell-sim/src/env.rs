//! A queue as an environment for learners: a world that stops every period, shows readings, takes an action that turns one
//! knob, and says what the period was worth. Where every queue of a path has an agent, each gets its own of all three.
//!
//! An [`Env`] runs episode after episode, each a world of its own whose seed and variations are drawn from the environment's
//! seed, so that equal seeds and actions give equal trajectories however many environments run beside. The first reading is
//! that of the empty queue at time 0; a scenario of 120 s with a period of 20 ms has 6000 steps.

mod flow;
mod reward;
mod vary;

use std::sync::Arc;

use quell_link::Error;
use quell_qdisc::control::lfq::{FEATURES, LIMITS};
use quell_qdisc::{Gauges, Knobs, NEVER, Nanos, Rng};

pub use reward::{READINGS, Reading, ReadingInfo, Readings, Reward};
pub use vary::Vary;

use flow::Flow;

use crate::scenario::Scenario;
use crate::world::{Status, World};

/// Sums of steps of 0.01 come back to exactly 0: probabilities are whole millionths.
const MILLION: f64 = 1e6;

/// What an action turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// The limit, packets.
    Limit,
    /// The probability of dropping each arrival.
    Drop,
    /// The base probability p' of coupled queues.
    BaseProbability,
    /// The limit of the flow whose tenth packet arrives, in LFQ's fair queue. There are no periods then, and an observation
    /// is what LFQ's network reads.
    FlowLimit,
}

impl Knob {
    /// By its name.
    pub fn parse(name: &str) -> Result<Self, Error> {
        match name {
            "limit" => Ok(Knob::Limit),
            "drop" => Ok(Knob::Drop),
            "base_probability" => Ok(Knob::BaseProbability),
            "flow_limit" => Ok(Knob::FlowLimit),
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
            Knob::Limit | Knob::FlowLimit => libm::round(value),
            Knob::Drop | Knob::BaseProbability => libm::round(value * MILLION) / MILLION,
        }
    }

    fn knobs(self, value: f64) -> Knobs {
        match self {
            Knob::Limit | Knob::FlowLimit => Knobs {
                limit_packets: Some(value as u32),
                ..Knobs::default()
            },
            Knob::Drop => Knobs {
                drop: Some(value),
                ..Knobs::default()
            },
            Knob::BaseProbability => Knobs {
                base_probability: Some(value),
                ..Knobs::default()
            },
        }
    }

    fn read(self, g: &Gauges) -> f64 {
        match self {
            Knob::Limit | Knob::FlowLimit => f64::from(g.limit_packets),
            Knob::Drop | Knob::BaseProbability => g.probability,
        }
    }
}

/// What actions there are.
#[derive(Clone, Debug, PartialEq)]
pub enum Actions {
    /// Action k adds the k-th number to the knob.
    Steps(Vec<f64>),
    /// A number from 0 to 1 sets the knob: between the ends of its range in proportion (probabilities), or by equal
    /// factors (limits).
    Share,
}

/// What an environment is: the same for all its episodes, and for all environments of a vector.
#[derive(Clone, Debug)]
pub struct Task {
    /// Where the queue is; its duration is an episode's length.
    pub scenario: Arc<Scenario>,
    /// Queue words of the bottleneck, and of every hop that has an agent.
    pub queue: String,
    /// Every queue of the path has an agent of its own; else the bottleneck alone.
    pub path: bool,
    /// What actions turn.
    pub knob: Knob,
    /// Least and greatest value of the knob.
    pub bounds: (f64, f64),
    /// The knob when an episode begins.
    pub initial: f64,
    /// Between two decisions.
    pub period: Nanos,
    /// What actions there are.
    pub actions: Actions,
    /// What an observation is made of.
    pub observe: Vec<Reading>,
    /// What a period is worth.
    pub reward: Reward,
    /// What differs between episodes.
    pub vary: Vary,
}

impl Task {
    /// The task, if there can be such an environment.
    pub fn checked(mut self) -> Result<Self, Error> {
        let (low, high) = self.bounds;
        let least = match self.knob {
            Knob::Limit => (1.0, f64::from(u32::MAX)),
            Knob::FlowLimit => (f64::from(LIMITS.0), f64::from(LIMITS.1)),
            Knob::Drop | Knob::BaseProbability => (0.0, 1.0),
        };
        if !(least.0 <= low && low < high && high <= least.1) {
            return Err(Error::new(format!("{low} to {high} are no bounds"))
                .remedy(format!("write two numbers from {} to {}", least.0, least.1))
                .key("bounds"));
        }
        if !(low..=high).contains(&self.initial) {
            let what = format!("{} is not between {low} and {high}", self.initial);
            return Err(Error::new(what).key("initial"));
        }
        if self.period == 0 || self.period > self.scenario.duration {
            return Err(Error::new("not between 1 ns and the scenario's duration").key("period"));
        }
        match &self.actions {
            Actions::Steps(s) if s.len() < 2 || s.iter().any(|x| !x.is_finite()) => {
                return Err(Error::new("fewer than two numbers").key("steps"));
            }
            _ => {}
        }
        if self.observe.is_empty() {
            return Err(Error::new("nothing to see")
                .remedy("name a reading")
                .key("observe"));
        }
        let scenario = Arc::make_mut(&mut self.scenario);
        // Nobody reads a record: histograms per flow need not be kept.
        scenario.warmup = NEVER;
        if self.path {
            for hop in &mut scenario.hops {
                hop.queue.clone_from(&self.queue);
            }
        }
        match self.knob {
            Knob::FlowLimit => flow::check(&self)?,
            _ => self.check_knob()?,
        }
        Ok(self)
    }

    /// Turns the knob of an idle queue and looks whether it moved.
    fn check_knob(&self) -> Result<(), Error> {
        for scenario in self.vary.extremes(&self.scenario)? {
            let mut world = World::new(Arc::new(scenario), &self.queue, 1, None)?;
            for value in [self.bounds.0, self.bounds.1] {
                let value = self.knob.snap(value);
                world.set_knobs(0, &self.knob.knobs(value));
                // A discipline may keep a probability as a whole number of its own fine steps.
                if (self.knob.read(&world.gauges(0)) - value).abs() > 1e-8 {
                    let what = format!("`{}` has no such knob", self.queue);
                    return Err(Error::new(what)
                        .remedy("fifo has limit and drop, dualpi2 has base_probability")
                        .key("knob"));
                }
            }
        }
        Ok(())
    }

    /// Where an action puts the knob.
    fn aim(&self, knob: f64, action: f64) -> f64 {
        let (low, high) = self.bounds;
        let aim = match (&self.actions, self.knob) {
            (Actions::Steps(steps), _) => knob + steps.get(action as usize).unwrap_or(&0.0),
            (Actions::Share, Knob::Drop | Knob::BaseProbability) => low + (high - low) * action,
            (Actions::Share, Knob::Limit | Knob::FlowLimit) => low * libm::pow(high / low, action),
        };
        self.knob.snap(aim.clamp(low, high))
    }

    /// What is wrong with an action, if anything. Steps are chosen by their index.
    pub fn check_action(&self, action: f64) -> Result<(), Error> {
        let (fine, remedy) = match &self.actions {
            Actions::Steps(steps) => (
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

    /// How many agents an environment has: the first is the bottleneck's, then the hops' in order.
    pub fn agents(&self) -> usize {
        match self.path {
            true => 1 + self.scenario.hops.len(),
            false => 1,
        }
    }

    /// Numbers in an observation.
    pub fn width(&self) -> usize {
        match self.knob {
            Knob::FlowLimit => FEATURES,
            _ => self.observe.len(),
        }
    }

    /// Least and greatest value of every part of an observation.
    pub fn ranges(&self) -> Vec<(f64, f64)> {
        if self.knob == Knob::FlowLimit {
            return vec![(0.0, f64::from(flow::MOST)); FEATURES];
        }
        let one = |r: &Reading| match r {
            Reading::Knob => self.bounds,
            r => (0.0, r.info().most),
        };
        self.observe.iter().map(one).collect()
    }
}

/// One environment: the episode that runs, and what its agents saw of it last.
#[derive(Clone, Debug)]
pub struct Env {
    world: World,
    episodes: Rng,
    agents: Vec<Agent>,
    /// Where the knob is a flow's limit.
    flow: Option<Box<Flow>>,
    over: bool,
}

/// One queue's knob, and what was seen of it.
#[derive(Clone, Debug, Default)]
struct Agent {
    knob: f64,
    last: Gauges,
    readings: Readings,
    reward: f64,
}

impl Agent {
    /// Takes in what the queue shows at a period's end.
    #[inline]
    fn see(&mut self, task: &Task, gauges: Gauges) {
        // In an outage the last rate stays: the delay then says how long the backlog would have taken.
        let rate_bps = match gauges.rate_bps {
            0 => self.last.rate_bps,
            rate => rate,
        };
        let gauges = Gauges { rate_bps, ..gauges };
        self.readings = Readings::of(self.knob, &self.last, &gauges);
        self.reward = task.reward.of(&self.readings);
        self.last = gauges;
    }
}

impl Env {
    /// At the start of its first episode.
    pub fn new(task: &Task, seed: u64) -> Result<Self, Error> {
        let mut episodes = Rng::new(seed, "episodes");
        let world = begin(task, &mut episodes)?;
        let mut env = Self {
            world,
            episodes,
            agents: vec![Agent::default(); task.agents()],
            flow: None,
            over: false,
        };
        env.open(task);
        Ok(env)
    }

    /// Begins the next episode.
    pub fn reset(&mut self, task: &Task) -> Result<(), Error> {
        self.world = begin(task, &mut self.episodes)?;
        self.open(task);
        Ok(())
    }

    fn open(&mut self, task: &Task) {
        if task.knob == Knob::FlowLimit {
            self.agents[0] = Agent::default();
            self.flow = Some(Box::new(Flow::open(&mut self.world)));
            self.over = false;
            return;
        }
        let knob = task.knob.snap(task.initial);
        for (queue, agent) in self.agents.iter_mut().enumerate() {
            self.world.set_knobs(queue, &task.knob.knobs(knob));
            let last = self.world.gauges(queue);
            *agent = Agent {
                knob,
                last,
                readings: Readings::of(knob, &last, &last),
                reward: 0.0,
            };
        }
        self.over = false;
    }

    /// Every agent acts, in order, and the world runs on to the next decision. After the last step of an episode actions are
    /// ignored and the next episode begins (Gymnasium's next-step autoreset).
    pub fn step(&mut self, task: &Task, actions: &[f64]) -> Result<(), Error> {
        if self.over {
            return self.reset(task);
        }
        if let Some(flow) = &mut self.flow {
            let agent = &mut self.agents[0];
            agent.knob = task.aim(f64::from(flow.limit()), actions[0]);
            let worth = flow.step(&mut self.world, agent.knob as u32, &task.reward);
            self.over = worth.over;
            agent.reward = worth.reward;
            let gauges = self.world.gauges(0);
            agent.readings = Readings::of(agent.knob, &agent.last, &gauges);
            agent.last = gauges;
            return Ok(());
        }
        for (queue, (agent, &action)) in self.agents.iter_mut().zip(actions).enumerate() {
            agent.knob = task.aim(agent.knob, action);
            self.world.set_knobs(queue, &task.knob.knobs(agent.knob));
        }
        // Queues ask one after the other, in order, at the same instant.
        for (index, agent) in self.agents.iter_mut().enumerate() {
            let gauges = match self.world.run_until(NEVER) {
                Status::Decide { gauges, queue } => {
                    debug_assert_eq!(queue, index);
                    gauges
                }
                Status::Done => {
                    self.over = true;
                    self.world.gauges(index)
                }
            };
            agent.see(task, gauges);
        }
        Ok(())
    }

    /// What an agent sees, in the task's order.
    pub fn observe(&self, task: &Task, agent: usize, out: &mut [f32]) {
        if let Some(flow) = &self.flow {
            return out.copy_from_slice(&flow.features);
        }
        for (out, reading) in out.iter_mut().zip(&task.observe) {
            *out = self.agents[agent].readings.get(*reading) as f32;
        }
    }

    /// Everything that an agent can read of the period that just ended.
    pub fn readings(&self, agent: usize) -> &Readings {
        &self.agents[agent].readings
    }

    /// What that period was worth to an agent; 0 at an episode's start.
    pub fn reward(&self, agent: usize) -> f64 {
        self.agents[agent].reward
    }

    /// The scenario's end is reached.
    pub fn over(&self) -> bool {
        self.over
    }

    /// The world that runs.
    pub fn world(&self) -> &World {
        &self.world
    }
}

/// A fresh world, and its variations, out of the environment's stream.
fn begin(task: &Task, episodes: &mut Rng) -> Result<World, Error> {
    let seed = episodes.u64() >> 11;
    let scenario = task.vary.draw(&task.scenario, episodes);
    if task.knob == Knob::FlowLimit {
        return flow::begin(scenario, seed);
    }
    let mut world = World::new(scenario, &task.queue, seed, None)?;
    for queue in 0..task.agents() {
        world.set_external(queue, task.period);
    }
    Ok(world)
}

#[cfg(test)]
mod tests;
