//! Snapshots of loops while they run, messages to loops, and the task that each works on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use quell_link::line::{Line, Share};
use quell_link::server::Rate;
use quell_qdisc::control::Delay;
use quell_qdisc::control::learnqueue::Table;
use quell_qdisc::num;
use serde::Serialize;

use super::pace::Pace;
use crate::packet::echo::Answer;
use crate::plane::link::{LiveLink, Params, View};

/// Most answers of reflectors and delays of the traffic that wait for a loop.
const MAX_FEEDBACK: usize = 64;
/// What has been learned is kept for so many different words, those used last: in memory and in
/// files.
pub const MAX_TABLES: usize = 8;

/// A snapshot of a loop, or of all loops of a direction while they run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// The link's last 100 ms and its totals since the last change of its parameters.
    #[serde(flatten)]
    pub link: View,
    /// Packets that came so far.
    pub read: u64,
    /// Packets sent so far.
    pub sent: u64,
    /// Packets that the discipline gave up so far.
    pub dropped: u64,
    /// Packets sent so far with a mark that quell wrote.
    pub marked: u64,
    /// Packets that bypassed the discipline, because it was being switched off or the loop had
    /// stalled.
    pub passed: u64,
    /// Packets held now.
    pub held: u64,
    /// Packets that came and were refused: no memory, or a large frame that cannot be separated.
    pub refused: u64,
    /// Of `sent`, those that the other side's device did not take.
    pub unsent: u64,
    /// Times that the loop stalled and the watchdog let packets pass.
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
    pub(super) params: Params,
    /// The line that all loops of the direction send on, and when its time began; None where there
    /// is one loop only.
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
    /// LearnQueue starts from what it has learned on another link.
    pub fn link(&self, pace: &Pace, capacity: u32, learned: Option<Table>) -> LiveLink {
        let mut params = self.params.clone();
        // Words that no longer name LearnQueue have no use for its table.
        if let Some(table) = learned
            && let Ok(queue) = params.queue.clone().with_table(Arc::new(table))
        {
            params.queue = queue;
        }
        let began = pace.began();
        if let Some((line, since)) = &self.line {
            let since = num::low_u64(began.saturating_duration_since(*since).as_nanos());
            params.rate = Rate::Shared(Share::new(line.clone(), since));
        }
        let mut link = LiveLink::new(params);
        link.hold_at_most(0, capacity);
        link.time_decisions(Arc::new(move || num::low_u64(began.elapsed().as_nanos())));
        link
    }
}

/// Feedback for a loop's controller.
pub enum Feedback {
    /// A reflector's answer, and whether packets of the loop's direction come back with it.
    Answer(Answer, bool),
    /// What the traffic's own segments show.
    Delay(Delay),
}

#[derive(Default)]
pub struct Shared {
    pub stop: AtomicBool,
    pub open: AtomicBool,
    pub change: Mutex<Option<Task>>,
    /// For the controller.
    pub heard: Mutex<Vec<Feedback>>,
    pub snapshot: Mutex<Snapshot>,
    /// Whether `learned` is to be brought up to date.
    pub wanted: AtomicBool,
    /// What LearnQueue has learned with each of its words: the present ones at the loop's end or
    /// when that was last wanted, others when the words changed.
    pub learned: Mutex<Vec<Learned>>,
}

/// What LearnQueue has learned.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// The queue's words.
    pub words: String,
    /// Its table.
    pub table: Table,
}

impl Shared {
    /// Shows a snapshot. Only the `last` one waits for who reads the one before: a thread that
    /// answers questions may be kept from its processor for long, and packets must not wait for it.
    pub fn show(&self, snapshot: &Snapshot, last: bool) {
        match self.snapshot.try_lock() {
            Ok(mut shown) => shown.clone_from(snapshot),
            Err(_) if last => lock(&self.snapshot).clone_from(snapshot),
            Err(_) => {}
        }
    }

