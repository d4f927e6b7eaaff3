//! The indexes of one type in one partition: from the keys of values to the numbers of entries.
//!
//! Keys are as `key.rs` makes them, so that one of several paths is a concatenation, and a range of values one of bytes.
//! An entry that lacks a value of an index, or has null there, is not in it; of an ordered one of several paths that counts
//! for the first only.
//!
//! May use: `key`, `path`, `definition`, `slots`. Must not know: queries.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use hashbrown::HashTable;

use crate::definition::{IndexDefinition, IndexKind};
use crate::entries::Slot;
use crate::key::{encode_key, key_of};
use crate::path::Path;
use crate::slots::{Slots, slots_bytes};
use crate::value::{MapRef, ValueRef};

pub(crate) type Key = Box<[u8]>;

/// What a key takes beside its bytes and the entries at it. A key and its entries are 40 bytes of a table that is full to seven eighths at the most and
/// to two thirds on average, or of a map whose nodes of eleven are as full; and the key has a block of its own, which the allocator rounds up.
/// `tests/memory.rs` compares it with what was handed out.
const KEY_BYTES: u64 = 92;

#[derive(Debug)]
enum Table {
    Hash(HashTable<(Key, Slots)>),
    Ordered(BTreeMap<Key, Slots>),
}

#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) definition: IndexDefinition,
    table: Table,
    bytes: u64,
    /// How often entries are in it: each once, unless its paths come to several values.
    len: usize,
}

/// What a key takes with so many entries.
fn at_key(key: &[u8], entries: usize) -> u64 {
    if entries == 0 { 0 } else { KEY_BYTES + key.len() as u64 + slots_bytes(entries) }
}

fn hash(key: &[u8]) -> u64 {
    base::hash64(key)
}

impl Index {
    pub(crate) fn new(definition: IndexDefinition) -> Self {
        let table = match definition.kind {
            IndexKind::Hash => Table::Hash(HashTable::new()),
            IndexKind::Ordered => Table::Ordered(BTreeMap::new()),
        };
        Self { definition, table, bytes: 0, len: 0 }
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.definition.kind == IndexKind::Ordered
    }

    /// Whether an entry may be at several keys.
    pub(crate) fn is_many(&self) -> bool {
        self.definition.paths.iter().any(Path::has_items)
    }

    /// How many entries are in it; those that are at several keys count at each.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The keys that no other entry may have, if it is unique: of an entry that has all of the values.
    pub(crate) fn unique_keys(&self, fields: MapRef<'_>) -> Vec<Key> {
        let is_missing = |path: &Path| path.first(fields) == ValueRef::Null;
        if self.definition.paths.len() > 1 && self.definition.paths.iter().any(is_missing) {
            return Vec::new();
        }
        self.keys(fields)
    }

    /// The keys of an entry with these fields, each once.
    pub(crate) fn keys(&self, fields: MapRef<'_>) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        if let [path] = self.definition.paths.as_slice() {
            let _ = path.values(fields, |value| {
                if value != ValueRef::Null {
                    keys.push(key_of(value).into());
                }
                ControlFlow::Continue(())
            });
            if keys.len() > 1 {
                keys.sort_unstable();
                keys.dedup();
            }
            return keys;
        }
        let mut key = Vec::new();
        for (at, path) in self.definition.paths.iter().enumerate() {
            match path.first(fields) {
                // By the beginning of its paths an ordered one finds whatever the others have.
                ValueRef::Null if at == 0 || !self.is_ordered() => return keys,
                value => encode_key(value, &mut key),
            }
        }
        keys.push(key.into());
        keys
    }

    /// What the keys of an entry with the fields `was` take, as far as they go with it when it comes to have `will`; and what those take that come.
    pub(crate) fn growth(&self, was: Option<MapRef<'_>>, will: Option<MapRef<'_>>) -> (u64, u64) {
        let keys = |fields: Option<MapRef<'_>>| fields.map(|fields| self.keys(fields)).unwrap_or_default();
        let (old, new) = (keys(was), keys(will));
        let at = |key: &Key| self.get(key).map_or(0, Slots::len);
        let size = |key: &Key, more: usize| at_key(key, more) - at_key(key, more - 1);
        let goes = |key: &Key| size(key, at(key).max(1));
        let comes = |key: &Key| size(key, at(key) + 1);
        (
            old.iter().filter(|key| !new.contains(key)).map(goes).sum(),
            new.iter().filter(|key| !old.contains(key)).map(comes).sum(),
        )
    }

    pub(crate) fn insert(&mut self, key: Key, slot: Slot) {
        let there = match &mut self.table {
            Table::Hash(table) => table.find_mut(hash(&key), |(other, _)| *other == key).map(|(_, slots)| slots),
            Table::Ordered(table) => table.get_mut(&key),
        };
        if let Some(slots) = there {
            let before = slots.len();
            slots.insert(slot);
            self.bytes += at_key(&key, slots.len()) - at_key(&key, before);
            self.len += slots.len() - before;
            return;
        }
        self.bytes += at_key(&key, 1);
        self.len += 1;
        match &mut self.table {
            Table::Hash(table) => drop(table.insert_unique(hash(&key), (key, Slots::one(slot)), |(key, _)| hash(key))),
            Table::Ordered(table) => drop(table.insert(key, Slots::one(slot))),
        }
    }

    pub(crate) fn remove(&mut self, key: &[u8], slot: Slot) {
        let (before, after) = match &mut self.table {
            Table::Hash(table) => {
                let Ok(mut found) = table.find_entry(hash(key), |(other, _)| **other == *key) else { return };
                let (before, after) = found.get_mut().1.remove(slot);
                if after == 0 {
                    found.remove();
                }
                (before, after)
            }
            Table::Ordered(table) => {
                let Some(slots) = table.get_mut(key) else { return };
                let (before, after) = slots.remove(slot);
                if after == 0 {
                    table.remove(key);
                }
                (before, after)
            }
        };
        self.bytes -= at_key(key, before) - at_key(key, after);
        self.len -= before - after;
    }

    /// The entries with this key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Slots> {
        match &self.table {
            Table::Hash(table) => table.find(hash(key), |(other, _)| **other == *key).map(|(_, slots)| slots),
            Table::Ordered(table) => table.get(key),
        }
    }

    /// Keys and entries in a range, in order of the keys; none of an index that has no order.
    pub(crate) fn range<'a>(
        &'a self,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
    ) -> Box<dyn DoubleEndedIterator<Item = (&'a [u8], &'a Slots)> + 'a> {
        let is_empty = match (start, end) {
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end) | Bound::Included(end)) => {
                start >= end
            }
            _ => false,
        };
        match &self.table {
            Table::Ordered(table) if !is_empty => {
                Box::new(table.range::<[u8], _>((start, end)).map(|(key, slots)| (&**key, slots)))
            }
            _ => Box::new(std::iter::empty()),
        }
    }
}
