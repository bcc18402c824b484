//! Westwood+ (Mascolo, Casetti, Gerla, Sanadidi and Wang, "TCP Westwood", MobiCom 2001; Grieco and
//! Mascolo, "Performance evaluation and comparison of Westwood+, New Reno, and Vegas TCP congestion
//! control", ACM CCR 34(2), 2004), as in Linux's `net/ipv4/tcp_westwood.c`: Reno, but after a loss
//! the window is the estimated bandwidth times the lowest RTT.
//!
//! Deviation from Linux: every ACK is counted as Linux counts ACKs outside header prediction. The
//! two counts differ only while duplicate ACKs are still to be subtracted.

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, MS};

use super::{Event, Ops, Sock, jiffies, newreno};

/// Shortest sample of the bandwidth, ms (`TCP_WESTWOOD_RTT_MIN`).
const MIN_SAMPLE_MS: u32 = 50;
/// The RTT before the first sample, ms (`TCP_WESTWOOD_INIT_RTT`).
const INITIAL_RTT_MS: u32 = 20_000;

/// One sender's Westwood+. Times named `_ms` are Linux's jiffies at HZ = 1000; bandwidths are bytes
/// per millisecond.
#[derive(Clone, Debug)]
pub struct Westwood {
    /// Bandwidth after one low-pass filter, and after two.
    once_filtered: u32,
    bandwidth: u32,
    /// Bytes acknowledged in the current sample, and its start.
    acked_bytes: u64,
    sample_start_ms: u32,
    /// `Sock::una` at the last ACK.
    una: u64,
    /// Bytes that duplicate ACKs reported and that the cumulative ACK will report again.
    reported: u64,
    rtt_ms: u32,
    min_rtt_ms: u32,
    /// Whether the next ACK's RTT becomes the lowest in any case.
    forget_min_rtt: bool,
    first_ack: bool,
}

impl Default for Westwood {
    fn default() -> Self {
        Self {
            once_filtered: 0,
            bandwidth: 0,
            acked_bytes: 0,
            sample_start_ms: 0,
            una: 0,
            reported: 0,
            rtt_ms: INITIAL_RTT_MS,
            min_rtt_ms: INITIAL_RTT_MS,
            forget_min_rtt: true,
            first_ack: true,
        }
    }
}

impl Westwood {
    /// Ends the current sample if it has lasted longer than both the RTT and 50 ms. Two low-pass
    /// filters of weight 7/8 smooth the samples.
    #[inline]
    fn update_bandwidth(&mut self, now_ms: u32) {
        let since = now_ms.wrapping_sub(self.sample_start_ms);
        if self.rtt_ms == 0 || since <= self.rtt_ms.max(MIN_SAMPLE_MS) {
            return;
        }
        let sample = num::low_u32(self.acked_bytes / u64::from(since));
        if self.once_filtered == 0 && self.bandwidth == 0 {
            self.once_filtered = sample;
            self.bandwidth = sample;
        } else {
            self.once_filtered = low_pass(self.once_filtered, sample);
            self.bandwidth = low_pass(self.bandwidth, self.once_filtered);
        }
        self.acked_bytes = 0;
        self.sample_start_ms = now_ms;
    }

    /// Number of bytes that an ACK newly reports: one segment for a duplicate ACK, which the next
    /// cumulative ACK does not count again.
    #[inline]
    fn newly_arrived(&mut self, s: &Sock) -> u64 {
        let mss = u64::from(s.mss);
        let mut bytes = (s.una - self.una) * mss;
        self.una = s.una;
        if bytes == 0 {
            self.reported += mss;
            return mss;
        }
        if bytes > mss {
            if self.reported >= bytes {
                self.reported -= bytes;
                return mss;
            }
            bytes -= self.reported;
            self.reported = 0;
        }
        bytes
    }

    /// The window that fills the path without a queue.
    fn path(&self, s: &Sock) -> u32 {
        let bytes = u64::from(self.bandwidth) * u64::from(self.min_rtt_ms);
        num::low_u32(bytes / u64::from(s.mss)).max(2)
    }
}

#[inline]
fn low_pass(old: u32, new: u32) -> u32 {
    (7 * old + new) >> 3
}

