//! Group commit: how batches reach the file and the disk, with as few calls as there can be.
//!
//! There is no writer thread. Whoever needs a batch written takes the lock of the file and writes everything that has
//! gathered; whoever needs it synced and finds no sync running leads one for all that wait, and the others wait until
//! it ends (`syncing.rs`). So one idle-time writer pays one write and one sync and no change of thread, and N writers share both:
//! while a sync runs, the next group fills. (Leader and followers as in Gawlick and Kinkade, "Varieties of Concurrency
//! Control in IMS/VS Fast Path", 1985, without their timer.)
//!
//! A failed write or sync poisons the journal: what the system kept of it is unknown (see `File::sync`), so nothing more
//! may be promised until recovery has looked at the file.
//!
//! May use: `tail.rs`, `segment.rs`. Must not know: engines, recovery.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{Crc32c, Time};

use crate::error::{Error, Result};
use crate::journal::Journal;
use crate::log::{Level, Window};
use crate::position::Position;
use crate::segment::Segment;
use crate::syncing::{Next, Synced, Turn};
use crate::tail::shrink;

/// With so much behind the last sync the next ones are rare, compared to writes: then these may go by other ways than a call each.
pub(crate) const UNSYNCED_BYTES: u64 = 256 << 10;
/// How closely the age of unsynced batches is known.
const AGE_GRAIN: Duration = Duration::from_millis(1);
/// Most entries of the age list: beyond, the grain grows.
const AGES_MAX: usize = 4096;

/// What belongs to the thread that writes.
#[derive(Default)]
pub(crate) struct Writing {
    spare: Vec<u8>,
    /// Checksum of what was written to the current segment, and of segments left behind.
    sum: Crc32c,
    sums: Vec<(Position, u32)>,
    current: Option<Position>,
    unsynced: Vec<Arc<Segment>>,
}

impl Writing {
    /// The checksum of a segment that was left.
    pub(crate) fn finished_sum(&self, base: Position) -> Option<u32> {
        self.sums.iter().find(|(of, _)| *of == base).map(|(_, sum)| *sum)
    }

    /// Drops the checksum of a segment that is sealed.
    pub(crate) fn forget_sum(&mut self, base: Position) {
        self.sums.retain(|(of, _)| *of != base);
    }

    /// Ends the checksum of the current segment, which gets nothing more.
    pub(crate) fn finish_sum(&mut self) {
        let sum = std::mem::take(&mut self.sum).finish();
        if let Some(left) = self.current.take() {
            self.sums.push((left, sum));
        }
    }
}

/// What a sync covered.
struct Written {
    target: Position,
    batches: u64,
    /// How long the disk took.
    took: Duration,
}

/// A sync that nobody waits for.
#[derive(Default)]
pub(crate) struct Due {
    pub(crate) at: Option<Time>,
    pub(crate) min: Duration,
    pub(crate) last_start: Option<Time>,
}

/// When which part of the unsynced tail was written.
#[derive(Default)]
pub(crate) struct Ages(VecDeque<(Position, Time)>);

impl Ages {
    fn written(&mut self, end: Position, since: Time) {
        let full = self.0.len() >= AGES_MAX;
        match self.0.back_mut() {
            Some((last, time)) if full || since.since(*time) < AGE_GRAIN => *last = end,
            _ => self.0.push_back((end, since)),
        }
    }

    fn synced(&mut self, to: Position) {
        while self.0.front().is_some_and(|(end, _)| *end <= to) {
            self.0.pop_front();
        }
    }

