//! `pfifo`, `bfifo`, and `fifo` with knobs for controllers.

use quell_qdisc::disciplines::Params;
use quell_qdisc::rate::Rate;
use quell_qdisc::{MTU, fifo};

use super::rows::*;
use super::{Built, Field, Kind, Opt, Spec};

impl Spec for fifo::Params {
    fn build(&self, _: Rate) -> Built {
        Built::queue(Params::Fifo(self.clone()))
    }
}

const FIFO_LIMIT: Opt<fifo::Params> = opt(
    "limit",
    Field::Count(|p| &mut p.limit_packets, 1, MAX_COUNT),
    LIMIT,
);

pub(super) static PFIFO: Kind<fifo::Params> = Kind {
    name: "pfifo",
    summary: "first in, first out; arrivals to a full queue are dropped",
    source: "Linux sch_fifo",
    default: fifo::Params::default,
    options: &[FIFO_LIMIT],
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
        Field::Bytes(|p| &mut p.limit_bytes, 1, MAX_BYTES),
        "limit in bytes (1000 full-size packets)",
    )],
    check: |_| Ok(()),
};

pub(super) static FIFO: Kind<fifo::Params> = Kind {
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
