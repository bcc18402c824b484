//! A small part of the grid that `make fidelity` compares with real Linux: enough to notice when TCP or a discipline changes.

#[path = "../examples/fidelity/grid.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod grid;

use std::sync::atomic::AtomicBool;

use quell_sim::RunOptions;

/// Compares one cell over four seeds; all cells at 10 Mbit/s take little time.
#[track_caller]
fn agrees(name: &str) {
    let cell = grid::cells()
        .into_iter()
        .find(|cell| cell.name == name)
        .expect("a cell of the grid");
    let (scenario, never) = (cell.scenario(), AtomicBool::new(false));
    let run = |seed| {
        quell_sim::run(&scenario, &cell.queue, seed, &RunOptions::default(), &never).expect("a run")
    };
    let quell: Vec<_> = (1..=4).map(|seed| grid::measures(&run(seed))).collect();
    let verdict = grid::Verdict::new(&cell, &quell);
    assert!(verdict.holds(), "{name}: {verdict:#?}");
}

#[test]
fn pfifo100_cubic_is_as_in_linux() {
    agrees("10mbit-pfifo100-cubic4");
}

#[test]
fn codel_cubic_is_as_in_linux() {
    agrees("10mbit-codel-noecn-cubic4");
}

#[test]
fn pie_cubic_is_as_in_linux() {
    agrees("10mbit-pie-cubic4");
}

#[test]
fn fq_codel_cubic_is_as_in_linux() {
    agrees("10mbit-fq_codel-noecn-cubic4");
}

#[test]
fn fq_pie_cubic_is_as_in_linux() {
    agrees("10mbit-fq_pie-cubic4");
}

#[test]
fn dualpi2_cubic_is_as_in_linux() {
    agrees("10mbit-dualpi2-cubic4");
}

#[test]
fn codel_ecn_cubic_is_as_in_linux() {
    agrees("10mbit-codel-ecn-cubic4");
}

#[test]
fn pie_ecn_cubic_is_as_in_linux() {
    agrees("10mbit-pie-ecn-cubic4");
}

#[test]
fn fq_codel_ecn_cubic_is_as_in_linux() {
    agrees("10mbit-fq_codel-ecn-cubic4");
}

#[test]
fn codel_newreno_is_as_in_linux() {
    agrees("10mbit-codel-noecn-reno4");
}

#[test]
fn fq_codel_newreno_is_as_in_linux() {
    agrees("10mbit-fq_codel-noecn-reno4");
}

#[test]
fn dualpi2_newreno_is_as_in_linux() {
    agrees("10mbit-dualpi2-reno4");
}
