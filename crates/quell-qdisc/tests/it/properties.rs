//! What holds for every discipline under any sequence of calls: no packet is lost, invented or
//! reordered within its flow, limits hold, a packet that is not ECN-capable is never marked, a
//! clone continues alike, and nothing panics.

use crate::every;
use crate::every::{Bound, every, index};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quell_qdisc::packet::TestPacket;
use quell_qdisc::parts::flows::PACKET_MEMORY;
use quell_qdisc::time::{Duration, Instant, MS, US};
use quell_qdisc::{
    Dequeued, Discipline, DropCause, Ecn, Gauges, Knobs, Packet, Qdisc, Rng, SubGauges,
};

#[derive(Clone, Copy, Debug)]
enum Op {
    Enqueue { flow: u32, len: u32, ecn: u8 },
    Burst { flow: u32, packets: u8, ecn: u8 },
    Dequeue,
    Drain { packets: u8 },
    Wait(Duration),
    Limit(u32),
    Drop(f64),
    BaseProbability(f64),
    QueueProbability(usize, f64),
    Release,
}

fn op() -> impl Strategy<Value = Op> {
    let flow = 0u32..6;
    prop_oneof![
        10 => (flow.clone(), 20u32..=9000, 0u8..4)
            .prop_map(|(flow, len, ecn)| Op::Enqueue { flow, len, ecn }),
        3 => (flow, 1u8..60, 0u8..4)
            .prop_map(|(flow, packets, ecn)| Op::Burst { flow, packets, ecn }),
        10 => Just(Op::Dequeue),
        2 => (1u8..40).prop_map(|packets| Op::Drain { packets }),
        8 => (0..(5 * MS).as_nanos()).prop_map(|ns| Op::Wait(Duration::from_nanos(ns))),
        2 => (0..(300 * MS).as_nanos()).prop_map(|ns| Op::Wait(Duration::from_nanos(ns))),
        2 => (0..(2 * US).as_nanos()).prop_map(|ns| Op::Wait(Duration::from_nanos(ns))),
        1 => (0u32..80).prop_map(Op::Limit),
        1 => (0.0..=1.0).prop_map(Op::Drop),
        1 => (0.0..=1.0).prop_map(Op::BaseProbability),
        1 => (0usize..8, 0.0..=1.0).prop_map(|(queue, p)| Op::QueueProbability(queue, p)),
        1 => Just(Op::Release),
    ]
}

/// Hash of a flow, spread so that neither masks nor multiplication put all flows in one bucket.
fn hash(flow: u32) -> u32 {
    flow.wrapping_mul(0x9e37_79b9)
}

const ECN: [Ecn; 4] = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];

/// A discipline with its clock and random numbers, and counts that must agree with it.
#[derive(Clone)]
struct World {
    q: Qdisc<TestPacket>,
    bound: Bound,
    rng: Rng,
    now: Instant,
    /// The packets that were offered, by id.
    offered: Vec<TestPacket>,
    /// Whether each has left, by dequeue or as a drop.
    gone: Vec<bool>,
    packets: usize,
    bytes: u64,
    /// By flow and, for disciplines that queue by it, ECN field: id of the packet dequeued last,
    /// plus one.
    last: [[u64; 4]; 6],
    /// Packets that came out with a mark that they did not have before.
    marked: u64,
    /// All packets that came out; the cause of those dropped.
    log: Vec<(TestPacket, Option<DropCause>)>,
}

impl World {
    fn new(q: Qdisc<TestPacket>, bound: Bound) -> Self {
        Self {
            q,
            bound,
            rng: Rng::new(1, "properties"),
            now: Instant::ZERO,
            offered: Vec::new(),
            gone: Vec::new(),
            packets: 0,
            bytes: 0,
            last: [[0; 4]; 6],
            marked: 0,
            log: Vec::new(),
        }
    }

