//! The reader of rtnetlink's lists: answers of real kernels (tests/data/watch), cut short, mutated,
//! random. 200,000 here; `QUELL_FUZZ=100000000 cargo test -p quell-live --test it watch` for more.
use std::collections::BTreeMap;

use crate::random::Random;
use quell_live::steer::kinds::{Kind, Knob};
use quell_live::watch::Sample;
use quell_live::watch::lines::Format;
use quell_live::watch::message::{Counters, Handle, Message, Queue, answers, messages, notices};
use quell_live::watch::meter::Rates;
use quell_live::watch::xstats::{self, Value};

const NEW: &[u8] = include_bytes!("../data/watch/linux-7.2.bin");
const OLD: &[u8] = include_bytes!("../data/watch/linux-6.18.bin");
/// Sequence number of the requests that `capture.py` sends.
const SEQUENCE: u32 = 1;

fn queues(bytes: &[u8]) -> Vec<Queue<'_>> {
    let mut found = Vec::new();
    messages(bytes, SEQUENCE, |message| {
        if let Message::Queue(queue) = message {
            found.push(queue);
        }
        true
    });
    found
}

fn one<'a>(found: &[Queue<'a>], kind: &str, class: bool) -> Queue<'a> {
    let is = |q: &&Queue<'_>| q.kind == kind && q.key.class == class;
    *found.iter().find(is).expect("it was captured")
}

fn reported(queue: &Queue<'_>) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let (kind, class) = (queue.kind, queue.key.class);
    xstats::each(kind, class, queue.xstats, &mut |tin, name, value| {
        let name = match tin {
            Some(tin) => format!("{tin}.{name}"),
            None => name.to_owned(),
        };
        let value = match value {
            Value::Count(count) => count as f64,
            Value::Signed(number) => number as f64,
            Value::Share(share) => share,
        };
        assert_eq!(all.insert(name, value), None);
    });
    all
}

#[test]
fn counters_are_those_that_tc_prints() {
    let found = queues(NEW);
    // Including noqueue on the loopback device.
    assert_eq!(found.iter().filter(|q| !q.key.class).count(), 19);
    let cake = one(&found, "cake", false);
    assert_eq!(Handle(cake.key.handle).to_string(), "1:");
    assert_eq!(Handle(cake.key.parent).to_string(), "root");
    let counters = Counters {
        bytes: 1_000_628,
        packets: 964,
        backlog_packets: 330,
        backlog_bytes: 343_860,
        drops: 92,
        requeues: 0,
        overlimits: 2347,
    };
    assert_eq!(cake.counters, counters);
    let pie = one(&found, "pie", false);
    assert_eq!(Handle(pie.key.parent).to_string(), "1:10");
    assert_eq!(
        (pie.counters.drops, pie.counters.backlog_packets),
        (225, 196)
    );

    let found = queues(OLD);
    let class = one(&found, "htb", true);
    assert_eq!(Handle(class.key.handle).to_string(), "1:10");
    let counters = &one(&found, "bfifo", false).counters;
    assert_eq!(
        (counters.drops, class.counters.drops),
        (10, 10),
        "{found:?}"
    );
    assert_eq!((counters.packets, counters.backlog_packets), (31, 0));
    assert_eq!(one(&found, "tbf", false).xstats, b"");
}

