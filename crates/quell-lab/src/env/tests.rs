use quell_link::words::{LearnQueueWords, Queue};
use quell_qdisc::control::lfq as control;
use quell_qdisc::policy::{Affine, Policy};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS, NEVER};

use super::*;
use quell_sim::scenario::{Capacity, FlowKind, Overrides};

/// RL-AQM's environment on the built-in scenario.
fn rl_aqm(vary: Randomization) -> Task {
    Task {
        scenario: Arc::new(Scenario::load(Some("rl-aqm"), &Overrides::default()).unwrap()),
        queue: "fifo limit 5000".into(),
        path: false,
        knob: Knob::Drop,
        bounds: (0.0, 0.5),
        initial: 0.0,
        cadence: Cadence::Every(20 * MS),
        actions: Actions::Steps(vec![0.0, 0.01, -0.01, 0.1, -0.1]),
        observe: vec![Reading::Delay, Reading::Utilisation, Reading::Knob],
        reward: Reward::parse("rlaqm").unwrap(),
        vary,
    }
    .checked()
    .unwrap()
}

/// Readings and rewards of `steps` steps with random actions from a separate stream.
fn trajectory(task: &Task, seed: u64, steps: usize) -> Vec<(Readings, f64)> {
    let mut env = Env::new(task, seed).unwrap();
    let mut rng = Rng::new(7, "actions");
    let mut step = || {
        env.step(task, &[rng.below(5) as f64]).unwrap();
        (*env.readings(0), env.reward(0))
    };
    (0..steps).map(|_| step()).collect()
}

#[test]
fn equal_seeds_and_actions_make_equal_trajectories() {
    let task = rl_aqm(Randomization::default());
    assert_eq!(trajectory(&task, 1, 1000), trajectory(&task, 1, 1000));
    assert_ne!(trajectory(&task, 1, 1000), trajectory(&task, 2, 1000));
}

#[test]
fn an_episode_has_a_step_per_period_and_the_step_after_begins_the_next() {
    let task = rl_aqm(Randomization::default());
    let mut env = Env::new(&task, 1).unwrap();
    let mut steps = 0;
    while !env.over() {
        env.step(&task, &[3.0]).unwrap();
        steps += 1;
    }
    // 120 s of 20 ms each.
    assert_eq!((steps, env.world().now()), (6000, Instant::from_secs(120)));
    assert_eq!(env.readings(0).get(Reading::Knob), 0.5);
    env.step(&task, &[3.0]).unwrap();
    assert_eq!(
        (env.world().now(), env.reward(0), env.over()),
        (Instant::ZERO, 0.0, false)
    );
    assert_eq!(env.readings(0).get(Reading::Knob), 0.0);
}

#[test]
fn packets_of_the_periods_are_those_that_left_the_queue() {
    let task = rl_aqm(Randomization::default());
    let mut env = Env::new(&task, 1).unwrap();
    let mut mbit = 0.0;
    while !env.over() {
        env.step(&task, &[0.0]).unwrap();
        mbit += env.readings(0).get(Reading::Throughput) * 0.02;
    }
    let left = env.world().gauges(0).departed_bytes as f64 * 8e-6;
    assert!((mbit - left).abs() < 1e-6 * left, "{mbit} {left}");
    // Without drops the link is busy for 120 s at 10 Mbit/s, except during the first round trips.
    assert!((1190.0..1201.0).contains(&left), "{left}");
}

#[test]
fn steps_there_and_back_return_to_exactly_zero_and_stay_in_range() {
    let task = rl_aqm(Randomization::default());
    let mut p = 0.0;
    for action in [1.0; 10].into_iter().chain([4.0]) {
        p = task.target(p, action).0;
    }
    assert_eq!(p, 0.0);
    assert_eq!(task.target(0.0, 2.0).0, 0.0);
    assert_eq!(task.target(0.45, 3.0).0, 0.5);
}

