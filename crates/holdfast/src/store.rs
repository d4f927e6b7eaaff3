//! A store: one directory, its journal, its partitions, and how they are opened and closed.
//!
//! May use: everything in this crate. Must not know: protocols.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{Clock, DirLock, Files, Limits, Signal, Worker};
use journal::{Damage, Journal, Log, PartitionId, Position, Watermarks};
use kv::{Engine, Found, LiveBytes, Reader};

use crate::background::{self, Spawn};
use crate::backup;
use crate::beside;
use crate::compaction::Compactor;
use crate::coordinator::{Coordinator, Room};
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::{Exclusive, Scope};
use crate::gaps;
use crate::identity::{self, Identity, Used};
use crate::jobs::Jobs;
use crate::kv::{Kv, PutOptions, Shown};
use crate::options::{Options, World};
use crate::partition::Partition;
use crate::replay;
use crate::scrub::ScrubCounters;
use crate::series::queries::Queries;
use crate::series::shelf::Shelf;
use crate::snapshot::Snapshot;
use crate::space::{KnownListeners, QueryCache, QueryMemory, Registry, check_outside};
use crate::stats::{SegmentLive, Stats};
use crate::transaction::Transaction;
use crate::watch::KeyWatchers;

/// One open Holdfast directory: a journal and the engines it feeds.
///
/// Cheap to clone; clones share everything. Dropping the last clone stops the background threads and closes, as
/// [`Store::close`] does. One process may open a directory at a time.
///
/// Where much is written between two syncs a part of the journal's newest file is mapped into memory. A disk that fails under it is told by
/// the signal SIGBUS, for which the process then has a handler: it makes an error of the write of that, and passes every other one on to
/// who handled it before. A program with a handler of its own installs it before it opens a store, or calls on the former one from it.
///
/// # Errors
/// Every method returns [`Error`]; match on [`Error::kind`]. After a failed write or sync, writes keep failing with
/// [`ErrorKind::Unavailable`] until the store is reopened; reads of durable data go on.
#[derive(Clone)]
pub struct Store(Arc<Owner>);

/// Ends the threads when the last store is dropped; they hold `Inner` only.
struct Owner {
    inner: Arc<Inner>,
    workers: Mutex<Vec<Worker>>,
}

/// What all clones, threads and open transactions share.
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) journal_wake: Arc<Signal>,
    pub(crate) ledger_wake: Arc<Signal>,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) stopping: AtomicBool,
    pub(crate) expired: AtomicU64,
    /// How long writers were held back, all together, and how often.
    pub(crate) delay_nanos: AtomicU64,
    pub(crate) delayed_writes: AtomicU64,
    /// Whether there are threads for the background's work.
    pub(crate) threads: bool,
    pub(crate) scrub_wake: Arc<Signal>,
    pub(crate) pages_wake: Arc<Signal>,
    pub(crate) compaction_wake: Arc<Signal>,
    pub(crate) compactor: Compactor,
    /// What is told of work in the background.
    pub(crate) jobs: Jobs,
    pub(crate) scrubbed: ScrubCounters,
    pub(crate) coordinator: Coordinator,
    /// The types of spaces.
    pub(crate) spaces: Registry,
    /// What their queries hold.
    pub(crate) query_memory: Arc<QueryMemory>,
    /// Those that need not be parsed again.
    pub(crate) query_cache: QueryCache,
    /// Snapshots of spaces that opening found damaged, or did not find.
    pub(crate) lost_snapshots: Vec<Damage>,
    /// Those that the scrubber found damaged in its last round.
    pub(crate) damaged_snapshots: Mutex<BTreeMap<PartitionId, Damage>>,
    pub(crate) space_wake: Arc<Signal>,
    /// What is sealed of the series.
    pub(crate) shelf: Shelf,
    pub(crate) series_wake: Arc<Signal>,
    pub(crate) merge_wake: Arc<Signal>,
    pub(crate) queries: Queries,
    /// One backup at a time.
    pub(crate) backing_up: Mutex<()>,
    snapshots: Mutex<BTreeMap<Position, usize>>,
    pub(crate) feeds: Mutex<BTreeMap<Position, usize>>,
    pub(crate) listeners_known: Mutex<KnownListeners>,
    pub(crate) key_watchers: KeyWatchers,
    closed: AtomicBool,
    dir: PathBuf,
    pub(crate) identity: Mutex<Identity>,
    /// Released by closing, so that another process may open the directory while clones of the store are still about.
    held: Mutex<Option<Box<dyn DirLock>>>,
}

