//! A scalable and a classic flow side by side through DualPI2: the ratio of their rates and the
//! scalable flow's delay. DCTCP and CUBIC are compared with Linux's (`tests/data/linux/l4s.csv`);
//! Prague, which Linux does not have, has fixed bounds.

use quell_link::record::{Flow, Run};

use super::grid::{self, Cell, Compared};

const L4S: &str = include_str!("../../tests/data/linux/l4s.csv");
/// Round trips over which Prague and CUBIC have to get similar rates, ms.
const PRAGUE_RTTS: [u64; 5] = [5, 10, 20, 50, 100];

/// The measures of one run.
#[derive(Clone, Copy, Debug)]
pub struct Measures {
    /// Ratio of the mean goodput of the scalable flows to that of the classic ones.
    pub ratio: f64,
    /// Mean of the scalable flow's smoothed RTT, less the base RTT, ms.
    pub delay_ms: f64,
    /// 99th percentile of the same RTT, less the base RTT, ms.
    pub p99_ms: f64,
}

/// A bottleneck with two kinds of flows, the scalable ones first.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The bottleneck.
    pub cell: Cell,
    /// One entry per seed of Linux; empty if Linux has no such sender.
    pub linux: Vec<Measures>,
}

/// All pairs, those measured in Linux first.
pub fn pairs() -> Vec<Pair> {
    let figures: Vec<Vec<&str>> = L4S
        .lines()
        .skip(1)
        .map(|l| l.split(',').collect())
        .collect();
    let linux = |cell: &Cell| {
        let rows = figures.iter().filter(|f| f[0] == cell.name);
        let number = |f: &[&str], i: usize| -> f64 { f[i].parse().expect("a number") };
        let base = cell.rtt_ms as f64;
        rows.map(|f| Measures {
            ratio: number(f, 16) / number(f, 17),
            delay_ms: number(f, 18) - base,
            p99_ms: number(f, 19) - base,
        })
        .collect()
    };
    let measured = grid::read(L4S).into_iter().map(|cell| Pair {
        linux: linux(&cell),
        cell,
    });
    let prague = PRAGUE_RTTS.map(|rtt_ms| Pair {
        cell: Cell {
            name: format!("40mbit-rtt{rtt_ms}-dualpi2-prague1+cubic1"),
            rate_mbit: 40,
            rtt_ms,
            queue: "dualpi2".into(),
            flows: "prague:1@ecn=1+cubic:1".into(),
            // There is no run of Linux with this warm-up to match, so it can be long enough for
            // CUBIC to settle at an RTT of 100 ms.
            span_s: (120, 20),
            linux: Vec::new(),
        },
        linux: Vec::new(),
    });
    measured.chain(prague).collect()
}

/// The measures of one run of quell.
pub fn measures(run: &Run) -> Measures {
    let tcp: Vec<&Flow> = run.flows.iter().filter(|f| f.kind == "tcp").collect();
    let (low, classic): (Vec<&Flow>, Vec<&Flow>) = tcp.iter().partition(|f| f.cc != "cubic");
    let mean = |flows: &[&Flow], f: fn(&Flow) -> f64| {
        grid::mean(&flows.iter().map(|flow| f(flow)).collect::<Vec<_>>())
    };
    let beyond = |f: &Flow, p99: bool| {
        let rtt = f.rtt_ms.expect("a TCP flow has an RTT");
        (if p99 { rtt.p99 } else { rtt.mean }) - f.base_rtt_ms
    };
    Measures {
        ratio: mean(&low, |f| f.delivered_in_order_mbps)
            / mean(&classic, |f| f.delivered_in_order_mbps),
        delay_ms: grid::mean(&low.iter().map(|f| beyond(f, false)).collect::<Vec<_>>()),
        p99_ms: grid::mean(&low.iter().map(|f| beyond(f, true)).collect::<Vec<_>>()),
    }
}

/// The comparison of a pair.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// Ratio of rates: within 20 % of the ratio in Linux; without Linux, between 1/1.5 and 1.5.
    pub ratio: Compared,
    /// Mean delay and its bar, ms: 1 ms from 40 Mbit/s on; below, one packet's time more than
    /// Linux.
    pub delay: (Compared, f64),
    /// 99th percentile and its bar, ms: 2 ms from 40 Mbit/s on, or agreement with Linux if Linux
    /// exceeds 2 ms; below 40 Mbit/s, no bar.
    pub p99: (Compared, f64),
    /// Whether Linux has no such sender.
    alone: bool,
}

impl Verdict {
    /// Compares the means over quell's seeds with Linux's and with the bars.
    pub fn new(pair: &Pair, quell: &[Measures]) -> Self {
        let compare = |f: fn(&Measures) -> f64, tolerance| {
            let all = |runs: &[Measures]| runs.iter().map(f).collect::<Vec<_>>();
            Compared::new(&all(&pair.linux), &all(quell), tolerance)
        };
        let delay = compare(|m| m.delay_ms, 0.25);
        let p99 = compare(|m| m.p99_ms, 0.25);
        let packet_ms = 1514.0 * 8.0 / (pair.cell.rate_mbit as f64 * 1e3);
        let (max_delay, max_p99) = match pair.cell.rate_mbit {
            40.. => (1.0, 2.0),
            _ => (delay.linux + packet_ms, f64::INFINITY),
        };
        Self {
            ratio: compare(|m| m.ratio, 0.2),
            delay: (delay, max_delay),
            p99: (p99, max_p99),
            alone: pair.linux.is_empty(),
        }
    }

    /// Whether the ratio of rates is within its bounds.
    pub fn rates_hold(&self) -> bool {
        match self.alone {
            true => (1.0 / 1.5..=1.5).contains(&self.ratio.quell),
            false => self.ratio.holds(),
        }
    }

    /// Whether the delays are within their bars.
    pub fn delays_hold(&self) -> bool {
        let (p99, max_p99) = self.p99;
        let as_linux = p99.linux > max_p99 && p99.holds();
        self.delay.0.quell <= self.delay.1 && (p99.quell <= max_p99 || as_linux)
    }

    /// Whether both hold.
    pub fn holds(&self) -> bool {
        self.rates_hold() && self.delays_hold()
    }
}
