//! Forwards frames between two interfaces (AF_XDP in copy mode), as a bump in the wire. A small XDP
//! program redirects them before the kernel's own forwarding. When this process ends, the program
//! is detached and the kernel's bridge forwards. The bridge also forwards while a loop is stalled:
//! the program checks when the loop last ran.
//!
//! Every receive queue of an interface has a socket. All loops share one UMEM, in which each has
//! its own part: a frame is received, held and sent in the same place. Of the rings
//! (linux/if_xdp.h), a loop has the RX and fill rings of its receive queues of one interface, and
//! the TX and completion rings of one socket of the other. A flow stays at one receive queue, hence
//! at one loop.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_void};
use quell_link::Error;
use quell_qdisc::num;

use crate::bpf::{self, Map, instruction};
use crate::packet::header::{self, Change, Parser};
use crate::plane::backend::{Arrived, BATCH, InterfaceBackend, no_socket};
use crate::system::{sys, watchdog};

/// Most time to wait until the kernel has released a closed socket; until then the interface's
/// queue is in use.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Entries of each ring.
const RING: u32 = 2048;
/// Most packets that a queue can hold: 64 or 128 MiB of memory.
pub const MAX_PACKETS: u32 = 32_768;
/// Bytes that the kernel leaves free before a frame (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;
/// Ethernet header with two VLAN tags, bytes.
const HEAD: u32 = 22;
/// Ethernet header without tags, bytes.
const BARE: u32 = 14;
/// Attempts to send to a full device.
const TRIES: u32 = 200;

// linux/if_xdp.h.
const STATISTICS: c_int = 7;
const MMAP_OFFSETS: c_int = 1;
const RX_RING: c_int = 2;
const TX_RING: c_int = 3;
const UMEM_REG: c_int = 4;
const FILL_RING: c_int = 5;
const COMPLETION_RING: c_int = 6;
const SHARED_UMEM: u16 = 1;
const COPY: u16 = 2;
// linux/bpf.h: types of maps, programs and attachments.
const XSKMAP: u32 = 17;
const PROG_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// XDP_FLAGS_SKB_MODE, which every device supports.
const GENERIC: u32 = 2;

/// struct xdp_umem_reg.
#[repr(C)]
struct Region {
    address: u64,
    length: u64,
    chunk: u32,
    headroom: u32,
    flags: u32,
    metadata: u32,
}

/// struct xdp_ring_offset.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Offsets {
    producer: u64,
    consumer: u64,
    entries: u64,
    flags: u64,
}

/// struct xdp_desc.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor {
    address: u64,
    length: u32,
    options: u32,
}

/// struct sockaddr_xdp.
#[repr(C)]
struct Address {
    family: u16,
    flags: u16,
    index: u32,
    queue: u32,
    shared: u32,
}

/// A ring shared with the kernel, with entries of type `T`. One side writes entries and moves the
/// producer; the other reads them and moves the consumer.
struct Ring<T> {
    map: Map,
    offsets: Offsets,
    /// Number of the next entry on quell's side.
    at: u32,
    entry: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn counter(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel gives the counter's offset in the mapping, aligned; the counter is
        // shared, and only used as an atomic.
        unsafe { AtomicU32::from_ptr(self.map.at.add(num::index(offset)).cast()) }
    }

    fn entry(&self, k: u32) -> *mut T {
        let index = (k & (RING - 1)) as usize;
        // SAFETY: the ring has RING entries from there on.
        unsafe {
            self.map
                .at
                .add(num::index(self.offsets.entries))
                .cast::<T>()
                .add(index)
        }
    }

    /// Entries that may still be written.
    fn room(&self) -> u32 {
        let taken = self.counter(self.offsets.consumer).load(Ordering::Acquire);
        RING - self.at.wrapping_sub(taken)
    }

    /// Writes an entry; there must be room.
    fn push(&mut self, entry: T) {
        // SAFETY: with room, the kernel does not access the entry until the producer has moved.
        unsafe { self.entry(self.at).write(entry) };
        self.at = self.at.wrapping_add(1);
    }

