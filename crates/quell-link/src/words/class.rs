//! Classes of `htb`, `prio`, `ets` and `drr`, with `tc`'s words. They come after the queue's other
//! options:
//! `htb default 20 class 1:1 rate 20mbit class 1:10 parent 1:1 rate 5mbit ceil 20mbit queue fq_codel`.

use std::fmt;

use quell_qdisc::parts::filter::{Filter, Host};
use quell_qdisc::rate::Rate;

use super::option::Opt;
use super::rows::{MAX_BYTES, QUANTUM, opt};
use super::{Field, Kind, Queue};
use crate::dscp;
use crate::error::Error;

/// Fastest rate of a class.
const FASTEST: Rate = Rate::from_mbit(10_000_000);

/// Number of a class, `MAJOR:MINOR` in hexadecimal digits as in `tc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Id(pub u32);

impl Id {
    /// Reads `1:10`.
    ///
    /// # Errors
    /// If it is not the number of a class.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let part = |digits: &str| match digits.starts_with('+') {
            true => None,
            false => u16::from_str_radix(digits, 16).ok(),
        };
        let parts = text.split_once(':');
        let parts = parts.and_then(|(major, minor)| Some((part(major)?, part(minor)?)));
        let id = parts.map(|(major, minor)| u32::from(major) << 16 | u32::from(minor));
        id.filter(|id| id & 0xffff != 0).map(Self).ok_or_else(|| {
            Error::new(format!("\"{text}\" is not a class")).remedy("write MAJOR:MINOR, as in 1:10")
        })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}", self.0 >> 16, self.0 & 0xffff)
    }
}

/// A class as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Class {
    /// Its number.
    pub id: Id,
    /// Parent class; `None`: the queue itself.
    pub parent: Option<Id>,
    /// Guaranteed rate.
    pub rate: Option<Rate>,
    /// Ceiling: highest rate with borrowing.
    pub ceil: Option<Rate>,
    /// Bucket size at its rate, bytes.
    pub burst: Option<u64>,
    /// Bucket size at its ceiling, bytes.
    pub cburst: Option<u64>,
    /// Priority; 0 is the highest.
    pub prio: Option<u8>,
    /// Bytes per round.
    pub quantum: Option<u32>,
    /// DSCPs of its packets, one bit each.
    pub dscps: u64,
    /// Firewall mark of its packets.
    pub fwmark: Option<u32>,
    /// Host that its packets come from or go to.
    pub host: Option<String>,
    /// The queue in the class.
    pub queue: Option<Queue>,
}

/// A key of a class, which is also a queue word.
pub struct Row(
    /// Name.
    pub &'static str,
    /// Value.
    pub Field<Class>,
    /// Meaning.
    pub &'static str,
);

/// Number of the class.
pub const ID: Row = Row(
    "id",
    Field::Other {
        syntax: "MAJOR:MINOR",
        set: |c, text| {
            c.id = Id::parse(text)?;
            Ok(())
        },
        get: |c| match c.id.0 {
            0 => String::new(),
            _ => c.id.to_string(),
        },
    },
    "number of the class as in `tc`, in hexadecimal digits; in `prio` and `ets` 1:1 is the first band",
);
/// Parent class.
pub const PARENT: Row = Row(
    "parent",
    Field::Other {
        syntax: "MAJOR:MINOR",
        set: |c, text| {
            // The queue itself, which has no minor number.
            let is_root = text == "root" || text.ends_with(':');
            c.parent = if is_root {
                None
            } else {
                Some(Id::parse(text)?)
            };
            Ok(())
        },
        get: |c| c.parent.map_or_else(String::new, |id| id.to_string()),
    },
    "in `htb`: the class above it, from which it borrows",
);
/// Guaranteed rate.
pub const RATE: Row = Row(
    "rate",
    Field::MaybeRate(|c| &mut c.rate, Rate::from_bps(8), FASTEST),
    "in `htb`: the rate that it is sure of",
);
/// Ceiling with borrowing.
pub const CEIL: Row = Row(
    "ceil",
    Field::MaybeRate(|c| &mut c.ceil, Rate::from_bps(8), FASTEST),
    "in `htb`: the rate up to which it may borrow",
);
/// Bucket size at the rate.
pub const BURST: Row = Row(
    "burst",
    Field::MaybeBytes(|c| &mut c.burst, 1, MAX_BYTES),
    "in `htb`: bytes that it may send at once at its rate",
);
/// Bucket size at the ceiling.
pub const CBURST: Row = Row(
    "cburst",
    Field::MaybeBytes(|c| &mut c.cburst, 1, MAX_BYTES),
    "in `htb`: bytes that it may send at once at its ceiling",
);
/// Its priority.
pub const PRIO: Row = Row(
    "prio",
    Field::MaybeCount8(|c| &mut c.prio, 0, 7),
    "in `htb`: which leaves send and borrow first, 0 before 7",
);
/// Bytes per round.
pub const QUANTUM_: Row = Row(
    "quantum",
    Field::MaybeCount(|c| &mut c.quantum, 1, QUANTUM),
    "in `htb` and `drr`: bytes per round, among leaves of one priority",
);
/// DSCPs of its packets.
pub const DSCP: Row = Row(
    "dscp",
    Field::Other {
        syntax: "NAME,...",
        set: |c, text| {
            c.dscps = 0;
            for name in text.split(',') {
                c.dscps |= 1 << dscp::parse(name.trim())?;
            }
            Ok(())
        },
        get: |c| {
            let names = (0..64).filter(|dscp| c.dscps >> dscp & 1 == 1);
            names.map(dscp::format).collect::<Vec<_>>().join(",")
        },
    },
    "packets with one of these DSCPs go to the class, as `EF,CS6`; a packet has to meet all of `dscp`, `fwmark` and `host` that are given",
);
/// Firewall mark of its packets.
pub const FWMARK: Row = Row(
    "fwmark",
    Field::MaybeCount(|c| &mut c.fwmark, 0, u32::MAX),
    "packets with this mark of the firewall go to the class",
);
/// Host of its packets.
pub const HOST: Row = Row(
    "host",
    Field::Other {
        syntax: "NAME",
        set: |c, text| {
            if text.is_empty() || text.contains(char::is_whitespace) {
                return Err(Error::new("no name of a host in one word").remedy("write host laptop"));
            }
            c.host = Some(text.to_owned());
            Ok(())
        },
        get: |c| c.host.clone().unwrap_or_default(),
    },
    "packets from or to this host go to the class",
);
/// The queue in the class.
pub const QUEUE: Row = Row(
    "queue",
    Field::Other {
        syntax: "WORDS",
        set: |c, text| {
            c.queue = Some(inner(text)?);
            Ok(())
        },
        get: |c| c.queue.as_ref().map_or_else(String::new, Queue::canonical),
    },
    "words of the queue in the class, if it has no classes below it",
);

