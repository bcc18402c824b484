//! Applications: what their users experience of the packets that flows carry.
//! docs/explanation/applications.md has the models' sources.

pub mod call;
pub mod client;
pub mod emodel;
pub mod game;
pub mod page;
pub mod ping;
pub mod probe;
pub mod video;
pub mod video_call;

use quell_link::record::Application;
use quell_qdisc::Nanos;

use crate::scenario::FlowKind;
use call::Listener;
use game::Match;
use video_call::Ends;

/// What happens to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time that it set is there.
    Wake,
    /// The server's address is known.
    Resolved,
    /// TCP's handshake is done.
    Opened(u8),
    /// A connection is ready for requests.
    Connected(u8),
    /// The oldest object that was asked for on a connection is there.
    Received(u8),
}

/// What a model wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The server's address.
    Resolve,
    /// A connection of this number.
    Connect(u8),
    /// So many bytes on a connection.
    Fetch(u8, u64),
    /// An end to one connection.
    HangUp(u8),
    /// An end to all connections and requests.
    Close,
}

/// Which way a datagram of an application goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As its flow: to the user, where that goes down.
    There = 0,
    /// The other way.
    Back = 1,
}

/// One application that runs.
#[derive(Clone, Debug)]
pub struct App {
    /// Places of its flows' results, one for each way.
    pub reports: [u16; 2],
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Call(Box<[Listener; 2]>),
    Game(Box<Match>),
    VideoCall(Box<Ends>),
    /// Slot of the flow table in which the client is.
    Client(u16),
}

impl App {
    /// The application of such a flow, which has not begun; `None` if it is no application.
    pub fn new(kind: &FlowKind, reports: [u16; 2]) -> Option<Self> {
        let state = match kind {
            FlowKind::Call(call) => {
                State::Call(Box::new([(); 2].map(|()| Listener::new(call.codec))))
            }
            FlowKind::Game(_) => State::Game(Box::default()),
            FlowKind::VideoCall(_) => State::VideoCall(Box::default()),
            _ => return None,
        };
        Some(Self { reports, state })
    }

    /// One whose client is in this slot of the flow table.
    pub fn of_client(report: u16, slot: u16) -> Self {
        Self {
            reports: [report; 2],
            state: State::Client(slot),
        }
    }

    /// The slot of its client, if it has one.
    pub fn client(&self) -> Option<u16> {
        match self.state {
            State::Client(slot) => Some(slot),
            _ => None,
        }
    }

    /// A datagram leaves.
    pub fn sent(&mut self, way: Way, serial: u32) {
        if let (State::Game(game), Way::There) = (&mut self.state, way) {
            game.state_sent(serial);
        }
    }

    /// The ends of a video call, which decide themselves when they send.
    pub fn ends(&mut self) -> Option<&mut Ends> {
        match &mut self.state {
            State::VideoCall(ends) => Some(ends),
            _ => None,
        }
    }

    /// A datagram has arrived after this delay.
    pub fn arrived(&mut self, way: Way, serial: u32, delay: Nanos, measuring: bool) {
        match (&mut self.state, way) {
            (State::Call(listeners), _) => {
                listeners[way as usize].arrived(serial, delay, measuring);
            }
            (State::Game(game), Way::There) => game.state_arrived(serial, delay, measuring),
            (State::Game(game), Way::Back) => game.command_arrived(delay),
            (State::VideoCall(_) | State::Client(_), _) => {}
        }
    }

    /// What the users experienced up to now, given how many datagrams were sent each way and in
    /// which direction that is; `None` if it did not run.
    pub fn result(
        &self,
        now: Nanos,
        sent: [u64; 2],
        directions: [&'static str; 2],
    ) -> Option<Application> {
        match &self.state {
            State::Call(listeners) => {
                let heard = [0, 1].map(|way| listeners[way].result(sent[way]));
                of_both(heard, directions, |end| [-end.mos.unwrap_or(1.0), 0.0, 0.0])
            }
            State::Game(game) => game.result(sent[0]),
            State::VideoCall(ends) => of_both(ends.results(now), directions, video_call::badness),
            State::Client(_) => None,
        }
    }
}

/// A call is as good as it is for the user who is worse off. Each end is at the place of the way
/// that it receives.
fn of_both(
    results: [Option<Application>; 2],
    directions: [&'static str; 2],
    badness: impl Fn(&Application) -> [f64; 3],
) -> Option<Application> {
    let ends = results.into_iter().zip(directions);
    let ends: Vec<_> = ends
        .filter_map(|(end, direction)| {
            Some(Application {
                direction: direction.to_owned(),
                ..end?
            })
        })
        .collect();
    let is_worse = |a: &Application, b: &Application| badness(a) > badness(b);
    let mut worst = ends.first()?;
    if let Some(other) = ends.get(1).filter(|other| is_worse(other, worst)) {
        worst = other;
    }
    Some(Application {
        direction: String::new(),
        ends: ends.clone(),
        ..worst.clone()
    })
}
