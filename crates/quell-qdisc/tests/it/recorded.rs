//! Reveals every change of a discipline's behaviour and readings: compares the fates of the same
//! packets in each kind of traffic with `data/recorded.csv`. Times and lengths lie on a grid, so
//! that laws often compare equal values.
//!
//! A row has the packets' fates (counts, and a hash of what each call returned and dropped) and
//! hashes of the readings.

use crate::{every, record};
use std::collections::VecDeque;

use crate::record::Digest;
use quell_qdisc::discipline::FastPath;
use quell_qdisc::disciplines::Params;
use quell_qdisc::packet::{SACK_BLOCKS, TestPacket};
use quell_qdisc::parts::filter::{Filter, Host};
use quell_qdisc::parts::framing::{Cells, Framing};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS};
use quell_qdisc::{
    Acknowledgment, Dequeued, Discipline, DropCause, Drops, Ecn, Gauges, Knobs, Labels, Packet,
    Qdisc, Rng, bands, cake, cebinae, choke, codel, dualpi2, fifo, fq_pie, hhf, htb, hush, l4s,
    pie, red, sfb, sfq,
};

/// A kind of traffic. In each of its ticks packets arrive and leave.
struct Traffic {
    name: &'static str,
    ticks: u32,
    tick: Duration,
    /// The number of packets that arrive in a tick is drawn from these.
    arrivals: &'static [u32],
    /// The number of packets that may leave in a tick is drawn from these.
    departures: &'static [u32],
    /// Number of flows.
    flows: u32,
    /// The length of a packet in bytes is drawn from these.
    lens: &'static [u32],
    /// The ECN field of a packet is drawn from these; of flows with a window, by flow.
    ecn: &'static [Ecn],
    /// If not 0, each flow keeps a window of packets in flight and halves it for a loss or a mark,
    /// and `arrivals` is not used.
    rtt: Duration,
    /// Whether knobs are changed.
    knobs: bool,
}

const PLAIN: Traffic = Traffic {
    name: "",
    ticks: 1000,
    tick: MS,
    arrivals: &[0, 1, 1, 2],
    departures: &[1],
    flows: 6,
    lens: &[100, 500, 1000, 1514],
    ecn: &[Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce],
    rtt: Duration::ZERO,
    knobs: false,
};

/// The kinds of traffic, which go through the same queue one after the other.
const TRAFFIC: &[Traffic] = &[
    Traffic {
        name: "sparse",
        ticks: 300,
        arrivals: &[0, 0, 1],
        departures: &[2],
        flows: 3,
        ..PLAIN
    },
    Traffic {
        name: "load",
        ..PLAIN
    },
    Traffic {
        name: "overload",
        arrivals: &[1, 2, 3],
        lens: &[1000, 1514],
        ..PLAIN
    },
    Traffic {
        name: "bursts",
        ticks: 400,
        tick: Duration::from_millis(5),
        arrivals: &[0, 0, 0, 0, 30],
        departures: &[5, 6],
        ..PLAIN
    },
    Traffic {
        name: "flood",
        arrivals: &[2],
        flows: 1,
        lens: &[1514],
        ecn: &[Ecn::NotEct],
        ..PLAIN
    },
    Traffic {
        name: "acks",
        arrivals: &[1, 2],
        flows: 4,
        lens: &[64, 64, 64, 1514],
        ecn: &[Ecn::NotEct],
        ..PLAIN
    },
    Traffic {
        name: "windows",
        ticks: 6000,
        flows: 4,
        lens: &[1514],
        ecn: &[Ecn::NotEct, Ecn::Ect0],
        rtt: Duration::from_millis(20),
        ..PLAIN
    },
    Traffic {
        name: "rests",
        ticks: 60,
        tick: Duration::from_millis(700),
        arrivals: &[0, 1, 8],
        departures: &[9],
        ..PLAIN
    },
    Traffic {
        name: "long windows",
        ticks: 4000,
        flows: 2,
        lens: &[1514],
        ecn: &[Ecn::Ect0, Ecn::Ect1],
        rtt: Duration::from_millis(100),
        ..PLAIN
    },
    Traffic {
        name: "knobs",
        knobs: true,
        ..PLAIN
    },
    Traffic {
        name: "crowd",
        ticks: 400,
        arrivals: &[2, 3],
        departures: &[2],
        flows: 100,
        lens: &[100, 1000],
        ..PLAIN
    },
    Traffic {
        name: "end",
        ticks: 100,
        arrivals: &[0],
        departures: &[3],
        ..PLAIN
    },
];

