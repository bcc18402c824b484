//! The model: the numbers that training finds, and their text file.
//!
//! A file begins with the line `hush 3`; a line for each part (its word and its numbers) and the
//! line `end` follow. Lines that begin with `#` are the model card.

use std::sync::{Arc, OnceLock};

use super::fixed;
use crate::{Error, num};

/// Features that the policy reads; see [`super::policy`].
pub const FEATURES: usize = 9;

/// Weights of one output.
pub type Row = [i32; FEATURES];

/// The numbers of a policy, each with [`fixed::Q`] fractional bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// ln of the target, seconds.
    pub target: Row,
    /// ln of the wait, round trips.
    pub wait: Row,
    /// ln of the hold, round trips.
    pub hold: Row,
    /// ln of (cap - b) / b, where b is the target plus the transmission time of two full-size
    /// packets.
    pub cap: Row,
    /// ln of the step for ECT(1), seconds.
    pub step: Row,
    /// The law's power; see [`super::law::Settings::power`].
    pub power: i32,
    /// Largest target, seconds.
    pub longest: i32,
    /// Smallest window of a flow that is marked, packets; packets of flows with smaller windows are
    /// dropped instead.
    pub window: i32,
    /// Weight of recent service in a flow's score: a flow that recently used the whole link counts
    /// as if it had this many targets queued; see `scores.rs`.
    pub service: i32,
    /// Weight of the service over ten round trips, in the same unit.
    pub steady: i32,
    /// Delay of a flow's deadlines, targets per e-fold by which its steady service exceeds the
    /// mean; see `order.rs`.
    pub kappa: i32,
    /// Lead of a packet that arrives while its flow has none queued, targets per e-fold by which
    /// the flow's service is below half of the mean.
    pub lead: i32,
    /// The step marks ECT(1) packets only if their flow's backlog times the number of active flows
    /// takes more than this many steps to drain; 0: always.
    pub own: i32,
    /// Weights for ln of the dry share at which the target does not change, of the features 1, 2, 4
    /// and 9 in [`super::policy`].
    pub dry: [i32; DRY_FEATURES],
    /// Rate at which ln of the target follows the dry share, per round trip; 0: not at all.
    pub gain: i32,
    /// Lower bound of what the dry share adds to ln of the target, at most 0.
    pub falls: i32,
    /// Upper bound of what the dry share adds to ln of the target, at least 0.
    pub rises: i32,
}

/// Features of the dry share at which the target does not change.
pub const DRY_FEATURES: usize = 4;

/// The text of the model that quell ships.
pub const TEXT: &str = include_str!("shipped.txt");

const ROWS: [&str; 5] = ["target", "wait", "hold", "cap", "step"];
/// Word, minimum and maximum.
const NUMBERS: [(&str, f64, f64); 11] = [
    ("power", 0.0, 2.0),
    ("longest", 0.0001, 1.0),
    ("window", 0.0, 1000.0),
    ("service", 0.0, 16.0),
    ("steady", 0.0, 16.0),
    ("kappa", 0.0, 16.0),
    ("lead", 0.0, 16.0),
    ("own", 0.0, 100.0),
    ("gain", 0.0, 1.0),
    ("falls", -10.0, 0.0),
    ("rises", 0.0, 10.0),
];
const DRY: &str = "dry";
/// The largest magnitude of a weight.
const MAX_WEIGHT: f64 = 100.0;

