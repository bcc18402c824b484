//! Links: schedules, traces, token buckets, device queues, random loss.

use std::sync::Arc;

use quell_link::trace::Trace;
use quell_qdisc::time::{Duration, Instant, SEC, US};
use quell_sim::scenario::{Capacity, Scenario};
use quell_sim::{Status, World};

use super::common::{gauges_at, measure, measure_with, near, scenario, world};

/// `packets` of 1500 bytes of IP that arrive 1.2 us apart, from time 0 on.
fn burst(packets: u64) -> String {
    let stop = packets * 1200 - 1;
    format!(
        "[[flow]]\nkind = \"cbr\"\nrate = \"10gbit\"\nsize = 1500\nrtt = \"1us\"\nstop = \"{stop}ns\"\n"
    )
}

#[test]
fn a_schedule_changes_the_rate_at_its_times() {
    let r = measure_with(
        "duration = \"9s\"\nwarmup = \"0s\"\n[link]\nschedule = [[\"0s\", \"5mbit\"], [\"3s\", \"1mbit\"], [\"6s\", \"8mbit\"]]\n\
         queue = \"pfifo limit 10\"\n[[flow]]\nkind = \"cbr\"\nrate = \"20mbit\"\nrtt = \"1us\"\n",
        1,
        Some(SEC),
    );
    let s = r.series.expect("a series");
    for (bin, mbps) in [5.0, 5.0, 5.0, 1.0, 1.0, 1.0, 8.0, 8.0, 8.0]
        .into_iter()
        .enumerate()
    {
        // A packet counts when its transmission begins, so a bin may have 12 kbit more or less.
        near(s.throughput_mbps[bin], mbps, 0.0122);
        near(s.capacity_mbps[bin], mbps, 1e-9);
    }
    near(r.capacity_mbps, 14.0 / 3.0, 1e-9);
    near(r.utilisation, 1.0, 0.001);
}

/// A scenario over a trace with opportunities at these milliseconds.
fn traced(ms: &[u64], rest: &str) -> Arc<Scenario> {
    let mut s = scenario(&format!(
        "warmup = \"0s\"\n[link]\nrate = \"1mbit\"\noverhead = 4\nqueue = \"pfifo limit 1000\"\n{rest}"
    ));
    s.link.rate = Capacity::Trace(Arc::new(Trace {
        name: "made up".into(),
        opportunities: ms.iter().copied().map(Duration::from_millis).collect(),
        period: Duration::from_millis(*ms.last().expect("an opportunity")),
    }));
    Arc::new(s)
}

fn run_traced(ms: &[u64], rest: &str) -> quell_link::record::Run {
    let s = traced(ms, rest);
    let mut w = World::builder(s.clone()).seed(1).build().expect("a world");
    while w.run_until(Instant::ZERO + s.duration) != Status::Done {}
    w.record(0.0)
}

#[test]
fn a_busy_queue_uses_every_opportunity_of_a_trace() {
    // A packet of 1504 bytes, with the overhead of 4, takes exactly one opportunity. There are four
    // in 30 ms.
    let r = run_traced(
        &[10, 20, 20, 30],
        "[[flow]]\nkind = \"cbr\"\nrate = \"9mbit\"\n",
    );
    near(r.capacity_mbps, 4.0 * 1504.0 * 8.0 / 30e3, 1e-3);
    near(r.utilisation, 1.0, 1e-3);
    // Smaller packets use all bytes of the opportunities, too.
    let r = run_traced(
        &[10, 20, 20, 30],
        "[[flow]]\nkind = \"cbr\"\nrate = \"9mbit\"\nsize = 700\n",
    );
    near(r.utilisation, 1.0, 1e-3);
}

#[test]
fn opportunities_of_a_trace_that_an_empty_queue_cannot_use_are_lost() {
    // One packet, which takes one opportunity, every 45 ms; in this time there are 6 opportunities.
    let r = run_traced(
        &[10, 20, 20, 30],
        "[[flow]]\nkind = \"cbr\"\nrate = \"266667bit\"\nsize = 1500\n",
    );
    near(r.utilisation, 1.0 / 6.0, 1e-3);
    assert_eq!(r.sojourn_ms.max, 0.0, "and none is saved up for a queue");
    // The SYN enters the queue at 0, is sent at 10 ms and answered at 23 ms; the data are sent at
    // 30 ms and acknowledged at 43 ms.
    let r = run_traced(
        &[10, 20, 20, 30],
        "[[flow]]\ncount = 1\nbytes = 1448\nrtt = \"13ms\"\n",
    );
    let fct = r.flows[0].fct_ms.expect("a completion time").max;
    // The sender starts half a round trip (6.5 ms) before the SYN enters the queue.
    near(fct, 43.0 - 6.5, 1e-9);
}

#[test]
fn a_packet_begun_keeps_its_place_in_a_trace() {
    // Packets of 904 bytes: an opportunity of 1504 bytes may send the rest of one packet and the
    // beginning of the next, and no byte between packets is lost.
    let s = traced(
        &[10],
        "[[flow]]\nkind = \"cbr\"\nrate = \"1gbit\"\nsize = 900\nrtt = \"1us\"\nstop = \"70us\"\n",
    );
    let mut w = World::builder(s.clone()).seed(1).build().expect("a world");
    // Ten arrive within 70 us; one is in service. Bytes sent up to each opportunity: 1504, 3008,
    // 4512, 6016.
    for (at, left) in [(1, 9), (11, 8), (21, 6), (31, 5), (41, 3)] {
        assert_eq!(
            gauges_at(&mut w, Instant::from_millis(at)).backlog_packets,
            left,
            "at {at} ms"
        );
    }
}

