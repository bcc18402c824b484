//! CAKE: a shaper without bursts, tins by DSCP, fair shares for hosts and flows, COBALT on each
//! flow, an ACK filter.
//!
//! Sources: Linux 7.2 `net/sched/sch_cake.c`; T. Høiland-Jørgensen, D. Täht, J. Morton, "Piece of
//! CAKE" (LANMAN 2018); `tc-cake(8)`. Deviations:
//! - without `bandwidth` the link after the queue is the shaper, and its rate sets what `bandwidth`
//!   would ([`Bandwidth::Link`]);
//! - the longest flow is found by a walk over the flows ever used, not by a heap;
//! - memory is each packet's length plus [`PACKET_MEMORY`], instead of `truesize`;
//! - the kernel's filters and priorities cannot override the classification; a mark can (`fwmark`);
//! - `split-gso` and `wash` are left to the packets' owner, which clears the DSCP of packets that
//!   have left the queue.

mod ack;
mod diffserv;
mod params;
mod tin;

use crate::discipline::Wants;
use crate::num;
use crate::parts::flows::{FlowId, FlowList, PACKET_MEMORY};
use crate::time::{Duration, Instant, SEC};
use crate::{
    Dequeued, Discipline, DropCause, Drops, Gauges, KnobSet, Knobs, MTU, Packet, Rng, SubGauges,
    TinGauges,
};

pub use params::{AckFilter, Bandwidth, Isolation, LONGEST, Params, Tins};
use tin::{ByteTime, Config, Set, Tin, average, ewma};

/// Lower bound of the default memory limit, bytes.
const MIN_MEMORY: u64 = 4 << 20;
/// Upper bound of the default memory limit, packets of [`MTU`] bytes.
const MAX_PACKETS: u64 = 10_240;
/// Until the clock shows this time, estimates of the arrival rate do not set the shaper; after it,
/// each one does. Linux (`cake_enqueue`) compares the time with `last_reconfig_time` plus this, and
/// never sets that field.
const RECONFIGURE: Duration = Duration::from_millis(250);

/// Estimate of the arrival rate, for `autorate-ingress`.
#[derive(Clone, Debug, Default)]
struct Arrivals {
    /// Time of the last arrival.
    last: Instant,
    /// Start of the measuring window, which ends with a gap that is longer than the mean.
    window_begin: Instant,
    /// Bytes that arrived in the window.
    window_bytes: u64,
    /// Moving average of the time between arrivals.
    gap: Duration,
    /// Moving average of the windows' rates that rises fast and falls slowly, bytes per second.
    peak: u64,
}

/// The `cake` queue.
#[derive(Clone, Debug)]
pub struct Cake<P> {
    params: Params,
    /// The tin of each DSCP.
    map: [u8; 64],
    tins: Vec<Tin<P>>,
    /// The tin and the flow of each sub-queue.
    subs: Vec<(u8, FlowId)>,
    byte_time: ByteTime,
    /// Memory limit in force, bytes.
    memory: u64,
    packets: usize,
    bytes: u64,
    /// Time at which the shaper releases the next packet.
    next: Instant,
    /// Upper bound of that time: each packet sent adds 1.5 times its transmission time, and dropped
    /// packets add nothing. So drops that the shaper counts (`ingress`) cannot hold it up for long.
    failsafe: Instant,
    /// The tin whose turn it is in the round robin, which serves the tins while there is no rate.
    current: usize,
    arrivals: Arrivals,
    marks: u64,
}

