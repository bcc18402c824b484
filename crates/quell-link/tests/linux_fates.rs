//! Each packet's fate in Linux's disciplines, and in ours after the same arrivals and dequeues.
//!
//! `benches/fuzz/run` makes such sequences and has Linux 7.2 write them down; those in
//! `tests/data/fates` stay. A file has for each sequence a line `queue WORDS`, then events in order
//! of time: `+ NS BYTES FLOW ECN NUMBER` when a packet arrived (for `cake` also
//! ` SOURCE DESTINATION DSCP MARK`, and in TCP what it acknowledges, plus 2^32 for ECE),
//! `- NS NUMBER ECN` when it left, and `! NS WORDS` when the options changed. A packet that never
//! leaves was dropped. What Linux sorts into classes by SO_PRIORITY, quell sorts by the mark: the
//! flow's number and one.
//!
//! CAKE rounds quanta at random, and stamps lie beside the times at which Linux looked at its
//! clock. So a queue that does the one or the other runs in many copies that draw differently,
//! random numbers and times; those that differ from Linux are replaced by copies of those that do
//! not. A sequence agrees if at its end some are left: quell's rules allow what Linux did.

use std::path::{Path, PathBuf};

use quell_link::Queue;
use quell_qdisc::disciplines::Params;
use quell_qdisc::packet::TestPacket;
use quell_qdisc::{
    Acknowledgment, Dequeued, Discipline, DropCause, Drops, Ecn, Knobs, Labels, NEVER, Nanos,
    Qdisc, Rng, codel,
};

/// Copies of a queue that draws at random or looks at the time; more where these do not suffice.
const COPIES: [usize; 4] = [1, 8, 64, 512];
/// Times beside its stamp at which a departure is tried.
const TRIES: usize = 5;

/// Bytes of an ACK with nothing else, and Ethernet's header.
const PURE: u64 = 54;

/// The owner of the packets, who knows what is in their headers by their numbers.
#[derive(Default)]
struct Owner {
    headers: Vec<(Labels, Option<Acknowledgment>)>,
}

impl Owner {
    /// Notes a packet of this flow with what stands behind its number.
    fn note(&mut self, (flow, len): (u64, u64), rest: &[u64]) {
        let [source, destination, dscp, mark, ack @ ..] = rest else {
            let mark = flow as u32 + 1;
            let labels = Labels {
                mark,
                ..Labels::default()
            };
            return self.headers.push((labels, None));
        };
        let labels = Labels {
            source: address(*source),
            destination: address(*destination + 256),
            mark: *mark as u32,
            dscp: *dscp as u8,
        };
        let acknowledgment = ack.first().map(|number| Acknowledgment {
            connection: flow,
            pure: len == PURE,
            echo: (number >> 32) as u32,
            number: *number as u32,
            ..Acknowledgment::default()
        });
        self.headers.push((labels, acknowledgment));
    }
}

impl Drops<TestPacket> for Owner {
    fn drop(&mut self, _now: Nanos, _packet: TestPacket, _cause: DropCause) {}
    fn labels(&self, packet: &TestPacket) -> Labels {
        self.headers[packet.id as usize].0
    }
    fn acknowledgment(&self, packet: &TestPacket) -> Option<Acknowledgment> {
        self.headers[packet.id as usize].1
    }
}

/// Stands for the hash of an address: CAKE takes the exclusive or of two for that of a pair.
fn address(number: u64) -> u32 {
    (number as u32 + 1).wrapping_mul(0x9e37_79b1)
}

/// A hash of which a flow queue takes this bucket of so many; of none: CAKE, which takes the
/// remainder.
fn hash_of(bucket: u64, buckets: u64) -> u32 {
    if buckets == 0 {
        return bucket as u32;
    }
    u32::try_from((bucket << 32).div_ceil(buckets)).expect("a bucket that there is")
}

/// Linux's CoDel counts time in units of 1024 ns, ours in nanoseconds. With such units in their
/// place both calculate alike.
fn in_units(params: &mut codel::Params) -> Nanos {
    params.target >>= 10;
    params.interval >>= 10;
    params.ce_threshold = params.ce_threshold.map(|t| t >> 10);
    1024
}

