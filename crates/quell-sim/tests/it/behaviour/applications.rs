//! Sources and applications: what they send, when they start and stop, and their results.

use super::common::{gauges_at, measure, measure_with, ms, near, ns, world};
use quell_qdisc::time::{Duration, Instant, MS, SEC};

/// A fast link with a large FIFO, which does not limit a source.
const FAST: &str = "warmup = \"0s\"\n[link]\nrate = \"1gbit\"\nqueue = \"pfifo limit 10000\"\n";

#[test]
fn a_constant_rate_is_exact() {
    // 1000 bytes of IP at 3 Mbit/s: one packet every 8/3 ms. The first one reaches the queue half a
    // round trip (10 ms) after the start.
    let mut w = world(&format!(
        "duration = \"30s\"\n{FAST}[[flow]]\nkind = \"cbr\"\nrate = \"3mbit\"\nsize = 1000\nrtt = \"20ms\"\n"
    ));
    for seconds in [1, 7, 29] {
        let sent = gauges_at(&mut w, Instant::from_millis(10) + seconds * SEC).arrivals;
        // One more packet arrives at this instant, after the gauges are read.
        assert_eq!(sent, seconds * 375, "after {seconds} s");
        assert_eq!(
            gauges_at(
                &mut w,
                Instant::from_millis(10) + seconds * SEC + Duration::from_nanos(1)
            )
            .arrivals,
            sent + 1
        );
    }
}

#[test]
fn poisson_traffic_has_its_rate_and_exponential_sizes_their_spread() {
    let w = |size: &str| {
        let mut w = world(&format!(
            "duration = \"100s\"\n{FAST}[[flow]]\nkind = \"poisson\"\nrate = \"8mbit\"\nsize = {size}\n"
        ));
        gauges_at(&mut w, Instant::from_secs(100))
    };
    // 1000 packets a second for 100 s: the standard deviation of a Poisson count is the root of its
    // mean.
    let fixed = w("1000");
    near(fixed.arrivals as f64, 1e5, 4.0 * 1e5f64.sqrt());
    assert_eq!(fixed.departed_bytes, fixed.departures * 1014);
    let spread = w("\"exp:1000\"");
    near(spread.arrivals as f64, 1e5, 4.0 * 1e5f64.sqrt());
    let mean = spread.departed_bytes as f64 / spread.departures as f64 - 14.0;
    // The standard deviation of an exponential distribution is its mean. Packets have at least 28
    // bytes, and bytes are rounded down: 1000 - 0.5 + 0.4.
    near(mean, 999.9, 4.0 * 1000.0 / 1e5f64.sqrt());
}

#[test]
fn exponential_sizes_are_memoryless() {
    // M/M/1 at load 0.5: the mean wait is one service time, here 8 ms; with constant sizes (M/D/1)
    // it is half of that.
    let run = |size: &str| {
        measure(&format!(
            "duration = \"2000s\"\n[link]\nrate = \"1mbit\"\noverhead = 0\nqueue = \"pfifo limit 10000\"\n\
             [[flow]]\nkind = \"poisson\"\nrate = \"500kbit\"\nsize = {size}\n"
        ))
    };
    near(run("\"exp:1000\"").sojourn_ms.mean, 8.0, 0.4);
    near(run("1000").sojourn_ms.mean, 4.0, 0.2);
}

#[test]
fn on_off_phases_have_their_mean_gaps() {
    let mut w = world(&format!(
        "duration = \"400s\"\n{FAST}[[flow]]\nkind = \"onoff\"\non = \"1s\"\noff = \"1s\"\ngap_on = \"1ms\"\ngap_off = \"10ms\"\nrtt = \"1us\"\n"
    ));
    let (mut on, mut off, mut before) = (0, 0, 0);
    for second in 0..400 {
        let count = gauges_at(&mut w, Instant::ZERO + (second + 1) * SEC).arrivals;
        *if second % 2 == 0 { &mut on } else { &mut off } += count - before;
        before = count;
    }
    near(f64::from(on as u32), 2e5, 4.0 * 2e5f64.sqrt());
    near(f64::from(off as u32), 2e4, 4.0 * 2e4f64.sqrt());
}

