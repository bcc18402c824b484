//! What the queue needs of a packet's headers: a keyed hash of its flow, its ECN field, its payload.
//!
//! No packet is refused. What cannot be parsed (not IP, cut short) is one flow without ECN.

use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use quell_qdisc::discipline::Wants;
use quell_qdisc::{Acknowledgment, Ecn, Labels};
use siphasher::sip::SipHasher13;

use crate::packet::tcp::{self, Stamps};

/// The key of the flow hash: who does not know it cannot aim at a bucket.
pub type Key = (u64, u64);

/// A random key, which the standard library draws from the system.
pub fn random_key() -> Key {
    use std::hash::{BuildHasher, RandomState};
    (
        RandomState::new().hash_one(0),
        RandomState::new().hash_one(1),
    )
}

/// What a packet's headers say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Keyed hash of addresses, protocol and ports; of addresses and protocol alone where there are no ports.
    pub hash: u32,
    /// The ECN field.
    pub ecn: Ecn,
    /// Bytes behind the transport header; 0 where there is none that is known.
    pub payload: u32,
    /// Hosts and DSCP, where the queue wants them.
    pub labels: Labels,
    /// What a TCP segment acknowledges, where the queue wants that.
    pub acknowledgment: Option<Acknowledgment>,
    /// The timestamps of a TCP segment, if requested.
    pub stamps: Option<Stamps>,
    /// The flow's name.
    pub tuple: Tuple,
}

/// The parts of a flow's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuple {
    /// An IPv4 address is in the first 4 bytes.
    source: [u8; 16],
    destination: [u8; 16],
    protocol: u8,
    ports: [u8; 4],
    /// The IP version; 0: not IP.
    version: u8,
}

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host(IpAddr);

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Tuple {
    /// Source and destination; None where the packet is not IP.
    pub fn hosts(&self) -> Option<[Host; 2]> {
        let address = |bytes: [u8; 16]| match self.version {
            4 => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
            _ => IpAddr::from(bytes),
        };
        let both = [self.source, self.destination];
        (self.version > 0).then(|| both.map(|bytes| Host(address(bytes))))
    }

    /// A name of the TCP connection for both directions, `back` being that of what arrives. It leaves out the near address, which
    /// address translation changes.
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

    /// A name of the far host, `back` being that of what arrives. All of an IPv6 network of 48 bits are one: as much is given to one
    /// site (RFC 6177, section 2; tunnel brokers give it to anyone).
    pub fn far_host(&self, back: bool, key: Key) -> u64 {
        let mut far = if back { self.source } else { self.destination };
        if self.version == 6 {
            far[6..].fill(0);
        }
        let host = Self {
            destination: far,
            version: self.version,
            ..Self::default()
        };
        hash64(&host, key)
    }
}

/// As `tcp 10.0.0.2:443 → 10.0.0.3:51234`.
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
// What tunnels are announced by: IP protocols, Ethernet's types, VXLAN's port.
const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const ETHERTYPE_IP: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_BRIDGED: u16 = 0x6558;
const VXLAN_PORT: u16 = 4789;
/// Tunnels nested more deeply are not parsed.
const MAX_TUNNELS: usize = 4;
/// Ports behind longer chains of extension headers are ignored, which bounds the work per packet.
const MAX_EXTENSIONS: usize = 8;

/// Where an IP header ends and what it announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    tuple: Tuple,
    pub(crate) ecn: Ecn,
    dscp: u8,
    /// Offset of what follows all IP headers.
    pub(crate) transport: usize,
    /// The packet's length according to the header, at most what is there.
    end: usize,
    fragment: bool,
    /// The packet is longer than what is there.
    cut: bool,
}

