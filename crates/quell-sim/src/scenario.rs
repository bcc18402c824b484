//! What to simulate. The one definition of a scenario: TOML in, checked, with defaults filled in.

mod built_in;
mod flows;
mod parse;
mod tree;
pub mod wifi;
mod write;

use std::path::Path;

use quell_link::Error;
pub use quell_link::bottleneck::Shaper;
pub use quell_link::server::Rate;
pub use quell_link::trace::Trace;
use quell_qdisc::Nanos;

pub use built_in::{BuiltIn, scenarios};

/// What stands in place of a scenario's keys or, with a rate or a trace, in place of a file: all as typed, read like the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// The bottleneck's queue words.
    pub queue: Option<String>,
    /// The bottleneck's rate.
    pub rate: Option<String>,
    /// Every flow's base round trip.
    pub rtt: Option<String>,
    /// The bottleneck's trace, a path.
    pub trace: Option<String>,
    /// `CC[:COUNT][@rtt=][@ecn=0|1][@start-stop]`, also `udp[:COUNT][@rate=][@size=]`; together they replace all flows.
    pub flows: Vec<String>,
    /// ECN for every TCP flow.
    pub ecn: bool,
    /// Simulated time.
    pub duration: Option<String>,
    /// Left out of every statistic.
    pub warmup: Option<String>,
    /// Runs per queue.
    pub seeds: Option<String>,
    /// Base seed.
    pub seed: Option<String>,
}

/// A checked scenario with every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name (default: the file's stem).
    pub name: String,
    /// Simulated time.
    pub duration: Nanos,
    /// Left out of every statistic.
    pub warmup: Nanos,
    /// Runs per queue.
    pub seeds: u32,
    /// From which run k's own seed is derived.
    pub seed: u64,
    /// The bottleneck.
    pub link: Link,
    /// The other direction; `None`: ACKs meet no queue.
    pub up: Option<Link>,
    /// Further queues behind the bottleneck, in order; their `delay` adds to the path.
    pub hops: Vec<Link>,
    /// A cell in place of the bottleneck; `link` then holds the words of its queues and the rate of its first two nodes.
    pub wifi: Option<wifi::Wifi>,
    /// Traffic.
    pub flows: Vec<Flow>,
}

impl Scenario {
    /// Reads a scenario's text. `path` is what errors call it, and traces are looked for beside it.
    pub fn parse(text: &str, path: &str, overrides: &Overrides) -> Result<Self, Error> {
        parse::scenario(text, path, overrides)
    }

    /// What a user named: a file, or else a built-in scenario. Without a name the overrides alone make the scenario if they
    /// have a rate or a trace; if not, it is the built-in `home`, whatever files there are.
    pub fn load(name: Option<&str>, overrides: &Overrides) -> Result<Self, Error> {
        let Some(name) = name else {
            if overrides.rate.is_some() || overrides.trace.is_some() {
                return Self::parse("", "", overrides);
            }
            return Self::built_in("home", overrides);
        };
        let path = Path::new(name);
        // A folder is no scenario: whoever has one named `home` still means the built-in.
        if !path.exists() || (path.is_dir() && built_in::find(name).is_some()) {
            return Self::built_in(name, overrides);
        }
        let fail = |what: String| Error::new(what).at(name, None);
        let bytes = std::fs::read(name).map_err(|e| {
            fail(format!("cannot be read: {e}"))
                .remedy("name a scenario file or a built-in scenario")
        })?;
        let text = String::from_utf8(bytes).map_err(|e| {
            let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|b| **b == b'\n').count();
            Error::new("not UTF-8 text")
                .remedy("save the file as UTF-8")
                .at(name, Some(line))
        })?;
        Self::parse(&text, name, overrides)
    }

    fn built_in(name: &str, overrides: &Overrides) -> Result<Self, Error> {
        match built_in::find(name) {
            Some(built_in) => Self::parse(built_in.toml, "", overrides),
            None => Err(Error::unknown(
                "scenario file or built-in scenario",
                name,
                scenarios().iter().map(|s| s.name),
            )),
        }
    }

    /// The scenario as a file that reads back to the same, defaults written out. Traces keep the path they were read from.
    pub fn to_toml(&self) -> String {
        write::toml(self)
    }

    /// All flows of all tables.
    pub fn flow_count(&self) -> u32 {
        self.flows.iter().map(|f| f.count).sum()
    }

    /// The seed of run `k`, 0 being the first.
    pub fn run_seed(&self, k: u32) -> u64 {
        run_seed(self.seed, k)
    }
}

