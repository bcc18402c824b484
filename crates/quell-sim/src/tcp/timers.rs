//! The sender's one timer: retransmission timeout (RFC 6298), tail loss probe (RFC 8985, section 7)
//! and RACK's reordering window (`tcp_timer.c` of Linux). Pacing and the application have times of
//! their own.

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, NEVER};

use super::rtt::{INITIAL_RTO, MAX_RTO};
use super::segments::{RETRANS, SACKED};
use super::state::{Egress, Sender, Timer};
use crate::cc::{CaState, CongestionControl};

/// `TCP_TIMEOUT_MIN`: two jiffies.
pub(super) const TIMEOUT_MIN: Duration = Duration::from_millis(2);

impl Sender {
    /// Time at which to call `on_timer`.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.timer_at.min(self.pace_at).min(self.offer_at)
    }

    #[inline]
    pub(super) fn set_timer(&mut self, kind: Timer, at: Instant) {
        self.timer = kind;
        self.timer_at = at;
    }

    /// RTO with exponential backoff (RFC 6298, section 5.5).
    pub(super) fn rto(&self) -> Duration {
        (self.rtt.rto * (1 << self.backoff.min(16))).min(MAX_RTO)
    }

    /// Whether a segment was last sent less than a smoothed RTT ago.
    pub(super) fn sent_recently(&self, now: Instant, seq: u64) -> bool {
        self.s.srtt > Duration::ZERO && self.segs.sent(seq) + self.s.srtt > now
    }

    /// `tcp_rearm_rto`: after a probe or reordering timer, the RTO counts from the transmission of
    /// the first unacknowledged segment.
    pub(super) fn rearm_rto(&mut self, now: Instant) {
        if self.packets_out() == 0 {
            self.set_timer(Timer::None, NEVER);
            return;
        }
        let mut at = now + self.rto();
        if matches!(self.timer, Timer::Probe | Timer::Reorder) {
            at = (self.segs.sent(self.s.una) + self.rto()).max(now + TIMEOUT_MIN / 2);
        }
        self.set_timer(Timer::Rto, at);
    }

    /// `tcp_set_xmit_timer`: sets the timer to a tail loss probe if one may be sent, else to the
    /// RTO.
    #[inline]
    pub(super) fn set_xmit_timer(&mut self, now: Instant) {
        if !self.schedule_probe(now, true) {
            self.rearm_rto(now);
        }
    }

    /// `tcp_schedule_loss_probe` (RFC 8985, section 7.2): sets the timer to a tail loss probe.
    /// Returns false without effect if none may be sent. `advancing`: the RTO, which limits the
    /// timer, counts from now, not from the departure of the first unacknowledged segment.
    #[inline]
    pub(super) fn schedule_probe(&mut self, now: Instant, advancing: bool) -> bool {
        let out = self.packets_out();
        if !self.c.sack
            || out == 0
            || !matches!(self.s.state, CaState::Open | CaState::Cwr)
            || self.s.sacked_out > 0
        {
            return false;
        }
        let mut timeout = if self.s.srtt > Duration::ZERO {
            2 * self.s.srtt
                + if out == 1 {
                    self.rtt.min_rto()
                } else {
                    TIMEOUT_MIN
                }
        } else {
            INITIAL_RTO
        };
        let rto = if advancing {
            self.rtt.rto
        } else {
            (self.segs.sent(self.s.una) + self.rtt.rto).saturating_since(now)
        };
        if !rto.is_zero() {
            timeout = timeout.min(rto);
        }
        self.set_timer(Timer::Probe, now + timeout);
        true
    }

    /// Handles a deadline.
    pub fn on_timer<E: Egress>(
        &mut self,
        now: Instant,
        cc: &mut CongestionControl,
        egress: &mut E,
    ) {
        if self.offer_at <= now {
            self.offer_at = NEVER;
            self.write_xmit(now, cc, egress, false);
        }
        if self.pace_at <= now {
            self.pace_at = NEVER;
            if self.s.lost_out > self.s.retrans_out {
                self.retransmit_lost(now, egress);
            }
            if self.pace_at == NEVER {
                self.write_xmit(now, cc, egress, false);
            }
        }
        if self.timer_at > now {
            return;
        }
        self.timer_at = NEVER;
        match self.timer {
            Timer::None => {}
            _ if !self.connected => {
                self.backoff += 1;
                self.send_syn(now, egress);
            }
            Timer::Rto => self.on_rto(now, cc, egress),
            Timer::Probe => self.on_probe_timer(now, cc, egress),
            Timer::Reorder => {
                let lost = self.s.lost;
                if self.on_reorder_timer(now) {
                    if self.s.state != CaState::Recovery {
                        self.enter_recovery(now, false, cc);
                        if !cc.full_control() {
                            self.cwnd_reduction(1, num::low_u32(self.s.lost - lost), false);
                        }
                    }
                    self.retransmit_lost(now, egress);
                }
                if self.timer_at == NEVER {
                    self.rearm_rto(now);
                }
            }
        }
    }

    /// `tcp_retransmit_timer`: handles a retransmission timeout.
    fn on_rto<E: Egress>(&mut self, now: Instant, cc: &mut CongestionControl, egress: &mut E) {
        if self.packets_out() == 0 {
            return;
        }
        self.enter_loss(now, cc);
        self.timeouts = self.timeouts.saturating_add(1);
        self.forget_copy(self.s.una);
        self.retransmit(now, self.s.una, self.c.pacing, egress);
        self.backoff = self.backoff.saturating_add(1);
        self.set_timer(Timer::Rto, now + self.rto());
    }

    /// `tcp_send_loss_probe` (RFC 8985, section 7.3): sends new data if there are any, else the
    /// last segment again.
    fn on_probe_timer<E: Egress>(
        &mut self,
        now: Instant,
        cc: &mut CongestionControl,
        egress: &mut E,
    ) {
        if self.tlp_high == 0 && self.packets_out() > 0 {
            self.tlp_retrans = false;
            let nxt = self.s.nxt;
            if self.has_new_data(now) {
                self.write_xmit(now, cc, egress, true);
            } else if self.segs.flags(nxt - 1) & (SACKED | RETRANS) == 0 {
                self.send_again(now, nxt - 1, self.c.pacing, egress);
                self.tlp_retrans = true;
            }
            if self.s.nxt > nxt || self.tlp_retrans {
                self.tlp_high = self.s.nxt;
                self.timer = Timer::None; // the RTO counts from now
            }
        }
        self.rearm_rto(now);
    }
}
