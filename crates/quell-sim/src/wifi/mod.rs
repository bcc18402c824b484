//! An 802.11n cell: nodes with queues of their own that share one channel.

mod build;
mod cell;
mod channel;
mod edca;
mod link;
pub mod phy;
mod rate;

pub(crate) use build::build;
pub use cell::Cell;
pub use link::AirLink;
