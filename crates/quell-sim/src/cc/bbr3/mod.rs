//! BBR, version 3, by draft-ietf-ccwg-bbr (its repository's state of 3 August 2026, after revision
//! 06): the model of version 1 with bounds on rate and volume learned from losses. Names are the
//! draft's; sections are cited by their titles. Bandwidth is in packets per µs, times 2^24; gains
//! are in 1/256; volumes count packets.
//!
//! Choices and deviations: each ACK that reports losses counts as one of the discontiguous ranges
//! whose number ends Startup, as in the authors' code; all connections count as having SACK; no
//! round begins without a valid delivery rate. ECN ("ECN": any mark must be treated as congestion):
//! a round with marks counts as one whose losses exceed the limit. The volume in flight at the
//! pacer's next departure is not estimated. Bursts are the sender's
//! (`CongestionControl::tso_segs`).

mod congestion;
mod probe_bw;
mod probe_rtt;

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, US};

use super::bbr::windowed_max::WindowedMax;
use super::bbr::{BW_UNIT, INIT_CWND, MIN_CWND, UNIT, bytes_per_second, tso_segs_goal};
use super::{CaState, Event, INFINITE_SSTHRESH, Ops, RateSample, Sock};
pub use congestion::LOSS_PERCENT;
use congestion::Undo;
use probe_bw::AckPhase;

/// No bound.
const INFINITE: u32 = u32::MAX;

/// Startup doubles the rate in each round ("Startup Dynamics"): 2.77.
const STARTUP_PACING_GAIN: u16 = num::low_u16(UNIT as u64 * 277 / 100);
/// Drain: 0.5.
const DRAIN_PACING_GAIN: u16 = UNIT / 2;
/// DefaultCwndGain: 2.
const CWND_GAIN: u16 = 2 * UNIT;
/// Maximum number of rounds of Drain.
const DRAIN_ROUNDS: u32 = 3;
/// "Exiting Acceleration Based on Bandwidth Plateau": three rounds without a quarter more.
const FULL_BW_ROUNDS: u8 = 3;
/// ExtraAckedFilterLen, rounds.
const EXTRA_ACKED_ROUNDS: u32 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Startup,
    Drain,
    ProbeBwDown,
    ProbeBwCruise,
    ProbeBwRefill,
    ProbeBwUp,
    ProbeRtt,
}

impl State {
    /// "Summary of Control Behavior in the State Machine".
    fn pacing_gain(self) -> u16 {
        match self {
            State::Startup => STARTUP_PACING_GAIN,
            State::Drain => DRAIN_PACING_GAIN,
            State::ProbeBwDown => num::low_u16((u32::from(UNIT) * 90 / 100).into()),
            State::ProbeBwUp => UNIT * 5 / 4,
            State::ProbeBwCruise | State::ProbeBwRefill | State::ProbeRtt => UNIT,
        }
    }

    fn cwnd_gain(self) -> u16 {
        match self {
            State::ProbeBwUp => UNIT * 9 / 4,
            State::ProbeRtt => probe_rtt::CWND_GAIN,
            _ => CWND_GAIN,
        }
    }

    fn is_probe_bw(self) -> bool {
        use State::{ProbeBwCruise, ProbeBwDown, ProbeBwRefill, ProbeBwUp};
        matches!(
            self,
            ProbeBwDown | ProbeBwCruise | ProbeBwRefill | ProbeBwUp
        )
    }

    /// IsProbingBW: whether the state may raise the volume in flight to find bandwidth.
    fn accelerates(self) -> bool {
        matches!(
            self,
            State::Startup | State::ProbeBwRefill | State::ProbeBwUp
        )
    }
}

/// Path sample of an ACK, the draft's RS.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Delivery rate; 0: not valid.
    bw: u32,
    delivered: u32,
    prior_delivered: u64,
    valid: bool,
}