#[test]
fn reported_gauges_of_each_kind_equal_those_of_tc() {
    let found = queues(NEW);
    let check = |kind: &str, class: bool, expected: &[(&str, f64)]| {
        let all = reported(&one(&found, kind, class));
        for (name, value) in expected {
            assert!((all[*name] - value).abs() <= 1e-6, "{kind} {name}: {all:?}");
        }
    };
    check(
        "codel",
        false,
        &[
            ("count", 28.0),
            ("lastcount", 1.0),
            ("dropping", 1.0),
            ("maxpacket", 1042.0),
            ("ecn_mark", 0.0),
            ("drop_overlimit", 294.0),
        ],
    );
    check(
        "fq_codel",
        false,
        &[
            ("new_flow_count", 23.0),
            ("ecn_mark", 77.0),
            ("old_flows_len", 5.0),
        ],
    );
    check("fq_codel", true, &[("count", 27.0), ("lastcount", 1.0)]);
    check(
        "pie",
        false,
        &[
            ("prob", 0.490_089),
            ("packets_in", 1161.0),
            ("overlimit", 197.0),
            ("dropped", 225.0),
            ("maxq", 199.0),
        ],
    );
    check(
        "fq_pie",
        false,
        &[("packets_in", 1296.0), ("memory_usage", 760_320.0)],
    );
    check("fq", false, &[("flows", 7.0), ("inactive_flows", 1.0)]);
    check("red", false, &[("early", 334.0), ("pdrop", 0.0)]);
    check(
        "htb",
        true,
        &[("lends", 966.0), ("tokens", -16281.0), ("borrows", 0.0)],
    );
    check(
        "cake",
        false,
        &[
            ("memory_used", 762_624.0),
            ("capacity_estimate_bytes_per_s", 1e6),
            ("1.packets", 1385.0),
            ("1.bytes", 1_440_310.0),
            ("1.ecn_mark", 88.0),
            ("1.drops", 92.0),
            ("1.way_misses", 7.0),
            ("1.bulk_flows", 5.0),
            ("3.sparse_flows", 1.0),
            ("3.peak_delay_us", 260.0),
        ],
    );
    // tc 6.1 does not know dualpi2. Its packets are those that left, wait, or were dropped after
    // they had entered.
    let dualpi2 = one(&found, "dualpi2", false);
    let all = reported(&dualpi2);
    let entered = all["packets_in_c"] + all["packets_in_l"];
    let c = &dualpi2.counters;
    assert!(entered >= (c.packets + u64::from(c.backlog_packets)) as f64);
    assert!(entered <= (c.packets + u64::from(c.backlog_packets + c.drops)) as f64);
    assert!(all["prob"] > 0.0 && all["prob"] < 1.0);
    assert_eq!(all["memory_limit"], 30_280_000.0);
}

#[test]
fn fields_and_attributes_of_a_newer_kernel_are_skipped() {
    let found = queues(NEW);
    let codel = one(&found, "codel", false);
    let mut longer = codel.xstats.to_vec();
    longer.extend([7; 40]);
    let newer = Queue {
        xstats: &longer,
        ..codel
    };
    assert_eq!(reported(&newer), reported(&codel));
    // An attribute of an unknown type.
    let cake = one(&found, "cake", false);
    let mut more = vec![8, 0, 0xFF, 0x3F, 1, 2, 3, 4];
    more.extend(cake.xstats);
    let newer = Queue {
        xstats: &more,
        ..cake
    };
    assert_eq!(reported(&newer), reported(&cake));
    // An older one has fewer fields.
    let older = Queue {
        xstats: &codel.xstats[..16],
        ..codel
    };
    assert_eq!(reported(&older).len(), 4);
    assert_eq!(
        reported(&Queue {
            kind: "new",
            ..codel
        })
        .len(),
        0
    );
}

#[test]
fn answers_to_other_requests_are_left_out() {
    let mut any = false;
    messages(NEW, SEQUENCE + 1, |_| {
        any = true;
        true
    });
    assert!(!any);
}

/// Parses messages and writes their queues in every format; returns the number of bytes written.
fn digest(bytes: &[u8]) -> usize {
    let mut out = Vec::new();
    messages(bytes, SEQUENCE, |message| {
        if let Message::Queue(queue) = message {
            let sample = Sample {
                device: "eth0",
                queue,
                rates: Rates::default(),
                gauges: None,
            };
            for format in [Format::Csv, Format::Json, Format::Text] {
                format.write(&mut out, 0, &sample);
            }
        }
        true
    });
    out.len()
}

#[test]
fn a_list_may_be_cut_anywhere() {
    let whole = digest(NEW);
    for length in 0..NEW.len() {
        assert!(digest(&NEW[..length]) <= whole);
    }
}

#[test]
fn knobs_are_read_from_the_options_of_real_kernels() {
    let found = queues(NEW);
    let read = |name: &str, knob| {
        let class = name == "htb";
        let kind = Kind::find(name, class).expect("a kind");
        kind.read(one(&found, name, class).options, knob)
    };
    // As set in tests/watch_guest.sh; the others are the kernel's defaults.
    assert_eq!(read("cake", Knob::Rate), Some(1_000_000));
    assert_eq!(read("htb", Knob::Rate), Some(1_000_000));
    assert_eq!(read("fq_codel", Knob::Limit), Some(500));
    assert_eq!(read("pie", Knob::Limit), Some(200));
    assert_eq!(read("codel", Knob::Limit), Some(100));
    assert_eq!(read("fq", Knob::Limit), Some(10_000));
    assert_eq!(read("fq_pie", Knob::Limit), Some(10_240));
    assert_eq!(read("dualpi2", Knob::Limit), Some(10_000));
    for name in ["pie", "fq_pie", "dualpi2"] {
        assert_eq!(read(name, Knob::Target), Some(15_000), "{name}");
    }
    for name in ["codel", "fq_codel"] {
        assert_eq!(read(name, Knob::Target), Some(4999), "{name}");
    }
    assert_eq!(read("cake", Knob::Target), Some(5000));
}

