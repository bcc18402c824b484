//! The keys of a link: `[link]`, `[link.up]` and `[[hop]]`.

use std::path::Path;
use std::sync::Arc;

use quell_link::bottleneck::Shaper;
use quell_link::field::{self, Field};
use quell_link::server::Capacity;
use quell_link::trace::{Trace, generated};
use quell_link::units::format_size;
use quell_link::{Error, Queue};
use quell_qdisc::num;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::Duration;

use super::MAX_DURATION;
use super::steps::{self, Steps};
use crate::scenario::key::{Key, Needs, Section, Value, any, key};
use crate::scenario::model::{FramingWords, Link};
use crate::scenario::tree::{Node, Table};

/// Rate of the slowest link, and of the fastest.
const MIN_RATE: Rate = Rate::from_bps(1);
const MAX_RATE: Rate = Rate::from_mbit(10_000_000);
/// Default size of a token bucket, bytes.
const BURST: u32 = 1600;

const QUEUE: Key<Link> = key(
    "queue",
    Field::Other {
        syntax: "WORDS",
        set: |l, text| {
            l.queue = queue_words(text)?;
            Ok(())
        },
        get: |l| l.queue.clone(),
    },
    "queue words (`quell queues`); `--aqm` overrides them",
);

pub(in crate::scenario) static LINK: Section<Link> = Section {
    keys: &[
        key::<Link>(
            "rate",
            Field::Other {
                syntax: "RATE",
                set: |l, text| {
                    l.rate = Capacity::Constant(field::rate(text, MIN_RATE, MAX_RATE)?);
                    Ok(())
                },
                get: |l| match &l.rate {
                    Capacity::Constant(rate) => rate.to_string(),
                    _ => String::new(),
                },
            },
            "constant rate",
        )
        .or("required, or `trace` or `schedule`")
        .replaces(&["trace", "schedule"]),
        key::<Link>(
            "trace",
            Field::Other {
                syntax: "FILE",
                set: |l, text| {
                    l.rate = Capacity::Trace(Arc::new(trace(text)?));
                    Ok(())
                },
                get: |l| match &l.rate {
                    Capacity::Trace(trace) => trace.name.clone(),
                    _ => String::new(),
                },
            },
            "a file in Mahimahi's format, its path relative to the scenario's; or `builtin:` and one of lte, starlink, docsis, powerline, `-up` for the other direction, `:SEED` for another draw",
        )
        .replaces(&["rate", "schedule"]),
        any::<Link>(
            "schedule",
            Value::List {
                syntax: "[[TIME, RATE], ...]",
                set: |l, node| {
                    let steps = STEPS.read(node)?;
                    l.rate = Capacity::Schedule(steps.into());
                    Ok(())
                },
                get: |l| match &l.rate {
                    Capacity::Schedule(list) => Some(steps::write(list, |rate| Node::Text(rate.to_string()))),
                    _ => None,
                },
            },
            "rates and when they begin, as in `[[\"0s\", \"6.5mbit\"], [\"25s\", \"13mbit\"]]`",
        )
        .replaces(&["rate", "trace"]),
        key(
            "delay",
            Field::Time(
                |l| &mut l.delay,
                Duration::ZERO,
                Duration::from_nanos(MAX_DURATION.as_nanos() / 16),
            ),
            "one way, in both directions; part of every flow's `rtt`",
        ),
        key::<Link>(
            "shaper",
            Field::Choice {
                what: "shaper",
                words: "line|htb",
                set: |l, word| {
                    l.shaper = match word {
                        "htb" => Shaper::Htb { burst: BURST },
                        _ => Shaper::Line,
                    }
                },
                get: |l| match l.shaper {
                    Shaper::Line => "line",
                    Shaper::Htb { .. } => "htb",
                },
            },
            "`line`: a packet leaves the queue and takes its time at the rate; `htb`: a token bucket as Linux's, not with a trace",
        )
        .replaces(&["burst"]),
        key::<Link>(
            "burst",
            Field::Other {
                syntax: "BYTES",
                set: |l, text| {
                    l.shaper = Shaper::Htb {
                        burst: num::low_u32(field::size(text, 1, 1 << 30)?),
                    };
                    Ok(())
                },
                get: |l| match l.shaper {
                    Shaper::Htb { burst } => format_size(burst.into()),
                    Shaper::Line => String::new(),
                },
            },
            "size of the token bucket",
        )
        .or("1600")
        .only("shaper", "htb"),
        key::<Link>(
            "overhead",
            Field::Count(|l| &mut l.overhead, 0, 1000),
            "link-layer bytes per packet that use up the rate: 14 Ethernet, 2 PPP, 0 IP alone",
        )
        .or("14, with a trace 4"),
        key::<Link>(
            "framing",
            Field::Other {
                syntax: "WORDS",
                set: |l, text| {
                    l.framing = Some(FramingWords::parse(text)?);
                    Ok(())
                },
                get: |l| l.framing.as_ref().map_or_else(String::new, |f| f.words.clone()),
            },
            "what the link makes of an IP packet, in words of tc-cake(8): `\"docsis\"`, `\"pppoe-ptm ether-vlan\"`, `\"overhead 44 atm mpu 64\"`; the queue still sees `overhead`",
        )
        .or("`overhead` alone"),
        key(
            "nic",
            Field::Count(|l| &mut l.nic, 0, 1_000_000),
            "packets in a plain FIFO below the queue, as in a device; 0 below a token bucket",
        ),
        key(
            "loss",
            Field::Probability(|l| &mut l.loss),
            "probability of loss behind the queue",
        ),
        QUEUE,
        key::<Link>(
            "modem_rate",
            Field::Other {
                syntax: "RATE",
                set: |l, text| {
                    l.modem = Some(Capacity::Constant(field::rate(text, MIN_RATE, MAX_RATE)?));
                    Ok(())
                },
                get: |l| match &l.modem {
                    Some(Capacity::Constant(rate)) => rate.to_string(),
                    _ => String::new(),
                },
            },
            "rate of a modem or base station with a plain FIFO on the network's side of the queue: before it on the way down, behind it on the way up",
        )
        .or("no modem")
        .replaces(&["modem_trace"]),
        key::<Link>(
            "modem_trace",
            Field::Other {
                syntax: "FILE",
                set: |l, text| {
                    l.modem = Some(Capacity::Trace(Arc::new(trace(text)?)));
                    Ok(())
                },
                get: |l| match &l.modem {
                    Some(Capacity::Trace(trace)) => trace.name.clone(),
                    _ => String::new(),
                },
            },
            "the modem's rate as a trace, named as in `trace`",
        )
        .replaces(&["modem_rate"]),
        key::<Link>(
            "modem_buffer",
            Field::MaybeBytes(|l| &mut l.modem_buffer, 1600, 1 << 32),
            "bytes that the modem's FIFO holds",
        )
        .or("3 MB"),
    ],
    default: Link::default,
    needs: Some(Needs {
        one_of: &["rate", "trace", "schedule"],
        what: "it has no rate",
        remedy: "write rate = \"15mbit\", or a schedule, or the path of a trace",
    }),
    finish: |l, table| {
        let trace = matches!(l.rate, Capacity::Trace(_));
        if trace && !table.has("overhead") {
            l.overhead = 4;
        }
        if matches!(l.shaper, Shaper::Htb { .. }) {
            check_bucket(l, trace, table)?;
        }
        Ok(())
    },
};

