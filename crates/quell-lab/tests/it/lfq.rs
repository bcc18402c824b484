//! LFQ's experiments: their random values, their two sides, which differ in one decision only, and
//! their rewards.

use quell_qdisc::control::lfq::{FEATURES, policy};
use quell_qdisc::policy::{Affine, Policy};
use quell_qdisc::time::{Duration, Instant, NEVER};

use quell_lab::lfq::{Draws, Lab, Outcome, Settings};
use quell_link::words::Queue;
use quell_qdisc::Rng;
use quell_sim::World;
use quell_sim::scenario::{Overrides, Scenario};

/// A network 60-16-16-16-1 with random weights, whose outputs are about `bias`.
fn network(bias: f32) -> Policy {
    let mut rng = Rng::new(1, "network");
    let widths = [FEATURES, 16, 16, 16, 1];
    let mut layers: Vec<Affine> = widths
        .windows(2)
        .map(|w| {
            let mut draw = |n| (0..n).map(|_| (rng.f64() - 0.5) as f32).collect();
            Affine {
                weight: draw(w[0] * w[1]),
                bias: draw(w[1]),
            }
        })
        .collect();
    layers[3].bias[0] += bias;
    policy(&Settings::new(0.0).control, &layers).unwrap()
}

fn lab(settings: Settings, bias: f32) -> Lab {
    Lab::new(settings, network(bias)).unwrap()
}

fn decided(lab: &Lab, seeds: std::ops::Range<u64>) -> Vec<(Draws, Outcome)> {
    let all = lab.experiments(seeds).unwrap();
    all.into_iter()
        .filter_map(|(draws, outcome)| Some((draws, outcome?)))
        .collect()
}

#[test]
fn draws_are_uniform_over_the_papers_ranges() {
    let lab = lab(Settings::new(0.01), 10.0);
    let draws: Vec<Draws> = (0..4000).map(|s| lab.draw(s)).collect();
    let n = draws.len() as f64;
    for (what, low, high, of) in [
        (
            "Mbit/s",
            5.0,
            25.0,
            (|d| d.rate.bps_f64() / 1e6) as fn(&Draws) -> f64,
        ),
        ("ms", 5.0, 25.0, |d| d.rtt.as_millis_f64()),
        ("s", 3.75, 6.25, |d| d.duration.as_secs_f64()),
        ("of the length", 0.0, 0.5, |d| {
            d.act_after.as_nanos() as f64 / d.duration.as_nanos() as f64
        }),
        ("BIC", 0.0, 1.0, |d| f64::from(u8::from(d.bic))),
    ] {
        let values: Vec<f64> = draws.iter().map(of).collect();
        assert!(values.iter().all(|v| (low..=high).contains(v)), "{what}");
        let mean = values.iter().sum::<f64>() / n;
        // Six standard errors of a mean. The standard deviation of the values is at most that of a
        // coin, half of the range.
        let off = 6.0 * (high - low) * 0.5 / n.sqrt();
        assert!((mean - (low + high) / 2.0).abs() < off, "{what}: {mean}");
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(0.0, f64::max);
        assert!(max - min > 0.99 * (high - low), "{what}");
    }
    assert!(
        draws
            .iter()
            .all(|d| d.rtt % Duration::from_nanos(2) == Duration::ZERO)
    );
}

#[test]
fn sides_are_one_below_and_one_above_and_the_label_is_the_better_one() {
    let outcomes = decided(&lab(Settings::new(10.0), 12.0), 0..40);
    assert!(outcomes.len() >= 38);
    let mut labels = [0, 0];
    for (draws, o) in &outcomes {
        assert!(o.at > draws.act_after && o.at < Instant::ZERO + draws.duration);
        assert_eq!(o.sides.map(|s| s.limit), [o.before - 1, o.before + 1]);
        let upper = o.sides[1].reward >= o.sides[0].reward;
        assert_eq!(o.label, o.sides[usize::from(upper)].limit);
        labels[usize::from(upper)] += 1;
        // Limits were about 12 at every decision, so their averages are between 0 and a little more
        // than that.
        assert!(
            o.features[20] > 0.0 && o.features[20] < 0.3,
            "{:?}",
            o.features
        );
    }
    assert!(labels[0] > 0 && labels[1] > 0, "{labels:?}");
}

