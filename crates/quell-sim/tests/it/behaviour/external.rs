//! Disciplines, controllers and congestion controls from another crate.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use quell_link::Queue;
use quell_link::record::Run;
use quell_qdisc::control::{Control, SubQueue};
use quell_qdisc::fifo::{self, Fifo};
use quell_qdisc::outside::Handle;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS};
use quell_qdisc::{
    ControlledKnobs, Dequeued, Discipline, Drops, Gauges, KnobSet, Knobs, Qdisc, Rng,
};
use quell_sim::cc::EcnMode;
use quell_sim::cc::outside::{Acked, Cause, Congestion, Sign};
use quell_sim::scenario::{Cc, Scenario};
use quell_sim::{RunOptions, Session, World};

use super::common::{near, scenario, world};

/// One of quell's own disciplines as if it came from another crate.
fn from_outside(words: &str) -> Queue {
    let own = Queue::parse(words).expect("words");
    Queue::outside("own", move |rate| {
        Qdisc::<Handle>::new(own.build(rate).queue)
    })
    .expect("a name")
}

fn measure(scenario: Scenario, queue: &Queue, seed: u64) -> Run {
    let world = World::builder(scenario)
        .queue(queue)
        .seed(seed)
        .series(100 * MS)
        .build()
        .expect("a world");
    let session = Session::new(world, &RunOptions::default()).expect("a session");
    let mut run = session.complete(&AtomicBool::new(false)).expect("a run");
    for queue in run.wifi.iter_mut().flat_map(|wifi| &mut wifi.queues) {
        queue.queue.clear();
    }
    // CPU time and the queue's name differ.
    Run {
        cpu_s: 0.0,
        packets_per_cpu_s: 0.0,
        queue: String::new(),
        ..run
    }
}

fn same(words: &str, text: &str, seed: u64) {
    let own = measure(scenario(text), &Queue::parse(words).expect("words"), seed);
    let external = measure(scenario(text), &from_outside(words), seed);
    assert_eq!(own.trace_hash, external.trace_hash, "{words}, {text}");
    assert!(own == external, "{words}, {text}: the records differ");
    assert!(own.packets > 20);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_discipline_from_outside_leaves_the_same_trace_as_inside(
        mbit in 1u32..40,
        rtt in 2u32..80,
        flows in prop::collection::vec((prop::sample::select(vec!["cubic", "reno", "bbr", "prague", "dctcp"]), any::<bool>()), 1..5),
        shaper in prop::sample::select(vec!["line", "htb"]),
        up in any::<bool>(),
        seed in 1u64..1000,
    ) {
        let mut text = format!("duration = \"3s\"\nwarmup = \"500ms\"\n[link]\nrate = \"{mbit}mbit\"\nshaper = \"{shaper}\"\n");
        if up {
            text += "[link.up]\nrate = \"1mbit\"\nqueue = \"pie\"\n";
        }
        for (cc, ecn) in flows {
            text += &format!("[[flow]]\ncc = \"{cc}\"\nrtt = \"{rtt}ms\"\necn = {ecn}\n");
        }
        for words in ["codel", "fq_codel limit 60", "dualpi2"] {
            same(words, &text, seed);
        }
    }
}

#[test]
fn an_external_discipline_leaves_the_same_trace_in_a_cell_on_a_path_and_on_a_traced_link() {
    for words in ["codel", "fq_codel", "dualpi2", "l4s", "pie ecn", "cake"] {
        for text in [
            "duration = \"2s\"\nwarmup = \"500ms\"\n[wifi]\nstations = 2\n[[flow]]\n",
            "duration = \"2s\"\nwarmup = \"500ms\"\n[link]\nrate = \"9mbit\"\nnic = 5\nloss = 0.01\n[[hop]]\nrate = \"7mbit\"\n[[flow]]\n",
            "duration = \"2s\"\nwarmup = \"500ms\"\n[link]\ntrace = \"builtin:lte\"\n[[flow]]\n[[flow]]\nkind = \"web\"\n",
        ] {
            same(words, text, 5);
        }
    }
}

