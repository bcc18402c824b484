//! quell's own loop over a shaper's rate, for a line of unknown rate: minimum rate, maximum rate
//! and reflectors are optional.
//!
//! - **Delay**: an answer's round trip less its reflector's smallest recent one. The smaller of the
//!   last answers of two reflectors counts, so a late answer or a lying reflector alone has no
//!   effect; of a single reflector, the smaller of its last two. A third of the reflectors that
//!   answered within a second must show it.
//! - **Capacity**: while the modem holds a queue, its output is the line's capacity. A shaper
//!   behind the modem measures it as the arriving rate, with what it drops: else traffic that does
//!   not slow down, a flood, would make each rate the basis of a lower one. One before the modem
//!   divides its own rate by 1 + the growth of the delay, s/s. An average and its mean deviation
//!   are kept.
//! - **Back off**: with delay above the target, the rate is the capacity less what empties the
//!   modem's queue within `drain`. After a delay that fell faster than such a queue can drain, the
//!   rate is what it was before.
//! - **Probe up**: without delay, and while the shaper has a queue or is used, the rate grows;
//!   faster if the capacity varied, and the longer there was no delay.
//! - **Start**: the line may already be full. From the first answer on the rate is the minimum
//!   until delays have stopped falling, so that the smallest round trip is that of an empty line.
//! - **Traffic**: without answers for a second, or at all, the delay is read from the TCP traffic's
//!   own timestamps, and far hosts replace reflectors. These hosts were not chosen, so the rate
//!   stays above a tenth of the highest capacity, which is forgotten in minutes.
//! - **Silence**: if answers stop for a moment, the line is stalled, so a shaper before the modem
//!   pauses. After a second without answers and timestamps the rate is the capacity less its mean
//!   deviation. If that was more in the mean of the last minutes, the rate rises to it: the last
//!   evidence may have been a lie.
//!
//! Source: quell. The constants were chosen on generated lines of seeds 1 to 8 (docs/lab/autorate.md, tools/pace.py).

use super::{Control, Delay, Echo, SubQueue};
use crate::num;
use crate::{Gauges, KnobSet, Knobs, MS, Nanos, Rng, SEC};

/// Time between two readings of the counters.
const TICK: Nanos = 50 * MS;
/// Readings over which rates and the growth of the delay are taken: a fifth of a second.
const SPAN: usize = 4;
/// A reflector's base round trip is its smallest one of the last `BASE` to 2 `BASE`.
const BASE: Nanos = 10 * SEC;
/// Silence after which the reflectors count as lost.
const LOST: Nanos = SEC;
/// The start is over when no delay has fallen by `FALL` for `CALM`, shown by two answers, or after
/// `BEGINNING`.
const FALL: Nanos = MS;
const CALM: Nanos = 300 * MS;
const BEGINNING: Nanos = 20 * SEC;
/// Evidence of a source is compared with another's for `AGREE`; the number of sources that are
/// kept.
const AGREE: Nanos = SEC;
const SOURCES: usize = 16;
/// The shaper is used if it sends at least this share of its rate, or packets wait.
const USED: f64 = 0.85;
/// Bits of a full packet: the delay of 1.5 of them counts as no delay.
const PACKET_BITS: f64 = 1514.0 * 8.0;
/// Lower bound of the rate, bit/s: below it a full packet takes more than 100 ms.
const FLOOR: f64 = 100_000.0;
/// Without reflectors and `min` the rate stays above `SHARE` of the highest capacity, which decays
/// with the time constant `MEMORY`. The decay is slow since at a low rate only a low capacity can
/// be measured: otherwise a lasting lie would lower its own bound.
const SHARE: f64 = 0.1;
const MEMORY: Nanos = 300 * SEC;
/// Without evidence the rate rises to what it usually was with this time constant.
const RETURN: Nanos = 5 * SEC;

/// Default of the first rate, bit/s.
const START: u64 = 10_000_000;

