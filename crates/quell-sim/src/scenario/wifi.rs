//! An 802.11n cell as the simulator reads it from a scenario.

use std::sync::Arc;

use quell_link::Error;
use quell_qdisc::{MS, Nanos, num};

use crate::wifi::phy::{LARGEST_AMPDU, Phy};

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Wifi {
    /// The nodes; in `ap` mode the first one is the access point.
    pub nodes: Vec<Node>,
    /// Mesh: no access point; nodes send to each other, or along routes.
    pub mesh: bool,
    /// Routes through a mesh, each a list of nodes.
    pub routes: Vec<Vec<u16>>,
    /// Width of the channel and guard interval.
    pub phy: Phy,
    /// What goes into a PPDU.
    pub aggregation: Aggregation,
    /// Rules of access.
    pub access: Access,
    /// Order in which the access point serves its stations.
    pub serve: Serve,
    /// Bursts of noise.
    pub noise: Option<Noise>,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name in flows.
    pub name: String,
    /// Rate of frames to and from a station, or from a node of a mesh.
    pub rate: Rate,
    /// Losses of these frames.
    pub loss: Loss,
    /// Words of its queues; `None`: the scenario's.
    pub queue: Option<String>,
    /// The nodes that it hears; `None`: all.
    pub hears: Option<Vec<u16>>,
}

/// How the rate is chosen.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Rate {
    /// One MCS, 0 to 31.
    Fixed(u8),
    /// (from, MCS), ascending, the first at 0.
    Schedule(Arc<[(Nanos, u8)]>),
    /// As mac80211's Minstrel, among the rates of this many streams.
    Minstrel {
        /// 1 to 4.
        streams: u8,
    },
}

/// How often the air loses an MPDU.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
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
    /// PPDUs in the hardware, including the one on the air.
    pub hardware: u32,
    /// Frames that arrive while a PPDU waits for the channel are added to it.
    pub late: bool,
}

/// Rules of channel access.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// Transmissions of one MPDU; `None`: without limit.
    pub retries: Option<u32>,
    /// Nodes that could not decode a frame wait for EIFS, and senders for the timeout of the ACK.
    /// False: as in Bianchi's model.
    pub eifs: bool,
    /// When the backoff counts.
    pub countdown: Countdown,
    /// RTS and CTS precede data of at least this many bytes.
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

/// Access categories, in order of priority.
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
    /// The same flow in the other direction.
    pub fn turned(&self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            ..*self
        }
    }
}

impl Wifi {
    /// Whether two nodes hear each other: each must have the other in `hears`.
    pub fn hear(&self, a: u16, b: u16) -> bool {
        let one = |a: u16, b: u16| {
            let hears = &self.nodes[usize::from(a)].hears;
            hears.as_ref().is_none_or(|list| list.contains(&b))
        };
        a != b && one(a, b) && one(b, a)
    }

    /// The node whose rate and losses apply between two neighbours: the station, in a mesh the
    /// sender.
    pub fn station(&self, from: u16, to: u16) -> &Node {
        let which = if !self.mesh && from == 0 { to } else { from };
        &self.nodes[usize::from(which)]
    }

    /// The nodes that a packet passes, both ends included.
    ///
    /// # Errors
    /// If no route leads there.
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

    pub(super) fn name(&self, node: u16) -> &str {
        &self.nodes[usize::from(node)].name
    }

    pub(super) fn find(&self, name: &str) -> Result<u16, Error> {
        let at = self.nodes.iter().position(|n| n.name == name);
        at.map(num::index_u16)
            .ok_or_else(|| Error::unknown("node", name, self.nodes.iter().map(|n| n.name.as_str())))
    }

    /// The rate of the first frames between two neighbours and how it changes, bit/s.
    pub fn offered(&self, from: u16, to: u16) -> quell_link::server::Rate {
        use quell_link::server::Rate as Link;
        match &self.station(from, to).rate {
            Rate::Fixed(mcs) => Link::Constant(self.phy.rate_bps(*mcs)),
            Rate::Minstrel { streams } => Link::Constant(self.phy.rate_bps(8 * streams - 1)),
            Rate::Schedule(steps) => {
                let steps = steps.iter().map(|(t, mcs)| (*t, self.phy.rate_bps(*mcs)));
                Link::Schedule(steps.collect())
            }
        }
    }
}

/// A cell without nodes.
impl Default for Wifi {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            mesh: false,
            routes: Vec::new(),
            phy: Phy {
                wide: false,
                short_gi: false,
            },
            aggregation: Aggregation {
                frames: 64,
                bytes: LARGEST_AMPDU,
                amsdu: 0,
                hardware: 2,
                late: false,
            },
            access: Access {
                retries: Some(7),
                eifs: true,
                countdown: Countdown::Edca,
                rts: None,
                aifsn: None,
                cwmin: None,
                cwmax: None,
            },
            serve: Serve::Airtime,
            noise: None,
        }
    }
}

impl Default for Node {
    fn default() -> Self {
        Self {
            name: String::new(),
            rate: Rate::Fixed(7),
            loss: Loss::Fixed([0.0; 8]),
            queue: None,
            hears: None,
        }
    }
}

impl Default for Noise {
    fn default() -> Self {
        Self {
            loss: 1.0,
            quiet: 100 * MS,
            noisy: 10 * MS,
        }
    }
}
