//! BBR, version 1, as in Linux's `net/ipv4/tcp_bbr.c` (Cardwell, Cheng, Gunn, Yeganeh and Jacobson,
//! "BBR: congestion-based congestion control", ACM Queue 14(5), 2016;
//! draft-cardwell-iccrg-bbr-congestion-control-00): a model of the path (bottleneck bandwidth and
//! round trip without queuing) sets pacing rate and window. Bandwidth is in packets per µs, times
//! 2^24; gains are in 1/256.
//!
//! Deviations from Linux: delivery times are the time of the current ACK (they differ only for ACKs
//! that deliver nothing); each flow has its own random numbers, which select the phase in which
//! PROBE_BW starts; there is no limit on the window or the rate.

mod aggregation;
mod long_term;
mod probe_bw;
mod probe_rtt;
pub(super) mod windowed_max;

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, US};

use super::{CaState, Event, INFINITE_SSTHRESH, Ops, RateSample, Sock, jiffies};
use aggregation::Aggregation;
use long_term::LongTerm;
use windowed_max::WindowedMax;

/// Fractional bits of bandwidths.
const BW_SCALE: u32 = 24;
pub(super) const BW_UNIT: u64 = 1 << BW_SCALE;
/// 1 in the fixed-point format of gains.
pub(super) const UNIT: u16 = 256;

/// 2/ln 2: the smallest gain that doubles the delivery rate in each round of start-up.
const HIGH_GAIN: u16 = num::low_u16(UNIT as u64 * 2885 / 1000 + 1);
/// Inverse of that gain: within about one round it drains the queue built in start-up.
const DRAIN_GAIN: u16 = num::low_u16(UNIT as u64 * 1000 / 2885);
/// Gain of the window while probing bandwidth: allows for delayed and stretched ACKs.
const CWND_GAIN: u16 = 2 * UNIT;

/// Number of rounds for which a bandwidth sample counts.
const BW_ROUNDS: u32 = num::count(probe_bw::CYCLE.len()) + 2;
/// Minimum window, packets: allows for an ACK per two packets; also the window of PROBE_RTT.
pub(super) const MIN_CWND: u32 = 4;
/// The pacing rate stays 1 % below the estimate, so that queues drain.
const PACING_MARGIN_PERCENT: u64 = 1;
/// Initial window, packets (RFC 6928).
pub(super) const INIT_CWND: u32 = 10;

/// The pipe is full if bandwidth grows by less than this factor in three consecutive rounds.
const FULL_BW_GAIN: u64 = UNIT as u64 * 5 / 4;
const FULL_BW_ROUNDS: u8 = 3;

/// Below this pacing rate (bytes per second; 1.2 Mbit/s) bursts are single packets.
pub(super) const MIN_TSO_RATE: u64 = 1_200_000 / 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// One sender's model and state. `_ms` and `_us` stamps wrap, as in Linux.
#[derive(Clone, Debug)]
pub struct Bbr {
    /// Maximum of the recent bandwidth, by round.
    bw: WindowedMax,
    min_rtt_us: u32,
    min_rtt_stamp_ms: u32,
    /// 0: not scheduled.
    probe_rtt_done_ms: u32,
    /// Number of rounds so far, and the count of delivered packets that ends the current one.
    rounds: u32,
    next_round_delivered: u64,
    cycle_stamp_us: u32,
    /// Window to be restored after recovery or PROBE_RTT, packets.
    prior_cwnd: u32,
    full_bw: u32,
    long_term: LongTerm,
    aggregation: Aggregation,
    /// State of the generator that draws phases.
    random: u32,
    pacing_gain: u16,
    cwnd_gain: u16,
    cycle_index: u8,
    full_bw_rounds: u8,
    mode: Mode,
    prev_state: CaState,
    packet_conservation: bool,
    round_start: bool,
    idle_restart: bool,
    probe_rtt_round_done: bool,
    full_bw_reached: bool,
    seen_rtt: bool,
}

