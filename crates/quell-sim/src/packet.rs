//! Packets (32-byte descriptors) and ACKs.

use quell_qdisc::{Ecn, Nanos, Packet, US, num};

/// A slot of the flow table with its generation: a packet of a closed connection no longer finds
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FlowId {
    /// Index into the flow table.
    pub slot: u16,
    /// How many connections used the slot before.
    pub generation: u16,
}

impl FlowId {
    /// The index into the flow table.
    #[inline]
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Kind {
    /// A TCP segment with data.
    #[default]
    Data,
    /// A TCP connection request.
    Syn,
    /// A pure ACK; `seq` is its place in the store of ACKs under way.
    Ack,
    /// A datagram.
    Udp,
}

/// The parts of a packet's `bits`.
const KIND: u32 = 3;
const ECN_SHIFT: u32 = 2;
const CWR: u32 = 1 << 4;
const PUSH: u32 = 1 << 5;
const ECHO_SHIFT: u32 = 6;

/// The packet descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pkt {
    enqueued: Nanos,
    /// Low 32 bits of the segment number (data; see [`expand`]), serial number (datagram) or place
    /// of the ACK.
    pub seq: u32,
    /// The sender's clock when it was sent: ms (RFC 7323's TSval); of a datagram [`micros`].
    pub tsval: u32,
    hash: u32,
    /// Whose it is.
    pub flow: FlowId,
    len: u16,
    /// Payload bytes (datagrams and data).
    pub payload: u16,
    /// Kind (2 bits), ECN field (2), CWR, PSH, the low bits of TSecr: one word. An `Option` marks
    /// its absence in a byte that cannot take all values, and the odd bytes around that are copied
    /// by moves that overlap, which stall the processor.
    bits: u32,
}

impl Pkt {
    /// A packet of `len` bytes as the link counts them.
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
            enqueued: 0,
            seq,
            tsval: 0,
            hash,
            flow,
            len: num::low_u16(len.into()),
            payload: num::low_u16(payload.into()),
            bits: kind as u32 | u32::from(ecn.bits()) << ECN_SHIFT,
        }
    }

    /// What it is.
    #[inline(always)]
    pub fn kind(&self) -> Kind {
        match self.bits & KIND {
            0 => Kind::Data,
            1 => Kind::Syn,
            2 => Kind::Ack,
            _ => Kind::Udp,
        }
    }

    /// TCP's CWR flag; of a client's message: it goes to the server.
    #[inline(always)]
    pub fn cwr(&self) -> bool {
        self.bits & CWR != 0
    }

    /// TCP's PSH flag: it ends a burst.
    #[inline(always)]
    pub fn push(&self) -> bool {
        self.bits & PUSH != 0
    }

    /// The low 26 bits of the far side's clock that it echoes, ms (RFC 7323's TSecr): 18 hours; 0
    /// for none.
    #[inline(always)]
    pub fn tsecr(&self) -> u32 {
        self.bits >> ECHO_SHIFT
    }

    /// Sets what [`Pkt::tsecr`] tells.
    #[inline(always)]
    pub fn set_tsecr(&mut self, tsecr: u32) {
        self.bits |= tsecr << ECHO_SHIFT;
    }

    /// Sets the flags CWR and PSH.
    #[inline(always)]
    pub fn set_flags(&mut self, cwr: bool, push: bool) {
        self.bits |= (u32::from(cwr) * CWR) | (u32::from(push) * PUSH);
    }

    /// For another link, whose overhead differs by `delta` bytes.
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
    fn enqueued(&self) -> Nanos {
        self.enqueued
    }
    #[inline]
    fn set_enqueued(&mut self, now: Nanos) {
        self.enqueued = now;
    }
}

/// The clock of datagrams' senders: microseconds, which run over after 71 minutes.
#[inline]
pub fn micros(now: Nanos) -> u32 {
    num::low_u32(now / US)
}

/// The segment number nearest to `near` whose low 32 bits travelled. Both ends count in 64 bits,
/// which no flow uses up.
#[inline]
pub fn expand(near: u64, low: u32) -> u64 {
    let ahead = (low.wrapping_sub(num::low_u32(near))).cast_signed();
    near.wrapping_add_signed(ahead.into())
}

/// At most this many SACK blocks fit beside a timestamp (RFC 2018, section 3).
pub const SACK_BLOCKS: usize = 3;

/// What an ACK says. Low 32 bits of segment numbers (see [`expand`]); a block covers `start..end`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ack {
    /// Whose it is.
    pub flow: FlowId,
    /// Everything before this arrived.
    pub cumulative: u32,
    /// The receiver's clock when it was sent, ms, where the ACK meets a queue (TSval).
    pub tsval: u32,
    /// The echoed timestamp, ms.
    pub tsecr: u32,
    /// Packets that arrived with CE, in all (accurate ECN feedback); wraps.
    pub ce: u32,
    /// The first `count` are valid; the first is a D-SACK if `dsack`.
    pub blocks: [(u32, u32); SACK_BLOCKS],
    /// Valid blocks.
    pub count: u8,
    /// The first block reports a duplicate (RFC 2883).
    pub dsack: bool,
    /// TCP's ECE flag.
    pub ece: bool,
    /// Answers a SYN.
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
