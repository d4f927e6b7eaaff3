//! A histogram that many threads add to without a lock: for live numbers, not for benchmarks.
//!
//! Four buckets to each power of two, so that a quantile is at most 25 % above the true value.
//!
//! May use: atomics. Must not know: what is counted.

use std::sync::atomic::{AtomicU64, Ordering};

const SUB: u32 = 2;
const BUCKETS: usize = 64 << SUB;

/// Counts of values by size.
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// What a [`Histogram`] says at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quantiles {
    /// How many values.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// Half of the values are at or below.
    pub p50: u64,
    /// 99 % of the values are at or below.
    pub p99: u64,
    /// All values are at or below.
    pub max: u64,
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) }
    }

    /// Adds one value.
    pub fn add(&self, value: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(value)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// The quantiles now. Values added meanwhile may or may not count.
    #[must_use]
    pub fn quantiles(&self) -> Quantiles {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let at = |part: u64, of: u64| {
            let rank = (count * part).div_ceil(of).max(1);
            let mut seen = 0;
            let found = counts.iter().position(|n| {
                seen += n;
                seen >= rank
            });
            found.map_or(0, upper_bound)
        };
        Quantiles { count, sum: self.sum.load(Ordering::Relaxed), p50: at(1, 2), p99: at(99, 100), max: at(1, 1) }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.quantiles().fmt(f)
    }
}

fn bucket_of(value: u64) -> usize {
    if value < 1 << SUB {
        return usize::try_from(value).unwrap_or(0);
    }
    let power = 63 - value.leading_zeros();
    let sub = (value >> (power - SUB)) & ((1 << SUB) - 1);
    usize::try_from(u64::from(power - SUB + 1) << SUB | sub).unwrap_or(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 1 << SUB {
        return bucket;
    }
    let shift = u32::try_from((bucket >> SUB) - 1).unwrap_or(0);
    let low = u128::from((1 << SUB) | (bucket & ((1 << SUB) - 1)));
    u64::try_from(((low + 1) << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_that_is_at_most_a_quarter_above_it() {
        for shift in 0..64 {
            for add in [0u64, 1, 3] {
                let value = (1u64 << shift).saturating_add(add << shift.max(2) >> 2);
                let bound = upper_bound(bucket_of(value));
                assert!(bound >= value, "{value} {bound}");
                assert!(bound - value <= value / 4, "{value} {bound}");
            }
        }
        assert_eq!(upper_bound(bucket_of(u64::MAX)), u64::MAX);
    }

    #[test]
    fn quantiles_of_a_hundred_numbers() {
        let histogram = Histogram::new();
        (1..=100).for_each(|n| histogram.add(n));
        let q = histogram.quantiles();
        assert_eq!((q.count, q.sum), (100, 5050));
        assert!((50..=63).contains(&q.p50) && (99..=127).contains(&q.p99) && (100..=127).contains(&q.max), "{q:?}");
    }
}
