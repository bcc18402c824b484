//! One parameter: how its value is read from text, checked, kept and written. The options of queue words and the
//! keys of scenario files are tables of these.

use quell_qdisc::{NEVER, Nanos};

use crate::error::Error;
use crate::units;

/// A value's type, where it is kept in a `T`, and its range.
pub enum Field<T: 'static> {
    /// A count (packets, flows) from at least to at most.
    Count(fn(&mut T) -> &mut u32, u32, u32),
    /// The same in 64 bits.
    Count64(fn(&mut T) -> &mut u64, u64, u64),
    /// The same, or none.
    MaybeCount(fn(&mut T) -> &mut Option<u32>, u32, u32),
    /// The same in 8 bits.
    MaybeCount8(fn(&mut T) -> &mut Option<u8>, u8, u8),
    /// Bytes, from at least to at most.
    Bytes(fn(&mut T) -> &mut u64, u64, u64),
    /// The same in 32 bits.
    Bytes32(fn(&mut T) -> &mut u32, u32, u32),
    /// Bytes, or none.
    MaybeBytes(fn(&mut T) -> &mut Option<u64>, u64, u64),
    /// bit/s, from at least to at most.
    Rate(fn(&mut T) -> &mut u64, u64, u64),
    /// The same, or none.
    MaybeRate(fn(&mut T) -> &mut Option<u64>, u64, u64),
    /// Nanoseconds, from at least to at most.
    Time(fn(&mut T) -> &mut Nanos, Nanos, Nanos),
    /// The same, or none.
    MaybeTime(fn(&mut T) -> &mut Option<Nanos>, Nanos, Nanos),
    /// 0..1.
    Probability(fn(&mut T) -> &mut f64),
    /// The same, or none.
    MaybeProbability(fn(&mut T) -> &mut Option<f64>),
    /// A number, from at least to at most.
    Number(fn(&mut T) -> &mut f64, f64, f64),
    /// True or false. In queue words a word alone and its opposite (empty: it has none).
    Flag(fn(&mut T) -> &mut bool, &'static str),
    /// A flag that is not kept as a bool.
    Switch {
        /// The opposite in queue words.
        off: &'static str,
        /// Keeps it.
        set: fn(&mut T, bool),
        /// Whether it is on.
        get: fn(&T) -> bool,
    },
    /// One of some words.
    Choice {
        /// What errors call it.
        what: &'static str,
        /// The words, separated by `|`.
        words: &'static str,
        /// Keeps one of them.
        set: fn(&mut T, &str),
        /// The one that holds.
        get: fn(&T) -> &str,
    },
    /// In queue words: one of some words that stand alone.
    Word {
        /// The words, separated by `|`.
        words: &'static str,
        /// Keeps one of them.
        set: fn(&mut T, &str),
        /// The one that holds (empty: none of them).
        get: fn(&T) -> &'static str,
    },
    /// A file that brings values for the options after it.
    File {
        /// Reads it.
        set: fn(&mut T, &str) -> Result<(), Error>,
        /// Its name (empty: none).
        get: fn(&T) -> String,
        /// What holds with no more than the file.
        brought: fn(&T) -> T,
    },
    /// Anything else.
    Other {
        /// How it is written: alternatives separated by `|`, words as they are, sorts of values in capitals (`N`, `TIME` ...).
        syntax: &'static str,
        /// Reads it.
        set: fn(&mut T, &str) -> Result<(), Error>,
        /// Its text (empty: it is not set).
        get: fn(&T) -> String,
    },
}

/// From where to where a value may go.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
    /// Both as one would write them: `1 to 1000`.
    pub text: String,
}

impl<T: Clone> Field<T> {
    /// Is it a word without a value in queue words?
    pub fn is_flag(&self) -> bool {
        matches!(
            self,
            Field::Flag(..) | Field::Switch { .. } | Field::Word { .. }
        )
    }

