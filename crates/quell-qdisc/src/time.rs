//! Instants and durations in whole nanoseconds.
//!
//! An [`Instant`] is a time on the caller's clock, a [`Duration`] the time between two of them. The
//! operators exist only where they have a meaning: two instants cannot be added, and neither type
//! mixes with plain numbers except to scale a duration. Arithmetic overflows as that of `u64` does:
//! with a panic if overflow checks are on, else by wrapping around.
//!
//! ```
//! use quell_qdisc::time::{Duration, Instant, MS};
//!
//! let sent = Instant::from_millis(20);
//! let arrived = sent + 15 * MS;
//! assert_eq!(arrived - sent, Duration::from_millis(15));
//! assert_eq!((arrived - sent) / (2 * MS), 7);
//! assert_eq!(sent.saturating_since(arrived), Duration::ZERO);
//! ```
//!
//! ```compile_fail
//! use quell_qdisc::time::Instant;
//!
//! let sum = Instant::from_millis(20) + Instant::from_millis(15);
//! ```
//!
//! ```compile_fail
//! use quell_qdisc::time::Instant;
//!
//! let later = Instant::from_millis(20) + 15;
//! ```

use std::fmt::{self, Debug, Display};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Rem, Sub, SubAssign};

use serde::{Deserialize, Serialize};

use crate::num;

/// The time of an event that never happens.
pub const NEVER: Instant = Instant::NEVER;
/// One microsecond.
pub const US: Duration = Duration::from_micros(1);
/// One millisecond.
pub const MS: Duration = Duration::from_millis(1);
/// One second.
pub const SEC: Duration = Duration::from_secs(1);

/// A time on a clock whose epoch the caller chooses.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Instant(u64);

/// A length of time. Serialised, it is its number of nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[repr(transparent)]
#[serde(transparent)]
pub struct Duration(u64);

macro_rules! units {
    ($name:ident) => {
        impl $name {
            /// From nanoseconds.
            #[inline]
            pub const fn from_nanos(nanos: u64) -> Self {
                Self(nanos)
            }
            /// From microseconds.
            #[inline]
            pub const fn from_micros(micros: u64) -> Self {
                Self(micros * 1_000)
            }
            /// From milliseconds.
            #[inline]
            pub const fn from_millis(millis: u64) -> Self {
                Self(millis * 1_000_000)
            }
            /// From seconds.
            #[inline]
            pub const fn from_secs(secs: u64) -> Self {
                Self(secs * 1_000_000_000)
            }
            /// In nanoseconds.
            #[inline]
            pub const fn as_nanos(self) -> u64 {
                self.0
            }
            /// In microseconds, rounded down.
            #[inline]
            pub const fn as_micros(self) -> u64 {
                self.0 / 1_000
            }
            /// In milliseconds, rounded down.
            #[inline]
            pub const fn as_millis(self) -> u64 {
                self.0 / 1_000_000
            }
            /// In seconds, rounded down.
            #[inline]
            pub const fn as_secs(self) -> u64 {
                self.0 / 1_000_000_000
            }
            /// In seconds, rounded to the nearest number.
            #[inline]
            pub const fn as_secs_f64(self) -> f64 {
                self.0 as f64 / 1e9
            }
            /// This and a duration, at most the largest value.
            #[inline]
            pub const fn saturating_add(self, more: Duration) -> Self {
                Self(self.0.saturating_add(more.0))
            }
            /// This less a duration, at least zero.
            #[inline]
            pub const fn saturating_sub(self, less: Duration) -> Self {
                Self(self.0.saturating_sub(less.0))
            }
            /// This and a duration; `None` on overflow.
            #[inline]
            pub const fn checked_add(self, more: Duration) -> Option<Self> {
                match self.0.checked_add(more.0) {
                    Some(nanos) => Some(Self(nanos)),
                    None => None,
                }
            }
            /// This less a duration; `None` below zero.
            #[inline]
            pub const fn checked_sub(self, less: Duration) -> Option<Self> {
                match self.0.checked_sub(less.0) {
                    Some(nanos) => Some(Self(nanos)),
                    None => None,
                }
            }
            /// The time between this and another, whichever is greater.
            #[inline]
            pub const fn abs_diff(self, other: Self) -> Duration {
                Duration(self.0.abs_diff(other.0))
            }
        }

        /// Shows the number of nanoseconds.
        impl Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Debug::fmt(&self.0, f)
            }
        }

        impl Add<Duration> for $name {
            type Output = Self;
            #[inline]
            #[track_caller]
            fn add(self, more: Duration) -> Self {
                Self(self.0 + more.0)
            }
        }

        impl AddAssign<Duration> for $name {
            #[inline]
            #[track_caller]
            fn add_assign(&mut self, more: Duration) {
                self.0 += more.0;
            }
        }

        impl Sub<Duration> for $name {
            type Output = Self;
            #[inline]
            #[track_caller]
            fn sub(self, less: Duration) -> Self {
                Self(self.0 - less.0)
            }
        }

        impl SubAssign<Duration> for $name {
            #[inline]
            #[track_caller]
            fn sub_assign(&mut self, less: Duration) {
                self.0 -= less.0;
            }
        }
    };
}

