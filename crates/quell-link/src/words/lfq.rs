//! `lfq`: a fair queue in which a network sets each flow's limit. The network comes from a file or
//! is one of those that quell ships.

use quell_qdisc::control::lfq::learn::{self, Learning};
use quell_qdisc::control::networks::Networks;
use quell_qdisc::control::{Control, LearnedState, lfq as control};
use quell_qdisc::policy::Policy;
use quell_qdisc::{disciplines, fq_fifo};

use super::model::{Model, ShippedNetwork, networks, shipped_network};
use super::rows::*;
use super::{Built, Field, Kind, Queue, Spec};
use crate::error::Error;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::Duration;

/// A network that quell ships: the alpha of its training, and whether it was trained online.
struct Shipped {
    alpha: f64,
    online: bool,
    network: ShippedNetwork,
}

static SHIPPED: [Shipped; 3] = [
    Shipped {
        alpha: 0.01,
        online: false,
        network: shipped_network!("lfq-offline-0.01"),
    },
    Shipped {
        alpha: 10.0,
        online: false,
        network: shipped_network!("lfq-offline-10"),
    },
    Shipped {
        alpha: 10.0,
        online: true,
        network: shipped_network!("lfq-online-10"),
    },
];

/// Reward for `learn`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Reward {
    /// Throughput minus alpha times the queued data.
    #[default]
    Queue,
    /// Throughput minus alpha times the delay.
    Delay,
}

/// The parsed words.
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    /// The queue's parameters.
    pub queue: fq_fifo::Params,
    /// A fixed limit for every flow, packets, in place of the network's.
    pub limit: Option<u32>,
    /// The controller's parameters.
    pub control: control::Params,
    /// Weight of the queued data in the reward of the shipped network's training, 1/s (default
    /// 0.01); also the weight of queued data or delay in the reward for learning.
    pub alpha: f64,
    /// Whether the shipped network is one trained online.
    pub online: bool,
    /// A network that replaces the shipped one, and its file.
    pub model: Model,
    /// Whether the network's weights are rounded to integers.
    pub integers: bool,
    /// Whether the network continues to learn.
    pub learn: bool,
    /// Reward for learning.
    pub reward: Reward,
    /// Networks from which `learn` continues.
    pub learned: Option<Networks>,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            queue: fq_fifo::Params::default(),
            limit: None,
            control: control::Params::default(),
            alpha: 0.01,
            online: false,
            model: Model::default(),
            integers: false,
            learn: false,
            reward: Reward::default(),
            learned: None,
        }
    }
}

impl Words {
    /// The shipped network for these words.
    fn shipped(&self) -> Option<&'static ShippedNetwork> {
        let own = |s: &&Shipped| (s.alpha, s.online) == (self.alpha, self.online);
        SHIPPED.iter().find(own).map(|s| &s.network)
    }

    /// The network that sets the limits, if there is one.
    fn policy(&self) -> Option<Policy> {
        let policy = self.model.or(self.shipped())?;
        Some(match self.integers {
            true => policy.to_integers(),
            false => policy,
        })
    }

    /// The controller; `None` if the network does not fit, which `check` has excluded.
    fn controller(&self, policy: Policy) -> Option<Box<dyn Control>> {
        let lfq = control::Lfq::new(self.control.clone(), policy).ok()?;
        if !self.learn {
            return Some(Box::new(lfq));
        }
        let reward = match self.reward {
            Reward::Queue => learn::Reward::Queue(self.alpha),
            Reward::Delay => learn::Reward::Delay(self.alpha),
        };
        let learning = match &self.learned {
            Some(networks) => Learning::resume(lfq, reward, networks),
            None => Learning::new(lfq, reward),
        };
        Some(Box::new(learning.ok()?))
    }

    fn check(&self) -> Result<(), &'static str> {
        self.queue.check()?;
        self.control.check()?;
        if self.reward != Reward::default() && !self.learn {
            return Err("reward is what learn learns from: add learn, or leave reward out");
        }
        if self.learn && self.limit.is_some() {
            return Err("limit replaces the network that learn trains: leave one of them out");
        }
        if self.learn && self.integers {
            return Err("learn cannot train rounded weights: leave integers or learn out");
        }
        if self.limit.is_some() || self.model.is_given() {
            return Ok(());
        }
        if let Some(network) = self.shipped() {
            return network.check();
        }
        Err(
            "quell's own networks are for alpha 0.01, alpha 10, and alpha 10 online; for others give model FILE (from quell train lfq)",
        )
    }
}

impl Spec for Words {
    /// The queue and its controller; `check` has verified that a needed network exists.
    fn build(&self, _: Rate) -> Built {
        let policy = match self.limit {
            Some(_) => None,
            None => self.policy(),
        };
        let controller = policy.and_then(|policy| self.controller(policy));
        Built {
            queue: disciplines::Params::FqFifo(fq_fifo::Params {
                limit: self.limit.unwrap_or(control::INITIAL),
                ..self.queue.clone()
            }),
            controller,
        }
    }

