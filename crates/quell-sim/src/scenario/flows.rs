//! `[[flow]]` tables and their short form on the command line.

use quell_link::Error;
use quell_link::units::{self, format_time};
use quell_qdisc::{MS, Nanos, SEC};

use super::parse::{LONGEST, boolean, count, one_of, size, time};
use super::tree::{Node, Table};
use super::{Cc, Direction, Flow, FlowKind, Scenario, Tcp, wifi};

/// The simulator names a flow in 16 bits.
const MOST_FLOWS: u64 = 65_535;
/// With TCP's headers and every overhead, 16 bits hold it.
const MOST_BYTES: u64 = 64_000;
const KINDS: [&str; 5] = ["tcp", "cbr", "poisson", "onoff", "web"];
const CCS: [&str; 7] = ["newreno", "reno", "cubic", "bic", "bbr", "dctcp", "prague"];
/// Keys that a short form may set with `@key=value`.
const SHORT_KEYS: [&str; 15] = [
    "rtt",
    "ecn",
    "rate",
    "size",
    "bytes",
    "start",
    "stop",
    "stagger",
    "direction",
    "sack",
    "arrivals",
    "ect",
    "from",
    "to",
    "ac",
];

/// Reads the tables into `scenario.flows`.
pub(super) fn read(tables: Vec<Table>, scenario: &mut Scenario) -> Result<(), Error> {
    let mut total = 0;
    for mut table in tables {
        let ends = match &scenario.wifi {
            Some(wifi) => wifi::ends(&mut table, wifi)?
                .into_iter()
                .map(Some)
                .collect(),
            None => vec![None],
        };
        let flow = flow(&mut table, scenario)?;
        total += u64::from(flow.count) * ends.len() as u64;
        if total > MOST_FLOWS {
            let error = Error::new(format!("{total} flows in all are too many"))
                .remedy(format!("at most {MOST_FLOWS} can be simulated at once"));
            return Err(table.complain("", error));
        }
        table.finish(&format!("a [[flow]] of kind {}", kind_name(&flow.kind)))?;
        let with = |ends| Flow {
            ends,
            ..flow.clone()
        };
        scenario.flows.extend(ends.into_iter().map(with));
    }
    Ok(())
}

/// The `kind` that makes such a flow.
pub(super) fn kind_name(kind: &FlowKind) -> &'static str {
    match kind {
        FlowKind::Tcp(_) => "tcp",
        FlowKind::Cbr { .. } => "cbr",
        FlowKind::Poisson { .. } => "poisson",
        FlowKind::OnOff { .. } => "onoff",
        FlowKind::Web { .. } => "web",
    }
}

fn flow(table: &mut Table, scenario: &Scenario) -> Result<Flow, Error> {
    let kind_word = table.read_or("kind", "tcp", |t| one_of("kind of flow", t, &KINDS))?;
    let default_count = if kind_word == "tcp" { 4 } else { 1 };
    let flows = table.read_or("count", default_count, |t| count(t, 1, MOST_FLOWS))? as u32;
    let direction = table.read_or("direction", "down", |t| {
        one_of("direction", t, &["down", "up"])
    })?;
    let direction = if direction == "up" {
        Direction::Up
    } else {
        Direction::Down
    };
    let hops = hops(table, scenario, direction)?;
    let least = least_rtt(scenario, hops);
    let rtt = table.read_or("rtt", if least == 0 { 20 * MS } else { least }, |t| {
        let rtt = time(t, 1000, LONGEST / 16)?;
        if rtt < least {
            let what = format!("{t} is less than the links' delays there and back");
            return Err(Error::new(what).remedy(format!("write at least {}", format_time(least))));
        }
        Ok(rtt)
    })?;
    let start = table.read_or("start", 0, |t| time(t, 0, LONGEST))?;
    let stop = table.read("stop", |t| {
        let stop = time(t, 0, LONGEST)?;
        if stop <= start {
            let what = format!("{t} is not later than the start at {}", format_time(start));
            return Err(Error::new(what).remedy("write a later time"));
        }
        Ok(stop)
    })?;
    let stagger = table.read_or("stagger", 0, |t| time(t, 0, LONGEST))?;
    Ok(Flow {
        kind: kind(kind_word, table)?,
        count: flows,
        rtt,
        start,
        stop,
        stagger,
        direction,
        hops,
        ends: None,
    })
}

