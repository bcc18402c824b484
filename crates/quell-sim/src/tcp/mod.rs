//! TCP as Linux has it, by segments of one MSS. A sender and a receiver know nothing of queues: the world hands them what
//! arrives and asks when they want to be called again.

pub mod output;
pub mod rack;
pub mod rate;
pub mod receiver;
pub mod recovery;
pub mod rtt;
pub mod sack;
pub mod segments;
pub mod sender;
pub mod timers;

pub use receiver::Receiver;
pub use sender::Sender;
