//! Processing of SACK blocks (`tcp_sacktag_write_queue` of Linux): segments that arrived out of
//! order (RFC 2018), and retransmissions that were not needed (RFC 2883, RFC 3708).

use quell_qdisc::num;
use quell_qdisc::time::Instant;

use super::segments::{EVER, LOST, RETRANS, SACKED};
use super::state::{Flags, SackTimes, Sender};
use crate::cc::RateSample;
use crate::packet::{Ack, SACK_BLOCKS, expand};

impl Sender {
    /// `tcp_sacktag_write_queue`: handles the segments that the blocks cover, except those that the
    /// previous ACK's blocks covered.
    pub(super) fn sacktag(
        &mut self,
        now: Instant,
        a: &Ack,
        f: &mut Flags,
        rs: &mut RateSample,
        times: &mut SackTimes,
    ) {
        let blocks = &a.blocks[..usize::from(a.count)];
        let mut seen = [(0, 0); SACK_BLOCKS];
        let una = self.s.una;
        let whole = |(start, end)| (expand(una, start), expand(una, end));
        let [a1, a2, a3] = self.seen;
        let (k1, k2, k3) = (whole(a1), whole(a2), whole(a3));
        for (k, &(start, end)) in blocks.iter().enumerate() {
            if k == 0 && a.dsack {
                self.on_dsack((expand(self.s.una, start), expand(self.s.una, end)), f);
                continue;
            }
            seen[k] = (start, end);
            let end = expand(una, end).min(self.s.nxt);
            let mut seq = expand(una, start).max(una);
            while seq < end {
                // Which block of the previous ACK covers a segment is unpredictable, so all are
                // compared, without branches.
                let end_of = |b: (u64, u64)| if b.0 <= seq { b.1 } else { 0 };
                let after = end_of(k1).max(end_of(k2)).max(end_of(k3));
                if after > seq {
                    seq = after;
                    continue;
                }
                self.sack_one(now, seq, f, rs, times);
                seq += 1;
            }
        }
        self.seen = seen;
    }

    /// `tcp_sacktag_one`: handles a segment that a SACK block covers.
    fn sack_one(
        &mut self,
        now: Instant,
        seq: u64,
        f: &mut Flags,
        rs: &mut RateSample,
        times: &mut SackTimes,
    ) {
        let mut flags = self.segs.flags(seq);
        if flags & SACKED != 0 {
            return;
        }
        let sent = self.segs.sent(seq);
        if flags & (RETRANS | EVER) == 0 || now - sent >= self.s.min_rtt {
            self.rack.advance(now, sent, seq + 1);
        }
        if flags & RETRANS != 0 {
            // If it is not marked lost, the retransmission may still be in flight and stays
            // counted.
            if flags & LOST != 0 {
                flags &= !(LOST | RETRANS);
                self.s.lost_out -= 1;
                self.s.retrans_out -= 1;
            }
        } else {
            if flags & EVER == 0 {
                if seq < self.high_seq {
                    f.orig_sacked = true;
                }
                if times.first == Instant::ZERO {
                    times.first = sent;
                }
                times.last = sent;
            }
            if flags & LOST != 0 {
                flags &= !LOST;
                self.s.lost_out -= 1;
            }
        }
        self.segs.set_flags(seq, flags | SACKED);
        f.sacked = true;
        self.s.sacked_out += 1;
        self.s.delivered += 1;
        if self.rate.is_some() {
            self.rate_delivered(seq, false, rs);
        }
    }

    /// `tcp_check_dsack`, `tcp_dsack_seen`: a retransmission was not needed.
    fn on_dsack(&mut self, block: (u64, u64), f: &mut Flags) {
        f.dsack = true;
        self.rack.dsack_seen = true;
        if self.tlp_high != 0 && self.tlp_retrans && block.1 == self.tlp_high {
            f.dsack_tlp = true;
        }
        if let Some(marker) = self.undo_marker
            && self.undo_retrans > 0
            && block.1 > marker
        {
            self.undo_retrans =
                (self.undo_retrans - num::low_i32((block.1 - block.0).cast_signed())).max(0);
        }
        for seq in block.0.max(self.s.una)..block.1.min(self.s.nxt) {
            let flags = self.segs.flags(seq);
            if flags & RETRANS != 0 && flags & SACKED != 0 {
                self.segs.set_flags(seq, flags & !RETRANS);
                self.s.retrans_out -= 1;
            }
        }
    }
}
