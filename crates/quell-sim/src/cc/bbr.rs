//! BBR, version 1, as Linux's `net/ipv4/tcp_bbr.c` (Cardwell, Cheng, Gunn, Yeganeh and Jacobson, "BBR: congestion-based congestion control",
//! ACM Queue 14(5), 2016; draft-cardwell-iccrg-bbr-congestion-control-00): a model of the path (bottleneck bandwidth and
//! round trip without queuing) sets pacing rate and window. Bandwidth is in packets per µs, times 2^24; gains are of 256.
//!
//! Deviations from Linux: times of delivery are the time of the ACK at hand (they differ only for ACKs that deliver nothing); the
//! phase that PROBE_BW starts in comes from a generator of the flow's own; there is no limit on the window or the rate.

use quell_qdisc::{Nanos, US};

use super::windowed_max::WindowedMax;
use super::{
    CaState, Event, INFINITE_SSTHRESH, Ops, RateSample, Sock, after, before, jiffies, micros,
};

/// Fixed point of bandwidths.
const BW_SCALE: u32 = 24;
const BW_UNIT: u64 = 1 << BW_SCALE;
/// Fixed point of gains.
const UNIT: u16 = 256;

/// 2/ln 2: the smallest gain that doubles the delivery rate in each round of start-up.
const HIGH_GAIN: u16 = (UNIT as u32 * 2885 / 1000 + 1) as u16;
/// Its inverse, which drains within about one round what start-up queued.
const DRAIN_GAIN: u16 = (UNIT as u32 * 1000 / 2885) as u16;
/// The window's gain while probing bandwidth: room for delayed and stretched ACKs.
const CWND_GAIN: u16 = 2 * UNIT;
/// Pacing gains of PROBE_BW: probe, drain what the probe queued, cruise.
const CYCLE: [u16; 8] = [
    UNIT * 5 / 4,
    UNIT * 3 / 4,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
];
/// The cycle starts in any phase but the draining one.
const CYCLE_RANDOM: u64 = 7;

/// Rounds that a bandwidth sample counts.
const BW_ROUNDS: u32 = CYCLE.len() as u32 + 2;
/// How long the lowest RTT counts.
const MIN_RTT_WINDOW_MS: u32 = 10_000;
/// How long PROBE_RTT holds the window down, and to what.
const PROBE_RTT_MS: u32 = 200;
const MIN_CWND: u32 = 4;
/// The pacing rate stays 1 % below the estimate, so that queues drain.
const PACING_MARGIN_PERCENT: u64 = 1;
/// RFC 6928.
const INIT_CWND: u32 = 10;

/// The pipe is full when bandwidth grew less than this, three rounds in a row.
const FULL_BW_GAIN: u64 = UNIT as u64 * 5 / 4;
const FULL_BW_ROUNDS: u8 = 3;

/// Long-term sampling (policers): rounds of an interval, share of loss, agreement of two intervals, rounds of use.
const LT_ROUNDS: u8 = 4;
const LT_LOSS: u32 = 50;
const LT_BW_RATIO: u64 = UNIT as u64 / 8;
const LT_BW_DIFF_BYTES: u64 = 4000 / 8;
const LT_USE_ROUNDS: u8 = 48;

/// Aggregation of ACKs: rounds of half a window, packets after which an epoch is begun anew, and the longest silence provided for.
const EXTRA_ROUNDS: u8 = 5;
const EXTRA_EPOCH_MAX: u32 = 1 << 20;
const EXTRA_MAX_US: u64 = 100_000;

