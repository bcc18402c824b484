//! Rows of results, which are compared with a file in `data/`.
//!
//! A commit that changes behaviour on purpose writes the file again with `QUELL_RECORD=1 cargo test
//! --package quell-qdisc`; its message names what `git diff` then shows.

use std::fmt::{self, Debug, Write as _};
use std::path::Path;

/// Names of fields that are a `Rate`, and the names with a unit that are hashed in their place.
const UNITS: [(&str, &str); 3] = [
    (", rate: None", ", rate_bps: None"),
    (", rate: Some", ", rate_bps: Some"),
    (", threshold: ", ", threshold_bps: "),
];

/// A hash (FNV-1a) of the `Debug` texts of all values noted, in order.
pub struct Digest(u64);

impl Digest {
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub fn note(&mut self, what: &impl Debug) {
        let mut text = format!("{what:?};");
        for (name, named) in UNITS {
            if text.contains(name) {
                text = text.replace(name, named);
            }
        }
        self.write_str(&text).expect("no error of its own");
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Compares rows with those of the file; with `QUELL_RECORD` in the environment, writes the file
/// instead.
pub fn hold(file: &str, head: &str, rows: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(file);
    let now = format!("{head}\n{}\n", rows.join("\n"));
    if std::env::var_os("QUELL_RECORD").is_some() {
        return std::fs::write(path, now).expect("the file");
    }
    let before = std::fs::read_to_string(path).expect("the file");
    let pairs = before.lines().zip(now.lines());
    let differing: Vec<String> = pairs
        .filter(|(was, is)| was != is)
        .map(|(was, is)| format!("  was {was}\n  is  {is}"))
        .collect();
    assert!(
        differing.is_empty(),
        "{} of {} rows differ from tests/data/{file}:\n  {head}\n{}",
        differing.len(),
        rows.len(),
        differing[..differing.len().min(10)].join("\n")
    );
    assert_eq!(
        before.lines().count(),
        now.lines().count(),
        "rows are missing"
    );
}