units!(Instant);
units!(Duration);

impl Instant {
    /// The clock's epoch.
    pub const ZERO: Self = Self(0);
    /// The time of an event that never happens: the largest value.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time from `earlier` to this; zero if `earlier` is later.
    #[inline]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// The time from `earlier` to this; `None` if `earlier` is later.
    #[inline]
    pub const fn checked_since(self, earlier: Self) -> Option<Duration> {
        match self.0.checked_sub(earlier.0) {
            Some(nanos) => Some(Duration(nanos)),
            None => None,
        }
    }

    /// The nanoseconds from `other` to this, negative if `other` is later; wraps.
    #[inline]
    pub const fn signed_since(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0).cast_signed()
    }
}

impl Sub for Instant {
    type Output = Duration;
    #[inline]
    #[track_caller]
    fn sub(self, earlier: Self) -> Duration {
        Duration(self.0 - earlier.0)
    }
}

impl Duration {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// The longest duration; it also means one without end.
    pub const MAX: Self = Self(u64::MAX);

    /// True if this duration is 0.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// In milliseconds, rounded to the nearest number.
    #[inline]
    pub const fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// This divided by `other`, rounded up.
    #[inline]
    pub const fn div_ceil(self, other: Self) -> u64 {
        self.0.div_ceil(other.0)
    }

    /// This `factor` times, at most the longest duration.
    #[inline]
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// This `factor` times; `None` on overflow.
    #[inline]
    pub const fn checked_mul(self, factor: u64) -> Option<Self> {
        match self.0.checked_mul(factor) {
            Some(nanos) => Some(Self(nanos)),
            None => None,
        }
    }
}

/// Shows the exact time in the notation of `tc`, in the largest unit in which at most three
/// decimals are exact: `20ms`, `1.5s`.
impl Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
        let smallest = if self.is_zero() { "ms" } else { "ns" };
        f.pad(&num::shortest(self.0, &units, smallest))
    }
}

impl Mul<u64> for Duration {
    type Output = Self;
    #[inline]
    #[track_caller]
    fn mul(self, factor: u64) -> Self {
        Self(self.0 * factor)
    }
}

impl Mul<Duration> for u64 {
    type Output = Duration;
    #[inline]
    #[track_caller]
    fn mul(self, time: Duration) -> Duration {
        Duration(self * time.0)
    }
}

impl MulAssign<u64> for Duration {
    #[inline]
    #[track_caller]
    fn mul_assign(&mut self, factor: u64) {
        self.0 *= factor;
    }
}

impl Div<u64> for Duration {
    type Output = Self;
    #[inline]
    #[track_caller]
    fn div(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }
}

impl DivAssign<u64> for Duration {
    #[inline]
    #[track_caller]
    fn div_assign(&mut self, divisor: u64) {
        self.0 /= divisor;
    }
}

