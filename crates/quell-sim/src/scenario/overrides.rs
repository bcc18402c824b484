//! Command-line options that override a scenario's keys.

use quell_link::field;
use quell_link::units;
use quell_link::{Error, Queue};
use quell_qdisc::time::{Duration, SEC, US};

use super::built_in;
use super::keys::{self, KINDS, MAX_DURATION, TableKeys};
use super::tree::{self, Node, Table};
use crate::cc::Cc;

/// Options that override a scenario's keys; a rate or a trace also describes a scenario without a
/// file. Values are text as typed, and are parsed like the file's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Queue words of the bottleneck.
    pub queue: Option<String>,
    /// Rate of the bottleneck; `DOWN/UP` sets the rate of each direction.
    pub rate: Option<String>,
    /// Base RTT of all flows.
    pub rtt: Option<String>,
    /// Path of the bottleneck's trace.
    pub trace: Option<String>,
    /// `CC[:COUNT][@rtt=][@ecn=0|1][@start-stop]`, also `udp[:COUNT][@rate=][@size=]` and
    /// `rrul[@rtt=]`; together they replace all flows.
    pub flows: Vec<String>,
    /// Enable ECN for all TCP flows.
    pub ecn: bool,
    /// Simulated time.
    pub duration: Option<String>,
    /// Time at the start that is left out of all statistics.
    pub warmup: Option<String>,
    /// Runs per queue.
    pub seeds: Option<String>,
    /// Base seed.
    pub seed: Option<String>,
}

/// Puts the overrides into a file's tree. Errors name the option.
pub(super) fn apply(o: &Overrides, file: &mut Table) -> Result<(), Error> {
    check(o)?;
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
    bottleneck(o, file)?;
    flows(o, file)
}

/// Checks rates, times and queue words, so that errors in them precede those of the file.
fn check(o: &Overrides) -> Result<(), Error> {
    let checked =
        |key: &str, text: &Option<String>, check: &dyn Fn(&str) -> Result<Duration, Error>| {
            text.as_deref()
                .map_or(Ok(()), |t| check(t).map(drop).map_err(|e| e.key(key)))
        };
    for rate in o.rate.iter().flat_map(|text| text.splitn(2, '/')) {
        units::parse_rate(rate).map_err(|e| e.key("rate"))?;
    }
    checked("rtt", &o.rtt, &|t| field::time(t, US, MAX_DURATION))?;
    checked("duration", &o.duration, &units::parse_time)?;
    checked("warmup", &o.warmup, &units::parse_time)?;
    if let Some(words) = &o.queue {
        Queue::parse(words)?;
    }
    if o.rate.is_some() && o.trace.is_some() {
        return Err(Error::new("a rate and a trace exclude each other")
            .remedy("give one of them")
            .key("rate, trace"));
    }
    Ok(())
}

fn bottleneck(o: &Overrides, file: &mut Table) -> Result<(), Error> {
    let cell = file.has("wifi");
    let (rate, up) = match o.rate.as_deref().map(|text| (text, text.split_once('/'))) {
        Some((_, Some((down, up)))) => (Some(down), Some(up)),
        whole => (whole.map(|(text, _)| text), None),
    };
    let of_link = [("rate", rate), ("trace", o.trace.as_deref())];
    if cell && let Some((key, _)) = of_link.iter().find(|k| k.1.is_some()) {
        return Err(Error::new("a cell's rates are its MCSs")
            .remedy("leave it out, or change mcs under [wifi] in a file of your own")
            .key(*key));
    }
    let given = of_link.into_iter().chain([("queue", o.queue.as_deref())]);
    let given: Vec<(&str, &str)> = given.filter_map(|(k, t)| Some((k, t?))).collect();
    let name = if cell { "wifi" } else { "link" };
    if !given.is_empty()
        && let (Some(table), Some(keys)) = (file.table_mut(name), keys::keys_of(name))
    {
        for (key, text) in given {
            replace(table, keys, key, text);
        }
        if let Some(text) = up
            && let Some(table) = table.table_mut("up")
        {
            replace(table, keys, "rate", text);
        }
    }
    Ok(())
}

/// Sets a key and removes the keys that it excludes.
fn replace(table: &mut Table, keys: &TableKeys, key: &str, text: &str) {
    keys::replaced(keys, key)
        .iter()
        .for_each(|k| table.remove(k));
    table.set(key, text);
}

fn flows(o: &Overrides, file: &mut Table) -> Result<(), Error> {
    let from_file = o.flows.is_empty();
    if !from_file {
        let duration = file.text("duration").map(str::to_owned);
        let duration = duration.as_deref();
        let tables = o.flows.iter().map(|f| match f.split(['@', ':']).next() {
            Some(RRUL) => rrul(f),
            _ => Ok(vec![shortcut(f, duration)?]),
        });
        let tables: Vec<Vec<Table>> = tables.collect::<Result<_, _>>()?;
        file.put("flow", Node::Tables(tables.concat()));
    } else if o.ecn || o.rtt.is_some() {
        put_default_flow(file);
    }
    for flow in file.tables_mut("flow") {
        if let Some(rtt) = &o.rtt
            && (from_file || !flow.has("rtt"))
        {
            flow.set("rtt", rtt);
        }
        let tcp = matches!(flow.text("kind"), None | Some("tcp" | "web"));
        if o.ecn && tcp && (from_file || !flow.has("ecn")) {
            flow.set("ecn", "true");
        }
    }
    Ok(())
}

