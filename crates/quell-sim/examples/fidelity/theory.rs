//! Values by theory compared with quell's measurements: queueing formulas, the sawtooth, Mathis'
//! law, deficit round robin, DualPI2's coupling.

use std::sync::atomic::AtomicBool;

use quell_link::record::Run;
use quell_qdisc::time::MS;
use quell_sim::RunOptions;
use quell_sim::scenario::{Overrides, Scenario};

/// One quantity, in theory and as measured.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the quantity.
    pub what: String,
    /// Its unit.
    pub unit: &'static str,
    /// Value by theory.
    pub expected: f64,
    /// Value that quell measures.
    pub measured: f64,
    /// The largest difference allowed, in the quantity's unit.
    pub tolerance: f64,
}

impl Row {
    /// A row whose tolerance is a share of the expected value.
    pub fn relative(
        what: impl Into<String>,
        unit: &'static str,
        expected: f64,
        measured: f64,
        tolerance: f64,
    ) -> Self {
        Self {
            what: what.into(),
            unit,
            expected,
            measured,
            tolerance: tolerance * expected,
        }
    }

    /// Whether the two agree.
    pub fn holds(&self) -> bool {
        (self.measured - self.expected).abs() <= self.tolerance
    }
}

/// Runs a scenario given as text.
pub fn run(text: &str, seed: u64) -> Run {
    run_with(text, seed, &RunOptions::default())
}

fn run_with(text: &str, seed: u64, options: &RunOptions) -> Run {
    let scenario =
        Scenario::parse(text, "theory", &Overrides::default()).expect("a well-formed scenario");
    let queue = scenario.link.queue.clone();
    let never = AtomicBool::new(false);
    quell_sim::run(&scenario, &queue, seed, options, &never).expect("a run")
}

/// Poisson packets of `size` (mean 5000 bytes, which take 80 us) at load 0.9 through a line of 500
/// Mbit/s.
fn poisson(size: &str, limit: u32) -> Run {
    // 11,250 packets a second: 10.1 million in the measured 900 s.
    let text = format!(
        r#"
        duration = "905s"
        warmup = "5s"
        [link]
        rate = "500mbit"
        overhead = 0
        queue = "pfifo limit {limit}"
        [[flow]]
        kind = "poisson"
        count = 1
        rate = "450mbit"
        size = {size}
        "#
    );
    let run = run(&text, 1);
    let offered = run.packets + run.drops;
    assert!(offered >= 10_000_000, "{offered} packets are too few");
    run
}

const LOAD: f64 = 0.9;
const SERVICE_MS: f64 = 0.08;

/// M/M/1: waiting time and, by Little's law, the number waiting (Kleinrock, Queueing Systems I,
/// section 3.2).
pub fn mm1() -> Vec<Row> {
    let run = poisson("\"exp:5000\"", 1_000_000);
    let wait = LOAD / (1.0 - LOAD) * SERVICE_MS;
    vec![
        Row::relative(
            "M/M/1 at load 0.9: mean wait",
            "ms",
            wait,
            run.sojourn_ms.mean,
            0.02,
        ),
        Row::relative(
            "M/M/1 at load 0.9: mean number waiting",
            "packets",
            LOAD * wait / SERVICE_MS,
            run.backlog_packets.mean,
            0.02,
        ),
        // The wait is zero with probability 1 - load, else exponential with mean service / (1 -
        // load).
        Row::relative(
            "M/M/1 at load 0.9: 99th percentile of the wait",
            "ms",
            SERVICE_MS / (1.0 - LOAD) * (LOAD / 0.01).ln(),
            run.sojourn_ms.p99,
            0.02,
        ),
    ]
}

/// M/D/1: half of M/M/1's wait (Pollaczek-Khinchine).
pub fn md1() -> Vec<Row> {
    let run = poisson("5000", 1_000_000);
    let wait = LOAD / (2.0 * (1.0 - LOAD)) * SERVICE_MS;
    vec![
        Row::relative(
            "M/D/1 at load 0.9: mean wait",
            "ms",
            wait,
            run.sojourn_ms.mean,
            0.02,
        ),
        Row::relative(
            "M/D/1 at load 0.9: mean number waiting",
            "packets",
            LOAD * wait / SERVICE_MS,
            run.backlog_packets.mean,
            0.02,
        ),
    ]
}