impl Div for Duration {
    type Output = u64;
    #[inline]
    #[track_caller]
    fn div(self, other: Self) -> u64 {
        self.0 / other.0
    }
}

impl Rem for Duration {
    type Output = Self;
    #[inline]
    #[track_caller]
    fn rem(self, other: Self) -> Self {
        Self(self.0 % other.0)
    }
}

impl Sum for Duration {
    fn sum<I: Iterator<Item = Self>>(durations: I) -> Self {
        durations.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_agree() {
        assert_eq!(Instant::from_secs(2), Instant::from_millis(2_000));
        assert_eq!(Instant::from_micros(3), Instant::from_nanos(3_000));
        assert_eq!(7 * SEC, Duration::from_millis(7_000));
        assert_eq!(MS.as_nanos(), 1_000_000);
        assert_eq!(Duration::from_micros(2_999).as_millis(), 2);
        assert_eq!(Instant::from_millis(2_999).as_secs(), 2);
        assert_eq!(Instant::from_nanos(2_999).as_micros(), 2);
        assert_eq!(US * 1_000, MS);
        assert_eq!(NEVER.as_nanos(), u64::MAX);
        assert_eq!(Duration::from_millis(1_500).as_secs_f64(), 1.5);
        assert_eq!(Duration::from_micros(1_500).as_millis_f64(), 1.5);
        assert_eq!(
            format!("{:?} {:?}", Instant::from_micros(2), US),
            "2000 1000"
        );
    }

    #[test]
    fn a_duration_is_shown_as_tc_writes_it() {
        for (nanos, text) in [
            (0, "0ms"),
            (7, "7ns"),
            (500_000, "500us"),
            (20_000_000, "20ms"),
            (1_500_000_000, "1.5s"),
        ] {
            assert_eq!(Duration::from_nanos(nanos).to_string(), text);
        }
    }

    #[test]
    fn instants_and_durations() {
        let (early, late) = (Instant::from_millis(3), Instant::from_millis(8));
        assert_eq!(late - early, 5 * MS);
        assert_eq!(late - 5 * MS, early);
        assert_eq!(early + 5 * MS, late);
        assert_eq!(early.saturating_since(late), Duration::ZERO);
        assert_eq!(early.checked_since(late), None);
        assert_eq!(late.checked_since(early), Some(5 * MS));
        assert_eq!(early.abs_diff(late), 5 * MS);
        assert_eq!(early.signed_since(late), -5_000_000);
        assert_eq!(early.saturating_sub(SEC), Instant::ZERO);
        assert_eq!(NEVER.saturating_add(SEC), NEVER);
        assert_eq!(NEVER.checked_add(US), None);
        assert_eq!(early.checked_sub(SEC), None);
        let mut time = early;
        time += 7 * MS;
        time -= 2 * MS;
        assert_eq!(time, late);
    }

    #[test]
    fn durations_scale_and_divide() {
        let mut time = 10 * MS;
        assert_eq!(time / (3 * MS), 3);
        assert_eq!(time % (3 * MS), MS);
        assert_eq!(time.div_ceil(3 * MS), 4);
        time *= 3;
        time /= 2;
        assert_eq!(time, Duration::from_millis(15));
        assert_eq!(time / 2, Duration::from_micros(7_500));
        assert_eq!(
            [MS, US].into_iter().sum::<Duration>(),
            Duration::from_micros(1_001)
        );
        assert_eq!(Duration::MAX.saturating_mul(2), Duration::MAX);
        assert_eq!(Duration::MAX.checked_mul(2), None);
        assert!(Duration::ZERO.is_zero() && !US.is_zero());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "overflow")]
    fn an_instant_before_the_epoch_panics() {
        let _ = std::hint::black_box(Instant::ZERO) - US;
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "overflow")]
    fn a_negative_duration_panics() {
        let _ = std::hint::black_box(Instant::ZERO) - Instant::from_nanos(1);
    }
}