    /// Hands the pushed entries to the kernel.
    fn publish(&self) {
        let producer = self.counter(self.offsets.producer);
        producer.store(self.at, Ordering::Release);
    }

    /// The next entry that the kernel wrote.
    fn pop(&mut self) -> Option<T> {
        let made = self.counter(self.offsets.producer).load(Ordering::Acquire);
        if made == self.at {
            return None;
        }
        // SAFETY: the producer has passed the entry, so the kernel does not write it until the
        // consumer has.
        let entry = unsafe { self.entry(self.at).read() };
        self.at = self.at.wrapping_add(1);
        Some(entry)
    }

    /// Gives the popped entries back to the kernel.
    fn release(&self) {
        let consumer = self.counter(self.offsets.consumer);
        consumer.store(self.at, Ordering::Release);
    }
}

/// A socket at a receive queue of an interface, with its rings.
struct Side {
    fd: Arc<OwnedFd>,
    rx: Ring<Descriptor>,
    tx: Ring<Descriptor>,
    fill: Ring<u64>,
    done: Ring<u64>,
}

/// Memory that an interface's loops share with the XDP program that gives them frames.
struct Heartbeats {
    fd: OwnedFd,
    map: Map,
    queues: u32,
}

impl Heartbeats {
    fn new(queues: u32) -> io::Result<Self> {
        // Two numbers for each queue: time of its loop's last turn, and frames that bypassed the
        // loop.
        let (fd, map) = bpf::page(16 * queues as usize)?;
        Ok(Self { fd, map, queues })
    }

    /// A number of a queue: the time of its loop's last turn, ns (`k` = 0), or the count of frames
    /// that bypassed the loop (1).
    fn number(&self, queue: u32, k: usize) -> &AtomicU64 {
        let at = 2 * queue.min(self.queues - 1) as usize + k;
        // SAFETY: the mapping has two of them for each queue, aligned; they are shared, and only
        // used as atomics.
        unsafe { AtomicU64::from_ptr(self.map.at.cast::<u64>().add(at)) }
    }
}

/// A receive queue of an interface, served by a loop.
struct Port {
    fd: Arc<OwnedFd>,
    rx: Ring<Descriptor>,
    fill: Ring<u64>,
    queue: u32,
}

/// An attached XDP program, which redirects an interface's frames until this value is dropped.
pub struct Hook {
    _map: OwnedFd,
    _link: OwnedFd,
}

/// Forwards the frames that arrive at some receive queues of one interface to another.
pub struct XdpSocket {
    ports: Vec<Port>,
    /// Index of the port that is read first.
    turn: usize,
    /// Descriptor that is readable when a port is.
    wait: Arc<OwnedFd>,
    to: Arc<OwnedFd>,
    tx: Ring<Descriptor>,
    done: Ring<u64>,
    memory: Arc<Map>,
    chunk: u32,
    /// Index of the loop's first frame in the UMEM, number of its frames, and number of those that
    /// its queue may hold.
    first: u32,
    frames: u32,
    capacity: u32,
    /// Address and length of the content of each frame.
    held: Vec<(u64, u32)>,
    free: Vec<u32>,
    going: Vec<u32>,
    unsent: u64,
    heartbeats: Arc<Heartbeats>,
    /// Frames that the XDP program let pass so far, as last read, and those of them that have not
    /// been reported.
    known: u64,
    passed: u64,
}

/// An interface and its receive queues.
#[derive(Clone, Copy)]
pub struct Device {
    /// Interface index.
    pub index: u32,
    /// Number of its receive queues.
    pub queues: u32,
}

