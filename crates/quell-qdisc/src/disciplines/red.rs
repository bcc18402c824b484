//! RED: Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance" (1993), as
//! in Linux (`net/sched/sch_red.c`, `include/net/red.h`; the defaults of tc-red(8)).
//!
//! As in Linux, an idle period begins when a dequeue finds the queue empty (so never under a shaper
//! that does not dequeue from an empty queue, such as HTB), and during it the average decays 15.625
//! times slower than in the paper, because `tc` computes the table in units of 64 ns and the kernel
//! looks it up in microseconds. Deviations from Linux: the table is computed when needed, not
//! stored. `gentle` (Floyd 2000, "Recommendation on using the gentle variant of RED") is an option
//! that Linux lacks.

use crate::num;
use crate::parts::red::{Action, Idling, Law, Vars, check_weight, weight};
use crate::parts::ring::Ring;
use crate::rate::Rate;
use crate::time::{Duration, Instant, NEVER};
use crate::{Dequeued, Discipline, DropCause, Drops, Gauges, MTU, Packet, Rng};

/// Time between steps of the adaptive variant (`HZ / 2`).
const ADAPT: Duration = Duration::from_millis(500);
/// One percent, in units of 2^-32.
const ONE_PERCENT: u32 = 42_949_673;

/// Parameters, named as in tc-red(8).
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Bytes that may be queued (default 4 * max).
    pub limit: u64,
    /// Average length in bytes at which dropping begins (default max / 3).
    pub min: u64,
    /// Average length in bytes at which the probability is greatest (default: the bytes that the
    /// link sends in 30 ms).
    pub max: u64,
    /// Bytes of an average packet (default 1000).
    pub avpkt: u32,
    /// Packets of a burst to allow for; sets how slowly the average moves (default (2 * min + max)
    /// / (3 * avpkt)).
    pub burst: u32,
    /// Probability at `max`, 0..1 (default 0.02).
    pub probability: f64,
    /// Rate of the link, for the decay of the average in idle periods.
    pub bandwidth: Rate,
    /// Mark ECN-capable packets instead of dropping them (default off).
    pub ecn: bool,
    /// Above `max` drop even ECN-capable packets (default off).
    pub harddrop: bool,
    /// With `ecn`, let packets that are not ECN-capable pass where others are marked (default off).
    pub nodrop: bool,
    /// Move `probability` between 1 % and 50 % so that the average stays in the middle (default
    /// off).
    pub adaptive: bool,
    /// Between `max` and twice `max` let the probability rise to 1 instead of dropping all (default
    /// off).
    pub gentle: bool,
}

impl Default for Params {
    /// The defaults for 10 Mbit/s, which `tc` also assumes if no `bandwidth` is given.
    fn default() -> Self {
        Self::for_rate(Rate::from_mbit(10))
    }
}

impl Params {
    /// The defaults for a link of this rate. `max` is at least three average packets, below which
    /// `tc` finds no constants.
    pub fn for_rate(rate: Rate) -> Self {
        let avpkt = 1000;
        let max = (rate.bytes_per_sec() * 30 / 1000).max(3 * u64::from(avpkt));
        Self {
            limit: 4 * max,
            min: max / 3,
            max,
            avpkt,
            burst: default_burst(max / 3, max, avpkt),
            probability: 0.02,
            bandwidth: rate,
            ecn: false,
            harddrop: false,
            nodrop: false,
            adaptive: false,
            gentle: false,
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
        if self.min == 0 || self.min >= self.max || self.max > u64::from(u32::MAX) {
            return Err("min must be above 0 and below max, and max below 4 GiB");
        }
        if self.limit < self.max {
            return Err("limit must be at least max");
        }
        if !(self.probability > 0.0 && self.probability <= 1.0) {
            return Err("probability must be above 0 and at most 1");
        }
        check_weight(self.min, self.burst, self.avpkt)?;
        if self.nodrop && !self.ecn {
            return Err("nodrop needs ecn");
        }
        Ok(())
    }
}

/// Default burst, packets: as tc-red(8) recommends, but long enough for `min` ([`Params::check`]).
pub fn default_burst(min: u64, max: u64, avpkt: u32) -> u32 {
    let least = min / u64::from(avpkt) + 1;
    num::low_u32(((2 * min + max) / (3 * u64::from(avpkt))).max(least))
}

/// Counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Packets marked.
    pub marks: u64,
    /// Packets that the law dropped at random.
    pub prob_drops: u64,
    /// Packets that the law dropped because the average was above the greatest threshold.
    pub forced_drops: u64,
}

