//! Disciplines from outside: one that behaves does the same as the built-in one; one that
//! misbehaves fails at once, and the packets that it held are dropped.

use crate::every;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use quell_qdisc::disciplines::Params;
use quell_qdisc::outside::{self, AnyDiscipline, Handle};
use quell_qdisc::packet::TestPacket;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS, NEVER};
use quell_qdisc::{
    Admission, Dequeued, Discipline, DropCause, Drops, Ecn, Gauges, KnobSet, Knobs, Packet, Qdisc,
    Rng, SubGauges,
};

type Dropped = Vec<(TestPacket, DropCause)>;

#[derive(Clone, Copy, Debug)]
enum Op {
    Enqueue { flow: u32, len: u32, ecn: u8 },
    Dequeue,
    Wait(Duration),
    Limit(u32),
    Probability(f64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0u32..6, 40u32..=1514, 0u8..4).prop_map(|(flow, len, ecn)| Op::Enqueue { flow, len, ecn }),
        9 => Just(Op::Dequeue),
        6 => (0..(4 * MS).as_nanos()).prop_map(|ns| Op::Wait(Duration::from_nanos(ns))),
        1 => (1u32..80).prop_map(Op::Limit),
        1 => (0.0..=1.0).prop_map(Op::Probability),
    ]
}

/// A queue with its own random numbers, and the time.
#[derive(Clone)]
struct Driven {
    q: Qdisc<TestPacket>,
    rng: Rng,
    now: Instant,
    next: u64,
}

/// All that can be seen of a queue after a step.
type Seen = (
    Option<Dequeued<TestPacket>>,
    Dropped,
    usize,
    u64,
    u64,
    Gauges,
);

impl Driven {
    fn new(params: Params) -> Self {
        Self {
            q: Qdisc::new(params),
            rng: Rng::new(1, "outside"),
            now: Instant::ZERO,
            next: 0,
        }
    }

    fn step(&mut self, op: Op) -> Seen {
        let (mut got, mut drops) = (None, Vec::new());
        match op {
            Op::Enqueue { flow, len, ecn } => {
                let hash = flow.wrapping_mul(0x9e37_79b9);
                let packet = TestPacket::new(self.next, len, hash, Ecn::from_bits(ecn));
                self.next += 1;
                self.q.offer(self.now, packet, &mut self.rng, &mut drops);
            }
            Op::Dequeue => got = Some(self.q.take(self.now, &mut self.rng, &mut drops).0),
            Op::Wait(time) => self.now += time,
            Op::Limit(limit) => self.q.set_knobs(&Knobs {
                limit_packets: Some(limit),
                ..Knobs::KEEP
            }),
            Op::Probability(p) => self.q.set_knobs(&Knobs {
                base_probability: Some(p),
                drop: Some(p),
                ..Knobs::KEEP
            }),
        }
        let mut gauges = Gauges::default();
        self.q.gauges(self.now, &mut gauges);
        let q = &self.q;
        // The enqueue time of a packet that is dropped on arrival has no meaning.
        for (packet, _) in &mut drops {
            packet.set_enqueued(Instant::ZERO);
        }
        (got, drops, q.len(), q.bytes(), q.marks(), gauges)
    }
}

/// Other properties that a discipline shows.
fn shown(q: &Qdisc<TestPacket>) -> impl PartialEq + std::fmt::Debug + use<> {
    let lens: Vec<u32> = (0..q.sub_queues()).map(|sub| q.sub_len(sub)).collect();
    (q.tins(), q.wants(), q.knobs(), q.sub_knobs(), lens)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_discipline_does_the_same_inside_and_from_outside(ops in vec(op(), 1..400)) {
        for (name, params, _) in every::built_in() {
            let (mut inside, mut outside) = (Driven::new(params.clone()), Driven::new(every::from_outside(params)));
            for (i, &op) in ops.iter().enumerate() {
                prop_assert_eq!(inside.step(op), outside.step(op), "{}, step {}: {:?}", name, i, op);
            }
            prop_assert_eq!(outside.q.failure(), None);
            let subs = |q: &Qdisc<TestPacket>, now| (0..q.sub_queues()).map(|s| q.sub_gauges(now, s)).collect::<Vec<_>>();
            prop_assert_eq!(subs(&inside.q, inside.now), subs(&outside.q, outside.now), "{}", name);
            prop_assert_eq!(shown(&inside.q), shown(&outside.q), "{}", name);
        }
    }
}

