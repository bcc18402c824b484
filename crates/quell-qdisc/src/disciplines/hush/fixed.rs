//! Natural logarithm and exponential in integers, so that every machine and a kernel compute the
//! same bits.
//!
//! Both work in base 2: the leading bits are shifted, and the rest is interpolated linearly in a
//! table of 64 steps. The tables are computed by integer square roots and squarings at compile
//! time. Errors are below 4e-5.

use crate::num;
use crate::time::Duration;

/// Fractional bits of logarithms, features and weights.
pub const Q: u32 = 16;
/// 1 as a fixed-point number.
pub const ONE: i64 = 1 << Q;

/// Steps of the tables.
pub const STEPS: usize = 64;
/// ln 2 and 1 / ln 2 with 32 fractional bits.
const LN2: i128 = 0xb172_17f8;
const LOG2_E: i128 = 0x1_7154_7653;

/// 2^(i/64) with 30 fractional bits.
pub const POWERS: [u64; STEPS + 1] = powers();
/// log2(1 + i/64) with 30 fractional bits.
pub const LOGS: [u64; STEPS + 1] = logs();

const fn root(x: u128) -> u128 {
    let (mut low, mut high) = (0, 1 << 63);
    while low + 1 < high {
        let middle = (low + high) / 2;
        if middle * middle <= x {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

const fn powers() -> [u64; STEPS + 1] {
    // 2^(1/64), with 62 fractional bits: the square root is taken six times, first of 2.
    let (mut step, mut i): (u128, usize) = (2 << 62, 0);
    while i < 6 {
        step = root(step << 62);
        i += 1;
    }
    let mut table = [0; STEPS + 1];
    let mut power: u128 = 1 << 62;
    i = 0;
    while i <= STEPS {
        table[i] = num::low_u64((power + (1 << 31)) >> 32);
        power = (power * step) >> 62;
        i += 1;
    }
    table
}

const fn logs() -> [u64; STEPS + 1] {
    let mut table = [0; STEPS + 1];
    let mut i = 0;
    while i < STEPS {
        // Each squaring gives a bit of the logarithm.
        let mut x: u128 = (1 << 62) + ((i as u128) << 56);
        let (mut log, mut bit) = (0u64, 0);
        while bit < 30 {
            x = (x * x) >> 62;
            log <<= 1;
            if x >= 2 << 62 {
                log |= 1;
                x >>= 1;
            }
            bit += 1;
        }
        table[i] = log;
        i += 1;
    }
    table[STEPS] = 1 << 30;
    table
}

/// Interpolates between two entries of a table, at `part` of 2^`bits`.
#[inline]
const fn between(table: &[u64; STEPS + 1], i: usize, part: u64, bits: u32) -> u64 {
    table[i] + (((table[i + 1] - table[i]) * part) >> bits)
}

/// ln x with [`Q`] fractional bits; 0 for x = 0.
#[inline]
pub const fn ln(x: u64) -> i64 {
    let x = if x == 0 { 1 } else { x };
    let whole = 63 - x.leading_zeros();
    // The 32 bits after the leading one.
    let rest = ((x << (63 - whole)) << 1) >> 32;
    let log = between(&LOGS, (rest >> 26) as usize, rest & ((1 << 26) - 1), 26);
    let log2 = ((whole as i128) << 30) + log as i128;
    num::low_i64((log2 * LN2) >> (62 - Q))
}

/// e^x rounded down, for x with [`Q`] fractional bits; at most 2^62.
#[inline]
pub fn exp(x: i64) -> u64 {
    power(x, 0)
}

/// e^x with `bits` fractional bits, for x with [`Q`]; at most 2^62.
#[inline]
pub fn power(x: i64, bits: i64) -> u64 {
    let log2 = (i128::from(x) * LOG2_E) >> Q; // 32 fractional bits
    let whole = num::low_i64(log2 >> 32) + bits;
    if whole < -30 {
        return 0;
    }
    if whole >= 62 {
        return 1 << 62;
    }
    let rest = num::low_u64((log2 & 0xffff_ffff).cast_unsigned());
    let power = between(&POWERS, (rest >> 26) as usize, rest & ((1 << 26) - 1), 26);
    if whole >= 30 {
        power << (whole - 30)
    } else {
        power >> (30 - whole)
    }
}

/// `x` times e^`y`, at most 2^62.
#[inline]
pub fn scaled(x: u64, y: i64) -> u64 {
    ((u128::from(x) * u128::from(power(y, 32))) >> 32).min(1 << 62) as u64
}

/// [`scaled`] of a duration.
#[inline]
pub fn scaled_time(time: Duration, y: i64) -> Duration {
    Duration::from_nanos(scaled(time.as_nanos(), y))
}

/// ln 2 with [`Q`] fractional bits.
pub const LN2_Q: i64 = 45_426;

/// Weight of a new value that covers `span` in an exponential average: 1 - e^(-span / constant),
/// with 30 fractional bits.
#[inline]
pub fn share(span: Duration, constant: Duration) -> i64 {
    let (span, constant) = (u128::from(span.as_nanos()), u128::from(constant.as_nanos()));
    let ratio = ((span << Q) / constant.max(1)).min(32 << Q) as i64;
    (1 << 30) - (power(-ratio, 30).min(1 << 30)).cast_signed()
}

/// Moves `mean` towards `x` by a weight from [`share`].
#[inline]
pub fn approach(mean: &mut i64, x: i64, share: i64) {
    *mean += num::low_i64((i128::from(x - *mean) * i128::from(share)) >> 30);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::US;

    #[test]
    fn the_logarithm_is_within_a_20000th() {
        let mut x = 1u64;
        while x < 1 << 62 {
            let error = ln(x) as f64 / ONE as f64 - libm::log(x as f64);
            assert!(error.abs() < 5e-5, "ln {x}: {error}");
            x += x / 7 + 1;
        }
        assert_eq!(ln(0), 0);
    }

    #[test]
    fn the_exponential_is_within_a_20000th_and_never_overflows() {
        for x in (-10 * ONE..42 * ONE).step_by(997) {
            let exact = libm::exp(x as f64 / ONE as f64);
            let error = exp(x) as f64 - exact;
            assert!(error.abs() < 1.0 + 5e-5 * exact, "exp {x}: {error}");
        }
        assert_eq!(exp(i64::MAX / 4), 1 << 62);
        assert_eq!(exp(-(1 << 40)), 0);
    }

    #[test]
    fn the_tables_do_not_depend_on_the_machine() {
        // 2^(1/2) and log2(3/2), 30 bits each.
        assert_eq!((POWERS[32], LOGS[32]), (1_518_500_250, 628_098_702));
        assert_eq!((POWERS[64], LOGS[64]), (2 << 30, 1 << 30));
    }

    #[test]
    fn a_mean_covers_63_percent_of_a_step_in_its_time_constant() {
        let mut mean = 0;
        approach(&mut mean, 1_000_000, share(US, US));
        assert!((mean - 632_121).abs() < 50, "{mean}");
        let mut mean = 0;
        for _ in 0..100 {
            approach(&mut mean, 1_000_000, share(US, 100 * US));
        }
        assert!((mean - 632_121).abs() < 1500, "{mean}");
    }
}