/// A queue with its draws.
#[derive(Clone)]
struct Copy {
    queue: Qdisc<TestPacket>,
    rng: Rng,
    /// Draws how far the stamps are off.
    clock: Rng,
    /// When the last event was.
    last: Nanos,
    /// When a call without a packet said that the next one is due.
    due: Nanos,
}

impl Copy {
    /// Makes the calls up to this time that Linux made, too, but got no packet from: they have
    /// effects on classes.
    fn call(&mut self, until: Nanos, owner: &mut Owner) {
        while self.due <= until {
            let mut called = self.clone();
            called.last = self.due.max(self.last);
            match called.queue.dequeue(called.last, &mut called.rng, owner) {
                Dequeued::NotBefore(due) if due > called.last => called.due = due,
                Dequeued::Packet(_) => return self.due = NEVER,
                _ => called.due = NEVER,
            }
            *self = called;
        }
    }

    /// At most so much, drawn.
    fn off(&mut self, most: Nanos) -> Nanos {
        u64::from(self.clock.u32()) % (most + 1)
    }

    fn dequeue(&mut self, at: Nanos, owner: &mut Owner) -> Option<(u64, Ecn)> {
        self.last = at;
        match self.queue.dequeue(at, &mut self.rng, owner) {
            Dequeued::Packet(p) => Some((p.id, p.ecn)),
            _ => None,
        }
    }

    /// What it sends, which is what Linux sent if it sends that at this time or as much later or
    /// earlier as the stamp may lie beside it.
    fn sends(
        &mut self,
        linux: Option<(u64, Ecn)>,
        (at, slack): (Nanos, Nanos),
        owner: &mut Owner,
    ) -> Option<(u64, Ecn)> {
        if slack == 0 {
            return self.dequeue(at.max(self.last), owner);
        }
        let times = [0; TRIES].map(|_| at + self.off(2 * slack) - slack);
        let before = self.clone();
        let mut sent = None;
        for near in times {
            *self = before.clone();
            sent = self.dequeue(near.max(self.last), owner);
            if sent == linux {
                break;
            }
        }
        sent
    }
}

struct Replay {
    copies: Vec<Copy>,
    /// Streams of random numbers so far.
    streams: u64,
    /// Nanoseconds that the discipline takes for one.
    unit: Nanos,
    /// How far beside a dequeue, in units, the stamp of its departure may lie.
    slack: Nanos,
    /// Calls without a packet have effects.
    calls: bool,
    buckets: u64,
    owner: Owner,
    /// What differed first, if anything.
    differs: Option<String>,
}

impl Replay {
    fn new(words: &str, copies: usize) -> Self {
        let queue = Queue::parse(words).unwrap_or_else(|e| panic!("{words}: {e}"));
        let mut params = queue.build(10_000_000).queue;
        let (unit, slack, buckets) = match &mut params {
            Params::Codel(p) => (in_units(p), 1, 1024),
            Params::FqCodel(p) => (in_units(&mut p.codel), 1, u64::from(p.flows)),
            // They look at the time themselves, and that of the guest advances by 256 ns.
            Params::Htb(_) => (1, 512, 1024),
            Params::Cake(_) => (1, 512, 0),
            _ => (1, 0, 1024),
        };
        let copy = |stream| Copy {
            queue: Qdisc::new(params.clone()),
            rng: Rng::new(stream, "fates"),
            clock: Rng::new(stream, "clock"),
            last: 0,
            due: NEVER,
        };
        Self {
            copies: (1..=copies as u64).map(copy).collect(),
            streams: copies as u64,
            unit,
            slack,
            calls: matches!(params, Params::Htb(_)),
            buckets,
            owner: Owner::default(),
            differs: None,
        }
    }

