//! quell's own control of a shaper's rate, for a line of unknown rate. Minimum rate, maximum rate
//! and reflectors are optional.
//!
//! - **Delay**: the delay of an answer is its one-way delay (its round trip, if the reflector gives
//!   no timestamps) minus the smallest recent one of its reflector. It is limited to the excess of
//!   the round trip over the smallest recent round trip, because clocks drift. The delay of the
//!   line is the smallest of three values: the smaller of the last two delays, the last delay of
//!   another reflector, and the largest delay that at least a third of the reflectors heard within
//!   3 s reach. So a single late answer has no effect, and neither has one lying reflector among
//!   several.
//! - **Capacity**: while the modem holds a queue, its output is the line's capacity. A shaper
//!   behind the modem measures this as the rate of all arrivals, including those that it drops. If
//!   drops did not count, a flood that does not slow down would lower the estimate, and with it the
//!   rate, again and again. A shaper before the modem divides its own output rate by 1 + the growth
//!   of the delay (s/s). The loop keeps a moving average of the capacity and its mean deviation.
//! - **Back off**: while the delay is above the target, the rate is below the capacity by as much
//!   as empties the modem's queue within `drain`. If the delay then falls faster than a queue can
//!   drain, its cause was not a queue, and the previous rate and capacity are restored.
//! - **Jitter**: answers over a path whose delay varies are late without a queue. So an allowance
//!   computed from the differences between neighbouring answers is added to the target (see
//!   `jitter.rs`), and a smallest delay counts only if two answers in a row were about as fast.
//! - **Longer path**: if the delay, or that of two thirds of the sources, stays about the same
//!   although at most half as much is sent as before and a queue would have emptied, the path has
//!   become longer. The previous rate and capacity are restored, and this delay is subtracted until
//!   the smallest delays have adapted.
//! - **Overload**: traffic that does not slow down keeps the modem's queue full, whatever a shaper
//!   behind the modem drops. If the shaper has dropped a large share of the arrivals for some
//!   seconds, in which the delay was always above the target, it lets all arrivals pass (a hold)
//!   until the delay has ended, for at most 20 s. Each further hold is twice as long, up to 80 s.
//! - **Probe up**: while the delay is within the target and the shaper is used or has a queue, the
//!   rate grows; faster the more the capacity varied, and the longer there was no delay.
//! - **Start**: the line may already be full. From the first answer on, the rate is the minimum
//!   until delays have stopped falling, so that the smallest delay is that of an empty line.
//! - **Traffic**: after a second without answers, or without reflectors, the delay is read from the
//!   TCP traffic's own timestamps, and remote hosts (heard within a second) replace reflectors. The
//!   operator did not choose these hosts, so the rate stays above a tenth of the highest capacity
//!   of the last minutes. While only one of several reflectors answers, it counts as one more host.
//! - **Silence**: if probes are not answered for a moment, the line is stalled, so a shaper before
//!   the modem lowers its rate to the share `least` of it. What follows after a second without
//!   answers and timestamps depends on how long delays have been measured under load. If for less
//!   than `MIN_LOADED_TIME`, the rate grows fast while the shaper is used. Otherwise the rate is at
//!   most the capacity minus its mean deviation, or the mean of this difference over the last
//!   minutes if that is larger. It then rises to this mean, because the last delays may have been
//!   false, and grows slowly while the shaper is used.
//!
//! Source: quell. The constants were chosen on generated lines of seeds 1 to 8
//! (docs/lab/autorate.md, tools/pace.py), those of overload by quell-sim's `liars --floods`.

mod delays;
mod jitter;
mod lasting;
mod overload;
mod params;

use std::any::Any;

use crate::rate::Rate;
use crate::time::{Duration, Instant, MS, SEC};
pub use delays::Base;
use delays::{AGREE, AGREE_TRAFFIC, BASE, Beginning, Delays, Evidence, Path};
use jitter::Jitter;
use lasting::{Before, Lasting};
use overload::Overload;
pub use params::{DOWN, Law, Params, UP};

