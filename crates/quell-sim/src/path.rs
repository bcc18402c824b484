//! The path of a flow's packets through a world.

use quell_qdisc::time::Duration;

/// In place of a port number: the packets pass no queue.
pub const NO_PORT: u8 = u8::MAX;

/// The path of a flow's packets and of their ACKs.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// First and last port of the data; [`NO_PORT`] for datagrams that pass no queue and take the
    /// wire `acks_return_wire`.
    pub data: (u8, u8),
    /// First and last port of the ACKs; None: they pass no queue.
    pub acks: Option<(u8, u8)>,
    /// Class of the wire from the receiver to the ACKs' first port.
    pub acks_entry_wire: u16,
    /// Class of the wire on which an ACK reaches the sender.
    pub acks_return_wire: u16,
    /// Delay from the sender to the first port. Time is folded (see `world`), so the sender's
    /// events are simulated this much later than they would happen.
    pub offset: Duration,
    /// Part of the one-way delay that is not simulated on the way to the receiver, µs: before the
    /// first port and behind the last.
    pub outside_us: u32,
}
