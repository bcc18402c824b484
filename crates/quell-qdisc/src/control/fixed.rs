//! Knobs that are set once. A sweep over constant knobs is what other controllers are compared
//! with.

use super::{Control, SubQueue};
use crate::time::Duration;
use crate::{ControlledKnobs, Gauges, KnobSet, Knobs, Rng};

/// Parameters of [`Fixed`]: the knobs set before the first packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    /// Limit in packets, at least 1 (default: the queue's own).
    pub limit: Option<u32>,
    /// Drop probability, 0..1 (default: the queue's own).
    pub drop: Option<f64>,
}

impl Params {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.limit == Some(0) {
            return Err("limit must be at least 1 packet");
        }
        if self.drop.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
            return Err("drop must be between 0 and 1");
        }
        Ok(())
    }
}

/// A controller that sets knobs once.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixed {
    params: Params,
}

impl Fixed {
    /// Sets these knobs.
    pub fn new(params: Params) -> Self {
        Self { params }
    }
}

impl Control for Fixed {
    fn period(&self) -> Duration {
        Duration::MAX
    }

    fn decide(&mut self, _gauges: &Gauges, _subs: &mut [SubQueue], _rng: &mut Rng) -> Knobs {
        self.initial()
    }

    fn knobs(&self) -> ControlledKnobs {
        let own = KnobSet {
            limit: self.params.limit.is_some(),
            drop: self.params.drop.is_some(),
            ..KnobSet::NONE
        };
        ControlledKnobs::of_queue(own)
    }

    fn initial(&mut self) -> Knobs {
        Knobs {
            limit_packets: self.params.limit,
            drop: self.params.drop,
            ..Knobs::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knobs_are_set_once() {
        let mut fixed = Fixed::new(Params {
            limit: Some(50),
            drop: None,
        });
        assert_eq!(fixed.initial().limit_packets, Some(50));
        assert_eq!(fixed.initial().drop, None);
        assert_eq!(fixed.period(), Duration::MAX);
    }
}
