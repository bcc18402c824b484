//! Flows of the fair queues: buckets that a hash picks, one FIFO of packets per flow, and the two
//! lists of a deficit round robin, new flows first.
//!
//! Sources: RFC 8290, section 4.1 and 4.2; Linux `net/sched/sch_fq_codel.c`, whose scheduler
//! `sch_fq_pie.c` and `sch_fq.c` repeat. The packets of all flows are in one slab and linked by
//! index, so nothing is allocated per packet. A flow is created by the first packet of its bucket.
//! So a queue of 1024 empty buckets is cloned by copying 4 KB, and a walk over the flows (for the
//! longest one, or for a timer) visits only flows ever used.
//!
//! A discipline keeps its own state per flow (such as CoDel's variables or a limit) in a separate
//! vector, indexed by the flow, whose index never changes: see [`of_flow`].

use crate::num;
use crate::time::{Duration, Instant};
use crate::{Admission, Packet, SubGauges};

/// Index of a flow in [`Flows`]; flows are numbered in the order of their first packets.
pub type FlowId = u32;

const NONE: u32 = u32::MAX;

/// Bytes that a queued packet counts beyond its length where an option limits memory. Linux counts
/// `truesize` (the buffer, its descriptor and rounding): 2304 bytes for a packet of 1514 bytes.
pub const PACKET_MEMORY: u64 = 790;

/// The list that a flow waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum FlowList {
    /// No list: the flow gets no turn.
    #[default]
    Off,
    /// Flows that have just become active; served first.
    New,
    /// Flows in the rotation.
    Old,
    /// Empty flows whose law is not yet at rest (in CAKE).
    Decaying,
}

/// One flow: its FIFO, its place in a list, its credit. 32 bytes, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct Flow {
    head: u32,
    tail: u32,
    packets: u32,
    next: u32,
    prev: u32,
    /// Bytes that the flow may still send in this round.
    pub deficit: i32,
    list: FlowList,
}

const _: () = assert!(size_of::<Flow>() == 32);

impl Flow {
    /// Packets queued.
    #[inline]
    pub fn packets(&self) -> u32 {
        self.packets
    }
    /// The list that the flow waits in.
    #[inline]
    pub fn list(&self) -> FlowList {
        self.list
    }
}

/// A discipline's state of a flow, in a vector that grows as flows appear.
#[inline]
pub fn of_flow<S: Default>(states: &mut Vec<S>, flow: FlowId) -> &mut S {
    #[cold]
    fn grow<S: Default>(states: &mut Vec<S>, flow: usize) {
        states.resize_with(flow + 1, S::default);
    }
    let flow = flow as usize;
    if flow >= states.len() {
        grow(states, flow);
    }
    &mut states[flow]
}

/// A packet and the index of the next node in its FIFO or in the free list.
#[derive(Clone, Copy, Debug)]
struct Node<P> {
    packet: P,
    next: u32,
}

/// Position of a packet in its flow's FIFO.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    before: u32,
    at: u32,
}

/// Buckets, flows, packets and lists.
#[derive(Clone, Debug)]
pub struct Flows<P> {
    buckets: Vec<u32>,
    flows: Vec<Flow>,
    /// Bytes queued in each flow. They are in a vector of their own because the search for the flow
    /// with the most reads them all.
    backlogs: Vec<u32>,
    slab: Vec<Node<P>>,
    free: u32,
    /// The first flow of each list, by [`FlowList`]; that of `Off` stays empty. Lists are rings, so
    /// that the first flow moves to the end without changes to its neighbours.
    firsts: [FlowId; 4],
    packets: usize,
    bytes: u64,
}

impl<P: Packet> Flows<P> {
    /// Creates this many empty buckets (at least one).
    pub fn new(buckets: u32) -> Self {
        Self {
            buckets: vec![NONE; buckets.max(1) as usize],
            flows: Vec::new(),
            backlogs: Vec::new(),
            slab: Vec::new(),
            free: NONE,
            firsts: [NONE; 4],
            packets: 0,
            bytes: 0,
        }
    }

    /// The bucket of a hash, by multiplication as in Linux's `reciprocal_scale`.
    #[inline]
    pub fn scale(&self, hash: u32) -> u32 {
        ((u64::from(hash) * self.buckets.len() as u64) >> 32) as u32
    }

    /// The flow of a bucket, which is created at its first use.
    #[inline]
    pub fn flow_of(&mut self, bucket: u32) -> FlowId {
        let id = self.buckets[bucket as usize];
        if id != NONE {
            return id;
        }
        self.first_use(bucket)
    }

