//! `fq_codel`.

use quell_qdisc::disciplines::Params;
use quell_qdisc::fq_codel;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, US};

use super::rows::*;
use super::{Built, Field, Kind, Spec};
use crate::error::Error;

impl Spec for fq_codel::Params {
    fn build(&self, _: Rate) -> Built {
        Built::queue(Params::FqCodel(self.clone()))
    }
}

pub(super) static FQ_CODEL: Kind<fq_codel::Params> = Kind {
    name: "fq_codel",
    summary: "flow queues, each with CoDel: deficit round robin, new flows first",
    source: "RFC 8290, Linux sch_fq_codel",
    default: fq_codel::Params::default,
    options: &[
        opt(
            "limit",
            Field::Count(|p| &mut p.limit, 1, MAX_COUNT),
            LIMIT_ALL,
        ),
        opt("flows", Field::Count(|p| &mut p.flows, 1, 65_536), FLOWS),
        opt(
            "target",
            Field::Time(|p| &mut p.codel.target, Duration::ZERO, MAX_TIME),
            TARGET,
        ),
        opt(
            "interval",
            Field::Time(|p| &mut p.codel.interval, US, MAX_TIME),
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
            Field::MaybeTime(|p| &mut p.codel.ce_threshold, Duration::ZERO, MAX_TIME),
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
            Field::Bytes(|p| &mut p.memory_limit, 1, MAX_BYTES),
            MEMORY,
        ),
        opt(
            "drop_batch",
            Field::Count(|p| &mut p.drop_batch, 1, MAX_COUNT),
            "largest number of packets dropped at once from the longest flow of a full queue",
        ),
    ],
    check: fq_codel::Params::check,
};
