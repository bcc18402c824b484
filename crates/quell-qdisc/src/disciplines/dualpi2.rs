//! DualPI2: RFC 9332 as in Linux 7.2 (`net/sched/sch_dualpi2.c`): a queue for scalable (L4S)
//! traffic with a shallow step threshold, a queue for classic traffic, one PI controller for both
//! and a weighted round robin between them.
//!
//! Where Linux and the RFC's example differ, this follows Linux: a step instead of a ramp, credits
//! instead of a time-shifted FIFO, and an overload that begins when k * p' passes 1. Deviations
//! from Linux: a change of the probability saturates (Linux keeps its lower 32 bits); a packet that
//! the coupling and the step both mark counts once; memory is length plus a fixed overhead (Linux:
//! `truesize`); no filters, no GSO.

use crate::discipline::{Backlog, FastPath, offer_each};
use crate::num;
use crate::parts::flows::PACKET_MEMORY;
use crate::parts::ring::Ring;
use crate::time::{Duration, Instant, MS, SEC, US};
use crate::{
    Dequeued, Discipline, DropCause, Drops, Ecn, Gauges, KnobSet, Knobs, MTU, Packet, Rng,
};

/// Which packets go to the L queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Classifier {
    /// ECT(1) and CE (`l4s_ect`).
    #[default]
    L4sEct,
    /// Every ECN-capable packet (`any_ect`).
    AnyEct,
    /// None: a single PI2 queue.
    Classic,
}

impl Classifier {
    /// Whether packets with this ECN field are for L4S (RFC 9331, section 5.1).
    #[inline]
    pub fn is_l4s(self, ecn: Ecn) -> bool {
        match self {
            Classifier::L4sEct => ecn as u8 & 1 != 0,
            Classifier::AnyEct => ecn != Ecn::NotEct,
            Classifier::Classic => false,
        }
    }
}

/// Where marking of the L queue begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Above this sojourn.
    Time(Duration),
    /// With more than this many packets queued behind the packet.
    Packets(u32),
}

/// Parameters, named as in tc-dualpi2(8).
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Packets in both queues (default 10000, at least 1).
    pub limit: u32,
    /// Bytes of memory for both queues (default 2 * 1514 * limit).
    pub memlimit: Option<u64>,
    /// Delay to hold, of the older head of the two queues (default 15 ms).
    pub target: Duration,
    /// Time between updates (default 16 ms, at least 1 us).
    pub tupdate: Duration,
    /// Weight of the delay's distance from target, Hz (default 41/256: 0.16).
    pub alpha: f64,
    /// Weight of the delay's change, Hz (default 819/256: 3.2).
    pub beta: f64,
    /// k: the L queue's probability is k times p' (default 2, at least 1).
    pub coupling_factor: u32,
    /// Where marking of the L queue begins (default 1 ms).
    pub step_thresh: Step,
    /// The step acts only on packets that found at least this many in the L queue (default 0).
    pub min_qlen_step: u32,
    /// Share of the link that the classic queue keeps, percent (default 10).
    pub classic_protection: u32,
    /// Which packets go to the L queue (default L4sEct).
    pub classifier: Classifier,
    /// On overload, drop packets of both queues with probability p'^2 (default). Otherwise p' stops
    /// at 1/k: ECN-capable packets are only marked, and the queues may overflow.
    pub drop_on_overload: bool,
    /// Apply the law to arrivals instead of departures (default off).
    pub drop_enqueue: bool,
    /// Bytes of the largest packet (default 1514).
    pub mtu: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            limit: 10_000,
            memlimit: None,
            target: 15 * MS,
            tupdate: 16 * MS,
            alpha: 41.0 / 256.0,
            beta: 819.0 / 256.0,
            coupling_factor: 2,
            step_thresh: Step::Time(MS),
            min_qlen_step: 0,
            classic_protection: 10,
            classifier: Classifier::L4sEct,
            drop_on_overload: true,
            drop_enqueue: false,
            mtu: MTU,
        }
    }
}

