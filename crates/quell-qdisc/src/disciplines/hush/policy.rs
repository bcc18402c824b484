//! The policy: computes the law's settings from gauges of the link, log-linearly and in integers.
//!
//! A setting is e to the sum of weights times features, most of which are logarithms of gauges
//! without a dimension, so a setting is a product of powers of gauges. The features, in the order
//! of a model's rows:
//!
//! 1. 1
//! 2. ln (R / 30 ms), R being the geometric mean of the flows' base round trips
//! 3. ln (s / 1 ms), s being the time that a packet of [`MTU`] bytes takes on the link
//! 4. ln n, n being the number of active flows, each counted by its share of the service
//!    ([`Link::ln_effective_flows`])
//! 5. ln (share of the time in which the link had nothing to send + 0.002) + 4
//! 6. ln (the law's actions per R + 0.05) + 1
//! 7. ln (trough / R + 0.01) + 3, the trough being a running mean of the backlog's least drain time
//!    between two decisions
//! 8. ln (peak / R + 0.01) + 2, the peak being a running mean of its greatest drain time
//! 9. ln (packets of bandwidth-delay product per flow / 20), at least 0, at most 5
//!
//! The target is also multiplied by a factor that follows the dry share: the share of the time that
//! is within a round trip after the link was idle. A lower target makes more round trips dry. Where
//! few are, a higher target would gain little goodput; where many are, it would gain much. While
//! the share is below the value that the model's row `dry` gives for the link, with the features
//! 1, 2, 4 and 9, the factor falls; above it, the factor rises, within bounds. This is integral
//! control.

use super::fixed::{self, ONE, Q, approach, ln, scaled_time as scaled, share};
use super::law::{Law, Settings};
use super::link::Link;
use super::model::{FEATURES, Model, Row};
use crate::MTU;
use crate::num;
use crate::time::{Duration, Instant, MS, SEC};

const LN_30_MS: i64 = ln(30 * MS.as_nanos());
const LN_1_MS: i64 = ln(MS.as_nanos());
const LN_SEC: i64 = ln(SEC.as_nanos());
const LN_20: i64 = ln(20);
/// Fractional bits of ratios to the round trip.
const FINE: u32 = 24;

/// The policy's state between its decisions.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Time of the next decision.
    pub due: Instant,
    /// Time of the last decision; 0 before the first.
    last: Instant,
    /// Running means: the law's actions per round trip ([`FINE`] fractional bits), trough and peak
    /// (nanoseconds).
    actions: i64,
    trough: i64,
    peak: i64,
    /// The dry share, a running mean with 30 fractional bits.
    dry: i64,
    /// ln of the factor of the target, with [`BIAS`] fractional bits.
    bias: i64,
}

/// Fractional bits of [`Policy::bias`].
const BIAS: u32 = 2 * Q;

impl Default for Policy {
    /// A policy before its first decision.
    fn default() -> Self {
        Self {
            due: Instant::ZERO,
            last: Instant::ZERO,
            actions: 0,
            trough: 0,
            peak: 0,
            dry: 0,
            bias: 0,
        }
    }
}

impl Policy {
    /// Computes the settings from the law's actions and the link's gauges, and sets the time of the
    /// next decision.
    #[cold]
    pub fn decide(&mut self, now: Instant, model: &Model, link: &Link, law: &mut Law) -> Settings {
        let round_trip = link.round_trip();
        let before = std::mem::replace(&mut self.last, now);
        let span = match before {
            Instant::ZERO => Duration::ZERO,
            before => now.saturating_since(before),
        };
        self.remember(span, round_trip, link, law);
        self.due = now + (round_trip / 4).clamp(2 * MS, 100 * MS);
        let features = self.features(link);
        self.follow(span, model, link, &features);
        settings(model, &features, link, self.bias >> (BIAS - Q))
    }

    /// Lets the target's factor follow the dry share: per round trip (at least 20 ms), its ln falls
    /// by at most `gain` and rises by at most twice that.
    fn follow(&mut self, span: Duration, model: &Model, link: &Link, x: &[i64; FEATURES]) {
        let weighed = (model.dry.iter().zip([x[0], x[1], x[3], x[8]]))
            .map(|(w, x)| i64::from(*w) * x)
            .sum::<i64>();
        let set = num::low_i64(fixed::power(weighed >> Q, 30).clamp(1, 1 << 30).into());
        if span.is_zero() {
            // Nothing is known, and the first round trips of flows are dry whatever the target is.
            self.dry = set;
        }
        let dry = i64::from(link.dry(self.last)) << 30;
        let memory = (20 * link.round_trip()).max(SEC);
        approach(&mut self.dry, dry, share(span, memory));
        let ratio = ((self.dry << Q) / set).min(3 << Q);
        let trips = (u128::from(span.as_nanos()) << Q)
            / u128::from(link.round_trip().max(20 * MS).as_nanos());
        let trips = trips.min(1 << Q) as i64;
        let step = (i64::from(model.gain) * trips) >> Q;
        let bias = self.bias + step * (ratio - ONE);
        let bound = |ln: i32| i64::from(ln) << (BIAS - Q);
        self.bias = bias.clamp(bound(model.falls), bound(model.rises));
    }

