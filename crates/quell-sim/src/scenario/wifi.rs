//! The `[wifi]` table: a cell of nodes on one 802.11n channel in place of `[link]`.

use std::fmt::Write;
use std::sync::Arc;

use quell_link::units::{self, format_time};
use quell_link::{Error, Queue};
use quell_qdisc::{MS, Nanos};

use super::parse::{LONGEST, boolean, count, one_of, time};
use super::tree::{Node as Value, Table};
use crate::wifi::phy::{LARGEST_AMPDU, Phy};

/// Nodes that a cell may have.
const MOST_NODES: usize = 100;
/// Keys that a node may have of its own.
const OWN: [&str; 5] = ["mcs", "schedule", "streams", "per", "snr"];

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Wifi {
    /// Who is in it; the first is the access point unless it is a mesh.
    pub nodes: Vec<Node>,
    /// No access point: nodes send to each other, or along routes.
    pub mesh: bool,
    /// Ways through a mesh, node by node.
    pub routes: Vec<Vec<u16>>,
    /// 40 MHz and the short guard interval, or not.
    pub phy: Phy,
    /// What goes into a PPDU.
    pub aggregation: Aggregation,
    /// Rules of access.
    pub access: Access,
    /// Whom the access point serves next.
    pub serve: Serve,
    /// Bursts of noise.
    pub noise: Option<Noise>,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// How flows call it.
    pub name: String,
    /// At which rate frames are sent: to and from a station, or by a node of a mesh.
    pub rate: Rate,
    /// How many of them are lost.
    pub loss: Loss,
    /// Words of its queues; `None`: the scenario's.
    pub queue: Option<String>,
    /// The nodes that it hears; `None`: all.
    pub hears: Option<Vec<u16>>,
}

/// How the rate is chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Rate {
    /// One MCS, 0 to 31.
    Fixed(u8),
    /// (from, MCS), ascending, the first at 0.
    Schedule(Arc<[(Nanos, u8)]>),
    /// As mac80211's Minstrel, among the rates of so many streams.
    Minstrel {
        /// 1 to 4.
        streams: u8,
    },
}

/// How often the air loses an MPDU.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// With this probability, by modulation and coding (MCS modulo 8).
    Fixed([f64; 8]),
    /// By the signal-to-noise ratio, dB.
    Snr(f64),
}

/// Gilbert and Elliott's bursts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Probability that a noisy moment destroys an MPDU or an acknowledgement.
    pub loss: f64,
    /// Mean length of quiet times.
    pub quiet: Nanos,
    /// Mean length of noisy times.
    pub noisy: Nanos,
}

/// What goes into one PPDU.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregation {
    /// MPDUs in an A-MPDU; 1: no aggregation.
    pub frames: u32,
    /// Bytes of an A-MPDU.
    pub bytes: u32,
    /// Bytes of an A-MSDU; 0: none.
    pub amsdu: u32,
    /// PPDUs that the hardware holds, that on the air included.
    pub hardware: u32,
    /// Frames join a PPDU until it is sent.
    pub late: bool,
}

/// Rules of channel access.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// Transmissions of one MPDU; `None`: without limit.
    pub retries: Option<u32>,
    /// Nodes that could not read a frame wait for EIFS, and senders for the ACK's timeout. Without: as in Bianchi's model.
    pub eifs: bool,
    /// When the backoff counts.
    pub countdown: Countdown,
    /// RTS and CTS go before data of at least so many bytes.
    pub rts: Option<u32>,
    /// In place of each category's own.
    pub aifsn: Option<u32>,
    /// In place of each category's own.
    pub cwmin: Option<u32>,
    /// In place of each category's own.
    pub cwmax: Option<u32>,
}

/// When the backoff counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Countdown {
    /// At the beginning of each slot.
    Edca,
    /// At the end of each idle slot.
    Dcf,
}

/// Which neighbour a node serves next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serve {
    /// One PPDU each.
    RoundRobin,
    /// Equal time on the air, as mac80211.
    Airtime,
}

/// Access categories, the more urgent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// `vo`
    Voice,
    /// `vi`
    Video,
    /// `be`
    #[default]
    BestEffort,
}

impl Category {
    /// As scenarios write it.
    pub fn word(self) -> &'static str {
        match self {
            Category::Voice => "vo",
            Category::Video => "vi",
            Category::BestEffort => "be",
        }
    }
}

