//! A loop of one direction of an interface: the kernel holds its packets, and the link says when each goes on, or that it does not.
//!
//! A direction has one loop, or one per processor that was named. Each flow stays at one of them, each has a queue of its own, and all
//! send on one line, whose rate they share exactly.
//!
//! Whatever happens to this process, packets go on: its rule passes them when nobody reads the queue, and the queue itself passes what
//! finds no room. Only the packets that the kernel holds at that moment are lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use quell_link::Error;
use quell_link::line::{Line, Share};
use quell_link::passive::Stamped;
use quell_link::server::Rate;
use quell_qdisc::control::Delay;
use quell_qdisc::{Ecn, Nanos, Packet};
use serde::Serialize;

use super::backend::{Arrived, InterfaceBackend};
use super::pace::Pace;
use super::passing::Passing;
use super::watchdog::Post;
use super::{sandbox, sys};
use crate::echo::Answer;
use crate::header::{Change, Parser};
use crate::link::{Live, LiveLink, Params, View};
use crate::report::LATE;

/// The kernel keeps at least so many packets for us; the discipline, not the kernel's queue, is what limits.
const LEAST: u32 = 65_536;

/// Most answers of reflectors and delays of the traffic that wait for a loop.
const HEARD: usize = 64;

/// A look at a loop or at all loops of a direction while they run.
#[derive(Clone, Debug, Default, Serialize)]
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
    /// The queue's words.
    pub queue: String,
    /// Why the queue works no more, where another crate brought it: packets pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Packets that came to each loop, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_by_loop: Vec<u64>,
}

impl Snapshot {
    /// This one and that of another loop.
    fn and(self, other: &Self) -> Self {
        Self {
            link: self.link.and(other.link),
            read: self.read + other.read,
            sent: self.sent + other.sent,
            dropped: self.dropped + other.dropped,
            marked: self.marked + other.marked,
            passed: self.passed + other.passed,
            held: self.held + other.held,
            refused: self.refused + other.refused,
            unsent: self.unsent + other.unsent,
            stalls: self.stalls + other.stalls,
            realtime: self.realtime && other.realtime,
            queue: self.queue,
            failure: self.failure.or_else(|| other.failure.clone()),
            read_by_loop: self.read_by_loop,
        }
    }
}

/// What a loop works on.
#[derive(Clone)]
pub struct Task {
    params: Params,
    /// The line that all loops of the direction send on, and when its time began; None where there is one loop only.
    line: Option<(Arc<Line>, Instant)>,
}

impl Task {
    /// For each of so many loops of a direction.
    pub fn new(params: Params, loops: usize) -> Self {
        let line = match params.rate {
            Rate::Constant(bps) if loops > 1 => Some((Arc::new(Line::new(bps)), Instant::now())),
            _ => None,
        };
        Self { params, line }
    }

    /// An idle link whose time begins with `pace`, for a backend that holds so many packets.
    fn link(&self, pace: &Pace, capacity: u32) -> LiveLink {
        let mut params = self.params.clone();
        let began = pace.began();
        if let Some((line, since)) = &self.line {
            let since = began.saturating_duration_since(*since).as_nanos() as Nanos;
            params.rate = Rate::Shared(Share::new(line.clone(), since));
        }
        let mut link = LiveLink::new(params);
        link.hold_at_most(0, capacity);
        link.time_decisions(Arc::new(move || began.elapsed().as_nanos() as Nanos));
        link
    }
}

/// What a loop's controller is told.
enum Heard {
    /// A reflector's answer, and whether packets of the loop's direction come back with it.
    Answer(Answer, bool),
    /// What the traffic's own segments show.
    Delay(Delay),
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    open: AtomicBool,
    change: Mutex<Option<Task>>,
    /// For the controller.
    heard: Mutex<Vec<Heard>>,
    look: Mutex<Snapshot>,
}

