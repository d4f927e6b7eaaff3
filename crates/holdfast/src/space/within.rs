//! Entries within a transaction: what it reads and changes is locked until it ends, and its changes are seen by itself alone
//! until they are committed, with those of other engines, in one batch.
//!
//! Locks are of entries that are there. An entry that a transaction writes anew is checked when it commits: if somebody
//! else wrote one with its id meanwhile, that is a conflict.
//!
//! May use: everything of this folder. Must not know: protocols.

mod iterate;
mod many;
mod select;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ::space::{Change as InPlace, Definition, Document, Order, Stored, Value, ValueRef, key_of};
use journal::{PartitionId, Position};

pub use iterate::WithinIteration;
pub use many::ManyChanged;

use super::commit::Over;
use super::entries::{Entries, Entry};
use super::locks::{Holder, LockedPlace, Mode};
use super::read::ReadOptions;
use super::route;
use super::stage::{SpaceStage, Staged};
use super::wait::{Granted, Purpose};
use super::wanted::Wanted;
use super::write::{
    Changed, LOCK_TIMEOUT, Lease, WriteMode, WriteOptions, Written, changed_document, next_document, next_expiry,
};
use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::store::Inner;
use crate::transaction::Transaction;

impl Inner {
    /// Ends a transaction's locks, and offers what is free again to those who wait for it.
    pub(crate) fn end_holder(&self, holder: Holder) {
        let held = self.spaces.locks.begin_end(holder);
        for at in &held {
            let Some(partition) = self.partitions.get(at.partition.index()) else { continue };
            self.let_go_of(holder, *at, &mut partition.space());
        }
        self.spaces.locks.end(holder);
        // Only now: of what one transaction had locked, the first in order is to be the first that others get.
        let mut served = BTreeSet::new();
        for at in held {
            let Some(partition) = self.partitions.get(at.partition.index()) else { continue };
            if let Some(kind) = self.spaces.get(at.place.of)
                && (kind.definition().order == Order::Any || served.insert((at.place.of, at.partition)))
            {
                self.offer(&kind, partition, &mut partition.space(), at.place);
            }
        }
    }

    /// The caller has locked the partition, so that nobody else uses the place meanwhile.
    pub(super) fn let_go_of(&self, holder: Holder, at: LockedPlace, engine: &mut ::space::Engine) {
        let Some((mode, is_locked)) = self.spaces.locks.release(holder, at) else { return };
        // What the transaction removed is gone, and its group was let go of with it.
        if !engine.is_locked(at.place) {
            return;
        }
        if mode == Mode::Exclusive {
            engine.hold_group(at.place, holder, false);
        }
        engine.set_locked(at.place, is_locked);
    }
}

/// What becomes of an entry that the transaction takes.
fn taken(granted: &Granted) -> Staged {
    let was = Some(granted.entry.clone());
    Staged { partition: granted.partition, was, will: None, over: Over::Any, renews: false, number: 0 }
}

impl Entry {
    /// What the transaction itself has written.
    fn of_own((document, ends, staged): (Document, u64, Staged)) -> Self {
        Self { document, version: staged.version(), expires_ms: (ends != 0).then_some(ends) }
    }
}

fn id_of(definition: &Definition, document: &Document) -> Value {
    document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default()
}

/// Whether what this transaction has made of an entry has the version that is asked for: the one of before it has only where no more than
/// its lease is another.
fn check_own(version: Option<Position>, staged: &Staged) -> Result<()> {
    if version.is_none_or(|version| staged.renews && version == staged.version()) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Conflict, "the entry has another version: this transaction has changed it"))
}

/// Whether a write may be refused because the entry is not there.
fn needs_absence(options: &WriteOptions) -> bool {
    options.version.is_some() || matches!(options.mode, WriteMode::Update | WriteMode::Partial)
}

/// The entry with this document alone, if it is still wanted.
fn by_id_of(definition: &Definition, wanted: &Wanted, document: &Document) -> Wanted {
    let by_id = Wanted { id: Some(id_of(definition, document)), ..wanted.clone() };
    let routing = definition.routed_by().map(|path| path.first(document.fields()).to_value());
    if let Some(routing) = routing { by_id.routed(routing) } else { by_id }
}

