//! One direction of an emulated link, without clock or I/O: delay, queue discipline with its controller, rate, loss.
//!
//! Its owner says when packets arrive and what time it is; the link says which packets are through, each with the time at which
//! it should have been. A loop that wakes late is thus late by that once, and never slower than the rate.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use quell_link::bottleneck::{self, Bottleneck, Shaper};
use quell_link::queue::Observer;
use quell_link::record::{Run, Series, mbps};
use quell_link::server::Rate;
use quell_link::words::Queue;
use quell_qdisc::control::guard::Stats;
use quell_qdisc::control::{Clock, Delay, Echo};
use quell_qdisc::discipline::Wants;
use quell_qdisc::{
    Acknowledgment, Discipline, DropCause, Ecn, Knobs, Labels, MS, NEVER, Nanos, Packet, Rng, SEC,
};

use crate::packet::header::Class;
use crate::plane::talkers::{Loudest, Talkers};

/// Bytes of Ethernet's header.
pub const ETHERNET: u32 = 14;

/// Where a limit is in bytes of memory, three of the smallest packets take no more of it than one of full size.
const SMALL: u32 = 3;

/// 100 ms.
const BIN: NonZeroU64 = match NonZeroU64::new(100 * MS) {
    Some(bin) => bin,
    None => NonZeroU64::MIN,
};

/// What a link is.
#[derive(Clone, Debug)]
pub struct Params {
    /// What it offers.
    pub rate: Rate,
    /// The queue.
    pub queue: Queue,
    /// Time from the interface to the queue.
    pub delay: Nanos,
    /// Random loss behind the queue, 0..1.
    pub loss: f64,
    /// Link-layer bytes per packet that count at the rate.
    pub overhead: u32,
    /// A token bucket of this many bytes as Linux's HTB, in place of a line: a packet leaves at once when the bucket is not in
    /// debt, and is charged for.
    pub burst: Option<u32>,
    /// Seed of the discipline's and the loss's random numbers.
    pub seed: u64,
    /// Width of the series' bins, ns.
    pub bin: NonZeroU64,
    /// Flows and hosts are counted ([`Talkers`]).
    pub talkers: bool,
}

impl Params {
    /// A line of `bps` with Ethernet's overhead: no delay, no loss, bins of 100 ms.
    pub fn line(bps: u64, queue: Queue) -> Self {
        Self {
            rate: Rate::Constant(bps),
            queue,
            delay: 0,
            loss: 0.0,
            overhead: ETHERNET,
            burst: None,
            seed: 1,
            bin: BIN,
            talkers: false,
        }
    }
}

/// A packet as the queue sees it; its bytes lie in a place of their owner's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// The place of its bytes.
    pub place: u32,
    /// IP bytes.
    pub bytes: u32,
    /// Keyed flow hash.
    pub hash: u32,
    /// Bytes behind the transport header.
    pub payload: u32,
    ecn: Ecn,
    len: u32,
    enqueued: Nanos,
    labels: Labels,
    /// What it acknowledges, in its link's notes; [`NONE`]: nothing.
    acknowledgment: u32,
}

const NONE: u32 = u32::MAX;

impl Live {
    /// A packet of `bytes` of IP in this place.
    pub fn new(place: u32, bytes: u32, class: &Class) -> Self {
        Self {
            place,
            bytes,
            hash: class.hash,
            payload: class.payload,
            ecn: class.ecn,
            len: bytes,
            enqueued: 0,
            labels: class.labels,
            acknowledgment: NONE,
        }
    }
}

impl Packet for Live {
    #[inline]
    fn len(&self) -> u32 {
        self.len
    }
    #[inline]
    fn flow_hash(&self) -> u32 {
        self.hash
    }
    #[inline]
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    #[inline]
    fn set_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }
    #[inline]
    fn enqueued(&self) -> Nanos {
        self.enqueued
    }
    #[inline]
    fn set_enqueued(&mut self, now: Nanos) {
        self.enqueued = now;
    }
}

/// What a link notes of its packets.
#[derive(Clone, Debug, Default)]
struct Notes {
    /// The places of packets that were given up, for their owner to use again.
    freed: Vec<u32>,
    /// What queued packets acknowledge, and places in it that are free.
    acknowledgments: Vec<Acknowledgment>,
    free: Vec<u32>,
}