/// Below this pacing rate (bytes per second; 1.2 Mbit/s) bursts are single packets.
const MIN_TSO_RATE: u64 = 1_200_000 / 8;

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
    /// Recent bandwidth by round.
    bw: WindowedMax,
    min_rtt_us: u32,
    min_rtt_stamp_ms: u32,
    /// 0: not scheduled.
    probe_rtt_done_ms: u32,
    /// Rounds so far, and the count of delivered packets that ends the present one.
    rounds: u32,
    next_round_delivered: u32,
    cycle_stamp_us: u32,
    lt_bw: u32,
    lt_last_delivered: u32,
    lt_last_stamp_ms: u32,
    lt_last_lost: u32,
    /// Window to come back to after recovery or PROBE_RTT.
    prior_cwnd: u32,
    full_bw: u32,
    ack_epoch_stamp_us: u32,
    ack_epoch_acked: u32,
    /// State of the generator that draws phases.
    random: u32,
    extra_acked: [u16; 2],
    pacing_gain: u16,
    cwnd_gain: u16,
    cycle_index: u8,
    full_bw_rounds: u8,
    lt_rounds: u8,
    extra_acked_rounds: u8,
    extra_acked_index: u8,
    mode: Mode,
    prev_state: CaState,
    packet_conservation: bool,
    round_start: bool,
    idle_restart: bool,
    probe_rtt_round_done: bool,
    lt_sampling: bool,
    lt_use_bw: bool,
    full_bw_reached: bool,
    seen_rtt: bool,
}

impl Bbr {
    /// A fresh one.
    pub fn new() -> Self {
        Self {
            bw: WindowedMax::default(),
            min_rtt_us: u32::MAX,
            min_rtt_stamp_ms: 0,
            probe_rtt_done_ms: 0,
            rounds: 0,
            next_round_delivered: 0,
            cycle_stamp_us: 0,
            lt_bw: 0,
            lt_last_delivered: 0,
            lt_last_stamp_ms: 0,
            lt_last_lost: 0,
            prior_cwnd: 0,
            full_bw: 0,
            ack_epoch_stamp_us: 0,
            ack_epoch_acked: 0,
            random: 1,
            extra_acked: [0; 2],
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            cycle_index: 0,
            full_bw_rounds: 0,
            lt_rounds: 0,
            extra_acked_rounds: 0,
            extra_acked_index: 0,
            mode: Mode::Startup,
            prev_state: CaState::Open,
            packet_conservation: false,
            round_start: false,
            idle_restart: false,
            probe_rtt_round_done: false,
            lt_sampling: false,
            lt_use_bw: false,
            full_bw_reached: false,
            seen_rtt: false,
        }
    }

    /// The estimate that rates are derived from.
    #[inline]
    fn bandwidth(&self) -> u32 {
        if self.lt_use_bw {
            self.lt_bw
        } else {
            self.bw.get()
        }
    }

    fn set_pacing_rate(&mut self, s: &mut Sock) {
        if !self.seen_rtt && s.srtt != 0 {
            self.init_pacing_rate(s);
        }
        let rate = bytes_per_second(s, self.bandwidth(), self.pacing_gain);
        // Start-up's early samples are low: the rate only grows until the pipe is full.
        if self.full_bw_reached || rate > s.pacing_rate {
            s.pacing_rate = rate;
        }
    }

    /// The initial window per round (1 ms while the round trip is unknown), with start-up's gain.
    fn init_pacing_rate(&mut self, s: &mut Sock) {
        let rtt_us = if s.srtt == 0 {
            1_000
        } else {
            self.seen_rtt = true;
            (s.srtt / US).max(1)
        };
        let bw = u64::from(s.cwnd) * BW_UNIT / rtt_us;
        s.pacing_rate = bytes_per_second(s, bw.min(u64::from(u32::MAX)) as u32, HIGH_GAIN);
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
        ((((w * u64::from(gain)) >> 8) + BW_UNIT - 1) >> BW_SCALE) as u32
    }

    /// Room for what end systems hold in bursts, and an even number against delayed ACKs.
    #[inline]
    fn quantization_budget(&self, s: &Sock, cwnd: u32) -> u32 {
        let even = (cwnd + 3 * tso_segs_goal(s) + 1) & !1;
        // A probe must get above a BDP even if that is a few packets.
        let probing = self.mode == Mode::ProbeBw && self.cycle_index == 0;
        even + if probing { 2 } else { 0 }
    }

