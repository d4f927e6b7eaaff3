//! Compaction of the journal: what is still needed of the segments that hold least of it is appended again, and they are
//! let go.
//!
//! Live bytes of each segment are counted exactly, so nothing is sampled: the segment with the largest dead part is next.
//! One segment is in work at a time, a piece of it in each step:
//!
//! 1. *Moving.* A piece is read, of what may be needed: batches that lie where nobody needs anything are passed over. What
//!    seems needed is asked for again under its partition's lock, and appended there as kept commands, in small batches, so
//!    that a writer waits for a few objects at the most.
//! 2. *Settling.* What was moved is synced. Ledgers that were not written out beyond the segment are, because after a crash
//!    they would be replayed from it. Then nothing in the segment may be counted as live; if something is, it stays.
//! 3. *Waiting.* Snapshots that are older than the moves still read from the segment, and feeds and listeners may have begun
//!    before its end since it was chosen; when they are gone or behind it, it is let go.
//!
//! A crash at any point leaves the segment, and perhaps kept commands that say what is true anyhow. Damage that is known, or found
//! in what is read, is never compacted away: its segment stays for whoever wants to look at it. So does one that cannot be read, or
//! whose objects cannot be said again, while the others go on.
//!
//! The rule "worst first" and its cost are those of log-structured file systems (Rosenblum and Ousterhout, 1992).
//!
//! May use: `journal`, `kv`, partitions. Must not know: protocols.

mod choice;
mod look;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use journal::{Batch, Damage, Level, Log, Position, SegmentStats, StateMachine, Visit};
use kv::{LiveBytes, NeededParts, Older, Recorded, SegmentBytes};

use self::choice::{Behind, Choice, Choices, Due, Pace, choose};
use self::look::{Candidate, Looks};

use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::schedule::{CompactionOptions, Schedule};
use crate::series::seal::When;
use crate::store::{Inner, Store, lock};

/// Bytes of journal read in one step.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes appended under one partition's lock.
const MOVE_BYTES: usize = 128 << 10;
/// How often it is looked whether there is something to do.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// What is dead beyond what is usual, for each time that the rate limit is exceeded by: space that does not come back is worse.
const BEHIND_BYTES_PER_HASTE: u64 = 32 << 20;
/// What is dead beyond what writers may leave behind, for each microsecond that one of them pauses.
const DEBT_BYTES_PER_MICRO: u64 = 1 << 20;

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
    /// Dead bytes that may be compacted, beyond what is usual: compaction makes haste.
    behind_bytes: AtomicU64,
    /// And beyond what writers may leave behind.
    debt_bytes: AtomicU64,
    /// Runs that were asked for, and runs that ended.
    asked: AtomicU64,
    ended: AtomicU64,
    /// Whether segments are missing that a ledger has not heard all of.
    is_led_over_gap: bool,
    /// Whether the background waits for [`Store::release_compaction`].
    is_held: AtomicBool,
}

#[derive(Default)]
struct Work {
    moving: Option<Moving>,
    waiting: Vec<Waiting>,
    /// Segments that could not be emptied; tried again after opening.
    stubborn: BTreeSet<Position>,
    /// Where the journal ended when the run began that is under way.
    run: Option<Position>,
    pace: Pace,
    /// The schedule's slot when it was last looked at, once it was.
    slot: Option<Option<u64>>,
}

struct Moving {
    base: Position,
    end: Position,
    bytes: u64,
    older: Older,
    needed: NeededParts,
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

type Tried<T> = std::result::Result<T, Failed>;

/// Why something could not be done for a segment.
enum Failed {
    /// Because of what is in it, or what that speaks of: others need not wait for it.
    Segment(Error),
    /// Because of something that any other would meet.
    All(Error),
}

impl From<kv::Error> for Failed {
    fn from(error: kv::Error) -> Self {
        use journal::Error::{Damaged, Io, Missing};
        use kv::Error::{Command, Journal, Value};
        match error {
            Value { .. } | Command | Journal(Io { .. } | Damaged { .. } | Missing { .. }) => {
                Self::Segment(error.into())
            }
            error => Self::All(error.into()),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::All(error)
    }
}

impl Compactor {
    /// With nothing done yet.
    pub(crate) fn new(is_led_over_gap: bool, is_held: bool) -> Self {
        Self { is_led_over_gap, is_held: AtomicBool::new(is_held), ..Self::default() }
    }

