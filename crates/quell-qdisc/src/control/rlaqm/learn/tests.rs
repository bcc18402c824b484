use super::super::tests::linear;
use super::*;
use crate::control::rlaqm::Params;
use crate::rate::Rate;
use crate::time::{MS, SEC};

const PAPER: PeriodReward = PeriodReward::PAPER;

#[test]
fn each_block_skips_the_other_networks_last_reward_and_counts_one_of_its_own() {
    let blocks = |period| {
        let inputs = [("delay_ms", 0.02), ("utilisation", 1.0)];
        let law = linear(&inputs, &["drop = 0", "drop = 0.5"], &[0.0; 4], &[0.1, 0.0]);
        let params = Params {
            period,
            ..Params::default()
        };
        let learning = Learning::new(RlAqm::new(params, law).unwrap(), PAPER).unwrap();
        let Blocks {
            length, skipped, ..
        } = learning.blocks();
        (length, skipped)
    };
    assert_eq!(blocks(20 * MS), (250, 50));
    assert_eq!(blocks(SEC), (5, 1));
    assert_eq!(blocks(2 * SEC), (2, 1));
    assert_eq!(blocks(6 * SEC), (2, 1));
    assert_eq!(blocks(10 * SEC), (2, 1));
}

#[test]
fn a_network_of_probabilities_without_values_is_refused() {
    let inputs = [("delay_ms", 0.02), ("utilisation", 1.0)];
    let law = linear(&inputs, &["drop"], &[0.0; 2], &[0.0]);
    let law = RlAqm::new(Params::default(), law).unwrap();
    assert!(Learning::new(law, PAPER).is_err());
}

#[test]
fn a_network_that_is_tried_is_rejected_at_once_if_the_delay_is_too_long() {
    let inputs = [("delay_ms", 0.02), ("utilisation", 1.0)];
    let law = |bias: &[f32]| linear(&inputs, &["drop = 0", "drop = 0.5"], &[0.0; 4], bias);
    let acting = RlAqm::new(Params::default(), law(&[0.1, 0.0])).unwrap();
    let mut learning = Learning::new(acting, PAPER).unwrap();
    learning.install(Update {
        network: law(&[0.0, 0.1]),
        critic: None,
        resets: 0,
    });
    let mut rng = Rng::new(1, "test");
    let mut gauges = Gauges {
        rate: Rate::from_mbit(8),
        ..Gauges::default()
    };
    let mut decide = |learning: &mut Learning, delay_ms: u64| {
        gauges.now += 20 * MS;
        gauges.backlog_bytes = 1000 * delay_ms;
        learning.decide(&gauges, &mut [], &mut rng);
    };
    decide(&mut learning, 10);
    // The order of the two blocks is random.
    while !learning
        .candidate
        .as_ref()
        .expect("a trial")
        .1
        .candidate_acts()
    {
        decide(&mut learning, 300);
    }
    decide(&mut learning, 250);
    assert!(learning.candidate.is_some());
    decide(&mut learning, 251);
    assert!(learning.candidate.is_none());
    assert!(learning.acting.policy.is_same(&learning.start.first));
    // The pause has begun.
    assert_eq!(learning.pause_left, FIRST_PAUSE - 1);
}
