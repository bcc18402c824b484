//! A queue and the link behind it, used by the simulator's ports and by live links.
//!
//! The owner drives it: it calls [`Bottleneck::enqueue`] for each arrival, [`Bottleneck::event`] at
//! the time `next`, and [`Bottleneck::decide`] at the controller's time. A live link adds a delay
//! in front, the simulator adds the network around it.

use std::collections::VecDeque;

use quell_qdisc::control::{Delay, Echo};
use quell_qdisc::fifo::Fifo;
use quell_qdisc::parts::framing::Framing;
use quell_qdisc::parts::ring::Ring;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS, NEVER};
use quell_qdisc::{Backlog, Dequeued, Discipline, Gauges, Knobs, Packet, Qdisc, Rng};

use crate::foresight::{Foresight, State};
use crate::hist::Hist;
use crate::meter::Counters;
use crate::queue::{ManagedQueue, Observer, Offered, Question};
use crate::record::{self, Run, Series};
use crate::server::{Capacity, Server};
use crate::words::Queue;

/// Points of the sojourn's cumulative distribution.
const CDF_POINTS: usize = 200;

/// Value of `next` when the owner takes the packets itself. It differs from `NEVER` (idle), so that
/// no arrival starts the line.
const TAKEN_BY_OWNER: Instant = Instant::from_nanos(u64::MAX - 1);

/// How packets leave a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shaper {
    /// A packet leaves the queue and arrives after its transmission time (bytes*8/rate) and the
    /// delay.
    Line,
    /// Token bucket of `burst` bytes as in Linux's HTB: a packet leaves when tokens >= 0 and
    /// arrives after the delay, without a transmission time.
    Htb {
        /// Size of the bucket, bytes (default 1600).
        burst: u32,
    },
}

/// Parameters of the link behind a queue.
#[derive(Clone, Debug)]
pub struct Params {
    /// Capacity over time.
    pub rate: Capacity,
    /// Mean rate, at least 1 bit/s.
    pub mean_rate: Rate,
    /// How packets leave the queue.
    pub shaper: Shaper,
    /// Size of the device's queue, packets: a plain FIFO below the discipline, which does not see
    /// it (0: none).
    pub nic: usize,
    /// Probability that a packet is lost behind the queue, 0..1.
    pub loss: f64,
    /// Link-layer bytes included in a packet's length.
    pub overhead: u32,
    /// Framing of IP packets on the link; `None`: a packet takes its own length.
    pub framing: Option<Framing>,
    /// How the owner labels the packets of a host; `None`: filters that name hosts match nothing.
    pub hosts: Option<Hosts>,
}

impl Params {
    /// A link of constant rate, at least 1 bit/s, which carries Ethernet frames (14 bytes of a
    /// packet's length) and loses none.
    pub fn constant(rate: Rate) -> Self {
        Self {
            rate: Capacity::Constant(rate),
            mean_rate: rate,
            shaper: Shaper::Line,
            nic: 0,
            loss: 0.0,
            overhead: 14,
            framing: None,
            hosts: None,
        }
    }
}

/// Maps the hosts that filters name to labels of packets.
#[derive(Clone, Copy, Debug)]
pub struct Hosts {
    /// The owner's key, passed to `labels`.
    pub key: u64,
    /// Labels of the packets that have the named host as source, and as destination.
    pub labels: fn(u64, &str) -> [u32; 2],
}

/// Largest rate at which a link counts as even ([`Bottleneck::is_even`]): on a faster one the
/// transmission of a small packet may take less than 1 ns.
const FASTEST: Rate = Rate::from_mbit(100_000);

