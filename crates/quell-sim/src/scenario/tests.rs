//! Tests of scenario files, their overrides and the error messages.

use super::*;
use proptest::prelude::*;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS, SEC};

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, "home.toml", &Overrides::default()).map_err(|e| e.to_string())
}

fn error(text: &str) -> String {
    parse(text).expect_err(text)
}

fn with(change: impl FnOnce(&mut Overrides)) -> Overrides {
    let mut o = Overrides::default();
    change(&mut o);
    o
}

const RATE: &str = "[link]\nrate = \"15mbit\"\n";

#[test]
fn a_rate_is_enough_and_the_rest_has_the_defaults_of_the_contract() {
    let s = parse(RATE).unwrap();
    assert_eq!((s.name.as_str(), s.seeds, s.seed), ("home", 5, 1));
    assert_eq!((s.duration, s.warmup), (60 * SEC, 5 * SEC));
    let link = &s.link;
    assert_eq!(link.rate, Capacity::Constant(Rate::from_mbit(15)));
    assert_eq!(
        (link.delay, link.overhead, link.nic, link.loss),
        (Duration::ZERO, 14, 0, 0.0)
    );
    assert_eq!(
        (link.shaper, link.queue.as_str()),
        (Shaper::Line, "fq_codel")
    );
    assert!(s.up.is_none() && s.hops.is_empty() && s.flows.len() == 1);
    let f = &s.flows[0];
    assert_eq!(
        (f.count, f.rtt, f.start, f.stop, f.stagger),
        (
            4,
            Duration::from_millis(20),
            Duration::ZERO,
            None,
            Duration::from_secs(1)
        )
    );
    assert_eq!((f.direction, f.hops), (Direction::Down, (0, 0)));
    let FlowKind::Tcp(t) = &f.kind else { panic!() };
    assert_eq!(t.cc, Cc::Cubic { rfc9438: false });
    assert_eq!((t.mss, t.iw, t.min_rto, t.delack), (1448, 10, 200 * MS, 2));
    assert_eq!(
        (t.delack_timeout, t.buffer, t.rate),
        (40 * MS, 6 << 20, Rate::MAX)
    );
    assert!(t.sack && t.limited_transmit && !t.ecn && !t.ect1 && !t.rto_ns3 && t.bytes.is_none());
}

#[test]
fn flows_that_no_file_has_start_at_different_times() {
    let staggers = |text: &str, flows: &[&str]| {
        let overrides = with(|o| o.flows = flows.iter().map(ToString::to_string).collect());
        let s = Scenario::parse(text, "x.toml", &overrides).unwrap();
        s.flows.iter().map(|f| f.stagger).collect::<Vec<_>>()
    };
    let flows = ["cubic:4", "udp@5s-20s", "bbr@stagger=0s", "bbr@-2s"];
    assert_eq!(staggers(RATE, &[]), [SEC]);
    assert_eq!(
        staggers(RATE, &flows),
        [1_000, 0, 0, 200].map(Duration::from_millis)
    );
    // In a short run flows start within a tenth of the duration.
    let short = format!("duration = \"1s\"\n{RATE}");
    assert_eq!(staggers(&short, &[]), [100 * MS]);
    assert_eq!(staggers(&short, &["cubic:4"]), [100 * MS]);
    // The `stagger` of a file's flows is 0 by default.
    assert_eq!(
        staggers(&format!("{RATE}[[flow]]\ncount = 2\n"), &[]),
        [Duration::ZERO]
    );
}

#[test]
fn flows_of_built_in_scenarios_start_at_different_times_except_in_papers() {
    for built_in in scenarios() {
        let s = parse(built_in.toml).unwrap();
        let paper = ["lfq", "rl-aqm", "l4s"].contains(&built_in.name);
        let kept = |f: &&Flow| matches!(f.kind, FlowKind::Tcp(_) | FlowKind::Cbr { .. });
        for f in s.flows.iter().filter(kept) {
            // `datacenter` lasts 1 s, and 10 ms are 100 of its round trips of 100 us.
            let min_stagger = match built_in.name {
                "datacenter" => 10 * MS,
                _ => SEC,
            };
            assert_eq!(f.stagger >= min_stagger, !paper, "{}: {f:?}", built_in.name);
        }
    }
}

