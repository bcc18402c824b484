use super::*;

/// A line with a queue before it, loaded as much as the loop allows; an answer arrives every 50 ms.
struct Line {
    pace: Pace,
    now: Instant,
    /// Bytes that the shaper has sent.
    sent: f64,
    /// Bytes queued in the modem.
    queue: f64,
    /// Largest rate of the sender, Mbit/s.
    demand: f64,
    /// Increase of the one-way delay per second by the drift of the reflector's clock.
    drift: Duration,
    /// Increase of the path's delay.
    longer: Duration,
    /// Whether every other answer of the first reflector shows only half of this increase.
    lies: bool,
    /// Random delay of an answer on the way back, ms; reflectors answer in turn.
    jitter: fn(&mut Rng) -> f64,
    reflectors: u32,
    rng: Rng,
}

/// The default parameters of a shaper behind the modem or before it.
fn behind(ingress: bool) -> Params {
    Params {
        ingress,
        ..Params::default()
    }
}

impl Line {
    fn new(ingress: bool) -> Self {
        Self {
            pace: Pace::new(&behind(ingress)),
            now: Instant::ZERO,
            sent: 0.0,
            queue: 0.0,
            demand: f64::INFINITY,
            drift: Duration::ZERO,
            longer: Duration::ZERO,
            lies: false,
            jitter: |_| 0.0,
            reflectors: 1,
            rng: Rng::new(1, "jitter"),
        }
    }

    /// Runs for a time on a line of this rate; returns the mean delay in the modem, ms.
    fn run(&mut self, span: Duration, mbps: f64, answers: bool) -> f64 {
        let mut rng = Rng::new(1, "test");
        let (mut sum, ticks) = (0.0, span / TICK);
        for _ in 0..ticks {
            self.now += TICK;
            let line = mbps * 1e6 / 8.0 / 20.0;
            let offered = self.pace.rate.min(self.demand * 1e6) / 8.0 / 20.0;
            // A shaper behind the modem sends the packets that pass the line.
            let out = (self.queue + offered).min(line);
            self.queue += offered - out;
            self.sent += if self.pace.ingress {
                out.min(offered)
            } else {
                offered
            };
            let gauges = Gauges {
                now: self.now,
                departed_bytes: self.sent as u64,
                backlog_bytes: if self.pace.rate < self.demand * 1e6 {
                    10_000
                } else {
                    0
                },
                ..Gauges::default()
            };
            self.pace.decide(&gauges, &mut [], &mut rng);
            let delay = self.queue / line * TICK.as_nanos() as f64;
            sum += delay / MS.as_nanos() as f64;
            if answers {
                let drift = self.now.as_secs() * self.drift;
                let late = (self.jitter)(&mut self.rng) * MS.as_nanos() as f64;
                let number = ((self.now - Instant::ZERO) / TICK) as u32;
                let reflector = number % self.reflectors;
                let is_even = (number / self.reflectors).is_multiple_of(2);
                let lies = self.lies && reflector == 0 && is_even;
                let longer = self.longer / if lies { 2 } else { 1 };
                let late = Duration::from_nanos(delay as u64 + late as u64) + longer;
                let echo = Echo {
                    now: self.now,
                    reflector,
                    round_trip: 30 * MS + late,
                    one_way: Some(15 * MS + late + drift),
                };
                self.pace.on_probe(&echo, &gauges);
            }
        }
        sum / ticks as f64
    }

    /// Receives answers for a second in which there is no load.
    fn idle(&mut self) {
        for _ in 0..20 {
            self.now += TICK;
            let echo = Echo {
                now: self.now,
                reflector: 0,
                round_trip: 30 * MS,
                one_way: Some(15 * MS),
            };
            self.pace.on_probe(&echo, &Gauges::default());
        }
    }

    fn mbps(&self) -> f64 {
        self.pace.rate / 1e6
    }
}

#[test]
fn it_finds_rates_far_above_and_far_below_its_first() {
    for ingress in [true, false] {
        for mbps in [2.0, 200.0] {
            let mut line = Line::new(ingress);
            line.idle();
            line.run(20 * SEC, mbps, true);
            let delay = line.run(10 * SEC, mbps, true);
            let share = line.mbps() / mbps;
            assert!((0.5..1.6).contains(&share), "{ingress} {mbps}: {share}");
            assert!(delay < 60.0, "{ingress} {mbps}: {delay} ms");
        }
    }
}

