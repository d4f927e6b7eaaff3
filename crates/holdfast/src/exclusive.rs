//! Exclusive access to some partitions: the one way in which anything is changed.
//!
//! Evaluate under the locks, commit as one journal batch: effects are staged, then encoded, appended (which gives the
//! position), applied to the engines, and the locks are released. Waiting for durability comes after, without locks.
//!
//! May use: `kv`, `journal`. Must not know: protocols.

use std::sync::MutexGuard;

use journal::{Appended, Batch, Log, PartitionId, Position, StateMachine};
use kv::{Command, Compression, Engine, Head, Indexes, Metadata, Object, Put, Step, Stored, UpTo, Value};

use crate::coordinator::{BUCKET, Deciding, Room};
use crate::error::{Error, ErrorKind, Result};
use crate::kv::{Condition, PutOptions};
use crate::partition::Partition;
use crate::series::{Rows, SERIES_PART, Writing};
use crate::space::is_of_listeners;
use crate::space::{Opened, SPACE_PART, SpaceStage};
use crate::staged::{Change, Changes};
use crate::store::Inner;
use crate::transaction::Transaction;

/// What an [`Exclusive`] may touch.
#[derive(Debug, Clone, Copy)]
pub enum Scope<'a> {
    /// These objects, by bucket and key.
    Keys(&'a [(&'a [u8], &'a [u8])]),
    /// Everything.
    All,
}

impl Scope<'_> {
    /// Refuses what users may not name. That an object of the store's own is in it lets nobody at it: each operation refuses those.
    pub(crate) fn check(&self, inner: &Inner) -> Result<()> {
        let Self::Keys(keys) = self else { return Ok(()) };
        let mut others = keys.iter().filter(|(bucket, _)| !is_of_listeners(bucket));
        others.try_for_each(|(bucket, _)| inner.check_bucket(bucket))
    }
}

/// A committed batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The batch's position, which is the version of everything durable that it changed. If nothing of that was changed, the newest version
    /// that was read. Wait for it before telling anybody. Entries of volatile types have a version of their own, which is known by reading them.
    pub position: Position,
}

/// Something done to each touched partition: its engine, and offset and bytes of its commands in the batch.
type Act<'a> = &'a mut dyn FnMut(&Partition, &mut Engine, u64, &[u8]);

/// Exclusive access to a part of the store. Reads see the staged changes; nothing happens before [`Exclusive::commit`];
/// dropping it changes nothing.
///
/// It holds locks: be quick, and do not open a second one in the same thread.
pub struct Exclusive<'a> {
    pub(crate) inner: &'a Inner,
    guards: Vec<(&'a Partition, MutexGuard<'a, Engine>)>,
    pub(crate) changes: Changes,
    pub(crate) seen: Position,
    pub(crate) now_ms: u64,
    pub(crate) all: bool,
    /// Distributed transactions that are decided with the batch.
    pub(crate) decisions: Vec<Deciding>,
    /// What is changed in spaces with the batch.
    pub(crate) space: Option<&'a mut SpaceStage>,
    /// Points that are written with the batch.
    points: Option<&'a mut Rows>,
    /// What else becomes of series with it.
    series: Option<Writing<'a>>,
}

impl<'a> Exclusive<'a> {
    /// Waits first while the partitions have too much in memory: see [`Inner::relieve`].
    pub(crate) fn open(inner: &'a Inner, scope: &Scope<'_>) -> Result<Self> {
        inner.check_open()?;
        match scope {
            Scope::All => {
                // Not an error if there is no room to be made: who clears everything makes some.
                let _ = inner.relieve(&inner.partitions.iter().collect::<Vec<_>>());
                Self::lock(inner, inner.partitions.iter(), true)
            }
            Scope::Keys([(bucket, key)]) => {
                let partition = inner.partition(bucket, key);
                inner.relieve(&[partition])?;
                Self::lock(inner, std::iter::once(partition), false)
            }
            Scope::Keys(keys) => {
                let partitions = Self::partitions(inner, keys.iter().copied());
                inner.relieve(&partitions)?;
                Self::lock(inner, partitions.into_iter(), false)
            }
        }
    }

