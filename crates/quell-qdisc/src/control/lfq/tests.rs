use super::*;
use crate::discipline::Discipline;
use crate::fq_fifo::{self, FqFifo};
use crate::packet::{Dequeued, DropCause, Ecn, TestPacket};
use crate::time::{MS, SEC, US};

/// A network 60-8-8-8-1 of random weights whose output is about `bias`.
pub(crate) fn network(seed: u64, bias: f32) -> Policy {
    let mut rng = Rng::new(seed, "weights");
    let widths = [FEATURES, 8, 8, 8, 1];
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
    layers[3].bias[0] += bias;
    policy(&Params::default(), &layers).unwrap()
}

/// A network whose output is always this number.
pub(crate) fn constant(output: f32) -> Policy {
    let layer = |inputs: usize, outputs: usize, bias: f32| Affine {
        weight: vec![0.0; inputs * outputs],
        bias: vec![bias; outputs],
    };
    let layers = [
        layer(FEATURES, 1, 0.0),
        layer(1, 1, 0.0),
        layer(1, 1, 0.0),
        layer(1, 1, output),
    ];
    policy(&Params::default(), &layers).unwrap()
}

/// A network of finite weights whose output is infinite as soon as a packet is queued.
pub(crate) fn broken() -> Policy {
    let layer = |inputs: usize, weight: f32| Affine {
        weight: vec![weight; inputs],
        bias: vec![0.0],
    };
    let layers = [
        layer(FEATURES, f32::MAX),
        layer(1, f32::MAX),
        layer(1, 1.0),
        layer(1, 1.0),
    ];
    policy(&Params::default(), &layers).unwrap()
}

fn controller(policy: Policy) -> Lfq {
    Lfq::new(Params::default(), policy).unwrap()
}

/// Offers a packet of the only flow while `held` are queued; returns whether it may join them.
fn arrive(c: &mut Lfq, now: Instant, held: u32) -> bool {
    let arrival = Arrival {
        now,
        sub_queue: Some(0),
        fresh: c.flows.is_empty(),
        held,
        len: 1500,
    };
    assert_ne!(c.on_arrival(&arrival), Decision::Ask);
    let joins = held < c.flows[0].limit;
    if !joins {
        c.on_drop(&Loss {
            now,
            sub_queue: Some(0),
        });
    }
    joins
}

fn depart(c: &mut Lfq, now: Instant, held: u32) {
    c.on_departure(&Departure {
        now,
        sub_queue: Some(0),
        held,
        len: 1500,
        sojourn: Duration::ZERO,
    });
}

fn limit(c: &Lfq) -> u32 {
    c.flows[0].limit
}

/// The features, computed again from all events and the definitions alone.
#[derive(Default)]
struct Naive {
    /// Time, s, and packets queued, of each arrival.
    arrivals: Vec<(f64, f64)>,
    departures: Vec<f64>,
    limits: Vec<f64>,
    since_loss: Vec<f64>,
}

impl Naive {
    fn mean(values: impl Iterator<Item = f64>, weight: f64) -> f64 {
        values.fold(0.0, |mean, x| weight * x + (1.0 - weight) * mean)
    }

    fn gaps(times: &[f64]) -> Vec<f64> {
        let before = std::iter::once(&0.0).chain(times);
        times.iter().zip(before).map(|(t, b)| t - b).collect()
    }

    fn features(&self, first: i32) -> Vec<f64> {
        let weights: Vec<f64> = (0..10).map(|i| 0.5_f64.powi(first + i)).collect();
        let backlog: Vec<f64> = self.arrivals.iter().map(|a| a.1 / 100.0).collect();
        let least = self.arrivals.len().min(self.departures.len()) as f64;
        let times: Vec<f64> = self.arrivals.iter().map(|a| a.0).collect();
        let rate = |times: &[f64], w: f64| {
            let gap = Self::mean(Self::gaps(times).into_iter(), w);
            let known = gap != 0.0 && least >= 1.0 / w;
            if known { 1.0 / gap / 10_000.0 } else { 0.0 }
        };
        let deviation = |w: f64| {
            let mut variance = 0.0;
            for (k, q) in backlog.iter().enumerate() {
                let mean = Self::mean(backlog[..=k].iter().copied(), w);
                variance = w * (mean - q) * (mean - q) + (1.0 - w) * variance;
            }
            variance.sqrt()
        };
        let each = |f: &dyn Fn(f64) -> f64| weights.iter().map(|&w| f(w)).collect::<Vec<_>>();
        [
            each(&|w| Self::mean(backlog.iter().copied(), w)),
            each(&deviation),
            each(&|w| Self::mean(self.limits.iter().map(|l| l / 100.0), w)),
            each(&|w| rate(&times, w)),
            each(&|w| rate(&self.departures, w)),
            each(&|w| Self::mean(self.since_loss.iter().map(|s| s / 10.0), w)),
        ]
        .concat()
    }
}

