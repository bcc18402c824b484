//! Writes numbers and short texts faster than `fmt`.

use quell_qdisc::num;

/// Appends `value` in base `BASE` (10 or 16), padded with zeros to `least` digits (0 to 20).
pub fn in_base<const BASE: u64>(out: &mut Vec<u8>, mut value: u64, least: usize) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    let least = at - least;
    while value > 0 || at > least {
        at -= 1;
        digits[at] = b"0123456789abcdef"[num::index(value % BASE)];
        value /= BASE;
    }
    short(out, &digits[at..]);
}

/// Appends a few bytes one by one, since musl's `memcpy` takes as long for three bytes as for a
/// hundred, which was half of a sample's time.
pub fn short(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len());
    for byte in bytes {
        out.push(*byte);
    }
}
