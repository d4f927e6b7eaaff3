//! How long operations took, by kind.
//!
//! May use: `hdrhistogram`. Must not know: who measured.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::ask::Read;
use crate::workload::{Failure, Result};

/// The quantiles that are reported, in the order of reports.
pub(crate) const QUANTILES: [(&str, f64); 5] =
    [("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// Until the answer, or until the system accepted the bytes where there is none.
    Write,
    /// From the same beginning until a checkpoint was answered.
    Durable,
    /// Until the answer.
    Read(Read),
}

/// Latencies of each kind that occurred, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Times(BTreeMap<Operation, Histogram<u64>>);

impl Operation {
    /// What reports call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Durable => "write until checkpoint",
            Self::Read(read) => read.name(),
        }
    }
}

impl Times {
    fn of(&mut self, operation: Operation) -> Result<&mut Histogram<u64>> {
        match self.0.entry(operation) {
            std::collections::btree_map::Entry::Occupied(known) => Ok(known.into_mut()),
            std::collections::btree_map::Entry::Vacant(new) => {
                let times = Histogram::new(3).map_err(|error| Failure::from(error.to_string()))?;
                Ok(new.insert(times))
            }
        }
    }

    /// Adds one.
    pub(crate) fn add(&mut self, operation: Operation, took: Duration) -> Result<()> {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.of(operation)?.record(nanos).map_err(|error| Failure::from(error.to_string()))
    }

    /// Adds all of another's.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<()> {
        for (operation, times) in &other.0 {
            self.of(*operation)?.add(times).map_err(|error| Failure::from(error.to_string()))?;
        }
        Ok(())
    }

    /// Each kind with its latencies.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Operation, &Histogram<u64>)> {
        self.0.iter().map(|(operation, times)| (*operation, times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_two_clients_are_those_of_one() {
        let (mut all, mut one) = (Times::default(), Times::default());
        for nanos in 1..=1_000 {
            let operation = if nanos % 10 == 0 { Operation::Read(Read::Sum) } else { Operation::Write };
            one.add(operation, Duration::from_micros(nanos)).unwrap();
            let mut other = Times::default();
            other.add(operation, Duration::from_micros(nanos)).unwrap();
            all.merge(&other).unwrap();
        }
        let seen = |times: &Times| {
            times
                .each()
                .map(|(operation, times)| (operation, times.len(), times.value_at_quantile(0.5), times.max()))
                .collect::<Vec<_>>()
        };
        assert_eq!(seen(&all), seen(&one));
        assert_eq!(seen(&one).iter().map(|(_, count, ..)| *count).collect::<Vec<_>>(), [900, 100]);
    }
}