#[test]
fn errors_name_file_line_key_and_remedy() {
    for (text, message) in [
        (
            "",
            "home.toml: there is no link; write [link] and below it rate = \"15mbit\"",
        ),
        (
            "[link]\n",
            "home.toml:1: link: it has no rate; write rate = \"15mbit\", or a schedule, or the path of a trace",
        ),
        (
            "[link]\nrate = \"15 parsecs\"",
            "home.toml:2: link.rate: \"15 parsecs\" has an unknown unit \"parsecs\" for a rate; write it as 15mbit, 1.5gbit or 500kbit",
        ),
        (
            "[link]\nrate = \"-5mbit\"",
            "home.toml:2: link.rate: \"-5mbit\" is negative; ",
        ),
        (
            "[link]\nrate = 15",
            "home.toml:2: link.rate: the rate \"15\" has no unit; write 15mbit, 15kbit or 15bit",
        ),
        (
            "[link]\nrate = [1]",
            "home.toml:2: link.rate: one value is wanted here",
        ),
        (
            "[link]\nrate = \"99999999tbit\"",
            "home.toml:2: link.rate: \"99999999tbit\" is too large",
        ),
        (
            "[link]\nrate = \"1mbit\"\ntrace = \"x\"",
            "home.toml:3: link.trace: `rate` and `trace` exclude",
        ),
        (
            "[link]\nrate = \"1mbit\"\nlos = 1",
            "home.toml:3: link: unknown key in [link] `los`; did you mean `loss`? Known: up, rate, trace, schedule",
        ),
        (
            "[link]\nrate = \"1mbit\"\nloss = 1.5",
            "home.toml:3: link.loss: \"1.5\" is not a probability",
        ),
        (
            "[link]\nrate = \"1mbit\"\nqueue = \"codel target 5\"",
            "home.toml:3: link.queue: codel: target: the time \"5\" has no unit",
        ),
        (
            "[link]\nrate = \"1mbit\"\n[[class]]\nid = \"1:1\"",
            "home.toml:3: class[1]: `fq_codel` has no classes; write queue = \"htb\", \"prio\", \"ets\" or \"drr\" for the link",
        ),
        (
            "[link]\nrate = \"1mbit\"\nqueue = \"prio\"\n[[class]]\nid = \"1:1\"\nrate = \"1mbit\"",
            "home.toml:4: class[1]: 1:1: unknown option `rate`; known: dscp, fwmark, host, queue",
        ),
        (
            "[link]\nrate = \"1mbit\"\nqueue = \"htb\"\n[[class]]\nid = \"1:1\"\nrate = \"1\"",
            "home.toml:6: class[1].rate: the rate \"1\" has no unit",
        ),
        (
            "[link]\nrate = \"1mbit\"\nqueue = \"htb\"\n[[class]]\nrate = \"1mbit\"",
            "home.toml:4: class[1]: it has no number; write id = \"1:10\"",
        ),
        (
            "[link]\nrate = \"1mbit\"\nqueue = \"htb\"\n[[class]]\nid = \"1:2\"\nparent = \"1:1\"\nrate = \"1mbit\"",
            "home.toml:3: link.queue: htb: a class names a parent that does not exist",
        ),
        (
            "[link]\nrate = \"1mbit\"\nqueue = \"htb\"\n[[class]]\nid = \"1:2\"\nrate = \"1mbit\"\ndirection = \"up\"",
            "home.toml:7: class[1].direction: there is no [link.up] whose queue could have the class",
        ),
        (
            "[link]\nrate = \"1mbit\"\nqueue = \"hfsc\"",
            "home.toml:3: link.queue: unknown queue `hfsc`; known: pfifo",
        ),
        (
            "[link]\nrate = \"1mbit\"\nburst = 1",
            "home.toml:3: link.burst: `burst` is for shaper = \"htb\" alone; leave it out, or write shaper = \"htb\"",
        ),
        (
            "[link]\ntrace = \"builtin:lte\"\nshaper = \"htb\"",
            "home.toml:3: link.shaper: a token bucket has a rate, and a trace has none; write shaper = \"line\"",
        ),
        (
            "[link]\nrate = \"1mbit\"\nshaper = \"htb\"\nnic = 5",
            "home.toml:4: link.nic: the device below a token bucket is never busy; write nic = 0",
        ),
        (
            "[link]\nschedule = [[\"1s\", \"1mbit\"]]",
            "home.toml:2: link.schedule: the first step is not at 0s",
        ),
        (
            "[link]\nschedule = [[\"0s\", \"1mbit\"], [\"0s\", \"2mbit\"]]",
            "home.toml:2: link.schedule: 0ms comes after 0ms",
        ),
        (
            "[link]\nschedule = []",
            "home.toml:2: link.schedule: not a list of times and rates",
        ),
        (
            "[link]\ntrace = \"no/such\"",
            "home.toml:2: link.trace: cannot read the trace no/such: ",
        ),
        (
            "duration = \"0s\"\n[link]\nrate = \"1mbit\"",
            "home.toml:1: duration: \"0s\" is too small",
        ),
        (
            "duration = \"99h\"\n",
            "home.toml:1: duration: \"99h\" is too large; write ",
        ),
        (
            "duration = 60\n",
            "home.toml:1: duration: the time \"60\" has no unit; write 60ms, 60us or 60s",
        ),
        (
            "duration = \"4s\"\nwarmup = \"4s\"\n",
            "home.toml:2: warmup: 4s is not shorter than the duration of 4s; ",
        ),
        (
            "seeds = 0\n",
            "home.toml:1: seeds: \"0\" is too small; write 1 to 1000000",
        ),
        (
            "seeds = 99999999999999999999\n",
            "home.toml:1: seeds: \"99999999999999999999\" is not a whole number",
        ),
        (
            "seed = -1\n",
            "home.toml:1: seed: \"-1\" is negative; write a whole number from 0 to 9007199254740991",
        ),
        (
            "seeds = -1\n",
            "home.toml:1: seeds: \"-1\" is negative; write a whole number from 1 to 1000000",
        ),
        ("seeds = 0x10\n", "home.toml:1: seeds: only decimal numbers"),
        ("a = 1\na = 2\n", "home.toml:2: not TOML: duplicate key"),
        ("seeds = \n", "home.toml:1: not TOML: "),
        (
            "[wifi]\n",
            "home.toml:1: wifi.node: there are no stations; write stations = 1, or [[wifi.node]]",
        ),
        (
            "link = 3",
            "home.toml:1: link: a table is wanted here; write [link]",
        ),
        (
            "flow = 3\n[link]\nrate = \"1mbit\"",
            "home.toml:1: flow: a list of tables is wanted here; write [[flow]]",
        ),
        (
            "flow = []\n[link]\nrate = \"1mbit\"",
            "home.toml:1: flow: a list of tables",
        ),
    ] {
        assert!(
            error(text).starts_with(message),
            "{}\n{message}",
            error(text)
        );
    }
    for (flow, message) in [
        (
            "count = 0",
            "home.toml:4: flow[1].count: \"0\" is too small; write 1 to 65535",
        ),
        (
            "count = 65536",
            "home.toml:4: flow[1].count: \"65536\" is too large",
        ),
        (
            "cc = \"cubik\"",
            "home.toml:4: flow[1].cc: unknown congestion control `cubik`; did you mean `cubic`?",
        ),
        (
            "kind = \"udp\"",
            "home.toml:4: flow[1].kind: unknown kind of flow `udp`; known: tcp, cbr",
        ),
        (
            "size = 5",
            "home.toml:4: flow[1]: unknown key in a [[flow]] of kind tcp `size`; ",
        ),
        (
            "rtt = \"0s\"",
            "home.toml:4: flow[1].rtt: \"0s\" is too small",
        ),
        (
            "start = \"5s\"\nstop = \"5s\"",
            "home.toml:5: flow[1].stop: 5s is not later than the start at 5s",
        ),
        (
            "ecn = 3",
            "home.toml:4: flow[1].ecn: \"3\" is neither true nor false",
        ),
        (
            "direction = \"sideways\"",
            "home.toml:4: flow[1].direction: unknown direction `sideways`; known: down, up",
        ),
        (
            "hops = [0, 1]",
            "home.toml:4: flow[1].hops: not the first and the last queue",
        ),
        (
            "bytes = 0",
            "home.toml:4: flow[1].bytes: \"0\" is too small",
        ),
        (
            "buffer = 100",
            "home.toml:4: flow[1].buffer: \"100\" is too small",
        ),
        (
            "kind = \"poisson\"\nsize = \"exp:1\"",
            "home.toml:5: flow[1].size: \"1\" is too small; write 28 to 64000, or exp: and a mean",
        ),
        (
            "kind = \"web\"\narrivals = 0",
            "home.toml:5: flow[1].arrivals: \"0\" is out of range",
        ),
        (
            "cc = \"bic_ns3\"\nbeta = 1",
            "home.toml:5: flow[1].beta: \"1\" is out of range",
        ),
        (
            "cc = \"bbr\"\nbeta = 0.5",
            "home.toml:5: flow[1].beta: `beta` is for cc = \"bic_ns3\" alone; leave it out, or write cc = \"bic_ns3\"",
        ),
        (
            "mss = 8000\nbuffer = 4000",
            "home.toml:5: flow[1].buffer: \"4000\" is too small; write 8000 to 4gb",
        ),
    ] {
        let text = format!("{RATE}[[flow]]\n{flow}\n");
        assert!(
            error(&text).starts_with(message),
            "{}\n{message}",
            error(&text)
        );
    }
}

