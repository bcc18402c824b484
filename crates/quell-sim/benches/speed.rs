//! Bottleneck packets simulated per CPU-second, and other costs of the simulation:
//! `cargo bench -p quell-sim --bench speed`.
//!
//! TCP with its default options (SACK with RACK-TLP, no ECN), base RTT 20 ms (flow i: + i * 7 us),
//! 2 s warm-up, median of five repeats of at least 0.1 s of CPU time each. Options: `--quick` (the
//! plain FIFO alone), `--only cubic/100/10` (cells by congestion control, Mbit/s, flows),
//! `--scenario wifi-house` (a built-in one alone), `--json`, `--until 7` (runs the first cell once,
//! up to 7 simulated seconds, and prints its packets, for `benches/instructions`, its trace hash
//! and CPU seconds), `--slice 20` (with `--until`: stops every 20 ms), `--worlds` (worlds of 1,000
//! to 65,000 flows alone).

use std::hint::black_box;
use std::sync::Arc;

use cpu_time::ProcessTime;
use quell_link::Queue;
use quell_qdisc::Qdisc;
use quell_qdisc::outside::Handle;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS, SEC, US};
use quell_sim::World;
use quell_sim::scenario::{
    Capacity, Cc, Direction, Flow, FlowKind, Link, Overrides, Scenario, Shaper, Tcp,
};

/// Repeats of a cell, number of packets that each repeat simulates, and bounds of its CPU time, s.
const REPEATS: usize = 5;
const PACKETS: u64 = 2_000_000;
const MIN_S: f64 = 0.1;
const MAX_S: f64 = 0.3;
/// The plain queue of most cells.
const PFIFO: &str = "pfifo limit 1000";

struct Cell {
    cc: &'static str,
    mbps: u64,
    flows: u32,
    queue: &'static str,
    hops: usize,
    /// Whether the discipline runs like one from another crate.
    outside: bool,
    /// Target, million packets per CPU-second.
    bar: Option<f64>,
}

impl Cell {
    const fn new(
        cc: &'static str,
        mbps: u64,
        flows: u32,
        queue: &'static str,
        bar: Option<f64>,
    ) -> Self {
        Self {
            cc,
            mbps,
            flows,
            queue,
            hops: 0,
            outside: false,
            bar,
        }
    }

    fn name(&self) -> String {
        let Cell {
            cc,
            mbps,
            flows,
            queue,
            ..
        } = self;
        let hops = if self.hops > 0 { ", 3 hops" } else { "" };
        let from = if self.outside {
            ", from another crate"
        } else {
            ""
        };
        let s = if *flows > 1 { "s" } else { "" };
        format!("{mbps} Mbit/s, {flows} {cc} flow{s}, {queue}{hops}{from}")
    }
}

fn cells(quick: bool) -> Vec<Cell> {
    let rates = [10, 100, 1000];
    let mut cells = Vec::new();
    for cc in ["newreno", "cubic"] {
        for (flows, bar) in [(1, 12.0), (10, 12.0), (50, 12.0), (1000, 5.0)] {
            cells.extend(rates.map(|r| Cell::new(cc, r, flows, PFIFO, Some(bar))));
        }
    }
    if !quick {
        for queue in ["codel", "pie", "fq_codel", "dualpi2"] {
            cells.extend(rates.map(|r| Cell::new("cubic", r, 10, queue, Some(8.0))));
        }
        for flows in [1, 10, 50] {
            cells.push(Cell {
                hops: 2,
                ..Cell::new("newreno", 100, flows, PFIFO, Some(4.0))
            });
        }
        for queue in ["codel", "fq_codel"] {
            cells.push(Cell {
                outside: true,
                ..Cell::new("cubic", 100, 10, queue, None)
            });
        }
        let htb = "htb default 10 class 1:1 rate 100mbit class 1:10 parent 1:1 rate 100mbit";
        for queue in ["cake bandwidth 100mbit", "hush", htb, "l4s", "lfq"] {
            cells.push(Cell::new("cubic", 100, 10, queue, None));
        }
        // Cells without a bar. The last three show that the cost per packet does not grow with the
        // rate.
        cells.push(Cell::new("bbr", 100, 10, PFIFO, None));
        cells.push(Cell::new("prague", 100, 10, PFIFO, None));
        cells.extend([1, 100, 10_000].map(|r| Cell::new("newreno", r, 1, PFIFO, None)));
    }
    cells
}

