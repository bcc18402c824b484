//! One direction of an emulated link, without clock or I/O: delay, queue discipline with its
//! controller, rate, loss.
//!
//! Its owner says when packets arrive and what time it is; the link says which packets are through,
//! each with the time at which it should have been. A loop that wakes late is thus late by that
//! once, and never slower than the rate.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use quell_link::bottleneck::{self, Bottleneck, Shaper};
use quell_link::queue::Observer;
use quell_link::record::{Run, Series, mbps};
use quell_link::server::Rate;
use quell_link::words::Queue;
use quell_qdisc::control::guard::Stats;
use quell_qdisc::control::learnqueue::Table;
use quell_qdisc::control::{Clock, Delay, Echo};
use quell_qdisc::discipline::Wants;
use quell_qdisc::{
    Acknowledgment, Discipline, DropCause, Ecn, Knobs, Labels, MS, NEVER, Nanos, Packet, Rng, SEC,
    num,
};

use crate::packet::header::Class;
use crate::plane::talkers::{Talkers, TopTalkers};

/// Bytes of Ethernet's header.
pub const ETHERNET: u32 = 14;

/// Where a limit is in bytes of memory, three of the smallest packets take no more of it than one
/// of full size.
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
    /// A token bucket of this many bytes as Linux's HTB, in place of a line: a packet leaves at
    /// once when the bucket is not in debt, and is charged for.
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
            num::count(self.acknowledgments.len()) - 1
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
    top_talkers: TopTalkers,
    series: Series,
    /// Bytes behind transport headers that were delivered: in all, before the present bin, before
    /// the record began.
    payload: u64,
    binned_payload: u64,
    warm_payload: u64,
}

/// Upper bounds between which a look counts sojourn times, ns: six to a decade from 0.1 ms to 10 s.
pub const BOUNDS: [Nanos; 31] = {
    let (steps, mut bounds, mut k) = ([10, 15, 22, 33, 47, 68], [0; 31], 0);
    while k < bounds.len() {
        bounds[k] = steps[k % 6] * 10_u64.pow(4 + num::count(k) / 6);
        k += 1;
    }
    bounds
};

/// Sojourn times of what left since the link's parameters were changed last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sojourns {
    /// Packets up to each of [`BOUNDS`] and beyond the one before; the last count is of those
    /// beyond all.
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
    /// What became of a learned controller's decisions since the last change of the link's
    /// parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decisions: Option<Decisions>,
    /// The policy inside the queue is in charge, else its guard's stand-in; none where there is no
    /// policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted: Option<bool>,
    /// Times in the queue.
    #[serde(skip)]
    pub sojourns: Sojourns,
    /// Who sends most, where that is counted.
    #[serde(skip)]
    pub top_talkers: TopTalkers,
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
    /// Both of two links that share a line: totals are sums, the sojourn is the mean over what
    /// left, the probability the higher one.
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
            top_talkers: self.top_talkers.and(other.top_talkers),
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
            top_talkers: TopTalkers::default(),
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

    /// Why the queue works no more, where another crate brought it: packets then pass without delay
    /// or limit.
    pub fn failure(&self) -> Option<&str> {
        self.bottleneck.queue.discipline().failure()
    }

    /// From now on decisions of a guarded controller are timed on this clock. One that comes later
    /// than a period after it was due, or takes longer, is not taken: the guard's classic
    /// controller decides.
    pub fn time_decisions(&mut self, clock: Clock) {
        if let Some(controller) = self.bottleneck.queue.controller_mut() {
            controller.time_decisions(clock);
        }
    }

    /// What LearnQueue has learned, where it sets the limit.
    pub fn learned(&self) -> Option<Table> {
        self.bottleneck.queue.controller()?.learned()
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

    /// Does all that is due by `now`, in the order of its times; at the same time in the
    /// simulator's order (bins, decisions, departures, arrivals). `out` gets each packet that is
    /// through, and when it was.
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
            self.top_talkers = talkers.top(now);
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

    /// The record up to `now`. Goodput counts what is behind the transport headers, retransmissions
    /// included: a queue cannot distinguish them. What only end points can measure (flows, RTT) is
    /// empty, as are the run's name and cost.
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
            limit_packets: num::whole_u32(last(&s.limit_packets)),
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
            top_talkers: self.top_talkers,
            sojourns,
        }
    }

    /// Discards all bins of the series except the last, so that memory stays bounded on a link that
    /// runs for months.
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

    /// Packets that the queue may hold at most. One whose limit is memory holds more packets where
    /// they are small.
    pub fn most_packets(&self) -> u32 {
        let limit = self.limit_packets();
        match self.bottleneck.queue.discipline().knobs().limit {
            true => limit,
            false => limit.saturating_mul(SMALL),
        }
    }

    /// From `now` on, lets the queue hold at most so many packets, where its discipline has a limit
    /// in packets: it then chooses what is dropped, not the pool that packets lie in.
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
pub(crate) mod tests;
