//! The state of a sender, as in Linux's `tcp_sock`. The functions that change it are in the other
//! files of this folder.

use std::collections::VecDeque;

use quell_qdisc::time::{Duration, Instant};
use quell_qdisc::{Ecn, num};

use super::rtt::Rtt;
use super::segments::Segments;
use crate::cc::{Lost, Sock};
use crate::packet::{FlowId, Pkt, SACK_BLOCKS};

/// Destination of a sender's packets.
pub trait Egress {
    /// Sends the packet of `len` bytes that `make` returns.
    fn send(&mut self, now: Instant, len: u32, make: impl FnOnce() -> Pkt);
    /// As `send`, for `count` packets, which `make` returns by number (from 0), if all of them can
    /// be sent at once; otherwise returns false without effect.
    fn send_run(&mut self, now: Instant, len: u32, count: u32, make: impl Fn(u32) -> Pkt) -> bool;
    /// A segment is about to be retransmitted; `sent_once`: its departure, if it was sent only
    /// once.
    fn on_retransmission(&mut self, _now: Instant, _seq: u64, _sent_once: Option<Instant>) {}
}

/// The parameters of a new sender.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Config {
    /// The flow it belongs to.
    pub flow: FlowId,
    /// Flow hash of its packets.
    pub hash: u32,
    /// Maximum payload of a segment, bytes.
    pub mss: u32,
    /// Size of a full segment on its first link, bytes.
    pub wire_bytes: u32,
    /// Number of the segment behind the last one; `u64::MAX`: the flow has no end.
    pub end: u64,
    /// Time in which the application offers one segment; 0: all are offered at once.
    pub offer_time: Duration,
    /// ECN field of new data.
    pub ect: Ecn,
    /// Receive window, segments.
    pub window: u32,
    /// Difference of the last segment's payload from a full one, bytes.
    pub last_short: u32,
    /// Whether to use SACK with RACK-TLP.
    pub sack: bool,
    /// Whether to use limited transmit (RFC 3042).
    pub limited_transmit: bool,
    /// Whether to pace: to spread each window over the round-trip time.
    pub pacing: bool,
    /// Number of the first segment: 0, except in tests of the wrap of 32 bits.
    pub first: u64,
    /// Initial window, segments.
    pub iw: u32,
}

/// The sending half of a connection.
///
/// The fields keep this order, those that every packet needs first: with a thousand flows, cache
/// misses dominate the cost of a packet.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Sender {
    /// The state that congestion control reads and sets.
    pub s: Sock,
    /// Times of `timer`, of the next paced packet and of the application's next segment; `NEVER`:
    /// none.
    pub(super) timer_at: Instant,
    pub(super) pace_at: Instant,
    pub(super) offer_at: Instant,
    pub(super) segs: Segments,
    /// Number of the segment behind the highest that was retransmitted.
    pub(super) retrans_end: u64,
    /// `nxt` when the last tail loss probe was sent; 0: none is outstanding.
    pub(super) tlp_high: u64,
    /// Number of the segment behind the 64 KiB buffer that holds the next segment.
    pub(super) buffer_end: u64,
    /// End of the round in which the use of the congestion window is measured.
    pub(super) usage_seq: u64,
    pub(super) timer: Timer,
    /// Number of retransmission timeouts since `una` last advanced.
    pub(super) timeouts: u8,
    /// Number of times that the RTO has doubled.
    pub(super) backoff: u8,
    pub(super) connected: bool,
    /// Whether the next new segment has the CWR flag.
    pub(super) cwr: bool,
    /// Whether F-RTO is in progress.
    pub(super) frto: bool,
    /// Whether the last tail loss probe was a retransmission.
    pub(super) tlp_retrans: bool,
    /// Whether there is no ECN, no rate sample and no congestion control with full control, so that
    /// an ordinary ACK can take the short path.
    pub(super) plain: bool,
    pub(super) rate: Option<Box<RateRing>>,
    pub(super) c: Config,
    /// Estimator of RTT and RTO.
    pub rtt: Rtt,
    pub(super) rack: Rack,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Retransmissions in the order of their departure, with its time; only with SACK.
    pub(super) retrans_queue: VecDeque<(u64, Instant)>,
    /// Time of the connection's start.
    pub(super) started: Instant,
    /// Time of the first retransmission of a recovery; 0: none.
    pub(super) retrans_stamp: Instant,
    /// `nxt` when the last Disorder, CWR, Recovery or Loss began (F-RTO moves it).
    pub(super) high_seq: u64,
    /// `una` when the reduction of the window began that may be undone; `None`: there is none.
    pub(super) undo_marker: Option<u64>,
    /// Number of retransmissions that no D-SACK has reported yet; -1: there were none.
    pub(super) undo_retrans: i32,
    /// Number of duplicate ACKs that mean a loss without SACK.
    pub(super) reordering: u32,
    /// Threshold before the reduction of the window; 0: an undo restores neither of them.
    pub(super) prior_ssthresh: u32,
    /// Segments delivered and sent during the reduction (RFC 6937).
    pub(super) prr_delivered: u32,
    pub(super) prr_out: u32,
    /// No segment below this one is to be retransmitted.
    pub(super) hint: u64,
    /// SACK blocks of the last ACK, in 32 bits; cleared once no segment is SACKed.
    pub(super) seen: [(u32, u32); SACK_BLOCKS],
    /// Number of CE marks in the last ACK (accurate ECN feedback).
    pub(super) ce_seen: u32,
    /// The receiver's clock in the last ACK, which segments echo.
    pub(super) ts_recent: u32,
}

