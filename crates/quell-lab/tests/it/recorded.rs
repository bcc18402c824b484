//! Detects every change of simulations' results: compares the trace hash and the record of every
//! queue in each of several scenarios with `data/recorded.csv`.
//!
//! A commit that changes behaviour on purpose records again and names what changed:
//! `QUELL_RECORD=1 cargo test --package quell-lab --test it recorded`, then `git diff --stat` on
//! the file.
//!
//! A row has the hash over all packet events, a digest of the record's keys about queues, one of
//! its keys about flows, and the goodput for the reader. New keys of records are not in a digest
//! until they are added to the lists below. The costs of a run (`events`, `cpu_s`) are in none.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use quell_lab::env::{Actions, Cadence, Env, Knob, READINGS, Randomization, Reading, Reward, Task};
use quell_link::words::every;
use quell_qdisc::Rng;
use quell_qdisc::time::MS;
use quell_sim::RunOptions;
use quell_sim::scenario::{Overrides, Scenario};

/// The scenarios, by name. `TRACE` is replaced by the path of a file that the test writes.
const SCENARIOS: &[(&str, &str)] = &[
    (
        "wired",
        r#"
        [link]
        rate = "10mbit"
        delay = "5ms"
        shaper = "htb"
        [[flow]]
        count = 3
        rtt = "20ms"
        stagger = "300ms"
        [[flow]]
        cc = "bbr"
        count = 1
        rtt = "40ms"
        [[flow]]
        kind = "cbr"
        rate = "300kbit"
        size = 200
        "#,
    ),
    (
        "trace",
        r#"
        [link]
        trace = "TRACE"
        loss = 0.001
        [[flow]]
        cc = "newreno"
        count = 2
        rtt = "40ms"
        stagger = "200ms"
        "#,
    ),
    (
        "hops",
        r#"
        [link]
        rate = "12mbit"
        nic = 1
        [[hop]]
        rate = "11mbit"
        queue = "fq_codel"
        [[hop]]
        rate = "10mbit"
        queue = "pfifo limit 50"
        [[flow]]
        cc = "bic_ns3"
        count = 3
        rtt = "30ms"
        stagger = "300ms"
        "#,
    ),
    (
        "up",
        r#"
        [link]
        schedule = [["0s", "15mbit"], ["2s", "6mbit"]]
        [link.up]
        rate = "1mbit"
        [[flow]]
        count = 2
        rtt = "25ms"
        [[flow]]
        count = 1
        rtt = "25ms"
        direction = "up"
        [[flow]]
        kind = "onoff"
        on = "200ms"
        off = "300ms"
        "#,
    ),
    (
        "wifi",
        r#"
        [wifi]
        [[wifi.node]]
        name = "ap"
        [[wifi.node]]
        name = "near"
        mcs = 7
        [[wifi.node]]
        name = "far"
        mcs = 1
        per = 0.05
        [[flow]]
        count = 1
        rtt = "20ms"
        stagger = "300ms"
        [[flow]]
        from = "near"
        count = 1
        rtt = "20ms"
        "#,
    ),
    (
        "ecn",
        r#"
        [link]
        rate = "10mbit"
        [[flow]]
        count = 2
        rtt = "20ms"
        ecn = true
        [[flow]]
        cc = "prague"
        count = 2
        rtt = "20ms"
        [[flow]]
        cc = "dctcp"
        count = 1
        rtt = "30ms"
        "#,
    ),
    (
        "short",
        r#"
        [link]
        rate = "8mbit"
        [[flow]]
        kind = "web"
        size = "exp:40kb"
        arrivals = 15
        rtt = "30ms"
        [[flow]]
        bytes = 300000
        count = 4
        rtt = "20ms"
        stagger = "1s"
        [[flow]]
        kind = "poisson"
        rate = "500kbit"
        size = "exp:700"
        "#,
    ),
    (
        "controls",
        r#"
        [link]
        rate = "12mbit"
        [[flow]]
        cc = "vegas"
        count = 1
        rtt = "20ms"
        [[flow]]
        cc = "westwood"
        count = 1
        rtt = "30ms"
        [[flow]]
        cc = "illinois"
        count = 1
        rtt = "30ms"
        [[flow]]
        cc = "ledbat"
        count = 1
        rtt = "25ms"
        [[flow]]
        cc = "ledbat++"
        count = 1
        rtt = "40ms"
        [[flow]]
        cc = "bbr3"
        count = 1
        rtt = "30ms"
        "#,
    ),
];