impl Store {
    /// Opens or creates the store in `dir`.
    ///
    /// Replays what the ledgers had not written out; a missing or damaged ledger is rebuilt from the journal. Blocks
    /// for as long as that takes: see [`Options::progress`].
    ///
    /// # Errors
    /// `Unavailable` when another process has the directory open, or the disk refuses; `Invalid` when the directory
    /// holds something else; `Corrupt` when the journal ends before what lies beside it: files of it are missing, and nothing was
    /// changed. Other damage is no error: see [`Stats::damage`].
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        let world = World::real_for(dir.as_ref(), &options.limits, options.ledger_compression);
        Self::open_in(&world, dir.as_ref(), options)
    }

    /// Opens or creates the store in `dir` of another world: for simulations.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_in(world: &World, dir: &Path, options: Options) -> Result<Self> {
        Self::open_with(world, dir, options, &|name, body| Worker::start(name, body))
    }

    /// As [`Store::open_in`], with the background's threads from `spawn`.
    pub(crate) fn open_with(world: &World, dir: &Path, mut options: Options, spawn: &Spawn<'_>) -> Result<Self> {
        let io = |error: std::io::Error| backup::unusable(dir, &error);
        world.files.create_dir(dir).map_err(io)?;
        // Before anything is left there.
        backup::refuse_what_is_no_store(&*world.files, dir)?;
        let was_open = beside::was_open(&*world.files, dir);
        let held = world.files.lock(&dir.join(backup::LOCK_FILE)).map_err(io)?;
        beside::refuse_lost_journal(&*world.files, dir, &*world.ledgers, &options)?;
        beside::refuse_lost_segments(&*world.files, dir, was_open)?;
        let settled = identity::settle(&*world.files, dir, options.partitions, world.entropy)?;
        let identity = settled.identity;
        options.partitions = identity.partitions;
        let promised = beside::promised(beside::furthest_ledger(&*world.ledgers, identity.partitions)?);
        let journal_options = journal::Options::new(identity.store, identity.partitions, &options.limits);
        let journal_options = journal::Options { promised, ..journal_options };
        let journal_wake = Arc::clone(&journal_options.wake);
        let files = Arc::clone(&world.files);
        let (journal, _) = Journal::open(files, Arc::clone(&world.clock), &dir.join("journal"), journal_options)?;
        settled.write(&*world.files, dir)?;
        let journal = Arc::new(journal);
        let is_led_over_gap = gaps::settle((&*world.files, dir), &journal, &*world.ledgers, &options)?;
        let ids = (0..identity.partitions).map(PartitionId::new);
        let used = identity.used;
        let mut spaces = replay::spaces(world, dir, (ids.clone(), used.space))?;
        let lost_snapshots = crate::space::files::lost(dir, &spaces, used.space);
        let mut load = || {
            let (shelf, mut series) = Shelf::open(&world.files, dir, (identity.partitions, used.series))?;
            let engines = replay::engines(&journal, world, (&mut spaces, &mut series), &options)?;
            Ok::<_, Error>((shelf, series, engines))
        };
        // Ledgers write a little when they are opened, and when much of the journal is replayed.
        let (shelf, series, engines) = if journal.is_short_of_space() { journal.with_spare(load) } else { load() }?;
        let found = Used { space: crate::space::files::is_used(&*world.files, dir), series: shelf.is_used() };
        let inner = Arc::new(Inner {
            partitions: ids
                .zip(engines.into_iter().zip(spaces).zip(series))
                .map(|(id, ((engine, space), series))| Partition::new(id, engine, space, series.engine))
                .collect(),
            clock: Arc::clone(&world.clock),
            journal_wake,
            ledger_wake: Arc::new(Signal::new()),
            stopping: AtomicBool::new(false),
            expired: AtomicU64::new(0),
            delay_nanos: AtomicU64::new(0),
            delayed_writes: AtomicU64::new(0),
            threads: world.threads,
            scrub_wake: Arc::new(Signal::new()),
            pages_wake: Arc::new(Signal::new()),
            compaction_wake: Arc::new(Signal::new()),
            compactor: Compactor::new(is_led_over_gap, options.holds_compaction),
            jobs: Jobs::default(),
            scrubbed: ScrubCounters::default(),
            spaces: Registry::default(),
            query_memory: QueryMemory::new(options.limits.space_query_memory_bytes),
            query_cache: QueryCache::default(),
            lost_snapshots,
            damaged_snapshots: Mutex::default(),
            space_wake: Arc::new(Signal::new()),
            shelf,
            series_wake: Arc::new(Signal::new()),
            merge_wake: Arc::new(Signal::new()),
            queries: Queries::default(),
            coordinator: Coordinator::new(identity.store, &options.limits),
            backing_up: Mutex::default(),
            files: Arc::clone(&world.files),
            snapshots: Mutex::default(),
            feeds: Mutex::default(),
            key_watchers: KeyWatchers::default(),
            listeners_known: Mutex::default(),
            closed: AtomicBool::new(false),
            dir: dir.to_owned(),
            identity: Mutex::new(identity),
            held: Mutex::new(Some(held)),
            options,
            journal,
        });
        // Of a store that a program made which did not note it, or a crash came between. A full disk is no reason not to open.
        let _ = inner.note_use(found);
        inner.load_xa();
        inner.load_spaces();
        inner.count_series();
        // From here on whatever fails ends the threads that there are, and closes.
        let owner = Owner { inner, workers: Mutex::default() };
        if world.threads {
            background::start(&owner.inner, spawn, &mut lock(&owner.workers))?;
        }
        Ok(Self(Arc::new(owner)))
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0.inner
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.inner().dir
    }

    /// The key-value engine.
    #[must_use]
    pub fn kv(&self) -> Kv<'_> {
        Kv { store: self }
    }

    /// Durability of requests that do not name one.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.inner().options.durability
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.inner().options.limits
    }

    /// The store's wall clock, in milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.inner().clock.wall_ms()
    }

    /// Begins a transaction: operations that happen together or not at all.
    #[must_use]
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.clone())
    }

    /// Takes exclusive access to some keys or everything; blocks while others have it.
    ///
    /// # Errors
    /// `Closed`; `Corrupt` when a partition's ledger is damaged; `Invalid` when a bucket's name begins with the byte 00:
    /// those are the store's own, here as everywhere, but for [`crate::space::Entries::listener_object`].
    pub fn exclusive(&self, scope: &Scope<'_>) -> Result<Exclusive<'_>> {
        scope.check(self.inner())?;
        Exclusive::open(self.inner(), scope)
    }

    /// Takes a consistent view of everything.
    ///
    /// # Errors
    /// `Closed`; `Corrupt` when a partition's ledger is damaged.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::take(self)
    }

    /// Blocks until the batch at `position` is as durable as asked.
    ///
    /// # Errors
    /// `Unavailable` when a write or sync failed: the batch may be lost, and the store refuses writes until reopened.
    pub fn wait(&self, position: Position, durability: Durability) -> Result<()> {
        Ok(self.inner().journal.wait(position, durability.level())?)
    }

    /// How far the journal got.
    #[must_use]
    pub fn watermarks(&self) -> Watermarks {
        self.inner().journal.watermarks()
    }

    /// Waits until an answer may be shown, and returns it.
    pub(crate) fn settle<T>(&self, shown: Shown<T>) -> Result<T> {
        self.inner().journal.wait(shown.position, self.durability().read_level())?;
        Ok(shown.value)
    }

    /// Live numbers. Takes each partition's lock for a moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner().stats()
    }

    /// A hash over the state of every engine: the same journal prefix gives the same digest, live or replayed.
    ///
    /// # Errors
    /// `Corrupt` when something stored is damaged.
    pub fn digest(&self) -> Result<u128> {
        self.inner().digest()
    }

    /// Whether syncs overlap at present, because the disk takes long for each: several threads that wait for durability are served
    /// sooner then than one that waits for all.
    #[must_use]
    pub fn overlaps_syncs(&self) -> bool {
        self.inner().journal.overlaps_syncs()
    }

    /// Stops the background threads, writes everything out, syncs and seals, and lets go of the directory. Later calls
    /// fail with `Closed`.
    ///
    /// # Errors
    /// `Unavailable` when a write or sync fails; acknowledged data is as safe as it was.
    pub fn close(&self) -> Result<()> {
        self.0.stop();
        self.inner().close()
    }
}

