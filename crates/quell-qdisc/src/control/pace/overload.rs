//! Traffic that does not slow down.

use crate::time::{Duration, Instant, SEC};

/// Share of the arriving bytes that a shaper behind the modem drops in a second of overload, while
/// the delay is above the target.
const OVERLOAD_SHARE: f64 = 0.15;
/// Seconds of overload in a row after which the shaper lets all arrivals pass.
const OVERLOAD_SECONDS: u32 = 8;
/// Length of the first hold, the time for which all arrivals pass. Each further hold is twice as
/// long, up to [`MAX_HOLD`]; after a time without overload that is as long as the next hold would
/// be, the next one has this length again.
const FIRST_HOLD: Duration = Duration::from_secs(20);
const MAX_HOLD: Duration = Duration::from_secs(80);

/// Traffic that does not slow down, and the time during which the shaper lets it pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overload {
    /// Start of the present second.
    since: Instant,
    /// Bytes that had arrived by then.
    arrived: u64,
    /// Bytes that had been dropped by then.
    dropped: u64,
    /// Seconds of overload in a row.
    overloaded_seconds: u32,
    /// End of the present or the last hold.
    end: Instant,
    /// Length of the next hold.
    hold: Duration,
}

impl Overload {
    pub(super) const NONE: Self = Self {
        since: Instant::ZERO,
        arrived: 0,
        dropped: 0,
        overloaded_seconds: 0,
        end: Instant::ZERO,
        hold: FIRST_HOLD,
    };

    /// Updates the counts at a tick. `arrived` and `dropped` are totals in bytes; `calm`: whether
    /// the delay is within the target.
    pub(super) fn count(&mut self, now: Instant, arrived: u64, dropped: u64, calm: bool) {
        // A delay within the target ends the count: the senders do respond to drops. (Many TCP
        // connections with small windows always have such losses.)
        let holds = self.holds(now);
        let calm = calm && !holds;
        if !calm && now < self.since + SEC {
            return;
        }
        // The two counters of a kernel's queue may be read at different instants.
        let share = dropped.saturating_sub(self.dropped) as f64
            / arrived.saturating_sub(self.arrived).max(1) as f64;
        (self.since, self.arrived, self.dropped) = (now, arrived, dropped);
        self.overloaded_seconds = match share >= OVERLOAD_SHARE && !calm && !holds {
            true => self.overloaded_seconds + 1,
            false => 0,
        };
        if self.overloaded_seconds >= OVERLOAD_SECONDS {
            (self.overloaded_seconds, self.end) = (0, now + self.hold);
            self.hold = MAX_HOLD.min(2 * self.hold);
        } else if self.overloaded_seconds == 0 && now > self.end + self.hold {
            self.hold = FIRST_HOLD;
        }
    }

    /// Ends a hold.
    pub(super) fn release(&mut self, now: Instant) {
        self.end = now.min(self.end);
    }

    /// Whether all arrivals must pass.
    pub(super) fn holds(&self, now: Instant) -> bool {
        now < self.end
    }
}
