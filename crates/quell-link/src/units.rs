//! Rates, times, sizes and probabilities as `tc` writes them: `15mbit`, `1.5gbit`, `20ms`, `500us`,
//! `32mb`, `10%`.
//!
//! Prefixes of rates are powers of 1000 (`kibit`, `mibit` ...: of 1024), those of sizes powers of
//! 1024, as in `tc`: `6MB` are 6,291,456 bytes. Upper and lower case are alike. Deviation from
//! `tc`: a time (other than 0) or a rate without a unit is refused, because `tc` reads `target 5`
//! as 5 us and `rate 15` as 15 bit/s, which is never meant.

use quell_qdisc::rate::Rate;
use quell_qdisc::time::Duration;

use quell_qdisc::num;

use crate::error::Error;

const RATES: &[(&str, f64)] = &[
    ("bit", 1.0),
    ("kbit", 1e3),
    ("mbit", 1e6),
    ("gbit", 1e9),
    ("tbit", 1e12),
    ("kibit", 1024.0),
    ("mibit", 1_048_576.0),
    ("gibit", 1_073_741_824.0),
    ("tibit", 1_099_511_627_776.0),
    ("bps", 8.0),
    ("kbps", 8e3),
    ("mbps", 8e6),
    ("gbps", 8e9),
    ("tbps", 8e12),
    ("kibps", 8.0 * 1024.0),
    ("mibps", 8.0 * 1_048_576.0),
    ("gibps", 8.0 * 1_073_741_824.0),
    ("tibps", 8.0 * 1_099_511_627_776.0),
];

const TIMES: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("nsec", 1.0),
    ("nsecs", 1.0),
    ("us", 1e3),
    ("usec", 1e3),
    ("usecs", 1e3),
    ("ms", 1e6),
    ("msec", 1e6),
    ("msecs", 1e6),
    ("s", 1e9),
    ("sec", 1e9),
    ("secs", 1e9),
    ("min", 60e9),
    ("h", 3600e9),
];

const SIZES: &[(&str, f64)] = &[
    ("", 1.0),
    ("b", 1.0),
    ("k", 1024.0),
    ("kb", 1024.0),
    ("kib", 1024.0),
    ("m", 1_048_576.0),
    ("mb", 1_048_576.0),
    ("mib", 1_048_576.0),
    ("g", 1_073_741_824.0),
    ("gb", 1_073_741_824.0),
    ("gib", 1_073_741_824.0),
    ("kbit", 125.0),
    ("mbit", 125e3),
    ("gbit", 125e6),
];

/// Name and notation of one kind of quantity, for errors.
struct Quantity {
    article: &'static str,
    units: &'static [(&'static str, f64)],
    remedy: &'static str,
    /// The largest value, as written.
    max: &'static str,
}

/// Largest quantity: above 2^53 a double no longer represents every integer, and no link, time or
/// buffer is that large.
const LARGEST: u64 = 1 << 53;

const RATE: Quantity = Quantity {
    article: "a rate",
    units: RATES,
    remedy: "write it as 15mbit, 1.5gbit or 500kbit",
    max: "9007199gbit",
};
const TIME: Quantity = Quantity {
    article: "a time",
    units: TIMES,
    remedy: "write it as 20ms, 500us or 1.5s",
    max: "9007199s",
};
const SIZE: Quantity = Quantity {
    article: "a size",
    units: SIZES,
    remedy: "write it as 1514, 64kb or 6MB (bytes)",
    max: "9007199254740992",
};

/// Reads a rate; never 0.
///
/// # Errors
/// If it is something else; the error shows how to write it.
pub fn parse_rate(text: &str) -> Result<Rate, Error> {
    let (number, unit) = split(text);
    if unit.is_empty() && number.parse().is_ok_and(|number: f64| number > 0.0) {
        return Err(Error::new(format!("the rate \"{text}\" has no unit"))
            .remedy(format!("write {number}mbit, {number}kbit or {number}bit")));
    }
    match quantity(text, number, unit, &RATE)? {
        0 => Err(
            Error::new(format!("\"{text}\" is less than one bit per second")).remedy(RATE.remedy),
        ),
        bps => Ok(Rate::from_bps(bps)),
    }
}

