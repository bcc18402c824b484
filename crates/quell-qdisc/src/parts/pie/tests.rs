use super::*;
use crate::Rng;
use proptest::prelude::*;

const FULL: u32 = 1514;

/// A law past its burst allowance, with this probability and delay.
pub(crate) fn law(prob: f64, qdelay: Duration) -> Vars {
    Vars {
        burst_time: Duration::ZERO,
        prob: (prob * MAX_PROB as f64) as u64,
        qdelay,
        qdelay_old: qdelay,
        ..Vars::default()
    }
}

fn rng() -> Rng {
    Rng::new(1, "pie")
}

/// Change of the probability (0..1) in one update at `delay`, after a delay that was the target.
fn step(prob: f64, delay: Duration) -> f64 {
    let params = Params::default();
    let mut v = law(prob, delay);
    v.qdelay_old = params.target;
    let before = v.prob;
    v.calculate_probability(&params, 100_000);
    (v.prob as i64 - before as i64) as f64 / MAX_PROB as f64
}

#[test]
fn defaults_are_those_of_linux() {
    let p = Params::default();
    assert_eq!((p.target, p.tupdate, p.limit), (15 * MS, 15 * MS, 1000));
    assert_eq!((p.alpha, p.beta, p.ecn, p.bytemode), (2, 20, false, false));
    assert_eq!(p.check(), Ok(()));
}

#[test]
fn seven_step_auto_tuning() {
    // RFC 8033, section 4.2: below each bound the weights shrink by this much.
    for (prob, divisor) in [
        (5e-7, 2048.0),
        (5e-6, 512.0),
        (5e-5, 128.0),
        (5e-4, 32.0),
        (5e-3, 8.0),
        (5e-2, 2.0),
        (0.5, 1.0),
    ] {
        // 1 ms above target, 1 ms more than before: (0.125 + 1.25) / s * 1 ms.
        let want = 1.375e-3 / divisor;
        let got = step(prob, 16 * MS);
        assert!((got / want - 1.0).abs() < 1e-3, "{prob}: {got} {want}");
    }
}

#[test]
fn increments_are_capped_at_two_percent_above_ten_percent() {
    // 100 ms above target would add (0.125 + 1.25) * 0.1 = 13.75 %.
    assert!((step(0.2, 115 * MS) - 0.02).abs() < 1e-6);
    // Below 10 % only the halved weights restrain it: 6.9 %.
    assert!((step(0.09, 115 * MS) - 0.06875).abs() < 1e-4);
}

#[test]
fn above_250_ms_another_two_percent_is_added() {
    assert!((step(0.2, 250 * MS) - 0.02).abs() < 1e-6);
    assert!((step(0.2, 250 * MS + Duration::from_nanos(1)) - 0.04).abs() < 1e-6);
}

#[test]
fn bursts_pass_again_when_both_delays_are_below_half_the_target_and_the_probability_is_0() {
    let half = 15 * MS / 2;
    for (old, delay, prob, again) in [
        (
            half - Duration::from_nanos(1),
            half - Duration::from_nanos(1),
            0.0,
            true,
        ),
        (half, half - Duration::from_nanos(1), 0.0, false),
        (half - Duration::from_nanos(1), half, 0.0, false),
        // The probability does not fall to 0 in one update.
        (
            half - Duration::from_nanos(1),
            half - Duration::from_nanos(1),
            0.5,
            false,
        ),
    ] {
        let mut v = law(prob, delay);
        v.qdelay_old = old;
        v.calculate_probability(&Params::default(), 100_000);
        assert_eq!(
            v.burst_time,
            if again { MAX_BURST } else { Duration::ZERO },
            "{old:?}, {delay:?}, {prob}"
        );
    }
    // With the estimator, bursts pass again only if a rate is known, which is then forgotten.
    let params = Params {
        dq_rate_estimator: true,
        ..Params::default()
    };
    for rate in [0, 1000] {
        let mut v = law(0.0, Duration::ZERO);
        v.avg_dq_rate = rate;
        v.calculate_probability(&params, 0);
        let burst = if rate > 0 { MAX_BURST } else { Duration::ZERO };
        assert_eq!((v.burst_time, v.avg_dq_rate), (burst, 0));
    }
}

