//! Frames of a device with offloads: one large packet contains many, and checksums may be
//! incomplete. The queue must count real packets, so this file splits them as a network card does.
//! The checksums stay incomplete (open): the receiving device completes them if they are needed,
//! and a socket of the same machine does not need them.
//!
//! The frame's header is `struct virtio_net_hdr` (Virtio 1.2, section 5.1.6; linux/virtio_net.h),
//! in the machine's byte order.

use std::ops::Range;

use quell_qdisc::num;

use crate::packet::header::{self, Layer};

/// Size of the header before each packet, in both directions, bytes.
pub const HEADER: usize = 10;
/// Most packets of a frame: 64 KiB at Linux's smallest MSS (TCP_MIN_MSS, 88 bytes). Segments may be
/// smaller, since the kernel merges segments of any size if they are equally long; only their
/// number is limited. UDP's limit in Linux is 128 (UDP_MAX_SEGMENTS).
pub const MAX_PACKETS: usize = 65_535 / 88;
/// Most IP headers of a packet: its own and those of tunnels.
const LAYERS: usize = 4;

// Flags and kinds of linux/virtio_net.h.
const NEEDS_CHECKSUM: u8 = 1;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
/// Flag beside a kind: only the first segment has CWR.
const ECN: u8 = 0x80;

// TCP's flags (RFC 9293, section 3.1).
const FIN: u8 = 1;
const PSH: u8 = 8;
const CWR: u8 = 0x80;

/// A parsed frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    packet: &'a [u8],
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One packet with a complete checksum.
    Whole,
    /// One packet whose transport checksum, over the bytes from `start` on, must be completed at
    /// `at`.
    Checksum { start: usize, at: usize },
    /// Segments of `size` payload bytes behind `header` bytes of headers; the transport header
    /// begins at `start`. The last IP header of `layers` is the segments' own. Those before it are
    /// of tunnels, within which a card or the kernel merges segments.
    Segments {
        tcp: bool,
        layers: [Option<Layer>; LAYERS],
        start: usize,
        header: usize,
        size: usize,
    },
}