    pub(crate) fn oldest(&self) -> Option<Time> {
        self.0.front().map(|(_, since)| *since)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that may panic runs under the journal's locks but asserts about its own state, and after one of those
    // the process must not go on writing; the poisoned flag of the standard library is not what stops it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn load(mark: &AtomicU64) -> Position {
    Position::new(mark.load(Ordering::Acquire))
}

impl Journal {
    /// Blocks until `position` is as durable as `level` says. See [`crate::Log::wait`].
    pub(crate) fn wait_for(&self, position: Position, level: Level) -> Result<()> {
        match level {
            Level::Written => self.write_past(position),
            Level::Window(window) => {
                self.write_past(position)?;
                if load(&self.synced) <= position {
                    self.check()?;
                    self.sync_within(window);
                }
                Ok(())
            }
            Level::Synced => self.sync_past(position),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(first) => Err(Error::Poisoned { first: Arc::clone(first) }),
        }
    }

    /// Stops all writing because of `error`, and returns what to tell.
    pub(crate) fn poisoned(&self, error: Error) -> Error {
        let first = Arc::clone(self.poison.get_or_init(|| Arc::new(error)));
        // Whoever waits for a sync learns that there will be none.
        let ended = lock(&self.syncing).take_gate();
        ended.open();
        Error::Poisoned { first }
    }

    fn write_past(&self, position: Position) -> Result<()> {
        if load(&self.written) > position {
            return Ok(());
        }
        // The one before needs some microseconds to write, which is less than a sleep costs.
        let writing = base::lock_soon(&self.writing).unwrap_or_else(PoisonError::into_inner);
        // Whoever had the lock before may have written this batch too.
        if load(&self.written) > position { Ok(()) } else { self.write_all(writing) }
    }

    /// Writes everything that was appended so far.
    pub(crate) fn flush(&self) -> Result<()> {
        self.write_all(lock(&self.writing))
    }

    fn write_all(&self, mut writing: MutexGuard<'_, Writing>) -> Result<()> {
        self.check()?;
        let spare = std::mem::take(&mut writing.spare);
        let (groups, end) = {
            let mut tail = lock(&self.tail);
            let mut groups = std::mem::take(&mut tail.waiting);
            groups.extend(tail.take_open(spare));
            (groups, tail.end())
        };
        for group in groups {
            if writing.current != Some(group.segment.base) {
                writing.finish_sum();
                writing.current = Some(group.segment.base);
            }
            writing.sum.update(&group.bytes);
            if writing.unsynced.last().is_none_or(|last| last.base != group.segment.base) {
                writing.unsynced.push(Arc::clone(&group.segment));
            }
            if group.segment.base.plus(group.offset).get().saturating_sub(load(&self.synced).get()) >= UNSYNCED_BYTES {
                self.note_unsynced(&group);
            }
            group.segment.write(&group.bytes, group.offset).map_err(|error| self.poisoned(error))?;
            let written = group.segment.base.plus(group.offset + group.bytes.len() as u64);
            if group.batches > 0 {
                lock(&self.ages).written(written, group.since);
            }
            self.counters.written_batches.fetch_add(group.batches, Ordering::AcqRel);
            writing.spare = shrink(group.bytes, self.options.group_bytes_max);
        }
        self.written.store(end.get(), Ordering::Release);
        Ok(())
    }

    fn sync_past(&self, position: Position) -> Result<()> {
        loop {
            if load(&self.synced) > position {
                return Ok(());
            }
            let mut syncing = lock(&self.syncing);
            if load(&self.synced) > position {
                return Ok(());
            }
            // Under the lock: whoever poisons the journal opens the gate for all that wait, and later ones see it here.
            self.check()?;
            let next = syncing.next(position);
            drop(syncing);
            match next {
                Next::Lead(turn) => self.lead(turn),
                Next::Wait(ended, awake) => ended.wait_awake(awake, &self.yielder, || self.appended_batches()),
            }
        }
    }

    /// How many batches were appended since the journal was opened.
    #[must_use]
    pub fn appended_batches(&self) -> u64 {
        self.counters.appended_batches.load(Ordering::Acquire)
    }

    /// Whether the disk takes so long that syncs overlap: then several threads that wait are served sooner than one.
    #[must_use]
    pub fn overlaps_syncs(&self) -> bool {
        lock(&self.syncing).overlaps()
    }

