//! The sending half of a connection: processing of ACKs (`tcp_ack` of Linux), with the scoreboard.
//!
//! Deviations from Linux: segments of one MSS (no TSO bursts); no reordering degree with SACK
//! (paths of quell keep order, so `reord_seen` never becomes true); no SACK reneging; the receive
//! window is constant.

use std::collections::VecDeque;

use quell_qdisc::time::{Duration, Instant, MS, NEVER};
use quell_qdisc::{Ecn, num};

use super::rtt::Rtt;
use super::segments::{EVER, LOST, RETRANS, SACKED, Segments};
pub use super::state::{Config, Egress, Sender};
use super::state::{Flags, Rack, Rexmit, SackTimes, Timer, timestamp};
use crate::cc::{AckEvent, CaState, CongestionControl, EcnMode, RateSample, Sock};
use crate::packet::{Ack, SACK_BLOCKS, expand};

impl Sender {
    /// A sender that is not connected.
    pub fn new(c: Config, rtt: Rtt, cc: &CongestionControl) -> Self {
        Self {
            s: Sock {
                una: c.first,
                nxt: c.first,
                ..Sock::new(c.mss, c.iw)
            },
            rtt,
            retransmits: 0,
            c,
            segs: Segments::default(),
            rack: Rack::default(),
            retrans_queue: VecDeque::new(),
            rate: cc.needs_rate_sample().then(Box::default),
            plain: c.ect == Ecn::NotEct && !cc.needs_rate_sample() && !cc.full_control(),
            timer: Timer::None,
            timer_at: NEVER,
            pace_at: NEVER,
            offer_at: NEVER,
            started: Instant::ZERO,
            retrans_stamp: Instant::ZERO,
            high_seq: 0,
            undo_marker: None,
            undo_retrans: 0,
            reordering: 3,
            prior_ssthresh: 0,
            prr_delivered: 0,
            prr_out: 0,
            hint: 0,
            buffer_end: c.first,
            retrans_end: 0,
            usage_seq: 0,
            tlp_high: 0,
            tlp_retrans: false,
            frto: false,
            cwr: false,
            connected: false,
            timeouts: 0,
            backoff: 0,
            seen: [(0, 0); SACK_BLOCKS],
            ce_seen: 0,
            ts_recent: 0,
        }
    }

    /// Whether the application sends without end.
    pub fn is_endless(&self) -> bool {
        self.c.end == u64::MAX
    }

    /// Whether all segments were sent and acknowledged.
    #[inline]
    pub fn finished(&self) -> bool {
        self.s.una == self.c.end
    }

    /// Receive window, segments.
    pub fn window(&self) -> u32 {
        self.c.window
    }

    /// ECN field of new data.
    pub fn ect(&self) -> Ecn {
        self.c.ect
    }

    /// Departure time of a segment in flight; `None` if it is not in flight, or was
    /// retransmitted, so that the copy that arrived is unknown.
    pub fn sent_once(&self, low: u32) -> Option<Instant> {
        let seq = expand(self.s.una, low);
        let in_flight = (self.s.una..self.s.nxt).contains(&seq);
        (in_flight && self.segs.flags(seq) & EVER == 0).then(|| self.segs.sent(seq))
    }

    /// Segments sent so far, retransmissions included.
    pub fn sent(&self) -> u64 {
        self.s.nxt - self.c.first + self.retransmits
    }

    /// Payload of a segment, bytes.
    #[inline]
    pub fn payload(&self, seq: u64) -> u32 {
        if seq + 1 == self.c.end {
            self.c.mss - self.c.last_short
        } else {
            self.c.mss
        }
    }

    /// Packets sent and not yet cumulatively acknowledged (`packets_out`).
    #[inline]
    pub(super) fn packets_out(&self) -> u32 {
        self.s.packets_out()
    }

