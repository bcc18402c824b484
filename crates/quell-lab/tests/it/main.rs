//! The crate's integration tests in one program. `tests/team.rs` is a program of its own: it
//! compiles a file of the library with other threads.

mod lfq;
#[cfg(target_os = "linux")]
mod planes;
mod recorded;
