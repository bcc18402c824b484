//! The kinds whose limit or drop probability a controller sets: one FIFO below it.

use quell_qdisc::US;
use quell_qdisc::control::{fixed, learnqueue, wqm};

use super::rows::*;
use super::{Field, Kind, Spec};

pub(super) static FIXED: Kind<fixed::Params> = Kind {
    name: "fixed",
    summary: "a FIFO whose knobs a controller sets once: what sweeps of a constant knob run",
    source: "quell",
    default: fixed::Params::default,
    options: &[
        opt(
            "limit",
            Field::MaybeCount(|p| &mut p.limit, 1, MANY),
            "packets (default: pfifo's 1000)",
        ),
        opt(
            "drop",
            Field::MaybeProbability(|p| &mut p.drop),
            "probability with which each arrival is dropped (default: 0)",
        ),
    ],
    wrap: Spec::Fixed,
    unwrap: unwrap!(Fixed),
    check: fixed::Params::check,
};

pub(super) static LEARNQUEUE: Kind<learnqueue::Params> = Kind {
    name: "learnqueue",
    summary: "a FIFO whose limit Q-learning moves by one packet each 15 ms",
    source: "Bouacida and Shihada 2019 (LearnQueue)",
    default: learnqueue::Params::default,
    options: &[
        opt(
            "delta",
            Field::Number(|p| &mut p.delta, 0.0, 1000.0),
            "weight of the delay in the reward",
        ),
        opt(
            "eta",
            Field::Number(|p| &mut p.eta, 0.0, 1000.0),
            "weight of the enqueue rate in the reward",
        ),
        opt("target", Field::Time(|p| &mut p.target, 0, LONG), TARGET),
        opt("period", Field::Time(|p| &mut p.period, US, LONG), PERIOD),
        opt(
            "initial",
            Field::Count(|p| &mut p.initial, 1, 65_536),
            "first limit, packets",
        ),
        opt(
            "max",
            Field::Count(|p| &mut p.max_size, 2, 65_536),
            "largest limit, packets",
        ),
        opt(
            "alpha",
            Field::MaybeProbability(|p| &mut p.alpha),
            "rate of learning (default: 1 / visits)",
        ),
        opt(
            "epsilon",
            Field::Probability(|p| &mut p.epsilon),
            "first probability of exploring",
        ),
        opt(
            "epsilon_min",
            Field::Probability(|p| &mut p.epsilon_min),
            "where its decay ends",
        ),
        opt(
            "decay",
            Field::Probability(|p| &mut p.decay),
            "factor on epsilon and on 1 - gamma for each pair discovered",
        ),
        opt(
            "gamma",
            Field::Probability(|p| &mut p.gamma),
            "first discount",
        ),
        opt(
            "gamma_max",
            Field::Probability(|p| &mut p.gamma_max),
            "where its growth ends",
        ),
        opt(
            "packet",
            Field::Bytes32(|p| &mut p.packet_bytes, 1, 65_535),
            "bytes of a packet in max_delay",
        ),
        opt(
            "basic_rate",
            Field::Rate(|p| &mut p.basic_bps, 1000, 1 << 50),
            "rate of max_delay: 802.11n's basic one",
        ),
        opt(
            "current_max_delay",
            Field::Flag(|p| &mut p.current_max_delay, ""),
            "max_delay is that of the present limit, not of the largest one",
        ),
        opt(
            "delayed_credit",
            Field::Flag(|p| &mut p.delayed_credit, ""),
            "a period's reward goes to the action before it, not to the one after",
        ),
        opt(
            "literal_update",
            Field::Flag(|p| &mut p.literal_update, ""),
            "the update as algorithm 1 prints it, without alpha on the bracket",
        ),
        opt(
            "printed_gamma",
            Field::Flag(|p| &mut p.printed_gamma, ""),
            "gamma as printed: 1 - 0.995 gamma",
        ),
        opt(
            "bytes_max_delay",
            Field::Flag(|p| &mut p.bytes_max_delay, ""),
            "max_delay as equation 13 prints it: bytes over bit/s",
        ),
        opt(
            "fixed_point",
            Field::Flag(|p| &mut p.fixed_point, ""),
            "integers, as on the paper's boards",
        ),
        opt(
            "as_published",
            as_published!(),
            "alpha 0.1 initial max current_max_delay literal_update printed_gamma bytes_max_delay fixed_point",
        ),
    ],
    wrap: Spec::LearnQueue,
    unwrap: unwrap!(LearnQueue),
    check: learnqueue::Params::check,
};

pub(super) static WQM: Kind<wqm::Params> = Kind {
    name: "wqm",
    summary: "WQM, reconstructed: a FIFO whose limit follows how long its backlog takes to drain",
    source: "Showail, Jamshaid and Shihada 2014 (slides); thresholds and steps are quell's",
    default: wqm::Params::default,
    options: &[
        opt(
            "target",
            Field::Time(|p| &mut p.target, 0, LONG),
            "the backlog should drain within this",
        ),
        opt(
            "low",
            Field::MaybeTime(|p| &mut p.low, 0, LONG),
            "draining faster than this leaves room (default: half of target)",
        ),
        opt(
            "arrt",
            Field::Time(|p| &mut p.arrt, 0, LONG),
            "the first limit is the rate times this",
        ),
        opt(
            "interval",
            Field::Time(|p| &mut p.interval, US, LONG),
            PERIOD,
        ),
        opt(
            "packet",
            Field::Bytes32(|p| &mut p.packet_bytes, 1, 65_535),
            "bytes of a packet",
        ),
        opt(
            "ampdu",
            Field::Count(|p| &mut p.ampdu, 1, 65_536),
            "packets of a full A-MPDU",
        ),
        opt(
            "no_aggregation",
            Field::Flag(|p| &mut p.no_aggregation, ""),
            "without A-MPDUs min is 2 and step 1",
        ),
        opt(
            "min",
            Field::MaybeCount(|p| &mut p.min, 1, MANY),
            "least limit, packets (default: ampdu)",
        ),
        opt(
            "max",
            Field::Count(|p| &mut p.max, 1, MANY),
            "largest limit, packets",
        ),
        opt(
            "step",
            Field::MaybeCount(|p| &mut p.step, 1, MANY),
            "packets that an alarm adds or takes (default: ampdu)",
        ),
        opt(
            "alarms",
            Field::Count(|p| &mut p.alarms, 1, 1000),
            "periods in a row that make an alarm",
        ),
        opt(
            "weight",
            Field::Number(|p| &mut p.weight, 0.0, 1.0),
            "of a new reading of the rate",
        ),
        opt(
            "efficiency",
            Field::Number(|p| &mut p.efficiency, 0.0, 1.0),
            "share of the rate that carries payload",
        ),
        opt(
            "contenders",
            Field::MaybeCount(|p| &mut p.contenders, 1, 65_536),
            "stations that share the air (default: the measured share)",
        ),
        opt(
            "least_share",
            Field::Number(|p| &mut p.least_share, 0.0, 1.0),
            "the share of the air is at least this",
        ),
        opt(
            "restart",
            Field::Number(|p| &mut p.restart, 1.0, 1e6),
            "by what factor the rate changes for a new start",
        ),
    ],
    wrap: Spec::Wqm,
    unwrap: unwrap!(Wqm),
    check: wqm::Params::check,
};
