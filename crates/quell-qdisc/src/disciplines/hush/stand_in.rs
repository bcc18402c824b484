//! The stand-in: fq_codel's law with its default parameters, and deficit round robin, which serve
//! the queues while the policy is not trusted.

use crate::disciplines::fq_codel::Source;
use crate::parts::flows::{FlowId, Flows, of_flow};
use crate::time::{Duration, Instant};
use crate::{Dequeued, Drops, Packet, codel};

/// A CoDel for each queue.
#[derive(Clone, Debug)]
pub struct StandIn {
    codel: codel::Params,
    laws: Vec<codel::State>,
    stats: codel::Stats,
}

impl StandIn {
    /// Marks ECN-capable packets if `ecn`.
    pub fn new(ecn: bool) -> Self {
        Self {
            codel: codel::Params {
                ecn,
                ..codel::Params::default()
            },
            laws: Vec::new(),
            stats: codel::Stats::default(),
        }
    }

    /// CoDel's target.
    pub fn target(&self) -> Duration {
        self.codel.target
    }

    /// Packets marked.
    pub fn marks(&self) -> u64 {
        self.stats.marks
    }

    /// Clears the laws' state, which is from the last use of the stand-in.
    pub fn forget(&mut self) {
        self.laws.clear();
    }

    /// The next packet, and its queue.
    pub fn next<P: Packet, D: Drops<P>>(
        &mut self,
        now: Instant,
        flows: &mut Flows<P>,
        quantum: u32,
        drops: &mut D,
    ) -> Option<(FlowId, P)> {
        loop {
            let flow = flows.next_turn(quantum)?;
            if let Some(packet) = self.next_of(now, flows, flow, drops) {
                flows.get_mut(flow).deficit -= packet.len().cast_signed();
                return Some((flow, packet));
            }
            flows.found_empty(flow);
        }
    }

    /// The next packet of one queue.
    pub fn next_of<P: Packet, D: Drops<P>>(
        &mut self,
        now: Instant,
        flows: &mut Flows<P>,
        flow: FlowId,
        drops: &mut D,
    ) -> Option<P> {
        let state = of_flow(&mut self.laws, flow);
        let queue = &mut Source { flows, flow };
        match codel::dequeue(&self.codel, state, &mut self.stats, now, queue, drops) {
            Dequeued::Packet(packet) => Some(packet),
            _ => None,
        }
    }
}
