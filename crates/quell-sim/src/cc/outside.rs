//! The interface of a congestion control of another crate, which receives events and returns a
//! window.
//!
//! The sender does everything else as usual: it finds and resends lost segments (RFC 8985), reacts
//! once per round trip, reduces to the window set after `on_congestion` by proportional rate
//! reduction (RFC 6937), and undoes a reduction that proved spurious. Windows and counts are
//! packets of one MSS.

use std::fmt::{self, Debug};
use std::sync::Arc;

use quell_qdisc::num;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, SEC};

use super::{CaState, EcnMode, Event, Ops, RateSample, Sock};

/// Content of an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    /// Arrival time.
    pub now: Instant,
    /// Packets newly acknowledged or SACKed.
    pub delivered: u32,
    /// Of these, packets with CE: with [`EcnMode::Accurate`] those that the receiver counted, else
    /// all if the ACK has ECE.
    pub marked: u32,
    /// Packets newly found lost.
    pub lost: u32,
    /// RTT of the newest of these packets that was sent only once.
    pub rtt: Option<Duration>,
    /// Smoothed RTT.
    pub srtt: Duration,
    /// Lowest RTT so far.
    pub min_rtt: Duration,
    /// Packets in flight now.
    pub in_flight: u32,
    /// Delivery rate of payload over the last round trip.
    pub rate: Option<Rate>,
    /// Whether the window limited the sender in the last round; otherwise it should not grow.
    pub window_limited: bool,
    /// Whether `rate` is from a phase in which the application had too little to send.
    pub app_limited: bool,
    /// Whether a reduction is in progress: the sender adopts the window only at its end.
    pub reducing: bool,
}

/// Cause of a window reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Packets were lost.
    Loss,
    /// Packets were marked, or a tail loss probe repaired a loss, which Linux treats alike.
    Mark,
    /// The retransmission timer fired: everything in flight counts as lost.
    Timeout,
}

/// A sign of congestion, at most one per round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sign {
    /// Time of the detection.
    pub now: Instant,
    /// Its cause.
    pub cause: Cause,
    /// Window before the reduction, packets.
    pub window: u32,
    /// Packets in flight.
    pub in_flight: u32,
    /// Smoothed RTT.
    pub srtt: Duration,
}

/// The congestion control of one connection.
pub trait Congestion: Debug + Send + Sync + CloneCongestion {
    /// The current window, packets; 0 counts as 1. Called after each event.
    fn window(&self) -> u32;

    /// Pacing rate of payload; `None`: no pacing. Whether it is `None` is checked
    /// once, before the connection starts.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// Use of ECN by a flow that negotiates it.
    fn ecn(&self) -> EcnMode {
        EcnMode::Classic
    }

    /// The connection is established; `window` is the initial window (`iw`) of its scenario, `mss`
    /// the payload of a packet.
    fn on_start(&mut self, _now: Instant, _window: u32, _mss: u32) {}

    /// An ACK arrived. If it shows congestion, `on_congestion` is called first.
    fn on_ack(&mut self, ack: &Acked);

    /// Congestion was detected; called at most once per round trip.
    fn on_congestion(&mut self, sign: &Sign);

    /// The last reduction was spurious: segments that counted as lost had arrived. `window` is the
    /// window before it.
    fn on_spurious(&mut self, _window: u32) {}
}

/// Clones a congestion control as a trait object.
pub trait CloneCongestion {
    /// A copy with the same state.
    fn clone_box(&self) -> Box<dyn Congestion>;
}

impl<T: Congestion + Clone + 'static> CloneCongestion for T {
    fn clone_box(&self) -> Box<dyn Congestion> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Congestion> {
    fn clone(&self) -> Self {
        self.as_ref().clone_box()
    }
}

/// A name, and a function that makes the congestion control of a connection.
#[derive(Clone)]
pub struct Factory {
    name: Arc<str>,
    make: Arc<dyn Fn() -> Box<dyn Congestion> + Send + Sync>,
}

impl Factory {
    /// A factory; `name` appears in records, and `make` is called for each connection.
    pub fn new<C: Congestion + 'static>(
        name: &str,
        make: impl Fn() -> C + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            make: Arc::new(move || Box::new(make())),
        }
    }

    /// The name in records.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Equal if the name and the function are the same.
