//! Kinds that identify flows by a hash: `sfb`, `hhf`.

use quell_qdisc::disciplines::Params;
use quell_qdisc::{hhf, num, sfb};

use super::rows::*;
use super::{AnyKind, Built, Field, Kind, Spec};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::Duration;

pub(super) static KINDS: &[&dyn AnyKind] = &[&SFB, &HHF];

/// The given options of `sfb`. If only one of `max` and `target` is given, the other follows from
/// it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SfbWords {
    params: sfb::Params,
    max: Option<u32>,
    target: Option<u32>,
}

impl SfbWords {
    fn params(&self) -> sfb::Params {
        let by_target = |target: u32| (u64::from(target) * 5 + 1) / 4;
        let max = self.max.unwrap_or_else(|| match self.target {
            Some(target) => num::low_u32(by_target(target).min(u32::MAX.into())),
            None => self.params.max,
        });
        let target = num::low_u32((u64::from(max) * 4).div_ceil(5));
        sfb::Params {
            max,
            target: self.target.unwrap_or(target),
            ..self.params.clone()
        }
    }
}

impl Spec for SfbWords {
    fn build(&self, _: Rate) -> Built {
        Built::queue(Params::Sfb(self.params()))
    }
}

impl Spec for hhf::Params {
    fn build(&self, _: Rate) -> Built {
        Built::queue(Params::Hhf(self.clone()))
    }
}

static SFB: Kind<SfbWords> = Kind {
    name: "sfb",
    summary: "Stochastic Fair Blue: a marking probability per bin of flows; flows that do not respond are limited",
    source: "Feng et al. 2001, Linux sch_sfb",
    default: SfbWords::default,
    options: &[
        opt(
            "rehash",
            Field::Count(|p| &mut p.params.rehash, 0, MAX_COUNT),
            "milliseconds after which the hash of flows changes; 0: never",
        ),
        opt(
            "db",
            Field::Count(|p| &mut p.params.db, 0, MAX_COUNT),
            "milliseconds before that in which the next bins learn",
        ),
        opt(
            "limit",
            Field::Count(|p| &mut p.params.limit, 1, MAX_COUNT),
            LIMIT_ALL,
        ),
        opt(
            "max",
            Field::MaybeCount(|p| &mut p.max, 1, MAX_COUNT),
            "packets of a flow's emptiest bin at which it is dropped (default: 5/4 target, or 25)",
        ),
        opt(
            "target",
            Field::MaybeCount(|p| &mut p.target, 1, MAX_COUNT),
            "packets of a bin at which its probability rises (default: 4/5 max)",
        ),
        opt(
            "increment",
            Field::Probability(|p| &mut p.params.increment),
            "step by which a probability rises",
        ),
        opt(
            "decrement",
            Field::Probability(|p| &mut p.params.decrement),
            "step by which it falls",
        ),
        opt(
            "penalty_rate",
            Field::Count(|p| &mut p.params.penalty_rate, 0, MAX_COUNT),
            "packets per second of all flows that do not respond",
        ),
        opt(
            "penalty_burst",
            Field::Count(|p| &mut p.params.penalty_burst, 0, MAX_COUNT),
            "packets that these may send at once",
        ),
    ],
    check: |words| words.params().check(),
};

static HHF: Kind<hhf::Params> = Kind {
    name: "hhf",
    summary: "Heavy-Hitter Filter: flows that send much within a short time wait in a queue that gets less of the link",
    source: "Estan and Varghese 2002, Linux sch_hhf",
    default: hhf::Params::default,
    options: &[
        opt(
            "limit",
            Field::Count(|p| &mut p.limit, 1, MAX_COUNT),
            LIMIT_ALL,
        ),
        opt(
            "quantum",
            Field::Bytes32(|p| &mut p.quantum, 1, QUANTUM),
            "bytes of the heavy hitters' queue per round",
        ),
        opt(
            "hh_limit",
            Field::Count(|p| &mut p.hh_limit, 1, MAX_COUNT),
            "heavy hitters that may be known at once",
        ),
        opt(
            "reset_timeout",
            Field::Time(|p| &mut p.reset_timeout, Duration::from_nanos(1), MAX_TIME),
            "time within which a flow's bytes are counted",
        ),
        opt(
            "admit_bytes",
            Field::Bytes32(|p| &mut p.admit_bytes, 1, u32::MAX),
            "bytes within that time that make a flow a heavy hitter",
        ),
        opt(
            "evict_timeout",
            Field::Time(
                |p| &mut p.evict_timeout,
                Duration::from_nanos(1),
                MAX_TIME.saturating_mul(100),
            ),
            "a heavy hitter that was idle for longer is none",
        ),
        opt(
            "non_hh_weight",
            Field::Count(|p| &mut p.non_hh_weight, 1, 2000),
            "quanta of the other flows for one of the heavy hitters",
        ),
    ],
    check: hhf::Params::check,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Queue;

    #[test]
    fn of_sfbs_max_and_target_each_follows_from_the_other() {
        let params = |words: &str| {
            let queue = Queue::parse(words).expect(words);
            let p = queue.spec::<SfbWords>().expect("sfb").params();
            (p.max, p.target)
        };
        // As in tc's q_sfb.c.
        assert_eq!(params("sfb"), (25, 20));
        assert_eq!(params("sfb max 10"), (10, 8));
        assert_eq!(params("sfb target 10"), (12, 10));
        assert_eq!(params("sfb target 10 max 50"), (50, 10));
    }

    #[test]
    fn rehash_is_in_milliseconds_as_in_tc() {
        let queue = Queue::parse("sfb rehash 1000 db 500").expect("sfb");
        let params = queue.spec::<SfbWords>().expect("sfb").params();
        assert_eq!((params.rehash, params.db), (1000, 500));
    }
}
