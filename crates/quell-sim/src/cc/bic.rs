//! BIC (Xu, Harfoush and Rhee, "Binary increase congestion control", INFOCOM 2004), as in Linux's
//! `net/ipv4/tcp_bic.c` and ns-3's TcpBic: binary search towards the window of the last loss, then
//! a slow start away from it.
//!
//! Linux and ns-3 differ in two things: near the target Linux takes four times as many packets per
//! packet of growth (`smooth_part` 20 against 5), and Linux corrects for delayed ACKs although it
//! counts packets, so that it grows twice as fast as intended. `bic` is Linux's; `bic_ns3` is
//! ns-3's, with which LFQ was trained and measured. Deviations from ns-3: slow start counts
//! acknowledged packets, not ACKs.

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant};

use super::{CaState, Ops, Sock, jiffies};

/// Options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Multiplicative decrease, in 1/1024 (819: 0.8).
    pub beta: u32,
    /// Largest growth per round, packets (16).
    pub max_increment: u32,
    /// Up to this window, packets, the growth is Reno's (14).
    pub low_window: u32,
    /// Close to the last maximum, the window grows by a packet in a quarter of this many rounds
    /// (Linux 20, ns-3 5).
    pub smooth_part: u32,
    /// Whether to remember less than the window at the loss if it was below the previous maximum.
    pub fast_convergence: bool,
    /// Whether to divide the packets acknowledged per packet of growth by the packets per ACK, as
    /// in Linux.
    pub delayed_ack: bool,
}

impl Params {
    /// Linux's module parameters.
    pub fn linux() -> Self {
        Self {
            beta: 819,
            max_increment: 16,
            low_window: 14,
            smooth_part: 20,
            fast_convergence: true,
            delayed_ack: true,
        }
    }

    /// ns-3's attributes with this multiplicative decrease, in (0, 1).
    pub fn ns3(beta: f64) -> Self {
        Self {
            beta: num::whole_u32(beta * f64::from(SCALE)),
            smooth_part: 5,
            delayed_ack: false,
            ..Self::linux()
        }
    }
}

/// Scale of beta.
const SCALE: u32 = 1024;
/// Each step of the search covers a quarter of the distance to the last maximum.
const B: u32 = 4;
/// Fractional bits of the packets per ACK.
const RATIO_SHIFT: u32 = 4;

/// One sender's BIC. Times named `_ms` are Linux's jiffies at HZ = 1000.
#[derive(Clone, Debug)]
pub struct Bic {
    /// One packet of growth per this many acknowledged.
    cnt: u32,
    last_max_cwnd: u32,
    last_cwnd: u32,
    last_time_ms: u32,
    /// Moving average of the packets per ACK, sixteenths.
    delayed_ack: u32,
    params: Params,
}

impl Bic {
    /// The state of a new connection.
    pub fn new(params: Params) -> Self {
        Self {
            cnt: 0,
            last_max_cwnd: 0,
            last_cwnd: 0,
            last_time_ms: 0,
            delayed_ack: 2 << RATIO_SHIFT,
            params,
        }
    }

    fn update(&mut self, cwnd: u32, now_ms: u32) {
        let same = self.last_cwnd == cwnd;
        if same && now_ms.wrapping_sub(self.last_time_ms) <= 1000 / 32 {
            return;
        }
        self.last_cwnd = cwnd;
        self.last_time_ms = now_ms;
        if cwnd <= self.params.low_window {
            self.cnt = cwnd;
            return;
        }
        self.cnt = self.search(cwnd);
        // While the available bandwidth is unknown: 5 % per round.
        if self.last_max_cwnd == 0 {
            self.cnt = self.cnt.min(20);
        }
        if self.params.delayed_ack {
            self.cnt = (self.cnt << RATIO_SHIFT) / self.delayed_ack;
        }
        self.cnt = self.cnt.max(1);
    }

    /// Packets to be acknowledged per packet of growth.
    fn search(&self, cwnd: u32) -> u32 {
        let Params {
            max_increment,
            smooth_part,
            ..
        } = self.params;
        let max = self.last_max_cwnd;
        if cwnd < max {
            let step = (max - cwnd) / B;
            if step > max_increment {
                cwnd / max_increment
            } else if step <= 1 {
                cwnd * smooth_part / B
            } else {
                cwnd / step
            }
        } else if cwnd < max + B {
            cwnd * smooth_part / B
        } else if cwnd < max + max_increment * (B - 1) {
            cwnd * (B - 1) / (cwnd - max)
        } else {
            cwnd / max_increment
        }
    }
}

