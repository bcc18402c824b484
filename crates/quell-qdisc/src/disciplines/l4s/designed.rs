//! The coupling as the paper states it.
//!
//! A classic sub-queue's packets are dropped (marked, if ECN-capable) with p_C = p'^2; an L4S
//! sub-queue's are marked with p_L = max(own p', k p' of its classic partner). Where the paper does
//! not specify the behaviour, this follows RFC 9332, section 4.2.3: from k p' = 1 on, the L4S
//! sub-queue drops with p_C and marks the rest, and the classic one no longer marks. The own p' of
//! an L4S sub-queue may exceed 1: packets are then dropped with the excess as probability, and the
//! rest are marked. PIE's early exits apply only to PIE's own probability. The coupling does not
//! act while the pair holds at most 1600 bytes. Packets are selected independently: PIE's
//! de-randomisation (RFC 8033, section 5.4) would select hardly more than half as many as p_C, and
//! so undo the balance that the square provides.

use super::Params;
use super::law::{Fate, Law, MAX_PROB, MIN_BACKLOG, Units, roll, square};
use crate::Rng;
use crate::num;

/// k p' of an L4S sub-queue's classic partner; may exceed 1.
pub(super) fn coupled(partner: &Law, params: &Params) -> u64 {
    let counts = partner.active || partner.held;
    let prob = if counts { partner.prob } else { 0 };
    u64::from(prob) * u64::from(params.coupling_factor)
}

/// Decides on an arrival at a classic sub-queue with this backlog.
pub(super) fn decide_classic(
    law: &mut Law,
    backlog: u32,
    params: &Params,
    units: &Units,
    rng: &mut Rng,
) -> Fate {
    let prob = square(law.prob);
    let mut fate = Fate::Keep;
    if law.active
        && (law.held || !law.passes_all(prob, units))
        && backlog > MIN_BACKLOG
        && roll(prob, rng)
    {
        let k = u64::from(params.coupling_factor);
        fate = if u64::from(law.prob) * k >= u64::from(MAX_PROB) {
            // RFC 9332, section 4.2.3: overload.
            Fate::Drop
        } else {
            Fate::mark_or_drop(prob.into(), units)
        };
    }
    law.refill(law.prob.into(), params, units);
    fate
}

/// Decides on an arrival at an L4S sub-queue; `backlogs` are its own and its classic partner's,
/// bytes.
pub(super) fn decide_l4s(
    law: &mut Law,
    partner: &Law,
    backlogs: (u32, u32),
    params: &Params,
    units: &Units,
    rng: &mut Rng,
) -> Fate {
    let (backlog, pair) = (backlogs.0, backlogs.0 + backlogs.1);
    let coupled = if pair > MIN_BACKLOG {
        coupled(partner, params)
    } else {
        0
    };
    let acts =
        backlog > MIN_BACKLOG && law.active && (law.held || !law.passes_all(law.prob, units));
    let own = if acts { law.prob } else { 0 };
    law.refill(law.prob.into(), params, units);
    let most = u64::from(MAX_PROB);
    if own > MAX_PROB && roll(own - MAX_PROB, rng) {
        return Fate::Drop;
    }
    if coupled >= most {
        // RFC 9332, section 4.2.3: drops with p_C, marks the rest.
        return if roll(square(partner.prob), rng) {
            Fate::Drop
        } else {
            Fate::Mark
        };
    }
    let prob = coupled.max(own.into()).min(most);
    if roll(num::low_u32(prob), rng) {
        return Fate::mark_or_drop(prob, units);
    }
    Fate::Keep
}
