//! The keys at the head of the file.

use quell_link::Error;
use quell_link::field::Field;
use quell_qdisc::time::{Duration, SEC};

use super::{MAX_DURATION, check_length};
use crate::scenario::key::{Section, key};
use crate::scenario::model::Scenario;
use crate::scenario::tree::Table;

/// Largest seed: JSON readers represent 53 bits exactly.
const SEEDS: u64 = (1 << 53) - 1;

pub(in crate::scenario) static FILE: Section<Scenario> = Section {
    keys: &[
        key::<Scenario>(
            "name",
            Field::Other {
                syntax: "TEXT",
                set: |s, text| {
                    check_length(text.trim())?;
                    s.name = text.trim().to_owned();
                    match s.name.as_str() {
                        "" => Err(Error::new("empty").remedy("leave it out or give a name")),
                        _ => Ok(()),
                    }
                },
                get: |s| s.name.clone(),
            },
            "the scenario's name in reports and records",
        )
        .or("the file's name"),
        key(
            "duration",
            Field::Time(|s| &mut s.duration, Duration::from_nanos(1), MAX_DURATION),
            "simulated time, at most 39 h",
        ),
        key::<Scenario>(
            "warmup",
            Field::Time(|s| &mut s.warmup, Duration::ZERO, MAX_DURATION),
            "time at the start that is left out of every statistic",
        )
        .or("`\"5s\"`, or a quarter of a shorter run"),
        key(
            "seeds",
            Field::Count(|s| &mut s.seeds, 1, 1_000_000),
            "runs per queue",
        ),
        key(
            "seed",
            Field::Count64(|s| &mut s.seed, 0, SEEDS),
            "random seed of the first run, from which the other runs' seeds derive; a record names the seed that repeats it",
        ),
    ],
    default: Scenario::default,
    needs: None,
    finish: |s, table| {
        if !table.has("warmup") {
            // A short run must not consist of warm-up only.
            s.warmup = (5 * SEC).min(s.duration / 4);
        } else if s.warmup >= s.duration {
            return Err(too_long(s, table));
        }
        Ok(())
    },
};

fn too_long(s: &Scenario, table: &Table) -> Error {
    let what = format!(
        "{} is not shorter than the duration of {}",
        table.text("warmup").unwrap_or_default(),
        s.duration
    );
    let remedy = "make the duration longer or the warm-up shorter";
    table.error("warmup", Error::new(what).remedy(remedy))
}
