//! From text and overrides to a checked scenario: the file, its links, its path. Flows are in [`super::flows`].

use std::path::Path;
use std::sync::Arc;

use quell_link::units::{self, format_time};
use quell_link::{Error, Queue};
use quell_qdisc::{Nanos, SEC};

use super::tree::{self, Node, Table};
use super::{Link, Overrides, Rate, Scenario, Shaper, Trace, flows, wifi};

/// The simulator's longest time: 2^47 ns, 39 hours.
pub(super) const LONGEST: Nanos = 1 << 47;
/// JSON's readers keep 53 bits.
const SEEDS: u64 = (1 << 53) - 1;
const RATE_KEYS: [&str; 3] = ["rate", "schedule", "trace"];
const LINK_KEYS: [&str; 10] = [
    "rate", "schedule", "trace", "delay", "shaper", "burst", "overhead", "nic", "loss", "queue",
];

pub(super) fn scenario(text: &str, path: &str, overrides: &Overrides) -> Result<Scenario, Error> {
    let in_file = |e: Error| {
        let line = e.line;
        e.at(path, line)
    };
    let mut file = tree::parse(text).map_err(in_file)?;
    apply(overrides, &mut file)?;
    // What names a key but no line comes from an override: naming the file would mislead.
    read(file, path).map_err(|e| match (e.line, &e.key) {
        (None, Some(_)) => e,
        _ => in_file(e),
    })
}

/// The file's stem; without a file, the trace's or the rate as it is written.
fn default_name(file: &mut Table, path: &Path) -> Option<String> {
    if let Some(stem) = path.file_stem() {
        return Some(stem.to_string_lossy().into_owned());
    }
    if !file.has("link") {
        return None;
    }
    let link = file.table_mut("link")?;
    let what = link.peek("trace").or_else(|| link.peek("rate"))?;
    let name = Path::new(what).file_name()?;
    Some(name.to_string_lossy().into_owned())
}

fn read(mut file: Table, path: &str) -> Result<Scenario, Error> {
    let path = Path::new(path);
    let default = default_name(&mut file, path).unwrap_or_else(|| "custom".to_owned());
    let name = file.read_or("name", default, |t| match t.trim() {
        "" => Err(Error::new("empty").remedy("leave it out or give a name")),
        t => Ok(t.to_owned()),
    })?;
    let duration = file.read_or("duration", 60 * SEC, |t| time(t, 1, LONGEST))?;
    // A short run must not be all warm-up just because it is short.
    let short = (5 * SEC).min(duration / 4);
    let warmup = file.read_or("warmup", short, |t| {
        let warmup = time(t, 0, LONGEST)?;
        if warmup >= duration {
            let what = format!(
                "{t} is not shorter than the duration of {}",
                format_time(duration)
            );
            return Err(Error::new(what).remedy("make the duration longer or the warm-up shorter"));
        }
        Ok(warmup)
    })?;
    let seeds = file.read_or("seeds", 5, |t| count(t, 1, 1_000_000))? as u32;
    let seed = file.read_or("seed", 1, |t| count(t, 0, SEEDS))?;

    if let Some(wifi) = file.table("wifi")? {
        return cell(file, wifi, (name, duration, warmup, seeds, seed));
    }
    let mut link_table = file.table("link")?.ok_or_else(|| {
        Error::new("there is no link").remedy("write [link] and below it rate = \"15mbit\"")
    })?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let up_table = link_table.table("up")?;
    let mut hop_tables = file.tables("hop")?.unwrap_or_default();
    let flow_tables = file
        .tables("flow")?
        .unwrap_or_else(|| vec![Table::new("flow")]);
    file.finish("a scenario")?;

    let upward = flow_tables
        .iter()
        .any(|t| t.peek("direction") == Some("up"));
    let up_table = match up_table {
        Some(mut up) => {
            // A rate of its own takes the place of [link]'s, of whatever sort that is; so does a shaper.
            let mut but = Vec::new();
            if RATE_KEYS.iter().any(|k| up.has(k)) {
                but.extend(RATE_KEYS);
            }
            if up.has("shaper") {
                but.push("burst");
            }
            up.inherit(&link_table, &but);
            Some(up)
        }
        None => upward.then(|| link_table.clone()),
    };
    let up =
        up_table.map(|mut t| link(&mut t, dir).and_then(|l| t.finish("[link.up]").map(|()| l)));
    let bottleneck = link(&mut link_table, dir)?;
    link_table.finish("[link]")?;
    let mut hops = Vec::with_capacity(hop_tables.len());
    for mut table in hop_tables.drain(..) {
        hops.push(link(&mut table, dir)?);
        table.finish("[[hop]]")?;
    }
    let mut scenario = Scenario {
        name,
        duration,
        warmup,
        seeds,
        seed,
        link: bottleneck,
        up: up.transpose()?,
        hops,
        wifi: None,
        flows: Vec::new(),
    };
    flows::read(flow_tables, &mut scenario)?;
    Ok(scenario)
}