/// Findings about one ACK (the FLAG_ bits of `tcp_ack`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    /// New segments were acknowledged cumulatively.
    pub acked: bool,
    /// New segments were SACKed.
    pub sacked: bool,
    /// Never-retransmitted segments below `high_seq` arrived.
    pub orig_sacked: bool,
    /// Some of the acknowledged segments had been retransmitted.
    pub retrans_acked: bool,
    pub ece: bool,
    pub dsack: bool,
    /// The D-SACK answers the tail loss probe.
    pub dsack_tlp: bool,
    /// A retransmission was lost.
    pub lost_retrans: bool,
    /// The timer must be set again.
    pub set_timer: bool,
    pub prior_una: u64,
    pub tsecr: u32,
}

/// What to send after an ACK (`REXMIT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rexmit {
    /// No retransmission.
    None,
    /// The segments marked lost.
    Lost,
    /// New data, if there are any (F-RTO).
    New,
}

/// Kind of the event that the sender's one timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// No event.
    None,
    /// Retransmission timeout.
    Rto,
    /// Tail loss probe.
    Probe,
    /// RACK's reordering window.
    Reorder,
}

/// Departure times of the first and the last of the newly SACKed segments that were sent only once;
/// 0: none.
#[derive(Clone, Copy, Default)]
pub(super) struct SackTimes {
    pub first: Instant,
    pub last: Instant,
}

/// State of RACK: the most recently sent segment that was delivered, and the reordering window.
#[derive(Clone, Debug)]
pub struct Rack {
    /// Departure time of that segment.
    pub(super) sent: Instant,
    /// RTT of the last segment delivered.
    pub(super) rtt: Duration,
    /// Number of the segment behind that segment.
    pub(super) end: u64,
    /// Segments below this one that were sent once need no check.
    pub(super) edge: u64,
    /// `nxt` when the reordering window was last widened.
    pub(super) round: u64,
    /// Width of the reordering window, in quarters of the lowest RTT.
    pub(super) steps: u8,
    /// Number of recoveries for which the widened window still lasts.
    pub(super) persist: u8,
    /// Whether a D-SACK has arrived that has not widened the window yet.
    pub(super) dsack_seen: bool,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            sent: Instant::ZERO,
            rtt: Duration::ZERO,
            end: 0,
            edge: 0,
            round: 0,
            steps: 1,
            persist: 0,
            dsack_seen: false,
        }
    }
}

impl Rack {
    /// `tcp_rack_advance`: notes the delivery of a segment; `end` is the number of the segment
    /// behind it.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant, sent: Instant, end: u64) {
        self.rtt = now - sent;
        if sent > self.sent || sent == self.sent && end > self.end {
            self.sent = sent;
            self.end = end;
        }
    }

    /// Whether the most recently sent segment that was delivered was sent after this one.
    pub(super) fn sent_after(&self, sent: Instant, end: u64) -> bool {
        self.sent > sent || self.sent == sent && self.end > end
    }

    /// Makes detection start again from `una`.
    pub(super) fn restart(&mut self, una: u64) {
        self.edge = una;
    }
}

/// State of the deliveries when a segment was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) first_sent: Instant,
    pub(super) delivered_at: Instant,
    pub(super) delivered: u64,
    /// Packets in flight, this one included.
    pub(super) inflight: u32,
    /// The low 31 bits of `Sock::lost`, and below them one bit: whether the application limited the
    /// sender. With both in one word, a snapshot fits in half a cache line.
    pub(super) lost_limited: u32,
}

impl Snapshot {
    #[inline]
    pub(super) fn app_limited(&self) -> bool {
        self.lost_limited & 1 != 0
    }
}

/// Delivery-rate state, only for congestion controls that use rate samples.
#[derive(Clone, Debug, Default)]
pub struct RateRing {
    pub(super) slots: Vec<Snapshot>,
    pub(super) first_sent: Instant,
    pub(super) delivered_at: Instant,
    pub(super) sample_at: Instant,
    pub(super) sample_end: u64,
    pub(super) sample_lost: u32,
    pub(super) too_much_lost: Option<Lost>,
}

/// TSval, ms, as Linux's; never 0.
#[inline]
pub(crate) fn timestamp(now: Instant) -> u32 {
    num::low_u32(now.as_millis()) + 1
}
