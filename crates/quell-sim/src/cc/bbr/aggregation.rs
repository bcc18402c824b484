//! Estimate of ACK aggregation (Wi-Fi, offloads, thinned ACKs): the number of packets by which
//! bursts of ACKs exceed what the bandwidth delivers. As many more packets must be in flight to
//! bridge the silence between the bursts.

use quell_qdisc::num;
use quell_qdisc::time::Instant;

use super::super::{Sock, micros};
use super::BW_SCALE;

/// Number of rounds in each half of the maximum's window.
const ROUNDS: u8 = 5;
/// Number of packets at which an epoch restarts.
const EPOCH_MAX: u32 = 1 << 20;
/// Longest silence to be bridged, µs.
const SILENCE_US: u64 = 100_000;

/// The estimate.
#[derive(Clone, Debug, Default)]
pub(super) struct Aggregation {
    /// Start of the epoch over which the excess is counted, and packets acknowledged in it.
    epoch_start_us: u32,
    epoch_acked: u32,
    /// Largest excess in each half of the window, packets.
    excess: [u16; 2],
    half: u8,
    rounds: u8,
}

impl Aggregation {
    /// Starts an epoch.
    pub fn start_epoch(&mut self, now: Instant) {
        self.epoch_start_us = micros(now);
        self.epoch_acked = 0;
    }

    /// Takes an ACK of `acked` packets, at a bandwidth of `bw`.
    #[inline]
    pub fn update(&mut self, s: &Sock, now: Instant, acked: u32, bw: u32, round_start: bool) {
        if round_start {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                self.half ^= 1;
                self.excess[usize::from(self.half)] = 0;
            }
        }
        let epoch_us = micros(now).wrapping_sub(self.epoch_start_us);
        let mut expected = num::low_u32((u64::from(bw) * u64::from(epoch_us)) >> BW_SCALE);
        if self.epoch_acked <= expected || self.epoch_acked + acked >= EPOCH_MAX {
            self.start_epoch(now);
            expected = 0;
        }
        self.epoch_acked = (self.epoch_acked + acked).min(EPOCH_MAX - 1);
        let excess = num::low_u16(
            ((self.epoch_acked - expected)
                .min(s.cwnd)
                .min(u32::from(u16::MAX)))
            .into(),
        );
        let best = &mut self.excess[usize::from(self.half)];
        *best = excess.max(*best);
    }

    /// Packets to add to the window.
    #[inline]
    pub fn extra_cwnd(&self, bw: u32) -> u32 {
        let max = num::low_u32((u64::from(bw) * SILENCE_US) >> BW_SCALE);
        u32::from(self.excess[0].max(self.excess[1])).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::super::BW_UNIT;
    use super::*;
    use quell_qdisc::time::MS;

    /// One packet per ms.
    const BW: u32 = (BW_UNIT / 1000) as u32;

    #[test]
    fn the_window_grows_by_ack_bursts() {
        let (mut a, s) = (Aggregation::default(), Sock::new(1448, 100));
        for n in 0..20 {
            // Every 16 ms, 16 packets at once.
            a.update(&s, Instant::from_secs(1) + n * 16 * MS, 16, BW, true);
        }
        // A burst, plus the rounding error of the bandwidth.
        assert!((16..=17).contains(&a.extra_cwnd(BW)));
    }

    #[test]
    fn the_excess_is_kept_for_five_rounds_and_forgotten_after_ten() {
        let (mut a, s) = (Aggregation::default(), Sock::new(1448, 100));
        a.update(&s, Instant::from_secs(1), 40, BW, true);
        for n in 1..=10 {
            a.update(&s, Instant::from_secs(1) + n * 200 * MS, 1, BW, true);
            assert!(n > 5 || a.extra_cwnd(BW) == 40, "round {n}");
        }
        assert_eq!(a.extra_cwnd(BW), 1);
    }

    #[test]
    fn the_extra_window_is_at_most_100_ms() {
        let (mut a, s) = (Aggregation::default(), Sock::new(1448, 1000));
        a.update(&s, Instant::from_secs(1), 800, BW, true);
        assert_eq!(a.extra_cwnd(BW), 99); // 100 ms, rounded down twice
    }
}
