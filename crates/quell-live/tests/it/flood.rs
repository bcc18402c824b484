//! A flood of distinct flows through parser, link and queue, in virtual time: its cost in memory
//! and in other flows' delay. 20,000 flows here;
//! `QUELL_FLOOD=1000000 cargo test -p quell-live --test it flood -- --nocapture` for a million.

use quell_link::words::Queue;
use quell_live::header::Parser;
use quell_live::link::{Live, LiveLink, Params};
use quell_qdisc::discipline::Wants;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS, SEC, US};

const RATE: Rate = Rate::from_mbit(100);
const PARSER: Parser = Parser {
    key: (1, 2),
    tunnels: false,
    stamps: false,
    wants: Wants::NONE,
};

fn link(words: &str) -> LiveLink {
    LiveLink::new(Params::line(RATE, Queue::parse(words).unwrap()))
}

/// A UDP packet whose source address and port are those of `flow`.
fn packet(place: u32, flow: u32, bytes: u32) -> Live {
    let mut p = [0; 28];
    p[..2].copy_from_slice(&[0x45, 2]);
    p[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    p[9] = 17;
    p[12..16].copy_from_slice(&[198, 18, (flow >> 24) as u8, (flow >> 16) as u8]);
    p[16..20].copy_from_slice(&[198, 19, 0, 1]);
    p[20..22].copy_from_slice(&(flow as u16).to_be_bytes());
    Live::new(place, bytes, &PARSER.classify(&p))
}

/// A source of packets: time of the next one, interval, first flow, number of flows, size.
struct Source {
    at: Instant,
    every: Duration,
    flow: u32,
    flows: u32,
    bytes: u32,
}

/// Runs a call beside four other flows and, if given, a flood of this many flows with this interval
/// between packets. Returns the sorted delays of the call's packets, and the largest number of
/// packets held.
fn run(words: &str, flood: Option<(u32, Duration)>, span: Duration) -> (Vec<Duration>, usize) {
    const WATCHED: u32 = u32::MAX;
    let source = |flow, every: Duration, bytes| Source {
        at: Instant::from_nanos(u64::from(flow) % every.as_nanos()),
        every,
        flow,
        flows: 1,
        bytes,
    };
    // A call (200 bytes every 5 ms) beside four flows that together offer 1.2 times the rate.
    let mut sources = vec![source(WATCHED, 5 * MS, 200)];
    sources.extend((0..4).map(|k| {
        source(
            WATCHED - 1 - k,
            Rate::from_mbit(120).transmission_time(4 * 1500),
            1486,
        )
    }));
    sources.extend(flood.map(|(flows, every)| Source {
        at: Instant::ZERO,
        every,
        flow: 0,
        flows,
        bytes: 60,
    }));
    let (mut link, mut came) = (link(words), Vec::new());
    let (mut delays, mut most, mut free) = (Vec::new(), 0, Vec::new());
    let watched = packet(0, WATCHED, 200).hash;
    let end = Instant::ZERO + span;
    while let Some(next) = sources.iter_mut().min_by_key(|s| s.at) {
        let now = next.at;
        if now > end {
            break;
        }
        let flow = if next.flows > 1 {
            (next.flow + ((now - Instant::ZERO) / next.every) as u32) % next.flows
        } else {
            next.flow
        };
        let bytes = next.bytes;
        next.at += next.every;
        let place = free.pop().unwrap_or(came.len() as u32);
        if place as usize == came.len() {
            came.push(Instant::ZERO);
        }
        came[place as usize] = now;
        link.advance(now, |through, p| {
            if p.hash == watched && p.bytes == 200 {
                delays.push(through - came[p.place as usize]);
            }
            free.push(p.place);
        });
        free.extend(std::iter::from_fn(|| link.freed()));
        link.arrive(now, packet(place, flow, bytes));
        most = most.max(link.inside());
        link.forget();
    }
    delays.sort_unstable();
    (delays, most)
}

/// Resident memory, bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

#[test]
fn a_flood_of_flows_leaves_memory_bounded_and_the_delay_of_others_within_twice() {
    let flows = std::env::var("QUELL_FLOOD").map_or(20_000, |n| n.parse::<u32>().unwrap());
    // 100,000 new flows per second of one packet each: 59 of 100 Mbit/s. Then more than all of it.
    let fast = [10 * US, 5 * US];
    // `hush` serves flows by their shares, which many flows with little traffic must not distort.
    let slow = [100 * US, 50 * US];
    let queues = ["fq_codel", "cake", "fq_pie", "lfq"].map(|words| (words, fast));
    for (words, intervals) in queues.into_iter().chain([("hush", slow)]) {
        for every in intervals {
            let span = u64::from(flows) * every;
            let before = resident();
            let (calm, _) = run(words, None, span);
            let (flooded, most) = run(words, Some((flows, every)), span);
            let grown = resident().saturating_sub(before) >> 20;
            let mean = |d: &[Duration]| {
                d.iter().copied().sum::<Duration>().as_millis_f64() / d.len().max(1) as f64
            };
            let p95 = |d: &[Duration]| d.get(d.len() * 95 / 100).map_or(0.0, |d| d.as_millis_f64());
            let passed = flooded.len() as f64 / calm.len() as f64;
            println!(
                "{words}, {} flows/s: the call waits {:.3} ms calm, {:.3} ms in the flood (p95 {:.3}, {:.3}); {:.1} % of it passes; \
                 at most {most} packets held, {grown} MiB more",
                SEC / every,
                mean(&calm),
                mean(&flooded),
                p95(&calm),
                p95(&flooded),
                100.0 * passed,
            );
            assert!(most < 33_000, "{words}: {most} packets held");
            assert!(grown < 64, "{words}: {grown} MiB");
            // A flood of more than the whole rate harms all flows: no queue can tell which of them
            // are legitimate.
            if every >= 10 * US {
                assert!(passed > 0.99, "{words}: {passed}");
                assert!(mean(&flooded) < 2.0 * mean(&calm), "{words}");
            }
        }
    }
}
