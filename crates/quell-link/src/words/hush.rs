//! `hush`: quell's own queue. A trained policy sets the parameters of its law; the policy comes
//! from a file (`model FILE`) or is the one that quell ships.

use std::sync::Arc;

use quell_qdisc::disciplines::Params;
use quell_qdisc::hush::{self, Model, Order};
use quell_qdisc::rate::Rate;

use super::rows::*;
use super::{Built, Field, Kind, Queue, Spec};
use crate::error::Error;

/// The parsed words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    /// The queue's parameters.
    pub params: hush::Params,
    /// File of the policy; empty for the shipped one.
    pub file: String,
    single: bool,
    in_order: bool,
}

impl Words {
    /// Reads the policy from a file.
    fn load(&mut self, file: &str) -> Result<(), Error> {
        let bytes = crate::file::read_plain(file.as_ref(), crate::file::MODEL)
            .map_err(|e| Error::new(format!("{file}: {e}")))?;
        let text = String::from_utf8_lossy(&bytes);
        let model = Model::parse(&text).map_err(|e| Error::new(format!("{file}: {e}")))?;
        self.params.model = Arc::new(model);
        file.clone_into(&mut self.file);
        Ok(())
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.single && self.in_order {
            return Err("single and in_order exclude each other");
        }
        self.params.check()
    }
}

impl Spec for Words {
    fn build(&self, _: Rate) -> Built {
        let order = match (self.single, self.in_order) {
            (true, _) => Order::Single,
            (_, true) => Order::Arrival,
            _ => Order::Fair,
        };
        Built::queue(Params::Hush(hush::Params {
            order,
            ..self.params.clone()
        }))
    }
}

/// See [`super::hush_without_model`].
pub(super) fn without_model(words: &str) -> Option<Queue> {
    let mut words: Vec<&str> = words.split_whitespace().collect();
    let model = words.iter().position(|word| *word == "model")?;
    if words.first() != Some(&HUSH.name) || model + 1 >= words.len() {
        return None;
    }
    words.drain(model..model + 2);
    let plain = Queue::parse(&words.join(" ")).ok()?;
    let decided = plain.spec::<Words>()?.params.dry_run;
    match decided {
        true => Some(plain),
        false => Queue::parse(&format!("{} dry_run", words.join(" "))).ok(),
    }
}

pub(super) static HUSH: Kind<Words> = Kind {
    name: "hush",
    summary: "flow queues under one law on the whole backlog, whose settings a trained policy takes from the link",
    source: "quell's own (docs/explanation/hush.md)",
    default: Words::default,
    options: &[
        opt(
            "limit",
            Field::Count(|w| &mut w.params.limit, 1, MAX_COUNT),
            LIMIT_ALL,
        ),
        opt(
            "flows",
            Field::Count(|w| &mut w.params.flows, 1, 65_536),
            FLOWS,
        ),
        opt(
            "quantum",
            Field::Bytes32(|w| &mut w.params.quantum, 256, QUANTUM),
            QUANTUM_MEANS,
        ),
        opt("ecn", Field::Flag(|w| &mut w.params.ecn, "noecn"), ECN),
        opt(
            "memlimit",
            Field::Bytes(|w| &mut w.params.memory_limit, 1, 1 << 31),
            MEMORY,
        ),
        opt(
            "single",
            Field::Flag(|w| &mut w.single, ""),
            "one queue in place of flow queues; its head pays",
        ),
        opt(
            "in_order",
            Field::Flag(|w| &mut w.in_order, ""),
            "packets leave in the order of arrival; the flow that takes most still pays",
        ),
        opt(
            "dry_run",
            Field::Flag(|w| &mut w.params.dry_run, ""),
            "fq_codel's law decides; what the policy would have set is only recorded",
        ),
        opt(
            "mark_next",
            Field::Flag(|w| &mut w.params.mark_next, ""),
            "marks go to the flow's next arrival, as in the kernel",
        ),
        opt(
            "model",
            Field::Other {
                syntax: "FILE",
                set: Words::load,
                get: |w| w.file.clone(),
            },
            "another policy than quell's own, from quell train hush (its path has no blanks)",
        ),
    ],
    check: Words::check,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> String {
        let file = std::env::temp_dir().join(format!("quell-hush-{name}-{}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_words_choose_the_order() {
        for (words, order) in [
            ("hush", Order::Fair),
            ("hush single", Order::Single),
            ("hush in_order", Order::Arrival),
        ] {
            let queue = Queue::parse(words).unwrap();
            assert_eq!(queue.canonical(), words);
            let Params::Hush(params) = queue.build(Rate::from_mbit(1)).queue else {
                panic!("{words}");
            };
            assert_eq!(params.order, order);
        }
        let both = Queue::parse("hush single in_order").unwrap_err();
        assert_eq!(
            both.to_string(),
            "hush: single and in_order exclude each other"
        );
    }

    #[test]
    fn a_model_from_a_file_is_kept_in_the_canonical_words_and_a_bad_one_refused_in_one_line() {
        let text = quell_qdisc::hush::model::TEXT;
        let good = file("good", &text.replace("window 4", "window 3"));
        let queue = Queue::parse(&format!("hush model {good}")).unwrap();
        assert_eq!(queue.canonical(), format!("hush model {good}"));
        assert_ne!(queue, Queue::parse("hush").unwrap());
        for bad in [
            &text[..text.len() / 2],
            &text.replace("window 4", "window NaN"),
            "",
        ] {
            let bad = file("bad", bad);
            let error = Queue::parse(&format!("hush model {bad}"))
                .unwrap_err()
                .to_string();
            assert!(error.contains(&bad) && !error.contains('\n'), "{error}");
            for rest in ["", " dry_run"] {
                let instead = without_model(&format!("hush limit 99 model {bad}{rest}")).unwrap();
                assert_eq!(instead.canonical(), "hush limit 99 dry_run");
            }
            std::fs::remove_file(bad).unwrap();
        }
        std::fs::remove_file(good).unwrap();
        let error = Queue::parse("hush model /nonexistent")
            .unwrap_err()
            .to_string();
        assert!(error.contains("/nonexistent"), "{error}");
        for other in ["hush model", "hush limit 0 model x", "lfq model x", ""] {
            assert_eq!(without_model(other), None, "{other}");
        }
    }
}
