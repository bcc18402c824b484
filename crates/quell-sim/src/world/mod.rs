//! A world: one simulation, as plain data. A clone continues bit for bit like the original.
//!
//! Time is folded: a packet enters its first queue at the instant it is sent, a receiver runs at
//! the instant of the departure that reaches it, and the rest of the round trip is one wire
//! (docs/lab/speed.md). Events at the same instant happen in this order: control (end of the
//! warm-up, bins, controllers), departures by port, ACKs by wire, packets by wire, timers by flow
//! (its sender first).

mod build;
mod clients;
mod labels;
mod lookahead;
mod pings;
mod record;

use std::sync::Arc;

use quell_link::error::Error;
use quell_link::words::Queue;
use quell_qdisc::control::Control;
use quell_qdisc::time::{Duration, Instant, NEVER};
use quell_qdisc::{Discipline, Ecn, Gauges, KnobSet, Knobs, Labels, SubGauges, num};

use crate::agenda::MAX_TIME;
use crate::measure::Measures;
use crate::net::{Entry, Net};
use crate::packet::{Ack, Kind, Pkt, micros};
use crate::port::Port;
use crate::scenario::{Link, MODEM_BUFFER, Scenario};
use crate::slot::{Connection, Datagrams, End, NO_PORT, Slot, source};
use crate::wifi;
use lookahead::Lookahead;

/// Maximum number of queues: of 8 bits one value means no queue.
const MAX_PORTS: usize = NO_PORT as usize;

/// Reason for which `run_until` returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Status {
    /// `limit` or the scenario's end is reached.
    Done,
    /// An outside controller must set the knobs. If a packet waits for that, the world continues
    /// only after the decision.
    Decide {
        /// Number of the queue (0: the bottleneck).
        queue: usize,
        /// Number of the sub-queue; `None`: the decision is about the whole queue.
        sub_queue: Option<usize>,
        /// Gauges of the queue.
        gauges: Gauges,
    },
}

/// One simulation.
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) now: Instant,
    pub(crate) net: Net,
    pub(crate) slots: Vec<Slot>,
    pub(crate) generations: Vec<u16>,
    pub(crate) free: Vec<u16>,
    pub(crate) next_id: u64,
    pub(crate) key: (u64, u64),
    pub(crate) measures: Measures,
    /// By report: labels of the data.
    pub(crate) labels: Vec<Labels>,
    /// By report: hash of the far host.
    pub(crate) far_hosts: Vec<u64>,
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) seed: u64,
    pub(crate) queue: String,
    /// Name of the controller that a caller has attached to the bottleneck's queue.
    pub(crate) controlled_by: Option<String>,
    /// Number of decisions made for which a packet waited.
    pub(crate) answers: u64,
    /// Number of reflectors probed.
    pub(crate) pingers: u32,
    warm_at: Instant,
    pub(crate) events: u64,
    pub(crate) look: Lookahead,
}

impl World {
    /// Builds the world of a scenario with this queue at the bottleneck.
    ///
    /// # Errors
    /// If the words name no queue; see [`World::with_queue`].
    pub fn new(
        scenario: Arc<Scenario>,
        queue: &str,
        seed: u64,
        bin: Option<Duration>,
    ) -> Result<Self, Error> {
        Self::with_queue(scenario, &Queue::parse(queue)?, seed, bin)
    }