/// The seed of run `k` (0 being the first) of a scenario with `seed`. Run 0 has `seed` itself, so that any recorded run can be
/// repeated alone by giving its seed; the others follow by SplitMix64, cut to the 53 bits that JSON's readers keep.
pub fn run_seed(seed: u64, k: u32) -> u64 {
    if k == 0 {
        return seed;
    }
    let mut z = seed.wrapping_add(u64::from(k).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) >> 11
}

/// One queue and the link behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// What it offers.
    pub rate: Rate,
    /// One way.
    pub delay: Nanos,
    /// How packets leave.
    pub shaper: Shaper,
    /// Link-layer bytes per packet that count at the rate.
    pub overhead: u32,
    /// Packets of plain FIFO below the discipline.
    pub nic: u32,
    /// Random loss behind the queue, 0..1.
    pub loss: f64,
    /// Queue words, checked.
    pub queue: String,
}

/// Which way a flow's data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Through the bottleneck `[link]`.
    Down,
    /// Through `[link.up]`.
    Up,
}

/// A table of like flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// What it sends.
    pub kind: FlowKind,
    /// How many of them.
    pub count: u32,
    /// Base round trip without queuing.
    pub rtt: Nanos,
    /// When the first starts.
    pub start: Nanos,
    /// When it stops; `None`: never.
    pub stop: Option<Nanos>,
    /// Each starts uniformly within this much of `start`.
    pub stagger: Nanos,
    /// Which way the data goes.
    pub direction: Direction,
    /// The first queue of the path that it passes (0 is `[link]`) and the last.
    pub hops: (u32, u32),
    /// Where it goes in a cell.
    pub ends: Option<wifi::Ends>,
}

/// What a flow sends.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowKind {
    /// A TCP transfer.
    Tcp(Tcp),
    /// Packets of `size` bytes of IP at a constant rate, bit/s of IP.
    Cbr {
        /// bit/s of IP packets.
        rate: u64,
        /// Bytes of IP.
        size: u32,
        /// ECN field.
        ecn: bool,
    },
    /// Poisson arrivals.
    Poisson {
        /// Mean bit/s of IP packets.
        rate: u64,
        /// Bytes of IP (the mean if `exponential`).
        size: u32,
        /// Exponentially distributed sizes.
        exponential: bool,
        /// ECN field.
        ecn: bool,
    },
    /// Poisson arrivals whose mean gap alternates.
    OnOff {
        /// How long each on phase lasts.
        on: Nanos,
        /// How long each off phase lasts.
        off: Nanos,
        /// Mean gap while on.
        gap_on: Nanos,
        /// Mean gap while off.
        gap_off: Nanos,
        /// Bytes of IP.
        size: u32,
        /// ECN field.
        ecn: bool,
    },
    /// Short TCP transfers, arriving as a Poisson process.
    Web {
        /// How they are sent.
        tcp: Tcp,
        /// Bytes of each (the mean if `exponential`).
        size: u64,
        /// Exponentially distributed sizes.
        exponential: bool,
        /// Per second.
        arrivals: f64,
    },
}

/// The options of a TCP sender and its receiver; defaults are Linux's.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// Congestion control by name, aliases resolved.
    pub cc: Cc,
    /// Bytes to send; `None`: without end.
    pub bytes: Option<u64>,
    /// ECN negotiated.
    pub ecn: bool,
    /// ECT(1) instead of ECT(0) (default for prague).
    pub ect1: bool,
    /// Payload bytes per segment (1448).
    pub mss: u32,
    /// Initial window, packets (10).
    pub iw: u32,
    /// 200 ms.
    pub min_rto: Nanos,
    /// RTO = max(srtt + 4·rttvar, min_rto) as ns-3, instead of Linux's srtt + max(4·rttvar, min_rto).
    pub rto_ns3: bool,
    /// Segments per ACK (2).
    pub delack: u32,
    /// 40 ms.
    pub delack_timeout: Nanos,
    /// SACK with RACK-TLP; false: NewReno (RFC 6582).
    pub sack: bool,
    /// RFC 3042.
    pub limited_transmit: bool,
    /// Pace as Linux with `fq` below or `SO_MAX_PACING_RATE` set; BBR and Prague do so anyway.
    pub pacing: bool,
    /// Receive window, bytes ("6MB").
    pub buffer: u64,
    /// What the application offers, bit/s; `u64::MAX`: unlimited.
    pub rate: u64,
}