/// Parameters of [`Pace`]. `None`: the value of [`DOWN`] if CAKE is behind the modem, else of
/// [`UP`]. Shares are in percent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    /// First rate, bit/s. None: 10 Mbit/s, or the rate that a shaper already has.
    pub start: Option<u64>,
    /// Least rate, bit/s. None: 100 kbit/s, and without reflectors a tenth of the highest capacity of the last minutes.
    pub min: Option<u64>,
    /// Largest rate, bit/s. None: no limit.
    pub max: Option<u64>,
    /// [`Law::target`].
    pub target: Option<Nanos>,
    /// [`Law::slack`].
    pub slack: Option<Nanos>,
    /// [`Law::drain`].
    pub drain: Option<Nanos>,
    /// [`Law::grow`].
    pub grow: Option<u32>,
    /// [`Law::gain`].
    pub gain: Option<u32>,
    /// [`Law::doubt`].
    pub doubt: Option<u32>,
    /// [`Law::most`].
    pub most: Option<u32>,
    /// [`Law::back`].
    pub back: Option<u32>,
    /// [`Law::least`].
    pub least: Option<u32>,
    /// CAKE is behind the modem: it counts packets that it drops, and arrivals are the modem's
    /// output (default off).
    pub ingress: bool,
    /// Without answers to probes, do not use the delay of the traffic's own segments (default off).
    pub nopassive: bool,
}

/// The constants of the loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// Delay above which the rate falls.
    pub target: Nanos,
    /// Added to `target` and `drain`, times the capacity's mean deviation as a share of the
    /// capacity.
    pub slack: Nanos,
    /// Time within which the modem's queue is emptied.
    pub drain: Nanos,
    /// Smallest growth of the rate per second.
    pub grow: f64,
    /// Growth added for each second without delay.
    pub gain: f64,
    /// Growth added, times the capacity's mean deviation as a share of the capacity.
    pub doubt: f64,
    /// Largest growth per second.
    pub most: f64,
    /// The rate once the modem's queue is empty, as a share of the capacity.
    pub back: f64,
    /// Smallest rate for any queue, as a share of the capacity; while the line is stalled, as a
    /// share of the rate.
    pub least: f64,
}

/// Constants behind the modem.
pub const DOWN: Law = Law {
    target: 3 * MS,
    slack: 5 * MS,
    drain: 16 * MS,
    grow: 0.04,
    gain: 0.56,
    doubt: 6.0,
    most: 2.0,
    back: 1.04,
    least: 0.47,
};

/// Constants before the modem.
pub const UP: Law = Law {
    target: 6 * MS,
    slack: 44 * MS,
    drain: 70 * MS,
    grow: 0.14,
    gain: 0.4,
    doubt: 5.5,
    most: 3.9,
    back: 1.03,
    least: 0.3,
};

impl Params {
    /// What is wrong with these parameters, if anything.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        let (min, max) = (self.min.unwrap_or(0), self.max.unwrap_or(u64::MAX));
        if min > max {
            return Err("min must not be larger than max");
        }
        if self.start.is_some_and(|start| start < min || start > max) {
            return Err("start must be between min and max");
        }
        if self.first().min(max) < num::whole_u64(FLOOR) {
            return Err("start and max must be at least 100kbit");
        }
        if self.drain.is_some_and(|drain| drain < MS) {
            return Err("drain must be at least 1ms");
        }
        Ok(())
    }

    /// The first rate where no shaper has one, bit/s.
    pub fn first(&self) -> u64 {
        let (min, max) = (self.min.unwrap_or(0), self.max.unwrap_or(u64::MAX));
        self.start.unwrap_or(START).max(min).min(max)
    }

    fn law(&self) -> Law {
        let usual = if self.ingress { DOWN } else { UP };
        let share = |own: Option<u32>, usual| own.map_or(usual, |own| f64::from(own) / 100.0);
        Law {
            target: self.target.unwrap_or(usual.target),
            slack: self.slack.unwrap_or(usual.slack),
            drain: self.drain.unwrap_or(usual.drain),
            grow: share(self.grow, usual.grow),
            gain: share(self.gain, usual.gain),
            doubt: share(self.doubt, usual.doubt),
            most: share(self.most, usual.most),
            back: share(self.back, usual.back),
            least: share(self.least, usual.least),
        }
    }
}

