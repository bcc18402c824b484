use super::*;
use proptest::prelude::*;

/// The time this many milliseconds after the start.
const fn after(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// A connection between two hosts. Their clocks tick at these rates and start just before they
/// wrap.
struct Pair {
    passive: Passive,
    ticks: [u64; 2],
}

impl Pair {
    fn new(near: u64, far: u64) -> Self {
        Self {
            passive: Passive::default(),
            ticks: [near, far],
        }
    }

    fn clock(&self, side: usize, now: Instant) -> u32 {
        let ticks = u128::from(now.as_nanos()) * u128::from(self.ticks[side]) / 1_000_000_000;
        (u32::MAX - 1000).wrapping_add(ticks as u32)
    }

    /// Data leaves every 5 ms for `span` and is acknowledged after the delays `ways` (up, down);
    /// returns the reports.
    fn run(&mut self, from: Instant, span: Duration, ways: [Duration; 2]) -> Vec<(Instant, Delay)> {
        let mut reports = Vec::new();
        let mut under_way = std::collections::VecDeque::new();
        for now in every(MS, from..from + span) {
            if (now - Instant::ZERO) % (5 * MS) == Duration::ZERO {
                let value = self.clock(0, now);
                let segment = stamped(value, 0, true);
                self.passive.on_departure(now, now, &segment);
                under_way.push_back((now + ways[0], value));
            }
            while let Some((at, echo)) = under_way.front().copied()
                && at + ways[1] <= now
            {
                under_way.pop_front();
                let ack = stamped(self.clock(1, at), echo, false);
                reports.extend(self.passive.on_arrival(now, &ack).map(|delay| (now, delay)));
            }
        }
        reports
    }
}

/// The times of a range, this far apart.
fn every(step: Duration, times: std::ops::Range<Instant>) -> impl Iterator<Item = Instant> {
    let count = (times.end - times.start).div_ceil(step);
    (0..count).map(move |k| times.start + k * step)
}

fn first(passive: &Passive) -> &Connection {
    let host = passive.hosts.iter().flatten().next().unwrap();
    host.connections.iter().flatten().next().unwrap()
}

fn stamped(value: u32, echo: u32, requires_answer: bool) -> Stamped {
    Stamped {
        host: 3,
        connection: 7,
        value,
        echo,
        requires_answer,
    }
}

#[test]
fn the_direction_of_a_delay_is_known_if_the_far_clock_ticks_each_millisecond() {
    for (near, known) in [(100, 5), (1000, 0)] {
        let mut pair = Pair::new(near, 1000);
        pair.run(Instant::ZERO, 9 * SEC, [10 * MS, 20 * MS]);
        let (_, up) = *pair
            .run(Instant::from_secs(9), 3 * SEC, [50 * MS, 20 * MS])
            .last()
            .unwrap();
        let (_, down) = *pair
            .run(Instant::from_secs(12), 3 * SEC, [10 * MS, 90 * MS])
            .last()
            .unwrap();
        // Up to this many ms of the delay may be missing.
        let is = |shown: Duration, ms: i64| {
            (-known - 2..=2).contains(&((shown.as_nanos() as i64 - ms * 1_000_000) / 1_000_000))
        };
        assert!(
            up.by_direction && is(up.up, 40) && is(up.down, 0),
            "{near}: {up:?}"
        );
        assert!(is(down.up, 0) && is(down.down, 70), "{near}: {down:?}");
    }
}

#[test]
fn the_direction_is_known_although_the_delay_of_the_other_one_lasts() {
    // A local network with a constant queueing delay from the third round trip on.
    let mut pair = Pair::new(1000, 1000);
    pair.run(Instant::ZERO, 20 * MS, [MS, MS]);
    let reports = pair.run(after(20), 9 * SEC, [13 * MS, MS]);
    let late = reports
        .iter()
        .filter(|(now, _)| *now > Instant::from_secs(5));
    assert!(late.clone().count() > 100);
    for (now, delay) in late {
        assert!(
            delay.by_direction && delay.down <= MS && delay.up >= 11 * MS,
            "{now:?}: {delay:?}"
        );
    }
}

#[test]
fn other_clocks_give_the_delay_of_both_directions_together() {
    for far in [1, 10, 100, 250] {
        let mut pair = Pair::new(1000, far);
        pair.run(Instant::ZERO, 9 * SEC, [10 * MS, 20 * MS]);
        let (_, report) = *pair
            .run(Instant::from_secs(9), 3 * SEC, [50 * MS, 20 * MS])
            .last()
            .unwrap();
        assert_eq!(
            (report.up, report.down, report.by_direction),
            (40 * MS, 40 * MS, false),
            "{far}"
        );
    }
}

#[test]
fn a_timestamp_gives_one_round_trip_from_its_first_segment_to_its_first_echo() {
    let mut passive = Passive::default();
    for now in [10, 11, 12].map(after) {
        passive.on_departure(now, now, &stamped(5, 0, true));
    }
    passive.on_departure(after(30), after(30), &stamped(6, 0, true));
    assert!(
        passive
            .on_arrival(after(40), &stamped(1, 5, false))
            .is_some()
    );
    let connection = first(&passive);
    assert_eq!(connection.base.unwrap().least(), 30 * MS);
    let waits = connection.waiting;
    assert!(
        passive
            .on_arrival(after(200), &stamped(1, 5, false))
            .is_none(),
        "again"
    );
    let connection = first(&passive);
    assert_eq!((waits, connection.waiting), (1, 1));
}

#[test]
fn a_timestamp_that_leaves_twice_makes_no_host_late() {
    // A host of the local network sends each TSval twice: first in a segment whose TTL is too
    // small, long before the segment that is answered.
    for twice in [0, 5, 200, 1000] {
        let mut passive = Passive::default();
        let mut reports = Vec::new();
        for value in 1..200_u32 {
            let at = Instant::from_secs(2 * u64::from(value));
            let lead = if value > 10 {
                twice * MS
            } else {
                Duration::ZERO
            };
            for at in [at - lead, at] {
                passive.on_departure(at, at, &stamped(value, 0, true));
            }
            reports.extend(passive.on_arrival(at + 20 * MS, &stamped(1, value, false)));
        }
        let max = reports.iter().map(|delay| delay.up).max();
        assert_eq!(max, Some(Duration::ZERO), "{twice}");
    }
}

#[test]
fn a_near_clock_that_ticks_slowly_shows_no_delay() {
    for near in [1, 10] {
        let mut pair = Pair::new(near, 1000);
        pair.run(Instant::ZERO, 9 * SEC, [10 * MS, 20 * MS]);
        let reports = pair.run(Instant::from_secs(9), 3 * SEC, [50 * MS, 20 * MS]);
        let new = reports
            .iter()
            .filter(|(now, _)| *now > Instant::from_secs(9) + 50 * MS);
        assert!(new.clone().count() < 5, "{near}: {reports:?}");
    }
}

#[test]
fn an_echo_of_an_unsent_timestamp_is_ignored() {
    let mut passive = Passive::default();
    for round in 1..100_u32 {
        let at = after(100 * u64::from(round));
        passive.on_departure(at, at, &stamped(round, 0, true));
        assert_eq!(
            passive.on_arrival(at + MS, &stamped(1, round + 1000, false)),
            None
        );
        assert!(
            passive
                .on_arrival(at + 20 * MS, &stamped(1, round, false))
                .is_some()
        );
    }
}

#[test]
fn unanswered_segments_do_not_replace_answered_connections() {
    let (mut passive, mut answered) = (Passive::default(), 0);
    for round in 1..100_u32 {
        let begin = Instant::from_secs(2 * u64::from(round));
        // Answers to a flood of SYNs with forged ports and addresses: every other one goes to host
        // 3, the others to a new host each.
        for k in 0..3800 {
            let at = begin + k * MS / 2;
            let forged = Stamped {
                host: if k % 2 == 0 { 3 } else { 1000 + k },
                connection: 1_000_000 + k,
                ..stamped(round, 0, true)
            };
            passive.on_departure(at, at, &forged);
            let honest = match k {
                0 => 4,
                1400 => 3,
                _ => continue,
            };
            let own = Stamped {
                host: honest,
                ..stamped(round, 0, true)
            };
            passive.on_departure(at, at, &own);
            let ack = Stamped {
                echo: round,
                requires_answer: false,
                ..own
            };
            answered += usize::from(passive.on_arrival(at + MS / 2, &ack).is_some());
        }
        assert!(passive.place(4).is_some(), "{round}");
    }
    assert!(answered > 190, "{answered}");
}

#[test]
fn a_sender_with_nothing_to_send_is_not_a_delay() {
    let mut passive = Passive::default();
    passive.on_departure(after(1), after(1), &stamped(1, 0, true));
    assert!(
        passive
            .on_arrival(after(31), &stamped(1, 1, true))
            .is_some()
    );
    passive.on_departure(after(32), after(32), &stamped(2, 1, false));
    // The next segment of a video arrives five seconds later.
    assert_eq!(
        passive.on_arrival(Instant::from_secs(5), &stamped(2, 2, true)),
        None
    );
    passive.on_departure(
        Instant::from_secs(5),
        Instant::from_secs(5),
        &stamped(3, 2, false),
    );
    assert_eq!(
        passive.on_arrival(Instant::from_secs(5) + 20 * MS, &stamped(3, 2, true)),
        None
    );
    let delay = passive
        .on_arrival(Instant::from_secs(5) + 31 * MS, &stamped(4, 3, true))
        .unwrap();
    assert_eq!((delay.up, delay.down), (MS, MS));
}

#[test]
fn a_bound_counts_if_it_shows_hardly_any_delay() {
    let mut passive = Passive::default();
    passive.on_departure(after(1), after(1), &stamped(1, 0, true));
    assert!(
        passive
            .on_arrival(after(11), &stamped(1, 1, true))
            .is_some()
    );
    // Each ACK triggers one segment, and nothing arrives in between.
    let mut report_of = |at: Instant, value: u32, takes: Duration| {
        passive.on_departure(at, at, &stamped(value, 1, false));
        passive.on_arrival(at + takes, &stamped(value, value, true))
    };
    let delay = report_of(after(100), 2, 12 * MS).unwrap();
    let all = [delay.up, delay.down, delay.base_decrease];
    assert_eq!(all, [2 * MS, 2 * MS, Duration::ZERO]);
    assert_eq!(report_of(after(200), 3, 20 * MS), None);
    let delay = report_of(after(300), 4, 8 * MS).unwrap();
    assert_eq!((delay.up, delay.base_decrease), (Duration::ZERO, 2 * MS));
}

#[test]
fn a_late_acknowledgement_does_not_count_beside_one_in_time() {
    let mut passive = Passive::default();
    let two = |connection, value, echo| Stamped {
        connection,
        ..stamped(value, echo, true)
    };
    let mut reports = Vec::new();
    for round in 1..20_u32 {
        let now = after(60 * u64::from(round));
        for connection in [1, 2] {
            passive.on_departure(now, now, &two(connection, round, 0));
        }
        let delayed = if round > 5 { 40 * MS } else { Duration::ZERO };
        reports.extend(passive.on_arrival(now + 10 * MS + delayed, &two(1, 1, round)));
        reports.extend(passive.on_arrival(now + 51 * MS, &two(2, 1, round)));
    }
    // `pace` uses the smaller of two successive delays.
    let late = |two: &[Delay]| two[0].up.min(two[1].up) > Duration::ZERO;
    assert!(
        reports.len() > 15 && !reports.windows(2).any(late),
        "{reports:?}"
    );
}

#[test]
fn a_connection_that_begins_in_a_full_queue_is_used_when_that_is_empty() {
    let mut pair = Pair::new(1000, 250);
    pair.run(Instant::ZERO, 2 * SEC, [10 * MS, 20 * MS]);
    let begins = |pair: &mut Pair, at: Instant, takes: Duration| {
        let new = Stamped {
            connection: 8,
            ..stamped(at.as_millis() as u32, 0, true)
        };
        pair.passive.on_departure(at, at, &new);
        let echo = Stamped {
            echo: new.value,
            ..new
        };
        pair.passive.on_arrival(at + takes, &echo);
        let of = pair
            .passive
            .hosts
            .iter()
            .flatten()
            .flat_map(|host| &host.connections);
        let of = of.flatten().find(|c| c.name == 8).unwrap();
        of.base.map(|base| base.least())
    };
    pair.run(Instant::from_secs(2), SEC, [210 * MS, 20 * MS]);
    assert_eq!(
        begins(&mut pair, Instant::from_secs(3) - 260 * MS, 260 * MS),
        None
    );
    pair.run(Instant::from_secs(3), SEC, [10 * MS, 20 * MS]);
    let least = begins(&mut pair, Instant::from_secs(4) - 60 * MS, 60 * MS);
    assert_eq!(least, Some(60 * MS));
}

/// Round trips of hosts whose clocks do not distinguish the directions: host, connection, start,
/// duration. Returns the reports and their times.
fn trips(passive: &mut Passive, all: &[(u64, u64, Instant, Duration)]) -> Vec<(Instant, Delay)> {
    let events = all.iter().flat_map(|&(host, connection, at, takes)| {
        let value = at.as_millis() as u32 + 1;
        let left = Stamped {
            host,
            connection,
            ..stamped(value, 0, true)
        };
        let came = Stamped {
            value: 5,
            echo: value,
            ..left
        };
        [(at, true, left), (at + takes, false, came)]
    });
    let mut events: Vec<_> = events.collect();
    events.sort_by_key(|(at, ..)| *at);
    let mut reports = Vec::new();
    for (at, leaves, segment) in events {
        match leaves {
            true => passive.on_departure(at, at, &segment),
            false => reports.extend(passive.on_arrival(at, &segment).map(|delay| (at, delay))),
        }
    }
    reports
}

#[test]
fn a_host_that_shows_delay_alone_keeps_others_from_being_used_for_seconds_at_most() {
    let mut all = vec![(1, 1, Instant::ZERO, 20 * MS)];
    for at in every(40 * MS, Instant::from_secs(1)..Instant::from_secs(9)) {
        all.push((1, 1, at, 320 * MS));
        let second = (Instant::from_secs(2)..Instant::from_secs(6)).contains(&at);
        all.extend(second.then_some((2, 2, at, 30 * MS)));
        all.extend((at >= Instant::from_secs(8)).then_some((3, 3, at, 30 * MS)));
    }
    let reports = trips(&mut Passive::default(), &all);
    let used = |source| reports.iter().find(|(_, report)| report.source == source);
    // The second host waits from the beginning of the delay on, the third one does not wait.
    for (source, from) in [
        (2, Instant::from_secs(1) + NEWCOMER_TIMEOUT),
        (3, Instant::from_secs(8)),
    ] {
        let used = used(source);
        let soon = |at: Instant| (from..from + SEC / 2).contains(&at);
        assert!(used.is_some_and(|(at, _)| soon(*at)), "{used:?}");
    }
    // From then on the first host's delay is not the only one.
    let last = reports.iter().rev().take(20);
    assert!(
        last.clone()
            .any(|(_, report)| report.source == 3 && report.up < MS)
    );
}

#[test]
fn short_pauses_of_its_delay_do_not_let_a_host_keep_others_from_being_used_again() {
    let mut all = vec![(1, 1, Instant::ZERO, 20 * MS)];
    let quiet = Instant::from_secs(20);
    let again = quiet + CALM + 2 * SEC;
    for at in every(40 * MS, Instant::from_secs(1)..again + 3 * SEC) {
        let time = at - Instant::ZERO;
        let pauses = time % (3 * SEC) < 100 * MS || (quiet..again).contains(&at);
        all.push((1, 1, at, if pauses { 20 * MS } else { 320 * MS }));
        // A new host each second, for 400 ms, while the first one is late.
        let is_short = (SEC / 2..9 * SEC / 10).contains(&(time % SEC));
        let host = 100 + at.as_secs();
        let late = (Instant::from_secs(8)..quiet).contains(&at) || at > again + SEC;
        all.extend((is_short && late).then_some((host, host, at, 30 * MS)));
    }
    let reports = trips(&mut Passive::default(), &all);
    let used = |second: u64| {
        reports
            .iter()
            .any(|(_, report)| report.source == 100 + second)
    };
    assert!((8..quiet.as_secs()).all(used));
    // After a long pause of the first host's delay, new hosts wait again.
    assert!(
        !used(again.as_secs() + 1) && all.iter().any(|(host, ..)| *host == 101 + again.as_secs())
    );
}

#[test]
fn a_host_with_very_many_connections_takes_no_place_of_others_and_is_one_source() {
    let mut all = Vec::new();
    for round in 0..100 {
        let at = after(80 * round);
        all.extend((0..300).map(|c| (9, 100 + c, at + c * MS / 10, 10 * MS)));
        all.extend([1, 2].map(|host| (host, host, at + 40 * MS, 30 * MS)));
    }
    let reports = trips(&mut Passive::default(), &all);
    let mut sources: Vec<_> = reports.iter().map(|(_, delay)| delay.source).collect();
    let honest = sources.iter().filter(|source| **source < 9).count();
    assert!(honest > 40, "{honest}");
    assert!(reports.iter().all(|(_, delay)| delay.up == Duration::ZERO));
    sources.sort_unstable();
    sources.dedup();
    assert!(sources.contains(&9) && sources.len() <= 3, "{sources:?}");
}

/// A round trip of 20 ms to a host whose clock ticks each millisecond, from `at` on.
fn precise_trip(passive: &mut Passive, host: u64, at: Instant) {
    let left = Stamped {
        host,
        ..stamped(at.as_millis() as u32, 0, true)
    };
    passive.on_departure(at, at, &left);
    let came = Stamped {
        value: (at + 10 * MS).as_millis() as u32,
        echo: left.value,
        ..left
    };
    passive.on_arrival(at + 20 * MS, &came);
}

#[test]
fn one_host_whose_clock_distinguishes_the_directions_does_not_silence_others() {
    let mut passive = Passive::default();
    let mut received = 0;
    for at in every(100 * MS, Instant::from_secs(1)..Instant::from_secs(20)) {
        precise_trip(&mut passive, 1, at);
        let reports = trips(&mut passive, &[(2, 2, at + 25 * MS, 40 * MS)]);
        received += reports
            .iter()
            .filter(|(_, report)| report.source == 2)
            .count();
    }
    let distinguishes = |name| {
        let host = passive
            .hosts
            .iter()
            .flatten()
            .find(|host| host.name == name);
        host.is_some_and(|host| host.distinguished_at.is_some())
    };
    assert!(distinguishes(1) && !distinguishes(2));
    assert!(received > 100, "{received}");
}

#[test]
fn two_hosts_whose_clocks_distinguish_the_directions_do_not_silence_many() {
    let mut passive = Passive::default();
    let mut received = 0;
    for at in every(100 * MS, Instant::from_secs(1)..Instant::from_secs(20)) {
        precise_trip(&mut passive, 1, at);
        precise_trip(&mut passive, 2, at);
        for host in 3..13 {
            let reports = trips(&mut passive, &[(host, host, at + 25 * MS, 40 * MS)]);
            received += reports
                .iter()
                .filter(|(_, report)| report.source > 2)
                .count();
        }
    }
    assert!(received > 100, "{received}");
}

proptest! {
    #[test]
    fn any_segments_are_read_in_bounded_memory(
        segments in proptest::collection::vec((any::<bool>(), 0..2000_u64, any::<u32>(), any::<u32>(), any::<bool>(), 0..SEC.as_nanos()), 0..600)
    ) {
        let (mut passive, mut now) = (Passive::default(), Instant::ZERO);
        for (left, connection, value, echo, requires_answer, later) in segments {
            now += Duration::from_nanos(later);
            let segment = Stamped { host: connection % 300, connection, value: value % 64, echo: echo % 64, requires_answer };
            let segment = if value % 3 == 0 { Stamped { value, echo, ..segment } } else { segment };
            match left {
                true => passive.on_departure(now, now, &segment),
                false => {
                    let report = passive.on_arrival(now, &segment);
                    prop_assert!(report.is_none_or(|delay| delay.up.max(delay.down) <= now - Instant::ZERO));
                }
            }
            prop_assert_eq!(passive.hosts.len(), SETS * WAYS);
        }
    }
}
