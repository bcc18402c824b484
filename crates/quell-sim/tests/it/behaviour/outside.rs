//! Controllers outside the world. Results do not depend on the steps in which a caller advances
//! time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quell_qdisc::control::{Control, SubQueue};
use quell_qdisc::time::{Duration, Instant, MS, SEC};
use quell_qdisc::{Gauges, Knobs, Rng};
use quell_sim::scenario::{Overrides, Scenario};
use quell_sim::{RunOptions, Session, Status, World};

use super::common::{gauges_at, near, scenario, world};

const BUSY: &str = "duration = \"2s\"\nwarmup = \"0s\"\n[link]\nrate = \"12112kbit\"\nqueue = \"fifo limit 100\"\n\
    [[flow]]\nkind = \"cbr\"\nrate = \"24mbit\"\nrtt = \"1us\"\n";

/// Runs to `end`, makes each decision, and returns their times.
fn controlled(
    w: &mut World,
    end: Instant,
    mut decide: impl FnMut(&Gauges) -> Knobs,
) -> Vec<Instant> {
    let mut asked = Vec::new();
    while let Status::Decide {
        queue,
        sub_queue,
        gauges,
    } = w.run_until(end)
    {
        assert_eq!((queue, sub_queue, gauges.now), (0, None, w.now()));
        asked.push(gauges.now);
        let knobs = decide(&gauges);
        w.set_knobs(queue, None, &knobs).expect("such knobs");
    }
    asked
}

#[test]
fn a_controller_decides_at_exact_multiples_of_its_period() {
    let mut w = world(BUSY);
    w.set_outside(0, 30 * MS).expect("such a queue");
    let mut asked = Vec::new();
    // A decision that is due at the end of a slice is requested at the start of the next one,
    // whatever the slices.
    for end in [1, 29, 30, 31, 90, 1000, 1001, 2000] {
        asked.extend(controlled(&mut w, Instant::from_millis(end), |_| {
            Knobs::default()
        }));
    }
    let wanted: Vec<Instant> = (1..=66).map(|k| Instant::from_millis(30 * k)).collect();
    assert_eq!(asked, wanted, "every 30 ms up to 1.98 s");
    assert_eq!(w.now(), Instant::from_secs(2));
}

#[test]
fn a_controller_may_take_over_in_the_middle() {
    let mut w = world(BUSY);
    gauges_at(&mut w, Instant::from_millis(1234));
    w.set_outside(0, 100 * MS).expect("such a queue");
    let mut last = w.now();
    let asked = controlled(&mut w, Instant::from_secs(2), |g| {
        assert!(g.now >= last, "time does not run backwards");
        last = g.now;
        Knobs::default()
    });
    let wanted: Vec<Instant> = (13..20).map(|k| Instant::from_millis(100 * k)).collect();
    assert_eq!(asked, wanted);
}

#[test]
fn knobs_take_effect_at_once() {
    let mut w = world(BUSY);
    w.set_outside(0, 500 * MS).expect("such a queue");
    // Two packets arrive in the time that one takes to send, 1 ms: the queue is always at its
    // limit.
    let mut limits = [40, 10, 70].into_iter();
    let mut seen = Vec::new();
    controlled(&mut w, Instant::from_secs(2), |g| {
        seen.push((g.limit_packets, g.backlog_packets, g.drops_overflow));
        Knobs {
            limit_packets: limits.next(),
            ..Knobs::default()
        }
    });
    let limits: Vec<u32> = seen.iter().map(|s| s.0).collect();
    assert_eq!(limits, [100, 40, 10]);
    for (limit, backlog, _) in &seen {
        assert!(backlog.abs_diff(*limit) <= 1, "{seen:?}");
    }
    let r = w.record(0.0);
    // The limit is 100, 40, 10 and 70 packets for half a second each.
    near(r.limit_packets.expect("a moved limit"), 55.0, 1e-9);
    // First everything is dropped on arrival, then nothing.
    let mut w = world(BUSY);
    let drop = |p: f64| Knobs {
        drop: Some(p),
        ..Knobs::default()
    };
    gauges_at(&mut w, Instant::from_secs(1));
    w.set_knobs(0, None, &drop(1.0)).expect("a drop knob");
    let before = w.gauges(0);
    let after = gauges_at(&mut w, Instant::from_secs(1) + 500 * MS);
    assert_eq!(
        after.drops_early - before.drops_early,
        after.arrivals - before.arrivals
    );
    assert_eq!(
        after.departures - before.departures,
        u64::from(before.backlog_packets)
    );
    w.set_knobs(0, None, &drop(0.0)).expect("a drop knob");
    let last = gauges_at(&mut w, Instant::from_secs(2));
    assert_eq!(last.drops_early, after.drops_early);
}

