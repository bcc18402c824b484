//! The crate's integration tests in one program.

mod flood;
mod fuzz;
mod random;
#[cfg(all(target_os = "linux", target_endian = "little"))]
mod watch;
