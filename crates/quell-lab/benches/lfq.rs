//! LFQ's experiments per CPU-second: `cargo bench -p quell-lab --bench lfq`.
//!
//! The experiments are offline (two clones of a world each), with the paper's draws and a network
//! of random weights as torch initialises them. A training of 250,000 flows in 6 minutes on two
//! cores leaves 2.88 ms of CPU time per flow, including the learner's share.

use cpu_time::ProcessTime;
use quell_lab::lfq::{Lab, Settings};
use quell_qdisc::Rng;
use quell_qdisc::control::lfq::{FEATURES, policy};
use quell_qdisc::policy::Affine;

const FLOWS: u64 = 400;
const REPEATS: u64 = 5;
/// Flows per training step.
const BATCH: usize = 20;

fn main() {
    let settings = Settings::new(0.01);
    // The bias of the output moves the limits into the range that training reaches.
    for bias in [1.0, 20.0, 50.0] {
        let policy = policy(&settings.control, &layers(bias)).expect("a network");
        let lab = Lab::new(settings.clone(), policy).expect("a laboratory");
        let mut times: Vec<f64> = (0..REPEATS).map(|r| time(&lab, r * FLOWS)).collect();
        times.sort_by(f64::total_cmp);
        let ms = times[times.len() / 2] * 1e3 / FLOWS as f64;
        let rate = 1e3 / ms;
        println!("LFQ, limits about {bias}: {rate:.0} flows per CPU-second, {ms:.2} ms each");
    }
}

fn time(lab: &Lab, first: u64) -> f64 {
    let start = ProcessTime::now();
    let experiments = (first..first + FLOWS).step_by(BATCH).flat_map(|seed| {
        lab.experiments(seed..seed + BATCH as u64)
            .expect("experiments")
    });
    let decided = experiments.filter(|(_, outcome)| outcome.is_some()).count();
    assert!(decided > FLOWS as usize * 9 / 10, "{decided} decided");
    start.elapsed().as_secs_f64()
}

/// The layers 60-256-256-256-1, with weights uniform within 1/sqrt(inputs of the layer).
fn layers(bias: f32) -> Vec<Affine> {
    let mut rng = Rng::new(1, "weights");
    let widths = [FEATURES, 256, 256, 256, 1];
    let mut layers: Vec<Affine> = widths
        .windows(2)
        .map(|w| {
            let bound = 1.0 / libm::sqrt(w[0] as f64);
            let mut draw = |n| {
                (0..n)
                    .map(|_| ((2.0 * rng.f64() - 1.0) * bound) as f32)
                    .collect()
            };
            Affine {
                weight: draw(w[0] * w[1]),
                bias: draw(w[1]),
            }
        })
        .collect();
    if let Some(last) = layers.last_mut() {
        last.bias[0] = bias;
    }
    layers
}
