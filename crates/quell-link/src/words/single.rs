//! The kinds with one queue for all flows.

use quell_qdisc::disciplines::Params;
use quell_qdisc::{MTU, SEC, US, cobalt, codel, fifo};

use super::rows::*;
use super::{AnyKind, Built, Field, Kind, Opt, Spec};

pub(super) static KINDS: &[&dyn AnyKind] = &[&PFIFO, &BFIFO, &FIFO, &CODEL, &COBALT];

impl Spec for fifo::Params {
    fn build(&self, _: u64) -> Built {
        Built::queue(Params::Fifo(self.clone()))
    }
}

impl Spec for codel::Params {
    fn build(&self, _: u64) -> Built {
        Built::queue(Params::Codel(self.clone()))
    }
}

impl Spec for cobalt::Params {
    /// As CAKE tunes it to a link; on the slowest links within its range.
    fn build(&self, rate_bps: u64) -> Built {
        let longest = 4 * SEC;
        let tuned = self.clone().for_rate(rate_bps);
        Built::queue(Params::Cobalt(cobalt::Params {
            target: tuned.target.min(longest),
            interval: tuned.interval.min(longest),
            ..tuned
        }))
    }
}

const FIFO_LIMIT: Opt<fifo::Params> = opt(
    "limit",
    Field::Count(|p| &mut p.limit_packets, 1, MAX_COUNT),
    LIMIT,
);

static PFIFO: Kind<fifo::Params> = Kind {
    name: "pfifo",
    summary: "first in, first out; arrivals to a full queue are dropped",
    source: "Linux sch_fifo",
    default: fifo::Params::default,
    options: &[FIFO_LIMIT],
    check: |_| Ok(()),
};

static BFIFO: Kind<fifo::Params> = Kind {
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
        Field::Bytes(|p| &mut p.limit_bytes, 1, MAX_BYTES),
        "limit in bytes (1000 full-size packets)",
    )],
    check: |_| Ok(()),
};

static FIFO: Kind<fifo::Params> = Kind {
    name: "fifo",
    summary: "first in, first out with two knobs for controllers: limit and drop",
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
    check: |_| Ok(()),
};

static CODEL: Kind<codel::Params> = Kind {
    name: "codel",
    summary: "Controlled Delay: drops at the head while the sojourn time stays above target",
    source: "RFC 8289, Linux sch_codel",
    default: codel::Params::default,
    options: &[
        opt("limit", Field::Count(|p| &mut p.limit, 1, MAX_COUNT), LIMIT),
        opt(
            "target",
            Field::Time(|p| &mut p.target, 0, MAX_TIME),
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
            Field::MaybeTime(|p| &mut p.ce_threshold, 0, MAX_TIME),
            CE_THRESHOLD,
        ),
    ],
    check: codel::Params::check,
};

static COBALT: Kind<cobalt::Params> = Kind {
    name: "cobalt",
    summary: "CoDel and BLUE together: CAKE's AQM on a queue of its own, tuned to the link's rate",
    source: "Linux sch_cake",
    default: cobalt::Params::default,
    options: &[
        opt("limit", Field::Count(|p| &mut p.limit, 1, MAX_COUNT), LIMIT),
        opt("target", Field::Time(|p| &mut p.target, 0, 4 * SEC), TARGET),
        opt(
            "interval",
            Field::Time(|p| &mut p.interval, US, 4 * SEC),
            INTERVAL,
        ),
        opt("ecn", Field::Flag(|p| &mut p.ecn, "noecn"), ECN),
    ],
    check: cobalt::Params::check,
};
