//! Entries of the flow table: TCP connections, datagram sources, and sources of short transfers.

use quell_qdisc::time::{Duration, Instant, SEC};
use quell_qdisc::{Ecn, Rng, num};

use crate::app::Way;
use crate::app::call::FRAME;
use crate::app::client::Client;
use crate::app::ping::Pinger;
use crate::cc::CongestionControl;
use crate::delay::Sampler;
use crate::packet::FlowId;
pub use crate::path::{NO_PORT, Path};
use crate::scenario::{FlowKind, Size, Tcp};
use crate::tcp::{Receiver, Sender};

/// One entry of the flow table.
///
/// Connections, of which a world may have thousands, lie in the table itself, so that access costs
/// no further cache miss. The discriminant is at the entry's beginning, on the cache line that
/// every packet of a connection needs.
#[derive(Clone, Debug)]
#[repr(u8, align(64))]
#[allow(clippy::large_enum_variant)]
pub enum Slot {
    /// Unused.
    Free,
    /// A TCP connection.
    Tcp(Connection),
    /// A source of datagrams.
    Udp(Box<Datagrams>),
    /// A source of short transfers.
    Web(Box<Web>),
    /// A client that opens connections for an application.
    Client(Box<Client>),
    /// A source of probes to a reflector.
    Ping(Box<Pinger>),
}

/// Both ends of a TCP connection.
///
/// The fields keep this order, those that every packet needs first: with a thousand flows, cache
/// misses dominate the cost of a packet.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Connection {
    pub path: Path,
    /// Times set for the two ends in `Net::timers`; `NEVER`: none.
    pub pending: [Instant; 2],
    /// Time of its SYN; once that is sent, `stop`.
    pub next_change_at: Instant,
    /// Index of its report.
    pub report: u16,
    /// Flow hash of its ACKs.
    pub ack_hash: u32,
    pub receiver: Receiver,
    /// Scheduled time of its SYN, from which completion times count.
    pub began: Instant,
    pub sender: Sender,
    pub cc: CongestionControl,
    /// Time at which the application stops; `NEVER`: it runs to the end.
    pub stop: Instant,
    /// Selects the segments that are measured. Boxed, because within the connection it would take
    /// another cache line.
    pub sampler: Box<Sampler>,
    /// Slot of the client that opened it, and the client's number for it.
    pub owner: Option<(u16, u8)>,
}

impl Connection {
    /// Time of an end's next timer.
    #[inline]
    pub fn deadline(&self, end: End) -> Instant {
        match end {
            End::Sender => self.sender.deadline().min(self.next_change_at),
            End::Receiver => self.receiver.deadline(),
        }
    }
}

/// An end of a connection; each has at most one time in `Net::timers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that sends data.
    Sender = 0,
    /// The end that receives data.
    Receiver = 1,
}

/// The number in `Net::timers` of an end of a flow.
#[inline]
pub fn source(slot: u16, end: End) -> u32 {
    u32::from(slot) << 1 | end as u32
}

/// A source of datagrams.
#[derive(Clone, Debug)]
pub struct Datagrams {
    pub id: FlowId,
    /// Flow hash of its packets.
    pub hash: u32,
    pub path: Path,
    /// Time of the next datagram.
    pub at: Instant,
    /// Time at and after which no datagram is sent.
    pub stop: Instant,
    pub report: u16,
    /// Datagrams sent.
    pub sent: u64,
    /// Payload bytes that arrived.
    pub received: u64,
    /// Number of the application that it belongs to, and its direction.
    pub app: Option<(u16, Way)>,
    kind: FlowKind,
    rng: Rng,
    start: Instant,
}

/// IP and UDP headers, bytes.
pub const UDP_HEADERS: u32 = 28;
/// The smallest IP packet with a UDP header, bytes.
const MIN_SIZE: u32 = UDP_HEADERS;
/// The largest IP packet, bytes: with any overhead the length fits into 16 bits.
const MAX_SIZE: u32 = 64_000;

/// Location and scale of the largest-extreme-value (Gumbel) distributions of a game's payloads,
/// bytes: the server's states and the client's commands.
const STATE: (f64, f64) = (120.0, 36.0);
const COMMAND: (f64, f64) = (45.0, 5.7);

impl Datagrams {
    /// A source that starts at `start`.
    pub fn new(
        id: FlowId,
        hash: u32,
        path: Path,
        kind: FlowKind,
        rng: Rng,
        (start, stop): (Instant, Instant),
        report: u16,
    ) -> Self {
        let mut d = Self {
            id,
            hash,
            path,
            at: start,
            stop,
            report,
            sent: 0,
            received: 0,
            app: None,
            kind,
            rng,
            start,
        };
        if matches!(d.kind, FlowKind::Poisson(_) | FlowKind::OnOff(_)) {
            d.at = start + d.gap(start);
        }
        d
    }

    /// Size of the next IP packet, bytes.
    pub fn size(&mut self) -> u32 {
        match &self.kind {
            FlowKind::Cbr(cbr) => cbr.size,
            FlowKind::OnOff(onoff) => onoff.size,
            FlowKind::Call(call) => call.codec.packet(),
            FlowKind::Game(_) => {
                let (location, scale) = match self.app {
                    Some((_, Way::Back)) => COMMAND,
                    _ => STATE,
                };
                let payload = location - scale * libm::log(self.rng.exp(1.0));
                UDP_HEADERS + num::whole_u32(payload).clamp(1, MAX_SIZE - UDP_HEADERS)
            }
            FlowKind::Poisson(poisson) => {
                let bytes = poisson.size.bytes;
                if poisson.size.exponential {
                    // Whole bytes; larger sizes are cut to 64,000 (e^-42 of all packets at a mean
                    // of 1500).
                    num::whole_u32(self.rng.exp(bytes as f64)).clamp(MIN_SIZE, MAX_SIZE)
                } else {
                    num::low_u32(bytes)
                }
            }
            _ => MIN_SIZE,
        }
    }

