use super::super::law::Law;
use super::super::{fixed, lfq, pie, rlaqm, wqm};
use std::sync::Arc;

use super::*;
use crate::policy::{Activation, Affine, Card, FORMAT, Head, Input, Policy};
use crate::rate::Rate;
use crate::time::MS;
use crate::{Rng, pie as law};
use proptest::prelude::*;

const RATE: Rate = Rate::from_mbit(10);
const PERIOD: Duration = Duration::from_millis(20);

/// One linear layer that prefers action 1, a step of 0.01 up.
fn network(weight: f32, bias: f32) -> Policy {
    let input = |name: &str, scale| Input {
        name: name.into(),
        offset: 0.0,
        scale,
    };
    let card = Card {
        format: FORMAT,
        name: "by-hand".into(),
        what: "a test".into(),
        inputs: vec![
            input("delay_ms", 1.0),
            input("utilisation", 1.0),
            input("drop", 1.0),
        ],
        hidden: vec![],
        heads: vec![Head {
            name: "value".into(),
            activation: Activation::Linear,
            outputs: rlaqm::STEPS.iter().map(|s| s.to_string()).collect(),
        }],
        trained_on: "nothing".into(),
        seed: 0,
        quell: "0".into(),
        results: Default::default(),
        origin: None,
    };
    let mut affine = Affine {
        weight: vec![weight; 15],
        bias: vec![0.0; 5],
    };
    affine.bias[1] = bias;
    Policy::new(card, &[affine]).unwrap()
}

fn learned(weight: f32) -> Box<dyn Control> {
    let policy = network(weight, 1.0);
    Box::new(rlaqm::RlAqm::new(rlaqm::Params::default(), policy).unwrap())
}

fn classic() -> Box<dyn Control> {
    Box::new(pie::Pie::new(law::Params::default()))
}

fn guard(params: Params) -> Guard {
    Guard::new(params, learned(0.0), classic())
}

/// Readings at decision n, from 1: 25 ms queued on a busy link.
fn busy(n: u64) -> Gauges {
    Gauges {
        now: Instant::ZERO + n * PERIOD,
        backlog_packets: 21,
        backlog_bytes: 31_250,
        rate: RATE,
        share: 1.0,
        arrivals: 20 * n,
        departures: 16 * n,
        departed_bytes: RATE.bytes_per_sec() / 50 * n,
        ..Gauges::default()
    }
}

fn run(guard: &mut Guard, from: u64, n: u64) -> Vec<Option<f64>> {
    let mut rng = Rng::new(1, "guard");
    let knobs = (from..from + n).map(|i| guard.decide(&busy(i), &mut [], &mut rng));
    knobs.map(|k| k.drop).collect()
}

#[test]
fn without_a_fault_the_learned_controller_decides() {
    let mut g = guard(Params::default());
    assert_eq!(run(&mut g, 1, 3), [Some(0.01), Some(0.02), Some(0.03)]);
    assert_eq!((g.stats().decisions, g.stats().learned), (3, 3));
    assert_eq!(g.stats().fallbacks, 0);
}

#[test]
fn knobs_beyond_their_range_are_clamped() {
    let mut g = guard(Params {
        drop: (0.0, 0.015),
        ..Params::default()
    });
    assert_eq!(run(&mut g, 1, 3), [Some(0.01), Some(0.015), Some(0.015)]);
    assert_eq!(g.stats().clipped, 2);
}

#[test]
fn after_an_impossible_reading_the_classic_controller_decides_until_a_quiet_time_has_passed() {
    let mut g = guard(Params::default());
    run(&mut g, 1, 3);
    let mut rng = Rng::new(1, "guard");
    let bad = Gauges {
        probability: f64::NAN,
        ..busy(4)
    };
    let knobs = g.decide(&bad, &mut [], &mut rng);
    assert_eq!((knobs.drop, knobs.limit_packets), (Some(0.0), None));
    assert!(!g.trusts());
    // A quiet second is 50 periods of 20 ms. PIE continues from the probability in force, 0.03.
    let meanwhile = run(&mut g, 5, 49);
    assert!(!g.trusts() && (meanwhile[0].unwrap() - 0.03).abs() < 0.02);
    let p = meanwhile.last().unwrap().unwrap();
    let back = run(&mut g, 54, 1)[0].unwrap();
    // The learned controller goes one step up from PIE's probability, rounded to hundredths.
    assert!(g.trusts() && (back - p - 0.01).abs() < 0.0051, "{p} {back}");
    let s = g.stats();
    assert_eq!((s.out_of_range, s.fallbacks, s.handed_back), (1, 1, 1));
}

