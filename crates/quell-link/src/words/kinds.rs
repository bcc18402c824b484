//! Every kind: what its words parse into and what they build. Names, units and defaults are `tc`'s.

use quell_qdisc::control::{Control, Controller, fixed, wqm};
use quell_qdisc::{
    Discipline, Packet, Qdisc, cake, cobalt, codel, dualpi2, fifo, fq, fq_codel, fq_pie, l4s, pie,
    pie_ns3,
};

use super::a3c::{self, A3C_L4S};
use super::learnqueue::{self, LEARNQUEUE};
use super::lfq::{self, LFQ};
use super::red::{self, RED};
use super::rlaqm::{self, RLAQM};
use super::{AnyKind, controlled, fair, single};
use crate::error::Error;

/// The parameters of a queue and, where it has one, of its controller.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// `pfifo`, `bfifo` and `fifo`.
    Fifo(fifo::Params),
    /// `red`, whose defaults follow from the link's rate.
    Red(red::Words),
    /// `codel`.
    Codel(codel::Params),
    /// `pie`.
    Pie(pie::Params),
    /// `fq`.
    Fq(fq::Params),
    /// `fq_codel`.
    FqCodel(fq_codel::Params),
    /// `fq_pie`.
    FqPie(fq_pie::Params),
    /// `cobalt`.
    Cobalt(cobalt::Params),
    /// `cake`; without a bandwidth of its own the link is its shaper.
    Cake(cake::Params),
    /// `dualpi2`.
    DualPi2(dualpi2::Params),
    /// `l4s`.
    L4s(l4s::Params),
    /// `a3c_l4s`.
    A3cL4s(a3c::Words),
    /// `fixed`.
    Fixed(fixed::Params),
    /// `learnqueue`.
    LearnQueue(learnqueue::Words),
    /// `rlaqm`.
    RlAqm(rlaqm::Words),
    /// `wqm`.
    Wqm(wqm::Params),
    /// `lfq`.
    Lfq(lfq::Words),
}

impl Spec {
    pub(super) fn build<P: Packet>(&self, rate_bps: u64) -> (Qdisc<P>, Controller) {
        let mut controller = match self.clone() {
            Spec::Fixed(params) => Controller::Fixed(fixed::Fixed::new(params)),
            Spec::LearnQueue(words) => Controller::LearnQueue(words.controller()),
            Spec::A3cL4s(words) => words.controller(),
            Spec::RlAqm(words) => words.controller(),
            Spec::Wqm(params) => Controller::Wqm(wqm::Wqm::new(params, rate_bps)),
            _ => Controller::None,
        };
        let qdisc = match self.clone() {
            Spec::Fifo(params) => fifo::Fifo::new(params).into(),
            Spec::Red(words) => quell_qdisc::red::Red::new(words.params(rate_bps)).into(),
            Spec::Codel(params) => codel::Codel::new(params).into(),
            Spec::Pie(params) if params.ns3_2018 => pie_ns3::PieNs3::new(params).into(),
            Spec::Pie(params) => pie::Pie::new(params).into(),
            Spec::Fq(params) => fq::Fq::new(params).into(),
            Spec::FqCodel(params) => fq_codel::FqCodel::new(params).into(),
            Spec::FqPie(params) => fq_pie::FqPie::new(params).into(),
            Spec::Cobalt(params) => cobalt::Cobalt::new(on_link(params, rate_bps)).into(),
            Spec::Cake(mut params) => {
                if params.bandwidth.is_none() {
                    params.bandwidth = Some(rate_bps.max(512));
                    params.shape = false;
                }
                cake::Cake::new(params).into()
            }
            Spec::DualPi2(params) => dualpi2::DualPi2::new(params).into(),
            Spec::Lfq(words) => words.queue().into(),
            Spec::L4s(params) => l4s::L4s::new(params).into(),
            Spec::A3cL4s(words) => l4s::L4s::new(words.queue).into(),
            Spec::Fixed(_) | Spec::LearnQueue(_) | Spec::RlAqm(_) | Spec::Wqm(_) => {
                let mut fifo = fifo::Fifo::new(fifo::Params {
                    selective: matches!(self, Spec::Wqm(p) if p.selective),
                    ..fifo::Params::default()
                });
                fifo.set_knobs(&controller.initial());
                fifo.into()
            }
        };
        (qdisc, controller)
    }

    /// What only a link's rate can show to be wrong.
    pub(super) fn check(&self, rate_bps: u64) -> Result<(), Error> {
        match self {
            Spec::Red(words) => words.params(rate_bps).check().map_err(Error::new),
            _ => Ok(()),
        }
    }
}

/// CAKE's AQM as CAKE tunes it to a link; on the slowest links within its range.
fn on_link(params: cobalt::Params, rate_bps: u64) -> cobalt::Params {
    let longest = 4 * quell_qdisc::SEC;
    let tuned = params.for_rate(rate_bps);
    cobalt::Params {
        target: tuned.target.min(longest),
        interval: tuned.interval.min(longest),
        ..tuned
    }
}

pub(super) static KINDS: &[&dyn AnyKind] = &[
    &single::PFIFO,
    &single::BFIFO,
    &single::FIFO,
    &RED,
    &single::CODEL,
    &single::PIE,
    &fair::FQ,
    &fair::FQ_CODEL,
    &fair::FQ_PIE,
    &single::COBALT,
    &fair::CAKE,
    &single::DUALPI2,
    &fair::L4S,
    &A3C_L4S,
    &controlled::FIXED,
    &LEARNQUEUE,
    &RLAQM,
    &controlled::WQM,
    &LFQ,
];