use super::{Control, Delay, Echo, SubQueue};
use crate::{ControlledKnobs, Gauges, KnobSet, Knobs, Rng};

/// Time between two readings of the counters.
const TICK: Duration = Duration::from_millis(50);
/// Readings over which rates and the growth of the delay are measured: 200 ms.
const SPAN: usize = 4;
/// Time without an answer after which the reflectors count as lost.
const LOST_AFTER: Duration = SEC;
/// An answer whose round trip exceeds the smallest by this does not count for the jitter.
const MAX_JITTER_EXCESS: Duration = Duration::from_secs(2);
/// Unit of a reflector's timestamps.
const TIMESTAMP_UNIT: Duration = MS;
/// The shaper is used if it sends more than this share of its rate, or if more than 3000 bytes
/// wait.
const USED_SHARE: f64 = 0.85;
/// Bits of a full packet. The target includes the transmission time of 1.5 full packets.
const PACKET_BITS: f64 = 1514.0 * 8.0;
/// Lower bound of the rate, bit/s, at which a full packet takes 121 ms.
const FLOOR: f64 = 100_000.0;
/// Upper bound of the rate, bit/s: growth without end would make the estimates infinite.
const CEILING: f64 = 1e12;
/// Without reflectors and `min` the rate stays above this share of the highest capacity.
const PEAK_SHARE: f64 = 0.1;
/// Time constant with which the highest capacity decays. It is long because at a low rate only a
/// low capacity can be measured: with a fast decay, false delays that last would lower the bound of
/// `PEAK_SHARE`, too.
const MEMORY: Duration = Duration::from_secs(300);
/// Time constant with which, after a second of silence, the rate rises to the mean of the last
/// minutes ([`Pace::usual_capacity`]).
const RETURN_TIME: Duration = Duration::from_secs(5);

/// The rate at which all arrivals pass, as a share of the capacity. It is above 1.5 because CAKE
/// with `ingress`, once it has dropped more than its rate, sends at two thirds of its rate for a
/// long time (`failsafe_next_packet` in Linux's sch_cake.c).
const PASS_ALL_SHARE: f64 = 1.6;

/// The shaper is loaded if it sends more than this share of its rate, or if more than 3000 bytes
/// wait. A small stream makes the rate grow until it uses only `USED_SHARE` of it, so this share is
/// larger. A rate seen without load is not the line's capacity.
const LOADED_SHARE: f64 = 0.9;
/// Once no delays are measured any more, the estimate of the capacity bounds the rate only if
/// delays were measured with load for this long. Only delays that began under load count: later the
/// lowered rate turns a small stream into a load.
const MIN_LOADED_TIME: Duration = Duration::from_secs(10);
/// Growth of a rate that the estimate bounds, per second while the shaper is used: the estimate may
/// be wrong.
const BLIND_GROWTH: f64 = 0.02;

/// Counters and delay at a tick.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    now: Instant,
    /// Bytes that left.
    departed: u64,
    /// Bytes that left, were dropped, or are queued.
    arrived: u64,
    delay: Duration,
}

impl Reading {
    fn of(gauges: &Gauges, delay: Duration) -> Self {
        let departed = gauges.departed_bytes;
        Self {
            now: gauges.now,
            departed,
            arrived: departed + gauges.dropped_bytes + gauges.backlog_bytes,
            delay,
        }
    }
}

