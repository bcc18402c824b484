//! Goodput of NewReno through ns-3's disciplines in the logs of LFQ's authors, compared with that
//! in quell.

use super::theory::{Row, run};

/// One flow of NewReno for 5 s with a round trip of 15 ms and the settings of the authors'
/// simulator: no delayed acknowledgements, an initial window of one packet, no limited transmit, a
/// minimum timeout of 1 s, PPP's two bytes per packet, a device queue of one packet.
fn published(rate_mbit: f64, queue: &str, name: &str, goodput_bytes: f64) -> Row {
    let kbit = rate_mbit * 1000.0;
    let text = format!(
        r#"
        duration = "5s"
        warmup = "0s"
        [link]
        rate = "{kbit}kbit"
        delay = "7.5ms"
        overhead = 2
        nic = 1
        queue = "{queue}"
        [[flow]]
        kind = "tcp"
        cc = "newreno"
        count = 1
        rtt = "15ms"
        mss = 1446
        iw = 1
        delack = 1
        min_rto = "1s"
        rto = "ns3"
        buffer = "1MiB"
        limited_transmit = false
        "#
    );
    let goodput = run(&text, 1).flows[0].delivered_in_order_mbps * 1e6 / 8.0;
    Row {
        what: format!("LFQ's logs: NewReno through {name} at {rate_mbit} Mbit/s, goodput"),
        unit: "bytes/s",
        expected: goodput_bytes,
        measured: goodput,
        tolerance: 0.05 * goodput_bytes,
    }
}

/// The four points for disciplines that are not learned.
pub fn all() -> Vec<Row> {
    let fq_codel = "fq_codel noecn quantum 1502 drop_batch 64";
    vec![
        published(5.0, fq_codel, "FqCoDel", 577_821.6),
        published(15.1, fq_codel, "FqCoDel", 1_713_220.8),
        published(24.19, fq_codel, "FqCoDel", 2_722_818.0),
        published(25.0, "pfifo limit 1000", "a FIFO of 1000", 2_850_329.6),
    ]
}
