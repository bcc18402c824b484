//! The interface of a discipline.

use crate::control::guard::Stats;
use crate::parts::flows::Flows;
use crate::{
    Admission, Dequeued, Drops, Gauges, KnobSet, Knobs, NEVER, Nanos, Packet, PolicyGauges, Rng,
    SubGauges, TinGauges,
};

/// What a queue holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets.
    pub packets: usize,
    /// Bytes.
    pub bytes: u64,
}

/// What a discipline asks of its packets' owner ([`Drops`]), and what it has done to those that
/// leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// [`Drops::labels`].
    pub labels: bool,
    /// [`Drops::acknowledgment`].
    pub acknowledgments: bool,
    /// Addresses are to be those before address translation (NAT).
    pub translated: bool,
    /// The owner clears the DSCP of what leaves.
    pub washed: bool,
}

impl Wants {
    /// Nothing.
    pub const NONE: Self = Self {
        labels: false,
        acknowledgments: false,
        translated: false,
        washed: false,
    };
}

/// A queue discipline. The driver runs due timers, each with its own time, before any other call;
/// state changes only in calls.
pub trait Discipline<P: Packet> {
    /// Takes `packet` in, or gives it (or others) up to `drops`. Sets the packet's time of arrival.
    fn enqueue<D: Drops<P>>(&mut self, now: Nanos, packet: P, rng: &mut Rng, drops: &mut D);
    /// Hands the next packet on.
    fn dequeue<D: Drops<P>>(&mut self, now: Nanos, rng: &mut Rng, drops: &mut D) -> Dequeued<P>;
    /// When `on_timer` is due; `NEVER` without timers.
    #[inline]
    fn next_timer(&self) -> Nanos {
        NEVER
    }
    /// Periodic work (PIE's update of its probability, say), called with the time `next_timer`
    /// gave.
    #[inline]
    fn on_timer(&mut self, _now: Nanos) {}
    /// Packets queued.
    fn len(&self) -> usize;
    /// True if nothing is queued.
    #[inline]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes queued.
    fn bytes(&self) -> u64;
    /// Packets marked CE so far.
    fn marks(&self) -> u64 {
        0
    }
    /// Why the queue can work no more, in one line; it is empty then and stays so. Only a
    /// discipline from outside fails ([`crate::outside`]): whoever drives it ends the run, or lets
    /// the traffic pass by.
    fn failure(&self) -> Option<&str> {
        None
    }
    /// Fills in what the discipline itself knows: `limit_packets`, `probability`, `head_age` (from
    /// `now`), `marks`. Its owner counts the rest (arrivals, departures, drops, sojourn, rate).
    fn gauges(&self, _now: Nanos, _gauges: &mut Gauges) {}
    /// The knobs that the queue as a whole has.
    fn knobs(&self) -> KnobSet {
        KnobSet::NONE
    }
    /// Sets knobs; those that it does not have are ignored.
    fn set_knobs(&mut self, _knobs: &Knobs) {}

    /// The flows of a fair queue, which are its sub-queues.
    fn flows(&self) -> Option<&Flows<P>> {
        None
    }
    /// How many sub-queues there are: flows that were ever used, or halves of coupled pairs. They
    /// are numbered from 0, and a number never changes.
    #[inline]
    fn sub_queues(&self) -> usize {
        self.flows().map_or(0, Flows::count)
    }
    /// The knobs that each sub-queue has.
    fn sub_knobs(&self) -> KnobSet {
        KnobSet::NONE
    }
    /// The sub-queue of a packet that was taken in. A discipline with flows whose buckets are not
    /// the scaled hash says which.
    #[inline]
    fn sub_queue_of(&self, packet: &P) -> Option<usize> {
        let flows = self.flows()?;
        let flow = flows.used(flows.scale(packet.flow_hash()))?;
        Some(flow as usize)
    }
    /// The sub-queue that an arriving packet will join. Called before `enqueue` where a controller
    /// watches packets; doing it twice at the same time is doing it once.
    fn admit(&mut self, _now: Nanos, _packet: &P) -> Option<Admission> {
        None
    }
    /// Packets queued in a sub-queue; 0 for one that does not exist.
    #[inline]
    fn sub_len(&self, sub_queue: usize) -> u32 {
        self.flows().map_or(0, |flows| flows.packets_of(sub_queue))
    }
    /// Readings of a sub-queue; `None` for one that does not exist.
    fn sub_gauges(&self, now: Nanos, sub_queue: usize) -> Option<SubGauges> {
        self.flows()?.gauges(now, sub_queue)
    }
    /// Sets knobs of a sub-queue; those that it does not have are ignored.
    fn set_sub_knobs(&mut self, _sub_queue: usize, _knobs: &Knobs) {}