/// The least delay of a reflector, in the present part of the window and in the one before.
#[derive(Clone, Copy, Debug)]
pub struct Base {
    since: Nanos,
    now: Nanos,
    before: Nanos,
}

impl Base {
    /// From the first delay on.
    pub fn new(at: Nanos, delay: Nanos) -> Self {
        Self {
            since: at,
            now: delay,
            before: delay,
        }
    }

    /// The least delay.
    pub fn least(&self) -> Nanos {
        self.now.min(self.before)
    }

    /// Takes a delay in; what it is above the least of the last 10 to 20 s.
    pub fn excess(&mut self, at: Nanos, delay: Nanos) -> Nanos {
        if at - self.since > BASE {
            (self.before, self.now, self.since) = (self.now, delay, at);
        }
        self.now = self.now.min(delay);
        delay - self.least()
    }
}

/// The beginning, in which the line's queue empties.
#[derive(Clone, Debug)]
struct Beginning {
    /// The first answer.
    since: Nanos,
    /// The rate after it.
    rate: f64,
    sources: Vec<Falling>,
}

/// A source in the beginning: its first delay or the last that fell, its last one, and how many since then did not fall.
#[derive(Clone, Copy, Debug)]
struct Falling {
    source: u64,
    fell: Nanos,
    last: Nanos,
    calm: u32,
}

impl Beginning {
    /// Takes an answer in that fell by this much, if it is not its source's first; whether the queue is empty by what two sources
    /// show, or one that has no third beside it.
    fn is_over(&mut self, now: Nanos, source: u64, fall: Option<Nanos>) -> bool {
        let place = self.sources.iter().position(|of| of.source == source);
        let place = place.unwrap_or_else(|| {
            let first = Falling {
                source,
                fell: now,
                last: now,
                calm: 0,
            };
            self.sources.push(first);
            self.sources.len() - 1
        });
        let own = &mut self.sources[place];
        own.last = now;
        match fall {
            Some(fall) if fall < FALL => own.calm += 1,
            Some(_) => (own.fell, own.calm) = (now, 0),
            None => {}
        }
        self.sources.retain(|of| now <= of.last + AGREE);
        let calm = |of: &&Falling| of.calm >= 1 && now >= of.fell + CALM;
        let calm = self.sources.iter().filter(calm);
        calm.clone().count() >= 2
            || (self.sources.len() <= 2 && calm.clone().any(|of| of.calm >= 2))
            || now >= self.since + BEGINNING
    }
}

/// What a source has shown: when, and the delay above its base.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    source: u64,
    at: Nanos,
    excess: Nanos,
}

/// The last evidence, the one before it, and the last of each source.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    last: Evidence,
    before: Evidence,
    /// A place whose time is 0 is free.
    sources: [Evidence; SOURCES],
}

impl Heard {
    fn take(&mut self, evidence: Evidence) {
        let is_own = |of: &Evidence| of.at > 0 && of.source == evidence.source;
        let own = self.sources.iter().position(is_own);
        let oldest = || (0..SOURCES).min_by_key(|place| self.sources[*place].at);
        if let Some(place) = own.or_else(oldest) {
            self.sources[place] = evidence;
        }
        (self.before, self.last) = (self.last, evidence);
    }

    /// The delay that the last two show, the last of another source, and a third of the sources: of those that were heard lately.
    fn delay(&self) -> Nanos {
        let two = self.last.excess.min(self.before.excess);
        let lately = |of: &&Evidence| of.at > 0 && self.last.at < of.at + AGREE;
        let (mut shown, mut count, mut other) = ([0; SOURCES], 0, None::<Evidence>);
        for of in self.sources.iter().filter(lately) {
            shown[count] = of.excess;
            count += 1;
            let is_later = other.is_none_or(|other| of.at > other.at);
            if of.source != self.last.source && is_later {
                other = Some(*of);
            }
        }
        let shown = &mut shown[..count];
        shown.sort_unstable();
        let third = shown.len().checked_sub(count.div_ceil(3));
        let agreed = third.and_then(|place| shown.get(place));
        let other = other.map_or(two, |other| other.excess);
        two.min(other).min(agreed.copied().unwrap_or(two))
    }
}

