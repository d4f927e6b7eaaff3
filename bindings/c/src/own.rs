//! Work of a transaction in the coordinator's own store: keys, entries and points, which happen in the batch in which the
//! decision is written, and need no branch.
//!
//! Keys are validated by the commit: who read what somebody else changed since is rolled back. Entries are locked until the
//! end. Work that only read something is looked at by the commit too, and makes no decision necessary that was not.
//!
//! May use: `coordinator`, `holdfast`, `manager`, `tm`. Must not know: C strings, branches.

use std::ffi::c_int;
use std::fmt;
use std::time::{Duration, Instant};

use holdfast::series::FIELD_DEFAULT;
use holdfast::space::{Definition, Document, Entries, ReadLock, ReadOptions, Value, Wanted, WriteOptions};
use holdfast::{Durability, Error, ErrorKind, PutOptions, Store};
use tm::{BranchName, OwnDecision, TransactionId, commit_with_decision};

use crate::abi::{TX_EINVAL, TX_ERROR, TX_FAIL, TX_ROLLBACK};
use crate::control::{ROLLBACK_ONLY, TIME_IS_OVER};
use crate::last_error;
use crate::manager::Manager;
use crate::resource::Resource;

/// How long a call waits for an entry that another transaction has locked, as calls in Rust do.
const LOCK_TIME_MAX: Duration = Duration::from_secs(5);

type Result<T> = holdfast::Result<T>;

/// What a transaction does in the coordinator's own store. Dropped before it commits it has done nothing.
pub(crate) struct OwnWork {
    changes: holdfast::Transaction,
    store: Store,
    durability: Durability,
    deadline: Option<Instant>,
    /// Whether it has changed nothing so far.
    only_reads: bool,
    /// Whether it has read keys.
    reads_keys: bool,
}

/// A point that is a double, in the field and the database that are named nowhere.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    pub(crate) metric: String,
    pub(crate) tags: Vec<(String, String)>,
    /// Nanoseconds since 1970.
    pub(crate) time: i64,
    pub(crate) value: f64,
}

impl fmt::Debug for OwnWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnWork").field("only_reads", &self.only_reads).finish_non_exhaustive()
    }
}

/// A transaction that works in its coordinator's store.
pub(crate) struct Worker<'a> {
    pub(crate) manager: &'a Manager,
    pub(crate) id: TransactionId,
    pub(crate) deadline: Option<Instant>,
    pub(crate) own: &'a mut Option<OwnWork>,
    /// Whether it can only be rolled back, which is set here, too.
    pub(crate) rollback_only: &'a mut bool,
}

impl Worker<'_> {
    /// Works; the code of what went wrong, which is noted.
    pub(crate) fn work<T>(self, work: impl FnOnce(&mut OwnWork) -> Result<T>) -> std::result::Result<T, c_int> {
        let is_over_time = || self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if is_over_time() {
            return Err(last_error::refuse(TX_ROLLBACK, TIME_IS_OVER));
        }
        if *self.rollback_only {
            return Err(last_error::refuse(TX_ROLLBACK, ROLLBACK_ONLY));
        }
        let mut own = match self.own.take() {
            Some(own) => own,
            None => OwnWork::begin(self.manager, self.id, self.deadline).map_err(|error| told(&error))?,
        };
        // What a call that panics has done in part is not to be committed.
        *self.rollback_only = true;
        let done = work(&mut own);
        if matches!(&done, Err(error) if error.kind() == ErrorKind::Conflict) {
            // Those who wait for what it has locked need not wait for the program.
            drop(own);
        } else {
            (*self.own, *self.rollback_only) = (Some(own), false);
        }
        done.map_err(|error| match error.kind() {
            ErrorKind::Timeout if is_over_time() => last_error::refuse(TX_ROLLBACK, TIME_IS_OVER),
            _ => told(&error),
        })
    }
}

/// The code for what the store says, which is also noted.
fn told(error: &Error) -> c_int {
    let code = match error.kind() {
        ErrorKind::Invalid | ErrorKind::Limit => TX_EINVAL,
        ErrorKind::Conflict | ErrorKind::Aborted => TX_ROLLBACK,
        ErrorKind::Timeout | ErrorKind::Unavailable => TX_ERROR,
        _ => TX_FAIL,
    };
    last_error::refuse(code, error.to_string())
}

