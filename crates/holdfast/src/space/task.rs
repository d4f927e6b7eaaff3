//! Tasks that run beside the data: in one partition, which nobody else touches meanwhile, with one batch for all they do.
//!
//! Entries with the same routing value lie in the same partition, whatever their type, so a task finds together what belongs
//! together. What it writes and takes it sees itself; if it fails, nothing happened.
//!
//! A task holds its partition: be quick, and do not use the store by other ways inside one.
//!
//! May use: everything of this folder. Must not know: protocols.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, MutexGuard};

use ::space::{
    Change as InPlace, Document, Engine, Order, Outcome, Reason, Search, Stored, TypeId, Value, ValueRef, key_of,
};
use journal::{Batch, Log, PartitionId, Position};

use super::Space;
use super::commit::{Over, SPACE_PART, What};
use super::entries::{Entries, Entry};
use super::kind::Kind;
use super::limit::{self, Growing, Held};
use super::listen::Telling;
use super::locks::{LockedPlace, Mode, NOBODY};
use super::read::is_visible;
use super::route;
use super::wanted::Wanted;
use super::write::{WriteMode, WriteOptions, changed_document, next_document, next_expiry};
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::kv::Shown;
use crate::partition::Partition;

/// A function that runs beside the data: from arguments to an answer.
pub(crate) type Function = Arc<dyn Fn(&mut Task<'_>, &Value) -> Result<Value> + Send + Sync>;

struct Staged {
    kind: Arc<Kind>,
    was: Option<Stored>,
    will: Option<(Document, u64)>,
    /// Counts what the task has come to: the order in which it was written first, and so that of queues.
    number: u64,
}

/// What a task works with: the entries of one partition.
pub struct Task<'a> {
    space: &'a Space,
    partition: &'a Partition,
    engine: MutexGuard<'a, Engine>,
    staged: BTreeMap<(TypeId, Vec<u8>), Staged>,
    last_number: u64,
    newest: Position,
    now_ms: u64,
}