impl Ops for Westwood {
    fn init(&mut self, s: &mut Sock, now: Instant, _seed: u64) {
        *self = Self {
            sample_start_ms: jiffies(now),
            una: s.una,
            ..Self::default()
        };
    }

    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        newreno::half(s)
    }

    #[inline]
    fn cong_avoid(&mut self, s: &mut Sock, _now: Instant, acked: u32) {
        newreno::cong_avoid(s, acked);
    }

    #[inline]
    fn pkts_acked(&mut self, s: &mut Sock, now: Instant, _acked: u32, rtt: Duration) {
        if rtt != Duration::ZERO {
            self.rtt_ms = num::low_u32(rtt.div_ceil(MS));
        }
        if self.first_ack {
            // As in Linux, the count starts at the first ACK's `una`.
            self.una = s.una;
            self.first_ack = false;
        }
        self.update_bandwidth(jiffies(now));
        self.acked_bytes += self.newly_arrived(s);
        if self.forget_min_rtt || self.rtt_ms < self.min_rtt_ms {
            self.min_rtt_ms = self.rtt_ms;
            self.forget_min_rtt = false;
        }
    }

    fn event(&mut self, s: &mut Sock, _now: Instant, e: Event) {
        match e {
            Event::CompleteCwr => {
                s.ssthresh = self.path(s);
                s.cwnd = s.ssthresh;
            }
            Event::Loss => {
                s.ssthresh = self.path(s);
                self.forget_min_rtt = true;
            }
            Event::TxStart => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::testpath::{Path, rate};
    use super::*;
    use quell_qdisc::time::SEC;

    #[test]
    fn after_a_reduction_the_window_is_bandwidth_times_lowest_rtt() {
        // tcp_westwood.c: bw_est * rtt_min / mss. 1,448,000 bytes/s and 30 ms are 30 packets.
        let mut w = Westwood {
            bandwidth: 1448,
            min_rtt_ms: 30,
            ..Westwood::default()
        };
        let mut s = Sock::new(1448, 80);
        assert_eq!(w.ssthresh(&mut s, Instant::ZERO), 40);
        w.event(&mut s, Instant::ZERO, Event::CompleteCwr);
        assert_eq!((s.cwnd, s.ssthresh), (30, 30));
    }

    #[test]
    fn a_timeout_keeps_the_path_as_threshold_and_measures_the_lowest_rtt_again() {
        let mut w = Westwood {
            bandwidth: 1448,
            min_rtt_ms: 30,
            forget_min_rtt: false,
            ..Westwood::default()
        };
        let mut s = Sock::new(1448, 1);
        w.event(&mut s, Instant::ZERO, Event::Loss);
        assert_eq!((s.cwnd, s.ssthresh), (1, 30));
        w.pkts_acked(&mut s, Instant::ZERO, 1, 70 * MS);
        assert_eq!(w.min_rtt_ms, 70);
    }

    #[test]
    fn a_duplicate_ack_counts_a_segment_that_the_cumulative_ack_leaves_out() {
        // Mascolo et al. 2001, section 2: AckedCount.
        let mut w = Westwood {
            una: 10,
            ..Westwood::default()
        };
        let mut s = Sock {
            una: 10,
            ..Sock::new(1448, 10)
        };
        assert_eq!(w.newly_arrived(&s), 1448);
        assert_eq!(w.newly_arrived(&s), 1448);
        s.una = 14;
        assert_eq!(w.newly_arrived(&s), 2 * 1448);
        s.una = 16;
        assert_eq!(w.newly_arrived(&s), 2 * 1448);
    }

    #[test]
    fn samples_of_the_bandwidth_last_50_ms_at_least() {
        let mut w = Westwood {
            rtt_ms: 10,
            acked_bytes: 100_000,
            ..Westwood::default()
        };
        w.update_bandwidth(50);
        assert_eq!(w.bandwidth, 0);
        w.update_bandwidth(51);
        assert_eq!(w.bandwidth, 100_000 / 51);
    }

    #[test]
    fn a_mark_at_a_full_pipe_leaves_the_window_of_the_path() {
        let cc = CongestionControl::Westwood(Westwood::default());
        let mut p = Path::new(cc, rate(20), 40 * MS);
        p.mark_beyond = 80 * MS;
        let mut min_cwnd = u32::MAX;
        p.run_for(10 * SEC);
        for _ in 0..10_000 {
            p.run_for(MS);
            min_cwnd = min_cwnd.min(p.s.cwnd);
        }
        // The path holds 1666 packets/s * 40 ms = 67 packets, its queue 133 at the mark: Reno would
        // keep half of 200.
        assert!((50..=75).contains(&min_cwnd), "{min_cwnd}");
    }
}
