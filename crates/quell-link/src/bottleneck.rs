//! A queue and the link behind it, used by the simulator's ports and by live links.
//!
//! Its owner passes the time. It calls [`Bottleneck::enqueue`] for what arrives,
//! [`Bottleneck::event`] when `next` is due, and [`Bottleneck::decide`] when the controller is; a
//! live link adds a delay in front, the simulator the network around it.

use std::collections::VecDeque;

use quell_qdisc::control::{Delay, Echo};
use quell_qdisc::fifo::Fifo;
use quell_qdisc::parts::framing::Framing;
use quell_qdisc::parts::ring::Ring;
use quell_qdisc::{
    Backlog, Dequeued, Discipline, Gauges, Knobs, MS, NEVER, Nanos, Packet, Qdisc, Rng, SEC,
};

use crate::foresight::{Foresight, State};
use crate::hist::Hist;
use crate::meter::Counters;
use crate::queue::{ManagedQueue, Observer, Offered, Question};
use crate::record::{self, Run, Series};
use crate::server::{Rate, Server};
use crate::words::Queue;

/// Points of the sojourn's cumulative distribution.
const CDF_POINTS: usize = 200;

/// When the line of a queue is due whose owner takes the packets: not idle, so that no arrival
/// starts it.
const TAKEN_BY_OWNER: Nanos = NEVER - 1;

/// How packets leave a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shaper {
    /// A packet leaves the queue, takes bytes*8/rate, then the delay.
    Line,
    /// Token bucket of `burst` bytes as Linux's HTB: a packet leaves when tokens >= 0 and arrives
    /// after the delay alone.
    Htb {
        /// Bytes (default 1600).
        burst: u32,
    },
}

/// What the link behind a queue is.
#[derive(Clone, Debug)]
pub struct Params {
    /// What it offers.
    pub rate: Rate,
    /// What it offers on average, bit/s, at least 1.
    pub mean_bps: u64,
    /// How packets leave.
    pub shaper: Shaper,
    /// Packets of plain FIFO below the discipline, which it does not see: a device's queue.
    pub nic: usize,
    /// Random loss behind the queue, 0..1.
    pub loss: f64,
    /// Link-layer bytes that a packet's length holds.
    pub overhead: u32,
    /// What the link makes of an IP packet; `None`: it sends the packet's length.
    pub framing: Option<Framing>,
    /// How the owner of the packets labels hosts; `None`: filters that name hosts take nothing.
    pub hosts: Option<Hosts>,
}

/// How hosts that filters name are found in packets' labels.
#[derive(Clone, Copy, Debug)]
pub struct Hosts {
    /// A key of the owner's.
    pub key: u64,
    /// The labels of a host's packets, as their source and as their destination.
    pub labels: fn(u64, &str) -> [u32; 2],
}

/// On a faster link, bit/s, a small packet may take less than 1 ns.
const FASTEST: u64 = 100_000_000_000;

/// A queue with its link.
#[derive(Clone, Debug)]
pub struct Bottleneck<P, O> {
    /// When something happens here next; `NEVER` if idle.
    pub next: Nanos,
    /// The queue.
    pub queue: ManagedQueue<P, O>,
    server: Server,
    shaper: Shaper,
    in_service: Option<P>,
    nic: VecDeque<P>,
    nic_limit: usize,
    /// An arrival concerns a busy link, too: there is a device to fill, or the discipline has let
    /// the link wait.
    attends: bool,
    loss: f64,
    // Token bucket: what it holds (in time) when it was last charged, and when it is out of debt.
    tokens: i64,
    charged: Nanos,
    mean_bps: u64,
    /// The counters and what the link had offered when the present bin began.
    bin: (Counters, f64),
    /// What the link had offered when measuring began, and what framing had added to packets.
    warm_offered: f64,
    warm_framing: i64,
}

impl<P: Packet, O: Observer<P>> Bottleneck<P, O> {
    /// An idle link with this queue, which draws from `rng`.
    pub fn new(params: &Params, queue: &Queue, rng: Rng, observer: O) -> Self {
        let mean_bps = params.mean_bps.max(1);
        let mut built = queue.build(mean_bps);
        built.queue.set_link_header(params.overhead);
        let labels = |name: &str| params.hosts.map(|hosts| (hosts.labels)(hosts.key, name));
        built.queue.name_hosts(&labels);
        Self {
            next: NEVER,
            queue: ManagedQueue::new(built, mean_bps, rng, observer),
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
            charged: 0,
            mean_bps,
            bin: (Counters::default(), 0.0),
            warm_offered: 0.0,
            warm_framing: 0,
        }
    }

    /// The link never takes a packet by itself: the owner takes them from the queue.
    pub fn without_line(self) -> Self {
        Self {
            next: TAKEN_BY_OWNER,
            ..self
        }
    }

    /// Does each packet take its time on the link, so that no two leave at the same instant?
    pub fn is_even(&self) -> bool {
        self.shaper == Shaper::Line && self.server.is_constant() && self.mean_bps <= FASTEST
    }

