//! Which flow pays: the one with the highest score, found without a look at every flow.
//!
//! A flow's score is its bytes queued plus shares of what it was served lately and over many round
//! trips. The shares follow the target: a flow that had the whole link for that long counts as if
//! it had `service` and `steady` targets queued, on every link. A burst that fills the queue by
//! itself thus pays for it, and of flows with a packet each the one pays that takes most.
//!
//! A tournament holds for each flow an upper bound of its score. A score rises when a packet
//! arrives: its flow is noted then, and the next search begins with the bounds of those that were.
//! It then brings the highest bound down to its flow's score until that is the highest still. A
//! search costs one change for each flow that had an arrival since the last one, and one for each
//! bound that turns out too high: at most all flows, after a period of the gauges. When the shares
//! grow, every flow counts as risen. Of equal scores the flow with the lowest number is found.

use super::fixed::{self, Q};
use super::link::{Link, MEMORY};
use super::model::Model;
use crate::parts::flows::{FlowId, Flows, of_flow};
use crate::parts::tournament::Tournament;
use crate::{Nanos, Packet};

/// How much of a flow's bytes served counts as if it were queued, with [`Q`] bits behind the point.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    service: u32,
    steady: u32,
}

/// Each is at most this, so that a packet of 40 bytes or more that leaves raises no score. `steady`
/// 2 counts in full up to a target of 70 ms.
const LARGEST: u64 = 47 * fixed::ONE as u64 / 100;
/// The shares follow the target, rounded down to steps of this factor's ln, so that they seldom
/// grow.
const STEP: i64 = fixed::ONE / 4;

impl Shares {
    /// Follows the target; whether a share grew.
    pub fn follow(&mut self, model: &Model, target: Nanos) -> bool {
        let target = fixed::exp(fixed::ln(target.max(1)) / STEP * STEP);
        let of =
            |w: i32| (u64::from(w.max(0).unsigned_abs()) * target / MEMORY).min(LARGEST) as u32;
        let before = *self;
        *self = Self {
            service: of(model.service),
            steady: of(model.steady),
        };
        self.service > before.service || self.steady > before.steady
    }

    /// A flow's score; 0 without a packet.
    #[inline]
    pub fn score<P: Packet>(&self, flows: &Flows<P>, link: &Link, flow: FlowId) -> u32 {
        let queued = flows.backlog(flow);
        if queued == 0 {
            return 0;
        }
        let share = |bytes: u32, of: u32| (u64::from(bytes) * u64::from(of)) >> Q;
        let served = share(link.served(flow), self.service) + share(link.steady(flow), self.steady);
        queued.saturating_add(u32::try_from(served).unwrap_or(u32::MAX))
    }
}

/// The bounds.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    bounds: Tournament,
    /// Flows to which packets came since the last search, and which those are.
    risen: Vec<FlowId>,
    is_risen: Vec<bool>,
}

/// A score as a value of the tournament: the highest is least.
fn rank(score: u32) -> u64 {
    u64::from(!score)
}

impl Scores {
    /// A packet came to a flow.
    #[inline]
    pub fn raise(&mut self, flow: FlowId) {
        let is_risen = of_flow(&mut self.is_risen, flow);
        if !*is_risen {
            *is_risen = true;
            self.risen.push(flow);
        }
    }

    /// The flow with the highest score. There must be one.
    pub fn most(&mut self, score: impl Fn(FlowId) -> u32) -> FlowId {
        for flow in self.risen.drain(..) {
            self.is_risen[flow as usize] = false;
            self.bounds.set(flow, rank(score(flow)));
        }
        while let Some((bound, flow)) = self.bounds.least() {
            let now = rank(score(flow));
            if now == bound {
                return flow;
            }
            self.bounds.set(flow, now);
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_a_look_at_all_finds() {
        let mut rng = crate::Rng::new(1, "scores");
        let (mut scores, mut now) = (Scores::default(), Vec::new());
        for step in 0..20_000 {
            if step % 300 == 299 {
                // The shares grow.
                for (flow, score) in now.iter_mut().enumerate() {
                    *score += *score / 4;
                    scores.raise(flow as FlowId);
                }
            }
            let flow = rng.below(1 + step / 50) as usize;
            if flow >= now.len() {
                now.resize(flow + 1, 0);
            }
            if rng.below(3) > 0 {
                now[flow] += rng.below(3000) as u32;
                scores.raise(flow as FlowId);
            } else {
                now[flow] /= 2;
            }
            if rng.below(4) == 0 && now.iter().any(|score| *score > 0) {
                let found = scores.most(|flow| now[flow as usize]) as usize;
                let most = *now.iter().max().unwrap();
                assert_eq!(
                    now.iter().position(|score| *score == most),
                    Some(found),
                    "step {step}"
                );
            }
        }
    }
}