/// The controller of one shaper's rate.
#[derive(Clone, Debug)]
pub struct Pace {
    ingress: bool,
    nopassive: bool,
    law: Law,
    /// Rate of the shaper, bit/s.
    rate: f64,
    /// [`Params::min`], bit/s.
    min: Option<f64>,
    /// Upper bound of the rate, bit/s.
    max: f64,
    /// One-way delay and round trip of each reflector.
    paths: Vec<Option<(Path, Path)>>,
    delays: Delays,
    jitter: Jitter,
    /// Highest capacity, decaying with time constant [`MEMORY`], bit/s.
    peak: f64,
    /// Mean of [`Self::cautious_capacity`] over `loaded_time`, bit/s.
    usual_capacity: f64,
    /// Time in which delays were measured with load, at most [`MEMORY`].
    loaded_time: Duration,
    /// Whether the last delay came from the traffic, or from the only reflector of several that
    /// still answers, which counts like a host of the traffic.
    from_traffic: bool,
    /// Time of the last answer to a probe; 0 before the first.
    last_answer_at: Instant,
    /// Moving average of the time between two answers, ns; of each, at most [`LOST_AFTER`] counts.
    answer_gap: f64,
    /// Time of the last delay, from an answer or from the traffic; 0 before the first.
    last_delay_at: Instant,
    /// Moving average of the time between two delays, ns, without those of [`LOST_AFTER`] or more.
    delay_gap: f64,
    /// Estimated capacity of the line, bit/s; 0 before the first delay above the target.
    capacity: f64,
    /// Mean deviation of the capacity, bit/s.
    deviation: f64,
    /// Time at which the shaper was last loaded.
    last_loaded_at: Instant,
    /// Whether the shaper was loaded within the second before the last delay above the target
    /// began.
    began_loaded: bool,
    /// The last readings.
    readings: [Reading; SPAN],
    /// Index of the oldest reading.
    oldest: usize,
    /// Time at which the delay was last above the target.
    congested_at: Instant,
    /// Set while the rate is lowered so that the modem's queue empties: the state before that.
    draining: Option<Before>,
    lasting: Option<Lasting>,
    overload: Overload,
    /// The rate to restore when the stalled line answers again.
    rate_before_stall: Option<f64>,
    beginning: Option<Beginning>,
}

impl Pace {
    /// Starts with [`Params::first`].
    pub fn new(params: &Params) -> Self {
        Self {
            rate: params.first().bps_f64(),
            law: params.law(),
            ingress: params.ingress,
            nopassive: params.nopassive,
            min: params.min.map(Rate::bps_f64),
            max: params.max.map_or(CEILING, Rate::bps_f64),
            paths: Vec::new(),
            delays: Delays::default(),
            jitter: Jitter::NONE,
            peak: 0.0,
            usual_capacity: 0.0,
            loaded_time: Duration::ZERO,
            from_traffic: false,
            last_answer_at: Instant::ZERO,
            answer_gap: 0.0,
            last_delay_at: Instant::ZERO,
            delay_gap: 0.0,
            capacity: 0.0,
            deviation: 0.0,
            last_loaded_at: Instant::ZERO,
            began_loaded: false,
            readings: [Reading::default(); SPAN],
            oldest: 0,
            congested_at: Instant::ZERO,
            draining: None,
            lasting: None,
            overload: Overload::NONE,
            rate_before_stall: None,
            beginning: None,
        }
    }

    /// The rate in force, bit/s.
    pub fn rate_bps(&self) -> f64 {
        self.rate
    }

    /// Estimated capacity of the line and its mean deviation, bit/s.
    pub fn estimate(&self) -> (f64, f64) {
        (self.capacity, self.deviation)
    }

    fn delay(&self) -> Duration {
        self.delays.delay(match self.from_traffic {
            true => AGREE_TRAFFIC,
            false => AGREE,
        })
    }

    /// Relative mean deviation of the capacity, 0 to 1.
    fn relative_deviation(&self) -> f64 {
        match self.capacity > 0.0 {
            true => (self.deviation / self.capacity).min(1.0),
            false => 0.0,
        }
    }

    /// Capacity less its mean deviation, at least half the capacity, bit/s.
    fn cautious_capacity(&self) -> f64 {
        self.capacity - self.deviation.min(self.capacity / 2.0)
    }

    /// Slack of the target and of `drain`, ns.
    fn slack(&self) -> f64 {
        self.law.slack.as_nanos() as f64 * self.relative_deviation()
    }

    /// Delay above which the line counts as full, ns.
    fn target(&self) -> f64 {
        let packets = 1.5 * PACKET_BITS / self.rate * SEC.as_nanos() as f64;
        (self.law.target + self.jitter.allowance()).as_nanos() as f64 + self.slack() + packets
    }

