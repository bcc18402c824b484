//! The packet loop of one direction of an interface: a backend holds the packets, and the link
//! decides when to send or drop each.
//!
//! A direction has one loop, or one per CPU in `--cpu`. Each flow stays at one loop, each loop has
//! its own queue, and all send on one line, whose rate they share exactly.
//!
//! With the kernel's packet queues (NFQUEUE), traffic continues if this process ends: the rule lets
//! packets pass while no program reads the queue. While the queue is full, the kernel lets further
//! packets pass, too. Only the packets that the kernel holds when the process ends are lost.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use quell_link::Error;
use quell_link::passive::Stamped;
use quell_qdisc::control::LearnedState;
use quell_qdisc::time::Instant;
use quell_qdisc::{Ecn, Packet};

use super::backend::{Arrived, InterfaceBackend};
use super::learning::{Exchange, LearnThread, Mailbox};
use super::pace::Pace;
use super::passing::Passing;
use super::shared::{Feedback, Learned, Shared, Snapshot, Task, Watch, lock};
use crate::packet::header::{Change, Parser};
use crate::plane::link::{Live, LiveLink, Params, View};
use crate::plane::report::LATE;
use crate::system::messages::tell;
use crate::system::watchdog::Heartbeat;
use crate::system::{host, sandbox, sys};

/// Smallest length of the kernel's queue, packets. The queue holds the discipline's packets and
/// those that quell has not read yet; packets beyond its length bypass the discipline.
const MIN_KERNEL_LENGTH: u32 = 65_536;

/// A worker's connections to the rest of the process.
pub struct WorkerContext {
    /// Heartbeat for the watchdog.
    pub heartbeat: Heartbeat,
    /// State that the main thread reads.
    pub watch: Watch,
    /// CPU on which the loop runs; `None`: any.
    pub cpu: Option<usize>,
    /// Receiver of TCP timestamps, and whether the loop's packets come from the line.
    pub passing: Option<(Passing, bool)>,
}

/// Handle of a running loop.
pub struct Worker {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    heartbeat: Heartbeat,
    mailbox: Arc<Mailbox>,
    /// Thread that trains the loop's learner; started with the first queue that has one.
    learning: OnceLock<LearnThread>,
}

impl Worker {
    /// Starts the loop for the packets of a backend. With `free` it sends every packet immediately.
    pub fn start(
        backend: impl InterfaceBackend,
        task: Task,
        parser: Parser,
        free: bool,
        context: WorkerContext,
    ) -> Result<Self, Error> {
        let WorkerContext {
            heartbeat,
            watch,
            cpu,
            passing,
        } = context;
        let shared = watch.0;
        shared.stop.store(false, Ordering::Relaxed);
        shared.open.store(free, Ordering::Relaxed);
        let before = lock(&shared.snapshot).clone();
        let pace = Pace::new();
        let queue = task.params.queue.canonical();
        let learned = shared.exchange(None, &queue);
        let mut link = task.link(&pace, backend.capacity(), learned);
        let parser = Parser {
            wants: link.wants(),
            stamps: passing.is_some(),
            ..parser
        };
        let has_learner = !free && task.params.queue.has_learner();
        let mailbox = Arc::new(Mailbox::default());
        let mut run = Loop {
            heartbeat: heartbeat.clone(),
            mailbox: mailbox.clone(),
            exchange: Exchange::of(&mut link),
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
            snapshot: Snapshot {
                queue: if free { String::new() } else { queue },
                ..before
            },
        };
        let seen = shared.clone();
        let thread = host::thread("quell-loop")
            .spawn(move || {
                if let Some(cpu) = cpu {
                    sys::pin(cpu);
                }
                run.run(&seen);
            })
            .map_err(|e| Error::new(format!("cannot start a thread: {e}")))?;
        let worker = Self {
            shared,
            thread,
            heartbeat,
            mailbox,
            learning: OnceLock::new(),
        };
        if has_learner {
            worker.learn();
        }
        Ok(worker)
    }

    /// Starts the thread of the learner, unless it runs already.
    fn learn(&self) {
        if self.learning.get().is_none() {
            match LearnThread::start(self.mailbox.clone()) {
                Ok(thread) => drop(self.learning.set(thread)),
                Err(e) => tell(&format!("the queue does not learn: {e}")),
            }
        }
    }

