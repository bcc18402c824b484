//! The keys of `[wifi]`, `[wifi.noise]` and `[[wifi.node]]`.

use quell_link::Error;
use quell_link::field::{self, Field};
use quell_link::units;
use quell_qdisc::num;
use quell_qdisc::time::{Duration, US};

use super::MAX_DURATION;
use crate::phy::LARGEST_AMPDU;
use crate::scenario::key::{Section, Value, any, key};
use crate::scenario::tree::Node as Tree;
use crate::scenario::wifi::{Countdown, Noise, Serve, Wifi};

/// Maximum number of nodes in a cell.
pub(in crate::scenario) const MAX_NODES: u32 = 100;

/// Members of the cell, as far as [wifi] itself defines them.
#[derive(Clone, Debug, Default)]
pub(in crate::scenario) struct Members {
    /// Number of stations, in place of `[[wifi.node]]`.
    pub stations: Option<u32>,
    pub mesh: bool,
}

pub(in crate::scenario) static MEMBERS: Section<Members> = Section {
    keys: &[
        key::<Members>(
            "stations",
            Field::MaybeCount(|m| &mut m.stations, 1, MAX_NODES - 1),
            "number of stations (`sta1` and so on) at an access point `ap`; in a mesh, of nodes",
        )
        .or("required, or `[[wifi.node]]`"),
        key(
            "mode",
            Field::Choice {
                what: "mode",
                words: "ap|mesh",
                set: |m, word| m.mesh = word == "mesh",
                get: |m| match m.mesh {
                    true => "mesh",
                    false => "ap",
                },
            },
            "`ap`: the first node is the access point, through which stations reach each other; `mesh`: nodes send to each other",
        ),
    ],
    default: Members::default,
    needs: None,
    finish: |_, _| Ok(()),
};

/// Routes, which are read after the nodes.
pub(in crate::scenario) static ROUTES: Section<Wifi> = Section {
    keys: &[any::<Wifi>(
        "routes",
        Value::List {
            syntax: "[[NAME, NAME, ...] ...]",
            set: routes,
            get: |w| {
                let names =
                    |route: &Vec<u16>| Tree::List(route.iter().map(|n| text(w.name(*n))).collect());
                let routes: Vec<Tree> = w.routes.iter().map(names).collect();
                (!routes.is_empty()).then_some(Tree::List(routes))
            },
        },
        "of a mesh: ways through it, `[[\"a\", \"b\", \"c\"]]`, used in both directions",
    )
    .or("nodes that hear each other send directly")],
    default: Wifi::default,
    needs: None,
    finish: |_, _| Ok(()),
};

/// A node's name as a value.
pub(super) fn text(name: &str) -> Tree {
    Tree::Text(name.to_owned())
}

fn routes(wifi: &mut Wifi, value: &Tree) -> Result<(), Error> {
    let shape =
        || Error::new("not a list of routes").remedy("write routes = [[\"a\", \"b\", \"c\"]]");
    if !wifi.mesh {
        return Err(
            Error::new("only a mesh has routes").remedy("write mode = \"mesh\", or leave them out")
        );
    }
    let Tree::List(routes) = value else {
        return Err(shape());
    };
    for route in routes {
        let names = names(route)?;
        let nodes: Vec<u16> = names
            .iter()
            .map(|n| wifi.find(n))
            .collect::<Result<_, _>>()?;
        let mut seen = nodes.clone();
        seen.sort_unstable();
        seen.dedup();
        if nodes.len() < 2 || seen.len() < nodes.len() {
            return Err(Error::new("a route has at least two nodes, each once")
                .remedy("write routes = [[\"a\", \"b\", \"c\"]]"));
        }
        if let Some(pair) = nodes.windows(2).find(|p| !wifi.hear(p[0], p[1])) {
            let (a, b) = (wifi.name(pair[0]), wifi.name(pair[1]));
            return Err(Error::new(format!("{a} and {b} do not hear each other"))
                .remedy("lead the route over nodes that do"));
        }
        wifi.routes.push(nodes);
    }
    Ok(())
}

/// A list of nodes' names.
pub(super) fn names(value: &Tree) -> Result<Vec<String>, Error> {
    let shape =
        || Error::new("not a list of nodes").remedy("write a list of names, such as [\"ap\"]");
    let Tree::List(items) = value else {
        return Err(shape());
    };
    let name = |item: &Tree| item.text().map(str::to_owned).ok_or_else(shape);
    items.iter().map(name).collect()
}