impl Params {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.limit == 0 {
            return Err("limit must be at least 1 packet");
        }
        if self.target > 10 * SEC {
            return Err("target must be at most 10s");
        }
        if !(US..=10 * SEC).contains(&self.tupdate) {
            return Err("tupdate must be between 1us and 10s");
        }
        if !(0.0..=4e6).contains(&self.alpha) {
            return Err("alpha must be between 0 and 4000000 (Hz)");
        }
        if !(0.0..=4e6).contains(&self.beta) {
            return Err("beta must be between 0 and 4000000 (Hz)");
        }
        if !(1..=255).contains(&self.coupling_factor) {
            return Err("coupling_factor must be between 1 and 255");
        }
        if self.classic_protection > 100 {
            return Err("classic_protection must be at most 100 (percent)");
        }
        Ok(())
    }

    /// The parameters for these round trip times, as `tc` derives them from `max_rtt` and
    /// `typical_rtt` (RFC 9332, appendix A.1).
    pub fn for_rtt(max: Duration, typical: Duration) -> Self {
        let seconds = max.as_secs_f64();
        let tupdate = typical.min(max / 3).max(US);
        Self {
            target: typical,
            tupdate,
            alpha: 0.1 * tupdate.as_secs_f64() / (seconds * seconds),
            beta: 0.3 / seconds,
            ..Self::default()
        }
    }
}

/// Counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Packets marked.
    pub marks: u64,
    /// Packets that the step threshold marked, including those that the coupling had already
    /// marked.
    pub step_marks: u64,
    /// Packets taken into the classic queue.
    pub packets_in_c: u64,
    /// Packets taken into the L queue.
    pub packets_in_l: u64,
}

/// A weight in Hz as Linux scales it: probability in units of 2^-32 per 64 ns of delay. As in `tc`,
/// the weight is first rounded down to 1/256 Hz.
fn scale(weight: f64) -> i64 {
    ((num::whole_u64(weight * 256.0) * u64::from(u32::MAX)) >> 2)
        .wrapping_div(SEC.as_nanos())
        .cast_signed()
}

/// The coupled queues.
#[derive(Clone, Debug)]
pub struct DualPi2<P> {
    params: Params,
    alpha: i64,
    beta: i64,
    stats: Stats,
    classic: Ring<P>,
    /// Each packet, and whether the step may act on it.
    low: Ring<(P, bool)>,
    bytes: u64,
    memory: u64,
    memory_limit: u64,
    /// Base probability p', in units of 2^-32.
    prob: u32,
    /// A knob has set p', and the law does not change it.
    held: bool,
    last_qdelay: Duration,
    /// At most 0: the L queue is next; above 0: the classic queue.
    credit: i64,
    next_update: Instant,
}

impl<P: Packet> DualPi2<P> {
    /// Empty queues, created at time 0.
    pub fn new(params: Params) -> Self {
        Self::starting_at(params, Instant::ZERO)
    }

