//! LFQ's queue as an environment: at each tenth packet of a flow the learner sees what LFQ's network would read, and sets the
//! flow's limit.
//!
//! The packet that raised the question waits for the answer at the same instant, so that a learner which answers as a network
//! would makes the run of the queue word `lfq` with that network. As in LFQ's code the first packet of a flow asks twice.

use std::sync::{Arc, OnceLock};

use quell_link::Error;
use quell_link::words::Queue;
use quell_qdisc::control::lfq::{FEATURES, INITIAL, Params, policy};
use quell_qdisc::policy::Affine;
use quell_qdisc::{NEVER, SEC};

use super::{Reward, Task};
use crate::scenario::Scenario;
use crate::world::World;

/// No feature is shown greater.
pub(super) const MOST: f32 = 1e6;
/// Bytes that LFQ's reward charges for each queued packet, and bytes in its unit.
const PACKET: f64 = 1446.0;
const UNIT: f64 = 1e6;

/// What was seen last.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub features: [f32; FEATURES],
    limit: u32,
    bytes: u64,
    packet_ns: u128,
}

/// What a step came to.
pub(super) struct Worth {
    pub reward: f64,
    pub over: bool,
}

/// What is wrong with such a task, if anything.
pub(super) fn check(task: &Task) -> Result<(), Error> {
    if !matches!(task.reward, Reward::Lfq { .. }) {
        return Err(Error::new("a flow's limit has LFQ's reward only")
            .remedy("write lfq alpha 10")
            .key("reward"));
    }
    if task.path {
        return Err(Error::new("LFQ's queue has one agent")
            .remedy("use knob limit on a path")
            .key("knob"));
    }
    for scenario in task.vary.extremes(&task.scenario)? {
        begin(Arc::new(scenario), 1)?;
    }
    Ok(())
}

/// A world whose bottleneck asks outside.
pub(super) fn begin(scenario: Arc<Scenario>, seed: u64) -> Result<World, Error> {
    static QUEUE: OnceLock<Result<Queue, Error>> = OnceLock::new();
    let queue = QUEUE.get_or_init(|| {
        // Nobody asks this network.
        let widths = [FEATURES, 1, 1, 1, 1];
        let layer = |w: &[usize]| Affine {
            weight: vec![0.0; w[0] * w[1]],
            bias: vec![0.0; w[1]],
        };
        let layers: Vec<Affine> = widths.windows(2).map(layer).collect();
        let control = Params::default();
        let silent = policy(&control, &layers).map_err(|e| Error::new(e.to_string()))?;
        Queue::lfq(control, silent)
    });
    let queue = queue.as_ref().map_err(Clone::clone)?;
    let mut world = World::with_queue(scenario, queue, seed, None)?;
    if let Some(lfq) = world.net.ports[0].lfq_mut() {
        lfq.ask_outside(true);
    }
    Ok(world)
}

impl Flow {
    /// Runs to the first question.
    pub fn open(world: &mut World) -> Self {
        let mut flow = Self {
            features: [0.0; FEATURES],
            limit: INITIAL,
            bytes: 0,
            packet_ns: 0,
        };
        flow.go_on(world);
        flow
    }

    /// The limit that was set last.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets the limit and runs on to the next question, or to the end. The reward is the paper's (section III) times the
    /// step's length, so that an episode's sum is what the paper's formula says of the whole, times its length: megabytes
    /// that left less alpha times the packet-seconds queued times 1446 bytes.
    pub fn step(&mut self, world: &mut World, limit: u32, reward: &Reward) -> Worth {
        self.limit = limit;
        let now = world.now;
        world.net.ports[0].answer(now, limit);
        let over = self.go_on(world);
        let now = world.now;
        let port = &mut world.net.ports[0];
        port.probe.settle(now);
        let counters = &port.probe.counters;
        let bytes = counters.departed_bytes - u64::from(port.overhead) * counters.departures;
        let packet_ns = port.probe.packet_ns();
        let sent = (bytes - self.bytes) as f64;
        let queued = (packet_ns - self.packet_ns) as f64 / SEC as f64;
        (self.bytes, self.packet_ns) = (bytes, packet_ns);
        let alpha = match reward {
            Reward::Lfq { alpha } => *alpha,
            _ => 0.0,
        };
        Worth {
            reward: (sent - alpha * queued * PACKET) / UNIT,
            over,
        }
    }

    /// Runs to the next question; true at the scenario's end.
    fn go_on(&mut self, world: &mut World) -> bool {
        match world.run_to_question(NEVER) {
            Some(question) => {
                self.features = question.map(|x| x.min(MOST));
                false
            }
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use quell_qdisc::Rng;
    use quell_qdisc::control::lfq::LIMITS;
    use quell_qdisc::policy::Policy;

    use super::*;
    use crate::scenario::Overrides;
    use crate::world::Status;

    /// A network 60-16-16-16-1 of random weights, whose limits wander around 20 packets.
    fn network(seed: u64) -> Policy {
        let mut rng = Rng::new(seed, "weights");
        let layer = |w: &[usize]| {
            let mut draw = |n| (0..n).map(|_| (2.0 * rng.f64() - 1.0) as f32).collect();
            Affine {
                weight: draw(w[0] * w[1]),
                bias: draw(w[1]),
            }
        };
        let mut layers: Vec<Affine> = [FEATURES, 16, 16, 16, 1].windows(2).map(layer).collect();
        layers[0].weight.iter_mut().for_each(|w| *w *= 10.0);
        layers[3].weight.iter_mut().for_each(|w| *w *= 8.0);
        layers[3].bias[0] += 20.0;
        policy(&Params::default(), &layers).unwrap()
    }

    fn scenario() -> Arc<Scenario> {
        let mut scenario = Scenario::load(Some("lfq"), &Overrides::default()).unwrap();
        scenario.warmup = NEVER;
        Arc::new(scenario)
    }

    #[test]
    fn answers_of_a_network_from_outside_make_the_run_of_that_network_inside() {
        let mut moves = 0;
        for seed in 1..=5 {
            let net = network(seed);
            let queue = Queue::lfq(Params::default(), net.clone()).unwrap();
            let mut inside = World::with_queue(scenario(), &queue, seed, None).unwrap();
            while inside.run_until(NEVER) != Status::Done {}

            let mut outside = begin(scenario(), seed).unwrap();
            let mut flow = Flow::open(&mut outside);
            let mut scratch = net.scratch();
            let (mut limits, mut total) = (Vec::new(), 0.0);
            loop {
                let output = net.forward(&flow.features, &mut scratch)[0];
                let limit = libm::roundf(output).clamp(LIMITS.0 as f32, LIMITS.1 as f32) as u32;
                limits.push(limit);
                let worth = flow.step(&mut outside, limit, &Reward::Lfq { alpha: 10.0 });
                total += worth.reward;
                if worth.over {
                    break;
                }
            }
            assert_eq!(outside.trace_hash(), inside.trace_hash(), "seed {seed}");
            // A question per ten arrivals, and one more for the first packet.
            let arrivals = inside.gauges(0).arrivals;
            assert_eq!(limits.len() as u64, arrivals.div_ceil(10) + 1);
            limits.dedup();
            moves += limits.len();
            let sent = inside.gauges(0);
            let megabytes = (sent.departed_bytes - 2 * sent.departures) as f64 / 1e6;
            assert!(total < megabytes, "{total} {megabytes}");
        }
        assert!(moves > 20, "networks move the limit: {moves}");
    }
}