/// A note on a rate in bytes per second, such as `50mbps`, whose writer probably meant bits; `None`
/// for all other text. The rate itself is read as in `tc`.
pub fn note_on_rate(text: &str) -> Option<String> {
    let (number, unit) = split(text);
    let prefix = unit.get(..unit.len().checked_sub(3)?)?;
    if !unit[prefix.len()..].eq_ignore_ascii_case("bps") {
        return None;
    }
    let rate = parse_rate(text).ok()?;
    let bits = format!("{number}{}bit", prefix.to_ascii_lowercase());
    Some(format!(
        "\"{text}\" is read as {rate}: in tc, bps is bytes per second; for bits per second write {bits}"
    ))
}

/// Reads a time. Only 0 needs no unit.
///
/// # Errors
/// If it is something else; the error shows how to write it.
pub fn parse_time(text: &str) -> Result<Duration, Error> {
    let (number, unit) = split(text);
    let is_nothing = |x: f64| x == 0.0 && x.is_sign_positive();
    if unit.is_empty() && number.parse().is_ok_and(is_nothing) {
        return Ok(Duration::ZERO);
    }
    if unit.is_empty() && number.parse::<f64>().is_ok() {
        return Err(Error::new(format!("the time \"{text}\" has no unit"))
            .remedy(format!("write {number}ms, {number}us or {number}s")));
    }
    quantity(text, number, unit, &TIME).map(Duration::from_nanos)
}

/// Reads a size, bytes.
///
/// # Errors
/// If it is something else; the error shows how to write it.
pub fn parse_size(text: &str) -> Result<u64, Error> {
    let (number, unit) = split(text);
    quantity(text, number, unit, &SIZE)
}

/// Reads a whole number of at least 0, without a unit. A caller that knows its bounds names them in
/// the remedy.
///
/// # Errors
/// If it is something else; the error shows how to write it.
pub fn parse_count(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| {
        let what = match text.strip_prefix('-').map(str::parse::<u64>) {
            Some(Ok(_)) => "is negative",
            _ => "is not a whole number",
        };
        Error::new(format!("\"{text}\" {what}")).remedy("write digits only")
    })
}

/// Reads a finite number.
///
/// # Errors
/// If it is something else; the error shows how to write it.
pub fn parse_number(text: &str) -> Result<f64, Error> {
    match split(text) {
        (number, "") => number.parse::<f64>().ok(),
        _ => None,
    }
    .filter(|x| x.is_finite())
    .ok_or_else(|| Error::new(format!("\"{text}\" is not a number")).remedy("write it as 0.5"))
}

/// Reads a probability, 0..1, also as a percentage.
///
/// # Errors
/// If it is something else; the error shows how to write it.
pub fn parse_probability(text: &str) -> Result<f64, Error> {
    let remedy = "write a number from 0 to 1, as 0.01, or a percentage, as 1%";
    let (number, unit) = split(text);
    let scale = match unit {
        "" => 1.0,
        "%" => 0.01,
        _ => f64::NAN,
    };
    let p = number.parse::<f64>().unwrap_or(f64::NAN) * scale;
    if (0.0..=1.0).contains(&p) && p.is_sign_positive() {
        Ok(p)
    } else {
        Err(Error::new(format!("\"{text}\" is not a probability")).remedy(remedy))
    }
}

