//! Reveals every change of a controller's decisions: compares what each sets on the same line under
//! the same load with `data/recorded_control.csv`. Times, rates and delays lie on a grid, so that
//! controllers often compare equal values.
//!
//! A row has the knobs at the end of a part, a hash of all decisions, and a hash of the other state
//! that the controller shows.

use crate::record;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::Digest;
use quell_qdisc::control::{
    Arrival, Control, Decision, Delay, Departure, Echo, Explanation, Loss, SubQueue, a3c,
    cake_autorate, fixed, guard, law, learnqueue, lfq, outside, pace, pie, rlaqm, sqm_autorate,
    wqm,
};
use quell_qdisc::policy::{Activation, Affine, Card, FORMAT, Head, Input, Policy};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS, SEC};
use quell_qdisc::{ControlledKnobs, Gauges, KnobSet, Knobs, LawGauges, Rng, SubGauges};

const STEP: Duration = Duration::from_millis(5);
const PARTS: u32 = 4;
const STEPS: u32 = 3000;
const SUBS: usize = 4;
const PACKET: u64 = 1000;

fn of<T: Copy>(draw: &mut Rng, from: &[T]) -> T {
    from[draw.below(from.len() as u64) as usize]
}

/// A line with a modem. The controlled queue with its shaper is in front of the modem.
struct Line {
    draw: Rng,
    now: Instant,
    /// Rate of the line; 0 in an outage.
    rate: Rate,
    /// Rate of the packets that are offered.
    load: Rate,
    /// Additional delay of the path.
    extra: Duration,
    /// Whether there are outages and long delays.
    rough: bool,
    /// Whether probes are answered.
    probes: bool,
    /// Whether the traffic's own segments show delays.
    segments: bool,
    /// Bytes in the modem.
    modem: u64,
    /// The knobs set last.
    knobs: Knobs,
    gauges: Gauges,
    subs: [SubGauges; SUBS],
    held: [u32; SUBS],
}

impl Line {
    fn new() -> Self {
        Self {
            draw: Rng::new(1, "line"),
            now: Instant::ZERO,
            rate: Rate::from_mbit(10),
            load: Rate::ZERO,
            extra: Duration::ZERO,
            rough: false,
            probes: true,
            segments: false,
            modem: 0,
            knobs: Knobs::KEEP,
            gauges: Gauges {
                share: 1.0,
                ..Gauges::default()
            },
            subs: [SubGauges::default(); SUBS],
            held: [0; SUBS],
        }
    }

    fn set(&mut self, knobs: &Knobs) {
        let was = self.knobs;
        self.knobs = Knobs {
            limit_packets: knobs.limit_packets.or(was.limit_packets),
            drop: knobs.drop.filter(|p| p.is_finite()).or(was.drop),
            base_probability: knobs.base_probability.or(was.base_probability),
            rate: knobs.rate.or(was.rate),
            release: knobs.release,
        };
    }

    /// Draws new conditions of line, path and load.
    fn change(&mut self) {
        let draw = &mut self.draw;
        let (rates, extras): (&[u64], &[u64]) = match self.rough {
            true => (&[0, 1, 4, 10, 20, 50], &[0, 0, 0, 5, 15, 30, 60, 300]),
            false => (&[8, 10, 20, 50], &[0, 0, 0, 0, 5, 15]),
        };
        self.rate = Rate::from_mbit(of(draw, rates));
        self.extra = MS * of(draw, extras);
        self.load = Rate::from_mbit(of(draw, &[0, 2, 8, 10, 12, 40]));
        self.probes = draw.below(4) > 0;
        self.segments = draw.below(3) > 0;
        self.gauges.share = of(draw, &[1.0, 1.0, 0.5, 0.25, 0.01]);
    }

