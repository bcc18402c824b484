//! Builds a cell and its queues from a scenario: one queue per sender, neighbour and access
//! category that carries packets.

use std::collections::BTreeSet;

use quell_link::error::Error;
use quell_link::words::Queue;
use quell_qdisc::num;

use super::cell::{Cell, Config};
use super::channel::{Bursts, Errors};
use super::edca::{Contender, Params};
use super::link::AirLink;
use super::rate::Control;
use crate::port::Port;
use crate::scenario::wifi::{Category, Ends, Wifi};
use crate::scenario::{self, FlowKind, Scenario};

/// Maximum number of queues: their numbers have 8 bits.
const MAX_QUEUES: usize = 254;

/// A path as a list of queues, each by sender, receiver and category.
type Way = Vec<(u16, u16, Category)>;

/// The queues on the path of a flow's data.
fn queues(wifi: &Wifi, ends: &Ends) -> Result<Way, Error> {
    let way = wifi.way(ends.from, ends.to)?;
    Ok(way
        .windows(2)
        .map(|pair| (pair[0], pair[1], ends.category))
        .collect())
}

/// The paths of all data and ACKs; the first is that of the first flow's data.
fn ways(wifi: &Wifi, scenario: &Scenario) -> Result<Vec<Way>, Error> {
    let mut ways = Vec::new();
    for flow in &scenario.flows {
        let Some(ends) = &flow.ends else { continue };
        ways.push(queues(wifi, ends)?);
        if matches!(flow.kind, FlowKind::Tcp(_) | FlowKind::Web(_)) {
            ways.push(queues(wifi, &ends.turned())?);
        }
    }
    Ok(ways)
}

/// The cell of a scenario, with a port per queue. Nodes that name no queue use `words`.
pub(crate) fn build(
    scenario: &Scenario,
    wifi: &Wifi,
    words: &Queue,
    seed: u64,
) -> Result<(Vec<Port>, Cell), Error> {
    let ways = ways(wifi, scenario)?;
    let mut keys: Way = Vec::new();
    for key in ways.iter().flatten() {
        if !keys.contains(key) {
            keys.push(*key);
        }
    }
    if keys.len() > MAX_QUEUES {
        let error = Error::new(format!("{} queues in one cell are too many", keys.len()));
        return Err(error.remedy(format!(
            "let flows go between fewer nodes: at most {MAX_QUEUES} queues"
        )));
    }
    let place = |key: &(u16, u16, Category)| keys.iter().position(|k| k == key).unwrap_or(0);
    let places: Vec<Vec<usize>> = ways
        .iter()
        .map(|way| way.iter().map(place).collect())
        .collect();
    let next_hop = next_hops(&places, keys.len());

    let whose: BTreeSet<(u16, Category)> = keys.iter().map(|k| (k.0, k.2)).collect();
    let mut contenders: Vec<Contender> = whose
        .iter()
        .map(|(node, category)| {
            Contender::new(*node, *category, Params::new(*category, &wifi.access))
        })
        .collect();
    let mut ports = Vec::with_capacity(keys.len());
    let mut links: Vec<AirLink> = Vec::with_capacity(keys.len());
    for (i, &(from, to, category)) in keys.iter().enumerate() {
        let own = wifi.nodes[usize::from(from)].queue.as_deref();
        let key = |e: Error| e.under(&format!("wifi.node[{}].queue", from + 1));
        let own = own.map(Queue::parse).transpose().map_err(key)?;
        let link = scenario::Link {
            rate: wifi.offered(from, to),
            ..scenario.link.clone()
        };
        let rate = link.rate.mean_rate(scenario.duration);
        let words = match &own {
            Some(own) => own.check(rate).map_err(key).map(|()| own)?,
            None => words.check(rate).map(|()| words)?,
        };
        let name = format!("wifi {from} {to} {}", category as u8);
        ports.push(Port::in_cell(&link, words, scenario.duration, seed, &name));
        let contender = contenders
            .iter_mut()
            .enumerate()
            .find(|(_, c)| c.node == from && c.category == category);
        let Some((c, contender)) = contender else {
            continue;
        };
        contender.links.push(num::index_u16(i));
        let station = wifi.station(from, to);
        links.push(AirLink::new(
            (from, to, category),
            num::index_u16(c),
            Errors::new(&station.loss),
            Control::new(&station.rate, wifi.phy),
        ));
    }
    for (i, key) in keys.iter().enumerate() {
        let back = keys.iter().position(|k| *k == (key.1, key.0, key.2));
        links[i].reverse = back.map(num::index_u16);
    }
    let all = 0..num::index_u16(wifi.nodes.len());
    let audience = |a: u16| all.clone().filter(|b| wifi.hear(a, *b)).collect();
    let cell = Cell::new(
        Config {
            phy: wifi.phy,
            access: wifi.access.clone(),
            aggregation: wifi.aggregation.clone(),
            serve: wifi.serve,
        },
        all.clone().map(audience).collect(),
        contenders,
        links,
        next_hop,
        Bursts::new(wifi.noise, seed),
        seed,
    );
    Ok((ports, cell))
}

/// The next queue on a path, by the current and the last one. Where paths diverge and join again,
/// all entries of the path that is later in the scenario overwrite those of the earlier one, so no
/// loop arises.
fn next_hops(ways: &[Vec<usize>], count: usize) -> Vec<u8> {
    let mut next = vec![0; count * count];
    for way in ways {
        let last = way[way.len() - 1];
        for pair in way.windows(2) {
            next[pair[0] * count + last] = num::low_u8(pair[1] as u64);
        }
    }
    next
}
