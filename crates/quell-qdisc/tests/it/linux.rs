//! The same flood through Linux 7.2.12's queue disciplines and through quell's.
//!
//! The flood does not respond to drops, so results differ only by the disciplines. It is one UDP
//! sender of 20 Mbit/s and three of 1 Mbit/s (payload, 1472 bytes a packet, 1514 on the wire) and
//! one ping a second, on a link of 10 Mbit/s, for 20 s, of which the first five are left out.
//! Linux's figures are the mean of three seeds, measured in virtual time (User-Mode Linux, HZ 1000,
//! HTB with burst 1600 over the discipline, cake with its own shaper). As on that Linux, the
//! discipline is made 0.2 s before the first packet; PIE's clock starts then.

use quell_qdisc::disciplines::Params;
use quell_qdisc::packet::TestPacket;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS, NEVER, SEC};
use quell_qdisc::{
    Dequeued, Discipline, DropCause, Ecn, Qdisc, Rng, cake, codel, dualpi2, fifo, fq, fq_codel,
    fq_pie, pie,
};

const RATE: Rate = Rate::from_mbit(10);
const START: Instant = Instant::from_millis(200);
const WARM: Instant = Instant::from_millis(5_200);
const END: Instant = Instant::from_millis(20_200);

struct Source {
    next: Instant,
    gap: Duration,
    len: u32,
    hash: u32,
}

fn sources() -> [Source; 5] {
    let udp = |mbit: u64, hash| Source {
        next: START,
        gap: Duration::from_nanos(1472 * 8 * 1000 / mbit),
        len: 1514,
        hash,
    };
    let ping = Source {
        next: START + MS,
        gap: SEC,
        len: 98,
        hash: 0xdead_beef,
    };
    [
        udp(20, 0x1234_5678),
        udp(1, 0x3c6e_f372),
        udp(1, 0xdaa6_6d2b),
        udp(1, 0x78dd_e6e4),
        ping,
    ]
}

/// Results after the first five seconds.
#[derive(Debug, Default)]
struct Seen {
    /// Packets dropped.
    drops: f64,
    /// Mean backlog, packets.
    mean: f64,
    /// 95th percentile of the backlog, packets.
    p95: f64,
    /// Goodput of the flood, Mbit/s.
    flood: f64,
}

/// Runs the flood through a discipline, event by event: timers, departures, a sample of the backlog
/// each millisecond, arrivals.
fn run(mut q: Qdisc<TestPacket>, seed: u64) -> Seen {
    let mut rng = Rng::new(seed, "linux");
    let mut drops: Vec<(TestPacket, DropCause)> = Vec::new();
    let mut sources = sources();
    let flood = sources[0].hash;
    let (mut free, mut sample) = (Instant::ZERO, WARM);
    let mut samples = Vec::new();
    let mut seen = Seen::default();
    loop {
        let departure = if q.is_empty() { NEVER } else { free };
        let arrival = (0..5).min_by_key(|&i| sources[i].next).unwrap_or(0);
        let next = sources[arrival].next;
        let now = next.min(departure).min(sample).min(q.next_timer());
        if now >= END {
            break;
        }
        if now == q.next_timer() {
            q.on_timer(now);
        } else if now == departure {
            match q.dequeue(now, &mut rng, &mut drops) {
                Dequeued::Packet(p) => {
                    free = now + RATE.transmission_time(p.len.into());
                    if p.hash == flood && now >= WARM {
                        seen.flood += 1472.0 * 8.0 / 15e6;
                    }
                }
                Dequeued::NotBefore(time) => free = time,
                Dequeued::Empty => {}
            }
        } else if now == sample {
            samples.push(q.len());
            sample += MS;
        } else {
            let s = &mut sources[arrival];
            s.next += s.gap;
            let packet = TestPacket::new(0, s.len, s.hash, Ecn::NotEct);
            q.enqueue(now, packet, &mut rng, &mut drops);
            free = free.max(now);
        }
        if now >= WARM {
            seen.drops += drops.len() as f64;
        }
        drops.clear();
    }
    samples.sort_unstable();
    seen.mean = samples.iter().sum::<usize>() as f64 / samples.len() as f64;
    seen.p95 = samples[samples.len() * 95 / 100] as f64;
    seen
}

/// Checks that the means over the seeds are within `share` of Linux's drops, mean and p95 backlog
/// (packets) and the flood's goodput.
fn like_linux(params: Params, seeds: u64, linux: [f64; 4], share: f64) {
    let q: Qdisc<TestPacket> = Qdisc::new(params);
    let mut sum = [0.0; 4];
    for seed in 0..seeds {
        let s = run(q.clone(), seed);
        for (sum, value) in sum.iter_mut().zip([s.drops, s.mean, s.p95, s.flood]) {
            *sum += value / seeds as f64;
        }
    }
    // Drops follow from the rates if the backlog is steady, so their tolerance is smaller.
    for (i, (ours, linux)) in sum.iter().zip(linux).enumerate() {
        let share = if i == 0 { share.min(0.02) } else { share };
        let near = (ours - linux).abs() <= (share * linux).max(if i == 2 { 2.0 } else { 0.0 });
        assert!(
            near,
            "drops, mean, p95, goodput: {sum:?}, Linux {linux:?} at {i}"
        );
    }
}

#[test]
fn pfifo() {
    let q = Params::Fifo(fifo::Params::default());
    // Which flow finds a place in a full FIFO depends on the phases of arrivals: shares differ most
    // here.
    like_linux(q, 1, [16_928.0, 999.767, 1000.0, 8.84], 0.15);
}

#[test]
fn codel() {
    let q = Params::Codel(codel::Params::default());
    like_linux(q, 1, [16_932.0, 999.243, 1000.0, 8.611], 0.15);
}

#[test]
fn pie() {
    let q = Params::Pie(pie::Params::default());
    like_linux(q, 8, [16_911.0, 7.37, 20.7, 8.641], 0.1);
}

#[test]
fn dualpi2() {
    let q = Params::DualPi2(dualpi2::Params::default());
    like_linux(q, 8, [16_914.0, 29.617, 48.3, 8.46], 0.05);
}

#[test]
fn fq() {
    let q = Params::Fq(fq::Params::default());
    like_linux(q, 1, [16_914.0, 99.99, 101.0, 6.722], 0.01);
}

fn noecn(limit: u32) -> Params {
    Params::FqCodel(fq_codel::Params {
        limit,
        codel: codel::Params::default(),
        ..fq_codel::Params::default()
    })
}

#[test]
fn fq_codel() {
    like_linux(
        noecn(10_240),
        1,
        [11_711.0, 9014.968, 10_232.0, 6.722],
        0.01,
    );
}

#[test]
fn fq_codel_at_a_limit_that_batches_hold() {
    like_linux(noecn(500), 1, [16_907.0, 399.819, 494.0, 6.722], 0.02);
}

#[test]
fn fq_pie() {
    let q = Params::FqPie(fq_pie::Params::default());
    like_linux(q, 8, [16_907.0, 2.949, 10.3, 6.722], 0.2);
}

#[test]
fn cake() {
    let q = Params::Cake(cake::Params {
        bandwidth: cake::Bandwidth::Shaped(RATE),
        ..cake::Params::default()
    });
    // BLUE's random draws decide when the flood's backlog starts to fall; Linux's own seeds differ
    // by 12 %.
    like_linux(q, 16, [18_585.0, 428.2, 1564.0, 6.722], 0.2);
}