#[test]
fn too_many_flows_in_all_are_refused() {
    let e = error(&format!(
        "{RATE}[[flow]]\ncount = 65535\n[[flow]]\ncount = 1\n"
    ));
    assert_eq!(
        e,
        "home.toml:5: flow[2]: 65536 flows in all are too many; at most 65535 can be simulated at once"
    );
}

#[test]
fn a_round_trip_is_at_least_the_links_delays() {
    let link = "[link]\nrate = \"1mbit\"\ndelay = \"10ms\"\n";
    assert_eq!(parse(link).unwrap().flows[0].rtt, 20 * MS);
    let e = error(&format!("{link}[[flow]]\nrtt = \"19ms\""));
    assert_eq!(
        e,
        "home.toml:5: flow[1].rtt: 19ms is less than the links' delays there and back; write at least 20ms"
    );
    let longer =
        format!("{link}[link.up]\ndelay = \"30ms\"\n[[hop]]\nrate = \"1mbit\"\ndelay = \"1ms\"");
    assert_eq!(parse(&longer).unwrap().flows[0].rtt, 42 * MS);
}

#[test]
fn the_other_direction_takes_what_it_lacks_from_the_link() {
    let s = parse(
        "[link]\nschedule = [[\"0s\", \"1mbit\"]]\nshaper = \"htb\"\nburst = 3000\nqueue = \"pie\"\n[link.up]\nrate = \"2mbit\"\nshaper = \"line\"",
    )
    .unwrap();
    let up = s.up.unwrap();
    assert_eq!(
        (up.rate, up.shaper, up.queue.as_str()),
        (Capacity::Constant(Rate::from_mbit(2)), Shaper::Line, "pie")
    );
    assert_eq!(s.link.shaper, Shaper::Htb { burst: 3000 });
    let s = parse(&format!("{RATE}[[flow]]\ndirection = \"up\"\ncount = 1")).unwrap();
    assert_eq!(s.up.as_ref(), Some(&s.link));
}

