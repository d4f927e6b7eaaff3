//! The journal: its directory, its state, and the `Log` it is.
//!
//! Locks, always taken in this order: `holds`, `sealing`, `next`, `writing`, `tail`, `segments`; the small ones (`syncing`, `due`, `ages`,
//! `damage`, `spare`) last and one at a time.
//!
//! May use: all of this crate. Must not know: engines, stores, protocols.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use base::{Clock, DirLock, Files, Limits, Signal, Yielder};

use crate::batch::{Appended, Batch};
use crate::commit::{Ages, Due, Writing, load, lock};
use crate::damage::{DamageKind, damage_at};
use crate::error::{Error, Result};
use crate::footer::footer_bytes_max;
use crate::header::header_bytes;
use crate::log::{Level, Log, Visit, Watermarks};
use crate::position::Position;
use crate::read::Interrupted;
use crate::record::RECORD_BYTES_MIN;
use crate::recovery::{Mode, Recovery, recover};
use crate::segment::{Segment, base_of};
use crate::spare::Spare;
use crate::stats::{Counters, SegmentStats, Stats};
use crate::syncing::Syncing;
use crate::tail::{Tail, capacity_for};
use crate::upkeep::Pace;

/// Disk space taken at a time for the open segment.
const RESERVE_BYTES: u64 = 8 << 20;
/// What a sync is taken to cover before there were any: so much that zeros ahead are not worth their while.
const UNKNOWN_GROUP_BYTES: u64 = 1 << 20;
/// Disk space kept back for what frees more, or four segments where they are small: see `spare.rs`.
const SPARE_BYTES: u64 = 1 << 20;
const LOCK_FILE: &str = "lock";

/// How to open a journal.
#[derive(Debug, Clone)]
pub struct Options {
    /// Identity of the store; segments of another are refused.
    pub store: u128,
    /// Number of partitions, fixed for the life of the store. At least 1.
    pub partitions: u16,
    /// Raised when [`Journal::step`] has something to do before the time it named.
    pub wake: Arc<Signal>,
    /// See [`Limits::segment_bytes`].
    pub segment_bytes: u64,
    /// See [`Limits::zero_ahead_bytes`].
    pub zero_ahead_bytes: u64,
    /// See [`Limits::group_bytes_max`].
    pub group_bytes_max: usize,
    /// See [`Limits::batch_bytes_max`].
    pub batch_bytes_max: usize,
    /// Disk space taken at a time for the open segment, in bytes.
    pub reserve_bytes: u64,
    /// The first position that was perhaps not synced, as far as something beside the journal knows. What is not there before it is
    /// damage, also at the end of the log.
    pub promised: Position,
}

impl Options {
    /// Options of a store with these limits.
    #[must_use]
    pub fn new(store: u128, partitions: u16, limits: &Limits) -> Self {
        Self {
            store,
            partitions,
            wake: Arc::new(Signal::new()),
            segment_bytes: limits.segment_bytes,
            zero_ahead_bytes: limits.zero_ahead_bytes,
            group_bytes_max: limits.group_bytes_max,
            batch_bytes_max: limits.batch_bytes_max,
            reserve_bytes: RESERVE_BYTES.min(limits.segment_bytes),
            promised: Position::ZERO,
        }
    }
}

/// What the file of a segment without records takes, header and footer.
fn empty_bytes(partitions: usize) -> u64 {
    header_bytes(partitions) + footer_bytes_max(0, partitions)
}

/// For what disk space is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What clients append: the spare stays for what frees space.
    New,
    /// What frees space: what compaction appends again, and what only removes.
    Freeing,
}