    #[inline]
    fn inflight(&self, s: &Sock, bw: u32, gain: u16) -> u32 {
        self.quantization_budget(s, self.bdp(bw, gain))
    }

    /// What will be in the network when the pacer lets the next burst go.
    fn in_network_at_departure(&self, s: &Sock, now: Nanos, inflight: u32) -> u32 {
        let wait_us = s.edt.saturating_sub(now) / US;
        let delivered = ((u64::from(self.bandwidth()) * wait_us) >> BW_SCALE) as u32;
        let burst = if self.pacing_gain > UNIT {
            tso_segs_goal(s)
        } else {
            0
        };
        (inflight + burst).saturating_sub(delivered)
    }

    fn update_bw(&mut self, s: &Sock, now: Nanos, rs: &RateSample) {
        self.round_start = false;
        if rs.delivered < 0 || rs.interval < US {
            return;
        }
        if !before(rs.prior_delivered, self.next_round_delivered) {
            self.next_round_delivered = s.delivered;
            self.rounds += 1;
            self.round_start = true;
            self.packet_conservation = false;
        }
        self.lt_sample(s, now, rs);
        let bw = rs.delivered as u64 * BW_UNIT / (rs.interval / US);
        let bw = bw.min(u64::from(u32::MAX)) as u32;
        // A sample that the application limited says what it offered, unless it beats the model.
        if !rs.app_limited || bw >= self.bw.get() {
            self.bw.update(BW_ROUNDS, self.rounds, bw);
        }
    }

    /// Two lossy intervals of the same throughput look like a policer: then its rate, for a while, without probing.
    fn lt_sample(&mut self, s: &Sock, now: Nanos, rs: &RateSample) {
        if self.lt_use_bw {
            if self.mode == Mode::ProbeBw && self.round_start {
                self.lt_rounds += 1;
                if self.lt_rounds >= LT_USE_ROUNDS {
                    self.lt_reset(s, now);
                    self.enter_probe_bw(now);
                }
            }
            return;
        }
        // The first loss says that the policer's tokens are used up.
        if !self.lt_sampling {
            if rs.losses == 0 {
                return;
            }
            self.lt_start_interval(s, now);
            self.lt_sampling = true;
        }
        if rs.app_limited {
            self.lt_reset(s, now);
            return;
        }
        if self.round_start {
            self.lt_rounds += 1;
        }
        if self.lt_rounds < LT_ROUNDS {
            return;
        }
        if self.lt_rounds > 4 * LT_ROUNDS {
            self.lt_reset(s, now);
            return;
        }
        // An interval ends as it began, with a loss.
        if rs.losses == 0 {
            return;
        }
        let lost = s.lost.wrapping_sub(self.lt_last_lost);
        let delivered = s.delivered.wrapping_sub(self.lt_last_delivered);
        if delivered == 0 || u64::from(lost) << 8 < u64::from(LT_LOSS) * u64::from(delivered) {
            return;
        }
        let ms = jiffies(now).wrapping_sub(self.lt_last_stamp_ms);
        if ms == 0 {
            return;
        }
        if ms >= u32::MAX / 1000 {
            self.lt_reset(s, now);
            return;
        }
        let bw = u64::from(delivered) * BW_UNIT / (u64::from(ms) * 1000);
        self.lt_interval_done(s, now, bw as u32);
    }

    fn lt_interval_done(&mut self, s: &Sock, now: Nanos, bw: u32) {
        if self.lt_bw != 0 {
            let diff = bw.abs_diff(self.lt_bw);
            let close = u64::from(diff) * u64::from(UNIT) <= LT_BW_RATIO * u64::from(self.lt_bw);
            if close || bytes_per_second(s, diff, UNIT) <= LT_BW_DIFF_BYTES {
                self.lt_bw = ((u64::from(bw) + u64::from(self.lt_bw)) / 2) as u32;
                self.lt_use_bw = true;
                self.pacing_gain = UNIT;
                self.lt_rounds = 0;
                return;
            }
        }
        self.lt_bw = bw;
        self.lt_start_interval(s, now);
    }

