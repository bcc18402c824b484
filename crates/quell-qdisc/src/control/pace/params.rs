//! Parameters of [`super::Pace`].

use super::FLOOR;
use crate::rate::Rate;
use crate::time::{Duration, MS};

/// Default of the first rate, bit/s.
const START: Rate = Rate::from_mbit(10);

/// Parameters of [`super::Pace`]. `None`: the value of [`DOWN`] if the shaper is behind the modem
/// (`ingress`), else of [`UP`]. Those of type `u32` are in percent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    /// First rate. None: 10 Mbit/s, or the rate that a shaper already has.
    pub start: Option<Rate>,
    /// Minimum rate. None: 100 kbit/s, and without reflectors at least a tenth of the
    /// highest capacity of the last minutes.
    pub min: Option<Rate>,
    /// Maximum rate. None: no limit.
    pub max: Option<Rate>,
    /// [`Law::target`].
    pub target: Option<Duration>,
    /// [`Law::slack`].
    pub slack: Option<Duration>,
    /// [`Law::drain`].
    pub drain: Option<Duration>,
    /// [`Law::grow`].
    pub grow: Option<u32>,
    /// [`Law::gain`].
    pub gain: Option<u32>,
    /// [`Law::doubt`].
    pub doubt: Option<u32>,
    /// [`Law::most`].
    pub most: Option<u32>,
    /// [`Law::back`].
    pub back: Option<u32>,
    /// [`Law::least`].
    pub least: Option<u32>,
    /// The shaper (CAKE) is behind the modem: its arrivals are the modem's output, and packets that
    /// it drops count towards its rate (default off).
    pub ingress: bool,
    /// Do not measure the delay of the traffic's own segments when probes are not answered (default
    /// off).
    pub nopassive: bool,
}

/// Constants of the loop. Shares and growth are fractions, 0.04 = 4 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// Delay above which the rate falls, without the additions of `slack`, of jitter and of the
    /// transmission time of 1.5 packets.
    pub target: Duration,
    /// This times the capacity's relative mean deviation is added to `target` and `drain`.
    pub slack: Duration,
    /// Time within which the modem's queue is emptied.
    pub drain: Duration,
    /// Basic growth of the rate per second.
    pub grow: f64,
    /// Growth added for each second since the delay was last above the target.
    pub gain: f64,
    /// This times the capacity's relative mean deviation is added to the growth.
    pub doubt: f64,
    /// Largest growth per second.
    pub most: f64,
    /// The rate once the modem's queue is empty, as a share of the capacity.
    pub back: f64,
    /// Lowest rate while the modem's queue empties, as a share of the capacity; also the share to
    /// which the rate falls while the line is stalled.
    pub least: f64,
}

/// Constants of a shaper behind the modem.
pub const DOWN: Law = Law {
    target: Duration::from_millis(3),
    slack: Duration::from_millis(5),
    drain: Duration::from_millis(16),
    grow: 0.04,
    gain: 0.56,
    doubt: 6.0,
    most: 2.0,
    back: 1.04,
    least: 0.47,
};

/// Constants of a shaper before the modem.
pub const UP: Law = Law {
    target: Duration::from_millis(6),
    slack: Duration::from_millis(44),
    drain: Duration::from_millis(70),
    grow: 0.14,
    gain: 0.4,
    doubt: 5.5,
    most: 3.9,
    back: 1.03,
    least: 0.3,
};

impl Params {
    /// Checks ranges.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), &'static str> {
        let (min, max) = (
            self.min.unwrap_or(Rate::ZERO),
            self.max.unwrap_or(Rate::MAX),
        );
        if min > max {
            return Err("min must not be larger than max");
        }
        if self.start.is_some_and(|start| start < min || start > max) {
            return Err("start must be between min and max");
        }
        if self.first().min(max) < Rate::from_bps_f64(FLOOR) {
            return Err("start and max must be at least 100kbit");
        }
        if self.drain.is_some_and(|drain| drain < MS) {
            return Err("drain must be at least 1ms");
        }
        Ok(())
    }

    /// First rate if the shaper has none yet.
    pub fn first(&self) -> Rate {
        let (min, max) = (
            self.min.unwrap_or(Rate::ZERO),
            self.max.unwrap_or(Rate::MAX),
        );
        self.start.unwrap_or(START).max(min).min(max)
    }

    /// The loop's constants: those given, else those of [`DOWN`] or [`UP`].
    pub(super) fn law(&self) -> Law {
        let usual = if self.ingress { DOWN } else { UP };
        let share = |own: Option<u32>, usual| own.map_or(usual, |own| f64::from(own) / 100.0);
        Law {
            target: self.target.unwrap_or(usual.target),
            slack: self.slack.unwrap_or(usual.slack),
            drain: self.drain.unwrap_or(usual.drain),
            grow: share(self.grow, usual.grow),
            gain: share(self.gain, usual.gain),
            doubt: share(self.doubt, usual.doubt),
            most: share(self.most, usual.most),
            back: share(self.back, usual.back),
            least: share(self.least, usual.least),
        }
    }
}
