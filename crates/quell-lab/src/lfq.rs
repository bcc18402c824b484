//! LFQ's experiments: the value of a limit that is one packet larger or smaller, measured in two
//! clones of a world.
//!
//! Source: the LFQ paper's §III.C and its authors' `rl.cc`. One flow with random bandwidth, round
//! trip, length and congestion control runs under the network. The network sets the limit at every
//! tenth packet; at the first of these after a random time, the limit goes up by one in one clone
//! and down by one in the other, and stays there to the end. The better side is the label. Online
//! there is no second clone: one side is taken at random. The link, the sender and the device queue
//! of one packet are those of the built-in scenario `lfq`.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use quell_link::error::Error;
use quell_link::words::Queue;
use quell_qdisc::control::lfq::{FEATURES, LIMITS, Params, limit_of};
use quell_qdisc::policy::Policy;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, SEC};
use quell_qdisc::{Gauges, Knobs, Rng, num};

use quell_sim::scenario::{Capacity, Cc, FlowKind, Overrides, Scenario};
use quell_sim::{Status, World};
use rayon::prelude::*;

/// Bytes that the reward charges for each queued packet: the segment size.
const PACKET: f64 = 1446.0;
/// A reward of 1 is this many bytes per second.
const REWARD: f64 = 1e6;
/// BIC's decrease factor in ns-3; the paper's text has 0.7.
const BIC_BETA: f64 = 0.8;
/// Flows whose inputs the network evaluates in one forward pass.
const BATCH: usize = 8;

/// Ranges of the random values, and parameters of the reward.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Weight of the delay in the reward, 1/s.
    pub alpha: f64,
    /// Whether one random side is run instead of both.
    pub online: bool,
    /// Mean length of a flow (5 s; the authors' online code: 10 s). Lengths are within 25 % of it.
    pub duration: Duration,
    /// The decision comes within this share of the flow's length (0.5; the authors' online code:
    /// 0.75).
    pub act_within: f64,
    /// The controller's parameters.
    pub control: Params,
}

impl Settings {
    /// The paper's settings for this alpha.
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

/// Randomly drawn values of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draws {
    /// Rate of the link: 5 to 25 Mbit/s.
    pub rate: Rate,
    /// Round trip without queues: 5 to 25 ms.
    pub rtt: Duration,
    /// Length of the flow.
    pub duration: Duration,
    /// The decision comes at the first tenth packet after this time.
    pub act_after: Instant,
    /// BIC; false: NewReno.
    pub bic: bool,
}

/// One side of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arm {
    /// Its limit, packets.
    pub limit: u32,
    /// Its reward.
    pub reward: f64,
    /// Rate at which packets left after the decision, 1e6 bytes/s.
    pub rate: f64,
    /// Mean number of packets queued.
    pub queued: f64,
    /// Mean time in the queue of the packets that left, s.
    pub delay: f64,
}

impl Arm {
    /// A side that was not run.
    fn unknown(limit: u32) -> Self {
        let [reward, rate, queued, delay] = [f64::NAN; 4];
        Self {
            limit,
            reward,
            rate,
            queued,
            delay,
        }
    }
}

/// Result of an experiment that reached its decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Time of the decision.
    pub at: Instant,
    /// The network's input at the decision.
    pub features: [f32; FEATURES],
    /// The limit before the decision, packets.
    pub before: u32,
    /// Offline: the lower and the upper side. Online: the side taken, then the other one, whose
    /// reward is NaN.
    pub sides: [Arm; 2],
    /// The better limit, or the larger one if both are equal; online the limit taken.
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

/// A flow up to the decision, at which its two sides diverge. The packet of the decision waits for
/// a limit.
#[derive(Clone, Debug)]
pub struct Fork {
    draws: Draws,
    /// The random side to take (true: up); `None`: both.
    drawn_side: Option<bool>,
    world: World,
    /// Number of questions that the network has answered.
    answered: u32,
    /// The decision; `None`: not yet reached, or the flow ended before it.
    decision: Option<Decision>,
}

