use super::*;
use crate::Ecn;
use crate::Rng;
use crate::packet::TestPacket;
use proptest::prelude::*;

const FULL: u32 = 1514;

struct Bed {
    q: Codel<TestPacket>,
    rng: Rng,
    dropped: Vec<(TestPacket, DropCause)>,
    next_id: u64,
}

impl Bed {
    fn new(params: Params) -> Self {
        Self {
            q: Codel::new(params),
            rng: Rng::new(1, "codel"),
            dropped: Vec::new(),
            next_id: 0,
        }
    }
    fn add(&mut self, now: Instant, n: usize, ecn: Ecn) {
        for _ in 0..n {
            let p = TestPacket::new(self.next_id, FULL, 0, ecn);
            self.next_id += 1;
            self.q.enqueue(now, p, &mut self.rng, &mut self.dropped);
        }
    }
    fn take(&mut self, now: Instant) -> Option<TestPacket> {
        match self.q.dequeue(now, &mut self.rng, &mut self.dropped) {
            Dequeued::Packet(p) => Some(p),
            _ => None,
        }
    }
    /// Each millisecond, one packet leaves a queue of ten, each of which has waited `age`; returns
    /// the times of drops.
    fn drops_while_late(&mut self, from: Instant, until: Instant, age: Duration) -> Vec<Instant> {
        let mut times = Vec::new();
        let mut now = from;
        while now < until {
            self.refill(now - age, 10);
            let before = self.dropped.len();
            self.take(now);
            times.extend(vec![now; self.dropped.len() - before]);
            now += MS;
        }
        times
    }
    /// Replaces the queued packets by `n` that entered at `at`.
    fn refill(&mut self, at: Instant, n: usize) {
        while self.q.queue.pop().is_some() {}
        self.add(at, n, Ecn::NotEct);
    }
}

const T: Instant = Instant::from_secs(10);

#[test]
fn defaults_are_those_of_linux() {
    let p = Params::default();
    assert_eq!(
        (p.target, p.interval, p.limit, p.ecn),
        (5 * MS, 100 * MS, 1000, false)
    );
    assert_eq!(p.check(), Ok(()));
}

#[test]
fn sojourn_is_measured_at_dequeue() {
    let mut bed = Bed::new(Params::default());
    bed.add(T, 10, Ecn::NotEct);
    bed.take(T + 7 * MS);
    assert_eq!(bed.q.state().ldelay, 7 * MS);
}

#[test]
fn the_first_drop_waits_for_a_full_interval_above_target() {
    let mut bed = Bed::new(Params::default());
    let drops = bed.drops_while_late(T, T + 110 * MS, 6 * MS);
    // first_above = T + 100 ms, and a drop must come strictly after it: the next dequeue, 1 ms
    // later.
    assert_eq!(drops, [T + 101 * MS]);
}

#[test]
fn a_drop_comes_strictly_after_the_interval_as_in_linux() {
    let mut bed = Bed::new(Params::default());
    bed.add(T, 10, Ecn::NotEct);
    bed.take(T + 10 * MS);
    bed.take(T + 110 * MS);
    assert_eq!(bed.dropped.len(), 0);
    bed.take(T + 110 * MS + Duration::from_nanos(1));
    assert_eq!(bed.dropped.len(), 1);
}

#[test]
fn one_good_packet_restarts_the_interval() {
    let mut bed = Bed::new(Params::default());
    assert!(bed.drops_while_late(T, T + 90 * MS, 6 * MS).is_empty());
    bed.drops_while_late(T + 90 * MS, T + 110 * MS, 4 * MS);
    let drops = bed.drops_while_late(T + 110 * MS, T + 240 * MS, 6 * MS);
    assert_eq!(drops[0], T + 211 * MS);
}

#[test]
fn at_most_one_mtu_behind_the_packet_stops_dropping() {
    let mut bed = Bed::new(Params::default());
    // Each dequeue leaves exactly one full packet behind: the law does not act, however old they
    // are.
    bed.add(T, 2, Ecn::NotEct);
    for i in 0..300 {
        bed.take(T + SEC + i * MS);
        assert_eq!(bed.q.bytes(), u64::from(FULL));
        bed.add(T, 1, Ecn::NotEct);
    }
    assert!(bed.dropped.is_empty());
    // With two packets behind, the law acts.
    bed.add(T, 1, Ecn::NotEct);
    for i in 300..420 {
        bed.take(T + SEC + i * MS);
        bed.add(T, 1, Ecn::NotEct);
    }
    assert!(!bed.dropped.is_empty());
}

