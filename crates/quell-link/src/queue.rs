//! A queue with its discipline, controller and meter, as it runs in every driver. A
//! [`crate::Bottleneck`] or the channel of a wireless cell sends its packets.

use std::collections::VecDeque;

use quell_qdisc::control::guard::Stats;
use quell_qdisc::control::outside::Outside;
use quell_qdisc::control::{Arrival, Control, Decision, Delay, Departure, Echo, Loss, SubQueue};
use quell_qdisc::{
    Acknowledgment, Backlog, Dequeued, Discipline, DropCause, Drops, Gauges, Knobs, Labels, NEVER,
    Nanos, Packet, Qdisc, Rng, TinGauges, num,
};

use crate::meter::{Counters, Meter};
use crate::record::Tin;
use crate::server::Server;
use crate::words::Built;

/// What the owner of a queue does with the packets that leave it.
pub trait Observer<P> {
    /// The queue gave a packet to the link.
    fn departed(&mut self, _now: Nanos, _packet: &P) {}
    /// The queue gave a packet up.
    fn dropped(&mut self, now: Nanos, packet: P, cause: DropCause);
    /// The link behind the queue lost a packet.
    fn lost(&mut self, now: Nanos, packet: P);
    /// See [`Drops::labels`].
    #[inline]
    fn labels(&self, _packet: &P) -> Labels {
        Labels::default()
    }
    /// See [`Drops::acknowledgment`].
    #[inline]
    fn acknowledgment(&self, _packet: &P) -> Option<Acknowledgment> {
        None
    }
}

/// An owner that notes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl<P> Observer<P> for NoObserver {
    fn dropped(&mut self, _now: Nanos, _packet: P, _cause: DropCause) {}
    fn lost(&mut self, _now: Nanos, _packet: P) {}
}

/// The instruments at a queue: its meter, its owner's observer.
#[derive(Clone, Debug)]
pub struct Probe<P, O> {
    /// What is measured.
    pub meter: Meter,
    /// What the owner notes.
    pub observer: O,
    /// Packets given up in this call, where the controller wants to know.
    watched: Option<Vec<P>>,
}

impl<P: Packet, O: Observer<P>> Probe<P, O> {
    #[inline(always)]
    pub(crate) fn departure(&mut self, now: Nanos, packet: &P) {
        self.meter.departure(now, packet.enqueued(), packet.len());
        self.observer.departed(now, packet);
    }
}

impl<P: Packet, O: Observer<P>> Drops<P> for Probe<P, O> {
    fn drop(&mut self, now: Nanos, packet: P, cause: DropCause) {
        self.meter.dropped(cause, packet.len());
        if let Some(watched) = &mut self.watched {
            watched.push(packet);
        }
        self.observer.dropped(now, packet, cause);
    }

    #[inline]
    fn labels(&self, packet: &P) -> Labels {
        self.observer.labels(packet)
    }

    #[inline]
    fn acknowledgment(&self, packet: &P) -> Option<Acknowledgment> {
        self.observer.acknowledgment(packet)
    }
}

/// A decision for an outside controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The sub-queue whose knobs are wanted; `None`: the queue's.
    pub sub_queue: Option<usize>,
}

/// What an arrival did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The queue holds this much now.
    Done(Backlog),
    /// The packet waits until an outside controller has decided.
    Waits,
}

/// The queue.
#[derive(Clone, Debug)]
pub struct ManagedQueue<P, O> {
    /// The instruments.
    pub probe: Probe<P, O>,
    /// When the controller is due; `NEVER` without one, or for one that decides on packets alone.
    pub decide_at: Nanos,
    qdisc: Qdisc<P>,
    rng: Rng,
    controller: Option<Box<dyn Control>>,
    /// Packets that came while an answer from outside was awaited, the one that raised the question
    /// first.
    waiting: VecDeque<P>,
    question: Option<Question>,
    /// The first of `waiting` has its answer.
    answered: bool,
    sub_queues: Vec<SubQueue>,
    limit: MeanLimit,
    /// The shaper's rate that was set last, bit/s.
    rate_bps: Option<u64>,
    /// Its tins' readings when measuring began.
    warm_tins: Vec<TinGauges>,
}

/// The time-weighted mean of a limit that a controller moves.
#[derive(Clone, Copy, Debug, Default)]
struct MeanLimit {
    sum: f64,
    /// Start of the mean, and when the sum was last brought up to date.
    since: Nanos,
    last: Nanos,
    /// Integral and time of all sub-queues at the start, where these have limits.
    start: (u128, u128),
}