#[test]
fn on_off_phases_may_be_shorter_than_their_gaps() {
    // In a phase of 2 ms, the mean number of packets is 2 if the mean gap is 1 ms, and 0.1 if it is
    // 20 ms: 525 packets a second.
    let mut w = world(&format!(
        "duration = \"200s\"\n{FAST}[[flow]]\nkind = \"onoff\"\non = \"2ms\"\noff = \"2ms\"\ngap_on = \"1ms\"\ngap_off = \"20ms\"\n"
    ));
    let count = gauges_at(&mut w, Instant::from_secs(200)).arrivals as f64;
    near(count, 105_000.0, 4.0 * 105_000f64.sqrt());
    // Most cycles have no packet: the mean gap is 10 s.
    let mut w = world(&format!(
        "duration = \"20000s\"\n{FAST}[[flow]]\nkind = \"onoff\"\non = \"2ms\"\noff = \"2ms\"\ngap_on = \"10s\"\ngap_off = \"10s\"\n"
    ));
    let count = gauges_at(&mut w, Instant::from_secs(20_000)).arrivals as f64;
    near(count, 2000.0, 4.0 * 2000f64.sqrt());
}

#[test]
fn datagrams_with_ecn_are_marked_where_others_are_dropped() {
    let run = |ecn: bool| {
        measure(&format!(
            "duration = \"5s\"\nwarmup = \"0s\"\n[link]\nrate = \"10mbit\"\nqueue = \"codel ecn limit 100000\"\n\
             [[flow]]\nkind = \"cbr\"\nrate = \"11mbit\"\necn = {ecn}\n"
        ))
    };
    let (with, without) = (run(true), run(false));
    assert!(with.marks > 20 && with.drops == 0, "{}", with.marks);
    assert!(
        without.marks == 0 && without.drops > 20,
        "{}",
        without.drops
    );
}

#[test]
fn an_application_limited_sender_delivers_what_is_offered() {
    let r = measure(
        "duration = \"30s\"\nwarmup = \"2s\"\n[link]\nrate = \"50mbit\"\nqueue = \"fq_codel\"\n\
         [[flow]]\ncc = \"cubic\"\ncount = 3\nrate = \"2mbit\"\n[[flow]]\ncc = \"bbr\"\ncount = 1\nrate = \"3mbit\"\n\
         [[flow]]\ncc = \"newreno\"\nsack = false\ncount = 1\nrate = \"800kbit\"\n",
    );
    for (flow, mbps) in r.flows.iter().zip([2.0, 2.0, 2.0, 3.0, 0.8]) {
        near(flow.goodput_mbps, mbps, 0.002 * mbps);
        assert_eq!(flow.retransmits, 0);
    }
}

#[test]
fn flows_exist_from_start_to_stop() {
    let text = "duration = \"10s\"\nwarmup = \"1s\"\n[link]\nrate = \"100mbit\"\nqueue = \"pfifo\"\n\
        [[flow]]\nkind = \"cbr\"\nrate = \"12mbit\"\nsize = 1500\nstart = \"2s\"\nstop = \"4s\"\n\
        [[flow]]\ncc = \"newreno\"\ncount = 1\nrate = \"10mbit\"\nstart = \"3s\"\nstop = \"7s\"\n";
    let r = measure_with(text, 1, Some(SEC));
    // 1000 packets a second of 1472 bytes of payload, over the flow's two seconds.
    near(r.flows[0].goodput_mbps, 11.776, 0.02);
    // The flow lives for four seconds, of which the first round trips carry nothing.
    near(r.flows[1].goodput_mbps, 10.0, 0.15);
    near(
        r.goodput_mbps,
        (11.776 * 2.0 + 10.0 * 4.0) / 9.0,
        0.15 * 4.0 / 9.0,
    );
    let s = r.series.expect("a series");
    let busy = |flow: usize| -> Vec<usize> {
        let bins = s.goodput_mbps[flow].iter().enumerate();
        bins.filter(|(_, x)| **x > 0.05).map(|(k, _)| k).collect()
    };
    // The datagram flow's packets arrive half a round trip (10 ms) after they were sent, the last
    // one in second 4.
    assert_eq!(busy(0), [2, 3, 4]);
    assert!(s.goodput_mbps[0][4] < 0.13, "{:?}", s.goodput_mbps[0]);
    assert_eq!(busy(1)[..4], [3, 4, 5, 6]);
    assert_eq!(r.jain, None, "no flow was there throughout");
}

