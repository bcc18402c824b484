use super::super::class::Owner;
use super::*;
use crate::outside::{self, Handle};
use crate::packet::TestPacket;
use crate::time::{MS, NEVER};
use crate::{DropCause, Ecn, cake};

/// A tree whose leaves are kept filled, and the bytes that each has sent.
struct Bed {
    q: Htb<TestPacket>,
    rng: Rng,
    owner: Owner,
    now: Instant,
    sent: [u64; 8],
    order: Vec<u32>,
    next: u64,
}

fn class(minor: u32, parent: u32, rate: u64, ceil: u64) -> Class {
    Class {
        id: 1 << 16 | minor,
        parent: (parent > 0).then_some(1 << 16 | parent),
        rate: Rate::from_mbit(rate),
        ceil: Some(Rate::from_mbit(ceil)),
        burst: None,
        cburst: None,
        prio: 0,
        quantum: None,
        filter: Filter {
            mark: (parent > 0).then_some(minor),
            ..Filter::default()
        },
        queue: None,
    }
}

/// Sets the quanta to one packet: larger ones would delay a class whose ceiling lets it send little
/// at a time.
fn alternately(mut classes: Vec<Class>) -> Vec<Class> {
    for class in &mut classes {
        class.quantum = Some(1000);
    }
    classes
}

fn tree(classes: Vec<Class>) -> Params {
    Params {
        classes,
        ..Params::default()
    }
}

impl Bed {
    fn new(params: Params) -> Self {
        assert_eq!(params.check(), Ok(()));
        Self {
            q: Htb::new(params),
            rng: Rng::new(1, "htb"),
            owner: Owner::default(),
            now: Instant::ZERO,
            sent: [0; 8],
            order: Vec::new(),
            next: 0,
        }
    }

    fn put(&mut self, mark: u32, n: u64, len: u32) {
        for _ in 0..n {
            let packet = TestPacket::new(self.next, len, mark, Ecn::NotEct);
            self.next += 1;
            self.q
                .enqueue(self.now, packet, &mut self.rng, &mut self.owner);
        }
    }

    fn take(&mut self) -> Dequeued<TestPacket> {
        self.q.dequeue(self.now, &mut self.rng, &mut self.owner)
    }

    /// Sends until `end` as fast as the tree allows, with these leaves (of these packet sizes) kept
    /// filled.
    fn run(&mut self, end: Instant, leaves: &[(u32, u32)]) {
        self.sent = [0; 8];
        for (mark, len) in leaves {
            self.put(*mark, 20, *len);
        }
        while self.now < end {
            match self.take() {
                Dequeued::Packet(p) => {
                    self.sent[p.hash as usize] += u64::from(p.len);
                    self.order.push(p.hash);
                    let size = leaves.iter().find(|(mark, _)| *mark == p.hash);
                    if let Some((mark, len)) = size {
                        self.put(*mark, 1, *len);
                    }
                }
                Dequeued::NotBefore(t) => {
                    assert!(t > self.now);
                    self.now = t.min(end);
                }
                Dequeued::Empty => self.now = end,
            }
        }
    }

    /// Rate of a leaf over this many seconds, kbit/s.
    fn kbps(&self, mark: usize, seconds: u64) -> u64 {
        self.sent[mark] * 8 / 1000 / seconds
    }
}

#[track_caller]
fn near(got: u64, expected: u64) {
    assert!(
        got.abs_diff(expected) * 100 <= expected,
        "{got}, not {expected}"
    );
}

#[test]
fn a_class_has_its_rate_and_borrows_up_to_its_ceiling() {
    let mut bed = Bed::new(tree(alternately(vec![
        class(1, 0, 10, 10),
        class(2, 1, 2, 10),
        class(3, 1, 3, 5),
    ])));
    bed.run(Instant::from_secs(10), &[(2, 1000), (3, 1000)]);
    // 5 Mbit/s are left to borrow: the third stops at its ceiling, the second has the rest.
    near(bed.kbps(2, 10) + bed.kbps(3, 10), 10_000);
    near(bed.kbps(3, 10), 5000);
    // Alone, the second gets everything.
    let mut bed = Bed::new(tree(vec![class(1, 0, 10, 10), class(2, 1, 2, 10)]));
    bed.run(Instant::from_secs(10), &[(2, 1000)]);
    near(bed.kbps(2, 10), 10_000);
}