impl<'a> Frame<'a> {
    /// Parses a frame; `None` if its header and its packet are inconsistent.
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let (head, packet) = frame.split_at_checked(HEADER)?;
        let word = |at: usize| usize::from(u16::from_ne_bytes([head[at], head[at + 1]]));
        let (flags, kind, size) = (head[0], head[1] & !ECN, word(4));
        let (start, at) = (word(6), word(6) + word(8));
        let whole = |kind| Some(Self { packet, kind });
        if kind == 0 {
            if flags & NEEDS_CHECKSUM == 0 {
                return whole(Kind::Whole);
            }
            return match at + 2 <= packet.len() && start <= at {
                true => whole(Kind::Checksum { start, at }),
                false => None,
            };
        }
        let layers = layers(packet, start)?;
        let inner = layers.iter().flatten().next_back()?;
        let version = packet[inner.at] >> 4;
        let tcp = match (kind, version) {
            (TCP4, 4) | (TCP6, 6) => true,
            (UDP, 4 | 6) => false,
            _ => return None,
        };
        let transport = start;
        let header = match tcp {
            true => transport + usize::from(packet.get(transport + 12)? >> 4) * 4,
            false => transport + 8,
        };
        let least = transport + if tcp { 20 } else { 8 };
        if size == 0 || header < least || header > packet.len() {
            return None;
        }
        if packet.len() > u16::MAX.into() || packet.len() - header > size * MAX_PACKETS {
            return None;
        }
        whole(Kind::Segments {
            tcp,
            layers,
            start,
            header,
            size,
        })
    }

    /// Number of packets in the frame.
    pub fn count(&self) -> usize {
        match self.kind {
            Kind::Segments { header, size, .. } => {
                (self.packet.len() - header).div_ceil(size).max(1)
            }
            _ => 1,
        }
    }

    /// Length of the headers of each packet, if the frame is segments.
    pub fn header(&self) -> Option<usize> {
        match self.kind {
            Kind::Segments { header, .. } => Some(header),
            _ => None,
        }
    }

    /// The frame's content, which begins with the headers of its first packet.
    pub fn packet(&self) -> &[u8] {
        self.packet
    }

    /// Length of packet `k`, and length of its payload (the whole packet, if the frame is not
    /// segments).
    pub fn length(&self, k: usize) -> (u32, u32) {
        match self.kind {
            Kind::Segments { header, size, .. } => {
                let payload = (self.packet.len() - header)
                    .saturating_sub(k * size)
                    .min(size);
                (num::count(header + payload), num::count(payload))
            }
            _ => (num::count(self.packet.len()), num::count(self.packet.len())),
        }
    }

    /// Writes packet `k` as a frame of its own into `out`. Returns the packet's length without the
    /// frame's header; `None` if it does not fit.
    pub fn write(&self, k: usize, out: &mut [u8]) -> Option<usize> {
        let whole = out;
        let (head, out) = whole.split_at_mut_checked(HEADER)?;
        match self.kind {
            Kind::Whole => {
                head.fill(0);
                out.get_mut(..self.packet.len())?
                    .copy_from_slice(self.packet);
                Some(self.packet.len())
            }
            Kind::Checksum { start, at } => {
                // The checksum field holds the sum of the pseudo-header.
                open(head, start, at);
                out.get_mut(..self.packet.len())?
                    .copy_from_slice(self.packet);
                Some(self.packet.len())
            }
            Kind::Segments { header, .. } => {
                let (end, payload) = self.headers(k, 1, whole)?;
                let part = &self.packet[payload.start - HEADER..payload.end - HEADER];
                whole.get_mut(end..end + part.len())?.copy_from_slice(part);
                Some(header + part.len())
            }
        }
    }

    /// Writes the headers of one frame of `count` packets from `first` on into `out`. Returns where
    /// the headers end there, and the range of the payload in this frame's bytes. `None` if there
    /// are fewer packets, if `out` is too small, or for several packets of a tunnel.
    pub fn headers(
        &self,
        first: usize,
        count: usize,
        out: &mut [u8],
    ) -> Option<(usize, Range<usize>)> {
        let Kind::Segments {
            tcp,
            layers,
            start,
            header,
            size,
        } = self.kind
        else {
            return None;
        };
        let mut layers = layers.iter().flatten().rev();
        let inner = layers.next()?.at;
        let payload = self.packet.len() - header;
        let (from, to) = (first * size, ((first + count) * size).min(payload));
        // A frame's header cannot state where the headers of tunnels are.
        if count == 0 || first + count > self.count() || count > 1 && inner > 0 {
            return None;
        }
        let (head, out) = out.get_mut(..HEADER + header)?.split_at_mut(HEADER);
        let open_sum = start + if tcp { 16 } else { 6 };
        open(head, start, open_sum);
        out.copy_from_slice(&self.packet[..header]);
        let four = out[inner] >> 4 == 4;
        let length = header + to - from;
        set_length(&mut out[inner..], length - inner, first);
        let t = &mut out[start..];
        if tcp {
            let sequence =
                u32::from_be_bytes([t[4], t[5], t[6], t[7]]).wrapping_add(num::count(from));
            t[4..8].copy_from_slice(&sequence.to_be_bytes());
            if to < payload {
                t[13] &= !(FIN | PSH);
            }
            if first > 0 {
                t[13] &= !CWR;
            }
        } else {
            t[4..6].copy_from_slice(&num::index_u16(length - start).to_be_bytes());
        }
        if count > 1 {
            let reduced = if tcp && t[13] & CWR != 0 { ECN } else { 0 };
            head[1] = reduced
                | match (tcp, four) {
                    (true, true) => TCP4,
                    (true, false) => TCP6,
                    (false, _) => UDP,
                };
            head[2..4].copy_from_slice(&num::index_u16(header).to_ne_bytes());
            head[4..6].copy_from_slice(&num::index_u16(size).to_ne_bytes());
        }
        let protocol = if tcp { header::TCP } else { header::UDP };
        let sum = pseudo(&out[inner..], protocol, length - start);
        out[open_sum..open_sum + 2].copy_from_slice(&num::low_u16(sum.into()).to_be_bytes());
        for layer in layers {
            set_length(&mut out[layer.at..], length - layer.at, first);
            set_tunnel(out, layer, length, (start, open_sum));
        }
        let at = HEADER + header;
        Some((at, at + from..at + to))
    }
}

/// Writes a frame's header with an open checksum at `at`, over the bytes from `start` on.
fn open(head: &mut [u8], start: usize, at: usize) {
    head.fill(0);
    head[0] = NEEDS_CHECKSUM;
    head[6..8].copy_from_slice(&num::index_u16(start).to_ne_bytes());
    head[8..10].copy_from_slice(&num::index_u16(at - start).to_ne_bytes());
}

