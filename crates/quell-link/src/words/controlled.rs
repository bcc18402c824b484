//! Kinds that are a FIFO whose limit or drop probability a controller sets.

use quell_qdisc::control::{fixed, wqm};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, US};
use quell_qdisc::{disciplines, fifo};

use super::rows::*;
use super::{AnyKind, Built, Field, Kind, Spec};

pub(super) static KINDS: &[&dyn AnyKind] = &[&FIXED, &WQM];

impl Spec for fixed::Params {
    fn build(&self, _: Rate) -> Built {
        Built::fifo(Some(Box::new(fixed::Fixed::new(self.clone()))))
    }
}

impl Spec for wqm::Params {
    fn build(&self, rate: Rate) -> Built {
        Built {
            queue: disciplines::Params::Fifo(fifo::Params {
                selective: self.selective,
                ..fifo::Params::default()
            }),
            controller: Some(Box::new(wqm::Wqm::new(self.clone(), rate))),
        }
    }
}

static FIXED: Kind<fixed::Params> = Kind {
    name: "fixed",
    summary: "a FIFO with constant knobs, as used by sweeps (quell optimum)",
    source: "quell",
    default: fixed::Params::default,
    options: &[
        opt(
            "limit",
            Field::MaybeCount(|p| &mut p.limit, 1, MAX_COUNT),
            "packets (default: pfifo's 1000)",
        ),
        opt(
            "drop",
            Field::MaybeProbability(|p| &mut p.drop),
            "probability with which each arrival is dropped (default: 0)",
        ),
    ],
    check: fixed::Params::check,
};

static WQM: Kind<wqm::Params> = Kind {
    name: "wqm",
    summary: "WQM, reconstructed: a FIFO whose limit follows how long its backlog takes to drain",
    source: "Showail, Jamshaid and Shihada 2014 (slides); thresholds and steps are quell's",
    default: wqm::Params::default,
    options: &[
        opt(
            "target",
            Field::Time(|p| &mut p.target, Duration::ZERO, MAX_TIME),
            "time within which the backlog should drain",
        ),
        opt(
            "low",
            Field::MaybeTime(|p| &mut p.low, Duration::ZERO, MAX_TIME),
            "a backlog that drains faster than this allows a larger limit (default: half of target)",
        ),
        opt(
            "arrt",
            Field::Time(|p| &mut p.arrt, Duration::ZERO, MAX_TIME),
            "the first limit is the rate times this",
        ),
        opt(
            "interval",
            Field::Time(|p| &mut p.interval, US, MAX_TIME),
            PERIOD,
        ),
        opt(
            "packet",
            Field::Bytes32(|p| &mut p.packet_bytes, 1, 65_535),
            "bytes of a packet",
        ),
        opt(
            "ampdu",
            Field::Count(|p| &mut p.ampdu, 1, 65_536),
            "packets of a full A-MPDU",
        ),
        opt(
            "no_aggregation",
            Field::Flag(|p| &mut p.no_aggregation, ""),
            "without A-MPDUs min is 2 and step 1",
        ),
        opt(
            "min",
            Field::MaybeCount(|p| &mut p.min, 1, MAX_COUNT),
            "smallest limit, packets (default: ampdu)",
        ),
        opt(
            "max",
            Field::Count(|p| &mut p.max, 1, MAX_COUNT),
            "largest limit, packets",
        ),
        opt(
            "step",
            Field::MaybeCount(|p| &mut p.step, 1, MAX_COUNT),
            "packets by which an alarm changes the limit (default: ampdu)",
        ),
        opt(
            "alarms",
            Field::Count(|p| &mut p.alarms, 1, 1000),
            "consecutive periods that raise an alarm",
        ),
        opt(
            "weight",
            Field::Number(|p| &mut p.weight, 0.0, 1.0),
            "weight of a new reading of the rate",
        ),
        opt(
            "efficiency",
            Field::Number(|p| &mut p.efficiency, 0.0, 1.0),
            "share of the rate that carries payload",
        ),
        opt(
            "contenders",
            Field::MaybeCount(|p| &mut p.contenders, 1, 65_536),
            "stations that share the air (default: the measured share)",
        ),
        opt(
            "least_share",
            Field::Number(|p| &mut p.least_share, 0.0, 1.0),
            "lower bound of the share of the air",
        ),
        opt(
            "restart",
            Field::Number(|p| &mut p.restart, 1.0, 1e6),
            "factor by which the rate has to change for a restart",
        ),
        opt(
            "selective",
            Field::Flag(|p| &mut p.selective, ""),
            "when full, the longest flow loses its newest packet instead of the arriving one",
        ),
    ],
    check: wqm::Params::check,
};
