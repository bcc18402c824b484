//! The kinds with a queue for each flow.

use quell_qdisc::disciplines::Params;
use quell_qdisc::dualpi2::Classifier;
use quell_qdisc::{MS, US, fq, fq_codel, fq_pie, l4s};

use super::rows::*;
use super::{AnyKind, Built, Field, Kind, Spec, cake};
use crate::error::Error;

pub(super) static KINDS: &[&dyn AnyKind] = &[&FQ, &FQ_CODEL, &FQ_PIE, &cake::CAKE, &L4S];

impl Spec for fq::Params {
    fn build(&self, _: u64) -> Built {
        Built::queue(Params::Fq(self.clone()))
    }
}

impl Spec for fq_codel::Params {
    fn build(&self, _: u64) -> Built {
        Built::queue(Params::FqCodel(self.clone()))
    }
}

impl Spec for fq_pie::Params {
    fn build(&self, _: u64) -> Built {
        Built::queue(Params::FqPie(self.clone()))
    }
}

impl Spec for l4s::Params {
    fn build(&self, _: u64) -> Built {
        Built::queue(Params::L4s(self.clone()))
    }
}

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
            "bytes that a new flow may send at once",
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
            "flows that it can distinguish, a power of two",
        ),
    ],
    check: fq::Params::check,
};

static FQ_CODEL: Kind<fq_codel::Params> = Kind {
    name: "fq_codel",
    summary: "flow queues, each with CoDel: deficit round robin, new flows first",
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
            "largest number of packets dropped at once from the longest flow of a full queue",
        ),
    ],
    check: fq_codel::Params::check,
};

static FQ_PIE: Kind<fq_pie::Params> = Kind {
    name: "fq_pie",
    summary: "flow queues, each with PIE: deficit round robin, new flows first",
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
    check: fq_pie::Params::check,
};

pub(super) static L4S: Kind<l4s::Params> = Kind {
    name: "l4s",
    summary: "pairs of a classic and an L4S sub-queue in deficit round robin, PIE in each, coupled by the square",
    source: "A3C-L4S (FreeBSD dn_sched_l4s), RFC 8033, RFC 9332",
    default: l4s::Params::default,
    options: &[
        opt("limit", Field::Count(|p| &mut p.limit, 1, MANY), LIMIT_ALL),
        opt(
            "pairs",
            Field::Count(|p| &mut p.pairs, 1, 1024),
            "pairs of sub-queues",
        ),
        opt(
            "quantum",
            Field::Bytes32(|p| &mut p.quantum, 1, QUANTUM),
            QUANTUM_MEANS,
        ),
        opt("target", Field::Time(|p| &mut p.target, 0, LONG), TARGET),
        opt(
            "tupdate",
            Field::Time(|p| &mut p.tupdate, US, LONG),
            TUPDATE,
        ),
        opt(
            "max_burst",
            Field::Time(|p| &mut p.max_burst, 0, LONG),
            "time without drops after a sub-queue becomes active",
        ),
        opt(
            "alpha",
            Field::Number(|p| &mut p.alpha, 0.0, 7.0),
            "weight of the distance from target, 1/s",
        ),
        opt(
            "beta",
            Field::Number(|p| &mut p.beta, 0.0, 7.0),
            "weight of the change of delay, 1/s",
        ),
        opt(
            "coupling_factor",
            Field::Count(|p| &mut p.coupling_factor, 1, 255),
            "k: an L4S sub-queue's marking probability is at least k times its partner's p'",
        ),
        opt(
            "max_ecnth",
            Field::MaybeProbability(|p| &mut p.max_ecnth),
            "mark below this probability and drop from it on (default: always mark)",
        ),
        opt(
            "any_ect",
            any_ect!(classifier),
            "packets for the L4S sub-queues: every ECN-capable packet, or only ECT(1) and CE",
        ),
        opt(
            "ineffective_coupling",
            Field::Switch {
                off: "",
                set: |p, _| p.coupling = l4s::Coupling::Published,
                get: |p| p.coupling == l4s::Coupling::Published,
            },
            "the coupled probability only decides between mark and drop, as in the published kernel file",
        ),
        opt(
            "as_published",
            as_published!(),
            "any_ect max_ecnth 0.1 ineffective_coupling",
        ),
    ],
    check: l4s::Params::check,
};
