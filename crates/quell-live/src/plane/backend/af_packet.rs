//! Forwards frames between two interfaces (AF_PACKET), as a bump in the wire. The kernel itself
//! does not forward between the two, so nothing passes after this process has ended.
//!
//! The kernel delivers frames with metadata (`PACKET_VNET_HDR`, `PACKET_AUXDATA`): open checksums
//! stay open, large frames are split, and VLAN tags are inserted again.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, c_void};
use quell_link::Error;
use quell_qdisc::num;

use crate::packet::header::{self, Change, Parser};
use crate::packet::pool::Pool;
use crate::packet::segment::{Frame, HEADER, MAX_PACKETS};
use crate::plane::backend::{Arrived, BATCH, InterfaceBackend, MEMORY, ROOM, no_socket};
use crate::system::sys;

/// Ethernet header with at most two VLAN tags, bytes.
const HEAD: usize = 22;
/// Ethernet header without tags, bytes.
const BARE: usize = 14;
/// Largest frame that the kernel delivers, bytes.
const LARGEST: usize = 66 << 10;
/// Entry in the list of waiting places: a packet has taken the place.
const USED: u32 = u32::MAX;
/// Attempts to send to a full device.
const TRIES: u32 = 200;

// linux/if_packet.h.
const PACKET_STATISTICS: c_int = 6;
const PACKET_AUXDATA: c_int = 8;
const PACKET_VNET_HDR: c_int = 15;
/// The flow's hash selects one of several sockets (PACKET_FANOUT_HASH); the kernel chooses the
/// group's number.
const PACKET_FANOUT: c_int = 18;
const UNIQUE_ID: c_int = 0x2000_0000;
const PACKET_QDISC_BYPASS: c_int = 20;
const PACKET_IGNORE_OUTGOING: c_int = 23;
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;

/// struct tpacket_auxdata.
#[repr(C)]
#[derive(Clone, Copy)]
struct Auxiliary {
    status: u32,
    _length: [u32; 2],
    _offsets: [u16; 2],
    vlan_tci: u16,
    vlan_tpid: u16,
}

/// Set when a frame of many packets could not be split.
static INSEPARABLE: AtomicBool = AtomicBool::new(false);

/// Whether any socket has refused a frame of many packets because it could not be split.
pub fn inseparable() -> bool {
    INSEPARABLE.load(Ordering::Relaxed)
}

/// An interface's registration in this network namespace. It ends when the interface is deleted or
/// moved to another namespace. Sockets (AF_PACKET, AF_XDP) that were bound to the interface then
/// get nothing more, even if it comes back with the same index. Setting the interface down does not
/// end the registration.
#[derive(Debug)]
pub struct Registration {
    /// Socket that is bound to the interface; gets no packets.
    fd: OwnedFd,
    index: u32,
}

impl Registration {
    /// The present registration of the interface with this index.
    pub fn of(index: u32) -> Result<Self, Error> {
        let bound = socket().and_then(|fd| bind(&fd, index, 0).map(|()| fd));
        let fd = bound.map_err(|e| no_socket("AF_PACKET", &e))?;
        Ok(Self { fd, index })
    }

    /// Whether the registration has ended: `packet_notifier` then sets the index in the socket's
    /// address to -1.
    pub fn ended(&self) -> bool {
        // SAFETY: zero is a valid sockaddr_ll; the kernel fills at most `size` bytes of it.
        unsafe {
            let mut address: libc::sockaddr_ll = zeroed();
            let mut size = num::count(size_of_val(&address));
            let to = (&raw mut address).cast();
            libc::getsockname(self.fd.as_raw_fd(), to, &mut size) == 0
                && address.sll_ifindex != self.index.cast_signed()
        }
    }
}

/// A frame's length and VLAN tag.
type Received = (usize, Option<(u16, u16)>);

/// Forwards the frames that arrive at one interface to another.
pub struct PacketSocket {
    from: OwnedFd,
    to: OwnedFd,
    pool: Pool,
    /// Size of a place, bytes: a header (`virtio_net_hdr`) and a frame.
    size: usize,
    /// Bytes used in each place.
    lengths: Vec<u32>,
    /// Places for the next frames.
    waiting: Vec<u32>,
    /// Frames that the last system call put there, and the range of those that have not been handed
    /// over.
    received: [Received; BATCH],
    left: Range<usize>,
    /// Buffers for the parts of frames that exceed their place.
    beyond: Vec<u8>,
    large: Vec<u8>,
    /// Places of packets that are to be sent.
    going: Vec<u32>,
    refused: u64,
    unsent: u64,
}

