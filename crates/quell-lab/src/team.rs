//! Threads that share short pieces of work, round after round. A thread that has finished polls for
//! the next round for a while before it sleeps, because waking it takes as long as stepping about
//! 20 environments.
//!
//! `tests/team.rs` compiles this file again, with a `sync` whose threads meet in every order.

use std::sync::PoisonError;
use std::time::Duration;

use crate::sync::{
    Arc, AtomicBool, AtomicUsize, Condvar, Instant, JoinHandle, Mutex, MutexGuard, Ordering,
    spin_loop, thread,
};

/// How long a thread polls for the next round before it sleeps. A program needs about 10 us between
/// two steps of a vector. One that learns needs longer; the cost of sleeping is then small in
/// comparison.
const LOOK: Duration = Duration::from_micros(100);

/// Pieces of work, and the threads that help with them.
pub struct Team<W> {
    shared: Arc<Shared<W>>,
    helpers: Vec<JoinHandle<()>>,
}

struct Shared<W> {
    pieces: Vec<Piece<W>>,
    work: fn(&mut W),
    threads: usize,
    /// Pieces that are not done yet.
    left: AtomicUsize,
    /// The number of the round; sleeping threads wait for it to change.
    round: AtomicUsize,
    asleep: Mutex<usize>,
    wake: Condvar,
    over: AtomicBool,
}

struct Piece<W> {
    /// The last round in which a thread took it.
    taken: AtomicUsize,
    work: Mutex<W>,
}

impl<W: Send + 'static> Team<W> {
    /// A round is `work` on each of the pieces, by `threads` threads, the calling one among them.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn new(pieces: Vec<W>, threads: usize, work: fn(&mut W)) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            pieces: pieces.into_iter().map(Piece::new).collect(),
            work,
            threads: threads.max(1),
            left: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            asleep: Mutex::new(0),
            wake: Condvar::new(),
            over: AtomicBool::new(false),
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

    /// A piece, between rounds.
    pub fn piece(&self, index: usize) -> MutexGuard<'_, W> {
        lock(&self.shared.pieces[index].work)
    }

    /// How many pieces there are.
    pub fn pieces(&self) -> usize {
        self.shared.pieces.len()
    }

    /// Works on every piece.
    pub fn round(&self) {
        let shared = &*self.shared;
        shared.left.store(shared.pieces.len(), Ordering::Relaxed);
        let round = {
            // Incremented under the lock, so that no thread goes to sleep between its check of the
            // round and the call.
            let asleep = lock(&shared.asleep);
            let before = shared.round.fetch_add(1, Ordering::Release);
            if *asleep > 0 {
                shared.wake.notify_all();
            }
            before + 1
        };
        shared.take_part(0, round);
        let mut looks = 0u32;
        while shared.left.load(Ordering::Acquire) > 0 {
            pause(&mut looks);
        }
    }
}

impl<W> Drop for Team<W> {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
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
    /// Takes pieces until there are none: first a share that is the same in each round, so that it
    /// stays in the cache of the thread's core, then what the other threads have not taken.
    fn take_part(&self, thread: usize, round: usize) {
        let first = thread * self.pieces.len() / self.threads;
        let (others, own) = self.pieces.split_at(first);
        for piece in own.iter().chain(others) {
            if piece.take(round) {
                // Also where the work panics.
                let _done = Done(&self.left);
                (self.work)(&mut lock(&piece.work));
            }
        }
    }

    fn help(&self, thread: usize) {
        let mut seen = 0;
        loop {
            seen = self.wait(seen);
            if self.over.load(Ordering::Acquire) {
                return;
            }
            self.take_part(thread, seen);
        }
    }

    /// Waits for a round after this one, and gives its number.
    fn wait(&self, seen: usize) -> usize {
        let (start, mut looks) = (Instant::now(), 0);
        while start.elapsed() < LOOK {
            let round = self.round.load(Ordering::Acquire);
            if round != seen {
                return round;
            }
            pause(&mut looks);
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

    /// True for the first thread that asks in a round. One that is late, in a round that is over,
    /// gets nothing.
    fn take(&self, round: usize) -> bool {
        self.taken.load(Ordering::Relaxed) < round
            && self.taken.fetch_max(round, Ordering::AcqRel) < round
    }
}

struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Looks again soon; now and then leaves the core to others, who may have the work that is waited
/// for.
fn pause(looks: &mut u32) {
    *looks += 1;
    if looks.is_multiple_of(32) {
        thread::yield_now();
    } else {
        spin_loop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
