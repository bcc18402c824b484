//! The states of a sender: Open, Disorder, CWR, Recovery, Loss (`tcp_fastretrans_alert` of Linux),
//! proportional rate reduction (RFC 6937), undo by D-SACK and timestamps (RFC 3708, RFC 4015),
//! F-RTO (RFC 5682).

use quell_qdisc::num;
use quell_qdisc::time::Instant;

use super::segments::{LOST, RETRANS, SACKED};
use super::state::{Flags, Rexmit, Sender, timestamp};
use crate::cc::{CaState, CongestionControl, Event, INFINITE_SSTHRESH};

/// `net.ipv4.tcp_max_reordering`: upper bound of `Sender::reordering`.
const MAX_REORDERING: u32 = 300;

impl Sender {
    /// `tcp_fastretrans_alert`: handles an ACK that is not plain progress.
    #[cold]
    pub(super) fn alert(
        &mut self,
        now: Instant,
        f: &mut Flags,
        cc: &mut CongestionControl,
    ) -> Rexmit {
        if self.rack.dsack_seen {
            self.update_reordering_window(f);
        }
        let dup = !f.acked && !f.dsack;
        if self.packets_out() == 0 {
            self.s.sacked_out = 0;
        }
        if f.ece {
            self.prior_ssthresh = 0;
        }
        if self.s.state == CaState::Open {
            self.retrans_stamp = Instant::ZERO;
        } else if self.s.una >= self.high_seq {
            match self.s.state {
                // CWR lasts until a segment above `high_seq` is acknowledged, so that the CWR flag
                // has reached the receiver.
                CaState::Cwr if self.s.una != self.high_seq => {
                    self.end_cwnd_reduction(now, cc);
                    self.set_state(now, CaState::Open, cc);
                }
                CaState::Recovery => {
                    self.reset_reno_sack();
                    if self.try_undo_recovery(now, f, cc) {
                        return Rexmit::None;
                    }
                    self.end_cwnd_reduction(now, cc);
                    self.recovery_ended();
                }
                _ => {}
            }
        }
        match self.s.state {
            CaState::Recovery => {
                if f.acked && self.try_undo_partial(now, f, cc) {
                    return Rexmit::None;
                }
                if self.try_undo_dsack(now, cc) {
                    self.try_to_open(now, f, cc);
                }
                self.identify_loss(now, f);
                if self.s.state != CaState::Recovery {
                    if self.s.lost_out == 0 {
                        return Rexmit::None;
                    }
                    self.enter_recovery(now, f.ece, cc);
                }
            }
            CaState::Loss => {
                let rexmit = self.process_loss(now, f, dup, cc);
                self.identify_loss(now, f);
                if self.s.state != CaState::Open && !f.lost_retrans {
                    return rexmit;
                }
                if self.s.state == CaState::Open {
                    self.reset_reno_sack();
                }
                if !self.recover_or_open(now, f, cc) {
                    return rexmit;
                }
            }
            _ => {
                if self.s.state <= CaState::Disorder {
                    self.try_undo_dsack(now, cc);
                }
                if !self.c.sack && f.acked {
                    self.reset_reno_sack();
                }
                self.identify_loss(now, f);
                if !self.recover_or_open(now, f, cc) {
                    return Rexmit::None;
                }
            }
        }
        Rexmit::Lost
    }

    /// Enters recovery if a segment is marked lost, and returns true; otherwise calls
    /// `try_to_open`.
    fn recover_or_open(&mut self, now: Instant, f: &Flags, cc: &mut CongestionControl) -> bool {
        if self.s.lost_out == 0 {
            self.try_to_open(now, f, cc);
            return false;
        }
        self.enter_recovery(now, f.ece, cc);
        true
    }

    /// `tcp_identify_packet_loss`: marks lost segments by RACK or, without SACK, by duplicate and
    /// partial ACKs.
    fn identify_loss(&mut self, now: Instant, f: &mut Flags) {
        if self.packets_out() == 0 {
            return;
        }
        if !self.c.sack {
            // RFC 6582: the third duplicate (more after reordering), or a partial ACK in recovery,
            // means that the first segment is lost.
            let partial = self.s.state == CaState::Recovery && f.acked;
            let third = self.s.state < CaState::Recovery && self.s.sacked_out >= self.reordering;
            if (partial || third) && self.segs.flags(self.s.una) & LOST == 0 {
                self.mark_lost(self.s.una);
            }
            return;
        }
        let retrans = self.s.retrans_out;
        if self.rack_mark_lost(now) {
            f.set_timer = false;
        }
        f.lost_retrans = retrans > self.s.retrans_out;
    }