/// The `red` queue.
#[derive(Clone, Debug)]
pub struct Red<P> {
    params: Params,
    stats: Stats,
    /// Its probability changes in the adaptive variant.
    law: Law,
    vars: Vars,
    idling: Idling,
    idle_since: Option<Instant>,
    next_adapt: Instant,
    ring: Ring<P>,
    bytes: u64,
}

impl<P: Packet> Red<P> {
    /// An empty queue, created at time 0.
    pub fn new(params: Params) -> Self {
        Self::starting_at(params, Instant::ZERO)
    }

    /// An empty queue, created at `start`.
    pub fn starting_at(params: Params, start: Instant) -> Self {
        // Parameters that `check` refuses get the slowest average.
        let wlog = weight(params.min, params.burst, params.avpkt).unwrap_or(31);
        Self {
            stats: Stats::default(),
            law: Law {
                gentle: params.gentle,
                ..Law::new(params.min, params.max, wlog, params.probability)
            },
            vars: Vars::default(),
            idling: Idling::new(wlog, params.avpkt, params.bandwidth),
            idle_since: Some(start),
            next_adapt: if params.adaptive {
                start + ADAPT
            } else {
                NEVER
            },
            ring: Ring::new(),
            bytes: 0,
            params,
        }
    }

    /// The parameters as given; the adaptive variant's current probability is in the gauges.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The average length in bytes.
    pub fn average(&self) -> u64 {
        self.vars.qavg >> self.law.wlog
    }

    /// Updates the average at an arrival.
    #[inline]
    fn update_average(&mut self, now: Instant) {
        match self.idle_since.take() {
            Some(since) => self.vars.qavg = self.idling.after(self.vars.qavg, since, now),
            None => self.vars.update(&self.law, self.bytes),
        }
    }
}

