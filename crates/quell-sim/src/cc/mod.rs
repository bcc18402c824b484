//! Congestion control, one algorithm per file. The hooks and their order are those of Linux's
//! `tcp_congestion_ops`, so that each file can be compared with its kernel counterpart. Sequence
//! numbers count segments of one MSS; windows count packets. Unlike Linux's, sequence numbers and
//! counters of packets have 64 bits and are simply compared; clocks wrap.

pub mod bbr;
pub mod bbr3;
pub mod bic;
mod choice;
pub mod cubic;
pub mod dctcp;
pub mod hystart;
pub mod hystart_plus;
pub mod illinois;
pub mod ledbat;
pub mod ledbat_plus;
pub mod newreno;
pub mod outside;
pub mod prague;
#[cfg(test)]
mod testpath;
pub mod vegas;
pub mod westwood;

use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, MS, US};

pub use bbr::Bbr;
pub use bbr3::Bbr3;
pub use bic::Bic;
pub use choice::Cc;
pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use illinois::Illinois;
pub use ledbat::Ledbat;
pub use ledbat_plus::LedbatPlus;
pub use newreno::NewReno;
pub use outside::{Congestion, Outside};
pub use prague::Prague;
pub use vegas::Vegas;
pub use westwood::Westwood;

/// The largest burst, bytes: 64 KiB with room for headers.
pub const MAX_GSO_BYTES: u64 = 65_536 - 321;

/// The slow-start threshold that means "no limit yet" (`TCP_INFINITE_SSTHRESH`).
pub const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// The sender's state (`tcp_ca_state` of Linux).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum CaState {
    /// No loss, reordering or mark is suspected.
    #[default]
    Open = 0,
    /// Segments were SACKed out of order.
    Disorder = 1,
    /// The window is being reduced after a mark.
    Cwr = 2,
    /// Fast recovery.
    Recovery = 3,
    /// After a retransmission timeout.
    Loss = 4,
}

/// The part of a sender that congestion control reads and writes (`tcp_sock` of Linux).
///
/// The fields keep this order, those that every packet needs first: with a thousand flows, cache
/// misses dominate the cost of a packet.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Sock {
    /// First unacknowledged segment.
    pub una: u64,
    /// Next segment to be sent for the first time.
    pub nxt: u64,
    /// Congestion window, packets.
    pub cwnd: u32,
    /// Linear increase counter (`snd_cwnd_cnt`).
    pub cwnd_cnt: u32,
    /// Slow start threshold, packets.
    pub ssthresh: u32,
    /// Segments SACKed.
    pub sacked_out: u32,
    /// Segments marked lost.
    pub lost_out: u32,
    /// Segments retransmitted and still in flight.
    pub retrans_out: u32,
    /// Payload bytes per segment.
    pub mss: u32,
    /// Maximum of `packets_out` during the last round (`max_packets_out`).
    pub max_packets_out: u32,
    /// Segments delivered so far, each counted once (cumulative).
    pub delivered: u64,
    /// Smoothed RTT; 0 before the first sample.
    pub srtt: Duration,
    /// Lowest RTT, which counts for at most 300 s; [`Duration::MAX`] before the first sample.
    pub min_rtt: Duration,
    /// Time of the last data packet (`lsndtime`).
    pub last_sent: Instant,
    /// State of the sender.
    pub state: CaState,
    /// Whether the window limited the sender during the last round (`is_cwnd_limited`).
    pub cwnd_limited: bool,
    /// Window before the current reduction (`prior_cwnd`).
    pub prior_cwnd: u32,
    /// Pacing rate, bytes per second; `u64::MAX`: unpaced.
    pub pacing_rate: u64,
    /// Delivered segments whose CE mark was echoed (cumulative).
    pub delivered_ce: u64,
    /// Segments marked lost so far (cumulative).
    pub lost: u64,
    /// Application-limited until `delivered` exceeds this; 0: not limited (`app_limited`).
    pub app_limited: u64,
    /// Earliest departure of the next packet (`tcp_wstamp_ns`); in the past or 0: at once.
    pub edt: Instant,
}