impl Manager {
    /// Sees to it that there is a type of entries; one that is there stays as it is.
    pub(crate) fn declare(&self, space: &str, name: &str) -> std::result::Result<(), c_int> {
        let declare = || {
            let space = own_store(self)?.space(space);
            if space.entries(name).is_ok() {
                return Ok(());
            }
            space.declare(Definition::new(space.name(), name)).map(drop)
        };
        declare().map_err(|error| told(&error))
    }
}

/// The coordinator's store, when that is in this process.
fn own_store(manager: &Manager) -> Result<Store> {
    let store = manager.coordinator.as_ref().and_then(|coordinator| coordinator.store());
    store.ok_or_else(|| {
        let text = "the coordinator's store is not in this process, so keys, entries and points cannot be part of the \
                    transaction: they need a profile whose coordinator has a `directory`";
        Error::new(ErrorKind::Invalid, text)
    })
}

/// Work of a transaction that commits.
#[derive(Debug, Default)]
pub(crate) struct Committing {
    /// What is part of the decision.
    pub(crate) decided: Option<OwnWork>,
    /// What only read entries and needs no decision: they are locked until this is dropped.
    pub(crate) kept: Option<OwnWork>,
}

/// Looks at work before its transaction commits: what only read something makes no decision necessary that was not. The reason, noted,
/// when all is to be rolled back.
pub(crate) fn before_commit(
    own: Option<OwnWork>,
    id: TransactionId,
    resources: &[&dyn Resource],
) -> std::result::Result<Committing, ()> {
    let Some(own) = own else { return Ok(Committing::default()) };
    let no_decision = resources.len() <= 1 || resources.iter().any(|resource| resource.is_last());
    if !own.only_reads || !no_decision {
        return Ok(Committing { decided: Some(own), kept: None });
    }
    let is_good = match own.reads_keys {
        // Whether they are still what they were is found out by a commit, which lets go of entries, too.
        true => own.commit(id, &[]).map(|()| None).map_err(|error| error.to_string()),
        false => own.changes.check().map(|()| Some(own)).map_err(|error| error.to_string()),
    };
    is_good.map(|kept| Committing { decided: None, kept }).map_err(last_error::set)
}