    /// Minimum rate, bit/s.
    fn minimum(&self) -> f64 {
        let least = match self.from_traffic {
            true => FLOOR.max(PEAK_SHARE * self.peak),
            false => FLOOR,
        };
        self.min.unwrap_or(least)
    }

    /// Bounds the rate; returns it as knobs.
    fn bounded(&mut self) -> Knobs {
        self.rate = self.rate.max(self.minimum()).min(self.max);
        Knobs {
            rate: Some(Rate::from_bps_f64(self.rate)),
            ..Knobs::KEEP
        }
    }

    /// Rate of arrivals at a shaper behind the modem, or of departures from one before it, since
    /// the oldest reading kept, bit/s. `None` if that is less than a tick ago.
    fn flow(&self, gauges: &Gauges) -> Option<f64> {
        let oldest = self.readings[self.oldest];
        let span = gauges.now.checked_since(oldest.now);
        let span = span.filter(|span| *span >= TICK)?;
        let read = Reading::of(gauges, Duration::ZERO);
        let bytes = match self.ingress {
            // A kernel's counters may be read at different instants, so the sum can fall.
            true => read.arrived.saturating_sub(oldest.arrived),
            false => read.departed - oldest.departed,
        };
        Some(bytes as f64 * 8.0 * SEC.as_nanos() as f64 / span.as_nanos() as f64)
    }

    /// A sample of the line's capacity since the oldest reading kept, bit/s. `None` if
    /// [`Self::flow`] is `None` or 0.
    fn capacity_sample(&self, gauges: &Gauges) -> Option<f64> {
        let flow = self.flow(gauges).filter(|flow| *flow > 0.0)?;
        if self.ingress {
            return Some(flow);
        }
        let oldest = self.readings[self.oldest];
        let span = (gauges.now - oldest.now).as_nanos() as f64;
        let growth = (self.delay().as_nanos() as f64 - oldest.delay.as_nanos() as f64) / span;
        Some(flow / (1.0 + growth).max(0.5))
    }

    /// Updates the start with a delay (see [`Beginning::is_over`]); returns whether it continues,
    /// so that the line's queue may still hold older packets.
    fn update_start(&mut self, now: Instant, source: u64, fall: Option<Duration>) -> bool {
        if self.last_delay_at == Instant::ZERO {
            self.beginning = Some(Beginning::new(now, self.rate));
            self.rate = FLOOR;
        }
        let Some(beginning) = &mut self.beginning else {
            return false;
        };
        if beginning.is_over(now, source, fall) {
            self.rate = beginning.rate;
            self.beginning = None;
        }
        self.beginning.is_some()
    }

    /// Raises the rate over a tick; `growth` is a share per second.
    fn grow(&mut self, growth: f64) {
        self.rate *= 1.0 + growth * TICK.as_nanos() as f64 / SEC.as_nanos() as f64;
    }

    /// Adds a sample to the capacity and its mean deviation.
    fn learn(&mut self, sample: f64) {
        if self.capacity == 0.0 {
            (self.capacity, self.deviation) = (sample, sample / 4.0);
            return;
        }
        // Samples overlap, since several answers arrive within the 200 ms of a sample.
        self.deviation += ((sample - self.capacity).abs() - self.deviation) / 16.0;
        self.capacity += (sample - self.capacity) / 4.0;
    }

    /// If the current delay is that of a longer path (see [`Lasting`]), restores the state before
    /// it and returns true.
    fn accept_longer_path(&mut self, now: Instant, gauges: &Gauges) -> bool {
        let (delay, flow) = (
            self.delay().as_nanos() as f64,
            self.flow(gauges).unwrap_or_default(),
        );
        let steady = self.delays.are_steady();
        let Some(lasting) = &mut self.lasting else {
            return false;
        };
        // After this time the smallest delays have adapted.
        if delay <= self.law.target.as_nanos() as f64 || now > lasting.before.since + 2 * BASE {
            self.lasting = None;
            return false;
        }
        let before = lasting.before;
        match lasting.is_not_a_queue(now, delay, flow, self.law.least, steady) {
            None => false,
            Some(false) => {
                *lasting = Lasting::new(before, now);
                self.delays.begin_window();
                false
            }
            Some(true) => {
                self.delays.accept(now);
                (self.lasting, self.draining) = (None, None);
                self.restore(&before);
                true
            }
        }
    }

