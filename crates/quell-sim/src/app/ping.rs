//! Echo requests of a router to reflectors, upstream through its shaper and modem, and the answers
//! downstream. Controllers of a shaper's rate read the answers. Records contain neither requests
//! nor answers.

use quell_qdisc::time::{Duration, Instant, NEVER};
use quell_qdisc::{Ecn, Rng};

use crate::packet::{FlowId, Kind, Pkt};
use crate::path::Path;
use crate::scenario::Ping;

/// An answer that its reflector will send.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Time at which the reflector sends it.
    pub at: Instant,
    /// Departure of the request from the router, µs.
    pub sent: u32,
    /// One-way delay of the request, µs.
    pub up: u32,
}

/// The probes of one reflector.
#[derive(Clone, Debug)]
pub struct Pinger {
    pub id: FlowId,
    pub hash: u32,
    /// The paths of requests (up) and answers (down).
    pub ways: [Path; 2],
    /// The reflector's number.
    pub number: u32,
    pub ping: Ping,
    /// Time of the next request.
    pub at: Instant,
    /// No request is sent at or after this time.
    pub stop: Instant,
    /// Part of the round trip behind the modem.
    pub rest: Duration,
    /// Part of `rest` on the way to the reflector.
    pub to_reflector: Duration,
    /// Answers that the reflector has not sent yet.
    pub answers: Vec<Answer>,
    pub rng: Rng,
}

impl Pinger {
    /// The last queue on the path of a request or an answer.
    pub fn last_port(&self, request: bool) -> u8 {
        self.ways[usize::from(!request)].data.1
    }

    /// Time of the next answer of the reflector.
    pub fn next(&self) -> Instant {
        let times = self.answers.iter().map(|answer| answer.at);
        times.min().unwrap_or(NEVER)
    }

    /// A request (`way` 0) or an answer (1) with `overhead` link-layer bytes.
    pub fn packet(&self, way: usize, overhead: u32) -> Pkt {
        let len = self.ping.size + overhead;
        Pkt::new(Kind::Udp, self.id, self.hash, 0, len, 0, Ecn::NotEct).of_client(way == 0)
    }
}

impl Pkt {
    /// Marks a request with the flag that clients' messages have.
    pub fn of_client(mut self, request: bool) -> Self {
        self.set_flags(request, false);
        self
    }
}