impl OwnWork {
    fn begin(manager: &Manager, id: TransactionId, deadline: Option<Instant>) -> Result<Self> {
        if id.shared {
            let text = "a shared transaction cannot change the coordinator's store";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let store = own_store(manager)?;
        let mut changes = store.begin().with_name(&format!("the transaction {id}"));
        if let Some(deadline) = deadline {
            // Others that wait for its entries wait no longer than it may take, also when the program hangs.
            changes = changes.with_lease(deadline.saturating_duration_since(Instant::now()));
        }
        let durability = manager.durability.unwrap_or_else(|| store.durability());
        Ok(Self { changes, store, durability, deadline, only_reads: true, reads_keys: false })
    }

    /// Makes it happen, and with it the decision about these branches.
    pub(crate) fn commit(self, id: TransactionId, prepared: &[BranchName]) -> tm::Result<()> {
        commit_with_decision(&self.store, self.changes, OwnDecision { id, prepared, durability: self.durability })
    }

    pub(crate) fn put(&mut self, bucket: &[u8], key: &[u8], value: &[u8]) -> Result<()> {
        self.only_reads = false;
        self.changes.put(bucket, key, value, &PutOptions::default())
    }

    pub(crate) fn get(&mut self, bucket: &[u8], key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.reads_keys = true;
        Ok(self.changes.get(bucket, key)?.map(|object| object.value.to_vec()))
    }

    /// Whether it was there.
    pub(crate) fn delete(&mut self, bucket: &[u8], key: &[u8]) -> Result<bool> {
        self.reads_keys = true;
        let was_there = self.changes.delete(bucket, key)?;
        self.only_reads &= !was_there;
        Ok(was_there)
    }

    /// Writes an entry, whatever is there; its id as JSON.
    pub(crate) fn write(&mut self, space: &str, name: &str, json: &[u8]) -> Result<String> {
        let (entries, document) = (self.entries(space, name)?, Document::from_json(json)?);
        let options = WriteOptions { lock_timeout: Some(self.patience()), ..WriteOptions::default() };
        self.only_reads = false;
        Ok(entries.within(&mut self.changes).write(&document, &options)?.id.to_json())
    }

    /// The entry with this id, which is gone then.
    pub(crate) fn take(&mut self, space: &str, name: &str, id: &[u8]) -> Result<Option<String>> {
        let wanted = self.wanted(space, name, id)?;
        let only_reads = std::mem::replace(&mut self.only_reads, false);
        let taken = self.entry(&wanted, |within, wanted, options| within.take(wanted, options))?;
        self.only_reads = only_reads && taken.is_none();
        Ok(taken)
    }

    /// The entry with this id, which stays as it is until the end of the transaction.
    pub(crate) fn read(&mut self, space: &str, name: &str, id: &[u8]) -> Result<Option<String>> {
        let wanted = self.wanted(space, name, id)?;
        self.entry(&wanted, |within, wanted, options| within.read(wanted, ReadLock::Shared, options))
    }

    fn wanted(&self, space: &str, name: &str, id: &[u8]) -> Result<(Entries, Wanted)> {
        let (entries, id) = (self.entries(space, name)?, Value::from_json(id)?);
        if let Some(path) = entries.definition().routed_by() {
            let text =
                format!("entries of {name} are known by {path} and their id: by the id alone several may be meant");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok((entries, Wanted::id(id)))
    }

    fn entry(
        &mut self,
        (entries, wanted): &(Entries, Wanted),
        get: impl FnOnce(&mut holdfast::space::Within<'_>, &Wanted, &ReadOptions) -> Result<Option<holdfast::space::Entry>>,
    ) -> Result<Option<String>> {
        let options = ReadOptions { wait: Some(self.patience()), if_exists: true, ..ReadOptions::default() };
        let mut within = entries.within(&mut self.changes);
        let found = get(&mut within, wanted, &options)?;
        if found.is_none() {
            // One that somebody else has locked is not one that is not there.
            within.check_gone(wanted)?;
        }
        Ok(found.map(|entry| entry.document.to_json()))
    }

    pub(crate) fn add_point(&mut self, point: &Point) -> Result<()> {
        self.changes.check()?;
        let limits = self.store.limits();
        let (tags_max, bytes_max) = (limits.series_tags_max, limits.series_name_bytes_max);
        let tags = point.tags.iter().flat_map(|(tag, value)| [tag, value]);
        let longest = tags.clone().chain([&point.metric]).map(String::len).max().unwrap_or(0);
        if longest > bytes_max {
            let text = format!("a metric, a tag and its value have at most {bytes_max} bytes, not {longest}");
            return Err(Error::new(ErrorKind::Limit, text));
        }
        if point.tags.len() > tags_max {
            let text = format!("a series has at most {tags_max} tags, not {}", point.tags.len());
            return Err(Error::new(ErrorKind::Limit, text));
        }
        let mut raw = Vec::new();
        for text in std::iter::once(&point.metric).chain(tags) {
            // Lengths keep `ab`, `c` and `a`, `bc` apart.
            raw.extend_from_slice(&text.len().to_le_bytes());
            raw.extend_from_slice(text.as_bytes());
        }
        let rows = self.changes.points();
        let row = rows.row(&raw, |_| Ok((point.metric.clone(), point.tags.clone())))?;
        let slot = rows.field(row, 0, FIELD_DEFAULT.as_bytes(), |_| Ok(FIELD_DEFAULT.to_owned()))?;
        rows.push_float(slot, point.time, point.value);
        self.only_reads = false;
        Ok(())
    }

    fn entries(&self, space: &str, name: &str) -> Result<Entries> {
        self.changes.check()?;
        self.store.space(space).entries(name)
    }

    /// How long the next call may wait for somebody else's lock.
    fn patience(&self) -> Duration {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        left.map_or(LOCK_TIME_MAX, |left| left.min(LOCK_TIME_MAX))
    }
}
