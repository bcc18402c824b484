//! The interface of a discipline.

use crate::control::guard::Stats;
use crate::parts::flows::Flows;
use crate::time::{Instant, NEVER};
use crate::{
    Admission, Dequeued, Drops, Gauges, KnobSet, Knobs, Packet, PolicyGauges, Rng, SubGauges,
    TinGauges,
};

/// Packets and bytes in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets queued.
    pub packets: usize,
    /// Bytes queued.
    pub bytes: u64,
}

/// What a discipline needs from the owner of its packets ([`Drops`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// It calls [`Drops::labels`].
    pub labels: bool,
    /// It calls [`Drops::acknowledgment`].
    pub acknowledgments: bool,
    /// The labels must be those of the addresses before address translation (NAT).
    pub translated: bool,
    /// The owner must clear the DSCP of departing packets.
    pub washed: bool,
}

impl Wants {
    /// It needs none of these.
    pub const NONE: Self = Self {
        labels: false,
        acknowledgments: false,
        translated: false,
        washed: false,
    };
}

/// A queue discipline. Its state changes only in calls. Before any other call, the driver runs the
/// timers that are due, each with its own time.
///
/// ```
/// # use std::collections::VecDeque;
/// use quell_qdisc::prelude::*;
///
/// struct Fifo<P>(VecDeque<P>);
///
/// impl<P: Packet> Discipline<P> for Fifo<P> {
///     fn enqueue<D: Drops<P>>(&mut self, now: Instant, mut packet: P, _: &mut Rng, _: &mut D) {
///         packet.set_enqueued(now);
///         self.0.push_back(packet);
///     }
///     fn dequeue<D: Drops<P>>(&mut self, _: Instant, _: &mut Rng, _: &mut D) -> Dequeued<P> {
///         self.0.pop_front().map_or(Dequeued::Empty, Dequeued::Packet)
///     }
///     fn len(&self) -> usize { self.0.len() }
///     fn bytes(&self) -> u64 { self.0.iter().map(|packet| u64::from(packet.len())).sum() }
/// }
/// # use quell_qdisc::packet::TestPacket;
/// # let (mut queue, mut drops) = (Fifo(VecDeque::new()), Vec::new());
/// # let mut rng = Rng::new(1, "fifo");
/// # let packet = TestPacket::new(1, 1500, 0, Ecn::NotEct);
/// # let backlog = queue.offer(Instant::ZERO, packet, &mut rng, &mut drops);
/// # assert_eq!(backlog, Backlog { packets: 1, bytes: 1500 });
/// # let (got, backlog) = queue.take(Instant::ZERO, &mut rng, &mut drops);
/// # assert!(matches!(got, Dequeued::Packet(packet) if packet.id == 1));
/// # assert_eq!(backlog, Backlog::default());
/// ```
pub trait Discipline<P: Packet> {
    /// Queues `packet`, or drops it or other packets into `drops`. Sets the packet's time of
    /// arrival.
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, rng: &mut Rng, drops: &mut D);
    /// Removes and returns the next packet.
    fn dequeue<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) -> Dequeued<P>;
    /// Time at which `on_timer` is due; `NEVER` without timers.
    #[inline]
    fn next_timer(&self) -> Instant {
        NEVER
    }
    /// Does periodic work (such as PIE's update of its probability); `now` is the time that
    /// `next_timer` gave.
    #[inline]
    fn on_timer(&mut self, _now: Instant) {}
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
    /// The reason why the queue has failed, in one line. A failed queue drops its packets, at the
    /// latest in the next call of `enqueue` or `dequeue`, and all later arrivals. Only an outside
    /// discipline ([`crate::outside`]) fails; its driver then ends the run, or lets the traffic
    /// bypass the queue.
    fn failure(&self) -> Option<&str> {
        None
    }
    /// Fills in the gauges that the discipline itself knows: `limit_packets`, `probability`,
    /// `head_age` (from `now`), `marks`. Its owner counts the rest (arrivals, departures, drops,
    /// sojourn, rate).
    fn gauges(&self, _now: Instant, _gauges: &mut Gauges) {}
    /// Knobs of the queue as a whole.
    fn knobs(&self) -> KnobSet {
        KnobSet::NONE
    }
    /// Sets knobs; ignores knobs that the queue does not have.
    fn set_knobs(&mut self, _knobs: &Knobs) {}

    /// The flows of a fair queue, which are its sub-queues.
    fn flows(&self) -> Option<&Flows<P>> {
        None
    }
    /// Number of sub-queues: flows ever used, or halves of coupled pairs. They are numbered from 0,
    /// and a number never changes.
    #[inline]
    fn sub_queues(&self) -> usize {
        self.flows().map_or(0, Flows::count)
    }
    /// Knobs of each sub-queue.
    fn sub_knobs(&self) -> KnobSet {
        KnobSet::NONE
    }
    /// The sub-queue of a queued packet. A discipline whose buckets are not the scaled flow hash
    /// overrides this.
    #[inline]
    fn sub_queue_of(&self, packet: &P) -> Option<usize> {
        let flows = self.flows()?;
        let flow = flows.used(flows.scale(packet.flow_hash()))?;
        Some(flow as usize)
    }
    /// The sub-queue that an arriving packet will join. Called before `enqueue` if a controller
    /// watches packets; a second call at the same time changes nothing.
    fn admit(&mut self, _now: Instant, _packet: &P) -> Option<Admission> {
        None
    }
    /// Packets queued in a sub-queue; 0 for one that does not exist.
    #[inline]
    fn sub_len(&self, sub_queue: usize) -> u32 {
        self.flows().map_or(0, |flows| flows.packets_of(sub_queue))
    }
    /// Readings of a sub-queue; `None` for one that does not exist.
    fn sub_gauges(&self, now: Instant, sub_queue: usize) -> Option<SubGauges> {
        self.flows()?.gauges(now, sub_queue)
    }
    /// Sets knobs of a sub-queue; ignores knobs that it does not have.
    fn set_sub_knobs(&mut self, _sub_queue: usize, _knobs: &Knobs) {}

    /// Its priorities, if it has any: CAKE's tins, the bands of `prio` and similar, or classes.
    fn tins(&self) -> Vec<TinGauges> {
        Vec::new()
    }
    /// Readings and settings of the policy inside the discipline, if there is one and it has
    /// decided at least once.
    fn policy(&self) -> Option<PolicyGauges> {
        None
    }
    /// Statistics of that policy's guard.
    fn guard(&self) -> Option<&Stats> {
        None
    }
    /// What it needs from the owner of its packets.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// Packets and bytes queued.
    #[inline]
    fn backlog(&self) -> Backlog {
        Backlog {
            packets: self.len(),
            bytes: self.bytes(),
        }
    }
    /// Runs the timers that are due, each with its own time.
    #[inline]
    fn run_timers(&mut self, now: Instant) {
        loop {
            let due = self.next_timer();
            if due > now {
                break;
            }
            self.on_timer(due);
        }
    }
    /// Everything that a driver does with an arriving packet: runs due timers, calls `enqueue` and
    /// returns the backlog.
    #[inline(always)]
    fn offer<D: Drops<P>>(
        &mut self,
        now: Instant,
        packet: P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Backlog {
        self.run_timers(now);
        self.enqueue(now, packet, rng, drops);
        self.backlog()
    }
    /// Everything that a driver does to send a packet: runs due timers, calls `dequeue` and returns
    /// the packet and the backlog.
    #[inline(always)]
    fn take<D: Drops<P>>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut D,
    ) -> (Dequeued<P>, Backlog) {
        self.run_timers(now);
        let got = self.dequeue(now, rng, drops);
        (got, self.backlog())
    }
}

