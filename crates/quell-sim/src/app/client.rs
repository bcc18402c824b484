//! A client of a server over TCP: it resolves a name, connects with TLS and requests objects. A
//! model decides what it requests, and when.
//!
//! The client sends each message as a single packet upstream. It repeats a name query that is not
//! answered in time, and any other message that does not reach the server in time. Responses are
//! whole segments of the simulated TCP.

use std::collections::VecDeque;

use quell_link::hist::Hist;
use quell_link::record::Application;
use quell_qdisc::time::{Duration, Instant, NEVER, SEC};

use super::page::Reader;
use super::probe::Prober;
use super::video::Player;
use super::{Action, Event};
use crate::packet::FlowId;
use crate::path::Path;
use crate::scenario::Tcp;

/// IP bytes of a name query, of its answer, of a TLS ClientHello and of a request.
pub const QUERY: u32 = 70;
pub const ANSWER: u32 = 130;
pub const HELLO: u32 = 569;
pub const REQUEST: u32 = 500;
/// Number of segments of a TLS server's answer, certificates included.
pub const CERTIFICATES: u64 = 3;
/// The retransmission timeout before the first RTT sample (RFC 6298, section 2).
pub const INITIAL_TIMEOUT: Duration = SEC;

/// The model that decides what a client requests.
#[derive(Clone, Debug)]
pub enum Model {
    /// Web pages.
    Page(Reader),
    /// A video stream.
    Video(Player),
    /// Responsiveness probes.
    Probe(Prober),
}

impl Model {
    pub fn on(&mut self, now: Instant, event: Event, measuring: bool, todo: &mut Vec<Action>) {
        match self {
            Model::Page(reader) => reader.on(now, event, measuring, todo),
            Model::Video(player) => player.on(now, event, measuring, todo),
            Model::Probe(prober) => prober.on(now, event, measuring, todo),
        }
    }

    pub fn wake_at(&self) -> Instant {
        match self {
            Model::Page(reader) => reader.wake_at,
            Model::Video(player) => player.wake_at,
            Model::Probe(prober) => prober.wake_at,
        }
    }

    /// The user's experience; `loaded` gives the RTTs of bulk transfers.
    pub fn result(&self, now: Instant, loaded: impl FnOnce() -> Hist) -> Option<Application> {
        match self {
            Model::Page(reader) => reader.result(),
            Model::Video(player) => player.result(now),
            Model::Probe(prober) => prober.result(&loaded()),
        }
    }
}

/// A message to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A name query.
    Query,
    /// A TLS ClientHello: number of the connection.
    Hello(u8),
    /// A request for an object: number of the connection, segments of the response.
    Request(u8, u64),
}

#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub serial: u32,
    pub what: MessageKind,
    /// Time at which it is repeated; each repetition doubles the timeout.
    pub due: Instant,
    pub timeout: Duration,
}

/// A connection to the server.
#[derive(Clone, Debug)]
pub struct Link {
    pub number: u8,
    /// Slot of its TCP in the flow table.
    pub slot: u16,
    /// Whether TLS is established.
    pub ready: bool,
    /// Whether the ClientHello has been sent.
    pub hello_sent: bool,
    /// For each response that is not complete, the number of the segment after its last one.
    pub ends: VecDeque<u64>,
}

/// A client with its server.
#[derive(Clone, Debug)]
pub struct Client {
    pub id: FlowId,
    pub report: u16,
    pub model: Model,
    pub tcp: Tcp,
    pub path: Path,
    /// Flow hashes of the answers to name queries and of the messages.
    pub hashes: [u32; 2],
    pub stop: Instant,
    /// Serial number of the next message.
    pub next: u32,
    /// Messages that may have to be repeated.
    pub messages: Vec<Message>,
    pub links: Vec<Link>,
    /// Actions that the model has requested and that have not been carried out.
    pub todo: Vec<Action>,
    /// Whether it has stopped.
    pub has_stopped: bool,
}

impl Client {
    /// A client that has sent nothing yet.
    pub fn new(
        id: FlowId,
        report: u16,
        model: Model,
        tcp: Tcp,
        path: Path,
        hashes: [u32; 2],
        stop: Instant,
    ) -> Self {
        Self {
            id,
            report,
            model,
            tcp,
            path,
            hashes,
            stop,
            next: 0,
            messages: Vec::new(),
            links: Vec::new(),
            todo: Vec::new(),
            has_stopped: false,
        }
    }

    /// The last port of a message to the server (`up`) or from it.
    pub fn last_port(&self, up: bool) -> u8 {
        match up {
            true => self.path.acks.map_or(0, |acks| acks.1),
            false => self.path.data.1,
        }
    }

    /// The wire on which its messages reach the server.
    pub fn server_wire(&self) -> u16 {
        self.path.acks_return_wire
    }

    /// Time of its next timer: a repetition, the model's `wake_at` or `stop`.
    pub fn wake_at(&self) -> Instant {
        if self.has_stopped {
            return NEVER;
        }
        let due = self.messages.iter().map(|m| m.due);
        due.fold(self.model.wake_at(), Instant::min).min(self.stop)
    }

    pub fn link(&mut self, number: u8) -> Option<&mut Link> {
        self.links.iter_mut().find(|l| l.number == number)
    }
}
