//! Vegas (Brakmo and Peterson, "TCP Vegas: end to end congestion avoidance on a global internet",
//! IEEE JSAC 13(8), 1995), as in Linux's `net/ipv4/tcp_vegas.c`: once per round the window moves by
//! one packet so that 2 to 4 packets stay queued.
//!
//! Deviations of both from the paper: loss recovery is the sender's own; slow start grows in every
//! round and ends with the window that the measured rate needs; a round's RTT is its lowest sample.
//! Deviation from Linux: products of window and RTT have 64 bits; Linux's overflow above 4,294
//! packets times seconds.

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant};

use super::{CaState, Event, Ops, Sock, newreno};

/// Options; the defaults are Linux's module parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Below this many queued packets the window grows (2).
    pub alpha: u32,
    /// Above this many queued packets it shrinks (4).
    pub beta: u32,
    /// More queued packets than this end slow start (1).
    pub gamma: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            alpha: 2,
            beta: 4,
            gamma: 1,
        }
    }
}

/// Minimum number of samples in a round: fewer may all come from delayed ACKs.
const MIN_SAMPLES: u32 = 3;

/// One sender's Vegas.
#[derive(Clone, Debug)]
pub struct Vegas {
    /// Segment number; the first ACK above it ends the round.
    round_end: u64,
    /// Lowest RTT of the connection and of the round, µs.
    base_us: u32,
    round_min_us: u32,
    /// RTT samples in the round.
    samples: u32,
    /// Whether the window is adjusted by the RTT: not while losses are repaired.
    active: bool,
    params: Params,
}

impl Vegas {
    /// The state of a new connection.
    pub fn new(params: Params) -> Self {
        Self {
            round_end: 0,
            base_us: u32::MAX,
            round_min_us: u32::MAX,
            samples: 0,
            active: true,
            params,
        }
    }

    /// Discards earlier measurements: the round begins with the next segment sent.
    fn restart(&mut self, s: &Sock) {
        self.active = true;
        self.begin_round(s);
    }

    fn begin_round(&mut self, s: &Sock) {
        self.round_end = s.nxt;
        self.samples = 0;
        self.round_min_us = u32::MAX;
    }

    /// Adjusts the window at the end of a round.
    fn adjust(&self, s: &mut Sock, acked: u32) {
        let Params { alpha, beta, gamma } = self.params;
        let (cwnd, base) = (u64::from(s.cwnd), u64::from(self.base_us));
        let rtt = u64::from(self.round_min_us);
        // The paper's Diff: packets in the window beyond those that the path holds without a queue.
        let queued = cwnd * (rtt - base) / base;
        if s.in_slow_start() {
            if queued > u64::from(gamma) {
                s.cwnd = s.cwnd.min(num::low_u32(cwnd * base / rtt) + 1);
                s.ssthresh = s.ssthresh.min(s.cwnd);
            } else {
                s.slow_start(acked);
            }
        } else if queued > u64::from(beta) {
            s.cwnd -= 1;
            s.ssthresh = s.ssthresh.min(s.cwnd);
        } else if queued < u64::from(alpha) {
            s.cwnd += 1;
        }
        s.cwnd = s.cwnd.max(2);
        // `tcp_current_ssthresh` outside reductions: three quarters of the window at least.
        s.ssthresh = s.ssthresh.max((s.cwnd >> 1) + (s.cwnd >> 2));
    }
}

