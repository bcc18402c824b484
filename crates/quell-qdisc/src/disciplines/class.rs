//! A class of a discipline with classes: its queue and its counters.
//!
//! Source: Linux `net/sched/sch_generic.c`, `include/net/sch_generic.h` (`qdisc_peek_dequeued`).
//! Deviation: a packet that was taken out of a queue to read its length no longer counts in that
//! queue's limit.

use crate::discipline::{Backlog, Wants};
use crate::time::{Instant, NEVER};
use crate::{Dequeued, Discipline, Drops, Gauges, Packet, Qdisc, Rng, TinGauges, disciplines};

/// A class and its queue.
#[derive(Clone, Debug)]
pub struct Class<P> {
    queue: Qdisc<P>,
    /// The next packet to leave, taken out of the queue to read its length.
    head: Option<P>,
    counters: TinGauges,
}

impl<P: Packet> Class<P> {
    /// A class with an empty queue. `counters` has its name, and counts of 0.
    pub fn new(queue: disciplines::Params, counters: TinGauges) -> Self {
        Self {
            queue: Qdisc::new(queue),
            head: None,
            counters,
        }
    }

    /// Packets queued.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len() + usize::from(self.head.is_some())
    }

    /// True if nothing is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Packets and bytes queued.
    #[inline]
    pub fn backlog(&self) -> Backlog {
        let head = self.head.map_or(0, |p| p.len().into());
        Backlog {
            packets: self.len(),
            bytes: self.queue.bytes() + head,
        }
    }

    /// Queues an arriving packet.
    #[inline]
    pub fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, rng: &mut Rng, drops: &mut D) {
        self.counters.packets += 1;
        self.counters.bytes += u64::from(packet.len());
        let before = self.queue.len() + 1;
        self.queue.enqueue(now, packet, rng, drops);
        self.counters.drops += (before - self.queue.len()) as u64;
    }

    /// Dequeues from its queue, and counts the drops.
    #[inline]
    fn pull<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        let before = self.queue.len();
        let got = self.queue.dequeue(now, rng, drops);
        let left = self.queue.len() + usize::from(matches!(got, Dequeued::Packet(_)));
        self.counters.drops += (before - left) as u64;
        got
    }

    /// Length of the next packet to leave, bytes.
    #[inline]
    pub fn peek<D: Drops<P>>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Dequeued<u32> {
        if self.head.is_none() {
            // The head of a FIFO can be read in place, so it still counts in the limit.
            if let Qdisc::Fifo(fifo) = &self.queue {
                return fifo
                    .front()
                    .map_or(Dequeued::Empty, |p| Dequeued::Packet(p.len()));
            }
            match self.pull(now, rng, drops) {
                Dequeued::Packet(packet) => self.head = Some(packet),
                Dequeued::Empty => return Dequeued::Empty,
                Dequeued::NotBefore(t) => return Dequeued::NotBefore(t),
            }
        }
        self.head
            .map_or(Dequeued::Empty, |p| Dequeued::Packet(p.len()))
    }

    /// Removes and returns the next packet.
    #[inline]
    pub fn dequeue<D: Drops<P>>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Dequeued<P> {
        let got = match self.head.take() {
            Some(packet) => Dequeued::Packet(packet),
            None => self.pull(now, rng, drops),
        };
        if let Dequeued::Packet(packet) = &got {
            // The newest packet has the weight 1/256, as in CAKE's tins.
            let average = &mut self.counters.average_delay;
            *average = *average - *average / 256 + (now - packet.enqueued()) / 256;
            self.counters.sent_packets += 1;
            self.counters.sent_bytes += u64::from(packet.len());
        }
        got
    }

    /// Counters, with the bytes queued and the packets marked so far.
    pub fn counters(&self) -> TinGauges {
        TinGauges {
            backlog_bytes: self.backlog().bytes,
            marks: self.queue.marks(),
            ..self.counters
        }
    }

    fn gauges(&self, now: Instant) -> Gauges {
        let mut gauges = Gauges::default();
        self.queue.gauges(now, &mut gauges);
        if let Some(head) = self.head {
            gauges.head_age = now - head.enqueued();
        }
        gauges
    }
}

/// The classes of a discipline, and their total backlog.
#[derive(Clone, Debug)]
pub struct Classes<P> {
    all: Vec<Class<P>>,
    held: Backlog,
}

impl<P: Packet> Classes<P> {
    /// The given classes, which are empty.
    pub fn new(classes: impl Iterator<Item = Class<P>>) -> Self {
        Self {
            all: classes.collect(),
            held: Backlog::default(),
        }
    }

    /// The class with this index.
    #[inline]
    pub fn get(&self, at: usize) -> &Class<P> {
        &self.all[at]
    }