#[test]
fn jains_index_counts_only_flows_that_are_present_throughout() {
    let text = |late: &str| {
        format!(
            "duration = \"20s\"\nwarmup = \"2s\"\n[link]\nrate = \"100mbit\"\nqueue = \"fq\"\n\
             [[flow]]\ncount = 1\nrate = \"1mbit\"\n[[flow]]\ncount = 1\nrate = \"3mbit\"\n{late}"
        )
    };
    // (1 + 3)² / (2 (1 + 9))
    near(measure(&text("")).jain.expect("two flows"), 0.8, 0.002);
    for late in [
        "[[flow]]\ncount = 2\nrate = \"9mbit\"\nstart = \"8s\"\n",
        "[[flow]]\ncount = 2\nrate = \"9mbit\"\nstop = \"12s\"\n",
        "[[flow]]\ncount = 2\nbytes = \"9MB\"\n",
        "[[flow]]\ncount = 2\nrate = \"9mbit\"\ndirection = \"up\"\n",
        "[[flow]]\nkind = \"cbr\"\nrate = \"9mbit\"\n",
    ] {
        near(measure(&text(late)).jain.expect("two flows"), 0.8, 0.002);
    }
}

#[test]
fn staggered_starts_are_uniform() {
    // Each of 4000 sources sends one packet within the run, so arrivals count starts.
    let mut w = world(&format!(
        "duration = \"10s\"\n{FAST}[[flow]]\nkind = \"cbr\"\ncount = 4000\nrate = \"1bit\"\nstart = \"1s\"\nstagger = \"2s\"\nrtt = \"1us\"\n"
    ));
    assert_eq!(gauges_at(&mut w, Instant::from_secs(1)).arrivals, 0);
    for quarter in 1..4u64 {
        let share = quarter as f64 / 4.0;
        let started = gauges_at(&mut w, Instant::from_secs(1) + quarter * SEC / 2).arrivals as f64;
        near(
            started,
            4000.0 * share,
            4.0 * (4000.0 * share * (1.0 - share)).sqrt(),
        );
    }
    assert_eq!(gauges_at(&mut w, Instant::from_secs(3) + MS).arrivals, 4000);
}

#[test]
fn a_stop_before_a_staggered_start_is_not_a_flow() {
    let r = measure(
        "duration = \"4s\"\n[link]\nrate = \"10mbit\"\n[[flow]]\ncount = 50\nstart = \"1s\"\nstop = \"1500ms\"\nstagger = \"2s\"\n",
    );
    assert!(r.goodput_mbps < 10.0 && r.flows.iter().all(|f| f.goodput_mbps < 10.0));
    let none = r.flows.iter().filter(|f| f.goodput_mbps == 0.0).count();
    assert!(none >= 20, "{none} of 50 start after their stop");
}

