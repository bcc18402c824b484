//! CUBIC with HyStart, as in Linux's `net/ipv4/tcp_cubic.c` (RFC 9438; Ha and Rhee, "Taming the
//! elephants", 2011). Fixed point throughout: time in 1/1024 s, the window in packets, C =
//! 410/1024.
//!
//! Deviations from Linux: the cubic root is exact (Linux: one Newton step from a table, within 0.2
//! %); the cubic's offset is clamped at 300 s, beyond which Linux's product overflows. Deviations
//! from RFC 9438 in both: the cubic is evaluated at most once per millisecond, and while the window
//! does not change only every 32 ms; the first epoch without a known maximum gains at least 5 %
//! per round; the Reno estimate keeps its slope above the window of the last loss; slow start ends
//! by HyStart. `Params::rfc9438` follows the RFC in all four (with HyStart++ in the last).

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant};

use super::hystart::HyStart;
use super::hystart_plus::HyStartPlus;
use super::{CaState, Event, Ops, Sock, jiffies};

/// Options; the defaults are Linux's module parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Whether to yield to new flows: to remember less than the window at the loss if it was below
    /// the previous maximum (RFC 9438, section 4.7).
    pub fast_convergence: bool,
    /// Whether to leave slow start before the queue overflows (HyStart).
    pub hystart: bool,
    /// Whether to follow RFC 9438 where Linux differs.
    pub rfc9438: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            fast_convergence: true,
            hystart: true,
            rfc9438: false,
        }
    }
}

/// Multiplicative decrease, in 1/1024 (0.7).
const BETA: u32 = 717;
const BETA_SCALE: u32 = 1024;
/// C in 1/1024 packets per s³ (0.4): `bic_scale` 41, tenfold.
const C: u64 = 410;
/// Time unit 2^-10 s.
const HZ_SHIFT: u32 = 10;
/// Windows acknowledged per packet of growth of the Reno estimate, in eighths: 8 (1+β) / (3 (1-β)).
const RENO_SCALE: u32 = 8 * (BETA_SCALE + BETA) / 3 / (BETA_SCALE - BETA);
/// Maximum time between now and the plateau, 1/1024 s (see the file header).
const MAX_OFFSET: u64 = 300 << HZ_SHIFT;

/// Algorithm that ends slow start, apart from losses.
#[derive(Clone, Debug)]
enum SlowStart {
    Plain,
    HyStart(HyStart),
    Plus(HyStartPlus),
}

/// One sender's CUBIC. Times named `_ms` are Linux's jiffies at HZ = 1000.
#[derive(Clone, Debug)]
pub struct Cubic {
    /// One packet of growth per this many acknowledged.
    cnt: u32,
    /// W_max.
    last_max_cwnd: u32,
    /// Window and time of the last evaluation of the cubic.
    last_cwnd: u32,
    last_time_ms: u32,
    /// Window at the plateau of the cubic, packets.
    origin: u32,
    /// Time from the start of the epoch to the plateau, 1/1024 s.
    k: u32,
    /// Lowest RTT, µs; 0 before the first sample.
    delay_min_us: u32,
    /// Start of the epoch; 0: no epoch.
    epoch_start_ms: u32,
    /// Packets acknowledged in this epoch and not yet in the Reno estimate.
    ack_cnt: u32,
    /// The Reno estimate (W_est).
    reno_cwnd: u32,
    slow_start: SlowStart,
    params: Params,
}

impl Cubic {
    /// The state of a new connection.
    pub fn new(params: Params) -> Self {
        Self {
            cnt: 0,
            last_max_cwnd: 0,
            last_cwnd: 0,
            last_time_ms: 0,
            origin: 0,
            k: 0,
            delay_min_us: 0,
            epoch_start_ms: 0,
            ack_cnt: 0,
            reno_cwnd: 0,
            slow_start: SlowStart::Plain,
            params,
        }
    }

    /// Sets `cnt` for a window of `cwnd` after `acked` more packets.
    #[inline]
    fn update(&mut self, s: &Sock, now: Instant, acked: u32) {
        let cwnd = s.cwnd;
        let now_ms = jiffies(now);
        self.ack_cnt += acked;
        let since = now_ms.wrapping_sub(self.last_time_ms);
        if !self.params.rfc9438 && self.last_cwnd == cwnd && since <= 1000 / 32 {
            return;
        }
        if self.params.rfc9438 || self.epoch_start_ms == 0 || since != 0 {
            self.last_cwnd = cwnd;
            self.last_time_ms = now_ms;
            if self.epoch_start_ms == 0 {
                self.start_epoch(cwnd, now_ms, acked);
            }
            self.follow_cubic(cwnd, now_ms);
        }
        self.follow_reno(s);
        // At most 1.5 windows per round (RFC 9438, section 4.4: the target's upper bound).
        self.cnt = self.cnt.max(2);
    }

