//! A scenario as the simulator takes it: plain values, checked, with every default filled in.

use quell_link::Error;
use quell_link::bottleneck::Shaper;
use quell_link::server::Rate;
use quell_qdisc::parts::framing::{Cells, Framing};
use quell_qdisc::{MS, Nanos, SEC};

use super::traffic::FlowKind;
use super::wifi;

/// A checked scenario with every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name (default: the file's stem).
    pub name: String,
    /// Simulated time.
    pub duration: Nanos,
    /// Left out of every statistic.
    pub warmup: Nanos,
    /// Runs per queue.
    pub seeds: u32,
    /// From which run k's own seed is derived.
    pub seed: u64,
    /// The bottleneck.
    pub link: Link,
    /// The other direction; `None`: ACKs meet no queue.
    pub up: Option<Link>,
    /// Further queues behind the bottleneck, in order; their `delay` adds to the path.
    pub hops: Vec<Link>,
    /// A cell in place of the bottleneck; `link` then holds the words of its queues and the rate of
    /// its first two nodes.
    pub wifi: Option<wifi::Wifi>,
    /// Traffic.
    pub flows: Vec<Flow>,
}

/// A link's framing as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct FramingWords {
    /// Keywords of `tc-cake(8)`, with blanks between them.
    pub words: String,
    /// What they mean.
    pub framing: Framing,
}

impl FramingWords {
    /// Reads keywords and what they mean: `overhead BYTES`, `mpu BYTES`, `atm`, `ptm`, `noatm`. As
    /// in `cake`, keywords add to an overhead before them, and an overhead replaces what is before
    /// it.
    ///
    /// # Errors
    /// If there is no such keyword, or none at all, or a number is out of range.
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

/// Bytes behind a word, at most 256 as in `tc`.
fn bytes(word: &str, text: Option<&&str>, least: i32) -> Result<i32, Error> {
    let number = text.and_then(|text| text.parse().ok());
    number.filter(|n| (least..=256).contains(n)).ok_or_else(|| {
        let what = format!("`{word}` has no number of bytes behind it");
        Error::new(what).remedy(format!("write {word} {least} to {word} 256"))
    })
}

/// One queue and the link behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// What it offers.
    pub rate: Rate,
    /// One way.
    pub delay: Nanos,
    /// How packets leave.
    pub shaper: Shaper,
    /// Link-layer bytes per packet that count at the rate.
    pub overhead: u32,
    /// What the link makes of an IP packet; `None`: `overhead` says all.
    pub framing: Option<FramingWords>,
    /// Packets of plain FIFO below the discipline.
    pub nic: u32,
    /// Random loss behind the queue, 0..1.
    pub loss: f64,
    /// Queue words, checked.
    pub queue: String,
    /// What a modem or base station on the network's side of the queue offers; `None`: there is
    /// none.
    pub modem: Option<Rate>,
    /// Bytes that the modem's FIFO holds (default [`MODEM_BUFFER`]).
    pub modem_buffer: Option<u64>,
}

/// Bytes that a modem's FIFO holds by default: seconds of a slow line.
pub const MODEM_BUFFER: u64 = 3_000_000;

/// Which way a flow's data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Through the bottleneck `[link]`.
    Down,
    /// Through `[link.up]`.
    Up,
}

/// A table of like flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// What records call it; empty: nothing.
    pub name: String,
    /// What it sends.
    pub kind: FlowKind,
    /// How many of them.
    pub count: u32,
    /// Base round trip without queuing.
    pub rtt: Nanos,
    /// When the first starts.
    pub start: Nanos,
    /// When it stops; `None`: never.
    pub stop: Option<Nanos>,
    /// Each starts uniformly within this much of `start`.
    pub stagger: Nanos,
    /// Which way the data goes.
    pub direction: Direction,
    /// The first queue of the path that it passes (0 is `[link]`) and the last.
    pub hops: (u32, u32),
    /// Where it goes in a cell.
    pub ends: Option<wifi::Ends>,
    /// The host behind the bottleneck; `None`: one for each base round trip and ECN setting.
    pub host: Option<String>,
    /// The host at the other end; `None`: one for all.
    pub to_host: Option<String>,
    /// The DSCP of its data.
    pub dscp: u8,
    /// The firewall's mark of its packets.
    pub fwmark: u32,
}

/// What holds where a file has no key.
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

/// All but the rate, which every link has to name, is what a file means that does not say it.
impl Default for Link {
    fn default() -> Self {
        Self {
            rate: Rate::Constant(1),
            delay: 0,
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

/// Over links without a delay.
impl Default for Flow {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: FlowKind::default(),
            count: 4,
            rtt: 20 * MS,
            start: 0,
            stop: None,
            stagger: 0,
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
