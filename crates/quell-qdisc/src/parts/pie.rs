//! PIE's law, which `pie`, `fq_pie` and the controller of a guarded queue share: RFC 8033 as in
//! Linux 7.2 (`include/net/pie.h`, `net/sched/sch_pie.c`). It is separate from the queue, so that
//! FQ-PIE runs it once per flow.
//!
//! Where Linux and the RFC differ, this follows Linux:
//! - the delay is the sojourn of the packet that left last (0 if that emptied the queue), not
//!   length over rate;
//! - the early exits use the current delay, not the old one;
//! - the burst allowance runs down with the time between departures;
//! - a delay above 250 ms adds 2 % per update;
//! - the probability of an idle queue decays by 1/64 per update, but not while anything is queued;
//! - nothing holds the probability at 1: it may rise to 256, the limit of 64 bits, where it is
//!   reset to 1.
//!
//! Deviation from Linux: delays are nanoseconds, not units of 64 ns (except in the rate estimator,
//! whose integers need them).

use crate::num;
use crate::time::{Duration, Instant, MS, SEC};
use crate::{MTU, Rng};

/// Probability 1: 2^56 - 1, so that sums of probabilities have room above it.
pub const MAX_PROB: u64 = u64::MAX >> 8;
/// Burst allowance at the start and after a restart: time without drops (RFC 8033, section 4.4).
pub const MAX_BURST: Duration = Duration::from_millis(150);
/// Time from creation to the first update (`HZ / 2` in `pie_init` and `fq_pie_init`).
pub const FIRST_UPDATE: Duration = Duration::from_millis(500);
/// Above this delay the probability grows by another 2 % per update.
const HIGH_DELAY: Duration = Duration::from_millis(250);
/// Bytes over which the rate estimator measures.
const QUEUE_THRESHOLD: u64 = 16_384;

/// Parameters of the law and, for [`Pie`](crate::pie::Pie), the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Delay to hold (default 15 ms).
    pub target: Duration,
    /// Time between updates of the probability (default 15 ms, 1 ms..10 s).
    pub tupdate: Duration,
    /// Limit in packets (default 1000, at least 1). Only [`Pie`](crate::pie::Pie) itself uses it.
    pub limit: u32,
    /// Weight of the delay's distance from target, in sixteenths of 1/s, as in `tc` (default 2:
    /// 0.125; 0..32).
    pub alpha: u32,
    /// Weight of the delay's change, in sixteenths of 1/s, as in `tc` (default 20: 1.25; 0..32).
    pub beta: u32,
    /// Mark ECN-capable packets while the probability is at most `ecn_prob` (default off).
    pub ecn: bool,
    /// Highest probability at which `ecn` marks, percent (default 10, 0..100).
    pub ecn_prob: u32,
    /// Scale the probability by packet size (default off).
    pub bytemode: bool,
    /// Delay from queue length and an estimated rate, as in RFC 8033, instead of from the last
    /// sojourn (default off).
    pub dq_rate_estimator: bool,
    /// Bytes of the largest packet: the law drops nothing while less than twice this is queued
    /// (default 1514).
    pub mtu: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            target: 15 * MS,
            tupdate: 15 * MS,
            limit: 1000,
            alpha: 2,
            beta: 20,
            ecn: false,
            ecn_prob: 10,
            bytemode: false,
            dq_rate_estimator: false,
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
        if self.target > 10 * SEC {
            return Err("target must be at most 10s");
        }
        if !(MS..=10 * SEC).contains(&self.tupdate) {
            return Err("tupdate must be between 1ms and 10s");
        }
        if self.limit == 0 {
            return Err("limit must be at least 1 packet");
        }
        if self.alpha > 32 {
            return Err("alpha must be at most 32 (sixteenths)");
        }
        if self.beta > 32 {
            return Err("beta must be at most 32 (sixteenths)");
        }
        if self.ecn_prob > 100 {
            return Err("ecn_prob must be at most 100 (percent)");
        }
        Ok(())
    }
}