    /// As `new`, with the queue already parsed.
    ///
    /// # Errors
    /// If queue words do not fit their link, a flow has no path, there are too many queues or
    /// flows, or the bins have no width.
    pub fn with_queue(
        scenario: Arc<Scenario>,
        queue: &Queue,
        seed: u64,
        bin: Option<Duration>,
    ) -> Result<Self, Error> {
        if bin == Some(Duration::ZERO) {
            let error = Error::new("the bins of the series have a width of 0");
            return Err(error.remedy("give them 1 ns at least, or want no series"));
        }
        queue.check(scenario.link.rate.mean_bps(scenario.duration))?;
        if let Some(wifi) = &scenario.wifi {
            let (ports, cell) = wifi::build(&scenario, wifi, queue, seed)?;
            let net = Net {
                ports,
                cell: Some(Box::new(cell)),
                ..Net::default()
            };
            return Self::assemble(net, scenario.clone(), queue, seed, bin);
        }
        let mut ports = vec![Port::new(
            &scenario.link,
            queue,
            scenario.duration,
            seed,
            "link",
        )];
        for (i, hop) in scenario.hops.iter().enumerate() {
            let words = words_of(hop, &scenario, &format!("hop[{}]", i + 1))?;
            ports.push(Port::new(
                hop,
                &words,
                scenario.duration,
                seed,
                &format!("hop{i}"),
            ));
        }
        if let Some(up) = &scenario.up {
            let words = words_of(up, &scenario, "link.up")?;
            ports.push(Port::new(up, &words, scenario.duration, seed, "up"));
        }
        let mut net = Net {
            ports,
            hops: num::low_u8(scenario.hops.len() as u64),
            ..Net::default()
        };
        add_modems(&mut net, &scenario, seed)?;
        let (all, hops) = (net.ports.len(), scenario.hops.len());
        if all > MAX_PORTS {
            return Err(Error::new(format!("a path of {hops} hops is too long"))
                .remedy(format!("give it at most {}", MAX_PORTS + hops - all)));
        }
        Self::assemble(net, scenario, queue, seed, bin)
    }

    fn assemble(
        net: Net,
        scenario: Arc<Scenario>,
        queue: &Queue,
        seed: u64,
        bin: Option<Duration>,
    ) -> Result<Self, Error> {
        let mut world = Self {
            now: Instant::ZERO,
            net,
            slots: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            next_id: 0,
            key: crate::labels::key(seed),
            measures: Measures::new(&scenario, bin),
            labels: Vec::new(),
            far_hosts: Vec::new(),
            warm_at: Instant::ZERO + scenario.warmup,
            scenario,
            seed,
            queue: queue.canonical(),
            controlled_by: None,
            answers: 0,
            pingers: 0,
            events: 0,
            look: Lookahead::default(),
        };
        world.populate()?;
        Ok(world)
    }

    /// Current time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Events handled so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Packets that left the bottleneck's queue so far.
    pub fn packets(&self) -> u64 {
        self.net.ports[0].queue.probe.meter.counters.departures
    }

    /// The hash over every packet event of every queue so far.
    pub fn trace_hash(&self) -> u64 {
        self.net
            .ports
            .iter()
            .fold(0, |h, p| h.rotate_left(7) ^ p.trace().hash)
    }

    /// Sets knobs of a queue, or of one of its sub-queues. If a packet waits for a decision about
    /// exactly that, it continues.
    ///
    /// # Errors
    /// If there is no such queue or sub-queue, it lacks one of these knobs, or a value is out of
    /// its range.
    pub fn set_knobs(
        &mut self,
        queue: usize,
        sub_queue: Option<usize>,
        knobs: &Knobs,
    ) -> Result<(), Error> {
        let now = self.now;
        let known = self.knobs(queue, sub_queue.is_some())?;
        if let Some(lacking) = known.lacks(knobs) {
            return Err(self.lacks(queue, lacking, known));
        }
        if let Some(fault) = knobs.fault() {
            return Err(Error::new(format!("`{}`: {fault}", self.words(queue))));
        }
        let port = &mut self.net.ports[queue];
        let count = port.queue.discipline().sub_queues();
        if let Some(sub) = sub_queue.filter(|sub| *sub >= count) {
            let what = format!("there is no sub-queue {sub} of queue {queue}");
            return Err(Error::new(what).remedy(format!("it has {count}, the first is 0")));
        }
        let waited = port.question().is_some_and(|q| q.sub_queue == sub_queue);
        port.set_knobs(now, sub_queue, knobs);
        if waited {
            self.answers += 1;
            self.net.tell_cell(now, queue);
        }
        self.net.forget_acks(queue);
        Ok(())
    }