/// The owner of the packets, whose headers follow from flow, length and number.
#[derive(Default)]
struct Owner {
    dropped: Vec<(Instant, TestPacket, DropCause)>,
}

impl Drops<TestPacket> for Owner {
    fn drop(&mut self, now: Instant, packet: TestPacket, cause: DropCause) {
        self.dropped.push((now, packet, cause));
    }
    fn labels(&self, packet: &TestPacket) -> Labels {
        const DSCPS: [u8; 8] = [0, 8, 46, 34, 10, 48, 18, 1];
        Labels {
            source: packet.hash >> 8 & 3,
            destination: packet.hash >> 10 & 3,
            mark: packet.hash >> 12 & 7,
            dscp: DSCPS[packet.hash as usize >> 16 & 7],
        }
    }
    /// Packets of 64 bytes are ACKs. Every fifth has SACK blocks, one in eleven carries data, and
    /// acknowledgment numbers wrap.
    fn acknowledgment(&self, packet: &TestPacket) -> Option<Acknowledgment> {
        let id = packet.id as u32;
        (packet.len == 64).then(|| Acknowledgment {
            connection: packet.hash.into(),
            pure: !id.is_multiple_of(11),
            echo: id / 64 % 2,
            number: (id / 2)
                .wrapping_mul(1448)
                .wrapping_add(u32::MAX - 1_000_000),
            tsval: id / 8,
            tsecr: id / 16,
            sack: [(id, id + 1 + id % 3); SACK_BLOCKS],
            blocks: u8::from(id.is_multiple_of(5)),
        })
    }
}

/// A flow that keeps a window of packets in flight. `window` is in hundredths of a packet.
#[derive(Clone)]
struct Sender {
    window: u32,
    /// Packets in flight.
    under_way: u32,
    /// For packets in flight: when the sender learns of their fate, and whether they were dropped
    /// or marked.
    feedback: VecDeque<(Instant, bool)>,
    /// Time at which the window was last halved.
    halved: Instant,
}

impl Sender {
    /// Number of packets to send now.
    fn send(&mut self, now: Instant, rtt: Duration) -> u32 {
        while let Some(&(at, bad)) = self.feedback.front()
            && at <= now
        {
            self.feedback.pop_front();
            // Packets queued before this kind of traffic began are not counted in `under_way`.
            self.under_way = self.under_way.saturating_sub(1);
            match bad {
                true if now - self.halved >= rtt => {
                    self.window = (self.window / 2).max(200);
                    self.halved = now;
                }
                true => (),
                false => self.window += 10_000 / self.window,
            }
        }
        let new = (self.window / 100).saturating_sub(self.under_way);
        self.under_way += new;
        new
    }
}

/// A discipline and what drives it.
struct Bed {
    q: Qdisc<TestPacket>,
    rng: Rng,
    draw: Rng,
    now: Instant,
    next: u64,
    owner: Owner,
    senders: Vec<Sender>,
    /// Packets sent, and dropped by cause.
    counts: [u32; 4],
    packets: Digest,
    gauges: Digest,
    subs: Digest,
    tins: Digest,
    rest: Digest,
}

fn of(draw: &mut Rng, from: &[u32]) -> u32 {
    from[draw.below(from.len() as u64) as usize]
}

/// Hash of a flow, spread so that neither masks nor multiplication put all flows in one bucket.
fn hash(flow: u32) -> u32 {
    (flow + 1).wrapping_mul(0x9e37_79b9)
}

impl Bed {
    fn new(q: Qdisc<TestPacket>) -> Self {
        Self {
            q,
            rng: Rng::new(1, "queue"),
            draw: Rng::new(1, "traffic"),
            now: Instant::ZERO,
            next: 0,
            owner: Owner::default(),
            senders: Vec::new(),
            counts: [0; 4],
            packets: Digest::new(),
            gauges: Digest::new(),
            subs: Digest::new(),
            tins: Digest::new(),
            rest: Digest::new(),
        }
    }