impl Sock {
    /// A new connection with the initial window `iw`.
    pub fn new(mss: u32, iw: u32) -> Self {
        Self {
            cwnd: iw,
            cwnd_cnt: 0,
            ssthresh: INFINITE_SSTHRESH,
            prior_cwnd: 0,
            una: 0,
            nxt: 0,
            sacked_out: 0,
            lost_out: 0,
            retrans_out: 0,
            delivered: 0,
            delivered_ce: 0,
            lost: 0,
            app_limited: 0,
            srtt: Duration::ZERO,
            min_rtt: Duration::MAX,
            pacing_rate: u64::MAX,
            mss,
            max_packets_out: 0,
            last_sent: Instant::ZERO,
            edt: Instant::ZERO,
            state: CaState::Open,
            cwnd_limited: false,
        }
    }
    /// Packets sent and not yet cumulatively acknowledged (`packets_out`).
    #[inline]
    pub fn packets_out(&self) -> u32 {
        num::low_u32(self.nxt - self.una)
    }
    /// Packets in flight (`tcp_packets_in_flight`).
    #[inline]
    pub fn in_flight(&self) -> u32 {
        (self.packets_out() + self.retrans_out).saturating_sub(self.sacked_out + self.lost_out)
    }
    /// `tcp_in_slow_start`: whether the window is below the threshold.
    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }
    /// `tcp_is_cwnd_limited`: whether the window may grow: it limited the sender in the last round
    /// or, in slow start, is smaller than twice `max_packets_out`.
    #[inline]
    pub fn is_cwnd_limited(&self) -> bool {
        self.cwnd_limited || (self.in_slow_start() && self.cwnd < 2 * self.max_packets_out)
    }
    /// The pacing rate, or what it would be if the sender paced (`tcp_update_pacing_rate`): two
    /// windows per round in early slow start, 1.2 later.
    #[inline]
    pub fn rate_to_pace_at(&self) -> u64 {
        if self.pacing_rate != u64::MAX {
            return self.pacing_rate;
        }
        let (packets, round) = self.per_round();
        packets * u64::from(self.mss) / round.max(1)
    }
    /// A million times the packets to send in a round (`tcp_update_pacing_rate`), and the duration
    /// of a round, µs.
    #[inline]
    fn per_round(&self) -> (u64, u64) {
        let gain = if self.cwnd < self.ssthresh / 2 {
            2_000_000
        } else {
            1_200_000
        };
        let window = u64::from(self.cwnd).max(self.nxt - self.una);
        (window * gain, self.srtt / US)
    }
    /// Whether the rate is so low and the path so long that `tso_segs` returns 2, found without its
    /// divisions.
    #[inline]
    fn sends_pairs(&self) -> bool {
        let (packets, round) = self.per_round();
        packets < 3 * 1024 * round && self.min_rtt >= 16 * MS + 384 * US
    }
    /// `tcp_slow_start`: grows the window by `acked`, up to the threshold. Returns the part of
    /// `acked` that is left once the threshold is reached.
    #[inline]
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        let cwnd = (self.cwnd + acked).min(self.ssthresh);
        let left = acked - (cwnd - self.cwnd);
        self.cwnd = cwnd;
        left
    }
    /// `tcp_cong_avoid_ai`: growth of one packet per `w` acknowledged.
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

/// Delivery-rate sample of one ACK (`rate_sample` of Linux,
/// draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSample {
    /// `Sock::delivered` when the newest acknowledged segment was sent.
    pub prior_delivered: u64,
    /// Segments delivered over `interval`; negative: no valid sample.
    pub delivered: i32,
    /// The longer of the send and the ACK phase; 0: no valid sample.
    pub interval: Duration,
    /// RTT of the newest segment that this ACK covers and that was sent once; 0: none
    /// (`rs->rtt_us`).
    pub rtt: Duration,
    /// Packets in flight before this ACK.
    pub prior_in_flight: u32,
    /// Segments newly delivered by this ACK (cumulatively or by SACK).
    pub acked_sacked: u32,
    /// Segments newly marked lost by this ACK.
    pub losses: u32,
    /// Segments that were in flight when the newest acknowledged one left, itself included
    /// (`tx_in_flight`).
    pub tx_in_flight: u32,
    /// Segments marked lost since then.
    pub lost: u32,
    /// Of the segments marked lost since the last ACK, the first that was sent with too much in
    /// flight.
    pub too_much_lost: Option<Lost>,
    /// Whether the sample is from an application-limited phase.
    pub app_limited: bool,
    /// Whether the ACK may have been delayed by the receiver's timer; `crate::tcp` never sets it.
    pub ack_delayed: bool,
}