    fn lt_start_interval(&mut self, s: &Sock, now: Nanos) {
        self.lt_last_stamp_ms = jiffies(now);
        self.lt_last_delivered = s.delivered;
        self.lt_last_lost = s.lost;
        self.lt_rounds = 0;
    }

    fn lt_reset(&mut self, s: &Sock, now: Nanos) {
        self.lt_bw = 0;
        self.lt_use_bw = false;
        self.lt_sampling = false;
        self.lt_start_interval(s, now);
    }

    /// How many more packets come back at once than the bandwidth explains: the silence between bursts of ACKs needs as many in flight.
    fn update_ack_aggregation(&mut self, s: &Sock, now: Nanos, rs: &RateSample) {
        if rs.acked_sacked == 0 || rs.delivered < 0 || rs.interval < US {
            return;
        }
        if self.round_start {
            self.extra_acked_rounds += 1;
            if self.extra_acked_rounds >= EXTRA_ROUNDS {
                self.extra_acked_rounds = 0;
                self.extra_acked_index ^= 1;
                self.extra_acked[usize::from(self.extra_acked_index)] = 0;
            }
        }
        let epoch_us = micros(now).wrapping_sub(self.ack_epoch_stamp_us);
        let mut expected = ((u64::from(self.bandwidth()) * u64::from(epoch_us)) >> BW_SCALE) as u32;
        if self.ack_epoch_acked <= expected
            || self.ack_epoch_acked + rs.acked_sacked >= EXTRA_EPOCH_MAX
        {
            self.ack_epoch_acked = 0;
            self.ack_epoch_stamp_us = micros(now);
            expected = 0;
        }
        self.ack_epoch_acked = (self.ack_epoch_acked + rs.acked_sacked).min(EXTRA_EPOCH_MAX - 1);
        let extra = (self.ack_epoch_acked - expected).min(s.cwnd);
        let best = &mut self.extra_acked[usize::from(self.extra_acked_index)];
        *best = (*best).max(extra.min(u32::from(u16::MAX)) as u16);
    }

    fn aggregation_cwnd(&self) -> u32 {
        if !self.full_bw_reached {
            return 0;
        }
        let most = ((u64::from(self.bandwidth()) * EXTRA_MAX_US) >> BW_SCALE) as u32;
        u32::from(self.extra_acked[0].max(self.extra_acked[1])).min(most)
    }

    fn update_cycle_phase(&mut self, s: &Sock, now: Nanos, rs: &RateSample) {
        if self.mode == Mode::ProbeBw && self.cycle_phase_is_over(s, now, rs) {
            self.next_cycle_phase(now);
        }
    }

    fn cycle_phase_is_over(&self, s: &Sock, now: Nanos, rs: &RateSample) -> bool {
        let full_length = micros(now).wrapping_sub(self.cycle_stamp_us) > self.min_rtt_us;
        if self.pacing_gain == UNIT {
            return full_length;
        }
        let inflight = self.in_network_at_departure(s, now, rs.prior_in_flight);
        let bw = self.bw.get();
        if self.pacing_gain > UNIT {
            // Probe until the pipe holds it, or until it visibly does not.
            full_length && (rs.losses > 0 || inflight >= self.inflight(s, bw, self.pacing_gain))
        } else {
            // Drain no further than to a BDP.
            full_length || inflight <= self.inflight(s, bw, UNIT)
        }
    }

    fn next_cycle_phase(&mut self, now: Nanos) {
        self.cycle_index = (self.cycle_index + 1) % CYCLE.len() as u8;
        self.cycle_stamp_us = micros(now);
    }

