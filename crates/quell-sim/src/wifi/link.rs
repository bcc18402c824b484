//! A link to one neighbour: packets that left the discipline and are not yet acknowledged, and how
//! they are put into frames.

use std::collections::VecDeque;

use quell_qdisc::time::{Duration, Instant, NEVER, SEC};
use quell_qdisc::{Dequeued, Packet, Rng};

use super::channel::{Bursts, Errors};
use super::edca::Exchange;
use super::rate::Control;
use crate::packet::Pkt;
use crate::phy::{AMSDU_BYTES, DELIMITER, LLC_BYTES, LONGEST_PPDU, MAC_BYTES, Phy};
use crate::port::Port;
use crate::scenario::wifi::{Aggregation, Category};

/// Sequence numbers that a block ACK covers.
const WINDOW: usize = 64;
/// Weight of the last exchange in the moving averages that controllers read.
const SMOOTH: f64 = 0.125;

/// One MPDU.
#[derive(Clone, Copy, Debug)]
struct Mpdu {
    bytes: u32,
    packets: u32,
    tries: u32,
    /// Whether it is in the current exchange.
    sent: bool,
    /// Whether the receiver has received it.
    received: bool,
    /// Whether it is acknowledged or given up.
    gone: bool,
}

impl Arriving {
    /// Share of an MPDU of `bytes` in the PPDU's duration.
    fn lasts(&self, bytes: u32) -> Duration {
        self.time * u64::from(bytes) / u64::from(self.bytes)
    }

    /// End of the next MPDU, which has `bytes`; `NEVER` if it is the last, which ends with the
    /// PPDU.
    fn end(&self, bytes: u32) -> Instant {
        if self.left > 1 {
            self.from + self.lasts(bytes)
        } else {
            NEVER
        }
    }
}

impl Mpdu {
    /// Size of its A-MSDU, bytes, with one more packet, whose own MPDU would have `bytes`.
    fn packed(&self, bytes: u32) -> u32 {
        let first = if self.packets == 1 { AMSDU_BYTES } else { 0 };
        (self.bytes - MAC_BYTES + first).next_multiple_of(4) + AMSDU_BYTES + bytes - MAC_BYTES
    }
}

/// The PPDU on the air and how much of it has arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Arriving {
    /// Index in the window from which its next MPDU is searched.
    next: usize,
    /// Number of MPDUs still to arrive.
    left: u32,
    /// Start of the next MPDU.
    from: Instant,
    /// Duration of the whole PPDU, and bytes of its MPDUs.
    time: Duration,
    bytes: u32,
    /// Number of MPDUs received.
    good: u32,
}

/// Limits of a PPDU.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of MPDUs.
    pub frames: u32,
    /// Maximum size of an A-MPDU, bytes, by MCS.
    pub bytes: Vec<u32>,
    /// Maximum size of an A-MSDU, bytes; 0: no A-MSDUs.
    amsdu: u32,
}

impl Limits {
    /// The scenario's limits for a category whose transmission opportunity is `txop` (0: only the
    /// longest PPDU limits it).
    pub fn new(a: &Aggregation, phy: Phy, txop: Duration) -> Self {
        let time = if txop == Duration::ZERO {
            LONGEST_PPDU
        } else {
            txop.min(LONGEST_PPDU)
        };
        Self {
            frames: a.frames,
            bytes: (0..32)
                .map(|mcs| phy.bytes_in(mcs, time).min(a.bytes))
                .collect(),
            amsdu: a.amsdu,
        }
    }
}

/// Counters of a link, from the start or from the end of the warm-up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Exchanges, failed ones included.
    pub exchanges: u64,
    /// Exchanges without an answer.
    pub failures: u64,
    /// MPDUs sent.
    pub frames: u64,
    /// Of these, retransmissions.
    pub retries: u64,
    /// MPDUs given up.
    pub given_up: u64,
    /// Airtime of exchanges, answers and gaps within them included.
    pub airtime: Duration,
    /// Packets delivered to the upper layer.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: u64,
    /// Sum of their times from arrival at the queue to delivery, ns.
    pub delay: u128,
}

/// A link: the frames from one node to a neighbour in one access category.
#[derive(Clone, Debug)]
pub struct AirLink {
    pub from: u16,
    pub to: u16,
    pub category: Category,
    /// Number of the contender that sends them.
    pub contender: u16,
    /// Number of the link in the opposite direction, if there is one.
    pub reverse: Option<u16>,
    /// Error model of its frames.
    pub errors: Errors,
    pub rate: Control,
    /// Airtime that remains of its share in the fair scheduler, ns (`deficit` of mac80211).
    pub deficit: i64,
    pub counts: Counts,
    /// Acknowledged bits per second of airtime, a moving average of weight 1/8.
    pub achieved_bps: f64,
    /// MPDUs per exchange, a moving average of weight 1/8.
    pub aggregate: f64,
    /// Time before which the discipline releases no packet.
    pub not_before: Instant,
    /// MPDUs that the hardware has claimed, and their bytes.
    claimed: (u32, u32),
    /// MPDUs neither acknowledged nor given up, and their bytes.
    open: (u32, u32),
    window: VecDeque<Mpdu>,
    arriving: Arriving,
    /// Number of MPDUs at the front of the window that are delivered or given up.
    delivered: usize,
    /// The packets of the other MPDUs, in order.
    packets: VecDeque<Pkt>,
}

