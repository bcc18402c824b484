//! Items of the standard library that `team.rs` uses.

pub use std::hint::spin_loop;
pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard};
pub use std::thread::{self, JoinHandle};
pub use std::time::Instant;