/// A lost segment: of those in flight with it, more than [`bbr3::LOSS_PERCENT`] were lost.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Segments in flight when it was sent, itself included.
    pub inflight: u32,
    /// Segments marked lost since then, itself included.
    pub lost: u32,
    /// Whether it was sent in an application-limited phase.
    pub app_limited: bool,
}

/// ECN feedback of an ACK (`in_ack_event`).
#[derive(Clone, Copy, Debug, Default)]
pub struct AckEvent {
    /// Segments that this ACK newly covers or SACKs.
    pub delivered: u32,
    /// Of these, marked CE (accurate feedback: from the receiver's counter; DCTCP: by ECE).
    pub delivered_ce: u32,
    /// Whether the ACK has ECE, or reports marks by accurate feedback.
    pub ece: bool,
}

/// An event of the sender (`tcp_ca_event`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// First transmission after all data were acknowledged.
    TxStart,
    /// A window reduction is complete.
    CompleteCwr,
    /// A retransmission timeout.
    Loss,
}

/// Use of ECN by a congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnMode {
    /// RFC 3168, if negotiated: ECE until CWR, one reduction per round.
    Classic,
    /// RFC 8257: ECT(0), and the receiver echoes each change of CE instead of latching ECE until
    /// CWR.
    Dctcp,
    /// Accurate feedback and ECT(1) (RFC 9331): the receiver counts CE packets.
    Accurate,
}

/// The hooks of a congestion control, named as in Linux's `tcp_congestion_ops` and called at the
/// same places. `now` is the time of the ACK or timer being processed.
pub trait Ops {
    /// The connection is established. `seed` is for its random numbers, if it draws any.
    fn init(&mut self, _s: &mut Sock, _now: Instant, _seed: u64) {}
    /// Returns the slow start threshold after a loss or mark; called once per reduction.
    fn ssthresh(&mut self, s: &mut Sock, now: Instant) -> u32;
    /// Grows the window, on an ACK outside reductions that newly covers `acked` segments.
    fn cong_avoid(&mut self, _s: &mut Sock, _now: Instant, _acked: u32) {}
    /// The ACK newly covers `acked` segments; `rtt` is its sample, 0 if it has none.
    fn pkts_acked(&mut self, _s: &mut Sock, _now: Instant, _acked: u32, _rtt: Duration) {}
    /// Called for each ACK once its counters are known.
    fn in_ack_event(&mut self, _s: &mut Sock, _now: Instant, _e: &AckEvent) {}
    /// `Sock::state` is about to become `new` (it still holds the old state).
    fn set_state(&mut self, _s: &mut Sock, _now: Instant, _new: CaState) {}
    /// An event of the sender.
    fn event(&mut self, _s: &mut Sock, _now: Instant, _e: Event) {}
    /// Sets window and pacing rate, in place of `cong_avoid` and rate reduction, if
    /// `CongestionControl::full_control`.
    fn cong_control(&mut self, _s: &mut Sock, _now: Instant, _rs: &RateSample) {}
    /// Returns the window after a reduction that proved spurious (`tcp_reno_undo_cwnd`).
    fn undo_cwnd(&mut self, s: &mut Sock) -> u32 {
        s.cwnd.max(s.prior_cwnd)
    }
}