    /// Returns to the state before a delay that was not a queue's.
    fn restore(&mut self, before: &Before) {
        (self.capacity, self.deviation) = (before.capacity, before.deviation);
        self.rate = self.rate.max(before.rate);
    }

    /// Whether at most one reflector was heard within [`AGREE`], and others before.
    fn is_lone(&self, now: Instant) -> bool {
        let known = self.paths.iter().flatten();
        let recent = known
            .clone()
            .filter(|(path, _)| now <= path.last_at() + AGREE);
        known.count() >= 2 && recent.count() < 2
    }

    /// Whether the shaper was loaded within the last second.
    fn was_loaded(&self, now: Instant) -> bool {
        now <= self.last_loaded_at + SEC
    }

    /// Reacts to a measured delay; `starting`: whether the start (see [`Beginning`]) continues.
    fn on_evidence(&mut self, evidence: Evidence, starting: bool, gauges: &Gauges) -> Knobs {
        let now = evidence.at;
        self.delays.add(evidence);
        let gap = now.saturating_since(self.last_delay_at).as_nanos() as f64;
        if self.last_delay_at > Instant::ZERO && gap < LOST_AFTER.as_nanos() as f64 {
            self.delay_gap += (gap - self.delay_gap) / 16.0;
        }
        self.last_delay_at = now;
        if starting {
            return self.bounded();
        }
        if let Some(rate) = self.rate_before_stall.take() {
            self.rate = rate;
        }
        if self.accept_longer_path(now, gauges) {
            return self.bounded();
        }
        let (delay, target) = (self.delay().as_nanos() as f64, self.target());
        if delay > target {
            self.congested_at = now;
            if let Some(sample) = self.capacity_sample(gauges) {
                let before = *self.draining.get_or_insert(Before {
                    since: now,
                    delay,
                    rate: self.rate,
                    flow: self.flow(gauges).unwrap_or_default(),
                    capacity: self.capacity,
                    deviation: self.deviation,
                });
                if self.lasting.is_none() {
                    // Later the lowered rate makes a small stream a load.
                    self.began_loaded = self.was_loaded(now);
                    self.lasting = Some(Lasting::new(before, now));
                    self.delays.begin_window();
                }
                self.learn(sample);
                let drain = self.law.drain.as_nanos() as f64 + self.slack();
                let over = (delay - target) / drain;
                let share = match self.overload.holds(now) {
                    true => PASS_ALL_SHARE,
                    false => (1.0 - over).max(self.law.least),
                };
                self.rate = self.capacity * share;
            }
        } else if let Some(before) = self.draining.take() {
            if before.was_not_a_queue(now, delay, self.law.least) {
                self.restore(&before);
            }
            let back = self.capacity * self.law.back;
            self.rate = match self.overload.holds(now) {
                true => back,
                false => self.rate.max(back),
            };
            self.overload.release(now);
        }
        self.bounded()
    }
}

impl Control for Pace {
    fn period(&self) -> Duration {
        TICK
    }

    fn initial(&mut self) -> Knobs {
        self.bounded()
    }

