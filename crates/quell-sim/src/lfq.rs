//! LFQ's experiments: what a limit of one packet more or less is worth, told by two clones of one world.
//!
//! Source: the LFQ paper's §III.C and its authors' `rl.cc`. One flow of drawn bandwidth, round trip, length and congestion control
//! runs under the network. At the first tenth packet after a drawn time its limit goes one up in one clone and one down in the
//! other, and stays there to the end; the better side is the label. Online there is no second clone: one side by chance.
//! The link, the sender and the device queue of one packet are those of the built-in scenario `lfq`.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use quell_link::error::Error;
use quell_link::words::Queue;
use quell_qdisc::control::lfq::{Experiment, FEATURES, Params, limit_of};
use quell_qdisc::policy::Policy;
use quell_qdisc::{NEVER, Nanos, Rng, SEC};

use crate::scenario::{Cc, FlowKind, Overrides, Rate, Scenario};
use crate::world::{Status, World};

/// Bytes that the reward charges for each queued packet: the segment size.
const PACKET: f64 = 1446.0;
/// A reward of 1 is this many bytes per second.
const REWARD: f64 = 1e6;
/// BIC's decrease in ns-3, where the paper's text has 0.7.
const BIC_BETA: f64 = 0.8;
/// Flows whose questions to the network are answered at once: as many rows as a forward pass takes.
const TOGETHER: usize = 8;

/// What is drawn, and how a reward is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Weight of the delay in the reward, 1/s.
    pub alpha: f64,
    /// One side by chance, instead of both.
    pub online: bool,
    /// Mean length of a flow (5 s; the authors' online code: 10 s). Lengths differ by a quarter of it at most.
    pub duration: Nanos,
    /// The decision comes within this share of a flow's length (0.5; the authors' online code: 0.75).
    pub act_within: f64,
    /// The controller's parameters.
    pub control: Params,
}

impl Settings {
    /// As the paper has them, for this alpha.
    pub fn new(alpha: f64) -> Self {
        Self {
            alpha,
            online: false,
            duration: 5 * SEC,
            act_within: 0.5,
            control: Params::default(),
        }
    }

    fn check(&self) -> Result<(), Error> {
        if !(self.alpha >= 0.0 && self.alpha.is_finite()) {
            return Err(Error::new("not a number from 0 on").key("alpha"));
        }
        if !(SEC / 10..=1000 * SEC).contains(&self.duration) {
            return Err(Error::new("not between 0.1 s and 1000 s").key("duration"));
        }
        if !(self.act_within > 0.0 && self.act_within <= 1.0) {
            return Err(Error::new("not above 0 and at most 1").key("act_within"));
        }
        Ok(())
    }
}

/// One flow's circumstances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draws {
    /// Rate of the link, bit/s: 5 to 25 Mbit/s.
    pub rate_bps: u64,
    /// Round trip without queues: 5 to 25 ms.
    pub rtt: Nanos,
    /// Length of the flow.
    pub duration: Nanos,
    /// The decision comes at the first tenth packet after this.
    pub act_after: Nanos,
    /// BIC, not NewReno.
    pub bic: bool,
}

/// One side of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// The limit it held, packets.
    pub limit: u32,
    /// What that was worth.
    pub reward: f64,
}

/// An experiment that came to its decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When.
    pub at: Nanos,
    /// What the network would have read.
    pub features: [f32; FEATURES],
    /// The limit before.
    pub before: u32,
    /// Offline the lower and the upper side; online the side taken, and the other one with a reward that is not a number.
    pub sides: [Side; 2],
    /// The limit that turned out better, the larger of equals; online the limit taken.
    pub label: u32,
}

/// Experiments under one network.
#[derive(Clone, Debug)]
pub struct Lab {
    settings: Settings,
    policy: Policy,
    queue: Queue,
    base: &'static Scenario,
}

