//! A listener of a voice call: a playout buffer, and the E-model's rating of delay and loss.

use quell_link::hist::Hist;
use quell_link::record::{Application, ratio};
use quell_qdisc::num;
use quell_qdisc::time::{Duration, MS};

use super::emodel::{self, Equipment};
use crate::scenario::Codec;

/// Duration of the speech in a packet (RFC 3551, section 4.2).
pub const FRAME: Duration = Duration::from_millis(20);
/// Weight of the past in the means of delay and deviation (Ramjee et al. 1994, algorithm 1).
const PAST: f64 = 0.998002;
/// Number of deviations that the buffer waits beyond the mean delay (Ramjee et al. 1994).
const DEVIATIONS: f64 = 4.0;
/// Number of packets between changes of the playout delay: 1 s of speech, about a talkspurt (1.004
/// s in ITU-T P.59).
const SPURT: u32 = 50;
/// Maximum playout delay: a longer one makes a conversation impossible.
const MAX_PLAYOUT: Duration = Duration::from_millis(1000);

/// A codec's values for the E-model.
fn equipment(codec: Codec) -> Equipment {
    match codec {
        // With packet-loss concealment.
        Codec::G711 => Equipment { ie: 0.0, bpl: 25.1 },
        Codec::G729 => Equipment {
            ie: 11.0,
            bpl: 19.0,
        },
        // Not in G.113: the values of G.711 with concealment are used.
        Codec::Opus => Equipment { ie: 0.0, bpl: 25.1 },
    }
}

/// Look-ahead of a codec, which is its delay beyond the frame itself (G.729: 5 ms; Opus: 6.5
/// ms, RFC 6716, section 2).
fn look_ahead(codec: Codec) -> Duration {
    match codec {
        Codec::G711 => Duration::ZERO,
        Codec::G729 => 5 * MS,
        Codec::Opus => Duration::from_micros(6_500),
    }
}

/// The listener at one end of a call.
#[derive(Clone, Debug)]
pub struct Listener {
    codec: Codec,
    /// Serial number of the next expected packet.
    next: u32,
    /// Mean network delay and mean deviation from it, ns.
    mean: f64,
    deviation: f64,
    /// Delay from a packet's departure to its playout.
    playout: Duration,
    /// Serial number of the packet at which the playout delay changes next.
    change_at: u32,
    /// Mouth-to-ear delay of the packets that were played, ns.
    heard: Hist,
    /// Number of packets that arrived after their playout, and of packets that did not arrive.
    late: u64,
    lost: u64,
    /// Number of gaps: runs of late and lost packets.
    bursts: u64,
    /// Whether the last packet was late or lost.
    in_burst: bool,
}

impl Listener {
    /// A listener that has not received a packet.
    pub fn new(codec: Codec) -> Self {
        Self {
            codec,
            next: 0,
            mean: 0.0,
            deviation: 0.0,
            playout: Duration::ZERO,
            change_at: 0,
            heard: Hist::new(),
            late: 0,
            lost: 0,
            bursts: 0,
            in_burst: false,
        }
    }

    /// A packet has arrived after this one-way delay. Paths keep the order of packets, so missing
    /// packets before it are lost.
    pub fn arrived(&mut self, serial: u32, delay: Duration, measuring: bool) {
        let missing = serial.wrapping_sub(self.next);
        let first = self.change_at == 0;
        self.next = serial.wrapping_add(1);
        let delay_ns = delay.as_nanos() as f64;
        if first {
            (self.mean, self.deviation) = (delay_ns, 0.0);
        } else {
            self.mean = PAST * self.mean + (1.0 - PAST) * delay_ns;
            self.deviation = PAST * self.deviation + (1.0 - PAST) * (delay_ns - self.mean).abs();
        }
        if first || serial.wrapping_sub(self.change_at).cast_signed() >= 0 {
            // The buffer holds at least one frame.
            let wait = (DEVIATIONS * self.deviation).max(FRAME.as_nanos() as f64);
            self.playout = Duration::from_nanos(num::whole_u64(self.mean + wait)).min(MAX_PLAYOUT);
            self.change_at = serial.wrapping_add(SPURT);
        }
        if !measuring {
            return;
        }
        let (missing, late) = (if first { 0 } else { missing }, delay > self.playout);
        self.lost += u64::from(missing);
        self.gap(missing > 0);
        self.late += u64::from(late);
        self.gap(late);
        if !late {
            self.in_burst = false;
            let ear = self.playout + FRAME + look_ahead(self.codec);
            self.heard.record(ear.as_nanos());
        }
    }

