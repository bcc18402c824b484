//! Every discipline, one algorithm per file, and the enum that dispatches to them.

pub mod bands;
pub mod cake;
pub mod cebinae;
pub mod choke;
mod class;
pub mod cobalt;
pub mod codel;
pub mod drr;
pub mod dualpi2;
pub mod fifo;
pub mod fq;
pub mod fq_codel;
pub mod fq_fifo;
pub mod fq_pie;
pub mod hhf;
pub mod htb;
pub mod hush;
pub mod l4s;
pub mod outside;
pub mod pie;
pub mod pie_ns3;
pub mod red;
pub mod sfb;
pub mod sfq;

use bands::Bands;
use cake::Cake;
use cebinae::Cebinae;
use choke::Choke;
use cobalt::Cobalt;
use codel::Codel;
use drr::Drr;
use dualpi2::DualPi2;
use fifo::Fifo;
use fq::Fq;
use fq_codel::FqCodel;
use fq_fifo::FqFifo;
use fq_pie::FqPie;
use hhf::Hhf;
use htb::Htb;
use hush::Hush;
use l4s::L4s;
use outside::Outside;
use pie::Pie;
use pie_ns3::PieNs3;
use red::Red;
use sfb::Sfb;
use sfq::Sfq;

use crate::control::guard::Stats;
use crate::discipline::{FastPath, Wants};
use crate::parts::flows::Flows;
use crate::time::Instant;
use crate::{
    Admission, Backlog, Dequeued, Discipline, Drops, Gauges, KnobSet, Knobs, Packet, PolicyGauges,
    Rng, SubGauges, TinGauges,
};

/// Every discipline, as plain data. Dispatch by an enum costs 3 to 4 ns per packet and keeps a
/// simulation with all its queues cloneable.
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
    /// `hush`.
    Hush(Hush<P>),
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
    /// `pfifo_fast`, `prio`, `ets`, and `drr` with classes.
    Bands(Bands<P>),
    /// `cebinae`.
    Cebinae(Cebinae<P>),
    /// `choke`.
    Choke(Choke<P>),
    /// `drr` without classes.
    Drr(Drr<P>),
    /// `hhf`.
    Hhf(Hhf<P>),
    /// `htb`.
    Htb(Htb<P>),
    /// `sfb`.
    Sfb(Sfb<P>),
    /// `sfq`.
    Sfq(Sfq<P>),
    /// The queue of `lfq`: flow queues, each with its own limit.
    FqFifo(FqFifo<P>),
    /// A discipline of another crate.
    Outside(Outside<P>),
}

/// The parameters of every discipline, from which a [`Qdisc`] of any packet type is made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Params {
    /// [`Qdisc::Fifo`].
    Fifo(fifo::Params),
    /// [`Qdisc::Cake`].
    Cake(cake::Params),
    /// [`Qdisc::Fq`].
    Fq(fq::Params),
    /// [`Qdisc::FqCodel`].
    FqCodel(fq_codel::Params),
    /// [`Qdisc::FqFifo`].
    FqFifo(fq_fifo::Params),
    /// [`Qdisc::FqPie`].
    FqPie(fq_pie::Params),
    /// [`Qdisc::Codel`].
    Codel(codel::Params),
    /// [`Qdisc::Hush`].
    Hush(hush::Params),
    /// [`Qdisc::Pie`].
    Pie(pie::Params),
    /// [`Qdisc::PieNs3`].
    PieNs3(pie_ns3::Params),
    /// [`Qdisc::DualPi2`].
    DualPi2(dualpi2::Params),
    /// [`Qdisc::L4s`].
    L4s(l4s::Params),
    /// [`Qdisc::Red`].
    Red(red::Params),
    /// [`Qdisc::Cobalt`].
    Cobalt(cobalt::Params),
    /// [`Qdisc::Bands`].
    Bands(bands::Params),
    /// [`Qdisc::Cebinae`].
    Cebinae(cebinae::Params),
    /// [`Qdisc::Choke`].
    Choke(choke::Params),
    /// [`Qdisc::Drr`].
    Drr(drr::Params),
    /// [`Qdisc::Hhf`].
    Hhf(hhf::Params),
    /// [`Qdisc::Htb`].
    Htb(htb::Params),
    /// [`Qdisc::Sfb`].
    Sfb(sfb::Params),
    /// [`Qdisc::Sfq`].
    Sfq(sfq::Params),
    /// [`Qdisc::Outside`].
    Outside(outside::Params),
}

impl Params {
    /// Sets how many bytes of a packet's length are the link's header, for a discipline that
    /// subtracts it.
    pub fn set_link_header(&mut self, bytes: u32) {
        if let Params::Cake(p) = self {
            p.header = bytes;
        }
    }

