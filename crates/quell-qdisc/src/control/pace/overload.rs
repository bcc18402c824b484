//! Traffic that does not slow down.

use crate::time::{Duration, Instant, SEC};

/// A shaper behind the modem is overloaded when it has dropped `OVERLOAD` of the arriving bytes in
/// each of `LOSSY` seconds and the delay stayed above the target. It then lets all arrivals pass
/// for `FIRST_HOLD`, twice as long each time, at most `LAST_HOLD`.
const OVERLOAD: f64 = 0.15;
const LOSSY: u32 = 8;
const FIRST_HOLD: Duration = Duration::from_secs(20);
const LAST_HOLD: Duration = Duration::from_secs(80);

/// Traffic that does not slow down, and the time during which the shaper lets it pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overload {
    /// Start of the present second, and the counters then.
    since: Instant,
    arrived: u64,
    dropped: u64,
    /// Seconds in a row in which [`OVERLOAD`] was dropped.
    lossy: u32,
    /// End of the last hold, and the length of the next one.
    end: Instant,
    hold: Duration,
}

impl Overload {
    pub(super) const NONE: Self = Self {
        since: Instant::ZERO,
        arrived: 0,
        dropped: 0,
        lossy: 0,
        end: Instant::ZERO,
        hold: FIRST_HOLD,
    };

    /// Updates the counts at a tick; `calm`: the delay is within the target.
    pub(super) fn count(&mut self, now: Instant, arrived: u64, dropped: u64, calm: bool) {
        // If the modem's queue empties, the drops make the senders slow down: many TCP connections
        // with small windows have such losses all the time.
        let holds = self.holds(now);
        let calm = calm && !holds;
        if !calm && now < self.since + SEC {
            return;
        }
        // The counters of a kernel's queue need not be of the same instant.
        let share = dropped.saturating_sub(self.dropped) as f64
            / arrived.saturating_sub(self.arrived).max(1) as f64;
        (self.since, self.arrived, self.dropped) = (now, arrived, dropped);
        self.lossy = match share >= OVERLOAD && !calm && !holds {
            true => self.lossy + 1,
            false => 0,
        };
        if self.lossy >= LOSSY {
            (self.lossy, self.end) = (0, now + self.hold);
            self.hold = LAST_HOLD.min(2 * self.hold);
        } else if self.lossy == 0 && now > self.end + self.hold {
            self.hold = FIRST_HOLD;
        }
    }

    /// Ends a hold.
    pub(super) fn release(&mut self, now: Instant) {
        self.end = now.min(self.end);
    }

    /// Whether all arrivals are to pass.
    pub(super) fn holds(&self, now: Instant) -> bool {
        now < self.end
    }
}