/// A sender's congestion control. Plain data; hooks that run on every ACK are dispatched by
/// `match`.
#[derive(Clone, Debug)]
pub enum CongestionControl {
    /// RFC 5681.
    NewReno(NewReno),
    /// RFC 9438 as in Linux.
    Cubic(Cubic),
    /// BIC: binary increase.
    Bic(Bic),
    /// BBR version 1.
    Bbr(Box<Bbr>),
    /// RFC 8257.
    Dctcp(Dctcp),
    /// TCP Prague: scalable, for L4S.
    Prague(Prague),
    /// Vegas: keeps a few packets in the queue, whose number it infers from the RTT.
    Vegas(Vegas),
    /// Westwood+: Reno, but the measured bandwidth sets the window after losses.
    Westwood(Westwood),
    /// Reno with larger growth and smaller decrease while the queue is short.
    Illinois(Illinois),
    /// RFC 6817.
    Ledbat(Ledbat),
    /// LEDBAT++.
    LedbatPlus(LedbatPlus),
    /// BBR version 3.
    Bbr3(Box<Bbr3>),
    /// A congestion control of another crate.
    Outside(Outside),
}

impl CongestionControl {
    /// The algorithm that a scenario names.
    pub fn new(cc: &Cc) -> Self {
        match *cc {
            Cc::NewReno => Self::NewReno(NewReno),
            Cc::Cubic { rfc9438 } => Self::Cubic(Cubic::new(cubic::Params {
                rfc9438,
                ..cubic::Params::default()
            })),
            Cc::Bic => Self::Bic(Bic::new(bic::Params::linux())),
            Cc::BicNs3 { beta } => Self::Bic(Bic::new(bic::Params::ns3(beta))),
            Cc::Bbr => Self::Bbr(Box::default()),
            Cc::Bbr3 => Self::Bbr3(Box::default()),
            Cc::Dctcp => Self::Dctcp(Dctcp::new()),
            Cc::Prague { rate_scaling } => Self::Prague(Prague::with(match rate_scaling {
                true => prague::VirtualRtt::Rate,
                false => prague::VirtualRtt::Additive,
            })),
            Cc::Vegas => Self::Vegas(Vegas::new(vegas::Params::default())),
            Cc::Westwood => Self::Westwood(Westwood::default()),
            Cc::Illinois => Self::Illinois(Illinois::default()),
            Cc::Ledbat => Self::Ledbat(Ledbat::new()),
            Cc::LedbatPlus => Self::LedbatPlus(LedbatPlus::new()),
            Cc::Outside(ref factory) => Self::Outside(Outside::new(factory)),
        }
    }

    /// The algorithm of a sender with or without ECN: one that needs ECN falls back to NewReno
    /// without it, as in Linux.
    pub fn of(cc: &Cc, ecn: bool) -> Self {
        match cc {
            Cc::Dctcp | Cc::Prague { .. } if !ecn => Self::NewReno(NewReno),
            cc => Self::new(cc),
        }
    }

    /// The algorithm as a trait object, for hooks that are called rarely.
    fn ops(&mut self) -> &mut dyn Ops {
        match self {
            Self::NewReno(c) => c,
            Self::Cubic(c) => c,
            Self::Bic(c) => c,
            Self::Bbr(c) => c.as_mut(),
            Self::Bbr3(c) => c.as_mut(),
            Self::Dctcp(c) => c,
            Self::Prague(c) => c,
            Self::Vegas(c) => c,
            Self::Westwood(c) => c,
            Self::Illinois(c) => c,
            Self::Ledbat(c) => c,
            Self::LedbatPlus(c) => c,
            Self::Outside(c) => c,
        }
    }

    /// See [`Ops::init`].
    pub fn init(&mut self, s: &mut Sock, now: Instant, seed: u64) {
        self.ops().init(s, now, seed);
    }

    /// See [`Ops::ssthresh`].
    pub fn ssthresh(&mut self, s: &mut Sock, now: Instant) -> u32 {
        self.ops().ssthresh(s, now)
    }

