//! Transactions without locks held between their operations: optimistic, serializable at commit.
//!
//! Reads note the version they saw; commit takes the locks of everything read or changed, checks that each version is
//! still the newest, and makes the changes, in one batch (Kung and Robinson, "On Optimistic Methods for Concurrency
//! Control", 1981, with serial validation). A transaction that changed nothing is validated as well, so what it read was
//! true in one instant.
//!
//! May use: exclusive access. Must not know: protocols.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use journal::Position;
use kv::{Head, Object, Page, PageOut, Stored, UpTo, Value};
use xa::{BranchName, TransactionId};

use crate::coordinator::Deciding;
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::{Committed, Exclusive, Scope};
use crate::kv::{PutOptions, Shown};
use crate::series::Rows;
use crate::space::{Entries, EntryChange, SpaceStage};
use crate::staged::{Change, Changes};
use crate::store::Store;

/// What one key takes in memory that was read or changed, beside its value.
const KEY_BYTES: u64 = 256;

/// The database of points, unless they are put into another.
const DATABASE: &str = "default";

/// Operations that happen together or not at all. Begun by [`Store::begin`]; dropping it changes nothing.
pub struct Transaction {
    store: Store,
    reads: BTreeMap<(Vec<u8>, Vec<u8>), Option<Position>>,
    /// Bytes of the names in `reads`.
    read_bytes: u64,
    /// Set by a listing: nothing at all may have changed since.
    listed: Option<Position>,
    changes: Changes,
    decisions: Vec<Deciding>,
    space: SpaceStage,
    points: Option<Rows>,
}

