//! Shared state of a loop and the main thread: snapshots, messages to the loop, and its task.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use quell_link::line::{Line, Share};
use quell_link::server::Capacity;
use quell_qdisc::control::Delay;
use quell_qdisc::control::LearnedState;
use quell_qdisc::{num, time};
use serde::Serialize;

use super::pace::Pace;
use crate::packet::echo::Answer;
use crate::plane::link::{LiveLink, Params, View};

/// Most answers of reflectors and delays of TCP traffic that may wait for a loop.
const MAX_FEEDBACK: usize = 64;
/// Most learned states that are kept, in memory and in files: those of the queue words used last.
pub const MAX_LEARNED: usize = 8;

/// A snapshot of a running loop, or of all loops of a direction.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// The link's last 100 ms and its totals since the last change of its parameters.
    #[serde(flatten)]
    pub link: View,
    /// Packets that arrived so far.
    pub read: u64,
    /// Packets sent so far.
    pub sent: u64,
    /// Packets that the discipline dropped so far.
    pub dropped: u64,
    /// Packets sent so far with a mark that quell wrote.
    pub marked: u64,
    /// Packets that bypassed the discipline, because it was being switched off or the loop had
    /// stalled.
    pub passed: u64,
    /// Packets held now.
    pub held: u64,
    /// Arrived packets that were discarded before the queue: no memory, or a large frame that
    /// cannot be split.
    pub refused: u64,
    /// Packets among `sent` that the outgoing device did not accept.
    pub unsent: u64,
    /// Times that the loop stalled and the watchdog let packets pass.
    pub stalls: u64,
    /// Whether the loop has real-time priority.
    pub realtime: bool,
    /// Queue words.
    pub queue: String,
    /// Why a queue of another crate has failed; packets then pass without delay or limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Packets that arrived at each loop, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_by_loop: Vec<u64>,
}

impl Snapshot {
    /// Combines the snapshots of two loops.
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

/// A loop's task: the link's parameters.
#[derive(Clone)]
pub struct Task {
    pub(super) params: Params,
    /// Line that all loops of the direction share, and the instant of its time 0; `None` with a
    /// single loop.
    line: Option<(Arc<Line>, Instant)>,
}

impl Task {
    /// A task for each of `loops` loops of a direction.
    pub fn new(params: Params, loops: usize) -> Self {
        let line = match params.rate {
            Capacity::Constant(rate) if loops > 1 => {
                Some((Arc::new(Line::new(rate)), Instant::now()))
            }
            _ => None,
        };
        Self { params, line }
    }

    /// An idle link whose time 0 is that of `pace`, for a backend that holds `capacity` packets.
    /// Its queue continues from what was `learned`.
    pub fn link(&self, pace: &Pace, capacity: u32, learned: Option<LearnedState>) -> LiveLink {
        let mut params = self.params.clone();
        // A state that does not fit the queue words is ignored.
        if let Some(learned) = learned
            && let Ok(queue) = params.queue.clone().with_learned(learned)
        {
            params.queue = queue;
        }
        let began = pace.began();
        if let Some((line, since)) = &self.line {
            let since = num::low_u64(began.saturating_duration_since(*since).as_nanos());
            let share = Share::new(line.clone(), time::Instant::from_nanos(since));
            params.rate = Capacity::Shared(share);
        }
        let mut link = LiveLink::new(params);
        link.hold_at_most(time::Instant::ZERO, capacity);
        link.time_decisions(Arc::new(move || {
            time::Instant::from_nanos(num::low_u64(began.elapsed().as_nanos()))
        }));
        link
    }
}

/// Feedback for a loop's controller.
pub enum Feedback {
    /// A reflector's answer; true if the loop's direction is that of the answers (ingress).
    Answer(Answer, bool),
    /// A delay that TCP traffic's own segments show.
    Delay(Delay),
}

/// State that a loop shares with the main thread.
#[derive(Default)]
pub struct Shared {
    /// Set to end the loop.
    pub stop: AtomicBool,
    /// Set to make the loop send every packet immediately.
    pub open: AtomicBool,
    /// A new task, until the loop takes it over.
    pub change: Mutex<Option<Task>>,
    /// Feedback that the controller has not got yet.
    pub heard: Mutex<Vec<Feedback>>,
    pub snapshot: Mutex<Snapshot>,
    /// Set to request an update of `learned`.
    pub wanted: AtomicBool,
    /// What queues have learned, by queue words: for the present words as of the last request or
    /// the loop's end, for others as of their replacement.
    pub learned: Mutex<Vec<Learned>>,
}

/// What a queue has learned, with its queue words.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// Queue words.
    pub words: String,
    /// What it has learned with these words.
    pub state: LearnedState,
}

