//! Runs the threads of a team in thousands of orders: shuttle runs one thread at a time and chooses
//! the next at each atomic, lock and wake-up. A wait that never ends fails the test. Memory is
//! sequentially consistent here; `make miri` tests weaker orderings.

#[path = "../src/team.rs"]
mod team;

/// Shuttle's versions of the items of the standard library that `team.rs` uses.
mod sync {
    use std::time::Duration;

    pub use shuttle::hint::spin_loop;
    pub use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub use shuttle::thread::{self, JoinHandle};

    /// A clock on which 0 ms or, at random, 1 ms have passed; a thread polls for less than 1 ms
    /// before it sleeps.
    pub struct Instant;

    impl Instant {
        pub fn now() -> Self {
            Self
        }

        pub fn elapsed(&self) -> Duration {
            use shuttle::rand::Rng;
            Duration::from_millis(u64::from(shuttle::rand::thread_rng().gen_bool(0.2)))
        }
    }
}

#[test]
fn every_piece_is_worked_on_once_a_round_in_any_order_of_the_threads() {
    for threads in [2, 3] {
        let rounds = move || {
            let team = team::Team::new(vec![0u32; 3], threads, |n| *n += 1).unwrap();
            for round in 1..=3 {
                team.round();
                let all: Vec<u32> = (0..team.pieces()).map(|i| *team.piece(i)).collect();
                assert_eq!(all, [round; 3]);
            }
        };
        shuttle::check_random(rounds, 2000);
    }
}
