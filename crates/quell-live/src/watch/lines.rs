//! Samples as lines of CSV, JSON or text: one line per queue and sample.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_millis;
use quell_qdisc::num;

use super::sampler::Sample;
use crate::rtnetlink::digits::{in_base, short};
use crate::rtnetlink::message::{Handle, Queue, handle};
use crate::rtnetlink::xstats::Value;

/// How samples are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values under a heading; kind-specific values are in one column, as
    /// `name=number`.
    Csv,
    /// A JSON object in each line.
    Json,
    /// Text for a terminal.
    Text,
}

/// The columns of CSV, which are the keys of JSON.
pub const COLUMNS: [&str; 18] = [
    "time",
    "device",
    "type",
    "handle",
    "parent",
    "kind",
    "bytes",
    "packets",
    "drops",
    "overlimits",
    "requeues",
    "backlog_bytes",
    "backlog_packets",
    "rate_bps",
    "packets_per_s",
    "drops_per_s",
    "sojourn_ms",
    "xstats",
];

impl Format {
    /// The heading before the first line; empty except for CSV.
    pub fn heading(self) -> String {
        match self {
            Format::Csv => COLUMNS.join(",") + "\n",
            _ => String::new(),
        }
    }

    /// Appends a sample that was taken at `time`, ns since 1970.
    pub fn write(self, out: &mut Vec<u8>, time: u64, sample: &Sample<'_>) {
        match self {
            Format::Csv => csv(out, time, sample),
            Format::Json => json(out, time, sample),
            Format::Text => text(out, time, sample),
        }
    }
}

/// Values of the columns from `bytes` to `backlog_packets`.
fn counts(queue: &Queue<'_>) -> [u64; 7] {
    let c = &queue.counters;
    [
        c.bytes,
        c.packets,
        c.drops.into(),
        c.overlimits.into(),
        c.requeues.into(),
        c.backlog_bytes.into(),
        c.backlog_packets.into(),
    ]
}

/// Values of the columns from `rate_bps` to `sojourn_ms`, each with its number of decimals.
fn rates(sample: &Sample<'_>) -> [(Option<f64>, usize); 4] {
    let r = &sample.rates;
    [(r.bps, 0), (r.packets, 1), (r.drops, 1), (r.sojourn_ms, 3)]
}