/// A clock that gives these times in turn, and the last one from then on.
fn clock<const N: usize>(times: [Instant; N]) -> Clock {
    let next = std::sync::atomic::AtomicUsize::new(0);
    Arc::new(move || {
        let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        times[n.min(times.len() - 1)]
    })
}

#[test]
fn a_late_decision_is_not_taken() {
    let mut g = guard(Params::default());
    run(&mut g, 1, 3);
    g.time_decisions(clock([
        Instant::ZERO + 4 * PERIOD,
        Instant::ZERO + 5 * PERIOD + Duration::from_nanos(1),
    ]));
    let knobs = g.decide(&busy(4), &mut [], &mut Rng::new(1, "guard"));
    // PIE continues from 0.03.
    assert_eq!((g.stats().late, knobs.limit_packets), (1, None));
    assert!((knobs.drop.unwrap() - 0.03).abs() < 0.02 && !g.trusts());
}

#[test]
fn a_reading_that_is_old_or_unchanged_is_stale() {
    let mut rng = Rng::new(1, "guard");
    let mut g = guard(Params::default());
    run(&mut g, 1, 3);
    g.time_decisions(clock([Instant::ZERO
        + 5 * PERIOD
        + Duration::from_nanos(1)]));
    g.decide(&busy(4), &mut [], &mut rng);
    assert_eq!(g.stats().stale, 1);
    let mut g = guard(Params::default());
    run(&mut g, 1, 3);
    g.decide(&busy(3), &mut [], &mut rng);
    assert_eq!(g.stats().stale, 1);
    // The longest time between two readings, and one period more.
    for (n, stale) in [(LONGEST / PERIOD, 0), (LONGEST / PERIOD + 1, 1)] {
        let mut g = guard(Params::default());
        run(&mut g, 1, 1);
        g.decide(&busy(1 + n), &mut [], &mut rng);
        assert_eq!(g.stats().stale, stale, "{n}");
    }
}

#[test]
fn the_limit_of_the_queue_stays_while_the_classic_controller_moves_its_probability() {
    // RL-AQM's FIFO holds 5000 packets; PIE changes that neither in a dry run nor after a fallback.
    for dry_run in [true, false] {
        let mut g = guard(Params {
            dry_run,
            ..Params::default()
        });
        assert_eq!(g.initial().limit_packets, Some(5000));
        let mut rng = Rng::new(1, "guard");
        for n in 1..200 {
            let gauges = match n % 70 {
                9 => Gauges {
                    share: 2.0,
                    ..busy(n)
                },
                _ => busy(n),
            };
            let knobs = g.decide(&gauges, &mut [], &mut rng);
            assert_eq!(knobs.limit_packets, None, "decision {n}");
        }
        assert_eq!(g.stats().fallbacks, if dry_run { 0 } else { 3 });
    }
}

/// LFQ under guard, with a network that always gives `output`; the fallback is a limit of 50.
fn flows(output: f32) -> Guard {
    let policy = lfq::tests::constant(output);
    let learned = lfq::Lfq::new(lfq::Params::default(), policy).unwrap();
    let classic = fixed::Fixed::new(fixed::Params {
        limit: Some(50),
        drop: None,
    });
    Guard::new(Params::default(), Box::new(learned), Box::new(classic))
}

fn arrive(g: &mut Guard, n: u64) -> Option<u32> {
    let arrival = Arrival {
        now: Instant::from_millis(n),
        sub_queue: Some(0),
        fresh: n == 0,
        held: 3,
        len: 1500,
    };
    match g.on_arrival(&arrival) {
        Decision::Set(knobs) => knobs.limit_packets,
        Decision::Ask => None,
    }
}

