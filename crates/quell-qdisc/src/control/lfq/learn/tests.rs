use super::super::Params;
use super::super::tests::constant;
use super::*;
use crate::control::learn::Learner as _;
use crate::time::MS;

/// A controller whose network always answers 17 packets, after its first period.
fn learning(reward: Reward) -> Learning {
    let lfq = Lfq::new(Params::default(), constant(17.0)).unwrap();
    let mut learning = Learning::new(lfq, reward).unwrap();
    learning.decide(&Gauges::default(), &mut [], &mut Rng::new(1, "test"));
    learning
}

/// A packet arrives while `held` are queued, and one leaves 5 ms later, which was in the queue for
/// 40 ms. Returns the flow's limit.
fn pass(learning: &mut Learning, now: Instant, fresh: bool, held: u32) -> u32 {
    learning.on_arrival(&Arrival {
        now,
        sub_queue: Some(0),
        fresh,
        held,
        len: 1500,
    });
    learning.on_departure(&Departure {
        now: now + 5 * MS,
        sub_queue: Some(0),
        held: held + 1,
        len: 1500,
        sojourn: 40 * MS,
    });
    learning.acting.flows[0].limit
}

/// All samples: features, the limit taken, the other limit, the reward.
fn samples(learning: &mut Learning) -> Vec<(Vec<f32>, f32, f32, f32)> {
    let mut all = Vec::new();
    learning.outbox.drain(|row, reward, _| {
        let (features, limits) = row.split_at(FEATURES);
        all.push((features.to_vec(), limits[0], limits[1], reward));
    });
    all
}

#[test]
fn an_experiment_holds_a_limit_beside_the_networks_and_reports_what_it_earned() {
    // 1500 bytes per 10 ms are 0.15 MB/s, less up to half a gap at the end. For half of the time 4
    // packets are queued, else 5: 4.5 packets of 1446 bytes. Each was queued for 40 ms.
    for (reward, expected) in [
        (Reward::Queue(10.0), 0.15 - 10.0 * 4.5 * 1446e-6),
        (Reward::Delay(2.0), 0.15 - 2.0 * 0.04),
    ] {
        let mut learning = learning(reward);
        let mut now = Instant::from_secs(1);
        let mut held_for = 0;
        let mut fresh = true;
        let mut features = Vec::new();
        while learning.progress().experiments == 0 {
            let limit = pass(&mut learning, now, fresh, 4);
            fresh = false;
            if learning.flows[0].runs {
                if held_for == 0 {
                    features = learning.acting.inputs.to_vec();
                }
                held_for += 1;
                assert_eq!(limit, learning.flows[0].limit);
            } else {
                assert_eq!(limit, 17);
            }
            now += 10 * MS;
        }
        // 5 s at 100 packets/s.
        assert!((500..=502).contains(&held_for), "{held_for}");
        let [sample] = &samples(&mut learning)[..] else {
            panic!("one sample");
        };
        assert_eq!(sample.0, features);
        let mut limits = [sample.1, sample.2];
        limits.sort_by(f32::total_cmp);
        assert_eq!(limits, [16.0, 18.0]);
        assert!((f64::from(sample.3) - expected).abs() < 1e-3, "{sample:?}");
        // The network decides again.
        assert_eq!(learning.acting.flows[0].limit, 17);
    }
}

#[test]
fn an_experiment_ends_with_its_flow_and_does_not_count_if_too_few_packets_left() {
    let mut learning = learning(Reward::Delay(1.0));
    let rng = learning.rng.clone();
    for (packets, counts) in [(MIN_PACKETS - 1, 0), (MIN_PACKETS, 1)] {
        for bucket_is_reused in [false, true] {
            learning.rng = rng.clone();
            let mut now = Instant::from_secs(1);
            pass(&mut learning, now, true, 4);
            while !learning.flows[0].runs {
                now += 10 * MS;
                learning.on_arrival(&Arrival {
                    now,
                    sub_queue: Some(0),
                    fresh: false,
                    held: 4,
                    len: 1500,
                });
            }
            for _ in 0..packets {
                now += 10 * MS;
                pass(&mut learning, now, false, 4);
            }
            if bucket_is_reused {
                pass(&mut learning, now + 10 * MS, true, 0);
            } else {
                let gauges = Gauges {
                    now: now + SILENCE + 10 * MS,
                    ..Gauges::default()
                };
                learning.decide(&gauges, &mut [], &mut Rng::new(1, "test"));
            }
            assert!(!learning.flows[0].runs);
            assert_eq!(samples(&mut learning).len(), counts);
        }
    }
}

/// The learner of a queue with this network.
fn learner(first: &Policy) -> Learner {
    let (start, rng) = untrained(first).unwrap();
    let Second::Critic(critic) = &start.second else {
        panic!("a critic");
    };
    Learner::new(&start, critic, rng)
}

/// What a network answers to features of 0.1.
fn answer(network: &Policy) -> f32 {
    network.forward(&[0.1; FEATURES], &mut network.scratch())[0]
}

/// Lets a learner train on a batch of experiments with a limit of 16 in place of 18, of which
/// `good` earned more than expected and the others less.
fn batch(learner: &mut dyn learn::Learner, good: usize) -> Update {
    let mut outbox = Outbox::new(WIDTH, BATCH);
    let mut row = [0.1; WIDTH];
    row[FEATURES..].copy_from_slice(&[16.0, 18.0, 0.0]);
    for index in 0..BATCH {
        // The critic's expectation stays near 0.
        outbox.push(&row, if index < good { 1e3 } else { -1e3 });
    }
    learner.take(&mut outbox);
    learner.train().expect("networks")
}

