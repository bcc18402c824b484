//! Measurement at a queue: exact means and maxima, histograms for the quantiles.

use std::ops::{Add, Sub};

use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant};

use quell_qdisc::{Backlog, DropCause};

use crate::hist::Hist;
use crate::record::{DropsByCause, Summary};

/// Bounds of the interval at which the backlog is sampled: 16 packet times within these bounds. The
/// quantiles of the backlog come from these samples; its mean and maximum are exact.
const GRID: (Duration, Duration) = (Duration::from_micros(10), Duration::from_millis(16));

/// Packets are recorded in units of 1/1024, because the histogram is linear below 1024.
const PACKET_SHIFT: u32 = 10;

/// Counters of a queue since its creation. The difference of two readings counts the time between;
/// a sum counts both queues.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Packets offered.
    pub arrivals: u64,
    /// Packets that left the queue for the link.
    pub departures: u64,
    /// Bytes that left the queue for the link.
    pub departed_bytes: u64,
    /// Packets dropped, by cause.
    pub drops: DropsByCause,
    /// Bytes dropped by the queue.
    pub dropped_bytes: u64,
    /// Packets marked CE.
    pub marks: u64,
    /// Sum of the sojourn times of all packets that left.
    pub sojourn_sum: Duration,
    /// Packets queued, integrated over time, packet-nanoseconds.
    pub packet_ns: u128,
    /// Bytes queued, integrated over time, byte-nanoseconds.
    pub byte_ns: u128,
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            arrivals: self.arrivals - before.arrivals,
            departures: self.departures - before.departures,
            departed_bytes: self.departed_bytes - before.departed_bytes,
            drops: self.drops - before.drops,
            dropped_bytes: self.dropped_bytes - before.dropped_bytes,
            marks: self.marks - before.marks,
            sojourn_sum: self.sojourn_sum - before.sojourn_sum,
            packet_ns: self.packet_ns - before.packet_ns,
            byte_ns: self.byte_ns - before.byte_ns,
        }
    }
}

impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            arrivals: self.arrivals + other.arrivals,
            departures: self.departures + other.departures,
            departed_bytes: self.departed_bytes + other.departed_bytes,
            drops: self.drops + other.drops,
            dropped_bytes: self.dropped_bytes + other.dropped_bytes,
            marks: self.marks + other.marks,
            sojourn_sum: self.sojourn_sum + other.sojourn_sum,
            packet_ns: self.packet_ns + other.packet_ns,
            byte_ns: self.byte_ns + other.byte_ns,
        }
    }
}

/// The instruments at one queue.
#[derive(Clone, Debug)]
pub struct Meter {
    /// Counters since the start. `marks` and the integrals are as of the last [`Meter::settle`].
    pub counters: Counters,
    /// Sojourn of the last packet that left.
    pub sojourn: Duration,
    /// Sojourn times, ns.
    pub sojourns: Hist,
    packets: Hist,
    bytes: Hist,
    /// Whether the histograms record.
    records: bool,
    max: Backlog,
    /// Start of the measured time.
    since: Instant,
    /// Counters at the start of the measured time.
    warm: Counters,
    /// Time up to which the integrals are complete.
    last: Instant,
    next_sample: Instant,
    /// Sampling interval of the backlog.
    grid: Duration,
    /// The backlog since `last`.
    held: Backlog,
}

impl Meter {
    /// Instruments for a link of this mean rate.
    pub fn new(mean_rate: Rate) -> Self {
        let packet_time = mean_rate.transmission_time(1514);
        let grid = packet_time.saturating_mul(16).clamp(GRID.0, GRID.1);
        Self {
            counters: Counters::default(),
            sojourn: Duration::ZERO,
            sojourns: Hist::new(),
            packets: Hist::new(),
            bytes: Hist::new(),
            records: true,
            max: Backlog::default(),
            since: Instant::ZERO,
            warm: Counters::default(),
            last: Instant::ZERO,
            next_sample: Instant::ZERO + grid,
            grid,
            held: Backlog::default(),
        }
    }

    /// Sets the backlog after an arrival.
    #[inline]
    pub fn grown(&mut self, now: Instant, held: Backlog) {
        self.shrunk(now, held);
        self.max.packets = self.max.packets.max(held.packets);
        self.max.bytes = self.max.bytes.max(held.bytes);
    }

