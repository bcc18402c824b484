#![doc = include_str!("../README.md")]

pub mod echo;
pub mod exposition;
pub mod header;
pub mod large;
pub mod link;
pub mod nfqueue;
pub mod pool;
pub mod report;
pub mod segment;
pub mod talkers;
mod tcp;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::{attach, firewall, live, rules, shell, state, steer, watch};