#[test]
fn a_loop_that_continues_another_begins_with_its_rate_and_needs_no_start() {
    for ingress in [true, false] {
        let mut line = Line::new(ingress);
        line.idle();
        line.run(20 * SEC, 20.0, true);
        let before = line.pace;
        // Meanwhile packets passed unmanaged, and half a second of them waits in the modem before
        // the line. (Behind it `Line` has no packets that the shaper did not send.)
        let waiting = if ingress { 0.0 } else { 20e6 / 8.0 / 2.0 };
        let mut line = Line {
            queue: waiting,
            ..Line::new(ingress)
        };
        let knobs = line.pace.resume(&before);
        assert_eq!(
            knobs.rate,
            Some(Rate::from_bps_f64(before.rate)),
            "{ingress}"
        );
        for _ in 0..20 {
            line.run(100 * MS, 20.0, true);
            // A start would set 0.1 Mbit/s.
            assert!(line.mbps() > 1.0, "{ingress}: {}", line.mbps());
        }
        line.run(2 * SEC, 20.0, true);
        let delay = line.run(SEC, 20.0, true);
        assert!(line.mbps() > 10.0, "{ingress}: {}", line.mbps());
        assert!(delay < 60.0, "{ingress}: {delay} ms");
    }
}

#[test]
fn a_loop_that_continues_one_in_its_start_makes_the_start_itself() {
    let mut line = Line::new(false);
    line.queue = 1e6;
    line.run(100 * MS, 20.0, true);
    assert_eq!(line.pace.rate, FLOOR);
    let first = Params::default().first();
    let mut next = Pace::new(&Params::default());
    assert!(next.resume(&line.pace).rate >= Some(first));
    let mut line = Line {
        pace: next,
        queue: 1e6,
        ..Line::new(false)
    };
    line.run(100 * MS, 20.0, true);
    assert_eq!(line.pace.rate, FLOOR);
}

#[test]
fn a_fall_of_the_rate_by_half_is_followed_within_a_second() {
    let mut line = Line::new(false);
    line.run(20 * SEC, 20.0, true);
    line.run(SEC, 10.0, true);
    let delay = line.run(2 * SEC, 10.0, true);
    assert!(delay < 60.0, "{delay} ms");
}

#[test]
fn a_reflectors_clock_that_is_slewed_is_not_a_delay() {
    for ingress in [true, false] {
        let mut line = Line::new(ingress);
        line.idle();
        line.drift = Duration::from_nanos(500_000);
        line.run(30 * SEC, 100.0, true);
        for _ in 0..30 {
            let delay = line.run(SEC, 100.0, true);
            let share = line.mbps() / 100.0;
            assert!((0.5..1.6).contains(&share), "{ingress}: {share}");
            assert!(delay < 60.0, "{ingress}: {delay} ms");
        }
    }
}

#[test]
fn a_path_that_becomes_longer_costs_the_rate_for_few_seconds() {
    for ingress in [true, false] {
        for longer in [10, 20, 60, 300] {
            let mut line = Line::new(ingress);
            line.idle();
            line.run(30 * SEC, 100.0, true);
            line.longer = longer * MS;
            line.run(4 * SEC, 100.0, true);
            for _ in 0..40 {
                let delay = line.run(SEC, 100.0, true);
                let share = line.mbps() / 100.0;
                assert!((0.5..1.6).contains(&share), "{ingress} {longer}: {share}");
                assert!(delay < 60.0, "{ingress} {longer}: {delay} ms");
            }
        }
    }
}

/// The rate recovers within 4 s, before the smallest delays can have adapted (more than 10 s).
#[test]
fn one_reflector_that_lies_does_not_hide_that_the_path_has_become_longer() {
    for ingress in [true, false] {
        for longer in [20, 60] {
            let mut line = Line::new(ingress);
            (line.reflectors, line.lies) = (3, true);
            line.run(30 * SEC, 100.0, true);
            line.longer = longer * MS;
            line.run(4 * SEC, 100.0, true);
            for _ in 0..20 {
                line.run(SEC, 100.0, true);
                let share = line.mbps() / 100.0;
                assert!((0.3..1.6).contains(&share), "{ingress} {longer}: {share}");
            }
        }
    }
}

