//! Properties of 802.11n cells.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quell_link::record::{Run, Wifi};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Instant, MS};
use quell_sim::scenario::{Overrides, Scenario};
use quell_sim::{RunOptions, World};

fn scenario(text: &str) -> Scenario {
    let text = format!("duration = \"6s\"\nwarmup = \"1s\"\n{text}");
    Scenario::parse(&text, "cell", &Overrides::default()).expect("a well-formed scenario")
}

fn measure(text: &str) -> Run {
    let s = scenario(text);
    let queue = s.link.queue.clone();
    let run = quell_sim::run(
        &s,
        &queue,
        1,
        &RunOptions::default(),
        &AtomicBool::new(false),
    );
    run.expect("a run")
}

/// Runs one cell. `UDP` in `flows` means datagrams at a rate above the cell's.
fn saturated(wifi: &str, flows: &str) -> (Run, Wifi) {
    let flows = flows.replace(
        "UDP",
        "[[flow]]\nkind = \"cbr\"\nrate = \"80mbit\"\ncount = 1",
    );
    let run = measure(&format!(
        "[wifi]\nqueue = \"pfifo limit 200\"\n{wifi}\n{flows}"
    ));
    let wifi = run.wifi.clone().expect("a cell");
    (run, wifi)
}

#[track_caller]
fn near(x: f64, expected: f64, share: f64) {
    assert!(
        (x - expected).abs() <= share * expected,
        "{x} instead of {expected}"
    );
}

#[test]
fn tcp_fills_the_cell_in_both_directions() {
    for flows in [
        "[[flow]]\ncount = 2\n",
        "[[flow]]\ncount = 2\nfrom = \"sta1\"\n",
        "[[flow]]\ncount = 2\n[[flow]]\nfrom = \"sta2\"\ncount = 2\n",
    ] {
        let run = measure(&format!("[wifi]\nstations = 2\n{flows}"));
        // Datagrams in one direction get 59.8 Mbit/s; ACKs, and the contention for the channel that
        // they cause, take some of that.
        assert!(
            run.goodput_mbps > 40.0 && run.goodput_mbps < 59.0,
            "{}",
            run.goodput_mbps
        );
        assert!(
            run.flows.iter().all(|f| f.goodput_mbps > 0.5),
            "{:?}",
            run.flows
        );
        let rtt = run.rtt_ms.expect("samples");
        assert!(rtt.mean > 20.0 && rtt.mean < 80.0, "{rtt:?}");
    }
}

#[test]
fn packets_through_the_access_point_use_the_channel_twice() {
    let one = saturated("stations = 2", "UDP\nto = \"sta1\"")
        .0
        .goodput_mbps;
    let two = saturated("stations = 2", "UDP\nfrom = \"sta1\"\nto = \"sta2\"")
        .0
        .goodput_mbps;
    assert!(two > 0.3 * one && two < 0.55 * one, "{one} {two}");
}

#[test]
fn a_chain_of_hops_on_one_channel_shares_it() {
    let chain = |hops: &str| {
        let wifi = format!("mode = \"mesh\"\nstations = 4\nroutes = [[{hops}]]");
        let (run, cell) = saturated(&wifi, "UDP\nfrom = \"sta1\"\nto = \"sta4\"");
        (run.goodput_mbps, cell.queues.len())
    };
    let (one, _) = chain("\"sta1\", \"sta4\"");
    let (two, _) = chain("\"sta1\", \"sta2\", \"sta4\"");
    let (three, queues) = chain("\"sta1\", \"sta2\", \"sta3\", \"sta4\"");
    assert_eq!(queues, 3);
    assert!(one > 1.8 * two && two > 1.2 * three, "{one} {two} {three}");
}

