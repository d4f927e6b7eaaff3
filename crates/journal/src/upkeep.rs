//! The journal's background work, one step at a time: syncs that are due, segments prepared ahead and sealed behind.
//!
//! None of it is needed for correctness; without it writers do the same work in their own time.
//!
//! May use: `commit.rs`, `tail.rs`, `segment.rs`. Must not know: threads, engines.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::Time;

use crate::commit::{load, lock};
use crate::error::{Error, Result};
use crate::footer::Footer;
use crate::journal::{Journal, Purpose};
use crate::segment::{Segment, ZERO_STEP_BYTES, round_up};
use crate::tail::{Full, Group};

/// Above this many bytes a sync, the metadata that zeros save is lost in the transfer they double.
const ZERO_GROUP_BYTES_MAX: u64 = 64 << 10;
/// Between two looks at how far writers have come that do not sync.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(250);
/// Before it is known how fast they are.
const LOOK_FIRST: Duration = Duration::from_millis(20);

/// How fast is written that is not synced. To wake a thread that sleeps costs a writer several times what its write costs, so the
/// background comes by itself before the zeros ahead are used up, as long as anything is written.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    looked: Option<(Time, u64)>,
}

impl Pace {
    /// When to look again, with so much written: when `bytes` more will be.
    fn next_look(&mut self, now: Time, written: u64, bytes: u64) -> Option<Time> {
        let before = self.looked.replace((now, written));
        let Some((since, from)) = before else { return Some(now.after(LOOK_FIRST)) };
        let count = written.checked_sub(from).filter(|count| *count > 0)?;
        let nanos = u128::from(bytes) * now.since(since).as_nanos() / u128::from(count);
        let pause = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Some(now.after(pause.clamp(LOOK_MIN, LOOK_MAX)))
    }
}

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
        if more {
            return Ok(Some(now));
        }
        Ok([self.sync_due(), self.look_due(now)].into_iter().flatten().min())
    }

    /// When the zeros ahead of writers that do not sync are to be looked at again, if anything was written since the last time.
    fn look_due(&self, now: Time) -> Option<Time> {
        let goes = lock(&self.tail).segment.wants_pages();
        goes.then(|| lock(&self.pace).next_look(now, load(&self.written).get(), self.options.zero_ahead_bytes / 8))?
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
        // The background comes by itself before, unless nothing was written for a while or it comes too late.
        let low = (end + self.options.zero_ahead_bytes / 4).min(group.segment.capacity());
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
        let footer = Footer { extents: full.index.extents(), states: full.states.clone() };
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