/// The IP headers before the transport header at `start`, the outermost first; `None` if they
/// cannot be determined, or if a tunnel's header differs from packet to packet.
fn layers(packet: &[u8], start: usize) -> Option<[Option<Layer>; LAYERS]> {
    let mut layers = [None; LAYERS];
    let mut layer = header::layer(packet, 0)?;
    for place in &mut layers {
        *place = Some(layer);
        if layer.transport == start {
            return Some(layers);
        }
        // A chain of extension headers may extend beyond the packet.
        let tunnel = packet.get(layer.transport..start)?;
        let headers = match (layer.protocol, tunnel) {
            (header::IP_IN_IP | header::IPV6_IN_IP, _) => 0,
            // A checksum and a key are possible, a sequence number is not (RFC 2890, section 2).
            (header::GRE, [flags, 0, ..]) if flags & !0xa0 == 0 => {
                4 + 4 * flags.count_ones() as usize
            }
            (header::UDP, _) => 8,
            _ => return None,
        };
        layer = header::inner(packet, layer.transport + headers, start)?;
    }
    None
}

/// Writes the length of packet `k` into its IP header, and for IPv4 its identification and
/// checksum.
fn set_length(headers: &mut [u8], length: usize, k: usize) {
    if headers[0] >> 4 == 6 {
        headers[4..6].copy_from_slice(&num::index_u16(length - 40).to_be_bytes());
        return;
    }
    let id = u16::from_be_bytes([headers[4], headers[5]]).wrapping_add(num::index_u16(k));
    headers[2..4].copy_from_slice(&num::index_u16(length).to_be_bytes());
    headers[4..6].copy_from_slice(&id.to_be_bytes());
    headers[10..12].fill(0);
    let header = &headers[..usize::from(headers[0] & 15) * 4];
    let sum = num::low_u16(header::sum(header, 0).into());
    headers[10..12].copy_from_slice(&(!sum).to_be_bytes());
}

