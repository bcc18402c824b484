//! The fallback of a guarded controller of a base probability: the discipline's own law.

use super::{Control, SubQueue};
use crate::time::Duration;
use crate::{Gauges, Knobs, Rng};

/// A controller that hands the base probability back to the discipline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Law;

const RELEASE: Knobs = Knobs {
    release: true,
    ..Knobs::KEEP
};

impl Control for Law {
    fn period(&self) -> Duration {
        Duration::MAX
    }

    fn initial(&mut self) -> Knobs {
        RELEASE
    }

    fn decide(&mut self, _gauges: &Gauges, _subs: &mut [SubQueue], _rng: &mut Rng) -> Knobs {
        RELEASE
    }
}
