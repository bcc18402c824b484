//! A world: one simulation, as plain data. A clone continues bit for bit like the original.
//!
//! Time is folded: a packet enters its first queue at the instant it is sent, the receiver handles
//! it at the instant it leaves its last queue, and the ACK spends the remaining delay of the round
//! trip on wires (docs/lab/speed.md). Events at the same instant happen in this order: control (end
//! of the warm-up, bins, controllers), departures by port, ACKs by wire, packets by wire, timers by
//! flow (its sender first).

mod build;
mod builder;
mod clients;
mod control;
mod labels;
mod lookahead;
mod path;
mod pings;
mod record;

use std::sync::Arc;

use quell_qdisc::time::{Instant, NEVER};
use quell_qdisc::{Ecn, Gauges, Labels, num};

use crate::agenda::MAX_TIME;
use crate::measure::Measures;
use crate::net::{Entry, Net};
use crate::packet::{Ack, Kind, Pkt, micros};
use crate::scenario::Scenario;
use crate::slot::{Connection, Datagrams, End, NO_PORT, Slot, source};
pub use builder::WorldBuilder;
use lookahead::Lookahead;

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
///
/// ```
/// use quell_sim::prelude::*;
///
/// let text = "duration = '10s'\n[link]\nrate = '10mbit'\n[[flow]]\ncc = 'cubic'\n";
/// let scenario = Scenario::parse(text, "example.toml", &Overrides::default())?;
/// let mut world = World::builder(scenario).queue("pfifo limit 100").seed(7).build()?;
/// world.run_until(Instant::from_secs(5));
/// let mut other = world.clone();
/// other.set_knobs(0, None, &Knobs { limit_packets: Some(10), ..Knobs::KEEP })?;
/// for world in [&mut world, &mut other] {
///     assert_eq!(world.run_until(NEVER), Status::Done);
/// }
/// assert!(other.gauges(0).backlog_packets <= 10);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) now: Instant,
    pub(crate) net: Net,
    /// The flow table.
    pub(crate) slots: Vec<Slot>,
    /// By slot: number of connections that have been closed in it; wraps.
    pub(crate) generations: Vec<u16>,
    /// Slots that a closed connection has left.
    pub(crate) free: Vec<u16>,
    /// Number of flows whose hashes have been computed.
    pub(crate) next_id: u64,
    /// Key of the hashes of flows and hosts.
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
    /// End of the warm-up; `NEVER` once it is over.
    warm_at: Instant,
    pub(crate) events: u64,
    pub(crate) lookahead: Lookahead,
}

impl World {
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
        let mut run_ahead_at = self.now;
        loop {
            if run_ahead_at <= self.now {
                match self.run_ahead(limit) {
                    Ok(status) => return status,
                    Err(later) => run_ahead_at = later,
                }
            }
            if let Some(status) = self.step(limit) {
                return status;
            }
        }
    }

    /// Handles the next event, or the control due before it. Returns the status with which
    /// `run_until` returns, if it has to return now.
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

    /// Ends the warm-up, closes a bin of the series or runs a controller, if one of these is due no
    /// later than `next`, the time of the next event. Returns the status with which `run_until`
    /// returns, if it has to return now.
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
            self.on_link_end(port, p);
        }
    }

    /// Handles an event on the channel of a cell and the packets that are received because of it.
    /// The channel's next events are handled here, too, as long as no other event comes before
    /// them.
    #[inline(never)]
    fn on_air(&mut self) {
        loop {
            if let Some(mut up) = self.net.on_air(self.now) {
                for (port, p) in up.drain(..) {
                    self.on_link_end(port, p);
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
    fn on_link_end(&mut self, port: usize, p: Pkt) {
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
                    return self.on_sampled_segment(p);
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
                        *self.net.acks.push(self.now, c.path.acks_return_wire) = ack;
                    }
                    Kind::Data | Kind::Udp => {}
                }
            }
            _ => self.on_other_link_end(port, p),
        }
    }

    /// Handles a packet that belongs to no TCP connection and has reached the end of a link. Here
    /// and in [`World::on_sampled_segment`] the packet is passed by value. If its address were
    /// taken, the compiler would keep it in memory on the other branches of
    /// [`World::on_link_end`], too, where copying it stalls the processor.
    #[inline(never)]
    fn on_other_link_end(&mut self, port: usize, p: Pkt) {
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
                let wire = client.server_wire();
                self.forward_message(wire, p.flow, p.seq);
            }
            Slot::Ping(_) => self.on_ping(&p),
            _ => self.on_name_answer(p.flow.slot, p.seq),
        }
    }

    /// Handles a segment that is to be measured, or that may complete a client's object.
    #[cold]
    fn on_sampled_segment(&mut self, p: Pkt) {
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

    /// Handles a client's message at its server, or a datagram that has passed no queue.
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

    /// Handles the timer of an end of a flow. A time that a closed connection set in this slot
    /// differs from `pending` and is ignored.
    fn on_timer(&mut self, slot: u16, end: End) {
        let now = self.now;
        match &mut self.slots[usize::from(slot)] {
            Slot::Tcp(c) => {
                if c.pending[end as usize] != now {
                    return self.net.timers.clear(source(slot, end));
                }
                if c.next_change_at <= now {
                    if c.stop <= now {
                        self.net.timers.clear(source(slot, end));
                        return self.close(slot);
                    }
                    c.next_change_at = c.stop;
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
                self.measures.on_send(d);
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
        *net.acks.push(now, d.path.acks_return_wire) = Ack {
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

/// Sets an end's timer if its deadline is earlier than the time set. If the deadline is later, the
/// timer fires at the time set, and `on_timer` then sets it to the deadline.
#[inline(always)]
pub(crate) fn arm(c: &mut Connection, net: &mut Net, slot: u16, end: End) {
    let at = c.deadline(end);
    let pending = &mut c.pending[end as usize];
    if at < *pending {
        *pending = at;
        net.timers.set(at, source(slot, end));
    }
}
