//! Simulates stretches of time flow by flow: lookahead, as in conservative parallel simulation.
//!
//! A stretch is at most as long as the shortest delay from a receiver to a sender, so no ACK sent
//! in a stretch arrives in the same stretch. All ACKs that arrive in a stretch are therefore known
//! when it begins, and a sender depends only on these and on its own timers. A receiver depends
//! only on the packets that leave the queue and on its own timer. So a stretch has three passes:
//! over the senders, over the queue with all packets that they sent, and over the receivers. Within
//! a pass a flow's state stays in the cache, and the loops are short. Results are identical, bit
//! for bit, to those of the event loop. Worlds that lookahead does not handle are left to the event
//! loop: see `World::steady`.
//!
//! In a plain FIFO on a link of constant rate, a packet's departure time is known when it is
//! enqueued. With such a queue, the receivers run ahead of the senders until all queued packets are
//! through the link, and a stretch of the senders is as long as the queue and the shortest wire
//! together.

use quell_link::foresight::Foresight;
use quell_qdisc::time::{Duration, Instant, NEVER, SEC};
use quell_qdisc::{Packet, num};

use super::{Status, World};
use crate::net::Net;
use crate::packet::{Ack, Kind, Pkt, expand};
use crate::pipe::{Chain, Pipes, Requeued};
use crate::port::Port;
use crate::slot::{Connection, End, Slot, source};
use crate::tcp::sender::Egress;

/// Minimum number of full-size packets per flow that the link can carry in the longest stretch.
/// With fewer, a pass has too little work.
const PACKETS: u64 = 2;
/// The same for a stretch that is longer by the time that the queue takes to empty.
const DEEP_PACKETS: u64 = 2;
/// Time until a queue that is too short for such stretches is checked again, in multiples of the
/// shortest delay from a receiver to a sender.
const PAUSE: u64 = 8;
const PACKET_BITS: u64 = 1514 * 8;
/// Upper bound of a stretch: the time in a key has 30 bits.
const MAX_STRETCH: Duration = Duration::from_nanos(1 << 30);
/// Bits of a key below the time; they hold the cause.
const TIME_SHIFT: u32 = 34;
/// Bit of a key: a timer was the cause, not an ACK.
const TIMER: u64 = 1 << 33;
/// Bits of a key that hold an ACK's rank; the class is above them.
const RANK_BITS: u32 = 17;
/// Rank, before the slot is added, of an ACK that a timer sends. At the same instant, ACKs that
/// answer packets precede it.
const BY_TIMER: u32 = 1 << 16;
/// Maximum number of buckets for sorting sent packets by time.
const BUCKETS: usize = 512;

/// Packets that a sender sends at the same instant: the first, whose `enqueued` is that instant,
/// and their number.
#[derive(Clone, Copy, Debug)]
struct Sent {
    first: Pkt,
    count: u32,
}

/// The position of a `Sent` in the order of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// In the upper bits the time since the start of the stretch, ns; below it the cause: an ACK's
    /// class and rank, or [`TIMER`] and the timer's source.
    key: u64,
    index: u32,
}

/// A retransmission in this stretch. Senders run ahead of the queue, so their state no longer
/// describes the time before `at`.
#[derive(Clone, Copy, Debug)]
struct Retransmission {
    slot: u16,
    at: Instant,
    seq: u64,
    /// Time of the segment's first transmission, if this is its first retransmission.
    sent_once: Option<Instant>,
}

/// Packets of a flow that have left the queue or will leave it, in the order of their departure,
/// whose time is in their `enqueued`.
#[derive(Clone, Debug, Default)]
struct Arrived {
    packets: Vec<Pkt>,
    /// The receiver has processed this many packets, counted from the first, ahead of the sender.
    /// Whether they are measured is not known until the sender has reached them.
    seen: usize,
}

impl Arrived {
    #[inline(always)]
    fn push(&mut self, at: Instant, mut packet: Pkt) {
        packet.set_enqueued(at);
        self.packets.push(packet);
    }
}