/// Which queues of the path a flow passes: all by default.
fn hops(table: &mut Table, scenario: &Scenario, direction: Direction) -> Result<(u32, u32), Error> {
    let last = if direction == Direction::Up {
        0
    } else {
        scenario.hops.len() as u32
    };
    let Some(entry) = table.take("hops") else {
        return Ok((0, last));
    };
    let pair = match &entry.value {
        Node::List(pair) => match &pair[..] {
            [Node::Text(a), Node::Text(b)] => a.parse::<u32>().ok().zip(b.parse::<u32>().ok()),
            _ => None,
        },
        _ => None,
    };
    pair.filter(|(a, b)| a <= b && *b <= last).ok_or_else(|| {
        let error = Error::new("not the first and the last queue of a path through this scenario")
            .remedy(format!(
                "write hops = [first, last], 0 being [link], the last at most {last}"
            ));
        table.error("hops", entry.line, error)
    })
}

/// The delays of the queues passed, there and back.
fn least_rtt(scenario: &Scenario, hops: (u32, u32)) -> Nanos {
    let links = std::iter::once(&scenario.link).chain(&scenario.hops);
    let passed = links
        .enumerate()
        .filter(|(i, _)| (hops.0 as usize..=hops.1 as usize).contains(i));
    passed
        .map(|(i, link)| {
            let back = scenario.up.as_ref().filter(|_| i == 0).unwrap_or(link);
            link.delay + back.delay
        })
        .sum()
}

fn kind(word: &str, table: &mut Table) -> Result<FlowKind, Error> {
    let ip_size = |t: &str| size(t, 28, MOST_BYTES);
    Ok(match word {
        "cbr" => FlowKind::Cbr {
            rate: table.read_or("rate", 1_000_000, units::parse_rate)?,
            size: table.read_or("size", 1500, ip_size)? as u32,
            ecn: table.read_or("ecn", false, boolean)?,
        },
        "poisson" => {
            let (size, exponential) =
                table.read_or("size", (1500, false), |t| sizes(t, 28, MOST_BYTES))?;
            FlowKind::Poisson {
                rate: table.read_or("rate", 1_000_000, units::parse_rate)?,
                size: size as u32,
                exponential,
                ecn: table.read_or("ecn", false, boolean)?,
            }
        }
        "onoff" => FlowKind::OnOff {
            on: table.read_or("on", 5 * SEC, |t| time(t, 1000, LONGEST))?,
            off: table.read_or("off", 5 * SEC, |t| time(t, 1000, LONGEST))?,
            gap_on: table.read_or("gap_on", MS, |t| time(t, 1, LONGEST / 64))?,
            gap_off: table.read_or("gap_off", 30 * MS, |t| time(t, 1, LONGEST / 64))?,
            size: table.read_or("size", 1500, ip_size)? as u32,
            ecn: table.read_or("ecn", false, boolean)?,
        },
        "web" => {
            let (size, exponential) =
                table.read_or("size", (65_536, true), |t| sizes(t, 1, 1 << 40))?;
            FlowKind::Web {
                tcp: tcp(table, false)?,
                size,
                exponential,
                arrivals: table.read_or("arrivals", 5.0, |t| match units::parse_number(t)? {
                    x if x > 0.0 && x <= 1e6 => Ok(x),
                    _ => Err(Error::new(format!("\"{t}\" is out of range"))
                        .remedy("write transfers per second, above 0 and at most 1000000")),
                })?,
            }
        }
        _ => FlowKind::Tcp(tcp(table, true)?),
    })
}

/// `1000` or `exp:1000`, the latter a mean of exponentially distributed sizes.
fn sizes(text: &str, low: u64, high: u64) -> Result<(u64, bool), Error> {
    match text.strip_prefix("exp:") {
        Some(mean) => size(mean, low, high).map(|s| (s, true)),
        None => size(text, low, high).map(|s| (s, false)),
    }
    .map_err(|e| Error {
        remedy: e.remedy.map(|r| format!("{r}, or exp: and a mean")),
        ..e
    })
}

