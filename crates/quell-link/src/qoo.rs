//! Quality of Outcome: where a network is between an application's requirements for perfect quality
//! and the point where the application is useless.
//!
//! The formula is that of draft-ietf-ippm-qoo, sections "Describing Network Performance
//! Requirements" and "Calculating QoO" (editors' copy, which calls the two ends ROP and CPUP). The
//! draft defines no requirements of applications. Those of `video_call` are the draft's example
//! without its 99.9th percentile; the others are quell's choice.

use serde::{Deserialize, Serialize};

use crate::summary::Summary;

/// Measurements of a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Round trip under load, ms.
    pub latency_ms: Summary,
    /// Share of packets lost, 0..1.
    pub loss: f64,
    /// Rate that the network carries, Mbit/s.
    pub mbps: f64,
}

/// Value at or below which quality is perfect, and value from which the application is useless.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    best: f64,
    useless: f64,
}

impl Range {
    const fn new(best: f64, useless: f64) -> Self {
        Self { best, useless }
    }

    /// Score: 100 at `best` or better, 0 at `useless` or worse, linear in between.
    fn score(self, value: f64) -> f64 {
        let share = (value - self.best) / (self.useless - self.best);
        (1.0 - share).clamp(0.0, 1.0) * 100.0
    }
}

/// Reads a percentile.
type Percentile = fn(&Summary) -> f64;

/// Requirements of an application.
struct Profile {
    /// Ranges of percentiles of the round trip, ms.
    latency: &'static [(Percentile, Range)],
    /// Range of the share of packets lost, 0..1.
    loss: Range,
    /// Least rate, Mbit/s; the score is 0 below it.
    mbps: f64,
}

const GAME: Profile = Profile {
    latency: &[
        (|s| s.p50, Range::new(30.0, 100.0)),
        (|s| s.p99, Range::new(60.0, 200.0)),
    ],
    loss: Range::new(0.005, 0.05),
    mbps: 1.0,
};

const VIDEO_CALL: Profile = Profile {
    latency: &[(|s| s.p99, Range::new(100.0, 200.0))],
    loss: Range::new(0.001, 0.02),
    mbps: 4.0,
};

/// A stream's buffer hides delays of seconds.
const STREAMING: Profile = Profile {
    latency: &[(|s| s.p95, Range::new(500.0, 3000.0))],
    loss: Range::new(0.02, 0.2),
    mbps: 5.0,
};

impl Profile {
    /// The score, 0 to 100: the least of the scores of latency and loss, and 0 if the rate is too
    /// low.
    fn score(&self, m: &Measured) -> f64 {
        if m.mbps < self.mbps {
            return 0.0;
        }
        let latency = self.latency.iter();
        let latency = latency.map(|(percentile, range)| range.score(percentile(&m.latency_ms)));
        latency.fold(self.loss.score(m.loss), f64::min)
    }
}

/// Scores by profile, 0 to 100; docs/reference/metrics.md has their requirements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Qoo {
    /// Score for a fast game.
    pub game: f64,
    /// Score for a video call.
    pub video_call: f64,
    /// Score for a video stream.
    pub streaming: f64,
}

impl Qoo {
    /// Computes the scores of a network.
    pub fn of(m: &Measured) -> Self {
        Self {
            game: GAME.score(m),
            video_call: VIDEO_CALL.score(m),
            streaming: STREAMING.score(m),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(p50: f64, p99: f64, loss: f64) -> Measured {
        Measured {
            latency_ms: Summary {
                p50,
                p95: p99,
                p99,
                ..Summary::default()
            },
            loss,
            mbps: 28.0,
        }
    }

    #[test]
    fn the_drafts_example_scores_50() {
        // p50 and p99 hold the example's 99th and 99.9th percentiles. Scores: 1 - 150/300 and
        // 1 - 75/300; for loss 1 - 1/4.
        const PROFILE: Profile = Profile {
            latency: &[
                (|s| s.p50, Range::new(200.0, 500.0)),
                (|s| s.p99, Range::new(300.0, 600.0)),
            ],
            loss: Range::new(0.01, 0.05),
            mbps: 4.0,
        };
        assert_eq!(PROFILE.score(&measured(350.0, 375.0, 0.02)), 50.0);
        // With more loss, its score is the lowest: 1 - 3/4.
        let lossy = PROFILE.score(&measured(350.0, 375.0, 0.04));
        assert!((lossy - 25.0).abs() < 1e-9, "{lossy}");
    }

    #[test]
    fn a_rate_below_the_minimum_scores_0_and_a_good_line_100() {
        let mut m = measured(20.0, 50.0, 0.0);
        let all = Qoo::of(&m);
        assert_eq!([all.game, all.video_call, all.streaming], [100.0; 3]);
        m.mbps = 3.9;
        let slow = Qoo::of(&m);
        assert_eq!(
            [slow.game, slow.video_call, slow.streaming],
            [100.0, 0.0, 0.0]
        );
    }
}
