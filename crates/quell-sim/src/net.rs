//! Everything between the endpoints: ports, wires, and the timers of the flows.

use quell_link::passive::Stamped;
use quell_qdisc::{Ecn, Gauges, NEVER, Nanos, Packet, num};

use crate::agenda::Agenda;
use crate::packet::{Ack, Kind, Pkt};
use crate::pipe::Pipes;
use crate::port::Port;
use crate::slot::Path;
use crate::stamps::{DelayAttack, Stamps};
use crate::tcp::sender::Egress;
use crate::tcp::state::timestamp;
use crate::wifi::Cell;

/// ACKs in queues: a packet descriptor holds only the place of its ACK here.
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

    /// Looks at an ACK.
    pub fn get(&self, place: u32) -> &Ack {
        &self.acks[place as usize]
    }

    /// Takes an ACK out.
    pub fn take(&mut self, place: u32) -> Ack {
        self.free.push(place);
        self.acks[place as usize]
    }
}

/// The network.
#[derive(Clone, Debug, Default)]
pub struct Net {
    /// Queues with their links: 0 is the bottleneck, then the hops, then the up link, then the
    /// modems.
    pub ports: Vec<Port>,
    /// The modems' ports of the way down and of the way up.
    pub modems: [Option<u8>; 2],
    /// The port that follows each on its way; empty: the next one.
    pub follows: Vec<u8>,
    /// Hops behind the bottleneck.
    pub hops: u8,
    /// ACKs on their last wire.
    pub acks: Pipes<Ack>,
    /// Packets between queues; the class's target is a port.
    pub wires: Pipes<Pkt>,
    /// The class of the wire from each port to the next of a path.
    pub onward: Vec<u16>,
    /// The next time of each end of a flow that waits for something (see `slot::source`).
    pub timers: Agenda,
    /// ACKs in queues.
    pub store: AckStore,
    /// Ports whose queues want their packets' labels.
    pub labelled: Vec<u8>,
    /// The channel that all ports share, if they do.
    pub cell: Option<Box<Cell>>,
    /// Reads the segments between shapers and modems, where a controller wants to know.
    pub stamps: Option<Box<Stamps>>,
    /// Reflectors that lie.
    pub lie: Option<DelayAttack>,
    /// The earliest of what the world's `control` handles; 0 if an outside controller has to
    /// decide.
    pub control_at: Nanos,
}

impl Net {
    /// The port of the up link, if there is one.
    pub fn up_port(&self) -> usize {
        usize::from(self.hops) + 1
    }

    /// The port that follows a port on its way.
    pub fn after(&self, port: usize) -> usize {
        self.follows.get(port).map_or(port + 1, |p| usize::from(*p))
    }

    /// The ports of a way, given its ends.
    pub fn way(&self, (first, last): (u8, u8)) -> impl Iterator<Item = usize> {
        let (first, last) = (usize::from(first), usize::from(last));
        let from = (!self.follows.is_empty() || first <= last).then_some(first);
        std::iter::successors(from, move |port| (*port != last).then(|| self.after(*port)))
    }

    /// Delays between the ports of a way.
    pub fn delay_within(&self, way: (u8, u8)) -> Nanos {
        let all = self.way(way).map(|port| self.ports[port].delay);
        all.sum::<Nanos>() - self.ports[usize::from(way.1)].delay
    }

    /// The port whose turn is next, and when.
    #[inline]
    pub fn next_port(&self) -> (Nanos, usize) {
        if let Some(cell) = &self.cell {
            return (cell.next(), 0);
        }
        if let [port] = &self.ports[..] {
            return (port.next, 0);
        }
        self.next_of_ports()
    }

    #[inline(never)]
    fn next_of_ports(&self) -> (Nanos, usize) {
        let mut best = (NEVER, 0);
        for (i, port) in self.ports.iter().enumerate() {
            if port.next < best.0 {
                best = (port.next, i);
            }
        }
        best
    }

    /// Sends the ACK that `write` writes on its way back.
    #[inline]
    pub fn send_ack(&mut self, now: Nanos, path: &Path, hash: u32, write: impl FnOnce(&mut Ack)) {
        match path.acks {
            None => write(self.acks.push(now, path.home)),
            Some((first, _)) => {
                let mut ack = Ack::default();
                write(&mut ack);
                ack.tsval = timestamp(now);
                let bytes = ack.ip_bytes() + self.ports[first as usize].overhead;
                let place = self.store.put(ack);
                let p = Pkt::new(Kind::Ack, ack.flow, hash, place, bytes, 0, Ecn::NotEct);
                *self.wires.push(now, path.turn) = p;
            }
        }
    }

    /// A packet enters a port.
    #[inline]
    pub fn enter(&mut self, now: Nanos, port: usize, p: Pkt) {
        if p.kind() == Kind::Ack {
            self.ports[port]
                .trace_mut()
                .note_ack(p.seq, self.store.get(p.seq));
        }
        if self.ports[port].enqueue(now, p.len(), || p) {
            self.control_at = 0;
        }
        self.tell_cell(now, port);
    }

    /// A packet has come into a port.
    #[inline(always)]
    pub fn tell_cell(&mut self, now: Nanos, port: usize) {
        if let Some(cell) = &mut self.cell {
            cell.arrived(now, port, &mut self.ports);
        }
    }

