//! RED's law, which `red`, `sfq` and `choke` share: an average that moves slowly, and a probability
//! that grows with it.
//!
//! Sources: Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance" (1993);
//! Linux `include/net/red.h`; iproute2 `tc/tc_red.c`. The discipline chooses whether to count bytes
//! or packets.

use crate::Rng;
use crate::num;
use crate::rate::Rate;
use crate::time::{Instant, US};

/// `tc`'s clock ticks per microsecond.
const TICKS_PER_US: f64 = 15.625;

/// The largest weight 2^-n of the average with which `burst` packets pass (Floyd and Jacobson,
/// section 6), as n. `None` if there is none: see [`check_weight`]. `min` is in bytes.
pub fn weight(min: u64, burst: u32, avpkt: u32) -> Option<u32> {
    let a = f64::from(burst) + 1.0 - min as f64 / f64::from(avpkt);
    if a < 1.0 {
        return None;
    }
    (1..32).find(|&n| {
        let w = libm::exp2(-f64::from(n));
        a <= (1.0 - libm::pow(1.0 - w, f64::from(burst))) / w
    })
}

/// Checks that [`weight`] finds one: the burst has at least `min` bytes, `min` is at least one
/// packet, and the burst is not so long that only a weight below 2^-31 would do.
///
/// # Errors
/// The parameter to change.
pub fn check_weight(min: u64, burst: u32, avpkt: u32) -> Result<(), &'static str> {
    let avpkt_bytes = u64::from(avpkt);
    match weight(min, burst, avpkt) {
        Some(_) => Ok(()),
        None if u64::from(burst) * avpkt_bytes < min => Err("burst must be at least min / avpkt"),
        None if min < avpkt_bytes => Err("min must be at least avpkt"),
        None => Err("burst must be lower, or min higher"),
    }
}

/// The law's decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Neither mark nor drop.
    Pass,
    /// Mark or drop, by chance.
    Early,
    /// Mark or drop, because the average is above the greatest threshold.
    Hard,
}

/// The law's constants. Lengths are in bytes or packets, as the discipline counts them.
#[derive(Clone, Debug)]
pub struct Law {
    /// n of the weight 2^-n.
    pub wlog: u32,
    /// Average length at which dropping begins.
    pub min: u64,
    /// Average length with the greatest probability.
    pub max: u64,
    /// Greatest probability, in units of 2^-32.
    pub max_p: u32,
    /// `max_p` per unit of length between the thresholds.
    pub max_p_delta: u32,
    /// Between `max` and twice `max` the probability rises to 1.
    pub gentle: bool,
}

/// The law's state.
#[derive(Clone, Copy, Debug)]
pub struct Vars {
    /// Average length, shifted left by [`Law::wlog`].
    pub qavg: u64,
    /// Packets since the last drop or mark; -1 while the average is outside the thresholds.
    pub qcount: i64,
    /// The random number drawn for the next drop or mark.
    draw: u32,
}

impl Default for Vars {
    fn default() -> Self {
        Self {
            qavg: 0,
            qcount: -1,
            draw: 0,
        }
    }
}

impl Vars {
    /// Updates the average at an arrival (Floyd and Jacobson, figure 2).
    #[inline]
    pub fn update(&mut self, law: &Law, backlog: u64) {
        self.qavg = self.qavg + backlog - (self.qavg >> law.wlog);
    }
}

impl Law {
    /// The law with the weight 2^-`wlog` and this probability at `max`.
    pub fn new(min: u64, max: u64, wlog: u32, probability: f64) -> Self {
        let max_p = num::whole_u32(probability * 4_294_967_296.0);
        Self {
            wlog,
            min,
            max,
            max_p,
            max_p_delta: (max_p / num::low_u32((max - min).max(1))).max(1),
            gentle: false,
        }
    }

    /// Decides on an arrival.
    #[inline]
    pub fn action(&self, vars: &mut Vars, rng: &mut Rng) -> Action {
        let max = self.max << self.wlog;
        let roof = if self.gentle { 2 * max } else { max };
        if vars.qavg < self.min << self.wlog {
            vars.qcount = -1;
            return Action::Pass;
        }
        if vars.qavg >= roof {
            vars.qcount = -1;
            return Action::Hard;
        }
        match self.by_chance(vars, rng) {
            true => Action::Early,
            false => Action::Pass,
        }
    }

