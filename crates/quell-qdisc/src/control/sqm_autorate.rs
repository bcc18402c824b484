//! sqm-autorate, its Lua version: a control loop of CAKE's rate that remembers rates that caused no
//! delay.
//!
//! Source: sqm-autorate/sqm-autorate, `develop` of March 2026 (`lib/ratecontroller_ewma.lua`,
//! `lib/baseliner.lua`, `lib/settings.lua`). Its probes are ICMP timestamps in whole ms.
//! Deviations:
//! - one instance sets one direction's rate; the program sets both, each as here;
//! - reflectors are not reselected;
//! - a round trip without timestamps counts half in each direction, where the program would not
//!   count it as an answer.

use super::{Control, Echo, SubQueue};
use crate::num;
use crate::rate::Rate;
use crate::time::{Duration, Instant, MS, NEVER, SEC};
use crate::{ControlledKnobs, Gauges, KnobSet, Knobs, Rng};

/// Time between decisions (`tick_duration` and `min_change_interval`).
const TICK: Duration = Duration::from_millis(500);
/// Half-life of a reflector's baseline, ns.
const SLOW: f64 = 135.0 * SEC.as_nanos() as f64;
/// Half-life of a reflector's recent delay, ns.
const FAST: f64 = 0.4 * SEC.as_nanos() as f64;
/// A reflector that was silent for longer is treated as new.
const OUT_OF_DATE: Duration = Duration::from_secs(30);
/// Delay above the baseline beyond which an answer is ignored, ns.
const MAX_EXCESS: f64 = 5.0 * SEC.as_nanos() as f64;
/// Number of remembered rates (`speed_hist_size`).
const HISTORY: usize = 100;

/// Parameters of [`SqmAutorate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// The line's usual rate (default 10 Mbit/s).
    pub base: Rate,
    /// Lowest rate, percent of `base` (default 20).
    pub min: u32,
    /// The delay above which the rate falls (`delay_ms`, default 15 ms).
    pub delay: Duration,
    /// Above this load of the shaper its rate may rise (`high_load_level`, default 0.8).
    pub load: f64,
    /// CAKE is behind the bottleneck and also counts packets that it drops (default off).
    pub ingress: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            base: Rate::from_mbit(10),
            min: 20,
            delay: 15 * MS,
            load: 0.8,
            ingress: false,
        }
    }
}

impl Params {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.base < Rate::from_kbit(10) {
            return Err("base must be at least 10kbit");
        }
        if !(1..=80).contains(&self.min) {
            return Err("min must be 1 to 80 percent");
        }
        Ok(())
    }

    fn least(&self) -> f64 {
        self.base.bps_f64() * f64::from(self.min) / 100.0
    }
}

/// State of a reflector.
#[derive(Clone, Copy, Debug)]
struct Reflector {
    /// Slow moving average of its delay, ns; at most `recent`.
    baseline: f64,
    /// Fast moving average of its delay, ns.
    recent: f64,
    /// Time of the last answer; `NEVER` before the first one and after one that was ignored.
    last: Instant,
}

/// The controller of the rate of one direction.
#[derive(Clone, Debug)]
pub struct SqmAutorate {
    params: Params,
    rate: f64,
    reflectors: Vec<Reflector>,
    /// Rates that caused no delay; empty before the first decision.
    safe: Vec<f64>,
    /// Index in `safe` that the next rate is written to.
    place: usize,
    /// Time of the last reading, and the bytes sent until then.
    read: (Instant, u64),
}

impl SqmAutorate {
    /// Starts at 0.6 of the base rate.
    pub fn new(params: Params) -> Self {
        Self {
            rate: params.base.bps_f64() * 0.6,
            params,
            reflectors: Vec::new(),
            safe: Vec::new(),
            place: 0,
            read: (Instant::ZERO, 0),
        }
    }

    fn knob(&self) -> Knobs {
        Knobs {
            rate: Some(Rate::from_bps_f64(self.rate)),
            ..Knobs::KEEP
        }
    }

