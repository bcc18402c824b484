//! Parses and writes messages of Linux's nfnetlink_queue (linux/netfilter/nfnetlink_queue.h). No
//! message is trusted: truncated or inconsistent ones are ignored.

use quell_qdisc::num;
/// NFNL_SUBSYS_QUEUE.
const SUBSYSTEM: u16 = 3;
const PACKET: u16 = 0;
const VERDICT: u16 = 1;
const CONFIG: u16 = 2;
const VERDICT_BATCH: u16 = 3;
/// NLMSG_ERROR; with errno 0 an acknowledgement.
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
// Attributes of packets and verdicts.
const PACKET_HDR: u16 = 1;
const VERDICT_HDR: u16 = 2;
const MARK: u16 = 3;
const PAYLOAD: u16 = 10;
const CT: u16 = 11;
const CT_INFO: u16 = 12;
const CAP_LEN: u16 = 13;
// Attributes of connections (linux/netfilter/nfnetlink_conntrack.h), nested: tuple, IP, address.
const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const TUPLE_IP: u16 = 1;
const V4_SRC: u16 = 1;
const V4_DST: u16 = 2;
const V6_SRC: u16 = 3;
const V6_DST: u16 = 4;
/// IP_CT_IS_REPLY: from this value on a packet is in the reply direction of its connection.
const IS_REPLY: u32 = 3;
// Attributes of configurations.
const CFG_CMD: u16 = 1;
const CFG_PARAMS: u16 = 2;
const CFG_QUEUE_MAXLEN: u16 = 3;
const CFG_MASK: u16 = 4;
const CFG_FLAGS: u16 = 5;
/// NFQNL_CFG_CMD_BIND.
const BIND: u8 = 1;
/// NFQNL_COPY_PACKET.
const COPY_PACKET: u8 = 2;
/// NFQA_CFG_F_FAIL_OPEN: packets pass if the queue is full.
const FAIL_OPEN: u32 = 1;
/// NFQA_CFG_F_CONNTRACK: packets come with their connections.
const CONNECTIONS: u32 = 2;
// NF_DROP and NF_ACCEPT.
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
/// Bytes of struct nlmsghdr and struct nfgenmsg.
const HEADERS: usize = 20;

/// A packet that the kernel holds until it gets a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedPacket<'a> {
    /// The kernel's number of the packet, in the order of arrival.
    pub id: u32,
    /// The copied bytes, from the IP header on.
    pub bytes: &'a [u8],
    /// Length of the whole packet, bytes.
    pub length: u32,
    /// Firewall mark (fwmark).
    pub mark: u32,
    /// Source and destination on the inner side of NAT, if the message has the packet's connection.
    pub within: Option<(Address, Address)>,
}

/// An address, IPv4 in the first four bytes.
pub type Address = [u8; 16];

/// A message from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A queued packet.
    Packet(QueuedPacket<'a>),
    /// Answer to a request: its sequence number, and errno or 0.
    Answer(u32, i32),
}

/// Parses the messages in a received buffer.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        loop {
            let length = u32_at(bytes, 0)? as usize;
            if length < 16 {
                return None;
            }
            let message = bytes.get(..length)?;
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
            if let Some(m) = message_of(message) {
                return Some(m);
            }
        }
    })
}

fn message_of(message: &[u8]) -> Option<Message<'_>> {
    let kind = u16_at(message, 4)?;
    if kind == ERROR {
        let error = (u32_at(message, 16)?).cast_signed();
        return Some(Message::Answer(u32_at(message, 8)?, error.wrapping_neg()));
    }
    if kind != SUBSYSTEM << 8 | PACKET {
        return None;
    }
    let (mut id, mut payload, mut length) = (None, &[][..], None);
    let (mut mark, mut connection, mut info) = (0, None, None);
    for (kind, value) in attributes(message.get(HEADERS..)?) {
        match kind {
            PACKET_HDR => id = be32_at(value, 0),
            MARK => mark = be32_at(value, 0).unwrap_or(0),
            PAYLOAD => payload = value,
            CT => connection = Some(value),
            CT_INFO => info = be32_at(value, 0),
            CAP_LEN => length = be32_at(value, 0),
            _ => {}
        }
    }
    Some(Message::Packet(QueuedPacket {
        id: id?,
        bytes: payload,
        length: length.unwrap_or(0).max(num::count(payload.len())),
        mark,
        within: connection.zip(info).and_then(|(ct, info)| within(ct, info)),
    }))
}

/// Kinds and values of attributes, up to the first truncated one.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (size, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
        let value = rest.get(4..size)?;
        rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
        // The mask removes the flags for nested attributes and byte order.
        Some((kind & 0x3fff, value))
    })
}

