//! Rates in whole bits per second.
//!
//! A [`Rate`] cannot be mistaken for bytes per second, which Linux counts, nor for a number of
//! bytes or packets: its constructors and readings name their unit.
//!
//! ```
//! use quell_qdisc::rate::Rate;
//! use quell_qdisc::time::MS;
//!
//! let rate = Rate::from_mbit(12);
//! assert_eq!(rate, Rate::from_bytes_per_sec(1_500_000));
//! assert_eq!(rate.transmission_time(1500), MS);
//! assert_eq!(rate.bytes_in(MS), 1500);
//! assert_eq!(rate.to_string(), "12mbit");
//! ```
//!
//! ```compile_fail
//! use quell_qdisc::rate::Rate;
//!
//! let rate: Rate = 12_000_000;
//! ```

use std::fmt::{self, Debug, Display};

use serde::{Deserialize, Serialize};

use crate::num;
use crate::time::{Duration, SEC};

/// A rate of data. Serialised, it is its number of bits per second.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[repr(transparent)]
#[serde(transparent)]
pub struct Rate(u64);

impl Rate {
    /// Nothing is sent.
    pub const ZERO: Self = Self(0);
    /// The highest rate; it also means one without a limit.
    pub const MAX: Self = Self(u64::MAX);

    /// From bits per second.
    #[inline]
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// From bits per second, rounded down; negative numbers and NaN are 0.
    #[inline]
    pub const fn from_bps_f64(bps: f64) -> Self {
        Self(num::whole_u64(bps))
    }

    /// From kilobits (1000 bits) per second.
    #[inline]
    pub const fn from_kbit(kbit: u64) -> Self {
        Self(kbit * 1_000)
    }

    /// From megabits (10^6 bits) per second.
    #[inline]
    pub const fn from_mbit(mbit: u64) -> Self {
        Self(mbit * 1_000_000)
    }

    /// From bytes per second, at most [`Rate::MAX`].
    #[inline]
    pub const fn from_bytes_per_sec(bytes: u64) -> Self {
        Self(bytes.saturating_mul(8))
    }

    /// In bits per second.
    #[inline]
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// In bits per second, rounded to the nearest number.
    #[inline]
    pub const fn bps_f64(self) -> f64 {
        self.0 as f64
    }

    /// In bytes per second, rounded down.
    #[inline]
    pub const fn bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// True if this rate is 0.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The time in which this many bytes are sent, rounded down, at most [`Duration::MAX`]. At rate
    /// 0 it is [`Duration::MAX`].
    #[inline]
    pub const fn transmission_time(self, bytes: u64) -> Duration {
        let bits = bytes as u128 * 8 * SEC.as_nanos() as u128;
        match bits.checked_div(self.0 as u128) {
            Some(nanos) if nanos <= u64::MAX as u128 => Duration::from_nanos(num::low_u64(nanos)),
            _ => Duration::MAX,
        }
    }

    /// The whole bytes that are sent in this time.
    #[inline]
    pub const fn bytes_in(self, time: Duration) -> u64 {
        let bits = self.0 as u128 * time.as_nanos() as u128;
        num::low_u64(bits / (8 * SEC.as_nanos() as u128))
    }
}

/// Shows the number of bits per second.
impl Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.0, f)
    }
}

/// Shows the exact rate in the notation of `tc`, in the largest unit in which at most three
/// decimals are exact: `15mbit`, `1.5gbit`.
impl Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1000, "kbit")];
        f.pad(&num::shortest(self.0, &units, "bit"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MS;

    #[test]
    fn units_agree() {
        assert_eq!(Rate::from_mbit(3), Rate::from_kbit(3000));
        assert_eq!(Rate::from_kbit(1), Rate::from_bps(1000));
        assert_eq!(Rate::from_bytes_per_sec(125), Rate::from_kbit(1));
        assert_eq!(Rate::from_bps(8_007).bytes_per_sec(), 1000);
        assert_eq!(Rate::from_bytes_per_sec(u64::MAX), Rate::MAX);
        assert_eq!(Rate::from_bps_f64(1.9), Rate::from_bps(1));
        assert_eq!(Rate::from_bps_f64(f64::NAN), Rate::ZERO);
        assert_eq!(Rate::from_mbit(2).bps_f64(), 2e6);
        assert!(Rate::ZERO.is_zero() && !Rate::from_bps(1).is_zero());
    }

    #[test]
    fn bytes_take_their_bits_over_the_rate() {
        let rate = Rate::from_mbit(10);
        // 1514 bytes at 10 Mbit/s take 1211.2 us.
        assert_eq!(
            rate.transmission_time(1514),
            Duration::from_nanos(1_211_200)
        );
        assert_eq!(rate.bytes_in(Duration::from_nanos(1_211_199)), 1513);
        assert_eq!(rate.bytes_in(MS), 1250);
        assert_eq!(
            Rate::from_bps(3).transmission_time(1).as_nanos(),
            2_666_666_666
        );
        assert_eq!(Rate::from_bps(1).transmission_time(u64::MAX), Duration::MAX);
        assert_eq!(Rate::ZERO.transmission_time(0), Duration::MAX);
    }

    #[test]
    fn a_rate_is_shown_as_tc_writes_it() {
        for (bps, text) in [
            (0, "0bit"),
            (999, "999bit"),
            (1_500_000_000, "1.5gbit"),
            (15_000_000, "15mbit"),
            (1_000_001, "1000.001kbit"),
        ] {
            assert_eq!(Rate::from_bps(bps).to_string(), text);
        }
        assert_eq!(format!("{:?}", Rate::from_kbit(2)), "2000");
        assert_eq!(format!("{:>8}", Rate::from_kbit(2)), "   2kbit");
    }
}
