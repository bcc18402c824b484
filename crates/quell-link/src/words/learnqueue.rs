//! `learnqueue`: a FIFO whose limit tabular Q-learning sets, optionally from an initial table.

use std::sync::Arc;

use quell_qdisc::control::LearnedState;
use quell_qdisc::control::learnqueue::readings::{
    Arithmetic, Credit, Discount, Length, QueueSize, Reward, Update,
};
use quell_qdisc::control::learnqueue::{LearnQueue, Params, Table};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, US};

use super::rows::*;
use super::{Built, Field, Kind, Spec};
use crate::error::Error;

/// The parsed words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    /// The controller's parameters.
    pub params: Params,
    /// The initial table and its file.
    pub table: Option<(String, Arc<Table>)>,
}

impl Words {
    fn check(&self) -> Result<(), &'static str> {
        match &self.table {
            Some((_, table)) if table.params().limits() != self.params.limits() => {
                Err("max and step must be the table's; leave them out")
            }
            _ => self.params.check(),
        }
    }

    fn file(&self) -> &str {
        self.table.as_ref().map_or("", |(file, _)| file)
    }

    /// Reads a table. The parameters of its training are defaults for the following words.
    fn load(&mut self, file: &str) -> Result<(), Error> {
        let bytes = crate::file::read_plain(file.as_ref(), crate::file::MODEL).map_err(|e| {
            Error::new(format!("{file}: {e}")).remedy("make one with quell train learnqueue")
        })?;
        let table = Table::load(file, &bytes).map_err(|e| Error::new(e.to_string()))?;
        self.table = Some((file.to_owned(), Arc::new(table)));
        *self = self.of_file();
        Ok(())
    }

    /// The words with only the table given.
    fn of_file(&self) -> Self {
        let params = self.table.as_ref().map(|(_, table)| table.params());
        Self {
            params: params.unwrap_or_default(),
            table: self.table.clone(),
        }
    }

    /// Applies a preset to the parameters; the limits of a table stay.
    fn preset(&mut self, preset: fn(Params) -> Params) {
        let step = self.params.step;
        self.params = preset(self.params.clone());
        if self.table.is_some() {
            self.params.step = step;
        }
    }

    fn controller(&self) -> LearnQueue {
        let params = self.params.clone();
        match &self.table {
            Some((_, table)) => LearnQueue::resume(params, table),
            None => LearnQueue::new(params),
        }
    }
}

impl Spec for Words {
    fn build(&self, _: Rate) -> Built {
        Built::fifo(Some(Box::new(self.controller())))
    }

    fn start_from(&mut self, state: LearnedState) -> Result<(), Error> {
        let LearnedState::Table(table) = state else {
            return Err(Error::new("starts from a table, not from networks"));
        };
        self.params.initial = table.card().limit.min(self.params.max_size);
        self.table = Some((String::new(), Arc::from(table)));
        Ok(())
    }
}

