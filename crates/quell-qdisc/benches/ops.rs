//! Cost of one packet in each discipline: enqueue plus dequeue at a standing backlog, in
//! nanoseconds of process CPU time. Then the cost of a decision of LearnQueue, the median of five
//! repeats.
//!
//! `cargo bench -p quell-qdisc --bench ops [-- WORD]`: only the rows whose name contains WORD.

use std::hint::black_box;

use cpu_time::ProcessTime;
use quell_qdisc::control::Control;
use quell_qdisc::control::learnqueue::{LearnQueue, Params};
use quell_qdisc::packet::TestPacket;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS};
use quell_qdisc::{Dequeued, Discipline, DropCause, Drops, Ecn, Gauges, Labels, Qdisc, Rng};
use quell_qdisc::{cake, cobalt, codel, dualpi2, fifo, fq, fq_codel, fq_pie, hush, pie, red};

/// Counts drops. Each flow has its own source and destination address, unless `one_host` is set.
#[derive(Default)]
struct Count {
    dropped: u64,
    one_host: bool,
}

impl Drops<TestPacket> for Count {
    #[inline]
    fn drop(&mut self, _now: Instant, _packet: TestPacket, _cause: DropCause) {
        self.dropped += 1;
    }

    #[inline]
    fn labels(&self, packet: &TestPacket) -> Labels {
        let host = if self.one_host { 0 } else { packet.hash };
        Labels {
            source: host,
            destination: host,
            ..Labels::default()
        }
    }
}

/// The load: every `gap` one packet leaves and one arrives (two every tenth time with `overload`),
/// of each flow in turn.
struct Load {
    /// Packets queued at the start, and throughout without overload.
    backlog: usize,
    gap: Duration,
    flows: u32,
    ecn: Ecn,
    overload: bool,
    one_host: bool,
}

/// One measured row.
#[derive(Clone, Copy)]
struct Cost {
    ns: f64,
    dropped: f64,
}

/// Target of a row, ns, if it has one. Rows with a target have a standing backlog, and the
/// discipline's type is known at compile time.
fn bar(name: &str, what: &str) -> Option<f64> {
    match (name, what) {
        ("pfifo", "100 queued") => Some(5.0),
        ("codel" | "pie", "100 queued") => Some(8.0),
        ("fq_codel", "2048, 1024 flows") => Some(25.0),
        ("cake", "100 queued, 1 flow" | "2048, 1024 flows") => Some(60.0),
        ("learnqueue", _) => Some(100.0),
        _ => None,
    }
}

/// Hash of a flow, spread over 32 bits as in the simulator.
fn hash(flow: u32) -> u32 {
    flow.wrapping_mul(0x9e37_79b1)
}

/// CPU time per dequeued packet; the best of five.
fn measure<Q: Discipline<TestPacket> + Clone>(fresh: &Q, load: &Load) -> Cost {
    let mut best = Cost {
        ns: f64::INFINITY,
        dropped: 0.0,
    };
    for _ in 0..5 {
        let mut bed = Bed::new(fresh.clone(), load);
        bed.run(200_000, load);
        let (start, mut n) = (ProcessTime::now(), 0u32);
        let mut spent = std::time::Duration::ZERO;
        while spent < std::time::Duration::from_millis(100) {
            bed.run(200_000, load);
            n += 200_000;
            spent = start.elapsed();
        }
        let ns = spent.as_nanos() as f64 / f64::from(n);
        if ns < best.ns {
            best = Cost {
                ns,
                dropped: bed.drops.dropped as f64 / bed.id as f64,
            };
        }
    }
    best
}

struct Bed<Q> {
    q: Q,
    rng: Rng,
    drops: Count,
    /// Hashes of the flows, and the index of the next one.
    flows: Vec<u32>,
    next: usize,
    ecn: Ecn,
    now: Instant,
    id: u64,
}

impl<Q: Discipline<TestPacket>> Bed<Q> {
    /// A bed whose queue holds the load's backlog.
    fn new(q: Q, load: &Load) -> Self {
        let mut bed = Self {
            q,
            rng: Rng::new(1, "ops"),
            drops: Count {
                dropped: 0,
                one_host: load.one_host,
            },
            flows: (0..load.flows).map(hash).collect(),
            next: 0,
            ecn: load.ecn,
            now: Instant::ZERO,
            id: 0,
        };
        (0..load.backlog).for_each(|_| bed.offer());
        bed
    }

