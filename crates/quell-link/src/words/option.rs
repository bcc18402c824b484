//! One option of a kind: its word, and how its value is read, kept, checked and written.

use quell_qdisc::{NEVER, Nanos};

use crate::error::Error;
use crate::units;

/// An option: its word, what it does, and where its value is kept.
pub(super) struct Opt<T: 'static> {
    pub name: &'static str,
    pub field: Field<T>,
    pub meaning: &'static str,
}

/// A value's type, its field and its range.
pub(super) enum Field<T: 'static> {
    /// A count (packets, flows) from at least to at most.
    Count(fn(&mut T) -> &mut u32, u32, u32),
    /// Bytes, from at least to at most.
    Bytes(fn(&mut T) -> &mut u64, u64, u64),
    /// The same in 32 bits.
    Bytes32(fn(&mut T) -> &mut u32, u32, u32),
    /// Optional ones.
    MaybeCount(fn(&mut T) -> &mut Option<u32>, u32, u32),
    MaybeBytes(fn(&mut T) -> &mut Option<u64>, u64, u64),
    MaybeRate(fn(&mut T) -> &mut Option<u64>, u64, u64),
    /// Nanoseconds, from at least to at most.
    Time(fn(&mut T) -> &mut Nanos, Nanos, Nanos),
    /// The same, or none.
    MaybeTime(fn(&mut T) -> &mut Option<Nanos>, Nanos, Nanos),
    /// bit/s, from at least to at most.
    Rate(fn(&mut T) -> &mut u64, u64, u64),
    /// 0..1.
    Probability(fn(&mut T) -> &mut f64),
    /// The same, or none.
    MaybeProbability(fn(&mut T) -> &mut Option<f64>),
    /// A number, from at least to at most.
    Number(fn(&mut T) -> &mut f64, f64, f64),
    /// A word alone and its opposite (empty: it has none).
    Flag(fn(&mut T) -> &mut bool, &'static str),
    /// A flag that is not kept as a bool.
    Switch {
        off: &'static str,
        set: fn(&mut T, bool),
        get: fn(&T) -> bool,
    },
    /// A file that brings values for the options after it: how it is read, its name (empty: none), and those values.
    File {
        set: fn(&mut T, &str) -> Result<(), Error>,
        get: fn(&T) -> String,
        brought: fn(&T) -> T,
    },
    /// Anything else: how it is written, how it is read, and the words for it (empty: none, it is not set).
    Other {
        syntax: &'static str,
        set: fn(&mut T, &str) -> Result<(), Error>,
        get: fn(&T) -> String,
    },
}

impl<T: Clone> Opt<T> {
    pub fn matches(&self, word: &str) -> bool {
        self.name == word || self.off() == Some(word)
    }

    /// Does the word stand alone?
    pub fn is_flag(&self) -> bool {
        matches!(self.field, Field::Flag(..) | Field::Switch { .. })
    }

