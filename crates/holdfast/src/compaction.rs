//! Compaction of the journal: what is still needed of the segments that hold least of it is appended again, and they are
//! let go.
//!
//! Live bytes of each segment are counted exactly, so nothing is sampled: the segment with the largest dead part is next.
//! One segment is in work at a time, a piece of it in each step:
//!
//! 1. *Moving.* A piece is read. What seems needed is asked for again under its partition's lock, and appended there as
//!    kept commands, in small batches, so that a writer waits for a few objects at the most.
//! 2. *Settling.* What was moved is synced. Ledgers that were not written out beyond the segment are, because after a crash
//!    they would be replayed from it. Then nothing in the segment may be counted as live; if something is, it stays.
//! 3. *Waiting.* Snapshots that are older than the moves still read from the segment; when they are gone, it is let go.
//!
//! A crash at any point leaves the segment, and perhaps kept commands that say what is true anyhow. Damaged records are
//! never compacted away: their segment stays for whoever wants to look at it.
//!
//! The rule "worst first" and its cost are those of log-structured file systems (Rosenblum and Ousterhout, 1992).
//!
//! May use: `journal`, `kv`, partitions. Must not know: protocols.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use journal::{Batch, Level, Log, Position, SegmentStats, StateMachine, Visit};
use kv::{LiveBytes, Older, Recorded, SegmentBytes};

use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::schedule::{CompactionOptions, Schedule};
use crate::store::{Inner, Store};

/// Bytes of journal read in one step.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes appended under one partition's lock.
const MOVE_BYTES: usize = 128 << 10;
/// How often it is looked whether there is something to do.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A segment that is dead by so many percent is worth its work whatever the rest is.
const WORTHLESS_PERCENT: u64 = 90;
/// A segment is not worth its work when less than so many percent of it is dead.
const WORTH_PERCENT: u64 = 5;
/// Writers are held back when more than this is dead, and more than is live, though compaction may run.
const DEBT_FREE_BYTES: u64 = 1 << 30;
/// What is dead above that, for each microsecond.
const DEBT_BYTES_PER_MICRO: u64 = 1 << 20;
/// Stubs for each segment that holds something, before the oldest of these goes, whatever it holds.
const STUBS_PER_SEGMENT: usize = 4;
const STUBS_MIN: usize = 16;

/// What compaction did since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionStats {
    /// Whether a run that somebody asked for is under way.
    pub is_running: bool,
    /// Segments let go.
    pub segments: u64,
    /// Bytes of their files.
    pub reclaimed_bytes: u64,
    /// Bytes read to find what is needed.
    pub read_bytes: u64,
    /// Bytes appended again.
    pub moved_bytes: u64,
    /// Segments that wait for a snapshot to be dropped.
    pub waiting: u64,
}

#[derive(Debug, Default)]
struct Counters {
    segments: AtomicU64,
    reclaimed_bytes: AtomicU64,
    read_bytes: AtomicU64,
    moved_bytes: AtomicU64,
    waiting: AtomicU64,
}

/// The compaction of one store.
#[derive(Default)]
pub(crate) struct Compactor {
    work: Mutex<Work>,
    counters: Counters,
    /// Dead bytes that may be compacted, above what is usual.
    debt_bytes: AtomicU64,
    /// Runs that were asked for, and runs that ended.
    asked: AtomicU64,
    ended: AtomicU64,
}

#[derive(Default)]
struct Work {
    moving: Option<Moving>,
    waiting: Vec<Waiting>,
    /// Segments that could not be emptied; tried again after opening.
    stubborn: BTreeSet<Position>,
    /// The last slot of a schedule in which a run was begun.
    slot: Option<u64>,
}

struct Moving {
    base: Position,
    end: Position,
    bytes: u64,
    older: Older,
    /// Where the next piece begins.
    from: Position,
    /// The last batch that was appended.
    appended: Option<Position>,
    is_damaged: bool,
}

struct Waiting {
    base: Position,
    bytes: u64,
    /// A snapshot at or behind this sees nothing in the segment.
    through: Position,
}

