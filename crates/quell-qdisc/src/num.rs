//! Conversions between numbers that `From` does not have. Each says what becomes of a value that does not fit.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

/// The whole part; the least or greatest integer for what is beyond it, 0 for NaN.
pub const fn whole_u64(x: f64) -> u64 {
    x as u64
}

/// The whole part; the least or greatest integer for what is beyond it, 0 for NaN.
pub const fn whole_u32(x: f64) -> u32 {
    x as u32
}

/// The whole part; the least or greatest integer for what is beyond it, 0 for NaN.
pub const fn whole_usize(x: f64) -> usize {
    x as usize
}

/// The nearest single-precision number; infinite for what is beyond the greatest.
pub const fn single(x: f64) -> f32 {
    x as f32
}

/// The low 64 bits.
pub const fn low_u64(x: u128) -> u64 {
    x as u64
}

/// The low 32 bits.
pub const fn low_u32(x: u64) -> u32 {
    x as u32
}

/// The low 8 bits.
pub const fn low_u8(x: u64) -> u8 {
    x as u8
}

/// An index in memory; what no memory has room for is the greatest one.
pub const fn index(x: u64) -> usize {
    if x > usize::MAX as u64 {
        usize::MAX
    } else {
        x as usize
    }
}

/// A number of things in memory, at most `u32::MAX`.
pub const fn count(len: usize) -> u32 {
    if len > u32::MAX as usize {
        u32::MAX
    } else {
        len as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_as_documented() {
        assert_eq!(whole_u64(-1.5), 0);
        assert_eq!(whole_u64(f64::NAN), 0);
        assert_eq!(whole_u64(1e30), u64::MAX);
        assert_eq!(whole_u32(4_294_967_295.9), u32::MAX);
        assert_eq!(whole_usize(3.99), 3);
        assert_eq!(single(1e300), f32::INFINITY);
        assert_eq!(low_u64(1 << 64 | 7), 7);
        assert_eq!(low_u32(1 << 32 | 7), 7);
        assert_eq!(low_u8(257), 1);
        assert_eq!(index(9), 9);
        assert_eq!(count(usize::MAX), u32::MAX);
    }
}
