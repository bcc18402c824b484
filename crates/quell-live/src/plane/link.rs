//! One direction of an emulated link: delay, queue discipline with its controller, rate, loss. It
//! has no clock and no I/O.
//!
//! The owner passes in arrivals and the present time. The link returns each packet that has left,
//! with the time at which it should have left. A loop that wakes late thus delays packets once, but
//! never lowers the rate.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use quell_link::bottleneck::{self, Bottleneck, Shaper};
use quell_link::queue::Observer;
use quell_link::record::{Run, Series, mbps};
use quell_link::server::Capacity;
use quell_link::words::Queue;
use quell_qdisc::control::guard::Stats;
use quell_qdisc::control::{Clock, Control, Delay, Echo, LearnedState};
use quell_qdisc::discipline::Wants;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, NEVER, SEC};
use quell_qdisc::{Acknowledgment, Discipline, DropCause, Ecn, Knobs, Labels, Packet, Rng, num};

use crate::packet::header::Class;
use crate::plane::talkers::{Talkers, TopTalkers};

/// Ethernet header, bytes.
pub const ETHERNET: u32 = 14;

/// Small packets per full-size packet under a limit in bytes of memory: three of the smallest take
/// no more memory than one of full size.
const SMALL: u32 = 3;

/// Default width of the series' bins: 100 ms.
const BIN: NonZeroU64 = match NonZeroU64::new(100_000_000) {
    Some(bin) => bin,
    None => NonZeroU64::MIN,
};

/// Parameters of a link.
#[derive(Clone, Debug)]
pub struct Params {
    /// Rate of the line.
    pub rate: Capacity,
    /// Queue words.
    pub queue: Queue,
    /// Delay before the queue.
    pub delay: Duration,
    /// Probability of random loss behind the queue, 0..1.
    pub loss: f64,
    /// Link-layer bytes per packet that the rate includes.
    pub overhead: u32,
    /// Size of a token bucket as in Linux's HTB, bytes, in place of a line: a packet leaves at once
    /// if the bucket is not in debt, and its bytes are then taken from the bucket. `None`: a line.
    pub burst: Option<u32>,
    /// Seed of the random numbers for the discipline and for losses.
    pub seed: u64,
    /// Width of the series' bins, ns.
    pub bin: NonZeroU64,
    /// Whether flows and hosts are counted ([`Talkers`]).
    pub talkers: bool,
}

impl Params {
    /// A line of this rate with Ethernet's overhead: no delay, no loss, bins of 100 ms.
    pub fn line(rate: Rate, queue: Queue) -> Self {
        Self {
            rate: Capacity::Constant(rate),
            queue,
            delay: Duration::ZERO,
            loss: 0.0,
            overhead: ETHERNET,
            burst: None,
            seed: 1,
            bin: BIN,
            talkers: false,
        }
    }

    /// Width of the series' bins.
    pub fn bin(&self) -> Duration {
        Duration::from_nanos(self.bin.get())
    }
}

/// A packet as the queue sees it. Its bytes are in the owner's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Number of the bytes' place in the pool.
    pub place: u32,
    /// Length from the IP header on, bytes.
    pub bytes: u32,
    /// Keyed flow hash.
    pub hash: u32,
    /// Bytes behind the transport header.
    pub payload: u32,
    ecn: Ecn,
    /// Length that is charged, bytes; from its arrival on with the link's overhead.
    len: u32,
    enqueued: Instant,
    labels: Labels,
    /// Index of its acknowledgment in the link's notes; [`NONE`]: none.
    acknowledgment: u32,
}

const NONE: u32 = u32::MAX;