/// How a transaction reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadLock {
    /// What was committed last; it may be another the next time.
    #[default]
    None,
    /// It stays as it is until the transaction ends; others may read it.
    Shared,
    /// It stays as it is until the transaction ends, and nobody else gets it.
    Exclusive,
}

/// The entries of a type within a transaction: from [`Entries::within`].
pub struct Within<'a> {
    entries: &'a Entries,
    transaction: &'a mut Transaction,
}

impl Entries {
    /// What is said of an entry that is wanted by its id and that others keep from `who`; by whom, where that is known still.
    fn locked(&self, who: Holder, wanted: &Wanted) -> Error {
        let (inner, id) = (self.inner(), wanted.id.as_ref());
        let at = |partition: &Partition| {
            let engine = partition.space();
            let place = engine.find_id(self.kind.of, id?.scalar())?;
            Some(LockedPlace::of(&engine, partition.id, place)).filter(|_| engine.is_locked(place))
        };
        let partitions = route::of_wanted(inner, &self.kind.definition(), wanted).unwrap_or_default();
        let nowhere = || Error::new(ErrorKind::Timeout, "a transaction has locked the entry");
        partitions.iter().find_map(at).map_or_else(nowhere, |at| inner.spaces.locks.locked(who, at))
    }

    /// These entries within a transaction of the same store.
    pub fn within<'a>(&'a self, transaction: &'a mut Transaction) -> Within<'a> {
        Within { entries: self, transaction }
    }
}