/// A scenario whose bottleneck is an 802.11n cell.
fn cell(
    mut file: Table,
    mut table: Table,
    (name, duration, warmup, seeds, seed): (String, Nanos, Nanos, u32, u64),
) -> Result<Scenario, Error> {
    for key in ["link", "hop"] {
        if file.has(key) {
            let error = Error::new(format!("`{key}` and [wifi] exclude each other"));
            return Err(file.complain(key, error.remedy("keep one of them")));
        }
    }
    let flow_tables = file
        .tables("flow")?
        .unwrap_or_else(|| vec![Table::new("flow")]);
    file.finish("a scenario")?;
    let wifi = wifi::read(&mut table)?;
    // The queue that a flow's table names first is the bottleneck of the record.
    let rate = wifi.offered(0, 1);
    let mean_bps = rate.mean_bps(LONGEST);
    let link = Link {
        rate,
        delay: 0,
        shaper: Shaper::Line,
        overhead: 0,
        nic: 0,
        loss: 0.0,
        queue: queue_words(&mut table, mean_bps)?,
    };
    table.finish("[wifi]")?;
    let mut scenario = Scenario {
        name,
        duration,
        warmup,
        seeds,
        seed,
        link,
        up: None,
        hops: Vec::new(),
        wifi: Some(wifi),
        flows: Vec::new(),
    };
    flows::read(flow_tables, &mut scenario)?;
    Ok(scenario)
}

/// Puts the overrides into the tree, each checked under its own name.
fn apply(overrides: &Overrides, file: &mut Table) -> Result<(), Error> {
    let o = overrides;
    let checked = |key: &str, text: &Option<String>, check: &dyn Fn(&str) -> Result<(), Error>| {
        text.as_deref()
            .map_or(Ok(()), |t| check(t).map_err(|e| e.key(key)))
    };
    checked("rate", &o.rate, &|t| units::parse_rate(t).map(drop))?;
    checked("rtt", &o.rtt, &|t| time(t, 1000, LONGEST).map(drop))?;
    for (key, text) in [("duration", &o.duration), ("warmup", &o.warmup)] {
        checked(key, text, &|t| units::parse_time(t).map(drop))?;
    }
    if let Some(words) = &o.queue {
        Queue::parse(words)?;
    }
    if o.rate.is_some() && o.trace.is_some() {
        return Err(Error::new("a rate and a trace exclude each other")
            .remedy("give one of them")
            .key("rate, trace"));
    }
    for (key, text) in [
        ("duration", &o.duration),
        ("warmup", &o.warmup),
        ("seeds", &o.seeds),
        ("seed", &o.seed),
    ] {
        if let Some(text) = text {
            file.set(key, text);
        }
    }
    if file.has("wifi") {
        if let Some(key) = [("rate", &o.rate), ("trace", &o.trace)]
            .iter()
            .find(|k| k.1.is_some())
        {
            return Err(Error::new("a cell's rates are its MCSs")
                .remedy("leave it out, or change mcs under [wifi] in a file of your own")
                .key(key.0));
        }
        if let (Some(queue), Some(wifi)) = (&o.queue, file.table_mut("wifi")) {
            wifi.set("queue", queue);
        }
    } else if (o.rate.is_some() || o.trace.is_some() || o.queue.is_some())
        && let Some(link) = file.table_mut("link")
    {
        for (key, text) in [("rate", &o.rate), ("trace", &o.trace), ("queue", &o.queue)] {
            let Some(text) = text else { continue };
            if RATE_KEYS.contains(&key) {
                RATE_KEYS.iter().for_each(|k| link.remove(k));
            }
            link.set(key, text);
        }
    }
    let duration = file.peek("duration").map(str::to_owned);
    let duration = duration.as_deref();
    if !o.flows.is_empty() {
        let tables = o.flows.iter().map(|f| flows::shortcut(f, duration));
        file.put("flow", Node::Tables(tables.collect::<Result<_, _>>()?));
    } else if !file.has("flow") {
        file.put("flow", Node::Tables(vec![flows::default_table(duration)]));
    }
    let from_file = o.flows.is_empty();
    for flow in file.tables_mut("flow") {
        if let Some(rtt) = &o.rtt
            && (from_file || !flow.has("rtt"))
        {
            flow.set("rtt", rtt);
        }
        let tcp = matches!(flow.peek("kind"), None | Some("tcp" | "web"));
        if o.ecn && tcp && (from_file || !flow.has("ecn")) {
            flow.set("ecn", "true");
        }
    }
    Ok(())
}

