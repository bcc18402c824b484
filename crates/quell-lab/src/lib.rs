#![doc = include_str!("../README.md")]
// Integers are converted by `From`, `try_from` or a function of `quell_qdisc::num`, whose name says
// what happens to a value that does not fit.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod compare;
pub mod coupled;
pub mod env;
pub mod episode;
pub mod lfq;
mod sync;
pub mod team;
#[cfg(test)]
mod team_tests;
