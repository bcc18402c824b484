//! LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus-06, "LEDBAT++: congestion control for background
//! traffic"): LEDBAT with a target of 60 ms, slower growth, multiplicative decrease, and slowdowns,
//! during which it measures the path without its own queue.
//!
//! Only the abstract of the draft could be read; the rules and constants are those that
//! implementations of revision 01 quote (W += max(GAIN - Constant W (delay/target - 1), -W/2) per
//! round trip, GAIN = 1 / min(16, ceil(2 TARGET / base))), with the draft's headings. Darwin's
//! `bsd/netinet/tcp_ledbat.c` has the same gain, end of slow start, slowdowns and decrease; two of
//! its rules are not in quell: it postpones a slowdown by 30 s after each decrease, and counts a
//! slowdown twice if the window did not recover from it. Deviations: the decrease is applied once,
//! at the end of a round, and rounded down to whole packets in place of the GAIN of at most one
//! packet; Constant is 1; the delay is the lowest of four samples, as in `ledbat.rs`.

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant};

use super::ledbat::{Delays, MIN_CWND};
use super::{CaState, Ops, Sock};

/// Target of the queuing delay.
const TARGET: Duration = Duration::from_millis(60);
/// Queuing delay at which the first slow start ends: three quarters of the target.
const SLOW_START_LIMIT: Duration = Duration::from_millis(45);
/// Inverse of the minimum gain: 1/16 of Reno's.
const MAX_ROUNDS: u64 = 16;
/// Round trips from the end of slow start to the first slowdown, and duration of a slowdown.
const SLOWDOWN_ROUNDS: u64 = 2;
/// Time to the next slowdown, as a multiple of the time from the start of the last one to recovery.
const SLOWDOWN_SHARE: u64 = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first slow start, which a rise of the delay ends.
    FirstSlowStart,
    /// Growth and decrease by delay, until the next slowdown.
    Avoidance { slowdown_at: Instant },
    /// A window of two packets.
    Slowdown { began: Instant, until: Instant },
    /// Slow start to the window before the slowdown, or after a timeout.
    SlowStart { began: Instant },
}

/// One sender's LEDBAT++.
#[derive(Clone, Debug)]
pub struct LedbatPlus {
    delays: Delays,
    phase: Phase,
    /// Segment number; the first ACK above it ends the round.
    round_end: u64,
}

impl LedbatPlus {
    /// The state of a new connection.
    pub fn new() -> Self {
        Self {
            delays: Delays::new(),
            phase: Phase::FirstSlowStart,
            round_end: 0,
        }
    }

    /// The inverse of the gain: min(16, ceil(2 TARGET / base)), "Slower than Reno increase".
    fn rounds_per_packet(&self) -> u32 {
        let base = self
            .delays
            .base()
            .unwrap_or(TARGET)
            .max(Duration::from_nanos(1));
        (2 * TARGET).div_ceil(base).min(MAX_ROUNDS) as u32
    }

    /// Grows the window by one packet for `divisor` acknowledged ones.
    fn grow(s: &mut Sock, divisor: u32, acked: u32) {
        if s.is_cwnd_limited() {
            s.additive_increase(divisor, acked);
        }
    }

    fn end_first_slow_start(&mut self, s: &mut Sock, now: Instant) {
        s.ssthresh = s.ssthresh.min(s.cwnd);
        self.phase = Phase::Avoidance {
            slowdown_at: now + SLOWDOWN_ROUNDS * s.srtt,
        };
        self.round_end = s.nxt;
    }

    fn end_slow_start(&mut self, s: &Sock, now: Instant, began: Instant) {
        self.phase = Phase::Avoidance {
            slowdown_at: now + SLOWDOWN_SHARE * (now - began),
        };
        self.round_end = s.nxt;
    }

    fn slow_down(&mut self, s: &mut Sock, now: Instant) {
        s.ssthresh = s.cwnd.max(MIN_CWND);
        s.cwnd = MIN_CWND;
        s.cwnd_cnt = 0;
        self.phase = Phase::Slowdown {
            began: now,
            until: now + SLOWDOWN_ROUNDS * s.srtt,
        };
    }

    /// Up to the target, grows by a packet per `rounds_per_packet` rounds; above it, shrinks once
    /// per round by W (delay / target - 1), at most half of the window.
    fn avoid(&mut self, s: &mut Sock, acked: u32) {
        let queuing = self.delays.queuing();
        let round_ends = s.una > self.round_end;
        if round_ends {
            self.round_end = s.nxt;
        }
        if queuing <= TARGET {
            Self::grow(s, s.cwnd * self.rounds_per_packet(), acked);
        } else if round_ends {
            let less = u64::from(s.cwnd) * (queuing - TARGET) / TARGET;
            s.cwnd -= num::low_u32(less.min(u64::from(s.cwnd / 2)));
            s.cwnd = s.cwnd.max(MIN_CWND);
            s.cwnd_cnt = 0;
        }
    }
}

impl Default for LedbatPlus {
    fn default() -> Self {
        Self::new()
    }
}

