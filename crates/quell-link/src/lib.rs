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

pub mod aim;
pub mod bottleneck;
pub mod dscp;
pub mod error;
pub mod field;
pub mod file;
pub mod foresight;
pub mod hist;
pub mod line;
pub mod meter;
pub mod passive;
pub mod prelude;
pub mod qoo;
pub mod queue;
pub mod record;
pub mod server;
pub mod summary;
pub mod trace;
pub mod units;
pub mod words;

pub use bottleneck::Bottleneck;
pub use error::Error;
pub use hist::Hist;
pub use queue::ManagedQueue;
pub use words::Queue;
