//! Hundreds of random scenarios with most of the keys that the file format allows.

use std::sync::Arc;

use quell_qdisc::Rng;
use quell_qdisc::time::{Duration, Instant};
use quell_sim::scenario::{Capacity, Scenario, Shaper};
use quell_sim::{Status, World};

use super::common::scenario;

/// A random element of the list.
fn one<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.below(from.len() as u64) as usize]
}

/// A random number from `low` to `high`, log-uniform.
fn between(rng: &mut Rng, low: f64, high: f64) -> u64 {
    (low * (high / low).powf(rng.f64())) as u64
}

fn chance(rng: &mut Rng, p: f64) -> bool {
    rng.f64() < p
}

const QUEUES: &[&str] = &[
    "pfifo limit 1",
    "pfifo limit 20",
    "pfifo limit 1000",
    "bfifo limit 20000",
    "fifo limit 50 drop 0.01",
    "red",
    "red ecn adaptive limit 200kb",
    "codel",
    "codel ecn limit 30",
    "pie",
    "pie ecn target 5ms",
    "pie ns3-2018",
    "fq flow_limit 10",
    "fq_codel",
    "fq_codel noecn flows 4 limit 40",
    "fq_pie ecn",
    "cobalt",
    "cake",
    "dualpi2",
    "dualpi2 any_ect",
    "wqm target 30ms",
    "learnqueue delta 0.5",
    "learnqueue as_published",
    "lfq limit 30 flows 4",
    "rlaqm",
    "rlaqm noheuristics epsilon 0.5",
];

fn link(rng: &mut Rng, text: &mut String, delay: bool) {
    let rate = between(rng, 2e4, 1e8);
    match rng.below(5) {
        0 => *text += "trace = \"builtin:lte\"\n",
        1 => {
            let (then, more) = (between(rng, 1e3, 1e8), between(rng, 1e4, 1e8));
            *text += &format!(
                "schedule = [[\"0s\", \"{rate}bit\"], [\"200ms\", \"{then}bit\"], [\"900ms\", \"{more}bit\"]]\n"
            );
        }
        _ => *text += &format!("rate = \"{rate}bit\"\n"),
    }
    if !text.ends_with("lte\"\n") && chance(rng, 0.4) {
        *text += &format!(
            "shaper = \"htb\"\nburst = {}\n",
            between(rng, 1.0, 60_000.0)
        );
    } else if chance(rng, 0.2) {
        *text += &format!("nic = {}\n", rng.below(30));
    }
    if delay {
        *text += &format!("delay = \"{}us\"\n", rng.below(30_000));
    }
    if chance(rng, 0.4) {
        *text += &format!("overhead = {}\n", rng.below(1001));
    }
    if chance(rng, 0.3) {
        *text += &format!("loss = {}\n", rng.f64() * rng.f64() * 0.5);
    }
    *text += &format!("queue = \"{}\"\n", one(rng, QUEUES));
}

fn tcp(rng: &mut Rng, text: &mut String) {
    let cc = one(
        rng,
        &[
            "newreno", "cubic", "bic", "bic_ns3", "bbr", "dctcp", "prague", "vegas", "westwood",
            "illinois", "ledbat", "ledbat++", "bbr3",
        ],
    );
    *text += &format!("cc = \"{cc}\"\n");
    if chance(rng, 0.5) {
        *text += &format!("ecn = {}\n", chance(rng, 0.7));
    }
    if chance(rng, 0.3) {
        *text += &format!("sack = {}\n", chance(rng, 0.3));
    }
    if chance(rng, 0.3) {
        *text += &format!("limited_transmit = {}\n", chance(rng, 0.3));
    }
    if chance(rng, 0.2) {
        *text += "pacing = true\n";
    }
    let mss = if chance(rng, 0.3) {
        between(rng, 88.0, 64_000.0)
    } else {
        1448
    };
    *text += &format!("mss = {mss}\n");
    if chance(rng, 0.4) {
        *text += &format!(
            "iw = {}\nmin_rto = \"{}ms\"\ndelack = {}\ndelack_timeout = \"{}ms\"\nbuffer = {}\n",
            between(rng, 1.0, 200.0),
            between(rng, 1.0, 3000.0),
            between(rng, 1.0, 255.0),
            rng.below(500),
            between(rng, 1.0, 1000.0) * mss,
        );
        *text += &format!("rto = \"{}\"\n", one(rng, &["linux", "ns3"]));
    }
}

