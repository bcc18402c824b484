//! The kinds with bands by priority: `pfifo_fast`, `prio`, `ets`.

use quell_qdisc::bands::{BandClass, MAX_BANDS, PRIORITIES, Params};
use quell_qdisc::disciplines;
use quell_qdisc::num;
use quell_qdisc::rate::Rate;

use super::class::{self, Class, IN_BANDS};
use super::rows::*;
use super::{AnyKind, Built, Field, Kind, Opt, Spec};
use crate::error::Error;
use crate::field;

pub(super) static KINDS: &[&dyn AnyKind] = &[&PFIFO_FAST, &PRIO, &ETS];

/// The given options.
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    params: Params,
    classes: Vec<Class>,
}

impl Words {
    fn of(params: Params) -> Self {
        let classes = Vec::new();
        Self { params, classes }
    }

    fn params(&self, rate: Rate) -> Params {
        let band = |class: &Class| BandClass {
            id: class.id.0,
            band: num::low_u8(u64::from((class.id.0 & 0xffff) - 1).min(u8::MAX.into())),
            filter: class.filter(),
            queue: class.built(rate),
        };
        Params {
            classes: self.classes.iter().map(band).collect(),
            ..self.params.clone()
        }
    }
}

impl Spec for Words {
    fn build(&self, rate: Rate) -> Built {
        Built::queue(disciplines::Params::Bands(self.params(rate)))
    }
}

fn check(words: &Words) -> Result<(), &'static str> {
    words.params(Rate::from_mbit(1)).check()
}

const BAND_LIMIT: Opt<Words> = opt(
    "limit",
    Field::Count(|w| &mut w.params.limit, 1, MAX_COUNT),
    "packets of each band (in tc: the device's txqueuelen)",
);

fn set_priomap(words: &mut Words, text: &str) -> Result<(), Error> {
    let mut places = words.params.priomap.iter_mut();
    for word in text.split_whitespace() {
        let band = num::low_u8(field::count(word, 0, u64::from(MAX_BANDS) - 1)?);
        let Some(place) = places.next() else {
            let what = format!("there are {PRIORITIES} priorities, not more");
            return Err(Error::new(what).remedy(format!("write at most {PRIORITIES} bands")));
        };
        *place = Some(band);
    }
    Ok(())
}

fn set_quanta(words: &mut Words, text: &str) -> Result<(), Error> {
    let quanta = text.split_whitespace();
    let quanta = quanta.map(|word| Ok(num::low_u32(field::size(word, 1, QUANTUM.into())?)));
    words.params.quanta = quanta.collect::<Result<_, Error>>()?;
    Ok(())
}

fn joined<V: ToString>(values: impl Iterator<Item = V>) -> String {
    let words: Vec<String> = values.map(|value| value.to_string()).collect();
    words.join(" ")
}

const PRIORITY_MAP: Opt<Words> = opt(
    "priomap",
    Field::Other {
        syntax: "N ...",
        set: set_priomap,
        get: |w| joined(w.params.priomap.iter().map_while(|band| *band)),
    },
    "the band of each priority 0 to 15; best effort is 0, bulk (of DSCPs 2) 2, interactive (4) 6, both (6) 4",
)
.list();

const CLASS: Opt<Words> = opt::<Words>(
    "class",
    Field::Other {
        syntax: "ID WORDS",
        set: |w, text| {
            w.classes = class::read(&IN_BANDS, text)?;
            Ok(())
        },
        get: |w| class::write(&IN_BANDS, &w.classes),
    },
    class::MEANING,
)
.classes(|| IN_BANDS.infos());

static PFIFO_FAST: Kind<Words> = Kind {
    name: "pfifo_fast",
    summary: "three bands by the old type of service, the first before the second before the third: what Linux gives an unconfigured device",
    source: "Linux sch_generic",
    default: || Words::of(Params::prio()),
    options: &[BAND_LIMIT],
    check,
};

