//! The lowest RTT of the last ten seconds, and PROBE_RTT, which empties the queue to measure it.

use super::super::{RateSample, Sock, after, jiffies};
use super::{Bbr, MIN_CWND, Mode};
use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant};

/// Time for which the lowest RTT counts, ms.
const WINDOW_MS: u32 = 10_000;
/// Duration of PROBE_RTT, ms.
const DURATION_MS: u32 = 200;

impl Bbr {
    pub(super) fn update_min_rtt(&mut self, s: &mut Sock, now: Instant, rs: &RateSample) {
        let now_ms = jiffies(now);
        let expired = after(now_ms, self.min_rtt_stamp_ms.wrapping_add(WINDOW_MS));
        let rtt_us = num::low_u32(rs.rtt.as_micros());
        // Only a lower sample renews the time stamp: samples equal to the minimum could postpone
        // PROBE_RTT for ever. Linux has done the same since 2020 ("tcp: only postpone PROBE_RTT if
        // RTT is < current min_rtt estimate").
        if rs.rtt > Duration::ZERO && (rtt_us < self.min_rtt_us || (expired && !rs.ack_delayed)) {
            self.min_rtt_us = rtt_us;
            self.min_rtt_stamp_ms = now_ms;
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_cwnd(s);
            self.probe_rtt_done_ms = 0;
        }
        if self.mode == Mode::ProbeRtt {
            self.hold_probe_rtt(s, now);
        }
        if rs.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// Four packets in flight for 200 ms and a round.
    fn hold_probe_rtt(&mut self, s: &mut Sock, now: Instant) {
        // The low rates of this mode must not count as bandwidth.
        s.app_limited = (s.delivered + u64::from(s.in_flight())).max(1);
        if self.probe_rtt_done_ms == 0 {
            if s.in_flight() <= MIN_CWND {
                self.probe_rtt_done_ms = jiffies(now).wrapping_add(DURATION_MS).max(1);
                self.probe_rtt_round_done = false;
                self.next_round_delivered = s.delivered;
            }
            return;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(s, now);
        }
    }

    pub(super) fn check_probe_rtt_done(&mut self, s: &mut Sock, now: Instant) {
        if self.probe_rtt_done_ms == 0 || !after(jiffies(now), self.probe_rtt_done_ms) {
            return;
        }
        self.min_rtt_stamp_ms = jiffies(now);
        s.cwnd = s.cwnd.max(self.prior_cwnd);
        if self.full_bw_reached {
            self.enter_probe_bw(now);
        } else {
            self.mode = Mode::Startup;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bbr, path};
    use super::*;
    use quell_qdisc::time::{MS, SEC};

    #[test]
    fn every_ten_seconds_the_window_falls_to_four_packets_to_measure_the_rtt() {
        let mut p = path(50, 40 * MS);
        // A standing queue hides the base RTT: the sample of the handshake must expire.
        p.run_for(3 * SEC);
        let mut dip = 0;
        for _ in 0..10_000 {
            p.run_for(MS);
            dip += u32::from(bbr(&p).mode == Mode::ProbeRtt);
            if bbr(&p).mode == Mode::ProbeRtt {
                assert!(
                    p.s.cwnd <= MIN_CWND || p.s.in_flight() > MIN_CWND,
                    "{}",
                    p.s.cwnd
                );
            }
        }
        // 200 ms, a round to drain and one that ends it.
        assert!((200..400).contains(&dip), "{dip}");
        assert!(p.s.cwnd > 100, "{}", p.s.cwnd);
    }
}