fn scenario(cell: &Cell) -> Scenario {
    let cc = match cell.cc {
        "newreno" => Cc::NewReno,
        "cubic" => Cc::Cubic { rfc9438: false },
        "bbr" => Cc::Bbr,
        _ => Cc::Prague {
            rate_scaling: false,
        },
    };
    let tcp = Tcp {
        cc,
        buffer: 6_000_000,
        ..Tcp::default()
    };
    let link = Link {
        rate: Capacity::Constant(Rate::from_mbit(cell.mbps)),
        delay: Duration::from_millis(1),
        shaper: Shaper::Line,
        overhead: 14,
        framing: None,
        nic: 0,
        loss: 0.0,
        modem: None,
        modem_buffer: None,
        queue: cell.queue.into(),
    };
    let flow = |i: u32| Flow {
        kind: FlowKind::Tcp(tcp.clone()),
        count: 1,
        rtt: 20 * MS + u64::from(i) * 7 * US,
        start: Duration::ZERO,
        stop: None,
        stagger: Duration::from_millis(100),
        direction: Direction::Down,
        hops: (0, cell.hops as u32),
        ends: None,
        ..Flow::default()
    };
    Scenario {
        name: "speed".into(),
        duration: Duration::from_secs(100_000),
        warmup: Duration::from_secs(2),
        seeds: 1,
        seed: 1,
        hops: vec![link.clone(); cell.hops],
        link,
        up: None,
        wifi: None,
        flows: (0..cell.flows).map(flow).collect(),
    }
}

fn queue(cell: &Cell) -> Queue {
    let own = Queue::parse(cell.queue).expect("words");
    match cell.outside {
        false => own,
        true => Queue::outside("outside", move |rate| {
            Qdisc::<Handle>::new(own.build(rate).queue)
        })
        .expect("a name"),
    }
}

fn world(cell: &Cell, seed: u64) -> World {
    let mut world = World::builder(scenario(cell))
        .queue(queue(cell))
        .seed(seed)
        .build()
        .expect("a valid scenario");
    world.run_until(Instant::from_secs(2));
    world
}

/// `best` and `median`: million packets per CPU-second; `events` per packet; `loss`: share of
/// packets lost.
struct Speed {
    best: f64,
    median: f64,
    events: f64,
    loss: f64,
}

fn measure(cell: &Cell, from: Instant) -> Speed {
    let mut world = world(cell, 1);
    world.run_until(from);
    let (start, events) = (world.packets(), world.events());
    let mut at = world.now();
    let mut speeds = Vec::new();
    for _ in 0..REPEATS {
        let before = world.packets();
        let clock = ProcessTime::now();
        let mut cpu = 0.0;
        while cpu < MIN_S || world.packets() - before < PACKETS && cpu < MAX_S {
            at += SEC / 4;
            world.run_until(at);
            cpu = clock.elapsed().as_secs_f64();
        }
        speeds.push((world.packets() - before) as f64 / cpu / 1e6);
    }
    speeds.sort_by(f64::total_cmp);
    let packets = (world.packets() - start) as f64;
    Speed {
        best: speeds[REPEATS - 1],
        median: speeds[REPEATS / 2],
        events: (world.events() - events) as f64 / packets,
        loss: world.record(0.0).loss_rate,
    }
}

