//! Adaptive streaming: a player requests segments of a few seconds, each in one of several
//! qualities, and plays them from a buffer.

use quell_link::hist::Hist;
use quell_link::record::Application;
use quell_qdisc::time::{Duration, Instant, MS, NEVER, SEC};

use super::{Action, Event};
use crate::scenario::{Adaptation, Video};

/// Play time of a segment (DASH Industry Forum's usual length; also in Yin et al. 2015).
const SEGMENT: Duration = Duration::from_secs(4);
/// Bit rates, kbit/s: Netflix's fixed ladder (per-title encoding, 2015).
const LADDER: [u64; 10] = [235, 375, 560, 750, 1050, 1750, 2350, 3000, 4300, 5800];
/// Buffer-based adaptation (Yin et al. 2015): capacity of the buffer; level up to which the
/// lowest rate is chosen; range above that in which the rate rises to the highest.
const CAPACITY: Duration = Duration::from_secs(30);
const RESERVOIR: Duration = Duration::from_secs(5);
const CUSHION: Duration = Duration::from_secs(10);
/// Number of segments whose harmonic mean of throughputs is the prediction (Yin et al. 2015).
const REMEMBERED: usize = 5;

/// A video player.
#[derive(Clone, Debug)]
pub struct Player {
    adaptation: Adaptation,
    /// Start of the name query; `NEVER` before.
    began: Instant,
    /// Time of the start or, with a full buffer, of room for the next segment; otherwise `NEVER`.
    pub wake_at: Instant,
    connection: u8,
    /// Play time in the buffer at `as_of`.
    buffer: Duration,
    as_of: Instant,
    /// Whether the first segment has arrived.
    playing: bool,
    /// The requested segment: its index in the ladder, and the time of the request.
    quality: usize,
    requested_at: Instant,
    /// Throughputs of the last segments, bit/s.
    throughputs: Vec<f64>,
    /// Time from the name query to the arrival of the first segment.
    startup: Option<Duration>,
    counts: Counts,
}

/// Counters since the end of the warm-up.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    played: Duration,
    stalled: Duration,
    /// Segments received, and the sum of their bit rates, kbit/s.
    segments: u64,
    kbit: u64,
    /// Changes of the quality.
    switches: u64,
}

impl Player {
    /// A player that starts at `start`.
    pub fn new(video: &Video, start: Instant) -> Self {
        Self {
            adaptation: video.adaptation,
            began: NEVER,
            wake_at: start,
            connection: 0,
            buffer: Duration::ZERO,
            as_of: Instant::ZERO,
            playing: false,
            quality: 0,
            requested_at: Instant::ZERO,
            throughputs: Vec::new(),
            startup: None,
            counts: Counts::default(),
        }
    }

    /// Handles an event.
    pub fn on(&mut self, now: Instant, event: Event, measuring: bool, todo: &mut Vec<Action>) {
        self.play(now, measuring);
        match event {
            Event::Wake => {
                self.wake_at = NEVER;
                if self.began == NEVER {
                    self.began = now;
                    return todo.push(Action::Resolve);
                }
                self.request_segment(now, measuring, todo);
            }
            Event::Resolved => todo.push(Action::Connect(0)),
            Event::Opened(_) => {}
            Event::Connected(connection) => {
                self.connection = connection;
                self.request_segment(now, measuring, todo);
            }
            Event::Received(_) => {
                let bits = (LADDER[self.quality] * 1000) as f64 * (SEGMENT / SEC) as f64;
                let took = (now - self.requested_at)
                    .max(Duration::from_nanos(1))
                    .as_secs_f64();
                if self.throughputs.len() == REMEMBERED {
                    self.throughputs.remove(0);
                }
                self.throughputs.push(bits / took);
                self.buffer += SEGMENT;
                self.playing = true;
                self.startup.get_or_insert(now - self.began);
                if measuring {
                    self.counts.segments += 1;
                    self.counts.kbit += LADDER[self.quality];
                }
                match (self.buffer + SEGMENT).checked_sub(CAPACITY) {
                    Some(wait) if wait > Duration::ZERO => self.wake_at = now + wait,
                    _ => self.request_segment(now, measuring, todo),
                }
            }
        }
    }

    /// Plays from the buffer until `now`; once it is empty, playback stalls.
    fn play(&mut self, now: Instant, measuring: bool) {
        let time = now - self.as_of;
        self.as_of = now;
        if !self.playing {
            return;
        }
        let played = time.min(self.buffer);
        self.buffer -= played;
        if measuring {
            self.counts.played += played;
            self.counts.stalled += time - played;
        }
    }

    fn request_segment(&mut self, now: Instant, measuring: bool, todo: &mut Vec<Action>) {
        let chosen = match self.adaptation {
            Adaptation::Buffer => by_buffer(self.buffer),
            Adaptation::Rate => by_rate(&self.throughputs),
        };
        if measuring && self.startup.is_some() && chosen != self.quality {
            self.counts.switches += 1;
        }
        self.quality = chosen;
        self.requested_at = now;
        let bytes = LADDER[chosen] * 1000 / 8 * (SEGMENT / SEC);
        todo.push(Action::Fetch(self.connection, bytes));
    }

