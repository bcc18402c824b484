//! The table of kinds: names, options, ranges and what they build. Names, units and defaults are `tc`'s.

use quell_qdisc::control::Controller;
use quell_qdisc::{MTU, Packet, Qdisc, fifo};

use super::{AnyKind, Field, Kind, Opt};

/// The parameters of a queue and, where it has one, of its controller.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// `pfifo`, `bfifo` and `fifo`.
    Fifo(fifo::Params),
}

impl Spec {
    pub(super) fn build<P: Packet>(&self, _rate_bps: u64) -> (Qdisc<P>, Controller) {
        match self {
            Spec::Fifo(params) => (fifo::Fifo::new(params.clone()).into(), Controller::None),
        }
    }
}

pub(super) static KINDS: &[&dyn AnyKind] = &[&PFIFO, &BFIFO, &FIFO];

/// Packets that any queue may be told to hold.
const MANY: u32 = 1_000_000_000;
/// Bytes that any queue may be told to hold.
const MUCH: u64 = 1 << 40;

fn fifo_of(spec: &Spec) -> Option<&fifo::Params> {
    match spec {
        Spec::Fifo(params) => Some(params),
    }
}

const LIMIT_PACKETS: Opt<fifo::Params> = Opt {
    name: "limit",
    field: Field::Count(|p| &mut p.limit_packets, 1, MANY),
    meaning: "packets it holds",
};

static PFIFO: Kind<fifo::Params> = Kind {
    name: "pfifo",
    summary: "first in, first out; what arrives when it is full is dropped",
    source: "Linux sch_fifo",
    default: fifo::Params::default,
    options: &[LIMIT_PACKETS],
    wrap: Spec::Fifo,
    unwrap: fifo_of,
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
    options: &[Opt {
        name: "limit",
        field: Field::Bytes(|p| &mut p.limit_bytes, 1, MUCH),
        meaning: "bytes it holds (1000 packets of 1514)",
    }],
    wrap: Spec::Fifo,
    unwrap: fifo_of,
    check: |_| Ok(()),
};

static FIFO: Kind<fifo::Params> = Kind {
    name: "fifo",
    summary: "first in, first out with the two knobs that controllers turn: limit and drop",
    source: "quell; the data plane of LearnQueue, WQM and RL-AQM",
    default: fifo::Params::default,
    options: &[
        LIMIT_PACKETS,
        Opt {
            name: "drop",
            field: Field::Probability(|p| &mut p.drop),
            meaning: "probability with which each arrival is dropped",
        },
    ],
    wrap: Spec::Fifo,
    unwrap: fifo_of,
    check: |_| Ok(()),
};