fn tcp(table: &mut Table, bulk: bool) -> Result<Tcp, Error> {
    let cc_word = table.read_or("cc", "cubic", |t| one_of("congestion control", t, &CCS))?;
    let cc = match cc_word {
        "cubic" => Cc::Cubic {
            rfc9438: table.read_or("rfc9438", false, boolean)?,
        },
        "bic" => Cc::Bic {
            beta: table.read_or("beta", 0.8, |t| match units::parse_number(t)? {
                x if x > 0.0 && x < 1.0 => Ok(x),
                _ => Err(Error::new(format!("\"{t}\" is out of range"))
                    .remedy("write 0.8 or another share between 0 and 1")),
            })?,
        },
        "bbr" => Cc::Bbr,
        "dctcp" => Cc::Dctcp,
        "prague" => Cc::Prague {
            rate_scaling: table.read_or("rtt_scaling", "additive", |t| {
                one_of("rtt_scaling", t, &["additive", "rate"])
            })? == "rate",
        },
        _ => Cc::NewReno,
    };
    let prague = matches!(cc, Cc::Prague { .. });
    let scalable = prague || cc == Cc::Dctcp;
    let ecn = table.read_or("ecn", scalable, boolean)?;
    let ect = table.read_or("ect", u64::from(prague), |t| count(t, 0, 1))?;
    let mss = table.read_or("mss", 1448, |t| count(t, 88, MOST_BYTES))? as u32;
    Ok(Tcp {
        cc,
        bytes: if bulk {
            table.read("bytes", |t| size(t, 1, 1 << 50))?
        } else {
            None
        },
        ecn,
        ect1: ect == 1,
        mss,
        iw: table.read_or("iw", 10, |t| count(t, 1, 10_000))? as u32,
        min_rto: table.read_or("min_rto", 200 * MS, |t| time(t, MS, 120 * SEC))?,
        rto_ns3: table.read_or("rto", "linux", |t| one_of("rto", t, &["linux", "ns3"]))? == "ns3",
        delack: table.read_or("delack", 2, |t| count(t, 1, 255))? as u32,
        delack_timeout: table.read_or("delack_timeout", 40 * MS, |t| time(t, 0, 10 * SEC))?,
        sack: table.read_or("sack", true, boolean)?,
        limited_transmit: table.read_or("limited_transmit", true, boolean)?,
        pacing: table.read_or("pacing", false, boolean)?,
        buffer: table.read_or("buffer", 6 << 20, |t| size(t, mss.into(), 1 << 32))?,
        rate: table.read_or("rate", u64::MAX, |t| match t {
            "unlimited" => Ok(u64::MAX),
            t => units::parse_rate(t),
        })?,
    })
}

/// The flows of a scenario that has none, which lasts for `duration`.
pub(super) fn default_table(duration: Option<&str>) -> Table {
    let mut table = Table::new("flow");
    spread_starts(&mut table, duration);
    table
}

/// Flows that all start at once leave the seeds little to draw: the starts of those that no file has are spread over a second,
/// or over a tenth of their time if that is less.
fn spread_starts(table: &mut Table, duration: Option<&str>) {
    let ends = [table.peek("stop"), duration].into_iter().flatten();
    let shortest = ends.filter_map(|t| units::parse_time(t).ok()).min();
    let stagger = shortest.map_or(SEC, |t| SEC.min(t / 10));
    table.set("stagger", format_time(stagger));
}

/// `cubic:4@rtt=80ms@ecn=1@5s-20s`, `udp:2@rate=2mbit@size=200`: a table as a file would have it, of a scenario that lasts for
/// `duration`.
pub(super) fn shortcut(text: &str, duration: Option<&str>) -> Result<Table, Error> {
    let fail = |e: Error| e.under(&format!("flow `{text}`"));
    let mut parts = text.split('@');
    let head = parts.next().unwrap_or_default();
    let (word, flows) = head.split_once(':').unwrap_or((head, "1"));
    let mut table = Table::new(format!("flow `{text}`"));
    match word {
        "udp" => table.set("kind", "cbr"),
        "cbr" | "poisson" | "onoff" | "web" => table.set("kind", word),
        cc if CCS.contains(&cc) => table.set("cc", cc),
        _ => {
            let known = CCS.into_iter().chain(["udp", "poisson", "onoff", "web"]);
            return Err(Error::unknown("congestion control", word, known).under("flow"));
        }
    }
    table.set("count", flows);
    for part in parts {
        if let Some((key, value)) = part.split_once('=') {
            let key = one_of("option", key, &SHORT_KEYS).map_err(fail)?;
            if table.has(key) {
                return Err(fail(
                    Error::new(format!("`{key}` is given twice")).remedy("give it once"),
                ));
            }
            table.set(key, value);
        } else if let Some((start, stop)) = part.split_once('-') {
            for (key, value) in [("start", start), ("stop", stop)] {
                if !value.is_empty() {
                    table.set(key, value);
                }
            }
        } else {
            return Err(fail(
                Error::new(format!("`@{part}` is neither an option nor a span of time"))
                    .remedy("write CC[:COUNT][@rtt=40ms][@ecn=1][@5s-20s]"),
            ));
        }
    }
    if !table.has("start") && !table.has("stagger") {
        spread_starts(&mut table, duration);
    }
    Ok(table)
}
