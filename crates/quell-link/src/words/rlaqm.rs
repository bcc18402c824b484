//! `rlaqm`: a FIFO whose drop probability a network sets. The network comes from a file or is one
//! that quell ships.

use quell_qdisc::control::networks::Networks;
use quell_qdisc::control::rlaqm::dqn::PeriodReward;
use quell_qdisc::control::rlaqm::learn::Learning;
use quell_qdisc::control::{Control, LearnedState, rlaqm};
use quell_qdisc::policy::Policy;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, US};
use quell_qdisc::{disciplines, fifo};

use super::model::{Model, ShippedNetwork, networks, shipped_network};
use super::rows::*;
use super::{Built, Field, Kind, Spec};
use crate::error::Error;

/// A network that quell ships (`models/`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Shipped {
    /// Trained with the paper's reward, in the usual reading of its "DQN".
    #[default]
    Paper,
    /// Trained as in the authors' code.
    AsPublished,
    /// Trained with a reward for a full link.
    Throughput,
}

/// The shipped networks, in the order of [`Shipped`].
static SHIPPED: [ShippedNetwork; 3] = [
    shipped_network!("rl-aqm"),
    shipped_network!("rl-aqm-as-published"),
    shipped_network!("rl-aqm-throughput"),
];

impl Shipped {
    fn network(self) -> &'static ShippedNetwork {
        &SHIPPED[self as usize]
    }
}

/// Reward for `learn`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Reward {
    /// The reward of the network's training: with `throughput` that of this network, else the
    /// paper's.
    #[default]
    Own,
    /// The paper's reward.
    Paper,
    /// The reward of the network `throughput`, for a full link.
    Throughput,
}

/// The parsed words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    /// The controller's parameters.
    pub params: rlaqm::Params,
    /// Whether to use the network [`Shipped::AsPublished`].
    pub as_published: bool,
    /// Whether to use the network [`Shipped::Throughput`].
    pub throughput: bool,
    /// Whether the network continues to learn.
    pub learn: bool,
    /// Reward for learning.
    pub reward: Reward,
    /// Whether ECN-capable packets are marked instead of dropped.
    pub ecn: bool,
    /// A network that replaces the shipped one, and its file.
    pub model: Model,
    /// Networks from which `learn` continues.
    pub learned: Option<Networks>,
}

impl Words {
    fn shipped(&self) -> Shipped {
        match (self.as_published, self.throughput) {
            (true, _) => Shipped::AsPublished,
            (_, true) => Shipped::Throughput,
            _ => Shipped::Paper,
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        let networks = [self.as_published, self.throughput, self.model.is_given()];
        if networks.iter().filter(|given| **given).count() > 1 {
            return Err("one network: as_published, throughput or a model");
        }
        if !self.model.is_given() {
            self.shipped().network().check()?;
        }
        if self.reward != Reward::Own && !self.learn {
            return Err("reward is what learn learns from: add learn, or leave reward out");
        }
        if self.learn && self.controller().is_none() {
            return Err(
                "learn needs a network of values that reads delay and utilisation (not as_published)",
            );
        }
        self.params.check()
    }

    /// The reward for learning, with the constants of `quell train rl-aqm`.
    fn reward(&self) -> PeriodReward {
        let throughput = match self.reward {
            Reward::Own => self.throughput,
            Reward::Paper => false,
            Reward::Throughput => true,
        };
        match throughput {
            true => PeriodReward {
                weight: 10.0,
                square: true,
                scale_ms: 20.0,
            },
            false => PeriodReward::PAPER,
        }
    }

    /// The controller; `None` if the network does not fit, which `check` has excluded.
    fn controller(&self) -> Option<Box<dyn Control>> {
        let policy = self.model.or(Some(self.shipped().network()))?;
        let controller = rlaqm::RlAqm::new(self.params.clone(), policy).ok()?;
        if self.learn {
            let reward = self.reward();
            let learning = match &self.learned {
                Some(networks) => Learning::resume(controller, reward, networks),
                None => Learning::new(controller, reward),
            };
            return Some(Box::new(learning.ok()?));
        }
        Some(Box::new(controller))
    }
}

impl Spec for Words {
    fn build(&self, _: Rate) -> Built {
        Built {
            queue: disciplines::Params::Fifo(fifo::Params {
                ecn: self.ecn,
                ..fifo::Params::default()
            }),
            controller: self.controller(),
        }
    }