    #[cold]
    fn start_epoch(&mut self, cwnd: u32, now_ms: u32, acked: u32) {
        self.epoch_start_ms = now_ms.max(1);
        self.ack_cnt = acked;
        self.reno_cwnd = cwnd;
        if self.last_max_cwnd <= cwnd {
            self.k = 0;
            self.origin = cwnd;
        } else {
            // RFC 9438, equation 2: K = cbrt((W_max - cwnd) / C), in 2^-10 s.
            let factor = (1u64 << (10 + 3 * HZ_SHIFT)) / C;
            self.k = cubic_root(factor * u64::from(self.last_max_cwnd - cwnd));
            self.origin = self.last_max_cwnd;
        }
    }

    /// Sets `cnt` so that the window grows to the cubic's value one round from now (RFC 9438,
    /// section 4.2).
    #[inline]
    fn follow_cubic(&mut self, cwnd: u32, now_ms: u32) {
        let rtt_ms = self.delay_min_us.div_ceil(1000);
        let t_ms = u64::from(now_ms.wrapping_sub(self.epoch_start_ms)) + u64::from(rtt_ms);
        let t = (t_ms << HZ_SHIFT) / 1000;
        let k = u64::from(self.k);
        let offset = t.abs_diff(k).min(MAX_OFFSET);
        let delta = ((C * offset * offset * offset) >> (10 + 3 * HZ_SHIFT)) as u32;
        let target = if t < k {
            self.origin.saturating_sub(delta)
        } else {
            self.origin.saturating_add(delta)
        };
        self.cnt = if target > cwnd {
            cwnd / (target - cwnd)
        } else {
            100 * cwnd
        };
        // As in Linux: while the available bandwidth is unknown, the cubic's flat start would grow
        // too slowly.
        if !self.params.rfc9438 && self.last_max_cwnd == 0 {
            self.cnt = self.cnt.min(20);
        }
    }

    /// Lowers `cnt` so that growth is not slower than Reno's would be with this β (RFC 9438,
    /// section 4.3).
    #[inline]
    fn follow_reno(&mut self, s: &Sock) {
        // Above the window of the last reduction the RFC's estimate gains a whole packet per
        // window.
        let above = self.params.rfc9438 && self.reno_cwnd >= s.prior_cwnd;
        let per_packet = if above {
            s.cwnd
        } else {
            (s.cwnd * RENO_SCALE) >> 3
        };
        while self.ack_cnt > per_packet {
            self.ack_cnt -= per_packet;
            self.reno_cwnd += 1;
        }
        if self.reno_cwnd > s.cwnd {
            self.cnt = self.cnt.min(s.cwnd / (self.reno_cwnd - s.cwnd));
        }
    }
}

/// The largest x with x³ <= a (a < 2^63), bit by bit.
fn cubic_root(a: u64) -> u32 {
    let mut x = 0u64;
    for bit in (0..21).rev() {
        let y = x | 1 << bit;
        if y * y * y <= a {
            x = y;
        }
    }
    num::low_u32(x)
}

