//! A video call between two people: each end sends pictures at the rate that Google Congestion
//! Control allows, and reports which packets arrived.
//!
//! One flow per direction carries an end's pictures, its retransmissions, and its reports about the
//! other direction (RFC 8843 and 5761: all on one transport). Sources of the constants are given
//! with them; files without a path are those of libwebrtc.

mod gcc;
mod receiver;
mod sender;

use std::collections::VecDeque;

use quell_link::record::Application;
use quell_qdisc::Rng;
use quell_qdisc::time::{Duration, Instant, NEVER};

use super::Way;
use crate::scenario::VideoCall;
use receiver::Receiver;
use sender::Sender;

/// Bytes of the headers of a media packet: IP and UDP, RTP, RTP's extension with the transport-wide
/// number (RFC 8285), SRTP's tag (RFC 3711).
const HEADERS: u32 = 28 + 12 + 8 + 10;
/// Maximum IP bytes of a packet: 1200 of RTP (`kDefaultMaxPacketSize`).
const MAX_PACKET_BYTES: u32 = 1228;
/// Bytes of the headers of a control packet: IP and UDP, SRTCP's index and tag.
const CONTROL: u32 = 28 + 14;

/// Content of a datagram.
#[derive(Clone, Debug)]
enum Content {
    /// A packet of a frame: the number of the packet, and that of the frame.
    Media { number: u32, frame: u32 },
    /// Feedback about arrivals.
    Report(Report),
    /// Numbers of the packets to be retransmitted (RFC 4585, NACK).
    Request(Box<[u32]>),
    /// A request for a key frame (RFC 4585, PLI).
    KeyRequest,
}

/// Feedback: the arrival times of consecutive datagrams.
#[derive(Clone, Debug)]
struct Report {
    /// Serial number of the first datagram.
    first: u32,
    /// `None`: not arrived.
    arrivals: Vec<Option<Instant>>,
    /// Time from the last arrival to the report.
    held: Duration,
}

/// Slot and clock of an end. The clock is that of the first queue on the path of the packets that
/// the end sends.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Slot of its source in the flow table.
    pub slot: u16,
    /// Time from the simulator's delivery of a datagram, at the end of the last queue, to its
    /// arrival by the end's clock.
    pub reaction: Duration,
    /// Lead of the other end's clock over its own, ns.
    pub skew: i64,
}

#[derive(Clone, Debug)]
struct Peer {
    place: Place,
    sender: Sender,
    receiver: Receiver,
    /// Datagrams that the simulator has delivered, with their arrival times.
    inbox: VecDeque<(Instant, u32)>,
    /// Time at which it hung up.
    hung_up: Option<Instant>,
    /// Whether a report has arrived, so that the round trip is known.
    has_report: bool,
}

/// Both ends, each at the index of the `Way` in which it sends.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    peers: Vec<Peer>,
}

impl Ends {
    /// Adds an end that begins to send at `start`.
    pub fn join(&mut self, call: &VideoCall, place: Place, start: Instant, rng: Rng) {
        self.peers.push(Peer {
            place,
            sender: Sender::new(call, start, rng),
            receiver: Receiver::new(),
            inbox: VecDeque::new(),
            hung_up: None,
            has_report: false,
        });
    }

    /// The simulator delivers a datagram in this direction. Returns the slot of the source to be
    /// polled, and the time.
    pub fn delivered(&mut self, now: Instant, way: Way, serial: u32) -> (u16, Instant) {
        let peer = &mut self.peers[1 - way as usize];
        let at = now + peer.place.reaction;
        peer.inbox.push_back((at, serial));
        (peer.place.slot, peer.wake_at())
    }

    /// Runs the end that sends in this direction. Returns the IP bytes of the datagram to be sent,
    /// if any, and the time of the next call.
    pub fn poll(&mut self, now: Instant, way: Way, measuring: bool) -> (Option<u32>, Instant) {
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
        let rtt = own.has_report.then_some(own.sender.gcc.rtt);
        while let Some(content) = own.receiver.poll(now, rtt) {
            own.sender.queue_message(content);
        }
        let bytes = own.sender.poll(now);
        (bytes, own.wake_at().max(now))
    }

    /// The end that sends in this direction hangs up.
    pub fn hang_up(&mut self, now: Instant, way: Way) {
        self.peers[way as usize].hung_up.get_or_insert(now);
    }

    /// Experience of the user who receives each direction; `None` if there was no call after the
    /// warm-up.
    pub fn results(&self, now: Instant) -> [Option<Application>; 2] {
        // An end receives the direction in which the other sends.
        [Way::Back, Way::There].map(|sent| {
            let peer = self.peers.get(sent as usize)?;
            peer.receiver.result(peer.hung_up.unwrap_or(now))
        })
    }
}

/// Criteria for the end whose user is worse off, the most important first; larger is worse.
pub fn badness(end: &Application) -> [f64; 3] {
    [
        end.below_24fps.unwrap_or(0.0),
        end.freezes_per_minute.unwrap_or(0.0),
        end.frame_delay_ms.map_or(f64::INFINITY, |d| d.p95),
    ]
}

impl Peer {
    fn wake_at(&self) -> Instant {
        let inbox = self.inbox.front().map_or(NEVER, |(at, _)| *at);
        let own = self.sender.wake_at().min(self.receiver.wake_at());
        inbox.min(own)
    }

    fn read(&mut self, now: Instant, serial: u32, other: &Sender) {
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
                self.has_report = true;
                self.sender.on_report(now, report);
            }
            Content::Request(numbers) => self.sender.on_request(now, numbers),
            Content::KeyRequest => self.sender.on_key_request(now),
        }
    }
}
