//! Packets (32-byte descriptors) and ACKs.

use quell_qdisc::time::Instant;
use quell_qdisc::{Ecn, Packet, num};

/// A slot of the flow table with its generation, by which packets of a closed connection are
/// recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FlowId {
    /// Index into the flow table.
    pub slot: u16,
    /// Number of connections that used the slot before; wraps.
    pub generation: u16,
}

impl FlowId {
    /// The index into the flow table.
    #[inline]
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Kind {
    /// A TCP segment with data.
    #[default]
    Data,
    /// A TCP connection request.
    Syn,
    /// A pure ACK; `seq` is its place in the store of ACKs.
    Ack,
    /// A datagram.
    Udp,
}

/// Layout of [`Pkt`]'s `bits`.
const KIND: u32 = 3;
const ECN_SHIFT: u32 = 2;
const CWR: u32 = 1 << 4;
const PUSH: u32 = 1 << 5;
const ECHO_SHIFT: u32 = 6;

/// A packet descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pkt {
    enqueued: Instant,
    /// Low 32 bits of the segment number (data; see [`expand`]), serial number (datagram) or the
    /// ACK's place in the store.
    pub seq: u32,
    /// The sender's clock at departure: ms (RFC 7323's TSval), for a datagram µs (see [`micros`]).
    pub tsval: u32,
    hash: u32,
    /// The flow it belongs to.
    pub flow: FlowId,
    len: u16,
    /// Payload bytes (datagrams and data).
    pub payload: u16,
    /// Kind (2 bits), ECN field (2), CWR, PSH and the low 26 bits of TSecr. They share an integer,
    /// in which all values are valid: an enum or a bool would leave invalid ones, by which an
    /// `Option` of a packet represents `None`, and the compiler would copy the bytes around it by
    /// overlapping moves, which stall the processor.
    bits: u32,
}

impl Pkt {
    /// A packet of `len` bytes, as counted on the link.
    #[inline(always)]
    pub fn new(
        kind: Kind,
        flow: FlowId,
        hash: u32,
        seq: u32,
        len: u32,
        payload: u32,
        ecn: Ecn,
    ) -> Self {
        Self {
            enqueued: Instant::ZERO,
            seq,
            tsval: 0,
            hash,
            flow,
            len: num::low_u16(len.into()),
            payload: num::low_u16(payload.into()),
            bits: kind as u32 | u32::from(ecn.bits()) << ECN_SHIFT,
        }
    }

    /// The packet's kind.
    #[inline(always)]
    pub fn kind(&self) -> Kind {
        match self.bits & KIND {
            0 => Kind::Data,
            1 => Kind::Syn,
            2 => Kind::Ack,
            _ => Kind::Udp,
        }
    }

    /// TCP's CWR flag. On a datagram of a client or a ping: whether it travels to the server or
    /// reflector, rather than back.
    #[inline(always)]
    pub fn cwr(&self) -> bool {
        self.bits & CWR != 0
    }

    /// TCP's PSH flag: the segment ends a burst.
    #[inline(always)]
    pub fn push(&self) -> bool {
        self.bits & PUSH != 0
    }

    /// Low 26 bits of the echoed timestamp, ms (RFC 7323's TSecr), which wrap after 18 hours; 0:
    /// none.
    #[inline(always)]
    pub fn tsecr(&self) -> u32 {
        self.bits >> ECHO_SHIFT
    }

    /// Sets the value of [`Pkt::tsecr`], once per packet.
    #[inline(always)]
    pub fn set_tsecr(&mut self, tsecr: u32) {
        self.bits |= tsecr << ECHO_SHIFT;
    }

    /// Sets the flags CWR and PSH.
    #[inline(always)]
    pub fn set_flags(&mut self, cwr: bool, push: bool) {
        self.bits |= (u32::from(cwr) * CWR) | (u32::from(push) * PUSH);
    }

    /// Adjusts the length for another link, whose overhead differs by `delta` bytes.
    #[inline]
    pub fn resize(&mut self, delta: i32) {
        self.len = num::short(i32::from(self.len) + delta);
    }
}

impl Packet for Pkt {
    #[inline]
    fn len(&self) -> u32 {
        u32::from(self.len)
    }
    #[inline]
    fn flow_hash(&self) -> u32 {
        self.hash
    }
    #[inline]
    fn ecn(&self) -> Ecn {
        Ecn::from_bits(num::low_u8((self.bits >> ECN_SHIFT).into()))
    }
    #[inline]
    fn set_ce(&mut self) {
        self.bits |= u32::from(Ecn::Ce.bits()) << ECN_SHIFT; // both bits
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

/// The clock of datagrams' senders, µs; it wraps after 71 minutes.
#[inline]
pub fn micros(now: Instant) -> u32 {
    num::low_u32(now.as_micros())
}

/// The segment number nearest to `near` whose low 32 bits are `low`. Both ends count in 64 bits,
/// which no flow exhausts.
#[inline]
pub fn expand(near: u64, low: u32) -> u64 {
    let ahead = (low.wrapping_sub(num::low_u32(near))).cast_signed();
    near.wrapping_add_signed(ahead.into())
}

/// Maximum number of SACK blocks beside a timestamp (RFC 2018, section 3).
pub const SACK_BLOCKS: usize = 3;

/// Content of an ACK. Segment numbers are their low 32 bits (see [`expand`]); a block is
/// `start..end`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ack {
    /// The flow it belongs to.
    pub flow: FlowId,
    /// First segment that has not arrived: the cumulative acknowledgment. In a message of
    /// `Net::acks`: its serial number.
    pub cumulative: u32,
    /// The receiver's clock at departure, ms (TSval); set only if the ACK passes a queue.
    pub tsval: u32,
    /// The echoed timestamp, ms.
    pub tsecr: u32,
    /// Number of packets that arrived with CE so far (accurate ECN feedback); wraps.
    pub ce: u32,
    /// SACK blocks, of which the first `count` are valid.
    pub blocks: [(u32, u32); SACK_BLOCKS],
    /// Number of valid blocks.
    pub count: u8,
    /// Whether the first block reports a duplicate (RFC 2883).
    pub dsack: bool,
    /// TCP's ECE flag.
    pub ece: bool,
    /// Whether the ACK answers a SYN.
    pub syn: bool,
}

impl Ack {
    /// Bytes of IP and TCP: 20 + 20 + 12 (timestamps), and 8n + 4 with n SACK blocks.
    #[inline]
    pub fn ip_bytes(&self) -> u32 {
        if self.count == 0 {
            52
        } else {
            56 + 8 * u32::from(self.count)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_half_a_cache_line() {
        assert_eq!(size_of::<Pkt>(), 32);
        assert!(size_of::<Ack>() <= 48);
    }
}