    /// The delay above the baseline, ns: the third smallest of those of the reflectors that
    /// answered within two ticks; the smallest if fewer than three did; `None` if none did.
    fn delay(&self, now: Instant) -> Option<f64> {
        let recent = self
            .reflectors
            .iter()
            .filter(|r| r.last != NEVER && now - r.last < 2 * TICK);
        let mut delays: Vec<f64> = recent.map(|r| r.recent - r.baseline).collect();
        delays.sort_unstable_by(f64::total_cmp);
        delays.get(2).or(delays.first()).copied()
    }

    /// The rate after a tick in which the shaper had this load, as a share of its rate.
    fn next(&mut self, delay: f64, load: f64, rng: &mut Rng) -> f64 {
        let (rate, base, bound) = (
            self.rate,
            self.params.base.bps_f64(),
            self.params.delay.as_nanos() as f64,
        );
        if delay > bound {
            let any = self.safe[num::index(rng.u64() % (HISTORY as u64 - 1))];
            return (0.9 * rate * load).min(any);
        }
        if delay < bound && load > self.params.load {
            self.safe[self.place] = rate * load;
            self.place = (self.place + 1) % HISTORY;
            let most = self.safe.iter().copied().fold(0.0, f64::max);
            return rate * (1.0 + 0.1 * (1.0 - rate / most).max(0.0)) + base * 0.03;
        }
        rate
    }
}

impl Control for SqmAutorate {
    fn period(&self) -> Duration {
        TICK
    }

    fn initial(&mut self) -> Knobs {
        self.knob()
    }

    fn decide(&mut self, gauges: &Gauges, _subs: &mut [SubQueue], rng: &mut Rng) -> Knobs {
        if self.safe.is_empty() {
            let base = self.params.base.bps_f64();
            self.safe = (0..HISTORY)
                .map(|_| (rng.f64() * 0.2 + 0.75) * base)
                .collect();
        }
        let span = gauges
            .now
            .saturating_since(self.read.0)
            .max(Duration::from_nanos(1));
        let bits = (gauges.departed_bytes - self.read.1) as f64 * 8.0;
        let load = bits * SEC.as_nanos() as f64 / span.as_nanos() as f64 / self.rate;
        self.read = (gauges.now, gauges.departed_bytes);
        let next = match self.delay(gauges.now) {
            Some(delay) => self.next(delay, load, rng),
            None => self.params.least(),
        };
        self.rate = next.max(self.params.least());
        self.knob()
    }

    fn on_probe(&mut self, probe: &Echo, _gauges: &Gauges) -> Knobs {
        let delay = probe.one_way.unwrap_or(probe.round_trip / 2);
        let delay = (delay / MS * MS).as_nanos() as f64;
        let fresh = Reflector {
            baseline: delay,
            recent: delay,
            last: NEVER,
        };
        let place = probe.reflector as usize;
        if self.reflectors.len() <= place {
            self.reflectors.resize(place + 1, fresh);
        }
        let r = &mut self.reflectors[place];
        if r.last == NEVER || probe.now - r.last > OUT_OF_DATE {
            *r = fresh;
        }
        r.last = probe.now;
        if delay > r.baseline + MAX_EXCESS {
            r.last = NEVER;
            return Knobs::KEEP;
        }
        let towards = |average: &mut f64, half: f64| {
            let kept = libm::exp2(-((TICK).as_nanos() as f64) / half);
            *average = *average * kept + (1.0 - kept) * delay;
        };
        towards(&mut r.baseline, SLOW);
        towards(&mut r.recent, FAST);
        r.baseline = r.baseline.min(r.recent);
        Knobs::KEEP
    }