    /// The partitions of these objects. Always in the same order, so that two writers never wait for each other.
    fn partitions<'k>(inner: &'a Inner, keys: impl Iterator<Item = (&'k [u8], &'k [u8])>) -> Vec<&'a Partition> {
        let mut ids: Vec<PartitionId> = keys.map(|(bucket, key)| inner.partition(bucket, key).id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.iter().filter_map(|id| inner.partitions.get(id.index())).collect()
    }

    /// Access to records of transactions.
    pub(crate) fn open_own(inner: &'a Inner, keys: &[Vec<u8>], room: Room) -> Result<Self> {
        inner.check_open()?;
        let partitions = Self::partitions(inner, keys.iter().map(|key| (BUCKET, key.as_slice())));
        if room == Room::Wait {
            inner.relieve(&partitions)?;
        }
        Self::lock(inner, partitions.into_iter(), false)
    }

    /// Access to one object for the thread that makes room: it must not wait for itself.
    pub(crate) fn open_at_once(inner: &'a Inner, bucket: &[u8], key: &[u8]) -> Result<Self> {
        inner.check_open()?;
        Self::lock(inner, std::iter::once(inner.partition(bucket, key)), false)
    }

    /// Takes the locks, in the order of `partitions`.
    fn lock(inner: &'a Inner, partitions: impl Iterator<Item = &'a Partition>, all: bool) -> Result<Self> {
        let guards = partitions.map(|partition| (partition, partition.lock())).collect();
        let now_ms = inner.clock.wall_ms();
        let (changes, seen, decisions) = (Changes::default(), Position::ZERO, Vec::new());
        let this =
            Self { inner, guards, changes, seen, now_ms, all, decisions, space: None, points: None, series: None };
        this.guards.iter().try_for_each(|(partition, _)| partition.check())?;
        Ok(this)
    }

    /// The time this access takes for now, in milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub(crate) fn holds(&self, bucket: &[u8], key: &[u8]) -> Result<&'a Partition> {
        let wanted = self.inner.partition(bucket, key);
        if self.guards.iter().any(|(held, _)| held.id == wanted.id) {
            return Ok(wanted);
        }
        Err(Error::new(ErrorKind::Internal, "a key outside the declared scope was used"))
    }

    pub(crate) fn engines(&self) -> impl Iterator<Item = (&'a Partition, &Engine)> {
        self.guards.iter().map(|(partition, engine)| (*partition, &**engine))
    }

    /// The object, with staged changes.
    ///
    /// # Errors
    /// `Corrupt` when the stored value is damaged.
    pub fn get(&mut self, bucket: &[u8], key: &[u8]) -> Result<Option<Object>> {
        Ok(self.get_up_to(bucket, key, u64::MAX)?.and_then(UpTo::object))
    }

    /// As [`Exclusive::get`], but leaves a value alone that has more bytes than `bytes_max`.
    ///
    /// # Errors
    /// As [`Exclusive::get`].
    pub fn get_up_to(&mut self, bucket: &[u8], key: &[u8], bytes_max: u64) -> Result<Option<UpTo>> {
        let Some(head) = self.head(bucket, key)? else { return Ok(None) };
        if head.value_bytes > bytes_max {
            return Ok(Some(UpTo::Larger(head)));
        }
        if let Some(Change::Put { stored, .. }) = self.changes.get(bucket, key) {
            return Ok(Some(UpTo::Object(Object { head, value: Value::from_vec(stored.value()) })));
        }
        let partition = self.holds(bucket, key)?;
        let found = partition.reader.get(bucket, key, self.now_ms)?;
        Ok(found.value.map(|object| UpTo::Object(Object { head, value: object.value })))
    }

    /// What is known of the object, with staged changes. The version of a staged object is [`Position::MAX`].
    ///
    /// # Errors
    /// `Corrupt` when the ledger is damaged.
    pub fn head(&mut self, bucket: &[u8], key: &[u8]) -> Result<Option<Head>> {
        self.inner.check_bucket(bucket)?;
        self.head_of(bucket, key)
    }

    /// The same for objects of the store's own.
    pub(crate) fn head_of(&mut self, bucket: &[u8], key: &[u8]) -> Result<Option<Head>> {
        let partition = self.holds(bucket, key)?;
        let base = if self.changes.is_cleared(bucket) {
            None
        } else {
            let shown = partition.shown(partition.reader.head(bucket, key, self.now_ms)?);
            self.seen = self.seen.max(shown.position);
            shown.value
        };
        Ok(match self.changes.get(bucket, key) {
            None => base,
            Some(change) => change.head(base, self.now_ms),
        })
    }

    /// Bytes of the keys and values that are staged, which lie in memory until the commit.
    #[must_use]
    pub fn staged_bytes(&self) -> u64 {
        self.changes.bytes()
    }

    /// The newest position that what was read here rests on: a refusal that follows from it, and comes of no commit, is told once that is
    /// as durable as asked.
    #[must_use]
    pub fn seen(&self) -> Position {
        self.seen
    }

    /// Looks whether the condition holds, of what is there with the staged changes.
    ///
    /// # Errors
    /// `Conflict` when it does not, which [rests on](Error::rests_on) what was read here. `Corrupt` when the ledger is damaged.
    pub fn check(&mut self, bucket: &[u8], key: &[u8], condition: Condition) -> Result<()> {
        let head = self.head(bucket, key)?;
        condition.check(head.as_ref()).map_err(|error| error.resting_on(self.seen))
    }

    /// Stages a put.
    ///
    /// # Errors
    /// `Conflict` when the condition does not hold, which [rests on](Error::rests_on) what was read here; `Limit` when bucket, key, value, metadata or batch is too large.
    pub fn put(&mut self, bucket: &[u8], key: &[u8], value: &[u8], options: &PutOptions) -> Result<()> {
        self.holds(bucket, key)?;
        self.inner.check_key(bucket, key)?;
        self.inner.check_put(bucket, key, value, options)?;
        let mut expires_ms = options.expires_ms.unwrap_or(0);
        if options.condition != Condition::None || options.keep_expiry {
            let head = self.head(bucket, key)?;
            options.condition.check(head.as_ref()).map_err(|error| error.resting_on(self.seen))?;
            if options.keep_expiry {
                expires_ms = head.and_then(|head| head.expires_ms).unwrap_or(0);
            }
        }
        let stored = Stored::new(value, options.compression.unwrap_or(self.inner.options.compression));
        let (metadata, indexes) = (options.metadata.clone(), options.indexes.clone());
        self.stage(bucket, key, Change::Put { stored, metadata, indexes, expires_ms })
    }

    /// Stages a new expiry, `None` for never. False if there is no such object.
    ///
    /// # Errors
    /// `Limit` when the batch is too large.
    pub fn expire(&mut self, bucket: &[u8], key: &[u8], expires_ms: Option<u64>) -> Result<bool> {
        if self.head(bucket, key)?.is_none() {
            return Ok(false);
        }
        let change = Change::expire(self.changes.get(bucket, key), expires_ms.unwrap_or(0));
        self.stage(bucket, key, change)?;
        Ok(true)
    }

    /// Stages a delete. False if there is no such object.
    ///
    /// # Errors
    /// `Limit` when the batch is too large.
    pub fn delete(&mut self, bucket: &[u8], key: &[u8]) -> Result<bool> {
        if self.head(bucket, key)?.is_none() {
            return Ok(false);
        }
        self.stage(bucket, key, Change::Delete)?;
        Ok(true)
    }

    /// Stages the removal of an object that expired by `now_ms`. False if it did not, or is gone.
    pub(crate) fn delete_expired(&mut self, bucket: &[u8], key: &[u8], now_ms: u64) -> Result<bool> {
        let partition = self.holds(bucket, key)?;
        let stored = partition.reader.head(bucket, key, 0)?.value;
        let expired = stored.is_some_and(|head| head.expires_ms.is_some_and(|at| at <= now_ms));
        if expired {
            self.stage(bucket, key, Change::Delete)?;
        }
        Ok(expired)
    }

    /// Stages the removal of every object of a bucket. Needs [`Scope::All`].
    ///
    /// # Errors
    /// `Internal` when the scope is smaller.
    pub fn clear(&mut self, bucket: &[u8]) -> Result<()> {
        self.need_all()?;
        self.inner.check_key(bucket, &[])?;
        self.changes.clear(bucket);
        Ok(())
    }

    pub(crate) fn need_all(&self) -> Result<()> {
        if self.all { Ok(()) } else { Err(Error::new(ErrorKind::Internal, "this needs the scope of all keys")) }
    }

    pub(crate) fn stage(&mut self, bucket: &[u8], key: &[u8], change: Change) -> Result<()> {
        let max = self.inner.options.limits.batch_changes_max;
        if self.changes.len() >= max {
            return Err(Error::new(ErrorKind::Limit, format!("a batch holds at most {max} changes")));
        }
        // The journal would refuse it too, but only when all of it is in memory.
        let (bytes, max) =
            (self.changes.stored_bytes_with(bucket, key, &change), self.inner.options.limits.batch_bytes_max);
        if bytes > max as u64 {
            let text = format!("a batch holds at most {max} bytes; with this change it would have {bytes}");
            return Err(Error::new(ErrorKind::Limit, text));
        }
        self.changes.set(bucket, key, change);
        Ok(())
    }

    /// Makes the staged changes happen, all or none, as one batch. Does not wait for durability: see
    /// [`crate::Store::wait`].
    ///
    /// # Errors
    /// `Unavailable` when the disk is full or an earlier write failed; `Limit` when the batch is too large. Nothing
    /// has happened then. `Corrupt` when the ledger is damaged and could not be rebuilt: the batch is in the journal, and
    /// is there after reopening. With [`Exclusive::decide`] also what is said there.
    pub fn commit(self) -> Result<Committed> {
        if self.decisions.is_empty() { self.commit_noting(&mut |_| ()) } else { self.commit_deciding() }
    }

    /// As [`Exclusive::commit`], without decisions; `noted` is told the position as soon as the batch has it.
    pub(crate) fn commit_noting(mut self, noted: &mut dyn FnMut(Position)) -> Result<Committed> {
        let stage = self.space.take();
        let in_spaces = stage.as_ref().map(|stage| stage.changes()).unwrap_or_default();
        let rows = self.points.take();
        if self.changes.is_empty() && in_spaces.is_empty() && rows.is_none() && self.series.is_none() {
            if let Some(stage) = stage {
                stage.claim()?;
                stage.count_committed();
            }
            return Ok(Committed { position: self.seen });
        }
        let mut opened = Opened::lock(self.inner, &in_spaces)?;
        if let Some(stage) = &stage {
            stage.validate(&mut opened).inspect_err(|error| {
                if error.kind() == ErrorKind::Conflict {
                    stage.count_conflict();
                }
            })?;
        }
        let mut writing = match (self.series.take(), rows.as_deref()) {
            (Some(writing), _) => writing,
            (None, Some(rows)) => Writing::open(self.inner, rows)?,
            (None, None) => Writing::default(),
        };
        writing.check_whole()?;
        opened.encode()?;
        let is_in_memory =
            self.changes.is_empty() && opened.parts().next().is_none() && rows.is_none() && writing.is_empty();
        let batch = if is_in_memory { Batch::new() } else { self.encode(&opened, &writing) };
        let frees = self.only_removes() && opened.parts().next().is_none() && writing.is_empty();
        let journal = &self.inner.journal;
        let appended = match frees {
            // It rests on no more than what was read.
            _ if is_in_memory => Appended { position: self.seen, body_at: 0 },
            true => journal.append_freeing(&batch)?,
            false => journal.append(&batch)?,
        };
        let position = appended.position;
        if !is_in_memory {
            noted(position);
        }
        let several = self.changes.len() > 1 || self.changes.cleared().next().is_some();
        let removes = several || self.changes.iter().any(|staged| staged.change == Change::Delete);
        let touched: Vec<(PartitionId, u64, &[u8])> = batch.sections().collect();
        let guards = &mut self.guards;
        let mut each = |act: Act<'_>| {
            for (id, offset, commands) in &touched {
                if let Some((partition, engine)) = guards.iter_mut().find(|(partition, _)| partition.id == *id) {
                    act(partition, engine, *offset, commands);
                }
            }
        };
        each(&mut |partition, _, _, _| {
            if several {
                partition.begin_changes();
            }
            if removes {
                partition.will_remove(position);
            }
        });
        let mut failed = None;
        each(&mut |partition, engine, offset, commands| {
            let applied = engine.apply(position, appended.body_at + offset, commands);
            if let Err(error) = self.inner.applied(partition, engine, applied) {
                failed = Some(error);
            }
            self.inner.key_watchers.tell(commands);
        });
        each(&mut |partition, engine, _, _| {
            if several {
                partition.end_changes();
            }
            self.inner.note_memory(engine);
        });
        if let Err(error) = opened.apply(position).and(writing.apply(self.inner, position)) {
            failed = Some(error);
        }
        match rows {
            Some(rows) => drop(writing.end(self.inner, position, rows)),
            None => drop(writing),
        }
        if let Some(stage) = &stage {
            stage.count_committed();
            stage.let_go_in(&mut opened);
        }
        opened.offer();
        // What it had locked elsewhere: no partition is held now, so nobody waits in a circle.
        if let Some(stage) = stage {
            stage.end();
        }
        match failed {
            None => Ok(Committed { position }),
            Some(error) => Err(error),
        }
    }

    /// Has what the transaction changes in spaces happen with this batch, if nobody changed what it saw there. Only its part
    /// in spaces counts: what else it did is forgotten.
    pub fn join_spaces(&mut self, transaction: &'a mut Transaction) {
        let stage = transaction.space_stage();
        self.seen = self.seen.max(stage.seen());
        self.space = Some(stage);
    }

    /// Has points written with this batch; they are forgotten in `rows` when that has happened. All of them or the whole batch
    /// is refused. Call [`Series::make_room`](crate::series::Series::make_room) before the exclusive is taken, which waits for room.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses, and when memory is full of points that are not sealed yet: drop the exclusive, and try
    /// again in a moment.
    pub fn add_points(&mut self, rows: &'a mut Rows) -> Result<()> {
        self.inner.begin_series_in_batch()?;
        self.points = (!rows.is_empty()).then_some(rows);
        Ok(())
    }

    /// Has what becomes of series happen with this batch, which then writes no points. Partitions of series are locked after those of
    /// keys, so this is the last that is done before the commit.
    pub(crate) fn join_series(&mut self, writing: Writing<'a>) {
        self.series = (!writing.is_empty()).then_some(writing);
    }

    /// Whether there is nothing among the changes of keys that needs space for longer.
    fn only_removes(&self) -> bool {
        self.decisions.is_empty() && self.changes.iter().all(|staged| staged.change == Change::Delete)
    }

    /// The changes as commands, a section for each partition.
    fn encode(&self, in_spaces: &Opened<'_>, writing: &Writing<'_>) -> Batch {
        let mut batch = Batch::new();
        // In order: listeners count a batch's events by it.
        let guarded = self.guards.iter().map(|(partition, _)| partition.id);
        let mut ids: Vec<PartitionId> =
            guarded.chain(in_spaces.parts().map(|(id, _)| id)).chain(writing.parts().map(|(id, _)| id)).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            batch.section(id, |to| {
                for (_, part) in in_spaces.parts().filter(|(of, _)| *of == id) {
                    kv::put_other_part(to, SPACE_PART, part);
                }
                for (_, part) in writing.parts().filter(|(of, _)| *of == id) {
                    kv::put_other_part(to, SERIES_PART, part);
                }
                if self.guards.iter().all(|(partition, _)| partition.id != id) {
                    return;
                }
                for bucket in self.changes.cleared() {
                    Command::Clear { bucket }.encode(to);
                }
                let mine =
                    |bucket: &[u8], key: &[u8]| self.guards.len() == 1 || self.inner.partition(bucket, key).id == id;
                for staged in self.changes.iter().filter(|staged| mine(&staged.bucket, &staged.key)) {
                    command(&staged.bucket, &staged.key, &staged.change, self.now_ms).encode(to);
                }
            });
        }
        batch
    }
}