/// A decision and the state at its time.
#[derive(Clone, Debug)]
struct Decision {
    sub_queue: Option<usize>,
    gauges: Gauges,
    features: [f32; FEATURES],
    /// The limit before the decision, and the two limits compared.
    before: u32,
    limits: (u32, u32),
}

/// Counters of one side from the decision to the end.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Packets that left the queue.
    packets: u64,
    /// Their bytes, with the link's overhead.
    bytes: u64,
    /// Packets queued, integrated over time, packet-nanoseconds.
    packet_ns: u128,
}

/// The two limits that an experiment compares, one below and one above `limit`, shifted into the
/// range of limits if necessary.
fn window(limit: u32) -> (u32, u32) {
    let low = limit.saturating_sub(1).clamp(LIMITS.0, LIMITS.1 - 2);
    (low, low + 2)
}

impl Lab {
    /// A lab in which the network `policy` sets the limits.
    ///
    /// # Errors
    /// If a setting is out of range or the network does not fit LFQ.
    pub fn new(settings: Settings, policy: Policy) -> Result<Self, Error> {
        settings.check()?;
        Ok(Self {
            queue: Queue::lfq(settings.control.clone(), policy.clone())?,
            settings,
            policy,
            base: base()?,
        })
    }

    /// The random values of seed `seed`.
    pub fn draw(&self, seed: u64) -> Draws {
        self.draws(&mut Rng::new(seed, "lfq experiment"))
    }

    fn draws(&self, rng: &mut Rng) -> Draws {
        let rate = Rate::from_bps_f64(libm::round(5e6 + 20e6 * rng.f64()));
        // An even number of ns, so that each direction gets half of it.
        let rtt = 2 * num::whole_u64(libm::round(2.5e6 + 10e6 * rng.f64()));
        let duration =
            num::whole_u64(self.settings.duration.as_nanos() as f64 * (0.75 + 0.5 * rng.f64()));
        let bic = rng.u64() >> 63 == 1;
        let act_after = num::whole_u64(self.settings.act_within * duration as f64 * rng.f64());
        Draws {
            rate,
            rtt: Duration::from_nanos(rtt),
            duration: Duration::from_nanos(duration),
            act_after: Instant::from_nanos(act_after),
            bic,
        }
    }

    /// The flow of seed `seed` at its start.
    ///
    /// # Errors
    /// If the world cannot be built.
    pub fn start(&self, seed: u64) -> Result<Fork, Error> {
        let mut rng = Rng::new(seed, "lfq experiment");
        let draws = self.draws(&mut rng);
        let drawn_side = self.settings.online.then(|| rng.u64() >> 63 == 1);
        let scenario = Arc::new(scenario(self.base, &draws));
        let mut world = World::builder(scenario)
            .queue(&self.queue)
            .seed(seed)
            .build()?;
        world.ask_outside(0);
        Ok(Fork {
            draws,
            drawn_side,
            world,
            answered: 0,
            decision: None,
        })
    }