fn flow(rng: &mut Rng, hops: u64, text: &mut String) {
    *text += "[[flow]]\n";
    match one(
        rng,
        &["tcp", "tcp", "tcp", "tcp", "cbr", "poisson", "onoff", "web"],
    ) {
        "tcp" => {
            *text += &format!("count = {}\n", 1 + rng.below(6));
            tcp(rng, text);
            if chance(rng, 0.3) {
                *text += &format!("bytes = {}\n", between(rng, 1.0, 1e7));
            }
            if chance(rng, 0.3) {
                *text += &format!("rate = \"{}bit\"\n", between(rng, 1e3, 1e8));
            }
        }
        "web" => {
            tcp(rng, text);
            *text += &format!(
                "kind = \"web\"\narrivals = {}\nsize = \"{}{}\"\n",
                between(rng, 1.0, 300.0),
                one(rng, &["", "exp:"]),
                between(rng, 1.0, 1e6)
            );
        }
        "onoff" => {
            *text += &format!(
                "kind = \"onoff\"\non = \"{}us\"\noff = \"{}us\"\ngap_on = \"{}us\"\ngap_off = \"{}us\"\nsize = {}\n",
                between(rng, 1.0, 1e6),
                between(rng, 1.0, 1e6),
                between(rng, 50.0, 1e5),
                between(rng, 50.0, 1e6),
                between(rng, 28.0, 64_000.0),
            );
        }
        kind => {
            let exponential = kind == "poisson" && chance(rng, 0.5);
            *text += &format!(
                "kind = \"{kind}\"\nrate = \"{}bit\"\nsize = \"{}{}\"\necn = {}\n",
                between(rng, 1e3, 3e7),
                if exponential { "exp:" } else { "" },
                between(rng, 28.0, 64_000.0),
                chance(rng, 0.5)
            );
        }
    }
    let up = chance(rng, 0.2);
    if up {
        *text += "direction = \"up\"\n";
    } else if hops > 0 && chance(rng, 0.2) {
        let first = rng.below(hops + 1);
        let last = first + rng.below(hops + 1 - first);
        *text += &format!("hops = [{first}, {last}]\n");
    }
    if chance(rng, 0.5) {
        *text += &format!("rtt = \"{}us\"\n", between(rng, 250_000.0, 1_500_000.0));
    }
    if chance(rng, 0.4) {
        let start = rng.below(800);
        *text += &format!(
            "start = \"{start}ms\"\nstop = \"{}ms\"\n",
            start + 1 + rng.below(1500)
        );
    }
    if chance(rng, 0.4) {
        *text += &format!("stagger = \"{}ms\"\n", rng.below(900));
    }
}

fn draw(rng: &mut Rng) -> String {
    let mut text = format!(
        "duration = \"{}ms\"\nwarmup = \"0s\"\n[link]\n",
        between(rng, 200.0, 6000.0)
    );
    link(rng, &mut text, true);
    if chance(rng, 0.5) {
        text += "[link.up]\n";
        // Keys of [link] that do not fit this link must not be inherited: a trace has no token
        // bucket.
        let mut up = String::new();
        link(rng, &mut up, true);
        if text.contains("shaper") && !up.contains("shaper") {
            up += "shaper = \"line\"\n";
        }
        if text.contains("nic") && !up.contains("nic") {
            up += "nic = 0\n";
        }
        text += &up;
    }
    let hops = if chance(rng, 0.3) {
        1 + rng.below(4)
    } else {
        0
    };
    for _ in 0..hops {
        text += "[[hop]]\n";
        link(rng, &mut text, true);
    }
    for _ in 0..1 + rng.below(4) {
        flow(rng, hops, &mut text);
    }
    text
}

fn run_to(w: &mut World, end: Instant) {
    while w.run_until(end) != Status::Done {}
}

/// Maximum bytes that may have left the queue beyond the link's capacity: the contents of the
/// bucket and of the device queue, and the packet in service.
fn slack(s: &Scenario) -> f64 {
    let burst = match s.link.shaper {
        Shaper::Htb { burst } => burst,
        Shaper::Line => 0,
    };
    f64::from(burst) + 66_000.0 * f64::from(s.link.nic + 1)
}

