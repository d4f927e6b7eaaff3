//! The entries of one type, as users work with them.
//!
//! May use: everything of this folder. Must not know: protocols.

use std::sync::Arc;

use ::space::{Definition, Document, Engine, Stored, Usage, ValueRef, id_hash};
use journal::Position;

use super::kind::Kind;
use super::memory::Held;
use super::route;
use super::stop::{Stop, Watch};
use crate::durability::Durability;
use crate::error::Result;
use crate::kv::Shown;
use crate::store::{Inner, Store};

/// The entries of one type.
#[derive(Clone)]
pub struct Entries {
    pub(crate) store: Store,
    pub(crate) kind: Arc<Kind>,
    stop: Stop,
}

/// An entry as it was at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its fields, its id among them.
    pub document: Document,
    /// The position of the batch that wrote it last; of a volatile entry another number that is never the same twice.
    pub version: Position,
    /// When its lease ends, in milliseconds since 1970; `None` is never.
    pub expires_ms: Option<u64>,
}

impl From<Entry> for Stored {
    fn from(entry: Entry) -> Self {
        let expires_ms = entry.expires_ms.unwrap_or(0);
        Self { document: entry.document, version: entry.version, expires_ms, sequence: 0 }
    }
}

impl From<Stored> for Entry {
    fn from(stored: Stored) -> Self {
        let expires_ms = (stored.expires_ms != 0).then_some(stored.expires_ms);
        Self { document: stored.document, version: stored.version, expires_ms }
    }
}

impl Entries {
    pub(crate) fn new(store: Store, kind: Arc<Kind>) -> Self {
        Self { store, kind, stop: Stop::default() }
    }

    /// The same entries, for operations that are to end though they are not done: whatever goes through entries fails with `Limit`
    /// when it takes longer than [`Stop::time_max`], and with `Timeout` when it was canceled. What was cleared, changed or taken by
    /// then stays so.
    #[must_use]
    pub fn until(&self, stop: Stop) -> Self {
        Self { stop, ..self.clone() }
    }

    /// Counts so many bytes of a query as memory, as [`Wanted::kept`](super::Wanted::kept) does, until what is returned is dropped.
    ///
    /// # Errors
    /// `Limit`.
    pub fn keep_bytes(&self, bytes: usize) -> Result<Held> {
        self.inner().query_memory.keep(bytes as u64)
    }

    /// An operation begins that goes through entries.
    pub(crate) fn watch(&self) -> Watch<'_> {
        self.stop.watch(&*self.inner().clock)
    }

    /// What the type is.
    #[must_use]
    pub fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.kind.definition())
    }

    /// The type's number in the store: one that was dropped and declared anew has another.
    #[must_use]
    pub fn type_number(&self) -> u32 {
        self.kind.of.0
    }

    /// The store in which they are.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn inner(&self) -> &Inner {
        self.store.inner()
    }

    /// Whether the type is still the one that was declared: once dropped, also one of the same name is another.
    #[must_use]
    pub fn is_there(&self) -> bool {
        !self.kind.is_dropped()
    }

    /// Whether they are in the journal; entries of a volatile type are not.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.kind.is_durable()
    }

    /// As [`Store::give_way`], before a change.
    pub(super) fn give_way(&self, durability: Option<Durability>) {
        match self.is_durable() {
            true => self.store.give_way(durability.unwrap_or(self.store.durability())),
            false => self.store.give_way_in_memory(),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.inner().check_open()?;
        self.kind.check()
    }

    /// Waits until what an answer rests on may be shown.
    pub(crate) fn settle<T>(&self, shown: Shown<T>) -> Result<T> {
        if !self.is_durable() {
            return Ok(shown.value);
        }
        self.store.settle(shown)
    }

    /// Hands on what a call came to that waits for durability: a refusal when what it rests on is as durable as asked.
    pub(super) fn told<T>(&self, result: Result<T>, durability: Option<Durability>) -> Result<T> {
        self.store.told(result, durability.unwrap_or(self.store.durability()))
    }

    /// What a refusal rests on that follows from this entry, or from there being none: nothing of a type that is in no journal.
    pub(super) fn ground(&self, engine: &Engine, there: Option<&Stored>) -> Position {
        match self.is_durable() {
            true => there.map_or_else(|| engine.gone(self.kind.of), |there| there.version),
            false => Position::ZERO,
        }
    }

    pub(crate) fn settle_change(&self, position: Position, durability: Option<Durability>) -> Result<()> {
        if !self.is_durable() {
            return Ok(());
        }
        self.store.wait(position, durability.unwrap_or(self.store.durability()))
    }

    /// What the type takes of memory.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut all = Usage { entries: 0, bytes: 0, indexes: Vec::new() };
        for usage in self.inner().partitions.iter().filter_map(|it| it.space().usage(self.kind.of)) {
            all.entries += usage.entries;
            all.bytes += usage.bytes;
            for (name, bytes) in usage.indexes {
                match all.indexes.iter_mut().find(|(other, _)| *other == name) {
                    Some((_, sum)) => *sum += bytes,
                    None => all.indexes.push((name, bytes)),
                }
            }
        }
        all
    }

    /// Has the processor fetch what entries with these ids are looked up in, for who is about to read or take one after the other: each
    /// look-up waits for memory several times, and so do all of them at once. Waits for nobody, changes nothing, and may be left out.
    pub fn fetch_ahead<'v>(&self, ids: impl Iterator<Item = ValueRef<'v>>) {
        let definition = self.kind.definition();
        for hash in ids.filter_map(id_hash) {
            let Some(partition) = route::of_id_hash(self.inner(), &definition, hash) else { return };
            if let Some(engine) = partition.try_space() {
                engine.fetch_ahead(self.kind.of, hash);
            }
        }
    }

    /// How many wait for entries now.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.kind.waiters.len()
    }
}
