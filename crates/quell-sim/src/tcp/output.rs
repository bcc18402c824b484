//! Packets that a sender sends, and their times: connection requests, new data in bursts,
//! retransmissions, pacing (`tcp_output.c` of Linux).

use quell_qdisc::time::{Instant, MS, NEVER, SEC};
use quell_qdisc::{Ecn, num};

use super::rtt::{INITIAL_RTO, MAX_RTO};
use super::segments::{EVER, LOST, RETRANS, SACKED};
use super::state::{Egress, Rexmit, Sender, Timer, timestamp};
use crate::cc::{CaState, CongestionControl, Event, MAX_GSO_BYTES};
use crate::packet::{Kind, Pkt};

/// Size of a SYN with its options: 20 bytes of IP, 40 of TCP.
pub const SYN_BYTES: u32 = 60;
/// Number of segments before pacing begins (`tcp_update_skb_after_send`).
const UNPACED: u64 = 10;

impl Sender {
    /// Starts the connection: sends a SYN.
    pub fn connect<E: Egress>(&mut self, now: Instant, egress: &mut E) {
        self.started = now;
        self.send_syn(now, egress);
    }

    /// Sends a SYN, and sets the timer at which it is repeated.
    pub(super) fn send_syn<E: Egress>(&mut self, now: Instant, egress: &mut E) {
        let overhead = self.c.wire_bytes - self.c.mss - 52;
        let mut p = Pkt::new(
            Kind::Syn,
            self.c.flow,
            self.c.hash,
            0,
            SYN_BYTES + overhead,
            0,
            Ecn::NotEct,
        );
        p.tsval = timestamp(now);
        self.s.last_sent = now;
        self.set_timer(
            Timer::Rto,
            now + (INITIAL_RTO * (1 << self.backoff.min(7))).min(MAX_RTO),
        );
        egress.send(now, SYN_BYTES + overhead, || p);
    }

    /// Handles the answer to the SYN: takes the first RTT sample and sends the first data.
    pub(super) fn on_connected<E: Egress>(
        &mut self,
        now: Instant,
        cc: &mut CongestionControl,
        egress: &mut E,
    ) {
        self.connected = true;
        self.timer_at = NEVER;
        self.timer = Timer::None;
        if self.backoff == 0 {
            let rtt = now - self.s.last_sent;
            self.rtt.update_min(now, rtt, &mut self.s.min_rtt);
            self.rtt.sample(rtt, 0, 0);
            self.s.srtt = self.rtt.srtt();
        } else {
            self.s.cwnd = 1; // RFC 5681, section 3.1: a lost SYN
        }
        self.backoff = 0;
        let seed = u64::from(self.c.hash) << 16 | u64::from(self.c.flow.generation);
        cc.init(&mut self.s, now, seed);
        self.write_xmit(now, cc, egress, false);
    }

    /// Adds segments that the application offers. Returns the number of the segment behind them.
    pub fn offer(&mut self, segments: u64) -> u64 {
        self.c.end += segments;
        self.c.end
    }

    /// Sends segments that `offer` has added.
    pub fn resume<E: Egress>(&mut self, now: Instant, cc: &mut CongestionControl, egress: &mut E) {
        if self.connected {
            self.write_xmit(now, cc, egress, false);
        }
    }

    /// Number of segments that the application has offered so far.
    #[inline]
    fn offered(&self, now: Instant) -> u64 {
        if self.c.offer_time.is_zero() {
            return self.c.end;
        }
        ((now - self.started) / self.c.offer_time).min(self.c.end)
    }

    /// Whether the application has offered new data that the receive window has room for. The
    /// congestion window is not checked.
    #[inline]
    pub(super) fn has_new_data(&self, now: Instant) -> bool {
        self.s.nxt < self.offered(now) && self.packets_out() < self.c.window
    }

