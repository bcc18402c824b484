//! cake-autorate: the control loop that many home routers run with CAKE on lines whose rate varies.
//!
//! Source: lynxthecat/cake-autorate, branch `master` of 2026 (`cake-autorate.sh`, `defaults.sh`),
//! as it behaves with `fping`. Each answer to a probe is half a round trip of delay in both
//! directions. Deviations:
//! - one instance sets one direction's rate; the program sets both, each as here;
//! - reflectors are neither replaced nor compared, and probes continue while the line is idle;
//! - rates are kept in bit/s, not in whole kbit/s.

use super::{Control, Echo, SubQueue};
use crate::rate::Rate;
use crate::time::{Duration, Instant, MS, SEC};
use crate::{ControlledKnobs, Gauges, KnobSet, Knobs, Rng};

/// Time between two readings of the bytes sent (`monitor_achieved_rates_interval_ms`).
const MONITOR: Duration = Duration::from_millis(200);
/// Answers in the window in which delay is detected (`bufferbloat_detection_window`).
const WINDOW: usize = 6;
/// Delay is detected if this many answers of the window are late (`bufferbloat_detection_thr`).
const LATE: usize = 3;
/// Baseline of a reflector before its first answer, ns.
const FIRST_BASELINE: f64 = 100.0 * MS.as_nanos() as f64;
/// Weight of a delay in the baseline's moving average if it is not below the baseline.
const RISE: f64 = 0.001;
/// Weight of a delay below the baseline.
const FALL: f64 = 0.9;
/// Above this load of the shaper its rate may rise (`high_load_thr`).
const HIGH_LOAD: f64 = 0.75;
/// Factors of the smallest and the largest reduction of the rate on delay.
const DOWN: (f64, f64) = (0.99, 0.75);
/// Largest growth of the rate at high load, as a share of it.
const UP: f64 = 0.04;
/// Factors of a step towards the base at low load: from above and from below.
const DECAY: (f64, f64) = (0.99, 1.01);
/// For this long after a reduction, the rate is neither reduced again nor raised at high load.
const REFRACTORY: Duration = Duration::from_millis(300);
/// Least time from a change of the rate to a step towards the base.
const DECAY_REFRACTORY: Duration = SEC;
/// Bits of a full packet on the wire. Its transmission time at the current rate is added to the
/// thresholds of the delay.
const PACKET_BITS: f64 = 1514.0 * 8.0;

/// Parameters of [`CakeAutorate`], with the program's defaults for the download.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Lowest rate (default 5 Mbit/s).
    pub min: Rate,
    /// Rate at low load (default 20 Mbit/s).
    pub base: Rate,
    /// Largest rate (default 80 Mbit/s).
    pub max: Rate,
    /// Delay above the baseline from which on an answer counts as late (`owd_delta_delay_thr_ms`,
    /// default 30 ms).
    pub delay: Duration,
    /// Below this mean delay the rate rises by the largest factor
    /// (`avg_owd_delta_max_adjust_up_thr_ms`, default 10 ms).
    pub up: Duration,
    /// Above this mean delay it falls by the largest factor
    /// (`avg_owd_delta_max_adjust_down_thr_ms`, default 60 ms).
    pub down: Duration,
    /// CAKE is behind the bottleneck and also counts packets that it drops (default off).
    pub ingress: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            min: Rate::from_mbit(5),
            base: Rate::from_mbit(20),
            max: Rate::from_mbit(80),
            delay: 30 * MS,
            up: 10 * MS,
            down: 60 * MS,
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
        if self.min > self.base || self.base > self.max {
            return Err("min, base and max must ascend");
        }
        if self.up > self.delay || self.delay > self.down {
            return Err("up, delay and down must ascend");
        }
        Ok(())
    }
}

