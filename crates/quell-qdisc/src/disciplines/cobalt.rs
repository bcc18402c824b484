//! COBALT, the AQM of CAKE: a CoDel that ramps down as gently as up, and BLUE for flows that do not
//! respond (Linux `net/sched/sch_cake.c`; Palmei et al., "Design and Evaluation of COBALT Queue
//! Discipline", LANMAN 2019).
//!
//! The law ([`State`]) is separate from the queue, so that CAKE runs it once per flow. [`Cobalt`]
//! is the law on one FIFO, which Linux has only inside CAKE: its limit, its tail drop and its
//! switch for ECN are this module's own.

use crate::num;
use crate::parts::ring::Ring;
use crate::rate::Rate;
use crate::time::{Duration, Instant, MS, SEC, US};
use crate::{Dequeued, Discipline, DropCause, Drops, Gauges, KnobSet, Knobs, MTU, Packet, Rng};

/// Parameters of the law and, for [`Cobalt`], the limit and ECN.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Acceptable standing delay, and the shortest time between steps of BLUE (default 5 ms).
    pub target: Duration,
    /// CoDel's interval (default 100 ms, 1 us..4 s).
    pub interval: Duration,
    /// Time that the largest packet takes on the link; at a sojourn of up to four times this, the
    /// law does not act (default 0: an unknown, fast link).
    pub mtu_time: Duration,
    /// BLUE's step up, in units of 2^-32 (default 1/256).
    pub p_inc: u32,
    /// BLUE's step down, in units of 2^-32 (default 1/4096).
    pub p_dec: u32,
    /// Limit in packets (default 1000, at least 1). Only [`Cobalt`] itself uses it.
    pub limit: u32,
    /// CoDel marks ECN-capable packets instead of dropping them (default on, as always in CAKE);
    /// BLUE drops them in any case.
    pub ecn: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            target: 5 * MS,
            interval: 100 * MS,
            mtu_time: Duration::ZERO,
            p_inc: 1 << 24,
            p_dec: 1 << 20,
            limit: 1000,
            ecn: true,
        }
    }
}

impl Params {
    /// These parameters on a link of known rate, as `cake_set_rate` adjusts them: the target is at
    /// least the transmission time of 1.5 full-size packets.
    pub fn for_rate(self, rate: Rate) -> Self {
        let mtu_time = match rate {
            Rate::ZERO => Duration::ZERO,
            _ => rate.transmission_time(MTU.into()),
        };
        let target = self.target.max(mtu_time * 3 / 2);
        Self {
            mtu_time,
            target,
            interval: (self.interval + target - self.target).max(2 * target),
            ..self
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if !(US..=4 * SEC).contains(&self.interval) {
            return Err("interval must be between 1us and 4s");
        }
        if self.target > 4 * SEC {
            return Err("target must be at most 4s");
        }
        if self.limit == 0 {
            return Err("limit must be at least 1 packet");
        }
        Ok(())
    }
}

/// The law's state; one per queue, or per flow of a fair queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Signals (drops or marks) in the current episode; falls step by step after it.
    pub count: u32,
    /// 1/sqrt(count) in units of 2^-32. Initially 0, as in Linux, so the very first signal of a
    /// queue needs no wait.
    pub rec_inv_sqrt: u32,
    /// Time of the next signal or of the next step down. While `count` is 0: an interval after the
    /// last packet, which is how long CAKE keeps an empty flow.
    pub drop_next: Instant,
    /// Time of BLUE's last step.
    pub blue_timer: Instant,
    /// BLUE's drop probability, in units of 2^-32.
    pub p_drop: u32,
    /// The delay is above target.
    pub dropping: bool,
    /// [`State::should_drop`] marked the packet that it examined last.
    pub ecn_marked: bool,
}

/// Exact 1/sqrt(count) for small counts, where one Newton step is far off (one step from 1 to 2
/// gives the value for 4).
const INV_SQRT: [u32; 16] = [
    u32::MAX,
    u32::MAX,
    3_037_000_500,
    2_479_700_525,
    2_147_483_647,
    1_920_767_767,
    1_753_413_056,
    1_623_345_051,
    1_518_500_250,
    1_431_655_765,
    1_358_187_914,
    1_294_981_364,
    1_239_850_263,
    1_191_209_601,
    1_147_878_294,
    1_108_955_788,
];