    fn decide(&mut self, gauges: &Gauges, _subs: &mut [SubQueue], _rng: &mut Rng) -> Knobs {
        let now = gauges.now;
        let last = self.readings[(self.oldest + SPAN - 1) % SPAN].now;
        let passed = now.saturating_since(last);
        let forgotten = passed.min(MEMORY).as_nanos() as f64 / MEMORY.as_nanos() as f64;
        self.peak = self.capacity.max(self.peak * (1.0 - forgotten));
        let oldest = self.readings[self.oldest];
        let span = now
            .saturating_since(oldest.now)
            .max(Duration::from_nanos(1))
            .as_nanos() as f64;
        let bits = (gauges.departed_bytes - oldest.departed) as f64 * 8.0;
        let (share, waits) = (
            bits * SEC.as_nanos() as f64 / span / self.rate,
            gauges.backlog_bytes > 3000,
        );
        let used = share > USED_SHARE || waits;
        if share > LOADED_SHARE || waits {
            self.last_loaded_at = now;
        }
        let delay = self.delay();
        let reading = Reading::of(gauges, delay);
        if self.ingress {
            let calm = delay.as_nanos() as f64 <= self.target();
            self.overload
                .count(now, reading.arrived, gauges.dropped_bytes, calm);
        }
        let holds = self.overload.holds(now);
        let arriving = holds.then(|| self.capacity_sample(gauges)).flatten();
        self.readings[self.oldest] = reading;
        self.oldest = (self.oldest + 1) % SPAN;
        let silence = now.saturating_since(self.last_delay_at);
        // The shaper must be loaded now, too: `began_loaded` may be of a delay long ago.
        if silence <= LOST_AFTER && self.capacity > 0.0 && self.was_loaded(now) && self.began_loaded
        {
            self.loaded_time = (self.loaded_time + passed).clamp(Duration::from_nanos(1), MEMORY);
            let share = passed.as_nanos() as f64 / self.loaded_time.as_nanos() as f64;
            self.usual_capacity +=
                (self.cautious_capacity() - self.usual_capacity) * share.min(1.0);
        }
        if self.last_delay_at > Instant::ZERO && silence > LOST_AFTER {
            if let Some(beginning) = self.beginning.take() {
                self.rate = beginning.rate;
            }
            if let Some(rate) = self.rate_before_stall.take() {
                self.rate = rate;
            }
            if let Some(arriving) = arriving {
                self.rate = PASS_ALL_SHARE * arriving;
            } else if self.loaded_time < MIN_LOADED_TIME {
                if used {
                    self.grow(self.law.most);
                }
            } else {
                // By now the lowered rate has emptied the modem's queue.
                self.rate = match self.draining.take() {
                    Some(_) => self.cautious_capacity(),
                    None => self
                        .rate
                        .min(self.cautious_capacity().max(self.usual_capacity)),
                };
                let share = passed.as_nanos() as f64 / RETURN_TIME.as_nanos() as f64;
                self.rate += (self.usual_capacity - self.rate).max(0.0) * share.min(1.0);
                if used {
                    self.grow(BLIND_GROWTH);
                    self.usual_capacity = self.usual_capacity.max(self.rate);
                }
                self.capacity = self.capacity.max(self.rate);
            }
        } else if self.last_delay_at > Instant::ZERO
            && silence.as_nanos() as f64 > (4.0 * self.delay_gap).max(2.0 * TICK.as_nanos() as f64)
        {
            let unanswered = self.last_delay_at == self.last_answer_at
                && silence.as_nanos() as f64 > 4.0 * self.answer_gap;
            if unanswered
                && !self.ingress
                && self.rate_before_stall.is_none()
                && self.beginning.is_none()
            {
                self.rate_before_stall = Some(self.rate);
                self.rate *= self.law.least;
            }
        } else if used && self.beginning.is_none() && delay.as_nanos() as f64 <= self.target() {
            let free = now.saturating_since(self.congested_at).as_secs_f64();
            let growth = match self.capacity > 0.0 {
                true => {
                    self.law.grow
                        + self.law.doubt * self.relative_deviation()
                        + self.law.gain * free
                }
                false => self.law.most,
            };
            self.grow(growth.min(self.law.most));
        }
        self.bounded()
    }

