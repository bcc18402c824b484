//! CHOKe: RED in packets, where an arrival and a queued packet drawn at random are both dropped if
//! they are of the same flow.
//!
//! Sources: Pan, Prabhakar and Psounis, "CHOKe, a stateless active queue management scheme for
//! approximating fair bandwidth allocation" (INFOCOM 2000); Linux 7.x `net/sched/sch_choke.c`,
//! tc-choke(8). Deviations:
//! - the table of packets grows; the kernel's has a fixed size. In both, a packet dropped from the
//!   middle leaves a hole.

use crate::num;
use crate::parts::red::{Idling, Law, Vars, weight};
use crate::parts::ring::Ring;
use crate::rate::Rate;
use crate::time::{Duration, Instant};
use crate::{Dequeued, Discipline, DropCause, Drops, Gauges, Packet, Rng};

/// Largest limit, packets.
pub const LONGEST: u32 = 128 * 1024 - 1;
/// Number of random draws; if all hit holes, the head is taken.
const DRAWS: u32 = 3;

/// Parameters, named as in tc-choke(8).
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets that may be queued, up to 131071 (default 4 * max).
    pub limit: u32,
    /// Average length in packets at which dropping begins (default max / 3).
    pub min: u32,
    /// Average length in packets with the greatest probability (default limit / 4).
    pub max: u32,
    /// Bytes of an average packet (default 1000).
    pub avpkt: u32,
    /// Packets of a burst to allow for; sets how slowly the average moves (default (2 * min + max)
    /// / 3).
    pub burst: u32,
    /// Probability at `max`, 0..1 (default 0.02).
    pub probability: f64,
    /// Rate of the link, for the decay of the average in idle periods.
    pub bandwidth: Rate,
    /// Mark ECN-capable packets instead of dropping them (default off).
    pub ecn: bool,
}

impl Params {
    /// `tc`'s defaults for a queue of this many packets on a link of this rate.
    pub fn of_limit(limit: u32, bandwidth: Rate) -> Self {
        let max = limit / 4;
        Self {
            limit,
            min: max / 3,
            max,
            avpkt: 1000,
            burst: default_burst(max / 3, max),
            probability: 0.02,
            bandwidth,
            ecn: false,
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.avpkt == 0 || self.bandwidth.bytes_per_sec() == 0 {
            return Err("avpkt and bandwidth must be above 0");
        }
        if self.limit > LONGEST {
            return Err("limit must be at most 131071 packets");
        }
        if self.max > self.limit {
            return Err("max must be at most limit");
        }
        if self.min == 0 || self.min >= self.max {
            return Err("min must be above 0 and below max");
        }
        if !(self.probability > 0.0 && self.probability <= 1.0) {
            return Err("probability must be above 0 and at most 1");
        }
        match self.weight() {
            Some(_) => Ok(()),
            None if self.burst < self.min => Err("burst must be at least min"),
            None => Err("burst must be lower, or min higher"),
        }
    }

    fn weight(&self) -> Option<u32> {
        let min = u64::from(self.min) * u64::from(self.avpkt);
        weight(min, self.burst, self.avpkt)
    }
}

/// The default burst of `tc`.
pub fn default_burst(min: u32, max: u32) -> u32 {
    num::low_u32((2 * u64::from(min) + u64::from(max)) / 3)
}

/// Counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Packets marked.
    pub marks: u64,
    /// Arrivals for which a packet of their own flow was drawn; both packets were dropped.
    pub matched: u64,
    /// Packets that RED dropped.
    pub red_drops: u64,
}

/// The `choke` queue.
#[derive(Clone, Debug)]
pub struct Choke<P> {
    params: Params,
    stats: Stats,
    law: Law,
    vars: Vars,
    idling: Idling,
    idle_since: Option<Instant>,
    /// The packets, and holes where packets were dropped. The head is a packet.
    table: Ring<Option<P>>,
    packets: usize,
    bytes: u64,
}