/// Keys that all nodes share.
pub(in crate::scenario) static AIR: Section<Wifi> = Section {
    keys: &[
        key(
            "width",
            Field::Other {
                syntax: "20|40",
                set: |w, text| {
                    w.phy.wide = match text {
                        "20" => false,
                        "40" => true,
                        _ => {
                            return Err(Error::new(format!(
                                "\"{text}\" is not a width of 802.11n"
                            ))
                            .remedy("write 20 or 40 (MHz)"));
                        }
                    };
                    Ok(())
                },
                get: |w| if w.phy.wide { "40" } else { "20" }.to_owned(),
            },
            "width of the channel, MHz",
        ),
        key(
            "guard",
            Field::Choice {
                what: "guard interval",
                words: "long|short",
                set: |w, word| w.phy.short_gi = word == "short",
                get: |w| match w.phy.short_gi {
                    true => "short",
                    false => "long",
                },
            },
            "guard interval: 800 or 400 ns",
        ),
        key(
            "ampdu_frames",
            Field::Count(|w| &mut w.aggregation.frames, 1, 64),
            "largest number of MPDUs in an A-MPDU; a PPDU lasts at most 5.484 ms",
        ),
        key(
            "ampdu_bytes",
            Field::Count(|w| &mut w.aggregation.bytes, 1, LARGEST_AMPDU),
            "largest A-MPDU, bytes",
        ),
        // After `ampdu_frames`, which is 1 without aggregation.
        key(
            "ampdu",
            Field::Switch {
                off: "",
                set: |w, on| {
                    if !on {
                        w.aggregation.frames = 1;
                    }
                },
                get: |w| w.aggregation.frames > 1,
            },
            "frames are aggregated to A-MPDUs",
        ),
        key(
            "amsdu",
            Field::Other {
                syntax: "0|3839|7935",
                set: |w, text| {
                    w.aggregation.amsdu = match units::parse_count(text)? {
                        n @ (0 | 3839 | 7935) => num::low_u32(n),
                        _ => {
                            return Err(Error::new(format!("\"{text}\" is not a size of A-MSDUs"))
                                .remedy("write 3839 or 7935 (bytes), or 0 for none"));
                        }
                    };
                    Ok(())
                },
                get: |w| w.aggregation.amsdu.to_string(),
            },
            "bytes of an A-MSDU; 0: none; 7935 only without A-MPDUs",
        ),
        key(
            "hardware",
            Field::Count(|w| &mut w.aggregation.hardware, 1, 64),
            "PPDUs in the hardware below the queue, including the one on the air",
        ),
        key(
            "late",
            Field::Flag(|w| &mut w.aggregation.late, ""),
            "frames that arrive while a PPDU waits for the channel are added to it (ns-3, firmware that aggregates by itself); false: a PPDU contains the frames that were there when the hardware got it (ath9k)",
        ),
        key(
            "serve",
            Field::Choice {
                what: "order of service",
                words: "airtime|round_robin",
                set: |w, word| {
                    w.serve = match word {
                        "round_robin" => Serve::RoundRobin,
                        _ => Serve::Airtime,
                    }
                },
                get: |w| match w.serve {
                    Serve::RoundRobin => "round_robin",
                    Serve::Airtime => "airtime",
                },
            },
            "order of neighbours: mac80211's airtime deficits, or one PPDU each",
        ),
        key(
            "retries",
            Field::Other {
                syntax: "N|unlimited",
                set: |w, text| {
                    w.access.retries = match text {
                        "unlimited" => None,
                        text => Some(num::low_u32(field::count(text, 1, 255)?)),
                    };
                    Ok(())
                },
                get: |w| match w.access.retries {
                    Some(n) => n.to_string(),
                    None => "unlimited".to_owned(),
                },
            },
            "largest number of transmissions of an MPDU",
        ),
        key(
            "rts",
            Field::Other {
                syntax: "true|false|BYTES",
                set: |w, text| {
                    w.access.rts = match text {
                        "true" => Some(0),
                        "false" => None,
                        text => Some(num::low_u32(field::size(text, 0, LARGEST_AMPDU.into())?)),
                    };
                    Ok(())
                },
                get: |w| match w.access.rts {
                    Some(n) => n.to_string(),
                    None => "false".to_owned(),
                },
            },
            "RTS and CTS precede data; a number: data of at least that many bytes",
        ),
        key::<Wifi>(
            "aifsn",
            Field::MaybeCount(|w| &mut w.access.aifsn, 1, 15),
            "slots of idle channel before the backoff",
        )
        .or(EACH),
        key::<Wifi>(
            "cwmin",
            Field::MaybeCount(|w| &mut w.access.cwmin, 0, 32_767),
            "smallest contention window, slots",
        )
        .or(EACH),
        key::<Wifi>(
            "cwmax",
            Field::MaybeCount(|w| &mut w.access.cwmax, 0, 32_767),
            "largest contention window, slots",
        )
        .or(EACH),
        key(
            "eifs",
            Field::Flag(|w| &mut w.access.eifs, ""),
            "nodes that could not decode a frame wait for EIFS; false: all wait the same time after a collision, as in Bianchi's model",
        ),
        key(
            "countdown",
            Field::Choice {
                what: "countdown",
                words: "edca|dcf",
                set: |w, word| {
                    w.access.countdown = match word {
                        "dcf" => Countdown::Dcf,
                        _ => Countdown::Edca,
                    }
                },
                get: |w| match w.access.countdown {
                    Countdown::Edca => "edca",
                    Countdown::Dcf => "dcf",
                },
            },
            "`edca`: a slot of the backoff counts when it begins; `dcf`: when it has passed",
        ),
    ],
    default: Wifi::default,
    needs: None,
    finish: |w, table| match (w.aggregation.frames, w.aggregation.amsdu) {
        (2.., 7935) => {
            let error = Error::new("an A-MPDU has room for A-MSDUs of 3839 bytes, not of 7935");
            let remedy = "write amsdu = 3839, or ampdu = false";
            Err(table.error("amsdu", error.remedy(remedy)))
        }
        _ => Ok(()),
    },
};

const EACH: &str = "each access category's own";

pub(in crate::scenario) static NOISE: Section<Noise> = Section {
    keys: &[
        key(
            "loss",
            Field::Probability(|n| &mut n.loss),
            "probability that a noisy moment destroys an MPDU or an acknowledgement",
        ),
        key(
            "quiet",
            Field::Time(
                |n| &mut n.quiet,
                US,
                Duration::from_nanos(MAX_DURATION.as_nanos() / 64),
            ),
            "mean length of the quiet times, exponential",
        ),
        key(
            "noisy",
            Field::Time(
                |n| &mut n.noisy,
                US,
                Duration::from_nanos(MAX_DURATION.as_nanos() / 64),
            ),
            "mean length of the noisy times, exponential",
        ),
    ],
    default: Noise::default,
    needs: None,
    finish: |_, _| Ok(()),
};
