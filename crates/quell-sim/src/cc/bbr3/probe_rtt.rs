//! The lowest RTT of ten seconds, and ProbeRTT, which halves the volume in flight every five
//! seconds to measure it.

use super::super::{RateSample, Sock};
use super::{Bbr3, MIN_CWND, State, UNIT};
use quell_qdisc::num;
use quell_qdisc::time::Duration;

/// MinRTTFilterLen, µs.
const WINDOW_US: u64 = 10_000_000;
/// ProbeRTTInterval, µs.
const INTERVAL_US: u64 = 5_000_000;
/// ProbeRTTDuration, µs.
const DURATION_US: u64 = 200_000;
/// ProbeRTTCwndGain: 0.5.
pub(super) const CWND_GAIN: u16 = UNIT / 2;

impl Bbr3 {
    /// UpdateMinRTT: takes a sample of the RTT, and checks whether a probe is due.
    pub(super) fn update_min_rtt(&mut self, now_us: u64, rs: &RateSample) {
        self.probe_rtt_expired = now_us > self.probe_rtt_min_stamp_us + INTERVAL_US;
        let rtt_us = num::low_u32(rs.rtt.as_micros());
        if rs.rtt > Duration::ZERO && (rtt_us < self.probe_rtt_min_us || self.probe_rtt_expired) {
            self.probe_rtt_min_us = rtt_us;
            self.probe_rtt_min_stamp_us = now_us;
        }
        let expired = now_us > self.min_rtt_stamp_us + WINDOW_US;
        if self.probe_rtt_min_us < self.min_rtt_us || expired {
            self.min_rtt_us = self.probe_rtt_min_us;
            self.min_rtt_stamp_us = self.probe_rtt_min_stamp_us;
        }
    }

    /// ProbeRTTCwnd: half a BDP, at least `MIN_CWND`.
    pub(super) fn probe_rtt_cwnd(&self) -> u32 {
        self.bdp(CWND_GAIN).max(MIN_CWND)
    }

    /// CheckProbeRTT: begins a probe if it is due, and continues one.
    pub(super) fn check_probe_rtt(&mut self, s: &mut Sock, now_us: u64, rs: &RateSample) {
        if self.state != State::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd(s);
            self.state = State::ProbeRtt;
            self.probe_rtt_done_us = 0;
            self.ack_phase = super::AckPhase::ProbeStopping;
            self.start_round(s);
        }
        if self.state == State::ProbeRtt {
            self.hold_probe_rtt(s, now_us);
        }
        if rs.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// HandleProbeRTT: ends the probe after 200 ms and a round with half a BDP in flight.
    fn hold_probe_rtt(&mut self, s: &mut Sock, now_us: u64) {
        // The low rates of this state must not count as bandwidth.
        s.app_limited = (s.delivered + u64::from(s.in_flight())).max(1);
        if self.probe_rtt_done_us == 0 {
            if s.in_flight() <= self.probe_rtt_cwnd() {
                self.probe_rtt_done_us = now_us + DURATION_US;
                self.probe_rtt_round_done = false;
                self.start_round(s);
            }
            return;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(s, now_us);
        }
    }

    /// CheckProbeRTTDone and ExitProbeRTT: after 200 ms, restores the window and leaves ProbeRTT.
    pub(super) fn check_probe_rtt_done(&mut self, s: &mut Sock, now_us: u64) {
        if self.probe_rtt_done_us == 0 || now_us <= self.probe_rtt_done_us {
            return;
        }
        self.probe_rtt_min_stamp_us = now_us;
        self.restore_cwnd(s);
        self.reset_short_term();
        if self.full_bw_reached {
            self.start_probe_bw_down(s, now_us);
            self.state = State::ProbeBwCruise;
        } else {
            self.state = State::Startup;
        }
    }
}