#[test]
fn a_clone_of_a_world_with_an_external_discipline_continues_alike() {
    let text = "duration = \"4s\"\n[link]\nrate = \"5mbit\"\n[[flow]]\nkind = \"web\"\n[[flow]]\ncount = 3\n";
    let mut one = World::builder(scenario(text))
        .queue(from_outside("fq_codel"))
        .seed(3)
        .build()
        .expect("a world");
    one.run_until(Instant::from_secs(1));
    let mut two = one.clone();
    for at in [2, 3, 4] {
        one.run_until(Instant::from_secs(at));
        two.run_until(Instant::from_secs(at));
        assert_eq!(one.trace_hash(), two.trace_hash());
    }
    assert!(one.packets() > 500);
}

/// A FIFO that loses its hundredth packet.
#[derive(Clone, Debug)]
struct Leaky {
    fifo: Fifo<Handle>,
    arrivals: u32,
}

impl Discipline<Handle> for Leaky {
    fn enqueue<D: Drops<Handle>>(
        &mut self,
        now: Instant,
        packet: Handle,
        rng: &mut Rng,
        drops: &mut D,
    ) {
        self.arrivals += 1;
        if self.arrivals != 100 {
            self.fifo.enqueue(now, packet, rng, drops);
        }
    }
    fn dequeue<D: Drops<Handle>>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Dequeued<Handle> {
        self.fifo.dequeue(now, rng, drops)
    }
    fn len(&self) -> usize {
        self.fifo.len()
    }
    fn bytes(&self) -> u64 {
        self.fifo.bytes()
    }
}

#[test]
fn a_queue_that_loses_packets_ends_the_run_with_one_line() {
    let leaky = Queue::outside("Leaky", |_| Leaky {
        fifo: Fifo::new(fifo::Params::default()),
        arrivals: 0,
    });
    let text = "duration = \"60s\"\n[link]\nrate = \"5mbit\"\n[[flow]]\n";
    let run = |bin| {
        let world = World::builder(scenario(text))
            .queue(leaky.as_ref().expect("a name"))
            .seed(3)
            .series(bin)
            .build()
            .expect("a world");
        let mut session = Session::new(world, &RunOptions::default()).expect("a session");
        let mut asked = 0;
        let mut poll = || {
            asked += 1;
            Ok(())
        };
        let e = session
            .run_to_decision(&mut poll)
            .expect_err("a failure")
            .to_string();
        // The run ends at once, not after 60 s: a hundred packets of 1514 bytes take a quarter of a
        // second.
        assert!(
            session.world.now() < Instant::from_secs(1) && asked < 50,
            "{asked}"
        );
        e
    };
    let e = run(None);
    assert!(e.starts_with("Leaky reports ") && !e.contains('\n'), "{e}");
    assert_eq!(run(Some(MS)), e);
}

/// Limits the queue to ten packets at first, and to one packet less after each second.
#[derive(Clone, Debug)]
struct Steady;

impl Control for Steady {
    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn initial(&mut self) -> Knobs {
        limit(10)
    }
    fn decide(&mut self, gauges: &Gauges, _: &mut [SubQueue], _: &mut Rng) -> Knobs {
        limit(gauges.limit_packets - 1)
    }
    fn knobs(&self) -> ControlledKnobs {
        ControlledKnobs::of_queue(KnobSet::LIMIT)
    }
}

fn limit(packets: u32) -> Knobs {
    Knobs {
        limit_packets: Some(packets),
        ..Knobs::KEEP
    }
}

#[test]
fn a_controller_from_outside_turns_the_knobs_and_the_record_names_it() {
    let text = "duration = \"4s\"\nwarmup = \"0s\"\n[link]\nrate = \"5mbit\"\nqueue = \"fifo\"\n[[flow]]\nstart = \"1ms\"\n";
    let mut w = world(text);
    w.set_controller(0, Box::new(Steady))
        .expect("a FIFO has a limit");
    while w.run_until(Instant::from_secs(4)) != quell_sim::Status::Done {}
    let run = w.record(0.0);
    assert_eq!(run.controller.as_deref(), Some("Steady"));
    // The limit is 10, 9, 8 and 7 packets for a second each.
    near(run.limit_packets.expect("a moved limit"), 8.5, 1e-9);
    let e = world(&text.replace("fifo", "cake")).set_controller(0, Box::new(Steady));
    assert_eq!(
        e.unwrap_err().to_string(),
        "`cake` has no knob limit; it has none"
    );
    let path = format!(
        "{text}[[hop]]\nrate = \"3mbit\"\nqueue = \"cake\"\n[link.up]\nrate = \"1mbit\"\nqueue = \"red\"\n"
    );
    for (queue, words) in [(1, "cake"), (2, "red")] {
        let e = world(&path)
            .set_controller(queue, Box::new(Steady))
            .unwrap_err();
        assert_eq!(
            e.to_string(),
            format!("`{words}` has no knob limit; it has none")
        );
    }
    let e = world(text).set_controller(1, Box::new(Steady)).unwrap_err();
    assert_eq!(e.to_string(), "there is no queue 1; choose 0, the only one");
}