impl PacketSocket {
    /// Opens `count` sockets from the interface with index `from` to that with index `to`; each
    /// flow stays at one of them.
    pub fn fan(from: u32, to: u32, mtu: u32, count: usize) -> Result<Vec<Self>, Error> {
        let no = |e: io::Error| no_socket("AF_PACKET", &e);
        let fan: Vec<_> = (0..count)
            .map(|_| Self::open(from, to, mtu))
            .collect::<Result<_, _>>()?;
        if let [first, others @ ..] = &fan[..]
            && !others.is_empty()
        {
            let group = lead(&first.from).map_err(no)?;
            for other in others {
                option(&other.from, libc::SOL_PACKET, PACKET_FANOUT, &group).map_err(no)?;
            }
        }
        Ok(fan)
    }

    fn open(from: u32, to: u32, mtu: u32) -> Result<Self, Error> {
        let no = |e: io::Error| no_socket("AF_PACKET", &e);
        let from = receiving(from).map_err(no)?;
        Ok(Self::new(from, sending(to).map_err(no)?, mtu))
    }

    fn new(from: OwnedFd, to: OwnedFd, mtu: u32) -> Self {
        let size = HEADER + HEAD + mtu.max(1500) as usize;
        Self {
            from,
            to,
            pool: Pool::new(size, MEMORY),
            size,
            lengths: Vec::new(),
            waiting: Vec::new(),
            received: [(0, None); BATCH],
            left: 0..0,
            beyond: vec![0; BATCH * LARGEST],
            large: vec![0; LARGEST],
            going: Vec::new(),
            refused: 0,
            unsent: 0,
        }
    }

    /// Receives frames into the waiting places; returns their number.
    fn receive(&mut self) -> io::Result<usize> {
        self.waiting.retain(|place| *place != USED);
        while self.waiting.len() < BATCH {
            let Some(place) = self.pool.take() else { break };
            self.waiting.push(place);
        }
        let count = self.waiting.len();
        // SAFETY: zero is valid for all of these. Every pointer in them points to a separate part
        // of memory that outlives the call: places, pieces of `beyond` and control buffers are each
        // disjoint.
        unsafe {
            let mut parts: [[libc::iovec; 2]; BATCH] = zeroed();
            let mut messages: [libc::mmsghdr; BATCH] = zeroed();
            let mut controls = [sys::Control::EMPTY; BATCH];
            let beyond = self.beyond.chunks_exact_mut(LARGEST);
            let each = self.waiting.iter().zip(&mut parts).zip(&mut messages);
            for (((place, parts), message), (beyond, control)) in
                each.zip(beyond.zip(&mut controls))
            {
                parts[0].iov_base = self.pool.bytes(*place).as_mut_ptr().cast();
                parts[0].iov_len = self.size;
                parts[1].iov_base = beyond.as_mut_ptr().cast();
                parts[1].iov_len = LARGEST;
                message.msg_hdr = sys::message_header(parts, Some(control));
            }
            let n = libc::recvmmsg(
                self.from.as_raw_fd(),
                messages.as_mut_ptr(),
                num::count(count),
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            );
            let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
            for (got, message) in self.received.iter_mut().zip(&messages[..n]) {
                *got = (message.msg_len as usize, tag(&message.msg_hdr));
            }
            Ok(n)
        }
    }

    /// Adds the frame in a place to `arrived`.
    fn take(&mut self, place: u32, length: usize, parser: &Parser, arrived: &mut Vec<Arrived>) {
        let index = place as usize;
        if index >= self.lengths.len() {
            self.lengths.resize(index + 1, 0);
        }
        self.lengths[index] = num::count(length);
        let frame = &self.pool.bytes(place)[HEADER..length];
        let class = parser.classify_frame(frame);
        arrived.push(Arrived {
            place,
            bytes: num::count(frame.len() - BARE),
            class,
        });
    }

