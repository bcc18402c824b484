//! `pie`: as in Linux, or as in ns-3 of 2018, which has some of these options.

use quell_qdisc::disciplines;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, MS};
use quell_qdisc::{pie, pie_ns3};

use super::rows::*;
use super::{Built, Field, Kind, Spec};

/// The parsed words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    /// Parameters of Linux's PIE; the PIE of ns-3 has some of them.
    pub params: pie::Params,
    /// Whether it is the PIE of ns-3 of 2018.
    pub ns3_2018: bool,
}

impl Words {
    /// The defaults in ns-3, with the given limit.
    fn ns3_2018(&self) -> Self {
        let theirs = pie_ns3::Params::default();
        Self {
            params: pie::Params {
                limit: self.params.limit,
                target: theirs.target,
                tupdate: theirs.tupdate,
                ..pie::Params::default()
            },
            ns3_2018: true,
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        let p = &self.params;
        if self.ns3_2018 && (p.ecn || p.bytemode || p.dq_rate_estimator) {
            return Err(
                "ns3-2018 has no ecn, no bytemode and always its own rate estimator: leave them out",
            );
        }
        p.check()
    }
}

impl Spec for Words {
    fn build(&self, _: Rate) -> Built {
        let p = self.params.clone();
        Built::queue(match self.ns3_2018 {
            false => disciplines::Params::Pie(p),
            true => disciplines::Params::PieNs3(pie_ns3::Params {
                target: p.target,
                tupdate: p.tupdate,
                limit: p.limit,
                alpha: p.alpha,
                beta: p.beta,
            }),
        })
    }
}

pub(super) static PIE: Kind<Words> = Kind {
    name: "pie",
    summary: "Proportional Integral controller Enhanced: drops arrivals with a probability that steers the delay",
    source: "RFC 8033, Linux sch_pie",
    default: Words::default,
    options: &[
        // This option precedes those whose defaults it changes, so that it comes first in the
        // canonical words, too.
        opt(
            "ns3-2018",
            Field::Switch {
                off: "",
                set: |w, _| *w = w.ns3_2018(),
                get: |w| w.ns3_2018,
            },
            "the PIE of ns-3 until 2019, with its target 20ms, tupdate 30ms; goes before other options",
        ),
        opt(
            "limit",
            Field::Count(|w| &mut w.params.limit, 1, MAX_COUNT),
            LIMIT,
        ),
        opt(
            "target",
            Field::Time(|w| &mut w.params.target, Duration::ZERO, MAX_TIME),
            TARGET,
        ),
        opt(
            "tupdate",
            Field::Time(|w| &mut w.params.tupdate, MS, MAX_TIME),
            TUPDATE,
        ),
        opt("alpha", Field::Count(|w| &mut w.params.alpha, 0, 32), ALPHA),
        opt("beta", Field::Count(|w| &mut w.params.beta, 0, 32), BETA),
        opt("ecn", Field::Flag(|w| &mut w.params.ecn, "noecn"), PIE_ECN),
        opt(
            "ecn_prob",
            Field::Count(|w| &mut w.params.ecn_prob, 0, 100),
            ECN_PROB,
        ),
        opt(
            "bytemode",
            Field::Flag(|w| &mut w.params.bytemode, "nobytemode"),
            BYTEMODE,
        ),
        opt(
            "dq_rate_estimator",
            Field::Flag(|w| &mut w.params.dq_rate_estimator, "no_dq_rate_estimator"),
            ESTIMATOR,
        ),
    ],
    check: Words::check,
};
