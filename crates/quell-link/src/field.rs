//! A parameter: its type, place, range and notation. The options of queue words and the keys of
//! scenario files are tables of these.

use quell_qdisc::num;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::Duration;

use crate::error::Error;
use crate::units;

/// Type of a value, its place in a `T`, and its range.
pub enum Field<T: 'static> {
    /// A count (packets, flows): place, minimum, maximum.
    Count(fn(&mut T) -> &mut u32, u32, u32),
    /// A count in 64 bits.
    Count64(fn(&mut T) -> &mut u64, u64, u64),
    /// An optional count.
    MaybeCount(fn(&mut T) -> &mut Option<u32>, u32, u32),
    /// An optional count in 8 bits.
    MaybeCount8(fn(&mut T) -> &mut Option<u8>, u8, u8),
    /// Bytes: place, minimum, maximum.
    Bytes(fn(&mut T) -> &mut u64, u64, u64),
    /// Bytes in 32 bits.
    Bytes32(fn(&mut T) -> &mut u32, u32, u32),
    /// Optional bytes.
    MaybeBytes(fn(&mut T) -> &mut Option<u64>, u64, u64),
    /// A rate: place, minimum, maximum.
    Rate(fn(&mut T) -> &mut Rate, Rate, Rate),
    /// An optional rate.
    MaybeRate(fn(&mut T) -> &mut Option<Rate>, Rate, Rate),
    /// A time: place, minimum, maximum.
    Time(fn(&mut T) -> &mut Duration, Duration, Duration),
    /// An optional time.
    MaybeTime(fn(&mut T) -> &mut Option<Duration>, Duration, Duration),
    /// A probability, 0..1.
    Probability(fn(&mut T) -> &mut f64),
    /// An optional probability.
    MaybeProbability(fn(&mut T) -> &mut Option<f64>),
    /// A real number: place, minimum, maximum.
    Number(fn(&mut T) -> &mut f64, f64, f64),
    /// True or false. In queue words: a word that stands alone, and the word for false (empty:
    /// none).
    Flag(fn(&mut T) -> &mut bool, &'static str),
    /// A flag that is not stored as a bool.
    Switch {
        /// The word for false in queue words (empty: none).
        off: &'static str,
        /// Stores the flag.
        set: fn(&mut T, bool),
        /// Whether the flag is on.
        get: fn(&T) -> bool,
    },
    /// One of some words.
    Choice {
        /// Name of the value in errors.
        what: &'static str,
        /// The words, separated by `|`.
        words: &'static str,
        /// Stores one of them.
        set: fn(&mut T, &str),
        /// The current word.
        get: fn(&T) -> &str,
    },
    /// In queue words: one of some words that stand alone.
    Word {
        /// The words, separated by `|`.
        words: &'static str,
        /// Stores one of them.
        set: fn(&mut T, &str),
        /// The current word (empty: none of them).
        get: fn(&T) -> &'static str,
    },
    /// A file whose values are defaults for the options after it.
    File {
        /// Reads the file.
        set: fn(&mut T, &str) -> Result<(), Error>,
        /// Name of the file (empty: none).
        get: fn(&T) -> String,
        /// The parameters with the values of the file alone.
        of_file: fn(&T) -> T,
    },
    /// Any other value.
    Other {
        /// Notation: alternatives separated by `|`, words literally, kinds of values in capitals
        /// (`N`, `TIME` ...).
        syntax: &'static str,
        /// Reads the value.
        set: fn(&mut T, &str) -> Result<(), Error>,
        /// The value as text (empty: not set).
        get: fn(&T) -> String,
    },
}

/// Range of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// Minimum.
    pub low: f64,
    /// Maximum.
    pub high: f64,
    /// Both in the notation of queue words: `1 to 1000`.
    pub text: String,
}

impl<T> Field<T> {
    /// Whether it is a word without a value in queue words.
    pub const fn is_flag(&self) -> bool {
        matches!(
            self,
            Field::Flag(..) | Field::Switch { .. } | Field::Word { .. }
        )
    }

    /// A flag's word for false in queue words, if it has one.
    pub const fn off(&self) -> Option<&'static str> {
        match self {
            Field::Flag(_, off) | Field::Switch { off, .. } if !off.is_empty() => Some(*off),
            _ => None,
        }
    }

    /// Notation of a value, as in [`Field::Other`].
    pub const fn syntax(&self) -> &'static str {
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
                whole(low.bps(), high.bps(), |bps| Rate::from_bps(bps).to_string())
            }
            Field::Time(_, low, high) | Field::MaybeTime(_, low, high) => {
                let show = |nanos| Duration::from_nanos(nanos).to_string();
                whole(low.as_nanos(), high.as_nanos(), show)
            }
            Field::Number(_, low, high) => Some(Range {
                low,
                high,
                text: format!("{low} to {high}"),
            }),
            _ => None,
        }
    }
}