/// Buffers of the passes, empty between calls of `run_until`.
#[derive(Clone, Debug, Default)]
pub struct Lookahead {
    /// By slot of the flow table: ACKs in flight, and packets whose departure is known.
    acks: Vec<Chain>,
    arrived: Vec<Arrived>,
    /// State of a queue whose departures are known in advance.
    foresight: Option<Foresight<Pkt>>,
    sent: Vec<Sent>,
    places: Vec<Place>,
    sorted: Vec<Place>,
    counts: Vec<u32>,
    retransmissions: Vec<Retransmission>,
    returning: Vec<Requeued>,
    #[cfg(test)]
    stretches: u64,
}

/// Records what a sender sends.
struct SendRecorder<'a> {
    start: Instant,
    /// The key without the time: what causes the sender to send.
    cause: u64,
    slot: u16,
    sent: &'a mut Vec<Sent>,
    places: &'a mut Vec<Place>,
    retransmissions: &'a mut Vec<Retransmission>,
}

impl SendRecorder<'_> {
    #[inline(always)]
    fn record(&mut self, now: Instant, count: u32, mut first: Pkt) {
        first.set_enqueued(now);
        let place = Place {
            key: (now - self.start).as_nanos() << TIME_SHIFT | self.cause,
            index: num::count(self.sent.len()),
        };
        self.places.push(place);
        self.sent.push(Sent { first, count });
    }
}

impl Egress for SendRecorder<'_> {
    #[inline(always)]
    fn send(&mut self, now: Instant, _len: u32, make: impl FnOnce() -> Pkt) {
        self.record(now, 1, make());
    }

    #[inline(always)]
    fn send_run(&mut self, now: Instant, _len: u32, count: u32, make: impl Fn(u32) -> Pkt) -> bool {
        self.record(now, count, make(0));
        true
    }

    #[cold]
    fn on_retransmission(&mut self, at: Instant, seq: u64, sent_once: Option<Instant>) {
        let slot = self.slot;
        self.retransmissions.push(Retransmission {
            slot,
            at,
            seq,
            sent_once,
        });
    }
}

impl Lookahead {
    /// Departure time of a segment that arrives at `now`, if it had been sent only once by then.
    /// The sender's state may be later than `now`; the first retransmission of the segment after
    /// `now`, if there is one, then has the answer.
    #[cold]
    fn sent_once(&self, now: Instant, slot: u16, c: &Connection, low: u32) -> Option<Instant> {
        let later =
            |a: &&Retransmission| a.slot == slot && a.at > now && expand(a.seq, low) == a.seq;
        let retransmission = self.retransmissions.iter().find(later);
        retransmission.map_or_else(|| c.sender.sent_once(low), |r| r.sent_once)
    }

    /// Sorts sent packets by their place: first into buckets by time, then by insertion.
    fn sort(&mut self, span: Duration) {
        let buckets = self.places.len().next_power_of_two().min(BUCKETS);
        // Replaces a division by a multiplication and a shift.
        let scale = (1 << 32) / (span.as_nanos() / buckets as u64 + 1);
        let bucket = |place: &Place| (((place.key >> TIME_SHIFT) * scale) >> 32) as usize;
        self.counts.clear();
        self.counts.resize(buckets + 1, 0);
        for place in &self.places {
            self.counts[bucket(place)] += 1;
        }
        let mut sum = 0;
        for count in &mut self.counts {
            sum += std::mem::replace(count, sum);
        }
        self.sorted.resize(self.places.len(), Place::default());
        for place in self.places.drain(..) {
            let at = &mut self.counts[bucket(&place)];
            self.sorted[*at as usize] = place;
            *at += 1;
        }
        for i in 1..self.sorted.len() {
            let place = self.sorted[i];
            let mut at = i;
            while at > 0 && self.sorted[at - 1] > place {
                self.sorted[at] = self.sorted[at - 1];
                at -= 1;
            }
            self.sorted[at] = place;
        }
    }
}

