//! The past hour of the queues, for a dashboard that is opened late.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::source::QueueStatus;

/// Time between two moments.
const STEP: Duration = Duration::from_secs(2);
/// Age at which a moment is dropped.
const KEPT: Duration = Duration::from_secs(3600);
/// Most rows (queues of a moment) in all: enough for an hour of two queues. With more queues the
/// history is shorter.
const MAX_ROWS: usize = 4096;

/// The state of the queues at moments [`STEP`] apart, without flows, hosts and faults.
#[derive(Default)]
pub struct History {
    /// Oldest first.
    moments: VecDeque<(Instant, Vec<QueueStatus>)>,
    rows: usize,
}

impl History {
    /// Time until the next moment is to be recorded.
    pub fn pause(&self, now: Instant) -> Duration {
        let last = self.moments.back().map(|(at, _)| *at);
        last.map_or(Duration::ZERO, |at| {
            (at + STEP).saturating_duration_since(now)
        })
    }

    /// Records a moment.
    pub fn record(&mut self, now: Instant, mut queues: Vec<QueueStatus>) {
        for queue in &mut queues {
            queue.flows = Vec::new();
            queue.hosts = Vec::new();
            queue.faults = Vec::new();
        }
        self.rows += queues.len();
        self.moments.push_back((now, queues));
        while self.rows > MAX_ROWS || self.oldest().is_some_and(|at| now > at + KEPT) {
            let Some((_, queues)) = self.moments.pop_front() else {
                break;
            };
            self.rows -= queues.len();
        }
    }

    fn oldest(&self) -> Option<Instant> {
        self.moments.front().map(|(at, _)| *at)
    }

    /// The moments, oldest first: age in seconds, and queues.
    pub fn json(&self, now: Instant) -> Value {
        let moments = self.moments.iter();
        let json = moments.map(|(at, queues)| {
            let age = now.saturating_duration_since(*at).as_secs_f64();
            json!({"age_s": age, "queues": queues})
        });
        json.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::link::View;

    fn queues(count: usize) -> Vec<QueueStatus> {
        let queue = QueueStatus {
            flows: vec![("192.0.2.1".to_owned(), 1.0)],
            ..QueueStatus::new("egress", "codel", View::default())
        };
        vec![queue; count]
    }

    #[test]
    fn rows_are_small() {
        let queue = &queues(1)[0];
        let bytes = size_of_val(queue) + size_of_val(&queue.sojourns[..]) + 100;
        assert!(MAX_ROWS * bytes <= 8_000_000, "{bytes} bytes");
    }

    #[test]
    fn an_hour_is_kept_in_steps_and_rows_are_bounded() {
        let (start, mut history) = (Instant::now(), History::default());
        assert_eq!(history.pause(start), Duration::ZERO);
        for second in (0..5000).step_by(2) {
            history.record(start + Duration::from_secs(second), queues(2));
        }
        let end = start + Duration::from_secs(4998);
        assert_eq!(history.pause(end), STEP);
        assert_eq!(history.pause(end + STEP), Duration::ZERO);
        let json = history.json(end);
        let (oldest, newest) = (&json[0], json.as_array().and_then(|all| all.last()));
        assert_eq!(oldest["age_s"], 3600.0);
        assert_eq!(newest.map(|moment| &moment["age_s"]), Some(&json!(0.0)));
        assert_eq!(oldest["queues"][1]["queue"], "codel");
        assert_eq!(oldest["queues"][1]["flows"], json!([]));
        for second in 0..1000 {
            history.record(end + Duration::from_secs(second), queues(64));
        }
        assert_eq!(history.moments.len(), MAX_ROWS / 64);
    }
}