    /// A flag's opposite, if it has one.
    pub fn off(&self) -> Option<&'static str> {
        match self.field {
            Field::Flag(_, off) | Field::Switch { off, .. } => Some(off).filter(|o| !o.is_empty()),
            _ => None,
        }
    }

    pub fn syntax(&self) -> &'static str {
        match self.field {
            Field::Count(..) | Field::MaybeCount(..) => "N",
            Field::Rate(..) | Field::MaybeRate(..) => "RATE",
            Field::Bytes(..) | Field::Bytes32(..) | Field::MaybeBytes(..) => "BYTES",
            Field::Time(..) | Field::MaybeTime(..) => "TIME",
            Field::Probability(_) | Field::MaybeProbability(_) => "P",
            Field::Number(..) => "X",
            Field::Flag(..) | Field::Switch { .. } => "",
            Field::File { .. } => "FILE",
            Field::Other { syntax, .. } => syntax,
        }
    }

    pub fn set(&self, params: &mut T, word: &str, value: &str) -> Result<(), Error> {
        match self.field {
            Field::Count(at, low, high) => {
                *at(params) = count(value, low, high)?;
            }
            Field::Bytes(at, low, high) => {
                let n = units::parse_size(value)?;
                *at(params) = within(n, low, high, value, units::format_size)?;
            }
            Field::Bytes32(at, low, high) => {
                let n = units::parse_size(value)?;
                *at(params) = within(n, low.into(), high.into(), value, units::format_size)? as u32;
            }
            Field::Time(at, low, high) => {
                let n = units::parse_time(value)?;
                *at(params) = within(n, low, high, value, units::format_time)?;
            }
            Field::MaybeTime(at, low, high) => {
                let n = units::parse_time(value)?;
                *at(params) = Some(within(n, low, high, value, units::format_time)?);
            }
            Field::MaybeCount(at, low, high) => {
                *at(params) = Some(count(value, low, high)?);
            }
            Field::MaybeBytes(at, low, high) => {
                let n = units::parse_size(value)?;
                *at(params) = Some(within(n, low, high, value, units::format_size)?);
            }
            Field::MaybeRate(at, low, high) => {
                let n = units::parse_rate(value)?;
                *at(params) = Some(within(n, low, high, value, units::format_rate)?);
            }
            Field::Rate(at, low, high) => {
                let n = units::parse_rate(value)?;
                *at(params) = within(n, low, high, value, units::format_rate)?;
            }
            Field::MaybeProbability(at) => *at(params) = Some(units::parse_probability(value)?),
            Field::Probability(at) => *at(params) = units::parse_probability(value)?,
            Field::Number(at, low, high) => {
                let x = units::parse_number(value)?;
                *at(params) = within(x, low, high, value, |x| x.to_string())?;
            }
            Field::Flag(at, _) => *at(params) = word == self.name,
            Field::Switch { set, .. } => set(params, word == self.name),
            Field::File { set, .. } | Field::Other { set, .. } => set(params, value)?,
        }
        Ok(())
    }

    /// The word that holds.
    fn flag(&self, on: bool) -> String {
        (if on {
            self.name
        } else {
            self.off().unwrap_or_default()
        })
        .to_owned()
    }

    /// The value as one would write it, empty for none; for a flag the word that holds.
    pub fn get(&self, params: &T) -> String {
        let mut params = params.clone();
        match self.field {
            Field::Count(at, ..) => at(&mut params).to_string(),
            Field::Bytes(at, ..) => units::format_size(*at(&mut params)),
            Field::Bytes32(at, ..) => units::format_size((*at(&mut params)).into()),
            Field::Time(at, ..) => match *at(&mut params) {
                NEVER => String::new(),
                time => units::format_time(time),
            },
            Field::MaybeTime(at, ..) => {
                at(&mut params).map_or_else(String::new, units::format_time)
            }
            Field::Probability(at) | Field::Number(at, ..) => at(&mut params).to_string(),
            Field::MaybeCount(at, ..) => {
                at(&mut params).map_or_else(String::new, |n| n.to_string())
            }
            Field::MaybeBytes(at, ..) => {
                at(&mut params).map_or_else(String::new, units::format_size)
            }
            Field::MaybeRate(at, ..) => {
                at(&mut params).map_or_else(String::new, units::format_rate)
            }
            Field::Rate(at, ..) => units::format_rate(*at(&mut params)),
            Field::MaybeProbability(at) => {
                at(&mut params).map_or_else(String::new, |p| p.to_string())
            }
            Field::Flag(at, _) => self.flag(*at(&mut params)),
            Field::Switch { get, .. } => self.flag(get(&params)),
            Field::File { get, .. } | Field::Other { get, .. } => get(&params),
        }
    }
}

/// A count of packets or flows. `tc` prints those of packets as "1000p".
fn count(text: &str, low: u32, high: u32) -> Result<u32, Error> {
    let n = units::parse_count(text.strip_suffix('p').unwrap_or(text))
        .map_err(|e| e.remedy(format!("write a whole number from {low} to {high}")))?;
    Ok(within(n, low.into(), high.into(), text, |x| x.to_string())? as u32)
}

fn within<V: PartialOrd + Copy>(
    value: V,
    low: V,
    high: V,
    text: &str,
    show: fn(V) -> String,
) -> Result<V, Error> {
    if value < low || value > high {
        return Err(
            Error::new(format!("\"{text}\" is out of range")).remedy(format!(
                "write {} to {}",
                show(low),
                show(high)
            )),
        );
    }
    Ok(value)
}
