#![doc = include_str!("../README.md")]

pub mod compare;
pub mod coupled;
pub mod dqn;
pub mod env;
pub mod episode;
pub mod lfq;
mod sync;
pub mod team;
#[cfg(test)]
mod team_tests;
