//! CAKE whose bandwidth a control loop sets, for a line of varying rate.

use quell_qdisc::cake::{self, Bandwidth};
use quell_qdisc::control::{Control, cake_autorate, pace, sqm_autorate};
use quell_qdisc::disciplines;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, MS};

use super::rows::*;
use super::{AnyKind, Built, Field, Kind, Spec};

pub(super) static KINDS: &[&dyn AnyKind] = &[&CAKE_AUTORATE, &SQM_AUTORATE, &PACE];

/// Smallest rate that an option takes.
const SLOWEST: Rate = Rate::from_kbit(100);
/// Largest rate that an option takes.
const FASTEST: Rate = Rate::from_bps(1 << 50);
const INGRESS: &str = "for the download: CAKE is behind the modem and counts what it drops";

/// CAKE with an initial rate and the controller that changes it.
fn shaped(rate: Rate, ingress: bool, controller: Box<dyn Control>) -> Built {
    Built {
        queue: disciplines::Params::Cake(cake::Params {
            bandwidth: Bandwidth::Shaped(rate),
            ingress,
            ..cake::Params::default()
        }),
        controller: Some(controller),
    }
}

impl Spec for cake_autorate::Params {
    fn build(&self, _: Rate) -> Built {
        let controller = cake_autorate::CakeAutorate::new(self.clone());
        shaped(self.base, self.ingress, Box::new(controller))
    }
}

impl Spec for sqm_autorate::Params {
    fn build(&self, _: Rate) -> Built {
        let controller = sqm_autorate::SqmAutorate::new(self.clone());
        shaped(self.base, self.ingress, Box::new(controller))
    }
}

impl Spec for pace::Params {
    fn build(&self, _: Rate) -> Built {
        let controller = pace::Pace::new(self);
        shaped(self.first(), self.ingress, Box::new(controller))
    }
}

static CAKE_AUTORATE: Kind<cake_autorate::Params> = Kind {
    name: "cake_autorate",
    summary: "CAKE whose bandwidth cake-autorate's loop sets, by the delay of probes (`kind = \"ping\"`)",
    source: "lynxthecat/cake-autorate",
    default: cake_autorate::Params::default,
    options: &[
        opt(
            "min",
            Field::Rate(|p| &mut p.min, SLOWEST, FASTEST),
            "least rate",
        ),
        opt(
            "base",
            Field::Rate(|p| &mut p.base, SLOWEST, FASTEST),
            "first rate, to which it returns at low load",
        ),
        opt(
            "max",
            Field::Rate(|p| &mut p.max, SLOWEST, FASTEST),
            "largest rate",
        ),
        opt(
            "delay",
            Field::Time(|p| &mut p.delay, MS, MAX_TIME),
            "an answer counts as late above this",
        ),
        opt(
            "up",
            Field::Time(|p| &mut p.up, Duration::ZERO, MAX_TIME),
            "below this mean delay the rate rises by the largest factor",
        ),
        opt(
            "down",
            Field::Time(|p| &mut p.down, Duration::ZERO, MAX_TIME),
            "above this mean delay it falls by the largest factor",
        ),
        opt("ingress", Field::Flag(|p| &mut p.ingress, ""), INGRESS),
    ],
    check: cake_autorate::Params::check,
};

static SQM_AUTORATE: Kind<sqm_autorate::Params> = Kind {
    name: "sqm_autorate",
    summary: "CAKE whose bandwidth sqm-autorate's loop (Lua) sets, by the one-way delays of probes (`kind = \"ping\"`)",
    source: "sqm-autorate/sqm-autorate",
    default: sqm_autorate::Params::default,
    options: &[
        opt(
            "base",
            Field::Rate(|p| &mut p.base, SLOWEST, FASTEST),
            "the line's usual rate",
        ),
        opt(
            "min",
            Field::Count(|p| &mut p.min, 1, 80),
            "least rate, percent of base",
        ),
        opt(
            "delay",
            Field::Time(|p| &mut p.delay, MS, MAX_TIME),
            "delay above which the rate falls",
        ),
        opt(
            "load",
            Field::Number(|p| &mut p.load, 0.67, 0.95),
            "share of the rate above which it may rise",
        ),
        opt("ingress", Field::Flag(|p| &mut p.ingress, ""), INGRESS),
    ],
    check: sqm_autorate::Params::check,
};

static PACE: Kind<pace::Params> = Kind {
    name: "pace",
    summary: "CAKE whose bandwidth quell's own loop sets, without a least or largest rate, by the delay of probes (`kind = \"ping\"`)",
    source: "quell",
    default: pace::Params::default,
    options: &[
        opt(
            "start",
            Field::MaybeRate(|p| &mut p.start, SLOWEST, FASTEST),
            "first rate; without it 10mbit, or in `quell steer` the rate that the queue has",
        ),
        opt(
            "min",
            Field::MaybeRate(|p| &mut p.min, SLOWEST, FASTEST),
            "least rate; without it 100kbit, and without reflectors a tenth of the highest capacity of the last minutes",
        ),
        opt(
            "max",
            Field::MaybeRate(|p| &mut p.max, SLOWEST, FASTEST),
            "largest rate; without it there is no limit",
        ),
        opt(
            "target",
            Field::MaybeTime(|p| &mut p.target, Duration::ZERO, MAX_TIME),
            "delay above which the rate falls",
        ),
        opt(
            "slack",
            Field::MaybeTime(|p| &mut p.slack, Duration::ZERO, MAX_TIME),
            "more of target and drain for the deviation of the estimated capacity",
        ),
        opt(
            "drain",
            Field::MaybeTime(|p| &mut p.drain, MS, MAX_TIME),
            "time in which the modem's queue is to empty",
        ),
        opt(
            "grow",
            Field::MaybeCount(|p| &mut p.grow, 0, 1000),
            "growth of the rate per second, at least, percent",
        ),
        opt(
            "gain",
            Field::MaybeCount(|p| &mut p.gain, 0, 1000),
            "more of it for each second without delay, percent",
        ),
        opt(
            "doubt",
            Field::MaybeCount(|p| &mut p.doubt, 0, 10_000),
            "more of it for the deviation of the estimated capacity, percent",
        ),
        opt(
            "most",
            Field::MaybeCount(|p| &mut p.most, 1, 10_000),
            "growth of the rate per second, at most, percent",
        ),
        opt(
            "back",
            Field::MaybeCount(|p| &mut p.back, 10, 200),
            "the rate once the modem's queue is empty, percent of the estimated capacity",
        ),
        opt(
            "least",
            Field::MaybeCount(|p| &mut p.least, 1, 100),
            "the least rate, however long the modem's queue, percent of the estimated capacity",
        ),
        opt("ingress", Field::Flag(|p| &mut p.ingress, ""), INGRESS),
        opt(
            "nopassive",
            Field::Flag(|p| &mut p.nopassive, ""),
            "without answers to probes it does not go by the timestamps of the TCP traffic either",
        ),
    ],
    check: pace::Params::check,
};
