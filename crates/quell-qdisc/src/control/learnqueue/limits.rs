//! The limits that are LearnQueue's states.

use crate::num;

/// Limits from 1 to the largest, ascending. Row k of a table belongs to the k-th limit.
#[derive(Clone, Debug, PartialEq)]
pub enum Limits {
    /// Every limit from 1 to this.
    Every(u32),
    /// The listed limits.
    Listed(Vec<u32>),
}

impl Limits {
    /// From 1 to `max`, each `step` times the one before, rounded, and at least one packet more.
    pub fn new(step: f64, max: u32) -> Self {
        if step <= 1.0 {
            return Limits::Every(max);
        }
        let mut listed = vec![1];
        let mut limit = 1;
        while limit < max {
            limit = num::whole_u32(libm::round(f64::from(limit) * step)).clamp(limit + 1, max);
            listed.push(limit);
        }
        Limits::Listed(listed)
    }

    /// Number of limits.
    #[allow(clippy::len_without_is_empty)] // There is always one.
    pub fn len(&self) -> usize {
        match self {
            Limits::Every(max) => *max as usize,
            Limits::Listed(listed) => listed.len(),
        }
    }

    /// The limit of a row.
    pub fn at(&self, row: usize) -> u32 {
        match self {
            Limits::Every(_) => num::count(row) + 1,
            Limits::Listed(listed) => listed[row],
        }
    }

    /// The row of the largest limit that is at most `limit`, which is at least 1.
    pub fn row(&self, limit: u32) -> usize {
        match self {
            Limits::Every(max) => limit.min(*max) as usize - 1,
            Limits::Listed(listed) => listed.partition_point(|at| *at <= limit) - 1,
        }
    }

    /// All limits.
    pub fn to_vec(&self) -> Vec<u32> {
        (0..self.len()).map(|row| self.at(row)).collect()
    }

    /// Bytes that the list takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Limits::Every(_) => 0,
            Limits::Listed(listed) => size_of_val(listed.as_slice()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_one_takes_every_limit() {
        assert_eq!(Limits::new(1.0, 5).to_vec(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn limits_grow_by_the_factor_and_by_a_packet_at_least_and_end_at_the_largest() {
        let limits = Limits::new(1.14, 400);
        assert_eq!(limits.len(), 39);
        assert_eq!((limits.at(0), limits.at(38)), (1, 400));
        let factors: Vec<_> = limits
            .to_vec()
            .windows(2)
            .map(|l| f64::from(l[1]) / f64::from(l[0]))
            .collect();
        assert!(
            factors[..10]
                .iter()
                .zip(1..)
                .all(|(f, n)| *f == f64::from(n + 1) / f64::from(n))
        );
        assert!(
            factors[10..37].iter().all(|f| (1.11..1.19).contains(f)),
            "{factors:?}"
        );
        assert_eq!(Limits::new(2.0, 2).to_vec(), [1, 2]);
    }

    #[test]
    fn a_limit_between_two_belongs_to_the_smaller() {
        let limits = Limits::Listed(vec![1, 4, 9]);
        let rows: Vec<_> = [1, 3, 4, 8, 9, 200].map(|l| limits.row(l)).into();
        assert_eq!(rows, [0, 0, 1, 1, 2, 2]);
        assert_eq!(Limits::Every(9).row(200), 8);
    }
}
