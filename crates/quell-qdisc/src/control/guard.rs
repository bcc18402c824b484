//! A guard around a learned controller: it checks each decision, and a classic controller replaces
//! the learned one while that is not trusted.
//!
//! A decision is rejected if
//! - a reading is impossible, or a counter is smaller than before (`OutOfRange`);
//! - the reading is old, or its time did not advance (`Stale`);
//! - the decision took too long on the driver's clock (`Late`);
//! - the decision or the output of its network is not a number (`NotANumber`);
//! - for a quiet time the delay was too long and did not fall, and no decision became tighter
//!   (`Stuck`).
//!
//! The classic controller's knobs are set instead, in the same period. On a bad reading these are
//! the knobs that it starts with, since it reads the same gauges. The learned controller still
//! computes decisions if the readings allow it, and decides again after a quiet time without a
//! fault. Each `Stuck` of a trusted controller doubles the quiet time, up to 64 times as long.
//! Knobs outside the allowed ranges are clamped to them.
//!
//! A controller that decides on packets is guarded in the same way: each decision is checked when
//! it is made, and the readings once in every period.
//!
//! The quiet time is counted in periods, so that a wrong time in a reading cannot stretch it. A
//! driver that has a clock hands it in ([`Control::time_decisions`]); without one, decisions take
//! no time.

mod watch;

use std::fmt;

use watch::{Watch, tightness};

use super::learn::{Learner, Outbox, Update};
use super::{
    Arrival, Clock, Control, Decision, Departure, Explanation, LearnedState, Loss, SubQueue,
};
use crate::time::{Duration, Instant, MS, SEC};
use crate::{ControlledKnobs, Gauges, Knobs, Rng};

/// Time between two checks of a controller that decides on packets, if the classic one has no
/// period.
const CHECK_PERIOD: Duration = Duration::from_millis(15);

/// The quiet time doubles at most this many times.
pub(crate) const DOUBLINGS: u64 = 6;

/// Longest believable sojourn or time between two readings.
pub(crate) const LONGEST: Duration = Duration::from_secs(600);
/// Largest believable packet, bytes.
const LARGEST: u64 = 1 << 16;

/// Parameters of [`Guard`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Longest time that a decision may take (default: one period).
    pub deadline: Option<Duration>,
    /// Greatest age of a reading at its decision (default: one period).
    pub stale: Option<Duration>,
    /// Time without a fault after which the learned controller decides again (default 1 s).
    pub quiet: Duration,
    /// Delay above which decisions without effect for a quiet time are rejected (default 250 ms).
    pub delay: Duration,
    /// Least and greatest limit, packets (default 1 to 100000).
    pub limit: (u32, u32),
    /// Least and greatest drop probability (default 0 to 1).
    pub drop: (f64, f64),
    /// Least and greatest base probability (default 0 to 1).
    pub base_probability: (f64, f64),
    /// The classic controller decides; the learned one's proposals are only recorded (default off).
    pub dry_run: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            deadline: None,
            stale: None,
            quiet: SEC,
            delay: 250 * MS,
            limit: (1, 100_000),
            drop: (0.0, 1.0),
            base_probability: (0.0, 1.0),
            dry_run: false,
        }
    }
}

/// Why a decision is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A knob, or the network's output for it, is NaN or infinite.
    NotANumber,
    /// The decision took longer than the deadline, or did not come.
    Late,
    /// The reading is old, or its time did not advance.
    Stale,
    /// A reading is impossible.
    OutOfRange,
    /// For a quiet time the delay was too long and did not fall, and no decision became tighter.
    Stuck,
}

/// Counters of a guard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// All decisions, good or bad.
    pub decisions: u64,
    /// Decisions of the learned controller that were set.
    pub learned: u64,
    /// Decisions with a knob clamped to its range.
    pub clipped: u64,
    /// Decisions that are not a number.
    pub not_a_number: u64,
    /// Late decisions.
    pub late: u64,
    /// Old readings.
    pub stale: u64,
    /// Impossible readings.
    pub out_of_range: u64,
    /// Decisions without effect on a delay that is too long.
    pub stuck: u64,
    /// Times that the classic controller took over.
    pub fallbacks: u64,
    /// Times that the classic controller handed back.
    pub handed_back: u64,
    /// Decisions that the learned controller proposed, set or not.
    pub proposals: u64,
    /// Sum of the proposed values of the one knob that it sets: a probability, or a limit in
    /// packets.
    pub proposed_sum: f64,
    /// Sum of the values that were set in the same periods.
    pub set_sum: f64,
}

