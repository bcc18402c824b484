//! Each packet's fate in Linux's disciplines, and in ours after the same arrivals and dequeues.
//!
//! `benches/fuzz/run` makes such sequences and has Linux 7.2 write them down; those in `tests/data/fates` stay.
//! A file has for each sequence a line `queue WORDS`, then events in order of time: `+ NS BYTES FLOW ECN NUMBER` when a packet
//! arrived, `- NS NUMBER ECN` when it left, and `! NS WORDS` when the options changed. A packet that never leaves was dropped. What
//! Linux sorts into classes by SO_PRIORITY, quell sorts by the mark: the flow's number and one.

use std::path::{Path, PathBuf};

use quell_link::Queue;
use quell_qdisc::disciplines::Params;
use quell_qdisc::packet::TestPacket;
use quell_qdisc::{
    Discipline, DropCause, Drops, Ecn, Got, Knobs, Labels, Nanos, Qdisc, Rng, codel,
};

/// The owner of the packets, who knows their flows by their numbers.
#[derive(Default)]
struct Owner {
    flows: Vec<u32>,
}

impl Drops<TestPacket> for Owner {
    fn drop(&mut self, _now: Nanos, _packet: TestPacket, _cause: DropCause) {}
    fn labels(&self, packet: &TestPacket) -> Labels {
        Labels {
            mark: self.flows[packet.id as usize] + 1,
            ..Labels::default()
        }
    }
}

/// A hash of which a flow queue takes this bucket of so many.
fn hash_of(bucket: u64, buckets: u64) -> u32 {
    u32::try_from((bucket << 32).div_ceil(buckets)).expect("a bucket that there is")
}

/// Linux's CoDel counts time in units of 1024 ns, ours in nanoseconds. With such units in their place both calculate alike.
fn in_units(params: &mut codel::Params) -> Nanos {
    params.target >>= 10;
    params.interval >>= 10;
    params.ce_threshold = params.ce_threshold.map(|t| t >> 10);
    1024
}

struct Replay {
    words: String,
    queue: Qdisc<TestPacket>,
    /// Nanoseconds that the discipline takes for one.
    unit: Nanos,
    /// How far beside a dequeue, in units, the stamp of its departure may lie.
    slack: Nanos,
    /// When the last event was, and the last dequeue that was tried.
    last: Nanos,
    tried: Nanos,
    buckets: u64,
    rng: Rng,
    owner: Owner,
    /// What differed first, if anything.
    differs: Option<String>,
}

impl Replay {
    fn new(words: &str) -> Self {
        let queue = Queue::parse(words).unwrap_or_else(|e| panic!("{words}: {e}"));
        let mut params = queue.build(10_000_000).queue;
        let (unit, slack, buckets) = match &mut params {
            Params::Codel(p) => (in_units(p), 1, 1024),
            Params::FqCodel(p) => (in_units(&mut p.codel), 1, u64::from(p.flows)),
            // It looks at the time itself, and that of the guest advances by 256 ns.
            Params::Htb(_) => (1, 256, 1024),
            _ => (1, 0, 1024),
        };
        Self {
            words: words.to_owned(),
            queue: Qdisc::new(params),
            unit,
            slack,
            last: 0,
            tried: 0,
            buckets,
            rng: Rng::new(1, "fates"),
            owner: Owner::default(),
            differs: None,
        }
    }

    /// Linux changed the options. A queue of ours that works has its limit changed alone.
    fn change(&mut self, words: &str) {
        let Params::Fifo(fifo) = Queue::parse(words).expect(words).build(10_000_000).queue else {
            panic!("{words}: only a limit in packets changes");
        };
        self.queue.set_knobs(&Knobs {
            limit_packets: Some(fifo.limit_packets),
            ..Knobs::KEEP
        });
    }

    fn event(&mut self, line: &str) {
        let mut fields = line.splitn(3, ' ');
        if let (Some("!"), Some(words)) = (fields.next(), fields.nth(1)) {
            return self.change(words);
        }
        let mut fields = line.split(' ');
        let kind = fields.next();
        let mut number = || {
            fields
                .next()
                .and_then(|f| f.parse::<u64>().ok())
                .expect(line)
        };
        let ns = number();
        let at = (ns / self.unit).max(self.last);
        self.queue.run_timers(at);
        match kind {
            Some("+") => {
                let (len, flow, ecn, id) = (number(), number(), number(), number());
                let hash = hash_of(flow, self.buckets);
                let packet = TestPacket::new(id, len as u32, hash, Ecn::from_bits(ecn as u8));
                self.owner.flows.push(flow as u32);
                self.last = at;
                self.queue
                    .enqueue(at, packet, &mut self.rng, &mut self.owner);
            }
            _ => {
                let linux = Some((number(), Ecn::from_bits(number() as u8)));
                let before = self.queue.clone();
                let mut ours = self.dequeue(at);
                let earlier = at.saturating_sub(self.slack).max(self.last);
                for near in [at + self.slack, earlier] {
                    if ours != linux && self.slack > 0 {
                        self.queue = before.clone();
                        ours = self.dequeue(near);
                    }
                }
                self.last = self.tried;
                if ours != linux {
                    self.differs = Some(format!("at {ns} ns Linux sent {linux:?}, quell {ours:?}"));
                }
            }
        }
    }

    fn dequeue(&mut self, at: Nanos) -> Option<(u64, Ecn)> {
        self.tried = at;
        match self.queue.dequeue(at, &mut self.rng, &mut self.owner) {
            Got::Packet(p) => Some((p.id, p.ecn)),
            _ => None,
        }
    }

    fn end(&mut self) {
        if self.differs.is_none() && !self.queue.is_empty() {
            self.differs = Some(format!(
                "{} packets that Linux dropped are left",
                self.queue.len()
            ));
        }
    }
}

/// The sequences of a file, how many and what differs.
fn replay(file: &Path) -> (usize, Vec<String>) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let (mut count, mut differ) = (0, Vec::new());
    let text = format!("\n{text}");
    for sequence in text.split("\nqueue ").skip(1) {
        let mut lines = sequence.lines();
        let mut replay = Replay::new(lines.next().expect("words"));
        for line in lines {
            replay.event(line);
            if replay.differs.is_some() {
                break;
            }
        }
        replay.end();
        if let Some(what) = replay.differs {
            differ.push(format!("sequence {count}, {}: {what}", replay.words));
        }
        count += 1;
    }
    (count, differ)
}

/// The files that stay, or the one that `QUELL_FATES` names.
#[test]
fn every_packet_has_the_fate_that_it_has_in_linux() {
    let named = std::env::var_os("QUELL_FATES").map(PathBuf::from);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fates");
    let files = named.map_or_else(
        || {
            let found = std::fs::read_dir(&folder).expect("a folder").flatten();
            found.map(|entry| entry.path()).collect()
        },
        |file| vec![file],
    );
    let (mut count, mut differ) = (0, Vec::new());
    for file in files {
        let (n, found) = replay(&file);
        count += n;
        differ.extend(found);
    }
    println!("{} of {count} sequences agree", count - differ.len());
    assert!(count > 0, "no sequences");
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