impl<P: Packet, O: Observer<P>> ManagedQueue<P, O> {
    /// An empty queue for a link of this mean rate, bit/s, its controller's first knobs set.
    pub fn new(built: Built, mean_bps: u64, rng: Rng, observer: O) -> Self {
        let mut queue = Self {
            probe: Probe {
                meter: Meter::new(mean_bps),
                observer,
                watched: None,
            },
            decide_at: NEVER,
            qdisc: Qdisc::new(built.queue),
            rng,
            controller: None,
            waiting: VecDeque::new(),
            question: None,
            answered: false,
            sub_queues: Vec::new(),
            limit: MeanLimit::default(),
            rate_bps: None,
            warm_tins: Vec::new(),
        };
        if let Some(mut controller) = built.controller {
            let first = controller.initial();
            queue.qdisc.set_knobs(&first);
            queue.rate_bps = first.rate_bps;
            queue.decide_at = controller.period();
            queue.employ(controller);
        }
        queue
    }

    fn employ(&mut self, controller: Box<dyn Control>) {
        self.probe.watched = controller.watches_packets().then(Vec::new);
        self.controller = Some(controller);
    }

    /// Is nothing queued?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.qdisc.is_empty()
    }

    /// Packets queued.
    #[inline]
    pub fn len(&self) -> usize {
        self.qdisc.len()
    }

    /// The discipline.
    pub fn discipline(&self) -> &Qdisc<P> {
        &self.qdisc
    }

    /// See [`ManagedQueue::discipline`].
    pub(crate) fn discipline_mut(&mut self) -> &mut Qdisc<P> {
        &mut self.qdisc
    }

    /// Who sets its knobs.
    pub fn controller(&self) -> Option<&dyn Control> {
        self.controller.as_deref()
    }

    /// See [`ManagedQueue::controller`].
    pub fn controller_mut(&mut self) -> Option<&mut Box<dyn Control>> {
        self.controller.as_mut()
    }

    /// What a guard did, where its controller or the policy inside its discipline has one.
    pub fn guard(&self) -> Option<&Stats> {
        match &self.controller {
            Some(controller) => controller.guard(),
            None => self.qdisc.guard(),
        }
    }

    /// Does its controller watch each packet?
    pub fn is_watched(&self) -> bool {
        self.probe.watched.is_some()
    }

    /// A random number in [0, 1) from the queue's own stream.
    #[inline]
    pub fn draw(&mut self) -> f64 {
        self.rng.f64()
    }

    /// A packet of `len` bytes arrives.
    #[inline(always)]
    pub fn offer(&mut self, now: Nanos, len: u32, make: impl FnOnce() -> P) -> Offered {
        self.probe.meter.counters.arrivals += 1;
        if self.probe.watched.is_some() {
            return self.offer_watched(now, make());
        }
        let backlog = self
            .qdisc
            .offer_with(now, len, make, &mut self.rng, &mut self.probe);
        self.probe.meter.grown(now, backlog);
        Offered::Done(backlog)
    }

    /// `count` packets of `len` bytes arrive at once, made by their number; false, and nothing
    /// happens, where they have to come one by one.
    #[inline(always)]
    pub fn offer_run(&mut self, now: Nanos, len: u32, count: u32, make: impl Fn(u32) -> P) -> bool {
        if self.probe.watched.is_some() {
            return false;
        }
        let taken = self
            .qdisc
            .offer_run(now, len, count, make, &mut self.rng, &mut self.probe);
        if let Some(backlog) = taken {
            self.probe.meter.counters.arrivals += u64::from(count);
            self.probe.meter.grown(now, backlog);
        }
        taken.is_some()
    }

    #[inline(never)]
    fn offer_watched(&mut self, now: Nanos, packet: P) -> Offered {
        if !self.waiting.is_empty() {
            self.waiting.push_back(packet);
            return Offered::Waits;
        }
        self.admit(now, packet)
    }

    /// Lets the controller decide about an arrival, then offers it.
    fn admit(&mut self, now: Nanos, packet: P) -> Offered {
        let Some(controller) = &mut self.controller else {
            return self.take_in(now, packet);
        };
        self.qdisc.run_timers(now);
        let admission = self.qdisc.admit(now, &packet);
        let sub_queue = admission.map(|a| a.sub_queue);
        let held = sub_queue.map_or(num::count(self.qdisc.len()), |sub| self.qdisc.sub_len(sub));
        let decision = controller.on_arrival(&Arrival {
            now,
            sub_queue,
            fresh: admission.is_some_and(|a| a.fresh),
            held,
            len: packet.len(),
        });
        match decision {
            Decision::Set(knobs) => {
                self.apply(now, sub_queue, &knobs);
                self.take_in(now, packet)
            }
            Decision::Ask => {
                self.waiting.push_front(packet);
                self.question = Some(Question { sub_queue });
                Offered::Waits
            }
        }
    }

    fn take_in(&mut self, now: Nanos, packet: P) -> Offered {
        let backlog = self
            .qdisc
            .offer(now, packet, &mut self.rng, &mut self.probe);
        self.probe.meter.grown(now, backlog);
        self.report_drops(now);
        Offered::Done(backlog)
    }

    /// Tells the controller which packets were given up.
    fn report_drops(&mut self, now: Nanos) {
        let (Some(watched), Some(controller)) = (&mut self.probe.watched, &mut self.controller)
        else {
            return;
        };
        for packet in watched.drain(..) {
            controller.on_drop(&Loss {
                now,
                sub_queue: self.qdisc.sub_queue_of(&packet),
            });
        }
    }

    /// What the discipline sends now.
    #[inline(always)]
    pub fn take(&mut self, now: Nanos) -> Dequeued<P> {
        if self.probe.watched.is_some() {
            return self.take_watched(now);
        }
        let (got, backlog) = self.qdisc.take(now, &mut self.rng, &mut self.probe);
        if let Dequeued::Packet(p) = &got {
            self.probe.departure(now, p);
        }
        self.probe.meter.shrunk(now, backlog);
        got
    }

    /// `take` of a packet that goes to `line`.
    #[inline(always)]
    pub fn take_to(&mut self, now: Nanos, line: &mut Option<P>) -> Dequeued<()> {
        if self.probe.watched.is_some() {
            return self.take_watched(now).map(|p| *line = Some(p));
        }
        let (got, backlog) = self
            .qdisc
            .take_to(now, &mut self.rng, &mut self.probe, line);
        if let (Dequeued::Packet(()), Some(packet)) = (got, &*line) {
            self.probe.departure(now, packet);
        }
        self.probe.meter.shrunk(now, backlog);
        got
    }

    /// Puts what the discipline sends now on a line, copied once from where it lies, and gives when
    /// it is through.
    #[inline(always)]
    pub fn send(
        &mut self,
        now: Nanos,
        line: &mut Option<P>,
        server: &mut Server,
    ) -> Dequeued<Nanos> {
        if self.probe.watched.is_some() {
            return self.take_watched(now).map(|p| {
                *line = Some(p);
                server.finish(now, p.len())
            });
        }
        let (got, backlog) = self
            .qdisc
            .take_to(now, &mut self.rng, &mut self.probe, line);
        let through = match (got, line) {
            (Dequeued::Packet(()), Some(packet)) => {
                self.probe.departure(now, packet);
                Dequeued::Packet(server.finish(now, packet.len()))
            }
            (Dequeued::NotBefore(t), _) => Dequeued::NotBefore(t),
            _ => Dequeued::Empty,
        };
        self.probe.meter.shrunk(now, backlog);
        through
    }

    #[inline(never)]
    fn take_watched(&mut self, now: Nanos) -> Dequeued<P> {
        let (got, backlog) = self.qdisc.take(now, &mut self.rng, &mut self.probe);
        self.report_drops(now);
        if let Dequeued::Packet(p) = &got {
            self.probe.departure(now, p);
            let sub_queue = self.qdisc.sub_queue_of(p);
            let left =
                sub_queue.map_or(num::count(self.qdisc.len()), |sub| self.qdisc.sub_len(sub));
            if let Some(controller) = &mut self.controller {
                controller.on_departure(&Departure {
                    now,
                    sub_queue,
                    held: left + 1,
                    len: p.len(),
                    sojourn: now - p.enqueued(),
                });
            }
        }
        self.probe.meter.shrunk(now, backlog);
        got
    }

    /// Readings of the queue on a link that has this rate now.
    pub fn gauges(&self, now: Nanos, rate_bps: u64) -> Gauges {
        let meter = &self.probe.meter;
        let c = &meter.counters;
        let mut g = Gauges {
            now,
            backlog_packets: num::count(self.qdisc.len()),
            backlog_bytes: self.qdisc.bytes(),
            sojourn: meter.sojourn,
            rate_bps,
            share: 1.0,
            contenders: 1,
            aggregate: 1.0,
            arrivals: c.arrivals,
            departures: c.departures,
            departed_bytes: c.departed_bytes,
            drops_overflow: c.drops.overflow,
            drops_early: c.drops.early + c.drops.forced,
            dropped_bytes: c.dropped_bytes,
            marks: self.qdisc.marks(),
            backlog_ns: meter.packet_ns(now),
            ..Gauges::default()
        };
        self.qdisc.gauges(now, &mut g);
        g
    }

    /// What a record says of its tins, measured for this long.
    pub fn tins(&self, span: Nanos) -> Vec<Tin> {
        let now = self.qdisc.tins();
        let sent = |tins: &[TinGauges]| tins.iter().map(|t| t.sent_bytes).sum::<u64>();
        let all = sent(&now) - sent(&self.warm_tins);
        let started = |i: usize| self.warm_tins.get(i).copied().unwrap_or_default();
        let tins = now.iter().enumerate();
        tins.map(|(i, tin)| Tin::since(tin, &started(i), span, all))
            .collect()
    }

    /// Limit and probability in force.
    pub fn positions(&self, now: Nanos) -> (u32, f64) {
        let mut g = Gauges::default();
        self.qdisc.gauges(now, &mut g);
        (g.limit_packets, g.probability)
    }

    /// The controller's turn at `decide_at`, with gauges that are read only if it decides here:
    /// true if an outside controller does.
    pub fn decide(&mut self, now: Nanos, read: impl FnOnce(&Self) -> Gauges) -> bool {
        self.qdisc.run_timers(now);
        let Some(mut controller) = self.controller.take() else {
            self.decide_at = NEVER;
            return false;
        };
        self.decide_at = now.saturating_add(controller.period().max(1));
        let outside = controller.is_outside();
        if !outside {
            let gauges = read(self);
            self.sub_queues.clear();
            if controller.reads_sub_queues() {
                let all = (0..self.qdisc.sub_queues())
                    .filter_map(|sub| self.qdisc.sub_gauges(now, sub))
                    .map(|gauges| SubQueue {
                        gauges,
                        knobs: Knobs::KEEP,
                    });
                self.sub_queues.extend(all);
            }
            let knobs = controller.decide(&gauges, &mut self.sub_queues, &mut self.rng);
            debug_assert_eq!(knobs.fault(), None, "{}", controller.name());
            self.apply(now, None, &knobs);
            for (sub, SubQueue { knobs, .. }) in self.sub_queues.iter().enumerate() {
                self.qdisc.set_sub_knobs(sub, knobs);
            }
        }
        self.controller = Some(controller);
        outside
    }

    /// A probe has come back: the controller's turn, with gauges that are read only if there is
    /// one.
    pub fn on_probe(&mut self, now: Nanos, probe: &Echo, read: impl FnOnce(&Self) -> Gauges) {
        let Some(mut controller) = self.controller.take() else {
            return;
        };
        self.qdisc.run_timers(now);
        let knobs = controller.on_probe(probe, &read(self));
        self.controller = Some(controller);
        self.apply(now, None, &knobs);
    }

    /// See [`ManagedQueue::on_probe`].
    pub fn on_delay(&mut self, now: Nanos, delay: &Delay, read: impl FnOnce(&Self) -> Gauges) {
        let Some(mut controller) = self.controller.take() else {
            return;
        };
        self.qdisc.run_timers(now);
        let knobs = controller.on_delay(delay, &read(self));
        self.controller = Some(controller);
        self.apply(now, None, &knobs);
    }

    fn apply(&mut self, now: Nanos, sub_queue: Option<usize>, knobs: &Knobs) {
        match sub_queue {
            Some(sub) => self.qdisc.set_sub_knobs(sub, knobs),
            None => {
                self.settle_limit(now);
                self.qdisc.set_knobs(knobs);
                self.rate_bps = knobs.rate_bps.or(self.rate_bps);
            }
        }
    }

    /// The shaper's rate that its controller set, bit/s; None where none sets one.
    pub fn rate_bps(&self) -> Option<u64> {
        self.rate_bps
    }

    /// The decision that an outside controller has to make before waiting packets continue.
    #[inline]
    pub fn question(&self) -> Option<Question> {
        self.question
    }

    /// Sets knobs from outside: of the queue, or of a sub-queue. Where a question about it is open,
    /// this is the answer; packets that waited are then to be taken in with
    /// [`ManagedQueue::go_on`].
    pub fn set_knobs(&mut self, now: Nanos, sub_queue: Option<usize>, knobs: &Knobs) {
        if self.question.is_none_or(|q| q.sub_queue != sub_queue) {
            return self.apply(now, sub_queue, knobs);
        }
        // Without a controller any more, the answer is what is set.
        let decision = match &mut self.controller {
            Some(controller) => controller.answered(sub_queue, knobs),
            None => Decision::Set(*knobs),
        };
        if let Decision::Set(knobs) = decision {
            self.question = None;
            self.answered = true;
            self.apply(now, sub_queue, &knobs);
        }
    }

    /// Takes in the next packet that waited for an answer; `None` if none does, or another answer
    /// is needed first.
    pub fn go_on(&mut self, now: Nanos) -> Option<Backlog> {
        if self.question.is_some() {
            return None;
        }
        let packet = self.waiting.pop_front()?;
        let offered = match std::mem::take(&mut self.answered) {
            true => self.take_in(now, packet),
            false => self.admit(now, packet),
        };
        match offered {
            Offered::Done(backlog) => Some(backlog),
            Offered::Waits => None,
        }
    }

    /// Gives the queue to a controller outside, which decides every `period`, the first time at the
    /// next multiple of it.
    pub fn set_outside(&mut self, now: Nanos, period: Nanos) {
        let period = period.max(1);
        self.employ(Box::new(Outside { period }));
        self.decide_at = (now / period + 1) * period;
    }

    /// Gives the queue to this controller, whose first knobs are set.
    pub fn set_controller(&mut self, now: Nanos, mut controller: Box<dyn Control>) {
        self.apply(now, None, &controller.initial());
        let period = controller.period();
        self.decide_at = now.saturating_add(period);
        self.employ(controller);
    }

    /// Takes the controller away: knobs stay as they are. A question that is open still wants its
    /// answer.
    pub fn release(&mut self) {
        (self.controller, self.decide_at) = (None, NEVER);
        self.probe.watched = None;
    }

    /// Brings timers and integrals up to `now`, for a reading.
    pub fn settle(&mut self, now: Nanos) {
        self.qdisc.run_timers(now);
        self.probe.meter.settle(now);
        self.probe.meter.counters.marks = self.qdisc.marks();
    }

    /// What happened here up to `now`, since the start.
    pub fn counters(&mut self, now: Nanos) -> Counters {
        self.settle(now);
        self.probe.meter.counters
    }

    /// Forgets the warm-up.
    pub fn restart(&mut self, now: Nanos) {
        self.settle(now);
        self.warm_tins = self.qdisc.tins();
        self.probe.meter.restart(now);
        self.limit = MeanLimit {
            sum: 0.0,
            since: now,
            last: now,
            start: self.sub_limits(now),
        };
    }

    fn settle_limit(&mut self, now: Nanos) {
        let (limit, _) = self.positions(now);
        self.limit.sum += f64::from(limit) * (now - self.limit.last) as f64;
        self.limit.last = now;
    }

    /// Limits of all sub-queues, integrated over the time in which each was active, and that time.
    fn sub_limits(&self, now: Nanos) -> (u128, u128) {
        if !self.qdisc.sub_knobs().limit {
            return (0, 0);
        }
        let all = (0..self.qdisc.sub_queues()).filter_map(|sub| self.qdisc.sub_gauges(now, sub));
        all.fold((0, 0), |(sum, time), g| {
            (sum + g.limit_ns, time + g.active_ns)
        })
    }

    /// Time-weighted mean of the limit since `restart`, where a controller moves it or sub-queues
    /// have limits of their own.
    pub fn mean_limit(&mut self, now: Nanos) -> Option<f64> {
        if self.qdisc.sub_knobs().limit {
            let ((sum, time), (start_sum, start_time)) = (self.sub_limits(now), self.limit.start);
            let time = time - start_time;
            return (time > 0).then(|| (sum - start_sum) as f64 / time as f64);
        }
        self.controller.as_ref()?;
        self.settle_limit(now);
        Some(self.limit.sum / (now - self.limit.since).max(1) as f64)
    }
}
