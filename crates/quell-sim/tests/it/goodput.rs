//! Goodput never exceeds what the link carried, in random scenarios and for every queue.

use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use quell_link::record::Run;
use quell_link::words::catalogue;
use quell_qdisc::time::SEC;
use quell_sim::RunOptions;
use quell_sim::scenario::{Overrides, Scenario};

const MSS: f64 = 1448.0;
const CCS: &[&str] = &[
    "newreno", "cubic", "bic", "bic_ns3", "bbr", "dctcp", "prague", "vegas", "westwood",
    "illinois", "ledbat", "ledbat++", "bbr3",
];
/// IP and TCP headers with timestamps, bytes.
const HEADERS: f64 = 52.0;

fn run(text: &str, queue: &str, seed: u64) -> Run {
    let scenario = Scenario::parse(text, "goodput", &Overrides::default());
    let scenario = scenario.unwrap_or_else(|e| panic!("{e}: {text}"));
    let options = RunOptions {
        series_bin: Some(SEC / 4),
        ..RunOptions::default()
    };
    let never = AtomicBool::new(false);
    quell_sim::run(&scenario, queue, seed, &options, &never).expect("a run")
}

/// Maximum payload, bytes, that `mbps` of wire bytes carry in `seconds`, with `overhead` bytes per
/// packet in addition to IP's.
fn payload(mbps: f64, seconds: f64, overhead: f64) -> f64 {
    mbps * seconds * 1e6 / 8.0 * MSS / (MSS + HEADERS + overhead)
}

/// Checks a run on a link. A receiver handles a packet when the link has sent it, because the wire
/// behind the link is folded into the way back. So goodput counts packets whose transmission ended
/// in a window, and throughput those whose transmission began in it: they differ by one packet.
fn check_link(run: &Run, overhead: f64) -> Result<(), TestCaseError> {
    let bytes = |mbps: f64, seconds: f64| mbps * seconds * 1e6 / 8.0;
    let got = bytes(run.goodput_mbps, run.measured_s);
    let carried = payload(run.throughput_mbps, run.measured_s, overhead);
    prop_assert!(got <= carried + MSS + 0.5, "{got} of {carried} bytes");
    let series = run.series.as_ref().expect("series");
    for (k, mbps) in series.throughput_mbps.iter().enumerate() {
        let got: f64 = series.goodput_mbps.iter().map(|flow| flow[k]).sum();
        let (got, carried) = (bytes(got, 0.25), payload(*mbps, 0.25, overhead));
        prop_assert!(
            got <= carried + MSS + 0.5,
            "bin {k}: {got} of {carried} bytes"
        );
    }
    Ok(())
}

#[derive(Clone, Debug)]
struct Flows {
    cc: &'static str,
    ecn: bool,
    sack: bool,
    count: u32,
    rtt_ms: u32,
    stagger_ms: u32,
    bytes: Option<u32>,
}

impl Flows {
    fn table(&self) -> String {
        let Self {
            cc,
            ecn,
            sack,
            count,
            rtt_ms,
            stagger_ms,
            bytes,
        } = self;
        let bytes = bytes.map_or(String::new(), |b| format!("bytes = {b}\n"));
        format!(
            "[[flow]]\ncc = \"{cc}\"\necn = {ecn}\nsack = {sack}\ncount = {count}\nrtt = \"{rtt_ms}ms\"\n\
             stagger = \"{stagger_ms}ms\"\n{bytes}"
        )
    }
}

fn flows() -> impl Strategy<Value = Vec<Flows>> {
    let one = (
        (prop::sample::select(CCS), any::<bool>(), any::<bool>()),
        (1..27u32, 12..150u32, 0..1000u32),
        prop::option::of(1000..2_000_000u32),
    );
    let one = one.prop_map(
        |((cc, ecn, sack), (count, rtt_ms, stagger_ms), bytes)| Flows {
            cc,
            ecn,
            sack,
            count,
            rtt_ms,
            stagger_ms,
            bytes,
        },
    );
    prop::collection::vec(one, 1..4)
}

