//! Every kind: what its words parse into and what they build. Names, units and defaults are `tc`'s.

use quell_qdisc::control::{fixed, wqm};
use quell_qdisc::{cake, cobalt, codel, disciplines, fifo, fq, fq_codel, fq_pie, l4s};

use super::a3c::{self, A3C_L4S};
use super::dualpi2::{self, DUALPI2};
use super::learnqueue::{self, LEARNQUEUE};
use super::lfq::{self, LFQ};
use super::pie::{self, PIE};
use super::red::{self, RED};
use super::rlaqm::{self, RLAQM};
use super::{AnyKind, Built, controlled, fair, single};
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
    Pie(pie::Words),
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
    DualPi2(dualpi2::Words),
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
    pub(super) fn build(&self, rate_bps: u64) -> Built {
        use disciplines::Params as Queue;
        let plain = |queue| Built {
            queue,
            controller: None,
        };
        let controlled = |selective, controller| Built {
            queue: Queue::Fifo(fifo::Params {
                selective,
                ..fifo::Params::default()
            }),
            controller: Some(controller),
        };
        match self.clone() {
            Spec::Fifo(params) => plain(Queue::Fifo(params)),
            Spec::Red(words) => plain(Queue::Red(words.params(rate_bps))),
            Spec::Codel(params) => plain(Queue::Codel(params)),
            Spec::Pie(words) => plain(words.queue()),
            Spec::Fq(params) => plain(Queue::Fq(params)),
            Spec::FqCodel(params) => plain(Queue::FqCodel(params)),
            Spec::FqPie(params) => plain(Queue::FqPie(params)),
            Spec::Cobalt(params) => plain(Queue::Cobalt(on_link(params, rate_bps))),
            Spec::Cake(mut params) => {
                if params.bandwidth.is_none() {
                    params.bandwidth = Some(rate_bps.max(512));
                    params.shape = false;
                }
                plain(Queue::Cake(params))
            }
            Spec::DualPi2(words) => plain(Queue::DualPi2(words.params)),
            Spec::L4s(params) => plain(Queue::L4s(params)),
            Spec::Lfq(words) => words.build(),
            Spec::A3cL4s(words) => Built {
                controller: words.controller(),
                queue: Queue::L4s(words.queue),
            },
            Spec::RlAqm(words) => Built {
                controller: words.controller(),
                ..plain(Queue::Fifo(fifo::Params::default()))
            },
            Spec::Fixed(params) => controlled(false, Box::new(fixed::Fixed::new(params))),
            Spec::LearnQueue(words) => controlled(false, Box::new(words.controller())),
            Spec::Wqm(params) => {
                let selective = params.selective;
                controlled(selective, Box::new(wqm::Wqm::new(params, rate_bps)))
            }
        }
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
    &PIE,
    &fair::FQ,
    &fair::FQ_CODEL,
    &fair::FQ_PIE,
    &single::COBALT,
    &fair::CAKE,
    &DUALPI2,
    &fair::L4S,
    &A3C_L4S,
    &controlled::FIXED,
    &LEARNQUEUE,
    &RLAQM,
    &controlled::WQM,
    &LFQ,
];