    /// See [`Ops::cong_avoid`].
    #[inline]
    pub fn cong_avoid(&mut self, s: &mut Sock, now: Instant, acked: u32) {
        match self {
            Self::NewReno(c) => c.cong_avoid(s, now, acked),
            Self::Cubic(c) => c.cong_avoid(s, now, acked),
            Self::Bic(c) => c.cong_avoid(s, now, acked),
            Self::Dctcp(c) => c.cong_avoid(s, now, acked),
            Self::Vegas(c) => c.cong_avoid(s, now, acked),
            Self::Westwood(c) => c.cong_avoid(s, now, acked),
            Self::Illinois(c) => c.cong_avoid(s, now, acked),
            Self::Ledbat(c) => c.cong_avoid(s, now, acked),
            Self::LedbatPlus(c) => c.cong_avoid(s, now, acked),
            Self::Outside(c) => c.cong_avoid(s, now, acked),
            Self::Bbr(_) | Self::Bbr3(_) | Self::Prague(_) => {}
        }
    }

    /// See [`Ops::pkts_acked`].
    #[inline]
    pub fn pkts_acked(&mut self, s: &mut Sock, now: Instant, acked: u32, rtt: Duration) {
        match self {
            Self::Cubic(c) => c.pkts_acked(s, now, acked, rtt),
            Self::Bic(c) => c.pkts_acked(s, now, acked, rtt),
            Self::Vegas(c) => c.pkts_acked(s, now, acked, rtt),
            Self::Westwood(c) => c.pkts_acked(s, now, acked, rtt),
            Self::Illinois(c) => c.pkts_acked(s, now, acked, rtt),
            Self::Ledbat(c) => c.pkts_acked(s, now, acked, rtt),
            Self::LedbatPlus(c) => c.pkts_acked(s, now, acked, rtt),
            _ => {}
        }
    }

    /// See [`Ops::in_ack_event`].
    #[inline]
    pub fn in_ack_event(&mut self, s: &mut Sock, now: Instant, e: &AckEvent) {
        if let Self::Dctcp(c) = self {
            c.in_ack_event(s, now, e);
        }
    }

    /// See [`Ops::set_state`].
    pub fn set_state(&mut self, s: &mut Sock, now: Instant, new: CaState) {
        self.ops().set_state(s, now, new);
    }

    /// See [`Ops::event`].
    pub fn event(&mut self, s: &mut Sock, now: Instant, e: Event) {
        self.ops().event(s, now, e);
    }

    /// See [`Ops::cong_control`].
    #[inline]
    pub fn cong_control(&mut self, s: &mut Sock, now: Instant, rs: &RateSample) {
        match self {
            Self::Bbr(c) => c.cong_control(s, now, rs),
            Self::Bbr3(c) => c.cong_control(s, now, rs),
            Self::Prague(c) => c.cong_control(s, now, rs),
            _ => {}
        }
    }

    /// An ACK has been processed; only a congestion control from outside uses this.
    #[inline]
    pub fn acked(&mut self, s: &mut Sock, now: Instant, rs: &RateSample) {
        if let Self::Outside(c) = self {
            c.acked(s, now, rs);
        }
    }

    /// See [`Ops::undo_cwnd`].
    pub fn undo_cwnd(&mut self, s: &mut Sock) -> u32 {
        self.ops().undo_cwnd(s)
    }

    /// Whether `cong_control` replaces growth, proportional rate reduction and the end of a
    /// reduction (`tcp_cong_control`, `tcp_end_cwnd_reduction`).
    #[inline]
    pub fn full_control(&self) -> bool {
        matches!(self, Self::Bbr(_) | Self::Bbr3(_) | Self::Prague(_))
    }

    /// Whether code from outside controls it, which may share state between connections.
    pub fn is_outside(&self) -> bool {
        matches!(self, Self::Outside(_))
    }

    /// Whether it uses delivery rate samples. (Of a sample, Prague reads only `acked_sacked`.)
    #[inline]
    pub fn needs_rate_sample(&self) -> bool {
        matches!(self, Self::Bbr(_) | Self::Bbr3(_) | Self::Outside(_))
    }