/// M/M/1/K: at most K packets in the system, including the one in service (Kleinrock, section 3.6).
pub fn mm1k() -> Vec<Row> {
    let limit = 9;
    let k = f64::from(limit) + 1.0;
    let run = poisson("\"exp:5000\"", limit);
    let empty = (1.0 - LOAD) / (1.0 - LOAD.powf(k + 1.0));
    let full = empty * LOAD.powf(k);
    let in_system =
        LOAD / (1.0 - LOAD) - (k + 1.0) * LOAD.powf(k + 1.0) / (1.0 - LOAD.powf(k + 1.0));
    let waiting = in_system - (1.0 - empty);
    let wait = waiting * SERVICE_MS / (LOAD * (1.0 - full));
    vec![
        Row::relative(
            "M/M/1/10 at load 0.9: mean wait",
            "ms",
            wait,
            run.sojourn_ms.mean,
            0.02,
        ),
        Row::relative(
            "M/M/1/10 at load 0.9: share lost",
            "",
            full,
            run.loss_rate,
            0.02,
        ),
    ]
}

/// One NewReno flow and a drop-tail buffer of one bandwidth-delay product, and of half of it. The
/// window climbs by a packet per round trip from half its peak to its peak, which is the number of
/// packets that path and buffer hold (Appenzeller et al., 2004).
pub fn sawtooth() -> Vec<Row> {
    // 10 Mbit/s, 200 ms: 165 packets of 1514 bytes are one bandwidth-delay product.
    // Acknowledgements are so far apart that the sender sends no bursts, which would need buffer of
    // their own.
    let bdp = 165.0;
    let flow = |limit: u32| {
        let text = format!(
            r#"
            duration = "1100s"
            warmup = "100s"
            [link]
            rate = "10mbit"
            delay = "100ms"
            queue = "pfifo limit {limit}"
            [[flow]]
            kind = "tcp"
            count = 1
            cc = "newreno"
            rtt = "200ms"
            "#
        );
        let options = RunOptions {
            series_bin: Some(100 * MS),
            ..RunOptions::default()
        };
        run_with(&text, 1, &options)
    };
    let (whole, half) = (flow(165), flow(83));
    // In units of the bandwidth-delay product, over a sawtooth from 1 to 2: the integral of (w - 1)
    // w over that of w.
    let mean_queue = 5.0 / 9.0 * bdp;
    // With half the buffer, from 3/4 to 3/2: below 1 the round trip is constant and a share w of
    // the link is used, above 1 all of it.
    let (below_s, below, above) = (0.25, (1.0 - 0.5625) / 2.0, (2.25 - 1.0) / 2.0);
    let used = (below + above) / (below_s + above);
    let series = whole.series.as_ref().expect("a series was asked for");
    let measured = &series.backlog_ms[1000..]; // after 100 s
    let lowest = measured.iter().copied().fold(f64::INFINITY, f64::min);
    vec![
        Row {
            what: "NewReno, buffer of one BDP: lowest backlog in 100 ms".into(),
            unit: "ms",
            expected: 0.0,
            measured: lowest,
            tolerance: 5.0, // four packets
        },
        Row {
            what: "NewReno, buffer of one BDP: utilisation".into(),
            unit: "",
            expected: 1.0,
            measured: whole.utilisation,
            tolerance: 0.005,
        },
        Row::relative(
            "NewReno, buffer of one BDP: mean queue, 5/9 of the buffer",
            "packets",
            mean_queue,
            whole.backlog_packets.mean,
            0.05,
        ),
        Row::relative(
            "NewReno, buffer of half a BDP: utilisation, 27/28",
            "",
            used,
            half.utilisation,
            0.01,
        ),
    ]
}