    /// Linux changed the options. A running queue here can change its limit in packets only, CAKE
    /// its bandwidth.
    fn change(&mut self, words: &str) {
        let params = Queue::parse(words).expect(words).build(10_000_000).queue;
        for copy in &mut self.copies {
            match (&params, &mut copy.queue) {
                (Params::Fifo(fifo), queue) => queue.set_knobs(&Knobs {
                    limit_packets: Some(fifo.limit_packets),
                    ..Knobs::KEEP
                }),
                (Params::Cake(cake), Qdisc::Cake(queue)) => queue.set_bandwidth(cake.bandwidth),
                _ => panic!("{words}: only a limit in packets and CAKE's bandwidth change"),
            }
        }
    }

    fn event(&mut self, line: &str) {
        let mut fields = line.splitn(3, ' ');
        if let (Some("!"), Some(words)) = (fields.next(), fields.nth(1)) {
            return self.change(words);
        }
        let numbers = line[1..].split_whitespace().map(|f| f.parse::<u64>());
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().expect(line);
        let at = numbers[0] / self.unit;
        for copy in &mut self.copies {
            copy.call(at.saturating_sub(self.slack), &mut self.owner);
            copy.queue.run_timers(at.max(copy.last));
        }
        match (line.as_bytes()[0], &numbers[1..]) {
            (b'+', &[len, flow, ecn, id, ref rest @ ..]) => {
                let hash = hash_of(flow, self.buckets);
                let packet = TestPacket::new(id, len as u32, hash, Ecn::from_bits(ecn as u8));
                self.owner.note((flow, len), rest);
                for copy in &mut self.copies {
                    // Linux looks at its clock after the sender did.
                    let later = copy.off(self.slack);
                    copy.last = (at + later).max(copy.last);
                    copy.queue
                        .enqueue(copy.last, packet, &mut copy.rng, &mut self.owner);
                    if self.calls {
                        copy.due = copy.last;
                        copy.call(copy.last, &mut self.owner);
                    }
                }
            }
            (b'-', &[id, ecn]) => self.departure(at, Some((id, Ecn::from_bits(ecn as u8)))),
            _ => panic!("{line}"),
        }
    }

    /// Keeps the copies that send what Linux sent, and makes up for the others.
    fn departure(&mut self, at: Nanos, linux: Option<(u64, Ecn)>) {
        let wanted = self.copies.len();
        let mut ours = None;
        self.copies.retain_mut(|copy| {
            ours = copy.sends(linux, (at, self.slack), &mut self.owner);
            if self.calls {
                copy.due = copy.last;
                copy.call(copy.last, &mut self.owner);
            }
            ours == linux
        });
        let left = self.copies.len();
        if left == 0 {
            let ns = at * self.unit;
            self.differs = Some(format!("at {ns} ns Linux sent {linux:?}, quell {ours:?}"));
            return;
        }
        for i in left..wanted {
            self.streams += 1;
            let like = self.copies[i % left].clone();
            self.copies.push(Copy {
                rng: Rng::new(self.streams, "fates"),
                clock: Rng::new(self.streams, "clock"),
                ..like
            });
        }
    }

    /// What differs first in these events, if anything.
    fn all(&mut self, events: &str) -> Option<String> {
        for line in events.lines() {
            self.event(line);
            if self.differs.is_some() {
                return self.differs.take();
            }
        }
        let waiting = self.copies.iter().map(|copy| copy.queue.len()).min()?;
        (waiting > 0).then(|| format!("{waiting} packets that Linux dropped are left"))
    }
}

/// The sequences of a file, how many and what differs.
fn replay(file: &Path) -> (usize, Vec<String>) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let (mut count, mut differ) = (0, Vec::new());
    let text = format!("\n{text}");
    for sequence in text.split("\nqueue ").skip(1) {
        let (words, events) = sequence.split_once('\n').expect("words and events");
        let mut found = None;
        for copies in COPIES {
            let mut replay = Replay::new(words, copies);
            found = replay.all(events);
            if found.is_none() || replay.slack == 0 {
                break;
            }
        }
        if let Some(what) = found {
            differ.push(format!("sequence {count}, {words}: {what}"));
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
