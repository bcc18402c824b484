//! Compares each packet's fate in Linux's disciplines and in quell's, for the same arrivals and
//! dequeues.
//!
//! `benches/fuzz/run` makes such sequences and records them in Linux 7.2; some are kept in
//! `tests/data/fates`. A file has for each sequence a line `queue WORDS`, then events in order of
//! time: `+ NS BYTES FLOW ECN NUMBER` when a packet arrived (for `cake` followed by
//! ` SOURCE DESTINATION DSCP MARK`, and for TCP by the acknowledgment number, plus 2^32 for ECE),
//! `- NS NUMBER ECN` when it left, and `! NS WORDS` when the options changed. A packet that never
//! leaves was dropped. Linux classifies by SO_PRIORITY, quell by the mark, which is the flow's
//! number plus one.
//!
//! CAKE rounds quanta at random, and timestamps differ from the times at which Linux read its
//! clock. A queue to which either applies therefore runs in many copies with different random
//! numbers and times; copies that differ from Linux are replaced by copies of those that do not. A
//! sequence agrees if some are left at its end: quell's rules allow what Linux did.

use std::path::{Path, PathBuf};

use quell_link::Queue;
use quell_qdisc::disciplines::Params;
use quell_qdisc::packet::TestPacket;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, NEVER};
use quell_qdisc::{
    Acknowledgment, Dequeued, Discipline, DropCause, Drops, Ecn, Knobs, Labels, Qdisc, Rng, codel,
};

/// Numbers of copies of a queue that draws at random or reads the clock; the next is tried if one
/// does not suffice.
const COPIES: [usize; 4] = [1, 8, 64, 512];
/// Number of times near its timestamp at which a departure is tried.
const TRIES: usize = 5;

/// Length of a pure ACK with the Ethernet header, bytes.
const PURE: u64 = 54;

/// The owner of the packets: their headers, by packet number.
#[derive(Default)]
struct Owner {
    headers: Vec<(Labels, Option<Acknowledgment>)>,
}

impl Owner {
    /// Notes the headers of the next packet; `rest` are the fields that follow its number.
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
    fn drop(&mut self, _now: Instant, _packet: TestPacket, _cause: DropCause) {}
    fn labels(&self, packet: &TestPacket) -> Labels {
        self.headers[packet.id as usize].0
    }
    fn acknowledgment(&self, packet: &TestPacket) -> Option<Acknowledgment> {
        self.headers[packet.id as usize].1
    }
}

/// The hash of an address. CAKE takes the exclusive or of two as the hash of a pair.
fn address(number: u64) -> u32 {
    (number as u32 + 1).wrapping_mul(0x9e37_79b1)
}

/// A hash for which a queue of `buckets` takes this bucket. 0 buckets: for CAKE, which takes the
/// remainder.
fn hash_of(bucket: u64, buckets: u64) -> u32 {
    if buckets == 0 {
        return bucket as u32;
    }
    u32::try_from((bucket << 32).div_ceil(buckets)).expect("a bucket that there is")
}

/// Linux's CoDel counts time in units of 1024 ns, quell's in nanoseconds. Converts the parameters
/// to these units, so that both calculate alike; returns the unit, ns.
fn in_units(params: &mut codel::Params) -> u64 {
    params.target /= 1024;
    params.interval /= 1024;
    params.ce_threshold = params.ce_threshold.map(|t| t / 1024);
    1024
}

/// A queue with its random numbers.
#[derive(Clone)]
struct Copy {
    queue: Qdisc<TestPacket>,
    rng: Rng,
    /// Random numbers for the errors of timestamps.
    clock: Rng,
    /// Time of the last event.
    last: Instant,
    /// Time of the next call, as a call without a packet returned it.
    due: Instant,
}

impl Copy {
    /// Makes the calls up to this time that returned no packet in Linux: they have effects on
    /// classes.
    fn call(&mut self, until: Instant, owner: &mut Owner) {
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

    /// A random time of at most `most`.
    fn off(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(u64::from(self.clock.u32()) % (most.as_nanos() + 1))
    }

    fn dequeue(&mut self, at: Instant, owner: &mut Owner) -> Option<(u64, Ecn)> {
        self.last = at;
        match self.queue.dequeue(at, &mut self.rng, owner) {
            Dequeued::Packet(p) => Some((p.id, p.ecn)),
            _ => None,
        }
    }

    /// The packet that it sends. This is the one that Linux sent if it can send that at a tried
    /// time within `slack` of the timestamp.
    fn sends(
        &mut self,
        linux: Option<(u64, Ecn)>,
        (at, slack): (Instant, Duration),
        owner: &mut Owner,
    ) -> Option<(u64, Ecn)> {
        if slack == Duration::ZERO {
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

/// The copies of a queue through which a sequence runs.
struct Replay {
    copies: Vec<Copy>,
    /// Number of streams of random numbers used so far.
    streams: u64,
    /// Unit of the discipline's time, ns.
    unit: u64,
    /// Largest error of a departure's timestamp, in units.
    slack: Duration,
    /// Whether calls without a packet have effects.
    calls: bool,
    /// See [`hash_of`].
    buckets: u64,
    owner: Owner,
    /// The first difference, if any.
    differs: Option<String>,
}

impl Replay {
    fn new(words: &str, copies: usize) -> Self {
        let queue = Queue::parse(words).unwrap_or_else(|e| panic!("{words}: {e}"));
        let mut params = queue.build(Rate::from_mbit(10)).queue;
        let (unit, slack, buckets) = match &mut params {
            Params::Codel(p) => (in_units(p), 1, 1024),
            Params::FqCodel(p) => (in_units(&mut p.codel), 1, u64::from(p.flows)),
            // These read the clock themselves, and the guest's clock advances in steps of 256 ns.
            Params::Htb(_) => (1, 512, 1024),
            Params::Cake(_) => (1, 512, 0),
            _ => (1, 0, 1024),
        };
        let slack = Duration::from_nanos(slack);
        let copy = |stream| Copy {
            queue: Qdisc::new(params.clone()),
            rng: Rng::new(stream, "fates"),
            clock: Rng::new(stream, "clock"),
            last: Instant::ZERO,
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

    /// Changes the options as Linux did. Only a limit in packets and CAKE's bandwidth can change.
    fn change(&mut self, words: &str) {
        let params = Queue::parse(words)
            .expect(words)
            .build(Rate::from_mbit(10))
            .queue;
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
        let at = Instant::from_nanos(numbers[0] / self.unit);
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
                    // Linux reads its clock after the sender did.
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

    /// Keeps the copies that send what Linux sent, and replaces the others by copies of them.
    fn departure(&mut self, at: Instant, linux: Option<(u64, Ecn)>) {
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
            let ns = at.as_nanos() * self.unit;
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

    /// The first difference in these events, if any.
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

/// The number of sequences in a file, and the differences.
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
            if found.is_none() || replay.slack == Duration::ZERO {
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

/// Reads the files in `tests/data/fates`, or the one that `QUELL_FATES` names.
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