impl State {
    #[inline]
    fn update_inv_sqrt(&mut self) {
        if let Some(&exact) = INV_SQRT.get(self.count as usize) {
            self.rec_inv_sqrt = exact;
            return;
        }
        let x = u64::from(self.rec_inv_sqrt);
        let x2 = (x * x) >> 32;
        let v = (3u64 << 32).wrapping_sub(u64::from(self.count) * x2) >> 2;
        self.rec_inv_sqrt = (v.wrapping_mul(x) >> (32 - 2 + 1)) as u32;
    }

    /// `t` plus interval / sqrt(count). Only the low 32 bits of the interval (4.3 s) count, as in
    /// Linux.
    #[inline]
    fn control(&self, t: Instant, interval: Duration) -> Instant {
        let step = u64::from(num::low_u32(interval.as_nanos())) * u64::from(self.rec_inv_sqrt);
        t + Duration::from_nanos(step >> 32)
    }

    fn blue_may_step(&self, params: &Params, now: Instant) -> bool {
        now - self.blue_timer > params.target
    }

    /// Call when a packet was dropped because a limit was reached. True if this activates BLUE.
    pub fn queue_full(&mut self, params: &Params, now: Instant) -> bool {
        let mut up = false;
        if self.blue_may_step(params, now) {
            up = self.p_drop == 0;
            self.p_drop = self.p_drop.saturating_add(params.p_inc);
            self.blue_timer = now;
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
        up
    }

    /// Call when a dequeue found the queue empty. True if this deactivates BLUE.
    pub fn queue_empty(&mut self, params: &Params, now: Instant) -> bool {
        let mut down = false;
        if self.p_drop != 0 && self.blue_may_step(params, now) {
            self.p_drop = self.p_drop.saturating_sub(params.p_dec);
            self.blue_timer = now;
            down = self.p_drop == 0;
        }
        self.dropping = false;
        if self.count != 0 && now >= self.drop_next {
            self.step_down(params);
        }
        down
    }

    fn step_down(&mut self, params: &Params) {
        self.count -= 1;
        self.update_inv_sqrt();
        self.drop_next = self.control(self.drop_next, params.interval);
    }

    /// Call with each dequeued packet; returns a cause if it must be dropped. May mark it instead
    /// (see `ecn_marked`). `bulk_flows` is for a shaper after the bottleneck: the number of its
    /// bulk flows, which raises the delay below which the law does not act. Otherwise it is 0.
    #[inline]
    pub fn should_drop<P: Packet>(
        &mut self,
        params: &Params,
        now: Instant,
        packet: &mut P,
        bulk_flows: u32,
        rng: &mut Rng,
    ) -> Option<DropCause> {
        let sojourn = now - packet.enqueued();
        let over_target = sojourn > params.target
            && sojourn > params.mtu_time * u64::from(bulk_flows) * 2
            && sojourn > params.mtu_time * 4;
        let mut next_due = self.count != 0 && now >= self.drop_next;
        // Whether the `drop_next` set before this call has passed; a signal or a step down
        // determines it again.
        let mut passed = now > self.drop_next;
        let mut cause = None;
        self.ecn_marked = false;
        if over_target {
            if !self.dropping {
                self.dropping = true;
                self.drop_next = self.control(now, params.interval);
            }
            self.count = self.count.max(1);
        } else {
            self.dropping = false;
        }
        if next_due && self.dropping {
            self.ecn_marked = params.ecn && packet.mark();
            if !self.ecn_marked {
                cause = Some(if params.ecn {
                    DropCause::Forced
                } else {
                    DropCause::Early
                });
            }
            self.count = self.count.saturating_add(1);
            self.update_inv_sqrt();
            self.drop_next = self.control(self.drop_next, params.interval);
            passed = now > self.drop_next;
        } else {
            while next_due {
                self.step_down(params);
                passed = now > self.drop_next;
                next_due = self.count != 0 && now >= self.drop_next;
            }
        }
        // BLUE drops ECN-capable packets too: it is for flows that ignore signals.
        if self.p_drop != 0 && cause.is_none() && rng.u32() < self.p_drop {
            cause = Some(DropCause::Early);
        }
        if self.count == 0 {
            self.drop_next = now + params.interval;
        } else if passed && cause.is_none() {
            self.drop_next = now;
        }
        cause
    }
}

/// One FIFO with the law at its head.
#[derive(Clone, Debug)]
pub struct Cobalt<P> {
    params: Params,
    state: State,
    marks: u64,
    ring: Ring<P>,
    bytes: u64,
}

impl<P: Packet> Cobalt<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            state: State::default(),
            marks: 0,
            ring: Ring::new(),
            bytes: 0,
        }
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The law's state.
    pub fn state(&self) -> &State {
        &self.state
    }
}