impl PartialEq for Factory {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.make, &other.make)
    }
}

/// Adapter from [`Congestion`] to the sender's hooks.
#[derive(Clone, Debug)]
pub struct Outside {
    congestion: Box<dyn Congestion>,
    /// Whether a reduction has begun whose cause is not known yet.
    reduces: bool,
    /// `Sock::delivered_ce` at the last ACK.
    marked: u64,
}

impl Outside {
    /// The congestion control of a new connection.
    pub fn new(factory: &Factory) -> Self {
        Self {
            congestion: (factory.make)(),
            reduces: false,
            marked: 0,
        }
    }

    /// See [`Congestion::ecn`].
    pub fn ecn(&self) -> EcnMode {
        self.congestion.ecn()
    }

    /// Whether it has a pacing rate.
    pub fn paces(&self) -> bool {
        self.congestion.pacing_rate().is_some()
    }

    fn window(&self) -> u32 {
        self.congestion.window().max(1)
    }

    fn pace(&self, s: &mut Sock) {
        let rate = self.congestion.pacing_rate();
        s.pacing_rate = rate.map_or(u64::MAX, |rate| rate.bytes_per_sec().max(1));
    }

    fn congested(&mut self, s: &mut Sock, now: Instant, cause: Cause) {
        if !std::mem::take(&mut self.reduces) {
            return;
        }
        self.congestion.on_congestion(&Sign {
            now,
            cause,
            window: s.cwnd,
            in_flight: s.in_flight(),
            srtt: s.srtt,
        });
        s.ssthresh = self.window();
        self.pace(s);
    }

    /// Passes a processed ACK to the congestion control.
    pub fn acked(&mut self, s: &mut Sock, now: Instant, rs: &RateSample) {
        let rate = u64::from(s.mss) * u64::from(rs.delivered.max(0).unsigned_abs()) * SEC;
        // The number of packets that one ACK covers fits in 32 bits.
        let marked = num::low_u32(s.delivered_ce - self.marked);
        self.marked = s.delivered_ce;
        self.congestion.on_ack(&Acked {
            now,
            delivered: rs.acked_sacked,
            marked,
            lost: rs.losses,
            rtt: (rs.rtt > Duration::ZERO).then_some(rs.rtt),
            srtt: s.srtt,
            min_rtt: match s.min_rtt {
                Duration::MAX => s.srtt,
                known => known,
            },
            in_flight: s.in_flight(),
            rate: (rs.interval > Duration::ZERO && rs.delivered > 0)
                .then(|| Rate::from_bytes_per_sec(rate / rs.interval)),
            window_limited: s.is_cwnd_limited(),
            app_limited: rs.app_limited,
            reducing: matches!(s.state, CaState::Cwr | CaState::Recovery),
        });
        self.pace(s);
    }
}

impl Ops for Outside {
    fn init(&mut self, s: &mut Sock, now: Instant, _seed: u64) {
        self.congestion.on_start(now, s.cwnd, s.mss);
        s.cwnd = self.window();
        self.pace(s);
    }

    /// Returns the present window: `congested` sets the threshold once the change of state shows
    /// the cause.
    fn ssthresh(&mut self, s: &mut Sock, _now: Instant) -> u32 {
        self.reduces = true;
        s.cwnd
    }

    fn cong_avoid(&mut self, s: &mut Sock, _now: Instant, _acked: u32) {
        s.cwnd = self.window();
    }

    fn set_state(&mut self, s: &mut Sock, now: Instant, new: CaState) {
        let cause = match new {
            CaState::Cwr => Cause::Mark,
            CaState::Loss => Cause::Timeout,
            _ => Cause::Loss,
        };
        self.congested(s, now, cause);
    }

    fn event(&mut self, s: &mut Sock, now: Instant, e: Event) {
        if e == Event::Loss {
            self.congested(s, now, Cause::Timeout);
        }
    }

    fn undo_cwnd(&mut self, s: &mut Sock) -> u32 {
        self.congestion.on_spurious(s.prior_cwnd);
        self.window()
    }
}
