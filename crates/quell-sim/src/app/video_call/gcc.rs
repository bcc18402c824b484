//! Google Congestion Control: the rate at which a sender of a video call may send
//! (draft-ietf-rmcat-gcc-02).
//!
//! It follows the draft's equations, with four differences, all from libwebrtc, which the draft
//! describes:
//! - The trend of the delay is the slope of a line fitted to the last groups; the draft has a
//!   Kalman filter. The gain and the adaptation of the threshold are those of the line
//!   (`trendline_estimator.cc`).
//! - Unless the signal was normal in between or the receive rate is below half of the rate, a
//!   further decrease waits for a round trip (`aimd_rate_control.cc`).
//! - The mean and variance of the rate at decreases are those of `link_capacity_estimator.cc`; the
//!   draft names only a smoothing factor of 0.95.
//! - Loss is evaluated over at least 20 packets, and decreases for it are at least 300 ms and a
//!   round trip apart (`send_side_bandwidth_estimation.cc`).
//!
//! There are no bandwidth probes: the draft has none, libwebrtc does.

use std::collections::VecDeque;

use quell_qdisc::time::{Duration, Instant, MS, SEC};

/// Packets sent within this time form one group (draft, section 5.2 and table 1).
const BURST: Duration = Duration::from_millis(5);
/// Maximum duration of a group that grows because its packets arrive in a burst
/// (`inter_arrival.cc`).
const MAX_BURST: Duration = Duration::from_millis(100);
/// Number of groups that the line is fitted to, weight of the past in the smoothed delay, and gain
/// of the trend (`trendline_estimator.cc`).
const WINDOW: usize = 20;
const SMOOTHING: f64 = 0.9;
const GAIN: f64 = 4.0;
/// Upper bound of the number of groups, by which the slope is multiplied
/// (`trendline_estimator.cc`).
const MAX_GROUPS: u32 = 60;
/// Initial threshold, ms (draft, table 1), its range (section 5.4), and the gains of its adaptation
/// (`trendline_estimator.cc`).
const THRESHOLD: f64 = 12.5;
const THRESHOLDS: (f64, f64) = (6.0, 600.0);
const K_UP: f64 = 0.0087;
const K_DOWN: f64 = 0.039;
/// Excess of the trend over the threshold above which the threshold does not adapt, ms (section
/// 5.4), and upper bound of the time between adaptations, ms.
const OUTLIER: f64 = 15.0;
const MAX_TIME: f64 = 100.0;
/// Duration of over-use before it is signalled, ms (draft, table 1).
const OVERUSE_TIME: f64 = 10.0;
/// Window of the receive rate (draft, table 1: 0.5 to 1 s).
const RATE_WINDOW: Duration = Duration::from_millis(500);
/// Factor of the multiplicative increase per second, and factor of a decrease (section 5.5).
const ETA: f64 = 1.08;
const BETA: f64 = 0.85;
/// The estimate stays below this multiple of the receive rate (section 5.5), plus this many bit/s
/// (`aimd_rate_control.cc`).
const MAX_OVER_RECEIVED: f64 = 1.5;
const SLACK: f64 = 10_000.0;
/// Number of standard deviations around the mean rate at decreases within which increases are
/// additive (section 5.5).
const DEVIATIONS: f64 = 3.0;
/// Bits of a packet and frames per second, for the additive increase (section 5.5).
const PACKET_BITS: f64 = 1200.0 * 8.0;
pub const FRAMES: u64 = 30;
/// Time from the cause of an over-use to its detection, ms (section 5.5).
const DETECTION: f64 = 100.0;
/// Share of loss below which the rate rises, and above which it falls; factor of the rise (section
/// 6).
const LOSS: (f64, f64) = (0.02, 0.1);
const RISE: f64 = 1.05;
/// Minimum number of packets over which loss is evaluated; decreases for loss are at least
/// `LOSS_WAIT` and a round trip apart (`send_side_bandwidth_estimation.cc`).
const MIN_PACKETS: u32 = 20;
const LOSS_WAIT: Duration = Duration::from_millis(300);
/// Minimum rate of video, bit/s (`media/engine/webrtc_video_engine.cc`).
const MIN_RATE: f64 = 30_000.0;

