//! Fields of a packet's headers that the queue needs: a keyed hash of the flow, the ECN field, the
//! length of the payload.
//!
//! No packet is refused: those that cannot be parsed (not IP, truncated) form one flow without ECN.

use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use quell_qdisc::discipline::Wants;
use quell_qdisc::{Acknowledgment, Ecn, Labels, num};
use siphasher::sip::SipHasher13;

use crate::packet::tcp::{self, Stamps};

/// Key of the flow hash. It is secret, so that senders cannot choose their buckets.
pub type Key = (u64, u64);

/// A random key, from the standard library's source of randomness.
pub fn random_key() -> Key {
    use std::hash::{BuildHasher, RandomState};
    (
        RandomState::new().hash_one(0),
        RandomState::new().hash_one(1),
    )
}

/// Fields of a packet's headers that the queue needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Keyed hash of addresses, protocol and, if there are any, ports or the identifier of ICMP.
    pub hash: u32,
    /// ECN field.
    pub ecn: Ecn,
    /// Bytes behind the transport header; 0 if the transport protocol is unknown.
    pub payload: u32,
    /// Hosts and DSCP, if the queue needs them.
    pub labels: Labels,
    /// Acknowledgment in a TCP segment, if the queue needs it.
    pub acknowledgment: Option<Acknowledgment>,
    /// Timestamps of a TCP segment, if requested.
    pub stamps: Option<Stamps>,
    /// Addresses, protocol and ports.
    pub tuple: Tuple,
}

/// A flow's 5-tuple.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuple {
    /// Addresses; an IPv4 address is in the first 4 bytes.
    source: [u8; 16],
    destination: [u8; 16],
    protocol: u8,
    /// Source and destination port; 0 if the packet has none.
    ports: [u8; 4],
    /// The IP version; 0: not IP.
    version: u8,
}

/// A host's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host(IpAddr);

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Tuple {
    /// Source and destination; `None` if the packet is not IP.
    pub fn hosts(&self) -> Option<[Host; 2]> {
        let address = |bytes: [u8; 16]| match self.version {
            4 => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
            _ => IpAddr::from(bytes),
        };
        let both = [self.source, self.destination];
        (self.version > 0).then(|| both.map(|bytes| Host(address(bytes))))
    }

    /// A hash of the TCP connection that is the same in both directions. It omits the near address,
    /// which NAT changes. `back`: the packet arrives from the line.
    pub fn connection(&self, back: bool, key: Key) -> u64 {
        let [a, b, c, d] = self.ports;
        let (far, ports) = match back {
            true => (self.source, [c, d, a, b]),
            false => (self.destination, self.ports),
        };
        let one_sided = Self {
            source: [0; 16],
            destination: far,
            ports,
            ..*self
        };
        hash64(&one_sided, key)
    }

    /// A hash of the far host; `back`: the packet arrives from the line. All hosts of an IPv6 /48
    /// count as one, since a site may have a whole /48 (RFC 6177, section 2; tunnel brokers give
    /// one to anyone).
    pub fn far_host(&self, back: bool, key: Key) -> u64 {
        let mut far = if back { self.source } else { self.destination };
        if self.version == 6 {
            far[6..].fill(0);
        }
        let host = Self {
            destination: far,
            // `hash64` omits the version, without which 32.1.13.184 would be 2001:db8::/48.
            protocol: self.version,
            ..Self::default()
        };
        hash64(&host, key)
    }
}

/// Text such as `tcp 10.0.0.2:443 → 10.0.0.3:51234`.
impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some([Host(from), Host(to)]) = self.hosts() else {
            return f.write_str("not IP");
        };
        match self.protocol {
            ICMP => f.write_str("icmp")?,
            TCP => f.write_str("tcp")?,
            UDP => f.write_str("udp")?,
            GRE => f.write_str("gre")?,
            ESP => f.write_str("esp")?,
            ICMP6 => f.write_str("icmp6")?,
            SCTP => f.write_str("sctp")?,
            other => write!(f, "protocol {other}")?,
        }
        let [a, b, c, d] = self.ports;
        if self.ports == [0; 4] {
            return write!(f, " {from} → {to}");
        }
        let from = SocketAddr::new(from, u16::from_be_bytes([a, b]));
        write!(
            f,
            " {from} → {}",
            SocketAddr::new(to, u16::from_be_bytes([c, d]))
        )
    }
}