/// Where a flow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The sender's node.
    pub from: u16,
    /// The receiver's.
    pub to: u16,
    /// The category of its data and ACKs.
    pub category: Category,
}

impl Ends {
    /// The other way.
    pub fn turned(&self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            ..*self
        }
    }
}

impl Wifi {
    /// Nodes that hear each other: neither leaves the other out.
    pub fn hear(&self, a: u16, b: u16) -> bool {
        let one = |a: u16, b: u16| {
            let hears = &self.nodes[usize::from(a)].hears;
            hears.as_ref().is_none_or(|list| list.contains(&b))
        };
        a != b && one(a, b) && one(b, a)
    }

    /// Whose rate and losses count between two neighbours: the station's, in a mesh the sender's.
    pub fn station(&self, from: u16, to: u16) -> &Node {
        let which = if !self.mesh && from == 0 { to } else { from };
        &self.nodes[usize::from(which)]
    }

    /// The nodes that a packet passes, both ends included.
    pub fn way(&self, from: u16, to: u16) -> Result<Vec<u16>, Error> {
        let (a, b) = (self.name(from), self.name(to));
        for route in &self.routes {
            let at = |n| route.iter().position(|x| *x == n);
            match at(from).zip(at(to)) {
                Some((i, j)) if i < j => return Ok(route[i..=j].to_vec()),
                Some((i, j)) => return Ok(route[j..=i].iter().rev().copied().collect()),
                None => {}
            }
        }
        if !self.mesh && from != 0 && to != 0 {
            return Ok(vec![from, 0, to]);
        }
        if self.hear(from, to) {
            return Ok(vec![from, to]);
        }
        Err(Error::new(format!(
            "there is no route from {a} to {b}, which do not hear each other"
        ))
        .remedy(format!(
            "write routes = [[\"{a}\", ..., \"{b}\"]] under [wifi], with the nodes between them"
        )))
    }

    fn name(&self, node: u16) -> &str {
        &self.nodes[usize::from(node)].name
    }

    fn find(&self, name: &str) -> Result<u16, Error> {
        let at = self.nodes.iter().position(|n| n.name == name);
        at.map(|i| i as u16)
            .ok_or_else(|| Error::unknown("node", name, self.nodes.iter().map(|n| n.name.as_str())))
    }

    /// The rate of the first frames between two neighbours and how it changes, bit/s.
    pub fn offered(&self, from: u16, to: u16) -> super::Rate {
        match &self.station(from, to).rate {
            Rate::Fixed(mcs) => super::Rate::Constant(self.phy.rate_bps(*mcs)),
            Rate::Minstrel { streams } => super::Rate::Constant(self.phy.rate_bps(8 * streams - 1)),
            Rate::Schedule(steps) => {
                let steps = steps.iter().map(|(t, mcs)| (*t, self.phy.rate_bps(*mcs)));
                super::Rate::Schedule(steps.collect())
            }
        }
    }
}

