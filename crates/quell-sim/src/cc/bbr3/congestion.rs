//! "Updating the Model Upon Packet Loss": long-term bounds from probes that sent too much,
//! short-term bounds from losses between probes.

use quell_qdisc::num;

use super::super::{CaState, RateSample, Sock};
use super::{Bbr3, INFINITE, Sample, State, UNIT};

/// LossThresh: per cent of the volume in flight that may be lost in a round.
pub const LOSS_PERCENT: u64 = 2;
/// Beta, per cent.
const BETA_PERCENT: u64 = 70;
/// Number of ACKs that report losses, in a round of recovery, at which Startup ends
/// (StartupFullLossCnt).
const STARTUP_LOSS_EVENTS: u8 = 6;

/// State to be restored if losses prove spurious.
#[derive(Clone, Debug)]
pub(super) struct Undo {
    state: Option<State>,
    bw_shortterm: u32,
    inflight_shortterm: u32,
    inflight_longterm: u32,
}

impl Default for Undo {
    /// "Initialization" has zeros: nothing to restore.
    fn default() -> Self {
        Self {
            state: None,
            bw_shortterm: 0,
            inflight_shortterm: 0,
            inflight_longterm: 0,
        }
    }
}

/// Beta times `x`.
fn beta(x: u32) -> u32 {
    num::low_u32(u64::from(x) * BETA_PERCENT / 100)
}

/// InflightAtLoss: the volume in flight when losses exceeded the limit, given a lost packet:
/// `inflight` packets were in flight when it was sent, and `lost` have been lost since then, both
/// including it.
fn inflight_at_loss(inflight: u32, lost: u32) -> u32 {
    let before = u64::from(inflight.saturating_sub(1));
    let lost_before = u64::from(lost.saturating_sub(1));
    let budget = (LOSS_PERCENT * before).saturating_sub(100 * lost_before);
    num::low_u32(before + budget / (100 - LOSS_PERCENT))
}

impl Bbr3 {
    /// SaveStateUponLoss: saves what is restored if losses prove spurious.
    pub(super) fn save_state(&mut self, s: &Sock) {
        self.save_cwnd(s);
        self.undo = Undo {
            state: None,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        };
    }

    /// NoteLoss and HandleLostPacket for all packets marked lost since the last ACK; a CE mark
    /// counts as a loss above the limit.
    pub(super) fn check_losses(&mut self, s: &mut Sock, now_us: u64, rs: &RateSample) {
        let marked = std::mem::take(&mut self.marked);
        let lost = s.lost != self.lost;
        self.lost = s.lost;
        if !lost && !marked {
            return;
        }
        self.loss_events = self.loss_events.saturating_add(1);
        if !self.is_loss_in_round {
            self.loss_round_delivered = s.delivered;
            self.save_state(s);
        }
        self.is_loss_in_round = true;
        if !self.is_bw_probe_sample {
            return;
        }
        if let Some(p) = rs.too_much_lost {
            let inflight = inflight_at_loss(p.inflight, p.lost);
            self.handle_inflight_too_high(s, now_us, inflight, p.app_limited);
        } else if marked {
            self.handle_inflight_too_high(s, now_us, rs.tx_in_flight, rs.app_limited);
        }
    }

    /// HandleInflightTooHigh: sets the long-term bound when a probe has lost too much, and ends the
    /// probe.
    fn handle_inflight_too_high(
        &mut self,
        s: &mut Sock,
        now_us: u64,
        inflight: u32,
        app_limited: bool,
    ) {
        self.prev_probe_too_high = true;
        self.is_bw_probe_sample = false;
        if !app_limited {
            self.inflight_longterm = inflight.max(beta(self.target_inflight(s)));
        }
        if self.state == State::ProbeBwUp {
            self.undo.state = Some(State::ProbeBwUp);
            self.start_probe_bw_down(s, now_us);
        }
    }

    /// IsInflightTooHigh: whether more than LossThresh of the packets in flight with the packet of
    /// the ACK's sample are lost.
    pub(super) fn is_inflight_too_high(rs: &RateSample) -> bool {
        u64::from(rs.lost) * 100 > u64::from(rs.tx_in_flight) * LOSS_PERCENT
    }

    /// CheckStartupHighLoss ("Exiting Startup Based on Packet Loss"): ends Startup after a round of
    /// recovery with too many losses.
    pub(super) fn check_startup_high_loss(&mut self, s: &Sock, rs: &RateSample) {
        if !self.loss_round_start {
            return;
        }
        let events = std::mem::take(&mut self.loss_events);
        if self.full_bw_reached
            || s.state != CaState::Recovery
            || events < STARTUP_LOSS_EVENTS
            || !Self::is_inflight_too_high(rs)
        {
            return;
        }
        self.undo.state = Some(State::Startup);
        self.full_bw_reached = true;
        self.full_bw_now = true;
        self.inflight_longterm = self.bdp(UNIT).max(self.inflight_latest);
    }

    /// UpdateLatestDeliverySignals: notes the highest bandwidth and volume delivered in this round
    /// of loss detection.
    pub(super) fn update_latest_signals(&mut self, s: &Sock, sample: &Sample) {
        self.bw_latest = self.bw_latest.max(sample.bw);
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        self.loss_round_start = sample.valid && sample.prior_delivered >= self.loss_round_delivered;
        if self.loss_round_start {
            self.loss_round_delivered = s.delivered;
        }
    }

    /// AdvanceLatestDeliverySignals: in a new round, starts the maxima of the round again with this
    /// sample.
    pub(super) fn advance_latest_signals(&mut self, sample: &Sample) {
        if self.loss_round_start {
            self.bw_latest = sample.bw;
            self.inflight_latest = sample.delivered;
        }
    }

    /// ResetCongestionSignals: discards the losses and the maxima of the round.
    pub(super) fn reset_congestion_signals(&mut self) {
        self.is_loss_in_round = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
    }

    /// UpdateCongestionSignals without UpdateMaxBw: unless a probe is in progress, lowers the
    /// short-term bounds once per round with losses, by at most 30 %.
    pub(super) fn update_congestion_signals(&mut self, s: &Sock) {
        if !self.loss_round_start {
            return;
        }
        if self.is_loss_in_round && !self.state.accelerates() {
            if self.bw_shortterm == INFINITE {
                self.bw_shortterm = self.highest_bw();
            }
            if self.inflight_shortterm == INFINITE {
                self.inflight_shortterm = s.cwnd;
            }
            self.bw_shortterm = self.bw_latest.max(beta(self.bw_shortterm));
            self.inflight_shortterm = self.inflight_latest.max(beta(self.inflight_shortterm));
        }
        self.is_loss_in_round = false;
    }

    /// ResetShortTermModel: removes the short-term bounds.
    pub(super) fn reset_short_term(&mut self) {
        self.bw_shortterm = INFINITE;
        self.inflight_shortterm = INFINITE;
    }

    /// HandleSpuriousLossDetection: restores the window, the bounds and the state before losses
    /// that proved spurious.
    pub(super) fn handle_spurious_loss(&mut self, s: &mut Sock) {
        self.restore_cwnd(s);
        self.is_loss_in_round = false;
        self.reset_full_bw(0);
        self.bw_shortterm = self.bw_shortterm.max(self.undo.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(self.undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(self.undo.inflight_longterm);
        match self.undo.state.take() {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_bw_reached = false;
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::ProbeBwUp) if !matches!(self.state, State::ProbeBwUp | State::ProbeRtt) => {
                self.start_probe_bw_refill(s);
            }
            _ => {}
        }
    }
}
