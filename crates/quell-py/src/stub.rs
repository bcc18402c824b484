//! A stand-in for the engine until `quell_sim::run` lands: records of the right shape with made-up numbers.

use quell_link::record::{Flow, Run, Series, Summary};
use quell_sim::scenario::Scenario;
use std::sync::atomic::{AtomicBool, Ordering};

#[allow(dead_code)]
pub struct RunOptions {
    pub series_bin: Option<u64>,
    pub pcap: Option<std::path::PathBuf>,
}
pub type Outside<'a> = (
    u64,
    &'a mut dyn FnMut(&quell_qdisc::Gauges) -> Result<quell_qdisc::Knobs, quell_link::Error>,
);
pub fn run_controlled(
    s: &Scenario,
    queue: &str,
    seed: u64,
    o: &RunOptions,
    stop: &AtomicBool,
    outside: Option<Outside>,
) -> Result<Run, quell_link::Error> {
    if let Some((period, ask)) = outside {
        for k in 1..s.duration / period {
            ask(&quell_qdisc::Gauges {
                now: k * period,
                ..Default::default()
            })?;
        }
    }
    run(s, queue, seed, o, stop)
}
fn noise(x: u64) -> f64 {
    let mut z = x.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

pub fn run(
    s: &Scenario,
    queue: &str,
    seed: u64,
    options: &RunOptions,
    stop: &AtomicBool,
) -> Result<Run, quell_link::Error> {
    let bin = options.series_bin;
    let kind = queue.split(' ').next().unwrap_or("");
    quell_link::Queue::parse(queue)?;
    let i = kind.bytes().map(usize::from).sum::<usize>() % 13;
    for _ in 0..(noise(seed) * 10.0) as u32 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        if stop.load(Ordering::Relaxed) {
            return Err(quell_link::Error::new("stopped"));
        }
    }
    let delay = 3.0 * 1.45f64.powi(((i * 7) % 13) as i32) * (1.0 + 0.1 * noise(seed + 1));
    let goodput = 12.0 + 0.9 * (1.0 + delay).ln() / 2.0 - ((i * 5) % 13) as f64 * 0.08
        + 0.05 * noise(seed + 2);
    let summary = |m: f64| Summary {
        mean: m,
        p50: 0.9 * m,
        p95: 2.0 * m,
        p99: 2.6 * m,
        max: 4.0 * m,
    };
    let n = bin.map_or(0, |b| s.duration / b) as usize;
    let wave = |k: usize, a: u64| {
        0.6 + 0.4 * (k as f64 / 9.0 + a as f64).sin() + 0.2 * noise(seed ^ (k as u64 * 31) ^ a)
    };
    let cap: Vec<f64> = (0..n).map(|k| 15.0 * wave(k, 0)).collect();
    let flow = |g: f64, cc: &str| Flow {
        kind: "tcp".into(),
        cc: cc.into(),
        base_rtt_ms: 20.0,
        goodput_mbps: g,
        retransmits: 12,
        cwnd_packets: 25.0,
        rtt_ms: Some(summary(20.0 + delay)),
        fct_ms: None,
        completed: 0,
    };
    Ok(Run {
        scenario: s.name.clone(),
        queue: queue.into(),
        seed,
        measured_s: (s.duration - s.warmup) as f64 / 1e9,
        goodput_mbps: goodput,
        throughput_mbps: goodput * 1.05,
        capacity_mbps: 15.0,
        utilisation: goodput * 1.05 / 15.0,
        sojourn_ms: summary(delay),
        sojourn_cdf: (0..100)
            .map(|k| {
                (
                    delay * 4.0 * (k as f64 / 99.0).powi(2),
                    (k as f64 / 99.0).powf(0.7),
                )
            })
            .collect(),
        backlog_packets: summary(delay * 1.25),
        backlog_ms: summary(delay),
        limit_packets: (kind == "learnqueue" || kind == "wqm").then_some(33.0),
        packets: 70_000,
        drops: 700,
        marks: if kind == "dualpi2" { 400 } else { 0 },
        loss_rate: 0.01 * noise(i as u64),
        mark_rate: 0.0,
        jain: Some(0.9 + 0.1 * noise(seed + 3)),
        rtt_ms: Some(summary(20.0 + delay)),
        flows: vec![
            flow(goodput * 0.3, "cubic"),
            flow(goodput * 0.4, "cubic"),
            flow(goodput * 0.1, "newreno"),
            flow(goodput * 0.2, "bbr"),
        ],
        series: bin.map(|b| Series {
            bin_s: b as f64 / 1e9,
            backlog_ms: (0..n).map(|k| delay * wave(k, 3)).collect(),
            throughput_mbps: cap
                .iter()
                .enumerate()
                .map(|(k, c)| c * (0.9 + 0.1 * noise(k as u64 ^ seed)))
                .collect(),
            capacity_mbps: cap,
            sojourn_ms: (0..n)
                .map(|k| (k > 3).then(|| delay * wave(k, 3)))
                .collect(),
            drops: vec![1; n],
            marks: vec![0; n],
            limit_packets: vec![if kind == "wqm" { 0.0 } else { 1000.0 }; n]
                .into_iter()
                .enumerate()
                .map(|(k, v)| {
                    if v == 0.0 {
                        20.0 + 10.0 * wave(k, 1)
                    } else {
                        v
                    }
                })
                .collect(),
            probability: (0..n)
                .map(|k| {
                    if kind == "pie" {
                        0.02 * wave(k, 8)
                    } else {
                        0.0
                    }
                })
                .collect(),
            goodput_mbps: vec![vec![3.0; n]; 4],
        }),
        events: 400_000,
        cpu_s: 0.01,
        packets_per_cpu_s: 7.5e6,
        trace_hash: "0".into(),
        ..Run::default()
    })
}