    fn set_policy(&mut self, policy: Policy) -> Result<(), Error> {
        self.model.set(policy, control::check)
    }

    fn start_from(&mut self, state: LearnedState) -> Result<(), Error> {
        self.learned = Some(networks(state, self.learn)?);
        Ok(())
    }
}

impl Queue {
    /// `lfq` with this network, which comes from no file.
    ///
    /// # Errors
    /// If the network does not fit this controller.
    pub fn lfq(control: control::Params, policy: Policy) -> Result<Self, Error> {
        control::check(&policy)?;
        control.check().map_err(Error::new)?;
        Ok(Self {
            kind: LFQ.name,
            spec: Box::new(Words {
                control,
                model: Model::without_file(policy),
                ..Words::default()
            }),
            guard: None,
        })
    }
}

pub(super) static LFQ: Kind<Words> = Kind {
    name: "lfq",
    summary: "flow queues whose limits a trained network sets at every tenth packet",
    source: "Bachl, Fabini and Zseby 2020 (LFQ)",
    default: Words::default,
    options: &[
        opt(
            "alpha",
            Field::Number(|w| &mut w.alpha, 0.0, 1e6),
            "selects a shipped network: 0.01 favours throughput, 10 charges each queued packet 14 kB/s; with learn also the weight in its reward",
        ),
        opt(
            "online",
            Field::Flag(|w| &mut w.online, ""),
            "the network that was trained online (alpha 10)",
        ),
        opt(
            "model",
            Field::Other {
                syntax: "FILE",
                set: |w, file| w.model.load(file, control::check),
                get: |w| w.model.file().to_owned(),
            },
            "a network from quell train lfq instead of a shipped one (no blanks in its path)",
        ),
        opt(
            "integers",
            Field::Flag(|w| &mut w.integers, ""),
            "round the network's weights to about 12 bits: three fifths of the time, almost the same limits",
        ),
        opt(
            "learn",
            Field::Flag(|w| &mut w.learn, ""),
            "the network continues to learn from the flows that it serves (in simulations and in quell live)",
        ),
        opt(
            "reward",
            Field::Choice {
                what: "reward",
                words: "queue|delay",
                set: |w, word| {
                    w.reward = match word {
                        "delay" => Reward::Delay,
                        _ => Reward::Queue,
                    }
                },
                get: |w| match w.reward {
                    Reward::Queue => "queue",
                    Reward::Delay => "delay",
                },
            },
            "what learn learns from: throughput less alpha times the queued data, or times the delay",
        ),
        opt(
            "limit",
            Field::MaybeCount(|w| &mut w.limit, 1, MAX_COUNT),
            "constant limit of every flow in packets, instead of the network's",
        ),
        opt(
            "flows",
            Field::Count(|w| &mut w.queue.flows, 1, 65_536),
            FLOWS,
        ),
        opt(
            "quantum",
            Field::Bytes32(|w| &mut w.queue.quantum, 1, QUANTUM),
            QUANTUM_MEANS,
        ),
        opt(
            "every",
            Field::Count(|w| &mut w.control.every, 1, MAX_COUNT),
            "packets of a flow between two limits",
        ),
        opt(
            "ceiling",
            Field::Time(|w| &mut w.control.ceiling, Duration::ZERO, MAX_TIME),
            "upper bound of a limit: what its flow sends in this time; 0s: no bound",
        ),
        opt(
            "idle",
            Field::Time(
                |w| &mut w.queue.idle,
                Duration::ZERO,
                MAX_TIME.saturating_mul(1000),
            ),
            "a bucket without packets for longer is reset for another flow",
        ),
        opt(
            "paper_weights",
            Field::Flag(|w| &mut w.control.paper_weights, ""),
            "weights of averages as printed in the paper, for a network trained with them",
        ),
    ],
    check: Words::check,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManagedQueue;
    use crate::queue::NoObserver;
    use crate::words::tests::is;
    use crate::words::{KindInfo, catalogue};
    use quell_qdisc::packet::TestPacket;
    use quell_qdisc::policy::{Activation, Affine, Card, FORMAT, Head, Input};
    use quell_qdisc::time::Instant;
    use quell_qdisc::{Qdisc, Rng};

    /// Writes a network whose output is always 17 packets; returns the file's name.
    fn file(name: &str, inputs: usize) -> String {
        let input = |name| Input {
            name,
            offset: 0.0,
            scale: 1.0,
        };
        let mut names = control::features(&control::Params::default());
        names.truncate(inputs);
        let card = Card {
            format: FORMAT,
            name: "lfq".into(),
            what: "a test".into(),
            inputs: names.into_iter().map(input).collect(),
            hidden: vec![Activation::LeakyRelu],
            heads: vec![Head {
                name: "limit".into(),
                activation: Activation::Linear,
                outputs: vec!["packets".into()],
            }],
            trained_on: "nothing".into(),
            seed: 0,
            quell: "0".into(),
            results: Default::default(),
            origin: None,
        };
        let layers = [
            Affine {
                weight: vec![0.0; 2 * inputs],
                bias: vec![0.0; 2],
            },
            Affine {
                weight: vec![0.0; 2],
                bias: vec![17.0],
            },
        ];
        super::super::tests::file(name, &Policy::save(&card, &layers).unwrap())
    }

    fn error(words: &str) -> String {
        Queue::parse(words).expect_err(words).to_string()
    }

    /// The limit that a flow has after its first packet.
    fn limit(words: &str) -> u32 {
        let built = Queue::parse(words).unwrap().build(Rate::from_mbit(1));
        let mut queue = ManagedQueue::new(built, Rate::from_mbit(1), Rng::new(1, "t"), NoObserver);
        let packet = TestPacket::new(0, 1514, 7, quell_qdisc::Ecn::NotEct);
        queue.offer(Instant::ZERO, 1514, || packet);
        assert!(matches!(queue.discipline(), Qdisc::FqFifo(_)));
        queue.positions(Instant::ZERO).0
    }

    #[test]
    fn the_network_of_a_file_sets_the_limit_and_stays_in_the_words() {
        let path = file("good.safetensors", 60);
        let words = format!("lfq model {path} every 5");
        assert_eq!(limit(&words), 17);
        let queue = Queue::parse(&words).unwrap();
        assert_eq!(queue.canonical(), words);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn integers_are_another_form_of_the_same_network() {
        let float = Queue::parse("lfq alpha 10").unwrap();
        let integer = Queue::parse("lfq alpha 10 integers").unwrap();
        assert_eq!(integer.canonical(), "lfq alpha 10 integers");
        assert_ne!(float, integer);
        let network = |queue: &Queue| queue.spec::<Words>().unwrap().policy().unwrap();
        let inputs = [0.1; control::FEATURES];
        let [a, b] = [&float, &integer].map(|queue| {
            let policy = network(queue);
            policy.forward(&inputs, &mut policy.scratch())[0]
        });
        assert!(a != b && (a - b).abs() < 0.02 * a.abs(), "{a} {b}");
    }

    #[test]
    fn one_that_learns_needs_a_network_to_train_and_a_learner_beside_it() {
        let queue = Queue::parse("lfq alpha 10 learn reward delay guard").unwrap();
        assert_eq!(queue.canonical(), "lfq alpha 10 learn reward delay guard");
        assert!(queue.has_learner());
        assert!(is::<Learning>(
            &Queue::parse("lfq learn").unwrap().build(Rate::from_mbit(1))
        ));
        for (words, expected) in [
            (
                "lfq reward delay",
                "lfq: reward is what learn learns from: add learn, or leave reward out",
            ),
            (
                "lfq learn limit 9",
                "lfq: limit replaces the network that learn trains: leave one of them out",
            ),
            (
                "lfq learn integers",
                "lfq: learn cannot train rounded weights: leave integers or learn out",
            ),
        ] {
            assert_eq!(error(words), expected);
        }
        assert!(error("lfq learn reward paper").contains("queue"));
        assert_eq!(
            Queue::parse_without_learner("lfq learn")
                .unwrap_err()
                .to_string(),
            "lfq: learn: works in simulations and in quell live only; leave learn out"
        );
    }

    #[test]
    fn a_fixed_limit_needs_no_network() {
        assert_eq!(limit("lfq limit 7"), 7);
        assert_eq!(
            Queue::parse("lfq limit 7p flows 9").unwrap().canonical(),
            "lfq limit 7 flows 9"
        );
    }

    #[test]
    fn a_network_of_another_shape_is_refused() {
        let path = file("short.safetensors", 59);
        let e = error(&format!("lfq model {path}"));
        assert!(e.contains(&path) && e.contains("60 numbers"), "{e}");
        std::fs::remove_file(path).unwrap();
        assert!(error("lfq model /nonexistent").contains("/nonexistent"));
    }

    #[test]
    fn an_alpha_without_a_network_says_what_to_do() {
        let e = error("lfq alpha 3");
        assert!(
            e.starts_with("lfq: quell's own networks are for") && e.contains("model FILE"),
            "{e}"
        );
        assert!(error("lfq alpha 0.01 online").contains("quell's own networks"));
    }

    #[test]
    fn every_shipped_network_loads() {
        for s in &SHIPPED {
            let words = match s.online {
                true => format!("lfq alpha {} online", s.alpha),
                false => format!("lfq alpha {}", s.alpha),
            };
            let policy = s.network.policy().unwrap();
            control::check(&policy).unwrap();
            let names = policy.card().inputs.iter().map(|i| i.name.clone());
            assert_eq!(
                names.collect::<Vec<_>>(),
                control::features(&control::Params::default())
            );
            assert!(policy.card().trained_on.contains("quell train lfq"));
            assert!((1..=1000).contains(&limit(&words)));
        }
        assert!(catalogue().iter().any(|k: &KindInfo| k.name == "lfq"));
    }
}