/// Reads the table; its queue words, which are left to the caller, stay in it.
pub(super) fn read(table: &mut Table) -> Result<Wifi, Error> {
    let mode = table.read_or("mode", "ap", |t| one_of("mode", t, &["ap", "mesh"]))?;
    let mut tables = nodes(table, mode == "mesh")?;
    for node in &mut tables {
        let mut but = Vec::new();
        // A rate or a loss of its own takes the place of the cell's, of whatever sort that is.
        for group in [&OWN[..3], &OWN[3..]] {
            if group.iter().any(|k| node.has(k)) {
                but.extend(group);
            }
        }
        for key in OWN {
            if !node.has(key) && !but.contains(&key) {
                node.inherit_key(table, key);
            }
        }
    }
    OWN.iter().for_each(|k| drop(table.take(k)));
    let mut wifi = Wifi {
        nodes: Vec::new(),
        mesh: mode == "mesh",
        routes: Vec::new(),
        phy: Phy {
            wide: table.read_or("width", 20, |t| match t {
                "20" => Ok(20),
                "40" => Ok(40),
                _ => Err(Error::new(format!("\"{t}\" is not a width of 802.11n"))
                    .remedy("write 20 or 40 (MHz)")),
            })? == 40,
            short_gi: table.read_or("guard", "long", |t| {
                one_of("guard interval", t, &["long", "short"])
            })? == "short",
        },
        aggregation: aggregation(table)?,
        access: access(table)?,
        serve: match table.read_or("serve", "airtime", |t| {
            one_of("order of service", t, &["airtime", "round_robin"])
        })? {
            "round_robin" => Serve::RoundRobin,
            _ => Serve::Airtime,
        },
        noise: noise(table)?,
    };
    let mut lists = Vec::new();
    for mut node in tables {
        let hears = node.take("hears");
        let read = read_node(&mut node)?;
        if wifi.nodes.iter().any(|n| n.name == read.name) {
            let error = Error::new(format!("two nodes are called {}", read.name));
            return Err(node.complain("name", error.remedy("give each a name of its own")));
        }
        lists.push((node.path().to_owned(), hears));
        node.finish("a [[wifi.node]]")?;
        wifi.nodes.push(read);
    }
    for (n, (path, hears)) in lists.into_iter().enumerate() {
        let Some(hears) = hears else { continue };
        let fail = |e: Error| Table::new(path.as_str()).error("hears", hears.line, e);
        let heard = names(&wifi, &hears.value).map_err(fail)?;
        if heard.contains(&(n as u16)) {
            let error = Error::new(format!("{} is in its own list", wifi.name(n as u16)));
            return Err(fail(error.remedy("list the other nodes that it hears")));
        }
        wifi.nodes[n].hears = Some(heard);
    }
    if !wifi.mesh
        && let Some(deaf) = (1..wifi.nodes.len() as u16).find(|n| !wifi.hear(0, *n))
    {
        let error = Error::new(format!(
            "{} and the access point {} do not hear each other",
            wifi.name(deaf),
            wifi.name(0)
        ));
        return Err(table.complain(
            "node",
            error.remedy("put each into the other's list, or write mode = \"mesh\""),
        ));
    }
    routes(table, &mut wifi)?;
    Ok(wifi)
}

/// The tables of the nodes, those that `stations` stands for among them.
fn nodes(table: &mut Table, mesh: bool) -> Result<Vec<Table>, Error> {
    let line = table.line_of("node");
    let stations = table.read("stations", |t| count(t, 1, MOST_NODES as u64 - 1))?;
    let tables = table.tables("node")?;
    let few = |table: &Table, what: &str| {
        let error = Error::new(what.to_owned());
        table.error(
            "node",
            line,
            error.remedy("write stations = 1, or [[wifi.node]] with a name for each node"),
        )
    };
    let tables = match (stations, tables) {
        (Some(_), Some(_)) => {
            let error = Error::new("`stations` and [[wifi.node]] exclude each other");
            return Err(table.error("node", line, error.remedy("keep one of them")));
        }
        (None, None) => return Err(few(table, "there are no stations")),
        (None, Some(tables)) => tables,
        (Some(n), None) => {
            let names = (u64::from(mesh)..=n).map(|i| match i {
                0 => "ap".to_owned(),
                i => format!("sta{i}"),
            });
            let table = |name: String| {
                let mut table = Table::new("wifi");
                table.set("name", name);
                table
            };
            names.map(table).collect()
        }
    };
    match tables.len() {
        0 | 1 => Err(few(table, "there are no stations")),
        n if n > MOST_NODES => {
            let error = Error::new(format!("{n} nodes are too many"));
            Err(table.error(
                "node",
                line,
                error.remedy(format!("at most {MOST_NODES} share a channel")),
            ))
        }
        _ => Ok(tables),
    }
}

fn read_node(table: &mut Table) -> Result<Node, Error> {
    let name = table.read("name", |t| match t {
        "" | "*" => {
            Err(Error::new(format!("\"{t}\" is not a name")).remedy("write letters and digits"))
        }
        t => Ok(t.to_owned()),
    })?;
    let Some(name) = name else {
        let error = Error::new("a node without a name").remedy("write name = \"laptop\"");
        return Err(table.complain("", error));
    };
    Ok(Node {
        name,
        rate: rate(table)?,
        loss: loss(table)?,
        queue: table.read("queue", |t| {
            Queue::parse(t)?;
            Ok(t.split_whitespace().collect::<Vec<_>>().join(" "))
        })?,
        hears: None,
    })
}

fn mcs(text: &str) -> Result<u8, Error> {
    let remedy = "write 0 to 31: 0 to 7 for one spatial stream, 8 to 15 for two, and so on";
    match units::parse_count(text).map_err(|e| e.remedy(remedy))? {
        n if n <= 31 => Ok(n as u8),
        n => Err(Error::new(format!("there is no MCS {n} in 802.11n")).remedy(remedy)),
    }
}