    fn reset_reno_sack(&mut self) {
        if !self.c.sack {
            self.s.sacked_out = 0;
        }
    }

    /// `tcp_check_reno_reordering`: limits the number of duplicate ACKs to that of the segments in
    /// flight less the holes, at least one. More of them mean reordering.
    pub(super) fn limit_reno_sack(&mut self, acked: u32) {
        let out = self.packets_out();
        let holes = self.s.lost_out.max(1).min(out);
        if self.s.sacked_out + holes > out {
            self.s.sacked_out = out - holes;
            self.reordering = (out + acked).min(MAX_REORDERING);
        }
    }

    pub(super) fn set_state(&mut self, now: Instant, state: CaState, cc: &mut CongestionControl) {
        if self.s.state != state {
            cc.set_state(&mut self.s, now, state);
            self.s.state = state;
        }
    }

    /// `tcp_any_retrans_done`: whether a segment that may still be in flight was retransmitted.
    fn any_retrans(&self) -> bool {
        self.s.retrans_out > 0 || self.packets_out() > 0 && self.s.una < self.retrans_end
    }

    /// `tcp_try_keep_open`: sets Disorder while a segment is SACKed, lost or retransmitted,
    /// otherwise Open.
    pub(super) fn try_keep_open(&mut self, now: Instant, cc: &mut CongestionControl) {
        let left = self.s.sacked_out + self.s.lost_out;
        let state = if left > 0 || self.any_retrans() {
            CaState::Disorder
        } else {
            CaState::Open
        };
        if self.s.state != state {
            self.set_state(now, state, cc);
            self.high_seq = self.s.nxt;
        }
    }

    /// `tcp_try_to_open`: after an ACK without loss, enters CWR if the ACK reports marks; outside
    /// CWR, sets Open or Disorder.
    fn try_to_open(&mut self, now: Instant, f: &Flags, cc: &mut CongestionControl) {
        if !self.any_retrans() {
            self.retrans_stamp = Instant::ZERO;
        }
        if f.ece {
            self.enter_cwr(now, cc);
        }
        if self.s.state != CaState::Cwr {
            self.try_keep_open(now, cc);
        }
    }

    /// `tcp_enter_cwr`: one reduction per round of marks (RFC 3168, section 6.1.2).
    pub(super) fn enter_cwr(&mut self, now: Instant, cc: &mut CongestionControl) {
        self.prior_ssthresh = 0;
        if self.s.state < CaState::Cwr {
            self.undo_marker = None;
            self.init_cwnd_reduction(now, cc);
            self.set_state(now, CaState::Cwr, cc);
        }
    }

    fn current_ssthresh(&self) -> u32 {
        if matches!(self.s.state, CaState::Cwr | CaState::Recovery) {
            self.s.ssthresh
        } else {
            self.s.ssthresh.max((self.s.cwnd >> 1) + (self.s.cwnd >> 2))
        }
    }

    pub(super) fn enter_recovery(&mut self, now: Instant, ece: bool, cc: &mut CongestionControl) {
        self.prior_ssthresh = 0;
        self.init_undo();
        if !matches!(self.s.state, CaState::Cwr | CaState::Recovery) {
            if !ece {
                self.prior_ssthresh = self.current_ssthresh();
            }
            self.init_cwnd_reduction(now, cc);
        }
        self.set_state(now, CaState::Recovery, cc);
    }

    fn init_undo(&mut self) {
        self.undo_marker = Some(self.s.una);
        self.undo_retrans = if self.s.retrans_out > 0 {
            self.s.retrans_out.cast_signed()
        } else {
            -1
        };
    }

    pub(super) fn init_cwnd_reduction(&mut self, now: Instant, cc: &mut CongestionControl) {
        self.high_seq = self.s.nxt;
        self.tlp_high = 0;
        self.s.cwnd_cnt = 0;
        self.s.prior_cwnd = self.s.cwnd;
        self.prr_delivered = 0;
        self.prr_out = 0;
        self.s.ssthresh = cc.ssthresh(&mut self.s, now);
        self.cwr = true;
    }