    /// Syncs everything that was appended so far, and returns the position reached.
    pub(crate) fn sync_all(&self) -> Result<Position> {
        let end = lock(&self.tail).end();
        match end.get().checked_sub(1) {
            Some(last) => self.sync_past(Position::new(last)).map(|()| end),
            None => Ok(end),
        }
    }

    /// Runs one sync for all that wait, and wakes them.
    fn lead(&self, turn: Turn) {
        let started = self.clock.now();
        {
            let mut due = lock(&self.due);
            due.at = None;
            due.last_start = Some(started);
        }
        if self.last_group.load(Ordering::Relaxed) > 1 {
            // Those woken by the sync before are about to append again: with their turn first, this one covers them.
            self.yielder.yield_now(|| self.appended_batches());
        }
        let written = self.sync_written(turn);
        self.wait_for_turn(turn);
        // After a failure of an earlier one nothing is promised, whatever the later ones say.
        let synced = match written {
            Ok(written) if self.check().is_ok() => {
                let batches = self.note_synced(&written);
                let nanos = self.clock.now().since(started).as_nanos();
                self.counters.sync_nanos.add(u64::try_from(nanos).unwrap_or(u64::MAX));
                Some(Synced { took: written.took, batches })
            }
            _ => None,
        };
        let ended = lock(&self.syncing).end(synced);
        ended.open();
    }

    /// Sleeps until all syncs that began earlier have ended.
    fn wait_for_turn(&self, turn: Turn) {
        loop {
            let ahead = lock(&self.syncing).ahead_of(turn);
            match ahead {
                Some(ended) => ended.wait(),
                None => return,
            }
        }
    }

    fn sync_written(&self, turn: Turn) -> Result<Written> {
        self.flush()?;
        let (segments, target, batches) = {
            let mut writing = lock(&self.writing);
            let segments = std::mem::take(&mut writing.unsynced);
            (segments, load(&self.written), self.counters.written_batches.load(Ordering::Acquire))
        };
        lock(&self.syncing).reach(turn, target);
        let started = self.clock.now();
        for segment in segments {
            // Oldest first: what is synced stays a prefix.
            self.sync_segment(&segment, turn)?;
        }
        Ok(Written { target, batches, took: self.clock.now().since(started) })
    }

    fn sync_segment(&self, segment: &Segment, turn: Turn) -> Result<()> {
        if let Some(synced) = segment.sync_beside(turn.lane) {
            return synced.map_err(|error| self.poisoned(error));
        }
        // By the segment's own handle. Should there be none to have for another lane, two come here: the failure that one of them
        // hears of, and the other does not, is known before the other goes on.
        let _one = lock(&self.own_handle);
        segment.sync().map_err(|error| self.poisoned(error))
    }

    /// Returns how many batches shared the sync.
    fn note_synced(&self, &Written { target, batches, .. }: &Written) -> u64 {
        lock(&self.ages).synced(target);
        let before = self.synced.fetch_max(target.get(), Ordering::AcqRel);
        let group = batches - self.counters.synced_batches.swap(batches, Ordering::AcqRel);
        self.counters.group_batches.add(group);
        self.last_group.store(group, Ordering::Relaxed);
        self.note_group(target.get().saturating_sub(before));
        group
    }

    /// Sees to it that a sync starts within the window.
    fn sync_within(&self, window: Window) {
        let at = self.clock.now().after(window.max);
        let mut due = lock(&self.due);
        if due.at.is_none_or(|earlier| at < earlier) {
            due.at = Some(at);
            due.min = window.min;
            drop(due);
            self.options.wake.raise();
        }
    }

    /// When the next sync that nobody waits for has to start.
    pub(crate) fn sync_due(&self) -> Option<Time> {
        let due = lock(&self.due);
        let earliest = due.last_start.map_or(Time::default(), |start| start.after(due.min));
        due.at.map(|at| at.max(earliest))
    }
}
