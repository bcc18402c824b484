//! Paths of several queues, in both directions.

use quell_sim::{Status, World};

use super::common::{measure, ms, near, scenario, world};
use quell_qdisc::time::{Duration, Instant};

/// Three hops with different rates (Mbit/s), delays (ms) and overheads.
const HOPS: [(u64, u64, u32); 3] = [(10, 10, 14), (20, 20, 2), (50, 30, 0)];

fn three_hops(rest: &str) -> String {
    let mut text = String::from("duration = \"3s\"\nwarmup = \"0s\"\n");
    for (k, (rate, delay, overhead)) in HOPS.iter().enumerate() {
        text += if k == 0 { "[link]\n" } else { "[[hop]]\n" };
        text += &format!(
            "rate = \"{rate}mbit\"\ndelay = \"{delay}ms\"\noverhead = {overhead}\nqueue = \"pfifo limit 1000\"\n"
        );
    }
    text + rest
}

/// Completion time, ms, of a transfer of one segment: two round trips, and the transmission times
/// of SYN, data and their answers. `data` and `acks` have the rate, Mbit/s, and the overhead of
/// each link.
fn one_segment(rtt: f64, data: &[(u64, u32)], acks: &[(u64, u32)]) -> f64 {
    let take = |links: &[(u64, u32)], packets: [u32; 2]| -> f64 {
        let one = |(rate, overhead): &(u64, u32)| {
            packets
                .iter()
                .map(|p| ms(p + overhead, *rate as f64 * 1e6))
                .sum::<f64>()
        };
        links.iter().map(one).sum()
    };
    2.0 * rtt + take(data, [60, 1500]) + take(acks, [52, 52])
}

#[test]
fn the_base_round_trip_holds_through_three_hops() {
    let links: Vec<(u64, u32)> = HOPS.iter().map(|h| (h.0, h.2)).collect();
    for rtt in [120, 150, 301] {
        let r = measure(&three_hops(&format!(
            "[[flow]]\ncount = 1\nbytes = 1448\nrtt = \"{rtt}ms\"\n"
        )));
        let fct = r.flows[0].fct_ms.expect("a completion time").max;
        near(fct, one_segment(f64::from(rtt), &links, &[]), 1e-4);
    }
    // A path of the last two hops alone, with a delay of 50 ms one way.
    let r = measure(&three_hops(
        "[[flow]]\ncount = 1\nbytes = 1448\nhops = [1, 2]\n",
    ));
    let fct = r.flows[0].fct_ms.expect("a completion time").max;
    near(fct, one_segment(100.0, &links[1..], &[]), 1e-4);
}

#[test]
fn acks_meet_the_up_link() {
    let links: Vec<(u64, u32)> = HOPS.iter().map(|h| (h.0, h.2)).collect();
    let up = "[link.up]\nrate = \"1mbit\"\ndelay = \"5ms\"\noverhead = 30\nqueue = \"pfifo limit 1000\"\n";
    let text = |flow: &str| three_hops(flow).replacen("[[hop]]", &format!("{up}[[hop]]"), 1);
    // The minimum is 10 ms down, 5 ms up, and the hops' delays in both directions: 115 ms.
    for rtt in [115, 150] {
        let r = measure(&text(&format!(
            "[[flow]]\ncount = 1\nbytes = 1448\nrtt = \"{rtt}ms\"\n"
        )));
        let fct = r.flows[0].fct_ms.expect("a completion time").max;
        near(fct, one_segment(f64::from(rtt), &links, &[(1, 30)]), 1e-4);
    }
    // Data pass [link.up], and ACKs pass [link].
    let r = measure(&text(
        "[[flow]]\ncount = 1\nbytes = 1448\nrtt = \"60ms\"\ndirection = \"up\"\n",
    ));
    let fct = r.flows[0].fct_ms.expect("a completion time").max;
    near(fct, one_segment(60.0, &[(1, 30)], &links[..1]), 1e-4);
    assert_eq!(r.goodput_mbps, 0.0, "that of [link]'s direction");
}