    /// What comes through the air now, with its port; None: nothing, or there is no cell.
    pub fn on_air(&mut self, now: Nanos) -> Option<Vec<(usize, Pkt)>> {
        let cell = self.cell.as_mut()?;
        cell.event(now, &mut self.ports);
        for port in cell.touched.drain(..) {
            let dropped = &mut self.ports[usize::from(port)].trace_mut().dropped_acks;
            self.store.free.append(dropped);
        }
        (!cell.up.is_empty()).then(|| std::mem::take(&mut cell.up))
    }

    /// Gives the room of `on_air`'s answer back.
    pub fn reuse(&mut self, room: Vec<(usize, Pkt)>) {
        if let Some(cell) = &mut self.cell {
            cell.up = room;
        }
    }

    /// Readings of a port.
    pub fn gauges(&self, now: Nanos, port: usize) -> Gauges {
        let mut gauges = self.ports[port].gauges(now);
        if let Some(cell) = &self.cell {
            cell.gauges(now, port, &mut gauges);
        }
        gauges
    }

    /// Runs a port's controller; true if an outside controller has to decide.
    pub fn decide(&mut self, now: Nanos, port: usize) -> bool {
        let cell = &self.cell;
        self.ports[port].decide(now, |gauges| {
            if let Some(cell) = cell {
                cell.gauges(now, port, gauges);
            }
        })
    }

    /// Datagrams and segments of a slot of the flow table that arrived nowhere.
    pub fn losses(&self, slot: usize) -> u64 {
        let of = |port: &Port| port.trace().losses.get(slot).copied();
        self.ports.iter().filter_map(of).sum()
    }

    /// The slot goes to another flow.
    pub fn forget_losses(&mut self, slot: usize) {
        for port in &mut self.ports {
            if let Some(losses) = port.trace_mut().losses.get_mut(slot) {
                *losses = 0;
            }
        }
    }

    /// A packet passes between a shaper and its modem: controllers get the delay that its
    /// timestamps show.
    #[inline(never)]
    pub fn read_stamps(&mut self, now: Nanos, port: usize, p: &Pkt) {
        let (up, Some(stamps)) = (self.up_port(), &mut self.stamps) else {
            return;
        };
        let (value, echo, asks) = match p.kind() {
            Kind::Udp => return,
            Kind::Data | Kind::Syn => (p.tsval, p.tsecr(), true),
            Kind::Ack => {
                let ack = self.store.get(p.seq);
                (ack.tsval, ack.tsecr, ack.syn)
            }
        };
        let (host, connection) = stamps.names(p.flow);
        let segment = Stamped {
            host,
            connection,
            value,
            echo,
            asks,
        };
        if port == up {
            stamps.left(now, p.enqueued(), &segment);
        } else if self.modems[0].is_some_and(|modem| usize::from(modem) == port) {
            let ports = &mut self.ports;
            stamps.came(now, segment, |delay| {
                for port in [0, up] {
                    ports[port].on_delay(now, delay);
                }
            });
        }
    }

    /// Forgets the ACKs that a port dropped.
    #[inline]
    pub fn forget_acks(&mut self, port: usize) {
        let dropped = &mut self.ports[port].trace_mut().dropped_acks;
        if !dropped.is_empty() {
            self.store.free.append(dropped);
        }
    }
}

/// The first port of a flow, as its sender sees it.
pub struct Entry<'a> {
    /// The network.
    pub net: &'a mut Net,
    /// The port.
    pub port: usize,
}

impl Egress for Entry<'_> {
    #[inline(always)]
    fn send(&mut self, now: Nanos, len: u32, make: impl FnOnce() -> Pkt) {
        if self.net.ports[self.port].enqueue(now, len, make) {
            self.net.control_at = 0;
        }
        self.net.tell_cell(now, self.port);
    }

    #[inline(always)]
    fn send_run(&mut self, now: Nanos, len: u32, count: u32, make: impl Fn(u32) -> Pkt) -> bool {
        self.net.ports[self.port].enqueue_run(now, len, count, make)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quell_qdisc::SEC;

    use crate::scenario::{Overrides, Scenario};
    use crate::slot::Slot;
    use crate::world::World;

    fn world(text: &str) -> World {
        let s = Scenario::parse(text, "leaks", &Overrides::default()).expect("a scenario");
        World::new(Arc::new(s), "fq_codel", 1, None).expect("a world")
    }

    #[test]
    fn acks_that_are_dropped_lost_or_late_leave_nothing_in_the_store() {
        // All ways for an ACK to end: overflow, CoDel, random loss, and a connection that is closed
        // by then.
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
                w.run_until(10 * SEC);
                let held = w.net.store.acks.len() - w.net.store.free.len();
                // At most what is in the queue and on the wire before it.
                assert!(held <= 1100, "{held} under way");
                assert!(w.net.ports[1].queue.probe.meter.counters.departures > 2000);
                w.run_until(20 * SEC);
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
        w.run_until(70 * SEC);
        let live = w.slots.iter().filter(|s| !matches!(s, Slot::Free)).count();
        // 18,000 transfers of about 60 ms, 18 at a time: few slots, used again and again.
        assert_eq!(live, 1, "the source");
        assert!(w.slots.len() < 100, "{} slots", w.slots.len());
        assert_eq!(w.free.len() + live, w.slots.len());
        let used: u64 = w.generations.iter().map(|g| u64::from(*g)).sum();
        assert!((17_000..19_000).contains(&used), "{used}");
    }
}
