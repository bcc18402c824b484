//! An 802.11n cell as a scenario describes it.

use std::sync::Arc;

use quell_link::Error;
use quell_link::server::Capacity;
use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, MS};

use crate::phy::{LARGEST_AMPDU, Phy};

/// A wireless cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Wifi {
    /// The nodes; in `ap` mode the first one is the access point.
    pub nodes: Vec<Node>,
    /// Mesh mode: there is no access point; nodes send to each other directly or along routes.
    pub mesh: bool,
    /// Routes through a mesh, each a list of nodes.
    pub routes: Vec<Vec<u16>>,
    /// Channel width and guard interval.
    pub phy: Phy,
    /// Aggregation: limits of a PPDU.
    pub aggregation: Aggregation,
    /// Channel access.
    pub access: Access,
    /// Order in which the access point serves its stations.
    pub serve: Serve,
    /// Bursts of noise.
    pub noise: Option<Noise>,
}

/// A node of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name in flows.
    pub name: String,
    /// Rate of the frames to and from a station, or of those that a node of a mesh sends.
    pub rate: Rate,
    /// Loss of these frames.
    pub loss: Loss,
    /// Queue words; `None`: the scenario's.
    pub queue: Option<String>,
    /// Nodes that it hears; `None`: all.
    pub hears: Option<Vec<u16>>,
}

/// Rule by which the rate of frames is chosen.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Rate {
    /// One MCS, 0 to 31.
    Fixed(u8),
    /// Steps (start, MCS) in ascending order; the first one starts at 0.
    Schedule(Arc<[(Instant, u8)]>),
    /// As mac80211's Minstrel, among the MCSs of up to this many streams.
    Minstrel {
        /// Number of spatial streams, 1 to 4.
        streams: u8,
    },
}

/// Probability that an MPDU is lost on the channel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// These probabilities, indexed by MCS modulo 8.
    Fixed([f64; 8]),
    /// The probability that follows from this signal-to-noise ratio, dB.
    Snr(f64),
}

/// Bursts of noise, by the Gilbert-Elliott model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Probability that noise destroys an MPDU or an acknowledgement during a noisy period.
    pub loss: f64,
    /// Mean length of quiet periods.
    pub quiet: Duration,
    /// Mean length of noisy periods.
    pub noisy: Duration,
}

/// Aggregation: limits of a PPDU.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregation {
    /// Maximum number of MPDUs in an A-MPDU; 1: no aggregation.
    pub frames: u32,
    /// Maximum size of an A-MPDU, bytes.
    pub bytes: u32,
    /// Maximum size of an A-MSDU, bytes; 0: no A-MSDUs.
    pub amsdu: u32,
    /// Maximum number of PPDUs in the hardware, including the one on the air.
    pub hardware: u32,
    /// Whether frames that arrive while a PPDU waits for the channel are added to it.
    pub late: bool,
}

/// Channel access.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// Maximum number of transmissions of an MPDU; `None`: no limit.
    pub retries: Option<u32>,
    /// Whether nodes that could not decode a frame wait for EIFS, and senders for the ACK timeout.
    /// False: as in Bianchi's model, they do not.
    pub eifs: bool,
    /// Rule by which the backoff counts down.
    pub countdown: Countdown,
    /// Minimum size of data that RTS and CTS precede, bytes; `None`: no RTS.
    pub rts: Option<u32>,
    /// AIFSN in place of each category's own.
    pub aifsn: Option<u32>,
    /// Minimum contention window in place of each category's own, slots.
    pub cwmin: Option<u32>,
    /// Maximum contention window in place of each category's own, slots.
    pub cwmax: Option<u32>,
}

/// Rule by which the backoff counts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Countdown {
    /// At the start of each slot.
    Edca,
    /// At the end of each idle slot.
    Dcf,
}

/// Order in which a node serves its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serve {
    /// One PPDU each in turn.
    RoundRobin,
    /// Equal airtime, as in mac80211.
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
    /// Name in scenarios.
    pub fn word(self) -> &'static str {
        match self {
            Category::Voice => "vo",
            Category::Video => "vi",
            Category::BestEffort => "be",
        }
    }
}

/// Sender and receiver of a flow in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Node of the sender.
    pub from: u16,
    /// Node of the receiver.
    pub to: u16,
    /// The category of its data and ACKs.
    pub category: Category,
}

impl Ends {
    /// The ends of the opposite direction.
    pub fn turned(&self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            ..*self
        }
    }
}

impl Wifi {
    /// Whether two nodes hear each other: each must have the other in its `hears`.
    pub fn hear(&self, a: u16, b: u16) -> bool {
        let one = |a: u16, b: u16| {
            let hears = &self.nodes[usize::from(a)].hears;
            hears.as_ref().is_none_or(|list| list.contains(&b))
        };
        a != b && one(a, b) && one(b, a)
    }

    /// The node whose rate and loss apply between two neighbours: the station, or in a mesh the
    /// sender.
    pub fn station(&self, from: u16, to: u16) -> &Node {
        let which = if !self.mesh && from == 0 { to } else { from };
        &self.nodes[usize::from(which)]
    }

    /// The nodes on a packet's path, including both ends.
    ///
    /// # Errors
    /// If no route connects them.
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

    /// The rate between two neighbours over time; with Minstrel, that of its highest MCS.
    pub fn offered(&self, from: u16, to: u16) -> Capacity {
        match &self.station(from, to).rate {
            Rate::Fixed(mcs) => Capacity::Constant(self.phy.rate(*mcs)),
            Rate::Minstrel { streams } => Capacity::Constant(self.phy.rate(8 * streams - 1)),
            Rate::Schedule(steps) => {
                let steps = steps.iter().map(|(t, mcs)| (*t, self.phy.rate(*mcs)));
                Capacity::Schedule(steps.collect())
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