impl Notes {
    /// Notes what a packet acknowledges.
    fn keep(&mut self, acknowledgment: Acknowledgment) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.acknowledgments.push(acknowledgment);
            self.acknowledgments.len() as u32 - 1
        });
        self.acknowledgments[place as usize] = acknowledgment;
        place
    }

    fn forget(&mut self, packet: &Live) {
        if packet.acknowledgment != NONE {
            self.free.push(packet.acknowledgment);
        }
    }
}

impl Observer<Live> for Notes {
    #[inline]
    fn departed(&mut self, _now: Nanos, packet: &Live) {
        self.forget(packet);
    }

    fn dropped(&mut self, _now: Nanos, packet: Live, _cause: DropCause) {
        self.forget(&packet);
        self.freed.push(packet.place);
    }

    fn lost(&mut self, _now: Nanos, packet: Live) {
        self.freed.push(packet.place);
    }

    fn labels(&self, packet: &Live) -> Labels {
        packet.labels
    }

    fn acknowledgment(&self, packet: &Live) -> Option<Acknowledgment> {
        let noted = self.acknowledgments.get(packet.acknowledgment as usize);
        noted.copied()
    }
}

/// One direction: a bottleneck with a delay in front.
#[derive(Clone, Debug)]
pub struct LiveLink {
    params: Params,
    /// Packets under way to the queue, each with when it is there.
    wire: VecDeque<(Nanos, Live)>,
    talkers: Option<Box<Talkers>>,
    bottleneck: Bottleneck<Live, Notes>,
    bin_at: Nanos,
    loudest: Loudest,
    series: Series,
    /// Bytes behind transport headers that were delivered: in all, before the present bin, before the record began.
    payload: u64,
    binned_payload: u64,
    warm_payload: u64,
}

/// Upper bounds between which a look counts sojourn times, ns: six to a decade from 0.1 ms to 10 s.
pub const BOUNDS: [Nanos; 31] = {
    let (steps, mut bounds, mut k) = ([10, 15, 22, 33, 47, 68], [0; 31], 0);
    while k < bounds.len() {
        bounds[k] = steps[k % 6] * 10_u64.pow(4 + k as u32 / 6);
        k += 1;
    }
    bounds
};

/// Sojourn times of what left since the link's parameters were changed last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sojourns {
    /// Packets up to each of [`BOUNDS`] and beyond the one before; the last count is of those beyond all.
    pub counts: [u64; BOUNDS.len() + 1],
    /// The sum of their sojourn times.
    pub sum: Nanos,
}

/// Decisions of a controller under guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Decisions {
    /// Asked for.
    pub asked: u64,
    /// Of these, those that were taken.
    pub taken: u64,
    /// Of these, those that came too late: the machine was too slow or too busy.
    pub late: u64,
    /// Times that the classic controller took over.
    pub fallbacks: u64,
    /// Times that it handed back.
    pub handed_back: u64,
}

/// A look at a link while it runs: the last full bin, and totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct View {
    /// Seconds since the start.
    pub now_s: f64,
    /// What the link offered in the bin, Mbit/s; where a controller sets the shaper's rate, that.
    pub capacity_mbps: f64,
    /// What left in the bin, Mbit/s.
    pub throughput_mbps: f64,
    /// Mean sojourn of what left in the bin, ms; none if nothing left.
    pub sojourn_ms: Option<f64>,
    /// Packets queued at its end.
    pub backlog_packets: usize,
    /// Bytes queued at its end.
    pub backlog_bytes: u64,
    /// Packets delivered so far.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped so far.
    pub drops: u64,
    /// Packets marked so far.
    pub marks: u64,
    /// Packets lost by the link so far.
    pub lost: u64,
    /// The limit in force, packets.
    pub limit_packets: u32,
    /// The probability in force.
    pub probability: f64,
    /// Opportunities to send that were missed so far; the loop fills it in.
    pub missed: u64,
    /// What became of a learned controller's decisions since the last change of the link's parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decisions: Option<Decisions>,
    /// The policy inside the queue is in charge, else its guard's stand-in; none where there is no policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted: Option<bool>,
    /// Times in the queue.
    #[serde(skip)]
    pub sojourns: Sojourns,
    /// Who sends most, where that is counted.
    #[serde(skip)]
    pub loudest: Loudest,
}