#[test]
fn hidden_stations_destroy_each_others_frames_and_rts_protects() {
    let cell = |keys: &str| {
        let wifi = format!(
            "ampdu = false\nmcs = 3\n{keys}\n[[wifi.node]]\nname = \"ap\"\n[[wifi.node]]\nname = \"a\"\nHEARS\n[[wifi.node]]\nname = \"b\""
        );
        wifi
    };
    let flows = "UDP\nfrom = \"*\"\nto = \"ap\"";
    let all = saturated(&cell("").replace("HEARS", ""), flows)
        .0
        .goodput_mbps;
    let deaf = "hears = [\"ap\"]";
    let (hidden, air) = saturated(&cell("").replace("HEARS", deaf), flows);
    let (rts, _) = saturated(&cell("rts = true").replace("HEARS", deaf), flows);
    assert!(
        hidden.goodput_mbps < 0.7 * all,
        "{} {all}",
        hidden.goodput_mbps
    );
    assert!(air.queues.iter().all(|q| q.failures > 0.3), "{air:?}");
    assert!(
        rts.goodput_mbps > 1.3 * hidden.goodput_mbps,
        "{}",
        rts.goodput_mbps
    );
}

#[test]
fn losses_are_repaired_in_order_or_given_up() {
    // One in five frames is lost. With unlimited retries every packet arrives in the end, and TCP
    // sees neither loss nor reordering.
    let text = "[wifi]\nstations = 1\nper = 0.2\nretries = \"unlimited\"\nqueue = \"pfifo limit 5000\"\n[[flow]]\ncount = 1\nbuffer = \"1mb\"";
    let run = measure(text);
    let air = &run.wifi.as_ref().expect("a cell").queues[0];
    assert!(air.retries > 0.2, "{}", air.retries);
    assert_eq!(
        (run.flows[0].retransmits, air.given_up, run.drops),
        (0, 0, 0)
    );
    assert!(run.goodput_mbps > 25.0, "{}", run.goodput_mbps);

    let (run, air) = saturated("stations = 1\nper = 0.2\nretries = 1", "UDP");
    let air = &air.queues[0];
    assert_eq!(air.retries, 0.0);
    let lost = run.drops_by_cause.link as f64 / run.packets as f64;
    near(lost, 0.2, 0.05);
}

#[test]
fn a_slow_station_takes_its_share_of_the_time_or_of_the_packets() {
    let nodes = "[[wifi.node]]\nname = \"ap\"\n[[wifi.node]]\nname = \"fast\"\n[[wifi.node]]\nname = \"slow\"\nmcs = 0";
    let (_, fair) = saturated(nodes, "UDP");
    let [fast, slow] = &fair.queues[..] else {
        panic!()
    };
    near(fast.airtime, slow.airtime, 0.05);
    near(
        fast.throughput_mbps / slow.throughput_mbps,
        59.8 / 5.84,
        0.1,
    );
    let keys = format!("serve = \"round_robin\"\nampdu = false\nhardware = 1\n{nodes}");
    let (_, turns) = saturated(&keys, "UDP");
    near(
        turns.queues[0].throughput_mbps,
        turns.queues[1].throughput_mbps,
        0.02,
    );
}

#[test]
fn voice_overtakes_best_effort() {
    let call = "[[flow]]\nkind = \"cbr\"\nrate = \"100kbit\"\nsize = 200\nfrom = \"sta1\"\nto = \"ap\"\nac = \"";
    let wait = |ac: &str| {
        let (_, cell) = saturated(
            "stations = 3",
            &format!("{call}{ac}\"\nUDP\nfrom = \"sta2\"\nUDP\nfrom = \"sta3\""),
        );
        cell.queues[0].sojourn_ms.mean
    };
    let (voice, video, best) = (wait("vo"), wait("vi"), wait("be"));
    assert!(voice <= video && video < best, "{voice} {video} {best}");
}

#[test]
fn a_transmission_opportunity_holds_as_many_exchanges_as_fit() {
    let (run, cell) = saturated("stations = 1\nampdu = false", "UDP\nac = \"vi\"");
    // Times in us: 1538 bytes at MCS 7, SIFS and ACK. Ten exchanges and nine SIFS fit into 3008 us,
    // and cost one AIFS and 3.5 slots.
    let exchange = 36.0 + 48.0 * 4.0 + 16.0 + 28.0;
    let cycle = 16.0 + 2.0 * 9.0 + 3.5 * 9.0 + 10.0 * exchange + 9.0 * 16.0;
    near(run.goodput_mbps, 10.0 * 1472.0 * 8.0 / cycle, 0.01);
    assert_eq!((cell.collisions, cell.queues[0].aggregate), (0, 1.0));
}

