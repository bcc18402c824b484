//! The rate of a link: fixed, by schedule, or chosen like mac80211's Minstrel.

use std::sync::Arc;

use quell_qdisc::time::{Duration, Instant};
use quell_qdisc::{Rng, num};

use crate::phy::Phy;
use crate::scenario::wifi::Rate;

/// Interval between updates of Minstrel's statistics (Linux's minstrel_ht: 20 times a second).
const UPDATE: Duration = Duration::from_millis(50);
/// Weight of the old estimate (minstrel_ht's EWMA_LEVEL: 96 of 128).
const KEEP: f64 = 0.75;
/// One PPDU in this many probes another rate.
const PROBE: u64 = 16;
/// A rate with a lower share of received MPDUs counts as having no throughput.
const MIN_SHARE: f64 = 0.1;

/// The rate control of one link.
#[derive(Clone, Debug)]
pub enum Control {
    /// A constant MCS.
    Fixed(u8),
    /// Steps (start, MCS), ascending, the first at 0.
    Schedule(Arc<[(Instant, u8)]>),
    /// Chosen by statistics.
    Minstrel(Box<Minstrel>),
}

impl Control {
    /// The rate control that the scenario sets.
    pub fn new(rate: &Rate, phy: Phy) -> Self {
        match rate {
            Rate::Fixed(mcs) => Control::Fixed(*mcs),
            Rate::Schedule(steps) => Control::Schedule(steps.clone()),
            Rate::Minstrel { streams } => {
                Control::Minstrel(Box::new(Minstrel::new(8 * streams, phy)))
            }
        }
    }

    /// The current rate, as MCS.
    #[inline]
    pub fn best(&self, now: Instant) -> u8 {
        match self {
            Control::Fixed(mcs) => *mcs,
            Control::Schedule(steps) => {
                let at = steps.partition_point(|s| s.0 <= now);
                steps[at.saturating_sub(1)].1
            }
            Control::Minstrel(m) => m.best,
        }
    }

    /// The MCS of the next PPDU after this many consecutive failures, and whether it is a probe.
    #[inline]
    pub fn pick(&mut self, now: Instant, failures: u32, rng: &mut Rng) -> (u8, bool) {
        match self {
            Control::Minstrel(m) => m.pick(now, failures, rng),
            other => (other.best(now), false),
        }
    }

    /// Records how many of the MPDUs `sent` were received (`good`).
    #[inline]
    pub fn learn(&mut self, mcs: u8, sent: u32, good: u32) {
        if let Control::Minstrel(m) = self {
            let r = &mut m.rates[usize::from(mcs)];
            r.sent += sent;
            r.good += good;
        }
    }
}

/// Statistics of one rate.
#[derive(Clone, Copy, Debug, Default)]
struct RateStats {
    /// The rate itself, bit/s.
    bps: f64,
    /// Smoothed share of MPDUs that were received; None: never used.
    share: Option<f64>,
    /// MPDUs sent and received since the last update.
    sent: u32,
    good: u32,
}

/// Statistics of every rate, and the rates chosen by them.
#[derive(Clone, Debug)]
pub struct Minstrel {
    rates: Vec<RateStats>,
    /// The rate of the highest throughput, and the most reliable one, as MCS.
    best: u8,
    most_reliable: u8,
    update_at: Instant,
    /// Number of PPDUs until the next probe.
    until_probe: u64,
}

impl Minstrel {
    fn new(count: u8, phy: Phy) -> Self {
        let rate = |mcs| RateStats {
            bps: phy.rate(mcs).bps_f64(),
            ..RateStats::default()
        };
        Self {
            rates: (0..count).map(rate).collect(),
            best: 0,
            most_reliable: 0,
            update_at: Instant::ZERO + UPDATE,
            until_probe: PROBE,
        }
    }

    fn pick(&mut self, now: Instant, failures: u32, rng: &mut Rng) -> (u8, bool) {
        if now >= self.update_at {
            self.update_at = now + UPDATE;
            self.update();
        }
        if failures > 1 {
            return (self.most_reliable, false);
        }
        self.until_probe -= 1;
        if self.until_probe == 0 {
            self.until_probe = PROBE;
            let other = num::low_u8(rng.below(self.rates.len() as u64));
            if self.rates[usize::from(other)].bps > self.throughput(self.best) {
                return (other, other != self.best);
            }
        }
        (self.best, false)
    }

    fn throughput(&self, mcs: u8) -> f64 {
        let r = &self.rates[usize::from(mcs)];
        let share = r.share.unwrap_or(0.0);
        if share < MIN_SHARE {
            0.0
        } else {
            r.bps * share
        }
    }

    fn update(&mut self) {
        for r in &mut self.rates {
            if r.sent > 0 {
                let share = f64::from(r.good) / f64::from(r.sent);
                r.share = Some(
                    r.share
                        .map_or(share, |old| KEEP * old + (1.0 - KEEP) * share),
                );
                (r.sent, r.good) = (0, 0);
            }
        }
        let all = 0..num::low_u8(self.rates.len() as u64);
        let by = |key: &dyn Fn(u8) -> f64| {
            all.clone()
                .fold(0, |a, b| if key(b) > key(a) { b } else { a })
        };
        self.best = by(&|m| self.throughput(m));
        // The most reliable rate; of those above 95 % the fastest, as in minstrel_ht.
        self.most_reliable = by(&|m| {
            let share = self.rates[usize::from(m)].share.unwrap_or(0.0);
            if share > 0.95 {
                1.0 + self.throughput(m)
            } else {
                share
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minstrel_finds_the_rate_with_the_most_throughput() {
        let phy = Phy {
            wide: false,
            short_gi: false,
        };
        let mut control = Control::new(&Rate::Minstrel { streams: 1 }, phy);
        let mut rng = Rng::new(1, "t");
        // Up to MCS 4 all MPDUs arrive, of MCS 5 two in three, above none: 39 Mbit/s exceed 34.7.
        for i in 0..4000 {
            let (mcs, _) = control.pick(Instant::from_millis(i), 0, &mut rng);
            let good = match mcs {
                0..=4 => 12,
                5 => 8,
                _ => 0,
            };
            control.learn(mcs, 12, good);
        }
        assert_eq!(control.best(Instant::ZERO), 4);
    }

    #[test]
    fn a_schedule_is_followed() {
        let steps: Arc<[(Instant, u8)]> =
            Arc::new([(Instant::ZERO, 0), (Instant::from_millis(25), 7)]);
        let control = Control::Schedule(steps);
        assert_eq!(
            [0, 24, 25, 90].map(|t| control.best(Instant::from_millis(t))),
            [0, 0, 7, 7]
        );
    }
}
