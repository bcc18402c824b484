//! One direction of an interface: the kernel holds its packets, and the link says when each goes on, or that it does not.
//!
//! Whatever happens to this process, packets go on: its rule passes them when nobody reads the queue, and the queue itself passes what
//! finds no room. Only the packets that the kernel holds at that moment are lost.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use quell_link::Error;
use quell_qdisc::{Ecn, Packet};
use serde::Serialize;

use super::pace::Pace;
use super::shell::random_key;
use super::sys;
use crate::header::{self, Key};
use crate::link::{Link, Live, Params, View};
use crate::nfqueue::{self, Message};
use crate::pool::Pool;
use crate::report::LATE;

/// Packets that are read before the link has its turn again.
const BATCH: usize = 64;
/// Verdicts go to the kernel in pieces of about so many bytes.
const PIECE: usize = 64 << 10;
/// Bytes of messages that wait for us; the kernel lets further packets pass.
const ROOM: i32 = 16 << 20;
/// The kernel keeps at least so many packets for us; the discipline, not the kernel's queue, is what limits.
const LEAST: u32 = 65_536;
/// Memory for the bytes of packets that may be marked.
const MEMORY: usize = 128 << 20;
/// Queue numbers that are tried.
const TRIES: u16 = 256;
/// How long the kernel may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Enough of a packet for its headers.
const HEADERS: usize = 256;

/// Where packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The kernel's packet queue with this number or the next that is free.
    Queue(u16),
    /// Copies of what leaves (true) or arrives at the interface with this index: the packets themselves are not touched.
    Copies(u32, bool),
}

/// A look at a direction while it runs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Look {
    /// The link's last 100 ms and its totals since the last change of its parameters.
    #[serde(flatten)]
    pub link: View,
    /// Packets that came so far.
    pub read: u64,
    /// Packets that went on so far.
    pub sent: u64,
    /// Packets that the discipline gave up so far.
    pub dropped: u64,
    /// Packets that went on with a mark written by us so far.
    pub marked: u64,
    /// Packets that passed by the discipline, because it was being switched off.
    pub passed: u64,
    /// Packets held now.
    pub held: u64,
    /// Whether the loop has real-time priority.
    pub realtime: bool,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    open: AtomicBool,
    change: Mutex<Option<Params>>,
    look: Mutex<Look>,
}

/// Looks at a direction, also after its end.
#[derive(Clone)]
pub struct Watch(Arc<Shared>);

impl Watch {
    /// A look at it.
    pub fn look(&self) -> Look {
        *lock(&self.0.look)
    }
}

/// A running direction.
pub struct Gate {
    /// The number of the kernel's packet queue; 0 for copies.
    pub queue: u16,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Gate {
    /// Starts to decide on packets of at most `mtu` bytes. No packets come before a rule sends them to the queue.
    pub fn start(source: Source, params: Params, mtu: u32) -> Result<Self, Error> {
        let link = Link::new(params);
        let (door, queue) = open_door(source, kernel_length(&link))?;
        let shared = Arc::new(Shared::default());
        let mut run = Loop {
            door,
            queue,
            link,
            pace: Pace::new(),
            key: random_key(),
            slots: Vec::new(),
            free: Vec::new(),
            pool: Pool::new(mtu.max(1500) as usize, MEMORY),
            out: Vec::new(),
            look: Look::default(),
            missed: 0,
            mtu: mtu.max(68),
        };
        let seen = shared.clone();
        let thread = std::thread::Builder::new()
            .name("quell-live".into())
            .spawn(move || run.run(&seen))
            .map_err(|e| Error::new(format!("cannot start a thread: {e}")))?;
        Ok(Self {
            queue,
            shared,
            thread,
        })
    }

    /// What looks at it, from any thread.
    pub fn watch(&self) -> Watch {
        Watch(self.shared.clone())
    }

    /// Gives it a new link; the packets that are held go into the new queue, in the order in which they came.
    pub fn change(&self, params: Params) {
        *lock(&self.shared.change) = Some(params);
    }

    /// Lets all packets that are held go on, in the order in which they came, and from now on every packet that comes.
    pub fn open(&self) {
        self.shared.open.store(true, Ordering::Relaxed);
    }

    /// Whether the loop still runs.
    pub fn alive(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Opens and ends it; the last look.
    pub fn finish(self) -> Look {
        self.open();
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        *lock(&self.shared.look)
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many packets the kernel may keep: more than the discipline does.
fn kernel_length(link: &Link) -> u32 {
    link.limit_packets().saturating_add(1).max(LEAST)
}

enum Door {
    Queue(OwnedFd),
    Copies(OwnedFd, bool),
}

impl Door {
    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Door::Queue(fd) | Door::Copies(fd, _) => fd.as_fd(),
        }
    }
}

fn open_door(source: Source, length: u32) -> Result<(Door, u16), Error> {
    match source {
        Source::Copies(index, outgoing) => {
            let fd = sys::tap(index).map_err(|e| no_socket("AF_PACKET", &e))?;
            Ok((Door::Copies(fd, outgoing), 0))
        }
        Source::Queue(first) => {
            let fd = sys::netfilter(ROOM).map_err(|e| no_socket("NETLINK_NETFILTER", &e))?;
            for queue in first..first.saturating_add(TRIES) {
                match bind(&fd, queue, length) {
                    Ok(()) => return Ok((Door::Queue(fd), queue)),
                    // Somebody else reads it.
                    Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY)) => {}
                    Err(e) => return Err(no_socket("NFQUEUE", &e)),
                }
            }
            Err(
                Error::new(format!("all packet queues from {first} on are taken"))
                    .remedy("see /proc/net/netfilter/nfnetlink_queue"),
            )
        }
    }
}