impl<T: Clone> Field<T> {
    /// Reads a value; a flag's value is `true` or `false`.
    ///
    /// # Errors
    /// If the text is not such a value or the value is out of its range.
    pub fn set(&self, params: &mut T, text: &str) -> Result<(), Error> {
        if let Some(place) = self.place(params) {
            return place.set(text);
        }
        match *self {
            Field::Switch { set, .. } => set(params, boolean(text)?),
            Field::Choice {
                what, words, set, ..
            } => set(params, choice(what, words, text)?),
            Field::Word { set, .. } => set(params, text),
            Field::File { set, .. } | Field::Other { set, .. } => set(params, text)?,
            _ => {}
        }
        Ok(())
    }

    /// The value as text, empty if there is none.
    pub fn get(&self, params: &T) -> String {
        if let Some(place) = self.place(&mut params.clone()) {
            return place.get();
        }
        match *self {
            Field::Switch { get, .. } => get(params).to_string(),
            Field::Choice { get, .. } => get(params).to_owned(),
            Field::Word { get, .. } => get(params).to_owned(),
            Field::File { get, .. } | Field::Other { get, .. } => get(params),
            _ => String::new(),
        }
    }

    /// Place and range of the value, if it has one of the usual types.
    fn place<'a>(&self, params: &'a mut T) -> Option<Place<'a>> {
        Some(match *self {
            Field::Count(at, low, high) => Place::Count(at(params), low, high),
            Field::Count64(at, low, high) => Place::Count64(at(params), low, high),
            Field::MaybeCount(at, low, high) => Place::MaybeCount(at(params), low, high),
            Field::MaybeCount8(at, low, high) => Place::MaybeCount8(at(params), low, high),
            Field::Bytes(at, low, high) => Place::Bytes(at(params), low, high),
            Field::Bytes32(at, low, high) => Place::Bytes32(at(params), low, high),
            Field::MaybeBytes(at, low, high) => Place::MaybeBytes(at(params), low, high),
            Field::Rate(at, low, high) => Place::Rate(at(params), low, high),
            Field::MaybeRate(at, low, high) => Place::MaybeRate(at(params), low, high),
            Field::Time(at, low, high) => Place::Time(at(params), low, high),
            Field::MaybeTime(at, low, high) => Place::MaybeTime(at(params), low, high),
            Field::Probability(at) => Place::Probability(at(params)),
            Field::MaybeProbability(at) => Place::MaybeProbability(at(params)),
            Field::Number(at, low, high) => Place::Number(at(params), low, high),
            Field::Flag(at, _) => Place::Flag(at(params)),
            Field::Switch { .. }
            | Field::Choice { .. }
            | Field::Word { .. }
            | Field::File { .. }
            | Field::Other { .. } => return None,
        })
    }
}

