//! One partition's share of the space: its types and what the journal's commands make of them.
//!
//! The same commands at the same positions make the same state, live or replayed. Locks of transactions are no part of it:
//! they end with the process. Nor are entries of volatile types, which no command tells of.
//!
//! May use: all of this crate. Must not know: how batches are made, who waits, what time it is.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use journal::Position;

use crate::command::{Command, Commands, Reason, Removed, TypeId};
use crate::definition::Definition;
use crate::document::Document;
use crate::entries::{Entry, Slot, Stored};
use crate::error::{Error, Result};
use crate::gauge::Gauge;
use crate::share::Share;
use crate::value::ValueRef;

/// One partition's share of the space.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) types: BTreeMap<TypeId, Share>,
    pub(crate) applied: Position,
    pub(crate) next_sequence: u64,
    /// The highest number that a type was ever given, whether or not the type is still there.
    pub(crate) last_type: u32,
    /// Who wants to know what a space's types take, by the space's name.
    pub(crate) sums: BTreeMap<String, Arc<AtomicU64>>,
}

/// What a command did to an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The entry's type.
    pub of: TypeId,
    /// What happened.
    pub kind: EventKind,
    /// What was there before, if anything.
    pub before: Option<Document>,
    /// What is there now, if anything.
    pub after: Option<Document>,
    /// The position of the batch that did it.
    pub position: Position,
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It came.
    Written,
    /// It was replaced.
    Updated,
    /// It went.
    Removed(Reason),
}

/// Where an entry lies: good for as long as its partition is locked, or the entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its type.
    pub of: TypeId,
    pub(crate) slot: Slot,
}

/// What a type takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Entries.
    pub entries: u64,
    /// Bytes of memory, indexes and all.
    pub bytes: u64,
    /// Bytes of each index, by its name.
    pub indexes: Vec<(String, u64)>,
}

/// What a batch makes of an entry: its id, and what is to be there, if anything.
pub type Outcome<'d> = (ValueRef<'d>, Option<&'d Document>);

impl Engine {
    /// Position of the newest batch that changed something here.
    #[must_use]
    pub fn applied(&self) -> Position {
        self.applied
    }

    /// The types, by their numbers.
    pub fn types(&self) -> impl Iterator<Item = (TypeId, &Arc<Definition>)> {
        self.types.iter().map(|(of, share)| (*of, &share.definition))
    }

    /// The highest number that a type was ever given: no other type gets it, because the journal may tell of what had it.
    #[must_use]
    pub fn last_type(&self) -> u32 {
        self.last_type
    }

    /// Applies a partition's part of the batch at `position`, and tells what became of entries.
    ///
    /// # Errors
    /// `Malformed` when a command does not decode; those before it were applied.
    pub fn apply(&mut self, position: Position, part: &[u8], tell: &mut dyn FnMut(Event)) -> Result<()> {
        self.apply_made(position, part, [], tell)
    }