#[test]
fn a_token_bucket_lets_two_packets_pass_at_once_and_then_its_rate() {
    // 8 Mbit/s are a byte per microsecond. The bucket of 1600 bytes is not in debt before each of
    // the first two packets of 1514 bytes. The third packet waits until 3028 - 1600 bytes are paid,
    // each further packet for 1514 bytes more.
    let mut w = world(&format!(
        "duration = \"1s\"\n[link]\nrate = \"8mbit\"\nshaper = \"htb\"\nqueue = \"pfifo limit 1000\"\n{}",
        burst(20)
    ));
    assert_eq!(gauges_at(&mut w, Instant::from_micros(30)).departures, 2);
    for k in 3..20u64 {
        let due = ((k - 1) * 1514 - 1600) * US;
        assert_eq!(
            gauges_at(&mut w, Instant::ZERO + due - US).departures,
            k - 1
        );
        assert_eq!(gauges_at(&mut w, Instant::ZERO + due + US).departures, k);
    }
    // A larger bucket lets as many packets pass as it holds, and one more.
    let mut w = world(&format!(
        "duration = \"1s\"\n[link]\nrate = \"8mbit\"\nshaper = \"htb\"\nburst = 6056\nqueue = \"pfifo limit 1000\"\n{}",
        burst(20)
    ));
    assert_eq!(gauges_at(&mut w, Instant::from_micros(30)).departures, 5);
}

#[test]
fn slow_links_and_large_buckets_do_not_overflow() {
    let r = measure(
        "duration = \"20000s\"\nwarmup = \"0s\"\n[link]\nrate = \"10bit\"\nqueue = \"pfifo\"\n[[flow]]\nkind = \"cbr\"\nrate = \"100bit\"\nsize = 236\n",
    );
    // A packet of 250 bytes takes 200 s.
    assert_eq!(r.packets, 100);
    let r = measure(
        "duration = \"10s\"\nwarmup = \"0s\"\n[link]\nrate = \"10kbit\"\nshaper = \"htb\"\nburst = \"1gb\"\nqueue = \"pfifo\"\n\
         [[flow]]\nkind = \"cbr\"\nrate = \"100mbit\"\n",
    );
    assert_eq!(r.drops, 0);
    assert!(r.sojourn_ms.max == 0.0);
}

#[test]
fn the_device_queue_takes_what_fits_out_of_the_disciplines_sight() {
    // Ten packets at once: one is being sent, five are in the device queue, four in the discipline;
    // 1514 us later one place in the device queue is free.
    let mut w = world(&format!(
        "duration = \"1s\"\nwarmup = \"0s\"\n[link]\nrate = \"8mbit\"\nnic = 5\nqueue = \"pfifo limit 1000\"\n{}",
        burst(10)
    ));
    assert_eq!(
        gauges_at(&mut w, Instant::from_micros(100)).backlog_packets,
        4
    );
    assert_eq!(
        gauges_at(&mut w, Instant::from_micros(1600)).backlog_packets,
        3
    );
    let r = {
        while w.run_until(Instant::from_secs(1)) != Status::Done {}
        w.record(0.0)
    };
    assert_eq!(r.packets, 10);
    // The four in the discipline wait for 1, 2, 3 and 4 packets to be sent, less their times of
    // arrival (1.2 us apart).
    near(r.sojourn_ms.max, 4.0 * 1.514, 0.012);
    near(r.sojourn_ms.mean, 10.0 * 1.514 / 10.0, 0.012);
    // A transfer is as fast as without a device queue.
    let fct = |nic: u32| {
        let r = measure(&format!(
            "duration = \"9s\"\nwarmup = \"0s\"\n[link]\nrate = \"8mbit\"\nnic = {nic}\nqueue = \"pfifo limit 1000\"\n\
             [[flow]]\ncount = 1\nbytes = 1000000\n"
        ));
        r.flows[0].fct_ms.expect("a completion time").max
    };
    assert_eq!(fct(0), fct(20));
}

#[test]
fn random_loss_has_its_rate() {
    for shaper in ["line", "htb"] {
        let r = measure(&format!(
            "duration = \"100s\"\nwarmup = \"0s\"\n[link]\nrate = \"100mbit\"\nloss = 0.02\nshaper = \"{shaper}\"\nqueue = \"pfifo\"\n\
             [[flow]]\nkind = \"cbr\"\nrate = \"12mbit\"\n"
        ));
        // The number of lost packets is binomial, of 100,000.
        let lost = r.drops_by_cause.link as f64;
        near(lost, 2000.0, 4.0 * (1e5f64 * 0.02 * 0.98).sqrt());
        near(
            r.flows[0].goodput_mbps,
            (1e5 - lost) * 1472.0 * 8e-6 / 100.0,
            0.001,
        );
        assert_eq!((r.drops, r.loss_rate), (0, 0.0), "behind the queue");
    }
}