    /// Splits a large frame; `self.large` has its header and all its bytes.
    fn split(&mut self, length: usize, parser: &Parser, arrived: &mut Vec<Arrived>) {
        let mut large = std::mem::take(&mut self.large);
        let many = large[1] & 0x7f != 0;
        if self
            .split_into(&mut large[..length], parser, arrived)
            .is_none()
        {
            self.refused += 1;
            INSEPARABLE.fetch_or(many, Ordering::Relaxed);
        }
        self.large = large;
    }

    fn split_into(
        &mut self,
        frame: &mut [u8],
        parser: &Parser,
        arrived: &mut Vec<Arrived>,
    ) -> Option<()> {
        let head = header::ethernet(frame.get(HEADER..)?)?;
        let ethernet: [u8; HEAD] = frame.get(HEADER..HEADER + HEAD)?.try_into().ok()?;
        // The `virtio_net_hdr` moves to just before the IP packet, from which its offsets then
        // count.
        frame.copy_within(..HEADER, head);
        shift(&mut frame[head..], -num::count(head).cast_signed())?;
        let parts = Frame::parse(&frame[head..])?;
        for k in 0..parts.count() {
            let Some(place) = self.pool.take() else {
                self.refused += 1;
                continue;
            };
            let bytes = self.pool.bytes(place);
            let Some(length) = parts.write(k, &mut bytes[head..]) else {
                self.pool.give(place);
                self.refused += 1;
                continue;
            };
            bytes.copy_within(head..head + HEADER, 0);
            shift(bytes, num::count(head).cast_signed());
            bytes[HEADER..HEADER + head].copy_from_slice(&ethernet[..head]);
            self.take(place, HEADER + head + length, parser, arrived);
        }
        Some(())
    }

    /// Discards frames for which there is no place; true if there may be more.
    fn refuse(&mut self) -> bool {
        for _ in 0..BATCH {
            if sys::receive_bytes(self.from.as_fd(), &mut self.large[..1]).is_err() {
                return false;
            }
            self.refused += 1;
        }
        true
    }
}

impl InterfaceBackend for PacketSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    fn read(&mut self, parser: &Parser, arrived: &mut Vec<Arrived>) -> bool {
        if self.left.is_empty() {
            let Ok(n) = self.receive() else {
                return false;
            };
            if self.waiting.is_empty() {
                return self.refuse();
            }
            self.left = 0..n;
        }
        // The queue gets about a batch at a time, since each frame may be many packets.
        while arrived.len() < BATCH
            && let Some(k) = self.left.next()
        {
            let (place, (mut length, tag)) = (self.waiting[k], self.received[k]);
            if length < HEADER + BARE {
                continue;
            }
            let bytes = self.pool.bytes(place);
            let room = self.size - if tag.is_some() { 4 } else { 0 };
            // Byte 1 is the kind of a frame that is many packets (linux/virtio_net.h).
            if bytes[1] & 0x7f != 0 || length > room {
                let first = length.min(self.size);
                self.large[..first].copy_from_slice(&bytes[..first]);
                let rest = &self.beyond[k * LARGEST..][..(length - first).min(LARGEST - first)];
                self.large[first..first + rest.len()].copy_from_slice(rest);
                length = first + rest.len();
                if let Some(tag) = tag
                    && length + 4 <= LARGEST
                {
                    insert(&mut self.large[..length + 4], tag);
                    length += 4;
                }
                self.split(length, parser, arrived);
                continue;
            }
            if let Some(tag) = tag {
                length += 4;
                insert(&mut bytes[..length], tag);
            }
            self.waiting[k] = USED;
            self.take(place, length, parser, arrived);
        }
        !self.left.is_empty() || self.left.end == BATCH
    }

    fn accept(&mut self, place: u32, change: Change) -> bool {
        self.going.push(place);
        if !change.any() {
            return false;
        }
        let length = self.lengths[place as usize] as usize;
        let frame = &mut self.pool.bytes(place)[HEADER..length];
        header::ethernet(frame).is_some_and(|at| change.apply(&mut frame[at..]))
    }

    fn give_up(&mut self, place: u32) {
        self.pool.give(place);
    }

    fn flush(&mut self) {
        let going = std::mem::take(&mut self.going);
        let (mut from, mut tries) = (0, 0);
        while from < going.len() {
            let piece = &going[from..going.len().min(from + BATCH)];
            // SAFETY: as in `receive`; sendmmsg does not write through iov_base.
            let n = unsafe {
                let mut parts: [libc::iovec; BATCH] = zeroed();
                let mut messages: [libc::mmsghdr; BATCH] = zeroed();
                for ((place, part), message) in piece.iter().zip(&mut parts).zip(&mut messages) {
                    part.iov_base = self.pool.bytes(*place).as_mut_ptr().cast();
                    part.iov_len = self.lengths[*place as usize] as usize;
                    message.msg_hdr = sys::message_header(slice::from_mut(part), None);
                }
                let count = num::count(piece.len());
                let fd = self.to.as_raw_fd();
                libc::sendmmsg(fd, messages.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
            };
            if n > 0 {
                (from, tries) = (from + n.cast_unsigned() as usize, 0);
                continue;
            }
            // The device is full for a moment. Other errors are due to this frame, or the interface
            // is down.
            let full = matches!(sys::errno(), libc::ENOBUFS | libc::EAGAIN | libc::EINTR);
            tries += 1;
            if full && tries < TRIES {
                std::thread::yield_now();
            } else {
                self.unsent += 1;
                (from, tries) = (from + 1, 0);
            }
        }
        for place in &going {
            self.pool.give(*place);
        }
        self.going = going;
        self.going.clear();
    }

    fn capacity(&self) -> u32 {
        // Frames that the queue has not seen need places, too: one batch waits, another is being
        // handed over, and its last frame may be many packets.
        num::count(
            self.pool
                .max_places()
                .saturating_sub(2 * BATCH + MAX_PACKETS),
        )
    }

    fn lost(&mut self) -> (u64, u64) {
        self.refused += u64::from(dropped(&self.from));
        (self.refused, self.unsent)
    }
}

