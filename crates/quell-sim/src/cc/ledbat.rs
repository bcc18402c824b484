//! LEDBAT (RFC 6817) for background transfers: its window aims at 100 ms of queuing delay and
//! yields to other traffic.
//!
//! Deviations from RFC 6817: the delay is the RTT, as in LEDBAT++, because TCP's ACKs carry no
//! precise arrival time; so a queue on the return path counts too. The retransmission timeout is
//! the sender's, in place of the RFC's congestion timeout. The last four samples count even if a
//! window below eight packets makes them older than a round trip, which the RFC does not allow. The
//! key `iw` is the initial window up to 2 packets, the RFC's INIT_CWND.

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, US};

use super::{Ops, Sock};

/// Target of the queuing delay; section 2.5: at most 100 ms.
const TARGET: Duration = Duration::from_millis(100);
/// Packets of growth per round with no queue; section 2.5: at most 1.
const GAIN: i64 = 1;
/// Minimum and initial window, packets; section 2.5: 2.
pub(super) const MIN_CWND: u32 = 2;
const INIT_CWND: u32 = 2;
/// Packets by which the window may exceed the flight size; section 2.5: 1.
const ALLOWED_INCREASE: u32 = 1;
/// Minutes for which a lowest delay counts, and number of samples whose lowest is the current
/// delay; section 2.5: 10, and at least 4.
const BASE_HISTORY: usize = 10;
const CURRENT_FILTER: usize = 4;

/// The lowest delay of each of the last minutes, and the last delays (section 2.4.2), µs.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    base_us: [u32; BASE_HISTORY],
    current_us: [u32; CURRENT_FILTER],
    minute: u32,
    next: u8,
}

impl Delays {
    pub(super) fn new() -> Self {
        Self {
            base_us: [u32::MAX; BASE_HISTORY],
            current_us: [u32::MAX; CURRENT_FILTER],
            minute: 0,
            next: 0,
        }
    }

    /// Adds a sample.
    #[inline]
    pub(super) fn add(&mut self, now: Instant, delay: Duration) {
        let delay_us = num::low_u32((delay / US).min(u64::from(u32::MAX)));
        let minute = num::low_u32(now.as_secs() / 60);
        if minute != self.minute {
            // A connection that was silent for minutes discards as many entries.
            for _ in 0..(minute - self.minute).min(num::count(BASE_HISTORY)) {
                self.base_us.rotate_right(1);
                self.base_us[0] = u32::MAX;
            }
            self.minute = minute;
        }
        self.base_us[0] = self.base_us[0].min(delay_us);
        self.current_us[usize::from(self.next)] = delay_us;
        self.next = (self.next + 1) % num::low_u8(CURRENT_FILTER as u64);
    }

    /// The base delay; `None` before the first sample.
    pub(super) fn base(&self) -> Option<Duration> {
        let lowest = self.base_us.iter().copied().min();
        lowest
            .filter(|us| *us != u32::MAX)
            .map(|us| u64::from(us) * US)
    }

    /// Queuing delay: the lowest of the last samples less the base.
    #[inline]
    pub(super) fn queuing(&self) -> Duration {
        let current = self.current_us.iter().copied().min().unwrap_or(u32::MAX);
        let base = self.base_us.iter().copied().min().unwrap_or(u32::MAX);
        u64::from(current.saturating_sub(base)) * US
    }
}

/// One sender's LEDBAT.
#[derive(Clone, Debug)]
pub struct Ledbat {
    delays: Delays,
    /// Growth that is not yet a whole packet, in µs times packets acknowledged.
    growth: i64,
}

impl Ledbat {
    /// The state of a new connection.
    pub fn new() -> Self {
        Self {
            delays: Delays::new(),
            growth: 0,
        }
    }
}

impl Default for Ledbat {
    fn default() -> Self {
        Self::new()
    }
}

impl Ops for Ledbat {
    fn init(&mut self, s: &mut Sock, _now: Instant, _seed: u64) {
        s.cwnd = s.cwnd.min(INIT_CWND);
        // The RFC's procedures have no slow start.
        s.ssthresh = s.cwnd;
    }

