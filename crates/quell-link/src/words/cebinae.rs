//! `cebinae`. By default its rate is the link's, and the length of a round follows from the rate.

use quell_qdisc::cebinae::Params;
use quell_qdisc::disciplines;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::Duration;

use super::rows::*;
use super::{Built, Field, Kind, Spec};
use crate::error::Error;

/// The given options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    params: Params,
    rate: Option<Rate>,
    dt: Option<Duration>,
}

impl Words {
    /// The parameters on a link of this rate.
    fn params(&self, rate: Rate) -> Params {
        let rate = self.rate.unwrap_or(rate).max(Rate::from_bps(1));
        let Params { limit, vdt, l, .. } = self.params;
        let dt = (self.dt).unwrap_or_else(|| Params::round_for(limit, rate, vdt + l));
        Params {
            rate,
            dt,
            ..self.params.clone()
        }
    }

    /// Checks what does not depend on the link's rate. A default round is always long enough.
    fn check(&self) -> Result<(), &'static str> {
        self.params(Rate::from_mbit(10)).check()
    }
}

impl Spec for Words {
    fn build(&self, rate: Rate) -> Built {
        Built::queue(disciplines::Params::Cebinae(self.params(rate)))
    }

    fn check_on(&self, rate: Rate) -> Result<(), Error> {
        self.params(rate).check().map_err(Error::new)
    }
}

pub(super) static CEBINAE: Kind<Words> = Kind {
    name: "cebinae",
    summary: "Cebinae: on a saturated link the largest flows are taxed, so that the others can grow",
    source: "Yu, Sonchack and Liu 2022, github.com/eniac/Cebinae",
    default: Words::default,
    options: &[
        opt(
            "limit",
            Field::Count(|p| &mut p.params.limit, 2, MAX_COUNT),
            "packets in both queues, half of them in each",
        ),
        opt(
            "rate",
            Field::MaybeRate(
                |p| &mut p.rate,
                Rate::from_kbit(1),
                Rate::from_mbit(1_000_000),
            ),
            "the rate whose use is measured (default: the link's)",
        ),
        opt(
            "dt",
            Field::MaybeTime(|p| &mut p.dt, Params::SHORTEST, Params::LONGEST),
            "length of a round (default: the smallest power of two, in ns, in which a full queue drains)",
        ),
        opt(
            "vdt",
            Field::Time(|p| &mut p.params.vdt, Duration::from_nanos(1), MAX_TIME),
            "step of the clock within a round",
        ),
        opt(
            "l",
            Field::Time(|p| &mut p.params.l, Duration::ZERO, MAX_TIME),
            "time before a round's end at which rates are computed and the next round's packets go first",
        ),
        opt(
            "p",
            Field::Count(|p| &mut p.params.p, 1, 1000),
            "rounds between two choices of the largest flows",
        ),
        opt(
            "tau",
            Field::Probability(|p| &mut p.params.tau),
            "share that the largest flows' rate is cut by",
        ),
        opt(
            "delta_port",
            Field::Probability(|p| &mut p.params.delta_port),
            "share of the rate that may be unused on a saturated link",
        ),
        opt(
            "delta_flow",
            Field::Probability(|p| &mut p.params.delta_flow),
            "flows within this share of the largest flow's rate are taxed, too",
        ),
        opt(
            "count_drops",
            Field::Flag(|p| &mut p.params.count_drops, ""),
            "buckets also count packets that are dropped, as in the authors' model",
        ),
        opt(
            "pool",
            Field::Flag(|p| &mut p.params.pool, ""),
            "the queues share limit instead of having half of it each",
        ),
    ],
    check: Words::check,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Queue;

    fn on(words: &str, rate: Rate) -> Params {
        let queue = Queue::parse(words).expect(words);
        queue.spec::<Words>().expect("cebinae").params(rate)
    }

    #[test]
    fn the_links_rate_and_a_round_that_follows_from_it_are_taken_unless_given() {
        let slow = on("cebinae limit 250", Rate::from_mbit(100));
        assert_eq!(
            (slow.rate, slow.dt),
            (Rate::from_mbit(100), Duration::from_nanos(1 << 25))
        );
        let given = on("cebinae rate 50mbit dt 67108864ns", Rate::from_mbit(100));
        assert_eq!(
            (given.rate, given.dt),
            (Rate::from_mbit(50), Duration::from_nanos(1 << 26))
        );
    }

    #[test]
    fn a_round_that_is_too_short_for_the_rest_is_refused() {
        let error = Queue::parse("cebinae dt 1ms l 1ms").expect_err("too short");
        assert!(error.to_string().contains("dt must exceed"), "{error}");
    }
}
