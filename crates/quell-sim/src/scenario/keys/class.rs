//! The keys of `[[class]]`: those of [`quell_link::words::class`], and `direction`.

use quell_link::words::class::{self, Class, Row};

use crate::scenario::key::{Key, Needs, Section, key};
use crate::scenario::model::Direction;
use quell_link::field::Field;

const fn row(Row(name, field, meaning): Row) -> Key<Class> {
    key(name, field, meaning)
}

pub(in crate::scenario) static CLASS: Section<Class> = Section {
    keys: &[
        row(class::ID).or("required"),
        row(class::PARENT).or("none: it is at the top"),
        row(class::RATE).or("required in `htb`"),
        row(class::CEIL).or("its `rate`"),
        row(class::BURST).or("1600, and a nanosecond of the rate"),
        row(class::CBURST).or("1600, and a nanosecond of the rate"),
        row(class::PRIO).or("0"),
        row(class::QUANTUM_).or("in `htb` the rate in bytes over `r2q`, 1000 to 200000"),
        row(class::DSCP),
        row(class::FWMARK),
        row(class::HOST),
        row(class::QUEUE).or("a `pfifo`"),
    ],
    default: Class::default,
    needs: Some(Needs {
        one_of: &["id"],
        what: "it has no number",
        remedy: "write id = \"1:10\"",
    }),
    finish: |_, _| Ok(()),
};

/// The link that a class belongs to.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct Side {
    pub direction: Direction,
}

pub(in crate::scenario) static SIDE: Section<Side> = Section {
    keys: &[key(
        "direction",
        Field::Choice {
            what: "direction",
            words: "down|up",
            set: |side, word| {
                side.direction = match word {
                    "up" => Direction::Up,
                    _ => Direction::Down,
                };
            },
            get: |side| match side.direction {
                Direction::Down => "down",
                Direction::Up => "up",
            },
        },
        "whose queue has the class: that of `[link]` or of `[link.up]`",
    )],
    default: || Side {
        direction: Direction::Down,
    },
    needs: None,
    finish: |_, _| Ok(()),
};