    /// Packets and bytes in all classes.
    #[inline]
    pub fn held(&self) -> Backlog {
        self.held
    }

    /// Runs `act` on a class and updates the total backlog.
    #[inline]
    pub fn with<R>(&mut self, at: usize, act: impl FnOnce(&mut Class<P>) -> R) -> R {
        let class = &mut self.all[at];
        let before = class.backlog();
        let result = act(class);
        let after = class.backlog();
        self.held.packets = self.held.packets + after.packets - before.packets;
        self.held.bytes = self.held.bytes + after.bytes - before.bytes;
        result
    }

    /// Adds the limits of the classes to that in `gauges`, and sets the age of the oldest head.
    pub fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        for class in &self.all {
            let of_class = class.gauges(now);
            let limit = gauges.limit_packets.saturating_add(of_class.limit_packets);
            gauges.limit_packets = limit;
            gauges.head_age = gauges.head_age.max(of_class.head_age);
        }
    }

    /// See [`Discipline::tins`].
    pub fn tins(&self) -> Vec<TinGauges> {
        self.all.iter().map(Class::counters).collect()
    }

    /// Packets marked CE so far.
    pub fn marks(&self) -> u64 {
        self.all.iter().map(|class| class.queue.marks()).sum()
    }

    /// The reason why one of the queues has failed.
    pub fn failure(&self) -> Option<&str> {
        self.all.iter().find_map(|class| class.queue.failure())
    }

    /// Time of the queues' next timer.
    #[inline]
    pub fn next_timer(&self) -> Instant {
        let timers = self.all.iter().map(|class| class.queue.next_timer());
        timers.min().unwrap_or(NEVER)
    }

    /// Runs the timers that are due.
    pub fn on_timer(&mut self, now: Instant) {
        let due = |class: &&mut Class<P>| class.queue.next_timer() <= now;
        for class in self.all.iter_mut().filter(due) {
            class.queue.on_timer(now);
        }
    }

    /// The labels, by which packets are classified, and all that the classes' queues need.
    pub fn wants(&self) -> Wants {
        let mut wants = Wants {
            labels: true,
            ..Wants::NONE
        };
        for class in &self.all {
            let of_class = class.queue.wants();
            wants.acknowledgments |= of_class.acknowledgments;
            wants.translated |= of_class.translated;
            wants.washed |= of_class.washed;
        }
        wants
    }
}

/// Labels each packet with its hash, as mark and as DSCP, and keeps the ids of dropped packets.
#[cfg(test)]
#[derive(Default)]
pub struct Owner(pub Vec<u64>);

#[cfg(test)]
impl Drops<crate::packet::TestPacket> for Owner {
    fn drop(&mut self, _now: Instant, packet: crate::packet::TestPacket, _cause: crate::DropCause) {
        self.0.push(packet.id);
    }
    fn labels(&self, packet: &crate::packet::TestPacket) -> crate::Labels {
        crate::Labels {
            dscp: packet.hash as u8,
            mark: packet.hash,
            ..crate::Labels::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::TestPacket;
    use crate::{Ecn, codel, fifo};

    #[test]
    fn a_packet_that_was_peeked_at_stays_in_the_class() {
        let mut rng = Rng::new(1, "class");
        let mut drops = Vec::new();
        for queue in [
            disciplines::Params::Fifo(fifo::Params::default()),
            disciplines::Params::Codel(codel::Params::default()),
        ] {
            let class = Class::new(queue, TinGauges::default());
            let mut classes = Classes::new(std::iter::once(class));
            for (id, len) in [(0, 700), (1, 300)] {
                let packet = TestPacket::new(id, len, 0, Ecn::NotEct);
                classes.with(0, |c| {
                    c.enqueue(Instant::from_nanos(5), packet, &mut rng, &mut drops)
                });
            }
            for _ in 0..2 {
                let next =
                    classes.with(0, |c| c.peek(Instant::from_nanos(8), &mut rng, &mut drops));
                assert_eq!(next, Dequeued::Packet(700));
                let held = classes.held();
                assert_eq!((held.packets, held.bytes), (2, 1000));
            }
            let got = classes.with(0, |c| {
                c.dequeue(Instant::from_nanos(8), &mut rng, &mut drops)
            });
            assert_eq!(got.map(|p| p.id), Dequeued::Packet(0));
            assert_eq!((classes.held().packets, classes.held().bytes), (1, 300));
            let counters = classes.tins()[0];
            let counted = (
                counters.packets,
                counters.sent_bytes,
                counters.backlog_bytes,
            );
            assert_eq!(counted, (2, 700, 300));
        }
    }
}
