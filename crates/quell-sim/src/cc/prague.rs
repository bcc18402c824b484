//! TCP Prague (draft-briscoe-iccrg-prague-congestion-control), as in L4STeam's `tcp_prague.c` 0.7:
//! DCTCP for the Internet.
//!
//! A fractional window shrinks by half the share of marked packets, at most once per round, and
//! grows with each unmarked packet; the rate is paced. Up to four packets, the rate is controlled
//! and the window follows; above, the window is controlled and the rate follows. Fixed point as in
//! 0.7: alpha in 2^-24 (kept times 16), the window in 2^-20 packets, rates in bytes per second.
//!
//! The rounds are those of a virtual RTT ([`VirtualRtt`]), for which there are two of the scalings
//! that `tcp_prague.c` has had under `prague_rtt_scaling`: the RTT plus 15 ms (default; "additive",
//! with another number there), or at least 25 ms ("rate", the only one of 0.7). 15 ms is the
//! queuing delay of a classic flow in DualPI2. With the additive scaling, the rates of Prague and
//! CUBIC therefore differ by a factor of at most 1.5 at RTTs from 5 to 100 ms; with the other one
//! they differ by more (docs/lab/fidelity.md).
//!
//! Deviations from 0.7:
//! - A mark within a virtual round after a reduction is answered at the end of that round (RFC
//!   8257, section 3.3: once per window of data). In 0.7 only a mark after the end of the round
//!   counts, at the next CWR, which makes reductions rarer by a third.
//! - Growth stops only if the application has nothing to send, as in L4STeam's kernels up to 6.6.
//!   Later ones check whether the window is the limit, which it never is below two packets per
//!   round: the rate of such a flow never grows.
//! - A loss does not reduce it below two packets per round (RFC 5681, section 3.1).
//! - Segments are not made smaller below 1 Mbit/s; the pacer forms the bursts; the mark that causes
//!   the first reduction in slow start is found by the CE counter, which `crate::tcp` keeps.
//!
//! Like 0.7 (and unlike the Prague requirements of RFC 9331, section 4.3, point 4), nothing here
//! detects a classic ECN bottleneck. A connection without ECN runs NewReno
//! (`CongestionControl::of`).

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, US};

use super::{CaState, Event, Ops, RateSample, Sock, micros};

const ALPHA_BITS: u32 = 24;
const MAX_ALPHA: u64 = 1 << ALPHA_BITS;
/// g = 1/16.
const SHIFT_G: u32 = 4;
const CWND_BITS: u32 = 20;
const ONE: u64 = 1 << CWND_BITS;
const MIN_CWND: u64 = 2;
/// Minimum rate, bytes per second: 100 kbit/s.
const MIN_RATE: u64 = 12_500;
/// Minimum virtual RTT of [`VirtualRtt::Rate`], µs, and number of rounds after slow start before
/// RTT independence begins.
const TARGET_RTT_US: u64 = 25_000;
const TRANSITION_ROUNDS: u32 = 4;
/// Queuing delay of a classic flow in DualPI2, µs (RFC 9332, appendix A.1: its target).
const ADDED_RTT_US: u64 = 15_000;
/// Largest packet; IP and TCP headers with timestamps; bytes.
const MTU: u64 = 1500;
const HEADERS: u64 = 52;
/// The pacing rate is 4/128 higher in the first half of each (virtual) round and lower in the
/// second, so that marks are spread evenly.
const RATE_OFFSET: u64 = 4;
const RATE_OFFSET_BITS: u32 = 7;
/// Weight of the RTT average that turns rates into windows: 1/128.
const HSRTT_SHIFT: u32 = 7;
/// Windows of up to four full packets are controlled by rate.
const RATE_MODE_BYTES: u64 = 4 * MTU;

/// The virtual RTT, at which the sender's rounds are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VirtualRtt {
    /// The RTT, but at least 25 ms.
    Rate,
    /// The RTT plus 15 ms.
    #[default]
    Additive,
}

