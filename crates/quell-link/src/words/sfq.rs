//! `sfq`. Its RED options are read as in `tc` and take effect only if `redflowlimit` is given.

use quell_qdisc::disciplines;
use quell_qdisc::rate::Rate;
use quell_qdisc::sfq::{LONGEST_PERTURB, MAX_DEPTH, MAX_FLOWS, Params, Red};
use quell_qdisc::time::SEC;
use quell_qdisc::{num, red};

use super::rows::*;
use super::{Built, Field, Kind, Spec};

/// The given options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    params: Params,
    /// Interval of the perturbation, seconds.
    perturb: u32,
    redflowlimit: Option<u64>,
    min: Option<u64>,
    max: Option<u64>,
    avpkt: Option<u64>,
    burst: Option<u32>,
    probability: Option<f64>,
    ecn: bool,
    harddrop: bool,
}

impl Words {
    /// The parameters. As in tc-sfq(8) `max` is a quarter of `redflowlimit`, and `min` a third of
    /// `max`.
    fn params(&self) -> Params {
        let red = self.redflowlimit.map(|limit| {
            let max = self.max.unwrap_or(limit / 4);
            let min = self.min.unwrap_or(max / 3);
            let avpkt = num::low_u32(self.avpkt.unwrap_or(1000));
            Red {
                min,
                max,
                avpkt,
                burst: self
                    .burst
                    .unwrap_or_else(|| red::default_burst(min, max, avpkt)),
                probability: self.probability.unwrap_or(0.02),
                ecn: self.ecn,
                harddrop: self.harddrop,
            }
        });
        Params {
            perturb: u64::from(self.perturb) * SEC,
            red,
            ..self.params.clone()
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        let numbers = [self.min, self.max, self.avpkt, self.burst.map(u64::from)];
        let of_red = numbers.iter().any(Option::is_some) || self.probability.is_some();
        match self.redflowlimit {
            None if of_red || self.ecn || self.harddrop => Err(
                "min, max, avpkt, burst, probability, ecn and harddrop need redflowlimit; write redflowlimit BYTES too",
            ),
            Some(limit) if self.max.is_some_and(|max| max > limit) => {
                Err("max must be at most redflowlimit")
            }
            _ => self.params().check(),
        }
    }
}

impl Spec for Words {
    fn build(&self, _: Rate) -> Built {
        Built::queue(disciplines::Params::Sfq(self.params()))
    }
}

const BYTES: u64 = u32::MAX as u64;

pub(super) static SFQ: Kind<Words> = Kind {
    name: "sfq",
    summary: "Stochastic Fairness Queueing: deficit round robin over the flows of a hash, each a short FIFO",
    source: "McKenney 1990, Linux sch_sfq",
    default: Words::default,
    options: &[
        opt(
            "limit",
            Field::MaybeCount(|p| &mut p.params.limit, 2, MAX_COUNT),
            "packets in the whole queue, at most flows times depth (default: 127)",
        ),
        opt(
            "perturb",
            Field::Count(
                |p| &mut p.perturb,
                0,
                num::low_u32(LONGEST_PERTURB.as_nanos() / SEC.as_nanos()),
            ),
            "seconds after which the hash of flows changes; 0: never",
        ),
        opt(
            "quantum",
            Field::Bytes32(|p| &mut p.params.quantum, 1, QUANTUM),
            "bytes of each flow per round; less than 256 counts as 256",
        ),
        opt(
            "divisor",
            Field::Count(|p| &mut p.params.divisor, 1, 65_536),
            "buckets of the hash, a power of two",
        ),
        opt(
            "flows",
            Field::Count(|p| &mut p.params.flows, 1, MAX_FLOWS),
            "flows that may have packets at once",
        ),
        opt(
            "depth",
            Field::Count(|p| &mut p.params.depth, 1, MAX_DEPTH),
            "packets of each flow",
        ),
        opt(
            "headdrop",
            Field::Flag(|p| &mut p.params.headdrop, ""),
            "drop at the head of a flow, not at its tail",
        ),
        opt(
            "redflowlimit",
            Field::MaybeBytes(|p| &mut p.redflowlimit, 1, BYTES),
            "RED on each flow; max and min follow from these bytes",
        ),
        opt(
            "min",
            Field::MaybeBytes(|p| &mut p.min, 1, BYTES),
            "a flow's average length in bytes at which RED begins (default: max / 3)",
        ),
        opt(
            "max",
            Field::MaybeBytes(|p| &mut p.max, 1, BYTES),
            "a flow's average length in bytes with the greatest probability (default: redflowlimit / 4)",
        ),
        opt(
            "avpkt",
            Field::MaybeBytes(|p| &mut p.avpkt, 1, 65_535),
            "bytes of an average packet (default: 1000)",
        ),
        opt(
            "burst",
            Field::MaybeCount(|p| &mut p.burst, 1, MAX_COUNT),
            "packets that may arrive in a burst (default: (2 min + max) / (3 avpkt))",
        ),
        opt(
            "probability",
            Field::MaybeProbability(|p| &mut p.probability),
            "RED's probability at max (default: 0.02)",
        ),
        opt("ecn", Field::Flag(|p| &mut p.ecn, ""), ECN),
        opt(
            "harddrop",
            Field::Flag(|p| &mut p.harddrop, ""),
            "above max drop even ECN-capable packets",
        ),
    ],
    check: Words::check,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Queue;
    use quell_qdisc::time::Duration;

    fn params(words: &str) -> Params {
        let queue = Queue::parse(words).expect(words);
        queue.spec::<Words>().expect("sfq").params()
    }

    fn error(words: &str) -> String {
        Queue::parse(words).expect_err(words).to_string()
    }

    #[test]
    fn perturb_is_in_seconds_as_in_tc() {
        assert_eq!(params("sfq perturb 10").perturb, 10 * SEC);
        assert_eq!(params("sfq").perturb, Duration::ZERO);
    }

    #[test]
    fn redflowlimit_brings_red_and_the_thresholds_that_follow() {
        assert_eq!(params("sfq").red, None);
        // q_sfq.c: max = limit / 4, min = max / 3, burst = (2 min + max) / (3 avpkt).
        let red = params("sfq redflowlimit 120000 ecn").red.expect("RED");
        assert_eq!((red.max, red.min, red.burst), (30_000, 10_000, 16));
        assert_eq!(
            (red.probability, red.ecn, red.harddrop),
            (0.02, true, false)
        );
        // The example of tc-sfq(8).
        let red = params(
            "sfq limit 3000 flows 512 divisor 16384 redflowlimit 100000 min 8000 max 60000 probability 0.20 ecn headdrop",
        );
        let of = red.red.expect("RED");
        assert_eq!(
            (of.min, of.max, of.burst, red.headdrop),
            (8_000, 60_000, 25, true)
        );
    }

    #[test]
    fn contradictions_are_one_line() {
        assert_eq!(
            error("sfq ecn"),
            "sfq: min, max, avpkt, burst, probability, ecn and harddrop need redflowlimit; write redflowlimit BYTES too"
        );
        assert_eq!(
            error("sfq redflowlimit 1000 max 2000"),
            "sfq: max must be at most redflowlimit"
        );
        assert_eq!(
            error("sfq divisor 1000"),
            "sfq: divisor must be a power of two, at most 65536"
        );
        assert_eq!(
            error("sfq flows 1 depth 1 limit 9"),
            "sfq: limit, and flows times depth, must be at least 2 packets"
        );
        assert_eq!(
            error("sfq perturb 10s"),
            "sfq: perturb: \"10s\" is not a whole number; write a whole number from 0 to 2147483"
        );
    }
}