/// Congestion controls with their options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cc {
    /// `newreno` or `reno`.
    NewReno,
    /// `cubic`; with `rfc9438` where Linux differs from the RFC.
    Cubic {
        /// Follow RFC 9438 instead of Linux.
        rfc9438: bool,
    },
    /// `bic` with its β (0.8 as published in LFQ).
    Bic {
        /// Multiplicative decrease.
        beta: f64,
    },
    /// `bbr` (v1).
    Bbr,
    /// `dctcp`.
    Dctcp,
    /// `prague`, which behaves as if its round trip were 15 ms longer.
    Prague {
        /// As if it were 25 ms at least, instead (`rtt_scaling = "rate"`).
        rate_scaling: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quell_qdisc::{MS, SEC};

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
        assert_eq!(link.rate, Rate::Constant(15_000_000));
        assert_eq!(
            (link.delay, link.overhead, link.nic, link.loss),
            (0, 14, 0, 0.0)
        );
        assert_eq!(
            (link.shaper, link.queue.as_str()),
            (Shaper::Line, "fq_codel")
        );
        assert!(s.up.is_none() && s.hops.is_empty() && s.flows.len() == 1);
        let f = &s.flows[0];
        assert_eq!(
            (f.count, f.rtt, f.start, f.stop, f.stagger),
            (4, 20 * MS, 0, None, SEC)
        );
        assert_eq!((f.direction, f.hops), (Direction::Down, (0, 0)));
        let FlowKind::Tcp(t) = &f.kind else { panic!() };
        assert_eq!(t.cc, Cc::Cubic { rfc9438: false });
        assert_eq!((t.mss, t.iw, t.min_rto, t.delack), (1448, 10, 200 * MS, 2));
        assert_eq!(
            (t.delack_timeout, t.buffer, t.rate),
            (40 * MS, 6 << 20, u64::MAX)
        );
        assert!(
            t.sack && t.limited_transmit && !t.ecn && !t.ect1 && !t.rto_ns3 && t.bytes.is_none()
        );
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
        assert_eq!(staggers(RATE, &flows), [SEC, 0, 0, 200 * MS]);
        // A short run is not all beginning.
        let short = format!("duration = \"1s\"\n{RATE}");
        assert_eq!(staggers(&short, &[]), [100 * MS]);
        assert_eq!(staggers(&short, &["cubic:4"]), [100 * MS]);
        // What a file says is taken as it is.
        assert_eq!(staggers(&format!("{RATE}[[flow]]\ncount = 2\n"), &[]), [0]);
    }

    #[test]
    fn flows_of_built_in_scenarios_start_at_different_times_except_in_papers() {
        for built_in in scenarios() {
            let s = parse(built_in.toml).unwrap();
            let paper = ["lfq", "rl-aqm", "l4s"].contains(&built_in.name);
            let kept = |f: &&Flow| matches!(f.kind, FlowKind::Tcp(_) | FlowKind::Cbr { .. });
            for f in s.flows.iter().filter(kept) {
                // datacenter lasts a second: 10 ms are 100 of its round trips.
                let least = match built_in.name {
                    "datacenter" => 10 * MS,
                    _ => SEC,
                };
                assert_eq!(f.stagger >= least, !paper, "{}: {f:?}", built_in.name);
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
                "[link]\nrate = \"1mbit\"\nqueue = \"hfsc\"",
                "home.toml:3: link.queue: unknown queue `hfsc`; known: pfifo",
            ),
            (
                "[link]\nrate = \"1mbit\"\nburst = 1",
                "home.toml:3: link.burst: only a token bucket",
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
                "home.toml:1: seed: \"-1\" is not a whole number; write a whole number from 0 to 9007199254740991",
            ),
            (
                "seeds = -1\n",
                "home.toml:1: seeds: \"-1\" is not a whole number; write a whole number from 1 to 1000000",
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
                "cc = \"bic\"\nbeta = 1",
                "home.toml:5: flow[1].beta: \"1\" is out of range",
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
        let longer = format!(
            "{link}[link.up]\ndelay = \"30ms\"\n[[hop]]\nrate = \"1mbit\"\ndelay = \"1ms\""
        );
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
            (Rate::Constant(2_000_000), Shaper::Line, "pie")
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
        let cbr = FlowKind::Cbr {
            rate: 2_000_000,
            size: 200,
            ecn: false,
        };
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
            (&Rate::Constant(7_000_000), "pie ecn")
        );
        assert!(s.flows.iter().all(|f| f.rtt == 50 * MS));
        assert!(matches!(&s.flows[0].kind, FlowKind::Tcp(t) if t.ecn));
        assert_eq!((s.seeds, s.seed), (2, 9));
    }

    #[test]
    fn bad_overrides_name_themselves_and_no_file() {
        type Case = (fn(&mut Overrides), &'static str);
        let cases: [Case; 11] = [
            (|o| o.rate = Some("x".into()), "rate: \"x\" is not a rate"),
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
    fn without_a_file_it_is_home_and_unknown_names_are_told() {
        assert_eq!(
            Scenario::load(None, &Overrides::default()).unwrap().name,
            "home"
        );
        let e = Scenario::load(Some("sattelite"), &Overrides::default())
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("did you mean `satellite`? Known: home, cable"),
            "{e}"
        );
    }

    #[test]
    fn a_file_that_is_not_text_is_refused_by_line() {
        let dir = std::env::temp_dir().join(format!("quell-scenario-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("bad.toml");
        std::fs::write(&path, b"name = \"x\"\n\xff\xfe").unwrap();
        let e = Scenario::load(path.to_str(), &Overrides::default())
            .unwrap_err()
            .to_string();
        assert!(
            e.ends_with("bad.toml:2: not UTF-8 text; save the file as UTF-8"),
            "{e}"
        );

        // A trace in a file is looked for beside the file.
        std::fs::write(dir.join("cell.up"), "1\n2\n").unwrap();
        std::fs::write(&path, "[link]\ntrace = \"cell.up\"").unwrap();
        let s = Scenario::load(path.to_str(), &Overrides::default()).unwrap();
        assert_eq!(s.link.overhead, 4);
        let again = Scenario::parse(&s.to_toml(), "", &Overrides::default()).unwrap();
        assert_eq!(again, s);
        std::fs::remove_dir_all(&dir).unwrap();
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
            let on = |f: &&Flow| f.start <= t && f.stop.is_some_and(|stop| t < stop);
            s.flows.iter().filter(on).map(|f| f.count).sum()
        };
        let sections: Vec<u32> = (0..9).map(|i| at((2 * i + 1) * 120 * SEC / 18)).collect();
        assert_eq!(sections, [1, 2, 5, 10, 50, 10, 5, 2, 1]); // the paper's Fig. 2
    }

    #[test]
    fn a_schedules_mean_weighs_by_time() {
        let rate = Rate::Schedule([(0, 1_000_000), (SEC, 3_000_000)].into());
        assert_eq!(rate.mean_bps(4 * SEC), 2_500_000);
        assert_eq!(rate.mean_bps(SEC / 2), 1_000_000);
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

    fn fragments() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            proptest::sample::select(vec![
                "[link]",
                "[link.up]",
                "[[flow]]",
                "[[hop]]",
                "[wifi]",
                "rate = \"15mbit\"",
                "kind = \"web\"",
                "delay = \"10ms\"",
                "count = 3",
                "hops = [0, 1]",
                "direction = \"up\"",
                "size = \"exp:1000\"",
                "schedule = [[\"0s\", \"1mbit\"], [\"1s\", \"2mbit\"]]",
                "shaper = \"htb\"",
                "trace = \"builtin:lte\"",
                "kind = \"cbr\"",
                "kind = \"onoff\"",
                "kind = \"poisson\"",
                "cc = \"bic\"",
                "ecn = true",
                "stop = \"7s\"",
            ])
            .prop_map(str::to_owned),
            "(rate|rtt|count|size|loss|seeds|duration|queue|cc|kind|x) = (\"|)[0-9a-z.\\-]{0,12}(\"|)",
            ".{0,20}",
        ];
        proptest::collection::vec(line, 0..8)
            .prop_map(|l| format!("[link]\nrate = \"1mbit\"\n{}", l.join("\n")))
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics_and_what_reads_reads_back(text in fragments()) {
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
}
