use super::*;

/// The published reward and its learning.
fn published() -> Params {
    Params::default().published_reward()
}

/// The published reward with a constant learning rate, the current limit in `max_delay`, and 400 as
/// the first limit.
fn plain() -> Params {
    Params {
        alpha: Some(0.1),
        queue_size: QueueSize::Present,
        initial: 400,
        ..published()
    }
}

fn greedy(params: Params) -> LearnQueue {
    LearnQueue::new(Params {
        epsilon: 0.0,
        epsilon_min: 0.0,
        ..params
    })
}

fn idle() -> Gauges {
    Gauges::default()
}

#[test]
fn the_reward_is_zero_when_the_delay_is_the_maximum_and_nothing_is_dropped() {
    // Section 3.3: "using equal scaling weights, the obtained total reward is equal to zero".
    let reward = |p: &Params, limit, delay_ms, enqueue_rate| {
        p.reward(&Period {
            direction: 1,
            bounded: false,
            limit,
            delay_ms,
            enqueue_rate,
        })
    };
    let p = published();
    let current = Params {
        queue_size: QueueSize::Present,
        ..published()
    };
    for limit in [1, 17, 400] {
        assert!(reward(&current, limit, current.max_delay_ms(limit), 1.0).abs() < 1e-9);
        assert!(reward(&p, limit, p.max_delay_ms(limit), 1.0).abs() < 1e-9);
    }
    assert!(reward(&p, 400, p.max_delay_ms(400), 0.9) < 0.0);
}

#[test]
fn the_maximum_delay_is_that_of_the_basic_rate() {
    // 1500 bytes at 6.5 Mbit/s take 1.846 ms, 400 of them 738.5 ms; 30 ms are 16.25 packets.
    let p = Params {
        queue_size: QueueSize::Present,
        ..published()
    };
    assert!((p.max_delay_ms(1) - 1.846).abs() < 0.001);
    assert!((p.max_delay_ms(400) - 738.46).abs() < 0.01);
    assert!(p.max_delay_ms(16) < 30.0 && p.max_delay_ms(17) > 30.0);
    assert_eq!(published().max_delay_ms(1), p.max_delay_ms(400));
    assert_eq!(
        Params::default().as_published().max_delay_ms(8),
        p.max_delay_ms(1)
    );
}

#[test]
fn four_hundred_and_thirty_nine_discoveries_end_exploration_and_open_the_horizon() {
    // ln(9) / -ln(0.995) = 438.4
    let mut lq = LearnQueue::new(published());
    for n in 0..439 {
        assert!(lq.epsilon() > 0.1 && lq.gamma() < 0.9, "{n}");
        lq.visit(Pair {
            row: n as usize / 2,
            action: n as usize % 2,
            bounded: false,
        });
        assert!((lq.epsilon() + lq.gamma() - 1.0).abs() < 1e-12);
    }
    assert!(lq.epsilon() <= 0.1 && lq.gamma() >= 0.9);
    assert_eq!(lq.discovered(), 439);
    let (epsilon, gamma) = (lq.epsilon(), lq.gamma());
    lq.visit(Pair {
        row: 399,
        action: 0,
        bounded: false,
    });
    assert_eq!((lq.epsilon(), lq.gamma()), (epsilon, gamma));
}

#[test]
fn the_literal_update_stays_within_32_bits() {
    for (arithmetic, sign) in [(Arithmetic::Float, 1.0), (Arithmetic::Fixed, -1.0)] {
        let mut lq = LearnQueue::new(Params {
            update: Update::Literal,
            arithmetic,
            ..plain()
        });
        let pair = Pair {
            row: 8,
            action: 1,
            bounded: false,
        };
        for _ in 0..3 {
            lq.learn(pair, sign * 1.5e6, 9);
        }
        assert_eq!(lq.q(9, 1), sign * f64::from(i32::MAX) / 1000.0);
    }
}