#[test]
fn packets_and_acks_enter_each_queue_at_their_time() {
    // The round trip is 200 ms; the links have 10 ms down and 30 ms up. Half of the other 160 ms
    // are before the link down, half are between the links.
    let mut w = world(
        "duration = \"1s\"\n[link]\nrate = \"1gbit\"\ndelay = \"10ms\"\n[link.up]\ndelay = \"30ms\"\n\
         [[flow]]\ncount = 1\nbytes = 1000\nrtt = \"200ms\"\n",
    );
    let mut arrivals = |queue: usize, at: Instant| {
        while w.run_until(at) != Status::Done {}
        w.gauges(queue).arrivals
    };
    assert_eq!(arrivals(0, Instant::from_millis(80)), 0);
    assert_eq!(
        arrivals(0, Instant::from_millis(80) + Duration::from_nanos(1)),
        1,
        "the SYN"
    );
    assert_eq!(arrivals(1, Instant::from_millis(170)), 0);
    assert_eq!(
        arrivals(1, Instant::from_millis(170) + Duration::from_nanos(1000)),
        1,
        "its answer"
    );
    assert_eq!(arrivals(0, Instant::from_millis(280)), 1);
    assert_eq!(
        arrivals(0, Instant::from_millis(280) + Duration::from_nanos(2000)),
        2,
        "the data"
    );
}

#[test]
fn every_hop_counts_its_own_overhead() {
    let r = measure(&three_hops(
        "[[flow]]\nkind = \"cbr\"\nrate = \"6mbit\"\nsize = 1500\n",
    ));
    // 500 packets a second for 3 s; the hops see them 10 and 30 ms later.
    near(r.throughput_mbps, 6.0 * 1514.0 / 1500.0, 0.01);
    near(
        r.hops[0].throughput_mbps,
        6.0 * 1502.0 / 1500.0 * (2.99 / 3.0),
        0.01,
    );
    near(r.hops[1].throughput_mbps, 6.0 * (2.97 / 3.0), 0.01);
    assert_eq!((r.hops[0].hop, r.hops[1].hop), (1, 2));
}

#[test]
fn the_slowest_hop_limits_and_holds_the_queue() {
    let text = "duration = \"20s\"\nwarmup = \"5s\"\n[link]\nrate = \"50mbit\"\nqueue = \"pfifo limit 100\"\n\
        [[hop]]\nrate = \"5mbit\"\nqueue = \"pfifo limit 50\"\n[[hop]]\nrate = \"20mbit\"\nqueue = \"pfifo limit 100\"\n\
        [[flow]]\ncc = \"newreno\"\ncount = 2\nrtt = \"40ms\"\n";
    let r = measure(text);
    near(r.goodput_mbps, 5.0 * 1448.0 / 1514.0, 0.05);
    assert!(r.hops[0].drops > 0 && r.drops == 0 && r.hops[1].drops == 0);
    // The queue is sometimes full: 50 packets of 2.4224 ms each.
    near(r.hops[0].sojourn_ms.max, 50.0 * 2.4224, 2.5);
    assert!(r.sojourn_ms.max < 5.0 && r.hops[1].sojourn_ms.max < 1.0);
}

#[test]
fn cross_traffic_loads_only_its_hops() {
    let r = measure(&three_hops(
        "[[flow]]\nkind = \"cbr\"\nrate = \"3mbit\"\nhops = [1, 1]\n[[flow]]\nkind = \"cbr\"\nrate = \"1mbit\"\nhops = [0, 1]\n",
    ));
    near(r.throughput_mbps, 1.0 * 1514.0 / 1500.0, 0.01);
    near(r.hops[0].throughput_mbps, 4.0, 0.03);
    assert_eq!(r.hops[1].throughput_mbps, 0.0);
    near(r.flows[0].goodput_mbps, 3.0 * 1472.0 / 1500.0, 0.02);
}