    /// The knobs of a queue, or of each of its sub-queues.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn knobs(&self, queue: usize, of_sub_queues: bool) -> Result<KnobSet, Error> {
        self.check_queue(queue)?;
        let discipline = self.net.ports[queue].queue.discipline();
        Ok(match of_sub_queues {
            true => discipline.sub_knobs(),
            false => discipline.knobs(),
        })
    }

    fn lacks(&self, queue: usize, knob: &str, known: KnobSet) -> Error {
        let there: Vec<_> = known.names().collect();
        let remedy = match there.is_empty() {
            true => "it has none".into(),
            false => format!("it has {}", there.join(", ")),
        };
        Error::new(format!("`{}` has no knob {knob}", self.words(queue))).remedy(remedy)
    }

    /// The queue words of a queue.
    fn words(&self, queue: usize) -> &str {
        let scenario = &self.scenario;
        let own = match (queue, &self.net.cell, &scenario.wifi) {
            (_, Some(cell), Some(wifi)) => {
                let node = usize::from(cell.links[queue].from);
                wifi.nodes[node].queue.as_ref()
            }
            (0, ..) => None,
            (port, ..) => match scenario.hops.get(port - 1) {
                Some(hop) => Some(&hop.queue),
                None if port == self.net.up_port() => scenario.up.as_ref().map(|up| &up.queue),
                None => return "bfifo",
            },
        };
        own.unwrap_or(&self.queue)
    }

    /// Checks that every queue works.
    ///
    /// # Errors
    /// The first failure of a queue from outside.
    pub fn check(&self) -> Result<(), Error> {
        let mut ports = self.net.ports.iter();
        match ports.find_map(|port| port.queue.discipline().failure()) {
            None => Ok(()),
            Some(why) => Err(Error::new(why)),
        }
    }

    /// Checks that there is a queue of this number.
    ///
    /// # Errors
    /// If there is none.
    pub fn check_queue(&self, queue: usize) -> Result<(), Error> {
        let last = self.net.ports.len() - 1;
        match queue <= last {
            true => Ok(()),
            false => Err(
                Error::new(format!("there is no queue {queue}")).remedy(match last {
                    0 => "choose 0, the only one".into(),
                    last => format!("choose 0 to {last}"),
                }),
            ),
        }
    }

    fn port_mut(&mut self, queue: usize) -> Result<&mut Port, Error> {
        self.check_queue(queue)?;
        Ok(&mut self.net.ports[queue])
    }

    /// Gauges of a queue.
    ///
    /// # Panics
    /// If there is no such queue: see [`World::queues`].
    pub fn gauges(&self, queue: usize) -> Gauges {
        self.net.gauges(self.now, queue)
    }

    /// Gauges of the sub-queues of a queue; empty if it has none.
    ///
    /// # Panics
    /// If there is no such queue: see [`World::queues`].
    pub fn sub_gauges(&self, queue: usize) -> impl Iterator<Item = SubGauges> {
        let (now, discipline) = (self.now, self.net.ports[queue].queue.discipline());
        let all = 0..discipline.sub_queues();
        all.filter_map(move |sub| discipline.sub_gauges(now, sub))
    }

    /// Link-layer overhead at a queue, bytes per packet.
    ///
    /// # Panics
    /// If there is no such queue: see [`World::queues`].
    pub fn overhead(&self, queue: usize) -> u32 {
        self.net.ports[queue].overhead
    }

    /// The controller that sets a queue's knobs, if any.
    pub fn controller(&self, queue: usize) -> Option<&dyn Control> {
        self.net.ports.get(queue)?.queue.controller()
    }

    /// See [`World::controller`].
    pub fn controller_mut(&mut self, queue: usize) -> Option<&mut dyn Control> {
        let controller = self.net.ports.get_mut(queue)?.queue.controller_mut()?;
        Some(controller.as_mut())
    }

    /// Attaches a controller to a queue.
    ///
    /// # Errors
    /// If there is no such queue, it lacks a knob that the controller sets, or the time between
    /// decisions is 0.
    pub fn set_controller(
        &mut self,
        queue: usize,
        controller: Box<dyn Control>,
    ) -> Result<(), Error> {
        let now = self.now;
        if controller.period() == Duration::ZERO {
            let what = format!("the controller {} has a period of 0", controller.name());
            return Err(Error::new(what).remedy("let it decide every nanosecond at most"));
        }
        let (whole, sub) = controller.knobs();
        for (wanted, of_sub_queues) in [(whole, false), (sub, true)] {
            let known = self.knobs(queue, of_sub_queues)?;
            if let Some(lacking) = known.misses(wanted) {
                return Err(self.lacks(queue, lacking, known));
            }
        }
        if queue == 0 {
            self.controlled_by = Some(controller.name());
        }
        self.port_mut(queue)?.queue.set_controller(now, controller);
        self.net.control_at = Instant::ZERO;
        Ok(())
    }

    /// Detaches a queue's controller; knobs keep their values.
    pub fn release(&mut self, queue: usize) {
        if let Some(port) = self.net.ports.get_mut(queue) {
            port.queue.release();
            self.not_controlled(queue);
        }
    }

    /// Forgets the controller that was attached to the queue.
    fn not_controlled(&mut self, queue: usize) {
        if queue == 0 {
            self.controlled_by = None;
        }
    }

    /// Makes a queue's controller ask outside at each packet for which it would evaluate its
    /// network. False if the controller never does so.
    pub fn ask_outside(&mut self, queue: usize) -> bool {
        self.controller_mut(queue)
            .is_some_and(|controller| controller.ask_outside())
    }

    /// Inputs of a queue's network for the packet that waits for a decision; else empty.
    pub fn question(&self, queue: usize) -> &[f32] {
        self.controller(queue).map_or(&[], |c| c.question())
    }

    /// Number of queues: the bottleneck, the hops in order, the up link, and the modems of both
    /// directions.
    pub fn queues(&self) -> usize {
        self.net.ports.len()
    }

    /// Attaches an outside controller to a queue: `run_until` then returns every `period` for a
    /// decision.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn set_outside(&mut self, queue: usize, period: Duration) -> Result<(), Error> {
        let now = self.now;
        self.port_mut(queue)?.queue.set_outside(now, period);
        self.not_controlled(queue);
        self.net.control_at = Instant::ZERO;
        Ok(())
    }

    /// Time of the next event, controllers aside.
    pub fn next_event(&self) -> Instant {
        let (departure, _) = self.net.next_port();
        departure
            .min(self.net.acks.time())
            .min(self.net.wires.time())
            .min(self.net.timers.time())
    }

    /// Runs until `limit` or the scenario's end.
    pub fn run_until(&mut self, limit: Instant) -> Status {
        let limit = limit.min(Instant::ZERO + self.scenario.duration);
        self.net.control_at = Instant::ZERO;
        let mut again = self.now;
        loop {
            if again <= self.now {
                match self.run_ahead(limit) {
                    Ok(status) => return status,
                    Err(later) => again = later,
                }
            }
            if let Some(status) = self.step(limit) {
                return status;
            }
        }
    }

    /// Handles the next event, or the control due before it. Some if the caller of `run_until` has
    /// to act.
    #[inline(always)]
    fn step(&mut self, limit: Instant) -> Option<Status> {
        // Time and kind in one key: one comparison also orders events of the same instant.
        let (departure, port) = self.net.next_port();
        let key = (departure.min(MAX_TIME).as_nanos() << 2)
            .min(self.net.acks.time().as_nanos() << 2 | 1)
            .min(self.net.wires.time().as_nanos() << 2 | 2)
            .min(self.net.timers.time().as_nanos() << 2 | 3);
        let next = Instant::from_nanos(key >> 2);
        if self.net.control_at <= next {
            return self.control(next, limit);
        }
        self.now = next;
        self.events += 1;
        match key & 3 {
            0 => self.on_departure(port),
            1 => {
                let ack = *self.net.acks.front().0;
                self.net.acks.pop();
                self.on_ack(&ack);
            }
            2 => {
                let (&p, port) = self.net.wires.front();
                self.net.wires.pop();
                self.net.enter(next, usize::from(port), p);
                self.net.forget_acks(usize::from(port));
            }
            _ => {
                let source = self.net.timers.source();
                let end = if source & 1 == 0 {
                    End::Sender
                } else {
                    End::Receiver
                };
                self.on_timer(num::low_u16((source >> 1).into()), end);
            }
        }
        None
    }

    /// Handles what is due before the event at `next` and concerns no packet. Some if the caller
    /// has to act.
    #[cold]
    pub(crate) fn control(&mut self, next: Instant, limit: Instant) -> Option<Status> {
        if let Some(open) = self.open_question() {
            return Some(open);
        }
        let due = self.control_due(limit);
        if due > next {
            self.net.control_at = due;
            return None;
        }
        self.now = due;
        if self.warm_at <= due {
            self.warm_at = NEVER;
            self.end_warmup();
        } else if self.measures.bin_at <= due {
            self.close_bin();
        } else if let Some(queue) = self.net.ports.iter().position(|p| p.queue.decide_at <= due)
            && due < limit
        {
            if self.net.decide(due, queue) {
                return Some(Status::Decide {
                    queue,
                    sub_queue: None,
                    gauges: self.net.gauges(due, queue),
                });
            }
        } else {
            return Some(Status::Done);
        }
        self.net.control_at = self.control_due(limit);
        None
    }

    /// The decision for which a packet waits, if any.
    fn open_question(&self) -> Option<Status> {
        let ports = self.net.ports.iter().enumerate();
        let mut open = ports.filter_map(|(queue, port)| Some((queue, port.question()?)));
        let (queue, question) = open.next()?;
        Some(Status::Decide {
            queue,
            sub_queue: question.sub_queue,
            gauges: self.net.gauges(self.now, queue),
        })
    }

    fn control_due(&self, limit: Instant) -> Instant {
        let decide = self.net.ports.iter().map(|p| p.queue.decide_at).min();
        limit
            .min(self.warm_at)
            .min(self.measures.bin_at)
            .min(decide.unwrap_or(NEVER))
    }

    #[inline]
    fn on_departure(&mut self, port: usize) {
        if self.net.cell.is_some() {
            return self.on_air();
        }
        let through = self.net.ports[port].event(self.now);
        self.net.forget_acks(port);
        if let Some(p) = through {
            self.through(port, p);
        }
    }

    /// An event on the channel of a cell, after which none, one or many packets may be received.
    /// The channel's next events are handled here as long as no other event comes before them.
    #[inline(never)]
    fn on_air(&mut self) {
        loop {
            if let Some(mut up) = self.net.on_air(self.now) {
                for (port, p) in up.drain(..) {
                    self.through(port, p);
                }
                self.net.reuse(up);
            }
            let (next, _) = self.net.next_port();
            let others = self.net.acks.time().min(self.net.wires.time());
            if next > others.min(self.net.timers.time()) || next >= self.net.control_at {
                return;
            }
            self.now = next;
            self.events += 1;
        }
    }

    /// Handles a packet that has reached the end of a link.
    #[inline(always)]
    fn through(&mut self, port: usize, p: Pkt) {
        if self.generations[p.flow.index()] != p.flow.generation {
            if p.kind() == Kind::Ack {
                self.net.store.take(p.seq);
            }
            return;
        }
        match &mut self.slots[p.flow.index()] {
            Slot::Tcp(c) if p.kind() == Kind::Data && port == usize::from(c.path.data.1) => {
                c.receiver.until_sample = c.receiver.until_sample.wrapping_sub(1);
                if c.receiver.until_sample == 0 {
                    return self.on_wanted(p);
                }
                on_data(c, &mut self.net, self.now, &p);
            }
            Slot::Tcp(c) => {
                let last = if p.kind() == Kind::Ack {
                    c.path.acks.map_or(0, |a| a.1)
                } else {
                    c.path.data.1
                };
                if port != usize::from(last) {
                    let class = self.net.onward[port];
                    return forward(&mut self.net, self.now, (port, last), class, p);
                }
                match p.kind() {
                    Kind::Syn => {
                        let ack = Ack {
                            flow: p.flow,
                            tsecr: p.tsval,
                            syn: true,
                            ..Ack::default()
                        };
                        self.net
                            .send_ack(self.now, &c.path, c.ack_hash, |a| *a = ack);
                    }
                    Kind::Ack => {
                        let ack = self.net.store.take(p.seq);
                        *self.net.acks.push(self.now, c.path.home) = ack;
                    }
                    Kind::Data | Kind::Udp => {}
                }
            }
            _ => self.through_otherwise(port, p),
        }
    }

    /// Handles a packet of no TCP connection that has reached the end of a link. Here and in
    /// [`World::on_wanted`] the packet is passed by value: if its address were taken, it would be
    /// in memory on the other branches, too, where copying it stalls the processor.
    #[inline(never)]
    fn through_otherwise(&mut self, port: usize, p: Pkt) {
        let last = match &self.slots[p.flow.index()] {
            Slot::Udp(d) => d.path.data.1,
            Slot::Client(client) => client.last_port(p.cwr()),
            Slot::Ping(pinger) => pinger.last_port(p.cwr()),
            _ => return,
        };
        if port != usize::from(last) {
            let class = self.net.onward[port];
            return forward(&mut self.net, self.now, (port, last), class, p);
        }
        match &mut self.slots[p.flow.index()] {
            Slot::Udp(d) => {
                if let Some((slot, at)) = self.measures.got_datagram(self.now, d, &p) {
                    self.net.timers.set(at, source(slot, End::Sender));
                }
            }
            Slot::Client(client) if p.cwr() => {
                let home = client.home();
                self.forward_message(home, p.flow, p.seq);
            }
            Slot::Ping(_) => self.on_ping(&p),
            _ => self.answered(p.flow.slot, p.seq),
        }
    }

    /// A segment arrives that is to be measured, or that may complete a client's object.
    #[cold]
    fn on_wanted(&mut self, p: Pkt) {
        let Slot::Tcp(c) = &mut self.slots[p.flow.index()] else {
            return;
        };
        self.measures.sample(self.now, c, c.sender.sent_once(p.seq));
        on_data(c, &mut self.net, self.now, &p);
        if let Some((client, number)) = c.owner {
            let next = c.receiver.next;
            self.client_received(client, number, next);
        }
    }

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        let i = ack.flow.index();
        if self.generations[i] != ack.flow.generation {
            return;
        }
        let Slot::Tcp(c) = &mut self.slots[i] else {
            return self.on_message(ack);
        };
        let mut entry = Entry {
            net: &mut self.net,
            port: usize::from(c.path.data.0),
        };
        c.sender.on_ack(self.now, ack, &mut c.cc, &mut entry);
        self.measures
            .note_ack(c.report, c.sender.s.srtt, c.sender.s.cwnd);
        if c.sender.finished() {
            return self.finish(ack.flow.slot);
        }
        arm(c, &mut self.net, ack.flow.slot, End::Sender);
    }

    /// A datagram arrives that has passed no queue.
    #[cold]
    fn on_message(&mut self, message: &Ack) {
        let slot = &mut self.slots[message.flow.index()];
        if let Slot::Client(_) = slot {
            return self.serve(message.flow.slot, message.cumulative);
        }
        if let Slot::Udp(d) = slot {
            let mut p = Pkt::new(
                Kind::Udp,
                message.flow,
                d.hash,
                message.cumulative,
                0,
                message.ce,
                Ecn::NotEct,
            );
            p.tsval = message.tsecr;
            if let Some((slot, at)) = self.measures.got_datagram(self.now, d, &p) {
                self.net.timers.set(at, source(slot, End::Sender));
            }
        }
    }

    /// The time set for an end has come. If it was set by a closed connection, `pending` differs.
    fn on_timer(&mut self, slot: u16, end: End) {
        let now = self.now;
        match &mut self.slots[usize::from(slot)] {
            Slot::Tcp(c) => {
                if c.pending[end as usize] != now {
                    return self.net.timers.clear(source(slot, end));
                }
                if c.turns_at <= now {
                    if c.stop <= now {
                        self.net.timers.clear(source(slot, end));
                        return self.close(slot);
                    }
                    c.turns_at = c.stop;
                    let mut entry = Entry {
                        net: &mut self.net,
                        port: usize::from(c.path.data.0),
                    };
                    c.sender.connect(now, &mut entry);
                }
                if end == End::Receiver && c.receiver.deadline() <= now {
                    let (receiver, net) = (&mut c.receiver, &mut self.net);
                    net.send_ack(now, &c.path, c.ack_hash, |a| receiver.write_ack(a));
                }
                if end == End::Sender && c.sender.deadline() <= now {
                    let mut entry = Entry {
                        net: &mut self.net,
                        port: usize::from(c.path.data.0),
                    };
                    c.sender.on_timer(now, &mut c.cc, &mut entry);
                }
                let at = c.deadline(end);
                c.pending[end as usize] = at;
                self.net.timers.set(at, source(slot, end));
            }
            Slot::Udp(d) => {
                self.net.timers.clear(source(slot, end));
                if d.is_driven() {
                    return self.on_peer(slot);
                }
                if d.at >= d.stop {
                    return;
                }
                self.measures.sends(d);
                let size = d.size();
                let serial = d.sent;
                d.sent += 1;
                d.advance();
                self.net.timers.set(d.at, source(slot, End::Sender));
                depart(&mut self.net, now, d, serial, size);
            }
            Slot::Web(_) => {
                self.net.timers.clear(source(slot, end));
                self.on_web(slot);
            }
            Slot::Client(_) => self.wake_client(slot),
            Slot::Ping(_) => self.on_pinger(slot, end),
            Slot::Free => self.net.timers.clear(source(slot, end)),
        }
    }
}

