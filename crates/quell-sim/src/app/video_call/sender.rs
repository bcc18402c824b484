//! The sending half of an end: an encoder, a pacer, and packets kept for retransmission.

use std::collections::VecDeque;

use quell_qdisc::time::{Duration, Instant, SEC};
use quell_qdisc::{Rng, num};

use super::gcc::{FRAMES, Gcc};
use super::{CONTROL, Content, HEADERS, MAX_PACKET_BYTES, Report};
use crate::scenario::VideoCall;

/// Factor of the pacing rate over the target rate (`goog_cc_network_control.h`).
const PACING: f64 = 2.5;
/// Scale of the Laplacian deviations of frame sizes (RFC 8593, section 5.6), and their bound
/// (quell's choice).
const SCALE: f64 = 0.15;
const MAX_DEVIATION: f64 = 3.0 * SCALE;
/// Size of a key frame relative to the mean frame: quell's choice.
const KEY: f64 = 4.0;
/// A key frame also answers the requests that arrive within this time after it
/// (`video_stream_encoder.cc` and `encoder_rtcp_feedback.cc`).
const KEY_INTERVAL: Duration = Duration::from_millis(300);
/// Time for which sent data are kept.
const KEPT: Duration = Duration::from_secs(30);
/// IP bytes of a report without its entries: every seven packets add two bytes for their states,
/// and each packet that arrived adds one for its time
/// (draft-holmer-rmcat-transport-wide-cc-extensions-01). IP bytes of a request for a key frame, or
/// for packets without its elements (RFC 4585, section 6).
const REPORT: u32 = CONTROL + 20;
const REQUEST: u32 = CONTROL + 12;
/// Number of packets that one element of a request covers, and its bytes (RFC 4585, section 6.2.1).
const COVERED: u32 = 17;
const ELEMENT: u32 = 4;

/// An encoded frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub captured: Instant,
    /// Number of its first packet, and number of its packets.
    pub first: u32,
    pub packets: u32,
    /// Size of the video data, bytes.
    pub video: u32,
    pub key: bool,
}

/// A packet of a frame.
#[derive(Clone, Copy, Debug)]
struct Media {
    /// Number of the frame.
    frame: u32,
    /// IP bytes.
    bytes: u32,
    /// Time of the last transmission.
    sent: Option<Instant>,
}

/// A datagram that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: Instant,
    /// IP bytes.
    pub bytes: u32,
    pub content: Content,
}

/// The kept part of a series whose elements have consecutive numbers.
#[derive(Clone, Debug)]
struct Recent<T> {
    /// Number of the first element kept.
    first: u32,
    items: VecDeque<T>,
}

impl<T> Recent<T> {
    const fn new() -> Self {
        Self {
            first: 0,
            items: VecDeque::new(),
        }
    }

    fn next(&self) -> u32 {
        self.first.wrapping_add(num::count(self.items.len()))
    }

    fn get(&self, number: u32) -> Option<&T> {
        self.items.get(number.wrapping_sub(self.first) as usize)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.items.get_mut(number.wrapping_sub(self.first) as usize)
    }