    fn step(&mut self) {
        self.now += STEP;
        if self.draw.below(400) == 0 {
            self.change();
        }
        let bytes = |rate: Rate| rate.bytes_per_sec() * STEP / SEC;
        let g = &mut self.gauges;
        g.now = self.now;
        g.rate = self.knobs.rate.unwrap_or(self.rate);
        let offered = bytes(self.load) / PACKET;
        let early = (offered as f64 * self.knobs.drop.unwrap_or(0.0)) as u64;
        let limit = u64::from(self.knobs.limit_packets.unwrap_or(100));
        let queued = u64::from(g.backlog_packets) + offered - early;
        let overflow = queued.saturating_sub(limit);
        let queued = queued - overflow;
        let sent = queued.min(bytes(g.rate) / PACKET);
        let left = queued - sent;
        g.arrivals += offered;
        g.drops_early += early;
        g.drops_overflow += overflow;
        g.dropped_bytes += (early + overflow) * PACKET;
        g.departures += sent;
        g.departed_bytes += sent * PACKET;
        g.backlog_packets = left as u32;
        g.backlog_bytes = left * PACKET;
        g.limit_packets = limit as u32;
        g.probability = self.knobs.drop.unwrap_or(0.0);
        g.head_age = match (left, g.rate.bps()) {
            (0, _) => Duration::ZERO,
            (_, 0) => g.head_age + STEP,
            (_, rate) => (left * PACKET * 8 * 1000 / rate) * MS,
        };
        if sent > 0 {
            g.sojourn = g.head_age;
        }
        self.modem += sent * PACKET;
        self.modem = self.modem.saturating_sub(bytes(self.rate)).min(200_000);
        for (i, sub) in self.subs.iter_mut().enumerate() {
            let of_sub = offered.saturating_sub(i as u64 * 3);
            sub.backlog_packets = left as u32 >> i;
            sub.backlog_bytes = PACKET * u64::from(sub.backlog_packets);
            sub.arrivals += of_sub;
            sub.arrived_bytes += PACKET * of_sub;
            sub.drops += overflow.min(of_sub);
            sub.head_age = g.head_age / (1 << i);
            sub.probability = 0.1 * i as f64;
            sub.low_latency = i % 2 == 1;
            sub.law = LawGauges {
                burst_allowance: if g.head_age == Duration::ZERO {
                    150 * MS
                } else {
                    Duration::ZERO
                },
                delay: g.head_age,
                delay_old: sub.law.delay,
                accumulated: 0.25 * i as f64,
                since: Instant::from_secs(1),
            };
        }
    }

    /// Round trip of an answer that arrives now, in steps of half a millisecond.
    fn round_trip(&self) -> Duration {
        let queue = self
            .rate
            .max(Rate::from_kbit(100))
            .transmission_time(self.modem);
        20 * MS + self.extra + queue.min(2 * SEC) / (MS / 2) * (MS / 2)
    }
}

/// A controller and what drives it.
struct Bed {
    control: Box<dyn Control>,
    line: Line,
    rng: Rng,
    /// Whether some readings are wrong, for guards to notice.
    hostile: bool,
    clock: Option<Arc<AtomicU64>>,
    knobs: Digest,
    rest: Digest,
}

impl Bed {
    fn set(&mut self, knobs: Knobs) {
        self.knobs.note(&knobs);
        self.line.set(&knobs);
    }

    /// Makes some readings impossible or old.
    fn spoil(&mut self, gauges: &mut Gauges) {
        let last = *gauges;
        match self.line.draw.below(1500) {
            0 => gauges.probability = f64::NAN,
            1 => gauges.share = 1.5,
            2 => gauges.backlog_bytes = (u64::from(last.backlog_packets) << 16) + 1,
            3 => gauges.backlog_bytes = u64::from(last.backlog_packets) << 16,
            4 => gauges.sojourn = 600 * SEC + Duration::from_nanos(1),
            5 => gauges.sojourn = 600 * SEC,
            6 => gauges.head_age = 600 * SEC + Duration::from_nanos(1),
            7 => gauges.now -= 25 * MS,
            8 => gauges.arrivals = last.departures.saturating_sub(1),
            9 => gauges.marks += 1,
            10 => gauges.now += 601 * SEC,
            _ => (),
        }
    }

    fn decide(&mut self) {
        let mut gauges = self.line.gauges;
        if self.hostile {
            self.spoil(&mut gauges);
        }
        let mut subs = Vec::new();
        if self.control.reads_sub_queues() {
            let sub = |gauges| SubQueue {
                gauges,
                knobs: Knobs::KEEP,
            };
            subs.extend(self.line.subs.map(sub));
        }
        let knobs = self.control.decide(&gauges, &mut subs, &mut self.rng);
        for sub in &subs {
            self.knobs.note(&sub.knobs);
        }
        self.set(knobs);
    }