    #[inline(always)]
    fn offer(&mut self) {
        let hash = self.flows[self.next];
        self.next += 1;
        if self.next == self.flows.len() {
            self.next = 0;
        }
        let p = TestPacket::new(self.id, 1514, hash, self.ecn);
        self.id += 1;
        self.q.enqueue(self.now, p, &mut self.rng, &mut self.drops);
    }

    #[inline(never)]
    fn offer_another(&mut self) {
        self.offer();
    }

    #[inline(never)]
    fn run(&mut self, steps: u32, load: &Load) {
        for step in 0..steps {
            self.now += load.gap;
            if self.q.next_timer() <= self.now {
                self.q.on_timer(self.now);
            }
            if load.overload && step % 10 == 0 {
                self.offer_another();
            }
            self.offer();
            if let Dequeued::Packet(p) = self.q.dequeue(self.now, &mut self.rng, &mut self.drops) {
                black_box(p.id);
            }
        }
    }
}

/// Measures a discipline with its type known at compile time, and in the enum `Qdisc`.
fn both<Q>(q: Q, wrap: fn(Q) -> Qdisc<TestPacket>) -> impl Fn(&Load) -> [Cost; 2]
where
    Q: Discipline<TestPacket> + Clone,
{
    let any = wrap(q.clone());
    move |load| [measure(&q, load), measure(&any, load)]
}