/// State of the path, detected by the trend of its delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Normal,
    /// Over-use: the delay grows.
    Over,
    /// Under-use: the delay shrinks.
    Under,
}

/// State of the rate control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Hold,
    Increase,
}

/// Packets that are evaluated together.
#[derive(Clone, Copy, Debug)]
struct Group {
    first_sent: Instant,
    last_sent: Instant,
    first_arrived: Instant,
    last_arrived: Instant,
}

/// Mean and variance of the rate at decreases, kbit/s (`link_capacity_estimator.cc`).
#[derive(Clone, Copy, Debug)]
struct Capacity {
    mean: f64,
    /// Variance divided by the mean.
    spread: f64,
}

impl Capacity {
    fn updated(before: Option<Self>, kbps: f64) -> Self {
        let Some(Self { mean, spread }) = before else {
            return Self {
                mean: kbps,
                spread: 0.4,
            };
        };
        let mean = 0.95 * mean + 0.05 * kbps;
        let error = mean - kbps;
        let spread = 0.95 * spread + 0.05 * error * error / mean.max(1.0);
        Self {
            mean,
            spread: spread.clamp(0.4, 2.5),
        }
    }

    /// Whether a rate is close to those of the last decreases.
    fn is_near(&self, kbps: f64) -> bool {
        (kbps - self.mean).abs() <= DEVIATIONS * (self.spread * self.mean).sqrt()
    }
}

/// The congestion control of one sender.
#[derive(Clone, Debug)]
pub struct Gcc {
    /// Upper bound of the rate, bit/s.
    max_rate: f64,
    /// The group to which the next packet may belong, and the one before it.
    present: Option<Group>,
    previous: Option<Group>,
    /// Number of groups evaluated.
    groups: u32,
    /// Sum of all delay variations, and its smoothed value, ms.
    delay: f64,
    smoothed: f64,
    /// Arrival time and smoothed delay of the last groups, ms.
    points: VecDeque<(f64, f64)>,
    slope: f64,
    /// Threshold of the trend, ms, and the time of its last adaptation.
    threshold: f64,
    adapted: Instant,
    /// Time for which the trend has been above the threshold, ms, and number of groups in it.
    over_ms: Option<f64>,
    over_groups: u32,
    signal: Signal,
    /// Arrival time and bytes of the packets of the last window.
    received: VecDeque<(Instant, u32)>,
    first_arrival: Option<Instant>,
    phase: Phase,
    capacity: Option<Capacity>,
    /// Limit of the rate by delay, bit/s, and the time of its last change.
    by_delay: f64,
    changed: Instant,
    /// Limit of the rate by loss, bit/s.
    by_loss: f64,
    /// Packets lost, and all packets, since loss was last evaluated.
    lost: u32,
    packets: u32,
    decreased_for_loss: Instant,
    /// Smoothed RTT.
    pub rtt: Duration,
}

impl Gcc {
    /// A controller that starts at `start` bit/s and never exceeds `max_rate`.
    pub fn new(start: f64, max_rate: f64) -> Self {
        Self {
            max_rate,
            present: None,
            previous: None,
            groups: 0,
            delay: 0.0,
            smoothed: 0.0,
            points: VecDeque::with_capacity(WINDOW + 1),
            slope: 0.0,
            threshold: THRESHOLD,
            adapted: Instant::ZERO,
            over_ms: None,
            over_groups: 0,
            signal: Signal::Normal,
            received: VecDeque::new(),
            first_arrival: None,
            phase: Phase::Increase,
            capacity: None,
            by_delay: start.min(max_rate),
            changed: Instant::ZERO,
            by_loss: start.min(max_rate),
            lost: 0,
            packets: 0,
            decreased_for_loss: Instant::ZERO,
            rtt: 200 * MS, // until the first sample (`aimd_rate_control.cc`)
        }
    }

    /// The rate at which the sender may send, bit/s.
    pub fn target(&self) -> f64 {
        self.by_delay.min(self.by_loss)
    }

