//! DRR: deficit round robin over classes, each a FIFO.
//!
//! Sources: Shreedhar and Varghese, "Efficient fair queuing using deficit round robin" (1995);
//! Linux 7.x `net/sched/sch_drr.c`, tc-drr(8). Deviations:
//! - in Linux, filters assign packets to classes; here a hash of the flow does, as
//!   `tc filter ... flow hash keys src,dst,proto,proto-src,proto-dst divisor N` would: with few
//!   flows, each has its own class;
//! - all classes have the same quantum and the FIFO that `tc` makes for them.

use crate::parts::flows::{FlowList, Flows};
use crate::time::Instant;
use crate::{Dequeued, Discipline, DropCause, Drops, Gauges, MTU, Packet, Rng};

/// Parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Classes, 1 to 65536 (default 1024).
    pub classes: u32,
    /// Bytes of each class per round (default 1514, one full-size packet).
    pub quantum: u32,
    /// Packets of each class: the device's `txqueuelen` (default 1000).
    pub limit: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            classes: 1024,
            quantum: MTU,
            limit: 1000,
        }
    }
}

impl Params {
    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.classes == 0 || self.classes > 65_536 {
            return Err("classes must be 1 to 65536");
        }
        if self.quantum == 0 || self.quantum > 1 << 20 {
            return Err("quantum must be 1 to 1048576 bytes");
        }
        Ok(())
    }
}

/// The `drr` queue.
#[derive(Clone, Debug)]
pub struct Drr<P> {
    params: Params,
    classes: Flows<P>,
}

impl<P: Packet> Drr<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        Self {
            classes: Flows::new(params.classes),
            params,
        }
    }
}

impl<P: Packet> Discipline<P> for Drr<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, _rng: &mut Rng, drops: &mut D) {
        let classes = &mut self.classes;
        let class = classes.flow_of(classes.scale(packet.flow_hash()));
        if classes.get(class).packets() >= self.params.limit {
            return drops.drop(now, packet, DropCause::Overflow);
        }
        if classes.get(class).list() == FlowList::Off {
            classes.get_mut(class).deficit = self.params.quantum.cast_signed();
            classes.move_to(class, FlowList::Old);
        }
        classes.push(class, packet).set_enqueued(now);
    }

    /// A class sends while its head fits its credit; then it gets a quantum and moves to the end of
    /// the round.
    #[inline]
    fn dequeue<D: Drops<P>>(
        &mut self,
        _now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        let classes = &mut self.classes;
        while let Some(class) = classes.first(FlowList::Old) {
            let head = (classes.front(class).map_or(0, Packet::len)).cast_signed();
            let deficit = &mut classes.get_mut(class).deficit;
            if head > *deficit {
                *deficit += self.params.quantum.cast_signed();
                classes.move_to(class, FlowList::Old);
                continue;
            }
            *deficit -= head;
            let packet = classes.pop(class);
            if classes.get(class).packets() == 0 {
                classes.unlink(class);
            }
            return packet.into();
        }
        Dequeued::Empty
    }

    #[inline]
    fn len(&self) -> usize {
        self.classes.len()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.classes.bytes()
    }

    /// The limit is that of all classes together.
    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit.saturating_mul(self.params.classes);
        gauges.head_age = self.classes.head_age(now);
    }

    fn flows(&self) -> Option<&Flows<P>> {
        Some(&self.classes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use crate::packet::TestPacket;

    struct Bed {
        q: Drr<TestPacket>,
        rng: Rng,
        dropped: Vec<(TestPacket, DropCause)>,
    }

    impl Bed {
        fn new(params: Params) -> Self {
            assert_eq!(params.check(), Ok(()));
            Self {
                q: Drr::new(params),
                rng: Rng::new(1, "drr"),
                dropped: Vec::new(),
            }
        }
        /// Offers `n` packets of a flow; `class` (0 to 3) is the upper two bits of its hash.
        fn put(&mut self, class: u32, n: u64, len: u32) {
            for id in 0..n {
                let packet = TestPacket::new(id, len, class << 30, Ecn::NotEct);
                self.q
                    .enqueue(Instant::ZERO, packet, &mut self.rng, &mut self.dropped);
            }
        }
        fn take(&mut self, n: usize) -> Vec<u32> {
            let mut next = || match self
                .q
                .dequeue(Instant::ZERO, &mut self.rng, &mut self.dropped)
            {
                Dequeued::Packet(packet) => Some(packet.hash >> 30),
                _ => None,
            };
            (0..n).map_while(|_| next()).collect()
        }
    }

    #[test]
    fn classes_share_by_bytes() {
        let mut bed = Bed::new(Params::default());
        bed.put(0, 100, 1500);
        bed.put(1, 100, 500);
        let served = bed.take(80);
        let of = |class| served.iter().filter(|c| **c == class).count() as i32;
        assert!((of(0) - 20).abs() <= 1 && (of(1) - 60).abs() <= 1);
    }

    #[test]
    fn a_class_with_a_quantum_of_less_than_a_packet_waits_for_several_turns() {
        let mut bed = Bed::new(Params {
            quantum: 600,
            ..Params::default()
        });
        bed.put(0, 3, 1500);
        bed.put(1, 9, 500);
        // Credits of 600 a turn: the first packet of 1500 goes in the third.
        assert_eq!(bed.take(4), [1, 1, 0, 1]);
    }

    #[test]
    fn a_class_joins_at_the_end_with_a_quantum_and_leaves_when_empty() {
        let mut bed = Bed::new(Params::default());
        bed.put(0, 3, 1514);
        bed.put(1, 1, 1514);
        assert_eq!(bed.take(2), [0, 1]);
        bed.put(1, 1, 1514);
        assert_eq!(bed.take(4), [0, 1, 0]);
        assert!(bed.q.classes.first(FlowList::Old).is_none());
    }

    #[test]
    fn each_class_has_the_limit() {
        let mut bed = Bed::new(Params {
            limit: 5,
            ..Params::default()
        });
        bed.put(0, 7, 1000);
        bed.put(1, 5, 1000);
        assert_eq!((bed.dropped.len(), bed.q.len()), (2, 10));
    }

    #[test]
    fn flows_of_one_class_share_its_fifo() {
        let mut bed = Bed::new(Params {
            classes: 1,
            ..Params::default()
        });
        bed.put(0, 2, 1000);
        bed.put(3, 2, 1000);
        assert_eq!(bed.take(4), [0, 0, 3, 3]);
    }
}
