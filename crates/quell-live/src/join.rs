//! The way out: segments of a TCP connection that leave together become one frame again, as a network card's receive offload does
//! (Linux's `tcp_gro_receive`), because a frame costs the system about the same however large it is.
//!
//! Joined are only segments that the kernel, taking the frame apart, would make again: each has the first one's headers and follows
//! the one before. What bears a mark or reduces its window goes alone, so that its receiver counts what was on the wire. The order
//! within a flow stays.

use std::io::IoSlice;

use crate::header;
use crate::pool::Pool;
use crate::segment::{self, CWR, FIN, HEADER, NEEDS_CHECKSUM, PSH, TCP4, TCP6};

/// Frames that grow at once; the oldest makes room for one more.
const FRAMES: usize = 16;
/// Packets in a frame: at an MTU of 1280 as many as 64 KiB hold.
const PACKETS: usize = 64;
/// What a length of 16 bits can say.
const LARGEST: usize = 65_535;

// TCP's flags (RFC 9293, section 3.1; RFC 3168, section 6.1).
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

/// Frames that grow.
#[derive(Debug, Default)]
pub struct Joiner {
    frames: Vec<Frame>,
}

/// Segments on their way to be one frame.
#[derive(Debug)]
struct Frame {
    hash: u32,
    /// Where they lie, and how long they are.
    parts: [(u32, u32); PACKETS],
    count: usize,
    /// Bytes of the packet that they make.
    length: usize,
    shape: Shape,
}

/// Where the headers of a segment are, and what is behind them.
#[derive(Clone, Copy, Debug)]
struct Shape {
    transport: usize,
    payload: usize,
    /// Payload bytes.
    size: usize,
    /// Nothing follows in this frame: the sender wanted it to arrive at once, or has ended.
    last: bool,
}

