#![doc = include_str!("../README.md")]

pub mod header;
pub mod large;
pub mod link;
pub mod nfqueue;
pub mod pool;
pub mod report;
pub mod segment;
mod tcp;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::{firewall, live, rules, shell, steer, watch};