#[test]
fn rewards_are_megabytes_per_second_less_alpha_times_the_queue() {
    let rewards = |alpha| decided(&lab(Settings::new(alpha), 30.0), 0..8);
    let (free, ten, twenty) = (rewards(0.0), rewards(10.0), rewards(20.0));
    for ((a, b), c) in free.iter().zip(&ten).zip(&twenty) {
        let (draws, a) = a;
        for side in 0..2 {
            let of = |o: &Outcome| o.sides[side].reward;
            // Packets of 1498 bytes of IP have 2 bytes more on the link.
            let capacity = draws.rate.bps_f64() / 8e6 * 1498.0 / 1500.0;
            assert!(
                of(a) > 0.3 * capacity && of(a) < 1.001 * capacity,
                "{draws:?} {a:?}"
            );
            let queue = (of(a) - of(&b.1)) * 1e6 / 10.0 / 1446.0;
            assert!((0.1..=31.0).contains(&queue), "{queue} packets");
            let read = a.sides[side];
            assert!((read.rate - of(a)).abs() < 1e-9 && (read.queued - queue).abs() < 1e-6);
            // Little's law. Packets have 1498 bytes, except a few small ones of the handshake.
            let waiting = read.delay * read.rate * 1e6 / 1498.0;
            assert!((waiting / queue - 1.0).abs() < 0.02, "{waiting} {queue}");
            assert!(
                (of(&b.1) - of(&c.1) - (of(a) - of(&b.1))).abs() < 1e-9,
                "linear in alpha"
            );
        }
    }
}

#[test]
fn a_limit_of_one_is_compared_with_three_because_of_the_window() {
    for (_, o) in decided(&lab(Settings::new(10.0), -50.0), 0..4) {
        assert_eq!((o.before, o.sides.map(|s| s.limit)), (1, [1, 3]));
    }
}

#[test]
fn flows_advanced_together_equal_flows_advanced_alone_on_any_number_of_threads() {
    for online in [false, true] {
        let settings = Settings {
            online,
            ..Settings::new(0.01)
        };
        let lab = lab(settings, 15.0);
        // More experiments than run at a time, so that some start late. Compared as text, since the
        // reward of a side not taken is NaN.
        let together: Vec<_> = lab.experiments(0..20).unwrap();
        let alone = (0..20).flat_map(|seed| lab.experiments(seed..seed + 1).unwrap());
        assert_eq!(
            format!("{together:?}"),
            format!("{:?}", alone.collect::<Vec<_>>())
        );
        let seeds: Vec<u64> = (0..20).collect();
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().unwrap();
            let parallel = pool.install(|| lab.experiments_in_parallel(&seeds));
            assert_eq!(format!("{together:?}"), format!("{:?}", parallel.unwrap()));
        }
    }
}

#[test]
fn online_takes_one_side_by_chance_and_names_the_other() {
    let online = Settings {
        online: true,
        ..Settings::new(10.0)
    };
    let both = decided(&lab(Settings::new(10.0), 15.0), 0..30);
    let one = decided(&lab(online, 15.0), 0..30);
    let mut taken = [0, 0];
    for ((draws, o), (same, both)) in one.iter().zip(&both) {
        assert_eq!(draws, same);
        assert_eq!(
            (o.at, o.before, o.features),
            (both.at, both.before, both.features)
        );
        let up = o.sides[0].limit > o.sides[1].limit;
        taken[usize::from(up)] += 1;
        assert_eq!(
            o.sides[0],
            both.sides[usize::from(up)],
            "the same world as the offline side"
        );
        assert_eq!(o.sides[1].limit, both.sides[usize::from(!up)].limit);
        assert!(o.sides[1].reward.is_nan());
        assert_eq!(o.label, o.sides[0].limit);
    }
    assert!(taken[0] > 5 && taken[1] > 5, "{taken:?}");
}