impl Stats {
    pub(crate) fn count(&mut self, fault: Fault) {
        *match fault {
            Fault::NotANumber => &mut self.not_a_number,
            Fault::Late => &mut self.late,
            Fault::Stale => &mut self.stale,
            Fault::OutOfRange => &mut self.out_of_range,
            Fault::Stuck => &mut self.stuck,
        } += 1;
    }
}

/// The guard of one queue.
#[derive(Clone)]
pub struct Guard {
    params: Params,
    learned: Box<dyn Control>,
    classic: Box<dyn Control>,
    clock: Option<Clock>,
    /// The last reading, good or bad.
    last: Option<Gauges>,
    /// Remaining quiet time.
    wait: Duration,
    /// Whether the learned controller decides.
    trusted: bool,
    /// Whether a decision on a packet had a fault since the last period.
    fault: bool,
    /// The knobs set last.
    set: Knobs,
    watch: Watch,
    /// The tightest decision on a packet since the last period.
    tightest: Option<f64>,
    /// Number of doublings of the quiet time.
    doublings: u64,
    stats: Stats,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("learned", &self.learned)
            .field("classic", &self.classic)
            .field("trusted", &self.trusted)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// Guards `learned`, with `classic` as the fallback.
    pub fn new(params: Params, learned: Box<dyn Control>, classic: Box<dyn Control>) -> Self {
        Self {
            trusted: !params.dry_run,
            params,
            learned,
            classic,
            clock: None,
            last: None,
            wait: Duration::ZERO,
            fault: false,
            set: Knobs::KEEP,
            watch: Watch::default(),
            tightest: None,
            doublings: 0,
            stats: Stats::default(),
        }
    }

    /// Counters so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// True while the learned controller decides.
    pub fn trusts(&self) -> bool {
        self.trusted
    }

    /// Time on the clock; without one, decisions take no time and readings are fresh.
    fn time(&self, now: Instant) -> Instant {
        self.clock.as_ref().map_or(now, |clock| clock())
    }

    /// Whether the learned controller decides every period, not on packets alone.
    fn is_periodic(&self) -> bool {
        !self.learned.decides_on_packets()
    }

    /// The fault of a decision of the learned controller, if there is one.
    fn bad_decision<'a>(
        &self,
        took: Duration,
        mut knobs: impl Iterator<Item = &'a Knobs>,
    ) -> Option<Fault> {
        if took > self.params.deadline.unwrap_or(self.period()) {
            return Some(Fault::Late);
        }
        let sound = knobs.all(finite) && !self.learned.is_broken();
        (!sound).then_some(Fault::NotANumber)
    }

    /// Returns `Stuck` if the decisions, of which `proposed` is the tightest, have no effect on the
    /// delay.
    fn check_effect(&mut self, gauges: &Gauges, proposed: Option<f64>) -> Option<Fault> {
        let in_force = match self.trusted {
            true => None,
            false => tightness(&self.set),
        };
        let bounds = (self.params.delay, self.params.quiet);
        if !self.watch.is_stuck(gauges, proposed?, in_force, bounds) {
            return None;
        }
        if self.trusted {
            self.doublings = (self.doublings + 1).min(DOUBLINGS);
        }
        Some(Fault::Stuck)
    }

    /// Takes note of a decision with or without a fault, and determines which controller is in
    /// charge after it.
    fn note(&mut self, fault: bool) {
        let period = self.period();
        self.wait = match fault {
            true => self.params.quiet.saturating_mul(1 << self.doublings),
            false if self.trusted => Duration::ZERO,
            false => self.wait.saturating_sub(period),
        };
        let trusted = !self.params.dry_run && !fault && self.wait == Duration::ZERO;
        if self.trusted && !trusted {
            self.stats.fallbacks += 1;
            self.classic.adopt(&self.set);
        }
        if !self.trusted && trusted {
            self.stats.handed_back += 1;
        }
        self.trusted = trusted;
    }

    /// The fault of a reading, if there is one.
    fn bad_reading(&self, g: &Gauges, requested: Instant) -> Option<Fault> {
        if requested.saturating_since(g.now) > self.params.stale.unwrap_or(self.period()) {
            return Some(Fault::Stale);
        }
        let share = |x: f64| (0.0..=1.0).contains(&x);
        let (packets, bytes) = (u64::from(g.backlog_packets), g.backlog_bytes);
        let sane = share(g.share)
            && share(g.probability)
            && (packets..=packets * LARGEST).contains(&bytes)
            && g.sojourn <= LONGEST
            && g.head_age <= LONGEST
            && g.departures <= g.arrivals;
        if !sane {
            return Some(Fault::OutOfRange);
        }
        let last = self.last.as_ref()?;
        if g.now <= last.now || g.now - last.now > LONGEST {
            return Some(Fault::Stale);
        }
        let counters = |g: &Gauges| {
            [
                g.arrivals,
                g.departures,
                g.departed_bytes,
                g.drops_overflow,
                g.drops_early,
                g.marks,
            ]
        };
        let back = counters(g)
            .iter()
            .zip(counters(last))
            .any(|(x, was)| *x < was);
        back.then_some(Fault::OutOfRange)
    }

    /// Clamps knobs to their ranges.
    fn clip(&self, knobs: Knobs) -> Knobs {
        let p = &self.params;
        Knobs {
            limit_packets: knobs.limit_packets.map(|x| x.clamp(p.limit.0, p.limit.1)),
            drop: knobs.drop.map(|x| x.clamp(p.drop.0, p.drop.1)),
            base_probability: knobs
                .base_probability
                .map(|x| x.clamp(p.base_probability.0, p.base_probability.1)),
            rate: knobs.rate,
            release: knobs.release,
        }
    }

    /// Counts a proposal of the learned controller and the knobs that were set.
    fn compare(&mut self, proposed: &Knobs, set: &Knobs) {
        self.stats.proposals += 1;
        self.stats.proposed_sum += value(proposed);
        self.stats.set_sum += value(set);
    }

    /// The classic controller's knobs; on a bad reading those that it starts with, since it reads
    /// the same gauges.
    fn classic_knobs(
        &mut self,
        readable: bool,
        gauges: &Gauges,
        subs: &mut [SubQueue],
        rng: &mut Rng,
    ) -> Knobs {
        for sub in subs.iter_mut() {
            sub.knobs = Knobs::KEEP;
        }
        match readable {
            true => self.classic.decide(gauges, subs, rng),
            false => self.classic.initial(),
        }
    }
}

