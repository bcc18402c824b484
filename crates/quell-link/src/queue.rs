//! A queue with its discipline, controller and meter, used by all drivers. A [`crate::Bottleneck`]
//! or the channel of a wireless cell sends its packets.

use std::collections::VecDeque;

use quell_qdisc::control::guard::Stats;
use quell_qdisc::control::outside::Outside;
use quell_qdisc::control::{Arrival, Control, Decision, Delay, Departure, Echo, Loss, SubQueue};
use quell_qdisc::discipline::FastPath;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, NEVER};
use quell_qdisc::{
    Acknowledgment, Backlog, Dequeued, Discipline, DropCause, Drops, Gauges, Knobs, Labels, Packet,
    Qdisc, Rng, TinGauges, num,
};

use crate::meter::{Counters, Meter};
use crate::record::Tin;
use crate::server::Server;
use crate::words::Built;

/// Callbacks to the owner of a queue for packets that leave it.
pub trait Observer<P> {
    /// The queue passed a packet to the link.
    fn departed(&mut self, _now: Instant, _packet: &P) {}
    /// The queue dropped a packet.
    fn dropped(&mut self, now: Instant, packet: P, cause: DropCause);
    /// The link behind the queue lost a packet.
    fn lost(&mut self, now: Instant, packet: P);
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

/// An observer that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl<P> Observer<P> for NoObserver {
    fn dropped(&mut self, _now: Instant, _packet: P, _cause: DropCause) {}
    fn lost(&mut self, _now: Instant, _packet: P) {}
}

/// The instruments at a queue: its meter and its owner's observer.
#[derive(Clone, Debug)]
pub struct Probe<P, O> {
    /// Measurements.
    pub meter: Meter,
    /// The owner's observer.
    pub observer: O,
    /// Packets dropped in the current call; `None` if the controller does not watch packets.
    watched: Option<Vec<P>>,
}

impl<P: Packet, O: Observer<P>> Probe<P, O> {
    #[inline(always)]
    pub(crate) fn departure(&mut self, now: Instant, packet: &P) {
        self.meter.departure(now, packet.enqueued(), packet.len());
        self.observer.departed(now, packet);
    }
}

impl<P: Packet, O: Observer<P>> Drops<P> for Probe<P, O> {
    fn drop(&mut self, now: Instant, packet: P, cause: DropCause) {
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

/// A decision that an outside controller has to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The sub-queue whose knobs are to be set; `None`: the queue's own.
    pub sub_queue: Option<usize>,
}

/// Outcome of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The queue handled the packet and now has this backlog.
    Done(Backlog),
    /// The packet waits until an outside controller has decided.
    Waits,
}

/// A queue with its controller and instruments.
#[derive(Clone, Debug)]
pub struct ManagedQueue<P, O> {
    /// The instruments.
    pub probe: Probe<P, O>,
    /// Time of the controller's next decision; `NEVER` without a controller, or if it decides only
    /// on packets.
    pub decide_at: Instant,
    qdisc: Qdisc<P>,
    rng: Rng,
    controller: Option<Box<dyn Control>>,
    /// Packets that wait for an outside controller's answer; the first one raised the question.
    waiting: VecDeque<P>,
    question: Option<Question>,
    /// Whether the question of the first packet in `waiting` has been answered.
    answered: bool,
    sub_queues: Vec<SubQueue>,
    limit: MeanLimit,
    /// The last shaper rate that the controller set.
    rate: Option<Rate>,
    /// Readings of its tins at the end of the warm-up.
    warm_tins: Vec<TinGauges>,
}

/// The time-weighted mean of a limit that a controller moves.
#[derive(Clone, Copy, Debug, Default)]
struct MeanLimit {
    /// The limit, integrated over time up to `last`, packet-nanoseconds.
    sum: f64,
    /// Start of the mean.
    since: Instant,
    last: Instant,
    /// [`ManagedQueue::sub_limits`] at the start.
    start: (u128, u128),
}

