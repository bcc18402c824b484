//! Threads that share short pieces of work in rounds. A thread without work polls for the next
//! round for a while before it sleeps, because waking a thread takes as long as stepping about 20
//! environments.
//!
//! `tests/team.rs` compiles this file again, with a `sync` that explores all interleavings of the
//! threads.

use std::sync::PoisonError;
use std::time::Duration;

use crate::sync::{
    Arc, AtomicBool, AtomicUsize, Condvar, Instant, JoinHandle, Mutex, MutexGuard, Ordering,
    spin_loop, thread,
};

/// Time for which a thread polls for the next round before it sleeps. A program needs about 10 us
/// between two steps of a vector. A program that learns needs longer; the cost of sleeping is then
/// comparatively small.
const POLL_TIME: Duration = Duration::from_micros(100);

/// Pieces of work and threads that process them.
pub struct Team<W> {
    shared: Arc<Shared<W>>,
    helpers: Vec<JoinHandle<()>>,
}

struct Shared<W> {
    pieces: Vec<Piece<W>>,
    work: fn(&mut W),
    threads: usize,
    /// Number of unfinished pieces.
    left: AtomicUsize,
    /// Number of the current round; sleeping threads wait for it to change.
    round: AtomicUsize,
    /// Number of sleeping threads.
    asleep: Mutex<usize>,
    wake: Condvar,
    /// Whether threads must end.
    stop: AtomicBool,
}

struct Piece<W> {
    /// The last round in which a thread took this piece.
    taken: AtomicUsize,
    work: Mutex<W>,
}

impl<W: Send + 'static> Team<W> {
    /// A team whose rounds call `work` on each piece with `threads` threads, including the calling
    /// one.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn new(pieces: Vec<W>, threads: usize, work: fn(&mut W)) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            pieces: pieces.into_iter().map(Piece::new).collect(),
            work,
            threads: threads.max(1),
            left: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            asleep: Mutex::new(0),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let mut team = Self {
            shared,
            helpers: Vec::new(),
        };
        for k in 1..threads {
            let shared = team.shared.clone();
            let thread = thread::Builder::new().name("quell".into());
            team.helpers.push(thread.spawn(move || shared.help(k))?);
        }
        Ok(team)
    }

    /// Gives access to a piece between rounds.
    pub fn piece(&self, index: usize) -> MutexGuard<'_, W> {
        lock(&self.shared.pieces[index].work)
    }

    /// Number of pieces.
    pub fn pieces(&self) -> usize {
        self.shared.pieces.len()
    }

    /// Processes every piece.
    pub fn round(&self) {
        let shared = &*self.shared;
        shared.left.store(shared.pieces.len(), Ordering::Relaxed);
        let round = {
            // Incremented under the lock, so that no thread goes to sleep between its check of the
            // round and the wake-up.
            let asleep = lock(&shared.asleep);
            let before = shared.round.fetch_add(1, Ordering::Release);
            if *asleep > 0 {
                shared.wake.notify_all();
            }
            before + 1
        };
        shared.take_part(0, round);
        let mut polls = 0u32;
        while shared.left.load(Ordering::Acquire) > 0 {
            pause(&mut polls);
        }
    }
}

impl<W> Drop for Team<W> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        {
            let _asleep = lock(&self.shared.asleep);
            self.shared.round.fetch_add(1, Ordering::Release);
            self.shared.wake.notify_all();
        }
        for helper in self.helpers.drain(..) {
            let _ = helper.join();
        }
    }
}

impl<W> Shared<W> {
    /// Processes pieces until none are left: first the thread's own share, which is the same in
    /// each round so that it stays in its core's cache, then pieces that other threads have not
    /// taken.
    fn take_part(&self, thread: usize, round: usize) {
        let first = thread * self.pieces.len() / self.threads;
        let (others, own) = self.pieces.split_at(first);
        for piece in own.iter().chain(others) {
            if piece.take(round) {
                // Counts the piece as done even if the work panics.
                let _done = Done(&self.left);
                (self.work)(&mut lock(&piece.work));
            }
        }
    }

    fn help(&self, thread: usize) {
        let mut seen = 0;
        loop {
            seen = self.wait(seen);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            self.take_part(thread, seen);
        }
    }

    /// Waits for a round after `seen` and returns its number.
    fn wait(&self, seen: usize) -> usize {
        let (start, mut polls) = (Instant::now(), 0);
        while start.elapsed() < POLL_TIME {
            let round = self.round.load(Ordering::Acquire);
            if round != seen {
                return round;
            }
            pause(&mut polls);
        }
        let mut asleep = lock(&self.asleep);
        *asleep += 1;
        while self.round.load(Ordering::Acquire) == seen {
            asleep = self
                .wake
                .wait(asleep)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *asleep -= 1;
        self.round.load(Ordering::Acquire)
    }
}

impl<W> Piece<W> {
    fn new(work: W) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            work: Mutex::new(work),
        }
    }

    /// Whether this thread is the first to ask for the piece in this round. False also for a late
    /// thread, whose round is over.
    fn take(&self, round: usize) -> bool {
        self.taken.load(Ordering::Relaxed) < round
            && self.taken.fetch_max(round, Ordering::AcqRel) < round
    }
}

/// Counts a piece as done when it is dropped.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Pauses before the next poll. Every 32nd time it yields the core to other threads, which may have
/// unfinished work.
fn pause(polls: &mut u32) {
    *polls += 1;
    if polls.is_multiple_of(32) {
        thread::yield_now();
    } else {
        spin_loop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