#[test]
fn ecn_is_on_for_scalable_congestion_control_only() {
    for (cc, ecn, ect1) in [
        ("reno", false, false),
        ("dctcp", true, false),
        ("prague", true, true),
    ] {
        let s = parse(&format!("{RATE}[[flow]]\ncc = \"{cc}\"")).unwrap();
        let FlowKind::Tcp(t) = &s.flows[0].kind else {
            panic!()
        };
        assert_eq!((t.ecn, t.ect1), (ecn, ect1), "{cc}");
    }
}

#[test]
fn every_congestion_control_is_called_by_its_name() {
    for name in Cc::NAMES.split('|').filter(|n| *n != "reno") {
        assert_eq!(Cc::named(name).name(), name);
    }
    assert_eq!(Cc::named("reno"), Cc::NewReno);
}

#[test]
fn overrides_alone_make_a_scenario() {
    let s = Scenario::load(
        None,
        &with(|o| {
            o.rate = Some("10mbit".into());
            o.rtt = Some("30ms".into());
            o.flows = [
                "cubic:2@rtt=80ms@ecn=1@5s-20s",
                "udp:3@rate=2mbit@size=200",
                "bbr",
            ]
            .map(Into::into)
            .into();
            o.duration = Some("8s".into());
        }),
    )
    .unwrap();
    assert_eq!(
        (s.name.as_str(), s.duration, s.warmup),
        ("10mbit", 8 * SEC, 2 * SEC)
    );
    let [cubic, udp, bbr] = &s.flows[..] else {
        panic!()
    };
    assert_eq!(
        (cubic.count, cubic.rtt, cubic.start, cubic.stop),
        (2, 80 * MS, 5 * SEC, Some(20 * SEC))
    );
    let cbr = FlowKind::Cbr(Cbr {
        rate: Rate::from_mbit(2),
        size: 200,
        ecn: false,
    });
    assert_eq!((udp.count, udp.rtt, &udp.kind), (3, 30 * MS, &cbr));
    assert_eq!((bbr.count, bbr.rtt), (1, 30 * MS));
}

