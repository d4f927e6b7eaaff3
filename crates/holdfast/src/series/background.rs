//! The series' background work: sealing what is much or old, merging files, and what is said when that fails.
//!
//! May use: everything of this folder. Must not know: protocols.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::pace::Pace;
use super::seal::When;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Inner, lock};

/// How often it is looked whether something is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// What is in memory is sealed when so much of the journal lies behind it, at most.
const LAG_BYTES: u64 = 256 << 20;
/// What goes on failing in the same way is told again after so long.
const TELL_AGAIN_MS: u64 = 600_000;

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

impl Job {
    pub(crate) fn sealing() -> Self {
        Self::new(
            "points in memory cannot be written to files; the journal keeps them, grows, and it is tried again each second: \
             make room on the disk, or see to it that the store's folder can be written to",
            "points in memory are written to files again",
        )
    }

    pub(crate) fn merging() -> Self {
        Self::new(
            "files of points cannot be merged; nothing is lost, queries become slower with each file more, and it is tried again: \
             make room on the disk, or look for damage with `holdfast inspect --verify`",
            "files of points are merged again",
        )
    }

    fn new(failed: &'static str, works: &'static str) -> Self {
        Self { failed, works, failures: AtomicU64::new(0), told: Mutex::default() }
    }

    /// What is to be told of an outcome.
    fn word(&self, outcome: Option<&Error>, now_ms: u64) -> Option<String> {
        let mut told = lock(&self.told);
        let Some(error) = outcome else { return told.take().map(|_| format!("series: {}", self.works)) };
        self.failures.fetch_add(1, Ordering::Relaxed);
        let text = format!("series: {}: {error}", self.failed);
        let is_new =
            told.as_ref().is_none_or(|(last, at)| *last != text || now_ms.saturating_sub(*at) >= TELL_AGAIN_MS);
        is_new.then(|| {
            *told = Some((text.clone(), now_ms));
            text
        })
    }
}

impl Inner {
    /// Seals what is due; returns when to come back.
    pub(crate) fn step_series(&self) -> Duration {
        // A full disk is tried again; the journal keeps what is not sealed.
        let sealed = self.seal_due();
        self.tell(&self.shelf.sealer, &sealed);
        self.look_for_room();
        LOOK_INTERVAL
    }

    /// Merges what is due, and removes what is too old; returns when to come back.
    pub(crate) fn step_merge(&self) -> Duration {
        let mut pace = Pace::of(self);
        let outcome = self.retire_series(&mut pace).and_then(|()| self.merge_series(&mut pace));
        self.tell(&self.shelf.merger, &outcome);
        match outcome {
            Ok(true) => Duration::ZERO,
            Ok(false) | Err(_) => LOOK_INTERVAL,
        }
    }

    fn tell<T>(&self, job: &Job, outcome: &Result<T>) {
        let failed = outcome.as_ref().err().filter(|error| error.kind() != ErrorKind::Closed);
        if let (Some(word), Some(told)) = (job.word(failed, self.clock.wall_ms()), &self.options.trouble) {
            told(&word);
        }
    }

    fn seal_due(&self) -> Result<()> {
        let through = self.shelf.through();
        if through == journal::Position::MAX {
            return Ok(());
        }
        let limits = &self.options.limits;
        let lag = self.newest().get().saturating_sub(through.get());
        let is_old = lag > LAG_BYTES.min(limits.replay_bytes_max / 2);
        if is_old || self.shelf.memory_bytes.load(Ordering::Relaxed) > limits.series_memory_bytes {
            return self.seal_series(When::Now);
        }
        Ok(())
    }

    /// The journal behind this position is needed by the series.
    pub(crate) fn series_keep(&self) -> journal::Position {
        self.shelf.through()
    }

    /// Seals what is in memory when the store closes, so that opening replays nothing.
    pub(crate) fn close_series(&self) -> Result<()> {
        let has_more = self
            .partitions
            .iter()
            .zip(&self.shelf.contents().manifest.partitions)
            .any(|(partition, sealed)| partition.series().applied() > sealed.through);
        if has_more { self.seal_series(When::Now) } else { Ok(()) }
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
        assert!(job.word(Some(&other), 3).is_some());
        assert_eq!(job.word(Some(&other), 4), None);
        assert!(job.word(Some(&other), 3 + TELL_AGAIN_MS).is_some());
        assert!(job.word(None, 5).unwrap().contains("again"));
        assert_eq!(job.word(None, 6), None);
        assert_eq!(job.failures.load(Ordering::Relaxed), 5);
    }
}
