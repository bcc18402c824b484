use super::*;
use crate::packet::TestPacket;

const FULL: u32 = 1514;

struct Bed {
    q: L4s<TestPacket>,
    rng: Rng,
    dropped: Vec<(TestPacket, DropCause)>,
    next_id: u64,
}

impl Bed {
    fn new(params: Params) -> Self {
        assert_eq!(params.check(), Ok(()));
        Self {
            q: L4s::new(params),
            rng: Rng::new(1, "l4s"),
            dropped: Vec::new(),
            next_id: 0,
        }
    }

    /// Offers `n` packets of a flow of this pair (0 to 2).
    fn add(&mut self, now: Instant, n: u32, pair: u32, ecn: Ecn) {
        self.q.run_timers(now);
        for _ in 0..n {
            let hash = pair * (u32::MAX / 3) + 1000;
            let packet = TestPacket::new(self.next_id, FULL, hash, ecn);
            self.next_id += 1;
            self.q
                .enqueue(now, packet, &mut self.rng, &mut self.dropped);
        }
    }

    fn take(&mut self, now: Instant) -> Option<TestPacket> {
        self.q.run_timers(now);
        match self.q.dequeue(now, &mut self.rng, &mut self.dropped) {
            Dequeued::Packet(p) => Some(p),
            _ => None,
        }
    }

    fn hold(&mut self, queue: usize, p: f64) {
        let knobs = Knobs {
            base_probability: Some(p),
            ..Knobs::default()
        };
        self.q.set_sub_knobs(queue, &knobs);
    }

    /// Shares of marked and of dropped among `n` arrivals at a sub-queue that already holds some
    /// packets.
    fn shares(&mut self, n: u32, ecn: Ecn) -> (f64, f64) {
        self.add(Instant::ZERO, 3, 0, ecn);
        let (marks, drops) = (self.q.marks(), self.dropped.len());
        for _ in 0..n {
            self.add(Instant::ZERO, 1, 0, ecn);
            if self.q.len() > 3 {
                self.take(Instant::ZERO);
            }
        }
        (
            (self.q.marks() - marks) as f64 / f64::from(n),
            (self.dropped.len() - drops) as f64 / f64::from(n),
        )
    }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.01
}

#[test]
fn defaults_are_freebsds() {
    let p = Params::default();
    assert_eq!((p.pairs, p.limit, p.quantum), (3, 10_240, 1514));
    assert_eq!(
        (p.target, p.tupdate, p.max_burst),
        (15 * MS, 15 * MS, 150 * MS)
    );
    assert_eq!((p.alpha, p.beta, p.coupling_factor), (0.125, 1.25, 2));
    let published = p.as_published();
    assert_eq!(published.classifier, Classifier::AnyEct);
    assert_eq!(published.max_ecnth, Some(0.1));
}

#[test]
fn the_hash_picks_the_pair_and_the_ecn_field_the_half() {
    let index = |classifier, ecn| {
        let bed = Bed::new(Params {
            classifier,
            ..Params::default()
        });
        [0, 1, 2].map(|pair| {
            let hash = pair * (u32::MAX / 3) + 1000;
            bed.q.classify(&TestPacket::new(0, FULL, hash, ecn))
        })
    };
    assert_eq!(index(Classifier::L4sEct, Ecn::NotEct), [0, 1, 2]);
    assert_eq!(index(Classifier::L4sEct, Ecn::Ect0), [0, 1, 2]);
    assert_eq!(index(Classifier::L4sEct, Ecn::Ect1), [3, 4, 5]);
    assert_eq!(index(Classifier::L4sEct, Ecn::Ce), [3, 4, 5]);
    assert_eq!(index(Classifier::AnyEct, Ecn::Ect0), [3, 4, 5]);
    assert_eq!(index(Classifier::AnyEct, Ecn::NotEct), [0, 1, 2]);
}

#[test]
fn classic_packets_are_dropped_with_the_square_and_l4s_packets_marked_with_k_times_the_base() {
    for p in [0.1, 0.3, 0.45] {
        let mut bed = Bed::new(Params::default());
        bed.hold(0, p);
        let (marks, drops) = bed.shares(20_000, Ecn::NotEct);
        assert!(marks == 0.0 && near(drops, p * p), "{p}: {drops}");
        let mut bed = Bed::new(Params::default());
        bed.hold(0, p);
        let (marks, drops) = bed.shares(20_000, Ecn::Ect1);
        assert!(drops == 0.0 && near(marks, 2.0 * p), "{p}: {marks}");
        // The classic sub-queue marks what can be marked.
        let mut bed = Bed::new(Params::default());
        bed.hold(0, p);
        let (marks, drops) = bed.shares(20_000, Ecn::Ect0);
        assert!(drops == 0.0 && near(marks, p * p), "{p}: {marks}");
    }
}