impl Bbr {
    /// The state of a new connection.
    pub fn new() -> Self {
        Self {
            bw: WindowedMax::default(),
            min_rtt_us: u32::MAX,
            min_rtt_stamp_ms: 0,
            probe_rtt_done_ms: 0,
            rounds: 0,
            next_round_delivered: 0,
            cycle_stamp_us: 0,
            prior_cwnd: 0,
            full_bw: 0,
            long_term: LongTerm::default(),
            aggregation: Aggregation::default(),
            random: 1,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            cycle_index: 0,
            full_bw_rounds: 0,
            mode: Mode::Startup,
            prev_state: CaState::Open,
            packet_conservation: false,
            round_start: false,
            idle_restart: false,
            probe_rtt_round_done: false,
            full_bw_reached: false,
            seen_rtt: false,
        }
    }

    /// The estimate from which rates are derived.
    #[inline]
    fn bandwidth(&self) -> u32 {
        self.long_term.bandwidth().unwrap_or(self.bw.get())
    }

    fn set_pacing_rate(&mut self, s: &mut Sock) {
        if !self.seen_rtt && s.srtt != Duration::ZERO {
            self.init_pacing_rate(s);
        }
        let rate = bytes_per_second(s, self.bandwidth(), self.pacing_gain);
        // Start-up's early samples are low: the rate only grows until the pipe is full.
        if self.full_bw_reached || rate > s.pacing_rate {
            s.pacing_rate = rate;
        }
    }

    /// The initial window per round (1 ms while the RTT is unknown), with start-up's gain.
    fn init_pacing_rate(&mut self, s: &mut Sock) {
        let rtt_us = if s.srtt == Duration::ZERO {
            1_000
        } else {
            self.seen_rtt = true;
            (s.srtt / US).max(1)
        };
        let bw = u64::from(s.cwnd) * BW_UNIT / rtt_us;
        s.pacing_rate = bytes_per_second(s, num::low_u32(bw.min(u64::from(u32::MAX))), HIGH_GAIN);
    }

    fn save_cwnd(&mut self, s: &Sock) {
        let good = self.prev_state < CaState::Recovery && self.mode != Mode::ProbeRtt;
        self.prior_cwnd = if good {
            s.cwnd
        } else {
            self.prior_cwnd.max(s.cwnd)
        };
    }

    /// Bandwidth times lowest RTT times gain, rounded up.
    #[inline]
    fn bdp(&self, bw: u32, gain: u16) -> u32 {
        if self.min_rtt_us == u32::MAX {
            return INIT_CWND;
        }
        let w = u64::from(bw) * u64::from(self.min_rtt_us);
        num::low_u32((((w * u64::from(gain)) >> 8) + BW_UNIT - 1) >> BW_SCALE)
    }

    /// Adds to a window the packets that end systems hold in bursts, and makes it even, because
    /// receivers delay ACKs.
    #[inline]
    fn quantization_budget(&self, s: &Sock, cwnd: u32) -> u32 {
        let even = (cwnd + 3 * tso_segs_goal(s) + 1) & !1;
        // A probe must exceed a BDP even if that is a few packets.
        let probing = self.mode == Mode::ProbeBw && self.cycle_index == 0;
        even + if probing { 2 } else { 0 }
    }

    #[inline]
    fn inflight(&self, s: &Sock, bw: u32, gain: u16) -> u32 {
        self.quantization_budget(s, self.bdp(bw, gain))
    }

    /// Packets in the network at the pacer's next departure.
    fn in_network_at_departure(&self, s: &Sock, now: Instant, inflight: u32) -> u32 {
        let wait_us = s.edt.saturating_since(now) / US;
        let delivered = num::low_u32((u64::from(self.bandwidth()) * wait_us) >> BW_SCALE);
        let burst = if self.pacing_gain > UNIT {
            tso_segs_goal(s)
        } else {
            0
        };
        (inflight + burst).saturating_sub(delivered)
    }

