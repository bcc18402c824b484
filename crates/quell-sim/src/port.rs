//! A queue and the link behind it: the discipline, its controller, the shaper and the instruments.

use std::collections::VecDeque;

use quell_link::server::Server;
use quell_link::words::Queue;
use quell_qdisc::control::{Control, Controller};
use quell_qdisc::lfq::Lfq;
use quell_qdisc::{Discipline, Gauges, Got, Knobs, NEVER, Nanos, Packet, PieGauges, Qdisc, Rng};

use crate::packet::Pkt;
use crate::probe::Probe;
use crate::scenario::{Link, Shaper};

/// One queue with its link.
#[derive(Clone, Debug)]
pub struct Port {
    /// What is measured here.
    pub probe: Probe,
    /// When something happens here next; `NEVER` if idle.
    pub next: Nanos,
    /// When the controller is due; `NEVER` without one.
    pub decide_at: Nanos,
    /// Link-layer bytes per packet.
    pub overhead: u32,
    /// Delay behind the queue.
    pub delay: Nanos,
    /// Mean rate, bit/s.
    pub mean_bps: u64,
    qdisc: Qdisc<Pkt>,
    pub(crate) controller: Controller,
    server: Server,
    shaper: Shaper,
    rng: Rng,
    in_service: Option<Pkt>,
    nic: VecDeque<Pkt>,
    nic_limit: usize,
    loss: f64,
    // Token bucket: what it holds (in time) when it was last charged, and when it is out of debt.
    tokens: i64,
    charged: Nanos,
    limit_sum: f64,
    limit_since: (Nanos, Nanos),
    moves_limit: bool,
    /// The discipline's own integral when the warm-up ended.
    warm_limit: (u128, u128),
}

impl Port {
    /// An idle port.
    pub fn new(link: &Link, queue: &Queue, duration: Nanos, seed: u64, name: &str) -> Self {
        let mean = link.rate.mean_bps(duration).max(1);
        let (mut qdisc, mut controller) = queue.build::<Pkt>(mean);
        let knobs = controller.initial();
        qdisc.set_knobs(&knobs);
        let period = controller.period();
        Self {
            probe: Probe::new(mean),
            next: NEVER,
            decide_at: if period == NEVER { NEVER } else { period },
            overhead: link.overhead,
            delay: link.delay,
            mean_bps: mean,
            qdisc,
            moves_limit: !matches!(controller, Controller::None),
            controller,
            server: Server::new(&link.rate),
            shaper: link.shaper,
            rng: Rng::new(seed, name),
            in_service: None,
            nic: VecDeque::new(),
            nic_limit: link.nic as usize,
            loss: link.loss,
            tokens: i64::MAX / 4,
            charged: 0,
            limit_sum: 0.0,
            limit_since: (0, 0),
            warm_limit: (0, 0),
        }
    }

    /// A queue whose link is a wireless cell: it sends nothing by itself, the cell takes from it.
    pub fn in_cell(link: &Link, queue: &Queue, duration: Nanos, seed: u64, name: &str) -> Self {
        Self {
            next: NEVER - 1, // not idle, so that no arrival starts the line
            ..Self::new(link, queue, duration, seed, name)
        }
    }