/// An open journal. One process may open a directory at a time.
///
/// Dropping it without [`Journal::close`] is what a killed process does: nothing acknowledged is lost, and the next
/// opening scans the last segment.
pub struct Journal {
    pub(crate) options: Options,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dir: PathBuf,
    pub(crate) segments: RwLock<BTreeMap<Position, Arc<Segment>>>,
    /// How many hold the files of sealed segments; held while such a file is removed or replaced.
    pub(crate) holds: Mutex<usize>,
    /// Held while full segments are sealed.
    pub(crate) sealing: Mutex<()>,
    /// The segment that comes after the current one, when it is prepared.
    pub(crate) next: Mutex<Option<Arc<Segment>>>,
    pub(crate) writing: Mutex<Writing>,
    pub(crate) tail: Mutex<Tail>,
    pub(crate) syncing: Mutex<Syncing>,
    /// Held while a file is synced by the handle that it is written by.
    pub(crate) own_handle: Mutex<()>,
    /// Those who share syncs.
    pub(crate) yielder: Yielder,
    pub(crate) due: Mutex<Due>,
    pub(crate) ages: Mutex<Ages>,
    pub(crate) appended: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) synced: AtomicU64,
    /// Average bytes of the last syncs.
    pub(crate) group_bytes: AtomicU64,
    /// How fast is written, as the background last saw it.
    pub(crate) pace: Mutex<Pace>,
    /// Batches that the last sync covered.
    pub(crate) last_group: AtomicU64,
    pub(crate) poison: OnceLock<Arc<Error>>,
    pub(crate) counters: Counters,
    pub(crate) damage: Mutex<Recovery>,
    pub(crate) spare: Arc<Spare>,
    /// Where it is noted to begin.
    pub(crate) begin: AtomicU64,
    /// What is left of the reading that was broken off last.
    pub(crate) interrupted: Mutex<Option<Interrupted>>,
    /// Released by closing.
    held: Mutex<Option<Box<dyn DirLock>>>,
}

