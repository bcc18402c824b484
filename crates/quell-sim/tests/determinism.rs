//! Same seed, same packets: for any number of threads, and for a clone as for its original.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use quell_qdisc::{Knobs, MS, Nanos};
use quell_sim::scenario::{Overrides, Scenario};
use quell_sim::{RunOptions, Status, World};

const QUEUES: &[&str] = &[
    "pfifo limit 100",
    "red",
    "codel",
    "pie",
    "fq",
    "fq_codel",
    "fq_pie",
    "dualpi2",
    "l4s",
    "cobalt",
    "cake",
    "learnqueue",
    "rlaqm",
    "wqm",
    "lfq limit 20",
];

/// Everything that draws from the seed: staggered starts, random loss, Poisson and on-off traffic, PIE's dice, hash keys,
/// over a path of two queues and a way up with its own.
const SCENARIO: &str = r#"
    duration = "6s"
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

/// The hashes over all packet events of every queue with two seeds, run on this many threads.
fn compare(threads: usize) -> Vec<String> {
    let scenario = Scenario::parse(SCENARIO, "determinism", &Overrides::default())
        .expect("a well-formed scenario");
    let jobs: Vec<(&str, u64)> = QUEUES
        .iter()
        .flat_map(|queue| [(*queue, 1), (*queue, 2)])
        .collect();
    let (next, never) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(queue, seed)) = jobs.get(index) else {
                return done;
            };
            let run = quell_sim::run(&scenario, queue, seed, &RunOptions::default(), &never)
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
fn another_seed_and_another_queue_are_another_run() {
    let mut hashes = compare(1);
    let all = hashes.len();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), all);
}

/// Runs to the end and tells all that a record holds but what it cost.
fn finish(mut world: World, end: Nanos) -> String {
    while world.run_until(end) != Status::Done {}
    format!("{:?}", world.record(0.0))
}

#[test]
fn a_cloned_world_continues_bit_for_bit_like_the_original() {
    let scenario = Arc::new(
        Scenario::parse(SCENARIO, "determinism", &Overrides::default())
            .expect("a well-formed scenario"),
    );
    for queue in QUEUES {
        let mut world = World::new(scenario.clone(), queue, 1, Some(100 * MS)).expect("a world");
        // An odd time, in the middle of everything.
        assert_eq!(world.run_until(3_141_592_653), Status::Done);
        let (fork, other_queue) = (world.clone(), {
            let mut fork = world.clone();
            // Some queues have no such knob.
            let _ = fork.set_knobs(
                0,
                None,
                &Knobs {
                    limit_packets: Some(5),
                    ..Knobs::KEEP
                },
            );
            fork
        });
        let original = finish(world, scenario.duration);
        assert_eq!(original, finish(fork, scenario.duration), "{queue}");
        // The comparison sees a change: a fork whose limit was turned, where the queue has that knob.
        if queue.starts_with("pfifo") {
            assert_ne!(original, finish(other_queue, scenario.duration));
        }
    }
}