/// A flow up to the point where its sides part.
#[derive(Clone, Debug)]
pub struct Fork {
    draws: Draws,
    /// The side to take, where it is one by chance.
    chance: Option<bool>,
    world: World,
}

impl Lab {
    /// Asks `policy` for limits.
    ///
    /// # Errors
    /// If a setting is out of range or the network is not one for LFQ.
    pub fn new(settings: Settings, policy: Policy) -> Result<Self, Error> {
        settings.check()?;
        Ok(Self {
            queue: Queue::lfq(settings.control.clone(), policy.clone())?,
            settings,
            policy,
            base: base()?,
        })
    }

    /// What seed `seed` draws.
    pub fn draw(&self, seed: u64) -> Draws {
        self.draws(&mut Rng::new(seed, "lfq experiment"))
    }

    fn draws(&self, rng: &mut Rng) -> Draws {
        let rate_bps = libm::round(5e6 + 20e6 * rng.f64()) as u64;
        // Even, so that half of it is the delay of a direction.
        let rtt = 2 * libm::round(2.5e6 + 10e6 * rng.f64()) as Nanos;
        let duration = (self.settings.duration as f64 * (0.75 + 0.5 * rng.f64())) as Nanos;
        let bic = rng.u64() >> 63 == 1;
        let act_after = (self.settings.act_within * duration as f64 * rng.f64()) as Nanos;
        Draws {
            rate_bps,
            rtt,
            duration,
            act_after,
            bic,
        }
    }

    /// The flow of seed `seed` at its start.
    pub fn start(&self, seed: u64) -> Result<Fork, Error> {
        let mut rng = Rng::new(seed, "lfq experiment");
        let draws = self.draws(&mut rng);
        let chance = self.settings.online.then(|| rng.u64() >> 63 == 1);
        let scenario = Arc::new(scenario(self.base, &draws));
        let mut world = World::with_queue(scenario, &self.queue, seed, None)?;
        if let Some(lfq) = world.net.ports[0].lfq_mut() {
            lfq.ask_outside(true);
        }
        Ok(Fork {
            draws,
            chance,
            world,
        })
    }

    /// Runs the flows of some seeds to where their sides part, and hands each to `ready` with its place among them.
    ///
    /// Eight go on from question to question, so that the network's weights are read once for all of them. What comes of a flow
    /// does not depend on the others.
    pub fn advance(
        &self,
        seeds: impl IntoIterator<Item = u64>,
        mut ready: impl FnMut(usize, Fork),
    ) -> Result<(), Error> {
        struct Running {
            place: usize,
            fork: Fork,
            answer: Option<u32>,
        }
        let mut seeds = seeds.into_iter().enumerate();
        let mut running: Vec<Running> = Vec::with_capacity(TOGETHER);
        let mut scratch = self.policy.scratch();
        let (mut questions, mut answers) = (Vec::new(), Vec::new());
        loop {
            let free = TOGETHER - running.len();
            for (place, seed) in seeds.by_ref().take(free) {
                running.push(Running {
                    place,
                    fork: self.start(seed)?,
                    answer: None,
                });
            }
            if running.is_empty() {
                return Ok(());
            }
            questions.clear();
            let mut k = 0;
            while let Some(next) = running.get_mut(k) {
                if let Some(question) = next.fork.go_on(next.answer) {
                    questions.extend(question);
                    k += 1;
                } else {
                    let done = running.swap_remove(k);
                    ready(done.place, done.fork);
                }
            }
            answers.resize(running.len(), 0.0);
            self.policy
                .forward_batch(&questions, &mut scratch, &mut answers);
            for (asked, output) in running.iter_mut().zip(&answers) {
                asked.answer = Some(limit_of(*output));
            }
        }
    }