const QUEUE_KEYS: &[&str] = &[
    "scenario",
    "queue",
    "seed",
    "measured_s",
    "throughput_mbps",
    "capacity_mbps",
    "utilisation",
    "sojourn_ms",
    "sojourn_cdf",
    "backlog_packets",
    "backlog_ms",
    "limit_packets",
    "packets",
    "drops",
    "marks",
    "loss_rate",
    "mark_rate",
    "drops_by_cause",
    "guard",
    "hops",
    "wifi",
];

const FLOW_KEYS: &[&str] = &[
    "goodput_mbps",
    "delivered_in_order_mbps",
    "jain",
    "rtt_ms",
    "fct_ms",
];

/// Keys of an element of `flows`.
const EACH_FLOW_KEYS: &[&str] = &[
    "kind",
    "cc",
    "base_rtt_ms",
    "goodput_mbps",
    "delivered_in_order_mbps",
    "retransmits",
    "cwnd_packets",
    "rtt_ms",
    "fct_ms",
    "completed",
    "refused",
];

/// Keys of the time series.
const SERIES_KEYS: &[&str] = &[
    "bin_s",
    "backlog_ms",
    "throughput_mbps",
    "capacity_mbps",
    "sojourn_ms",
    "drops",
    "marks",
    "limit_packets",
    "probability",
    "goodput_mbps",
    "delivered_in_order_mbps",
    "rtt_ms",
    "cwnd_packets",
];

/// A digest by FNV-1a, 64 bits.
#[derive(Clone, Copy)]
struct Digest(u64);