/// One sender's model and state. Times named `_us` do not wrap.
#[derive(Clone, Debug)]
pub struct Bbr3 {
    // The path.
    /// Highest rate of the last cycle of ProbeBW and of this one.
    max_bw: [u32; 2],
    bw_shortterm: u32,
    inflight_longterm: u32,
    inflight_shortterm: u32,
    /// BBR.bw: the highest rate, limited by the short-term bound.
    bw: u32,
    min_rtt_us: u32,
    min_rtt_stamp_us: u64,
    probe_rtt_min_us: u32,
    probe_rtt_min_stamp_us: u64,
    /// 0: not scheduled.
    probe_rtt_done_us: u64,
    extra_acked: WindowedMax,
    extra_acked_start_us: u64,
    extra_acked_delivered: u64,

    // Rounds.
    rounds: u32,
    next_round_delivered: u64,
    full_bw: u32,
    drain_start_round: u32,
    full_bw_count: u8,

    // Congestion.
    loss_round_delivered: u64,
    bw_latest: u32,
    inflight_latest: u32,
    /// `Sock::lost` at the last check of losses.
    lost: u64,
    loss_events: u8,
    undo: Undo,

    // ProbeBW.
    cycle_stamp_us: u64,
    probe_wait_us: u64,
    rounds_since_probe_up: u32,
    probe_up_acked_per_inc: u32,
    bw_probe_up_acked: u32,
    bw_probe_up_rounds: u8,
    ack_phase: AckPhase,

    prior_cwnd: u32,
    /// State of the generator that draws waits.
    random: u32,
    state: State,
    full_bw_now: bool,
    full_bw_reached: bool,
    round_start: bool,
    loss_round_start: bool,
    is_loss_in_round: bool,
    is_bw_probe_sample: bool,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    probe_rtt_expired: bool,
    probe_rtt_round_done: bool,
    idle_restart: bool,
    seen_rtt: bool,
    /// Whether a mark was echoed and has not been answered.
    marked: bool,
}

impl Bbr3 {
    /// The state of a new connection.
    pub fn new() -> Self {
        Self {
            max_bw: [0; 2],
            bw_shortterm: INFINITE,
            inflight_longterm: INFINITE,
            inflight_shortterm: INFINITE,
            bw: 0,
            min_rtt_us: u32::MAX,
            min_rtt_stamp_us: 0,
            probe_rtt_min_us: u32::MAX,
            probe_rtt_min_stamp_us: 0,
            probe_rtt_done_us: 0,
            extra_acked: WindowedMax::default(),
            extra_acked_start_us: 0,
            extra_acked_delivered: 0,
            rounds: 0,
            next_round_delivered: 0,
            full_bw: 0,
            drain_start_round: 0,
            full_bw_count: 0,
            loss_round_delivered: 0,
            bw_latest: 0,
            inflight_latest: 0,
            lost: 0,
            loss_events: 0,
            undo: Undo::default(),
            cycle_stamp_us: 0,
            probe_wait_us: 0,
            rounds_since_probe_up: 0,
            probe_up_acked_per_inc: INFINITE,
            bw_probe_up_acked: 0,
            bw_probe_up_rounds: 0,
            ack_phase: AckPhase::Init,
            prior_cwnd: 0,
            random: 1,
            state: State::Startup,
            full_bw_now: false,
            full_bw_reached: false,
            round_start: false,
            loss_round_start: false,
            is_loss_in_round: false,
            is_bw_probe_sample: false,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            probe_rtt_expired: false,
            probe_rtt_round_done: false,
            idle_restart: false,
            seen_rtt: false,
            marked: false,
        }
    }

    #[inline]
    fn highest_bw(&self) -> u32 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// BDPMultiple of a bandwidth, rounded up.
    fn bdp_of(&self, bw: u32, gain: u16) -> u32 {
        if self.min_rtt_us == u32::MAX {
            return INIT_CWND;
        }
        let bdp = u128::from(bw) * u128::from(self.min_rtt_us) * u128::from(gain);
        let packets = (bdp / u128::from(UNIT)).div_ceil(u128::from(BW_UNIT));
        num::low_u32(num::low_u64(packets.min(u128::from(INFINITE / 4))))
    }

    fn bdp(&self, gain: u16) -> u32 {
        self.bdp_of(self.bw, gain)
    }

    /// QuantizationBudget, with TCP's offload budget of three quanta.
    fn quantization_budget(&self, s: &Sock, inflight: u32) -> u32 {
        let inflight = inflight.max(3 * tso_segs_goal(s)).max(MIN_CWND);
        inflight + if self.state == State::ProbeBwUp { 2 } else { 0 }
    }