impl Ops for Bic {
    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        let Params {
            beta, low_window, ..
        } = self.params;
        self.last_max_cwnd = if s.cwnd < self.last_max_cwnd && self.params.fast_convergence {
            s.cwnd * (SCALE + beta) / (2 * SCALE)
        } else {
            s.cwnd
        };
        if s.cwnd <= low_window {
            (s.cwnd / 2).max(2)
        } else {
            (s.cwnd * beta / SCALE).max(2)
        }
    }

    #[inline]
    fn cong_avoid(&mut self, s: &mut Sock, now: Instant, acked: u32) {
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
        self.update(s.cwnd, jiffies(now));
        s.additive_increase(self.cnt, left);
    }

    #[inline]
    fn pkts_acked(&mut self, s: &mut Sock, _now: Instant, acked: u32, _rtt: Duration) {
        if s.state == CaState::Open {
            self.delayed_ack += acked;
            self.delayed_ack -= (self.delayed_ack - acked) >> RATIO_SHIFT;
        }
    }

    fn set_state(&mut self, _s: &mut Sock, _now: Instant, new: CaState) {
        if new == CaState::Loss {
            *self = Self::new(self.params);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_loss_at(max: u32, params: Params) -> (Bic, Sock) {
        let mut b = Bic::new(params);
        let mut s = Sock {
            cwnd_limited: true,
            ..Sock::new(1448, max)
        };
        s.ssthresh = b.ssthresh(&mut s, Instant::ZERO);
        s.cwnd = s.ssthresh;
        (b, s)
    }

    /// Acknowledges a window packet by packet at the time of round `n`; rounds are 100 ms apart.
    /// Returns the growth, packets.
    fn round(b: &mut Bic, s: &mut Sock, n: u64) -> u32 {
        let before = s.cwnd;
        for _ in 0..before {
            b.cong_avoid(s, Instant::from_millis(100 * n), 1);
        }
        s.cwnd - before
    }

    #[test]
    fn growth_is_linear_far_from_the_last_maximum_and_slows_close_to_it() {
        let (mut b, mut s) = after_loss_at(1000, Params::ns3(0.8));
        assert_eq!(s.cwnd, 799); // 1000 * 819 / 1024
        let first = round(&mut b, &mut s, 1);
        // At most 16 per round; the integer division of the window makes it 16 or 17.
        assert!((16..=17).contains(&first), "{first}");
        let mut n = 2;
        while s.cwnd < 997 {
            round(&mut b, &mut s, n);
            n += 1;
        }
        let close = round(&mut b, &mut s, n);
        assert!(close <= 1, "{close}");
    }

    #[test]
    fn beyond_the_last_maximum_it_accelerates_to_the_largest_increment() {
        let (mut b, mut s) = after_loss_at(400, Params::ns3(0.8));
        s.cwnd = 400;
        let gains: Vec<u32> = (1..60).map(|n| round(&mut b, &mut s, n)).collect();
        assert!(gains[0] <= 1, "{gains:?}");
        assert!(
            gains[50..].iter().all(|&g| (15..=17).contains(&g)),
            "{gains:?}"
        );
    }

    #[test]
    fn small_windows_are_reno() {
        let mut b = Bic::new(Params::ns3(0.8));
        let mut s = Sock {
            cwnd_limited: true,
            ssthresh: 10,
            ..Sock::new(1448, 10)
        };
        assert_eq!(round(&mut b, &mut s, 1), 1);
        assert_eq!(round(&mut b, &mut s, 2), 1);
        assert_eq!(b.ssthresh(&mut s, Instant::ZERO), 6);
    }

    #[test]
    fn fast_convergence_remembers_less_than_the_window_that_was_lost() {
        let (mut b, mut s) = after_loss_at(1000, Params::ns3(0.8));
        s.cwnd = 900;
        b.ssthresh(&mut s, Instant::ZERO);
        assert_eq!(b.last_max_cwnd, 900 * (1024 + 819) / 2048);
    }

    #[test]
    fn beta_is_an_option() {
        let (_, s) = after_loss_at(1000, Params::ns3(0.7));
        assert_eq!(s.cwnd, 699); // 716 / 1024
    }

    #[test]
    fn linux_counts_packets_per_ack() {
        let (mut b, mut s) = after_loss_at(100, Params::linux());
        for _ in 0..100 {
            b.pkts_acked(&mut s, Instant::ZERO, 1, Duration::ZERO);
        }
        // One packet per ACK is 16, but the rounding of the average keeps it at 31.
        assert!((16..32).contains(&b.delayed_ack), "{}", b.delayed_ack);
    }
}
