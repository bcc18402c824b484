//! LFQ's controller: a network sets a flow's limit at each tenth packet, from 60 features of that flow's traffic.
//!
//! Source: the LFQ paper's §III and its authors' code (github CN-TU/reinforcement-learning-for-per-flow-buffer-sizing). The
//! features are moving averages, each with ten weights: backlog, its deviation, limit, arrival and departure rate, time since
//! the last loss. The network's output, rounded, is the limit.
//!
//! Where sources differ:
//! - The ten weights are 2^-5 to 2^-14, as in the code; the paper prints 2^-4 to 2^-13 (`paper_weights`).
//! - A rate is 0 until the fewer of arrivals and departures reach 1/weight, as in the code; the paper says n packets.
//! - The first packet asks the network twice, as in the code (as the first ever, and as a tenth one): the averages of the
//!   limit differ.
//! - First gaps, and the time since the last loss, run from the flow's first packet; in the code from time 0, when the one flow
//!   that it has starts.
//!
//! An outside controller may answer instead of the network, after [`Control::ask_outside`].

use super::{Arrival, Control, Decision, Departure, Explanation, Loss, SubQueue};
use crate::num;
use crate::policy::{Activation, Affine, Card, Error, FORMAT, Head, Input, Policy, Scratch};
use crate::{Gauges, KnobSet, Knobs, NEVER, Nanos, Rng, SEC};

/// Weights of each average.
const WEIGHTS: usize = 10;
/// Numbers that the network reads.
pub const FEATURES: usize = 6 * WEIGHTS;
/// Least and greatest limit that the network may set, packets.
pub const LIMITS: (u32, u32) = (1, 1000);
/// Limit of a flow before its first packet.
pub const INITIAL: u32 = 1;
/// Backlogs and limits are counted in this many packets.
const PACKETS: f64 = 100.0;
/// Rates in this many packets per second.
const RATE: f64 = 10_000.0;
/// Weight of the latest gap in the average that `ceiling` goes by.
const SERVICE_WEIGHT: f64 = 1.0 / 32.0;
/// Packets that `ceiling` leaves to every flow.
const MIN_BOUND: u32 = 2;
/// Times since a loss in this many seconds.
const SINCE_LOSS: f64 = 10.0;

/// Parameters of the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets of a flow between two decisions (default 10, at least 1).
    pub every: u32,
    /// The weights that the paper prints: 2^-4 to 2^-13 (default off).
    pub paper_weights: bool,
    /// A limit is at most what its flow sends in this time while it has packets waiting, at least 2 packets (default 0: no such
    /// bound, as published). The network learned from flows with 5 Mbit/s and more for themselves; a flow whose share is less
    /// gets a limit for about 5 Mbit/s, which is a long wait.
    pub ceiling: Nanos,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            every: 10,
            paper_weights: false,
            ceiling: 0,
        }
    }
}

impl Params {
    /// What is wrong with these parameters, if anything.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.every == 0 {
            return Err("every must be at least 1 packet");
        }
        Ok(())
    }
}

/// What is wrong with a network for this controller, if anything.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(policy: &Policy) -> Result<(), &'static str> {
    if policy.inputs() != FEATURES {
        return Err("lfq's network reads 60 numbers, a flow's features");
    }
    if policy.outputs() != 1 {
        return Err("lfq's network gives 1 number, a limit in packets");
    }
    Ok(())
}

/// The limit that a network's output means.
#[inline]
pub fn limit_of(output: f32) -> u32 {
    // NaN becomes the least limit.
    let limit = num::whole_u32(
        libm::roundf(output)
            .clamp(LIMITS.0 as f32, LIMITS.1 as f32)
            .into(),
    );
    limit.max(LIMITS.0)
}

/// The names of the network's inputs, in order; the number at the end is the average's weight as a negative power of two.
pub fn features(params: &Params) -> Vec<String> {
    let first = first_power(params);
    let kinds = [
        "backlog_100p",
        "backlog_deviation_100p",
        "limit_100p",
        "arrivals_10000ps",
        "departures_10000ps",
        "since_loss_10s",
    ];
    let powers = first..first + num::count(WEIGHTS).cast_signed();
    kinds
        .iter()
        .flat_map(|kind| powers.clone().map(move |power| format!("{kind}_{power}")))
        .collect()
}