impl Decisions {
    fn and(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            taken: self.taken + other.taken,
            late: self.late + other.late,
            fallbacks: self.fallbacks + other.fallbacks,
            handed_back: self.handed_back + other.handed_back,
        }
    }
}

impl View {
    /// Both of two links that share a line: totals are sums, the sojourn is the mean over what left, the probability the higher one.
    pub fn and(self, other: Self) -> Self {
        let weighted = |view: &Self| view.sojourn_ms.map(|ms| (ms, view.throughput_mbps));
        let sojourn_ms = match (weighted(&self), weighted(&other)) {
            (Some((one, much)), Some((two, more))) if much + more > 0.0 => {
                Some((one * much + two * more) / (much + more))
            }
            (one, two) => one.or(two).map(|(ms, _)| ms),
        };
        Self {
            now_s: self.now_s.max(other.now_s),
            capacity_mbps: self.capacity_mbps.max(other.capacity_mbps),
            throughput_mbps: self.throughput_mbps + other.throughput_mbps,
            sojourn_ms,
            backlog_packets: self.backlog_packets + other.backlog_packets,
            backlog_bytes: self.backlog_bytes + other.backlog_bytes,
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            drops: self.drops + other.drops,
            marks: self.marks + other.marks,
            lost: self.lost + other.lost,
            limit_packets: self.limit_packets.saturating_add(other.limit_packets),
            probability: self.probability.max(other.probability),
            missed: self.missed + other.missed,
            decisions: match (self.decisions, other.decisions) {
                (Some(one), Some(two)) => Some(one.and(two)),
                (one, two) => one.or(two),
            },
            trusted: match (self.trusted, other.trusted) {
                (Some(one), Some(two)) => Some(one && two),
                (one, two) => one.or(two),
            },
            loudest: self.loudest.and(other.loudest),
            sojourns: Sojourns {
                counts: std::array::from_fn(|k| self.sojourns.counts[k] + other.sojourns.counts[k]),
                sum: self.sojourns.sum + other.sojourns.sum,
            },
        }
    }
}

impl LiveLink {
    /// An idle link at time 0.
    pub fn new(params: Params) -> Self {
        let shaper = params
            .burst
            .map_or(Shaper::Line, |burst| Shaper::Htb { burst });
        let link = bottleneck::Params {
            rate: params.rate.clone(),
            mean_bps: params.rate.mean_bps(60 * SEC),
            shaper,
            nic: 0,
            loss: params.loss,
            overhead: params.overhead,
            framing: None,
            hosts: None,
        };
        let rng = Rng::new(params.seed, "link");
        Self {
            wire: VecDeque::new(),
            talkers: params.talkers.then(Box::default),
            bottleneck: Bottleneck::new(&link, &params.queue, rng, Notes::default()),
            bin_at: params.bin.get(),
            loudest: Loudest::default(),
            series: Series {
                bin_s: params.bin.get() as f64 / SEC as f64,
                ..Series::default()
            },
            payload: 0,
            binned_payload: 0,
            warm_payload: 0,
            params,
        }
    }

    /// Why the queue works no more, where another crate brought it: packets then pass without delay or limit.
    pub fn failure(&self) -> Option<&str> {
        self.bottleneck.queue.discipline().failure()
    }

    /// From now on decisions of a guarded controller are timed on this clock. One that comes later than a period after it was
    /// due, or takes longer, is not taken: the guard's classic controller decides.
    pub fn time_decisions(&mut self, clock: Clock) {
        if let Some(controller) = self.bottleneck.queue.controller_mut() {
            controller.time_decisions(clock);
        }
    }

    /// What a guard did, where there is one.
    pub fn guard(&self) -> Option<&Stats> {
        self.bottleneck.queue.guard()
    }

    /// What the queue asks of its packets' owner.
    pub fn wants(&self) -> Wants {
        self.bottleneck.queue.discipline().wants()
    }

    /// Notes who sends so many bytes that come in.
    #[inline]
    pub fn heard(&mut self, now: Nanos, class: &Class, bytes: u32) {
        if let Some(talkers) = &mut self.talkers {
            talkers.heard(now, class.tuple, bytes.into());
        }
    }