impl Space {
    /// Runs a task in the partition of a routing value. The answer comes when what it changed is as durable as asked.
    ///
    /// # Errors
    /// Those of the task; then nothing has happened.
    pub fn execute<T>(
        &self,
        routing: &Value,
        durability: Option<Durability>,
        task: impl FnOnce(&mut Task<'_>) -> Result<T>,
    ) -> Result<T> {
        let inner = self.store.inner();
        inner.check_open()?;
        let partition = route::of_value(inner, &self.name, routing)?;
        let shown = self.run(partition, task)?;
        self.store.wait(shown.position, durability.unwrap_or(self.store.durability()))?;
        Ok(shown.value)
    }

    /// Registers a function by name, so that [`Space::call`] finds it; one of the same name is replaced. It is not stored: a
    /// program registers its functions when it starts.
    pub fn register(
        &self,
        name: &str,
        function: impl Fn(&mut Task<'_>, &Value) -> Result<Value> + Send + Sync + 'static,
    ) {
        self.store.inner().spaces.register(&self.name, name, Arc::new(function));
    }

    /// Runs a registered function in the partition of a routing value.
    ///
    /// # Errors
    /// `Invalid` when there is no such function; those of the function, and then nothing has happened.
    pub fn call(
        &self,
        name: &str,
        routing: &Value,
        arguments: &Value,
        durability: Option<Durability>,
    ) -> Result<Value> {
        let function = self.store.inner().spaces.function(&self.name, name).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("no function {name} is registered in the space {}", self.name))
        })?;
        self.execute(routing, durability, |task| function(task, arguments))
    }

    /// Runs a task in every partition, one after another, and reduces what they answer to one value. Each partition's changes
    /// are a batch of their own.
    ///
    /// # Errors
    /// The first of the task's; partitions before it have done their work.
    pub fn execute_all<T>(
        &self,
        durability: Option<Durability>,
        mut task: impl FnMut(&mut Task<'_>) -> Result<T>,
        reduce: impl FnMut(T, T) -> T,
    ) -> Result<T> {
        let inner = self.store.inner();
        inner.check_open()?;
        let mut newest = Position::ZERO;
        let mut answers = Vec::with_capacity(inner.partitions.len());
        for partition in &inner.partitions {
            let shown = self.run(partition, &mut task)?;
            newest = newest.max(shown.position);
            answers.push(shown.value);
        }
        self.store.wait(newest, durability.unwrap_or(self.store.durability()))?;
        let all = answers.into_iter().reduce(reduce);
        all.ok_or_else(|| Error::new(ErrorKind::Internal, "a store without partitions"))
    }

    fn run<T>(&self, partition: &Partition, task: impl FnOnce(&mut Task<'_>) -> Result<T>) -> Result<Shown<T>> {
        let mut running = Task {
            space: self,
            partition,
            engine: partition.space(),
            staged: BTreeMap::new(),
            last_number: 0,
            newest: Position::ZERO,
            now_ms: self.store.now_ms(),
        };
        partition.check()?;
        // A panic of the task's has changed nothing here, and must not make the partition unusable.
        let value = match catch_unwind(AssertUnwindSafe(|| task(&mut running))) {
            Ok(value) => value?,
            Err(panic) => {
                drop(running);
                resume_unwind(panic);
            }
        };
        let position = running.commit()?;
        Ok(Shown { value, position })
    }
}

impl<'a> Task<'a> {
    fn kind(&self, name: &str) -> Result<Arc<Kind>> {
        let Entries { kind, .. } = self.space.entries(name)?;
        kind.check()?;
        Ok(kind)
    }

    /// The number of its partition.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.partition.id
    }

    /// The entries that match, at most so many, with what this task has written and without what it took.
    ///
    /// # Errors
    /// `Invalid` when there is no such type.
    pub fn read(&mut self, name: &str, wanted: &Wanted, max: usize) -> Result<Vec<Entry>> {
        let kind = self.kind(name)?;
        let definition = kind.definition();
        let (now_ms, mut found) = (self.now_ms, Vec::new());
        // In a queue what was there has kept its place, and what is new comes behind.
        let is_queue = definition.order != Order::Any;
        let mut anew = Vec::new();
        for staged in self.in_order() {
            let of_this = staged.will.as_ref().filter(|_| staged.kind.of == kind.of);
            let Some((document, expires_ms)) = of_this else { continue };
            let is_new = is_queue && staged.was.is_none();
            let has_enough = if is_queue { anew.len() >= max } else { found.len() >= max };
            if (is_new || !is_queue) && has_enough || !wanted.matches(&definition, document.fields()) {
                continue;
            }
            let (version, sequence) =
                staged.was.as_ref().map_or_else(Default::default, |was| (was.version, was.sequence));
            let stored = Stored { document: document.clone(), version, expires_ms: *expires_ms, sequence };
            if is_new { anew.push(stored) } else { found.push(stored) }
        }
        let (staged, own) = (&self.staged, if is_queue { found.len() } else { 0 });
        let enough = max.saturating_add(own);
        let look = &mut |it: ::space::Found<'_>| {
            let fields = it.document().fields();
            let is_mine = fields.get(&definition.id).is_some_and(|id| staged.contains_key(&(kind.of, key_of(id))));
            if found.len() < enough && !is_mine && is_visible(&it, now_ms) && wanted.matches(&definition, fields) {
                found.push(it.stored());
            }
            if found.len() < enough { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let search = Search { of: kind.of, filter: &wanted.filter, by: NOBODY, go_on: &|| ControlFlow::Continue(()) };
        let _ = self.engine.find(search, look);
        if is_queue {
            found.sort_by_key(|stored| stored.sequence);
            found.extend(anew);
            found.truncate(max);
        }
        let newest = found.iter().map(|stored| stored.version).max().unwrap_or_default();
        self.newest = self.newest.max(newest);
        Ok(found.into_iter().map(Entry::from).collect())
    }

    /// The entry with this id.
    ///
    /// # Errors
    /// As [`Task::read`].
    pub fn get(&mut self, name: &str, id: impl Into<Value>) -> Result<Option<Entry>> {
        let kind = self.kind(name)?;
        Ok(self.now(&kind, &id.into())?.map(Entry::from))
    }

    /// What is there, as this task has it; refuses what a transaction has locked.
    fn now(&mut self, kind: &Arc<Kind>, id: &Value) -> Result<Option<Stored>> {
        if let Some(staged) = self.staged.get(&(kind.of, key_of(id.scalar()))) {
            let (version, sequence) =
                staged.was.as_ref().map_or_else(Default::default, |was| (was.version, was.sequence));
            let stored = |(document, expires_ms): &(Document, u64)| Stored {
                document: document.clone(),
                version,
                expires_ms: *expires_ms,
                sequence,
            };
            return Ok(staged.will.as_ref().map(stored));
        }
        let Some(place) = self.engine.find_id(kind.of, id.scalar()) else { return Ok(None) };
        let at = LockedPlace::of(&self.engine, self.partition.id, place);
        if self.engine.is_locked(place)
            && self.space.store.inner().spaces.locks.is_in_the_way(NOBODY, at, Mode::Exclusive)
        {
            return Err(Error::new(ErrorKind::Timeout, "a transaction has locked an entry that the task needs"));
        }
        let stored = self.engine.get(place).filter(|it| it.expires_ms == 0 || it.expires_ms > self.now_ms);
        self.newest = self.newest.max(stored.as_ref().map_or(Position::ZERO, |stored| stored.version));
        Ok(stored)
    }

    fn stage(&mut self, kind: &Arc<Kind>, id: &Value, was: Option<Stored>, will: Option<(Document, u64)>) {
        let key = (kind.of, key_of(id.scalar()));
        self.last_number += 1;
        let number = self.last_number;
        match self.staged.get_mut(&key) {
            // It has its place from when it was to be there first.
            Some(staged) => {
                staged.number = if staged.will.is_some() { staged.number } else { number };
                staged.will = will;
            }
            None => drop(self.staged.insert(key, Staged { kind: Arc::clone(kind), was, will, number })),
        }
    }

    /// What it has come to, in the order of the first writing.
    fn in_order(&self) -> Vec<&Staged> {
        let mut all: Vec<&Staged> = self.staged.values().collect();
        all.sort_unstable_by_key(|staged| staged.number);
        all
    }

    /// Writes an entry, which has to lie in this partition.
    ///
    /// # Errors
    /// As [`Entries::write`]; `Invalid` when it lies elsewhere.
    pub fn write(&mut self, name: &str, document: &Document, options: &WriteOptions) -> Result<Value> {
        let kind = self.kind(name)?;
        let definition = kind.definition();
        if definition.storage == ::space::Storage::Volatile {
            let text = "entries of a volatile type are in no journal, and a task's changes are one batch";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let entries = Entries::new(self.space.store.clone(), Arc::clone(&kind));
        let document = entries.with_id(&definition, document)?;
        let there = route::of_document(entries.inner(), &definition, &document)?;
        if there.id != self.partition.id {
            let text = "the entry lies in another partition: a task writes entries with its own routing value";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let id = document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
        let old = self.now(&kind, &id)?;
        let document = next_document(&definition, options, &document, old.as_ref())?;
        let expires_ms = next_expiry(&definition, options.lease, old.as_ref(), self.now_ms);
        self.stage(&kind, &id, old, Some((document, expires_ms)));
        Ok(id)
    }

    /// Changes an entry in place. `None` if there is none.
    ///
    /// # Errors
    /// As [`Entries::change`].
    pub fn change(&mut self, name: &str, id: impl Into<Value>, changes: &[InPlace]) -> Result<Option<Document>> {
        let (kind, id) = (self.kind(name)?, id.into());
        let Some(old) = self.now(&kind, &id)? else { return Ok(None) };
        let document = changed_document(&kind.definition(), &old, changes)?;
        let options = WriteOptions { mode: WriteMode::Update, ..WriteOptions::default() };
        self.write(name, &document, &options)?;
        Ok(Some(document))
    }

    /// Takes the entry with this id.
    ///
    /// # Errors
    /// As [`Entries::take`].
    pub fn take(&mut self, name: &str, id: impl Into<Value>) -> Result<Option<Entry>> {
        let (kind, id) = (self.kind(name)?, id.into());
        let Some(old) = self.now(&kind, &id)? else { return Ok(None) };
        self.stage(&kind, &id, Some(old.clone()), None);
        Ok(Some(old.into()))
    }

    fn check_unique(&self) -> Result<()> {
        let mut of_type: BTreeMap<TypeId, Vec<Outcome<'_>>> = BTreeMap::new();
        for ((of, _), staged) in &self.staged {
            let will = staged.will.as_ref().map(|(document, _)| document);
            let document = will.or(staged.was.as_ref().map(|was| &was.document));
            let id = document.and_then(|document| document.get(&staged.kind.definition().id));
            of_type.entry(*of).or_default().extend(id.map(|id| (id, will)));
        }
        of_type.iter().try_for_each(|(of, all)| Ok(self.engine.check_unique_batch(*of, all)?))
    }

    /// Sees to it that every type and the space stay within their limits.
    fn make_room(&mut self) -> Result<()> {
        let kinds: BTreeMap<TypeId, Arc<Kind>> =
            self.staged.values().map(|staged| (staged.kind.of, Arc::clone(&staged.kind))).collect();
        let (staged, mut growing) = (&self.staged, Vec::new());
        for (of, kind) in kinds.into_iter().filter(|(_, kind)| limit::is_limited(kind)) {
            let of_this = staged.values().filter(|staged| staged.kind.of == of);
            let changes = of_this.map(|staged| {
                (staged.was.as_ref().map(|was| &was.document), staged.will.as_ref().map(|(document, _)| document))
            });
            growing.push(Growing::of(&kind, (self.partition.id, &self.engine), changes));
        }
        let here = self.partition.id;
        let keeps = |of, partition, id: ValueRef<'_>| partition == here && staged.contains_key(&(of, key_of(id)));
        let held = &mut Held::One(here, &mut self.engine);
        limit::make_room(self.space.store.inner(), held, &growing, &keeps)
    }

    /// Makes one batch of everything.
    fn commit(mut self) -> Result<Position> {
        let inner = self.space.store.inner();
        self.check_unique()?;
        self.make_room()?;
        let mut part = Vec::new();
        let mut kinds: BTreeMap<TypeId, Arc<Kind>> = BTreeMap::new();
        let mut done = Vec::new();
        for staged in self.in_order() {
            let definition = staged.kind.definition();
            let what = match (&staged.will, &staged.was) {
                (Some((document, expires_ms)), was) => {
                    // Nobody else came since: what is there now and was not then had ended.
                    let over = if was.is_some() { Over::Any } else { Over::Ended };
                    What::Write { document: document.clone(), expires_ms: *expires_ms, over }
                }
                (None, Some(was)) => {
                    let id = was.document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
                    What::Remove { id, reason: Reason::Taken }
                }
                (None, None) => continue,
            };
            what.encode(&staged.kind, definition.history, &self.engine, &mut part);
            kinds.insert(staged.kind.of, Arc::clone(&staged.kind));
            done.push((definition, what));
        }
        if part.is_empty() {
            return Ok(self.newest);
        }
        let mut telling: BTreeMap<TypeId, Telling<'_>> = BTreeMap::new();
        for (of, kind) in &kinds {
            telling.extend(kind.listeners.telling().map(|telling| (*of, telling)));
        }
        let mut batch = Batch::new();
        batch.section(self.partition.id, |to| kv::put_other_part(to, SPACE_PART, &part));
        let position = inner.journal.append(&batch)?.position;
        let tell = &mut |event: ::space::Event| {
            if let (Some(telling), Some(kind)) = (telling.get_mut(&event.of), kinds.get(&event.of)) {
                telling.tell(&event, &kind.definition());
            }
        };
        let documents = done.iter().filter_map(|(_, what)| what.written());
        let applied =
            self.engine.apply_made(position, &part, documents, tell).inspect_err(|_| self.partition.set_broken());
        drop(telling);
        // Also of what could not be applied: it is there when the store is opened again.
        done.iter().for_each(|(definition, what)| what.tell(inner, definition));
        applied?;
        let mut all: Vec<&Staged> = self.staged.values().collect();
        all.sort_unstable_by_key(|staged| staged.number);
        for staged in all {
            let Some((document, expires_ms)) = &staged.will else { continue };
            inner.note_lease(*expires_ms);
            let id = document.get(&staged.kind.definition().id);
            if let Some(place) = id.and_then(|id| self.engine.find_id(staged.kind.of, id)) {
                inner.offer(&staged.kind, self.partition, &mut self.engine, place);
            }
        }
        Ok(position)
    }
}
