//! `red`: like `tc`, it derives missing options from the given ones, and finally from the link's
//! rate.

use quell_qdisc::disciplines;
use quell_qdisc::rate::Rate;
use quell_qdisc::red::{Params, default_burst};

use super::rows::*;
use super::{Built, Field, Kind, Spec};
use crate::error::Error;

/// The given options.
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    limit: Option<u64>,
    min: Option<u64>,
    max: Option<u64>,
    avpkt: u32,
    burst: Option<u32>,
    bandwidth: Option<Rate>,
    probability: f64,
    ecn: bool,
    harddrop: bool,
    nodrop: bool,
    adaptive: bool,
    gentle: bool,
}

impl Default for Words {
    fn default() -> Self {
        let p = Params::default();
        Self {
            limit: None,
            min: None,
            max: None,
            avpkt: p.avpkt,
            burst: None,
            bandwidth: None,
            probability: p.probability,
            ecn: p.ecn,
            harddrop: p.harddrop,
            nodrop: p.nodrop,
            adaptive: p.adaptive,
            gentle: p.gentle,
        }
    }
}

impl Words {
    /// The parameters on a link of this rate. As in tc-red(8), `max` is a quarter of `limit` and
    /// `min` a third of `max`; without both, they are those for a queue of 30 ms.
    pub fn params(&self, rate: Rate) -> Params {
        let by_rate = Params::for_rate(rate.max(Rate::from_bps(8)));
        let max = self.max.or(self.limit.map(|l| l / 4));
        let max = max.or(self.min.map(|m| 3 * m)).unwrap_or(by_rate.max);
        let max = max.clamp(2, u32::MAX.into());
        let min = self.min.unwrap_or((max / 3).max(1));
        Params {
            limit: self.limit.unwrap_or(4 * max),
            min,
            max,
            avpkt: self.avpkt,
            burst: self
                .burst
                .unwrap_or_else(|| default_burst(min, max, self.avpkt)),
            probability: self.probability,
            bandwidth: self.bandwidth.unwrap_or(rate).max(Rate::from_bps(8)),
            ecn: self.ecn,
            harddrop: self.harddrop,
            nodrop: self.nodrop,
            adaptive: self.adaptive,
            gentle: self.gentle,
        }
    }

    /// Checks what does not depend on the link's rate.
    fn check(&self) -> Result<(), &'static str> {
        let whole = self.min.is_some() || self.max.is_some() || self.limit.is_some();
        let mut checked = self.clone();
        if !whole {
            // Whether a burst is long enough depends on the thresholds, which follow from the rate.
            checked.burst = None;
        }
        checked.params(Rate::from_mbit(10)).check()
    }
}

impl Spec for Words {
    fn build(&self, rate: Rate) -> Built {
        Built::queue(disciplines::Params::Red(self.params(rate)))
    }

    fn check_on(&self, rate: Rate) -> Result<(), Error> {
        self.params(rate).check().map_err(Error::new)
    }
}

const BYTES: u64 = u32::MAX as u64;

pub(super) static RED: Kind<Words> = Kind {
    name: "red",
    summary: "Random Early Detection: drops arrivals by chance that grows with the average queue length",
    source: "Floyd and Jacobson 1993, Linux sch_red",
    default: Words::default,
    options: &[
        opt(
            "limit",
            Field::MaybeBytes(|p| &mut p.limit, 1, MAX_BYTES),
            "limit in bytes (default: 4 max)",
        ),
        opt(
            "min",
            Field::MaybeBytes(|p| &mut p.min, 1, BYTES),
            "average length in bytes at which dropping begins (default: max / 3)",
        ),
        opt(
            "max",
            Field::MaybeBytes(|p| &mut p.max, 1, BYTES),
            "average length in bytes with the greatest probability (default: limit / 4, or the bytes of 30ms)",
        ),
        opt(
            "avpkt",
            Field::Bytes32(|p| &mut p.avpkt, 1, 65_535),
            "bytes of an average packet",
        ),
        opt(
            "burst",
            Field::MaybeCount(|p| &mut p.burst, 1, MAX_COUNT),
            "packets that may arrive in a burst (default: (2 min + max) / (3 avpkt))",
        ),
        opt(
            "bandwidth",
            Field::MaybeRate(
                |p| &mut p.bandwidth,
                Rate::from_bps(8),
                Rate::from_bps(1 << 50),
            ),
            "rate at which the average falls in idle periods (default: the link's)",
        ),
        opt(
            "probability",
            Field::Probability(|p| &mut p.probability),
            "probability at max",
        ),
        opt("ecn", Field::Flag(|p| &mut p.ecn, "noecn"), ECN),
        opt(
            "harddrop",
            Field::Flag(|p| &mut p.harddrop, ""),
            "above max drop even ECN-capable packets",
        ),
        opt(
            "nodrop",
            Field::Flag(|p| &mut p.nodrop, ""),
            "with ecn, mark where possible and otherwise let packets pass",
        ),
        opt(
            "adaptive",
            Field::Flag(|p| &mut p.adaptive, ""),
            "adapt the probability to keep the average in the middle",
        ),
        opt(
            "gentle",
            Field::Flag(|p| &mut p.gentle, ""),
            "raise the probability to 1 between max and twice max",
        ),
    ],
    check: Words::check,
};
