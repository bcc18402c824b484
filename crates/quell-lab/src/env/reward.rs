//! Readings and rewards of a period.

use super::Move;
use quell_link::Error;
use quell_link::units;
use quell_link::words::{LearnQueueWords, Queue};
use quell_qdisc::control::learnqueue;
use quell_qdisc::control::rlaqm::dqn::PeriodReward;
use quell_qdisc::time::{MS, SEC};
use quell_qdisc::{Gauges, num};

/// Bytes that LFQ's reward charges for each queued packet, and bytes in its unit (MB).
const PACKET: f64 = 1446.0;
const UNIT: f64 = 1e6;

/// One measurement of the period between two decisions. [`READINGS`] has their meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "READINGS has their meanings")]
pub enum Reading {
    Delay,
    Utilisation,
    Knob,
    Sojourn,
    Backlog,
    Throughput,
    Arrivals,
    EnqueueRate,
    Loss,
    Rate,
}

/// A reading's name and meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadingInfo {
    /// The reading.
    pub reading: Reading,
    /// Its name in the interface.
    pub name: &'static str,
    /// Maximum; larger values are clamped to it.
    pub max: f64,
    /// Its meaning, in one line.
    pub meaning: &'static str,
}

const fn info(
    reading: Reading,
    name: &'static str,
    max: f64,
    meaning: &'static str,
) -> ReadingInfo {
    ReadingInfo {
        reading,
        name,
        max,
        meaning,
    }
}

/// Every reading, in the order of [`Reading`].
pub const READINGS: [ReadingInfo; 10] = [
    info(
        Reading::Delay,
        "delay_ms",
        1e6,
        "time that the bytes queued now take at the link's present rate, ms",
    ),
    info(
        Reading::Utilisation,
        "utilisation",
        1.0,
        "bytes that left the queue in the period over what the link can send at its present rate, at most 1",
    ),
    info(
        Reading::Knob,
        "knob",
        u32::MAX as f64,
        "the knob in the period: packets (limit) or probability (drop)",
    ),
    info(
        Reading::Sojourn,
        "sojourn_ms",
        1e6,
        "time in the queue of the packet that left last in the period; if none did, the age of the head, ms",
    ),
    info(
        Reading::Backlog,
        "backlog_packets",
        1e6,
        "packets queued now",
    ),
    info(
        Reading::Throughput,
        "throughput_mbps",
        1e7,
        "bytes that left the queue in the period, Mbit/s",
    ),
    info(
        Reading::Arrivals,
        "arrivals",
        1e9,
        "packets that arrived in the period",
    ),
    info(
        Reading::EnqueueRate,
        "enqueue_rate",
        1.0,
        "share of the arrivals that did not find the limit reached; 1 without arrivals",
    ),
    info(
        Reading::Loss,
        "loss",
        1.0,
        "share of the arrivals that was dropped, for any cause; 0 without arrivals",
    ),
    info(
        Reading::Rate,
        "rate_mbps",
        1e7,
        "the link's present rate, in an outage its last one, Mbit/s",
    ),
];

impl Reading {
    /// Finds a reading by its name.
    ///
    /// # Errors
    /// If there is no such reading.
    pub fn parse(name: &str) -> Result<Self, Error> {
        let known = READINGS.iter().map(|i| i.name);
        let found = READINGS.iter().find(|i| i.name == name);
        found
            .map(|i| i.reading)
            .ok_or_else(|| Error::unknown("reading", name, known))
    }

    /// Its name and meaning.
    pub fn info(self) -> &'static ReadingInfo {
        &READINGS[self as usize]
    }
}

/// All readings of one period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Readings([f64; READINGS.len()]);

impl Readings {
    /// Readings of the period between two gauges, with the knob at `knob`.
    #[inline]
    pub(super) fn of(knob: f64, last: &Gauges, now: &Gauges) -> Self {
        let ms = 1.0 / MS.as_nanos() as f64;
        let span_s = (now.now - last.now).as_secs_f64();
        let rate = now.rate.bps_f64();
        let over_rate = if rate > 0.0 { 8.0 / rate } else { 0.0 };
        let bytes = (now.departed_bytes - last.departed_bytes) as f64;
        let (throughput, utilisation) = if span_s > 0.0 {
            (bytes * 8e-6 / span_s, bytes * over_rate / span_s)
        } else {
            (0.0, 0.0)
        };
        let arrivals = (now.arrivals - last.arrivals) as f64;
        let overflow = (now.drops_overflow - last.drops_overflow) as f64;
        let early = (now.drops_early - last.drops_early) as f64;
        let per_arrival = 1.0 / arrivals.max(1.0);
        let sojourn = match now.departures > last.departures {
            true => now.sojourn,
            false => now.head_age,
        };
        let mut all = [
            1e3 * now.backlog_bytes as f64 * over_rate,
            utilisation,
            knob,
            sojourn.as_nanos() as f64 * ms,
            f64::from(now.backlog_packets),
            throughput,
            arrivals,
            1.0 - overflow * per_arrival,
            (overflow + early) * per_arrival,
            rate * 1e-6,
        ];
        for (value, info) in all.iter_mut().zip(&READINGS) {
            *value = value.clamp(0.0, info.max);
        }
        Self(all)
    }

