//! Reads the table `[wifi]` into a cell, and writes a cell as this table.

use quell_link::Error;
use quell_qdisc::num;

use super::key::Keys;
use super::keys::{
    self, AIR, BETWEEN, Between, CELL_QUEUE, MAX_NODES, MEMBER, MEMBERS, Member, Members, NOISE,
    RADIO, ROUTES,
};
use super::model::Link;
use super::tree::{Node as Tree, Table};
use super::wifi::{Ends, Node, Wifi};

/// Reads the table. The returned link has the cell's queue words and the rate between its first two
/// nodes. In records, the bottleneck is all queues of the first flow's sender.
pub(super) fn read(table: &Table) -> Result<(Wifi, Link), Error> {
    keys::known_only(table, "wifi")?;
    let members = MEMBERS.read_new(table)?;
    RADIO.read_new(table)?;
    let mut wifi = AIR.read_new(table)?;
    wifi.mesh = members.mesh;
    if let Some(noise) = table.table("noise")? {
        keys::known_only(noise, "wifi.noise")?;
        wifi.noise = Some(NOISE.read_new(noise)?);
    }
    nodes(table, &members, &mut wifi)?;
    ROUTES.read(table, &mut wifi)?;
    let mut link = Link {
        rate: wifi.offered(0, 1),
        overhead: 0,
        ..Link::default()
    };
    CELL_QUEUE.read(table, &mut link)?;
    Ok((wifi, link))
}

/// The inverse of [`read`].
pub(super) fn write(wifi: &Wifi, link: &Link) -> Table {
    let mut table = Table::new("wifi");
    let members = Members {
        stations: None,
        mesh: wifi.mesh,
    };
    MEMBERS.write(&members, &mut table);
    ROUTES.write(wifi, &mut table);
    CELL_QUEUE.write(link, &mut table);
    AIR.write(wifi, &mut table);
    if let Some(noise) = &wifi.noise {
        let mut inner = Table::new("wifi.noise");
        NOISE.write(noise, &mut inner);
        table.put("noise", Tree::Table(inner));
    }
    let node = |(i, node): (usize, &Node)| {
        let mut inner = Table::new(format!("wifi.node[{}]", i + 1));
        let hears = node.hears.as_ref();
        let member = Member {
            name: node.name.clone(),
            queue: node.queue.clone(),
            hears: hears.map(|h| h.iter().map(|n| wifi.name(*n).to_owned()).collect()),
        };
        MEMBER.write(&member, &mut inner);
        RADIO.write(node, &mut inner);
        inner
    };
    let nodes = wifi.nodes.iter().enumerate().map(node).collect();
    table.put("node", Tree::Tables(nodes));
    table
}

fn nodes(table: &Table, members: &Members, wifi: &mut Wifi) -> Result<(), Error> {
    let mut heard = Vec::new();
    for node in tables(table, members)? {
        keys::known_only(&node, "wifi.node")?;
        let member = MEMBER.read_new(&node)?;
        if wifi.nodes.iter().any(|n| n.name == member.name) {
            let error = Error::new(format!("two nodes are called {}", member.name));
            return Err(node.error("name", error.remedy("give each a name of its own")));
        }
        wifi.nodes.push(Node {
            name: member.name,
            queue: member.queue,
            ..RADIO.read_new(&node)?
        });
        heard.push((node, member.hears));
    }
    for (n, (node, names)) in heard.into_iter().enumerate() {
        let Some(names) = names else { continue };
        let list = names.iter().map(|name| wifi.find(name));
        let list: Vec<u16> = list
            .collect::<Result<_, _>>()
            .map_err(|e| node.error("hears", e))?;
        if list.contains(&num::index_u16(n)) {
            let error = Error::new(format!(
                "{} is in its own list",
                wifi.name(num::index_u16(n))
            ));
            return Err(node.error("hears", error.remedy("list the other nodes that it hears")));
        }
        wifi.nodes[n].hears = Some(list);
    }
    if !wifi.mesh
        && let Some(deaf) = (1..num::index_u16(wifi.nodes.len())).find(|n| !wifi.hear(0, *n))
    {
        let (a, b) = (wifi.name(deaf), wifi.name(0));
        let error = Error::new(format!(
            "{a} and the access point {b} do not hear each other"
        ));
        let remedy = "put each into the other's list, or write mode = \"mesh\"";
        return Err(table.error("node", error.remedy(remedy)));
    }
    Ok(())
}