impl World {
    /// Runs in stretches while the world is steady. `Ok`: the status with which `run_until`
    /// returns, at `limit` at the latest. `Err`: the event loop has to handle the next event;
    /// another attempt is useless before the time given.
    pub(crate) fn run_ahead(&mut self, limit: Instant) -> Result<Status, Instant> {
        let wire = self.net.acks.min_delay().min(MAX_STRETCH);
        // Chains are built and dissolved once per call, which is worthwhile only for two stretches
        // or more.
        if wire == Duration::ZERO || limit < self.now.saturating_add(2 * wire) {
            return Err(NEVER);
        }
        let foreseeable = self.net.cell.is_none() && self.net.ports[0].is_foreseeable();
        let deep = foreseeable && self.is_dense(wire, self.net.ports[0].inside(), DEEP_PACKETS);
        if !deep && !self.is_dense(wire, 0, PACKETS) {
            // The queue of packets may become deep enough.
            let later = self.now.saturating_add(PAUSE * wire);
            return Err(if foreseeable { later } else { NEVER });
        }
        let until = self.steady().ok_or(NEVER)?;
        let mut start = self.next_event();
        if until <= start.saturating_add(wire) {
            return Err(until.max(start));
        }
        let mut lookahead = std::mem::take(&mut self.lookahead);
        lookahead.acks.resize(self.slots.len(), Chain::default());
        lookahead
            .arrived
            .resize(self.slots.len(), Arrived::default());
        let slot_of = |ack: &Ack| ack.flow.index();
        self.net.acks.take_all(&mut lookahead.acks, slot_of);
        if deep {
            let arrived = &mut lookahead.arrived;
            lookahead.foresight = self.net.ports[0].take_ahead(|at, p| {
                arrived[p.flow.index()].push(at, *p);
            });
        }
        // All receivers have been run until this time.
        let mut known = start;
        let result = loop {
            if self.net.control_at <= start {
                self.exchange(&mut lookahead);
                let status = self.control(start, limit);
                self.exchange(&mut lookahead);
                if let Some(status) = status {
                    break Ok(status);
                }
                continue;
            }
            if start == until {
                break Err(until);
            }
            let stop = self.net.control_at.min(until);
            let end = stop.min(known + wire);
            self.run_senders(&mut lookahead, start, end);
            lookahead.sort(end - start);
            self.run_queue(&mut lookahead, end);
            let through = lookahead
                .foresight
                .as_ref()
                .map_or(Instant::ZERO, |f| f.through);
            known = stop.min(through.clamp(end, end + MAX_STRETCH - wire));
            self.run_receivers(&mut lookahead, end, known);
            start = end;
        };
        self.exchange(&mut lookahead);
        if lookahead.foresight.take().is_some() {
            // The queue, which is back in its port, also has these packets.
            lookahead.arrived.iter_mut().for_each(|a| a.packets.clear());
        }
        let slots = &self.slots;
        let class_of = |slot: usize| match &slots[slot] {
            Slot::Tcp(c) => c.path.acks_return_wire,
            _ => 0,
        };
        let Lookahead {
            acks, returning, ..
        } = &mut lookahead;
        self.net.acks.put_back(acks, returning, class_of);
        self.lookahead = lookahead;
        result
    }

    /// Whether the link can carry `packets` full-size packets per slot of the flow table in `span`,
    /// including the `inside` ones that the port already holds.
    fn is_dense(&self, span: Duration, inside: usize, packets: u64) -> bool {
        let rate = self.net.ports[0].mean_rate();
        let bits =
            u128::from(span.as_nanos()) * u128::from(rate.bps()) / u128::from(SEC.as_nanos());
        let all = bits + inside as u128 * u128::from(PACKET_BITS);
        all >= u128::from(packets * PACKET_BITS) * self.slots.len() as u128
    }