#[test]
fn answers_and_notices_are_read() {
    // The kernel's answer to a change of sfq, with its explanation; then its answer to a valid
    // request.
    let said = b"Change operation not supported\0";
    let mut refused = Vec::new();
    let header = |length: u32, kind: u16, flags: u16, port: u32| {
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        bytes.extend([7u32.to_ne_bytes(), port.to_ne_bytes()].concat());
        bytes
    };
    let length = 16 + 4 + 16 + 4 + said.len();
    refused.extend(header(length as u32, 2, 0x300, 1));
    refused.extend((-22i32).to_ne_bytes());
    refused.extend(header(36, 36, 5, 0));
    refused.extend([4 + said.len() as u16, 1].map(u16::to_ne_bytes).concat());
    refused.extend(said);
    refused.resize(refused.len().next_multiple_of(4), 0);
    refused.extend(header(36, 2, 0x100, 1));
    refused.extend([0; 20]);
    let all: Vec<_> = answers(&refused).collect();
    assert_eq!(
        all,
        [(7, -22, "Change operation not supported"), (7, 0, "")]
    );
    // A list gives a notice for each discipline and class.
    let listed = notices(NEW).count();
    assert_eq!(listed, queues(NEW).len());
    assert!(notices(NEW).all(|key| key.device > 0));
}

#[test]
fn malformed_messages_are_read_without_harm() {
    let many = std::env::var("QUELL_FUZZ").map_or(200_000, |n| n.parse().expect("a number"));
    let mut random = Random(7);
    let mut bytes = Vec::new();
    let parts = [NEW, OLD];
    let mut lines = 0;
    for round in 0..many {
        bytes.clear();
        let source = parts[random.below(2)];
        let from = random.below(source.len() / 4) * 4;
        let length = random.below(1200).min(source.len() - from);
        bytes.extend(&source[from..from + length]);
        if round % 4 == 0 {
            random.fill(&mut bytes);
        }
        // The header of a message about a discipline, so that the rest is read.
        if bytes.len() >= 16 {
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            bytes[4..6].copy_from_slice(&36u16.to_ne_bytes());
            bytes[8..12].copy_from_slice(&SEQUENCE.to_ne_bytes());
        }
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len().max(1));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.next() as u8;
            }
        }
        lines += digest(&bytes);
        lines += notices(&bytes).count();
        if bytes.len() >= 16 {
            bytes[4..6].copy_from_slice(&2u16.to_ne_bytes());
            lines += answers(&bytes)
                .map(|(_, _, said)| said.len())
                .sum::<usize>();
        }
    }
    assert!(lines > 0);
}

#[test]
fn lines_of_json_and_csv_can_be_read() {
    let mut random = Random(9);
    for queue in queues(NEW).iter().chain(&queues(OLD)) {
        let mut rates = Rates::default();
        if random.below(2) == 0 {
            rates.bps = Some(random.below(1 << 30) as f64 / 7.0);
            rates.sojourn_ms = Some(0.0005);
        }
        let sample = Sample {
            device: "a,\"b",
            queue: *queue,
            rates,
            gauges: None,
        };
        let mut line = Vec::new();
        Format::Json.write(&mut line, 1_700_000_000_123_456_789, &sample);
        let read: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
        assert_eq!(read["time"], 1_700_000_000.123_456);
        assert_eq!(read["device"], "a,\"b");
        assert_eq!(read["bytes"], queue.counters.bytes);
        let all = reported(queue);
        let tins = read["tins"].as_array().map_or(0, Vec::len);
        assert_eq!(
            tins,
            if queue.kind == "cake" && !queue.key.class {
                4
            } else {
                0
            }
        );
        for (name, value) in all {
            let field = match name.split_once('.') {
                Some((tin, name)) => &read["tins"][tin.parse::<usize>().expect("a tin")][name],
                None => &read["xstats"][name.as_str()],
            };
            assert!((field.as_f64().expect("a number") - value).abs() < 1e-8);
        }
        let mut line = Vec::new();
        Format::Csv.write(&mut line, 0, &sample);
        let text = String::from_utf8(line).expect("text");
        assert!(text.starts_with("0.000000,\"a,\"\"b\","));
        let columns = Format::Csv.heading().split(',').count();
        // One comma is in the name of the device.
        assert_eq!(text.split(',').count(), columns + 1);
    }
}