    /// A packet comes in that acknowledges something to whom a filter of ACKs may listen.
    pub fn arrive_with(
        &mut self,
        now: Nanos,
        packet: Live,
        acknowledgment: Option<Acknowledgment>,
    ) {
        let notes = &mut self.bottleneck.queue.probe.observer;
        let acknowledgment = acknowledgment.map_or(NONE, |ack| notes.keep(ack));
        let packet = Live {
            acknowledgment,
            ..packet
        };
        self.arrive(now, packet);
    }

    /// A packet comes in.
    pub fn arrive(&mut self, now: Nanos, mut packet: Live) {
        packet.len = packet.bytes + self.params.overhead;
        self.wire.push_back((now + self.params.delay, packet));
    }

    /// When something happens here next.
    pub fn next(&self) -> Nanos {
        let control = self.bottleneck.queue.decide_at.min(self.bin_at);
        self.next_send().min(control)
    }

    /// When the packet on the line is through, or may be asked for; the loop should be awake then.
    pub fn next_send(&self) -> Nanos {
        let arrival = self.wire.front().map_or(NEVER, |w| w.0);
        self.bottleneck.next.min(arrival)
    }

    /// A probe has come back, which the controller may want to know.
    pub fn on_probe(&mut self, now: Nanos, probe: &Echo) {
        self.bottleneck.on_probe(now, probe);
    }

    /// The traffic's own segments have shown this delay, which the controller may want to know.
    pub fn on_delay(&mut self, now: Nanos, delay: &Delay) {
        self.bottleneck.on_delay(now, delay);
    }

    /// Does all that is due by `now`, in the order of its times; at the same time in the simulator's order (bins, decisions,
    /// departures, arrivals). `out` gets each packet that is through, and when it was.
    pub fn advance(&mut self, now: Nanos, mut out: impl FnMut(Nanos, Live)) {
        loop {
            let time = self.next();
            if time > now {
                return;
            }
            if self.bin_at == time {
                self.close_bin(time);
            } else if self.bottleneck.queue.decide_at == time {
                self.bottleneck.decide(time, |_| ());
            } else if self.bottleneck.next == time {
                if let Some(packet) = self.bottleneck.event(time) {
                    self.payload += u64::from(packet.payload);
                    out(time, packet);
                }
            } else if let Some((_, packet)) = self.wire.pop_front() {
                if self.failure().is_some() {
                    self.bottleneck.queue.probe.observer.forget(&packet);
                    self.payload += u64::from(packet.payload);
                    out(time, packet);
                } else {
                    self.bottleneck.enqueue(time, packet.len, || packet);
                }
            }
        }
    }

    /// Takes the place of a packet that was dropped or lost, for its owner to use again.
    pub fn freed(&mut self) -> Option<u32> {
        self.bottleneck.queue.probe.observer.freed.pop()
    }

    /// A bin of the series is full.
    fn close_bin(&mut self, now: Nanos) {
        let width = now - (self.bin_at - self.params.bin.get());
        self.bin_at = now + self.params.bin.get();
        self.bottleneck.close_bin(now, width, &mut self.series);
        if let Some(talkers) = &mut self.talkers {
            self.loudest = talkers.loudest(now);
        }
        let payload = self.payload - std::mem::replace(&mut self.binned_payload, self.payload);
        self.series.goodput_mbps.resize(1, Vec::new());
        self.series.goodput_mbps[0].push(mbps(payload as f64, width));
    }

    /// Lets the record begin now; with `series` the time series, too.
    pub fn restart(&mut self, now: Nanos, series: bool) {
        self.bottleneck.restart(now);
        self.warm_payload = self.payload;
        if series {
            self.bin_at = now + self.params.bin.get();
            self.binned_payload = self.payload;
            self.bottleneck.begin_bin(now);
            self.series = Series {
                bin_s: self.series.bin_s,
                ..Series::default()
            };
        }
    }

    /// The record up to `now`. Goodput counts what is behind the transport headers, retransmissions included: a queue cannot
    /// distinguish them. What only end points can measure (flows, RTT) is empty, as are the run's name and cost.
    pub fn record(&mut self, now: Nanos) -> Run {
        let run = self.bottleneck.record(now, std::iter::empty());
        let span = now - self.bottleneck.queue.probe.meter.since();
        Run {
            queue: self.params.queue.canonical(),
            seed: self.params.seed,
            goodput_mbps: mbps((self.payload - self.warm_payload) as f64, span.max(1)),
            series: Some(self.series.clone()),
            ..run
        }
    }