    /// A flag's opposite in queue words, if it has one.
    pub fn off(&self) -> Option<&'static str> {
        match self {
            Field::Flag(_, off) | Field::Switch { off, .. } => Some(*off).filter(|o| !o.is_empty()),
            _ => None,
        }
    }

    /// How a value is written, as [`Field::Other`] says it.
    pub fn syntax(&self) -> &'static str {
        match self {
            Field::Count(..)
            | Field::Count64(..)
            | Field::MaybeCount(..)
            | Field::MaybeCount8(..) => "N",
            Field::Rate(..) | Field::MaybeRate(..) => "RATE",
            Field::Bytes(..) | Field::Bytes32(..) | Field::MaybeBytes(..) => "BYTES",
            Field::Time(..) | Field::MaybeTime(..) => "TIME",
            Field::Probability(_) | Field::MaybeProbability(_) => "P",
            Field::Number(..) => "X",
            Field::Flag(..) | Field::Switch { .. } => "true|false",
            Field::Choice { words, .. } | Field::Word { words, .. } => words,
            Field::File { .. } => "FILE",
            Field::Other { syntax, .. } => syntax,
        }
    }

    /// The range of a value that has one.
    pub fn range(&self) -> Option<Range> {
        let whole = |low: u64, high: u64, show: fn(u64) -> String| {
            Some(Range {
                low: low as f64,
                high: high as f64,
                text: format!("{} to {}", show(low), show(high)),
            })
        };
        match *self {
            Field::Count(_, low, high) | Field::MaybeCount(_, low, high) => {
                whole(low.into(), high.into(), digits)
            }
            Field::Count64(_, low, high) => whole(low, high, digits),
            Field::MaybeCount8(_, low, high) => whole(low.into(), high.into(), digits),
            Field::Bytes32(_, low, high) => whole(low.into(), high.into(), units::format_size),
            Field::Bytes(_, low, high) | Field::MaybeBytes(_, low, high) => {
                whole(low, high, units::format_size)
            }
            Field::Rate(_, low, high) | Field::MaybeRate(_, low, high) => {
                whole(low, high, units::format_rate)
            }
            Field::Time(_, low, high) | Field::MaybeTime(_, low, high) => {
                whole(low, high, units::format_time)
            }
            Field::Number(_, low, high) => Some(Range {
                low,
                high,
                text: format!("{low} to {high}"),
            }),
            _ => None,
        }
    }

    /// Reads a value; a flag's is `true` or `false`.
    ///
    /// # Errors
    /// If it is not such a value or is out of its range.
    pub fn set(&self, params: &mut T, text: &str) -> Result<(), Error> {
        match *self {
            Field::Count(at, low, high) => {
                *at(params) = count(text, low.into(), high.into())? as u32;
            }
            Field::Count64(at, low, high) => *at(params) = count(text, low, high)?,
            Field::MaybeCount(at, low, high) => {
                *at(params) = Some(count(text, low.into(), high.into())? as u32);
            }
            Field::MaybeCount8(at, low, high) => {
                *at(params) = Some(count(text, low.into(), high.into())? as u8);
            }
            Field::Bytes(at, low, high) => *at(params) = size(text, low, high)?,
            Field::Bytes32(at, low, high) => {
                *at(params) = size(text, low.into(), high.into())? as u32;
            }
            Field::MaybeBytes(at, low, high) => *at(params) = Some(size(text, low, high)?),
            Field::Rate(at, low, high) => *at(params) = rate(text, low, high)?,
            Field::MaybeRate(at, low, high) => *at(params) = Some(rate(text, low, high)?),
            Field::Time(at, low, high) => *at(params) = time(text, low, high)?,
            Field::MaybeTime(at, low, high) => *at(params) = Some(time(text, low, high)?),
            Field::Probability(at) => *at(params) = units::parse_probability(text)?,
            Field::MaybeProbability(at) => *at(params) = Some(units::parse_probability(text)?),
            Field::Number(at, low, high) => *at(params) = number(text, low, high)?,
            Field::Flag(at, _) => *at(params) = boolean(text)?,
            Field::Switch { set, .. } => set(params, boolean(text)?),
            Field::Choice {
                what, words, set, ..
            } => {
                let known = words.split('|');
                if !known.clone().any(|word| word == text) {
                    return Err(Error::unknown(what, text, known));
                }
                set(params, text);
            }
            Field::Word { set, .. } => set(params, text),
            Field::File { set, .. } | Field::Other { set, .. } => set(params, text)?,
        }
        Ok(())
    }

    /// The value as one would write it, empty for none.
    pub fn get(&self, params: &T) -> String {
        let mut params = params.clone();
        let or_none = |value: Option<String>| value.unwrap_or_default();
        match *self {
            Field::Count(at, ..) => at(&mut params).to_string(),
            Field::Count64(at, ..) => at(&mut params).to_string(),
            Field::MaybeCount(at, ..) => or_none(at(&mut params).map(|n| n.to_string())),
            Field::MaybeCount8(at, ..) => or_none(at(&mut params).map(|n| n.to_string())),
            Field::Bytes(at, ..) => units::format_size(*at(&mut params)),
            Field::Bytes32(at, ..) => units::format_size((*at(&mut params)).into()),
            Field::MaybeBytes(at, ..) => or_none(at(&mut params).map(units::format_size)),
            Field::Rate(at, ..) => units::format_rate(*at(&mut params)),
            Field::MaybeRate(at, ..) => or_none(at(&mut params).map(units::format_rate)),
            Field::Time(at, ..) => match *at(&mut params) {
                NEVER => String::new(),
                time => units::format_time(time),
            },
            Field::MaybeTime(at, ..) => or_none(at(&mut params).map(units::format_time)),
            Field::Probability(at) | Field::Number(at, ..) => at(&mut params).to_string(),
            Field::MaybeProbability(at) => or_none(at(&mut params).map(|p| p.to_string())),
            Field::Flag(at, _) => at(&mut params).to_string(),
            Field::Switch { get, .. } => get(&params).to_string(),
            Field::Choice { get, .. } => get(&params).to_owned(),
            Field::Word { get, .. } => get(&params).to_owned(),
            Field::File { get, .. } | Field::Other { get, .. } => get(&params),
        }
    }
}

