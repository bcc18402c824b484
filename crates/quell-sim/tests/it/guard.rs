//! A guarded controller in a world: the guard changes nothing while readings and decisions are
//! sound, and in a dry run the learned controller only proposes.

use std::sync::atomic::AtomicBool;

use quell_link::record::Run;
use quell_sim::RunOptions;
use quell_sim::scenario::{Overrides, Scenario};

fn run(queue: &str) -> Run {
    let text = r#"
        duration = "10s"
        warmup = "1s"
        [link]
        rate = "10mbit"
        delay = "10ms"
        [[flow]]
        kind = "tcp"
        cc = "newreno"
        count = 2
        rtt = "40ms"
    "#;
    let scenario = Scenario::parse(text, "guard", &Overrides::default()).expect("a scenario");
    let never = AtomicBool::new(false);
    quell_sim::run(&scenario, queue, 1, &RunOptions::default(), &never).expect("a run")
}

#[test]
fn a_guard_changes_nothing_while_readings_and_decisions_are_sound() {
    for queue in ["rlaqm", "learnqueue initial 40 max 80"] {
        let (bare, guarded) = (run(queue), run(&format!("{queue} guard")));
        assert_eq!(bare.trace_hash, guarded.trace_hash, "{queue}");
        assert_eq!(bare.guard, None);
        let guard = guarded.guard.expect("a guard's counts");
        assert!(guard.decisions >= 499, "{guard:?}");
        assert_eq!((guard.learned, guard.fallbacks), (guard.decisions, 0));
        assert_eq!(guard.proposed, guard.set);
    }
}

#[test]
fn a_dry_run_leaves_the_queue_to_the_classic_controller() {
    let run = run("rlaqm dry_run");
    let guard = run.guard.expect("a guard's counts");
    assert_eq!(guard.learned, 0);
    assert_eq!(guard.proposed > 0.0, guard.set > 0.0);
    // PIE, the classic controller, keeps the delay near its target of 15 ms; RL-AQM would not.
    assert!(
        (8.0..25.0).contains(&run.sojourn_ms.mean),
        "{:?}",
        run.sojourn_ms
    );
}

#[test]
fn the_policy_of_hush_is_guarded_and_its_dry_run_equals_fq_codel() {
    let hush = run("hush");
    let guard = hush.guard.expect("a guard's counts");
    assert!(guard.decisions > 300, "{guard:?}");
    assert_eq!((guard.learned, guard.fallbacks), (guard.decisions, 0));
    assert_eq!(guard.proposed, guard.set);
    let dry = run("hush dry_run");
    assert_eq!(dry.trace_hash, run("fq_codel").trace_hash);
    assert_ne!(dry.trace_hash, hush.trace_hash);
    let guard = dry.guard.expect("a guard's counts");
    assert_eq!((guard.learned, guard.set), (0, 5.0));
}