#[test]
fn settings_out_of_range_are_refused() {
    let refused = |change: fn(&mut Settings)| {
        let mut settings = Settings::new(0.01);
        change(&mut settings);
        Lab::new(settings, network(1.0)).unwrap_err().to_string()
    };
    assert!(refused(|s| s.alpha = f64::NAN).starts_with("alpha: "));
    assert!(refused(|s| s.duration = Duration::from_nanos(1)).starts_with("duration: "));
    assert!(refused(|s| s.act_within = 0.0).starts_with("act_within: "));
    assert!(refused(|s| s.control.every = 0).contains("every"));
}

/// Two to 64 flows of up to four congestion controls and round trips share a fair queue under one
/// network.
fn mixed(flows: u32) -> World {
    let mut text =
        String::from("duration = \"12s\"\nwarmup = \"4s\"\n[link]\nrate = \"100mbit\"\n");
    let kinds = [("cubic", 10), ("bbr", 20), ("newreno", 40), ("dctcp", 80)];
    for (cc, rtt) in &kinds[..flows.min(4) as usize] {
        let count = flows.div_ceil(4);
        text += &format!("[[flow]]\ncc = \"{cc}\"\ncount = {count}\nrtt = \"{rtt}ms\"\n");
    }
    let scenario = Scenario::parse(&text, "mixed", &Overrides::default()).unwrap();
    let queue = Queue::lfq(Settings::new(0.0).control, network(60.0)).unwrap();
    World::builder(scenario)
        .queue(&queue)
        .seed(1)
        .build()
        .unwrap()
}

#[test]
fn a_real_fair_queue_gives_mixed_flows_equal_shares_and_each_its_limit() {
    for flows in [2, 4, 16, 64] {
        let mut world = mixed(flows);
        let mut clone = world.clone();
        while world.run_until(NEVER) != quell_sim::Status::Done {}
        clone.run_until(Instant::from_secs(5));
        let mut clone = clone.clone();
        while clone.run_until(NEVER) != quell_sim::Status::Done {}
        assert_eq!(
            world.trace_hash(),
            clone.trace_hash(),
            "a clone runs identically"
        );
        let record = world.record(0.0);
        assert_eq!(record.flows.len(), flows as usize);
        assert!(
            record.jain.unwrap() > 0.9,
            "{flows} flows: {:?}",
            record.jain
        );
        assert!(
            record.utilisation > 0.9,
            "{flows} flows: {}",
            record.utilisation
        );
        let limit = record.limit_packets.unwrap();
        assert!((1.0..=1000.0).contains(&limit), "{limit}");
        for flow in &record.flows {
            // A packet waits longest in a full FIFO of its flow, which is served once per round of
            // all flows.
            let queued = flow.rtt_ms.as_ref().unwrap().mean - flow.base_rtt_ms;
            let max_queued = 100.0 * f64::from(flows) * 1514.0 * 8.0 / 100e3;
            assert!(
                (-0.01..max_queued).contains(&queued),
                "{} of {flows}: {queued} ms",
                flow.cc
            );
        }
    }
}

#[test]
fn experiments_equal_the_recorded_ones() {
    // FNV-1a over all draws and outcomes of 32 experiments, from a run of this test. A change of
    // the simulator that is not meant to affect them must keep it.
    let mut digest: u64 = 0xcbf2_9ce4_8422_2325;
    for online in [false, true] {
        let settings = Settings {
            online,
            ..Settings::new(0.01)
        };
        for (draws, outcome) in lab(settings, 12.0).experiments(0..16).unwrap() {
            // In the digest the field `rate` is called `rate_bps`.
            let draws = format!("{draws:?}").replace("{ rate: ", "{ rate_bps: ");
            for byte in format!("{draws} {outcome:?}").bytes() {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }
    assert_eq!(format!("{digest:016x}"), "cc84b0e8db7b7810");
}
