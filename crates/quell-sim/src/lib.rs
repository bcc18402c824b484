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

mod agenda;
mod capture;
pub mod cc;
mod cpu;
pub mod packet;
mod pcap;
mod pipe;
pub mod prelude;
pub mod run;
pub mod scenario;
pub mod tcp;
mod wifi;
pub mod world;

mod app;
mod delay;
mod labels;
mod measure;
mod net;
mod path;
mod phy;
mod port;
mod slot;
pub mod stamps;
mod trace;

pub use app::call::heard;
pub use run::{RunOptions, Session, run};
pub use world::{Status, World, WorldBuilder};