/// A queue with its link.
///
/// ```
/// use quell_link::prelude::*;
/// use quell_qdisc::packet::TestPacket;
///
/// let (link, queue) = (LinkParams::constant(Rate::from_mbit(12)), Queue::parse("pfifo limit 5")?);
/// let mut bottleneck = Bottleneck::new(&link, &queue, Rng::new(1, "link"), NoObserver);
/// for id in 0..3 {
///     bottleneck.enqueue(Instant::ZERO, 1500, || TestPacket::new(id, 1500, 0, Ecn::NotEct));
/// }
/// let now = bottleneck.next; // 1500 bytes at 12 Mbit/s take 1 ms
/// let packet = bottleneck.event(now);
/// assert_eq!((packet.map(|p| p.id), bottleneck.queue.len()), (Some(0), 1));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bottleneck<P, O> {
    /// Time of the link's next event; `NEVER` if idle.
    pub next: Instant,
    /// The queue.
    pub queue: ManagedQueue<P, O>,
    server: Server,
    shaper: Shaper,
    in_service: Option<P>,
    nic: VecDeque<P>,
    nic_limit: usize,
    /// Whether a busy link must handle arrivals, too: to fill the device's queue, or because the
    /// discipline has made the link wait.
    attends: bool,
    loss: f64,
    // Token bucket: its content when it was last charged, ns at the link's rate (negative: debt),
    // and the time of that charge.
    tokens: i64,
    charged: Instant,
    mean_rate: Rate,
    /// Counters, and bytes that the link had offered, at the start of the present bin.
    bin: (Counters, f64),
    /// Bytes that the link had offered, and bytes that framing had added, at the end of the
    /// warm-up.
    warm_offered: f64,
    warm_framing: i64,
}

impl<P: Packet, O: Observer<P>> Bottleneck<P, O> {
    /// An idle link with this queue, whose random numbers come from `rng`.
    pub fn new(params: &Params, queue: &Queue, rng: Rng, observer: O) -> Self {
        let mean_rate = params.mean_rate.max(Rate::from_bps(1));
        let mut built = queue.build(mean_rate);
        built.queue.set_link_header(params.overhead);
        let labels = |name: &str| params.hosts.map(|hosts| (hosts.labels)(hosts.key, name));
        built.queue.name_hosts(&labels);
        Self {
            next: NEVER,
            queue: ManagedQueue::new(built, mean_rate, rng, observer),
            server: match params.framing {
                Some(framing) => Server::new(&params.rate).framed(framing, params.overhead),
                None => Server::new(&params.rate),
            },
            shaper: params.shaper,
            in_service: None,
            nic: VecDeque::new(),
            nic_limit: params.nic,
            attends: params.nic > 0,
            loss: params.loss,
            tokens: i64::MAX / 4,
            charged: Instant::ZERO,
            mean_rate,
            bin: (Counters::default(), 0.0),
            warm_offered: 0.0,
            warm_framing: 0,
        }
    }

    /// The same bottleneck without a line: the owner takes packets from the queue.
    pub fn without_line(self) -> Self {
        Self {
            next: TAKEN_BY_OWNER,
            ..self
        }
    }

    /// Whether each packet has a transmission time, so that no two leave at the same instant.
    pub fn is_even(&self) -> bool {
        self.shaper == Shaper::Line && self.server.is_constant() && self.mean_rate <= FASTEST
    }

    /// The FIFO, if no later event can change when an admitted packet leaves the link: a plain FIFO
    /// without controller, in front of an even link without random loss.
    fn plain(&self) -> Option<&Fifo<P>> {
        let link = self.is_even() && self.nic_limit == 0 && self.loss <= 0.0;
        match self.queue.discipline() {
            Qdisc::Fifo(fifo) if link && self.queue.controller().is_none() => {
                let params = fifo.params();
                (!params.selective && params.drop <= 0.0).then_some(fifo)
            }
            _ => None,
        }
    }

    /// Whether the time at which a packet leaves is known when it is admitted.
    pub fn is_foreseeable(&self) -> bool {
        self.plain().is_some()
    }

    /// Takes the queue and the link out, if departures are foreseeable; calls `each` with the
    /// departure time of each packet inside.
    pub fn take_ahead(&mut self, mut each: impl FnMut(Instant, &P)) -> Option<Foresight<P>> {
        let fifo = self.plain()?;
        let mut foresight = Foresight {
            through: Instant::ZERO,
            last: self.server.clone(),
            limit_packets: fifo.params().limit_packets as usize,
            limit_bytes: fifo.params().limit_bytes,
            state: State {
                next: NEVER,
                in_service: None,
                queue: Ring::new(),
                bytes: 0,
                server: self.server.clone(),
            },
        };
        if let Some(packet) = &self.in_service {
            foresight.through = self.next;
            each(self.next, packet);
        }
        for packet in fifo.packets() {
            foresight.through = foresight.last.finish(foresight.through, packet.len());
            each(foresight.through, packet);
        }
        self.exchange(&mut foresight);
        Some(foresight)
    }