    /// Is nothing queued?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.qdisc.is_empty()
    }

    /// A packet of `len` bytes arrives.
    #[inline(always)]
    pub fn enqueue(&mut self, now: Nanos, len: u32, make: impl FnOnce() -> Pkt) {
        self.probe.counters.arrivals += 1;
        self.offer(now, len, make);
    }

    #[inline(always)]
    fn offer(&mut self, now: Nanos, len: u32, make: impl FnOnce() -> Pkt) {
        let backlog = self
            .qdisc
            .offer_with(now, len, make, &mut self.rng, &mut self.probe);
        self.probe.backlog(now, backlog);
        if backlog.packets > 0 {
            if self.next == NEVER {
                self.kick(now);
            } else if self.nic_limit > 0 && self.in_service.is_some() {
                self.fill_nic(now);
            }
        }
    }

    /// The port is idle and may have something to send.
    #[inline]
    fn kick(&mut self, now: Nanos) {
        match self.shaper {
            Shaper::Line => self.serve(now),
            Shaper::Htb { .. } => {
                let debt = (-self.tokens).max(0) as u64;
                self.next = now.max(self.charged + debt);
            }
        }
    }

    /// `next` is due: the packet that is through the link now, if any.
    #[inline(always)]
    pub fn event(&mut self, now: Nanos) -> Option<Pkt> {
        match self.shaper {
            Shaper::Line => {
                let through = self.in_service.take();
                self.serve(now);
                match through {
                    Some(p) if self.lost(&p) => None,
                    through => through,
                }
            }
            Shaper::Htb { burst } => self.send_by_tokens(now, burst),
        }
    }

    #[inline]
    fn lost(&mut self, p: &Pkt) -> bool {
        let lost = self.loss > 0.0 && self.rng.f64() < self.loss;
        if lost {
            self.probe.lost(p);
        }
        lost
    }

    /// What the discipline sends now.
    #[inline(always)]
    pub fn take(&mut self, now: Nanos) -> Got<Pkt> {
        let (got, backlog) = self.qdisc.take(now, &mut self.rng, &mut self.probe);
        if let Got::Packet(p) = &got {
            self.probe.departure(now, p);
        }
        self.probe.backlog(now, backlog);
        got
    }

    /// Puts the next packet on the line.
    #[inline(always)]
    fn serve(&mut self, now: Nanos) {
        let through = if self.nic_limit == 0 {
            let (line, server) = (&mut self.in_service, &mut self.server);
            let (through, backlog) =
                self.qdisc
                    .take_with(now, &mut self.rng, &mut self.probe, |p, probe| {
                        probe.departure(now, p);
                        *line = Some(*p);
                        server.finish(now, p.len())
                    });
            self.probe.backlog(now, backlog);
            through
        } else {
            self.take_through_nic(now).map(|p| {
                self.in_service = Some(p);
                self.server.finish(now, p.len())
            })
        };
        self.next = match through {
            Got::Packet(t) => t,
            Got::Empty => NEVER,
            Got::NotBefore(t) => t.max(now + 1),
        };
    }

    /// The next packet out of the device queue, which then takes as many as fit.
    fn take_through_nic(&mut self, now: Nanos) -> Got<Pkt> {
        let first = match self.nic.pop_front() {
            Some(p) => Got::Packet(p),
            None => self.take(now),
        };
        self.fill_nic(now);
        first
    }

    /// The device queue takes what fits; the discipline no longer sees it.
    #[cold]
    fn fill_nic(&mut self, now: Nanos) {
        while self.nic.len() < self.nic_limit {
            match self.take(now) {
                Got::Packet(p) => self.nic.push_back(p),
                Got::Empty | Got::NotBefore(_) => break,
            }
        }
    }

    /// Linux's HTB: a packet leaves at once when the bucket is not in debt, and is charged for.
    fn send_by_tokens(&mut self, now: Nanos, burst: u32) -> Option<Pkt> {
        match self.take(now) {
            Got::Packet(p) => {
                let cost = self.server.cost(now, p.len()) as i64;
                let full = self.server.cost(now, burst) as i64;
                let held = self
                    .tokens
                    .saturating_add((now - self.charged) as i64)
                    .min(full);
                self.tokens = held - cost;
                self.charged = now;
                self.next = if self.qdisc.len() > 0 {
                    now + (-self.tokens).max(0) as u64
                } else {
                    NEVER
                };
                (!self.lost(&p)).then_some(p)
            }
            Got::Empty => {
                self.next = NEVER;
                None
            }
            Got::NotBefore(t) => {
                self.next = t.max(now + 1);
                None
            }
        }
    }

    /// Readings for a controller.
    pub fn gauges(&self, now: Nanos) -> Gauges {
        self.probe
            .gauges(now, &self.qdisc, self.server.rate_bps(now))
    }

    /// Only the knobs' positions, for the series.
    pub fn knobs(&self, now: Nanos, g: &mut Gauges) {
        self.qdisc.gauges(now, g);
    }

    /// Turns knobs.
    pub fn set_knobs(&mut self, now: Nanos, knobs: &Knobs) {
        self.settle_limit(now);
        self.qdisc.set_knobs(knobs);
    }

    /// Readings of the discipline's sub-queues, where it has such.
    pub fn queue_gauges(&self) -> impl Iterator<Item = PieGauges> {
        let queues = 0..self.qdisc.queues();
        queues.filter_map(|queue| self.qdisc.queue_gauges(queue))
    }

    /// Turns the knobs of one of them.
    pub fn set_queue_knobs(&mut self, queue: usize, knobs: &Knobs) {
        self.qdisc.set_queue_knobs(queue, knobs);
    }

    /// The controller's turn at `decide_at`; true if somebody outside has to answer.
    pub fn decide(&mut self, now: Nanos, read: impl FnOnce(&mut Gauges)) -> bool {
        self.qdisc.run_timers(now);
        self.decide_at = now + self.controller.period();
        if matches!(self.controller, Controller::External(_)) {
            return true;
        }
        let mut gauges = self.gauges(now);
        read(&mut gauges);
        self.controller.look(&self.qdisc);
        let knobs = self.controller.decide(&gauges, &mut self.rng);
        self.settle_limit(now);
        self.controller.turn(&knobs, &mut self.qdisc);
        false
    }

    /// Hands the queue to a controller outside, which decides every `period`.
    /// The first time is the next multiple of `period`.
    pub fn set_external(&mut self, now: Nanos, period: Nanos) {
        let period = period.max(1);
        self.controller = Controller::External(period);
        self.decide_at = (now / period + 1) * period;
        self.moves_limit = true;
    }

    fn settle_limit(&mut self, now: Nanos) {
        if self.moves_limit {
            let mut g = Gauges::default();
            self.qdisc.gauges(now, &mut g);
            self.limit_sum += f64::from(g.limit_packets) * (now - self.limit_since.1) as f64;
            self.limit_since.1 = now;
        }
    }

    /// Time-weighted mean of the limit since `restart`, where a controller moves it.
    pub fn mean_limit(&mut self, now: Nanos) -> Option<f64> {
        self.settle_limit(now);
        if self.moves_limit {
            return Some(self.limit_sum / (now - self.limit_since.0).max(1) as f64);
        }
        let (sum, time) = self.qdisc.limit_integral(now)?;
        let (warm_sum, warm_time) = self.warm_limit;
        let time = time - warm_time;
        (time > 0).then(|| (sum - warm_sum) as f64 / time as f64)
    }

    /// The queue's LFQ, if it is one.
    pub fn lfq_mut(&mut self) -> Option<&mut Lfq<Pkt>> {
        match &mut self.qdisc {
            Qdisc::Lfq(lfq) => Some(lfq),
            _ => None,
        }
    }

    /// Answers what the queue's LFQ asked outside, and takes in the packets that waited for it.
    pub fn answer(&mut self, now: Nanos, limit: u32) {
        if let Some(lfq) = self.lfq_mut() {
            lfq.answer(limit);
        }
        while let Some(p) = self.lfq_mut().and_then(Lfq::resume) {
            self.offer(now, p.len(), || p);
        }
    }

    /// Forgets the warm-up.
    pub fn restart(&mut self, now: Nanos) {
        self.qdisc.run_timers(now);
        self.probe.restart(now);
        self.settle_limit(now);
        self.limit_sum = 0.0;
        self.limit_since = (now, now);
        self.warm_limit = self.qdisc.limit_integral(now).unwrap_or_default();
    }

    /// Brings timers and integrals up to `now`, for a reading.
    pub fn settle(&mut self, now: Nanos) {
        self.qdisc.run_timers(now);
        self.probe.settle(now);
    }

    /// Packets marked since the start.
    pub fn marks(&self) -> u64 {
        self.qdisc.marks()
    }

    /// Bytes that the link offered before `now`.
    pub fn offered_bytes(&self, now: Nanos) -> f64 {
        self.server.offered_bytes(now)
    }
}