    /// Section 2.4.2, "on data loss": half of the window.
    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        self.growth = 0;
        (s.cwnd / 2).max(MIN_CWND)
    }

    /// Section 2.4.2, "on acknowledgment": cwnd += GAIN (TARGET - queuing delay) / TARGET * acked /
    /// cwnd.
    #[inline]
    fn cong_avoid(&mut self, s: &mut Sock, _now: Instant, acked: u32) {
        let off_target = (TARGET / US).cast_signed() - (self.delays.queuing() / US).cast_signed();
        self.growth += GAIN * off_target * i64::from(acked);
        let packet = (TARGET / US).cast_signed() * i64::from(s.cwnd);
        let whole = self.growth / packet;
        self.growth -= whole * packet;
        let max_cwnd = s.in_flight() + acked + ALLOWED_INCREASE;
        let cwnd = (i64::from(s.cwnd) + whole).min(i64::from(max_cwnd));
        s.cwnd = num::low_u32(cwnd.max(i64::from(MIN_CWND)).cast_unsigned());
    }

    #[inline]
    fn pkts_acked(&mut self, _s: &mut Sock, now: Instant, _acked: u32, rtt: Duration) {
        if rtt != Duration::ZERO {
            self.delays.add(now, rtt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::testpath::{Path, mean, rate};
    use super::*;
    use quell_qdisc::time::{MS, SEC};

    /// The window after a full window of `cwnd` packets is acknowledged one by one, with this
    /// queuing delay over a base of 20 ms.
    fn round(cwnd: u32, queuing: Duration) -> u32 {
        let mut l = Ledbat::new();
        let mut s = Sock {
            nxt: u64::from(cwnd),
            ..Sock::new(1448, cwnd)
        };
        l.pkts_acked(&mut s, Instant::ZERO, 1, 20 * MS);
        for _ in 0..CURRENT_FILTER {
            l.pkts_acked(&mut s, Instant::ZERO, 1, 20 * MS + queuing);
        }
        for _ in 0..cwnd {
            l.cong_avoid(&mut s, Instant::ZERO, 1);
        }
        s.cwnd
    }

    #[test]
    fn growth_is_a_packet_per_round_without_a_queue_and_none_at_the_target() {
        // RFC 6817, section 2.4.2, with GAIN = 1 and TARGET = 100 ms.
        assert_eq!(round(40, Duration::ZERO), 41);
        assert_eq!(round(40, 100 * MS), 40);
        assert_eq!(round(40, 205 * MS), 39);
        assert_eq!(round(40, 350 * MS), 38); // -2.5 packets
    }

    #[test]
    fn the_window_exceeds_what_was_in_flight_by_one_packet_at_most() {
        let mut l = Ledbat::new();
        let mut s = Sock {
            nxt: 5,
            ..Sock::new(1448, 40)
        };
        l.pkts_acked(&mut s, Instant::ZERO, 1, 20 * MS);
        s.una = 1;
        l.cong_avoid(&mut s, Instant::ZERO, 1);
        assert_eq!(s.cwnd, 6); // ALLOWED_INCREASE
    }

    #[test]
    fn it_begins_with_two_packets_and_a_loss_halves_it_to_two_at_least() {
        let mut l = Ledbat::new();
        let mut s = Sock::new(1448, 10);
        l.init(&mut s, Instant::ZERO, 0);
        assert_eq!(s.cwnd, 2);
        assert!(!s.in_slow_start());
        s.cwnd = 31;
        assert_eq!(l.ssthresh(&mut s, Instant::ZERO), 15);
        s.cwnd = 3;
        assert_eq!(l.ssthresh(&mut s, Instant::ZERO), 2);
    }

    #[test]
    fn a_base_delay_counts_for_ten_minutes() {
        let mut d = Delays::new();
        d.add(Instant::ZERO, 20 * MS);
        for minute in 1..10 {
            d.add(Instant::ZERO + minute * 60 * SEC, 50 * MS);
            assert_eq!(d.base(), Some(20 * MS), "{minute}");
        }
        d.add(Instant::from_secs(600), 50 * MS);
        assert_eq!(d.base(), Some(50 * MS));
    }

    #[test]
    fn the_queuing_delay_is_the_lowest_of_four_samples() {
        let mut d = Delays::new();
        for delay in [20, 90, 60, 70, 80] {
            d.add(Instant::ZERO, delay * MS);
        }
        assert_eq!(d.queuing(), 40 * MS);
    }

    #[test]
    fn alone_it_fills_the_link_with_its_target_of_queue() {
        let mut p = Path::new(CongestionControl::Ledbat(Ledbat::new()), rate(10), 40 * MS);
        p.run_for(60 * SEC);
        let before = p.s.delivered;
        let queue = mean(&mut p, 10 * SEC, |p| p.queue() as f64);
        let share = (p.s.delivered - before) as f64 / (10.0 * rate(10) as f64);
        assert!(share > 0.99, "{share}");
        // 833 packets/s: 100 ms are 83 packets.
        assert!((75.0..92.0).contains(&queue), "{queue}");
    }
}
