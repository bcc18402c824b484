//! Backends receive and send the packets of a direction. This file has their trait, the kernel's
//! packet queue (NFQUEUE), and copies for a dry run.

pub mod af_packet;
pub mod af_xdp;

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use quell_link::Error;
use quell_qdisc::{Ecn, num};

use crate::firewall::Queues;
use crate::packet::header::{Change, Class, Parser};
use crate::packet::pool::Pool;
use crate::plane::nfqueue::{self, Message};
use crate::system::sys;

/// Most packets read before the link is served again.
pub const BATCH: usize = 64;
/// Approximate size of one write of verdicts to the kernel, bytes.
const PIECE: usize = 64 << 10;
/// Receive buffer of the socket, bytes; when it is full, the kernel lets further packets pass.
pub const ROOM: i32 = 16 << 20;
/// Memory for packet contents, bytes.
pub const MEMORY: usize = 128 << 20;
/// Most queue numbers that are tried.
const TRIES: u16 = 256;
/// Timeout for the kernel's answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes at the start of a packet that are parsed for its headers.
const HEADERS: usize = 256;
/// Buffer for several messages of the kernel, or one large packet, bytes.
const BUFFER: usize = 128 << 10;

/// A packet that arrived; its place stays valid until the packet is sent or dropped.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// The backend's number of the packet.
    pub place: u32,
    /// Bytes from the IP header on.
    pub bytes: u32,
    /// What the queue needs of its headers.
    pub class: Class,
}

/// Receives and sends the packets of a direction.
pub trait InterfaceBackend: Send + 'static {
    /// The descriptor that is readable while packets wait.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Reads waiting packets, about a batch; true if there may be more.
    fn read(&mut self, parser: &Parser, arrived: &mut Vec<Arrived>) -> bool;
    /// Sends a packet with these changes; returns whether a mark was written.
    fn accept(&mut self, place: u32, change: Change) -> bool;
    /// Drops a packet.
    fn give_up(&mut self, place: u32);
    /// Sends the decisions to the kernel.
    fn flush(&mut self);
    /// Most packets that the backend can hold for a discipline.
    fn capacity(&self) -> u32 {
        u32::MAX
    }
    /// Sets the length of the kernel's queue, packets, if the backend has one.
    fn keep(&mut self, _packets: u32) {}
    /// Message to `fd` that lets packets pass unmanaged. [`Self::last`] replaces its last four
    /// bytes. `None` if the backend has no such message.
    fn opener(&self) -> Option<Vec<u8>> {
        None
    }
    /// Last four bytes of the message of [`Self::opener`].
    fn last(&self) -> u32 {
        0
    }
    /// Reports that the loop runs. Returns whether packets bypassed it because it had stalled.
    fn beat(&mut self) -> bool {
        false
    }
    /// Releases a packet that may already have been sent by the watchdog.
    fn let_go(&mut self, place: u32) {
        self.accept(place, Change::NONE);
    }
    /// Manages packets again after a bypass. Returns how many packets bypassed the loop, as far as
    /// they can be counted.
    fn retake(&mut self) -> u64 {
        0
    }
    /// Packets lost so far because the kernel or quell had no memory, and packets that the other
    /// interface did not accept.
    fn lost(&mut self) -> (u64, u64) {
        (0, 0)
    }
}

/// The kernel's packet queue (NFQUEUE).
pub struct PacketQueue {
    fd: OwnedFd,
    /// Queue number.
    pub number: u16,
    slots: Vec<Slot>,
    free: Vec<u32>,
    pool: Pool,
    /// Size of a place in the pool, bytes.
    largest: usize,
    buffer: Vec<u8>,
    /// Verdicts that have not been sent.
    out: Vec<u8>,
    /// Packets that the kernel holds at most.
    length: u32,
    /// The kernel's number of the newest packet.
    newest: u32,
    /// Whether packets are ingress: NAT has not yet translated their addresses back.
    arriving: bool,
    /// Whether the packets' connections have been requested from the kernel.
    asked: bool,
}

/// A packet that the kernel holds.
#[derive(Clone, Copy)]
struct Slot {
    id: u32,
    /// Place in the pool and length of its bytes, if quell may write to it (mark, wash).
    bytes: Option<(u32, u32)>,
}