    /// Notifies the sender of a packet of its fate a round trip later.
    fn notify(&mut self, traffic: &Traffic, packet: &TestPacket, bad: bool) {
        let flow = (0..self.senders.len()).find(|f| hash(*f as u32) == packet.hash);
        if let Some(sender) = flow.and_then(|f| self.senders.get_mut(f)) {
            sender.feedback.push_back((self.now + traffic.rtt, bad));
        }
    }

    fn account_drops(&mut self, traffic: &Traffic) {
        for (at, mut packet, cause) in std::mem::take(&mut self.owner.dropped) {
            self.counts[1 + cause as usize] += 1;
            self.notify(traffic, &packet, true);
            // The enqueue time of a packet that is dropped on arrival has no meaning.
            packet.set_enqueued(Instant::ZERO);
            self.packets.note(&(at, packet, cause));
        }
    }

    fn offer(&mut self, traffic: &Traffic, flow: u32) {
        let len = of(&mut self.draw, traffic.lens);
        let ecn = match traffic.rtt {
            Duration::ZERO => traffic.ecn[self.draw.below(traffic.ecn.len() as u64) as usize],
            // All packets of a flow have the same ECN field.
            _ => traffic.ecn[flow as usize % traffic.ecn.len()],
        };
        let packet = TestPacket::new(self.next, len, hash(flow), ecn);
        self.next += 1;
        let (now, rng, owner) = (self.now, &mut self.rng, &mut self.owner);
        match self.next % 4 {
            0 => {
                self.q.run_timers(now);
                let admitted = self.q.admit(now, &packet);
                self.packets.note(&admitted);
                self.q.enqueue(now, packet, rng, owner);
                self.packets.note(&self.q.sub_queue_of(&packet));
            }
            1 => match self.q.offer_run(now, len, 1, |_| packet, rng, owner) {
                Some(backlog) => self.packets.note(&backlog),
                None => self.packets.note(&self.q.offer(now, packet, rng, owner)),
            },
            _ => self.packets.note(&self.q.offer(now, packet, rng, owner)),
        }
        self.account_drops(traffic);
    }

    /// Asks for a packet; returns the time of the next call, if there is one.
    fn take(&mut self, traffic: &Traffic) -> Option<Instant> {
        let (got, backlog) = match self.next % 2 {
            0 => self.q.take(self.now, &mut self.rng, &mut self.owner),
            _ => {
                let mut line = None;
                let (got, backlog) =
                    self.q
                        .take_to(self.now, &mut self.rng, &mut self.owner, &mut line);
                (got.with(line), backlog)
            }
        };
        self.packets.note(&(got, backlog));
        self.account_drops(traffic);
        match got {
            Dequeued::Packet(packet) => {
                self.counts[0] += 1;
                let bad = packet.ecn == Ecn::Ce;
                self.notify(traffic, &packet, bad);
                Some(self.now)
            }
            Dequeued::Empty => None,
            Dequeued::NotBefore(time) => Some(time),
        }
    }

    fn change_knobs(&mut self) {
        let p = self.draw.below(11) as f64 / 10.0;
        let mut knobs = Knobs::KEEP;
        match self.draw.below(6) {
            0 => knobs.limit_packets = Some(of(&mut self.draw, &[1, 2, 5, 20, 60])),
            1 => knobs.drop = Some(p),
            2 => knobs.base_probability = Some(p),
            3 => knobs.rate = Some(Rate::from_mbit(of(&mut self.draw, &[1, 5, 10, 20]).into())),
            _ => knobs.release = true,
        }
        match self.draw.below(2) {
            0 => self.q.set_knobs(&knobs),
            _ => self.q.set_sub_knobs(self.draw.below(8) as usize, &knobs),
        }
    }