/// A command that seems to be needed, copied out of the piece that was read.
struct Candidate {
    position: Position,
    at: u64,
    bytes: Vec<u8>,
}

impl Compactor {
    fn work(&self) -> MutexGuard<'_, Work> {
        // Work that a panic left half done is left for the next opening.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a writer pauses because compaction is behind, in proportion to how far: so space comes to grow at the pace
    /// at which it comes back.
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_micros(self.debt_bytes.load(Ordering::Relaxed) / DEBT_BYTES_PER_MICRO)
    }

    fn is_running(&self) -> bool {
        self.asked.load(Ordering::Acquire) > self.ended.load(Ordering::Acquire)
    }

    /// Asks for a run; false when one is under way.
    fn ask(&self) -> bool {
        let ended = self.ended.load(Ordering::Acquire);
        self.asked.compare_exchange(ended, ended + 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn end_run(&self) {
        self.ended.store(self.asked.load(Ordering::Acquire), Ordering::Release);
    }

    pub(crate) fn stats(&self) -> CompactionStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CompactionStats {
            is_running: self.is_running(),
            segments: load(&self.counters.segments),
            reclaimed_bytes: load(&self.counters.reclaimed_bytes),
            read_bytes: load(&self.counters.read_bytes),
            moved_bytes: load(&self.counters.moved_bytes),
            waiting: load(&self.counters.waiting),
        }
    }
}

/// What is known of a segment that may be compacted.
struct Choice {
    stats: SegmentStats,
    of: SegmentBytes,
    /// Whether nobody writes to it, and no feed may ask for it.
    may_go: bool,
}

impl Choice {
    /// The part of the segment that nothing needs, in percent.
    fn dead_percent(&self, is_oldest: bool) -> u64 {
        let held = if is_oldest { self.of.held } else { 0 };
        match self.of.applied {
            // Nothing of it was ever applied that is known of.
            0 => 100,
            applied => (self.of.dead() + held) * 100 / applied,
        }
    }
}

/// Which segment comes next, if any is due.
fn choose(choices: &[Choice], stubs: usize, dead_percent: u64, thorough: bool) -> Option<&Choice> {
    let oldest = choices.first()?;
    let percent = |choice: &Choice| choice.dead_percent(choice.stats.base == oldest.stats.base);
    if stubs > STUBS_MIN.max(choices.len() * STUBS_PER_SEGMENT) && oldest.may_go {
        return Some(oldest);
    }
    let candidates = || choices.iter().filter(|choice| choice.may_go);
    let all: u64 = candidates().map(|choice| choice.stats.bytes).sum();
    let dead: u64 = candidates().map(|choice| choice.stats.bytes / 100 * percent(choice)).sum();
    let worst = candidates().max_by_key(|choice| percent(choice))?;
    let is_due = thorough || percent(worst) >= WORTHLESS_PERCENT || dead * 100 >= all * dead_percent;
    (is_due && percent(worst) >= WORTH_PERCENT).then_some(worst)
}

/// How much more of what may be compacted is dead than is usual.
fn debt_bytes(choices: &[Choice]) -> u64 {
    let of = |part: &dyn Fn(&SegmentBytes) -> u64| -> u64 {
        choices.iter().filter(|choice| choice.may_go).map(|choice| part(&choice.of)).sum()
    };
    of(&SegmentBytes::dead).saturating_sub(of(&|of| of.live).max(DEBT_FREE_BYTES))
}

impl Inner {
    fn choices(&self, work: &Work) -> (Vec<Choice>, usize) {
        let mut live = LiveBytes::default();
        self.partitions.iter().for_each(|partition| live.merge(partition.lock().live()));
        let live: BTreeMap<Position, SegmentBytes> = live.iter().collect();
        let segments = self.journal.segment_stats();
        let stubs = segments.iter().filter(|segment| segment.is_stub).count();
        let is_free =
            |base: &Position| !work.stubborn.contains(base) && work.waiting.iter().all(|waiting| waiting.base != *base);
        // What feeds may still ask for.
        let newest = self.newest().get().saturating_sub(self.options.compaction.keep_bytes);
        let kept_from = self.oldest_feed().map_or(newest, |feed| feed.get().min(newest));
        let is_kept = |segment: &SegmentStats| segment.end.get() > kept_from;
        let choices = segments.into_iter().filter(|segment| !segment.is_stub && is_free(&segment.base));
        let of = |base: &Position| live.get(base).copied().unwrap_or_default();
        let choice = |stats: SegmentStats| {
            let may_go = stats.sealed && !is_kept(&stats);
            Choice { of: of(&stats.base), may_go, stats }
        };
        (choices.map(choice).collect(), stubs)
    }

