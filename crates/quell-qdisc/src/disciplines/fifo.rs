//! First in, first out: `pfifo` (limit in packets), `bfifo` (limit in bytes) and `fifo`, which has
//! two knobs: `limit`, and `drop`, the probability with which each arrival is dropped.
//!
//! Source: Linux `net/sched/sch_fifo.c`: an arrival is queued if the queue is below its limit; with
//! `bfifo`, if the backlog including the packet does not exceed the limit. Lowering the limit drops
//! nothing: queued packets are still sent.

use crate::discipline::{Backlog, FastPath};
use crate::parts::ring::Ring;
use crate::time::{Duration, Instant};
use crate::{Dequeued, Discipline, DropCause, Drops, Gauges, KnobSet, Knobs, MTU, Packet, Rng};

/// Parameters of [`Fifo`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Limit in packets (default 1000, Linux's `txqueuelen`).
    pub limit_packets: u32,
    /// Limit in bytes (default: none).
    pub limit_bytes: u64,
    /// Probability with which each arrival is dropped, 0..1 (default 0).
    pub drop: f64,
    /// A full queue drops the newest packet of the flow with the most bytes, which need not be the
    /// arrival (default off). Each drop then visits every packet.
    pub selective: bool,
    /// Mark, instead of dropping, an ECN-capable arrival that `drop` selects (default off).
    pub ecn: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit_packets: 1000,
            limit_bytes: u64::MAX,
            drop: 0.0,
            selective: false,
            ecn: false,
        }
    }
}

impl Params {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.limit_packets == 0 {
            return Err("limit must be at least 1 packet");
        }
        if self.limit_bytes < u64::from(MTU) {
            return Err("limit must be at least 1514 bytes, a full packet");
        }
        if !(0.0..=1.0).contains(&self.drop) {
            return Err("drop must be between 0 and 1");
        }
        Ok(())
    }
}

/// The `fifo` queue.
#[derive(Clone, Debug)]
pub struct Fifo<P> {
    params: Params,
    queue: Ring<P>,
    bytes: u64,
    /// Packets marked.
    marks: u64,
    /// Hash and bytes of each flow: scratch space of `longest`.
    flows: Vec<(u32, u64)>,
}

impl<P: Packet> Fifo<P> {
    /// Handles `packet` when there is no room for it.
    #[cold]
    #[inline(never)]
    fn overflow<D: Drops<P>>(&mut self, now: Instant, packet: P, drops: &mut D) {
        let loser = match self.params.selective {
            true => self.longest(&packet),
            false => packet.flow_hash(),
        };
        if loser == packet.flow_hash() {
            return drops.drop(now, packet, DropCause::Overflow);
        }
        let newest = self.queue.iter().rposition(|p| p.flow_hash() == loser);
        if let Some(victim) = newest.and_then(|i| self.queue.remove(i)) {
            self.bytes -= u64::from(victim.len());
            drops.drop(now, victim, DropCause::Overflow);
        }
        // The dropped packet may be smaller than this one.
        if self.bytes + u64::from(packet.len()) > self.params.limit_bytes {
            return drops.drop(now, packet, DropCause::Overflow);
        }
        self.bytes += u64::from(packet.len());
        self.queue.push(packet).set_enqueued(now);
    }

    /// The flow that would hold the most bytes with `packet` in the queue; among equals, that of
    /// `packet`, then the first.
    fn longest(&mut self, packet: &P) -> u32 {
        self.flows.clear();
        self.flows.reserve(self.queue.len() + 1);
        self.flows
            .push((packet.flow_hash(), u64::from(packet.len())));
        for p in self.queue.iter() {
            let (hash, len) = (p.flow_hash(), u64::from(p.len()));
            match self.flows.iter_mut().find(|f| f.0 == hash) {
                Some(flow) => flow.1 += len,
                None => self.flows.push((hash, len)),
            }
        }
        let most = self.flows.iter().map(|f| f.1).max();
        let first = self.flows.iter().find(|f| Some(f.1) == most);
        first.map_or(packet.flow_hash(), |f| f.0)
    }

