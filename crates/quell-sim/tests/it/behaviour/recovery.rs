//! Loss recovery with and without SACK, timers, and options that the papers' simulators set
//! differently.

use quell_qdisc::Knobs;
use quell_qdisc::time::{Duration, Instant, MS};
use quell_sim::World;

use quell_link::record::Run;

use super::common::{gauges_at, measure, measure_with, ms, near, world};

fn drop_all(w: &mut World, on: bool) {
    let knobs = Knobs {
        drop: Some(f64::from(u8::from(on))),
        ..Knobs::default()
    };
    w.set_knobs(0, None, &knobs).expect("such a knob");
}

/// Drops all arrivals from `at` on until at least `count` packets are dropped. Returns their
/// number.
fn lose(w: &mut World, at: Instant, count: u64) -> u64 {
    let before = gauges_at(w, at).drops_early;
    drop_all(w, true);
    let mut now = at;
    let mut lost = 0;
    while lost < count {
        now += Duration::from_nanos(1000);
        lost = gauges_at(w, now).drops_early - before;
    }
    drop_all(w, false);
    lost
}

/// Finishes the run. Returns the completion time, ms, and the retransmissions of the first flow.
fn finish(mut w: World, end: Instant) -> (f64, u64) {
    gauges_at(&mut w, end);
    let r = w.record(0.0);
    let fct = r.flows[0].fct_ms.expect("the transfer completes");
    (fct.max, r.flows[0].retransmits)
}

/// A transfer of `segments` through a FIFO at 100 Mbit/s with a window of 30 segments.
fn transfer(segments: u32, keys: &str) -> World {
    world(&format!(
        "duration = \"100s\"\nwarmup = \"0s\"\n[link]\nrate = \"100mbit\"\nqueue = \"fifo limit 10000\"\n\
         [[flow]]\ncc = \"newreno\"\ncount = 1\nbytes = {}\nbuffer = {}\nrtt = \"100ms\"\n{keys}",
        segments * 1448,
        30 * 1448
    ))
}

#[test]
fn newreno_without_sack_repairs_one_loss_per_round_trip_and_never_times_out() {
    let (clean, _) = finish(transfer(600, "sack = false\n"), Instant::from_secs(100));
    for count in [1, 2, 4, 7] {
        let mut w = transfer(600, "sack = false\n");
        // The queue is half a round trip (50 ms) from the sender: this is in the middle of the
        // twelfth round.
        let lost = lose(&mut w, Instant::from_millis(1152), count);
        let (fct, again) = finish(w, Instant::from_secs(100));
        // A timeout would send the whole window again.
        assert_eq!(again, lost, "each lost segment again, and none besides");
        // RFC 6582: there is a partial ACK for each loss except the last. Meanwhile new data are
        // sent with half the window or less, which then grows by one each round trip.
        let rounds = (fct - clean) / 100.0;
        let (low, high) = (0.5 * lost as f64, 3.0 * lost as f64 + 8.0);
        assert!(
            (low..high).contains(&rounds),
            "{lost} lost: {rounds} round trips more"
        );
    }
}

#[test]
fn sack_repairs_many_losses_of_a_window_in_one_round_trip() {
    let (clean, _) = finish(transfer(600, ""), Instant::from_secs(100));
    let mut extra = Vec::new();
    for count in [1, 4, 10] {
        let mut w = transfer(600, "");
        let lost = lose(&mut w, Instant::from_millis(1152), count);
        let (fct, again) = finish(w, Instant::from_secs(100));
        assert_eq!(again, lost);
        extra.push((fct - clean) / 100.0);
    }
    // The window is halved once, however many packets were lost: the cost is the same within three
    // round trips.
    assert!(extra[2] - extra[0] < 3.0, "{extra:?}");
}

/// Completion time, ms, of a transfer whose only data segment is lost `times` times.
fn lone_segment(keys: &str, rtt: u64, times: u64) -> f64 {
    let mut w = world(&format!(
        "duration = \"100s\"\nwarmup = \"0s\"\n[link]\nrate = \"10mbit\"\nqueue = \"fifo\"\n\
         [[flow]]\ncount = 1\nbytes = 1448\nrtt = \"{rtt}ms\"\nsack = false\n{keys}"
    ));
    // The SYN enters the queue half a round trip after the start, the data a round trip later.
    gauges_at(&mut w, Instant::ZERO + rtt * MS * 3 / 2 - 10 * MS);
    lose(&mut w, Instant::ZERO + rtt * MS * 3 / 2 - 9 * MS, times);
    finish(w, Instant::from_secs(100)).0
}