    /// `tcp_write_xmit`: sends new data as far as windows, pacing and the application allow. With
    /// `probe`, one segment is sent even if the congestion window is full.
    #[inline]
    pub(super) fn write_xmit<E: Egress>(
        &mut self,
        now: Instant,
        cc: &mut CongestionControl,
        egress: &mut E,
        probe: bool,
    ) {
        let paced = self.c.pacing;
        let offered = self.offered(now);
        let mut sent = 0;
        let mut limited = false;
        let mut in_flight = self.in_flight();
        let mut burst = 0;
        let mut was_empty = false;
        if paced {
            self.pace_at = NEVER;
        }
        loop {
            if self.s.nxt >= offered {
                self.on_application_limited(now, in_flight);
                break;
            }
            if paced && self.s.edt > now {
                self.pace_at = self.s.edt;
                break;
            }
            let mut quota = self.s.cwnd.saturating_sub(in_flight);
            if quota == 0 {
                if !probe {
                    limited = true;
                    break;
                }
                quota = 1;
            }
            while self.s.nxt >= self.buffer_end {
                self.buffer_end += u64::from((num::low_u32(MAX_GSO_BYTES) / self.c.mss).max(1));
            }
            let room = u64::from(self.c.window.saturating_sub(self.packets_out()));
            let room = num::low_u32(room.min(offered - self.s.nxt));
            if room == 0 {
                break;
            }
            let may_wait = !probe && room > 1 && self.defers(now, quota);
            if burst == 0 {
                burst = match probe {
                    true => 1,
                    // The burst size is not computed if the window limits it to two in any case.
                    false if quota <= 2 && !may_wait && cc.sends_two_at_least() => 2,
                    false => cc.tso_segs(&self.s),
                };
            }
            // The remainder of the 64 KiB buffer at the head of Linux's queue is not deferred.
            let whole = u64::from(burst).min(self.buffer_end - self.s.nxt);
            if may_wait && u64::from(quota) < whole {
                limited = true;
                break;
            }
            if self.s.nxt == self.s.una {
                was_empty = true;
                self.on_pipe_empty(now, cc);
            }
            let count = quota.min((self.s.cwnd / 2).max(1)).min(burst).min(room);
            if count == 1 || !self.send_run(now, count, egress) {
                for k in 1..=count {
                    self.send_new(now, k > 1 && k == count, egress);
                }
            }
            if paced {
                self.pace(now, count);
            }
            sent += count;
            in_flight += count;
            if probe {
                break;
            }
        }
        limited |= in_flight >= self.s.cwnd;
        if sent > 0 || limited {
            self.validate_cwnd(limited);
        }
        if sent > 0 {
            if matches!(self.s.state, CaState::Cwr | CaState::Recovery) {
                self.prr_out += sent;
            }
            if (probe || !self.schedule_probe(now, false))
                && (was_empty || self.timer == Timer::Probe)
            {
                self.rearm_rto(now);
            }
        }
    }

    /// Packets in flight. Without limited transmit (RFC 3042), duplicate ACKs in the states Open
    /// and Disorder do not reduce this number, so they allow no new data.
    #[inline]
    fn in_flight(&self) -> u32 {
        if !self.c.limited_transmit && self.s.state <= CaState::Disorder {
            return self.packets_out();
        }
        self.s.in_flight()
    }

    /// `tcp_tso_should_defer`: whether the next ACK is expected so soon that the sender should wait
    /// for it instead of sending less than a burst.
    #[inline]
    fn defers(&self, now: Instant, quota: u32) -> bool {
        if self.s.state >= CaState::Recovery
            || now - self.s.last_sent > MS
            || 3 * quota >= self.s.cwnd
            || self.packets_out() == 0
        {
            return false;
        }
        let expected = self.segs.sent(self.s.una) + self.s.srtt;
        expected <= now + (self.s.srtt / 2).min(MS)
    }

    /// Handles the first new data after all earlier data were acknowledged: reduces the congestion
    /// window after a silence longer than the RTO (`tcp_cwnd_restart`), and notifies the congestion
    /// control (CA_EVENT_TX_START).
    #[cold]
    fn on_pipe_empty(&mut self, now: Instant, cc: &mut CongestionControl) {
        let rto = self.rtt.rto;
        if self.s.nxt > self.c.first && !cc.full_control() && now - self.s.last_sent > rto {
            self.s.ssthresh = self.s.ssthresh.max((self.s.cwnd >> 1) + (self.s.cwnd >> 2));
            let restart = self.c.iw.min(self.s.cwnd);
            let mut idle = now - self.s.last_sent;
            let mut cwnd = self.s.cwnd;
            while idle > rto && cwnd > restart {
                idle -= rto;
                cwnd >>= 1;
            }
            self.s.cwnd = cwnd.max(restart);
        }
        cc.event(&mut self.s, now, Event::TxStart);
    }

