//! The E-model of ITU-T G.107 (2015-06): effect of a packet network's delay and loss on a call. All
//! other inputs have the Recommendation's default values, so the rating starts at 93.2.

/// A codec's values in ITU-T G.113, Appendix I.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Equipment {
    /// Equipment impairment factor without loss.
    pub ie: f64,
    /// Packet-loss robustness factor.
    pub bpl: f64,
}

/// Ro - Is with all default values (G.107, section 7.7).
const BASE: f64 = 93.2;

/// The rating R, given the absolute one-way delay (mouth to ear, ms), the share of lost packets
/// (0..1) and their burst ratio.
pub fn rating(codec: Equipment, delay_ms: f64, loss: f64, burst: f64) -> f64 {
    BASE - delay_impairment(delay_ms) - equipment_impairment(codec, loss, burst)
}

/// Idd (G.107, equations 7-27 and 7-28), which without echo is all of Id.
pub fn delay_impairment(ms: f64) -> f64 {
    if ms <= 100.0 {
        return 0.0;
    }
    let x = libm::log2(ms / 100.0);
    let root = |x: f64| libm::pow(1.0 + libm::pow(x, 6.0), 1.0 / 6.0);
    25.0 * (root(x) - 3.0 * root(x / 3.0) + 2.0)
}

/// Ie,eff (G.107, equation 7-29), where loss is in percent.
pub fn equipment_impairment(codec: Equipment, loss: f64, burst: f64) -> f64 {
    let percent = 100.0 * loss;
    match percent > 0.0 {
        true => codec.ie + (95.0 - codec.ie) * percent / (percent / burst + codec.bpl),
        false => codec.ie,
    }
}

/// The mean opinion score for a rating (G.107, Annex B).
pub fn mos(rating: f64) -> f64 {
    match rating {
        r if r <= 0.0 => 1.0,
        r if r >= 100.0 => 4.5,
        // The polynomial is slightly below 1 at ratings below 6.5, outside its intended range.
        r => (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).max(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G711: Equipment = Equipment { ie: 0.0, bpl: 25.1 };

    fn near(is: f64, wanted: f64, tolerance: f64) {
        assert!((is - wanted).abs() <= tolerance, "{is} {wanted}");
    }

    #[test]
    fn a_perfect_narrowband_call_has_441() {
        near(mos(rating(G711, 0.0, 0.0, 1.0)), 4.41, 0.005);
    }

    #[test]
    fn delay_counts_from_100_ms() {
        assert_eq!(delay_impairment(100.0), 0.0);
        // X = log2(2) = 1; 2^(1/6) = 1.122462, (1 + 3^-6)^(1/6) = 1.000228; 25 (1.122462 - 3.000685
        // + 2).
        near(delay_impairment(200.0), 3.0444, 1e-3);
        // X = 2: 65^(1/6) = 2.005175, (1 + (2/3)^6)^(1/6) = 1.014119; 25 (2.005175 - 3.042358 + 2).
        near(delay_impairment(400.0), 24.0704, 1e-3);
    }

    #[test]
    fn loss_counts_by_the_codecs_robustness() {
        // 2 % random loss: 95 * 2 / (2 + 25.1) = 7.0111; R = 86.19.
        near(equipment_impairment(G711, 0.02, 1.0), 7.0111, 1e-3);
        // A burst ratio of 2: 95 * 2 / (2 / 2 + 25.1).
        near(equipment_impairment(G711, 0.02, 2.0), 7.2797, 1e-3);
        // G.729A with 2 %: 11 + 84 * 2 / (2 + 19).
        let g729 = Equipment {
            ie: 11.0,
            bpl: 19.0,
        };
        near(equipment_impairment(g729, 0.02, 1.0), 19.0, 1e-9);
        // 1 + 0.035 * 50 + 50 * (-10) * 50 * 7e-6 = 2.575 (Table B.1 rounds to 2.58).
        near(mos(50.0), 2.575, 1e-9);
        assert_eq!((mos(-3.0), mos(120.0)), (1.0, 4.5));
    }
}