    /// Whether the background is to compact nothing yet.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

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
        u32::try_from(1 + self.behind_bytes.load(Ordering::Relaxed) / BEHIND_BYTES_PER_HASTE).unwrap_or(u32::MAX)
    }

    /// Notes how far compaction is behind.
    fn note(&self, behind: Behind) {
        self.behind_bytes.store(behind.usual_bytes, Ordering::Relaxed);
        self.debt_bytes.store(behind.debt_bytes, Ordering::Relaxed);
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

impl Inner {
    /// How much journal there is at a position and behind it: less than addresses say, as each opening passes over some.
    pub(crate) fn journal_bytes_behind(&self, from: Position) -> u64 {
        let segments = self.journal.segment_stats();
        let real = segments.iter().filter(|segment| !segment.is_stub);
        real.map(|segment| choice::bytes_behind(segment, from)).sum()
    }

    fn choices(&self, work: &Work, segments: &[SegmentStats]) -> Choices {
        let mut live = LiveBytes::default();
        self.partitions.iter().for_each(|partition| live.merge(partition.lock().live()));
        let live: BTreeMap<Position, SegmentBytes> = live.iter().collect();
        // What feeds may still ask for.
        let newest = choice::newest_begin(segments, self.options.compaction.keep_bytes).get();
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
            missing_from: self.journal.missing_from(),
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
            if is_running && work.run.is_none() {
                self.write_out_engines();
            }
            work.run = is_running.then(|| work.run.unwrap_or(self.journal.watermarks().appended));
            if !is_running && options.schedule != Schedule::Continuous {
                return Ok(LOOK_INTERVAL);
            }
            let segments = self.journal.segment_stats();
            let choices = self.choices(work, &segments);
            let behind = Behind::of(&choices.free);
            let may_wait = behind.usual_bytes == 0 && self.writers_outrun(work, options.bytes_per_second);
            self.compactor.note(behind);
            let due = Due { dead_percent: options.dead_percent, run: work.run, may_wait };
            let Some(choice) = choose(&choices, due) else {
                self.compactor.end_run();
                return Ok(LOOK_INTERVAL);
            };
            let SegmentStats { base, end, bytes, .. } = choice.stats;
            let older = choices.older(&segments, base);
            let needed = self.needed_parts(&choice.stats);
            work.moving = Some(Moving { base, end, bytes, older, needed, from: base, is_damaged: false });
        }
        let Some(moving) = &mut work.moving else { return Ok(LOOK_INTERVAL) };
        let (read, is_over) = match self.move_piece(moving) {
            Ok(moved) => moved,
            Err(Failed::All(error)) => return Err(error),
            Err(Failed::Segment(error)) => {
                let base = moving.base;
                work.moving = None;
                self.leave(work, base, &error);
                return Ok(LOOK_INTERVAL);
            }
        };
        if is_over && let Some(moved) = work.moving.take() {
            self.settle_segment(work, &moved)?;
        }
        Ok(options.pause(read) / self.compactor.haste())
    }

    /// Whether writers append more than compaction may read; never, if that may be any number of bytes.
    fn writers_outrun(&self, work: &mut Work, bytes_per_second: u64) -> bool {
        let moved = self.compactor.counters.moved_bytes.load(Ordering::Relaxed);
        let written = self.journal.watermarks().appended.get().saturating_sub(moved);
        let pace = work.pace.look(self.clock.now(), written);
        bytes_per_second > 0 && pace > bytes_per_second
    }

    /// Where in a sealed segment something is needed: less and less from now on.
    fn needed_parts(&self, segment: &SegmentStats) -> NeededParts {
        let is_damaged = |damage: &Damage| (segment.base..segment.end).contains(&damage.position);
        if segment.damaged_bytes > 0 || self.journal.recovery().damage.iter().any(is_damaged) {
            return NeededParts::unknown(segment.base);
        }
        let mut needed = NeededParts::new(segment.base);
        self.partitions.iter().for_each(|partition| needed.add(partition.lock().live()));
        needed
    }

    /// Writes out what spaces and series still need the journal for, so that a run takes all that was there when it began. By themselves
    /// they do so when it is much. What fails is told, tried again later, and keeps its part of the journal.
    fn write_out_engines(&self) {
        let _ = self.told(&self.shelf.sealer, self.seal_series(When::Now));
        let _ = self.told(&self.jobs.snapshots, self.catch_up_spaces());
    }

    /// Leaves a segment as it is, and tells why.
    fn leave(&self, work: &mut Work, base: Position, error: &Error) {
        work.stubborn.insert(base);
        let text = format!("the segment at {base} stays as it is until the store is opened again: {error}");
        let _ = self.told::<()>(&self.jobs.compaction, Err(Error::new(error.kind(), text)));
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
    fn move_piece(&self, moving: &mut Moving) -> Tried<(u64, bool)> {
        let mut looks = Looks::new(&self.partitions, moving.older, &moving.needed);
        let (mut read, mut next, mut failed, mut is_damaged) = (0, None, None, false);
        let wants = |from, to| moving.needed.may_begin(from, to);
        let outcome = self.journal.read_segment(moving.base, moving.from, &wants, &mut |found| {
            let record = match found {
                Visit::Record(record) => record,
                Visit::Damaged(_) => {
                    is_damaged = true;
                    return Ok(());
                }
            };
            if let Err(error) = record.sections.iter().try_for_each(|section| looks.add(section, record.position)) {
                failed = Some(error);
                return Err(journal::Error::Closed);
            }
            base::step_aside();
            read += record.end.get() - record.position.get();
            if read < PIECE_BYTES {
                return Ok(());
            }
            next = Some(record.end);
            Err(journal::Error::Closed)
        });
        moving.is_damaged |= is_damaged;
        match (failed, outcome, next) {
            (Some(error), ..) => return Err(error.into()),
            (None, Err(error), None) => return Err(kv::Error::from(error).into()),
            _ => {}
        }
        self.compactor.counters.read_bytes.fetch_add(read, Ordering::Relaxed);
        for (partition, candidates) in self.partitions.iter().zip(&looks.end()?) {
            self.move_candidates(partition, candidates, moving)?;
        }
        if let Some(next) = next {
            moving.from = next;
        }
        Ok((read, next.is_none()))
    }

    fn move_candidates(&self, partition: &Partition, candidates: &[Candidate], moving: &Moving) -> Tried<()> {
        let mut rest = candidates;
        while !rest.is_empty() {
            base::step_aside();
            partition.check()?;
            let mut engine = partition.lock();
            let mut batch = Batch::new();
            let mut taken = 0;
            batch.section(partition.id, |to| -> kv::Result<()> {
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
            let appended = self.journal.append_freeing(&batch).map_err(Error::from)?;
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
        self.write_out_behind(moved)?;
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

    /// Writes out the ledgers that would still need the segment. On a full disk only the journal's spare space is left, and this is the
    /// last step before there is more; but no more is taken than comes back, nor what others need to end their work.
    fn write_out_behind(&self, moved: &Moving) -> Result<()> {
        let is_behind = |partition: &&Partition| partition.reader.persisted().unwrap_or_default() < moved.end;
        let behind: Vec<&Partition> = self.partitions.iter().filter(is_behind).collect();
        let bytes: u64 = behind.iter().map(|partition| partition.reader.memory_bytes()).sum();
        let pays = bytes <= moved.bytes.min(self.journal.spare_bytes() / 2);
        for partition in behind {
            match self.check_spare().and_then(|()| self.write_out(partition)) {
                Err(_) if pays => self.journal.with_spare(|| self.write_out(partition))?,
                written => written?,
            }
        }
        Ok(())
    }

    /// Lets go of the segments that nobody reads from any more.
    fn let_go(&self, work: &mut Work) -> Result<()> {
        let mut outcome = Ok(());
        for waiting in std::mem::take(&mut work.waiting) {
            let is_gone = match self.let_go_unread(&waiting) {
                Ok(is_gone) => is_gone,
                Err(Failed::Segment(error)) => {
                    self.leave(work, waiting.base, &error);
                    continue;
                }
                Err(Failed::All(error)) => {
                    outcome = outcome.and(Err(error));
                    false
                }
            };
            if !is_gone {
                work.waiting.push(waiting);
                continue;
            }
            for partition in &self.partitions {
                partition.lock().forget_segments(|segment| segment != waiting.base);
            }
            self.compactor.counters.segments.fetch_add(1, Ordering::Relaxed);
            self.compactor.counters.reclaimed_bytes.fetch_add(waiting.bytes, Ordering::Relaxed);
        }
        self.compactor.counters.waiting.store(work.waiting.len() as u64, Ordering::Relaxed);
        outcome?;
        let segments = self.journal.segment_stats();
        if let Some(first) = segments.iter().find(|segment| !segment.is_stub)
            && segments.first().is_some_and(|segment| segment.is_stub)
            && !self.needs_missing(&segments)
        {
            self.journal.trim(first.base)?;
        }
        Ok(())
    }

    /// Whether objects lie in segments that are missing, or may: where the journal begins must not be noted behind these then, or nothing would
    /// tell of them any more, and put back they would be let go of.
    fn needs_missing(&self, segments: &[SegmentStats]) -> bool {
        let is_there = |base: Position| segments.binary_search_by_key(&base, |segment| segment.base).is_ok();
        let needs = |partition: &Partition| {
            partition
                .lock()
                .live()
                .iter()
                .any(|(base, of)| of.live > 0 && !is_there(base) && !self.journal.has_let_go(base))
        };
        self.journal.missing_from().is_some() && (self.compactor.is_led_over_gap || self.partitions.iter().any(needs))
    }

    /// Lets go of a segment unless somebody reads from it, or may yet; returns whether it is gone.
    fn let_go_unread(&self, waiting: &Waiting) -> Tried<bool> {
        let is_seen = self.oldest_snapshot().is_some_and(|oldest| oldest < waiting.through);
        if is_seen || self.listeners_keep() < waiting.end {
            return Ok(false);
        }
        // Held until the segment is gone: a feed or listener that begins meanwhile finds that the journal begins behind it.
        let feeds = lock(&self.feeds);
        let is_fed = feeds.keys().next().is_some_and(|feed| *feed < waiting.end);
        Ok(!is_fed && self.journal.let_go(waiting.base).map_err(kv::Error::from)?)
    }
}

impl Store {
    /// Lets the background compact, where [`crate::Options::holds_compaction`] has it wait for this.
    pub fn release_compaction(&self) {
        let inner = self.inner();
        inner.compactor.is_held.store(false, Ordering::Release);
        inner.compaction_wake.raise();
    }

    /// Asks for a compaction run: everything that is worth it is compacted, whatever the schedule, by the background
    /// threads. Does not wait.
    ///
    /// # Errors
    /// `Conflict` when a run is under way already; `Closed`; `Unavailable` when the disk refuses.
    pub fn start_compaction(&self) -> Result<()> {
        let inner = self.inner();
        inner.check_open()?;
        // The run takes what is sealed, and the background may not have come to all that is full.
        inner.journal.seal_full()?;
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
    /// As [`Store::start_compaction`]; what writing meets. Nothing is lost then. That a segment cannot be read is told to
    /// [`crate::Options::trouble`], and the others are compacted.
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