fn finite(knobs: &Knobs) -> bool {
    let fine = |x: Option<f64>| x.is_none_or(f64::is_finite);
    fine(knobs.drop) && fine(knobs.base_probability)
}

/// The value of the one knob that a controller sets: a probability if there is one, else a limit.
fn value(knobs: &Knobs) -> f64 {
    let limit = knobs.limit_packets.map(f64::from);
    let turned = knobs.base_probability.or(knobs.drop).or(limit);
    turned.unwrap_or(0.0)
}

impl Control for Guard {
    fn period(&self) -> Duration {
        // A controller that decides on packets alone is checked as often as the classic one
        // decides.
        let own = self.is_periodic().then(|| self.learned.period());
        let periods = own.into_iter().chain([self.classic.period(), CHECK_PERIOD]);
        let known = periods.into_iter().find(|p| *p != Duration::MAX);
        known.unwrap_or(CHECK_PERIOD)
    }

    fn decide(&mut self, gauges: &Gauges, subs: &mut [SubQueue], rng: &mut Rng) -> Knobs {
        let requested = self.time(gauges.now);
        let bad = self.bad_reading(gauges, requested);
        self.last = Some(*gauges);
        let readable = bad.is_none();
        if !self.is_periodic() {
            let proposed = self.tightest.take();
            let bad = bad.or_else(|| self.check_effect(gauges, proposed));
            if let Some(fault) = bad {
                self.stats.count(fault);
            }
            let fault = std::mem::take(&mut self.fault) | bad.is_some();
            let was = self.trusted;
            self.note(fault);
            self.set = match self.trusted {
                // The knobs of single sub-queues stay as they are.
                true if was => Knobs::KEEP,
                true => self.learned.initial(),
                false => self.classic_knobs(readable, gauges, subs, rng),
            };
            match self.trusted {
                true if self.learned.period() != Duration::MAX => {
                    self.learned.decide(gauges, subs, rng);
                }
                true => {}
                false => self.learned.adopt(&self.set),
            }
            return self.set;
        }
        let proposal = readable.then(|| self.learned.decide(gauges, subs, rng));
        let took = self.time(gauges.now).saturating_since(requested);
        let fault = match &proposal {
            Some(knobs) => {
                let each = subs.iter().map(|sub| &sub.knobs);
                let all = || std::iter::once(knobs).chain(each.clone());
                let proposed = all().filter_map(tightness).reduce(f64::max);
                self.bad_decision(took, all())
                    .or_else(|| self.check_effect(gauges, proposed))
            }
            None => bad,
        };
        self.stats.decisions += 1;
        if let Some(fault) = fault {
            self.stats.count(fault);
        }
        self.note(fault.is_some());
        let set = match proposal {
            Some(knobs) if self.trusted => {
                let set = self.clip(knobs);
                let mut clipped = set != knobs;
                for sub in subs.iter_mut() {
                    let within = self.clip(sub.knobs);
                    clipped |= within != sub.knobs;
                    sub.knobs = within;
                }
                self.stats.learned += 1;
                self.stats.clipped += u64::from(clipped);
                set
            }
            _ => self.classic_knobs(readable, gauges, subs, rng),
        };
        if let (None, Some(knobs)) = (fault, &proposal) {
            self.compare(knobs, &set);
        }
        self.set = set;
        if !self.trusted {
            // It continues from the knobs in force, not from its own.
            self.learned.adopt(&set);
        }
        set
    }

