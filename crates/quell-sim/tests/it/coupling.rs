//! The coupling of `l4s` balances rates and keeps the L4S queue short; that of the published kernel
//! file does neither.

use std::sync::atomic::AtomicBool;

use quell_link::record::Run;
use quell_sim::RunOptions;
use quell_sim::scenario::{Overrides, Scenario};

/// One scalable flow and four classic ones in the two queues of one pair. Round robin alone would
/// give the scalable flow as much as the four together.
const SCENARIO: &str = r#"
    duration = "30s"
    warmup = "10s"
    [link]
    rate = "40mbit"
    delay = "2ms"
    shaper = "htb"
    overhead = 14
    [[flow]]
    kind = "tcp"
    cc = "dctcp"
    count = 1
    ect = 1
    rtt = "20ms"
    stagger = "100ms"
    [[flow]]
    kind = "tcp"
    cc = "cubic"
    count = 4
    rtt = "20ms"
    stagger = "100ms"
"#;

/// Means over three seeds: ratio of the scalable flow's rate to a classic flow's, and queueing
/// delay of the scalable flow, ms.
fn measure(queue: &str) -> (f64, f64) {
    let (scenario, never) = (
        Scenario::parse(SCENARIO, "coupling", &Overrides::default()).expect("a scenario"),
        AtomicBool::new(false),
    );
    let one = |seed| -> Run {
        quell_sim::run(&scenario, queue, seed, &RunOptions::default(), &never).expect("a run")
    };
    let runs: Vec<Run> = (1..=3).map(one).collect();
    let mean = |f: fn(&Run) -> f64| runs.iter().map(f).sum::<f64>() / runs.len() as f64;
    let rate = mean(|r| r.flows[0].goodput_mbps);
    let classic = mean(|r| r.flows[1..].iter().map(|f| f.goodput_mbps).sum::<f64>() / 4.0);
    let delay = mean(|r| r.flows[0].rtt_ms.map_or(f64::NAN, |rtt| rtt.mean - 20.0));
    (rate / classic, delay)
}

#[test]
fn the_coupling_balances_rates_and_keeps_the_l4s_queue_short_and_the_published_one_does_neither() {
    let (ratio, delay) = measure("l4s pairs 1");
    assert!((0.67..1.6).contains(&ratio), "designed: {ratio}");
    assert!(delay < 2.0, "designed: {delay} ms");
    for published in [
        "l4s pairs 1 ineffective_coupling",
        "l4s pairs 1 as_published",
    ] {
        // Round robin gives half of the link to the scalable flow, four times a classic flow's
        // share. Its queue is at PIE's target of 15 ms or longer.
        let (ratio, delay) = measure(published);
        assert!(ratio > 3.5, "{published}: {ratio}");
        assert!(delay > 15.0, "{published}: {delay} ms");
    }
}