    /// Updates the running means; `span` is the time since the last decision, 0 at the first.
    fn remember(&mut self, span: Duration, round_trip: Duration, link: &Link, law: &mut Law) {
        if !span.is_zero() {
            let per_trip = (u128::from(law.actions) * u128::from(round_trip.as_nanos())) << FINE;
            // A span counts as at least a thousandth of a round trip.
            let per_trip =
                num::low_u64(per_trip / u128::from(span.max(round_trip / 1000).as_nanos()))
                    .cast_signed();
            approach(&mut self.actions, per_trip, share(span, 10 * round_trip));
            if law.peak > 0 {
                let a = share(span, 4 * round_trip);
                approach(
                    &mut self.trough,
                    link.drain(law.trough).as_nanos().cast_signed(),
                    a,
                );
                approach(
                    &mut self.peak,
                    link.drain(law.peak).as_nanos().cast_signed(),
                    a,
                );
            }
        }
        (law.actions, law.trough, law.peak) = (0, u64::MAX, 0);
    }

    fn features(&self, link: &Link) -> [i64; FEATURES] {
        let round_trip = ln(link.round_trip().as_nanos());
        let packet = ln(link.drain(u64::from(MTU)).as_nanos());
        let flows = link.ln_effective_flows();
        // ln of `x`, which has `bits` fractional bits, plus `plus`.
        let fraction = |x: i64, bits: u32, plus: f64| {
            let plus = num::whole_i64(plus * (1u64 << bits) as f64);
            ln(((x + plus).max(1)).cast_unsigned()) - i64::from(bits) * fixed::LN2_Q
        };
        let trips = |ns: i64| {
            num::low_i64((i128::from(ns) << FINE) / i128::from(link.round_trip().as_nanos()))
        };
        [
            ONE,
            round_trip - LN_30_MS,
            packet - LN_1_MS,
            flows,
            fraction(link.idle(), 30, 0.002) + 4 * ONE,
            fraction(self.actions, FINE, 0.05) + ONE,
            fraction(trips(self.trough), FINE, 0.01) + 3 * ONE,
            fraction(trips(self.peak), FINE, 0.01) + 2 * ONE,
            (round_trip - packet - flows - LN_20).clamp(0, 5 * ONE),
        ]
    }
}

fn settings(model: &Model, x: &[i64; FEATURES], link: &Link, bias: i64) -> Settings {
    let of = |row: &Row| {
        let products = row.iter().zip(x).map(|(w, x)| i64::from(*w) * x);
        products.sum::<i64>() >> Q
    };
    let time = |time: Duration| time.clamp(SEC / 100_000, 5 * SEC);
    let (trip, packet) = (link.round_trip(), link.drain(u64::from(MTU)));
    let trips = |row: &Row, least: i64| time(scaled(trip, of(row).clamp(least * ONE, 3 * ONE)));
    let longest = (i128::from(model.longest) * i128::from(SEC.as_nanos())) >> Q;
    let longest = Duration::from_nanos(num::low_u64(longest.cast_unsigned()));
    let exp = |x: i64| Duration::from_nanos(fixed::exp(x));
    let target = time(
        exp(of(&model.target) + LN_SEC + bias)
            .min(longest)
            .max(packet / 2),
    );
    let above = of(&model.cap);
    let base = target + 2 * packet;
    Settings {
        target,
        wait: trips(&model.wait, -6),
        hold: trips(&model.hold, -4),
        cap: match above > 4 * ONE {
            true => Duration::MAX,
            false => time(base + scaled(base, above.max(-3 * ONE))),
        },
        step: time(exp(of(&model.step) + LN_SEC).max(packet)),
        power: model.power.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_what_floating_point_gives() {
        // 10 Mbit/s, the prior of 50 ms, one flow, never idle: by the formulas of the header.
        let mut link = Link::default();
        link.set_rate(1_250_000);
        let model = Model::shipped();
        let s =
            Policy::default().decide(Instant::from_millis(1), &model, &link, &mut Law::default());
        let w = |row: &Row, i: usize| f64::from(row[i]) / ONE as f64;
        let (trip, packet) = (0.05f64, 1514.0 / 1.25e6);
        let x = [
            1.0,
            (trip / 0.03f64).ln(),
            (packet / 1e-3f64).ln(),
            0.0,
            (link.idle() as f64 / (1 << 30) as f64 + 0.002).ln() + 4.0,
            0.05f64.ln() + 1.0,
            0.01f64.ln() + 3.0,
            0.01f64.ln() + 2.0,
            (trip / packet / 20.0).ln().clamp(0.0, 5.0),
        ];
        let of = |row: &Row| {
            x.iter()
                .enumerate()
                .map(|(i, x)| w(row, i) * x)
                .sum::<f64>()
        };
        let target = of(&model.target)
            .exp()
            .min(f64::from(model.longest) / ONE as f64);
        let cap = (target + 2.0 * packet) * (1.0 + of(&model.cap).clamp(-3.0, 4.0).exp());
        let near = |ns: Duration, s: f64, what| {
            let ratio = ns.as_nanos() as f64 / (s * 1e9);
            assert!((ratio - 1.0).abs() < 2e-3, "{what}: {ns:?} ns, {s} s");
        };
        near(s.target, target.max(packet / 2.0), "target");
        near(
            s.wait,
            trip * of(&model.wait).clamp(-6.0, 3.0).exp(),
            "wait",
        );
        near(
            s.hold,
            trip * of(&model.hold).clamp(-4.0, 3.0).exp(),
            "hold",
        );
        near(s.cap, cap, "cap");
        near(s.step, of(&model.step).exp().max(packet), "step");
    }
}
