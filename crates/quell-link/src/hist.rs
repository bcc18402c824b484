//! A log-linear histogram: 128 sub-buckets in every octave, so that a bucket is less than 0.8 %
//! wide.
//!
//! It records several values per packet, so recording is cheap: an index by counting leading zeros,
//! one addition, no search. Values are integers, mostly nanoseconds. Values below 1,024 have
//! buckets of width 8, so small counts (packets) are shifted left when recorded and scaled back in
//! [`Hist::summary`].

use quell_qdisc::num;

use crate::record::Summary;

const SUB_BITS: u32 = 7;
const SUBS: usize = 1 << SUB_BITS;
/// The first octave begins here: 1.024 us.
const FIRST_BITS: u32 = 10;
/// Octaves allocated with the first value: up to 2^33 (8.6 s). Larger values are rare and extend
/// the array.
const OCTAVES: usize = 24;

/// Counts (or weights) of values, with exact sum and maximum. A clone copies only the octaves in
/// use.
#[derive(Clone, Debug)]
pub struct Hist {
    counts: Vec<u64>,
    sum: u128,
    max: u64,
}

impl Default for Hist {
    fn default() -> Self {
        Self::new()
    }
}

/// The bucket of a value.
#[inline]
fn index(value: u64) -> usize {
    let octave = 63 - FIRST_BITS - (value | 1 << FIRST_BITS).leading_zeros();
    ((octave as usize) << SUB_BITS) + num::index(value >> (octave + FIRST_BITS - SUB_BITS))
}

/// The least value of a bucket and the bucket's width.
fn bucket(index: usize) -> (u64, u64) {
    let octave = (index >> SUB_BITS).saturating_sub(1);
    let shift = num::count(octave) + FIRST_BITS - SUB_BITS;
    let position = index as u64 - ((octave as u64) << SUB_BITS);
    (position << shift, 1 << shift)
}

impl Hist {
    /// An empty histogram, which allocates nothing.
    pub fn new() -> Self {
        Self {
            counts: Vec::new(),
            sum: 0,
            max: 0,
        }
    }

    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        let i = index(value);
        match self.counts.get_mut(i) {
            Some(count) => *count += 1,
            None => self.grow(i, 1),
        }
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Counts a value `weight` times (for time-weighted means: the nanoseconds that it lasted).
    #[inline]
    pub fn record_weighted(&mut self, value: u64, weight: u64) {
        let i = index(value);
        match self.counts.get_mut(i) {
            Some(count) => *count += weight,
            None => self.grow(i, weight),
        }
        self.sum += u128::from(value) * u128::from(weight);
        if value > self.max && weight > 0 {
            self.max = value;
        }
    }

    #[cold]
    fn grow(&mut self, index: usize, weight: u64) {
        self.counts
            .reserve_exact((OCTAVES * SUBS).saturating_sub(self.counts.len()));
        self.counts.resize((index / SUBS + 1) * SUBS, 0);
        self.counts[index] = weight;
    }