/// The key of a link that a cell also has.
pub(in crate::scenario) static CELL_QUEUE: Section<Link> = Section {
    keys: &[QUEUE],
    default: Link::default,
    needs: None,
    finish: |_, _| Ok(()),
};

fn check_bucket(l: &Link, trace: bool, table: &Table) -> Result<(), Error> {
    let (key, what, remedy) = match (trace, l.nic) {
        (true, _) => (
            "shaper",
            "a token bucket has a rate, and a trace has none",
            "write shaper = \"line\", or a rate or a schedule in place of the trace",
        ),
        (false, 1..) => (
            "nic",
            "the device below a token bucket is never busy",
            "write nic = 0, or shaper = \"line\"",
        ),
        (false, 0) => return Ok(()),
    };
    Err(table.error(key, Error::new(what).remedy(remedy)))
}

/// Checks of the queue that need the mean rate in a run.
pub(in crate::scenario) fn check_queue(
    l: &Link,
    duration: Duration,
    table: &Table,
) -> Result<(), Error> {
    let checked = Queue::parse(&l.queue).and_then(|q| q.check(l.rate.mean_rate(duration)));
    checked.map_err(|e| table.error("queue", e))
}

/// Checks queue words as far as possible without a rate.
pub(super) fn queue_words(text: &str) -> Result<String, Error> {
    Queue::parse(text)?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn trace(text: &str) -> Result<Trace, Error> {
    match text.strip_prefix("builtin:") {
        Some(name) => {
            let trace = Trace::built_in(name)
                .ok_or_else(|| Error::unknown("built-in trace", name, generated::NAMES))?;
            Ok(Trace {
                name: text.to_owned(),
                ..trace
            })
        }
        None if text.is_empty() => Err(Error::new("no trace is named")
            .remedy("write the path of a trace, or leave the key out")),
        None => Trace::read(Path::new(text)),
    }
}

const STEPS: Steps<Rate> = Steps {
    example: "[[\"0s\", \"6.5mbit\"], [\"25s\", \"13mbit\"]]",
    value: |text| field::rate(text, MIN_RATE, MAX_RATE),
};
