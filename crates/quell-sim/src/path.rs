//! The way of a flow's packets through a world.

use quell_qdisc::Nanos;

/// In place of a port: packets meet no queue.
pub const NO_PORT: u8 = u8::MAX;

/// The way of a flow's packets and of the ACKs that come back.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// First and last port of the data; [`NO_PORT`] for datagrams that meet no queue: they take the
    /// wire `home`.
    pub data: (u8, u8),
    /// First and last port of the ACKs; None: they meet no queue.
    pub acks: Option<(u8, u8)>,
    /// Class of the wire from the receiver to the ACKs' first port.
    pub turn: u16,
    /// Class of the wire on which an ACK reaches the sender.
    pub home: u16,
    /// From the sender's clock to that of the first port: what folding shifted.
    pub offset: Nanos,
    /// What a datagram or segment spends outside of queues and of links before the last, µs.
    pub outside_us: u32,
}