impl Joiner {
    /// Takes a packet whose frame lies in this place. `out` gets the frames that are ready, a part for each packet, and says whether
    /// they were taken; their places are given back. Whether this packet went alone, and was.
    pub fn push(
        &mut self,
        pool: &mut Pool,
        (place, bytes, hash): (u32, u32, u32),
        out: &mut impl FnMut(&[IoSlice<'_>]) -> bool,
    ) -> bool {
        let whole = ..HEADER + bytes as usize;
        let shape = Shape::of(&pool.get(place)[whole]);
        if let Some(at) = self.frames.iter().position(|f| f.hash == hash) {
            let grown = &mut self.frames[at];
            let follows = |s: &Shape| grown.is_followed_by(pool, &pool.get(place)[whole], s);
            if let Some(shape) = shape.filter(follows) {
                grown.add(pool, (place, bytes), &shape);
                if shape.last || shape.size < grown.shape.size || grown.count == PACKETS {
                    self.frames.remove(at).write(pool, out);
                }
                return false;
            }
            self.frames.remove(at).write(pool, out);
        }
        let Some(shape) = shape.filter(|s| !s.last) else {
            let taken = out(&[IoSlice::new(&pool.get(place)[whole])]);
            pool.give(place);
            return taken;
        };
        if self.frames.len() == FRAMES {
            self.frames.remove(0).write(pool, out);
        }
        self.frames.push(Frame {
            hash,
            parts: [(place, bytes); PACKETS],
            count: 1,
            length: bytes as usize,
            shape,
        });
        false
    }

    /// Lets go what has gathered.
    pub fn flush(&mut self, pool: &mut Pool, out: &mut impl FnMut(&[IoSlice<'_>]) -> bool) {
        for frame in self.frames.drain(..) {
            frame.write(pool, out);
        }
    }
}

impl Shape {
    /// The shape of a frame that others may join or be joined to; None if it goes alone.
    fn of(frame: &[u8]) -> Option<Self> {
        let (head, p) = frame.split_at_checked(HEADER)?;
        let word = |at: usize| usize::from(u16::from_ne_bytes([head[at], head[at + 1]]));
        // The kernel vouches for a packet whose checksum it left open; one that came with a checksum keeps it, right or wrong.
        if head[..2] != [NEEDS_CHECKSUM, 0] || word(8) != 16 {
            return None;
        }
        let transport = word(6);
        let length = |at: usize| usize::from(u16::from_be_bytes([p[at], p[at + 1]]));
        let plain = match (p.first()? >> 4, transport) {
            // No options, no fragment.
            (4, 20) if p.len() > 40 => {
                let whole = length(6) & 0x3fff == 0 && length(2) == p.len();
                p[0] == 0x45 && whole && p[9] == header::TCP && p[1] & 3 != 3
            }
            (6, 40) if p.len() > 60 => {
                p[6] == header::TCP && length(4) + 40 == p.len() && p[1] >> 4 & 3 != 3
            }
            _ => false,
        };
        if !plain {
            return None;
        }
        let payload = transport + usize::from(p[transport + 12] >> 4) * 4;
        let flags = p[transport + 13];
        if payload < transport + 20 || payload >= p.len() {
            return None;
        }
        (flags & !(FIN | PSH | ECE) == ACK && flags & CWR == 0).then_some(Self {
            transport,
            payload,
            size: p.len() - payload,
            last: flags & (FIN | PSH) != 0,
        })
    }
}

impl Frame {
    /// Whether this frame with one more segment is what the kernel would take apart into the same packets.
    fn is_followed_by(&self, pool: &Pool, frame: &[u8], shape: &Shape) -> bool {
        let (s, first) = (&self.shape, &pool.get(self.parts[0].0)[HEADER..]);
        let p = &frame[HEADER..];
        if (s.transport, s.payload) != (shape.transport, shape.payload)
            || shape.size > s.size
            || self.length + shape.size > LARGEST
        {
            return false;
        }
        let same = |part: std::ops::Range<usize>| first[part.clone()] == p[part];
        let network = match s.transport {
            20 => {
                let id = |p: &[u8]| u16::from_be_bytes([p[4], p[5]]);
                let next = id(first).wrapping_add(self.count as u16);
                same(0..2) && same(6..10) && same(12..20) && id(p) == next
            }
            _ => same(0..4) && same(6..40),
        };
        let (a, b) = (&first[s.transport..s.payload], &p[s.transport..s.payload]);
        let sequence = |t: &[u8]| u32::from_be_bytes([t[4], t[5], t[6], t[7]]);
        let next = sequence(a).wrapping_add((self.count * s.size) as u32);
        // Ports, acknowledgement, window, urgent pointer, options with their timestamps.
        network
            && sequence(b) == next
            && a[..4] == b[..4]
            && a[8..13] == b[8..13]
            && (a[13] ^ b[13]) & !(FIN | PSH) == 0
            && a[14..16] == b[14..16]
            && a[18..] == b[18..]
    }

    fn add(&mut self, pool: &mut Pool, part: (u32, u32), shape: &Shape) {
        // Push and end are the last segment's; the frame has them in its only header.
        let flags = HEADER + shape.transport + 13;
        let ends = pool.get(part.0)[flags] & (FIN | PSH);
        pool.bytes(self.parts[0].0)[flags] |= ends;
        self.parts[self.count] = part;
        self.count += 1;
        self.length += shape.size;
    }

    fn write(self, pool: &mut Pool, out: &mut impl FnMut(&[IoSlice<'_>]) -> bool) {
        let parts = &self.parts[..self.count];
        let s = &self.shape;
        if self.count > 1 {
            let first = pool.bytes(parts[0].0);
            first[1] = if s.transport == 20 { TCP4 } else { TCP6 };
            first[2..4].copy_from_slice(&(s.payload as u16).to_ne_bytes());
            first[4..6].copy_from_slice(&(s.size as u16).to_ne_bytes());
            let headers = &mut first[HEADER..HEADER + s.payload];
            segment::set_length(headers, s.transport, self.length, true);
        }
        let mut slices = [IoSlice::new(&[]); PACKETS];
        for (k, (&(place, bytes), slice)) in parts.iter().zip(&mut slices).enumerate() {
            let from = if k == 0 { 0 } else { HEADER + s.payload };
            *slice = IoSlice::new(&pool.get(place)[from..HEADER + bytes as usize]);
        }
        out(&slices[..self.count]);
        for &(place, _) in parts {
            pool.give(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::classify;
    use crate::segment::Frame as Read;
    use proptest::prelude::*;

    const MTU: usize = 1500;

    /// A frame of the kernel: one TCP packet of this flow, from `sequence` on, to be taken apart into pieces of `size` bytes.
    fn frame(
        six: bool,
        port: u8,
        sequence: u32,
        payload: &[u8],
        size: u16,
        (flags, ecn, id): (u8, u8, u16),
    ) -> Vec<u8> {
        let transport = if six { 40 } else { 20 };
        let mut p = vec![0; transport + 32];
        let length = p.len() + payload.len();
        if six {
            (p[0], p[1], p[6]) = (0x60, ecn << 4, header::TCP);
            p[39] = 9;
        } else {
            (p[0], p[1], p[8], p[9]) = (0x45, ecn, 64, header::TCP);
            p[4..6].copy_from_slice(&id.to_be_bytes());
            p[6] = 0x40;
            p[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        }
        let t = &mut p[transport..];
        t[1] = port;
        t[4..8].copy_from_slice(&sequence.to_be_bytes());
        t[12..16].copy_from_slice(&[8 << 4, flags, 0x10, 0]);
        t[20..32].fill(1);
        segment::set_length(&mut p, transport, length, true);
        p.extend_from_slice(payload);
        let kind = match (size, six) {
            (0, _) => 0,
            (_, false) => TCP4,
            (_, true) => TCP6,
        };
        let mut f = vec![NEEDS_CHECKSUM, kind];
        for word in [0, size, transport as u16, 16] {
            f.extend(word.to_ne_bytes());
        }
        f.extend(p);
        f
    }

    /// The frames of one packet that a frame of the kernel is.
    fn apart(frame: &[u8]) -> Vec<Vec<u8>> {
        let frame = Read::parse(frame).unwrap();
        let piece = |k| {
            let mut out = vec![0; HEADER + MTU];
            let length = frame.write(k, &mut out).unwrap();
            out.truncate(HEADER + length);
            out
        };
        (0..frame.count()).map(piece).collect()
    }

    fn hash(frame: &[u8]) -> u32 {
        classify(&frame[HEADER..], (1, 2)).hash
    }

    /// What leaves when these frames of one packet are pushed, with a look at the pool behind them.
    fn joined(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut pool = Pool::new(HEADER + MTU, 1 << 20);
        let mut joiner = Joiner::default();
        let mut gone = Vec::new();
        let mut out = |parts: &[IoSlice<'_>]| {
            gone.push(parts.iter().flat_map(|p| p.to_vec()).collect());
            true
        };
        for packet in packets {
            let place = pool.take().unwrap();
            pool.bytes(place)[..packet.len()].copy_from_slice(packet);
            let bytes = (packet.len() - HEADER) as u32;
            joiner.push(&mut pool, (place, bytes, hash(packet)), &mut out);
        }
        joiner.flush(&mut pool, &mut out);
        assert_eq!(pool.taken(), 0);
        gone
    }

    #[test]
    fn what_the_kernel_handed_over_as_one_leaves_as_one() {
        for six in [false, true] {
            let whole = frame(six, 1, 5, &[7; 40_000], 1000, (ACK | PSH, 2, 9));
            let gone = joined(&apart(&whole));
            assert_eq!(gone.len(), 1);
            let mut expected = whole;
            let headers = (if six { 72u16 } else { 52 }).to_ne_bytes();
            expected[2..4].copy_from_slice(&headers);
            assert_eq!(gone[0], expected);
        }
    }

    #[test]
    fn frames_of_several_flows_grow_side_by_side() {
        let flows: Vec<_> = (0..3)
            .map(|port| apart(&frame(false, port, 0, &[port; 5000], 1000, (ACK, 0, 0))))
            .collect();
        let turns: Vec<_> = (0..15).map(|i| flows[i % 3][i / 3].clone()).collect();
        assert_eq!(joined(&turns).len(), 3);
        assert_eq!(joined(&turns[..1]), turns[..1], "one packet stays as it is");
    }

    #[test]
    fn a_packet_that_says_something_of_its_own_goes_alone() {
        let packets = apart(&frame(false, 1, 0, &[1; 3000], 1000, (ACK, 2, 0)));
        let changed = |at: usize, value: u8| {
            let mut packets = packets.clone();
            packets[1][HEADER + at] = value;
            joined(&packets)
        };
        for (what, at, value) in [
            ("mark", 1, 3),
            ("time to live", 8, 63),
            ("identification", 5, 7),
            ("more fragments", 6, 0x60),
            ("sequence", 27, 0),
            ("acknowledgement", 31, 1),
            ("window reduced", 33, ACK | CWR),
            ("window", 34, 0x11),
            ("reset", 33, ACK | 4),
            ("timestamp", 50, 9),
        ] {
            // A fragment's flow is another one; all others stay in their place.
            let gone = changed(at, value);
            assert_eq!(gone.len(), 3, "{what}");
            assert!(gone.iter().any(|p| p[HEADER + at] == value), "{what}");
        }
        let mut complete = packets.clone();
        complete[1][0] = 0;
        assert_eq!(joined(&complete), complete, "its own checksum");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn taken_apart_again_each_flow_has_the_same_packets_in_the_same_order(
            frames in proptest::collection::vec(
                (any::<bool>(), 0..20u8, 0..6000usize, 1..1400u16, any::<u8>(), 0..4u8), 1..40),
            shuffle in any::<u64>(),
        ) {
            let mut at = [[u32::MAX - 5000; 20]; 2];
            let mut flows: Vec<Vec<Vec<u8>>> = Vec::new();
            for (six, port, bytes, size, flags, ecn) in frames {
                let sequence = &mut at[usize::from(six)][usize::from(port)];
                // Mostly plain segments; some with every flag there is.
                let flags = if flags & 7 == 0 { flags } else { ACK | flags & PSH };
                let f = frame(six, port, *sequence, &vec![flags; bytes], size, (flags, ecn, 7));
                *sequence = sequence.wrapping_add(bytes as u32);
                flows.push(apart(&f));
            }
            // Frames of the kernel, mixed as a fair queue does.
            let mut packets = Vec::new();
            let (mut dice, mut left) = (shuffle | 1, flows.len());
            let mut next = vec![0; flows.len()];
            while left > 0 {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let pick = (dice >> 33) as usize % flows.len();
                // Frames of one flow do not overtake each other.
                let pick = (0..=pick).find(|&f| next[f] < flows[f].len() && hash(&flows[f][0]) == hash(&flows[pick][0]));
                let Some(pick) = pick else {
                    left = next.iter().zip(&flows).filter(|(n, f)| **n < f.len()).count();
                    continue;
                };
                packets.push(flows[pick][next[pick]].clone());
                next[pick] += 1;
            }
            let again: Vec<_> = joined(&packets).iter().flat_map(|f| apart(f)).collect();
            let by_flow = |all: &[Vec<u8>]| {
                let mut all: Vec<_> = all.iter().map(|p| (hash(p), p.clone())).collect();
                all.sort_by_key(|(hash, _)| *hash);
                all
            };
            prop_assert_eq!(by_flow(&packets), by_flow(&again));
        }
    }
}
