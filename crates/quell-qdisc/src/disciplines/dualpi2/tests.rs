use super::*;
use crate::packet::TestPacket;

const FULL: u32 = 1514;

struct Bed {
    q: DualPi2<TestPacket>,
    rng: Rng,
    dropped: Vec<(TestPacket, DropCause)>,
    next_id: u64,
}

impl Bed {
    fn new(params: Params) -> Self {
        assert_eq!(params.check(), Ok(()));
        Self {
            q: DualPi2::new(params),
            rng: Rng::new(1, "dualpi2"),
            dropped: Vec::new(),
            next_id: 0,
        }
    }
    fn add(&mut self, now: Instant, n: usize, ecn: Ecn) {
        for _ in 0..n {
            let p = TestPacket::new(self.next_id, FULL, 0, ecn);
            self.next_id += 1;
            self.q.enqueue(now, p, &mut self.rng, &mut self.dropped);
        }
    }
    fn take(&mut self, now: Instant) -> TestPacket {
        match self.q.dequeue(now, &mut self.rng, &mut self.dropped) {
            Dequeued::Packet(p) => p,
            other => panic!("{other:?}"),
        }
    }
    fn set_prob(&mut self, p: f64) {
        self.q.set_knobs(&Knobs {
            base_probability: Some(p),
            ..Knobs::default()
        });
    }
    /// Sends `n` packets with this ECN field through a queue of 10 packets while p' is `p`; returns
    /// the shares (marked, dropped).
    fn shares(params: Params, p: f64, ecn: Ecn, n: usize) -> (f64, f64) {
        let mut bed = Self::new(params);
        bed.set_prob(p);
        bed.add(Instant::ZERO, 10, ecn);
        let (mut marked, mut offered) = (0, 10);
        while offered < n {
            while bed.q.len() < 10 {
                bed.add(Instant::ZERO, 1, ecn);
                offered += 1;
            }
            let p = bed.take(Instant::ZERO);
            marked += usize::from(p.ecn == Ecn::Ce && ecn != Ecn::Ce);
        }
        (
            marked as f64 / n as f64,
            bed.dropped.len() as f64 / n as f64,
        )
    }
}

fn near(got: f64, want: f64) -> bool {
    (got - want).abs() < 0.01
}

#[test]
fn defaults_are_those_of_linux() {
    let q = DualPi2::<TestPacket>::new(Params::default());
    // dualpi2_scale_alpha_beta(41) and (819).
    assert_eq!((q.alpha, q.beta), (44, 879));
    assert_eq!(q.memory_limit, 30_280_000);
    assert_eq!(q.next_timer(), Instant::from_millis(16));
    assert_eq!(q.credit, -80 * 1514);
}

#[test]
fn the_rtt_options_give_the_gains_of_the_rfc() {
    let p = Params::for_rtt(100 * MS, 15 * MS);
    assert_eq!((p.target, p.tupdate), (15 * MS, 15 * MS));
    assert!(near(p.alpha, 0.15) && near(p.beta, 3.0));
}

#[test]
fn ect1_and_ce_go_to_the_low_latency_queue() {
    let mut bed = Bed::new(Params::default());
    for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
        bed.add(Instant::ZERO, 1, ecn);
    }
    assert_eq!((bed.q.classic_len(), bed.q.low_len()), (2, 2));
    let mut bed = Bed::new(Params {
        classifier: Classifier::AnyEct,
        ..Params::default()
    });
    for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
        bed.add(Instant::ZERO, 1, ecn);
    }
    assert_eq!((bed.q.classic_len(), bed.q.low_len()), (1, 3));
    let mut bed = Bed::new(Params {
        classifier: Classifier::Classic,
        ..Params::default()
    });
    bed.add(Instant::ZERO, 1, Ecn::Ect1);
    assert_eq!((bed.q.classic_len(), bed.q.low_len()), (1, 0));
}

#[test]
fn classic_is_marked_with_two_independent_comparisons() {
    // p' = 0.3: 9 %, not 30 % and not 0.81 %.
    let (marked, dropped) = Bed::shares(Params::default(), 0.3, Ecn::Ect0, 50_000);
    assert!(near(marked, 0.09) && dropped == 0.0, "{marked}");
    let (marked, dropped) = Bed::shares(Params::default(), 0.3, Ecn::NotEct, 50_000);
    assert!(near(dropped, 0.09) && marked == 0.0, "{dropped}");
}

#[test]
fn the_coupled_probability_is_k_times_the_base() {
    let (marked, dropped) = Bed::shares(Params::default(), 0.3, Ecn::Ect1, 50_000);
    assert!(near(marked, 0.6) && dropped == 0.0, "{marked}");
    let k = Params {
        coupling_factor: 3,
        ..Params::default()
    };
    let (marked, _) = Bed::shares(k, 0.1, Ecn::Ect1, 50_000);
    assert!(near(marked, 0.3), "{marked}");
}