    /// The last full bin and the totals.
    pub fn view(&self) -> View {
        let s = &self.series;
        let queue = &self.bottleneck.queue;
        let c = &queue.probe.meter.counters;
        let last = |v: &[f64]| v.last().copied().unwrap_or_default();
        let mut sojourns = Sojourns {
            sum: queue.probe.meter.measured().sojourn_sum,
            ..Sojourns::default()
        };
        let counted = &queue.probe.meter.sojourns;
        counted.count_between(&BOUNDS, &mut sojourns.counts);
        View {
            now_s: (self.bin_at - self.params.bin.get()) as f64 / SEC as f64,
            capacity_mbps: queue
                .rate_bps()
                .map_or(last(&s.capacity_mbps), |bps| bps as f64 / 1e6),
            throughput_mbps: last(&s.throughput_mbps),
            sojourn_ms: s.sojourn_ms.last().copied().flatten(),
            backlog_packets: queue.len(),
            backlog_bytes: queue.discipline().bytes(),
            packets: c.departures,
            bytes: c.departed_bytes,
            drops: c.drops.total(),
            marks: queue.discipline().marks(),
            lost: c.drops.link,
            limit_packets: last(&s.limit_packets) as u32,
            probability: last(&s.probability),
            missed: 0,
            decisions: self.guard().map(|stats| Decisions {
                asked: stats.decisions,
                taken: stats.learned,
                late: stats.late + stats.stale,
                fallbacks: stats.fallbacks,
                handed_back: stats.handed_back,
            }),
            trusted: queue.discipline().policy().map(|policy| policy.trusted),
            loudest: self.loudest,
            sojourns,
        }
    }

    /// Discards all bins of the series except the last, so that memory stays bounded on a link that runs for months.
    pub fn forget(&mut self) {
        fn last<T>(v: &mut Vec<T>) {
            v.drain(..v.len().saturating_sub(1));
        }
        let s = &mut self.series;
        last(&mut s.backlog_ms);
        last(&mut s.throughput_mbps);
        last(&mut s.capacity_mbps);
        last(&mut s.sojourn_ms);
        last(&mut s.drops);
        last(&mut s.marks);
        last(&mut s.limit_packets);
        last(&mut s.probability);
        s.policy = None;
        s.goodput_mbps.iter_mut().for_each(last);
    }

    /// The limit in force, packets; 0 where the discipline has none that it shows.
    pub fn limit_packets(&self) -> u32 {
        let now = self.bin_at - self.params.bin.get();
        self.bottleneck.queue.positions(now).0
    }

    /// Packets that the queue may hold at most. One whose limit is memory holds more packets where they are small.
    pub fn most_packets(&self) -> u32 {
        let limit = self.limit_packets();
        match self.bottleneck.queue.discipline().knobs().limit {
            true => limit,
            false => limit.saturating_mul(SMALL),
        }
    }

    /// From `now` on, lets the queue hold at most so many packets, where its discipline has a limit in packets: it then chooses what is dropped, not
    /// the pool that packets lie in.
    pub fn hold_at_most(&mut self, now: Nanos, packets: u32) {
        if self.bottleneck.queue.discipline().knobs().limit && self.limit_packets() > packets {
            let knobs = Knobs {
                limit_packets: Some(packets),
                ..Knobs::KEEP
            };
            self.bottleneck.set_knobs(now, None, &knobs);
        }
    }

    /// What the link is.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The series so far.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// The rate now, bit/s.
    pub fn rate_bps(&self, now: Nanos) -> u64 {
        self.bottleneck.rate_bps(now)
    }

    /// Packets in the queue.
    pub fn backlog(&self) -> usize {
        self.bottleneck.queue.len()
    }

