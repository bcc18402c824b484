//! The engine of a direction: a thread that moves packets from one device through the link to the
//! other, until it is stopped or one of the devices is deleted.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use quell_link::Hist;
use quell_qdisc::time::Instant;
use quell_qdisc::{Ecn, Packet, num};

use crate::packet::header::{Change, Class, Key, Parser};
use crate::packet::large::{FRAME, Large};
use crate::packet::pool::Pool;
use crate::packet::segment::{Frame, HEADER};
use crate::plane::link::{Live, LiveLink, View};
use crate::plane::pace::Pace;
use crate::plane::report::{LATE, MachineReport, Record};
use crate::system::{host, sys};

/// Most packets read before the link is served again.
const BATCH: u64 = 64;
/// Memory for the packets of one direction, bytes.
const MEMORY: usize = 256 << 20;

/// Requests to a loop, as bits: restart the record; restart the time series, too.
const RECORD: u8 = 1;
const SERIES: u8 = 2;

/// Handle of a direction's thread.
pub struct Engine {
    stop: Arc<AtomicBool>,
    ask: Arc<AtomicU8>,
    view: Arc<Mutex<View>>,
    thread: Option<JoinHandle<Record>>,
}

impl Engine {
    /// Starts a thread that moves packets of at most `mtu` bytes from `from` to `to`. The thread
    /// sets `gone` when it finds a device deleted, and ends when `gone` is set.
    pub fn start(
        name: &'static str,
        link: LiveLink,
        (from, to): (OwnedFd, OwnedFd),
        mtu: u32,
        key: Key,
        gone: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let view = Arc::new(Mutex::new(link.view()));
        let parser = Parser {
            key,
            tunnels: false,
            stamps: false,
            wants: link.wants(),
        };
        let mut large = Large::new(MEMORY / 2);
        large.wash = parser.wants.washed;
        let mut run = Loop {
            from: from.into(),
            to: to.into(),
            pool: Pool::new(HEADER + mtu as usize, MEMORY / 2),
            large,
            mtu,
            link,
            parser,
            machine: MachineReport::default(),
            late: Hist::new(),
            pace: Pace::new(),
            at: Instant::ZERO,
            gone,
        };
        let ask = Arc::new(AtomicU8::new(0));
        let (stopped, asked, seen) = (stop.clone(), ask.clone(), view.clone());
        let thread = host::thread(&format!("quell-{name}"))
            .spawn(move || run.run(name, &stopped, &asked, &seen))?;
        Ok(Self {
            stop,
            ask,
            view,
            thread: Some(thread),
        })
    }