/// Opens both directions between two interfaces (from the first to the second, then back), with at
/// most `loops` loops each and no more than either interface has receive queues. The queue of each
/// loop holds at most `packets`, up to [`MAX_PACKETS`]. The hooks are not set yet.
pub fn open(
    devices: [Device; 2],
    mtu: u32,
    packets: [u32; 2],
    loops: usize,
) -> Result<([Vec<XdpSocket>; 2], Hooks), Error> {
    // The kernel's frames are at most one page.
    let Some(chunk) = [2048, 4096]
        .into_iter()
        .find(|c| mtu + HEAD + HEADROOM <= *c)
    else {
        let most = 4096 - HEADROOM - HEAD;
        let error = Error::new(format!("AF_XDP takes packets of at most {most} bytes"));
        return Err(error.remedy("set a smaller MTU, or leave --backend out"));
    };
    let no = |e: io::Error| no_socket("AF_XDP", &e);
    let loops = devices
        .iter()
        .map(|d| d.queues as usize)
        .fold(loops, usize::min);
    // Frames of each loop: those in its queue, in the fill and RX rings of its ports, and in its TX
    // ring.
    let part = |way: usize, number: usize| {
        let ports = num::count((devices[way].queues as usize - number).div_ceil(loops));
        packets[way].min(MAX_PACKETS) + (2 * ports + 1) * RING
    };
    let parts = [0, 1].map(|way| {
        (0..loops)
            .map(|number| part(way, number))
            .collect::<Vec<_>>()
    });
    let frames: u32 = parts.iter().flatten().sum();
    let memory = Arc::new(Map::new(frames as usize * chunk as usize, None).map_err(no)?);
    let mut shared: Option<Arc<OwnedFd>> = None;
    let (mut receivers, mut senders) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for (way, device) in devices.iter().enumerate() {
        for queue in 0..device.queues {
            let side =
                side(device.index, queue, (&memory, chunk), shared.as_deref()).map_err(no)?;
            shared.get_or_insert_with(|| side.fd.clone());
            senders[way].push((side.fd.clone(), side.tx, side.done));
            receivers[way].push(Port {
                fd: side.fd,
                rx: side.rx,
                fill: side.fill,
                queue,
            });
        }
    }
    let [one, other] = devices.map(|device| Heartbeats::new(device.queues).map(Arc::new));
    let heartbeats = [one.map_err(no)?, other.map_err(no)?];
    let hook = |way: usize| Hooked {
        index: devices[way].index,
        sockets: receivers[way].iter().map(|port| port.fd.clone()).collect(),
        heartbeats: heartbeats[way].clone(),
    };
    let hooks = Hooks([hook(0), hook(1)]);
    // Frames that arrive at one interface leave through the other.
    senders.swap(0, 1);
    let (mut first, mut ways) = (0, [Vec::new(), Vec::new()]);
    for (way, (receivers, senders)) in receivers.into_iter().zip(senders).enumerate() {
        let mut dealt: Vec<Vec<Port>> = (0..loops).map(|_| Vec::new()).collect();
        for port in receivers {
            dealt[port.queue as usize % loops].push(port);
        }
        let each = dealt.into_iter().zip(senders).zip(&parts[way]);
        for ((ports, (to, tx, done)), frames) in each {
            let mut socket = XdpSocket {
                wait: wait(&ports).map_err(no)?,
                ports,
                turn: 0,
                to,
                tx,
                done,
                memory: memory.clone(),
                chunk,
                first,
                frames: *frames,
                capacity: packets[way].min(MAX_PACKETS),
                held: vec![(0, 0); *frames as usize],
                free: (0..*frames).rev().collect(),
                going: Vec::new(),
                unsent: 0,
                heartbeats: heartbeats[way].clone(),
                known: 0,
                passed: 0,
            };
            socket.refill();
            first += frames;
            ways[way].push(socket);
        }
    }
    Ok((ways, hooks))
}

/// A descriptor that is readable when one of these ports is.
fn wait(ports: &[Port]) -> io::Result<Arc<OwnedFd>> {
    if let [port] = ports {
        return Ok(port.fd.clone());
    }
    let fds = ports.iter().map(|port| port.fd.as_fd());
    Ok(Arc::new(sys::together(fds)?))
}