impl Owner {
    fn stop(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        let inner = &self.inner;
        let first = [&inner.journal_wake, &inner.ledger_wake, &inner.scrub_wake, &inner.compaction_wake];
        let others = [&inner.pages_wake, &inner.space_wake, &inner.series_wake, &inner.merge_wake];
        first.into_iter().chain(others).for_each(|wake| wake.raise());
        inner.spaces.snapshot_wake.raise();
        lock(&self.workers).clear();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
        // Nobody is left to be told; acknowledged data is safe either way.
        let _ = self.inner.close();
    }
}

/// Takes one holder of a position away.
fn release(holders: &mut BTreeMap<Position, usize>, position: Position) {
    if let Some(count) = holders.get_mut(&position) {
        *count -= 1;
        if *count == 0 {
            holders.remove(&position);
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the store is closed"));
        }
        check_outside(self)
    }

    /// Refuses a bucket that is the store's own.
    pub(crate) fn check_bucket(&self, bucket: &[u8]) -> Result<()> {
        if kv::is_reserved(bucket) {
            let text = "buckets whose names begin with the byte 00 are the store's own";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(())
    }

    /// Checks bucket and key against their limits.
    pub(crate) fn check_key(&self, bucket: &[u8], key: &[u8]) -> Result<()> {
        self.check_bucket(bucket)?;
        let limits = &self.options.limits;
        if bucket.len() > limits.bucket_bytes_max {
            return Err(Error::limit("bucket name", bucket.len(), limits.bucket_bytes_max));
        }
        if key.len() > limits.key_bytes_max {
            return Err(Error::limit("key", key.len(), limits.key_bytes_max));
        }
        Ok(())
    }

    /// Checks what is to be put against its limits.
    pub(crate) fn check_put(&self, bucket: &[u8], key: &[u8], value: &[u8], options: &PutOptions) -> Result<()> {
        let limits = &self.options.limits;
        if value.len() > limits.value_bytes_max {
            return Err(Error::limit("value", value.len(), limits.value_bytes_max));
        }
        if options.metadata.len() > limits.metadata_bytes_max {
            return Err(Error::limit("metadata", options.metadata.len(), limits.metadata_bytes_max));
        }
        if options.indexes.len() > limits.indexes_bytes_max {
            return Err(Error::limit("index entries", options.indexes.len(), limits.indexes_bytes_max));
        }
        // Bytes may double where they are escaped in the ledger; see `kv/src/key.rs`.
        let longest = options.indexes.iter().map(|(name, term)| 2 * (bucket.len() + name.len() + term.len())).max();
        match longest.map(|longest| longest + key.len() + 16).filter(|bytes| *bytes > kv::KEY_BYTES_MAX) {
            Some(bytes) => Err(Error::limit("bucket, index, term and key together", bytes, kv::KEY_BYTES_MAX)),
            None => Ok(()),
        }
    }

    /// The partition of an object: fixed for the life of the store.
    pub(crate) fn partition(&self, bucket: &[u8], key: &[u8]) -> &Partition {
        let spread = (u128::from(kv::object_hash(bucket, key)) * self.partitions.len() as u128) >> 64;
        let at = usize::try_from(spread).expect("below the number of partitions");
        self.partitions.get(at).expect("the product's high half is below the number of partitions")
    }

    /// The newest position given out.
    pub(crate) fn newest(&self) -> Position {
        Position::new(self.journal.watermarks().appended.get().saturating_sub(1))
    }

    /// Reads one object; if the ledger turns out damaged, rebuilds it and reads again.
    pub(crate) fn read<T>(
        &self,
        partition: &Partition,
        read: impl Fn(&Reader) -> kv::Result<Found<T>>,
    ) -> Result<Shown<Option<T>>> {
        match partition.read(&read) {
            Err(kv::Error::Ledger { .. }) => {
                self.heal(partition)?;
                Ok(partition.read(&read)?)
            }
            shown => Ok(shown?),
        }
    }

    /// Rebuilds a partition whose ledger came upon damage from the journal, in place.
    pub(crate) fn heal(&self, partition: &Partition) -> Result<()> {
        if !partition.reader.is_damaged() {
            return Ok(());
        }
        let _one = lock(&partition.writing_out);
        self.heal_locked(partition, &mut partition.lock())
    }

    /// As [`Inner::heal`], for whoever holds the partition's lock.
    pub(crate) fn heal_locked(&self, partition: &Partition, engine: &mut Engine) -> Result<()> {
        let rebuild = |engine: &mut Engine| {
            let of = partition.id.index();
            self.options.tell(&format!("the ledger of partition {of} is damaged, and is made anew from the journal"));
            replay::rebuild(&self.journal, partition.id, engine)
        };
        partition.heal(engine, rebuild)
    }

    /// Judges what applying a batch came to. When the journal has the batch and the engine has not, a damaged ledger is
    /// rebuilt from the journal, batch and all; otherwise opening again will replay it.
    pub(crate) fn applied(&self, partition: &Partition, engine: &mut Engine, outcome: kv::Result<()>) -> Result<()> {
        let healed = outcome.map_err(Error::from).or_else(|error| match partition.reader.is_damaged() {
            true => self.heal_locked(partition, engine),
            false => Err(error),
        });
        healed.inspect_err(|_| partition.set_broken())
    }

    pub(crate) fn note_memory(&self, engine: &Engine) {
        if engine.ledger().memory_bytes() >= self.options.limits.ledger_memory_bytes {
            self.ledger_wake.raise();
        }
    }

    pub(crate) fn hold_snapshot(&self, position: Position) {
        *lock(&self.snapshots).entry(position).or_default() += 1;
    }

    pub(crate) fn drop_snapshot(&self, position: Position) {
        release(&mut lock(&self.snapshots), position);
    }

    pub(crate) fn hold_feed(&self, position: Position) {
        *lock(&self.feeds).entry(position).or_default() += 1;
    }

    pub(crate) fn drop_feed(&self, position: Position) {
        release(&mut lock(&self.feeds), position);
    }

    /// Where the feed stands that is farthest behind.
    pub(crate) fn oldest_feed(&self) -> Option<Position> {
        lock(&self.feeds).keys().next().copied()
    }

    pub(crate) fn oldest_snapshot(&self) -> Option<Position> {
        lock(&self.snapshots).keys().next().copied()
    }

    fn stats(&self) -> Stats {
        let journal = self.journal.stats();
        let mut live = LiveBytes::default();
        let mut ledger_memory_bytes = 0;
        for partition in &self.partitions {
            let engine = partition.lock();
            live.merge(engine.live());
            ledger_memory_bytes += engine.ledger().memory_bytes();
        }
        let live: BTreeMap<Position, kv::SegmentBytes> = live.iter().collect();
        let segment_live = |s: journal::SegmentStats| {
            let of = live.get(&s.base).copied().unwrap_or_default();
            let (live_bytes, dead_bytes) = (of.live, of.dead());
            SegmentLive { base: s.base, bytes: s.bytes, live_bytes, dead_bytes, sealed: s.sealed, is_stub: s.is_stub }
        };
        Stats {
            watermarks: journal.watermarks,
            unsynced_bytes: journal.unsynced_bytes,
            unsynced_batches: journal.unsynced_batches,
            unsynced_age: journal.unsynced_age,
            batches: journal.batches,
            journal_appended_bytes: journal.bytes,
            group_batches: journal.group_batches,
            sync_nanos: journal.sync_nanos,
            segments: journal.segments,
            journal_bytes: journal.segment_bytes,
            live_bytes: live.values().map(|of| of.live).sum(),
            segment_live: self.journal.segment_stats().into_iter().map(segment_live).collect(),
            ledger_memory_bytes,
            write_delay: Duration::from_nanos(self.delay_nanos.load(Ordering::Relaxed)),
            delayed_writes: self.delayed_writes.load(Ordering::Relaxed),
            damage: self.damage(),
            scrub: self.scrubbed.stats(),
            compaction: self.compactor.stats(),
            expired: self.expired.load(Ordering::Relaxed),
            partitions: self.options.partitions,
            xa: self.coordinator.counters(),
            transactions: self.spaces.locks.stats(self.clock.now()),
            query_cache: self.query_cache.stats(),
            series: self.series_stats(),
            refuses_writes: journal.poisoned,
        }
    }

    fn digest(&self) -> Result<u128> {
        use journal::StateMachine;
        let mut input = Vec::new();
        for partition in &self.partitions {
            input.extend_from_slice(&partition.lock().digest()?.to_le_bytes());
            let space = partition.space().digest();
            // A store that was never used as a space has the digest that it had before there were spaces.
            if space != 0 {
                input.extend_from_slice(&space.to_le_bytes());
            }
            let series = partition.series().digest();
            if series != 0 {
                input.extend_from_slice(&series.to_le_bytes());
            }
        }
        Ok(base::hash128(&input))
    }

    /// Tells all who wait in spaces that the store is closed.
    fn end_waiting(&self) {
        self.spaces.locks.close();
        let error = Error::new(ErrorKind::Closed, "the store is closed");
        self.spaces.list(None).iter().for_each(|kind| kind.end_waiting(&error));
    }

    fn close(&self) -> Result<()> {
        // What is not noted is asked again by recovery.
        let _ = self.write_done(Room::AtOnce);
        // Nothing is written behind that; if it fails no ledger is written out either.
        let met = self.meet_damage();
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.end_waiting();
        // A backup under way is finished: once the directory is let go, another process may change what is linked.
        let _none = lock(&self.backing_up);
        let written = met.and(self.write_out_all_at_last());
        // The journal is closed whatever became of the ledgers, which are derived, and then nothing here writes any more.
        let closed = self.journal.close();
        drop(lock(&self.held).take());
        closed.map_err(Error::from).and(written)
    }
}