impl Model {
    /// The model that quell ships.
    pub fn shipped() -> Arc<Self> {
        static SHIPPED: OnceLock<Arc<Model>> = OnceLock::new();
        let shipped = SHIPPED.get_or_init(|| {
            let read = Self::parse(TEXT);
            Arc::new(read.unwrap_or_else(|e| unreachable!("hush/shipped.txt: {e}")))
        });
        Arc::clone(shipped)
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// The first fault; its key names the line.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let lines = text.lines().enumerate().map(|(i, l)| (i + 1, l.trim()));
        let mut lines = lines.filter(|(_, l)| !l.is_empty() && !l.starts_with('#'));
        match lines.next() {
            Some((_, "hush 3")) => (),
            Some((_, "hush 1" | "hush 2")) => {
                let error = Error::new("a model of an earlier version's law");
                return Err(error.remedy("train again with `quell train hush`"));
            }
            _ => {
                let error = Error::new("not a model of hush");
                return Err(error.remedy("its first line must be `hush 3`"));
            }
        }
        let mut dry = None;
        let mut rows = [None; ROWS.len()];
        let mut numbers = [None; NUMBERS.len()];
        let mut ended = false;
        for (n, line) in lines {
            let place = format!("line {n}");
            if std::mem::replace(&mut ended, line == "end") {
                return Err(Error::new("text after the line `end`").under(&place));
            }
            if ended {
                continue;
            }
            let mut words = line.split_whitespace();
            let word = words.next().unwrap_or_default();
            let twice = || {
                let error = Error::new(format!("{word} is given twice"));
                error.remedy("give it once").under(&place)
            };
            let values: Vec<&str> = words.collect();
            if let Some(i) = ROWS.iter().position(|row| *row == word) {
                let row = read::<FEATURES>(&place, word, &values, -MAX_WEIGHT, MAX_WEIGHT)?;
                if rows[i].replace(row).is_some() {
                    return Err(twice());
                }
            } else if word == DRY {
                let row = read::<DRY_FEATURES>(&place, word, &values, -MAX_WEIGHT, MAX_WEIGHT)?;
                if dry.replace(row).is_some() {
                    return Err(twice());
                }
            } else if let Some(i) = NUMBERS.iter().position(|(name, ..)| *name == word) {
                let (_, low, high) = NUMBERS[i];
                let [number] = read::<1>(&place, word, &values, low, high)?;
                if numbers[i].replace(number).is_some() {
                    return Err(twice());
                }
            } else {
                let numbers = NUMBERS.map(|(word, ..)| word);
                let known: Vec<_> = ROWS.into_iter().chain([DRY]).chain(numbers).collect();
                let error = Error::new(format!("unknown word `{word:.30}`"));
                let remedy = format!("known: {}", known.join(", "));
                return Err(error.remedy(remedy).under(&place));
            }
        }
        let lacks = |word: &str| {
            let what = "is missing: the file is cut off or of another form";
            Error::new(format!("the line `{word}` {what}"))
        };
        if !ended {
            return Err(lacks("end"));
        }
        let [target, wait, hold, cap, step] = rows;
        let [
            power,
            longest,
            window,
            service,
            steady,
            kappa,
            lead,
            own,
            gain,
            falls,
            rises,
        ] = numbers;
        Ok(Self {
            target: target.ok_or_else(|| lacks("target"))?,
            wait: wait.ok_or_else(|| lacks("wait"))?,
            hold: hold.ok_or_else(|| lacks("hold"))?,
            cap: cap.ok_or_else(|| lacks("cap"))?,
            step: step.ok_or_else(|| lacks("step"))?,
            power: power.ok_or_else(|| lacks("power"))?,
            longest: longest.ok_or_else(|| lacks("longest"))?,
            window: window.ok_or_else(|| lacks("window"))?,
            service: service.ok_or_else(|| lacks("service"))?,
            steady: steady.ok_or_else(|| lacks("steady"))?,
            kappa: kappa.ok_or_else(|| lacks("kappa"))?,
            lead: lead.ok_or_else(|| lacks("lead"))?,
            own: own.ok_or_else(|| lacks("own"))?,
            dry: dry.ok_or_else(|| lacks(DRY))?,
            gain: gain.ok_or_else(|| lacks("gain"))?,
            falls: falls.ok_or_else(|| lacks("falls"))?,
            rises: rises.ok_or_else(|| lacks("rises"))?,
        })
    }
}

/// Reads `N` numbers in a range.
fn read<const N: usize>(
    place: &str,
    word: &str,
    values: &[&str],
    low: f64,
    high: f64,
) -> Result<[i32; N], Error> {
    if values.len() != N {
        let error = Error::new(format!("{word} has {} numbers", values.len()));
        return Err(error.remedy(format!("it needs {N}")).under(place));
    }
    let mut row = [0; N];
    for (kept, text) in row.iter_mut().zip(values) {
        let number = text
            .parse::<f64>()
            .ok()
            .filter(|x| (low..=high).contains(x));
        let number = number.ok_or_else(|| {
            let what = format!("{word}: \"{text:.30}\" is not a number from {low} to {high}");
            Error::new(what).under(place)
        })?;
        *kept = num::whole_i32(libm::round(number * fixed::ONE as f64));
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let e = Model::parse(text).expect_err(text).to_string();
        assert!(!e.contains('\n'), "{e}");
        e
    }

    #[test]
    fn the_shipped_model_is_read() {
        assert!(Model::shipped().power > 0);
    }

    #[test]
    fn a_file_that_is_cut_off_anywhere_is_refused() {
        (0..TEXT.trim_end().len()).for_each(|at| drop(error(&TEXT[..at])));
    }

    #[test]
    fn numbers_that_are_none_or_out_of_range_are_refused() {
        let power = TEXT.lines().find(|l| l.starts_with("power")).unwrap();
        for bad in ["NaN", "inf", "-1", "1e9", "x"] {
            let e = error(&TEXT.replace(power, &format!("power {bad}")));
            assert!(
                e.ends_with(&format!("power: \"{bad}\" is not a number from 0 to 2")),
                "{e}"
            );
        }
        let after = format!("{TEXT}\n{power}");
        assert!(error(&after).ends_with("text after the line `end`"));
        let twice = TEXT.replace(power, &format!("{power}\n{power}"));
        assert!(error(&twice).contains("power is given twice"));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(error("").contains("first line must be `hush 3`"));
        assert!(error("hush 4\n").contains("first line must be `hush 3`"));
        for earlier in ["hush 1\n", "hush 2\n"] {
            assert!(error(earlier).contains("train again with `quell train hush`"));
        }
        assert!(error("hush 3\ntarget 1 2\n").contains("target has 2 numbers; it needs 9"));
        assert!(error("hush 3\nbias 1\n").contains("unknown word `bias`; known: target, wait"));
    }
}