/// IP protocol numbers (IANA).
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const ESP: u8 = 50;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;
// IPv6 extension headers (RFC 8200, section 4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HIP: u8 = 139;
const SHIM6: u8 = 140;
// Identifiers of tunnels: IP protocols, EtherTypes, VXLAN's port.
pub(crate) const IP_IN_IP: u8 = 4;
pub(crate) const IPV6_IN_IP: u8 = 41;
pub(crate) const GRE: u8 = 47;
const ETHERTYPE_IP: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_BRIDGED: u16 = 0x6558;
const VXLAN_PORT: u16 = 4789;
/// Most nested tunnels that are parsed.
const MAX_TUNNELS: usize = 4;
/// Most bytes between two IP headers of a tunnel: UDP's 8, Geneve's 260 (RFC 8926, section 3.4),
/// Ethernet's 22 with two tags.
const TUNNEL_HEADERS: usize = 8 + 260 + 22;
/// Most extension headers that are parsed, which bounds the work per packet; ports behind more of
/// them are ignored.
const MAX_EXTENSIONS: usize = 8;

/// A parsed IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    tuple: Tuple,
    pub(crate) ecn: Ecn,
    dscp: u8,
    /// Offset of the transport header.
    pub(crate) transport: usize,
    /// Length of the packet by its header, at most that of the buffer.
    end: usize,
    fragment: bool,
    /// Whether the packet is longer than the buffer.
    cut: bool,
}

/// Parser of packet headers.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    /// Key of the flow hash.
    pub key: Key,
    /// Whether flows are distinguished by the inner headers of tunnels: GRE, IP in IP (such as
    /// 6in4), VXLAN. The ECN field is the outer one, which the end of the tunnel copies to the
    /// inner header (RFC 6040).
    pub tunnels: bool,
    /// Whether the timestamps of TCP segments are read.
    pub stamps: bool,
    /// What the queue needs besides the flow.
    pub wants: Wants,
}

/// Parses a packet that begins with its IP header, without tunnels.
pub fn classify(packet: &[u8], key: Key) -> Class {
    let parser = Parser {
        key,
        tunnels: false,
        stamps: false,
        wants: Wants::default(),
    };
    parser.classify(packet)
}

impl Parser {
    /// Parses a packet that begins with its IP header.
    pub fn classify(&self, packet: &[u8]) -> Class {
        let Some(outer) = parse(packet) else {
            return self.unknown();
        };
        let (mut ip, mut packet) = (outer, packet);
        let depth = if self.tunnels { MAX_TUNNELS } else { 0 };
        for _ in 0..depth {
            let Some(within) = within(&ip, packet) else {
                break;
            };
            let Some(inner) = parse(within) else {
                break;
            };
            (ip, packet) = (inner, within);
        }
        let mut tuple = ip.tuple;
        let mut payload = 0;
        let (mut acknowledgment, mut stamps) = (None, None);
        // As in Linux's flow dissector, no fragment has ports, not even the first, so that all
        // fragments of a datagram stay together.
        if !ip.fragment {
            let rest = ip.rest(packet);
            if let (TCP | UDP | DCCP | SCTP | UDP_LITE, Some(ports)) =
                (tuple.protocol, rest.first_chunk())
            {
                tuple.ports = *ports;
            }
            payload = payload_bytes(tuple.protocol, rest);
            if self.wants.acknowledgments && tuple.protocol == TCP {
                let connection = hash64(&tuple, self.key);
                // A truncated segment may carry data behind the buffer's end.
                acknowledgment = tcp::acknowledgment(rest, connection).filter(|_| !ip.cut);
            }
            if self.stamps && tuple.protocol == TCP {
                stamps = tcp::stamps(rest, !ip.cut);
            }
        }
        let rest = if ip.fragment { &[] } else { ip.rest(packet) };
        let flow = Tuple {
            ports: icmp_identifier(tuple.protocol, rest).unwrap_or(tuple.ports),
            ..tuple
        };
        Class {
            hash: hash(&flow, self.key),
            ecn: outer.ecn,
            payload: num::count(payload),
            labels: match self.wants.labels {
                true => self.labels(&tuple, outer.dscp),
                false => Labels::default(),
            },
            acknowledgment,
            stamps,
            tuple,
        }
    }