/// Mathis' law: goodput * RTT * sqrt(p) / MSS is a constant; 1.31 when losses are independent (Ott,
/// Kemperman and Mathis, 1996) and the window grows by one packet a round trip, as in Linux, even
/// with delayed acknowledgements.
pub fn mathis() -> Vec<Row> {
    [1e-3, 1e-4]
        .into_iter()
        .map(|p| {
            let text = format!(
                r#"
                duration = "1020s"
                warmup = "20s"
                [link]
                rate = "1gbit"
                delay = "50ms"
                loss = {p}
                queue = "pfifo limit 10000"
                [[flow]]
                kind = "tcp"
                cc = "newreno"
                count = 10
                rtt = "100ms"
                "#
            );
            let run = run(&text, 1);
            let window = run.goodput_mbps / 10.0 * 1e6 / 8.0 * 0.1 / 1448.0;
            Row::relative(
                format!("Mathis' law at p = {p}: window times sqrt(p)"),
                "",
                1.31,
                window * f64::sqrt(p),
                0.1,
            )
        })
        .collect()
}

/// Three flows of different packet sizes, each with more than its share, through deficit round
/// robin.
pub fn drr() -> Vec<Row> {
    let text = r#"
        duration = "60s"
        warmup = "0s"
        [link]
        rate = "10mbit"
        overhead = 0
        queue = "fq quantum 3000 initial_quantum 3000"
        [[flow]]
        kind = "cbr"
        count = 1
        rate = "9mbit"
        size = 1500
        [[flow]]
        kind = "cbr"
        count = 1
        rate = "8mbit"
        size = 750
        [[flow]]
        kind = "cbr"
        count = 1
        rate = "7mbit"
        size = 300
    "#;
    let run = run(text, 1);
    // Goodput of datagrams excludes their IP and UDP headers.
    let wire = |i: usize, size: f64| {
        run.flows[i].goodput_mbps * 1e6 / 8.0 * run.measured_s * size / (size - 28.0)
    };
    let bytes = [wire(0, 1500.0), wire(1, 750.0), wire(2, 300.0)];
    let share = 10e6 / 8.0 * run.measured_s / 3.0;
    ["1500", "750", "300"]
        .iter()
        .zip(bytes)
        .map(|(size, bytes)| Row {
            what: format!("Deficit round robin, quantum 3000: flow of {size}-byte packets"),
            unit: "bytes",
            expected: share,
            measured: bytes,
            tolerance: 3000.0,
        })
        .collect()
}

/// Unresponsive traffic of both kinds beyond the link's rate: classic packets are dropped with the
/// square of the base probability p', the others are marked with k p' (RFC 9332, section 2.1).
/// Because p' changes, drops and marks are compared with means over time. (A target of 100 ms keeps
/// the queue above the two packets below which nothing is dropped or marked.)
pub fn coupling() -> Vec<Row> {
    let at = |l4s: f64, classic: f64| {
        let text = format!(
            r#"
            duration = "70s"
            warmup = "20s"
            [link]
            rate = "100mbit"
            overhead = 0
            queue = "dualpi2 any_ect step_thresh 1s target 100ms"
            [[flow]]
            kind = "poisson"
            rate = "{l4s}mbit"
            size = 500
            ecn = true
            [[flow]]
            kind = "poisson"
            rate = "{classic}mbit"
            size = 500
            "#
        );
        let options = RunOptions {
            series_bin: Some(16 * MS),
            ..RunOptions::default()
        };
        let run = run_with(&text, 1, &options);
        let series = run.series.as_ref().expect("a series was asked for");
        let base = &series.probability[1250..]; // after 20 s
        let mean = |f: fn(f64) -> f64| base.iter().map(|&p| f(p)).sum::<f64>() / base.len() as f64;
        let packets = |mbit: f64| mbit * 1e6 / 8.0 / 500.0 * run.measured_s;
        let traffic = format!("{l4s} + {classic} Mbit/s through 100");
        [
            Row::relative(
                format!("DualPI2, k = 2, {traffic}: L4S marks, mean of k p'"),
                "",
                mean(|p| (2.0 * p).min(1.0)),
                run.marks as f64 / packets(l4s),
                0.02,
            ),
            Row::relative(
                format!("DualPI2, k = 2, {traffic}: classic drops, mean of p'^2"),
                "",
                mean(|p| p * p),
                run.drops as f64 / packets(classic),
                0.02,
            ),
        ]
    };
    [at(50.0, 60.0), at(50.0, 54.0), at(20.0, 90.0)].concat()
}

/// All rows of the table.
pub fn all() -> Vec<Row> {
    [mm1, md1, mm1k, sawtooth, mathis, drr, coupling]
        .iter()
        .flat_map(|check| check())
        .collect()
}