#[test]
fn the_remaining_rate_is_shared_by_quanta() {
    let mut classes = vec![class(1, 0, 12, 12), class(2, 1, 1, 12), class(3, 1, 2, 12)];
    (classes[1].quantum, classes[2].quantum) = (Some(1000), Some(2000));
    let mut bed = Bed::new(tree(classes));
    bed.run(Instant::from_secs(10), &[(2, 1000), (3, 500)]);
    // The 9 Mbit/s beyond the rates are shared 1 : 2.
    near(bed.kbps(2, 10), 4000);
    near(bed.kbps(3, 10), 8000);
}

#[test]
fn without_a_quantum_it_is_the_rate_over_r2q_from_1000_to_200000() {
    let classes = vec![
        class(1, 0, 10, 10),
        class(2, 1, 1, 10),
        class(3, 1, 400, 400),
    ];
    let quanta = |r2q| {
        let params = Params {
            r2q,
            ..tree(classes.clone())
        };
        let nodes = Bed::new(params).q.nodes;
        [nodes[1].quantum, nodes[2].quantum]
    };
    // 1 Mbit/s are 125000 bytes a second.
    assert_eq!(quanta(10), [12_500, 200_000]);
    assert_eq!(quanta(1000), [1000, 50_000]);
}

#[test]
fn the_lower_priority_borrows_only_what_the_higher_leaves() {
    let mut classes = vec![class(1, 0, 10, 10), class(2, 1, 2, 10), class(3, 1, 2, 10)];
    classes[2].prio = 1;
    let mut bed = Bed::new(tree(classes));
    bed.run(Instant::from_secs(10), &[(2, 1000), (3, 1000)]);
    near(bed.kbps(2, 10), 8000);
    near(bed.kbps(3, 10), 2000);
}

#[test]
fn leaves_borrow_from_their_parent_before_others_may() {
    // Class 1:2 has 6 Mbit/s and two leaves of 1 Mbit/s each; 1:3 is a leaf with 2 Mbit/s.
    let mut bed = Bed::new(tree(alternately(vec![
        class(1, 0, 10, 10),
        Class {
            filter: Filter::default(),
            ..class(2, 1, 6, 10)
        },
        class(3, 1, 2, 10),
        class(4, 2, 1, 10),
        class(5, 2, 1, 2),
    ])));
    bed.run(Instant::from_secs(10), &[(3, 1000), (4, 1000), (5, 1000)]);
    near(bed.kbps(5, 10), 2000);
    let (third, fourth) = (bed.kbps(3, 10), bed.kbps(4, 10));
    near(third + fourth, 8000);
    // The fourth gets the part of 1:2's rate that the fifth leaves; beyond that, the third and the
    // fourth borrow from 1:1.
    assert!(fourth >= 3990 && third >= 1990, "{third} {fourth}");
}

#[test]
fn a_root_never_sends_more_than_its_rate() {
    let mut bed = Bed::new(tree(vec![class(1, 0, 4, 40), class(2, 1, 1, 40)]));
    bed.run(Instant::from_secs(10), &[(2, 1000)]);
    near(bed.kbps(2, 10), 4000);
}

#[test]
fn bursts_pass_at_once_after_a_pause() {
    let mut bed = Bed::new(tree(vec![Class {
        burst: Some(10_000),
        cburst: Some(6400),
        filter: Filter {
            mark: Some(1),
            ..Filter::default()
        },
        ..class(1, 0, 8, 16)
    }]));
    bed.put(1, 30, 1000);
    let mut at_once = 0;
    while let Dequeued::Packet(_) = bed.take() {
        at_once += 1;
    }
    // The seventh brings the bucket of the ceiling into debt, by 600 bytes.
    assert_eq!(at_once, 7);
    assert_eq!(bed.take(), Dequeued::NotBefore(Instant::ZERO + MS * 3 / 10));
}

#[test]
fn a_bucket_out_of_debt_sends_and_goes_into_debt() {
    let mut classes = vec![class(1, 0, 8, 8)];
    classes[0].filter.mark = Some(1);
    let mut bed = Bed::new(tree(classes));
    bed.put(1, 3, 1000);
    // The bucket holds 1600 bytes: enough for one packet; the second is sent on credit.
    assert!(matches!(bed.take(), Dequeued::Packet(_)));
    assert!(matches!(bed.take(), Dequeued::Packet(_)));
    let Dequeued::NotBefore(t) = bed.take() else {
        panic!("a third")
    };
    assert_eq!(
        t,
        Instant::from_nanos(400_000),
        "400 bytes at a byte per microsecond"
    );
    bed.now = t;
    assert!(matches!(bed.take(), Dequeued::Packet(_)));
    assert_eq!((bed.take(), bed.q.len()), (Dequeued::Empty, 0));
}