static PRIO: Kind<Words> = Kind {
    name: "prio",
    summary: "bands by priority, each before those after it",
    source: "Linux sch_prio",
    default: || Words::of(Params::prio()),
    options: &[
        opt(
            "bands",
            Field::MaybeCount8(|w| &mut w.params.bands, 2, MAX_BANDS),
            "how many there are",
        ),
        PRIORITY_MAP,
        BAND_LIMIT,
        CLASS,
    ],
    check,
};

static ETS: Kind<Words> = Kind {
    name: "ets",
    summary: "Enhanced Transmission Selection: strict bands first, then deficit round robin over the others",
    source: "IEEE 802.1Qaz, Linux sch_ets",
    default: || Words::of(Params::ets()),
    options: &[
        opt(
            "bands",
            Field::MaybeCount8(|w| &mut w.params.bands, 1, MAX_BANDS),
            "how many there are (default: strict ones and quanta together, or 3)",
        ),
        opt(
            "strict",
            Field::MaybeCount8(|w| &mut w.params.strict, 0, MAX_BANDS),
            "how many of them, from the first on, are strict",
        ),
        opt(
            "quanta",
            Field::Other {
                syntax: "BYTES ...",
                set: set_quanta,
                get: |w| joined(w.params.quanta.iter()),
            },
            "bytes per round of the bands behind the strict ones (default: 1514 each)",
        )
        .list(),
        PRIORITY_MAP,
        BAND_LIMIT,
        CLASS,
    ],
    check,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Queue;

    fn params(words: &str) -> Params {
        let queue = Queue::parse(words).expect(words);
        queue
            .spec::<Words>()
            .expect("bands")
            .params(Rate::from_mbit(1))
    }

    fn error(words: &str) -> String {
        Queue::parse(words).expect_err(words).to_string()
    }

    #[test]
    fn lists_are_the_numbers_behind_their_word() {
        let p = params("ets bands 4 strict 1 quanta 4500 3000 1500 priomap 3 2 limit 50");
        assert_eq!(p.quanta, [4500, 3000, 1500]);
        assert_eq!(p.priomap[..3], [Some(3), Some(2), None]);
        assert_eq!((p.bands, p.strict, p.limit), (Some(4), Some(1), 50));
        // As in tc, priorities that prio's list omits keep their bands.
        let p = params("prio priomap 2 2");
        assert_eq!(p.priomap[..4], [Some(2), Some(2), Some(2), Some(2)]);
        assert_eq!(p.priomap[4], Some(1));
    }

    #[test]
    fn the_canonical_spelling_has_the_lists() {
        for words in [
            "ets strict 1 quanta 4500 1500 priomap 2 1 0",
            "prio bands 4 priomap 3 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1 limit 50",
            "pfifo_fast limit 100",
            "prio",
        ] {
            assert_eq!(Queue::parse(words).expect(words).canonical(), words);
        }
    }

    #[test]
    fn contradictions_are_one_line() {
        assert_eq!(
            error("prio priomap 3"),
            "prio: priomap names a band that does not exist; bands are numbered from 0, so write more bands or another priomap"
        );
        assert_eq!(
            error("ets bands 2 strict 1 quanta 1500 1500"),
            "ets: bands must be at least as many as strict ones and quanta together"
        );
        assert_eq!(
            error("prio priomap x"),
            "prio: `priomap` needs a value; write priomap N ..."
        );
        assert_eq!(
            error("prio priomap 1 2 band"),
            "prio: unknown option `band`; did you mean `bands`? Known: bands, priomap, limit, class"
        );
        assert_eq!(
            error("prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"),
            "prio: priomap: there are 16 priorities, not more; write at most 16 bands"
        );
        assert_eq!(
            error("ets quanta 0"),
            "ets: quanta: \"0\" is too small; write 1 to 1mb"
        );
    }
}
