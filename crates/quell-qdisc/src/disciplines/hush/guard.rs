//! The guard of the policy: fq_codel's law, on the same queues, replaces law and policy while the
//! policy is not trusted.
//!
//! [`crate::control::guard`] supervises controllers that turn a queue's knobs. This policy sets a
//! law inside the queue, so this guard supervises it, at each decision, by the applicable rules of
//! that module:
//! - an impossible reading is `OutOfRange`;
//! - a backlog that throughout a second (or ten round trips, if longer) would take more than 250 ms
//!   (or two round trips, if longer) to drain is `Stuck`; the quiet time after that doubles each
//!   time, up to 64 times its length.
//!
//! The other rules do not apply here. A model file is checked when it is read; after that, all
//! values are integers, each setting is clamped to a range, and the driver's time never decreases:
//! nothing is infinite, late or stale. The guard does not detect a policy that loses goodput,
//! because a queue cannot distinguish this from traffic that has nothing to send.

use super::law::Settings;
use crate::control::guard::{DOUBLINGS, Fault, LONGEST, Params, Stats};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// The readings that the guard checks.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The measured rate.
    pub rate: Rate,
    /// Geometric mean of the flows' base round trips.
    pub round_trip: Duration,
    /// Time that the next packet to leave has waited.
    pub head_age: Duration,
    /// Bytes queued.
    pub queued: u64,
    /// Bytes sent since the queue's creation.
    pub sent: u64,
}

impl Reading {
    /// True if the rate is at an end of its range, which is not a measurement, or if the head has
    /// waited for more than ten minutes.
    fn is_impossible(&self) -> bool {
        let rate = self.rate.bytes_per_sec();
        rate <= super::link::SLOWEST || rate >= super::link::FASTEST || self.head_age > LONGEST
    }
}

/// A period as long as the quiet time, with the least backlog in it and the bytes sent up to its
/// start.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    began: Instant,
    /// Time of the last decision in it.
    last: Instant,
    sent: u64,
    least: u64,
}

/// The guard's state.
#[derive(Clone, Debug)]
pub struct Guard {
    dry_run: bool,
    trusted: bool,
    /// Time from which the policy decides again.
    until: Instant,
    /// Number of times that the quiet time has doubled.
    doublings: u64,
    stretch: Option<Stretch>,
    stats: Stats,
}

impl Guard {
    /// With `dry_run` the policy never decides; its proposals are only recorded.
    pub fn new(dry_run: bool) -> Self {
        Self {
            dry_run,
            trusted: !dry_run,
            until: Instant::ZERO,
            doublings: 0,
            stretch: None,
            stats: Stats::default(),
        }
    }

    /// True while the policy decides.
    #[inline]
    pub fn trusts(&self) -> bool {
        self.trusted
    }

    /// Statistics so far; the knob in them is the target, in milliseconds.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Checks the policy's decision: the settings that it proposes on this reading. `stand_in` is
    /// the target in force while they are not applied. True if the policy decides again from now
    /// on.
    pub fn check(
        &mut self,
        now: Instant,
        reading: &Reading,
        proposed: &Settings,
        stand_in: Duration,
    ) -> bool {
        let quiet = Params::default().quiet.max(10 * reading.round_trip);
        let fault = match reading.is_impossible() {
            true => Some(Fault::OutOfRange),
            false if self.trusted => self.check_effect(now, reading, quiet),
            false => None,
        };
        if let Some(fault) = fault {
            self.stats.count(fault);
            if fault == Fault::Stuck {
                self.doublings = (self.doublings + 1).min(DOUBLINGS);
            }
            self.until = now.saturating_add(quiet.saturating_mul(1 << self.doublings));
        }
        let trusted = !self.dry_run && now >= self.until;
        self.stats.decisions += 1;
        self.stats.learned += u64::from(trusted);
        self.stats.fallbacks += u64::from(self.trusted && !trusted);
        let back = !self.trusted && trusted;
        self.stats.handed_back += u64::from(back);
        if !trusted {
            self.stretch = None;
        }
        self.trusted = trusted;
        if fault.is_none() {
            let ms = |time: Duration| time.as_millis_f64();
            let set = if trusted { proposed.target } else { stand_in };
            self.stats.proposals += 1;
            self.stats.proposed_sum += ms(proposed.target);
            self.stats.set_sum += ms(set);
        }
        back
    }

