//! The journal's background work, one step at a time: syncs that are due, segments prepared ahead and sealed behind.
//!
//! None of it is needed for correctness; without it writers do the same work in their own time.
//!
//! May use: `commit.rs`, `tail.rs`, `segment.rs`. Must not know: threads, engines.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::Time;

use crate::commit::{UNSYNCED_BYTES, load, lock};
use crate::error::{Error, Result};
use crate::footer::Footer;
use crate::journal::{Journal, Purpose};
use crate::segment::{OVERTAKEN_BYTES, Segment, ZERO_STEP_BYTES, round_up};
use crate::tail::{Full, Group};

/// Above this many bytes a sync, the metadata that zeros save is lost in the transfer they double.
const ZERO_GROUP_BYTES_MAX: u64 = 64 << 10;
/// Zeros ahead of writers that do not sync are filled when less than this part of them is left; the background looks each time so large a part
/// may be gone; and writers wake it when so little is left: it was asleep then, or too late.
const FILL_PART: u64 = 2;
const LOOK_PART: u64 = 8;
const WAKE_PART: u64 = 4;
/// Before it is known how fast they are.
const LOOK_FIRST: Duration = Duration::from_millis(20);
/// More often than this, looking costs more than being woken.
const LOOK_MIN: Duration = Duration::from_millis(1);
/// And so seldom it costs nothing, and is soon over when nothing is written any more.
const LOOK_MAX: Duration = Duration::from_millis(250);

/// How fast is written that is not synced. To wake a thread that sleeps costs a writer several times what its write costs, so the
/// background comes by itself before the zeros ahead are used up, as long as anything is written.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When it was looked last, and how much was written by then.
    looked: Option<(Time, u64)>,
    /// When the next look is.
    due: Time,
    /// Nothing was written between the last two.
    is_idle: bool,
}

impl Pace {
    /// When to look again, with so much written: when `bytes` more will be. `None` when nothing was for a while.
    fn next_look(&mut self, now: Time, written: u64, bytes: u64) -> Option<Time> {
        let Some((since, from)) = self.looked else {
            return self.look(now, written, LOOK_FIRST);
        };
        let count = written.saturating_sub(from);
        // Whoever comes earlier was woken for something else, and saw too little to tell.
        if now < self.due && count < bytes {
            return Some(self.due);
        }
        if count == 0 {
            if self.is_idle {
                *self = Self::default();
                return None;
            }
            self.is_idle = true;
            return self.look(now, written, LOOK_MAX);
        }
        self.is_idle = false;
        let nanos = u128::from(bytes) * now.since(since).as_nanos() / u128::from(count);
        let pause = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.look(now, written, pause.clamp(LOOK_MIN, LOOK_MAX))
    }

    fn look(&mut self, now: Time, written: u64, pause: Duration) -> Option<Time> {
        self.looked = Some((now, written));
        self.due = now.after(pause);
        Some(self.due)
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
        let ahead = self.options.zero_ahead_bytes;
        let written = load(&self.written).get();
        let is_unsynced = written.saturating_sub(load(&self.synced).get()) >= UNSYNCED_BYTES;
        // So little is there sooner by those who overtake it.
        if ahead < OVERTAKEN_BYTES || !is_unsynced || !lock(&self.tail).segment.wants_pages() {
            *lock(&self.pace) = Pace::default();
            return None;
        }
        lock(&self.pace).next_look(now, written, ahead / LOOK_PART)
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
        let low = (end + self.options.zero_ahead_bytes / WAKE_PART).min(group.segment.capacity());
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
        let low = (at + ahead / FILL_PART).min(segment.capacity());
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

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1000;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn looks_follow_the_rate_of_writing() {
        let mut pace = Pace::default();
        assert_eq!(pace.next_look(at(0), 0, BYTES), Some(at(20)));
        // A thousand bytes in five milliseconds, then one in a second.
        assert_eq!(pace.next_look(at(20), 4000, BYTES), Some(at(25)));
        assert_eq!(pace.next_look(at(25), 4001, BYTES), Some(at(275)));
        assert_eq!(pace.next_look(at(275), 4_000_000, BYTES), Some(at(276)));
    }

    /// What came too soon behind a look counted as one, found that nothing was written, and the background slept while writers went on.
    #[test]
    fn a_look_that_comes_early_changes_nothing_unless_much_was_written() {
        let mut pace = Pace::default();
        assert_eq!(pace.next_look(at(0), 0, BYTES), Some(at(20)));
        assert_eq!(pace.next_look(at(0), 0, BYTES), Some(at(20)));
        assert_eq!(pace.next_look(at(1), 10, BYTES), Some(at(20)));
        assert_eq!(pace.next_look(at(2), 2 * BYTES, BYTES), Some(at(3)));
    }

    #[test]
    fn one_gap_in_the_writing_is_no_end_and_behind_an_end_nothing_is_known() {
        let mut pace = Pace::default();
        pace.next_look(at(0), 0, BYTES);
        pace.next_look(at(20), 20 * BYTES, BYTES);
        assert_eq!(pace.next_look(at(21), 20 * BYTES, BYTES), Some(at(271)));
        assert_eq!(pace.next_look(at(271), 30 * BYTES, BYTES), Some(at(296)));
        assert_eq!(pace.next_look(at(296), 30 * BYTES, BYTES), Some(at(546)));
        assert_eq!(pace.next_look(at(546), 30 * BYTES, BYTES), None);
        assert_eq!(pace.next_look(at(3_600_000), 40 * BYTES, BYTES), Some(at(3_600_020)));
    }
}