#[test]
fn features_are_those_of_a_slow_reading_of_the_definitions() {
    for paper_weights in [false, true] {
        let params = Params {
            paper_weights,
            ..Params::default()
        };
        let mut c = Lfq::new(params, network(3, 8.0)).unwrap();
        // The flow exists from time 0 on, as in the definitions.
        c.flows.push(Flow::new(Instant::ZERO));
        let (mut naive, mut rng) = (Naive::default(), Rng::new(5, "t"));
        let (mut now, mut held, mut last_loss) = (0, 0u32, 0.0);
        let (mut limits, mut evaluations) = (Vec::new(), 0);
        for step in 0..600u64 {
            now += rng.below((3 * MS).as_nanos());
            let t = seconds(Duration::from_nanos(now));
            if rng.below(100) < 55 {
                naive.arrivals.push((t, f64::from(held)));
                let nth = naive.arrivals.len() - 1;
                let joins = arrive(&mut c, Instant::from_nanos(now), held);
                if nth.is_multiple_of(10) {
                    // The network reads the state just before its answer; at the first packet it is
                    // evaluated twice.
                    for _ in 0..if nth == 0 { 2 } else { 1 } {
                        let x: Vec<f32> = naive
                            .features(if paper_weights { 4 } else { 5 })
                            .iter()
                            .map(|&x| x as f32)
                            .collect();
                        let mut scratch = c.policy.scratch();
                        let y = c.policy.forward(&x, &mut scratch)[0];
                        let limit = f64::from(y.round().clamp(1.0, 1000.0));
                        naive.limits.push(limit);
                        evaluations += 1;
                    }
                    for (i, (a, b)) in c
                        .inputs
                        .iter()
                        .zip(naive.features_at_last_question(paper_weights))
                        .enumerate()
                    {
                        assert!(
                            (f64::from(*a) - b).abs() <= 1e-6 * b.abs().max(1e-3),
                            "step {step}, feature {i}: {a} is not {b}"
                        );
                    }
                    limits.push(limit(&c));
                }
                assert_eq!(
                    f64::from(limit(&c)),
                    *naive.limits.last().unwrap(),
                    "step {step}"
                );
                assert_eq!(joins, held < limit(&c));
                if joins {
                    held += 1;
                } else {
                    last_loss = t;
                }
                naive.since_loss.push(t - last_loss);
            } else if held > 0 {
                naive.departures.push(t);
                depart(&mut c, Instant::from_nanos(now), held);
                held -= 1;
            }
        }
        assert!(evaluations > 20 && naive.departures.len() > 64 && last_loss > 0.0);
        limits.dedup();
        assert!(limits.len() > 2, "the limit moved: {limits:?}");
    }
}

impl Naive {
    /// The features before the last limit was set.
    fn features_at_last_question(&mut self, paper_weights: bool) -> Vec<f64> {
        let last = self.limits.pop().unwrap();
        let features = self.features(if paper_weights { 4 } else { 5 });
        self.limits.push(last);
        features
    }
}

#[test]
fn outputs_are_rounded_to_packets_within_the_range() {
    for (output, limit) in [
        (-5.0, 1),
        (0.4, 1),
        (1.49, 1),
        (1.5, 2),
        (22.6, 23),
        (999.7, 1000),
        (1e9, 1000),
        (f32::MAX, 1000),
    ] {
        let mut c = controller(constant(output));
        arrive(&mut c, Instant::ZERO, 0);
        assert_eq!(c.limit, limit, "{output}");
    }
}

#[test]
fn a_packet_joins_if_those_before_it_are_fewer_than_the_limit() {
    let mut c = controller(constant(3.0));
    let joined = [0, 1, 2, 3, 4].map(|held| arrive(&mut c, Instant::ZERO, held));
    assert_eq!(joined, [true, true, true, false, false]);
}

