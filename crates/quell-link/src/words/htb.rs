//! `htb`: a tree of classes.

use quell_qdisc::disciplines;
use quell_qdisc::htb::{self, Params};
use quell_qdisc::rate::Rate;

use super::class::{self, Class, IN_HTB};
use super::rows::*;
use super::{Built, Field, Kind, Spec};
use crate::error::Error;

/// The given options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    params: Params,
    classes: Vec<Class>,
}

impl Words {
    fn params(&self) -> Params {
        Params {
            classes: self.classes.iter().map(built).collect(),
            ..self.params.clone()
        }
    }
}

/// Parameters of a class.
fn built(class: &Class) -> htb::Class {
    let rate = class.rate.unwrap_or_default();
    htb::Class {
        id: class.id.0,
        parent: class.parent.map(|id| id.0),
        rate,
        ceil: class.ceil,
        burst: class.burst,
        cburst: class.cburst,
        prio: class.prio.unwrap_or_default(),
        quantum: class.quantum,
        filter: class.filter(),
        queue: class.built(class.ceil.unwrap_or(rate).max(Rate::from_bps(1))),
    }
}

impl Spec for Words {
    fn build(&self, _: Rate) -> Built {
        Built::queue(disciplines::Params::Htb(self.params()))
    }
}

/// Reads a minor number as `tc` does: hexadecimal digits, with or without `0x`.
fn set_default(words: &mut Words, text: &str) -> Result<(), Error> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    words.params.default = u16::from_str_radix(digits, 16).map_err(|_| {
        let what = format!("\"{text}\" is not a minor number of a class");
        Error::new(what).remedy("write the part behind the colon, in hexadecimal digits")
    })?;
    Ok(())
}

pub(super) static HTB: Kind<Words> = Kind {
    name: "htb",
    summary: "a tree of classes, each sure of a rate, which borrow from those above them up to their ceilings",
    source: "Linux sch_htb",
    default: Words::default,
    options: &[
        opt(
            "default",
            Field::Other {
                syntax: "MINOR",
                set: set_default,
                get: |w| format!("{:x}", w.params.default),
            },
            "minor number of the class of packets that no filter takes; without such a leaf they pass unshaped",
        ),
        opt(
            "r2q",
            Field::Count(|w| &mut w.params.r2q, 1, MAX_COUNT),
            "bytes of a class's rate per byte of its quantum",
        ),
        opt(
            "direct_qlen",
            Field::Count(|w| &mut w.params.direct_qlen, 0, MAX_COUNT),
            "packets that wait to pass unshaped",
        ),
        opt::<Words>(
            "class",
            Field::Other {
                syntax: "ID WORDS",
                set: |w, text| {
                    w.classes = class::read(&IN_HTB, text)?;
                    Ok(())
                },
                get: |w| class::write(&IN_HTB, &w.classes),
            },
            class::MEANING,
        )
        .classes(|| IN_HTB.infos()),
    ],
    check: |w| w.params().check(),
};
