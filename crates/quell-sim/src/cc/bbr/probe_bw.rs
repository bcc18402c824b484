//! PROBE_BW: the pacing gain cycles through eight phases of about a round trip each; the first
//! probes for more bandwidth.

use quell_qdisc::num;
use quell_qdisc::time::Instant;

use super::super::{RateSample, Sock, micros};
use super::{Bbr, Mode, UNIT};

/// Pacing gains, in 1/256: 5/4 to probe, 3/4 to drain the queue of the probe, 1 to cruise.
pub(super) const CYCLE: [u16; 8] = [320, 192, 256, 256, 256, 256, 256, 256];
/// Number of phases in which the cycle can start: all but the draining one.
const START_PHASES: u64 = 7;

impl Bbr {
    #[inline]
    pub(super) fn cycle_gain(&self) -> u16 {
        CYCLE[usize::from(self.cycle_index)]
    }

    pub(super) fn enter_probe_bw(&mut self, now: Instant) {
        self.mode = Mode::ProbeBw;
        // Numerical Recipes' generator is random enough to separate the phases of flows.
        self.random = self
            .random
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        let phase = (u64::from(self.random) * START_PHASES) >> 32;
        self.cycle_index = num::low_u8(CYCLE.len() as u64) - 1 - num::low_u8(phase);
        self.next_cycle_phase(now);
    }

    pub(super) fn update_cycle_phase(&mut self, s: &Sock, now: Instant, rs: &RateSample) {
        if self.mode == Mode::ProbeBw && self.cycle_phase_is_over(s, now, rs) {
            self.next_cycle_phase(now);
        }
    }

    fn cycle_phase_is_over(&self, s: &Sock, now: Instant, rs: &RateSample) -> bool {
        let full_length = micros(now).wrapping_sub(self.cycle_stamp_us) > self.min_rtt_us;
        if self.pacing_gain == UNIT {
            return full_length;
        }
        let inflight = self.in_network_at_departure(s, now, rs.prior_in_flight);
        let bw = self.bw.get();
        if self.pacing_gain > UNIT {
            // Probe until the pipe holds the volume, or until losses show that it does not.
            full_length && (rs.losses > 0 || inflight >= self.inflight(s, bw, self.pacing_gain))
        } else {
            // Drain to one BDP, no further.
            full_length || inflight <= self.inflight(s, bw, UNIT)
        }
    }

    fn next_cycle_phase(&mut self, now: Instant) {
        self.cycle_index = (self.cycle_index + 1) % num::low_u8(CYCLE.len() as u64);
        self.cycle_stamp_us = micros(now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testpath::mean;
    use super::super::super::{Ops, Sock};
    use super::super::tests::{bbr, path};
    use super::*;
    use quell_qdisc::time::{MS, SEC};

    #[test]
    fn the_cycle_probes_for_one_round_in_eight() {
        let mut p = path(50, 40 * MS);
        p.run_for(3 * SEC);
        let probing = mean(&mut p, 6 * SEC, |p| f64::from(bbr(p).pacing_gain > UNIT));
        assert!((0.08..0.25).contains(&probing), "{probing}");
    }

    #[test]
    fn flows_of_different_seeds_start_their_cycles_apart() {
        let phases: std::collections::HashSet<u8> = (0..64u64)
            .map(|seed| {
                let mut b = Bbr::new();
                b.init(
                    &mut Sock::new(1448, 10),
                    Instant::ZERO,
                    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                );
                b.enter_probe_bw(Instant::ZERO);
                b.cycle_index
            })
            .collect();
        // All but the draining phase.
        assert_eq!(phases.len(), 7);
        assert!(!phases.contains(&1));
    }
}