/// 8 Mbit/s on a line of 20, whose path is longer by 20 ms for 15 of each 30 s.
#[test]
fn a_path_that_becomes_longer_below_the_capacity_costs_rate_for_few_seconds() {
    for ingress in [true, false] {
        let mut line = Line::new(ingress);
        line.idle();
        line.demand = 8.0;
        for _ in 0..4 {
            for longer in [Duration::ZERO, 20 * MS] {
                line.longer = longer;
                let before = line.sent;
                line.run(15 * SEC, 20.0, true);
                let mbps = (line.sent - before) * 8.0 / 15e6;
                assert!(mbps > 6.5, "{ingress} {longer:?}: {mbps}");
            }
        }
    }
}

#[test]
fn jitter_of_the_answers_is_not_a_delay() {
    // Nearly normal, with standard deviations of 3 and 8 ms; uniform; rare fast answers.
    let kinds: [fn(&mut Rng) -> f64; 4] = [
        |rng| 3.0 * (0..12).map(|_| rng.f64()).sum::<f64>(),
        |rng| 8.0 * (0..12).map(|_| rng.f64()).sum::<f64>(),
        |rng| 20.0 * rng.f64(),
        |rng| if rng.f64() < 0.1 { 0.0 } else { 10.0 },
    ];
    for ingress in [true, false] {
        for (kind, jitter) in kinds.into_iter().enumerate() {
            let mut line = Line::new(ingress);
            (line.jitter, line.reflectors) = (jitter, 6);
            line.run(20 * SEC, 20.0, true);
            let before = line.sent;
            let delay = line.run(60 * SEC, 20.0, true);
            let share = (line.sent - before) * 8.0 / 60.0 / 20e6;
            assert!(share > 0.75, "{ingress} {kind}: {share}");
            assert!(delay < 100.0, "{ingress} {kind}: {delay} ms");
        }
    }
}

/// Packets wait before a line that carries 20 Mbit/s, whatever the rate. Delays are measured for
/// half a minute, then not for twelve hours, then again for a minute.
#[test]
fn a_rate_that_grows_without_end_leaves_estimates_that_are_numbers() {
    for ingress in [true, false] {
        let (mut pace, mut rng) = (Pace::new(&behind(ingress)), Rng::new(1, "test"));
        let silence = Instant::from_secs(30)..Instant::from_secs(12 * 3600);
        for tick in 1..(silence.end - Instant::ZERO + 60 * SEC) / TICK {
            let now = Instant::ZERO + tick * TICK;
            let gauges = Gauges {
                now,
                departed_bytes: tick * 125_000,
                backlog_bytes: 10_000,
                ..Gauges::default()
            };
            pace.decide(&gauges, &mut [], &mut rng);
            if !silence.contains(&now) {
                let phase = (now - Instant::ZERO) % SEC;
                let late = phase.min(SEC - phase) / 2;
                let echo = Echo {
                    now,
                    reflector: 0,
                    round_trip: 30 * MS + late,
                    one_way: None,
                };
                pace.on_probe(&echo, &gauges);
            }
        }
        let (rate, (capacity, _)) = (pace.rate / 1e6, pace.estimate());
        assert!(capacity.is_finite(), "{ingress}: {capacity}");
        assert!((10.0..40.0).contains(&rate), "{ingress}: {rate}");
    }
}

#[test]
fn a_line_that_falls_to_a_tenth_is_followed() {
    for ingress in [true, false] {
        for mbps in [10.0, 4.0, 1.0] {
            let mut line = Line::new(ingress);
            line.idle();
            line.run(30 * SEC, 100.0, true);
            // The bytes that arrived at the former rate before the first answers take 18 s at 1
            // Mbit/s.
            line.run(23 * SEC, mbps, true);
            for _ in 0..37 {
                let delay = line.run(SEC, mbps, true);
                assert!(delay < 60.0, "{ingress} {mbps}: {delay} ms");
            }
        }
    }
}

