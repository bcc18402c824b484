//! Writes a scenario, with all defaults, as a tree that reads back as the same scenario.

use quell_qdisc::num;

use super::cell;
use super::key::Writer;
use super::keys::{self, FILE, FLOW, LINK, WAY, Way};
use super::model::{Flow, Link, Scenario};
use super::tree::{Node, Table};

pub(super) fn scenario(s: &Scenario) -> Table {
    let mut file = Table::new("");
    FILE.write(s, &mut file);
    match &s.wifi {
        Some(wifi) => file.put("wifi", Node::Table(cell::write(wifi, &s.link))),
        None => {
            let mut table = link(&s.link, "link");
            if let Some(up) = &s.up {
                table.put("up", Node::Table(link(up, "link.up")));
            }
            file.put("link", Node::Table(table));
        }
    }
    let tables = |tables: Vec<Table>| Node::Tables(tables);
    if !s.hops.is_empty() {
        file.put(
            "hop",
            tables(s.hops.iter().map(|l| link(l, "hop")).collect()),
        );
    }
    file.put("flow", tables(s.flows.iter().map(|f| flow(f, s)).collect()));
    file
}

fn link(link: &Link, path: &str) -> Table {
    let mut table = Table::new(path);
    LINK.write(link, &mut table);
    table
}

fn flow(flow: &Flow, s: &Scenario) -> Table {
    let mut table = Table::new("flow");
    FLOW.write(flow, &mut table);
    match (&s.wifi, &flow.ends) {
        (Some(wifi), Some(ends)) => cell::write_ends(wifi, ends, &mut table),
        _ => {
            let way = Way {
                direction: flow.direction,
                hops: flow.hops,
                last: num::count(s.hops.len()),
                host: flow.host.clone(),
                to_host: flow.to_host.clone(),
            };
            WAY.write(&way, &mut table);
        }
    }
    // Writing cannot fail.
    let _ = keys::walk(&mut flow.kind.clone(), &mut Writer(&mut table));
    table
}
