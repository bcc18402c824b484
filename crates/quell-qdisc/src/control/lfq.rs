//! LFQ's controller: at every tenth packet of a flow, a network sets the flow's limit (packets)
//! from 60 features of the flow's traffic.
//!
//! Source: the LFQ paper's §III and its authors' code (github
//! CN-TU/reinforcement-learning-for-per-flow-buffer-sizing). The features are exponentially
//! weighted moving averages of six quantities, each with ten weights: backlog, its standard
//! deviation, limit, arrival rate, departure rate, and time since the last loss. The limit is the
//! network's output, rounded and clamped to [`LIMITS`].
//!
//! Where the sources differ from each other, or this from them:
//! - The ten weights are 2^-5 to 2^-14, as in the code; the paper prints 2^-4 to 2^-13
//!   (`paper_weights`).
//! - A rate is 0 until arrivals and departures have both reached 1/weight packets, as in the code;
//!   the paper says n packets.
//! - At a flow's first packet the network is evaluated twice, as in the code: once because it is
//!   the first, once because it is due as a tenth one. This adds the first limit to its averages
//!   twice.
//! - The first gaps and the time since the last loss count from the flow's first packet. In the
//!   code they count from time 0, when its only flow starts.
//!
//! After [`Control::ask_outside`], an outside controller answers in place of the network.

pub mod learn;

use super::{Arrival, Control, Decision, Departure, Explanation, Loss, SubQueue};
use crate::num;
use crate::policy::{Activation, Affine, Card, Error, FORMAT, Head, Input, Policy, Scratch};
use crate::time::{Duration, Instant};
use crate::{ControlledKnobs, Gauges, KnobSet, Knobs, Rng};

/// Number of averages of each quantity, one per weight.
const WEIGHTS: usize = 10;
/// Number of the network's inputs.
pub const FEATURES: usize = 6 * WEIGHTS;
/// Smallest and largest limit that the network may set, packets.
pub const LIMITS: (u32, u32) = (1, 1000);
/// Limit of a flow before its first packet.
pub const INITIAL: u32 = 1;
/// Unit of backlogs and limits as features, packets.
const PACKETS: f64 = 100.0;
/// Unit of rates as features, packets per second.
const RATE: f64 = 10_000.0;
/// Weight of the latest gap in the average gap that [`Params::ceiling`] uses.
const SERVICE_WEIGHT: f64 = 1.0 / 32.0;
/// Smallest bound that [`Params::ceiling`] gives, packets.
const MIN_BOUND: u32 = 2;
/// Unit of times since a loss as features, seconds.
const SINCE_LOSS: f64 = 10.0;

/// Parameters of the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets of a flow between two decisions (default 10, at least 1).
    pub every: u32,
    /// Use the weights that the paper prints, 2^-4 to 2^-13 (default off).
    pub paper_weights: bool,
    /// A limit is at most the number of packets that the flow sends in this time, at its mean gap
    /// between departures while it has packets queued, or 2 packets if that is more (default 0: no
    /// bound, as published). In training every flow had 5 Mbit/s or more. Without a bound, a flow
    /// with a smaller share gets a limit that fits about 5 Mbit/s, and so a long delay.
    pub ceiling: Duration,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            every: 10,
            paper_weights: false,
            ceiling: Duration::ZERO,
        }
    }
}

impl Params {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.every == 0 {
            return Err("every must be at least 1 packet");
        }
        Ok(())
    }
}

/// Checks that a network fits this controller.
///
/// # Errors
/// If it does not have 60 inputs and one output.
pub fn check(policy: &Policy) -> Result<(), Error> {
    if policy.inputs() != FEATURES {
        return Err(Error::new(
            "lfq's network reads 60 numbers, a flow's features",
        ));
    }
    if policy.outputs() != 1 {
        return Err(Error::new(
            "lfq's network gives 1 number, a limit in packets",
        ));
    }
    Ok(())
}

/// The limit for a network's output: rounded and clamped to [`LIMITS`], packets.
#[inline]
pub fn limit_of(output: f32) -> u32 {
    // NaN gives the smallest limit.
    let limit = num::whole_u32(
        libm::roundf(output)
            .clamp(LIMITS.0 as f32, LIMITS.1 as f32)
            .into(),
    );
    limit.max(LIMITS.0)
}

