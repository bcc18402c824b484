//! Parses rtnetlink messages about disciplines, classes and filters, in pure functions. Parsing
//! ends at truncated data; unknown data are skipped.

use std::fmt;

use super::digits::{in_base, short};

/// Bytes of a message's header (struct nlmsghdr) and of the part that disciplines and classes share
/// (struct tcmsg).
const HEADER: usize = 16;
const TCMSG: usize = 20;

// linux/netlink.h, linux/rtnetlink.h.
const ERROR: u16 = 2;
const DONE: u16 = 3;
pub(crate) const NEW_QDISC: u16 = 36;
pub(crate) const DEL_QDISC: u16 = 37;
pub(crate) const NEW_CLASS: u16 = 40;
const DEL_CLASS: u16 = 41;
const DEL_LINK: u16 = 17;
pub(crate) const NEW_FILTER: u16 = 44;
pub(crate) const DEL_FILTER: u16 = 45;
// Attributes of a discipline or class (TCA_*), and those within TCA_STATS2 (linux/gen_stats.h).
pub(crate) const KIND: u16 = 1;
pub(crate) const OPTIONS: u16 = 2;
const STATS2: u16 = 7;
const STAB: u16 = 8;
const BASIC: u16 = 1;
const QUEUE: u16 = 3;
const APP: u16 = 4;
const PACKETS64: u16 = 8;
/// NLA_F_NESTED and NLA_F_NET_BYTEORDER are flags beside an attribute's type.
const TYPE: u16 = 0x3FFF;

/// `TC_H_ROOT`: the parent of a device's root discipline.
pub const ROOT: u32 = 0xFFFF_FFFF;
/// The parent of `ingress` and `clsact`.
pub const INGRESS: u32 = 0xFFFF_FFF1;
/// The parent of ingress filters at `clsact`.
pub const CLSACT_INGRESS: u32 = 0xFFFF_FFF2;
/// The parent of egress filters at `clsact`.
pub const CLSACT_EGRESS: u32 = 0xFFFF_FFF3;

/// A parsed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A discipline or class.
    Queue(Queue<'a>),
    /// A filter.
    Filter(Filter<'a>),
    /// The end of a list: a negative errno if it failed, else 0 or more.
    Done(i32),
    /// The answer to a request: a negative errno, or 0 if it succeeded.
    Error(i32),
    /// Another message, or a truncated one.
    Other,
}

/// A message about a discipline or a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue<'a> {
    /// Identity: device, handle and parent.
    pub key: Key,
    /// Kind of the discipline, or of the class's discipline.
    pub kind: &'a str,
    /// Settings in the kind's own format.
    pub options: &'a [u8],
    /// Counters that every kind has.
    pub counters: Counters,
    /// Kind-specific statistics, for [`super::xstats::each`].
    pub xstats: &'a [u8],
    /// Whether it has a size table (`stab`).
    pub stab: bool,
}

/// A message about a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter<'a> {
    /// Interface index.
    pub device: u32,
    /// Handle of its parent.
    pub parent: u32,
    /// Handle among the filters of the same priority; 0 for their container.
    pub handle: u32,
    /// Priority; filters with lower numbers come first.
    pub priority: u16,
    /// Kind of the filter.
    pub kind: &'a str,
    /// Settings in the kind's own format.
    pub options: &'a [u8],
}

/// Identity of a discipline or class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Interface index.
    pub device: u32,
    /// Whether it is a class, not a discipline.
    pub class: bool,
    /// Handle of the discipline or class; 0 for a default discipline.
    pub handle: u32,
    /// Handle of its parent.
    pub parent: u32,
}

/// Counters of a discipline or class (struct gnet_stats_basic, gnet_stats_queue).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes that left, as this discipline counts them.
    pub bytes: u64,
    /// Packets that left; large packets count as their segments.
    pub packets: u64,
    /// Packets in the queue.
    pub backlog_packets: u32,
    /// Bytes in the queue.
    pub backlog_bytes: u32,
    /// Packets dropped. Wraps.
    pub drops: u32,
    /// Packets that the device returned to the queue. Wraps.
    pub requeues: u32,
    /// Times that a limit was reached; the meaning depends on the kind. Wraps.
    pub overlimits: u32,
}

/// A handle, written as `tc` does: `1:`, `1:10`, `root`, `ingress`; `0:` is a default discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub u32);

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        handle(&mut text, *self);
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

/// Writes a handle as `tc` does.
pub fn handle(out: &mut Vec<u8>, handle: Handle) {
    let (major, minor) = (handle.0 >> 16, handle.0 & 0xFFFF);
    match handle.0 {
        ROOT => short(out, b"root"),
        INGRESS => short(out, b"ingress"),
        _ => {
            if major > 0 || minor == 0 {
                in_base::<16>(out, major.into(), 1);
            }
            out.push(b':');
            if minor > 0 {
                in_base::<16>(out, minor.into(), 1);
            }
        }
    }
}

/// Parses the messages that answer request `sequence`, until `each` returns false.
pub fn messages<'a>(bytes: &'a [u8], sequence: u32, mut each: impl FnMut(Message<'a>) -> bool) {
    for message in split(bytes) {
        if u32_at(message, 8) == sequence && !each(read(message)) {
            return;
        }
    }
}

