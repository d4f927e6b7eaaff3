//! The entries of one type in one partition: found by their number here, or by id.
//!
//! Numbers are given again when entries go. The table from id to number holds no ids, because an entry knows its own: so an entry costs
//! 24 bytes, its document, and some 20 bytes of table. It holds half of the id's hash: without, a table that grew looked each entry's document up
//! for it, and a partition of 100,000 entries stood still for tens of milliseconds. And it holds where the document lies, as a hint to the
//! processor: a look-up waits for memory three times, at the table, the number and the document, and so two of those are under way at once. When leases end lies
//! beside, and takes nothing where no entry has one.
//!
//! May use: `document`, `ends`, `value`. Must not know: indexes, types.

use base::{Area, Line, SharedBytes, fetch_ahead};
use hashbrown::HashTable;
use journal::Position;

use crate::document::Document;
use crate::ends::Ends;
use crate::value::ValueRef;

/// An entry's number within its type and partition.
pub(crate) type Slot = u32;

/// What an item of so many bytes takes of a row that doubles when it is full: that has room for one to two times what is in it, and 1.44 (1 / ln 2)
/// on the average of all lengths.
pub(crate) const fn row_bytes(item: usize) -> u64 {
    (item * 36 / 25) as u64
}

/// What an entry takes beside its document and its keys: itself, the count of who shares the document and its length, what the allocator
/// rounds that block up by, and its place in the table of ids, which has a byte more for each and is full to seven eighths at the most.
/// `tests/memory.rs` compares it with what was handed out.
pub(crate) const ENTRY_BYTES: u64 = row_bytes(size_of::<Entry>())
    + SharedBytes::HEAD_BYTES as u64
    + ROUNDED_BYTES
    + row_bytes((size_of::<Named>() + 1) * 8 / 7);
const ROUNDED_BYTES: u64 = 10;

/// An entry as it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) document: Document,
    pub(crate) version: Position,
    /// Twice its sequence, and one more when a transaction has locked it.
    order: u64,
}

/// An entry as it is handed out.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Its fields.
    pub document: Document,
    /// The position of the batch that wrote it last.
    pub version: Position,
    /// When its lease ends, in milliseconds since 1970; 0 is never.
    pub expires_ms: u64,
    /// Counts first writings in the partition.
    pub sequence: u64,
}

/// What the table of ids has of an entry.
#[derive(Debug, Clone, Copy)]
struct Named {
    hash: u32,
    slot: Slot,
    /// Where its document lies.
    line: Line,
}

impl Named {
    fn of(hash: u64, slot: Slot, line: Line) -> Self {
        let [a, b, c, d, ..] = hash.to_le_bytes();
        Self { hash: u32::from_le_bytes([a, b, c, d]), slot, line }
    }

    /// What the table goes by: it takes its place from the low bits, and seven bits to compare from the high ones.
    fn spread(self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.hash)
    }
}

impl Entry {
    pub(crate) fn new(document: Document, version: Position, sequence: u64) -> Self {
        Self { document, version, order: sequence << 1 }
    }

    /// Counts first writings in the partition: the order of the queues.
    pub(crate) fn sequence(&self) -> u64 {
        self.order >> 1
    }

    /// Whether a transaction has locked it.
    pub(crate) fn is_locked(&self) -> bool {
        self.order & 1 == 1
    }