#[test]
fn steps_through_time_leave_no_trace() {
    let text = "duration = \"3s\"\nwarmup = \"1s\"\n[link]\nrate = \"5mbit\"\nqueue = \"pie\"\n[link.up]\nrate = \"300kbit\"\nqueue = \"learnqueue\"\n\
        [[flow]]\ncount = 2\n[[flow]]\nkind = \"web\"\n";
    let record = |step: Duration| {
        let mut w = world(text);
        let mut at = Instant::ZERO;
        while at < Instant::from_secs(3) {
            at += step;
            while w.run_until(at) != Status::Done {}
        }
        assert_eq!(w.now(), Instant::from_secs(3), "it ends with the scenario");
        format!("{:?}", w.record(0.0))
    };
    let whole = record(3 * SEC);
    assert_eq!(whole, record(Duration::from_nanos(7_777_777)));
    assert_eq!(whole, record(Duration::from_nanos(100_003)));
}

/// Knobs that set a limit.
fn limit(packets: u32) -> Knobs {
    Knobs {
        limit_packets: Some(packets),
        ..Knobs::KEEP
    }
}

#[test]
fn a_packet_waits_for_the_decision_that_it_raised_and_others_wait_behind_it() {
    let mut w = world(
        "duration = \"2s\"\nwarmup = \"0s\"\n[link]\nrate = \"5mbit\"\nqueue = \"lfq\"\n[[flow]]\ncount = 2\nrtt = \"20ms\"\n",
    );
    assert!(w.ask_outside(0), "lfq asks its network at packets");
    let mut asked = 0;
    while let Status::Decide {
        queue, sub_queue, ..
    } = w.run_until(Instant::from_secs(2))
    {
        asked += 1;
        let sub = sub_queue.expect("a flow's limit");
        // The world does not continue without an answer, and knobs of another flow are not an
        // answer.
        let still = |w: &mut World| match w.run_until(Instant::from_secs(2)) {
            Status::Decide { sub_queue, .. } => (sub_queue, w.now()),
            Status::Done => panic!("a packet waits"),
        };
        let now = w.now();
        assert_eq!(still(&mut w), (Some(sub), now));
        let other = w.set_knobs(queue, Some(1 - sub), &limit(7));
        assert_eq!(other.is_ok(), w.sub_gauges(0).count() == 2);
        assert_eq!(still(&mut w), (Some(sub), now));
        assert_eq!(w.question(0).len(), 60);
        w.set_knobs(queue, Some(sub), &limit(3)).expect("set");
        // The first packet of a flow raises a second question before a limit is set.
        if w.question(0).is_empty() {
            let limit = w.sub_gauges(0).nth(sub).map(|g| g.limit_packets);
            assert_eq!(limit, Some(3));
        }
    }
    assert!(w.question(0).is_empty());
    let g = w.gauges(0);
    // Two questions for the first packet of each flow, and one for every tenth packet.
    assert!(
        asked > g.arrivals / 10 && asked < g.arrivals / 10 + 5,
        "{asked}"
    );
    assert!(g.drops_overflow > 10 && g.backlog_packets <= 6, "{g:?}");
    assert_eq!(
        g.arrivals,
        g.departures + g.drops_overflow + u64::from(g.backlog_packets)
    );
}

#[test]
fn a_released_queue_keeps_its_knobs() {
    let mut w = world(
        "duration = \"2s\"\n[link]\nrate = \"5mbit\"\nqueue = \"learnqueue initial 40\"\n[[flow]]\ncount = 2\n",
    );
    gauges_at(&mut w, Instant::from_millis(500));
    w.release(0);
    let held = w.gauges(0).limit_packets;
    assert_ne!(held, 40, "it has moved before");
    assert_eq!(gauges_at(&mut w, Instant::from_secs(2)).limit_packets, held);
}

#[test]
fn knobs_that_a_queue_lacks_are_refused_by_name() {
    let on = |queue: &str, knobs: Knobs, sub| {
        let text = format!("[link]\nrate = \"5mbit\"\nqueue = \"{queue}\"\n[[flow]]\n");
        world(&text)
            .set_knobs(0, sub, &knobs)
            .map_err(|e| e.to_string())
    };
    let p = Knobs {
        base_probability: Some(0.1),
        ..Knobs::KEEP
    };
    let refused = |what: &str| Err(what.to_owned());
    assert_eq!(
        on("cake", limit(5), None),
        refused("`cake` has no knob limit; it has none")
    );
    assert_eq!(
        on("fifo", p, None),
        refused("`fifo` has no knob base_probability; it has limit, drop")
    );
    assert_eq!(on("l4s", p, Some(1)), Ok(()));
    assert_eq!(
        on("fq_codel", limit(5), Some(0)),
        refused("`fq_codel` has no knob limit; it has none")
    );
    let e = on("l4s", p, Some(99)).expect_err("no such sub-queue");
    assert!(
        e.starts_with("there is no sub-queue 99 of queue 0; it has "),
        "{e}"
    );
    let wrong = Knobs {
        drop: Some(f64::NAN),
        ..Knobs::KEEP
    };
    assert_eq!(
        on("fifo", wrong, None),
        refused("`fifo`: drop = NaN is not from 0 to 1")
    );
    let e = world(BUSY).set_knobs(3, None, &limit(5)).unwrap_err();
    assert_eq!(e.to_string(), "there is no queue 3; choose 0, the only one");
}

