//! `cobalt`: the AQM of CAKE on a queue of its own.

use quell_qdisc::cobalt;
use quell_qdisc::disciplines::Params;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, SEC, US};

use super::rows::*;
use super::{Built, Field, Kind, Spec};

impl Spec for cobalt::Params {
    /// Tuned to the link as in CAKE, with target and interval of at most 4 s.
    fn build(&self, rate: Rate) -> Built {
        let longest = 4 * SEC;
        let tuned = self.clone().for_rate(rate);
        Built::queue(Params::Cobalt(cobalt::Params {
            target: tuned.target.min(longest),
            interval: tuned.interval.min(longest),
            ..tuned
        }))
    }
}

pub(super) static COBALT: Kind<cobalt::Params> = Kind {
    name: "cobalt",
    summary: "CoDel and BLUE together: CAKE's AQM on a queue of its own, tuned to the link's rate",
    source: "Linux sch_cake",
    default: cobalt::Params::default,
    options: &[
        opt("limit", Field::Count(|p| &mut p.limit, 1, MAX_COUNT), LIMIT),
        opt(
            "target",
            Field::Time(|p| &mut p.target, Duration::ZERO, Duration::from_secs(4)),
            TARGET,
        ),
        opt(
            "interval",
            Field::Time(|p| &mut p.interval, US, Duration::from_secs(4)),
            INTERVAL,
        ),
        opt("ecn", Field::Flag(|p| &mut p.ecn, "noecn"), ECN),
    ],
    check: cobalt::Params::check,
};