#[test]
fn a_controller_that_decides_on_packets_is_guarded_decision_by_decision() {
    let mut g = flows(7.0);
    let set: Vec<_> = (0..30).filter_map(|n| arrive(&mut g, n)).collect();
    assert_eq!(set, [7, 7, 7]);
    assert_eq!((g.stats().decisions, g.stats().learned), (3, 3));
    // By the clock, the next decision takes a second.
    g.time_decisions(clock([Instant::ZERO, Instant::from_secs(1)]));
    assert_eq!(arrive(&mut g, 30), Some(50));
    assert!(!g.trusts() && g.stats().late == 1);
    let mut rng = Rng::new(1, "guard");
    let reading = |n: u64| Gauges {
        now: Instant::ZERO + n * CHECK_PERIOD,
        ..busy(n)
    };
    g.clock = None;
    // The whole queue gets the classic limit, and after a quiet second single flows get the
    // network's again.
    assert_eq!(
        g.decide(&reading(3), &mut [], &mut rng).limit_packets,
        Some(50)
    );
    for n in 4..75 {
        g.decide(&reading(n), &mut [], &mut rng);
    }
    assert!(g.trusts() && g.stats().handed_back == 1);
    let set: Vec<_> = (40..60).filter_map(|n| arrive(&mut g, n)).collect();
    assert_eq!(set, [7, 7]);
}

#[test]
fn a_network_of_limits_whose_answers_are_not_numbers_is_rejected() {
    let mut g = flows(f32::MAX);
    assert_eq!(arrive(&mut g, 0), Some(1000), "a number, however large");
    let policy = lfq::tests::broken();
    let learned = lfq::Lfq::new(lfq::Params::default(), policy).unwrap();
    let mut g = Guard {
        learned: Box::new(learned),
        ..flows(0.0)
    };
    // Its output is infinite as soon as packets are queued.
    let set: Vec<_> = (0..30).filter_map(|n| arrive(&mut g, n)).collect();
    assert_eq!(set, [50, 50, 50]);
    assert_eq!(g.stats().not_a_number, 3);
}

#[test]
fn a_network_whose_answers_are_not_numbers_is_rejected() {
    // The weights are finite, but with a delay of 25 ms the value of each action is infinite.
    let mut g = Guard::new(Params::default(), learned(f32::MAX), classic());
    run(&mut g, 1, 100);
    let s = g.stats();
    assert_eq!((s.learned, s.not_a_number), (0, 100));
    assert!(s.fallbacks == 1 && !g.trusts());
}

/// Readings of a queue whose head has waited 10 ms longer at each decision.
fn growing(n: u64) -> Gauges {
    Gauges {
        head_age: 10 * MS * n,
        ..busy(n)
    }
}

#[test]
fn a_controller_without_effect_on_a_growing_delay_is_rejected() {
    // All steps have the same value: it takes the first, which leaves the probability unchanged.
    let learned = rlaqm::RlAqm::new(rlaqm::Params::default(), network(0.0, 0.0)).unwrap();
    let mut g = Guard::new(Params::default(), Box::new(learned), classic());
    let mut rng = Rng::new(1, "guard");
    // Above 250 ms from decision 26 on; a second is 50 decisions.
    for n in 1..76 {
        assert_eq!(g.decide(&growing(n), &mut [], &mut rng).drop, Some(0.0));
    }
    assert!(g.trusts() && g.stats().stuck == 0, "{:?}", g.stats());
    for n in 76..100 {
        g.decide(&growing(n), &mut [], &mut rng);
    }
    assert!(!g.trusts() && g.stats().stuck == 24, "{:?}", g.stats());
    // The delay is short again: the learned controller returns after twice the quiet time.
    run(&mut g, 100, 99);
    assert!(!g.trusts());
    run(&mut g, 199, 2);
    assert!(g.trusts(), "{:?}", g.stats());
}

#[test]
fn flow_limits_that_never_change_while_the_delay_grows_are_rejected() {
    let mut g = flows(f32::MAX);
    let mut rng = Rng::new(1, "guard");
    for n in 1..100 {
        for k in 0..15 {
            arrive(&mut g, 15 * n + k);
        }
        let gauges = Gauges {
            now: Instant::ZERO + n * CHECK_PERIOD,
            ..growing(n)
        };
        g.decide(&gauges, &mut [], &mut rng);
    }
    assert!(!g.trusts() && g.stats().stuck > 0, "{:?}", g.stats());
    let set: Vec<_> = (1500..1530).filter_map(|n| arrive(&mut g, n)).collect();
    assert_eq!(set, [50, 50, 50]);
}

