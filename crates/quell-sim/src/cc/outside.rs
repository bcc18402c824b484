//! A congestion control that another crate brings: events in, a window out.
//!
//! All else the sender does as for every other: it finds and resends what is lost (RFC 8985),
//! reacts once per round trip, comes down to the window that `on_congestion` left by proportional
//! rate reduction (RFC 6937), and undoes a reduction that proved spurious. Windows and counts are
//! packets of one MSS.

use std::fmt::{self, Debug};
use std::sync::Arc;

use quell_qdisc::{NEVER, Nanos, SEC, num};

use super::{CaState, EcnMode, Event, Ops, RateSample, Sock};

/// What an ACK told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    /// When it arrived.
    pub now: Nanos,
    /// Packets that it newly acknowledges, by SACK too.
    pub delivered: u32,
    /// Of these, packets with CE: those that the receiver counted where ECN is
    /// [`EcnMode::Accurate`], else all if the ACK has ECE.
    pub marked: u32,
    /// Packets newly found lost.
    pub lost: u32,
    /// Round trip of the newest packet among them that was sent once.
    pub rtt: Option<Nanos>,
    /// Smoothed round trip.
    pub srtt: Nanos,
    /// Lowest round trip so far.
    pub min_rtt: Nanos,
    /// Packets in flight now.
    pub in_flight: u32,
    /// Rate at which packets were delivered over the last round trip, bytes of payload per second.
    pub rate: Option<u64>,
    /// The window held the sender back in the last round; one that did not should not grow.
    pub window_limited: bool,
    /// `rate` is from a time in which the application had too little to send.
    pub app_limited: bool,
    /// A reduction is under way: the sender takes the window only when it is over.
    pub reducing: bool,
}

/// Why the window must shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Packets were lost.
    Loss,
    /// Packets were marked, or a tail loss probe repaired a loss, which Linux answers alike.
    Mark,
    /// The retransmission timer fired: everything in flight counts as lost.
    Timeout,
}

/// A sign of congestion, at most one per round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sign {
    /// When it was noticed.
    pub now: Nanos,
    /// What it is.
    pub cause: Cause,
    /// The window until now.
    pub window: u32,
    /// Packets in flight.
    pub in_flight: u32,
    /// Smoothed round trip.
    pub srtt: Nanos,
}

/// The congestion control of one connection.
pub trait Congestion: Debug + Send + Sync + CloneCongestion {
    /// The window that it wants now; 0 counts as 1. Asked for after each event.
    fn window(&self) -> u32;

    /// Bytes of payload per second at which packets are to leave; `None`: as the window allows.
    /// Whether it paces at all is asked once, before the connection starts.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// How ECN works for a flow that negotiates it.
    fn ecn(&self) -> EcnMode {
        EcnMode::Classic
    }

    /// The connection is established; `window` is the initial window (`iw`) of its scenario, `mss`
    /// the payload of a packet.
    fn on_start(&mut self, _now: Nanos, _window: u32, _mss: u32) {}

    /// An ACK arrived. Where it shows congestion, `on_congestion` came before.
    fn on_ack(&mut self, ack: &Acked);

    /// There is a sign of congestion.
    fn on_congestion(&mut self, sign: &Sign);

    /// The last reduction was for nothing: what counted as lost had arrived. `window` is that from
    /// before it.
    fn on_spurious(&mut self, _window: u32) {}
}

/// Clones a congestion control behind its trait.
pub trait CloneCongestion {
    /// The same state again.
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

/// A name, and what makes the congestion control of a connection.
#[derive(Clone)]
pub struct Factory {
    name: Arc<str>,
    make: Arc<dyn Fn() -> Box<dyn Congestion> + Send + Sync>,
}

impl Factory {
    /// `name` is what records call it; `make` is called for each connection.
    pub fn new<C: Congestion + 'static>(
        name: &str,
        make: impl Fn() -> C + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            make: Arc::new(move || Box::new(make())),
        }
    }

    /// What records call it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Equal: the same name and the very same factory.
impl PartialEq for Factory {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.make, &other.make)
    }
}

/// The congestion control between its own trait and the sender's hooks.
#[derive(Clone, Debug)]
pub struct Outside {
    congestion: Box<dyn Congestion>,
    /// The sender began a reduction, and has not said yet why.
    reduces: bool,
    /// `Sock::delivered_ce` at the last ACK.
    marked: u64,
}

impl Outside {
    /// For a new connection.
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

    /// It has a pacing rate.
    pub fn paces(&self) -> bool {
        self.congestion.pacing_rate().is_some()
    }

    fn window(&self) -> u32 {
        self.congestion.window().max(1)
    }

    fn pace(&self, s: &mut Sock) {
        s.pacing_rate = self.congestion.pacing_rate().map_or(u64::MAX, |r| r.max(1));
    }

    fn congested(&mut self, s: &mut Sock, now: Nanos, cause: Cause) {
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

    /// Everything is known that an ACK tells.
    pub fn acked(&mut self, s: &mut Sock, now: Nanos, rs: &RateSample) {
        let rate = u64::from(s.mss) * u64::from(rs.delivered.max(0).unsigned_abs()) * SEC;
        // Those that one ACK covers are few.
        let marked = num::low_u32(s.delivered_ce - self.marked);
        self.marked = s.delivered_ce;
        self.congestion.on_ack(&Acked {
            now,
            delivered: rs.acked_sacked,
            marked,
            lost: rs.losses,
            rtt: (rs.rtt > 0).then_some(rs.rtt),
            srtt: s.srtt,
            min_rtt: match s.min_rtt {
                NEVER => s.srtt,
                known => known,
            },
            in_flight: s.in_flight(),
            rate: (rs.interval > 0 && rs.delivered > 0).then(|| rate / rs.interval),
            window_limited: s.is_cwnd_limited(),
            app_limited: rs.app_limited,
            reducing: matches!(s.state, CaState::Cwr | CaState::Recovery),
        });
        self.pace(s);
    }
}

impl Ops for Outside {
    fn init(&mut self, s: &mut Sock, now: Nanos, _seed: u64) {
        self.congestion.on_start(now, s.cwnd, s.mss);
        s.cwnd = self.window();
        self.pace(s);
    }

    /// The reason, and with it the threshold, follows with the state.
    fn ssthresh(&mut self, s: &mut Sock, _now: Nanos) -> u32 {
        self.reduces = true;
        s.cwnd
    }

    fn cong_avoid(&mut self, s: &mut Sock, _now: Nanos, _acked: u32) {
        s.cwnd = self.window();
    }

    fn set_state(&mut self, s: &mut Sock, now: Nanos, new: CaState) {
        let cause = match new {
            CaState::Cwr => Cause::Mark,
            CaState::Loss => Cause::Timeout,
            _ => Cause::Loss,
        };
        self.congested(s, now, cause);
    }

    fn event(&mut self, s: &mut Sock, now: Nanos, e: Event) {
        if e == Event::Loss {
            self.congested(s, now, Cause::Timeout);
        }
    }

    fn undo_cwnd(&mut self, s: &mut Sock) -> u32 {
        self.congestion.on_spurious(s.prior_cwnd);
        self.window()
    }
}