/// What a misbehaving queue does wrong, in most cases from its fourth packet on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Misdeed {
    Nothing,
    Loses,
    LosesAndMiscounts,
    ReturnsTwice,
    DropsWhatItKeeps,
    Invents,
    NeverReturns,
    WaitsForThePast,
    WaitsForTheNextNanosecond,
    MarksWhatIsNotCapable,
    CountsWrongBytes,
    TimerNeverMovesOn,
    SaysSo,
}

/// A FIFO with one fault.
#[derive(Clone, Debug)]
struct Rogue {
    misdeed: Misdeed,
    held: VecDeque<Handle>,
    bytes: u64,
    arrivals: u32,
    last: Option<Handle>,
    lost: usize,
    failed: bool,
    /// Handles of all packets offered to any rogue that shares the list, in order.
    foreign: Arc<Mutex<Vec<Handle>>>,
}

impl Discipline<Handle> for Rogue {
    fn enqueue<D: Drops<Handle>>(
        &mut self,
        now: Instant,
        packet: Handle,
        _: &mut Rng,
        drops: &mut D,
    ) {
        assert!(!self.failed, "a queue that has failed is called no more");
        self.arrivals += 1;
        self.foreign.lock().unwrap().push(packet);
        if self.arrivals == 4 {
            match self.misdeed {
                Misdeed::Loses => return,
                Misdeed::LosesAndMiscounts => {
                    self.lost = 1;
                    self.bytes += u64::from(packet.len());
                    return;
                }
                Misdeed::DropsWhatItKeeps => drops.drop(now, packet, DropCause::Early),
                Misdeed::SaysSo => self.failed = true,
                _ => {}
            }
        }
        self.bytes += u64::from(packet.len());
        self.held.push_back(packet);
    }

    fn dequeue<D: Drops<Handle>>(
        &mut self,
        now: Instant,
        _: &mut Rng,
        _: &mut D,
    ) -> Dequeued<Handle> {
        assert!(!self.failed, "a queue that has failed is called no more");
        match (self.misdeed, self.arrivals >= 4) {
            (Misdeed::NeverReturns, true) => return Dequeued::Empty,
            (Misdeed::WaitsForThePast, true) => return Dequeued::NotBefore(now),
            (Misdeed::WaitsForTheNextNanosecond, true) => {
                return Dequeued::NotBefore(now + Duration::from_nanos(1));
            }
            (Misdeed::Invents, true) => return Dequeued::Packet(self.foreign.lock().unwrap()[0]),
            (Misdeed::ReturnsTwice, true) => {
                if let Some(packet) = self.last {
                    return Dequeued::Packet(packet);
                }
            }
            _ => {}
        }
        let Some(mut packet) = self.held.pop_front() else {
            return Dequeued::Empty;
        };
        self.bytes -= u64::from(packet.len());
        self.last = Some(packet);
        if self.misdeed == Misdeed::MarksWhatIsNotCapable {
            packet.set_ce();
        }
        Dequeued::Packet(packet)
    }

    fn len(&self) -> usize {
        self.held.len() + self.lost
    }

    fn bytes(&self) -> u64 {
        self.bytes + u64::from(self.misdeed == Misdeed::CountsWrongBytes && self.arrivals >= 4)
    }

    fn next_timer(&self) -> Instant {
        match self.misdeed {
            Misdeed::TimerNeverMovesOn if self.arrivals >= 4 => Instant::from_millis(1),
            _ => NEVER,
        }
    }

    // The tests check that these are not called after a failure.
    fn on_timer(&mut self, _: Instant) {
        assert_eq!(self.misdeed, Misdeed::TimerNeverMovesOn);
    }
    fn marks(&self) -> u64 {
        3
    }
    fn gauges(&self, _: Instant, _: &mut Gauges) {
        unreachable!("no test calls a working one");
    }
    fn knobs(&self) -> KnobSet {
        unreachable!("no test calls a working one");
    }
    fn set_knobs(&mut self, _: &Knobs) {
        unreachable!("no test calls a working one");
    }
    fn sub_queues(&self) -> usize {
        unreachable!("no test calls a working one");
    }
    fn sub_knobs(&self) -> KnobSet {
        unreachable!("no test calls a working one");
    }
    fn sub_queue_of(&self, _: &Handle) -> Option<usize> {
        unreachable!("no test calls a working one");
    }
    fn admit(&mut self, _: Instant, _: &Handle) -> Option<Admission> {
        unreachable!("no test calls a working one");
    }
    fn sub_len(&self, _: usize) -> u32 {
        unreachable!("no test calls a working one");
    }
    fn sub_gauges(&self, _: Instant, _: usize) -> Option<SubGauges> {
        unreachable!("no test calls a working one");
    }
    fn set_sub_knobs(&mut self, _: usize, _: &Knobs) {
        unreachable!("no test calls a working one");
    }