    /// Runs the flow of each seed until its two sides diverge, and passes it to `ready` with the
    /// index of its seed.
    ///
    /// Eight flows run at a time, each to its next question, so that the network's weights are read
    /// once for all of them. A flow's result does not depend on the others.
    ///
    /// # Errors
    /// If a world cannot be built, or a limit cannot be set.
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
        let mut running: Vec<Running> = Vec::with_capacity(BATCH);
        let mut scratch = self.policy.scratch();
        let (mut questions, mut answers) = (Vec::new(), Vec::new());
        loop {
            let free = BATCH - running.len();
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
                if next.fork.advance(next.answer)? {
                    questions.extend_from_slice(next.fork.world.question(0));
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

    /// The outcome of a fork, given the results of [`Fork::side`], down and up; `None` if the flow
    /// ended without a decision.
    pub fn judge(&self, fork: &Fork, sides: [Option<Sent>; 2]) -> Option<Outcome> {
        let decision = fork.decision.as_ref()?;
        let overhead = u64::from(fork.world.overhead(0));
        let rest = Instant::ZERO + fork.draws.duration - decision.gauges.now;
        let ns = rest.max(Duration::from_nanos(1)).as_nanos() as f64;
        let side = |limit, sent: Sent| {
            let bytes = sent.bytes - overhead * sent.packets;
            let queued = sent.packet_ns as f64 / ns;
            let speed = bytes as f64 * (SEC.as_nanos() as f64 / ns);
            Arm {
                limit,
                reward: (speed - self.settings.alpha * queued * PACKET) / REWARD,
                rate: speed / REWARD,
                queued,
                // Little's law.
                delay: sent.packet_ns as f64 / (sent.packets.max(1) as f64 * SEC.as_nanos() as f64),
            }
        };
        let (low, high) = decision.limits;
        let (sides, label) = match sides {
            [Some(down), Some(up)] => {
                let sides = [side(low, down), side(high, up)];
                let better = usize::from(sides[1].reward >= sides[0].reward);
                (sides, sides[better].limit)
            }
            [Some(down), None] => ([side(low, down), Arm::unknown(high)], low),
            [None, Some(up)] => ([side(high, up), Arm::unknown(low)], high),
            [None, None] => return None,
        };
        Some(Outcome {
            at: decision.gauges.now,
            features: decision.features,
            before: decision.before,
            sides,
            label,
        })
    }

    /// Runs the experiments of a range of seeds on this thread.
    ///
    /// # Errors
    /// If a world cannot be built, or a limit cannot be set.
    pub fn experiments(&self, seeds: Range<u64>) -> Result<Vec<(Draws, Option<Outcome>)>, Error> {
        let mut out: Vec<_> = seeds.clone().map(|s| (self.draw(s), None)).collect();
        let mut failed = None;
        self.advance(seeds, |place, fork| match fork.sides() {
            Ok(sides) => out[place].1 = self.judge(&fork, sides),
            Err(error) => failed = Some(error),
        })?;
        failed.map_or(Ok(out), Err)
    }

    /// Runs experiments on all threads of the current pool. Each thread runs a share of the flows
    /// to their decisions; sides are run by any idle thread.
    ///
    /// # Errors
    /// If a world cannot be built, or a limit cannot be set.
    pub fn experiments_in_parallel(
        &self,
        seeds: &[u64],
    ) -> Result<Vec<(Draws, Option<Outcome>)>, Error> {
        let draws: Vec<Draws> = seeds.iter().map(|&seed| self.draw(seed)).collect();
        let outcomes: Vec<OnceLock<Outcome>> = seeds.iter().map(|_| OnceLock::new()).collect();
        let failed = OnceLock::new();
        // The longest flows come first and are distributed in turn, so that threads finish at about
        // the same time.
        let mut order: Vec<usize> = (0..seeds.len()).collect();
        let length = |d: &Draws| u128::from(d.act_after.as_nanos()) * u128::from(d.rate.bps());
        order.sort_by_key(|&i| Reverse(length(&draws[i])));
        let threads = rayon::current_num_threads();
        (0..threads)
            .into_par_iter()
            .with_max_len(1)
            .try_for_each(|first| {
                let share: Vec<usize> =
                    order.iter().skip(first).step_by(threads).copied().collect();
                rayon::scope(|scope| {
                    self.advance(share.iter().map(|&i| seeds[i]), |k, fork| {
                        let (outcome, failed) = (&outcomes[share[k]], &failed);
                        scope.spawn(move |_| match fork.sides_in_parallel() {
                            Ok(sides) => {
                                if let Some(judged) = self.judge(&fork, sides) {
                                    let _ = outcome.set(judged);
                                }
                            }
                            Err(error) => {
                                let _ = failed.set(error);
                            }
                        });
                    })
                })
            })?;
        match failed.into_inner() {
            Some(error) => Err(error),
            None => {
                let outcomes = outcomes.into_iter().map(OnceLock::into_inner);
                Ok(draws.into_iter().zip(outcomes).collect())
            }
        }
    }
}

impl Fork {
    /// The flow's random values.
    pub fn draws(&self) -> &Draws {
        &self.draws
    }

    /// Applies the network's answer and runs to the next question. Returns false at the decision of
    /// the experiment or at the flow's end.
    fn advance(&mut self, answer: Option<u32>) -> Result<bool, Error> {
        if let (Some(limit), Status::Decide { sub_queue, .. }) = (answer, self.run()) {
            self.world.set_knobs(0, sub_queue, &limited(limit))?;
            self.answered += 1;
        }
        let Status::Decide {
            sub_queue, gauges, ..
        } = self.run()
        else {
            return Ok(false);
        };
        // The first packet raises two questions, the first of which does not belong to a tenth
        // packet.
        if self.answered == 0 || gauges.now <= self.draws.act_after {
            return Ok(true);
        }
        let mut subs = self.world.sub_gauges(0);
        let before = sub_queue.and_then(|sub| subs.nth(sub));
        let before = before.map_or(LIMITS.0, |g| g.limit_packets);
        drop(subs);
        let mut features = [0.0; FEATURES];
        features.copy_from_slice(self.world.question(0));
        self.decision = Some(Decision {
            sub_queue,
            gauges,
            features,
            before,
            limits: window(before),
        });
        Ok(false)
    }

    fn run(&mut self) -> Status {
        self.world.run_until(Instant::ZERO + self.draws.duration)
    }

    /// Runs both sides, down and up.
    fn sides(&self) -> Result<[Option<Sent>; 2], Error> {
        Ok([self.side(false)?, self.side(true)?])
    }

    fn sides_in_parallel(&self) -> Result<[Option<Sent>; 2], Error> {
        let (down, up) = rayon::join(|| self.side(false), || self.side(true));
        Ok([down?, up?])
    }

    /// Runs one side to the end, with the upper or the lower limit. `None` if the other side was
    /// drawn, or there was no decision.
    ///
    /// # Errors
    /// If the limit cannot be set.
    pub fn side(&self, up: bool) -> Result<Option<Sent>, Error> {
        let Some(decision) = &self.decision else {
            return Ok(None);
        };
        if self.drawn_side.is_some_and(|side| side != up) {
            return Ok(None);
        }
        let mut world = self.world.clone();
        // The limit is constant from here on.
        world.release(0);
        let (low, high) = decision.limits;
        let limit = limited(if up { high } else { low });
        world.set_knobs(0, decision.sub_queue, &limit)?;
        while world.run_until(Instant::ZERO + self.draws.duration) != Status::Done {}
        let (before, after) = (&decision.gauges, world.gauges(0));
        Ok(Some(Sent {
            packets: after.departures - before.departures,
            bytes: after.departed_bytes - before.departed_bytes,
            packet_ns: after.backlog_ns - before.backlog_ns,
        }))
    }
}

fn limited(packets: u32) -> Knobs {
    Knobs {
        limit_packets: Some(packets),
        ..Knobs::KEEP
    }
}

/// The built-in scenario, read once.
fn base() -> Result<&'static Scenario, Error> {
    static BASE: OnceLock<Result<Scenario, Error>> = OnceLock::new();
    let load = || {
        let mut base = Scenario::load(Some("lfq"), &Overrides::default())?;
        // No record is read, so the warm-up never ends.
        base.warmup = Duration::MAX;
        Ok(base)
    };
    BASE.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn scenario(base: &Scenario, draws: &Draws) -> Scenario {
    let mut scenario = base.clone();
    scenario.duration = draws.duration;
    scenario.link.rate = Capacity::Constant(draws.rate);
    scenario.link.delay = draws.rtt / 2;
    for flow in &mut scenario.flows {
        flow.rtt = draws.rtt;
        if let FlowKind::Tcp(tcp) = &mut flow.kind {
            tcp.cc = if draws.bic {
                Cc::BicNs3 { beta: BIC_BETA }
            } else {
                Cc::NewReno
            };
        }
    }
    scenario
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_two_wide_and_stay_in_range() {
        for (limit, expected) in [
            (1, (1, 3)),
            (2, (1, 3)),
            (3, (2, 4)),
            (500, (499, 501)),
            (999, (998, 1000)),
            (1000, (998, 1000)),
        ] {
            assert_eq!(window(limit), expected);
        }
    }
}
