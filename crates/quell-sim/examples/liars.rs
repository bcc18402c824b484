//! Effects on `pace` of far hosts and reflectors that delay their answers ("the lie"), and of a
//! stranger's flood, for the tables in SECURITY.md:
//! `cargo run --release -p quell-sim --example liars`.
//!
//! Each case runs with and without the lie. The lie starts at 40 s and lasts 40 s, unless the case
//! says otherwise; the run ends 40 s after it. The lines are the four of `quell compare autorate`
//! and one of 20 and 5 Mbit/s. Of several ways to lie, the largest effect counts. The floods are on
//! the line of 20 and 5 Mbit/s only. `--short`: two lines and one flood, for tests; `--draws N`: N
//! draws of each of the four lines; `--floods`: only the floods.

use std::any::Any;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use quell_qdisc::control::pace::Pace;
use quell_qdisc::time::{Duration, Instant, MS, SEC};
use quell_sim::World;
use quell_sim::scenario::{Overrides, Scenario};
use quell_sim::stamps::DelayAttack;

/// Start and duration of the lie, and duration of the run after it.
const BEGIN: Instant = Instant::from_secs(40);
const LASTS: Duration = Duration::from_secs(40);
const AFTER: Duration = Duration::from_secs(40);
const BIN: Duration = Duration::from_millis(100);
/// Index of the last queue of each direction: down the shaper's queue, up the modem's FIFO.
const LAST: [usize; 2] = [0, 3];
/// A rate is at the floor if it is below this share of the line's mean with the lie, and is not
/// without it.
const FLOOR: f64 = 0.15;
/// The harm is over when at least this share of the bytes carried without the lie is carried in
/// each of two successive seconds.
const RECOVERED: f64 = 0.8;

/// A line: keys of the scenario and mean rates, bit/s, down and up.
struct Line {
    keys: [String; 2],
    mean: [f64; 2],
}

impl Line {
    /// The line of 20 and 5 Mbit/s.
    fn constant() -> Self {
        Self {
            keys: ["20mbit", "5mbit"].map(|rate| format!("modem_rate = \"{rate}\"")),
            mean: [20e6, 5e6],
        }
    }

    /// A scenario whose only flows are probes. The warm-up ends when the lie or the flood begins.
    fn text(&self, queue: &str, end: Instant, reflectors: u32) -> String {
        self.with(queue, end, &probed(reflectors, reflectors, ""))
    }

    /// A scenario with these probes.
    fn with(&self, queue: &str, end: Instant, probes: &str) -> String {
        let [down, up] = &self.keys;
        format!(
            "name = \"liars\"\nduration = \"{}s\"\nwarmup = \"{}s\"\nseed = 1\n[link]\nrate = \"1gbit\"\nqueue = \"{queue}\"\n{down}\n\
             [link.up]\nqueue = \"pace\"\n{up}\n{probes}",
            end.as_secs(),
            BEGIN.as_secs()
        )
    }
}

/// A table of `count` of the `all` reflectors, with further keys.
fn probed(count: u32, all: u32, more: &str) -> String {
    let interval = 50 * all.max(4);
    match count {
        0 => String::new(),
        _ => format!(
            "[[flow]]\nkind = \"ping\"\ncount = {count}\nrtt = \"30ms\"\ninterval = \"{interval}ms\"\n{more}"
        ),
    }
}

fn lines(draws: u32, short: bool) -> Vec<Line> {
    let drawn = [
        ("starlink", 60e6, 10e6),
        ("docsis", 40e6, 10e6),
        ("lte", 12e6, 6e6),
        ("powerline", 30e6, 15e6),
    ];
    let drawn = drawn
        .into_iter()
        .filter(|(name, ..)| !short || *name == "docsis");
    let drawn = drawn.flat_map(|(name, down, up)| {
        (401..401 + draws).map(move |seed| Line {
            keys: ["", "-up"].map(|way| format!("modem_trace = \"builtin:{name}{way}:{seed}\"")),
            mean: [down, up],
        })
    });
    std::iter::once(Line::constant()).chain(drawn).collect()
}