/// What was read at a tick.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    now: Nanos,
    departed: u64,
    /// Bytes that left, were dropped, or are queued.
    arrived: u64,
    delay: Nanos,
}

impl Reading {
    fn of(gauges: &Gauges, delay: Nanos) -> Self {
        let departed = gauges.departed_bytes;
        Self {
            now: gauges.now,
            departed,
            arrived: departed + gauges.dropped_bytes + gauges.backlog_bytes,
            delay,
        }
    }
}

/// What was in force when a delay of so many ns showed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Before {
    since: Nanos,
    delay: f64,
    rate: f64,
    capacity: f64,
    deviation: f64,
}

impl Before {
    /// Whether the delay went faster than that of a queue, which shrinks by `1 - least` of the time that passes while the shaper sends
    /// `least` of the capacity. It was a late answer, a lie or an outage that is over.
    fn was_no_queue(&self, now: Nanos, delay: f64, least: f64) -> bool {
        self.delay - delay > (1.0 - least) * now.saturating_sub(self.since) as f64
    }
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Pace {
    ingress: bool,
    nopassive: bool,
    law: Law,
    rate: f64,
    min: Option<f64>,
    max: f64,
    bases: Vec<Option<Base>>,
    delays: Heard,
    /// The highest capacity, which is forgotten with time.
    peak: f64,
    /// The mean of [`Self::sure`] while there was evidence, and over how much time: at most [`MEMORY`].
    usual: f64,
    known: Nanos,
    /// It goes by the traffic.
    by_traffic: bool,
    /// The last answer to a probe.
    probed: Nanos,
    /// The last evidence, an answer or a delay of the traffic's own; the usual time between two.
    heard: Nanos,
    gap: f64,
    /// Capacity and its mean deviation, bit/s; 0 before the first delay.
    capacity: f64,
    deviation: f64,
    readings: [Reading; SPAN],
    place: usize,
    /// When delay was above the target last.
    congested: Nanos,
    /// The rate is below the capacity so that the modem's queue empties: what was before that.
    draining: Option<Before>,
    /// The rate that the silence interrupted.
    held: Option<f64>,
    beginning: Option<Beginning>,
}

impl Pace {
    /// Starts at its first rate.
    pub fn new(params: &Params) -> Self {
        Self {
            rate: params.first() as f64,
            law: params.law(),
            ingress: params.ingress,
            nopassive: params.nopassive,
            min: params.min.map(|bps| bps as f64),
            max: params.max.map_or(f64::INFINITY, |bps| bps as f64),
            bases: Vec::new(),
            delays: Heard::default(),
            peak: 0.0,
            usual: 0.0,
            known: 0,
            by_traffic: false,
            probed: 0,
            heard: 0,
            gap: 0.0,
            capacity: 0.0,
            deviation: 0.0,
            readings: [Reading::default(); SPAN],
            place: 0,
            congested: 0,
            draining: None,
            held: None,
            beginning: None,
        }
    }

    /// The rate in force, bit/s.
    pub fn rate_bps(&self) -> f64 {
        self.rate
    }

    /// The capacity that it takes the line to have, and the mean deviation of that, bit/s.
    pub fn estimate(&self) -> (f64, f64) {
        (self.capacity, self.deviation)
    }

    fn delay(&self) -> Nanos {
        self.delays.delay()
    }

    /// The capacity's mean deviation as a share of it.
    fn doubt(&self) -> f64 {
        match self.capacity > 0.0 {
            true => (self.deviation / self.capacity).min(1.0),
            false => 0.0,
        }
    }

    /// The capacity less its mean deviation, or half of it.
    fn sure(&self) -> f64 {
        self.capacity - self.deviation.min(self.capacity / 2.0)
    }

    fn slack(&self) -> f64 {
        self.law.slack as f64 * self.doubt()
    }

    /// The delay above which the line is taken for full, ns.
    fn target(&self) -> f64 {
        let packets = 1.5 * PACKET_BITS / self.rate * SEC as f64;
        self.law.target as f64 + self.slack() + packets
    }