    /// As [`Engine::apply`], by who made the part: of the documents that it writes, in their order, these are kept instead of copies.
    ///
    /// # Errors
    /// As [`Engine::apply`].
    pub fn apply_made<'d>(
        &mut self,
        position: Position,
        part: &[u8],
        documents: impl IntoIterator<Item = &'d Document>,
        tell: &mut dyn FnMut(Event),
    ) -> Result<()> {
        self.apply_volatile(position, part, documents, tell)?;
        self.applied = position;
        Ok(())
    }

    /// As [`Engine::apply_made`], for what is in no journal: `version` is no position.
    ///
    /// # Errors
    /// As [`Engine::apply`].
    pub fn apply_volatile<'d>(
        &mut self,
        version: Position,
        part: &[u8],
        documents: impl IntoIterator<Item = &'d Document>,
        tell: &mut dyn FnMut(Event),
    ) -> Result<()> {
        let mut documents = documents.into_iter();
        Commands::new(part).try_for_each(|command| self.change(version, command?, &mut || documents.next(), tell))?;
        debug_assert!(documents.next().is_none(), "as many documents as the part writes");
        Ok(())
    }

    /// Makes one change. What is written is copied, unless the next document, which it is, is there.
    fn change<'d>(
        &mut self,
        position: Position,
        command: Command<'_>,
        next: &mut dyn FnMut() -> Option<&'d Document>,
        tell: &mut dyn FnMut(Event),
    ) -> Result<()> {
        let unknown = Error::Malformed { what: "command of a type that was not declared" };
        match command {
            Command::Declare { of, definition } => {
                self.last_type = self.last_type.max(of.0);
                match self.types.get_mut(&of) {
                    Some(share) => share.redeclare(definition),
                    None => {
                        let mut share = Share::new(definition);
                        share.set_gauge(self.sums.get(&share.definition.space).map(Gauge::new));
                        self.types.insert(of, share);
                    }
                }
            }
            Command::Drop { of } => drop(self.types.remove(&of)),
            Command::Write { of, expires_ms, document, .. } => {
                let share = self.types.get_mut(&of).ok_or(unknown)?;
                let document = match next() {
                    Some(made) => {
                        debug_assert_eq!(made.as_bytes(), document.as_bytes(), "the part was made of these documents");
                        made.clone()
                    }
                    None => Document::trusted(document.as_bytes()),
                };
                let id = document.get(&share.definition.id);
                let found = id.and_then(|id| share.find_id(id));
                let old = found.and_then(|slot| share.entries.get(slot));
                let (sequence, is_locked) =
                    old.map_or((self.next_sequence, false), |old| (old.sequence(), old.is_locked()));
                let after = document.clone();
                let mut entry = Entry::new(document, position, sequence);
                entry.set_locked(is_locked);
                let (kind, before) = match found {
                    Some(slot) => {
                        share.gone = position;
                        (EventKind::Updated, share.replace(slot, entry, expires_ms).map(|old| old.document))
                    }
                    None => {
                        self.next_sequence += 1;
                        share.insert(entry, expires_ms);
                        (EventKind::Written, None)
                    }
                };
                tell(Event { of, kind, before, after: Some(after), position });
            }
            Command::Remove { of, reason, entry } => {
                let share = self.types.get_mut(&of).ok_or(unknown)?;
                let document = match entry {
                    Removed::Id(_) => None,
                    Removed::Document(fields) => fields.get(&share.definition.id),
                };
                let id = if let Removed::Id(id) = entry { Some(id) } else { document };
                let slot = id.and_then(|id| share.find_id(id));
                if let Some(gone) = slot.and_then(|slot| share.remove(slot)) {
                    if reason != Reason::Expired {
                        share.gone = position;
                    }
                    let kind = EventKind::Removed(reason);
                    tell(Event { of, kind, before: Some(gone.document), after: None, position });
                }
            }
            Command::Renew { of, expires_ms, id } => {
                let share = self.types.get_mut(&of).ok_or(unknown)?;
                if let Some(slot) = share.find_id(id) {
                    let had_ms = share.entries.expires_ms(slot);
                    if expires_ms != 0 && (had_ms == 0 || expires_ms < had_ms) {
                        share.gone = position;
                    }
                    share.renew(slot, expires_ms);
                }
            }
        }
        Ok(())
    }

    /// The greatest integer that is the id of an entry. Goes through all of them.
    #[must_use]
    pub fn newest_id(&self) -> Option<i64> {
        let ids = self.types.values().flat_map(|share| {
            share.entries.iter().filter_map(|(_, entry)| match entry.document.get(&share.definition.id) {
                Some(ValueRef::I64(id)) => Some(id),
                _ => None,
            })
        });
        ids.max()
    }

    /// When an entry of the type last went, or was changed so that it may not match any more: what an answer rests on that there is none. The
    /// end of a lease is none of these: an entry whose lease has ended stays away after a crash.
    #[must_use]
    pub fn gone(&self, of: TypeId) -> Position {
        self.types.get(&of).map_or(Position::ZERO, |share| share.gone)
    }

    /// How often entries of the type were changed here since the process began: while it stays, a search finds what it found before. `None` of
    /// a type that is not there.
    #[must_use]
    pub fn changes(&self, of: TypeId) -> Option<u64> {
        self.types.get(&of).map(|share| share.changes)
    }

    /// The entry with this id.
    #[must_use]
    pub fn find_id(&self, of: TypeId, id: ValueRef<'_>) -> Option<Place> {
        let slot = self.types.get(&of)?.find_id(id)?;
        Some(Place { of, slot })
    }

    /// Has the processor fetch what a look-up of an id with this hash will look at. Changes nothing, and may be left out.
    pub fn fetch_ahead(&self, of: TypeId, id_hash: u64) {
        if let Some(share) = self.types.get(&of) {
            share.entries.fetch_ahead(id_hash);
        }
    }

    /// The same for who will take whatever is there: of the entry that is next.
    pub fn fetch_first_ahead(&self, of: TypeId) {
        if let Some(share) = self.types.get(&of) {
            share.entries.fetch_first_ahead();
        }
    }

    /// The entry at a place.
    #[must_use]
    pub fn get(&self, place: Place) -> Option<Stored> {
        self.types.get(&place.of)?.entries.stored(place.slot)
    }

    fn entry(&self, place: Place) -> Option<&Entry> {
        self.types.get(&place.of)?.entries.get(place.slot)
    }

    /// Tells the entry at a place from those that lay there before it, and will: of several one after another each has another
    /// one, and an entry has the same for as long as it is there. 0 where nothing lies.
    #[must_use]
    pub fn sequence(&self, place: Place) -> u64 {
        self.entry(place).map_or(0, Entry::sequence)
    }

    /// A place where nothing lies.
    #[must_use]
    pub fn nowhere(&self) -> Place {
        Place { of: TypeId(u32::MAX), slot: Slot::MAX }
    }

    /// Whether another transaction than `by` holds the entry's group.
    #[must_use]
    pub fn is_held(&self, place: Place, by: u64) -> bool {
        let share = self.types.get(&place.of);
        let entry = share.and_then(|share| Some((share, share.entries.get(place.slot)?)));
        entry.is_some_and(|(share, entry)| share.is_held(entry.document.fields(), by))
    }

    /// Whether a transaction has locked the entry.
    #[must_use]
    pub fn is_locked(&self, place: Place) -> bool {
        self.entry(place).is_some_and(Entry::is_locked)
    }

    /// Notes that transactions have locked the entry, or that none has any more.
    pub fn set_locked(&mut self, place: Place, locked: bool) {
        let entry = self.types.get_mut(&place.of).and_then(|share| share.entries.get_mut(place.slot));
        if let Some(entry) = entry {
            entry.set_locked(locked);
        }
    }

    /// Notes that the transaction holds the entry's group, if it is of a type in groups, once more or once less.
    pub fn hold_group(&mut self, place: Place, by: u64, holds: bool) {
        if let Some(share) = self.types.get_mut(&place.of) {
            share.hold_group(place.slot, by, holds);
        }
    }

    /// Notes that the entry was used.
    pub fn touch(&mut self, place: Place) {
        if let Some(share) = self.types.get_mut(&place.of) {
            share.touch(place.slot);
        }
    }

    /// Whether the type, if it is there, may be declared so: what is there has to fit unique indexes.
    ///
    /// # Errors
    /// `NotUnique`.
    pub fn check_redeclare(&self, of: TypeId, definition: &Definition) -> Result<()> {
        self.types.get(&of).map_or(Ok(()), |share| share.check_redeclare(definition))
    }

    /// Whether an entry with this document may be written: no other has what is unique.
    ///
    /// # Errors
    /// `NotUnique`.
    pub fn check_unique(&self, of: TypeId, document: &Document) -> Result<()> {
        let Some(share) = self.types.get(&of).filter(|share| share.has_unique()) else { return Ok(()) };
        let instead = document.get(&share.definition.id).and_then(|id| share.find_id(id));
        share.check_unique(document.fields(), instead)
    }

    /// As [`Engine::check_unique`], for all that a batch makes of entries of a type.
    ///
    /// # Errors
    /// `NotUnique`.
    pub fn check_unique_batch(&self, of: TypeId, all: &[Outcome<'_>]) -> Result<()> {
        let Some(share) = self.types.get(&of) else { return Ok(()) };
        let gone = all.iter().filter_map(|(id, _)| share.find_id(*id)).collect();
        share.check_unique_batch(all.iter().filter_map(|(_, will)| will.map(Document::fields)), &gone)
    }

    /// The entries whose lease has ended by `now_ms`, those first that ended first, without the locked ones.
    pub fn expired(&self, now_ms: u64) -> impl Iterator<Item = Place> {
        self.types.iter().flat_map(move |(of, share)| {
            let ended = share.leases.iter().take_while(move |(at, _)| *at <= now_ms);
            ended.map(|(_, slot)| Place { of: *of, slot: *slot }).filter(|place| !self.is_locked(*place))
        })
    }

    /// When the next lease ends, in milliseconds since 1970.
    #[must_use]
    pub fn next_expiry(&self) -> Option<u64> {
        self.types.values().filter_map(|share| share.leases.first()).map(|(at, _)| *at).min()
    }

    /// Whether there is an entry of the type whose lease has ended.
    #[must_use]
    pub fn has_ended(&self, of: TypeId, now_ms: u64) -> bool {
        self.types.get(&of).and_then(|share| share.leases.first()).is_some_and(|(at, _)| *at <= now_ms)
    }

    /// When the first of the leases ends that have not ended by `now_ms`.
    #[must_use]
    pub fn next_expiry_after(&self, now_ms: u64) -> Option<u64> {
        let behind = (Bound::Excluded((now_ms, Slot::MAX)), Bound::Unbounded);
        self.types.values().filter_map(|share| share.leases.range(behind).next()).map(|(at, _)| *at).min()
    }

    /// Entries that may go to make room, in the order in which they go.
    pub fn evictable(&self, of: TypeId) -> impl Iterator<Item = Place> {
        let slots = self.types.get(&of).into_iter().flat_map(Share::evictable);
        slots.map(move |slot| Place { of, slot }).filter(|place| !self.is_locked(*place))
    }

    /// What a type takes here.
    #[must_use]
    pub fn usage(&self, of: TypeId) -> Option<Usage> {
        let share = self.types.get(&of)?;
        let indexes = share.indexes.iter().map(|index| (index.definition.name.clone(), index.bytes())).collect();
        Some(Usage { entries: share.entries.len() as u64, bytes: share.bytes(), indexes })
    }

    /// Bytes of memory that everything here takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.types.values().map(Share::bytes).sum()
    }

    /// What of an entry goes from memory when it comes to be another, and what comes: both with their keys. Of several that come to have one key that
    /// none had each counts it.
    #[must_use]
    pub fn growth(&self, of: TypeId, was: Option<&Document>, will: Option<&Document>) -> (u64, u64) {
        self.types.get(&of).map_or((0, 0), |share| share.growth(was, will))
    }

    /// Bytes of memory that a type takes here.
    #[must_use]
    pub fn type_bytes(&self, of: TypeId) -> u64 {
        self.types.get(&of).map_or(0, Share::bytes)
    }

    /// Bytes of memory that all types of a space take here.
    #[must_use]
    pub fn space_bytes(&self, space: &str) -> u64 {
        self.types.values().filter(|share| share.definition.space == space).map(Share::bytes).sum()
    }

    /// Has what the types of a space take here, also those that come later, be a part of `sum`; with `None` no more of any.
    pub fn sum_up(&mut self, space: &str, sum: Option<&Arc<AtomicU64>>) {
        match sum {
            Some(sum) => drop(self.sums.insert(space.to_owned(), Arc::clone(sum))),
            None => drop(self.sums.remove(space)),
        }
        for share in self.types.values_mut().filter(|share| share.definition.space == space) {
            share.set_gauge(sum.map(Gauge::new));
        }
    }

    /// A hash over types and durable entries.
    #[must_use]
    pub fn digest(&self) -> u128 {
        let mut sum = 0u128;
        let mut bytes = Vec::new();
        for (of, share) in &self.types {
            bytes.clear();
            bytes.extend_from_slice(&of.0.to_le_bytes());
            share.definition.encode(&mut bytes);
            sum = sum.wrapping_add(base::hash128(&bytes));
            for (slot, entry) in share.entries.iter().filter(|_| share.is_durable()) {
                bytes.clear();
                bytes.extend_from_slice(&of.0.to_le_bytes());
                bytes.extend_from_slice(&entry.version.get().to_le_bytes());
                bytes.extend_from_slice(&share.entries.expires_ms(slot).to_le_bytes());
                bytes.extend_from_slice(entry.document.as_bytes());
                // A sum: entries lie in no particular order.
                sum = sum.wrapping_add(base::hash128(&bytes));
            }
        }
        sum
    }
}