/// The names of the network's inputs, in order. A name ends in the k of the average's weight 2^-k.
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

/// Builds a network with the paper's activations: three hidden layers with leaky ReLU, then a
/// linear output, the limit.
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

/// The state of one flow. Its averages and counters start at 0.
#[derive(Clone, Debug, Default, PartialEq)]
struct Flow {
    backlog: Averages,
    /// Averages of the squared difference between the backlog and its average.
    variance: Averages,
    limits: Averages,
    /// Averages of the gaps between arrivals, s.
    arrival_gap: Averages,
    /// Averages of the gaps between departures, s.
    departure_gap: Averages,
    since_loss: Averages,
    arrivals: u64,
    departures: u64,
    last_arrival: Instant,
    last_departure: Instant,
    last_loss: Instant,
    /// Arrivals until the next decision.
    countdown: u32,
    limit: u32,
    /// Mean gap between departures while packets of the flow are queued, s; 0 before the first.
    /// Only [`Params::ceiling`] uses this and the next field.
    service_gap: f64,
    /// Whether packets of the flow were still queued after the last departure.
    left_some: bool,
}

impl Flow {
    /// A flow whose first packet arrives at `now`.
    fn new(now: Instant) -> Self {
        Self {
            last_arrival: now,
            last_departure: now,
            last_loss: now,
            limit: INITIAL,
            ..Self::default()
        }
    }

    /// Accounts for a packet that arrives while `held` packets of the flow are queued.
    #[inline]
    fn see_arrival(&mut self, now: Instant, w: &Averages, held: u32) {
        if self.arrivals > 0 {
            // Whether the previous packet was lost is known only now.
            let since = seconds(self.last_arrival.saturating_since(self.last_loss)) / SINCE_LOSS;
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

/// An arrival for which a limit is being decided.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pending {
    flow: usize,
    /// Decisions still to be made for it: two for a flow's first packet, else one.
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
    /// The last limit that was set, packets.
    limit: u32,
    /// Whether the network's last output was NaN or infinite.
    broken: bool,
}

impl Lfq {
    /// Creates a controller whose limits `policy` sets.
    ///
    /// # Errors
    /// If the network has other numbers of inputs or outputs than this controller.
    pub fn new(params: Params, policy: Policy) -> Result<Self, Error> {
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

    /// Makes the remaining decisions for an arrival; returns [`Decision::Ask`] if an outside
    /// controller has to make the next one.
    fn resume(&mut self, mut pending: Pending) -> Decision {
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
            limit_packets: Some(self.flows[pending.flow].limit),
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

    /// Applies the bound of [`Params::ceiling`] to a limit.
    #[inline]
    fn bounded(&self, flow: &Flow, limit: u32) -> u32 {
        if self.params.ceiling == Duration::ZERO || flow.service_gap == 0.0 {
            return limit;
        }
        let sent = seconds(self.params.ceiling) / flow.service_gap;
        limit.min(num::whole_u32(sent).max(MIN_BOUND))
    }
}

impl Control for Lfq {
    /// Decisions are made only when packets arrive.
    fn period(&self) -> Duration {
        Duration::MAX
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
        self.resume(Pending {
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
        if self.params.ceiling > Duration::ZERO {
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

    fn knobs(&self) -> ControlledKnobs {
        ControlledKnobs::of_sub_queues(KnobSet::LIMIT)
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

    /// Clamps the limit to [`LIMITS`].
    fn answered(&mut self, _sub_queue: Option<usize>, knobs: &Knobs) -> Decision {
        let Some(mut pending) = self.pending.take() else {
            return Decision::Set(*knobs);
        };
        if let Some(limit) = knobs.limit_packets {
            self.set(pending.flow, limit.clamp(LIMITS.0, LIMITS.1));
        }
        pending.questions -= 1;
        self.resume(pending)
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

fn seconds(nanos: Duration) -> f64 {
    nanos.as_secs_f64()
}

/// Updates the ten exponentially weighted moving averages of a quantity with a new value.
#[inline(always)]
fn average(averages: &mut Averages, weights: &Averages, value: f64) {
    for (a, w) in averages.iter_mut().zip(weights) {
        *a = w * value + (1.0 - w) * *a;
    }
}

/// Computes the network's inputs from a flow's averages.
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