#[test]
fn next_drop_counts_from_the_previous_one() {
    let mut bed = Bed::new(Params::default());
    bed.drops_while_late(T, T + 102 * MS, 20 * MS);
    let first = bed.q.state().drop_next;
    // count = 1: 65535/65536 of an interval after the first drop, at T + 101 ms.
    assert_eq!(first, T + 101 * MS + 100 * MS * 65535 / 65536);
    // The link pauses for 30 ms past that; the next drop is still due 100 ms / sqrt(2) after
    // `first`, not after now.
    bed.refill(T, 10);
    bed.take(first + 30 * MS);
    let gap = bed.q.state().drop_next - first;
    // One Newton step from 1 towards 1/sqrt(2) = 0.7071 gives 1 * (3 - 2) / 2 = 0.5.
    assert!((49 * MS..=51 * MS).contains(&gap), "{gap:?}");
}

#[test]
fn the_square_root_is_one_newton_step_per_drop() {
    let mut s = State {
        count: 1,
        rec_inv_sqrt: u16::MAX,
        ..State::default()
    };
    for count in 2..=400_u32 {
        s.count = count;
        s.newton_step();
    }
    // By then the approximation has converged to 1/sqrt(400) = 0.05 within 1 %.
    let x = f64::from(s.rec_inv_sqrt) / 65536.0;
    assert!((x - 0.05).abs() < 0.0005, "{x}");
}

#[test]
fn several_drops_may_occur_in_one_dequeue() {
    let mut bed = Bed::new(Params::default());
    bed.drops_while_late(T, T + 102 * MS, 20 * MS);
    bed.refill(T, 50);
    let before = bed.dropped.len();
    // A second later about 20 are due: the gaps shrink from 50 ms as 100 ms / sqrt(count).
    let got = bed.take(T + 1100 * MS).unwrap();
    let burst = bed.dropped.len() - before;
    assert!(burst >= 10, "{burst}");
    assert!(bed.q.state().drop_next > T + 1100 * MS);
    assert_eq!(got.id, bed.dropped.last().unwrap().0.id + 1);
}

#[test]
fn a_restart_within_16_intervals_resumes_the_pace() {
    let mut bed = Bed::new(Params::default());
    bed.drops_while_late(T, T + 2000 * MS, 20 * MS);
    let (count, last) = (bed.q.state().count, bed.q.state().lastcount);
    assert!(count > 10 && last == 1);
    // A delay below target ends the episode. Once the delay has been above target for an interval
    // again, the law resumes with count - lastcount.
    bed.drops_while_late(T + 2000 * MS, T + 2020 * MS, Duration::ZERO);
    assert!(!bed.q.state().dropping);
    bed.drops_while_late(T + 2020 * MS, T + 2126 * MS, 20 * MS);
    assert!(bed.q.state().dropping);
    assert_eq!(bed.q.state().lastcount, count - last);
}

#[test]
fn a_restart_after_16_intervals_starts_at_one() {
    let mut bed = Bed::new(Params::default());
    bed.drops_while_late(T, T + 2000 * MS, 20 * MS);
    bed.drops_while_late(T + 2000 * MS, T + 3800 * MS, Duration::ZERO);
    bed.drops_while_late(T + 3800 * MS, T + 3906 * MS, 20 * MS);
    assert!(bed.q.state().dropping);
    assert_eq!(bed.q.state().count, 1);
}

#[test]
fn a_count_raised_from_outside_before_any_episode_does_not_stop_the_square_root() {
    // FQ-CoDel adds its batch drops to `count`; near the clock's start drop_next = 0 must not look
    // like a recent episode.
    let mut s = State {
        count: 64,
        ..State::default()
    };
    s.begin(&Params::default(), Instant::from_millis(200));
    assert_eq!((s.count, s.rec_inv_sqrt), (1, u16::MAX));
}

#[test]
fn an_empty_queue_leaves_the_dropping_state() {
    let mut bed = Bed::new(Params::default());
    bed.drops_while_late(T, T + 102 * MS, 20 * MS);
    assert!(bed.q.state().dropping);
    let mut s = bed.q.state().clone();
    let mut empty = Backlog::<TestPacket> {
        ring: Ring::new(),
        bytes: 0,
    };
    let mut stats = Stats::default();
    dequeue(
        bed.q.params(),
        &mut s,
        &mut stats,
        T + SEC,
        &mut empty,
        &mut bed.dropped,
    );
    assert!(!s.dropping);
}

