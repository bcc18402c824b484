//! ProbeBW: down until the queue is empty, cruise, refill the pipe for a round, then up until rate
//! or losses show that it is full.

use quell_qdisc::num;

use super::super::{RateSample, Sock};
use super::{Bbr3, INFINITE, MIN_CWND, Sample, State, UNIT};

/// Headroom, per cent of the long-term volume, left to others.
const HEADROOM_PERCENT: u32 = 15;
/// Maximum number of rounds between probes, for coexistence with Reno ("Time Scale for Bandwidth
/// Probing").
const MAX_ROUNDS: u32 = 63;
/// Time between probes, µs: 2 s plus a random time of up to 1 s.
const MIN_WAIT_US: u64 = 2_000_000;
const WAIT_SPREAD_US: u64 = 1_000_000;
/// Growth of the long-term volume doubles each round up to 2^30.
const MAX_DOUBLINGS: u8 = 30;

/// Phase of a probe to which incoming ACKs belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

impl Bbr3 {
    pub(super) fn start_probe_bw_down(&mut self, s: &Sock, now_us: u64) {
        self.reset_congestion_signals();
        self.probe_up_acked_per_inc = INFINITE;
        self.pick_probe_wait();
        self.cycle_stamp_us = now_us;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round(s);
        self.state = State::ProbeBwDown;
    }

    pub(super) fn start_probe_bw_refill(&mut self, s: &Sock) {
        self.reset_short_term();
        self.bw_probe_up_rounds = 0;
        self.bw_probe_up_acked = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round(s);
        self.state = State::ProbeBwRefill;
    }

    fn start_probe_bw_up(&mut self, s: &Sock, sample: &Sample) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round(s);
        self.reset_full_bw(sample.bw);
        self.state = State::ProbeBwUp;
        self.raise_slope(s);
    }

    /// PickProbeWait: draws the time to the next probe.
    fn pick_probe_wait(&mut self) {
        // Numerical Recipes' generator is random enough to separate the probes of flows.
        let draw = |random: u32| random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random = draw(self.random);
        self.rounds_since_probe_up = self.random >> 31;
        self.random = draw(self.random);
        self.probe_wait_us = MIN_WAIT_US + ((u64::from(self.random) * WAIT_SPREAD_US) >> 32);
    }

    /// UpdateProbeBWCyclePhase: changes to the next state of the cycle if it is time.
    pub(super) fn update_probe_bw(
        &mut self,
        s: &Sock,
        now_us: u64,
        rs: &RateSample,
        sample: &Sample,
    ) {
        if !self.full_bw_reached || self.adapt_long_term(s, rs) {
            return;
        }
        match self.state {
            State::ProbeBwDown => {
                if !self.probe_if_due(s, now_us) && self.is_time_to_cruise(s) {
                    self.state = State::ProbeBwCruise;
                }
            }
            State::ProbeBwCruise => {
                self.probe_if_due(s, now_us);
            }
            State::ProbeBwRefill => {
                if self.round_start {
                    self.is_bw_probe_sample = true;
                    self.start_probe_bw_up(s, sample);
                }
            }
            State::ProbeBwUp => {
                if self.is_time_to_go_down(s, rs, sample) {
                    self.prev_probe_too_high = false;
                    self.start_probe_bw_down(s, now_us);
                }
            }
            State::Startup | State::Drain | State::ProbeRtt => {}
        }
    }

    /// IsTimeToProbeBW: starts a probe if the wait is over, or if as many rounds have passed as
    /// Reno would need to grow by as much as a probe.
    fn probe_if_due(&mut self, s: &Sock, now_us: u64) -> bool {
        let rounds = self.target_inflight(s).min(MAX_ROUNDS);
        let due = now_us > self.cycle_stamp_us + self.probe_wait_us
            || self.rounds_since_probe_up >= rounds;
        if due {
            self.start_probe_bw_refill(s);
        }
        due
    }

    fn is_time_to_cruise(&self, s: &Sock) -> bool {
        let inflight = s.in_flight();
        inflight <= self.inflight_with_headroom()
            && inflight <= self.inflight(s, self.highest_bw(), UNIT)
    }

    fn is_time_to_go_down(&mut self, s: &Sock, rs: &RateSample, sample: &Sample) -> bool {
        // Precautionary: the last probe lost too much at this volume. The volume in flight before
        // the ACK is compared: after the ACK it is always smaller.
        if self.prev_probe_too_high && rs.prior_in_flight >= self.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if s.cwnd_limited && s.cwnd >= self.inflight_longterm {
            // The volume limits the rate, so a plateau of the rate means nothing.
            self.reset_full_bw(sample.bw);
            return false;
        }
        self.full_bw_now
    }

    /// InflightWithHeadroom: the long-term volume less the headroom.
    pub(super) fn inflight_with_headroom(&self) -> u32 {
        if self.inflight_longterm == INFINITE {
            return INFINITE;
        }
        let share = u64::from(self.inflight_longterm) * u64::from(HEADROOM_PERCENT) / 100;
        let headroom = num::low_u32(share).max(1);
        self.inflight_longterm
            .saturating_sub(headroom)
            .max(MIN_CWND)
    }

    /// RaiseInflightLongtermSlope: doubles the growth per round of the long-term volume.
    fn raise_slope(&mut self, s: &Sock) {
        let growth = 1u32 << self.bw_probe_up_rounds;
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(MAX_DOUBLINGS);
        self.probe_up_acked_per_inc = (s.cwnd / growth).max(1);
    }

    /// ProbeInflightLongtermUpward: raises the bound by 1, 2, 4 ... packets in successive rounds.
    fn raise_long_term(&mut self, s: &Sock, acked: u32) {
        if !s.cwnd_limited || s.cwnd < self.inflight_longterm {
            return;
        }
        self.bw_probe_up_acked += acked;
        let delta = self.bw_probe_up_acked / self.probe_up_acked_per_inc;
        self.bw_probe_up_acked -= delta * self.probe_up_acked_per_inc;
        self.inflight_longterm = self.inflight_longterm.saturating_add(delta);
        if self.round_start {
            self.raise_slope(s);
        }
    }

    /// AdaptLongTermModel: evaluates the ACKs of a probe, and raises the long-term volume if few
    /// packets are lost. Returns true if it has changed the state.
    fn adapt_long_term(&mut self, s: &Sock, rs: &RateSample) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.round_start {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() && !rs.app_limited {
                self.advance_max_bw();
            }
            // The precautionary probe lost little: a full one follows at once.
            if self.state.is_probe_bw()
                && self.prev_probe_precautionary
                && !self.prev_probe_too_high
            {
                self.start_probe_bw_refill(s);
                return true;
            }
        }
        if !Self::is_inflight_too_high(rs) && self.inflight_longterm != INFINITE {
            self.inflight_longterm = self.inflight_longterm.max(rs.tx_in_flight);
            if self.state == State::ProbeBwUp {
                self.raise_long_term(s, rs.acked_sacked);
            }
        }
        false
    }
}
