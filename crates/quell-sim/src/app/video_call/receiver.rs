//! The receiving half of an end: requests for retransmissions, and the display of frames.

use std::collections::VecDeque;

use quell_link::hist::Hist;
use quell_link::record::{Application, ratio};
use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, MS, NEVER, SEC};

use super::sender::Frame;
use super::{Content, Report};

/// Interval between reports (`remote_estimator_proxy.cc`).
const REPORTS: Duration = Duration::from_millis(100);
/// A key frame is requested when a packet is missing after this many requests for it, or when more
/// than this many packets are missing (`nack_requester.cc`).
const RETRIES: u32 = 10;
const MAX_MISSING: usize = 1000;
/// RTT before the first sample (`nack_requester.cc`).
const FIRST_RTT: Duration = Duration::from_millis(100);
/// Time after which a key frame is requested again (`video_receive_stream2.cc`).
const KEY_WAIT: Duration = Duration::from_millis(200);
/// Number of the last distances between frames whose mean is the normal distance. A freeze is a
/// distance of at least three times the normal one and at least 150 ms more than it (W3C,
/// Identifiers for WebRTC's Statistics API, `freezeCount`).
const NORMAL: usize = 30;
const FREEZE: Duration = Duration::from_millis(150);
/// Frames per second below which motion is not smooth: the rate of films.
const SMOOTH: u32 = 24;

/// A packet that is missing although a later one has arrived.
#[derive(Clone, Copy, Debug)]
struct Missing {
    number: u32,
    /// Number of requests for it, and time of the next one.
    requests: u32,
    due: Instant,
}

/// A frame that has not been shown and of which at least one packet has arrived.
#[derive(Clone, Copy, Debug)]
struct Partial {
    number: u32,
    frame: Frame,
    /// Number of its packets that have arrived.
    received: u32,
}

/// The receiving half of an end.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// Numbers of the next expected packet and frame.
    next: u32,
    frame: u32,
    missing: Vec<Missing>,
    partial: VecDeque<Partial>,
    /// Time of the next request for a key frame; `NEVER`: none is needed.
    key_due: Instant,
    /// Arrivals for the next report, by serial number from `report_from` on.
    report_from: u32,
    arrivals: Vec<Option<Instant>>,
    /// Time of the next report; `NEVER` if nothing has arrived since the last one.
    report_due: Instant,
    last_arrival: Instant,
    watch: Watch,
}

impl Receiver {
    /// A receiver that has received nothing.
    pub fn new() -> Self {
        Self {
            next: 0,
            frame: 0,
            missing: Vec::new(),
            partial: VecDeque::new(),
            key_due: NEVER,
            report_from: 0,
            arrivals: Vec::new(),
            report_due: NEVER,
            last_arrival: Instant::ZERO,
            watch: Watch::default(),
        }
    }

    /// Records the arrival of a datagram of any kind.
    pub fn note(&mut self, now: Instant, serial: u32) {
        let place = serial.wrapping_sub(self.report_from) as usize;
        if place > usize::from(u16::MAX) {
            return; // sent before those of the last report
        }
        if self.arrivals.len() <= place {
            self.arrivals.resize(place + 1, None);
        }
        self.arrivals[place] = Some(now);
        self.last_arrival = now;
        if self.report_due == NEVER {
            self.report_due = now + REPORTS;
        }
    }

    /// Handles a packet of the frame with number `of`; `skew` is the lead of the sender's clock,
    /// which timed the capture, over the receiver's, ns.
    pub fn media(&mut self, now: Instant, number: u32, of: u32, frame: Frame, skew: i64) {
        if number >= self.next {
            let fresh = (self.next..number).map(|number| Missing {
                number,
                requests: 0,
                due: now,
            });
            self.missing.extend(fresh);
            self.next = number + 1;
        } else if let Some(i) = self.missing.iter().position(|m| m.number == number) {
            self.missing.remove(i);
        } else {
            return; // a duplicate, or given up
        }
        if self.missing.len() > MAX_MISSING {
            self.missing.clear();
            self.request_key_frame(now);
        }
        if of < self.frame {
            return;
        }
        let place = self.partial.partition_point(|p| p.number < of);
        match self.partial.get_mut(place).filter(|p| p.number == of) {
            Some(partial) => partial.received += 1,
            None => self.partial.insert(
                place,
                Partial {
                    number: of,
                    frame,
                    received: 1,
                },
            ),
        }
        self.show(now, skew);
    }

    /// Shows the complete frames that can be decoded: the next one, or a key frame.
    fn show(&mut self, now: Instant, skew: i64) {
        let whole = |p: &Partial| p.received == p.frame.packets;
        loop {
            while let Some(partial) = self.partial.front()
                && partial.number == self.frame
                && whole(partial)
            {
                let frame = partial.frame;
                if frame.key {
                    self.key_due = NEVER;
                }
                self.watch.show(now, &frame, skew);
                self.frame += 1;
                self.partial.pop_front();
            }
            let key = self.partial.iter().position(|p| whole(p) && p.frame.key);
            let Some(key) = key else { return };
            self.partial.drain(..key);
            let Partial { number, frame, .. } = self.partial[0];
            self.frame = number;
            self.missing.retain(|m| m.number >= frame.first);
        }
    }