    fn failure(&self) -> Option<&str> {
        self.failed.then_some("the disk is full")
    }
}

fn rogue(misdeed: Misdeed, foreign: &Arc<Mutex<Vec<Handle>>>) -> Qdisc<TestPacket> {
    let foreign = foreign.clone();
    let make = move |_| -> Box<dyn AnyDiscipline> {
        Box::new(Rogue {
            misdeed,
            held: VecDeque::new(),
            bytes: 0,
            arrivals: 0,
            last: None,
            lost: 0,
            failed: false,
            foreign: foreign.clone(),
        })
    };
    Qdisc::new(Params::Outside(outside::Params {
        name: "Rogue".into(),
        rate: Rate::ZERO,
        make: Arc::new(make),
    }))
}

/// Offers six packets and asks for a packet six times: once after the second arrival, then every
/// two seconds. Returns what came out, what was dropped and the failure.
fn run(q: &mut Qdisc<TestPacket>) -> (Vec<u64>, Dropped, Option<String>) {
    let (mut rng, mut drops, mut out) = (Rng::new(1, "rogue"), Vec::new(), Vec::new());
    for id in 0..6 {
        let packet = TestPacket::new(id, 100 + id as u32, id as u32, Ecn::NotEct);
        q.offer(Instant::from_nanos(id), packet, &mut rng, &mut drops);
        if id == 1 {
            take(q, Instant::from_nanos(2), &mut rng, &mut drops, &mut out);
        }
    }
    for k in 1..6 {
        take(q, Instant::from_secs(2 * k), &mut rng, &mut drops, &mut out);
    }
    (out, drops, q.failure().map(str::to_owned))
}

fn take(
    q: &mut Qdisc<TestPacket>,
    now: Instant,
    rng: &mut Rng,
    drops: &mut Dropped,
    out: &mut Vec<u64>,
) {
    if let Dequeued::Packet(packet) = q.take(now, rng, drops).0 {
        out.push(packet.id);
    }
}

#[test]
fn a_queue_that_misbehaves_fails_at_once_and_stays_empty() {
    use Misdeed::*;
    for (misdeed, text) in [
        (
            Loses,
            "Rogue reports 2 packets of 203 bytes; of the packets that it was given it has neither returned nor dropped \
             3 packets of 306 bytes",
        ),
        (
            LosesAndMiscounts,
            "Rogue returned no packet though it holds 1; return a time (NotBefore) if they must wait",
        ),
        (
            ReturnsTwice,
            "Rogue returned or dropped a packet that it does not hold: for the second time, or it was never given it",
        ),
        (DropsWhatItKeeps, "Rogue reports 3 packets"),
        (
            Invents,
            "Rogue returned or dropped a packet that it does not hold",
        ),
        (
            NeverReturns,
            "Rogue returned no packet though it holds 5; return a time (NotBefore) if they must wait",
        ),
        (
            WaitsForThePast,
            "Rogue returned a time (NotBefore) that is not in the future",
        ),
        (
            MarksWhatIsNotCapable,
            "Rogue marked a packet that is not ECN-capable",
        ),
        (CountsWrongBytes, "Rogue reports 3 packets of 307 bytes"),
        (
            TimerNeverMovesOn,
            "Rogue has a timer that stays due after it has run",
        ),
        (SaysSo, "Rogue: the disk is full"),
    ] {
        let foreign = Arc::new(Mutex::new(Vec::new()));
        if misdeed == Invents {
            // Another queue's first packet is a longer one.
            let mut other = rogue(Nothing, &foreign);
            let packet = TestPacket::new(0, 1500, 9, Ecn::NotEct);
            other.offer(
                Instant::ZERO,
                packet,
                &mut Rng::new(1, "x"),
                &mut Vec::new(),
            );
        }
        let mut q = rogue(misdeed, &foreign);
        let (out, drops, failure) = run(&mut q);
        let failure = failure.expect("a failure");
        assert!(failure.starts_with(text), "{misdeed:?}: {failure}");
        assert!(!failure.contains('\n'));
        // What it held and what arrived afterwards is dropped, each packet once; then it is empty.
        assert_eq!(
            (q.len(), q.bytes(), q.next_timer()),
            (0, 0, NEVER),
            "{misdeed:?}"
        );
        // None of its methods is called any more.
        q.on_timer(Instant::from_nanos(9));
        q.set_knobs(&Knobs::KEEP);
        q.set_sub_knobs(0, &Knobs::KEEP);
        q.gauges(Instant::from_nanos(9), &mut Gauges::default());
        let packet = TestPacket::new(7, 100, 7, Ecn::NotEct);
        assert_eq!(
            (
                q.admit(Instant::from_nanos(9), &packet),
                q.sub_queue_of(&packet)
            ),
            (None, None)
        );
        assert_eq!(
            (
                q.sub_queues(),
                q.sub_len(0),
                q.sub_gauges(Instant::from_nanos(9), 0)
            ),
            (0, 0, None)
        );
        assert_eq!((q.knobs(), q.sub_knobs()), (KnobSet::NONE, KnobSet::NONE));
        assert_eq!(q.marks(), 3, "{misdeed:?}");
        let mut all: Vec<u64> = drops.iter().map(|(p, _)| p.id).chain(out).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5], "{misdeed:?}");
    }
}

