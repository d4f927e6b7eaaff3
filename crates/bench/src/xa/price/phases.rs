//! How long the parts of a transaction took.
//!
//! May use: `hdrhistogram`. Must not know: transactions.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Longest part that is told apart from longer ones: a minute.
const LONGEST_NANOS: u64 = 60_000_000_000;

/// A part of a transaction, or all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Transaction,
    /// Beginning in both databases, and the statements.
    Statements,
    PreparePostgres,
    PrepareMariaDb,
    Decision,
    CommitPostgres,
    CommitMariaDb,
}

impl Phase {
    pub(super) const NAMES: [(Self, &'static str); 7] = [
        (Self::Transaction, "transaction"),
        (Self::Statements, "statements"),
        (Self::PreparePostgres, "prepare in PostgreSQL"),
        (Self::PrepareMariaDb, "prepare in MariaDB"),
        (Self::Decision, "decision"),
        (Self::CommitPostgres, "commit in PostgreSQL"),
        (Self::CommitMariaDb, "commit in MariaDB"),
    ];
}

/// Times of many transactions.
#[derive(Debug)]
pub(super) struct Phases([Histogram<u64>; 7]);

impl Default for Phases {
    fn default() -> Self {
        let empty = || Histogram::new_with_max(LONGEST_NANOS, 3).expect("three digits up to a minute fit");
        Self(std::array::from_fn(|_| empty()))
    }
}

impl Phases {
    pub(super) fn of(&self, phase: Phase) -> &Histogram<u64> {
        self.0.get(phase as usize).expect("there is a histogram of each")
    }

    pub(super) fn record(&mut self, phase: Phase, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.get_mut(phase as usize).expect("there is a histogram of each").saturating_record(nanos);
    }

    pub(super) fn since(&mut self, phase: Phase, began: Instant) {
        self.record(phase, began.elapsed());
    }

    /// Adds what another thread timed.
    pub(super) fn add(&mut self, other: &Self) {
        for (to, from) in self.0.iter_mut().zip(&other.0) {
            to.add(from).expect("both are of the same kind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_own_times_and_they_add_up() {
        let mut phases = Phases::default();
        for (number, (phase, _)) in Phase::NAMES.into_iter().enumerate() {
            phases.record(phase, Duration::from_millis(1 + number as u64));
        }
        let mut all = Phases::default();
        all.add(&phases);
        all.add(&phases);
        for (number, (phase, name)) in Phase::NAMES.into_iter().enumerate() {
            let (times, wanted) = (all.of(phase), (1 + number as u64) * 1_000_000);
            assert!(times.len() == 2 && times.max().abs_diff(wanted) <= wanted / 500, "{name}: {}", times.max());
        }
    }
}