    /// A packet has arrived, according to a report. Only differences of `sent` and of `arrived` are
    /// used: each end has its own clock.
    pub fn arrived(&mut self, sent: Instant, arrived: Instant, bytes: u32) {
        self.first_arrival.get_or_insert(arrived);
        self.received.push_back((arrived, bytes));
        while (self.received.front()).is_some_and(|(at, _)| *at + RATE_WINDOW <= arrived) {
            self.received.pop_front();
        }
        let fresh = Group {
            first_sent: sent,
            last_sent: sent,
            first_arrived: arrived,
            last_arrived: arrived,
        };
        match &mut self.present {
            None => self.present = Some(fresh),
            Some(group) if sent < group.first_sent => {} // out of order
            Some(group) if group.contains(sent, arrived) => {
                group.last_sent = group.last_sent.max(sent);
                group.last_arrived = arrived;
            }
            Some(group) => {
                let done = *group;
                *group = fresh;
                if let Some(before) = self.previous.replace(done) {
                    self.evaluate(&before, &done);
                }
            }
        }
    }

    /// Evaluates a complete group (sections 5.1 to 5.4).
    fn evaluate(&mut self, before: &Group, group: &Group) {
        let ms = |later: Instant, earlier: Instant| {
            (later.as_nanos() as f64 - earlier.as_nanos() as f64) / MS.as_nanos() as f64
        };
        let sent = ms(group.last_sent, before.last_sent);
        self.groups += 1;
        self.delay += ms(group.last_arrived, before.last_arrived) - sent;
        self.smoothed = SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * self.delay;
        self.points.push_back((
            group.last_arrived.as_nanos() as f64 / MS.as_nanos() as f64,
            self.smoothed,
        ));
        if self.points.len() > WINDOW {
            self.points.pop_front();
        }
        let before = self.slope;
        if self.points.len() == WINDOW {
            self.slope = slope(&self.points).unwrap_or(before);
        }
        if self.groups < 2 {
            return;
        }
        let trend = f64::from(self.groups.min(MAX_GROUPS)) * self.slope * GAIN;
        if trend > self.threshold {
            // The first time, assume that the over-use began in the middle of the interval.
            let over = self.over_ms.map_or(sent / 2.0, |ms| ms + sent);
            (self.over_ms, self.over_groups) = (Some(over), self.over_groups + 1);
            if over > OVERUSE_TIME && self.over_groups > 1 && self.slope >= before {
                (self.over_ms, self.over_groups) = (Some(0.0), 0);
                self.signal = Signal::Over;
            }
        } else {
            (self.over_ms, self.over_groups) = (None, 0);
            self.signal = match trend < -self.threshold {
                true => Signal::Under,
                false => Signal::Normal,
            };
        }
        self.adapt(trend.abs(), group.last_arrived);
    }

    /// Adapts the threshold to the trend, which lets the flow compete with TCP (section 5.4).
    fn adapt(&mut self, trend: f64, now: Instant) {
        let time = now.saturating_since(self.adapted).as_millis_f64();
        self.adapted = now;
        if trend > self.threshold + OUTLIER {
            return;
        }
        let k = if trend < self.threshold { K_DOWN } else { K_UP };
        self.threshold += k * (trend - self.threshold) * time.min(MAX_TIME);
        self.threshold = self.threshold.clamp(THRESHOLDS.0, THRESHOLDS.1);
    }

    /// Receive rate over the last window, bit/s; `None` before a whole window.
    fn receive_rate(&self) -> Option<f64> {
        let (last, first) = (self.received.back()?.0, self.first_arrival?);
        let bytes: u64 = self.received.iter().map(|(_, b)| u64::from(*b)).sum();
        (last >= first + RATE_WINDOW).then_some(bytes as f64 * 8.0 * (SEC / RATE_WINDOW) as f64)
    }

    /// Updates the rate at the end of a report about `all` packets, of which `lost` did not arrive.
    pub fn reported(&mut self, now: Instant, lost: u32, all: u32) {
        if let Some(received) = self.receive_rate() {
            self.update_by_delay(now, received);
        }
        self.by_delay = self.by_delay.clamp(MIN_RATE, self.max_rate);
        self.update_by_loss(now, lost, all);
    }

