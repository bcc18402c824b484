//! Queues from other crates. They have a name in place of words, and no file or command line can
//! name them.

use std::fmt::{self, Debug};
use std::sync::Arc;

use quell_qdisc::disciplines::Params;
use quell_qdisc::outside::{self, AnyDiscipline, Factory};
use quell_qdisc::rate::Rate;

use super::{Built, Queue, Spec, find};
use crate::error::Error;

/// A name and the factory of the discipline.
#[derive(Clone)]
pub(super) struct Words {
    pub(super) name: Arc<str>,
    make: Factory,
}

impl Spec for Words {
    fn build(&self, rate: Rate) -> Built {
        Built::queue(Params::Outside(outside::Params {
            name: self.name.clone(),
            rate,
            make: self.make.clone(),
        }))
    }
}

impl Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Equal if the name is equal and the factory is the same object.
impl PartialEq for Words {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.make, &other.make)
    }
}

impl Queue {
    /// A queue from another crate: any [`quell_qdisc::Discipline`] of [`outside::Handle`]s that is
    /// `Clone`, `Debug`, `Send` and `Sync`. `name` is its name in records and tables. `make`
    /// returns an empty queue for a link of the given mean rate; every run gets its own.
    ///
    /// # Errors
    /// If the name is empty, has characters that cannot be printed, or begins with the name of a
    /// built-in kind.
    pub fn outside<D: AnyDiscipline + 'static>(
        name: &str,
        make: impl Fn(Rate) -> D + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let fail = |what: &str| {
            Err(Error::new(format!(
                "the queue's name \"{}\" {what}",
                name.escape_debug()
            )))
        };
        if name.trim() != name || name.is_empty() || name.contains(char::is_control) {
            return fail("is empty, has spaces around it or characters that cannot be printed");
        }
        if let Some(kind) = name.split_whitespace().next().and_then(find) {
            return fail(&format!(
                "is that of quell's own {}; choose another",
                kind.name()
            ));
        }
        Ok(Self {
            kind: "",
            spec: Box::new(Words {
                name: name.into(),
                make: Arc::new(move |rate| Box::new(make(rate))),
            }),
            guard: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::fifo::{self, Fifo};
    use quell_qdisc::outside::Handle;
    use quell_qdisc::packet::TestPacket;
    use quell_qdisc::time::Instant;
    use quell_qdisc::{Discipline, Gauges, Qdisc};

    /// A FIFO whose limit is the number of packets that the link sends in 10 ms.
    fn own(name: &str) -> Result<Queue, Error> {
        Queue::outside(name, |rate| {
            Fifo::<Handle>::new(fifo::Params {
                limit_packets: (rate.bps() / 100 / 12_000) as u32,
                ..fifo::Params::default()
            })
        })
    }

    #[test]
    fn it_has_a_name_for_words_and_is_made_for_the_links_rate() {
        let queue = own("ten milliseconds").unwrap();
        assert_eq!(
            (queue.kind(), queue.to_string().as_str()),
            ("ten milliseconds", "ten milliseconds")
        );
        assert!(queue.check(Rate::from_bps(1)).is_ok() && !queue.is_guarded());
        let built = queue.build(Rate::from_mbit(12));
        assert!(built.controller.is_none());
        let mut gauges = Gauges::default();
        Qdisc::<TestPacket>::new(built.queue).gauges(Instant::ZERO, &mut gauges);
        assert_eq!(gauges.limit_packets, 10);
    }

    #[test]
    fn only_clones_are_equal() {
        let queue = own("own").unwrap();
        assert_eq!(queue.clone(), queue);
        assert_ne!(own("own").unwrap(), queue);
        assert_eq!(
            queue.build(Rate::from_bps(1)).queue,
            queue.build(Rate::from_bps(1)).queue
        );
    }

    #[test]
    fn names_that_would_confuse_a_table_are_refused() {
        let error = |name| own(name).unwrap_err().to_string();
        assert_eq!(
            error("codel of mine"),
            "the queue's name \"codel of mine\" is that of quell's own codel; choose another"
        );
        for name in ["", " own", "two\nlines"] {
            assert!(
                error(name).contains("is empty, has spaces"),
                "{}",
                error(name)
            );
            assert!(!error(name).contains('\n'));
        }
    }
}
