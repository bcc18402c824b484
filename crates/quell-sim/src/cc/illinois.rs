//! Illinois (Liu, Başar and Srikant, "TCP-Illinois: a loss- and delay-based congestion control
//! algorithm for high-speed networks", Performance Evaluation 65(6-7), 2008), as in Linux's
//! `net/ipv4/tcp_illinois.c`: Reno whose increase α and decrease β follow the average queuing delay
//! of the last round.

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, US};

use super::{CaState, Ops, Sock};

/// 1 in the fixed-point format of α.
const ALPHA_UNIT: u32 = 128;
/// α between 0.3 and 10 packets per round.
const ALPHA_MIN: u32 = 3 * ALPHA_UNIT / 10;
const ALPHA_MAX: u32 = 10 * ALPHA_UNIT;
/// 1 in the fixed-point format of β.
const BETA_UNIT: u32 = 64;
/// β between 1/8 and 1/2 of the window.
const BETA_MIN: u32 = BETA_UNIT / 8;
const BETA_MAX: u32 = BETA_UNIT / 2;
/// Windows smaller than this, packets, follow Reno (`win_thresh`).
const MIN_WINDOW: u32 = 15;
/// Number of rounds with low delay after which α may be at its maximum again (`theta`).
const LOW_ROUNDS: u8 = 5;
/// Upper bound of RTT samples, µs, for which products with α fit 32 bits in Linux.
const RTT_MAX_US: u32 = u32::MAX / ALPHA_MAX;

/// One sender's Illinois.
#[derive(Clone, Debug)]
pub struct Illinois {
    /// Sum of the RTTs of this round, µs.
    sum_us: u64,
    samples: u32,
    /// Segment number; the first ACK above it ends the round.
    round_end: u64,
    base_us: u32,
    max_us: u32,
    alpha: u32,
    beta: u32,
    /// Packets that the current ACK covers.
    acked: u32,
    /// Whether the delay has been above the low range since α was last at its maximum.
    was_above: bool,
    low_rounds: u8,
}

impl Default for Illinois {
    fn default() -> Self {
        Self {
            sum_us: 0,
            samples: 0,
            round_end: 0,
            base_us: u32::MAX,
            max_us: 0,
            alpha: ALPHA_MAX,
            beta: BETA_MAX,
            acked: 0,
            was_above: false,
            low_rounds: 0,
        }
    }
}

impl Illinois {
    fn begin_round(&mut self, s: &Sock) {
        self.round_end = s.nxt;
        self.samples = 0;
        self.sum_us = 0;
    }

    /// Sets α and β for the coming round.
    fn update(&mut self, s: &Sock) {
        if s.cwnd < MIN_WINDOW {
            self.alpha = ALPHA_UNIT;
            self.beta = BETA_MAX;
        } else if self.samples > 0 {
            let max_delay = self.max_us - self.base_us;
            let average = num::low_u32(self.sum_us / u64::from(self.samples)) - self.base_us;
            self.alpha = self.increase(average, max_delay);
            self.beta = decrease(average, max_delay);
        }
        self.begin_round(s);
    }

    /// Section 3 of the paper, f1: α has its maximum for delays up to 1 % of the largest one,
    /// `max_delay`, and then falls as 1 / (k + delay) to its minimum at `max_delay`.
    fn increase(&mut self, average: u32, max_delay: u32) -> u32 {
        let low = max_delay / 100;
        if average <= low {
            if !self.was_above {
                return ALPHA_MAX;
            }
            self.low_rounds += 1;
            if self.low_rounds < LOW_ROUNDS {
                return self.alpha;
            }
            self.low_rounds = 0;
            self.was_above = false;
            return ALPHA_MAX;
        }
        self.was_above = true;
        let (average, max_delay) = (average - low, max_delay - low);
        max_delay * ALPHA_MAX / (max_delay + average * (ALPHA_MAX - ALPHA_MIN) / ALPHA_MIN)
    }
}

/// Section 3 of the paper, f2: β rises linearly between 10 % and 80 % of the largest delay.
fn decrease(average: u32, max_delay: u32) -> u32 {
    let (low, high) = (max_delay / 10, 8 * max_delay / 10);
    if average <= low {
        BETA_MIN
    } else if average >= high || high <= low {
        BETA_MAX
    } else {
        (BETA_MIN * high - BETA_MAX * low + (BETA_MAX - BETA_MIN) * average) / (high - low)
    }
}