    /// Does one piece of compaction, if any is due; returns when to come back.
    pub(crate) fn compact_step(&self) -> Result<Duration> {
        let mut work = match self.compactor.work.try_lock() {
            Ok(work) => work,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(LOOK_INTERVAL),
        };
        let outcome = self.compact_piece(&mut work);
        if outcome.is_err() {
            work.moving = None;
            self.compactor.end_run();
        }
        outcome
    }

    fn compact_piece(&self, work: &mut Work) -> Result<Duration> {
        self.check_open()?;
        self.let_go(work)?;
        let options = &self.options.compaction;
        if work.moving.is_none() {
            self.begin_scheduled(work, options);
            let thorough = self.compactor.is_running();
            if !thorough && options.schedule != Schedule::Continuous {
                return Ok(LOOK_INTERVAL);
            }
            let (choices, stubs) = self.choices(work);
            self.compactor.debt_bytes.store(debt_bytes(&choices), Ordering::Relaxed);
            let Some(choice) = choose(&choices, stubs, options.dead_percent, thorough) else {
                self.compactor.end_run();
                return Ok(LOOK_INTERVAL);
            };
            let SegmentStats { base, end, bytes, .. } = choice.stats;
            let older = choices.iter().map(|choice| choice.stats.base).find(|other| *other != base);
            let waiting = work.waiting.iter().map(|waiting| waiting.base);
            let older = Older(older.into_iter().chain(waiting).min());
            work.moving = Some(Moving { base, end, bytes, older, from: base, appended: None, is_damaged: false });
        }
        let Some(moving) = &mut work.moving else { return Ok(LOOK_INTERVAL) };
        let (read, is_over) = self.move_piece(moving)?;
        if is_over && let Some(moved) = work.moving.take() {
            self.settle_segment(work, &moved)?;
        }
        Ok(options.pause(read))
    }

    /// Begins a run whose hour has come.
    fn begin_scheduled(&self, work: &mut Work, options: &CompactionOptions) {
        let slot = options.schedule.slot(self.clock.wall_ms());
        if slot.is_some() && slot != work.slot {
            // Opening a store is no reason for a run.
            if work.slot.is_some() {
                self.compactor.ask();
            }
            work.slot = slot;
        }
    }

    /// Reads the next piece of the segment and moves what is needed of it; returns the bytes read, and whether it was the
    /// last.
    fn move_piece(&self, moving: &mut Moving) -> Result<(u64, bool)> {
        let mut wanted: Vec<Vec<Candidate>> = self.partitions.iter().map(|_| Vec::new()).collect();
        let (mut read, mut next, mut failed) = (0, None, None);
        let outcome = self.journal.read_segment(moving.base, moving.from, &mut |found| {
            let record = match found {
                Visit::Record(record) => record,
                Visit::Damaged(_) => {
                    moving.is_damaged = true;
                    return Ok(());
                }
            };
            if read >= PIECE_BYTES {
                next = Some(record.position);
                return Err(journal::Error::Closed);
            }
            for section in &record.sections {
                read += section.commands.len() as u64;
                let index = section.partition.index();
                let (Some(partition), Some(wanted)) = (self.partitions.get(index), wanted.get_mut(index)) else {
                    continue;
                };
                let mut offset = 0;
                while let Some(rest) = section.commands.get(offset..).filter(|rest| !rest.is_empty()) {
                    let Some((recorded, bytes)) = Recorded::decode(rest) else {
                        failed = Some(kv::Error::Command);
                        return Err(journal::Error::Closed);
                    };
                    let at = section.at + (offset + recorded.prefix_bytes()) as u64;
                    match partition.reader.may_need(&recorded, record.position, at, moving.older) {
                        Ok(true) => {
                            let bytes = rest.get(..bytes).unwrap_or_default().to_vec();
                            wanted.push(Candidate { position: record.position, at, bytes });
                        }
                        Ok(false) => {}
                        Err(error) => {
                            failed = Some(error);
                            return Err(journal::Error::Closed);
                        }
                    }
                    offset += bytes;
                }
            }
            Ok(())
        });
        match (failed, outcome, next) {
            (Some(error), ..) => return Err(error.into()),
            (None, Err(error), None) => return Err(error.into()),
            _ => {}
        }
        self.compactor.counters.read_bytes.fetch_add(read, Ordering::Relaxed);
        for (partition, candidates) in self.partitions.iter().zip(&wanted) {
            self.move_candidates(partition, candidates, moving)?;
        }
        if let Some(next) = next {
            moving.from = next;
        }
        Ok((read, next.is_none()))
    }