    /// Hashes of the hosts, and the DSCP.
    fn labels(&self, tuple: &Tuple, dscp: u8) -> Labels {
        let host = |source, destination| {
            let host = Tuple {
                source,
                destination,
                ..Tuple::default()
            };
            hash(&host, self.key)
        };
        Labels {
            source: host(tuple.source, [0; 16]),
            destination: host([0; 16], tuple.destination),
            mark: 0,
            dscp,
        }
    }

    /// Replaces the hashes of a packet's hosts by those of `source` and `destination`, the hosts on
    /// the inner side of NAT.
    pub fn translate(&self, labels: &mut Labels, (source, destination): ([u8; 16], [u8; 16])) {
        let tuple = Tuple {
            source,
            destination,
            ..Tuple::default()
        };
        let Labels {
            source,
            destination,
            ..
        } = self.labels(&tuple, labels.dscp);
        (labels.source, labels.destination) = (source, destination);
    }

    /// Parses an Ethernet frame. Frames without IP are flows of their addresses and type, so that a
    /// flood of one kind does not delay ARP.
    pub fn classify_frame(&self, frame: &[u8]) -> Class {
        if let Some(at) = ethernet(frame) {
            return self.classify(&frame[at..]);
        }
        let mut flow = Tuple::default();
        let bytes = flow.source.iter_mut().zip(frame.iter().take(14));
        bytes.for_each(|(to, byte)| *to = *byte);
        Class {
            hash: hash(&flow, self.key),
            ..Class::default()
        }
    }

    /// The class of a packet that is not IP.
    fn unknown(&self) -> Class {
        Class {
            hash: hash(&Tuple::default(), self.key),
            ..Class::default()
        }
    }
}

impl Ip {
    /// The bytes behind the IP headers.
    fn rest<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        &packet[self.transport.min(self.end)..self.end]
    }
}

/// Position of an IP header in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Offset of the IP header.
    pub(crate) at: usize,
    pub(crate) protocol: u8,
    /// Offset of the transport header.
    pub(crate) transport: usize,
}

/// The IP header at offset `at`; `None` for fragments, and for jumbograms, whose length is in an
/// option.
pub(crate) fn layer(packet: &[u8], at: usize) -> Option<Layer> {
    let packet = packet.get(at..)?;
    let ip = parse(packet)?;
    let jumbo = ip.tuple.version == 6 && packet[4..6] == [0; 2];
    (!ip.fragment && !jumbo).then_some(Layer {
        at,
        protocol: ip.tuple.protocol,
        transport: at + ip.transport,
    })
}

/// The first IP header between the offsets `from` and `to` whose packet ends where `packet` ends.
/// It is found by its length and checksum, so that the tunnel's format need not be known.
pub(crate) fn inner(packet: &[u8], from: usize, to: usize) -> Option<Layer> {
    let mut places = (from..to.min(from + TUNNEL_HEADERS)).step_by(2);
    places.find_map(|at| {
        let layer = layer(packet, at).filter(|layer| layer.transport <= to)?;
        let ip = &packet[at..];
        let word = |at: usize| usize::from(u16::from_be_bytes([ip[at], ip[at + 1]]));
        let is_header = match ip[0] >> 4 {
            4 => word(2) == ip.len() && sum(&ip[..layer.transport - at], 0) == 0xffff,
            _ => 40 + word(4) == ip.len(),
        };
        is_header.then_some(layer)
    })
}