/// An interface, the sockets at its receive queues, and the heartbeats of their loops.
struct Hooked {
    index: u32,
    sockets: Vec<Arc<OwnedFd>>,
    heartbeats: Arc<Heartbeats>,
}

/// The interfaces whose frames are to be redirected.
pub struct Hooks([Hooked; 2]);

impl Hooks {
    /// Attaches the XDP programs: from now on frames are redirected.
    pub fn set(&self) -> Result<Vec<Hook>, Error> {
        let no = |e: io::Error| no_socket("AF_XDP", &e);
        self.0
            .iter()
            .map(|hooked| hook(hooked).map_err(no))
            .collect()
    }
}

impl XdpSocket {
    /// Gives free frames to the kernel, to receive into.
    fn refill(&mut self) {
        for port in &mut self.ports {
            let mut room = port.fill.room().min(num::count(self.free.len()));
            while room > 0
                && let Some(place) = self.free.pop()
            {
                let frame = u64::from(self.first + place) * u64::from(self.chunk);
                port.fill.push(frame);
                room -= 1;
            }
            port.fill.publish();
        }
    }

    /// Number of the frame that contains an address; `None` if the frame is not this loop's.
    fn place(&self, address: u64) -> Option<u32> {
        let frame = u32::try_from(address / u64::from(self.chunk)).ok()?;
        let place = frame.checked_sub(self.first)?;
        (place < self.frames).then_some(place)
    }

    fn bytes(&mut self, place: u32) -> &mut [u8] {
        let (address, length) = self.held[place as usize];
        // SAFETY: `read` accepted only lengths within the frame, which the kernel does not access
        // until it is sent or filled again.
        unsafe {
            std::slice::from_raw_parts_mut(self.memory.at.add(num::index(address)), length as usize)
        }
    }

    /// Adds the frames that wait at a port to `arrived`, until there is a batch.
    fn read_port(&mut self, port: usize, parser: &Parser, arrived: &mut Vec<Arrived>) {
        while arrived.len() < BATCH {
            let Some(got) = self.ports[port].rx.pop() else {
                break;
            };
            let Some(place) = self.place(got.address) else {
                continue;
            };
            let begins = got.address % u64::from(self.chunk);
            if got.length < BARE || begins + u64::from(got.length) > u64::from(self.chunk) {
                self.free.push(place);
                continue;
            }
            self.held[place as usize] = (got.address, got.length);
            let frame = self.bytes(place);
            let class = parser.classify_frame(frame);
            arrived.push(Arrived {
                place,
                bytes: got.length - BARE,
                class,
            });
        }
        self.ports[port].rx.release();
    }

    /// Takes back frames that were sent.
    fn reap(&mut self) {
        while let Some(address) = self.done.pop() {
            self.free.extend(self.place(address));
        }
        self.done.release();
    }
}