fn type_name(queue: &Queue<'_>) -> &'static str {
    if queue.key.class { "class" } else { "qdisc" }
}

fn csv(out: &mut Vec<u8>, time: u64, sample: &Sample<'_>) {
    let queue = &sample.queue;
    seconds(out, time);
    out.push(b',');
    csv_text(out, sample.device);
    out.push(b',');
    short(out, type_name(queue).as_bytes());
    for number in [queue.key.handle, queue.key.parent] {
        out.push(b',');
        handle(out, Handle(number));
    }
    out.push(b',');
    csv_text(out, queue.kind);
    for count in counts(queue) {
        out.push(b',');
        integer(out, count);
    }
    for (rate, decimals) in rates(sample) {
        out.push(b',');
        if let Some(rate) = rate {
            decimal(out, rate, decimals);
        }
    }
    out.push(b',');
    let mut first = true;
    sample.each(&mut |tin, name, value| {
        if !std::mem::take(&mut first) {
            out.push(b' ');
        }
        if let Some(tin) = tin {
            out.extend(b"tin");
            integer(out, tin.into());
            out.push(b'.');
        }
        short(out, name.as_bytes());
        out.push(b'=');
        number(out, value);
    });
    out.push(b'\n');
}

fn json(out: &mut Vec<u8>, time: u64, sample: &Sample<'_>) {
    let queue = &sample.queue;
    out.extend(b"{\"time\":");
    seconds(out, time);
    out.extend(b",\"device\":");
    json_text(out, sample.device);
    out.extend(b",\"type\":");
    json_text(out, type_name(queue));
    out.extend(b",\"handle\":\"");
    handle(out, Handle(queue.key.handle));
    out.extend(b"\",\"parent\":\"");
    handle(out, Handle(queue.key.parent));
    out.extend(b"\",\"kind\":");
    json_text(out, queue.kind);
    let mut names = COLUMNS[6..].iter();
    let mut name = |out: &mut Vec<u8>| {
        out.extend(b",\"");
        short(out, names.next().copied().unwrap_or_default().as_bytes());
        out.extend(b"\":");
    };
    for count in counts(queue) {
        name(out);
        integer(out, count);
    }
    for (rate, decimals) in rates(sample) {
        name(out);
        match rate {
            // At least one decimal, so that a column has one type.
            Some(rate) => decimal(out, rate, decimals.max(1)),
            None => out.extend(b"null"),
        }
    }
    name(out);
    out.push(b'{');
    // The values of tins come after or between those of the whole discipline.
    let mut after = false;
    sample.each(&mut |tin, name, value| {
        if tin.is_none() {
            member(out, &mut after, name, value);
        }
    });
    out.push(b'}');
    let mut last = None;
    sample.each(&mut |tin, name, value| {
        let Some(tin) = tin else { return };
        if last != Some(tin) {
            out.extend(match last {
                None => &b",\"tins\":[{"[..],
                Some(_) => b"},{",
            });
            last = Some(tin);
            after = false;
        }
        member(out, &mut after, name, value);
    });
    out.extend(match last {
        None => &b"}\n"[..],
        Some(_) => b"}]}\n",
    });
}

fn member(out: &mut Vec<u8>, after: &mut bool, name: &str, value: Value) {
    if std::mem::replace(after, true) {
        out.push(b',');
    }
    out.push(b'"');
    short(out, name.as_bytes());
    out.extend(b"\":");
    number(out, value);
}

fn text(out: &mut Vec<u8>, time: u64, sample: &Sample<'_>) {
    let (queue, counters) = (&sample.queue, &sample.queue.counters);
    date(out, time);
    let _ = write!(
        out,
        " {} {} {} {}: ",
        sample.device.escape_debug(),
        type_name(queue),
        Handle(queue.key.handle),
        queue.kind
    );
    match sample.rates.bps {
        Some(bps) => decimal(out, bps / 1e6, 3),
        None => out.push(b'-'),
    }
    let _ = write!(
        out,
        " Mbit/s, backlog {} packets {} bytes, sojourn ",
        counters.backlog_packets, counters.backlog_bytes
    );
    match sample.rates.sojourn_ms {
        Some(ms) => decimal(out, ms, 1),
        None => out.push(b'-'),
    }
    let _ = write!(out, " ms, drops {}", counters.drops);
    if let Some(gauges) = &sample.gauges {
        let _ = write!(out, "; {}", gauges.describe());
    }
    out.push(b'\n');
}

/// Writes a time in seconds, with microseconds.
fn seconds(out: &mut Vec<u8>, time: u64) {
    fixed(out, time / 1000, 6);
}

/// Writes a date with the time, UTC, to the millisecond: `2026-11-29T07:42:03.250Z`.
fn date(out: &mut Vec<u8>, time: u64) {
    let date = format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(time));
    let _ = write!(out, "{date}");
}

fn number(out: &mut Vec<u8>, value: Value) {
    match value {
        Value::Count(count) => integer(out, count),
        Value::Signed(number) => {
            if number < 0 {
                out.push(b'-');
            }
            integer(out, number.unsigned_abs());
        }
        Value::Share(share) => decimal(out, share, 9),
    }
}

/// Writes a number that is not negative. (The standard library's formatting takes five times as
/// long, most of a sample's time.)
fn decimal(out: &mut Vec<u8>, value: f64, decimals: usize) {
    let scaled = value * 10f64.powi(num::count(decimals).cast_signed());
    fixed(out, num::whole_u64(scaled + 0.5), decimals);
}

/// Writes `value` with a point before its last `decimals` digits.
fn fixed(out: &mut Vec<u8>, value: u64, decimals: usize) {
    let unit = 10u64.pow(num::count(decimals));
    integer(out, value / unit);
    if decimals > 0 {
        out.push(b'.');
        digits(out, value % unit, decimals);
    }
}

