//! The entries of one type in one partition: found by their number here, or by id.
//!
//! Numbers are given again when entries go. The table from id to number holds nothing but numbers, because an entry knows
//! its id: so an entry costs 48 bytes, its document, and some 6 bytes of table.
//!
//! May use: `document`, `value`. Must not know: indexes, types.

use hashbrown::HashTable;
use journal::Position;

use crate::document::Document;
use crate::value::ValueRef;

/// An entry's number within its type and partition.
pub(crate) type Slot = u32;

/// What an entry takes beside its document and its keys: itself, the count of who shares the document, the allocator's
/// part, and its place in the table of ids.
pub(crate) const ENTRY_BYTES: u64 = size_of::<Entry>() as u64 + 16 + 8 + 6;

/// An entry as it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) document: Document,
    pub(crate) version: Position,
    /// When its lease ends, in milliseconds since 1970; 0 is never.
    pub(crate) expires_ms: u64,
    /// Counts first writings in the partition: the order of the queues.
    pub(crate) sequence: u64,
    /// Whether a transaction has locked it.
    pub(crate) is_locked: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Entries {
    slots: Vec<Option<Entry>>,
    /// The last that became free is used first, which is near `first` in a type that is drained.
    free: Vec<Slot>,
    /// Before it nothing lies: who takes one after the other does not pass over all that were taken.
    first: usize,
    by_id: HashTable<Slot>,
}

/// A hash of an id; `None` for what cannot be one.
pub(crate) fn id_hash(id: ValueRef<'_>) -> Option<u64> {
    Some(match id {
        ValueRef::I64(number) => base::hash64(&number.to_le_bytes()),
        // Never the number of an i64: those have one form.
        ValueRef::U64(number) => base::hash64(&number.to_be_bytes()),
        ValueRef::String(text) => base::hash64(text.as_bytes()),
        ValueRef::Bytes(bytes) => base::hash64(bytes) ^ 1,
        _ => return None,
    })
}

impl Entries {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&Entry> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        let slots = self.slots.get(self.first..).unwrap_or_default();
        (0..).skip(self.first).zip(slots).filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)))
    }

    /// The entry with this id in `field`.
    pub(crate) fn find(&self, field: &str, id: ValueRef<'_>) -> Option<Slot> {
        let hash = id_hash(id)?;
        self.by_id.find(hash, |slot| self.get(*slot).and_then(|entry| entry.document.get(field)) == Some(id)).copied()
    }

    /// Adds an entry whose id, in `field`, no other has.
    pub(crate) fn insert(&mut self, field: &str, entry: Entry) -> Slot {
        let hash_of = |entry: &Entry| entry.document.get(field).and_then(id_hash).unwrap_or(0);
        let hash = hash_of(&entry);
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                Slot::try_from(self.slots.len() - 1).expect("memory ends before numbers do")
            }
        };
        self.first = self.first.min(slot as usize);
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(entry);
        }
        let slots = &self.slots;
        let rehash = |slot: &Slot| slots.get(*slot as usize).and_then(Option::as_ref).map_or(0, hash_of);
        self.by_id.insert_unique(hash, slot, rehash);
        slot
    }

    pub(crate) fn remove(&mut self, field: &str, slot: Slot) -> Option<Entry> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        let hash = entry.document.get(field).and_then(id_hash).unwrap_or(0);
        if let Ok(found) = self.by_id.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
        self.free.push(slot);
        while let Some(None) = self.slots.get(self.first) {
            self.first += 1;
        }
        Some(entry)
    }
}

/// What an entry with this document takes of memory, without its keys.
#[must_use]
pub fn entry_bytes(document: &Document) -> u64 {
    ENTRY_BYTES + document.as_bytes().len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_not_passed_over_again() {
        let mut entries = Entries::default();
        let entry = |id: u64| {
            let document = Document::from_pairs([("id", id)]);
            Entry { document, version: Position::ZERO, expires_ms: 0, sequence: id, is_locked: false }
        };
        let slots: Vec<Slot> = (0..100).map(|id| entries.insert("id", entry(id))).collect();
        for (at, slot) in slots.iter().enumerate().take(99) {
            assert_eq!((entries.first, entries.len()), (at, 100 - at));
            entries.remove("id", *slot).unwrap();
        }
        for id in 100..200 {
            let slot = entries.insert("id", entry(id));
            assert_eq!(entries.iter().map(|(slot, _)| slot).collect::<Vec<_>>(), [slot, 99]);
            entries.remove("id", slot).unwrap();
            assert_eq!(entries.first, 99);
        }
    }
}