/// One sender's state.
#[derive(Clone, Debug)]
pub struct Prague {
    rtt: VirtualRtt,
    /// Window, 2^-20 packets, and the corresponding rate, bytes per second.
    frac_cwnd: u64,
    rate: u64,
    /// The rate before the last loss, bytes per second.
    loss_rate: u64,
    /// Slow average of the RTT, µs times 128.
    hsrtt: u64,
    /// Moving average of the share of marks, in 2^-24, times 16.
    upscaled_alpha: u32,
    /// Growth per window of unmarked packets, 2^-20 packets.
    increase: u32,
    /// Time of the last reduction for marks, and of the last update of alpha, µs.
    cwr_us: u32,
    alpha_us: u32,
    loss_cwnd: u32,
    old_delivered: u64,
    old_delivered_ce: u64,
    next_seq: u64,
    /// CE count at the previous ACK.
    seen_ce: u64,
    /// Rounds since slow start.
    rounds: u32,
    saw_ce: bool,
    /// Whether a mark has arrived since the last reduction.
    unanswered: bool,
    in_loss: bool,
    rate_mode: bool,
}

impl Prague {
    /// The state of a new connection.
    pub fn new() -> Self {
        Self::with(VirtualRtt::default())
    }

    /// The state of a new connection with this virtual RTT.
    pub fn with(rtt: VirtualRtt) -> Self {
        Self {
            rtt,
            frac_cwnd: 0,
            rate: MIN_RATE,
            loss_rate: 0,
            hsrtt: 0,
            upscaled_alpha: 0,
            increase: num::low_u32(ONE),
            cwr_us: 0,
            alpha_us: 0,
            loss_cwnd: 0,
            old_delivered: 0,
            old_delivered_ce: 0,
            next_seq: 0,
            seen_ce: 0,
            rounds: 0,
            saw_ce: false,
            unanswered: false,
            in_loss: false,
            rate_mode: false,
        }
    }

    /// Moving average of the share of marked packets, 0 to 1.
    pub fn alpha(&self) -> f64 {
        f64::from(self.upscaled_alpha) / ((MAX_ALPHA << SHIFT_G) as f64)
    }

    /// The virtual RTT, µs.
    fn virtual_rtt_us(&self, s: &Sock) -> u64 {
        match self.rtt {
            VirtualRtt::Rate => (s.srtt / US).max(TARGET_RTT_US),
            VirtualRtt::Additive => s.srtt / US + ADDED_RTT_US,
        }
    }

    fn rtt_independent(&self, s: &Sock) -> bool {
        !s.in_slow_start() && self.rounds >= TRANSITION_ROUNDS
    }

    fn rate_controlled(&self, s: &Sock) -> bool {
        self.rate_mode && self.rtt_independent(s)
    }

    /// The window that gives `rate`, 2^-20 packets.
    fn window_of_rate(&self, s: &Sock) -> u64 {
        let rtt_us = match self.hsrtt >> HSRTT_SHIFT {
            0 => s.srtt / US,
            slow => slow,
        };
        let bytes = (u128::from(self.rate) * u128::from(rtt_us)) << CWND_BITS;
        num::low_u64((bytes / 1_000_000).div_ceil(u128::from(wire(s))))
    }

    /// The rate that the window gives, bytes per second.
    fn rate_of_window(&self, s: &Sock) -> u64 {
        let bytes = (u128::from(self.frac_cwnd) * u128::from(wire(s))) >> CWND_BITS;
        let rate = bytes * 1_000_000 / u128::from((s.srtt / US).max(1));
        num::low_u64(rate).max(MIN_RATE)
    }

    fn packets(&self) -> u32 {
        num::low_u32(self.frac_cwnd.div_ceil(ONE).max(MIN_CWND))
    }

