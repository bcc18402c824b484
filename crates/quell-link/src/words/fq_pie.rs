//! `fq_pie`.

use quell_qdisc::disciplines;
use quell_qdisc::fq_pie;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, MS};

use super::rows::*;
use super::{Built, Field, Kind, Spec};

impl Spec for fq_pie::Params {
    fn build(&self, _: Rate) -> Built {
        Built::queue(disciplines::Params::FqPie(self.clone()))
    }
}

pub(super) static FQ_PIE: Kind<fq_pie::Params> = Kind {
    name: "fq_pie",
    summary: "flow queues, each with PIE: deficit round robin, new flows first",
    source: "Linux sch_fq_pie",
    default: fq_pie::Params::default,
    options: &[
        opt(
            "limit",
            Field::Count(|p| &mut p.limit, 1, MAX_COUNT),
            LIMIT_ALL,
        ),
        opt("flows", Field::Count(|p| &mut p.flows, 1, 65_536), FLOWS),
        opt(
            "target",
            Field::Time(|p| &mut p.pie.target, Duration::ZERO, MAX_TIME),
            TARGET,
        ),
        opt(
            "tupdate",
            Field::Time(|p| &mut p.pie.tupdate, MS, MAX_TIME),
            TUPDATE,
        ),
        opt("alpha", Field::Count(|p| &mut p.pie.alpha, 0, 32), ALPHA),
        opt("beta", Field::Count(|p| &mut p.pie.beta, 0, 32), BETA),
        opt(
            "quantum",
            Field::Bytes32(|p| &mut p.quantum, 1, QUANTUM),
            QUANTUM_MEANS,
        ),
        opt(
            "memory_limit",
            Field::Bytes(|p| &mut p.memory_limit, 1, MAX_BYTES),
            MEMORY,
        ),
        opt(
            "ecn_prob",
            Field::Count(|p| &mut p.pie.ecn_prob, 0, 100),
            ECN_PROB,
        ),
        opt("ecn", Field::Flag(|p| &mut p.pie.ecn, "noecn"), PIE_ECN),
        opt(
            "bytemode",
            Field::Flag(|p| &mut p.pie.bytemode, "nobytemode"),
            BYTEMODE,
        ),
        opt(
            "dq_rate_estimator",
            Field::Flag(|p| &mut p.pie.dq_rate_estimator, "no_dq_rate_estimator"),
            ESTIMATOR,
        ),
    ],
    check: fq_pie::Params::check,
};
