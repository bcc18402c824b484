//! Rates and the sojourn time, derived from two samples of a queue's counters.

use quell_qdisc::num;
use quell_qdisc::time::Instant;

use crate::rtnetlink::message::Counters;

const SECOND: f64 = 1e9;
/// Time constant of the mean rate of intervals with backlog, from which the sojourn time is
/// computed, ns.
const MEMORY: f64 = 100e6;

/// Rates between two samples of a queue; `None` at the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Throughput, bit/s.
    pub bps: Option<f64>,
    /// Throughput, packets/s.
    pub packets: Option<f64>,
    /// Drops per second.
    pub drops: Option<f64>,
    /// Sojourn time, ms: the backlog divided by the rate measured while there was backlog; 0 for an
    /// empty queue.
    pub sojourn_ms: Option<f64>,
}

/// Computes rates from a queue's successive samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    last: Option<(Instant, Counters)>,
    busy_ns: f64,
    busy_bytes: f64,
}

impl Meter {
    /// Rates since the last sample, for a sample at `now`.
    pub fn sample(&mut self, now: Instant, counters: &Counters) -> Rates {
        let last = self.last.replace((now, *counters));
        // Fewer bytes than before mean that another queue is in its place.
        let last = last.filter(|(then, last)| now > *then && counters.bytes >= last.bytes);
        let Some((then, last)) = last else {
            (self.busy_ns, self.busy_bytes) = (0.0, 0.0);
            return Rates {
                sojourn_ms: self.sojourn_ms(counters),
                ..Rates::default()
            };
        };
        let interval = (now - then).as_nanos() as f64;
        let bytes = (counters.bytes - last.bytes) as f64;
        // Without PKT64, the packet counter has 32 bits.
        let packets = match counters.packets.checked_sub(last.packets) {
            Some(packets) => packets,
            None => num::low_u32(counters.packets)
                .wrapping_sub(num::low_u32(last.packets))
                .into(),
        };
        if last.backlog_bytes > 0 && counters.backlog_bytes > 0 {
            let fade = (-interval / MEMORY).exp();
            self.busy_ns = self.busy_ns * fade + interval;
            self.busy_bytes = self.busy_bytes * fade + bytes;
        }
        let per_second = SECOND / interval;
        let drops = counters.drops.wrapping_sub(last.drops);
        Rates {
            bps: Some(bytes * 8.0 * per_second),
            packets: Some(packets as f64 * per_second),
            drops: Some(f64::from(drops) * per_second),
            sojourn_ms: self.sojourn_ms(counters),
        }
    }

    /// The rate measured while there was backlog, mostly in the last 100 ms, bit/s.
    pub fn busy_bps(&self) -> Option<f64> {
        (self.busy_bytes > 0.0).then(|| self.busy_bytes * 8.0 * SECOND / self.busy_ns)
    }

    fn sojourn_ms(&self, counters: &Counters) -> Option<f64> {
        match counters.backlog_bytes {
            0 => Some(0.0),
            backlog => (self.busy_bytes > 0.0)
                .then(|| f64::from(backlog) * self.busy_ns / self.busy_bytes / 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(bytes: u64, backlog_bytes: u32) -> Counters {
        Counters {
            bytes,
            packets: bytes / 1000,
            backlog_bytes,
            ..Counters::default()
        }
    }

    #[test]
    fn the_sojourn_time_is_the_backlog_at_the_rate_of_a_busy_queue() {
        let mut meter = Meter::default();
        assert_eq!(
            meter.sample(Instant::ZERO, &counters(0, 5000)).sojourn_ms,
            None
        );
        // 10 kB in 10 ms is 8 Mbit/s: 25 kB wait 25 ms.
        let rates = meter.sample(Instant::from_millis(10), &counters(10_000, 25_000));
        assert_eq!(rates.bps, Some(8e6));
        assert_eq!(rates.packets, Some(1000.0));
        assert_eq!(rates.sojourn_ms, Some(25.0));
        // An idle interval does not change the rate.
        let rates = meter.sample(Instant::from_millis(1010), &counters(10_000, 0));
        assert_eq!((rates.bps, rates.sojourn_ms), (Some(0.0), Some(0.0)));
        let rates = meter.sample(Instant::from_millis(1020), &counters(10_500, 25_000));
        assert_eq!(rates.sojourn_ms, Some(25.0));
    }

    #[test]
    fn counters_of_32_bits_wrap_and_a_new_queue_starts_from_zero() {
        let mut meter = Meter::default();
        let mut before = counters(1 << 40, 0);
        (before.packets, before.drops) = (u64::from(u32::MAX), u32::MAX - 1);
        meter.sample(Instant::ZERO, &before);
        let mut after = counters(1 << 40, 0);
        (after.packets, after.drops) = (9, 1);
        let rates = meter.sample(Instant::from_millis(1000), &after);
        assert_eq!((rates.packets, rates.drops), (Some(10.0), Some(3.0)));
        assert_eq!(
            meter
                .sample(Instant::from_millis(2000), &counters(5, 0))
                .bps,
            None
        );
    }
}