impl Within<'_> {
    fn stage(&mut self) -> &mut SpaceStage {
        self.transaction.space_stage()
    }

    fn begin(&mut self) -> Result<Holder> {
        self.entries.check()?;
        let (of, kind) = (self.entries.kind.of, Arc::clone(&self.entries.kind));
        self.stage().kinds.insert(of, kind);
        self.stage().holder()
    }

    /// Stages what becomes of an entry. It has its place in the order of writing from when it was to be there first.
    fn put(&mut self, id: &Value, mut staged: Staged) {
        let (of, definition) = (self.entries.kind.of, self.entries.kind.definition());
        let stage = self.stage();
        let of_type = stage.of_type.entry(of).or_default();
        if let Some(key) = staged.entry_key(&definition) {
            // Nobody else has it while nobody looks for others.
            Arc::make_mut(&mut of_type.keys).insert(key);
        }
        let key = (of, staged.partition, key_of(id.scalar()));
        // It stands among what is staged, and among what others are asked to leave out.
        let key_bytes = 2 * key.2.len() as u64;
        if let Some(earlier) = stage.staged.remove(&key) {
            stage.bytes -= earlier.bytes() + key_bytes;
            stage.anew -= usize::from(earlier.is_anew());
            of_type.written.remove(&earlier.number);
            staged.number = if earlier.will.is_some() { earlier.number } else { 0 };
        }
        if staged.number == 0 {
            stage.last_number += 1;
            staged.number = stage.last_number;
        }
        if staged.will.is_some() {
            of_type.written.insert(staged.number, (staged.partition, key.2.clone()));
        }
        stage.bytes += staged.bytes() + key_bytes;
        stage.anew += usize::from(staged.is_anew());
        stage.staged.insert(key, staged);
        stage.note_held();
    }

    fn staged(&mut self, id: &Value, partition: PartitionId) -> Option<Staged> {
        let of = self.entries.kind.of;
        self.stage().staged.get(&(of, partition, key_of(id.scalar()))).cloned()
    }

    /// Writes an entry when the transaction commits; one that is there is locked until then. The version that is returned is
    /// that of before, or 0: the new one is known when the transaction is committed, and of a volatile type by reading the entry then.
    ///
    /// # Errors
    /// As [`Entries::write`]; `Conflict` also when this and other transactions wait for each other, and of any version of an entry that
    /// the transaction has changed itself; `Timeout` when the transaction's lease has ended.
    pub fn write(&mut self, document: &Document, options: &WriteOptions) -> Result<Written> {
        self.write_at(document, options, &|inner| inner.clock.wall_ms())
    }

    /// As [`Within::write`], at the time that is asked for once the entry is locked.
    fn write_at(
        &mut self,
        document: &Document,
        options: &WriteOptions,
        time_ms: &dyn Fn(&Inner) -> u64,
    ) -> Result<Written> {
        let holder = self.begin()?;
        let definition = self.entries.kind.definition();
        let document = self.entries.with_id(&definition, document)?;
        let id = document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
        let partition = route::of_document(self.entries.inner(), &definition, &document)?.id;
        let staged = self.staged(&id, partition);
        let own_version = staged.as_ref().map(Staged::version);
        staged.as_ref().map_or(Ok(()), |staged| check_own(options.version, staged))?;
        let (was, now, over) = match staged {
            Some(staged) => {
                let was = staged.was.clone();
                let version = was.as_ref().map_or(Position::ZERO, |was| was.version);
                let seen = staged.seen(time_ms(self.entries.inner())).cloned();
                let now = seen.map(|(document, expires_ms)| Stored { document, version, expires_ms, sequence: 0 });
                (was, now, staged.over)
            }
            None => {
                let wait = options.lock_timeout.unwrap_or(LOCK_TIMEOUT);
                let was = self.lock_id(&id, partition, holder, wait)?;
                let now_ms = time_ms(self.entries.inner());
                let now = was.clone().filter(|was| was.expires_ms == 0 || was.expires_ms > now_ms);
                let over = if now.is_none() { Over::Ended } else { Over::Any };
                // What was there is told, and so is a refusal because of it.
                let shown = match &now {
                    Some(now) => Some(now.version),
                    None if needs_absence(options) => Some(self.entries.absence(&Wanted::id(id.clone()))?),
                    None => None,
                };
                self.show(shown.filter(|_| self.entries.is_durable()))?;
                (was, now, over)
            }
        };
        let document = next_document(&definition, options, &document, now.as_ref())?;
        let expires_ms = next_expiry(&definition, options.lease, now.as_ref(), time_ms(self.entries.inner()));
        let version = was.as_ref().map_or(Position::ZERO, |was| was.version);
        let will = Some((document, expires_ms));
        self.put(&id, Staged { partition, was, will, over, renews: false, number: 0 });
        // As reading would have told it.
        let previous = now.map(|now| Entry { version: own_version.unwrap_or(now.version), ..Entry::from(now) });
        Ok(Written { id, version, previous })
    }

    /// Locks the entry with this id, if it is there.
    fn lock_id(
        &mut self,
        id: &Value,
        partition: PartitionId,
        holder: Holder,
        wait: Duration,
    ) -> Result<Option<Stored>> {
        let inner = self.entries.inner();
        let deadline = inner.clock.now().after(wait);
        let Some(partition) = inner.partitions.get(partition.index()) else { return Ok(None) };
        loop {
            let at = {
                let mut engine = partition.space();
                partition.check()?;
                let Some(place) = engine.find_id(self.entries.kind.of, id.scalar()) else { return Ok(None) };
                let at = LockedPlace::of(&engine, partition.id, place);
                if engine.is_held(place, holder) {
                    let text = "another transaction has an entry of the same group, and so all of them";
                    return Err(Error::new(ErrorKind::Timeout, text));
                }
                if inner.lock_entry(holder, at, Mode::Exclusive, &mut engine).is_some() {
                    return Ok(engine.get(place));
                }
                at
            };
            let left = deadline.since(inner.clock.now());
            inner.spaces.locks.wait(holder, at, Mode::Exclusive, left)?;
        }
    }

    /// What this transaction itself has written that is wanted, and whose lease lasts still.
    fn own(&mut self, wanted: &Wanted) -> Option<(Value, Staged)> {
        let now_ms = self.entries.store.now_ms();
        self.own_at(wanted, now_ms)
    }

    fn own_at(&mut self, wanted: &Wanted, now_ms: u64) -> Option<(Value, Staged)> {
        let (of, definition) = (self.entries.kind.of, self.entries.kind.definition());
        let stage = self.stage();
        let of_type = stage.of_type.get(&of)?;
        let staged = |(partition, key): &(PartitionId, Vec<u8>)| stage.staged.get(&(of, *partition, key.clone()));
        let is_wanted = |staged: &&Staged| {
            staged.seen(now_ms).is_some_and(|(document, _)| wanted.matches(&definition, document.fields()))
        };
        let found = match &wanted.id {
            // Entries with one id, and other routing, may lie in other partitions.
            Some(id) => {
                let key = key_of(id.scalar());
                let of_partition = |partition: &Partition| stage.staged.get(&(of, partition.id, key.clone()));
                stage.store.inner().partitions.iter().filter_map(of_partition).find(is_wanted)
            }
            None if definition.order == Order::Any => of_type.written.values().filter_map(staged).find(is_wanted),
            // Those that were there have kept their place.
            None => of_type.written.values().filter_map(staged).filter(is_wanted).min_by_key(|staged| staged.place()),
        }?;
        let id = found.will.as_ref().and_then(|(document, _)| document.get(&definition.id));
        Some((id.map(ValueRef::to_value).unwrap_or_default(), found.clone()))
    }

    /// All that this transaction itself has written that is wanted, and whose lease lasts still, in the order of writing: document, end of
    /// the lease or 0, and the rest.
    fn own_all(&mut self, wanted: &Wanted) -> Vec<(Document, u64, Staged)> {
        let (of, definition) = (self.entries.kind.of, self.entries.kind.definition());
        let now_ms = self.entries.store.now_ms();
        let mine = self.stage().staged.iter().filter(|((type_id, ..), _)| *type_id == of);
        let seen = mine.filter_map(|(_, staged)| staged.seen(now_ms).map(|(document, ends)| (document, ends, staged)));
        let own = seen.filter(|(document, ..)| wanted.matches(&definition, document.fields()));
        let mut own: Vec<_> = own.map(|(document, ends, staged)| (document.clone(), *ends, staged.clone())).collect();
        own.sort_unstable_by_key(|(.., staged)| staged.number);
        own
    }

    /// What is wanted, without what this transaction has changed. To be dropped before something is [`put`](Self::put).
    fn others(&mut self, wanted: &Wanted) -> Wanted {
        let of = self.entries.kind.of;
        let except = self.stage().of_type.get(&of).map(|of_type| Arc::clone(&of_type.keys)).unwrap_or_default();
        Wanted { except, ..wanted.clone() }
    }

    /// Takes an entry: it is locked now, and gone when the transaction commits.
    ///
    /// # Errors
    /// As [`Entries::take`]; `Timeout` when the transaction's lease has ended.
    pub fn take(&mut self, wanted: &Wanted, options: &ReadOptions) -> Result<Option<Entry>> {
        let holder = self.begin()?;
        wanted.check_type(&self.entries.kind.definition())?;
        if let Some((id, staged)) = self.own(wanted) {
            check_own(options.version, &staged)?;
            if let Some(granted) = self.before_own(wanted, &staged, Purpose::Lock(holder, Mode::Exclusive))? {
                return self.take_granted(&granted);
            }
            let entry = staged.will.clone().map(|(document, ends)| Entry::of_own((document, ends, staged.clone())));
            self.put(&id, Staged { will: None, renews: false, ..staged });
            return Ok(entry);
        }
        let others = self.others(wanted);
        let found = self.entries.find_or_wait(&others, options, Purpose::Lock(holder, Mode::Exclusive));
        drop(others);
        match self.told(found)? {
            Some(granted) => self.take_granted(&granted),
            None => self.show_absence(wanted),
        }
    }

    /// That there is none is shown too.
    fn show_absence(&mut self, wanted: &Wanted) -> Result<Option<Entry>> {
        let absence = self.entries.absence(wanted)?;
        self.show(Some(absence))?;
        Ok(None)
    }

    fn take_granted(&mut self, granted: &Granted) -> Result<Option<Entry>> {
        let id = id_of(&self.entries.kind.definition(), &granted.entry.document);
        self.put(&id, taken(granted));
        self.show(granted.position)?;
        Ok(Some(granted.entry.clone().into()))
    }

    /// In a queue, an entry that others wrote, that nobody holds, and that stands before `own`, the first of this transaction's own.
    fn before_own(&mut self, wanted: &Wanted, own: &Staged, purpose: Purpose) -> Result<Option<Granted>> {
        let is_queue = self.entries.kind.definition().order != Order::Any;
        if !is_queue || wanted.id.is_some() {
            return Ok(None);
        }
        let others = self.others(wanted);
        let is_before = |first: &Granted| {
            let is_later = |was: &Stored| first.partition == own.partition && first.entry.sequence < was.sequence;
            own.was.as_ref().is_none_or(is_later)
        };
        if own.was.is_some() {
            let only_reads = Purpose::Read(purpose.holder());
            let first = self.entries.find_or_wait(&others, &ReadOptions::default(), only_reads)?;
            if !first.as_ref().is_some_and(is_before) {
                return Ok(None);
            }
        }
        // Somebody may have the one that was seen, and the next be behind its own.
        let granted = self.entries.find_or_wait(&others, &ReadOptions::default(), purpose)?;
        Ok(granted.filter(is_before))
    }

    /// Reads an entry, as this transaction would have it; locked as asked.
    ///
    /// # Errors
    /// As [`Entries::read`]; `Timeout` when the transaction's lease has ended.
    pub fn read(&mut self, wanted: &Wanted, lock: ReadLock, options: &ReadOptions) -> Result<Option<Entry>> {
        let holder = self.begin()?;
        wanted.check_type(&self.entries.kind.definition())?;
        let purpose = match lock {
            ReadLock::None => Purpose::Read(holder),
            ReadLock::Shared => Purpose::Lock(holder, Mode::Shared),
            ReadLock::Exclusive => Purpose::Lock(holder, Mode::Exclusive),
        };
        if let Some((_, staged)) = self.own(wanted) {
            check_own(options.version, &staged)?;
            if let Some(granted) = self.before_own(wanted, &staged, purpose)? {
                self.show(granted.position)?;
                return Ok(Some(granted.entry.into()));
            }
            return Ok(staged.will.clone().map(|(document, ends)| Entry::of_own((document, ends, staged))));
        }
        let others = self.others(wanted);
        let found = self.entries.find_or_wait(&others, options, purpose);
        drop(others);
        let Some(granted) = self.told(found)? else { return self.show_absence(wanted) };
        self.show(granted.position)?;
        Ok(Some(granted.entry.into()))
    }

    /// Changes the entry that is wanted by its id in place: it is locked now, and changed when the transaction commits. `None` if
    /// there is none. The version of what is there now is that of before, or 0: the new one is known after the commit.
    ///
    /// # Errors
    /// As [`Entries::change`]; `Conflict` also when this and other transactions wait for each other.
    pub fn change(&mut self, wanted: &Wanted, changes: &[InPlace], options: &WriteOptions) -> Result<Option<Changed>> {
        if wanted.id.is_none() {
            return Err(Error::new(ErrorKind::Invalid, "an entry is changed by its id"));
        }
        let Some(before) = self.lock(wanted, options.lock_timeout)? else { return Ok(None) };
        // It ends by one look at the clock: nobody else ends an entry that is locked.
        let now_ms = self.entries.store.now_ms();
        if before.expires_ms.is_some_and(|ends| ends <= now_ms) {
            return Ok(None);
        }
        let old = Stored::from(before.clone());
        let document = changed_document(&self.entries.kind.definition(), &old, changes)?;
        let options = WriteOptions { mode: WriteMode::Update, ..options.clone() };
        let written = self.write_at(&document, &options, &|_| now_ms)?;
        // A lease so short that it has ended by now was given all the same.
        let expires_ms = self.own_at(wanted, 0).and_then(|(_, staged)| staged.will).map_or(0, |(_, at)| at);
        let expires_ms = (expires_ms != 0).then_some(expires_ms);
        Ok(Some(Changed { before, now: Entry { document, version: written.version, expires_ms } }))
    }

    /// Ends the lease of the entry that is wanted by its id at another time: it is locked now, and renewed when the transaction
    /// commits, which is no event. False if there is none.
    ///
    /// # Errors
    /// As [`Entries::renew`]; `Conflict` also when this and other transactions wait for each other.
    pub fn renew(&mut self, wanted: &Wanted, lease: Lease, lock_timeout: Option<Duration>) -> Result<bool> {
        if wanted.id.is_none() {
            return Err(Error::new(ErrorKind::Invalid, "a lease is renewed by the entry's id"));
        }
        let Some(before) = self.lock(wanted, lock_timeout)? else { return Ok(false) };
        let definition = self.entries.kind.definition();
        let id = id_of(&definition, &before.document);
        let partition = route::of_document(self.entries.inner(), &definition, &before.document)?.id;
        let old = Stored::from(before);
        let expires_ms = next_expiry(&definition, lease, Some(&old), self.entries.store.now_ms());
        let will = Some((old.document, expires_ms));
        let staged = match self.staged(&id, partition) {
            Some(staged) => Staged { will, ..staged },
            None => {
                let holder = self.begin()?;
                let Some(was) = self.lock_id(&id, partition, holder, Duration::ZERO)? else { return Ok(false) };
                Staged { partition, was: Some(was), will, over: Over::Any, renews: true, number: 0 }
            }
        };
        self.put(&id, staged);
        Ok(true)
    }

    /// Locks the entry that is wanted by its id, and shows it; `None` if it is not there.
    fn lock(&mut self, wanted: &Wanted, lock_timeout: Option<Duration>) -> Result<Option<Entry>> {
        let wait = Some(lock_timeout.unwrap_or(LOCK_TIMEOUT));
        // A lock is waited for, and an entry that is not there is not.
        let reading = ReadOptions { wait, if_exists: true, ..ReadOptions::default() };
        if let Some(entry) = self.read(wanted, ReadLock::Exclusive, &reading)? {
            return Ok(Some(entry));
        }
        let gone = self.check_gone(wanted);
        if gone.is_err() && wait != Some(Duration::ZERO) {
            self.entries.inner().spaces.locks.count_timeout();
        }
        gone.map(|()| None)
    }

    /// Tells entries that other transactions keep, by a lock or with their group, from those that are not there.
    ///
    /// # Errors
    /// `Timeout` when there is one that is wanted and not this transaction's own; it names who has it where it is wanted by its id. Those of
    /// reading.
    pub fn check_gone(&mut self, wanted: &Wanted) -> Result<()> {
        let wanted = self.others(wanted);
        if self.entries.read_many_shown(&wanted, 1)?.value.is_empty() {
            return Ok(());
        }
        let holder = self.stage().holder()?;
        Err(self.entries.locked(holder, &wanted))
    }

    /// How many entries there are that match, as this transaction would have it. Nothing is locked.
    ///
    /// # Errors
    /// As [`Entries::count`].
    pub fn count(&mut self, wanted: &Wanted) -> Result<u64> {
        self.begin()?;
        let own = self.own_all(wanted).len() as u64;
        let own = wanted.limit.map_or(own, |limit| own.min(limit));
        let others = Wanted { limit: wanted.limit.map(|limit| limit - own), ..self.others(wanted) };
        let shown = self.entries.count_shown(&others)?;
        let is_durable = self.entries.is_durable();
        self.show(is_durable.then_some(shown.position))?;
        Ok(own + shown.value)
    }

    /// Takes all entries that match and that nobody else has locked, `max` at the most; returns how many. They go when the transaction
    /// commits.
    ///
    /// # Errors
    /// As [`Within::take`]; `Limit` when more than `max` match, and then none is taken.
    pub fn clear(&mut self, wanted: &Wanted, max: usize) -> Result<u64> {
        let holder = self.begin()?;
        wanted.check_unordered("clear")?;
        let definition = self.entries.kind.definition();
        let limit = wanted.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let mut own = self.own_all(wanted);
        own.truncate(limit);
        let others = self.others(wanted);
        let enough = max.saturating_add(1).saturating_sub(own.len()).min(limit - own.len());
        let shown = self.entries.read_many_shown(&others, enough)?;
        drop(others);
        let is_durable = self.entries.is_durable();
        self.show(is_durable.then_some(shown.position))?;
        let found = shown.value;
        if own.len() + found.len() > max {
            let text =
                format!("more than {max} entries match, and a transaction clears no more: say LIMIT, or clear outside");
            return Err(Error::new(ErrorKind::Limit, text));
        }
        let mut count = own.len() as u64;
        for (document, _, staged) in own {
            self.put(&id_of(&definition, &document), Staged { will: None, renews: false, ..staged });
        }
        for Entry { document, .. } in found {
            let by_id = by_id_of(&definition, wanted, &document);
            let at_once = ReadOptions::default();
            let got = self.entries.find_or_wait(&by_id, &at_once, Purpose::Lock(holder, Mode::Exclusive))?;
            let Some(granted) = got else { continue };
            self.put(&id_of(&definition, &document), taken(&granted));
            self.show(granted.position)?;
            count += 1;
        }
        Ok(count)
    }

    /// Hands on what it came to: what a refusal rests on is shown too.
    fn told<T>(&mut self, result: Result<T>) -> Result<T> {
        self.show(result.as_ref().err().and_then(Error::rests_on))?;
        result
    }

    fn show(&mut self, position: Option<Position>) -> Result<()> {
        position.map_or(Ok(()), |position| self.stage().show(position))
    }
}