    fn note_departure(&mut self, packet: TestPacket, cause: Option<DropCause>) {
        let id = packet.id as usize;
        let was = self.offered[id];
        assert!(!self.gone[id], "packet {id} left twice");
        self.gone[id] = true;
        assert_eq!((packet.len, packet.hash), (was.len, was.hash));
        if packet.ecn != was.ecn {
            assert_eq!(packet.ecn, Ecn::Ce, "the ECN field only ever becomes CE");
            assert_ne!(was.ecn, Ecn::NotEct, "CE on a packet that is not ECT");
            self.marked += 1;
        }
        self.packets -= 1;
        self.bytes -= u64::from(packet.len);
        self.log.push((packet, cause));
    }

    /// Accounts for drops, then compares the counts.
    fn account_drops(&mut self, drops: Vec<(TestPacket, DropCause)>) {
        for (packet, cause) in drops {
            self.note_departure(packet, Some(cause));
        }
        assert_eq!(self.q.len(), self.packets, "in = out + dropped + queued");
        assert_eq!(self.q.bytes(), self.bytes, "the same in bytes");
        assert_eq!(self.q.is_empty(), self.packets == 0);
        assert!(self.marked <= self.q.marks());
        self.sub_queues();
    }

    /// Checks that the readings of sub-queues, if there are any, add up.
    fn sub_queues(&self) {
        let shown: Vec<_> = (0..self.q.sub_queues())
            .filter_map(|sub| self.q.sub_gauges(self.now, sub))
            .collect();
        assert_eq!(shown.len(), self.q.sub_queues());
        if shown.is_empty() {
            return;
        }
        let sum = |f: fn(&SubGauges) -> u64| shown.iter().map(f).sum::<u64>();
        assert_eq!(sum(|g| g.backlog_packets.into()), self.packets as u64);
        assert_eq!(sum(|g| g.backlog_bytes), self.bytes);
        for (sub, g) in shown.iter().enumerate() {
            assert_eq!(self.q.sub_len(sub), g.backlog_packets);
            assert!((0.0..=1.0).contains(&g.probability) && g.law.accumulated.is_finite());
            assert!(
                g.head_age <= self.now - Instant::ZERO
                    && (g.head_age == Duration::ZERO || g.backlog_packets > 0)
            );
        }
        if let Qdisc::L4s(_) = self.q {
            let lost = self.log.iter().filter(|(_, cause)| cause.is_some());
            assert_eq!(sum(|g| g.drops), lost.count() as u64);
            assert_eq!(sum(|g| g.arrivals), self.offered.len() as u64);
        }
    }

    fn limit(&self) -> u64 {
        let mut gauges = Gauges::default();
        self.q.gauges(self.now, &mut gauges);
        assert!((0.0..=1.0).contains(&gauges.probability), "{gauges:?}");
        assert!(gauges.head_age <= self.now - Instant::ZERO);
        assert!(!self.q.is_empty() || gauges.head_age == Duration::ZERO);
        u64::from(gauges.limit_packets)
    }

    fn enqueue(&mut self, flow: u32, len: u32, ecn: u8) {
        let id = self.offered.len() as u64;
        let hash = hash(flow);
        let packet = TestPacket::new(id, len, hash, ECN[usize::from(ecn)]);
        self.offered.push(packet);
        self.gone.push(false);
        let (packets, bytes) = (self.packets as u64, self.bytes);
        self.packets += 1;
        self.bytes += u64::from(len);
        let mut drops = Vec::new();
        // For half of the packets, `admit` is called first.
        let admitted = id
            .is_multiple_of(2)
            .then(|| self.q.admit(self.now, &packet));
        self.q.enqueue(self.now, packet, &mut self.rng, &mut drops);
        if let Some(Some(admission)) = admitted {
            assert_eq!(self.q.sub_queue_of(&packet), Some(admission.sub_queue));
            assert!(admission.sub_queue < self.q.sub_queues());
        }
        self.account_drops(drops);
        // A backlog above a limit that a knob has lowered must not grow.
        match self.bound {
            Bound::Packets => assert!(self.packets as u64 <= self.limit().max(packets)),
            Bound::Bytes(most) => assert!(self.bytes <= most.max(bytes)),
            Bound::Memory(most) => {
                assert!(self.bytes + self.packets as u64 * PACKET_MEMORY <= most);
            }
        }
    }

