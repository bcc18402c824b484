//! Long-term sampling: BBR's response to token-bucket policers, which pass a burst and then drop
//! all packets above their rate. Two lossy intervals of similar throughput indicate a policer; its
//! rate is then used as the bandwidth for a while, without probing.

use quell_qdisc::num;
use quell_qdisc::time::Instant;

use super::super::{RateSample, Sock, jiffies};
use super::{BW_UNIT, UNIT, bytes_per_second};

/// Minimum number of rounds of an interval, which is abandoned after four times as many.
const ROUNDS: u8 = 4;
/// Share of loss, in 1/256, that makes an interval lossy.
const LOSS: u64 = 50;
/// The bandwidths of two intervals agree if they differ by at most an eighth or 4 kbit/s.
const RATIO: u64 = UNIT as u64 / 8;
const DIFF_BYTES: u64 = 4000 / 8;
/// Number of rounds for which a policer's rate is used.
const USE_ROUNDS: u8 = 48;

/// The sampler.
#[derive(Clone, Debug, Default)]
pub(super) struct LongTerm {
    /// Bandwidth of the last interval, or of the policer.
    bw: u32,
    last_delivered: u64,
    last_lost: u64,
    last_stamp_ms: u32,
    /// Number of rounds of this interval, or of use of the rate.
    rounds: u8,
    sampling: bool,
    in_use: bool,
}

impl LongTerm {
    /// The policer's rate, if one was detected.
    #[inline]
    pub fn bandwidth(&self) -> Option<u32> {
        self.in_use.then_some(self.bw)
    }

    /// Takes an ACK's sample. Returns true if the policer's rate has been used long enough and
    /// probing must resume.
    #[inline]
    pub fn sample(
        &mut self,
        s: &Sock,
        now: Instant,
        rs: &RateSample,
        round_start: bool,
        probing: bool,
    ) -> bool {
        if self.in_use {
            if !probing || !round_start {
                return false;
            }
            self.rounds += 1;
            if self.rounds < USE_ROUNDS {
                return false;
            }
            self.reset(s, now);
            return true;
        }
        // The first loss shows that the policer's tokens are used up.
        if !self.sampling {
            if rs.losses == 0 {
                return false;
            }
            self.start_interval(s, now);
            self.sampling = true;
        }
        self.continue_interval(s, now, rs, round_start);
        false
    }

    fn continue_interval(&mut self, s: &Sock, now: Instant, rs: &RateSample, round_start: bool) {
        // If the application is the limit, the throughput means nothing.
        if rs.app_limited {
            self.reset(s, now);
            return;
        }
        self.rounds += u8::from(round_start);
        if self.rounds < ROUNDS {
            return;
        }
        if self.rounds > 4 * ROUNDS {
            self.reset(s, now);
            return;
        }
        // An interval ends as it began, with a loss.
        if rs.losses > 0 {
            self.end_interval(s, now);
        }
    }

    fn end_interval(&mut self, s: &Sock, now: Instant) {
        let lost = s.lost - self.last_lost;
        let delivered = s.delivered - self.last_delivered;
        let ms = jiffies(now).wrapping_sub(self.last_stamp_ms);
        if delivered == 0 || lost << 8 < LOSS * delivered || ms == 0 {
            return;
        }
        if ms >= u32::MAX / 1000 {
            self.reset(s, now);
            return;
        }
        let bw = num::low_u32(delivered * BW_UNIT / (u64::from(ms) * 1000));
        let diff = bw.abs_diff(self.bw);
        let close = u64::from(diff) * u64::from(UNIT) <= RATIO * u64::from(self.bw)
            || bytes_per_second(s, diff, UNIT) <= DIFF_BYTES;
        if self.bw != 0 && close {
            self.bw = num::low_u32((u64::from(bw) + u64::from(self.bw)) / 2);
            self.in_use = true;
            self.rounds = 0;
        } else {
            self.bw = bw;
            self.start_interval(s, now);
        }
    }

    fn start_interval(&mut self, s: &Sock, now: Instant) {
        self.last_stamp_ms = jiffies(now);
        self.last_delivered = s.delivered;
        self.last_lost = s.lost;
        self.rounds = 0;
    }

    /// Resets the sampler.
    pub fn reset(&mut self, s: &Sock, now: Instant) {
        *self = Self::default();
        self.start_interval(s, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::time::MS;

    /// The sampler after twelve rounds of 100 ms, in each of which 100 packets were delivered and
    /// `lost` were lost.
    fn after_rounds(lost: u32) -> (LongTerm, Sock, Instant) {
        let (mut l, mut s) = (LongTerm::default(), Sock::new(1448, 100));
        let mut now = Instant::from_secs(1);
        for _ in 0..12 {
            let rs = RateSample {
                losses: lost,
                ..RateSample::default()
            };
            l.sample(&s, now, &rs, true, false);
            s.delivered += 100;
            s.lost += u64::from(lost);
            now += 100 * MS;
        }
        (l, s, now)
    }

    #[test]
    fn two_similar_lossy_intervals_indicate_a_policer() {
        let (l, ..) = after_rounds(30);
        // 100 packets in 100 ms.
        let expected = (BW_UNIT / 1000) as f64;
        let bw = f64::from(l.bandwidth().unwrap());
        assert!((bw / expected - 1.0).abs() < 0.02, "{bw}");
    }

    #[test]
    fn a_fifth_must_be_lost() {
        // The threshold is 50/256 = 19.5 %.
        assert!(after_rounds(20).0.bandwidth().is_some());
        assert!(after_rounds(19).0.bandwidth().is_none());
    }

    #[test]
    fn a_policers_rate_is_used_for_48_rounds_of_probing() {
        let (mut l, s, now) = after_rounds(30);
        let rs = RateSample::default();
        let rounds = (1..).find(|_| l.sample(&s, now, &rs, true, true)).unwrap();
        assert_eq!(rounds, 48);
        assert!(l.bandwidth().is_none());
    }

    #[test]
    fn running_out_of_data_ends_the_interval() {
        let (mut l, s, now) = (
            LongTerm::default(),
            Sock::new(1448, 10),
            Instant::from_secs(1),
        );
        let loss = RateSample {
            losses: 1,
            ..RateSample::default()
        };
        l.sample(&s, now, &loss, true, false);
        assert!(l.sampling);
        let idle = RateSample {
            app_limited: true,
            ..RateSample::default()
        };
        l.sample(&s, now, &idle, true, false);
        assert!(!l.sampling);
    }
}