    /// The value of one reading.
    #[inline]
    pub fn get(&self, reading: Reading) -> f64 {
        self.0[reading as usize]
    }
}

/// Reward of a period.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reward {
    /// RL-AQM's reward, from -2 to 1. The paper has the square of the utilisation, its code the
    /// utilisation itself.
    RlAqm(PeriodReward),
    /// LearnQueue's reward, ms: equation 11 of the paper with the sign of the action, or its
    /// equations 11 to 14.
    LearnQueue(Box<learnqueue::Params>),
    /// LFQ's reward: bytes sent per second less α times the bytes queued at the end of the period,
    /// MB/s.
    Lfq {
        /// Weight of the delay, 1/s.
        alpha: f64,
    },
}

impl Reward {
    /// Reads `rlaqm [u_power 1]`, `learnqueue` with that queue's options, or `lfq [alpha 10]`.
    ///
    /// # Errors
    /// If there is no such reward, or an option is wrong.
    pub fn parse(words: &str) -> Result<Self, Error> {
        let list: Vec<&str> = words.split_whitespace().collect();
        match list[..] {
            ["rlaqm"] | ["rlaqm", "u_power", "2"] => Ok(Reward::RlAqm(PeriodReward::PAPER)),
            ["rlaqm", "u_power", "1"] => Ok(Reward::RlAqm(PeriodReward {
                square: false,
                ..PeriodReward::PAPER
            })),
            ["lfq"] => Ok(Reward::Lfq { alpha: 10.0 }),
            ["lfq", "alpha", alpha] => match units::parse_number(alpha)? {
                alpha if (0.0..=1e9).contains(&alpha) => Ok(Reward::Lfq { alpha }),
                _ => Err(Error::new(format!("{alpha} is out of range")).key("alpha")),
            },
            ["learnqueue", ..] => match Queue::parse(words)?.spec::<LearnQueueWords>() {
                Some(words) => Ok(Reward::LearnQueue(Box::new(words.params.clone()))),
                None => Err(Error::new("not a learnqueue")),
            },
            ["rlaqm", ..] => Err(Error::new(format!("`{words}` is not understood"))
                .remedy("write rlaqm u_power 1 or 2")),
            ["lfq", ..] => {
                Err(Error::new(format!("`{words}` is not understood")).remedy("write lfq alpha 10"))
            }
            _ => Err(Error::unknown(
                "reward",
                list.first().unwrap_or(&""),
                ["rlaqm", "learnqueue", "lfq"],
            )),
        }
    }

    /// Reward of the time between two actions at packets, MB: LFQ's formula (the paper's section
    /// III) times that time. The sum over an episode is thus the formula's value for the whole
    /// episode times its length. It is the bytes that left, without `overhead` bytes per packet,
    /// less alpha times 1446 bytes for each second that a packet was queued. Other rewards are 0
    /// here.
    pub(super) fn of_step(&self, overhead: u32, last: &Gauges, now: &Gauges) -> f64 {
        let Reward::Lfq { alpha } = self else {
            return 0.0;
        };
        let bytes = |g: &Gauges| g.departed_bytes - u64::from(overhead) * g.departures;
        let sent = (bytes(now) - bytes(last)) as f64;
        let queued = (now.backlog_ns - last.backlog_ns) as f64 / SEC.as_nanos() as f64;
        (sent - alpha * queued * PACKET) / UNIT
    }

    /// Whether the sign of the reward depends on the move: below the target a move up is rewarded,
    /// above it a move down.
    pub(super) fn is_signed(&self) -> bool {
        let signed = learnqueue::readings::Reward::Signed;
        matches!(self, Reward::LearnQueue(p) if p.reward == signed)
    }

    /// Reward of a period and of the action at its start.
    #[inline]
    pub fn of(&self, r: &Readings, moved: Move) -> f64 {
        match self {
            Reward::RlAqm(reward) => reward.of(r.get(Reading::Delay), r.get(Reading::Utilisation)),
            Reward::LearnQueue(p) => p.reward(&learnqueue::Period {
                direction: moved.direction,
                bounded: moved.bounded,
                limit: num::whole_u32(r.get(Reading::Knob)),
                delay_ms: r.get(Reading::Sojourn),
                enqueue_rate: r.get(Reading::EnqueueRate),
            }),
            Reward::Lfq { alpha } => {
                let queued = r.get(Reading::Delay) * 1e-3 * r.get(Reading::Rate) / 8.0;
                r.get(Reading::Throughput) / 8.0 - alpha * queued
            }
        }
    }
}