/// One queue and the link behind it.
fn link(table: &mut Table, dir: &Path) -> Result<Link, Error> {
    let given: Vec<&str> = RATE_KEYS.into_iter().filter(|k| table.has(k)).collect();
    match given[..] {
        [] => {
            // A misspelt `rate` is the likeliest reason.
            table.known_only("[link]", &LINK_KEYS)?;
            let error = Error::new("it has no rate")
                .remedy("write rate = \"15mbit\", or a schedule, or the path of a trace");
            return Err(table.complain("", error));
        }
        [_] => {}
        [one, other, ..] => {
            let error = Error::new(format!("`{one}` and `{other}` exclude each other"));
            return Err(table.complain(other, error.remedy("keep one of them")));
        }
    }
    let rate = rate(table, dir)?;
    let mean_bps = rate.mean_bps(LONGEST);
    let overhead = if matches!(rate, Rate::Trace(_)) {
        4
    } else {
        14
    };
    let bucket = table.peek("shaper") == Some("htb");
    if bucket && matches!(rate, Rate::Trace(_)) {
        let error = Error::new("a token bucket has a rate, and a trace has none");
        let remedy = "write shaper = \"line\", or a rate or a schedule in place of the trace";
        return Err(table.complain("shaper", error.remedy(remedy)));
    }
    if bucket && table.peek("nic").is_some_and(|n| n != "0") {
        let error = Error::new("the device below a token bucket is never busy");
        let remedy = "write nic = 0, or shaper = \"line\"";
        return Err(table.complain("nic", error.remedy(remedy)));
    }
    let shaper = table.read_or("shaper", "line", |t| one_of("shaper", t, &["line", "htb"]))?;
    if shaper == "line" && table.has("burst") {
        let error = Error::new("only a token bucket has a burst");
        let remedy = "write shaper = \"htb\", or leave burst out";
        return Err(table.complain("burst", error.remedy(remedy)));
    }
    let burst = table.read_or("burst", 1600, |t| size(t, 1, 1 << 30))? as u32;
    let shaper = match shaper {
        "htb" => Shaper::Htb { burst },
        _ => Shaper::Line,
    };
    Ok(Link {
        rate,
        delay: table.read_or("delay", 0, |t| time(t, 0, LONGEST / 16))?,
        shaper,
        overhead: table.read_or("overhead", overhead, |t| count(t, 0, 1000))? as u32,
        nic: table.read_or("nic", 0, |t| count(t, 0, 1_000_000))? as u32,
        loss: table.read_or("loss", 0.0, units::parse_probability)?,
        queue: queue_words(table, mean_bps)?,
    })
}

fn queue_words(table: &mut Table, mean_bps: u64) -> Result<String, Error> {
    table.read_or("queue", "fq_codel".to_owned(), |t| {
        Queue::parse(t)?.check(mean_bps)?;
        Ok(t.split_whitespace().collect::<Vec<_>>().join(" "))
    })
}

