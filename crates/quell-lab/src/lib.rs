#![doc = include_str!("../README.md")]

pub mod compare;
pub mod coupled;
pub mod env;
pub mod episode;
pub mod lfq;
pub mod team;
