//! What was used lately, found by one hash instead of a search through the ledger's levels and a system call: ledger entries,
//! each with its object's value beside it or without.
//!
//! What is there of a key is its newest state. The ledger and the table change together, in one change of the partition at a time, and
//! changes are counted. Who read an entry from the ledger may put it here only if
//! none was since, of whatever key; who read a value, only if the key's entry here is still the one that led to it.
//! Measured: a search through the ledger's memory costs about 4 us on a machine where a cached look-up costs 0.2 us,
//! and every put has to look for the entry that it replaces.
//!
//! A value that is not large is kept when it is written, and when it is read for the second time; what is not used then goes
//! first, so neither loading much nor going through it once drives out what is in use. Measured: the system call that reads a
//! value of 1 KiB from the page cache is a third of what a GET costs the server; found by where it lies instead of by its key,
//! a value costs a second search, and those that were overwritten or moved by compaction take the room of those in use.
//!
//! Entries and values had a table each once: objects of a hundred bytes, whose values are in their entries, had a sixth of the room then,
//! and each look-up of one was two.
//!
//! May use: `kept.rs`. Must not know: what entries mean.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::hash64;
use journal::Position;

use crate::coming::Step;
use crate::error::Result;
use crate::kept::{Because, Kept, Mark};
use crate::ledger::{Hit, Ledger};
use crate::piece::{Bytes, Piece};

/// Larger values are not kept: the system has them in its own cache of files, and to copy them costs their readers about as much as the
/// system call that they save, their writers another copy, and the process the memory once more.
const VALUE_BYTES_MAX: usize = 4 << 10;
/// What all partitions of a store keep of what was used lately. A piece's head is `key | entry`, its tail the value if that is not
/// in the entry; it is marked by the key's hash and length.
pub struct Caches(Kept);

/// An entry, and its object's value if that was at hand too.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) entry: Bytes,
    pub(crate) value: Option<Bytes>,
}

impl From<Hit> for Stored {
    fn from(found: Hit) -> Self {
        Self { entry: found.value.into(), value: None }
    }
}

impl Stored {
    /// What a piece of `key` holds.
    fn of(piece: Piece, key: &[u8]) -> Self {
        let (entry, value) = piece.cut(key.len());
        Self { entry, value }
    }
}

fn is_of(key: &[u8]) -> impl Fn(&[u8]) -> bool {
    move |head| head.starts_with(key)
}

impl Mark {
    /// By what a key is found.
    pub(crate) fn of(key: &[u8]) -> Option<Self> {
        u32::try_from(key.len()).ok().map(|tag| Self { number: hash64(key), tag })
    }
}

impl Caches {
    /// Room for about `entry_bytes` and `value_bytes`, of which values may take the second: none of them when that is 0.
    #[must_use]
    pub fn new(entry_bytes: u64, value_bytes: u64) -> Self {
        Self(Kept::new(entry_bytes, value_bytes))
    }

    /// Fetches what a look-up of this mark's key looks at.
    pub(crate) fn fetch(&self, mark: Mark, step: Step) {
        match step {
            Step::First => self.0.fetch_slots(mark),
            Step::Second => self.0.fetch_piece(mark),
            Step::Third => (),
        }
    }

    fn find(&self, key: &[u8]) -> Option<Stored> {
        self.0.get(Mark::of(key)?, is_of(key)).map(|piece| Stored::of(piece, key))
    }

    fn peek(&self, key: &[u8]) -> Option<Stored> {
        self.0.peek(Mark::of(key)?, is_of(key)).map(|piece| Stored::of(piece, key))
    }

    fn keep(&self, key: &[u8], entry: &[u8], value: Option<&[u8]>, because: Because) {
        if let Some(mark) = Mark::of(key) {
            self.0.keep(mark, is_of(key), ([key, entry], value.unwrap_or_default()), because);
        }
    }

    /// What the ledger has at hand itself is kept when it is asked for again, and does not take room of what blocks it is in.
    fn worth_keeping(&self, key: &[u8], found: &Hit) -> Option<Because> {
        if !found.was_at_hand {
            return Some(Because::Asked);
        }
        self.0.was_seen(Mark::of(key)?).then_some(Because::Written)
    }

    /// Tells `taker` how many bytes of the room are not needed, now and whenever that has changed by some.
    pub fn lend(&self, taker: Box<dyn Fn(u64) + Send + Sync>) {
        self.0.lend(taker);
    }

    fn remove(&self, key: &[u8]) {
        if let Some(mark) = Mark::of(key) {
            self.0.remove(mark, is_of(key));
        }
    }
}

/// One partition's ledger behind the cache.
#[derive(Clone)]
pub(crate) struct Entries {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) caches: Arc<Caches>,
    changes: Arc<Changes>,
}

/// Counts the partition's changes, and lets one happen at a time. Who looks for something that is not there reads the count
/// alone: he has nothing to keep, and must not wait for writers.
#[derive(Default)]
struct Changes {
    /// Odd while a change is under way.
    count: AtomicU64,
    none: Mutex<()>,
}

/// A change that is under way.
struct Change<'a> {
    count: &'a AtomicU64,
    _none: MutexGuard<'a, ()>,
}

impl Changes {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Keeps changes away.
    fn none(&self) -> MutexGuard<'_, ()> {
        self.none.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> Change<'_> {
        let none = self.none();
        self.count.fetch_add(1, Ordering::AcqRel);
        Change { count: &self.count, _none: none }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }
}