/// Million packets per CPU-second of a built-in scenario through `fq_codel`.
fn built_in(name: &str) -> f64 {
    let scenario = Scenario::load(Some(name), &Overrides::default()).expect("a built-in scenario");
    let scenario = Arc::new(scenario);
    let mut speeds: Vec<f64> = (0..REPEATS as u64)
        .map(|seed| {
            let mut world = World::builder(scenario.clone())
                .queue("fq_codel")
                .seed(seed)
                .build()
                .expect("a world");
            let clock = ProcessTime::now();
            world.run_until(Instant::ZERO + scenario.duration);
            world.packets() as f64 / clock.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    speeds.sort_by(f64::total_cmp);
    speeds[REPEATS / 2]
}

/// Costs of a world by its number of flows. Each flow has 1 Mbit/s of the link and room for one
/// packet in the queue, whatever the number of flows, so the cost per packet shows the effect of
/// the world's size.
struct Size {
    /// Million packets per CPU-second.
    speed: f64,
    /// Bytes by which the process has grown once all flows have sent, per flow (Linux; else 0).
    bytes: f64,
    /// Time to build the world, us per flow.
    build_us: f64,
}

fn size(flows: u32) -> Size {
    let cell = Cell::new("newreno", flows.into(), flows, "", None);
    let mut given = scenario(&cell);
    for (i, flow) in given.flows.iter_mut().enumerate() {
        flow.rtt = 20 * MS + (i % 1000) as u64 * 7 * US;
    }
    let queue = Queue::parse(&format!("pfifo limit {flows}")).expect("words");
    let (given, before) = (Arc::new(given), resident());
    let clock = ProcessTime::now();
    let mut world = World::builder(given)
        .queue(&queue)
        .seed(1)
        .build()
        .expect("a valid scenario");
    let build_us = clock.elapsed().as_secs_f64() * 1e6 / f64::from(flows);
    world.run_until(Instant::from_secs(2));
    let bytes = (resident() - before).max(0.0) / f64::from(flows);
    let mut speeds: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let (before, clock) = (world.packets(), ProcessTime::now());
            let mut cpu = 0.0;
            while cpu < MIN_S {
                world.run_until(world.now() + 20 * MS);
                cpu = clock.elapsed().as_secs_f64();
            }
            (world.packets() - before) as f64 / cpu / 1e6
        })
        .collect();
    speeds.sort_by(f64::total_cmp);
    Size {
        speed: speeds[REPEATS / 2],
        bytes,
        build_us,
    }
}

/// Resident memory of the process, bytes.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let field = pages.split_whitespace().nth(1).and_then(|n| n.parse().ok());
    field.unwrap_or(0.0) * 4096.0
}

/// Prints the costs of worlds of growing size.
fn worlds() {
    for flows in [1000, 10_000, 65_000] {
        let Size {
            speed,
            bytes,
            build_us,
        } = size(flows);
        let what = format!("{flows} newreno flows, 1 Mbit/s each");
        let more = format!("{bytes:.0} bytes a flow, built in {build_us:.2} us a flow");
        row(&what, speed, "M pkt/s", None, true, &more);
    }
}

/// Time to copy a running world, us.
fn clone_us(flows: u32) -> f64 {
    let world = world(&Cell::new("newreno", 100, flows, PFIFO, None), 1);
    let once = |rounds: u32| {
        let clock = ProcessTime::now();
        for _ in 0..rounds {
            black_box(world.clone());
        }
        clock.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
    };
    let rounds = (MIN_S * 1e6 / once(100)) as u32 + 1;
    let mut times: Vec<f64> = (0..REPEATS).map(|_| once(rounds)).collect();
    times.sort_by(f64::total_cmp);
    times[REPEATS / 2]
}

/// Speed-up of two threads over one for the same worlds, in wall-clock time.
fn two_threads() -> f64 {
    const WORLDS: u64 = 16;
    let work = |threads: u64| {
        let clock = std::time::Instant::now();
        std::thread::scope(|scope| {
            for t in 0..threads {
                scope.spawn(move || {
                    for seed in (t..WORLDS).step_by(threads as usize) {
                        world(&Cell::new("cubic", 100, 10, "codel", None), seed)
                            .run_until(Instant::from_secs(30));
                    }
                });
            }
        });
        clock.elapsed().as_secs_f64()
    };
    let mut ratios: Vec<f64> = (0..REPEATS).map(|_| work(1) / work(2)).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[REPEATS / 2]
}

