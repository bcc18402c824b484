//! Rate traces of links in Mahimahi's packet-delivery format: one line per opportunity to send
//! 1,504 bytes, its time in milliseconds, ascending; several lines may name the same millisecond.
//! After the last line the trace repeats.

pub mod generated;

use std::path::Path;

use quell_qdisc::num;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS, SEC};

use crate::error::Error;

/// Bytes that one opportunity may carry.
pub const OPPORTUNITY_BYTES: u64 = 1504;
/// Longest trace, 2^47 ns: the simulator's longest time. A longer trace must contain a typing error
/// and is refused.
const LONGEST: Duration = Duration::from_nanos(1 << 47);

/// The capacity of a link over time, measured or generated.
///
/// ```
/// use quell_link::prelude::*;
///
/// // 1504 bytes may leave at 1 ms, and twice that at 4 ms; then the trace repeats.
/// let trace = Trace::parse(b"1\n4\n4\n", "cell.up")?;
/// assert_eq!((trace.period, trace.mean_rate()), (4 * MS, Rate::from_bps(3 * 1504 * 8 * 250)));
/// let error = Trace::parse(b"4\n1\n", "cell.up").unwrap_err();
/// assert!(error.to_string().starts_with("cell.up:2: 1 ms comes after 4 ms"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The path as opened, or the name of a built-in trace.
    pub name: String,
    /// Times of the opportunities within one period: ascending, none above `period`.
    pub opportunities: Vec<Duration>,
    /// Time of the last opportunity, above 0: the trace repeats from there.
    pub period: Duration,
}

impl Trace {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read or is not a trace.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let bytes = crate::file::read(path, crate::file::TRACE).map_err(|e| {
            Error::new(format!("cannot read the trace {name}: {e}"))
                .remedy("name a file in Mahimahi's format, one time in ms per line")
        })?;
        Self::parse(&bytes, &name)
    }

    /// Reads the text of a trace; `name` is its name in errors.
    ///
    /// # Errors
    /// If it is empty, a line is not a time, or times go backwards.
    pub fn parse(text: &[u8], name: &str) -> Result<Self, Error> {
        let fail = |what: String, line: Option<usize>| {
            Err(Error::new(what)
                .remedy("a trace has one line per opportunity, its time in ms, ascending, the last above 0")
                .at(name, line))
        };
        let text = text.trim_ascii_end();
        if text.is_empty() {
            return fail("the trace is empty".into(), None);
        }
        let mut opportunities = Vec::new();
        let mut last = Duration::ZERO;
        for (i, line) in text.split(|b| *b == b'\n').enumerate() {
            let line = line.trim_ascii();
            let time = std::str::from_utf8(line)
                .ok()
                .filter(|l| l.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|l| l.parse::<u64>().ok())
                .and_then(|ms| MS.checked_mul(ms))
                .filter(|ns| *ns <= LONGEST);
            let Some(time) = time else {
                let shown: String = String::from_utf8_lossy(line).chars().take(40).collect();
                return fail(format!("\"{shown}\" is not a time in ms"), Some(i + 1));
            };
            if time < last {
                let what = format!("{} ms comes after {} ms", time / MS, last / MS);
                return fail(what, Some(i + 1));
            }
            last = time;
            opportunities.push(time);
        }
        if last.is_zero() {
            return fail("the trace lasts 0 ms".into(), Some(opportunities.len()));
        }
        Ok(Self {
            name: name.to_owned(),
            opportunities,
            period: last,
        })
    }

    /// A built-in trace: a synthetic line, see [`generated`].
    pub fn built_in(name: &str) -> Option<Self> {
        generated::line(name)
    }

    /// The first opportunity at `now` or later: start of its period, and its index within the
    /// period.
    pub fn first_from(&self, now: Instant) -> (Instant, usize) {
        // A period ends with an opportunity, so one that ends at `now` still counts.
        let before = (now - Instant::ZERO).saturating_sub(Duration::from_nanos(1));
        let start = Instant::ZERO + before / self.period * self.period;
        let at = self.opportunities.partition_point(|&t| start + t < now);
        (start, at)
    }

    /// Mean rate of the link.
    pub fn mean_rate(&self) -> Rate {
        let bits = self.opportunities.len() as u128 * u128::from(OPPORTUNITY_BYTES * 8);
        let bps = bits * u128::from(SEC.as_nanos()) / u128::from(self.period.as_nanos());
        Rate::from_bps(num::low_u64(bps).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_repeats_behind_its_last_line() {
        let t = Trace::parse(b"0\n1\n1\r\n4\n\n", "t").unwrap();
        assert_eq!(t.opportunities, [Duration::ZERO, MS, MS, 4 * MS]);
        assert_eq!(t.period, 4 * MS);
        assert_eq!(t.mean_rate().bps(), 4 * 1504 * 8 * 250); // four opportunities each 4 ms
    }

    #[test]
    fn bad_traces_name_file_line_and_remedy() {
        for (text, place) in [
            (&b""[..], "cell.up: the trace is empty"),
            (b"\n \n", "cell.up: the trace is empty"),
            (b"1\nx\n", "cell.up:2: \"x\""),
            (b"1\n\n2\n", "cell.up:2: \"\""),
            (b"1\n-2\n", "cell.up:2: \"-2\""),
            (b"5\n4\n", "cell.up:2: 4 ms comes after 5 ms"),
            (b"0\n0\n", "cell.up:2: the trace lasts 0 ms"),
            (b"1\n\xff\xfe\n", "cell.up:2:"),
            (b"99999999999999999999\n", "cell.up:1:"),
            (b"9999999999999\n", "cell.up:1:"),
        ] {
            let e = Trace::parse(text, "cell.up").unwrap_err();
            assert!(e.to_string().starts_with(place), "{e}");
            assert!(e.remedy.is_some());
        }
    }

    #[test]
    fn the_built_in_trace_looks_like_a_measured_one() {
        for (name, mean) in [("lte", 12e6), ("lte-up", 6e6)] {
            let t = Trace::built_in(name).unwrap();
            assert_eq!(t, Trace::built_in(name).unwrap());
            assert!(t.opportunities.is_sorted());
            assert_eq!(t.opportunities.last(), Some(&t.period));
            let off = t.mean_rate().bps_f64() / mean;
            assert!(
                (0.999..1.001).contains(&off),
                "{name}: {} bit/s",
                t.mean_rate()
            );
            let mut seconds = vec![0u32; (t.period / SEC) as usize + 1];
            t.opportunities
                .iter()
                .for_each(|o| seconds[(*o / SEC) as usize] += 1);
            let (low, high) = (
                seconds[..60].iter().min().unwrap(),
                seconds.iter().max().unwrap(),
            );
            assert!(high > &(low * 5), "{name}: {low} to {high} a second");
            let gap = t
                .opportunities
                .windows(2)
                .map(|w| w[1] - w[0])
                .max()
                .unwrap();
            assert!((50 * MS..SEC).contains(&gap), "{name}: {gap:?}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let e = Trace::read(Path::new("no/such.trace"))
            .unwrap_err()
            .to_string();
        assert!(
            e.starts_with("cannot read the trace no/such.trace: "),
            "{e}"
        );
    }
}
