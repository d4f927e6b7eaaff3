//! Latencies, recorded exactly enough: three significant digits up to an hour.
//!
//! May use: `hdrhistogram`. Must not know: what took so long.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{Failure, Result};

/// Longest latency that is told apart, in nanoseconds.
const NANOS_MAX: u64 = 3_600_000_000_000;

/// Latencies of one thread, or of many after [`Recorder::merge`].
#[derive(Debug)]
pub(crate) struct Recorder(Histogram<u64>);

/// What a [`Recorder`] says. Nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50_ns: u64,
    pub(crate) p95_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
}

impl Recorder {
    /// No latencies yet.
    pub(crate) fn new() -> Result<Self> {
        Histogram::new_with_bounds(1, NANOS_MAX, 3).map(Self).map_err(|error| Failure::from(error.to_string()))
    }

    /// Adds one, in nanoseconds.
    pub(crate) fn add(&mut self, nanos: u64) {
        self.0.saturating_record(nanos);
    }

    /// Adds all of `other`.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<()> {
        self.0.add(&other.0).map_err(|error| Failure::from(error.to_string()))
    }

    /// How many were added.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The quantiles; all zero when nothing was added.
    pub(crate) fn latency(&self) -> Latency {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Latency { p50_ns: at(0.5), p95_ns: at(0.95), p99_ns: at(0.99), p999_ns: at(0.999), max_ns: self.0.max() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_two_merged_threads() {
        let (mut a, mut b) = (Recorder::new().unwrap(), Recorder::new().unwrap());
        (1..=500).for_each(|n| a.add(n * 1_000));
        (501..=1_000).for_each(|n| b.add(n * 1_000));
        a.merge(&b).unwrap();
        let latency = a.latency();
        assert_eq!(a.count(), 1_000);
        for (got, want) in
            [(latency.p50_ns, 500), (latency.p95_ns, 950), (latency.p99_ns, 990), (latency.max_ns, 1_000)]
        {
            assert!(got.abs_diff(want * 1_000) <= want, "{got} {want}");
        }
    }

    #[test]
    fn nothing_recorded_is_zero_and_an_age_is_the_longest_there_is() {
        let mut recorder = Recorder::new().unwrap();
        assert_eq!(recorder.latency().max_ns, 0);
        recorder.add(u64::MAX);
        assert!(recorder.latency().p50_ns >= NANOS_MAX);
    }
}
