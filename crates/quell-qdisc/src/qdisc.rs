//! The interface of a discipline and the enum that dispatches to them.

use crate::cake::Cake;
use crate::cobalt::Cobalt;
use crate::codel::Codel;
use crate::dualpi2::DualPi2;
use crate::fifo::Fifo;
use crate::fq::Fq;
use crate::fq_codel::FqCodel;
use crate::fq_pie::FqPie;
use crate::l4s::L4s;
use crate::lfq::Lfq;
use crate::pie::Pie;
use crate::pie_ns3::PieNs3;
use crate::red::Red;
use crate::{Drops, Gauges, Got, Knobs, NEVER, Nanos, Packet, PieGauges, Rng};

/// What a queue holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets.
    pub packets: usize,
    /// Bytes.
    pub bytes: u64,
}

/// A queue discipline. The driver runs due timers, each with its own time, before any other call; state changes only in calls.
pub trait Discipline<P: Packet> {
    /// Takes `packet` in, or gives it (or others) up to `drops`. Sets the packet's time of arrival.
    fn enqueue<D: Drops<P>>(&mut self, now: Nanos, packet: P, rng: &mut Rng, drops: &mut D);
    /// Hands the next packet on.
    fn dequeue<D: Drops<P>>(&mut self, now: Nanos, rng: &mut Rng, drops: &mut D) -> Got<P>;
    /// When `on_timer` is due; `NEVER` without timers.
    #[inline]
    fn next_timer(&self) -> Nanos {
        NEVER
    }
    /// Periodic work (PIE's update of its probability, say), called with the time `next_timer` gave.
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
    /// Fills in what the discipline itself knows: `limit_packets`, `probability`, `head_age` (from `now`), `marks`.
    /// Its owner counts the rest (arrivals, departures, drops, sojourn, rate).
    fn gauges(&self, _now: Nanos, _gauges: &mut Gauges) {}
    /// Turns knobs; those it does not have are ignored.
    fn set_knobs(&mut self, _knobs: &Knobs) {}
    /// Limit times time and time, summed over active flows since the start: of a discipline that moves its limits by itself.
    fn limit_integral(&self, _now: Nanos) -> Option<(u128, u128)> {
        None
    }
    /// Sub-queues that can be read and turned one by one.
    fn queues(&self) -> usize {
        0
    }
    /// Readings of one of them.
    fn queue_gauges(&self, _queue: usize) -> Option<PieGauges> {
        None
    }
    /// Turns the knobs of one of them.
    fn set_queue_knobs(&mut self, _queue: usize, _knobs: &Knobs) {}

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
    /// All that a driver does with an arriving packet: due timers, `enqueue`, and a look at what is queued then.
    #[inline(always)]
    fn offer<D: Drops<P>>(
        &mut self,
        now: Nanos,
        packet: P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Backlog {
        self.run_timers(now);
        self.enqueue(now, packet, rng, drops);
        self.backlog()
    }
    /// All that a driver does to send: due timers, `dequeue`, and a look at what is queued then.
    #[inline(always)]
    fn take<D: Drops<P>>(&mut self, now: Nanos, rng: &mut Rng, drops: &mut D) -> (Got<P>, Backlog) {
        self.run_timers(now);
        let got = self.dequeue(now, rng, drops);
        (got, self.backlog())
    }
}

/// Every discipline, as plain data: enum dispatch costs 3 to 4 ns a packet and keeps a world cloneable.
#[derive(Clone, Debug)]
pub enum Qdisc<P> {
    /// `pfifo`, `bfifo` and `fifo`.
    Fifo(Fifo<P>),
    /// `cake`.
    Cake(Cake<P>),
    /// `fq`.
    Fq(Fq<P>),
    /// `fq_codel`.
    FqCodel(FqCodel<P>),
    /// `fq_pie`.
    FqPie(FqPie<P>),
    /// `codel`.
    Codel(Codel<P>),
    /// `pie`.
    Pie(Pie<P>),
    /// `pie ns3-2018`.
    PieNs3(PieNs3<P>),
    /// `dualpi2`.
    DualPi2(DualPi2<P>),
    /// `l4s`.
    L4s(L4s<P>),
    /// `red`.
    Red(Red<P>),
    /// `cobalt`.
    Cobalt(Cobalt<P>),
    /// `lfq`.
    Lfq(Lfq<P>),
}

macro_rules! each {
    ($self:expr, $q:ident => $body:expr) => {
        match $self {
            Qdisc::Fifo($q) => $body,
            Qdisc::Cake($q) => $body,
            Qdisc::Fq($q) => $body,
            Qdisc::FqCodel($q) => $body,
            Qdisc::FqPie($q) => $body,
            Qdisc::Codel($q) => $body,
            Qdisc::Pie($q) => $body,
            Qdisc::PieNs3($q) => $body,
            Qdisc::DualPi2($q) => $body,
            Qdisc::L4s($q) => $body,
            Qdisc::Red($q) => $body,
            Qdisc::Cobalt($q) => $body,
            Qdisc::Lfq($q) => $body,
        }
    };
}

impl<P: Packet> Qdisc<P> {
    /// `offer` of a packet of `len` bytes; a plain FIFO makes it where it will lie.
    #[inline(always)]
    pub fn offer_with<D: Drops<P>>(
        &mut self,
        now: Nanos,
        len: u32,
        make: impl FnOnce() -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Backlog {
        match self {
            Qdisc::Fifo(q) => q.offer_with(now, len, make, rng, drops),
            other => other.offer_law(now, make(), rng, drops),
        }
    }
    /// `take` of a packet that is only looked at; a plain FIFO shows it where it lies.
    #[inline(always)]
    pub fn take_with<D: Drops<P>, R>(
        &mut self,
        now: Nanos,
        rng: &mut Rng,
        drops: &mut D,
        look: impl FnOnce(&P, &mut D) -> R,
    ) -> (Got<R>, Backlog) {
        match self {
            Qdisc::Fifo(q) => q.take_with(drops, look),
            other => {
                let (got, backlog) = other.take_law(now, rng, drops);
                (got.map(|p| look(&p, drops)), backlog)
            }
        }
    }
    // Out of line, so that the plain FIFO's path does not pay for the registers that all the laws together need.
    #[inline(never)]
    fn offer_law<D: Drops<P>>(
        &mut self,
        now: Nanos,
        packet: P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Backlog {
        each!(self, q => q.offer(now, packet, rng, drops))
    }
    #[inline(never)]
    fn take_law<D: Drops<P>>(
        &mut self,
        now: Nanos,
        rng: &mut Rng,
        drops: &mut D,
    ) -> (Got<P>, Backlog) {
        each!(self, q => q.take(now, rng, drops))
    }
}

impl<P: Packet> Discipline<P> for Qdisc<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Nanos, packet: P, rng: &mut Rng, drops: &mut D) {
        each!(self, q => q.enqueue(now, packet, rng, drops))
    }
    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, now: Nanos, rng: &mut Rng, drops: &mut D) -> Got<P> {
        each!(self, q => q.dequeue(now, rng, drops))
    }
    #[inline]
    fn next_timer(&self) -> Nanos {
        each!(self, q => Discipline::<P>::next_timer(q))
    }
    fn on_timer(&mut self, now: Nanos) {
        each!(self, q => Discipline::<P>::on_timer(q, now))
    }
    #[inline]
    fn len(&self) -> usize {
        each!(self, q => q.len())
    }
    #[inline]
    fn bytes(&self) -> u64 {
        each!(self, q => q.bytes())
    }
    fn marks(&self) -> u64 {
        each!(self, q => q.marks())
    }
    fn gauges(&self, now: Nanos, gauges: &mut Gauges) {
        each!(self, q => q.gauges(now, gauges))
    }
    fn set_knobs(&mut self, knobs: &Knobs) {
        each!(self, q => q.set_knobs(knobs))
    }
    fn limit_integral(&self, now: Nanos) -> Option<(u128, u128)> {
        each!(self, q => q.limit_integral(now))
    }
    fn queues(&self) -> usize {
        each!(self, q => Discipline::<P>::queues(q))
    }
    fn queue_gauges(&self, queue: usize) -> Option<PieGauges> {
        each!(self, q => Discipline::<P>::queue_gauges(q, queue))
    }
    fn set_queue_knobs(&mut self, queue: usize, knobs: &Knobs) {
        each!(self, q => Discipline::<P>::set_queue_knobs(q, queue, knobs))
    }
    // One dispatch for all of it.
    #[inline]
    fn run_timers(&mut self, now: Nanos) {
        each!(self, q => Discipline::<P>::run_timers(q, now))
    }
    #[inline(always)]
    fn offer<D: Drops<P>>(
        &mut self,
        now: Nanos,
        packet: P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Backlog {
        match self {
            Qdisc::Fifo(q) => q.offer(now, packet, rng, drops),
            other => other.offer_law(now, packet, rng, drops),
        }
    }
    #[inline(always)]
    fn take<D: Drops<P>>(&mut self, now: Nanos, rng: &mut Rng, drops: &mut D) -> (Got<P>, Backlog) {
        match self {
            Qdisc::Fifo(q) => q.take(now, rng, drops),
            other => other.take_law(now, rng, drops),
        }
    }
}