fn rate(table: &mut Table) -> Result<Rate, Error> {
    let line = table.line_of("streams");
    let streams = table.read("streams", |t| count(t, 1, 4))?;
    let fixed = table.read("mcs", |t| match t {
        "minstrel" => Ok(None),
        t => mcs(t).map(Some),
    })?;
    if let Some(entry) = table.take("schedule") {
        if fixed.is_some() {
            let error = Error::new("`mcs` and `schedule` exclude each other");
            return Err(table.error("schedule", entry.line, error.remedy("keep one of them")));
        }
        let steps = steps(&entry.value).map_err(|e| table.error("schedule", entry.line, e))?;
        return Ok(Rate::Schedule(steps.into()));
    }
    match (fixed, streams) {
        (Some(None), streams) => Ok(Rate::Minstrel {
            streams: streams.unwrap_or(1) as u8,
        }),
        (_, Some(_)) => {
            let error = Error::new("`streams` is for mcs = \"minstrel\" alone");
            let remedy = "leave it out: an MCS above 7 has its streams in it";
            Err(table.error("streams", line, error.remedy(remedy)))
        }
        (fixed, None) => Ok(Rate::Fixed(fixed.flatten().unwrap_or(7))),
    }
}

fn steps(value: &Value) -> Result<Vec<(Nanos, u8)>, Error> {
    let shape = || {
        Error::new("not a list of times and rates")
            .remedy("write schedule = [[\"0s\", 0], [\"25s\", 1]]")
    };
    let Value::List(items) = value else {
        return Err(shape());
    };
    let mut steps: Vec<(Nanos, u8)> = Vec::with_capacity(items.len());
    for item in items {
        let Value::List(pair) = item else {
            return Err(shape());
        };
        let [Value::Text(from), Value::Text(rate)] = &pair[..] else {
            return Err(shape());
        };
        let from = time(from, 0, LONGEST)?;
        if steps.last().map_or(from > 0, |last| from <= last.0) {
            return Err(Error::new(format!("{} is out of order", format_time(from)))
                .remedy("begin with \"0s\" and write the steps in ascending order"));
        }
        steps.push((from, mcs(rate)?));
    }
    if steps.is_empty() {
        return Err(shape());
    }
    Ok(steps)
}

fn loss(table: &mut Table) -> Result<Loss, Error> {
    let snr = table.read("snr", |t| match units::parse_number(t)? {
        x if (-20.0..=100.0).contains(&x) => Ok(x),
        _ => {
            Err(Error::new(format!("\"{t}\" is out of range")).remedy("write decibels, -20 to 100"))
        }
    })?;
    let Some(entry) = table.take("per") else {
        return Ok(snr.map_or(Loss::Fixed([0.0; 8]), Loss::Snr));
    };
    let fail = |e: Error| table.error("per", entry.line, e);
    if snr.is_some() {
        return Err(fail(
            Error::new("`per` and `snr` exclude each other").remedy("keep one of them"),
        ));
    }
    let shape = || {
        Error::new("not one probability, or eight")
            .remedy("write per = 0.1, or a list for MCS 0 to 7")
    };
    let values = match &entry.value {
        Value::Text(t) => vec![units::parse_probability(t).map_err(fail)?; 8],
        Value::List(list) => list
            .iter()
            .map(|v| match v {
                Value::Text(t) => units::parse_probability(t),
                _ => Err(shape()),
            })
            .collect::<Result<_, _>>()
            .map_err(fail)?,
        _ => return Err(fail(shape())),
    };
    match <[f64; 8]>::try_from(values) {
        Ok(per) => Ok(Loss::Fixed(per)),
        Err(_) => Err(fail(shape())),
    }
}

fn aggregation(table: &mut Table) -> Result<Aggregation, Error> {
    let on = table.read_or("ampdu", true, boolean)?;
    let frames = table.read_or("ampdu_frames", 64, |t| count(t, 1, 64))? as u32;
    if on && table.peek("amsdu") == Some("7935") {
        let error = Error::new("an A-MPDU has room for A-MSDUs of 3839 bytes, not of 7935");
        let remedy = "write amsdu = 3839, or ampdu = false";
        return Err(table.complain("amsdu", error.remedy(remedy)));
    }
    Ok(Aggregation {
        frames: if on { frames } else { 1 },
        bytes: table.read_or("ampdu_bytes", LARGEST_AMPDU, |t| {
            count(t, 1, LARGEST_AMPDU.into()).map(|n| n as u32)
        })?,
        amsdu: table.read_or("amsdu", 0, |t| match units::parse_count(t)? {
            n @ (0 | 3839 | 7935) => Ok(n as u32),
            _ => Err(Error::new(format!("\"{t}\" is not a size of A-MSDUs"))
                .remedy("write 3839 or 7935 (bytes), or 0 for none")),
        })?,
        hardware: table.read_or("hardware", 2, |t| count(t, 1, 64))? as u32,
        late: table.read_or("late", false, boolean)?,
    })
}

