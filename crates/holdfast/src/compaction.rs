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
//! 3. *Waiting.* Snapshots that are older than the moves still read from the segment, and feeds and listeners may have begun
//!    before its end since it was chosen; when they are gone or behind it, it is let go.
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
use kv::{Commands, LiveBytes, Older, Reader, Recorded, SegmentBytes};

use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::schedule::{CompactionOptions, Schedule};
use crate::store::{Inner, Store, lock};

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
/// What is dead above that, for each time that the rate limit is exceeded by: space that does not come back is worse.
const DEBT_BYTES_PER_HASTE: u64 = 128 << 20;
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
    /// Segments that wait for a snapshot to be dropped, or for a feed or listener to go on.
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
    /// Where the journal ended when the run began that is under way.
    run: Option<Position>,
    /// The schedule's slot when it was last looked at, once it was.
    slot: Option<Option<u64>>,
}

struct Moving {
    base: Position,
    end: Position,
    bytes: u64,
    older: Older,
    /// Where the next piece begins.
    from: Position,
    is_damaged: bool,
}

struct Waiting {
    base: Position,
    end: Position,
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

    /// By how much the rate limit is exceeded because compaction is behind.
    fn haste(&self) -> u32 {
        u32::try_from(1 + self.debt_bytes.load(Ordering::Relaxed) / DEBT_BYTES_PER_HASTE).unwrap_or(u32::MAX)
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
#[derive(Clone)]
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

/// The segments that hold something, in order.
struct Choices {
    /// Those that are not in work, and not stubborn.
    free: Vec<Choice>,
    /// Base of the oldest of all.
    oldest: Option<Position>,
    /// Segments that were let go, behind the oldest.
    stubs: usize,
}

impl Choices {
    /// Where records begin, those in `without` aside.
    fn older(&self, segments: &[SegmentStats], without: Position) -> Older {
        let others = segments.iter().filter(|segment| !segment.is_stub && segment.base != without);
        Older(others.map(|segment| segment.base).min())
    }
}

/// Which segment comes next, if any is due.
/// A run that somebody asked for takes what was there when it began, and nothing twice, so it comes to an end.
fn choose(choices: &Choices, dead_percent: u64, run: Option<Position>) -> Option<&Choice> {
    let is_oldest = |choice: &Choice| Some(choice.stats.base) == choices.oldest;
    let percent = |choice: &Choice| choice.dead_percent(is_oldest(choice));
    let is_in_run = |choice: &Choice| run.is_none_or(|until| choice.stats.end <= until);
    let candidates = || choices.free.iter().filter(|choice| choice.may_go && is_in_run(choice));
    if choices.stubs > STUBS_MIN.max(choices.free.len() * STUBS_PER_SEGMENT)
        && let Some(oldest) = candidates().find(|choice| is_oldest(choice))
    {
        return Some(oldest);
    }
    let all: u64 = candidates().map(|choice| choice.stats.bytes).sum();
    let dead: u64 = candidates().map(|choice| choice.stats.bytes / 100 * percent(choice)).sum();
    let worst = candidates().max_by_key(|choice| percent(choice))?;
    let is_due = run.is_some() || percent(worst) >= WORTHLESS_PERCENT || dead * 100 >= all * dead_percent;
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
    fn choices(&self, work: &Work, segments: &[SegmentStats]) -> Choices {
        let mut live = LiveBytes::default();
        self.partitions.iter().for_each(|partition| live.merge(partition.lock().live()));
        let live: BTreeMap<Position, SegmentBytes> = live.iter().collect();
        // What feeds may still ask for.
        let newest = self.newest().get().saturating_sub(self.options.compaction.keep_bytes);
        let kept_from = self.oldest_feed().map_or(newest, |feed| feed.get().min(newest));
        // What listeners have not acknowledged that the store knows by name.
        let kept_from = kept_from.min(self.listeners_keep().get());
        // What the space's snapshots do not have.
        let kept_from = kept_from.min(self.spaces_keep().get());
        // What the series have not sealed.
        let kept_from = kept_from.min(self.series_keep().get());
        let is_free =
            |base: Position| !work.stubborn.contains(&base) && work.waiting.iter().all(|waiting| waiting.base != base);
        let real = || segments.iter().filter(|segment| !segment.is_stub);
        let choice = |stats: &SegmentStats| Choice {
            of: live.get(&stats.base).copied().unwrap_or_default(),
            may_go: stats.sealed && stats.end.get() <= kept_from,
            stats: stats.clone(),
        };
        Choices {
            free: real().filter(|segment| is_free(segment.base)).map(choice).collect(),
            oldest: real().map(|segment| segment.base).min(),
            stubs: segments.iter().filter(|segment| segment.is_stub).count(),
        }
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
            let is_running = self.compactor.is_running();
            work.run = is_running.then(|| work.run.unwrap_or(self.journal.watermarks().appended));
            if !is_running && options.schedule != Schedule::Continuous {
                return Ok(LOOK_INTERVAL);
            }
            let segments = self.journal.segment_stats();
            let choices = self.choices(work, &segments);
            self.compactor.debt_bytes.store(debt_bytes(&choices.free), Ordering::Relaxed);
            let Some(choice) = choose(&choices, options.dead_percent, work.run) else {
                self.compactor.end_run();
                return Ok(LOOK_INTERVAL);
            };
            let SegmentStats { base, end, bytes, .. } = choice.stats;
            let older = choices.older(&segments, base);
            work.moving = Some(Moving { base, end, bytes, older, from: base, is_damaged: false });
        }
        let Some(moving) = &mut work.moving else { return Ok(LOOK_INTERVAL) };
        let (read, is_over) = self.move_piece(moving)?;
        if is_over && let Some(moved) = work.moving.take() {
            self.settle_segment(work, &moved)?;
        }
        Ok(options.pause(read) / self.compactor.haste())
    }

    /// Begins a run whose hour has come.
    fn begin_scheduled(&self, work: &mut Work, options: &CompactionOptions) {
        let slot = options.schedule.slot(self.clock.wall_ms());
        // Opening a store is no reason for a run.
        let begins = slot.is_some() && work.slot.is_some_and(|last| last != slot);
        work.slot = Some(slot);
        if begins {
            self.compactor.ask();
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
                for said in Commands::new(section.commands, section.at) {
                    let needed = said.and_then(|said| {
                        let may_need =
                            |reader: &Reader| reader.may_need(&said.recorded, record.position, said.at, moving.older);
                        // A ledger that is being rebuilt does not know yet; under the lock it will.
                        Ok(partition.undisturbed(may_need)?.unwrap_or(true).then_some(said))
                    });
                    match needed {
                        Ok(Some(said)) => {
                            let (position, at, bytes) = (record.position, said.at, said.bytes.to_vec());
                            wanted.push(Candidate { position, at, bytes });
                        }
                        Ok(None) => {}
                        Err(error) => {
                            failed = Some(error);
                            return Err(journal::Error::Closed);
                        }
                    }
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

    fn move_candidates(&self, partition: &Partition, candidates: &[Candidate], moving: &Moving) -> Result<()> {
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
        // Not only what was moved: what replaced or removed an object lies elsewhere and may not be on stable storage yet.
        self.journal.wait(self.newest(), Level::Synced)?;
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
        let Moving { base, end, bytes, .. } = *moved;
        work.waiting.push(Waiting { base, end, bytes, through: self.newest() });
        self.let_go(work)
    }

    /// Lets go of the segments that nobody reads from any more.
    fn let_go(&self, work: &mut Work) -> Result<()> {
        let mut still = Vec::new();
        for waiting in std::mem::take(&mut work.waiting) {
            if !self.let_go_unread(&waiting)? {
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

    /// Lets go of a segment unless somebody reads from it, or may yet; returns whether it is gone.
    fn let_go_unread(&self, waiting: &Waiting) -> Result<bool> {
        let is_seen = self.oldest_snapshot().is_some_and(|oldest| oldest < waiting.through);
        if is_seen || self.listeners_keep() < waiting.end {
            return Ok(false);
        }
        // Held until the segment is gone: a feed or listener that begins meanwhile finds that the journal begins behind it.
        let feeds = lock(&self.feeds);
        let is_fed = feeds.keys().next().is_some_and(|feed| *feed < waiting.end);
        Ok(!is_fed && self.journal.let_go(waiting.base)?)
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
            is_let_go: false,
            damaged_bytes: 0,
        };
        Choice { stats, of: SegmentBytes { applied, live, held }, may_go: true }
    }

    fn chosen(free: impl IntoIterator<Item = Choice>, stubs: usize, thorough: bool) -> Option<u64> {
        let free: Vec<Choice> = free.into_iter().collect();
        let oldest = free.first().map(|choice| choice.stats.base);
        choose(&Choices { free, oldest, stubs }, 25, thorough.then_some(Position::MAX))
            .map(|choice| choice.stats.base.get())
    }

    #[test]
    fn the_worst_segment_comes_first_once_enough_is_dead_altogether() {
        let full = [choice(0, 100, 100, 0), choice(100, 100, 90, 0), choice(200, 100, 80, 0)];
        assert_eq!(chosen(full.clone(), 0, false), None, "a tenth is dead");
        assert_eq!(chosen(full.clone(), 0, true), Some(200), "but somebody asked");
        let half = [choice(0, 100, 90, 0), choice(100, 100, 30, 0), choice(200, 100, 60, 0)];
        assert_eq!(chosen(half.clone(), 0, false), Some(100));
        let gone = [choice(0, 100, 100, 0), choice(100, 100, 2, 0), choice(200, 100, 100, 0), choice(300, 9, 9, 0)];
        assert_eq!(chosen([], 0, true), None);
        assert_eq!(chosen(gone.clone(), 0, false), Some(100));
        let nearly_full = [choice(0, 100, 98, 0)];
        assert_eq!(chosen(nearly_full, 0, true), None, "not worth the work");
    }

    #[test]
    fn deletes_count_as_dead_in_the_oldest_segment_only() {
        let held = [choice(0, 100, 100, 0), choice(100, 100, 0, 100)];
        assert_eq!(chosen(held.clone(), 0, true), None);
        assert_eq!(chosen(held[1..].to_vec(), 0, false), Some(100));
    }

    #[test]
    fn the_oldest_segment_goes_when_stubs_pile_up_behind_it() {
        let cold = [choice(0, 100, 100, 0), choice(100, 100, 100, 0)];
        assert_eq!(chosen(cold.clone(), STUBS_MIN, false), None);
        assert_eq!(chosen(cold.clone(), STUBS_MIN + 1, false), Some(0));
    }

    #[test]
    fn behind_a_segment_that_cannot_go_deletes_and_stubs_are_left_alone() {
        let free = vec![choice(100, 100, 0, 100), choice(200, 100, 100, 0)];
        let choices = Choices { free, oldest: Some(Position::new(0)), stubs: 100 };
        assert!(choose(&choices, 25, Some(Position::MAX)).is_none(), "it would be moved again and again, for nothing");
    }

    #[test]
    fn a_segment_that_is_written_to_or_fed_from_is_never_chosen() {
        let mut open = [choice(0, 100, 0, 0)];
        open[0].may_go = false;
        assert_eq!(chosen(open, 100, true), None);
    }
}