fn no_socket(what: &str, error: &io::Error) -> Error {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run it as root",
        _ => {
            "the kernel needs CONFIG_NETFILTER_NETLINK_QUEUE (modprobe nfnetlink_queue); quell doctor says more"
        }
    };
    Error::new(format!("cannot open {what}: {error}")).remedy(remedy)
}

fn bind(fd: &OwnedFd, queue: u16, length: u32) -> io::Result<()> {
    let mut out = Vec::new();
    nfqueue::bind(&mut out, queue, length, 1);
    sys::send_bytes(fd.as_fd(), &out)?;
    let mut buffer = [0; 1024];
    loop {
        if !sys::readable(fd.as_fd(), PATIENCE) {
            return Err(ErrorKind::TimedOut.into());
        }
        let n = sys::receive_bytes(fd.as_fd(), &mut buffer)?;
        for message in nfqueue::messages(&buffer[..n]) {
            match message {
                Message::Answer(2, 0) => return Ok(()),
                Message::Answer(1 | 2, error) if error != 0 => {
                    return Err(io::Error::from_raw_os_error(error));
                }
                _ => {}
            }
        }
    }
}

/// A packet that is held.
#[derive(Clone, Copy)]
struct Slot {
    id: u32,
    /// The number of its arrival.
    arrival: u64,
    /// Where its bytes are, if it may be marked.
    bytes: Option<u32>,
    packet: Option<Live>,
}

struct Loop {
    door: Door,
    queue: u16,
    link: Link,
    pace: Pace,
    key: Key,
    /// A packet's place is its index here.
    slots: Vec<Slot>,
    free: Vec<u32>,
    pool: Pool,
    /// Verdicts on their way.
    out: Vec<u8>,
    look: Look,
    /// Packets that went on later than they should.
    missed: u64,
    mtu: u32,
}

impl Loop {
    fn run(&mut self, shared: &Shared) {
        self.look.realtime = sys::be_punctual();
        let mut buffer = vec![0; 128 << 10];
        let (mut next_look, mut open) = (0, false);
        loop {
            let stop = shared.stop.load(Ordering::Relaxed);
            if !open && shared.open.load(Ordering::Relaxed) {
                open = true;
                self.release();
            }
            let change = lock(&shared.change).take();
            if let Some(params) = change.filter(|_| !open) {
                self.change(params);
                next_look = 0;
            }
            let more = self.read(&mut buffer, open);
            self.send();
            self.flush();
            let now = self.pace.now();
            if now >= next_look || stop {
                next_look = now + self.link.params().bin;
                self.link.forget();
                self.look.link = View {
                    missed: self.missed,
                    ..self.link.view()
                };
                self.look.held = (self.slots.len() - self.free.len()) as u64;
                *lock(&shared.look) = self.look;
            }
            // What the kernel holds when the socket closes is lost: everything is read first.
            if stop && !more {
                return;
            }
            if !more {
                self.pace.rest(&self.link, self.door.fd());
            }
        }
    }