impl Journal {
    /// Opens or creates the journal in `dir`.
    ///
    /// Reads what is not sealed, usually one segment. Returns what recovery found; damage is not an error. On a full disk it
    /// gives the spare space up, and then serves reads, and what frees space.
    ///
    /// # Errors
    /// `InUse` when another process has it; `Foreign` when the directory belongs to something else; `DiskFull` when there is
    /// no space for a footer or a file's name either; `Io`.
    pub fn open(
        files: Arc<dyn Files>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        options: Options,
    ) -> Result<(Self, Recovery)> {
        assert!(options.partitions > 0, "a journal has at least one partition");
        files.create_dir(dir).map_err(|error| Error::io("creating", dir, error))?;
        let held = files.lock(&dir.join(LOCK_FILE)).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Error::InUse { path: dir.to_owned() },
            _ => Error::io("locking", dir, error),
        })?;
        remove_halves(&*files, dir)?;
        let spare = Spare::find(&files, dir, SPARE_BYTES.min(4 * options.segment_bytes));
        let mut given = None;
        let recovered = match recover(&*files, dir, &options, Mode::Seal) {
            Err(Error::DiskFull { .. }) => {
                given = Some(spare.give());
                recover(&*files, dir, &options, Mode::Seal)?
            }
            recovered => recovered?,
        };
        let first = empty_bytes(usize::from(options.partitions));
        let capacity =
            capacity_for(RECORD_BYTES_MIN, header_bytes(usize::from(options.partitions)), options.segment_bytes);
        let reserve = options.reserve_bytes.min(capacity);
        let create = |reserve| Segment::create(&*files, dir, recovered.next_base, capacity, reserve);
        let current = Arc::new(match create(reserve) {
            Err(Error::DiskFull { .. }) => {
                given = given.or_else(|| Some(spare.give()));
                match create(first) {
                    // Its header waits until the first batch finds space.
                    Err(Error::DiskFull { .. }) => create(0)?,
                    created => created?,
                }
            }
            created => created?,
        });
        let previous = (recovered.previous_base, recovered.previous_end);
        let tail = Tail::new(Arc::clone(&current), recovered.states, previous, options.store, files.boot_id());
        let mut segments = recovered.segments;
        segments.insert(current.base, current);
        let start = tail.end().get();
        let first = segments.values().next().map(|first| first.entered_at()).unwrap_or_default();
        let begin = recovered.begin.unwrap_or(first);
        let journal = Self {
            segments: RwLock::new(segments),
            holds: Mutex::default(),
            sealing: Mutex::default(),
            next: Mutex::new(None),
            writing: Mutex::default(),
            tail: Mutex::new(tail),
            syncing: Mutex::default(),
            own_handle: Mutex::default(),
            yielder: Yielder::default(),
            due: Mutex::default(),
            ages: Mutex::default(),
            appended: AtomicU64::new(start),
            written: AtomicU64::new(start),
            synced: AtomicU64::new(start - 1),
            group_bytes: AtomicU64::new(UNKNOWN_GROUP_BYTES),
            pace: Mutex::default(),
            last_group: AtomicU64::new(0),
            poison: OnceLock::new(),
            counters: Counters::default(),
            damage: Mutex::new(recovered.report.clone()),
            spare,
            begin: AtomicU64::new(begin.get()),
            interrupted: Mutex::default(),
            dir: dir.to_owned(),
            options,
            files,
            clock,
            held: Mutex::new(Some(held)),
        };
        // The header of the new segment, if there is space for it: from here on there is no doubt that it exists.
        journal.sync_all()?;
        if recovered.begin.is_none() {
            match journal.note_begin(begin) {
                // The next opening notes it.
                Ok(()) | Err(Error::DiskFull { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // One that found no space for its header does not tell that there was a journal.
        if lock(&journal.tail).segment.reserved() > 0 || journal.stats().segments > 1 {
            journal.remove_unused(&recovered.unused)?;
        }
        drop(given);
        journal.spare.make();
        Ok((journal, recovered.report))
    }

    /// Writes, syncs and seals everything, and lets go of the directory. Later appends fail with `Closed`.
    ///
    /// # Errors
    /// The failure of a write or sync; acknowledged data is as safe as it was. The directory may be opened again all the same.
    pub fn close(&self) -> Result<()> {
        // From here on nothing gets a position, so what is synced now is everything.
        if std::mem::replace(&mut lock(&self.tail).closed, true) {
            return Ok(());
        }
        let sealed = self.seal_all();
        drop(lock(&self.held).take());
        sealed
    }

    fn seal_all(&self) -> Result<()> {
        self.check()?;
        self.sync_all()?;
        let _sealing = lock(&self.sealing);
        let full = {
            let mut tail = lock(&self.tail);
            let last = tail.take_full();
            let mut full = std::mem::take(&mut tail.full);
            // One that never had space is no segment, and goes when the journal is opened.
            full.extend(Some(last).filter(|last| last.segment.reserved() > 0));
            full
        };
        lock(&self.writing).finish_sum();
        for full in full {
            self.seal(&full).map_err(|error| self.poisoned(error))?;
        }
        if let Some(next) = lock(&self.next).take() {
            self.remove_unused(std::slice::from_ref(&next.path))?;
        }
        Ok(())
    }

    /// What recovery and reading found damaged since open.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        lock(&self.damage).clone()
    }

    /// Base position of the segment that holds the address `at`; `at` itself when none does.
    #[must_use]
    pub fn segment_base(&self, at: u64) -> Position {
        self.segment_at(at).map_or(Position::new(at), |segment| segment.base)
    }

    /// Live numbers.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let watermarks = self.watermarks();
        let counters = &self.counters;
        let batches = counters.appended_batches.load(Ordering::Acquire);
        let synced = counters.synced_batches.load(Ordering::Acquire);
        let damage = self.recovery().damage;
        let segments = self.segment_stats();
        let unsynced_batches = batches.saturating_sub(synced);
        let age = lock(&self.ages).oldest().map(|since| self.clock.now().since(since));
        Stats {
            watermarks,
            // Positions jump between segments; what is unsynced almost always lies in one.
            unsynced_bytes: if unsynced_batches == 0 {
                0
            } else {
                watermarks.appended.get().saturating_sub(watermarks.synced.get())
            },
            unsynced_batches,
            unsynced_age: age.filter(|_| unsynced_batches > 0).unwrap_or_default(),
            batches,
            bytes: counters.appended_bytes.load(Ordering::Acquire),
            group_batches: counters.group_batches.quantiles(),
            sync_nanos: counters.sync_nanos.quantiles(),
            segments: segments.len() as u64,
            segment_bytes: segments.iter().map(|segment| segment.bytes).sum(),
            damaged_ranges: damage.len() as u64,
            damaged_bytes: damage.iter().map(|damage| damage.bytes).sum(),
            poisoned: self.poison.get().is_some(),
        }
    }

    /// Each segment, in order.
    #[must_use]
    pub fn segment_stats(&self) -> Vec<SegmentStats> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let appended = self.watermarks().appended;
        let one = |segment: &Arc<Segment>| SegmentStats {
            records_end: match segment.trailer() {
                Some(trailer) => segment.base.plus(trailer.data_end),
                None => segment.records_end(appended).max(segment.base),
            },
            base: segment.base,
            bytes: segment.reserved(),
            sealed: segment.trailer().is_some(),
            is_stub: segment.is_stub(),
            is_let_go: segment.is_let_go(),
            end: segment.end(),
            damaged_bytes: segment.trailer().map_or(0, |trailer| trailer.damaged_bytes),
        };
        segments.values().map(one).collect()
    }

    /// Calls `work` with the spare disk space given up for it: for what frees more, when it found none. While it runs, and
    /// until there is room for the spare again, what clients append gets no new space.
    pub fn with_spare<T>(&self, work: impl FnOnce() -> T) -> T {
        let _given = self.spare.give();
        work()
    }

    /// Whether the spare space is there. Without it what is left of the disk is for what frees space, and for opening: nobody else is to
    /// take any.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        self.spare.state().is_there
    }

    /// How much the spare space is.
    #[must_use]
    pub fn spare_bytes(&self) -> u64 {
        self.spare.bytes()
    }

    /// Bytes that the disk has left beside the spare space, as far as the system tells.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        self.spare.free_bytes()
    }

    /// Whether the disk has less left than the spare space.
    #[must_use]
    pub fn is_short_of_space(&self) -> bool {
        !self.spare.has_room()
    }

    /// As [`Log::append`], for what frees space: what is appended again so that the segment in which it lies can go, and what
    /// only removes. On a full disk it may take the spare space, but for the part that ends such work.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_freeing(&self, batch: &Batch) -> Result<Appended> {
        match self.append_for(batch, Purpose::Freeing) {
            Err(Error::DiskFull { .. }) => self.with_spare(|| self.append_for(batch, Purpose::Freeing)),
            appended => appended,
        }
    }

    fn append_for(&self, batch: &Batch, purpose: Purpose) -> Result<Appended> {
        if batch.is_empty() || batch.len() > self.options.batch_bytes_max {
            return Err(Error::BatchSize { bytes: batch.len(), bytes_max: self.options.batch_bytes_max });
        }
        let known = |section: &crate::batch::Draft| section.partition.get() < self.options.partitions;
        assert!(batch.sections.iter().all(known), "a section's partition exists");
        self.check()?;
        let sum = batch.sum();
        if let Some(appended) = self.push(batch, sum, purpose)? {
            return Ok(appended);
        }
        // The group is large: write it before more is added, so that memory stays bounded.
        self.flush()?;
        self.push_rolling(batch, sum, purpose)
    }

    /// Sees to it that writes below `to` find disk space in the segment, with `ahead` more while there is enough.
    fn grow(&self, segment: &Segment, to: u64, ahead: u64, purpose: Purpose) -> Result<()> {
        if to <= segment.reserved() {
            return Ok(());
        }
        let spare = self.spare.state();
        if !spare.is_there && (purpose == Purpose::New || !self.spare.leaves_room(to - segment.reserved())) {
            return Err(Error::DiskFull { path: segment.path.clone() });
        }
        segment.reserve(to, if spare.is_there { ahead } else { 0 })
    }

    pub(crate) fn create_segment(&self, base: Position, purpose: Purpose) -> Result<Arc<Segment>> {
        let capacity = self.options.segment_bytes;
        let spare = self.spare.state();
        let first = empty_bytes(usize::from(self.options.partitions));
        let reserve = match (spare.is_there, purpose) {
            (true, _) => self.options.reserve_bytes.min(capacity),
            (false, Purpose::Freeing) if self.spare.leaves_room(first) => first,
            (false, _) => return Err(Error::DiskFull { path: self.dir.clone() }),
        };
        Segment::create(&*self.files, &self.dir, base, capacity, reserve).map(Arc::new)
    }

    /// Makes room for a record of `bytes` by going on in the next segment. `next` was locked before the tail.
    pub(crate) fn roll(
        &self,
        next: &mut Option<Arc<Segment>>,
        tail: &mut Tail,
        (bytes, purpose): (u64, Purpose),
    ) -> Result<()> {
        // Its header, if that had no space yet.
        self.grow(&tail.segment, tail.offset(), 0, purpose)?;
        let segment = match next.take() {
            Some(prepared) => prepared,
            None => self.create_segment(tail.segment.end(), purpose)?,
        };
        debug_assert_eq!(segment.base, tail.segment.end());
        let header = header_bytes(usize::from(self.options.partitions));
        let capacity = capacity_for(bytes, header, self.options.segment_bytes);
        segment.set_capacity(capacity);
        let is_unusual = capacity > self.options.segment_bytes;
        let with_footer = header + bytes + footer_bytes_max(1, usize::from(self.options.partitions));
        let to = if is_unusual { capacity } else { with_footer.min(capacity) };
        if let Err(error) = self.grow(&segment, to, 0, purpose) {
            *next = Some(segment);
            return Err(error);
        }
        if is_unusual {
            // The file's length tells the capacity when a power cut takes the header: positions in here are never given again.
            segment.sync().map_err(|error| self.poisoned(error))?;
        }
        self.segments.write().unwrap_or_else(PoisonError::into_inner).insert(segment.base, Arc::clone(&segment));
        tail.roll(segment);
        self.options.wake.raise();
        Ok(())
    }

    fn push(&self, batch: &Batch, sum: u32, purpose: Purpose) -> Result<Option<Appended>> {
        let bytes = batch.record_len();
        let mut tail = lock(&self.tail);
        if tail.must_roll(bytes) || tail.buffered() > self.options.group_bytes_max {
            return Ok(None);
        }
        self.push_locked(&mut tail, batch, sum, purpose).map(Some)
    }

    fn push_locked(&self, tail: &mut Tail, batch: &Batch, sum: u32, purpose: Purpose) -> Result<Appended> {
        if tail.closed {
            return Err(Error::Closed);
        }
        let now = if tail.open_batches == 0 { self.clock.now() } else { tail.open_since };
        let synced = load(&self.synced);
        let bytes = batch.record_len();
        self.grow(&tail.segment, tail.needs(bytes), self.options.reserve_bytes, purpose)?;
        let appended = tail.push(batch, sum, synced, now);
        self.counters.appended_batches.fetch_add(1, Ordering::AcqRel);
        self.counters.appended_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.appended.store(tail.end().get(), Ordering::Release);
        Ok(appended)
    }

    fn push_rolling(&self, batch: &Batch, sum: u32, purpose: Purpose) -> Result<Appended> {
        let bytes = batch.record_len();
        let mut next = lock(&self.next);
        let mut tail = lock(&self.tail);
        if tail.must_roll(bytes) && !tail.closed {
            self.roll(&mut next, &mut tail, (bytes, purpose))?;
        }
        self.push_locked(&mut tail, batch, sum, purpose)
    }

    pub(crate) fn segment_at(&self, at: u64) -> Result<Arc<Segment>> {
        let position = Position::new(at);
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let found = segments.range(..=position).next_back().map(|(_, segment)| segment);
        found.filter(|segment| position < segment.end()).cloned().ok_or(Error::Missing { position })
    }

    /// Removes files that hold nothing and that no header names.
    fn remove_unused(&self, paths: &[PathBuf]) -> Result<()> {
        for path in paths {
            self.files.remove(path).map_err(|error| Error::io("removing", path, error))?;
        }
        if !paths.is_empty() {
            self.files.sync_dir(&self.dir).map_err(|error| Error::io("syncing", &self.dir, error))?;
        }
        Ok(())
    }
}

