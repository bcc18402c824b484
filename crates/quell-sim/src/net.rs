//! Everything between the endpoints: ports, wires, and the timers of the flows.

use quell_qdisc::{Ecn, Nanos, Packet};

use crate::heap::Heap;
use crate::packet::{Ack, Kind, Pkt};
use crate::pipe::Pipes;
use crate::port::Port;
use crate::slot::Path;
use crate::tcp::sender::Wire;

/// ACKs that stand in a queue: a packet descriptor holds only their place here.
#[derive(Clone, Debug, Default)]
pub struct AckStore {
    acks: Vec<Ack>,
    free: Vec<u32>,
}

impl AckStore {
    fn put(&mut self, ack: Ack) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.acks[place as usize] = ack;
                place
            }
            None => {
                self.acks.push(ack);
                (self.acks.len() - 1) as u32
            }
        }
    }

    /// Looks at an ACK.
    pub fn get(&self, place: u32) -> &Ack {
        &self.acks[place as usize]
    }

    /// Takes an ACK out.
    pub fn take(&mut self, place: u32) -> Ack {
        self.free.push(place);
        self.acks[place as usize]
    }
}

/// The network.
#[derive(Clone, Debug, Default)]
pub struct Net {
    /// Queues with their links: 0 is the bottleneck, then the hops, then the up link.
    pub ports: Vec<Port>,
    /// ACKs on their last wire.
    pub acks: Pipes<Ack>,
    /// Packets between queues; the class's target is a port.
    pub wires: Pipes<Pkt>,
    /// One entry per flow that waits for something, keyed by slot.
    pub timers: Heap,
    /// ACKs in queues.
    pub store: AckStore,
}

impl Net {
    /// The port whose turn is next, and when.
    #[inline]
    pub fn next_port(&self) -> (Nanos, usize) {
        let mut best = (self.ports[0].next, 0);
        for (i, port) in self.ports.iter().enumerate().skip(1) {
            if port.next < best.0 {
                best = (port.next, i);
            }
        }
        best
    }

    /// Sends the ACK that `write` writes on its way back.
    #[inline]
    pub fn send_ack(&mut self, now: Nanos, path: &Path, hash: u32, write: impl FnOnce(&mut Ack)) {
        match path.acks {
            None => write(self.acks.push(now, path.home)),
            Some((first, _)) => {
                let mut ack = Ack::default();
                write(&mut ack);
                let bytes = ack.ip_bytes() + self.ports[first as usize].overhead;
                let place = self.store.put(ack);
                let p = Pkt::new(Kind::Ack, ack.flow, hash, place, bytes, 0, Ecn::NotEct);
                *self.wires.push(now, path.turn) = p;
            }
        }
    }

    /// A packet enters a port.
    #[inline]
    pub fn enter(&mut self, now: Nanos, port: usize, p: Pkt) {
        self.ports[port].enqueue(now, p.len(), || p);
    }

    /// Forgets the ACKs that a port dropped.
    #[inline]
    pub fn forget_acks(&mut self, port: usize) {
        let dropped = &mut self.ports[port].probe.dropped_acks;
        if !dropped.is_empty() {
            self.store.free.append(dropped);
        }
    }
}

/// The first port of a flow, as its sender sees it.
pub struct Entry<'a> {
    /// The network.
    pub net: &'a mut Net,
    /// The port.
    pub port: usize,
}

impl Wire for Entry<'_> {
    #[inline(always)]
    fn send(&mut self, now: Nanos, len: u32, make: impl FnOnce() -> Pkt) {
        self.net.ports[self.port].enqueue(now, len, make);
    }
}