impl<P: Packet> Discipline<P> for Cobalt<P> {
    #[inline(always)]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, _rng: &mut Rng, drops: &mut D) {
        if self.ring.len() >= self.params.limit as usize {
            self.state.queue_full(&self.params, now);
            return drops.drop(now, packet, DropCause::Overflow);
        }
        self.bytes += u64::from(packet.len());
        self.ring.push(packet).set_enqueued(now);
    }

    #[inline]
    fn dequeue<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        while let Some(mut packet) = self.ring.pop() {
            self.bytes -= u64::from(packet.len());
            let cause = self
                .state
                .should_drop(&self.params, now, &mut packet, 0, rng);
            self.marks += u64::from(self.state.ecn_marked);
            match cause {
                // The last packet is sent whatever the law decides, as in CAKE.
                Some(cause) if !self.ring.is_empty() => drops.drop(now, packet, cause),
                _ => return Dequeued::Packet(packet),
            }
        }
        self.state.queue_empty(&self.params, now);
        Dequeued::Empty
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
        self.marks
    }

    fn gauges(&self, now: Instant, gauges: &mut Gauges) {
        gauges.limit_packets = self.params.limit;
        gauges.probability = f64::from(self.state.p_drop) / f64::from(u32::MAX);
        gauges.marks = self.marks;
        gauges.head_age = self
            .ring
            .front()
            .map_or(Duration::ZERO, |p| now - p.enqueued());
    }

    fn knobs(&self) -> KnobSet {
        KnobSet::LIMIT
    }

    fn set_knobs(&mut self, knobs: &Knobs) {
        if let Some(limit) = knobs.limit_packets {
            self.params.limit = limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ecn;
    use crate::packet::TestPacket;

    const T: Instant = Instant::from_secs(10);

    fn rng() -> Rng {
        Rng::new(1, "cobalt")
    }

    fn packet(at: Instant, ecn: Ecn) -> TestPacket {
        let mut p = TestPacket::new(0, 1514, 0, ecn);
        p.set_enqueued(at);
        p
    }

    /// Each millisecond from `from` on, before `until`.
    fn each_ms(from: Instant, until: Instant) -> impl Iterator<Item = Instant> {
        (0..(until - from) / MS).map(move |ms| from + ms * MS)
    }

    /// Examines a packet of this age every millisecond; returns the times of drops.
    fn signals(
        s: &mut State,
        p: &Params,
        from: Instant,
        until: Instant,
        age: Duration,
    ) -> Vec<Instant> {
        let mut r = rng();
        each_ms(from, until)
            .filter(|&now| {
                let mut x = packet(now - age, Ecn::NotEct);
                s.should_drop(p, now, &mut x, 0, &mut r).is_some()
            })
            .collect()
    }

    /// A state that has been through an episode and come to rest.
    fn seasoned() -> State {
        let (mut s, p) = (State::default(), Params::default());
        signals(&mut s, &p, T - 3 * SEC, T - 2900 * MS, 20 * MS);
        signals(&mut s, &p, T - 2900 * MS, T, Duration::ZERO);
        assert_eq!((s.count, s.rec_inv_sqrt), (0, u32::MAX));
        s
    }

    #[test]
    fn defaults_are_those_of_cake() {
        let p = Params::default();
        assert_eq!((p.target, p.interval), (5 * MS, 100 * MS));
        assert_eq!((p.p_inc, p.p_dec), (1 << 24, 1 << 20));
        assert_eq!(p.check(), Ok(()));
    }

    #[test]
    fn a_slow_link_raises_target_and_interval() {
        // 1 Mbit/s: a full packet takes 12.112 ms; the target is 1.5 times that.
        let p = Params::default().for_rate(Rate::from_mbit(1));
        assert_eq!(
            (p.mtu_time, p.target),
            (Duration::from_micros(12_112), Duration::from_micros(18_168))
        );
        assert_eq!(p.interval, Duration::from_nanos(113_168_000));
        assert_eq!(Params::default().for_rate(Rate::ZERO), Params::default());
    }

    #[test]
    fn the_first_signal_waits_for_a_full_interval_above_target() {
        let mut s = seasoned();
        let got = signals(&mut s, &Params::default(), T, T + 150 * MS, 6 * MS);
        // (2^32 - 1) / 2^32 of 100 ms later.
        assert_eq!(got, [T + 100 * MS]);
    }

    #[test]
    fn the_very_first_signal_of_a_fresh_queue_comes_at_once_as_in_linux() {
        let got = signals(
            &mut State::default(),
            &Params::default(),
            T,
            T + 50 * MS,
            6 * MS,
        );
        assert_eq!(got[0], T + MS);
    }

    #[test]
    fn the_next_signal_counts_from_the_previous_one() {
        let mut s = seasoned();
        let p = Params::default();
        signals(&mut s, &p, T, T + 101 * MS, 20 * MS);
        // The first is due at 100 ms, the second 100 ms / sqrt(2) later.
        let second = s.drop_next;
        assert!(
            second.abs_diff(T + 100 * MS + Duration::from_nanos(70_710_678))
                < Duration::from_nanos(10)
        );
        // Although the packet is examined 20 ms late, the third is due 100 ms / sqrt(3) after the
        // second.
        let late = second + 20 * MS;
        let mut x = packet(late - 20 * MS, Ecn::NotEct);
        assert!(s.should_drop(&p, late, &mut x, 0, &mut rng()).is_some());
        assert!(
            s.drop_next
                .abs_diff(second + Duration::from_nanos(57_735_027))
                < Duration::from_nanos(10)
        );
    }

    #[test]
    fn after_the_episode_the_count_falls_as_it_rose() {
        let mut s = seasoned();
        let p = Params::default();
        signals(&mut s, &p, T, T + SEC, 20 * MS);
        let high = s.count;
        assert!(high > 10);
        signals(&mut s, &p, T + SEC, T + 1100 * MS, Duration::ZERO);
        assert!(s.count < high && s.count > 1, "{} {high}", s.count);
        signals(&mut s, &p, T + 1100 * MS, T + 3 * SEC, Duration::ZERO);
        assert_eq!(s.count, 0);
    }

    #[test]
    fn below_four_packet_times_the_law_rests() {
        // 10 Mbit/s: a packet takes 1.211 ms.
        let p = Params {
            target: MS,
            ..Params::default().for_rate(Rate::from_mbit(10))
        };
        let mut s = seasoned();
        assert!(signals(&mut s, &p, T, T + 500 * MS, Duration::from_micros(4_844)).is_empty());
        assert!(
            !signals(
                &mut s,
                &p,
                T + 500 * MS,
                T + SEC,
                Duration::from_micros(4_845)
            )
            .is_empty()
        );
    }

    #[test]
    fn bulk_flows_raise_that_floor() {
        let p = Params::default().for_rate(Rate::from_mbit(10));
        let mut s = seasoned();
        let mut x = packet(T - 20 * MS, Ecn::NotEct);
        s.should_drop(&p, T, &mut x, 9, &mut rng());
        assert!(!s.dropping);
        s.should_drop(&p, T, &mut x, 8, &mut rng());
        assert!(s.dropping);
    }

    #[test]
    fn ect_is_marked_and_not_dropped() {
        let mut s = seasoned();
        let p = Params::default();
        signals(&mut s, &p, T, T + 100 * MS, 20 * MS);
        let mut x = packet(T + 80 * MS, Ecn::Ect0);
        assert_eq!(s.should_drop(&p, T + 100 * MS, &mut x, 0, &mut rng()), None);
        assert!(s.ecn_marked && x.ecn == Ecn::Ce);
        assert_eq!(s.count, 2);
    }

    #[test]
    fn blue_rises_by_a_256th_at_overflow_at_most_once_per_target() {
        let mut s = State::default();
        let p = Params::default();
        assert!(s.queue_full(&p, T));
        assert!(!s.queue_full(&p, T + 5 * MS));
        assert_eq!(s.p_drop, 1 << 24);
        assert!(!s.queue_full(&p, T + 5 * MS + Duration::from_nanos(1)));
        assert_eq!(s.p_drop, 2 << 24);
        s.p_drop = u32::MAX - 5;
        s.queue_full(&p, T + SEC);
        assert_eq!(s.p_drop, u32::MAX);
    }

    #[test]
    fn blue_falls_by_a_4096th_when_idle_at_most_once_per_target() {
        let mut s = State::default();
        let p = Params::default();
        s.queue_full(&p, T);
        let mut steps = 0;
        let mut now = T;
        loop {
            now += 6 * MS;
            steps += 1;
            assert!(!s.queue_empty(&p, now - 2 * MS) || steps == 0);
            if s.queue_empty(&p, now) {
                break;
            }
        }
        // 2^24 / 2^20.
        assert_eq!((steps, s.p_drop), (16, 0));
    }

    #[test]
    fn overflow_makes_a_signal_due_at_once() {
        let mut s = seasoned();
        let p = Params::default();
        s.queue_full(&p, T);
        s.p_drop = 0;
        let mut x = packet(T - 20 * MS, Ecn::NotEct);
        assert!(s.should_drop(&p, T, &mut x, 0, &mut rng()).is_some());
    }

    #[test]
    fn blue_drops_even_ect_and_even_without_delay() {
        let mut s = State {
            p_drop: 1 << 31,
            ..seasoned()
        };
        let mut r = rng();
        let p = Params::default();
        let dropped = (0..1000)
            .filter(|_| {
                let mut x = packet(T, Ecn::Ect0);
                s.should_drop(&p, T, &mut x, 0, &mut r) == Some(DropCause::Early)
            })
            .count();
        assert!((450..550).contains(&dropped), "{dropped}");
    }

    #[test]
    fn the_last_packet_is_never_dropped() {
        let mut q = Cobalt::new(Params::default());
        let (mut r, mut drops) = (rng(), Vec::new());
        q.state.p_drop = u32::MAX;
        for i in 0..3 {
            q.enqueue(
                T,
                TestPacket::new(i, 1514, 0, Ecn::NotEct),
                &mut r,
                &mut drops,
            );
        }
        match q.dequeue(T, &mut r, &mut drops) {
            Dequeued::Packet(p) => assert_eq!(p.id, 2),
            other => panic!("{other:?}"),
        }
        assert_eq!(drops.len(), 2);
    }

    #[test]
    fn the_limit_drops_arrivals_and_wakes_blue() {
        let mut q = Cobalt::new(Params::default());
        let (mut r, mut drops) = (rng(), Vec::new());
        for i in 0..1001 {
            q.enqueue(
                T,
                TestPacket::new(i, 1514, 0, Ecn::NotEct),
                &mut r,
                &mut drops,
            );
        }
        assert_eq!((q.len(), drops[0].1), (1000, DropCause::Overflow));
        assert_eq!(q.state().p_drop, 1 << 24);
    }

    #[test]
    fn it_marks_packets_that_are_ect_when_it_would_drop_others() {
        let p = Params {
            ecn: true,
            ..Params::default()
        };
        let drops = signals(&mut State::default(), &p, T, T + 2 * SEC, 100 * MS);
        let (mut s, mut r) = (State::default(), rng());
        let marks: Vec<Instant> = each_ms(T, T + 2 * SEC)
            .filter(|&now| {
                let mut x = packet(now - 100 * MS, Ecn::Ect0);
                assert_eq!(s.should_drop(&p, now, &mut x, 0, &mut r), None);
                s.ecn_marked
            })
            .collect();
        assert!(drops.len() > 10);
        assert_eq!(marks, drops);
    }
}