/// Reflectors and hosts, and how many of them lie.
struct Case {
    name: &'static str,
    reflectors: u32,
    liars: u32,
    /// Number of honest hosts, of hosts that lie, and of connections to each of the latter.
    hosts: u32,
    lying: u32,
    connections: u32,
    /// Whether hosts are 1 ms away and only send downloads: the segments that an ACK releases
    /// follow it by less than a packet's time.
    near: bool,
    /// Whether honest hosts are sent only two segments a second, while datagrams (as of QUIC) take
    /// half of the mean rate down, or honest reflectors answer only one request in ten.
    seldom: bool,
    /// Whether hosts that lie leave at the end of the lie; from then on there are only datagrams,
    /// which fill both directions.
    leaves: bool,
    /// Duration of the lie.
    lasts: Duration,
}

const fn reflectors(name: &'static str, reflectors: u32, liars: u32) -> Case {
    Case {
        name,
        reflectors,
        liars,
        hosts: 2,
        lying: 0,
        connections: 1,
        near: false,
        seldom: false,
        leaves: false,
        lasts: LASTS,
    }
}

const fn peers(name: &'static str, hosts: u32, lying: u32, connections: u32) -> Case {
    Case {
        name,
        reflectors: 0,
        liars: 0,
        hosts,
        lying,
        connections,
        near: false,
        seldom: false,
        leaves: false,
        lasts: LASTS,
    }
}

const CASES: &[Case] = &[
    reflectors("1 of 6 reflectors", 6, 1),
    reflectors("1 of 3 reflectors", 3, 1),
    Case {
        seldom: true,
        ..reflectors("1 of 3 reflectors, the others answer rarely", 3, 1)
    },
    reflectors("1 of 2 reflectors", 2, 1),
    reflectors("2 of 6 reflectors", 6, 2),
    reflectors("2 of 3 reflectors", 3, 2),
    reflectors("3 of 6 reflectors", 6, 3),
    reflectors("the only reflector", 1, 1),
    peers("1 of 3 TCP peers", 2, 1, 1),
    peers("1 of 5 TCP peers", 4, 1, 1),
    peers("1 of 3 TCP peers, 300 connections", 2, 1, 300),
    Case {
        near: true,
        ..peers("1 of 3 TCP peers, near, downloads alone", 2, 1, 1)
    },
    Case {
        near: true,
        ..peers("1 of 2 TCP peers, near, downloads alone", 1, 1, 1)
    },
    peers("1 of 2 TCP peers", 1, 1, 1),
    peers("2 of 4 TCP peers", 2, 2, 1),
    peers("2 of 3 TCP peers", 1, 2, 1),
    Case {
        seldom: true,
        ..peers("2 of 12 TCP peers, the others answer rarely", 10, 2, 1)
    },
    peers("the only TCP peer, or an attacker on the path", 0, 1, 4),
    Case {
        lasts: Duration::from_secs(180),
        ..peers("the same, for 180 s", 0, 1, 4)
    },
    Case {
        leaves: true,
        lasts: Duration::from_secs(4),
        ..peers("the only TCP peer, for 4 s; then it leaves", 0, 1, 2)
    },
];

impl Case {
    fn attack_span(&self) -> (Instant, Instant) {
        (BEGIN, BEGIN + self.lasts)
    }

    fn end(&self) -> Instant {
        BEGIN + self.lasts + AFTER
    }