    /// Puts back what [`Bottleneck::take_ahead`] took out, or takes it out again. Between putting
    /// back and taking out again, no packet may arrive and no time may pass.
    pub fn exchange(&mut self, foresight: &mut Foresight<P>) {
        let state = &mut foresight.state;
        if let Qdisc::Fifo(fifo) = self.queue.discipline_mut() {
            fifo.exchange(&mut state.queue, &mut state.bytes);
        }
        std::mem::swap(&mut self.next, &mut state.next);
        std::mem::swap(&mut self.in_service, &mut state.in_service);
        std::mem::swap(&mut self.server, &mut state.server);
    }

    /// The link's mean rate.
    pub fn mean_rate(&self) -> Rate {
        self.mean_rate
    }

    /// The link's rate now.
    pub fn rate(&self, now: Instant) -> Rate {
        self.server.rate(now)
    }

    /// A packet of `len` bytes arrives; true if it waits for an outside controller.
    #[inline(always)]
    pub fn enqueue(&mut self, now: Instant, len: u32, make: impl FnOnce() -> P) -> bool {
        match self.queue.offer(now, len, make) {
            Offered::Done(backlog) => {
                self.start(now, backlog);
                false
            }
            Offered::Waits => true,
        }
    }

    /// Enqueues `count` packets of `len` bytes at once; `make` makes each from its number, 0 to
    /// `count` - 1. Returns false and does nothing if they must be enqueued one by one.
    #[inline(always)]
    pub fn enqueue_run(
        &mut self,
        now: Instant,
        len: u32,
        count: u32,
        make: impl Fn(u32) -> P,
    ) -> bool {
        let busy = self.next < TAKEN_BY_OWNER && !self.attends;
        busy && self.queue.offer_run(now, len, count, make)
    }

    /// Starts an idle link after an arrival; `backlog` is what the queue holds now.
    #[inline(always)]
    fn start(&mut self, now: Instant, backlog: Backlog) {
        if backlog.packets > 0 {
            if self.next == NEVER {
                self.kick(now);
            } else if self.attends {
                self.attend(now);
            }
        }
    }

    /// An arrival at a link that is not idle: fills the device's queue, and asks the discipline
    /// again if it made the link wait.
    #[cold]
    fn attend(&mut self, now: Instant) {
        self.attends = self.nic_limit > 0;
        if self.in_service.is_some() {
            self.fill_nic(now);
        } else if self.next != TAKEN_BY_OWNER {
            self.kick(now);
        }
    }

    // Out of line: an arrival seldom finds the link idle, and a second copy of `serve` would keep
    // the first from being inlined.
    #[inline(never)]
    fn kick(&mut self, now: Instant) {
        match self.shaper {
            Shaper::Line => self.serve(now),
            Shaper::Htb { .. } => {
                let debt = Duration::from_nanos((-self.tokens).max(0).cast_unsigned());
                self.next = now.max(self.charged + debt);
            }
        }
    }

    /// Handles the event at `next`; returns the packet that has left the link, if any.
    #[inline(always)]
    pub fn event(&mut self, now: Instant) -> Option<P> {
        match self.shaper {
            Shaper::Line => {
                let through = self.in_service.take();
                self.serve(now);
                match through {
                    Some(p) if self.lost(now, &p) => None,
                    through => through,
                }
            }
            Shaper::Htb { burst } => self.send_by_tokens(now, burst),
        }
    }

    #[inline]
    fn lost(&mut self, now: Instant, p: &P) -> bool {
        let lost = self.loss > 0.0 && self.queue.draw() < self.loss;
        if lost {
            self.lose(now, *p);
        }
        lost
    }

    /// Counts and reports a packet that the link loses.
    #[cold]
    pub fn lose(&mut self, now: Instant, p: P) {
        let probe = &mut self.queue.probe;
        probe.meter.counters.drops.link += 1;
        probe.observer.lost(now, p);
    }

    /// Puts the next packet on the line.
    #[inline(always)]
    fn serve(&mut self, now: Instant) {
        let through = if self.nic_limit == 0 {
            self.queue.send(now, &mut self.in_service, &mut self.server)
        } else {
            self.take_through_nic(now).map(|p| {
                self.in_service = Some(p);
                self.server.finish(now, p.len())
            })
        };
        self.next = match through {
            Dequeued::Packet(t) => t,
            Dequeued::Empty => NEVER,
            Dequeued::NotBefore(t) => self.wait(now, t),
        };
    }