#[test]
fn a_pair_seen_before_changes_neither_epsilon_nor_gamma() {
    let mut lq = LearnQueue::new(published());
    let pair = Pair {
        row: 8,
        action: 1,
        bounded: false,
    };
    lq.visit(pair);
    let after_one = lq.clone();
    lq.visit(pair);
    assert_eq!((lq.epsilon(), lq.discovered()), (after_one.epsilon(), 1));
}

#[test]
fn the_printed_rule_takes_gamma_to_its_end_at_once() {
    let mut lq = LearnQueue::new(Params {
        discount: Discount::Printed,
        ..published()
    });
    lq.visit(Pair {
        row: 0,
        action: 1,
        bounded: false,
    });
    assert!((lq.gamma() - 0.9005).abs() < 1e-12); // 1 - 0.995 * 0.1
}

#[test]
fn a_tie_is_an_increase() {
    let mut lq = greedy(Params {
        initial: 7,
        ..published()
    });
    let knobs = lq.decide(&idle(), &mut [], &mut Rng::new(1, "t"));
    assert_eq!(knobs.limit_packets, Some(8));
    assert_eq!(lq.limit(), 8);
}

#[test]
fn leaving_the_range_is_punished_with_the_maximum_delay_and_does_nothing() {
    let mut lq = greedy(plain());
    let knobs = lq.decide(&idle(), &mut [], &mut Rng::new(1, "t"));
    assert_eq!(knobs.limit_packets, Some(400));
    // Q of the new pair: alpha * (reward + gamma * 0).
    assert!(
        (lq.q(400, 1) + 0.1 * 738.4615).abs() < 1e-3,
        "{}",
        lq.q(400, 1)
    );
    // Now the other action is better.
    assert_eq!(
        lq.decide(&idle(), &mut [], &mut Rng::new(1, "t"))
            .limit_packets,
        Some(399)
    );
}

#[test]
fn the_update_is_that_of_q_learning() {
    let mut lq = greedy(Params {
        initial: 20,
        ..plain()
    });
    let busy = Gauges {
        departures: 1,
        sojourn: 10 * MS,
        arrivals: 4,
        drops_overflow: 1,
        ..idle()
    };
    lq.decide(&busy, &mut [], &mut Rng::new(1, "t"));
    // 0.5 (30 - 10) + 0.5 (36.923 - 30) 0.75 = 12.596; times alpha.
    assert!((lq.q(20, 1) - 1.2596).abs() < 1e-4, "{}", lq.q(20, 1));
    let mut literal = greedy(Params {
        initial: 20,
        update: Update::Literal,
        ..plain()
    });
    literal.decide(&busy, &mut [], &mut Rng::new(1, "t"));
    assert!((literal.q(20, 1) - 12.596).abs() < 1e-3);
    // A second update: 0.9 of 12.596, and the whole reward of 4.
    literal.gamma = 0.0;
    literal.learn(
        Pair {
            row: 19,
            action: 1,
            bounded: false,
        },
        4.0,
        20,
    );
    assert!((literal.q(20, 1) - 0.9 * 12.596 - 4.0).abs() < 1e-3);
}

#[test]
fn the_delay_is_the_last_sojourn_or_the_heads_age_or_nothing() {
    let mut lq = LearnQueue::new(published());
    let mut g = Gauges {
        departures: 3,
        sojourn: 4 * MS,
        head_age: 9 * MS,
        backlog_packets: 2,
        ..idle()
    };
    assert_eq!(lq.observe(&g).0, 4.0);
    assert_eq!(lq.observe(&g).0, 9.0); // nothing left since
    g.backlog_packets = 0;
    assert_eq!(lq.observe(&g), (0.0, 1.0)); // no arrivals: rate 1
}

#[test]
fn only_overflow_counts_against_the_enqueue_rate_and_only_of_this_period() {
    let mut lq = LearnQueue::new(published());
    let mut g = Gauges {
        arrivals: 10,
        drops_overflow: 5,
        drops_early: 3,
        ..idle()
    };
    assert_eq!(lq.observe(&g).1, 0.5);
    g.arrivals = 20;
    assert_eq!(lq.observe(&g).1, 1.0);
}