/// Nanoseconds per decision of LearnQueue while packets leave, median of five repeats of a million.
fn decision(params: Params) -> f64 {
    const CALLS: u32 = 1_000_000;
    let mut ns: Vec<f64> = (0..5)
        .map(|seed| {
            let mut learner = LearnQueue::new(params.clone());
            let (mut rng, mut gauges) = (Rng::new(seed, "ops"), Gauges::default());
            let start = ProcessTime::now();
            for _ in 0..CALLS {
                gauges.arrivals += 20;
                gauges.departures += 19;
                gauges.drops_overflow += 1;
                gauges.sojourn = u64::from(learner.limit()) * MS;
                black_box(learner.decide(black_box(&gauges), &mut [], &mut rng));
            }
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    ns.sort_by(f64::total_cmp);
    ns[2]
}

/// A standing backlog that waits 4 ms, below the target of each law: the cost of packets while no
/// law acts.
fn standing(backlog: usize, flows: u32, ecn: Ecn) -> Load {
    Load {
        backlog,
        gap: 4 * MS / backlog as u64,
        flows,
        ecn,
        overload: false,
        one_host: false,
    }
}

/// 110 % of 100 Mbit/s: the law must drop one packet in eleven.
fn overload(flows: u32) -> Load {
    Load {
        backlog: 50,
        gap: Duration::from_nanos(121_120),
        flows,
        ecn: Ecn::NotEct,
        overload: true,
        one_host: false,
    }
}

/// Runs a cell of `benches/instructions`: `ops/DISCIPLINE/FLOWS`, with `110%` as FLOWS for an
/// overload. Returns the number of packets, 100,000 per second of `seconds`.
fn cell(cell: &str, seconds: f64) -> Option<u64> {
    let mut words = cell.strip_prefix("ops/")?.split('/');
    let (name, flows) = (words.next()?, words.next()?);
    let load = match flows {
        "110%" => overload(1000),
        _ => {
            let flows = flows.parse().ok()?;
            standing((2 * flows as usize).max(100), flows, Ecn::NotEct)
        }
    };
    let steps = (seconds * 1e5) as u32;
    match name {
        "fq_codel" => {
            Bed::new(fq_codel::FqCodel::new(fq_codel::Params::default()), &load).run(steps, &load)
        }
        "hush" => Bed::new(hush::Hush::new(hush::Params::default()), &load).run(steps, &load),
        _ => return None,
    }
    Some(steps.into())
}

fn main() {
    let after = |flag: &str| std::env::args().skip_while(|a| a != flag).nth(1);
    if let Some(name) = after("--only") {
        let seconds = after("--until").and_then(|s| s.parse().ok());
        if let Some(packets) = cell(&name, seconds.unwrap_or(1.0)) {
            println!("{packets}");
        }
        return;
    }
    let word = std::env::args()
        .skip(1)
        .find(|a| !a.starts_with('-'))
        .unwrap_or_default();
    let verdict = |ns: f64, bar: Option<f64>| match bar {
        None => String::new(),
        Some(bar) if ns <= bar => format!("{bar:>6}  reached"),
        Some(bar) => format!("{bar:>6}  MISSED "),
    };
    let row = |name: &str, load: &Load, what: &str, q: &dyn Fn(&Load) -> [Cost; 2]| {
        if name.contains(&word) {
            let [fixed, any] = q(load);
            let verdict = verdict(fixed.ns, bar(name, what));
            let label = format!("{name}, {what}");
            let dropped = 100.0 * any.dropped;
            println!(
                "{label:<52} {:>8.2} {:<8} {verdict:<16} in the enum {:.1}, dropped {dropped:.1} %",
                fixed.ns, "ns", any.ns
            );
        }
    };
    let single = |name: &str, ecn: Ecn, q: &dyn Fn(&Load) -> [Cost; 2]| {
        for backlog in [1, 100, 800] {
            row(
                name,
                &standing(backlog, 1, ecn),
                &format!("{backlog} queued"),
                q,
            );
        }
        row(name, &overload(1), "110 % load", q);
    };
    let (not, l4s) = (Ecn::NotEct, Ecn::Ect1);
    single(
        "pfifo",
        not,
        &both(fifo::Fifo::new(fifo::Params::default()), Qdisc::Fifo),
    );
    single(
        "codel",
        not,
        &both(codel::Codel::new(codel::Params::default()), Qdisc::Codel),
    );
    single(
        "pie",
        not,
        &both(pie::Pie::new(pie::Params::default()), Qdisc::Pie),
    );
    let params = red::Params::for_rate(Rate::from_mbit(100));
    single("red", not, &both(red::Red::new(params), Qdisc::Red));
    single(
        "cobalt",
        not,
        &both(
            cobalt::Cobalt::new(cobalt::Params::default()),
            Qdisc::Cobalt,
        ),
    );
    let q = both(
        dualpi2::DualPi2::new(dualpi2::Params::default()),
        Qdisc::DualPi2,
    );
    single("dualpi2", not, &q);
    single("dualpi2 l4s", l4s, &q);
    let fair = |name: &str, q: &dyn Fn(&Load) -> [Cost; 2]| {
        row(name, &standing(100, 1, not), "100 queued, 1 flow", q);
        row(name, &standing(100, 50, not), "100 queued, 50 flows", q);
        row(name, &standing(2048, 1024, not), "2048, 1024 flows", q);
        row(name, &overload(1024), "110 %, 1024 flows", q);
    };
    fair("fq", &both(fq::Fq::new(fq::Params::default()), Qdisc::Fq));
    fair(
        "fq_codel",
        &both(
            fq_codel::FqCodel::new(fq_codel::Params::default()),
            Qdisc::FqCodel,
        ),
    );
    fair(
        "fq_pie",
        &both(fq_pie::FqPie::new(fq_pie::Params::default()), Qdisc::FqPie),
    );
    let q = both(cake::Cake::new(cake::Params::default()), Qdisc::Cake);
    fair("cake", &q);
    // The flows of a host share its quantum, so that each of these gets two bytes per round.
    let of_one_host = Load {
        one_host: true,
        ..standing(2048, 1024, not)
    };
    row("cake", &of_one_host, "1024 flows of one host", &q);
    fair(
        "hush",
        &both(hush::Hush::new(hush::Params::default()), Qdisc::Hush),
    );
    for (what, fixed_point) in [("floating point", false), ("fixed_point", true)] {
        if "learnqueue".contains(&word) {
            let ns = decision(Params {
                arithmetic: fixed_point.into(),
                ..Params::default()
            });
            let label = format!("learnqueue, a decision, {what}");
            let verdict = verdict(ns, bar("learnqueue", what));
            println!("{label:<52} {ns:>8.2} {:<8} {verdict}", "ns");
        }
    }
}