#[test]
fn overrides_replace_what_the_file_says() {
    let o = with(|o| {
        o.queue = Some("pie  ecn".into());
        o.rate = Some("7mbit".into());
        o.rtt = Some("50ms".into());
        o.ecn = true;
        o.seeds = Some("2".into());
        o.seed = Some("9".into());
    });
    let text = "[link]\nschedule = [[\"0s\", \"1mbit\"]]\n[[flow]]\nrtt = \"20ms\"\necn = false\n[[flow]]\nkind = \"cbr\"";
    let s = Scenario::parse(text, "x.toml", &o).unwrap();
    assert_eq!(
        (&s.link.rate, s.link.queue.as_str()),
        (&Capacity::Constant(Rate::from_mbit(7)), "pie ecn")
    );
    assert!(s.flows.iter().all(|f| f.rtt == 50 * MS));
    assert!(matches!(&s.flows[0].kind, FlowKind::Tcp(t) if t.ecn));
    assert_eq!((s.seeds, s.seed), (2, 9));
}

#[test]
fn an_override_of_the_rate_can_set_both_directions() {
    let o = with(|o| o.rate = Some("50mbit/10mbit".into()));
    let rates = |s: &Scenario| (s.link.rate.clone(), s.up.as_ref().map(|up| up.rate.clone()));
    let both = (
        Capacity::Constant(Rate::from_mbit(50)),
        Some(Capacity::Constant(Rate::from_mbit(10))),
    );
    assert_eq!(rates(&Scenario::load(None, &o).unwrap()), both);
    // The other keys of the file's [link.up] are kept.
    let text = format!("{RATE}[link.up]\nschedule = [[\"0s\", \"1mbit\"]]\nqueue = \"pie\"");
    let s = Scenario::parse(&text, "x.toml", &o).unwrap();
    assert_eq!(rates(&s), both);
    assert_eq!(s.up.expect("up").queue, "pie");
}

#[test]
fn bad_overrides_name_themselves_and_no_file() {
    type Case = (fn(&mut Overrides), &'static str);
    let cases: [Case; 15] = [
        (|o| o.rate = Some("x".into()), "rate: \"x\" is not a rate"),
        (
            |o| o.rate = Some("9mbit/".into()),
            "rate: \"\" is not a rate",
        ),
        (
            |o| o.rate = Some("9mbit/1mbit/1mbit".into()),
            "rate: \"1mbit/1mbit\" has an unknown unit",
        ),
        (
            |o| o.rtt = Some("5".into()),
            "rtt: the time \"5\" has no unit",
        ),
        (
            |o| o.duration = Some("-5s".into()),
            "duration: \"-5s\" is negative",
        ),
        (|o| o.seeds = Some("0".into()), "seeds: \"0\" is too small"),
        (
            |o| o.queue = Some("codle".into()),
            "unknown queue `codle`; did you mean `codel`?",
        ),
        (
            |o| o.trace = Some("no/such".into()),
            "trace: cannot read the trace no/such: ",
        ),
        (
            |o| o.flows = vec!["qubic:2".into()],
            "flow: unknown congestion control `qubic`; did you mean `cubic`?",
        ),
        (
            |o| o.flows = vec!["cubic:0".into()],
            "flow `cubic:0`.count: \"0\" is too small",
        ),
        (
            |o| o.flows = vec!["cubic:1@rt=3".into()],
            "flow `cubic:1@rt=3`: unknown option `rt`; did you mean `rtt`?",
        ),
        (
            |o| o.flows = vec!["cubic@now".into()],
            "flow `cubic@now`: `@now` is neither",
        ),
        (
            |o| o.flows = vec!["".into()],
            "flow: unknown congestion control ``; known: newreno",
        ),
        (
            |o| o.flows = vec!["rrul:2".into()],
            "flow `rrul:2`: takes only the option rtt; write rrul or rrul@rtt=40ms",
        ),
        (
            |o| o.flows = vec!["rrul@rtt=x".into()],
            "flow `rrul@rtt=x`.rtt: ",
        ),
    ];
    for (change, message) in cases {
        let e = Scenario::parse(RATE, "home.toml", &with(change))
            .unwrap_err()
            .to_string();
        assert!(e.starts_with(message), "{e}\n{message}");
    }
    let both = with(|o| (o.rate, o.trace) = (Some("1mbit".into()), Some("x".into())));
    assert!(
        Scenario::load(None, &both)
            .unwrap_err()
            .to_string()
            .contains("exclude each other")
    );
}

#[test]
fn without_a_file_the_scenario_is_home_and_unknown_names_are_refused() {
    assert_eq!(
        Scenario::load(None, &Overrides::default()).unwrap().name,
        "home"
    );
    let e = Scenario::load(Some("sattelite"), &Overrides::default())
        .unwrap_err()
        .to_string();
    assert!(
        e.contains("did you mean `satellite`? Known: home, household"),
        "{e}"
    );
}

/// A new folder, which is removed even if the test fails.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("quell-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_that_is_not_text_is_refused_by_line() {
    let dir = Folder::new("scenario");
    let dir = &dir.0;
    let path = dir.join("bad.toml");
    std::fs::write(&path, b"name = \"x\"\n\xff\xfe").unwrap();
    let e = Scenario::load(path.to_str(), &Overrides::default())
        .unwrap_err()
        .to_string();
    assert!(
        e.ends_with("bad.toml:2: not UTF-8 text; save the file as UTF-8"),
        "{e}"
    );

    // A relative path of a trace is resolved in the scenario file's directory.
    std::fs::write(dir.join("cell.up"), "1\n2\n").unwrap();
    std::fs::write(&path, "[link]\ntrace = \"cell.up\"").unwrap();
    let s = Scenario::load(path.to_str(), &Overrides::default()).unwrap();
    assert_eq!(s.link.overhead, 4);
    let again = Scenario::parse(&s.to_toml(), "", &Overrides::default()).unwrap();
    assert_eq!(again, s);
}