impl PacketQueue {
    /// Opens `count` queues with consecutive numbers from `first` on that are free and not among
    /// those to which rules lead already (`used`). The kernel holds at most `length` packets in
    /// each and lets further ones pass.
    pub fn row(
        first: u16,
        used: &[Queues],
        count: usize,
        length: u32,
        mtu: u32,
        arriving: bool,
    ) -> Result<Vec<Self>, Error> {
        let mut row = Vec::new();
        for number in first..first.saturating_add(TRIES) {
            let is_free = !used.iter().any(|queues| queues.contains(&number));
            let queue = match is_free {
                true => Self::open(number, length, mtu)?,
                false => None,
            };
            match queue {
                Some(queue) => row.push(Self { arriving, ..queue }),
                None => row.clear(),
            }
            if row.len() == count {
                return Ok(row);
            }
        }
        let what = format!("no {count} packet queues in a row are free from {first} on");
        Err(Error::new(what).remedy("see /proc/net/netfilter/nfnetlink_queue"))
    }

    /// Opens the queue with this number; `None` if another program has bound it.
    fn open(number: u16, length: u32, mtu: u32) -> Result<Option<Self>, Error> {
        let fd = sys::netfilter(ROOM).map_err(|e| no_socket("NETLINK_NETFILTER", &e))?;
        match bind(&fd, number, length) {
            Ok(()) => {}
            // A number that another socket has bound gives EPERM, whatever this process's
            // capabilities.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EPERM)) => {
                return Ok(None);
            }
            Err(e) => return Err(no_socket("NFQUEUE", &e)),
        }
        let largest = mtu.max(1500) as usize;
        Ok(Some(Self {
            fd,
            number,
            slots: Vec::new(),
            free: Vec::new(),
            pool: Pool::new(largest, MEMORY),
            largest,
            buffer: vec![0; BUFFER],
            out: Vec::new(),
            length,
            newest: 0,
            arriving: false,
            asked: false,
        }))
    }

    /// Frees a place; returns the kernel's number of its packet.
    fn close(&mut self, place: u32) -> u32 {
        let slot = &mut self.slots[place as usize];
        if let Some((bytes, _)) = slot.bytes.take() {
            self.pool.give(bytes);
        }
        self.free.push(place);
        slot.id
    }
}

/// The message for a socket that cannot be opened.
pub fn no_socket(what: &str, error: &io::Error) -> Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run it as root",
        // EEXIST: an XDP program in the driver, which excludes quell's.
        Some(libc::EBUSY | libc::EEXIST) => "another program uses it; stop that one",
        _ => "the kernel lacks it, or its module is not loaded; quell doctor says more",
    };
    Error::new(format!("cannot open {what}: {error}")).remedy(remedy)
}

/// Binds a packet queue to this socket.
fn bind(fd: &OwnedFd, queue: u16, length: u32) -> io::Result<()> {
    let (mut out, sequence) = (Vec::new(), 1);
    nfqueue::bind(&mut out, queue, length, sequence);
    ask::<2>(fd, &out, sequence)
}

/// Binds packet queues to which no rule leads, until the returned socket is closed; `None` if
/// another socket has bound one of the numbers.
///
/// # Errors
/// If the kernel has no packet queues, or a privilege is missing.
pub fn reserve(numbers: &[u16]) -> io::Result<Option<OwnedFd>> {
    let fd = sys::netfilter(ROOM)?;
    match numbers.iter().try_for_each(|number| bind(&fd, *number, 0)) {
        Ok(()) => Ok(Some(fd)),
        // A taken number and a missing privilege give the same error; with the privilege, another
        // number can be bound.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EPERM)) => {
            unused(&sys::netfilter(ROOM)?).map(|_| None).ok_or(e)
        }
        Err(e) => Err(e),
    }
}

/// Binds a free packet queue until `fd` is closed; returns its number.
fn unused(fd: &OwnedFd) -> Option<u16> {
    (u16::MAX - TRIES..u16::MAX).find(|number| bind(fd, *number, 0).is_ok())
}