#[test]
fn a_frame_that_does_not_fit_ends_the_opportunity() {
    // At MCS 0 an exchange takes 2.0 ms, so no second one fits into 3.008 ms.
    let (run, _) = saturated("stations = 1\nampdu = false\nmcs = 0", "UDP\nac = \"vi\"");
    let cycle = 16.0 + 2.0 * 9.0 + 3.5 * 9.0 + 36.0 + 475.0 * 4.0 + 16.0 + 44.0;
    near(run.goodput_mbps, 1472.0 * 8.0 / cycle, 0.01);
}

#[test]
fn an_opportunity_continues_with_the_next_neighbour_and_ends_with_a_failure() {
    // Each station gets half of the goodput. A loss costs the rest of the burst and a backoff.
    let goodput = |per: f64| {
        let wifi = format!("stations = 2\nampdu = false\nserve = \"round_robin\"\nper = {per}");
        let (run, _) = saturated(&wifi, "UDP\nac = \"vi\"");
        near(run.flows[0].goodput_mbps, run.flows[1].goodput_mbps, 0.05);
        run.goodput_mbps
    };
    let (clean, lossy) = (goodput(0.0), goodput(0.2));
    near(clean, 40.2, 0.01);
    // 0.8 of the frames arrive. If a loss had no other cost, goodput would be 0.8 of that without
    // losses.
    assert!(
        lossy < 0.79 * clean && lossy > 0.6 * clean,
        "{clean} {lossy}"
    );
}

#[test]
fn the_record_counts_all_queues_of_the_first_sender() {
    let (run, cell) = saturated("stations = 2", "UDP\nUDP\nfrom = \"sta1\"");
    let (ap, station): (Vec<_>, Vec<_>) = cell.queues.iter().partition(|q| q.from == "ap");
    assert_eq!((ap.len(), station.len()), (2, 1));
    assert_eq!(run.drops, ap.iter().map(|q| q.drops).sum::<u64>());
    let waits = ap.iter().map(|q| q.sojourn_ms.max);
    assert_eq!(run.sojourn_ms.max, waits.fold(0.0, f64::max));
}

#[test]
fn late_frames_join_the_next_ppdu() {
    let acks = |late: bool| {
        let text = format!(
            "[wifi]\nstations = 1\nhardware = 1\nlate = {late}\nqueue = \"pfifo limit 200\"\n[[flow]]\ncount = 1"
        );
        let run = measure(&text);
        (
            run.wifi.expect("a cell").queues[1].aggregate,
            run.goodput_mbps,
        )
    };
    let (early, late) = (acks(false), acks(true));
    // The first ACK of a burst is sent alone; with `late`, the others join it.
    assert!(
        late.0 > 1.3 * early.0 && late.1 > 1.03 * early.1,
        "{early:?} {late:?}"
    );
}

#[test]
fn delay_lasts_until_the_neighbour_has_the_packet() {
    let (_, cell) = saturated("stations = 1\nhardware = 1", "UDP");
    let q = &cell.queues[0];
    // 28 frames of 1544 bytes at MCS 7 take 5.36 ms, and each is delivered at its own end. AIFS and
    // the mean backoff precede them.
    let below = 0.043 + 0.0675 + 5.36 * 14.5 / 28.0;
    near(
        q.delay_ms.expect("packets") - q.sojourn_ms.mean,
        below,
        0.02,
    );
}

#[test]
fn noise_takes_what_is_on_the_air() {
    let goodput = |noise: &str| {
        saturated(&format!("stations = 1\nampdu = false\n{noise}"), "UDP")
            .0
            .goodput_mbps
    };
    let quiet = goodput("");
    let half = goodput("noise = { quiet = \"20ms\", noisy = \"20ms\" }");
    assert!(half < 0.55 * quiet && half > 0.35 * quiet, "{quiet} {half}");
    near(goodput("noise = { loss = 0.0 }"), quiet, 0.01);
}

#[test]
fn several_packets_in_one_frame_save_headers() {
    let small = "UDP\nsize = 200";
    let plain = saturated("stations = 1\nampdu = false", small)
        .0
        .goodput_mbps;
    let packed = saturated("stations = 1\nampdu = false\namsdu = 7935", small)
        .0
        .goodput_mbps;
    let both = saturated("stations = 1\namsdu = 3839", small)
        .0
        .goodput_mbps;
    let many = saturated("stations = 1", small).0.goodput_mbps;
    assert!(
        packed > 5.0 * plain && both > many && many > plain,
        "{plain} {packed} {many} {both}"
    );
}

