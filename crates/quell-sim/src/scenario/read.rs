//! Reads a tree into a scenario, and checks its tables and the rules between them.

use std::path::Path;

use quell_link::words::class::{self, Class};
use quell_link::{Error, Queue};
use quell_qdisc::num;
use quell_qdisc::time::{Duration, MS};

use super::cell;
use super::key::{Keys, Reader};
use super::keys::{self, BETWEEN, CLASS, FILE, FLOW, LINK, MAX_FLOWS, SIDE, WAY, Way};
use super::model::{Direction, Flow, Link, Scenario};
use super::traffic::FlowKind;
use super::tree::Table;
use super::wifi::Ends;

/// Reads the tree of a file.
pub(super) fn scenario(file: &Table) -> Result<Scenario, Error> {
    keys::known_only(file, "")?;
    let mut scenario = FILE.read_new(file)?;
    if !file.has("name")
        && let Some(name) = default_name(file)
    {
        scenario.name = name;
    }
    match file.table("wifi")? {
        Some(table) => {
            for key in ["link", "class", "hop"] {
                if file.has(key) {
                    let error = Error::new(format!("`{key}` and [wifi] exclude each other"));
                    return Err(file.error(key, error.remedy("keep one of them")));
                }
            }
            let (wifi, link) = cell::read(table)?;
            keys::check_queue(&link, scenario.duration, table)?;
            (scenario.wifi, scenario.link) = (Some(wifi), link);
        }
        None => links(file, &mut scenario)?,
    }
    flows(file, &mut scenario)?;
    Ok(scenario)
}

/// Default name of a scenario without a file: the trace's file name, or the rate as it was written.
fn default_name(file: &Table) -> Option<String> {
    let link = file.table("link").ok()??;
    let what = link.text("trace").or_else(|| link.text("rate"))?;
    let name = Path::new(what).file_name()?;
    Some(name.to_string_lossy().into_owned())
}

fn links(file: &Table, scenario: &mut Scenario) -> Result<(), Error> {
    let table = file.table("link")?.ok_or_else(|| {
        Error::new("there is no link").remedy("write [link] and below it rate = \"15mbit\"")
    })?;
    let duration = scenario.duration;
    let classes = classes(file)?;
    let mut own = table.clone();
    add_classes(&mut own, &classes, Direction::Down)?;
    scenario.link = link(&own, "link", duration)?;
    scenario.up = match table.table("up")? {
        Some(up) => {
            let mut up = up.clone();
            let names = keys::names(&[&LINK]);
            // An up link with classes of its own does not inherit those of the down link.
            let has_classes = classes.iter().any(|(_, _, of)| *of == Direction::Up);
            let base = if has_classes { table } else { &own };
            up.inherit(base, |key| names.contains(&key), |key| LINK.replaces(key));
            add_classes(&mut up, &classes, Direction::Up)?;
            Some(link(&up, "link.up", duration)?)
        }
        None => {
            let flows = file.tables("flow")?.unwrap_or_default();
            let upward = flows.iter().any(|t| {
                t.text("direction") == Some("up")
                    || matches!(t.text("kind"), Some("upload" | "backup"))
            });
            upward.then(|| scenario.link.clone())
        }
    };
    if scenario.up.is_none() || table.table("up")?.is_none() {
        let lost = classes.iter().find(|(_, _, to)| *to == Direction::Up);
        if let Some((table, ..)) = lost {
            let error = Error::new("there is no [link.up] whose queue could have the class");
            let remedy = "write [link.up] and below it a queue, or leave `direction` out";
            return Err(table.error("direction", error.remedy(remedy)));
        }
    }
    for hop in file.tables("hop")?.unwrap_or_default() {
        for key in ["modem_rate", "modem_trace", "modem_buffer"] {
            if hop.has(key) {
                let error = Error::new("a hop has no modem");
                return Err(hop.error(key, error.remedy("write it under [link] or [link.up]")));
            }
        }
        scenario.hops.push(link(hop, "hop", duration)?);
    }
    Ok(())
}

/// Classes of the links' queues, each with its table and its direction.
fn classes(file: &Table) -> Result<Vec<(&Table, Class, Direction)>, Error> {
    let tables = file.tables("class")?.unwrap_or_default().iter();
    let read = |table| {
        keys::known_only(table, "class")?;
        let class = CLASS.read_new(table)?;
        Ok((table, class, SIDE.read_new(table)?.direction))
    };
    tables.map(read).collect()
}

