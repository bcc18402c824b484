use super::*;
use crate::Ecn;
use crate::packet::TestPacket;
use crate::parts::pie::tests::law;
use crate::time::{MS, SEC};

const FULL: u32 = 1514;

fn rng() -> Rng {
    Rng::new(1, "pie")
}

fn packet(id: u64, ecn: Ecn) -> TestPacket {
    TestPacket::new(id, FULL, 0, ecn)
}

/// A queue of `n` packets, all of which arrived at time 0, whose law is in the state `vars`.
fn queue(params: Params, vars: Vars, n: u64) -> Pie<TestPacket> {
    let mut q = Pie::new(params);
    let mut none = Vec::new();
    for i in 0..n {
        q.enqueue(Instant::ZERO, packet(i, Ecn::NotEct), &mut rng(), &mut none);
    }
    assert!(none.is_empty());
    q.vars = vars;
    q
}

#[test]
fn every_drop_at_the_queue_clears_the_accumulator() {
    let params = Params {
        limit: 5,
        ..Params::default()
    };
    let mut q = queue(params, law(1e-6, 100 * MS), 5);
    q.vars.accu_prob = MAX_PROB;
    let mut drops = Vec::new();
    q.enqueue(
        Instant::from_millis(1),
        packet(5, Ecn::NotEct),
        &mut rng(),
        &mut drops,
    );
    assert_eq!(drops[0].1, DropCause::Overflow);
    assert_eq!(q.vars.accu_prob, 0);
    q.params.limit = 6;
    q.vars.accu_prob = MAX_PROB / 2 * 17;
    q.enqueue(
        Instant::from_millis(1),
        packet(6, Ecn::NotEct),
        &mut rng(),
        &mut drops,
    );
    assert_eq!(drops[1].1, DropCause::Early);
    assert_eq!(q.vars.accu_prob, 0);
}

#[test]
fn an_ecn_mark_at_eight_and_a_half_does_not_clear_the_accumulator() {
    let params = Params {
        ecn: true,
        ..Params::default()
    };
    let mut q = queue(params, law(1e-6, 100 * MS), 5);
    q.vars.accu_prob = MAX_PROB / 2 * 17;
    let mut drops = Vec::new();
    q.enqueue(
        Instant::from_millis(1),
        packet(5, Ecn::Ect0),
        &mut rng(),
        &mut drops,
    );
    assert!(drops.is_empty());
    assert_eq!((q.marks(), q.len()), (1, 6));
    assert!(q.vars.accu_prob > MAX_PROB / 2 * 17);
}

#[test]
fn marks_only_up_to_ten_percent() {
    let params = Params {
        ecn: true,
        ..Params::default()
    };
    let run = |prob: f64| {
        let mut q = queue(params.clone(), law(prob, 100 * MS), 5);
        let mut drops = Vec::new();
        let mut r = rng();
        for i in 0..200 {
            q.enqueue(
                Instant::from_millis(1),
                packet(i, Ecn::Ect0),
                &mut r,
                &mut drops,
            );
        }
        (q.marks(), drops)
    };
    let (marks, drops) = run(0.099);
    assert!(marks > 5 && drops.is_empty());
    let (marks, drops) = run(0.101);
    assert!(marks == 0 && drops.len() > 5);
    assert!(drops.iter().all(|d| d.1 == DropCause::Forced));
}

#[test]
fn packets_are_dropped_at_enqueue() {
    let mut q = queue(Params::default(), law(0.99, 100 * MS), 10);
    let mut drops = Vec::new();
    let mut r = rng();
    for i in 10..20 {
        q.enqueue(
            Instant::from_millis(1),
            packet(i, Ecn::NotEct),
            &mut r,
            &mut drops,
        );
    }
    assert!(drops.len() >= 7 && drops.iter().all(|d| d.0.id >= 10));
    let n = drops.len();
    while let Dequeued::Packet(_) = q.dequeue(Instant::from_millis(2), &mut r, &mut drops) {}
    assert_eq!(drops.len(), n);
}

#[test]
fn it_acts_long_before_a_third_of_the_queue_is_full() {
    // The RFC's optional rule (section 5.1), which Linux does not have.
    let mut q = queue(Params::default(), law(0.5, 100 * MS), 3);
    let mut drops = Vec::new();
    let mut r = rng();
    for i in 0..50 {
        q.enqueue(
            Instant::from_millis(1),
            packet(i, Ecn::NotEct),
            &mut r,
            &mut drops,
        );
    }
    assert!(!drops.is_empty() && q.len() < 333);
}

#[test]
fn the_delay_is_the_sojourn_of_the_last_packet_out_and_zero_if_none_is_left() {
    let mut q = queue(Params::default(), Vars::default(), 3);
    let (mut r, mut d) = (rng(), Vec::new());
    q.dequeue(Instant::from_millis(4), &mut r, &mut d);
    assert_eq!(q.vars.qdelay, 4 * MS);
    q.dequeue(Instant::from_millis(5), &mut r, &mut d);
    assert_eq!(q.vars.qdelay, 5 * MS);
    q.dequeue(Instant::from_millis(6), &mut r, &mut d);
    assert_eq!(q.vars.qdelay, Duration::ZERO);
}

#[test]
fn burst_allowance_runs_down_with_the_time_between_departures() {
    let mut q = queue(Params::default(), Vars::default(), 10);
    let (mut r, mut d) = (rng(), Vec::new());
    q.dequeue(Instant::from_millis(100), &mut r, &mut d);
    assert_eq!(q.vars.burst_time, 150 * MS);
    q.dequeue(Instant::from_millis(140), &mut r, &mut d);
    assert_eq!(q.vars.burst_time, 110 * MS);
    // Updates alone do not reduce it.
    q.on_timer(Instant::from_millis(500));
    assert_eq!(q.vars.burst_time, 110 * MS);
    q.dequeue(Instant::from_millis(900), &mut r, &mut d);
    assert_eq!(q.vars.burst_time, Duration::ZERO);
}

#[test]
fn the_first_update_comes_after_500_ms_and_then_each_15_ms() {
    let mut q = Pie::<TestPacket>::starting_at(Params::default(), Instant::from_secs(1));
    assert_eq!(q.next_timer(), Instant::ZERO + SEC + 500 * MS);
    q.on_timer(q.next_timer());
    assert_eq!(q.next_timer(), Instant::ZERO + SEC + 515 * MS);
}