    fn enter_probe_bw(&mut self, now: Nanos) {
        self.mode = Mode::ProbeBw;
        // Numerical Recipes' generator is random enough to take phases apart.
        self.random = self
            .random
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        let phase = (u64::from(self.random) * CYCLE_RANDOM) >> 32;
        self.cycle_index = CYCLE.len() as u8 - 1 - phase as u8;
        self.next_cycle_phase(now);
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

    fn check_drain(&mut self, s: &mut Sock, now: Nanos) {
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

    fn update_min_rtt(&mut self, s: &mut Sock, now: Nanos, rs: &RateSample) {
        let now_ms = jiffies(now);
        let expired = after(
            now_ms,
            self.min_rtt_stamp_ms.wrapping_add(MIN_RTT_WINDOW_MS),
        );
        let rtt_us = micros(rs.rtt);
        if rs.rtt > 0 && (rtt_us <= self.min_rtt_us || (expired && !rs.ack_delayed)) {
            self.min_rtt_us = rtt_us;
            self.min_rtt_stamp_ms = now_ms;
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_cwnd(s);
            self.probe_rtt_done_ms = 0;
        }
        if self.mode == Mode::ProbeRtt {
            self.hold_probe_rtt(s, now);
        }
        if rs.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// Four packets in flight for 200 ms and a round.
    fn hold_probe_rtt(&mut self, s: &mut Sock, now: Nanos) {
        // The low rates of this mode must not count as bandwidth.
        s.app_limited = (s.delivered + s.in_flight()).max(1);
        if self.probe_rtt_done_ms == 0 {
            if s.in_flight() <= MIN_CWND {
                self.probe_rtt_done_ms = jiffies(now).wrapping_add(PROBE_RTT_MS).max(1);
                self.probe_rtt_round_done = false;
                self.next_round_delivered = s.delivered;
            }
            return;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(s, now);
        }
    }

    fn check_probe_rtt_done(&mut self, s: &mut Sock, now: Nanos) {
        if self.probe_rtt_done_ms == 0 || !after(jiffies(now), self.probe_rtt_done_ms) {
            return;
        }
        self.min_rtt_stamp_ms = jiffies(now);
        s.cwnd = s.cwnd.max(self.prior_cwnd);
        if self.full_bw_reached {
            self.enter_probe_bw(now);
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBw if self.lt_use_bw => (UNIT, CWND_GAIN),
            Mode::ProbeBw => (CYCLE[usize::from(self.cycle_index)], CWND_GAIN),
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

    /// In the first round of recovery a packet leaves for each that arrived; afterwards the window from before comes back.
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

    /// Towards gain times BDP, as slow start does from below, at once from above.
    fn approach_target(&self, s: &Sock, cwnd: u32, acked: u32) -> u32 {
        let target = self.bdp(self.bandwidth(), self.cwnd_gain) + self.aggregation_cwnd();
        let target = self.quantization_budget(s, target);
        let cwnd = if self.full_bw_reached {
            (cwnd + acked).min(target)
        } else if cwnd < target || s.delivered < INIT_CWND {
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

/// Bytes per second of this bandwidth with this gain, less the margin.
#[inline]
fn bytes_per_second(s: &Sock, bw: u32, gain: u16) -> u64 {
    let rate = (u64::from(bw) * u64::from(s.mss) * u64::from(gain)) >> 8;
    (rate * (10_000 * (100 - PACING_MARGIN_PERCENT))) >> BW_SCALE
}

/// Packets that the sender lets go in one burst: a millisecond's worth at the pacing rate.
#[inline]
pub(crate) fn tso_segs_goal(s: &Sock) -> u32 {
    // A GSO packet of 64 KiB less the room for headers.
    const MOST: u64 = 65_536 - 1 - 320;
    let least = if s.pacing_rate < MIN_TSO_RATE { 1 } else { 2 };
    let bytes = (s.pacing_rate >> 10).min(MOST);
    ((bytes as u32) / s.mss).clamp(least, 0x7f)
}

impl Ops for Bbr {
    fn init(&mut self, s: &mut Sock, now: Nanos, seed: u64) {
        *self = Self::new();
        self.random = (seed ^ (seed >> 32)) as u32;
        s.ssthresh = INFINITE_SSTHRESH;
        self.next_round_delivered = s.delivered;
        self.min_rtt_us = (s.min_rtt / US).min(u64::from(u32::MAX)) as u32;
        self.min_rtt_stamp_ms = jiffies(now);
        self.ack_epoch_stamp_us = micros(now);
        self.init_pacing_rate(s);
        self.lt_reset(s, now);
    }

    /// No threshold: it only notes the window to come back to.
    fn ssthresh(&mut self, s: &mut Sock, _now: Nanos) -> u32 {
        self.save_cwnd(s);
        s.ssthresh
    }

    fn set_state(&mut self, s: &mut Sock, now: Nanos, new: CaState) {
        if new == CaState::Loss {
            self.prev_state = CaState::Loss;
            self.full_bw = 0;
            // A timeout counts as the end of a round.
            self.round_start = true;
            let rs = RateSample {
                losses: 1,
                ..RateSample::default()
            };
            self.lt_sample(s, now, &rs);
        }
    }

    fn event(&mut self, s: &mut Sock, now: Nanos, e: Event) {
        if e != Event::TxStart || s.app_limited == 0 {
            return;
        }
        self.idle_restart = true;
        self.ack_epoch_stamp_us = micros(now);
        self.ack_epoch_acked = 0;
        if self.mode == Mode::ProbeBw {
            // Idle was the drain: no need for more than the estimate.
            let gain = std::mem::replace(&mut self.pacing_gain, UNIT);
            self.set_pacing_rate(s);
            self.pacing_gain = gain;
        } else if self.mode == Mode::ProbeRtt {
            self.check_probe_rtt_done(s, now);
        }
    }

    fn cong_control(&mut self, s: &mut Sock, now: Nanos, rs: &RateSample) {
        self.update_bw(s, now, rs);
        self.update_ack_aggregation(s, now, rs);
        self.update_cycle_phase(s, now, rs);
        self.check_full_bw_reached(rs);
        self.check_drain(s, now);
        self.update_min_rtt(s, now, rs);
        self.update_gains();
        self.set_pacing_rate(s);
        self.set_cwnd(s, rs);
    }

    fn undo_cwnd(&mut self, s: &mut Sock) -> u32 {
        // The slow-down was spurious, and so was what it said about the pipe.
        self.full_bw = 0;
        self.full_bw_rounds = 0;
        self.lt_bw = 0;
        self.lt_use_bw = false;
        self.lt_sampling = false;
        self.lt_rounds = 0;
        s.cwnd
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::testpath::{Path, mean, rate};
    use super::*;
    use quell_qdisc::{MS, SEC};

    fn path(mbit: u64, rtt: Nanos) -> Path {
        Path::new(CongestionControl::Bbr(Bbr::new()), rate(mbit), rtt)
    }

    fn bbr(p: &Path) -> &Bbr {
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
        // Two rounds: a factor of four, more or less as the bursts of a round fall.
        let factor = p.s.pacing_rate as f64 / first as f64;
        assert!((3.0..5.0).contains(&factor), "{factor}");
    }

    #[test]
    fn a_full_pipe_ends_start_up_and_its_queue_is_drained() {
        let mut p = path(50, 40 * MS);
        let mut worst = 0;
        while bbr(&p).mode != Mode::ProbeBw && p.now < 5 * SEC {
            p.run_for(MS);
            worst = worst.max(p.queue());
        }
        assert_eq!(bbr(&p).mode, Mode::ProbeBw);
        // The BDP is 167 packets, the window 2.89 times that and three bursts of 11; what is beyond the BDP is queued.
        assert!((300..=351).contains(&worst), "{worst}");
        assert!(p.queue() < 20, "{}", p.queue());
    }

    #[test]
    fn in_steady_state_the_rate_is_the_links_and_the_queue_is_short() {
        let mut p = path(50, 40 * MS);
        p.run_for(3 * SEC);
        let before = p.s.delivered;
        let queue = mean(&mut p, 6 * SEC, |p| p.queue() as f64);
        let share = f64::from(p.s.delivered - before) / (6.0 * rate(50) as f64);
        assert!(share > 0.97, "{share}");
        // A probe of one round in eight queues a quarter of 167 packets at most.
        assert!(queue < 12.0, "{queue}");
    }

    #[test]
    fn the_cycle_probes_for_one_round_in_eight() {
        let mut p = path(50, 40 * MS);
        p.run_for(3 * SEC);
        let probing = mean(&mut p, 6 * SEC, |p| f64::from(bbr(p).pacing_gain > UNIT));
        assert!((0.08..0.25).contains(&probing), "{probing}");
    }

    #[test]
    fn every_ten_seconds_the_window_dips_to_four_for_the_round_trip() {
        let mut p = path(50, 40 * MS);
        // A standing queue hides the base RTT: the sample of the handshake must expire.
        p.run_for(3 * SEC);
        let mut dip = 0;
        for _ in 0..10_000 {
            p.run_for(MS);
            dip += u32::from(bbr(&p).mode == Mode::ProbeRtt);
            if bbr(&p).mode == Mode::ProbeRtt {
                assert!(
                    p.s.cwnd <= MIN_CWND || p.s.in_flight() > MIN_CWND,
                    "{}",
                    p.s.cwnd
                );
            }
        }
        // 200 ms, a round to drain and one that ends it.
        assert!((200..400).contains(&dip), "{dip}");
        assert!(p.s.cwnd > 100, "{}", p.s.cwnd);
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
        b.init(&mut s, 0, 1);
        b.ssthresh(&mut s, 0);
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
    fn two_lossy_intervals_alike_are_taken_for_a_policer() {
        let mut b = Bbr::new();
        let mut s = Sock::new(1448, 100);
        b.init(&mut s, 0, 1);
        let mut now = SEC;
        let mut rs = RateSample {
            losses: 30,
            ..RateSample::default()
        };
        for _ in 0..12 {
            b.round_start = true;
            b.lt_sample(&s, now, &rs);
            s.delivered += 100;
            s.lost += 30;
            now += 100 * MS;
        }
        assert!(b.lt_use_bw);
        // 100 packets in 100 ms.
        let expected = (BW_UNIT / 1000) as f64;
        assert!(
            (f64::from(b.lt_bw) / expected - 1.0).abs() < 0.02,
            "{}",
            b.lt_bw
        );
        // ... and forgotten after 48 rounds of PROBE_BW.
        b.mode = Mode::ProbeBw;
        rs.losses = 0;
        for _ in 0..48 {
            b.lt_sample(&s, now, &rs);
        }
        assert!(!b.lt_use_bw);
    }

    #[test]
    fn flows_of_different_seeds_start_their_cycles_apart() {
        let phases: std::collections::HashSet<u8> = (0..64u64)
            .map(|seed| {
                let mut b = Bbr::new();
                b.init(
                    &mut Sock::new(1448, 10),
                    0,
                    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                );
                b.enter_probe_bw(0);
                b.cycle_index
            })
            .collect();
        // All but the draining phase.
        assert_eq!(phases.len(), 7);
        assert!(!phases.contains(&1));
    }

    #[test]
    fn undo_forgets_what_the_spurious_loss_said() {
        let mut b = Bbr::new();
        let mut s = Sock::new(1448, 30);
        (b.full_bw, b.lt_use_bw) = (5, true);
        assert_eq!(b.undo_cwnd(&mut s), 30);
        assert_eq!((b.full_bw, b.lt_use_bw), (0, false));
    }
}