/// One line of the table that `make bench` prints; with `least`, the bar is a lower bound.
fn row(what: &str, figure: f64, unit: &str, bar: Option<f64>, least: bool, more: &str) {
    let verdict = match bar {
        None => String::new(),
        Some(bar) if (figure >= bar) == least => format!("{bar:>6}  reached"),
        Some(bar) => format!("{bar:>6}  MISSED "),
    };
    println!("{what:<52} {figure:>8.2} {unit:<8} {verdict:<16} {more}");
}

fn main() {
    let has = |flag: &str| std::env::args().any(|a| a == flag);
    let (json, mut cells) = (has("--json"), cells(has("--quick")));
    let after = |flag: &str| std::env::args().skip_while(|a| a != flag).nth(1);
    let only = after("--only");
    if let Some(name) = after("--scenario") {
        let what = format!("scenario {name}, fq_codel");
        return row(&what, built_in(&name), "M pkt/s", None, true, "");
    }
    if has("--worlds") {
        return worlds();
    }
    if let Some(only) = &only {
        let name = |c: &Cell| format!("{}/{}/{}/{}", c.cc, c.mbps, c.flows, c.queue);
        cells.retain(|c| name(c).starts_with(only.as_str()));
    }
    if let Some(seconds) = after("--until").and_then(|s| s.parse::<f64>().ok()) {
        if let Some(cell) = cells.first() {
            let mut world = world(cell, 1);
            let end = Instant::from_nanos((seconds * SEC.as_nanos() as f64) as u64);
            let slice = after("--slice").and_then(|s| s.parse::<u64>().ok());
            let slice = slice.map_or(Duration::MAX, |ms| ms.max(1) * MS);
            let clock = ProcessTime::now();
            while world.now() < end {
                world.run_until(world.now().saturating_add(slice).min(end));
            }
            let cpu_s = clock.elapsed().as_secs_f64();
            println!("{} {:x} {cpu_s}", world.packets(), world.trace_hash());
        }
        return;
    }
    if json {
        let one = |cell: &Cell| {
            let Speed { best, median, .. } = measure(cell, Instant::ZERO);
            format!(
                "{{\"cc\":\"{}\",\"rate_mbps\":{},\"flows\":{},\"queue\":\"{}\",\"hops\":{},\"outside\":{},\"packets_per_cpu_s\":{:.0},\"best\":{:.0}}}",
                cell.cc,
                cell.mbps,
                cell.flows,
                cell.queue,
                cell.hops + 1,
                cell.outside,
                median * 1e6,
                best * 1e6
            )
        };
        let rows: Vec<String> = cells.iter().map(one).collect();
        return println!("[{}]", rows.join(",\n"));
    }
    println!("{:<52} {:>8} {:<8} {:>6}", "what", "median", "", "target");
    let mut logs = 0.0;
    for cell in &cells {
        let s = measure(cell, Instant::ZERO);
        logs += s.median.ln();
        let more = format!(
            "best {:.1}, {:.2} events a packet, loss {:.2} %",
            s.best,
            s.events,
            100.0 * s.loss
        );
        row(&cell.name(), s.median, "M pkt/s", cell.bar, true, &more);
    }
    let mean = (logs / cells.len().max(1) as f64).exp();
    row("geometric mean", mean, "M pkt/s", None, true, "");
    if only.is_none() && !has("--quick") {
        for name in ["wifi-house", "wifi-cafe"] {
            let what = format!("scenario {name}, fq_codel");
            row(&what, built_in(name), "M pkt/s", None, true, "");
        }
        let late = measure(
            &Cell::new("newreno", 100, 10, PFIFO, None),
            Instant::from_secs(2000),
        );
        row(
            "100 Mbit/s, 10 newreno flows, after 2000 s",
            late.median,
            "M pkt/s",
            None,
            true,
            "",
        );
        worlds();
        for (flows, bar) in [(1, Some(5.0)), (10, None), (1000, None)] {
            let what = format!("copy of a world with {flows} flows at 100 Mbit/s");
            row(&what, clone_us(flows), "us", bar, false, "");
        }
        row(
            "many worlds on two threads, against one",
            two_threads(),
            "times",
            Some(1.8),
            true,
            "wall clock",
        );
    }
}