impl Live {
    /// A packet of `bytes` bytes of IP in this place of the pool.
    pub fn new(place: u32, bytes: u32, class: &Class) -> Self {
        Self {
            place,
            bytes,
            hash: class.hash,
            payload: class.payload,
            ecn: class.ecn,
            len: bytes,
            enqueued: Instant::ZERO,
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
    fn enqueued(&self) -> Instant {
        self.enqueued
    }
    #[inline]
    fn set_enqueued(&mut self, now: Instant) {
        self.enqueued = now;
    }
}

/// What a link records of its packets.
#[derive(Clone, Debug, Default)]
struct Notes {
    /// Places of dropped or lost packets, for the owner to reuse.
    freed: Vec<u32>,
    /// Acknowledgments of queued packets, and free indices in that list.
    acknowledgments: Vec<Acknowledgment>,
    free: Vec<u32>,
}

impl Notes {
    /// Stores a packet's acknowledgment; returns its index.
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
    fn departed(&mut self, _now: Instant, packet: &Live) {
        self.forget(packet);
    }

    fn dropped(&mut self, _now: Instant, packet: Live, _cause: DropCause) {
        self.forget(&packet);
        self.freed.push(packet.place);
    }

    fn lost(&mut self, _now: Instant, packet: Live) {
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

/// One direction of a link: a delay, then a bottleneck.
#[derive(Clone, Debug)]
pub struct LiveLink {
    params: Params,
    /// Packets on their way to the queue, with their arrival times there.
    wire: VecDeque<(Instant, Live)>,
    talkers: Option<Box<Talkers>>,
    bottleneck: Bottleneck<Live, Notes>,
    bin_at: Instant,
    top_talkers: TopTalkers,
    series: Series,
    /// Delivered bytes behind transport headers: in total, before the present bin, before the
    /// record began.
    payload: u64,
    binned_payload: u64,
    warm_payload: u64,
}

/// Upper bounds of the bins in which a [`View`] counts sojourn times, ns: six per decade from 0.1
/// ms to 10 s.
pub const BOUNDS: [u64; 31] = {
    let (steps, mut bounds, mut k) = ([10, 15, 22, 33, 47, 68], [0; 31], 0);
    while k < bounds.len() {
        bounds[k] = steps[k % 6] * 10_u64.pow(4 + num::count(k) / 6);
        k += 1;
    }
    bounds
};

/// Sojourn times of packets that left since the link's parameters last changed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sojourns {
    /// Packets at or below each of [`BOUNDS`] and above the one before; the last count has those
    /// above all.
    pub counts: [u64; BOUNDS.len() + 1],
    /// Sum of their sojourn times.
    pub sum: Duration,
}

/// Counters of a guarded controller's decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Decisions {
    /// Decisions requested.
    pub asked: u64,
    /// Requested decisions that were applied.
    pub taken: u64,
    /// Requested decisions that came too late, because the machine was too slow or too busy.
    pub late: u64,
    /// Times that the guard's classic controller took over.
    pub fallbacks: u64,
    /// Times that the classic controller handed back.
    pub handed_back: u64,
}

/// State of a running link: the last full bin, and totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct View {
    /// End of the bin, seconds since the start.
    pub now_s: f64,
    /// Rate of the link in the bin, Mbit/s; if a controller sets the shaper's rate, that rate.
    pub capacity_mbps: f64,
    /// Throughput in the bin, Mbit/s.
    pub throughput_mbps: f64,
    /// Mean sojourn time of packets that left in the bin, ms; `None` if no packet left.
    pub sojourn_ms: Option<f64>,
    /// Packets queued at the end of the bin.
    pub backlog_packets: usize,
    /// Bytes queued at the end of the bin.
    pub backlog_bytes: u64,
    /// Packets delivered so far.
    pub packets: u64,
    /// Bytes delivered so far.
    pub bytes: u64,
    /// Packets dropped so far.
    pub drops: u64,
    /// Packets marked so far.
    pub marks: u64,
    /// Packets lost by the link so far.
    pub lost: u64,
    /// Present limit, packets.
    pub limit_packets: u32,
    /// Present drop or mark probability, 0..1.
    pub probability: f64,
    /// Missed opportunities to send so far; set by the loop.
    pub missed: u64,
    /// Decisions of a learned controller since the link's parameters last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decisions: Option<Decisions>,
    /// Whether the queue's policy is in charge (true) or its guard's substitute (false); `None`
    /// without a policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted: Option<bool>,
    /// Sojourn times.
    #[serde(skip)]
    pub sojourns: Sojourns,
    /// Flows and hosts that send most, if they are counted.
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
    /// Combines the views of two links that share a line: totals are added, the sojourn time is the
    /// mean weighted by throughput, the probability is the higher one.
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
            mean_rate: params.rate.mean_rate(60 * SEC),
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
            bin_at: Instant::ZERO + params.bin(),
            top_talkers: TopTalkers::default(),
            series: Series {
                bin_s: params.bin().as_secs_f64(),
                ..Series::default()
            },
            payload: 0,
            binned_payload: 0,
            warm_payload: 0,
            params,
        }
    }

    /// Why a queue of another crate has failed; packets then pass without delay or limit.
    pub fn failure(&self) -> Option<&str> {
        self.bottleneck.queue.discipline().failure()
    }

    /// Times the decisions of a guarded controller on this clock from now on. A decision that
    /// starts more than a period after it was due, or takes longer than a period, is not applied:
    /// the guard's classic controller decides instead.
    pub fn time_decisions(&mut self, clock: Clock) {
        if let Some(controller) = self.controller_mut() {
            controller.time_decisions(clock);
        }
    }

    /// The controller of the queue.
    pub fn controller_mut(&mut self) -> Option<&mut Box<dyn Control>> {
        self.bottleneck.queue.controller_mut()
    }

    /// What the controller has learned, if it learns while it serves.
    pub fn learned(&self) -> Option<LearnedState> {
        self.bottleneck.queue.controller()?.learned()
    }

    /// Makes the controller, at time 0, continue from what the controller of the link `before` knew
    /// of the line.
    pub fn resume(&mut self, before: &Self) {
        let queue = &mut self.bottleneck.queue;
        queue.resume(Instant::ZERO, &before.bottleneck.queue);
    }

    /// The guard's counters, if the controller has a guard.
    pub fn guard(&self) -> Option<&Stats> {
        self.bottleneck.queue.guard()
    }

    /// What the queue requires of the owner of its packets.
    pub fn wants(&self) -> Wants {
        self.bottleneck.queue.discipline().wants()
    }

    /// Counts an arriving packet's bytes for its flow and host.
    #[inline]
    pub fn heard(&mut self, now: Instant, class: &Class, bytes: u32) {
        if let Some(talkers) = &mut self.talkers {
            talkers.heard(now, class.tuple, bytes.into());
        }
    }

    /// Takes an arriving packet with its acknowledgment, which an ACK filter may evaluate.
    pub fn arrive_with(
        &mut self,
        now: Instant,
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

    /// Takes an arriving packet; it reaches the queue after the link's delay.
    pub fn arrive(&mut self, now: Instant, mut packet: Live) {
        packet.len = packet.bytes + self.params.overhead;
        self.wire.push_back((now + self.params.delay, packet));
    }

    /// Time of the next event.
    pub fn next(&self) -> Instant {
        let control = self.bottleneck.queue.decide_at.min(self.bin_at);
        self.next_send().min(control)
    }

    /// Time of the next packet event: the line has finished a packet, or a packet reaches the
    /// queue. The loop should be awake then.
    pub fn next_send(&self) -> Instant {
        let arrival = self.wire.front().map_or(NEVER, |w| w.0);
        self.bottleneck.next.min(arrival)
    }

    /// Tells the controller that a probe has come back.
    pub fn on_probe(&mut self, now: Instant, probe: &Echo) {
        self.bottleneck.on_probe(now, probe);
    }

    /// Tells the controller a delay that the traffic's own segments have shown.
    pub fn on_delay(&mut self, now: Instant, delay: &Delay) {
        self.bottleneck.on_delay(now, delay);
    }

    /// Processes all events up to `now` in the order of time; simultaneous ones in the simulator's
    /// order (bins, decisions, departures, arrivals). `out` gets each packet that leaves, with its
    /// departure time.
    pub fn advance(&mut self, now: Instant, mut out: impl FnMut(Instant, Live)) {
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

    /// Returns the place of a dropped or lost packet, for the owner to reuse.
    pub fn freed(&mut self) -> Option<u32> {
        self.bottleneck.queue.probe.observer.freed.pop()
    }

    /// Ends a bin of the series.
    fn close_bin(&mut self, now: Instant) {
        let width = now - (self.bin_at - self.params.bin());
        self.bin_at = now + self.params.bin();
        self.bottleneck.close_bin(now, width, &mut self.series);
        if let Some(talkers) = &mut self.talkers {
            self.top_talkers = talkers.top(now);
        }
        let payload = self.payload - std::mem::replace(&mut self.binned_payload, self.payload);
        self.series.goodput_mbps.resize(1, Vec::new());
        self.series.goodput_mbps[0].push(mbps(payload as f64, width));
    }

    /// Restarts the record now; with `series` the time series, too.
    pub fn restart(&mut self, now: Instant, series: bool) {
        self.bottleneck.restart(now);
        self.warm_payload = self.payload;
        if series {
            self.bin_at = now + self.params.bin();
            self.binned_payload = self.payload;
            self.bottleneck.begin_bin(now);
            self.series = Series {
                bin_s: self.series.bin_s,
                ..Series::default()
            };
        }
    }

    /// The record up to `now`. Goodput counts the bytes behind transport headers, with
    /// retransmissions, which a queue cannot distinguish. Fields that only end points can measure
    /// (flows, RTT) are empty, as are the run's name and cost.
    pub fn record(&mut self, now: Instant) -> Run {
        let run = self.bottleneck.record(now, std::iter::empty());
        let span = now - self.bottleneck.queue.probe.meter.since();
        Run {
            queue: self.params.queue.canonical(),
            seed: self.params.seed,
            goodput_mbps: mbps(
                (self.payload - self.warm_payload) as f64,
                span.max(Duration::from_nanos(1)),
            ),
            series: Some(self.series.clone()),
            ..run
        }
    }

    /// The present [`View`].
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
            now_s: (self.bin_at - self.params.bin()).as_secs_f64(),
            capacity_mbps: queue
                .rate()
                .map_or(last(&s.capacity_mbps), |rate| rate.bps_f64() / 1e6),
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

    /// Present limit, packets; 0 if the discipline shows none.
    pub fn limit_packets(&self) -> u32 {
        let now = self.bin_at - self.params.bin();
        self.bottleneck.queue.positions(now).0
    }

    /// Most packets that the queue may hold. If its limit is in bytes of memory, it holds more
    /// packets when they are small.
    pub fn most_packets(&self) -> u32 {
        let limit = self.limit_packets();
        match self.bottleneck.queue.discipline().knobs().limit {
            true => limit,
            false => limit.saturating_mul(SMALL),
        }
    }

    /// Lowers the queue's limit to at most `packets` from `now` on, if its discipline has a limit
    /// in packets. The discipline then chooses what is dropped, rather than the full pool.
    pub fn hold_at_most(&mut self, now: Instant, packets: u32) {
        if self.bottleneck.queue.discipline().knobs().limit && self.limit_packets() > packets {
            let knobs = Knobs {
                limit_packets: Some(packets),
                ..Knobs::KEEP
            };
            self.bottleneck.set_knobs(now, None, &knobs);
        }
    }

    /// Parameters of the link.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The series so far.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// The rate now.
    pub fn rate(&self, now: Instant) -> Rate {
        self.bottleneck.rate(now)
    }

    /// Packets in the queue.
    pub fn backlog(&self) -> usize {
        self.bottleneck.queue.len()
    }

    /// Packets in the link: delayed before the queue, queued, and on the line.
    pub fn inside(&self) -> usize {
        self.wire.len() + self.bottleneck.inside()
    }
}

#[cfg(test)]
pub(crate) mod tests;