#[test]
fn a_queue_that_behaves_has_not_failed() {
    let mut q = rogue(Misdeed::Nothing, &Arc::default());
    let (out, drops, failure) = run(&mut q);
    assert_eq!((out, failure), (vec![0, 1, 2, 3, 4, 5], None));
    assert!(drops.is_empty());
}

#[test]
fn a_clone_continues_alike() {
    let codel = every::built_in()
        .into_iter()
        .find(|(name, ..)| *name == "codel ecn");
    let mut one = Driven::new(every::from_outside(codel.expect("codel").1));
    let enqueue = |flow| Op::Enqueue {
        flow,
        len: 1514,
        ecn: 2,
    };
    for k in 0..200 {
        one.step(enqueue(k % 5));
        one.step(Op::Wait(MS / 2));
        if k % 3 > 0 {
            one.step(Op::Dequeue);
        }
    }
    let mut two = one.clone();
    for k in 0..400 {
        for op in [enqueue(k % 7), Op::Wait(MS), Op::Dequeue] {
            assert_eq!(one.step(op), two.step(op), "{k}");
        }
    }
    assert_eq!((one.q.failure(), two.q.failure()), (None, None));
}

#[test]
fn a_queue_that_waits_forever_fails_but_early_calls_do_not_count() {
    let mut q = rogue(
        Misdeed::WaitsForTheNextNanosecond,
        &Arc::new(Mutex::new(Vec::new())),
    );
    let (mut rng, mut drops, mut out) = (Rng::new(1, "rogue"), Vec::new(), Vec::new());
    for id in 0..4 {
        let packet = TestPacket::new(id, 100, 0, Ecn::NotEct);
        q.offer(Instant::ZERO, packet, &mut rng, &mut drops);
    }
    // Calls before the time that it named do not count.
    for _ in 0..200_001 {
        take(
            &mut q,
            Instant::from_nanos(1),
            &mut rng,
            &mut drops,
            &mut out,
        );
    }
    assert_eq!(q.failure(), None);
    for now in 2..100_001 {
        take(
            &mut q,
            Instant::from_nanos(now),
            &mut rng,
            &mut drops,
            &mut out,
        );
    }
    assert_eq!((q.failure(), out.len(), drops.len()), (None, 0, 0));
    take(
        &mut q,
        Instant::from_nanos(100_001),
        &mut rng,
        &mut drops,
        &mut out,
    );
    let failure = q.failure().expect("a failure");
    assert!(
        failure
            .starts_with("Rogue returned a time (NotBefore) 100000 times in a row and no packet; "),
        "{failure}"
    );
    assert_eq!((out.len(), drops.len()), (0, 4));
}