#[test]
fn one_reflector_of_three_that_holds_its_answers_back_does_not_raise_the_target() {
    let (mut pace, mut held, mut raised) = (Pace::new(&behind(true)), Vec::new(), 0);
    for k in 1..=2400 {
        let now = Instant::ZERO + k * TICK;
        let mut answer = |sent: Instant, late: Duration| {
            let gauges = Gauges {
                now,
                ..Gauges::default()
            };
            let echo = Echo {
                now,
                reflector: (k % 3) as u32,
                round_trip: now - sent + 20 * MS,
                one_way: Some(20 * MS + late),
            };
            pace.on_probe(&echo, &gauges);
        };
        match k % 3 == 0 && k > 60 {
            true => held.push(now),
            false => answer(now, Duration::ZERO),
        }
        // The reflector answers all probes of 29 s at once; every other answer shows a delay.
        if k % 579 == 0 {
            for (n, sent) in held.drain(..).enumerate() {
                answer(sent, 300 * MS * (n as u64 % 2));
            }
        }
        raised += u32::from(pace.jitter.allowance() > Duration::ZERO);
    }
    assert_eq!(raised, 0);
}

/// An answer arrives every 1.1 s. The traffic shows a delay every 50 ms, which counts after a
/// second without an answer.
#[test]
fn answers_that_come_less_than_once_a_second_do_not_mean_that_the_line_stalls() {
    let (mut pace, mut rng) = (Pace::new(&Params::default()), Rng::new(1, "test"));
    let mut stalled = false;
    for tick in 1..60 * 20 {
        let gauges = Gauges {
            now: Instant::ZERO + tick * TICK,
            departed_bytes: tick * 60_000,
            ..Gauges::default()
        };
        pace.decide(&gauges, &mut [], &mut rng);
        stalled |= tick > 20 * 20 && pace.rate_before_stall.is_some();
        if tick % 22 == 0 {
            let echo = Echo {
                now: gauges.now,
                reflector: 0,
                round_trip: 30 * MS,
                one_way: None,
            };
            pace.on_probe(&echo, &gauges);
        }
        let delay = Delay {
            source: 7,
            ..Delay::default()
        };
        pace.on_delay(&delay, &gauges);
    }
    assert!(!stalled && pace.rate > 10e6, "{}", pace.rate);
}

#[test]
fn one_late_answer_is_not_evidence() {
    let mut pace = Pace::new(&Params::default());
    let echo = |now: Instant, late: Duration| Echo {
        now,
        reflector: 0,
        round_trip: 30 * MS + late,
        one_way: None,
    };
    for i in 1..10 {
        let late = if i == 5 { 200 * MS } else { Duration::ZERO };
        pace.on_probe(&echo(Instant::ZERO + i * TICK, late), &Gauges::default());
    }
    assert!(pace.draining.is_none() && pace.estimate().0 == 0.0);
}

/// Two answers in a row are late by 200 ms. The next ones are on time, or each is late by 20 ms
/// less than the one before. The line carries 1 Mbit/s.
#[test]
fn a_delay_that_goes_faster_than_a_queue_leaves_no_lower_rate() {
    let rate_after = |falls: bool| {
        let mut pace = Pace::new(&Params::default());
        let mut rng = Rng::new(1, "test");
        for i in 1..30 {
            let now = Instant::ZERO + i * TICK;
            let gauges = Gauges {
                now,
                departed_bytes: i * 6250,
                ..Gauges::default()
            };
            pace.decide(&gauges, &mut [], &mut rng);
            let late = match i {
                15 | 16 => 200 * MS,
                17.. if falls => (200 * MS).saturating_sub((i - 16) * 20 * MS),
                _ => Duration::ZERO,
            };
            let echo = Echo {
                now,
                reflector: 0,
                round_trip: 30 * MS + late,
                one_way: None,
            };
            pace.on_probe(&echo, &gauges);
        }
        assert!(pace.congested_at > Instant::ZERO);
        (pace.rate, pace.estimate().0)
    };
    assert_eq!(
        rate_after(false),
        (Params::default().first().bps_f64(), 0.0)
    );
    let (rate, capacity) = rate_after(true);
    assert!(rate < 2e6 && capacity > 0.0, "{rate} {capacity}");
}

/// Answers of `reflectors` in turn, one every 50 ms. After 5 s those of the last reflector arrive
/// two at a time and show a delay of 300 ms.
fn with_a_liar(reflectors: u32, params: &Params) -> Pace {
    let mut pace = Pace::new(params);
    let mut kept = Vec::new();
    for i in 1..400 {
        let (now, reflector) = (Instant::ZERO + u64::from(i) * TICK, i % reflectors);
        let lies = reflector == reflectors - 1 && i > 100;
        let echo = |now: Instant| Echo {
            now,
            reflector,
            round_trip: if lies { 330 * MS } else { 30 * MS },
            one_way: None,
        };
        match lies {
            true => kept.push(echo(now)),
            false => drop(pace.on_probe(&echo(now), &Gauges::default())),
        }
        if kept.len() == 2 {
            for echo in kept.drain(..) {
                pace.on_probe(&Echo { now, ..echo }, &Gauges::default());
            }
        }
    }
    pace
}