#[test]
fn the_retransmission_timeout_follows_its_options() {
    let packets = ms(74, 10e6) + ms(1514, 10e6);
    // After one sample, rttvar is half of it: RTO = srtt + max(2 srtt, min_rto).
    for (rtt, keys, rto) in [
        (50u64, "", 250.0),
        (150, "", 450.0),
        (50, "min_rto = \"1s\"\n", 1050.0),
        (50, "min_rto = \"10ms\"\n", 150.0),
        // ns-3: max(srtt + 2 srtt, min_rto).
        (50, "min_rto = \"1s\"\nrto = \"ns3\"\n", 1000.0),
        (50, "min_rto = \"10ms\"\nrto = \"ns3\"\n", 150.0),
    ] {
        let fct = lone_segment(keys, rtt, 1);
        // The RTT sample includes the SYN's transmission time, 0.06 ms, which counts at most three
        // times.
        near(fct, 2.0 * rtt as f64 + rto + packets, 0.2);
    }
}

#[test]
fn timeouts_back_off_by_two() {
    let packets = ms(74, 10e6) + ms(1514, 10e6);
    for (times, waits) in [(1, 1.0), (2, 3.0), (3, 7.0), (5, 31.0)] {
        near(
            lone_segment("", 50, times),
            100.0 + 250.0 * waits + packets,
            0.2 * waits,
        );
    }
    // A lost SYN is sent again after one second, then after two (RFC 6298, section 2.1). The window
    // then starts at one, which is enough for one segment.
    let mut w = world(
        "duration = \"100s\"\nwarmup = \"0s\"\n[link]\nrate = \"10mbit\"\nqueue = \"fifo\"\n[[flow]]\ncount = 1\nbytes = 1448\nrtt = \"50ms\"\n",
    );
    lose(&mut w, Instant::from_millis(1), 2);
    near(
        finish(w, Instant::from_secs(100)).0,
        3000.0 + 100.0 + packets,
        1e-3,
    );
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    // Of the first window of ten segments, one is in service, seven wait, and the last two are
    // dropped.
    let run = |keys: &str| {
        let r = measure(&format!(
            "duration = \"9s\"\nwarmup = \"0s\"\n[link]\nrate = \"10mbit\"\nqueue = \"pfifo limit 7\"\n\
             [[flow]]\ncc = \"newreno\"\ncount = 1\nbytes = 14480\nrtt = \"50ms\"\n{keys}"
        ));
        assert_eq!((r.drops, r.flows[0].retransmits), (2, 2));
        r.flows[0].fct_ms.expect("a completion time").max
    };
    let packet = ms(1514, 10e6);
    // After the SYN, eight segments arrive. Two smoothed round trips and two jiffies (RFC 8985,
    // section 7.2) after the last ACK the tenth segment is sent again, and its SACK shows that the
    // ninth is lost. The smoothed RTT includes some of the eight packets' queueing.
    let wanted = |srtt: f64| 50.0 + 8.0 * packet + 50.0 + 2.0 * srtt + 2.0 + 2.0 * (50.0 + packet);
    let fct = run("");
    assert!(
        (wanted(50.0)..wanted(50.0 + 5.0 * packet)).contains(&fct),
        "{fct}"
    );
    // Without SACK there is no probe: the timeout expires, then one segment at a time is sent.
    assert!(run("sack = false\n") > 50.0 + 50.0 + 250.0 + 100.0);
}