    fn note_state(&mut self, tick: u32) {
        let (q, now) = (&self.q, self.now);
        self.packets
            .note(&(q.len(), q.bytes(), q.is_empty(), q.marks(), q.next_timer()));
        // Shows how many random numbers it has drawn.
        self.packets.note(&self.rng.clone().u64());
        if tick.is_multiple_of(8) {
            let mut gauges = Gauges::default();
            q.gauges(now, &mut gauges);
            // The owner of the discipline counts the other gauges.
            let Gauges {
                limit_packets,
                probability,
                head_age,
                marks,
                ..
            } = gauges;
            self.gauges
                .note(&(limit_packets, probability, head_age, marks));
        }
        if tick.is_multiple_of(64) {
            for sub in 0..=q.sub_queues() {
                self.subs.note(&(q.sub_len(sub), q.sub_gauges(now, sub)));
            }
            self.tins.note(&q.tins());
            self.rest.note(&(q.policy(), q.guard(), q.wants(), own(q)));
        }
    }

    fn run(&mut self, traffic: &Traffic) {
        let senders = if traffic.rtt > Duration::ZERO {
            traffic.flows
        } else {
            0
        };
        let sender = Sender {
            window: 1000,
            under_way: 0,
            feedback: VecDeque::new(),
            halved: Instant::ZERO,
        };
        self.senders = vec![sender; senders as usize];
        let begin = self.now;
        for tick in 0..traffic.ticks {
            let end = begin + u64::from(tick + 2) * traffic.tick;
            self.now = end - traffic.tick;
            if traffic.knobs && tick % 20 == 0 {
                self.change_knobs();
            }
            for flow in 0..senders {
                let new = self.senders[flow as usize].send(self.now, traffic.rtt);
                for _ in 0..new {
                    self.offer(traffic, flow);
                }
            }
            if senders == 0 {
                for _ in 0..of(&mut self.draw, traffic.arrivals) {
                    let flow = self.draw.below(traffic.flows.into()) as u32;
                    self.offer(traffic, flow);
                }
            }
            for _ in 0..of(&mut self.draw, traffic.departures) {
                match self.take(traffic) {
                    // Calls just before the time that it named, and at that time.
                    Some(time) if self.now < time && time < end => {
                        self.now = time - Duration::from_nanos(1);
                        self.take(traffic);
                        self.now = time;
                        self.take(traffic);
                    }
                    Some(_) => (),
                    None => break,
                }
            }
            self.note_state(tick);
        }
    }
}

/// Other state that a discipline shows.
fn own(q: &Qdisc<TestPacket>) -> String {
    match q {
        Qdisc::Cebinae(q) => format!("{:?}", q.stats()),
        Qdisc::Choke(q) => format!("{:?}", q.stats()),
        Qdisc::Cobalt(q) => format!("{:?}", q.state()),
        Qdisc::Codel(q) => format!("{:?}", (q.stats(), q.state())),
        Qdisc::DualPi2(q) => format!(
            "{:?}",
            (
                q.stats(),
                q.base_probability(),
                q.low_len(),
                q.classic_len()
            )
        ),
        Qdisc::FqCodel(q) => format!("{:?}", q.stats()),
        Qdisc::Hhf(q) => format!("{:?}", q.admitted()),
        Qdisc::Hush(q) => {
            let link = q.link();
            let seen = (
                link.rate().bytes_per_sec(),
                link.round_trip(),
                link.flows(),
                link.idle(),
            );
            format!("{:?}", (q.settings(), seen, link.sent()))
        }
        Qdisc::L4s(q) => {
            let of_pair = |pair| (q.base_probability(pair), q.coupled_probability(pair));
            format!("{:?}", (of_pair(0), of_pair(1)))
        }
        Qdisc::Pie(q) => format!("{:?}", q.vars()),
        Qdisc::Red(q) => format!("{:?}", (q.stats(), q.average())),
        Qdisc::Sfb(q) => format!("{:?}", q.stats()),
        _ => String::new(),
    }
}

/// A filter that matches some of the packets.
fn filter(dscps: u64, mark: Option<u32>, source: Option<u32>) -> Filter {
    let host = source.map(|source| Host {
        name: "host".into(),
        labels: Some([source, 3 - source]),
    });
    Filter { dscps, mark, host }
}