    pub(crate) fn set_locked(&mut self, is_locked: bool) {
        self.order = self.order & !1 | u64::from(is_locked);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Entries {
    slots: Vec<Option<Entry>>,
    ends: Ends,
    /// The last that became free is used first, which is near `first` in a type that is drained.
    free: Vec<Slot>,
    /// Before it nothing lies: who takes one after the other does not pass over all that were taken.
    first: usize,
    by_id: HashTable<Named>,
    /// Where the last document that was written lies, and most others with it.
    area: Area,
}

/// So many lines of a document are fetched ahead: 1 KiB and its head. That one comes behind the other the processor sees by itself, but too
/// late for documents of that size.
const DOCUMENT_LINES: usize = 18;

/// So many are looked at for a condition, mostly.
const BEGINNING_LINES: usize = 2;

/// A hash of an id; `None` for what cannot be one.
#[must_use]
pub fn id_hash(id: ValueRef<'_>) -> Option<u64> {
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

    /// When the lease of the entry ends, in milliseconds since 1970; 0 is never.
    pub(crate) fn expires_ms(&self, slot: Slot) -> u64 {
        self.ends.get(slot)
    }

    pub(crate) fn set_expires_ms(&mut self, slot: Slot, expires_ms: u64) {
        self.ends.set(slot, expires_ms);
    }

    /// What leases take, beside what each takes in the order in which they end.
    pub(crate) fn lease_bytes(&self) -> u64 {
        self.ends.bytes()
    }

    /// The entry, as it is handed out.
    pub(crate) fn stored(&self, slot: Slot) -> Option<Stored> {
        let entry = self.get(slot)?;
        let (document, expires_ms) = (entry.document.clone(), self.expires_ms(slot));
        Some(Stored { document, version: entry.version, expires_ms, sequence: entry.sequence() })
    }

    /// The entry with this id in `field`.
    pub(crate) fn find(&self, field: &str, id: ValueRef<'_>) -> Option<Slot> {
        let wanted = Named::of(id_hash(id)?, 0, Line::default());
        let is_it = |named: &Named| {
            if named.hash != wanted.hash {
                return false;
            }
            // While the slot is fetched that says where the document is.
            named.line.fetch_ahead(self.area);
            self.get(named.slot).and_then(|entry| entry.document.get(field)) == Some(id)
        };
        self.by_id.find(wanted.spread(), is_it).map(|named| named.slot)
    }

    /// Has the processor fetch what a look-up of an id with this hash will look at.
    pub(crate) fn fetch_ahead(&self, hash: u64) {
        let wanted = Named::of(hash, 0, Line::default());
        if let Some(named) = self.by_id.find(wanted.spread(), |named| named.hash == wanted.hash) {
            named.line.fetch_lines_ahead(self.area, DOCUMENT_LINES);
            self.slots.get(named.slot as usize).into_iter().for_each(fetch_ahead);
        }
    }

    /// Has the processor fetch where an entry's document lies.
    pub(crate) fn fetch_slot_ahead(&self, slot: Slot) {
        self.slots.get(slot as usize).into_iter().for_each(fetch_ahead);
    }

    /// And then the beginning of the document.
    pub(crate) fn fetch_document_ahead(&self, slot: Slot) {
        if let Some(entry) = self.get(slot) {
            entry.document.fetch_ahead(BEGINNING_LINES);
        }
    }

    /// The same for who will take what is come to first.
    pub(crate) fn fetch_first_ahead(&self) {
        if let Some(Some(entry)) = self.slots.get(self.first) {
            entry.document.fetch_ahead(DOCUMENT_LINES);
        }
    }

    /// Adds an entry whose id, in `field`, no other has.
    pub(crate) fn insert(&mut self, field: &str, entry: Entry) -> Slot {
        let hash = entry.document.get(field).and_then(id_hash).unwrap_or(0);
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                Slot::try_from(self.slots.len() - 1).expect("memory ends before numbers do")
            }
        };
        self.first = self.first.min(slot as usize);
        let named = Named::of(hash, slot, self.line(&entry));
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(entry);
        }
        self.by_id.insert_unique(named.spread(), named, |other| other.spread());
        slot
    }

    /// Replaces the entry, by one with the same id in `field`.
    pub(crate) fn replace(&mut self, field: &str, slot: Slot, entry: Entry) -> Option<Entry> {
        let hash = entry.document.get(field).and_then(id_hash).unwrap_or(0);
        let line = self.line(&entry);
        if let Some(named) = self.by_id.find_mut(Named::of(hash, slot, line).spread(), |other| other.slot == slot) {
            named.line = line;
        }
        self.slots.get_mut(slot as usize)?.replace(entry)
    }

    /// Where the document lies of an entry that comes.
    fn line(&mut self, entry: &Entry) -> Line {
        let bytes = entry.document.as_bytes();
        self.area = Area::of(bytes);
        Line::of(bytes)
    }

    pub(crate) fn remove(&mut self, field: &str, slot: Slot) -> Option<Entry> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        let hash = entry.document.get(field).and_then(id_hash).unwrap_or(0);
        let named = Named::of(hash, slot, Line::default());
        if let Ok(found) = self.by_id.find_entry(named.spread(), |other| other.slot == slot) {
            found.remove();
        }
        self.free.push(slot);
        while let Some(None) = self.slots.get(self.first) {
            self.first += 1;
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_not_passed_over_again() {
        let mut entries = Entries::default();
        let entry = |id: u64| {
            let document = Document::from_pairs([("id", id)]);
            Entry::new(document, Position::ZERO, id)
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