#[test]
fn packets_that_the_hardware_holds_are_beyond_the_discipline() {
    let rtt = |depth: u32| {
        let text = format!(
            "[wifi]\nstations = 1\nhardware = {depth}\nqueue = \"codel\"\nmcs = 0\n[[flow]]\ncount = 2"
        );
        measure(&text).rtt_ms.expect("samples").mean
    };
    let (deep, shallow) = (rtt(40), rtt(1));
    assert!(deep > shallow + 5.0, "{deep} {shallow}");
}

#[test]
fn rate_control_follows_the_signal() {
    let goodput = |keys: &str| {
        saturated(&format!("stations = 1\n{keys}"), "UDP")
            .0
            .goodput_mbps
    };
    let fixed: Vec<f64> = (0..8)
        .map(|mcs| goodput(&format!("mcs = {mcs}\nsnr = 16")))
        .collect();
    let best = fixed.iter().copied().fold(0.0, f64::max);
    assert!(fixed[7] < 0.1 * best && fixed[0] < 0.5 * best, "{fixed:?}");
    let minstrel = goodput("mcs = \"minstrel\"\nsnr = 16");
    assert!(minstrel > 0.85 * best, "{minstrel} {best}");
}

#[test]
fn gauges_describe_the_channel() {
    let flows = "[[flow]]\nkind = \"cbr\"\nrate = \"80mbit\"\nfrom = \"*\"\nto = \"ap\"\ncount = 1";
    let s = scenario(&format!(
        "[wifi]\nstations = 2\nmcs = 5\nqueue = \"pfifo limit 100\"\n{flows}"
    ));
    let mut world = World::builder(s)
        .queue("pfifo limit 100")
        .seed(1)
        .build()
        .expect("a world");
    world.run_until(Instant::from_secs(5));
    let g = world.gauges(0);
    assert_eq!((g.rate, g.contenders), (Rate::from_mbit(52), 2));
    assert!((0.35..0.65).contains(&g.share), "{g:?}");
    assert!(g.busy > 0.9 && g.aggregate > 20.0, "{g:?}");
    assert!((30e6..52e6).contains(&g.achieved.bps_f64()), "{g:?}");
}

#[test]
fn a_world_with_a_cell_is_plain_data() {
    let s = scenario(
        "[wifi]\nstations = 3\nmcs = \"minstrel\"\nsnr = 22\nnoise = { quiet = \"50ms\", noisy = \"5ms\" }\n[[flow]]\n[[flow]]\nfrom = \"*\"\nkind = \"web\"\n",
    );
    let s = Arc::new(s);
    let mut a = World::builder(s.clone())
        .queue("fq_codel")
        .seed(7)
        .build()
        .expect("a world");
    a.run_until(Instant::from_secs(2));
    let mut b = a.clone();
    a.run_until(Instant::from_secs(4));
    for i in 0..2000 {
        b.run_until(Instant::from_secs(2) + i * MS);
    }
    b.run_until(Instant::from_secs(4));
    assert_eq!(a.trace_hash(), b.trace_hash());
    let mut c = World::builder(s)
        .queue("fq_codel")
        .seed(8)
        .build()
        .expect("a world");
    c.run_until(Instant::from_secs(4));
    assert_ne!(a.trace_hash(), c.trace_hash());
}

#[test]
fn every_queue_and_controller_works_in_a_cell() {
    let flows = "[[flow]]\ncount = 1\n[[flow]]\nfrom = \"sta1\"\ncount = 1";
    for queue in [
        "pfifo",
        "codel",
        "pie",
        "red",
        "fq",
        "fq_codel",
        "fq_pie",
        "dualpi2",
        "cake",
        "cobalt",
        "learnqueue",
        "wqm",
        "rlaqm",
        "lfq",
    ] {
        let run = measure(&format!(
            "[wifi]\nstations = 2\nqueue = \"{queue}\"\n{flows}"
        ));
        // LearnQueue's first limit is one packet, so its first aggregates are short.
        let min_goodput = if queue == "learnqueue" { 20.0 } else { 25.0 };
        assert!(
            run.goodput_mbps > min_goodput,
            "{queue}: {}",
            run.goodput_mbps
        );
    }
}
