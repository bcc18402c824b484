//! `codel`.

use quell_qdisc::codel;
use quell_qdisc::disciplines::Params;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, US};

use super::rows::*;
use super::{Built, Field, Kind, Spec};

impl Spec for codel::Params {
    fn build(&self, _: Rate) -> Built {
        Built::queue(Params::Codel(self.clone()))
    }
}

pub(super) static CODEL: Kind<codel::Params> = Kind {
    name: "codel",
    summary: "Controlled Delay: drops at the head while the sojourn time stays above target",
    source: "RFC 8289, Linux sch_codel",
    default: codel::Params::default,
    options: &[
        opt("limit", Field::Count(|p| &mut p.limit, 1, MAX_COUNT), LIMIT),
        opt(
            "target",
            Field::Time(|p| &mut p.target, Duration::ZERO, MAX_TIME),
            TARGET,
        ),
        opt(
            "interval",
            Field::Time(|p| &mut p.interval, US, MAX_TIME),
            INTERVAL,
        ),
        opt("ecn", Field::Flag(|p| &mut p.ecn, "noecn"), ECN),
        opt(
            "ce_threshold",
            Field::MaybeTime(|p| &mut p.ce_threshold, Duration::ZERO, MAX_TIME),
            CE_THRESHOLD,
        ),
    ],
    check: codel::Params::check,
};