#[test]
fn built_in_scenarios_read_and_read_back() {
    for built_in in scenarios() {
        let s = Scenario::load(Some(built_in.name), &Overrides::default()).unwrap();
        assert_eq!(s.name, built_in.name);
        assert!(!built_in.summary.is_empty() && s.duration > s.warmup);
        let again = Scenario::parse(&s.to_toml(), "", &Overrides::default());
        assert_eq!(again.unwrap(), s, "{}", s.to_toml());
    }
}

#[test]
fn rl_aqms_sections_have_the_papers_flows() {
    let s = Scenario::load(Some("rl-aqm"), &Overrides::default()).unwrap();
    let at = |t: u64| -> u32 {
        let on = |f: &&Flow| {
            f.start <= Duration::from_nanos(t) && f.stop.is_some_and(|stop| t < stop.as_nanos())
        };
        s.flows.iter().filter(on).map(|f| f.count).sum()
    };
    let sections: Vec<u32> = (0..9)
        .map(|i| at(((2 * i + 1) * 120 * SEC / 18).as_nanos()))
        .collect();
    assert_eq!(sections, [1, 2, 5, 10, 50, 10, 5, 2, 1]); // the paper's Fig. 2
}

#[test]
fn a_schedules_mean_weighs_by_time() {
    let rate = Capacity::Schedule(
        [
            (Instant::ZERO, Rate::from_mbit(1)),
            (Instant::from_secs(1), Rate::from_mbit(3)),
        ]
        .into(),
    );
    assert_eq!(rate.mean_rate(4 * SEC), Rate::from_kbit(2500));
    assert_eq!(rate.mean_rate(SEC / 2), Rate::from_mbit(1));
}

#[test]
fn seeds_of_runs_differ_and_the_first_is_the_seed_itself() {
    let seeds: std::collections::BTreeSet<u64> = (0..100)
        .flat_map(|seed| (0..100).map(move |k| run_seed(seed, k)))
        .collect();
    assert_eq!(seeds.len(), 10_000);
    assert_eq!(run_seed(42, 0), 42);
    assert!(seeds.iter().all(|s| *s < 1 << 53));
}

/// Texts of files: a head, then lines with tables, keys with valid values, keys with arbitrary
/// values, and arbitrary text.
fn fragments() -> impl Strategy<Value = String> {
    let heads = [
        "[link]",
        "[link.up]",
        "[[flow]]",
        "[[hop]]",
        "[wifi]",
        "[wifi.noise]",
        "[[wifi.node]]",
    ];
    let mut lines: Vec<String> = heads.map(str::to_owned).into();
    for key in catalogue().into_iter().flat_map(|t| t.keys) {
        let values = key.value.split('|').map(|alternative| match alternative {
            "N" => "3".to_owned(),
            "X" | "P" => "0.25".to_owned(),
            "BYTES" => "\"2kb\"".to_owned(),
            "TIME" => "\"7ms\"".to_owned(),
            "RATE" => "\"2mbit\"".to_owned(),
            "FILE" => "\"builtin:lte\"".to_owned(),
            "WORDS" => "\"codel\"".to_owned(),
            "TEXT" | "NAME" => "\"sta1\"".to_owned(),
            "exp:BYTES" => "\"exp:1000\"".to_owned(),
            "[N, N]" => "[0, 1]".to_owned(),
            "[[TIME, RATE], ...]" => "[[\"0s\", \"1mbit\"], [\"1s\", \"2mbit\"]]".to_owned(),
            "[[TIME, N], ...]" => "[[\"0s\", 3], [\"1s\", 4]]".to_owned(),
            "[NAME ...]" => "[\"ap\"]".to_owned(),
            "[[NAME, NAME, ...] ...]" => "[[\"ap\", \"sta1\"]]".to_owned(),
            list if list.starts_with('[') => "[0, 0, 0, 0, 0, 0, 0, 0.5]".to_owned(),
            "true" | "false" => alternative.to_owned(),
            word if word.parse::<u32>().is_ok() => word.to_owned(),
            word => format!("\"{word}\""),
        });
        lines.extend(values.map(|v| format!("{} = {v}", key.name)));
    }
    let wrong =
        "(rate|rtt|count|size|loss|seeds|duration|queue|cc|kind|x) = (\"|)[0-9a-z.\\-]{0,12}(\"|)";
    let line = prop_oneof![8 => proptest::sample::select(lines), 1 => wrong, 1 => ".{0,20}"];
    let head = proptest::sample::select(vec![
        "[link]\nrate = \"1mbit\"\n",
        "[wifi]\nstations = 2\n",
        "[[flow]]\n",
        "[link]\nrate = \"1mbit\"\n[[flow]]\n",
    ]);
    (head, proptest::collection::vec(line, 0..8)).prop_map(|(h, l)| format!("{h}{}", l.join("\n")))
}

