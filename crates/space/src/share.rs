//! One type's share in one partition: its entries, the indexes of them, their queues, their leases, and what all of it
//! takes of memory.
//!
//! May use: `entries`, `indexes`, `definition`. Must not know: other types, commands, queries.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use journal::Position;

use crate::definition::{Definition, IndexDefinition, Order, Storage};
use crate::document::Document;
use crate::entries::{ENTRY_BYTES, Entries, Entry, Slot};
use crate::error::{Error, Result};
use crate::gauge::Gauge;
use crate::indexes::{Index, Key};
use crate::key::key_of;
use crate::path::Path;
use crate::select::Direction;
use crate::slots::Slots;
use crate::used::{USED_BYTES, Used};
use crate::value::{MapRef, ValueRef};

/// Characters of an id that an error shows.
const ID_SHOWN_MAX: usize = 64;

/// What an entry takes in a queue, and in the order in which leases end. A node of these maps has room for eleven, and is full to a half where keys
/// ascend, as those of a queue do, and to two thirds where they come in any order: of 144 bytes for 12 each that makes 28 with the nodes above, of 188 for 16 each
/// it makes 29 to 35. `tests/memory.rs` compares it with what was handed out.
const QUEUE_BYTES: u64 = 29;
const LEASE_BYTES: u64 = 30;

/// Entries in the order of their first writing.
pub(crate) type Queue = BTreeMap<u64, Slot>;

#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) definition: Arc<Definition>,
    pub(crate) entries: Entries,
    pub(crate) indexes: Vec<Index>,
    /// Of a type with an order.
    pub(crate) queue: Queue,
    /// Of a type in groups: those that a transaction holds, with how many entries of each, by the key of their value.
    held: BTreeMap<Key, (u64, usize)>,
    /// When leases end, and whose.
    pub(crate) leases: BTreeSet<(u64, Slot)>,
    /// In which order entries were used last: of a type whose entries are evicted by that.
    used: Used,
    bytes: u64,
    /// When something last went, or was changed so that it may not match any more: what rests on it that an entry is not there. Not
    /// the end of a lease, which is as sure after a crash.
    pub(crate) gone: Position,
    /// How often something here was written, removed, leased anew or declared anew: while it stays, a search finds what it found before.
    pub(crate) changes: u64,
    /// Tells what it takes, while somebody wants to know.
    gauge: Option<Gauge>,
}

/// The key of a group's value.
pub(crate) fn group_key(path: &Path, fields: MapRef<'_>) -> Key {
    key_of(path.first(fields)).into()
}

impl Share {
    pub(crate) fn new(definition: Definition) -> Self {
        let indexes = definition.indexes.iter().cloned().map(Index::new).collect();
        Self {
            definition: Arc::new(definition),
            entries: Entries::default(),
            indexes,
            queue: Queue::new(),
            held: BTreeMap::new(),
            leases: BTreeSet::new(),
            used: Used::default(),
            bytes: 0,
            gone: Position::ZERO,
            changes: 0,
            gauge: None,
        }
    }

    /// Takes another definition, that the present entries fit; builds the indexes that are new.
    pub(crate) fn redeclare(&mut self, definition: Definition) {
        let mut old = std::mem::take(&mut self.indexes);
        for wanted in &definition.indexes {
            let kept = old.iter().position(|index| index.definition == *wanted).map(|at| old.swap_remove(at));
            self.indexes.push(kept.unwrap_or_else(|| {
                let mut index = Index::new(wanted.clone());
                for (slot, entry) in self.entries.iter() {
                    index.keys(entry.document.fields()).into_iter().for_each(|key| index.insert(key, slot));
                }
                index
            }));
        }
        let was = std::mem::replace(&mut self.definition, Arc::new(definition)).evicts_by_use();
        let in_order = self.entries.len() as u64 * USED_BYTES;
        match (was, self.definition.evicts_by_use()) {
            (false, true) => {
                self.bytes += in_order;
                self.entries.iter().for_each(|(slot, _)| self.used.touch(slot));
            }
            (true, false) => {
                self.bytes -= in_order;
                self.used.clear();
            }
            // What was used last is as it was.
            (true, true) | (false, false) => {}
        }
        self.changed();
    }

    pub(crate) fn check_redeclare(&self, definition: &Definition) -> Result<()> {
        for wanted in definition.indexes.iter().filter(|index| index.unique && !self.definition.indexes.contains(index))
        {
            let index = Index::new(wanted.clone());
            let of = |(slot, entry): (Slot, &Entry)| {
                let keys = index.unique_keys(entry.document.fields());
                keys.into_iter().map(move |key| (key, slot))
            };
            let mut keys: Vec<(Key, Slot)> = self.entries.iter().flat_map(of).collect();
            keys.sort_unstable();
            let twice = keys.windows(2).find(|two| matches!(two, [(one, _), (other, _)] if one == other));
            if let Some([(_, other), (_, slot)]) = twice
                && let Some(entry) = self.entries.get(*slot)
            {
                return Err(self.not_unique(wanted, entry.document.fields(), self.newest([*other, *slot].into_iter())));
            }
        }
        Ok(())
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.definition.storage == Storage::Durable
    }

