use super::super::tests::linear;
use super::*;
use crate::control::rlaqm::Params;

const PAPER: PeriodReward = PeriodReward {
    weight: 1.0,
    square: true,
    scale_ms: 5.0,
};
const PERIOD: Nanos = 200 * MS;

/// A network that always takes the first of two probabilities.
fn first() -> Policy {
    let inputs = [("delay_ms", 0.02), ("utilisation", 1.0)];
    linear(&inputs, &["drop = 0", "drop = 0.5"], &[0.0; 4], &[0.1, 0.0])
}

fn learning() -> Learning {
    with_period(PERIOD)
}

fn with_period(period: Nanos) -> Learning {
    let params = Params {
        period,
        ceiling: 0,
        ..Params::default()
    };
    Learning::new(RlAqm::new(params, first()).unwrap(), PAPER).unwrap()
}

/// A queue on a link of 10 Mbit/s, full, whose delay is this after a probability of 0 and of 0.5.
struct Toy {
    delays_ms: [u64; 2],
    gauges: Gauges,
    rng: Rng,
    learner: Option<Box<Learner>>,
}

impl Toy {
    fn new(delays_ms: [u64; 2]) -> Self {
        Self {
            delays_ms,
            gauges: Gauges {
                rate_bps: 10_000_000,
                ..Gauges::default()
            },
            rng: Rng::new(1, "toy"),
            learner: None,
        }
    }

    /// Makes decisions; the share of them that took 0.5.
    fn play(&mut self, learning: &mut Learning, decisions: u32) -> f64 {
        let mut high = 0;
        self.learner = learning.learner().or(self.learner.take());
        let learner = self.learner.as_mut().expect("a learner");
        for _ in 0..decisions {
            self.gauges.now += PERIOD;
            self.gauges.departed_bytes += 10_000_000 / 8 / 5;
            let knobs = learning.decide(&self.gauges, &mut [], &mut self.rng);
            let chose_high = knobs.drop == Some(0.5);
            high += u32::from(chose_high);
            let delay_ms = self.delays_ms[usize::from(chose_high)];
            self.gauges.backlog_bytes = delay_ms * 10_000_000 / 8 / 1000;
            learner.take(&mut learning.outbox);
            if let Some(policy) = learner.turn() {
                learning.install(policy);
            }
        }
        f64::from(high) / f64::from(decisions)
    }
}

#[test]
fn a_better_network_is_found_and_replaces_the_first_and_the_first_returns_when_it_is_better_again()
{
    let (mut learning, mut toy) = (learning(), Toy::new([40, 1]));
    let before = toy.play(&mut learning, 1000);
    // Exploration alone.
    assert!((0.002..0.03).contains(&before), "{before}");
    toy.play(&mut learning, 20_000);
    assert!(
        learning.progress().promoted >= 1,
        "{:?}",
        learning.progress()
    );
    assert!(!learning.champion().is_same(&learning.first));
    toy.delays_ms = [1, 40];
    toy.play(&mut learning, 15_000);
    let after = toy.play(&mut learning, 3000);
    assert!(after < 0.3, "{after}");
}

#[test]
fn where_the_first_network_is_the_best_its_choices_stay() {
    let (mut learning, mut toy) = (learning(), Toy::new([1, 40]));
    let high = toy.play(&mut learning, 15_000);
    assert!(learning.progress().tried >= 1 && high < 0.15, "{high}");
}

#[test]
fn while_another_controller_acts_nothing_is_learned_and_the_first_network_returns() {
    let (mut learning, mut toy) = (learning(), Toy::new([40, 1]));
    toy.play(&mut learning, 20_000);
    assert!(!learning.champion().is_same(&learning.first));
    let learner = toy.learner.take().expect("a learner");
    let seen = learner.seen;
    for _ in 0..10 {
        toy.gauges.now += PERIOD;
        learning.decide(&toy.gauges, &mut [], &mut toy.rng);
        learning.adopt(&Knobs::KEEP);
    }
    assert!(learning.champion().is_same(&learning.first));
    assert_eq!(learning.progress().reset, 1);
    let mut learner = learner;
    learner.take(&mut learning.outbox);
    assert_eq!(learner.seen, seen);
}

#[test]
fn each_block_skips_the_other_networks_last_reward_and_counts_one_of_its_own() {
    let blocks = |period| {
        let Blocks {
            length, skipped, ..
        } = with_period(period).blocks();
        (length, skipped)
    };
    assert_eq!(blocks(20 * MS), (500, 100));
    assert_eq!(blocks(2 * SEC), (5, 1));
    assert_eq!(blocks(3 * SEC), (3, 1));
    assert_eq!(blocks(6 * SEC), (2, 1));
    assert_eq!(blocks(10 * SEC), (2, 1));
}

#[test]
fn a_clone_continues_alike() {
    let (mut a, mut toy) = (learning(), Toy::new([40, 1]));
    toy.play(&mut a, 4000);
    let (mut b, mut other) = (
        a.clone(),
        Toy {
            gauges: toy.gauges,
            rng: toy.rng.clone(),
            learner: toy.learner.clone(),
            ..Toy::new([40, 1])
        },
    );
    assert_eq!(toy.play(&mut a, 4000), other.play(&mut b, 4000));
    assert_eq!(a.progress(), b.progress());
    let weights = |learner: &Toy| learner.learner.as_ref().map(|l| l.dqn.state().online);
    assert_eq!(weights(&toy), weights(&other));
}

#[test]
fn a_network_of_probabilities_without_values_is_refused() {
    let inputs = [("delay_ms", 0.02), ("utilisation", 1.0)];
    let law = linear(&inputs, &["drop"], &[0.0; 2], &[0.0]);
    let law = RlAqm::new(Params::default(), law).unwrap();
    assert!(Learning::new(law, PAPER).is_err());
}