    fn scenario(&self, line: &Line) -> Scenario {
        let (all, honest) = (self.reflectors, self.reflectors - self.liars);
        let probes = match self.seldom {
            true => probed(self.liars, all, "") + &probed(honest, all, "loss = 0.9\n"),
            false => probed(all, all, ""),
        };
        let mut text = line.with("pace ingress", self.end(), &probes);
        let (rtt, near) = (if self.near { 1 } else { 30 }, self.near);
        let mut flows = |host: String, downloads: u32, uploads: u32, more: &str| {
            let uploads = if near { 0 } else { uploads };
            for (kind, count) in [("download", downloads), ("upload", uploads)] {
                text += &match count {
                    0 => String::new(),
                    _ => format!(
                        "[[flow]]\nkind = \"{kind}\"\ncount = {count}\nrtt = \"{rtt}ms\"\nstagger = \"1s\"\n\
                         to_host = \"{host}\"\n{more}\n"
                    ),
                };
            }
        };
        for host in 0..self.hosts {
            let name = format!("honest {host}");
            match self.seldom && self.reflectors == 0 {
                true => flows(name, 0, 1, "rate = \"24kbit\""),
                false => flows(name, if near { 5 } else { 2 }, 1, ""),
            }
        }
        let slow = "rate = \"4kbit\"";
        let stop = format!("stop = \"{}ms\"", self.attack_span().1.as_millis());
        let more = match self.leaves {
            true => &stop,
            false if self.connections > 10 => slow,
            false => "",
        };
        for host in 0..self.lying {
            let count = self.connections;
            flows(format!("liar {host}"), count, count.min(10), more);
        }
        if self.leaves {
            let start = self.attack_span().1.as_millis();
            for (direction, rate) in ["down", "up"].iter().zip(line.mean) {
                text += &format!(
                    "[[flow]]\nkind = \"cbr\"\nrate = \"{rate}bit\"\ndirection = \"{direction}\"\nstart = \"{start}ms\"\n"
                );
            }
        }
        if self.seldom && self.reflectors == 0 {
            let rate = line.mean[0] / 2.0;
            text += &format!("[[flow]]\nkind = \"cbr\"\nrate = \"{rate}bit\"\n");
        }
        scenario(&text)
    }

    /// The ways to lie that are tried.
    fn lies(&self) -> Vec<DelayAttack> {
        let of = |hold, growth, batch| DelayAttack {
            reflectors: self.liars,
            hosts: (0..self.lying).map(|host| format!("liar {host}")).collect(),
            span: self.attack_span(),
            hold: hold * MS,
            growth: growth * MS,
            batch,
            pulse: (Duration::ZERO, Duration::ZERO),
        };
        match self.liars {
            0 => vec![of(30, 0, 0), of(260, 25, 0), of(600, 0, 0)],
            _ => vec![
                of(30, 0, 0),
                of(300, 0, 0),
                of(260, 25, 0),
                of(100, 0, 2),
                of(30, 0, 4),
            ],
        }
    }
}

/// For each direction: the rate in force, bit/s, and the bytes carried so far, every [`BIN`].
type Course = [Vec<(f64, u64)>; 2];

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "liars", &Overrides::default()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn world(scenario: &Scenario, attack: Option<DelayAttack>) -> World {
    let mut world = World::builder(scenario.clone())
        .seed(1)
        .build()
        .unwrap_or_else(|e| panic!("{e}"));
    if let Some(attack) = attack {
        world.start_attack(attack);
    }
    world
}

fn course(world: &mut World, end: Instant) -> Course {
    let mut course = [Vec::new(), Vec::new()];
    let mut now = Instant::ZERO;
    while now + BIN <= end {
        now += BIN;
        world.run_until(now);
        for (way, course) in course.iter_mut().enumerate() {
            let controller = world.controller(way).map(|c| c as &dyn Any);
            let rate = controller
                .and_then(|c| c.downcast_ref::<Pace>())
                .map_or(f64::NAN, Pace::rate_bps);
            course.push((rate, world.gauges(LAST[way]).departed_bytes));
        }
    }
    course
}

/// Bytes carried between two times.
fn carried(course: &[(f64, u64)], from: Instant, to: Instant) -> f64 {
    let at = |time: Instant| course[((time - Instant::ZERO) / BIN) as usize - 1].1;
    (at(to) - at(from)) as f64
}

/// The effect of a lie on one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Harm {
    /// Share of the bytes carried without the lie that is missing while it lasts.
    cost: f64,
    /// Longest time at the floor, and time from the end of the lie until the harm is over, s.
    floor: f64,
    after: f64,
    /// Share that is missing in the last 10 s.
    left: f64,
}