    /// Inflight(gain) at a bandwidth.
    fn inflight(&self, s: &Sock, bw: u32, gain: u16) -> u32 {
        self.quantization_budget(s, self.bdp_of(bw, gain))
    }

    /// TargetInflight: the BDP, at most the window.
    fn target_inflight(&self, s: &Sock) -> u32 {
        self.bdp(UNIT).min(s.cwnd)
    }

    fn start_round(&mut self, s: &Sock) {
        self.next_round_delivered = s.delivered;
    }

    /// UpdateRound and UpdateMaxBw: counts rounds, and raises the maximum of the bandwidth.
    fn update_max_bw(&mut self, s: &Sock, rs: &RateSample, sample: &Sample) {
        self.round_start = sample.valid && sample.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round(s);
            self.rounds += 1;
            self.rounds_since_probe_up += 1;
        }
        if sample.bw > 0 && (!rs.app_limited || sample.bw >= self.highest_bw()) {
            self.max_bw[1] = self.max_bw[1].max(sample.bw);
        }
    }

    /// AdvanceMaxBwFilter: this cycle becomes the last.
    fn advance_max_bw(&mut self) {
        if self.max_bw[1] > 0 {
            self.max_bw = [self.max_bw[1], 0];
        }
    }

    /// UpdateACKAggregation: notes by how many packets ACKs exceed what the bandwidth delivers.
    fn update_aggregation(&mut self, s: &Sock, now_us: u64, acked: u32) {
        let expected = |start: u64| {
            num::low_u64(u128::from(self.bw) * u128::from(now_us - start) / u128::from(BW_UNIT))
        };
        let mut due = expected(self.extra_acked_start_us);
        if self.extra_acked_delivered <= due {
            self.extra_acked_delivered = 0;
            self.extra_acked_start_us = now_us;
            due = 0;
        }
        self.extra_acked_delivered += u64::from(acked);
        let extra = num::low_u32((self.extra_acked_delivered - due).min(u64::from(s.cwnd)));
        let window = if self.full_bw_reached {
            EXTRA_ACKED_ROUNDS
        } else {
            1
        };
        self.extra_acked.update(window, self.rounds, extra);
    }

    /// ResetFullBW: starts the search for a plateau again, with this bandwidth as baseline.
    fn reset_full_bw(&mut self, bw: u32) {
        self.full_bw = bw;
        self.full_bw_count = 0;
        self.full_bw_now = false;
    }

    /// CheckFullBWReached: notes when the bandwidth has reached a plateau.
    fn check_full_bw(&mut self, rs: &RateSample, sample: &Sample) {
        if self.full_bw_now || !self.round_start || rs.app_limited || sample.bw == 0 {
            return;
        }
        if u64::from(sample.bw) * 4 >= u64::from(self.full_bw) * 5 {
            self.reset_full_bw(sample.bw);
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= FULL_BW_ROUNDS;
        self.full_bw_reached |= self.full_bw_now;
    }

    fn check_startup_done(&mut self, s: &Sock, rs: &RateSample) {
        self.check_startup_high_loss(s, rs);
        if self.state == State::Startup && self.full_bw_reached {
            self.state = State::Drain;
            self.drain_start_round = self.rounds;
        }
    }

    fn check_drain_done(&mut self, s: &Sock, now_us: u64) {
        if self.state == State::Drain
            && (s.in_flight() <= self.inflight(s, self.bw, UNIT)
                || self.rounds > self.drain_start_round + DRAIN_ROUNDS)
        {
            self.start_probe_bw_down(s, now_us);
        }
    }

    /// SetPacingRateWithGain: until the pipe is full, the rate only rises.
    fn set_pacing_rate(&mut self, s: &mut Sock, gain: u16) {
        if !self.seen_rtt && s.srtt != Duration::ZERO {
            self.init_pacing_rate(s);
        }
        let rate = bytes_per_second(s, self.bw, gain);
        if self.full_bw_reached || rate > s.pacing_rate {
            s.pacing_rate = rate;
        }
    }

    /// InitPacingRate: the initial window per round (1 ms while the RTT is unknown), with Startup's
    /// gain.
    fn init_pacing_rate(&mut self, s: &mut Sock) {
        let rtt_us = if s.srtt == Duration::ZERO {
            1_000
        } else {
            self.seen_rtt = true;
            (s.srtt / US).max(1)
        };
        let bw = (u64::from(s.cwnd) * BW_UNIT / rtt_us).min(u64::from(u32::MAX));
        s.pacing_rate = bytes_per_second(s, num::low_u32(bw), STARTUP_PACING_GAIN);
    }

    fn save_cwnd(&mut self, s: &Sock) {
        let known_good = s.state < CaState::Recovery && self.state != State::ProbeRtt;
        self.prior_cwnd = if known_good {
            s.cwnd
        } else {
            self.prior_cwnd.max(s.cwnd)
        };
    }

    fn restore_cwnd(&self, s: &mut Sock) {
        s.cwnd = s.cwnd.max(self.prior_cwnd);
    }

    /// SetCwnd, with UpdateMaxInflight and the bounds.
    fn set_cwnd(&mut self, s: &mut Sock, acked: u32) {
        let max_inflight = self.bdp(self.state.cwnd_gain()) + self.extra_acked.get();
        let max_inflight = self.quantization_budget(s, max_inflight);
        if self.full_bw_reached {
            s.cwnd = (s.cwnd + acked).min(max_inflight);
        } else if s.cwnd < max_inflight || s.delivered < u64::from(INIT_CWND) {
            s.cwnd += acked;
        }
        s.cwnd = s.cwnd.max(MIN_CWND);
        if self.state == State::ProbeRtt {
            s.cwnd = s.cwnd.min(self.probe_rtt_cwnd());
        }
        s.cwnd = s.cwnd.min(self.cwnd_bound());
    }

    /// BoundCwndForModel: the upper bound of the window in this state.
    fn cwnd_bound(&self) -> u32 {
        let longterm = match self.state {
            State::ProbeRtt | State::ProbeBwCruise => self.inflight_with_headroom(),
            state if state.is_probe_bw() => self.inflight_longterm,
            _ => INFINITE,
        };
        longterm.min(self.inflight_shortterm).max(MIN_CWND)
    }
}

