//! `rlaqm learn` on a queue whose delay depends only on its choice. As unit tests, which are
//! compiled without optimisation, these would take twenty times as long.

use quell_qdisc::control::Control;
use quell_qdisc::control::learn::Learner;
use quell_qdisc::control::rlaqm::dqn::PeriodReward;
use quell_qdisc::control::rlaqm::learn::Learning;
use quell_qdisc::control::rlaqm::{Params, RlAqm};
use quell_qdisc::policy::{Activation, Affine, Head, Policy};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::Duration;
use quell_qdisc::{Gauges, Knobs, Rng};

use crate::recorded_control::{input, linear};

const PAPER: PeriodReward = PeriodReward::PAPER;
const PERIOD: Duration = Duration::from_millis(200);

/// A network that always takes the first of two probabilities.
fn first() -> Policy {
    let inputs = vec![input("delay_ms", 0.0, 0.02), input("utilisation", 0.0, 1.0)];
    let head = Head {
        name: "value".into(),
        activation: Activation::Linear,
        outputs: vec!["drop = 0".into(), "drop = 0.5".into()],
    };
    let affine = Affine {
        weight: vec![0.0; 4],
        bias: vec![0.1, 0.0],
    };
    linear(inputs, vec![head], &[affine])
}

/// A queue on a busy link of 10 Mbit/s, with `delays_ms` as its delay after a probability of 0 and
/// of 0.5.
#[derive(Clone)]
struct Toy {
    delays_ms: [u64; 2],
    first: Policy,
    learning: Learning,
    learner: Box<dyn Learner>,
    gauges: Gauges,
    rng: Rng,
}

impl Toy {
    fn new(delays_ms: [u64; 2]) -> Self {
        let first = first();
        let params = Params {
            period: PERIOD,
            ceiling: Duration::ZERO,
            ..Params::default()
        };
        let acting = RlAqm::new(params, first.clone()).unwrap();
        let mut learning = Learning::new(acting, PAPER).unwrap();
        Self {
            delays_ms,
            first,
            learner: learning.learner().expect("a learner"),
            learning,
            gauges: Gauges {
                rate: Rate::from_mbit(10),
                ..Gauges::default()
            },
            rng: Rng::new(1, "toy"),
        }
    }

    /// Makes decisions and returns the share of them that chose 0.5.
    fn play(&mut self, decisions: u32) -> f64 {
        let mut high = 0;
        for _ in 0..decisions {
            self.gauges.now += PERIOD;
            self.gauges.departed_bytes += 10_000_000 / 8 / 5;
            let knobs = self.learning.decide(&self.gauges, &mut [], &mut self.rng);
            let chose_high = knobs.drop == Some(0.5);
            high += u32::from(chose_high);
            let delay_ms = self.delays_ms[usize::from(chose_high)];
            self.gauges.backlog_bytes = delay_ms * 10_000_000 / 8 / 1000;
            self.learner.take(self.learning.samples().expect("samples"));
            if let Some(update) = self.learner.train() {
                self.learning.install(update);
            }
        }
        f64::from(high) / f64::from(decisions)
    }

    fn first_is_in_force(&self) -> bool {
        self.learning.champion().is_same(&self.first)
    }
}

#[test]
fn a_better_network_is_found_and_replaces_the_first_and_the_first_returns_when_it_is_better_again()
{
    let mut toy = Toy::new([40, 1]);
    let before = toy.play(1000);
    // Only exploration chooses 0.5.
    assert!((0.002..0.03).contains(&before), "{before}");
    toy.play(20_000);
    let progress = toy.learning.progress();
    assert!(progress.promoted >= 1, "{progress:?}");
    assert!(!toy.first_is_in_force());
    toy.delays_ms = [1, 40];
    toy.play(15_000);
    let after = toy.play(3000);
    assert!(after < 0.3, "{after}");
}

#[test]
fn where_the_first_network_is_the_best_its_choices_stay() {
    let mut toy = Toy::new([1, 40]);
    let high = toy.play(15_000);
    assert!(toy.learning.progress().tried >= 1 && high < 0.15, "{high}");
}

#[test]
fn while_another_controller_acts_nothing_is_learned_and_the_first_network_returns() {
    let mut toy = Toy::new([40, 1]);
    toy.play(20_000);
    assert!(!toy.first_is_in_force());
    for _ in 0..10 {
        toy.gauges.now += PERIOD;
        toy.learning.decide(&toy.gauges, &mut [], &mut toy.rng);
        toy.learning.adopt(&Knobs::KEEP);
    }
    assert!(toy.first_is_in_force());
    assert_eq!(toy.learning.progress().reset, 1);
    let mut samples = 0;
    let outbox = toy.learning.samples().expect("samples");
    outbox.drain(|_, _, _| samples += 1);
    assert_eq!(samples, 0);
}

#[test]
fn a_clone_continues_alike() {
    let mut toy = Toy::new([40, 1]);
    toy.play(4000);
    let mut other = toy.clone();
    assert_eq!(toy.play(4000), other.play(4000));
    assert_eq!(toy.learning.progress(), other.learning.progress());
    assert_eq!(format!("{:?}", toy.learner), format!("{:?}", other.learner));
}
