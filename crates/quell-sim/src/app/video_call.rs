//! A video call between two people: each end sends pictures as fast as Google Congestion Control
//! lets it, and says what came.
//!
//! One flow each way carries an end's pictures, what it sends again, and its reports about the
//! other way (RFC 8843 and 5761: all on one transport). Sources of the constants are at their
//! places, files without a path are those of libwebrtc.

mod gcc;
mod receiver;
mod sender;

use std::collections::VecDeque;

use quell_link::record::Application;
use quell_qdisc::{NEVER, Nanos, Rng};

use super::Way;
use crate::scenario::VideoCall;
use receiver::Receiver;
use sender::Sender;

/// IP, UDP, RTP, its extension with the transport-wide number (RFC 8285: 8 bytes), SRTP's tag (RFC
/// 3711).
const HEADERS: u32 = 28 + 12 + 8 + 10;
/// IP bytes of a packet at most: 1200 of RTP (`kDefaultMaxPacketSize`).
const MAX_PACKET_BYTES: u32 = 1228;
/// IP, UDP, SRTCP's index and tag.
const CONTROL: u32 = 28 + 14;

/// What a datagram holds.
#[derive(Clone, Debug)]
enum Content {
    /// A packet of a frame.
    Media { number: u32, frame: u32 },
    /// What arrived.
    Report(Report),
    /// Packets are to be sent again (RFC 4585, NACK).
    Request(Box<[u32]>),
    /// A frame that needs no other is wanted (RFC 4585, PLI).
    KeyRequest,
}

/// Feedback: when each datagram arrived.
#[derive(Clone, Debug)]
struct Report {
    /// Serial number of the first.
    first: u32,
    arrivals: Vec<Option<Nanos>>,
    /// Since the last arrived.
    held: Nanos,
}

/// How an end's clock and slot relate to the other's. Its clock is that of the first queue on the
/// way of what it sends.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its source in the flow table.
    pub slot: u16,
    /// From the instant at which the simulator delivers a datagram to the end's clock.
    pub reaction: Nanos,
    /// What the other end's clock is ahead of real time, less what its own is.
    pub skew: i64,
}

#[derive(Clone, Debug)]
struct Peer {
    place: Place,
    sender: Sender,
    receiver: Receiver,
    /// Datagrams that the simulator has delivered, and when they are there.
    inbox: VecDeque<(Nanos, u32)>,
    /// When it hung up.
    over: Option<Nanos>,
    heard: bool,
}

/// Both ends, each at the place of the way that it sends.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    peers: Vec<Peer>,
}

impl Ends {
    /// Another end begins to send at `start`.
    pub fn join(&mut self, call: &VideoCall, place: Place, start: Nanos, rng: Rng) {
        self.peers.push(Peer {
            place,
            sender: Sender::new(call, start, rng),
            receiver: Receiver::new(),
            inbox: VecDeque::new(),
            over: None,
            heard: false,
        });
    }

    /// A datagram of this way is delivered; which source has to be called, and when.
    pub fn delivered(&mut self, now: Nanos, way: Way, serial: u32) -> (u16, Nanos) {
        let peer = &mut self.peers[1 - way as usize];
        let at = now + peer.place.reaction;
        peer.inbox.push_back((at, serial));
        (peer.place.slot, peer.wake_at())
    }

    /// The end that sends this way does what is due; IP bytes of the datagram that leaves, and when
    /// it wants to be called again.
    pub fn poll(&mut self, now: Nanos, way: Way, measuring: bool) -> (Option<u32>, Nanos) {
        let (first, second) = self.peers.split_at_mut(1);
        let (own, other) = match way {
            Way::There => (&mut first[0], &second[0]),
            Way::Back => (&mut second[0], &first[0]),
        };
        own.receiver.tick(now, measuring);
        while let Some((at, serial)) = own.inbox.front().copied()
            && at <= now
        {
            own.inbox.pop_front();
            own.read(at, serial, &other.sender);
        }
        let rtt = own.heard.then_some(own.sender.gcc.rtt);
        while let Some(content) = own.receiver.poll(now, rtt) {
            own.sender.tell(content);
        }
        let bytes = own.sender.poll(now);
        (bytes, own.wake_at().max(now))
    }

    /// The end that sends this way hangs up.
    pub fn hang_up(&mut self, now: Nanos, way: Way) {
        self.peers[way as usize].over.get_or_insert(now);
    }

    /// What the user experienced who receives each way; `None` if there was no call after the
    /// warm-up.
    pub fn results(&self, now: Nanos) -> [Option<Application>; 2] {
        // An end receives the way that the other sends.
        [Way::Back, Way::There].map(|sent| {
            let peer = self.peers.get(sent as usize)?;
            peer.receiver.result(peer.over.unwrap_or(now))
        })
    }
}

/// By what an end's user is worse off, the gravest first.
pub fn badness(end: &Application) -> [f64; 3] {
    [
        end.below_24fps.unwrap_or(0.0),
        end.freezes_per_minute.unwrap_or(0.0),
        end.frame_delay_ms.map_or(f64::INFINITY, |d| d.p95),
    ]
}

impl Peer {
    fn wake_at(&self) -> Nanos {
        let inbox = self.inbox.front().map_or(NEVER, |(at, _)| *at);
        let own = self.sender.wake_at().min(self.receiver.wake_at());
        inbox.min(own)
    }

    fn read(&mut self, now: Nanos, serial: u32, other: &Sender) {
        self.receiver.note(now, serial);
        let Some(sent) = other.sent(serial) else {
            return; // no longer in the sender's history
        };
        match &sent.content {
            Content::Media { number, frame } => {
                if let Some(shown) = other.frame(*frame) {
                    let skew = self.place.skew;
                    self.receiver.media(now, *number, *frame, shown, skew);
                }
            }
            Content::Report(report) => {
                self.heard = true;
                self.sender.reported(now, report);
            }
            Content::Request(numbers) => self.sender.asked(now, numbers),
            Content::KeyRequest => self.sender.asked_for_key(now),
        }
    }
}