impl Default for Bbr3 {
    fn default() -> Self {
        Self::new()
    }
}

/// The clock, µs.
#[inline]
fn clock(now: Instant) -> u64 {
    now.as_micros()
}

impl Ops for Bbr3 {
    fn init(&mut self, s: &mut Sock, now: Instant, seed: u64) {
        *self = Self::new();
        self.random = num::low_u32(seed ^ (seed >> 32));
        s.ssthresh = INFINITE_SSTHRESH;
        self.next_round_delivered = s.delivered;
        self.loss_round_delivered = s.delivered;
        self.lost = s.lost;
        if s.min_rtt != Duration::MAX {
            self.min_rtt_us = num::low_u32(s.min_rtt.as_micros());
            self.probe_rtt_min_us = self.min_rtt_us;
        }
        self.min_rtt_stamp_us = clock(now);
        self.probe_rtt_min_stamp_us = clock(now);
        self.extra_acked_start_us = clock(now);
        self.init_pacing_rate(s);
    }

    /// OnEnterFastRecovery, OnEnterRTO: there is no threshold, only state is saved to be restored.
    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        self.save_state(s);
        s.ssthresh
    }

    fn set_state(&mut self, s: &mut Sock, _now: Instant, new: CaState) {
        if new == CaState::Cwr {
            self.marked = true;
        }
        if s.state >= CaState::Recovery && new < CaState::Recovery {
            self.restore_cwnd(s);
        }
    }

    /// HandleRestartFromIdle: after idle time in ProbeBW, paces at the estimated bandwidth, without
    /// gain.
    fn event(&mut self, s: &mut Sock, now: Instant, e: Event) {
        if e != Event::TxStart || s.app_limited == 0 {
            return;
        }
        self.idle_restart = true;
        self.extra_acked_start_us = clock(now);
        self.extra_acked_delivered = 0;
        if self.state.is_probe_bw() {
            self.set_pacing_rate(s, UNIT);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(s, clock(now));
        }
    }

    /// UpdateOnACK: updates model, state, rate and window.
    fn cong_control(&mut self, s: &mut Sock, now: Instant, rs: &RateSample) {
        let now_us = clock(now);
        let valid = rs.delivered >= 0;
        let bw = match valid && rs.interval >= US {
            true => i64::from(rs.delivered).cast_unsigned() * BW_UNIT / (rs.interval / US),
            false => 0,
        };
        let sample = Sample {
            bw: num::low_u32(bw.min(u64::from(INFINITE - 1))),
            delivered: rs.delivered.max(0).cast_unsigned(),
            prior_delivered: rs.prior_delivered,
            valid,
        };
        self.check_losses(s, now_us, rs);
        self.update_latest_signals(s, &sample);
        self.update_max_bw(s, rs, &sample);
        self.update_congestion_signals(s);
        self.update_aggregation(s, now_us, rs.acked_sacked);
        self.check_full_bw(rs, &sample);
        self.check_startup_done(s, rs);
        self.check_drain_done(s, now_us);
        self.update_probe_bw(s, now_us, rs, &sample);
        self.update_min_rtt(now_us, rs);
        self.check_probe_rtt(s, now_us, rs);
        self.advance_latest_signals(&sample);
        self.bw = self.highest_bw().min(self.bw_shortterm);
        self.set_pacing_rate(s, self.state.pacing_gain());
        self.set_cwnd(s, rs.acked_sacked);
    }

    fn undo_cwnd(&mut self, s: &mut Sock) -> u32 {
        self.handle_spurious_loss(s);
        s.cwnd
    }
}

