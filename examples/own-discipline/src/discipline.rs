//! A FIFO with a limit on delay: a packet that has waited longer is dropped at the head, when the
//! link asks for the next one.

use std::collections::VecDeque;

use quell_qdisc::prelude::*;

/// The queue, for packets of any kind.
#[derive(Clone, Debug)]
pub struct DropHead<P> {
    most_delay: Duration,
    most_packets: usize,
    packets: VecDeque<P>,
    bytes: u64,
}

impl<P> DropHead<P> {
    /// An empty queue that drops packets which have waited longer than `most_delay`.
    pub fn new(most_delay: Duration) -> Self {
        Self {
            most_delay,
            most_packets: 1000,
            packets: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<P: Packet> Discipline<P> for DropHead<P> {
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, mut packet: P, _: &mut Rng, drops: &mut D) {
        if self.packets.len() == self.most_packets {
            return drops.drop(now, packet, DropCause::Overflow);
        }
        packet.set_enqueued(now);
        self.bytes += u64::from(packet.len());
        self.packets.push_back(packet);
    }

    fn dequeue<D: Drops<P>>(&mut self, now: Instant, _: &mut Rng, drops: &mut D) -> Dequeued<P> {
        while let Some(packet) = self.packets.pop_front() {
            self.bytes -= u64::from(packet.len());
            // The last packet is sent regardless of its age: dropping it would leave the link idle.
            if now - packet.enqueued() <= self.most_delay || self.packets.is_empty() {
                return Dequeued::Packet(packet);
            }
            drops.drop(now, packet, DropCause::Early);
        }
        Dequeued::Empty
    }

    fn len(&self) -> usize {
        self.packets.len()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
