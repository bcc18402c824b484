//! What is measured at a queue, and how: exact means and maxima, histograms for the quantiles.

use quell_qdisc::qdisc::Backlog;
use quell_qdisc::{Discipline, DropCause, Gauges, MS, Nanos, Packet, Qdisc, SEC, US};

use crate::hist::Hist;
use crate::record::{DropsByCause, Summary};

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
pub struct Meter {
    /// Counters since the start.
    pub counters: Counters,
    /// Sojourn of the packet that left last.
    pub sojourn: Nanos,
    /// Sojourn times, ns.
    pub sojourns: Hist,
    packets: Hist,
    bytes: Hist,
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

impl Meter {
    /// Instruments for a link of this mean rate, bit/s.
    pub fn new(mean_bps: u64) -> Self {
        let packet_time = 1514 * 8 * SEC / mean_bps.max(1);
        let grid = (16 * packet_time).clamp(GRID.0, GRID.1);
        Self {
            counters: Counters::default(),
            sojourn: 0,
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

    /// Packet-nanoseconds from the start, or the end of the warm-up, up to the last `settle`.
    pub fn packet_ns(&self) -> u128 {
        self.packet_ns
    }

    /// Byte-nanoseconds from the start up to the last `settle`.
    pub fn byte_ns(&self) -> u128 {
        self.byte_ns
    }

    /// A packet of `len` bytes that entered at `enqueued` leaves the queue for the link.
    #[inline]
    pub fn departure(&mut self, now: Nanos, enqueued: Nanos, len: u32) {
        let sojourn = now - enqueued;
        self.sojourn = sojourn;
        self.sojourns.record(sojourn);
        self.counters.sojourn_sum += sojourn;
        self.counters.departures += 1;
        self.counters.departed_bytes += u64::from(len);
    }

    /// The queue gave a packet up.
    #[inline]
    pub fn dropped(&mut self, cause: DropCause) {
        let drops = &mut self.counters.drops;
        match cause {
            DropCause::Overflow => drops.overflow += 1,
            DropCause::Early => drops.early += 1,
            DropCause::Forced => drops.forced += 1,
        }
    }

    /// Readings of this queue for a controller.
    pub fn gauges<P: Packet>(&self, now: Nanos, qdisc: &Qdisc<P>, rate_bps: u64) -> Gauges {
        let c = &self.counters;
        let mut g = Gauges {
            now,
            backlog_packets: qdisc.len() as u32,
            backlog_bytes: qdisc.bytes(),
            sojourn: self.sojourn,
            rate_bps,
            share: 1.0,
            contenders: 1,
            aggregate: 1.0,
            arrivals: c.arrivals,
            departures: c.departures,
            departed_bytes: c.departed_bytes,
            drops_overflow: c.drops.overflow,
            drops_early: c.drops.early + c.drops.forced,
            marks: qdisc.marks(),
            ..Gauges::default()
        };
        qdisc.gauges(now, &mut g);
        g
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

    /// The backlog in packets, weighted by time, since `restart`.
    pub fn packets(&self) -> Summary {
        Summary {
            mean: self.packet_ns as f64 / self.span(),
            max: self.max.packets as f64,
            ..self.packets.summary(1.0 / f64::from(1 << PACKET_SHIFT))
        }
    }

    /// The backlog in bytes, weighted by time, since `restart`, each value times `scale`.
    pub fn bytes(&self, scale: f64) -> Summary {
        Summary {
            mean: (self.byte_ns - self.warm_byte_ns) as f64 / self.span() * scale,
            max: self.max.bytes as f64 * scale,
            ..self.bytes.summary(scale)
        }
    }

    fn span(&self) -> f64 {
        (self.last - self.since).max(1) as f64
    }
}
