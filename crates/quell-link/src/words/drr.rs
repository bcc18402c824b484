//! `drr`: classes chosen by a hash of the flow, or named classes with filters.

use quell_qdisc::bands::{self, BandClass, MAX_CLASSES};
use quell_qdisc::rate::Rate;
use quell_qdisc::{disciplines, drr, num};

use super::class::{self, Class, IN_DRR};
use super::rows::*;
use super::{Built, Field, Kind, Spec};

/// The given options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    params: drr::Params,
    classes: Vec<Class>,
}

impl Words {
    /// The named classes as bands without strict priority.
    fn bands(&self, rate: Rate) -> bands::Params {
        let quantum = |class: &Class| class.quantum.unwrap_or(self.params.quantum);
        let band = |(i, class): (usize, &Class)| BandClass {
            id: class.id.0,
            band: num::low_u8(i.min(MAX_CLASSES) as u64),
            filter: class.filter(),
            queue: class.built(rate),
        };
        bands::Params {
            quanta: self.classes.iter().map(quantum).collect(),
            limit: self.params.limit,
            classes: self.classes.iter().enumerate().map(band).collect(),
            drr: true,
            ..bands::Params::ets()
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        self.params.check()?;
        if self.classes.is_empty() {
            return Ok(());
        }
        if self.params.classes != drr::Params::default().classes {
            return Err(
                "`classes` and `class` exclude each other: a hash chooses among so many classes, filters among named ones",
            );
        }
        let twice =
            |(i, class): (usize, &Class)| self.classes[..i].iter().any(|c| c.id == class.id);
        if self.classes.iter().enumerate().any(twice) {
            return Err("two classes have the same id; number them differently");
        }
        self.bands(Rate::from_mbit(1)).check()
    }
}

impl Spec for Words {
    fn build(&self, rate: Rate) -> Built {
        Built::queue(match self.classes.is_empty() {
            true => disciplines::Params::Drr(self.params.clone()),
            false => disciplines::Params::Bands(self.bands(rate)),
        })
    }
}

pub(super) static DRR: Kind<Words> = Kind {
    name: "drr",
    summary: "deficit round robin over classes: FIFOs among which a hash of the flow chooses, or named classes with filters",
    source: "Shreedhar and Varghese 1995, Linux sch_drr",
    default: Words::default,
    options: &[
        opt(
            "classes",
            Field::Count(|w| &mut w.params.classes, 1, 65_536),
            "classes that the hash has, where none is named",
        ),
        opt(
            "quantum",
            Field::Bytes32(|w| &mut w.params.quantum, 1, QUANTUM),
            "bytes of each class per round",
        ),
        opt(
            "limit",
            Field::Count(|w| &mut w.params.limit, 1, MAX_COUNT),
            "packets of each class that is a FIFO (in tc: the device's txqueuelen)",
        ),
        opt::<Words>(
            "class",
            Field::Other {
                syntax: "ID WORDS",
                set: |w, text| {
                    w.classes = class::read(&IN_DRR, text)?;
                    Ok(())
                },
                get: |w| class::write(&IN_DRR, &w.classes),
            },
            class::MEANING,
        )
        .classes(|| IN_DRR.infos()),
    ],
    check: Words::check,
};
