use super::*;
use crate::policy::{Activation, Affine, Card, FORMAT, Head, Input};

const RATE: Rate = Rate::from_mbit(10);

/// One linear layer over inputs with these names and scales: the matrix row by row, and the biases.
pub(in crate::control) fn linear(
    inputs: &[(&str, f32)],
    outputs: &[&str],
    weight: &[f32],
    bias: &[f32],
) -> Policy {
    let input = |(name, scale): &(&str, f32)| Input {
        name: (*name).into(),
        offset: 0.0,
        scale: *scale,
    };
    let card = Card {
        format: FORMAT,
        name: "by-hand".into(),
        what: "a test".into(),
        inputs: inputs.iter().map(input).collect(),
        hidden: vec![],
        heads: vec![Head {
            name: "value".into(),
            activation: Activation::Linear,
            outputs: outputs.iter().map(|name| (*name).into()).collect(),
        }],
        trained_on: "nothing".into(),
        seed: 0,
        quell: "0".into(),
        results: Default::default(),
        origin: None,
    };
    let affine = Affine {
        weight: weight.into(),
        bias: bias.into(),
    };
    Policy::new(card, &[affine]).unwrap()
}

/// The value of action a is `weight[a]` times (D/50, U, p) plus `bias[a]`.
fn network(weight: [[f32; 3]; 5], bias: [f32; 5]) -> Policy {
    let inputs = [("delay_ms", 0.02), ("utilisation", 1.0), ("drop", 1.0)];
    let outputs = STEPS.map(|step| step.to_string());
    linear(
        &inputs,
        &outputs.each_ref().map(|name| &name[..]),
        weight.as_flattened(),
        &bias,
    )
}

/// A network that always chooses the same action.
fn always(action: usize) -> Policy {
    let mut bias = [0.0; 5];
    bias[action] = 1.0;
    network([[0.0; 3]; 5], bias)
}

fn controller(params: Params, policy: Policy) -> RlAqm {
    RlAqm::new(params, policy).unwrap()
}

/// Readings at decision `n` (from 1) with a backlog of this duration, on a link that was busy since
/// the start.
fn busy(n: u64, backlog_ms: u64) -> Gauges {
    Gauges {
        now: Instant::from_millis(n * 20),
        backlog_bytes: RATE.bytes_in(backlog_ms * MS),
        rate: RATE,
        departed_bytes: RATE.bytes_in(20 * n * MS),
        ..Gauges::default()
    }
}

/// Delay in ms and utilisation.
fn read(c: &mut RlAqm, gauges: &Gauges) -> (f64, f64) {
    let seen = c.observe(gauges);
    (seen.delay_ms, seen.utilisation)
}

fn drops(c: &mut RlAqm, gauges: &[Gauges]) -> Vec<f64> {
    let mut rng = Rng::new(1, "t");
    gauges
        .iter()
        .map(|g| c.decide(g, &mut [], &mut rng).drop.unwrap())
        .collect()
}

#[test]
fn no_random_number_is_drawn_unless_it_explores() {
    let drawn = |epsilon| {
        let params = Params {
            epsilon,
            ..Params::default()
        };
        let mut rng = Rng::new(1, "t");
        controller(params, always(1)).decide(&busy(1, 30), &mut [], &mut rng);
        rng.u64() != Rng::new(1, "t").u64()
    };
    assert_eq!((drawn(0.0), drawn(0.01)), (false, true));
}

#[test]
fn the_first_of_equal_values_is_taken() {
    let policy = network([[0.0; 3]; 5], [0.0, 1.0, 0.0, 1.0, 0.0]);
    let mut c = controller(Params::default(), policy);
    assert_eq!(drops(&mut c, &[busy(1, 30)]), [0.01]);
}

