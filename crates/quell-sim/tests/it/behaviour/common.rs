//! Helpers: a world or a record from a scenario's text, and times on a link.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quell_link::record::Run;
use quell_qdisc::Gauges;
use quell_qdisc::time::{Duration, Instant, SEC};
use quell_sim::scenario::{Overrides, Scenario};
use quell_sim::{RunOptions, Status, World};

pub fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "behaviour", &Overrides::default()).expect("a well-formed scenario")
}

/// A world, with seed 1 and the queue that the text names.
pub fn world(text: &str) -> World {
    let scenario = Arc::new(scenario(text));
    let queue = scenario.link.queue.clone();
    World::builder(scenario)
        .queue(queue.as_str())
        .seed(1)
        .build()
        .expect("a world")
}

pub fn measure(text: &str) -> Run {
    measure_with(text, 1, None)
}

pub fn measure_with(text: &str, seed: u64, series_bin: Option<Duration>) -> Run {
    let scenario = scenario(text);
    let options = RunOptions {
        series_bin,
        ..RunOptions::default()
    };
    let never = AtomicBool::new(false);
    quell_sim::run(&scenario, &scenario.link.queue, seed, &options, &never).expect("a run")
}

/// Runs the world to `at` and returns the gauges of the bottleneck.
pub fn gauges_at(world: &mut World, at: Instant) -> Gauges {
    while world.run_until(at) != Status::Done {}
    world.gauges(0)
}

/// Transmission time of these bytes at this rate, ms.
pub fn ms(bytes: u32, bps: f64) -> f64 {
    f64::from(bytes) * 8e3 / bps
}

/// Transmission time of these bytes at this rate.
pub fn ns(bytes: u64, bps: u64) -> Duration {
    bytes * 8 * SEC / bps
}

#[track_caller]
pub fn near(is: f64, wanted: f64, tolerance: f64) {
    assert!(
        (is - wanted).abs() <= tolerance,
        "{is} is not within {tolerance} of {wanted}"
    );
}
