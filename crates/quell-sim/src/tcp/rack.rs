//! RACK: a segment is lost if one sent sufficiently later arrived (RFC 8985, section 6.2; Linux
//! `tcp_recovery.c`).
//!
//! In the scoreboard, segments that were sent once are in order of sending. Retransmissions are
//! also in a queue of their own (`Sender::retrans_queue`).

use super::segments::{EVER, LOST, RETRANS, SACKED};
use super::state::{Flags, Sender, Timer};
use super::timers::TIMEOUT_MIN;
use crate::cc::CaState;
use quell_qdisc::time::{Duration, Instant};

/// `TCP_RACK_RECOVERY_THRESH`: number of recoveries for which a widened window lasts.
const PERSIST: u8 = 16;

impl Sender {
    /// `tcp_rack_reo_wnd`: time that a segment may arrive late before it counts as lost; 0 once
    /// three segments were SACKed or recovery began.
    fn reordering_window(&self) -> Duration {
        if self.s.state >= CaState::Recovery || self.s.sacked_out >= 3 {
            return Duration::ZERO;
        }
        (self.s.min_rtt / 4 * u64::from(self.rack.steps)).min(self.s.srtt)
    }

    /// `tcp_rack_update_reo_wnd`: a D-SACK widens the window by a quarter of the lowest RTT, once a
    /// round.
    pub(super) fn update_reordering_window(&mut self, f: &Flags) {
        let r = &mut self.rack;
        if f.prior_una < r.round {
            r.dsack_seen = false;
        }
        if r.dsack_seen {
            r.steps = r.steps.saturating_add(1);
            r.dsack_seen = false;
            r.round = self.s.nxt;
            r.persist = PERSIST;
        } else if r.persist == 0 {
            r.steps = 1;
        }
    }

    /// Counts a recovery that has ended, of the `PERSIST` for which a widened window lasts.
    pub(super) fn recovery_ended(&mut self) {
        self.rack.persist = self.rack.persist.saturating_sub(1);
    }

    /// `tcp_rack_mark_lost`: marks lost segments, and sets the reordering timer for those that may
    /// be lost. Returns whether it set the timer.
    pub(super) fn rack_mark_lost(&mut self, now: Instant) -> bool {
        let wait = self.rack_detect(now);
        if wait > Duration::ZERO {
            self.set_timer(Timer::Reorder, now + wait + TIMEOUT_MIN);
        }
        wait > Duration::ZERO
    }

    /// `tcp_rack_detect_loss`: marks the segments that count as lost by now. Returns the longest
    /// time until a suspected segment counts as lost; 0: no segment is suspected.
    fn rack_detect(&mut self, now: Instant) -> Duration {
        let window = self.reordering_window();
        let deadline = self.rack.rtt + window;
        let mut wait = Duration::ZERO;
        let mut seq = self.rack.edge.max(self.s.una);
        let mut settled = true;
        while seq < self.s.nxt {
            let flags = self.segs.flags(seq);
            if flags & (SACKED | LOST | RETRANS | EVER) == 0 {
                let sent = self.segs.sent(seq);
                if !self.rack.sent_after(sent, seq + 1) {
                    break;
                }
                if sent + deadline <= now {
                    self.mark_lost(seq);
                } else {
                    wait = wait.max(sent + deadline - now);
                    settled = false;
                }
            }
            seq += 1;
            if settled {
                self.rack.edge = seq;
            }
        }
        while let Some(&(seq, sent)) = self.retrans_queue.front() {
            let live = seq >= self.s.una
                && self.segs.sent(seq) == sent
                && self.segs.flags(seq) & SACKED == 0
                && self.segs.flags(seq) & (LOST | RETRANS) != LOST;
            if live {
                if !self.rack.sent_after(sent, seq + 1) {
                    break;
                }
                if sent + deadline > now {
                    wait = wait.max(sent + deadline - now);
                    break;
                }
                self.mark_lost(seq);
            }
            self.retrans_queue.pop_front();
        }
        wait
    }

    /// `tcp_mark_skb_lost`: marks a segment as lost. If it is marked already, its retransmission in
    /// flight counts as lost.
    pub(super) fn mark_lost(&mut self, seq: u64) {
        let flags = self.segs.flags(seq);
        if flags & SACKED != 0 {
            return;
        }
        self.hint = self.hint.min(seq);
        if flags & LOST == 0 {
            self.s.lost_out += 1;
            self.s.lost += 1;
            self.segs.set_flags(seq, flags | LOST);
            self.rate_lost(seq);
        } else if flags & RETRANS != 0 {
            self.segs.set_flags(seq, flags & !RETRANS);
            self.s.retrans_out -= 1;
            self.s.lost += 1;
            self.rate_lost(seq);
        }
    }

    /// `tcp_rack_reo_timeout`: detects losses again. Returns whether the number of packets in
    /// flight has changed.
    pub(super) fn on_reorder_timer(&mut self, now: Instant) -> bool {
        let prior = self.s.in_flight();
        self.rack_detect(now);
        prior != self.s.in_flight()
    }
}