/// Runs one scenario, checks the properties that hold for all, and returns the number of events.
fn check(text: &str, seed: u64, rng: &mut Rng) -> u64 {
    let s = Arc::new(scenario(text));
    let mut w = World::builder(s.clone())
        .seed(seed)
        .series(s.duration / 7 + Duration::from_nanos(1))
        .build()
        .expect("a world");
    run_to(
        &mut w,
        Instant::from_nanos(rng.below(s.duration.as_nanos())),
    );
    let mut twin = w.clone();
    run_to(&mut w, Instant::ZERO + s.duration);
    run_to(&mut twin, Instant::ZERO + s.duration);
    assert_eq!(w.now(), Instant::ZERO + s.duration);
    let queues = 1 + s.hops.len() + usize::from(s.up.is_some());
    for q in 0..queues {
        let g = w.gauges(q);
        assert_eq!(
            g.arrivals,
            g.departures + g.drops_overflow + g.drops_early + u64::from(g.backlog_packets),
            "queue {q}: {g:?}"
        );
    }
    let r = w.record(0.0);
    assert_eq!(
        format!("{r:?}"),
        format!("{:?}", twin.record(0.0)),
        "a clone"
    );
    let seconds = s.duration.as_secs_f64();
    let offered = match &s.link.rate {
        // A trace has whole opportunities of 1504 bytes.
        Capacity::Trace(_) => r.capacity_mbps + 2.0 * 1504.0 * 8e-6 / seconds,
        _ => r.capacity_mbps,
    } + slack(&s) * 8e-6 / seconds;
    assert!(
        r.throughput_mbps <= offered,
        "{} of {offered}",
        r.throughput_mbps
    );
    if s.flows.iter().all(|f| f.hops.0 == 0) {
        assert!(r.goodput_mbps <= r.throughput_mbps, "{}", r.goodput_mbps);
    }
    for f in &r.flows {
        assert!(f.goodput_mbps.is_finite() && f.cwnd_packets.is_finite());
    }
    r.events
}

#[test]
fn whatever_a_scenario_says_packets_are_conserved_and_clones_agree() {
    let mut rng = Rng::new(20_261_120, "soak");
    let mut events = 0;
    for k in 0..500 {
        let text = draw(&mut rng);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(&text, k, &mut rng.clone())
        }));
        match outcome {
            Ok(count) => events += count,
            Err(_) => panic!("scenario {k}, seed {k}:\n{text}"),
        }
    }
    assert!(events > 1_000_000, "{events}");
}

/// An application with random keys.
fn application(rng: &mut Rng, text: &mut String) {
    let kinds = [
        "call", "game", "page", "video", "probe", "download", "upload", "backup",
    ];
    let kind = one(rng, &kinds);
    *text += &format!(
        "[[flow]]\nkind = \"{kind}\"\ncount = {}\n",
        1 + rng.below(4)
    );
    match kind {
        "call" => *text += &format!("codec = \"{}\"\n", one(rng, &["g711", "g729", "opus"])),
        "game" => {
            *text += &format!(
                "states = {}\ncommands = {}\n",
                1 + rng.below(200),
                1 + rng.below(200)
            );
        }
        kind => {
            tcp(rng, text);
            if kind == "page" {
                let http = one(rng, &["h2", "http/1.1"]);
                *text += &format!(
                    "http = \"{http}\"\nthink = \"{}ms\"\n",
                    between(rng, 1.0, 1e4)
                );
            }
            if kind == "video" {
                *text += &format!("adaptation = \"{}\"\n", one(rng, &["buffer", "rate"]));
            }
        }
    }
    if !matches!(kind, "upload" | "backup") && chance(rng, 0.2) {
        *text += "direction = \"up\"\n";
    }
    if chance(rng, 0.5) {
        *text += &format!("rtt = \"{}us\"\n", between(rng, 250_000.0, 1_500_000.0));
    }
    if chance(rng, 0.4) {
        let start = rng.below(800);
        let stop = start + 1 + rng.below(1500);
        *text += &format!(
            "start = \"{start}ms\"\nstop = \"{stop}ms\"\nstagger = \"{}ms\"\n",
            rng.below(900)
        );
    }
}

#[test]
fn applications_over_any_network_keep_packets_and_clones_agree() {
    let mut rng = Rng::new(20_261_122, "applications");
    for k in 0..200 {
        let mut text = draw(&mut rng);
        for _ in 0..1 + rng.below(3) {
            application(&mut rng, &mut text);
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(&text, k, &mut rng.clone())
        }));
        assert!(outcome.is_ok(), "scenario {k}:\n{text}");
    }
}
