//! Capacity of a link and service times of packets: constant rates, schedules and traces.

use std::sync::Arc;

use quell_qdisc::num;
use quell_qdisc::parts::framing::Framing;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, MS, NEVER, SEC};

use crate::line::{SHIFT, Share, per_byte};
use crate::trace::{OPPORTUNITY_BYTES, Trace};

/// Slowest link with fixed-point arithmetic.
const SLOWEST: Rate = Rate::from_kbit(1);

/// Capacity of a link over time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Capacity {
    /// A constant rate.
    Constant(Rate),
    /// Steps (start, rate), ascending, the first at 0.
    Schedule(Arc<[(Instant, Rate)]>),
    /// A trace in Mahimahi's format: the times (ascending, in whole milliseconds) at which 1504
    /// bytes may leave, repeated every `period`.
    Trace(Arc<Trace>),
    /// A share of a line that other queues also use.
    Shared(Share),
}

impl Capacity {
    /// Mean rate over `duration` (of a trace: over its period).
    pub fn mean_rate(&self, duration: Duration) -> Rate {
        match self {
            Capacity::Constant(rate) => *rate,
            Capacity::Trace(trace) => trace.mean_rate(),
            Capacity::Shared(share) => share.rate(),
            Capacity::Schedule(steps) => {
                let ends = steps.iter().skip(1).map(|s| s.0).chain([NEVER]);
                let bits: u128 = steps
                    .iter()
                    .zip(ends)
                    .map(|((from, rate), end)| {
                        let span = end.min(Instant::ZERO + duration).saturating_since(*from);
                        u128::from(span.as_nanos()) * u128::from(rate.bps())
                    })
                    .sum();
                let bps = num::low_u64(bits / u128::from(duration.as_nanos().max(1)));
                Rate::from_bps(bps.max(1))
            }
        }
    }
}

/// The sending end of a link: it determines when the transmission of each packet ends.
#[derive(Clone, Debug)]
pub struct Server {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Nanoseconds per byte in fixed point, and the remainder of truncation.
    Constant {
        rate: Rate,
        per_byte: u64,
        rest: u64,
    },
    Schedule {
        steps: Arc<[(Instant, Rate)]>,
        at: usize,
    },
    Trace {
        trace: Arc<Trace>,
        at: usize,
        start: Instant,
        credit: u64,
    },
    Framed(Box<Framed>),
    Shared(Share),
}

/// A link that frames packets.
#[derive(Clone, Debug)]
struct Framed {
    server: Server,
    framing: Framing,
    /// Link-layer bytes included in a packet's length.
    header: u32,
    /// Bytes sent in excess of the packets' lengths.
    more: i64,
}

impl Framed {
    fn bytes(&self, len: u32) -> u32 {
        self.framing.bytes(len.saturating_sub(self.header))
    }
}

impl Server {
    /// A server of this capacity.
    pub fn new(capacity: &Capacity) -> Self {
        let kind = match capacity {
            // The transmission time of a large packet must fit in 64 bits of fixed point.
            Capacity::Constant(rate) if *rate < SLOWEST => Kind::Schedule {
                steps: Arc::new([(Instant::ZERO, *rate)]),
                at: 0,
            },
            Capacity::Constant(rate) => Kind::Constant {
                rate: *rate,
                per_byte: num::low_u64(per_byte(*rate)),
                rest: 0,
            },
            Capacity::Schedule(steps) => Kind::Schedule {
                steps: steps.clone(),
                at: 0,
            },
            Capacity::Trace(trace) => Kind::Trace {
                trace: trace.clone(),
                at: 0,
                start: Instant::ZERO,
                credit: OPPORTUNITY_BYTES,
            },
            Capacity::Shared(share) => Kind::Shared(share.clone()),
        };
        Self { kind }
    }

    /// The same link with framing of IP packets. `header` is the number of link-layer bytes
    /// included in a packet's length.
    pub fn framed(self, framing: Framing, header: u32) -> Self {
        Self {
            kind: Kind::Framed(Box::new(Framed {
                server: self,
                framing,
                header,
                more: 0,
            })),
        }
    }