    /// `tcp_cwnd_reduction`: proportional rate reduction, with the slow-start bound below the
    /// threshold.
    pub(super) fn cwnd_reduction(&mut self, delivered: u32, lost: u32, acked: bool) {
        if delivered == 0 || self.s.prior_cwnd == 0 {
            return;
        }
        let in_flight = self.s.in_flight();
        let delta = i64::from(self.s.ssthresh) - i64::from(in_flight);
        self.prr_delivered += delivered;
        let out = i64::from(self.prr_out);
        let mut send = if delta < 0 {
            let dividend = u64::from(self.s.ssthresh) * u64::from(self.prr_delivered)
                + u64::from(self.s.prior_cwnd)
                - 1;
            (dividend / u64::from(self.s.prior_cwnd)).cast_signed() - out
        } else {
            let mut bound = (i64::from(self.prr_delivered) - out).max(i64::from(delivered));
            if acked && lost == 0 {
                bound += 1;
            }
            bound.min(delta)
        };
        send = send.max(i64::from(self.prr_out == 0)); // the first retransmission always leaves
        self.s.cwnd = num::low_u32((i64::from(in_flight) + send).max(1).cast_unsigned());
    }

    pub(super) fn end_cwnd_reduction(&mut self, now: Instant, cc: &mut CongestionControl) {
        if cc.full_control() {
            return;
        }
        if self.s.ssthresh < INFINITE_SSTHRESH
            && (self.s.state == CaState::Cwr || self.undo_marker.is_some())
        {
            self.s.cwnd = self.s.ssthresh;
        }
        cc.event(&mut self.s, now, Event::CompleteCwr);
    }

    /// `tcp_packet_delayed`: the ACK echoes a timestamp from before the first retransmission.
    fn packet_delayed(&self, f: &Flags) -> bool {
        self.retrans_stamp != Instant::ZERO
            && f.tsecr != 0
            && f.tsecr < timestamp(self.retrans_stamp)
    }

    fn may_undo(&self, f: &Flags) -> bool {
        self.undo_marker.is_some() && (self.undo_retrans == 0 || self.packet_delayed(f))
    }

    fn undo_cwnd_reduction(&mut self, unmark: bool, cc: &mut CongestionControl) {
        if unmark {
            for seq in self.s.una..self.s.nxt {
                let flags = self.segs.flags(seq);
                self.segs.set_flags(seq, flags & !LOST);
            }
            self.s.lost_out = 0;
            self.rack.restart(self.s.una);
        }
        if self.prior_ssthresh != 0 {
            self.s.cwnd = cc.undo_cwnd(&mut self.s);
            if self.prior_ssthresh > self.s.ssthresh {
                self.s.ssthresh = self.prior_ssthresh;
                self.cwr = false;
            }
        }
        self.undo_marker = None;
    }

    fn try_undo_recovery(&mut self, now: Instant, f: &Flags, cc: &mut CongestionControl) -> bool {
        if self.may_undo(f) {
            self.undo_cwnd_reduction(false, cc);
        }
        if self.s.una == self.high_seq && !self.c.sack {
            // Without SACK, duplicates of this recovery must not start another (RFC 6582, section
            // 3.2).
            if !self.any_retrans() {
                self.retrans_stamp = Instant::ZERO;
            }
            return true;
        }
        self.set_state(now, CaState::Open, cc);
        false
    }

    fn try_undo_dsack(&mut self, _now: Instant, cc: &mut CongestionControl) -> bool {
        let undo = self.undo_marker.is_some() && self.undo_retrans == 0;
        if undo {
            self.undo_cwnd_reduction(false, cc);
        }
        undo
    }

    /// `tcp_try_undo_partial`: if a partial ACK shows that the original segment was only delayed,
    /// undoes the reduction of the window. Returns true if that must wait for a retransmission in
    /// flight.
    fn try_undo_partial(&mut self, now: Instant, f: &Flags, cc: &mut CongestionControl) -> bool {
        if self.undo_marker.is_none() || !self.packet_delayed(f) {
            return false;
        }
        if !self.c.sack && self.s.sacked_out > 0 {
            let metric = num::low_u32((self.s.nxt - f.prior_una).min(MAX_REORDERING.into()));
            self.reordering = self.reordering.max(metric); // `tcp_check_sack_reordering`
        }
        if self.s.retrans_out > 0 {
            return true;
        }
        if !self.any_retrans() {
            self.retrans_stamp = Instant::ZERO;
        }
        self.undo_cwnd_reduction(true, cc);
        self.try_keep_open(now, cc);
        false
    }

