//! The order in which packets leave: by deadline, which is a packet's time of arrival plus its flow's handicap.
//!
//! The handicap is `kappa` targets times ln of the flow's service over ten round trips, relative to its mean over the active flows and
//! clamped ([`Link::excess`]). It is fixed when a packet becomes the head of its flow's queue, so one key changes per packet. With
//! `kappa` and `lead` 0 packets leave in the order of arrival; the larger `kappa` is, the more equally the flows are served.
//!
//! A packet that finds nothing of its flow queued also gets a lead, if the flow was served less than half of the mean: `lead` targets
//! for each e-fold. So calls and games, which send a packet at a time, wait little; of a burst only the first packet gets a lead.

use super::fixed::Q;
use super::link::Link;
use crate::parts::flows::FlowId;
use crate::parts::tournament::{MAX_VALUE, Tournament};
use crate::{NEVER, Nanos, SEC};

/// The deadlines of the flows' heads, in units of 2^10 ns.
#[derive(Clone, Debug)]
pub struct Deadlines {
    heads: Tournament,
    /// `kappa` targets, nanoseconds.
    scale: i64,
    /// `lead` targets, nanoseconds.
    lead: i64,
    /// The first arrival, to a unit; [`NEVER`] before it. The caller chooses the epoch of times, and deadlines end nine years
    /// after this one.
    origin: Nanos,
}

impl Default for Deadlines {
    /// Nothing is queued.
    fn default() -> Self {
        Self {
            heads: Tournament::default(),
            scale: 0,
            lead: 0,
            origin: NEVER,
        }
    }
}

/// ln 2: with less than half of the mean, a flow's lone packets get a lead.
const HALF: i64 = super::fixed::LN2_Q;
/// Added to every deadline, so that none is negative: handicaps are at least -85 s.
const BEFORE: u64 = 1 << 38;
/// Deadlines within 2^10 ns count as equal; then the flow with the lowest number goes first.
const UNIT_BITS: u32 = 10;

impl Deadlines {
    /// Takes the policy's target; `kappa` and `lead` have [`Q`] bits behind the point. Deadlines already given do not change.
    pub fn scale(&mut self, kappa: i32, lead: i32, target: Nanos) {
        let targets = |factor: i32| (i64::from(factor) * target.min(SEC).cast_signed()) >> Q;
        (self.scale, self.lead) = (targets(kappa), targets(lead));
    }

    /// Gives a flow its place by the arrival of its head; `alone`: the head found nothing of its flow queued.
    #[inline(always)]
    pub fn place(&mut self, flow: FlowId, arrival: Nanos, link: &Link, alone: bool) {
        if self.origin == NEVER {
            self.origin = arrival >> UNIT_BITS << UNIT_BITS;
        }
        let excess = link.excess(flow);
        let mut handicap = (self.scale * excess) >> Q;
        if alone {
            handicap += (self.lead * (excess + HALF).min(0)) >> Q;
        }
        let since = arrival.saturating_sub(self.origin);
        let due = since.saturating_add_signed(BEFORE.cast_signed() + handicap);
        self.heads.set(flow, (due >> UNIT_BITS).min(MAX_VALUE));
    }

    /// Removes an empty flow from the order.
    #[inline]
    pub fn remove(&mut self, flow: FlowId) {
        self.heads.remove(flow);
    }

    /// The flow whose head leaves next.
    #[inline(always)]
    pub fn next(&self) -> Option<FlowId> {
        self.heads.least().map(|(_, flow)| flow)
    }
}
