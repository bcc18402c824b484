//! Everything between the endpoints: ports, wires, and the flows' timers.

use quell_link::passive::Stamped;
use quell_qdisc::time::{Duration, Instant, NEVER};
use quell_qdisc::{Ecn, Gauges, Packet, num};

use crate::agenda::Agenda;
use crate::packet::{Ack, Kind, Pkt};
use crate::pipe::Pipes;
use crate::port::Port;
use crate::slot::Path;
use crate::stamps::{DelayAttack, Stamps};
use crate::tcp::sender::Egress;
use crate::tcp::state::timestamp;
use crate::wifi::Cell;

/// ACKs in queues. A packet descriptor holds only its ACK's place here.
#[derive(Clone, Debug, Default)]
pub struct AckStore {
    acks: Vec<Ack>,
    free: Vec<u32>,
}

impl AckStore {
    fn put(&mut self, ack: Ack) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.acks[place as usize] = ack;
                place
            }
            None => {
                self.acks.push(ack);
                num::count(self.acks.len() - 1)
            }
        }
    }

    /// The ACK at a place, which stays there.
    pub fn get(&self, place: u32) -> &Ack {
        &self.acks[place as usize]
    }

    /// The ACK at a place, which becomes free.
    pub fn take(&mut self, place: u32) -> Ack {
        self.free.push(place);
        self.acks[place as usize]
    }
}

/// The network between the endpoints.
#[derive(Clone, Debug, Default)]
pub struct Net {
    /// Queues with their links: 0 is the bottleneck, then the hops, the up link, and the modems.
    pub ports: Vec<Port>,
    /// Ports of the modems downstream and upstream.
    pub modems: [Option<u8>; 2],
    /// By port: the next port of a path; empty: the port with the next number.
    pub follows: Vec<u8>,
    /// Number of hops behind the bottleneck.
    pub hops: u8,
    /// ACKs on the wires to their senders; also clients' messages on the wires to their servers,
    /// and datagrams that pass no queue.
    pub acks: Pipes<Ack>,
    /// Packets on the wires that lead to a queue; a class's target is the queue's port.
    pub wires: Pipes<Pkt>,
    /// By port: the class of the wire to the next port of a path.
    pub onward: Vec<u16>,
    /// Next timer of each end of a flow (see `slot::source`).
    pub timers: Agenda,
    /// ACKs in queues.
    pub store: AckStore,
    /// Ports whose queues read packets' labels.
    pub labelled: Vec<u8>,
    /// The wireless channel that all ports share; None: a wired network.
    pub cell: Option<Box<Cell>>,
    /// Reads TCP timestamps between shapers and modems; None: no controller uses them.
    pub stamps: Option<Box<Stamps>>,
    /// An attack by reflectors that delay their answers; None: no attack. That by far hosts is in
    /// `stamps`.
    pub delay_attack: Option<DelayAttack>,
    /// Earliest time at which the world's `control` may have something to do. 0: it runs before the
    /// next event, for example because an outside controller has to decide.
    pub control_at: Instant,
}

impl Net {
    /// The number of the up link's port, if there is one.
    pub fn up_port(&self) -> usize {
        usize::from(self.hops) + 1
    }

    /// The port that follows another on a path.
    pub fn after(&self, port: usize) -> usize {
        self.follows.get(port).map_or(port + 1, |p| usize::from(*p))
    }

    /// The ports of a path, given the first and the last.
    pub fn way(&self, (first, last): (u8, u8)) -> impl Iterator<Item = usize> {
        let (first, last) = (usize::from(first), usize::from(last));
        let from = (!self.follows.is_empty() || first <= last).then_some(first);
        std::iter::successors(from, move |port| (*port != last).then(|| self.after(*port)))
    }

    /// Sum of the delays between the ports of a path.
    pub fn delay_within(&self, way: (u8, u8)) -> Duration {
        let all = self.way(way).map(|port| self.ports[port].delay);
        all.sum::<Duration>() - self.ports[usize::from(way.1)].delay
    }

    /// Time of the next event of any port, and that port's number (0 in a cell).
    #[inline]
    pub fn next_port(&self) -> (Instant, usize) {
        if let Some(cell) = &self.cell {
            return (cell.next(), 0);
        }
        if let [port] = &self.ports[..] {
            return (port.next, 0);
        }
        self.next_of_ports()
    }