#[test]
fn a_source_that_stops_at_the_warm_ups_end_has_no_infinite_rate() {
    // 10 packets are queued when the warm-up ends, and their flow has stopped.
    let r = measure(
        "duration = \"2s\"\nwarmup = \"1s\"\n[link]\nrate = \"1mbit\"\nqueue = \"pfifo limit 100\"\n\
         [[flow]]\nkind = \"cbr\"\nrate = \"2mbit\"\nstart = \"900ms\"\nstop = \"990ms\"\n",
    );
    assert_eq!(r.flows[0].goodput_mbps, 0.0);
    assert!(r.goodput_mbps > 0.0 && r.goodput_mbps < 1.0);
}

#[test]
fn full_size_datagrams_keep_their_length_under_every_overhead() {
    let r = measure(
        "duration = \"10s\"\nwarmup = \"0s\"\n[link]\nrate = \"100mbit\"\noverhead = 1000\nqueue = \"pfifo\"\n\
         [[flow]]\nkind = \"cbr\"\nrate = \"8mbit\"\nsize = 64000\n",
    );
    // 8 Mbit/s of IP are 15.625 packets a second; on this link each has 65,000 bytes.
    let packets = r.packets as f64;
    near(packets, 156.0, 1.0);
    near(r.throughput_mbps, packets * 0.52 / 10.0, 1e-6);
    assert!(r.sojourn_ms.max < ns(65_000, 100_000_000).as_nanos() as f64 / 1e6);
}

#[test]
fn every_flow_has_its_delay_jitter_and_loss() {
    // A source alone: the delay is always half a round trip and 1 ms, the time of 1014 bytes at
    // 8.112 Mbit/s.
    let text = |more: &str| {
        format!(
            "duration = \"10s\"\nwarmup = \"1s\"\n[link]\nrate = \"8.112mbit\"\ndelay = \"5ms\"\nqueue = \"pfifo limit 20\"\n\
             [[flow]]\nkind = \"cbr\"\nsize = 1000\nrate = \"800kbit\"\nrtt = \"40ms\"\n{more}"
        )
    };
    let alone = measure(&text("")).flows[0].clone();
    let delay = alone.delay_ms.expect("packets");
    near(delay.mean, 21.0, 0.001);
    near(delay.max, 21.0, 0.001);
    near(alone.jitter_ms.expect("packets"), 0.0, 0.001);
    assert_eq!(alone.loss_rate, Some(0.0));
    // With TCP beside it, which fills the queue: at most 20 packets wait.
    let both = measure(&text("[[flow]]\ncount = 1\nrtt = \"40ms\"\n"));
    let (cbr, tcp) = (&both.flows[0], &both.flows[1]);
    let delays = [cbr, tcp].map(|f| f.delay_ms.expect("packets"));
    let full = 20.0 + ms(1514, 8.112e6) * 21.0;
    for delay in delays {
        assert!(delay.p50 > 25.0 && delay.max <= full, "{delay:?}, {full}");
    }
    near(delays[0].mean, delays[1].mean, 2.0);
    let jitter = cbr.jitter_ms.expect("packets");
    assert!(jitter > 0.2 && jitter < 10.0, "{jitter}");
    // Packets are lost only in this queue, so the common loss rate is between those of the flows.
    let [a, b] = [cbr, tcp].map(|f| f.loss_rate.expect("packets"));
    let whole = both.loss_rate;
    assert!(
        whole > 0.0 && a.min(b) <= whole && whole <= a.max(b),
        "{a} {whole} {b}"
    );
    // Loss on the link counts too, on a path of several queues with its delays.
    let lossy = measure(
        "duration = \"60s\"\n[link]\nrate = \"10mbit\"\ndelay = \"5ms\"\nloss = 0.1\n[[hop]]\nrate = \"10mbit\"\ndelay = \"7ms\"\n\
         [[flow]]\nkind = \"cbr\"\nsize = 986\nrate = \"100kbit\"\nrtt = \"50ms\"\n[[flow]]\ncount = 1\nrate = \"100kbit\"\nrtt = \"50ms\"\n",
    );
    // The delay is half of the round trip beyond the links' delays, plus the links' delays one way,
    // plus the time of 1000 bytes on two links.
    near(
        lossy.flows[0].delay_ms.expect("packets").p50,
        13.0 + 12.0 + 1.6,
        0.2,
    );
    near(
        lossy.flows[1].delay_ms.expect("packets").p50,
        13.0 + 12.0 + 2.0 * ms(1514, 1e7),
        0.2,
    );
    near(lossy.flows[0].loss_rate.expect("packets"), 0.1, 0.04);
    near(lossy.flows[1].loss_rate.expect("packets"), 0.1, 0.05);
}