    fn on_probe(&mut self, probe: &Echo, gauges: &Gauges) -> Knobs {
        let (now, round_trip) = (probe.now, probe.round_trip);
        let delay = probe.one_way.unwrap_or(round_trip);
        let place = probe.reflector as usize;
        if self.paths.len() <= place {
            self.paths.resize(place + 1, None);
        }
        // The sum of both is less than the target, so that the delay which rare fast answers add
        // does not count as a queue. `more` is added because the base, the larger of two answers in
        // a row, is above the smallest of all by about as much.
        let (loose, more) = (self.law.target * 2 / 3, self.law.target / 6);
        let known = self.paths[place].is_some();
        let (path, trips) = self.paths[place]
            .get_or_insert_with(|| (Path::new(now, delay), Path::new(now, round_trip)));
        let fall = known.then(|| path.shortest.saturating_sub(delay));
        // A clock that is slewed adds up to 0.5 ms to the one-way delay each second, but not to the
        // round trip.
        let trip = trips.excess(now, round_trip, loose) + TIMESTAMP_UNIT;
        let excess = path.excess(now, delay, loose).min(trip) + more;
        let source = u64::from(probe.reflector);
        let starting = self.update_start(now, source, fall);
        if self.last_answer_at > Instant::ZERO {
            let gap = LOST_AFTER
                .min(now.saturating_since(self.last_answer_at))
                .as_nanos() as f64;
            self.answer_gap += (gap - self.answer_gap) / 16.0;
        }
        (self.last_answer_at, self.from_traffic) = (now, self.is_lone(now));
        let evidence = Evidence {
            source,
            at: now,
            excess,
        };
        // Without this limit, answers that a reflector holds back and then sends together would
        // dominate the jitter.
        if trip < MAX_JITTER_EXCESS {
            self.jitter.add(evidence);
        }
        self.on_evidence(evidence, starting, gauges)
    }

    fn uses_delay(&self) -> bool {
        !self.nopassive
    }

    fn on_delay(&mut self, delay: &Delay, gauges: &Gauges) -> Knobs {
        let now = gauges.now;
        let answered = self.last_answer_at > Instant::ZERO
            && now.saturating_since(self.last_answer_at) <= LOST_AFTER;
        if self.nopassive || (answered && !self.is_lone(now)) {
            return self.bounded();
        }
        let excess = if self.ingress { delay.down } else { delay.up };
        self.from_traffic = true;
        let starting = self.update_start(
            now,
            delay.source,
            (self.last_delay_at > Instant::ZERO).then_some(delay.base_decrease),
        );
        let evidence = Evidence {
            source: delay.source,
            at: now,
            excess,
        };
        self.jitter.add(evidence);
        self.on_evidence(evidence, starting, gauges)
    }

    fn knobs(&self) -> ControlledKnobs {
        ControlledKnobs::of_queue(KnobSet::RATE)
    }

    fn adopt(&mut self, knobs: &Knobs) {
        self.rate = knobs.rate.map_or(self.rate, Rate::bps_f64);
    }

    fn resume(&mut self, before: &dyn Control) -> Knobs {
        let Some(before) = (before as &dyn Any).downcast_ref::<Self>() else {
            return Knobs::KEEP;
        };
        if let Some(beginning) = &before.beginning {
            self.rate = beginning.rate;
        } else if before.last_delay_at > Instant::ZERO {
            // Not 0, so that no start follows: the smallest delays of the sources are known.
            let known = Instant::from_nanos(1);
            let paths = before.paths.iter();
            *self = Self {
                rate: before.rate_before_stall.unwrap_or(before.rate),
                paths: paths
                    .map(|path| path.map(|(path, trips)| (path.at_zero(), trips.at_zero())))
                    .collect(),
                jitter: before.jitter.at_zero(),
                peak: before.peak,
                usual_capacity: before.usual_capacity,
                loaded_time: before.loaded_time,
                from_traffic: before.from_traffic,
                last_answer_at: known.min(before.last_answer_at),
                answer_gap: before.answer_gap,
                last_delay_at: known,
                delay_gap: before.delay_gap,
                capacity: before.capacity,
                deviation: before.deviation,
                ..self.clone()
            };
        }
        self.bounded()
    }
}

#[cfg(test)]
mod tests;
