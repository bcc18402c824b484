//! TCP through heavy loss, outages and delay spikes: nothing stalls for ever.

use quell_qdisc::Knobs;
use quell_qdisc::time::{Instant, MS, SEC};

use super::common::{gauges_at, measure, measure_with, near, world};

const CCS: [&str; 13] = [
    "newreno", "cubic", "bic", "bic_ns3", "bbr", "dctcp", "prague", "vegas", "westwood",
    "illinois", "ledbat", "ledbat++", "bbr3",
];

#[test]
fn a_third_of_all_packets_lost_still_completes_a_transfer() {
    for cc in CCS {
        for sack in [true, false] {
            for up in ["", "[link.up]\nloss = 0.3\n"] {
                let r = measure(&format!(
                    "duration = \"3000s\"\nwarmup = \"0s\"\n[link]\nrate = \"10mbit\"\nloss = 0.3\nqueue = \"pfifo\"\n{up}\
                     [[flow]]\ncc = \"{cc}\"\ncount = 4\nbytes = 150000\nsack = {sack}\n"
                ));
                let done: u64 = r.flows.iter().map(|f| f.completed).sum();
                assert_eq!(done, 4, "{cc}, sack {sack}, {up:?}");
                // Four transfers of 104 segments, each sent 1 / 0.7 times on average.
                let again: u64 = r.flows.iter().map(|f| f.retransmits).sum();
                assert!((110..1200).contains(&again), "{cc}: {again} of 416");
            }
        }
    }
}

#[test]
fn every_sender_survives_an_outage_of_ten_seconds() {
    for cc in CCS {
        for sack in [true, false] {
            for queue in ["pfifo limit 100", "fq_codel"] {
                let r = measure_with(
                    &format!(
                        "duration = \"40s\"\nwarmup = \"30s\"\n[link]\nschedule = [[\"0s\", \"10mbit\"], [\"5s\", \"10bit\"], [\"15s\", \"10mbit\"]]\n\
                         queue = \"{queue}\"\n[[flow]]\ncc = \"{cc}\"\ncount = 2\nsack = {sack}\n"
                    ),
                    1,
                    Some(SEC),
                );
                let s = r.series.expect("a series");
                assert!(s.throughput_mbps[6..15].iter().all(|x| *x < 0.02), "{cc}");
                // BBR ignores CoDel's drops, and Illinois grows by ten packets per round, since
                // every queue is short compared with the outage. Without SACK both repair one loss
                // per round trip.
                let odd = matches!(cc, "bbr" | "illinois") && !sack;
                // The last backoff before 15 s may be 8 s or more; packets that wait in the queue
                // end it earlier.
                assert!(
                    odd || s.throughput_mbps[24..30].iter().all(|x| *x > 5.0),
                    "{cc}, sack {sack}, {queue}: {:?}",
                    s.throughput_mbps
                );
                let min_utilisation = if odd { 0.5 } else { 0.85 };
                assert!(
                    r.utilisation > min_utilisation,
                    "{cc}, sack {sack}, {queue}: {}",
                    r.utilisation
                );
            }
        }
    }
}

#[test]
fn a_sender_backs_off_during_an_outage() {
    // Everything is lost for 10 s. With an RTO of about 220 ms there is one tail loss probe, and
    // then retransmissions after 0.2, 0.7, 1.5, 3.3 and 6.8 s.
    let mut w = world(
        "duration = \"40s\"\nwarmup = \"5s\"\n[link]\nrate = \"10mbit\"\nqueue = \"fifo limit 50\"\n[[flow]]\ncc = \"cubic\"\ncount = 1\n",
    );
    let drop = |p| Knobs {
        drop: Some(p),
        ..Knobs::default()
    };
    gauges_at(&mut w, Instant::from_secs(10));
    w.set_knobs(0, None, &drop(1.0)).expect("such a knob");
    let dark = gauges_at(&mut w, Instant::from_secs(10) + 200 * MS).arrivals;
    let sent = gauges_at(&mut w, Instant::from_secs(20)).arrivals - dark;
    assert!((4..=8).contains(&sent), "{sent}");
    w.set_knobs(0, None, &drop(0.0)).expect("such a knob");
    // The next retransmission comes at about 13.9 s of the outage; then slow start.
    let resumed = gauges_at(&mut w, Instant::from_secs(30)).departures;
    let rest = gauges_at(&mut w, Instant::from_secs(40)).departures - resumed;
    near(rest as f64 * 1514.0 * 8e-6 / 10.0, 10.0, 0.5);
}

#[test]
fn a_spurious_timeout_is_undone() {
    // The rate falls from 20 Mbit/s to 500 kbit/s: the 60 packets in flight take 1.5 s, six times
    // the timeout, and none is lost. F-RTO and timestamps show this. After a real timeout the whole
    // window would be sent again; here hardly any of it is.
    for cc in ["newreno", "cubic"] {
        let r = measure(&format!(
            "duration = \"30s\"\nwarmup = \"5s\"\n[link]\nschedule = [[\"0s\", \"20mbit\"], [\"10s\", \"500kbit\"]]\nqueue = \"pfifo limit 10000\"\n\
             [[flow]]\ncc = \"{cc}\"\ncount = 1\nbuffer = 86880\n"
        ));
        assert_eq!(r.drops, 0);
        assert!(
            r.flows[0].retransmits <= 5,
            "{cc}: {}",
            r.flows[0].retransmits
        );
        near(r.utilisation, 1.0, 0.01);
    }
}

#[test]
fn a_delay_spike_leaves_the_window_as_it_was() {
    // For two seconds almost nothing passes, then the old rate returns. If the window is kept, it
    // fills the link at once.
    for cc in ["newreno", "cubic"] {
        let r = measure_with(
            &format!(
                "duration = \"20s\"\nwarmup = \"5s\"\n[link]\nschedule = [[\"0s\", \"20mbit\"], [\"10s\", \"1kbit\"], [\"12s\", \"20mbit\"]]\n\
                 queue = \"pfifo limit 10000\"\n[[flow]]\ncc = \"{cc}\"\ncount = 1\nbuffer = 144800\nrtt = \"40ms\"\n"
            ),
            1,
            Some(SEC),
        );
        let s = r.series.expect("a series");
        assert!(
            s.throughput_mbps[13] > 19.5,
            "{cc}: {:?}",
            s.throughput_mbps
        );
        // A real timeout would send all of the window's 100 segments again.
        assert!(
            r.flows[0].retransmits < 30,
            "{cc}: {}",
            r.flows[0].retransmits
        );
    }
}