    /// Decides between the thresholds. Drops are spread evenly (Floyd and Jacobson, section 7): a
    /// number is drawn once per drop and compared with the probability times the packets since that
    /// drop.
    #[inline]
    pub fn by_chance(&self, vars: &mut Vars, rng: &mut Rng) -> bool {
        let (min, max) = (self.min << self.wlog, self.max << self.wlog);
        vars.qcount += 1;
        if vars.qcount == 0 {
            vars.draw = rng.u32();
            return false;
        }
        let count = vars.qcount.cast_unsigned();
        let hit = if vars.qavg < max || !self.gentle {
            // Divided as in Linux: max_p * (avg - min) / (max - min) * count against the number
            // drawn.
            ((vars.qavg - min) >> self.wlog) * count >= u64::from(vars.draw / self.max_p_delta)
        } else {
            let rise = u64::from(!self.max_p) * ((vars.qavg - max) >> self.wlog) / self.max;
            (u64::from(self.max_p) + rise) * count >= u64::from(vars.draw)
        };
        if hit {
            vars.qcount = 0;
            vars.draw = rng.u32();
        }
        hit
    }

    /// The probability at an average, before it is spread.
    pub fn probability(&self, vars: &Vars) -> f64 {
        let p = f64::from(self.max_p) / 4_294_967_296.0;
        let avg = (vars.qavg >> self.wlog) as f64;
        let (min, max) = (self.min as f64, self.max as f64);
        if avg < min {
            0.0
        } else if avg < max {
            p * (avg - min) / (max - min)
        } else if self.gentle && avg < 2.0 * max {
            p + (1.0 - p) * (avg - max) / max
        } else {
            1.0
        }
    }
}

/// Decay of the average while nothing is queued. `tc` computes a table in units of 64 ns and the
/// kernel looks it up in microseconds, so the average falls 15.625 times slower than in the paper.
#[derive(Clone, Debug)]
pub struct Idling {
    /// Halvings per microsecond.
    pub slope: f64,
    /// log2 of the step of the table, microseconds.
    log: u32,
}

impl Idling {
    /// For a link of this rate and packets of `avpkt` bytes.
    pub fn new(wlog: u32, avpkt: u32, bandwidth: Rate) -> Self {
        let bytes_per_us = bandwidth.bps_f64() / 8e6;
        let ticks = libm::ceil(f64::from(avpkt) / bytes_per_us * TICKS_PER_US);
        let slope = -libm::log(1.0 - libm::exp2(-f64::from(wlog))) / ticks;
        let cells = |log: u32| 31.0 / slope / f64::from(1u32 << log);
        Self {
            slope,
            log: (0..31).find(|&log| cells(log) < 512.0).unwrap_or(31),
        }
    }

    /// The average after an idle time: it falls as if the packets that could have been sent in that
    /// time had been sent.
    pub fn after(&self, qavg: u64, since: Instant, now: Instant) -> u64 {
        let us = ((now - since) / US).min(255 << self.log);
        let cell = us >> self.log;
        let shift = if cell == 255 {
            31
        } else {
            num::whole_u32(((cell << self.log) as f64 * self.slope).min(31.0))
        };
        if shift > 0 {
            return qavg >> shift;
        }
        // The table is too coarse for the first part of the exponential, so the average falls
        // linearly there, at most to half.
        let fall = num::low_u64((u128::from(qavg) * u128::from(us)) >> self.log);
        qavg - fall.min(qavg - qavg / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_decides_from_min_up_to_max_or_twice_max_where_it_is_gentle() {
        for (gentle, roof) in [(false, 30_000), (true, 60_000)] {
            let law = Law {
                gentle,
                ..Law::new(10_000, 30_000, 9, 0.1)
            };
            // Whether a packet is surely dropped, and `qcount`: 0 if chance decides on it,
            // otherwise -1.
            let at = |qavg| {
                let mut vars = Vars {
                    qavg,
                    ..Vars::default()
                };
                let action = law.action(&mut vars, &mut Rng::new(1, "red"));
                (action == Action::Hard, vars.qcount)
            };
            assert_eq!(at((10_000 << 9) - 1), (false, -1));
            assert_eq!(at(10_000 << 9), (false, 0));
            assert_eq!(at((roof << 9) - 1), (false, 0));
            assert_eq!(at(roof << 9), (true, -1));
        }
    }
}
