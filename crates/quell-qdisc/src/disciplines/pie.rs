//! PIE: RFC 8033 as in Linux 7.2 (`net/sched/sch_pie.c`), a FIFO with the law of
//! [`parts::pie`](crate::parts::pie), where the deviations are listed.

use crate::discipline::{Backlog, FastPath, offer_each};
use crate::parts::ring::Ring;
use crate::time::{Duration, Instant};
use crate::{Dequeued, Discipline, DropCause, Drops, Gauges, KnobSet, Knobs, Packet, Rng};

pub use crate::parts::pie::{FIRST_UPDATE, MAX_BURST, MAX_PROB, Params, Vars};

/// One FIFO with the law at its tail: `tc`'s `pie`.
#[derive(Clone, Debug)]
pub struct Pie<P> {
    params: Params,
    vars: Vars,
    marks: u64,
    next_update: Instant,
    ring: Ring<P>,
    bytes: u64,
}

impl<P: Packet> Pie<P> {
    /// An empty queue, created at time 0.
    pub fn new(params: Params) -> Self {
        Self::starting_at(params, Instant::ZERO)
    }

    /// An empty queue, created at `start`: its first update is half a second later.
    pub fn starting_at(params: Params, start: Instant) -> Self {
        Self {
            params,
            vars: Vars::default(),
            marks: 0,
            next_update: start + FIRST_UPDATE,
            ring: Ring::new(),
            bytes: 0,
        }
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The law's state.
    pub fn vars(&self) -> &Vars {
        &self.vars
    }

    /// Marks or drops an arrival that the law has chosen.
    #[inline(never)]
    fn chosen<D: Drops<P>>(&mut self, now: Instant, mut packet: P, drops: &mut D) {
        if !(self.vars.may_mark(&self.params) && packet.mark()) {
            self.vars.accu_prob = 0;
            let cause = if self.params.ecn {
                DropCause::Forced
            } else {
                DropCause::Early
            };
            return drops.drop(now, packet, cause);
        }
        self.marks += 1;
        self.bytes += u64::from(packet.len());
        self.ring.push(packet).set_enqueued(now);
    }
}

impl<P: Packet> Discipline<P> for Pie<P> {
    #[inline(always)]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, rng: &mut Rng, drops: &mut D) {
        self.enqueue_with(now, packet.len(), || packet, rng, drops);
    }

    #[inline(always)]
    fn dequeue<D: Drops<P>>(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        let Some(packet) = self.ring.pop() else {
            return Dequeued::Empty;
        };
        self.bytes -= u64::from(packet.len());
        self.vars.process_dequeue(
            &self.params,
            now,
            packet.enqueued(),
            packet.len(),
            self.bytes,
        );
        Dequeued::Packet(packet)
    }

    #[inline]
    fn next_timer(&self) -> Instant {
        self.next_update
    }

    fn on_timer(&mut self, now: Instant) {
        self.vars.calculate_probability(&self.params, self.bytes);
        self.next_update = now + self.params.tupdate;
    }

    #[inline]
    fn len(&self) -> usize {
        self.ring.len()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn marks(&self) -> u64 {
        self.marks
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.probability = self.vars.probability();
        gauges.marks = self.marks;
        gauges.head_age = self
            .ring
            .front()
            .map_or(Duration::ZERO, |p| now - p.enqueued());
    }

    fn knobs(&self) -> KnobSet {
        KnobSet::LIMIT
    }

    fn set_knobs(&mut self, knobs: &Knobs) {
        if let Some(limit) = knobs.limit_packets {
            self.params.limit = limit;
        }
    }
}

impl<P: Packet> FastPath<P> for Pie<P> {
    #[inline(always)]
    fn enqueue_with<D: Drops<P>>(
        &mut self,
        now: Instant,
        len: u32,
        make: impl FnOnce() -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) {
        if self.ring.len() >= self.params.limit as usize {
            self.vars.accu_prob = 0;
            return drops.drop(now, make(), DropCause::Overflow);
        }
        let Self { params, vars, .. } = self;
        if vars.drop_early(params, self.bytes, len, rng) {
            return self.chosen(now, make(), drops);
        }
        self.bytes += u64::from(len);
        self.ring.push(make()).set_enqueued(now);
    }

    #[inline(always)]
    fn offer_run<D: Drops<P>>(
        &mut self,
        now: Instant,
        len: u32,
        count: u32,
        make: impl Fn(u32) -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Option<Backlog> {
        offer_each(self, now, len, count, make, rng, drops)
    }
}

#[cfg(test)]
mod tests;