impl World {
    /// Calls an end of a video call at the time that it has set.
    #[cold]
    fn on_peer(&mut self, slot: u16) {
        let now = self.now;
        let measuring = self.measures.is_measuring();
        let Slot::Udp(d) = &mut self.slots[usize::from(slot)] else {
            return;
        };
        let Some((app, way)) = d.app else { return };
        let Some(ends) = self.measures.apps[usize::from(app)].ends() else {
            return;
        };
        if now >= d.stop {
            return ends.hang_up(d.stop, way);
        }
        let (bytes, at) = ends.poll(now, way, measuring);
        self.net
            .timers
            .set(at.min(d.stop), source(slot, End::Sender));
        if let Some(size) = bytes {
            let serial = d.sent;
            d.sent += 1;
            depart(&mut self.net, now, d, serial, size);
        }
    }
}

/// Sends a datagram of `size` IP bytes.
fn depart(net: &mut Net, now: Instant, d: &Datagrams, serial: u64, size: u32) {
    let payload = size.saturating_sub(crate::slot::UDP_HEADERS);
    if d.path.data.0 == NO_PORT {
        *net.acks.push(now, d.path.home) = Ack {
            flow: d.id,
            cumulative: num::low_u32(serial),
            tsecr: micros(now),
            ce: payload,
            ..Ack::default()
        };
        return;
    }
    let port = usize::from(d.path.data.0);
    let mut p = Pkt::new(
        Kind::Udp,
        d.id,
        d.hash,
        num::low_u32(serial),
        size + net.ports[port].overhead,
        payload,
        d.ecn(),
    );
    p.tsval = micros(now);
    net.enter(now, port, p);
}