/// Removes what letting go had begun to write when it was interrupted.
fn remove_halves(files: &dyn Files, dir: &Path) -> Result<()> {
    let names = files.list(dir).map_err(|error| Error::io("listing", dir, error))?;
    for name in names.iter().filter(|name| name.strip_suffix(".new").is_some_and(|whole| base_of(whole).is_some())) {
        let path = dir.join(name);
        files.remove(&path).map_err(|error| Error::io("removing", &path, error))?;
    }
    Ok(())
}

impl Log for Journal {
    fn append(&self, batch: &Batch) -> Result<Appended> {
        self.append_for(batch, Purpose::New)
    }

    fn wait(&self, position: Position, level: Level) -> Result<()> {
        self.wait_for(position, level)
    }

    fn watermarks(&self) -> Watermarks {
        // In this order each is at most the one read after it.
        let synced = load(&self.synced);
        let written = load(&self.written);
        Watermarks { appended: load(&self.appended), written, synced }
    }

    fn read_from(&self, from: Position, visit: &mut dyn FnMut(Visit<'_>) -> Result<()>) -> Result<()> {
        crate::read::read_from(self, from, visit)
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        let segment = self.segment_at(at)?;
        if segment.is_stub() {
            return Err(Error::Missing { position: Position::new(at) });
        }
        if at + buffer.len() as u64 > load(&self.written).get() {
            self.flush()?;
        }
        segment.read(buffer, at - segment.base.get())
    }

    fn note_damage(&self, at: u64, bytes: u64, reason: &'static str) {
        // What is gone by now is nobody's any more.
        if let Ok(segment) = self.segment_at(at) {
            let offset = at - segment.base.get();
            self.remember_part(damage_at(&segment, DamageKind::Record, offset, bytes, reason));
        }
    }

    fn trim(&self, lowest: Position) -> Result<()> {
        let Some(_none_holds) = self.letting_go() else { return Ok(()) };
        let current = lock(&self.tail).segment.base;
        let gone: Vec<Arc<Segment>> = {
            let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
            let goes = |s: &&Arc<Segment>| s.base < current && s.end() <= lowest && s.trailer().is_some();
            segments.values().filter(goes).cloned().collect()
        };
        let Some(last) = gone.last() else { return Ok(()) };
        let begin = {
            let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
            let first = segments.range(last.end()..).next();
            first.map_or(last.end(), |(_, first)| first.entered_at())
        };
        // The header of the first that stays, if it is new: nothing else would tell where the log stood.
        self.sync_all()?;
        match self.note_begin(begin) {
            Err(Error::DiskFull { .. }) => self.with_spare(|| self.note_begin(begin))?,
            noted => noted?,
        }
        for segment in gone {
            // One after the other, the oldest first, and what fails stays known: one that vanished from the middle would
            // be missed at the next opening.
            self.files.remove(&segment.path).map_err(|error| Error::io("removing", &segment.path, error))?;
            self.segments.write().unwrap_or_else(PoisonError::into_inner).remove(&segment.base);
            self.files.sync_dir(&self.dir).map_err(|error| Error::io("syncing", &self.dir, error))?;
        }
        Ok(())
    }
}
