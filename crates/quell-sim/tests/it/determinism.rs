//! The same seed gives the same packets, on any number of threads and in a clone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use quell_link::words::every;
use quell_qdisc::Knobs;
use quell_qdisc::time::{Instant, MS};
use quell_sim::scenario::{Overrides, Scenario};
use quell_sim::{RunOptions, Status, World};

/// A path with two queues down and one up, with everything that is drawn from the seed: staggered
/// starts, random loss, Poisson and on-off traffic, PIE's decisions, hash keys.
const SCENARIO: &str = r#"
    duration = "4s"
    warmup = "1s"
    [link]
    rate = "20mbit"
    delay = "10ms"
    loss = 0.001
    [link.up]
    rate = "2mbit"
    queue = "pie"
    [[hop]]
    rate = "19mbit"
    queue = "fq_codel"
    [[flow]]
    kind = "tcp"
    cc = "cubic"
    count = 3
    rtt = "30ms"
    stagger = "500ms"
    [[flow]]
    kind = "tcp"
    cc = "newreno"
    rtt = "45ms"
    ecn = true
    [[flow]]
    kind = "poisson"
    rate = "2mbit"
    size = "exp:600"
    [[flow]]
    kind = "onoff"
    on = "300ms"
    off = "200ms"
    [[flow]]
    kind = "tcp"
    cc = "bbr"
    count = 1
    direction = "up"
    stagger = "1s"
    [[flow]]
    kind = "web"
    cc = "cubic"
    size = 30000
    arrivals = 5.0
"#;

/// A cell with contention, retries and different rates, and traffic in both directions.
const CELL: &str = r#"
    duration = "1s"
    warmup = "100ms"
    [wifi]
    per = 0.02
    [[wifi.node]]
    name = "ap"
    [[wifi.node]]
    name = "near"
    mcs = 7
    [[wifi.node]]
    name = "far"
    mcs = 1
    [[flow]]
    from = "ap"
    to = "*"
    count = 2
    stagger = "100ms"
    [[flow]]
    from = "far"
    to = "ap"
    cc = "newreno"
    count = 1
"#;

fn scenarios() -> [Scenario; 2] {
    [SCENARIO, CELL].map(|text| {
        Scenario::parse(text, "determinism", &Overrides::default()).expect("a well-formed scenario")
    })
}

/// Runs every queue on the path and in the cell, with two seeds each, on this many threads. Returns
/// the hashes over all packet events.
fn compare(threads: usize) -> Vec<String> {
    let (scenarios, queues) = (scenarios(), every());
    let jobs: Vec<(&Scenario, &str, u64)> = scenarios
        .iter()
        .flat_map(|scenario| queues.iter().map(move |queue| (scenario, queue.as_str())))
        .flat_map(|(scenario, queue)| [(scenario, queue, 1), (scenario, queue, 2)])
        .collect();
    let (next, never) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(scenario, queue, seed)) = jobs.get(index) else {
                return done;
            };
            let run = quell_sim::run(scenario, queue, seed, &RunOptions::default(), &never)
                .expect("a run");
            done.push((index, run.trace_hash));
        }
    };
    let mut all: Vec<(usize, String)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        handles
            .into_iter()
            .flat_map(|handle| handle.join().expect("no panic"))
            .collect()
    });
    all.sort();
    all.into_iter().map(|(_, hash)| hash).collect()
}

#[test]
fn one_thread_and_two_see_the_same_packets() {
    let (one, two) = (compare(1), compare(2));
    assert_eq!(one, two);
}

#[test]
fn other_seeds_and_other_queues_give_other_runs() {
    let (never, mut hashes) = (AtomicBool::new(false), BTreeSet::new());
    let queues = ["pfifo limit 100", "red", "codel", "pie", "fq_codel", "cake"];
    for scenario in &scenarios() {
        for (queue, seed) in queues.iter().flat_map(|queue| [(queue, 1), (queue, 2)]) {
            let run = quell_sim::run(scenario, queue, seed, &RunOptions::default(), &never);
            assert!(
                hashes.insert(run.expect("a run").trace_hash),
                "{queue} {seed}"
            );
        }
    }
}

/// Runs to `end`; returns the record with a CPU time of 0.
fn finish(mut world: World, end: Instant) -> String {
    while world.run_until(end) != Status::Done {}
    format!("{:?}", world.record(0.0))
}

#[test]
fn a_cloned_world_continues_bit_for_bit_like_the_original() {
    let (scenarios, queues) = (scenarios().map(Arc::new), every());
    let pairs = scenarios
        .iter()
        .flat_map(|s| queues.iter().map(move |q| (s, q)));
    for (scenario, queue) in pairs {
        let mut world = World::builder(scenario.clone())
            .queue(queue.as_str())
            .seed(1)
            .series(100 * MS)
            .build()
            .expect("a world");
        // An arbitrary time within the run.
        assert_eq!(
            world.run_until(Instant::from_nanos(141_592_653) + scenario.duration / 2),
            Status::Done
        );
        let (clone, mut changed) = (world.clone(), world.clone());
        let end = Instant::ZERO + scenario.duration;
        let original = finish(world, end);
        assert_eq!(original, finish(clone, end), "{queue}");
        // The comparison notices a change.
        if queue.split(' ').next() == Some("pfifo") {
            let limit = Knobs {
                limit_packets: Some(5),
                ..Knobs::KEEP
            };
            changed.set_knobs(0, None, &limit).expect("its knob");
            assert_ne!(original, finish(changed, end));
        }
    }
}