pub(super) static LEARNQUEUE: Kind<Words> = Kind {
    name: "learnqueue",
    summary: "a FIFO whose limit Q-learning moves every 15 ms, so that the mean delay is the target",
    source: "Bouacida and Shihada 2019 (LearnQueue)",
    default: Words::default,
    options: &[
        opt(
            "table",
            Field::File {
                set: Words::load,
                get: |w| w.file().to_owned(),
                of_file: Words::of_file,
            },
            "a table from quell train learnqueue, with its options (no blanks in its path)",
        ),
        opt(
            "published_reward",
            Field::Switch {
                off: "",
                set: |w, _| w.preset(Params::published_reward),
                get: |w| w.params.reward == Reward::Published,
            },
            "equations 11 to 14 as printed, which hold no target, learned as the paper does: eta 0.5 step 1 epsilon 0.9 \
             gamma 0.1 gamma_max 0.9 alpha_min 0 immediate_credit",
        ),
        opt(
            "target",
            Field::Time(|w| &mut w.params.target, Duration::ZERO, MAX_TIME),
            "mean delay to hold (with published_reward it only weighs losses)",
        ),
        opt(
            "delta",
            Field::Number(|w| &mut w.params.delta, 0.0, 1000.0),
            "weight of the delay in the reward; alone it decides nothing, eta / delta counts",
        ),
        opt(
            "eta",
            Field::Number(|w| &mut w.params.eta, 0.0, 1000.0),
            "weight of losses: the delay held is target (1 + loss eta / delta); with published_reward of the enqueue rate",
        ),
        opt(
            "step",
            Field::Number(|w| &mut w.params.step, 1.0, 2.0),
            "factor from one limit to the next, at least a packet (1: every limit)",
        ),
        opt(
            "period",
            Field::Time(|w| &mut w.params.period, US, MAX_TIME),
            PERIOD,
        ),
        opt(
            "initial",
            Field::Count(|w| &mut w.params.initial, 1, 65_536),
            "first limit, packets",
        ),
        opt(
            "max",
            Field::Count(|w| &mut w.params.max_size, 2, 65_536),
            "largest limit, packets",
        ),
        opt(
            "alpha",
            Field::MaybeProbability(|w| &mut w.params.alpha),
            "rate of learning (default: 1 / visits, at least alpha_min)",
        ),
        opt(
            "alpha_min",
            Field::Probability(|w| &mut w.params.alpha_min),
            "the least 1 / visits",
        ),
        opt(
            "epsilon",
            Field::Probability(|w| &mut w.params.epsilon),
            "first probability of exploring",
        ),
        opt(
            "epsilon_min",
            Field::Probability(|w| &mut w.params.epsilon_min),
            "where its decay ends",
        ),
        opt(
            "decay",
            Field::Probability(|w| &mut w.params.decay),
            "factor on epsilon and on 1 - gamma for each pair discovered",
        ),
        opt(
            "gamma",
            Field::Probability(|w| &mut w.params.gamma),
            "first discount",
        ),
        opt(
            "gamma_max",
            Field::Probability(|w| &mut w.params.gamma_max),
            "where its growth ends",
        ),
        opt(
            "packet",
            Field::Bytes32(|w| &mut w.params.packet_bytes, 1, 65_535),
            "bytes of a packet in max_delay",
        ),
        opt(
            "basic_rate",
            Field::Rate(
                |w| &mut w.params.basic_rate,
                Rate::from_kbit(1),
                Rate::from_bps(1 << 50),
            ),
            "rate of max_delay: 802.11n's basic one",
        ),
        opt(
            "current_max_delay",
            Field::Switch {
                off: "",
                set: |w, on| w.params.queue_size = on.into(),
                get: |w| w.params.queue_size == QueueSize::Present,
            },
            "with published_reward: max_delay is that of the present limit, not of the largest one",
        ),
        opt(
            "delayed_credit",
            Field::Switch {
                off: "immediate_credit",
                set: |w, on| w.params.credit = on.into(),
                get: |w| w.params.credit == Credit::Cause,
            },
            "credit a period's reward to the action before it, not to the one after",
        ),
        opt(
            "literal_update",
            Field::Switch {
                off: "",
                set: |w, on| w.params.update = on.into(),
                get: |w| w.params.update == Update::Literal,
            },
            "the update as printed in algorithm 1, without alpha on the bracket",
        ),
        opt(
            "printed_gamma",
            Field::Switch {
                off: "",
                set: |w, on| w.params.discount = on.into(),
                get: |w| w.params.discount == Discount::Printed,
            },
            "gamma as printed: 1 - 0.995 gamma",
        ),
        opt(
            "bytes_max_delay",
            Field::Switch {
                off: "",
                set: |w, on| w.params.length = on.into(),
                get: |w| w.params.length == Length::Bytes,
            },
            "max_delay as equation 13 prints it: bytes over bit/s",
        ),
        opt(
            "fixed_point",
            Field::Switch {
                off: "",
                set: |w, on| w.params.arithmetic = on.into(),
                get: |w| w.params.arithmetic == Arithmetic::Fixed,
            },
            "integer arithmetic, as on the paper's boards",
        ),
        opt(
            "as_published",
            Field::Switch {
                off: "",
                set: |w, _| w.preset(Params::as_published),
                // The canonical words name the options that it sets instead.
                get: |_| false,
            },
            "published_reward alpha 0.1 initial max current_max_delay literal_update printed_gamma bytes_max_delay fixed_point",
        ),
    ],
    check: Words::check,
};

#[cfg(test)]
mod tests {
    use super::super::Queue;
    use super::*;

    fn file(name: &str, params: Params) -> String {
        let bytes = LearnQueue::new(params).table().save().expect("a table");
        super::super::tests::file(name, &bytes)
    }

    #[test]
    fn a_table_brings_its_options_and_words_after_it_hold() {
        let params = Params {
            delta: 0.9,
            eta: 0.1,
            max_size: 60,
            initial: 20,
            ..Params::default()
        };
        let file = file("brings.safetensors", params);
        let words = format!("learnqueue table {file}");
        let queue = Queue::parse(&words).unwrap();
        assert_eq!(queue.canonical(), words);
        let w = queue.spec::<Words>().unwrap();
        assert_eq!(
            (w.params.delta, w.params.max_size, w.params.initial),
            (0.9, 60, 20)
        );
        // An option with its default must be written if the table has another value.
        let other = Queue::parse(&format!("{words} delta 0.5 initial 3")).unwrap();
        assert_eq!(other.canonical(), format!("{words} delta 0.5 initial 3"));
        assert_eq!(Queue::parse(&other.canonical()), Ok(other));
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn the_published_reward_after_a_table_keeps_its_limits() {
        let file = file("published.safetensors", Params::default());
        for preset in ["published_reward", "as_published"] {
            let queue = Queue::parse(&format!("learnqueue table {file} {preset}")).unwrap();
            let w = queue.spec::<Words>().unwrap();
            assert_eq!(w.params.reward, Reward::Published);
            assert_eq!(w.params.limits(), Params::default().limits());
            assert_eq!(Queue::parse(&queue.canonical()).as_ref(), Ok(&queue));
        }
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_queue_that_cannot_start_from_a_table_says_why() {
        let file = file("refused.safetensors", Params::default());
        let error = |words: &str| Queue::parse(words).expect_err(words).to_string();
        assert_eq!(
            error(&format!("learnqueue delta 0.9 table {file}")),
            format!(
                "learnqueue: table: comes after `delta 0.9`, which it overrides; write table {file} first"
            )
        );
        assert_eq!(
            error(&format!("learnqueue table {file} max 100")),
            "learnqueue: max and step must be the table's; leave them out"
        );
        std::fs::write(&file, b"short").unwrap();
        let e = error(&format!("learnqueue table {file}"));
        assert!(
            e.starts_with(&format!("learnqueue: table: {file}: the file ends")),
            "{e}"
        );
        std::fs::remove_file(&file).unwrap();
        let e = error(&format!("learnqueue table {file}"));
        assert!(e.ends_with("; make one with quell train learnqueue"), "{e}");
    }
}