impl Shared {
    /// Publishes a snapshot, unless a thread is reading the previous one: it may be off its CPU for
    /// long, and packets must not wait for it. Only the `last` snapshot waits.
    pub fn show(&self, snapshot: &Snapshot, last: bool) {
        match self.snapshot.try_lock() {
            Ok(mut shown) => shown.clone_from(snapshot),
            Err(_) if last => lock(&self.snapshot).clone_from(snapshot),
            Err(_) => {}
        }
    }

    /// Publishes what a queue has learned. As with [`Self::show`], only the `last` state waits for
    /// a reader.
    pub fn show_learned(&self, learned: impl FnOnce() -> Option<Learned>, last: bool) {
        match self.learned.try_lock() {
            Ok(mut shown) => keep(&mut shown, learned()),
            Err(_) if last => keep(&mut lock(&self.learned), learned()),
            Err(_) => return,
        }
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// Publishes what a queue has learned when its words change; returns what was learned with the
    /// new `words`, if anything.
    pub fn exchange(&self, learned: Option<Learned>, words: &str) -> Option<LearnedState> {
        let mut shown = lock(&self.learned);
        let known = |learned: &Learned| learned.words == words;
        let next = learned.iter().chain(&*shown).find(|it| known(it));
        let next = next.map(|it| it.state.clone());
        keep(&mut shown, learned);
        next
    }
}

/// Puts a state in front, replacing that of the same words or, if there are [`MAX_LEARNED`], the
/// oldest.
fn keep(shown: &mut Vec<Learned>, learned: Option<Learned>) {
    let Some(learned) = learned else {
        return;
    };
    shown.retain(|old| old.words != learned.words);
    shown.truncate(MAX_LEARNED - 1);
    shown.insert(0, learned);
}

/// Access to a loop's state, also after its end. A loop that replaces an earlier one continues its
/// counts.
#[derive(Clone, Default)]
pub struct Watch(pub Arc<Shared>);

impl Watch {
    /// The loop's last snapshot.
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.0.snapshot).clone()
    }

    /// Passes a reflector's answer to the controller; `back`: the loop's direction is that of the
    /// answers (ingress). While the loop is stalled, answers beyond [`MAX_FEEDBACK`] are discarded.
    pub fn hear(&self, answer: &Answer, back: bool) {
        self.tell(Feedback::Answer(*answer, back));
    }

    /// As [`Self::hear`], with a delay that TCP traffic shows.
    pub fn hear_delay(&self, delay: Delay) {
        self.tell(Feedback::Delay(delay));
    }

    /// Requests what the queue has learned. [`Watch::learned`] returns it after the loop's next
    /// snapshot.
    pub fn want_learned(&self) {
        self.0.wanted.store(true, Ordering::Relaxed);
    }

    /// What the loop's queues had learned at the last request, when their words changed, or at the
    /// loop's end.
    pub fn learned(&self) -> Vec<Learned> {
        lock(&self.0.learned).clone()
    }

    /// Makes the next queue with these words start from this state, unless a queue of the loop has
    /// had the words already.
    pub fn start_from(&self, learned: &Learned) {
        let mut shown = lock(&self.0.learned);
        if shown.iter().all(|own| own.words != learned.words) {
            keep(&mut shown, Some(learned.clone()));
        }
    }

    fn tell(&self, what: Feedback) {
        let mut heard = lock(&self.0.heard);
        if heard.len() < MAX_FEEDBACK {
            heard.push(what);
        }
    }
}

