//! The keys of `[[flow]]` that all kinds have, and those of a flow's path.

use quell_link::Error;
use quell_link::dscp;
use quell_link::field::Field;
use quell_qdisc::time::{Duration, US};

use super::{KINDS, MAX_DURATION, check_length};
use crate::scenario::key::{Section, Value, any, key};
use crate::scenario::model::{Direction, Flow};
use crate::scenario::traffic::FlowKind;
use crate::scenario::tree::{Node, Table};
use crate::scenario::wifi::Category;

/// Maximum number of flows: 16 bits number them.
pub(in crate::scenario) const MAX_FLOWS: u32 = 65_535;

pub(in crate::scenario) static FLOW: Section<Flow> = Section {
    keys: &[
        key(
            "kind",
            Field::Choice {
                what: "kind of flow",
                words: "tcp|cbr|poisson|onoff|web|call|voip|video_call|game|page|video|probe|download|upload|backup|ping",
                set: |f, word| {
                    let kind = KINDS.iter().find(|k| k.name == word);
                    f.kind = kind.map_or_else(FlowKind::default, |k| (k.make)());
                    f.count = match f.kind {
                        FlowKind::Tcp(_) => 4,
                        _ => 1,
                    };
                },
                get: |f| f.kind.name(),
            },
            "kind of traffic; each has its own keys",
        ),
        key::<Flow>(
            "name",
            Field::Other {
                syntax: "NAME",
                set: |f, text| {
                    f.name = named(text, "name", "backup")?;
                    Ok(())
                },
                get: |f| f.name.clone(),
            },
            "what records call the flows and their application",
        )
        .or("none"),
        key::<Flow>(
            "count",
            Field::Count(|f| &mut f.count, 1, MAX_FLOWS),
            "number of such flows; at most 65,535 in all tables together",
        )
        .or("4 for `tcp`, 1 for the others"),
        key::<Flow>(
            "rtt",
            Field::Time(
                |f| &mut f.rtt,
                US,
                Duration::from_nanos(MAX_DURATION.as_nanos() / 16),
            ),
            "base round trip without queuing, including the links' delays; at least those delays",
        )
        .or("twice the links' delays, or `\"20ms\"` where they have none"),
        key(
            "start",
            Field::Time(|f| &mut f.start, Duration::ZERO, MAX_DURATION),
            "when the flows begin",
        ),
        key::<Flow>(
            "stop",
            Field::MaybeTime(|f| &mut f.stop, Duration::ZERO, MAX_DURATION),
            "when they stop",
        )
        .or("never"),
        key(
            "stagger",
            Field::Time(|f| &mut f.stagger, Duration::ZERO, MAX_DURATION),
            "each flow begins within this much of `start`, drawn from the seed",
        ),
        key(
            "dscp",
            Field::Other {
                syntax: "NAME|N",
                set: |f, text| {
                    f.dscp = dscp::parse(text)?;
                    Ok(())
                },
                get: |f| dscp::format(f.dscp),
            },
            "DSCP of the data, as `\"EF\"`, `\"AF41\"`, `\"CS1\"`, `\"LE\"` or 0 to 63; ACKs have CS0, as Linux's",
        ),
        key(
            "fwmark",
            Field::Count(|f| &mut f.fwmark, 0, u32::MAX),
            "the firewall's mark of its packets, for `cake fwmark`",
        ),
    ],
    default: Flow::default,
    needs: None,
    finish: |f, table| match f.stop {
        Some(stop) if stop <= f.start => {
            let stop = table.text("stop").unwrap_or_default();
            let what = format!("{stop} is not later than the start at {}", f.start);
            Err(table.error("stop", Error::new(what).remedy("write a later time")))
        }
        _ => Ok(()),
    },
};

/// The queues of a path that a flow passes, and its hosts.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct Way {
    pub direction: Direction,
    /// The first and the last queue.
    pub hops: (u32, u32),
    /// The last queue of the path downstream.
    pub last: u32,
    /// The host behind the bottleneck.
    pub host: Option<String>,
    /// The host at the other end.
    pub to_host: Option<String>,
}

impl Way {
    /// The whole path, downstream.
    pub fn new(last: u32) -> Self {
        Self {
            direction: Direction::Down,
            hops: (0, last),
            last,
            host: None,
            to_host: None,
        }
    }

    /// The first and the last queue in this direction.
    fn all(&self) -> (u32, u32) {
        match self.direction {
            Direction::Down => (0, self.last),
            Direction::Up => (0, 0),
        }
    }
}