/// Three levels of classes that lend each other what they do not use.
fn deep_tree() -> htb::Params {
    let class = |minor: u32, parent: u32, rate: u64, ceil: u64, filter| htb::Class {
        id: 1 << 16 | minor,
        parent: (parent > 0).then_some(1 << 16 | parent),
        rate: Rate::from_mbit(rate),
        ceil: Some(Rate::from_mbit(ceil)),
        burst: (minor == 6).then_some(3000),
        cburst: (minor == 6).then_some(3000),
        prio: (minor % 3) as u8,
        quantum: (minor == 4).then_some(3000),
        filter,
        queue: match minor {
            // The class has a shaper of its own.
            5 => Some(Params::Cake(cake::Params {
                bandwidth: cake::Bandwidth::Shaped(Rate::from_mbit(4)),
                ..cake::Params::default()
            })),
            // It may drop all of its packets but the last.
            6 => Some(Params::Codel(codel::Params {
                target: MS,
                interval: 2 * MS,
                ..codel::Params::default()
            })),
            _ => None,
        },
    };
    let any = Filter::default;
    htb::Params {
        default: 7,
        classes: vec![
            class(1, 0, 10, 10, any()),
            class(2, 1, 6, 10, any()),
            class(3, 1, 2, 4, filter(0, Some(1), None)),
            class(4, 2, 1, 8, filter(1, None, None)),
            class(5, 2, 2, 10, filter(0, None, Some(1))),
            class(6, 2, 3, 10, filter(1 << 46 | 1 << 34, None, None)),
            class(7, 1, 1, 2, any()),
        ],
        ..htb::Params::default()
    }
}

fn band(minor: u32, filter: Filter, queue: Option<Params>) -> bands::BandClass {
    bands::BandClass {
        id: 1 << 16 | minor,
        band: minor as u8 - 1,
        filter,
        queue,
    }
}