impl<P: Packet> Choke<P> {
    /// An empty queue, created at time 0.
    pub fn new(params: Params) -> Self {
        debug_assert_eq!(params.check(), Ok(()));
        let wlog = params.weight().unwrap_or(31);
        let (min, max) = (params.min.into(), params.max.into());
        Self {
            stats: Stats::default(),
            law: Law::new(min, max, wlog, params.probability),
            vars: Vars::default(),
            idling: Idling::new(wlog, params.avpkt, params.bandwidth),
            // Linux begins without an idle period (`choke_change`).
            idle_since: None,
            table: Ring::new(),
            packets: 0,
            bytes: 0,
            params,
        }
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Updates the average at an arrival.
    #[inline]
    fn update_average(&mut self, now: Instant) {
        match self.idle_since.take() {
            Some(since) => self.vars.qavg = self.idling.after(self.vars.qavg, since, now),
            None => self.vars.update(&self.law, self.packets as u64),
        }
    }

    /// Removes the packet at a place, and then the holes at the head.
    #[inline]
    fn take(&mut self, place: usize) -> Option<P> {
        let packet = self.table.get_mut(place)?.take()?;
        while let Some(None) = self.table.front() {
            self.table.pop();
        }
        self.packets -= 1;
        self.bytes -= u64::from(packet.len());
        Some(packet)
    }

    /// Draws a queued packet; returns its place if it is of the same flow as this one.
    #[inline]
    fn draw_match(&mut self, packet: &P, rng: &mut Rng) -> Option<usize> {
        if self.packets == 0 {
            return None;
        }
        let len = self.table.len() as u64;
        let mut place = 0;
        for _ in 0..DRAWS {
            let index = num::index(rng.below(len));
            if matches!(self.table.get_mut(index), Some(Some(_))) {
                place = index;
                break;
            }
        }
        let drawn = self.table.get_mut(place)?.as_ref()?;
        (drawn.flow_hash() == packet.flow_hash()).then_some(place)
    }

    /// True if RED marks or drops a packet. Unlike in `red`, an average equal to `min` or `max`
    /// counts as below it.
    #[inline]
    fn hit(&mut self, rng: &mut Rng) -> bool {
        if self.vars.qavg > self.law.max << self.law.wlog {
            self.vars.qcount = -1;
            return true;
        }
        self.law.by_chance(&mut self.vars, rng)
    }
}

impl<P: Packet> Discipline<P> for Choke<P> {
    #[inline]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, mut packet: P, rng: &mut Rng, drops: &mut D) {
        self.update_average(now);
        if self.vars.qavg <= self.law.min << self.law.wlog {
            self.vars.qcount = -1;
        } else if let Some(place) = self.draw_match(&packet, rng) {
            self.stats.matched += 1;
            if let Some(drawn) = self.take(place) {
                drops.drop(now, drawn, DropCause::Early);
            }
            return drops.drop(now, packet, DropCause::Early);
        } else if self.hit(rng) {
            if !(self.params.ecn && packet.mark()) {
                self.stats.red_drops += 1;
                let cause = match self.params.ecn {
                    true => DropCause::Forced,
                    false => DropCause::Early,
                };
                return drops.drop(now, packet, cause);
            }
            self.stats.marks += 1;
        }
        if self.packets >= self.params.limit as usize {
            return drops.drop(now, packet, DropCause::Overflow);
        }
        self.packets += 1;
        self.bytes += u64::from(packet.len());
        if let Some(packet) = self.table.push(Some(packet)) {
            packet.set_enqueued(now);
        }
    }