    fn request_key_frame(&mut self, now: Instant) {
        self.key_due = self.key_due.min(now);
    }

    /// Time of its next message.
    pub fn wake_at(&self) -> Instant {
        let due = self.missing.iter().map(|m| m.due);
        due.fold(self.report_due.min(self.key_due), Instant::min)
    }

    /// Returns the message to be sent now, if any.
    pub fn poll(&mut self, now: Instant, rtt: Option<Duration>) -> Option<Content> {
        if self
            .missing
            .iter()
            .any(|m| m.requests >= RETRIES && m.due <= now)
        {
            self.missing.retain(|m| m.requests < RETRIES);
            self.request_key_frame(now);
        }
        let mut wanted = Vec::new();
        for missing in self.missing.iter_mut().filter(|m| m.due <= now) {
            wanted.push(missing.number);
            missing.requests += 1;
            missing.due = now + rtt.unwrap_or(FIRST_RTT).max(MS);
        }
        if !wanted.is_empty() {
            return Some(Content::Request(wanted.into()));
        }
        if self.key_due <= now {
            self.key_due = now + KEY_WAIT;
            return Some(Content::KeyRequest);
        }
        if self.report_due <= now {
            let arrivals = std::mem::take(&mut self.arrivals);
            let first = self.report_from;
            self.report_from = first.wrapping_add(num::count(arrivals.len()));
            self.report_due = NEVER;
            return Some(Content::Report(Report {
                first,
                arrivals,
                held: now - self.last_arrival,
            }));
        }
        None
    }

    /// Closes the seconds that have ended by `now`.
    pub fn tick(&mut self, now: Instant, measuring: bool) {
        self.watch.tick(now, measuring);
    }

    /// The viewer's experience so far; `None` before the end of the warm-up.
    pub fn result(&self, now: Instant) -> Option<Application> {
        self.watch.result(now)
    }
}

/// Statistics of the frames shown.
#[derive(Clone, Debug, Default)]
struct Watch {
    /// Start of the measurement, end of the current second, and number of frames in it.
    from: Option<Instant>,
    second: Instant,
    in_second: u32,
    /// Number of complete seconds, and of those with fewer frames than `SMOOTH`.
    seconds: u64,
    slow: u64,
    /// Time at which the last frame was shown.
    last: Option<Instant>,
    /// Distances between the last frames.
    distances: VecDeque<Duration>,
    freezes: u64,
    /// Time from a frame's capture to its display, ns.
    delay: Hist,
    /// Bytes of video data shown.
    bytes: u64,
}

impl Watch {
    fn tick(&mut self, now: Instant, measuring: bool) {
        if !measuring {
            return;
        }
        if self.from.is_none() {
            (self.from, self.second) = (Some(now), now + SEC);
        }
        while self.second <= now {
            self.seconds += 1;
            self.slow += u64::from(self.in_second < SMOOTH);
            self.in_second = 0;
            self.second += SEC;
        }
    }

    /// Whether this time without a new frame is a freeze.
    fn is_frozen(&self, distance: Duration) -> bool {
        let sum: Duration = self.distances.iter().copied().sum();
        let normal = sum / self.distances.len().max(1) as u64;
        distance >= (3 * normal).max(normal + FREEZE)
    }

    fn show(&mut self, now: Instant, frame: &Frame, skew: i64) {
        let measuring = self.from.is_some();
        self.tick(now, measuring);
        if let Some(last) = self.last {
            let distance = now - last;
            self.freezes += u64::from(measuring && self.is_frozen(distance));
            if self.distances.len() == NORMAL {
                self.distances.pop_front();
            }
            self.distances.push_back(distance);
        }
        self.last = Some(now);
        if measuring {
            let delay = (now - frame.captured)
                .as_nanos()
                .saturating_add_signed(skew);
            self.delay.record(delay);
            self.in_second += 1;
            self.bytes += u64::from(frame.video);
        }
    }

