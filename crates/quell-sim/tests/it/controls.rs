//! Vegas, Westwood+ and Illinois against Linux's own at the nine bottlenecks of
//! `data/linux/controls.csv`, which were chosen before quell was run on them. Goodput agrees within
//! 2 %, mean backlog within 10 % and its 95th percentile within 15 %. A measure also agrees if it
//! is within the range of Linux's seeds, widened at both ends by half of this range.
//!
//! `cargo test --package quell-sim --test it controls -- --nocapture` prints the table of
//! docs/lab/fidelity.md.

use std::sync::atomic::AtomicBool;

use crate::grid::{self, Cell, Compared};
use quell_sim::RunOptions;

const SEEDS: u64 = 5;

/// Cells outside these bounds; docs/lab/fidelity.md explains them.
const MISSES: &[&str] = &["50mbit-rtt80-fq_codel-noecn-vegas4"];

/// Goodput in Mbit/s, mean backlog and its 95th percentile in ms, of one run.
fn measure(cell: &Cell, seed: u64) -> [f64; 3] {
    let (scenario, cancelled) = (cell.scenario(), AtomicBool::new(false));
    let options = RunOptions::default();
    let run = quell_sim::run(&scenario, &cell.queue, seed, &options, &cancelled).expect("a run");
    let tcp = run.flows.iter().filter(|flow| flow.kind == "tcp");
    [
        tcp.map(|flow| flow.delivered_in_order_mbps).sum(),
        run.backlog_ms.mean,
        run.backlog_ms.p95,
    ]
}

fn compare(cell: &Cell) -> [Compared; 3] {
    let linux = cell.linux.iter();
    let linux: Vec<[f64; 3]> = linux
        .map(|m| [m.goodput_mbit, m.backlog_ms, m.p95_ms])
        .collect();
    let quell: Vec<[f64; 3]> = (1..=SEEDS).map(|seed| measure(cell, seed)).collect();
    let of = |runs: &[[f64; 3]], k: usize| runs.iter().map(|run| run[k]).collect::<Vec<_>>();
    let bars = [0.02, 0.10, 0.15];
    [0, 1, 2].map(|k| Compared::new(&of(&linux, k), &of(&quell, k), bars[k]))
}

#[test]
fn vegas_westwood_and_illinois_agree_with_linux_except_in_known_cells() {
    println!("| traffic | queue | goodput, Mbit/s | mean backlog, ms | p95 backlog, ms | |");
    println!("|---|---|---|---|---|---|");
    let mut missed = Vec::new();
    for cell in grid::read(include_str!("../data/linux/controls.csv")) {
        let compared = compare(&cell);
        let holds = compared.iter().all(Compared::holds);
        let [goodput, mean, p95] = compared.map(|c| {
            let sign = match (c.close, c.in_range) {
                (true, _) => "",
                (false, true) => " ≈",
                (false, false) => " ✗",
            };
            let percent = c.percent();
            format!("{:.2} → {:.2} ({percent:+.1} %){sign}", c.linux, c.quell)
        });
        let word = if holds { "agrees" } else { "**miss**" };
        let (traffic, queue) = (cell.traffic(), &cell.queue);
        println!("| {traffic} | {queue} | {goodput} | {mean} | {p95} | {word} |");
        if !holds {
            missed.push(cell.name);
        }
    }
    assert_eq!(missed, MISSES);
}