/// Adds a modem before the bottleneck downstream and behind the link upstream, if the scenario has
/// them.
fn add_modems(net: &mut Net, scenario: &Scenario, seed: u64) -> Result<(), Error> {
    let ends = [Some(&scenario.link), scenario.up.as_ref()];
    if ends.iter().flatten().all(|link| link.modem.is_none()) {
        return Ok(());
    }
    net.follows = (1..=num::low_u8(net.ports.len() as u64)).collect();
    for (way, link) in ends.into_iter().enumerate() {
        let Some((link, rate)) = link.and_then(|link| Some((link, link.modem.clone()?))) else {
            continue;
        };
        let buffer = link.modem_buffer.unwrap_or(MODEM_BUFFER);
        let fifo = Queue::parse(&format!("bfifo limit {buffer}"))?;
        let modem = Link {
            rate,
            overhead: link.overhead,
            ..Link::default()
        };
        let place = num::low_u8(net.ports.len() as u64);
        let name = ["modem", "modem up"][way];
        net.ports
            .push(Port::new(&modem, &fifo, scenario.duration, seed, name));
        net.follows.push(0);
        if way == 1 {
            let up = net.up_port();
            net.follows[up] = place;
        }
        net.modems[way] = Some(place);
    }
    let hears = |port: &Port| port.queue.controller().is_some_and(|c| c.uses_delay());
    if net.modems.iter().all(Option::is_some) && net.ports.iter().any(hears) {
        net.stamps = Some(Box::default());
    }
    Ok(())
}

