//! `rlaqm learn` and `lfq learn`, whose networks continue to learn, in a world.

use std::any::Any;

use quell_qdisc::control::lfq;
use quell_qdisc::control::rlaqm::learn::{Learning, Progress};
use quell_qdisc::time::{Instant, NEVER};
use quell_sim::World;

use super::common::{gauges_at, world};

fn link(queue: &str) -> World {
    world(&format!(
        "duration = \"100s\"\nwarmup = \"0s\"\n[link]\nrate = \"5mbit\"\nqueue = \"{queue}\"\n\
         [[flow]]\ncc = \"newreno\"\ncount = 3\nrtt = \"20ms\"\n"
    ))
}

fn progress(world: &World) -> Progress {
    let controller = world.controller(0).map(|c| c as &dyn Any);
    let learning = controller.and_then(|c| c.downcast_ref::<Learning>());
    learning.expect("rlaqm learn").progress()
}

#[test]
fn rlaqm_learn_tries_its_new_network_and_a_clone_of_its_world_continues_equally() {
    let mut one = link("rlaqm learn");
    one.run_until(Instant::from_secs(80));
    assert!(progress(&one).tried >= 1, "{:?}", progress(&one));
    let mut other = one.clone();
    for world in [&mut one, &mut other] {
        world.run_until(NEVER);
    }
    assert_eq!(progress(&one), progress(&other));
    let hash = |world: &mut World| world.record(0.0).trace_hash;
    assert_eq!(hash(&mut one), hash(&mut other));
    // A new world with the same seed runs equally, too.
    let mut again = link("rlaqm learn");
    again.run_until(NEVER);
    assert_eq!(hash(&mut one), hash(&mut again));
    let mut frozen = link("rlaqm");
    frozen.run_until(NEVER);
    assert_ne!(hash(&mut one), hash(&mut frozen));
}

#[test]
fn under_a_dry_guard_nothing_is_learned() {
    let mut guarded = link("rlaqm learn dry_run");
    let mut classic = link("rlaqm dry_run");
    for world in [&mut guarded, &mut classic] {
        world.run_until(NEVER);
    }
    // The classic controller decides in both; the proposals differ only by exploration.
    let stats = |world: &World| {
        *world
            .controller(0)
            .and_then(|c| c.guard())
            .expect("a guard")
    };
    assert_eq!(stats(&guarded).learned, 0);
    let mean = |s: quell_qdisc::control::guard::Stats| s.proposed_sum / s.proposals as f64;
    let (learning, frozen) = (mean(stats(&guarded)), mean(stats(&classic)));
    assert!((learning - frozen).abs() < 0.01, "{learning} {frozen}");
}

/// Ten flows that get 300 kbit/s each; the network was trained on 5 Mbit/s and more.
fn flows(queue: &str) -> World {
    world(&format!(
        "duration = \"1600s\"\nwarmup = \"0s\"\n[link]\nrate = \"3mbit\"\nqueue = \"{queue}\"\n\
         [[flow]]\ncc = \"newreno\"\ncount = 10\nrtt = \"60ms\"\nstagger = \"2s\"\n"
    ))
}

fn lfq_progress(world: &World) -> lfq::learn::Progress {
    let controller = world.controller(0).map(|c| c as &dyn Any);
    let learning = controller.and_then(|c| c.downcast_ref::<lfq::learn::Learning>());
    learning.expect("lfq learn").progress()
}

/// The reward of `lfq alpha 10 learn` for the whole queue in the last 200 s, 1e6 bytes/s:
/// throughput less 10/s times the mean of the queued bytes.
fn reward_at_the_end(world: &mut World) -> f64 {
    let before = gauges_at(world, Instant::from_secs(1400));
    let after = gauges_at(world, NEVER);
    let rate = (after.departed_bytes - before.departed_bytes) as f64 / 200.0;
    let queued = (after.backlog_ns - before.backlog_ns) as f64 / 200e9;
    (rate - 10.0 * 1446.0 * queued) / 1e6
}

#[test]
fn lfq_learn_earns_more_than_the_frozen_network_on_a_link_unlike_those_of_its_training() {
    let mut learning = flows("lfq alpha 10 learn");
    let mut frozen = flows("lfq alpha 10");
    let [learned, before] = [&mut learning, &mut frozen].map(reward_at_the_end);
    println!("{learned} {before} {:?}", lfq_progress(&learning));
    // No learned network gave an output that is not finite, so the first one was never restored.
    assert_eq!(lfq_progress(&learning).reset, 0);
    // A full link without a queue earns 0.375.
    assert!(learned > 0.2 && before < 0.0, "{learned} {before}");
}

#[test]
fn a_clone_of_a_world_with_lfq_learn_continues_equally() {
    let mut one = flows("lfq alpha 10 learn");
    one.run_until(Instant::from_secs(300));
    let mut other = one.clone();
    for world in [&mut one, &mut other] {
        world.run_until(Instant::from_secs(700));
    }
    assert!(
        lfq_progress(&one).installed >= 1,
        "{:?}",
        lfq_progress(&one)
    );
    assert_eq!(lfq_progress(&one), lfq_progress(&other));
    let hash = |world: &mut World| world.record(0.0).trace_hash;
    assert_eq!(hash(&mut one), hash(&mut other));
}

#[test]
fn under_a_dry_guard_lfq_learns_nothing() {
    let mut guarded = flows("lfq alpha 10 learn dry_run");
    guarded.run_until(Instant::from_secs(100));
    let mut controller = guarded.controller(0).expect("a guard").clone_control();
    assert_eq!(controller.guard().expect("a guard").learned, 0);
    let mut samples = 0;
    controller
        .samples()
        .expect("samples")
        .drain(|_, _, _| samples += 1);
    assert_eq!(samples, 0);
}
