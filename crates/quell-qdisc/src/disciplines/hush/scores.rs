//! Which flow has the highest score, without a look at every flow.
//!
//! A tournament holds for each flow an upper bound of its score. A score rises only when a packet arrives: its flow is noted then,
//! and the next search begins with the bounds of those that were. It then brings the highest bound down to its flow's score until
//! that is the highest still. A search costs one change for each flow that had an arrival since the last one, and one for each bound
//! that turns out too high: at most all flows, after a period of the gauges. Of equal scores the flow with the lowest number is
//! found.

use crate::parts::flows::{FlowId, of_flow};
use crate::parts::tournament::Tournament;

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