/// A whole number between two others.
///
/// # Errors
/// If it is something else or is out of this range.
pub fn count(text: &str, low: u64, high: u64) -> Result<u64, Error> {
    let n = units::parse_count(text)
        .map_err(|e| e.remedy(format!("write a whole number from {low} to {high}")))?;
    within(n, low, high, text, digits)
}

/// Bytes between two numbers.
///
/// # Errors
/// If it is something else or is out of this range.
pub fn size(text: &str, low: u64, high: u64) -> Result<u64, Error> {
    within(
        units::parse_size(text)?,
        low,
        high,
        text,
        units::format_size,
    )
}

/// bit/s between two others.
///
/// # Errors
/// If it is something else or is out of this range.
pub fn rate(text: &str, low: u64, high: u64) -> Result<u64, Error> {
    within(
        units::parse_rate(text)?,
        low,
        high,
        text,
        units::format_rate,
    )
}

/// A time between two others, ns.
///
/// # Errors
/// If it is something else or is out of this range.
pub fn time(text: &str, low: Nanos, high: Nanos) -> Result<Nanos, Error> {
    within(
        units::parse_time(text)?,
        low,
        high,
        text,
        units::format_time,
    )
}

/// A number between two others.
///
/// # Errors
/// If it is something else or is out of this range.
pub fn number(text: &str, low: f64, high: f64) -> Result<f64, Error> {
    within(units::parse_number(text)?, low, high, text, |x| {
        x.to_string()
    })
}

/// true or false, also 1 or 0.
///
/// # Errors
/// If it is something else.
pub fn boolean(text: &str) -> Result<bool, Error> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(Error::new(format!("\"{text}\" is neither true nor false"))
            .remedy("write true or false")),
    }
}

fn digits(n: u64) -> String {
    n.to_string()
}

fn within<V: PartialOrd + Copy>(
    value: V,
    low: V,
    high: V,
    text: &str,
    show: fn(V) -> String,
) -> Result<V, Error> {
    let way = match value {
        v if v < low => "small",
        v if v > high => "large",
        _ => return Ok(value),
    };
    let remedy = format!("write {} to {}", show(low), show(high));
    Err(Error::new(format!("\"{text}\" is too {way}")).remedy(remedy))
}