#[test]
fn a_call_on_an_idle_line_is_as_good_as_its_codec() {
    let text = |codec: &str, up: &str| {
        format!(
            "duration = \"20s\"\n[link]\nrate = \"10mbit\"\ndelay = \"10ms\"\n{up}[[flow]]\nkind = \"call\"\ncodec = \"{codec}\"\nrtt = \"40ms\"\n"
        )
    };
    for (codec, look_ahead, mos) in [
        ("g711", 0.0, 4.409),
        ("g729", 5.0, 4.1),
        ("opus", 6.5, 4.409),
    ] {
        // With and without a queue upwards.
        for up in ["", "[link.up]\nrate = \"2mbit\"\n"] {
            let r = measure(&text(codec, up));
            let call = &r.applications[0];
            assert_eq!((call.kind.as_str(), call.late_loss), ("call", Some(0.0)));
            // Half a round trip, 20 ms of speech in a packet, and 20 ms in the buffer.
            let ear = call.mouth_to_ear_ms.expect("speech").mean;
            near(ear, 60.0 + look_ahead, 1.0);
            // R = 93.2 - Ie, as delays below 100 ms do not count. For G.729 R is 82.2: 1 + 2.877 +
            // 82.2 * 22.2 * 17.8 * 7e-6.
            near(call.mos.expect("a score"), mos, 0.01);
            // Each direction is a flow with 50 packets a second.
            assert_eq!(r.flows.len(), 2);
            for flow in &r.flows {
                near(flow.delay_ms.expect("packets").mean, 20.0, 1.0);
                assert_eq!((flow.kind.as_str(), flow.loss_rate), ("call", Some(0.0)));
            }
        }
    }
}

#[test]
fn a_call_suffers_from_the_queue_that_is_worse() {
    let text = |queue: &str| {
        format!(
            "duration = \"30s\"\n[link]\nrate = \"20mbit\"\n[link.up]\nrate = \"2mbit\"\nqueue = \"{queue}\"\n\
             [[flow]]\nkind = \"call\"\n[[flow]]\ncount = 2\ndirection = \"up\"\n"
        )
    };
    let [bad, good] = ["pfifo limit 200", "fq_codel"].map(|queue| {
        let r = measure(&text(queue));
        assert_eq!(r.applications.len(), 1);
        r.applications[0].clone()
    });
    assert!(good.mos > Some(4.3), "{good:?}");
    assert!(bad.mos < Some(2.5), "{bad:?}");
    // 200 packets at 2 Mbit/s take 1.2 s, and the playout delay is at most 1 s: speech is late or
    // lost.
    let ear = bad.mouth_to_ear_ms.map_or(0.0, |ear| ear.mean);
    assert!(ear > 600.0 || bad.late_loss > Some(0.3), "{bad:?}");
}

