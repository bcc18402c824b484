//! The kinds with one queue for all flows.

use quell_qdisc::dualpi2::{self, Classifier, Step};
use quell_qdisc::{MS, MTU, Nanos, SEC, US, cobalt, codel, fifo};

use super::rows::*;
use super::{Field, Kind, Opt, Spec};
use crate::error::Error;
use crate::units;

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

pub(super) static DUALPI2: Kind<dualpi2::Params> = Kind {
    name: "dualpi2",
    summary: "dual queue: low latency for scalable congestion control, PI2 for classic, coupled by the square",
    source: "RFC 9332, Linux sch_dualpi2",
    default: dualpi2::Params::default,
    options: &[
        opt(
            "limit",
            Field::Count(|p| &mut p.limit, 1, MANY),
            "packets in both queues",
        ),
        opt(
            "memlimit",
            Field::MaybeBytes(|p| &mut p.memlimit, 1, MUCH),
            "bytes in both queues (default: limit full-size packets, twice)",
        ),
        opt(
            "target",
            Field::Time(|p| &mut p.target, 0, LONG),
            "delay of the classic queue to hold",
        ),
        opt(
            "tupdate",
            Field::Time(|p| &mut p.tupdate, US, LONG),
            TUPDATE,
        ),
        opt(
            "alpha",
            Field::Number(|p| &mut p.alpha, 0.0, 4e6),
            "weight of the distance from target, Hz",
        ),
        opt(
            "beta",
            Field::Number(|p| &mut p.beta, 0.0, 4e6),
            "weight of the change of delay, Hz",
        ),
        opt(
            "max_rtt",
            Field::Other {
                syntax: "TIME",
                set: |p, text| {
                    let typical = p.target;
                    set_rtts(p, units::parse_time(text)?, typical)
                },
                get: |_| String::new(),
            },
            "sets target, tupdate, alpha and beta for round trips up to this (RFC 9332, appendix A.1)",
        ),
        opt(
            "typical_rtt",
            Field::Other {
                syntax: "TIME",
                set: |p, text| {
                    let max = match p.beta == dualpi2::Params::default().beta {
                        true => 100 * MS,
                        // max_rtt came before: beta is 0.3 / max_rtt.
                        false => (0.3 / p.beta * SEC as f64) as Nanos,
                    };
                    set_rtts(p, max, units::parse_time(text)?)
                },
                get: |_| String::new(),
            },
            "the same for round trips that are mostly this long; after max_rtt",
        ),
        opt(
            "coupling_factor",
            Field::Count(|p| &mut p.coupling_factor, 1, 255),
            "the low-latency queue is marked so many times as often as p'",
        ),
        opt(
            "step_thresh",
            Field::Other {
                syntax: "TIME|PACKETS",
                set: |p, text| {
                    p.step_thresh = match text.strip_suffix("pkt").or(text.strip_suffix('p')) {
                        Some(n) => Step::Packets(units::parse_count(n)?.min(MANY.into()) as u32),
                        None => Step::Time(
                            units::parse_time(text)
                                .map_err(|e| e.remedy("write it as 1ms, or in packets as 5pkt"))?,
                        ),
                    };
                    Ok(())
                },
                get: |p| match p.step_thresh {
                    Step::Time(time) => units::format_time(time),
                    Step::Packets(n) => format!("{n}pkt"),
                },
            },
            "where marking of the low-latency queue begins",
        ),
        opt(
            "min_qlen_step",
            Field::Count(|p| &mut p.min_qlen_step, 0, MANY),
            "the step spares packets that found fewer in the low-latency queue",
        ),
        opt(
            "classic_protection",
            Field::Count(|p| &mut p.classic_protection, 0, 100),
            "percent of the link that the classic queue keeps",
        ),
        opt(
            "any_ect",
            any_ect!(),
            "who goes to the low-latency queue: every ECN-capable packet, or only ECT(1) and CE",
        ),
        opt(
            "drop_on_overload",
            Field::Flag(|p| &mut p.drop_on_overload, "overflow"),
            "on overload drop from both queues, or let them overflow",
        ),
        opt(
            "drop_enqueue",
            Field::Flag(|p| &mut p.drop_enqueue, "drop_dequeue"),
            "where the law acts",
        ),
    ],
    wrap: Spec::DualPi2,
    unwrap: unwrap!(DualPi2),
    check: dualpi2::Params::check,
};

fn set_rtts(params: &mut dualpi2::Params, max: Nanos, typical: Nanos) -> Result<(), Error> {
    if !(MS..=LONG).contains(&max) || !(US..=LONG).contains(&typical) {
        return Err(Error::new("out of range").remedy("write 1ms to 10s"));
    }
    let tuned = dualpi2::Params::for_rtt(max, typical.min(max));
    *params = dualpi2::Params {
        target: tuned.target,
        tupdate: tuned.tupdate,
        alpha: tuned.alpha,
        beta: tuned.beta,
        ..params.clone()
    };
    Ok(())
}
