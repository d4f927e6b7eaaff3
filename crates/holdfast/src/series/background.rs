//! The series' background work: sealing what is much or old, merging files.
//!
//! May use: everything of this folder. Must not know: protocols.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::pace::Pace;
use super::seal::When;
use crate::error::Result;
use crate::store::Inner;

/// How often it is looked whether something is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// What is in memory is sealed when so much of the journal lies behind it, at most.
const LAG_BYTES: u64 = 256 << 20;

impl Inner {
    /// Seals what is due; returns when to come back.
    pub(crate) fn step_series(&self) -> Duration {
        // A full disk is tried again; the journal keeps what is not sealed.
        let _ = self.told(&self.shelf.sealer, self.seal_due());
        self.look_for_room();
        LOOK_INTERVAL
    }

    /// Merges what is due, and removes what is too old; returns when to come back.
    pub(crate) fn step_merge(&self) -> Duration {
        let mut pace = Pace::of(self);
        let retired = self.retire_series(&mut pace);
        let merged = self.merge_series(&mut pace);
        match self.told(&self.shelf.merger, retired.and(merged)) {
            Ok(true) => Duration::ZERO,
            Ok(false) | Err(_) => LOOK_INTERVAL,
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
            self.check_spare()?;
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