    fn result(&self, now: Instant) -> Option<Application> {
        let from = self.from?;
        let mut end = self.clone();
        end.tick(now, true);
        let span = now.saturating_since(from).max(Duration::from_nanos(1));
        let still = now.saturating_since(end.last.unwrap_or(from));
        let freezes = end.freezes + u64::from(end.is_frozen(still));
        Some(Application {
            frame_delay_ms: (end.delay.count() > 0)
                .then(|| end.delay.summary(1.0 / MS.as_nanos() as f64)),
            freezes_per_minute: Some(
                freezes as f64 * (60 * SEC).as_nanos() as f64 / span.as_nanos() as f64,
            ),
            below_24fps: (end.seconds > 0).then(|| ratio(end.slow, end.seconds)),
            rate_mbps: Some(quell_link::record::mbps(end.bytes as f64, span)),
            ..Application::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn frame(number: u32, packets: u32, key: bool) -> Frame {
        Frame {
            captured: Instant::ZERO + u64::from(number) * SEC / 30,
            first: number * packets,
            packets,
            video: 1000 * packets,
            key,
        }
    }

    /// All packets of frames of two packets arrive 20 ms after their capture, except those in
    /// `lost`.
    fn receive(r: &mut Receiver, frames: std::ops::Range<u32>, lost: &[u32]) {
        for number in frames {
            let f = frame(number, 2, number == 0);
            let now = f.captured + 20 * MS;
            r.tick(now, true);
            for packet in f.first..f.first + 2 {
                if !lost.contains(&packet) {
                    r.media(now, packet, number, f, 0);
                }
            }
        }
    }

    #[test]
    fn a_still_network_shows_every_frame() {
        let mut r = Receiver::new();
        receive(&mut r, 0..1800, &[]);
        let result = r.result(Instant::ZERO + MINUTE).expect("a picture");
        assert_eq!(result.freezes_per_minute, Some(0.0));
        assert_eq!(result.below_24fps, Some(0.0));
        assert_eq!(result.frame_delay_ms.expect("frames").max, 20.0);
        // 30 frames of 2000 bytes a second.
        assert!((result.rate_mbps.expect("a rate") - 0.48).abs() < 0.001);
        assert!(r.poll(Instant::ZERO + MINUTE, None).is_none());
    }

    #[test]
    fn seconds_with_fewer_than_24_pictures_count_and_long_distances_are_freezes() {
        let mut watch = Watch::default();
        watch.tick(Instant::ZERO, true);
        // 30 s with 30 frames a second, then 30 s with 20; the last second of each half has a gap
        // of 300 ms and fewer frames.
        for number in 0..1800 {
            let now = Instant::ZERO + u64::from(number) * SEC / 30;
            let (second, part) = (number / 30, number % 30);
            let kept = second < 30 || part % 3 != 2;
            let hole = second % 30 == 29 && (10..18).contains(&part);
            if kept && !hole {
                watch.show(now, &frame(number, 1, false), 0);
            }
        }
        let r = watch.result(Instant::ZERO + MINUTE).expect("a call");
        // 22 pictures in the second with the hole, and 30 seconds of 20.
        assert_eq!(r.below_24fps, Some(31.0 / 60.0));
        // 300 ms against a mean distance of 33 ms, and of 50: at least three times as long, and 150
        // ms longer.
        assert_eq!(r.freezes_per_minute, Some(2.0));
    }

    #[test]
    fn a_lost_packet_is_requested_and_delays_the_frames_after_it() {
        let mut r = Receiver::new();
        receive(&mut r, 0..60, &[]);
        receive(&mut r, 60..69, &[120]);
        assert_eq!((r.frame, r.partial.len()), (60, 9));
        let now = frame(68, 2, false).captured + 20 * MS;
        assert!(matches!(r.poll(now, None), Some(Content::Request(n)) if *n == [120]));
        // The retransmission arrives 300 ms after the previous frame was shown, which is a freeze
        // (more than 150 + 33.3 ms). Then 9 frames are shown at once.
        let late = frame(59, 2, false).captured + 320 * MS;
        r.media(late, 120, 60, frame(60, 2, false), 0);
        assert_eq!((r.frame, r.watch.freezes), (69, 1));
    }

    #[test]
    fn a_packet_that_never_arrives_causes_a_request_for_a_key_frame() {
        let mut r = Receiver::new();
        receive(&mut r, 0..10, &[4]);
        let mut now = Instant::from_secs(1);
        for _ in 0..RETRIES {
            assert!(matches!(r.poll(now, None), Some(Content::Request(_))));
            now += FIRST_RTT;
        }
        assert!(matches!(r.poll(now, None), Some(Content::KeyRequest)));
        assert_eq!(r.frame, 2);
        let key = frame(10, 2, true);
        r.media(now, 20, 10, key, 0);
        r.media(now, 21, 10, key, 0);
        assert_eq!((r.frame, r.key_due), (11, NEVER));
    }

    #[test]
    fn a_call_without_arrivals_is_one_freeze_without_end() {
        let mut r = Receiver::new();
        assert!(r.result(Instant::from_secs(1)).is_none());
        r.tick(Instant::ZERO, true);
        let result = r.result(Instant::ZERO + MINUTE).expect("a call");
        assert_eq!(result.freezes_per_minute, Some(1.0));
        assert_eq!(
            (result.below_24fps, result.rate_mbps),
            (Some(1.0), Some(0.0))
        );
        assert!(result.frame_delay_ms.is_none());
    }

    #[test]
    fn a_report_has_gaps_and_the_time_since_the_last_arrival() {
        let mut r = Receiver::new();
        r.note(Instant::from_millis(5), 0);
        r.note(Instant::from_millis(9), 2);
        assert_eq!(r.wake_at(), Instant::from_millis(105));
        let Some(Content::Report(report)) = r.poll(Instant::from_millis(105), None) else {
            panic!("no report");
        };
        assert_eq!(
            report.arrivals,
            [
                Some(Instant::from_millis(5)),
                None,
                Some(Instant::from_millis(9))
            ]
        );
        assert_eq!((report.held, r.report_from), (96 * MS, 3));
    }
}