#[test]
fn one_reflector_that_lies_is_not_evidence() {
    let pace = with_a_liar(3, &Params::default());
    assert_eq!((pace.congested_at, pace.draining), (Instant::ZERO, None));
    assert!(with_a_liar(1, &Params::default()).congested_at > Instant::ZERO);
}

#[test]
fn one_source_that_falls_does_not_prolong_the_beginning() {
    let mut pace = Pace::new(&Params::default());
    for i in 1..20 {
        let reflector = i % 3;
        let late = if reflector == 0 { 2000 - 20 * i } else { 30 };
        let echo = Echo {
            now: Instant::ZERO + u64::from(i) * TICK,
            reflector,
            round_trip: u64::from(late) * MS,
            one_way: None,
        };
        pace.on_probe(&echo, &Gauges::default());
    }
    assert!(pace.beginning.is_none() && pace.rate > 5e6, "{pace:?}");
}

/// Runs for 30 s on a line of 20 Mbit/s with the delays that the traffic of a single host shows,
/// then lets that host lie for `lie`. Returns the line, and the lowest rate during the lie, Mbit/s.
fn lied_to(params: &Params, lie: Duration) -> (Line, f64) {
    let mut line = Line::new(params.ingress);
    line.pace = Pace::new(params);
    let mut least = f64::MAX;
    for tick in 0..(30 * SEC + lie).div_ceil(TICK) {
        let lies = tick * TICK > 30 * SEC;
        line.run(TICK, 20.0, false);
        let queue = (line.queue * 8.0 / 20e6 * SEC.as_nanos() as f64) as u64;
        let shown = Duration::from_nanos(queue) + if lies { 500 * MS } else { Duration::ZERO };
        let delay = Delay {
            source: 7,
            up: shown,
            down: shown,
            ..Delay::default()
        };
        let gauges = Gauges {
            now: line.now,
            departed_bytes: line.sent as u64,
            backlog_bytes: 10_000,
            ..Gauges::default()
        };
        line.pace.on_delay(&delay, &gauges);
        if lies {
            least = least.min(line.mbps());
        }
    }
    (line, least)
}

#[test]
fn by_the_traffic_the_rate_stays_above_a_share_of_the_highest_capacity_whatever_lies() {
    let (_, least) = lied_to(&Params::default(), 30 * SEC);
    assert!((1.8..5.0).contains(&least), "{least}");
    let params = Params {
        min: Some(Rate::from_kbit(200)),
        ..Params::default()
    };
    let (_, least) = lied_to(&params, 30 * SEC);
    assert!((0.2..0.5).contains(&least), "{least}");
}

#[test]
fn a_lie_that_lasts_lowers_its_own_bound_by_less_than_half_in_three_minutes() {
    for ingress in [true, false] {
        let (_, least) = lied_to(&behind(ingress), 180 * SEC);
        assert!(least > 1.0, "{ingress}: {least}");
    }
}

#[test]
fn after_a_false_delay_the_rate_returns_to_its_usual_value() {
    for ingress in [true, false] {
        let (mut line, least) = lied_to(&behind(ingress), 4 * SEC);
        assert!(least < 8.0, "{ingress}: {least}");
        line.run(12 * SEC, 20.0, false);
        let rate = line.mbps();
        assert!((12.0..26.0).contains(&rate), "{ingress}: {rate}");
    }
}

#[test]
fn two_sources_that_lie_are_not_evidence_beside_ten_that_are_heard_less_often() {
    let (mut pace, mut rng) = (Pace::new(&Params::default()), Rng::new(1, "test"));
    for step in 1..2000_u64 {
        let now = Instant::from_millis(25 * step);
        let gauges = Gauges {
            now,
            departed_bytes: step * 30_000,
            backlog_bytes: 10_000,
            ..Gauges::default()
        };
        if step % 2 == 0 {
            pace.decide(&gauges, &mut [], &mut rng);
        }
        // Each of the ten is heard once a second, each of the two every 50 ms.
        let (source, up) = match step % 4 {
            0 => (step / 4 % 10, Duration::ZERO),
            at => (10 + at % 2, 300 * MS * u64::from(step > 100)),
        };
        let delay = Delay {
            source,
            up,
            ..Delay::default()
        };
        pace.on_delay(&delay, &gauges);
    }
    assert_eq!((pace.congested_at, pace.draining), (Instant::ZERO, None));
    assert!(pace.rate > 10e6, "{}", pace.rate);
}