#[test]
fn the_rate_is_measured_over_16_kb_and_64_ns_at_least() {
    let params = Params {
        dq_rate_estimator: true,
        ..Params::default()
    };
    for (now, len, measured) in [(64, 1024, true), (64, 1023, false), (63, 1024, false)] {
        let mut v = Vars {
            dq_tstamp: Some(Instant::ZERO),
            dq_count: Some(QUEUE_THRESHOLD - 1024),
            ..Vars::default()
        };
        v.process_dequeue(&params, Instant::from_nanos(now), Instant::ZERO, len, 0);
        assert_eq!(v.avg_dq_rate > 0, measured, "{now}, {len}");
        assert_eq!(v.dq_count.is_none(), measured);
    }
}

#[test]
fn nothing_accumulates_in_a_burst_with_a_short_delay_or_below_two_packets() {
    let params = Params::default();
    let (half, two) = (params.target / 2, 2 * u64::from(params.mtu));
    for (burst, delay, prob, backlog, accumulates) in [
        (0, half, 0.0001, two, true),
        (1, half, 0.0001, two, false),
        (0, half - Duration::from_nanos(1), 0.0001, two, false),
        (0, half - Duration::from_nanos(1), 0.2001, two, true),
        (0, half, 0.0001, two - 1, false),
    ] {
        let mut v = law(prob, delay);
        v.burst_time = Duration::from_nanos(burst);
        assert!(!v.drop_early(&params, backlog, 100, &mut rng()));
        let expected = if accumulates { v.prob } else { 0 };
        assert_eq!(
            v.accu_prob, expected,
            "{burst}, {delay:?}, {prob}, {backlog}"
        );
    }
}

#[test]
fn an_idle_queue_loses_a_64th_of_its_probability() {
    let params = Params::default();
    let mut v = law(0.5, Duration::ZERO);
    v.calculate_probability(&params, 0);
    // First the ordinary step, 0.125 * -15 ms, then the decay.
    let want = (0.5 - 0.125 * 0.015) * (63.0 / 64.0);
    assert!((v.probability() - want).abs() < 1e-6);
}

#[test]
fn no_decay_unless_both_delays_are_zero() {
    let params = Params::default();
    let mut v = law(0.5, Duration::ZERO);
    v.qdelay_old = MS;
    v.calculate_probability(&params, 0);
    let want = 0.5 - 0.125 * 0.015 - 1.25 * 0.001;
    assert!((v.probability() - want).abs() < 1e-6);
}

#[test]
fn no_decay_while_something_is_queued() {
    let params = Params::default();
    let mut v = law(0.5, Duration::ZERO);
    v.calculate_probability(&params, 1514);
    assert!((v.probability() - (0.5 - 0.125 * 0.015)).abs() < 1e-6);
}

#[test]
fn the_probability_stops_at_zero_but_not_at_one() {
    let params = Params::default();
    let mut v = law(1e-3, Duration::ZERO);
    v.qdelay_old = 20 * MS;
    v.calculate_probability(&params, 0);
    assert_eq!(v.prob, 0);
    let mut v = law(1.0, 300 * MS);
    v.calculate_probability(&params, 100_000);
    assert!(v.prob > MAX_PROB && v.probability() == 1.0);
    // At the end of 64 bits it wraps to 1.
    v.prob = u64::MAX - 1;
    v.calculate_probability(&params, 100_000);
    assert_eq!(v.prob, MAX_PROB);
}

#[test]
fn nothing_is_dropped_while_burst_allowance_is_left() {
    let mut v = law(1.0, 100 * MS);
    v.burst_time = Duration::from_nanos(1);
    assert!(!(0..100).any(|_| v.drop_early(&Params::default(), 100_000, FULL, &mut rng())));
    v.burst_time = Duration::ZERO;
    assert!((0..100).any(|_| v.drop_early(&Params::default(), 100_000, FULL, &mut rng())));
}

