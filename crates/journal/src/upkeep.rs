//! The journal's background work, one step at a time: syncs that are due, segments prepared ahead and sealed behind.
//!
//! None of it is needed for correctness; without it writers do the same work in their own time.
//!
//! May use: `commit.rs`, `tail.rs`, `segment.rs`. Must not know: threads, engines.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::Time;

use crate::commit::{load, lock};
use crate::error::{Error, Result};
use crate::footer::Footer;
use crate::journal::{Journal, Purpose};
use crate::segment::{Segment, ZERO_STEP_BYTES, round_up};
use crate::tail::{Full, Group};

/// Above this many bytes a sync, the metadata that zeros save is lost in the transfer they double.
const ZERO_GROUP_BYTES_MAX: u64 = 64 << 10;

impl Journal {
    /// Does what is due at `now`; returns when to come back, or `None` to wait for the wake signal.
    ///
    /// # Errors
    /// The failure of a write or sync; the journal is then poisoned.
    pub fn step(&self, now: Time) -> Result<Option<Time>> {
        self.check()?;
        if self.sync_due().is_some_and(|due| due <= now) {
            // Before the sync, which covers all that asked for one so far. Another may have covered them, and then none is led that
            // would clear this.
            lock(&self.due).at = None;
            self.sync_all()?;
        }
        self.seal_full()?;
        self.prepare_next()?;
        let more = self.zero_ahead()?;
        Ok(if more { Some(now) } else { self.sync_due() })
    }

    /// Remembers how many bytes a sync covered, on average over the last ones.
    pub(crate) fn note_group(&self, bytes: u64) {
        let average = self.group_bytes.load(Ordering::Relaxed);
        self.group_bytes.store((average * 7 + bytes) / 8, Ordering::Relaxed);
        if bytes <= ZERO_GROUP_BYTES_MAX && self.zero_wanted().is_some() {
            self.options.wake.raise();
        }
    }

    /// Much was written since the last sync, and this comes behind it.
    pub(crate) fn note_unsynced(&self, group: &Group) {
        let end = group.offset + group.bytes.len() as u64;
        let low = (end + self.options.zero_ahead_bytes / 2).min(group.segment.capacity());
        if group.segment.note_unsynced() && group.segment.needs_zeros(low) {
            self.options.wake.raise();
        }
    }

    /// Up to where the open segment should be zeros, when that is more than half of the way off.
    pub(crate) fn zero_wanted(&self) -> Option<(Arc<Segment>, u64)> {
        let segment = Arc::clone(&lock(&self.tail).segment);
        let helps = match segment.is_unsynced() {
            true => segment.wants_pages(),
            false => self.group_bytes.load(Ordering::Relaxed) <= ZERO_GROUP_BYTES_MAX,
        };
        if !helps {
            return None;
        }
        let at = load(&self.written).get().saturating_sub(segment.base.get());
        let ahead = self.options.zero_ahead_bytes;
        let want = round_up(at + ahead, ahead.clamp(1, ZERO_STEP_BYTES)).min(segment.capacity());
        let low = (at + ahead / 2).min(segment.capacity());
        segment.needs_zeros(low).then_some((segment, want))
    }

    fn zero_ahead(&self) -> Result<bool> {
        let Some((segment, to)) = self.zero_wanted() else { return Ok(false) };
        let spare = (to > segment.reserved()).then(|| self.spare.state());
        // What is left is for what frees space.
        if spare.as_ref().is_some_and(|spare| !spare.is_there) {
            return Ok(false);
        }
        segment.zero_ahead(to, self.options.reserve_bytes).map_err(|error| self.poisoned(error))
    }

    /// Makes the next segment's file before the current one is full.
    fn prepare_next(&self) -> Result<()> {
        let base = {
            let tail = lock(&self.tail);
            let used = tail.end().get() - tail.segment.base.get();
            if used * 2 < tail.segment.capacity() {
                return Ok(());
            }
            tail.segment.end()
        };
        let mut next = lock(&self.next);
        if next.is_none() {
            // A full disk shows again when the segment is needed, and then it is the batch's error.
            *next = self.create_segment(base, Purpose::New).ok();
        }
        Ok(())
    }

    /// Writes the footers of segments that are full. They are synced before: a sealed segment is wholly on the disk. The background does the same.
    ///
    /// # Errors
    /// The failure of a write or sync; the journal is then poisoned.
    pub fn seal_full(&self) -> Result<()> {
        let _sealing = lock(&self.sealing);
        let full = std::mem::take(&mut lock(&self.tail).full);
        for full in full {
            if load(&self.synced) < full.end {
                self.sync_all()?;
            }
            match self.seal(&full) {
                // The records are safe, and the footer finds its space later, or recovery makes it.
                Err(Error::DiskFull { .. }) => lock(&self.tail).full.push(full),
                sealed => sealed.map_err(|error| self.poisoned(error))?,
            }
        }
        Ok(())
    }

    pub(crate) fn seal(&self, full: &Full) -> Result<()> {
        let base = full.segment.base;
        let finished = lock(&self.writing).finished_sum(base);
        let sum = match finished {
            Some(sum) => sum,
            None => {
                // The checksum ends when the next segment's header is written.
                self.flush()?;
                lock(&self.writing).finished_sum(base).expect("the header behind a full segment was written")
            }
        };
        let data_end = full.end.get() - base.get();
        let footer = Footer { extents: full.extents.clone(), states: full.states.clone() };
        let seal = || full.segment.seal(&footer, data_end, full.end, sum);
        match seal() {
            // Only what is sealed can be compacted.
            Err(Error::DiskFull { .. }) => self.with_spare(seal)?,
            sealed => sealed?,
        }
        full.segment.close_beside();
        lock(&self.writing).forget_sum(base);
        Ok(())
    }
}