    /// Whether packets have already crossed the link that the discipline shapes when they reach it
    /// (`ingress`).
    pub fn is_behind(&self) -> bool {
        matches!(self, Params::Cake(p) if p.ingress)
    }

    /// Whether hosts are identified by their addresses before address translation (`nat`).
    pub fn is_nat(&self) -> bool {
        matches!(self, Params::Cake(p) if p.nat)
    }

    /// Whether the firewall's mark chooses a packet's class (`fwmark`).
    pub fn reads_fwmark(&self) -> bool {
        matches!(self, Params::Cake(p) if p.fwmark != 0)
    }

    /// Sets the labels of the hosts that filters name. For a host's name, `known` returns the
    /// source label of the packets that it sends and the destination label of those that it
    /// receives; `None` if it does not know the host.
    pub fn name_hosts(&mut self, known: &dyn Fn(&str) -> Option<[u32; 2]>) {
        let (htb, bands): (&mut [htb::Class], &mut [bands::BandClass]) = match self {
            Params::Htb(p) => (&mut p.classes, &mut []),
            Params::Bands(p) => (&mut [], &mut p.classes),
            _ => return,
        };
        let of_htb = htb.iter_mut().map(|class| &mut class.filter);
        let filters = of_htb.chain(bands.iter_mut().map(|class| &mut class.filter));
        for host in filters.filter_map(|filter| filter.host.as_mut()) {
            host.labels = known(&host.name);
        }
    }
}

impl<P: Packet> Qdisc<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        match params {
            Params::Fifo(p) => Qdisc::Fifo(Fifo::new(p)),
            Params::Cake(p) => Qdisc::Cake(Cake::new(p)),
            Params::Fq(p) => Qdisc::Fq(Fq::new(p)),
            Params::FqCodel(p) => Qdisc::FqCodel(FqCodel::new(p)),
            Params::FqFifo(p) => Qdisc::FqFifo(FqFifo::new(p)),
            Params::FqPie(p) => Qdisc::FqPie(FqPie::new(p)),
            Params::Hush(p) => Qdisc::Hush(Hush::new(p)),
            Params::Codel(p) => Qdisc::Codel(Codel::new(p)),
            Params::Pie(p) => Qdisc::Pie(Pie::new(p)),
            Params::PieNs3(p) => Qdisc::PieNs3(PieNs3::new(p)),
            Params::DualPi2(p) => Qdisc::DualPi2(DualPi2::new(p)),
            Params::L4s(p) => Qdisc::L4s(L4s::new(p)),
            Params::Red(p) => Qdisc::Red(Red::new(p)),
            Params::Cobalt(p) => Qdisc::Cobalt(Cobalt::new(p)),
            Params::Bands(p) => Qdisc::Bands(Bands::new(p)),
            Params::Cebinae(p) => Qdisc::Cebinae(Cebinae::new(p)),
            Params::Choke(p) => Qdisc::Choke(Choke::new(p)),
            Params::Drr(p) => Qdisc::Drr(Drr::new(p)),
            Params::Hhf(p) => Qdisc::Hhf(Hhf::new(p)),
            Params::Htb(p) => Qdisc::Htb(Htb::new(p)),
            Params::Sfb(p) => Qdisc::Sfb(Sfb::new(p)),
            Params::Sfq(p) => Qdisc::Sfq(Sfq::new(p)),
            Params::Outside(p) => Qdisc::Outside(Outside::new(p)),
        }
    }
}

macro_rules! each {
    ($self:expr, $q:ident => $body:expr) => {
        match $self {
            Qdisc::Fifo($q) => $body,
            Qdisc::Cake($q) => $body,
            Qdisc::Fq($q) => $body,
            Qdisc::FqCodel($q) => $body,
            Qdisc::FqPie($q) => $body,
            Qdisc::Hush($q) => $body,
            Qdisc::Codel($q) => $body,
            Qdisc::Pie($q) => $body,
            Qdisc::PieNs3($q) => $body,
            Qdisc::DualPi2($q) => $body,
            Qdisc::L4s($q) => $body,
            Qdisc::Red($q) => $body,
            Qdisc::Cobalt($q) => $body,
            Qdisc::FqFifo($q) => $body,
            Qdisc::Bands($q) => $body,
            Qdisc::Cebinae($q) => $body,
            Qdisc::Choke($q) => $body,
            Qdisc::Drr($q) => $body,
            Qdisc::Hhf($q) => $body,
            Qdisc::Htb($q) => $body,
            Qdisc::Sfb($q) => $body,
            Qdisc::Sfq($q) => $body,
            Qdisc::Outside($q) => $body,
        }
    };
}