impl Entries {
    pub(crate) fn new(ledger: Arc<dyn Ledger>, caches: Arc<Caches>) -> Self {
        Self { ledger, caches, changes: Arc::default() }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Stored>> {
        if let Some(stored) = self.caches.find(key) {
            return Ok(Some(stored));
        }
        let before = self.changes.count();
        let found = self.ledger.get(key)?;
        let because = found.as_ref().and_then(|found| self.caches.worth_keeping(key, found));
        if let (Some(found), Some(because)) = (&found, because) {
            let _none = self.changes.none();
            // Without changes the count is even; so is what it was before, if it is the same.
            if self.changes.count() == before {
                self.caches.keep(key, &found.value, None, because);
            }
        }
        Ok(found.map(Stored::from))
    }

    /// As [`Entries::get`], for the background, which goes through everything once: what it asks for is not more in use for that,
    /// and is not kept.
    pub(crate) fn peek(&self, key: &[u8]) -> Result<Option<Stored>> {
        match self.caches.peek(key) {
            Some(stored) => Ok(Some(stored)),
            None => Ok(self.ledger.peek(key)?.map(Stored::from)),
        }
    }

    /// The object's value if it is at hand, and `entry` is still what the ledger says of it.
    pub(crate) fn value(&self, key: &[u8], entry: &[u8]) -> Option<Bytes> {
        self.caches.find(key).filter(|stored| *stored.entry == *entry)?.value
    }

    /// Takes note that the value that `entry` stands for was read, and keeps it when that was not the first time and nothing
    /// has changed.
    pub(crate) fn note_value(&self, key: &[u8], entry: &[u8], value: &[u8]) {
        let Some(mark) = Mark::of(key) else { return };
        if value.len() <= VALUE_BYTES_MAX && self.caches.0.may_keep_tail(value.len()) && self.caches.0.was_seen(mark) {
            let _none = self.changes.none();
            if self.caches.find(key).is_some_and(|now| *now.entry == *entry) {
                self.caches.keep(key, entry, Some(value), Because::Asked);
            }
        }
    }

    /// The key stands for `entry` now, and for `value`, which is not in it, if there is one to keep.
    pub(crate) fn insert(&self, key: &[u8], entry: &[u8], value: Option<&[u8]>, position: Position) {
        let _change = self.changes.begin();
        self.ledger.insert(key, entry, position);
        self.caches.keep(key, entry, value.filter(|value| value.len() <= VALUE_BYTES_MAX), Because::Written);
    }

    /// Drops everything, also what is at hand of other partitions: it comes back with use.
    pub(crate) fn reset(&self) -> Result<()> {
        let _change = self.changes.begin();
        self.caches.0.clear();
        self.ledger.reset()
    }

    pub(crate) fn remove(&self, key: &[u8], position: Position) {
        let _change = self.changes.begin();
        self.ledger.remove(key, position);
        self.caches.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::Random;

    use super::*;
    use crate::{Ledgers, MemoryLedgers};
    use journal::PartitionId;

    fn bytes(random: &mut Random, max: u64) -> Vec<u8> {
        let mut bytes = vec![0; 8 + usize::try_from(random.below(max)).unwrap()];
        random.fill(&mut bytes);
        bytes
    }

    /// In little room, so that objects have to go all the time and leave their entries.
    #[test]
    fn what_is_at_hand_is_what_the_ledger_says_and_values_are_those_of_their_entries() {
        for (entry_bytes, value_bytes) in
            [(16 << 10, 0), (64 << 10, 256 << 10), (1 << 20, 64 << 10), (1 << 20, 8 << 20)]
        {
            let ledger = MemoryLedgers::new().open(PartitionId::new(0)).unwrap();
            let entries = Entries::new(ledger, Arc::new(Caches::new(entry_bytes, value_bytes)));
            let mut model: BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)> = BTreeMap::new();
            let mut random = Random::new(entry_bytes + value_bytes);
            let (mut with_value, mut left) = (0, 0);
            for at in 1..60_000 {
                let key = format!("key {}", random.below(400)).into_bytes();
                match random.below(8) {
                    0 => {
                        entries.remove(&key, Position::new(at));
                        model.remove(&key);
                    }
                    1 | 2 => {
                        let (entry, value) = (bytes(&mut random, 40), bytes(&mut random, 1_000));
                        let kept = random.chance(1, 2).then_some(value.as_slice());
                        entries.insert(&key, &entry, kept, Position::new(at));
                        model.insert(key, (entry, value));
                    }
                    _ => {
                        let peeked = entries.peek(&key).unwrap().map(|stored| stored.entry.to_vec());
                        let found = entries.get(&key).unwrap();
                        assert_eq!(peeked, found.as_ref().map(|stored| stored.entry.to_vec()));
                        let known = model.get(&key);
                        assert_eq!(
                            found.as_ref().map(|stored| &*stored.entry),
                            known.map(|(entry, _)| entry.as_slice())
                        );
                        let (Some(Stored { entry, value }), Some((_, known))) = (found, known) else { continue };
                        match value {
                            Some(value) => {
                                assert_eq!(*value, **known);
                                with_value += 1;
                            }
                            None if random.chance(1, 2) => entries.note_value(&key, &entry, known),
                            None => left += 1,
                        }
                        let outdated = entries.value(&key, b"another entry");
                        assert!(outdated.is_none());
                    }
                }
            }
            assert_eq!(with_value > 0, value_bytes > 0);
            assert!(left > 100, "{left}");
        }
    }
}