/// A network with the paper's activations from its layers: three hidden ones with leaky ReLU, then the limit.
///
/// # Errors
/// If the layers do not fit together or hold a number that is not finite.
pub fn policy(params: &Params, layers: &[Affine]) -> Result<Policy, Error> {
    let input = |name| Input {
        name,
        offset: 0.0,
        scale: 1.0,
    };
    let card = Card {
        format: FORMAT,
        name: "lfq".into(),
        what: "LFQ in training".into(),
        inputs: features(params).into_iter().map(input).collect(),
        hidden: vec![Activation::LeakyRelu; 3],
        heads: vec![Head {
            name: "limit".into(),
            activation: Activation::Linear,
            outputs: vec!["packets".into()],
        }],
        trained_on: String::new(),
        seed: 0,
        quell: env!("CARGO_PKG_VERSION").into(),
        results: Default::default(),
        origin: None,
    };
    Policy::new(card, layers)
}

fn first_power(params: &Params) -> i32 {
    if params.paper_weights { 4 } else { 5 }
}

type Averages = [f64; WEIGHTS];

/// What is remembered of one flow. 60 averages and a few counters, all 0 before the first packet.
#[derive(Clone, Debug, Default, PartialEq)]
struct Flow {
    backlog: Averages,
    /// Squared distances from the mean.
    variance: Averages,
    limits: Averages,
    /// Seconds between arrivals, and between departures.
    arrival_gap: Averages,
    departure_gap: Averages,
    since_loss: Averages,
    arrivals: u64,
    departures: u64,
    last_arrival: Nanos,
    last_departure: Nanos,
    last_loss: Nanos,
    /// Arrivals until the network is asked again.
    countdown: u32,
    limit: u32,
    /// Seconds between departures while packets wait, and whether the last departure left one: for `ceiling` alone.
    service_gap: f64,
    left_some: bool,
}

impl Flow {
    /// A flow whose first packet comes now.
    fn new(now: Nanos) -> Self {
        Self {
            last_arrival: now,
            last_departure: now,
            last_loss: now,
            limit: INITIAL,
            ..Self::default()
        }
    }

    /// A packet comes while `held` others wait.
    #[inline]
    fn see_arrival(&mut self, now: Nanos, w: &Averages, held: u32) {
        if self.arrivals > 0 {
            // What became of the packet before is known only now.
            let since = seconds(self.last_arrival.saturating_sub(self.last_loss)) / SINCE_LOSS;
            average(&mut self.since_loss, w, since);
        }
        let held = f64::from(held) / PACKETS;
        self.arrivals += 1;
        average(&mut self.backlog, w, held);
        let means = self.backlog.iter().zip(w);
        for (variance, (mean, w)) in self.variance.iter_mut().zip(means) {
            let off = mean - held;
            *variance = w * (off * off) + (1.0 - w) * *variance;
        }
        let gap = seconds(now - self.last_arrival);
        self.last_arrival = now;
        average(&mut self.arrival_gap, w, gap);
    }
}

/// A packet whose limit is being decided.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pending {
    flow: usize,
    /// Questions that are still to be asked for it: the first packet of a flow asks twice.
    questions: u32,
}

/// The controller of all flows of a queue.
#[derive(Clone, Debug)]
pub struct Lfq {
    params: Params,
    policy: Policy,
    scratch: Scratch,
    weights: Averages,
    inputs: [f32; FEATURES],
    flows: Vec<Flow>,
    outside: bool,
    pending: Option<Pending>,
    /// The limit that was decided last, and whether the network's answer was no number.
    limit: u32,
    broken: bool,
}

impl Lfq {
    /// Asks `policy`.
    ///
    /// # Errors
    /// If the network does not read and give what this controller needs.
    pub fn new(params: Params, policy: Policy) -> Result<Self, &'static str> {
        check(&policy)?;
        let first = first_power(&params);
        Ok(Self {
            scratch: policy.scratch(),
            policy,
            weights: std::array::from_fn(|i| {
                libm::ldexp(1.0, -(first + num::count(i).cast_signed()))
            }),
            params,
            inputs: [0.0; FEATURES],
            flows: Vec::new(),
            outside: false,
            pending: None,
            limit: INITIAL,
            broken: false,
        })
    }

    /// Continues with the decisions of a packet until one has to be made outside, or none is left.
    fn go_on(&mut self, mut pending: Pending) -> Decision {
        while pending.questions > 0 {
            read(&self.weights, &self.flows[pending.flow], &mut self.inputs);
            if self.outside {
                self.pending = Some(pending);
                return Decision::Ask;
            }
            let output = self.policy.forward(&self.inputs, &mut self.scratch)[0];
            self.broken = !output.is_finite();
            self.set(pending.flow, limit_of(output));
            pending.questions -= 1;
        }
        Decision::Set(Knobs {
            limit_packets: Some(self.limit),
            ..Knobs::KEEP
        })
    }

    fn set(&mut self, flow: usize, limit: u32) {
        let limit = self.bounded(&self.flows[flow], limit);
        let flow = &mut self.flows[flow];
        flow.limit = limit;
        average(&mut flow.limits, &self.weights, f64::from(limit) / PACKETS);
        self.limit = limit;
    }

    /// No more than `ceiling` allows.
    #[inline]
    fn bounded(&self, flow: &Flow, limit: u32) -> u32 {
        if self.params.ceiling == 0 || flow.service_gap == 0.0 {
            return limit;
        }
        let sent = seconds(self.params.ceiling) / flow.service_gap;
        limit.min(num::whole_u32(sent).max(MIN_BOUND))
    }
}

