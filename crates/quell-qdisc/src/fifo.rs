//! First in, first out: `pfifo` (limit in packets), `bfifo` (limit in bytes) and `fifo`, whose two knobs are `limit` and
//! `drop` (drop each arrival with probability p).
//!
//! Source: Linux `net/sched/sch_fifo.c`: a packet is taken while the queue is below its limit, and with `bfifo` while
//! backlog plus packet stay within it.

use crate::ring::Ring;
use crate::{DropCause, Drops, Gauges, Got, Knobs, Nanos, Packet, Qdisc, Rng, qdisc::Discipline};

/// Parameters of [`Fifo`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets (default 1000, Linux's `txqueuelen`).
    pub limit_packets: u32,
    /// Bytes (default: no limit).
    pub limit_bytes: u64,
    /// Probability with which each arrival is dropped, 0..1 (default 0).
    pub drop: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit_packets: 1000,
            limit_bytes: u64::MAX,
            drop: 0.0,
        }
    }
}

/// The queue.
#[derive(Clone, Debug)]
pub struct Fifo<P> {
    params: Params,
    queue: Ring<P>,
    bytes: u64,
}

impl<P: Packet> Fifo<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            queue: Ring::new(),
            bytes: 0,
        }
    }
}

impl<P: Packet> From<Fifo<P>> for Qdisc<P> {
    fn from(q: Fifo<P>) -> Self {
        Qdisc::Fifo(q)
    }
}

impl<P: Packet> Discipline<P> for Fifo<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Nanos, packet: P, rng: &mut Rng, drops: &mut D) {
        if self.queue.len() >= self.params.limit_packets as usize
            || self.bytes + u64::from(packet.len()) > self.params.limit_bytes
        {
            return drops.drop(packet, DropCause::Overflow);
        }
        if self.params.drop > 0.0 && rng.f64() < self.params.drop {
            return drops.drop(packet, DropCause::Early);
        }
        self.bytes += u64::from(packet.len());
        self.queue.push(packet).set_enqueued(now);
    }

    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, _now: Nanos, _rng: &mut Rng, _drops: &mut D) -> Got<P> {
        match self.queue.pop() {
            Some(packet) => {
                self.bytes -= u64::from(packet.len());
                Got::Packet(packet)
            }
            None => Got::Empty,
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn gauges(&self, now: Nanos, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit_packets;
        gauges.probability = self.params.drop;
        gauges.head_age = self.queue.front().map_or(0, |p| now - p.enqueued());
    }

    fn set_knobs(&mut self, knobs: &Knobs) {
        if let Some(limit) = knobs.limit_packets {
            self.params.limit_packets = limit;
        }
        if let Some(drop) = knobs.drop {
            self.params.drop = drop;
        }
    }
}