#[cfg(test)]
mod tests {
    use super::super::testpath::{Path, mean, rate};
    use super::super::{CongestionControl, Lost};
    use super::*;
    use quell_qdisc::time::{MS, SEC};

    fn path(mbit: u64, rtt: Duration) -> Path {
        Path::new(CongestionControl::Bbr3(Box::default()), rate(mbit), rtt)
    }

    fn bbr(p: &mut Path) -> &mut Bbr3 {
        match &mut p.cc {
            CongestionControl::Bbr3(b) => b,
            _ => unreachable!(),
        }
    }

    /// Runs until the state is this one; a failure after 20 s.
    #[track_caller]
    fn until(p: &mut Path, state: State) {
        let end = p.now + 20 * SEC;
        while bbr(p).state != state {
            assert!(p.now < end, "still {:?}", bbr(p).state);
            p.run_for(MS);
        }
    }

    #[test]
    fn gains_are_those_of_the_drafts_table() {
        // "Summary of Control Behavior in the State Machine": pacing 2.77, 0.5, 0.9, 1, 1, 1.25, 1;
        // window 2, 2.25, 0.5; here in 1/256.
        use State::*;
        let states = [
            (Startup, 709, 512),
            (Drain, 128, 512),
            (ProbeBwDown, 230, 512),
            (ProbeBwCruise, 256, 512),
            (ProbeBwRefill, 256, 512),
            (ProbeBwUp, 320, 576),
            (ProbeRtt, 256, 128),
        ];
        for (state, pacing, cwnd) in states {
            assert_eq!((state.pacing_gain(), state.cwnd_gain()), (pacing, cwnd));
        }
    }

    #[test]
    fn startup_ends_on_a_plateau_with_the_bandwidth_within_2_per_cent() {
        // "Exiting STARTUP on Bandwidth Plateau".
        let mut p = path(50, 40 * MS);
        until(&mut p, State::Drain);
        assert!(bbr(&mut p).full_bw_reached);
        let packets_per_s = u64::from(bbr(&mut p).highest_bw()) * 1_000_000 / BW_UNIT;
        let share = packets_per_s as f64 / rate(50) as f64;
        assert!((share - 1.0).abs() < 0.02, "{share}");
    }

    #[test]
    fn drain_ends_when_a_bdp_is_in_flight() {
        // "Exiting DRAIN Based on Inflight".
        let mut p = path(50, 40 * MS);
        until(&mut p, State::Drain);
        while bbr(&mut p).state == State::Drain {
            p.run_for(MS);
        }
        assert!(bbr(&mut p).state.is_probe_bw());
        // 50 Mbit/s in 40 ms are 167 packets.
        assert!(p.s.in_flight() <= 168, "{}", p.s.in_flight());
    }