    #[cold]
    fn first_use(&mut self, bucket: u32) -> FlowId {
        let id = num::count(self.flows.len());
        self.buckets[bucket as usize] = id;
        self.backlogs.push(0);
        self.flows.push(Flow {
            head: NONE,
            tail: NONE,
            packets: 0,
            next: NONE,
            prev: NONE,
            deficit: 0,
            list: FlowList::Off,
        });
        id
    }

    /// The flow of a bucket, if it was ever used.
    #[inline]
    pub fn used(&self, bucket: u32) -> Option<FlowId> {
        let id = self.buckets[bucket as usize];
        (id != NONE).then_some(id)
    }

    /// The flow that a packet of this bucket will join.
    pub fn admit(&mut self, bucket: u32) -> Admission {
        let known = self.flows.len();
        let flow = self.flow_of(bucket);
        Admission {
            sub_queue: flow as usize,
            fresh: self.flows.len() > known,
        }
    }

    /// Flows ever used.
    #[inline]
    pub fn count(&self) -> usize {
        self.flows.len()
    }

    /// Packets queued in a flow; 0 for one that does not exist.
    #[inline]
    pub fn packets_of(&self, flow: usize) -> u32 {
        self.flows.get(flow).map_or(0, Flow::packets)
    }

    /// Readings of a flow that do not depend on the discipline.
    pub fn gauges(&self, now: Instant, flow: usize) -> Option<SubGauges> {
        let f = self.flows.get(flow)?;
        let head = self.front(num::count(flow));
        Some(SubGauges {
            backlog_packets: f.packets,
            backlog_bytes: self.backlogs[flow].into(),
            head_age: head.map_or(Duration::ZERO, |p| {
                Duration::from_nanos(now.saturating_since(p.enqueued()).as_nanos())
            }),
            ..SubGauges::default()
        })
    }

    /// The flow with this index.
    #[inline]
    pub fn get(&self, flow: FlowId) -> &Flow {
        &self.flows[flow as usize]
    }

    /// The flow with this index, mutable.
    #[inline]
    pub fn get_mut(&mut self, flow: FlowId) -> &mut Flow {
        &mut self.flows[flow as usize]
    }

