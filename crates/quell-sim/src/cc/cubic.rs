//! CUBIC with HyStart as Linux's `net/ipv4/tcp_cubic.c` has it (RFC 9438; Ha and Rhee, "Taming the elephants", 2011).
//! Fixed point throughout: time in 1/1024 s, the window in packets, C = 410/1024.
//!
//! Deviations from Linux: the cubic root is exact (Linux: one Newton step from a table, within 0.2 %); the cubic's offset is clamped
//! at 300 s, beyond which Linux's product overflows; a sender without pacing computes the rate that Linux would pace at where
//! HyStart asks for it.
//! Deviations from RFC 9438 in both: the window follows the cubic at most once per millisecond and, unchanged, every 32 ms;
//! the first epoch without a known maximum gains at least 5 % per round; the Reno estimate keeps its slope above the window
//! of the last loss. `Params::rfc9438` takes the RFC's side in all three.

use quell_qdisc::{MS, Nanos, US};

use super::{CaState, Event, Ops, Sock, jiffies, micros};

/// Options; the defaults are Linux's module parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Give way to newcomers: remember less than the window that met the loss if it was below the last one (RFC 9438, section 4.7).
    pub fast_convergence: bool,
    /// Leave slow start by ACK trains and delay rises.
    pub hystart: bool,
    /// Follow RFC 9438 where Linux differs.
    pub rfc9438: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            fast_convergence: true,
            hystart: true,
            rfc9438: false,
        }
    }
}

/// Multiplicative decrease, of 1024 (0.7).
const BETA: u32 = 717;
const BETA_SCALE: u32 = 1024;
/// C in 1/1024 packets per s³ (0.4): `bic_scale` 41, tenfold.
const C: u64 = 410;
/// Time unit 2^-10 s.
const HZ_SHIFT: u32 = 10;
/// Packets acknowledged per packet of growth of the Reno estimate, per window, in eighths: 8 (1+β) / (3 (1-β)).
const RENO_SCALE: u32 = 8 * (BETA_SCALE + BETA) / 3 / (BETA_SCALE - BETA);
/// Longest offset from the plateau, 1/1024 s (see the file header).
const MAX_OFFSET: u64 = 300 << HZ_SHIFT;

/// HyStart looks from this window on.
const HYSTART_LOW_WINDOW: u32 = 16;
/// RTT samples before the delay of a round counts.
const HYSTART_MIN_SAMPLES: u8 = 8;
/// Bounds of the rise in delay that ends slow start, µs.
const HYSTART_DELAY_US: (u32, u32) = (4_000, 16_000);
/// ACKs of one train are at most this far apart, µs.
const HYSTART_ACK_DELTA_US: i32 = 2_000;

/// One sender's CUBIC. Times named `_ms` are Linux's jiffies at HZ = 1000.
#[derive(Clone, Debug)]
pub struct Cubic {
    /// One packet of growth per this many acknowledged.
    cnt: u32,
    /// W_max.
    last_max_cwnd: u32,
    /// Window and time of the last evaluation of the cubic.
    last_cwnd: u32,
    last_time_ms: u32,
    /// Where the cubic has its plateau.
    origin: u32,
    /// Time from the start of the epoch to the plateau, 1/1024 s.
    k: u32,
    /// Lowest RTT, µs; 0 before the first sample.
    delay_min_us: u32,
    /// 0: no epoch runs.
    epoch_start_ms: u32,
    /// Acknowledged in this epoch and not yet in the Reno estimate.
    ack_cnt: u32,
    /// The Reno estimate (W_est).
    reno_cwnd: u32,
    /// HyStart's round: its start, its last ACK of the train, its end and its lowest RTT.
    round_start_us: u32,
    last_ack_us: u32,
    end_seq: u32,
    curr_rtt_us: u32,
    samples: u8,
    /// HyStart ended slow start.
    found: bool,
    params: Params,
}

impl Cubic {
    /// A fresh one.
    pub fn new(params: Params) -> Self {
        Self {
            cnt: 0,
            last_max_cwnd: 0,
            last_cwnd: 0,
            last_time_ms: 0,
            origin: 0,
            k: 0,
            delay_min_us: 0,
            epoch_start_ms: 0,
            ack_cnt: 0,
            reno_cwnd: 0,
            round_start_us: 0,
            last_ack_us: 0,
            end_seq: 0,
            curr_rtt_us: u32::MAX,
            samples: 0,
            found: false,
            params,
        }
    }

