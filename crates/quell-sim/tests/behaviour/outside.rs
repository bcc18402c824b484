//! Controllers outside of the world, and how a caller's steps through time leave no trace.

use quell_qdisc::{Gauges, Knobs, MS, Nanos, SEC};
use quell_sim::{Status, World};

use crate::common::{gauges_at, near, world};

const BUSY: &str = "duration = \"2s\"\nwarmup = \"0s\"\n[link]\nrate = \"12112kbit\"\nqueue = \"fifo limit 100\"\n\
    [[flow]]\nkind = \"cbr\"\nrate = \"24mbit\"\nrtt = \"1us\"\n";

/// Runs to `end`, answering each question.
fn controlled(w: &mut World, end: Nanos, mut decide: impl FnMut(&Gauges) -> Knobs) -> Vec<Nanos> {
    let mut asked = Vec::new();
    while let Status::Decide { queue, gauges } = w.run_until(end) {
        assert_eq!((queue, gauges.now), (0, w.now()));
        asked.push(gauges.now);
        let knobs = decide(&gauges);
        w.set_knobs(queue, &knobs);
    }
    asked
}

#[test]
fn a_controller_is_asked_at_exact_multiples_of_its_period() {
    let mut w = world(BUSY);
    w.set_external(0, 30 * MS);
    let mut asked = Vec::new();
    // However the caller slices time: a decision that is due at a slice's end comes at the start of the next.
    for end in [1, 29, 30, 31, 90, 1000, 1001, 2000] {
        asked.extend(controlled(&mut w, end * MS, |_| Knobs::default()));
    }
    let wanted: Vec<Nanos> = (1..=66).map(|k| k * 30 * MS).collect();
    assert_eq!(asked, wanted, "every 30 ms up to 1.98 s");
    assert_eq!(w.now(), 2 * SEC);
}

#[test]
fn a_controller_may_take_over_in_the_middle() {
    let mut w = world(BUSY);
    gauges_at(&mut w, 1234 * MS);
    w.set_external(0, 100 * MS);
    let mut last = w.now();
    let asked = controlled(&mut w, 2 * SEC, |g| {
        assert!(g.now >= last, "time does not run backwards");
        last = g.now;
        Knobs::default()
    });
    let wanted: Vec<Nanos> = (13..20).map(|k| k * 100 * MS).collect();
    assert_eq!(asked, wanted);
}

#[test]
fn knobs_take_effect_at_once() {
    let mut w = world(BUSY);
    w.set_external(0, 500 * MS);
    // A packet takes 1 ms, two arrive in that time: the queue is at its limit all the time.
    let mut limits = [40, 10, 70].into_iter();
    let mut seen = Vec::new();
    controlled(&mut w, 2 * SEC, |g| {
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
    // 100, 40, 10 and 70 packets for half a second each.
    near(r.limit_packets.expect("a moved limit"), 55.0, 1e-9);
    // Everything is dropped on arrival, and nothing any more.
    let mut w = world(BUSY);
    let drop = |p: f64| Knobs {
        drop: Some(p),
        ..Knobs::default()
    };
    gauges_at(&mut w, SEC);
    w.set_knobs(0, &drop(1.0));
    let before = w.gauges(0);
    let after = gauges_at(&mut w, SEC + 500 * MS);
    assert_eq!(
        after.drops_early - before.drops_early,
        after.arrivals - before.arrivals
    );
    assert_eq!(
        after.departures - before.departures,
        u64::from(before.backlog_packets)
    );
    w.set_knobs(0, &drop(0.0));
    let last = gauges_at(&mut w, 2 * SEC);
    assert_eq!(last.drops_early, after.drops_early);
}

#[test]
fn steps_through_time_leave_no_trace() {
    let text = "duration = \"3s\"\nwarmup = \"1s\"\n[link]\nrate = \"5mbit\"\nqueue = \"pie\"\n[link.up]\nrate = \"300kbit\"\nqueue = \"learnqueue\"\n\
        [[flow]]\ncount = 2\n[[flow]]\nkind = \"web\"\n";
    let record = |step: Nanos| {
        let mut w = world(text);
        let mut at = 0;
        while at < 3 * SEC {
            at += step;
            while w.run_until(at) != Status::Done {}
        }
        assert_eq!(w.now(), 3 * SEC, "it ends with the scenario");
        format!("{:?}", w.record(0.0))
    };
    let whole = record(3 * SEC);
    assert_eq!(whole, record(7_777_777));
    assert_eq!(whole, record(100_003));
}
