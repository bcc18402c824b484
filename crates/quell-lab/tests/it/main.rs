//! The crate's integration tests in one program. `team.rs` is another: it compiles a file of the
//! library with other threads.

mod lfq;
#[cfg(target_os = "linux")]
mod planes;
mod recorded;
