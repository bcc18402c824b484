//! The law: shaped like CoDel's (RFC 8289), but on the drain time of the whole backlog, with a hard
//! cap above it.

use super::fixed;
use crate::MTU;
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Settings that the policy computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Drain time of the backlog above which the law acts.
    pub target: Duration,
    /// Time that it must stay above the target before the first action.
    pub wait: Duration,
    /// Time from the first action to the second; later intervals are shorter.
    pub hold: Duration,
    /// Drain time above which packets are dropped at once; [`Duration::MAX`] without a cap.
    pub cap: Duration,
    /// Sojourn time above which ECT(1) packets are marked.
    pub step: Duration,
    /// The interval between actions is the hold over this power of their count; [`fixed::Q`]
    /// fractional bits.
    pub power: i64,
}

/// The law's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No action.
    Pass,
    /// Mark or drop one packet.
    Act,
    /// The backlog is above the cap: drop a packet, and judge again.
    Drop,
}

/// The law's state.
#[derive(Clone, Debug)]
pub struct Law {
    /// `target` and `cap` in bytes at the link's rate, so that a packet costs two comparisons.
    target_bytes: u64,
    cap_bytes: u64,
    /// Time at which the backlog will have been above target for the wait; 0 while it is below.
    act_from: Instant,
    /// Earliest time of the next action.
    next: Instant,
    /// True in an episode of actions.
    acting: bool,
    /// Number of actions, which sets the interval to the next one. An episode that soon follows
    /// another one continues its count, less 1.
    count: u64,
    /// End of the last episode; 0 before the first one ends.
    ended: Instant,
    /// Actions since the policy's last decision.
    pub actions: u32,
    /// Fewest bytes queued since then.
    pub trough: u64,
    /// Most bytes queued since then.
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
            act_from: Instant::ZERO,
            next: Instant::ZERO,
            acting: false,
            count: 0,
            ended: Instant::ZERO,
            actions: 0,
            trough: u64::MAX,
            peak: 0,
        }
    }
}

impl Law {
    /// Applies the settings at this link rate. The law never acts while at most [`MTU`] bytes are
    /// queued, nor drops for the cap while at most twice that are.
    pub fn tune(&mut self, s: &Settings, rate: Rate) {
        self.target_bytes = rate.bytes_in(s.target).max(u64::from(MTU) + 1);
        self.cap_bytes = match s.cap {
            Duration::MAX => u64::MAX,
            cap => rate.bytes_in(cap).max(2 * u64::from(MTU)),
        };
    }

    /// Judges the bytes queued before a packet leaves.
    #[inline(always)]
    pub fn judge(&mut self, now: Instant, bytes: u64, s: &Settings) -> Verdict {
        self.trough = self.trough.min(bytes);
        self.peak = self.peak.max(bytes);
        if bytes < self.target_bytes {
            self.act_from = Instant::ZERO;
            if self.acting {
                self.acting = false;
                self.ended = now;
            }
            return Verdict::Pass;
        }
        self.above(now, bytes, s)
    }

    /// Judges a backlog above the target.
    fn above(&mut self, now: Instant, bytes: u64, s: &Settings) -> Verdict {
        if bytes > self.cap_bytes {
            return Verdict::Drop;
        }
        if self.act_from == Instant::ZERO {
            self.act_from = now.saturating_add(s.wait);
        }
        if now < self.act_from {
            return Verdict::Pass;
        }
        if !self.acting {
            self.acting = true;
            let lately =
                self.ended != Instant::ZERO && now < self.ended.saturating_add(16 * s.hold);
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
            .saturating_add(fixed::scaled_time(s.hold, -slower));
        Verdict::Act
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MS;

    const S: Settings = Settings {
        target: Duration::from_millis(10),
        wait: Duration::from_millis(20),
        hold: Duration::from_millis(40),
        cap: Duration::from_millis(100),
        step: MS,
        power: fixed::ONE / 2,
    };
    /// 1 byte a microsecond.
    const RATE: Rate = Rate::from_mbit(8);

    fn law() -> Law {
        let mut law = Law::default();
        law.tune(&S, RATE);
        law
    }

    #[test]
    fn it_acts_after_the_wait_and_then_ever_sooner() {
        let mut law = law();
        let acts: Vec<_> = (0..200)
            .filter(|ms| law.judge(Instant::from_millis(1 + ms), 20_000, &S) == Verdict::Act)
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
            assert_eq!(
                law.judge(Instant::from_millis(1 + ms), bytes, &S),
                Verdict::Pass,
                "{ms}"
            );
        }
    }

    #[test]
    fn above_the_cap_it_drops_at_once_and_without_one_never() {
        let mut law = law();
        assert_eq!(
            law.judge(Instant::from_millis(1), 100_001, &S),
            Verdict::Drop
        );
        let none = Settings {
            cap: Duration::MAX,
            ..S
        };
        law.tune(&none, RATE);
        assert_eq!(
            law.judge(Instant::from_millis(1), 100_001, &none),
            Verdict::Pass
        );
    }

    #[test]
    fn a_last_packet_is_left_alone_however_slow_the_link() {
        let mut law = Law::default();
        law.tune(&S, Rate::from_bytes_per_sec(100));
        assert_eq!(law.judge(SECOND, u64::from(MTU), &S), Verdict::Pass);
        assert_eq!(law.judge(SECOND, 2 * u64::from(MTU), &S), Verdict::Pass);
        assert_eq!(law.judge(SECOND, 3 * u64::from(MTU), &S), Verdict::Drop);
    }
    const SECOND: Instant = Instant::from_secs(1);
}