    /// What came of a fork's sides, each run by [`Fork::side`]; None if the flow ended without a decision.
    pub fn judge(&self, fork: &Fork, mut sides: [Option<World>; 2]) -> Option<Outcome> {
        let end = fork.draws.duration;
        let [low, high] = sides.each_mut().map(|side| {
            let port = &mut side.as_mut()?.net.ports[0];
            let overhead = u64::from(port.overhead);
            let decision = port.lfq_mut()?.decision(end)?;
            let bytes = decision.bytes - overhead * decision.packets;
            let ns = (end - decision.at).max(1) as f64;
            let queued = decision.packet_ns as f64 / ns;
            let speed = bytes as f64 * (SEC as f64 / ns);
            let reward = (speed - self.settings.alpha * queued * PACKET) / REWARD;
            Some((decision.clone(), reward))
        });
        let of = |limit, reward| Side { limit, reward };
        let (decision, sides, label) = match (low, high) {
            (Some((d, low)), Some((_, high))) => {
                let sides = [of(d.limits.0, low), of(d.limits.1, high)];
                let better = sides[usize::from(high >= low)].limit;
                (d, sides, better)
            }
            (Some((d, reward)), None) | (None, Some((d, reward))) => {
                let sides = [of(d.limits.0, reward), of(d.limits.1, f64::NAN)];
                let taken = sides[0].limit;
                (d, sides, taken)
            }
            (None, None) => return None,
        };
        Some(Outcome {
            at: decision.at,
            features: decision.features,
            before: decision.before,
            sides,
            label,
        })
    }

    /// The experiments of some seeds, on this thread.
    pub fn experiments(&self, seeds: Range<u64>) -> Result<Vec<(Draws, Option<Outcome>)>, Error> {
        let mut out: Vec<_> = seeds.clone().map(|s| (self.draw(s), None)).collect();
        self.advance(seeds, |place, fork| {
            let sides = [fork.side(false), fork.side(true)];
            out[place].1 = self.judge(&fork, sides);
        })?;
        Ok(out)
    }
}

impl Fork {
    /// What was drawn.
    pub fn draws(&self) -> &Draws {
        &self.draws
    }

    /// Runs on, with an answer to what was asked, to the next question to the network; None where the sides part.
    fn go_on(&mut self, answer: Option<u32>) -> Option<[f32; FEATURES]> {
        if let Some(limit) = answer {
            let now = self.world.now();
            self.world.net.ports[0].answer(now, limit);
        }
        self.world.run_to_question(self.draws.act_after)
    }

    /// Runs one side to the end: the limit up by one, or down. None if chance took the other side.
    pub fn side(&self, up: bool) -> Option<World> {
        if self.chance.is_some_and(|side| side != up) {
            return None;
        }
        let mut world = self.world.clone();
        let lfq = world.net.ports[0].lfq_mut()?;
        lfq.ask_outside(false);
        lfq.set_experiment(Experiment {
            after: self.draws.act_after,
            up,
            decision: None,
        });
        run(&mut world, self.draws.duration);
        Some(world)
    }
}

fn run(world: &mut World, until: Nanos) {
    while world.run_until(until) != Status::Done {}
}

/// The built-in scenario, read once.
fn base() -> Result<&'static Scenario, Error> {
    static BASE: OnceLock<Result<Scenario, Error>> = OnceLock::new();
    let load = || {
        let mut base = Scenario::load(Some("lfq"), &Overrides::default())?;
        // Nobody reads a record.
        base.warmup = NEVER;
        Ok(base)
    };
    BASE.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn scenario(base: &Scenario, draws: &Draws) -> Scenario {
    let mut scenario = base.clone();
    scenario.duration = draws.duration;
    scenario.link.rate = Rate::Constant(draws.rate_bps);
    scenario.link.delay = draws.rtt / 2;
    for flow in &mut scenario.flows {
        flow.rtt = draws.rtt;
        if let FlowKind::Tcp(tcp) = &mut flow.kind {
            tcp.cc = if draws.bic {
                Cc::Bic { beta: BIC_BETA }
            } else {
                Cc::NewReno
            };
        }
    }
    scenario
}