#[test]
fn a_folded_chain_is_as_one_computed_packet_by_packet() {
    // Two streams of different periods, through links that are sometimes too slow: (rate, delay) in
    // Mbit/s and ms.
    let hops = [(12u64, 3u64), (9, 7), (10, 1)];
    let (sizes, rates) = ([1000u32, 300], [8u32, 4]);
    let mut text = String::from("duration = \"2s\"\nwarmup = \"0s\"\n");
    for (k, (rate, delay)) in hops.iter().enumerate() {
        text += if k == 0 { "[link]\n" } else { "[[hop]]\n" };
        text += &format!(
            "rate = \"{rate}mbit\"\ndelay = \"{delay}ms\"\noverhead = 0\nqueue = \"pfifo limit 100000\"\n"
        );
    }
    for (size, rate) in sizes.iter().zip(rates) {
        text += &format!(
            "[[flow]]\nkind = \"cbr\"\nsize = {size}\nrate = \"{rate}mbit\"\nstop = \"1s\"\n"
        );
    }
    let r = measure(&text);
    let mut packets: Vec<(f64, usize)> = Vec::new();
    for flow in 0..2 {
        let gap = ms(sizes[flow], f64::from(rates[flow]) * 1e6);
        let times = (0..).map(|k| f64::from(k) * gap);
        packets.extend(times.take_while(|t| *t < 1000.0).map(|t| (t, flow)));
    }
    packets.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    let means = [
        r.sojourn_ms.mean,
        r.hops[0].sojourn_ms.mean,
        r.hops[1].sojourn_ms.mean,
    ];
    assert!(means.iter().all(|m| *m > 0.1), "{means:?}");
    for ((rate, delay), mean) in hops.iter().zip(means) {
        let (mut free, mut waited) = (0.0, 0.0);
        for (at, flow) in &mut packets {
            let begin = f64::max(free, *at);
            waited += begin - *at;
            free = begin + ms(sizes[*flow], *rate as f64 * 1e6);
            *at = free + *delay as f64;
        }
        near(mean, waited / packets.len() as f64, 1e-5);
    }
}

#[test]
fn data_and_acks_share_the_way_up() {
    let run = |up: &str| {
        measure(&format!(
            "duration = \"30s\"\nwarmup = \"10s\"\n[link]\nrate = \"20mbit\"\nqueue = \"pfifo limit 100\"\n\
             [link.up]\nrate = \"2mbit\"\nqueue = \"pfifo limit 50\"\n[[flow]]\ncount = 1\nrtt = \"20ms\"\nbuffer = \"64kb\"\n{up}"
        ))
    };
    let alone = run("");
    let beside = run("[[flow]]\ncc = \"newreno\"\ncount = 2\nrtt = \"20ms\"\ndirection = \"up\"\n");
    let rtt = |r: &quell_link::record::Run| r.flows[0].rtt_ms.expect("a TCP flow").mean;
    assert!(rtt(&alone) < 45.0, "{}", rtt(&alone));
    // A queue of 50 full packets takes 303 ms at 2 Mbit/s; NewReno keeps it between half full and
    // full.
    assert!((150.0..325.0).contains(&rtt(&beside)), "{}", rtt(&beside));
    near(
        beside.flows[1].goodput_mbps + beside.flows[2].goodput_mbps,
        1.9,
        0.1,
    );
    // The window of 45 segments, once per round trip.
    let window = 45.0 * 1448.0 * 8e-3;
    near(
        beside.flows[0].goodput_mbps,
        window / rtt(&beside),
        0.15 * window / rtt(&beside),
    );
}

#[test]
fn a_way_up_without_a_table_mirrors_the_link_and_a_scenario_without_one_is_refused() {
    let s = scenario("[link]\nrate = \"7mbit\"\n[[flow]]\ndirection = \"up\"\n");
    assert_eq!(s.up.as_ref(), Some(&s.link));
    let broken = quell_sim::scenario::Scenario { up: None, ..s };
    let error = World::builder(broken)
        .queue("pfifo")
        .seed(1)
        .build()
        .expect_err("no way up");
    assert_eq!(
        error.to_string(),
        "a flow with direction = \"up\" needs a [link.up] table"
    );
}

#[test]
fn a_path_of_too_many_queues_is_refused() {
    let up = "[link.up]\nrate = \"1gbit\"\n";
    let modem = "modem_rate = \"1gbit\"\n";
    // At most 255 queues: one is the link's, one that of the way up, and two are the modems'.
    for (first, up, max_hops) in [("", "", 254), ("", up, 253), (modem, up, 251)] {
        let path = |hops| {
            let hops = "[[hop]]\nrate = \"1gbit\"\n".repeat(hops);
            let s = scenario(&format!(
                "[link]\nrate = \"1gbit\"\n{first}{up}{hops}[[flow]]\n"
            ));
            World::builder(s).queue("pfifo").seed(1).build()
        };
        assert!(path(max_hops).is_ok(), "{max_hops} hops");
        let error = path(max_hops + 1).expect_err("a hop too many").to_string();
        let text = format!(
            "a path of {} hops is too long; give it at most {max_hops}",
            max_hops + 1
        );
        assert_eq!(error, text);
    }
}
