//! The coupling of the published kernel file: almost none.
//!
//! The coupled probability is computed and then only compared: below `max_ecnth` a packet that PIE
//! picked is marked instead of dropped, and 0 refills the burst allowance. PIE picks with each
//! sub-queue's own p', not squared. p'^2 is a 32-bit product divided by 2^31, so 0, 1 or 2 units of
//! 2^-31; and the p' that the partner sees stays at its last value while a classic sub-queue rests.
//! Not modelled: the file keeps those values in globals that all schedulers of a machine share, and
//! its Jenkins hash is the caller's flow hash here.

use super::Params;
use super::law::{FLOOR, Fate, Law, MAX_PROB, Units};
use crate::Rng;

/// k p' of an L4S sub-queue's classic partner; may exceed 1.
pub(super) fn coupled(partner: &Law, params: &Params) -> u64 {
    u64::from(partner.shared) * u64::from(params.coupling_factor)
}

/// The file's `prob`, which decides between mark and drop and refills the burst allowance; of an
/// L4S sub-queue with its partner.
pub(super) fn probability(law: &Law, partner: Option<&Law>, params: &Params) -> u64 {
    let most = u64::from(MAX_PROB);
    match partner {
        Some(partner) => coupled(partner, params).max(law.shared.into()).min(most),
        None => u64::from(law.prob.wrapping_mul(law.prob)) / most,
    }
}

/// What happens to a packet that comes to a sub-queue with this backlog, `prob` being its
/// [`probability`].
pub(super) fn of_any(
    law: &mut Law,
    prob: u64,
    backlog: u32,
    params: &Params,
    units: &Units,
    rng: &mut Rng,
) -> Fate {
    let mut fate = Fate::Keep;
    if law.active && !law.spares(law.prob, units) && backlog > FLOOR && law.draw(law.prob, rng) {
        fate = Fate::hit(prob, units);
    }
    law.refill(prob, params, units);
    fate
}