impl InterfaceBackend for XdpSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.wait.as_fd()
    }

    fn read(&mut self, parser: &Parser, arrived: &mut Vec<Arrived>) -> bool {
        // The first port changes, so that a busy one does not starve the others.
        self.turn = (self.turn + 1) % self.ports.len();
        for k in 0..self.ports.len() {
            let port = (self.turn + k) % self.ports.len();
            self.read_port(port, parser, arrived);
        }
        self.reap();
        self.refill();
        arrived.len() == BATCH
    }

    fn accept(&mut self, place: u32, change: Change) -> bool {
        self.going.push(place);
        let frame = self.bytes(place);
        change.any() && header::ethernet(frame).is_some_and(|at| change.apply(&mut frame[at..]))
    }

    fn give_up(&mut self, place: u32) {
        self.free.push(place);
    }

    fn flush(&mut self) {
        let (mut from, mut tries) = (0, 0);
        while from < self.going.len() && tries < TRIES {
            let piece = (self.tx.room() as usize).min(self.going.len() - from);
            for k in from..from + piece {
                let (address, length) = self.held[self.going[k] as usize];
                self.tx.push(Descriptor {
                    address,
                    length,
                    options: 0,
                });
            }
            from += piece;
            self.tx.publish();
            // A call sends at most 32 frames; if the device is full, the call is repeated.
            while self.tx.room() < RING && tries < TRIES {
                let before = self.tx.room();
                let fd = self.to.as_raw_fd();
                // SAFETY: no buffer: the kernel sends what the ring has.
                let done = unsafe { libc::send(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT) };
                self.reap();
                if self.tx.room() == before {
                    let again = matches!(
                        sys::errno(),
                        libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR
                    );
                    tries = if done < 0 && !again { TRIES } else { tries + 1 };
                    std::thread::yield_now();
                }
            }
        }
        // Frames that found no room in the ring are lost; those in it leave with the next flush.
        for place in self.going.drain(..).skip(from) {
            self.unsent += 1;
            self.free.push(place);
        }
    }

    fn beat(&mut self) -> bool {
        let (now, mut all) = (sys::monotonic().as_nanos(), 0);
        for port in &self.ports {
            self.heartbeats
                .number(port.queue, 0)
                .store(now, Ordering::Relaxed);
            all += self
                .heartbeats
                .number(port.queue, 1)
                .load(Ordering::Relaxed);
        }
        let passed = all - std::mem::replace(&mut self.known, all);
        self.passed += passed;
        passed > 0
    }

    fn retake(&mut self) -> u64 {
        std::mem::take(&mut self.passed)
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn lost(&mut self) -> (u64, u64) {
        let refused = self.ports.iter().map(|port| dropped(&port.fd)).sum();
        (refused, self.unsent)
    }
}

fn option<T>(fd: &OwnedFd, name: c_int, value: &T) -> io::Result<()> {
    let size = num::count(size_of::<T>());
    let value: *const c_void = std::ptr::from_ref(value).cast();
    // SAFETY: the value outlives the call.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, value, size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Frames that the kernel dropped at a socket so far: longer than a frame of the UMEM, or no room
/// in a ring.
fn dropped(fd: &OwnedFd) -> u64 {
    // struct xdp_statistics: rx_dropped, rx_invalid_descs, tx_invalid_descs, rx_ring_full,
    // rx_fill_ring_empty_descs, tx_ring_empty_descs. A frame that finds the fill ring empty is
    // among rx_dropped.
    let mut stats = [0u64; 6];
    let mut size = num::count(size_of_val(&stats));
    // SAFETY: the kernel fills at most `size` bytes, all of them integers.
    unsafe {
        let to = stats.as_mut_ptr().cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, STATISTICS, to, &mut size);
    }
    stats[0] + stats[3]
}

