//! The queues and links of a scenario.

use quell_link::error::Error;
use quell_link::words::Queue;
use quell_qdisc::num;

use crate::net::Net;
use crate::port::Port;
use crate::scenario::{Link, MODEM_BUFFER, Scenario};
use crate::slot::NO_PORT;
use crate::wifi;

/// Maximum number of queues: a port number has 8 bits, and one value means that there is no queue.
const MAX_PORTS: usize = NO_PORT as usize;

/// Builds the path of a scenario, or its cell, with this queue at the bottleneck.
///
/// # Errors
/// If queue words do not fit their link, or there are too many queues.
pub(super) fn net(scenario: &Scenario, queue: &Queue, seed: u64) -> Result<Net, Error> {
    if let Some(wifi) = &scenario.wifi {
        let (ports, cell) = wifi::build(scenario, wifi, queue, seed)?;
        return Ok(Net {
            ports,
            cell: Some(Box::new(cell)),
            ..Net::default()
        });
    }
    let port = |link: &Link, words: &Queue, name: &str| {
        Port::new(link, words, scenario.duration, seed, name)
    };
    let mut ports = vec![port(&scenario.link, queue, "link")];
    for (i, hop) in scenario.hops.iter().enumerate() {
        let words = words_of(hop, scenario, &format!("hop[{}]", i + 1))?;
        ports.push(port(hop, &words, &format!("hop{i}")));
    }
    if let Some(up) = &scenario.up {
        let words = words_of(up, scenario, "link.up")?;
        ports.push(port(up, &words, "up"));
    }
    let mut net = Net {
        ports,
        hops: num::low_u8(scenario.hops.len() as u64),
        ..Net::default()
    };
    add_modems(&mut net, scenario, seed)?;
    let (all, hops) = (net.ports.len(), scenario.hops.len());
    if all > MAX_PORTS {
        return Err(Error::new(format!("a path of {hops} hops is too long"))
            .remedy(format!("give it at most {}", MAX_PORTS + hops - all)));
    }
    Ok(net)
}

/// Adds a modem before the bottleneck downstream and behind the link upstream, if the scenario has
/// them.
fn add_modems(net: &mut Net, scenario: &Scenario, seed: u64) -> Result<(), Error> {
    let ends = [Some(&scenario.link), scenario.up.as_ref()];
    if ends.iter().flatten().all(|link| link.modem.is_none()) {
        return Ok(());
    }
    net.follows = (1..=num::low_u8(net.ports.len() as u64)).collect();
    for (way, link) in ends.into_iter().enumerate() {
        let Some((link, rate)) = link.and_then(|link| Some((link, link.modem.clone()?))) else {
            continue;
        };
        let buffer = link.modem_buffer.unwrap_or(MODEM_BUFFER);
        let fifo = Queue::parse(&format!("bfifo limit {buffer}"))?;
        let modem = Link {
            rate,
            overhead: link.overhead,
            ..Link::default()
        };
        let place = num::low_u8(net.ports.len() as u64);
        let name = ["modem", "modem up"][way];
        net.ports
            .push(Port::new(&modem, &fifo, scenario.duration, seed, name));
        net.follows.push(0);
        if way == 1 {
            let up = net.up_port();
            net.follows[up] = place;
        }
        net.modems[way] = Some(place);
    }
    let uses_delay = |port: &Port| port.queue.controller().is_some_and(|c| c.uses_delay());
    if net.modems.iter().all(Option::is_some) && net.ports.iter().any(uses_delay) {
        net.stamps = Some(Box::default());
    }
    Ok(())
}

/// The queue words of a link, checked against its rate.
fn words_of(link: &Link, scenario: &Scenario, name: &str) -> Result<Queue, Error> {
    let rate = link.rate.mean_rate(scenario.duration);
    let words = Queue::parse(&link.queue).and_then(|words| words.check(rate).map(|()| words));
    words.map_err(|e| e.under(&format!("{name}.queue")))
}
