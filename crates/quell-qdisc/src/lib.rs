#![doc = include_str!("../README.md")]
// Convert integers by `From`, `try_from` or a function of `num`, which documents its result for
// values that do not fit.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod control;
pub mod discipline;
pub mod disciplines;
mod error;
pub mod gauges;
pub mod num;
pub mod packet;
pub mod parts;
pub mod policy;
pub mod prelude;
pub mod rate;
pub mod rng;
pub mod time;

pub use discipline::{Backlog, Discipline};
pub use disciplines::{
    Qdisc, bands, cake, cebinae, choke, cobalt, codel, drr, dualpi2, fifo, fq, fq_codel, fq_fifo,
    fq_pie, hhf, htb, hush, l4s, outside, pie, pie_ns3, red, sfb, sfq,
};
pub use error::Error;
pub use gauges::{
    Admission, ControlledKnobs, Gauges, KnobSet, Knobs, LawGauges, PolicyGauges, SubGauges,
    TinGauges,
};
pub use packet::{Acknowledgment, Dequeued, DropCause, Drops, Ecn, Labels, Packet};
pub use rng::Rng;

/// The largest Ethernet frame without VLAN tag or checksum, in bytes: `psched_mtu()` of Linux for
/// an MTU of 1500.
pub const MTU: u32 = 1514;