    /// Returns `Stuck` if the backlog was too long throughout a stretch in which packets left;
    /// while none leave, no law can shorten it.
    fn check_effect(&mut self, now: Instant, r: &Reading, quiet: Duration) -> Option<Fault> {
        let here = Stretch {
            began: now,
            last: now,
            sent: r.sent,
            least: r.queued,
        };
        let stretch = self.stretch.get_or_insert(here);
        if now.saturating_since(stretch.last) > quiet / 2 {
            *stretch = here;
        }
        stretch.last = now;
        stretch.least = stretch.least.min(r.queued);
        let span = now.saturating_since(stretch.began);
        if span < quiet {
            return None;
        }
        let (least, left) = (stretch.least, r.sent - stretch.sent);
        *stretch = here;
        let longest = Params::default().delay.max(2 * r.round_trip);
        let stuck = u128::from(least) * u128::from(span.as_nanos())
            > u128::from(left) * u128::from(longest.as_nanos());
        (stuck && left > 0).then_some(Fault::Stuck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MS;

    const SETTINGS: Settings = Settings {
        target: Duration::from_millis(10),
        wait: MS,
        hold: MS,
        cap: Duration::MAX,
        step: MS,
        power: 0,
    };

    /// The reading of a link of 1 MB/s that has been busy since time 0, with this many bytes
    /// queued.
    fn reading(now: Instant, queued: u64) -> Reading {
        Reading {
            rate: Rate::from_bytes_per_sec(1_000_000),
            round_trip: 20 * MS,
            head_age: Duration::ZERO,
            queued,
            sent: now.as_nanos() / 1000,
        }
    }

    /// Calls [`Guard::check`] every 10 ms from second `from` to second `to`; returns for each call
    /// whether the policy is then trusted.
    fn checks(guard: &mut Guard, from: u64, to: u64, queued: u64) -> Vec<bool> {
        let check = |i: u64| {
            let now = Instant::from_millis(i * 10);
            guard.check(now, &reading(now, queued), &SETTINGS, 5 * MS);
            guard.trusts()
        };
        (100 * from..100 * to).map(check).collect()
    }

    #[test]
    fn a_backlog_that_stays_long_brings_the_stand_in_for_twice_the_quiet_time_then_for_four_times()
    {
        let mut guard = Guard::new(false);
        // A backlog of 200 ms may last for any time.
        assert!(!checks(&mut guard, 0, 30, 200_000).contains(&false));
        let trusted = checks(&mut guard, 30, 39, 300_000);
        let changes: Vec<_> = (1..trusted.len())
            .filter(|i| trusted[*i] != trusted[i - 1])
            .collect();
        // A stretch may have begun just before; 2 s and then 4 s without the policy, a second with
        // it.
        assert_eq!(
            changes[1..4],
            [changes[0] + 200, changes[0] + 301, changes[0] + 701]
        );
        assert!(changes[0] <= 200, "{changes:?}");
        let s = guard.stats();
        assert_eq!((s.stuck, s.fallbacks, s.out_of_range), (2, 2, 0));
        assert!(s.handed_back >= 1 && s.learned < s.decisions);
        assert!((s.proposed_sum / s.proposals as f64 - 10.0).abs() < 1e-9);
        assert!(s.set_sum < s.proposed_sum);
    }

    #[test]
    fn a_draining_backlog_a_long_round_trip_and_a_stopped_link_are_not_faults() {
        let mut guard = Guard::new(false);
        for i in 0..2000 {
            let now = Instant::from_millis(i * 10);
            let queued = if i % 90 == 0 { 100_000 } else { 900_000 };
            guard.check(now, &reading(now, queued), &SETTINGS, 5 * MS);
        }
        for i in 2000..4000 {
            let now = Instant::from_millis(i * 10);
            let far = Reading {
                round_trip: 200 * MS,
                ..reading(now, 350_000)
            };
            guard.check(now, &far, &SETTINGS, 5 * MS);
        }
        for i in 4000..5000 {
            let stopped = Reading {
                sent: 5000 * 10_000,
                ..reading(Instant::ZERO, 900_000)
            };
            guard.check(Instant::from_millis(i * 10), &stopped, &SETTINGS, 5 * MS);
        }
        assert!(guard.trusts() && guard.stats().fallbacks == 0, "{guard:?}");
    }

    #[test]
    fn a_stretch_goes_on_over_pauses_of_half_the_quiet_time() {
        // The quiet time is a second.
        for (pause, trusted) in [
            (500 * MS, false),
            (500 * MS + Duration::from_nanos(1), true),
        ] {
            let mut guard = Guard::new(false);
            for now in (0..3).map(|k| Instant::ZERO + k * pause) {
                guard.check(now, &reading(now, 900_000), &SETTINGS, 5 * MS);
            }
            assert_eq!(guard.trusts(), trusted, "{pause:?}");
        }
    }

    #[test]
    fn an_impossible_reading_brings_the_stand_in_for_a_second() {
        for bad in [
            Reading {
                rate: Rate::MAX,
                ..reading(Instant::from_secs(1), 0)
            },
            Reading {
                head_age: LONGEST + Duration::from_nanos(1),
                ..reading(Instant::from_secs(1), 0)
            },
        ] {
            let mut guard = Guard::new(false);
            guard.check(Instant::from_secs(1), &bad, &SETTINGS, 5 * MS);
            assert!(!guard.trusts());
            assert!(!guard.check(
                Instant::from_secs(2) - Duration::from_nanos(1),
                &reading(Instant::from_secs(2), 0),
                &SETTINGS,
                5 * MS
            ));
            assert!(guard.check(
                Instant::from_secs(2),
                &reading(Instant::from_secs(2), 0),
                &SETTINGS,
                5 * MS
            ));
            let s = guard.stats();
            assert_eq!((s.out_of_range, s.fallbacks, s.handed_back), (1, 1, 1));
        }
        let oldest = Reading {
            head_age: LONGEST,
            ..reading(Instant::from_secs(1), 0)
        };
        assert!(!oldest.is_impossible());
    }
}