    /// Time until which the world is steady: the next start or stop of a connection. `None`: it is
    /// not steady.
    ///
    /// A steady world has one queue, which is on a link of constant rate and has no controller that
    /// watches packets. All flows are endless TCP connections with built-in congestion control,
    /// whose ACKs pass no queue. No connection has been closed: packets of it might be in flight.
    fn steady(&self) -> Option<Instant> {
        let (port, more) = self.net.ports.split_first()?;
        let reused = self.generations.iter().any(|number| *number > 0);
        let other = self.net.cell.is_some() || !more.is_empty() || !port.is_even();
        if other || port.queue.is_watched() || reused {
            return None;
        }
        let steady = |slot: &Slot| match slot {
            Slot::Tcp(c) => {
                let own = c.owner.is_none() && c.sender.is_endless() && !c.cc.is_outside();
                (own && c.path.acks.is_none()).then_some(c.next_change_at)
            }
            _ => None,
        };
        let mut until = NEVER;
        for slot in &self.slots {
            until = until.min(steady(slot)?);
        }
        Some(until)
    }

    /// First pass: runs each sender from `start` to just before `end` and records what it sends.
    #[inline(never)]
    fn run_senders(&mut self, lookahead: &mut Lookahead, start: Instant, end: Instant) {
        let Net { acks, timers, .. } = &mut self.net;
        let each = lookahead.acks.iter_mut().zip(&mut lookahead.arrived);
        for (slot, (it, (chain, arrived))) in self.slots.iter_mut().zip(each).enumerate() {
            let Slot::Tcp(c) = it else { continue };
            let timer_source = source(num::index_u16(slot), End::Sender);
            let class = u64::from(c.path.acks_return_wire) << RANK_BITS;
            let mut egress = SendRecorder {
                start,
                cause: 0,
                slot: num::index_u16(slot),
                sent: &mut lookahead.sent,
                places: &mut lookahead.places,
                retransmissions: &mut lookahead.retransmissions,
            };
            let mut timer = c.pending[End::Sender as usize];
            let (mut ahead, mut wanted) = (&arrived.packets[..arrived.seen], None::<&Pkt>);
            if !ahead.is_empty() {
                wanted = next_measured(c, &mut ahead);
            }
            loop {
                // At the same instant a packet's arrival precedes all that a sender does.
                let before = wanted.map_or(end, |p| p.enqueued());
                loop {
                    let due = acks.due(chain);
                    if due.min(timer) >= before {
                        break;
                    }
                    self.events += 1;
                    if due <= timer {
                        let (&ack, rank) = acks.first(chain);
                        acks.shift(chain);
                        egress.cause = class | u64::from(rank);
                        c.sender.on_ack(due, &ack, &mut c.cc, &mut egress);
                        self.measures
                            .note_ack(c.report, c.sender.s.srtt, c.sender.s.cwnd);
                        timer = timer.min(c.deadline(End::Sender));
                    } else {
                        egress.cause = TIMER | u64::from(timer_source);
                        if c.sender.deadline() <= timer {
                            c.sender.on_timer(timer, &mut c.cc, &mut egress);
                        }
                        timer = c.deadline(End::Sender);
                    }
                }
                let Some(p) = wanted else { break };
                let sent = c.sender.sent_once(p.seq);
                self.measures.sample(before, c, sent);
                wanted = next_measured(c, &mut ahead);
            }
            if arrived.seen > 0 {
                arrived.packets.drain(..arrived.seen);
                arrived.seen = 0;
            }
            c.pending[End::Sender as usize] = timer;
            timers.set(timer, timer_source);
        }
    }