fn rate(table: &mut Table, dir: &Path) -> Result<Rate, Error> {
    // A path that was typed is relative to where it was typed, one in a file to the file.
    let dir = if table.is_override("trace") {
        Path::new("")
    } else {
        dir
    };
    let constant = table.read("rate", rate_bps)?;
    let trace = table.read("trace", |t| match t.strip_prefix("builtin:") {
        Some(name) => {
            let known = ["lte", "lte-up"];
            let trace = Trace::built_in(name)
                .ok_or_else(|| Error::unknown("built-in trace", name, known))?;
            Ok(Trace {
                name: t.to_owned(),
                ..trace
            })
        }
        None if t.is_empty() => Err(Error::new("no trace is named")
            .remedy("write the path of a trace, or leave the key out")),
        None => Trace::read(&dir.join(t)),
    })?;
    if let Some(trace) = trace {
        return Ok(Rate::Trace(Arc::new(trace)));
    }
    let Some(entry) = table.take("schedule") else {
        return Ok(Rate::Constant(constant.unwrap_or(1)));
    };
    let steps = schedule(&entry.value).map_err(|e| table.error("schedule", entry.line, e))?;
    Ok(Rate::Schedule(steps.into()))
}

fn rate_bps(text: &str) -> Result<u64, Error> {
    let rate = units::parse_rate(text)?;
    if rate > 10_000_000_000_000 {
        return Err(Error::new(format!("\"{text}\" is faster than any link"))
            .remedy("write at most 10000gbit"));
    }
    Ok(rate)
}

fn schedule(value: &Node) -> Result<Vec<(Nanos, u64)>, Error> {
    let shape = || {
        Error::new("not a list of times and rates")
            .remedy("write schedule = [[\"0s\", \"6.5mbit\"], [\"25s\", \"13mbit\"]]")
    };
    let Node::List(items) = value else {
        return Err(shape());
    };
    let mut steps: Vec<(Nanos, u64)> = Vec::with_capacity(items.len());
    for item in items {
        let Node::List(pair) = item else {
            return Err(shape());
        };
        let [Node::Text(from), Node::Text(rate)] = &pair[..] else {
            return Err(shape());
        };
        let (from, rate) = (time(from, 0, LONGEST)?, rate_bps(rate)?);
        match steps.last() {
            None if from > 0 => {
                return Err(
                    Error::new("the first step is not at 0s").remedy("begin with [\"0s\", RATE]")
                );
            }
            Some((last, _)) if from <= *last => {
                let what = format!("{} comes after {}", format_time(from), format_time(*last));
                return Err(Error::new(what).remedy("write the steps in ascending order"));
            }
            _ => steps.push((from, rate)),
        }
    }
    if steps.is_empty() {
        return Err(shape());
    }
    Ok(steps)
}

/// A time between two others.
pub(super) fn time(text: &str, low: Nanos, high: Nanos) -> Result<Nanos, Error> {
    let time = units::parse_time(text)?;
    ranged(time, low, high, text, format_time)
}

/// A whole number between two others.
pub(super) fn count(text: &str, low: u64, high: u64) -> Result<u64, Error> {
    let n = units::parse_count(text)
        .map_err(|e| e.remedy(format!("write a whole number from {low} to {high}")))?;
    ranged(n, low, high, text, |n| n.to_string())
}

/// Bytes between two numbers.
pub(super) fn size(text: &str, low: u64, high: u64) -> Result<u64, Error> {
    let n = units::parse_size(text)?;
    ranged(n, low, high, text, units::format_size)
}

fn ranged(n: u64, low: u64, high: u64, text: &str, show: fn(u64) -> String) -> Result<u64, Error> {
    if (low..=high).contains(&n) {
        return Ok(n);
    }
    let way = if n < low { "small" } else { "large" };
    Err(
        Error::new(format!("\"{text}\" is too {way}")).remedy(format!(
            "write {} to {}",
            show(low),
            show(high)
        )),
    )
}

/// One word out of a list.
pub(super) fn one_of(
    sort: &str,
    text: &str,
    known: &[&'static str],
) -> Result<&'static str, Error> {
    let found = known.iter().find(|k| **k == text);
    found
        .copied()
        .ok_or_else(|| Error::unknown(sort, text, known.iter().copied()))
}

/// true or false, also 1 or 0.
pub(super) fn boolean(text: &str) -> Result<bool, Error> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(Error::new(format!("\"{text}\" is neither true nor false"))
            .remedy("write true or false")),
    }
}