/// Separates a number from the unit behind it; "e" belongs to the number only if digits follow.
fn split(text: &str) -> (&str, &str) {
    let b = text.as_bytes();
    let digits = |mut i: usize| {
        while i < b.len() && (b[i].is_ascii_digit() || b[i] == b'.') {
            i += 1;
        }
        i
    };
    let sign = |i: usize| i + usize::from(matches!(b.get(i), Some(b'+' | b'-')));
    let mut end = digits(sign(0));
    if matches!(b.get(end), Some(b'e' | b'E')) && end > 0 {
        let exponent = sign(end + 1);
        if b.get(exponent).is_some_and(u8::is_ascii_digit) {
            end = digits(exponent);
        }
    }
    (&text[..end], text[end..].trim_start())
}

fn quantity(text: &str, number: &str, unit: &str, sort: &Quantity) -> Result<u64, Error> {
    let article = sort.article;
    let value: f64 = number
        .parse()
        .map_err(|_| Error::new(format!("\"{text}\" is not {article}")).remedy(sort.remedy))?;
    let Some((_, scale)) = sort
        .units
        .iter()
        .find(|(u, _)| u.eq_ignore_ascii_case(unit))
    else {
        let what = if unit.is_empty() {
            format!("{article} needs a unit, \"{text}\" has none")
        } else {
            format!("\"{text}\" has an unknown unit \"{unit}\" for {article}")
        };
        return Err(Error::new(what).remedy(sort.remedy));
    };
    if value.is_sign_negative() {
        return Err(Error::new(format!("\"{text}\" is negative")).remedy(sort.remedy));
    }
    let scaled =
        exactly(number, *scale).unwrap_or_else(|| num::whole_u64(libm::round(value * scale)));
    if scaled > LARGEST {
        let max = sort.max;
        return Err(Error::new(format!("\"{text}\" is too large for {article}"))
            .remedy(format!("write {max} at most")));
    }
    Ok(scaled)
}

/// A plain decimal number times an integral scale, rounded; `None` if the number or the scale is of
/// another kind. A product of doubles can be off by one near 2^53, but a printed rate or time must
/// read back unchanged.
fn exactly(number: &str, scale: f64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{part}");
    // 24 digits times the largest scale fit into 128 bits.
    if digits.len() > 24
        || !digits.bytes().all(|b| b.is_ascii_digit())
        || scale != libm::trunc(scale)
    {
        return None;
    }
    let unit = 10_u128.pow(num::count(part.len()));
    let scaled = digits.parse::<u128>().ok()? * u128::from(num::whole_u64(scale));
    u64::try_from((2 * scaled + unit) / (2 * unit)).ok()
}

/// The units of rates.
pub fn rates() -> Vec<&'static str> {
    RATES.iter().map(|(unit, _)| *unit).collect()
}

/// The units of times.
pub fn times() -> Vec<&'static str> {
    TIMES.iter().map(|(unit, _)| *unit).collect()
}

/// The units of sizes, the empty one included.
pub fn sizes() -> Vec<&'static str> {
    SIZES.iter().map(|(unit, _)| *unit).collect()
}