impl Transaction {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            reads: BTreeMap::new(),
            read_bytes: 0,
            listed: None,
            changes: Changes::default(),
            decisions: Vec::new(),
            space: SpaceStage::new(store.clone()),
            points: None,
            store,
        }
    }

    /// Ends the transaction by itself when it takes longer than this from now: others wait for entries that it has locked. What
    /// it does after that fails with `Timeout`.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.space.begin(lease);
        self
    }

    /// Names it, for those who wait in vain for an entry that it has locked: their error ends with the name.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.space.set_name(name.into());
        self
    }

    /// Whether its lease lasts still.
    ///
    /// # Errors
    /// `Timeout` when it has ended; `Closed`.
    pub fn check(&self) -> Result<()> {
        self.space.check()
    }

    /// Makes it one whose reads do not wait until what they show is durable: [`Transaction::seen`] says what that rests on. For
    /// who waits elsewhere, and for one whose part in spaces is to be joined to other exclusive access, by
    /// [`Exclusive::join_spaces`], which is as durable as that batch.
    #[must_use]
    pub fn joining(mut self) -> Self {
        self.space.will_join();
        self
    }

    /// How many keys and entries it has read, changed or locked, and the bytes that what it changes takes in memory until it ends. Entries that it
    /// reads without a lock are not among them.
    #[must_use]
    pub fn held(&self) -> (usize, u64) {
        let (entries, bytes) = self.space.held();
        let keys = self.changes.len() + self.reads.len();
        (entries + keys, bytes + self.key_bytes())
    }

    /// What the reads of one that is [`Transaction::joining`] rest on: nothing that they showed lies behind this position.
    #[must_use]
    pub fn seen(&self) -> Position {
        self.space.seen()
    }

    /// Waits until what was read may be shown, or notes what it rests on.
    fn show<T>(&mut self, Shown { value, position }: Shown<T>) -> Result<T> {
        self.space.show(position)?;
        Ok(value)
    }

    /// The points that are written with everything else: push to them. All of them are, or the whole transaction is refused. They go into
    /// the database `default`; put [`Rows::new`] of another one in their place before.
    pub fn points(&mut self) -> &mut Rows {
        self.points.get_or_insert_with(|| Rows::new(DATABASE))
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Waits until what was read up to there may be shown, or notes that it rests on that.
    pub(crate) fn note_seen(&mut self, position: Position) -> Result<()> {
        self.space.show(position)
    }

    pub(crate) fn space(&self) -> &SpaceStage {
        &self.space
    }

    pub(crate) fn space_stage(&mut self) -> &mut SpaceStage {
        &mut self.space
    }

    /// What becomes of these entries when the transaction commits, one change for each entry, in no order that means anything.
    #[must_use]
    pub fn changes_of(&self, entries: &Entries) -> Vec<EntryChange> {
        self.space.changes_of(entries.kind.of)
    }

    fn note(&mut self, bucket: &[u8], key: &[u8], version: Option<Position>) -> Result<()> {
        let first = match self.reads.entry((bucket.to_vec(), key.to_vec())) {
            Entry::Occupied(first) => *first.get(),
            Entry::Vacant(new) => {
                self.read_bytes += (bucket.len() + key.len()) as u64;
                *new.insert(version)
            }
        };
        self.space.note_keys(self.key_bytes());
        if first == version {
            return Ok(());
        }
        self.space.count_conflict();
        Err(conflict())
    }

    fn set(&mut self, bucket: &[u8], key: &[u8], change: Change) {
        self.changes.set(bucket, key, change);
        self.space.note_keys(self.key_bytes());
    }

    /// The bytes that keys take in memory that were read or changed.
    fn key_bytes(&self) -> u64 {
        self.changes.bytes() + self.read_bytes + (self.changes.len() + self.reads.len()) as u64 * KEY_BYTES
    }

    /// Notes what an object of the store's own is now: the commit fails when it is another then.
    pub(crate) fn watch_own(&mut self, bucket: &[u8], key: &[u8]) -> Result<()> {
        let inner = self.store.inner();
        inner.check_open()?;
        let now_ms = self.store.now_ms();
        let head = inner.read(inner.partition(bucket, key), |reader| reader.head(bucket, key, now_ms))?;
        let version = head.value.map(|head| head.version);
        self.note(bucket, key, version).map_err(|error| error.resting_on(head.position))
    }

    /// Puts an object of the store's own.
    pub(crate) fn stage_own(&mut self, bucket: &[u8], key: &[u8], change: Change) {
        self.set(bucket, key, change);
    }

    /// What is known of the object, with this transaction's changes. A changed object has version [`Position::MAX`].
    ///
    /// # Errors
    /// `Conflict` when somebody changed it since this transaction read it first.
    pub fn head(&mut self, bucket: &[u8], key: &[u8]) -> Result<Option<Head>> {
        self.check()?;
        let shown = self.store.kv().peek_head(bucket, key)?;
        let stored = self.show(shown)?;
        self.note(bucket, key, stored.as_ref().map(|head| head.version))?;
        let now_ms = self.store.now_ms();
        Ok(match self.changes.get(bucket, key) {
            None => stored,
            Some(change) => change.head(stored, now_ms),
        })
    }

    /// The object, with this transaction's changes.
    ///
    /// # Errors
    /// `Conflict` when somebody changed it since this transaction read it first.
    pub fn get(&mut self, bucket: &[u8], key: &[u8]) -> Result<Option<Object>> {
        Ok(self.get_up_to(bucket, key, u64::MAX)?.and_then(UpTo::object))
    }

    /// As [`Transaction::get`], but leaves a value alone that has more bytes than `bytes_max`.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_up_to(&mut self, bucket: &[u8], key: &[u8], bytes_max: u64) -> Result<Option<UpTo>> {
        let Some(head) = self.head(bucket, key)? else { return Ok(None) };
        if head.value_bytes > bytes_max {
            return Ok(Some(UpTo::Larger(head)));
        }
        if let Some(Change::Put { stored, .. }) = self.changes.get(bucket, key) {
            return Ok(Some(UpTo::Object(Object { head, value: Value::from_vec(stored.value()) })));
        }
        let shown = self.store.kv().peek(bucket, key)?;
        let stored = self.show(shown)?;
        self.note(bucket, key, stored.as_ref().map(|object| object.head.version))?;
        Ok(stored.map(|object| UpTo::Object(Object { head, value: object.value })))
    }

    /// A part of a bucket in key order, without this transaction's changes. Commits only if nothing in the whole store
    /// was changed by others since.
    ///
    /// # Errors
    /// `Corrupt` when something stored is damaged.
    pub fn page(&mut self, page: &Page<'_>) -> Result<PageOut> {
        self.check()?;
        let shown = self.store.kv().page(page)?;
        if *self.listed.get_or_insert(shown.position) != shown.position {
            let error = conflict().resting_on(shown.position);
            return self.show(shown).and(Err(error));
        }
        self.show(shown)
    }

    /// Puts an object.
    ///
    /// # Errors
    /// `Conflict` when the condition does not hold; `Limit` when bucket, key, value, metadata or indexes are too large.
    pub fn put(&mut self, bucket: &[u8], key: &[u8], value: &[u8], options: &PutOptions) -> Result<()> {
        self.check()?;
        let mut expires_ms = options.expires_ms.unwrap_or(0);
        if options.condition != crate::Condition::None || options.keep_expiry {
            let head = self.head(bucket, key)?;
            options.condition.check(head.as_ref())?;
            if options.keep_expiry {
                expires_ms = head.and_then(|head| head.expires_ms).unwrap_or(0);
            }
        }
        let inner = self.store.inner();
        inner.check_key(bucket, key)?;
        inner.check_put(bucket, key, value, options)?;
        let stored = Stored::new(value, options.compression.unwrap_or(inner.options.compression));
        let (metadata, indexes) = (options.metadata.clone(), options.indexes.clone());
        self.set(bucket, key, Change::Put { stored, metadata, indexes, expires_ms });
        Ok(())
    }

    /// Removes an object. False if there is none.
    ///
    /// # Errors
    /// `Conflict` when somebody changed it since this transaction read it first.
    pub fn delete(&mut self, bucket: &[u8], key: &[u8]) -> Result<bool> {
        let there = self.head(bucket, key)?.is_some();
        if there {
            self.set(bucket, key, Change::Delete);
        }
        Ok(there)
    }

    /// Changes when an object expires, `None` for never. False if there is none.
    ///
    /// # Errors
    /// `Conflict` when somebody changed it since this transaction read it first.
    pub fn expire(&mut self, bucket: &[u8], key: &[u8], expires_ms: Option<u64>) -> Result<bool> {
        let there = self.head(bucket, key)?.is_some();
        if there {
            let change = Change::expire(self.changes.get(bucket, key), expires_ms.unwrap_or(0));
            self.set(bucket, key, change);
        }
        Ok(there)
    }

    /// Decides to commit a distributed transaction with this one's batch: all its branches are prepared, and either
    /// everything happens or nothing. Nothing is decided before [`Transaction::commit`], which then also fails with
    /// `Aborted` when the distributed transaction will never be committed, which is on stable storage, and with `Conflict`
    /// when it is committed already: [`crate::Xa::status`] knows.
    pub fn decide(&mut self, id: TransactionId, branches: &[BranchName]) {
        self.decisions.push(Deciding { id, branches: branches.to_vec() });
    }

    /// Makes everything happen in one batch, and waits for `durability`. Entries of volatile types change in memory at the same moment, and are
    /// gone after a crash though the batch is there; without anything else there is no batch, and no wait.
    ///
    /// # Errors
    /// `Conflict` when something that was read is not the newest any more: begin again. Nothing has happened then, nor
    /// after `Limit`. After `Unavailable` from the waiting, whether it happened is known after reopening.
    pub fn commit(self, durability: Durability) -> Result<Committed> {
        let store = self.store.clone();
        let committed = self.commit_with_room(durability)?;
        store.wait(committed.position, durability)?;
        Ok(committed)
    }

    /// As [`Transaction::commit`], and does not wait for what happened: only for room for points, and for what a refusal rests on. Nobody
    /// may be told of it before its position is as durable as it has to be: see [`Store::wait`].
    ///
    /// # Errors
    /// As [`Transaction::commit`]. After all but `Corrupt` and `Unknown` nothing has happened.
    pub fn commit_with_room(self, durability: Durability) -> Result<Committed> {
        self.store.give_way(durability);
        if let Some(points) = self.points.as_ref().filter(|points| !points.is_empty()) {
            self.store.series().make_room(points.len())?;
        }
        let store = self.store.clone();
        store.told(self.commit_no_wait(), durability)
    }

    /// As [`Transaction::commit`], and waits for nothing: neither for durability nor for room for points. Nobody may be told of it
    /// before its position, or the one that the error [rests on](Error::rests_on), is as durable as it has to be.
    ///
    /// # Errors
    /// As [`Transaction::commit`]; `Unavailable` also when memory is full of points that are not sealed yet.
    pub fn commit_no_wait(mut self) -> Result<Committed> {
        // Before the exclusive, which they outlive.
        let mut points = self.points.take().filter(|points| !points.is_empty());
        let keys: Vec<(&[u8], &[u8])> = self
            .reads
            .keys()
            .map(|(bucket, key)| (bucket.as_slice(), key.as_slice()))
            .chain(self.changes.iter().map(|staged| (staged.bucket.as_slice(), staged.key.as_slice())))
            .collect();
        let ids: Vec<TransactionId> = self.decisions.iter().map(|deciding| deciding.id).collect();
        let mut exclusive = match self.listed {
            Some(_) => self.store.xa().exclusive(&Scope::All, &ids)?,
            None => self.store.xa().exclusive_of(&keys, &ids)?,
        };
        self.validate(&mut exclusive).inspect_err(|_| self.space.count_conflict())?;
        for staged in self.changes.iter() {
            exclusive.stage(&staged.bucket, &staged.key, staged.change.clone())?;
        }
        for Deciding { id, branches } in &self.decisions {
            exclusive.decide(*id, branches)?;
        }
        if let Some(points) = &mut points {
            exclusive.add_points(points)?;
        }
        exclusive.space = Some(&mut self.space);
        exclusive.commit()
    }

    fn validate(&self, exclusive: &mut Exclusive<'_>) -> Result<()> {
        if let Some(listed) = self.listed {
            if exclusive.inner.newest() != listed {
                return Err(conflict().resting_on(exclusive.inner.newest()));
            }
            exclusive.seen = exclusive.seen.max(listed);
        }
        for ((bucket, key), version) in &self.reads {
            if exclusive.head_of(bucket, key)?.map(|head| head.version) != *version {
                return Err(conflict().resting_on(exclusive.seen));
            }
        }
        Ok(())
    }
}

fn conflict() -> Error {
    Error::new(ErrorKind::Conflict, "somebody else changed what this transaction read; begin again")
}