    #[test]
    fn the_states_of_a_cycle_follow_one_another() {
        // "State Transition Diagram".
        let mut p = path(50, 40 * MS);
        use State::*;
        for state in [
            ProbeBwDown,
            ProbeBwCruise,
            ProbeBwRefill,
            ProbeBwUp,
            ProbeBwDown,
        ] {
            until(&mut p, state);
        }
    }

    #[test]
    fn between_probes_pass_two_to_three_seconds_or_as_many_rounds_as_reno_needs() {
        // PickProbeWait and IsRenoCoexistenceProbeTime: min(BDP, 63) rounds. 63 rounds of 100 ms
        // are longer than 3 s, 63 of 10 ms shorter.
        for (rtt, min_ms, max_ms) in [(100, 2000, 3300), (10, 400, 900)] {
            let mut p = path(50, rtt * MS);
            until(&mut p, State::ProbeBwUp);
            until(&mut p, State::ProbeBwDown);
            let began = p.now;
            bbr(&mut p).probe_rtt_min_stamp_us = clock(began); // no ProbeRTT in between
            until(&mut p, State::ProbeBwRefill);
            let ms = (p.now - began) / MS;
            assert!((min_ms..=max_ms).contains(&ms), "{rtt} ms: {ms}");
        }
    }

    #[test]
    fn a_tenfold_rate_is_found_in_a_few_probes() {
        // "Increasing Bandwidth 10x and Ensuring Full Bandwidth is Reached".
        let mut p = path(10, 40 * MS);
        p.run_for(5 * SEC);
        p.service = SEC / rate(100);
        p.run_for(8 * SEC);
        let before = p.s.delivered;
        p.run_for(2 * SEC);
        let share = (p.s.delivered - before) as f64 / (2 * rate(100)) as f64;
        assert!(share > 0.9, "{share}");
    }

    #[test]
    fn the_estimate_follows_a_tenfold_drop_after_two_cycles() {
        // "Decreasing Bandwidth 10x and Ensuring Max Bandwidth Adapts Down".
        let mut p = path(100, 40 * MS);
        p.run_for(5 * SEC);
        p.service = SEC / rate(10);
        p.run_for(20 * SEC);
        let packets_per_s = u64::from(bbr(&mut p).highest_bw()) * 1_000_000 / BW_UNIT;
        let share = packets_per_s as f64 / rate(10) as f64;
        assert!(share < 1.1, "{share}");
    }

    #[test]
    fn the_round_trip_is_probed_every_five_seconds_with_half_a_bdp() {
        // "Entering and Exiting PROBE_RTT": interval 5 s, 200 ms, half a BDP of 167 packets.
        let mut p = path(50, 40 * MS);
        until(&mut p, State::ProbeRtt);
        let began = p.now;
        assert!((began - Instant::from_secs(1)) / MS > 5000);
        p.run_for(150 * MS);
        assert!((70..=90).contains(&p.s.in_flight()), "{}", p.s.in_flight());
        until(&mut p, State::ProbeBwCruise);
        let ms = (p.now - began) / MS;
        assert!((200..400).contains(&ms), "{ms}");
        assert!((40_000..=40_300).contains(&bbr(&mut p).min_rtt_us));
    }

    #[test]
    fn in_steady_state_the_rate_is_the_links_and_the_queue_is_short() {
        let mut p = path(50, 40 * MS);
        p.run_for(3 * SEC);
        let before = p.s.delivered;
        let queue = mean(&mut p, 10 * SEC, |p| p.queue() as f64);
        let share = (p.s.delivered - before) as f64 / (10 * rate(50)) as f64;
        assert!(share > 0.95, "{share}");
        assert!(queue < 17.0, "{queue}"); // a tenth of the BDP
    }

    /// A flow in ProbeBW_UP, with this volume in flight, that detects losses above the limit.
    fn up_and_lost(inflight: u32, lost: u32) -> Path {
        let mut p = path(50, 40 * MS);
        until(&mut p, State::ProbeBwUp);
        p.run_for(60 * MS);
        p.s.lost += u64::from(lost);
        let rs = RateSample {
            too_much_lost: Some(Lost {
                inflight,
                lost,
                app_limited: false,
            }),
            delivered: -1,
            ..RateSample::default()
        };
        let (s, now) = (&mut p.s, p.now);
        p.cc.cong_control(s, now, &rs);
        p
    }