    fn start_round(&mut self, s: &Sock) {
        self.next_seq = s.nxt;
        self.old_delivered = s.delivered;
        self.old_delivered_ce = s.delivered_ce;
        if !s.in_slow_start() {
            self.rounds = self.rounds.saturating_add(1);
        }
        self.update_increase(s);
    }

    /// Sets the growth per round: (RTT / virtual RTT)² packets, so that a flow grows as fast as if
    /// its RTT were the virtual one; one packet in the first rounds.
    fn update_increase(&mut self, s: &Sock) {
        let rtt_us = s.srtt / US;
        self.increase = if self.rounds < TRANSITION_ROUNDS || rtt_us == 0 {
            num::low_u32(ONE)
        } else {
            let target = u128::from(self.virtual_rtt_us(s));
            let target2 = target * target;
            let rtt2 = u128::from(rtt_us) * u128::from(rtt_us);
            num::low_u32(num::low_u64(
                (rtt2 * u128::from(ONE) + target2 / 2) / target2,
            ))
        };
    }

    fn update_alpha(&mut self, s: &Sock, now: Instant) {
        // Alpha stays 0 until the first mark.
        if self.saw_ce {
            let marked = s.delivered_ce - self.old_delivered_ce;
            let delivered = (s.delivered - self.old_delivered).max(1);
            let share = (marked << ALPHA_BITS) / delivered;
            let old = u64::from(self.upscaled_alpha);
            let alpha = old - (old >> SHIFT_G) + share;
            self.upscaled_alpha = alpha.min(MAX_ALPHA << SHIFT_G) as u32;
            self.alpha_us = micros(now);
        }
        self.hsrtt = self.hsrtt + s.srtt / US - (self.hsrtt >> HSRTT_SHIFT);
        self.start_round(s);
    }

    fn alpha_is_due(&self, s: &Sock, now: Instant) -> bool {
        s.una >= self.next_seq
            && (!self.rtt_independent(s) || self.since_alpha_us(now) >= self.virtual_rtt_us(s))
    }

    fn since_alpha_us(&self, now: Instant) -> u64 {
        u64::from(micros(now).wrapping_sub(self.alpha_us))
    }

    /// Notes marks. In any state except after a loss, also answers them, and increases window or
    /// rate for unmarked packets.
    fn update_cwnd(&mut self, s: &mut Sock, now: Instant, rs: &RateSample) {
        let marked = s.delivered_ce - self.seen_ce;
        self.seen_ce = s.delivered_ce;
        if marked > 0 {
            if !self.saw_ce {
                // The first mark ends slow start: half of the last doubling was too much.
                self.frac_cwnd = self.frac_cwnd.div_ceil(2);
            }
            self.saw_ce = true;
            self.unanswered = true;
        }
        if self.rtt_independent(s) && !self.in_loss {
            self.answer_marks(s, now);
        }
        let mut acked = rs.acked_sacked.saturating_sub(num::low_u32(marked));
        // The window need not be the limit: at a paced rate of less than two packets per round it
        // never is.
        if acked > 0 && !self.in_loss && s.app_limited == 0 {
            if s.in_slow_start() {
                acked = s.slow_start(acked);
                self.frac_cwnd = u64::from(s.cwnd) << CWND_BITS;
                if acked == 0 {
                    self.update_increase(s);
                    return;
                }
            }
            self.grow(s, u64::from(acked));
        }
        self.step_cwnd(s);
    }

    fn grow(&mut self, s: &Sock, acked: u64) {
        if self.rate_controlled(s) {
            let rtt_us = self.virtual_rtt_us(s);
            let increase = acked * MTU * 1_000_000 / rtt_us;
            let window = (self.rate * rtt_us).div_ceil(wire(s) * 1_000_000).max(1);
            self.rate += (increase + window / 2) / window;
            self.frac_cwnd = (self.frac_cwnd + acked).max(self.window_of_rate(s));
        } else {
            let window = self.frac_cwnd.max(1);
            let increase = ((acked * u64::from(self.increase)) << CWND_BITS) + window / 2;
            let increase = increase / window;
            self.frac_cwnd += (increase * MTU / wire(s)).max(acked);
            self.rate = (self.rate + acked).max(self.rate_of_window(s));
        }
    }