    /// Empty queues, created at `start`.
    pub fn starting_at(params: Params, start: Instant) -> Self {
        let mut q = Self {
            alpha: scale(params.alpha),
            beta: scale(params.beta),
            stats: Stats::default(),
            classic: Ring::new(),
            low: Ring::new(),
            bytes: 0,
            memory: 0,
            memory_limit: params
                .memlimit
                .unwrap_or(2 * u64::from(params.mtu) * u64::from(params.limit)),
            prob: 0,
            held: false,
            last_qdelay: Duration::ZERO,
            credit: 0,
            next_update: start + params.tupdate,
            params,
        };
        q.reset_credit();
        q
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The base probability p', 0..1.
    pub fn base_probability(&self) -> f64 {
        f64::from(self.prob) / f64::from(u32::MAX)
    }

    /// Packets in the L queue.
    pub fn low_len(&self) -> usize {
        self.low.len()
    }

    /// Packets in the classic queue.
    pub fn classic_len(&self) -> usize {
        self.classic.len()
    }

    /// Resets the credit: the L queue is next, unless the classic queue has the larger share.
    fn reset_credit(&mut self) {
        self.credit =
            i64::from(self.params.mtu) * (2 * i64::from(self.params.classic_protection) - 100);
    }

    #[inline]
    fn is_low(&self, packet: &P) -> bool {
        self.params.classifier.is_l4s(packet.ecn())
    }

    /// Applies the PI law to a packet that is not (or no longer) queued: true if it must be
    /// dropped. If the law marks the packet instead, `marked` is set.
    #[inline]
    fn must_drop(&mut self, packet: &mut P, low: bool, rng: &mut Rng, marked: &mut bool) -> bool {
        if self.bytes < 2 * u64::from(self.params.mtu) {
            return false;
        }
        let coupled = u64::from(self.prob) * u64::from(self.params.coupling_factor);
        let overload = coupled > u64::from(u32::MAX);
        if low {
            if overload {
                // RFC 9332, section 4.2.3: first drop as in the classic queue, then mark the rest.
                if self.params.drop_on_overload && roll_twice(self.prob, rng) {
                    return true;
                }
                *marked = packet.mark();
            } else if roll(num::low_u32(coupled), rng) {
                *marked = packet.mark();
            }
        } else if roll_twice(self.prob, rng) {
            if overload || !packet.mark() {
                return true;
            }
            *marked = true;
        }
        false
    }

    /// Applies the law at enqueue: queues a packet that it does not drop.
    #[inline(never)]
    fn judge<D: Drops<P>>(&mut self, now: Instant, mut packet: P, rng: &mut Rng, drops: &mut D) {
        let (low, mut marked) = (self.is_low(&packet), false);
        if self.must_drop(&mut packet, low, rng, &mut marked) {
            return drops.drop(now, packet, DropCause::Forced);
        }
        self.stats.marks += u64::from(marked);
        self.push(now, packet, low);
    }

    /// Queues a packet.
    #[inline(always)]
    fn push(&mut self, now: Instant, packet: P, low: bool) {
        let len = u64::from(packet.len());
        self.bytes += len;
        self.memory += len + PACKET_MEMORY;
        if low {
            self.stats.packets_in_l += 1;
            let step = self.low.len() >= self.params.min_qlen_step as usize;
            self.low.push((packet, step)).0.set_enqueued(now);
        } else {
            self.stats.packets_in_c += 1;
            self.classic.push(packet).set_enqueued(now);
        }
    }

    /// Takes the next packet by weighted round robin. Returns it with three values: whether it is
    /// from the L queue, whether the step may act on it, and the change of the credit if it is
    /// sent.
    #[inline]
    fn select(&mut self) -> Option<(P, bool, bool, i64)> {
        let share = i64::from(self.params.classic_protection);
        let (packet, low, step, weight) =
            if !self.low.is_empty() && (self.classic.is_empty() || self.credit <= 0) {
                let (packet, step) = self.low.pop()?;
                let weight = if self.classic.is_empty() { 0 } else { share };
                (packet, true, step, weight)
            } else {
                let packet = self.classic.pop()?;
                let weight = if self.low.is_empty() { 0 } else { share - 100 };
                (packet, false, false, weight)
            };
        let len = u64::from(packet.len());
        self.bytes -= len;
        self.memory -= len + PACKET_MEMORY;
        Some((packet, low, step, weight * len.cast_signed()))
    }

    /// Marks a packet of the L queue that is beyond the step.
    #[inline]
    fn step(&mut self, now: Instant, packet: &mut P, marked: &mut bool) {
        let beyond = match self.params.step_thresh {
            Step::Time(t) => now - packet.enqueued() > t,
            Step::Packets(n) => self.low.len() > n as usize,
        };
        if beyond && packet.mark() {
            self.stats.step_marks += 1;
            *marked = true;
        }
    }

    /// Age of the older head (RFC 9332, appendix A.1: one delay controls both queues).
    fn delay(&self, now: Instant) -> Duration {
        let c = self.classic.front().map(Packet::enqueued);
        let l = self.low.front().map(|(p, _)| p.enqueued());
        let age = |t: Option<Instant>| t.map_or(Duration::ZERO, |t| now - t);
        age(c).max(age(l))
    }
}

/// True with probability (p + 1) / 2^32.
#[inline]
fn roll(prob: u32, rng: &mut Rng) -> bool {
    rng.u32() <= prob
}

/// True with the square of that probability: two independent comparisons instead of a
/// multiplication (RFC 9332, section 4.1).
#[inline]
fn roll_twice(prob: u32, rng: &mut Rng) -> bool {
    roll(prob, rng) && roll(prob, rng)
}

impl<P: Packet> Discipline<P> for DualPi2<P> {
    #[inline(always)]
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, rng: &mut Rng, drops: &mut D) {
        self.enqueue_with(now, packet.len(), || packet, rng, drops);
    }