/// Reads the words of a queue that may be in a class.
fn inner(words: &str) -> Result<Queue, Error> {
    let queue = Queue::parse(words)?;
    // Whether there is a controller does not depend on the rate.
    let built = queue.build(Rate::from_mbit(1));
    let kind = queue.kind();
    if built.controller.is_some() {
        let what = format!("`{kind}` has a controller, which the queue of a class cannot have");
        return Err(Error::new(what).remedy("write a discipline, as in queue fq_codel"));
    }
    if kind == "htb" {
        let error = Error::new("an htb in a class has no classes of its own here");
        return Err(error.remedy("write its classes into the tree above, with their parents"));
    }
    Ok(queue)
}

const fn word(Row(name, field, meaning): Row) -> Opt<Class> {
    opt(name, field, meaning)
}

const fn kind(options: &'static [Opt<Class>]) -> Kind<Class> {
    Kind {
        name: "class",
        summary: "",
        source: "",
        default: Class::default,
        options,
        check: |_| Ok(()),
    }
}

/// The words of a class of `htb`.
pub(super) static IN_HTB: Kind<Class> = kind(&[
    word(PARENT),
    word(RATE),
    word(CEIL),
    word(BURST),
    word(CBURST),
    word(PRIO),
    word(QUANTUM_),
    word(DSCP),
    word(FWMARK),
    word(HOST),
    word(QUEUE).rest(),
]);
/// The words of a band of `prio` and `ets`.
pub(super) static IN_BANDS: Kind<Class> =
    kind(&[word(DSCP), word(FWMARK), word(HOST), word(QUEUE).rest()]);
/// The words of a class of `drr`.
pub(super) static IN_DRR: Kind<Class> = kind(&[
    word(QUANTUM_),
    word(DSCP),
    word(FWMARK),
    word(HOST),
    word(QUEUE).rest(),
]);

/// Meaning of the option that begins a class.
pub(super) const MEANING: &str = "a class with its words, once for each, behind the other options; in a scenario a table for each";

/// Reads the classes after the first word `class`.
pub(super) fn read(kind: &'static Kind<Class>, text: &str) -> Result<Vec<Class>, Error> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .split(|word| *word == "class")
        .map(|words| one(kind, words))
        .collect()
}

fn one(kind: &'static Kind<Class>, words: &[&str]) -> Result<Class, Error> {
    let Some((id, rest)) = words.split_first() else {
        let error = Error::new("`class` needs a number");
        return Err(error.remedy("write class MAJOR:MINOR, as in class 1:10"));
    };
    let id = Id::parse(id)?;
    let class = kind.read(rest).map_err(|e| e.under(&id.to_string()))?;
    Ok(Class { id, ..class })
}

/// Writes classes in the form that [`read`] reads.
pub(super) fn write(kind: &'static Kind<Class>, classes: &[Class]) -> String {
    let words = classes.iter().map(|class| {
        let options = kind.words_of(class);
        std::iter::once(class.id.to_string())
            .chain(options)
            .collect::<Vec<_>>()
            .join(" ")
    });
    words.collect::<Vec<_>>().join(" class ")
}

