//! Cloudflare's Aggregated Internet Measurement (AIM): points for the results of a speed test, and
//! a word for each sum of points.
//!
//! Points and thresholds are those of github.com/cloudflare/speedtest,
//! `src/config/internalConfig.ts` of 2025 and `src/Results/ScoresCalculations.ts`.

use serde::{Deserialize, Serialize};

/// Results of a speed test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Idle round trip, ms.
    pub latency_ms: f64,
    /// Increase of the round trip under load, in the worse direction, ms.
    pub increase_ms: f64,
    /// Idle jitter, ms.
    pub jitter_ms: f64,
    /// Share of packets lost, 0..1.
    pub loss: f64,
    /// Download, Mbit/s.
    pub download_mbps: f64,
}

/// Score of one use of the Internet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Sum of points, at least 0.
    pub points: f64,
    /// bad, poor, average, good or great.
    pub score: String,
}

/// Scores of the three uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Aim {
    /// Video streaming.
    pub streaming: Score,
    /// Games.
    pub gaming: Score,
    /// Calls (real-time communication).
    pub rtc: Score,
}

/// `first` for a value below the first threshold, else the element of `rest` for the highest
/// threshold reached.
fn scale<T: Copy, const N: usize>(value: f64, thresholds: [f64; N], first: T, rest: [T; N]) -> T {
    let reached = thresholds.iter().filter(|t| value >= **t).count();
    match reached {
        0 => first,
        n => rest[n - 1],
    }
}

fn score(points: &[f64], thresholds: [f64; 4]) -> Score {
    let points = points.iter().sum::<f64>().max(0.0);
    let words = ["poor", "average", "good", "great"];
    Score {
        points,
        score: scale(points, thresholds, "bad", words).to_owned(),
    }
}

impl Aim {
    /// Computes the scores.
    pub fn of(m: &Measured) -> Self {
        let delay = |ms| {
            let steps = [10.0, 20.0, 50.0, 100.0, 500.0];
            scale(ms, steps, 20.0, [10.0, 5.0, 0.0, -10.0, -20.0])
        };
        let (latency, increase) = (delay(m.latency_ms), delay(m.increase_ms));
        let steps = [10.0, 20.0, 100.0, 500.0];
        let jitter = scale(m.jitter_ms, steps, 10.0, [5.0, 0.0, -10.0, -20.0]);
        let steps = [0.01, 0.05, 0.25, 0.5];
        let loss = scale(m.loss, steps, 10.0, [5.0, 0.0, -10.0, -20.0]);
        let steps = [1.0, 10.0, 50.0, 100.0];
        let download = scale(m.download_mbps, steps, 0.0, [5.0, 10.0, 20.0, 30.0]);
        Self {
            streaming: score(
                &[latency, loss, download, increase],
                [15.0, 20.0, 40.0, 60.0],
            ),
            gaming: score(&[latency, loss, increase], [5.0, 15.0, 25.0, 30.0]),
            rtc: score(&[latency, jitter, loss, increase], [5.0, 15.0, 25.0, 40.0]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_add_up_as_in_the_source() {
        // Points: latency 10, increase 20, jitter 10, loss 10, download 20.
        let good = Aim::of(&Measured {
            latency_ms: 15.0,
            increase_ms: 5.0,
            jitter_ms: 0.0,
            loss: 0.0,
            download_mbps: 80.0,
        });
        let parts = [&good.streaming, &good.gaming, &good.rtc];
        assert_eq!(parts.map(|s| s.points), [60.0, 40.0, 50.0]);
        assert_eq!(parts.map(|s| s.score.as_str()), ["great"; 3]);
        // Points: latency 5, increase -10, jitter 10, loss 5, download 10.
        let bloated = Aim::of(&Measured {
            latency_ms: 30.0,
            increase_ms: 300.0,
            jitter_ms: 0.0,
            loss: 0.02,
            download_mbps: 15.0,
        });
        let parts = [&bloated.streaming, &bloated.gaming, &bloated.rtc];
        assert_eq!(parts.map(|s| s.points), [10.0, 0.0, 10.0]);
        assert_eq!(parts.map(|s| s.score.as_str()), ["bad", "bad", "poor"]);
    }

    #[test]
    fn a_threshold_belongs_to_the_bin_above_it_and_no_sum_is_negative() {
        let m = |ms| Measured {
            latency_ms: ms,
            increase_ms: ms,
            jitter_ms: ms,
            loss: 0.5,
            download_mbps: 0.5,
        };
        // Points: latency and increase 10 each, jitter 5, loss -20.
        assert_eq!(Aim::of(&m(10.0)).rtc.points, 5.0);
        assert_eq!(Aim::of(&m(500.0)).gaming.points, 0.0);
    }
}