#[test]
fn unclassified_packets_go_to_the_default_or_past_all_buckets() {
    let classes = vec![class(1, 0, 1, 1), class(2, 1, 1, 1), class(3, 1, 1, 1)];
    let mut bed = Bed::new(Params {
        default: 3,
        ..tree(classes.clone())
    });
    bed.put(7, 2, 1000);
    assert_eq!(bed.q.tins()[1].packets, 2);
    let mut bed = Bed::new(Params {
        direct_qlen: 50,
        ..tree(classes.clone())
    });
    bed.put(2, 5, 1000);
    bed.put(7, 51, 1000);
    assert_eq!(bed.owner.0, [55], "the direct queue is full");
    for _ in 0..50 {
        assert!(matches!(bed.take(), Dequeued::Packet(p) if p.hash == 7));
    }
    assert!(matches!(bed.take(), Dequeued::Packet(p) if p.hash == 2));
    // An inner class cannot be the default.
    let bed = Bed::new(Params {
        default: 1,
        ..tree(classes)
    });
    assert_eq!(bed.q.default, None);
}

/// Two leaves, the first of which has a shaper of its own.
fn shaped_leaf() -> Params {
    let mut classes = vec![class(1, 0, 8, 8), class(2, 1, 4, 8), class(3, 1, 4, 8)];
    classes[1].queue = Some(disciplines::Params::Cake(cake::Params {
        bandwidth: cake::Bandwidth::Shaped(Rate::from_mbit(1)),
        ..cake::Params::default()
    }));
    tree(classes)
}

#[test]
fn a_leaf_that_lets_the_link_wait_does_not_hold_up_the_others() {
    let mut bed = Bed::new(shaped_leaf());
    bed.run(Instant::from_secs(10), &[(2, 1000), (3, 1000)]);
    near(bed.kbps(2, 10), 1000);
    near(bed.kbps(3, 10), 7000);
    // The other leaf sends at the same time.
    let mut bed = Bed::new(shaped_leaf());
    bed.put(2, 2, 1000);
    bed.put(3, 1, 1000);
    let sent = [bed.take(), bed.take()].map(|got| match got {
        Dequeued::Packet(packet) => packet.hash,
        other => panic!("{other:?}"),
    });
    assert_eq!(sent, [2, 3]);
    assert!(matches!(bed.take(), Dequeued::NotBefore(_)));
}

/// A queue whose dequeue drops all its packets.
#[derive(Clone, Debug, Default)]
struct Sink(Vec<Handle>);