#[test]
fn every_default_that_is_a_value_may_be_written_out() {
    let cell = "[wifi]\nstations = 2\n";
    for table in catalogue() {
        for key in table.keys {
            let Some(value) = key
                .default
                .strip_prefix('`')
                .and_then(|d| d.strip_suffix('`'))
            else {
                continue;
            };
            // If a key requires another key's value, its meaning begins with "with `KEY = VALUE`";
            // that line is put before it.
            let with = key
                .meaning
                .split('`')
                .nth(1)
                .filter(|_| key.meaning.starts_with("with `"));
            let line = format!("{}\n{} = {value}\n", with.unwrap_or(""), key.name);
            let without = format!("{}\n", with.unwrap_or(""));
            let file = |lines: &str| match table.name {
                "file" => format!("{lines}{RATE}"),
                "link" => format!("{RATE}{lines}"),
                "wifi" => format!("{cell}{lines}"),
                "wifi.noise" => format!("{cell}[wifi.noise]\n{lines}"),
                "wifi.node" => format!(
                    "[wifi]\n[[wifi.node]]\nname = \"a\"\n{lines}[[wifi.node]]\nname = \"b\""
                ),
                "class" => format!("{RATE}queue = \"drr\"\n[[class]]\nid = \"1:1\"\n{lines}"),
                "flow" if matches!(key.name, "ac") => format!("{cell}[[flow]]\n{lines}"),
                "flow" => format!("{RATE}[[flow]]\n{lines}"),
                "ping" => format!("{RATE}[link.up]\n[[flow]]\nkind = \"ping\"\n{lines}"),
                kind => format!("{RATE}[[flow]]\nkind = \"{kind}\"\n{lines}"),
            };
            assert_eq!(
                parse(&file(&line)),
                parse(&file(&without)),
                "{}",
                file(&line)
            );
            assert!(parse(&file(&line)).is_ok(), "{}", error(&file(&line)));
        }
    }
}

