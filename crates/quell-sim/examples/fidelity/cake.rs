//! Bottlenecks on which real Linux was measured, with the share of each group of flows: CAKE with
//! tins, hosts and framing, less common disciplines, HTB with classes, and a wide set.

use quell_link::record::Run;
use quell_link::units;

use super::grid::{self, Cell, Compared, Verdict, mean};

const CAKE: &str = include_str!("../../tests/data/linux/cake.csv");
/// SFQ, CHOKe, SFB, HHF and priority bands, some with flows of different priorities.
const DISCIPLINES: &str = include_str!("../../tests/data/linux/disciplines.csv");
/// Measurements of the cells in `wide.list.csv`: many flows, extreme rates and round trips, BBR,
/// datagrams, flows that come and go.
const WIDE: &str = include_str!("../../tests/data/linux/wide.csv");

/// Measurements of the cells in `htb.list.csv`: HTB with classes.
const TREES: &str = include_str!("../../tests/data/linux/htb.csv");

/// A bottleneck, and the share of the goodput that each group of flows had in Linux, per cent, for
/// each seed.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The bottleneck.
    pub cell: Cell,
    linux: Vec<Vec<f64>>,
}

/// CAKE's cells.
pub fn cells() -> Vec<Shared> {
    read(CAKE)
}

/// The cells of the other disciplines.
pub fn disciplines() -> Vec<Shared> {
    read(DISCIPLINES)
}

/// The wide set. The file has the rate of datagrams' payload, as Linux's sender takes it; it is
/// converted to that of IP packets. The goodput is that of all flows.
#[allow(dead_code, reason = "other tests have other cells")]
pub fn wide() -> Vec<Shared> {
    of_payload(WIDE)
}

/// HTB's cells, with rates and goodput as in the wide set.
#[allow(dead_code, reason = "other tests have other cells")]
pub fn trees() -> Vec<Shared> {
    of_payload(TREES)
}

fn of_payload(table: &str) -> Vec<Shared> {
    let mut all = read(table);
    for shared in &mut all {
        let flows = shared.cell.flows.split('@').map(|option| {
            let Some(rate) = option.strip_prefix("rate=") else {
                return option.to_owned();
            };
            let payload = units::parse_rate(rate).expect("a rate");
            format!("rate={}bit", payload.bps() * 1500 / 1472)
        });
        shared.cell.flows = flows.collect::<Vec<_>>().join("@");
    }
    all
}

fn read(table: &str) -> Vec<Shared> {
    let rows: Vec<Vec<&str>> = table
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
    grid::read(table).into_iter().map(with_shares).collect()
}

/// Whether the means differ by at most `percent`, or quell's is inside the widened range of Linux's
/// seeds.
fn within(compared: &Compared, percent: f64) -> bool {
    compared.percent().abs() <= percent || compared.in_range
}

impl Shared {
    /// Whether goodput is within 2 %, the mean backlog within 10 % and its 95th percentile within
    /// 15 % (or each inside the range of Linux's own seeds), and each group's share within 3
    /// percentage points.
    #[allow(dead_code, reason = "CAKE's cells have the grid's tolerances")]
    pub fn agrees(&self, verdict: &Verdict, shares: &[Vec<f64>]) -> bool {
        verdict.goodput.holds()
            && within(&verdict.backlog, 10.0)
            && within(&verdict.p95, 15.0)
            && self.share_difference(shares) <= 3.0
    }

    /// Each group's share of the goodput in one run of quell, per cent. The pings, which come
    /// first, are in no group.
    pub fn shares(&self, run: &Run) -> Vec<f64> {
        let mut flows = run.flows[1..].iter();
        let groups = self.cell.flows.split('+').map(|words| {
            let mut options = words.split('@');
            let count = options.next().and_then(|w| w.split_once(':'));
            let count = count.and_then(|(_, n)| n.parse().ok()).expect("CC:COUNT");
            let sum: f64 = flows.by_ref().take(count).map(|f| f.goodput_mbps).sum();
            sum * self.seconds(options)
        });
        let groups: Vec<f64> = groups.collect();
        let all: f64 = groups.iter().sum();
        groups.into_iter().map(|sum| sum / all * 100.0).collect()
    }

    /// Seconds of the measured time in which flows with these options exist.
    fn seconds<'a>(&self, options: impl Iterator<Item = &'a str>) -> f64 {
        let (end, warm) = (self.cell.span_s.0 as f64, self.cell.span_s.1 as f64);
        let second = |word: &str| -> f64 {
            let number = word.strip_suffix('s').expect("seconds");
            number.parse().expect("a number")
        };
        let span = options
            .filter(|o| !o.contains('='))
            .find_map(|o| o.split_once('-'));
        let (start, stop) = span.map_or((0.0, end), |(a, b)| (second(a), second(b)));
        stop.min(end) - start.max(warm)
    }

    /// The largest difference between Linux's and quell's mean share of a group, in percentage
    /// points.
    pub fn share_difference(&self, quell: &[Vec<f64>]) -> f64 {
        let of = |runs: &[Vec<f64>], group: usize| {
            mean(&runs.iter().map(|shares| shares[group]).collect::<Vec<_>>())
        };
        let groups = 0..self.linux[0].len();
        let differences = groups.map(|g| (of(&self.linux, g) - of(quell, g)).abs());
        differences.fold(0.0, f64::max)
    }
}
