//! Fuzz targets: each function takes any bytes and panics if the code under test is wrong.

use std::collections::HashMap;

use quell_link::trace::Trace;
use quell_link::units;
use quell_link::words::Queue;
use quell_live::header::{Change, Parser, classify};
use quell_live::nfqueue;
use quell_live::segment::{Frame, HEADER};
#[cfg(target_os = "linux")]
use quell_live::watch::{message, xstats};
use quell_qdisc::control::learnqueue::Table;
use quell_qdisc::disciplines::hush::model::Model;
use quell_qdisc::packet::TestPacket;
use quell_qdisc::policy::Policy;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Instant, NEVER};
use quell_qdisc::{Dequeued, Discipline, DropCause, Ecn, Gauges, Knobs, Qdisc, Rng};
use quell_sim::scenario::{Overrides, Scenario};

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 8] = [
    ("words", words),
    ("units", units),
    ("scenario", scenario),
    ("trace", trace),
    ("model", model),
    ("header", header),
    ("netlink", netlink),
    ("discipline", discipline),
];

fn text(data: &[u8]) -> &str {
    std::str::from_utf8(data).unwrap_or_default()
}

fn one_line(error: impl ToString) {
    let error = error.to_string();
    assert!(!error.is_empty() && !error.contains('\n'), "{error:?}");
}

/// Whether the words may name a file, whose contents depend on the machine.
fn names_a_file(words: &str) -> bool {
    words.contains('/') || words.contains("model") || words.contains("table")
}

/// Queue words: their shortest form means the same, and the queue can be built.
pub fn words(data: &[u8]) {
    let words = text(data);
    if names_a_file(words) {
        return;
    }
    match Queue::parse(words) {
        Ok(queue) => {
            let short = queue.canonical();
            let reread = Queue::parse(&short).expect("the shortest form is understood");
            assert_eq!(reread.canonical(), short);
            if queue.check(Rate::from_mbit(10)).is_ok() {
                let _ = queue.build(Rate::from_mbit(10));
            }
        }
        Err(error) => one_line(error),
    }
}

/// Rates, times, sizes, counts and probabilities: a time or rate that is written reads back as the
/// same.
pub fn units(data: &[u8]) {
    let text = text(data);
    if let Ok(time) = units::parse_time(text) {
        let reread = units::parse_time(&time.to_string());
        assert_eq!(reread.ok(), Some(time), "{text}");
    }
    if let Ok(rate) = units::parse_rate(text) {
        let reread = units::parse_rate(&rate.to_string());
        assert_eq!(reread.ok(), Some(rate), "{text}");
    }
    if let Ok(p) = units::parse_probability(text) {
        assert!((0.0..=1.0).contains(&p), "{text}: {p}");
    }
    let _ = units::parse_size(text);
    let _ = units::parse_count(text);
    let _ = units::parse_number(text);
    let _ = units::note_on_rate(text);
}

/// Scenario files: a scenario that is written reads back as the same.
pub fn scenario(data: &[u8]) {
    let text = text(data);
    if names_a_file(text) || text.contains("trace") {
        return;
    }
    match Scenario::parse(text, "fuzzed.toml", &Overrides::default()) {
        Ok(scenario) => {
            let written = scenario.to_toml();
            let reread = Scenario::parse(&written, "written.toml", &Overrides::default());
            let reread = reread.expect("what was written is read");
            assert_eq!(reread.to_toml(), written);
        }
        Err(error) => one_line(error),
    }
}

/// Traces in Mahimahi's format.
pub fn trace(data: &[u8]) {
    if let Err(error) = Trace::parse(data, "fuzzed") {
        one_line(error);
    }
}

/// Model files: networks and tables (safetensors), hush's text.
pub fn model(data: &[u8]) {
    if let Err(error) = Policy::load("fuzzed", data) {
        one_line(error);
    }
    if let Err(error) = Table::load("fuzzed", data) {
        one_line(error);
    }
    if let Err(error) = Model::parse(text(data)) {
        one_line(error);
    }
}

/// Parsing of packet headers, changes of them, and the segmentation of large frames.
pub fn header(data: &[u8]) {
    let class = classify(data, (1, 2));
    assert!(class.payload as usize <= data.len());
    let tunnels = Parser {
        key: (1, 2),
        tunnels: true,
        stamps: true,
        wants: quell_qdisc::discipline::Wants {
            labels: true,
            acknowledgments: true,
            ..Default::default()
        },
    };
    let _ = tunnels.classify(data);
    let mut packet = data.to_vec();
    let change = Change {
        mark: true,
        wash: true,
    };
    let _ = change.apply(&mut packet);
    if let Some(frame) = Frame::parse(data) {
        let mut out = [0; 1600];
        for k in 0..(frame.count() + 1).min(64) {
            let written = frame.write(k, &mut out);
            assert!(written.is_none_or(|n| HEADER + n <= out.len()));
        }
    }
}