/// What the simulator and the live plane call on quell's own disciplines in place of
/// [`Discipline::enqueue`] and [`Discipline::dequeue`]: the same results with fewer copies. A
/// discipline of another crate does not need it.
#[doc(hidden)]
pub trait FastPath<P: Packet>: Discipline<P> {
    /// [`Discipline::enqueue`] of a packet of `len` bytes. A discipline that makes the packet
    /// directly in its slot saves a copy; to copy fields that were just written one by one would
    /// stall the processor.
    #[inline(always)]
    fn enqueue_with<D: Drops<P>>(
        &mut self,
        now: Instant,
        _len: u32,
        make: impl FnOnce() -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) {
        self.enqueue(now, make(), rng, drops);
    }
    /// [`Discipline::dequeue`] into `line`. A discipline that writes the packet there itself saves
    /// a copy.
    #[inline(always)]
    fn dequeue_to<D: Drops<P>>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut D,
        line: &mut Option<P>,
    ) -> Dequeued<()> {
        let got = self.dequeue(now, rng, drops);
        got.map(|packet| *line = Some(packet))
    }
    /// [`Discipline::offer`] by `enqueue_with`.
    #[inline(always)]
    fn offer_with<D: Drops<P>>(
        &mut self,
        now: Instant,
        len: u32,
        make: impl FnOnce() -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Backlog {
        self.run_timers(now);
        self.enqueue_with(now, len, make, rng, drops);
        self.backlog()
    }
    /// `offer_with` of `count` packets of `len` bytes in sequence, each made from its number (from
    /// 0 on); returns the backlog after the last. Does nothing and returns `None` if the packets
    /// must be offered one by one, because the backlog might shrink in between.
    #[inline(always)]
    fn offer_run<D: Drops<P>>(
        &mut self,
        _now: Instant,
        _len: u32,
        _count: u32,
        _make: impl Fn(u32) -> P,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Option<Backlog> {
        None
    }
    /// [`Discipline::take`] into `line`.
    #[inline(always)]
    fn take_to<D: Drops<P>>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut D,
        line: &mut Option<P>,
    ) -> (Dequeued<()>, Backlog) {
        self.run_timers(now);
        let got = self.dequeue_to(now, rng, drops, line);
        (got, self.backlog())
    }
}

/// [`FastPath::offer_run`] for a discipline in which arrivals remove no queued packets.
#[inline(always)]
pub(crate) fn offer_each<P: Packet, D: Drops<P>>(
    queue: &mut impl FastPath<P>,
    now: Instant,
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