#[test]
fn rl_aqms_reward_has_the_values_of_its_formula() {
    let of = |words: &str, utilisation: f64, delay_ms: f64| {
        let g = |bytes, backlog_bytes, now| Gauges {
            now,
            rate: Rate::from_mbit(8),
            departed_bytes: bytes,
            backlog_bytes,
            ..Gauges::default()
        };
        // 8 Mbit/s: a byte per microsecond.
        let (sent, held) = ((utilisation * 20e3) as u64, (delay_ms * 1e3) as u64);
        let readings = Readings::of(
            0.0,
            &g(0, 0, Instant::ZERO),
            &g(sent, held, Instant::from_millis(20)),
        );
        Reward::parse(words).unwrap().of(&readings, Move::default())
    };
    for (u, d, reward) in [(1.0, 0.0, 1.0), (0.0, 0.0, 0.0), (1.0, 5.0, 0.0)] {
        assert!((of("rlaqm", u, d) - reward).abs() < 1e-12);
    }
    assert!((of("rlaqm", 0.0, 1e9) + 2.0).abs() < 1e-4);
    assert!((of("rlaqm", 0.5, 0.0) - 0.25).abs() < 1e-12);
    assert!((of("rlaqm u_power 1", 0.5, 0.0) - 0.5).abs() < 1e-12);
}

#[test]
fn learnqueues_reward_is_zero_at_the_largest_delay_without_loss() {
    let reward = Reward::parse("learnqueue published_reward").unwrap();
    let g = |now, arrivals, sojourn| Gauges {
        now,
        arrivals,
        departures: arrivals,
        sojourn,
        ..Gauges::default()
    };
    // 400 packets of 1500 bytes at 6.5 Mbit/s take 738.46 ms. At this delay equations 11 to 14 with
    // δ = η yield 0.
    let largest = 1500 * 8 * 400 * 1_000_000_000 / 6_500_000;
    let readings = Readings::of(
        400.0,
        &g(Instant::ZERO, 0, Duration::ZERO),
        &g(Instant::from_millis(15), 9, Duration::from_nanos(largest)),
    );
    assert!(reward.of(&readings, Move::default()).abs() < 1e-6);
}

/// Compares LearnQueue's learner in the environment, greedy from an empty table, with the queue
/// word in the same world. If both tables are equal pair by pair, then bounds, start, actions,
/// delays and rewards are the same.
#[test]
fn the_environment_of_learnqueue_is_the_decision_process_of_the_queue_word() {
    for (words, losses) in [
        ("learnqueue", false),
        ("learnqueue eta 0.5 target 10ms", true),
        ("learnqueue max 12 target 200ms", true),
        (
            "learnqueue published_reward gamma 0 gamma_max 0 delayed_credit max 20",
            true,
        ),
    ] {
        let words = format!("{words} epsilon 0 epsilon_min 0");
        let queue = Queue::parse(&words).unwrap();
        let params = &queue.spec::<LearnQueueWords>().unwrap().params;
        let limits = params.limits().to_vec();
        let scenario =
            "duration = \"30s\"\n[link]\nrate = \"10mbit\"\n[[flow]]\nrtt = \"20ms\"\ncount = 2\n";
        let scenario = Arc::new(Scenario::parse(scenario, "test", &Overrides::default()).unwrap());
        let task = Task {
            scenario: scenario.clone(),
            queue: format!("fifo limit {}", params.max_size),
            path: false,
            knob: Knob::Limit,
            bounds: (1.0, f64::from(params.max_size)),
            initial: f64::from(params.initial),
            cadence: Cadence::Every(params.period),
            actions: Actions::Along {
                values: limits.iter().map(|l| f64::from(*l)).collect(),
                steps: vec![-1.0, 1.0],
            },
            observe: vec![Reading::Knob],
            reward: Reward::parse(&words).unwrap(),
            vary: Randomization::default(),
        };
        let task = task.checked().unwrap();
        let mut env = Env::new(&task, 3).unwrap();
        let mut q = vec![[0.0f64; 2]; limits.len()];
        let mut visits = vec![[0u32; 2]; limits.len()];
        let mut lost = false;
        // The environment takes its first action at time 0, the queue word after one period. This
        // first action keeps the least limit.
        env.step(&task, &[0.0]).unwrap();
        while !env.over() {
            let row = params
                .limits()
                .row(env.readings(0).get(Reading::Knob) as u32);
            let action = usize::from(q[row][0] <= q[row][1]);
            visits[row][action] += 1;
            env.step(&task, &[action as f64]).unwrap();
            lost |= env.readings(0).get(Reading::EnqueueRate) < 1.0;
            if env.over() {
                break; // The queue word evaluates a period only at the decision after it.
            }
            let alpha = (1.0 / f64::from(visits[row][action])).max(params.alpha_min);
            q[row][action] += alpha * (env.reward(0) - q[row][action]);
        }
        let seed = Rng::new(3, "episodes").u64() >> 11;
        let start = crate::episode::Start::default();
        let run =
            crate::episode::episode(&scenario, &words, start, seed, 0, &mut || Ok(())).unwrap();
        let table = run.table.unwrap();
        assert_eq!(table.visits(), visits, "{words}");
        for (mine, theirs) in q.iter().flatten().zip(table.values().iter().flatten()) {
            assert!((mine - theirs).abs() < 1e-6, "{words}: {mine} {theirs}");
        }
        assert!(lost || !losses);
        // The delay crossed the target in both directions, and the limit reached both ends.
        assert!(
            visits.iter().filter(|pair| pair[1] > 0).count() > limits.len() / 4,
            "{words}"
        );
    }
}