    /// Every flow ever used, in the order of first use.
    pub fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter()
    }

    /// Bytes queued in a flow.
    #[inline]
    pub fn backlog(&self, flow: FlowId) -> u32 {
        self.backlogs[flow as usize]
    }

    /// Bytes queued in every flow ever used.
    pub fn backlogs(&self) -> &[u32] {
        &self.backlogs
    }

    /// Packets queued in all flows.
    #[inline]
    pub fn len(&self) -> usize {
        self.packets
    }

    /// True if no flow has a packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Bytes queued in all flows.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory that the queued packets take, as Linux counts it.
    #[inline]
    pub fn memory(&self) -> u64 {
        self.bytes + self.packets as u64 * PACKET_MEMORY
    }

    /// Memory with one more packet.
    #[inline]
    pub fn memory_with(&self, packet: &P) -> u64 {
        self.memory() + u64::from(packet.len()) + PACKET_MEMORY
    }

    /// Appends a packet to a flow's FIFO. To change a field of the packet, change it through the
    /// returned reference: a narrow store to a copy that is then moved with wide loads would stall
    /// the processor.
    #[inline(always)]
    pub fn push(&mut self, flow: FlowId, packet: P) -> &mut P {
        let len = packet.len();
        let at = self.free;
        let at = if at == NONE {
            self.slab.push(Node { packet, next: NONE });
            num::count(self.slab.len()) - 1
        } else {
            let node = &mut self.slab[at as usize];
            self.free = node.next;
            node.packet = packet;
            at
        };
        let f = &mut self.flows[flow as usize];
        if f.packets == 0 {
            f.head = at;
        } else {
            self.slab[f.tail as usize].next = at;
        }
        f.tail = at;
        f.packets += 1;
        self.backlogs[flow as usize] += len;
        self.packets += 1;
        self.bytes += u64::from(len);
        &mut self.slab[at as usize].packet
    }

    /// Takes the packet at the head of a flow's FIFO.
    #[inline(always)]
    pub fn pop(&mut self, flow: FlowId) -> Option<P> {
        (self.flows[flow as usize].packets > 0).then(|| self.take(flow))
    }

    /// Takes the packet at the head of the FIFO of a flow that has one.
    #[inline(always)]
    pub fn take(&mut self, flow: FlowId) -> P {
        let f = &mut self.flows[flow as usize];
        debug_assert!(f.packets > 0);
        let at = f.head;
        let node = &mut self.slab[at as usize];
        let packet = node.packet;
        f.head = std::mem::replace(&mut node.next, self.free);
        self.free = at;
        f.packets -= 1;
        self.backlogs[flow as usize] -= packet.len();
        self.packets -= 1;
        self.bytes -= u64::from(packet.len());
        packet
    }

    /// The packets of a flow from its head on, each with its place, which is valid until the flow
    /// changes.
    pub fn packets_in(&self, flow: FlowId) -> impl Iterator<Item = (Place, &P)> {
        let f = &self.flows[flow as usize];
        let mut at = Place {
            before: NONE,
            at: f.head,
        };
        (0..f.packets).map(move |_| {
            let (here, node) = (at, &self.slab[at.at as usize]);
            at = Place {
                before: here.at,
                at: node.next,
            };
            (here, &node.packet)
        })
    }

    /// Takes a packet out of the middle of a flow's FIFO.
    pub fn remove(&mut self, flow: FlowId, place: Place) -> P {
        let f = &mut self.flows[flow as usize];
        let node = &mut self.slab[place.at as usize];
        let packet = node.packet;
        let next = std::mem::replace(&mut node.next, self.free);
        self.free = place.at;
        if place.before == NONE {
            f.head = next;
        } else {
            self.slab[place.before as usize].next = next;
        }
        if f.tail == place.at {
            f.tail = place.before;
        }
        f.packets -= 1;
        self.backlogs[flow as usize] -= packet.len();
        self.packets -= 1;
        self.bytes -= u64::from(packet.len());
        packet
    }

    /// The packet at the head of a flow's FIFO.
    #[inline]
    pub fn front(&self, flow: FlowId) -> Option<&P> {
        let f = &self.flows[flow as usize];
        (f.packets > 0).then(|| &self.slab[f.head as usize].packet)
    }

    /// The packet at the head of a flow's FIFO, mutable.
    #[inline]
    pub fn front_mut(&mut self, flow: FlowId) -> Option<&mut P> {
        let f = &self.flows[flow as usize];
        (f.packets > 0).then(|| &mut self.slab[f.head as usize].packet)
    }

    /// The flow with the most bytes queued, the first of equals; `None` before the first packet
    /// ever.
    pub fn fattest(&self) -> Option<FlowId> {
        // Two simple passes, which vectorise.
        let most = self.backlogs.iter().copied().max()?;
        let flow = self.backlogs.iter().position(|&bytes| bytes == most)?;
        Some(num::count(flow))
    }

    /// The longest waiting time among the heads of all flows; 0 if nothing is queued.
    pub fn head_age(&self, now: Instant) -> Duration {
        self.flows
            .iter()
            .filter(|f| f.packets > 0)
            .map(|f| now.saturating_since(self.slab[f.head as usize].packet.enqueued()))
            .max()
            .unwrap_or_default()
    }

    /// The first flow of a list.
    #[inline]
    pub fn first(&self, list: FlowList) -> Option<FlowId> {
        let first = self.firsts[list as usize];
        (first != NONE).then_some(first)
    }

    /// Takes a flow out of its list, if it is in one.
    #[inline]
    pub fn unlink(&mut self, flow: FlowId) {
        let Flow {
            list, prev, next, ..
        } = self.flows[flow as usize];
        if list == FlowList::Off {
            return;
        }
        self.flows[flow as usize].list = FlowList::Off;
        self.flows[prev as usize].next = next;
        self.flows[next as usize].prev = prev;
        let first = &mut self.firsts[list as usize];
        if next == flow {
            *first = NONE;
        } else if *first == flow {
            *first = next;
        }
    }

    /// Moves a flow to the end of a list.
    #[inline]
    pub fn move_to(&mut self, flow: FlowId, list: FlowList) {
        if self.firsts[list as usize] == flow {
            self.firsts[list as usize] = self.flows[flow as usize].next;
            return;
        }
        self.unlink(flow);
        if list == FlowList::Off {
            return;
        }
        let first = self.firsts[list as usize];
        let (prev, next) = if first == NONE {
            self.firsts[list as usize] = flow;
            (flow, flow)
        } else {
            let last = std::mem::replace(&mut self.flows[first as usize].prev, flow);
            self.flows[last as usize].next = flow;
            (last, first)
        };
        let f = &mut self.flows[flow as usize];
        (f.prev, f.next, f.list) = (prev, next, list);
    }

    /// Activates a flow at a packet's arrival: a flow in no list becomes a new one with a credit of
    /// one quantum (RFC 8290, section 4.1).
    #[inline]
    pub fn activate(&mut self, flow: FlowId, quantum: u32) {
        let f = &mut self.flows[flow as usize];
        if f.list == FlowList::Off {
            f.deficit = quantum.cast_signed();
            self.move_to(flow, FlowList::New);
        }
    }

    /// The flow whose turn it is: new flows before old ones; one without credit gets a quantum and
    /// goes to the end of the old ones (RFC 8290, section 4.2). `None` if both lists are empty.
    #[inline]
    pub fn next_turn(&mut self, quantum: u32) -> Option<FlowId> {
        loop {
            let flow = self
                .first(FlowList::New)
                .or_else(|| self.first(FlowList::Old))?;
            let f = &mut self.flows[flow as usize];
            if f.deficit > 0 {
                return Some(flow);
            }
            f.deficit += quantum.cast_signed();
            self.move_to(flow, FlowList::Old);
        }
    }

    /// Handles a flow that is empty at its turn. A new flow first moves to the old ones, if there
    /// are any, so that a flow which sends one packet at a time cannot starve them (RFC 8290,
    /// section 4.2); an old flow leaves the lists.
    #[inline]
    pub fn found_empty(&mut self, flow: FlowId) {
        let pass = self.get(flow).list == FlowList::New && self.first(FlowList::Old).is_some();
        self.move_to(flow, if pass { FlowList::Old } else { FlowList::Off });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Ecn, TestPacket};

    fn packet(id: u64, len: u32) -> TestPacket {
        TestPacket::new(id, len, 0, Ecn::NotEct)
    }

    #[test]
    fn a_flow_is_a_fifo_and_the_slab_reuses_its_places() {
        let mut f: Flows<TestPacket> = Flows::new(8);
        let (a, b) = (f.flow_of(3), f.flow_of(5));
        for id in 0..4 {
            f.push(if id % 2 == 0 { a } else { b }, packet(id, 100));
        }
        assert_eq!((f.len(), f.bytes()), (4, 400));
        assert_eq!(f.pop(a).map(|p| p.id), Some(0));
        f.push(a, packet(4, 100));
        assert_eq!(f.slab.len(), 4, "the freed place is taken again");
        assert_eq!(f.pop(a).map(|p| p.id), Some(2));
        assert_eq!(f.pop(a).map(|p| p.id), Some(4));
        assert_eq!(f.pop(a), None);
        assert_eq!(f.get(b).packets(), 2);
    }

    #[test]
    fn buckets_are_scaled_from_the_high_bits_of_the_hash() {
        let f: Flows<TestPacket> = Flows::new(1000);
        assert_eq!(f.scale(0), 0);
        assert_eq!(f.scale(u32::MAX), 999);
        assert_eq!(f.scale(1 << 31), 500);
    }

    #[test]
    fn unlinking_from_the_middle_keeps_the_others_in_order() {
        let mut f: Flows<TestPacket> = Flows::new(8);
        for b in 0..4 {
            let id = f.flow_of(b);
            f.move_to(id, FlowList::Old);
        }
        f.unlink(1);
        f.move_to(0, FlowList::Old);
        let mut order = Vec::new();
        while let Some(id) = f.first(FlowList::Old) {
            order.push(id);
            f.unlink(id);
        }
        assert_eq!(order, [2, 3, 0]);
        assert_eq!(f.firsts, [NONE; 4]);
    }

    #[test]
    fn packets_are_removed_from_anywhere_and_the_others_keep_their_order() {
        for gone in 0..4u64 {
            let mut f: Flows<TestPacket> = Flows::new(8);
            let flow = f.flow_of(3);
            for id in 0..4 {
                f.push(flow, TestPacket::new(id, 100, 0, Ecn::NotEct));
            }
            let found = f.packets_in(flow).find(|(_, p)| p.id == gone);
            let place = found.map(|(place, _)| place).expect("four packets");
            assert_eq!(f.remove(flow, place).id, gone);
            f.push(flow, TestPacket::new(4, 100, 0, Ecn::NotEct));
            assert_eq!((f.len(), f.bytes(), f.backlog(flow)), (4, 400, 400));
            let left: Vec<u64> = std::iter::from_fn(|| f.pop(flow)).map(|p| p.id).collect();
            let kept: Vec<u64> = (0..5).filter(|id| *id != gone).collect();
            assert_eq!(left, kept);
        }
    }

    #[test]
    fn an_empty_queue_clones_small() {
        let f: Flows<TestPacket> = Flows::new(1024);
        assert!(f.flows.is_empty() && f.slab.is_empty());
        assert_eq!(f.buckets.len() * size_of::<u32>(), 4096);
    }
}