#[test]
fn an_upload_that_its_acks_clock_is_followed_although_it_does_not_load_the_shaper() {
    let mut line = Line::new(false);
    line.idle();
    line.run(20 * SEC, 20.0, true);
    // The line now carries a tenth of that, its queue is full, and the sender sends as fast as ACKs
    // arrive.
    line.queue = 300_000.0;
    line.demand = 2.0;
    line.run(10 * SEC, 2.0, true);
    let delay = line.run(10 * SEC, 2.0, true);
    assert!(delay < 60.0, "{delay} ms");
}

#[test]
fn the_rate_stays_between_those_that_an_operator_sets() {
    let params = Params {
        min: Some(Rate::from_mbit(6)),
        max: Some(Rate::from_mbit(12)),
        ..Params::default()
    };
    let mut line = Line::new(true);
    line.pace = Pace::new(&params);
    line.run(20 * SEC, 50.0, true);
    assert!((line.mbps() - 12.0).abs() < 1e-6, "{}", line.mbps());
    line.run(20 * SEC, 2.0, true);
    assert!((line.mbps() - 6.0).abs() < 1e-6, "{}", line.mbps());
    let mbit = Rate::from_mbit;
    let first = |start, min, max| {
        let params = Params {
            start,
            min,
            max,
            ..Params::default()
        };
        params.check().map(|()| params.first())
    };
    assert_eq!(first(None, None, Some(mbit(4))), Ok(mbit(4)));
    assert_eq!(first(None, Some(mbit(40)), None), Ok(mbit(40)));
    assert!(first(Some(mbit(1)), Some(mbit(2)), None).is_err());
    assert!(first(None, Some(mbit(2)), Some(mbit(1))).is_err());
}

#[test]
fn a_line_that_is_full_at_the_start_is_emptied_first() {
    for ingress in [true, false] {
        let mut line = Line::new(ingress);
        // What the line sends in two seconds.
        line.queue = 2.5e6;
        line.run(10 * SEC, 10.0, true);
        let delay = line.run(10 * SEC, 10.0, true);
        assert!(delay < 60.0, "{ingress}: {delay} ms");
        let share = line.mbps() / 10.0;
        assert!((0.5..1.6).contains(&share), "{ingress}: {share}");
    }
}

#[test]
fn reflectors_that_are_lost_while_the_queue_empties_leave_no_lower_rate() {
    let mut line = Line::new(false);
    line.run(20 * SEC, 20.0, true);
    line.run(400 * MS, 5.0, true);
    assert!(line.pace.draining.is_some(), "the line has slowed down");
    let drained = line.pace.rate;
    line.run(5 * SEC, 5.0, false);
    let (capacity, _) = line.pace.estimate();
    assert!(line.pace.rate > drained && line.pace.rate >= 0.5 * capacity);
}

#[test]
fn lost_reflectors_leave_a_rate_below_the_estimated_capacity() {
    let mut line = Line::new(false);
    line.run(20 * SEC, 20.0, true);
    line.run(30 * SEC, 20.0, false);
    let (capacity, deviation) = line.pace.estimate();
    assert!(deviation > 0.0);
    assert!(line.pace.rate <= capacity && line.pace.rate >= 0.5 * capacity);
}

/// One tick each second, in which this percentage of 1,000 bytes is dropped. Returns whether the
/// hold is in force after each tick.
fn overload(shares: &[u64]) -> Vec<bool> {
    let (mut overload, mut dropped) = (Overload::NONE, 0);
    let each = shares.iter().zip(1..).map(|(share, second)| {
        dropped += share * 10;
        overload.count(Instant::from_secs(second), second * 1000, dropped, false);
        overload.holds(Instant::from_secs(second))
    });
    each.collect()
}