    /// Second pass: enqueues what the senders sent, in order, and dequeues what leaves before
    /// `end`.
    #[inline(never)]
    fn run_queue(&mut self, lookahead: &mut Lookahead, end: Instant) {
        if let Some(foresight) = &mut lookahead.foresight {
            let probe = &mut self.net.ports[0].queue.probe;
            let arrived = &mut lookahead.arrived;
            for place in lookahead.sorted.drain(..) {
                let Sent { first, count } = &lookahead.sent[place.index as usize];
                let now = first.enqueued();
                // At the same instant departures precede arrivals.
                self.events += foresight.depart(now + Duration::from_nanos(1), probe);
                let make = |k| nth(first, *count, k);
                let flow = &mut arrived[first.flow.index()];
                foresight.arrive(now, (first.len(), *count), probe, make, |at, p| {
                    flow.push(at, *p)
                });
            }
            self.events += foresight.depart(end, probe);
            return lookahead.sent.clear();
        }
        let port = &mut self.net.ports[0];
        let mut depart = |port: &mut Port, before: Instant| {
            while port.next < before {
                self.now = port.next;
                self.events += 1;
                if let Some(packet) = port.event(self.now) {
                    lookahead.arrived[packet.flow.index()].push(self.now, packet);
                }
            }
        };
        for place in lookahead.sorted.drain(..) {
            let Sent { first, count } = &lookahead.sent[place.index as usize];
            let now = first.enqueued();
            depart(port, now + Duration::from_nanos(1));
            if *count == 1 {
                port.enqueue(now, first.len(), || *first);
                continue;
            }
            let make = |k| nth(first, *count, k);
            if !port.enqueue_run(now, first.len(), *count, make) {
                for k in 0..*count {
                    port.enqueue(now, first.len(), || make(k));
                }
            }
        }
        depart(port, end);
        lookahead.sent.clear();
    }

    /// Takes the queue out of its port, or puts it back, if its departures are known in advance.
    fn exchange(&mut self, lookahead: &mut Lookahead) {
        if let Some(foresight) = &mut lookahead.foresight {
            self.net.ports[0].exchange(foresight);
        }
    }

    /// Third pass: runs each receiver to just before `known`; the senders are at `end`.
    #[inline(never)]
    fn run_receivers(&mut self, lookahead: &mut Lookahead, end: Instant, known: Instant) {
        let mut arrived = std::mem::take(&mut lookahead.arrived);
        for (slot, Arrived { packets, seen }) in arrived.iter_mut().enumerate() {
            let Slot::Tcp(c) = &mut self.slots[slot] else {
                continue;
            };
            let (acks, return_wire) = (&mut self.net.acks, c.path.acks_return_wire);
            let mut chain = lookahead.acks[slot];
            let before = |time: Instant| match packets.last() {
                Some(last) if last.enqueued() >= time => {
                    packets.partition_point(|p| p.enqueued() < time)
                }
                _ => packets.len(),
            };
            let (with_sender, all) = (before(end), before(known));
            for (k, p) in packets[..all].iter().enumerate() {
                let (now, rank) = (p.enqueued(), 0);
                self.events += run_timer(c, acks, &mut chain, now);
                if p.kind() != Kind::Data {
                    *acks.append(now, return_wire, &mut chain, rank) = Ack {
                        flow: p.flow,
                        tsecr: p.tsval,
                        syn: true,
                        ..Ack::default()
                    };
                    continue;
                }
                if k < with_sender {
                    c.receiver.until_sample = c.receiver.until_sample.wrapping_sub(1);
                    if c.receiver.until_sample == 0 {
                        let sent = lookahead.sent_once(now, num::index_u16(slot), c, p.seq);
                        self.measures.sample(now, c, sent);
                    }
                }
                if let Some(ack) = c.receiver.on_data(now, p) {
                    *acks.append(now, return_wire, &mut chain, rank) = ack;
                }
                if c.receiver.ack_due(now) {
                    let ack = acks.append(now, return_wire, &mut chain, rank);
                    c.receiver.write_ack(ack);
                } else {
                    let at = c.deadline(End::Receiver);
                    let pending = &mut c.pending[End::Receiver as usize];
                    *pending = at.min(*pending);
                }
            }
            match with_sender == packets.len() {
                true => packets.clear(),
                false => drop(packets.drain(..with_sender)),
            }
            *seen = all - with_sender;
            self.events += run_timer(c, acks, &mut chain, known);
            lookahead.acks[slot] = chain;
            let at = c.pending[End::Receiver as usize];
            let timers = &mut self.net.timers;
            timers.set(at, source(num::index_u16(slot), End::Receiver));
        }
        lookahead.arrived = arrived;
        lookahead.retransmissions.clear();
        #[cfg(test)]
        {
            lookahead.stretches += 1;
        }
    }
}