    /// `tcp_rate_check_app_limited`: notes that the application limits the sender. Also sets the
    /// time at which the application will offer more.
    #[inline]
    fn on_application_limited(&mut self, now: Instant, in_flight: u32) {
        if self.rate.is_some() && in_flight < self.s.cwnd && self.s.lost_out <= self.s.retrans_out {
            self.s.app_limited = (self.s.delivered + u64::from(in_flight)).max(1);
        }
        self.offer_at = if !self.c.offer_time.is_zero() && self.s.nxt < self.c.end {
            (self.started + (self.s.nxt + 1) * self.c.offer_time).max(now)
        } else {
            NEVER
        };
    }

    /// `send_new` for a burst whose packets differ only in their numbers, if the queue accepts all
    /// of them; otherwise returns false without effect.
    #[inline(always)]
    fn send_run<E: Egress>(&mut self, now: Instant, count: u32, egress: &mut E) -> bool {
        let first = self.s.nxt;
        let next = first + u64::from(count);
        if self.rate.is_some() || self.cwr || next >= self.c.end {
            return false;
        }
        let (flow, hash, tsval) = (self.c.flow, self.c.hash, timestamp(now));
        let tsecr = self.ts_recent;
        let (bytes, payload, ecn) = (self.c.wire_bytes, self.c.mss, self.c.ect);
        // The closure copies these values: borrowed ones would have to be in memory, because some
        // queues' code is not inlined.
        let taken = egress.send_run(now, bytes, count, move |k| {
            let seq = num::low_u32(first + u64::from(k));
            let mut p = Pkt::new(Kind::Data, flow, hash, seq, bytes, payload, ecn);
            p.tsval = tsval;
            p.set_tsecr(tsecr);
            p.set_flags(false, k + 1 == count);
            p
        });
        if taken {
            self.segs
                .reserve(self.s.una, num::low_u32(next - self.s.una));
            for seq in first..next {
                self.segs.set(seq, now, 0);
            }
            self.s.nxt = next;
            self.s.last_sent = now;
        }
        taken
    }

    /// Sends a new segment. `push`: it ends a burst of several (`__tcp_transmit_skb` sets PSH on
    /// these).
    #[inline(always)]
    fn send_new<E: Egress>(&mut self, now: Instant, push: bool, egress: &mut E) {
        let seq = self.s.nxt;
        let was_empty = seq == self.s.una;
        self.segs.reserve(self.s.una, self.packets_out() + 1);
        self.segs.set(seq, now, 0);
        if self.rate.is_some() {
            self.rate_sent(now, seq, was_empty);
        }
        let cwr = self.cwr && self.c.ect != Ecn::NotEct;
        self.cwr = false;
        self.s.nxt = seq + 1;
        self.s.last_sent = now;
        self.send_data(now, seq, self.c.ect, (cwr, push), egress);
    }

    /// Sends a data segment with the flags CWR and PSH. The last segment always has PSH
    /// (`tcp_push`): the receiver acknowledges it without delay.
    #[inline(always)]
    fn send_data<E: Egress>(
        &self,
        now: Instant,
        seq: u64,
        ecn: Ecn,
        (cwr, push): (bool, bool),
        egress: &mut E,
    ) {
        let payload = self.payload(seq);
        let bytes = self.c.wire_bytes - (self.c.mss - payload);
        let (flow, hash, tsval) = (self.c.flow, self.c.hash, timestamp(now));
        let tsecr = self.ts_recent;
        let push = push || seq + 1 == self.c.end;
        egress.send(now, bytes, move || {
            let mut p = Pkt::new(
                Kind::Data,
                flow,
                hash,
                num::low_u32(seq),
                bytes,
                payload,
                ecn,
            );
            p.tsval = tsval;
            p.set_tsecr(tsecr);
            p.set_flags(cwr, push);
            p
        });
    }