    /// The least rate.
    fn least(&self) -> f64 {
        let least = match self.by_traffic {
            true => FLOOR.max(SHARE * self.peak),
            false => FLOOR,
        };
        self.min.unwrap_or(least)
    }

    fn knob(&mut self) -> Knobs {
        self.rate = self.rate.max(self.least()).min(self.max);
        Knobs {
            rate_bps: Some(num::whole_u64(self.rate)),
            ..Knobs::KEEP
        }
    }

    /// What the line carries, bit/s, judged by the readings since the oldest that is kept.
    fn sample(&self, gauges: &Gauges) -> Option<f64> {
        let oldest = self.readings[self.place];
        let span = gauges
            .now
            .checked_sub(oldest.now)
            .filter(|span| *span >= TICK)? as f64;
        let read = Reading::of(gauges, self.delay());
        let bits = |bytes: u64| bytes as f64 * 8.0 * SEC as f64 / span;
        let sample = match self.ingress {
            // The counters of a kernel's queue need not be of the same instant.
            true => bits(read.arrived.saturating_sub(oldest.arrived)),
            false => {
                let growth = (read.delay as f64 - oldest.delay as f64) / span;
                bits(read.departed - oldest.departed) / (1.0 + growth).max(0.5)
            }
        };
        (sample > 0.0).then_some(sample)
    }