impl<P: Packet, O: Observer<P>> ManagedQueue<P, O> {
    /// An empty queue for a link of this mean rate, with its controller's initial knobs.
    pub fn new(built: Built, mean_rate: Rate, rng: Rng, observer: O) -> Self {
        let mut queue = Self {
            probe: Probe {
                meter: Meter::new(mean_rate),
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
            rate: None,
            warm_tins: Vec::new(),
        };
        if let Some(mut controller) = built.controller {
            let first = controller.initial();
            queue.qdisc.set_knobs(&first);
            queue.rate = first.rate;
            queue.decide_at = Instant::ZERO + controller.period();
            queue.install_controller(controller);
        }
        queue
    }

    fn install_controller(&mut self, controller: Box<dyn Control>) {
        self.probe.watched = controller.watches_packets().then(Vec::new);
        self.controller = Some(controller);
    }

    /// Whether the queue is empty.
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

    /// The controller that sets the knobs.
    pub fn controller(&self) -> Option<&dyn Control> {
        self.controller.as_deref()
    }

    /// See [`ManagedQueue::controller`].
    pub fn controller_mut(&mut self) -> Option<&mut Box<dyn Control>> {
        self.controller.as_mut()
    }

    /// Counts of the guard around the controller, or around the policy inside the discipline.
    pub fn guard(&self) -> Option<&Stats> {
        match &self.controller {
            Some(controller) => controller.guard(),
            None => self.qdisc.guard(),
        }
    }

    /// Whether the controller watches each packet.
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
    pub fn offer(&mut self, now: Instant, len: u32, make: impl FnOnce() -> P) -> Offered {
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

    /// `count` packets of `len` bytes arrive at once; `make` makes each from its number, 0 to
    /// `count` - 1. Returns false and does nothing if they must be offered one by one.
    #[inline(always)]
    pub fn offer_run(
        &mut self,
        now: Instant,
        len: u32,
        count: u32,
        make: impl Fn(u32) -> P,
    ) -> bool {
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
    fn offer_watched(&mut self, now: Instant, packet: P) -> Offered {
        if !self.waiting.is_empty() {
            self.waiting.push_back(packet);
            return Offered::Waits;
        }
        self.admit(now, packet)
    }

    /// Lets the controller decide about an arrival, then offers the packet to the discipline.
    fn admit(&mut self, now: Instant, packet: P) -> Offered {
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

    fn take_in(&mut self, now: Instant, packet: P) -> Offered {
        let backlog = self
            .qdisc
            .offer(now, packet, &mut self.rng, &mut self.probe);
        self.probe.meter.grown(now, backlog);
        self.report_drops(now);
        Offered::Done(backlog)
    }

    /// Reports dropped packets to the controller.
    fn report_drops(&mut self, now: Instant) {
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

    /// Takes the packet that the discipline sends now.
    #[inline(always)]
    pub fn take(&mut self, now: Instant) -> Dequeued<P> {
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

    /// The same as [`ManagedQueue::take`], but stores the packet in `line`.
    #[inline(always)]
    pub fn take_to(&mut self, now: Instant, line: &mut Option<P>) -> Dequeued<()> {
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

    /// Puts the packet that the discipline sends now on a line, with a single copy, and returns the
    /// end of its transmission.
    #[inline(always)]
    pub fn send(
        &mut self,
        now: Instant,
        line: &mut Option<P>,
        server: &mut Server,
    ) -> Dequeued<Instant> {
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
    fn take_watched(&mut self, now: Instant) -> Dequeued<P> {
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

    /// Readings of the queue on a link whose present rate is `rate`.
    pub fn gauges(&self, now: Instant, rate: Rate) -> Gauges {
        let meter = &self.probe.meter;
        let c = &meter.counters;
        let mut g = Gauges {
            now,
            backlog_packets: num::count(self.qdisc.len()),
            backlog_bytes: self.qdisc.bytes(),
            sojourn: meter.sojourn,
            rate,
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

    /// Records of its tins for a measured time of `span`.
    pub fn tins(&self, span: Duration) -> Vec<Tin> {
        let now = self.qdisc.tins();
        let sent = |tins: &[TinGauges]| tins.iter().map(|t| t.sent_bytes).sum::<u64>();
        let all = sent(&now) - sent(&self.warm_tins);
        let started = |i: usize| self.warm_tins.get(i).copied().unwrap_or_default();
        let tins = now.iter().enumerate();
        tins.map(|(i, tin)| Tin::since(tin, &started(i), span, all))
            .collect()
    }

    /// The limit (packets) and the probability in force.
    pub fn positions(&self, now: Instant) -> (u32, f64) {
        let mut g = Gauges::default();
        self.qdisc.gauges(now, &mut g);
        (g.limit_packets, g.probability)
    }

    /// Lets the controller decide at `decide_at`. True if an outside controller decides; `read` is
    /// not called then.
    pub fn decide(&mut self, now: Instant, read: impl FnOnce(&Self) -> Gauges) -> bool {
        self.qdisc.run_timers(now);
        let Some(mut controller) = self.controller.take() else {
            self.decide_at = NEVER;
            return false;
        };
        self.decide_at = now.saturating_add(controller.period().max(Duration::from_nanos(1)));
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

    /// Reports a returned probe to the controller; `read` is called only if there is a controller.
    pub fn on_probe(&mut self, now: Instant, probe: &Echo, read: impl FnOnce(&Self) -> Gauges) {
        let Some(mut controller) = self.controller.take() else {
            return;
        };
        self.qdisc.run_timers(now);
        let knobs = controller.on_probe(probe, &read(self));
        self.controller = Some(controller);
        self.apply(now, None, &knobs);
    }

    /// Reports a measured delay to the controller; see [`ManagedQueue::on_probe`].
    pub fn on_delay(&mut self, now: Instant, delay: &Delay, read: impl FnOnce(&Self) -> Gauges) {
        let Some(mut controller) = self.controller.take() else {
            return;
        };
        self.qdisc.run_timers(now);
        let knobs = controller.on_delay(delay, &read(self));
        self.controller = Some(controller);
        self.apply(now, None, &knobs);
    }

    /// Lets the controller take over what the controller of `before`, a queue that has ended, knew
    /// about the line.
    pub fn resume(&mut self, now: Instant, before: &Self) {
        if let (Some(controller), Some(before)) = (&mut self.controller, &before.controller) {
            let knobs = controller.resume(before.as_ref());
            self.apply(now, None, &knobs);
        }
    }

    fn apply(&mut self, now: Instant, sub_queue: Option<usize>, knobs: &Knobs) {
        match sub_queue {
            Some(sub) => self.qdisc.set_sub_knobs(sub, knobs),
            None => {
                self.settle_limit(now);
                self.qdisc.set_knobs(knobs);
                self.rate = knobs.rate.or(self.rate);
            }
        }
    }

    /// The shaper's rate that its controller set; `None` if none was set.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// The decision that an outside controller has to make before waiting packets continue.
    #[inline]
    pub fn question(&self) -> Option<Question> {
        self.question
    }

    /// Sets knobs from outside, of the queue or of a sub-queue. If a question about it is open,
    /// this answers it; the caller then admits the waiting packets with
    /// [`ManagedQueue::admit_waiting`].
    pub fn set_knobs(&mut self, now: Instant, sub_queue: Option<usize>, knobs: &Knobs) {
        if self.question.is_none_or(|q| q.sub_queue != sub_queue) {
            return self.apply(now, sub_queue, knobs);
        }
        // If the controller was removed in the meantime, the answer is applied as it is.
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

    /// Admits the next packet that waited for an answer; `None` if none waits, or another answer is
    /// needed first.
    pub fn admit_waiting(&mut self, now: Instant) -> Option<Backlog> {
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

    /// Gives the queue to an outside controller that decides every `period`, first at the next
    /// multiple of it.
    pub fn set_outside(&mut self, now: Instant, period: Duration) {
        let period = period.max(Duration::from_nanos(1));
        self.install_controller(Box::new(Outside { period }));
        self.decide_at = Instant::ZERO + ((now - Instant::ZERO) / period + 1) * period;
    }

    /// Gives the queue to this controller and applies its initial knobs.
    pub fn set_controller(&mut self, now: Instant, mut controller: Box<dyn Control>) {
        self.apply(now, None, &controller.initial());
        let period = controller.period();
        self.decide_at = now.saturating_add(period);
        self.install_controller(controller);
    }

    /// Removes the controller; knobs keep their values. An open question must still be answered.
    pub fn release(&mut self) {
        (self.controller, self.decide_at) = (None, NEVER);
        self.probe.watched = None;
    }

    /// Updates timers and integrals to `now`, before a reading.
    pub fn settle(&mut self, now: Instant) {
        self.qdisc.run_timers(now);
        self.probe.meter.settle(now);
        self.probe.meter.counters.marks = self.qdisc.marks();
    }

    /// Counters from the start to `now`.
    pub fn counters(&mut self, now: Instant) -> Counters {
        self.settle(now);
        self.probe.meter.counters
    }

    /// Ends the warm-up: measures start from zero.
    pub fn restart(&mut self, now: Instant) {
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

    fn settle_limit(&mut self, now: Instant) {
        let (limit, _) = self.positions(now);
        self.limit.sum += f64::from(limit) * (now - self.limit.last).as_nanos() as f64;
        self.limit.last = now;
    }

    /// Sum over all sub-queues of the limit integrated over the time in which each was active
    /// (packet-nanoseconds), and of that time (ns). (0, 0) if sub-queues have no limit of their
    /// own.
    fn sub_limits(&self, now: Instant) -> (u128, u128) {
        if !self.qdisc.sub_knobs().limit {
            return (0, 0);
        }
        let all = (0..self.qdisc.sub_queues()).filter_map(|sub| self.qdisc.sub_gauges(now, sub));
        all.fold((0, 0), |(sum, time), g| {
            (sum + g.limit_ns, time + g.active_ns)
        })
    }

    /// Time-weighted mean of the limit since `restart`, if a controller moves it or sub-queues have
    /// limits of their own.
    pub fn mean_limit(&mut self, now: Instant) -> Option<f64> {
        if self.qdisc.sub_knobs().limit {
            let ((sum, time), (start_sum, start_time)) = (self.sub_limits(now), self.limit.start);
            let time = time - start_time;
            return (time > 0).then(|| (sum - start_sum) as f64 / time as f64);
        }
        self.controller.as_ref()?;
        self.settle_limit(now);
        Some(self.limit.sum / (now - self.limit.since).as_nanos().max(1) as f64)
    }
}
