//! Work in the background that nobody waits for, and what is said when it fails: once, again when it fails otherwise or goes on
//! failing, and when it works again.
//!
//! May use: nothing. Must not know: what the work is.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, ErrorKind, Result};
use crate::store::{Inner, lock};

/// What goes on failing in the same way is told again after so long.
const TELL_AGAIN_MS: u64 = 600_000;
/// What fails otherwise than before is told after so long: partitions may take turns in failing.
const TELL_OTHER_MS: u64 = 10_000;

/// What is done in the background, and how often that failed since open.
#[derive(Debug)]
pub(crate) struct Job {
    /// What it does, and what is to be done when it cannot.
    failed: &'static str,
    works: &'static str,
    pub(crate) failures: AtomicU64,
    /// What was told last, and when; nothing while it works.
    told: Mutex<Option<(String, u64)>>,
}

/// The store's own jobs; those of time series are in `series/shelf.rs`.
#[derive(Debug)]
pub(crate) struct Jobs {
    pub(crate) journal: Job,
    pub(crate) ledgers: Job,
    pub(crate) expiry: Job,
    pub(crate) leases: Job,
    pub(crate) compaction: Job,
    pub(crate) snapshots: Job,
}

impl Default for Jobs {
    fn default() -> Self {
        let journal = Job::new(
            "journal: syncing or preparing segments failed; nothing is written any more until the store is opened again, which \
             recovers all that was acknowledged: see to the disk, then restart",
            "journal: segments are prepared again",
        );
        let ledgers = Job::new(
            "keys: a ledger cannot be written out; nothing is lost, the journal keeps it all, memory fills up until writers have to \
             wait, and it is tried again: make room on the disk, or see to it that the store's folder can be written to",
            "keys: ledgers are written out again",
        );
        let expiry = Job::new(
            "keys: what has expired cannot be removed; nobody is shown it, its room comes back later, and it is tried again",
            "keys: what has expired is removed again",
        );
        let leases = Job::new(
            "spaces: entries whose lease has ended cannot be removed; nobody finds them, their room comes back later, and it is tried again",
            "spaces: entries whose lease has ended are removed again",
        );
        let compaction = Job::new(
            "compaction: a segment of the journal cannot be compacted; nothing is lost, and its room does not come back until it can: \
             make room on the disk, or look for damage with `holdfast inspect --verify`",
            "compaction: segments are compacted again",
        );
        let snapshots = Job::new(
            "spaces: a snapshot cannot be written; nothing is lost, the journal grows and opening takes longer, and it is tried again: \
             make room on the disk, or see to it that the store's folder can be written to",
            "spaces: snapshots are written again",
        );
        Self { journal, ledgers, expiry, leases, compaction, snapshots }
    }
}

impl Job {
    pub(crate) fn sealing() -> Self {
        Self::new(
            "series: points in memory cannot be written to files; the journal keeps them, grows, and it is tried again each second: \
             make room on the disk, or see to it that the store's folder can be written to",
            "series: points in memory are written to files again",
        )
    }

    pub(crate) fn merging() -> Self {
        Self::new(
            "series: files of points cannot be merged; nothing is lost, queries become slower with each file more, and it is tried \
             again: make room on the disk, or look for damage with `holdfast inspect --verify`",
            "series: files of points are merged again",
        )
    }

    fn new(failed: &'static str, works: &'static str) -> Self {
        Self { failed, works, failures: AtomicU64::new(0), told: Mutex::default() }
    }

    /// What is to be told of an outcome.
    fn word(&self, outcome: Option<&Error>, now_ms: u64) -> Option<String> {
        let mut told = lock(&self.told);
        let Some(error) = outcome else { return told.take().map(|_| self.works.to_owned()) };
        self.failures.fetch_add(1, Ordering::Relaxed);
        let text = format!("{}: {error}", self.failed);
        let is_new = told.as_ref().is_none_or(|(last, at)| {
            now_ms.saturating_sub(*at) >= if *last == text { TELL_AGAIN_MS } else { TELL_OTHER_MS }
        });
        is_new.then(|| {
            *told = Some((text.clone(), now_ms));
            text
        })
    }
}

impl Inner {
    /// Tells whom it concerns what became of a job, if that is news; answers with it.
    pub(crate) fn told<T>(&self, job: &Job, outcome: Result<T>) -> Result<T> {
        let failed = outcome.as_ref().err();
        if failed.is_some_and(|error| error.kind() == ErrorKind::Closed) {
            return outcome;
        }
        if let (Some(word), Some(told)) = (job.word(failed, self.clock.wall_ms()), &self.options.trouble) {
            told(&word);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_and_again_when_it_is_another_or_lasts_and_its_end_is() {
        let job = Job::sealing();
        let full = Error::new(ErrorKind::Unavailable, "the disk is full");
        let other = Error::new(ErrorKind::Unavailable, "the folder is gone");
        assert_eq!(job.word(None, 0), None);
        let told = job.word(Some(&full), 1).unwrap();
        assert!(told.contains("the disk is full") && told.contains("make room"), "{told}");
        assert_eq!(job.word(Some(&full), 2), None);
        assert_eq!(job.word(Some(&other), 3), None);
        assert!(job.word(Some(&other), 1 + TELL_OTHER_MS).is_some());
        assert_eq!(job.word(Some(&other), 2 + TELL_OTHER_MS), None);
        assert!(job.word(Some(&other), 1 + TELL_OTHER_MS + TELL_AGAIN_MS).is_some());
        assert!(job.word(None, 5).unwrap().contains("again"));
        assert_eq!(job.word(None, 6), None);
        assert_eq!(job.failures.load(Ordering::Relaxed), 6);
    }
}