fn access(table: &mut Table) -> Result<Access, Error> {
    Ok(Access {
        retries: table.read_or("retries", Some(7), |t| match t {
            "unlimited" => Ok(None),
            t => count(t, 1, 255).map(|n| Some(n as u32)),
        })?,
        eifs: table.read_or("eifs", true, boolean)?,
        countdown: match table.read_or("countdown", "edca", |t| {
            one_of("countdown", t, &["edca", "dcf"])
        })? {
            "dcf" => Countdown::Dcf,
            _ => Countdown::Edca,
        },
        rts: table
            .read("rts", |t| match t {
                "true" => Ok(Some(0)),
                "false" => Ok(None),
                t => count(t, 0, LARGEST_AMPDU.into()).map(|n| Some(n as u32)),
            })?
            .flatten(),
        aifsn: table.read("aifsn", |t| count(t, 1, 15).map(|n| n as u32))?,
        cwmin: table.read("cwmin", |t| count(t, 0, 32_767).map(|n| n as u32))?,
        cwmax: table.read("cwmax", |t| count(t, 0, 32_767).map(|n| n as u32))?,
    })
}

fn noise(table: &mut Table) -> Result<Option<Noise>, Error> {
    let Some(mut noise) = table.table("noise")? else {
        return Ok(None);
    };
    let read = Noise {
        loss: noise.read_or("loss", 1.0, units::parse_probability)?,
        quiet: noise.read_or("quiet", 100 * MS, |t| time(t, 1000, LONGEST / 64))?,
        noisy: noise.read_or("noisy", 10 * MS, |t| time(t, 1000, LONGEST / 64))?,
    };
    noise.finish("[wifi.noise]")?;
    Ok(Some(read))
}

/// A list of names.
fn names(wifi: &Wifi, value: &Value) -> Result<Vec<u16>, Error> {
    let shape =
        || Error::new("not a list of nodes").remedy("write a list of names, such as [\"ap\"]");
    let Value::List(items) = value else {
        return Err(shape());
    };
    items
        .iter()
        .map(|item| match item {
            Value::Text(name) => wifi.find(name),
            _ => Err(shape()),
        })
        .collect()
}

fn routes(table: &mut Table, wifi: &mut Wifi) -> Result<(), Error> {
    let Some(entry) = table.take("routes") else {
        return Ok(());
    };
    let fail = |e: Error| table.error("routes", entry.line, e);
    let shape =
        || Error::new("not a list of routes").remedy("write routes = [[\"a\", \"b\", \"c\"]]");
    if !wifi.mesh {
        return Err(fail(
            Error::new("only a mesh has routes").remedy("write mode = \"mesh\", or leave them out"),
        ));
    }
    let Value::List(routes) = &entry.value else {
        return Err(fail(shape()));
    };
    for route in routes {
        let nodes = names(wifi, route).map_err(fail)?;
        let mut seen = nodes.clone();
        seen.sort_unstable();
        seen.dedup();
        if nodes.len() < 2 || seen.len() < nodes.len() {
            return Err(fail(
                Error::new("a route has at least two nodes, each once")
                    .remedy("write routes = [[\"a\", \"b\", \"c\"]]"),
            ));
        }
        if let Some(pair) = nodes.windows(2).find(|p| !wifi.hear(p[0], p[1])) {
            let what = format!(
                "{} and {} do not hear each other",
                wifi.name(pair[0]),
                wifi.name(pair[1])
            );
            return Err(fail(
                Error::new(what).remedy("lead the route over nodes that do"),
            ));
        }
        wifi.routes.push(nodes);
    }
    Ok(())
}