/// The inner IP packet of a tunnel.
fn within<'a>(ip: &Ip, packet: &'a [u8]) -> Option<&'a [u8]> {
    if ip.fragment {
        return None;
    }
    let rest = ip.rest(packet);
    match ip.tuple.protocol {
        IP_IN_IP | IPV6_IN_IP => Some(rest),
        GRE => {
            // RFC 2784 and 2890: flags, version and EtherType, then checksum, key and sequence
            // number if their flags are set.
            let word = |at: usize| Some(u16::from_be_bytes(rest.get(at..at + 2)?.try_into().ok()?));
            let flags = word(0)?;
            if flags & 0x4007 != 0 {
                return None; // RFC 1701's source routes; PPTP's version.
            }
            let optional = (flags & 0xb000).count_ones() as usize;
            let inner = rest.get(4 + 4 * optional..)?;
            match word(2)? {
                ETHERTYPE_IP | ETHERTYPE_IPV6 => Some(inner),
                ETHERTYPE_BRIDGED => inner.get(ethernet(inner)?..),
                _ => None,
            }
        }
        // RFC 7348, section 5: behind UDP's 8 bytes are the flags (8: I, the network's number is
        // valid), this number, and the Ethernet frame.
        UDP if rest.get(2..4)? == VXLAN_PORT.to_be_bytes() && rest.get(8)? & 8 != 0 => {
            let frame = rest.get(16..)?;
            frame.get(ethernet(frame)?..)
        }
        _ => None,
    }
}

/// Offset of the IP packet in an Ethernet frame, behind at most two VLAN tags (IEEE 802.1Q); `None`
/// if there is none.
pub fn ethernet(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    for _ in 0..3 {
        let kind = frame.get(at..at + 2)?;
        at += 2;
        match u16::from_be_bytes([kind[0], kind[1]]) {
            ETHERTYPE_IP | ETHERTYPE_IPV6 => return Some(at),
            0x8100 | 0x88a8 => at += 2,
            _ => return None,
        }
    }
    None
}

/// Parses the IP headers; `None` if they are truncated or inconsistent.
pub(crate) fn parse(packet: &[u8]) -> Option<Ip> {
    match packet.first()? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => None,
    }
}

fn parse_v4(packet: &[u8]) -> Option<Ip> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let transport = usize::from(header[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if transport < 20 || total < transport || packet.len() < transport {
        return None;
    }
    let mut tuple = Tuple {
        protocol: header[9],
        version: 4,
        ..Tuple::default()
    };
    let [a, b, c, d, e, f, g, h] = *header.last_chunk()?;
    put(&mut tuple.source, [a, b, c, d]);
    put(&mut tuple.destination, [e, f, g, h]);
    // More fragments, or an offset (RFC 791, section 3.1).
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    Some(Ip {
        tuple,
        ecn: Ecn::from_bits(header[1]),
        dscp: header[1] >> 2,
        transport,
        end: total.min(packet.len()),
        fragment,
        cut: total > packet.len(),
    })
}

fn parse_v6(packet: &[u8]) -> Option<Ip> {
    let header = packet.get(..40)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    // A length of 0 is that of a jumbogram (RFC 2675): it extends to the end of the buffer.
    let end = match length {
        0 => packet.len(),
        length => (40 + length).min(packet.len()),
    };
    let tuple = Tuple {
        version: 6,
        source: *header[8..].first_chunk()?,
        destination: *header[24..].first_chunk()?,
        ..Tuple::default()
    };
    let mut ip = Ip {
        tuple,
        ecn: Ecn::from_bits(header[1] >> 4),
        dscp: (header[0] & 15) << 2 | header[1] >> 6,
        transport: 40,
        end,
        fragment: false,
        cut: length > 0 && 40 + length > packet.len(),
    };
    let mut next = header[6];
    for _ in 0..MAX_EXTENSIONS {
        // Every extension header has at least 8 bytes and begins with next header and length.
        let Some(extension) = packet[..end].get(ip.transport..ip.transport + 8) else {
            break;
        };
        let bytes = match next {
            HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY | HIP | SHIM6 => {
                8 + 8 * usize::from(extension[1])
            }
            AUTHENTICATION => 8 + 4 * usize::from(extension[1]),
            FRAGMENT => {
                // An offset, or more fragments; an atomic fragment (RFC 6946) is a whole datagram.
                ip.fragment |= u16::from_be_bytes([extension[2], extension[3]]) & 0xfff9 != 0;
                8
            }
            _ => break,
        };
        next = extension[0];
        ip.transport += bytes;
        if ip.fragment {
            break;
        }
    }
    ip.tuple.protocol = next;
    Some(ip)
}

/// Number of bytes behind the transport header.
fn payload_bytes(protocol: u8, rest: &[u8]) -> usize {
    let header = match protocol {
        TCP => match rest.get(12) {
            Some(offset) => usize::from(offset >> 4) * 4,
            None => return 0,
        },
        UDP | UDP_LITE => 8,
        _ => return 0,
    };
    rest.len().saturating_sub(header)
}

/// Identifier of an echo or timestamp message of ICMP (RFC 792, RFC 4443), in place of ports. The
/// identifier of the answers of reflectors is random. Without it, packets with the forged address
/// of a reflector would be in the flow of its answers and delay them.
fn icmp_identifier(protocol: u8, rest: &[u8]) -> Option<[u8; 4]> {
    match (protocol, rest) {
        (ICMP, [0 | 8 | 13 | 14, _, _, _, a, b, ..]) | (ICMP6, [128 | 129, _, _, _, a, b, ..]) => {
            Some([*a, *b, 0, 0])
        }
        _ => None,
    }
}

/// Copies `from` to the beginning of `to`. Unlike `copy_from_slice` it is always compiled in place.
#[inline(always)]
fn put<const N: usize>(to: &mut [u8], from: [u8; N]) {
    if let Some(to) = to.first_chunk_mut() {
        *to = from;
    }
}

fn hash(tuple: &Tuple, key: Key) -> u32 {
    num::low_u32(hash64(tuple, key))
}

fn hash64(tuple: &Tuple, key: Key) -> u64 {
    let mut bytes = [0; 37];
    put(&mut bytes[..16], tuple.source);
    put(&mut bytes[16..], tuple.destination);
    bytes[32] = tuple.protocol;
    put(&mut bytes[33..], tuple.ports);
    let mut hasher = SipHasher13::new_with_keys(key.0, key.1);
    hasher.write(&bytes);
    hasher.finish()
}

/// Changes to a packet that leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Write Congestion Experienced, if the packet is ECN-capable.
    pub mark: bool,
    /// Clear the DSCP.
    pub wash: bool,
}