    /// Removes all values, keeps the memory.
    pub fn clear(&mut self) {
        self.counts.clear();
        (self.sum, self.max) = (0, 0);
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Hist) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Number of values (sum of the weights).
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The largest value, exact; 0 if empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean, exact; 0 if empty.
    pub fn mean(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum as f64 / count as f64,
        }
    }

    /// The mean of the values up to the quantile `q`, to within half a bucket; 0 if empty.
    pub fn trimmed_mean(&self, q: f64) -> f64 {
        let keep = num::whole_u64(libm::ceil(q * self.count() as f64));
        let (mut left, mut sum) = (keep, 0.0);
        for (i, count) in self.counts.iter().enumerate() {
            let (low, width) = bucket(i);
            let taken = left.min(*count);
            sum += taken as f64 * (low as f64 + width as f64 / 2.0);
            left -= taken;
        }
        sum / keep.max(1) as f64
    }

    /// The value that a share `q` (0..1) of the values does not exceed, to within half a bucket; 0
    /// if empty.
    pub fn quantile(&self, q: f64) -> f64 {
        let total = self.count();
        let rank = num::whole_u64(libm::ceil(q * total as f64)).clamp(1, total.max(1));
        let mut seen = 0;
        for (i, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                // The first bucket mostly holds the exact zeros of an empty queue.
                let (low, width) = if i == 0 { (0, 0) } else { bucket(i) };
                return (low as f64 + width as f64 / 2.0).min(self.max as f64);
            }
        }
        self.max as f64
    }

    /// Counts the values between successive bounds, upper bound included. `bounds` ascends; values
    /// above all bounds go into the last count. A bucket that contains a bound is counted by its
    /// least value.
    pub fn count_between(&self, bounds: &[u64], counts: &mut [u64]) {
        counts.fill(0);
        let mut k = 0;
        for (i, count) in self.counts.iter().enumerate().filter(|(_, c)| **c > 0) {
            while k < bounds.len() && bucket(i).0 > bounds[k] {
                k += 1;
            }
            if let Some(to) = counts.get_mut(k) {
                *to += count;
            }
        }
    }

    /// Mean, percentiles and maximum, each times `scale` (1e-6 turns nanoseconds into
    /// milliseconds).
    pub fn summary(&self, scale: f64) -> Summary {
        Summary {
            mean: self.mean() * scale,
            p50: self.quantile(0.5) * scale,
            p95: self.quantile(0.95) * scale,
            p99: self.quantile(0.99) * scale,
            max: self.max as f64 * scale,
        }
    }

    /// The cumulative distribution: (value times `scale`, share of values at or below it),
    /// ascending, at most `max_points` (at least 2) of them, ending in (maximum, 1). The points are
    /// thinned evenly both along the shares and along the values, so that the tail keeps its shape.
    pub fn cdf(&self, max_points: usize, scale: f64) -> Vec<(f64, f64)> {
        let filled = self.counts.iter().filter(|c| **c > 0).count();
        let total = self.count();
        let max_points = max_points.max(2);
        let half = (max_points - 1) as f64 / 2.0;
        // Each rule alone emits at most half of the points; both steps are 0 if all points fit.
        let (share_step, bucket_step) = if filled <= max_points {
            (0.0, 0.0)
        } else {
            (1.0 / half, filled as f64 / half)
        };
        let mut points = Vec::with_capacity(filled.min(max_points));
        let (mut seen, mut share_out, mut since) = (0, 0.0, 0.0);
        for (i, count) in self.counts.iter().enumerate().filter(|(_, c)| **c > 0) {
            seen += count;
            since += 1.0;
            let share = seen as f64 / total as f64;
            if seen == total || share - share_out >= share_step || since >= bucket_step {
                let (low, width) = bucket(i);
                let upper = if i == 0 { 0 } else { low + (width - 1) };
                let value = if seen == total { self.max } else { upper };
                points.push((value as f64 * scale, share));
                (share_out, since) = (share, 0.0);
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::Rng;

    #[test]
    fn values_are_counted_between_bounds() {
        let mut hist = Hist::new();
        for value in [0, 500_000, 2_000_000, 2_100_000, 900_000_000] {
            hist.record(value);
        }
        let mut counts = [7; 4];
        hist.count_between(&[1_000_000, 5_000_000, 10_000_000], &mut counts);
        assert_eq!(counts, [2, 2, 0, 1]);
        hist.clear();
        hist.count_between(&[1_000_000, 5_000_000, 10_000_000], &mut counts);
        assert_eq!(counts, [0; 4]);
    }

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_are_narrow() {
        let mut values: Vec<u64> = (0..5000).collect();
        for shift in 0..64 {
            values.extend([
                1 << shift,
                (1 << shift) - 1,
                (1 << shift) + 1,
                3 << shift >> 1,
            ]);
        }
        values.push(u64::MAX);
        for v in values {
            let (low, width) = bucket(index(v));
            assert!(low <= v && v - low < width, "{v}: {low} + {width}");
            assert!(v < 1024 || width as f64 / low as f64 <= 1.0 / 128.0, "{v}");
        }
    }

    #[test]
    fn quantiles_are_within_eight_thousandths_and_the_mean_is_exact() {
        let mut hist = Hist::new();
        let mut rng = Rng::new(1, "hist");
        let mut all: Vec<u64> = (0..100_001).map(|_| rng.exp(5e6) as u64 + 2000).collect();
        all.iter().for_each(|v| hist.record(*v));
        all.sort_unstable();
        let s = hist.summary(1.0);
        for (q, got) in [(0.5, s.p50), (0.95, s.p95), (0.99, s.p99)] {
            let exact = all[(q * 100_000.0) as usize] as f64;
            assert!((got / exact - 1.0).abs() < 0.008, "{q}: {got} {exact}");
        }
        let mean = all.iter().map(|v| *v as f64).sum::<f64>() / 100_001.0;
        assert!((s.mean / mean - 1.0).abs() < 1e-12);
        assert_eq!(s.max, *all.last().unwrap() as f64);
    }

    #[test]
    fn a_trimmed_mean_leaves_the_largest_values_out() {
        let mut hist = Hist::new();
        assert_eq!(hist.trimmed_mean(0.95), 0.0);
        (0..95).for_each(|_| hist.record(10_000_000));
        (0..5).for_each(|_| hist.record(900_000_000));
        assert!((hist.trimmed_mean(0.95) / 1e7 - 1.0).abs() < 0.008);
        assert!((hist.trimmed_mean(1.0) / 54.5e6 - 1.0).abs() < 0.008);
    }

    #[test]
    fn weights_count_as_time() {
        let mut hist = Hist::new();
        hist.record_weighted(10 << 10, 990);
        hist.record_weighted(100 << 10, 10);
        let s = hist.summary(1.0 / 1024.0);
        assert_eq!(s.mean, 10.9); // (990·10 + 10·100) / 1000
        assert!((s.p99 - 10.0).abs() < 0.08);
        assert_eq!(s.max, 100.0);
    }

    #[test]
    fn an_empty_histogram_sums_up_to_nothing() {
        assert_eq!(Hist::new().summary(1.0), Summary::default());
        assert!(Hist::new().cdf(200, 1.0).is_empty());
    }

    #[test]
    fn an_idle_queue_has_a_sojourn_of_zero() {
        let mut hist = Hist::new();
        hist.record(0);
        hist.record(5_000_000);
        assert_eq!(hist.quantile(0.5), 0.0);
    }

    #[test]
    fn merging_is_counting_together() {
        let (mut a, mut b, mut both) = (Hist::new(), Hist::new(), Hist::new());
        for v in 0..10_000u64 {
            if v % 3 == 0 {
                a.record(v * v)
            } else {
                b.record(v * v)
            }
            both.record(v * v);
        }
        a.merge(&b);
        assert_eq!(a.summary(1.0), both.summary(1.0));
        assert_eq!(a.counts, both.counts);
    }

    #[test]
    fn the_distribution_rises_to_one_within_the_number_of_points() {
        let mut hist = Hist::new();
        let mut rng = Rng::new(2, "cdf");
        (0..200_000).for_each(|_| hist.record(rng.exp(2e7) as u64));
        for max in [2, 3, 10, 200, 100_000] {
            let cdf = hist.cdf(max, 1e-6);
            assert!(cdf.len() <= max.max(2), "{max}: {}", cdf.len());
            assert!(
                cdf.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1),
                "{max}"
            );
            assert_eq!(*cdf.last().unwrap(), (hist.max() as f64 * 1e-6, 1.0));
        }
        // A share 1 - 1/e of an exponential distribution lies below its mean, 20 ms.
        let cdf = hist.cdf(200, 1e-6);
        let at = cdf.iter().find(|(v, _)| *v >= 20.0).unwrap();
        assert!((at.1 - 0.632).abs() < 0.02, "{at:?}");
    }
}