/// Additive increase, multiplicative decrease; records all calls.
#[derive(Clone, Debug)]
struct Aimd {
    window: f64,
    slow_start: bool,
    ecn: EcnMode,
    rate: Option<Rate>,
    notes: Arc<Mutex<Notes>>,
}

#[derive(Debug, Default)]
struct Notes {
    iw: u32,
    acks: Vec<Acked>,
    signs: Vec<Sign>,
    spurious: u32,
}

impl Congestion for Aimd {
    fn window(&self) -> u32 {
        self.window as u32
    }
    fn pacing_rate(&self) -> Option<Rate> {
        self.rate
    }
    fn ecn(&self) -> EcnMode {
        self.ecn
    }
    fn on_start(&mut self, _: Instant, window: u32, mss: u32) {
        assert_eq!(mss, 1448);
        self.window = f64::from(window);
        self.notes.lock().unwrap().iw = window;
    }
    fn on_ack(&mut self, ack: &Acked) {
        self.notes.lock().unwrap().acks.push(*ack);
        if ack.window_limited && !ack.reducing {
            let delivered = f64::from(ack.delivered);
            self.window += if self.slow_start {
                delivered
            } else {
                delivered / self.window
            };
        }
    }
    fn on_congestion(&mut self, sign: &Sign) {
        self.notes.lock().unwrap().signs.push(*sign);
        self.slow_start = sign.cause == Cause::Timeout;
        self.window = match sign.cause {
            Cause::Timeout => 1.0,
            _ => (self.window / 2.0).max(2.0),
        };
    }
    fn on_spurious(&mut self, window: u32) {
        self.notes.lock().unwrap().spurious += 1;
        self.window = self.window.max(f64::from(window));
    }
}

fn aimd(ecn: EcnMode, rate: Option<Rate>) -> (Cc, Arc<Mutex<Notes>>) {
    let notes = Arc::new(Mutex::new(Notes::default()));
    let kept = notes.clone();
    let cc = Cc::outside("aimd", move || Aimd {
        window: 10.0,
        slow_start: true,
        ecn,
        rate,
        notes: kept.clone(),
    });
    (cc, notes)
}

/// A minute at 10 Mbit/s with one flow that has this congestion control.
fn with(cc: &Cc, queue: &str, flow: &str) -> Run {
    let mut s = scenario(&format!(
        "duration = \"60s\"\nwarmup = \"0s\"\n[link]\nrate = \"10mbit\"\n[[flow]]\ncount = 1\nrtt = \"40ms\"\n{flow}"
    ));
    for tcp in s.flows.iter_mut().filter_map(|flow| flow.kind.tcp_mut()) {
        tcp.cc = cc.clone();
    }
    assert!(s.to_toml().contains(&format!("cc = \"{}\"", cc.name())));
    measure(s, &Queue::parse(queue).expect("words"), 1)
}