    /// An empty queue.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            queue: Ring::new(),
            bytes: 0,
            marks: 0,
            flows: Vec::new(),
        }
    }

    /// The next packet to leave.
    #[inline]
    pub fn front(&self) -> Option<&P> {
        self.queue.front()
    }

    /// The packets, in the order in which they leave.
    pub fn packets(&self) -> impl Iterator<Item = &P> {
        self.queue.iter()
    }

    /// Swaps the queued packets and their bytes with these.
    pub fn exchange(&mut self, queue: &mut Ring<P>, bytes: &mut u64) {
        std::mem::swap(&mut self.queue, queue);
        std::mem::swap(&mut self.bytes, bytes);
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        &self.params
    }
}

impl<P: Packet> Discipline<P> for Fifo<P> {
    #[inline(always)]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, rng: &mut Rng, drops: &mut D) {
        self.enqueue_with(now, packet.len(), || packet, rng, drops);
    }

    #[inline(always)]
    fn dequeue<D: Drops<P>>(
        &mut self,
        _now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        match self.queue.pop() {
            Some(packet) => {
                self.bytes -= u64::from(packet.len());
                Dequeued::Packet(packet)
            }
            None => Dequeued::Empty,
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

    fn marks(&self) -> u64 {
        self.marks
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit_packets;
        gauges.probability = self.params.drop;
        gauges.marks = self.marks;
        gauges.head_age = self
            .queue
            .front()
            .map_or(Duration::ZERO, |p| now - p.enqueued());
    }

    fn knobs(&self) -> KnobSet {
        KnobSet {
            drop: true,
            ..KnobSet::LIMIT
        }
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

impl<P: Packet> FastPath<P> for Fifo<P> {
    #[inline(always)]
    fn enqueue_with<D: Drops<P>>(
        &mut self,
        now: Instant,
        len: u32,
        make: impl FnOnce() -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) {
        if self.queue.len() >= self.params.limit_packets as usize
            || self.bytes + u64::from(len) > self.params.limit_bytes
        {
            self.overflow(now, make(), drops);
        } else if self.params.drop > 0.0 && rng.f64() < self.params.drop {
            let mut packet = make();
            if !(self.params.ecn && packet.mark()) {
                return drops.drop(now, packet, DropCause::Early);
            }
            self.marks += 1;
            self.bytes += u64::from(len);
            self.queue.push(packet).set_enqueued(now);
        } else {
            self.bytes += u64::from(len);
            self.queue.push(make()).set_enqueued(now);
        }
    }

    #[inline(always)]
    fn offer_run<D: Drops<P>>(
        &mut self,
        now: Instant,
        len: u32,
        count: u32,
        make: impl Fn(u32) -> P,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Option<Backlog> {
        let bytes = self.bytes + u64::from(len) * u64::from(count);
        if self.queue.len() + count as usize > self.params.limit_packets as usize
            || bytes > self.params.limit_bytes
            || self.params.drop > 0.0
        {
            return None;
        }
        self.bytes = bytes;
        for k in 0..count {
            self.queue.push(make(k)).set_enqueued(now);
        }
        Some(self.backlog())
    }

    #[inline(always)]
    fn dequeue_to<D: Drops<P>>(
        &mut self,
        _now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
        line: &mut Option<P>,
    ) -> Dequeued<()> {
        let Some(packet) = self.queue.front() else {
            return Dequeued::Empty;
        };
        self.bytes -= u64::from(packet.len());
        *line = Some(*packet);
        self.queue.pop();
        Dequeued::Packet(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use crate::packet::TestPacket;

    fn filled(params: Params, n: u64) -> (Fifo<TestPacket>, Vec<(TestPacket, DropCause)>) {
        let (mut q, mut drops) = (Fifo::new(params), Vec::new());
        let mut rng = Rng::new(1, "fifo");
        for i in 0..n {
            q.enqueue(
                Instant::from_nanos(i),
                TestPacket::new(i, 1000, 0, Ecn::Ect0),
                &mut rng,
                &mut drops,
            );
        }
        (q, drops)
    }

    fn take(q: &mut Fifo<TestPacket>) -> Dequeued<TestPacket> {
        q.dequeue(Instant::ZERO, &mut Rng::new(1, "fifo"), &mut Vec::new())
    }

    #[test]
    fn selective_drop_takes_the_newest_packet_of_the_longest_flow() {
        let params = Params {
            limit_packets: 4,
            selective: true,
            ..Params::default()
        };
        let (mut q, mut drops) = (Fifo::new(params), Vec::new());
        let mut rng = Rng::new(1, "fifo");
        // Flows 7, 7, 7, 8 fill it; then 8 arrives (7 is longest: its newest packet is dropped),
        // then 7 and 8 (both hold two: the arrival is dropped).
        for (id, flow) in [7, 7, 7, 8, 8, 7, 8].into_iter().enumerate() {
            let packet = TestPacket::new(id as u64, 1000, flow, Ecn::NotEct);
            q.enqueue(Instant::from_nanos(id as u64), packet, &mut rng, &mut drops);
        }
        let lost: Vec<_> = drops.iter().map(|(p, cause)| (p.id, *cause)).collect();
        let overflow = DropCause::Overflow;
        assert_eq!(lost, [(2, overflow), (5, overflow), (6, overflow)]);
        assert_eq!((q.len(), q.bytes()), (4, 4000));
        for id in [0, 1, 3, 4] {
            assert!(matches!(take(&mut q), Dequeued::Packet(p) if p.id == id));
        }
    }

    #[test]
    fn packets_leave_in_their_order_with_their_time_of_arrival() {
        let (mut q, _) = filled(Params::default(), 50);
        for i in 0..50 {
            match take(&mut q) {
                Dequeued::Packet(p) => {
                    assert_eq!((p.id, p.enqueued.as_nanos(), p.ecn), (i, i, Ecn::Ect0))
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((take(&mut q), q.bytes()), (Dequeued::Empty, 0));
    }

    #[test]
    fn a_limit_in_packets_is_reached_and_not_passed() {
        let (q, drops) = filled(Params::default(), 1001);
        assert_eq!((q.len(), q.bytes()), (1000, 1_000_000));
        assert_eq!((drops[0].0.id, drops[0].1), (1000, DropCause::Overflow));
    }

    #[test]
    fn a_limit_in_bytes_counts_the_arrival() {
        let bytes = |limit_bytes| Params {
            limit_packets: u32::MAX,
            limit_bytes,
            ..Params::default()
        };
        assert_eq!(filled(bytes(10_000), 20).0.len(), 10);
        assert_eq!(filled(bytes(9_999), 20).0.len(), 9);
    }

    #[test]
    fn each_arrival_is_dropped_with_the_probability_of_the_knob() {
        let (mut q, _) = filled(Params::default(), 0);
        q.set_knobs(&Knobs {
            drop: Some(0.3),
            limit_packets: Some(100_000),
            ..Knobs::default()
        });
        let (mut rng, mut drops) = (Rng::new(1, "fifo"), Vec::new());
        for i in 0..50_000 {
            q.enqueue(
                Instant::ZERO,
                TestPacket::new(i, 1000, 0, Ecn::NotEct),
                &mut rng,
                &mut drops,
            );
        }
        let share = drops.len() as f64 / 50_000.0;
        assert!((share - 0.3).abs() < 0.01, "{share}");
        assert!(drops.iter().all(|d| d.1 == DropCause::Early));
    }

    #[test]
    fn with_ecn_the_knob_marks_what_can_be_marked_and_drops_the_rest() {
        let params = Params {
            drop: 1.0,
            ecn: true,
            ..Params::default()
        };
        let (mut q, mut drops) = (Fifo::new(params), Vec::new());
        let mut rng = Rng::new(1, "fifo");
        for (id, ecn) in [(0, Ecn::Ect0), (1, Ecn::NotEct), (2, Ecn::Ect1)] {
            q.enqueue(
                Instant::ZERO,
                TestPacket::new(id, 1000, 0, ecn),
                &mut rng,
                &mut drops,
            );
        }
        let lost: Vec<_> = drops.iter().map(|(p, cause)| (p.id, *cause)).collect();
        assert_eq!(lost, [(1, DropCause::Early)]);
        assert_eq!((q.len(), q.bytes(), Discipline::marks(&q)), (2, 2000, 2));
        while let Dequeued::Packet(p) = q.dequeue(Instant::ZERO, &mut rng, &mut drops) {
            assert_eq!(p.ecn, Ecn::Ce);
        }
        // A full queue drops.
        q.params.limit_packets = 0;
        q.enqueue(
            Instant::ZERO,
            TestPacket::new(3, 1000, 0, Ecn::Ect0),
            &mut rng,
            &mut drops,
        );
        assert_eq!(drops[1].1, DropCause::Overflow);
    }

    #[test]
    fn a_run_is_as_many_single_packets_or_nothing_at_all() {
        let packet = |k: u32| TestPacket::new(k.into(), 1000, k, Ecn::NotEct);
        let limits = [(5, u64::MAX), (5, 4999), (4, u64::MAX), (5, 5000)];
        for (limit_packets, limit_bytes) in limits {
            let params = Params {
                limit_packets,
                limit_bytes,
                ..Params::default()
            };
            let (mut run, mut lost) = filled(params.clone(), 2);
            let before = run.clone();
            let (mut single, mut drops) = filled(params.clone(), 2);
            let mut rng = Rng::new(1, "fifo");
            for k in 0..3 {
                single.enqueue(Instant::from_nanos(7), packet(k), &mut rng, &mut drops);
            }
            let taken = run.offer_run(Instant::from_nanos(7), 1000, 3, packet, &mut rng, &mut lost);
            assert_eq!((taken.is_some(), lost.len()), (drops.is_empty(), 0));
            let expected = if drops.is_empty() { single } else { before };
            assert_eq!(run.backlog(), expected.backlog());
            assert!(run.queue.iter().eq(expected.queue.iter()));
        }
        let (mut random, mut lost) = filled(Params::default(), 0);
        random.set_knobs(&Knobs {
            drop: Some(1e-9),
            ..Knobs::default()
        });
        let taken = random.offer_run(
            Instant::ZERO,
            1000,
            1,
            packet,
            &mut Rng::new(1, "fifo"),
            &mut lost,
        );
        assert_eq!(taken, None, "each is drawn for");
    }

    #[test]
    fn a_lowered_limit_lets_what_is_queued_leave_by_the_link() {
        let (mut q, mut drops) = filled(Params::default(), 10);
        q.set_knobs(&Knobs {
            limit_packets: Some(5),
            ..Knobs::default()
        });
        assert_eq!((q.len(), drops.len()), (10, 0));
        let p = TestPacket::new(10, 1000, 0, Ecn::NotEct);
        q.enqueue(Instant::ZERO, p, &mut Rng::new(1, "fifo"), &mut drops);
        assert_eq!((q.len(), drops.len()), (10, 1));
    }

    #[test]
    fn the_gauges_show_limit_knob_and_the_age_of_the_head() {
        let (q, _) = filled(Params::default(), 10);
        let mut g = Gauges::default();
        q.gauges(Instant::from_nanos(100), &mut g);
        assert_eq!(
            (g.limit_packets, g.probability, g.head_age),
            (1000, 0.0, Duration::from_nanos(100))
        );
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let p = Params {
            drop: f64::NAN,
            ..Params::default()
        };
        assert_eq!(p.check(), Err("drop must be between 0 and 1"));
    }
}
