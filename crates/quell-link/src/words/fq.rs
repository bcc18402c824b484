//! `fq`.

use quell_qdisc::disciplines::Params;
use quell_qdisc::fq;

use super::rows::*;
use super::{Built, Field, Kind, Spec};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::Duration;

impl Spec for fq::Params {
    fn build(&self, _: Rate) -> Built {
        Built::queue(Params::Fq(self.clone()))
    }
}

pub(super) static FQ: Kind<fq::Params> = Kind {
    name: "fq",
    summary: "fair queue: deficit round robin over flows, each drop-tail; without sch_fq's pacing and bands",
    source: "Linux sch_fq",
    default: fq::Params::default,
    options: &[
        opt(
            "limit",
            Field::Count(|p| &mut p.limit, 1, MAX_COUNT),
            LIMIT_ALL,
        ),
        opt(
            "flow_limit",
            Field::Count(|p| &mut p.flow_limit, 1, MAX_COUNT),
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
            Field::Time(|p| &mut p.refill_delay, Duration::ZERO, MAX_TIME),
            "a flow idle for longer starts with at least a quantum",
        ),
        opt(
            "ce_threshold",
            Field::Time(|p| &mut p.ce_threshold, Duration::ZERO, MAX_TIME),
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
