//! NewReno's window: slow start and congestion avoidance of RFC 5681, as in `tcp_reno_*` of Linux's
//! `net/ipv4/tcp_cong.c`.
//!
//! Deviations from RFC 5681: windows count packets, not bytes; the threshold is half the window,
//! not half of the flight size (in Linux an unused window does not grow, so both agree for a busy
//! sender).

use super::{Ops, Sock};
use quell_qdisc::time::Instant;

/// NewReno, which has no state.
#[derive(Clone, Debug, Default)]
pub struct NewReno;

impl Ops for NewReno {
    #[inline]
    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        half(s)
    }

    #[inline]
    fn cong_avoid(&mut self, s: &mut Sock, _now: Instant, acked: u32) {
        cong_avoid(s, acked);
    }
}

/// Half of the window, at least two packets (RFC 5681, equation 4, which has the flight size in
/// place of the window).
#[inline]
pub(crate) fn half(s: &Sock) -> u32 {
    (s.cwnd / 2).max(2)
}

/// Grows the window by a packet per acknowledged packet below the threshold, and by a packet per
/// window above it (RFC 5681, section 3.1).
#[inline]
pub(crate) fn cong_avoid(s: &mut Sock, acked: u32) {
    if !s.is_cwnd_limited() {
        return;
    }
    let mut left = acked;
    if s.in_slow_start() {
        left = s.slow_start(acked);
        if left == 0 {
            return;
        }
    }
    s.additive_increase(s.cwnd, left);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(cwnd: u32, ssthresh: u32) -> Sock {
        Sock {
            cwnd_limited: true,
            ssthresh,
            ..Sock::new(1448, cwnd)
        }
    }

    #[test]
    fn slow_start_doubles_per_window_up_to_the_threshold() {
        let mut s = busy(10, 32);
        for _ in 0..5 {
            NewReno.cong_avoid(&mut s, Instant::ZERO, 2);
        }
        assert_eq!(s.cwnd, 20);
        for _ in 0..6 {
            NewReno.cong_avoid(&mut s, Instant::ZERO, 2);
        }
        assert_eq!(s.cwnd, 32);
        assert!(!s.in_slow_start());
    }

    #[test]
    fn an_ack_across_the_threshold_counts_its_rest_for_linear_growth() {
        let mut s = busy(9, 10);
        NewReno.cong_avoid(&mut s, Instant::ZERO, 4);
        assert_eq!((s.cwnd, s.cwnd_cnt), (10, 3));
    }

    #[test]
    fn congestion_avoidance_gains_one_packet_per_window() {
        let mut s = busy(20, 20);
        // 20 + 21 + ... + 29 acknowledged packets are ten windows; one at a time, Linux notices
        // each full window with the following ACK.
        for _ in 0..(20..30).sum::<u32>() {
            NewReno.cong_avoid(&mut s, Instant::ZERO, 1);
        }
        assert_eq!(s.cwnd, 30);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut s = Sock {
            cwnd_limited: false,
            max_packets_out: 4,
            ..busy(20, 20)
        };
        NewReno.cong_avoid(&mut s, Instant::ZERO, 100);
        assert_eq!((s.cwnd, s.cwnd_cnt), (20, 0));
        // In slow start, it is enough that half of the window is used (tcp_is_cwnd_limited).
        s.ssthresh = 100;
        s.max_packets_out = 11;
        NewReno.cong_avoid(&mut s, Instant::ZERO, 2);
        assert_eq!(s.cwnd, 22);
    }

    #[test]
    fn loss_halves_and_undo_restores() {
        let mut s = busy(31, 100);
        assert_eq!(NewReno.ssthresh(&mut s, Instant::ZERO), 15);
        s.prior_cwnd = 31;
        s.cwnd = 15;
        assert_eq!(NewReno.undo_cwnd(&mut s), 31);
        s.cwnd = 3;
        assert_eq!(NewReno.ssthresh(&mut s, Instant::ZERO), 2);
    }
}