    #[inline(always)]
    fn dequeue<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        while let Some((mut packet, low, step, credit)) = self.select() {
            let mut marked = false;
            if !self.params.drop_enqueue && self.must_drop(&mut packet, low, rng, &mut marked) {
                drops.drop(now, packet, DropCause::Forced);
                continue;
            }
            if step {
                self.step(now, &mut packet, &mut marked);
            }
            self.stats.marks += u64::from(marked);
            self.credit += credit;
            return Dequeued::Packet(packet);
        }
        self.reset_credit();
        Dequeued::Empty
    }

    #[inline]
    fn next_timer(&self) -> Instant {
        self.next_update
    }

    fn on_timer(&mut self, now: Instant) {
        let qdelay = self.delay(now);
        let gap =
            |a: Duration, b: Duration| a.as_nanos().cast_signed() - b.as_nanos().cast_signed();
        let delta = gap(qdelay, self.params.target)
            .saturating_mul(self.alpha)
            .saturating_add(gap(qdelay, self.last_qdelay).saturating_mul(self.beta));
        self.last_qdelay = qdelay;
        self.next_update = now + self.params.tupdate;
        if self.held {
            return;
        }
        // Rounds towards zero, as Linux does for either sign.
        let prob = i64::from(self.prob) + delta / 64;
        let top = if self.params.drop_on_overload {
            u32::MAX
        } else {
            u32::MAX / self.params.coupling_factor
        };
        self.prob = num::low_u32(prob.clamp(0, i64::from(top)).cast_unsigned());
    }

    #[inline]
    fn len(&self) -> usize {
        self.classic.len() + self.low.len()
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
        gauges.probability = self.base_probability();
        gauges.marks = self.stats.marks;
        gauges.head_age = self.delay(now);
    }

    fn knobs(&self) -> KnobSet {
        KnobSet {
            base_probability: true,
            ..KnobSet::LIMIT
        }
    }

    /// Setting `base_probability` stops the PI law until `release`.
    fn set_knobs(&mut self, knobs: &Knobs) {
        if let Some(limit) = knobs.limit_packets {
            self.params.limit = limit;
        }
        if knobs.release {
            self.held = false;
        }
        if let Some(p) = knobs.base_probability {
            self.prob = num::whole_u32(p.clamp(0.0, 1.0) * f64::from(u32::MAX));
            self.held = true;
        }
    }
}

impl<P: Packet> FastPath<P> for DualPi2<P> {
    #[inline(always)]
    fn enqueue_with<D: Drops<P>>(
        &mut self,
        now: Instant,
        len: u32,
        make: impl FnOnce() -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) {
        let memory = u64::from(len) + PACKET_MEMORY;
        if self.len() >= self.params.limit as usize || self.memory + memory > self.memory_limit {
            drops.drop(now, make(), DropCause::Overflow);
        } else if self.params.drop_enqueue {
            self.judge(now, make(), rng, drops);
        } else {
            let packet = make();
            let low = self.is_low(&packet);
            self.push(now, packet, low);
        }
    }

    #[inline(always)]
    fn offer_run<D: Drops<P>>(
        &mut self,
        now: Instant,
        len: u32,
        count: u32,
        make: impl Fn(u32) -> P,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Option<Backlog> {
        offer_each(self, now, len, count, make, rng, drops)
    }
}

#[cfg(test)]
mod tests;