    /// Handles an ACK.
    #[inline]
    pub fn on_ack<E: Egress>(
        &mut self,
        now: Instant,
        a: &Ack,
        cc: &mut CongestionControl,
        egress: &mut E,
    ) {
        if !self.connected {
            if a.syn {
                self.on_connected(now, cc, egress);
            }
            return;
        }
        let prior_una = self.s.una;
        let cumulative = expand(prior_una, a.cumulative);
        self.ts_recent = a.tsval;
        if cumulative < prior_una || a.syn {
            return; // an old ACK: the paths keep order, so it contains nothing new
        }
        if self.is_plain(a, cumulative) {
            return self.on_plain_ack(now, cumulative, cc, egress);
        }
        let mut f = Flags {
            prior_una,
            tsecr: a.tsecr,
            ..Flags::default()
        };
        let prior_delivered = self.s.delivered;
        let prior_lost = self.s.lost;
        let mut rs = RateSample::default();
        if self.rate.is_some() {
            rs.prior_in_flight = self.s.in_flight();
        }
        let mut rexmit = Rexmit::None;
        let prior_out = self.packets_out();
        // Whether the ACK has no SACK blocks, and no segment in flight was SACKed, marked lost or
        // retransmitted. A segment marked lost may be acknowledged before pacing or the window
        // allows its retransmission. Without SACK, a duplicate ACK is not clean either: it means
        // that a segment has left the network.
        let clean = a.count == 0
            && self.s.sacked_out == 0
            && self.s.lost_out == 0
            && prior_una >= self.retrans_end
            && (self.c.sack || cumulative > prior_una);
        if cumulative > prior_una {
            self.timeouts = 0;
            f.acked = true;
        }
        if prior_out > 0 {
            if clean {
                if f.acked {
                    if self.rate.is_some() {
                        for seq in prior_una..cumulative {
                            self.rate_delivered(seq, false, &mut rs);
                        }
                    }
                    rs.rtt = self.clean_fast(now, cumulative, cc);
                    f.set_timer = true;
                    f.orig_sacked = true;
                }
            } else {
                self.clean_slow(now, a, cumulative, cc, &mut f, &mut rs);
            }
        }
        let delivered = num::low_u32(self.s.delivered - prior_delivered);
        f.ece = self.on_ecn_feedback(now, a, cc, delivered);
        if prior_out > 0 {
            if self.tlp_high != 0 {
                self.process_tlp_ack(now, cumulative, &f, cc);
            }
            if !f.acked || f.sacked || f.ece || f.dsack || self.s.state != CaState::Open {
                rexmit = self.alert(now, &mut f, cc);
            }
            if f.set_timer {
                self.set_xmit_timer(now);
            }
            let lost = num::low_u32(self.s.lost - prior_lost);
            if cc.full_control() || self.rate.is_some() {
                self.rate_gen(now, delivered, lost, &mut rs);
                cc.acked(&mut self.s, now, &rs);
            }
            if cc.full_control() {
                cc.cong_control(&mut self.s, now, &rs);
            } else if matches!(self.s.state, CaState::Cwr | CaState::Recovery) {
                self.cwnd_reduction(delivered, lost, f.acked);
            } else if f.acked {
                cc.cong_avoid(&mut self.s, now, delivered);
            }
            if rexmit != Rexmit::None {
                self.xmit_recovery(now, rexmit, cc, egress);
            }
        }
        self.write_xmit(now, cc, egress, false);
    }

    /// Whether the ACK and the connection are ordinary: `on_plain_ack` then has the effect of
    /// `on_ack`, with fewer checks.
    #[inline]
    fn is_plain(&self, a: &Ack, cumulative: u64) -> bool {
        cumulative > self.s.una
            && a.count == 0
            && self.s.state == CaState::Open
            && self.s.sacked_out == 0
            && self.s.una >= self.retrans_end
            && self.tlp_high == 0
            && self.plain
    }

    #[inline]
    fn on_plain_ack<E: Egress>(
        &mut self,
        now: Instant,
        cumulative: u64,
        cc: &mut CongestionControl,
        egress: &mut E,
    ) {
        let acked = num::low_u32(cumulative - self.s.una);
        self.timeouts = 0;
        self.clean_fast(now, cumulative, cc);
        cc.cong_avoid(&mut self.s, now, acked);
        let before = self.s.nxt;
        self.write_xmit(now, cc, egress, false);
        // New data have set the timer of the tail loss probe; without SACK there is no such probe.
        if self.s.nxt == before || !self.c.sack {
            self.set_xmit_timer(now);
        }
    }

    /// `tcp_clean_rtx_queue` for acknowledged segments none of which was ever marked lost, SACKed
    /// or retransmitted. Returns the newest segment's RTT.
    #[inline]
    fn clean_fast(
        &mut self,
        now: Instant,
        cumulative: u64,
        cc: &mut CongestionControl,
    ) -> Duration {
        let acked = num::low_u32(cumulative - self.s.una);
        let first = self.segs.sent(self.s.una);
        let last = self.segs.sent(cumulative - 1);
        self.s.delivered += u64::from(acked);
        self.s.una = cumulative;
        let ca_rtt = now - last;
        self.rack.advance(now, last, cumulative);
        self.update_rtt(now, now - first, ca_rtt);
        cc.pkts_acked(&mut self.s, now, acked, ca_rtt);
        ca_rtt
    }

    #[inline]
    fn update_rtt(&mut self, now: Instant, rtt: Duration, ca_rtt: Duration) {
        self.rtt.update_min(now, ca_rtt, &mut self.s.min_rtt);
        self.rtt.sample(rtt, self.s.una, self.s.nxt);
        self.s.srtt = self.rtt.srtt();
        self.backoff = 0;
    }