    /// Shows what a queue has learned; only the `last` one waits, as above.
    pub fn show_learned(&self, learned: impl FnOnce() -> Option<Learned>, last: bool) {
        match self.learned.try_lock() {
            Ok(mut shown) => keep(&mut shown, learned()),
            Err(_) if last => keep(&mut lock(&self.learned), learned()),
            Err(_) => return,
        }
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// Shows what a queue has learned whose words change now; returns what one with the new words
    /// has learned.
    pub fn exchange(&self, learned: Option<Learned>, words: &str) -> Option<Table> {
        let mut shown = lock(&self.learned);
        let known = |learned: &Learned| learned.words == words;
        let next = learned.iter().chain(&*shown).find(|it| known(it));
        let next = next.map(|it| it.table.clone());
        keep(&mut shown, learned);
        next
    }
}

/// Replaces what has been learned with the same words, or else what is oldest if there is too much.
fn keep(shown: &mut Vec<Learned>, learned: Option<Learned>) {
    let Some(learned) = learned else {
        return;
    };
    shown.retain(|old| old.words != learned.words);
    shown.truncate(MAX_TABLES - 1);
    shown.insert(0, learned);
}

/// Reads the state of a loop, also after its end. A loop that replaces an earlier one continues its
/// counts.
#[derive(Clone, Default)]
pub struct Watch(pub Arc<Shared>);

impl Watch {
    /// A snapshot of it.
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.0.snapshot).clone()
    }

    /// Passes a reflector's answer to its controller, and whether packets of its direction come
    /// back with it. While the loop is stalled, answers beyond [`MAX_FEEDBACK`] are discarded.
    pub fn hear(&self, answer: &Answer, back: bool) {
        self.tell(Feedback::Answer(*answer, back));
    }

    /// Tells its controller of a delay, in the same way.
    pub fn hear_delay(&self, delay: Delay) {
        self.tell(Feedback::Delay(delay));
    }

    /// Asks for what its queue has learned, which [`Watch::learned`] returns after the loop's next
    /// look.
    pub fn want_learned(&self) {
        self.0.wanted.store(true, Ordering::Relaxed);
    }

    /// What its queues had learned when that was last wanted, when their words changed, or at the
    /// loop's end.
    pub fn learned(&self) -> Vec<Learned> {
        lock(&self.0.learned).clone()
    }

    /// Has the next queue with these words start from what another has learned, unless one of the
    /// loop's own has had them.
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

/// Snapshots of all loops of a direction.
#[derive(Clone, Default)]
pub struct Watches(pub Vec<Watch>);

impl Watches {
    /// For so many loops.
    pub fn new(loops: usize) -> Self {
        Self((0..loops).map(|_| Watch::default()).collect())
    }

    /// That at one of its loops.
    pub fn of(&self, number: usize) -> Watch {
        self.0.get(number).cloned().unwrap_or_default()
    }

    /// A snapshot of all of them together.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshots = self.0.iter().map(Watch::snapshot);
        let first = snapshots.next().unwrap_or_default();
        if self.0.len() < 2 {
            return first;
        }
        let mut read = vec![first.read];
        let all = snapshots.fold(first, |all, snapshot| {
            read.push(snapshot.read);
            // A loop that does not run has no rate and no priority.
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

/// Whoever panicked with it leaves what is in it.
pub fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::header::Class;
    use crate::plane::link::Live;
    use quell_link::words::Queue;
    use quell_qdisc::{MS, SEC};

    #[test]
    fn learnqueue_keeps_what_it_has_learned_with_each_of_its_words() {
        let task = |bps, words: &str| {
            let queue = Queue::parse(words).expect(words);
            Task::new(Params::line(bps, queue), 1)
        };
        let words = "learnqueue initial 30 guard";
        let before = task(10_000_000, words);
        let mut link = before.link(&Pace::new(), 1000, None);
        for place in 0..1000 {
            let now = u64::from(place) * MS;
            link.advance(now, |_, _| {});
            link.arrive(now, Live::new(place, 1500, &Class::default()));
        }
        link.advance(2 * SEC, |_, _| {});
        let learned = link.learned().expect("a table");
        assert!(learned.visits().iter().flatten().sum::<u32>() > 50);
        let faster = task(40_000_000, words);
        let shared = Shared::default();
        let of = |words: &str, table: &Table| {
            let (words, table) = (words.to_owned(), table.clone());
            Some(Learned { words, table })
        };
        let same = shared.exchange(of(words, &learned), words);
        let next = faster.link(&Pace::new(), 1000, same);
        assert_eq!(next.learned().expect("a table").visits(), learned.visits());
        assert_eq!(next.limit_packets(), link.limit_packets());
        // Other words, another queue, and the first words again.
        let other = "learnqueue target 5ms guard";
        assert_eq!(shared.exchange(of(words, &learned), other), None);
        let untrained = task(1_000_000, other).link(&Pace::new(), 1000, None);
        let untrained = untrained.learned().expect("a table");
        assert_eq!(shared.exchange(of(other, &untrained), "pfifo"), None);
        assert_eq!(shared.exchange(None, words), Some(learned.clone()));
        // A file does not replace what a loop has learned since.
        let watch = Watch(Arc::new(shared));
        watch.start_from(&of(words, &untrained).expect("it"));
        assert_eq!(watch.0.exchange(None, words), Some(learned));
        for number in 0..2 * MAX_TABLES {
            watch.start_from(&of(&number.to_string(), &untrained).expect("it"));
        }
        assert_eq!(watch.learned().len(), MAX_TABLES);
        assert_eq!(watch.0.exchange(None, words), None);
    }
}