    #[inline(never)]
    fn next_of_ports(&self) -> (Instant, usize) {
        let mut best = (NEVER, 0);
        for (i, port) in self.ports.iter().enumerate() {
            if port.next < best.0 {
                best = (port.next, i);
            }
        }
        best
    }

    /// Sends an ACK, which `write` fills in, back to the sender.
    #[inline]
    pub fn send_ack(&mut self, now: Instant, path: &Path, hash: u32, write: impl FnOnce(&mut Ack)) {
        match path.acks {
            None => write(self.acks.push(now, path.acks_return_wire)),
            Some((first, _)) => {
                let mut ack = Ack::default();
                write(&mut ack);
                ack.tsval = timestamp(now);
                let bytes = ack.ip_bytes() + self.ports[first as usize].overhead;
                let place = self.store.put(ack);
                let p = Pkt::new(Kind::Ack, ack.flow, hash, place, bytes, 0, Ecn::NotEct);
                *self.wires.push(now, path.acks_entry_wire) = p;
            }
        }
    }

    /// Lets a packet arrive at a port's queue.
    #[inline]
    pub fn enter(&mut self, now: Instant, port: usize, p: Pkt) {
        if p.kind() == Kind::Ack {
            self.ports[port]
                .trace_mut()
                .note_ack(p.seq, self.store.get(p.seq));
        }
        if self.ports[port].enqueue(now, p.len(), || p) {
            self.control_at = Instant::ZERO;
        }
        self.notify_cell(now, port);
    }

    /// Tells the cell, if there is one, that a packet has entered a port.
    #[inline(always)]
    pub fn notify_cell(&mut self, now: Instant, port: usize) {
        if let Some(cell) = &mut self.cell {
            cell.arrived(now, port, &mut self.ports);
        }
    }

    /// Handles the cell's event at `now`. Returns the packets received, each with its port; None if
    /// none was received, or if there is no cell.
    pub fn on_air(&mut self, now: Instant) -> Option<Vec<(usize, Pkt)>> {
        let cell = self.cell.as_mut()?;
        cell.event(now, &mut self.ports);
        for port in cell.touched.drain(..) {
            let dropped = &mut self.ports[usize::from(port)].trace_mut().dropped_acks;
            self.store.free.append(dropped);
        }
        (!cell.delivered.is_empty()).then(|| std::mem::take(&mut cell.delivered))
    }

    /// Returns the buffer of `on_air`'s result for reuse.
    pub fn reuse(&mut self, room: Vec<(usize, Pkt)>) {
        if let Some(cell) = &mut self.cell {
            cell.delivered = room;
        }
    }

    /// Gauges of a port's queue.
    pub fn gauges(&self, now: Instant, port: usize) -> Gauges {
        let mut gauges = self.ports[port].gauges(now);
        if let Some(cell) = &self.cell {
            cell.gauges(now, port, &mut gauges);
        }
        gauges
    }

    /// Runs a port's controller; true if an outside controller has to decide.
    pub fn decide(&mut self, now: Instant, port: usize) -> bool {
        let cell = &self.cell;
        self.ports[port].decide(now, |gauges| {
            if let Some(cell) = cell {
                cell.gauges(now, port, gauges);
            }
        })
    }

    /// Number of datagrams and segments of a slot that were dropped or lost.
    pub fn losses(&self, slot: usize) -> u64 {
        let of = |port: &Port| port.trace().losses.get(slot).copied();
        self.ports.iter().filter_map(of).sum()
    }

    /// Resets the losses of a slot that another flow will use.
    pub fn forget_losses(&mut self, slot: usize) {
        for port in &mut self.ports {
            if let Some(losses) = port.trace_mut().losses.get_mut(slot) {
                *losses = 0;
            }
        }
    }

    /// Reads the timestamps of a packet between a shaper and its modem, and tells the controllers
    /// the delay that they show.
    #[inline(never)]
    pub fn read_stamps(&mut self, now: Instant, port: usize, p: &Pkt) {
        let (up, Some(stamps)) = (self.up_port(), &mut self.stamps) else {
            return;
        };
        let (value, echo, requires_answer) = match p.kind() {
            Kind::Udp => return,
            Kind::Data | Kind::Syn => (p.tsval, p.tsecr(), true),
            Kind::Ack => {
                let ack = self.store.get(p.seq);
                (ack.tsval, ack.tsecr, ack.syn)
            }
        };
        let (host, connection) = stamps.ids(p.flow);
        let segment = Stamped {
            host,
            connection,
            value,
            echo,
            requires_answer,
        };
        if port == up {
            stamps.on_upstream(now, p.enqueued(), &segment);
        } else if self.modems[0].is_some_and(|modem| usize::from(modem) == port) {
            let ports = &mut self.ports;
            stamps.on_downstream(now, segment, |delay| {
                for port in [0, up] {
                    ports[port].on_delay(now, delay);
                }
            });
        }
    }