    /// Processes SACK blocks, then the acknowledged segments one by one.
    #[cold]
    fn clean_slow(
        &mut self,
        now: Instant,
        a: &Ack,
        end: u64,
        cc: &mut CongestionControl,
        f: &mut Flags,
        rs: &mut RateSample,
    ) {
        let mut sack = SackTimes::default();
        if a.count > 0 {
            self.sacktag(now, a, f, rs, &mut sack);
        } else if !self.c.sack && !f.acked {
            // RFC 6582: each duplicate ACK means that a segment has left the network. After a
            // timeout this holds only if new data have been sent since (`tcp_process_loss`); it
            // does not hold while all segments of a recovery are acknowledged and its end is
            // awaited (`tcp_try_undo_recovery`).
            let counts = match self.s.state {
                CaState::Loss => self.s.nxt > self.high_seq,
                CaState::Recovery => self.s.una < self.high_seq,
                _ => true,
            };
            if counts {
                let prior = self.s.sacked_out;
                self.s.sacked_out += 1;
                self.limit_reno_sack(0);
                self.s.delivered += u64::from(self.s.sacked_out.saturating_sub(prior));
            }
        }
        let (mut first, mut last, mut acked) = (Instant::ZERO, Instant::ZERO, 0);
        for seq in self.s.una..end {
            let flags = self.segs.flags(seq);
            let sent = self.segs.sent(seq);
            acked += 1;
            if flags & (RETRANS | EVER) != 0 {
                if flags & RETRANS != 0 {
                    self.s.retrans_out -= 1;
                }
                f.retrans_acked = true;
            } else if flags & SACKED == 0 {
                last = sent;
                if first == Instant::ZERO {
                    first = sent;
                }
                if seq < self.high_seq {
                    f.orig_sacked = true;
                }
            }
            if flags & SACKED != 0 {
                self.s.sacked_out -= 1;
            } else {
                self.s.delivered += 1;
                if flags & (RETRANS | EVER) == 0 || now - sent >= self.s.min_rtt {
                    self.rack.advance(now, sent, seq + 1);
                }
            }
            if flags & LOST != 0 {
                self.s.lost_out -= 1;
            }
            if self.rate.is_some() {
                self.rate_delivered(seq, flags & SACKED != 0, rs);
            }
        }
        if !self.c.sack && acked > 0 {
            // `tcp_remove_reno_sacks`: the first acknowledged segment was the hole.
            let gone = self.s.sacked_out.min(acked - 1);
            self.s.sacked_out -= gone;
            self.s.delivered -= u64::from(gone);
        }
        self.s.una = end;
        if self.s.sacked_out == 0 {
            self.seen = [(0, 0); SACK_BLOCKS]; // all are below `una`; their low 32 bits would recur
        }
        if !self.c.sack && acked > 0 {
            self.limit_reno_sack(acked);
        }
        self.hint = self.hint.max(end);
        if acked > 0 {
            f.set_timer = true;
        }
        self.slow_rtt(now, f, first, last, &sack, rs);
        cc.pkts_acked(&mut self.s, now, acked, rs.rtt);
    }

    /// `tcp_ack_update_rtt`: Karn's rule, with SACK times and timestamps if the acknowledged data
    /// give no sample.
    fn slow_rtt(
        &mut self,
        now: Instant,
        f: &mut Flags,
        first: Instant,
        last: Instant,
        sack: &SackTimes,
        rs: &mut RateSample,
    ) {
        let (mut rtt, mut ca_rtt) = (Duration::ZERO, Duration::ZERO);
        if first != Instant::ZERO && !f.retrans_acked {
            (rtt, ca_rtt) = (now - first, now - last);
        }
        let sack_rtt = if sack.first == Instant::ZERO {
            Duration::ZERO
        } else {
            now - sack.first
        };
        if !sack_rtt.is_zero() {
            ca_rtt = now - sack.last;
        }
        if rtt.is_zero() {
            rtt = sack_rtt;
        }
        if rtt.is_zero() && f.acked && f.tsecr != 0 {
            rtt = u64::from(timestamp(now).saturating_sub(f.tsecr)).max(1) * MS;
            ca_rtt = rtt;
        }
        if rtt.is_zero() {
            return;
        }
        rs.rtt = ca_rtt;
        self.update_rtt(now, rtt, ca_rtt);
        if !f.acked
            && !sack_rtt.is_zero()
            && self.packets_out() > 0
            && sack_rtt > now - self.segs.sent(self.s.una)
        {
            f.set_timer = true;
        }
    }

    /// ECN feedback (`tcp_newly_delivered`, `tcp_in_ack_event`). Returns whether the ACK reports
    /// marks.
    #[inline]
    fn on_ecn_feedback(
        &mut self,
        now: Instant,
        a: &Ack,
        cc: &mut CongestionControl,
        delivered: u32,
    ) -> bool {
        if self.c.ect == Ecn::NotEct {
            return false;
        }
        let mode = cc.ecn_mode();
        let ce = if mode == EcnMode::Accurate {
            let fresh = a.ce.wrapping_sub(self.ce_seen).min(delivered);
            self.ce_seen = a.ce;
            fresh
        } else if a.ece {
            delivered
        } else {
            0
        };
        self.s.delivered_ce += u64::from(ce);
        if mode != EcnMode::Classic {
            cc.in_ack_event(
                &mut self.s,
                now,
                &AckEvent {
                    delivered,
                    delivered_ce: ce,
                    ece: a.ece || ce > 0,
                },
            );
        }
        a.ece || ce > 0
    }
}