impl<P: Packet> Cake<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        let rate = params.bandwidth.bytes_per_s();
        let tins = (0..params.tins.count()).map(|tin| Tin::new(config(&params, tin, rate)));
        let mut cake = Self {
            map: params.tins.map(),
            tins: tins.collect(),
            subs: Vec::new(),
            byte_time: ByteTime::default(),
            memory: 0,
            packets: 0,
            bytes: 0,
            next: Instant::ZERO,
            failsafe: Instant::ZERO,
            current: 0,
            arrivals: Arrivals {
                peak: rate,
                ..Arrivals::default()
            },
            marks: 0,
            params,
        };
        cake.configure(rate);
        cake
    }

    /// Sets another bandwidth, as `tc qdisc change` does; queued packets stay.
    pub fn set_bandwidth(&mut self, bandwidth: Bandwidth) {
        self.params.bandwidth = bandwidth;
        self.configure(bandwidth.bytes_per_s());
    }

    /// Sets what depends on the rate (bytes per second; 0: none): the tins' configurations and the
    /// memory limit (`cake_reconfigure`).
    fn configure(&mut self, rate: u64) {
        for (i, tin) in self.tins.iter_mut().enumerate() {
            tin.config = config(&self.params, i, rate);
        }
        self.byte_time = self.tins[0].config.byte_time;
        let max = MAX_PACKETS * u64::from(MTU);
        self.memory = match (self.params.memory_limit, rate) {
            (0, 0) => max,
            (0, rate) => {
                // Four times the bandwidth-delay product.
                let four = u128::from(rate) * u128::from(self.params.rtt.as_nanos()) * 4
                    / u128::from(SEC.as_nanos());
                u64::from(num::low_u32(num::low_u64(four))).clamp(MIN_MEMORY, max)
            }
            (limit, _) => limit,
        };
    }

    /// Memory that the queued packets take, as Linux counts it.
    fn memory_used(&self) -> u64 {
        self.bytes + self.packets as u64 * PACKET_MEMORY
    }

    /// True if CAKE itself delays packets, not the link after it.
    #[inline]
    fn shapes(&self) -> bool {
        self.byte_time.limits() && self.params.shapes()
    }

    /// Charges a packet of `len` bytes to its tin and the shaper; returns its bytes on the link.
    #[inline]
    fn charge(&mut self, now: Instant, tin: usize, len: u32, dropped: bool) -> i32 {
        let seen = match self.params.of_ip {
            true => len.saturating_sub(self.params.header),
            false => len,
        };
        let bytes = self.params.framing.bytes(seen);
        if self.byte_time.limits() {
            let tin = &mut self.tins[tin];
            let time = tin.config.byte_time.of(bytes);
            if tin.next < now {
                tin.next += time;
            } else {
                tin.next = tin.next.max(now + time);
            }
            let whole = self.byte_time.of(bytes);
            self.next += whole;
            if !dropped {
                self.failsafe += whole + whole / 2;
            }
        }
        bytes.cast_signed()
    }

    /// Subtracts a packet from the queued packets and bytes.
    #[inline]
    fn uncount(&mut self, packet: &P) {
        self.packets -= 1;
        self.bytes -= u64::from(packet.len());
    }

    /// Drops the head of the longest flow and informs its COBALT.
    #[cold]
    fn drop_one<D: Drops<P>>(&mut self, now: Instant, drops: &mut D) -> bool {
        let tins = self.tins.iter().enumerate();
        let longest = tins
            .filter_map(|(i, tin)| Some((i, tin.flows.fattest()?)))
            .rev()
            .max_by_key(|(i, flow)| self.tins[*i].flows.backlog(*flow));
        let Some((at, flow)) = longest else {
            return false;
        };
        let tin = &mut self.tins[at];
        let Some(packet) = tin.flows.pop(flow) else {
            return false;
        };
        let law = &mut tin.states[flow as usize].law;
        let wakes = law.queue_full(&tin.config.cobalt, now);
        tin.stats.unresponsive_flows += u32::from(wakes);
        tin.stats.drops += 1;
        self.uncount(&packet);
        if self.params.ingress {
            self.charge(now, at, packet.len(), true);
        }
        drops.drop(now, packet, DropCause::Overflow);
        true
    }

    /// Drops an ACK that the arriving ACK supersedes.
    #[inline]
    fn filter_acks<D: Drops<P>>(
        &mut self,
        now: Instant,
        at: usize,
        flow: FlowId,
        last: &P,
        drops: &mut D,
    ) {
        let tin = &mut self.tins[at];
        let filter = self.params.ack_filter;
        let Some(place) = ack::superfluous(&tin.flows, flow, last, filter, drops) else {
            return;
        };
        let ack = tin.flows.remove(flow, place);
        tin.stats.ack_drops += 1;
        self.uncount(&ack);
        if self.params.ingress {
            self.charge(now, at, ack.len(), true);
        }
        drops.drop(now, ack, DropCause::Early);
    }

    /// Estimates the capacity of the link before this queue and sets the shaper a little below it.
    fn estimate(&mut self, now: Instant, len: u32) {
        let a = &mut self.arrivals;
        a.window_bytes += u64::from(len);
        let gap = (now - a.last).min(SEC);
        // The mean gap rises fast and falls slowly, so that short bursts, such as those of a
        // wireless link, hardly change it.
        a.gap = average(a.gap, gap, if gap > a.gap { 2 } else { 8 });
        a.last = now;
        if gap <= a.gap {
            return;
        }
        let window = u128::from((now - a.window_begin).as_nanos()).max(1);
        let rate = num::low_u64(u128::from(a.window_bytes) * u128::from(SEC.as_nanos()) / window);
        a.peak = ewma(a.peak, rate, if rate > a.peak { 2 } else { 8 });
        (a.window_bytes, a.window_begin) = (0, now);
        let peak = a.peak;
        if now > Instant::ZERO + RECONFIGURE {
            self.configure((peak * 15) >> 4);
        }
    }

    /// Updates a flow at a packet's arrival: an inactive or decaying flow becomes sparse, and a
    /// sparse flow that waits in the rotation becomes bulk.
    #[inline]
    fn activate(&mut self, at: usize, flow: FlowId, rng: &mut Rng) {
        let isolation = self.params.isolation;
        let tin = &mut self.tins[at];
        match tin.states[flow as usize].set {
            Set::None | Set::Decaying => {
                tin.flows.move_to(flow, FlowList::New);
                tin.count_as(flow, Set::Sparse, isolation);
                tin.flows.get_mut(flow).deficit = tin.quantum(flow, isolation, rng);
            }
            Set::SparseWait => tin.count_as(flow, Set::Bulk, isolation),
            Set::Sparse | Set::Bulk => {}
        }
    }

    /// The tin to serve. With a rate: the highest tin below its threshold, or else the tin that is
    /// due first. Without a rate: the next in a deficit round robin. `None` if no tin has active
    /// flows.
    #[inline]
    fn next_tin(&mut self, now: Instant) -> Option<usize> {
        if self.tins.len() == 1 && self.byte_time.limits() {
            return self.tins[0].busy().then_some(0);
        }
        if !self.byte_time.limits() {
            return self.next_by_deficit();
        }
        let mut best: Option<(usize, Duration)> = None;
        for (i, tin) in self.tins.iter().enumerate() {
            let due = tin.next.saturating_since(now);
            if tin.busy() && best.is_none_or(|(_, first)| due <= first) {
                best = Some((i, due));
            }
        }
        best.map(|(i, _)| i)
    }

    fn next_by_deficit(&mut self) -> Option<usize> {
        let (mut wrapped, mut empty) = (false, true);
        loop {
            let tin = &mut self.tins[self.current];
            let busy = tin.busy();
            if busy && tin.deficit >= 0 {
                return Some(self.current);
            }
            if tin.deficit <= 0 {
                tin.deficit += tin.config.part.quantum;
            }
            empty &= !busy;
            self.current += 1;
            if self.current == self.tins.len() {
                self.current = 0;
                if wrapped && empty {
                    return None;
                }
                wrapped = true;
            }
        }
    }

    /// Serves a tin: returns its next packet, or `None` if a flow was found empty or none is left,
    /// so that the tin must be chosen again.
    #[inline]
    fn serve<D: Drops<P>>(
        &mut self,
        now: Instant,
        at: usize,
        first: &mut bool,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Option<P> {
        let (isolation, ingress) = (self.params.isolation, self.params.ingress);
        while let Some(flow) = self.tins[at].next_flow(std::mem::take(first)) {
            let tin = &mut self.tins[at];
            if tin.flows.get(flow).deficit <= 0 {
                // A flow without credit moves to the rotation, so it does not stay in the set
                // `Sparse`.
                if tin.states[flow as usize].set == Set::Sparse {
                    let set = match tin.flows.get(flow).packets() {
                        0 => Set::SparseWait,
                        _ => Set::Bulk,
                    };
                    tin.count_as(flow, set, isolation);
                }
                let quantum = tin.quantum(flow, isolation, rng);
                tin.flows.get_mut(flow).deficit += quantum;
                tin.flows.move_to(flow, FlowList::Old);
                continue;
            }
            let Some(mut packet) = tin.flows.pop(flow) else {
                tin.found_empty(now, flow, isolation);
                return None;
            };
            // With a shaper after the bottleneck, the law does not act below the transmission time
            // of two full-size packets for each bulk flow.
            let bulk = if ingress { tin.stats.bulk_flows } else { 0 };
            let law = &mut tin.states[flow as usize].law;
            let cause = law.should_drop(&tin.config.cobalt, now, &mut packet, bulk, rng);
            let marked = u64::from(law.ecn_marked);
            let last = tin.flows.get(flow).packets() == 0;
            self.marks += marked;
            self.uncount(&packet);
            // A flow's last packet is never dropped.
            if let Some(cause) = cause.filter(|_| !last) {
                self.tins[at].stats.drops += 1;
                if ingress {
                    self.debit(now, at, flow, packet.len(), true);
                }
                drops.drop(now, packet, cause);
                continue;
            }
            let tin = &mut self.tins[at];
            tin.stats.marks += marked;
            tin.note_departure(packet.len(), now - packet.enqueued());
            self.debit(now, at, flow, packet.len(), false);
            return Some(packet);
        }
        None
    }

    /// Charges a packet to its flow, its tin and the shaper.
    #[inline]
    fn debit(&mut self, now: Instant, at: usize, flow: FlowId, len: u32, dropped: bool) {
        let bytes = self.charge(now, at, len, dropped);
        let tin = &mut self.tins[at];
        tin.flows.get_mut(flow).deficit -= bytes;
        if !self.byte_time.limits() {
            tin.deficit -= bytes;
        }
    }
}