/// The network's answer after the warm-up and one more batch like those of [`batch`].
fn after_a_batch(good: usize) -> f32 {
    let mut learner = learner(&constant(17.0));
    for batches in 1..=WARM_UP {
        let update = batch(&mut learner, good);
        // The actor waits for the critic.
        assert_eq!(answer(&update.network), 17.0);
        assert_eq!(update.critic.expect("a critic").batches, batches);
    }
    answer(&batch(&mut learner, good).network)
}

#[test]
fn the_actor_takes_the_papers_step_towards_the_better_limits() {
    // Only the bias of the output has a slope, since the constant network's other weights are 0:
    // the mean over the batch of +1 where 16 was better, and of -1 where 18 must be.
    for (good, slope) in [(BATCH, 1.0), (0, -1.0), (30, 0.5), (20, 0.0)] {
        let output = after_a_batch(good);
        let expected = 17.0 - ACTOR_RATE * slope;
        assert!((output - expected).abs() < 1e-5, "{good} {output}");
    }
}

#[test]
fn the_critic_learns_what_experiments_earn() {
    let mut learner = learner(&super::super::tests::network(1, 20.0));
    let mut rng = Rng::new(2, "rewards");
    let mut row = || -> Vec<f32> { (0..FEATURES).map(|_| num::single(rng.f64())).collect() };
    let rows: Vec<f32> = (0..BATCH).flat_map(|_| row()).collect();
    let rewards: Vec<f32> = rows.chunks(FEATURES).map(|row| row[3]).collect();
    let missed = |learner: &mut Learner| {
        let outputs = learner.critic.forward(&rows);
        let squares = outputs.iter().zip(&rewards).map(|(o, r)| (o - r) * (o - r));
        squares.sum::<f32>() / BATCH as f32
    };
    let before = missed(&mut learner);
    for _ in 0..500 {
        learner.fit_critic(&rows, &rewards);
    }
    let after = missed(&mut learner);
    assert!(after < 0.2 * before, "{before} {after}");
}

#[test]
fn while_another_controller_acts_nothing_is_learned_and_the_first_network_returns() {
    let mut learning = learning(Reward::Delay(1.0));
    let first = learning.policy().clone();
    let update = Update {
        network: constant(9.0),
        critic: None,
        resets: 0,
    };
    learning.install(update.clone());
    let mut now = Instant::from_secs(1);
    for index in 0..2000 {
        pass(&mut learning, now, index == 0, 4);
        learning.adopt(&Knobs::KEEP);
        now += 10 * MS;
    }
    assert!(learning.policy().is_same(&first));
    assert_eq!(learning.progress().reset, 1);
    assert_eq!(samples(&mut learning), []);
    // What the learner made before does not come into force.
    learning.install(update);
    assert!(learning.policy().is_same(&first));
    // The next experiment tells the learner to start from the first network, too. A gap in the
    // samples alone does not.
    let mut learner = learner(&first);
    learner.actor = Trainee::from_policy(&constant(9.0));
    let mut experiment = |learning: &mut Learning| {
        while learning.progress().experiments == 0 {
            pass(learning, now, false, 4);
            now += 10 * MS;
        }
        learning.progress.experiments = 0;
    };
    let resets = std::mem::take(&mut learning.resets);
    learning.outbox.interrupt();
    experiment(&mut learning);
    learner.take(&mut learning.outbox);
    assert!(!learner.actor.policy().is_same(&first));
    learning.resets = resets;
    experiment(&mut learning);
    learner.take(&mut learning.outbox);
    assert!(learner.actor.policy().is_same(&first));
    assert_eq!(learner.rewards.len(), 1);
}

#[test]
fn another_queue_continues_with_actor_and_critic_in_the_middle_of_the_warm_up() {
    let mut before = learning(Reward::Delay(1.0));
    let first = before.policy().clone();
    let mut learner = before.learner().expect("a learner");
    for _ in 1..WARM_UP {
        before.install(batch(learner.as_mut(), 0));
    }
    assert_eq!(before.progress().installed, 0);
    let bytes = before.learned().unwrap().save("here").unwrap();
    let lfq = || Lfq::new(Params::default(), constant(17.0)).unwrap();
    let reward = Reward::Delay(1.0);
    let loaded = |bytes: &[u8]| {
        let untrained = Learning::new(lfq(), reward).unwrap().learned().unwrap();
        match untrained.load("t", bytes, "here").unwrap() {
            LearnedState::Networks(networks) => Learning::resume(lfq(), reward, &networks).unwrap(),
            LearnedState::Table(_) => panic!("a table"),
        }
    };
    let mut after = loaded(&bytes);
    assert_eq!(after.critic.batches, WARM_UP - 1);
    let mut learner = after.learner().expect("a learner");
    let update = batch(learner.as_mut(), 0);
    assert!(update.network.is_same(after.policy()));
    after.install(update);
    after.install(batch(learner.as_mut(), 0));
    let answered = answer(after.policy());
    assert!(answered > 17.0, "{answered}");
    assert_eq!(after.progress().installed, 1);
    // A third queue starts with this network, and returns to the one that its words name.
    let mut third = loaded(&after.learned().unwrap().save("here").unwrap());
    assert_eq!(answer(third.policy()), answered);
    let critic = |learning: &Learning| answer(&learning.critic.network);
    assert_eq!(critic(&third), critic(&after));
    third.adopt(&Knobs::KEEP);
    assert!(answer(third.policy()) == answer(&first));
    // A queue whose words name another network starts over.
    let LearnedState::Networks(networks) = third.learned().unwrap() else {
        panic!("networks");
    };
    let other = Lfq::new(Params::default(), constant(9.0)).unwrap();
    let other = Learning::resume(other, reward, &networks).unwrap();
    assert_eq!((answer(other.policy()), other.critic.batches), (9.0, 0));
}
