//! Finite transfers and their completion times.

use super::common::{measure, ms, near};

const RATE: f64 = 10e6;
/// Transmission time of a full segment, 1514 bytes with headers, at 10 Mbit/s: 1.2112 ms.
fn packet() -> f64 {
    ms(1514, RATE)
}

/// Completion time, ms, of `segments` with an initial window of 10 that doubles each round: a round
/// trip (`rtt`, ms) for the SYN and one per round. A round starts when the first packet of the
/// previous one has been sent by the link; the last round ends when all of its packets have been.
fn slow_start(segments: u32, rtt: f64) -> f64 {
    let (mut rest, mut window, mut rounds) = (segments, 10, 1);
    while rest > window {
        rest -= window;
        window *= 2;
        rounds += 1;
    }
    ms(74, RATE) + f64::from(rounds + 1) * rtt + f64::from(rounds - 1 + rest) * packet()
}

#[test]
fn completion_times_follow_slow_starts_arithmetic() {
    for cc in ["newreno", "cubic"] {
        for sack in [true, false] {
            for segments in [1u32, 2, 3, 9, 10, 11, 20, 29, 30, 31, 50, 69, 70, 71, 101] {
                let bytes = segments * 1448;
                let r = measure(&format!(
                    "duration = \"5s\"\nwarmup = \"0s\"\n[link]\nrate = \"10mbit\"\nqueue = \"pfifo limit 1000\"\n\
                     [[flow]]\ncc = \"{cc}\"\ncount = 1\nbytes = {bytes}\nrtt = \"200ms\"\nsack = {sack}\n"
                ));
                assert_eq!(r.flows[0].completed, 1);
                let fct = r.flows[0].fct_ms.expect("a completion time");
                let wanted = slow_start(segments, 200.0);
                assert!(
                    (fct.max - wanted).abs() <= packet(),
                    "{cc}, {segments} segments: {} ms, {wanted} ms by arithmetic",
                    fct.max
                );
                assert_eq!(
                    r.flows[0].retransmits, 0,
                    "{cc}, {segments} segments, sack {sack}"
                );
            }
        }
    }
}

#[test]
fn the_bytes_of_a_short_last_segment_count() {
    for (bytes, wire) in [
        (1u32, 67),
        (1447, 1513),
        (1448, 1514),
        (1449, 1514 + 67),
        (100_000, 69 * 1514 + 66 + 88),
    ] {
        let r = measure(&format!(
            "duration = \"8s\"\nwarmup = \"0s\"\n[link]\nrate = \"10mbit\"\nqueue = \"pfifo limit 1000\"\n\
             [[flow]]\ncount = 1\nbytes = {bytes}\n"
        ));
        near(r.goodput_mbps, f64::from(bytes) * 8e-6 / 8.0, 1e-9);
        near(r.throughput_mbps, f64::from(wire + 74) * 8e-6 / 8.0, 1e-9);
        // The flow's own goodput is over its life, up to its completion.
        let fct = r.flows[0].fct_ms.expect("a completion time").max;
        near(
            r.flows[0].goodput_mbps,
            f64::from(bytes) * 8e-3 / fct,
            1e-6 * f64::from(bytes),
        );
    }
}

#[test]
fn a_transfer_offered_slowly_takes_as_long_as_its_application() {
    // 50 segments at 1 Mbit/s, one every 11.584 ms from the start; the ACK of the last one is back
    // a round trip later.
    let r = measure(
        "duration = \"5s\"\nwarmup = \"0s\"\n[link]\nrate = \"100mbit\"\nqueue = \"pfifo\"\n\
         [[flow]]\ncount = 1\nbytes = 72400\nrate = \"1mbit\"\nrtt = \"20ms\"\n",
    );
    let fct = r.flows[0].fct_ms.expect("a completion time").max;
    near(fct, 50.0 * 11.584 + 20.0 + ms(1514, 100e6), 0.01);
}

#[test]
fn thousands_of_short_transfers_complete_at_their_rate() {
    // In 20 s, 500 transfers a second of 20 kB on average: 80 of 200 Mbit/s. Nothing is lost, so
    // all complete.
    let r = measure(
        "duration = \"22s\"\nwarmup = \"2s\"\n[link]\nrate = \"200mbit\"\nqueue = \"pfifo limit 10000\"\n\
         [[flow]]\nkind = \"web\"\nsize = \"exp:20000\"\narrivals = 500\nrtt = \"20ms\"\n",
    );
    let flow = &r.flows[0];
    near(flow.completed as f64, 10_000.0, 400.0);
    // A compound Poisson sum of exponentials: its standard deviation is their mean times the root
    // of twice the count.
    near(r.goodput_mbps, 80.0, 4.0 * 80.0 * (2.0 / 10_000f64).sqrt());
    let fct = flow.fct_ms.expect("completion times");
    assert!(fct.p50 > 40.0, "a SYN and at least one round: {fct:?}");
    assert!(fct.max < 1000.0, "{fct:?}");
    assert_eq!((flow.refused, flow.retransmits), (0, 0));
}

#[test]
fn short_transfers_of_one_size_complete_when_arithmetic_says() {
    // Transfers are so rare that they seldom overlap.
    let r = measure(
        "duration = \"400s\"\nwarmup = \"0s\"\n[link]\nrate = \"10mbit\"\nqueue = \"pfifo limit 1000\"\n\
         [[flow]]\nkind = \"web\"\nsize = 43440\narrivals = 0.2\nrtt = \"200ms\"\ncc = \"newreno\"\n",
    );
    let fct = r.flows[0].fct_ms.expect("completion times");
    near(fct.p50, slow_start(30, 200.0), packet() + 0.008 * fct.p50);
}

#[test]
fn transfers_end_with_their_source() {
    let r = measure(
        "duration = \"60s\"\nwarmup = \"0s\"\n[link]\nrate = \"1mbit\"\nqueue = \"fq_codel\"\n\
         [[flow]]\nkind = \"web\"\nsize = \"1MB\"\narrivals = 5\nstop = \"10s\"\n[[flow]]\nkind = \"cbr\"\nrate = \"1kbit\"\nsize = 125\n",
    );
    // Each of the 50 transfers needs 8 s of the link: hardly any completes, and after 10 s only
    // queued packets are sent.
    assert!(r.flows[0].completed < 3);
    assert!(r.goodput_mbps < 11.0 / 60.0, "{}", r.goodput_mbps);
}

#[test]
fn transfers_beyond_65535_live_flows_are_refused_and_counted() {
    // The sources alone fill the flow table.
    let r = measure(
        "duration = \"1s\"\nwarmup = \"0s\"\n[link]\nrate = \"10mbit\"\n\
         [[flow]]\nkind = \"web\"\ncount = 65535\narrivals = 0.01\n",
    );
    let refused: u64 = r.flows.iter().map(|f| f.refused).sum();
    near(refused as f64, 655.35, 4.0 * 655.35f64.sqrt());
    assert_eq!(r.packets, 0);
}