#[test]
fn delayed_credit_goes_to_the_action_that_caused_the_period() {
    let mut lq = greedy(Params {
        initial: 20,
        credit: Credit::Cause,
        ..plain()
    });
    let mut rng = Rng::new(1, "t");
    lq.decide(&idle(), &mut [], &mut rng);
    assert_eq!(lq.q(20, 1), 0.0);
    let busy = Gauges {
        departures: 1,
        sojourn: 10 * MS,
        ..idle()
    };
    lq.decide(&busy, &mut [], &mut rng);
    // A limit of 21 was in force: 0.5 (30 - 10) + 0.5 (38.769 - 30) = 14.385.
    assert!((lq.q(20, 1) - 1.4385).abs() < 1e-4, "{}", lq.q(20, 1));
    assert_eq!(lq.q(21, 1), 0.0);
}

#[test]
fn integers_learn_what_floating_point_learns() {
    let run = |arithmetic| {
        let mut lq = LearnQueue::new(Params {
            arithmetic,
            // With exploration only, both take the same actions.
            epsilon: 1.0,
            epsilon_min: 1.0,
            initial: 20,
            max_size: 40,
            ..plain()
        });
        let mut rng = Rng::new(3, "t");
        let mut g = idle();
        for i in 0..2000u64 {
            g.departures += 1;
            g.sojourn = (i * 7919 % 60) * MS;
            lq.decide(&g, &mut [], &mut rng);
        }
        lq
    };
    let (float, fixed) = (run(Arithmetic::Float), run(Arithmetic::Fixed));
    for action in 0..2 {
        let (a, b) = (float.q(20, action), fixed.q(20, action));
        assert!((a - b).abs() < 0.3 + a.abs() * 0.05, "{a} {b}");
    }
}

#[test]
fn the_literal_update_runs_to_the_ends_of_its_range_but_not_beyond() {
    let mut lq = LearnQueue::new(
        Params {
            initial: 3,
            max_size: 4,
            ..plain()
        }
        .as_published(),
    );
    let mut rng = Rng::new(3, "t");
    let late = Gauges {
        backlog_packets: 1,
        head_age: 5 * SEC,
        ..idle()
    };
    for _ in 0..100_000 {
        lq.decide(&late, &mut [], &mut rng);
    }
    for limit in 1..=4 {
        assert!(lq.q(limit, 0).abs() <= 2_147_483.648 && lq.q(limit, 1).abs() <= 2_147_483.648);
    }
}

#[test]
fn one_over_visits_makes_the_first_reward_the_value() {
    let mut lq = greedy(Params {
        initial: 20,
        alpha: None,
        ..plain()
    });
    let busy = Gauges {
        departures: 1,
        sojourn: 10 * MS,
        ..idle()
    };
    lq.decide(&busy, &mut [], &mut Rng::new(1, "t"));
    assert!((lq.q(20, 1) - 13.4615).abs() < 1e-3); // 0.5 (30 - 10) + 0.5 (36.923 - 30)
}

#[test]
fn on_a_link_that_is_late_above_ten_packets_the_limit_comes_down() {
    let mut lq = LearnQueue::new(Params {
        max_size: 60,
        initial: 60,
        ..plain()
    });
    let mut rng = Rng::new(5, "t");
    let mut g = idle();
    let mut sum = 0;
    for i in 0..60_000 {
        // A full queue on 1 Mbit/s: 12 ms a packet.
        g.departures += 1;
        g.arrivals += 1;
        g.sojourn = u64::from(lq.limit()) * 12 * MS;
        lq.decide(&g, &mut [], &mut rng);
        if i >= 40_000 {
            sum += u64::from(lq.limit());
        }
    }
    assert!(sum / 20_000 < 10, "mean limit {}", sum / 20_000);
}