/// Access to all loops of a direction.
#[derive(Clone, Default)]
pub struct Watches(pub Vec<Watch>);

impl Watches {
    /// Watches for `loops` loops.
    pub fn new(loops: usize) -> Self {
        Self((0..loops).map(|_| Watch::default()).collect())
    }

    /// The watch of one loop.
    pub fn of(&self, number: usize) -> Watch {
        self.0.get(number).cloned().unwrap_or_default()
    }

    /// A combined snapshot of all loops.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshots = self.0.iter().map(Watch::snapshot);
        let first = snapshots.next().unwrap_or_default();
        if self.0.len() < 2 {
            return first;
        }
        let mut read = vec![first.read];
        let all = snapshots.fold(first, |all, snapshot| {
            read.push(snapshot.read);
            // A loop that does not run has no rate and no priority, and is left out.
            match snapshot.link.capacity_mbps > 0.0 || snapshot.read > 0 {
                true => all.and(&snapshot),
                false => all,
            }
        });
        Snapshot {
            read_by_loop: read,
            ..all
        }
    }
}

/// Locks, also after a thread has panicked with the lock held.
pub fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::header::Class;
    use crate::plane::link::Live;
    use quell_link::words::Queue;
    use quell_qdisc::rate::Rate;

    #[test]
    fn learnqueue_keeps_what_it_has_learned_with_each_of_its_words() {
        let task = |rate, words: &str| {
            let queue = Queue::parse(words).expect(words);
            Task::new(Params::line(rate, queue), 1)
        };
        let words = "learnqueue initial 30 guard";
        let before = task(Rate::from_mbit(10), words);
        let mut link = before.link(&Pace::new(), 1000, None);
        for place in 0..1000 {
            let now = time::Instant::from_millis(place.into());
            link.advance(now, |_, _| {});
            link.arrive(now, Live::new(place, 1500, &Class::default()));
        }
        link.advance(time::Instant::from_secs(2), |_, _| {});
        let visits = |state: LearnedState| match state {
            LearnedState::Table(table) => table.visits().to_vec(),
            LearnedState::Networks(_) => panic!("networks"),
        };
        let learned = link.learned().expect("a table");
        assert!(visits(learned.clone()).iter().flatten().sum::<u32>() > 50);
        let faster = task(Rate::from_mbit(40), words);
        let shared = Shared::default();
        let of = |words: &str, state: &LearnedState| {
            let (words, state) = (words.to_owned(), state.clone());
            Some(Learned { words, state })
        };
        let same = shared.exchange(of(words, &learned), words);
        let next = faster.link(&Pace::new(), 1000, same);
        let kept = next.learned().expect("a table");
        assert_eq!(visits(kept), visits(learned.clone()));
        assert_eq!(next.limit_packets(), link.limit_packets());
        // Other words, another queue, and the first words again.
        let other = "learnqueue target 5ms guard";
        assert_eq!(shared.exchange(of(words, &learned), other), None);
        let untrained = task(Rate::from_mbit(1), other).link(&Pace::new(), 1000, None);
        let untrained = untrained.learned().expect("a table");
        assert_eq!(shared.exchange(of(other, &untrained), "pfifo"), None);
        assert_eq!(shared.exchange(None, words), Some(learned.clone()));
        // A table from a file does not replace what a loop has learned since.
        let watch = Watch(Arc::new(shared));
        watch.start_from(&of(words, &untrained).expect("it"));
        assert_eq!(watch.0.exchange(None, words), Some(learned));
        for number in 0..2 * MAX_LEARNED {
            watch.start_from(&of(&number.to_string(), &untrained).expect("it"));
        }
        assert_eq!(watch.learned().len(), MAX_LEARNED);
        assert_eq!(watch.0.exchange(None, words), None);
    }
}