    /// The user's experience so far; `None` before the first request.
    pub fn result(&self, now: Instant) -> Option<Application> {
        if self.began == NEVER {
            return None;
        }
        let mut end = self.clone();
        end.play(now, true);
        let (c, ms) = (end.counts, 1.0 / MS.as_nanos() as f64);
        let startup = self.startup.map(|startup| {
            let mut one = Hist::new();
            one.record(startup.as_nanos());
            one.summary(ms)
        });
        let watched = c.played + c.stalled;
        Some(Application {
            startup_ms: startup,
            rebuffer_ratio: Some(match watched {
                Duration::ZERO => 1.0,
                watched => c.stalled.as_nanos() as f64 / watched.as_nanos() as f64,
            }),
            rate_mbps: Some(c.kbit as f64 / 1e3 / c.segments.max(1) as f64),
            switches: Some(c.switches),
            ..Application::default()
        })
    }
}

/// The highest rate that the buffer's level allows: the limit rises linearly from the lowest to the
/// highest rate over the cushion (Huang et al. 2014, in the form of Yin et al. 2015).
fn by_buffer(level: Duration) -> usize {
    let (low, high) = (LADDER[0], LADDER[LADDER.len() - 1]);
    let above = level.saturating_sub(RESERVOIR).min(CUSHION);
    let allowed = low + (high - low) * above / CUSHION;
    LADDER
        .iter()
        .rposition(|rate| *rate <= allowed)
        .unwrap_or(0)
}

/// The highest rate not above the harmonic mean of the last throughputs; the lowest if there are
/// none.
fn by_rate(throughputs: &[f64]) -> usize {
    let sum: f64 = throughputs.iter().map(|t| 1.0 / t).sum();
    let predicted = match throughputs.len() {
        0 => 0.0,
        n => n as f64 / sum / 1e3,
    };
    let fits = |rate: &u64| *rate as f64 <= predicted;
    LADDER.iter().rposition(fits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffers_level_chooses_the_rate() {
        // Below the reservoir the lowest rate, above reservoir and cushion the highest; in the
        // middle at most 235 + 5565 / 2 = 3017.
        let rates = [0, 5, 10, 15, 30].map(|s| LADDER[by_buffer(s * SEC)]);
        assert_eq!(rates, [235, 235, 3000, 5800, 5800]);
    }

    #[test]
    fn the_harmonic_mean_of_throughputs_chooses_the_rate() {
        assert_eq!(by_rate(&[]), 0);
        // 2 / (1/1 + 1/4) = 1.6 Mbit/s.
        assert_eq!(LADDER[by_rate(&[1e6, 4e6])], 1050);
        assert_eq!(LADDER[by_rate(&[100e6])], 5800);
    }

    #[test]
    fn a_slow_network_stalls_a_player_by_its_shortfall() {
        // Segments of 4 s take 5 s each: 1 s of stall per 4 s played.
        let video = Video {
            adaptation: Adaptation::Rate,
            ..Video::default()
        };
        let (mut p, mut todo) = (Player::new(&video, Instant::ZERO), Vec::new());
        p.on(Instant::ZERO, Event::Wake, true, &mut todo);
        p.on(Instant::ZERO, Event::Resolved, true, &mut todo);
        p.on(Instant::ZERO, Event::Connected(0), true, &mut todo);
        for k in 1..=100 {
            p.on(
                Instant::ZERO + k * 5 * SEC,
                Event::Received(0),
                true,
                &mut todo,
            );
        }
        let r = p.result(Instant::from_secs(500)).expect("a stream");
        assert_eq!(r.startup_ms.expect("a start").max, 5000.0);
        // After the start, each of 99 intervals of 5 s has 1 s of stall.
        assert_eq!(r.rebuffer_ratio, Some(0.2));
        assert_eq!((r.rate_mbps, r.switches), (Some(0.235), Some(0)));
    }

    #[test]
    fn switches_and_the_mean_rate_are_those_of_the_segments_that_arrived() {
        let video = Video {
            adaptation: Adaptation::Rate,
            ..Video::default()
        };
        let (mut p, mut todo) = (Player::new(&video, Instant::ZERO), Vec::new());
        p.on(Instant::ZERO, Event::Wake, true, &mut todo);
        p.on(Instant::ZERO, Event::Connected(0), true, &mut todo);
        // 4 s at 235 kbit/s in 1 s: 0.94 Mbit/s, so 750. 3 Mbit in 1 s: 2 / (1/0.94 + 1/3) = 1.43,
        // so 1050. 4.2 Mbit in 100 s: 3 / (1/0.94 + 1/3 + 1/0.042) = 0.12, so 235 again.
        for at in [1, 2, 102, 103] {
            p.on(Instant::from_secs(at), Event::Received(0), true, &mut todo);
        }
        let r = p.result(Instant::from_secs(103)).expect("a stream");
        assert_eq!(r.switches, Some(3));
        assert_eq!(r.rate_mbps, Some((0.235 + 0.75 + 1.05 + 0.235) / 4.0));
    }

    #[test]
    fn a_full_buffer_waits_for_room() {
        let (mut p, mut todo) = (Player::new(&Video::default(), Instant::ZERO), Vec::new());
        p.on(Instant::ZERO, Event::Wake, true, &mut todo);
        p.on(Instant::ZERO, Event::Connected(0), true, &mut todo);
        for k in 1..=7 {
            assert_eq!(p.wake_at, NEVER);
            p.on(Instant::from_nanos(k), Event::Received(0), true, &mut todo);
        }
        // 28 s less 6 ns are buffered, of at most 30 s. So there is room for 4 s more in 2 s less
        // 6 ns.
        assert_eq!(p.wake_at, Instant::from_nanos(2_000_000_001));
    }
}