    fn start_round(&mut self, s: &Sock, now: Nanos) {
        self.round_start_us = micros(now);
        self.last_ack_us = self.round_start_us;
        self.end_seq = s.nxt;
        self.curr_rtt_us = u32::MAX;
        self.samples = 0;
    }

    /// Sets `cnt` for a window of `cwnd` after `acked` more packets.
    #[inline]
    fn update(&mut self, s: &Sock, now: Nanos, acked: u32) {
        let cwnd = s.cwnd;
        let now_ms = jiffies(now);
        self.ack_cnt += acked;
        let since = now_ms.wrapping_sub(self.last_time_ms);
        if !self.params.rfc9438 && self.last_cwnd == cwnd && since <= 1000 / 32 {
            return;
        }
        if self.params.rfc9438 || self.epoch_start_ms == 0 || since != 0 {
            self.last_cwnd = cwnd;
            self.last_time_ms = now_ms;
            if self.epoch_start_ms == 0 {
                self.start_epoch(cwnd, now_ms, acked);
            }
            self.follow_cubic(cwnd, now_ms);
        }
        self.follow_reno(s);
        // 1.5 windows per round at most (RFC 9438, section 4.4: the target's upper bound).
        self.cnt = self.cnt.max(2);
    }

    #[cold]
    fn start_epoch(&mut self, cwnd: u32, now_ms: u32, acked: u32) {
        self.epoch_start_ms = now_ms.max(1);
        self.ack_cnt = acked;
        self.reno_cwnd = cwnd;
        if self.last_max_cwnd <= cwnd {
            self.k = 0;
            self.origin = cwnd;
        } else {
            // RFC 9438, equation 2: K = cbrt((W_max - cwnd) / C), in 2^-10 s.
            let factor = (1u64 << (10 + 3 * HZ_SHIFT)) / C;
            self.k = cubic_root(factor * u64::from(self.last_max_cwnd - cwnd));
            self.origin = self.last_max_cwnd;
        }
    }

    /// RFC 9438, section 4.2: where the cubic will be one round from now.
    #[inline]
    fn follow_cubic(&mut self, cwnd: u32, now_ms: u32) {
        let rtt_ms = self.delay_min_us.div_ceil(1000);
        let t_ms = u64::from(now_ms.wrapping_sub(self.epoch_start_ms)) + u64::from(rtt_ms);
        let t = (t_ms << HZ_SHIFT) / 1000;
        let k = u64::from(self.k);
        let offset = t.abs_diff(k).min(MAX_OFFSET);
        let delta = ((C * offset * offset * offset) >> (10 + 3 * HZ_SHIFT)) as u32;
        let target = if t < k {
            self.origin.saturating_sub(delta)
        } else {
            self.origin.saturating_add(delta)
        };
        self.cnt = if target > cwnd {
            cwnd / (target - cwnd)
        } else {
            100 * cwnd
        };
        // Linux: while the available bandwidth is unknown, the cubic's flat start would be too careful.
        if !self.params.rfc9438 && self.last_max_cwnd == 0 {
            self.cnt = self.cnt.min(20);
        }
    }

    /// RFC 9438, section 4.3: not slower than Reno would be with this β.
    #[inline]
    fn follow_reno(&mut self, s: &Sock) {
        // Above the window of the last reduction the RFC's estimate gains a whole packet per window.
        let above = self.params.rfc9438 && self.reno_cwnd >= s.prior_cwnd;
        let per_packet = if above {
            s.cwnd
        } else {
            (s.cwnd * RENO_SCALE) >> 3
        };
        while self.ack_cnt > per_packet {
            self.ack_cnt -= per_packet;
            self.reno_cwnd += 1;
        }
        if self.reno_cwnd > s.cwnd {
            self.cnt = self.cnt.min(s.cwnd / (self.reno_cwnd - s.cwnd));
        }
    }

    /// Ends slow start when ACKs keep coming for half the base RTT, or when the RTT has risen.
    fn hystart_update(&mut self, s: &mut Sock, now: Nanos, delay_us: u32) {
        if after(s.una, self.end_seq) {
            self.start_round(s, now);
        }
        if s.cwnd < HYSTART_LOW_WINDOW {
            return;
        }
        let now_us = micros(now);
        if now_us.wrapping_sub(self.last_ack_us) as i32 <= HYSTART_ACK_DELTA_US {
            self.last_ack_us = now_us;
            let mut threshold = self.delay_min_us + ack_delay_us(s);
            // A paced train is spread over up to a round by the sender itself.
            if s.pacing_rate == u64::MAX {
                threshold >>= 1;
            }
            if now_us.wrapping_sub(self.round_start_us) > threshold {
                self.found = true;
                s.ssthresh = s.cwnd;
            }
        }
        self.curr_rtt_us = self.curr_rtt_us.min(delay_us);
        if self.samples < HYSTART_MIN_SAMPLES {
            self.samples += 1;
        } else {
            let rise = (self.delay_min_us >> 3).clamp(HYSTART_DELAY_US.0, HYSTART_DELAY_US.1);
            if self.curr_rtt_us > self.delay_min_us + rise {
                self.found = true;
                s.ssthresh = s.cwnd;
            }
        }
    }
}

