//! WQM, reconstructed: a limit from the link's rate, the share of the air, and the drain time of
//! the backlog.
//!
//! Source: Showail, Jamshaid and Shihada, "WQM: An Aggregation-Aware Queue Management Scheme for
//! IEEE 802.11n Based Networks", CSWS 2014 (slides). What the slides say: B_initial = R × ARTT at
//! first; then T_drain = (BL / R) / F(N) is compared with a target; the limit stays between one
//! aggregate and a maximum; drop-tail.
//!
//! All numbers, and how thresholds, counters and steps work together, are reconstructed, so each is
//! an option:
//! - R is smoothed with weight 1/8; F is the measured share of the airtime, or 1/N for a given N,
//!   at least 0.05.
//! - Three periods in a row above target take one A-MPDU off the limit; three below half of it, if
//!   the queue overflowed meanwhile, add one. After either step the count restarts.
//! - When R has more than doubled or halved since the limit was last set to R × ARTT, the limit
//!   starts over there.
//! - Selective drop, which the slides only name, is taken to mean that a full queue drops the
//!   newest packet of its longest flow.

use super::{Control, SubQueue};
use crate::num;
use crate::rate::Rate;
use crate::time::{Duration, MS, SEC, US};
use crate::{ControlledKnobs, Gauges, KnobSet, Knobs, Rng};

/// Parameters of [`Wqm`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Time between decisions (default 100 ms, 1 us..10 s).
    pub interval: Duration,
    /// T_max: the backlog should drain within this (default 50 ms; LearnQueue's authors ran it with
    /// 30 ms).
    pub target: Duration,
    /// T_min: with a shorter drain time the limit may grow (default: half of `target`).
    pub low: Option<Duration>,
    /// Round trip by which R is multiplied (default 50 ms).
    pub arrt: Duration,
    /// Bytes of a packet (default 1500).
    pub packet_bytes: u32,
    /// Packets of a full A-MPDU (default 43: 65,535 bytes of 1500; at least 1).
    pub ampdu: u32,
    /// Without aggregation: the least limit is 2 packets and the step 1 packet (default off).
    pub no_aggregation: bool,
    /// Least limit, packets (default: one A-MPDU).
    pub min: Option<u32>,
    /// Largest limit, packets (default 1000: the device's).
    pub max: u32,
    /// Packets that an alarm adds or removes (default: one A-MPDU).
    pub step: Option<u32>,
    /// Periods in a row that make an alarm (default 3, at least 1).
    pub alarms: u32,
    /// Weight of a new reading of the rate (default 1/8, above 0, at most 1).
    pub weight: f64,
    /// Share of the rate that carries payload (default 1: the gauge is the effective rate).
    pub efficiency: f64,
    /// N, if F is to be 1/N (default: none, F is the measured share).
    pub contenders: Option<u32>,
    /// Lower bound of F (default 0.05, above 0, at most 1).
    pub least_share: f64,
    /// Factor by which the rate must change for a new start (default 2, above 1).
    pub restart: f64,
    /// A full queue drops a packet of its longest flow instead of the arrival, which the slides
    /// name as future work (default off).
    pub selective: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            interval: 100 * MS,
            target: 50 * MS,
            low: None,
            arrt: 50 * MS,
            packet_bytes: 1500,
            ampdu: 43,
            no_aggregation: false,
            min: None,
            max: 1000,
            step: None,
            alarms: 3,
            weight: 0.125,
            efficiency: 1.0,
            contenders: None,
            least_share: 0.05,
            restart: 2.0,
            selective: false,
        }
    }
}