    /// The last view of the link.
    pub fn view(&self) -> View {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link's views, shared with other threads.
    pub fn seen(&self) -> Arc<Mutex<View>> {
        self.view.clone()
    }

    /// Restarts the record within some milliseconds; with `series` the time series, too.
    pub fn restart(&self, series: bool) {
        let what = if series { RECORD | SERIES } else { RECORD };
        self.ask.fetch_or(what, Ordering::Relaxed);
    }

    /// Ends the thread; returns its record, or `None` if it has panicked.
    pub fn finish(mut self) -> Option<Record> {
        self.end()
    }

    fn end(&mut self) -> Option<Record> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Engine {
    /// Ends the thread, which keeps both devices open.
    fn drop(&mut self) {
        self.end();
    }
}

/// Packets sent and unsent, and frames written.
#[derive(Default)]
struct SendCounts {
    sent: u64,
    unsent: u64,
    frames: u64,
}

struct Loop {
    from: File,
    to: File,
    pool: Pool,
    large: Large,
    mtu: u32,
    link: LiveLink,
    parser: Parser,
    machine: MachineReport,
    late: Hist,
    pace: Pace,
    /// Time up to which the link was advanced.
    at: Instant,
    /// Set when a device was deleted.
    gone: Arc<AtomicBool>,
}

/// Whether a TUN device was deleted. From then on its file polls as ready, and each read and write
/// gives EBADFD.
fn is_deleted(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}

impl Loop {
    fn now(&self) -> Instant {
        self.pace.now()
    }

    fn run(&mut self, name: &str, stop: &AtomicBool, ask: &AtomicU8, view: &Mutex<View>) -> Record {
        let clock = cpu_time::ThreadTime::now();
        self.machine.realtime = sys::be_punctual(1);
        let mut buffer = vec![0; FRAME];
        let mut next_view = Instant::ZERO;
        while !stop.load(Ordering::Relaxed) && !self.gone.load(Ordering::Relaxed) {
            let more = self.read(&mut buffer);
            self.send();
            let now = self.now();
            if ask.load(Ordering::Relaxed) != 0 {
                let series = ask.swap(0, Ordering::Relaxed) & SERIES != 0;
                self.link.restart(self.at, series);
            }
            if now >= next_view {
                next_view = now + self.link.params().bin();
                let missed = self.machine.missed;
                let seen = View {
                    missed,
                    ..self.link.view()
                };
                // A thread that reads the previous view must not delay packets.
                if let Ok(mut view) = view.try_lock() {
                    *view = seen;
                }
            }
            if !more {
                self.pace.rest(&self.link, self.from.as_fd());
            }
        }
        let cpu = clock.elapsed().as_secs_f64();
        let now = self.now();
        Record::new(name, &mut self.link, now, cpu, self.machine, &self.late)
    }

    /// Reads waiting frames, up to [`BATCH`] packets; true if there may be more.
    fn read(&mut self, buffer: &mut [u8]) -> bool {
        let until = self.machine.read + BATCH;
        while self.machine.read < until {
            let room = self.large.room();
            let kept = room.is_some();
            match self.from.read(room.unwrap_or(buffer)) {
                Ok(length) if length > 0 => self.take(kept, buffer, length),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_deleted(&e) => {
                    self.gone.store(true, Ordering::Relaxed);
                    return false;
                }
                _ => return false,
            }
        }
        true
    }

    /// Hands the packets of a frame to the link. The frame is in the memory for large ones if
    /// `kept`, else in the buffer.
    fn take(&mut self, kept: bool, buffer: &[u8], length: usize) {
        let now = self.now();
        if let Some(first) = kept.then(|| self.large.keep(length, self.mtu)).flatten() {
            let frame = self.large.packets(first);
            // All packets of a frame belong to one flow.
            let class = self.parser.classify(frame.packet());
            for k in 0..frame.count() {
                let (bytes, payload) = frame.length(k);
                let class = Class { payload, ..class };
                self.link.heard(now, &class, bytes);
                self.link
                    .arrive(now, Live::new(first + num::count(k), bytes, &class));
            }
            self.machine.read += frame.count() as u64;
            return;
        }
        let bytes = match kept {
            true => self.large.read(length),
            false => &buffer[..length],
        };
        let Some(frame) = Frame::parse(bytes) else {
            self.machine.read += 1;
            self.machine.refused += 1;
            return;
        };
        for k in 0..frame.count() {
            self.machine.read += 1;
            let Some(place) = self.pool.take() else {
                self.machine.refused += 1;
                continue;
            };
            let bytes = self.pool.bytes(place);
            match frame.write(k, bytes) {
                Some(length) => {
                    let class = self.parser.classify(&bytes[HEADER..HEADER + length]);
                    let packet = Live::new(place, num::count(length), &class);
                    self.link.heard(now, &class, packet.bytes);
                    self.link.arrive_with(now, packet, class.acknowledgment);
                }
                None => {
                    // The packet is longer than the device's MTU was at the start.
                    self.pool.give(place);
                    self.machine.refused += 1;
                }
            }
        }
    }

    /// Sends the packets that have left the link.
    fn send(&mut self) {
        let now = self.now();
        self.at = now;
        let (pool, large) = (&mut self.pool, &mut self.large);
        let (to, machine, lateness) = (&mut self.to, &mut self.machine, &mut self.late);
        let (gone, mut left) = (&self.gone, SendCounts::default());
        let wash = self.parser.wants.washed;
        let mut write = |parts: &[IoSlice<'_>], packets: u64| {
            let written = to.write_vectored(parts);
            if written.as_ref().is_err_and(is_deleted) {
                gone.store(true, Ordering::Relaxed);
            }
            let taken = written.is_ok();
            *(if taken {
                &mut left.sent
            } else {
                &mut left.unsent
            }) += packets;
            left.frames += u64::from(taken);
            taken
        };
        self.link.advance(now, |due, packet| {
            let late = now.saturating_since(due);
            lateness.record(late.as_nanos());
            machine.missed += u64::from(late > LATE);
            let mark = packet.ecn() == Ecn::Ce;
            let marked = if Large::is_kept(packet.place) {
                large.push((packet.place, packet.hash, mark), &mut write)
            } else {
                large.end(packet.hash, &mut write);
                let bytes = &mut pool.bytes(packet.place)[..HEADER + packet.bytes as usize];
                let marked = Change { mark, wash }.apply(&mut bytes[HEADER..]);
                let taken = write(&[IoSlice::new(bytes)], 1);
                pool.give(packet.place);
                marked && taken
            };
            machine.marks_sent += u64::from(marked);
        });
        large.flush(&mut write);
        machine.sent += left.sent;
        machine.unsent += left.unsent;
        machine.frames += left.frames;
        while let Some(place) = self.link.freed() {
            match Large::is_kept(place) {
                true => self.large.give(place),
                false => self.pool.give(place),
            }
        }
    }
}
