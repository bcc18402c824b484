//! The order in which packets leave: by deadline, a packet's time of arrival plus its flow's
//! handicap.
//!
//! The handicap is `kappa` targets times ln of the ratio of the flow's service over ten round trips
//! to the mean of the active flows, clamped ([`Link::excess`]). It is computed when a packet
//! becomes the head of its flow's queue, so only one deadline changes per packet. With `kappa` and
//! `lead` 0 packets leave in the order of arrival; with a larger `kappa` service is more equal.
//!
//! A packet that arrives when nothing of its flow is queued also gets a lead if the flow was served
//! less than half of the mean: `lead` targets per e-fold below that half. So the packets of calls
//! and games, which send one at a time, wait little. In a burst only the first packet gets a lead.

use super::fixed::Q;
use super::link::Link;
use crate::parts::flows::FlowId;
use crate::parts::tournament::{MAX_VALUE, Tournament};
use crate::time::{Duration, Instant, NEVER, SEC};

/// The deadlines of the flows' heads, in units of 2^10 ns.
#[derive(Clone, Debug)]
pub struct Deadlines {
    heads: Tournament,
    /// `kappa` targets, nanoseconds.
    scale: i64,
    /// `lead` targets, nanoseconds.
    lead: i64,
    /// Time of the first arrival, rounded down to a unit; [`NEVER`] before it. Deadlines count from
    /// here, because the caller chooses the epoch of times; they saturate after nine years.
    origin: Instant,
}

impl Default for Deadlines {
    /// An empty order.
    fn default() -> Self {
        Self {
            heads: Tournament::default(),
            scale: 0,
            lead: 0,
            origin: NEVER,
        }
    }
}

/// ln 2: a flow that was served less than half of the mean gets a lead.
const HALF: i64 = super::fixed::LN2_Q;
/// Added to every deadline so that none is negative, ns: handicaps are at least -85 s.
const BEFORE: u64 = 1 << 38;
/// Deadlines are rounded down to 2^10 ns. Of equal ones, that of the lowest flow number is first.
const UNIT_BITS: u32 = 10;

impl Deadlines {
    /// Sets the scales from `kappa` and `lead`, with [`Q`] fractional bits, and the target, of
    /// which at most 1 s counts. Deadlines already set do not change.
    pub fn scale(&mut self, kappa: i32, lead: i32, target: Duration) {
        let targets =
            |factor: i32| (i64::from(factor) * target.min(SEC).as_nanos().cast_signed()) >> Q;
        (self.scale, self.lead) = (targets(kappa), targets(lead));
    }

    /// Sets the deadline of a flow's head, which arrived at `arrival`; `alone`: nothing of the flow
    /// was queued then.
    #[inline(always)]
    pub fn place(&mut self, flow: FlowId, arrival: Instant, link: &Link, alone: bool) {
        if self.origin == NEVER {
            self.origin = Instant::from_nanos(arrival.as_nanos() >> UNIT_BITS << UNIT_BITS);
        }
        let excess = link.excess(flow);
        let mut handicap = (self.scale * excess) >> Q;
        if alone {
            handicap += (self.lead * (excess + HALF).min(0)) >> Q;
        }
        let since = arrival.saturating_since(self.origin).as_nanos();
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
