//! One-way delays of a flow's packets, and how they vary.

use quell_link::hist::Hist;
use quell_link::record::Summary;
use quell_qdisc::time::{Duration, MS};

/// Approximate number of pairs of segments measured per TCP flow: measuring all would slow the
/// simulator.
const PAIRS: u64 = 500;
/// Upper bound of [`spacing`] before it is made odd.
const MAX_SPACING: u64 = 1024;

/// Number of segments of a TCP flow from the start of one measured pair to the start of the next,
/// given the number of segments that the link can carry for each flow. It is odd because receivers
/// acknowledge every second segment: with an even number, all measured pairs would have the same
/// position between two ACKs, on which the delay may depend.
pub fn spacing(segments: u64) -> u16 {
    (segments / PAIRS).clamp(2, MAX_SPACING) as u16 | 1
}

/// The delays of a flow's packets from sender to receiver, queues and links included.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    /// All measured delays, ns.
    pub hist: Hist,
    /// Delay of the previous packet.
    last: Option<Duration>,
    /// Sum of the absolute differences between successive delays, ns.
    differences: u128,
    pairs: u64,
}

impl Delays {
    /// Records the delay of the next packet, and its difference from that of the previous packet.
    pub fn record(&mut self, delay: Duration) {
        if let Some(last) = self.last.replace(delay) {
            self.differ(last, delay);
        }
        self.hist.record(delay.as_nanos());
    }

    fn differ(&mut self, a: Duration, b: Duration) {
        self.differences += u128::from(a.abs_diff(b).as_nanos());
        self.pairs += 1;
    }

    /// Mean, percentiles and maximum, ms; None before the first packet.
    pub fn summary(&self) -> Option<Summary> {
        (self.hist.count() > 0).then(|| self.hist.summary(1.0 / MS.as_nanos() as f64))
    }

    /// Mean of |D(i - 1, i)|, ms, of which RFC 3550, section 6.4.1, computes a running estimate;
    /// None before the second packet.
    pub fn jitter_ms(&self) -> Option<f64> {
        (self.pairs > 0).then(|| self.differences as f64 / (self.pairs * MS).as_nanos() as f64)
    }
}

/// Selects the segments of a connection that are measured. The countdown to the next one is
/// `Receiver::until_sample`, on a cache line that each segment needs anyway.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// Segments from one pair to the next; `None`: no segment is measured.
    every: Option<u16>,
    /// Delay of the previous segment, if it was measured.
    before: Option<Duration>,
}

impl Sampler {
    /// Selects two segments in a row of every `every`, and returns the countdown to the first;
    /// `None`: selects none and returns 0.
    pub fn new(every: Option<u16>) -> (Box<Self>, u16) {
        let sampler = Box::new(Self {
            every,
            before: None,
        });
        (sampler, u16::from(every.is_some()))
    }

    /// Records the delay of the selected segment (`None`: it is unknown) in `to` (`None`: delays
    /// are not recorded now). Returns the countdown to the next selected segment.
    pub fn sampled(&mut self, delay: Option<Duration>, to: Option<&mut Delays>) -> u16 {
        let Some(every) = self.every else {
            return 0;
        };
        if let (Some(delay), Some(to)) = (delay, to) {
            if let Some(before) = self.before {
                to.differ(before, delay);
            }
            to.hist.record(delay.as_nanos());
        }
        match (self.before.take(), delay) {
            (None, Some(_)) => {
                self.before = delay;
                1
            }
            _ => every - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_the_mean_difference_of_successive_transit_times() {
        // RFC 3550, section 6.4.1: |D| of transit times 10, 14, 11 and 11 ms is 4, 3 and 0 ms.
        let mut delays = Delays::default();
        assert_eq!(delays.jitter_ms(), None);
        for ms in [10, 14, 11, 11] {
            delays.record(ms * MS);
        }
        assert_eq!(delays.jitter_ms(), Some(7.0 / 3.0));
        let summary = delays.summary().expect("packets");
        assert_eq!((summary.mean, summary.max), (11.5, 14.0));
    }

    #[test]
    fn two_segments_in_a_row_of_every_33_are_measured() {
        // A flow of 16,700 segments has 500 such pairs.
        assert_eq!(spacing(16_700), 33);
        let ((mut sampler, mut left), mut delays) = (Sampler::new(Some(33)), Delays::default());
        let mut due = Vec::new();
        for i in 0..100 {
            left -= 1;
            if left == 0 {
                left = sampler.sampled(Some(i * MS), Some(&mut delays));
                due.push(i);
            }
        }
        assert_eq!(due, [0, 1, 33, 34, 66, 67, 99]);
        assert_eq!(delays.jitter_ms(), Some(1.0));
    }
}
