//! What was used lately, found by one hash instead of a search through the ledger's levels and a system call: ledger entries,
//! and whole objects, entry and value side by side.
//!
//! A key is in one of the two tables or in none, and what is there is its newest state. The ledger and the tables change together,
//! in one change of the partition at a time, and changes are counted. Who read an entry from the ledger may put it here only if
//! none was since, of whatever key; who read a value, only if the key's entry here is still the one that led to it.
//! Measured: a search through the ledger's memory costs about 4 us on a machine where a cached look-up costs 0.2 us,
//! and every put has to look for the entry that it replaces.
//!
//! A value that is not large is kept when it is written, and when it is read for the second time; what is not used then goes
//! first, so neither loading much nor going through it once drives out what is in use. Measured: the system call that reads a
//! value of 1 KiB from the page cache is a third of what a GET costs the server; found by where it lies instead of by its key,
//! a value costs a second search, and those that were overwritten or moved by compaction take the room of those in use.
//!
//! May use: `kept.rs`. Must not know: what entries mean.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::hash64;
use journal::Position;

use crate::coming::{Step, Table};
use crate::error::Result;
use crate::kept::{Bytes, Kept, Mark};
use crate::ledger::{Ledger, Slice};

/// Less than a usual entry's bytes with what it costs beside them, so that sets of the table seldom overflow: with a slot for
/// each 256 bytes a tenth of 100 000 entries in use did not find room, and each was searched for in the ledger.
const ENTRY_BYTES: u64 = 128;
/// Less than a usual object's bytes, for the same reason.
const OBJECT_BYTES: u64 = 512;
/// Larger values are not kept: the system has them in its own cache of files, and to copy them costs their readers about as much as the
/// system call that they save, their writers another copy, and the process the memory once more.
const VALUE_BYTES_MAX: usize = 4 << 10;
/// Bytes of the length that a piece begins with.
const LENGTH_BYTES: usize = 4;

/// What all partitions of a store keep of what was used lately. Pieces of both tables are
/// `length of the entry | key | entry | value`, and are marked by the key's hash and length.
pub struct Caches {
    /// Without values.
    entries: Kept,
    /// With values that are not in the entry.
    objects: Kept,
}

/// An entry, and its object's value if that was at hand too.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) entry: Bytes,
    pub(crate) value: Option<Bytes>,
}

impl From<Slice> for Stored {
    fn from(entry: Slice) -> Self {
        Self { entry: entry.into(), value: None }
    }
}

impl Stored {
    /// What a piece of `key` holds.
    fn of(piece: Arc<[u8]>, key: &[u8], has_value: bool) -> Self {
        let from = LENGTH_BYTES + key.len();
        let length = piece.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
        let end = from + usize::try_from(length).unwrap_or_default();
        let piece = Bytes::from(piece);
        Self { value: has_value.then(|| piece.clone().skip(end)), entry: piece.cut(from, end) }
    }
}

fn is_of(key: &[u8]) -> impl Fn(&[u8]) -> bool {
    move |piece| piece.get(LENGTH_BYTES..).is_some_and(|rest| rest.starts_with(key))
}

impl Mark {
    /// By what a key is found.
    pub(crate) fn of(key: &[u8]) -> Option<Self> {
        u32::try_from(key.len()).ok().map(|tag| Self { number: hash64(key), tag })
    }
}

impl Caches {
    /// Caches of at most about so many bytes each; none of values when that is 0.
    #[must_use]
    pub fn new(entry_bytes: u64, value_bytes: u64) -> Self {
        Self { entries: Kept::new(entry_bytes, ENTRY_BYTES), objects: Kept::new(value_bytes, OBJECT_BYTES) }
    }

    /// Fetches what a look-up of this mark's key looks at. That is in one of the two tables: which one shows on the way.
    pub(crate) fn fetch(&self, mark: Mark, step: Step, table: &mut Table) {
        let may_be_object = match (step, *table) {
            (Step::First, _) => self.objects.fetch_slots(mark),
            (Step::Second, Table::Objects) => self.objects.fetch_piece(mark),
            (Step::Third, Table::Objects) => true,
            (_, Table::Entries) => {
                self.entries.fetch_piece(mark);
                true
            }
        };
        if !may_be_object {
            *table = Table::Entries;
            self.entries.fetch_slots(mark);
        }
    }