#[test]
fn the_network_decides_at_the_first_and_each_tenth_packet() {
    let mut c = controller(constant(5.0));
    let decided: Vec<usize> = (0..25)
        .filter(|_| {
            let before = c.flows.first().map(|f| f.limits);
            arrive(&mut c, Instant::ZERO, 0);
            before != Some(c.flows[0].limits)
        })
        .collect();
    assert_eq!(decided, [0, 10, 20]);
}

#[test]
fn a_ceiling_bounds_the_limit_by_what_is_sent_while_packets_wait() {
    for (ceiling, held, limit) in [
        (0, 5, 50),
        ((10 * MS).as_nanos(), 5, 10),
        ((500 * US).as_nanos(), 5, 2),
        // Nothing was queued: the rate at which the flow could be served is unknown.
        ((10 * MS).as_nanos(), 1, 50),
    ] {
        let params = Params {
            ceiling: Duration::from_nanos(ceiling),
            ..Params::default()
        };
        let mut c = Lfq::new(params, constant(50.0)).unwrap();
        for k in 1..=100 {
            arrive(&mut c, Instant::from_millis(k), held - 1);
            depart(&mut c, Instant::from_millis(k), held);
        }
        assert_eq!(c.limit, limit, "{ceiling} ns, {held} held");
    }
}

#[test]
fn sixty_features_have_sixty_names() {
    let names = features(&Params::default());
    assert_eq!(names.len(), FEATURES);
    assert_eq!(
        (&names[0][..], &names[59][..]),
        ("backlog_100p_5", "since_loss_10s_14")
    );
    let paper = Params {
        paper_weights: true,
        ..Params::default()
    };
    assert_eq!(features(&paper)[0], "backlog_100p_4");
    let mut all = names;
    all.sort();
    all.dedup();
    assert_eq!(all.len(), FEATURES);
}

#[test]
fn a_network_of_other_shape_is_refused() {
    let shape = |inputs: usize, outputs: usize| Affine {
        weight: vec![0.0; inputs * outputs],
        bias: vec![0.0; outputs],
    };
    let wrong = [shape(60, 4), shape(4, 4), shape(4, 4), shape(4, 2)];
    assert!(policy(&Params::default(), &wrong).is_err());
    assert!(policy(&Params::default(), &wrong[..2]).is_err());
}

/// The queue and its controller, run as by a driver.
struct Bed {
    q: FqFifo<TestPacket>,
    c: Lfq,
}

impl Bed {
    fn new(flows: u32, policy: Policy) -> Self {
        let q = FqFifo::new(fq_fifo::Params {
            flows,
            ..fq_fifo::Params::default()
        });
        Self {
            q,
            c: controller(policy),
        }
    }

    /// Offers n packets of a flow; returns the number of drops.
    fn put(&mut self, now: Instant, hash: u32, n: u64) -> usize {
        let mut drops: Vec<(TestPacket, DropCause)> = Vec::new();
        for id in 0..n {
            let packet = TestPacket::new(id, 1514, hash, Ecn::NotEct);
            let admission = self.q.admit(now, &packet).unwrap();
            let sub_queue = Some(admission.sub_queue);
            let arrival = Arrival {
                now,
                sub_queue,
                fresh: admission.fresh,
                held: self.q.sub_len(admission.sub_queue),
                len: 1514,
            };
            let Decision::Set(knobs) = self.c.on_arrival(&arrival) else {
                panic!("there is no outside controller");
            };
            self.q.set_sub_knobs(admission.sub_queue, &knobs);
            let before = drops.len();
            self.q
                .enqueue(now, packet, &mut Rng::new(1, "t"), &mut drops);
            if drops.len() > before {
                self.c.on_drop(&Loss { now, sub_queue });
            }
        }
        drops.len()
    }

    fn take(&mut self, now: Instant) {
        let got = self.q.dequeue(now, &mut Rng::new(1, "t"), &mut Vec::new());
        if let Dequeued::Packet(packet) = got {
            let sub_queue = self.q.sub_queue_of(&packet);
            self.c.on_departure(&Departure {
                now,
                sub_queue,
                held: self.q.sub_len(sub_queue.unwrap()) + 1,
                len: 1514,
                sojourn: Duration::ZERO,
            });
        }
    }

    fn limit(&self, sub_queue: usize) -> u32 {
        let gauges = self.q.sub_gauges(Instant::ZERO, sub_queue).unwrap();
        assert_eq!(gauges.limit_packets, self.c.flows[sub_queue].limit);
        gauges.limit_packets
    }
}

/// Hash of a flow. Flows 0 to 7 have different buckets of 1024.
fn hash(flow: u32) -> u32 {
    flow << 29
}

