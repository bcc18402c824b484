use super::super::tests::linear;
use super::*;
use crate::control::rlaqm::Params;
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