/// Where the flows of a table go: `*` stands for every other node, so that one table may be several.
pub(super) fn ends(table: &mut Table, wifi: &Wifi) -> Result<Vec<Ends>, Error> {
    for key in ["direction", "hops"] {
        if table.has(key) {
            let error = Error::new(format!("`{key}` is not for a cell"));
            return Err(table.complain(
                key,
                error.remedy("write from = and to = with names of nodes"),
            ));
        }
    }
    let line = table.line_of("to");
    let all: Vec<u16> = (0..wifi.nodes.len() as u16).collect();
    let which = |t: &str| match t {
        "*" => Ok(all.clone()),
        t => wifi.find(t).map(|n| vec![n]),
    };
    let from = table.read_or("from", vec![0], which)?;
    let to = table.read_or("to", if from == [0] { all.clone() } else { vec![0] }, which)?;
    let category = match table.read_or("ac", "be", |t| {
        one_of("access category", t, &["be", "vi", "vo"])
    })? {
        "vo" => Category::Voice,
        "vi" => Category::Video,
        _ => Category::BestEffort,
    };
    let pairs = from.iter().flat_map(|a| to.iter().map(|b| (*a, *b)));
    let ends: Vec<Ends> = pairs
        .filter(|(a, b)| a != b)
        .map(|(from, to)| Ends { from, to, category })
        .collect();
    if ends.is_empty() {
        let error = Error::new("it would go from a node to itself");
        return Err(table.error("to", line, error.remedy("write the name of another node")));
    }
    for e in &ends {
        wifi.way(e.from, e.to)
            .map_err(|e| table.error("to", line, e))?;
    }
    Ok(ends)
}

/// Writes the table and the queue's words.
pub(super) fn write(out: &mut String, wifi: &Wifi, queue: &str) {
    let quoted = super::write::quoted;
    let list = |nodes: &[u16]| {
        let names: Vec<String> = nodes.iter().map(|n| quoted(wifi.name(*n))).collect();
        format!("[{}]", names.join(", "))
    };
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line("\n[wifi]".into());
    line(format!("queue = {}", quoted(queue)));
    line(format!(
        "mode = \"{}\"",
        if wifi.mesh { "mesh" } else { "ap" }
    ));
    line(format!("width = {}", if wifi.phy.wide { 40 } else { 20 }));
    line(format!(
        "guard = \"{}\"",
        if wifi.phy.short_gi { "short" } else { "long" }
    ));
    let a = &wifi.aggregation;
    line(format!(
        "ampdu_frames = {}\nampdu_bytes = {}\namsdu = {}\nhardware = {}\nlate = {}",
        a.frames, a.bytes, a.amsdu, a.hardware, a.late
    ));
    let serve = match wifi.serve {
        Serve::RoundRobin => "round_robin",
        Serve::Airtime => "airtime",
    };
    line(format!("serve = \"{serve}\""));
    let a = &wifi.access;
    line(match a.retries {
        Some(n) => format!("retries = {n}"),
        None => "retries = \"unlimited\"".into(),
    });
    line(format!("eifs = {}", a.eifs));
    let countdown = match a.countdown {
        Countdown::Edca => "edca",
        Countdown::Dcf => "dcf",
    };
    line(format!("countdown = \"{countdown}\""));
    for (key, value) in [
        ("rts", a.rts),
        ("aifsn", a.aifsn),
        ("cwmin", a.cwmin),
        ("cwmax", a.cwmax),
    ] {
        if let Some(value) = value {
            line(format!("{key} = {value}"));
        }
    }
    if !wifi.routes.is_empty() {
        let routes: Vec<String> = wifi.routes.iter().map(|r| list(r)).collect();
        line(format!("routes = [{}]", routes.join(", ")));
    }
    if let Some(n) = &wifi.noise {
        line(format!(
            "noise = {{ loss = {:?}, quiet = \"{}\", noisy = \"{}\" }}",
            n.loss,
            format_time(n.quiet),
            format_time(n.noisy)
        ));
    }
    for node in &wifi.nodes {
        let mut text = format!("\n[[wifi.node]]\nname = {}\n", quoted(&node.name));
        let _ = match &node.rate {
            Rate::Fixed(mcs) => writeln!(text, "mcs = {mcs}"),
            Rate::Minstrel { streams } => writeln!(text, "mcs = \"minstrel\"\nstreams = {streams}"),
            Rate::Schedule(steps) => {
                let steps: Vec<String> = steps
                    .iter()
                    .map(|(t, mcs)| format!("[\"{}\", {mcs}]", format_time(*t)))
                    .collect();
                writeln!(text, "schedule = [{}]", steps.join(", "))
            }
        };
        let _ = match &node.loss {
            Loss::Fixed(per) => write!(text, "per = {per:?}"),
            Loss::Snr(db) => write!(text, "snr = {db:?}"),
        };
        if let Some(queue) = &node.queue {
            let _ = write!(text, "\nqueue = {}", quoted(queue));
        }
        if let Some(hears) = &node.hears {
            let _ = write!(text, "\nhears = {}", list(hears));
        }
        line(text);
    }
}

