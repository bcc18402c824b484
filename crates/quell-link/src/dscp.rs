//! The names of DSCPs (IANA's registry of differentiated services field codepoints).

use crate::error::Error;

/// Names and values. Of two names with the same value, the first one is printed.
const NAMES: [(&str, u8); 25] = [
    ("CS0", 0),
    ("DF", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("VA", 44),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
    ("VOICE-ADMIT", 44),
];

/// Reads a name, in upper or lower case, or a number.
///
/// # Errors
/// If there is no such DSCP.
pub fn parse(text: &str) -> Result<u8, Error> {
    let named = NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(text));
    let number = || text.parse().ok().filter(|n| *n < 64);
    named.map(|n| n.1).or_else(number).ok_or_else(|| {
        Error::new(format!("\"{text}\" is not a DSCP"))
            .remedy("write CS0 to CS7, AF11 to AF43, EF, VA, LE, or 0 to 63")
    })
}

/// The name of a DSCP, or its number if it has none.
pub fn format(dscp: u8) -> String {
    let named = NAMES.iter().find(|(_, d)| *d == dscp);
    named.map_or_else(|| dscp.to_string(), |(name, _)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_and_names_written() {
        for (text, dscp, written) in [
            ("EF", 46, "EF"),
            ("ef", 46, "EF"),
            ("46", 46, "EF"),
            ("df", 0, "CS0"),
            ("AF41", 34, "AF41"),
            ("3", 3, "3"),
        ] {
            assert_eq!(parse(text), Ok(dscp));
            assert_eq!(format(dscp), written);
        }
        for dscp in 0..64 {
            assert_eq!(parse(&format(dscp)), Ok(dscp));
        }
    }

    #[test]
    fn other_words_are_refused_with_the_valid_ones() {
        for text in ["64", "-1", "EFF", ""] {
            let e = parse(text).expect_err(text).to_string();
            assert_eq!(
                e,
                format!(
                    "\"{text}\" is not a DSCP; write CS0 to CS7, AF11 to AF43, EF, VA, LE, or 0 to 63"
                )
            );
        }
    }
}