impl Change {
    /// No change.
    pub const NONE: Self = Self {
        mark: false,
        wash: false,
    };

    /// Whether there is anything to write.
    pub fn any(self) -> bool {
        self.mark || self.wash
    }

    /// Applies the changes; true if the packet was marked.
    pub fn apply(self, packet: &mut [u8]) -> bool {
        if self.wash {
            wash(packet);
        }
        self.mark && set_ce(packet)
    }
}

/// Clears the DSCP and keeps the ECN field.
fn wash(packet: &mut [u8]) {
    let Some(ip) = parse(packet).filter(|ip| ip.dscp != 0) else {
        return;
    };
    if packet[0] >> 4 == 6 {
        packet[0] &= 0xf0;
        packet[1] &= 0x3f;
        return;
    }
    write_tos(packet, ip.ecn.bits());
}

/// Writes the DSCP and ECN fields of an IPv4 packet, and updates the header's checksum.
fn write_tos(packet: &mut [u8], tos: u8) {
    let old = u16::from_be_bytes([packet[0], packet[1]]);
    packet[1] = tos;
    let new = u16::from_be_bytes([packet[0], packet[1]]);
    let sum = u16::from_be_bytes([packet[10], packet[11]]);
    packet[10..12].copy_from_slice(&update_checksum(sum, old, new).to_be_bytes());
}

/// Writes Congestion Experienced into an ECN-capable packet. Returns false, and changes nothing, if
/// the packet is not ECN-capable or marked already.
pub fn set_ce(packet: &mut [u8]) -> bool {
    let Some(ip) = parse(packet) else {
        return false;
    };
    if matches!(ip.ecn, Ecn::NotEct | Ecn::Ce) {
        return false;
    }
    if packet[0] >> 4 == 6 {
        packet[1] |= 3 << 4;
        return true;
    }
    write_tos(packet, packet[1] | Ecn::Ce.bits());
    true
}

/// The checksum after a 16-bit word has changed: HC' = ~(~HC + ~m + m') (RFC 1624, equation 3).
pub(crate) fn update_checksum(sum: u16, old: u16, new: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!old) + u32::from(new);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    !num::low_u16(total.into())
}

/// The Internet checksum (RFC 1071) of `bytes`, added to the partial sum `start`, not complemented.
pub(crate) fn sum(bytes: &[u8], start: u32) -> u32 {
    let mut total = u64::from(start);
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        total += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    total += u64::from(u32::from_be_bytes(last));
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    num::low_u32(total)
}

#[cfg(test)]
mod tests;
