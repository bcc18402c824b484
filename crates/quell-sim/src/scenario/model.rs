//! A scenario as the simulator uses it: plain values, checked, with all defaults filled in.

use quell_link::Error;
use quell_link::bottleneck::Shaper;
use quell_link::server::Capacity;
use quell_qdisc::parts::framing::{Cells, Framing};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, MS, SEC};

use super::traffic::FlowKind;
use super::wifi;

/// A checked scenario with all defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Name (default: the file's stem).
    pub name: String,
    /// Simulated time.
    pub duration: Duration,
    /// Time at the start that is left out of all statistics.
    pub warmup: Duration,
    /// Runs per queue.
    pub seeds: u32,
    /// Seed from which the seed of run k is derived.
    pub seed: u64,
    /// The bottleneck.
    pub link: Link,
    /// The opposite direction; `None`: ACKs pass no queue.
    pub up: Option<Link>,
    /// Further queues behind the bottleneck, in order; their `delay` adds to the path.
    pub hops: Vec<Link>,
    /// A cell in place of the bottleneck; `link` then has the words of its queues and the rate
    /// between its first two nodes.
    pub wifi: Option<wifi::Wifi>,
    /// Traffic.
    pub flows: Vec<Flow>,
}

/// A link's framing as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct FramingWords {
    /// Keywords of `tc-cake(8)`, with blanks between them.
    pub words: String,
    /// Meaning of the keywords.
    pub framing: Framing,
}

impl FramingWords {
    /// Parses keywords: `overhead BYTES`, `mpu BYTES`, `atm`, `ptm`, `noatm`, and those of `cake`.
    /// As in `cake`, keywords add to an overhead before them, and `overhead` replaces the overhead
    /// before it.
    ///
    /// # Errors
    /// If there is no keyword, a keyword is unknown, or a number is missing or out of range.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut framing = Framing::default();
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() {
            return Err(Error::new("no framing is named")
                .remedy("write framing = \"docsis\", or leave the key out"));
        }
        let mut rest = words.iter();
        while let Some(&word) = rest.next() {
            match word {
                "overhead" => framing.overhead = bytes(word, rest.next(), -64)?,
                "mpu" => framing.mpu = (bytes(word, rest.next(), 0)?).cast_unsigned(),
                "atm" => framing.cells = Cells::Atm,
                "ptm" => framing.cells = Cells::Ptm,
                "noatm" => framing.cells = Cells::None,
                _ if framing.add(word) => {}
                _ => {
                    let others = ["overhead", "mpu", "atm", "ptm", "noatm"];
                    let known = Framing::WORDS.split('|').chain(others);
                    return Err(Error::unknown("framing", word, known));
                }
            }
        }
        let words = words.join(" ");
        Ok(Self { words, framing })
    }
}

/// The number of bytes that follows a keyword: from `min` to 256, the maximum of `tc`.
fn bytes(word: &str, text: Option<&&str>, min: i32) -> Result<i32, Error> {
    let number = text.and_then(|text| text.parse().ok());
    number.filter(|n| (min..=256).contains(n)).ok_or_else(|| {
        let what = format!("`{word}` has no number of bytes behind it");
        Error::new(what).remedy(format!("write {word} {min} to {word} 256"))
    })
}

/// A queue and the link behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Rate over time.
    pub rate: Capacity,
    /// One-way delay.
    pub delay: Duration,
    /// Shaper of the link.
    pub shaper: Shaper,
    /// Link-layer overhead that counts at the rate, bytes per packet.
    pub overhead: u32,
    /// Framing of IP packets; `None`: packets have only `overhead`.
    pub framing: Option<FramingWords>,
    /// Capacity of a plain FIFO below the discipline, packets; 0: there is none.
    pub nic: u32,
    /// Random loss probability behind the queue, 0..1.
    pub loss: f64,
    /// Queue words, already checked.
    pub queue: String,
    /// Rate of a modem or base station on the network's side of the queue; `None`: no modem.
    pub modem: Option<Capacity>,
    /// Capacity of the modem's FIFO, bytes (default [`MODEM_BUFFER`]).
    pub modem_buffer: Option<u64>,
}

/// Default capacity of a modem's FIFO, bytes: several seconds on a slow line.
pub const MODEM_BUFFER: u64 = 3_000_000;

/// Direction of a flow's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Through the bottleneck `[link]`.
    Down,
    /// Through `[link.up]`.
    Up,
}

/// One or several flows with the same options.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Name in records; may be empty.
    pub name: String,
    /// Kind of traffic, with its options.
    pub kind: FlowKind,
    /// Number of flows.
    pub count: u32,
    /// Base RTT: without queuing and transmission times.
    pub rtt: Duration,
    /// Earliest start of the flows.
    pub start: Duration,
    /// Time at which the flows stop; `None`: never.
    pub stop: Option<Duration>,
    /// Each flow starts at a random time from `start` to this much later.
    pub stagger: Duration,
    /// Direction of the data.
    pub direction: Direction,
    /// First and last queue of the path that its data pass (0 is `[link]`).
    pub hops: (u32, u32),
    /// Sender and receiver in a cell.
    pub ends: Option<wifi::Ends>,
    /// Name of the host behind the bottleneck; `None`: one host per base RTT and ECN setting.
    pub host: Option<String>,
    /// Name of the host at the other end; `None`: one host for all flows.
    pub to_host: Option<String>,
    /// DSCP of the data.
    pub dscp: u8,
    /// Firewall mark of the packets.
    pub fwmark: u32,
}

/// Defaults of a file's keys.
impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "custom".to_owned(),
            duration: 60 * SEC,
            warmup: 5 * SEC,
            seeds: 5,
            seed: 1,
            link: Link::default(),
            up: None,
            hops: Vec::new(),
            wifi: None,
            flows: Vec::new(),
        }
    }
}

/// Defaults of a file's keys, except the rate, which every link must have.
impl Default for Link {
    fn default() -> Self {
        Self {
            rate: Capacity::Constant(Rate::from_bps(1)),
            delay: Duration::ZERO,
            shaper: Shaper::Line,
            overhead: 14,
            framing: None,
            nic: 0,
            loss: 0.0,
            queue: "fq_codel".to_owned(),
            modem: None,
            modem_buffer: None,
        }
    }
}

/// Defaults of a file's keys; the RTT is that for links without delay.
impl Default for Flow {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: FlowKind::default(),
            count: 4,
            rtt: 20 * MS,
            start: Duration::ZERO,
            stop: None,
            stagger: Duration::ZERO,
            direction: Direction::Down,
            hops: (0, 0),
            ends: None,
            host: None,
            to_host: None,
            dscp: 0,
            fwmark: 0,
        }
    }
}
