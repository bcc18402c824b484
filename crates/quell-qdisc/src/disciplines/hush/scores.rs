//! Which flow has the highest score, without a look at every flow.
//!
//! Flows are in blocks, each with a bound that no score in it exceeds. A score rises only when a packet arrives, which raises the
//! bound; a search looks through the block of the highest bound, brings that down to what it finds, and is done when no other
//! bound is higher. So a packet causes the search of one block at most, whenever that comes.

use crate::parts::flows::FlowId;

/// Flows in a block.
const BLOCK: u32 = 32;

/// The bounds.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    bounds: Vec<u32>,
    flows: u32,
}

impl Scores {
    /// A flow's score has risen.
    #[inline]
    pub fn raise(&mut self, flow: FlowId, score: u32) {
        let block = (flow / BLOCK) as usize;
        if flow >= self.flows {
            self.flows = flow + 1;
            if block >= self.bounds.len() {
                self.bounds.resize(block + 1, 0);
            }
        }
        let bound = &mut self.bounds[block];
        *bound = score.max(*bound);
    }

    /// The flow with the highest score. There must be one.
    pub fn most(&mut self, score: impl Fn(FlowId) -> u32) -> FlowId {
        loop {
            let highest = self.bounds.iter().copied().max().unwrap_or(0);
            let block = self.bounds.iter().position(|b| *b == highest).unwrap_or(0);
            let first = block as u32 * BLOCK;
            let flows = first..(first + BLOCK).min(self.flows);
            let most = flows.clone().map(&score).max().unwrap_or(0);
            self.bounds[block] = most;
            if most == highest || self.bounds.iter().all(|bound| *bound <= most) {
                let of = flows.clone().find(|flow| score(*flow) == most);
                return of.unwrap_or(first);
            }
        }
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
                scores.raise(flow as FlowId, now[flow]);
            } else {
                now[flow] /= 2;
            }
            if rng.below(4) == 0 && !now.is_empty() {
                let found = scores.most(|flow| now.get(flow as usize).copied().unwrap_or(0));
                assert_eq!(
                    now[found as usize],
                    *now.iter().max().unwrap(),
                    "step {step}"
                );
            }
        }
    }
}