impl Digest {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn text(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn keys(&mut self, object: &serde_json::Value, keys: &[&str]) {
        for key in keys {
            self.text(key);
            self.text(&object[key].to_string());
        }
    }
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recorded.csv")
}

/// Writes the trace of a link of 2 to 14 Mbit/s that changes every 100 ms; returns its path.
fn trace() -> PathBuf {
    let mut rng = Rng::new(1, "trace");
    let mut text = String::new();
    for slot in 0..60 {
        let packets = 16 + rng.below(100);
        for k in 0..packets {
            let _ = writeln!(text, "{}", slot * 100 + k * 100 / packets + 1);
        }
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recorded.trace");
    std::fs::write(&file, text).expect("a trace");
    file
}

fn cell(name: &str, scenario: &Scenario, queue: &str, seed: u64) -> String {
    let never = AtomicBool::new(false);
    let options = RunOptions {
        series_bin: Some(250 * MS),
        ..RunOptions::default()
    };
    let run = quell_sim::run(scenario, queue, seed, &options, &never).expect("a run");
    let goodput = run.goodput_mbps;
    let record = serde_json::to_value(&run).expect("a record");
    let mut queues = Digest::new();
    queues.keys(&record, QUEUE_KEYS);
    let mut flows = Digest::new();
    flows.keys(&record, FLOW_KEYS);
    for flow in record["flows"].as_array().expect("flows") {
        flows.keys(flow, EACH_FLOW_KEYS);
    }
    flows.keys(&record["series"], SERIES_KEYS);
    format!(
        "{name},{queue},{seed},{},{:016x},{:016x},{goodput:.4}",
        run.trace_hash, queues.0, flows.0
    )
}

/// The row of an environment: rewards and readings of 200 steps.
fn episode(name: &str, queue: &str, seed: u64) -> String {
    let text = "duration = \"3s\"\n[link]\nrate = \"10mbit\"\n[[flow]]\ncount = 2\nrtt = \"20ms\"\n[[hop]]\nrate = \"9mbit\"\n";
    let scenario = Scenario::parse(text, "env", &Overrides::default()).expect("a scenario");
    let (knob, cadence) = Knob::parse(name, 20 * MS).expect("a knob");
    let reward = if cadence == Cadence::AtPackets {
        "lfq"
    } else {
        "rlaqm"
    };
    let (bounds, initial) = match knob {
        Knob::Limit if cadence == Cadence::AtPackets => ((1.0, 1000.0), 10.0),
        Knob::Limit => ((2.0, 200.0), 50.0),
        Knob::Drop | Knob::BaseProbability => ((0.0, 0.2), 0.0),
    };
    let task = Task {
        scenario: Arc::new(scenario),
        queue: queue.into(),
        path: false,
        knob,
        bounds,
        initial,
        cadence,
        actions: Actions::Share,
        observe: vec![Reading::Delay, Reading::Utilisation, Reading::Knob],
        reward: Reward::parse(reward).expect("a reward"),
        vary: Randomization::default(),
    };
    let task = task.checked().expect("a task");
    let mut env = Env::new(&task, seed).expect("an environment");
    let mut rng = Rng::new(seed, "actions");
    let mut digest = Digest::new();
    for _ in 0..200 {
        env.step(&task, &[rng.f64()]).expect("a step");
        digest.text(&format!("{:?} {:?}", env.reward(0), env.over()));
        if cadence != Cadence::AtPackets {
            for info in READINGS {
                let reading = Reading::parse(info.name).expect("a reading");
                digest.text(&format!("{:?}", env.readings(0).get(reading)));
            }
        }
    }
    let hash = env.world().trace_hash();
    format!(
        "environment {},{queue},{seed},{hash:016x},{:016x},,",
        name, digest.0
    )
}

/// Runs jobs on all cores. Results are in the order of the jobs.
fn parallel<J: Sync>(jobs: &[J], run: impl Fn(&J) -> String + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(place) else {
                return done;
            };
            done.push((place, run(job)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<(usize, String)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let parts = handles.into_iter();
        parts.flat_map(|h| h.join().expect("no panic")).collect()
    });
    all.sort();
    all.into_iter().map(|(_, row)| row).collect()
}

#[test]
fn results_of_every_queue_equal_the_recorded_ones() {
    let trace = trace();
    let trace = trace.to_str().expect("a path");
    let queues = every();
    let scenarios: Vec<(&str, Scenario)> = SCENARIOS
        .iter()
        .map(|(name, text)| {
            let text = format!(
                "duration = \"6s\"\nwarmup = \"500ms\"\n{}",
                text.replace("TRACE", trace)
            );
            let scenario = Scenario::parse(&text, name, &Overrides::default());
            (*name, scenario.unwrap_or_else(|e| panic!("{name}: {e}")))
        })
        .collect();
    let mut jobs = Vec::new();
    for (name, scenario) in &scenarios {
        for queue in &queues {
            for seed in 1..=3 {
                jobs.push((*name, scenario, queue.as_str(), seed));
            }
        }
    }
    assert!(jobs.len() >= 300, "{} cells", jobs.len());
    let mut rows = parallel(&jobs, |(name, scenario, queue, seed)| {
        cell(name, scenario, queue, *seed)
    });
    let mut episodes = Vec::new();
    for (knob, queue) in [
        ("limit", "fifo"),
        ("limit", "codel"),
        ("drop", "fifo limit 500"),
        ("base_probability", "dualpi2"),
        ("base_probability", "l4s"),
        ("flow_limit", "lfq"),
    ] {
        for seed in 1..=3 {
            episodes.push((knob, queue, seed));
        }
    }
    rows.extend(parallel(&episodes, |(knob, queue, seed)| {
        episode(knob, queue, *seed)
    }));

    let head = "surroundings,queue,seed,packets,queues,flows,goodput_mbps";
    let now = format!("{head}\n{}\n", rows.join("\n"));
    if std::env::var_os("QUELL_RECORD").is_some() {
        std::fs::write(data(), now).expect("recorded.csv");
        return;
    }
    let was = std::fs::read_to_string(data()).expect("recorded.csv");
    // A row's name: all before its last four columns, because a queue's words may have commas.
    let name = |row| str::rsplitn(row, 5, ',').last().expect("a row");
    let before: BTreeMap<&str, &str> = was.lines().map(|row| (name(row), row)).collect();
    let differing: Vec<String> = now
        .lines()
        .filter(|row| before.get(name(row)) != Some(row))
        .map(|row| {
            let before = before.get(name(row)).unwrap_or(&"(new)");
            format!("  was {before}\n  is  {row}")
        })
        .collect();
    assert!(
        differing.is_empty(),
        "{} of {} rows differ from tests/data/recorded.csv:\n{}",
        differing.len(),
        rows.len(),
        differing[..differing.len().min(10)].join("\n")
    );
    assert_eq!(now.lines().count(), was.lines().count(), "rows are missing");
}