    /// Whether the rate is constant and there is no framing.
    pub fn is_constant(&self) -> bool {
        matches!(self.kind, Kind::Constant { .. })
    }

    /// Bytes that framing has added to the packets' lengths so far; negative if frames are shorter
    /// than the lengths.
    pub fn framing_bytes(&self) -> i64 {
        match &self.kind {
            Kind::Framed(framed) => framed.more,
            _ => 0,
        }
    }

    #[cold]
    fn finish_framed(framed: &mut Framed, now: Instant, len: u32) -> Instant {
        let bytes = framed.bytes(len);
        framed.more += i64::from(bytes) - i64::from(len);
        framed.server.finish(now, bytes)
    }

    /// Starts to send `bytes` at `now`; returns the end of the transmission. The few instructions
    /// for a constant rate are inlined, the rest is out of line.
    #[inline(always)]
    pub fn finish(&mut self, now: Instant, bytes: u32) -> Instant {
        if let Kind::Constant { per_byte, rest, .. } = &mut self.kind {
            let t = u64::from(bytes) * *per_byte + *rest;
            *rest = t & ((1 << SHIFT) - 1);
            return now + Duration::from_nanos(t >> SHIFT);
        }
        self.finish_varying(now, bytes)
    }

    #[inline(never)]
    fn finish_varying(&mut self, now: Instant, bytes: u32) -> Instant {
        match &mut self.kind {
            Kind::Constant { .. } => self.finish(now, bytes),
            Kind::Schedule { steps, at } => {
                while *at + 1 < steps.len() && steps[*at + 1].0 <= now {
                    *at += 1;
                }
                finish_schedule(steps, *at, now, bytes)
            }
            Kind::Trace {
                trace,
                at,
                start,
                credit,
            } => finish_trace(trace, (at, start, credit), now, bytes),
            Kind::Framed(framed) => Self::finish_framed(framed, now, bytes),
            Kind::Shared(share) => share.finish(now, bytes),
        }
    }

    /// Transmission time of a packet of `bytes` at the present rate, framing included: the charge
    /// to a token bucket.
    #[inline]
    pub fn charge(&mut self, now: Instant, bytes: u32) -> Duration {
        match &mut self.kind {
            Kind::Framed(framed) => {
                let framed_bytes = framed.bytes(bytes);
                framed.more += i64::from(framed_bytes) - i64::from(bytes);
                framed.server.cost(now, framed_bytes)
            }
            _ => self.cost(now, bytes),
        }
    }

    /// Transmission time of `bytes` on the link at the present rate, for the size of a token
    /// bucket. (Links with a trace have no token bucket.)
    #[inline]
    pub fn cost(&mut self, now: Instant, bytes: u32) -> Duration {
        match &mut self.kind {
            Kind::Framed(framed) => framed.server.cost(now, bytes),
            // A burst of 1 GiB on a slow link does not fit in 64 bits.
            Kind::Constant { per_byte, .. } => {
                let time = (u128::from(bytes) * u128::from(*per_byte)) >> SHIFT;
                Duration::from_nanos(num::low_u64(time))
            }
            _ => self.finish(now, bytes) - now,
        }
    }

    /// The present rate; of a trace, the mean of the last 100 ms.
    pub fn rate(&self, now: Instant) -> Rate {
        match &self.kind {
            Kind::Framed(framed) => framed.server.rate(now),
            Kind::Constant { rate, .. } => *rate,
            Kind::Shared(share) => share.rate(),
            Kind::Schedule { steps, .. } => {
                let at = steps.partition_point(|s| s.0 <= now);
                steps[at.saturating_sub(1)].1
            }
            Kind::Trace { trace, .. } => {
                let from = now.saturating_sub(100 * MS);
                let bytes = offered(trace, now) - offered(trace, from);
                let bits = u128::from(bytes) * u128::from(8 * SEC.as_nanos());
                let bps = bits / u128::from((now - from).max(MS).as_nanos());
                Rate::from_bps(num::low_u64(bps))
            }
        }
    }