impl<P: Packet> Discipline<P> for Red<P> {
    #[inline(always)]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, mut packet: P, rng: &mut Rng, drops: &mut D) {
        self.update_average(now);
        let action = self.law.action(&mut self.vars, rng);
        if action != Action::Pass {
            let hard = action == Action::Hard;
            let may_mark = self.params.ecn && !(hard && self.params.harddrop);
            if may_mark && packet.mark() {
                self.stats.marks += 1;
            } else if !(may_mark && self.params.nodrop) {
                let counter = match hard {
                    true => &mut self.stats.forced_drops,
                    false => &mut self.stats.prob_drops,
                };
                *counter += 1;
                let cause = if self.params.ecn {
                    DropCause::Forced
                } else {
                    DropCause::Early
                };
                return drops.drop(now, packet, cause);
            }
        }
        if self.bytes + u64::from(packet.len()) > self.params.limit {
            return drops.drop(now, packet, DropCause::Overflow);
        }
        self.bytes += u64::from(packet.len());
        self.ring.push(packet).set_enqueued(now);
    }

    #[inline]
    fn dequeue<D: Drops<P>>(
        &mut self,
        now: Instant,
        _rng: &mut Rng,
        _drops: &mut D,
    ) -> Dequeued<P> {
        let Some(packet) = self.ring.pop() else {
            self.idle_since.get_or_insert(now);
            return Dequeued::Empty;
        };
        self.bytes -= u64::from(packet.len());
        Dequeued::Packet(packet)
    }

    #[inline]
    fn next_timer(&self) -> Instant {
        self.next_adapt
    }

    /// Floyd, Gummadi and Shenker, "Adaptive RED" (2001), figure 1, with Linux's steps.
    fn on_timer(&mut self, now: Instant) {
        let scaled = match self.idle_since {
            Some(since) => self.idling.after(self.vars.qavg, since, now),
            None => self.vars.qavg,
        };
        let average = scaled >> self.law.wlog;
        let law = &mut self.law;
        let delta = self.params.max - self.params.min;
        let fifth = delta / 5;
        if average > self.params.min + 3 * fifth && law.max_p <= 50 * ONE_PERCENT {
            law.max_p += ONE_PERCENT.min(law.max_p / 4);
        } else if average < self.params.min + 2 * fifth && law.max_p >= ONE_PERCENT {
            law.max_p = law.max_p / 10 * 9;
        }
        law.max_p_delta = num::low_u32(((u64::from(law.max_p) + delta / 2) / delta.max(1)).max(1));
        self.next_adapt = now + ADAPT;
    }

    #[inline]
    fn len(&self) -> usize {
        self.ring.len()
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn marks(&self) -> u64 {
        self.stats.marks
    }

    /// The limit, which is in bytes and so not a knob, is converted to packets of full size.
    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = num::low_u32(self.params.limit / u64::from(MTU));
        gauges.probability = self.law.probability(&self.vars);
        gauges.marks = self.stats.marks;
        gauges.head_age = self
            .ring
            .front()
            .map_or(Duration::ZERO, |p| now - p.enqueued());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::TestPacket;

    use crate::Ecn;

    const LEN: u32 = 1000;

    /// min 10 kB, max 30 kB; the average is set by hand.
    fn params() -> Params {
        Params {
            min: 10_000,
            max: 30_000,
            limit: 1_000_000,
            burst: default_burst(10_000, 30_000, 1000),
            ..Params::default()
        }
    }

    struct Bed {
        q: Red<TestPacket>,
        rng: Rng,
        dropped: Vec<(TestPacket, DropCause)>,
    }

    impl Bed {
        fn new(params: Params) -> Self {
            assert_eq!(params.check(), Ok(()));
            Self {
                q: Red::new(params),
                rng: Rng::new(1, "red"),
                dropped: Vec::new(),
            }
        }
        /// Offers a packet while the average is `avg` bytes.
        fn offer(&mut self, avg: u64, ecn: Ecn) {
            let q = &mut self.q;
            q.idle_since = None;
            q.vars.qavg = avg << q.law.wlog;
            q.bytes = avg;
            let p = TestPacket::new(0, LEN, 0, ecn);
            q.enqueue(Instant::ZERO, p, &mut self.rng, &mut self.dropped);
        }
        /// Share of `n` packets dropped at this average.
        fn share(params: Params, avg: u64, n: usize) -> f64 {
            let mut bed = Self::new(params);
            for _ in 0..n {
                bed.offer(avg, Ecn::NotEct);
            }
            bed.dropped.len() as f64 / n as f64
        }
    }

    #[test]
    fn defaults_are_derived_from_30_ms_of_the_link_as_in_tc() {
        let p = Params::for_rate(Rate::from_mbit(10));
        assert_eq!((p.max, p.min, p.limit), (37_500, 12_500, 150_000));
        // (2 * 12500 + 37500) / 3000.
        assert_eq!((p.burst, p.probability), (20, 0.02));
        for rate in [100, 1000, 10_000, 1_000_000, 10_000_000].map(Rate::from_kbit) {
            assert_eq!(Params::for_rate(rate).check(), Ok(()), "{rate}");
        }
    }

    #[test]
    fn the_weight_of_the_average_is_that_of_tc() {
        // The example of tc-red(8): 55 + 1 - 30 = 26 packets; 16 (1 - (15/16)^55) = 15.5, 32 (1 -
        // (31/32)^55) = 26.4.
        assert_eq!(weight(30_000, 55, 1000), Some(5));
        // 101 + 1 - 32 = 70: 64 (1 - (63/64)^101) = 51, 128 (1 - (127/128)^101) = 70.1.
        assert_eq!(weight(32_000, 101, 1000), Some(7));
        assert_eq!(weight(32_000, 20, 1000), None);
    }

    #[test]
    fn the_average_is_exponentially_weighted() {
        let mut bed = Bed::new(params());
        bed.q.idle_since = None;
        bed.q.bytes = 8000;
        let w = 1.0 / f64::from(1u32 << bed.q.law.wlog);
        let mut want = 0.0;
        for _ in 0..50 {
            bed.q.update_average(Instant::ZERO);
            want += w * (8000.0 - want);
        }
        assert!((bed.q.average() as f64 - want).abs() < 10.0);
    }

    #[test]
    fn below_min_nothing_is_dropped() {
        assert_eq!(Bed::share(params(), 9_999, 10_000), 0.0);
    }

    #[test]
    fn at_max_everything_is_dropped() {
        assert_eq!(Bed::share(params(), 30_000, 1_000), 1.0);
    }

    #[test]
    fn between_the_thresholds_drops_are_uniform_in_one_to_one_over_p() {
        // At 20 kB the probability is half of 2 %: gaps uniform in 1..100, mean 50, so 2 % of
        // packets (section 7 of the paper).
        let share = Bed::share(params(), 20_000, 200_000);
        assert!((share - 0.0198).abs() < 0.001, "{share}");
        let mut bed = Bed::new(params());
        let (mut gap, mut longest) = (0, 0);
        for _ in 0..200_000 {
            let before = bed.dropped.len();
            bed.offer(20_000, Ecn::NotEct);
            gap = if bed.dropped.len() > before {
                0
            } else {
                gap + 1
            };
            longest = longest.max(gap);
        }
        assert!((95..=101).contains(&longest), "{longest}");
    }

    #[test]
    fn the_count_restarts_outside_the_thresholds() {
        let mut bed = Bed::new(params());
        bed.offer(20_000, Ecn::NotEct);
        bed.offer(20_000, Ecn::NotEct);
        assert_eq!(bed.q.vars.qcount, 1);
        bed.offer(5_000, Ecn::NotEct);
        assert_eq!(bed.q.vars.qcount, -1);
        bed.offer(20_000, Ecn::NotEct);
        bed.offer(40_000, Ecn::NotEct);
        assert_eq!(bed.q.vars.qcount, -1);
    }

    #[test]
    fn gentle_rises_from_max_p_to_one_between_max_and_twice_max() {
        let gentle = Params {
            gentle: true,
            ..params()
        };
        let below = Bed::share(gentle.clone(), 29_999, 50_000);
        let above = Bed::share(gentle.clone(), 30_000, 50_000);
        assert!((below - above).abs() < 0.002, "{below} {above}");
        // Half-way the probability is 0.51: the first packet after a drop is dropped with this
        // probability, else the second.
        let mid = Bed::share(gentle.clone(), 45_000, 50_000);
        assert!((mid - 1.0 / (0.51 + 2.0 * 0.49)).abs() < 0.01, "{mid}");
        assert_eq!(Bed::share(gentle, 60_000, 1_000), 1.0);
    }

    #[test]
    fn ect_is_marked_where_others_are_dropped() {
        let mut bed = Bed::new(Params {
            ecn: true,
            ..params()
        });
        for _ in 0..1000 {
            bed.offer(40_000, Ecn::Ect0);
        }
        assert_eq!((bed.q.marks(), bed.dropped.len()), (1000, 0));
        bed.offer(40_000, Ecn::NotEct);
        assert_eq!(bed.dropped[0].1, DropCause::Forced);
    }

    #[test]
    fn harddrop_drops_ect_above_max_only() {
        let mut bed = Bed::new(Params {
            ecn: true,
            harddrop: true,
            ..params()
        });
        bed.offer(40_000, Ecn::Ect0);
        assert_eq!((bed.q.marks(), bed.dropped.len()), (0, 1));
        for _ in 0..1000 {
            bed.offer(20_000, Ecn::Ect0);
        }
        assert!(bed.q.marks() > 5 && bed.dropped.len() == 1);
    }

    #[test]
    fn nodrop_lets_packets_pass_that_cannot_be_marked() {
        let mut bed = Bed::new(Params {
            ecn: true,
            nodrop: true,
            ..params()
        });
        for _ in 0..100 {
            bed.offer(40_000, Ecn::NotEct);
        }
        assert!(bed.dropped.is_empty());
        assert_eq!(bed.q.len(), 100);
    }

    #[test]
    fn the_limit_counts_bytes_and_the_arrival() {
        let mut bed = Bed::new(Params {
            limit: 31_000,
            gentle: true,
            ..params()
        });
        bed.offer(5_000, Ecn::NotEct);
        bed.q.vars.qavg = 0;
        bed.q.bytes = 30_000;
        let p = TestPacket::new(1, LEN, 0, Ecn::NotEct);
        bed.q
            .enqueue(Instant::ZERO, p, &mut bed.rng, &mut bed.dropped);
        assert!(bed.dropped.is_empty());
        bed.q
            .enqueue(Instant::ZERO, p, &mut bed.rng, &mut bed.dropped);
        assert_eq!(bed.dropped[0].1, DropCause::Overflow);
    }

    #[test]
    fn idleness_begins_when_a_dequeue_finds_nothing_and_ends_with_an_arrival() {
        let mut bed = Bed::new(params());
        bed.offer(0, Ecn::NotEct);
        assert_eq!(bed.q.idle_since, None);
        bed.q
            .dequeue(Instant::from_secs(1), &mut bed.rng, &mut bed.dropped);
        assert_eq!(bed.q.idle_since, None);
        bed.q
            .dequeue(Instant::from_secs(2), &mut bed.rng, &mut bed.dropped);
        bed.q
            .dequeue(Instant::from_secs(3), &mut bed.rng, &mut bed.dropped);
        assert_eq!(bed.q.idle_since, Some(Instant::from_secs(2)));
    }

    #[test]
    fn the_average_decays_in_idle_periods_as_in_linux() {
        let mut bed = Bed::new(params());
        let q = &mut bed.q;
        q.vars.qavg = 20_000 << q.law.wlog;
        // (1 - w)^m after m packet times of 0.8 ms, 15.625 times slower in tc's units.
        let half_life = core::f64::consts::LN_2 / q.idling.slope;
        let after = |us: f64| {
            q.idling.after(
                q.vars.qavg,
                Instant::ZERO,
                Instant::from_nanos((us * 1e3) as u64),
            ) >> q.law.wlog
        };
        assert_eq!(after(0.0), 20_000);
        // Linux shifts by the exponent itself, not by its binary logarithm: after 1/slope it has
        // halved.
        let once = after(1.01 * half_life / core::f64::consts::LN_2);
        assert_eq!(once, 10_000);
        assert_eq!(after(1e12), 0);
        let slight = after(0.01 * half_life);
        assert!((10_000..20_000).contains(&slight));
    }

    #[test]
    fn adaptive_moves_the_probability_every_half_second() {
        let mut bed = Bed::new(Params {
            adaptive: true,
            ..params()
        });
        assert_eq!(bed.q.next_timer(), Instant::from_millis(500));
        let p = |bed: &Bed| f64::from(bed.q.law.max_p) / 4_294_967_296.0;
        bed.q.idle_since = None;
        // Above 60 % of the way it rises by min(1 %, a quarter) ...
        bed.q.vars.qavg = 23_000 << bed.q.law.wlog;
        bed.q.on_timer(Instant::from_millis(500));
        assert!((p(&bed) - 0.025).abs() < 1e-6);
        assert_eq!(bed.q.next_timer(), Instant::from_secs(1));
        // ... in the middle it stays ...
        bed.q.vars.qavg = 20_000 << bed.q.law.wlog;
        bed.q.on_timer(Instant::from_secs(1));
        assert!((p(&bed) - 0.025).abs() < 1e-6);
        // ... below 40 % it falls by a tenth, never below 1 % by more than a step.
        bed.q.vars.qavg = 17_000 << bed.q.law.wlog;
        bed.q.on_timer(Instant::from_millis(1500));
        assert!((p(&bed) - 0.0225).abs() < 1e-6);
        for _ in 0..100 {
            bed.q.on_timer(Instant::from_secs(2));
        }
        assert!(p(&bed) > 0.009 && p(&bed) <= 0.01);
        bed.q.vars.qavg = 29_000 << bed.q.law.wlog;
        for _ in 0..200 {
            bed.q.on_timer(Instant::from_secs(3));
        }
        assert!(p(&bed) > 0.5 && p(&bed) < 0.512);
    }

    #[test]
    fn without_adaptive_there_is_no_timer() {
        assert_eq!(Bed::new(params()).q.next_timer(), NEVER);
    }

    #[test]
    fn the_gauge_shows_the_probability_at_the_average() {
        let mut bed = Bed::new(params());
        let mut g = Gauges::default();
        bed.q.vars.qavg = 20_000 << bed.q.law.wlog;
        bed.q.gauges(Instant::ZERO, &mut g);
        assert!((g.probability - 0.01).abs() < 1e-9);
    }
}