#[test]
fn with_ecn_it_marks_and_never_drops_ect() {
    let params = Params {
        ecn: true,
        ..Params::default()
    };
    let mut bed = Bed::new(params);
    bed.add(T, 900, Ecn::Ect0);
    let mut ce = 0;
    for i in 0..800 {
        ce += u64::from(bed.take(T + SEC + i * 5 * MS).unwrap().ecn == Ecn::Ce);
    }
    assert!(ce > 50, "{ce}");
    assert_eq!(bed.q.marks(), ce);
    assert!(bed.dropped.is_empty());
}

#[test]
fn with_ecn_packets_that_are_not_ect_are_dropped() {
    let params = Params {
        ecn: true,
        ..Params::default()
    };
    let mut bed = Bed::new(params);
    bed.add(T, 500, Ecn::NotEct);
    for i in 0..100 {
        assert_eq!(bed.take(T + SEC + i * 5 * MS).unwrap().ecn, Ecn::NotEct);
    }
    assert!(bed.dropped.len() > 3);
    assert!(bed.dropped.iter().all(|d| d.1 == DropCause::Forced));
}

#[test]
fn ce_threshold_marks_every_ect_packet_above_it() {
    let params = Params {
        ce_threshold: Some(MS),
        ..Params::default()
    };
    let mut bed = Bed::new(params);
    bed.add(T, 3, Ecn::Ect1);
    assert_eq!(bed.take(T + MS).unwrap().ecn, Ecn::Ect1);
    assert_eq!(
        bed.take(T + MS + Duration::from_nanos(1)).unwrap().ecn,
        Ecn::Ce
    );
    bed.add(T, 1, Ecn::NotEct);
    bed.take(T + 2 * MS);
    assert_eq!(bed.take(T + 2 * MS).unwrap().ecn, Ecn::NotEct);
    assert_eq!(bed.q.marks(), 2);
}

#[test]
fn ce_selector_restricts_the_threshold_to_l4s() {
    let params = Params {
        ce_threshold: Some(MS),
        ce_mask: 1,
        ce_selector: 1,
        ..Params::default()
    };
    let mut bed = Bed::new(params);
    bed.add(T, 1, Ecn::Ect0);
    bed.add(T, 1, Ecn::Ect1);
    assert_eq!(bed.take(T + 2 * MS).unwrap().ecn, Ecn::Ect0);
    assert_eq!(bed.take(T + 2 * MS).unwrap().ecn, Ecn::Ce);
}

#[test]
fn the_limit_drops_arrivals() {
    let mut bed = Bed::new(Params::default());
    bed.add(T, 1001, Ecn::NotEct);
    assert_eq!(bed.q.len(), 1000);
    assert_eq!(bed.dropped[0].1, DropCause::Overflow);
    assert_eq!(bed.dropped[0].0.id, 1000);
}

#[test]
fn parameters_out_of_range_are_refused() {
    let p = Params {
        interval: Duration::ZERO,
        ..Params::default()
    };
    assert_eq!(p.check(), Err("interval must be between 1us and 10s"));
}

proptest! {
    /// Overflow checks are on: no step of the integers overflows in any state.
    #[test]
    fn the_pace_is_at_most_an_interval_apart_and_nothing_overflows(
        count in any::<u32>(), rec_inv_sqrt in any::<u16>(), t in 0..u64::MAX / 4, interval in 0..=(100 * SEC).as_nanos(),
    ) {
        let mut s = State { count, rec_inv_sqrt, ..State::default() };
        let next = s.control_law(Instant::from_nanos(t), Duration::from_nanos(interval));
        prop_assert!(t <= next.as_nanos() && next <= Instant::from_nanos(t + interval));
        s.newton_step();
        let next = s.control_law(Instant::from_nanos(t), Duration::from_nanos(interval));
        prop_assert!(t <= next.as_nanos() && next <= Instant::from_nanos(t + interval));
    }

    /// The k-th drop of an episode is an interval over the square root of k after the one before.
    #[test]
    fn steps_converge_to_the_inverse_square_root(last in 1_u32..4000) {
        let mut s = State { count: 1, rec_inv_sqrt: u16::MAX, ..State::default() };
        while s.count < last {
            s.count += 1;
            s.newton_step();
        }
        let (x, wanted) = (f64::from(s.rec_inv_sqrt) / 65536.0, 1.0 / f64::from(last).sqrt());
        // Each step of 16 bits rounds down; the first ones have not converged yet.
        prop_assert!((x - wanted).abs() < if last < 8 { 0.3 } else { 0.003 }, "{}: {} {}", last, x, wanted);
    }
}