/// Bytes that an MPDU adds to an A-MPDU.
fn subframe(bytes: u32) -> u32 {
    DELIMITER + bytes.next_multiple_of(4)
}

impl AirLink {
    /// An idle link.
    pub fn new(
        (from, to, category): (u16, u16, Category),
        contender: u16,
        errors: Errors,
        rate: Control,
    ) -> Self {
        Self {
            from,
            to,
            category,
            contender,
            reverse: None,
            errors,
            rate,
            deficit: 0,
            counts: Counts::default(),
            achieved_bps: 0.0,
            aggregate: 1.0,
            not_before: Instant::ZERO,
            claimed: (0, 0),
            open: (0, 0),
            window: VecDeque::new(),
            arriving: Arriving::default(),
            delivered: 0,
            packets: VecDeque::new(),
        }
    }

    /// Whether it has MPDUs that the hardware has not claimed.
    pub fn waiting(&self) -> bool {
        self.open.0 > self.claimed.0
    }

    /// Dequeues packets for the next PPDU, in addition to the MPDUs that already wait, and claims
    /// all of them. A packet is dequeued if there is room for one as long as the last one; if it is
    /// longer and does not fit, it goes into the following PPDU. Returns the number of MPDUs
    /// claimed, and their bytes.
    pub fn claim(&mut self, now: Instant, port: &mut Port, limits: &Limits) -> (u32, u32) {
        let max_bytes = limits.bytes[usize::from(self.rate.best(now))];
        let mut frames = self.open.0.saturating_sub(self.claimed.0);
        let mut bytes = self.open.1.saturating_sub(self.claimed.1);
        // Length of the last packet's MPDU, and whether that MPDU may still grow.
        let (mut usual, mut fresh) = (0, false);
        loop {
            let room =
                frames < limits.frames && (frames == 0 || bytes + subframe(usual) <= max_bytes);
            let grows = fresh
                && bytes + usual + AMSDU_BYTES <= max_bytes
                && self
                    .window
                    .back()
                    .is_some_and(|m| m.packed(usual) <= limits.amsdu);
            if !room && !grows {
                break;
            }
            let mut line = None;
            if let Dequeued::NotBefore(t) = port.queue.take_to(now, &mut line) {
                self.not_before = t.max(now + Duration::from_nanos(1));
            }
            let Some(p) = line else { break };
            self.packets.push_back(p);
            usual = p.len() + LLC_BYTES + MAC_BYTES;
            if let Some(last) = self.window.back_mut()
                && fresh
                && last.packed(usual) <= limits.amsdu
            {
                let before = subframe(last.bytes);
                last.bytes = last.packed(usual) + MAC_BYTES;
                last.packets += 1;
                let more = subframe(last.bytes) - before;
                bytes += more;
                self.open.1 += more;
                continue;
            }
            self.window.push_back(Mpdu {
                bytes: usual,
                packets: 1,
                tries: 0,
                sent: false,
                received: false,
                gone: false,
            });
            frames += 1;
            bytes += subframe(usual);
            self.open.0 += 1;
            self.open.1 += subframe(usual);
            fresh = limits.amsdu > 0;
        }
        self.claimed.0 += frames;
        self.claimed.1 += bytes;
        (frames, bytes)
    }

    /// Releases a claim of the hardware.
    pub fn unclaim(&mut self, (frames, bytes): (u32, u32)) {
        self.claimed.0 = self.claimed.0.saturating_sub(frames);
        self.claimed.1 = self.claimed.1.saturating_sub(bytes);
    }

    /// Chooses the MPDUs of the next PPDU: the oldest ones within the block ACK window. Returns
    /// their number and the PSDU's bytes.
    pub fn compose(&mut self, limits: &Limits, count: u32, mcs: u8) -> (u32, u32) {
        let max_bytes = limits.bytes[usize::from(mcs)];
        let (mut frames, mut bytes, mut single) = (0, 0, 0);
        for mpdu in self.window.iter_mut().take(WINDOW).filter(|m| !m.gone) {
            let more = subframe(mpdu.bytes);
            if frames > 0 && (frames >= count || bytes + more > max_bytes) {
                break;
            }
            frames += 1;
            bytes += more;
            single = mpdu.bytes;
            mpdu.sent = true;
        }
        (frames, if frames == 1 { single } else { bytes })
    }