impl Inner {
    /// Puts an object whatever is there. The batch is made and summed before the lock: while it is held, other writers of the
    /// partition wait, for a whole turn of the scheduler when its holder loses the processor.
    pub(crate) fn put_blindly(
        &self,
        bucket: &[u8],
        key: &[u8],
        value: &[u8],
        options: &PutOptions,
    ) -> Result<Committed> {
        self.check_open()?;
        self.check_key(bucket, key)?;
        self.check_put(bucket, key, value, options)?;
        let compression = options.compression.unwrap_or(self.options.compression);
        let compressed = (compression != Compression::None).then(|| Stored::new(value, compression));
        let put = Put {
            metadata: Metadata::encoded(&options.metadata),
            indexes: Indexes::encoded(&options.indexes),
            modified_ms: self.clock.wall_ms(),
            expires_ms: options.expires_ms.unwrap_or(0),
            ..compressed.as_ref().map_or_else(|| Put::new(bucket, key, value), |stored| Put::of(bucket, key, stored))
        };
        let partition = self.partition(bucket, key);
        let mut coming = partition.reader.coming(bucket, key);
        coming.fetch(Step::First);
        let mut batch = Batch::new();
        batch.section(partition.id, |to| Command::Put(put).encode(to));
        batch.finish();
        coming.fetch(Step::Second);
        self.relieve(&[partition])?;
        let mut engine = partition.lock();
        partition.check()?;
        let Appended { position, body_at } = self.journal.append(&batch)?;
        coming.fetch(Step::Third);
        for (_, offset, commands) in batch.sections() {
            let applied = engine.apply(position, body_at + offset, commands);
            let applied = self.applied(partition, &mut engine, applied);
            // Also of what could not be applied: it is there when the store is opened again.
            self.key_watchers.tell(commands);
            applied?;
        }
        self.note_memory(&engine);
        Ok(Committed { position })
    }
}

fn command<'c>(bucket: &'c [u8], key: &'c [u8], change: &'c Change, modified_ms: u64) -> Command<'c> {
    match change {
        Change::Put { stored, metadata, indexes, expires_ms } => Command::Put(Put {
            metadata: Metadata::encoded(metadata),
            indexes: Indexes::encoded(indexes),
            modified_ms,
            expires_ms: *expires_ms,
            ..Put::of(bucket, key, stored)
        }),
        Change::Delete => Command::Delete { bucket, key },
        Change::Expire { expires_ms } => Command::Expire { bucket, key, modified_ms, expires_ms: *expires_ms },
    }
}