    /// Frees the ACKs that a port dropped.
    #[inline]
    pub fn forget_acks(&mut self, port: usize) {
        let dropped = &mut self.ports[port].trace_mut().dropped_acks;
        if !dropped.is_empty() {
            self.store.free.append(dropped);
        }
    }
}

/// The network as a flow's sender sees it: packets enter the flow's first port.
pub struct Entry<'a> {
    pub net: &'a mut Net,
    pub port: usize,
}

impl Egress for Entry<'_> {
    #[inline(always)]
    fn send(&mut self, now: Instant, len: u32, make: impl FnOnce() -> Pkt) {
        if self.net.ports[self.port].enqueue(now, len, make) {
            self.net.control_at = Instant::ZERO;
        }
        self.net.notify_cell(now, self.port);
    }

    #[inline(always)]
    fn send_run(&mut self, now: Instant, len: u32, count: u32, make: impl Fn(u32) -> Pkt) -> bool {
        self.net.ports[self.port].enqueue_run(now, len, count, make)
    }
}

#[cfg(test)]
mod tests {
    use quell_qdisc::time::Instant;

    use crate::scenario::{Overrides, Scenario};
    use crate::slot::Slot;
    use crate::world::World;

    fn world(text: &str) -> World {
        let s = Scenario::parse(text, "leaks", &Overrides::default()).expect("a scenario");
        World::builder(s)
            .queue("fq_codel")
            .seed(1)
            .build()
            .expect("a world")
    }

    #[test]
    fn acks_that_are_dropped_lost_or_late_leave_nothing_in_the_store() {
        // All ways for an ACK to end: overflow, CoDel, random loss, and a connection that is closed
        // before the ACK arrives.
        for queue in [
            "pfifo limit 5",
            "codel limit 40",
            "fq_codel limit 20",
            "pie",
        ] {
            for shaper in ["line", "htb"] {
                let mut w = world(&format!(
                    "duration = \"20s\"\n[link]\nrate = \"50mbit\"\n[link.up]\nrate = \"200kbit\"\nloss = 0.1\nshaper = \"{shaper}\"\nqueue = \"{queue}\"\n\
                     [[flow]]\ncount = 4\nstop = \"10s\"\n[[flow]]\ncount = 4\nsack = false\nstop = \"10s\"\n\
                     [[flow]]\nkind = \"web\"\nsize = 20000\narrivals = 20\nstop = \"10s\"\n"
                ));
                w.run_until(Instant::from_secs(10));
                let held = w.net.store.acks.len() - w.net.store.free.len();
                // At most the ACKs in the queue and on the wire before it.
                assert!(held <= 1100, "{held} under way");
                assert!(w.net.ports[1].queue.probe.meter.counters.departures > 2000);
                w.run_until(Instant::from_secs(20));
                assert_eq!(
                    w.net.store.acks.len(),
                    w.net.store.free.len(),
                    "{queue}, {shaper}"
                );
            }
        }
    }

    #[test]
    fn short_transfers_leave_no_slot_behind() {
        let mut w = world(
            "duration = \"70s\"\n[link]\nrate = \"100mbit\"\n[[flow]]\nkind = \"web\"\nsize = 5000\narrivals = 300\nstop = \"60s\"\n",
        );
        w.run_until(Instant::from_secs(70));
        let live = w.slots.iter().filter(|s| !matches!(s, Slot::Free)).count();
        // 18,000 transfers of about 60 ms, 18 at a time: few slots, each used many times.
        assert_eq!(live, 1, "the source");
        assert!(w.slots.len() < 100, "{} slots", w.slots.len());
        assert_eq!(w.free.len() + live, w.slots.len());
        let used: u64 = w.generations.iter().map(|g| u64::from(*g)).sum();
        assert!((17_000..19_000).contains(&used), "{used}");
    }
}