    /// Whether the application decides when the source sends.
    pub fn is_driven(&self) -> bool {
        matches!(self.kind, FlowKind::VideoCall(_))
    }

    /// ECN field of its packets.
    pub fn ecn(&self) -> Ecn {
        let ecn = match &self.kind {
            FlowKind::Cbr(cbr) => cbr.ecn,
            FlowKind::Poisson(poisson) => poisson.ecn,
            FlowKind::OnOff(onoff) => onoff.ecn,
            _ => false,
        };
        if ecn { Ecn::Ect0 } else { Ecn::NotEct }
    }

    /// Sets the time of the next datagram.
    pub fn advance(&mut self) {
        self.at = match &self.kind {
            // Computed from the start, so that rounding errors do not add up.
            FlowKind::Cbr(cbr) => {
                let bytes = self.sent * u64::from(cbr.size);
                self.start + cbr.rate.transmission_time(bytes)
            }
            FlowKind::Call(_) => self.start + self.sent * FRAME,
            FlowKind::Game(game) => {
                let rate = match self.app {
                    Some((_, Way::Back)) => game.commands,
                    _ => game.states,
                };
                self.start + self.sent * SEC / u64::from(rate)
            }
            _ => self.at + self.gap(self.at),
        };
    }

    fn gap(&mut self, now: Instant) -> Duration {
        match &self.kind {
            FlowKind::Poisson(poisson) => {
                let mean_bits = poisson.size.bytes as f64 * 8.0;
                Duration::from_nanos(num::whole_u64(
                    self.rng
                        .exp(mean_bits * SEC.as_nanos() as f64 / poisson.rate.bps_f64()),
                ))
            }
            FlowKind::OnOff(onoff) => {
                let (on, period) = (onoff.on, onoff.on + onoff.off);
                let phase = (now - self.start) % period;
                let parts = [(on, onoff.gap_on), (period, onoff.gap_off)];
                on_off_gap(self.rng.exp(1.0), phase, parts)
            }
            _ => Duration::MAX,
        }
    }
}

/// Time that a Poisson process with alternating mean gaps takes to accumulate the exponential
/// `draw` (of mean 1). `phase` is its position in the cycle; each of `parts` has the end of a
/// part of the cycle and the mean gap in it.
fn on_off_gap(mut draw: f64, phase: Duration, parts: [(Duration, Duration); 2]) -> Duration {
    let [(on, gap_on), (period, gap_off)] = parts;
    let mut at = phase;
    let mut cycles = 0;
    loop {
        let (end, mean) = if at < on {
            (on, gap_on)
        } else {
            (period, gap_off)
        };
        let expected = (end - at).as_nanos() as f64 / mean.as_nanos() as f64;
        if draw <= expected {
            return cycles * period
                + at
                + Duration::from_nanos(num::whole_u64(draw * mean.as_nanos() as f64))
                - phase;
        }
        draw -= expected;
        at = end;
        if at == period {
            let whole = on.as_nanos() as f64 / gap_on.as_nanos() as f64
                + (period - on).as_nanos() as f64 / gap_off.as_nanos() as f64;
            let skipped = libm::floor(draw / whole);
            draw -= skipped * whole;
            cycles += 1 + num::whole_u64(skipped);
            at = Duration::ZERO;
        }
    }
}

/// A source of short transfers.
#[derive(Clone, Debug)]
pub struct Web {
    /// TCP options of the transfers.
    pub tcp: Tcp,
    /// Start of the next transfer.
    pub at: Instant,
    /// Time at and after which no transfer starts.
    pub stop: Instant,
    pub report: u16,
    pub path: Path,
    /// Random numbers of gaps and sizes.
    pub rng: Rng,
    size: Size,
    /// Mean time between the starts of transfers, ns.
    mean_gap: f64,
}

impl Web {
    /// A source that starts at `span.0`; None if `kind` is another kind.
    pub fn new(
        kind: &FlowKind,
        path: Path,
        mut rng: Rng,
        span: (Instant, Instant),
        report: u16,
    ) -> Option<Self> {
        let FlowKind::Web(web) = kind else {
            return None;
        };
        let mean_gap = SEC.as_nanos() as f64 / web.arrivals;
        let at = span.0 + Duration::from_nanos(num::whole_u64(rng.exp(mean_gap)));
        Some(Self {
            tcp: web.tcp.clone(),
            at,
            stop: span.1,
            report,
            path,
            rng,
            size: web.size,
            mean_gap,
        })
    }

    /// Size of the transfer that starts now, bytes; also sets the start of the next.
    pub fn next(&mut self) -> u64 {
        self.at += Duration::from_nanos(num::whole_u64(self.rng.exp(self.mean_gap)));
        if self.size.exponential {
            num::whole_u64(self.rng.exp(self.size.bytes as f64)).max(1)
        } else {
            self.size.bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::{Connection, Slot};

    #[test]
    fn both_ends_of_a_connection_begin_on_a_cache_line_each() {
        // The discriminant takes the first 8 bytes. If this fails, move a rarely needed field
        // between the ends or elsewhere.
        let place = |offset| (8 + offset) % 64;
        assert_eq!(place(offset_of!(Connection, receiver)), 0);
        assert_eq!(place(offset_of!(Connection, sender)), 0);
        // An odd number of lines: with an even one, the same lines of all flows would compete for
        // few sets of a cache.
        assert_eq!(size_of::<Slot>(), 15 * 64);
    }
}