impl Harm {
    fn of(case: &Case, line: &Line, way: usize, honest: &Course, lied: &Course) -> Self {
        let (begin, end) = case.attack_span();
        let (honest, lied) = (&honest[way], &lied[way]);
        let share = |from, to| 1.0 - carried(lied, from, to) / carried(honest, from, to);
        let (mut longest, mut now) = (0, 0);
        for (one, other) in honest.iter().zip(lied) {
            let low = |rate: f64| rate < FLOOR * line.mean[way];
            now = if low(other.0) && !low(one.0) {
                now + 1
            } else {
                0
            };
            longest = longest.max(now);
        }
        let seconds = (end.as_secs()..case.end().as_secs() - 2).find(|second| {
            (0..2).all(|k| {
                let (from, to) = (
                    Instant::from_secs(second + k),
                    Instant::from_secs(second + k + 1),
                );
                carried(lied, from, to) >= RECOVERED * carried(honest, from, to)
            })
        });
        Self {
            cost: share(begin, end),
            floor: longest as f64 * BIN.as_nanos() as f64 / SEC.as_nanos() as f64,
            after: seconds.unwrap_or(case.end().as_secs()) as f64 - end.as_secs() as f64,
            left: share(case.end() - 10 * SEC, case.end()),
        }
    }

    /// The larger of both values of each field.
    fn and(self, other: Self) -> Self {
        Self {
            cost: self.cost.max(other.cost),
            floor: self.floor.max(other.floor),
            after: self.after.max(other.after),
            left: self.left.max(other.left),
        }
    }
}

/// The largest effect of any way to lie, for each direction. The effect of one way to lie is its
/// mean cost over all lines, and the maximum over all lines of the other values.
fn judge(case: &Case, lines: &[Line]) -> [Harm; 2] {
    let courses: Vec<_> = lines
        .iter()
        .map(|line| {
            let scenario = case.scenario(line);
            let lied = case
                .lies()
                .into_iter()
                .map(|lie| course(&mut world(&scenario, Some(lie)), case.end()));
            (
                course(&mut world(&scenario, None), case.end()),
                lied.collect::<Vec<_>>(),
            )
        })
        .collect();
    [0, 1].map(|way| {
        let ways_to_lie = (0..case.lies().len()).map(|lie| {
            let each: Vec<_> = lines
                .iter()
                .zip(&courses)
                .map(|(line, (honest, lied))| Harm::of(case, line, way, honest, &lied[lie]))
                .collect();
            let worst = each
                .iter()
                .fold(Harm::default(), |one, other| one.and(*other));
            Harm {
                cost: each.iter().map(|harm| harm.cost).sum::<f64>() / each.len() as f64,
                ..worst
            }
        });
        ways_to_lie.fold(
            Harm {
                cost: f64::NEG_INFINITY,
                ..Harm::default()
            },
            Harm::and,
        )
    })
}

/// A stranger's datagrams, a Poisson process that does not slow down, in the first `on` of every
/// `each` seconds.
struct Flood {
    name: &'static str,
    mbps: u32,
    on: u64,
    each: u64,
    /// Number of the streams whose bytes are counted, and rate of each, kbit/s.
    streams: (u32, u32),
}

const fn flood(name: &'static str, mbps: u32, on: u64, each: u64) -> Flood {
    Flood {
        name,
        mbps,
        on,
        each,
        streams: (5, 1000),
    }
}

const FLOODS: &[Flood] = &[
    flood("16 Mbit/s for 4 of 12 s", 16, 4, 12),
    flood("16 Mbit/s for 8 of 16 s", 16, 8, 16),
    flood("16 Mbit/s for 30 of 40 s", 16, 30, 40),
    flood("25 Mbit/s throughout", 25, 240, 240),
    Flood {
        streams: (3, 7500),
        ..flood("none; three streams of 7.5 Mbit/s", 0, 0, 240)
    },
    Flood {
        streams: (2, 4000),
        ..flood(
            "16 Mbit/s for 30 of 40 s; two streams of 4 Mbit/s",
            16,
            30,
            40,
        )
    },
    Flood {
        streams: (2, 4000),
        ..flood(
            "16 Mbit/s for 8 of 16 s; two streams of 4 Mbit/s",
            16,
            8,
            16,
        )
    },
];

impl Flood {
    const LASTS: Duration = Duration::from_secs(240);

