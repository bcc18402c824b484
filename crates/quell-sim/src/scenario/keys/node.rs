//! The keys of `[[wifi.node]]`. Those of `RADIO` are also keys of `[wifi]`, for all nodes.

use quell_link::Error;
use quell_link::field::{self, Field};
use quell_link::units;
use quell_qdisc::num;

use super::check_length;
use super::link::queue_words;
use super::steps::{self, Steps};
use super::wifi::{names, text};
use crate::scenario::key::{Needs, Section, Value, any, key};
use crate::scenario::tree::Node as Tree;
use crate::scenario::wifi::{Loss, Node, Rate};

/// Rate and losses of a node; in `[wifi]`, the defaults of all nodes.
pub(in crate::scenario) static RADIO: Section<Node> = Section {
    keys: &[
        key::<Node>(
            "mcs",
            Field::Other {
                syntax: "N|minstrel",
                set: |n, text| {
                    n.rate = match text {
                        "minstrel" => Rate::Minstrel { streams: 1 },
                        text => Rate::Fixed(mcs(text)?),
                    };
                    Ok(())
                },
                get: |n| match n.rate {
                    Rate::Fixed(mcs) => mcs.to_string(),
                    Rate::Minstrel { .. } => "minstrel".to_owned(),
                    Rate::Schedule(_) => String::new(),
                },
            },
            "modulation and coding, 0 to 31 (0 to 7 with one spatial stream, 8 to 15 with two, and so on); or `minstrel`, which selects the rate",
        )
        .replaces(&["schedule", "streams"]),
        key::<Node>(
            "streams",
            Field::Other {
                syntax: "N",
                set: |n, text| {
                    n.rate = Rate::Minstrel {
                        streams: num::low_u8(field::count(text, 1, 4)?),
                    };
                    Ok(())
                },
                get: |n| match n.rate {
                    Rate::Minstrel { streams } => streams.to_string(),
                    _ => String::new(),
                },
            },
            "spatial streams that `minstrel` may use, 1 to 4",
        )
        .or("1")
        .only("mcs", "minstrel"),
        any::<Node>(
            "schedule",
            Value::List {
                syntax: "[[TIME, N], ...]",
                set: |n, value| {
                    n.rate = Rate::Schedule(STEPS.read(value)?.into());
                    Ok(())
                },
                get: |n| match &n.rate {
                    Rate::Schedule(list) => {
                        Some(steps::write(list, |mcs| Tree::Plain(mcs.to_string())))
                    }
                    _ => None,
                },
            },
            "MCSs and when they begin, as in `[[\"0s\", 0], [\"25s\", 1]]`",
        )
        .replaces(&["mcs", "streams"]),
        any::<Node>(
            "per",
            Value::List {
                syntax: "P|[P, P, P, P, P, P, P, P]",
                set: per,
                get: |n| match &n.loss {
                    Loss::Fixed(per) if per.iter().all(|p| p == &per[0]) => {
                        Some(Tree::Plain(per[0].to_string()))
                    }
                    Loss::Fixed(per) => Some(Tree::List(
                        per.iter().map(|p| Tree::Plain(p.to_string())).collect(),
                    )),
                    Loss::Snr(_) => None,
                },
            },
            "probability that an MPDU is lost, or eight probabilities for MCS 0 to 7 (modulo 8)",
        )
        .replaces(&["snr"]),
        key::<Node>(
            "snr",
            Field::Other {
                syntax: "X",
                set: |n, text| match units::parse_number(text)? {
                    x if (-20.0..=100.0).contains(&x) => {
                        n.loss = Loss::Snr(x);
                        Ok(())
                    }
                    _ => Err(Error::new(format!("\"{text}\" is out of range"))
                        .remedy("write decibels, -20 to 100")),
                },
                get: |n| match n.loss {
                    Loss::Snr(x) => x.to_string(),
                    Loss::Fixed(_) => String::new(),
                },
            },
            "signal-to-noise ratio in dB, which determines the probability of loss",
        )
        .replaces(&["per"]),
    ],
    default: Node::default,
    needs: None,
    finish: |_, _| Ok(()),
};

const STEPS: Steps<u8> = Steps {
    example: "[[\"0s\", 0], [\"25s\", 1]]",
    value: mcs,
};

fn mcs(text: &str) -> Result<u8, Error> {
    let remedy = "write 0 to 31: 0 to 7 for one spatial stream, 8 to 15 for two, and so on";
    match units::parse_count(text).map_err(|e| e.remedy(remedy))? {
        n if n <= 31 => Ok(num::low_u8(n)),
        n => Err(Error::new(format!("there is no MCS {n} in 802.11n")).remedy(remedy)),
    }
}

fn per(node: &mut Node, value: &Tree) -> Result<(), Error> {
    let shape = || {
        Error::new("not one probability, or eight")
            .remedy("write per = 0.1, or a list for MCS 0 to 7")
    };
    let one = |value: &Tree| {
        value
            .text()
            .ok_or_else(shape)
            .and_then(units::parse_probability)
    };
    let values = match value {
        Tree::List(list) => list.iter().map(one).collect::<Result<Vec<_>, _>>()?,
        value => vec![one(value)?; 8],
    };
    node.loss = Loss::Fixed(values.try_into().map_err(|_| shape())?);
    Ok(())
}

/// Values of the keys of `[[wifi.node]]` alone.
#[derive(Clone, Debug, Default)]
pub(in crate::scenario) struct Member {
    pub name: String,
    pub queue: Option<String>,
    /// Names of the nodes that it hears; `None`: all.
    pub hears: Option<Vec<String>>,
}

pub(in crate::scenario) static MEMBER: Section<Member> = Section {
    keys: &[
        key::<Member>(
            "name",
            Field::Other {
                syntax: "TEXT",
                set: |m, text| match text {
                    "" | "*" => Err(Error::new(format!("\"{text}\" is not a name"))
                        .remedy("write letters and digits")),
                    text => {
                        check_length(text)?;
                        m.name = text.to_owned();
                        Ok(())
                    }
                },
                get: |m| m.name.clone(),
            },
            "the node's name in flows, routes and reports",
        )
        .or("required"),
        key::<Member>(
            "queue",
            Field::Other {
                syntax: "WORDS",
                set: |m, text| {
                    m.queue = Some(queue_words(text)?);
                    Ok(())
                },
                get: |m| m.queue.clone().unwrap_or_default(),
            },
            "words of its queues",
        )
        .or("`[wifi]`'s"),
        any::<Member>(
            "hears",
            Value::List {
                syntax: "[NAME ...]",
                set: |m, value| {
                    m.hears = Some(names(value)?);
                    Ok(())
                },
                get: |m| {
                    let list = m.hears.as_ref()?.iter().map(|n| text(n));
                    Some(Tree::List(list.collect()))
                },
            },
            "the nodes that it hears; two nodes hear each other if neither leaves the other out",
        )
        .or("every node"),
    ],
    default: Member::default,
    needs: Some(Needs {
        one_of: &["name"],
        what: "a node without a name",
        remedy: "write name = \"laptop\"",
    }),
    finish: |_, _| Ok(()),
};
