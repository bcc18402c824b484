//! Synthetic lines, generated from a seed; equal seeds give equal lines. They have the shape of
//! measured lines, not their numbers.

use std::ops::Range;

use quell_qdisc::time::{Duration, MS};

use quell_qdisc::{Rng, num};

use super::{OPPORTUNITY_BYTES, Trace};

/// Names of the lines; `-up` is the upstream direction.
pub const NAMES: [&str; 10] = [
    "lte",
    "lte-up",
    "starlink",
    "starlink-up",
    "docsis",
    "docsis-up",
    "powerline",
    "powerline-up",
    "sleepy",
    "sleepy-up",
];

/// The line `NAME` or `NAME:SEED` (default seed: 1); `None` if there is no such line.
///
/// - `lte`: a phone in a moving car, a minute long; 12 and 6 Mbit/s on average.
/// - `starlink`: a level for each 15 s between two handovers, and at each handover a pause of 20 to
///   80 ms (as Mohan et al., WWW 2024, and Tanveer et al., LEO-NET 2023, measured); 60 and 10
///   Mbit/s on average, two minutes long.
/// - `docsis`: a cable shared with neighbours, an evening compressed into two minutes: the rate
///   falls to 30 to 50 percent and recovers, and bursts of the neighbours reduce it further; 40 and
///   10 Mbit/s on average.
/// - `powerline`: noise in step with the mains' half-waves (50 Hz), appliances that take steps of
///   the rate, short impulses; two minutes long; 30 and 15 Mbit/s on average.
/// - `sleepy`: a constant rate with two pauses of two seconds in two minutes, in which the modem
///   sleeps; 20 and 5 Mbit/s on average.
pub(super) fn line(name: &str) -> Option<Trace> {
    let (kind, seed) = match name.split_once(':') {
        Some((kind, seed)) => (kind, seed.parse().ok()?),
        None => (name, 1),
    };
    let place = NAMES.iter().position(|known| *known == kind)?;
    let mut draws = Draws(Rng::new(seed, kind));
    const TWO_MINUTES: u64 = 120_000;
    let (rates, mean_mbps) = match place {
        0 => (draws.lte(60_000), 12),
        1 => (draws.lte(60_000), 6),
        2 => (draws.starlink(TWO_MINUTES), 60),
        3 => (draws.starlink(TWO_MINUTES), 10),
        4 => (draws.docsis(TWO_MINUTES), 40),
        5 => (draws.docsis(TWO_MINUTES), 10),
        6 => (draws.powerline(TWO_MINUTES), 30),
        7 => (draws.powerline(TWO_MINUTES), 15),
        8 => (draws.sleepy(TWO_MINUTES), 20),
        _ => (draws.sleepy(TWO_MINUTES), 5),
    };
    Some(offer(name, &rates, f64::from(mean_mbps) * 1e6))
}

/// A line with these relative rates, one per ms, scaled to the mean `mean_bps`.
fn offer(name: &str, rates: &[f64], mean_bps: f64) -> Trace {
    let length = rates.len() as u64;
    let wanted = mean_bps * length as f64 / 1000.0 / (8.0 * OPPORTUNITY_BYTES as f64);
    let scale = wanted / rates.iter().sum::<f64>();
    let mut credit = 0.0;
    let mut opportunities: Vec<Duration> = Vec::with_capacity(num::whole_usize(wanted) + 1);
    for (ms, rate) in (1..).zip(rates) {
        credit += rate * scale;
        while credit >= 1.0 {
            credit -= 1.0;
            opportunities.push(ms * MS);
        }
    }
    // The last opportunity ends the period.
    opportunities.push(length * MS);
    Trace {
        name: name.to_owned(),
        period: length * MS,
        opportunities,
    }
}

/// Random draws of a line; every length and time is in ms.
struct Draws(Rng);