/// Whether this kernel attaches connections to packets (CONFIG_NETFILTER_NETLINK_GLUE_CT).
pub fn tells_connections() -> bool {
    let Ok(fd) = sys::netfilter(ROOM) else {
        return false;
    };
    unused(&fd).is_some_and(|number| {
        let mut out = Vec::new();
        nfqueue::with_connections(&mut out, number, 1);
        ask::<1>(&fd, &out, 1).is_ok()
    })
}

/// Sends `N` requests, numbered from `sequence`, and waits for all answers.
fn ask<const N: usize>(fd: &OwnedFd, requests: &[u8], sequence: u32) -> io::Result<()> {
    sys::send_bytes(fd.as_fd(), requests)?;
    let mut buffer = [0; 1024];
    let mut answers = [None; N];
    while answers.contains(&None) {
        if !sys::readable(fd.as_fd(), ANSWER_TIMEOUT) {
            return Err(ErrorKind::TimedOut.into());
        }
        let n = sys::receive_bytes(fd.as_fd(), &mut buffer)?;
        for message in nfqueue::messages(&buffer[..n]) {
            if let Message::Answer(number, error) = message
                && let Some(answer) = answers.get_mut(number.wrapping_sub(sequence) as usize)
            {
                *answer = Some(error);
            }
        }
    }
    match answers.into_iter().flatten().find(|error| *error != 0) {
        None => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error)),
    }
}

impl InterfaceBackend for PacketQueue {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn read(&mut self, parser: &Parser, arrived: &mut Vec<Arrived>) -> bool {
        if parser.wants.translated && self.arriving && !self.asked {
            // The error of a kernel without this feature is ignored: `tells_connections` has tested
            // for it.
            nfqueue::with_connections(&mut self.out, self.number, 0);
            self.asked = true;
            self.flush();
        }
        while arrived.len() < BATCH {
            let n = match sys::receive_bytes(self.fd.as_fd(), &mut self.buffer) {
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            for message in nfqueue::messages(&self.buffer[..n]) {
                let Message::Packet(held) = message else {
                    continue;
                };
                self.newest = held.id;
                let mut class = parser.classify(held.bytes);
                if parser.wants.labels {
                    class.labels.mark = held.mark;
                }
                if let (true, Some(hosts)) = (parser.wants.translated, held.within) {
                    parser.translate(&mut class.labels, hosts);
                }
                let mut kept = None;
                let marks = matches!(class.ecn, Ecn::Ect0 | Ecn::Ect1);
                let washes = parser.wants.washed && class.labels.dscp != 0;
                if marks || washes {
                    // Writing to a packet needs all of its bytes. A packet that does not fit is
                    // treated as not ECN-capable and keeps its DSCP.
                    let length = held.bytes.len();
                    let fits = length == held.length as usize && length <= self.largest;
                    kept = fits.then(|| self.pool.take()).flatten();
                    match kept {
                        Some(p) => self.pool.bytes(p)[..length].copy_from_slice(held.bytes),
                        None if marks => class.ecn = Ecn::NotEct,
                        None => {}
                    }
                }
                let slot = Slot {
                    id: held.id,
                    bytes: kept.map(|place| (place, held.length)),
                };
                let place = self.free.pop().unwrap_or(num::count(self.slots.len()));
                match self.slots.get_mut(place as usize) {
                    Some(free) => *free = slot,
                    None => self.slots.push(slot),
                }
                arrived.push(Arrived {
                    place,
                    bytes: held.length,
                    class,
                });
            }
        }
        true
    }

    fn accept(&mut self, place: u32, change: Change) -> bool {
        let slot = self.slots[place as usize];
        let (mut written, mut marked) = (None, false);
        if let (true, Some((bytes, length))) = (change.any(), slot.bytes) {
            let bytes = &mut self.pool.bytes(bytes)[..length as usize];
            marked = change.apply(bytes);
            written = (marked || change.wash).then_some(&*bytes);
        }
        nfqueue::accept(&mut self.out, self.number, slot.id, written);
        self.close(place);
        marked
    }

    fn give_up(&mut self, place: u32) {
        let id = self.close(place);
        nfqueue::drop(&mut self.out, self.number, id);
    }

