//! Choice of the victim: the flow with the highest score, found without visiting every flow.
//!
//! A flow's score is its bytes queued plus shares of its recent and its steady service. The shares
//! follow the target: on every link, a flow that uses the whole link counts as if it had `service`
//! plus `steady` targets queued. So a flow whose burst fills the queue by itself is the victim, and
//! among flows with one packet each it is the one with the most service.
//!
//! A tournament holds an upper bound of each flow's score. Only an arrival or larger shares raise a
//! score. The flow of an arrival is noted; when the shares grow, every flow is. A search first
//! updates the bounds of the noted flows. It then lowers the highest bound to its flow's score
//! until the highest bound is exact. This costs one update for each noted flow, and one for each
//! bound that is too high: at most all flows, after a period of the gauges. Among equal scores the
//! flow with the lowest number is found.

use super::fixed::{self, Q};
use super::link::{Link, MEMORY};
use super::model::Model;
use crate::Packet;
use crate::parts::flows::{FlowId, Flows, of_flow};
use crate::parts::tournament::Tournament;
use crate::time::Duration;

/// Shares of a flow's service that count as if they were queued, with [`Q`] fractional bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    service: u32,
    steady: u32,
}

/// The largest share: with it, the departure of a packet of 40 bytes or more raises no score. A
/// `steady` of 2 reaches it at a target of 70 ms.
const LARGEST: u64 = 47 * fixed::ONE as u64 / 100;
/// The shares follow ln of the target, rounded down to a multiple of this, so that they seldom
/// grow.
const STEP: i64 = fixed::ONE / 4;

impl Shares {
    /// Sets the shares for a target; true if one grew.
    pub fn follow(&mut self, model: &Model, target: Duration) -> bool {
        let target = fixed::exp(fixed::ln(target.as_nanos().max(1)) / STEP * STEP);
        let of = |w: i32| {
            (u64::from(w.max(0).unsigned_abs()) * target / MEMORY.as_nanos()).min(LARGEST) as u32
        };
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

/// Upper bounds of the scores.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    bounds: Tournament,
    /// Flows noted since the last search, as a list and as flags.
    risen: Vec<FlowId>,
    is_risen: Vec<bool>,
}

/// A score as a value of the tournament, which finds the least: the highest score has the least.
fn rank(score: u32) -> u64 {
    u64::from(!score)
}

impl Scores {
    /// Notes that a flow's score may have risen.
    #[inline]
    pub fn raise(&mut self, flow: FlowId) {
        let is_risen = of_flow(&mut self.is_risen, flow);
        if !*is_risen {
            *is_risen = true;
            self.risen.push(flow);
        }
    }

    /// The flow with the highest score; 0 if there is no flow.
    pub fn highest(&mut self, score: impl Fn(FlowId) -> u32) -> FlowId {
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
    fn the_largest_score_equals_that_of_a_full_scan() {
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
                let found = scores.highest(|flow| now[flow as usize]) as usize;
                let max = *now.iter().max().unwrap();
                assert_eq!(
                    now.iter().position(|score| *score == max),
                    Some(found),
                    "step {step}"
                );
            }
        }
    }
}
