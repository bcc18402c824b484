use super::*;
use crate::packet::TestPacket;
use crate::{MS, SEC, US};

/// Hash of a flow, in a bucket of its own.
fn hash(flow: u32) -> u32 {
    (flow + 1) << 22
}

struct Bed {
    q: Hush<TestPacket>,
    now: Nanos,
    rng: Rng,
    drops: Vec<(TestPacket, DropCause)>,
    id: u64,
}

impl Bed {
    fn new(params: Params) -> Self {
        Self {
            q: Hush::new(params),
            now: SEC,
            rng: Rng::new(1, "hush"),
            drops: Vec::new(),
            id: 0,
        }
    }

    fn put(&mut self, flow: u32, ecn: Ecn) {
        let packet = TestPacket::new(self.id, 1500, hash(flow), ecn);
        self.id += 1;
        (self.q).enqueue(self.now, packet, &mut self.rng, &mut self.drops);
    }

    fn take(&mut self) -> Option<TestPacket> {
        match self.q.dequeue(self.now, &mut self.rng, &mut self.drops) {
            Got::Packet(packet) => Some(packet),
            _ => None,
        }
    }

    /// A link of a packet per millisecond, `arrivals` of which come in each; gives what leaves.
    fn run(
        &mut self,
        ms: u64,
        ecn: Ecn,
        mut arrivals: impl FnMut(u64) -> Vec<u32>,
    ) -> Vec<TestPacket> {
        let step = |i| {
            self.now += MS;
            arrivals(i).into_iter().for_each(|flow| self.put(flow, ecn));
            self.take()
        };
        (0..ms).filter_map(step).collect()
    }
}

#[test]
fn a_load_below_the_rate_is_left_alone() {
    let mut bed = Bed::new(Params::default());
    let out = bed.run(20_000, Ecn::NotEct, |i| {
        if i % 10 == 0 { vec![] } else { vec![1] }
    });
    assert_eq!((out.len(), bed.drops.len()), (18_000, 0));
}

#[test]
fn an_overload_that_does_not_yield_is_held_below_the_cap() {
    for order in [Order::Fair, Order::Arrival, Order::Single] {
        let mut bed = Bed::new(Params {
            order,
            ..Params::default()
        });
        let out = bed.run(20_000, Ecn::NotEct, |i| {
            if i % 4 == 0 { vec![1, 2] } else { vec![1] }
        });
        assert!(out.len() >= 19_990, "{order:?}: {}", out.len());
        let settings = *bed.q.settings();
        let drain = bed.q.link().drain(bed.q.bytes());
        assert!(
            drain <= settings.cap + 2 * MS,
            "{order:?}: {drain} above {settings:?}"
        );
        assert!(settings.cap < 100 * MS, "{settings:?}");
        assert!(
            bed.drops
                .iter()
                .all(|(_, cause)| *cause == DropCause::Early)
        );
    }
}

#[test]
fn the_flow_that_took_most_pays_although_all_have_a_packet_queued() {
    let mut bed = Bed::new(Params {
        order: Order::Arrival,
        ..Params::default()
    });
    // Flow 7 sends half of what comes; four others share the rest.
    bed.run(5000, Ecn::NotEct, |i| match i % 4 {
        0 => vec![7, (i / 4 % 4) as u32],
        1 => vec![(i / 4 % 4) as u32],
        _ => vec![7],
    });
    let of_7 = bed.drops.iter().filter(|(p, _)| p.hash == hash(7)).count();
    assert!(
        bed.drops.len() > 500 && of_7 * 100 >= bed.drops.len() * 95,
        "{of_7} of {}",
        bed.drops.len()
    );
}

#[test]
fn marks_replace_drops_only_where_the_window_is_large_and_ecn_is_on() {
    // Two large flows: the law marks. With noecn it drops.
    let load = |i: u64| {
        if i.is_multiple_of(50) {
            vec![1, 2]
        } else {
            vec![(i % 2) as u32 + 1]
        }
    };
    let mut on = Bed::new(Params::default());
    on.run(400, Ecn::Ect0, load);
    assert!(
        on.q.marks() > 0 && on.drops.is_empty(),
        "{}",
        on.drops.len()
    );
    let mut off = Bed::new(Params {
        ecn: false,
        ..Params::default()
    });
    off.run(2000, Ecn::Ect0, load);
    assert!(off.q.marks() == 0 && !off.drops.is_empty());
    // 500 flows have a tenth of a packet each in a round trip: drops.
    let mut many = Bed::new(Params::default());
    many.run(400, Ecn::Ect0, |i| {
        if i % 50 == 0 {
            vec![1, 2]
        } else {
            vec![(i % 500) as u32]
        }
    });
    assert!(many.q.marks() == 0 && !many.drops.is_empty());
}

#[test]
fn scalable_flows_are_marked_from_their_own_step_on() {
    let mut bed = Bed::new(Params::default());
    bed.put(1, Ecn::Ect1);
    bed.run(100, Ecn::Ect1, |_| vec![1]);
    let before = bed.q.marks();
    let step = bed.q.settings().step;
    assert!((MS..20 * MS).contains(&step), "{step}");
    (0..20).for_each(|_| bed.put(1, Ecn::Ect1));
    let out = bed.run(20, Ecn::Ect1, |_| vec![]);
    let marked = out.iter().filter(|p| p.ecn == Ecn::Ce).count() as u64;
    assert!(marked > 0 && marked == bed.q.marks() - before);
}

#[test]
fn arrival_order_holds_with_drops_from_the_middle() {
    let mut bed = Bed::new(Params {
        order: Order::Arrival,
        ..Params::default()
    });
    let out = bed.run(5000, Ecn::NotEct, |i| vec![(i % 3) as u32, 1]);
    assert!(!bed.drops.is_empty());
    assert!(out.windows(2).all(|pair| pair[0].id < pair[1].id));
}

#[test]
fn a_full_queue_that_nobody_serves_collects_nothing() {
    let limit = 100;
    for order in [Order::Fair, Order::Arrival, Order::Single] {
        let mut bed = Bed::new(Params {
            order,
            limit,
            ..Params::default()
        });
        for i in 0..10_000 {
            bed.now += US;
            bed.put(i % 7, Ecn::NotEct);
            assert!(bed.q.len() <= 100);
        }
        assert!(
            bed.q.arrivals.turns.len() <= 2 * 100 + 64,
            "{}",
            bed.q.arrivals.turns.len()
        );
        let mut last = 0;
        while let Some(packet) = bed.take() {
            assert!(order == Order::Fair || packet.id >= last);
            last = packet.id;
        }
        assert!(bed.q.is_empty());
    }
}

#[test]
fn decisions_are_the_same_bits_on_every_machine() {
    let mut bed = Bed::new(Params::default());
    bed.run(3000, Ecn::NotEct, |i| {
        if i % 8 == 0 {
            vec![1, 2]
        } else {
            vec![(i % 5) as u32]
        }
    });
    let settings = bed.q.settings();
    let digest = (bed.drops.iter()).fold(0u64, |d, (p, _)| d.wrapping_mul(1_000_003) ^ p.id);
    assert_eq!(
        (settings.target, settings.hold, digest),
        (1_491_625, 1_004_276_995, 12_330_518_679_298_913_486)
    );
}
