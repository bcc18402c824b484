//! How many bottleneck packets a CPU-second simulates: `cargo bench -p quell-sim --bench speed [-- --json] [-- --quick]`.
//!
//! SACK TCP with everything on, probes on, ECN off, base RTT 20 ms (flow i: + i * 7 us), 2 s warm-up; process CPU time.

use std::sync::Arc;

use quell_qdisc::{MS, Nanos, SEC, US};
use quell_sim::World;
use quell_sim::scenario::{Cc, Direction, Flow, FlowKind, Link, Rate, Scenario, Shaper, Tcp};

/// Packets that a cell simulates at least, and CPU time that it takes at least.
const PACKETS: u64 = 2_000_000;
const LEAST_S: f64 = 0.1;

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

fn measure(cell: &Cell) -> (f64, f64, f64) {
    let mut world =
        World::new(Arc::new(scenario(cell)), cell.queue, 1, None).expect("a valid scenario");
    world.run_until(2 * SEC);
    let (before, events) = (world.packets(), world.events());
    let clock = cpu_time::ProcessTime::now();
    let mut at = 2 * SEC;
    let mut cpu = 0.0;
    while world.packets() - before < PACKETS || cpu < LEAST_S {
        at += SEC;
        world.run_until(at);
        cpu = clock.elapsed().as_secs_f64();
        if cpu > 3.0 && !std::env::args().any(|a| a == "--only") {
            break;
        }
    }
    let packets = (world.packets() - before) as f64;
    let g = world.record(cpu);
    (
        packets / cpu,
        (world.events() - events) as f64 / packets,
        g.loss_rate,
    )
}

fn main() {
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
            "{:8} {:>9} {:>5} {:18} {:>4} | {:>9} {:>8} {:>7}",
            "cc", "Mbit/s", "flows", "queue", "hops", "M pkt/s", "events/p", "loss"
        );
    }
    for cell in &cells {
        let (speed, events, loss) = measure(cell);
        let mbps = cell.rate / 1_000_000;
        if json {
            rows.push(format!(
                "{{\"cc\":\"{}\",\"rate_mbps\":{mbps},\"flows\":{},\"queue\":\"{}\",\"hops\":{},\"packets_per_cpu_s\":{speed:.0}}}",
                cell.cc, cell.flows, cell.queue, cell.hops + 1
            ));
        } else {
            println!(
                "{:8} {mbps:>9} {:>5} {:18} {:>4} | {:>9.2} {events:>8.2} {:>6.2}%",
                cell.cc,
                cell.flows,
                cell.queue,
                cell.hops + 1,
                speed / 1e6,
                loss * 100.0
            );
        }
    }
    if json {
        println!("[{}]", rows.join(",\n"));
    }
}
