//! A distribution in five numbers.

use serde::{Deserialize, Serialize};

/// Mean, percentiles and maximum of a quantity; the unit is in the name of the field that holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Arithmetic (or time-weighted) mean, exact.
    pub mean: f64,
    /// Median, within 0.8 %.
    pub p50: f64,
    /// 95th percentile, within 0.8 %.
    pub p95: f64,
    /// 99th percentile, within 0.8 %.
    pub p99: f64,
    /// Maximum, exact.
    pub max: f64,
}