/// Source and destination of an arriving packet after NAT: destination and source of its
/// connection's other direction.
fn within(connection: &[u8], info: u32) -> Option<(Address, Address)> {
    let other = if info >= IS_REPLY {
        TUPLE_ORIG
    } else {
        TUPLE_REPLY
    };
    let inner = |of, wanted| {
        attributes(of)
            .find(|(kind, _)| *kind == wanted)
            .map(|a| a.1)
    };
    let (mut source, mut destination) = (None, None);
    for (kind, value) in attributes(inner(inner(connection, other)?, TUPLE_IP)?) {
        let mut address = Address::default();
        address.get_mut(..value.len())?.copy_from_slice(value);
        match (kind, value.len()) {
            (V4_SRC, 4) | (V6_SRC, 16) => source = Some(address),
            (V4_DST, 4) | (V6_DST, 16) => destination = Some(address),
            _ => {}
        }
    }
    destination.zip(source)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let found = bytes.get(at..at + 2)?;
    found.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..at + 4)?;
    found.try_into().ok().map(u32::from_ne_bytes)
}

fn be32_at(bytes: &[u8], at: usize) -> Option<u32> {
    u32_at(bytes, at).map(u32::from_be)
}

/// Binds a queue that holds at most `length` packets and lets further ones pass. There are two
/// requests, numbered from `sequence`; the kernel answers each.
pub fn bind(out: &mut Vec<u8>, queue: u16, length: u32, sequence: u32) {
    let message = begin(out, CONFIG, ACK, queue, sequence);
    attribute(out, CFG_CMD, &[BIND, 0, 0, 0]);
    finish(out, message);
    let message = begin(out, CONFIG, ACK, queue, sequence + 1);
    let range = 0xffff_u32.to_be_bytes();
    attribute(
        out,
        CFG_PARAMS,
        &[range[0], range[1], range[2], range[3], COPY_PACKET],
    );
    attribute(out, CFG_QUEUE_MAXLEN, &length.to_be_bytes());
    attribute(out, CFG_MASK, &FAIL_OPEN.to_be_bytes());
    attribute(out, CFG_FLAGS, &FAIL_OPEN.to_be_bytes());
    finish(out, message);
}

/// Asks for the connections of this queue's packets. The kernel acknowledges the request.
pub fn with_connections(out: &mut Vec<u8>, queue: u16, sequence: u32) {
    let message = begin(out, CONFIG, ACK, queue, sequence);
    attribute(out, CFG_MASK, &CONNECTIONS.to_be_bytes());
    attribute(out, CFG_FLAGS, &CONNECTIONS.to_be_bytes());
    finish(out, message);
}

/// Sets how many packets this queue holds.
pub fn resize(out: &mut Vec<u8>, queue: u16, length: u32) {
    let message = begin(out, CONFIG, 0, queue, 0);
    attribute(out, CFG_QUEUE_MAXLEN, &length.to_be_bytes());
    finish(out, message);
}

/// Accepts all packets that a queue holds up to number `last`, and lets further ones pass, since a
/// queue of length 0 fails open. The number `last` is at the end of the message.
pub fn open(out: &mut Vec<u8>, queue: u16, last: u32) {
    resize(out, queue, 0);
    let message = begin(out, VERDICT_BATCH, 0, queue, 0);
    let (v, id) = (ACCEPT.to_be_bytes(), last.to_be_bytes());
    attribute(
        out,
        VERDICT_HDR,
        &[v[0], v[1], v[2], v[3], id[0], id[1], id[2], id[3]],
    );
    finish(out, message);
}

/// Accepts a packet, with its content replaced by `bytes` if there are some.
pub fn accept(out: &mut Vec<u8>, queue: u16, id: u32, bytes: Option<&[u8]>) {
    verdict(out, queue, id, ACCEPT, bytes);
}

/// Drops a packet.
pub fn drop(out: &mut Vec<u8>, queue: u16, id: u32) {
    verdict(out, queue, id, DROP, None);
}

/// End of a piece of whole messages that begins at `from` and has about `most` bytes.
pub fn piece(out: &[u8], from: usize, most: usize) -> usize {
    let mut to = from;
    while let Some(length) = u32_at(out, to) {
        to += length as usize;
        if to - from >= most {
            break;
        }
    }
    to
}

fn verdict(out: &mut Vec<u8>, queue: u16, id: u32, verdict: u32, bytes: Option<&[u8]>) {
    let message = begin(out, VERDICT, 0, queue, 0);
    let (v, id) = (verdict.to_be_bytes(), id.to_be_bytes());
    attribute(
        out,
        VERDICT_HDR,
        &[v[0], v[1], v[2], v[3], id[0], id[1], id[2], id[3]],
    );
    if let Some(bytes) = bytes {
        attribute(out, PAYLOAD, bytes);
    }
    finish(out, message);
}

