//! Placeholder of a controller outside the queue: the driver of the queue stops every period and
//! asks that controller.

use super::{Control, SubQueue};
use crate::time::Duration;
use crate::{Gauges, Knobs, Rng};

/// An outside controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outside {
    /// Time between two decisions.
    pub period: Duration,
}

impl Control for Outside {
    fn period(&self) -> Duration {
        self.period
    }

    fn is_outside(&self) -> bool {
        true
    }

    fn decide(&mut self, _gauges: &Gauges, _subs: &mut [SubQueue], _rng: &mut Rng) -> Knobs {
        Knobs::KEEP
    }
}
