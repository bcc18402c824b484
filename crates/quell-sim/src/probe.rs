//! What is measured at a queue, and how: exact means and maxima, histograms for the quantiles.

use quell_link::hist::Hist;
use quell_link::record::DropsByCause;
use quell_qdisc::qdisc::Backlog;
use quell_qdisc::{DropCause, Drops, MS, Nanos, Packet, US};

use crate::packet::{Kind, Pkt};

/// Quantiles of the backlog come from samples every 16 packet times, within these bounds; its mean and maximum are exact.
const GRID: (Nanos, Nanos) = (10 * US, 16 * MS);

/// The histogram is linear below 1024: packets are counted in units of 1/1024.
const PACKET_SHIFT: u32 = 10;

/// Counters that run from the start of the world.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Packets offered.
    pub arrivals: u64,
    /// Packets that left the queue.
    pub departures: u64,
    /// Their bytes.
    pub departed_bytes: u64,
    /// Packets dropped, by cause.
    pub drops: DropsByCause,
    /// Sum of the sojourn times of all packets that left.
    pub sojourn_sum: Nanos,
}

/// The instruments at one queue.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Counters since the start.
    pub counters: Counters,
    /// Sojourn of the packet that left last.
    pub sojourn: Nanos,
    /// Hash over every packet event.
    pub hash: u64,
    /// ACKs that were dropped: their places in the store are to be freed.
    pub dropped_acks: Vec<u32>,
    /// Packets that left (no cause) or were dropped, for a capture; None: nobody captures.
    pub capture: Option<Vec<(Option<DropCause>, Pkt)>>,
    /// Sojourn times, ns.
    pub sojourns: Hist,
    /// Backlog samples, packets times 1024.
    pub packets: Hist,
    /// Backlog samples, bytes.
    pub bytes: Hist,
    /// Time integrals: packet-nanoseconds, byte-nanoseconds.
    packet_ns: u128,
    byte_ns: u128,
    warm_byte_ns: u128,
    max: Backlog,
    since: Nanos,
    last: Nanos,
    next_sample: Nanos,
    grid: Nanos,
    held: Backlog,
}

impl Probe {
    /// Instruments for a link on which a full packet takes `packet_time`.
    pub fn new(packet_time: Nanos) -> Self {
        let grid = (16 * packet_time).clamp(GRID.0, GRID.1);
        Self {
            counters: Counters::default(),
            sojourn: 0,
            hash: 0,
            dropped_acks: Vec::new(),
            capture: None,
            sojourns: Hist::new(),
            packets: Hist::new(),
            bytes: Hist::new(),
            packet_ns: 0,
            byte_ns: 0,
            warm_byte_ns: 0,
            max: Backlog::default(),
            since: 0,
            last: 0,
            next_sample: grid,
            grid,
            held: Backlog::default(),
        }
    }

    /// The queue holds this much from now on.
    #[inline]
    pub fn backlog(&mut self, now: Nanos, held: Backlog) {
        self.settle(now);
        self.held = held;
        self.max.packets = self.max.packets.max(held.packets);
        self.max.bytes = self.max.bytes.max(held.bytes);
    }

    /// Brings the integrals up to `now`.
    #[inline]
    pub fn settle(&mut self, now: Nanos) {
        let dt = now - self.last;
        self.packet_ns += u128::from(self.held.packets as u64 * dt);
        self.byte_ns += u128::from(self.held.bytes) * u128::from(dt);
        self.last = now;
        if now >= self.next_sample {
            self.sample(now);
        }
    }

    #[cold]
    fn sample(&mut self, now: Nanos) {
        let count = (now - self.next_sample) / self.grid + 1;
        self.packets
            .record_weighted((self.held.packets as u64) << PACKET_SHIFT, count);
        self.bytes.record_weighted(self.held.bytes, count);
        self.next_sample += count * self.grid;
    }

    /// Byte-nanoseconds from the start up to the last `settle`.
    pub fn byte_ns(&self) -> u128 {
        self.byte_ns
    }

    /// Time-weighted mean and maximum of the backlog in bytes since `restart`.
    pub fn bytes_mean_max(&self) -> (f64, f64) {
        let span = (self.last - self.since).max(1) as f64;
        (
            (self.byte_ns - self.warm_byte_ns) as f64 / span,
            self.max.bytes as f64,
        )
    }

    /// A packet leaves the queue for the link.
    #[inline]
    pub fn departure(&mut self, now: Nanos, p: &Pkt) {
        let sojourn = now - p.enqueued();
        self.sojourn = sojourn;
        self.sojourns.record(sojourn);
        self.counters.sojourn_sum += sojourn;
        self.counters.departures += 1;
        self.counters.departed_bytes += u64::from(p.len());
        self.event(now, p, 1 + p.ecn() as u64);
        if let Some(capture) = &mut self.capture {
            capture.push((None, *p));
        }
    }

    /// The link behind the queue lost a packet.
    #[cold]
    pub fn lost(&mut self, p: &Pkt) {
        self.counters.drops.link += 1;
        if p.kind == Kind::Ack {
            self.dropped_acks.push(p.seq);
        }
    }

    /// Mixes one packet's fate into the hash.
    #[inline]
    fn event(&mut self, now: Nanos, p: &Pkt, fate: u64) {
        let word = now ^ u64::from(p.seq) << 20 ^ u64::from(p.flow.slot) << 44 ^ fate << 60;
        self.hash = (self.hash ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }

    /// Forgets the warm-up; counters run on.
    pub fn restart(&mut self, now: Nanos) {
        self.settle(now);
        self.sojourns.clear();
        self.packets.clear();
        self.bytes.clear();
        self.packet_ns = 0;
        self.warm_byte_ns = self.byte_ns;
        self.max = self.held;
        self.since = now;
    }

    /// Time-weighted mean and maximum of the backlog in packets since `restart`.
    pub fn packets_mean_max(&self) -> (f64, f64) {
        let span = (self.last - self.since).max(1) as f64;
        (self.packet_ns as f64 / span, self.max.packets as f64)
    }
}

impl Drops<Pkt> for Probe {
    fn drop(&mut self, p: Pkt, cause: DropCause) {
        let drops = &mut self.counters.drops;
        match cause {
            DropCause::Overflow => drops.overflow += 1,
            DropCause::Early => drops.early += 1,
            DropCause::Forced => drops.forced += 1,
        }
        if p.kind == Kind::Ack {
            self.dropped_acks.push(p.seq);
        }
        self.event(p.enqueued(), &p, 8 + cause as u64);
        if let Some(capture) = &mut self.capture {
            capture.push((Some(cause), p));
        }
    }
}