/// The keys of a flow's ends.
pub(super) fn write_ends(wifi: &Wifi, ends: &Ends) -> String {
    let quoted = super::write::quoted;
    format!(
        "from = {}\nto = {}\nac = \"{}\"",
        quoted(wifi.name(ends.from)),
        quoted(wifi.name(ends.to)),
        ends.category.word()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Overrides, Scenario};

    fn parse(text: &str) -> Result<Scenario, String> {
        Scenario::parse(text, "x.toml", &Overrides::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn bad_tables_are_refused_with_their_line() {
        let nodes = "[[wifi.node]]\nname = \"ap\"\n[[wifi.node]]\nname = \"a\"\n";
        for (text, message) in [
            (
                "stations = 0",
                "x.toml:2: wifi.stations: \"0\" is too small; write 1 to 99",
            ),
            (
                "stations = 2\n[[wifi.node]]\nname = \"a\"",
                "x.toml:3: wifi.node: `stations` and [[wifi.node]] exclude each other",
            ),
            (
                "[[wifi.node]]\nname = \"a\"",
                "x.toml:2: wifi.node: there are no stations",
            ),
            (
                "stations = 1\nmcs = 32",
                "x.toml:3: wifi.mcs: there is no MCS 32 in 802.11n; write 0 to 31",
            ),
            (
                "stations = 1\nmcs = \"fast\"",
                "x.toml:3: wifi.mcs: \"fast\" is not a whole number",
            ),
            (
                "stations = 1\nschedule = [[\"1s\", 3]]",
                "x.toml:3: wifi.schedule: 1s is out of order",
            ),
            (
                "stations = 1\nmcs = 3\nstreams = 2",
                "x.toml:4: wifi.streams: `streams` is for mcs = \"minstrel\" alone",
            ),
            (
                "stations = 1\nper = [0.1, 0.2]",
                "x.toml:3: wifi.per: not one probability, or eight",
            ),
            (
                "stations = 1\nper = 0.1\nsnr = 20",
                "x.toml:3: wifi.per: `per` and `snr` exclude each other",
            ),
            (
                "stations = 1\nwidth = 80",
                "x.toml:3: wifi.width: \"80\" is not a width of 802.11n; write 20 or 40",
            ),
            (
                "stations = 1\namsdu = 4000",
                "x.toml:3: wifi.amsdu: \"4000\" is not a size of A-MSDUs",
            ),
            (
                "stations = 1\nhardware = 0",
                "x.toml:3: wifi.hardware: \"0\" is too small",
            ),
            (
                "stations = 1\nqueue = \"codle\"",
                "x.toml:3: wifi.queue: unknown queue `codle`",
            ),
            (
                "stations = 1\nroutes = [[\"ap\", \"sta1\"]]",
                "x.toml:3: wifi.routes: only a mesh has routes",
            ),
            (
                "stations = 1\nspeed = 3",
                "x.toml:3: wifi: unknown key in [wifi] `speed`",
            ),
            (
                &format!("{nodes}hears = [\"a\"]"),
                "x.toml:6: wifi.node[2].hears: a is in its own list",
            ),
            (
                &format!("{nodes}hears = [\"c\"]"),
                "x.toml:6: wifi.node[2].hears: unknown node `c`",
            ),
            (
                &format!("{nodes}hears = []"),
                "x.toml:1: wifi.node: a and the access point ap do not hear each other",
            ),
            (
                &format!("{nodes}[[wifi.node]]\nname = \"a\""),
                "x.toml:6: wifi.node[3].name: two nodes are called a",
            ),
            (
                &format!("{nodes}mcs = 40"),
                "x.toml:6: wifi.node[2].mcs: there is no MCS 40",
            ),
            (
                "stations = 1\n[link]\nrate = \"1mbit\"",
                "x.toml:3: link: `link` and [wifi] exclude each other",
            ),
            (
                "stations = 1\n[[flow]]\nto = \"sta2\"",
                "x.toml:4: flow[1].to: unknown node `sta2`; did you mean `sta1`?",
            ),
            (
                "stations = 1\n[[flow]]\nfrom = \"sta1\"\nto = \"sta1\"",
                "x.toml:5: flow[1].to: it would go from a node to itself",
            ),
            (
                "stations = 1\n[[flow]]\ndirection = \"up\"",
                "x.toml:4: flow[1].direction: `direction` is not for a cell",
            ),
            (
                "stations = 1\n[[flow]]\nac = \"bk\"",
                "x.toml:4: flow[1].ac: unknown access category `bk`",
            ),
        ] {
            let e = parse(&format!("[wifi]\n{text}")).expect_err(text);
            assert!(e.starts_with(message), "{e}\n{message}");
        }
    }

    #[test]
    fn a_mesh_needs_a_route_between_nodes_that_do_not_hear_each_other() {
        let mesh = "[wifi]\nmode = \"mesh\"\nROUTES[[wifi.node]]\nname = \"a\"\nhears = [\"b\"]\n[[wifi.node]]\nname = \"b\"\n[[wifi.node]]\nname = \"c\"\n[[flow]]\nfrom = \"a\"\nto = \"c\"";
        let e = parse(&mesh.replace("ROUTES", "")).unwrap_err();
        assert!(e.starts_with("x.toml:12: flow[1].to: there is no route from a to c, which do not hear each other; write routes"), "{e}");
        let e = parse(&mesh.replace("ROUTES", "routes = [[\"a\", \"c\"]]\n")).unwrap_err();
        assert!(
            e.starts_with("x.toml:3: wifi.routes: a and c do not hear each other"),
            "{e}"
        );
        let s = parse(&mesh.replace("ROUTES", "routes = [[\"c\", \"b\", \"a\"]]\n")).unwrap();
        let wifi = s.wifi.unwrap();
        assert_eq!(wifi.way(0, 2).unwrap(), [0, 1, 2]);
        assert_eq!(wifi.way(2, 0).unwrap(), [2, 1, 0]);
    }

    #[test]
    fn everybody_is_a_table_each_and_what_is_written_reads_back() {
        let text = "[wifi]\nstations = 3\nqueue = \"codel\"\nwidth = 40\nguard = \"short\"\nsnr = 20.5\nmcs = \"minstrel\"\nstreams = 2\namsdu = 3839\nserve = \"round_robin\"\n\
                    retries = \"unlimited\"\neifs = false\ncountdown = \"dcf\"\nrts = 500\ncwmin = 7\nnoise = { loss = 0.5, quiet = \"1s\" }\n[[flow]]\ncount = 2\n[[flow]]\nfrom = \"*\"\nto = \"ap\"\nac = \"vo\"\nkind = \"cbr\"";
        let s = parse(text).unwrap();
        assert_eq!(s.flows.len(), 6);
        assert_eq!(s.flow_count(), 9);
        assert_eq!(
            parse(&s.to_toml()).unwrap(),
            Scenario {
                name: s.name.clone(),
                ..s.clone()
            },
            "{}",
            s.to_toml()
        );
        assert_eq!(s.link.queue, "codel");
        let over = Overrides {
            queue: Some("pie".into()),
            ..Overrides::default()
        };
        let o = Scenario::parse(text, "x.toml", &over).unwrap();
        assert_eq!(o.link.queue, "pie");
        let rate = Overrides {
            rate: Some("1mbit".into()),
            ..Overrides::default()
        };
        let e = Scenario::parse(text, "x.toml", &rate)
            .unwrap_err()
            .to_string();
        assert!(e.starts_with("rate: a cell's rates are its MCSs"), "{e}");
    }

    #[test]
    fn a_node_keeps_its_own_and_takes_the_rest_from_the_cell() {
        let text = "[wifi]\nmcs = 5\nper = 0.1\n[[wifi.node]]\nname = \"ap\"\n[[wifi.node]]\nname = \"a\"\nsnr = 30\nqueue = \"pie\"\n\
                    [[wifi.node]]\nname = \"b\"\nschedule = [[\"0s\", 0], [\"25s\", 1]]\n";
        let nodes = parse(text).unwrap().wifi.unwrap().nodes;
        assert_eq!(
            (&nodes[1].rate, &nodes[1].loss),
            (&Rate::Fixed(5), &Loss::Snr(30.0))
        );
        assert_eq!(nodes[1].queue.as_deref(), Some("pie"));
        assert!(matches!(&nodes[2].rate, Rate::Schedule(s) if s.len() == 2));
        assert_eq!(nodes[2].loss, Loss::Fixed([0.1; 8]));
    }
}
