//! Congestion control: one algorithm, one file. The hooks and their order are those of Linux's `tcp_congestion_ops`, so that
//! each file can be read beside its kernel twin. Sequence numbers count segments of one MSS; windows count packets.

use quell_qdisc::Nanos;

/// A window that stands for "no limit yet" (`TCP_INFINITE_SSTHRESH`).
pub const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// The sender's state (`tcp_ca_state` of Linux).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum CaState {
    /// Nothing suspicious.
    #[default]
    Open = 0,
    /// Something was SACKed out of order.
    Disorder = 1,
    /// The window is being reduced after a mark.
    Cwr = 2,
    /// Fast recovery.
    Recovery = 3,
    /// After a retransmission timeout.
    Loss = 4,
}

/// The part of a sender that congestion control reads and writes (`tcp_sock` of Linux).
#[derive(Clone, Debug)]
pub struct Sock {
    /// Congestion window, packets.
    pub cwnd: u32,
    /// Linear increase counter (`snd_cwnd_cnt`).
    pub cwnd_cnt: u32,
    /// Slow start threshold, packets.
    pub ssthresh: u32,
    /// Window before the present reduction (`prior_cwnd`).
    pub prior_cwnd: u32,
    /// First unacknowledged segment.
    pub una: u32,
    /// Next segment to be sent for the first time.
    pub nxt: u32,
    /// Segments SACKed, marked lost, and retransmitted and still out.
    pub sacked_out: u32,
    /// See `sacked_out`.
    pub lost_out: u32,
    /// See `sacked_out`.
    pub retrans_out: u32,
    /// Segments delivered so far, each once (cumulative).
    pub delivered: u32,
    /// Of these, those whose CE mark came back (cumulative).
    pub delivered_ce: u32,
    /// Segments marked lost so far (cumulative).
    pub lost: u32,
    /// Application-limited until `delivered` passes this; 0: not (`app_limited`).
    pub app_limited: u32,
    /// Smoothed RTT, ns; 0 before the first sample.
    pub srtt: Nanos,
    /// Lowest RTT seen (Linux: over 300 s), ns; `u64::MAX` before the first sample.
    pub min_rtt: Nanos,
    /// Pacing rate, bytes per second; `u64::MAX`: unpaced.
    pub pacing_rate: u64,
    /// Payload bytes per segment.
    pub mss: u32,
    /// State of the sender.
    pub state: CaState,
    /// The window was what held the sender back during the last round (`is_cwnd_limited`).
    pub cwnd_limited: bool,
}

impl Sock {
    /// Packets in flight (`tcp_packets_in_flight`).
    #[inline]
    pub fn in_flight(&self) -> u32 {
        (self.nxt - self.una + self.retrans_out).saturating_sub(self.sacked_out + self.lost_out)
    }
    /// `tcp_in_slow_start`.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }
    /// `tcp_is_cwnd_limited`: in slow start the window may double what was used.
    #[inline]
    pub fn is_cwnd_limited(&self, max_packets_out: u32) -> bool {
        if self.cwnd_limited {
            true
        } else {
            self.in_slow_start() && self.cwnd < 2 * max_packets_out
        }
    }
    /// `tcp_slow_start`: what is left of `acked` once the threshold is reached.
    #[inline]
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        let cwnd = (self.cwnd + acked).min(self.ssthresh);
        let left = acked - (cwnd - self.cwnd);
        self.cwnd = cwnd;
        left
    }
    /// `tcp_cong_avoid_ai`: one packet more per `w` acknowledged.
    #[inline]
    pub fn additive_increase(&mut self, w: u32, acked: u32) {
        if self.cwnd_cnt >= w {
            self.cwnd_cnt = 0;
            self.cwnd += 1;
        }
        self.cwnd_cnt += acked;
        if self.cwnd_cnt >= w {
            let delta = self.cwnd_cnt / w;
            self.cwnd_cnt -= delta * w;
            self.cwnd += delta;
        }
    }
}

/// What one ACK told about the rate of delivery (`rate_sample` of Linux, draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSample {
    /// `Sock::delivered` when the newest acknowledged segment was sent.
    pub prior_delivered: u32,
    /// Segments delivered over `interval`; negative: no valid sample.
    pub delivered: i32,
    /// The longer of the send and the ACK phase, ns; 0: no valid sample.
    pub interval: Nanos,
    /// RTT of the newest segment that this ACK covers and that was sent once, ns; 0: none (`rs->rtt_us`).
    pub rtt: Nanos,
    /// Packets in flight before this ACK.
    pub prior_in_flight: u32,
    /// Segments newly delivered by this ACK (cumulatively or by SACK).
    pub acked_sacked: u32,
    /// Segments newly marked lost by this ACK.
    pub losses: u32,
    /// The sample is from an application-limited phase.
    pub app_limited: bool,
    /// The ACK may have been delayed by the receiver's timer.
    pub ack_delayed: bool,
}

/// What an ACK says before the scoreboard is touched (`in_ack_event`).
#[derive(Clone, Copy, Debug, Default)]
pub struct AckEvent {
    /// Segments that this ACK newly covers or SACKs.
    pub delivered: u32,
    /// Of these, marked CE (accurate feedback: from the receiver's counter; DCTCP: by ECE).
    pub delivered_ce: u32,
    /// The ACK carried ECE.
    pub ece: bool,
}

/// `tcp_ca_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// First transmission after the pipe was empty.
    TxStart,
    /// A window reduction for a mark is over.
    CompleteCwr,
    /// A retransmission timeout.
    Loss,
}