    /// The discipline sends nothing before `t` unless a packet arrives first; returns the time of
    /// the link's next event.
    #[cold]
    fn wait(&mut self, now: Instant, t: Instant) -> Instant {
        self.attends = true;
        match t {
            TAKEN_BY_OWNER => NEVER,
            t => t.max(now + Duration::from_nanos(1)),
        }
    }

    /// Takes the next packet out of the device's queue, then refills it.
    fn take_through_nic(&mut self, now: Instant) -> Dequeued<P> {
        let first = match self.nic.pop_front() {
            Some(p) => Dequeued::Packet(p),
            None => self.queue.take(now),
        };
        self.fill_nic(now);
        first
    }

    /// Moves packets from the discipline to the device's queue until that is full.
    #[cold]
    fn fill_nic(&mut self, now: Instant) {
        while self.nic.len() < self.nic_limit {
            match self.queue.take(now) {
                Dequeued::Packet(p) => self.nic.push_back(p),
                Dequeued::Empty | Dequeued::NotBefore(_) => break,
            }
        }
    }

    /// Sends as Linux's HTB: a packet leaves at once if the bucket is not in debt, and is then
    /// charged to the bucket.
    fn send_by_tokens(&mut self, now: Instant, burst: u32) -> Option<P> {
        match self.queue.take(now) {
            Dequeued::Packet(p) => {
                let cost = self.server.charge(now, p.len()).as_nanos().cast_signed();
                let full = self.server.cost(now, burst).as_nanos().cast_signed();
                let held = self
                    .tokens
                    .saturating_add((now - self.charged).as_nanos().cast_signed())
                    .min(full);
                self.tokens = held - cost;
                self.charged = now;
                self.next = if self.queue.is_empty() {
                    NEVER
                } else {
                    now + Duration::from_nanos((-self.tokens).max(0).cast_unsigned())
                };
                (!self.lost(now, &p)).then_some(p)
            }
            Dequeued::Empty => {
                self.next = NEVER;
                None
            }
            Dequeued::NotBefore(t) => {
                self.next = self.wait(now, t);
                None
            }
        }
    }

    /// Packets inside: queued, in the device's queue, on the line.
    pub fn inside(&self) -> usize {
        self.queue.len() + self.nic.len() + usize::from(self.in_service.is_some())
    }

    /// Readings of the queue.
    pub fn gauges(&self, now: Instant) -> Gauges {
        self.queue.gauges(now, self.server.rate(now))
    }

    /// Lets the controller decide at the queue's `decide_at`; `read` adds readings that only the
    /// owner knows. True if an outside controller decides.
    pub fn decide(&mut self, now: Instant, read: impl FnOnce(&mut Gauges)) -> bool {
        let server = &self.server;
        self.queue.decide(now, |queue| {
            let mut gauges = queue.gauges(now, server.rate(now));
            read(&mut gauges);
            gauges
        })
    }

    /// Reports a returned probe to the controller.
    pub fn on_probe(&mut self, now: Instant, probe: &Echo) {
        let server = &self.server;
        let read = |queue: &ManagedQueue<P, O>| queue.gauges(now, server.rate(now));
        self.queue.on_probe(now, probe, read);
    }

    /// Reports a delay that was measured from the traffic's own segments to the controller.
    pub fn on_delay(&mut self, now: Instant, delay: &Delay) {
        let server = &self.server;
        let read = |queue: &ManagedQueue<P, O>| queue.gauges(now, server.rate(now));
        self.queue.on_delay(now, delay, read);
    }

    /// Sets knobs from outside, see [`ManagedQueue::set_knobs`]; packets that waited for them are
    /// then admitted.
    pub fn set_knobs(&mut self, now: Instant, sub_queue: Option<usize>, knobs: &Knobs) {
        self.queue.set_knobs(now, sub_queue, knobs);
        while let Some(backlog) = self.queue.admit_waiting(now) {
            self.start(now, backlog);
        }
    }

    /// The decision that an outside controller has to make before waiting packets continue.
    #[inline]
    pub fn question(&self) -> Option<Question> {
        self.queue.question()
    }

    /// Bytes that the link offered before `now`.
    pub fn offered_bytes(&self, now: Instant) -> f64 {
        self.server.offered_bytes(now)
    }

    /// Ends the warm-up: measures start from zero.
    pub fn restart(&mut self, now: Instant) {
        self.queue.restart(now);
        self.warm_offered = self.offered_bytes(now);
        self.warm_framing = self.server.framing_bytes();
    }