/// Place and range of a value of a usual type. Code that reads and writes values is compiled once
/// for this type, not for each type of parameters.
enum Place<'a> {
    Count(&'a mut u32, u32, u32),
    Count64(&'a mut u64, u64, u64),
    MaybeCount(&'a mut Option<u32>, u32, u32),
    MaybeCount8(&'a mut Option<u8>, u8, u8),
    Bytes(&'a mut u64, u64, u64),
    Bytes32(&'a mut u32, u32, u32),
    MaybeBytes(&'a mut Option<u64>, u64, u64),
    Rate(&'a mut Rate, Rate, Rate),
    MaybeRate(&'a mut Option<Rate>, Rate, Rate),
    Time(&'a mut Duration, Duration, Duration),
    MaybeTime(&'a mut Option<Duration>, Duration, Duration),
    Probability(&'a mut f64),
    MaybeProbability(&'a mut Option<f64>),
    Number(&'a mut f64, f64, f64),
    Flag(&'a mut bool),
}

impl Place<'_> {
    fn set(self, text: &str) -> Result<(), Error> {
        match self {
            Place::Count(at, low, high) => {
                *at = num::low_u32(count(text, low.into(), high.into())?)
            }
            Place::Count64(at, low, high) => *at = count(text, low, high)?,
            Place::MaybeCount(at, low, high) => {
                *at = Some(num::low_u32(count(text, low.into(), high.into())?));
            }
            Place::MaybeCount8(at, low, high) => {
                *at = Some(num::low_u8(count(text, low.into(), high.into())?));
            }
            Place::Bytes(at, low, high) => *at = size(text, low, high)?,
            Place::Bytes32(at, low, high) => {
                *at = num::low_u32(size(text, low.into(), high.into())?)
            }
            Place::MaybeBytes(at, low, high) => *at = Some(size(text, low, high)?),
            Place::Rate(at, low, high) => *at = rate(text, low, high)?,
            Place::MaybeRate(at, low, high) => *at = Some(rate(text, low, high)?),
            Place::Time(at, low, high) => *at = time(text, low, high)?,
            Place::MaybeTime(at, low, high) => *at = Some(time(text, low, high)?),
            Place::Probability(at) => *at = units::parse_probability(text)?,
            Place::MaybeProbability(at) => *at = Some(units::parse_probability(text)?),
            Place::Number(at, low, high) => *at = number(text, low, high)?,
            Place::Flag(at) => *at = boolean(text)?,
        }
        Ok(())
    }

    fn get(self) -> String {
        let or_none = |value: Option<String>| value.unwrap_or_default();
        match self {
            Place::Count(at, ..) => at.to_string(),
            Place::Count64(at, ..) => at.to_string(),
            Place::MaybeCount(at, ..) => or_none(at.map(|n| n.to_string())),
            Place::MaybeCount8(at, ..) => or_none(at.map(|n| n.to_string())),
            Place::Bytes(at, ..) => units::format_size(*at),
            Place::Bytes32(at, ..) => units::format_size((*at).into()),
            Place::MaybeBytes(at, ..) => or_none(at.map(units::format_size)),
            Place::Rate(at, ..) => at.to_string(),
            Place::MaybeRate(at, ..) => or_none(at.map(|rate| rate.to_string())),
            Place::Time(at, ..) if *at == Duration::MAX => String::new(),
            Place::Time(at, ..) => at.to_string(),
            Place::MaybeTime(at, ..) => or_none(at.map(|time| time.to_string())),
            Place::Probability(at) | Place::Number(at, ..) => at.to_string(),
            Place::MaybeProbability(at) => or_none(at.map(|p| p.to_string())),
            Place::Flag(at) => at.to_string(),
        }
    }
}

/// Checks that the text is one of `words`, which are separated by `|`; errors call it `what`.
fn choice<'a>(what: &'static str, words: &'static str, text: &'a str) -> Result<&'a str, Error> {
    let known = words.split('|');
    match known.clone().any(|word| word == text) {
        true => Ok(text),
        false => Err(Error::unknown(what, text, known)),
    }
}

/// Reads a whole number from `low` to `high`.
///
/// # Errors
/// If the text is something else, or the value is out of this range.
pub fn count(text: &str, low: u64, high: u64) -> Result<u64, Error> {
    let n = units::parse_count(text)
        .map_err(|e| e.remedy(format!("write a whole number from {low} to {high}")))?;
    within(n, low, high, text, digits)
}

/// Reads a size from `low` to `high`, bytes.
///
/// # Errors
/// If the text is something else, or the value is out of this range.
pub fn size(text: &str, low: u64, high: u64) -> Result<u64, Error> {
    within(
        units::parse_size(text)?,
        low,
        high,
        text,
        units::format_size,
    )
}

/// Reads a rate from `low` to `high`.
///
/// # Errors
/// If the text is something else, or the value is out of this range.
pub fn rate(text: &str, low: Rate, high: Rate) -> Result<Rate, Error> {
    within(units::parse_rate(text)?, low, high, text, |x| x.to_string())
}

/// Reads a time from `low` to `high`.
///
/// # Errors
/// If the text is something else, or the value is out of this range.
pub fn time(text: &str, low: Duration, high: Duration) -> Result<Duration, Error> {
    within(units::parse_time(text)?, low, high, text, |x| x.to_string())
}

/// Reads a real number from `low` to `high`.
///
/// # Errors
/// If the text is something else, or the value is out of this range.
pub fn number(text: &str, low: f64, high: f64) -> Result<f64, Error> {
    within(units::parse_number(text)?, low, high, text, |x| {
        x.to_string()
    })
}

/// Reads true or false, also 1 or 0.
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

/// Returns `value` if it is in its range; `text` is what was read, `show` writes a bound.
fn within<V: PartialOrd + Copy>(
    value: V,
    low: V,
    high: V,
    text: &str,
    show: fn(V) -> String,
) -> Result<V, Error> {
    let fault = match value {
        v if v < low => "small",
        v if v > high => "large",
        _ => return Ok(value),
    };
    let remedy = format!("write {} to {}", show(low), show(high));
    Err(Error::new(format!("\"{text}\" is too {fault}")).remedy(remedy))
}