    /// A packet arrives at a sub-queue, leaves one, or is dropped.
    fn packet(&mut self) {
        let (now, draw) = (self.line.now, &mut self.line.draw);
        let sub = draw.below(SUBS as u64) as usize;
        let sub_queue = (sub > 0).then_some(sub);
        let held = self.line.held[sub];
        match draw.below(9) {
            0..5 => {
                let fresh = draw.below(50) == 0 || held == 0 && draw.below(10) == 0;
                let len = of(draw, &[100, 1000, 1514]);
                let arrival = Arrival {
                    now,
                    sub_queue,
                    fresh,
                    held,
                    len,
                };
                let mut decision = self.control.on_arrival(&arrival);
                while decision == Decision::Ask {
                    self.knobs.note(&self.control.question());
                    let limit_packets = Some(of(&mut self.line.draw, &[0, 1, 40, 1000, 1001]));
                    let answer = Knobs {
                        limit_packets,
                        ..Knobs::KEEP
                    };
                    decision = self.control.answered(sub_queue, &answer);
                }
                self.knobs.note(&decision);
                self.line.held[sub] += 1;
            }
            5..8 if held > 0 => {
                let sojourn = self.line.gauges.sojourn;
                let departure = Departure {
                    now,
                    sub_queue,
                    held,
                    len: 1000,
                    sojourn,
                };
                self.control.on_departure(&departure);
                self.line.held[sub] -= 1;
            }
            8 if held > 0 => {
                self.control.on_drop(&Loss { now, sub_queue });
                self.line.held[sub] -= 1;
            }
            _ => (),
        }
    }

    fn answers(&mut self, step: u32) {
        let line = &self.line;
        let (gauges, round_trip) = (line.gauges, line.round_trip());
        if line.probes && step.is_multiple_of(10) {
            let reflector = step / 10 % 4;
            let probe = Echo {
                now: line.now,
                reflector,
                round_trip,
                one_way: (reflector > 1).then_some(round_trip / 2),
            };
            let knobs = self.control.on_probe(&probe, &gauges);
            self.set(knobs);
        }
        if self.line.segments && self.control.uses_delay() && step.is_multiple_of(6) {
            let over = round_trip - 20 * MS;
            let delay = Delay {
                source: u64::from(step / 6 % 2),
                up: over,
                down: over / 2,
                base_decrease: if step.is_multiple_of(60) {
                    2 * MS
                } else {
                    Duration::ZERO
                },
                by_direction: true,
            };
            let knobs = self.control.on_delay(&delay, &gauges);
            self.set(knobs);
        }
    }

    fn note_state(&mut self) {
        let c = &self.control;
        self.rest
            .note(&(c.explain(), c.guard(), c.is_broken(), c.question()));
        // Shows how many random numbers it has drawn.
        self.rest.note(&self.rng.clone().u64());
    }

    fn run(&mut self, part: u32) {
        self.line.rough = part % 2 == 1;
        if part == 0 {
            let c = &mut self.control;
            let knobs = c.knobs();
            let is = (
                c.name(),
                c.period(),
                (knobs.queue, knobs.sub_queues),
                c.is_outside(),
                c.uses_delay(),
            );
            self.rest
                .note(&(is, c.reads_sub_queues(), c.watches_packets()));
            let knobs = c.initial();
            self.set(knobs);
        } else {
            let other = Knobs {
                limit_packets: Some(30),
                drop: Some(0.2),
                base_probability: Some(0.3),
                rate: Some(Rate::from_mbit(5)),
                release: false,
            };
            self.control.adopt(&other);
        }
        let period = match self.control.period() {
            Duration::MAX => 15 * MS,
            period => period,
        };
        for step in 0..STEPS {
            self.line.step();
            if let Some(clock) = &self.clock {
                let late = of(
                    &mut self.line.draw,
                    &[
                        0,
                        0,
                        0,
                        0,
                        (20 * MS).as_nanos(),
                        (20 * MS + Duration::from_nanos(1)).as_nanos(),
                        (50 * MS).as_nanos(),
                    ],
                );
                clock.store(
                    (self.line.now + Duration::from_nanos(late)).as_nanos(),
                    Ordering::Relaxed,
                );
            }
            self.packet();
            self.packet();
            self.answers(step);
            if (self.line.now - Instant::ZERO) % period == Duration::ZERO {
                self.decide();
                self.note_state();
            }
        }
        self.control = self.control.clone();
    }
}

