//! An 802.11n cell: nodes, each with queues of its own, that share one channel.

mod build;
mod cell;
mod channel;
mod edca;
mod link;
mod rate;

pub(crate) use build::build;
pub use cell::Cell;
pub use link::AirLink;