/// The packet with index `k` of `count` sent together.
#[inline(always)]
fn nth(first: &Pkt, count: u32, k: u32) -> Pkt {
    let mut p = *first;
    if count > 1 {
        p.seq = first.seq.wrapping_add(k);
        p.set_flags(false, k + 1 == count);
    }
    p
}

/// The next segment to be measured of those that the receiver has processed ahead of the sender;
/// SYNs, which come first, are not measured. Afterwards `ahead` holds the segments behind it.
#[inline(never)]
fn next_measured<'a>(c: &mut Connection, ahead: &mut &'a [Pkt]) -> Option<&'a Pkt> {
    while let Some((first, others)) = ahead.split_first()
        && first.kind() != Kind::Data
    {
        *ahead = others;
    }
    let left = &mut c.receiver.until_sample;
    match ahead.split_at_checked(usize::from(left.wrapping_sub(1)) + 1) {
        Some((upto, others)) => {
            *ahead = others;
            upto.last()
        }
        None => {
            *left = left.wrapping_sub(num::low_u16(ahead.len() as u64));
            *ahead = &[];
            None
        }
    }
}

/// Handles a receiver's timer each time that it is due before `end`; returns how many times.
#[inline(always)]
fn run_timer(c: &mut Connection, acks: &mut Pipes<Ack>, chain: &mut Chain, end: Instant) -> u64 {
    let mut fired = 0;
    while c.pending[End::Receiver as usize] < end {
        let now = c.pending[End::Receiver as usize];
        fired += 1;
        if c.receiver.deadline() <= now {
            let rank = BY_TIMER | u32::from(c.receiver.flow().slot);
            let ack = acks.append(now, c.path.acks_return_wire, chain, rank);
            c.receiver.write_ack(ack);
        }
        c.pending[End::Receiver as usize] = c.deadline(End::Receiver);
    }
    fired
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::run::{RunOptions, Session};
    use crate::scenario::{Overrides, Scenario};
    use quell_qdisc::time::MS;

    /// A world at its end, run in slices of this length.
    fn after(text: &str, queue: &str, slice: Duration) -> World {
        let s = Scenario::parse(text, "ahead", &Overrides::default()).expect("a scenario");
        let mut w = World::builder(s)
            .queue(queue)
            .seed(1)
            .series(100 * MS)
            .build()
            .expect("a world");
        while w.now() < Instant::ZERO + w.scenario.duration {
            w.run_until(w.now() + slice);
        }
        w
    }

    #[test]
    fn stretches_give_the_same_bits_as_events_one_by_one() {
        let head = "duration = \"2s\"\nwarmup = \"500ms\"\n";
        // Flows with equal delays, so that events coincide; different delays; flows that begin and
        // end; random loss.
        let scenarios = [
            "[link]\nrate = \"120mbit\"\n[[flow]]\ncount = 10\nrtt = \"20ms\"\n",
            "[link]\nrate = \"100mbit\"\n[[flow]]\ncount = 5\nrtt = \"20ms\"\n[[flow]]\ncount = 5\nrtt = \"21ms\"\ncc = \"bbr\"\n",
            "[link]\nrate = \"100mbit\"\n[[flow]]\ncount = 3\nstop = \"1s\"\n[[flow]]\ncount = 3\nstart = \"700ms\"\nsack = false\n",
            "[link]\nrate = \"100mbit\"\nloss = 0.01\n[[flow]]\ncount = 4\ncc = \"dctcp\"\n",
        ];
        for scenario in scenarios {
            for queue in ["pfifo limit 100", "codel", "pie ecn", "fq_codel", "rlaqm"] {
                assert!(same(&format!("{head}{scenario}"), queue, Duration::ZERO) > 20);
            }
        }
    }

    #[test]
    fn stretches_through_a_queue_give_the_same_bits_as_events_one_by_one() {
        let head = "duration = \"4s\"\nwarmup = \"700ms\"\n[link]\n";
        // One wire for all flows and several; flows that begin and end; a queue that empties at
        // times.
        let scenarios = [
            "rate = \"10mbit\"\n[[flow]]\ncount = 10\nrtt = \"20ms\"\n",
            "rate = \"5mbit\"\n[[flow]]\nrtt = \"20ms\"\ncc = \"newreno\"\n",
            "rate = \"20mbit\"\n[[flow]]\ncount = 4\nrtt = \"10ms\"\n[[flow]]\ncount = 5\nrtt = \"21ms\"\ncc = \"bbr\"\n",
            "rate = \"10mbit\"\n[[flow]]\ncount = 3\nstop = \"2s\"\n[[flow]]\ncount = 3\nstart = \"700ms\"\nsack = false\n",
            "rate = \"100mbit\"\n[[flow]]\ncount = 30\nrtt = \"40ms\"\ncc = \"dctcp\"\n",
        ];
        for scenario in scenarios {
            for queue in ["pfifo limit 1000", "bfifo limit 100000", "pfifo limit 30"] {
                same(&format!("{head}{scenario}"), queue, 20 * MS);
            }
        }
        let deep = format!("{head}{}", scenarios[0]);
        // A stretch would hold 1.6 packets a flow without the queue.
        assert!(same(&deep, "pfifo limit 1000", Duration::ZERO) > 2);
        assert_eq!(same(&deep, "codel", Duration::ZERO), 0);
    }

    /// Compares a world run in slices of 500 ms, and if `slice` is not 0 also one run in slices of
    /// three times that length, with one whose events are handled one by one. Returns the larger
    /// number of stretches.
    fn same(text: &str, queue: &str, slice: Duration) -> u64 {
        // Slices of 50 us are shorter than two stretches, so the event loop handles every event.
        let mut alone = after(text, queue, Duration::from_micros(50));
        assert_eq!(alone.lookahead.stretches, 0);
        let record = format!("{:?}", alone.record(0.0));
        let slices = [500 * MS, 3 * slice];
        let worlds = slices
            .iter()
            .filter(|s| **s > Duration::ZERO)
            .map(|s| after(text, queue, *s));
        let mut stretches = 0;
        for mut ahead in worlds {
            stretches = stretches.max(ahead.lookahead.stretches);
            assert_eq!(ahead.trace_hash(), alone.trace_hash(), "{text} {queue}");
            assert_eq!(ahead.events(), alone.events(), "{text} {queue}");
            assert_eq!(format!("{:?}", ahead.record(0.0)), record, "{text} {queue}");
        }
        stretches
    }

    #[test]
    fn a_run_of_20_ms_round_trips_looks_ahead() {
        let text =
            "duration = \"2s\"\n[link]\nrate = \"100mbit\"\n[[flow]]\ncount = 10\nrtt = \"20ms\"\n";
        let s = Scenario::parse(text, "run", &Overrides::default()).expect("a scenario");
        let world = World::builder(s)
            .queue("pfifo")
            .seed(1)
            .build()
            .expect("a world");
        let mut run = Session::new(world, &RunOptions::default()).expect("a run");
        let mut asked = 0;
        let mut poll = || {
            asked += 1;
            Ok(())
        };
        assert_eq!(
            run.run_to_decision(&mut poll).expect("the end"),
            Status::Done
        );
        assert!(asked > 5, "the flag to stop is read");
        assert!(
            run.world.lookahead.stretches > 20,
            "{}",
            run.world.lookahead.stretches
        );
        let mut whole = after(text, "pfifo", 2 * SEC);
        let records = [run.world.record(0.0), whole.record(0.0)].map(|r| r.trace_hash);
        assert_eq!(records[0], records[1]);
    }
}