    /// Bytes that everything takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.entries.lease_bytes() + self.indexes.iter().map(Index::bytes).sum::<u64>()
    }

    /// From now on `gauge`, if there is one, knows what it takes.
    pub(crate) fn set_gauge(&mut self, gauge: Option<Gauge>) {
        self.gauge = gauge;
        self.tell_gauge();
    }

    /// Behind every change.
    fn changed(&mut self) {
        self.changes += 1;
        self.tell_gauge();
    }

    fn tell_gauge(&mut self) {
        let Some(mut gauge) = self.gauge.take() else { return };
        gauge.tell(self.bytes());
        self.gauge = Some(gauge);
    }

    fn entry_bytes(&self, entry: &Entry, expires_ms: u64) -> u64 {
        self.document_bytes(&entry.document, expires_ms != 0)
    }

    fn document_bytes(&self, document: &Document, has_lease: bool) -> u64 {
        let queue = if self.definition.order == Order::Any { 0 } else { QUEUE_BYTES };
        let lease = if has_lease { LEASE_BYTES } else { 0 };
        let used = if self.definition.evicts_by_use() { USED_BYTES } else { 0 };
        ENTRY_BYTES + document.as_bytes().len() as u64 + queue + lease + used
    }

    /// What an entry takes that goes when it comes to be another, and what that takes: with their keys, and with a lease if the type gives one.
    pub(crate) fn growth(&self, was: Option<&Document>, will: Option<&Document>) -> (u64, u64) {
        let has_lease = self.definition.lease_ms.is_some();
        let own = |document: Option<&Document>| document.map_or(0, |it| self.document_bytes(it, has_lease));
        let keys = self.indexes.iter().map(|index| index.growth(was.map(Document::fields), will.map(Document::fields)));
        keys.fold((own(was), own(will)), |sum, (goes, comes)| (sum.0 + goes, sum.1 + comes))
    }

    pub(crate) fn find_id(&self, id: ValueRef<'_>) -> Option<Slot> {
        self.entries.find(&self.definition.id, id)
    }

    /// Whether a value may be refused because another entry has it: of most types none is, and nobody has to look for the entry.
    pub(crate) fn has_unique(&self) -> bool {
        self.indexes.iter().any(|index| index.definition.unique)
    }

    /// Whether an entry with these fields may be there, beside all but the one at `instead`.
    pub(crate) fn check_unique(&self, fields: MapRef<'_>, instead: Option<Slot>) -> Result<()> {
        for index in self.indexes.iter().filter(|index| index.definition.unique) {
            let others = |key: &Key| index.get(key).and_then(|slots| slots.iter().find(|slot| Some(*slot) != instead));
            if let Some(other) = index.unique_keys(fields).iter().find_map(others) {
                return Err(self.not_unique(&index.definition, fields, self.newest(std::iter::once(other))));
            }
        }
        Ok(())
    }

    /// As [`Share::check_unique`], for all that a batch writes: those at `gone` go, or are replaced.
    pub(crate) fn check_unique_batch<'d>(
        &self,
        written: impl Iterator<Item = MapRef<'d>> + Clone,
        gone: &BTreeSet<Slot>,
    ) -> Result<()> {
        for index in self.indexes.iter().filter(|index| index.definition.unique) {
            let mut seen = BTreeSet::new();
            let each = |fields: MapRef<'d>| index.unique_keys(fields).into_iter().map(move |key| (key, fields));
            for (key, fields) in written.clone().flat_map(each) {
                let other = index.get(&key).and_then(|slots| slots.iter().find(|slot| !gone.contains(slot)));
                if other.is_some() || !seen.insert(key) {
                    return Err(self.not_unique(&index.definition, fields, self.newest(other.into_iter())));
                }
            }
        }
        Ok(())
    }

    /// The newest version among these, as the journal has it.
    fn newest(&self, slots: impl Iterator<Item = Slot>) -> Position {
        let versions = slots.filter_map(|slot| self.entries.get(slot)).map(|entry| entry.version);
        if self.is_durable() { versions.max().unwrap_or_default() } else { Position::ZERO }
    }

    fn not_unique(&self, index: &IndexDefinition, fields: MapRef<'_>, rests_on: Position) -> Error {
        let id = fields.get(&self.definition.id).map(ValueRef::to_value).unwrap_or_default().to_json();
        let id = id.chars().take(ID_SHOWN_MAX).collect();
        Error::NotUnique { name: self.definition.name.clone(), id, index: index.name.clone(), rests_on }
    }

    /// Adds an entry whose lease ends then, or never with 0.
    pub(crate) fn insert(&mut self, entry: Entry, expires_ms: u64) -> Slot {
        self.bytes += self.entry_bytes(&entry, expires_ms);
        let (sequence, document) = (entry.sequence(), entry.document.clone());
        let slot = self.entries.insert(&self.definition.id, entry);
        for index in &mut self.indexes {
            index.keys(document.fields()).into_iter().for_each(|key| index.insert(key, slot));
        }
        if self.definition.order != Order::Any {
            self.queue.insert(sequence, slot);
        }
        self.set_lease(slot, expires_ms);
        self.touch(slot);
        self.changed();
        slot
    }

    /// Replaces what is at the slot; its id stays.
    pub(crate) fn replace(&mut self, slot: Slot, entry: Entry, expires_ms: u64) -> Option<Entry> {
        let old = self.entries.get(slot)?.clone();
        let before = self.entry_bytes(&old, self.entries.expires_ms(slot));
        self.bytes = self.bytes - before + self.entry_bytes(&entry, expires_ms);
        for index in &mut self.indexes {
            let (before, after) = (index.keys(old.document.fields()), index.keys(entry.document.fields()));
            before.iter().filter(|key| !after.contains(key)).for_each(|key| index.remove(key, slot));
            after.into_iter().filter(|key| !before.contains(key)).for_each(|key| index.insert(key, slot));
        }
        self.set_lease(slot, expires_ms);
        if let Order::Groups(path) = &self.definition.order
            && old.is_locked()
        {
            // Whoever holds it holds the group that it is in now.
            let (before, after) = (group_key(path, old.document.fields()), group_key(path, entry.document.fields()));
            if let Some((by, _)) = self.held.get(&before).copied().filter(|_| before != after) {
                self.one_less(&before);
                self.held.entry(after).or_insert((by, 0)).1 += 1;
            }
        }
        self.entries.replace(&self.definition.id, slot, entry)?;
        self.touch(slot);
        self.changed();
        Some(old)
    }

    fn set_lease(&mut self, slot: Slot, expires_ms: u64) {
        let old = self.entries.expires_ms(slot);
        if old == expires_ms {
            return;
        }
        if old != 0 {
            self.leases.remove(&(old, slot));
        }
        if expires_ms != 0 {
            self.leases.insert((expires_ms, slot));
        }
        self.entries.set_expires_ms(slot, expires_ms);
    }

    pub(crate) fn renew(&mut self, slot: Slot, expires_ms: u64) {
        let Some(entry) = self.entries.get(slot) else { return };
        let before = self.entry_bytes(entry, self.entries.expires_ms(slot));
        self.bytes = self.bytes - before + self.entry_bytes(entry, expires_ms);
        self.set_lease(slot, expires_ms);
        self.changed();
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let expires_ms = self.entries.expires_ms(slot);
        self.set_lease(slot, 0);
        let entry = self.entries.remove(&self.definition.id, slot)?;
        self.bytes -= self.entry_bytes(&entry, expires_ms);
        let fields = entry.document.fields();
        for index in &mut self.indexes {
            index.keys(fields).iter().for_each(|key| index.remove(key, slot));
        }
        if self.definition.order != Order::Any {
            self.queue.remove(&entry.sequence());
        }
        if entry.is_locked() {
            self.let_group_go(fields);
        }
        self.used.remove(slot);
        self.changed();
        Some(entry)
    }

    /// Notes that the entry was used, when that decides what is evicted.
    pub(crate) fn touch(&mut self, slot: Slot) {
        if self.definition.evicts_by_use() {
            self.used.touch(slot);
        }
    }

    /// Notes that the transaction holds the entry's group once more, or once less.
    pub(crate) fn hold_group(&mut self, slot: Slot, by: u64, holds: bool) {
        let Order::Groups(path) = &self.definition.order else { return };
        let Some(entry) = self.entries.get(slot) else { return };
        let key = group_key(path, entry.document.fields());
        if holds {
            self.held.entry(key).or_insert((by, 0)).1 += 1;
        } else {
            self.one_less(&key);
        }
    }

    /// An entry of the group is gone that a transaction held.
    fn let_group_go(&mut self, fields: MapRef<'_>) {
        if let Order::Groups(path) = &self.definition.order {
            let key = group_key(path, fields);
            self.one_less(&key);
        }
    }

    fn one_less(&mut self, key: &Key) {
        if let Some((_, count)) = self.held.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(key);
            }
        }
    }

    /// Whether another transaction holds the group of an entry with these fields.
    pub(crate) fn is_held(&self, fields: MapRef<'_>, by: u64) -> bool {
        match &self.definition.order {
            Order::Groups(path) if !self.held.is_empty() => {
                self.held.get(&group_key(path, fields)).is_some_and(|(holder, _)| *holder != by)
            }
            _ => false,
        }
    }

    /// Entries that may go to make room, in their order.
    pub(crate) fn evictable(&self) -> Box<dyn Iterator<Item = Slot> + '_> {
        let Some(by) = &self.definition.evict_by else { return Box::new(self.used.iter()) };
        let index = self.indexes.iter().find(|index| self.definition.is_of_eviction(&index.definition));
        let Some(index) = index else { return Box::new(std::iter::empty()) };
        let all = index.range(Bound::Unbounded, Bound::Unbounded).map(|(_, slots)| slots);
        match by.direction {
            Direction::Ascending => Box::new(all.flat_map(Slots::iter)),
            Direction::Descending => Box::new(all.rev().flat_map(Slots::iter)),
        }
    }
}

#[cfg(test)]
#[path = "share_tests.rs"]
mod tests;