fn config(params: &Params, tin: usize, rate: u64) -> Config {
    let target = params.target.unwrap_or(params.rtt / 20);
    Config::new(params.tins.part(tin, rate), target, params.rtt)
}

impl<P: Packet> Discipline<P> for Cake<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, rng: &mut Rng, drops: &mut D) {
        let labels = drops.labels(&packet);
        let at = diffserv::tin_of(&self.params, &self.map, &labels);
        let tin = &mut self.tins[at];
        let known = tin.flows.count();
        let flow = tin.classify(&packet, &labels, self.params.isolation);
        if flow as usize == known {
            self.subs.push((num::low_u8(at as u64), flow));
        }
        // Idle time gives no credit, but the debt of the last packet remains.
        if tin.flows.is_empty() {
            tin.next = tin.next.max(now);
            if self.packets == 0 && self.next < now {
                (self.next, self.failsafe) = (now, now);
            }
        }
        let len = packet.len();
        tin.flows.push(flow, packet).set_enqueued(now);
        tin.stats.packets += 1;
        tin.stats.bytes += u64::from(len);
        tin.stats.max_len = tin.stats.max_len.max(len);
        self.packets += 1;
        self.bytes += u64::from(len);
        if self.params.ack_filter != AckFilter::Off {
            self.filter_acks(now, at, flow, &packet, drops);
        }
        if self.params.autorate_ingress {
            self.estimate(now, len);
        }
        self.activate(at, flow, rng);
        while self.memory_used() > self.memory && self.drop_one(now, drops) {}
    }

    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        let mut first = true;
        loop {
            if self.packets == 0 {
                return Dequeued::Empty;
            }
            let due = self.next.min(self.failsafe);
            if self.shapes() && due > now {
                return Dequeued::NotBefore(due);
            }
            let Some(tin) = self.next_tin(now) else {
                return Dequeued::Empty;
            };
            if let Some(packet) = self.serve(now, tin, &mut first, rng, drops) {
                return Dequeued::Packet(packet);
            }
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.packets
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn marks(&self) -> u64 {
        self.marks
    }

    fn sub_queues(&self) -> usize {
        self.subs.len()
    }

    fn sub_len(&self, sub_queue: usize) -> u32 {
        self.subs.get(sub_queue).map_or(0, |&(tin, flow)| {
            self.tins[usize::from(tin)].flows.get(flow).packets()
        })
    }

    fn sub_gauges(&self, now: Instant, sub_queue: usize) -> Option<SubGauges> {
        let &(tin, flow) = self.subs.get(sub_queue)?;
        self.tins[usize::from(tin)].flows.gauges(now, flow as usize)
    }

    fn tins(&self) -> Vec<TinGauges> {
        let order = self.params.tins.order().iter();
        order.map(|tin| self.tins[*tin].gauges()).collect()
    }

    /// The rate, if CAKE shapes at a given rate.
    fn knobs(&self) -> KnobSet {
        match self.params.bandwidth {
            Bandwidth::Shaped(_) if !self.params.autorate_ingress => KnobSet::RATE,
            _ => KnobSet::NONE,
        }
    }

    fn set_knobs(&mut self, knobs: &Knobs) {
        if let (Some(rate), true) = (knobs.rate, Discipline::<P>::knobs(self).rate) {
            self.set_bandwidth(Bandwidth::Shaped(rate));
        }
    }

    fn wants(&self) -> Wants {
        Wants {
            labels: true,
            acknowledgments: self.params.ack_filter != AckFilter::Off,
            translated: self.params.nat,
            washed: self.params.wash,
        }
    }

    /// `limit_packets` is the number of full-size packets that the memory holds.
    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        let packets = self.memory / (u64::from(MTU) + PACKET_MEMORY);
        gauges.limit_packets = num::low_u32(packets.min(u64::from(u32::MAX)));
        let heads = self.tins.iter().map(|tin| tin.flows.head_age(now));
        gauges.head_age = heads.max().unwrap_or_default();
        gauges.marks = self.marks;
    }
}

#[cfg(test)]
mod tests;