/// The controller of the rate of one direction.
#[derive(Clone, Debug)]
pub struct CakeAutorate {
    params: Params,
    rate: f64,
    /// Baseline of each reflector, ns.
    baselines: Vec<f64>,
    /// Delays of the last answers above the baseline, ns.
    deltas: [f64; WINDOW],
    /// Whether each of these answers was late.
    late: [bool; WINDOW],
    /// Index in both that the next answer takes.
    place: usize,
    /// Time of the last reading, and the bytes sent until then.
    read: (Instant, u64),
    /// Rate of the bytes sent as a share of the shaper's rate.
    load: f64,
    /// Whether this reading of the load has not yet raised the rate.
    fresh: bool,
    /// Time of the last reduction.
    reduced: Instant,
    /// Time of the last change of any kind.
    decayed: Instant,
}

impl CakeAutorate {
    /// Starts at the base rate.
    pub fn new(params: Params) -> Self {
        Self {
            rate: params.base.bps_f64(),
            params,
            baselines: Vec::new(),
            deltas: [0.0; WINDOW],
            late: [false; WINDOW],
            place: 0,
            read: (Instant::ZERO, 0),
            load: 0.0,
            fresh: false,
            reduced: Instant::ZERO,
            decayed: Instant::ZERO,
        }
    }

    /// Adds an answer; returns its delay above the reflector's baseline, ns.
    fn delta(&mut self, probe: &Echo) -> f64 {
        let reflector = probe.reflector as usize;
        if self.baselines.len() <= reflector {
            self.baselines.resize(reflector + 1, FIRST_BASELINE);
        }
        let baseline = &mut self.baselines[reflector];
        let delay = probe.round_trip.as_nanos() as f64 / 2.0;
        let weight = if delay >= *baseline { RISE } else { FALL };
        *baseline += weight * (delay - *baseline);
        delay - *baseline
    }

    fn set(&mut self) -> Knobs {
        let (min, max) = (self.params.min.bps_f64(), self.params.max.bps_f64());
        self.rate = self.rate.clamp(min, max);
        Knobs {
            rate: Some(Rate::from_bps_f64(self.rate)),
            ..Knobs::KEEP
        }
    }
}

/// Position of a value between two bounds, 0..1; 1 if they do not ascend.
fn share(value: f64, from: f64, to: f64) -> f64 {
    match to > from {
        true => ((value - from) / (to - from)).clamp(0.0, 1.0),
        false => 1.0,
    }
}

impl Control for CakeAutorate {
    fn period(&self) -> Duration {
        MONITOR
    }

    fn initial(&mut self) -> Knobs {
        self.set()
    }

    fn decide(&mut self, gauges: &Gauges, _subs: &mut [SubQueue], _rng: &mut Rng) -> Knobs {
        let span = gauges
            .now
            .saturating_since(self.read.0)
            .max(Duration::from_nanos(1));
        let bits = (gauges.departed_bytes - self.read.1) as f64 * 8.0;
        self.load = bits * SEC.as_nanos() as f64 / span.as_nanos() as f64 / self.rate;
        (self.read, self.fresh) = ((gauges.now, gauges.departed_bytes), true);
        Knobs::KEEP
    }

    fn on_probe(&mut self, probe: &Echo, _gauges: &Gauges) -> Knobs {
        let now = probe.now;
        let packet = PACKET_BITS / self.rate * SEC.as_nanos() as f64;
        let over = |threshold: Duration| threshold.as_nanos() as f64 + packet;
        let (up, delay, down) = (
            over(self.params.up),
            over(self.params.delay),
            over(self.params.down),
        );
        let delta = self.delta(probe);
        (self.deltas[self.place], self.late[self.place]) = (delta, delta > delay);
        self.place = (self.place + 1) % WINDOW;
        let mean = self.deltas.iter().sum::<f64>() / WINDOW as f64;
        let rested = now > self.reduced + REFRACTORY;
        if self.late.iter().filter(|late| **late).count() >= LATE {
            if rested {
                self.rate *= DOWN.0 - share(mean, delay, down) * (DOWN.0 - DOWN.1);
                (self.reduced, self.decayed) = (now, now);
            }
        } else if self.load > HIGH_LOAD {
            if rested && self.fresh {
                self.rate *= 1.0 + UP * share(-mean, -delay, -up);
                (self.fresh, self.decayed) = (false, now);
            }
        } else if now > self.decayed + DECAY_REFRACTORY {
            let base = self.params.base.bps_f64();
            self.rate = match self.rate > base {
                true => (self.rate * DECAY.0).max(base),
                false => (self.rate * DECAY.1).min(base),
            };
            self.decayed = now;
        }
        self.set()
    }

