//! HyStart (Ha and Rhee, "Taming the elephants: new TCP slow start", Computer Networks 55, 2011),
//! as in Linux's `tcp_cubic.c`: slow start ends before the queue overflows, either when a train of
//! ACKs is longer than half the base RTT (with pacing, longer than the base RTT), or when the RTT
//! rises.
//!
//! Deviation from Linux: without pacing, the allowance for bursts (`ack_delay_us`) uses the pacing
//! rate at the current ACK; Linux uses the one computed at the previous ACK.

use super::{Sock, micros};
use quell_qdisc::time::Instant;

/// Smallest window in packets at which slow start can end.
const LOW_WINDOW: u32 = 16;
/// Number of RTT samples of a round after which a rise in delay can end slow start.
const MIN_SAMPLES: u8 = 8;
/// Bounds of the rise in delay that ends slow start, µs.
const DELAY_US: (u32, u32) = (4_000, 16_000);
/// Largest gap between two ACKs of a train, µs.
const ACK_DELTA_US: i32 = 2_000;

/// State of the current round in slow start; times in µs.
#[derive(Clone, Debug)]
pub struct HyStart {
    start_us: u32,
    /// Last ACK of the train.
    last_ack_us: u32,
    /// Segment number; the first ACK above it ends the round.
    end_seq: u64,
    /// Lowest RTT of the round.
    rtt_us: u32,
    /// Number of the round's RTT samples, up to `MIN_SAMPLES`.
    samples: u8,
    /// Whether a reason to end slow start was found.
    found: bool,
}

impl HyStart {
    /// Begins a round.
    pub fn new(s: &Sock, now: Instant) -> Self {
        Self {
            start_us: micros(now),
            last_ack_us: micros(now),
            end_seq: s.nxt,
            rtt_us: u32::MAX,
            samples: 0,
            found: false,
        }
    }

    /// Processes an ACK in slow start; sets `ssthresh` to the window if slow start should end.
    pub fn update(&mut self, s: &mut Sock, now: Instant, delay_us: u32, delay_min_us: u32) {
        if self.found {
            return;
        }
        if s.una > self.end_seq {
            *self = Self::new(s, now);
        }
        if s.cwnd < LOW_WINDOW {
            return;
        }
        let train = self.train_is_long(s, now, delay_min_us);
        let rise = self.delay_has_risen(delay_us, delay_min_us);
        if train || rise {
            self.found = true;
            s.ssthresh = s.cwnd;
        }
    }

    fn train_is_long(&mut self, s: &Sock, now: Instant, delay_min_us: u32) -> bool {
        let now_us = micros(now);
        if now_us.wrapping_sub(self.last_ack_us).cast_signed() > ACK_DELTA_US {
            return false;
        }
        self.last_ack_us = now_us;
        let mut threshold = delay_min_us + ack_delay_us(s);
        // Pacing by the sender alone spreads a train over up to a round.
        if s.pacing_rate == u64::MAX {
            threshold >>= 1;
        }
        now_us.wrapping_sub(self.start_us) > threshold
    }

    fn delay_has_risen(&mut self, delay_us: u32, delay_min_us: u32) -> bool {
        self.rtt_us = self.rtt_us.min(delay_us);
        if self.samples < MIN_SAMPLES {
            self.samples += 1;
            return false;
        }
        let rise = (delay_min_us >> 3).clamp(DELAY_US.0, DELAY_US.1);
        self.rtt_us > delay_min_us + rise
    }
}

/// Allowance for the sender's own bursts, µs: four of 64 KiB at the pacing rate, at most 1 ms.
fn ack_delay_us(s: &Sock) -> u32 {
    const BURSTS: u64 = 4 * 65_536 * 1_000_000;
    let rate = s.rate_to_pace_at().max(1);
    (BURSTS / rate).min(1_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::time::{Duration, MS};

    fn start(cwnd: u32, rtt: Duration) -> (HyStart, Sock) {
        let s = Sock {
            srtt: rtt,
            ..Sock::new(1448, cwnd)
        };
        (HyStart::new(&s, Instant::ZERO), s)
    }

    /// Runs a round of ten ACKs 3 ms apart (no train) with this RTT; returns whether slow start
    /// continues.
    fn round(h: &mut HyStart, s: &mut Sock, at: Instant, delay_ms: u32) -> bool {
        s.una += 1;
        s.nxt = s.una + 20;
        for n in 0..10 {
            h.update(s, at + n * 3 * MS, delay_ms * 1000, 80_000);
        }
        s.una = s.nxt;
        s.in_slow_start()
    }

    #[test]
    fn slow_start_ends_when_the_delay_rises_by_an_eighth() {
        let (mut h, mut s) = start(20, 80 * MS);
        assert!(round(&mut h, &mut s, Instant::from_secs(1), 89));
        assert!(!round(&mut h, &mut s, Instant::from_secs(2), 91));
    }

    #[test]
    fn a_rise_in_delay_counts_after_eight_samples() {
        let (mut h, mut s) = start(20, 80 * MS);
        (s.una, s.nxt) = (1, 40);
        for n in 0..8 {
            h.update(&mut s, Instant::from_secs(1) + n * 3 * MS, 120_000, 80_000);
        }
        assert!(s.in_slow_start());
        h.update(&mut s, Instant::from_secs(1) + 30 * MS, 120_000, 80_000);
        assert!(!s.in_slow_start());
    }

    #[test]
    fn slow_start_continues_in_windows_below_sixteen() {
        let (mut h, mut s) = start(15, 80 * MS);
        assert!(round(&mut h, &mut s, Instant::from_secs(1), 200));
    }

    #[test]
    fn a_train_ends_slow_start_after_half_the_base_rtt_or_with_pacing_after_all_of_it() {
        for (pacing_rate, end_ms) in [(u64::MAX, 41), (1_000_000, 82)] {
            let (mut h, mut s) = start(20, 80 * MS);
            s.pacing_rate = pacing_rate;
            (s.una, s.nxt) = (1, 100);
            // One ACK per ms. The threshold is 80 ms plus 1 ms for bursts, halved without pacing.
            let last = (0..200u64).find(|&n| {
                h.update(&mut s, Instant::from_secs(1) + n * MS, 80_000, 80_000);
                !s.in_slow_start()
            });
            assert_eq!(last, Some(end_ms));
        }
    }

    #[test]
    fn a_gap_of_more_than_two_milliseconds_breaks_the_train() {
        let (mut h, mut s) = start(20, 80 * MS);
        (s.una, s.nxt) = (1, 100);
        for n in 0..40 {
            h.update(&mut s, Instant::from_secs(1) + n * 3 * MS, 80_000, 80_000);
        }
        assert!(s.in_slow_start());
    }
}