    #[inline]
    fn dequeue<D: Drops<P>>(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        match self.take(0) {
            Some(packet) => Dequeued::Packet(packet),
            None => {
                self.idle_since.get_or_insert(now);
                Dequeued::Empty
            }
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.packets
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn marks(&self) -> u64 {
        self.stats.marks
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.probability = self.law.probability(&self.vars);
        gauges.marks = self.stats.marks;
        let head = self.table.front().and_then(Option::as_ref);
        gauges.head_age = head.map_or(Duration::ZERO, |p| now - p.enqueued());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use crate::packet::TestPacket;
    use crate::time::{MS, SEC};

    fn params() -> Params {
        Params {
            min: 5,
            max: 20,
            burst: 10,
            ..Params::of_limit(100, Rate::from_mbit(10))
        }
    }

    struct Bed {
        q: Choke<TestPacket>,
        rng: Rng,
        next: u64,
        dropped: Vec<(TestPacket, DropCause)>,
    }

    impl Bed {
        fn new(params: Params) -> Self {
            assert_eq!(params.check(), Ok(()));
            Self {
                q: Choke::new(params),
                rng: Rng::new(1, "choke"),
                next: 0,
                dropped: Vec::new(),
            }
        }
        /// Offers a packet of a flow while the average is this many packets.
        fn offer(&mut self, average: u64, flow: u32, ecn: Ecn) {
            let q = &mut self.q;
            q.idle_since = None;
            let law = &q.law;
            // The update turns this into the wanted average.
            let shifted = average << law.wlog;
            q.vars.qavg = (shifted << law.wlog) / ((1 << law.wlog) - 1);
            q.vars.qavg -= (q.packets as u64).min(q.vars.qavg);
            let packet = TestPacket::new(self.next, 1000, flow, ecn);
            self.next += 1;
            q.enqueue(Instant::ZERO, packet, &mut self.rng, &mut self.dropped);
        }
        fn fill(&mut self, flow: u32, n: u32) {
            for _ in 0..n {
                self.offer(0, flow, Ecn::NotEct);
            }
        }
        fn take(&mut self) -> Option<u64> {
            match self
                .q
                .dequeue(Instant::ZERO, &mut self.rng, &mut self.dropped)
            {
                Dequeued::Packet(packet) => Some(packet.id),
                _ => None,
            }
        }
    }

    #[test]
    fn defaults_are_those_of_tc() {
        // q_choke.c: max = limit / 4, min = max / 3, burst = (2 min + max) / 3.
        let p = Params::of_limit(1000, Rate::from_mbit(10));
        assert_eq!((p.max, p.min, p.burst), (250, 83, 138));
        assert_eq!(p.check(), Ok(()));
    }

    #[test]
    fn at_or_below_min_nothing_is_drawn_or_dropped() {
        let mut bed = Bed::new(params());
        bed.fill(1, 50);
        for _ in 0..20 {
            bed.offer(4, 1, Ecn::NotEct);
        }
        assert!(bed.dropped.is_empty() && bed.q.len() == 70);
    }

    #[test]
    fn an_arrival_that_meets_its_own_flow_is_dropped_with_what_it_met() {
        let mut bed = Bed::new(params());
        bed.fill(1, 20);
        bed.offer(10, 1, Ecn::Ect0);
        let lost: Vec<u64> = bed.dropped.iter().map(|(p, _)| p.id).collect();
        assert_eq!((bed.q.len(), lost.len(), bed.q.stats().matched), (19, 2, 1));
        assert!(lost[0] < 20 && lost[1] == 20);
    }

    #[test]
    fn a_flow_is_met_as_often_as_it_has_packets_in_the_queue() {
        let mut bed = Bed::new(Params {
            probability: 1e-9,
            ..params()
        });
        let (mut matched, n) = (0, 4000);
        for _ in 0..n {
            let mut trial = Bed {
                q: bed.q.clone(),
                rng: Rng::new(bed.rng.u64(), "trial"),
                next: 0,
                dropped: Vec::new(),
            };
            trial.fill(1, 30);
            trial.fill(2, 10);
            trial.offer(10, 2, Ecn::NotEct);
            matched += trial.q.stats().matched;
        }
        assert!(
            (matched as f64 / f64::from(n) - 0.25).abs() < 0.03,
            "{matched}"
        );
    }

    #[test]
    fn the_holes_of_dropped_packets_are_skipped_and_order_is_kept() {
        let mut bed = Bed::new(params());
        bed.fill(1, 40);
        for _ in 0..10 {
            bed.offer(10, 1, Ecn::NotEct);
        }
        let mut lost: Vec<u64> = bed.dropped.iter().map(|(p, _)| p.id).collect();
        lost.retain(|id| *id < 40);
        let left: Vec<u64> = std::iter::from_fn(|| bed.take()).collect();
        let kept: Vec<u64> = (0..40).filter(|id| !lost.contains(id)).collect();
        assert_eq!(left, kept);
        assert_eq!((bed.q.len(), bed.q.bytes(), bed.q.table.len()), (0, 0, 0));
    }

    #[test]
    fn above_max_every_arrival_of_other_flows_is_dropped() {
        let mut bed = Bed::new(params());
        bed.fill(1, 50);
        for flow in 2..102 {
            bed.offer(25, flow, Ecn::NotEct);
        }
        assert_eq!((bed.dropped.len(), bed.q.stats().red_drops), (100, 100));
    }

    #[test]
    fn between_the_thresholds_others_are_dropped_by_chance() {
        let mut bed = Bed::new(params());
        bed.fill(1, 10);
        let n = 50_000;
        for flow in 0..n {
            bed.offer(12, 2 + flow, Ecn::NotEct);
            bed.take();
        }
        // Near half-way 0.02 * 7 / 15 = 0.0093; the gaps between drops are uniform in 1 to 1 / p.
        let share = bed.dropped.len() as f64 / f64::from(n);
        assert!((0.007..0.022).contains(&share), "{share}");
    }

    #[test]
    fn ect_is_marked_where_red_would_drop() {
        let mut bed = Bed::new(Params {
            ecn: true,
            ..params()
        });
        bed.fill(1, 10);
        bed.offer(25, 2, Ecn::Ect0);
        bed.offer(25, 3, Ecn::NotEct);
        assert_eq!((bed.q.marks(), bed.dropped.len()), (1, 1));
        assert_eq!(bed.dropped[0].1, DropCause::Forced);
    }

    #[test]
    fn the_limit_counts_packets() {
        let mut bed = Bed::new(Params {
            limit: 30,
            ..params()
        });
        bed.fill(1, 31);
        assert_eq!(bed.dropped[0].1, DropCause::Overflow);
        assert_eq!(bed.q.len(), 30);
    }

    #[test]
    fn the_average_falls_while_idle() {
        let mut bed = Bed::new(params());
        bed.q.vars.qavg = 20 << bed.q.law.wlog;
        assert_eq!(bed.take(), None);
        assert_eq!(bed.q.idle_since, Some(Instant::ZERO));
        bed.q.update_average(Instant::from_secs(10));
        assert_eq!(bed.q.vars.qavg, 0);
        bed.q.vars.qavg = 20 << bed.q.law.wlog;
        bed.q.idle_since = Some(Instant::from_secs(10));
        bed.q.update_average(Instant::ZERO + 10 * SEC + MS);
        assert!(bed.q.vars.qavg > 15 << bed.q.law.wlog);
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let wrong = |params: Params| params.check().expect_err("wrong");
        let p = params();
        assert_eq!(
            wrong(Params {
                max: 101,
                ..p.clone()
            }),
            "max must be at most limit"
        );
        assert_eq!(
            wrong(Params {
                min: 20,
                ..p.clone()
            }),
            "min must be above 0 and below max"
        );
        assert_eq!(
            wrong(Params { burst: 4, ..p }),
            "burst must be at least min"
        );
    }
}