/// Parses notifications; returns the disciplines, classes and filters that were made, changed or
/// deleted.
pub fn notices(bytes: &[u8]) -> impl Iterator<Item = Key> {
    split(bytes).filter_map(|message| {
        let kind = u16_at(message, 4);
        let class = matches!(kind, NEW_CLASS | DEL_CLASS);
        let body = &message[HEADER..];
        let is = class || matches!(kind, NEW_QDISC | DEL_QDISC | NEW_FILTER | DEL_FILTER);
        (is && body.len() >= TCMSG).then(|| key(body, class))
    })
}

/// Whether a notification is about a deleted interface, discipline, class or filter.
pub fn is_removal(bytes: &[u8]) -> bool {
    let deleted = [DEL_LINK, DEL_QDISC, DEL_CLASS, DEL_FILTER];
    // A truncated notification counts, too.
    bytes.len() >= HEADER && deleted.contains(&u16_at(bytes, 4))
}

/// The answers to requests: sequence number, negative errno (0: success), and the kernel's
/// explanation, empty if there is none.
pub fn answers(bytes: &[u8]) -> impl Iterator<Item = (u32, i32, &str)> {
    split(bytes).filter_map(|message| {
        let body = &message[HEADER..];
        (u16_at(message, 4) == ERROR && body.len() >= 4).then(|| {
            let error = u32_at(body, 0).cast_signed();
            (u32_at(message, 8), error, explanation(message))
        })
    })
}

/// The explanation in an answer (NLMSGERR_ATTR_MSG). It follows the request, which an answer
/// returns as a whole or, with NLM_F_CAPPED, only by its header.
fn explanation(message: &[u8]) -> &str {
    const CAPPED: u16 = 0x100;
    const EXPLAINED: u16 = 0x200;
    let flags = u16_at(message, 6);
    let request = &message[HEADER + 4..];
    let length = match flags & CAPPED {
        0 => u32_at(request, 0) as usize,
        _ => HEADER,
    };
    let behind = length.checked_next_multiple_of(4);
    let behind = behind.filter(|_| flags & EXPLAINED != 0);
    let behind = behind.and_then(|at| request.get(at..));
    let mut found = attributes(behind.unwrap_or_default());
    found
        .find(|(kind, _)| *kind == 1)
        .map_or("", |(_, value)| text(value))
}

/// Single messages with their headers, up to the first truncated one.
fn split(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes.get(..HEADER)?, 0) as usize;
        let message = bytes.get(..length).filter(|_| length >= HEADER)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

fn read(message: &[u8]) -> Message<'_> {
    let body = &message[HEADER..];
    match u16_at(message, 4) {
        ERROR => Message::Error(u32_at(body, 0).cast_signed()),
        DONE => Message::Done(u32_at(body, 0).cast_signed()),
        kind @ (NEW_QDISC | NEW_CLASS) if body.len() >= TCMSG => {
            Message::Queue(queue(body, kind == NEW_CLASS))
        }
        NEW_FILTER if body.len() >= TCMSG => Message::Filter(filter(body)),
        _ => Message::Other,
    }
}

fn filter(body: &[u8]) -> Filter<'_> {
    let place = key(body, false);
    let mut filter = Filter {
        device: place.device,
        parent: place.parent,
        handle: place.handle,
        // The lower 16 bits are the protocol.
        priority: (u32_at(body, 16) >> 16) as u16,
        ..Filter::default()
    };
    for (kind, value) in attributes(&body[TCMSG..]) {
        match kind {
            KIND => filter.kind = text(value),
            OPTIONS => filter.options = value,
            _ => {}
        }
    }
    filter
}

fn key(body: &[u8], class: bool) -> Key {
    Key {
        device: u32_at(body, 4),
        class,
        handle: u32_at(body, 8),
        parent: u32_at(body, 12),
    }
}

fn queue(body: &[u8], class: bool) -> Queue<'_> {
    let mut queue = Queue {
        key: key(body, class),
        ..Queue::default()
    };
    for (kind, value) in attributes(&body[TCMSG..]) {
        match kind {
            KIND => queue.kind = text(value),
            OPTIONS => queue.options = value,
            STATS2 => statistics(&mut queue, value),
            STAB => queue.stab = true,
            _ => {}
        }
    }
    queue
}

fn statistics<'a>(queue: &mut Queue<'a>, bytes: &'a [u8]) {
    let counters = &mut queue.counters;
    let mut packets = None;
    for (kind, value) in attributes(bytes) {
        match kind {
            BASIC => {
                counters.bytes = u64_at(value, 0);
                counters.packets = u64::from(u32_at(value, 8));
            }
            QUEUE => {
                counters.backlog_packets = u32_at(value, 0);
                counters.backlog_bytes = u32_at(value, 4);
                counters.drops = u32_at(value, 8);
                counters.requeues = u32_at(value, 12);
                counters.overlimits = u32_at(value, 16);
            }
            APP => queue.xstats = value,
            // Present if the 32 bits of BASIC are not enough.
            PACKETS64 => packets = Some(u64_at(value, 0)),
            _ => {}
        }
    }
    counters.packets = packets.unwrap_or(counters.packets);
}

/// A NUL-terminated name.
fn text(value: &[u8]) -> &str {
    let end = value.iter().position(|byte| *byte == 0);
    std::str::from_utf8(&value[..end.unwrap_or(value.len())]).unwrap_or("?")
}

/// Types and values of attributes (struct nlattr), up to the first truncated one.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [a, b, c, d] = *bytes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & TYPE, value))
    })
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.copied().unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(field(bytes, at))
}

/// The 32-bit number at an offset; 0 beyond the end.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(field(bytes, at))
}

/// The 64-bit number at an offset; 0 beyond the end.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(field(bytes, at))
}