    /// Access to the loop's state from any thread.
    pub fn watch(&self) -> Watch {
        Watch(self.shared.clone())
    }

    /// Gives the loop a new link. The held packets move to the new queue in the order of their
    /// arrival.
    pub fn change(&self, task: Task) {
        if task.params.queue.has_learner() {
            self.learn();
        }
        *lock(&self.shared.change) = Some(task);
    }

    /// Makes the loop send all held packets in the order of their arrival, and from now on every
    /// packet immediately.
    pub fn open(&self) {
        self.shared.open.store(true, Ordering::Relaxed);
    }

    /// Turns that the loop has made.
    pub fn turns(&self) -> u32 {
        self.heartbeat.turns()
    }

    /// Whether the loop still runs.
    pub fn alive(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Opens the loop and makes it end.
    pub fn stop(&self) {
        self.open();
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Stops the loop and waits for its end.
    pub fn finish(self) {
        self.stop();
        let _ = self.thread.join();
    }
}

/// Length of the kernel's queue, packets: more than the discipline holds.
pub fn kernel_length(params: &Params) -> u32 {
    most_packets(params)
        .saturating_add(1)
        .max(MIN_KERNEL_LENGTH)
}

/// The learned state with which a link's queue begins; `None` if the queue does not learn.
pub fn untrained(params: &Params) -> Option<LearnedState> {
    LiveLink::new(params.clone()).learned()
}

/// Most packets that a link's queue may hold.
pub fn most_packets(params: &Params) -> u32 {
    LiveLink::new(params.clone()).most_packets()
}

struct Loop<D> {
    heartbeat: Heartbeat,
    backend: D,
    task: Task,
    link: LiveLink,
    mailbox: Arc<Mailbox>,
    /// The link's exchange with its learner, until it is in the mailbox.
    exchange: Option<Exchange>,
    pace: Pace,
    parser: Parser,
    /// Held packets by place, each with its number in the order of arrival.
    slots: Vec<Option<(u64, Live)>>,
    passing: Option<(Passing, bool)>,
    /// TCP timestamps of held packets by place, if the packets go to the line.
    segments: Vec<Option<Stamped>>,
    arrived: Vec<Arrived>,
    snapshot: Snapshot,
    /// Packets refused and unsent before this loop began.
    refused: u64,
    unsent: u64,
    /// Packets sent more than [`LATE`] after they were due.
    missed: u64,
}

impl<D: InterfaceBackend> Loop<D> {
    fn run(&mut self, shared: &Shared) {
        self.snapshot.realtime = sys::be_punctual(1);
        sandbox::packets();
        let (mut next_look, mut open) = (Instant::ZERO, false);
        loop {
            let stop = shared.stop.load(Ordering::Relaxed);
            let passed = self.backend.beat();
            if self.heartbeat.turn(self.backend.last()) || passed {
                self.retake();
                next_look = Instant::ZERO;
            }
            if !open && shared.open.load(Ordering::Relaxed) {
                open = true;
                self.release();
            }
            let change = lock(&shared.change).take();
            if let Some(task) = change.filter(|_| !open) {
                self.change(task, shared);
                next_look = Instant::ZERO;
            }
            let more = self.backend.read(&self.parser, &mut self.arrived);
            self.take(open);
            self.send();
            self.backend.flush();
            let now = self.pace.now();
            lock(&shared.heard).drain(..).for_each(|heard| match heard {
                Feedback::Answer(answer, back) => self.link.on_probe(now, &answer.echo(now, back)),
                Feedback::Delay(delay) => self.link.on_delay(now, &delay),
            });
            if now >= next_look || stop {
                next_look = now + self.link.params().bin();
                self.link.forget();
                self.mailbox.serve(&mut self.link, &mut self.exchange);
                self.snapshot.link = View {
                    missed: self.missed,
                    ..self.link.view()
                };
                let (refused, unsent) = self.backend.lost();
                self.snapshot.refused = self.refused + refused;
                self.snapshot.unsent = self.unsent + unsent;
                if self.snapshot.failure.as_deref() != self.link.failure() {
                    self.snapshot.failure = self.link.failure().map(str::to_owned);
                }
                shared.show(&self.snapshot, stop);
                if stop || shared.wanted.load(Ordering::Relaxed) {
                    shared.show_learned(|| self.learned(), stop);
                }
            }
            // Packets that the kernel still holds when the socket closes are lost, so all are read
            // first.
            if stop && !more {
                return;
            }
            if !more {
                self.pace.rest(&self.link, self.backend.fd());
            }
        }
    }

    /// Hands the packets that were read to the link, or sends them if the loop is `open`.
    fn take(&mut self, open: bool) {
        let now = self.pace.now();
        for arrived in self.arrived.drain(..) {
            let arrival = self.snapshot.read;
            self.snapshot.read += 1;
            if open {
                self.snapshot.passed += 1;
                self.snapshot.sent += 1;
                self.backend.accept(arrived.place, Change::NONE);
                continue;
            }
            let packet = Live::new(arrived.place, arrived.bytes, &arrived.class);
            let index = arrived.place as usize;
            if index >= self.slots.len() {
                self.slots.resize(index + 1, None);
            }
            self.slots[index] = Some((arrival, packet));
            self.snapshot.held += 1;
            if let Some((passing, back)) = &self.passing {
                let segment = passing.segment(&arrived.class, *back);
                if let (true, Some(segment)) = (*back, &segment) {
                    passing.arrived(segment);
                }
                self.segments.resize(self.slots.len(), None);
                self.segments[index] = segment.filter(|_| !back);
            }
            self.link.heard(now, &arrived.class, arrived.bytes);
            self.link
                .arrive_with(now, packet, arrived.class.acknowledgment);
        }
    }

    /// Sends packets that are due, and drops those that the discipline has dropped.
    fn send(&mut self) {
        let now = self.pace.now();
        let (slots, backend, snapshot) = (&mut self.slots, &mut self.backend, &mut self.snapshot);
        let missed = &mut self.missed;
        let (passing, segments) = (&self.passing, &mut self.segments);
        let wash = self.parser.wants.washed;
        self.link.advance(now, |due, packet| {
            *missed += u64::from(now.saturating_since(due) > LATE);
            snapshot.sent += 1;
            snapshot.held -= 1;
            let mark = packet.ecn() == Ecn::Ce;
            snapshot.marked += u64::from(backend.accept(packet.place, Change { mark, wash }));
            slots[packet.place as usize] = None;
            if let Some((passing, _)) = passing
                && let Some(segment) = segments[packet.place as usize].take()
            {
                passing.left(now.saturating_since(packet.enqueued()), &segment);
            }
        });
        while let Some(place) = self.link.freed() {
            self.snapshot.dropped += 1;
            self.snapshot.held -= 1;
            self.backend.give_up(place);
            self.slots[place as usize] = None;
        }
    }

    /// The queue's words and what it has learned.
    fn learned(&self) -> Option<Learned> {
        let words = self.snapshot.queue.clone();
        let learned = |state| Learned { words, state };
        self.link.learned().map(learned)
    }

    /// The held packets in the order of their arrival.
    fn held(&self) -> Vec<(u64, Live)> {
        let mut held: Vec<_> = self.slots.iter().flatten().copied().collect();
        held.sort_unstable_by_key(|(arrival, _)| *arrival);
        held
    }

    /// Sends all held packets.
    fn release(&mut self) {
        self.empty(|backend, place| {
            backend.accept(place, Change::NONE);
        });
        self.backend.flush();
    }

    /// Resumes after a stall during which packets bypassed the loop: releases the held packets,
    /// starts a new link, and counts the packets that passed.
    fn retake(&mut self) {
        self.empty(InterfaceBackend::let_go);
        let passed = self.backend.retake();
        self.backend.flush();
        self.snapshot.stalls += 1;
        self.snapshot.read += passed;
        self.snapshot.sent += passed;
        self.snapshot.passed += passed;
    }

    /// Releases all held packets in the order of their arrival, and starts a new link.
    fn empty(&mut self, let_go: impl Fn(&mut D, u32)) {
        for (_, packet) in self.held() {
            self.snapshot.sent += 1;
            self.snapshot.passed += 1;
            self.snapshot.held -= 1;
            let_go(&mut self.backend, packet.place);
            self.slots[packet.place as usize] = None;
        }
        let learned = self.link.learned();
        let before = self.begin(learned);
        self.link.resume(&before);
    }

    /// Starts a link for the present task at time 0; returns the one before.
    fn begin(&mut self, learned: Option<LearnedState>) -> LiveLink {
        self.pace = Pace::new();
        let link = self.task.link(&self.pace, self.backend.capacity(), learned);
        let before = std::mem::replace(&mut self.link, link);
        self.exchange = Exchange::of(&mut self.link);
        self.parser.wants = self.link.wants();
        before
    }

    /// Starts a link for another task at time 0, and moves the held packets to it.
    fn change(&mut self, task: Task, shared: &Shared) {
        let words = task.params.queue.canonical();
        let learned = shared.exchange(self.learned(), &words);
        self.backend.keep(kernel_length(&task.params));
        self.snapshot.queue = words;
        self.task = task;
        self.begin(learned);
        for (_, packet) in self.held() {
            self.link.arrive(Instant::ZERO, packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::upkeep::Progress;
    use crate::packet::header::{Change, Class};
    use crate::plane::link::tests::leaky;
    use crate::plane::shared::Watches;
    use crate::serve::State;
    use crate::serve::tests::metrics;
    use crate::system::watchdog::Watchdog;
    use quell_link::words::Queue;
    use quell_qdisc::discipline::Wants;
    use quell_qdisc::rate::Rate;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    /// A backend that delivers a test's packets and records those that the loop sends.
    struct Fake {
        fd: OwnedFd,
        /// Places of packets that have not been delivered, and of those that were sent.
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

    /// Starts a loop that gets these packets and manages them with this queue.
    fn started(traffic: &Arc<Mutex<(Vec<u32>, Vec<u32>)>>, queue: Queue) -> (Worker, Watches) {
        let backend = Fake {
            fd: sys::socket(libc::AF_INET).unwrap(),
            traffic: traffic.clone(),
        };
        let watches = Watches::new(1);
        let context = WorkerContext {
            heartbeat: Watchdog::start().unwrap().heartbeat(),
            watch: watches.of(0),
            cpu: None,
            passing: None,
        };
        let task = Task::new(Params::line(Rate::from_mbit(1000), queue), 1);
        let parser = Parser {
            key: (1, 2),
            tunnels: false,
            stamps: false,
            wants: Wants::default(),
        };
        let worker = Worker::start(backend, task, parser, false, context).unwrap();
        (worker, watches)
    }

    #[test]
    fn packets_do_not_wait_for_a_reader_of_the_snapshot() {
        let traffic = Arc::new(Mutex::new((Vec::new(), Vec::new())));
        let (worker, watches) = started(&traffic, Queue::parse("pfifo").unwrap());
        let watch = watches.of(0);
        let kept = lock(&watch.0.snapshot);
        // Several snapshots are due meanwhile.
        for place in 0..500 {
            lock(&traffic).0.push(place);
            std::thread::sleep(Duration::from_millis(1));
        }
        let until = Instant::now() + Duration::from_secs(20);
        while lock(&traffic).1.len() < 500 {
            assert!(Instant::now() < until, "{} sent", lock(&traffic).1.len());
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(kept);
        worker.finish();
        assert_eq!(
            (watches.snapshot().sent, watches.snapshot().queue.as_str()),
            (500, "pfifo")
        );
    }

    #[test]
    fn a_queue_of_another_crate_that_fails_is_reported_once_and_packets_pass() {
        let traffic = Arc::new(Mutex::new((Vec::new(), Vec::new())));
        let (worker, watches) = started(&traffic, leaky());
        let named = [("egress", watches.clone())];
        let mut progress = Progress::default();
        assert!(progress.failures("eth0", &named).is_empty());
        // Packets arrive until the failure is reported and 100 packets have been sent.
        let mut place = 0;
        while watches.snapshot().failure.is_none() || lock(&traffic).1.len() < 100 {
            lock(&traffic).0.push(place);
            place += 1;
            std::thread::sleep(Duration::from_millis(1));
            assert!(place < 60_000, "{:?}", watches.snapshot());
        }
        let lines = progress.failures("eth0", &named);
        assert!(lines[0].starts_with("eth0: the queue of egress has failed and packets pass: "));
        assert!(
            progress.failures("eth0", &named).is_empty(),
            "reported once"
        );
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
        let snapshot = watches.snapshot();
        assert_eq!(
            snapshot.read,
            snapshot.sent + snapshot.dropped + snapshot.held
        );
        assert!(
            snapshot.dropped < 10,
            "what the queue held when it failed: {snapshot:?}"
        );
    }
}