// Not inlined, so that the FIFO's path does not pay for the registers that the other disciplines
// together need.
impl<P: Packet> Qdisc<P> {
    #[inline(never)]
    fn offer_law<D: Drops<P>>(
        &mut self,
        now: Instant,
        len: u32,
        make: impl FnOnce() -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Backlog {
        each!(self, q => q.offer_with(now, len, make, rng, drops))
    }
    #[inline(never)]
    fn offer_run_law<D: Drops<P>>(
        &mut self,
        now: Instant,
        len: u32,
        count: u32,
        make: impl Fn(u32) -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Option<Backlog> {
        each!(self, q => q.offer_run(now, len, count, make, rng, drops))
    }
    #[inline(never)]
    fn take_law<D: Drops<P>>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut D,
        line: &mut Option<P>,
    ) -> (Dequeued<()>, Backlog) {
        each!(self, q => q.take_to(now, rng, drops, line))
    }
}

impl<P: Packet> Discipline<P> for Qdisc<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, rng: &mut Rng, drops: &mut D) {
        each!(self, q => q.enqueue(now, packet, rng, drops))
    }
    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        each!(self, q => q.dequeue(now, rng, drops))
    }
    #[inline]
    fn next_timer(&self) -> Instant {
        each!(self, q => Discipline::<P>::next_timer(q))
    }
    fn on_timer(&mut self, now: Instant) {
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
    fn failure(&self) -> Option<&str> {
        each!(self, q => Discipline::<P>::failure(q))
    }
    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        each!(self, q => q.gauges(now, gauges))
    }
    fn set_knobs(&mut self, knobs: &Knobs) {
        each!(self, q => q.set_knobs(knobs))
    }
    fn knobs(&self) -> KnobSet {
        each!(self, q => Discipline::<P>::knobs(q))
    }
    fn flows(&self) -> Option<&Flows<P>> {
        each!(self, q => Discipline::<P>::flows(q))
    }
    fn sub_queues(&self) -> usize {
        each!(self, q => Discipline::<P>::sub_queues(q))
    }
    fn sub_knobs(&self) -> KnobSet {
        each!(self, q => Discipline::<P>::sub_knobs(q))
    }
    #[inline]
    fn sub_queue_of(&self, packet: &P) -> Option<usize> {
        each!(self, q => q.sub_queue_of(packet))
    }
    #[inline]
    fn admit(&mut self, now: Instant, packet: &P) -> Option<Admission> {
        each!(self, q => q.admit(now, packet))
    }
    #[inline]
    fn sub_len(&self, sub_queue: usize) -> u32 {
        each!(self, q => Discipline::<P>::sub_len(q, sub_queue))
    }
    fn sub_gauges(&self, now: Instant, sub_queue: usize) -> Option<SubGauges> {
        each!(self, q => Discipline::<P>::sub_gauges(q, now, sub_queue))
    }
    fn set_sub_knobs(&mut self, sub_queue: usize, knobs: &Knobs) {
        each!(self, q => Discipline::<P>::set_sub_knobs(q, sub_queue, knobs))
    }
    fn tins(&self) -> Vec<TinGauges> {
        each!(self, q => Discipline::<P>::tins(q))
    }
    fn policy(&self) -> Option<PolicyGauges> {
        each!(self, q => Discipline::<P>::policy(q))
    }
    fn guard(&self) -> Option<&Stats> {
        each!(self, q => Discipline::<P>::guard(q))
    }
    fn wants(&self) -> Wants {
        each!(self, q => Discipline::<P>::wants(q))
    }
    // One dispatch for the whole call.
    #[inline]
    fn run_timers(&mut self, now: Instant) {
        each!(self, q => Discipline::<P>::run_timers(q, now))
    }
    #[inline(always)]
    fn take<D: Drops<P>>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut D,
    ) -> (Dequeued<P>, Backlog) {
        match self {
            Qdisc::Fifo(q) => q.take(now, rng, drops),
            other => {
                let mut line = None;
                let (got, backlog) = other.take_law(now, rng, drops, &mut line);
                (got.with(line), backlog)
            }
        }
    }
    #[inline(always)]
    fn offer<D: Drops<P>>(
        &mut self,
        now: Instant,
        packet: P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Backlog {
        self.offer_with(now, packet.len(), || packet, rng, drops)
    }
}