impl Shared {
    /// Shows a look. Only the `last` one waits for who reads the one before: a thread that answers questions may be
    /// kept from its processor for long, and packets must not wait for it.
    fn show(&self, look: &Snapshot, last: bool) {
        match self.look.try_lock() {
            Ok(mut shown) => shown.clone_from(look),
            Err(_) if last => lock(&self.look).clone_from(look),
            Err(_) => {}
        }
    }
}

/// Looks at a loop, also after its end. A loop that takes the place of an earlier one goes on with its counts.
#[derive(Clone, Default)]
pub struct Watch(Arc<Shared>);

impl Watch {
    /// A look at it.
    pub fn look(&self) -> Snapshot {
        lock(&self.0.look).clone()
    }

    /// Tells its controller of a reflector's answer, and whether packets of its direction come back with it. A loop that stands still
    /// misses what is more than [`HEARD`].
    pub fn hear(&self, answer: &Answer, back: bool) {
        self.tell(Heard::Answer(*answer, back));
    }

    /// Tells its controller of a delay, in the same way.
    pub fn hear_delay(&self, delay: Delay) {
        self.tell(Heard::Delay(delay));
    }

    fn tell(&self, what: Heard) {
        let mut heard = lock(&self.0.heard);
        if heard.len() < HEARD {
            heard.push(what);
        }
    }
}

/// Looks at all loops of a direction.
#[derive(Clone, Default)]
pub struct Watches(Vec<Watch>);

impl Watches {
    /// For so many loops.
    pub fn new(loops: usize) -> Self {
        Self((0..loops).map(|_| Watch::default()).collect())
    }

    /// That at one of its loops.
    pub fn of(&self, number: usize) -> Watch {
        self.0.get(number).cloned().unwrap_or_default()
    }

    /// A look at all of them together.
    pub fn look(&self) -> Snapshot {
        let mut looks = self.0.iter().map(Watch::look);
        let first = looks.next().unwrap_or_default();
        if self.0.len() < 2 {
            return first;
        }
        let mut read = vec![first.read];
        let all = looks.fold(first, |all, look| {
            read.push(look.read);
            // A loop that does not run has no rate and no priority.
            match look.link.capacity_mbps > 0.0 || look.read > 0 {
                true => all.and(&look),
                false => all,
            }
        });
        Snapshot {
            read_by_loop: read,
            ..all
        }
    }
}

/// Where a loop runs and is seen from.
pub struct Seat {
    /// Its place at the watchdog.
    pub post: Post,
    /// Where looks at it come from.
    pub watch: Watch,
    /// The processor that it stays on.
    pub cpu: Option<usize>,
    /// Where it tells of TCP's timestamps, and whether its packets come from the line.
    pub passing: Option<(Passing, bool)>,
}

/// A running loop.
pub struct Worker {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    post: Post,
}