#[test]
fn delayed_acks_follow_their_option() {
    let acks = |delack: u32| {
        let mut w = world(&format!(
            "duration = \"20s\"\nwarmup = \"0s\"\n[link]\nrate = \"10mbit\"\nqueue = \"pfifo limit 10000\"\n\
             [link.up]\nrate = \"1gbit\"\n[[flow]]\ncc = \"newreno\"\ncount = 1\nbuffer = \"128kb\"\ndelack = {delack}\n"
        ));
        gauges_at(&mut w, Instant::from_secs(20));
        w.gauges(1).arrivals as f64 / w.gauges(0).departures as f64
    };
    near(acks(1), 1.0, 0.02);
    // The last segment of each burst has PSH and is acknowledged at once.
    let (two, eight) = (acks(2), acks(8));
    assert!(
        (0.5..0.7).contains(&two) && eight < two - 0.05,
        "{two} {eight}"
    );
    // The ACK of a lone segment without PSH waits for the timer. Segments are offered singly, 100
    // ms apart, and the 16 quick ACKs are over.
    let rtt = |timeout: &str| {
        let r = measure(&format!(
            "duration = \"20s\"\nwarmup = \"10s\"\n[link]\nrate = \"100mbit\"\nqueue = \"pfifo\"\n\
             [[flow]]\ncount = 1\nrate = \"115840bit\"\nrtt = \"20ms\"\ndelack_timeout = \"{timeout}\"\nmin_rto = \"500ms\"\n"
        ));
        r.flows[0].rtt_ms.expect("a TCP flow").mean
    };
    near(rtt("40ms"), 60.0 + ms(1514, 100e6), 0.5);
    near(rtt("0ms"), 20.0 + ms(1514, 100e6), 0.5);
}

#[test]
fn the_receive_buffer_bounds_the_window() {
    for (buffer, segments) in [(1448u32, 1.0), (65_536, 45.0), (131_072, 90.0)] {
        let r = measure(&format!(
            "duration = \"20s\"\nwarmup = \"10s\"\n[link]\nrate = \"1gbit\"\nqueue = \"pfifo\"\n\
             [[flow]]\ncc = \"cubic\"\ncount = 1\nbuffer = {buffer}\nrtt = \"100ms\"\ndelack = 1\n"
        ));
        let wanted = segments * 1448.0 * 8e-6 / 0.1;
        near(r.flows[0].goodput_mbps, wanted, 0.02 * wanted);
    }
}

#[test]
fn newreno_without_sack_is_as_in_linux() {
    // Linux 7.2.12 in virtual time with tcp_sack = 0, 10 Mbit/s, 20 ms, 30 s of which 5 s are
    // warm-up: goodput in Mbit/s, mean and p95 of the backlog in ms, retransmissions.
    for (queue, count, goodput, mean, p95, again) in [
        ("pfifo limit 50", 1, 9.549, 41.0, 57.0, 14.0),
        ("pfifo limit 50", 4, 9.550, 45.9, 58.2, 206.0),
        ("codel noecn", 4, 9.531, 13.6, 21.9, 552.0),
    ] {
        let text = format!(
            "duration = \"30s\"\nwarmup = \"5s\"\n[link]\nrate = \"10mbit\"\ndelay = \"10ms\"\nshaper = \"htb\"\nqueue = \"{queue}\"\n\
             [[flow]]\ncc = \"newreno\"\ncount = {count}\nsack = false\nstagger = \"100ms\"\n\
             [[flow]]\nkind = \"cbr\"\nrate = \"13440bit\"\nsize = 84\n"
        );
        let runs: Vec<_> = (1..=4)
            .map(|seed| measure_with(&text, seed, None))
            .collect();
        let over = |one: &dyn Fn(&Run) -> f64| runs.iter().map(one).sum::<f64>() / 4.0;
        near(
            over(&|r| r.flows.iter().map(|f| f.delivered_in_order_mbps).sum()),
            goodput,
            0.02 * goodput,
        );
        near(over(&|r| r.backlog_ms.mean), mean, 0.15 * mean);
        near(over(&|r| r.backlog_ms.p95), p95, 0.25 * p95);
        let retransmits = over(&|r| r.flows.iter().map(|f| f.retransmits).sum::<u64>() as f64);
        near(retransmits, again, 0.25 * again);
    }
}

#[test]
fn a_paced_sender_forgets_losses_that_are_acknowledged_before_it_resent_them() {
    // Slow start exceeds the queue's limit by hundreds of packets; at Prague's pace some originals
    // are acknowledged before they are resent.
    for (rate, rtt) in [(10, 5), (40, 40)] {
        let run = measure(&format!(
            "duration = \"30s\"\nwarmup = \"10s\"\n[link]\nrate = \"{rate}mbit\"\nqueue = \"l4s as_published\"\n\
             delay = \"{}us\"\n[[flow]]\ncc = \"prague\"\ncount = 1\nrtt = \"{rtt}ms\"\n",
            500 * rtt
        ));
        let share = run.flows[0].goodput_mbps / f64::from(rate);
        assert!(share > 0.85, "{rate} Mbit/s, {rtt} ms: {share}");
    }
}