#[test]
fn the_present_delay_below_half_the_target_and_a_low_probability_drop_nothing() {
    let dropped = |prob, qdelay, old| {
        let mut v = law(prob, qdelay);
        v.qdelay_old = old;
        let mut r = rng();
        (0..200).any(|_| v.drop_early(&Params::default(), 100_000, FULL, &mut r))
    };
    assert!(!dropped(0.19, 7 * MS, 100 * MS));
    assert!(dropped(0.19, 8 * MS, Duration::ZERO));
    assert!(dropped(0.21, 7 * MS, Duration::ZERO));
}

#[test]
fn fewer_than_two_mtu_queued_drop_nothing() {
    let dropped = |backlog| {
        let mut v = law(0.5, 100 * MS);
        let mut r = rng();
        (0..200).any(|_| v.drop_early(&Params::default(), backlog, FULL, &mut r))
    };
    assert!(!dropped(2 * 1514 - 1));
    assert!(dropped(2 * 1514));
}

#[test]
fn derandomisation_keeps_drops_apart_and_never_lets_more_than_eight_and_a_half_go() {
    let params = Params::default();
    let mut v = law(0.1, 100 * MS);
    let mut r = rng();
    let (mut gap, mut gaps) = (0, Vec::new());
    while gaps.len() < 2000 {
        gap += 1;
        if v.drop_early(&params, 100_000, FULL, &mut r) {
            v.accu_prob = 0;
            gaps.push(gap);
            gap = 0;
        }
    }
    // 0.85 / 0.1 is reached at the ninth packet, 8.5 / 0.1 at the 85th.
    assert_eq!(*gaps.iter().min().unwrap(), 9);
    assert!(*gaps.iter().max().unwrap() <= 85);
    // From the ninth packet on, each is dropped with probability 0.1: the mean is 8 + 10.
    let mean = f64::from(gaps.iter().sum::<i32>()) / gaps.len() as f64;
    assert!((mean - 18.0).abs() < 0.7, "{mean}");
}

#[test]
fn at_eight_and_a_half_it_drops_without_a_random_draw() {
    let mut v = law(1e-6, 100 * MS);
    v.accu_prob = MAX_PROB / 2 * 17;
    assert!(v.drop_early(&Params::default(), 100_000, FULL, &mut rng()));
    // The caller that drops clears the accumulator: a mark does not.
    assert!(v.accu_prob >= MAX_PROB / 2 * 17);
}

#[test]
fn a_random_drop_clears_the_accumulator() {
    let mut v = law(0.99, 100 * MS);
    while !v.drop_early(&Params::default(), 100_000, FULL, &mut rng()) {}
    assert_eq!(v.accu_prob, 0);
}

#[test]
fn a_zero_probability_clears_the_accumulator() {
    let mut v = law(0.0, 100 * MS);
    v.accu_prob = MAX_PROB / 2;
    assert!(!v.drop_early(&Params::default(), 100_000, FULL, &mut rng()));
    assert_eq!(v.accu_prob, 0);
}

#[test]
fn byte_mode_scales_with_the_packet() {
    let count = |len| {
        let params = Params {
            bytemode: true,
            ..Params::default()
        };
        let mut v = law(0.2, 100 * MS);
        let mut r = rng();
        (0..10_000)
            .filter(|_| v.drop_early(&params, 100_000, len, &mut r))
            .count()
    };
    // A tenth of the size: a tenth of the drops.
    let (full, tenth) = (count(1514), count(151));
    assert!((8..=12).contains(&(full / tenth)), "{full} {tenth}");
}

#[test]
fn burst_allowance_comes_back_only_at_zero_probability_and_two_low_delays() {
    let params = Params::default();
    let after = |prob, now, old| {
        let mut v = law(prob, now);
        v.qdelay_old = old;
        v.calculate_probability(&params, 10_000);
        v.burst_time
    };
    assert_eq!(after(0.0, 7 * MS, 7 * MS), MAX_BURST);
    assert_eq!(after(0.0, 8 * MS, 7 * MS), Duration::ZERO);
    assert_eq!(after(0.0, 7 * MS, 8 * MS), Duration::ZERO);
    assert_eq!(after(0.5, 7 * MS, 7 * MS), Duration::ZERO);
}

