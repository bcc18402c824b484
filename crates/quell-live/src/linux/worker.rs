//! One direction of an interface: the kernel holds its packets, and the link says when each goes on, or that it does not.
//!
//! Whatever happens to this process, packets go on: its rule passes them when nobody reads the queue, and the queue itself passes what
//! finds no room. Only the packets that the kernel holds at that moment are lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use quell_link::Error;
use quell_qdisc::{Ecn, Nanos, Packet};
use serde::Serialize;

use super::backend::{Arrived, InterfaceBackend};
use super::pace::Pace;
use super::watchdog::Post;
use super::{sandbox, sys};
use crate::header::{Change, Parser};
use crate::link::{Live, LiveLink, Params, View};
use crate::report::LATE;

/// The kernel keeps at least so many packets for us; the discipline, not the kernel's queue, is what limits.
const LEAST: u32 = 65_536;

/// A look at a direction while it runs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Snapshot {
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
    /// Packets that passed by the discipline, because it was being switched off or the loop stood still.
    pub passed: u64,
    /// Packets held now.
    pub held: u64,
    /// Packets that came but found no memory.
    pub refused: u64,
    /// Of `sent`, those that the other side's device did not take.
    pub unsent: u64,
    /// Times that the loop stood still and a watchdog let packets pass.
    pub stalls: u64,
    /// Whether the loop has real-time priority.
    pub realtime: bool,
    /// What became of a learned controller's decisions since the last change of the link's parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decisions: Option<Decisions>,
}

/// Decisions of a controller under guard.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Decisions {
    /// Asked for.
    pub asked: u64,
    /// Of these, those that were taken.
    pub taken: u64,
    /// Of these, those that came too late: the machine was too slow or too busy.
    pub late: u64,
    /// Times that the classic controller took over.
    pub fallbacks: u64,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    open: AtomicBool,
    change: Mutex<Option<Params>>,
    look: Mutex<Snapshot>,
}

/// Looks at a direction, also after its end. A loop that takes the place of an earlier one goes on with its counts.
#[derive(Clone, Default)]
pub struct Watch(Arc<Shared>);

impl Watch {
    /// A look at it.
    pub fn look(&self) -> Snapshot {
        *lock(&self.0.look)
    }
}

/// A running direction.
pub struct Worker {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    post: Post,
}