    /// Takes in what waits at the door; true if there may be more.
    fn read(&mut self, buffer: &mut [u8], open: bool) -> bool {
        for _ in 0..BATCH {
            let read = match &self.door {
                Door::Queue(fd) => sys::receive_bytes(fd.as_fd(), buffer).map(|n| (n, 0, 0)),
                Door::Copies(fd, _) => sys::receive_copy(fd.as_fd(), &mut buffer[..HEADERS]),
            };
            let copies = match &self.door {
                Door::Queue(_) => None,
                Door::Copies(_, outgoing) => Some(*outgoing),
            };
            match (read, copies) {
                (Ok((n, ..)), None) => {
                    for message in nfqueue::messages(&buffer[..n]) {
                        if let Message::Packet(held) = message {
                            self.take(held.id, held.bytes, held.length, open);
                        }
                    }
                }
                (Ok((n, kind, protocol)), Some(outgoing)) => {
                    let ours = match outgoing {
                        true => kind == libc::PACKET_OUTGOING,
                        false => kind <= libc::PACKET_MULTICAST,
                    };
                    let ip = matches!(i32::from(protocol), libc::ETH_P_IP | libc::ETH_P_IPV6);
                    if ours && ip {
                        self.copied(&buffer[..n.min(HEADERS)], n as u32);
                    }
                }
                (Err(e), _) if e.kind() == ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
        true
    }

    /// A copy of a packet, or of many that the kernel will take apart: 40 bytes of headers on each.
    fn copied(&mut self, bytes: &[u8], length: u32) {
        let (mut left, most) = (length, self.mtu - 40);
        while left > self.mtu {
            self.take(0, bytes, self.mtu, false);
            left -= most;
        }
        self.take(0, bytes, left, false);
    }

    fn take(&mut self, id: u32, bytes: &[u8], length: u32, open: bool) {
        let arrival = self.look.read;
        self.look.read += 1;
        if open {
            self.look.passed += 1;
            self.look.sent += 1;
            nfqueue::accept(&mut self.out, self.queue, id, None);
            return;
        }
        let mut class = header::classify(bytes, self.key);
        let mut kept = None;
        if matches!(self.door, Door::Queue(_)) && matches!(class.ecn, Ecn::Ect0 | Ecn::Ect1) {
            // Who writes a mark needs all bytes. A packet that does not fit is one without ECN to the discipline.
            let fits = bytes.len() == length as usize && bytes.len() <= self.mtu.max(1500) as usize;
            kept = fits.then(|| self.pool.take()).flatten();
            match kept {
                Some(place) => self.pool.bytes(place)[..bytes.len()].copy_from_slice(bytes),
                None => class.ecn = Ecn::NotEct,
            }
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                id,
                arrival,
                bytes: None,
                packet: None,
            });
            self.slots.len() as u32 - 1
        });
        let packet = Live::new(index, length, &class);
        self.slots[index as usize] = Slot {
            id,
            arrival,
            bytes: kept,
            packet: Some(packet),
        };
        self.link.arrive(self.pace.now(), packet);
    }

    /// Gives the verdicts that are due.
    fn send(&mut self) {
        let now = self.pace.now();
        let (slots, free, pool) = (&mut self.slots, &mut self.free, &mut self.pool);
        let (out, look, queue) = (&mut self.out, &mut self.look, self.queue);
        let missed = &mut self.missed;
        self.link.advance(now, |due, packet| {
            *missed += u64::from(now.saturating_sub(due) > LATE);
            let slot = &mut slots[packet.place as usize];
            let mut written = None;
            if let (Ecn::Ce, Some(place)) = (packet.ecn(), slot.bytes) {
                let bytes = &mut pool.bytes(place)[..packet.bytes as usize];
                written = header::set_ce(bytes).then_some(&*bytes);
            }
            look.sent += 1;
            look.marked += u64::from(written.is_some());
            nfqueue::accept(out, queue, slot.id, written);
            if let Some(place) = slot.bytes.take() {
                pool.give(place);
            }
            slot.packet = None;
            free.push(packet.place);
        });
        while let Some(index) = self.link.freed() {
            let slot = &mut self.slots[index as usize];
            nfqueue::drop(&mut self.out, self.queue, slot.id);
            self.look.dropped += 1;
            if let Some(place) = slot.bytes.take() {
                self.pool.give(place);
            }
            slot.packet = None;
            self.free.push(index);
        }
    }

    /// Sends the verdicts to the kernel, which reads many in one piece.
    fn flush(&mut self) {
        let Door::Queue(fd) = &self.door else {
            self.out.clear();
            return;
        };
        let mut from = 0;
        while from < self.out.len() {
            let to = nfqueue::piece(&self.out, from, PIECE);
            while let Err(e) = sys::send_bytes(fd.as_fd(), &self.out[from..to]) {
                // Memory is short for a moment; anything else cannot be helped.
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

    /// The packets that are held, in the order of their arrival.
    fn held(&self) -> Vec<u32> {
        let mut held: Vec<u32> = (0..self.slots.len() as u32)
            .filter(|k| self.slots[*k as usize].packet.is_some())
            .collect();
        held.sort_unstable_by_key(|k| self.slots[*k as usize].arrival);
        held
    }

    /// Lets everything go.
    fn release(&mut self) {
        for index in self.held() {
            let slot = &mut self.slots[index as usize];
            nfqueue::accept(&mut self.out, self.queue, slot.id, None);
            self.look.sent += 1;
            self.look.passed += 1;
            if let Some(place) = slot.bytes.take() {
                self.pool.give(place);
            }
            slot.packet = None;
            self.free.push(index);
        }
        self.link = Link::new(self.link.params().clone());
        self.pace = Pace::new();
        self.flush();
    }

    /// Another link; its time begins now.
    fn change(&mut self, params: Params) {
        let held = self.held();
        self.link = Link::new(params);
        self.pace = Pace::new();
        if let Door::Queue(_) = self.door {
            nfqueue::resize(&mut self.out, self.queue, kernel_length(&self.link));
            self.flush();
        }
        for index in held {
            if let Some(packet) = self.slots[index as usize].packet {
                self.link.arrive(0, packet);
            }
        }
    }
}