    fn set_policy(&mut self, policy: Policy) -> Result<(), Error> {
        self.model.set(policy, rlaqm::check)
    }

    fn start_from(&mut self, state: LearnedState) -> Result<(), Error> {
        self.learned = Some(networks(state, self.learn)?);
        Ok(())
    }
}

pub(super) static RLAQM: Kind<Words> = Kind {
    name: "rlaqm",
    summary: "a FIFO whose drop probability a trained network sets every 20 ms",
    source: "RL-AQM (DQN; code dhulfiqarelte/RLAQM)",
    default: Words::default,
    options: &[
        opt(
            "limit",
            Field::Count(|w| &mut w.params.limit, 1, MAX_COUNT),
            LIMIT,
        ),
        opt(
            "period",
            Field::Time(|w| &mut w.params.period, US, MAX_TIME),
            PERIOD,
        ),
        opt(
            "heuristics",
            Field::Flag(|w| &mut w.params.heuristics, "noheuristics"),
            "an empty queue reduces the probability by 0.1, regardless of the network",
        ),
        opt(
            "ceiling",
            Field::Time(|w| &mut w.params.ceiling, Duration::ZERO, MAX_TIME),
            "delay above which the probability is 0.5, whatever a network of probabilities answers (0: none)",
        ),
        opt("ecn", Field::Flag(|w| &mut w.ecn, "noecn"), ECN),
        opt(
            "epsilon",
            Field::Probability(|w| &mut w.params.epsilon),
            "probability of a random step instead of the network's",
        ),
        opt(
            "as_published",
            Field::Flag(|w| &mut w.as_published, ""),
            "the network trained as in the authors' code: softmax head, no replay",
        ),
        opt(
            "throughput",
            Field::Flag(|w| &mut w.throughput, ""),
            "a network trained for a full link, where the paper's reward prefers an empty queue",
        ),
        opt(
            "learn",
            Field::Flag(|w| &mut w.learn, ""),
            "the network continues to learn from its decisions (in simulations and in quell live)",
        ),
        opt(
            "reward",
            Field::Choice {
                what: "reward",
                words: "own|paper|throughput",
                set: |w, word| {
                    w.reward = match word {
                        "paper" => Reward::Paper,
                        "throughput" => Reward::Throughput,
                        _ => Reward::Own,
                    }
                },
                get: |w| match w.reward {
                    Reward::Own => "own",
                    Reward::Paper => "paper",
                    Reward::Throughput => "throughput",
                },
            },
            "what learn learns from (own: throughput's with throughput, else the paper's)",
        ),
        opt(
            "model",
            Field::Other {
                syntax: "FILE",
                set: |w, file| w.model.load(file, rlaqm::check),
                get: |w| w.model.file().to_owned(),
            },
            "a network from quell train rl-aqm instead of a shipped one (no blanks in its path)",
        ),
    ],
    check: Words::check,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManagedQueue;
    use crate::queue::NoObserver;
    use crate::words::Queue;
    use crate::words::tests::is;
    use quell_qdisc::packet::TestPacket;
    use quell_qdisc::time::Instant;

    #[test]
    fn the_shipped_networks_load_and_their_cards_name_what_the_controller_reads() {
        let all = [Shipped::Paper, Shipped::AsPublished, Shipped::Throughput];
        let activations = all.map(|shipped| {
            let policy = shipped.network().policy().unwrap();
            rlaqm::check(&policy).unwrap();
            let names: Vec<_> = policy.card().inputs.iter().map(|i| &i.name[..]).collect();
            assert_eq!(names, ["delay_ms", "utilisation", "drop"]);
            assert!(policy.card().trained_on.contains("quell train rl-aqm"));
            policy.card().heads[0].activation
        });
        use quell_qdisc::policy::Activation::{Linear, Softmax};
        assert_eq!(activations, [Linear, Softmax, Linear]);
    }

    #[test]
    fn the_word_builds_a_fifo_of_5000_packets_under_the_controller() {
        let queue = Queue::parse("rlaqm").unwrap();
        let built = queue.build(Rate::from_mbit(10));
        assert!(is::<rlaqm::RlAqm>(&built));
        let queue = ManagedQueue::<TestPacket, _>::new(
            built,
            Rate::from_mbit(10),
            quell_qdisc::Rng::new(1, "t"),
            NoObserver,
        );
        assert_eq!(queue.positions(Instant::ZERO), (5000, 0.0));
    }

    #[test]
    fn one_word_chooses_another_shipped_network() {
        for words in ["rlaqm as_published", "rlaqm throughput"] {
            let queue = Queue::parse(words).unwrap();
            assert_eq!(queue.canonical(), words);
            assert_ne!(queue, Queue::parse("rlaqm").unwrap());
        }
        let both = Queue::parse("rlaqm throughput as_published").unwrap_err();
        assert!(both.to_string().contains("one network"), "{both}");
    }

    #[test]
    fn one_that_learns_needs_values_and_a_learner_beside_it() {
        let queue = Queue::parse("rlaqm throughput learn guard").unwrap();
        assert_eq!(queue.canonical(), "rlaqm throughput learn guard");
        let error = Queue::parse("rlaqm as_published learn").unwrap_err();
        assert!(error.to_string().contains("not as_published"), "{error}");
        for words in ["rlaqm learn", "rlaqm learn guard"] {
            let error = Queue::parse_without_learner(words).unwrap_err().to_string();
            assert_eq!(
                error,
                "rlaqm: learn: works in simulations and in quell live only; leave learn out"
            );
        }
        assert!(Queue::parse_without_learner("rlaqm guard").is_ok());
    }

    #[test]
    fn the_reward_is_that_of_the_network_or_the_one_that_is_named() {
        for words in ["rlaqm reward paper", "rlaqm throughput reward throughput"] {
            assert_eq!(
                Queue::parse(words).expect_err(words).to_string(),
                "rlaqm: reward is what learn learns from: add learn, or leave reward out"
            );
        }
        let weight = |words: &str| {
            let queue = Queue::parse(words).unwrap();
            queue.spec::<Words>().unwrap().reward().weight
        };
        assert_eq!(weight("rlaqm learn"), 1.0);
        assert_eq!(weight("rlaqm learn throughput"), 10.0);
        assert_eq!(weight("rlaqm learn reward throughput"), 10.0);
        assert_eq!(weight("rlaqm learn throughput reward paper"), 1.0);
    }

    #[test]
    fn a_model_from_a_file_is_kept_in_the_canonical_words() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/models/rl-aqm.safetensors");
        let words = format!("rlaqm noheuristics epsilon 0.01 model {file}");
        let queue = Queue::parse(&words).unwrap();
        assert_eq!(queue.canonical(), words);
        assert_ne!(
            queue,
            Queue::parse("rlaqm noheuristics epsilon 0.01").unwrap()
        );
    }

    #[test]
    fn a_file_that_is_missing_or_no_policy_is_refused_in_one_line() {
        for file in [
            "/nonexistent.safetensors",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ] {
            let error = Queue::parse(&format!("rlaqm model {file}"))
                .unwrap_err()
                .to_string();
            assert!(error.contains(file) && !error.contains('\n'), "{error}");
        }
    }
}
