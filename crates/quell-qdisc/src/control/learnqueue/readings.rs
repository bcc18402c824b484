//! Both readings where LearnQueue's paper contradicts itself or is not specific, the default first.
//!
//! In a table's file each is a boolean, true for the second reading. [`Credit`] is an exception:
//! true is [`Credit::Cause`].

use serde::{Deserialize, Serialize};

/// Reward of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Reward {
    /// The distance to the target (equation 11) and, with η, the share of lost arrivals; added
    /// after an increase and subtracted after a decrease.
    #[default]
    Signed,
    /// Equations 11 to 14 as printed, the same for every action. The target then only weighs
    /// losses; leaving the range costs `max_delay`.
    Published,
}

/// How a pair's value is updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Update {
    /// As in the text after equation 8: α weighs the whole bracket.
    #[default]
    Weighted,
    /// As algorithm 1, line 47 prints it, without α on the bracket. It diverges for any useful α
    /// and is held within the range of a 32-bit integer.
    Literal,
}

/// How the discount γ grows with every pair discovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Discount {
    /// 1 − γ ← 0.995 (1 − γ), the mirror of ε.
    #[default]
    Mirrored,
    /// γ ← 1 − 0.995 γ as printed, which jumps from 0.1 to 0.9005 at once.
    Printed,
}

/// The unit of a packet's length in equation 13, which divides it by a bit rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Length {
    /// Bits.
    #[default]
    Bits,
    /// Bytes, as printed.
    Bytes,
}

/// The "queue size" of equation 13.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum QueueSize {
    /// The largest limit.
    #[default]
    Largest,
    /// The current limit. A reward without loss then grows with the limit, so that learning leads
    /// to the largest one.
    Present,
}

/// Which action a period's reward is credited to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Credit {
    /// The action that caused the period.
    #[default]
    Cause,
    /// The action taken now, at the period's end, as algorithm 1 prints it.
    Next,
}

/// Arithmetic of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Arithmetic {
    /// Floating point; Q in ms.
    #[default]
    Float,
    /// Integers as on the paper's radio boards: Q in microseconds, α and γ in 1024ths.
    Fixed,
}

impl From<bool> for Reward {
    fn from(second: bool) -> Self {
        if second {
            Self::Published
        } else {
            Self::Signed
        }
    }
}

impl From<Reward> for bool {
    fn from(reading: Reward) -> Self {
        reading == Reward::Published
    }
}

impl From<bool> for Update {
    fn from(second: bool) -> Self {
        if second {
            Self::Literal
        } else {
            Self::Weighted
        }
    }
}

impl From<Update> for bool {
    fn from(reading: Update) -> Self {
        reading == Update::Literal
    }
}

impl From<bool> for Discount {
    fn from(second: bool) -> Self {
        if second {
            Self::Printed
        } else {
            Self::Mirrored
        }
    }
}

impl From<Discount> for bool {
    fn from(reading: Discount) -> Self {
        reading == Discount::Printed
    }
}

impl From<bool> for Length {
    fn from(second: bool) -> Self {
        if second { Self::Bytes } else { Self::Bits }
    }
}

impl From<Length> for bool {
    fn from(reading: Length) -> Self {
        reading == Length::Bytes
    }
}

impl From<bool> for QueueSize {
    fn from(second: bool) -> Self {
        if second { Self::Present } else { Self::Largest }
    }
}

impl From<QueueSize> for bool {
    fn from(reading: QueueSize) -> Self {
        reading == QueueSize::Present
    }
}

impl From<bool> for Credit {
    fn from(second: bool) -> Self {
        if second { Self::Cause } else { Self::Next }
    }
}

impl From<Credit> for bool {
    fn from(reading: Credit) -> Self {
        reading == Credit::Cause
    }
}

impl From<bool> for Arithmetic {
    fn from(second: bool) -> Self {
        if second { Self::Fixed } else { Self::Float }
    }
}

impl From<Arithmetic> for bool {
    fn from(reading: Arithmetic) -> Self {
        reading == Arithmetic::Fixed
    }
}
