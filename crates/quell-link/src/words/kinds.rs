//! The table of kinds: names, options, ranges and what they build. Names, units and defaults are `tc`'s.

use quell_qdisc::control::Controller;
use quell_qdisc::{MS, MTU, Nanos, Packet, Qdisc, SEC, US, codel, fifo, fq, fq_codel, fq_pie, pie};

use super::{AnyKind, Field, Kind, Opt};
use crate::error::Error;

/// The parameters of a queue and, where it has one, of its controller.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// `pfifo`, `bfifo` and `fifo`.
    Fifo(fifo::Params),
    /// `codel`.
    Codel(codel::Params),
    /// `pie`.
    Pie(pie::Params),
    /// `fq`.
    Fq(fq::Params),
    /// `fq_codel`.
    FqCodel(fq_codel::Params),
    /// `fq_pie`.
    FqPie(fq_pie::Params),
}

impl Spec {
    pub(super) fn build<P: Packet>(&self, _rate_bps: u64) -> (Qdisc<P>, Controller) {
        let qdisc = match self.clone() {
            Spec::Fifo(params) => fifo::Fifo::new(params).into(),
            Spec::Codel(params) => codel::Codel::new(params).into(),
            Spec::Pie(params) => pie::Pie::new(params).into(),
            Spec::Fq(params) => fq::Fq::new(params).into(),
            Spec::FqCodel(params) => fq_codel::FqCodel::new(params).into(),
            Spec::FqPie(params) => fq_pie::FqPie::new(params).into(),
        };
        (qdisc, Controller::None)
    }
}

pub(super) static KINDS: &[&dyn AnyKind] =
    &[&PFIFO, &BFIFO, &FIFO, &CODEL, &PIE, &FQ, &FQ_CODEL, &FQ_PIE];

/// Packets that any queue may be told to hold.
const MANY: u32 = 1_000_000_000;
/// Bytes that any queue may be told to hold.
const MUCH: u64 = 1 << 40;
/// Longest target or interval.
const LONG: Nanos = 10 * SEC;
/// Largest quantum, bytes.
const QUANTUM: u32 = 1 << 20;

macro_rules! unwrap {
    ($variant:ident) => {
        |spec| match spec {
            Spec::$variant(params) => Some(params),
            _ => None,
        }
    };
}

/// A row of a kind's options.
const fn opt<T>(name: &'static str, field: Field<T>, meaning: &'static str) -> Opt<T> {
    Opt {
        name,
        field,
        meaning,
    }
}

const LIMIT: &str = "packets it holds";
const LIMIT_ALL: &str = "packets in the whole queue";
const FLOWS: &str = "flows that it can tell apart";
const MEMORY: &str = "bytes in the whole queue";
const QUANTUM_MEANS: &str = "bytes of each flow per round";
const INTERVAL: &str = "how long the delay may stay above target: a worst-case round trip";
const TUPDATE: &str = "time between updates of the probability";
const ALPHA: &str = "weight of the distance from target, in sixteenths";
const BETA: &str = "weight of the change of delay, in sixteenths";
const PIE_ECN: &str = "mark instead of dropping while the probability is at most ecn_prob";
const ECN_PROB: &str = "percent up to which ecn marks";
const BYTEMODE: &str = "scale the probability by packet size";
const ESTIMATOR: &str = "delay from queue length and estimated rate instead of timestamps";
const ECN: &str = "mark ECN-capable packets instead of dropping them";
const TARGET: &str = "delay to hold";
const CE_THRESHOLD: &str = "mark every ECN-capable packet that waited longer";

const FIFO_LIMIT: Opt<fifo::Params> = opt(
    "limit",
    Field::Count(|p| &mut p.limit_packets, 1, MANY),
    LIMIT,
);

static PFIFO: Kind<fifo::Params> = Kind {
    name: "pfifo",
    summary: "first in, first out; what arrives when it is full is dropped",
    source: "Linux sch_fifo",
    default: fifo::Params::default,
    options: &[FIFO_LIMIT],
    wrap: Spec::Fifo,
    unwrap: unwrap!(Fifo),
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
        Field::Bytes(|p| &mut p.limit_bytes, 1, MUCH),
        "bytes it holds (1000 full-size packets)",
    )],
    wrap: Spec::Fifo,
    unwrap: unwrap!(Fifo),
    check: |_| Ok(()),
};