impl<P: Packet> FastPath<P> for Qdisc<P> {
    #[inline(always)]
    fn offer_with<D: Drops<P>>(
        &mut self,
        now: Instant,
        len: u32,
        make: impl FnOnce() -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Backlog {
        match self {
            Qdisc::Fifo(q) => q.offer_with(now, len, make, rng, drops),
            other => other.offer_law(now, len, make, rng, drops),
        }
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
        match self {
            Qdisc::Fifo(q) => q.offer_run(now, len, count, make, rng, drops),
            other => other.offer_run_law(now, len, count, make, rng, drops),
        }
    }

    #[inline(always)]
    fn take_to<D: Drops<P>>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut D,
        line: &mut Option<P>,
    ) -> (Dequeued<()>, Backlog) {
        match self {
            Qdisc::Fifo(q) => q.take_to(now, rng, drops, line),
            other => other.take_law(now, rng, drops, line),
        }
    }
}

/// Implements [`FastPath`] with its default methods, for disciplines that have no faster ones.
macro_rules! no_fast_path {
    ($($discipline:ident),*) => {
        $(impl<P: Packet> FastPath<P> for $discipline<P> {})*
    };
}
no_fast_path!(
    Bands, Cake, Cebinae, Choke, Cobalt, Drr, Fq, FqFifo, FqPie, Hhf, Htb, Hush, L4s, Outside,
    PieNs3, Red, Sfb, Sfq
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use crate::packet::TestPacket;
    use crate::time::MS;

    /// Offers 3000 bursts of three packets to a queue that is served twice per burst, with
    /// `in_runs` as runs. Returns the results of the dequeues, the ids of the dropped packets, and
    /// the number of bursts that were taken as runs.
    fn overload(params: &Params, in_runs: bool) -> (Vec<Dequeued<TestPacket>>, Vec<u64>, usize) {
        let mut q: Qdisc<TestPacket> = Qdisc::new(params.clone());
        let (mut rng, mut drops) = (Rng::new(1, "runs"), Vec::new());
        let (mut sent, mut runs) = (Vec::new(), 0);
        for round in 0..3000_u32 {
            let now = Instant::ZERO + 10 * MS * u64::from(round);
            let packet = |k: u32| {
                let id = u64::from(3 * round + k);
                TestPacket::new(id, 1514, (round % 7) << 28, Ecn::NotEct)
            };
            let taken = in_runs
                && q.offer_run(now, 1514, 3, packet, &mut rng, &mut drops)
                    .is_some();
            if !taken {
                for k in 0..3 {
                    q.offer(now, packet(k), &mut rng, &mut drops);
                }
            }
            runs += usize::from(taken);
            for k in 1..=2 {
                let mut line = None;
                let (got, _) = q.take_to(now + k * MS, &mut rng, &mut drops, &mut line);
                sent.push(got.with(line));
            }
        }
        (sent, drops.iter().map(|d| d.0.id).collect(), runs)
    }

    #[test]
    fn a_run_that_does_not_fit_is_refused_as_a_whole() {
        let packet = |id| TestPacket::new(id, 1000, 0, Ecn::NotEct);
        let by_memory = fq_codel::Params {
            memory_limit: 40 * (1000 + crate::parts::flows::PACKET_MEMORY),
            ..fq_codel::Params::default()
        };
        let by_packets = fq_codel::Params {
            limit: 40,
            ..fq_codel::Params::default()
        };
        for params in [by_memory, by_packets] {
            let mut q: Qdisc<TestPacket> = Qdisc::new(Params::FqCodel(params));
            let (mut rng, mut drops) = (Rng::new(1, "runs"), Vec::new());
            let mut run = |count| {
                let make = |k: u32| packet(k.into());
                let backlog = q.offer_run(Instant::ZERO, 1000, count, make, &mut rng, &mut drops);
                (backlog.map(|b| b.packets), q.len())
            };
            assert_eq!(run(38), (Some(38), 38));
            assert_eq!(run(4), (None, 38));
            assert_eq!(run(2), (Some(40), 40));
            assert_eq!(run(1), (None, 40));
            assert!(drops.is_empty());
        }
    }

    #[test]
    fn a_run_of_packets_is_as_many_single_packets() {
        for params in [
            Params::Codel(codel::Params::default()),
            Params::Pie(pie::Params::default()),
            Params::DualPi2(dualpi2::Params::default()),
            Params::FqCodel(fq_codel::Params {
                limit: 40,
                ..fq_codel::Params::default()
            }),
        ] {
            let (sent, drops, runs) = overload(&params, true);
            let (one_by_one, dropped, _) = overload(&params, false);
            assert!(runs > 0 && !drops.is_empty(), "{params:?}: {runs} runs");
            assert!(sent == one_by_one && drops == dropped, "{params:?}");
        }
    }
}
