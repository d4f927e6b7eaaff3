//! One partition: its engines behind one lock, and a way to read that does not take it.
//!
//! A batch that changes more than one object must be seen whole or not at all. Its writer holds the locks of all its
//! partitions and marks them as *changing*, by an odd count, from before the first change until after the last. A
//! reader looks at the count before and after; when it changed or is odd the reader takes the lock and so waits for the
//! whole batch. Single changes need no mark: the ledger replaces one entry at once.
//!
//! May use: `base`, `kv`, `journal`. Must not know: who commits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use base::Time;
use journal::{PartitionId, Position};
use kv::{Engine, Found, Reader};

use crate::error::{Error, ErrorKind, Result};
use crate::kv::Shown;
use crate::room::Room;
use crate::space::files::Loaded;

/// Under load a ledger is written out more often than that, and merging is left to what it does then.
const SETTLE_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    engine: Mutex<Engine>,
    /// The space's share, with a lock of its own: neither engine waits for the other. Taken after that of `engine` by who
    /// needs both.
    space: Mutex<space::Engine>,
    /// The position up to which the older of the space's snapshots has everything: the journal is needed from there.
    pub(crate) space_kept: AtomicU64,
    /// That of the newer one; `u64::MAX` while there is none, because the space was never used.
    pub(crate) space_through: AtomicU64,
    /// The series' share, with a lock that is taken last.
    series: Mutex<series::Engine>,
    pub(crate) reader: Reader,
    changing: AtomicU64,
    /// Newest position at which something became absent, set before it does.
    removed: AtomicU64,
    /// A change could not be applied: what the engine has is not what the journal says.
    broken: AtomicBool,
    /// Held while the ledger is written out.
    pub(crate) writing_out: Mutex<()>,
    /// Since when there may be something to be merged in the ledger, beside what is merged when it is written out.
    unsettled: Mutex<Option<Time>>,
    /// Where writers wait while it has too much in memory.
    pub(crate) room: Room,
}

impl Partition {
    pub(crate) fn new(id: PartitionId, engine: Engine, space: Loaded, series: series::Engine) -> Self {
        Self {
            id,
            reader: engine.reader(),
            // What was removed before open is as durable as everything before open.
            removed: AtomicU64::new(0),
            engine: Mutex::new(engine),
            space: Mutex::new(space.engine),
            series: Mutex::new(series),
            space_kept: AtomicU64::new(space.kept.get()),
            space_through: AtomicU64::new(space.through.get()),
            changing: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            writing_out: Mutex::new(()),
            // Who opened it before may have left something.
            unsettled: Mutex::new(Some(Time::default())),
            room: Room::default(),
        }
    }

    /// The ledger was written out.
    pub(crate) fn unsettle(&self, now: Time) {
        *self.unsettled() = Some(now);
    }

    /// Whether nothing was written out for so long that the ledger is to be settled; says so once.
    pub(crate) fn is_to_settle(&self, now: Time) -> bool {
        self.unsettled().take_if(|since| now.since(*since) >= SETTLE_DELAY).is_some()
    }

    fn unsettled(&self) -> MutexGuard<'_, Option<Time>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.broken.load(Ordering::Acquire) {
            let text = "a change could not be applied to the ledger; reopen the store to replay it from the journal";
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        Ok(())
    }

    pub(crate) fn set_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        // Applying is all asserts and no foreign code; a panic there has marked nothing, so stop trusting the engine.
        base::lock_soon(&self.engine).unwrap_or_else(|poisoned: PoisonError<_>| {
            self.set_broken();
            poisoned.into_inner()
        })
    }

    /// The space's share.
    pub(crate) fn space(&self) -> MutexGuard<'_, space::Engine> {
        base::lock_soon(&self.space).unwrap_or_else(|poisoned: PoisonError<_>| {
            self.set_broken();
            poisoned.into_inner()
        })
    }

    /// As [`Partition::space`], unless somebody has it.
    pub(crate) fn try_space(&self) -> Option<MutexGuard<'_, space::Engine>> {
        match self.space.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => {
                self.set_broken();
                None
            }
        }
    }

    /// The series' share.
    pub(crate) fn series(&self) -> MutexGuard<'_, series::Engine> {
        self.series.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            self.set_broken();
            poisoned.into_inner()
        })
    }

    /// Builds the engine anew when its ledger came upon damage; readers wait meanwhile. The lock is held.
    pub(crate) fn heal(&self, engine: &mut Engine, rebuild: impl FnOnce(&mut Engine) -> Result<()>) -> Result<()> {
        if !self.reader.is_damaged() {
            return Ok(());
        }
        // A commit that meets the damage has marked its changes already.
        let marked = !self.changing.load(Ordering::Acquire).is_multiple_of(2);
        if !marked {
            self.begin_changes();
        }
        let rebuilt = rebuild(engine);
        if rebuilt.is_err() {
            self.set_broken();
        }
        if !marked {
            self.end_changes();
        }
        rebuilt
    }

    /// Marks a batch of several changes as begun; the lock is held.
    pub(crate) fn begin_changes(&self) {
        self.changing.fetch_add(1, Ordering::AcqRel);
    }

    /// Marks it as done, in this partition and all others.
    pub(crate) fn end_changes(&self) {
        self.changing.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that the batch at `position` makes something absent; called before it does.
    pub(crate) fn will_remove(&self, position: Position) {
        self.removed.fetch_max(position.get(), Ordering::AcqRel);
    }

    /// Newest position at which something became absent.
    pub(crate) fn removed(&self) -> Position {
        Position::new(self.removed.load(Ordering::Acquire))
    }

    /// What `read` sees without the lock; `None` when a batch of several changes, or a rebuilding of the ledger, was under way.
    pub(crate) fn undisturbed<T>(&self, read: impl Fn(&Reader) -> kv::Result<T>) -> kv::Result<Option<T>> {
        let before = self.changing.load(Ordering::Acquire);
        if !before.is_multiple_of(2) {
            return Ok(None);
        }
        let seen = read(&self.reader)?;
        fence(Ordering::Acquire);
        Ok((self.changing.load(Ordering::Acquire) == before).then_some(seen))
    }

    /// Reads one object, never the half of a batch, usually without the lock. The caller has checked the partition.
    pub(crate) fn read<T>(&self, read: impl Fn(&Reader) -> kv::Result<Found<T>>) -> kv::Result<Shown<Option<T>>> {
        if let Some(found) = self.undisturbed(&read)? {
            return Ok(self.shown(found));
        }
        let _engine = self.lock();
        Ok(self.shown(read(&self.reader)?))
    }

    /// What an answer rests on: the object's version, or when nothing is stored the newest removal.
    pub(crate) fn shown<T>(&self, found: Found<T>) -> Shown<Option<T>> {
        let position = found.version.unwrap_or_else(|| self.removed());
        Shown { value: found.value, position }
    }
}
