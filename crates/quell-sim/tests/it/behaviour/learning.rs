//! `rlaqm learn`, a network that continues to learn, in a world.

use std::any::Any;

use quell_qdisc::control::rlaqm::learn::{Learning, Progress};
use quell_qdisc::time::{Instant, NEVER};
use quell_sim::World;

use super::common::world;

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
    // So does the same seed, from the start.
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