fn tables(flows: &[Flows]) -> String {
    flows.iter().map(Flows::table).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn goodput_of_a_window_counts_what_left_the_link_in_it(
        flows in flows(),
        mbit in 2..40u32,
        warmup_ms in 0..3500u32,
        loss in prop_oneof![Just(0.0), 0.0..0.03f64],
        (shaper, overhead) in (prop::sample::select(&["line", "htb"][..]), 0..40u32),
        web in any::<bool>(),
        seed in 0..1000u64,
    ) {
        let web = match web {
            true => "[[flow]]\nkind = \"web\"\nsize = \"exp:30kb\"\narrivals = 20\nrtt = \"30ms\"\n",
            false => "",
        };
        let text = format!(
            "duration = \"4s\"\nwarmup = \"{warmup_ms}ms\"\n[link]\nrate = \"{mbit}mbit\"\ndelay = \"5ms\"\n\
             loss = {loss}\nshaper = \"{shaper}\"\noverhead = {overhead}\n{}{web}",
            tables(&flows)
        );
        for kind in catalogue() {
            check_link(&run(&text, kind.name, seed), f64::from(overhead))
                .map_err(|e| TestCaseError::fail(format!("{}: {e}: {text}", kind.name)))?;
        }
    }

    /// In a cell a packet arrives when its transmission ends, so there is no slack of one packet.
    #[test]
    fn goodput_of_a_window_counts_what_left_the_air_in_it(
        flows in flows(),
        mcs in 0..8u32,
        errors in prop_oneof![Just(0.0), 0.0..0.3f64],
        warmup_ms in 0..3500u32,
        seed in 0..1000u64,
    ) {
        let text = format!(
            "duration = \"4s\"\nwarmup = \"{warmup_ms}ms\"\n[wifi]\n[[wifi.node]]\nname = \"ap\"\n\
             [[wifi.node]]\nname = \"near\"\nmcs = {mcs}\nper = {errors}\n{}",
            tables(&flows)
        );
        for kind in catalogue() {
            let run = run(&text, kind.name, seed);
            let air = run.wifi.as_ref().expect("a cell").queues.iter();
            let carried: f64 = air
                .filter(|q| q.from == "ap")
                .map(|q| payload(q.throughput_mbps, run.measured_s, 0.0))
                .sum();
            let got = run.goodput_mbps * run.measured_s * 1e6 / 8.0;
            prop_assert!(got <= carried + 0.5, "{}: {got} of {carried} bytes: {text}", kind.name);
        }
    }
}

#[test]
fn bytes_behind_a_hole_count_at_arrival_and_are_read_when_the_hole_is_filled() {
    // The warm-up ends while ten flows repair the losses of slow start.
    let text = "duration = \"6s\"\nwarmup = \"3s\"\n[link]\nrate = \"10mbit\"\n[[flow]]\ncc = \"prague\"\n\
                count = 10\nrtt = \"100ms\"\n";
    let run = run(text, "fq_pie", 1);
    let in_order = run.delivered_in_order_mbps.expect("receivers");
    assert!(run.goodput_mbps < run.throughput_mbps * MSS / (MSS + HEADERS) + 0.01);
    assert!(in_order > run.capacity_mbps, "{in_order}");
    let flows: f64 = run.flows.iter().map(|f| f.goodput_mbps).sum();
    assert!((flows - run.goodput_mbps).abs() < 1e-9, "{flows}");
    let flows: f64 = run.flows.iter().map(|f| f.delivered_in_order_mbps).sum();
    assert!((flows - in_order).abs() < 1e-9, "{flows}");
    // Over the whole series nothing counts twice. Bytes that have not been read at the end are
    // behind a hole.
    let series = run.series.expect("series");
    let sum = |flows: &[Vec<f64>]| flows.iter().flatten().sum::<f64>();
    let (got, read) = (
        sum(&series.goodput_mbps),
        sum(&series.delivered_in_order_mbps),
    );
    assert!(read <= got && read > 0.9 * got, "{read} of {got}");
}