/// Gives a scenario without flows one table of flows, whose values are the defaults except for
/// `stagger`.
pub(super) fn put_default_flow(file: &mut Table) {
    if file.has("flow") {
        return;
    }
    let mut flow = Table::new("flow");
    spread_starts(&mut flow, file.text("duration"));
    file.put("flow", Node::Tables(vec![flow]));
}

/// Sets `stagger` for flows that are not from a file. If all flows started at once, runs with
/// different seeds would hardly differ. So the flows start at random times within a second, or
/// within a tenth of the duration or of their stop time if that is shorter.
fn spread_starts(flow: &mut Table, duration: Option<&str>) {
    let ends = [flow.text("stop"), duration].into_iter().flatten();
    let shortest = ends.filter_map(|t| units::parse_time(t).ok()).min();
    let stagger = shortest.map_or(SEC, |t| SEC.min(t / 10));
    flow.put("stagger", Node::Text(stagger.to_string()));
}

/// Name of the built-in scenario that is also a value of `--flow`, for any link.
const RRUL: &str = "rrul";

/// Flows of `rrul` or `rrul@rtt=40ms`: the eight transfers and the pings of Flent's RRUL test.
fn rrul(text: &str) -> Result<Vec<Table>, Error> {
    let rtt = match text.strip_prefix(RRUL) {
        Some("") => None,
        Some(rest) if rest.starts_with("@rtt=") && !rest[1..].contains('@') => Some(&rest[5..]),
        _ => {
            return Err(Error::new("takes only the option rtt")
                .remedy("write rrul or rrul@rtt=40ms")
                .under(&format!("flow `{text}`")));
        }
    };
    let toml = built_in::find(RRUL).map_or("", |found| found.toml);
    let file = tree::parse(toml)?;
    let flows = file.tables("flow")?.unwrap_or_default();
    Ok(flows.iter().map(|flow| of_rrul(flow, text, rtt)).collect())
}

/// A flow of the built-in `rrul`; errors name the option, not a file and a line.
fn of_rrul(flow: &Table, text: &str, rtt: Option<&str>) -> Table {
    let mut table = Table::new(format!("flow `{text}`"));
    for (key, value) in flow.iter() {
        table.put(key, value.clone());
    }
    if let Some(rtt) = rtt {
        table.put("rtt", Node::Text(rtt.to_owned()));
    }
    table
}

/// Parses `cubic:4@rtt=80ms@ecn=1@5s-20s` or `udp:2@rate=2mbit@size=200` into a table as in a file;
/// the scenario lasts for `duration`.
fn shortcut(text: &str, duration: Option<&str>) -> Result<Table, Error> {
    let fail = |e: Error| e.under(&format!("flow `{text}`"));
    let mut parts = text.split('@');
    let head = parts.next().unwrap_or_default();
    let (word, count) = head.split_once(':').unwrap_or((head, "1"));
    let mut table = Table::new(format!("flow `{text}`"));
    let put = |table: &mut Table, key: &str, value: &str| {
        table.put(key, Node::Text(value.to_owned()));
    };
    match word {
        "udp" => put(&mut table, "kind", "cbr"),
        kind if kind != "tcp" && KINDS.iter().any(|k| k.name == kind) => {
            put(&mut table, "kind", kind)
        }
        cc if Cc::NAMES.split('|').any(|c| c == cc) => put(&mut table, "cc", cc),
        _ => {
            let kinds = KINDS.iter().map(|k| k.name).filter(|k| *k != "tcp");
            let known = Cc::NAMES.split('|').chain(["udp", RRUL]).chain(kinds);
            return Err(Error::unknown("congestion control", word, known).under("flow"));
        }
    }
    put(&mut table, "count", count);
    for part in parts {
        if let Some((key, value)) = part.split_once('=') {
            let known = short_keys();
            if !known.contains(&key) {
                return Err(fail(Error::unknown("option", key, known)));
            }
            if table.has(key) {
                return Err(fail(
                    Error::new(format!("`{key}` is given twice")).remedy("give it once"),
                ));
            }
            put(&mut table, key, value);
        } else if let Some((start, stop)) = part.split_once('-') {
            for (key, value) in [("start", start), ("stop", stop)] {
                if !value.is_empty() {
                    put(&mut table, key, value);
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

/// Keys that may follow an `@`: every key of a flow with a single value, except those before the
/// first `@`.
fn short_keys() -> Vec<&'static str> {
    let common = keys::keys_of("flow").map_or(&[][..], |t| t.sections);
    let kinds = KINDS.iter().flat_map(|k| keys::of_kind(&(k.make)()));
    let rows = common.iter().copied().chain(kinds).flat_map(|s| s.rows());
    let mut names = Vec::new();
    for row in rows.filter(|r| !r.syntax.starts_with('[')) {
        if !names.contains(&row.name) && !matches!(row.name, "kind" | "count" | "cc") {
            names.push(row.name);
        }
    }
    names
}