    /// Sets the backlog after a departure, which leaves the maximum as it is.
    #[inline]
    pub fn shrunk(&mut self, now: Instant, held: Backlog) {
        self.settle(now);
        self.held = held;
    }

    /// Updates the integrals to `now`.
    #[inline]
    pub fn settle(&mut self, now: Instant) {
        let dt = now - self.last;
        self.counters.packet_ns += u128::from(self.held.packets as u64 * dt.as_nanos());
        self.counters.byte_ns += u128::from(self.held.bytes) * u128::from(dt.as_nanos());
        self.last = now;
        if now >= self.next_sample {
            self.sample(now);
        }
    }

    #[cold]
    fn sample(&mut self, now: Instant) {
        let count = (now - self.next_sample) / self.grid + 1;
        if self.records {
            let packets = (self.held.packets as u64) << PACKET_SHIFT;
            self.packets.record_weighted(packets, count);
            self.bytes.record_weighted(self.held.bytes, count);
        }
        self.next_sample += count * self.grid;
    }

    /// Packets queued, integrated over the time from the start to `now`, packet-nanoseconds.
    pub fn packet_ns(&self, now: Instant) -> u128 {
        let since = now.saturating_since(self.last);
        self.counters.packet_ns + u128::from(self.held.packets as u64 * since.as_nanos())
    }

    /// A packet of `len` bytes that entered at `enqueued` leaves the queue for the link.
    #[inline]
    pub fn departure(&mut self, now: Instant, enqueued: Instant, len: u32) {
        let sojourn = now - enqueued;
        self.sojourn = sojourn;
        if self.records {
            self.sojourns.record(sojourn.as_nanos());
        }
        self.counters.sojourn_sum += sojourn;
        self.counters.departures += 1;
        self.counters.departed_bytes += u64::from(len);
    }

    /// The queue dropped a packet of `len` bytes.
    #[inline]
    pub fn dropped(&mut self, cause: DropCause, len: u32) {
        self.counters.dropped_bytes += u64::from(len);
        let drops = &mut self.counters.drops;
        match cause {
            DropCause::Overflow => drops.overflow += 1,
            DropCause::Early => drops.early += 1,
            DropCause::Forced => drops.forced += 1,
        }
    }

    /// Begins a warm-up: until [`Meter::restart`] the histograms stay empty and use no memory.
    pub fn begin_warmup(&mut self) {
        self.records = false;
    }

    /// Ends the warm-up; counters continue.
    pub fn restart(&mut self, now: Instant) {
        self.settle(now);
        self.records = true;
        self.sojourns.clear();
        self.packets.clear();
        self.bytes.clear();
        self.warm = self.counters;
        self.max = self.held;
        self.since = now;
    }

    /// Start of the measured time.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Counters of the measured time.
    pub fn measured(&self) -> Counters {
        self.counters - self.warm
    }

    /// The backlog in packets, weighted by time, since `restart`.
    pub fn packets(&self) -> Summary {
        Summary {
            mean: self.measured().packet_ns as f64 / self.span(),
            max: self.max.packets as f64,
            ..self.packets.summary(1.0 / f64::from(1 << PACKET_SHIFT))
        }
    }

    /// The backlog in bytes, weighted by time, since `restart`, each value times `scale`.
    pub fn bytes(&self, scale: f64) -> Summary {
        Summary {
            mean: self.measured().byte_ns as f64 / self.span() * scale,
            max: self.max.bytes as f64 * scale,
            ..self.bytes.summary(scale)
        }
    }

    fn span(&self) -> f64 {
        ((self.last - self.since).max(Duration::from_nanos(1))).as_nanos() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::time::MS;

    #[test]
    fn histograms_record_from_the_end_of_the_warm_up() {
        let mut meter = Meter::new(Rate::from_mbit(10));
        let at = |ms: u64| Instant::ZERO + ms * MS;
        meter.begin_warmup();
        meter.departure(at(5), at(1), 1514);
        meter.settle(at(1000));
        assert_eq!((meter.sojourns.count(), meter.packets.count()), (0, 0));
        meter.restart(at(1000));
        meter.departure(at(1005), at(1001), 1514);
        meter.settle(at(2000));
        assert_eq!(meter.sojourns.count(), 1);
        assert!(meter.packets.count() > 0 && meter.bytes.count() > 0);
        assert_eq!(meter.counters.departures, 2);
    }
}