    /// Cancels the composed exchange.
    pub fn decompose(&mut self) {
        self.window
            .iter_mut()
            .take(WINDOW)
            .for_each(|m| m.sent = false);
    }

    /// Notes that the composed PPDU is on the air from `began` on for `time`. Returns the end of
    /// its first MPDU; `NEVER` if that is the last.
    pub fn depart(&mut self, began: Instant, time: Duration) -> Instant {
        let mut sent = self.window.iter().take(WINDOW).filter(|m| m.sent);
        let first = sent.next().map_or(0, |m| m.bytes);
        let (count, bytes) = sent.fold((1, first), |(n, bytes), m| (n + 1, bytes + m.bytes));
        self.arriving = Arriving {
            next: 0,
            left: count,
            from: began,
            time,
            bytes: bytes.max(1),
            good: 0,
        };
        self.arriving.end(first)
    }

    /// Handles the end of an MPDU of the PPDU on the air. The receiver receives it unless another
    /// frame overlapped (`clean` is false) or it is lost. Returns the end of the next one; `NEVER`
    /// if that is the last.
    pub fn arrive(&mut self, mcs: u8, clean: bool, noise: &mut Bursts, rng: &mut Rng) -> Instant {
        let a = &mut self.arriving;
        let mut rest = self.window.iter_mut().take(WINDOW).skip(a.next);
        let Some(at) = rest.position(|m| m.sent) else {
            return NEVER;
        };
        a.next += at + 1;
        a.left -= 1;
        let m = &mut self.window[a.next - 1];
        let end = a.from + a.lasts(m.bytes);
        if clean {
            let quiet = 1.0 - self.errors.probability(mcs, m.bytes);
            let p = 1.0 - quiet * (1.0 - noise.probability(a.from, end));
            if p <= 0.0 || rng.f64() >= p {
                m.received = true;
                a.good += 1;
            }
        }
        a.from = end;
        let mut rest = self.window.iter().skip(a.next);
        let next = rest.find(|m| m.sent).map_or(0, |m| m.bytes);
        self.arriving.end(next)
    }

    /// Whether the receiver has received any MPDU of the PPDU on the air.
    pub fn arrived(&self) -> bool {
        self.arriving.good > 0
    }

    /// Ends an exchange: MPDUs not acknowledged are sent again, unless they were sent `limit`
    /// times.
    pub fn settle(&mut self, x: &Exchange, answered: bool, airtime: Duration, limit: Option<u32>) {
        let (mut good, mut bytes) = (0, 0);
        let c = &mut self.counts;
        for m in self.window.iter_mut().take(WINDOW).filter(|m| m.sent) {
            m.sent = false;
            c.frames += 1;
            c.retries += u64::from(m.tries > 0);
            m.tries = m.tries.saturating_add(1);
            let acked = answered && m.received;
            if acked {
                good += 1;
                bytes += m.bytes;
            }
            if acked || limit.is_some_and(|limit| m.tries >= limit) {
                m.gone = true;
                self.open.0 -= 1;
                self.open.1 -= subframe(m.bytes);
                c.given_up += u64::from(!acked);
            }
        }
        self.claimed.0 = self.claimed.0.min(self.open.0);
        self.claimed.1 = self.claimed.1.min(self.open.1);
        c.exchanges += 1;
        c.failures += u64::from(!answered);
        c.airtime += airtime;
        self.rate.learn(x.mcs, x.frames, good);
        let bps = f64::from(bytes) * 8.0 * SEC.as_nanos() as f64
            / airtime.max(Duration::from_nanos(1)).as_nanos() as f64;
        self.achieved_bps += SMOOTH * (bps - self.achieved_bps);
        self.aggregate += SMOOTH * (f64::from(x.frames) - self.aggregate);
    }

    /// Whether no MPDU is open.
    pub fn is_empty(&self) -> bool {
        self.open.0 == 0
    }

    /// Delivers, in order, the packets that the receiver has received. An MPDU that was given up
    /// does not delay those after it, as after a block ACK request.
    pub fn deliver(&mut self, now: Instant, port: &mut Port, mut up: impl FnMut(Pkt)) {
        while let Some(m) = self.window.get(self.delivered)
            && (m.received || m.gone)
        {
            for _ in 0..m.packets {
                let Some(p) = self.packets.pop_front() else {
                    break;
                };
                if m.received {
                    self.counts.packets += 1;
                    self.counts.bytes += u64::from(p.len());
                    self.counts.delay += u128::from((now - p.enqueued()).as_nanos());
                    up(p);
                } else {
                    port.lose(now, p);
                }
            }
            self.delivered += 1;
        }
        while self.window.front().is_some_and(|m| m.gone) {
            self.window.pop_front();
            self.delivered -= 1;
        }
    }
}
