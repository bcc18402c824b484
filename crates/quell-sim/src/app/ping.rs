//! Echo requests of a router to reflectors: up through its shaper and modem, and back down. The
//! answers are what controllers of a shaper's rate decide by ([`Echo`]); records do not show them.

use quell_qdisc::{Ecn, NEVER, Nanos, Rng};

use crate::packet::{FlowId, Kind, Pkt};
use crate::path::Path;
use crate::scenario::Ping;

/// An answer that waits at its reflector.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub at: Nanos,
    /// When the request left, and how long it took to get there, µs.
    pub sent: u32,
    pub up: u32,
}

/// The probes of one reflector.
#[derive(Clone, Debug)]
pub struct Pinger {
    pub id: FlowId,
    pub hash: u32,
    /// The ways up and down.
    pub ways: [Path; 2],
    /// The reflector's number.
    pub number: u32,
    pub ping: Ping,
    /// The next request leaves, and the last before this.
    pub at: Nanos,
    pub stop: Nanos,
    /// The part of the round trip behind the modem, and of this the way to the reflector.
    pub rest: Nanos,
    pub there: Nanos,
    pub answers: Vec<Answer>,
    pub rng: Rng,
}

impl Pinger {
    /// The port that a request, or an answer, passes last.
    pub fn last_port(&self, request: bool) -> u8 {
        self.ways[usize::from(!request)].data.1
    }

    /// When an answer is to leave its reflector next.
    pub fn next(&self) -> Nanos {
        let times = self.answers.iter().map(|answer| answer.at);
        times.min().unwrap_or(NEVER)
    }

    /// A packet on one of the ways.
    pub fn packet(&self, way: usize, overhead: u32) -> Pkt {
        let len = self.ping.size + overhead;
        Pkt::new(Kind::Udp, self.id, self.hash, 0, len, 0, Ecn::NotEct).of_client(way == 0)
    }
}

impl Pkt {
    /// Marks a request against an answer, by the flag that marks clients' messages.
    pub fn of_client(mut self, request: bool) -> Self {
        self.set_flags(request, false);
        self
    }
}