/// Adds the classes of one direction to the words of its queue, unless an override has replaced the
/// file's queue by one without classes.
fn add_classes(
    link: &mut Table,
    classes: &[(&Table, Class, Direction)],
    direction: Direction,
) -> Result<(), Error> {
    let mut words = match link.text("queue") {
        Some(words) => words.to_owned(),
        None => Link::default().queue,
    };
    // Invalid words are reported when the link is read.
    let Ok(queue) = Queue::parse(&words) else {
        return Ok(());
    };
    if link.is_override("queue") && !class::has(&queue) {
        return Ok(());
    }
    for (table, class, _) in classes.iter().filter(|(_, _, of)| *of == direction) {
        let added = class.words_in(&queue).map_err(|e| table.error("", e))?;
        words.push(' ');
        words.push_str(&added);
    }
    link.set_text("queue", &words);
    Ok(())
}

fn link(table: &Table, name: &str, duration: Duration) -> Result<Link, Error> {
    keys::known_only(table, name)?;
    let link = LINK.read_new(table)?;
    keys::check_queue(&link, duration, table)?;
    Ok(link)
}

fn flows(file: &Table, scenario: &mut Scenario) -> Result<(), Error> {
    let mut total = 0;
    for table in file.tables("flow")?.unwrap_or_default() {
        let (flow, ends) = flow(table, scenario)?;
        total += u64::from(flow.count) * ends.len() as u64;
        if total > MAX_FLOWS.into() {
            let error = Error::new(format!("{total} flows in all are too many"))
                .remedy(format!("at most {MAX_FLOWS} can be simulated at once"));
            return Err(table.error("", error));
        }
        let with = |ends| Flow {
            ends,
            ..flow.clone()
        };
        scenario.flows.extend(ends.into_iter().map(with));
    }
    Ok(())
}

/// Reads a table of flows. In a cell it can have several pairs of ends; the scenario has a `Flow`
/// for each pair.
fn flow(table: &Table, scenario: &Scenario) -> Result<(Flow, Vec<Option<Ends>>), Error> {
    let mut flow = FLOW.read_new(table)?;
    let mut known: Vec<&'static dyn Keys> = vec![&FLOW];
    match scenario.wifi {
        Some(_) => {
            keys::not_in_a_cell(table)?;
            known.push(&BETWEEN);
        }
        None => known.push(&WAY),
    }
    known.extend(keys::of_kind(&flow.kind));
    let header = format!("a [[flow]] of kind {}", flow.kind.name());
    table.known_only(&header, &keys::names(&known))?;
    let ends = match &scenario.wifi {
        Some(wifi) => cell::ends(table, wifi)?.into_iter().map(Some).collect(),
        None => {
            let mut way = Way::new(num::count(scenario.hops.len()));
            WAY.read(table, &mut way)?;
            (flow.direction, flow.hops) = (way.direction, way.hops);
            if flow.kind.goes_up() {
                if table.text("direction") == Some("down") {
                    let error = Error::new("an upload has no direction `down`");
                    return Err(table.error(
                        "direction",
                        error.remedy("leave `direction` out, or write kind = \"download\""),
                    ));
                }
                (flow.direction, flow.hops) = (Direction::Up, (0, 0));
            }
            (flow.host, flow.to_host) = (way.host, way.to_host);
            vec![None]
        }
    };
    if matches!(flow.kind, FlowKind::Ping(_)) && scenario.up.is_none() {
        let error = Error::new("a ping needs a way up");
        return Err(table.error("kind", error.remedy("write a [link.up] table")));
    }
    flow.rtt = rtt(table, &flow, scenario)?;
    keys::walk(&mut flow.kind, &mut Reader(table))?;
    Ok((flow, ends))
}

/// The base RTT, which is at least the sum of the links' delays in both directions. That sum is the
/// default; without delays it is 20 ms.
fn rtt(table: &Table, flow: &Flow, scenario: &Scenario) -> Result<Duration, Error> {
    let min_rtt = delays(scenario, flow.hops);
    if !table.has("rtt") {
        return Ok(if min_rtt == Duration::ZERO {
            20 * MS
        } else {
            min_rtt
        });
    }
    if flow.rtt < min_rtt {
        let rtt = table.text("rtt").unwrap_or_default();
        let what = format!("{rtt} is less than the links' delays there and back");
        let remedy = format!("write at least {min_rtt}");
        return Err(table.error("rtt", Error::new(what).remedy(remedy)));
    }
    Ok(flow.rtt)
}

fn delays(scenario: &Scenario, (first, last): (u32, u32)) -> Duration {
    let links = std::iter::once(&scenario.link).chain(&scenario.hops);
    let passed = links
        .enumerate()
        .filter(|(i, _)| (first as usize..=last as usize).contains(i));
    passed
        .map(|(i, link)| {
            let back = scenario.up.as_ref().filter(|_| i == 0).unwrap_or(link);
            link.delay + back.delay
        })
        .sum()
}