#[test]
fn changes_replace_keys_and_what_they_exclude() {
    let source = |text: &str| Source::parse(text, "dir/home.toml").unwrap();
    let put = |path: &str, keys: &[(&str, &str)]| {
        let mut table = Table::new(path);
        for (key, value) in keys {
            table.put(key, Node::Text((*value).into()));
        }
        table
    };
    let link = |keys: &[(&str, &str)]| {
        let mut changes = Table::new("");
        changes.put("link", Node::Table(put("link", keys)));
        changes
    };
    let base = source(&format!(
        "{RATE}shaper = \"htb\"\nburst = 3000\n[[flow]]\n[[flow]]\n"
    ));
    let line = base
        .clone()
        .replace(&link(&[("shaper", "line")]))
        .read()
        .unwrap();
    assert_eq!(
        (line.name.as_str(), line.link.shaper),
        ("home", Shaper::Line)
    );
    let larger = base
        .clone()
        .replace(&link(&[("burst", "4000")]))
        .read()
        .unwrap();
    assert_eq!(larger.link.shaper, Shaper::Htb { burst: 4000 });
    let steps = source("[link]\nschedule = [[\"0s\", \"1mbit\"]]");
    let constant = steps.replace(&link(&[("rate", "2mbit")])).read().unwrap();
    assert_eq!(constant.link.rate, Capacity::Constant(Rate::from_mbit(2)));

    let mut changes = Table::new("");
    changes.put("flow", Node::Table(put("flow", &[("cc", "bbr")])));
    let both = base.clone().replace(&changes).read().unwrap();
    assert!(
        both.flows
            .iter()
            .all(|f| matches!(&f.kind, FlowKind::Tcp(t) if t.cc == Cc::Bbr))
    );
    changes.put(
        "flow",
        Node::Tables(vec![put("flow[1]", &[("cc", "qubic")])]),
    );
    let e = base
        .clone()
        .replace(&changes)
        .read()
        .unwrap_err()
        .to_string();
    // The error is in the changes, so it does not name the file.
    assert!(
        e.starts_with("flow[1].cc: unknown congestion control `qubic`"),
        "{e}"
    );
    changes.put("flow", Node::Nothing);
    let usual = base.replace(&changes);
    assert_eq!(usual.read().unwrap().flows, parse(RATE).unwrap().flows);
    let again = Source::parse(&usual.to_toml(), "").unwrap();
    assert_eq!(again.read(), usual.read());
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics_and_a_scenario_that_parses_reads_back(text in fragments()) {
        match Scenario::parse(&text, "p.toml", &Overrides::default()) {
            Ok(s) => {
                let again = Scenario::parse(&s.to_toml(), "", &Overrides::default());
                prop_assert_eq!(again.unwrap(), s);
            }
            Err(e) => prop_assert!(!e.to_string().contains('\n')),
        }
    }

    #[test]
    fn arbitrary_short_forms_never_panic(text in "(cubic|udp|web|.{0,5})(:[0-9]{0,6}|)(@[a-z0-9=.\\-]{0,12}){0,3}") {
        let _ = Scenario::parse(RATE, "", &with(|o| o.flows = vec![text]));
    }
}

#[test]
fn classes_become_words_of_their_links_queue() {
    let text = "[link]\nrate = \"9mbit\"\nqueue = \"htb default 20\"\n[link.up]\nrate = \"2mbit\"\nqueue = \"prio\"\n\
                [[class]]\nid = \"1:1\"\nrate = \"8mbit\"\n\
                [[class]]\nid = \"1:10\"\nparent = \"1:1\"\nrate = \"1mbit\"\nceil = \"8mbit\"\ndscp = \"EF\"\nqueue = \"pie ecn\"\n\
                [[class]]\nid = \"1:20\"\nparent = \"1:1\"\nrate = \"7mbit\"\nprio = 1\n\
                [[class]]\nid = \"1:2\"\nqueue = \"codel\"\ndirection = \"up\"\n";
    let scenario = parse(text).expect("a scenario");
    let down = "htb default 20 class 1:1 rate 8mbit class 1:10 parent 1:1 rate 1mbit ceil 8mbit dscp EF queue pie ecn \
                class 1:20 parent 1:1 rate 7mbit prio 1";
    assert_eq!(scenario.link.queue, down);
    assert_eq!(
        scenario.up.as_ref().expect("up").queue,
        "prio class 1:2 queue codel"
    );
    assert_eq!(parse(&scenario.to_toml()).as_ref(), Ok(&scenario));
    // A queue from the overrides does not get the file's classes.
    let overrides = Overrides {
        queue: Some("codel".to_owned()),
        ..Overrides::default()
    };
    let other = Scenario::parse(text, "home.toml", &overrides).expect("a scenario");
    assert_eq!(other.link.queue, "codel");
}

#[test]
fn flents_rrul_works_on_any_link() {
    let flows = |o: &Overrides| Scenario::parse(RATE, "home.toml", o).map(|s| s.flows);
    let of_file = Scenario::load(Some("rrul"), &Overrides::default())
        .expect("a scenario")
        .flows;
    let named = flows(&with(|o| o.flows = vec!["rrul".into()])).expect("flows");
    assert_eq!(named, of_file);
    let with_more = |o: &mut Overrides| {
        o.flows = vec!["rrul@rtt=80ms".into(), "call".into()];
        o.duration = Some("20s".into());
    };
    let far = flows(&with(with_more)).expect("flows");
    assert_eq!(far.len(), of_file.len() + 1);
    assert!(far[..of_file.len()].iter().all(|f| f.rtt == 80 * MS));
}

#[test]
fn up_takes_over_the_classes_of_link_with_its_queue() {
    let text = "[link]\nrate = \"9mbit\"\nqueue = \"drr\"\n[link.up]\nrate = \"2mbit\"\n[[class]]\nid = \"1:1\"\n";
    let scenario = parse(text).expect("a scenario");
    assert_eq!(scenario.up.expect("up").queue, "drr class 1:1");
}