    /// Whether the sender must pace at `Sock::pacing_rate`.
    #[inline]
    pub fn needs_pacing(&self) -> bool {
        match self {
            Self::Bbr(_) | Self::Bbr3(_) | Self::Prague(_) => true,
            Self::Outside(c) => c.paces(),
            _ => false,
        }
    }

    /// Number of packets in one burst (`tcp_tso_segs`; software segmentation keeps them together
    /// even without offload by the device): what the pacing rate sends in about 1 ms, and more on
    /// short paths; Prague's bursts last 0.25 ms.
    #[inline]
    pub fn tso_segs(&self, s: &Sock) -> u32 {
        if matches!(self, Self::NewReno(_) | Self::Cubic(_)) && s.sends_pairs() {
            return 2;
        }
        let rate = s.rate_to_pace_at();
        let (bytes, min_segments) = match self {
            Self::Prague(_) => return ((rate / u64::from(s.mss)) >> 12).clamp(1, 45) as u32,
            Self::Bbr(_) if rate < bbr::MIN_TSO_RATE => (rate >> 10, 1),
            _ => (rate >> 10, 2),
        };
        // 64 KiB, halved for each half millisecond of the lowest RTT.
        let short = (s.min_rtt / US) >> 9;
        let extra = if short < 32 {
            MAX_GSO_BYTES >> short
        } else {
            0
        };
        ((((bytes + extra).min(MAX_GSO_BYTES)) as u32) / s.mss).max(min_segments)
    }

    /// Whether `tso_segs` is always at least two.
    #[inline]
    pub fn sends_two_at_least(&self) -> bool {
        !matches!(self, Self::Prague(_) | Self::Bbr(_))
    }

    /// Its use of ECN.
    #[inline]
    pub fn ecn_mode(&self) -> EcnMode {
        match self {
            Self::Dctcp(_) => EcnMode::Dctcp,
            Self::Prague(_) => EcnMode::Accurate,
            Self::Outside(c) => c.ecn(),
            _ => EcnMode::Classic,
        }
    }
}

/// Linux's clock for congestion control, ms (`tcp_jiffies32` at HZ = 1000).
#[inline]
pub(crate) fn jiffies(now: Instant) -> u32 {
    num::low_u32(now.as_millis())
}

/// Linux's clock for TCP's measurements, µs (`tcp_mstamp`); wraps after 71 minutes.
#[inline]
pub(crate) fn micros(now: Instant) -> u32 {
    num::low_u32(now.as_micros())
}

/// Whether `a` is before `b` on a clock that wraps.
#[inline]
pub(crate) fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// Whether `a` is after `b` on a clock that wraps.
#[inline]
pub(crate) fn after(a: u32, b: u32) -> bool {
    before(b, a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_senders_congestion_control_is_two_cache_lines_at_most() {
        assert!(size_of::<CongestionControl>() <= 128);
        assert!(size_of::<Sock>() <= 128);
    }

    #[test]
    fn bursts_last_a_millisecond_and_are_two_packets_at_least() {
        let cc = CongestionControl::new(&Cc::NewReno);
        let mut s = Sock {
            ssthresh: 100,
            srtt: Duration::from_millis(20),
            min_rtt: Duration::from_millis(20),
            ..Sock::new(1448, 173)
        };
        // 1.2 * 173 packets in 20 ms are 10.1 per 1/1024 s.
        assert_eq!(cc.tso_segs(&s), 10);
        s.cwnd = 17;
        s.ssthresh = 10;
        assert_eq!(cc.tso_segs(&s), 2);
        // 2 ms >> 9 is 3: an eighth of 64 KiB more.
        s.min_rtt = Duration::from_millis(2);
        assert_eq!(cc.tso_segs(&s), 6);
    }

    #[test]
    fn controls_that_need_ecn_fall_back_to_newreno_without_it() {
        let prague = Cc::Prague {
            rate_scaling: false,
        };
        for cc in [Cc::Dctcp, prague] {
            let with = CongestionControl::of(&cc, true);
            assert_ne!(with.ecn_mode(), EcnMode::Classic);
            let without = CongestionControl::of(&cc, false);
            assert!(matches!(without, CongestionControl::NewReno(_)));
        }
    }
}