#[test]
fn a_signed_reward_needs_a_limit() {
    let mut task = rl_aqm(Randomization::default());
    task.reward = Reward::parse("learnqueue").unwrap();
    let e = task.clone().checked().unwrap_err().to_string();
    assert!(
        e.contains("use knob limit, or learnqueue published_reward"),
        "{e}"
    );
    task.reward = Reward::parse("learnqueue published_reward").unwrap();
    assert!(task.checked().is_ok());
}

#[test]
fn episodes_differ_within_the_ranges() {
    let mut vary = Randomization::default();
    let set = |vary: &mut Randomization, key, values: &[&str]| {
        vary.set(
            key,
            &values.iter().map(|v| v.to_string()).collect::<Vec<_>>(),
        )
    };
    set(&mut vary, "rate", &["5mbit", "50mbit"]).unwrap();
    set(&mut vary, "rtt", &["10ms", "100ms"]).unwrap();
    set(&mut vary, "flows", &["1", "20"]).unwrap();
    set(&mut vary, "cc", &["cubic", "dctcp"]).unwrap();
    assert!(set(&mut vary, "rtt", &["2s", "1s"]).is_err());
    assert!(set(&mut vary, "jitter", &["1s", "1s"]).is_err());
    let task = rl_aqm(vary);
    let mut rng = Rng::new(1, "episodes");
    let (mut low, mut high) = (Rate::MAX, Rate::ZERO);
    for _ in 0..200 {
        let s = task.vary.draw(&task.scenario, &mut rng);
        let Capacity::Constant(rate) = s.link.rate else {
            panic!()
        };
        (low, high) = (low.min(rate), high.max(rate));
        for flow in &s.flows {
            assert!((10 * MS..=100 * MS).contains(&flow.rtt) && (1..=20).contains(&flow.count));
            assert!(2 * s.link.delay <= flow.rtt);
            let FlowKind::Tcp(tcp) = &flow.kind else {
                panic!()
            };
            // By the defaults of scenario files dctcp uses ECN, and cubic does not.
            assert_eq!(tcp.ecn, matches!(tcp.cc, quell_sim::scenario::Cc::Dctcp));
            assert_eq!(tcp.mss, 1358);
        }
    }
    let mbit = Rate::from_mbit;
    assert!((mbit(5)..mbit(6)).contains(&low) && (mbit(45)..=mbit(50)).contains(&high));
}

#[test]
fn a_queue_that_lacks_the_knob_is_refused() {
    let task = Task {
        queue: "codel".into(),
        ..rl_aqm(Randomization::default())
    };
    let error = task.checked().unwrap_err().to_string();
    assert!(error.contains("`codel` has no such knob"), "{error}");
}

#[test]
fn invalid_actions_are_refused() {
    let mut task = rl_aqm(Randomization::default());
    assert!(task.check_action(4.0).is_ok() && task.check_action(5.0).is_err());
    assert!(task.check_action(-1.0).is_err());
    task.actions = Actions::Share;
    assert!(task.check_action(1.0).is_ok() && task.check_action(f64::NAN).is_err());
}