impl Params {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        let share = |x: f64| x > 0.0 && x <= 1.0;
        if !(US..=10 * SEC).contains(&self.interval) {
            return Err("interval must be 1us to 10s");
        }
        if self.target > 10 * SEC || self.arrt > 10 * SEC {
            return Err("target and arrt must be at most 10s");
        }
        if self.low.is_some_and(|low| low > self.target) {
            return Err("low must be at most target");
        }
        if self.packet_bytes == 0 || self.packet_bytes > 65_535 {
            return Err("packet must be 1 to 65535 bytes");
        }
        if self.ampdu == 0 || self.alarms == 0 || self.contenders == Some(0) || self.step == Some(0)
        {
            return Err("ampdu, step, alarms and contenders must be at least 1");
        }
        if self.least() == 0 || self.least() > self.max {
            return Err("min must be at least 1 packet and at most max");
        }
        if !(share(self.weight) && share(self.efficiency) && share(self.least_share)) {
            return Err("weight, efficiency and least_share must be above 0 and at most 1");
        }
        if !(self.restart > 1.0 && self.restart <= 1e6) {
            return Err("restart must be above 1");
        }
        Ok(())
    }

    fn least(&self) -> u32 {
        self.min
            .unwrap_or(if self.no_aggregation { 2 } else { self.ampdu })
    }

    fn step(&self) -> u32 {
        self.step
            .unwrap_or(if self.no_aggregation { 1 } else { self.ampdu })
    }

    /// B_initial = R × ARTT, packets, within the limits.
    pub fn start(&self, rate_bps: f64) -> u32 {
        let bits = rate_bps * self.arrt.as_secs_f64();
        let packets = bits / (8.0 * f64::from(self.packet_bytes));
        num::whole_u32(packets).clamp(self.least(), self.max)
    }

    /// T_drain = (BL / R) / F, ns.
    pub fn drain_time(&self, backlog_bytes: u64, rate_bps: f64, share: f64) -> f64 {
        let share = match self.contenders {
            Some(n) => 1.0 / f64::from(n),
            None => share,
        };
        backlog_bytes as f64 * 8.0 * SEC.as_nanos() as f64
            / rate_bps
            / share.clamp(self.least_share, 1.0)
    }
}

/// The controller of one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Wqm {
    params: Params,
    limit: u32,
    /// Smoothed effective rate, bit/s.
    rate: f64,
    /// The rate at which the limit last started over, bit/s.
    started_at: f64,
    /// Periods in a row with a drain time above the target.
    high: u32,
    /// Periods in a row with a drain time below [`Params::low`].
    low: u32,
    /// Overflow drops when `low` began to count.
    drops_before_low: u64,
    /// Overflow drops at the last decision.
    drops: u64,
}

impl Wqm {
    /// Starts on a link of this rate.
    pub fn new(params: Params, rate: Rate) -> Self {
        let rate = (rate.bps_f64() * params.efficiency).max(1.0);
        Self {
            limit: params.start(rate),
            rate,
            started_at: rate,
            high: 0,
            low: 0,
            drops_before_low: 0,
            drops: 0,
            params,
        }
    }

    /// The limit in force.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    fn adjust(&mut self, drain: f64, drops: u64) {
        let p = &self.params;
        let (target, low) = (p.target, p.low.unwrap_or(p.target / 2));
        if drain > target.as_nanos() as f64 {
            (self.high, self.low) = (self.high + 1, 0);
        } else if drain < low.as_nanos() as f64 {
            if self.low == 0 {
                self.drops_before_low = self.drops;
            }
            (self.high, self.low) = (0, self.low + 1);
        } else {
            (self.high, self.low) = (0, 0);
        }
        if self.high >= p.alarms {
            self.limit = self.limit.saturating_sub(p.step()).max(p.least());
            self.high = 0;
        } else if self.low >= p.alarms && drops > self.drops_before_low {
            self.limit = self.limit.saturating_add(p.step()).min(p.max);
            self.low = 0;
        }
    }
}

impl Control for Wqm {
    fn period(&self) -> Duration {
        self.params.interval
    }

    fn decide(&mut self, gauges: &Gauges, _subs: &mut [SubQueue], _rng: &mut Rng) -> Knobs {
        let p = &self.params;
        // In an outage the last rate stays: nothing drains, and the rate after it is unknown.
        if !gauges.rate.is_zero() {
            self.rate += p.weight * (gauges.rate.bps_f64() * p.efficiency - self.rate);
        }
        let change = self.rate / self.started_at;
        if change > p.restart || change < 1.0 / p.restart {
            self.limit = p.start(self.rate);
            self.started_at = self.rate;
            (self.high, self.low) = (0, 0);
        } else {
            let drain = p.drain_time(gauges.backlog_bytes, self.rate, gauges.share);
            self.adjust(drain, gauges.drops_overflow);
        }
        self.drops = gauges.drops_overflow;
        self.initial()
    }

    fn initial(&mut self) -> Knobs {
        Knobs {
            limit_packets: Some(self.limit),
            ..Knobs::default()
        }
    }

    fn knobs(&self) -> ControlledKnobs {
        ControlledKnobs::of_queue(KnobSet::LIMIT)
    }