    /// The priorities that it sorts packets into, where it does: CAKE's tins, the bands of `prio`
    /// and its kin.
    fn tins(&self) -> Vec<TinGauges> {
        Vec::new()
    }
    /// What its policy reads and sets, where there is one inside the discipline and it had a turn.
    fn policy(&self) -> Option<PolicyGauges> {
        None
    }
    /// What the guard of that policy did.
    fn guard(&self) -> Option<&Stats> {
        None
    }
    /// What it asks of its packets' owner.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// What a queue holds.
    #[inline]
    fn backlog(&self) -> Backlog {
        Backlog {
            packets: self.len(),
            bytes: self.bytes(),
        }
    }
    /// Runs the timers that are due, each with its own time.
    #[inline]
    fn run_timers(&mut self, now: Nanos) {
        loop {
            let due = self.next_timer();
            if due > now {
                break;
            }
            self.on_timer(due);
        }
    }
    /// `enqueue` of a packet of `len` bytes. A discipline that makes the packet only where it will
    /// lie saves a copy of what was just written in small pieces, which would stall the processor.
    #[inline(always)]
    fn enqueue_with<D: Drops<P>>(
        &mut self,
        now: Nanos,
        _len: u32,
        make: impl FnOnce() -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) {
        self.enqueue(now, make(), rng, drops);
    }
    /// `dequeue` of a packet that goes to `line`. A discipline that puts it there itself saves a
    /// copy.
    #[inline(always)]
    fn dequeue_to<D: Drops<P>>(
        &mut self,
        now: Nanos,
        rng: &mut Rng,
        drops: &mut D,
        line: &mut Option<P>,
    ) -> Dequeued<()> {
        let got = self.dequeue(now, rng, drops);
        got.map(|packet| *line = Some(packet))
    }
    /// All that a driver does with an arriving packet: due timers, `enqueue_with`, and a look at
    /// what is queued then.
    #[inline(always)]
    fn offer_with<D: Drops<P>>(
        &mut self,
        now: Nanos,
        len: u32,
        make: impl FnOnce() -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Backlog {
        self.run_timers(now);
        self.enqueue_with(now, len, make, rng, drops);
        self.backlog()
    }
    /// `offer_with` of a packet that exists.
    #[inline(always)]
    fn offer<D: Drops<P>>(
        &mut self,
        now: Nanos,
        packet: P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Backlog {
        self.offer_with(now, packet.len(), || packet, rng, drops)
    }
    /// `offer_with` of `count` packets of `len` bytes, made by their number, one after the other:
    /// what is queued then. `None`, and nothing happens, where they have to come one by one,
    /// because what is queued might shrink in between.
    #[inline(always)]
    fn offer_run<D: Drops<P>>(
        &mut self,
        _now: Nanos,
        _len: u32,
        _count: u32,
        _make: impl Fn(u32) -> P,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Option<Backlog> {
        None
    }
    /// All that a driver does to send: due timers, `dequeue`, and a look at what is queued then.
    #[inline(always)]
    fn take<D: Drops<P>>(
        &mut self,
        now: Nanos,
        rng: &mut Rng,
        drops: &mut D,
    ) -> (Dequeued<P>, Backlog) {
        self.run_timers(now);
        let got = self.dequeue(now, rng, drops);
        (got, self.backlog())
    }
    /// `take` of a packet that goes to `line`.
    #[inline(always)]
    fn take_to<D: Drops<P>>(
        &mut self,
        now: Nanos,
        rng: &mut Rng,
        drops: &mut D,
        line: &mut Option<P>,
    ) -> (Dequeued<()>, Backlog) {
        self.run_timers(now);
        let got = self.dequeue_to(now, rng, drops, line);
        (got, self.backlog())
    }
}

/// [`Discipline::offer_run`] of a discipline in which arrivals take nothing out.
#[inline(always)]
pub(crate) fn offer_each<P: Packet, D: Drops<P>>(
    queue: &mut impl Discipline<P>,
    now: Nanos,
    len: u32,
    count: u32,
    make: impl Fn(u32) -> P,
    rng: &mut Rng,
    drops: &mut D,
) -> Option<Backlog> {
    queue.run_timers(now);
    for k in 0..count {
        queue.enqueue_with(now, len, || make(k), rng, drops);
    }
    Some(queue.backlog())
}