#[test]
fn a_dry_run_only_counts_what_would_have_been_done() {
    let mut g = guard(Params {
        dry_run: true,
        ..Params::default()
    });
    let mut pie = classic();
    let mut rng = Rng::new(1, "guard");
    let start = g.initial();
    assert_eq!(start.drop, pie.initial().drop);
    assert_eq!(start.limit_packets, Some(5000));
    for i in 1..=200 {
        assert_eq!(
            g.decide(&busy(i), &mut [], &mut rng),
            pie.decide(&busy(i), &mut [], &mut rng)
        );
    }
    let s = g.stats();
    assert_eq!((s.learned, s.proposals, s.fallbacks), (0, 200, 0));
    // The learned controller proposed a step above the probability in force each time.
    let more = (s.proposed_sum - s.set_sum) / 200.0;
    assert!((0.0..0.02).contains(&more), "{more}");
}

#[test]
fn a_queue_with_a_law_gets_it_back() {
    let mut g = Guard::new(Params::default(), learned(f32::MAX), Box::new(Law));
    let knobs = g.decide(&busy(1), &mut [], &mut Rng::new(1, "guard"));
    assert!(knobs.release && knobs.drop.is_none());
}

fn hostile() -> impl Strategy<Value = Gauges> {
    let real = prop_oneof![
        3 => Just(1.0),
        1 => any::<f64>(),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
    ];
    let count = || prop_oneof![Just(0), 0..1000u64, any::<u64>()];
    let counters = (count(), count(), count(), count(), count());
    (counters, count(), any::<u32>(), real.clone(), real, count()).prop_map(
        |((a, b, c, d, e), bytes, packets, share, probability, now)| Gauges {
            now: Instant::from_nanos(now),
            backlog_packets: packets,
            backlog_bytes: bytes,
            sojourn: Duration::from_nanos(a),
            head_age: Duration::from_nanos(b),
            rate: Rate::from_bps(c),
            share,
            arrivals: d,
            departures: e,
            departed_bytes: a,
            probability,
            ..Gauges::default()
        },
    )
}

fn weights() -> impl Strategy<Value = f32> {
    any::<u32>()
        .prop_map(f32::from_bits)
        .prop_filter("a file with others is refused", |w| w.is_finite())
}

proptest! {
    /// For any gauges and weights there is no panic, and all knobs are within their ranges.
    #[test]
    fn knobs_stay_in_their_ranges_under_hostile_gauges_and_corrupted_weights(
        readings in proptest::collection::vec((any::<bool>(), hostile()), 1..60),
        weight in weights(),
        limit in any::<bool>(),
    ) {
        let params = Params {
            limit: (2, 2000),
            drop: (0.0, 0.5),
            ..Params::default()
        };
        let wqm = || Box::new(wqm::Wqm::new(wqm::Params::default(), RATE));
        let mut g = match limit {
            true => Guard::new(params, wqm(), wqm()),
            false => Guard::new(params, learned(weight), classic()),
        };
        let mut rng = Rng::new(1, "guard");
        for (n, (good, bad)) in readings.iter().enumerate() {
            let gauges = if *good { busy(n as u64 + 1) } else { *bad };
            let knobs = g.decide(&gauges, &mut [], &mut rng);
            prop_assert!(knobs.drop.is_none_or(|p| (0.0..=1.0).contains(&p)));
            prop_assert!(!g.trusts() || knobs.drop.is_none_or(|p| p <= 0.5));
            prop_assert!(knobs.limit_packets.is_none_or(|l| (2..=5000).contains(&l)));
        }
        let s = *g.stats();
        prop_assert_eq!(s.decisions, readings.len() as u64);
        prop_assert!(s.learned + s.late + s.stale + s.out_of_range + s.not_a_number <= s.decisions);
        // Once there is no fault any more, the learned controller returns, if its network is sound.
        let start = 1 + readings.iter().map(|r| (r.1.now - Instant::ZERO) / PERIOD).max().unwrap_or(0);
        let sound = limit || (f64::from(weight) * 1e9).abs() < f64::from(f32::MAX);
        if sound && start < 1 << 30 {
            for n in 0..100 {
                let gauges = Gauges { now: Instant::ZERO + (start + n) * PERIOD, ..busy(1) };
                let gauges = Gauges { arrivals: u64::MAX, departures: u64::MAX, departed_bytes: u64::MAX, ..gauges };
                g.decide(&gauges, &mut [], &mut rng);
            }
            prop_assert!(g.trusts(), "{:?}", g.stats());
        }
    }
}