/// The nodes' tables, or those that `stations` gives, each with the values that it inherits from
/// `[wifi]`.
fn tables(table: &Table, members: &Members) -> Result<Vec<Table>, Error> {
    let fail = |what: String, remedy: &str| table.error("node", Error::new(what).remedy(remedy));
    let few = || {
        let remedy = "write stations = 1, or [[wifi.node]] with a name for each node";
        fail("there are no stations".to_owned(), remedy)
    };
    let mut tables = match (members.stations, table.tables("node")?) {
        (Some(_), Some(_)) => {
            let what = "`stations` and [[wifi.node]] exclude each other";
            return Err(fail(what.to_owned(), "keep one of them"));
        }
        (None, None) => return Err(few()),
        (None, Some(tables)) => tables.to_vec(),
        (Some(n), None) => {
            let named = |i: u32| {
                let mut table = Table::new("wifi");
                let name = if i == 0 {
                    "ap".to_owned()
                } else {
                    format!("sta{i}")
                };
                table.put("name", Tree::Text(name));
                table
            };
            (u32::from(members.mesh)..=n).map(named).collect()
        }
    };
    if tables.len() < 2 {
        return Err(few());
    }
    if tables.len() > MAX_NODES as usize {
        let what = format!("{} nodes are too many", tables.len());
        return Err(fail(what, &format!("at most {MAX_NODES} share a channel")));
    }
    let radio = keys::names(&[&RADIO as &dyn Keys]);
    for node in &mut tables {
        node.inherit(table, |key| radio.contains(&key), |key| RADIO.replaces(key));
    }
    Ok(tables)
}

/// Senders and receivers of a table's flows. `*` means every other node, so one table can have
/// several pairs.
pub(super) fn ends(table: &Table, wifi: &Wifi) -> Result<Vec<Ends>, Error> {
    let between = BETWEEN.read_new(table)?;
    let all: Vec<u16> = (0..num::index_u16(wifi.nodes.len())).collect();
    let which = |key: &str, name: &Option<String>, default: Vec<u16>| match name.as_deref() {
        None => Ok(default),
        Some("*") => Ok(all.clone()),
        Some(name) => wifi
            .find(name)
            .map(|n| vec![n])
            .map_err(|e| table.error(key, e)),
    };
    let from = which("from", &between.from, vec![0])?;
    let to = if from == [0] { all.clone() } else { vec![0] };
    let to = which("to", &between.to, to)?;
    let category = between.category;
    let pairs = from.iter().flat_map(|a| to.iter().map(|b| (*a, *b)));
    let ends: Vec<Ends> = pairs
        .filter(|(a, b)| a != b)
        .map(|(from, to)| Ends { from, to, category })
        .collect();
    if ends.is_empty() {
        let error = Error::new("the sender and the receiver are the same node");
        return Err(table.error("to", error.remedy("write the name of another node")));
    }
    for e in &ends {
        wifi.way(e.from, e.to).map_err(|e| table.error("to", e))?;
    }
    Ok(ends)
}

/// The inverse of [`ends`].
pub(super) fn write_ends(wifi: &Wifi, ends: &Ends, table: &mut Table) {
    let between = Between {
        from: Some(wifi.name(ends.from).to_owned()),
        to: Some(wifi.name(ends.to).to_owned()),
        category: ends.category,
    };
    BETWEEN.write(&between, table);
}
