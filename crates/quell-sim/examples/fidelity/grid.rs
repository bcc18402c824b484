//! The bottlenecks on which real Linux was measured (`tests/data/linux`), the same in quell, and
//! the comparison of the two.

use std::fmt::Write as _;

use quell_link::record::Run;
use quell_link::units;
use quell_qdisc::time::US;
use quell_sim::scenario::{Overrides, Scenario};

/// Seven disciplines, two rates, four kinds of traffic.
const GRID: &str = include_str!("../../tests/data/linux/grid.csv");
/// Cells beyond the grid: other disciplines, congestion controls, round trips, mixtures.
const BEYOND: &str = include_str!("../../tests/data/linux/beyond.csv");

/// The three measures that are compared, and two counts.
#[derive(Clone, Copy, Debug)]
pub struct Measures {
    /// Application bytes of the TCP flows, Mbit/s: acknowledged ones in Linux, those delivered in
    /// order in quell.
    pub goodput_mbit: f64,
    /// Mean backlog, as the time to send it at the link's rate, ms.
    pub backlog_ms: f64,
    /// 95th percentile of the backlog, ms.
    pub p95_ms: f64,
    /// Drops at the bottleneck; not compared.
    pub drops: f64,
    /// CE marks at the bottleneck; not compared.
    pub marks: f64,
}

/// One bottleneck with one discipline and one kind of traffic, and Linux's measures for each seed.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Name in the table.
    pub name: String,
    /// Link rate, Mbit/s.
    pub rate_mbit: u64,
    /// Base round trip, ms.
    pub rtt_ms: u64,
    /// Queue words.
    pub queue: String,
    /// Flows, joined by `+`: `CC:COUNT` (`udp` as CC: datagrams), then options, each after `@`:
    /// `rtt=TIME`, `ecn=1`, `host=`, `dscp=`, `fwmark=`, `rate=`, `START-STOP`.
    pub flows: String,
    /// Duration and warm-up, s.
    pub span_s: (u64, u64),
    /// One entry per seed of Linux.
    pub linux: Vec<Measures>,
}

impl Cell {
    /// Description of the traffic, the same for all cells of the grid that differ only in their
    /// discipline.
    pub fn traffic(&self) -> String {
        let flows = self.flows.split('+').map(|words| {
            let (flow, options) = words.split_once('@').unwrap_or((words, ""));
            let (cc, count) = flow.split_once(':').expect("CC:COUNT");
            let options = match options {
                "" => String::new(),
                "ecn=1" => " with ECN".into(),
                _ => format!(" ({options})"),
            };
            format!("{count} {cc}{options}")
        });
        let flows = flows.collect::<Vec<_>>().join(" + ");
        format!("{} Mbit/s, {} ms, {flows}", self.rate_mbit, self.rtt_ms)
    }

    /// The queue words without a final `ecn` or `noecn`.
    pub fn kind(&self) -> &str {
        let options = [" noecn", " ecn"];
        options
            .iter()
            .find_map(|o| self.queue.strip_suffix(o))
            .unwrap_or(&self.queue)
    }

    /// The cell as a quell scenario; the pings are a sparse flow of their own, as in Linux.
    pub fn scenario(&self) -> Scenario {
        let one_way_us = self.rtt_ms * 500;
        let (duration, warmup) = self.span_s;
        let mut text = format!(
            r#"
            name = "{}"
            duration = "{duration}s"
            warmup = "{warmup}s"
            [link]
            rate = "{}mbit"
            delay = "{one_way_us}us"
            shaper = "htb"
            overhead = 14
            queue = "{}"
            [[flow]]
            kind = "cbr"
            count = 1
            rate = "13440bit"
            size = 84
            "#,
            self.name, self.rate_mbit, self.queue
        );
        for words in self.flows.split('+') {
            let mut words = words.split('@');
            let flow = words.next().and_then(|flow| flow.split_once(':'));
            let (cc, count) = flow.expect("CC:COUNT");
            let (mut rtt, mut ecn) = (format!("{}ms", self.rtt_ms), false);
            let mut more = String::new();
            for option in words {
                match option.split_once('=') {
                    Some(("rtt", time)) => rtt = time.into(),
                    Some(("ecn", value)) => ecn = value == "1",
                    Some((key @ ("host" | "dscp" | "fwmark" | "rate"), value)) => {
                        let _ = writeln!(more, "{key} = \"{value}\"");
                    }
                    _ => {
                        let (start, stop) = option.split_once('-').expect("START-STOP");
                        let _ = writeln!(more, "start = \"{start}\"\nstop = \"{stop}\"");
                    }
                }
            }
            let kind = match cc {
                // A full-size packet, as in Linux's sender of datagrams.
                "udp" => "kind = \"cbr\"\nsize = 1500".to_owned(),
                cc => format!("kind = \"tcp\"\ncc = \"{cc}\"\necn = {ecn}"),
            };
            // The first packets wait until the client's first ARP exchange is over, which takes as
            // long as the client's delay. If that is at least the time over which starts are
            // spread, all flows start at the same instant, whatever the seed.
            let client_us = units::parse_time(&rtt).expect("a time") / US - one_way_us;
            let begin = match client_us {
                100_000.. => format!("start = \"{client_us}us\""),
                _ => "stagger = \"100ms\"".into(),
            };
            let _ = write!(
                text,
                r#"
                [[flow]]
                {kind}
                count = {count}
                rtt = "{rtt}"
                {begin}
                {more}
                "#
            );
        }
        Scenario::parse(&text, &self.name, &Overrides::default())
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The grid's cells, in the order of the file.
pub fn cells() -> Vec<Cell> {
    read(GRID)
}

/// The cells beyond the grid.
pub fn beyond() -> Vec<Cell> {
    read(BEYOND)
}

/// The cells of a table whose first eleven columns are those of the grid.
pub fn read(table: &str) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let column = |name: &str| columns.iter().position(|column| *column == name);
    let span = column("duration_s").zip(column("warmup_s"));
    for line in lines {
        let f: Vec<&str> = line.split(',').collect();
        let number = |i: usize| -> f64 { f[i].parse().expect("a number") };
        if cells.last().is_none_or(|cell| cell.name != f[0]) {
            cells.push(Cell {
                name: f[0].into(),
                rate_mbit: number(1) as u64,
                rtt_ms: number(2) as u64,
                queue: f[3].into(),
                flows: f[4].into(),
                span_s: span.map_or((30, 5), |(d, w)| (number(d) as u64, number(w) as u64)),
                linux: Vec::new(),
            });
        }
        let cell = cells.last_mut().expect("just pushed");
        cell.linux.push(Measures {
            goodput_mbit: number(6),
            backlog_ms: number(7),
            p95_ms: number(8),
            drops: number(9),
            marks: number(10),
        });
    }
    cells
}

/// The measures of one run of quell.
pub fn measures(run: &Run) -> Measures {
    let tcp = run.flows.iter().filter(|flow| flow.kind == "tcp");
    Measures {
        goodput_mbit: tcp.map(|flow| flow.delivered_in_order_mbps).sum(),
        backlog_ms: run.backlog_ms.mean,
        p95_ms: run.backlog_ms.p95,
        drops: run.drops as f64,
        marks: run.marks as f64,
    }
}

/// The same measures with the goodput of all flows except the pings, which come first.
pub fn measures_of_all(run: &Run) -> Measures {
    let all = run.delivered_in_order_mbps.expect("a run has it");
    Measures {
        goodput_mbit: all - run.flows[0].goodput_mbps,
        ..measures(run)
    }
}

/// The comparison of one measure: its means over Linux's and quell's seeds, and whether they agree.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// Mean over Linux's seeds.
    pub linux: f64,
    /// Mean over quell's seeds.
    pub quell: f64,
    /// Whether the means differ by at most the tolerance.
    pub close: bool,
    /// Whether quell's mean is inside the range of Linux's seeds, widened by half of it on either
    /// side.
    pub in_range: bool,
}

