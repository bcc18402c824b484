//! 802.11n cells in quell and in ns-3.37 (`tests/data/ns3/wifi.csv`, written by
//! `tools/peers/wifi.py --figures`).

use quell_link::record::Run;
use quell_sim::scenario::{Node, Source, Table};

use crate::grid::Compared;
use crate::theory::run;

const FIGURES: &str = include_str!("../../tests/data/ns3/wifi.csv");
const TEMPLATE: &str = include_str!("../../tests/data/ns3/wifi.toml");
/// Limit of ns-3's queue, which includes the frames on the air, packets.
const LIMIT: u32 = 200;
/// Tolerance, relative to ns-3's figures.
const TOLERANCE: f64 = 0.05;

/// The measures of one run: goodput delivered in order, as ns-3's sinks read it, Mbit/s; mean delay
/// from queue to neighbour, ms.
type Measures = (f64, f64);

/// One cell, side by side.
pub struct Row {
    /// MCS, stations, direction and kind of traffic.
    pub what: String,
    /// Goodput, Mbit/s.
    pub goodput: Compared,
    /// Delay, ms.
    pub delay: Compared,
}

impl Row {
    /// Whether the goodput is within 5 %, and the delay within 5 % or inside the widened range of
    /// ns-3's runs.
    pub fn holds(&self) -> bool {
        self.goodput.close && self.delay.holds()
    }
}

fn scenario(mcs: &str, stations: u32, direction: &str, kind: &str) -> String {
    let (mbps, on_air) = if mcs == "3" { (26.0, 11) } else { (65.0, 28) };
    let limit = LIMIT - on_air;
    let (from, to, limit) = match direction {
        "down" => ("ap", "*", limit / stations),
        _ => ("*", "ap", limit),
    };
    let rate = format!("{}mbit", 1.5 * mbps / f64::from(stations));
    let traffic: &[(&str, &str)] = match kind {
        "tcp" => &[
            ("cc", "newreno"),
            ("rtt", "20ms"),
            ("start", "1s"),
            ("stagger", "10ms"),
        ],
        _ => &[("kind", "poisson"), ("rate", &rate)],
    };
    let duration = if kind == "tcp" { "62s" } else { "12s" };
    let flow = table("flow", &[traffic, &[("from", from), ("to", to)]].concat());
    let wifi = [
        ("stations", &stations.to_string()[..]),
        ("mcs", mcs),
        ("queue", &format!("pfifo limit {limit}")),
    ];
    let mut changes = table("", &[("duration", duration)]);
    changes.put("wifi", Node::Table(table("wifi", &wifi)));
    changes.put("flow", Node::Table(flow));
    let template = Source::parse(TEMPLATE, "").expect("a well-formed scenario");
    template.replace(&changes).to_toml()
}

fn table(path: &str, keys: &[(&str, &str)]) -> Table {
    let mut table = Table::new(path);
    for (key, value) in keys {
        table.put(key, Node::Text((*value).to_owned()));
    }
    table
}

fn measures(run: &Run, direction: &str) -> Measures {
    let cell = run.wifi.as_ref().expect("a cell");
    let data = |from: &str| (from == "ap") == (direction == "down");
    let (mut ms, mut mbps) = (0.0, 0.0);
    for q in cell.queues.iter().filter(|q| data(&q.from)) {
        ms += q.delay_ms.unwrap_or(0.0) * q.throughput_mbps;
        mbps += q.throughput_mbps;
    }
    (run.delivered_in_order_mbps.unwrap_or(0.0), ms / mbps)
}

/// Every cell, with this number of quell runs for each.
pub fn all(seeds: u64) -> Vec<Row> {
    let figures: Vec<Vec<&str>> = FIGURES
        .lines()
        .skip(1)
        .map(|l| l.split(',').collect())
        .collect();
    figures
        .chunk_by(|a, b| a[..4] == b[..4])
        .map(|rows| {
            let [mcs, stations, direction, kind] = [0, 1, 2, 3].map(|i| rows[0][i]);
            let count: u32 = stations.parse().expect("a number");
            let text = scenario(mcs, count, direction, kind);
            let own: Vec<Measures> = (1..=seeds)
                .map(|seed| measures(&run(&text, seed), direction))
                .collect();
            let number = |row: &Vec<&str>, i: usize| -> f64 { row[i].parse().expect("a number") };
            let column = |i: usize| rows.iter().map(|r| number(r, i)).collect::<Vec<_>>();
            let (goodput, delay): (Vec<f64>, Vec<f64>) = own.into_iter().unzip();
            Row {
                what: format!(
                    "MCS {mcs}, {stations} station{}, {kind} {direction}",
                    if count > 1 { "s" } else { "" }
                ),
                goodput: Compared::new(&column(5), &goodput, TOLERANCE),
                delay: Compared::new(&column(6), &delay, TOLERANCE),
            }
        })
        .collect()
}