#[test]
fn each_flow_is_held_to_the_limit_that_it_was_given() {
    let mut bed = Bed::new(1024, constant(4.0));
    assert_eq!(bed.put(Instant::ZERO, hash(1), 10), 6);
    assert_eq!(bed.put(Instant::ZERO, hash(2), 3), 0);
    assert_eq!((bed.limit(0), bed.limit(1)), (4, 4));
}

#[test]
fn flows_that_meet_in_a_bucket_share_its_limit_and_its_features() {
    let (mut both, mut alone) = (Bed::new(1, network(1, 9.0)), Bed::new(1, network(1, 9.0)));
    for k in 0..200 {
        both.put(Instant::from_millis(k), hash(k as u32 % 2), 1);
        alone.put(Instant::from_millis(k), hash(0), 1);
        if k % 3 > 0 {
            both.take(Instant::from_millis(k));
            alone.take(Instant::from_millis(k));
        }
    }
    assert_eq!(both.c.flows, alone.c.flows);
    assert_eq!(both.c.flows.len(), 1);
}

#[test]
fn a_bucket_that_is_given_to_another_flow_starts_afresh() {
    let mut bed = Bed::new(1, network(2, 9.0));
    for k in 0..100 {
        bed.put(Instant::from_millis(k * 10), hash(1), 1);
        bed.take(Instant::from_millis(k * 10));
    }
    for (flow, now, afresh) in [(1, 10 * SEC, false), (2, 20 * SEC, true)] {
        bed.put(Instant::ZERO + now, hash(flow), 1);
        bed.take(Instant::ZERO + now);
        let mut fresh = Bed::new(1, network(2, 9.0));
        fresh.put(Instant::ZERO + now, hash(flow), 1);
        fresh.take(Instant::ZERO + now);
        assert_eq!(bed.c.flows == fresh.c.flows, afresh, "flow {flow}");
    }
}

#[test]
fn one_network_sets_different_limits_for_different_flows() {
    let mut bed = Bed::new(1024, network(4, 12.0));
    let mut apart = 0;
    for k in 0..3000u64 {
        bed.put(Instant::from_millis(k), hash(1), 1);
        if k % 10 == 0 {
            bed.put(Instant::from_millis(k), hash(2), 20);
        }
        bed.take(Instant::from_millis(k));
        bed.take(Instant::from_millis(k));
        apart += u32::from(bed.limit(0) != bed.limit(1));
    }
    assert!(apart > 300, "{apart}");
}

#[test]
fn answers_from_outside_replace_the_networks() {
    let mut c = controller(constant(4.0));
    assert!(c.ask_outside() && c.question().is_empty());
    let arrival = |n: u64| Arrival {
        now: Instant::from_millis(n),
        sub_queue: Some(0),
        fresh: n == 0,
        held: 0,
        len: 1500,
    };
    let limit = |packets| Knobs {
        limit_packets: Some(packets),
        ..Knobs::KEEP
    };
    // At the first packet it asks twice.
    assert_eq!(c.on_arrival(&arrival(0)), Decision::Ask);
    assert_eq!(c.question().len(), FEATURES);
    assert_eq!(c.answered(Some(0), &limit(9)), Decision::Ask);
    assert_eq!(
        c.answered(Some(0), &limit(5000)),
        Decision::Set(limit(1000))
    );
    assert!(c.question().is_empty());
    for n in 1..10 {
        assert_eq!(c.on_arrival(&arrival(n)), Decision::KEEP);
    }
    assert_eq!(c.on_arrival(&arrival(10)), Decision::Ask);
    assert_eq!(c.answered(Some(0), &limit(7)), Decision::Set(limit(7)));
    // After an answer without a limit, the flow keeps its own limit, not that of another flow.
    let other = Arrival {
        sub_queue: Some(1),
        fresh: true,
        ..arrival(11)
    };
    assert_eq!(c.on_arrival(&other), Decision::Ask);
    assert_eq!(c.answered(Some(1), &limit(300)), Decision::Ask);
    assert_eq!(c.answered(Some(1), &limit(300)), Decision::Set(limit(300)));
    for n in 12..21 {
        assert_eq!(c.on_arrival(&arrival(n)), Decision::KEEP);
    }
    assert_eq!(c.on_arrival(&arrival(21)), Decision::Ask);
    assert_eq!(c.answered(Some(0), &Knobs::KEEP), Decision::Set(limit(7)));
}