impl Compared {
    /// Compares the means.
    pub fn new(linux: &[f64], quell: &[f64], tolerance: f64) -> Self {
        let (l, q) = (mean(linux), mean(quell));
        let min = linux.iter().copied().fold(f64::INFINITY, f64::min);
        let max = linux.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let half = (max - min) / 2.0;
        Self {
            linux: l,
            quell: q,
            close: (q - l).abs() <= tolerance * l,
            in_range: (min - half..=max + half).contains(&q),
        }
    }

    /// Whether the means agree by either criterion.
    pub fn holds(&self) -> bool {
        self.close || self.in_range
    }

    /// Difference of the mean over quell's runs from that over Linux's, as a percentage.
    pub fn percent(&self) -> f64 {
        (self.quell / self.linux - 1.0) * 100.0
    }
}

/// The three comparisons of a cell.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// Goodput; tolerance 2 %.
    pub goodput: Compared,
    /// Mean backlog; tolerance 15 %.
    pub backlog: Compared,
    /// 95th percentile of the backlog; tolerance 25 %.
    pub p95: Compared,
}

impl Verdict {
    /// Compares the means over quell's seeds with those over Linux's.
    pub fn new(cell: &Cell, quell: &[Measures]) -> Self {
        let compare = |f: fn(&Measures) -> f64, tolerance| {
            let all = |runs: &[Measures]| runs.iter().map(f).collect::<Vec<_>>();
            Compared::new(&all(&cell.linux), &all(quell), tolerance)
        };
        Self {
            goodput: compare(|m| m.goodput_mbit, 0.02),
            backlog: compare(|m| m.backlog_ms, BACKLOG_TOLERANCE),
            p95: compare(|m| m.p95_ms, 0.25),
        }
    }

    /// Whether all three hold.
    pub fn holds(&self) -> bool {
        self.goodput.holds() && self.backlog.holds() && self.p95.holds()
    }
}

/// Mean backlogs of Linux and quell agree, and two disciplines are tied, up to this relative
/// difference.
pub const BACKLOG_TOLERANCE: f64 = 0.15;

/// Pairs of disciplines whose order by mean backlog, under the same traffic, differs between Linux
/// and quell. Two disciplines within the tolerance of each other, in Linux or in quell, are tied:
/// neither order is wrong.
pub fn inversions<'a>(group: impl Iterator<Item = (&'a Cell, Verdict)>) -> Vec<String> {
    let group: Vec<_> = group.collect();
    let mut wrong = Vec::new();
    for (i, (a, va)) in group.iter().enumerate() {
        for (b, vb) in &group[i + 1..] {
            let (linux, quell) = (
                (va.backlog.linux, vb.backlog.linux),
                (va.backlog.quell, vb.backlog.quell),
            );
            let tied = |(x, y): (f64, f64)| (x - y).abs() <= BACKLOG_TOLERANCE * x.max(y);
            if !tied(linux) && !tied(quell) && (linux.0 < linux.1) != (quell.0 < quell.1) {
                wrong.push(format!("{} and {}", a.kind(), b.kind()));
            }
        }
    }
    wrong
}

/// Arithmetic mean.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