/// A number of things: `1 queue`, `2 queues`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// An exact size in the notation of `tc`: `32mb`, `1514`.
pub fn format_size(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_quantities_are_read_back_as_written() {
        for text in ["8999999.994gbit", "9007199.254740991gbit", "1.001mbit"] {
            let rate = parse_rate(text).unwrap();
            assert_eq!(parse_rate(&rate.to_string()).unwrap(), rate, "{text}");
        }
        assert_eq!(
            parse_time("9007199.254740991s").unwrap(),
            Duration::from_nanos((1 << 53) - 1)
        );
        assert_eq!(parse_time("1.0005us").unwrap(), Duration::from_nanos(1001));
        assert!(parse_time("9007199254740993ns").is_err());
    }

    #[test]
    fn rates_read_as_tc_reads_them() {
        for (text, bps) in [
            ("15mbit", 15_000_000),
            ("1.5gbit", 1_500_000_000),
            ("1.5Gbit", 1_500_000_000),
            ("500kbit", 500_000),
            ("9600bit", 9600),
            ("1mbps", 8_000_000), // tc(8): bps are bytes per second
            ("1mibit", 1_048_576),
            ("0.1gbit", 100_000_000),
            ("1e6bit", 1_000_000),
            ("10 mbit", 10_000_000),
        ] {
            assert_eq!(parse_rate(text), Ok(Rate::from_bps(bps)), "{text}");
        }
    }

    #[test]
    fn a_rate_in_bytes_per_second_gets_a_note_and_no_other_text_does() {
        assert_eq!(
            note_on_rate("50Mbps").as_deref(),
            Some(
                "\"50Mbps\" is read as 400mbit: in tc, bps is bytes per second; for bits per second write 50mbit"
            )
        );
        for text in ["1bps", "2kbps", "3 gbps", "4mibps"] {
            assert!(note_on_rate(text).is_some(), "{text}");
        }
        for text in [
            "", "50mbit", "bps", "xbps", "mbps", "1nbps", "é", "5é€", "-1mbps",
        ] {
            assert_eq!(note_on_rate(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024_as_in_tc() {
        for (text, bytes) in [
            ("1514", 1514),
            ("6MB", 6_291_456), // Linux's tcp_rmem[2]
            ("1MiB", 1_048_576),
            ("32mb", 33_554_432), // fq_codel's memory_limit
            ("64k", 65_536),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn times_need_a_unit_unless_zero() {
        assert_eq!(parse_time("20ms"), Ok(Duration::from_nanos(20_000_000)));
        assert_eq!(parse_time("500us"), Ok(Duration::from_nanos(500_000)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_nanos(1_500_000_000)));
        assert_eq!(parse_time("0"), Ok(Duration::from_nanos(0)));
        let e = parse_time("5").unwrap_err().to_string();
        assert_eq!(e, "the time \"5\" has no unit; write 5ms, 5us or 5s");
    }

    #[test]
    fn text_that_is_not_a_quantity_is_refused_with_a_remedy() {
        for text in [
            "",
            "15",
            "-1mbit",
            "nan",
            "inf",
            "infmbit",
            "1..5mbit",
            "mbit",
            "15 parsecs",
            "1e400bit",
            "0bit",
            "0.4bit",
            "99999999999tbit",
            "١mbit",
            "--1mbit",
            "1e",
            "+",
            "e5mbit",
        ] {
            let e = parse_rate(text).expect_err(text);
            assert!(e.remedy.is_some(), "{text}");
        }
        for text in ["", "-1ms", "NaNms", "1e300s", "5 parsecs", "ms", "5mbit"] {
            assert!(parse_time(text).expect_err(text).remedy.is_some(), "{text}");
        }
        for text in ["", "-1", "1.5", "18446744073709551616", "1e3", "x"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
        for text in ["-0.1", "1.1", "101%", "nan", "", "0.5x"] {
            assert!(parse_probability(text).is_err(), "{text}");
        }
    }

    #[test]
    fn percentages_are_probabilities() {
        assert_eq!(parse_probability("1%"), Ok(0.01));
        assert_eq!(parse_probability("1"), Ok(1.0));
        assert_eq!(parse_probability("1e-3"), Ok(0.001));
    }

    #[test]
    fn printed_values_are_read_back_exactly() {
        for value in [
            1,
            999,
            1000,
            1514,
            9600,
            15_000_000,
            1_500_000_000,
            123_456_789,
            1_234_000,
            48_000_000_000_000,
        ] {
            let (rate, time) = (Rate::from_bps(value), Duration::from_nanos(value));
            assert_eq!(parse_rate(&rate.to_string()), Ok(rate), "{rate}");
            assert_eq!(parse_time(&time.to_string()), Ok(time), "{time}");
            assert_eq!(
                parse_size(&format_size(value)),
                Ok(value),
                "{}",
                format_size(value)
            );
        }
        assert_eq!(format_size(33_554_432), "32mb");
    }
}
