//! HyStart++ (RFC 9406): when the RTT rises, slow start continues at a quarter of its speed for
//! five rounds, unless the rise was a false alarm.
//!
//! No deviations are known. As the RFC advises, it is used only until the first loss or mark.

use super::Sock;

/// The constants of RFC 9406, section 4.3.
const MIN_RTT_THRESH_US: u32 = 4_000;
const MAX_RTT_THRESH_US: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u8 = 5;
/// L: maximum growth per ACK without pacing, packets.
const LIMIT: u32 = 8;

/// State of the rounds of a sender; names are the RFC's.
#[derive(Clone, Debug)]
pub struct HyStartPlus {
    window_end: u64,
    current_min_us: u32,
    last_min_us: u32,
    /// The RTT that started conservative slow start; `u32::MAX`: in slow start.
    css_baseline_us: u32,
    samples: u8,
    css_rounds: u8,
}

impl HyStartPlus {
    /// State at the start of the first round.
    pub fn new(s: &Sock) -> Self {
        Self {
            window_end: s.nxt,
            current_min_us: u32::MAX,
            last_min_us: u32::MAX,
            css_baseline_us: u32::MAX,
            samples: 0,
            css_rounds: 0,
        }
    }

    fn conservative(&self) -> bool {
        self.css_baseline_us != u32::MAX
    }

    /// Takes an RTT sample in slow start; sets the threshold when conservative slow start has
    /// lasted long enough.
    pub fn sample(&mut self, s: &mut Sock, rtt_us: u32) {
        self.current_min_us = self.current_min_us.min(rtt_us);
        self.samples = self.samples.saturating_add(1);
        if self.samples >= N_RTT_SAMPLE {
            self.compare();
        }
        if s.una > self.window_end {
            self.end_round(s);
        }
    }

    fn compare(&mut self) {
        if self.conservative() {
            if self.current_min_us < self.css_baseline_us {
                self.css_baseline_us = u32::MAX;
            }
        } else if self.last_min_us != u32::MAX {
            let threshold =
                (self.last_min_us / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_US, MAX_RTT_THRESH_US);
            if self.current_min_us >= self.last_min_us + threshold {
                self.css_baseline_us = self.current_min_us;
                self.css_rounds = 0;
            }
        }
    }

    fn end_round(&mut self, s: &mut Sock) {
        if self.conservative() {
            self.css_rounds += 1;
            if self.css_rounds >= CSS_ROUNDS {
                s.ssthresh = s.cwnd;
            }
        }
        self.window_end = s.nxt;
        self.last_min_us = self.current_min_us;
        self.current_min_us = u32::MAX;
        self.samples = 0;
    }

    /// Grows the window for `acked` packets. Returns how many of them are left once the threshold
    /// is reached.
    pub fn grow(&mut self, s: &mut Sock, acked: u32) -> u32 {
        let paced = s.pacing_rate != u64::MAX;
        let counted = if paced { acked } else { acked.min(LIMIT) };
        if !self.conservative() {
            return s.slow_start(counted);
        }
        s.cwnd_cnt += counted;
        let growth = s.cwnd_cnt / CSS_GROWTH_DIVISOR;
        s.cwnd_cnt %= CSS_GROWTH_DIVISOR;
        s.slow_start(growth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of ten samples.
    fn round(h: &mut HyStartPlus, s: &mut Sock, rtt_us: u32) {
        for _ in 0..9 {
            h.sample(s, rtt_us);
        }
        s.una = h.window_end + 1;
        s.nxt = s.una + 20;
        h.sample(s, rtt_us);
    }

    fn slowed() -> (HyStartPlus, Sock) {
        let mut s = Sock::new(1448, 40);
        let mut h = HyStartPlus::new(&s);
        round(&mut h, &mut s, 80_000);
        round(&mut h, &mut s, 89_999);
        assert!(!h.conservative());
        round(&mut h, &mut s, 102_000);
        (h, s)
    }

    #[test]
    fn a_rise_by_an_eighth_within_a_round_slows_growth_to_a_quarter() {
        let (mut h, mut s) = slowed();
        assert!(h.conservative());
        for _ in 0..40 {
            assert_eq!(h.grow(&mut s, 1), 0);
        }
        assert_eq!(s.cwnd, 50);
    }

    #[test]
    fn five_slow_rounds_end_slow_start() {
        // The round that found the rise counts as the first (RFC 9406, section 4.2).
        let (mut h, mut s) = slowed();
        for _ in 0..3 {
            round(&mut h, &mut s, 102_000);
            assert!(s.in_slow_start());
        }
        round(&mut h, &mut s, 102_000);
        assert!(!s.in_slow_start());
    }

    #[test]
    fn a_false_alarm_resumes_slow_start() {
        let (mut h, mut s) = slowed();
        round(&mut h, &mut s, 101_000);
        assert!(!h.conservative());
        h.grow(&mut s, 4);
        assert_eq!(s.cwnd, 44);
    }

    #[test]
    fn growth_per_ack_is_limited_to_eight_unless_paced() {
        let mut s = Sock::new(1448, 40);
        let mut h = HyStartPlus::new(&s);
        h.grow(&mut s, 30);
        assert_eq!(s.cwnd, 48);
        s.pacing_rate = 1_000_000;
        h.grow(&mut s, 30);
        assert_eq!(s.cwnd, 78);
    }
}