#[test]
fn on_overload_both_queues_drop_with_the_square_and_low_latency_marks_the_rest() {
    // k p' = 1.2 > 1.
    let (marked, dropped) = Bed::shares(Params::default(), 0.6, Ecn::Ect0, 50_000);
    assert!(near(dropped, 0.36) && marked == 0.0, "{dropped}");
    let (marked, dropped) = Bed::shares(Params::default(), 0.6, Ecn::Ect1, 50_000);
    assert!(
        near(dropped, 0.36) && near(marked, 0.64),
        "{dropped} {marked}"
    );
}

#[test]
fn with_overflow_chosen_low_latency_packets_are_never_dropped_by_the_law() {
    let params = Params {
        drop_on_overload: false,
        ..Params::default()
    };
    let (marked, dropped) = Bed::shares(params, 0.6, Ecn::Ect1, 20_000);
    assert!(dropped == 0.0 && near(marked, 1.0), "{marked}");
}

#[test]
fn with_overflow_chosen_the_probability_stops_at_one_over_k() {
    let mut bed = Bed::new(Params {
        drop_on_overload: false,
        ..Params::default()
    });
    bed.add(Instant::ZERO, 100, Ecn::Ect0);
    for i in 1..2000 {
        bed.q.on_timer(Instant::from_millis(i * 16));
    }
    assert!(near(bed.q.base_probability(), 0.5));
}

#[test]
fn below_two_mtu_in_both_queues_the_law_rests_but_the_step_acts() {
    let mut bed = Bed::new(Params::default());
    bed.set_prob(0.49);
    for i in 0..1000 {
        // Two packets: one is behind the packet judged, 1514 bytes < 3028.
        bed.add(Instant::from_millis(i), 1, Ecn::Ect1);
        bed.add(Instant::from_millis(i), 1, Ecn::Ect0);
        assert_ne!(bed.take(Instant::from_millis(i)).ecn, Ecn::Ce);
        assert_ne!(bed.take(Instant::from_millis(i)).ecn, Ecn::Ce);
    }
    assert!(bed.dropped.is_empty());
    bed.add(Instant::from_secs(1), 1, Ecn::Ect1);
    assert_eq!(
        bed.take(Instant::ZERO + SEC + MS + Duration::from_nanos(1))
            .ecn,
        Ecn::Ce
    );
    assert_eq!(bed.q.stats().step_marks, 1);
}

#[test]
fn the_step_marks_above_a_millisecond_and_only_in_the_low_latency_queue() {
    let mut bed = Bed::new(Params::default());
    bed.add(Instant::ZERO, 2, Ecn::Ect1);
    assert_eq!(bed.take(Instant::from_millis(1)).ecn, Ecn::Ect1);
    assert_eq!(
        bed.take(Instant::ZERO + MS + Duration::from_nanos(1)).ecn,
        Ecn::Ce
    );
    bed.add(Instant::ZERO, 1, Ecn::Ect0);
    assert_eq!(bed.take(Instant::from_millis(2)).ecn, Ecn::Ect0);
}

#[test]
fn the_step_may_count_packets() {
    let mut bed = Bed::new(Params {
        step_thresh: Step::Packets(2),
        ..Params::default()
    });
    bed.add(Instant::ZERO, 4, Ecn::Ect1);
    let marks: Vec<bool> = (0..4)
        .map(|_| bed.take(Instant::from_secs(1)).ecn == Ecn::Ce)
        .collect();
    assert_eq!(marks, [true, false, false, false]);
}

#[test]
fn min_qlen_step_spares_packets_that_found_a_short_queue() {
    let mut bed = Bed::new(Params {
        min_qlen_step: 2,
        ..Params::default()
    });
    bed.add(Instant::ZERO, 4, Ecn::Ect1);
    let marks: Vec<bool> = (0..4)
        .map(|_| bed.take(Instant::from_secs(1)).ecn == Ecn::Ce)
        .collect();
    assert_eq!(marks, [false, false, true, true]);
}

#[test]
fn the_classic_queue_keeps_a_tenth_of_the_link() {
    let mut bed = Bed::new(Params::default());
    bed.add(Instant::ZERO, 2000, Ecn::Ect0);
    bed.add(Instant::ZERO, 2000, Ecn::Ect1);
    bed.q.prob = 0;
    let classic = (0..1000)
        .filter(|_| bed.take(Instant::ZERO).ecn == Ecn::Ect0)
        .count();
    assert!((95..=100).contains(&classic), "{classic}");
}

#[test]
fn the_credit_rests_while_a_queue_is_empty_and_is_reset_when_both_are() {
    let mut bed = Bed::new(Params::default());
    let initial = bed.q.credit;
    bed.add(Instant::ZERO, 10, Ecn::Ect1);
    bed.take(Instant::ZERO);
    assert_eq!(bed.q.credit, initial);
    bed.add(Instant::ZERO, 1, Ecn::Ect0);
    bed.take(Instant::ZERO);
    assert_eq!(bed.q.credit, initial + 10 * 1514);
    while let Dequeued::Packet(_) = bed.q.dequeue(Instant::ZERO, &mut bed.rng, &mut bed.dropped) {}
    assert_eq!(bed.q.credit, initial);
}