    /// The socket's window approaches the fractional one by a packet per ACK.
    fn step_cwnd(&mut self, s: &mut Sock) {
        let target = self.packets();
        if s.cwnd > target {
            s.cwnd -= 1;
            s.ssthresh = s.cwnd;
            self.update_increase(s);
        } else if s.cwnd < target {
            s.cwnd += 1;
            self.update_increase(s);
        }
    }

    fn update_pacing_rate(&mut self, s: &mut Sock, now: Instant) {
        let mut rate = if self.rate_controlled(s) {
            let offset = (self.rate * RATE_OFFSET) >> RATE_OFFSET_BITS;
            let rtt_us = self.virtual_rtt_us(s);
            if self.since_alpha_us(now) >= rtt_us / 2 {
                self.rate - offset
            } else {
                self.rate + offset
            }
        } else {
            let window = (self.frac_cwnd >> CWND_BITS).max(u64::from(s.in_flight()));
            let per_packet = 1_000_000 * wire(s) / (s.srtt / US).max(1);
            self.rate = (per_packet * window).max(MIN_RATE);
            self.rate
        };
        if s.cwnd < s.ssthresh / 2 {
            rate *= 2;
        }
        s.pacing_rate = rate;
    }

    fn choose_mode(&mut self, s: &Sock) {
        self.rate_mode = self.saw_ce && u64::from(s.cwnd) * wire(s) <= RATE_MODE_BYTES;
        if self.rate_mode {
            self.frac_cwnd = self.window_of_rate(s);
        } else {
            self.rate = self.rate_of_window(s);
        }
    }

    /// Halves window or rate, but not below two packets per round (RFC 5681, section 3.1, equation
    /// 4): without this bound, as in 0.7, many losses would be repaired at a very low rate.
    fn enter_loss(&mut self, s: &Sock) {
        self.loss_cwnd = s.cwnd;
        self.loss_rate = self.rate;
        if self.rate_controlled(s) {
            let min_rate = MIN_CWND * wire(s) * 1_000_000 / self.virtual_rtt_us(s);
            self.rate = (self.rate / 2).max(min_rate.min(self.rate));
            self.frac_cwnd = self.window_of_rate(s);
        } else {
            self.frac_cwnd = (self.frac_cwnd - self.frac_cwnd / 2).max(MIN_CWND << CWND_BITS);
            self.rate = self.rate_of_window(s);
        }
        self.in_loss = true;
    }

    /// Answers marks, at most once per virtual round (RFC 8257, section 3.3: once per window of
    /// data).
    fn answer_marks(&mut self, s: &Sock, now: Instant) {
        let since = u64::from(micros(now).wrapping_sub(self.cwr_us));
        if self.unanswered && since >= self.virtual_rtt_us(s) {
            self.reduce(s, now);
        }
    }

    /// Reduces window and rate by half of alpha.
    fn reduce(&mut self, s: &Sock, now: Instant) {
        self.unanswered = false;
        self.cwr_us = micros(now);
        let alpha = u64::from(self.upscaled_alpha >> SHIFT_G);
        if self.rate_controlled(s) {
            let less = (u128::from(self.rate) * u128::from(alpha)) >> (ALPHA_BITS + 1);
            self.rate = (self.rate - num::low_u64(less)).max(MIN_RATE);
            self.frac_cwnd = self.window_of_rate(s);
        } else {
            let product = u128::from(alpha) * u128::from(self.frac_cwnd) + u128::from(MAX_ALPHA);
            self.frac_cwnd -= num::low_u64(product >> (ALPHA_BITS + 1));
            self.rate = self.rate_of_window(s);
        }
    }
}

impl Default for Prague {
    fn default() -> Self {
        Self::new()
    }
}