    /// Sends the verdicts to the kernel, many in one write.
    fn flush(&mut self) {
        let mut from = 0;
        while from < self.out.len() {
            let to = nfqueue::piece(&self.out, from, PIECE);
            while let Err(e) = sys::send_bytes(self.fd.as_fd(), &self.out[from..to]) {
                // These errors mean that memory is short for a moment; others are final.
                if !matches!(
                    e.raw_os_error(),
                    Some(libc::ENOBUFS | libc::EINTR | libc::EAGAIN)
                ) {
                    break;
                }
                std::thread::yield_now();
            }
            from = to;
        }
        self.out.clear();
    }

    fn opener(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        nfqueue::open(&mut out, self.number, 0);
        Some(out)
    }

    fn last(&self) -> u32 {
        // The kernel compares numbers by their difference; this one is after all that may be held.
        self.newest.wrapping_add(1 << 30).to_be()
    }

    fn let_go(&mut self, place: u32) {
        self.close(place);
    }

    fn retake(&mut self) -> u64 {
        let mut passed = 0;
        // The kernel has released all packets that its remaining messages describe.
        loop {
            match sys::receive_bytes(self.fd.as_fd(), &mut self.buffer) {
                Ok(n) => {
                    for message in nfqueue::messages(&self.buffer[..n]) {
                        if let Message::Packet(held) = message {
                            self.newest = held.id;
                            passed += 1;
                        }
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.keep(self.length);
        passed
    }

    fn keep(&mut self, packets: u32) {
        self.length = packets;
        nfqueue::resize(&mut self.out, self.number, packets);
        self.flush();
    }
}

/// Copies of an interface's egress or ingress packets (AF_PACKET); the packets themselves are not
/// touched.
pub struct Copies {
    fd: OwnedFd,
    outgoing: bool,
    mtu: u32,
    free: Vec<u32>,
    places: u32,
}

impl Copies {
    /// Opens copies of the egress packets (`outgoing`), or else of the ingress packets, of the
    /// interface with this index.
    pub fn open(index: u32, outgoing: bool, mtu: u32) -> Result<Self, Error> {
        Ok(Self {
            fd: sys::tap(index).map_err(|e| no_socket("AF_PACKET", &e))?,
            outgoing,
            mtu: mtu.max(68),
            free: Vec::new(),
            places: 0,
        })
    }
}

impl InterfaceBackend for Copies {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn read(&mut self, parser: &Parser, arrived: &mut Vec<Arrived>) -> bool {
        let mut buffer = [0; HEADERS];
        while arrived.len() < BATCH {
            let (n, kind, protocol) = match sys::receive_copy(self.fd.as_fd(), &mut buffer) {
                Ok(read) => read,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            let ours = match self.outgoing {
                true => kind == libc::PACKET_OUTGOING,
                false => kind <= libc::PACKET_MULTICAST,
            };
            if !ours || !matches!(i32::from(protocol), libc::ETH_P_IP | libc::ETH_P_IPV6) {
                continue;
            }
            let class = parser.classify(&buffer[..n.min(HEADERS)]);
            // One packet, or many that the kernel will split, each with 40 bytes of headers.
            let mut left = num::count(n);
            while left > 0 {
                let bytes = left.min(self.mtu);
                left -= match left > self.mtu {
                    true => self.mtu - 40,
                    false => left,
                };
                let place = self.free.pop().unwrap_or_else(|| {
                    self.places += 1;
                    self.places - 1
                });
                arrived.push(Arrived {
                    place,
                    bytes,
                    class,
                });
            }
        }
        true
    }

    fn accept(&mut self, place: u32, _change: Change) -> bool {
        self.free.push(place);
        false
    }

    fn give_up(&mut self, place: u32) {
        self.free.push(place);
    }

    fn flush(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_xdp_program_in_the_driver_is_another_programs() {
        let error = io::Error::from_raw_os_error(libc::EEXIST);
        let said = no_socket("AF_XDP", &error).to_string();
        assert!(
            said.ends_with("another program uses it; stop that one"),
            "{said}"
        );
    }
}