impl Worker {
    /// Starts to decide on the packets of a backend. One that is `free` lets every packet go on at once.
    pub fn start(
        backend: impl InterfaceBackend,
        params: Params,
        parser: Parser,
        free: bool,
        post: Post,
        watch: Watch,
    ) -> Result<Self, Error> {
        let shared = watch.0;
        shared.stop.store(false, Ordering::Relaxed);
        shared.open.store(free, Ordering::Relaxed);
        let before = *lock(&shared.look);
        let link = link(params, backend.capacity());
        let parser = Parser {
            wants: link.wants(),
            ..parser
        };
        let mut run = Loop {
            post: post.clone(),
            link,
            backend,
            pace: Pace::new(),
            parser,
            slots: Vec::new(),
            arrived: Vec::new(),
            look: before,
            refused: before.refused,
            unsent: before.unsent,
            missed: before.link.missed,
        };
        let seen = shared.clone();
        let thread = std::thread::Builder::new()
            .name("quell-loop".into())
            .spawn(move || run.run(&seen))
            .map_err(|e| Error::new(format!("cannot start a thread: {e}")))?;
        Ok(Self {
            shared,
            thread,
            post,
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

    /// Lets all packets that are held go on, in the order in which they arrived, and from now on every packet that comes.
    pub fn open(&self) {
        self.shared.open.store(true, Ordering::Relaxed);
    }

    /// How often the loop has come round.
    pub fn turns(&self) -> u32 {
        self.post.turns()
    }

    /// Whether the loop still runs.
    pub fn alive(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Opens and ends it.
    pub fn finish(self) {
        self.open();
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many packets the kernel may keep: more than the discipline does.
pub fn kernel_length(params: &Params) -> u32 {
    most_packets(params).saturating_add(1).max(LEAST)
}

/// How many packets a link's queue may hold.
pub fn most_packets(params: &Params) -> u32 {
    LiveLink::new(params.clone()).most_packets()
}

/// An idle link whose time begins now, for a backend that holds so many packets.
fn link(params: Params, capacity: u32) -> LiveLink {
    let mut link = LiveLink::new(params);
    link.hold_at_most(0, capacity);
    let began = Instant::now();
    link.time_decisions(Arc::new(move || began.elapsed().as_nanos() as Nanos));
    link
}

struct Loop<D> {
    post: Post,
    backend: D,
    link: LiveLink,
    pace: Pace,
    parser: Parser,
    /// The packets that are held, by their places: the number of each one's arrival.
    slots: Vec<Option<(u64, Live)>>,
    arrived: Vec<Arrived>,
    look: Snapshot,
    /// Packets that were refused and unsent before this loop began.
    refused: u64,
    unsent: u64,
    /// Packets that went on later than they should.
    missed: u64,
}

impl<D: InterfaceBackend> Loop<D> {
    fn run(&mut self, shared: &Shared) {
        self.look.realtime = sys::be_punctual(1);
        sandbox::packets();
        let (mut next_look, mut open) = (0, false);
        loop {
            let stop = shared.stop.load(Ordering::Relaxed);
            let passed = self.backend.beat();
            if self.post.turn(self.backend.last()) || passed {
                self.retake();
                next_look = 0;
            }
            if !open && shared.open.load(Ordering::Relaxed) {
                open = true;
                self.release();
            }
            let change = lock(&shared.change).take();
            if let Some(params) = change.filter(|_| !open) {
                self.change(params);
                next_look = 0;
            }
            let more = self.backend.read(&self.parser, &mut self.arrived);
            self.take(open);
            self.send();
            self.backend.flush();
            let now = self.pace.now();
            if now >= next_look || stop {
                next_look = now + self.link.params().bin.get();
                self.link.forget();
                self.look.link = View {
                    missed: self.missed,
                    ..self.link.view()
                };
                let (refused, unsent) = self.backend.lost();
                self.look.refused = self.refused + refused;
                self.look.unsent = self.unsent + unsent;
                self.look.decisions = self.link.guard().map(|stats| Decisions {
                    asked: stats.decisions,
                    taken: stats.learned,
                    late: stats.late + stats.stale,
                    fallbacks: stats.fallbacks,
                });
                *lock(&shared.look) = self.look;
            }
            // What the kernel holds when a queue's socket closes is lost: everything is read first.
            if stop && !more {
                return;
            }
            if !more {
                self.pace.rest(&self.link, self.backend.fd());
            }
        }
    }

    /// Takes in what was read.
    fn take(&mut self, open: bool) {
        let now = self.pace.now();
        for arrived in self.arrived.drain(..) {
            let arrival = self.look.read;
            self.look.read += 1;
            if open {
                self.look.passed += 1;
                self.look.sent += 1;
                self.backend.accept(arrived.place, Change::NONE);
                continue;
            }
            let packet = Live::new(arrived.place, arrived.bytes, &arrived.class);
            let index = arrived.place as usize;
            if index >= self.slots.len() {
                self.slots.resize(index + 1, None);
            }
            self.slots[index] = Some((arrival, packet));
            self.look.held += 1;
            self.link
                .arrive_with(now, packet, arrived.class.acknowledgment);
        }
    }

    /// Lets go on what is due, and gives up what the discipline has given up.
    fn send(&mut self) {
        let now = self.pace.now();
        let (slots, backend, look) = (&mut self.slots, &mut self.backend, &mut self.look);
        let missed = &mut self.missed;
        let wash = self.parser.wants.washed;
        self.link.advance(now, |due, packet| {
            *missed += u64::from(now.saturating_sub(due) > LATE);
            look.sent += 1;
            look.held -= 1;
            let mark = packet.ecn() == Ecn::Ce;
            look.marked += u64::from(backend.accept(packet.place, Change { mark, wash }));
            slots[packet.place as usize] = None;
        });
        while let Some(place) = self.link.freed() {
            self.look.dropped += 1;
            self.look.held -= 1;
            self.backend.give_up(place);
            self.slots[place as usize] = None;
        }
    }

    /// The packets that are held, in the order of their arrival.
    fn held(&self) -> Vec<(u64, Live)> {
        let mut held: Vec<_> = self.slots.iter().flatten().copied().collect();
        held.sort_unstable_by_key(|(arrival, _)| *arrival);
        held
    }

    /// Lets everything go.
    fn release(&mut self) {
        self.empty(|backend, place| {
            backend.accept(place, Change::NONE);
        });
        self.backend.flush();
    }

    /// Begins afresh after packets passed without us.
    fn retake(&mut self) {
        self.empty(InterfaceBackend::let_go);
        let passed = self.backend.retake();
        self.backend.flush();
        self.look.stalls += 1;
        self.look.read += passed;
        self.look.sent += passed;
        self.look.passed += passed;
    }

    /// Lets go of all that is held, in the order of its arrival; the link begins afresh.
    fn empty(&mut self, let_go: impl Fn(&mut D, u32)) {
        for (_, packet) in self.held() {
            self.look.sent += 1;
            self.look.passed += 1;
            self.look.held -= 1;
            let_go(&mut self.backend, packet.place);
            self.slots[packet.place as usize] = None;
        }
        self.link = link(self.link.params().clone(), self.backend.capacity());
        self.pace = Pace::new();
    }

    /// Another link; its time begins now.
    fn change(&mut self, params: Params) {
        self.backend.keep(kernel_length(&params));
        self.link = link(params, self.backend.capacity());
        self.parser.wants = self.link.wants();
        self.pace = Pace::new();
        for (_, packet) in self.held() {
            self.link.arrive(0, packet);
        }
    }
}