/// How packets are parsed.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    /// Of the flow hash.
    pub key: Key,
    /// Flows are told by the headers within tunnels: GRE, IP in IP (6in4 and the like), VXLAN. The ECN field stays the outer one,
    /// which whoever takes the tunnel's header off carries inwards (RFC 6040).
    pub tunnels: bool,
    /// The timestamps of TCP segments are wanted.
    pub stamps: bool,
    /// What the queue asks beside the flow.
    pub wants: Wants,
}

/// Looks at a packet that begins with its IP header, not into tunnels.
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
    /// Looks at a packet that begins with its IP header.
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
        // As Linux's flow dissector: no fragment has ports, not even the first, so that all of a datagram stay together.
        if !ip.fragment {
            let rest = ip.rest(packet);
            if let (TCP | UDP | DCCP | SCTP | UDP_LITE, Some(ports)) =
                (tuple.protocol, rest.get(..4))
            {
                tuple.ports.copy_from_slice(ports);
            }
            payload = payload_bytes(tuple.protocol, rest);
            if self.wants.acknowledgments && tuple.protocol == TCP {
                let connection = hash64(&tuple, self.key);
                // Data may be in what is not there.
                acknowledgment = tcp::acknowledgment(rest, connection).filter(|_| !ip.cut);
            }
            if self.stamps && tuple.protocol == TCP {
                stamps = tcp::stamps(rest, !ip.cut);
            }
        }
        Class {
            hash: hash(&tuple, self.key),
            ecn: outer.ecn,
            payload: payload as u32,
            labels: match self.wants.labels {
                true => self.labels(&tuple, outer.dscp),
                false => Labels::default(),
            },
            acknowledgment,
            stamps,
            tuple,
        }
    }

    /// Hosts and DSCP.
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

    /// Replaces the hosts of a packet by those within address translation.
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

    /// What is said of a packet that is not IP.
    pub fn unknown(&self) -> Class {
        Class {
            hash: hash(&Tuple::default(), self.key),
            ..Class::default()
        }
    }
}

impl Ip {
    /// What follows the IP headers.
    fn rest<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        &packet[self.transport.min(self.end)..self.end]
    }
}

/// The IP packet within a tunnel's.
fn within<'a>(ip: &Ip, packet: &'a [u8]) -> Option<&'a [u8]> {
    if ip.fragment {
        return None;
    }
    let rest = ip.rest(packet);
    match ip.tuple.protocol {
        IP_IN_IP | IPV6_IN_IP => Some(rest),
        GRE => {
            // RFC 2784 and 2890: flags, version and kind, then a checksum, a key and a number where the flags say so.
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
        // RFC 7348, section 5: behind UDP's 8 bytes flags (I: the network's number is valid), number, the Ethernet frame.
        UDP if rest.get(2..4)? == VXLAN_PORT.to_be_bytes() && rest.get(8)? & 8 != 0 => {
            let frame = rest.get(16..)?;
            frame.get(ethernet(frame)?..)
        }
        _ => None,
    }
}

/// Where the IP packet of an Ethernet frame begins, behind at most two VLAN tags (IEEE 802.1Q); None if it has none.
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

/// Reads the IP headers; None if they are cut short or contradict themselves.
pub(crate) fn parse(packet: &[u8]) -> Option<Ip> {
    match packet.first()? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => None,
    }
}

