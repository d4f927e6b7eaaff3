//! Ledger entries that were used lately, found by one hash instead of a search through the ledger's levels.
//!
//! The cache shows the newest entry or nothing. Whoever changes the ledger changes the cache under the same lock; whoever
//! read an entry from the ledger may put it here only if nothing of the partition was changed since before the read.
//!
//! Measured: a search through the ledger's memory costs about 4 us on a machine where a cached look-up costs 0.2 us,
//! and every put has to look for the entry that it replaces.
//!
//! May use: `quick_cache`. Must not know: what entries mean.

use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::hash64;
use journal::Position;

use crate::error::Result;
use crate::ledger::{Ledger, Slice};

/// Bytes that a cached entry costs beside key and entry.
const OVERHEAD_BYTES: usize = 96;
/// Bytes of a usual entry, to size the cache's table.
const USUAL_BYTES: u64 = 256;

/// Entries of all partitions of a store.
pub struct EntryCache(quick_cache::sync::Cache<Box<[u8]>, Slice, Weigh, Hash>);

#[derive(Clone)]
struct Weigh;

impl quick_cache::Weighter<Box<[u8]>, Slice> for Weigh {
    fn weight(&self, key: &Box<[u8]>, entry: &Slice) -> u64 {
        (key.len() + entry.len() + OVERHEAD_BYTES) as u64
    }
}

#[derive(Clone, Default)]
struct Hash;

#[derive(Default)]
struct OneHash(u64);

impl BuildHasher for Hash {
    type Hasher = OneHash;

    fn build_hasher(&self) -> OneHash {
        OneHash::default()
    }
}

impl Hasher for OneHash {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.rotate_left(5) ^ hash64(bytes);
    }

    fn write_usize(&mut self, number: usize) {
        self.0 ^= number as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl EntryCache {
    /// A cache of at most about `bytes`.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let entries = usize::try_from(bytes / USUAL_BYTES).unwrap_or(usize::MAX);
        let lifecycle = quick_cache::sync::DefaultLifecycle::default();
        Self(quick_cache::sync::Cache::with(entries, bytes, Weigh, Hash, lifecycle))
    }
}

/// One partition's ledger behind the cache.
#[derive(Clone)]
pub(crate) struct Entries {
    pub(crate) ledger: Arc<dyn Ledger>,
    cache: Arc<EntryCache>,
    /// Counts the partition's changes; held during each.
    changes: Arc<Mutex<u64>>,
}

impl Entries {
    pub(crate) fn new(ledger: Arc<dyn Ledger>, cache: Arc<EntryCache>) -> Self {
        Self { ledger, cache, changes: Arc::default() }
    }

    fn changes(&self) -> MutexGuard<'_, u64> {
        // A count cannot be half written.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        if let Some(entry) = self.cache.0.get(key) {
            return Ok(Some(entry));
        }
        let before = *self.changes();
        let found = self.ledger.get(key)?;
        if let Some(entry) = &found {
            // A copy: what the ledger returns may keep a whole block alive.
            let copy = Slice::new(entry);
            let changes = self.changes();
            if *changes == before {
                self.cache.0.insert(key.into(), copy);
            }
        }
        Ok(found)
    }

    pub(crate) fn insert(&self, key: &[u8], entry: Slice, position: Position) {
        let mut changes = self.changes();
        *changes += 1;
        self.ledger.insert(key, entry.clone(), position);
        self.cache.0.insert(key.into(), entry);
    }

    /// Drops everything, also what the cache holds of other partitions: it comes back with use.
    pub(crate) fn reset(&self) -> Result<()> {
        let mut changes = self.changes();
        *changes += 1;
        self.cache.0.clear();
        self.ledger.reset()
    }

    pub(crate) fn remove(&self, key: &[u8], position: Position) {
        let mut changes = self.changes();
        *changes += 1;
        self.ledger.remove(key, position);
        self.cache.0.remove(key);
    }
}