    /// `tcp_update_skb_after_send`: delays the next packet by the duration of those just sent at
    /// the pacing rate, less a credit for lateness.
    fn pace(&mut self, now: Instant, count: u32) {
        let start = self.s.edt.max(now);
        let credit = start - self.s.edt.min(start);
        self.s.edt = start;
        let rate = self.s.rate_to_pace_at();
        if rate > 0 && self.s.nxt - self.c.first + self.retransmits >= UNPACED {
            let gap = u64::from(self.c.mss * count) * SEC / rate;
            self.s.edt += gap - credit.min(gap / 2);
        }
    }

    /// `tcp_cwnd_validate`: notes whether the window limited the sender in this round.
    #[inline]
    fn validate_cwnd(&mut self, limited: bool) {
        let out = self.packets_out();
        if self.s.una >= self.usage_seq
            || limited
            || !self.s.cwnd_limited && out > self.s.max_packets_out
        {
            self.s.cwnd_limited = limited;
            self.s.max_packets_out = out;
            self.usage_seq = self.s.nxt;
        }
    }

    /// `tcp_xmit_recovery`: retransmits lost segments or, for F-RTO, sends new data. If no new data
    /// can be sent, F-RTO ends and lost segments are retransmitted.
    pub(super) fn xmit_recovery<E: Egress>(
        &mut self,
        now: Instant,
        what: Rexmit,
        cc: &mut CongestionControl,
        egress: &mut E,
    ) {
        if what == Rexmit::New {
            self.write_xmit(now, cc, egress, false);
            if self.s.nxt > self.high_seq {
                return;
            }
            self.frto = false;
        }
        self.retransmit_lost(now, egress);
    }

    /// `tcp_xmit_retransmit_queue`: retransmits the segments marked lost, in order, as far as the
    /// window allows.
    pub(super) fn retransmit_lost<E: Egress>(&mut self, now: Instant, egress: &mut E) {
        let paced = self.c.pacing;
        let mut seq = self.hint.max(self.s.una);
        while seq < self.s.nxt && self.s.retrans_out < self.s.lost_out {
            if self.s.in_flight() >= self.s.cwnd {
                break;
            }
            if paced && self.s.edt > now {
                self.pace_at = self.s.edt;
                break;
            }
            let flags = self.segs.flags(seq);
            if flags & LOST != 0 && flags & (SACKED | RETRANS) == 0 {
                self.retransmit(now, seq, paced, egress);
                if matches!(self.s.state, CaState::Cwr | CaState::Recovery) {
                    self.prr_out += 1;
                }
                if seq == self.s.una && self.timer != Timer::Reorder {
                    self.set_timer(Timer::Rto, now + self.rto());
                }
            }
            seq += 1;
        }
        self.hint = seq;
    }

    /// `tcp_retransmit_skb`: retransmits a segment and marks it `RETRANS`.
    pub(super) fn retransmit<E: Egress>(
        &mut self,
        now: Instant,
        seq: u64,
        paced: bool,
        egress: &mut E,
    ) {
        let flags = self.segs.flags(seq);
        self.segs.set_flags(seq, flags | RETRANS);
        self.s.retrans_out += 1;
        if self.retrans_stamp == Instant::ZERO {
            self.retrans_stamp = now;
        }
        self.undo_retrans = self.undo_retrans.max(0) + 1;
        self.send_again(now, seq, paced, egress);
    }

    /// `__tcp_retransmit_skb`: sends a segment again. A tail loss probe calls only this, so its
    /// segment is not marked `RETRANS`.
    pub(super) fn send_again<E: Egress>(
        &mut self,
        now: Instant,
        seq: u64,
        paced: bool,
        egress: &mut E,
    ) {
        let flags = self.segs.flags(seq);
        let sent_once = (flags & EVER == 0).then(|| self.segs.sent(seq));
        egress.on_retransmission(now, seq, sent_once);
        self.segs.set(seq, now, flags | EVER);
        if self.c.sack {
            self.retrans_queue.push_back((seq, now));
        }
        self.retrans_end = self.retrans_end.max(seq + 1);
        self.retransmits += 1;
        if self.rate.is_some() {
            self.rate_sent(now, seq, false);
        }
        self.s.last_sent = now;
        if paced {
            self.pace(now, 1);
        }
        self.send_data(now, seq, Ecn::NotEct, (false, false), egress); // RFC 3168, section 6.1.5
    }
}