    /// The queue, if nothing that comes after a packet was taken in changes when it arrives behind
    /// the link: a plain FIFO without controller in front of a link that is even and loses nothing.
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

    /// Is the time at which a packet leaves known when it is taken in?
    pub fn is_foreseeable(&self) -> bool {
        self.plain().is_some()
    }

    /// Takes the queue and the link out where departures are foreseeable; `each` gets those of the
    /// packets inside.
    pub fn take_ahead(&mut self, mut each: impl FnMut(Nanos, &P)) -> Option<Foresight<P>> {
        let fifo = self.plain()?;
        let mut foresight = Foresight {
            through: 0,
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

    /// Puts back what [`Bottleneck::take_ahead`] took out, or takes it out again. In between
    /// nothing may arrive, and no time may pass.
    pub fn exchange(&mut self, foresight: &mut Foresight<P>) {
        let state = &mut foresight.state;
        if let Qdisc::Fifo(fifo) = self.queue.discipline_mut() {
            fifo.exchange(&mut state.queue, &mut state.bytes);
        }
        std::mem::swap(&mut self.next, &mut state.next);
        std::mem::swap(&mut self.in_service, &mut state.in_service);
        std::mem::swap(&mut self.server, &mut state.server);
    }

    /// What the link offers on average, bit/s.
    pub fn mean_bps(&self) -> u64 {
        self.mean_bps
    }

    /// What it offers now, bit/s.
    pub fn rate_bps(&self, now: Nanos) -> u64 {
        self.server.rate_bps(now)
    }

    /// A packet of `len` bytes arrives; true if it waits for an outside controller.
    #[inline(always)]
    pub fn enqueue(&mut self, now: Nanos, len: u32, make: impl FnOnce() -> P) -> bool {
        match self.queue.offer(now, len, make) {
            Offered::Done(backlog) => {
                self.start(now, backlog);
                false
            }
            Offered::Waits => true,
        }
    }

    /// As `enqueue` of `count` packets of `len` bytes, made by their number; false, and nothing
    /// happens, where they have to come one by one.
    #[inline(always)]
    pub fn enqueue_run(
        &mut self,
        now: Nanos,
        len: u32,
        count: u32,
        make: impl Fn(u32) -> P,
    ) -> bool {
        let busy = self.next < TAKEN_BY_OWNER && !self.attends;
        busy && self.queue.offer_run(now, len, count, make)
    }

    /// The queue holds this much after an arrival: an idle link begins to send.
    #[inline(always)]
    fn start(&mut self, now: Nanos, backlog: Backlog) {
        if backlog.packets > 0 {
            if self.next == NEVER {
                self.kick(now);
            } else if self.attends {
                self.attend(now);
            }
        }
    }

    /// An arrival at a link that is not idle: what fits goes into the device, and a discipline that
    /// let the link wait is asked again.
    #[cold]
    fn attend(&mut self, now: Nanos) {
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
    fn kick(&mut self, now: Nanos) {
        match self.shaper {
            Shaper::Line => self.serve(now),
            Shaper::Htb { .. } => {
                let debt = (-self.tokens).max(0).cast_unsigned();
                self.next = now.max(self.charged + debt);
            }
        }
    }

    /// `next` is due: the packet that is through the link now, if any.
    #[inline(always)]
    pub fn event(&mut self, now: Nanos) -> Option<P> {
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
    fn lost(&mut self, now: Nanos, p: &P) -> bool {
        let lost = self.loss > 0.0 && self.queue.draw() < self.loss;
        if lost {
            self.lose(now, *p);
        }
        lost
    }

    /// The link loses a packet.
    #[cold]
    pub fn lose(&mut self, now: Nanos, p: P) {
        let probe = &mut self.queue.probe;
        probe.meter.counters.drops.link += 1;
        probe.observer.lost(now, p);
    }

    /// Puts the next packet on the line.
    #[inline(always)]
    fn serve(&mut self, now: Nanos) {
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

    /// The discipline sends nothing before `t`, unless a packet arrives first: when the link is
    /// due.
    #[cold]
    fn wait(&mut self, now: Nanos, t: Nanos) -> Nanos {
        self.attends = true;
        match t {
            TAKEN_BY_OWNER => NEVER,
            t => t.max(now + 1),
        }
    }

    /// The next packet out of the device queue, which then takes as many as fit.
    fn take_through_nic(&mut self, now: Nanos) -> Dequeued<P> {
        let first = match self.nic.pop_front() {
            Some(p) => Dequeued::Packet(p),
            None => self.queue.take(now),
        };
        self.fill_nic(now);
        first
    }

    /// The device queue takes what fits; the discipline no longer sees it.
    #[cold]
    fn fill_nic(&mut self, now: Nanos) {
        while self.nic.len() < self.nic_limit {
            match self.queue.take(now) {
                Dequeued::Packet(p) => self.nic.push_back(p),
                Dequeued::Empty | Dequeued::NotBefore(_) => break,
            }
        }
    }

    /// Linux's HTB: a packet leaves at once when the bucket is not in debt, and is charged for.
    fn send_by_tokens(&mut self, now: Nanos, burst: u32) -> Option<P> {
        match self.queue.take(now) {
            Dequeued::Packet(p) => {
                let cost = self.server.charge(now, p.len()).cast_signed();
                let full = self.server.cost(now, burst).cast_signed();
                let held = self
                    .tokens
                    .saturating_add((now - self.charged).cast_signed())
                    .min(full);
                self.tokens = held - cost;
                self.charged = now;
                self.next = if self.queue.is_empty() {
                    NEVER
                } else {
                    now + (-self.tokens).max(0).cast_unsigned()
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

    /// Packets in it: queued, in the device, on the line.
    pub fn inside(&self) -> usize {
        self.queue.len() + self.nic.len() + usize::from(self.in_service.is_some())
    }

    /// Readings of the queue.
    pub fn gauges(&self, now: Nanos) -> Gauges {
        self.queue.gauges(now, self.server.rate_bps(now))
    }

    /// The controller's turn at the queue's `decide_at`; `read` adds to the readings what only the
    /// owner knows. True if an outside controller decides.
    pub fn decide(&mut self, now: Nanos, read: impl FnOnce(&mut Gauges)) -> bool {
        let server = &self.server;
        self.queue.decide(now, |queue| {
            let mut gauges = queue.gauges(now, server.rate_bps(now));
            read(&mut gauges);
            gauges
        })
    }

    /// A probe has come back, which the controller may want to know.
    pub fn on_probe(&mut self, now: Nanos, probe: &Echo) {
        let server = &self.server;
        let read = |queue: &ManagedQueue<P, O>| queue.gauges(now, server.rate_bps(now));
        self.queue.on_probe(now, probe, read);
    }

    /// The traffic's own segments have shown this delay, which the controller may want to know.
    pub fn on_delay(&mut self, now: Nanos, delay: &Delay) {
        let server = &self.server;
        let read = |queue: &ManagedQueue<P, O>| queue.gauges(now, server.rate_bps(now));
        self.queue.on_delay(now, delay, read);
    }

    /// Sets knobs from outside, see [`ManagedQueue::set_knobs`]; packets that waited for it
    /// continue.
    pub fn set_knobs(&mut self, now: Nanos, sub_queue: Option<usize>, knobs: &Knobs) {
        self.queue.set_knobs(now, sub_queue, knobs);
        while let Some(backlog) = self.queue.go_on(now) {
            self.start(now, backlog);
        }
    }

    /// The decision that an outside controller has to make before waiting packets continue.
    #[inline]
    pub fn question(&self) -> Option<Question> {
        self.queue.question()
    }

    /// Bytes that the link offered before `now`.
    pub fn offered_bytes(&self, now: Nanos) -> f64 {
        self.server.offered_bytes(now)
    }

    /// Forgets the warm-up.
    pub fn restart(&mut self, now: Nanos) {
        self.queue.restart(now);
        self.warm_offered = self.offered_bytes(now);
        self.warm_framing = self.server.framing_bytes();
    }

    /// The next bin of a series begins at `now`.
    pub fn begin_bin(&mut self, now: Nanos) {
        self.bin = (self.queue.counters(now), self.offered_bytes(now));
    }

    /// Ends a bin of `width`: appends the queue's columns to a series. Columns about flows are the
    /// owner's.
    pub fn close_bin(&mut self, now: Nanos, width: Nanos, series: &mut Series) {
        let was = self.bin;
        self.begin_bin(now);
        let (c, offered) = (self.bin.0 - was.0, self.bin.1 - was.1);
        let (limit, probability) = self.queue.positions(now);
        let mbps = |bytes: f64| record::mbps(bytes, width);
        let held = c.byte_ns as f64 / width as f64;
        let sojourn = c.sojourn_sum as f64 / c.departures.max(1) as f64 / MS as f64;
        series.backlog_ms.push(held * 8e3 / self.mean_bps as f64);
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

    /// What a result record says of this queue since the warm-up, `others` being queues whose
    /// packets count too (those of the same node in a cell). What a queue cannot know (goodput,
    /// flows, cost) is left at its default.
    pub fn record<'a>(&'a mut self, now: Nanos, others: impl Iterator<Item = &'a mut Self>) -> Run
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
        let span = (now - meter.since()).max(1);
        let offered = self.server.offered_bytes(now) - self.warm_offered;
        let framing = self.server.framing_bytes() - self.warm_framing;
        let used = c.departed_bytes as f64 + framing as f64;
        let ms = 1.0 / MS as f64;
        let run = Run {
            measured_s: span as f64 / SEC as f64,
            throughput_mbps: record::mbps(c.departed_bytes as f64, span),
            capacity_mbps: record::mbps(offered, span),
            utilisation: if offered > 0.0 { used / offered } else { 0.0 },
            sojourn_ms: sojourns.summary(ms),
            sojourn_cdf: sojourns.cdf(CDF_POINTS, ms),
            backlog_packets: meter.packets(),
            backlog_ms: meter.bytes(8e3 / self.mean_bps as f64),
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

    /// What a guard did over the whole run, where there is one.
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