impl Ops for LedbatPlus {
    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        (s.cwnd / 2).max(MIN_CWND)
    }

    fn cong_avoid(&mut self, s: &mut Sock, now: Instant, acked: u32) {
        match self.phase {
            Phase::FirstSlowStart => {
                if self.delays.queuing() > SLOW_START_LIMIT || !s.in_slow_start() {
                    self.end_first_slow_start(s, now);
                } else {
                    Self::grow(s, self.rounds_per_packet(), acked);
                }
            }
            Phase::Avoidance { slowdown_at } if now >= slowdown_at => self.slow_down(s, now),
            Phase::Avoidance { .. } => self.avoid(s, acked),
            Phase::Slowdown { until, .. } if now < until => {}
            Phase::Slowdown { began, .. } => self.phase = Phase::SlowStart { began },
            Phase::SlowStart { began } => {
                Self::grow(s, self.rounds_per_packet(), acked);
                if s.cwnd >= s.ssthresh {
                    s.cwnd = s.ssthresh;
                    self.end_slow_start(s, now, began);
                }
            }
        }
    }

    #[inline]
    fn pkts_acked(&mut self, _s: &mut Sock, now: Instant, _acked: u32, rtt: Duration) {
        if rtt != Duration::ZERO {
            self.delays.add(now, rtt);
        }
    }

    fn set_state(&mut self, _s: &mut Sock, now: Instant, new: CaState) {
        // After a timeout the window is one packet: slow start up to the threshold.
        if new == CaState::Loss && !matches!(self.phase, Phase::SlowStart { .. }) {
            self.phase = Phase::SlowStart { began: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::testpath::{Path, mean, rate};
    use super::*;
    use quell_qdisc::time::{MS, SEC};

    fn with_base(base: Duration) -> LedbatPlus {
        let mut l = LedbatPlus::new();
        l.pkts_acked(&mut Sock::new(1448, 10), Instant::ZERO, 1, base);
        l
    }

    /// The window after a round in congestion avoidance with one ACK per packet and this queuing
    /// delay over a base of 120 ms.
    fn round(cwnd: u32, queuing: Duration) -> u32 {
        let mut l = with_base(120 * MS);
        let mut s = Sock {
            ssthresh: 2,
            cwnd_limited: true,
            ..Sock::new(1448, cwnd)
        };
        l.phase = Phase::Avoidance {
            slowdown_at: Instant::from_secs(1),
        };
        for _ in 0..4 {
            l.pkts_acked(&mut s, Instant::ZERO, 1, 120 * MS + queuing);
        }
        s.una = 1;
        s.nxt = u64::from(cwnd) + 1;
        for _ in 0..cwnd {
            l.cong_avoid(&mut s, Instant::ZERO, 1);
            s.una += 1;
        }
        s.cwnd
    }

    #[test]
    fn the_gain_rises_with_the_base_delay_from_a_sixteenth_of_renos_to_renos() {
        // Draft, "Slower than Reno increase": GAIN = 1 / min(16, ceil(2 * 60 ms / base)).
        for (base, rounds) in [(5, 16), (20, 6), (50, 3), (120, 1), (200, 1)] {
            assert_eq!(with_base(base * MS).rounds_per_packet(), rounds, "{base}");
        }
        assert_eq!(round(40, Duration::ZERO), 41);
    }

    #[test]
    fn above_the_target_the_window_shrinks_in_proportion_and_by_half_at_most() {
        // Draft, "Multiplicative decrease": W (delay / target - 1), at most W / 2.
        assert_eq!(round(40, 66 * MS), 36);
        assert_eq!(round(40, 75 * MS), 30);
        assert_eq!(round(40, 300 * MS), 20);
    }

    #[test]
    fn the_first_slow_start_ends_at_three_quarters_of_the_target() {
        let mut l = with_base(120 * MS);
        let mut s = Sock {
            cwnd_limited: true,
            srtt: 150 * MS,
            ..Sock::new(1448, 20)
        };
        for (queuing, first) in [(45, true), (46, false)] {
            for _ in 0..4 {
                l.pkts_acked(&mut s, Instant::ZERO, 1, (120 + queuing) * MS);
            }
            l.cong_avoid(&mut s, Instant::from_secs(1), 1);
            assert_eq!(l.phase == Phase::FirstSlowStart, first, "{queuing}");
        }
        // The first slowdown: two round trips later.
        let slowdown_at = Instant::from_millis(1_300);
        assert_eq!(l.phase, Phase::Avoidance { slowdown_at });
        l.cong_avoid(&mut s, slowdown_at, 1);
        assert_eq!((s.cwnd, s.ssthresh), (2, 21));
    }

    #[test]
    fn a_slowdown_lasts_two_round_trips_and_the_next_follows_after_nine_times_as_long() {
        let mut l = with_base(120 * MS);
        let mut s = Sock {
            cwnd_limited: true,
            srtt: 120 * MS,
            ..Sock::new(1448, 8)
        };
        l.slow_down(&mut s, Instant::from_secs(1));
        l.cong_avoid(&mut s, Instant::from_secs(1) + 239 * MS, 2);
        assert_eq!(s.cwnd, 2);
        l.cong_avoid(&mut s, Instant::from_secs(1) + 240 * MS, 2);
        for ms in [360, 480, 500] {
            l.cong_avoid(&mut s, Instant::from_secs(1) + ms * MS, 2);
        }
        assert_eq!((s.cwnd, s.ssthresh), (8, 8));
        let slowdown_at = Instant::from_secs(1) + 500 * MS + 9 * 500 * MS;
        assert_eq!(l.phase, Phase::Avoidance { slowdown_at });
    }

    #[test]
    fn alone_it_uses_nine_tenths_of_the_link_and_keeps_the_queue_below_its_target() {
        let mut p = Path::new(
            CongestionControl::LedbatPlus(LedbatPlus::new()),
            rate(10),
            40 * MS,
        );
        p.run_for(30 * SEC);
        let before = p.s.delivered;
        let queue = mean(&mut p, 60 * SEC, |p| p.queue() as f64);
        let share = (p.s.delivered - before) as f64 / (60.0 * rate(10) as f64);
        assert!(share > 0.9, "{share}");
        // 833 packets/s: 60 ms are 50 packets.
        assert!((30.0..55.0).contains(&queue), "{queue}");
    }
}