/// How long the sender's own bursts may stretch a train, µs: four segmentation-offload bursts at the pacing rate, at most 1 ms.
fn ack_delay_us(s: &Sock) -> u32 {
    const BURSTS: u64 = 4 * 65_536 * 1_000_000;
    let rate = if s.pacing_rate == u64::MAX {
        // What tcp_update_pacing_rate would pace at: twice the window per round in slow start.
        let gain = if s.cwnd < s.ssthresh / 2 {
            2_000
        } else {
            1_200
        };
        let window = u64::from(s.cwnd.max(s.nxt - s.una)) * u64::from(s.mss);
        window * gain * (MS / US) / (s.srtt / US).max(1)
    } else {
        s.pacing_rate
    };
    if rate == 0 {
        return 0;
    }
    (BURSTS / rate).min(1_000) as u32
}

/// Sequence comparison.
#[inline]
fn after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

/// The largest x with x³ <= a (a < 2^63), bit by bit.
fn cubic_root(a: u64) -> u32 {
    let mut x = 0u64;
    for bit in (0..21).rev() {
        let y = x | 1 << bit;
        if y * y * y <= a {
            x = y;
        }
    }
    x as u32
}

impl Ops for Cubic {
    fn init(&mut self, s: &mut Sock, now: Nanos, _seed: u64) {
        self.start_round(s, now);
    }

    fn ssthresh(&mut self, s: &mut Sock, _now: Nanos) -> u32 {
        self.epoch_start_ms = 0;
        self.last_max_cwnd = if s.cwnd < self.last_max_cwnd && self.params.fast_convergence {
            // RFC 9438, section 4.7: W_max = cwnd (1 + β) / 2.
            s.cwnd * (BETA_SCALE + BETA) / (2 * BETA_SCALE)
        } else {
            s.cwnd
        };
        (s.cwnd * BETA / BETA_SCALE).max(2)
    }

    #[inline]
    fn cong_avoid(&mut self, s: &mut Sock, now: Nanos, acked: u32) {
        if !s.is_cwnd_limited() {
            return;
        }
        let mut left = acked;
        if s.in_slow_start() {
            left = s.slow_start(acked);
            if left == 0 {
                return;
            }
        }
        self.update(s, now, left);
        s.additive_increase(self.cnt, left);
    }

    #[inline]
    fn pkts_acked(&mut self, s: &mut Sock, now: Nanos, _acked: u32, rtt: Nanos) {
        if rtt == 0 {
            return;
        }
        // Samples right after fast recovery measure the queue that it drained.
        let age_ms = jiffies(now).wrapping_sub(self.epoch_start_ms);
        if self.epoch_start_ms != 0 && age_ms < 1000 {
            return;
        }
        let delay_us = micros(rtt).max(1);
        if self.delay_min_us == 0 || self.delay_min_us > delay_us {
            self.delay_min_us = delay_us;
        }
        if !self.found && s.in_slow_start() && self.params.hystart {
            self.hystart_update(s, now, delay_us);
        }
    }

    fn set_state(&mut self, s: &mut Sock, now: Nanos, new: CaState) {
        if new == CaState::Loss {
            // RFC 9438, section 4.8: after a timeout all is learned anew.
            *self = Self::new(self.params);
            self.start_round(s, now);
        }
    }

    fn event(&mut self, s: &mut Sock, now: Nanos, e: Event) {
        if e == Event::TxStart && self.epoch_start_ms != 0 {
            // RFC 9438, section 5.8: idle time is no time of the epoch.
            let idle_ms = jiffies(now).wrapping_sub(jiffies(s.last_sent));
            if idle_ms as i32 > 0 {
                let start = self.epoch_start_ms.wrapping_add(idle_ms);
                self.epoch_start_ms = start.min(jiffies(now)).max(1);
            }
        }
    }
}
