//! `dualpi2`, with options for the round trips from which its gains can be computed.

use quell_qdisc::dualpi2::{Classifier, Params, Step};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, MS, US};
use quell_qdisc::{disciplines, num};

use super::rows::*;
use super::{Built, Field, Kind, Spec};
use crate::{field, units};

/// The parsed words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    /// The queue's parameters.
    pub params: Params,
    /// Longest round trip for which the parameters are computed (default: 100 ms).
    max_rtt: Option<Duration>,
    /// Typical round trip (default: 15 ms).
    typical_rtt: Option<Duration>,
}

impl Words {
    /// Computes the parameters that follow from the round trips.
    fn tune(&mut self) {
        let max = self.max_rtt.unwrap_or(100 * MS);
        let typical = self.typical_rtt.unwrap_or(15 * MS);
        let tuned = Params::for_rtt(max, typical.min(max));
        self.params = Params {
            target: tuned.target,
            tupdate: tuned.tupdate,
            alpha: tuned.alpha,
            beta: tuned.beta,
            ..self.params.clone()
        };
    }
}

impl Spec for Words {
    fn build(&self, _: Rate) -> Built {
        Built::queue(disciplines::Params::DualPi2(self.params.clone()))
    }
}

pub(super) static DUALPI2: Kind<Words> = Kind {
    name: "dualpi2",
    summary: "dual queue: low latency for scalable congestion control, PI2 for classic, coupled by the square",
    source: "RFC 9332, Linux sch_dualpi2",
    default: Words::default,
    options: &[
        opt(
            "limit",
            Field::Count(|w| &mut w.params.limit, 1, MAX_COUNT),
            "packets in both queues",
        ),
        opt(
            "memlimit",
            Field::MaybeBytes(|w| &mut w.params.memlimit, 1, MAX_BYTES),
            "bytes in both queues (default: limit full-size packets, twice)",
        ),
        // These two options precede those that they set, so that they come first in the canonical
        // words, too.
        opt(
            "max_rtt",
            Field::Other {
                syntax: "TIME",
                set: |w, text| {
                    w.max_rtt = Some(field::time(text, MS, MAX_TIME)?);
                    w.tune();
                    Ok(())
                },
                get: |w| w.max_rtt.map_or_else(String::new, |rtt| rtt.to_string()),
            },
            "sets target, tupdate, alpha and beta for round trips up to this (RFC 9332, appendix A.1)",
        ),
        opt(
            "typical_rtt",
            Field::Other {
                syntax: "TIME",
                set: |w, text| {
                    w.typical_rtt = Some(field::time(text, US, MAX_TIME)?);
                    w.tune();
                    Ok(())
                },
                get: |w| {
                    w.typical_rtt
                        .map_or_else(String::new, |rtt| rtt.to_string())
                },
            },
            "the same for round trips that are mostly this long",
        ),
        opt(
            "target",
            Field::Time(|w| &mut w.params.target, Duration::ZERO, MAX_TIME),
            "target delay of the classic queue",
        ),
        opt(
            "tupdate",
            Field::Time(|w| &mut w.params.tupdate, US, MAX_TIME),
            TUPDATE,
        ),
        opt(
            "alpha",
            Field::Number(|w| &mut w.params.alpha, 0.0, 4e6),
            "weight of the distance from target, Hz",
        ),
        opt(
            "beta",
            Field::Number(|w| &mut w.params.beta, 0.0, 4e6),
            "weight of the change of delay, Hz",
        ),
        opt(
            "coupling_factor",
            Field::Count(|w| &mut w.params.coupling_factor, 1, 255),
            "the low-latency queue's marking probability, as a multiple of p'",
        ),
        opt(
            "step_thresh",
            Field::Other {
                syntax: "TIME|PACKETS",
                set: |w, text| {
                    w.params.step_thresh = match text.strip_suffix("pkt").or(text.strip_suffix('p'))
                    {
                        Some(n) => Step::Packets(num::low_u32(
                            units::parse_count(n)?.min(MAX_COUNT.into()),
                        )),
                        None => Step::Time(
                            units::parse_time(text)
                                .map_err(|e| e.remedy("write it as 1ms, or in packets as 5pkt"))?,
                        ),
                    };
                    Ok(())
                },
                get: |w| match w.params.step_thresh {
                    Step::Time(time) => time.to_string(),
                    Step::Packets(n) => format!("{n}pkt"),
                },
            },
            "threshold from which the low-latency queue marks",
        ),
        opt(
            "min_qlen_step",
            Field::Count(|w| &mut w.params.min_qlen_step, 0, MAX_COUNT),
            "the step spares packets that found fewer in the low-latency queue",
        ),
        opt(
            "classic_protection",
            Field::Count(|w| &mut w.params.classic_protection, 0, 100),
            "percent of the link reserved for the classic queue",
        ),
        opt(
            "any_ect",
            any_ect!(params.classifier),
            "packets for the low-latency queue: every ECN-capable packet, or only ECT(1) and CE",
        ),
        opt(
            "drop_on_overload",
            Field::Flag(|w| &mut w.params.drop_on_overload, "overflow"),
            "on overload drop from both queues, or let them overflow",
        ),
        opt(
            "drop_enqueue",
            Field::Flag(|w| &mut w.params.drop_enqueue, "drop_dequeue"),
            "where the law acts",
        ),
    ],
    check: |w| w.params.check(),
};