fn owned(fd: i64) -> io::Result<OwnedFd> {
    match c_int::try_from(fd) {
        // SAFETY: a descriptor that the kernel has just returned has no other owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens a socket at a queue of an interface. It registers the UMEM, or shares that of another
/// socket.
fn side(
    index: u32,
    queue: u32,
    (memory, chunk): (&Map, u32),
    shared: Option<&OwnedFd>,
) -> io::Result<Side> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = owned(unsafe { libc::socket(libc::AF_XDP, kind, 0) }.into())?;
    if shared.is_none() {
        let region = Region {
            address: memory.at as u64,
            length: memory.length as u64,
            chunk,
            headroom: 0,
            flags: 0,
            metadata: 0,
        };
        option(&fd, UMEM_REG, &region)?;
    }
    for ring in [FILL_RING, COMPLETION_RING, RX_RING, TX_RING] {
        option(&fd, ring, &RING)?;
    }
    // Offsets of the RX, TX, fill and completion rings.
    let mut offsets = [Offsets::default(); 4];
    let mut size = num::count(size_of_val(&offsets));
    // SAFETY: the kernel fills at most `size` bytes, all of them integers.
    let got = unsafe {
        let to = offsets.as_mut_ptr().cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, MMAP_OFFSETS, to, &mut size)
    };
    if got != 0 || size as usize != size_of_val(&offsets) {
        return Err(io::Error::last_os_error());
    }
    let [rx, tx, fill, done] = offsets;
    let made = Side {
        rx: ring(&fd, rx, 0)?,
        tx: ring(&fd, tx, 0x8000_0000)?,
        fill: ring(&fd, fill, 0x1_0000_0000)?,
        done: ring(&fd, done, 0x1_8000_0000)?,
        fd: Arc::new(fd),
    };
    let address = Address {
        family: num::short(libc::AF_XDP),
        flags: if shared.is_some() { SHARED_UMEM } else { COPY },
        index,
        queue,
        shared: shared.map_or(0, |fd| fd.as_raw_fd().cast_unsigned()),
    };
    let size = num::count(size_of_val(&address));
    let started = Instant::now();
    loop {
        // SAFETY: the address outlives the call.
        if unsafe { libc::bind(made.fd.as_raw_fd(), (&raw const address).cast(), size) } == 0 {
            return Ok(made);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EBUSY) || started.elapsed() > CLOSE_TIMEOUT {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn ring<T>(fd: &OwnedFd, offsets: Offsets, page: i64) -> io::Result<Ring<T>> {
    let length = num::index(offsets.entries) + RING as usize * size_of::<T>();
    Ok(Ring {
        map: Map::new(length, Some((fd, page)))?,
        offsets,
        at: 0,
        entry: std::marker::PhantomData,
    })
}

/// Attaches the XDP program that redirects an interface's frames to the sockets of their queues.
/// Frames of queues without a socket take the kernel's path.
fn hook(
    Hooked {
        index,
        sockets,
        heartbeats,
    }: &Hooked,
) -> io::Result<Hook> {
    // The map has a socket for each queue.
    let map = bpf::table(XSKMAP, heartbeats.queues)?;
    for (queue, socket) in (0..).zip(sockets) {
        bpf::enter(&map, queue, socket.as_raw_fd().cast_unsigned())?;
    }
    // r6 = the frame's queue (xdp_md.rx_queue_index). If it is beyond the map of heartbeats: return
    // XDP_PASS. r7 = its two numbers in that map; r0 = the time (bpf_ktime_get_ns) since the last
    // beat. If r0 exceeds STUCK_TIMEOUT: count the frame, return XDP_PASS. Else r1 = the map of
    // sockets, r3 = XDP_PASS, the result if the queue has no socket: return bpf_redirect_map(r1,
    // r6, r3).
    let patience = num::low_u32(num::low_u64(watchdog::STUCK_TIMEOUT.as_nanos())).cast_signed();
    let program: [u64; 21] = [
        instruction(0x61, 6, 1, 16, 0),
        instruction(0x18, 7, 2, 0, heartbeats.fd.as_raw_fd()),
        0,
        instruction(0x25, 6, 0, 15, heartbeats.queues.cast_signed() - 1),
        instruction(0xbf, 8, 6, 0, 0),
        instruction(0x67, 8, 0, 0, 4),
        instruction(0x0f, 7, 8, 0, 0),
        instruction(0x79, 8, 7, 0, 0),
        instruction(0x85, 0, 0, 0, 5),
        instruction(0x1f, 0, 8, 0, 0),
        instruction(0x65, 0, 0, 6, patience),
        instruction(0x18, 1, 1, 0, map.as_raw_fd()),
        0,
        instruction(0xbf, 2, 6, 0, 0),
        instruction(0xb7, 3, 0, 0, 2),
        instruction(0x85, 0, 0, 0, 51),
        instruction(0x95, 0, 0, 0, 0),
        instruction(0xb7, 1, 0, 0, 1),
        instruction(0xdb, 7, 1, 8, 0),
        instruction(0xb7, 0, 0, 0, 2),
        instruction(0x95, 0, 0, 0, 0),
    ];
    let program = bpf::load(PROG_XDP, &program)?;
    Ok(Hook {
        _link: bpf::link(&program, *index, ATTACH_XDP, GENERIC)?,
        _map: map,
    })
}
