//! The data plane: the link in virtual time, and the loops that drive it on real interfaces.

pub mod link;
pub mod nfqueue;
pub mod report;
pub mod talkers;

#[cfg(target_os = "linux")]
pub mod backend;
#[cfg(target_os = "linux")]
pub mod exclusive;
#[cfg(target_os = "linux")]
pub mod learning;
#[cfg(target_os = "linux")]
pub mod pace;
#[cfg(target_os = "linux")]
pub mod passing;
#[cfg(target_os = "linux")]
pub mod prober;
#[cfg(target_os = "linux")]
pub mod shared;
#[cfg(target_os = "linux")]
pub mod worker;
