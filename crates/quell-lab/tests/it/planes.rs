//! The simulator and the live plane measure alike: for the same arrivals, their records agree about
//! the queue.
use std::num::NonZeroU64;
use std::sync::atomic::AtomicBool;

use quell_link::record::{Run, Series};
use quell_link::words::{Queue, catalogue};
use quell_live::header::Class;
use quell_live::link::{Live, LiveLink, Params};
use quell_qdisc::Ecn;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant};
use quell_sim::RunOptions;
use quell_sim::scenario::{Overrides, Scenario};

/// Rate of the link, bit/s.
const RATE: u64 = 10_003_000;
/// Bytes of IP per packet, and their rate of arrival, bit/s: with 14 bytes more per packet, 4 %
/// above the link's.
const SIZE: u32 = 1473;
const OFFERED: u64 = 10_307_000;
const START: Instant = Instant::from_nanos(1_234_567);
/// Time from the sender to the queue: half of the shortest round trip.
const WAY: Duration = Duration::from_nanos(500);
/// No decision is due at this time. The simulator stops before a decision that is due at its end; a
/// live link does not.
const END: Instant = Instant::from_millis(6001);
const WARMUP: Instant = Instant::from_millis(500);
const BIN: Duration = Duration::from_millis(250);
const SEED: u64 = 7;
/// IP and UDP headers, bytes.
const HEADERS: u32 = 28;

fn simulated(queue: &str, shaper: &str, loss: f64) -> Run {
    let text = format!(
        "duration = \"6001ms\"\nwarmup = \"500ms\"\n[link]\nrate = \"{RATE}bit\"\nshaper = \"{shaper}\"\nloss = {loss}\n\
         [[flow]]\nkind = \"cbr\"\nrate = \"{OFFERED}bit\"\nsize = {SIZE}\nstart = \"{START:?}ns\"\nrtt = \"1us\"\n"
    );
    let scenario = Scenario::parse(&text, "planes", &Overrides::default()).expect("a scenario");
    let options = RunOptions {
        series_bin: Some(BIN),
        ..RunOptions::default()
    };
    let never = AtomicBool::new(false);
    quell_sim::run(&scenario, queue, SEED, &options, &never).expect("a run")
}

fn live(queue: &str, burst: Option<u32>, loss: f64) -> Run {
    let mut link = LiveLink::new(Params {
        burst,
        loss,
        seed: SEED,
        bin: NonZeroU64::new(BIN.as_nanos()).expect("a width"),
        ..Params::line(
            Rate::from_bps(RATE),
            Queue::parse(queue).expect("queue words"),
        )
    });
    let class = Class {
        hash: 7,
        ecn: Ecn::NotEct,
        payload: SIZE - HEADERS,
        ..Class::default()
    };
    let mut warm = false;
    for k in 0.. {
        let bits = u128::from(SIZE) * 8 * 1_000_000_000 * k;
        let sent = START + Duration::from_nanos((bits / u128::from(OFFERED)) as u64);
        let now = sent + WAY;
        if now > WARMUP && !warm {
            link.advance(WARMUP, |_, _| ());
            link.restart(WARMUP, false);
            warm = true;
        }
        if now >= END {
            break;
        }
        link.advance(now, |_, _| ());
        link.arrive(now, Live::new(0, SIZE, &class));
        link.advance(now, |_, _| ());
        while link.freed().is_some() {}
    }
    link.advance(END, |_, _| ());
    link.record(END)
}

/// Clears the fields that only one of the two planes fills.
fn of_the_queue(run: Run) -> Run {
    let series = run.series.map(|s| Series {
        delivered_in_order_mbps: Vec::new(),
        rtt_ms: Vec::new(),
        cwnd_packets: Vec::new(),
        ..s
    });
    Run {
        scenario: String::new(),
        delivered_in_order_mbps: None,
        flows: Vec::new(),
        jain: None,
        grade: None,
        grade_ms: None,
        aim: None,
        qoo: None,
        rtt_ms: None,
        fct_ms: None,
        events: 0,
        cpu_s: 0.0,
        packets_per_cpu_s: 0.0,
        trace_hash: String::new(),
        series,
        ..run
    }
}

#[test]
fn the_same_arrivals_make_the_same_record() {
    let kinds = catalogue().into_iter().map(|kind| kind.name.to_owned());
    let more = [
        "rlaqm guard",
        "lfq guard",
        "learnqueue dry_run",
        "pfifo limit 20",
    ];
    let queues: Vec<String> = kinds.chain(more.map(String::from)).collect();
    let mut dropped = 0;
    for queue in &queues {
        for (shaper, burst) in [("line", None), ("htb", Some(1600))] {
            for loss in [0.0, 0.02] {
                let one = of_the_queue(simulated(queue, shaper, loss));
                let other = of_the_queue(live(queue, burst, loss));
                dropped += one.drops;
                // Without probes sqm_autorate falls to a fifth of its first rate.
                let min_packets = if queue == "sqm_autorate" { 200 } else { 2000 };
                assert!(
                    one.packets > min_packets && one.sojourn_ms.mean > 0.0,
                    "{queue}"
                );
                assert!(
                    one == other,
                    "{queue}, {shaper}, loss {loss}:\n{one:?}\n{other:?}"
                );
            }
        }
    }
    assert!(dropped > 10_000, "{dropped}");
}