impl Control for Lfq {
    /// It decides on packets alone.
    fn period(&self) -> Nanos {
        NEVER
    }

    fn decide(&mut self, _gauges: &Gauges, _subs: &mut [SubQueue], _rng: &mut Rng) -> Knobs {
        Knobs::KEEP
    }

    fn watches_packets(&self) -> bool {
        true
    }

    #[inline]
    fn on_arrival(&mut self, arrival: &Arrival) -> Decision {
        let index = arrival.sub_queue.unwrap_or(0);
        if index >= self.flows.len() {
            self.flows.resize_with(index + 1, Flow::default);
        }
        let flow = &mut self.flows[index];
        if arrival.fresh {
            *flow = Flow::new(arrival.now);
        }
        flow.see_arrival(arrival.now, &self.weights, arrival.held);
        let mut questions = u32::from(flow.arrivals == 1);
        if flow.countdown == 0 {
            flow.countdown = self.params.every;
            questions += 1;
        }
        flow.countdown -= 1;
        if questions == 0 {
            return Decision::KEEP;
        }
        self.go_on(Pending {
            flow: index,
            questions,
        })
    }

    #[inline]
    fn on_departure(&mut self, departure: &Departure) {
        let Some(flow) = self.flows.get_mut(departure.sub_queue.unwrap_or(0)) else {
            return;
        };
        flow.departures += 1;
        let gap = seconds(departure.now - flow.last_departure);
        flow.last_departure = departure.now;
        average(&mut flow.departure_gap, &self.weights, gap);
        if self.params.ceiling > 0 {
            if flow.left_some {
                let first = flow.service_gap == 0.0;
                let weight = if first { 1.0 } else { SERVICE_WEIGHT };
                flow.service_gap += weight * (gap - flow.service_gap);
            }
            flow.left_some = departure.held > 1;
        }
    }

    #[inline]
    fn on_drop(&mut self, loss: &Loss) {
        if let Some(flow) = self.flows.get_mut(loss.sub_queue.unwrap_or(0)) {
            flow.last_loss = loss.now;
        }
    }

    fn knobs(&self) -> (KnobSet, KnobSet) {
        (KnobSet::NONE, KnobSet::LIMIT)
    }

    fn ask_outside(&mut self) -> bool {
        self.outside = true;
        true
    }

    fn question(&self) -> &[f32] {
        match self.pending {
            Some(_) => &self.inputs,
            None => &[],
        }
    }

    /// A limit outside of [`LIMITS`] is brought into it.
    fn answered(&mut self, _sub_queue: Option<usize>, knobs: &Knobs) -> Decision {
        let Some(mut pending) = self.pending.take() else {
            return Decision::Set(*knobs);
        };
        if let Some(limit) = knobs.limit_packets {
            self.set(pending.flow, limit.clamp(LIMITS.0, LIMITS.1));
        }
        pending.questions -= 1;
        self.go_on(pending)
    }

    fn is_broken(&self) -> bool {
        self.broken
    }

    fn explain(&self) -> Option<Explanation<'_>> {
        Some(Explanation {
            inputs: &self.inputs,
            action: self.limit as f32,
        })
    }
}

fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / SEC as f64
}

/// Ten exponentially weighted moving averages of the same value.
#[inline(always)]
fn average(averages: &mut Averages, weights: &Averages, value: f64) {
    for (a, w) in averages.iter_mut().zip(weights) {
        *a = w * value + (1.0 - w) * *a;
    }
}

/// The network's inputs.
#[inline]
fn read(weights: &Averages, flow: &Flow, out: &mut [f32; FEATURES]) {
    let packets = flow.arrivals.min(flow.departures) as f64;
    let rate = |gap: f64, weight: f64| {
        if gap == 0.0 || 1.0 / weight > packets {
            return 0.0;
        }
        1.0 / gap / RATE
    };
    for (i, &w) in weights.iter().enumerate() {
        out[i] = num::single(flow.backlog[i]);
        out[10 + i] = num::single(libm::sqrt(flow.variance[i]));
        out[20 + i] = num::single(flow.limits[i]);
        out[30 + i] = num::single(rate(flow.arrival_gap[i], w));
        out[40 + i] = num::single(rate(flow.departure_gap[i], w));
        out[50 + i] = num::single(flow.since_loss[i]);
    }
}

#[cfg(test)]
pub(crate) mod tests;
