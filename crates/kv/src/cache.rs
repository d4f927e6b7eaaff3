//! What was used lately: ledger entries, found by one hash instead of a search through the ledger's levels, and values,
//! found without a system call.
//!
//! The cache of entries shows the newest entry or nothing. Whoever changes the ledger changes the cache under the same lock;
//! whoever read an entry from the ledger may put it here only if nothing of the partition was changed since before the read.
//! Measured: a search through the ledger's memory costs about 4 us on a machine where a cached look-up costs 0.2 us,
//! and every put has to look for the entry that it replaces.
//!
//! Values are kept by where they lie in the journal. What lies at a position never changes, so there is nothing to keep in
//! step: the entry says where the value is now, and what is kept of elsewhere goes unused until its room is needed. A value
//! is kept when it is written, unless it is large, and when it is read for the second time; what is not used then goes first, so
//! neither loading much nor going through it once drives out what is in use. Measured: the system call that reads a value of 1 KiB
//! from the page cache is a third of what a GET costs the server.
//!
//! May use: `kept.rs`. Must not know: what entries mean.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::hash64;
use journal::Position;

use crate::error::Result;
use crate::kept::{Bytes, Kept, Mark};
use crate::ledger::{Ledger, Slice};

/// Bytes of a usual entry.
const ENTRY_BYTES: u64 = 256;
/// Less than a usual value's bytes, so that sets of the table seldom overflow.
const VALUE_BYTES: u64 = 512;
/// Larger values are not kept: reading them costs more than finding them, with or without a system call.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Larger values are not kept when they are written: copying them would cost writers more than it saves a first reader.
const WRITTEN_BYTES_MAX: usize = 16 << 10;

/// What all partitions of a store keep of what was used lately.
pub struct Caches {
    /// The key, and the entry; marked by the key's hash and length.
    entries: Kept,
    /// Values, marked by where they lie and their checksum.
    values: Kept,
}

impl Caches {
    /// Caches of at most about so many bytes each; none of values when that is 0.
    #[must_use]
    pub fn new(entry_bytes: u64, value_bytes: u64) -> Self {
        Self { entries: Kept::new(entry_bytes, ENTRY_BYTES), values: Kept::new(value_bytes, VALUE_BYTES) }
    }

    /// The value at `at`, which has this checksum, if it is kept.
    pub(crate) fn value(&self, at: u64, checksum: u32) -> Option<Bytes> {
        self.values.get(Mark { number: at, tag: checksum }, |_| true).map(Bytes::from)
    }

    /// Takes note that the value at `at`, proven by its checksum, was read, and keeps it when that was not the first time.
    pub(crate) fn note_value(&self, at: u64, checksum: u32, value: &[u8]) {
        let mark = Mark { number: at, tag: checksum };
        if value.len() <= VALUE_BYTES_MAX && self.values.may_keep(value.len()) && self.values.was_seen(mark) {
            self.values.keep(mark, |_| true, value.into());
        }
    }

    /// Keeps the value that was written at `at`.
    pub(crate) fn keep_written(&self, at: u64, checksum: u32, value: &[u8]) {
        if value.len() <= WRITTEN_BYTES_MAX && self.values.may_keep(value.len()) {
            self.values.keep(Mark { number: at, tag: checksum }, |_| true, value.into());
        }
    }

    fn entry(&self, key: &[u8]) -> Option<Bytes> {
        let piece = self.entries.get(mark_of(key)?, |piece| piece.starts_with(key))?;
        Some(Bytes::from(piece).skip(key.len()))
    }

    fn keep_entry(&self, key: &[u8], entry: &[u8]) {
        let Some(mark) = mark_of(key) else { return };
        self.entries.keep(mark, |piece| piece.starts_with(key), [key, entry].concat().into());
    }

    fn remove_entry(&self, key: &[u8]) {
        let Some(mark) = mark_of(key) else { return };
        self.entries.remove(mark, |piece| piece.starts_with(key));
    }
}

fn mark_of(key: &[u8]) -> Option<Mark> {
    u32::try_from(key.len()).ok().map(|tag| Mark { number: hash64(key), tag })
}

/// One partition's ledger behind the cache.
#[derive(Clone)]
pub(crate) struct Entries {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) caches: Arc<Caches>,
    /// Counts the partition's changes; held during each.
    changes: Arc<Mutex<u64>>,
}

impl Entries {
    pub(crate) fn new(ledger: Arc<dyn Ledger>, caches: Arc<Caches>) -> Self {
        Self { ledger, caches, changes: Arc::default() }
    }

    fn changes(&self) -> MutexGuard<'_, u64> {
        // A count cannot be half written.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(entry) = self.caches.entry(key) {
            return Ok(Some(entry));
        }
        let before = *self.changes();
        let found = self.ledger.get(key)?;
        if let Some(entry) = &found {
            let changes = self.changes();
            if *changes == before {
                self.caches.keep_entry(key, entry);
            }
        }
        Ok(found.map(Bytes::from))
    }

    pub(crate) fn insert(&self, key: &[u8], entry: Slice, position: Position) {
        let mut changes = self.changes();
        *changes += 1;
        self.ledger.insert(key, entry.clone(), position);
        self.caches.keep_entry(key, &entry);
    }

    /// Drops everything, also what the cache holds of other partitions: it comes back with use.
    pub(crate) fn reset(&self) -> Result<()> {
        let mut changes = self.changes();
        *changes += 1;
        self.caches.entries.clear();
        self.ledger.reset()
    }

    pub(crate) fn remove(&self, key: &[u8], position: Position) {
        let mut changes = self.changes();
        *changes += 1;
        self.ledger.remove(key, position);
        self.caches.remove_entry(key);
    }
}
