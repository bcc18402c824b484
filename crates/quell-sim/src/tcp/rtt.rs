//! Round-trip time and retransmission timeout: RFC 6298 with Linux's estimator
//! (`tcp_rtt_estimator`), in microseconds.

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, SEC, US};

/// `TCP_RTO_MAX`: maximum RTO.
pub const MAX_RTO: Duration = Duration::from_secs(120);
/// `TCP_TIMEOUT_INIT`: RTO before the first sample.
pub const INITIAL_RTO: Duration = SEC;
/// Time for which a lowest RTT counts (`tcp_min_rtt_wlen`).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);

/// Estimator of RTT and RTO.
#[derive(Clone, Debug)]
pub struct Rtt {
    /// Eight times the smoothed RTT, µs; 0 before the first sample.
    srtt8: u32,
    /// Four times the mean deviation, µs, and its maximum in the present round.
    mdev4: u32,
    mdev_max: u32,
    /// Distance of the RTO from the smoothed RTT, µs.
    rttvar: u32,
    /// The round ends when `una` exceeds this number.
    round: u64,
    /// Minimum RTO, µs.
    min_rto: u32,
    ns3: bool,
    /// Time of the sample that gave the lowest RTT.
    min_at: Instant,
    /// RTO without backoff.
    pub rto: Duration,
}

impl Rtt {
    /// An estimator without samples. With `ns3`, RTO = max(srtt + 4 rttvar, min_rto) (RFC 6298,
    /// section 2.4) instead of Linux's srtt + max(4 rttvar, min_rto).
    pub fn new(min_rto: Duration, ns3: bool) -> Self {
        Self {
            srtt8: 0,
            mdev4: 0,
            mdev_max: 0,
            rttvar: 0,
            round: 0,
            min_rto: num::low_u32(min_rto / US),
            ns3,
            min_at: Instant::ZERO,
            rto: INITIAL_RTO,
        }
    }

    /// Smoothed RTT; 0 before the first sample.
    #[inline]
    pub fn srtt(&self) -> Duration {
        u64::from(self.srtt8) * (US / 8)
    }

    /// Minimum RTO.
    pub fn min_rto(&self) -> Duration {
        u64::from(self.min_rto) * US
    }

    /// Replaces the lowest RTT, `min`, if `rtt` is not above it, or if it is older than
    /// `MIN_RTT_WINDOW`.
    #[inline]
    pub fn update_min(&mut self, now: Instant, rtt: Duration, min: &mut Duration) {
        // A select instead of a branch: on a queue that often empties, the lowest RTT recurs at
        // random.
        let fresh = (rtt <= *min) | (now - self.min_at > MIN_RTT_WINDOW);
        *min = if fresh { rtt.max(US) } else { *min };
        self.min_at = if fresh { now } else { self.min_at };
    }

    /// Adds a sample from an ACK. `una` and `nxt` are the sender's, and divide samples into rounds.
    #[inline]
    pub fn sample(&mut self, rtt: Duration, una: u64, nxt: u64) {
        let floor = if self.ns3 { 0 } else { self.min_rto };
        let m = num::low_u32(rtt / US).max(1);
        if self.srtt8 == 0 {
            self.srtt8 = m << 3;
            self.mdev4 = m << 1;
            self.rttvar = self.mdev4.max(floor);
            self.mdev_max = self.rttvar;
            self.round = nxt;
        } else {
            let error = m.cast_signed() - (self.srtt8 >> 3).cast_signed();
            self.srtt8 = self.srtt8.wrapping_add_signed(error);
            let growth = error.abs() - (self.mdev4 >> 2).cast_signed();
            // A falling RTT must not raise the RTO. No branch, because the direction is random.
            let shift = 3 * i32::from((error < 0) & (growth > 0));
            self.mdev4 = self.mdev4.wrapping_add_signed(growth >> shift);
            if self.mdev4 > self.mdev_max {
                self.mdev_max = self.mdev4;
                self.rttvar = self.rttvar.max(self.mdev_max);
            }
            if una > self.round {
                if self.mdev_max < self.rttvar {
                    self.rttvar -= (self.rttvar - self.mdev_max) >> 2;
                }
                self.round = nxt;
                self.mdev_max = floor;
            }
        }
        let rto = (self.srtt8 >> 3) + self.rttvar;
        self.rto = (u64::from(rto.max(self.min_rto)) * US).min(MAX_RTO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::time::MS;

    #[test]
    fn a_steady_rtt_gives_srtt_plus_min_rto() {
        let mut r = Rtt::new(200 * MS, false);
        for k in 0..100 {
            r.sample(30 * MS, k, k + 10);
        }
        assert_eq!(r.srtt(), 30 * MS);
        assert_eq!(r.rto, 230 * MS);
    }

    #[test]
    fn ns3_option_takes_the_larger_of_rto_and_minimum() {
        let mut r = Rtt::new(SEC, true);
        for k in 0..100 {
            r.sample(30 * MS, k, k + 10);
        }
        assert_eq!(r.rto, SEC);
    }
}