    /// Begins a bin of a series at `now`.
    pub fn begin_bin(&mut self, now: Instant) {
        self.bin = (self.queue.counters(now), self.offered_bytes(now));
    }

    /// Ends a bin of `width`: appends the queue's columns to a series. The owner appends those
    /// about flows.
    pub fn close_bin(&mut self, now: Instant, width: Duration, series: &mut Series) {
        let was = self.bin;
        self.begin_bin(now);
        let (c, offered) = (self.bin.0 - was.0, self.bin.1 - was.1);
        let (limit, probability) = self.queue.positions(now);
        let mbps = |bytes: f64| record::mbps(bytes, width);
        let held = c.byte_ns as f64 / width.as_nanos() as f64;
        let sojourn =
            c.sojourn_sum.as_nanos() as f64 / c.departures.max(1) as f64 / MS.as_nanos() as f64;
        series
            .backlog_ms
            .push(held * 8e3 / self.mean_rate.bps_f64());
        series.throughput_mbps.push(mbps(c.departed_bytes as f64));
        series.capacity_mbps.push(mbps(offered));
        series
            .sojourn_ms
            .push((c.departures > 0).then_some(sojourn));
        series.drops.push(c.drops.total());
        series.marks.push(c.marks);
        series.limit_packets.push(f64::from(limit));
        series.probability.push(probability);
        if let Some(policy) = self.queue.discipline().policy() {
            let bins = series.throughput_mbps.len();
            series.policy.get_or_insert_default().push(bins, &policy);
        }
    }

    /// The result record of this queue since the warm-up. Packets of the queues in `others` (those
    /// of the same node in a Wi-Fi cell) are counted, too. Fields that a queue cannot know
    /// (goodput, flows, cost) keep their defaults.
    pub fn record<'a>(&'a mut self, now: Instant, others: impl Iterator<Item = &'a mut Self>) -> Run
    where
        P: 'a,
        O: 'a,
    {
        self.queue.settle(now);
        let meter = &self.queue.probe.meter;
        let mut c = meter.measured();
        let mut sojourns: Option<Hist> = None;
        for other in others {
            other.queue.settle(now);
            let theirs = &other.queue.probe.meter;
            c = c + theirs.measured();
            let all = sojourns.get_or_insert_with(|| meter.sojourns.clone());
            all.merge(&theirs.sojourns);
        }
        let sojourns = sojourns.as_ref().unwrap_or(&meter.sojourns);
        let span = (now - meter.since()).max(Duration::from_nanos(1));
        let offered = self.server.offered_bytes(now) - self.warm_offered;
        let framing = self.server.framing_bytes() - self.warm_framing;
        let used = c.departed_bytes as f64 + framing as f64;
        let ms = 1.0 / MS.as_nanos() as f64;
        let run = Run {
            measured_s: span.as_secs_f64(),
            throughput_mbps: record::mbps(c.departed_bytes as f64, span),
            capacity_mbps: record::mbps(offered, span),
            utilisation: if offered > 0.0 { used / offered } else { 0.0 },
            sojourn_ms: sojourns.summary(ms),
            sojourn_cdf: sojourns.cdf(CDF_POINTS, ms),
            backlog_packets: meter.packets(),
            backlog_ms: meter.bytes(8e3 / self.mean_rate.bps_f64()),
            packets: c.departures,
            drops: c.drops.total(),
            marks: c.marks,
            loss_rate: record::ratio(c.drops.total(), c.arrivals),
            mark_rate: record::ratio(c.marks, c.departures),
            drops_by_cause: c.drops,
            guard: self.guard(),
            tins: self.queue.tins(span),
            ..Run::default()
        };
        Run {
            limit_packets: self.queue.mean_limit(now),
            ..run
        }
    }

    /// The guard's counts over the whole run, if there is a guard.
    fn guard(&self) -> Option<record::Guard> {
        let s = self.queue.guard()?;
        let mean = |sum: f64| sum / s.proposals.max(1) as f64;
        Some(record::Guard {
            decisions: s.decisions,
            learned: s.learned,
            clipped: s.clipped,
            not_a_number: s.not_a_number,
            late: s.late,
            stale: s.stale,
            out_of_range: s.out_of_range,
            stuck: s.stuck,
            fallbacks: s.fallbacks,
            handed_back: s.handed_back,
            proposed: mean(s.proposed_sum),
            set: mean(s.set_sum),
        })
    }
}