/// The VLAN tag that the kernel took out of a frame: TPID and TCI.
///
/// # Safety
/// The kernel must have filled in the header.
unsafe fn tag(header: &libc::msghdr) -> Option<(u16, u16)> {
    // SAFETY: the kernel filled in the header; such a message holds struct tpacket_auxdata.
    let data =
        unsafe { sys::control_message::<Auxiliary>(header, libc::SOL_PACKET, PACKET_AUXDATA) }?;
    let kind = match data.status & VLAN_TPID_VALID {
        0 => 0x8100,
        _ => data.vlan_tpid,
    };
    (data.status & VLAN_VALID != 0).then_some((kind, data.vlan_tci))
}

/// Inserts a VLAN tag behind the addresses of a frame whose last four bytes are free.
fn insert(frame: &mut [u8], (kind, tci): (u16, u16)) {
    let end = frame.len() - 4;
    let at = HEADER + 12;
    frame.copy_within(at..end, at + 4);
    frame[at..at + 2].copy_from_slice(&kind.to_be_bytes());
    frame[at + 2..at + 4].copy_from_slice(&tci.to_be_bytes());
    shift(frame, 4);
}

/// Moves the offsets in a `virtio_net_hdr`: the start of an open checksum, and the length of the
/// headers. `None` if one is out of range.
fn shift(header: &mut [u8], by: i32) -> Option<()> {
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let (flags, start, length) = (header[0], word(6), word(2));
    if flags & 1 != 0 {
        let moved = u16::try_from(i32::from(start) + by).ok()?;
        header[6..8].copy_from_slice(&moved.to_ne_bytes());
    }
    if length != 0 {
        let moved = u16::try_from(i32::from(length) + by).ok()?;
        header[2..4].copy_from_slice(&moved.to_ne_bytes());
    }
    Some(())
}

fn option<T>(fd: &OwnedFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let size = num::count(size_of::<T>());
    let value: *const c_void = std::ptr::from_ref(value).cast();
    // SAFETY: the value outlives the call.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Packets that the kernel dropped at a socket since the last call, because its buffer was full.
fn dropped(fd: &OwnedFd) -> u32 {
    // struct tpacket_stats: packets, drops.
    let mut stats = [0u32; 2];
    let mut size = num::count(size_of_val(&stats));
    // SAFETY: the kernel fills at most `size` bytes, all of them integers.
    let got = unsafe {
        let to = stats.as_mut_ptr().cast();
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            PACKET_STATISTICS,
            to,
            &mut size,
        )
    };
    if got == 0 { stats[1] } else { 0 }
}

fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; a descriptor that was just opened has no other owner. With protocol 0
    // nothing is received before `bind`.
    unsafe {
        match libc::socket(libc::AF_PACKET, kind, 0) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn bind(fd: &OwnedFd, index: u32, protocol: c_int) -> io::Result<()> {
    // SAFETY: zero is a valid sockaddr_ll, which outlives the call.
    unsafe {
        let mut address: libc::sockaddr_ll = zeroed();
        address.sll_family = num::short(libc::AF_PACKET);
        address.sll_protocol = num::short(protocol).to_be();
        address.sll_ifindex = index.cast_signed();
        let size = num::count(size_of_val(&address));
        match libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A socket that gets all frames that arrive at an interface, whatever their destination
/// (promiscuous mode).
fn receiving(index: u32) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let room: c_int = ROOM;
    option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &room)
        .or_else(|_| option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &room))?;
    for name in [PACKET_VNET_HDR, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING] {
        option(&fd, libc::SOL_PACKET, name, &1)?;
    }
    let all = libc::packet_mreq {
        mr_ifindex: index.cast_signed(),
        mr_type: num::short(libc::PACKET_MR_PROMISC),
        mr_alen: 0,
        mr_address: [0; 8],
    };
    option(&fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all)?;
    bind(&fd, index, libc::ETH_P_ALL)?;
    Ok(fd)
}

/// Starts a fanout group with a socket; returns the group's number.
fn lead(fd: &OwnedFd) -> io::Result<c_int> {
    option(fd, libc::SOL_PACKET, PACKET_FANOUT, &UNIQUE_ID)?;
    let mut group: c_int = 0;
    let mut size = num::count(size_of_val(&group));
    // SAFETY: the kernel fills a number of this size.
    let got = unsafe {
        let to = (&raw mut group).cast();
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            PACKET_FANOUT,
            to,
            &mut size,
        )
    };
    match got {
        0 => Ok(group & 0xffff),
        _ => Err(io::Error::last_os_error()),
    }
}

fn sending(index: u32) -> io::Result<OwnedFd> {
    let fd = socket()?;
    option(&fd, libc::SOL_PACKET, PACKET_VNET_HDR, &1)?;
    option(&fd, libc::SOL_PACKET, PACKET_QDISC_BYPASS, &1)?;
    bind(&fd, index, 0)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    /// A TCP frame to be split into segments of `size` bytes.
    fn large(size: u16, payload: usize) -> Vec<u8> {
        let mut f = vec![1, 1, 0, 0];
        for word in [size, 34, 16] {
            f.extend(word.to_ne_bytes());
        }
        f.extend([[2; 6], [4; 6]].concat());
        f.extend([8, 0, 0x45, 0]);
        f.extend((40 + payload as u16).to_be_bytes());
        f.extend([0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        f.extend([0; 12]);
        f.extend([5 << 4, 16, 1, 0, 0, 0, 0, 0]);
        f.resize(f.len() + payload, 7);
        f
    }

    #[test]
    fn the_queue_sees_a_batch_at_a_time_however_many_packets_a_frame_is() {
        let parser = Parser {
            key: (1, 2),
            tunnels: false,
            stamps: false,
            wants: Default::default(),
        };
        let (near, far) = UnixDatagram::pair().unwrap();
        let to = UnixDatagram::unbound().unwrap();
        let mut socket = PacketSocket::new(near.into(), to.into(), 1500);
        let (mut arrived, mut all) = (Vec::new(), 0);
        for (size, payload) in [(30, 18_000); 5].into_iter().chain([(1, 18_000), (9, 20)]) {
            far.send(&large(size, payload)).unwrap();
        }
        while socket.read(&parser, &mut arrived) || !arrived.is_empty() {
            assert!(
                arrived.len() < BATCH + MAX_PACKETS,
                "{} packets",
                arrived.len()
            );
            all += arrived.len();
            for packet in arrived.drain(..) {
                socket.give_up(packet.place);
            }
        }
        // One of the frames is 18,000 packets.
        assert_eq!((all, socket.refused), (5 * 600 + 3, 1));
        assert!(inseparable());
        assert_eq!(socket.pool.taken(), socket.waiting.len());
        let kept = socket.capacity() as usize + 2 * BATCH + MAX_PACKETS;
        assert_eq!(kept, socket.pool.max_places());
    }
}
