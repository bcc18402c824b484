//! Applications: what their users experience. docs/explanation/applications.md names the models'
//! sources.

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
use quell_qdisc::time::{Duration, Instant};

use crate::scenario::FlowKind;
use call::Listener;
use game::Match;
use video_call::Ends;

/// Input of a client's model (`client::Model`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time that the model has set as `wake_at` has come.
    Wake,
    /// The name of the server is resolved.
    Resolved,
    /// TCP's handshake of a connection is complete.
    Opened(u8),
    /// A connection is ready for requests.
    Connected(u8),
    /// The oldest object requested on a connection has arrived.
    Received(u8),
}

/// Request of a client's model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Resolve the server's name.
    Resolve,
    /// Open a connection with this number.
    Connect(u8),
    /// Request an object: connection, bytes.
    Fetch(u8, u64),
    /// Close a connection.
    HangUp(u8),
    /// Close all connections and cancel all requests.
    Close,
}

/// Direction of an application's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The direction of the flow's data: to the user if the flow's `direction` is `down`.
    There = 0,
    /// The opposite direction.
    Back = 1,
}

/// A running application.
#[derive(Clone, Debug)]
pub struct App {
    /// Indices of the reports of its flows, one per direction.
    pub reports: [u16; 2],
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Call(Box<[Listener; 2]>),
    Game(Box<Match>),
    VideoCall(Box<Ends>),
    /// Slot of the client in the flow table.
    Client(u16),
}

impl App {
    /// The application of a flow of this kind, not yet started; `None` if the kind is not
    /// an application.
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

    /// An application whose client is in this slot of the flow table.
    pub fn of_client(report: u16, slot: u16) -> Self {
        Self {
            reports: [report; 2],
            state: State::Client(slot),
        }
    }

    /// The slot of the client, if there is one.
    pub fn client(&self) -> Option<u16> {
        match self.state {
            State::Client(slot) => Some(slot),
            _ => None,
        }
    }

    /// A datagram is sent.
    pub fn sent(&mut self, way: Way, serial: u32) {
        if let (State::Game(game), Way::There) = (&mut self.state, way) {
            game.state_sent(serial);
        }
    }

    /// The ends of a video call, which decide when they send.
    pub fn ends(&mut self) -> Option<&mut Ends> {
        match &mut self.state {
            State::VideoCall(ends) => Some(ends),
            _ => None,
        }
    }

    /// A datagram has arrived with this one-way delay.
    pub fn arrived(&mut self, way: Way, serial: u32, delay: Duration, measuring: bool) {
        match (&mut self.state, way) {
            (State::Call(listeners), _) => {
                listeners[way as usize].arrived(serial, delay, measuring);
            }
            (State::Game(game), Way::There) => game.state_arrived(serial, delay, measuring),
            (State::Game(game), Way::Back) => game.command_arrived(delay),
            (State::VideoCall(_) | State::Client(_), _) => {}
        }
    }

    /// The users' experience so far; `None` if the application did not run. `sent` has the number
    /// of datagrams sent, and `directions` the directions, both by `Way`. A client's result is that
    /// of its model, so it is `None` here.
    pub fn result(
        &self,
        now: Instant,
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

/// The result of a call: that of the user who is worse off, with the results of both as `ends`.
/// `results` are ordered by the `Way` that the user receives.
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