    /// The learned controller's initial knobs; while it does not decide, the classic one's override
    /// them. A limit or drop probability that the classic one does not set keeps the learned one's
    /// value.
    fn initial(&mut self) -> Knobs {
        let learned = self.learned.initial();
        let sound = finite(&learned);
        let start = if sound {
            self.clip(learned)
        } else {
            Knobs::KEEP
        };
        self.set = match self.trusted && sound {
            true => start,
            false => {
                let classic = self.classic.initial();
                Knobs {
                    limit_packets: classic.limit_packets.or(start.limit_packets),
                    drop: classic.drop.or(start.drop),
                    base_probability: classic.base_probability,
                    rate: classic.rate,
                    release: classic.release,
                }
            }
        };
        self.set
    }

    fn reads_sub_queues(&self) -> bool {
        self.learned.reads_sub_queues() || self.classic.reads_sub_queues()
    }

    fn watches_packets(&self) -> bool {
        self.learned.watches_packets()
    }

    /// After a fault, the learned controller's decisions are no longer set; the next period sets
    /// the classic one's knobs.
    fn on_arrival(&mut self, arrival: &Arrival) -> Decision {
        let requested = self.time(arrival.now);
        let decision = self.learned.on_arrival(arrival);
        let Decision::Set(knobs) = decision else {
            return decision;
        };
        if knobs == Knobs::KEEP {
            return decision;
        }
        let took = self.time(arrival.now).saturating_since(requested);
        self.tightest = self
            .tightest
            .into_iter()
            .chain(tightness(&knobs))
            .reduce(f64::max);
        self.stats.decisions += 1;
        let fault = self.bad_decision(took, std::iter::once(&knobs));
        if let Some(fault) = fault {
            self.stats.count(fault);
            self.fault = true;
            self.note(true);
        }
        if !self.trusted {
            let classic = self.classic.initial();
            if fault.is_none() {
                self.compare(&knobs, &classic);
            }
            return Decision::Set(classic);
        }
        let set = self.clip(knobs);
        self.stats.learned += 1;
        self.stats.clipped += u64::from(set != knobs);
        self.compare(&knobs, &set);
        Decision::Set(set)
    }

    fn on_departure(&mut self, departure: &Departure) {
        self.learned.on_departure(departure);
    }

    fn on_drop(&mut self, loss: &Loss) {
        self.learned.on_drop(loss);
    }

    fn knobs(&self) -> ControlledKnobs {
        self.learned.knobs()
    }

    fn ask_outside(&mut self) -> bool {
        self.learned.ask_outside()
    }

    fn question(&self) -> &[f32] {
        self.learned.question()
    }

    fn answered(&mut self, sub_queue: Option<usize>, knobs: &Knobs) -> Decision {
        self.learned.answered(sub_queue, knobs)
    }

    fn explain(&self) -> Option<Explanation<'_>> {
        self.learned.explain()
    }

    fn learned(&self) -> Option<LearnedState> {
        self.learned.learned()
    }

    fn learner(&mut self) -> Option<Box<dyn Learner>> {
        self.learned.learner()
    }

    fn samples(&mut self) -> Option<&mut Outbox> {
        self.learned.samples()
    }

    fn install(&mut self, update: Update) {
        self.learned.install(update);
    }

    fn guard(&self) -> Option<&Stats> {
        Some(&self.stats)
    }

    fn time_decisions(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }
}

#[cfg(test)]
mod tests;