#[test]
fn all_pass_after_eight_seconds_of_overload_and_longer_the_next_time() {
    let holds = overload(&[30; 60]);
    let begins: Vec<_> = (1..60).filter(|k| holds[*k] && !holds[k - 1]).collect();
    assert_eq!(begins, [7, 34]);
    assert_eq!(holds.iter().filter(|holds| **holds).count(), 20 + 26);
}

#[test]
fn a_second_without_overload_begins_its_count_again() {
    let mut shares = [30; 15];
    shares[7] = 14;
    assert!(!overload(&shares).contains(&true));
    assert!(!overload(&[14; 60]).contains(&true));
}

#[test]
fn after_a_calm_time_the_next_hold_is_the_first_one_again() {
    let mut shares = vec![30; 8];
    shares.extend([0; 80]);
    shares.extend([30; 30]);
    let holds = overload(&shares);
    assert_eq!(holds.iter().skip(88).filter(|holds| **holds).count(), 20);
}

#[test]
fn losses_while_the_delay_is_within_the_target_once_a_second_are_not_overload() {
    let (mut overload, mut held) = (Overload::NONE, false);
    for tick in 1..60 * 20 {
        overload.count(
            Instant::ZERO + tick * TICK,
            tick * 1000,
            tick * 400,
            tick % 20 == 0,
        );
        held |= overload.holds(Instant::ZERO + tick * TICK);
    }
    assert!(!held);
}

/// On a line of 20 Mbit/s a stream of 3 Mbit/s, whose timestamps are late by 20 ms for one second
/// of each ten; after a minute no delay is measured any more, and the sender uses the whole rate.
#[test]
fn late_seconds_of_a_small_stream_do_not_limit_later_traffic_for_ever() {
    for ingress in [true, false] {
        let mut line = Line::new(ingress);
        line.demand = 3.0;
        for tick in 0..60 * 20 {
            line.run(TICK, 20.0, false);
            let late = if tick / 20 % 10 == 9 {
                20 * MS
            } else {
                Duration::ZERO
            };
            let delay = Delay {
                source: tick % 2,
                up: late,
                down: late,
                ..Delay::default()
            };
            let gauges = Gauges {
                now: line.now,
                departed_bytes: line.sent as u64,
                ..Gauges::default()
            };
            line.pace.on_delay(&delay, &gauges);
        }
        assert!(line.mbps() < 6.0, "{ingress}: {}", line.mbps());
        line.demand = 40.0;
        line.run(180 * SEC, 20.0, false);
        assert!(line.mbps() > 15.0, "{ingress}: {}", line.mbps());
    }
}

/// After a minute of load on a line of 20 Mbit/s, no delay is measured any more.
#[test]
fn a_rate_seen_under_load_limits_later_traffic_for_ten_seconds() {
    let mut line = Line::new(true);
    line.idle();
    line.run(60 * SEC, 20.0, true);
    line.run(10 * SEC, 20.0, false);
    assert!(line.mbps() < 25.0, "{}", line.mbps());
}

/// For five seconds a line carries 20 kbit/s, with delays of 0 or 12 ms in the traffic's
/// timestamps; then no delay is measured any more, and 12 Mbit/s are offered.
#[test]
fn a_rate_seen_without_load_does_not_limit_later_traffic() {
    for ingress in [true, false] {
        let (mut pace, mut rng) = (Pace::new(&behind(ingress)), Rng::new(1, "test"));
        let (mut sent, mut lowest) = (0.0, f64::INFINITY);
        for tick in 1..400 {
            let (now, chat) = (Instant::ZERO + tick * TICK, tick < 100);
            let demand = if chat { 0.02e6 } else { 12e6 };
            sent += pace.rate.min(demand) / 8.0 / 20.0;
            let gauges = Gauges {
                now,
                departed_bytes: sent as u64,
                backlog_bytes: if pace.rate < demand { 10_000 } else { 0 },
                ..Gauges::default()
            };
            pace.decide(&gauges, &mut [], &mut rng);
            if chat {
                let delay = if tick % 8 < 4 {
                    12 * MS
                } else {
                    Duration::ZERO
                };
                let delay = Delay {
                    source: tick % 2,
                    down: delay,
                    up: delay,
                    ..Delay::default()
                };
                pace.on_delay(&delay, &gauges);
                lowest = pace.rate.min(lowest);
            }
        }
        assert!(lowest < 1e6 && pace.rate > 12e6, "{lowest}, {}", pace.rate);
    }
}
