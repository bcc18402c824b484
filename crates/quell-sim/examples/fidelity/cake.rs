//! CAKE with tins, hosts and framing: bottlenecks that real Linux was measured on, with the share of each group of flows.

use quell_link::record::Run;

use super::grid::{self, Cell, mean};

const CAKE: &str = include_str!("../../tests/data/linux/cake.csv");

/// A bottleneck, and what part of the goodput each group of flows had in Linux, in per cent, seed by seed.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The bottleneck.
    pub cell: Cell,
    linux: Vec<Vec<f64>>,
}

/// Every cell.
pub fn cells() -> Vec<Shared> {
    let rows: Vec<Vec<&str>> = CAKE
        .lines()
        .skip(1)
        .map(|l| l.split(',').collect())
        .collect();
    let shares = |row: &Vec<&str>| -> Vec<f64> {
        let words = row[11].split(' ');
        words.map(|w| w.parse().expect("a share")).collect()
    };
    let with_shares = |cell: Cell| Shared {
        linux: rows
            .iter()
            .filter(|r| r[0] == cell.name)
            .map(shares)
            .collect(),
        cell,
    };
    grid::read(CAKE).into_iter().map(with_shares).collect()
}

impl Shared {
    /// The same of one run of quell's; the pings, which come first, are in no group.
    pub fn shares(&self, run: &Run) -> Vec<f64> {
        let all: f64 = run.flows[1..].iter().map(|f| f.goodput_mbps).sum();
        let mut flows = run.flows[1..].iter();
        let groups = self.cell.flows.split('+').map(|words| {
            let count = words.split('@').next().and_then(|w| w.split_once(':'));
            let count = count.and_then(|(_, n)| n.parse().ok()).expect("CC:COUNT");
            let sum: f64 = flows.by_ref().take(count).map(|f| f.goodput_mbps).sum();
            sum / all * 100.0
        });
        groups.collect()
    }

    /// The largest difference between the means of the shares, in percentage points.
    pub fn apart(&self, quell: &[Vec<f64>]) -> f64 {
        let of = |runs: &[Vec<f64>], group: usize| {
            mean(&runs.iter().map(|shares| shares[group]).collect::<Vec<_>>())
        };
        let groups = 0..self.linux[0].len();
        let differences = groups.map(|g| (of(&self.linux, g) - of(quell, g)).abs());
        differences.fold(0.0, f64::max)
    }
}