static FIFO: Kind<fifo::Params> = Kind {
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

static CODEL: Kind<codel::Params> = Kind {
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

static PIE: Kind<pie::Params> = Kind {
    name: "pie",
    summary: "Proportional Integral controller Enhanced: drops arrivals with a probability that steers the delay",
    source: "RFC 8033, Linux sch_pie",
    default: pie::Params::default,
    options: &[
        opt("limit", Field::Count(|p| &mut p.limit, 1, MANY), LIMIT),
        opt("target", Field::Time(|p| &mut p.target, 0, LONG), TARGET),
        opt(
            "tupdate",
            Field::Time(|p| &mut p.tupdate, MS, LONG),
            TUPDATE,
        ),
        opt("alpha", Field::Count(|p| &mut p.alpha, 0, 32), ALPHA),
        opt("beta", Field::Count(|p| &mut p.beta, 0, 32), BETA),
        opt("ecn", Field::Flag(|p| &mut p.ecn, "noecn"), PIE_ECN),
        opt(
            "ecn_prob",
            Field::Count(|p| &mut p.ecn_prob, 0, 100),
            ECN_PROB,
        ),
        opt(
            "bytemode",
            Field::Flag(|p| &mut p.bytemode, "nobytemode"),
            BYTEMODE,
        ),
        opt(
            "dq_rate_estimator",
            Field::Flag(|p| &mut p.dq_rate_estimator, "no_dq_rate_estimator"),
            ESTIMATOR,
        ),
    ],
    wrap: Spec::Pie,
    unwrap: unwrap!(Pie),
    check: pie::Params::check,
};

static FQ: Kind<fq::Params> = Kind {
    name: "fq",
    summary: "fair queue: deficit round robin over flows, each drop-tail; without sch_fq's pacing and bands",
    source: "Linux sch_fq",
    default: fq::Params::default,
    options: &[
        opt("limit", Field::Count(|p| &mut p.limit, 1, MANY), LIMIT_ALL),
        opt(
            "flow_limit",
            Field::Count(|p| &mut p.flow_limit, 1, MANY),
            "packets of each flow",
        ),
        opt(
            "quantum",
            Field::Bytes32(|p| &mut p.quantum, 1, QUANTUM),
            QUANTUM_MEANS,
        ),
        opt(
            "initial_quantum",
            Field::Bytes32(|p| &mut p.initial_quantum, 0, i32::MAX as u32),
            "bytes that a flow never seen may send at once",
        ),
        opt(
            "refill_delay",
            Field::Time(|p| &mut p.refill_delay, 0, LONG),
            "a flow idle for longer starts with at least a quantum",
        ),
        opt(
            "ce_threshold",
            Field::Time(|p| &mut p.ce_threshold, 0, LONG),
            CE_THRESHOLD,
        ),
        opt(
            "buckets",
            Field::Count(|p| &mut p.flows, 1, 65_536),
            "flows that it can tell apart, a power of two",
        ),
    ],
    wrap: Spec::Fq,
    unwrap: unwrap!(Fq),
    check: fq::Params::check,
};

static FQ_CODEL: Kind<fq_codel::Params> = Kind {
    name: "fq_codel",
    summary: "flow queues with CoDel each: deficit round robin, new flows first",
    source: "RFC 8290, Linux sch_fq_codel",
    default: fq_codel::Params::default,
    options: &[
        opt("limit", Field::Count(|p| &mut p.limit, 1, MANY), LIMIT_ALL),
        opt("flows", Field::Count(|p| &mut p.flows, 1, 65_536), FLOWS),
        opt(
            "target",
            Field::Time(|p| &mut p.codel.target, 0, LONG),
            TARGET,
        ),
        opt(
            "interval",
            Field::Time(|p| &mut p.codel.interval, US, LONG),
            INTERVAL,
        ),
        opt(
            "quantum",
            Field::Bytes32(|p| &mut p.quantum, 256, QUANTUM),
            QUANTUM_MEANS,
        ),
        opt("ecn", Field::Flag(|p| &mut p.codel.ecn, "noecn"), ECN),
        opt(
            "ce_threshold",
            Field::MaybeTime(|p| &mut p.codel.ce_threshold, 0, LONG),
            CE_THRESHOLD,
        ),
        opt(
            "ce_threshold_selector",
            Field::Other {
                syntax: "VALUE/MASK",
                set: |p, text| {
                    let two_bits = |s: &str| s.parse::<u8>().ok().filter(|b| *b < 4);
                    let pair = text.split_once('/');
                    let pair = pair.and_then(|(v, m)| Some((two_bits(v)?, two_bits(m)?)));
                    (p.codel.ce_selector, p.codel.ce_mask) = pair.ok_or_else(|| {
                        Error::new(format!("\"{text}\" does not select an ECN field"))
                            .remedy("write VALUE/MASK, each 0 to 3: 1/3 selects ECT(1)")
                    })?;
                    Ok(())
                },
                get: |p| format!("{}/{}", p.codel.ce_selector, p.codel.ce_mask),
            },
            "ce_threshold is for packets whose ECN field under the mask has the value (1/3: ECT(1))",
        ),
        opt(
            "memory_limit",
            Field::Bytes(|p| &mut p.memory_limit, 1, MUCH),
            MEMORY,
        ),
        opt(
            "drop_batch",
            Field::Count(|p| &mut p.drop_batch, 1, MANY),
            "packets that are dropped at once, at most, from the fattest flow of a full queue",
        ),
    ],
    wrap: Spec::FqCodel,
    unwrap: unwrap!(FqCodel),
    check: fq_codel::Params::check,
};

static FQ_PIE: Kind<fq_pie::Params> = Kind {
    name: "fq_pie",
    summary: "flow queues with PIE each: deficit round robin, new flows first",
    source: "Linux sch_fq_pie",
    default: fq_pie::Params::default,
    options: &[
        opt("limit", Field::Count(|p| &mut p.limit, 1, MANY), LIMIT_ALL),
        opt("flows", Field::Count(|p| &mut p.flows, 1, 65_536), FLOWS),
        opt(
            "target",
            Field::Time(|p| &mut p.pie.target, 0, LONG),
            TARGET,
        ),
        opt(
            "tupdate",
            Field::Time(|p| &mut p.pie.tupdate, MS, LONG),
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
            Field::Bytes(|p| &mut p.memory_limit, 1, MUCH),
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
    wrap: Spec::FqPie,
    unwrap: unwrap!(FqPie),
    check: fq_pie::Params::check,
};
