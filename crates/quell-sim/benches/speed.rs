//! How many bottleneck packets a CPU-second simulates: `cargo bench -p quell-sim --bench speed [-- --json] [-- --quick]`.
//!
//! SACK TCP with everything on, probes on, ECN off, base RTT 20 ms (flow i: + i * 7 us), 2 s warm-up; process CPU time.

use std::sync::Arc;

use quell_qdisc::{MS, Nanos, SEC, US};
use quell_sim::World;
use quell_sim::scenario::{Cc, Direction, Flow, FlowKind, Link, Rate, Scenario, Shaper, Tcp};

/// Repeats of a cell, packets that each simulates, and its bounds in CPU time.
const REPEATS: usize = 5;
const PACKETS: u64 = 2_000_000;
const LEAST_S: f64 = 0.1;
const MOST_S: f64 = 0.3;

struct Cell {
    cc: &'static str,
    rate: u64,
    flows: u32,
    queue: &'static str,
    hops: usize,
}

fn scenario(cell: &Cell) -> Scenario {
    let cc = match cell.cc {
        "newreno" => Cc::NewReno,
        "cubic" => Cc::Cubic { rfc9438: false },
        "bbr" => Cc::Bbr,
        "dctcp" => Cc::Dctcp,
        _ => Cc::Prague,
    };
    let tcp = Tcp {
        cc,
        bytes: None,
        ecn: false,
        ect1: false,
        mss: 1448,
        iw: 10,
        min_rto: 200 * MS,
        rto_ns3: false,
        delack: 2,
        delack_timeout: 40 * MS,
        sack: true,
        limited_transmit: true,
        buffer: 6_000_000,
        rate: u64::MAX,
    };
    let link = Link {
        rate: Rate::Constant(cell.rate),
        delay: MS,
        shaper: Shaper::Line,
        overhead: 14,
        nic: 0,
        loss: 0.0,
        queue: cell.queue.into(),
    };
    let flow = |i: u32| Flow {
        kind: FlowKind::Tcp(tcp.clone()),
        count: 1,
        rtt: 20 * MS + Nanos::from(i) * 7 * US,
        start: 0,
        stop: None,
        stagger: 100 * MS,
        direction: Direction::Down,
        hops: (0, cell.hops as u32),
    };
    Scenario {
        name: "speed".into(),
        duration: 100_000 * SEC,
        warmup: 2 * SEC,
        seeds: 1,
        seed: 1,
        hops: vec![link.clone(); cell.hops],
        link,
        up: None,
        flows: (0..cell.flows).map(flow).collect(),
    }
}

/// Best and median over the repeats, events per packet, loss.
struct Speed {
    best: f64,
    median: f64,
    events: f64,
    loss: f64,
}

fn measure(cell: &Cell) -> Speed {
    let mut world =
        World::new(Arc::new(scenario(cell)), cell.queue, 1, None).expect("a valid scenario");
    let warm = 2 * SEC;
    world.run_until(warm);
    let (start, events) = (world.packets(), world.events());
    let mut at = warm;
    let mut speeds = Vec::new();
    for _ in 0..REPEATS {
        let before = world.packets();
        let clock = cpu_time::ProcessTime::now();
        let mut cpu = 0.0;
        while cpu < LEAST_S || world.packets() - before < PACKETS && cpu < MOST_S {
            at += SEC / 4;
            world.run_until(at);
            cpu = clock.elapsed().as_secs_f64();
        }
        speeds.push((world.packets() - before) as f64 / cpu);
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

fn main() {
    // cargo hands `--bench` on; everything else is ours.
    let json = std::env::args().any(|a| a == "--json");
    let quick = std::env::args().any(|a| a == "--quick");
    let mut cells = Vec::new();
    let rates = [10_000_000, 100_000_000, 1_000_000_000];
    for cc in ["newreno", "cubic"] {
        for flows in [1, 10, 50, 1000] {
            for rate in rates {
                cells.push(Cell {
                    cc,
                    rate,
                    flows,
                    queue: "pfifo limit 1000",
                    hops: 0,
                });
            }
        }
    }
    if !quick {
        for queue in ["codel", "pie", "fq_codel", "dualpi2"] {
            for rate in rates {
                cells.push(Cell {
                    cc: "cubic",
                    rate,
                    flows: 10,
                    queue,
                    hops: 0,
                });
            }
        }
        for flows in [1, 10, 50] {
            cells.push(Cell {
                cc: "newreno",
                rate: 100_000_000,
                flows,
                queue: "pfifo limit 1000",
                hops: 2,
            });
        }
        for cc in ["bbr", "prague"] {
            cells.push(Cell {
                cc,
                rate: 100_000_000,
                flows: 10,
                queue: "pfifo limit 1000",
                hops: 0,
            });
        }
        for rate in [1_000_000, 10_000_000_000] {
            cells.push(Cell {
                cc: "newreno",
                rate,
                flows: 10,
                queue: "pfifo limit 1000",
                hops: 0,
            });
        }
    }
    // `--only cubic/100/10` picks cells by congestion control, Mbit/s and flows.
    if let Some(only) = std::env::args().skip_while(|a| a != "--only").nth(1) {
        let name = |c: &Cell| format!("{}/{}/{}/{}", c.cc, c.rate / 1_000_000, c.flows, c.queue);
        cells.retain(|c| name(c).starts_with(&only));
    }
    let mut rows = Vec::new();
    if !json {
        println!(
            "{:8} {:>6} {:>5} {:16} {:>4} | {:>8} {:>7} {:>8} {:>7}",
            "cc", "Mbit/s", "flows", "queue", "hops", "M pkt/s", "best", "events/p", "loss"
        );
    }
    for cell in &cells {
        let Speed {
            best,
            median,
            events,
            loss,
        } = measure(cell);
        let mbps = cell.rate / 1_000_000;
        if json {
            rows.push(format!(
                "{{\"cc\":\"{}\",\"rate_mbps\":{mbps},\"flows\":{},\"queue\":\"{}\",\"hops\":{},\"packets_per_cpu_s\":{median:.0},\"best\":{best:.0}}}",
                cell.cc, cell.flows, cell.queue, cell.hops + 1
            ));
        } else {
            println!(
                "{:8} {mbps:>6} {:>5} {:16} {:>4} | {:>8.2} {:>7.2} {events:>8.2} {:>6.2}%",
                cell.cc,
                cell.flows,
                cell.queue,
                cell.hops + 1,
                median / 1e6,
                best / 1e6,
                loss * 100.0
            );
        }
    }
    if json {
        println!("[{}]", rows.join(",\n"));
    }
}