/// The law's state; one per queue, or per flow of a fair queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Vars {
    /// Current delay.
    pub qdelay: Duration,
    /// Delay at the last update.
    pub qdelay_old: Duration,
    /// Remaining burst allowance.
    pub burst_time: Duration,
    /// Time of the last departure (rate estimator: the start of the measurement), if any.
    pub dq_tstamp: Option<Instant>,
    /// Drop probability, in units of 1/[`MAX_PROB`]; may exceed it.
    pub prob: u64,
    /// Sum of the probabilities since the last drop.
    pub accu_prob: u64,
    /// Rate estimator: bytes since `dq_tstamp`, while measuring.
    pub dq_count: Option<u64>,
    /// Rate estimator: bytes per 2^14 ns (256 times bytes per 64 ns); 0 before the first
    /// measurement.
    pub avg_dq_rate: u32,
}

impl Default for Vars {
    fn default() -> Self {
        Self {
            qdelay: Duration::ZERO,
            qdelay_old: Duration::ZERO,
            burst_time: MAX_BURST,
            dq_tstamp: None,
            prob: 0,
            accu_prob: 0,
            dq_count: None,
            avg_dq_rate: 0,
        }
    }
}

impl Vars {
    /// Whether to drop (or mark) an arrival of `len` bytes that finds `backlog` bytes queued.
    #[inline]
    pub fn drop_early(&mut self, params: &Params, backlog: u64, len: u32, rng: &mut Rng) -> bool {
        // RFC 8033, sections 4.4 and 5.1; Linux uses the current delay where the RFC has the old
        // one.
        if self.burst_time > Duration::ZERO
            || (self.qdelay < params.target / 2 && self.prob < MAX_PROB / 5)
            || backlog < 2 * u64::from(params.mtu)
        {
            return false;
        }
        let prob = if params.bytemode && len <= params.mtu {
            u64::from(len) * (self.prob / u64::from(params.mtu))
        } else {
            self.prob
        };
        // De-randomisation (RFC 8033, section 5.4).
        self.accu_prob = if prob == 0 {
            0
        } else {
            self.accu_prob.wrapping_add(prob)
        };
        if self.accu_prob < MAX_PROB / 100 * 85 {
            return false;
        }
        if self.accu_prob >= MAX_PROB / 2 * 17 {
            return true;
        }
        if rng.u64() >> 8 < prob {
            self.accu_prob = 0;
            return true;
        }
        false
    }

    /// Whether the probability is low enough for a mark instead of a drop (RFC 8033, section 5.1).
    #[inline]
    pub fn may_mark(&self, params: &Params) -> bool {
        params.ecn && self.prob <= MAX_PROB / 100 * u64::from(params.ecn_prob)
    }

    /// Notes the departure of a packet of `len` bytes that had entered at `enqueued` and left
    /// `backlog` bytes behind.
    #[inline]
    pub fn process_dequeue(
        &mut self,
        params: &Params,
        now: Instant,
        enqueued: Instant,
        len: u32,
        backlog: u64,
    ) {
        let elapsed = if params.dq_rate_estimator {
            self.estimate_rate(now, len, backlog)
        } else {
            self.qdelay = if backlog == 0 {
                Duration::ZERO
            } else {
                now - enqueued
            };
            let last = self.dq_tstamp.replace(now);
            last.map_or(Duration::ZERO, |last| now - last)
        };
        self.burst_time = self.burst_time.saturating_sub(elapsed);
    }

    /// RFC 8033, section 5.2: the rate over the last 16 kB, smoothed. Returns the duration of a
    /// measurement that ends here, otherwise 0.
    fn estimate_rate(&mut self, now: Instant, len: u32, backlog: u64) -> Duration {
        if backlog >= QUEUE_THRESHOLD && self.dq_count.is_none() {
            self.dq_tstamp = Some(now);
            self.dq_count = Some(0);
        }
        let (Some(count), Some(start)) = (self.dq_count, self.dq_tstamp) else {
            return Duration::ZERO;
        };
        let count = count + u64::from(len);
        self.dq_count = Some(count);
        let elapsed = now - start;
        if count < QUEUE_THRESHOLD || elapsed < Duration::from_nanos(64) {
            return Duration::ZERO;
        }
        let rate = num::low_u32((count << 8) / (elapsed.as_nanos() >> 6));
        self.avg_dq_rate = if self.avg_dq_rate == 0 {
            rate
        } else {
            self.avg_dq_rate - (self.avg_dq_rate >> 3) + (rate >> 3)
        };
        if backlog < QUEUE_THRESHOLD {
            self.dq_count = None;
        } else {
            self.dq_count = Some(0);
            self.dq_tstamp = Some(now);
        }
        elapsed
    }

