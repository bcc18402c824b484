//! The law: CoDel's shape (RFC 8289) on the time that the whole backlog takes to drain, with a hard
//! cap above it.

use super::fixed;
use crate::num;
use crate::{MTU, Nanos};

/// What the policy sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The time to drain above which the law acts.
    pub target: Nanos,
    /// How long it must stay above before the first action.
    pub wait: Nanos,
    /// From the first action to the second; later ones come sooner.
    pub hold: Nanos,
    /// The time to drain above which packets are dropped at once; [`crate::NEVER`]: none.
    pub cap: Nanos,
    /// Sojourn above which ECT(1) packets are marked.
    pub step: Nanos,
    /// The actions' distances fall with this power of their count, with [`fixed::Q`] bits behind
    /// the point.
    pub power: i64,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Pass,
    /// One packet is to be marked or dropped.
    Act,
    /// The backlog is above the cap: drop, and ask again.
    Drop,
}

/// The law's state.
#[derive(Clone, Debug)]
pub struct Law {
    /// `target` and `cap` in bytes at the link's rate: a packet costs two comparisons.
    target_bytes: u64,
    cap_bytes: u64,
    /// When the backlog may have been above target for long enough; 0 while it is below.
    ripe: Nanos,
    next: Nanos,
    acting: bool,
    count: u64,
    ended: Nanos,
    /// Actions since the policy's last turn.
    pub actions: u32,
    /// Least and most bytes seen since.
    pub trough: u64,
    /// See `trough`.
    pub peak: u64,
}

/// Beyond this many consecutive actions their spacing no longer changes.
const MAX_COUNT: u64 = 1 << 20;

impl Default for Law {
    /// Without settings it never acts.
    fn default() -> Self {
        Self {
            target_bytes: u64::MAX,
            cap_bytes: u64::MAX,
            ripe: 0,
            next: 0,
            acting: false,
            count: 0,
            ended: 0,
            actions: 0,
            trough: u64::MAX,
            peak: 0,
        }
    }
}

impl Law {
    /// Takes the settings for a link of this rate, bytes per second. The last packet is never asked
    /// for, nor the last two at the cap.
    pub fn tune(&mut self, s: &Settings, rate: u64) {
        let bytes = |time: Nanos| num::low_u64(u128::from(time) * u128::from(rate) / 1_000_000_000);
        self.target_bytes = bytes(s.target).max(u64::from(MTU) + 1);
        self.cap_bytes = match s.cap {
            crate::NEVER => u64::MAX,
            cap => bytes(cap).max(2 * u64::from(MTU)),
        };
    }

    /// Looks at the bytes queued before a packet leaves.
    #[inline(always)]
    pub fn judge(&mut self, now: Nanos, bytes: u64, s: &Settings) -> Verdict {
        self.trough = self.trough.min(bytes);
        self.peak = self.peak.max(bytes);
        if bytes < self.target_bytes {
            self.ripe = 0;
            if self.acting {
                self.acting = false;
                self.ended = now;
            }
            return Verdict::Pass;
        }
        self.above(now, bytes, s)
    }

    fn above(&mut self, now: Nanos, bytes: u64, s: &Settings) -> Verdict {
        if bytes > self.cap_bytes {
            return Verdict::Drop;
        }
        if self.ripe == 0 {
            self.ripe = now.saturating_add(s.wait);
        }
        if now < self.ripe {
            return Verdict::Pass;
        }
        if !self.acting {
            self.acting = true;
            let lately = self.ended != 0 && now < self.ended.saturating_add(16 * s.hold);
            self.count = match lately {
                true => self.count.saturating_sub(1).max(1),
                false => 1,
            };
            if now < self.next {
                return Verdict::Pass;
            }
        } else if now < self.next {
            return Verdict::Pass;
        } else {
            self.count = (self.count + 1).min(MAX_COUNT);
        }
        let slower = (s.power * fixed::ln(self.count)) >> fixed::Q;
        self.next = now
            .max(self.next)
            .saturating_add(fixed::scaled(s.hold, -slower));
        Verdict::Act
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MS, NEVER};

    const S: Settings = Settings {
        target: 10 * MS,
        wait: 20 * MS,
        hold: 40 * MS,
        cap: 100 * MS,
        step: MS,
        power: fixed::ONE / 2,
    };
    /// 1 byte a microsecond.
    const RATE: u64 = 1_000_000;

    fn law() -> Law {
        let mut law = Law::default();
        law.tune(&S, RATE);
        law
    }

    #[test]
    fn it_acts_after_the_wait_and_then_ever_sooner() {
        let mut law = law();
        let acts: Vec<_> = (0..200)
            .filter(|ms| law.judge(MS + ms * MS, 20_000, &S) == Verdict::Act)
            .collect();
        assert_eq!(acts[0], 20);
        // After 40 ms, 40 / sqrt 2, 40 / sqrt 3 ..., each in the next whole millisecond.
        for (n, pair) in acts.windows(2).enumerate() {
            let exact = 40.0 / libm::sqrt(n as f64 + 1.0);
            let gap = (pair[1] - pair[0]) as f64;
            assert!((exact - 0.01..exact + 1.01).contains(&gap), "{acts:?}");
        }
        assert!(acts.len() > 7);
    }

    #[test]
    fn a_backlog_below_target_starts_the_wait_again() {
        let mut law = law();
        for ms in 0..500 {
            let bytes = if ms % 15 == 0 { 9_999 } else { 20_000 };
            assert_eq!(law.judge(MS + ms * MS, bytes, &S), Verdict::Pass, "{ms}");
        }
    }

    #[test]
    fn above_the_cap_it_drops_at_once_and_without_one_never() {
        let mut law = law();
        assert_eq!(law.judge(MS, 100_001, &S), Verdict::Drop);
        let none = Settings { cap: NEVER, ..S };
        law.tune(&none, RATE);
        assert_eq!(law.judge(MS, 100_001, &none), Verdict::Pass);
    }

    #[test]
    fn a_last_packet_is_left_alone_however_slow_the_link() {
        let mut law = Law::default();
        law.tune(&S, 100);
        assert_eq!(law.judge(SECOND, u64::from(MTU), &S), Verdict::Pass);
        assert_eq!(law.judge(SECOND, 2 * u64::from(MTU), &S), Verdict::Pass);
        assert_eq!(law.judge(SECOND, 3 * u64::from(MTU), &S), Verdict::Drop);
    }
    const SECOND: Nanos = crate::SEC;
}