    fn knobs(&self) -> ControlledKnobs {
        ControlledKnobs::of_queue(KnobSet::RATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the loop at this load, with 20 answers a second whose round trip is 20 ms and `extra`.
    /// Returns the rate in Mbit/s.
    fn run(c: &mut CakeAutorate, from: Instant, span: Duration, extra: Duration, load: f64) -> f64 {
        let mut rng = Rng::new(1, "test");
        let mut gauges = Gauges {
            departed_bytes: c.read.1,
            ..Gauges::default()
        };
        for step in 1..=span / (50 * MS) {
            let now = from + step * 50 * MS;
            gauges.now = now;
            gauges.departed_bytes += (c.rate * load / 8.0 / 20.0) as u64;
            if now.as_nanos().is_multiple_of(MONITOR.as_nanos()) {
                c.decide(&gauges, &mut [], &mut rng);
            }
            let probe = Echo {
                now,
                reflector: (step % 6) as u32,
                round_trip: 20 * MS + extra,
                one_way: None,
            };
            c.on_probe(&probe, &gauges);
        }
        c.rate / 1e6
    }

    #[test]
    fn under_high_load_without_delay_the_rate_grows_by_4_percent_each_200_ms() {
        let mut c = CakeAutorate::new(Params::default());
        run(&mut c, Instant::ZERO, 2 * SEC, Duration::ZERO, 0.5);
        let before = c.rate;
        let after = run(&mut c, Instant::from_secs(2), SEC, Duration::ZERO, 1.0) * 1e6;
        // Five readings of the load in a second, each used once: 1.04^5.
        assert!(
            (after / before - 1.2167).abs() < 0.01,
            "{before} -> {after}"
        );
        assert_eq!(
            run(&mut c, Instant::from_secs(3), 20 * SEC, Duration::ZERO, 1.0),
            80.0,
            "the maximum"
        );
    }

    #[test]
    fn late_answers_reduce_it_by_1_to_25_percent_each_300_ms() {
        let mut c = CakeAutorate::new(Params::default());
        run(&mut c, Instant::ZERO, 2 * SEC, Duration::ZERO, 0.5);
        // 140 ms of round trip are 70 ms of delay. At the third late answer the mean of six is
        // about 35 ms, little above 30 ms: the first reduction is small.
        let rate = run(&mut c, Instant::from_secs(2), 450 * MS, 140 * MS, 1.0);
        assert!(
            (rate - 20.0 * 0.99 * 0.9).abs() < 2.0,
            "one reduction while the mean still rises: {rate}"
        );
        let rate = run(&mut c, Instant::from_secs(3), 2 * SEC, 140 * MS, 1.0);
        assert_eq!(rate, 5.0, "a quarter each time, down to the minimum");
    }

    #[test]
    fn at_low_load_it_returns_to_its_base_by_1_percent_a_second() {
        let mut c = CakeAutorate::new(Params::default());
        run(&mut c, Instant::ZERO, 2 * SEC, Duration::ZERO, 0.5);
        c.rate = 40e6;
        let rate = run(&mut c, Instant::from_secs(2), 10 * SEC, Duration::ZERO, 0.2);
        assert!(
            (36.0..37.0).contains(&rate),
            "0.99^9 or 0.99^10 of 40: {rate}"
        );
        assert_eq!(
            run(
                &mut c,
                Instant::from_secs(12),
                100 * SEC,
                Duration::ZERO,
                0.2
            ),
            20.0
        );
    }

    #[test]
    fn without_answers_it_stays_where_it_is() {
        let mut c = CakeAutorate::new(Params::default());
        let mut rng = Rng::new(1, "test");
        let gauges = Gauges {
            now: Instant::from_secs(60),
            ..Gauges::default()
        };
        assert_eq!(c.decide(&gauges, &mut [], &mut rng), Knobs::KEEP);
    }
}