impl Worker {
    /// Starts to decide on the packets of a backend. One that is `free` lets every packet go on at once.
    pub fn start(
        backend: impl InterfaceBackend,
        task: Task,
        parser: Parser,
        free: bool,
        seat: Seat,
    ) -> Result<Self, Error> {
        let Seat {
            post,
            watch,
            cpu,
            passing,
        } = seat;
        let shared = watch.0;
        shared.stop.store(false, Ordering::Relaxed);
        shared.open.store(free, Ordering::Relaxed);
        let before = lock(&shared.look).clone();
        let pace = Pace::new();
        let queue = task.params.queue.canonical();
        let link = task.link(&pace, backend.capacity());
        let parser = Parser {
            wants: link.wants(),
            stamps: passing.is_some(),
            ..parser
        };
        let mut run = Loop {
            post: post.clone(),
            link,
            task,
            backend,
            pace,
            parser,
            slots: Vec::new(),
            passing,
            segments: Vec::new(),
            arrived: Vec::new(),
            refused: before.refused,
            unsent: before.unsent,
            missed: before.link.missed,
            look: Snapshot {
                queue: if free { String::new() } else { queue },
                ..before
            },
        };
        let seen = shared.clone();
        let thread = std::thread::Builder::new()
            .name("quell-loop".into())
            .spawn(move || {
                if let Some(cpu) = cpu {
                    sys::pin(cpu);
                }
                run.run(&seen);
            })
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
    pub fn change(&self, task: Task) {
        *lock(&self.shared.change) = Some(task);
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

    /// Opens it and has it end.
    pub fn stop(&self) {
        self.open();
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Stops it and waits for its end.
    pub fn finish(self) {
        self.stop();
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

struct Loop<D> {
    post: Post,
    backend: D,
    task: Task,
    link: LiveLink,
    pace: Pace,
    parser: Parser,
    /// The packets that are held, by their places: the number of each one's arrival.
    slots: Vec<Option<(u64, Live)>>,
    passing: Option<(Passing, bool)>,
    /// What those that are held say of TCP's timestamps, by their places, where they go to the line.
    segments: Vec<Option<Stamped>>,
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
            if let Some(task) = change.filter(|_| !open) {
                self.change(task);
                next_look = 0;
            }
            let more = self.backend.read(&self.parser, &mut self.arrived);
            self.take(open);
            self.send();
            self.backend.flush();
            let now = self.pace.now();
            lock(&shared.heard).drain(..).for_each(|heard| match heard {
                Heard::Answer(answer, back) => self.link.on_probe(now, &answer.echo(now, back)),
                Heard::Delay(delay) => self.link.on_delay(now, &delay),
            });
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
                if self.look.failure.as_deref() != self.link.failure() {
                    self.look.failure = self.link.failure().map(str::to_owned);
                }
                shared.show(&self.look, stop);
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
            if let Some((passing, back)) = &self.passing {
                let segment = passing.segment(&arrived.class, *back);
                if let (true, Some(segment)) = (*back, &segment) {
                    passing.came(segment);
                }
                self.segments.resize(self.slots.len(), None);
                self.segments[index] = segment.filter(|_| !back);
            }
            self.link.heard(now, &arrived.class, arrived.bytes);
            self.link
                .arrive_with(now, packet, arrived.class.acknowledgment);
        }
    }

    /// Lets go on what is due, and gives up what the discipline has given up.
    fn send(&mut self) {
        let now = self.pace.now();
        let (slots, backend, look) = (&mut self.slots, &mut self.backend, &mut self.look);
        let missed = &mut self.missed;
        let (passing, segments) = (&self.passing, &mut self.segments);
        let wash = self.parser.wants.washed;
        self.link.advance(now, |due, packet| {
            *missed += u64::from(now.saturating_sub(due) > LATE);
            look.sent += 1;
            look.held -= 1;
            let mark = packet.ecn() == Ecn::Ce;
            look.marked += u64::from(backend.accept(packet.place, Change { mark, wash }));
            slots[packet.place as usize] = None;
            if let Some((passing, _)) = passing
                && let Some(segment) = segments[packet.place as usize].take()
            {
                passing.left(&segment);
            }
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
        self.begin();
    }

    /// A link for the present task; its time begins now.
    fn begin(&mut self) {
        self.pace = Pace::new();
        self.link = self.task.link(&self.pace, self.backend.capacity());
        self.parser.wants = self.link.wants();
    }

    /// Another link; its time begins now.
    fn change(&mut self, task: Task) {
        self.backend.keep(kernel_length(&task.params));
        self.look.queue = task.params.queue.canonical();
        self.task = task;
        self.begin();
        for (_, packet) in self.held() {
            self.link.arrive(0, packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Change, Class};
    use crate::link::tests::leaky;
    use crate::linux::serve::State;
    use crate::linux::serve::tests::metrics;
    use crate::linux::upkeep::Progress;
    use crate::linux::watchdog::Watchdog;
    use quell_link::words::Queue;
    use quell_qdisc::discipline::Wants;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::time::Duration;

    /// Packets that come from a test, and where they went.
    struct Fake {
        fd: OwnedFd,
        traffic: Arc<Mutex<(Vec<u32>, Vec<u32>)>>,
    }

    impl InterfaceBackend for Fake {
        fn fd(&self) -> BorrowedFd<'_> {
            self.fd.as_fd()
        }
        fn read(&mut self, _parser: &Parser, arrived: &mut Vec<Arrived>) -> bool {
            arrived.extend(lock(&self.traffic).0.drain(..).map(|place| Arrived {
                place,
                bytes: 1000,
                class: Class {
                    payload: 960,
                    ..Class::default()
                },
            }));
            false
        }
        fn accept(&mut self, place: u32, _change: Change) -> bool {
            lock(&self.traffic).1.push(place);
            false
        }
        fn give_up(&mut self, _place: u32) {}
        fn flush(&mut self) {}
    }

    /// A loop that gets these packets and manages them with this queue.
    fn started(traffic: &Arc<Mutex<(Vec<u32>, Vec<u32>)>>, queue: Queue) -> (Worker, Watches) {
        let backend = Fake {
            fd: sys::socket(libc::AF_INET).unwrap(),
            traffic: traffic.clone(),
        };
        let watches = Watches::new(1);
        let seat = Seat {
            post: Watchdog::start().unwrap().post(),
            watch: watches.of(0),
            cpu: None,
            passing: None,
        };
        let task = Task::new(Params::line(1_000_000_000, queue), 1);
        let parser = Parser {
            key: (1, 2),
            tunnels: false,
            stamps: false,
            wants: Wants::default(),
        };
        let worker = Worker::start(backend, task, parser, false, seat).unwrap();
        (worker, watches)
    }

    #[test]
    fn packets_do_not_wait_for_who_reads_a_look() {
        let traffic = Arc::new(Mutex::new((Vec::new(), Vec::new())));
        let (worker, watches) = started(&traffic, Queue::parse("pfifo").unwrap());
        let watch = watches.of(0);
        let kept = lock(&watch.0.look);
        // Several looks are due meanwhile.
        for place in 0..500 {
            lock(&traffic).0.push(place);
            std::thread::sleep(Duration::from_millis(1));
        }
        let until = Instant::now() + Duration::from_secs(20);
        while lock(&traffic).1.len() < 500 {
            assert!(Instant::now() < until, "{} went on", lock(&traffic).1.len());
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(kept);
        worker.finish();
        assert_eq!(
            (watches.look().sent, watches.look().queue.as_str()),
            (500, "pfifo")
        );
    }

    #[test]
    fn a_queue_of_another_crate_that_fails_is_told_of_once_and_packets_pass() {
        let traffic = Arc::new(Mutex::new((Vec::new(), Vec::new())));
        let (worker, watches) = started(&traffic, leaky());
        let named = [("egress", watches.clone())];
        let mut progress = Progress::default();
        assert!(progress.failures("eth0", &named).is_empty());
        // Until the fault is seen, then packets that pass.
        let mut place = 0;
        while watches.look().failure.is_none() || lock(&traffic).1.len() < 100 {
            lock(&traffic).0.push(place);
            place += 1;
            std::thread::sleep(Duration::from_millis(1));
            assert!(place < 60_000, "{:?}", watches.look());
        }
        let lines = progress.failures("eth0", &named);
        assert!(lines[0].starts_with("eth0: the queue of egress has failed and packets pass: "));
        assert!(progress.failures("eth0", &named).is_empty(), "said once");
        let state = State {
            dev: "eth0".to_owned(),
            directions: named.to_vec(),
            restored: Arc::default(),
            reflectors: None,
        };
        let metric = "quell_queue_failed{dev=\"eth0\",direction=\"egress\"} 1\n";
        let text = metrics(&state);
        assert!(text.contains(metric), "{text}");
        worker.finish();
        let look = watches.look();
        assert_eq!(look.read, look.sent + look.dropped + look.held);
        assert!(
            look.dropped < 10,
            "what the queue held when it failed: {look:?}"
        );
    }
}