    /// The periodic update (RFC 8033, section 4.2), with `backlog` bytes queued.
    pub fn calculate_probability(&mut self, params: &Params, backlog: u64) {
        let (qdelay, qdelay_old) = if params.dq_rate_estimator {
            let old = self.qdelay;
            self.qdelay_old = old;
            let ticks = (backlog << 8).checked_div(u64::from(self.avg_dq_rate));
            (Duration::from_nanos(ticks.unwrap_or(0) << 6), old)
        } else {
            (self.qdelay, self.qdelay_old)
        };
        // A delay of 0 with packets queued only means that the queue is very short: no decay then.
        let mut may_decay = qdelay != Duration::ZERO || backlog == 0;

        let shift = self.tuning();
        let scale = |weight: u32| {
            ((u64::from(weight) * (MAX_PROB / SEC.as_nanos())) >> 4 >> shift).cast_signed()
        };
        let gap = |a: Duration, b: Duration| a.as_nanos().wrapping_sub(b.as_nanos()).cast_signed();
        let mut delta = scale(params.alpha)
            .saturating_mul(gap(qdelay, params.target))
            .saturating_add(scale(params.beta).saturating_mul(gap(qdelay, qdelay_old)));

        // Steps of at most 2 % once the probability is high (RFC 8033, section 5.5).
        if delta > (MAX_PROB / 50).cast_signed() && self.prob >= MAX_PROB / 10 {
            delta = (MAX_PROB / 100 * 2).cast_signed();
        }
        if qdelay > HIGH_DELAY {
            delta = delta.saturating_add((MAX_PROB / 50).cast_signed());
        }
        if delta > 0 {
            let (sum, wrapped) = self.prob.overflowing_add(delta.cast_unsigned());
            self.prob = if wrapped { MAX_PROB } else { sum };
            may_decay &= !wrapped;
        } else {
            self.prob = self.prob.saturating_sub(delta.unsigned_abs());
        }
        if qdelay == Duration::ZERO && qdelay_old == Duration::ZERO && may_decay {
            self.prob -= self.prob / 64;
        }
        self.qdelay = qdelay;
        let quiet = self.qdelay < params.target / 2 && self.qdelay_old < params.target / 2;
        if quiet && self.prob == 0 && (!params.dq_rate_estimator || self.avg_dq_rate > 0) {
            self.restart();
        }
        if !params.dq_rate_estimator {
            self.qdelay_old = qdelay;
        }
    }

    /// Right shift of the weights, bits, while the probability is small (RFC 8033, section 4.2:
    /// seven steps).
    fn tuning(&self) -> u32 {
        if self.prob >= MAX_PROB / 10 {
            return 0;
        }
        let mut shift = 1;
        let mut power = 100;
        while power <= 1_000_000 && self.prob < MAX_PROB / power {
            shift += 2;
            power *= 10;
        }
        shift
    }

    /// Resets the burst allowance, the sum of the probabilities and the estimator. The delays,
    /// which are low, and the probability, which is 0, stay.
    fn restart(&mut self) {
        self.burst_time = MAX_BURST;
        self.dq_tstamp = None;
        self.accu_prob = 0;
        self.dq_count = None;
        self.avg_dq_rate = 0;
    }

    /// The probability as a number, at most 1.
    pub fn probability(&self) -> f64 {
        self.prob.min(MAX_PROB) as f64 / MAX_PROB as f64
    }
}

#[cfg(test)]
pub(crate) mod tests;
