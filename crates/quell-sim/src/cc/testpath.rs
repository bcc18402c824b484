//! One sender over an ideal bottleneck, for tests of congestion control alone: no loss, one
//! in-order ACK per packet, delivery rate samples and pacing as in `crate::tcp`, and optionally
//! a step threshold that marks.

use std::collections::VecDeque;

use super::{AckEvent, CaState, CongestionControl, Event, RateSample, Sock};
use quell_qdisc::time::{Duration, Instant, MS, NEVER, SEC};

/// State of the connection when a packet was sent, which its ACK needs.
struct Sent {
    at: Instant,
    /// Arrival of its ACK.
    ack: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    inflight: u32,
    marked: bool,
}

/// The sender, and the path of its packets and their ACKs.
pub struct Path {
    pub cc: CongestionControl,
    pub s: Sock,
    pub now: Instant,
    /// Transmission time of a packet.
    pub service: Duration,
    /// Base RTT.
    pub rtt: Duration,
    /// Packets with a longer sojourn are marked.
    pub mark_beyond: Duration,
    /// Time at which the last queued packet has been sent.
    free_at: Instant,
    /// Packets that are not acknowledged.
    out: VecDeque<Sent>,
    delivered_at: Instant,
    first_sent: Instant,
    /// The sequence number at which the reaction to a mark ends.
    cwr_end: u64,
}

impl Path {
    /// A new connection over a bottleneck of `rate` packets per second.
    pub fn new(cc: CongestionControl, rate: u64, rtt: Duration) -> Self {
        let mut p = Self {
            cc,
            s: Sock::new(1448, 10),
            now: Instant::from_secs(1),
            service: SEC / rate,
            rtt,
            mark_beyond: Duration::MAX,
            free_at: Instant::ZERO,
            out: VecDeque::new(),
            delivered_at: Instant::from_secs(1),
            first_sent: Instant::from_secs(1),
            cwr_end: 0,
        };
        // The handshake provided the first sample.
        p.s.srtt = rtt;
        p.s.min_rtt = rtt;
        p.cc.init(&mut p.s, p.now, 7);
        p
    }

    /// Packets in the queue.
    pub fn queue(&self) -> u64 {
        self.free_at.saturating_since(self.now) / self.service
    }

    /// Runs the connection for this time.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.s.cwnd_limited = self.s.in_flight() >= self.s.cwnd;
            let may_send = self.s.in_flight() < self.s.cwnd;
            let send = if may_send {
                self.s.edt.max(self.now)
            } else {
                NEVER
            };
            let ack = self.out.front().map_or(NEVER, |p| p.ack);
            let next = send.min(ack);
            if next >= end {
                self.now = end;
                return;
            }
            self.now = next;
            if ack <= send { self.ack() } else { self.send() }
        }
    }

    fn send(&mut self) {
        if self.out.is_empty() {
            self.first_sent = self.now;
            self.delivered_at = self.now;
        }
        let start = self.free_at.max(self.now);
        self.free_at = start + self.service;
        self.out.push_back(Sent {
            at: self.now,
            ack: self.free_at + self.rtt,
            delivered: self.s.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            inflight: self.s.in_flight() + 1,
            marked: start - self.now > self.mark_beyond,
        });
        self.s.nxt += 1;
        self.s.last_sent = self.now;
        self.s.max_packets_out = self.s.max_packets_out.max(self.s.in_flight());
        if self.cc.needs_pacing() {
            self.s.edt = self.now + u64::from(self.s.mss) * SEC / self.s.pacing_rate;
        }
    }

    fn ack(&mut self) {
        let Some(p) = self.out.pop_front() else {
            return;
        };
        let (s, cc) = (&mut self.s, &mut self.cc);
        let prior_in_flight = s.in_flight();
        s.una += 1;
        s.delivered += 1;
        s.delivered_ce += u64::from(p.marked);
        let rtt = self.now - p.at;
        s.srtt = (7 * s.srtt + rtt) / 8;
        s.min_rtt = s.min_rtt.min(rtt);
        cc.pkts_acked(s, self.now, 1, rtt);
        cc.in_ack_event(s, self.now, &AckEvent::default());
        if s.state == CaState::Cwr && s.una > self.cwr_end {
            if !cc.full_control() {
                s.cwnd = s.ssthresh;
                cc.event(s, self.now, Event::CompleteCwr);
            }
            cc.set_state(s, self.now, CaState::Open);
            s.state = CaState::Open;
        }
        if p.marked && s.state == CaState::Open {
            s.prior_cwnd = s.cwnd;
            s.ssthresh = cc.ssthresh(s, self.now);
            cc.set_state(s, self.now, CaState::Cwr);
            s.state = CaState::Cwr;
            self.cwr_end = s.nxt;
            if !cc.full_control() {
                s.cwnd = s.ssthresh;
            }
        }
        let interval = (p.at - p.first_sent).max(self.now - p.delivered_at);
        self.delivered_at = self.now;
        self.first_sent = p.at;
        let rs = RateSample {
            prior_delivered: p.delivered,
            delivered: (s.delivered - p.delivered) as i32,
            interval,
            rtt,
            prior_in_flight,
            tx_in_flight: p.inflight,
            acked_sacked: 1,
            ..RateSample::default()
        };
        if cc.full_control() {
            cc.cong_control(s, self.now, &rs);
        } else if s.state != CaState::Cwr {
            cc.cong_avoid(s, self.now, 1);
        }
    }
}

/// Packets per second of `mbit` Mbit/s of 1500-byte packets.
pub fn rate(mbit: u64) -> u64 {
    mbit * 1_000_000 / 12_000
}

/// Runs for `time`; returns the mean of `f`, evaluated every millisecond.
pub fn mean(path: &mut Path, time: Duration, f: impl Fn(&Path) -> f64) -> f64 {
    let n = time / MS;
    let sum: f64 = (0..n)
        .map(|_| {
            path.run_for(MS);
            f(path)
        })
        .sum();
    sum / n as f64
}