    /// Whether the line's queue may still hold what came before us, after an answer that fell by this much, if it is not its source's first.
    fn begins(&mut self, now: Nanos, source: u64, fall: Option<Nanos>) -> bool {
        if self.heard == 0 {
            self.beginning = Some(Beginning {
                since: now,
                rate: self.rate,
                sources: Vec::new(),
            });
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

    /// Takes a sample of the capacity in.
    fn learn(&mut self, sample: f64) {
        if self.capacity == 0.0 {
            (self.capacity, self.deviation) = (sample, sample / 4.0);
            return;
        }
        // Several answers come in the time over which one sample is taken.
        self.deviation += ((sample - self.capacity).abs() - self.deviation) / 16.0;
        self.capacity += (sample - self.capacity) / 4.0;
    }

    /// Takes evidence in: what the line delays now.
    fn take(&mut self, evidence: Evidence, begins: bool, gauges: &Gauges) -> Knobs {
        let now = evidence.at;
        self.delays.take(evidence);
        let gap = now.saturating_sub(self.heard) as f64;
        if self.heard > 0 && gap < LOST as f64 {
            self.gap += (gap - self.gap) / 16.0;
        }
        self.heard = now;
        if begins {
            return self.knob();
        }
        if let Some(rate) = self.held.take() {
            self.rate = rate;
        }
        let (delay, target) = (self.delay() as f64, self.target());
        if delay > target {
            self.congested = now;
            if let Some(sample) = self.sample(gauges) {
                self.draining.get_or_insert(Before {
                    since: now,
                    delay,
                    rate: self.rate,
                    capacity: self.capacity,
                    deviation: self.deviation,
                });
                self.learn(sample);
                let drain = self.law.drain as f64 + self.slack();
                let over = (delay - target) / drain;
                self.rate = self.capacity * (1.0 - over).max(self.law.least);
            }
        } else if let Some(before) = self.draining.take() {
            if before.was_no_queue(now, delay, self.law.least) {
                (self.capacity, self.deviation) = (before.capacity, before.deviation);
                self.rate = self.rate.max(before.rate);
            }
            self.rate = self.rate.max(self.capacity * self.law.back);
        }
        self.knob()
    }
}

impl Control for Pace {
    fn period(&self) -> Nanos {
        TICK
    }

    fn initial(&mut self) -> Knobs {
        self.knob()
    }

    fn decide(&mut self, gauges: &Gauges, _subs: &mut [SubQueue], _rng: &mut Rng) -> Knobs {
        let now = gauges.now;
        let last = self.readings[(self.place + SPAN - 1) % SPAN].now;
        let passed = now.saturating_sub(last);
        let forgotten = passed.min(MEMORY) as f64 / MEMORY as f64;
        self.peak = self.capacity.max(self.peak * (1.0 - forgotten));
        let oldest = self.readings[self.place];
        let span = now.saturating_sub(oldest.now).max(1) as f64;
        let bits = (gauges.departed_bytes - oldest.departed) as f64 * 8.0;
        let used = bits * SEC as f64 / span > USED * self.rate || gauges.backlog_bytes > 3000;
        let delay = self.delay();
        self.readings[self.place] = Reading::of(gauges, delay);
        self.place = (self.place + 1) % SPAN;
        let silence = now.saturating_sub(self.heard);
        if silence <= LOST && self.capacity > 0.0 {
            self.known = (self.known + passed).clamp(1, MEMORY);
            let share = passed as f64 / self.known as f64;
            self.usual += (self.sure() - self.usual) * share.min(1.0);
        }
        if self.heard > 0 && silence > LOST {
            if let Some(beginning) = self.beginning.take() {
                self.rate = beginning.rate;
            }
            if let Some(rate) = self.held.take() {
                self.rate = rate;
            }
            if self.capacity > 0.0 {
                // What emptied the modem's queue has done so by now.
                self.rate = match self.draining.take() {
                    Some(_) => self.sure(),
                    None => self.rate.min(self.sure().max(self.usual)),
                };
                let share = passed as f64 / RETURN as f64;
                self.rate += (self.usual - self.rate).max(0.0) * share.min(1.0);
                self.capacity = self.capacity.max(self.rate);
            }
        } else if self.heard > 0 && silence as f64 > (4.0 * self.gap).max(2.0 * TICK as f64) {
            let asked = self.heard == self.probed;
            if asked && !self.ingress && self.held.is_none() && self.beginning.is_none() {
                self.held = Some(self.rate);
                self.rate *= self.law.least;
            }
        } else if used && self.beginning.is_none() && delay as f64 <= self.target() {
            let free = now.saturating_sub(self.congested) as f64 / SEC as f64;
            let growth = match self.capacity > 0.0 {
                true => self.law.grow + self.law.doubt * self.doubt() + self.law.gain * free,
                false => self.law.most,
            };
            self.rate *= 1.0 + growth.min(self.law.most) * TICK as f64 / SEC as f64;
        }
        self.knob()
    }

    fn on_probe(&mut self, probe: &Echo, gauges: &Gauges) -> Knobs {
        let (now, delay) = (probe.now, probe.one_way.unwrap_or(probe.round_trip));
        let place = probe.reflector as usize;
        if self.bases.len() <= place {
            self.bases.resize(place + 1, None);
        }
        let known = self.bases[place].is_some();
        let base = self.bases[place].get_or_insert_with(|| Base::new(now, delay));
        let fall = known.then(|| base.least().saturating_sub(delay));
        let excess = base.excess(now, delay);
        let source = u64::from(probe.reflector);
        let begins = self.begins(now, source, fall);
        (self.probed, self.by_traffic) = (now, false);
        let evidence = Evidence {
            source,
            at: now,
            excess,
        };
        self.take(evidence, begins, gauges)
    }

    fn hears_delay(&self) -> bool {
        !self.nopassive
    }

    fn on_delay(&mut self, delay: &Delay, gauges: &Gauges) -> Knobs {
        let now = gauges.now;
        if self.nopassive || (self.probed > 0 && now.saturating_sub(self.probed) <= LOST) {
            return self.knob();
        }
        let excess = if self.ingress { delay.down } else { delay.up };
        self.by_traffic = true;
        let begins = self.begins(now, delay.source, (self.heard > 0).then_some(delay.fell));
        let evidence = Evidence {
            source: delay.source,
            at: now,
            excess,
        };
        self.take(evidence, begins, gauges)
    }

    fn knobs(&self) -> (KnobSet, KnobSet) {
        (KnobSet::RATE, KnobSet::NONE)
    }

    fn adopt(&mut self, knobs: &Knobs) {
        self.rate = knobs.rate_bps.map_or(self.rate, |bps| bps as f64);
    }
}

#[cfg(test)]
mod tests;