    fn update_bw(&mut self, s: &Sock, now: Instant, rs: &RateSample) {
        self.round_start = false;
        if rs.delivered < 0 || rs.interval < US {
            return;
        }
        if rs.prior_delivered >= self.next_round_delivered {
            self.next_round_delivered = s.delivered;
            self.rounds += 1;
            self.round_start = true;
            self.packet_conservation = false;
        }
        self.sample_long_term(s, now, rs);
        let bw = i64::from(rs.delivered).cast_unsigned() * BW_UNIT / (rs.interval / US);
        let bw = num::low_u32(bw.min(u64::from(u32::MAX)));
        // An application-limited sample shows only what the application offered, unless it exceeds
        // the model.
        if !rs.app_limited || bw >= self.bw.get() {
            self.bw.update(BW_ROUNDS, self.rounds, bw);
        }
    }

    fn sample_long_term(&mut self, s: &Sock, now: Instant, rs: &RateSample) {
        let probing = self.mode == Mode::ProbeBw;
        if self.long_term.sample(s, now, rs, self.round_start, probing) {
            self.enter_probe_bw(now);
        }
    }

    fn check_full_bw_reached(&mut self, rs: &RateSample) {
        if self.full_bw_reached || !self.round_start || rs.app_limited {
            return;
        }
        let bw = self.bw.get();
        if u64::from(bw) >= (u64::from(self.full_bw) * FULL_BW_GAIN) >> 8 {
            self.full_bw = bw;
            self.full_bw_rounds = 0;
            return;
        }
        self.full_bw_rounds += 1;
        self.full_bw_reached = self.full_bw_rounds >= FULL_BW_ROUNDS;
    }

    fn check_drain(&mut self, s: &mut Sock, now: Instant) {
        if self.mode == Mode::Startup && self.full_bw_reached {
            self.mode = Mode::Drain;
            s.ssthresh = self.inflight(s, self.bw.get(), UNIT);
        }
        if self.mode == Mode::Drain {
            let inflight = self.in_network_at_departure(s, now, s.in_flight());
            if inflight <= self.inflight(s, self.bw.get(), UNIT) {
                self.enter_probe_bw(now);
            }
        }
    }

    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBw if self.long_term.bandwidth().is_some() => (UNIT, CWND_GAIN),
            Mode::ProbeBw => (self.cycle_gain(), CWND_GAIN),
            Mode::ProbeRtt => (UNIT, UNIT),
        };
    }

    fn set_cwnd(&mut self, s: &mut Sock, rs: &RateSample) {
        let acked = rs.acked_sacked;
        if acked > 0 {
            let (cwnd, conserve) = self.recover_or_restore(s, rs);
            s.cwnd = if conserve {
                cwnd
            } else {
                self.approach_target(s, cwnd, acked)
            };
        }
        if self.mode == Mode::ProbeRtt {
            s.cwnd = s.cwnd.min(MIN_CWND);
        }
    }

    /// In the first round of recovery one packet is sent for each that arrived; afterwards the
    /// previous window is restored.
    fn recover_or_restore(&mut self, s: &Sock, rs: &RateSample) -> (u32, bool) {
        let (prev, state) = (self.prev_state, s.state);
        let mut cwnd = s.cwnd;
        if rs.losses > 0 {
            cwnd = cwnd.saturating_sub(rs.losses).max(1);
        }
        let conserved = s.in_flight() + rs.acked_sacked;
        if state == CaState::Recovery && prev != CaState::Recovery {
            self.packet_conservation = true;
            self.next_round_delivered = s.delivered;
            cwnd = conserved;
        } else if prev >= CaState::Recovery && state < CaState::Recovery {
            cwnd = cwnd.max(self.prior_cwnd);
            self.packet_conservation = false;
        }
        self.prev_state = state;
        if self.packet_conservation {
            (cwnd.max(conserved), true)
        } else {
            (cwnd, false)
        }
    }

    /// Packets needed to bridge silences between bursts of ACKs, once the pipe is full.
    fn extra_cwnd(&self) -> u32 {
        if self.full_bw_reached {
            self.aggregation.extra_cwnd(self.bandwidth())
        } else {
            0
        }
    }

    /// Moves the window to gain times BDP: from below as in slow start, from above at once.
    fn approach_target(&self, s: &Sock, cwnd: u32, acked: u32) -> u32 {
        let target = self.bdp(self.bandwidth(), self.cwnd_gain) + self.extra_cwnd();
        let target = self.quantization_budget(s, target);
        let cwnd = if self.full_bw_reached {
            (cwnd + acked).min(target)
        } else if cwnd < target || s.delivered < u64::from(INIT_CWND) {
            cwnd + acked
        } else {
            cwnd
        };
        cwnd.max(MIN_CWND)
    }
}

