//! Compares the disciplines written in C for the kernel with those in Rust: for the same arrivals,
//! the fate of every packet.
//!
//! The C compiler `cc`, or the one that the environment variable `CC` names, builds them for this
//! machine.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use quell_qdisc::codel::{self, Codel};
use quell_qdisc::control::rlaqm::{self, RlAqm};
use quell_qdisc::fq_codel::{self, FqCodel};
use quell_qdisc::hush::{self, Hush, Model, fixed, model::FEATURES, model::Row};
use quell_qdisc::packet::TestPacket;
use quell_qdisc::policy::Policy;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS, US};
use quell_qdisc::{Dequeued, Discipline, DropCause, Ecn, Rng};

/// A call of a queue: an arrival (time, bytes, flow hash, ECN field) or a dequeue (time).
#[derive(Clone, Copy)]
enum Event {
    Arrival(Instant, u32, u32, Ecn),
    Dequeue(Instant),
}

/// Arguments of the program in C: limit (packets), flags, target (ns), interval (ns).
type Knobs = [u64; 4];
const ECN: u64 = 1;
const MARK_NEXT: u64 = 2;
/// Marks, flows, rate (bytes/s), round trip, target, wait, hold, cap (all ns), idle share (2^-30),
/// trusted (0 or 1).
type Gauges = [u64; 10];

/// Builds `drive.c` of `tests/bpf/` with the discipline in `bpf/{header}.h`.
fn build_discipline(header: &str) -> PathBuf {
    let discipline = format!("-DDISCIPLINE=\"../../bpf/{header}.h\"");
    build("drive.c", header, &[discipline])
}

/// Builds `network.c` of `tests/bpf/`. Each test builds a program of its own, since tests run at
/// the same time.
fn build_network(name: &str) -> PathBuf {
    build("network.c", name, &[])
}

/// Builds a source of `tests/bpf/`; the program's name contains `name`.
fn build(source: &str, name: &str, options: &[String]) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bpf");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-in-c"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"])
        .args(options)
        .arg("-o")
        .args([&program, &tests.join(source)])
        .status()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(status.success(), "{compiler} cannot build {source}: {name}");
    program
}