#[test]
fn a_share_sets_a_limit_by_equal_factors() {
    let task = Task {
        knob: Knob::Limit,
        bounds: (1.0, 256.0),
        initial: 256.0,
        actions: Actions::Share,
        ..rl_aqm(Randomization::default())
    };
    let aims = [0.0, 0.5, 1.0].map(|share| task.target(1.0, share).0);
    assert_eq!(aims, [1.0, 16.0, 256.0]);
}

/// A network 60-16-16-16-1 with random weights, whose limits vary around 20 packets.
fn network(seed: u64) -> Policy {
    let mut rng = Rng::new(seed, "weights");
    let layer = |w: &[usize]| {
        let mut draw = |n| (0..n).map(|_| (2.0 * rng.f64() - 1.0) as f32).collect();
        Affine {
            weight: draw(w[0] * w[1]),
            bias: draw(w[1]),
        }
    };
    let mut layers: Vec<Affine> = [FEATURES, 16, 16, 16, 1].windows(2).map(layer).collect();
    layers[0].weight.iter_mut().for_each(|w| *w *= 10.0);
    layers[3].weight.iter_mut().for_each(|w| *w *= 8.0);
    layers[3].bias[0] += 20.0;
    control::policy(&control::Params::default(), &layers).unwrap()
}

/// LFQ's queue in the built-in scenario, which stops at each evaluation of its network.
fn flow_limits() -> Task {
    let (knob, cadence) = Knob::parse("flow_limit", MS).unwrap();
    Task {
        scenario: Arc::new(Scenario::load(Some("lfq"), &Overrides::default()).unwrap()),
        queue: "lfq".into(),
        knob,
        bounds: (1.0, 1000.0),
        initial: 1.0,
        cadence,
        actions: Actions::Share,
        reward: Reward::parse("lfq alpha 10").unwrap(),
        ..rl_aqm(Randomization::default())
    }
    .checked()
    .unwrap()
}

#[test]
fn answers_of_a_network_from_outside_make_the_run_of_that_network_inside() {
    let task = flow_limits();
    let mut moves = 0;
    for seed in 1..=5 {
        let net = network(seed);
        let mut env = Env::new(&task, seed).unwrap();
        // The world of the first episode again, with the network inside.
        let world_seed = Rng::new(seed, "episodes").u64() >> 11;
        let queue = Queue::lfq(control::Params::default(), net.clone()).unwrap();
        let scenario = task.scenario.clone();
        let mut inside = World::builder(scenario)
            .queue(&queue)
            .seed(world_seed)
            .build()
            .unwrap();
        while inside.run_until(NEVER) != Status::Done {}

        let mut scratch = net.scratch();
        let (mut limits, mut total) = (Vec::new(), 0.0);
        let mut features = [0.0; FEATURES];
        while !env.over() {
            env.observe(&task, 0, &mut features);
            let limit = control::limit_of(net.forward(&features, &mut scratch)[0]);
            limits.push(limit);
            // Shares from 0 to 1 mean limits from 1 to 1000 by equal factors.
            let share = libm::log(f64::from(limit)) / libm::log(1000.0);
            env.step(&task, &[share]).unwrap();
            assert_eq!(env.readings(0).get(Reading::Knob), f64::from(limit));
            total += env.reward(0);
        }
        let outside = env.world();
        assert_eq!(outside.trace_hash(), inside.trace_hash(), "seed {seed}");
        // A question per ten arrivals, and one more for the first packet.
        let arrivals = inside.gauges(0).arrivals;
        assert_eq!(limits.len() as u64, arrivals.div_ceil(10) + 1);
        limits.dedup();
        moves += limits.len();
        let sent = inside.gauges(0);
        let megabytes = (sent.departed_bytes - 2 * sent.departures) as f64 / 1e6;
        assert!(total < megabytes, "{total} {megabytes}");
    }
    assert!(moves > 20, "networks move the limit: {moves}");
}

#[test]
fn actions_at_packets_need_a_network_that_they_replace() {
    let refused = |change: fn(&mut Task)| {
        let mut task = flow_limits();
        change(&mut task);
        task.checked().unwrap_err().to_string()
    };
    assert!(refused(|t| t.queue = "fq_codel".into()).starts_with("queue: "));
    assert!(refused(|t| t.reward = Reward::parse("rlaqm").unwrap()).starts_with("reward: "));
    assert!(refused(|t| t.path = true).starts_with("knob: "));
}