impl Default for Bbr {
    fn default() -> Self {
        Self::new()
    }
}

/// The rate of a bandwidth with a gain, bytes per second, less the margin.
#[inline]
pub(super) fn bytes_per_second(s: &Sock, bw: u32, gain: u16) -> u64 {
    let rate = (u64::from(bw) * u64::from(s.mss) * u64::from(gain)) >> 8;
    (rate * (10_000 * (100 - PACING_MARGIN_PERCENT))) >> BW_SCALE
}

/// Number of packets in one burst: a millisecond's worth at the pacing rate.
#[inline]
pub(super) fn tso_segs_goal(s: &Sock) -> u32 {
    // A GSO packet of 64 KiB less the room for headers.
    const MAX_GSO: u64 = 65_536 - 1 - 320;
    let min_segments = if s.pacing_rate < MIN_TSO_RATE { 1 } else { 2 };
    let bytes = (s.pacing_rate >> 10).min(MAX_GSO);
    ((bytes as u32) / s.mss).clamp(min_segments, 0x7f)
}

impl Ops for Bbr {
    fn init(&mut self, s: &mut Sock, now: Instant, seed: u64) {
        *self = Self::new();
        self.random = num::low_u32(seed ^ (seed >> 32));
        s.ssthresh = INFINITE_SSTHRESH;
        self.next_round_delivered = s.delivered;
        self.min_rtt_us = num::low_u32((s.min_rtt / US).min(u64::from(u32::MAX)));
        self.min_rtt_stamp_ms = jiffies(now);
        self.aggregation.start_epoch(now);
        self.init_pacing_rate(s);
        self.long_term.reset(s, now);
    }

