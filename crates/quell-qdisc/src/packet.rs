//! Packets as a discipline sees them.

use crate::time::Instant;

/// The ECN field of the IP header (RFC 3168, section 5).
///
/// It has 32 bits, as wide as its neighbours in a packet. With a narrower field, the compiler would
/// copy the odd tail of a packet by two overlapping moves, which stall the processor for about 10
/// ns. A packet with packed fields stores [`Ecn::bits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Ecn {
    /// The transport does not understand ECN.
    #[default]
    NotEct = 0,
    /// ECN-capable, scalable congestion control (RFC 9331).
    Ect1 = 1,
    /// ECN-capable, classic congestion control (RFC 3168).
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// The field's two bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// The ECN field in the low two bits; the others are ignored.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }
}

/// A small packet descriptor, which queues move; the payload stays with its owner.
#[allow(clippy::len_without_is_empty)] // no packet is empty
pub trait Packet: Copy {
    /// Bytes that count at the link's rate (with link-layer overhead).
    fn len(&self) -> u32;
    /// A keyed hash of the packet's flow.
    fn flow_hash(&self) -> u32;
    /// The ECN field.
    fn ecn(&self) -> Ecn;
    /// Sets Congestion Experienced; called only on ECN-capable packets.
    fn set_ce(&mut self);
    /// Time at which the packet entered the discipline.
    fn enqueued(&self) -> Instant;
    /// Sets the time at which the packet entered the discipline.
    fn set_enqueued(&mut self, now: Instant);

    /// Marks an ECN-capable packet; leaves any other unchanged and returns false (`INET_ECN_set_ce`
    /// of Linux).
    #[inline]
    fn mark(&mut self) -> bool {
        if self.ecn() == Ecn::NotEct {
            return false;
        }
        self.set_ce();
        true
    }
}

/// Cause of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DropCause {
    /// A limit (packets, bytes or memory) was reached.
    Overflow = 0,
    /// The discipline's law chose it.
    Early = 1,
    /// The law would have marked, but the packet is not ECN-capable or the queue is beyond marking.
    Forced = 2,
}

/// What a packet may be classified by, besides its flow and its ECN field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Keyed hash of the source address.
    pub source: u32,
    /// Keyed hash of the destination address.
    pub destination: u32,
    /// The firewall's mark.
    pub mark: u32,
    /// The DSCP, 0 to 63 (RFC 2474).
    pub dscp: u8,
}

/// The most SACK blocks that fit into a TCP header (RFC 2018, section 3).
pub const SACK_BLOCKS: usize = 4;

/// The acknowledgement in a TCP segment with the ACK flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledgment {
    /// A keyed hash of the connection and the direction.
    pub connection: u64,
    /// Nothing but an acknowledgement: no data, no flags but ACK, ECE and CWR, no options but
    /// timestamps and SACK.
    pub pure: bool,
    /// The flags ECE and CWR, in bits that the packets' owner chooses.
    pub echo: u32,
    /// Acknowledgement number: every byte before it has arrived; wraps.
    pub number: u32,
    /// The sender's timestamp; wraps.
    pub tsval: u32,
    /// The echoed timestamp; wraps.
    pub tsecr: u32,
    /// SACK blocks, the first `blocks` of which are valid: the first sequence number, and the one
    /// after the last.
    pub sack: [(u32, u32); SACK_BLOCKS],
    /// Number of SACK blocks.
    pub blocks: u8,
}

/// The owner of a discipline's packets: receives every dropped packet, and knows the header fields
/// that descriptors omit.
pub trait Drops<P> {
    /// Takes a packet that the discipline drops at `now`.
    fn drop(&mut self, now: Instant, packet: P, cause: DropCause);
    /// Header fields of the packet; called by disciplines that classify packets by them.
    #[inline]
    fn labels(&self, _packet: &P) -> Labels {
        Labels::default()
    }
    /// The packet's acknowledgement; `None` if it is a SYN or not a TCP segment with the ACK flag.
    /// Called by disciplines that filter ACKs.
    #[inline]
    fn acknowledgment(&self, _packet: &P) -> Option<Acknowledgment> {
        None
    }
}

impl<P> Drops<P> for Vec<(P, DropCause)> {
    fn drop(&mut self, _now: Instant, packet: P, cause: DropCause) {
        self.push((packet, cause));
    }
}

impl<P, D: Drops<P> + ?Sized> Drops<P> for &mut D {
    fn drop(&mut self, now: Instant, packet: P, cause: DropCause) {
        (**self).drop(now, packet, cause);
    }
    #[inline]
    fn labels(&self, packet: &P) -> Labels {
        (**self).labels(packet)
    }
    #[inline]
    fn acknowledgment(&self, packet: &P) -> Option<Acknowledgment> {
        (**self).acknowledgment(packet)
    }
}

/// Result of `dequeue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dequeued<P> {
    /// The next packet.
    Packet(P),
    /// Nothing is queued.
    Empty,
    /// Packets are queued, but none may leave before this time.
    NotBefore(Instant),
}

impl<P> From<Option<P>> for Dequeued<P> {
    /// Not written with `map_or`, which assembles the packet in memory and waits for it: CoDel's
    /// operation then took 14 ns instead of 7.
    #[inline(always)]
    fn from(packet: Option<P>) -> Self {
        match packet {
            Some(packet) => Dequeued::Packet(packet),
            None => Dequeued::Empty,
        }
    }
}

impl Dequeued<()> {
    /// This result with the packet from `line`.
    #[inline(always)]
    pub fn with<P>(self, line: Option<P>) -> Dequeued<P> {
        match (self, line) {
            (Dequeued::NotBefore(t), _) => Dequeued::NotBefore(t),
            (Dequeued::Packet(()), Some(packet)) => Dequeued::Packet(packet),
            _ => Dequeued::Empty,
        }
    }
}

impl<P> Dequeued<P> {
    /// Applies `f` to the packet.
    #[inline(always)]
    pub fn map<R>(self, f: impl FnOnce(P) -> R) -> Dequeued<R> {
        match self {
            Dequeued::Packet(p) => Dequeued::Packet(f(p)),
            Dequeued::Empty => Dequeued::Empty,
            Dequeued::NotBefore(t) => Dequeued::NotBefore(t),
        }
    }

    /// Combines two results without a packet: the earlier time, if there is one.
    #[inline]
    pub fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Dequeued::NotBefore(a), Dequeued::NotBefore(b)) => Dequeued::NotBefore(a.min(b)),
            (Dequeued::Empty, other) => other,
            (this, _) => this,
        }
    }
}

/// A plain packet for tests and benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestPacket {
    /// Length, bytes.
    pub len: u32,
    /// Flow hash.
    pub hash: u32,
    /// ECN field.
    pub ecn: Ecn,
    /// Time of arrival.
    pub enqueued: Instant,
    /// Serial number, which shows the order.
    pub id: u64,
}

impl TestPacket {
    /// A packet of `len` bytes of flow `hash`.
    pub fn new(id: u64, len: u32, hash: u32, ecn: Ecn) -> Self {
        Self {
            len,
            hash,
            ecn,
            enqueued: Instant::ZERO,
            id,
        }
    }
}

impl Packet for TestPacket {
    #[inline]
    fn len(&self) -> u32 {
        self.len
    }
    #[inline]
    fn flow_hash(&self) -> u32 {
        self.hash
    }
    #[inline]
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    #[inline]
    fn set_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }
    #[inline]
    fn enqueued(&self) -> Instant {
        self.enqueued
    }
    #[inline]
    fn set_enqueued(&mut self, now: Instant) {
        self.enqueued = now;
    }
}