impl Ops for Cubic {
    fn init(&mut self, s: &mut Sock, now: Instant, _seed: u64) {
        self.slow_start = match (self.params.hystart, self.params.rfc9438) {
            (false, _) => SlowStart::Plain,
            (true, false) => SlowStart::HyStart(HyStart::new(s, now)),
            (true, true) => SlowStart::Plus(HyStartPlus::new(s)),
        };
    }

    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        self.epoch_start_ms = 0;
        if self.params.rfc9438 {
            self.slow_start = SlowStart::Plain;
        }
        self.last_max_cwnd = if s.cwnd < self.last_max_cwnd && self.params.fast_convergence {
            // RFC 9438, section 4.7: W_max = cwnd (1 + β) / 2.
            s.cwnd * (BETA_SCALE + BETA) / (2 * BETA_SCALE)
        } else {
            s.cwnd
        };
        (s.cwnd * BETA / BETA_SCALE).max(2)
    }

    #[inline]
    fn cong_avoid(&mut self, s: &mut Sock, now: Instant, acked: u32) {
        if !s.is_cwnd_limited() {
            return;
        }
        let mut left = acked;
        if s.in_slow_start() {
            left = match &mut self.slow_start {
                SlowStart::Plus(h) => h.grow(s, acked),
                _ => s.slow_start(acked),
            };
            if left == 0 {
                return;
            }
        }
        self.update(s, now, left);
        s.additive_increase(self.cnt, left);
    }

    #[inline]
    fn pkts_acked(&mut self, s: &mut Sock, now: Instant, _acked: u32, rtt: Duration) {
        if rtt == Duration::ZERO {
            return;
        }
        // As in Linux, samples of the first second after a reduction do not count.
        let age_ms = jiffies(now).wrapping_sub(self.epoch_start_ms);
        if self.epoch_start_ms != 0 && age_ms < 1000 {
            return;
        }
        let delay_us = num::low_u32(rtt.as_micros()).max(1);
        if self.delay_min_us == 0 || self.delay_min_us > delay_us {
            self.delay_min_us = delay_us;
        }
        if s.in_slow_start() {
            match &mut self.slow_start {
                SlowStart::Plain => {}
                SlowStart::HyStart(h) => h.update(s, now, delay_us, self.delay_min_us),
                SlowStart::Plus(h) => h.sample(s, delay_us),
            }
        }
    }

    fn set_state(&mut self, s: &mut Sock, now: Instant, new: CaState) {
        if new == CaState::Loss {
            // RFC 9438, section 4.8: a timeout resets the state.
            let plain = matches!(self.slow_start, SlowStart::Plain);
            *self = Self::new(self.params);
            if !plain {
                self.init(s, now, 0);
            }
        }
    }

    fn event(&mut self, s: &mut Sock, now: Instant, e: Event) {
        if e == Event::TxStart && self.epoch_start_ms != 0 {
            // RFC 9438, section 5.8: idle time does not count as time of the epoch.
            let idle_ms = jiffies(now).wrapping_sub(jiffies(s.last_sent));
            if idle_ms.cast_signed() > 0 {
                let start = self.epoch_start_ms.wrapping_add(idle_ms);
                self.epoch_start_ms = start.min(jiffies(now)).max(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::testpath::{Path, rate};
    use super::*;
    use quell_qdisc::time::{MS, SEC};

    /// A sender that has just reduced its window from `max`, with a base RTT.
    fn after_loss_at(max: u32, params: Params, rtt: Duration) -> (Cubic, Sock) {
        let mut c = Cubic::new(params);
        let mut s = Sock {
            cwnd_limited: true,
            srtt: rtt,
            ..Sock::new(1448, max)
        };
        s.prior_cwnd = max;
        c.pkts_acked(&mut s, Instant::ZERO, 1, rtt);
        s.ssthresh = c.ssthresh(&mut s, Instant::ZERO);
        s.cwnd = s.ssthresh;
        (c, s)
    }

    /// Acknowledges a window per round for `time`, evenly spaced.
    fn grow(c: &mut Cubic, s: &mut Sock, from: Instant, time: Duration, rtt: Duration) {
        let mut now = from;
        while now < from + time {
            c.cong_avoid(s, now, 1);
            now += rtt / u64::from(s.cwnd);
        }
    }

    #[test]
    fn the_window_follows_the_rfcs_cubic() {
        let rtt = 100 * MS;
        let (mut c, mut s) = after_loss_at(1000, Params::default(), rtt);
        assert_eq!(s.cwnd, 700); // 1000 * 717 / 1024
        let start = Instant::from_secs(1);
        for step in 1..=14u64 {
            grow(&mut c, &mut s, start + (step - 1) * SEC, SEC, rtt);
            // RFC 9438, equations 1 and 2: K = cbrt(300 / 0.4) s.
            let k = libm::cbrt(300.0 / 0.4);
            let t = step as f64 - k;
            let w = 0.4 * t * t * t + 1000.0;
            let error = (f64::from(s.cwnd) / w - 1.0).abs();
            assert!(error < 0.015, "after {step} s: {} for {w}", s.cwnd);
        }
    }

    #[test]
    fn with_a_small_bandwidth_delay_product_it_is_as_fast_as_reno_with_its_beta() {
        let rtt = 10 * MS;
        let (mut c, mut s) = after_loss_at(40, Params::default(), rtt);
        let w0 = s.cwnd;
        let rounds = 50;
        grow(&mut c, &mut s, Instant::from_secs(1), rounds * rtt, rtt);
        // RFC 9438, section 4.3: alpha = 3 (1 - β) / (1 + β) = 0.529 packets per round.
        let expected = f64::from(w0) + 0.529 * rounds as f64;
        assert!(
            (f64::from(s.cwnd) - expected).abs() <= 2.0,
            "{} for {expected}",
            s.cwnd
        );
    }

    #[test]
    fn the_rfcs_estimate_gains_a_packet_per_round_above_the_window_of_the_last_loss() {
        let rtt = 10 * MS;
        let params = Params {
            rfc9438: true,
            ..Params::default()
        };
        let (mut c, mut s) = after_loss_at(40, params, rtt);
        let rounds = 60;
        grow(&mut c, &mut s, Instant::from_secs(1), rounds * rtt, rtt);
        // 12 packets at 0.529 per round take 23 rounds; the other 37 gain a packet each.
        let expected = 40.0 + 37.0;
        assert!((f64::from(s.cwnd) - expected).abs() <= 3.0, "{}", s.cwnd);
    }

    #[test]
    fn loss_takes_three_tenths_and_fast_convergence_remembers_less() {
        let (mut c, mut s) = after_loss_at(1000, Params::default(), 20 * MS);
        assert_eq!((s.ssthresh, c.last_max_cwnd), (700, 1000));
        s.cwnd = 900;
        c.ssthresh(&mut s, Instant::ZERO);
        assert_eq!(c.last_max_cwnd, 900 * (1024 + 717) / 2048);
        let params = Params {
            fast_convergence: false,
            ..Params::default()
        };
        let (mut c, mut s) = after_loss_at(1000, params, 20 * MS);
        s.cwnd = 900;
        c.ssthresh(&mut s, Instant::ZERO);
        assert_eq!(c.last_max_cwnd, 900);
    }

    #[test]
    fn without_a_known_maximum_it_gains_five_percent_per_round() {
        let mut c = Cubic::new(Params::default());
        let mut s = Sock {
            cwnd_limited: true,
            ssthresh: 100,
            ..Sock::new(1448, 100)
        };
        grow(&mut c, &mut s, Instant::from_secs(1), 100 * MS, 100 * MS);
        assert!((104..=106).contains(&s.cwnd), "{}", s.cwnd);
    }

    #[test]
    fn growth_never_exceeds_half_a_window_per_round() {
        let (mut c, mut s) = after_loss_at(20, Params::default(), 100 * MS);
        c.cong_avoid(&mut s, Instant::from_secs(1), 1);
        // Ten minutes later the cubic's value is millions of packets.
        c.cong_avoid(&mut s, Instant::from_secs(600), 1);
        assert_eq!(c.cnt, 2);
    }

    #[test]
    fn a_timeout_forgets_the_epoch_and_the_maximum() {
        let (mut c, mut s) = after_loss_at(1000, Params::default(), 20 * MS);
        c.set_state(&mut s, Instant::from_secs(1), CaState::Loss);
        assert_eq!(
            (c.last_max_cwnd, c.epoch_start_ms, c.delay_min_us),
            (0, 0, 0)
        );
    }

    #[test]
    fn idle_time_does_not_count() {
        let rtt = 100 * MS;
        let (mut c, mut s) = after_loss_at(1000, Params::default(), rtt);
        grow(&mut c, &mut s, Instant::from_secs(1), SEC, rtt);
        let before = s.cwnd;
        s.last_sent = Instant::from_secs(2);
        c.event(&mut s, Instant::from_secs(60), Event::TxStart);
        grow(&mut c, &mut s, Instant::from_secs(60), rtt, rtt);
        assert!(s.cwnd < before + before / 20, "{before} to {}", s.cwnd);
    }

    #[test]
    fn hystart_leaves_slow_start_by_the_train_before_the_queue_is_long() {
        let cc = CongestionControl::Cubic(Cubic::new(Params::default()));
        let mut p = Path::new(cc, rate(100), 40 * MS);
        while p.s.in_slow_start() && p.now < Instant::from_secs(3) {
            p.run_for(MS);
        }
        // The BDP is 333 packets; the train of half a round trip is reached well before two.
        assert!((150..700).contains(&p.s.cwnd), "{}", p.s.cwnd);
        assert!(p.now < Instant::from_secs(2));
    }

    #[test]
    fn cubic_root_is_exact() {
        for x in [0u64, 1, 2, 3, 10, 1023, 1024, 99_999, 2_097_151] {
            assert_eq!(cubic_root(x * x * x), x as u32);
            if x > 1 {
                assert_eq!(cubic_root(x * x * x - 1), x as u32 - 1);
            }
        }
    }

    #[test]
    fn undo_restores_the_window_before_the_reduction() {
        let (mut c, mut s) = after_loss_at(1000, Params::default(), 20 * MS);
        assert_eq!(c.undo_cwnd(&mut s), 1000);
    }
}
