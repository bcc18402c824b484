//! Cost of one answer of LFQ's network (60-256-256-256-1, leaky ReLU) and of one decision of
//! RL-AQM's controller (3-32-32-5), in microseconds of process CPU time: the best of many runs.
//!
//! `cargo bench -p quell-qdisc --bench policy`

use std::hint::black_box;

use cpu_time::ProcessTime;
use quell_qdisc::control::{Control, rlaqm};
use quell_qdisc::policy::{Activation, Affine, Card, FORMAT, Head, Input, Policy};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::Duration;
use quell_qdisc::{Gauges, Rng};

const ROWS: usize = 8;

fn main() {
    let policy = network(&[60, 256, 256, 256, 1]);
    let integers = policy.to_integers();
    println!("60-256-256-256-1        one row    eight rows, each");
    for (name, policy, runs) in [
        ("f32", &policy, 400),
        ("integer weights", &integers, 400),
        ("f32, portable", &policy.portable(), 1),
        ("integer weights, portable", &integers.portable(), 1),
    ] {
        let (one, eight) = measure(policy, runs);
        println!("{name:22} {one:8.2} us {eight:8.2} us");
    }
    println!("rlaqm, a decision      {:8.2} us", decision());
}

/// Microseconds per decision of RL-AQM while the queue is not empty.
fn decision() -> f64 {
    let policy = network(&[3, 32, 32, 5]);
    let Ok(mut rlaqm) = rlaqm::RlAqm::new(rlaqm::Params::default(), policy) else {
        return f64::NAN;
    };
    let mut rng = Rng::new(1, "bench");
    let mut gauges = Gauges {
        rate: Rate::from_mbit(10),
        backlog_bytes: 30_000,
        ..Gauges::default()
    };
    best(400, 50, || {
        gauges.now += Duration::from_nanos(20_000_000);
        gauges.departed_bytes += 24_000;
        black_box(rlaqm.decide(black_box(&gauges), &mut [], &mut rng));
    })
}

/// Microseconds per row, one at a time and eight at a time.
fn measure(policy: &Policy, runs: u32) -> (f64, f64) {
    let mut rng = Rng::new(1, "inputs");
    let x: Vec<f32> = (0..ROWS * policy.inputs())
        .map(|_| uniform(&mut rng))
        .collect();
    let mut y = vec![0.0; ROWS * policy.outputs()];
    let mut scratch = policy.scratch();
    let one = best(runs, 50, || {
        for x in x.chunks_exact(policy.inputs()) {
            black_box(policy.forward(black_box(x), &mut scratch));
        }
    });
    let eight = best(runs, 50, || {
        policy.forward_batch(black_box(&x), &mut scratch, black_box(&mut y))
    });
    (one / ROWS as f64, eight / ROWS as f64)
}

/// Microseconds of one call of `f`: the least over `runs` of the mean over `calls`.
fn best(runs: u32, calls: u32, mut f: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..runs {
        let start = ProcessTime::now();
        (0..calls).for_each(|_| f());
        least = least.min(start.elapsed().as_secs_f64() / f64::from(calls));
    }
    least * 1e6
}

fn uniform(rng: &mut Rng) -> f32 {
    (rng.f64() * 2.0 - 1.0) as f32
}

/// A network with random weights as torch initialises them.
fn network(widths: &[usize]) -> Policy {
    let mut rng = Rng::new(1, "weights");
    let layers: Vec<_> = widths
        .windows(2)
        .map(|w| {
            let bound = 1.0 / (w[0] as f32).sqrt();
            let mut draw = |n| (0..n).map(|_| bound * uniform(&mut rng)).collect();
            Affine {
                weight: draw(w[0] * w[1]),
                bias: draw(w[1]),
            }
        })
        .collect();
    let name = |i| format!("x{i}");
    let card = Card {
        format: FORMAT,
        name: "bench".into(),
        what: "random weights".into(),
        inputs: (0..widths[0])
            .map(|i| Input {
                name: name(i),
                offset: 0.0,
                scale: 1.0,
            })
            .collect(),
        hidden: vec![Activation::LeakyRelu; widths.len() - 2],
        heads: vec![Head {
            name: "y".into(),
            activation: Activation::Linear,
            outputs: (0..widths[widths.len() - 1]).map(name).collect(),
        }],
        trained_on: "nothing".into(),
        seed: 1,
        quell: env!("CARGO_PKG_VERSION").into(),
        results: Default::default(),
        origin: None,
    };
    Policy::new(card, &layers).expect("a valid network")
}