    fn dequeue(&mut self) {
        let before = self.packets;
        let mut drops = Vec::new();
        let got = self.q.dequeue(self.now, &mut self.rng, &mut drops);
        match got {
            Dequeued::Packet(packet) => {
                self.in_order(&packet);
                assert!(packet.enqueued() <= self.now);
                self.note_departure(packet, None);
            }
            Dequeued::Empty => assert_eq!(before, 0, "Empty with {before} packets queued"),
            Dequeued::NotBefore(time) => {
                assert!(time > self.now && before > 0);
                assert!(every::shapes(&self.q), "only a shaper makes packets wait");
            }
        }
        self.account_drops(drops);
    }

    fn in_order(&mut self, packet: &TestPacket) {
        if every::reorders(&self.q) {
            return;
        }
        let flow = (0..6u32)
            .position(|f| hash(f) == packet.hash)
            .expect("a hash of the test's");
        let ecn = if every::parts_flows(&self.q) {
            self.offered[packet.id as usize].ecn as usize
        } else {
            0
        };
        let last = &mut self.last[flow][ecn];
        assert!(packet.id >= *last, "reordered within flow {flow}");
        *last = packet.id + 1;
    }

    fn timers(&mut self) {
        while self.q.next_timer() <= self.now {
            let due = self.q.next_timer();
            self.q.on_timer(due);
            assert!(self.q.next_timer() > due);
        }
    }

    fn step(&mut self, op: Op) {
        self.timers();
        match op {
            Op::Enqueue { flow, len, ecn } => self.enqueue(flow, len, ecn),
            Op::Burst { flow, packets, ecn } => {
                for _ in 0..packets {
                    self.enqueue(flow, 1514, ecn);
                }
            }
            Op::Dequeue => self.dequeue(),
            Op::Drain { packets } => {
                for _ in 0..packets {
                    self.dequeue();
                }
            }
            Op::Wait(time) => self.now += time,
            Op::Limit(limit) => self.q.set_knobs(&Knobs {
                limit_packets: Some(limit),
                ..Knobs::default()
            }),
            Op::Drop(p) => self.q.set_knobs(&Knobs {
                drop: Some(p),
                ..Knobs::default()
            }),
            Op::BaseProbability(p) => self.q.set_knobs(&Knobs {
                base_probability: Some(p),
                ..Knobs::default()
            }),
            Op::QueueProbability(queue, p) => {
                let knobs = Knobs {
                    base_probability: Some(p),
                    ..Knobs::default()
                };
                self.q.set_sub_knobs(queue, &knobs);
            }
            Op::Release => self.q.set_knobs(&Knobs {
                release: true,
                ..Knobs::default()
            }),
        }
    }

    /// Checks that everything queued comes out in finite time.
    fn drain(&mut self) {
        for _ in 0..=self.packets {
            if self.packets == 0 {
                break;
            }
            self.now += 100 * MS;
            self.timers();
            self.dequeue();
        }
        assert_eq!((self.packets, self.bytes), (0, 0));
        assert!(self.gone.iter().all(|&gone| gone));
    }
}

fn hold(name: &str, q: &Qdisc<TestPacket>, bound: Bound) {
    let mut runner = TestRunner::new(Config {
        cases: 256,
        failure_persistence: None,
        ..Config::default()
    });
    let ops = (vec(op(), 1..400), any::<prop::sample::Index>());
    let outcome = runner.run(&ops, |(ops, fork)| {
        let mut world = World::new(q.clone(), bound);
        let fork = fork.index(ops.len());
        for &op in &ops[..fork] {
            world.step(op);
        }
        let mut twin = world.clone();
        for &op in &ops[fork..] {
            world.step(op);
            twin.step(op);
        }
        world.drain();
        twin.drain();
        prop_assert_eq!(&world.log, &twin.log);
        prop_assert_eq!(format!("{:?}", world.q), format!("{:?}", twin.q));
        Ok(())
    });
    if let Err(why) = outcome {
        panic!("{name}: {why}");
    }
}

#[test]
fn the_properties_hold_for_every_discipline() {
    for (name, q, bound) in every() {
        hold(name, &q, bound);
    }
}

#[test]
fn every_discipline_is_in_the_list() {
    let mut seen: Vec<usize> = every().iter().map(|(_, q, _)| index(q)).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (0..every::KINDS).collect::<Vec<_>>());
}