#[test]
fn answers_from_outside_work_in_a_cell_too() {
    let mut w = world(
        "duration = \"2s\"\nwarmup = \"0s\"\n[wifi]\nstations = 2\nqueue = \"lfq\"\n[[flow]]\ncount = 2\nto = \"sta1\"\n",
    );
    assert!(w.ask_outside(0), "lfq asks its network at packets");
    let mut asked = 0;
    while let Status::Decide {
        queue, sub_queue, ..
    } = w.run_until(Instant::from_secs(2))
    {
        asked += 1;
        w.set_knobs(queue, sub_queue, &limit(40)).expect("set");
    }
    let g = w.gauges(0);
    assert!(asked > 100 && g.departures > 4000, "{asked}, {g:?}");
}

#[test]
fn a_session_fails_where_a_packet_waits_and_no_decision_comes() {
    let mut w = world("duration = \"2s\"\n[link]\nrate = \"5mbit\"\nqueue = \"lfq\"\n[[flow]]\n");
    assert!(w.ask_outside(0), "lfq asks its network at packets");
    let session = |w: &World| Session::new(w.clone(), &RunOptions::default()).expect("a session");
    let stop = AtomicBool::new(false);
    let wanted = "a packet waits for a decision about queue 0; set its knobs before you continue";
    let e = session(&w).complete(&stop).expect_err("no decision");
    assert_eq!(e.to_string(), wanted);
    // After an answer it runs to the next question.
    let mut session = session(&w);
    for _ in 0..5 {
        let asked = session.run_to_decision(&mut || Ok(())).expect("a question");
        let Status::Decide { sub_queue, .. } = asked else {
            panic!("{asked:?}");
        };
        let set = session.world.set_knobs(0, sub_queue, &limit(3));
        set.expect("such a knob");
    }
    let asked = session.run_to_decision(&mut || Ok(())).expect("a question");
    assert!(matches!(asked, Status::Decide { .. }));
    let e = session
        .run_to_decision(&mut || Ok(()))
        .expect_err("no decision");
    assert_eq!(e.to_string(), wanted);
}

#[test]
fn bins_without_a_width_are_refused() {
    let scenario = Arc::new(scenario(BUSY));
    let e = World::builder(scenario)
        .queue("fifo")
        .seed(1)
        .series(Duration::ZERO)
        .build()
        .expect_err("no width");
    assert_eq!(
        e.to_string(),
        "the bins of the series have a width of 0; give them at least 1 ns, or leave the series out"
    );
}

#[test]
fn words_that_a_links_mean_rate_does_not_fit_are_refused_by_key() {
    // RED's thresholds follow from the rate: at 1 Gbit/s they are too large for this burst. The
    // link's mean rate is that high only in a short run, not in one of 10,000 s.
    let fast = "schedule = [[\"0s\", \"1gbit\"], [\"10s\", \"1mbit\"]]\nqueue = \"red burst 55\"\n";
    let plain = "[link]\nrate = \"10mbit\"\n";
    let parse =
        |text: &str| Scenario::parse(text, "", &Overrides::default()).map_err(|e| e.to_string());
    for (text, key) in [
        (format!("[link]\n{fast}"), "link.queue: red: "),
        (format!("{plain}[link.up]\n{fast}"), "link.up.queue: red: "),
        (format!("{plain}[[hop]]\n{fast}"), "hop[1].queue: red: "),
    ] {
        let text = |duration: &str| format!("duration = \"{duration}\"\nwarmup = \"0s\"\n{text}");
        let e = parse(&text("10s")).expect_err(key);
        assert!(e.contains(key), "{e}");
        let long = parse(&text("10000s")).expect("a mean rate that fits");
        let short = Scenario {
            duration: Duration::from_secs(10),
            ..long
        };
        let e = World::builder(short.clone()).seed(1).build();
        let e = e.expect_err(key).to_string();
        assert!(e.contains(key.trim_start_matches("link.queue: ")), "{e}");
    }
}

/// A controller that decides with this period and sets nothing.
#[derive(Clone, Debug)]
struct Idle(Duration);

impl Control for Idle {
    fn period(&self) -> Duration {
        self.0
    }
    fn decide(&mut self, _: &Gauges, _: &mut [SubQueue], _: &mut Rng) -> Knobs {
        Knobs::KEEP
    }
}

#[test]
fn a_controller_without_a_period_is_refused() {
    let e = world(BUSY).set_controller(0, Box::new(Idle(Duration::ZERO)));
    assert_eq!(
        e.expect_err("no period").to_string(),
        "the controller Idle has a period of 0; let it decide every nanosecond at most"
    );
}

#[test]
fn records_name_a_controller_only_while_it_has_the_queue() {
    let given = || {
        let mut w = world(BUSY);
        w.set_controller(0, Box::new(Idle(Duration::from_millis(1))))
            .expect("no knobs");
        assert_eq!(w.record(0.0).controller.as_deref(), Some("Idle"));
        w
    };
    let mut w = given();
    w.release(0);
    assert_eq!(w.record(0.0).controller, None);
    let mut w = given();
    w.set_outside(0, MS).expect("a queue");
    assert_eq!(w.record(0.0).controller, None);
}