#[test]
fn the_rate_estimator_divides_the_backlog_by_the_drain_rate() {
    let params = Params {
        dq_rate_estimator: true,
        ..Params::default()
    };
    let mut v = Vars::default();
    // 1514 bytes each 121.12 us: 100 Mbit/s, with 100 packets always queued: 12.1 ms.
    for i in 0..1000 {
        let now = Instant::from_nanos(i * 121_120);
        v.process_dequeue(&params, now, Instant::ZERO, FULL, 151_400);
    }
    v.calculate_probability(&params, 151_400);
    let want = 12_112_000.0;
    assert!(
        (v.qdelay.as_nanos() as f64 / want - 1.0).abs() < 0.02,
        "{:?}",
        v.qdelay
    );
}

/// Any state that the law may have after a run.
fn vars() -> impl Strategy<Value = Vars> {
    let delay = prop_oneof![Just(0), 0..SEC.as_nanos(), 0..u64::MAX / 4];
    (
        (delay.clone(), delay.clone(), delay),
        (any::<u64>(), any::<u64>(), any::<u32>()),
        prop::option::of(0..SEC.as_nanos()),
        prop::option::of(0..1_u64 << 40),
    )
        .prop_map(
            |(
                (qdelay, qdelay_old, burst_time),
                (prob, accu_prob, avg_dq_rate),
                dq_tstamp,
                dq_count,
            )| Vars {
                qdelay: Duration::from_nanos(qdelay),
                qdelay_old: Duration::from_nanos(qdelay_old),
                burst_time: Duration::from_nanos(burst_time),
                dq_tstamp: dq_tstamp.map(Instant::from_nanos),
                prob,
                accu_prob,
                dq_count,
                avg_dq_rate,
            },
        )
}

fn any_params() -> impl Strategy<Value = Params> {
    (
        0..=(10 * SEC).as_nanos(),
        0..=32_u32,
        0..=32_u32,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(target, alpha, beta, bytemode, dq_rate_estimator)| Params {
                target: Duration::from_nanos(target),
                alpha,
                beta,
                bytemode,
                dq_rate_estimator,
                ..Params::default()
            },
        )
}

proptest! {
    /// Overflow checks are on: the integers do not overflow with any state, parameters and backlog.
    #[test]
    fn nothing_overflows_and_the_probability_is_one(
        mut v in vars(), params in any_params(), backlog in 0..1_u64 << 48, len in 20..65_536_u32,
        now in SEC.as_nanos()..u64::MAX / 2, waited in 0..SEC.as_nanos(),
    ) {
        prop_assert!(params.check().is_ok());
        for _ in 0..3 {
            v.drop_early(&params, backlog, len, &mut rng());
            let (now, arrived) = (Instant::from_nanos(now), Instant::from_nanos(now - waited));
            v.process_dequeue(&params, now, arrived, len, backlog);
            v.calculate_probability(&params, backlog);
            prop_assert!((0.0..=1.0).contains(&v.probability()));
        }
    }

    /// RFC 8033, section 5.5: from 10 % on, no more than 2 % are added, and 2 % more above 250 ms.
    #[test]
    fn a_high_probability_rises_slowly(delay in 0..(10 * SEC).as_nanos(), old in 0..(10 * SEC).as_nanos(), p in 0.1..1.0_f64) {
        let mut v = law(p, Duration::from_nanos(delay));
        v.qdelay_old = Duration::from_nanos(old);
        let before = v.prob;
        v.calculate_probability(&Params::default(), 100_000);
        let most = MAX_PROB / 50 * if delay > HIGH_DELAY.as_nanos() { 2 } else { 1 };
        prop_assert!(v.prob.saturating_sub(before) <= most + 2);
    }

    /// A longer delay never gives a smaller probability.
    #[test]
    fn the_probability_rises_with_the_delay(
        one in 0..SEC.as_nanos(), other in 0..SEC.as_nanos(), old in 0..SEC.as_nanos(), p in 0.0..1.0_f64
    ) {
        let after = |delay| {
            let mut v = law(p, delay);
            v.qdelay_old = Duration::from_nanos(old);
            v.calculate_probability(&Params::default(), 100_000);
            v.prob
        };
        prop_assert!(after(Duration::from_nanos(one.min(other))) <= after(Duration::from_nanos(one.max(other))) + 2);
    }
}