/// A network of random weights with these inputs and heads.
fn network(inputs: Vec<Input>, heads: Vec<Head>) -> Policy {
    let mut rng = Rng::new(3, "weights");
    let mut draw = |n: usize| (0..n).map(|_| (2.0 * rng.f64() - 1.0) as f32).collect();
    let layers: Vec<Affine> = heads
        .iter()
        .map(|head| Affine {
            weight: draw(inputs.len() * head.outputs.len()),
            bias: draw(head.outputs.len()),
        })
        .collect();
    linear(inputs, heads, &layers)
}

/// A network without hidden layers: a layer for each head.
pub fn linear(inputs: Vec<Input>, heads: Vec<Head>, layers: &[Affine]) -> Policy {
    let card = Card {
        format: FORMAT,
        name: "by-hand".into(),
        what: "a test".into(),
        inputs,
        hidden: vec![],
        heads,
        trained_on: "nothing".into(),
        seed: 0,
        quell: "0".into(),
        results: Default::default(),
        origin: None,
    };
    Policy::new(card, layers).expect("a network")
}

pub fn input(name: &str, offset: f32, scale: f32) -> Input {
    Input {
        name: name.into(),
        offset,
        scale,
    }
}

fn rl_aqm(params: rlaqm::Params) -> rlaqm::RlAqm {
    let inputs = vec![
        input("delay_ms", 20.0, 0.05),
        input("utilisation", 0.5, 1.0),
        input("drop", 0.2, 4.0),
    ];
    let head = Head {
        name: "value".into(),
        activation: Activation::Linear,
        outputs: rlaqm::STEPS.iter().map(i32::to_string).collect(),
    };
    rlaqm::RlAqm::new(params, network(inputs, vec![head])).expect("a network of its")
}

fn a3c() -> a3c::A3c {
    let inputs = a3c::READINGS.iter().map(|r| match r.name {
        "drop_prob" => input(r.name, 0.25, 4.0),
        _ => input(r.name, 0.0, 1.0 / r.max),
    });
    let head = |name: &str, activation| Head {
        name: name.into(),
        activation,
        outputs: vec![name.into()],
    };
    let heads = vec![
        head("mean", Activation::Tanh),
        head("spread", Activation::Softplus),
    ];
    a3c::A3c::new(a3c::Params::default(), network(inputs.collect(), heads)).expect("its network")
}

fn lfq(params: lfq::Params) -> lfq::Lfq {
    let mut rng = Rng::new(5, "weights");
    let widths = [lfq::FEATURES, 8, 8, 8, 1];
    let mut layers: Vec<Affine> = widths
        .windows(2)
        .map(|w| {
            let mut draw = |n| (0..n).map(|_| (4.0 * rng.f64() - 2.0) as f32).collect();
            Affine {
                weight: draw(w[0] * w[1]),
                bias: draw(w[1]),
            }
        })
        .collect();
    layers[3].bias[0] += 30.0;
    let policy = lfq::policy(&params, &layers).expect("a network");
    lfq::Lfq::new(params, policy).expect("its network")
}

/// Sets random knobs, sometimes NaN or infinity; counts departures and drops.
#[derive(Clone, Debug)]
struct Erratic {
    period: Duration,
    draw: Rng,
    counts: [f32; 3],
    broken: bool,
}

impl Erratic {
    fn new(period: Duration) -> Self {
        Self {
            period,
            draw: Rng::new(1, "erratic"),
            counts: [0.0; 3],
            broken: false,
        }
    }

    fn any(&mut self) -> Knobs {
        self.broken = self.draw.below(3000) == 0;
        let p = |draw: &mut Rng| match draw.below(6000) {
            0 => Some(f64::NAN),
            1 => Some(f64::INFINITY),
            _ => of(
                draw,
                &[None, Some(0.0), Some(0.05), Some(0.1), Some(0.3), Some(1.0)],
            ),
        };
        Knobs {
            limit_packets: of(
                &mut self.draw,
                &[None, Some(5), Some(10), Some(50), Some(51)],
            ),
            drop: p(&mut self.draw),
            base_probability: p(&mut self.draw),
            rate: None,
            release: false,
        }
    }
}