    fn knobs(&self) -> ControlledKnobs {
        ControlledKnobs::of_queue(KnobSet::RATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the loop for `ticks` with five reflectors whose delay is 20 ms and `extra`; with `None`
    /// they are silent. Returns the rate in Mbit/s.
    fn run(
        c: &mut SqmAutorate,
        from: Instant,
        ticks: u64,
        extra: Option<Duration>,
        load: f64,
    ) -> f64 {
        let mut rng = Rng::new(1, "test");
        let mut gauges = Gauges {
            departed_bytes: c.read.1,
            ..Gauges::default()
        };
        for tick in 1..=ticks {
            gauges.now = from + tick * TICK;
            gauges.departed_bytes += (c.rate * load / 16.0) as u64;
            for reflector in (0..5).filter(|_| extra.is_some()) {
                let probe = Echo {
                    now: gauges.now,
                    reflector,
                    round_trip: 40 * MS,
                    one_way: extra.map(|extra| 20 * MS + extra),
                };
                c.on_probe(&probe, &gauges);
            }
            c.decide(&gauges, &mut [], &mut rng);
        }
        c.rate / 1e6
    }

    #[test]
    fn it_begins_at_six_tenths_and_grows_while_loaded_without_delay() {
        let mut c = SqmAutorate::new(Params::default());
        assert_eq!(c.initial().rate, Some(Rate::from_mbit(6)));
        // The remembered rates reach 9.5 Mbit/s: 6 (1 + 0.1 (1 - 6/9.5)) + 0.3 = 6.52.
        let rate = run(&mut c, Instant::ZERO, 1, Some(Duration::ZERO), 1.0);
        assert!((rate - 6.52).abs() < 0.02, "{rate}");
        let rate = run(&mut c, Instant::ZERO + TICK, 1, Some(Duration::ZERO), 0.7);
        assert!(
            (rate - 6.52).abs() < 0.02,
            "a load of 0.7 is not high: {rate}"
        );
    }

    #[test]
    fn delay_reduces_the_rate_below_the_throughput_and_to_a_remembered_rate() {
        let mut c = SqmAutorate::new(Params::default());
        run(&mut c, Instant::ZERO, 40, Some(Duration::ZERO), 1.0);
        let before = c.rate / 1e6;
        let rate = run(&mut c, Instant::from_secs(20), 1, Some(60 * MS), 1.0);
        assert!(rate <= 0.9 * before, "{before} -> {rate}");
    }

    #[test]
    fn the_next_rate_is_that_of_the_source() {
        let mut c = SqmAutorate::new(Params::default());
        // The hundredth of the remembered rates is never drawn (`math.random` of 0 to 98).
        c.safe = vec![8e6; HISTORY];
        c.safe[HISTORY - 1] = 1e6;
        let mut rng = Rng::new(1, "test");
        let mut next = |delay: f64, load: f64| c.clone().next(delay, load, &mut rng);
        let bound = (15 * MS).as_nanos() as f64;
        for _ in 0..1000 {
            assert_eq!(next(bound + 1.0, 0.9), 0.9 * 6e6 * 0.9);
        }
        assert_eq!(
            next(bound + 1.0, 1.6),
            8e6,
            "not above a rate that was safe"
        );
        // 6 Mbit/s (1 + 0.1 (1 - 6/8)), and 3 % of the base.
        assert!((next(bound - 1.0, 1.0) - (6e6 * 1.025 + 0.3e6)).abs() < 1e-3);
        assert_eq!(next(bound - 1.0, 0.8), 6e6, "not above the high load");
        assert_eq!(next(bound, 1.0), 6e6, "neither above nor below");
        // Above all safe rates it grows only by 3 % of the base; the rate sent is remembered.
        c.rate = 9e6;
        assert_eq!(c.next(0.0, 0.9, &mut rng), 9.3e6);
        assert_eq!((c.safe[0], c.place), (9e6 * 0.9, 1));
    }

    #[test]
    fn without_an_answer_it_falls_to_its_minimum() {
        let mut c = SqmAutorate::new(Params::default());
        run(&mut c, Instant::ZERO, 10, Some(Duration::ZERO), 1.0);
        assert_eq!(run(&mut c, Instant::from_secs(10), 4, None, 1.0), 2.0);
    }
}