    /// Updates the limit by delay, given the receive rate, bit/s (section 5.5).
    fn update_by_delay(&mut self, now: Instant, received: f64) {
        let kbps = received / 1e3;
        let since = now.saturating_since(self.changed);
        match self.signal {
            Signal::Over => {
                let wait = self.rtt.clamp(10 * MS, 200 * MS);
                if since < wait && received >= self.by_delay / 2.0 && self.phase == Phase::Hold {
                    return;
                }
                if !self.capacity.is_some_and(|c| c.is_near(kbps)) {
                    self.capacity = None;
                }
                self.by_delay = self.by_delay.min(BETA * received);
                self.capacity = Some(Capacity::updated(self.capacity, kbps));
                self.phase = Phase::Hold;
                self.changed = now;
            }
            Signal::Under => self.phase = Phase::Hold,
            Signal::Normal if self.phase == Phase::Hold => {
                self.phase = Phase::Increase;
                self.changed = now;
            }
            Signal::Normal => {
                // A rate far above those of the last decreases shows that the capacity has risen.
                if self
                    .capacity
                    .is_some_and(|c| kbps > c.mean && !c.is_near(kbps))
                {
                    self.capacity = None;
                }
                let seconds = since.as_secs_f64().min(1.0);
                let more = match self.capacity {
                    Some(_) => self.additive(since),
                    None => self.by_delay * (libm::pow(ETA, seconds) - 1.0),
                };
                let limit = MAX_OVER_RECEIVED * received + SLACK;
                if self.by_delay < limit {
                    self.by_delay = (self.by_delay + more.max(1000.0)).min(limit);
                }
                self.changed = now;
            }
        }
    }

    /// Additive increase, bit/s: half a packet per response time, which is the RTT plus the time of
    /// detection (section 5.5).
    fn additive(&self, since: Duration) -> f64 {
        let response = DETECTION + self.rtt.as_millis_f64();
        let share = (since.as_millis_f64() / response).min(1.0);
        let frame = self.by_delay / FRAMES as f64;
        0.5 * share * frame / (frame / PACKET_BITS).ceil()
    }

    /// Updates the limit by loss (section 6), which is first lowered to the limit by delay.
    fn update_by_loss(&mut self, now: Instant, lost: u32, all: u32) {
        self.lost += lost;
        self.packets += all;
        if self.packets < MIN_PACKETS {
            return;
        }
        let loss = f64::from(self.lost) / f64::from(self.packets);
        (self.lost, self.packets) = (0, 0);
        self.by_loss = self.by_loss.min(self.by_delay);
        if loss < LOSS.0 {
            self.by_loss = RISE * self.by_loss + 1000.0;
        } else if loss > LOSS.1 && now >= self.decreased_for_loss + LOSS_WAIT + self.rtt {
            self.by_loss *= 1.0 - 0.5 * loss;
            self.decreased_for_loss = now;
        }
        self.by_loss = self.by_loss.clamp(MIN_RATE, self.max_rate);
    }
}

impl Group {
    /// Whether a packet belongs to the group (section 5.2).
    fn contains(&self, sent: Instant, arrived: Instant) -> bool {
        let apart = arrived.saturating_since(self.last_arrived);
        let caught_up = self.last_sent + apart < sent;
        let burst =
            apart <= BURST && caught_up && arrived < self.first_arrived.saturating_add(MAX_BURST);
        burst || sent - self.first_sent <= BURST
    }
}

