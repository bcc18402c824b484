//! `choke`. Missing options follow from the given ones, as in `tc`. `limit` and `bandwidth`, which
//! `tc` requires, follow from the link's rate.

use quell_qdisc::choke::{LONGEST, Params, default_burst};
use quell_qdisc::rate::Rate;
use quell_qdisc::{disciplines, num, red};

use super::rows::*;
use super::{Built, Field, Kind, Spec};
use crate::error::Error;

/// The options; `None`: not given.
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    limit: Option<u32>,
    bandwidth: Option<Rate>,
    min: Option<u32>,
    max: Option<u32>,
    burst: Option<u32>,
    avpkt: u32,
    probability: f64,
    ecn: bool,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            limit: None,
            bandwidth: None,
            min: None,
            max: None,
            burst: None,
            avpkt: 1000,
            probability: 0.02,
            ecn: false,
        }
    }
}

impl Words {
    /// The parameters on a link of this rate. Defaults: `min` is `max` / 3, `max` is `limit` / 4
    /// and `limit` is 4 `max`; without both, `max` is as many packets as the link sends in 30 ms,
    /// at least 3.
    fn params(&self, rate: Rate) -> Params {
        let avpkt = u64::from(self.avpkt.max(1));
        let by_rate = || {
            num::low_u32((red::Params::for_rate(rate.max(Rate::from_bps(8))).max / avpkt).max(3))
        };
        let max = self.max.or(self.limit.map(|limit| limit / 4));
        let max = max.unwrap_or_else(by_rate).min(LONGEST);
        let limit = self.limit.unwrap_or((4 * max).min(LONGEST));
        let min = self.min.unwrap_or(max / 3);
        Params {
            limit,
            min,
            max,
            avpkt: self.avpkt,
            burst: self.burst.unwrap_or_else(|| default_burst(min, max)),
            probability: self.probability,
            bandwidth: self.bandwidth.unwrap_or(rate).max(Rate::from_bps(8)),
            ecn: self.ecn,
        }
    }

    /// Checks what does not depend on the link's rate. Without `limit` and `max`, thresholds depend
    /// on the rate, and only [`Spec::check_on`] can check them.
    fn check(&self) -> Result<(), &'static str> {
        match self.limit.or(self.max) {
            Some(_) => self.params(Rate::from_mbit(10)).check(),
            None => Ok(()),
        }
    }
}

impl Spec for Words {
    fn build(&self, rate: Rate) -> Built {
        Built::queue(disciplines::Params::Choke(self.params(rate)))
    }

    fn check_on(&self, rate: Rate) -> Result<(), Error> {
        self.params(rate).check().map_err(Error::new)
    }
}

pub(super) static CHOKE: Kind<Words> = Kind {
    name: "choke",
    summary: "RED in packets that also drops an arrival together with a queued packet of its flow, if it meets one at random",
    source: "Pan, Prabhakar and Psounis 2000, Linux sch_choke",
    default: Words::default,
    options: &[
        opt(
            "limit",
            Field::MaybeCount(|p| &mut p.limit, 1, LONGEST),
            "packets it holds (default: 4 max)",
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
            "min",
            Field::MaybeCount(|p| &mut p.min, 1, LONGEST),
            "average length in packets at which dropping begins (default: max / 3)",
        ),
        opt(
            "max",
            Field::MaybeCount(|p| &mut p.max, 1, LONGEST),
            "average length in packets with the greatest probability (default: limit / 4, or the packets of 30ms)",
        ),
        opt(
            "burst",
            Field::MaybeCount(|p| &mut p.burst, 1, MAX_COUNT),
            "packets that may arrive in a burst (default: (2 min + max) / 3)",
        ),
        opt(
            "avpkt",
            Field::Bytes32(|p| &mut p.avpkt, 1, 65_535),
            "bytes of an average packet",
        ),
        opt(
            "probability",
            Field::Probability(|p| &mut p.probability),
            "probability at max",
        ),
        opt("ecn", Field::Flag(|p| &mut p.ecn, ""), ECN),
    ],
    check: Words::check,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Queue;

    #[test]
    fn missing_options_follow_from_the_given_ones_or_the_rate() {
        let params = |words: &str| {
            let queue = Queue::parse(words).expect(words);
            let p = queue
                .spec::<Words>()
                .expect("choke")
                .params(Rate::from_mbit(8));
            (p.limit, p.max, p.min, p.burst)
        };
        assert_eq!(params("choke limit 1000"), (1000, 250, 83, 138));
        assert_eq!(params("choke max 60"), (240, 60, 20, 33));
        // In 30 ms a link of 1 MB/s sends 30 packets of 1000 bytes.
        assert_eq!(params("choke"), (120, 30, 10, 16));
        assert_eq!(params("choke min 5"), (120, 30, 5, 13));
        for rate in [1, 64_000, 10_000_000, 1_000_000_000_000] {
            let rate = Rate::from_bps(rate);
            assert!(Queue::parse("choke").unwrap().check(rate).is_ok(), "{rate}");
        }
    }

    #[test]
    fn contradictory_options_are_errors() {
        let error = |words: &str| Queue::parse(words).expect_err(words).to_string();
        assert_eq!(
            error("choke limit 10 max 20"),
            "choke: max must be at most limit"
        );
        assert_eq!(
            error("choke max 20 min 20"),
            "choke: min must be above 0 and below max"
        );
        let late = Queue::parse("choke min 500")
            .unwrap()
            .check(Rate::from_mbit(8));
        assert_eq!(
            late.unwrap_err().to_string(),
            "choke: min must be above 0 and below max"
        );
    }
}