    /// Bytes that the link could have sent from time 0 to `now`.
    pub fn offered_bytes(&self, now: Instant) -> f64 {
        match &self.kind {
            Kind::Framed(framed) => framed.server.offered_bytes(now),
            Kind::Constant { rate, .. } => at_rate(*rate, now),
            Kind::Shared(share) => at_rate(share.rate(), now),
            Kind::Schedule { steps, .. } => {
                let mut sum = 0.0;
                for (k, &(from, rate)) in steps.iter().enumerate() {
                    let to = steps.get(k + 1).map_or(NEVER, |s| s.0).min(now);
                    if to > from {
                        sum += (to - from).as_nanos() as f64 * rate.bps_f64() / 8e9;
                    }
                }
                sum
            }
            Kind::Trace { trace, .. } => offered(trace, now) as f64,
        }
    }
}

/// Bytes at a constant rate from time 0 to `now`.
fn at_rate(rate: Rate, now: Instant) -> f64 {
    now.as_nanos() as f64 * rate.bps_f64() / 8e9
}

/// Bytes of the trace's opportunities before `now`.
fn offered(trace: &Trace, now: Instant) -> u64 {
    let time = now - Instant::ZERO;
    let rounds = time / trace.period;
    let within = trace
        .opportunities
        .partition_point(|&t| t < time % trace.period) as u64;
    (rounds * trace.opportunities.len() as u64 + within) * OPPORTUNITY_BYTES
}

/// Takes opportunities from a trace, beginning with number `at` of the period that began at
/// `start`, which has `credit` bytes left.
#[inline(never)]
fn finish_trace(
    trace: &Trace,
    (at, start, credit): (&mut usize, &mut Instant, &mut u64),
    now: Instant,
    bytes: u32,
) -> Instant {
    if *start + trace.opportunities[*at] < now {
        (*start, *at) = trace.first_from(now);
        *credit = OPPORTUNITY_BYTES;
    }
    let mut need = u64::from(bytes);
    while *credit < need {
        need -= *credit;
        *at += 1;
        if *at == trace.opportunities.len() {
            *at = 0;
            *start += trace.period;
        }
        *credit = OPPORTUNITY_BYTES;
    }
    *credit -= need;
    *start + trace.opportunities[*at]
}