/// More variants: with defaults, from which the values of [`every::every`] are far, and with
/// options that it leaves out.
fn more() -> Vec<(&'static str, Params)> {
    let shaped = cake::Params {
        bandwidth: cake::Bandwidth::Shaped(Rate::from_mbit(10)),
        ..cake::Params::default()
    };
    let cake = |isolation, tins, ack_filter| {
        Params::Cake(cake::Params {
            isolation,
            tins,
            ack_filter,
            ..shaped.clone()
        })
    };
    let inner = || Some(Params::FqPie(fq_pie::Params::default()));
    let prio = bands::Params::prio();
    let red = red::Params {
        ecn: true,
        nodrop: true,
        harddrop: true,
        ..red::Params::default()
    };
    vec![
        ("codel default", Params::Codel(codel::Params::default())),
        ("pie default", Params::Pie(pie::Params::default())),
        ("fq_pie default", Params::FqPie(fq_pie::Params::default())),
        (
            "dualpi2 default",
            Params::DualPi2(dualpi2::Params::default()),
        ),
        ("l4s default", Params::L4s(l4s::Params::default())),
        ("sfb default", Params::Sfb(sfb::Params::default())),
        ("hhf default", Params::Hhf(hhf::Params::default())),
        (
            "cebinae default",
            Params::Cebinae(cebinae::Params::default()),
        ),
        (
            "cebinae count_drops",
            Params::Cebinae(cebinae::Params {
                count_drops: true,
                dt: 50 * MS,
                p: 4,
                ..cebinae::Params::default()
            }),
        ),
        ("sfq default", Params::Sfq(sfq::Params::default())),
        (
            "choke default",
            Params::Choke(choke::Params::of_limit(1000, Rate::from_mbit(10))),
        ),
        ("red default", Params::Red(red::Params::default())),
        ("red harddrop nodrop", Params::Red(red)),
        ("hush default", Params::Hush(hush::Params::default())),
        (
            "hush dry_run",
            Params::Hush(hush::Params {
                dry_run: true,
                ..hush::Params::default()
            }),
        ),
        (
            "hush mark_next, in order",
            Params::Hush(hush::Params {
                mark_next: true,
                order: hush::Order::Arrival,
                ..hush::Params::default()
            }),
        ),
        (
            "hush single dry_run",
            Params::Hush(hush::Params {
                order: hush::Order::Single,
                dry_run: true,
                ..hush::Params::default()
            }),
        ),
        (
            "cake besteffort flows ack-filter",
            cake(
                cake::Isolation::Flows,
                cake::Tins::BestEffort,
                cake::AckFilter::Filter,
            ),
        ),
        (
            "cake precedence dual-srchost ack-filter-aggressive",
            cake(
                cake::Isolation::DualSource,
                cake::Tins::Precedence,
                cake::AckFilter::Aggressive,
            ),
        ),
        (
            "cake diffserv4 dual-dsthost",
            cake(
                cake::Isolation::DualDestination,
                cake::Tins::Diffserv4,
                cake::AckFilter::Off,
            ),
        ),
        (
            "cake diffserv3 hosts",
            cake(
                cake::Isolation::Hosts,
                cake::Tins::Diffserv3,
                cake::AckFilter::Off,
            ),
        ),
        (
            "cake link srchost fwmark wash ptm",
            Params::Cake(cake::Params {
                bandwidth: cake::Bandwidth::Link(Rate::from_mbit(12)),
                isolation: cake::Isolation::SourceHost,
                fwmark: 7,
                wash: true,
                nat: true,
                framing: Framing {
                    overhead: 30,
                    mpu: 68,
                    cells: Cells::Ptm,
                },
                ..cake::Params::default()
            }),
        ),
        (
            "cake dsthost ingress raw",
            Params::Cake(cake::Params {
                isolation: cake::Isolation::DestinationHost,
                ingress: true,
                raw: true,
                target: Some(2 * MS),
                ..shaped.clone()
            }),
        ),
        ("htb, three levels", Params::Htb(deep_tree())),
        (
            "htb from outside",
            every::from_outside(Params::Htb(deep_tree())),
        ),
        (
            "cake from outside",
            every::from_outside(cake(
                cake::Isolation::Triple,
                cake::Tins::Precedence,
                cake::AckFilter::Filter,
            )),
        ),
        (
            "prio with classes",
            Params::Bands(bands::Params {
                limit: 30,
                classes: vec![
                    band(1, filter(1 << 46, None, None), inner()),
                    band(2, filter(0, Some(2), None), None),
                ],
                ..prio.clone()
            }),
        ),
        (
            "ets with classes",
            Params::Bands(bands::Params {
                strict: Some(1),
                quanta: vec![1514, 4000],
                classes: vec![
                    band(2, filter(0, None, Some(1)), inner()),
                    band(3, filter(1 << 8, None, None), None),
                ],
                ..bands::Params::ets()
            }),
        ),
        (
            "drr with classes",
            Params::Bands(bands::Params {
                bands: Some(2),
                strict: Some(0),
                quanta: vec![2000, 500],
                drr: true,
                priomap: [None; bands::PRIORITIES],
                classes: vec![
                    band(1, filter(0, Some(1), None), inner()),
                    band(2, filter(0, None, Some(2)), None),
                ],
                ..prio
            }),
        ),
        (
            "bfifo, selective",
            Params::Fifo(fifo::Params {
                limit_bytes: 20_000,
                selective: true,
                ..fifo::Params::default()
            }),
        ),
    ]
}

#[test]
fn results_of_every_discipline_equal_the_recorded_ones() {
    let head =
        "discipline,traffic,sent,overflow,early,forced,marks,packets,gauges,sub_queues,tins,rest";
    let own = every::every().into_iter().map(|(name, q, _)| (name, q));
    let more = more()
        .into_iter()
        .map(|(name, params)| (name, Qdisc::new(params)));
    let mut rows = Vec::new();
    for (name, q) in own.chain(more) {
        let mut bed = Bed::new(q);
        for traffic in TRAFFIC {
            bed.run(traffic);
            let [sent, overflow, early, forced] = bed.counts;
            rows.push(format!(
                "{},{},{sent},{overflow},{early},{forced},{},{},{},{},{},{}",
                name.replace(',', ""),
                traffic.name,
                bed.q.marks(),
                bed.packets,
                bed.gauges,
                bed.subs,
                bed.tins,
                bed.rest
            ));
        }
        assert_eq!(bed.q.failure(), None, "{name}");
    }
    record::hold("recorded.csv", head, &rows);
}