    fn find(&self, key: &[u8]) -> Option<Stored> {
        let mark = Mark::of(key)?;
        if let Some(piece) = self.objects.get(mark, is_of(key)) {
            return Some(Stored::of(piece, key, true));
        }
        self.entries.get(mark, is_of(key)).map(|piece| Stored::of(piece, key, false))
    }

    fn peek(&self, key: &[u8]) -> Option<Stored> {
        let mark = Mark::of(key)?;
        if let Some(piece) = self.objects.peek(mark, is_of(key)) {
            return Some(Stored::of(piece, key, true));
        }
        self.entries.peek(mark, is_of(key)).map(|piece| Stored::of(piece, key, false))
    }

    /// Objects are changed before entries, always: what an object leaves behind when it has to go is then never older than what
    /// this, or [`Caches::remove`], says of its key.
    fn keep(&self, key: &[u8], entry: &[u8], value: Option<&[u8]>) {
        let (Some(mark), Ok(length)) = (Mark::of(key), u32::try_from(entry.len())) else { return self.remove(key) };
        let length = length.to_le_bytes();
        let bytes = LENGTH_BYTES + key.len() + entry.len();
        match value.filter(|value| self.objects.may_keep(bytes + value.len())) {
            Some(value) => {
                let parts = [&length, key, entry, value];
                let is_new =
                    !self.objects.keep(mark, is_of(key), &parts, &mut |mark, piece| self.keep_entry_of(mark, piece));
                // An object that was there already has no entry beside it.
                if is_new {
                    self.entries.remove(mark, is_of(key));
                }
            }
            None => {
                self.objects.remove(mark, is_of(key));
                self.entries.keep(mark, is_of(key), &[&length, key, entry], &mut |_, _| ());
            }
        }
    }

    /// An object has to go: its entry is small, and stays.
    fn keep_entry_of(&self, mark: Mark, piece: &[u8]) {
        let length = piece.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
        let [keys, entries] = [mark.tag, length].map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let end = LENGTH_BYTES.saturating_add(keys).saturating_add(entries);
        let (Some(without), Some(key)) = (piece.get(..end), piece.get(LENGTH_BYTES..LENGTH_BYTES + keys)) else {
            return;
        };
        self.entries.keep(mark, is_of(key), &[without], &mut |_, _| ());
    }

    /// Objects first here too: one of this partition that has to go meanwhile, for another partition's, leaves its entry behind, and
    /// that would be taken for the state of an object that is not there any more.
    fn clear(&self) {
        self.objects.clear();
        self.entries.clear();
    }

    fn remove(&self, key: &[u8]) {
        let Some(mark) = Mark::of(key) else { return };
        self.objects.remove(mark, is_of(key));
        self.entries.remove(mark, is_of(key));
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
        if let Some(entry) = &found {
            let _none = self.changes.none();
            // Without changes the count is even; so is what it was before, if it is the same.
            if self.changes.count() == before {
                self.caches.keep(key, entry, None);
            }
        }
        Ok(found.map(Stored::from))
    }

    /// As [`Entries::get`], for the background, which goes through everything once: what it asks for is not more in use for that,
    /// and is not kept.
    pub(crate) fn peek(&self, key: &[u8]) -> Result<Option<Stored>> {
        match self.caches.peek(key) {
            Some(stored) => Ok(Some(stored)),
            None => Ok(self.ledger.get(key)?.map(Stored::from)),
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
        if value.len() <= VALUE_BYTES_MAX
            && self.caches.objects.may_keep(value.len())
            && self.caches.objects.was_seen(mark)
        {
            let _none = self.changes.none();
            if self.caches.find(key).is_some_and(|now| *now.entry == *entry) {
                self.caches.keep(key, entry, Some(value));
            }
        }
    }

    /// The key stands for `entry` now, and for `value`, which is not in it, if there is one to keep.
    pub(crate) fn insert(&self, key: &[u8], entry: &[u8], value: Option<&[u8]>, position: Position) {
        let _change = self.changes.begin();
        self.ledger.insert(key, entry, position);
        self.caches.keep(key, entry, value.filter(|value| value.len() <= VALUE_BYTES_MAX));
    }

    /// Drops everything, also what is at hand of other partitions: it comes back with use.
    pub(crate) fn reset(&self) -> Result<()> {
        let _change = self.changes.begin();
        self.caches.clear();
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