    fn forget(&mut self, is_old: impl Fn(&T) -> bool) {
        while self.items.front().is_some_and(&is_old) {
            self.items.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

/// The sending half of an end.
#[derive(Clone, Debug)]
pub struct Sender {
    pub gcc: Gcc,
    rng: Rng,
    /// Time of the first frame.
    start: Instant,
    /// Number of frames encoded.
    encoded: u64,
    frames: Recent<Frame>,
    media: Recent<Media>,
    /// Datagrams sent, by serial number.
    log: Recent<Sent>,
    /// Numbers of packets that wait for the pacer; retransmissions precede new packets.
    fresh: VecDeque<u32>,
    retransmissions: VecDeque<u32>,
    /// Messages, which are not paced.
    control: VecDeque<Content>,
    /// Time from which the pacer sends the next packet.
    paced_at: Instant,
    /// Bytes of key frames and retransmissions beyond the target rate, which later frames save.
    debt: f64,
    /// Whether the next frame is a key frame.
    key_wanted: bool,
    /// Time of the last key frame.
    keyed_at: Instant,
}

impl Sender {
    /// A sender whose first frame is captured at `start`.
    pub fn new(call: &VideoCall, start: Instant, rng: Rng) -> Self {
        Self {
            gcc: Gcc::new(call.start_rate.bps_f64(), call.max_rate.bps_f64()),
            rng,
            start,
            encoded: 0,
            frames: Recent::new(),
            media: Recent::new(),
            log: Recent::new(),
            fresh: VecDeque::new(),
            retransmissions: VecDeque::new(),
            control: VecDeque::new(),
            paced_at: Instant::ZERO,
            debt: 0.0,
            key_wanted: true,
            keyed_at: Instant::ZERO,
        }
    }

    /// Queues a message that is not paced.
    pub fn queue_message(&mut self, content: Content) {
        self.control.push_back(content);
    }

    /// The frame of this number, if it is still kept.
    pub fn frame(&self, number: u32) -> Option<Frame> {
        self.frames.get(number).copied()
    }

    /// The datagram of this serial number, if it is still kept.
    pub fn sent(&self, serial: u32) -> Option<&Sent> {
        self.log.get(serial)
    }

    /// Time of its next action; `Instant::ZERO`: at once.
    pub fn wake_at(&self) -> Instant {
        if !self.control.is_empty() {
            return Instant::ZERO;
        }
        let frame = self.start + self.encoded * SEC / FRAMES;
        match self.fresh.is_empty() && self.retransmissions.is_empty() {
            true => frame,
            false => frame.min(self.paced_at),
        }
    }

    /// Sends a datagram if one is due. Returns its IP bytes.
    pub fn poll(&mut self, now: Instant) -> Option<u32> {
        if self.start + self.encoded * SEC / FRAMES <= now {
            self.encode(now);
        }
        let (bytes, content) = match self.control.pop_front() {
            Some(content) => (size(&content), content),
            None if self.paced_at <= now => self.paced(now)?,
            None => return None,
        };
        self.log.items.push_back(Sent {
            at: now,
            bytes,
            content,
        });
        Some(bytes)
    }

    fn encode(&mut self, now: Instant) {
        let forgotten = now.saturating_sub(KEPT);
        self.log.forget(|sent| sent.at < forgotten);
        let frames = &mut self.frames;
        frames.forget(|frame| frame.captured < forgotten);
        let oldest = frames.first;
        self.media.forget(|media| media.frame < oldest);
        self.encoded += 1;
        let mean = self.gcc.target() / 8.0 / FRAMES as f64;
        let key = std::mem::take(&mut self.key_wanted);
        let saved = self.debt.min(mean / 2.0);
        let wanted = match key {
            true => KEY * mean,
            false => mean - saved,
        };
        self.debt += wanted - mean;
        if key {
            self.keyed_at = now;
        }
        let bytes = wanted * (1.0 + self.deviation());
        let min_bytes = f64::from(HEADERS + 1);
        let packets = (bytes / f64::from(MAX_PACKET_BYTES)).ceil().max(1.0);
        let each = num::whole_u32((bytes / packets).max(min_bytes));
        let frame = Frame {
            captured: now,
            first: self.media.next(),
            packets: num::whole_u32(packets),
            video: (each - HEADERS) * num::whole_u32(packets),
            key,
        };
        let number = self.frames.next();
        self.frames.items.push_back(frame);
        for _ in 0..frame.packets {
            self.fresh.push_back(self.media.next());
            self.media.items.push_back(Media {
                frame: number,
                bytes: each,
                sent: None,
            });
        }
    }

    /// A random deviation from the Laplacian distribution around 0, at most `MAX_DEVIATION` in
    /// magnitude.
    fn deviation(&mut self) -> f64 {
        let u = self.rng.f64() - 0.5;
        let x = -SCALE * libm::log(1.0 - 2.0 * u.abs());
        x.min(MAX_DEVIATION).copysign(u)
    }

    fn paced(&mut self, now: Instant) -> Option<(u32, Content)> {
        let number = self
            .retransmissions
            .pop_front()
            .or_else(|| self.fresh.pop_front())?;
        let media = self.media.get_mut(number)?;
        if media.sent.replace(now).is_some() {
            self.debt += f64::from(media.bytes);
        }
        let (bytes, frame) = (media.bytes, media.frame);
        let takes = f64::from(bytes) * 8.0 / (PACING * self.gcc.target());
        self.paced_at = now + Duration::from_nanos(num::whole_u64(takes * SEC.as_nanos() as f64));
        Some((bytes, Content::Media { number, frame }))
    }

    /// Handles a report of the other end.
    pub fn on_report(&mut self, now: Instant, report: &Report) {
        let mut lost = 0;
        let mut last = None;
        for (serial, arrived) in (report.first..).zip(&report.arrivals) {
            let Some(sent) = self.log.get(serial) else {
                continue;
            };
            match arrived {
                Some(at) => {
                    self.gcc.arrived(sent.at, *at, sent.bytes);
                    last = Some(sent.at);
                }
                None => lost += 1,
            }
        }
        if let Some(sent) = last {
            let sample = now.saturating_since(sent + report.held);
            self.gcc.rtt = (7 * self.gcc.rtt + sample) / 8; // RFC 6298's gain
        }
        self.gcc
            .reported(now, lost, num::count(report.arrivals.len()));
    }

    /// Handles a request for retransmissions. Packets sent less than a round trip ago may still
    /// arrive, so they are not sent again.
    pub fn on_request(&mut self, now: Instant, numbers: &[u32]) {
        for number in numbers {
            let rtt = self.gcc.rtt;
            let media = self.media.get(*number);
            if media.is_some_and(|m| m.sent.is_some_and(|sent| sent + rtt <= now))
                && !self.retransmissions.contains(number)
            {
                self.retransmissions.push_back(*number);
            }
        }
    }

    /// Handles a request for a key frame: the next frame is one, unless the last key frame was sent
    /// within `KEY_INTERVAL`.
    pub fn on_key_request(&mut self, now: Instant) {
        self.key_wanted |= now >= self.keyed_at + KEY_INTERVAL;
    }
}

/// IP bytes of a message.
fn size(content: &Content) -> u32 {
    match content {
        Content::Media { .. } | Content::KeyRequest => REQUEST,
        Content::Report(report) => {
            let all = num::count(report.arrivals.len());
            let came = num::count(report.arrivals.iter().flatten().count());
            (REPORT + 2 * all.div_ceil(7) + came).min(MAX_PACKET_BYTES)
        }
        Content::Request(numbers) => {
            let (mut elements, mut covered) = (0, 0);
            for number in numbers {
                if elements == 0 || *number >= covered {
                    (elements, covered) = (elements + 1, number + COVERED);
                }
            }
            (REQUEST + ELEMENT * elements).min(MAX_PACKET_BYTES)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::rate::Rate;
    use quell_qdisc::time::MS;

    fn sender() -> Sender {
        let call = VideoCall {
            start_rate: Rate::from_kbit(2400),
            max_rate: Rate::from_kbit(2400),
        };
        Sender::new(&call, Instant::ZERO, Rng::new(1, "camera"))
    }

    /// Times and bytes of the datagrams sent until `end`.
    fn until(s: &mut Sender, end: Instant) -> Vec<(Instant, u32)> {
        let mut all = Vec::new();
        let mut now = Instant::ZERO;
        while now < end {
            while let Some(bytes) = s.poll(now) {
                all.push((now, bytes));
            }
            now = s.wake_at();
        }
        all
    }

    #[test]
    fn thirty_frames_a_second_have_the_target_rate_in_packets_of_1228_bytes_at_most() {
        let mut s = sender();
        let all = until(&mut s, Instant::from_secs(100));
        assert_eq!(s.encoded, 3000);
        let bits: u32 = all.iter().map(|(_, b)| 8 * b).sum();
        // The standard deviation of Laplacian deviations of scale 0.15 is 0.21; that of the mean of
        // 3000 frames is 0.4 %.
        assert!((f64::from(bits) / 240e6 - 1.0).abs() < 0.015, "{bits}");
        assert!(all.iter().all(|(_, b)| *b <= MAX_PACKET_BYTES));
    }

    #[test]
    fn packets_leave_at_two_and_a_half_times_the_target_rate() {
        let all = until(&mut sender(), Instant::ZERO + SEC / 30);
        // The first frame is a key frame of about 40 kB. After a packet of n bytes the pacer waits
        // n * 8 / 6 us (6 Mbit/s).
        assert!(all.len() > 20, "{}", all.len());
        for pair in all.windows(2) {
            let wanted = u64::from(pair[0].1) * 8 * SEC / 6_000_000;
            assert!((pair[1].0 - pair[0].0).abs_diff(wanted) <= Duration::from_nanos(1));
        }
    }

    #[test]
    fn a_packet_is_sent_again_only_after_a_round_trip() {
        let mut s = sender();
        s.gcc.rtt = 50 * MS;
        until(&mut s, Instant::ZERO + SEC / 60);
        s.on_request(Instant::from_millis(40), &[0]);
        assert!(s.retransmissions.is_empty());
        s.on_request(Instant::from_millis(60), &[0, 0, 9999]);
        assert_eq!(s.retransmissions, [0]);
    }

    #[test]
    fn messages_have_the_sizes_of_their_formats() {
        // 28 of IP and UDP, 14 of SRTCP; a request for packets 0 to 17 has two elements.
        assert_eq!(size(&Content::KeyRequest), 54);
        assert_eq!(size(&Content::Request(Box::new([3]))), 58);
        assert_eq!(size(&Content::Request((0..18).collect())), 62);
        let report = Report {
            first: 0,
            arrivals: (0..8)
                .map(|k| (k > 0).then_some(Instant::from_nanos(k)))
                .collect(),
            held: Duration::ZERO,
        };
        assert_eq!(size(&Content::Report(report)), 62 + 4 + 7);
    }
}
