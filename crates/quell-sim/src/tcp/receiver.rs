//! The receiving half of a connection: reassembly, SACK blocks, delayed and compressed ACKs, ECN
//! echo.
//!
//! As in Linux's `tcp_input.c` (`tcp_data_queue`, `tcp_data_queue_ofo`, `__tcp_ack_snd_check`);
//! RFC 5681 section 4.2, RFC 2018, RFC 2883, RFC 3168 section 6.1.3, RFC 8257 section 3.2.
//! Autotuning of the receive window is left out: the window is the flow's `buffer` from the start.

use quell_qdisc::time::{Duration, Instant, MS, NEVER};
use quell_qdisc::{Ecn, Packet, num};

use crate::cc::EcnMode;
use crate::packet::{Ack, FlowId, Pkt, SACK_BLOCKS, expand};

/// `TCP_MAX_QUICKACKS`: number of ACKs that are not delayed at the start, after a long silence and
/// after a duplicate.
const MAX_QUICKACKS: u8 = 16;
/// `TCP_NUM_SACKS`: maximum number of ranges remembered for SACK blocks.
const SACKS: usize = 4;
/// `tcp_comp_sack_nr`: maximum number of segments behind a hole whose ACKs are replaced by one ACK.
const COMPRESSED: u8 = 44;
/// `tcp_comp_sack_delay_ns` and `tcp_comp_sack_slack_ns`: the timer fires at the end of its
/// slack.
const COMPRESSION_DELAY: Duration = MS;
const COMPRESSION_SLACK: Duration = Duration::from_micros(100);

/// The parameters of a new receiver.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Config {
    /// Segments per ACK.
    pub delack: u32,
    /// Whether to send SACK blocks.
    pub sack: bool,
    /// Mode of the ECN feedback.
    pub ecn: EcnMode,
    /// Maximum delay of an ACK.
    pub delack_timeout: Duration,
    /// After a time without segments that is longer than this, ACKs are not delayed, as at the
    /// start (the receiver's own RTO).
    pub quiet: Duration,
    /// Number of the first segment, as at the sender.
    pub first: u64,
    /// Base RTT: SACK compression waits a third of it, at most 1 ms.
    pub rtt: Duration,
}

/// The receiving half of a connection.
///
/// The fields keep this order, those that every packet needs first: with a thousand flows, cache
/// misses dominate the cost of a packet.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Receiver {
    /// Next segment in order (`rcv_nxt`).
    pub next: u64,
    /// `next` in the last ACK.
    acked: u64,
    last_arrival: Instant,
    /// Times at which a delayed ACK and a compressed ACK must be sent; `NEVER`: none is pending.
    delack_at: Instant,
    compressed_at: Instant,
    /// Timestamp to be echoed, ms.
    ts_recent: u32,
    /// Number of segments that arrived with CE.
    ce: u32,
    flow: FlowId,
    /// Number of ACKs that are still not to be delayed.
    quick: u8,
    /// Number of segments whose ACKs are held back, and of ACKs sent immediately for the present
    /// hole.
    compressed: u8,
    dup_acks: u8,
    /// Number of valid `sacks`.
    sack_count: u8,
    /// Value of the ECE flag.
    echo: bool,
    /// Whether the last segment arrived with CE (RFC 8257).
    ce_state: bool,
    ect_seen: bool,
    ack_now: bool,
    /// Countdown to the next measured segment. It is here because an arriving segment writes this
    /// cache line anyway.
    pub until_sample: u16,
    /// Segments that arrived behind the first hole, in order: ranges `start..end`.
    ranges: Vec<(u64, u64)>,
    /// The duplicate segment that the next ACK reports.
    dsack: Option<(u32, u32)>,
    pub(super) config: Config,
    /// `next` when `dup_acks` was last reset.
    compressed_next: u64,
    /// SACK blocks, the newest first: low 32 bits of segment numbers, which are within a window of
    /// `next`.
    sacks: [(u32, u32); SACKS],
}