/// Netlink messages: those of packet queues, those about disciplines, and the statistics in them.
pub fn netlink(data: &[u8]) {
    let _ = nfqueue::messages(data).count();
    #[cfg(target_os = "linux")]
    rtnetlink(data);
}

#[cfg(target_os = "linux")]
fn rtnetlink(data: &[u8]) {
    let _ = message::notices(data).count();
    let _ = message::answers(data).count();
    // Uses the message's own sequence number, so that it passes as the answer to a request.
    let sequence = data.get(8..12).map_or(0, |_| message::u32_at(data, 8));
    message::messages(data, sequence, |message| {
        if let message::Message::Queue(queue) = message {
            xstats::each(queue.kind, queue.key.class, queue.xstats, &mut |_, _, _| {});
        }
        true
    });
    for kind in [
        "codel", "fq_codel", "pie", "fq", "cake", "red", "sfq", "htb", "dualpi2",
    ] {
        xstats::each(kind, false, data, &mut |_, _, _| {});
        xstats::each(kind, true, data, &mut |_, _, _| {});
    }
}

/// A discipline against a model of it: the first line of the bytes is its words, each further pair
/// of bytes an operation. No packet is invented, lost or returned twice; counts are right; no
/// packet waits for a time in the past.
pub fn discipline(data: &[u8]) {
    let end = data.iter().position(|b| *b == b'\n').unwrap_or(data.len());
    let words = text(&data[..end]);
    if names_a_file(words) {
        return;
    }
    let Some(queue) = Queue::parse(words)
        .ok()
        .filter(|q| q.check(Rate::from_mbit(10)).is_ok())
    else {
        return;
    };
    let mut q: Qdisc<TestPacket> = Qdisc::new(queue.build(Rate::from_mbit(10)).queue);
    let (mut rng, mut now, mut held) = (Rng::new(1, "fuzz"), 0, HashMap::new());
    for (id, op) in data[end..].chunks_exact(2).take(4096).enumerate() {
        let mut drops: Vec<(TestPacket, DropCause)> = Vec::new();
        let (kind, value) = (op[0] % 8, op[1]);
        match kind {
            0..=2 => {
                let len = [40, 200, 1000, 1514][usize::from(value >> 6)];
                let hash = u32::from(value & 15).wrapping_mul(0x1234_5679);
                let packet = TestPacket::new(id as u64, len, hash, Ecn::from_bits(value >> 4));
                held.insert(packet.id, len);
                q.offer(Instant::from_nanos(now), packet, &mut rng, &mut drops);
            }
            3 | 4 => match q.take(Instant::from_nanos(now), &mut rng, &mut drops).0 {
                Dequeued::Packet(packet) => {
                    assert_eq!(
                        held.remove(&packet.id),
                        Some(packet.len),
                        "{words}: {packet:?}"
                    );
                }
                Dequeued::Empty => {}
                Dequeued::NotBefore(time) => assert!(
                    time > Instant::from_nanos(now),
                    "{words}: {time:?} at {now}"
                ),
            },
            5 => now += u64::from(value) * 10_000,
            6 => now += u64::from(value) * 10_000_000,
            _ => q.set_knobs(&Knobs {
                limit_packets: Some(1 + u32::from(value)),
                drop: Some(f64::from(value) / 255.0),
                base_probability: Some(f64::from(value) / 255.0),
                ..Knobs::KEEP
            }),
        }
        q.run_timers(Instant::from_nanos(now));
        for (packet, _) in &drops {
            assert_eq!(
                held.remove(&packet.id),
                Some(packet.len),
                "{words}: {packet:?}"
            );
        }
        assert_eq!(q.len(), held.len(), "{words}");
        let bytes: u64 = held.values().map(|len| u64::from(*len)).sum();
        assert_eq!(q.bytes(), bytes, "{words}");
        let mut gauges = Gauges::default();
        q.gauges(Instant::from_nanos(now), &mut gauges);
        assert!(
            (0.0..=1.0).contains(&gauges.probability),
            "{words}: {gauges:?}"
        );
        assert!(
            q.next_timer() == NEVER || q.next_timer() >= Instant::from_nanos(now),
            "{words}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_of_the_corpora_passes() {
        for (name, target) in TARGETS {
            let folder = format!("{}/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
            let inputs: Vec<_> = std::fs::read_dir(&folder).expect(&folder).collect();
            assert!(inputs.len() >= 5, "{folder} has {} inputs", inputs.len());
            for input in inputs {
                let path = input.expect("an entry").path();
                target(&std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
            }
        }
    }
}