    #[test]
    fn a_probe_that_loses_too_much_ends_and_bounds_what_may_be_in_flight() {
        // HandleInflightTooHigh: max(tx_in_flight, 0.7 of the BDP); InflightAtLoss: of 200 with the
        // fifth lost, 199 + 0.
        let mut p = up_and_lost(200, 5);
        assert_eq!(bbr(&mut p).state, State::ProbeBwDown);
        assert_eq!(bbr(&mut p).inflight_longterm, 199);
        assert!(bbr(&mut p).prev_probe_too_high);
        // 15 % headroom while it cruises.
        assert_eq!(bbr(&mut p).inflight_with_headroom(), 170);
        let mut p = up_and_lost(20, 5);
        let least = bbr(&mut p).inflight_longterm;
        assert!((112..=120).contains(&least), "{least}"); // 0.7 * 167
    }

    #[test]
    fn after_a_lossy_probe_the_next_is_careful_and_the_one_after_it_full() {
        // "Precautionary Bandwidth Probing".
        let mut p = up_and_lost(175, 5);
        until(&mut p, State::ProbeBwUp);
        until(&mut p, State::ProbeBwDown);
        assert!(bbr(&mut p).prev_probe_precautionary);
        until(&mut p, State::ProbeBwRefill);
        assert!(!bbr(&mut p).prev_probe_too_high);
        until(&mut p, State::ProbeBwUp);
    }

    #[test]
    fn losses_between_probes_lower_the_short_term_bounds_by_30_per_cent_at_most_once_per_round() {
        // LossLowerBounds, Beta = 0.7.
        let mut b = Bbr3::new();
        let s = Sock::new(1448, 100);
        b.state = State::ProbeBwCruise;
        b.max_bw = [1000, 0];
        (b.bw_latest, b.inflight_latest) = (600, 80);
        b.is_loss_in_round = true;
        b.update_congestion_signals(&s);
        assert_eq!(b.bw_shortterm, INFINITE);
        b.loss_round_start = true;
        b.update_congestion_signals(&s);
        assert_eq!((b.bw_shortterm, b.inflight_shortterm), (700, 80));
        assert!(!b.is_loss_in_round);
        // A probe answers losses by its own rule.
        b.state = State::ProbeBwUp;
        b.is_loss_in_round = true;
        b.update_congestion_signals(&s);
        assert_eq!(b.bw_shortterm, 700);
    }

    #[test]
    fn a_spurious_loss_brings_the_probe_and_its_bounds_back() {
        // HandleSpuriousLossDetection.
        let mut p = up_and_lost(150, 4);
        assert_ne!(bbr(&mut p).inflight_longterm, INFINITE);
        let s = &mut p.s;
        p.cc.undo_cwnd(s);
        assert_eq!(bbr(&mut p).state, State::ProbeBwRefill);
        assert_eq!(bbr(&mut p).inflight_longterm, INFINITE);
    }

    #[test]
    fn a_mark_counts_as_a_loss_beyond_the_limit() {
        // "ECN": any CE mark must be treated as congestion.
        let mut p = path(50, 40 * MS);
        until(&mut p, State::ProbeBwUp);
        p.run_for(60 * MS);
        let s = &mut p.s;
        p.cc.set_state(s, p.now, CaState::Cwr);
        let rs = RateSample {
            tx_in_flight: 190,
            delivered: -1,
            ..RateSample::default()
        };
        p.cc.cong_control(s, p.now, &rs);
        assert_eq!(bbr(&mut p).state, State::ProbeBwDown);
        assert_eq!(bbr(&mut p).inflight_longterm, 190);
    }

    #[test]
    fn four_packets_are_the_least_window() {
        // "Correctly Managing Sub-Packet BDPs": MinPipeCwnd.
        let mut p = Path::new(CongestionControl::Bbr3(Box::default()), 50, MS);
        p.run_for(10 * SEC);
        let before = p.s.delivered;
        p.run_for(4 * SEC);
        assert!(p.s.cwnd >= MIN_CWND);
        let got = p.s.delivered - before;
        assert!((190..=200).contains(&got), "{got}");
    }
}