#[test]
fn the_delay_is_the_larger_of_both_heads_ages() {
    let mut bed = Bed::new(Params::default());
    bed.add(Instant::ZERO, 1, Ecn::Ect0);
    bed.add(Instant::from_millis(10), 1, Ecn::Ect1);
    assert_eq!(bed.q.delay(Instant::from_millis(16)), 16 * MS);
    let mut bed = Bed::new(Params::default());
    bed.add(Instant::ZERO, 1, Ecn::Ect1);
    bed.add(Instant::from_millis(10), 1, Ecn::Ect0);
    assert_eq!(bed.q.delay(Instant::from_millis(16)), 16 * MS);
    assert_eq!(
        Bed::new(Params::default()).q.delay(Instant::from_secs(1)),
        Duration::ZERO
    );
}

#[test]
fn gains_are_per_second_of_delay_and_not_scaled_by_the_update_interval() {
    for tupdate in [16 * MS, 8 * MS] {
        let mut bed = Bed::new(Params {
            tupdate,
            ..Params::default()
        });
        bed.add(Instant::ZERO, 1, Ecn::Ect0);
        bed.q.last_qdelay = 25 * MS;
        // 10 ms above target, unchanged: 0.16 Hz * 10 ms.
        bed.q.on_timer(Instant::from_millis(25));
        let got = bed.q.base_probability();
        assert!((got / 0.0016 - 1.0).abs() < 0.01, "{got}");
    }
}

#[test]
fn there_is_no_auto_tuning() {
    let step = |p: f64| {
        let mut bed = Bed::new(Params::default());
        bed.q.prob = (p * f64::from(u32::MAX)) as u32;
        bed.add(Instant::ZERO, 1, Ecn::Ect0);
        bed.q.last_qdelay = 15 * MS;
        bed.q.on_timer(Instant::from_millis(20));
        bed.q.base_probability() - p
    };
    assert!((step(1e-6) / step(0.3) - 1.0).abs() < 1e-3);
}

#[test]
fn the_probability_stays_between_0_and_1() {
    let mut bed = Bed::new(Params::default());
    bed.q.on_timer(Instant::from_millis(16));
    assert_eq!(bed.q.prob, 0);
    bed.add(Instant::ZERO, 1, Ecn::Ect0);
    // A jump of 10 s, with which 32 bits would wrap.
    bed.q.on_timer(Instant::from_secs(10));
    assert_eq!(bed.q.prob, u32::MAX);
}

#[test]
fn a_base_probability_from_outside_suspends_the_law_until_it_is_released() {
    let mut bed = Bed::new(Params::default());
    bed.set_prob(0.25);
    bed.q.on_timer(Instant::from_millis(16));
    bed.q.on_timer(Instant::from_millis(32));
    assert!(near(bed.q.base_probability(), 0.25));
    bed.q.set_knobs(&Knobs {
        release: true,
        ..Knobs::default()
    });
    bed.q.on_timer(Instant::from_millis(48));
    // The queue is empty, so p' falls by 0.16 Hz times 15 ms.
    assert!(near(bed.q.base_probability(), 0.25 - 0.0024));
}

#[test]
fn it_drops_at_departure_unless_drop_enqueue_is_set() {
    let mut bed = Bed::new(Params::default());
    bed.add(Instant::ZERO, 3, Ecn::NotEct);
    bed.set_prob(1.0);
    bed.add(Instant::ZERO, 10, Ecn::NotEct);
    assert!(bed.dropped.is_empty());
    bed.take(Instant::ZERO);
    // Packets are dropped until less than two MTU are queued behind the packet judged.
    assert_eq!((bed.dropped.len(), bed.q.len()), (11, 1));

    let mut bed = Bed::new(Params {
        drop_enqueue: true,
        ..Params::default()
    });
    bed.add(Instant::ZERO, 3, Ecn::NotEct);
    bed.set_prob(1.0);
    bed.add(Instant::ZERO, 10, Ecn::NotEct);
    assert_eq!(bed.dropped.len(), 10);
    bed.take(Instant::ZERO);
    assert_eq!(bed.dropped.len(), 10);
}

#[test]
fn packets_and_memory_are_limited() {
    let mut bed = Bed::new(Params {
        limit: 10,
        memlimit: Some(u64::MAX),
        ..Params::default()
    });
    bed.add(Instant::ZERO, 6, Ecn::Ect1);
    bed.add(Instant::ZERO, 6, Ecn::Ect0);
    assert_eq!((bed.q.len(), bed.dropped.len()), (10, 2));
    let mut bed = Bed::new(Params {
        memlimit: Some(10_000),
        ..Params::default()
    });
    bed.add(Instant::ZERO, 10, Ecn::Ect0);
    // 1514 + 790 bytes each.
    assert_eq!((bed.q.len(), bed.dropped.len()), (4, 6));
    assert!(bed.dropped.iter().all(|d| d.1 == DropCause::Overflow));
}