impl Receiver {
    /// A receiver that waits for the first segment.
    pub fn new(flow: FlowId, config: Config) -> Self {
        Self {
            next: config.first,
            acked: config.first,
            ts_recent: 0,
            ce: 0,
            last_arrival: Instant::ZERO,
            delack_at: NEVER,
            compressed_at: NEVER,
            quick: MAX_QUICKACKS,
            compressed: 0,
            dup_acks: 0,
            sack_count: 0,
            echo: false,
            ce_state: false,
            ect_seen: false,
            ack_now: false,
            until_sample: 0,
            compressed_next: config.first,
            config,
            flow,
            dsack: None,
            sacks: [(0, 0); SACKS],
            ranges: Vec::new(),
        }
    }

    /// The flow it belongs to.
    pub fn flow(&self) -> FlowId {
        self.flow
    }

    /// Number of segments that arrived, each counted once: those before the first hole, and all.
    pub fn segments(&self) -> (u64, u64) {
        let before = self.next - self.config.first;
        let behind: u64 = self.ranges.iter().map(|r| r.1 - r.0).sum();
        (before, before + behind)
    }

    /// Number of the segment behind the highest that arrived.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(self.next, |r| r.1)
    }

    /// Time at which a pending ACK must be sent; `NEVER`: none is pending.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.delack_at.min(self.compressed_at)
    }

    /// Handles a segment. Returns an ACK for earlier segments only, if one is needed (DCTCP's, for
    /// the state before this segment); `ack_due` tells whether this segment needs one.
    #[inline(always)]
    pub fn on_data(&mut self, now: Instant, p: &Pkt) -> Option<Ack> {
        let before = if p.ecn() == Ecn::NotEct && !self.ect_seen {
            None
        } else {
            self.on_ecn(p)
        };
        if p.seq == num::low_u32(self.next) {
            self.on_gap(now);
            // RFC 7323, section 4.3: the timestamp of the segment that spans the last ACK.
            self.ts_recent = if self.next == self.acked {
                p.tsval
            } else {
                self.ts_recent
            };
            self.next += 1;
            if !self.ranges.is_empty() {
                self.fill();
            }
            // The application reads all data at once, so a pushed segment is acknowledged
            // immediately (`tcp_cleanup_rbuf`).
            self.ack_now |= p.push() & self.ranges.is_empty();
            return before;
        }
        let seq = expand(self.next, p.seq);
        if seq < self.next {
            if seq <= self.acked {
                self.ts_recent = p.tsval;
            }
            self.dsack = Some((num::low_u32(seq), num::low_u32(seq + 1)));
            self.quick = self.quick.max(MAX_QUICKACKS);
            self.ack_now = true;
        } else {
            self.on_gap(now);
            self.out_of_order(seq);
        }
        before
    }

    /// `tcp_event_data_recv`: quick ACKs after a long silence, as at the start.
    #[inline]
    fn on_gap(&mut self, now: Instant) {
        // A select instead of a branch: if a thousand flows share a link, every second gap is a
        // long one.
        let silent = now - self.last_arrival > self.config.quiet;
        self.quick = self.quick.max(if silent { MAX_QUICKACKS } else { 0 });
        self.last_arrival = now;
    }

    #[inline(never)]
    fn on_ecn(&mut self, p: &Pkt) -> Option<Ack> {
        let ce = p.ecn() == Ecn::Ce;
        self.ce = self.ce.wrapping_add(ce.into());
        self.ect_seen = true;
        self.ack_now |= p.cwr(); // the sender's window may be tiny (`tcp_ecn_accept_cwr`)
        match self.config.ecn {
            EcnMode::Classic => {
                self.echo &= !p.cwr();
                if p.ecn() == Ecn::NotEct {
                    self.quick = self.quick.max(2); // after ECT: probably a retransmission
                }
                if ce && !self.echo {
                    self.echo = true;
                    self.quick = self.quick.max(2);
                }
            }
            EcnMode::Dctcp => {
                // RFC 8257, section 3.2: when CE changes, a pending ACK is sent first, with the old
                // state.
                if ce != self.ce_state {
                    let owes = self.delack_at != NEVER;
                    self.echo = self.ce_state;
                    let ack = owes.then(|| self.ack());
                    self.ce_state = ce;
                    self.echo = ce;
                    self.ack_now = true;
                    return ack;
                }
            }
            EcnMode::Accurate => {}
        }
        None
    }

    /// Handles a segment that fills the first hole or the start of it, and removes the SACK blocks
    /// below `next`.
    #[cold]
    fn fill(&mut self) {
        if self.ranges[0].0 <= self.next {
            self.next = self.next.max(self.ranges[0].1);
            self.ranges.remove(0);
            if self.ranges.is_empty() {
                self.ack_now = true; // RFC 5681, section 4.2
            }
        }
        let (next, mut kept) = (self.next, 0);
        for i in 0..usize::from(self.sack_count) {
            if expand(next, self.sacks[i].0) >= next {
                self.sacks[kept] = self.sacks[i];
                kept += 1;
            }
        }
        self.sack_count = num::low_u8(kept as u64);
    }

    #[cold]
    fn out_of_order(&mut self, seq: u64) {
        let place = match self.ranges.last() {
            // It usually follows all others, which saves the search.
            Some(last) if last.1 <= seq => self.ranges.len() - usize::from(last.1 == seq),
            _ => self.ranges.partition_point(|r| r.1 < seq),
        };
        let block = match self.ranges.get_mut(place) {
            Some(r) if seq >= r.0 && seq < r.1 => {
                self.dsack = Some((num::low_u32(seq), num::low_u32(seq + 1)));
                self.quick = self.quick.max(MAX_QUICKACKS);
                self.ack_now = true;
                return;
            }
            Some(r) if r.1 == seq => {
                r.1 = seq + 1;
                if let Some(&next) = self.ranges.get(place + 1)
                    && next.0 == seq + 1
                {
                    self.ranges[place].1 = next.1;
                    self.ranges.remove(place + 1);
                }
                self.ranges[place]
            }
            Some(r) if r.0 == seq + 1 => {
                r.0 = seq;
                *r
            }
            _ => {
                self.ranges.insert(place, (seq, seq + 1));
                (seq, seq + 1)
            }
        };
        // RFC 2018, section 4: the block of the segment just received comes first.
        let (mut kept, old, count) = (1, self.sacks, usize::from(self.sack_count));
        for s in &old[..count] {
            let (start, end) = (expand(block.0, s.0), expand(block.0, s.1));
            let inside = start >= block.0 && end <= block.1;
            if !inside && kept < SACKS {
                self.sacks[kept] = *s;
                kept += 1;
            }
        }
        self.sacks[0] = (num::low_u32(block.0), num::low_u32(block.1));
        self.sack_count = num::low_u8(kept as u64);
    }

    /// To be called after `on_data`: whether an ACK must be sent now. If not, a pending ACK has a
    /// deadline.
    #[inline(always)]
    pub fn ack_due(&mut self, now: Instant) -> bool {
        // Which of the three conditions holds varies; one branch on all of them is predicted
        // better.
        if (self.next - self.acked >= u64::from(self.config.delack))
            | (self.quick > 0)
            | self.ack_now
        {
            return true;
        }
        if self.ranges.is_empty() {
            if self.delack_at == NEVER {
                self.delack_at = now + self.config.delack_timeout;
            }
            return false;
        }
        self.compress(now)
    }

    /// `__tcp_ack_snd_check` with a hole: the first three segments are acknowledged immediately;
    /// then there is one ACK per 45 segments or at `compressed_at`.
    fn compress(&mut self, now: Instant) -> bool {
        if !self.config.sack || self.compressed >= COMPRESSED {
            return true;
        }
        if self.compressed_next != self.next {
            self.compressed_next = self.next;
            self.dup_acks = 0;
        }
        if self.dup_acks < 3 {
            self.dup_acks += 1;
            return true;
        }
        self.compressed += 1;
        if self.compressed_at == NEVER {
            let delay = COMPRESSION_DELAY.min(self.config.rtt / 3);
            self.compressed_at = now + delay + COMPRESSION_SLACK;
        }
        false
    }

    /// Returns the ACK to be sent now.
    pub fn ack(&mut self) -> Ack {
        let mut ack = Ack::default();
        self.write_ack(&mut ack);
        ack
    }

    /// Writes the ACK to be sent now to its final place: copying an ACK that was just written in
    /// small parts would stall the processor.
    #[inline]
    pub fn write_ack(&mut self, ack: &mut Ack) {
        self.quick = self.quick.saturating_sub(1);
        self.acked = self.next;
        self.delack_at = NEVER;
        self.compressed_at = NEVER;
        self.compressed = 0;
        self.ack_now = false;
        ack.flow = self.flow;
        ack.cumulative = num::low_u32(self.next);
        ack.tsval = 0;
        ack.tsecr = self.ts_recent;
        ack.ce = self.ce;
        ack.count = 0;
        ack.dsack = false;
        ack.ece = self.echo;
        ack.syn = false;
        if self.config.sack && (self.sack_count > 0 || self.dsack.is_some()) {
            self.blocks(ack);
        }
        self.dsack = None;
    }

    #[cold]
    fn blocks(&mut self, ack: &mut Ack) {
        let [first, second, third, _] = self.sacks;
        (ack.blocks, ack.dsack) = match self.dsack {
            Some(block) => ([block, first, second], true),
            None => ([first, second, third], false),
        };
        ack.count = (self.sack_count + u8::from(ack.dsack)).min(num::low_u8(SACK_BLOCKS as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Kind;

    fn receiver() -> Receiver {
        let mut r = Receiver::new(
            FlowId::default(),
            Config {
                first: 0,
                delack: 2,
                delack_timeout: 40 * MS,
                sack: true,
                ecn: EcnMode::Classic,
                rtt: 20 * MS,
                quiet: 220 * MS,
            },
        );
        for seq in 0..16 {
            assert!(
                get(&mut r, Instant::ZERO, seq).is_some(),
                "a quick ACK for each of the first 16 segments"
            );
        }
        r
    }

    fn get(r: &mut Receiver, now: Instant, seq: u32) -> Option<Ack> {
        let p = Pkt::new(
            Kind::Data,
            FlowId::default(),
            0,
            seq,
            1514,
            1448,
            Ecn::NotEct,
        );
        r.on_data(now, &p);
        r.ack_due(now).then(|| r.ack())
    }

    #[test]
    fn every_second_segment_is_acknowledged_and_a_lone_one_after_40_ms() {
        let mut r = receiver();
        assert!(get(&mut r, Instant::ZERO, 16).is_none());
        assert_eq!(r.deadline(), Instant::from_millis(40));
        assert_eq!(
            get(&mut r, Instant::from_millis(1), 17).unwrap().cumulative,
            18
        );
        assert_eq!(r.deadline(), NEVER);
    }

    #[test]
    fn the_newest_block_comes_first_and_blocks_merge() {
        let mut r = receiver();
        assert_eq!(get(&mut r, Instant::ZERO, 18).unwrap().blocks[0], (18, 19));
        let ack = get(&mut r, Instant::ZERO, 20).unwrap();
        assert_eq!(
            (ack.count, ack.blocks[0], ack.blocks[1]),
            (2, (20, 21), (18, 19))
        );
        let ack = get(&mut r, Instant::ZERO, 19).unwrap();
        assert_eq!((ack.count, ack.blocks[0]), (1, (18, 21)));
    }

    #[test]
    fn filling_the_last_hole_is_acknowledged_at_once() {
        let mut r = receiver();
        get(&mut r, Instant::ZERO, 17);
        let ack = get(&mut r, Instant::ZERO, 16).unwrap();
        assert_eq!((ack.cumulative, ack.count), (18, 0));
    }

    #[test]
    fn a_duplicate_is_reported_by_dsack() {
        let mut r = receiver();
        let ack = get(&mut r, Instant::ZERO, 3).unwrap();
        assert!(ack.dsack);
        assert_eq!(ack.blocks[0], (3, 4));
    }

    #[test]
    fn acks_of_a_hole_are_compressed_after_the_third() {
        let mut r = receiver();
        for k in 0..3 {
            assert!(get(&mut r, Instant::ZERO, 17 + k).is_some());
        }
        assert!(get(&mut r, Instant::ZERO, 20).is_none());
        assert_eq!(r.deadline(), Instant::from_micros(1100));
    }
}