#[test]
fn a_congestion_control_from_outside_does_as_newreno_does() {
    let (cc, notes) = aimd(EcnMode::Classic, None);
    let own = with(&Cc::NewReno, "pfifo limit 40", "");
    let external = with(&cc, "pfifo limit 40", "");
    assert_eq!(external.flows[0].cc, "aimd");
    near(external.goodput_mbps, own.goodput_mbps, 0.1);
    near(
        external.flows[0].cwnd_packets,
        own.flows[0].cwnd_packets,
        2.0,
    );
    near(external.sojourn_ms.mean, own.sojourn_ms.mean, 3.0);
    let notes = notes.lock().unwrap();
    assert_eq!(notes.iw, 10);
    assert!(
        notes.signs.iter().all(|s| s.cause == Cause::Loss) && notes.signs.len() > 3,
        "{:?}",
        notes.signs
    );
    // There is at most one reduction per round trip, and `delivered` adds up to the goodput.
    assert!(
        notes
            .signs
            .windows(2)
            .all(|w| w[1].now - w[0].now > 40 * MS)
    );
    let delivered: u32 = notes.acks.iter().map(|a| a.delivered).sum();
    near(
        f64::from(delivered) * 1448.0 * 8e-6 / 60.0,
        external.goodput_mbps,
        0.3,
    );
    let lost: u32 = notes.acks.iter().map(|a| a.lost).sum();
    assert_eq!(u64::from(lost), external.flows[0].retransmits);
    for ack in &notes.acks {
        assert!(
            ack.min_rtt >= 40 * MS && ack.rtt.is_none_or(|rtt| rtt >= ack.min_rtt),
            "{ack:?}"
        );
        // The rates are below 10 Mbit/s, as only 1448 of 1514 bytes are payload.
        assert!(
            ack.rate.is_none_or(|r| r < Rate::from_mbit(10)) && ack.marked == 0,
            "{ack:?}"
        );
    }
    let best = notes
        .acks
        .iter()
        .filter_map(|a| a.rate)
        .max()
        .expect("rates");
    near(best.bps_f64() / 8.0, 1.25e6 * 1448.0 / 1514.0, 2e4);
}

#[test]
fn it_is_told_of_marks_as_it_wants_them() {
    for (mode, ecn) in [
        (EcnMode::Classic, true),
        (EcnMode::Dctcp, true),
        (EcnMode::Accurate, true),
        (EcnMode::Accurate, false),
    ] {
        let (cc, notes) = aimd(mode, None);
        let run = with(&cc, "codel ecn", &format!("ecn = {ecn}\n"));
        let notes = notes.lock().unwrap();
        let marked: u32 = notes.acks.iter().map(|a| a.marked).sum();
        let of = |cause| notes.signs.iter().filter(|s| s.cause == cause).count();
        match ecn {
            true => {
                assert!(
                    run.marks > 10 && run.drops == 0,
                    "{mode:?}: {} drops",
                    run.drops
                );
                assert!(of(Cause::Mark) > 10 && of(Cause::Loss) == 0, "{mode:?}");
                assert!(
                    u64::from(marked) >= run.marks * 9 / 10,
                    "{mode:?}: {marked} of {}",
                    run.marks
                );
            }
            false => assert!(marked == 0 && of(Cause::Mark) == 0 && of(Cause::Loss) > 3),
        }
        if mode == EcnMode::Accurate && ecn {
            near(f64::from(marked), run.marks as f64, 1.0); // the last may be under way
        }
    }
}

#[test]
fn a_timeout_is_told_as_one() {
    let (cc, notes) = aimd(EcnMode::Classic, None);
    // For two seconds neither data nor probes pass.
    let text = "duration = \"9s\"\n[link]\nschedule = [[\"0s\", \"10mbit\"], [\"3s\", \"1kbit\"], [\"5s\", \"10mbit\"]]\n\
        [[flow]]\ncount = 1\nrtt = \"40ms\"\n";
    let mut s = scenario(text);
    s.flows[0].kind.tcp_mut().expect("a TCP flow").cc = cc;
    let run = measure(s, &Queue::parse("pfifo limit 20").expect("words"), 1);
    let notes = notes.lock().unwrap();
    let timeout = notes
        .signs
        .iter()
        .find(|s| s.cause == Cause::Timeout)
        .expect("a timeout");
    assert!(
        (Instant::from_secs(3)..Instant::from_secs(6)).contains(&timeout.now),
        "{timeout:?}"
    );
    assert!(run.goodput_mbps > 4.0, "it came back: {}", run.goodput_mbps);
}

#[test]
fn its_pacing_rate_is_kept() {
    let (cc, notes) = aimd(EcnMode::Classic, Some(Rate::from_bytes_per_sec(500_000)));
    let run = with(&cc, "pfifo", "");
    // 500 kB of payload per second, less one per cent, as in Linux's pacer.
    near(run.goodput_mbps, 4.0, 0.1);
    assert!(run.sojourn_ms.p99 < 3.0 && notes.lock().unwrap().signs.is_empty());
}