    fn move_candidates(&self, partition: &Partition, candidates: &[Candidate], moving: &mut Moving) -> Result<()> {
        let mut rest = candidates;
        while !rest.is_empty() {
            partition.check()?;
            let mut engine = partition.lock();
            let mut batch = Batch::new();
            let mut taken = 0;
            batch.section(partition.id, |to| -> Result<()> {
                for candidate in rest {
                    if to.len() >= MOVE_BYTES {
                        break;
                    }
                    taken += 1;
                    let Some((recorded, _)) = Recorded::decode(&candidate.bytes) else { continue };
                    engine.keep(&recorded, candidate.position, candidate.at, moving.older, to)?;
                }
                Ok(())
            })?;
            rest = rest.get(taken..).unwrap_or_default();
            if batch.is_empty() {
                continue;
            }
            let appended = self.journal.append(&batch)?;
            moving.appended = Some(appended.position);
            self.compactor.counters.moved_bytes.fetch_add(batch.len() as u64, Ordering::Relaxed);
            for (_, offset, commands) in batch.sections() {
                let applied = engine.apply(appended.position, appended.body_at + offset, commands);
                self.applied(partition, &mut engine, applied)?;
            }
            self.note_memory(&engine);
        }
        Ok(())
    }

    /// Makes sure that the segment is not needed any more, and lets it wait for old snapshots.
    fn settle_segment(&self, work: &mut Work, moved: &Moving) -> Result<()> {
        if let Some(appended) = moved.appended {
            self.journal.wait(appended, Level::Synced)?;
        }
        for partition in &self.partitions {
            if partition.reader.persisted().unwrap_or_default() < moved.end {
                self.write_out(partition)?;
            }
        }
        let still_live = |partition: &Partition| {
            let engine = partition.lock();
            engine.live().iter().any(|(base, of)| base == moved.base && of.live > 0)
        };
        if moved.is_damaged || self.partitions.iter().any(still_live) {
            work.stubborn.insert(moved.base);
            return Ok(());
        }
        work.waiting.push(Waiting { base: moved.base, bytes: moved.bytes, through: self.newest() });
        self.let_go(work)
    }

    /// Lets go of the segments that no snapshot reads from any more.
    fn let_go(&self, work: &mut Work) -> Result<()> {
        let mut still = Vec::new();
        for waiting in std::mem::take(&mut work.waiting) {
            let is_read = self.oldest_snapshot().is_some_and(|oldest| oldest < waiting.through);
            if is_read || !self.journal.let_go(waiting.base)? {
                still.push(waiting);
                continue;
            }
            for partition in &self.partitions {
                partition.lock().forget_segments(|segment| segment != waiting.base);
            }
            self.compactor.counters.segments.fetch_add(1, Ordering::Relaxed);
            self.compactor.counters.reclaimed_bytes.fetch_add(waiting.bytes, Ordering::Relaxed);
        }
        work.waiting = still;
        self.compactor.counters.waiting.store(work.waiting.len() as u64, Ordering::Relaxed);
        let segments = self.journal.segment_stats();
        if let Some(first) = segments.iter().find(|segment| !segment.is_stub)
            && segments.first().is_some_and(|segment| segment.is_stub)
        {
            self.journal.trim(first.base)?;
        }
        Ok(())
    }
}