/// The queue words of a link, checked against its rate.
fn words_of(link: &Link, scenario: &Scenario, name: &str) -> Result<Queue, Error> {
    let rate = link.rate.mean_bps(scenario.duration);
    let words = Queue::parse(&link.queue).and_then(|words| words.check(rate).map(|()| words));
    words.map_err(|e| e.under(&format!("{name}.queue")))
}

/// Forwards a packet to the next hop, whose link may have a different overhead.
fn forward(net: &mut Net, now: Instant, (port, last): (usize, u8), class: u16, mut p: Pkt) {
    if let Some(cell) = &net.cell {
        let port = usize::from(cell.hop_after(port, last));
        net.enter(now, port, p);
        return net.forget_acks(port);
    }
    if net.stamps.is_some() {
        net.read_stamps(now, port, &p);
    }
    let (here, there) = (&net.ports[port], &net.ports[net.after(port)]);
    let (here, there) = (here.overhead, there.overhead);
    p.resize(there.cast_signed() - here.cast_signed());
    *net.wires.push(now, class) = p;
}

#[inline(always)]
fn on_data(c: &mut Connection, net: &mut Net, now: Instant, p: &Pkt) {
    if let Some(ack) = c.receiver.on_data(now, p) {
        net.send_ack(now, &c.path, c.ack_hash, |a| *a = ack);
    }
    if c.receiver.ack_due(now) {
        let receiver = &mut c.receiver;
        net.send_ack(now, &c.path, c.ack_hash, |a| receiver.write_ack(a));
    } else {
        arm(c, net, p.flow.slot, End::Receiver);
    }
}

/// Each end has one time set: a later deadline waits until that time, which is then moved; an
/// earlier one replaces it.
#[inline(always)]
pub(crate) fn arm(c: &mut Connection, net: &mut Net, slot: u16, end: End) {
    let at = c.deadline(end);
    let pending = &mut c.pending[end as usize];
    if at < *pending {
        *pending = at;
        net.timers.set(at, source(slot, end));
    }
}