#[test]
fn a_games_round_trip_is_that_of_a_command_and_a_state() {
    let run = |more: &str| {
        measure(&format!(
            "duration = \"20s\"\n[link]\nrate = \"10mbit\"\nqueue = \"pfifo limit 100\"\n[link.up]\nrate = \"2mbit\"\n\
             [[flow]]\nkind = \"game\"\nrtt = \"30ms\"\n{more}"
        ))
    };
    let idle = run("");
    let game = &idle.applications[0];
    near(game.round_trip_ms.expect("states").p50, 30.5, 0.5);
    near(game.within_50ms.expect("states"), 1.0, 0.001);
    // 60 states a second of 120 + 0.5772 * 36 bytes, less half a byte; headers do not count.
    near(idle.flows[0].goodput_mbps, 60.0 * 140.3 * 8e-6, 0.002);
    near(idle.flows[1].goodput_mbps, 30.0 * 47.8 * 8e-6, 0.001);
    // A full queue of 100 packets adds 120 ms.
    let busy = run("[[flow]]\ncount = 2\n");
    let game = &busy.applications[0];
    assert!(game.round_trip_ms.expect("states").p95 > 100.0);
    assert!(game.within_50ms < Some(0.2));
}

#[test]
fn a_page_takes_its_round_trips_and_its_bytes() {
    // On this line bytes take hardly any time. A load takes at least six round trips of 100 ms:
    // name, TCP, TLS, document, and two rounds of objects.
    let text = |more: &str, http: &str| {
        format!(
            "duration = \"300s\"\nwarmup = \"0s\"\n[link]\nrate = \"10gbit\"\nqueue = \"pfifo limit 100000\"\n{more}\
             [[flow]]\nkind = \"page\"\nrtt = \"100ms\"\nhttp = \"{http}\"\nthink = \"1s\"\n"
        )
    };
    for http in ["h2", "http/1.1"] {
        for more in ["", "[link.up]\nrate = \"1gbit\"\n"] {
            let r = measure(&text(more, http));
            let page = &r.applications[0];
            let load = page.page_load_ms.expect("pages");
            assert!(load.p50 >= 600.0 && load.p50 < 2500.0, "{http}: {load:?}");
            // Loads and pauses together fill the 300 s; the last one may be cut off.
            let pages = page.pages.expect("pages") as f64;
            near(pages * (load.mean + 1000.0), 300e3, 60e3);
            assert_eq!(page.given_up, Some(0));
            assert_eq!(r.flows.len(), 1);
        }
    }
}

#[test]
fn lost_requests_are_repeated() {
    // 3 % of the packets are lost in either direction: pages take longer, and none hangs.
    let run = |loss: &str| {
        let r = measure(&format!(
            "duration = \"600s\"\n[link]\nrate = \"100mbit\"\nloss = {loss}\n[link.up]\nrate = \"100mbit\"\nloss = {loss}\n\
             [[flow]]\nkind = \"page\"\nthink = \"1s\"\n"
        ));
        r.applications[0].clone()
    };
    let [without, with] = ["0", "0.03"].map(run);
    assert!(with.pages > Some(25), "{with:?}");
    let [a, b] = [&without, &with].map(|r| r.page_load_ms.expect("pages").p50);
    assert!(b > 2.0 * a, "{a} {b}");
}

#[test]
fn a_stream_plays_at_the_rate_that_the_line_has() {
    let run = |rate: &str, adaptation: &str| {
        let r = measure(&format!(
            "duration = \"300s\"\nwarmup = \"60s\"\n[link]\nrate = \"{rate}\"\n[link.up]\nrate = \"1mbit\"\n\
             [[flow]]\nkind = \"video\"\nadaptation = \"{adaptation}\"\n"
        ));
        r.applications[0].clone()
    };
    for adaptation in ["buffer", "rate"] {
        // The line is fast enough for the best quality at all times.
        let fast = run("50mbit", adaptation);
        assert_eq!(
            (fast.rate_mbps, fast.rebuffer_ratio),
            (Some(5.8), Some(0.0))
        );
        assert_eq!(fast.switches, Some(0));
        assert!(fast.startup_ms.expect("a start").max < 500.0, "{fast:?}");
        // A slower line: a quality in between, and no stall.
        let slow = run("2mbit", adaptation);
        let rate = slow.rate_mbps.expect("segments");
        assert!(rate > 1.0 && rate < 2.0, "{adaptation}: {slow:?}");
        assert_eq!(slow.rebuffer_ratio, Some(0.0), "{adaptation}: {slow:?}");
    }
    // Too slow for the lowest quality, 235 kbit/s: playback stalls for about a third of the time.
    let poor = run("170kbit", "buffer");
    assert!(
        poor.rebuffer_ratio > Some(0.25) && poor.rebuffer_ratio < Some(0.45),
        "{poor:?}"
    );
}