fn parse_v4(packet: &[u8]) -> Option<Ip> {
    let header = packet.get(..20)?;
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
    tuple.source[..4].copy_from_slice(&header[12..16]);
    tuple.destination[..4].copy_from_slice(&header[16..20]);
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
    // A length of 0 announces a jumbogram (RFC 2675): all that is there.
    let end = match length {
        0 => packet.len(),
        length => (40 + length).min(packet.len()),
    };
    let mut tuple = Tuple {
        version: 6,
        ..Tuple::default()
    };
    tuple.source.copy_from_slice(&header[8..24]);
    tuple.destination.copy_from_slice(&header[24..40]);
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
        // The first 8 bytes of every extension header: next header, length.
        let Some(extension) = packet[..end].get(ip.transport..ip.transport + 8) else {
            break;
        };
        let bytes = match next {
            HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY | HIP | SHIM6 => {
                8 + 8 * usize::from(extension[1])
            }
            AUTHENTICATION => 8 + 4 * usize::from(extension[1]),
            FRAGMENT => {
                // An offset, or more to come; an atomic fragment (RFC 6946) is a whole datagram.
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

/// Bytes behind the transport header.
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

fn hash(tuple: &Tuple, key: Key) -> u32 {
    hash64(tuple, key) as u32
}

fn hash64(tuple: &Tuple, key: Key) -> u64 {
    let mut bytes = [0; 37];
    bytes[..16].copy_from_slice(&tuple.source);
    bytes[16..32].copy_from_slice(&tuple.destination);
    bytes[32] = tuple.protocol;
    bytes[33..].copy_from_slice(&tuple.ports);
    let mut hasher = SipHasher13::new_with_keys(key.0, key.1);
    hasher.write(&bytes);
    hasher.finish()
}

/// What is written into a packet that leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Congestion Experienced, if it is ECN-capable.
    pub mark: bool,
    /// DSCP 0.
    pub wash: bool,
}

impl Change {
    /// Nothing.
    pub const NONE: Self = Self {
        mark: false,
        wash: false,
    };

    /// Is there anything to write?
    pub fn any(self) -> bool {
        self.mark || self.wash
    }

    /// Writes it; true if the packet was marked by it.
    pub fn apply(self, packet: &mut [u8]) -> bool {
        if self.wash {
            wash(packet);
        }
        self.mark && set_ce(packet)
    }
}

/// Clears the DSCP and leaves the ECN field.
fn wash(packet: &mut [u8]) {
    let Some(ip) = parse(packet).filter(|ip| ip.dscp != 0) else {
        return;
    };
    if packet[0] >> 4 == 6 {
        packet[0] &= 0xf0;
        packet[1] &= 0x3f;
        return;
    }
    let old = u16::from_be_bytes([packet[0], packet[1]]);
    packet[1] = ip.ecn.bits();
    let new = u16::from_be_bytes([packet[0], packet[1]]);
    let sum = u16::from_be_bytes([packet[10], packet[11]]);
    packet[10..12].copy_from_slice(&update_checksum(sum, old, new).to_be_bytes());
}

/// Writes Congestion Experienced into an ECN-capable packet; false (and untouched) if it is not one, or is marked already.
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
    let old = u16::from_be_bytes([packet[0], packet[1]]);
    packet[1] |= 3;
    let new = u16::from_be_bytes([packet[0], packet[1]]);
    let sum = u16::from_be_bytes([packet[10], packet[11]]);
    packet[10..12].copy_from_slice(&update_checksum(sum, old, new).to_be_bytes());
    true
}

/// The checksum after a 16-bit word has changed: HC' = ~(~HC + ~m + m') (RFC 1624, equation 3).
pub(crate) fn update_checksum(sum: u16, old: u16, new: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!old) + u32::from(new);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    !(total as u16)
}