    /// Packets that are in it: on the wire, queued, on the line.
    pub fn inside(&self) -> usize {
        self.wire.len() + self.bottleneck.inside()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use quell_link::words;
    use quell_qdisc::outside::Handle;
    use quell_qdisc::{Drops, Got, Rng};

    fn params(words: &str, bps: u64) -> Params {
        Params::line(bps, Queue::parse(words).unwrap())
    }

    fn live(place: u32, bytes: u32, flow: u32, ecn: Ecn) -> Live {
        let class = Class {
            hash: flow.wrapping_mul(0x9e37_79b9),
            ecn,
            payload: bytes.saturating_sub(40),
            ..Class::default()
        };
        Live::new(place, bytes, &class)
    }

    #[test]
    fn packets_are_through_when_delay_and_rate_have_it_however_late_the_loop_is() {
        // 986 + 14 bytes at 8 Mbit/s take 1 ms.
        let mut link = LiveLink::new(Params {
            delay: 5 * MS,
            ..params("pfifo", 8_000_000)
        });
        for (at, place) in [(0, 0), (0, 1), (10 * MS, 2)] {
            link.arrive(at, live(place, 986, 0, Ecn::NotEct));
        }
        let mut out = Vec::new();
        assert_eq!(link.next(), 5 * MS);
        link.advance(6 * MS, |due, p| out.push((due, p.place)));
        link.advance(100 * MS, |due, p| out.push((due, p.place)));
        assert_eq!(out, [(6 * MS, 0), (7 * MS, 1), (16 * MS, 2)]);
        let record = crate::plane::report::Record::new(
            "down",
            &mut link,
            100 * MS,
            0.0,
            Default::default(),
            &quell_link::Hist::new(),
        );
        assert_eq!(record.run.packets, 3);
        assert_eq!(record.run.throughput_mbps, 3.0 * 1000.0 * 8.0 / 1e5);
        assert_eq!(record.run.goodput_mbps, 3.0 * 946.0 * 8.0 / 1e5);
        // The second waited for 1 ms.
        assert!((record.run.sojourn_ms.mean - 1.0 / 3.0).abs() < 1e-9);
    }

    /// A FIFO that loses its third packet.
    #[derive(Clone, Debug, Default)]
    struct Leaky(VecDeque<Handle>, u64, u32);

    impl Discipline<Handle> for Leaky {
        fn enqueue<D: Drops<Handle>>(&mut self, _: Nanos, p: Handle, _: &mut Rng, _: &mut D) {
            self.2 += 1;
            if self.2 != 3 {
                self.1 += u64::from(p.len());
                self.0.push_back(p);
            }
        }
        fn dequeue<D: Drops<Handle>>(&mut self, _: Nanos, _: &mut Rng, _: &mut D) -> Got<Handle> {
            let Some(packet) = self.0.pop_front() else {
                return Got::Empty;
            };
            self.1 -= u64::from(packet.len());
            Got::Packet(packet)
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn bytes(&self) -> u64 {
            self.1
        }
    }

    /// A queue of another crate that fails with its third packet.
    pub fn leaky() -> Queue {
        Queue::outside("leaky", |_| Leaky::default()).unwrap()
    }

    #[test]
    fn packets_pass_a_queue_from_outside_that_has_failed() {
        let mut link = LiveLink::new(Params::line(8_000_000, leaky()));
        let mut out = Vec::new();
        for place in 0..6 {
            link.arrive(10, live(place, 986, 0, Ecn::NotEct));
        }
        link.advance(100 * MS, |_, p| out.push(p.place));
        // The first was on the line; the queue fails with the third.
        assert_eq!(
            link.failure().map(|why| &why[..16]),
            Some("leaky says that ")
        );
        assert_eq!(out, [3, 4, 5, 0]);
        let mut freed: Vec<_> = std::iter::from_fn(|| link.freed()).collect();
        freed.sort_unstable();
        assert_eq!(freed, [1, 2]);
        link.arrive(200 * MS, live(9, 986, 0, Ecn::NotEct));
        let mut late = Vec::new();
        link.advance(300 * MS, |due, p| late.push((due, p.place)));
        assert_eq!(late, [(200 * MS, 9)]);
    }

    #[test]
    fn a_limit_set_late_counts_from_then_on_in_the_mean() {
        let mut link = LiveLink::new(params("fixed limit 100", 8_000_000));
        link.advance(SEC, |_, _| ());
        link.hold_at_most(SEC, 10);
        let mean = link.record(2 * SEC).limit_packets.expect("a mean limit");
        assert!((mean - 55.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn a_token_bucket_lets_a_burst_through_and_keeps_the_packet_that_is_paid_for_queued() {
        // 986 + 14 bytes at 8 Mbit/s take 1 ms; the bucket holds 1.6 ms.
        let mut link = LiveLink::new(Params {
            burst: Some(1600),
            ..params("pfifo", 8_000_000)
        });
        for place in 0..4 {
            link.arrive(0, live(place, 986, 0, Ecn::NotEct));
        }
        let mut out = Vec::new();
        link.advance(2 * MS, |due, p| out.push((due, p.place)));
        assert_eq!(out, [(0, 0), (0, 1), (MS * 2 / 5, 2), (MS * 7 / 5, 3)]);
        assert_eq!(link.inside(), 0);
    }

    #[test]
    fn controllers_decide_on_their_cadence_also_when_nothing_moves() {
        let mut link = LiveLink::new(params("learnqueue initial 20 max 100", 12_000_000));
        let mut times = Vec::new();
        while link.next() < 50 * MS {
            let next = link.next();
            link.advance(next, |_, _| ());
            times.push(next);
        }
        assert_eq!(times, [15 * MS, 30 * MS, 45 * MS]);
    }

    #[test]
    fn a_guard_does_not_take_decisions_of_a_loop_that_is_late() {
        let decide = |late: u64| {
            let mut link = LiveLink::new(params("rlaqm guard", 12_000_000));
            link.time_decisions(std::sync::Arc::new(move || late));
            link.advance(100 * MS, |_, _| ());
            *link.guard().unwrap()
        };
        // RL-AQM decides every 20 ms; these are asked for 100 ms ahead of the clock, then 10 s behind it.
        let calm = decide(0);
        assert_eq!((calm.decisions, calm.learned, calm.fallbacks), (5, 5, 0));
        let late = decide(10 * SEC);
        assert_eq!((late.learned, late.stale, late.fallbacks), (0, 5, 1));
    }

    #[test]
    fn a_series_has_every_bin() {
        let mut link = LiveLink::new(params("codel", 12_000_000));
        for k in 0..1000 {
            link.arrive(k * MS / 2, live(k as u32, 1486, 0, Ecn::Ect0));
            link.advance(k * MS / 2, |_, _| ());
            while link.freed().is_some() {}
        }
        link.advance(SEC, |_, _| ());
        let s = link.series();
        assert_eq!(
            (s.drops.len(), s.marks.len(), s.backlog_ms.len()),
            (10, 10, 10)
        );
        assert!((s.throughput_mbps[2] - 12.0).abs() < 0.2, "{s:?}");
        assert_eq!(s.capacity_mbps[9], 12.0);
        let view = link.view();
        assert_eq!(
            view.marks + view.drops,
            s.marks.iter().sum::<u64>() + s.drops.iter().sum::<u64>()
        );
    }

    #[test]
    fn a_record_that_begins_again_knows_nothing_of_before() {
        let mut link = LiveLink::new(params("pfifo limit 5", 8_000_000));
        let run = |link: &mut LiveLink, from: Nanos| {
            for k in 0..200 {
                // One more than fits now and then.
                for _ in 0..1 + u32::from(k % 50 == 0) * 9 {
                    link.arrive(from + k * MS, live(0, 986, 0, Ecn::NotEct));
                }
                link.advance(from + k * MS, |_, _| ());
            }
            while link.freed().is_some() {}
        };
        let record = |link: &mut LiveLink, now| {
            let late = quell_link::Hist::new();
            crate::plane::report::Record::new("down", link, now, 0.0, Default::default(), &late).run
        };
        run(&mut link, 0);
        link.advance(250 * MS, |_, _| ());
        link.restart(250 * MS, true);
        run(&mut link, 250 * MS);
        link.advance(500 * MS, |_, _| ());
        let again = record(&mut link, 500 * MS);
        let mut fresh = LiveLink::new(params("pfifo limit 5", 8_000_000));
        run(&mut fresh, 0);
        fresh.advance(250 * MS, |_, _| ());
        let once = record(&mut fresh, 250 * MS);
        assert_eq!(again.measured_s, once.measured_s);
        assert_eq!((again.packets, again.drops), (once.packets, once.drops));
        assert_eq!(again.goodput_mbps, once.goodput_mbps);
        assert!(once.drops > 0);
        assert_eq!(again.sojourn_ms, once.sojourn_ms);
        assert_eq!(again.utilisation, once.utilisation);
        assert_eq!(again.series, once.series);
    }

    #[test]
    fn an_ack_filter_drops_what_later_acks_repeat_and_notes_are_used_again() {
        let mut link = LiveLink::new(params("cake ack-filter", 1_000_000));
        assert!(link.wants().acknowledgments && link.wants().labels);
        let (mut sent, mut freed) = (0, 0);
        for number in 0..1000u32 {
            let now = Nanos::from(number) * MS / 10;
            let ack = Acknowledgment {
                pure: true,
                number,
                ..Acknowledgment::default()
            };
            link.arrive_with(now, live(number, 52, 1, Ecn::NotEct), Some(ack));
            link.advance(now, |_, _| sent += 1);
            freed += std::iter::from_fn(|| link.freed()).count();
        }
        // 66 bytes take 0.53 ms, five arrivals: one in five is sent.
        assert!((180..200).contains(&sent), "{sent}");
        assert!(freed > 790, "{freed}");
        let notes = &link.bottleneck.queue.probe.observer;
        assert!(notes.acknowledgments.len() < 10);
    }

    /// A packet's gap to the one before in µs, its size, flow, and ECN field; how long the loop then sleeps, µs.
    type Step = (u64, u32, u32, u8, u64);

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = (0..3000u64, 20..1500u32, 0..4u32, 0..4u8, 0..20_000u64);
        proptest::collection::vec(step, 1..300)
    }

    fn kinds() -> Vec<String> {
        words::catalogue()
            .iter()
            .map(|k| k.name.to_owned())
            .collect()
    }

    /// What leaves (when, place), and what was given up.
    fn drive(
        words: &str,
        steps: &[Step],
        loss: f64,
        sleepy: bool,
    ) -> (Vec<(Nanos, Live)>, Vec<u32>, usize) {
        let mut link = LiveLink::new(Params {
            delay: MS,
            loss,
            ..params(words, 5_000_000)
        });
        let (mut out, mut freed, mut now) = (Vec::new(), Vec::new(), 0);
        for (place, &(gap, bytes, flow, ecn, sleep)) in steps.iter().enumerate() {
            now += gap * 1000;
            link.arrive(now, live(place as u32, bytes, flow, Ecn::from_bits(ecn)));
            // A loop that sleeps wakes for the next packet at the latest.
            let awake = !sleepy || sleep < 2000;
            if awake {
                link.advance(now, |due, p| out.push((due, p)));
            }
            freed.extend(std::iter::from_fn(|| link.freed()));
        }
        link.advance(now + 500 * MS, |due, p| out.push((due, p)));
        freed.extend(std::iter::from_fn(|| link.freed()));
        (out, freed, link.inside())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn every_packet_leaves_or_is_given_up_once_and_flows_keep_their_order(
            steps in steps(), kind in proptest::sample::select(kinds()), loss in prop_oneof![Just(0.0), Just(0.1)],
        ) {
            let (out, freed, inside) = drive(&kind, &steps, loss, false);
            let mut places: Vec<u32> = out.iter().map(|(_, p)| p.place).chain(freed).collect();
            prop_assert_eq!(places.len() + inside, steps.len());
            places.sort_unstable();
            places.dedup();
            prop_assert_eq!(places.len() + inside, steps.len(), "one left twice");
            prop_assert!(out.windows(2).all(|w| w[0].0 <= w[1].0));
            // DualPI2 and CAKE may put packets of one flow with different ECN fields into different queues.
            for flow in 0..4u32 {
                for ecn in [Ecn::NotEct, Ecn::Ect0] {
                    let of = |k: &u32| {
                        let (_, _, f, e, _) = steps[*k as usize];
                        f == flow && Ecn::from_bits(e) == ecn
                    };
                    let order: Vec<u32> = out.iter().map(|(_, p)| p.place).filter(of).collect();
                    prop_assert!(order.is_sorted(), "{kind}: {order:?}");
                }
            }
        }

        #[test]
        fn a_loop_that_sleeps_loses_no_time(steps in steps(), kind in proptest::sample::select(kinds())) {
            let (punctual, ..) = drive(&kind, &steps, 0.0, false);
            let (sleepy, ..) = drive(&kind, &steps, 0.0, true);
            prop_assert_eq!(punctual, sleepy);
        }
    }
}
