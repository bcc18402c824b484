//! What the simulator and the live plane share: units, queue words, link rates, histograms and result records.

pub mod error;
pub mod hist;
pub mod meter;
pub mod record;
pub mod server;
pub mod trace;
pub mod units;
pub mod words;

pub use error::Error;
pub use hist::Hist;
pub use words::Queue;
