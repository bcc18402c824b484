//! DCTCP (RFC 8257), as in Linux's `net/ipv4/tcp_dctcp.c`: the window shrinks in proportion to the
//! share of marked packets.
//!
//! `crate::tcp` implements the receiver's half, which echoes each change of CE. Growth is
//! NewReno's, as is the reaction to losses and timeouts (RFC 8257, section 3.5). Deviation from RFC
//! 8257, as in Linux: alpha is a share of packets, not of bytes, in steps of 1/1024.

use quell_qdisc::num;
use quell_qdisc::time::Instant;

use super::{AckEvent, CaState, Event, Ops, Sock, newreno};

/// 1 in the fixed-point format of alpha.
const ONE: u32 = 1024;
/// g = 1/16 (RFC 8257, section 4.2).
const SHIFT_G: u32 = 4;

/// State of a sender.
#[derive(Clone, Debug)]
pub struct Dctcp {
    /// Moving average of the share of marked packets, in 1/1024.
    alpha: u32,
    /// [`Sock::delivered`] at the start of this round.
    old_delivered: u64,
    /// [`Sock::delivered_ce`] at the start of this round.
    old_delivered_ce: u64,
    /// The sequence number at which this round ends.
    next_seq: u64,
    /// Window before the last reduction.
    loss_cwnd: u32,
}

impl Dctcp {
    /// Starts with alpha = 1: the first mark halves the window (RFC 8257, section 4.2).
    pub fn new() -> Self {
        Self {
            alpha: ONE,
            old_delivered: 0,
            old_delivered_ce: 0,
            next_seq: 0,
            loss_cwnd: 0,
        }
    }

    /// Estimated share of marked packets, 0 to 1.
    pub fn alpha(&self) -> f64 {
        f64::from(self.alpha) / f64::from(ONE)
    }

    fn start_round(&mut self, s: &Sock) {
        self.next_seq = s.nxt;
        self.old_delivered = s.delivered;
        self.old_delivered_ce = s.delivered_ce;
    }

    fn react_to_loss(&mut self, s: &mut Sock) {
        self.loss_cwnd = s.cwnd;
        s.ssthresh = newreno::half(s);
    }
}

impl Default for Dctcp {
    fn default() -> Self {
        Self::new()
    }
}

impl Ops for Dctcp {
    fn init(&mut self, s: &mut Sock, _now: Instant, _seed: u64) {
        self.start_round(s);
    }

    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        self.loss_cwnd = s.cwnd;
        // RFC 8257, section 3.3, step 9: cwnd (1 - alpha / 2).
        let reduction = u64::from(s.cwnd) * u64::from(self.alpha) / u64::from(2 * ONE);
        (s.cwnd - num::low_u32(reduction)).max(2)
    }

    #[inline]
    fn cong_avoid(&mut self, s: &mut Sock, _now: Instant, acked: u32) {
        newreno::cong_avoid(s, acked);
    }

    #[inline]
    fn in_ack_event(&mut self, s: &mut Sock, _now: Instant, _e: &AckEvent) {
        if s.una < self.next_seq {
            return;
        }
        // RFC 8257, section 3.3, steps 5 to 8. Below 16/1024, where the shift gives 0, alpha
        // becomes 0.
        let decay = self.alpha >> SHIFT_G;
        self.alpha -= if decay == 0 { self.alpha } else { decay };
        let marked = s.delivered_ce - self.old_delivered_ce;
        if marked > 0 {
            let delivered = (s.delivered - self.old_delivered).max(1);
            let share = marked * u64::from(ONE >> SHIFT_G) / delivered;
            self.alpha = (self.alpha + num::low_u32(share)).min(ONE);
        }
        self.start_round(s);
    }

    fn set_state(&mut self, s: &mut Sock, _now: Instant, new: CaState) {
        if new == CaState::Recovery && s.state != CaState::Recovery {
            self.react_to_loss(s);
        }
    }

    fn event(&mut self, s: &mut Sock, _now: Instant, e: Event) {
        if e == Event::Loss {
            self.react_to_loss(s);
        }
    }

    fn undo_cwnd(&mut self, s: &mut Sock) -> u32 {
        s.cwnd.max(self.loss_cwnd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` rounds of 100 packets, `marked` of which carry CE.
    fn rounds(d: &mut Dctcp, s: &mut Sock, n: u32, marked: u64) {
        for _ in 0..n {
            s.una = s.nxt;
            s.nxt += 100;
            s.delivered += 100;
            s.delivered_ce += marked;
            d.in_ack_event(s, Instant::ZERO, &AckEvent::default());
        }
    }

    #[test]
    fn alpha_converges_to_the_share_of_marks() {
        let (mut d, mut s) = (Dctcp::new(), Sock::new(1448, 10));
        d.init(&mut s, Instant::ZERO, 0);
        rounds(&mut d, &mut s, 200, 30);
        // The shift leaves a resolution of 16/1024.
        assert!((d.alpha() - 0.30).abs() < 0.017, "{}", d.alpha());
    }

    #[test]
    fn alpha_decays_by_a_sixteenth_per_round_and_reaches_zero() {
        let (mut d, mut s) = (Dctcp::new(), Sock::new(1448, 10));
        d.init(&mut s, Instant::ZERO, 0);
        rounds(&mut d, &mut s, 1, 0);
        assert_eq!(d.alpha, 960);
        rounds(&mut d, &mut s, 100, 0);
        assert_eq!(d.alpha, 0);
        s.cwnd = 50;
        assert_eq!(d.ssthresh(&mut s, Instant::ZERO), 50);
    }

    #[test]
    fn a_mark_halves_a_window_of_any_size() {
        let (mut d, mut s) = (Dctcp::new(), Sock::new(1448, 10));
        // cwnd * alpha exceeds 32 bits.
        s.cwnd = 5_000_000;
        assert_eq!(d.ssthresh(&mut s, Instant::ZERO), 2_500_000);
    }

    #[test]
    fn alpha_moves_once_per_round() {
        let (mut d, mut s) = (Dctcp::new(), Sock::new(1448, 10));
        s.nxt = 10;
        d.init(&mut s, Instant::ZERO, 0);
        for una in 1..10 {
            s.una = una;
            d.in_ack_event(&mut s, Instant::ZERO, &AckEvent::default());
        }
        assert_eq!(d.alpha, ONE);
        s.una = 10;
        d.in_ack_event(&mut s, Instant::ZERO, &AckEvent::default());
        assert_eq!(d.alpha, 960);
    }

    #[test]
    fn a_mark_shrinks_the_window_by_half_of_alpha_and_a_loss_halves_it() {
        let (mut d, mut s) = (Dctcp::new(), Sock::new(1448, 100));
        d.alpha = ONE / 4;
        assert_eq!(d.ssthresh(&mut s, Instant::ZERO), 88); // 100 - 100 * 256 / 2048, rounded down
        s.ssthresh = 88;
        d.set_state(&mut s, Instant::ZERO, CaState::Recovery);
        assert_eq!(s.ssthresh, 50);
        s.cwnd = 50;
        assert_eq!(d.undo_cwnd(&mut s), 100);
        s.cwnd = 60;
        d.event(&mut s, Instant::ZERO, Event::Loss);
        assert_eq!(s.ssthresh, 30);
    }
}
