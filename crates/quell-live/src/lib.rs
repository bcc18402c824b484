#![doc = include_str!("../README.md")]
//!
//! The queue on real packets. [`header`], [`segment`], [`large`], [`nfqueue`] and [`link`] are pure: bytes and times in, bytes and
//! times out. What calls the system lies in `linux`, which other systems do not build.

pub mod header;
pub mod large;
pub mod link;
pub mod nfqueue;
pub mod pool;
pub mod report;
pub mod segment;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::{live, rules, shell};