fn begin(out: &mut Vec<u8>, kind: u16, flags: u16, queue: u16, sequence: u32) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(SUBSYSTEM << 8 | kind).to_ne_bytes());
    out.extend_from_slice(&(REQUEST | flags).to_ne_bytes());
    out.extend_from_slice(&sequence.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    // struct nfgenmsg: any family, version 0, the queue.
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&queue.to_be_bytes());
    start
}

fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend_from_slice(&(4 + num::index_u16(value.len())).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn finish(out: &mut [u8], start: usize) {
    let length = num::count(out.len() - start);
    out[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet message from the kernel.
    fn packet(out: &mut Vec<u8>, id: u32, bytes: &[u8]) {
        let message = begin(out, PACKET, 0, 7, 0);
        let id = id.to_be_bytes();
        attribute(out, PACKET_HDR, &[id[0], id[1], id[2], id[3], 8, 0, 4]);
        attribute(out, PAYLOAD, bytes);
        finish(out, message);
    }

    #[test]
    fn packets_are_read_one_after_the_other() {
        let mut bytes = Vec::new();
        packet(&mut bytes, 5, b"first");
        packet(&mut bytes, 6, b"second one");
        let ids: Vec<_> = messages(&bytes)
            .map(|m| match m {
                Message::Packet(h) => (h.id, h.bytes.to_vec(), h.length),
                Message::Answer(..) => panic!("{m:?}"),
            })
            .collect();
        assert_eq!(
            ids,
            [(5, b"first".to_vec(), 5), (6, b"second one".to_vec(), 10)]
        );
    }

    /// The kernel's description of a connection from 192.168.1.7 to 8.8.8.8 whose source NAT
    /// changes to 1.2.3.4.
    fn translated(info: u32) -> Option<(Address, Address)> {
        let tuple = |out: &mut Vec<u8>, kind, source: [u8; 4], destination: [u8; 4]| {
            let (mut ip, mut inner) = (Vec::new(), Vec::new());
            attribute(&mut ip, V4_SRC, &source);
            attribute(&mut ip, V4_DST, &destination);
            // NLA_F_NESTED.
            attribute(&mut inner, TUPLE_IP | 0x8000, &ip);
            attribute(out, kind | 0x8000, &inner);
        };
        let mut connection = Vec::new();
        tuple(&mut connection, TUPLE_ORIG, [192, 168, 1, 7], [8; 4]);
        tuple(&mut connection, TUPLE_REPLY, [8; 4], [1, 2, 3, 4]);
        let mut out = Vec::new();
        let message = begin(&mut out, PACKET, 0, 7, 0);
        attribute(&mut out, PACKET_HDR, &[0, 0, 0, 5, 8, 0, 1]);
        attribute(&mut out, MARK, &9_u32.to_be_bytes());
        attribute(&mut out, CT | 0x8000, &connection);
        attribute(&mut out, CT_INFO, &info.to_be_bytes());
        finish(&mut out, message);
        match messages(&out).next() {
            Some(Message::Packet(held)) => {
                assert_eq!(held.mark, 9);
                held.within
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_that_arrives_goes_to_the_host_within() {
        let ip = |bytes: [u8; 4]| {
            let mut address = Address::default();
            address[..4].copy_from_slice(&bytes);
            address
        };
        // IP_CT_ESTABLISHED_REPLY: the header has 1.2.3.4.
        let answer = Some((ip([8; 4]), ip([192, 168, 1, 7])));
        assert_eq!(translated(IS_REPLY), answer);
        // IP_CT_ESTABLISHED, as with a forwarded port: the packet's destination is the source of
        // the answers.
        assert_eq!(translated(0), Some((ip([1, 2, 3, 4]), ip([8; 4]))));
    }

    #[test]
    fn a_verdict_has_the_layout_of_the_kernels_header() {
        let mut out = Vec::new();
        accept(&mut out, 0x0102, 0x0a0b_0c0d, Some(b"abc"));
        assert_eq!(out.len(), 20 + 12 + 8);
        assert_eq!(u32_at(&out, 0), Some(40));
        assert_eq!(u16_at(&out, 4), Some(0x0301));
        assert_eq!(out[18..20], [1, 2]);
        assert_eq!(out[24..32], [0, 0, 0, 1, 10, 11, 12, 13]);
        assert_eq!(out[36..], [b'a', b'b', b'c', 0]);
    }

    proptest! {
        #[test]
        fn malformed_messages_do_no_harm(garbage in proptest::collection::vec(any::<u8>(), 0..200), at in 0..100usize, cut in 0..200usize) {
            let _ = messages(&garbage).count();
            let mut bytes = Vec::new();
            packet(&mut bytes, 5, &garbage);
            packet(&mut bytes, 6, &garbage);
            for (to, from) in bytes.iter_mut().skip(at).zip(&garbage) {
                *to = *from;
            }
            bytes.truncate(cut);
            for m in messages(&bytes) {
                if let Message::Packet(h) = m {
                    prop_assert!(h.bytes.len() <= cut);
                }
            }
        }
    }
}
