//! The coupling as in the published kernel file, where it has hardly any effect.
//!
//! The coupled probability has two effects only. If it is below `max_ecnth`, a packet that PIE
//! selected is marked instead of dropped; if it is not 0, the burst allowance is not refilled. PIE
//! selects packets with each sub-queue's own p', not squared. The file computes p'^2 in 32 bits
//! before it divides by 2^31 - 1, so the result is at most one unit of 1/(2^31 - 1). While a
//! classic sub-queue is inactive, the p' that its partner reads stays at its last value. Not
//! modelled: the file keeps those values in globals that all schedulers of a machine share. The
//! caller's flow hash replaces the file's Jenkins hash.

use super::Params;
use super::law::{Fate, Law, MAX_PROB, MIN_BACKLOG, Units};
use crate::Rng;

/// k p' of an L4S sub-queue's classic partner; may exceed 1.
pub(super) fn coupled(partner: &Law, params: &Params) -> u64 {
    u64::from(partner.shared) * u64::from(params.coupling_factor)
}

/// The file's `prob`, which decides between mark and drop, and whether the burst allowance is
/// refilled: for an L4S sub-queue max(own p', k p') up to 1, for a classic one (without `partner`)
/// p'^2 as computed in the file.
pub(super) fn probability(law: &Law, partner: Option<&Law>, params: &Params) -> u64 {
    let most = u64::from(MAX_PROB);
    match partner {
        Some(partner) => coupled(partner, params).max(law.shared.into()).min(most),
        None => u64::from(law.prob.wrapping_mul(law.prob)) / most,
    }
}

/// Decides on an arrival at a sub-queue with this backlog; `prob` is its [`probability`].
pub(super) fn decide(
    law: &mut Law,
    prob: u64,
    backlog: u32,
    params: &Params,
    units: &Units,
    rng: &mut Rng,
) -> Fate {
    let mut fate = Fate::Keep;
    if law.active
        && !law.passes_all(law.prob, units)
        && backlog > MIN_BACKLOG
        && law.draw(law.prob, rng)
    {
        fate = Fate::mark_or_drop(prob, units);
    }
    law.refill(prob, params, units);
    fate
}