    /// There is no threshold: only saves the window to be restored.
    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        self.save_cwnd(s);
        s.ssthresh
    }

    fn set_state(&mut self, s: &mut Sock, now: Instant, new: CaState) {
        if new == CaState::Loss {
            self.prev_state = CaState::Loss;
            self.full_bw = 0;
            // A timeout counts as the end of a round.
            self.round_start = true;
            let rs = RateSample {
                losses: 1,
                ..RateSample::default()
            };
            self.sample_long_term(s, now, &rs);
        }
    }

    fn event(&mut self, s: &mut Sock, now: Instant, e: Event) {
        if e != Event::TxStart || s.app_limited == 0 {
            return;
        }
        self.idle_restart = true;
        self.aggregation.start_epoch(now);
        if self.mode == Mode::ProbeBw {
            // The idle time drained the queue: the estimated rate is enough.
            let gain = std::mem::replace(&mut self.pacing_gain, UNIT);
            self.set_pacing_rate(s);
            self.pacing_gain = gain;
        } else if self.mode == Mode::ProbeRtt {
            self.check_probe_rtt_done(s, now);
        }
    }

    fn cong_control(&mut self, s: &mut Sock, now: Instant, rs: &RateSample) {
        self.update_bw(s, now, rs);
        if rs.acked_sacked > 0 && rs.delivered >= 0 && rs.interval >= US {
            let bw = self.bandwidth();
            self.aggregation
                .update(s, now, rs.acked_sacked, bw, self.round_start);
        }
        self.update_cycle_phase(s, now, rs);
        self.check_full_bw_reached(rs);
        self.check_drain(s, now);
        self.update_min_rtt(s, now, rs);
        self.update_gains();
        self.set_pacing_rate(s);
        self.set_cwnd(s, rs);
    }

    fn undo_cwnd(&mut self, s: &mut Sock) -> u32 {
        // The reduction was spurious, and so were its conclusions about the pipe.
        self.full_bw = 0;
        self.full_bw_rounds = 0;
        self.long_term = LongTerm::default();
        s.cwnd
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::CongestionControl;
    use super::super::testpath::{Path, mean, rate};
    use super::*;
    use quell_qdisc::time::{MS, SEC};

    pub(super) fn path(mbit: u64, rtt: Duration) -> Path {
        Path::new(CongestionControl::Bbr(Box::default()), rate(mbit), rtt)
    }

    pub(super) fn bbr(p: &Path) -> &Bbr {
        match &p.cc {
            CongestionControl::Bbr(b) => b,
            _ => unreachable!(),
        }
    }

    #[test]
    fn gains_are_those_of_the_paper() {
        // 2/ln 2 and its inverse in 1/256.
        assert_eq!((HIGH_GAIN, DRAIN_GAIN), (739, 88));
    }

    #[test]
    fn start_up_doubles_the_rate_each_round() {
        let mut p = path(1000, 50 * MS);
        // The first round only confirms the initial rate, which already has the gain.
        p.run_for(160 * MS);
        assert_eq!(bbr(&p).mode, Mode::Startup);
        let first = p.s.pacing_rate;
        p.run_for(100 * MS);
        // Two rounds: a factor of about four, which depends on the times of the bursts.
        let factor = p.s.pacing_rate as f64 / first as f64;
        assert!((3.0..5.0).contains(&factor), "{factor}");
    }

    #[test]
    fn a_full_pipe_ends_start_up_and_its_queue_is_drained() {
        let mut p = path(50, 40 * MS);
        let mut worst = 0;
        while bbr(&p).mode != Mode::ProbeBw && p.now < Instant::from_secs(5) {
            p.run_for(MS);
            worst = worst.max(p.queue());
        }
        assert_eq!(bbr(&p).mode, Mode::ProbeBw);
        // The BDP is 167 packets, the window 2.89 times that and three bursts of 11; what is beyond
        // the BDP is queued.
        assert!((300..=351).contains(&worst), "{worst}");
        assert!(p.queue() < 20, "{}", p.queue());
    }

    #[test]
    fn in_steady_state_the_rate_is_the_links_and_the_queue_is_short() {
        let mut p = path(50, 40 * MS);
        p.run_for(3 * SEC);
        let before = p.s.delivered;
        let queue = mean(&mut p, 6 * SEC, |p| p.queue() as f64);
        let share = (p.s.delivered - before) as f64 / (6.0 * rate(50) as f64);
        assert!(share > 0.97, "{share}");
        // A probe of one round in eight queues a quarter of 167 packets at most.
        assert!(queue < 12.0, "{queue}");
    }

    #[test]
    fn recovery_conserves_packets_for_a_round_and_then_restores_the_window() {
        let mut b = Bbr::new();
        let mut s = Sock {
            srtt: 40 * MS,
            min_rtt: 40 * MS,
            nxt: 100,
            ..Sock::new(1448, 100)
        };
        b.init(&mut s, Instant::ZERO, 1);
        b.ssthresh(&mut s, Instant::ZERO);
        assert_eq!(b.prior_cwnd, 100);
        s.state = CaState::Recovery;
        s.lost_out = 20;
        s.sacked_out = 10;
        let rs = RateSample {
            acked_sacked: 2,
            losses: 20,
            delivered: -1,
            ..RateSample::default()
        };
        b.set_cwnd(&mut s, &rs);
        assert_eq!(s.cwnd, 72); // 70 in flight and the two that arrived
        s.state = CaState::Open;
        (s.lost_out, s.sacked_out) = (0, 0);
        let rs = RateSample {
            acked_sacked: 1,
            ..RateSample::default()
        };
        b.set_cwnd(&mut s, &rs);
        assert!(s.cwnd >= 100, "{}", s.cwnd);
    }

    #[test]
    fn undo_discards_conclusions_of_a_spurious_loss() {
        let mut b = Bbr::new();
        let mut s = Sock::new(1448, 30);
        b.full_bw = 5;
        assert_eq!(b.undo_cwnd(&mut s), 30);
        assert_eq!(b.full_bw, 0);
    }
}