#[test]
fn the_greater_of_the_own_and_the_coupled_probability_marks() {
    for (own, partner, expected) in [(0.5, 0.1, 0.5), (0.1, 0.25, 0.5), (0.3, 0.0, 0.3)] {
        let mut bed = Bed::new(Params::default());
        bed.hold(0, partner);
        bed.hold(3, own);
        // Another pair's probability plays no part.
        bed.hold(1, 0.49);
        assert!(near(bed.q.coupled_probability(3), expected));
        let (marks, _) = bed.shares(20_000, Ecn::Ect1);
        assert!(near(marks, expected), "{own} {partner}: {marks}");
    }
}

#[test]
fn on_overload_l4s_packets_are_dropped_with_the_classic_probability_and_the_rest_marked() {
    let mut bed = Bed::new(Params::default());
    bed.hold(0, 0.6);
    let (marks, drops) = bed.shares(20_000, Ecn::Ect1);
    assert!(near(drops, 0.36) && near(marks, 0.64), "{drops} {marks}");
    let mut bed = Bed::new(Params::default());
    bed.hold(0, 0.6);
    let (marks, drops) = bed.shares(20_000, Ecn::Ect0);
    assert!(marks == 0.0 && near(drops, 0.36), "{drops} {marks}");
}

#[test]
fn max_ecnth_turns_marks_into_drops_from_that_probability_on() {
    for (p, marked) in [(0.04, true), (0.06, false)] {
        let mut bed = Bed::new(Params {
            max_ecnth: Some(0.1),
            ..Params::default()
        });
        bed.hold(0, p);
        let (marks, drops) = bed.shares(20_000, Ecn::Ect1);
        let (hit, other) = if marked {
            (marks, drops)
        } else {
            (drops, marks)
        };
        assert!(near(hit, 2.0 * p) && other == 0.0, "{p}: {marks} {drops}");
    }
}

#[test]
fn as_published_the_partner_only_decides_between_mark_and_drop() {
    // The L4S sub-queue's own probability picks, whatever the partner's is.
    for (partner, marked) in [(0.0, true), (0.04, true), (0.06, false)] {
        let mut bed = Bed::new(Params::default().as_published());
        bed.hold(0, partner);
        bed.hold(3, 0.09);
        // PIE's early exits no longer apply: the burst allowance of 150 ms is used up, and the
        // delay is above half the target.
        bed.add(Instant::ZERO, 40, 0, Ecn::Ect1);
        bed.take(Instant::from_millis(20));
        bed.take(Instant::from_millis(400));
        let (marks, drops) = (bed.q.marks(), bed.dropped.len());
        let n = 20_000;
        for _ in 0..n {
            bed.add(Instant::from_millis(400), 1, 0, Ecn::Ect1);
            if bed.q.len() > 30 {
                bed.take(Instant::from_millis(400));
            }
        }
        // De-randomised: after a drop or mark nine packets pass, then each is selected with 0.09.
        let expected = 1.0 / (9.0 + 1.0 / 0.09);
        let marks = (bed.q.marks() - marks) as f64 / n as f64;
        let drops = (bed.dropped.len() - drops) as f64 / n as f64;
        let (hit, other) = if marked {
            (marks, drops)
        } else {
            (drops, marks)
        };
        assert!(
            near(hit, expected) && other == 0.0,
            "{partner}: {marks} {drops}"
        );
    }
}

#[test]
fn as_published_the_square_is_a_32_bit_product() {
    let mut bed = Bed::new(Params::default().as_published());
    bed.hold(0, 0.25);
    // 0.25 of 2^31 is 2^29 - 1 here: its square wraps to 2^32 - 2^30 + 1, which divided by 2^31 is
    // 1.
    assert_eq!(bed.q.laws[0].prob, (1 << 29) - 1);
    let params = bed.q.params.clone();
    assert_eq!(published::probability(&bed.q.laws[0], None, &params), 1);
    assert!(near(bed.q.coupled_probability(0), 0.0625), "what was meant");
}

#[test]
fn a_sub_queue_in_debt_waits_and_a_new_one_passes_through_the_old() {
    let mut bed = Bed::new(Params::default());
    bed.add(Instant::ZERO, 6, 0, Ecn::NotEct);
    bed.add(Instant::ZERO, 6, 1, Ecn::Ect1);
    // As in FreeBSD, a sub-queue with a credit of 0 still sends: two packets in the first round,
    // then one per round.
    let order: Vec<_> = (0..8)
        .filter_map(|_| bed.take(Instant::ZERO))
        .map(|p| p.id / 6)
        .collect();
    assert_eq!(order, [0, 0, 1, 1, 0, 1, 0, 1]);
}