pub(in crate::scenario) static WAY: Section<Way> = Section {
    keys: &[
        key(
            "direction",
            Field::Choice {
                what: "direction",
                words: "down|up",
                set: |w, word| {
                    w.direction = match word {
                        "up" => Direction::Up,
                        _ => Direction::Down,
                    };
                    w.hops = w.all();
                },
                get: |w| match w.direction {
                    Direction::Down => "down",
                    Direction::Up => "up",
                },
            },
            "direction of the data: through `[link]` or `[link.up]`; not in a cell",
        ),
        any::<Way>(
            "hops",
            Value::List {
                syntax: "[N, N]",
                set: hops,
                get: |w| {
                    let (first, last) = w.hops;
                    let list = [first, last].map(|n| Node::Plain(n.to_string()));
                    (w.hops != w.all()).then(|| Node::List(list.into()))
                },
            },
            "the first and the last queue of the path that the flow passes, 0 being `[link]`; not in a cell",
        )
        .or("all"),
        key::<Way>(
            "host",
            Field::Other {
                syntax: "NAME",
                set: |w, text| {
                    w.host = Some(named(text, "host", "laptop")?);
                    Ok(())
                },
                get: |w| w.host.clone().unwrap_or_default(),
            },
            "the flow's host behind the bottleneck, which sends on the way up and receives on the way down: `cake` shares the link among hosts; not in a cell, whose hosts are its nodes",
        )
        .or("one for each `rtt` and `ecn`"),
        key::<Way>(
            "to_host",
            Field::Other {
                syntax: "NAME",
                set: |w, text| {
                    w.to_host = Some(named(text, "to_host", "server")?);
                    Ok(())
                },
                get: |w| w.to_host.clone().unwrap_or_default(),
            },
            "the host at the other end; not in a cell",
        )
        .or("one server for all"),
    ],
    default: || Way::new(0),
    needs: None,
    finish: |_, _| Ok(()),
};

/// Checks a name; `key` and `example` appear in the error.
fn named(text: &str, key: &str, example: &str) -> Result<String, Error> {
    check_length(text)?;
    match text.trim() == text && !text.is_empty() && !text.contains(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err(Error::new("not a name").remedy(format!("write {key} = \"{example}\""))),
    }
}

fn hops(way: &mut Way, node: &Node) -> Result<(), Error> {
    let last = way.all().1;
    let pair = match node {
        Node::List(pair) => match &pair[..] {
            [a, b] => a.text().zip(b.text()),
            _ => None,
        },
        _ => None,
    };
    let pair = pair.and_then(|(a, b)| a.parse::<u32>().ok().zip(b.parse::<u32>().ok()));
    way.hops = pair.filter(|(a, b)| a <= b && *b <= last).ok_or_else(|| {
        Error::new("not the first and the last queue of a path through this scenario").remedy(
            format!("write hops = [first, last], 0 being [link], the last at most {last}"),
        )
    })?;
    Ok(())
}

/// Sender and receiver of a flow in a cell, by name.
#[derive(Clone, Debug, Default)]
pub(in crate::scenario) struct Between {
    pub from: Option<String>,
    pub to: Option<String>,
    pub category: Category,
}

pub(in crate::scenario) static BETWEEN: Section<Between> = Section {
    keys: &[
        key::<Between>(
            "from",
            Field::Other {
                syntax: "NAME",
                set: |b, text| {
                    b.from = Some(text.to_owned());
                    Ok(())
                },
                get: |b| b.from.clone().unwrap_or_default(),
            },
            "in a cell: the node that sends; `*`: every node but the receiver",
        )
        .or("the first node"),
        key::<Between>(
            "to",
            Field::Other {
                syntax: "NAME",
                set: |b, text| {
                    b.to = Some(text.to_owned());
                    Ok(())
                },
                get: |b| b.to.clone().unwrap_or_default(),
            },
            "in a cell: the node that receives; `*`: such a flow for every node but the sender",
        )
        .or("`\"*\"`, or the first node if another one sends"),
        key(
            "ac",
            Field::Choice {
                what: "access category",
                words: "be|vi|vo",
                set: |b, word| {
                    b.category = match word {
                        "vo" => Category::Voice,
                        "vi" => Category::Video,
                        _ => Category::BestEffort,
                    }
                },
                get: |b| b.category.word(),
            },
            "in a cell: access category of data and ACKs: best effort, video or voice",
        ),
    ],
    default: Between::default,
    needs: None,
    finish: |_, _| Ok(()),
};

/// Reports a key of [`WAY`] in a cell.
pub(in crate::scenario) fn not_in_a_cell(table: &Table) -> Result<(), Error> {
    match WAY.keys.iter().find(|k| table.has(k.name)) {
        None => Ok(()),
        Some(key) => {
            let error = Error::new(format!("`{}` is not for a cell", key.name));
            let remedy = "write from = and to = with names of nodes";
            Err(table.error(key.name, error.remedy(remedy)))
        }
    }
}