impl Control for Erratic {
    fn period(&self) -> Duration {
        self.period
    }
    fn initial(&mut self) -> Knobs {
        self.any()
    }
    fn decide(&mut self, _: &Gauges, subs: &mut [SubQueue], _: &mut Rng) -> Knobs {
        for sub in subs {
            sub.knobs = self.any();
        }
        self.any()
    }
    fn reads_sub_queues(&self) -> bool {
        self.period != Duration::MAX
    }
    fn watches_packets(&self) -> bool {
        self.period == Duration::MAX
    }
    fn on_arrival(&mut self, _: &Arrival) -> Decision {
        match self.draw.below(3) {
            0 => Decision::KEEP,
            1 if self.counts[2] > 0.0 => Decision::Ask,
            _ => Decision::Set(self.any()),
        }
    }
    fn on_departure(&mut self, _: &Departure) {
        self.counts[0] += 1.0;
    }
    fn on_drop(&mut self, _: &Loss) {
        self.counts[1] += 1.0;
    }
    fn ask_outside(&mut self) -> bool {
        self.counts[2] = 1.0;
        true
    }
    fn question(&self) -> &[f32] {
        &self.counts
    }
    fn answered(&mut self, sub_queue: Option<usize>, knobs: &Knobs) -> Decision {
        assert!(sub_queue.is_none_or(|sub| sub < SUBS));
        Decision::Set(*knobs)
    }
    fn knobs(&self) -> ControlledKnobs {
        let drop = KnobSet {
            drop: true,
            ..KnobSet::LIMIT
        };
        ControlledKnobs {
            queue: drop,
            sub_queues: KnobSet::LIMIT,
        }
    }
    fn is_broken(&self) -> bool {
        self.broken
    }
    fn explain(&self) -> Option<Explanation<'_>> {
        Some(Explanation {
            inputs: &self.counts,
            action: self.counts[1],
        })
    }
}

fn guarded(
    params: guard::Params,
    learned: impl Control,
    classic: impl Control,
) -> Box<dyn Control> {
    Box::new(guard::Guard::new(
        params,
        Box::new(learned),
        Box::new(classic),
    ))
}

