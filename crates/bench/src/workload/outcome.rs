//! What one side says of its workloads: lines of JSON from the program that ran them to the one that compares.
//!
//! May use: `serde`. Must not know: how it was measured, how it is shown.

use serde::{Deserialize, Serialize};

use super::live::Sums;
use super::recorder::Latency;
use super::usage::Usage;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub(crate) enum Said {
    /// A part of a workload.
    Interval(Outcome),
    /// A whole workload.
    Outcome(Outcome),
    /// A workload that the store cannot do.
    Skipped { workload: String, reason: String },
}

/// A workload or a part of it, done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Name of the workload.
    pub(crate) workload: String,
    /// Seconds from the workload's start to the start of this part.
    pub(crate) from_seconds: f64,
    /// How long it took.
    pub(crate) seconds: f64,
    /// How long callers were at work in it: less when something went on after them.
    pub(crate) loaded_seconds: f64,
    /// Each kind of operation that was part of it.
    pub(crate) kinds: Vec<KindOutcome>,
    /// Operations of an open loop that should have begun and did not.
    pub(crate) not_begun: u64,
    /// What it used of the machine.
    pub(crate) used: Used,
}

/// One kind of operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KindOutcome {
    /// Name of the kind.
    pub(crate) kind: String,
    /// How many were done.
    pub(crate) operations: u64,
    /// How many of them found what they looked for.
    pub(crate) found: u64,
    /// What they showed: objects of a fold, entries of a range; bytes that a compaction reclaimed.
    pub(crate) items: u64,
    /// How long each took, as its caller saw it.
    pub(crate) latency: Latency,
}

/// What was used. `None` where nobody may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Used {
    /// Bytes read from the device.
    pub(crate) read_bytes: Option<u64>,
    /// Bytes written to the device.
    pub(crate) written_bytes: Option<u64>,
    /// Value bytes that were put.
    pub(crate) put_bytes: u64,
    /// Resident memory at the end.
    pub(crate) rss_bytes: Option<u64>,
    /// Disk space at the end.
    pub(crate) disk_bytes: Option<u64>,
    /// Objects that are there at the end.
    pub(crate) live_objects: u64,
    /// Value bytes of them.
    pub(crate) live_bytes: u64,
}

impl Used {
    /// What was used from one look to another.
    pub(crate) fn between(before: (Usage, Sums), after: (Usage, Sums)) -> Self {
        let grown = |of: fn(&Usage) -> Option<u64>| Some(of(&after.0)?.saturating_sub(of(&before.0)?));
        Self {
            read_bytes: grown(|usage| usage.read_bytes),
            written_bytes: grown(|usage| usage.written_bytes),
            put_bytes: after.1.put_bytes.saturating_sub(before.1.put_bytes),
            rss_bytes: after.0.rss_bytes,
            disk_bytes: after.0.disk_bytes,
            live_objects: after.1.objects,
            live_bytes: after.1.bytes,
        }
    }

    /// Bytes written to the device for each value byte that was put; `None` when nothing was put.
    pub(crate) fn write_amplification(&self) -> Option<f64> {
        ratio(self.written_bytes?, self.put_bytes)
    }

    /// Bytes on disk for each value byte that is there; `None` when nothing is there.
    pub(crate) fn space_amplification(&self) -> Option<f64> {
        ratio(self.disk_bytes?, self.live_bytes)
    }
}

fn ratio(of: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| of as f64 / by as f64)
}

impl Outcome {
    /// Operations of all kinds in a second of load.
    pub(crate) fn rate(&self) -> f64 {
        self.kinds.iter().map(|kind| self.kind_rate(kind)).sum()
    }

    /// Operations of one kind in a second of load.
    pub(crate) fn kind_rate(&self, kind: &KindOutcome) -> f64 {
        kind.operations as f64 / self.loaded_seconds.max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_the_same_after_its_journey_and_its_rate_counts_all_kinds() {
        let latency = Latency { p50_ns: 1, p95_ns: 2, p99_ns: 3, p999_ns: 4, max_ns: 5 };
        let kind = |kind: &str, operations| KindOutcome { kind: kind.into(), operations, found: 7, items: 0, latency };
        let used = Used { written_bytes: Some(3), ..Used::default() };
        let kinds = vec![kind("get", 50), kind("put", 10)];
        let outcome = Outcome {
            workload: "mix5".into(),
            from_seconds: 1.5,
            seconds: 7.0,
            loaded_seconds: 0.5,
            kinds,
            not_begun: 9,
            used,
        };
        assert!((outcome.rate() - 120.0).abs() < 1e-9);
        let skipped = Said::Skipped { workload: "x".into(), reason: "y".into() };
        for said in [Said::Interval(outcome.clone()), Said::Outcome(outcome), skipped] {
            let line = serde_json::to_string(&said).unwrap();
            assert_eq!(serde_json::from_str::<Said>(&line).unwrap(), said);
        }
    }

    #[test]
    fn amplification_is_bytes_at_the_device_by_bytes_of_values() {
        let usage = |written, disk| Usage {
            read_bytes: Some(7),
            written_bytes: Some(written),
            rss_bytes: Some(99),
            disk_bytes: Some(disk),
        };
        let sums = |bytes, put_bytes| Sums { objects: 3, bytes, put_bytes };
        let used = Used::between((usage(1_000, 900), sums(500, 600)), (usage(7_000, 4_500), sums(1_500, 3_600)));
        assert_eq!((used.written_bytes, used.read_bytes, used.put_bytes), (Some(6_000), Some(0), 3_000));
        assert_eq!((used.write_amplification(), used.space_amplification()), (Some(2.0), Some(3.0)));
        assert_eq!((used.live_objects, used.rss_bytes), (3, Some(99)));
    }

    #[test]
    fn amplification_of_nothing_and_of_what_nobody_may_see_is_not_known() {
        let nothing = Used { written_bytes: Some(5), disk_bytes: Some(5), ..Used::default() };
        assert_eq!((nothing.write_amplification(), nothing.space_amplification()), (None, None));
        let hidden = Used { put_bytes: 5, live_bytes: 5, ..Used::default() };
        assert_eq!((hidden.write_amplification(), hidden.space_amplification()), (None, None));
    }
}