/// Size of a packet, IP bytes.
fn wire(s: &Sock) -> u64 {
    u64::from(s.mss) + HEADERS
}

impl Ops for Prague {
    fn init(&mut self, s: &mut Sock, now: Instant, _seed: u64) {
        *self = Self::with(self.rtt);
        self.alpha_us = micros(now);
        self.frac_cwnd = u64::from(s.cwnd) << CWND_BITS;
        self.seen_ce = s.delivered_ce;
        // Without a sample: 1 µs, which soon no longer affects the average.
        self.hsrtt = (s.srtt / US).max(1) << HSRTT_SHIFT;
        if s.srtt > Duration::ZERO {
            self.update_pacing_rate(s, now);
        }
        self.start_round(s);
    }

    /// `cong_control` sets window and threshold.
    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        s.ssthresh
    }

    fn set_state(&mut self, s: &mut Sock, now: Instant, new: CaState) {
        if new == s.state {
            return;
        }
        match new {
            CaState::Recovery => self.enter_loss(s),
            CaState::Cwr if !self.rtt_independent(s) => self.reduce(s, now),
            CaState::Open => self.in_loss = false,
            CaState::Cwr | CaState::Disorder | CaState::Loss => {}
        }
    }

    fn event(&mut self, s: &mut Sock, _now: Instant, e: Event) {
        if e == Event::Loss {
            self.enter_loss(s);
        }
    }

    fn cong_control(&mut self, s: &mut Sock, now: Instant, rs: &RateSample) {
        self.update_cwnd(s, now, rs);
        if self.alpha_is_due(s, now) {
            self.update_alpha(s, now);
        }
        self.update_pacing_rate(s, now);
        self.choose_mode(s);
    }

    fn undo_cwnd(&mut self, s: &mut Sock) -> u32 {
        self.in_loss = false;
        self.rate = self.rate.max(self.loss_rate);
        self.frac_cwnd = self.window_of_rate(s);
        s.cwnd.max(self.loss_cwnd)
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::testpath::{Path, mean, rate};
    use super::*;
    use quell_qdisc::time::{MS, SEC};

    fn path(mbit: u64, rtt: Duration) -> Path {
        let mut p = Path::new(CongestionControl::Prague(Prague::new()), rate(mbit), rtt);
        p.mark_beyond = MS;
        p
    }

    fn prague(p: &Path) -> &Prague {
        match &p.cc {
            CongestionControl::Prague(c) => c,
            _ => unreachable!(),
        }
    }

    #[test]
    fn a_step_of_one_millisecond_keeps_the_link_full_and_the_queue_at_the_step() {
        let mut p = path(40, 20 * MS);
        p.run_for(5 * SEC);
        let before = p.s.delivered;
        let queue_ms = mean(&mut p, 10 * SEC, |p| {
            (p.queue() * p.service).as_nanos() as f64 / MS.as_nanos() as f64
        });
        let share = (p.s.delivered - before) as f64 / (10.0 * rate(40) as f64);
        assert!(share > 0.95, "{share}");
        assert!(queue_ms < 2.0, "{queue_ms}");
        let alpha = prague(&p).alpha();
        assert!((0.001..0.5).contains(&alpha), "{alpha}");
    }

    #[test]
    fn the_first_mark_halves_the_window_and_ends_slow_start() {
        let mut p = path(40, 20 * MS);
        while !prague(&p).saw_ce && p.now < Instant::from_secs(3) {
            p.run_for(MS / 10);
        }
        let (cwnd, frac) = (p.s.cwnd, prague(&p).frac_cwnd >> CWND_BITS);
        assert!(frac <= u64::from(cwnd) * 3 / 5, "{frac} of {cwnd}");
        assert!(!p.s.in_slow_start());
    }

    #[test]
    fn growth_is_the_square_of_rtt_over_virtual_rtt() {
        for (scaling, rtt, share) in [
            (VirtualRtt::Additive, 5 * MS, 1.0 / 16.0),
            (VirtualRtt::Additive, 15 * MS, 0.25),
            (VirtualRtt::Additive, 85 * MS, 0.7225),
            (VirtualRtt::Rate, 5 * MS, 1.0 / 25.0),
            (VirtualRtt::Rate, 12_500 * US, 0.25),
            (VirtualRtt::Rate, 25 * MS, 1.0),
            (VirtualRtt::Rate, 80 * MS, 1.0),
        ] {
            let mut c = Prague::with(scaling);
            let mut s = Sock::new(1448, 50);
            c.rounds = TRANSITION_ROUNDS;
            s.srtt = rtt;
            c.update_increase(&s);
            let got = f64::from(c.increase) / ONE as f64;
            assert!((got - share).abs() < 1e-5, "{scaling:?} {rtt:?}: {got}");
        }
    }

    #[test]
    fn alpha_keeps_shares_of_marks_far_below_a_thousandth() {
        let mut c = Prague::new();
        let mut s = Sock::new(1448, 50);
        c.saw_ce = true;
        for _ in 0..300 {
            s.nxt += 10_000;
            s.una = s.nxt;
            s.delivered += 10_000;
            s.delivered_ce += 1;
            c.update_alpha(&s, Instant::ZERO);
        }
        assert!((c.alpha() - 1e-4).abs() < 1e-6, "{}", c.alpha());
    }

    #[test]
    fn marks_cost_half_of_alpha_once_per_virtual_round() {
        let mut c = Prague::new();
        let mut s = Sock {
            ssthresh: 10,
            srtt: 10 * MS,
            ..Sock::new(1448, 100)
        };
        c.init(&mut s, Instant::ZERO, 0);
        c.rounds = TRANSITION_ROUNDS;
        c.upscaled_alpha = (MAX_ALPHA << SHIFT_G) as u32 / 4; // alpha 0.25
        c.saw_ce = true;
        // Marks arrive after 0, 5 and 90 ms. The second is answered a virtual round (25 ms) after
        // the first.
        let mut after = |ms: u64, marks: u64| {
            s.delivered += 1;
            s.delivered_ce += marks;
            c.update_cwnd(
                &mut s,
                Instant::from_secs(1) + ms * MS,
                &RateSample::default(),
            );
            c.packets()
        };
        assert_eq!(after(0, 1), 88); // 87.5, rounded up
        assert_eq!(after(5, 1), 88);
        assert_eq!(after(24, 0), 88);
        assert_eq!(after(26, 0), 77); // 76.6: the mark after 5 ms
        assert_eq!(after(80, 0), 77);
        assert_eq!(after(90, 1), 67);
    }

    #[test]
    fn a_loss_halves_stops_growth_until_open_and_undo_restores() {
        let mut c = Prague::new();
        let mut s = Sock {
            ssthresh: 10,
            srtt: 30 * MS,
            ..Sock::new(1448, 100)
        };
        c.init(&mut s, Instant::ZERO, 0);
        c.set_state(&mut s, Instant::ZERO, CaState::Recovery);
        assert_eq!(c.packets(), 50);
        assert!(c.in_loss);
        s.cwnd = 60;
        assert_eq!(c.undo_cwnd(&mut s), 100);
        assert!(!c.in_loss);
        assert!((99..=101).contains(&c.packets()), "{}", c.packets());
    }

    #[test]
    fn a_link_of_a_few_packets_is_controlled_by_rate_below_two_packets() {
        // 1 Mbit/s and 5 ms: the BDP is 0.4 packets.
        let mut p = path(1, 5 * MS);
        p.mark_beyond = 12 * MS;
        p.run_for(20 * SEC);
        assert!(prague(&p).rate_mode);
        let before = p.s.delivered;
        p.run_for(20 * SEC);
        let share = (p.s.delivered - before) as f64 / (20.0 * rate(1) as f64);
        assert!(share > 0.85, "{share}");
    }
}