#[cold]
#[inline(never)]
fn finish_schedule(
    steps: &[(Instant, Rate)],
    mut at: usize,
    mut now: Instant,
    bytes: u32,
) -> Instant {
    let mut bits = f64::from(bytes) * 8.0;
    loop {
        let end = steps.get(at + 1).map_or(NEVER, |s| s.0);
        let ns = num::whole_u64(bits * SEC.as_nanos() as f64 / steps[at].1.bps_f64());
        if end == NEVER || now + Duration::from_nanos(ns) <= end {
            return now + Duration::from_nanos(ns);
        }
        bits -= (end - now).as_nanos() as f64 * steps[at].1.bps_f64() / SEC.as_nanos() as f64;
        now = end;
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference model of a trace, which walks over the opportunities one by one: number of the
    /// period, index within it, bytes used of that opportunity.
    #[derive(Default)]
    struct Walk {
        round: u64,
        at: usize,
        used: u64,
    }

    impl Walk {
        fn finish(&mut self, trace: &Trace, now: Instant, mut need: u64) -> Instant {
            loop {
                let time = Instant::ZERO + self.round * trace.period + trace.opportunities[self.at];
                let left = OPPORTUNITY_BYTES - self.used;
                if time >= now && left >= need {
                    self.used += need;
                    return time;
                }
                if time >= now {
                    need -= left;
                }
                (self.at, self.used) = (self.at + 1, 0);
                if self.at == trace.opportunities.len() {
                    (self.at, self.round) = (0, self.round + 1);
                }
            }
        }
    }

    fn trace(gaps_ms: &[u64]) -> Trace {
        let sums = gaps_ms.iter().scan(Duration::ZERO, |sum, gap| {
            *sum += *gap * MS;
            Some(*sum)
        });
        let opportunities: Vec<Duration> = sums.collect();
        Trace {
            name: "t".into(),
            period: opportunities[opportunities.len() - 1],
            opportunities,
        }
    }

    proptest! {
        #[test]
        fn a_link_that_idled_is_where_a_walk_over_its_trace_leads(
            gaps in proptest::collection::vec(0..4u64, 0..12),
            last in 1..4u64,
            // Pauses of a fraction of a period to many of them, some that end exactly at an
            // opportunity.
            packets in proptest::collection::vec((0..120u64, prop_oneof![Just(0), 0..MS.as_nanos()], 1..6000u32), 1..40),
        ) {
            let trace = trace(&[gaps, vec![last]].concat());
            let mut server = Server::new(&Capacity::Trace(Arc::new(trace.clone())));
            let (mut walk, mut now) = (Walk::default(), Instant::ZERO);
            for (pause_ms, part, bytes) in packets {
                now += pause_ms * MS + Duration::from_nanos(part);
                let through = server.finish(now, bytes);
                prop_assert_eq!(through, walk.finish(&trace, now, u64::from(bytes)));
                now = through;
            }
        }
    }

    #[test]
    fn a_pause_of_months_costs_no_more_than_one_of_a_minute() {
        // 2^33 missed opportunities: 99 days. A loop over them would take about ten seconds.
        let clock = std::time::Instant::now();
        let mut s = Server::new(&Capacity::Trace(Arc::new(trace(&[1, 0]))));
        assert_eq!(
            s.finish(Instant::from_millis(1 << 32), 1504),
            Instant::from_millis(1 << 32)
        );
        assert_eq!(
            s.finish(Instant::from_millis(1 << 32), 1505),
            Instant::from_millis((1 << 32) + 1)
        );
        assert!(clock.elapsed().as_secs() < 1, "{:?}", clock.elapsed());
    }

    #[test]
    fn a_constant_rate_loses_no_fraction_of_a_nanosecond() {
        let mut s = Server::new(&Capacity::Constant(Rate::from_mbit(10_000)));
        let mut now = 0;
        for _ in 0..1_000_000 {
            now = s.finish(Instant::from_nanos(now), 1514).as_nanos();
        }
        assert_eq!(
            now.div_ceil(1000),
            1_211_200,
            "1514 bytes at 10 Gbit/s are 1211.2 ns"
        );
    }

    #[test]
    fn a_packet_that_straddles_a_step_is_sent_at_both_rates() {
        let steps: Arc<[(Instant, Rate)]> = Arc::new([
            (Instant::ZERO, Rate::from_mbit(8)),
            (Instant::from_millis(1), Rate::from_mbit(16)),
        ]);
        let mut s = Server::new(&Capacity::Schedule(steps));
        assert_eq!(
            s.finish(Instant::ZERO, 2000),
            Instant::ZERO + MS + MS / 2,
            "1000 bytes in the first ms, 1000 at twice the rate"
        );
        assert_eq!(
            s.finish(Instant::from_millis(2), 2000),
            Instant::from_millis(3)
        );
    }

    #[test]
    fn an_opportunity_carries_1504_bytes_and_is_lost_on_an_empty_queue() {
        let trace = Trace {
            name: "t".into(),
            opportunities: vec![MS, 2 * MS, 2 * MS, 5 * MS],
            period: 5 * MS,
        };
        let mut s = Server::new(&Capacity::Trace(Arc::new(trace)));
        assert_eq!(s.finish(Instant::ZERO, 1504), Instant::from_millis(1));
        assert_eq!(
            s.finish(Instant::from_millis(1), 752),
            Instant::from_millis(2),
            "half of the next"
        );
        assert_eq!(
            s.finish(Instant::from_millis(2), 1504),
            Instant::from_millis(2),
            "the other half and half of its twin"
        );
        assert_eq!(
            s.finish(Instant::from_millis(3), 752),
            Instant::from_millis(5),
            "what was left at 2 ms is gone"
        );
        assert_eq!(
            s.finish(Instant::from_millis(5), 1504),
            Instant::from_millis(6),
            "752 bytes at 5 ms, the rest in the next round"
        );
    }
}