    /// The share of the streams' bytes that arrives during the flood, beside a download, and the
    /// lowest rate in force, bit/s.
    fn harm(&self, queue: &str, reflectors: u32) -> [f64; 2] {
        let end = BEGIN + Self::LASTS;
        let (count, kbps) = self.streams;
        let mut text = Line::constant().text(queue, end, reflectors);
        text += &format!(
            "[[flow]]\nname = \"streams\"\nkind = \"cbr\"\nrate = \"{kbps}kbit\"\nsize = 1200\nrtt = \"30ms\"\ncount = {count}\n\
             [[flow]]\nkind = \"download\"\nrtt = \"30ms\"\n"
        );
        let starts = (BEGIN.as_secs()..end.as_secs()).step_by(self.each as usize);
        for start in starts.filter(|_| self.mbps > 0) {
            text += &format!(
                "[[flow]]\nkind = \"poisson\"\nrate = \"{}mbit\"\nstart = \"{start}s\"\nstop = \"{}s\"\n",
                self.mbps,
                start + self.on
            );
        }
        let mut world = world(&scenario(&text), None);
        let [course, _] = course(&mut world, end);
        let rates = course.iter().skip(((BEGIN - Instant::ZERO) / BIN) as usize);
        let run = world.record(0.0);
        let streams = run.flows.iter().filter(|flow| flow.name == "streams");
        [
            streams.map(|flow| flow.goodput_mbps).sum::<f64>() * 1e3 / f64::from(count * kbps),
            rates.map(|(rate, _)| *rate).fold(f64::INFINITY, f64::min),
        ]
    }

    /// The flood's row of the table.
    fn row(&self) -> String {
        let [[six, six_rate], [none, none_rate], [fifo, _]] =
            [("pace ingress", 6), ("pace ingress", 0), ("pfifo", 6)]
                .map(|(queue, reflectors)| self.harm(queue, reflectors));
        format!(
            "| {} | {:.0} % | {:.1} Mbit/s | {:.0} % | {:.1} Mbit/s | {:.0} % |",
            self.name,
            six * 100.0,
            six_rate / 1e6,
            none * 100.0,
            none_rate / 1e6,
            fifo * 100.0
        )
    }
}

/// Applies a function to each element, on all processors. Results are in the order of the elements.
fn map<T: Sync, R: Send>(of: &[T], apply: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((place, one)) = of
                    .iter()
                    .enumerate()
                    .nth(next.fetch_add(1, Ordering::Relaxed))
                {
                    let result = apply(one);
                    if let Ok(mut found) = found.lock() {
                        found.push((place, result));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, result)| result).collect()
}

/// Prints the table of lies.
fn print_lies(lines: &[Line]) {
    println!(
        "| who lies | down: cost | at the floor | after the end | up: cost | at the floor | after the end |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut left = String::new();
    for (case, harm) in CASES.iter().zip(map(CASES, |case| judge(case, lines))) {
        let cells = harm.each_ref().map(|harm| {
            format!(
                "{:.0} % | {:.1} s | {:.0} s",
                (harm.cost * 100.0).max(0.0),
                harm.floor,
                harm.after
            )
        });
        println!("| {} | {} |", case.name, cells.join(" | "));
        if case.leaves {
            let [down, up] = harm;
            left = format!(
                "\n{}: {:.0} s after it the worst line carries {:.0} % down and {:.0} % up of what it would have carried.",
                case.name,
                AFTER.as_nanos() as f64 / SEC.as_nanos() as f64,
                (1.0 - down.left) * 100.0,
                (1.0 - up.left) * 100.0
            );
        }
    }
    println!("{left}\n");
}

/// Prints the table of floods.
fn print_floods(floods: &[Flood]) {
    println!(
        "| flood | six reflectors: comes through | lowest rate | none: comes through | lowest rate | plain FIFO |"
    );
    println!("|---|---|---|---|---|---|");
    for row in map(floods, Flood::row) {
        println!("{row}");
    }
}

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let short = given.iter().any(|word| word == "--short");
    let draws = given.iter().skip_while(|word| *word != "--draws").nth(1);
    if !given.iter().any(|word| word == "--floods") {
        print_lies(&lines(
            draws.and_then(|text| text.parse().ok()).unwrap_or(1),
            short,
        ));
    }
    print_floods(if short { &FLOODS[..1] } else { FLOODS });
    ExitCode::SUCCESS
}
