//! Losses on the channel: a fixed error probability or one that follows from the signal-to-noise
//! ratio, and bursts of noise.

use quell_qdisc::time::{Duration, Instant, NEVER};
use quell_qdisc::{Rng, num};

use crate::scenario::wifi::{Loss, Noise};

/// Weights of the error events of the convolutional code (133, 171) by distance, per coding rate:
/// rate 1/2 has even distances from 10 on, its punctured forms every distance from 6, 5 and 4 on
/// (Haccoun and Bégin, IEEE Trans. Comm. 37, 1989; Frenger, Orten and Ottosson, IEEE Comm. Letters
/// 3, 1999).
const HALF: [f64; 9] = [
    36.0,
    211.0,
    1404.0,
    11_633.0,
    77_433.0,
    502_690.0,
    3_322_763.0,
    21_292_910.0,
    134_365_911.0,
];
const TWO_THIRDS: [f64; 8] = [
    3.0, 70.0, 285.0, 1276.0, 6160.0, 27_128.0, 117_019.0, 498_860.0,
];
const THREE_QUARTERS: [f64; 8] = [
    42.0,
    201.0,
    1492.0,
    10_469.0,
    62_935.0,
    379_644.0,
    2_253_373.0,
    13_073_811.0,
];
const FIVE_SIXTHS: [f64; 7] = [
    92.0,
    528.0,
    8694.0,
    79_453.0,
    792_114.0,
    7_375_573.0,
    67_884_974.0,
];

/// The probability that an MPDU is lost, by its MCS and length.
#[derive(Clone, Debug)]
pub enum Errors {
    /// By MCS modulo 8, independent of the length.
    Fixed([f64; 8]),
    /// ln(1 - p) with the bit error rate p, by MCS modulo 8.
    PerBit([f64; 8]),
}

impl Errors {
    /// Errors as the scenario sets them.
    pub fn new(loss: &Loss) -> Self {
        match loss {
            Loss::Fixed(p) => Errors::Fixed(*p),
            Loss::Snr(db) => {
                let snr = libm::pow(10.0, db / 10.0);
                Errors::PerBit(std::array::from_fn(|mcs| libm::log1p(-bit_error(mcs, snr))))
            }
        }
    }

    /// Probability that an MPDU of `bytes` is lost.
    #[inline]
    pub fn probability(&self, mcs: u8, bytes: u32) -> f64 {
        match self {
            Errors::Fixed(p) => p[usize::from(mcs & 7)],
            Errors::PerBit(log) => -libm::expm1(log[usize::from(mcs & 7)] * 8.0 * f64::from(bytes)),
        }
    }
}

/// Union bound on the bit errors that a Viterbi decoder with hard decisions leaves at this SNR per
/// subcarrier and stream (Pei and Henderson, "Validation of OFDM error rate model in ns-3", 2010).
fn bit_error(mcs: usize, snr: f64) -> f64 {
    let erfc = |divisor: f64| 0.5 * libm::erfc(libm::sqrt(snr / divisor));
    let raw = match mcs {
        0 => erfc(1.0),
        1 | 2 => erfc(2.0),
        3 | 4 => 0.75 * erfc(10.0),
        _ => 7.0 / 12.0 * erfc(42.0),
    };
    let (weights, free_distance, step, punctured): (&[f64], f64, f64, f64) = match mcs {
        0 | 1 | 3 => (&HALF, 10.0, 2.0, 1.0),
        5 => (&TWO_THIRDS, 6.0, 1.0, 2.0),
        2 | 4 | 6 => (&THREE_QUARTERS, 5.0, 1.0, 3.0),
        _ => (&FIVE_SIXTHS, 4.0, 1.0, 5.0),
    };
    let d = libm::sqrt(4.0 * raw * (1.0 - raw));
    let terms = weights.iter().enumerate();
    let sum: f64 = terms
        .map(|(i, w)| w * libm::pow(d, free_distance + step * i as f64))
        .sum();
    (sum / (2.0 * punctured)).min(0.5)
}

/// A Gilbert-Elliott channel: quiet and noisy periods of exponential length alternate.
#[derive(Clone, Debug)]
pub struct Bursts {
    noise: Option<Noise>,
    noisy: bool,
    /// End of the current period.
    until: Instant,
    rng: Rng,
}

impl Bursts {
    /// A channel that starts quiet.
    pub fn new(noise: Option<Noise>, seed: u64) -> Self {
        let mut rng = Rng::new(seed, "wifi noise");
        let until = noise.map_or(NEVER, |n| {
            Instant::from_nanos(num::whole_u64(rng.exp(n.quiet.as_nanos() as f64)))
        });
        Self {
            noise,
            noisy: false,
            until,
            rng,
        }
    }

    /// The probability that noise destroys a transmission between `from` and `to`. Calls must be in
    /// order of time.
    #[inline]
    pub fn probability(&mut self, from: Instant, to: Instant) -> f64 {
        let Some(noise) = self.noise else { return 0.0 };
        while self.until <= from {
            self.start_next_period(&noise);
        }
        let mut hit = self.noisy;
        while self.until < to {
            self.start_next_period(&noise);
            hit |= self.noisy;
        }
        if hit { noise.loss } else { 0.0 }
    }

    /// Starts the next period.
    fn start_next_period(&mut self, noise: &Noise) {
        self.noisy = !self.noisy;
        let mean = if self.noisy { noise.noisy } else { noise.quiet };
        let lasts = num::whole_u64(self.rng.exp(mean.as_nanos() as f64)).max(1);
        self.until += Duration::from_nanos(lasts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_the_rates_needs_more_signal() {
        // SNR at which one 1500-byte frame in ten is lost.
        let needed = |mcs: u8| {
            let mut db = 0.0;
            while Errors::new(&Loss::Snr(db)).probability(mcs, 1500) > 0.1 {
                db += 0.05;
            }
            db
        };
        let all: Vec<f64> = (0..8).map(needed).collect();
        assert!(all.is_sorted(), "{all:?}");
        // The receiver's minimum sensitivity (table 20-23) rises by 18 dB from MCS 0 to 7.
        assert!((15.0..21.0).contains(&(all[7] - all[0])), "{all:?}");
    }

    #[test]
    fn bursts_take_their_share_of_the_time() {
        let noise = Noise {
            loss: 1.0,
            quiet: Duration::from_millis(90),
            noisy: Duration::from_millis(10),
        };
        let mut bursts = Bursts::new(Some(noise), 1);
        let n = 400_000;
        let hit: f64 = (0..n)
            .map(Instant::from_millis)
            .map(|at| bursts.probability(at, at))
            .sum::<f64>()
            / n as f64;
        assert!((hit - 0.1).abs() < 0.004, "{hit}");
        let mut quiet = Bursts::new(None, 1);
        assert_eq!(quiet.probability(Instant::ZERO, Instant::from_secs(1)), 0.0);
    }
}