/// Writes the length and the checksum of a tunnel's header in a packet of `length` bytes; the inner
/// headers must be written already. The bytes from `start` on, once their checksum is complete, add
/// up to the complement of the partial sum at `open`.
fn set_tunnel(headers: &mut [u8], layer: &Layer, length: usize, (start, open): (usize, usize)) {
    let from = layer.transport;
    let (at, pseudo) = match layer.protocol {
        header::UDP => {
            let length = length - from;
            headers[from + 4..from + 6].copy_from_slice(&num::index_u16(length).to_be_bytes());
            // UDP's checksum is optional (RFC 768; over IPv6 RFC 6935).
            if headers[from + 6..from + 8] == [0; 2] {
                return;
            }
            let pseudo = pseudo(&headers[layer.at..], header::UDP, length);
            (from + 6, pseudo)
        }
        header::GRE if headers[from] & 0x80 != 0 => (from + 4, 0),
        _ => return,
    };
    headers[at..at + 2].fill(0);
    let within = u16::from_be_bytes([headers[open], headers[open + 1]]);
    let sum = header::sum(&headers[from..start], pseudo + u32::from(!within));
    // 0 would mean that there is no checksum.
    let sum = match !num::low_u16(sum.into()) {
        0 => u16::MAX,
        sum => sum,
    };
    headers[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// The sum of the pseudo-header (RFC 9293, section 3.1; RFC 8200, section 8.1) for this IP header
/// and `length` bytes behind it.
fn pseudo(ip: &[u8], protocol: u8, length: usize) -> u32 {
    let addresses = if ip[0] >> 4 == 4 { 12..20 } else { 8..40 };
    header::sum(&ip[addresses], u32::from(protocol) + num::count(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A device's frame: a packet over IPv4 or IPv6 with this payload.
    fn frame(six: bool, tcp: bool, payload: &[u8], size: u16, flags: u8) -> Vec<u8> {
        let (ip, transport) = (if six { 40 } else { 20 }, if tcp { 32 } else { 8 });
        let mut p = vec![0; ip + transport];
        let length = transport + payload.len();
        if six {
            p[0] = 0x60;
            p[6] = if tcp { header::TCP } else { header::UDP };
            p[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            p[8..40].copy_from_slice(&std::array::from_fn::<u8, 32, _>(|i| i as u8 * 7));
        } else {
            p[0] = 0x45;
            p[2..4].copy_from_slice(&((20 + length) as u16).to_be_bytes());
            p[4..6].copy_from_slice(&[0xff, 0xfe]);
            p[9] = if tcp { header::TCP } else { header::UDP };
            p[12..20].copy_from_slice(&[100, 64, 0, 1, 100, 64, 0, 2]);
            complete(&mut p[..20], 10, 0);
        }
        if tcp {
            p[ip + 4..ip + 8].copy_from_slice(&[0xff, 0xff, 0xff, 0xf0]);
            p[ip + 12] = 8 << 4;
            p[ip + 13] = flags;
        } else {
            p[ip + 4..ip + 6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        p.extend_from_slice(payload);
        let kind = match (tcp, six) {
            (true, false) => TCP4,
            (true, true) => TCP6,
            _ => UDP,
        };
        let mut f = vec![NEEDS_CHECKSUM, if size == 0 { 0 } else { kind }];
        for word in [0, size, ip as u16, if tcp { 16 } else { 6 }] {
            f.extend(word.to_ne_bytes());
        }
        if size == 0 {
            // The kernel leaves the pseudo-header's sum in the field.
            let at = ip + if tcp { 16 } else { 6 };
            let sum = pseudo(&p, ip) as u16;
            p[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        f.extend(p);
        f
    }

    /// Writes the checksum of `bytes`, which is at `at`.
    fn complete(bytes: &mut [u8], at: usize, pseudo: u32) {
        let sum = header::sum(bytes, pseudo) as u16;
        bytes[at..at + 2].copy_from_slice(&(!sum).to_be_bytes());
    }

    fn pseudo(p: &[u8], start: usize) -> u32 {
        let (addresses, protocol) = match p[0] >> 4 {
            4 => (12..20, p[9]),
            _ => (8..40, p[6]),
        };
        header::sum(
            &p[addresses],
            u32::from(protocol) + (p.len() - start) as u32,
        )
    }

    /// The packets of a frame as they would be on a wire, with their checksums complete.
    fn pieces(f: &[u8]) -> Vec<Vec<u8>> {
        let frame = Frame::parse(f).unwrap();
        let piece = |k| {
            let mut out = vec![9; 70_000];
            let n = frame.write(k, &mut out).unwrap();
            let mut packet = out.split_off(HEADER);
            packet.truncate(n);
            assert_eq!(out[1..6], [0; 5], "one packet");
            let word = |at: usize| usize::from(u16::from_ne_bytes([out[at], out[at + 1]]));
            let (start, at) = (word(6), word(6) + word(8));
            assert_eq!(out[0], NEEDS_CHECKSUM);
            complete(&mut packet[start..], at - start, 0);
            packet
        };
        (0..frame.count()).map(piece).collect()
    }

    #[test]
    fn only_the_last_segment_ends_and_only_the_first_has_reduced_its_window() {
        let flags = FIN | PSH | CWR | 0x10;
        let all = pieces(&frame(false, true, &[1; 2500], 1000, flags));
        let seen: Vec<u8> = all.iter().map(|p| p[33]).collect();
        assert_eq!(seen, [0x10 | CWR, 0x10, 0x10 | FIN | PSH]);
        let ids: Vec<u16> = all
            .iter()
            .map(|p| u16::from_be_bytes([p[4], p[5]]))
            .collect();
        assert_eq!(ids, [0xfffe, 0xffff, 0]);
        let sequence = |p: &[u8]| u32::from_be_bytes([p[24], p[25], p[26], p[27]]);
        assert_eq!(sequence(&all[1]), 0xffff_fff0u32.wrapping_add(1000));
    }

    /// The frame within one of [`TUNNELS`] over IPv4 or IPv6, and the length of the tunnel's
    /// headers.
    fn within_tunnel(f: &[u8], six: bool, tunnel: usize) -> (Vec<u8>, usize) {
        let four = f[HEADER] >> 4 == 4;
        let kind: [u8; 2] = if four { [8, 0] } else { [0x86, 0xdd] };
        let (protocol, mut headers) = match tunnel {
            0 => (if four { 4 } else { 41 }, Vec::new()),
            1 => (header::GRE, [&[0, 0], &kind[..]].concat()),
            2 => (header::GRE, [&[0x20, 0], &kind[..], &[7; 4]].concat()),
            3 => (header::GRE, [&[0xa0, 0], &kind[..], &[7; 8]].concat()),
            _ => {
                let ethernet = [&[2; 12], &kind[..]].concat();
                let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0], &ethernet[..]].concat();
                let options = [&[3, 0, 0x65, 0x58, 0, 0, 7, 0][..], &[0x45; 12]].concat();
                let (port, sum, rest): (u16, _, _) = match tunnel {
                    4 => (4789, 0, vxlan),
                    5 => (8472, 1, [&vxlan[..20], &[0x81, 0, 0, 5], &kind].concat()),
                    6 => (6081, 1, [options, ethernet].concat()),
                    _ => (5555, 1, Vec::new()), // FOU.
                };
                let length = (8 + rest.len() + f.len() - HEADER) as u16;
                let udp = [0x3039, port, length, sum].map(u16::to_be_bytes);
                (header::UDP, [udp.concat(), rest].concat())
            }
        };
        let length = (headers.len() + f.len() - HEADER) as u16;
        let mut ip = vec![0; if six { 40 } else { 20 }];
        if six {
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&length.to_be_bytes());
            ip[6] = protocol;
        } else {
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&(length + 20).to_be_bytes());
            ip[4..6].copy_from_slice(&[0xff, 0xff]);
            ip[9] = protocol;
            complete(&mut ip, 10, 0);
        }
        headers.splice(0..0, ip);
        let mut all = f[..HEADER].to_vec();
        let start = u16::from_ne_bytes([f[6], f[7]]) + headers.len() as u16;
        all[6..8].copy_from_slice(&start.to_ne_bytes());
        all.extend(&headers);
        all.extend(&f[HEADER..]);
        (all, headers.len())
    }

    /// Number of tunnels: IP in IP; GRE, plain, with a key, with key and checksum; VXLAN, also on
    /// another port with a VLAN tag and a checksum; Geneve; FOU.
    const TUNNELS: usize = 8;

    #[test]
    fn segments_within_tunnels_are_those_without_and_each_has_the_tunnels_headers() {
        for (six, inner_six, tcp) in (0..8).map(|n| (n & 1 > 0, n & 2 > 0, n & 4 > 0)) {
            let plain = frame(inner_six, tcp, &[5; 3210], 1000, FIN | 0x10);
            for tunnel in 0..TUNNELS {
                let (f, bytes) = within_tunnel(&plain, six, tunnel);
                let all = pieces(&f);
                assert_eq!(all.len(), 4);
                for (k, (p, alone)) in all.iter().zip(pieces(&plain)).enumerate() {
                    assert_eq!(p[bytes..], alone, "{six} {inner_six} {tcp} {tunnel}");
                    let word = |at: usize| usize::from(u16::from_be_bytes([p[at], p[at + 1]]));
                    let ip = if six { 40 } else { 20 };
                    if six {
                        assert_eq!(word(4) + 40, p.len());
                    } else {
                        assert_eq!(word(2), p.len());
                        assert_eq!(header::sum(&p[..20], 0), 0xffff);
                        assert_eq!(word(4), (0xffff + k) & 0xffff);
                    }
                    if tunnel == 4 {
                        assert_eq!(word(ip + 6), 0);
                    }
                    if tunnel >= 4 {
                        assert_eq!(word(ip + 4), p.len() - ip);
                    }
                    if tunnel > 4 {
                        assert_eq!(header::sum(&p[ip..], pseudo(p, ip)), 0xffff, "{tunnel}");
                    }
                    if tunnel == 3 {
                        assert_eq!(header::sum(&p[ip..], 0), 0xffff);
                    }
                }
                // A tunnel within a tunnel.
                let (nested, outer) = within_tunnel(&f, !six, 7);
                for (p, alone) in pieces(&nested).iter().zip(&all) {
                    assert_eq!(p[outer..], alone[..], "{six} {inner_six} {tcp} {tunnel}");
                    let ip = if six { 20 } else { 40 };
                    assert_eq!(header::sum(&p[ip..], pseudo(p, ip)), 0xffff);
                }
            }
            // GRE with sequence numbers is refused: they would have to be made for each packet.
            let (mut f, _) = within_tunnel(&plain, six, 2);
            f[HEADER + if six { 40 } else { 20 }] = 0x10;
            assert!(Frame::parse(&f).is_none());
        }
        // A jumbogram's length is in an option.
        let mut f = frame(true, true, &[5; 3210], 1000, 0);
        f[HEADER + 4..HEADER + 6].fill(0);
        assert!(Frame::parse(&f).is_none());
    }

    #[test]
    fn a_frame_is_a_bounded_number_of_packets_however_small_they_are() {
        for tcp in [false, true] {
            let count = |bytes, size| {
                Frame::parse(&frame(false, tcp, &vec![1; bytes], size, 0)).map(|f| f.count())
            };
            assert_eq!(
                count(MAX_PACKETS, 1),
                Some(MAX_PACKETS),
                "small ones that were merged"
            );
            assert_eq!(count(MAX_PACKETS + 1, 1), None);
            assert_eq!(count(60_000, 1), None);
            assert_eq!(count(65_600, 1000), None, "longer than IP can say");
            assert_eq!(count(65_000, 88), Some(739));
        }
    }

    #[test]
    fn frames_that_contradict_themselves_are_refused() {
        let good = frame(false, true, &[1; 100], 50, 0);
        assert!(Frame::parse(&good).is_some());
        assert!(Frame::parse(&good[..9]).is_none());
        for (at, value) in [(1, 9), (1, TCP6), (4, 0), (6, 60), (HEADER, 0x65)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(Frame::parse(&bad).is_none(), "byte {at}");
        }
        // An extension header that extends beyond the packet, before a tunnel.
        let mut bad = within_tunnel(&good, true, 0).0;
        (bad[HEADER + 6], bad[HEADER + 40], bad[HEADER + 41]) = (60, 4, 120);
        assert!(Frame::parse(&bad).is_none());
        let mut bad = good.clone();
        bad[HEADER + 32] = 0xf0; // a TCP header of 60 bytes is still within
        assert!(Frame::parse(&bad).is_some());
        bad.truncate(HEADER + 70);
        assert!(Frame::parse(&bad).is_none());
        let frame = Frame::parse(&good).unwrap();
        assert_eq!(frame.write(0, &mut [0; 60]), None, "no room");
        assert_eq!(frame.write(2, &mut [0; 300]), None, "there are two");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn segments_hold_the_payload_once_and_their_checksums_are_right(
            six in any::<bool>(), tcp in any::<bool>(), size in prop_oneof![Just(0), 9..1500u16],
            payload in proptest::collection::vec(any::<u8>(), 1..6000),
        ) {
            let all = pieces(&frame(six, tcp, &payload, size, 0x18));
            let (ip, transport) = (if six { 40 } else { 20 }, if tcp { 32 } else { 8 });
            let mut joined = Vec::new();
            for p in &all {
                joined.extend_from_slice(&p[ip + transport..]);
                prop_assert!(size == 0 || p.len() <= ip + transport + usize::from(size));
                if !six && size > 0 {
                    prop_assert_eq!(header::sum(&p[..20], 0), 0xffff);
                    prop_assert_eq!(usize::from(u16::from_be_bytes([p[2], p[3]])), p.len());
                }
                // With a correct checksum the whole sums up to all ones.
                prop_assert_eq!(header::sum(&p[ip..], pseudo(p, ip)), 0xffff);
            }
            prop_assert_eq!(joined, payload);
        }

        #[test]
        fn no_frame_however_mangled_causes_a_panic(
            mut f in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                (any::<bool>(), any::<bool>(), 0..99u16).prop_map(|(s, t, z)| frame(s, t, &[3; 150], z, 0)),
                (any::<bool>(), any::<bool>(), 1..99u16, 0..TUNNELS)
                    .prop_map(|(s, t, z, n)| within_tunnel(&frame(s, t, &[3; 150], z, 0), t, n).0),
            ],
            flips in proptest::collection::vec((0..100usize, any::<u8>()), 0..4), cut in 0..300usize,
        ) {
            for (at, value) in flips {
                if let Some(b) = f.get_mut(at) {
                    *b = value;
                }
            }
            f.truncate(cut);
            if let Some(frame) = Frame::parse(&f) {
                let mut out = [0; 138];
                for k in 0..frame.count() + 1 {
                    let n = frame.write(k, &mut out);
                    prop_assert!(n.is_none_or(|n| HEADER + n <= out.len()));
                }
            }
        }
    }
}
