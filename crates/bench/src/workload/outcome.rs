//! What one side says about one phase: a line of JSON from the program that ran it to the one that compares.
//!
//! May use: `serde`. Must not know: how it was measured, how it is shown.

use serde::{Deserialize, Serialize};

use super::recorder::Latency;

/// One phase, done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Name of the phase.
    pub(crate) phase: String,
    /// From the start of the first thread to the end of the last.
    pub(crate) seconds: f64,
    /// Each kind of operation that was part of it.
    pub(crate) kinds: Vec<KindOutcome>,
}

/// One kind of operation in a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KindOutcome {
    /// Name of the kind: `put`, `get`, `head`.
    pub(crate) kind: String,
    /// How many were done.
    pub(crate) operations: u64,
    /// How many of them found the key.
    pub(crate) found: u64,
    /// How long each took, as its caller saw it.
    pub(crate) latency: Latency,
}

impl Outcome {
    /// Operations of all kinds in a second.
    pub(crate) fn rate(&self) -> f64 {
        let operations: u64 = self.kinds.iter().map(|kind| kind.operations).sum();
        operations as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_the_same_after_its_journey_and_its_rate_counts_all_kinds() {
        let latency = Latency { p50_ns: 1, p95_ns: 2, p99_ns: 3, p999_ns: 4, max_ns: 5 };
        let kind = |kind: &str, operations| KindOutcome { kind: kind.into(), operations, found: 7, latency };
        let outcome = Outcome { phase: "mixed".into(), seconds: 0.5, kinds: vec![kind("get", 50), kind("put", 10)] };
        let line = serde_json::to_string(&outcome).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&line).unwrap(), outcome);
        assert!((outcome.rate() - 120.0).abs() < 1e-9);
    }
}