fn controllers() -> Vec<(&'static str, Box<dyn Control>)> {
    let pie = || pie::Pie::new(quell_qdisc::pie::Params::default());
    let wqm = |params| wqm::Wqm::new(params, Rate::from_mbit(10));
    let learn = |params| learnqueue::LearnQueue::new(params);
    let usual = guard::Params::default;
    let ranges = guard::Params {
        limit: (10, 50),
        drop: (0.05, 0.3),
        base_probability: (0.1, 0.9),
        ..usual()
    };
    let strict = guard::Params {
        deadline: Some(Duration::ZERO),
        stale: Some(20 * MS),
        quiet: 40 * MS,
        delay: 30 * MS,
        ..usual()
    };
    let dry = guard::Params {
        dry_run: true,
        ..usual()
    };
    let ceiling = lfq::Params {
        ceiling: 100 * MS,
        paper_weights: true,
        every: 3,
    };
    let down = pace::Params {
        ingress: true,
        ..pace::Params::default()
    };
    let own = pace::Params {
        start: Some(Rate::from_mbit(2)),
        target: Some(5 * MS),
        slack: Some(10 * MS),
        drain: Some(30 * MS),
        grow: Some(20),
        gain: Some(30),
        doubt: Some(200),
        most: Some(300),
        back: Some(105),
        least: Some(40),
        nopassive: true,
        ..pace::Params::default()
    };
    let lone = wqm::Params {
        no_aggregation: true,
        contenders: Some(3),
        low: Some(20 * MS),
        ..wqm::Params::default()
    };
    let small = learnqueue::Params {
        max_size: 20,
        initial: 10,
        epsilon: 0.3,
        alpha: Some(0.5),
        credit: learnqueue::readings::Credit::Cause,
        ..learnqueue::Params::default().published_reward()
    };
    let mut asked = lfq(lfq::Params::default());
    asked.ask_outside();
    let mut asked_guard = guarded(usual(), Erratic::new(Duration::MAX), law::Law);
    assert!(asked_guard.ask_outside());
    vec![
        ("a3c", Box::new(a3c())),
        (
            "cake_autorate",
            Box::new(cake_autorate::CakeAutorate::new(
                cake_autorate::Params::default(),
            )),
        ),
        (
            "fixed",
            Box::new(fixed::Fixed::new(fixed::Params {
                limit: Some(20),
                drop: Some(0.1),
            })),
        ),
        ("law", Box::new(law::Law)),
        ("learnqueue", Box::new(learn(learnqueue::Params::default()))),
        (
            "learnqueue published reward",
            Box::new(learn(learnqueue::Params::default().published_reward())),
        ),
        (
            "learnqueue as published",
            Box::new(learn(learnqueue::Params::default().as_published())),
        ),
        ("learnqueue small", Box::new(learn(small))),
        ("lfq", Box::new(lfq(lfq::Params::default()))),
        ("lfq with a ceiling", Box::new(lfq(ceiling))),
        ("lfq asked", Box::new(asked)),
        ("outside", Box::new(outside::Outside { period: 20 * MS })),
        (
            "pace up",
            Box::new(pace::Pace::new(&pace::Params::default())),
        ),
        ("pace down", Box::new(pace::Pace::new(&down))),
        ("pace own", Box::new(pace::Pace::new(&own))),
        ("pie", Box::new(pie())),
        ("rlaqm", Box::new(rl_aqm(rlaqm::Params::default()))),
        (
            "rlaqm explores",
            Box::new(rl_aqm(rlaqm::Params {
                heuristics: false,
                epsilon: 0.2,
                ..rlaqm::Params::default()
            })),
        ),
        (
            "sqm_autorate",
            Box::new(sqm_autorate::SqmAutorate::new(
                sqm_autorate::Params::default(),
            )),
        ),
        (
            "sqm_autorate far above its base",
            Box::new(sqm_autorate::SqmAutorate::new(sqm_autorate::Params {
                base: Rate::from_mbit(2),
                ..sqm_autorate::Params::default()
            })),
        ),
        ("wqm", Box::new(wqm(wqm::Params::default()))),
        ("wqm lone", Box::new(wqm(lone))),
        (
            "guard rlaqm",
            guarded(usual(), rl_aqm(rlaqm::Params::default()), pie()),
        ),
        (
            "guard learnqueue",
            guarded(
                usual(),
                learn(learnqueue::Params::default()),
                wqm(wqm::Params::default()),
            ),
        ),
        ("guard a3c", guarded(usual(), a3c(), law::Law)),
        (
            "guard lfq",
            guarded(
                usual(),
                lfq(lfq::Params::default()),
                fixed::Fixed::new(fixed::Params {
                    limit: Some(100),
                    drop: None,
                }),
            ),
        ),
        (
            "guard ranges",
            guarded(ranges, Erratic::new(20 * MS), pie()),
        ),
        (
            "guard strict clock",
            guarded(strict, Erratic::new(20 * MS), pie()),
        ),
        ("guard dry_run", guarded(dry, Erratic::new(20 * MS), pie())),
        (
            "guard packets",
            guarded(usual(), Erratic::new(Duration::MAX), pie()),
        ),
        ("guard asked", asked_guard),
    ]
}

#[test]
fn every_controller_decides_as_it_did() {
    let head = "controller,part,limit,drop,base_probability,rate,knobs,rest";
    let mut rows = Vec::new();
    for (name, mut control) in controllers() {
        let clock = name.ends_with("clock").then(Arc::<AtomicU64>::default);
        if let Some(clock) = &clock {
            let clock = Arc::clone(clock);
            control.time_decisions(Arc::new(move || {
                Instant::from_nanos(clock.load(Ordering::Relaxed))
            }));
        }
        let mut bed = Bed {
            control,
            line: Line::new(),
            rng: Rng::new(1, "controller"),
            hostile: name.starts_with("guard"),
            clock,
            knobs: Digest::new(),
            rest: Digest::new(),
        };
        for part in 0..PARTS {
            bed.run(part);
            let k = bed.line.knobs;
            let show = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x:.4}"));
            rows.push(format!(
                "{name},{part},{},{},{},{},{},{}",
                show(k.limit_packets.map(f64::from)),
                show(k.drop),
                show(k.base_probability),
                show(k.rate.map(|r| r.bps_f64() / 1e6)),
                bed.knobs,
                bed.rest
            ));
        }
    }
    record::hold("recorded_control.csv", head, &rows);
}