impl Ops for Vegas {
    fn init(&mut self, s: &mut Sock, _now: Instant, _seed: u64) {
        self.base_us = u32::MAX;
        self.restart(s);
    }

    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        newreno::half(s)
    }

    #[inline]
    fn cong_avoid(&mut self, s: &mut Sock, _now: Instant, acked: u32) {
        if !self.active {
            return newreno::cong_avoid(s, acked);
        }
        if s.una <= self.round_end {
            if s.in_slow_start() {
                s.slow_start(acked);
            }
            return;
        }
        if self.samples < MIN_SAMPLES {
            newreno::cong_avoid(s, acked);
        } else {
            self.adjust(s, acked);
        }
        self.begin_round(s);
    }

    #[inline]
    fn pkts_acked(&mut self, _s: &mut Sock, _now: Instant, _acked: u32, rtt: Duration) {
        if rtt == Duration::ZERO {
            return;
        }
        let rtt_us = num::low_u32(rtt.as_micros()) + 1;
        self.base_us = self.base_us.min(rtt_us);
        self.round_min_us = self.round_min_us.min(rtt_us);
        self.samples += 1;
    }

    fn set_state(&mut self, s: &mut Sock, _now: Instant, new: CaState) {
        if new == CaState::Open {
            self.restart(s);
        } else {
            self.active = false;
        }
    }

    fn event(&mut self, s: &mut Sock, now: Instant, e: Event) {
        if e == Event::TxStart {
            self.init(s, now, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::testpath::{Path, mean, rate};
    use super::*;
    use quell_qdisc::time::{MS, SEC, US};

    /// The sender after a round with `samples` samples of `rtt`, over a base RTT of 20 ms; it is in
    /// congestion avoidance unless `ssthresh` is above `cwnd`.
    fn after_round(cwnd: u32, ssthresh: u32, rtt: Duration, samples: u32) -> Sock {
        let mut v = Vegas::new(Params::default());
        let mut s = Sock {
            ssthresh,
            cwnd_limited: true,
            una: 1,
            nxt: 1,
            ..Sock::new(1448, cwnd)
        };
        v.pkts_acked(&mut s, Instant::ZERO, 1, 20 * MS);
        v.restart(&s);
        for _ in 0..samples {
            v.pkts_acked(&mut s, Instant::ZERO, 1, rtt);
        }
        s.nxt += 10;
        s.una += 1;
        v.cong_avoid(&mut s, Instant::ZERO, 1);
        s
    }

    #[test]
    fn two_to_four_queued_packets_leave_the_window_as_it_is() {
        // Defaults of Linux's alpha and beta. Of 40 packets at twice 20 ms, half are queued: 40 *
        // (rtt - base) / base.
        for (rtt_us, cwnd) in [
            (20_400, 41), // 0.8 queued: grow
            (21_100, 40), // 2.2
            (22_400, 40), // 4.8, 4 in integers
            (22_600, 39), // 5.2: shrink
        ] {
            let s = after_round(40, 30, rtt_us * US, 5);
            assert_eq!(s.cwnd, cwnd, "{rtt_us}");
        }
    }

    #[test]
    fn slow_start_ends_with_the_window_of_the_measured_rate() {
        // tcp_vegas.c: more than gamma = 1 queued; cwnd * base / rtt + 1.
        let s = after_round(40, 1000, 25 * MS, 5);
        assert_eq!(s.cwnd, 33);
        assert!(!s.in_slow_start());
        let s = after_round(40, 1000, 20 * MS + Duration::from_micros(100), 5);
        assert_eq!(s.cwnd, 41);
        assert!(s.in_slow_start());
    }

    #[test]
    fn a_round_of_two_samples_is_renos() {
        // tcp_vegas.c: one ACK per round is a delayed one; 10 ms of queue are ignored.
        let s = after_round(40, 30, 30 * MS, 2);
        assert_eq!((s.cwnd, s.cwnd_cnt), (40, 1));
    }

    #[test]
    fn while_losses_are_repaired_it_grows_as_reno() {
        let mut v = Vegas::new(Params::default());
        let mut s = Sock {
            ssthresh: 10,
            cwnd_limited: true,
            ..Sock::new(1448, 10)
        };
        v.set_state(&mut s, Instant::ZERO, CaState::Disorder);
        v.cong_avoid(&mut s, Instant::ZERO, 4);
        assert_eq!(s.cwnd_cnt, 4);
        s.nxt = 30;
        v.set_state(&mut s, Instant::ZERO, CaState::Open);
        assert!(v.active);
        assert_eq!(v.round_end, 30);
    }

    #[test]
    fn alone_it_keeps_two_to_four_packets_queued_at_full_rate() {
        let cc = CongestionControl::Vegas(Vegas::new(Params::default()));
        let mut p = Path::new(cc, rate(20), 40 * MS);
        p.run_for(10 * SEC);
        let before = p.s.delivered;
        let queue = mean(&mut p, 10 * SEC, |p| p.queue() as f64);
        assert!((1.0..=5.0).contains(&queue), "{queue}");
        let share = (p.s.delivered - before) as f64 / (10.0 * rate(20) as f64);
        assert!(share > 0.99, "{share}");
    }
}
