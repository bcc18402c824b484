//! `l4s`: the L4S queue of the A3C-L4S paper.

use quell_qdisc::disciplines::Params;
use quell_qdisc::dualpi2::Classifier;
use quell_qdisc::l4s;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, US};

use super::rows::*;
use super::{Built, Field, Kind, Spec};

impl Spec for l4s::Params {
    fn build(&self, _: Rate) -> Built {
        Built::queue(Params::L4s(self.clone()))
    }
}

pub(super) static L4S: Kind<l4s::Params> = Kind {
    name: "l4s",
    summary: "pairs of a classic and an L4S sub-queue in deficit round robin, PIE in each, coupled by the square",
    source: "A3C-L4S (FreeBSD dn_sched_l4s), RFC 8033, RFC 9332",
    default: l4s::Params::default,
    options: &[
        opt(
            "limit",
            Field::Count(|p| &mut p.limit, 1, MAX_COUNT),
            LIMIT_ALL,
        ),
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
        opt(
            "target",
            Field::Time(|p| &mut p.target, Duration::ZERO, MAX_TIME),
            TARGET,
        ),
        opt(
            "tupdate",
            Field::Time(|p| &mut p.tupdate, US, MAX_TIME),
            TUPDATE,
        ),
        opt(
            "max_burst",
            Field::Time(|p| &mut p.max_burst, Duration::ZERO, MAX_TIME),
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