impl Store {
    /// Asks for a compaction run: everything that is worth it is compacted, whatever the schedule, by the background
    /// threads. Does not wait.
    ///
    /// # Errors
    /// `Conflict` when a run is under way already; `Closed`.
    pub fn start_compaction(&self) -> Result<()> {
        let inner = self.inner();
        inner.check_open()?;
        if !inner.compactor.ask() {
            return Err(Error::new(ErrorKind::Conflict, "a compaction run is under way already"));
        }
        inner.compaction_wake.raise();
        Ok(())
    }

    /// Runs a compaction to its end, on this thread, without limit of its rate: what [`Store::start_compaction`] lets the
    /// background do. Segments that a snapshot reads from are let go later.
    ///
    /// # Errors
    /// As [`Store::start_compaction`]; what reading and writing meet. Nothing is lost then.
    pub fn compact(&self) -> Result<CompactionStats> {
        self.start_compaction()?;
        let inner = self.inner();
        while inner.compactor.is_running() {
            let outcome = {
                let mut work = inner.compactor.work();
                let outcome = inner.compact_piece(&mut work);
                if outcome.is_err() {
                    work.moving = None;
                }
                outcome
            };
            outcome.inspect_err(|_| inner.compactor.end_run())?;
        }
        Ok(inner.compactor.stats())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(base: u64, applied: u64, live: u64, held: u64) -> Choice {
        let stats = SegmentStats {
            base: Position::new(base),
            end: Position::new(base + 100),
            bytes: 1_000,
            sealed: true,
            is_stub: false,
            damaged_bytes: 0,
        };
        Choice { stats, of: SegmentBytes { applied, live, held }, may_go: true }
    }

    fn chosen(choices: &[Choice], stubs: usize, thorough: bool) -> Option<u64> {
        choose(choices, stubs, 25, thorough).map(|choice| choice.stats.base.get())
    }

    #[test]
    fn the_worst_segment_comes_first_once_enough_is_dead_altogether() {
        let full = [choice(0, 100, 100, 0), choice(100, 100, 90, 0), choice(200, 100, 80, 0)];
        assert_eq!(chosen(&full, 0, false), None, "a tenth is dead");
        assert_eq!(chosen(&full, 0, true), Some(200), "but somebody asked");
        let half = [choice(0, 100, 90, 0), choice(100, 100, 30, 0), choice(200, 100, 60, 0)];
        assert_eq!(chosen(&half, 0, false), Some(100));
        let gone = [choice(0, 100, 100, 0), choice(100, 100, 2, 0), choice(200, 100, 100, 0), choice(300, 9, 9, 0)];
        assert_eq!(chosen(&[], 0, true), None);
        assert_eq!(chosen(&gone, 0, false), Some(100));
        let nearly_full = [choice(0, 100, 98, 0)];
        assert_eq!(chosen(&nearly_full, 0, true), None, "not worth the work");
    }

    #[test]
    fn deletes_count_as_dead_in_the_oldest_segment_only() {
        let held = [choice(0, 100, 100, 0), choice(100, 100, 0, 100)];
        assert_eq!(chosen(&held, 0, true), None);
        assert_eq!(chosen(&held[1..], 0, false), Some(100));
    }

    #[test]
    fn the_oldest_segment_goes_when_stubs_pile_up_behind_it() {
        let cold = [choice(0, 100, 100, 0), choice(100, 100, 100, 0)];
        assert_eq!(chosen(&cold, STUBS_MIN, false), None);
        assert_eq!(chosen(&cold, STUBS_MIN + 1, false), Some(0));
    }

    #[test]
    fn a_segment_that_is_written_to_or_fed_from_is_never_chosen() {
        let mut open = [choice(0, 100, 0, 0)];
        open[0].may_go = false;
        assert_eq!(chosen(&open, 100, true), None);
    }
}