    fn gap(&mut self, is_gap: bool) {
        self.bursts += u64::from(is_gap && !self.in_burst);
        self.in_burst |= is_gap;
    }

    /// The listener's experience; `None` if no packet was sent.
    pub fn result(&self, sent: u64) -> Option<Application> {
        let missing = self.lost + self.late;
        let heard = self.heard.count();
        if heard + missing == 0 && sent == 0 {
            return None;
        }
        let loss = match heard + missing {
            0 => 1.0,
            all => ratio(missing, all),
        };
        // Mean length of gaps relative to random losses, 1/(1 - loss) (G.107, section 7.6).
        let burst = (missing as f64 / self.bursts.max(1) as f64 * (1.0 - loss)).max(1.0);
        let to_ear = (heard > 0).then(|| self.heard.summary(1.0 / MS.as_nanos() as f64));
        let mos = match &to_ear {
            Some(to_ear) => emodel::mos(emodel::rating(
                equipment(self.codec),
                to_ear.mean,
                loss,
                burst,
            )),
            None => 1.0,
        };
        Some(Application {
            mos: Some(mos),
            mouth_to_ear_ms: to_ear,
            late_loss: Some(loss),
            ..Application::default()
        })
    }
}

/// The experience of the listener of a real call with G.711. `arrivals` has, for each packet in
/// order of arrival, its serial number (from 0), its one-way delay, and whether it counts. `sent`
/// is the number of packets that count. `None` if no packet was sent.
pub fn heard(arrivals: &[(u32, Duration, bool)], sent: u64) -> Option<Application> {
    let mut listener = Listener::new(Codec::G711);
    let mut next = 0;
    for &(serial, delay, measuring) in arrivals {
        // A packet that was overtaken has already been counted as lost.
        if serial >= next {
            listener.arrived(serial, delay, measuring);
            next = serial.saturating_add(1);
        }
    }
    listener.result(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_jitter_mouth_to_ear_is_the_delay_plus_two_frames() {
        let mut l = Listener::new(Codec::G711);
        for serial in 0..500 {
            l.arrived(serial, 30 * MS, true);
        }
        let r = l.result(500).expect("packets");
        assert_eq!(r.late_loss, Some(0.0));
        assert!((r.mouth_to_ear_ms.expect("speech").mean - 70.0).abs() < 0.1);
        // R = 93.2: delays below 100 ms do not count.
        assert!((r.mos.expect("a score") - 4.409).abs() < 0.001);
    }

    #[test]
    fn lost_and_late_packets_count_alike_and_gaps_by_their_length() {
        let mut l = Listener::new(Codec::G711);
        for serial in (0..1000).filter(|s| s % 100 < 98) {
            // Of each hundred the last two are lost, and the 50th is late.
            let delay = if serial % 100 == 50 { 400 } else { 30 };
            l.arrived(serial, delay * MS, true);
        }
        let r = l.result(1000).expect("packets");
        // 10 late and 9 * 2 lost of 998: no later packet shows that the last two are lost.
        assert_eq!((l.late, l.lost, l.bursts), (10, 18, 19));
        assert!((r.late_loss.expect("packets") - 28.0 / 998.0).abs() < 1e-12);
    }

    #[test]
    fn a_real_call_is_scored_as_a_simulated_one_and_overtaken_packets_are_lost() {
        let mut arrivals: Vec<_> = (0..500).map(|serial| (serial, 30 * MS, true)).collect();
        let still = heard(&arrivals, 500).expect("packets");
        assert_eq!(still.late_loss, Some(0.0));
        assert!((still.mouth_to_ear_ms.expect("speech").mean - 70.0).abs() < 0.1);
        arrivals.swap(100, 101);
        assert_eq!(
            heard(&arrivals, 500).expect("packets").late_loss,
            Some(1.0 / 500.0)
        );
        assert_eq!(heard(&[], 100).expect("a call").mos, Some(1.0));
        assert!(heard(&[], 0).is_none());
    }

    #[test]
    fn a_call_without_arrivals_has_the_lowest_score() {
        let r = Listener::new(Codec::Opus).result(100).expect("a call");
        assert_eq!((r.mos, r.late_loss), (Some(1.0), Some(1.0)));
        assert!(Listener::new(Codec::Opus).result(0).is_none());
    }
}