/// The words of the classes of a kind of queue.
fn kind_of(queue: &Queue) -> Option<&'static Kind<Class>> {
    match queue.kind() {
        "htb" => Some(&IN_HTB),
        "prio" | "ets" => Some(&IN_BANDS),
        "drr" => Some(&IN_DRR),
        _ => None,
    }
}

/// Whether the queue may have classes.
pub fn has(queue: &Queue) -> bool {
    kind_of(queue).is_some()
}

impl Class {
    /// The filter that selects its packets.
    pub(super) fn filter(&self) -> Filter {
        Filter {
            dscps: self.dscps,
            mark: self.fwmark,
            host: self.host.clone().map(|name| Host { name, labels: None }),
        }
    }

    /// Parameters of the queue in the class, for a link of the rate `rate`.
    pub(super) fn built(&self, rate: Rate) -> Option<quell_qdisc::disciplines::Params> {
        self.queue.as_ref().map(|queue| queue.build(rate).queue)
    }

    /// The class as words of `queue`, such as `class 1:10 rate 5mbit`.
    ///
    /// # Errors
    /// If the queue has no classes, or its classes have no such word.
    pub fn words_in(&self, queue: &Queue) -> Result<String, Error> {
        let kind = kind_of(queue).ok_or_else(|| {
            Error::new(format!("`{}` has no classes", queue.kind())).remedy(
                "write queue = \"htb\", \"prio\", \"ets\" or \"drr\" for the link, or leave the class out",
            )
        })?;
        let text = format!("{} {}", self.id, IN_HTB.words_of(self).join(" "));
        read(kind, &text)?;
        Ok(format!("class {}", text.trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(words: &str) -> String {
        Queue::parse(words).expect_err(words).to_string()
    }

    #[test]
    fn classes_are_written_as_they_are_read() {
        for words in [
            "htb default 20 class 1:1 rate 20mbit class 1:10 parent 1:1 rate 5mbit ceil 20mbit burst 3kb prio 1 dscp EF,CS6 host laptop queue pie ecn class 1:20 parent 1:1 rate 1mbit quantum 1514 fwmark 6",
            "htb class a:ffff rate 1mbit queue prio bands 2 priomap 0 0 1 1 1 1 0 0 1 1 1 1 1 1 1 1",
            "prio class 1:1 fwmark 1 queue codel class 1:3 dscp EF",
            "ets strict 1 quanta 3000 class 1:2 queue fq_codel limit 50",
            "drr quantum 3000 class 1:1 quantum 600 fwmark 3 class 1:2 queue pfifo limit 5",
        ] {
            assert_eq!(Queue::parse(words).expect(words).canonical(), words);
        }
        let queue = |words| Queue::parse(words).expect(words);
        let shown = queue("htb default 0x20 class 1:20 parent root rate 1mbit");
        assert_eq!(
            shown,
            queue("htb default 20 class 1:20 parent 1: rate 1mbit")
        );
    }

    #[test]
    fn wrong_classes_are_one_line_that_names_the_class() {
        for (words, message) in [
            (
                "htb class 1:1 rate 1mbit cel 2mbit",
                "htb: 1:1: unknown option `cel`; did you mean `ceil`? Known: parent, rate, ceil, burst, cburst, prio, quantum, dscp, fwmark, host, queue",
            ),
            (
                "htb class 1 rate 1mbit",
                "htb: class: \"1\" is not a class; write MAJOR:MINOR, as in 1:10",
            ),
            (
                "htb class 1:1 rate 1mbit class",
                "htb: class: `class` needs a number; write class MAJOR:MINOR, as in class 1:10",
            ),
            (
                "htb class 1:1 ceil 1mbit",
                "htb: a class needs a rate of at least 8 bit/s",
            ),
            (
                "htb class 1:2 parent 1:1 rate 1mbit",
                "htb: a class names a parent that does not exist; add its table",
            ),
            (
                "prio class 1:4 fwmark 3",
                "prio: a class names a band that does not exist; class 1:1 is the first band, so write more bands or another class",
            ),
            (
                "drr class 1:1 queue learnqueue",
                "drr: 1:1: queue: `learnqueue` has a controller, which the queue of a class cannot have; write a discipline, as in queue fq_codel",
            ),
            (
                "drr class 1:1 queue htb",
                "drr: 1:1: queue: an htb in a class has no classes of its own here; write its classes into the tree above, with their parents",
            ),
            (
                "drr class 1:1 class 1:1",
                "drr: two classes have the same id; number them differently",
            ),
            (
                "drr classes 8 class 1:1",
                "drr: `classes` and `class` exclude each other: a hash chooses among so many classes, filters among named ones",
            ),
        ] {
            assert_eq!(error(words), message);
        }
    }
}