fn integer(out: &mut Vec<u8>, value: u64) {
    digits(out, value, 1);
}

/// Writes `value` with at least `least` digits, at most 20.
fn digits(out: &mut Vec<u8>, value: u64, least: usize) {
    in_base::<10>(out, value, least);
}

/// Names of devices may have any characters except `/`, `:` and white space.
fn csv_text(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(plain) {
        return short(out, text.as_bytes());
    }
    let _ = write!(out, "\"{}\"", text.replace('"', "\"\""));
}

fn json_text(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(plain) {
        out.push(b'"');
        short(out, text.as_bytes());
        return out.push(b'"');
    }
    let _ = serde_json::to_writer(out, text);
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::super::meter::Rates;
    use super::*;
    use crate::bpf::page::Page;
    use crate::rtnetlink::message::Key;
    use crate::rtnetlink::message::{INGRESS, ROOT};
    use quell_qdisc::time::Instant;

    #[test]
    fn numbers_dates_and_handles_are_written_as_the_standard_library_date_and_tc_would() {
        let write = |each: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            each(&mut out);
            String::from_utf8(out).expect("text")
        };
        for value in [0, 7, 10, 305, u64::MAX] {
            assert_eq!(write(&|out| integer(out, value)), value.to_string());
        }
        for (value, decimals) in [(0.0, 0), (0.05, 1), (2.5, 3), (1e9, 1), (0.007, 3)] {
            let expected = format!("{value:.decimals$}");
            assert_eq!(write(&|out| decimal(out, value, decimals)), expected);
        }
        assert_eq!(write(&|out| seconds(out, 5_000_040_999)), "5.000040");
        // What `date -u --iso-8601=ns -d @SECONDS` prints.
        for (time, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999_999_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000Z"),
            (1_798_761_600_001_000_000, "2027-01-01T00:00:00.001Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000Z"),
            (u64::MAX, "2554-07-21T23:34:33.709Z"),
        ] {
            assert_eq!(write(&|out| date(out, time)), expected);
        }
        for (number, expected) in [
            (ROOT, "root"),
            (INGRESS, "ingress"),
            (0, "0:"),
            (0x10_0000, "10:"),
            (0xa, ":a"),
            (0x9E00_0F10, "9e00:f10"),
        ] {
            assert_eq!(write(&|out| handle(out, Handle(number))), expected);
            assert_eq!(Handle(number).to_string(), expected);
        }
    }

    #[test]
    fn gauges_of_an_attached_queue_are_what_its_kind_reports() {
        let (device, handle, kind) = (7, 0x9E00 << 16, "quell_hush");
        let key = Key {
            device,
            handle,
            ..Key::default()
        };
        let queue = Queue {
            key,
            kind,
            ..Queue::default()
        };
        let sample = Sample {
            device: "va",
            queue,
            rates: Rates::default(),
            gauges: Page::made("hush", device).gauges(device, kind, handle, Instant::from_nanos(5)),
        };
        let write = |format: Format| {
            let mut out = Vec::new();
            format.write(&mut out, 0, &sample);
            String::from_utf8(out).expect("text")
        };
        let json: serde_json::Value = serde_json::from_str(&write(Format::Json)).expect("JSON");
        assert_eq!(json["xstats"]["target_ns"], 0);
        assert_eq!(json["xstats"]["idle"], 0.0);
        let csv = write(Format::Csv);
        assert!(
            csv.contains("target_ns=0 wait_ns=0 hold_ns=0 cap_ns=0 idle=0.000000000"),
            "{csv}"
        );
        assert_eq!(csv.split(',').count(), COLUMNS.len());
        // The kernel allows control characters in names.
        let (mut odd, sample) = (
            Vec::new(),
            Sample {
                device: "v\x1b[2J",
                ..sample
            },
        );
        Format::Text.write(&mut odd, 0, &sample);
        assert!(!odd.contains(&0x1b));
        let text = write(Format::Text);
        assert!(
            text.contains("drops 0; target 0.0 ms, wait 0.0 ms"),
            "{text}"
        );
    }
}