    fn try_undo_loss(
        &mut self,
        now: Instant,
        frto: bool,
        f: &Flags,
        cc: &mut CongestionControl,
    ) -> bool {
        if !frto && !self.may_undo(f) {
            return false;
        }
        self.undo_cwnd_reduction(true, cc);
        self.timeouts = 0;
        if frto || self.c.sack {
            self.set_state(now, CaState::Open, cc);
        }
        true
    }

    /// `tcp_process_loss`: handles an ACK in the state Loss, with F-RTO (RFC 5682, section 3.1),
    /// which Linux also does without SACK.
    fn process_loss(
        &mut self,
        now: Instant,
        f: &Flags,
        dup: bool,
        cc: &mut CongestionControl,
    ) -> Rexmit {
        let recovered = self.s.una >= self.high_seq;
        if f.acked && self.try_undo_loss(now, false, f, cc) {
            return Rexmit::None;
        }
        if self.frto {
            // Step 3.b: data that were sent once arrived, so the timeout was spurious.
            if f.orig_sacked && self.try_undo_loss(now, true, f, cc) {
                return Rexmit::None;
            }
            if self.s.nxt > self.high_seq {
                if f.sacked || dup {
                    self.frto = false; // step 3.a: the loss was real
                }
            } else if f.acked && !recovered {
                self.high_seq = self.s.nxt;
                if self.has_new_data(now) {
                    return Rexmit::New; // step 2.b
                }
                self.frto = false;
            }
        }
        if recovered {
            self.reset_reno_sack();
            self.try_undo_recovery(now, f, cc);
            return Rexmit::None;
        }
        if !self.c.sack && f.acked {
            self.reset_reno_sack();
        }
        Rexmit::Lost
    }

    /// `tcp_enter_loss`: handles the start of a retransmission timeout: marks segments as lost and
    /// reduces the window to what is in flight and one segment.
    pub(super) fn enter_loss(&mut self, now: Instant, cc: &mut CongestionControl) {
        let fresh = self.s.state < CaState::Recovery;
        self.reset_reno_sack();
        for seq in self.s.una..self.s.nxt {
            let recent = self.c.sack && seq != self.s.una && self.sent_recently(now, seq);
            if self.segs.flags(seq) & SACKED == 0 && !recent {
                self.mark_lost(seq);
            }
        }
        self.rack.restart(self.s.una);
        if self.s.state <= CaState::Disorder
            || self.high_seq <= self.s.una
            || self.s.state == CaState::Loss && self.timeouts == 0
        {
            self.prior_ssthresh = self.current_ssthresh();
            self.s.prior_cwnd = self.s.cwnd;
            self.s.ssthresh = cc.ssthresh(&mut self.s, now);
            cc.event(&mut self.s, now, Event::Loss);
            self.init_undo();
        }
        self.s.cwnd = self.s.in_flight() + 1;
        self.s.cwnd_cnt = 0;
        self.set_state(now, CaState::Loss, cc);
        self.high_seq = self.s.nxt;
        self.tlp_high = 0;
        self.cwr = true;
        self.frto = fresh || self.timeouts > 0;
    }

    /// `tcp_process_tlp_ack`: handles an ACK after a tail loss probe (RFC 8985, section 7.4.2).
    pub(super) fn process_tlp_ack(
        &mut self,
        now: Instant,
        ack: u64,
        f: &Flags,
        cc: &mut CongestionControl,
    ) {
        if ack < self.tlp_high {
            return;
        }
        if !self.tlp_retrans || f.dsack_tlp {
            self.tlp_high = 0;
        } else if ack > self.tlp_high {
            // The probe repaired a loss: reduce the window as after a loss.
            self.init_cwnd_reduction(now, cc);
            self.set_state(now, CaState::Cwr, cc);
            self.end_cwnd_reduction(now, cc);
            self.try_keep_open(now, cc);
        } else if !f.acked && !f.sacked {
            self.tlp_high = 0;
        }
    }

    /// Before a segment is retransmitted, removes the mark that an earlier copy is in flight.
    pub(super) fn forget_copy(&mut self, seq: u64) {
        let flags = self.segs.flags(seq);
        if flags & RETRANS != 0 {
            self.segs.set_flags(seq, flags & !RETRANS);
            self.s.retrans_out -= 1;
        }
    }
}