impl Draws {
    /// A nearly normal number: the sum of twelve uniform ones, which needs simple arithmetic only.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.0.f64()).sum::<f64>() - 6.0
    }

    fn between(&mut self, range: Range<f64>) -> f64 {
        range.start + self.0.f64() * (range.end - range.start)
    }

    /// A step of 1 ms of an Ornstein-Uhlenbeck process around 0 with time constant `time` and
    /// standard deviation `deviation`.
    fn wander(&mut self, value: f64, time: f64, deviation: f64) -> f64 {
        value - value / time + deviation * libm::sqrt(2.0 / time) * self.normal()
    }

    /// A synthetic cellular link. Its rate is the exponential of a mean-reverting process (10 s for
    /// the terrain, 300 ms for fading), so that it is log-normal as in measured traces;
    /// occasionally a handover stops it for 50 to 300 ms.
    fn lte(&mut self, length: u64) -> Vec<f64> {
        let (mut terrain, mut fading) = (0.0, 0.0);
        let mut dark_until = 0;
        let mut rates = Vec::new();
        for ms in 1..=length {
            terrain += -terrain / 10_000.0 + 0.6 * libm::sqrt(2.0 / 10_000.0) * self.normal();
            fading += -fading / 300.0 + 0.35 * libm::sqrt(2.0 / 300.0) * self.normal();
            // A handover each 10 s on average.
            if ms >= dark_until && self.normal().abs() > 3.7 {
                dark_until = ms + 50 + num::whole_u64(self.normal().abs() * 80.0);
            }
            rates.push(match ms < dark_until {
                true => 0.0,
                false => libm::exp(terrain + fading),
            });
        }
        rates
    }

    fn starlink(&mut self, length: u64) -> Vec<f64> {
        const SLOT: u64 = 15_000;
        let first = num::whole_u64(self.between(0.0..SLOT as f64));
        let (mut level, mut fading, mut dark_until) = (0.0, 0.0, 0);
        let mut rates = Vec::new();
        for ms in 0..length {
            if ms == 0 || (ms + first).is_multiple_of(SLOT) {
                level = 0.35 * self.normal();
                dark_until = ms + num::whole_u64(self.between(20.0..80.0));
            }
            fading = self.wander(fading, 500.0, 0.12);
            rates.push(match ms < dark_until {
                true => 0.0,
                false => libm::exp(level + fading),
            });
        }
        rates
    }

    fn docsis(&mut self, length: u64) -> Vec<f64> {
        let depth = self.between(0.5..0.7);
        let (from, to) = (self.between(0.15..0.35), self.between(0.65..0.85));
        let mut bursts = 0.0;
        let mut rates = Vec::new();
        for ms in 0..length {
            let at = ms as f64 / length as f64;
            // The sag and the recovery take a tenth of the time each.
            let sag = ((at - from) / 0.1).clamp(0.0, 1.0) - ((at - to) / 0.1).clamp(0.0, 1.0);
            bursts = self.wander(bursts, 2000.0, 0.12);
            rates.push((1.0 - depth * sag) * (1.0 - bursts.max(0.0)).max(0.3));
        }
        rates
    }

    fn sleepy(&mut self, length: u64) -> Vec<f64> {
        let asleep = [0.3, 0.7].map(|at| num::whole_u64(at * length as f64));
        let rate = |ms| {
            f64::from(
                asleep
                    .iter()
                    .all(|from| !(*from..from + 2000).contains(&ms)),
            )
        };
        (0..length).map(rate).collect()
    }

    fn powerline(&mut self, length: u64) -> Vec<f64> {
        let mut level = 1.0;
        let (mut steps_at, mut dark_until) = (0, 0);
        let mut rates = Vec::new();
        for ms in 0..length {
            if ms >= steps_at {
                level = [1.0, 0.75, 0.5, 0.35][(self.0.u64() % 4) as usize];
                steps_at = ms + 500 + num::whole_u64(self.0.exp(8000.0));
            }
            // An impulse each 5 s on average.
            if ms >= dark_until && self.0.f64() < 0.0002 {
                dark_until = ms + num::whole_u64(self.between(30.0..120.0));
            }
            // Noise covers two of the ten ms of a half-wave.
            rates.push(match (ms < dark_until, ms % 10 < 2) {
                (true, _) => 0.0,
                (false, true) => 0.3 * level,
                (false, false) => level,
            });
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use quell_qdisc::time::SEC;

    use super::*;

    #[test]
    fn every_line_has_its_mean_and_another_seed_draws_another() {
        for (name, mean) in NAMES
            .iter()
            .zip([12e6, 6e6, 60e6, 10e6, 40e6, 10e6, 30e6, 15e6, 20e6, 5e6])
        {
            let first = line(name).unwrap();
            assert_eq!(
                first.opportunities,
                line(&format!("{name}:1")).unwrap().opportunities
            );
            let other = line(&format!("{name}:2")).unwrap();
            let drawn = !name.starts_with("sleepy");
            assert_eq!(first.opportunities != other.opportunities, drawn);
            for t in [first, other] {
                let off = t.mean_rate().bps_f64() / mean;
                assert!((0.999..1.001).contains(&off), "{name}: {}", t.mean_rate());
                assert!(t.opportunities.is_sorted());
                assert_eq!(t.opportunities.last(), Some(&t.period));
            }
        }
        assert_eq!(line("adsl"), None);
        assert_eq!(line("lte:x"), None);
    }

    #[test]
    fn a_handover_pauses_the_line_and_changes_its_rate_each_15_seconds() {
        let t = line("starlink:3").unwrap();
        let gaps = t.opportunities.windows(2).filter(|w| w[1] - w[0] > 15 * MS);
        let at: Vec<Duration> = gaps.map(|w| w[0]).collect();
        assert!((7..=9).contains(&at.len()), "{at:?}");
        for pair in at.windows(2) {
            let apart = pair[1] - pair[0];
            assert!(apart.abs_diff(15 * SEC) < SEC / 10, "{apart:?}");
        }
    }
}
