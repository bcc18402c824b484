//! Conversions of numbers that `From` and `Display` do not have. Each documents its result for a
//! value that does not fit.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

/// The whole part, clamped to the range of the type; 0 for NaN.
#[inline]
pub const fn whole_u64(x: f64) -> u64 {
    x as u64
}

/// The whole part, clamped to the range of the type; 0 for NaN.
#[inline]
pub const fn whole_u32(x: f64) -> u32 {
    x as u32
}

/// The whole part, clamped to the range of the type; 0 for NaN.
#[inline]
pub const fn whole_usize(x: f64) -> usize {
    x as usize
}

/// The whole part, clamped to the range of the type; 0 for NaN.
#[inline]
pub const fn whole_i64(x: f64) -> i64 {
    x as i64
}

/// The whole part, clamped to the range of the type; 0 for NaN.
#[inline]
pub const fn whole_i32(x: f64) -> i32 {
    x as i32
}

/// The whole part, clamped to the range of the type; 0 for NaN.
#[inline]
pub const fn whole_i16(x: f64) -> i16 {
    x as i16
}

/// The nearest single-precision number; infinite beyond the greatest.
#[inline]
pub const fn single(x: f64) -> f32 {
    x as f32
}

/// The low 64 bits.
#[inline]
pub const fn low_u64(x: u128) -> u64 {
    x as u64
}

/// The low 32 bits.
#[inline]
pub const fn low_u32(x: u64) -> u32 {
    x as u32
}

/// The low 64 bits as a signed number.
#[inline]
pub const fn low_i64(x: i128) -> i64 {
    x as i64
}

/// The low 32 bits as a signed number.
#[inline]
pub const fn low_i32(x: i64) -> i32 {
    x as i32
}

/// The low 16 bits.
#[inline]
pub const fn low_u16(x: u64) -> u16 {
    x as u16
}

/// An index or a length that must fit: a debug assertion checks it, and a release build keeps the
/// low 16 bits.
#[inline]
pub const fn index_u16(x: usize) -> u16 {
    debug_assert!(x <= u16::MAX as usize);
    x as u16
}

/// A constant of the C library for a field of 16 bits: its low 16 bits.
#[inline]
pub const fn short(x: i32) -> u16 {
    x as u16
}

/// The low 8 bits.
#[inline]
pub const fn low_u8(x: u64) -> u8 {
    x as u8
}

/// An index in memory; `usize::MAX` if it does not fit.
#[inline]
pub const fn index(x: u64) -> usize {
    if x > usize::MAX as u64 {
        usize::MAX
    } else {
        x as usize
    }
}

/// A length in memory, at most `u32::MAX`.
#[inline]
pub const fn count(len: usize) -> u32 {
    if len > u32::MAX as usize {
        u32::MAX
    } else {
        len as u32
    }
}

/// The exact value with at most three decimals, in the largest unit that allows this. `units` go
/// from the largest down; `smallest` is the unit of `value`.
pub(crate) fn shortest(value: u64, units: &[(u64, &str)], smallest: &str) -> String {
    for (unit, name) in units {
        if value >= *unit && value.is_multiple_of(unit / 1000) {
            let thousandths = value / (unit / 1000);
            let decimals = format!("{:03}", thousandths % 1000);
            let decimals = decimals.trim_end_matches('0');
            let point = if decimals.is_empty() { "" } else { "." };
            return format!("{}{point}{decimals}{name}", thousandths / 1000);
        }
    }
    format!("{value}{smallest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_do_not_fit_are_converted_as_documented() {
        assert_eq!(whole_u64(-1.5), 0);
        assert_eq!(whole_u64(f64::NAN), 0);
        assert_eq!(whole_u64(1e30), u64::MAX);
        assert_eq!(whole_u32(4_294_967_295.9), u32::MAX);
        assert_eq!(whole_usize(3.99), 3);
        assert_eq!(single(1e300), f32::INFINITY);
        assert_eq!(whole_i64(-2.9), -2);
        assert_eq!(whole_i32(1e12), i32::MAX);
        assert_eq!(whole_i16(-4e4), i16::MIN);
        assert_eq!(low_i32(1 << 40 | 3), 3);
        assert_eq!(low_i64(1 << 100 | 5), 5);
        assert_eq!(low_u16(65_537), 1);
        assert_eq!(low_u64(1 << 64 | 7), 7);
        assert_eq!(low_u32(1 << 32 | 7), 7);
        assert_eq!(short(-2), 0xfffe);
        assert_eq!(low_u8(257), 1);
        assert_eq!(index_u16(65_535), u16::MAX);
        assert_eq!(index(9), 9);
        assert_eq!(count(usize::MAX), u32::MAX);
    }
}