/// Runs a program with these arguments and this standard input; returns its standard output.
fn output(program: &Path, args: &[u64], input: String) -> String {
    let mut child = Command::new(program)
        .args(args.iter().map(u64::to_string))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// The fates in C, one per line; see `tests/bpf/drive.c` for the format.
fn fates_in_c(program: &Path, knobs: Knobs, events: &[Event]) -> String {
    let mut input = String::new();
    for event in events {
        match *event {
            Event::Arrival(now, bytes, hash, ecn) => {
                writeln!(input, "a {now:?} {bytes} {hash} {}", ecn.bits()).unwrap();
            }
            Event::Dequeue(now) => writeln!(input, "d {now:?}").unwrap(),
        }
    }
    output(program, &knobs, input)
}

/// Numbers of packets that were dropped and marked with one setting, over all sequences.
#[derive(Debug, Default)]
struct Acts {
    drops: usize,
    marks: usize,
    overflows: usize,
    /// Dequeues while hush's policy was not trusted; meaningless for other disciplines.
    stand_in: usize,
}

/// The fates in Rust, in the same format; `gauges` are the numbers that follow packets and bytes in
/// a `g` line.
fn fates_in_rust<Q: Discipline<TestPacket>>(
    mut queue: Q,
    gauges: impl Fn(&Q) -> Gauges,
    events: &[Event],
    acts: &mut Acts,
) -> String {
    let mut rng = Rng::new(1, "queue");
    let mut drops: Vec<(TestPacket, DropCause)> = Vec::new();
    let (mut fates, mut sent) = (String::new(), Vec::new());
    for event in events {
        let got = match *event {
            Event::Arrival(now, bytes, hash, ecn) => {
                let packet = TestPacket::new(sent.len() as u64, bytes, hash, ecn);
                sent.push(ecn);
                queue.enqueue(now, packet, &mut rng, &mut drops);
                None
            }
            Event::Dequeue(now) => Some(queue.dequeue(now, &mut rng, &mut drops)),
        };
        for (packet, cause) in drops.drain(..) {
            let overflow = cause == DropCause::Overflow;
            acts.overflows += usize::from(overflow);
            acts.drops += usize::from(!overflow);
            writeln!(fates, "{} {}", if overflow { 'o' } else { 'x' }, packet.id).unwrap();
        }
        let Some(got) = got else { continue };
        match got {
            Dequeued::Packet(packet) => {
                let marked = packet.ecn == Ecn::Ce && sent[packet.id as usize] != Ecn::Ce;
                acts.marks += usize::from(marked);
                writeln!(fates, "{} {}", if marked { 'm' } else { 's' }, packet.id).unwrap();
            }
            _ => writeln!(fates, "-").unwrap(),
        }
        let numbers = [queue.len() as u64, queue.bytes()].into_iter();
        let numbers: Vec<_> = numbers
            .chain(gauges(&queue))
            .map(|n| n.to_string())
            .collect();
        writeln!(fates, "g {}", numbers.join(" ")).unwrap();
    }
    fates
}

fn assert_same(ours: &str, theirs: &str, what: &str) {
    let pairs = ours.lines().zip(theirs.lines()).enumerate();
    if let Some((line, (a, b))) = pairs.into_iter().find(|(_, (a, b))| a != b) {
        panic!("{what}, line {}: {a} here, {b} in C", line + 1);
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
}

/// A link with 60 phases of overload, light load and pause, each with its own load and number of
/// flows: about 20 s, or about 400 s on the slowest link. With odd seeds times are whole
/// milliseconds, so that some packets leave when the delay has been above target for exactly one
/// interval.
fn events(seed: u64, ecn: bool) -> Vec<Event> {
    let mut rng = Rng::new(seed, "arrivals");
    let mut events = Vec::new();
    let grid = if seed % 2 == 1 { MS.as_nanos() } else { 1 };
    // Time per packet: 100 to 1.2 Mbit/s in packets of 1500 bytes, and 20 kbit/s, at which hush's
    // guard suspends its policy.
    let gap = [120 * US, 500 * US, 2 * MS, 10 * MS, 600 * MS][(seed / 2 % 5) as usize];
    let slower = gap.as_nanos().div_ceil(30 * MS.as_nanos());
    let hashes: Vec<u32> = (0..2000).map(|_| rng.u32()).collect();
    let mut now = MS * 1000;
    for _ in 0..60 {
        let flows = [1, 2, 5, 30, 300, 2000][rng.below(6) as usize];
        // In one of ten phases there is no dequeue until its end; that dequeue may then drop many
        // packets.
        let pause = rng.below(10) == 0;
        let load = 3 + rng.below(20);
        let end = now + slower * MS * (50 + rng.below(600));
        let (mut arrival, mut departure) = (now, now);
        while now < end {
            now = arrival.min(if pause { end } else { departure });
            let at = Instant::from_nanos(now.as_nanos().next_multiple_of(grid));
            if now == arrival {
                let kind = rng.below(12);
                let bytes = match kind {
                    0 => 40 + rng.below(60),
                    1 => 5000 + rng.below(60_000),
                    2..4 => 100 + rng.below(1400),
                    _ => 1500,
                };
                let bits = [0, 1, 2, 2, 3][rng.below(5) as usize];
                let field = Ecn::from_bits(if ecn { bits } else { 0 });
                let hash = hashes[rng.below(flows) as usize];
                events.push(Event::Arrival(at, bytes as u32, hash, field));
                let mean = 10 * gap / load * if kind == 1 { 20 } else { 1 };
                arrival += Duration::from_nanos(1 + rng.below((2 * mean).as_nanos()));
            } else {
                events.push(Event::Dequeue(at));
                departure += gap / 2 + Duration::from_nanos(rng.below(gap.as_nanos()));
            }
        }
    }
    events
}

/// Compares C and Rust on ten sequences for each of `settings`, and returns the drops and marks
/// with each. `make` builds the discipline in Rust from the knobs.
fn compare<Q: Discipline<TestPacket>>(
    header: &str,
    settings: &[Knobs],
    make: impl Fn(Knobs) -> Q,
    gauges: impl Fn(&Q) -> Gauges + Copy,
) -> Vec<Acts> {
    let program = build_discipline(header);
    let mut all: Vec<Acts> = settings.iter().map(|_| Acts::default()).collect();
    for seed in 0..10 {
        for (knobs, acts) in settings.iter().zip(&mut all) {
            let events = events(seed, knobs[1] != 0);
            let ours = fates_in_rust(make(*knobs), gauges, &events, acts);
            let theirs = fates_in_c(&program, *knobs, &events);
            let stand_in = |line: &&str| line.starts_with('g') && line.ends_with(" 0");
            acts.stand_in += ours.lines().filter(stand_in).count();
            assert_same(&ours, &theirs, &format!("{header} {knobs:?}, seed {seed}"));
        }
    }
    all
}

/// Checks that with each setting at least these numbers of packets were dropped by the law, marked
/// (if it marks) and dropped because of the limit (if that is low). With fewer, the sequences would
/// exercise too little of the law.
fn assert_exercised(settings: &[Knobs], all: &[Acts], [drops, marks, overflows]: [usize; 3]) {
    for (knobs, acts) in settings.iter().zip(all) {
        let [limit, flags, ..] = *knobs;
        assert!(acts.drops >= drops, "{knobs:?}: {acts:?}");
        assert!(
            limit > 300 || acts.overflows >= overflows,
            "{knobs:?}: {acts:?}"
        );
        match flags {
            0 => assert_eq!(acts.marks, 0, "{knobs:?}"),
            _ => assert!(acts.marks >= marks, "{knobs:?}: {acts:?}"),
        }
    }
}

fn codel_params([limit, flags, target, interval]: Knobs) -> codel::Params {
    codel::Params {
        target: Duration::from_nanos(target),
        interval: Duration::from_nanos(interval),
        limit: limit as u32,
        ecn: flags & ECN != 0,
        ..codel::Params::default()
    }
}

/// Without and with ECN: CoDel's defaults, then a low limit, target and interval.
const SETTINGS: [Knobs; 4] = [
    [1000, 0, 5 * MS.as_nanos(), 100 * MS.as_nanos()],
    [300, 0, MS.as_nanos(), 10 * MS.as_nanos()],
    [1000, ECN, 5 * MS.as_nanos(), 100 * MS.as_nanos()],
    [300, ECN, MS.as_nanos(), 10 * MS.as_nanos()],
];

#[test]
fn codel_in_c_gives_each_packet_the_fate_that_quell_gives_it() {
    let make = |knobs| Codel::new(codel_params(knobs));
    let gauges = |q: &Codel<TestPacket>| [q.stats().marks, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let all = compare("codel_fifo", &SETTINGS, make, gauges);
    assert_exercised(&SETTINGS, &all, [200, 500, 5000]);
}

#[test]
fn fq_codel_in_c_gives_each_packet_the_fate_that_quell_gives_it() {
    let make = |knobs: Knobs| {
        FqCodel::new(fq_codel::Params {
            limit: knobs[0] as u32,
            codel: codel_params(knobs),
            ..fq_codel::Params::default()
        })
    };
    let gauges = |q: &FqCodel<TestPacket>| {
        let flows = q.flows().map_or(0, |flows| flows.count() as u64);
        [q.stats().marks, flows, 0, 0, 0, 0, 0, 0, 0, 0]
    };
    let all = compare("fq_codel", &SETTINGS, make, gauges);
    assert_exercised(&SETTINGS, &all, [200, 500, 5000]);
}

/// Adds a table in C of at least `length` elements; C fills the rest with zeros.
fn list(text: &mut String, name: &str, kind: &str, length: usize, numbers: &[i64]) {
    let length = length.max(numbers.len());
    write!(text, "\nstatic const {kind} {name}[{length}] = {{").unwrap();
    for (i, number) in numbers.iter().enumerate() {
        let before = if i % 9 == 0 { "\n    " } else { " " };
        write!(text, "{before}{number},").unwrap();
    }
    text.push_str("\n};\n");
}

/// The text of `bpf/hush_numbers.h`: the tables of `src/disciplines/hush/fixed.rs` and the shipped
/// model.
fn hush_numbers() -> String {
    let mut text = format!(
        "/* Written by `QUELL_WRITE=1 cargo test -p quell-qdisc --test it bpf`, from src/disciplines/hush/fixed.rs and shipped.txt. */\n\
         #ifndef QUELL_HUSH_NUMBERS_H\n#define QUELL_HUSH_NUMBERS_H\n\nenum {{ HUSH_FEATURES = {FEATURES} }};\n",
    );
    let table = |table: [u64; fixed::STEPS + 1]| table.map(|n| n as i64);
    list(
        &mut text,
        "POWERS",
        "unsigned int",
        0,
        &table(fixed::POWERS),
    );
    list(&mut text, "LOGS", "unsigned int", 0, &table(fixed::LOGS));
    let model = Model::shipped();
    let row = |row: &Row| row.map(i64::from);
    list(&mut text, "HUSH_TARGET", "int", 0, &row(&model.target));
    list(&mut text, "HUSH_WAIT", "int", 0, &row(&model.wait));
    list(&mut text, "HUSH_HOLD", "int", 0, &row(&model.hold));
    list(&mut text, "HUSH_CAP", "int", 0, &row(&model.cap));
    list(&mut text, "HUSH_STEP", "int", 0, &row(&model.step));
    list(&mut text, "HUSH_DRY", "int", 0, &model.dry.map(i64::from));
    let numbers = [
        ("POWER", model.power),
        ("LONGEST", model.longest),
        ("WINDOW", model.window),
        ("SERVICE", model.service),
        ("STEADY", model.steady),
        ("KAPPA", model.kappa),
        ("LEAD", model.lead),
        ("OWN", model.own),
        ("GAIN", model.gain),
        ("FALLS", model.falls),
        ("RISES", model.rises),
    ];
    text.push('\n');
    for (name, number) in numbers {
        writeln!(text, "#define HUSH_{name} {number}").unwrap();
    }
    text.push_str("\n#endif\n");
    text
}

/// Compares a generated header with the one in `bpf/`; writes it first if `QUELL_WRITE` is set.
fn assert_header(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf").join(name);
    if std::env::var_os("QUELL_WRITE").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == text,
        "bpf/{name} has other numbers; write it with QUELL_WRITE=1 cargo test -p quell-qdisc --test it bpf"
    );
}

#[test]
fn the_numbers_in_c_are_those_that_quell_ships() {
    assert_header("hush_numbers.h", &hush_numbers());
    assert_header("rlaqm_numbers.h", &rlaqm_numbers());
}

#[test]
fn hush_in_c_gives_each_packet_the_fate_that_quell_gives_it() {
    let make = |[limit, flags, ..]: Knobs| {
        Hush::new(hush::Params {
            limit: limit as u32,
            ecn: flags != 0,
            mark_next: flags & MARK_NEXT != 0,
            ..hush::Params::default()
        })
    };
    let gauges = |q: &Hush<TestPacket>| {
        let (link, s) = (q.link(), q.settings());
        let trusted = q.policy().is_none_or(|p| p.trusted);
        [
            q.marks(),
            link.flows().into(),
            link.rate().bytes_per_sec(),
            link.round_trip().as_nanos(),
            s.target.as_nanos(),
            s.wait.as_nanos(),
            s.hold.as_nanos(),
            s.cap.as_nanos(),
            link.idle() as u64,
            trusted.into(),
        ]
    };
    let settings = [
        [10_240, 0, 5 * MS.as_nanos(), 100 * MS.as_nanos()],
        [300, 0, 5 * MS.as_nanos(), 100 * MS.as_nanos()],
        [10_240, ECN, 5 * MS.as_nanos(), 100 * MS.as_nanos()],
        [300, ECN, 5 * MS.as_nanos(), 100 * MS.as_nanos()],
        [10_240, MARK_NEXT, 5 * MS.as_nanos(), 100 * MS.as_nanos()],
        [300, MARK_NEXT, 5 * MS.as_nanos(), 100 * MS.as_nanos()],
    ];
    let all = compare("hush", &settings, make, gauges);
    assert_exercised(&settings, &all, [4000, 50, 10_000]);
    // The sequences also exercise fq_codel's law, with which the guard replaces the policy.
    assert!(all.iter().all(|acts| acts.stand_in > 200), "{all:?}");
}

/// The contents of the file with the network that quell ships for `rlaqm`.
fn network() -> Vec<u8> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../quell-link/models");
    std::fs::read(models.join("rl-aqm.safetensors")).unwrap()
}

/// The text of `bpf/rlaqm_numbers.h`: for each layer the weights, row by row, then the biases, in
/// units of 2^-16.
fn rlaqm_numbers() -> String {
    let bytes = network();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut numbers = Vec::new();
    for layer in ["layers.0", "layers.1", "layers.2", "heads.0"] {
        for part in ["weight", "bias"] {
            let tensor = file.tensor(&format!("{layer}.{part}")).unwrap();
            let floats = tensor.data().chunks_exact(4);
            let floats = floats.map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            numbers.extend(floats.map(|w| (f64::from(w) * 65_536.0).round() as i64));
        }
    }
    assert_eq!(numbers.len(), 1361);
    let mut text = String::from(
        "/* Written by `QUELL_WRITE=1 cargo test -p quell-qdisc --test it bpf`, from models/rl-aqm.safetensors. */\n\
         #ifndef QUELL_RLAQM_NUMBERS_H\n#define QUELL_RLAQM_NUMBERS_H\n\n\
         /* 1,361 weights with 16 bits behind the point, and zeros up to a power of 2. */\n",
    );
    list(&mut text, "RLAQM_WEIGHTS", "int", 2048, &numbers);
    text.push_str("\n#endif\n");
    text
}

/// The number of lines that are equal in both, and the number of all lines.
fn same(ours: &[String], theirs: &str) -> (usize, usize) {
    let theirs: Vec<&str> = theirs.lines().collect();
    assert_eq!(ours.len(), theirs.len());
    let same = ours.iter().zip(&theirs).filter(|(a, b)| a == b).count();
    (same, ours.len())
}

#[test]
fn the_network_of_rlaqm_in_integers_takes_the_action_of_the_one_in_floating_point() {
    let policy = Policy::load("rl-aqm", &network()).unwrap();
    let mut scratch = policy.scratch();
    let mut rng = Rng::new(1, "inputs");
    let (mut input, mut ours, mut taken) = (String::new(), Vec::new(), [0; 5]);
    for _ in 0..5000 {
        // Delays log-uniform from 1 ms to 1 s.
        let us = (1000.0 * libm::pow(1000.0, rng.f64())) as u64;
        let (used, hundredths) = (rng.below(65_537), rng.below(51));
        let state = [
            us as f32 / 1e3,
            used as f32 / 65_536.0,
            hundredths as f32 / 100.0,
        ];
        let values = policy.forward(&state, &mut scratch);
        let best = (1..5).fold(0, |b, i| if values[i] > values[b] { i } else { b });
        taken[best] += 1;
        ours.push(best.to_string());
        writeln!(input, "n {us} {used} {hundredths}").unwrap();
    }
    let program = build_network("rlaqm");
    let theirs = output(&program, &[], input);
    assert_eq!(same(&ours, &theirs), (5000, 5000));
    assert!(taken.iter().filter(|n| **n > 50).count() >= 3, "{taken:?}");
}

#[test]
fn rlaqm_in_c_sets_the_probability_that_quell_sets() {
    let policy = Policy::load("rl-aqm", &network()).unwrap();
    let mut rng = Rng::new(2, "gauges");
    let mut controller = RlAqm::new(rlaqm::Params::default(), policy).unwrap();
    let (mut input, mut ours) = (String::new(), Vec::new());
    let (mut departed, mut delay_ms, mut rate) = (0, 10.0, 1_000_000);
    for k in 1..=5000 {
        // The delay changes at random within 0.2 to 800 ms, the link is busy for 50 to 100 % of
        // each 20 ms, and in one of 500 periods the rate changes (0.1 to 12.8 MB/s).
        delay_ms = (delay_ms * (0.7 + 0.65 * rng.f64())).clamp(0.2, 800.0);
        if rng.below(500) == 0 {
            rate = 100_000 << rng.below(8);
        }
        let backlog_bytes = (delay_ms * rate as f64 / 1e3) as u64;
        departed += rate / 50 - rng.below(rate / 100);
        let now = k * 20 * MS;
        let gauges = quell_qdisc::Gauges {
            now: Instant::ZERO + now,
            backlog_bytes,
            departed_bytes: departed,
            rate: Rate::from_bytes_per_sec(rate),
            ..quell_qdisc::Gauges::default()
        };
        controller.step(&gauges, &mut rng);
        ours.push(format!("{:.0}", controller.drop() * 100.0));
        writeln!(input, "g {now:?} {backlog_bytes} {departed} {rate}").unwrap();
    }
    let program = build_network("rlaqm_turns");
    let theirs = output(&program, &[], input);
    assert_eq!(same(&ours, &theirs), (5000, 5000));
    let levels: std::collections::BTreeSet<_> = ours.iter().collect();
    assert!(levels.len() > 5, "{levels:?}");
}

/// The queue in C is called only when packets arrive and leave, the controller in Rust every 20 ms.
/// The bursts are 20.3 ms apart, as those of flows with a round trip just above 20 ms.
#[test]
fn rlaqm_in_c_decides_on_what_was_queued_when_its_decision_was_due() {
    let policy = Policy::load("rl-aqm", &network()).unwrap();
    let mut rng = Rng::new(3, "bursts");
    let mut controller = RlAqm::new(rlaqm::Params::default(), policy).unwrap();
    let (mut input, mut ours, mut levels) = (String::new(), Vec::new(), [0; 51]);
    let (rate, packet) = (1_000_000, 1500);
    let (mut backlog_bytes, mut departed_bytes, mut decide_at) = (0, 0, Instant::from_millis(20));
    let mut event = |now: Instant, backlog: &mut u64, departed: &mut u64, arrives: bool| {
        while decide_at <= now {
            let gauges = quell_qdisc::Gauges {
                now: decide_at,
                backlog_bytes: *backlog,
                departed_bytes: *departed,
                rate: Rate::from_bytes_per_sec(rate),
                ..quell_qdisc::Gauges::default()
            };
            controller.step(&gauges, &mut rng);
            decide_at += 20 * MS;
        }
        let hundredths = libm::round(controller.drop() * 100.0) as usize;
        levels[hundredths] += 1;
        ours.push(hundredths.to_string());
        writeln!(input, "g {now:?} {backlog} {departed} {rate}").unwrap();
        if arrives {
            *backlog += packet;
        } else {
            *backlog -= packet;
            *departed += packet;
        }
    };
    for burst in 0..2000u64 {
        // A packet takes 1.5 ms. A burst has 4 to 17 packets, so after some bursts packets are
        // queued when the next one arrives.
        let start = 7 * MS + burst * 20_300 * US;
        for _ in 0..4 + burst / 7 % 14 {
            event(
                Instant::ZERO + start,
                &mut backlog_bytes,
                &mut departed_bytes,
                true,
            );
        }
        let mut at = start;
        while backlog_bytes > 0 && at < start + 20_300 * US {
            event(
                Instant::ZERO + at,
                &mut backlog_bytes,
                &mut departed_bytes,
                false,
            );
            at += 1500 * US;
        }
    }
    let program = build_network("rlaqm_due");
    let theirs = output(&program, &[], input);
    let (alike, all) = same(&ours, &theirs);
    assert_eq!(alike, all);
    assert!(
        levels.iter().filter(|n| **n > 100).count() >= 5,
        "{levels:?}"
    );
}
