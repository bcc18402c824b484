//! One direction of an emulated link, without clock or I/O: delay, queue discipline with its controller, rate, loss.
//!
//! Its owner says when packets arrive and what time it is; the link says which packets are through, each with the time at which
//! it should have been. A loop that wakes late is thus late by that once, and never slower than the rate.

use std::collections::VecDeque;

use quell_link::meter::{Counters, Meter};
use quell_link::record::Series;
use quell_link::server::{Rate, Server};
use quell_link::words::Queue;
use quell_qdisc::control::{Control, Controller};
use quell_qdisc::{
    Discipline, DropCause, Drops, Ecn, Gauges, Got, MS, NEVER, Nanos, Packet, Qdisc, Rng, SEC,
};

/// What a link is.
#[derive(Clone, Debug)]
pub struct Params {
    /// What it offers.
    pub rate: Rate,
    /// The queue.
    pub queue: Queue,
    /// Time from the door to the queue.
    pub delay: Nanos,
    /// Random loss behind the queue, 0..1.
    pub loss: f64,
    /// Link-layer bytes per packet that count at the rate.
    pub overhead: u32,
    /// Of the disciplines' and the loss' dice.
    pub seed: u64,
    /// Width of the series' bins.
    pub bin: Nanos,
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
}

impl Live {
    /// A packet of `bytes` of IP in this place.
    pub fn new(place: u32, bytes: u32, class: &crate::header::Class) -> Self {
        Self {
            place,
            bytes,
            hash: class.hash,
            payload: class.payload,
            ecn: class.ecn,
            len: bytes,
            enqueued: 0,
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

/// The queue's instruments, and the places of packets that were given up.
#[derive(Clone, Debug)]
struct Probe {
    meter: Meter,
    freed: Vec<u32>,
}

impl Drops<Live> for Probe {
    fn drop(&mut self, packet: Live, cause: DropCause) {
        self.meter.dropped(cause);
        self.freed.push(packet.place);
    }
}

/// One direction.
#[derive(Clone, Debug)]
pub struct Link {
    params: Params,
    qdisc: Qdisc<Live>,
    controller: Controller,
    decide_at: Nanos,
    server: Server,
    rng: Rng,
    wire: VecDeque<(Nanos, Live)>,
    /// What is on the line, and when it is through.
    in_service: Option<Live>,
    through_at: Nanos,
    /// When a queue that holds packets back wants to be asked again.
    retry_at: Nanos,
    probe: Probe,
    bin_at: Nanos,
    binned: Binned,
    series: Series,
    limit: (f64, u64),
    payload: u64,
}

/// The counters at the end of the last bin.
#[derive(Clone, Copy, Debug, Default)]
struct Binned {
    counters: Counters,
    marks: u64,
    byte_ns: u128,
    offered: f64,
    payload: u64,
}

/// A look at a link while it runs: the last full bin, and totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct View {
    /// Seconds since the start.
    pub now_s: f64,
    /// What the link offered in the bin, Mbit/s.
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
}

impl Link {
    /// An idle link at time 0.
    pub fn new(params: Params) -> Self {
        let mean = params.rate.mean_bps(60 * SEC).max(1);
        let (mut qdisc, mut controller) = params.queue.build::<Live>(mean);
        qdisc.set_knobs(&controller.initial());
        let period = controller.period();
        Self {
            qdisc,
            decide_at: period,
            controller,
            server: Server::new(&params.rate),
            rng: Rng::new(params.seed, "link"),
            wire: VecDeque::new(),
            in_service: None,
            through_at: NEVER,
            retry_at: NEVER,
            probe: Probe {
                meter: Meter::new(mean),
                freed: Vec::new(),
            },
            bin_at: params.bin,
            binned: Binned::default(),
            series: Series {
                bin_s: params.bin as f64 / SEC as f64,
                ..Series::default()
            },
            limit: (0.0, 0),
            payload: 0,
            params,
        }
    }

    /// A packet comes through the door.
    pub fn arrive(&mut self, now: Nanos, mut packet: Live) {
        packet.len = packet.bytes + self.params.overhead;
        self.wire.push_back((now + self.params.delay, packet));
    }

    /// When something happens here next.
    pub fn next(&self) -> Nanos {
        let arrival = self.wire.front().map_or(NEVER, |w| w.0);
        let service = self.through_at.min(self.retry_at);
        arrival.min(service).min(self.decide_at).min(self.bin_at)
    }

    /// When the packet on the line is through, or may be asked for; the loop should be awake then.
    pub fn next_send(&self) -> Nanos {
        let arrival = self.wire.front().map_or(NEVER, |w| w.0);
        self.through_at.min(self.retry_at).min(arrival)
    }

    /// Does all that is due by `now`, in the order of its times. `out` gets each packet that is through, and when it was.
    pub fn advance(&mut self, now: Nanos, mut out: impl FnMut(Nanos, Live)) {
        loop {
            let time = self.next();
            if time > now {
                return;
            }
            if self.wire.front().is_some_and(|w| w.0 == time) {
                self.enqueue(time);
            } else if self.through_at == time {
                if let Some(packet) = self.in_service.take() {
                    self.through(time, packet, &mut out);
                }
                self.serve(time);
            } else if self.retry_at == time {
                self.serve(time);
            } else if self.decide_at == time {
                self.decide(time);
            } else {
                self.close_bin(time);
            }
        }
    }

    fn enqueue(&mut self, now: Nanos) {
        let Some((_, packet)) = self.wire.pop_front() else {
            return;
        };
        self.probe.meter.counters.arrivals += 1;
        let backlog = self
            .qdisc
            .offer(now, packet, &mut self.rng, &mut self.probe);
        self.probe.meter.backlog(now, backlog);
        if self.in_service.is_none() {
            self.serve(now);
        }
    }

    /// Puts the next packet on the line.
    fn serve(&mut self, now: Nanos) {
        (self.through_at, self.retry_at) = (NEVER, NEVER);
        let (got, backlog) = self.qdisc.take(now, &mut self.rng, &mut self.probe);
        match got {
            Got::Packet(p) => {
                self.probe.meter.departure(now, p.enqueued, p.len);
                self.through_at = self.server.finish(now, p.len);
                self.in_service = Some(p);
            }
            Got::Empty => {}
            Got::NotBefore(t) => self.retry_at = t.max(now + 1),
        }
        self.probe.meter.backlog(now, backlog);
    }

    fn through(&mut self, now: Nanos, packet: Live, out: &mut impl FnMut(Nanos, Live)) {
        if self.params.loss > 0.0 && self.rng.f64() < self.params.loss {
            self.probe.meter.counters.drops.link += 1;
            self.probe.freed.push(packet.place);
        } else {
            self.payload += u64::from(packet.payload);
            out(now, packet);
        }
    }

    fn decide(&mut self, now: Nanos) {
        self.qdisc.run_timers(now);
        self.decide_at = now + self.controller.period();
        let gauges = self.gauges(now);
        let knobs = self.controller.decide(&gauges, &mut self.rng);
        self.qdisc.set_knobs(&knobs);
    }

    fn gauges(&self, now: Nanos) -> Gauges {
        self.probe
            .meter
            .gauges(now, &self.qdisc, self.server.rate_bps(now))
    }

    /// Takes the place of a packet that was dropped or lost, for its owner to use again.
    pub fn freed(&mut self) -> Option<u32> {
        self.probe.freed.pop()
    }

    /// A bin of the series is full.
    fn close_bin(&mut self, now: Nanos) {
        let width = now - (self.bin_at - self.params.bin);
        self.bin_at = now + self.params.bin;
        self.qdisc.run_timers(now);
        self.probe.meter.settle(now);
        let g = self.gauges(now);
        let c = self.probe.meter.counters;
        let is = Binned {
            counters: c,
            marks: self.qdisc.marks(),
            byte_ns: self.probe.meter.byte_ns(),
            offered: self.server.offered_bytes(now),
            payload: self.payload,
        };
        let was = std::mem::replace(&mut self.binned, is);
        let mbps = |bytes: f64| bytes * 8e3 / width as f64;
        let held = (is.byte_ns - was.byte_ns) as f64 / width as f64;
        let left = c.departures - was.counters.departures;
        let sojourn = (c.sojourn_sum - was.counters.sojourn_sum) as f64;
        let mean_bps = self.mean_bps() as f64;
        let s = &mut self.series;
        s.backlog_ms.push(held * 8e3 / mean_bps);
        s.throughput_mbps.push(mbps(
            (c.departed_bytes - was.counters.departed_bytes) as f64,
        ));
        s.capacity_mbps.push(mbps(is.offered - was.offered));
        s.sojourn_ms
            .push((left > 0).then(|| sojourn / left as f64 / MS as f64));
        s.drops.push(c.drops.total() - was.counters.drops.total());
        s.marks.push(is.marks - was.marks);
        s.limit_packets.push(f64::from(g.limit_packets));
        s.probability.push(g.probability);
        s.goodput_mbps.resize(1, Vec::new());
        s.goodput_mbps[0].push(mbps((is.payload - was.payload) as f64));
        self.limit.0 += f64::from(g.limit_packets);
        self.limit.1 += 1;
    }

    /// The last full bin and the totals.
    pub fn view(&self) -> View {
        let s = &self.series;
        let c = &self.probe.meter.counters;
        let last = |v: &[f64]| v.last().copied().unwrap_or_default();
        View {
            now_s: s.drops.len() as f64 * s.bin_s,
            capacity_mbps: last(&s.capacity_mbps),
            throughput_mbps: last(&s.throughput_mbps),
            sojourn_ms: s.sojourn_ms.last().copied().flatten(),
            backlog_packets: self.qdisc.len(),
            backlog_bytes: self.qdisc.bytes(),
            packets: c.departures,
            drops: c.drops.total(),
            marks: self.qdisc.marks(),
            lost: c.drops.link,
            limit_packets: last(&s.limit_packets) as u32,
            probability: last(&s.probability),
            missed: 0,
        }
    }

    /// Brings timers and integrals up to `now`, for the record.
    pub fn settle(&mut self, now: Nanos) {
        self.qdisc.run_timers(now);
        self.probe.meter.settle(now);
    }

    /// The instruments at the queue.
    pub fn meter(&self) -> &Meter {
        &self.probe.meter
    }

    /// What the link is.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The series so far.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Packets marked so far.
    pub fn marks(&self) -> u64 {
        self.qdisc.marks()
    }

    /// Bytes behind transport headers that were delivered.
    pub fn payload(&self) -> u64 {
        self.payload
    }

    /// Bytes that the link has offered before `now`.
    pub fn offered_bytes(&self, now: Nanos) -> f64 {
        self.server.offered_bytes(now)
    }

    /// Mean rate, bit/s.
    pub fn mean_bps(&self) -> u64 {
        self.params.rate.mean_bps(60 * SEC).max(1)
    }

    /// The rate now, bit/s.
    pub fn rate_bps(&self, now: Nanos) -> u64 {
        self.server.rate_bps(now)
    }

    /// Mean of the limit at the ends of the bins, where a controller moves it.
    pub fn mean_limit(&self) -> Option<f64> {
        (!matches!(self.controller, Controller::None) && self.limit.1 > 0)
            .then(|| self.limit.0 / self.limit.1 as f64)
    }

    /// Packets that are in it: on the wire, queued, on the line.
    pub fn inside(&self) -> usize {
        self.wire.len() + self.qdisc.len() + usize::from(self.in_service.is_some())
    }
}