/// Slope of the least-squares line; `None` if all x are equal.
fn slope(points: &VecDeque<(f64, f64)>) -> Option<f64> {
    let n = points.len() as f64;
    let (x, y) = points
        .iter()
        .fold((0.0, 0.0), |(x, y), p| (x + p.0, y + p.1));
    let (x, y) = (x / n, y / n);
    let (covariance, variance) = points.iter().fold((0.0, 0.0), |(cov, var), p| {
        let dx = p.0 - x;
        (cov + dx * (p.1 - y), var + dx * dx)
    });
    (variance > 0.0).then(|| covariance / variance)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends packets of 1000 bytes at the target rate for `seconds` over a link of `bps` with an
    /// unbounded queue, with a report every 100 ms. One of `each` packets is lost; 0: none. Returns
    /// the longest queuing delay of the second half.
    fn run(gcc: &mut Gcc, bps: f64, seconds: u64, each: u32, from: Instant) -> Duration {
        let (mut sent, mut free, mut report) = (from, from, from + 100 * MS);
        let (mut count, mut lost, mut all, mut worst) = (0u32, 0, 0, Duration::ZERO);
        let end = from + seconds * SEC;
        while sent < end {
            free = free.max(sent) + Duration::from_nanos((8000.0 / bps * 1e9) as u64);
            (count, all) = (count + 1, all + 1);
            if each > 0 && count % each == 0 {
                lost += 1;
            } else {
                gcc.arrived(sent, free + 20 * MS, 1000);
            }
            if sent > from + seconds * SEC / 2 {
                worst = worst.max(free - sent);
            }
            sent += Duration::from_nanos((8000.0 / gcc.target() * 1e9) as u64);
            if sent >= report {
                gcc.reported(sent, lost, all);
                (lost, all, report) = (0, 0, report + 100 * MS);
            }
        }
        worst
    }

    #[test]
    fn without_congestion_the_rate_rises_by_8_percent_a_second() {
        let mut gcc = Gcc::new(300e3, 100e6);
        run(&mut gcc, 100e6, 11, 0, Instant::ZERO);
        // 300 * 1.08^11 = 699: the first increase also covers the time before the receive rate was
        // known.
        assert!(
            (gcc.target() / 699e3 - 1.0).abs() < 0.02,
            "{}",
            gcc.target()
        );
    }

    #[test]
    fn it_settles_just_below_a_constant_link_with_a_short_queue() {
        let mut gcc = Gcc::new(300e3, 10e6);
        let worst = run(&mut gcc, 2e6, 120, 0, Instant::ZERO);
        assert!((1.5e6..2.1e6).contains(&gcc.target()), "{}", gcc.target());
        assert!(worst < 100 * MS, "{worst:?}");
        assert!(gcc.capacity.is_some_and(|c| c.is_near(2000.0)));
    }

    #[test]
    fn a_drop_of_the_capacity_brings_the_rate_below_it() {
        let mut gcc = Gcc::new(2e6, 2.5e6);
        run(&mut gcc, 3e6, 20, 0, Instant::ZERO);
        assert!(gcc.target() > 2.4e6);
        run(&mut gcc, 1e6, 5, 0, Instant::from_secs(20));
        assert!(gcc.target() < 1e6, "{}", gcc.target());
    }

    #[test]
    fn loss_counts_from_a_tenth_on() {
        let after = |each| {
            let mut gcc = Gcc::new(1e6, 2e6);
            run(&mut gcc, 100e6, 5, each, Instant::ZERO);
            gcc.target()
        };
        // With 1 % loss the rate rises as the limit by delay does, with 5 % it is constant, and
        // with 20 % it falls by a tenth every 0.5 s (300 ms and the RTT of 200 ms).
        assert!(after(100) > 1.3e6);
        assert_eq!(after(20), 1e6);
        let halved = 1e6 * libm::pow(0.9, 9.0);
        assert!((after(5) / halved - 1.0).abs() < 0.2, "{}", after(5));
    }

    #[test]
    fn the_first_loss_takes_half_of_its_share() {
        let mut gcc = Gcc::new(1e6, 2e6);
        // 5 of 25 packets: 1 - 0.5 * 0.2.
        gcc.reported(Instant::from_secs(1), 5, 25);
        assert_eq!(gcc.target(), 0.9e6);
    }

    #[test]
    fn packets_of_a_burst_are_one_group() {
        let group = Group {
            first_sent: Instant::ZERO,
            last_sent: Instant::from_millis(2),
            first_arrived: Instant::from_millis(20),
            last_arrived: Instant::from_millis(30),
        };
        assert!(
            group.contains(Instant::from_millis(5), Instant::from_millis(50)),
            "sent within 5 ms"
        );
        assert!(
            group.contains(Instant::from_millis(20), Instant::from_millis(33)),
            "3 ms after, though sent 18 ms apart"
        );
        assert!(!group.contains(Instant::from_millis(20), Instant::from_millis(48)));
    }

    #[test]
    fn the_slope_is_that_of_the_least_squares() {
        // Points on y = 0.5 x with errors of +1, -2, +1: they are symmetric, so they do not change
        // the slope.
        let points = VecDeque::from([(0.0, 1.0), (10.0, 3.0), (20.0, 11.0)]);
        assert_eq!(slope(&points), Some(0.5));
        assert_eq!(slope(&VecDeque::from([(1.0, 1.0), (1.0, 2.0)])), None);
    }
}