impl Discipline<Handle> for Sink {
    fn enqueue<D: Drops<Handle>>(&mut self, _: Instant, packet: Handle, _: &mut Rng, _: &mut D) {
        self.0.push(packet);
    }
    fn dequeue<D: Drops<Handle>>(
        &mut self,
        now: Instant,
        _: &mut Rng,
        drops: &mut D,
    ) -> Dequeued<Handle> {
        for packet in self.0.drain(..) {
            drops.drop(now, packet, DropCause::Early);
        }
        Dequeued::Empty
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn bytes(&self) -> u64 {
        self.0.iter().map(|packet| u64::from(packet.len())).sum()
    }
}

#[test]
fn a_leaf_that_drops_all_its_packets_is_deactivated_and_the_others_are_served() {
    let sink = outside::Params {
        name: "sink".into(),
        rate: Rate::ZERO,
        make: std::sync::Arc::new(|_| Box::new(Sink::default())),
    };
    for waits in [false, true] {
        let mut params = shaped_leaf();
        let cake = params.classes[1]
            .queue
            .replace(disciplines::Params::Outside(sink.clone()));
        params.classes[2].queue = cake.filter(|_| waits);
        params.classes = alternately(params.classes);
        let mut bed = Bed::new(params);
        bed.put(3, 2, 1000);
        assert!(matches!(bed.take(), Dequeued::Packet(p) if p.hash == 3));
        bed.put(2, 3, 1000);
        match bed.take() {
            Dequeued::Packet(p) if !waits => assert_eq!(p.hash, 3),
            Dequeued::NotBefore(_) if waits => (),
            other => panic!("{other:?}"),
        }
        let tins = bed.q.tins();
        assert_eq!((tins[0].drops, tins[0].backlog_bytes), (3, 0), "{waits}");
        let active = bed.q.nodes.iter().filter(|node| node.active != 0);
        assert_eq!(active.count(), usize::from(waits));
    }
}

#[test]
fn leaves_that_come_and_go_leave_the_tree_whole() {
    let mut classes = vec![class(1, 0, 9, 9)];
    for minor in 2..8 {
        let mut leaf = class(minor, 1, 1, 9);
        leaf.prio = (minor % 3) as u8;
        classes.push(leaf);
    }
    let mut bed = Bed::new(tree(classes));
    let mut rng = Rng::new(3, "leaves");
    let mut put = [0u64; 8];
    for _ in 0..3000 {
        let leaf = 2 + (rng.f64() * 6.0) as u32;
        let n = 1 + (rng.f64() * 4.0) as u64;
        bed.put(leaf, n, 100 + (rng.f64() * 1400.0) as u32);
        put[leaf as usize] += n;
        bed.now += Duration::from_nanos((rng.f64() * 4e6) as u64);
        while let Dequeued::Packet(_) = bed.take() {}
    }
    while let Dequeued::NotBefore(t) | Dequeued::Packet(TestPacket { enqueued: t, .. }) = bed.take()
    {
        bed.now = bed.now.max(t);
    }
    assert_eq!((bed.q.len(), bed.q.bytes()), (0, 0));
    for (tin, put) in bed.q.tins().iter().zip(&put[2..]) {
        assert_eq!(tin.sent_packets + tin.drops, *put);
    }
    let idle = |level: &Level| level.rows.iter().all(|row| row.active == 0);
    assert!(bed.q.levels.iter().all(idle));
}

#[test]
fn time_at_a_rate_is_calculated_as_in_linux() {
    // psched_ratecfg_precompute: 10 Mbit/s are 800 ns a byte; 3 Mbit/s 2666.67.
    assert_eq!(RateCfg::new(Rate::from_mbit(10)).ns(1514), 1_211_200);
    assert_eq!(RateCfg::new(Rate::from_mbit(3)).ns(1000), 2_666_666);
    // tc counts the burst in units of 64 ns: 1600 bytes of 3 Mbit/s are 4266666.67 ns.
    assert_eq!(depth(Rate::from_mbit(3), None), 4_266_624);
}

#[test]
fn impossible_trees_are_refused() {
    let wrong = |classes| tree(classes).check().expect_err("wrong");
    assert!(wrong(vec![class(2, 1, 1, 1)]).contains("parent that does not exist"));
    assert!(wrong(vec![class(1, 2, 1, 1), class(2, 1, 1, 1)]).contains("cycle"));
    let twice = vec![class(1, 0, 1, 1), class(1, 0, 1, 1)];
    assert!(wrong(twice).contains("same id"));
    assert!(wrong(vec![class(1, 0, 0, 1)]).contains("needs a rate"));
    let inner = vec![class(1, 0, 1, 1), class(2, 1, 1, 1), class(3, 2, 1, 1)];
    assert!(wrong(inner).contains("give them to a leaf"));
    let mut deep = vec![class(1, 0, 1, 1)];
    for minor in 2..9 {
        deep.push(Class {
            filter: Filter::default(),
            ..class(minor, minor - 1, 1, 1)
        });
    }
    assert_eq!(tree(deep.clone()).check(), Ok(()), "eight levels");
    assert_eq!(Htb::<TestPacket>::new(tree(deep.clone())).nodes[6].level, 1);
    deep.push(class(9, 8, 1, 1));
    assert!(wrong(deep).contains("more than 8 levels"));
}

#[test]
fn without_classes_it_is_a_fifo() {
    let mut bed = Bed::new(Params::default());
    bed.put(0, 3, 1000);
    assert_eq!((bed.q.len(), bed.q.next_timer()), (3, NEVER));
    assert!((0..3).all(|_| matches!(bed.take(), Dequeued::Packet(_))));
    assert_eq!(bed.take(), Dequeued::Empty);
}