#[test]
fn one_packet_too_many_costs_the_longest_sub_queue_its_head() {
    let mut bed = Bed::new(Params {
        limit: 10,
        ..Params::default()
    });
    bed.add(Instant::ZERO, 3, 0, Ecn::NotEct);
    bed.add(Instant::ZERO, 7, 1, Ecn::NotEct);
    bed.add(Instant::ZERO, 1, 2, Ecn::NotEct);
    assert_eq!(bed.dropped.len(), 1);
    assert_eq!(
        (bed.dropped[0].0.id, bed.dropped[0].1),
        (3, DropCause::Overflow)
    );
    assert_eq!(
        bed.q
            .sub_gauges(Instant::ZERO, 1)
            .map(|g| (g.drops, g.backlog_packets)),
        Some((1, 6))
    );
}

#[test]
fn a_sub_queue_that_left_the_rotation_wakes_with_a_fresh_law() {
    let mut bed = Bed::new(Params::default());
    bed.add(Instant::ZERO, 100, 0, Ecn::NotEct);
    for ms in (10..900).step_by(10) {
        bed.take(Instant::from_millis(ms));
    }
    let g = bed.q.sub_gauges(Instant::ZERO, 0).unwrap();
    assert!(
        g.probability > 0.0 && g.law.burst_allowance == Duration::ZERO && g.law.delay > 800 * MS,
        "{g:?}"
    );
    for _ in 0..20 {
        bed.take(Instant::from_secs(1));
    }
    bed.q.run_timers(Instant::from_secs(2));
    assert_eq!(bed.q.next_timer(), NEVER);
    bed.add(Instant::from_secs(2), 1, 0, Ecn::NotEct);
    let g = bed.q.sub_gauges(Instant::ZERO, 0).unwrap();
    assert_eq!(
        (g.probability, g.law.burst_allowance, g.law.since),
        (0.0, 150 * MS, Instant::from_secs(2))
    );
    assert_eq!(bed.q.next_timer(), Instant::ZERO + 2 * SEC + 15 * MS);
}

#[test]
fn the_probability_moves_as_in_the_kernel_file() {
    // One update of FreeBSD's integers by hand: from 0, delay 20 ms after 10 ms: alpha 1024 * 5000
    // + beta 10240 * 10000 us, times floor((2^31 - 1) * 2^12 / 10^6) = 8796093, shifted right by 11
    // + 13 + 12.
    let units = Units::new(&Params::default());
    let mut law = Law {
        qdelay: 20_000,
        qdelay_old: 10_000,
        ..Law::default()
    };
    assert_eq!(
        law.next_probability(&units, MAX_PROB),
        ((107_520_000u64 * 8_796_093) >> 36) as u32
    );
    // At a high probability the step is at most 2 %.
    law.prob = MAX_PROB / 2;
    law.qdelay = 300_000;
    assert_eq!(
        law.next_probability(&units, MAX_PROB),
        MAX_PROB / 2 + MAX_PROB / 50
    );
    // In an idle sub-queue, the ordinary step comes first, then the decay by 1/64.
    (law.qdelay, law.qdelay_old) = (0, 0);
    let less = law.prob - ((15_360_000u64 * 8_796_093) >> 25) as u32;
    assert_eq!(law.next_probability(&units, MAX_PROB), less - (less >> 6));
}

#[test]
fn a_flood_of_unresponsive_l4s_packets_is_held_near_the_target() {
    let mut bed = Bed::new(Params::default());
    let mut late: Vec<Duration> = Vec::new();
    for i in 0..120_000u64 {
        let now = Instant::ZERO + i * MS / 4;
        bed.add(now, 1 + (i % 2) as u32, 0, Ecn::Ect1);
        if let Some(p) = bed.take(now)
            && i > 60_000
        {
            late.push(now - p.enqueued);
        }
    }
    late.sort_unstable();
    assert!(
        late[late.len() / 100 * 95] < 40 * MS,
        "{:?}",
        late[late.len() / 100 * 95]
    );
}

#[test]
fn a_probability_from_outside_stays_until_it_is_released() {
    let mut bed = Bed::new(Params::default());
    let set = |bed: &mut Bed, knobs| bed.q.set_knobs(&knobs);
    set(
        &mut bed,
        Knobs {
            base_probability: Some(0.25),
            ..Knobs::default()
        },
    );
    bed.add(Instant::ZERO, 50, 0, Ecn::NotEct);
    bed.take(Instant::from_millis(300));
    let mut g = Gauges::default();
    bed.q.gauges(Instant::from_millis(300), &mut g);
    assert!(near(g.probability, 0.25));
    assert_eq!(
        bed.q.base_probability(3),
        0.0,
        "the L4S half keeps its own law"
    );
    set(
        &mut bed,
        Knobs {
            release: true,
            ..Knobs::default()
        },
    );
    bed.take(Instant::from_millis(400));
    assert!(bed.q.base_probability(0) > 0.26);
}