    fn adopt(&mut self, knobs: &Knobs) {
        if let Some(limit) = knobs.limit_packets {
            self.limit = limit.clamp(self.params.least(), self.params.max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_mbit(26);

    /// A queue that takes `ms` to drain at `RATE`.
    fn taking(ms: u64, drops_overflow: u64) -> Gauges {
        Gauges {
            backlog_bytes: RATE.bytes_in(ms * MS),
            rate: RATE,
            share: 1.0,
            drops_overflow,
            ..Gauges::default()
        }
    }

    fn limits(wqm: &mut Wqm, gauges: &[Gauges]) -> Vec<u32> {
        let mut rng = Rng::new(1, "t");
        gauges
            .iter()
            .map(|g| wqm.decide(g, &mut [], &mut rng).limit_packets.unwrap())
            .collect()
    }

    #[test]
    fn a_full_default_buffer_drains_as_slowly_as_the_slides_say() {
        // 1000 packets of 1500 bytes are 12 Mbit: 1.85 s at 6.5 Mbit/s, 20 ms at 600.
        let p = Params::default();
        let seconds = |mbit: f64| p.drain_time(1_500_000, mbit * 1e6, 1.0) / 1e9;
        assert!((seconds(6.5) - 1.846).abs() < 0.001);
        assert!((seconds(65.0) - 0.185).abs() < 0.001);
        assert!((seconds(600.0) - 0.020).abs() < 1e-6);
    }

    #[test]
    fn a_shared_channel_drains_more_slowly() {
        let p = Params::default();
        assert_eq!(p.drain_time(1000, 1e6, 0.5), 16e6);
        assert_eq!(p.drain_time(1000, 1e6, 0.0), 8e6 / 0.05); // at least 0.05
        let two = Params {
            contenders: Some(2),
            ..p
        };
        assert_eq!(two.drain_time(1000, 1e6, 1.0), 16e6);
    }

    #[test]
    fn the_first_limit_is_rate_times_round_trip() {
        assert_eq!(Wqm::new(Params::default(), RATE).limit(), 108); // 26e6 * 0.05 / 12000 = 108.3
        assert_eq!(Wqm::new(Params::default(), Rate::from_mbit(1)).limit(), 43); // not below one A-MPDU
        assert_eq!(
            Wqm::new(Params::default(), Rate::from_mbit(10_000)).limit(),
            1000
        );
        let single = Params {
            no_aggregation: true,
            ..Params::default()
        };
        assert_eq!(Wqm::new(single, Rate::from_kbit(100)).limit(), 2);
    }

    #[test]
    fn three_slow_periods_in_a_row_take_one_aggregate_off() {
        let mut wqm = Wqm::new(Params::default(), RATE);
        let (slow, fine) = (taking(51, 0), taking(40, 0));
        assert_eq!(limits(&mut wqm, &[slow, slow, fine, slow, slow]), [108; 5]);
        assert_eq!(
            limits(&mut wqm, &[slow, slow, slow, slow]),
            [65, 65, 65, 43]
        );
        assert_eq!(limits(&mut wqm, &[slow; 9]), [43; 9]); // one A-MPDU stays
    }

    #[test]
    fn three_fast_periods_add_an_aggregate_only_if_the_queue_overflowed() {
        let mut wqm = Wqm::new(Params::default(), RATE);
        assert_eq!(limits(&mut wqm, &[taking(24, 0); 5]), [108; 5]);
        let mut wqm = Wqm::new(Params::default(), RATE);
        let fast = [
            taking(40, 7),
            taking(24, 7),
            taking(24, 9),
            taking(24, 9),
            taking(24, 9),
        ];
        assert_eq!(limits(&mut wqm, &fast), [108, 108, 108, 151, 151]);
    }

    #[test]
    fn a_rate_that_doubles_starts_over() {
        let mut wqm = Wqm::new(Params::default(), RATE);
        let fast = Gauges {
            rate: Rate::from_mbit(3 * 26),
            ..taking(40, 0)
        };
        let seen = limits(&mut wqm, &[fast; 40]);
        assert!(seen[0] == 108 && seen[39] > 216, "{seen:?}");
        // Weight 1/8: (3 - 2 (7/8)^n) passes 2 at n = 6.
        assert_eq!(seen.iter().position(|l| *l != 108), Some(5));
    }

    #[test]
    fn an_outage_leaves_the_limit_alone() {
        let mut wqm = Wqm::new(Params::default(), RATE);
        let dark = Gauges {
            rate: Rate::ZERO,
            ..taking(40, 0)
        };
        assert_eq!(limits(&mut wqm, &[dark; 30]), [108; 30]);
    }
}