#[test]
fn transfers_record_their_rate_and_uploads_use_the_up_link() {
    let r = measure(
        "duration = \"20s\"\n[link]\nrate = \"10mbit\"\n[link.up]\nrate = \"2mbit\"\n\
         [[flow]]\nkind = \"download\"\n[[flow]]\nkind = \"upload\"\n",
    );
    let rates: Vec<_> = r
        .applications
        .iter()
        .map(|a| a.rate_mbps.expect("a rate"))
        .collect();
    assert!(
        rates[0] > 8.0 && rates[1] > 1.6 && rates[1] < 2.0,
        "{rates:?}"
    );
    let up = r.up.expect("a queue upwards");
    assert!(up.utilisation > 0.95);
}

#[test]
fn clients_that_stop_leave_nothing_behind() {
    let r = measure(
        "duration = \"60s\"\n[link]\nrate = \"5mbit\"\n[[flow]]\nkind = \"page\"\ncount = 20\nstop = \"30s\"\nstagger = \"1s\"\n\
         [[flow]]\nkind = \"video\"\nstop = \"20s\"\n",
    );
    // The packets that were in flight when they stopped have arrived by 40 s.
    let late = measure(
        "duration = \"60s\"\nwarmup = \"40s\"\n[link]\nrate = \"5mbit\"\n[[flow]]\nkind = \"page\"\ncount = 20\nstop = \"30s\"\n\
         stagger = \"1s\"\n[[flow]]\nkind = \"video\"\nstop = \"20s\"\n",
    );
    assert!(r.packets > 1000);
    assert_eq!(late.packets, 0);
}

#[test]
fn responsiveness_is_that_of_the_round_trips_under_load() {
    let run = |queue: &str| {
        let r = measure(&format!(
            "duration = \"40s\"\nwarmup = \"10s\"\n[link]\nrate = \"50mbit\"\nqueue = \"{queue}\"\n[link.up]\nrate = \"50mbit\"\n\
             [[flow]]\ncount = 4\nrtt = \"20ms\"\n[[flow]]\nkind = \"probe\"\nrtt = \"20ms\"\n"
        ));
        r.applications[0].rpm.expect("a load and probes")
    };
    // A round trip of 25 ms with little load, with and without a queue upwards, with a hop: 2400
    // round trips a minute.
    for (up, hop) in [
        ("", ""),
        ("[link.up]\nrate = \"1gbit\"\n", ""),
        ("", "[[hop]]\nrate = \"1gbit\"\ndelay = \"4ms\"\n"),
    ] {
        let r = measure(&format!(
            "duration = \"20s\"\n[link]\nrate = \"1gbit\"\ndelay = \"3ms\"\n{up}{hop}\
             [[flow]]\ncount = 1\nrate = \"1mbit\"\ndelack = 1\nrtt = \"25ms\"\n[[flow]]\nkind = \"probe\"\nrtt = \"25ms\"\n"
        ));
        near(
            r.applications[0].rpm.expect("a load and probes"),
            2400.0,
            30.0,
        );
    }
    // Round trips of 20 ms alone would be 3000 a minute. A fair queue serves new connections at
    // once; the packets of the load wait a few ms.
    let fair = run("fq_codel");
    assert!(fair > 2200.0 && fair < 3000.0, "{fair}");
    // A queue of 400 packets at 50 Mbit/s adds 97 ms for all flows.
    let fifo = run("pfifo limit 400");
    assert!(fifo > 480.0 && fifo < 800.0, "{fifo}");
}