/// The Internet checksum (RFC 1071) of `bytes`, added to what `start` has summed up.
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
    total as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = (1, 2);

    /// An IPv4 packet with a right checksum.
    fn v4(protocol: u8, tos: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
        let mut p = vec![0; 20];
        p[0] = 0x45;
        p[1] = tos;
        p[2..4].copy_from_slice(&((20 + rest.len()) as u16).to_be_bytes());
        p[6..8].copy_from_slice(&fragment.to_be_bytes());
        p[8] = 64;
        p[9] = protocol;
        p[12..16].copy_from_slice(&[100, 64, 0, 1]);
        p[16..20].copy_from_slice(&[100, 64, 0, 2]);
        let c = !(sum(&p, 0) as u16);
        p[10..12].copy_from_slice(&c.to_be_bytes());
        p.extend_from_slice(rest);
        p
    }

    fn v6(next: u8, class: u8, rest: &[u8]) -> Vec<u8> {
        let mut p = vec![0; 40];
        p[0] = 0x60 | class >> 4;
        p[1] = class << 4;
        p[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
        p[6] = next;
        p[8] = 0xfd;
        p[24] = 0xfd;
        p[39] = 1;
        p.extend_from_slice(rest);
        p
    }

    fn tcp(source: u16, destination: u16, payload: usize) -> Vec<u8> {
        let mut t = vec![0; 20 + payload];
        t[..2].copy_from_slice(&source.to_be_bytes());
        t[2..4].copy_from_slice(&destination.to_be_bytes());
        t[12] = 5 << 4;
        t
    }

    #[test]
    fn ports_distinguish_flows_and_payload_does_not() {
        let hash = |a, b, n| classify(&v4(TCP, 0, 0, &tcp(a, b, n)), KEY).hash;
        assert_eq!(hash(1, 2, 0), hash(1, 2, 100));
        assert_ne!(hash(1, 2, 0), hash(1, 3, 0));
        assert_ne!(hash(1, 2, 0), hash(2, 1, 0));
        assert_ne!(
            hash(1, 2, 0),
            classify(&v4(TCP, 0, 0, &tcp(1, 2, 0)), (3, 4)).hash,
            "another key"
        );
        assert_eq!(classify(&v4(TCP, 0, 0, &tcp(1, 2, 77)), KEY).payload, 77);
        assert_eq!(classify(&v6(TCP, 0, &tcp(1, 2, 78)), KEY).payload, 78);
    }

    #[test]
    fn all_fragments_of_a_datagram_are_one_flow() {
        let first = classify(&v4(UDP, 0, 0x2000, &tcp(1, 2, 0)), KEY);
        let second = classify(&v4(UDP, 0, 0x2003, &[7; 8]), KEY);
        let last = classify(&v4(UDP, 0, 0x0006, &[9; 3]), KEY);
        assert_eq!((first.hash, first.payload), (second.hash, 0));
        assert_eq!(second.hash, last.hash);
        // Fragment header (RFC 8200, section 4.5): offset 0 with more, then offset 8.
        let six = |offset: u16, rest: &[u8]| {
            let mut f = vec![UDP, 0, 0, 0, 0, 0, 0, 9];
            f[2..4].copy_from_slice(&offset.to_be_bytes());
            f.extend_from_slice(rest);
            classify(&v6(FRAGMENT, 0, &f), KEY)
        };
        assert_eq!(six(1, &tcp(1, 2, 4)).hash, six(8, &[5; 30]).hash);
        // An atomic fragment is whole: its ports count.
        assert_eq!(
            six(0, &tcp(1, 2, 0)).hash,
            classify(&v6(UDP, 0, &tcp(1, 2, 0)), KEY).hash
        );
    }

    #[test]
    fn extension_headers_hide_no_ports() {
        let mut chain = vec![DESTINATION, 0, 0, 0, 0, 0, 0, 0]; // hop-by-hop
        chain.extend([AUTHENTICATION, 1]); // destination options, 16 bytes
        chain.extend([0; 14]);
        chain.extend([TCP, 4]); // authentication, (4 + 2) * 4 bytes
        chain.extend([0; 22]);
        chain.extend(tcp(5, 6, 11));
        let c = classify(&v6(HOP_BY_HOP, 0, &chain), KEY);
        let plain = classify(&v6(TCP, 0, &tcp(5, 6, 11)), KEY);
        assert_eq!(c, plain);
    }

    /// `inner` within each kind of tunnel.
    fn tunnels(inner: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
        let kind: [u8; 2] = if inner[0] >> 4 == 4 {
            [8, 0]
        } else {
            [0x86, 0xdd]
        };
        let ip = if inner[0] >> 4 == 4 {
            IP_IN_IP
        } else {
            IPV6_IN_IP
        };
        let ethernet = [&[0; 12][..], &kind, inner].concat();
        let tagged = [&[0; 12][..], &[0x81, 0, 0, 5], &kind, inner].concat();
        let gre = [&[0, 0][..], &kind, inner].concat();
        // Checksum, key and number.
        let full = [&[0xb0, 0][..], &kind, &[9; 12], inner].concat();
        let bridged = [&[0, 0, 0x65, 0x58][..], &ethernet].concat();
        let mut vxlan = vec![0xc0, 1, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0];
        vxlan.extend(&tagged);
        vec![
            ("IP in IPv4", v4(ip, 2, 0, inner)),
            ("IP in IPv6", v6(ip, 2, inner)),
            ("GRE", v4(GRE, 2, 0, &gre)),
            ("GRE with all options", v4(GRE, 2, 0, &full)),
            ("GRE with Ethernet", v6(GRE, 2, &bridged)),
            ("VXLAN", v4(UDP, 2, 0, &vxlan)),
        ]
    }

    #[test]
    fn flows_in_tunnels_are_distinguished_on_request_and_the_ecn_field_is_the_outer_one() {
        let deep = Parser {
            key: KEY,
            tunnels: true,
            stamps: false,
            wants: Wants::default(),
        };
        for inner in [v4(TCP, 0, 0, &tcp(1, 2, 9)), v6(TCP, 0, &tcp(1, 2, 9))] {
            let plain = classify(&inner, KEY);
            for (name, packet) in tunnels(&inner) {
                let class = deep.classify(&packet);
                assert_eq!((class.hash, class.payload), (plain.hash, 9), "{name}");
                assert_eq!(class.ecn, Ecn::Ect0, "{name}");
                assert_ne!(classify(&packet, KEY).hash, plain.hash, "{name}");
                let mut marked = packet.clone();
                assert!(set_ce(&mut marked), "{name}");
                assert_eq!(deep.classify(&marked).hash, plain.hash, "{name}");
                // A tunnel in a tunnel.
                for (outer, packet) in tunnels(&packet) {
                    assert_eq!(deep.classify(&packet).hash, plain.hash, "{name} in {outer}");
                }
                // Cut short within the inner header, it is the outer flow.
                let cut = &packet[..packet.len() - inner.len() + 12];
                assert_eq!(deep.classify(cut).hash, classify(cut, KEY).hash, "{name}");
            }
        }
    }

    #[test]
    fn what_is_no_tunnel_after_all_is_the_outer_flow() {
        let deep = Parser {
            key: KEY,
            tunnels: true,
            stamps: false,
            wants: Wants::default(),
        };
        let inner = v4(TCP, 0, 0, &tcp(1, 2, 9));
        for packet in [
            v4(GRE, 0, 0, &[&[0x40, 0, 8, 0][..], &inner].concat()), // source routes
            v4(GRE, 0, 0, &[&[0, 1, 8, 0][..], &inner].concat()),    // PPTP
            v4(GRE, 0, 0, &[&[0, 0, 0x88, 0xcc][..], &inner].concat()), // not IP
            v4(IP_IN_IP, 0, 0x2000, &inner),                         // a fragment
            v4(IP_IN_IP, 0, 0, &[]),
            v4(GRE, 0, 0, &[0]),
            v4(UDP, 0, 0, &[0, 1, 0x12, 0xb5, 0, 0, 0, 0, 0, 0]), // VXLAN without a network
        ] {
            assert_eq!(deep.classify(&packet), classify(&packet, KEY));
        }
        // An endless tunnel ends.
        let mut packet = v4(IP_IN_IP, 0, 0, &[]);
        for _ in 0..50 {
            packet = v4(IP_IN_IP, 0, 0, &packet);
        }
        deep.classify(&packet);
    }

    #[test]
    fn an_ethernet_frames_packet_is_found_behind_its_tags() {
        let frame = |head: &[u8]| [&[0; 12][..], head, &[0x45; 20]].concat();
        assert_eq!(ethernet(&frame(&[8, 0])), Some(14));
        assert_eq!(ethernet(&frame(&[0x81, 0, 0, 1, 0x86, 0xdd])), Some(18));
        assert_eq!(
            ethernet(&frame(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0])),
            Some(22)
        );
        assert_eq!(ethernet(&frame(&[8, 6])), None, "ARP");
        assert_eq!(ethernet(&frame(&[0x81, 0])[..14]), None);
        assert_eq!(ethernet(&[]), None);
    }

    #[test]
    fn a_mark_keeps_the_checksum_right() {
        for tos in [1, 2, 0xb9, 0xfe] {
            let mut p = v4(TCP, tos, 0, &tcp(1, 2, 5));
            assert!(set_ce(&mut p));
            assert_eq!(classify(&p, KEY).ecn, Ecn::Ce);
            assert_eq!(p[1] >> 2, tos >> 2, "the DSCP stays");
            assert_eq!(sum(&p[..20], 0), 0xffff);
            let mut p = v6(TCP, tos, &tcp(1, 2, 5));
            assert!(set_ce(&mut p));
            assert_eq!(classify(&p, KEY).ecn, Ecn::Ce);
            assert_eq!((p[0] & 15) << 4 | p[1] >> 4, tos | 3);
        }
    }

    #[test]
    fn packets_without_ecn_are_never_marked() {
        for mut p in [
            v4(TCP, 0, 0, &[]),
            v4(TCP, 3, 0, &[]),
            v6(TCP, 0, &[]),
            v6(TCP, 0xff, &[]),
            vec![],
            vec![0x45; 19],
        ] {
            let before = p.clone();
            assert!(!set_ce(&mut p));
            assert_eq!(p, before);
        }
    }

    #[test]
    fn what_is_no_packet_is_one_flow_without_ecn() {
        let odd = classify(&[], KEY);
        assert_eq!((odd.ecn, odd.payload), (Ecn::NotEct, 0));
        for bytes in [
            &[0x45][..],
            &[0x60; 39],
            &[0xff; 60],
            &[0x41; 30],
            &[0; 1500],
        ] {
            assert_eq!(classify(bytes, KEY), odd);
        }
        // Lengths that reach beyond the packet, or a total length below the header's.
        let mut p = v4(TCP, 2, 0, &tcp(1, 2, 0));
        p[2..4].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(classify(&p, KEY).payload, 0);
        p[2..4].copy_from_slice(&[0, 19]);
        assert_eq!(classify(&p, KEY), odd);
    }

    fn packets() -> impl Strategy<Value = Vec<u8>> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..120);
        prop_oneof![
            bytes(),
            (any::<u8>(), any::<u8>(), any::<u16>(), bytes())
                .prop_map(|(p, t, f, r)| v4(p, t, f, &r)),
            (
                prop_oneof![
                    Just(HOP_BY_HOP),
                    Just(ROUTING),
                    Just(FRAGMENT),
                    Just(AUTHENTICATION),
                    Just(DESTINATION),
                    any::<u8>()
                ],
                any::<u8>(),
                bytes()
            )
                .prop_map(|(n, c, r)| v6(n, c, &r)),
        ]
    }

    /// Headers with this byte of DSCP and ECN, and a checksum that holds.
    fn with_traffic_class(six: bool, byte: u8) -> Vec<u8> {
        let mut p = vec![0; 60];
        if six {
            (p[0], p[1], p[5]) = (0x60 | byte >> 4, byte << 4 | 5, 20);
            return p;
        }
        (p[0], p[1], p[3]) = (0x45, byte, 60);
        let sum = !sum(&p[..20], 0);
        p[10..12].copy_from_slice(&(sum as u16).to_be_bytes());
        p
    }

    #[test]
    fn hosts_and_the_dscp_are_read_where_the_queue_wants_them() {
        let parser = Parser {
            key: KEY,
            tunnels: false,
            stamps: false,
            wants: Wants {
                labels: true,
                ..Wants::default()
            },
        };
        for six in [false, true] {
            for (at, mut p) in [
                (0, with_traffic_class(six, 46 << 2 | 2)),
                (1, with_traffic_class(six, 46 << 2)),
            ] {
                let labels = parser.classify(&p).labels;
                assert_eq!(labels.dscp, 46, "{six} {at}");
                assert_eq!(classify(&p, KEY).labels, Labels::default());
                // Another destination is another host, and the same source.
                let destination = if six { 39 } else { 19 };
                p[destination] = 9;
                let other = parser.classify(&p).labels;
                assert_eq!(other.source, labels.source);
                assert_ne!(other.destination, labels.destination);
            }
        }
    }

    #[test]
    fn washing_clears_the_dscp_and_leaves_ecn_and_the_checksum_valid() {
        for six in [false, true] {
            for ecn in 0..4 {
                let mut p = with_traffic_class(six, 46 << 2 | ecn);
                let wash = Change {
                    mark: false,
                    wash: true,
                };
                assert!(!wash.apply(&mut p));
                assert_eq!(p, with_traffic_class(six, ecn));
                let both = Change {
                    mark: true,
                    wash: true,
                };
                let mut p = with_traffic_class(six, 8 << 2 | ecn);
                let marked = both.apply(&mut p);
                assert_eq!(marked, matches!(ecn, 1 | 2));
                assert_eq!(p, with_traffic_class(six, if marked { 3 } else { ecn }));
            }
        }
    }

    #[test]
    fn the_far_host_is_an_address_and_in_ipv6_its_network_of_48_bits() {
        let tuple = |version, source: [u8; 16], ports| Tuple {
            source,
            destination: [9; 16],
            protocol: TCP,
            ports,
            version,
        };
        let far = |tuple: Tuple| tuple.far_host(true, KEY);
        let (one, mut near, mut other) = ([1; 16], [1; 16], [1; 16]);
        (near[6], other[5]) = (2, 2);
        for version in [4, 6] {
            assert_eq!(
                far(tuple(version, one, [0; 4])),
                far(tuple(version, one, [7; 4]))
            );
            assert_ne!(
                far(tuple(version, one, [0; 4])),
                far(tuple(version, other, [0; 4]))
            );
            let back = Tuple {
                source: [9; 16],
                destination: one,
                ..tuple(version, one, [0; 4])
            };
            assert_eq!(far(tuple(version, one, [0; 4])), back.far_host(false, KEY));
        }
        assert_eq!(far(tuple(6, one, [0; 4])), far(tuple(6, near, [0; 4])));
        assert_ne!(far(tuple(4, one, [0; 4])), far(tuple(6, one, [0; 4])));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn no_packet_however_mangled_causes_a_panic(mut p in packets(), cut in 0..160usize, flip in any::<(u8, u8)>()) {
            if let Some(b) = p.get_mut(usize::from(flip.0)) {
                *b ^= flip.1;
            }
            p.truncate(cut);
            let c = classify(&p, KEY);
            prop_assert!(c.payload as usize <= p.len());
            let v4 = p.first().is_some_and(|b| b >> 4 == 4);
            let header = if v4 && p.len() > 20 { usize::from(p[0] & 15) * 4 } else { 0 };
            let before = (header >= 20 && header <= p.len()).then(|| sum(&p[..header], 0));
            let marked = set_ce(&mut p);
            prop_assert_eq!(marked, matches!(c.ecn, Ecn::Ect0 | Ecn::Ect1));
            if marked {
                prop_assert_eq!(classify(&p, KEY), Class { ecn: Ecn::Ce, ..c });
            }
            if let Some(before) = before {
                // 0 and 0xffff are the same number in ones' complement.
                prop_assert_eq!(sum(&p[..header], 0) % 0xffff, before % 0xffff);
            }
        }
    }
}