impl Ops for Illinois {
    fn init(&mut self, s: &mut Sock, _now: Instant, _seed: u64) {
        *self = Self::default();
        self.begin_round(s);
    }

    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        (s.cwnd - s.cwnd * self.beta / BETA_UNIT).max(2)
    }

    #[inline]
    fn cong_avoid(&mut self, s: &mut Sock, _now: Instant, acked: u32) {
        if s.una > self.round_end {
            self.update(s);
        }
        if !s.is_cwnd_limited() {
            return;
        }
        if s.in_slow_start() {
            s.slow_start(acked);
            return;
        }
        s.cwnd_cnt += self.acked;
        self.acked = 1;
        let grown =
            num::low_u32(u64::from(s.cwnd_cnt) * u64::from(self.alpha) / u64::from(ALPHA_UNIT));
        if grown >= s.cwnd {
            s.cwnd += grown / s.cwnd;
            s.cwnd_cnt = 0;
        }
    }

    #[inline]
    fn pkts_acked(&mut self, _s: &mut Sock, _now: Instant, acked: u32, rtt: Duration) {
        self.acked = acked;
        if rtt == Duration::ZERO {
            return;
        }
        let rtt_us = num::low_u32((rtt / US).min(u64::from(RTT_MAX_US)));
        self.base_us = self.base_us.min(rtt_us);
        self.max_us = self.max_us.max(rtt_us);
        self.samples += 1;
        self.sum_us += u64::from(rtt_us);
    }

    fn set_state(&mut self, s: &mut Sock, _now: Instant, new: CaState) {
        if new == CaState::Loss {
            self.alpha = ALPHA_UNIT;
            self.beta = BETA_MAX;
            self.low_rounds = 0;
            self.was_above = false;
            self.begin_round(s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::time::MS;

    /// The state after a round whose RTT was `delay_ms` above the base, where the largest delay was
    /// 100 ms.
    fn after_round(delay_ms: u64, cwnd: u32) -> (Illinois, Sock) {
        let mut i = Illinois::default();
        let mut s = Sock {
            ssthresh: 10,
            cwnd_limited: true,
            ..Sock::new(1448, cwnd)
        };
        i.pkts_acked(&mut s, Instant::ZERO, 1, 20 * MS);
        i.pkts_acked(&mut s, Instant::ZERO, 1, 120 * MS);
        i.begin_round(&s);
        i.pkts_acked(&mut s, Instant::ZERO, 1, (20 + delay_ms) * MS);
        i.update(&s);
        (i, s)
    }

    #[test]
    fn the_increase_falls_from_ten_to_0_3_packets_per_round_as_the_delay_grows() {
        // Section 3: alpha_max = 10, alpha_min = 0.3, the low threshold 1 % of the largest delay.
        assert_eq!(after_round(1, 100).0.alpha, 10 * ALPHA_UNIT);
        assert_eq!(after_round(100, 100).0.alpha, ALPHA_MIN);
        // k1 / (k2 + da) with dm = 99 and da = 49 of them: 10 * 99 / (99 + 49 * (10 - 0.3) / 0.3) =
        // 0.588.
        let half = f64::from(after_round(50, 100).0.alpha) / f64::from(ALPHA_UNIT);
        assert!((half - 0.588).abs() < 0.02, "{half}");
    }

    #[test]
    fn the_decrease_rises_from_an_eighth_to_a_half_between_10_and_80_per_cent_of_the_delay() {
        assert_eq!(after_round(10, 100).0.beta, BETA_MIN);
        assert_eq!(after_round(80, 100).0.beta, BETA_MAX);
        // Half way, at 45 %: 5/16.
        assert_eq!(after_round(45, 100).0.beta, 20);
        let (mut i, mut s) = after_round(10, 100);
        assert_eq!(i.ssthresh(&mut s, Instant::ZERO), 88); // 100 - 12.5, rounded
    }

    #[test]
    fn windows_below_fifteen_are_renos() {
        let (mut i, mut s) = after_round(1, 14);
        assert_eq!((i.alpha, i.beta), (ALPHA_UNIT, BETA_MAX));
        for _ in 0..14 {
            i.pkts_acked(&mut s, Instant::ZERO, 1, Duration::ZERO);
            i.cong_avoid(&mut s, Instant::ZERO, 1);
        }
        assert_eq!(s.cwnd, 15);
    }

    #[test]
    fn the_largest_increase_comes_back_after_five_rounds_of_low_delay() {
        // tcp_illinois.c: theta = 5.
        let (mut i, s) = after_round(50, 100);
        let first = i.alpha;
        for round in 1..=5 {
            i.pkts_acked(&mut s.clone(), Instant::ZERO, 1, 20 * MS);
            i.update(&s);
            let expected = if round < 5 { first } else { ALPHA_MAX };
            assert_eq!(i.alpha, expected, "{round}");
        }
    }

    #[test]
    fn a_timeout_makes_it_reno_for_a_round() {
        let (mut i, mut s) = after_round(1, 100);
        i.set_state(&mut s, Instant::ZERO, CaState::Loss);
        assert_eq!((i.alpha, i.beta), (ALPHA_UNIT, BETA_MAX));
    }
}
