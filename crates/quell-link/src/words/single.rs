//! The kinds with one queue for all flows.

use quell_qdisc::{MTU, SEC, US, cobalt, codel, fifo};

use super::rows::*;
use super::{Field, Kind, Opt, Spec};

const FIFO_LIMIT: Opt<fifo::Params> = opt(
    "limit",
    Field::Count(|p| &mut p.limit_packets, 1, MANY),
    LIMIT,
);

pub(super) static PFIFO: Kind<fifo::Params> = Kind {
    name: "pfifo",
    summary: "first in, first out; what arrives when it is full is dropped",
    source: "Linux sch_fifo",
    default: fifo::Params::default,
    options: &[FIFO_LIMIT],
    wrap: Spec::Fifo,
    unwrap: unwrap!(Fifo),
    check: |_| Ok(()),
};

pub(super) static BFIFO: Kind<fifo::Params> = Kind {
    name: "bfifo",
    summary: "first in, first out, limited in bytes",
    source: "Linux sch_fifo",
    default: || fifo::Params {
        limit_packets: u32::MAX,
        limit_bytes: 1000 * MTU as u64,
        ..Default::default()
    },
    options: &[opt(
        "limit",
        Field::Bytes(|p| &mut p.limit_bytes, 1, MUCH),
        "bytes it holds (1000 full-size packets)",
    )],
    wrap: Spec::Fifo,
    unwrap: unwrap!(Fifo),
    check: |_| Ok(()),
};

pub(super) static FIFO: Kind<fifo::Params> = Kind {
    name: "fifo",
    summary: "first in, first out with the two knobs that controllers turn: limit and drop",
    source: "quell; the data plane of LearnQueue, WQM and RL-AQM",
    default: fifo::Params::default,
    options: &[
        FIFO_LIMIT,
        opt(
            "drop",
            Field::Probability(|p| &mut p.drop),
            "probability with which each arrival is dropped",
        ),
    ],
    wrap: Spec::Fifo,
    unwrap: unwrap!(Fifo),
    check: |_| Ok(()),
};

pub(super) static CODEL: Kind<codel::Params> = Kind {
    name: "codel",
    summary: "Controlled Delay: drops at the head while the sojourn time stays above target",
    source: "RFC 8289, Linux sch_codel",
    default: codel::Params::default,
    options: &[
        opt("limit", Field::Count(|p| &mut p.limit, 1, MANY), LIMIT),
        opt("target", Field::Time(|p| &mut p.target, 0, LONG), TARGET),
        opt(
            "interval",
            Field::Time(|p| &mut p.interval, US, LONG),
            INTERVAL,
        ),
        opt("ecn", Field::Flag(|p| &mut p.ecn, "noecn"), ECN),
        opt(
            "ce_threshold",
            Field::MaybeTime(|p| &mut p.ce_threshold, 0, LONG),
            CE_THRESHOLD,
        ),
    ],
    wrap: Spec::Codel,
    unwrap: unwrap!(Codel),
    check: codel::Params::check,
};

pub(super) static COBALT: Kind<cobalt::Params> = Kind {
    name: "cobalt",
    summary: "CoDel and BLUE together: CAKE's AQM on a queue of its own, tuned to the link's rate",
    source: "Linux sch_cake",
    default: cobalt::Params::default,
    options: &[
        opt("limit", Field::Count(|p| &mut p.limit, 1, MANY), LIMIT),
        opt("target", Field::Time(|p| &mut p.target, 0, 4 * SEC), TARGET),
        opt(
            "interval",
            Field::Time(|p| &mut p.interval, US, 4 * SEC),
            INTERVAL,
        ),
        opt("ecn", Field::Flag(|p| &mut p.ecn, "noecn"), ECN),
    ],
    wrap: Spec::Cobalt,
    unwrap: unwrap!(Cobalt),
    check: cobalt::Params::check,
};
