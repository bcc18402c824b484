//! `a3c_l4s`: `l4s` whose base probabilities a network sets. The network comes from a file or is
//! the shipped one. It also takes all options of `l4s`.

use quell_qdisc::control::{Control, a3c};
use quell_qdisc::disciplines;
use quell_qdisc::l4s;
use quell_qdisc::policy::Policy;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::US;

use super::l4s::L4S;
use super::model::{Model, ShippedNetwork, shipped_network};
use super::rows::*;
use super::{AnyKind, AnySpec, Built, Field, Kind, KindInfo, OptionInfo, Spec, downcast};
use crate::error::Error;

/// The network that quell ships (`models/`).
static SHIPPED: ShippedNetwork = shipped_network!("a3c-l4s");

/// The parsed words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    /// The queue's parameters.
    pub queue: l4s::Params,
    /// The controller's parameters.
    pub control: a3c::Params,
    /// A network that replaces the shipped one, and its file.
    pub model: Model,
}

impl Words {
    /// The controller; `None` if the network does not fit, which tests exclude for the shipped one
    /// and `load` for others.
    fn controller(&self) -> Option<Box<dyn Control>> {
        let policy = self.model.or(Some(&SHIPPED))?;
        let controller = a3c::A3c::new(self.control.clone(), policy).ok()?;
        Some(Box::new(controller))
    }
}

impl Spec for Words {
    fn build(&self, _: Rate) -> Built {
        Built {
            queue: disciplines::Params::L4s(self.queue.clone()),
            controller: self.controller(),
        }
    }

    fn set_policy(&mut self, policy: Policy) -> Result<(), Error> {
        self.model.set(policy, a3c::check)
    }
}

/// Its options in addition to those of `l4s`.
static OWN: Kind<Words> = Kind {
    name: "a3c_l4s",
    summary: "l4s whose base probabilities an actor network sets every 15 ms, per sub-queue",
    source: "A3C-L4S (Satish, Kua, Pokhrel 2024)",
    default: Words::default,
    options: &[
        opt(
            "model",
            Field::Other {
                syntax: "FILE",
                set: |w, file| w.model.load(file, a3c::check),
                get: |w| w.model.file().to_owned(),
            },
            "a network from quell train a3c-l4s instead of the shipped one (no blanks in its path)",
        ),
        opt(
            "period",
            Field::Time(|w| &mut w.control.period, US, MAX_TIME),
            PERIOD,
        ),
    ],
    check: |w| {
        if !w.model.is_given() {
            SHIPPED.check()?;
        }
        w.control.check()
    },
};

/// Its own options, followed by those of `l4s`.
pub(super) struct Both;

pub(super) static A3C_L4S: Both = Both;

impl AnyKind for Both {
    fn name(&self) -> &'static str {
        OWN.name
    }

    fn parse(&self, words: &[&str]) -> Result<Box<dyn AnySpec>, Error> {
        let (mut own, mut queue) = (Vec::new(), Vec::new());
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match OWN.options.iter().any(|o| o.head.matches(word)) {
                true => own.extend([word].into_iter().chain(words.next())),
                false => queue.push(*word),
            }
        }
        let queue = L4S.read(&queue)?;
        Ok(Box::new(Words {
            queue,
            ..OWN.read(&own)?
        }))
    }

    fn differing(&self, spec: &dyn AnySpec) -> Vec<String> {
        let mut all = OWN.differing(spec);
        if let Some(words) = downcast::<Words>(spec) {
            all.extend(L4S.differing(&words.queue));
        }
        all
    }

    fn info(&self) -> KindInfo {
        let mut info = OWN.info();
        let guard = info.options.split_off(OWN.options.len());
        let queue: Vec<OptionInfo> = L4S.info().options;
        info.options.extend(queue.into_iter().chain(guard));
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Queue;
    use crate::words::tests::is;
    use quell_qdisc::control::guard::Guard;
    use quell_qdisc::packet::TestPacket;
    use quell_qdisc::policy::{Activation, Affine, Card, FORMAT, Head, Input, Policy};
    use quell_qdisc::{Discipline, Qdisc};

    /// Writes a network whose output is always the middle of the range; returns the file's name.
    fn file(name: &str, first: &str) -> String {
        let input = |name: &str| Input {
            name: name.into(),
            offset: 0.5,
            scale: 2.0,
        };
        let mut inputs: Vec<_> = a3c::READINGS.iter().map(|r| input(r.name)).collect();
        inputs[0].name = first.into();
        let head = |name: &str, activation| Head {
            name: name.into(),
            activation,
            outputs: vec![name.into()],
        };
        let card = Card {
            format: FORMAT,
            name: "a3c-l4s".into(),
            what: "a test".into(),
            inputs,
            hidden: vec![],
            heads: vec![
                head("mean", Activation::Tanh),
                head("spread", Activation::Softplus),
            ],
            trained_on: "nothing".into(),
            seed: 0,
            quell: "0".into(),
            results: Default::default(),
            origin: None,
        };
        let layer = || Affine {
            weight: vec![0.0; 12],
            bias: vec![0.0],
        };
        super::super::tests::file(name, &Policy::save(&card, &[layer(), layer()]).unwrap())
    }

    #[test]
    fn the_shipped_network_loads_and_is_there_without_a_file() {
        let policy = SHIPPED.policy().unwrap();
        a3c::check(&policy).unwrap();
        assert!(policy.card().trained_on.contains("quell train a3c-l4s"));
        let built = Queue::parse("a3c_l4s").unwrap().build(Rate::from_mbit(10));
        assert!(is::<a3c::A3c>(&built));
    }

    #[test]
    fn l4s_and_its_options_are_below_the_network_of_a_file() {
        let path = file("good", "burst_allowance_ms");
        let words = format!("a3c_l4s model {path} period 30ms pairs 2 any_ect guard");
        let queue = Queue::parse(&words).unwrap();
        assert_eq!(queue.canonical(), words);
        let built = queue.build(Rate::from_mbit(10));
        assert!(is::<Guard>(&built));
        let q: Qdisc<TestPacket> = Qdisc::new(built.queue);
        assert_eq!(q.sub_queues(), 4);
        let bare = Queue::parse(&format!("a3c_l4s model {path}")).unwrap();
        assert!(is::<a3c::A3c>(&bare.build(Rate::from_mbit(10))));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn bad_words_and_networks_are_refused_in_one_line() {
        let error = |words: &str| Queue::parse(words).unwrap_err().to_string();
        let path = file("bad", "something");
        let e = error(&format!("a3c_l4s model {path}"));
        assert!(
            e.contains(&path) && e.contains("gauges of a sub-queue") && !e.contains('\n'),
            "{e}"
        );
        std::fs::remove_file(path).unwrap();
        assert!(error("a3c_l4s model").contains("`model` needs a value"));
        assert!(error("a3c_l4s pairs 0").contains("pairs"));
        assert!(error("a3c_l4s nonsense").contains("unknown option `nonsense`"));
    }
}
