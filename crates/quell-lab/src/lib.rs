#![doc = include_str!("../README.md")]
//!
//! Experiments on the simulator, through its public interface alone: environments for learners, and what the published systems
//! that learn are trained by.

pub mod coupled;
pub mod env;
pub mod episode;
pub mod lfq;