#[test]
fn each_action_is_its_step_of_table_1_and_p_stays_within_0_and_one_half() {
    for (action, expected) in [
        (0, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        (1, [0.01, 0.02, 0.03, 0.04, 0.05, 0.06]),
        (2, [0.0; 6]),
        (3, [0.1, 0.2, 0.3, 0.4, 0.5, 0.5]),
        (4, [0.0; 6]),
    ] {
        let mut c = controller(Params::default(), always(action));
        let gauges: Vec<_> = (1..=6).map(|n| busy(n, 30)).collect();
        assert_eq!(drops(&mut c, &gauges), expected, "action {action}");
    }
}

#[test]
fn an_empty_queue_lowers_the_probability_by_a_tenth_whatever_the_network_decides() {
    let mut c = controller(Params::default(), always(1));
    let gauges: Vec<_> = (1..=12)
        .map(|n| busy(n, 30))
        .chain((13..=15).map(|n| busy(n, 0)))
        .collect();
    assert_eq!(drops(&mut c, &gauges)[11..], [0.12, 0.02, 0.0, 0.0]);
}

#[test]
fn without_heuristics_the_network_decides_also_for_an_empty_queue() {
    let bare = Params {
        heuristics: false,
        ..Params::default()
    };
    let mut c = controller(bare, always(1));
    assert_eq!(drops(&mut c, &[busy(1, 0), busy(2, 0)]), [0.01, 0.02]);
}

#[test]
fn delay_is_backlog_over_rate_and_utilisation_what_left_since() {
    let mut c = controller(Params::default(), always(0));
    // 12,500 bytes at 10 Mbit/s are 10 ms.
    assert_eq!(read(&mut c, &busy(1, 10)), (10.0, 1.0));
    let half = Gauges {
        departed_bytes: 25_000 + 12_500,
        ..busy(2, 7)
    };
    assert_eq!(read(&mut c, &half), (7.0, 0.5));
    // A device queue can take more than the link sends: never above 1.
    let much = Gauges {
        departed_bytes: 1_000_000,
        ..busy(3, 0)
    };
    assert_eq!(read(&mut c, &much), (0.0, 1.0));
    // An outage keeps the rate.
    let dark = Gauges {
        rate: Rate::ZERO,
        departed_bytes: 1_000_000,
        ..busy(4, 10)
    };
    assert_eq!(read(&mut c, &dark), (10.0, 0.0));
}

#[test]
fn the_network_reads_delay_utilisation_and_p_in_this_order() {
    // Up by 0.1 is worth D/50, down by 0.01 is worth 2.5 p, staying 0.65 U.
    let w = [
        [0.0, 0.65, 0.0],
        [0.0; 3],
        [0.0, 0.0, 2.5],
        [1.0, 0.0, 0.0],
        [0.0; 3],
    ];
    let mut c = controller(Params::default(), network(w, [0.0; 5]));
    let gauges: Vec<_> = [20, 45, 45, 45, 45, 45, 30]
        .iter()
        .zip(1..)
        .map(|(ms, n)| busy(n, *ms))
        .collect();
    // 20 ms: 0.4 < 0.65, stays. 45 ms: 0.9 is best until 2.5 p passes it at 0.4.
    assert_eq!(
        drops(&mut c, &gauges),
        [0.0, 0.1, 0.2, 0.3, 0.4, 0.39, 0.38]
    );
}

#[test]
fn exploring_takes_every_step_alike() {
    let random = Params {
        epsilon: 1.0,
        ..Params::default()
    };
    let mut c = controller(random, always(0));
    let mut rng = Rng::new(1, "t");
    let mut seen = [0; 5];
    for _ in 0..5000 {
        seen[c.choose_step(30.0, &mut rng)] += 1;
    }
    // 1000 each, standard deviation 28.
    assert!(seen.iter().all(|n| (880..1120).contains(n)), "{seen:?}");
}

#[test]
fn a_network_of_probabilities_sets_the_one_that_it_ranks_highest() {
    // The values are 0 and ln(1 + D) - 2: above 6.4 ms the second one is higher.
    let outputs = ["drop = 0", "drop = 0.35"];
    let policy = linear(&[("log_delay", 1.0)], &outputs, &[0.0, 1.0], &[0.0, -2.0]);
    let mut c = controller(Params::default(), policy);
    // The rules for an empty queue do not apply to networks of this form: p falls at once.
    let gauges = [busy(1, 6), busy(2, 7), busy(3, 0), busy(4, 20), busy(5, 21)];
    assert_eq!(drops(&mut c, &gauges), [0.0, 0.35, 0.0, 0.35, 0.5]);
    let seen = c.explain().unwrap();
    assert_eq!(
        (seen.inputs, seen.action),
        (&[libm::log1p(21.0) as f32][..], 1.0)
    );
}

#[test]
fn a_law_is_a_network_with_one_output() {
    // PI: p + 0.02 (D - 5) + 0.01 (D - D before).
    let inputs = [("delay_ms", 1.0), ("delay_before_ms", 1.0), ("drop", 1.0)];
    let policy = linear(&inputs, &["drop"], &[0.03, -0.01, 1.0], &[-0.1]);
    let mut c = controller(Params::default(), policy);
    let p = drops(
        &mut c,
        &[busy(1, 9), busy(2, 9), busy(3, 5), busy(4, 0), busy(5, 40)],
    );
    for (p, expected) in p.iter().zip([0.17, 0.25, 0.21, 0.06, 0.5]) {
        assert!((p - expected).abs() < 1e-6, "{p} {expected}");
    }
}

#[test]
fn without_a_ceiling_the_network_decides_at_every_delay() {
    let policy = linear(
        &[("load", 1.0)],
        &["drop = 0", "drop = 0.1"],
        &[0.0, 0.0],
        &[1.0, 0.0],
    );
    let with = |ceiling| Params {
        ceiling,
        ..Params::default()
    };
    for (ceiling, p) in [
        (0, 0.0),
        ((30 * MS).as_nanos(), 0.0),
        ((29 * MS).as_nanos(), 0.5),
    ] {
        let mut c = controller(with(Duration::from_nanos(ceiling)), policy.clone());
        assert_eq!(drops(&mut c, &[busy(1, 30)]), [p]);
    }
}

#[test]
fn load_is_arrivals_over_what_the_link_sends() {
    let mut c = controller(Params::default(), always(0));
    let arrived = |n, arrivals| Gauges {
        arrivals,
        ..busy(n, 0)
    };
    // 20 ms at 10 Mbit/s are 17.86 packets of 1400 bytes.
    let load = |c: &mut RlAqm, n, arrivals| c.observe(&arrived(n, arrivals)).load;
    assert!((load(&mut c, 1, 25) - 1.4).abs() < 1e-12);
    assert_eq!(load(&mut c, 2, 25), 0.0);
    assert_eq!(load(&mut c, 3, 1000), 4.0);
}

#[test]
fn exploring_takes_every_probability_alike_and_does_not_leave_the_range() {
    let random = Params {
        epsilon: 1.0,
        ceiling: Duration::ZERO,
        ..Params::default()
    };
    let outputs = ["drop = 0", "drop = 0.25", "drop = 0.5"];
    let ranks = linear(&[("drop", 1.0)], &outputs, &[0.0; 3], &[0.0; 3]);
    let gives = linear(&[("drop", 1.0)], &["drop"], &[0.0], &[9.0]);
    let gauges: Vec<_> = (1..=3000).map(|n| busy(n, 30)).collect();
    for policy in [ranks, gives] {
        let p = drops(&mut controller(random.clone(), policy), &gauges);
        let mean = p.iter().sum::<f64>() / 3000.0;
        assert!((mean - 0.25).abs() < 0.02, "{mean}");
        assert!(p.iter().all(|p| (0.0..=0.5).contains(p)));
    }
}

#[test]
fn a_network_of_probabilities_reads_what_there_is() {
    let policy = linear(
        &[("jitter", 1.0)],
        &["drop = 0", "drop = 0.1"],
        &[0.0; 2],
        &[0.0; 2],
    );
    let error = RlAqm::new(Params::default(), policy)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no input `jitter`; it has delay_ms, "),
        "{error}"
    );
    for (name, p) in [
        ("drop = 0.5", Some(0.5)),
        ("drop = 0.51", None),
        ("drop = nan", None),
        ("drop +0.1", None),
    ] {
        assert_eq!(level(name), p, "{name}");
    }
}

#[test]
fn a_network_of_another_shape_is_refused() {
    let card = always(0).card().clone();
    let mut four = card.clone();
    four.heads[0].outputs.pop();
    let affine = |outputs: usize, inputs: usize| Affine {
        weight: vec![0.0; outputs * inputs],
        bias: vec![0.0; outputs],
    };
    let four = Policy::new(four, &[affine(4, 3)]).unwrap();
    assert!(
        RlAqm::new(Params::default(), four)
            .unwrap_err()
            .what
            .contains("5 numbers")
    );
    let mut two = card;
    two.inputs.pop();
    let two = Policy::new(two, &[affine(5, 2)]).unwrap();
    assert!(
        RlAqm::new(Params::default(), two)
            .unwrap_err()
            .what
            .contains("3 numbers")
    );
}
