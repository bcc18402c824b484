//! The order in which packets leave: by deadline, which is a packet's time of arrival plus its flow's handicap.
//!
//! The handicap is `kappa` targets times ln of the flow's service over ten round trips, relative to the mean of the active flows and
//! clamped ([`Link::excess`]). It is fixed when a packet becomes the head of its flow's queue, so one key changes per packet. With
//! `kappa` 0 packets leave in the order of arrival; the larger it is, the more equally the flows are served.

use super::fixed::Q;
use super::link::Link;
use crate::parts::flows::FlowId;
use crate::parts::tournament::{LAST, Tournament};
use crate::{NEVER, Nanos, SEC};

/// The deadlines of the flows' heads, in units of 2^10 ns, each above its flow's number of 16 bits.
#[derive(Clone, Debug, Default)]
pub struct Deadlines {
    heads: Tournament,
    /// `kappa` targets, nanoseconds.
    scale: i64,
}

/// A deadline is 0 at this much before time 0: no handicap is less.
const BEFORE: u64 = 1 << 36;
const FLOW_BITS: u32 = 16;
/// Deadlines end here, after nine years.
const END: u64 = (1 << (64 - FLOW_BITS)) - 2;

impl Deadlines {
    /// Takes the policy's target. Heads that have their place keep it.
    pub fn scale(&mut self, kappa: i32, target: Nanos) {
        self.scale = match target {
            NEVER => 0,
            target => (i64::from(kappa) * target.min(SEC) as i64) >> Q,
        };
    }

    /// Gives a flow its place by the arrival of its head.
    #[inline(always)]
    pub fn place(&mut self, flow: FlowId, arrival: Nanos, link: &Link) {
        let handicap = (self.scale * link.excess(flow)) >> Q;
        let due = arrival.saturating_add_signed(BEFORE as i64 + handicap);
        let key = (due >> 10).min(END) << FLOW_BITS | u64::from(flow);
        self.heads.set(flow, key);
    }

    /// Takes a flow without packets out of the order.
    #[inline(always)]
    pub fn remove(&mut self, flow: FlowId) {
        self.heads.set(flow, LAST);
    }

    /// The flow whose head leaves next.
    #[inline(always)]
    pub fn next(&self) -> Option<FlowId> {
        let least = self.heads.least();
        (least != LAST).then_some((least & ((1 << FLOW_BITS) - 1)) as FlowId)
    }
}
