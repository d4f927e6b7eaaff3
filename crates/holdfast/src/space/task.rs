//! Tasks that run beside the data: in one partition, which nobody else touches meanwhile, with one batch for all they do.
//!
//! Entries with the same routing value lie in the same partition, whatever their type, so a task finds together what belongs
//! together. What it writes and takes it sees itself; if it fails, nothing happened.
//!
//! A task holds its partition: be quick. The store refuses whatever is asked of it by other ways in the thread of one, which would wait for itself.
//!
//! May use: everything of this folder. Must not know: protocols.

mod commit;

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, MutexGuard};

use ::space::{
    Change as InPlace, Document, EVERYBODY, Engine, Order, Outcome, Search, Stored, TypeId, Value, ValueRef, key_of,
};
use journal::{PartitionId, Position};

use super::Space;
use super::entries::{Entries, Entry};
use super::kind::Kind;
use super::limit::{self, Growing};
use super::locks::{LockedPlace, Mode, NOBODY};
use super::read::is_visible;
use super::route;
use super::wanted::Wanted;
use super::write::{WriteMode, WriteOptions, changed_document, next_document, next_expiry};
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::store::Inner;

/// A function that runs beside the data: from arguments to an answer.
pub(crate) type Function = Arc<dyn Fn(&mut Task<'_>, &Value) -> Result<Value> + Send + Sync>;

/// Ids that are made until one lies in the task's partition. In a store with the most partitions one write in ten million finds none.
const IDS_MADE_MAX: usize = 16 * 1024;

thread_local! {
    /// The store for which the thread runs a task.
    static RUNS_FOR: Cell<Option<*const Inner>> = const { Cell::new(None) };
}

/// While it is there, the thread runs a task.
struct Running(Option<*const Inner>);

impl Running {
    fn of(inner: &Inner) -> Self {
        Self(RUNS_FOR.replace(Some(inner)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNS_FOR.set(self.0);
    }
}

/// Refuses what would wait for the calling thread itself.
pub(crate) fn check_outside(inner: &Inner) -> Result<()> {
    if RUNS_FOR.get().is_some_and(|store| std::ptr::eq(store, inner)) {
        let text = "a task or a registered function uses the store by another way than the `Task` that it is given, and would wait for itself";
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(())
}

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
    /// Whether it runs in all partitions, and so looks for what lies elsewhere too.
    is_everywhere: bool,
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
        self.run_in(partition, durability, task)
    }

    /// Runs a task where the entries of a type lie that lie together: no routing value leads there. The answer comes when what it changed is as
    /// durable as asked.
    ///
    /// # Errors
    /// `Invalid` when there is no such type, or its entries do not lie together; those of the task, and then nothing has happened.
    pub fn execute_beside<T>(
        &self,
        type_name: &str,
        durability: Option<Durability>,
        task: impl FnOnce(&mut Task<'_>) -> Result<T>,
    ) -> Result<T> {
        let inner = self.store.inner();
        inner.check_open()?;
        let entries = self.entries(type_name)?;
        let partition = route::of_type(inner, &entries.definition())?;
        self.run_in(partition, durability, task)
    }

    fn run_in<T>(
        &self,
        partition: &Partition,
        durability: Option<Durability>,
        task: impl FnOnce(&mut Task<'_>) -> Result<T>,
    ) -> Result<T> {
        let durability = durability.unwrap_or(self.store.durability());
        // What is waited for is waited for without the partition.
        let run = || {
            let (value, ran) = self.run(partition, false, task).unwrap_or_else(|panic| resume_unwind(panic))?;
            let newest = ran.newest;
            let committed = commit::commit(self.store.inner(), vec![ran]);
            Ok((value, newest.max(committed.map_err(|error| error.resting_on(newest))?)))
        };
        let (value, position) = self.store.told(run(), durability)?;
        self.store.wait(position, durability)?;
        Ok(value)
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
    /// `Invalid` when there is no such function; those of the function, and `Internal` when it panics: then nothing has happened.
    pub fn call(
        &self,
        name: &str,
        routing: &Value,
        arguments: &Value,
        durability: Option<Durability>,
    ) -> Result<Value> {
        let spaces = &self.store.inner().spaces;
        let function = spaces.function(&self.name, name).ok_or_else(|| {
            let there = match spaces.functions_of(&self.name) {
                names if names.is_empty() => {
                    "none is: a program registers its functions each time it starts".to_owned()
                }
                names => format!("{} are", names.join(", ")),
            };
            let text = format!("no function {name} is registered in the space {}; {there}", self.name);
            Error::new(ErrorKind::Invalid, text)
        })?;
        // Whoever calls it by name need not be whoever wrote it.
        self.execute(routing, durability, |task| {
            catch_unwind(AssertUnwindSafe(|| function(task, arguments))).unwrap_or_else(|panic| {
                let text = format!("the function {name} panicked: {}", said(&*panic));
                Err(Error::new(ErrorKind::Internal, text))
            })
        })
    }

    /// Runs a task in every partition, one after another, and reduces what they answer to one value. All that they change is one batch. So a
    /// partition in which the task has changed something stays locked until it has run in all of them; the others are free again at once.
    ///
    /// # Errors
    /// The first of the task's, or `Limit` when they change more than one batch holds; then nothing has happened.
    pub fn execute_all<T>(
        &self,
        durability: Option<Durability>,
        task: impl FnMut(&mut Task<'_>) -> Result<T>,
        reduce: impl FnMut(T, T) -> T,
    ) -> Result<T> {
        self.store.inner().check_open()?;
        let durability = durability.unwrap_or(self.store.durability());
        let (answers, newest) = self.store.told(self.run_all(task), durability)?;
        self.store.wait(newest, durability)?;
        let all = answers.into_iter().reduce(reduce);
        all.ok_or_else(|| Error::new(ErrorKind::Internal, "a store without partitions"))
    }

    /// Runs it in every partition, and commits; what it answered, and what that rests on.
    fn run_all<T>(&self, mut task: impl FnMut(&mut Task<'_>) -> Result<T>) -> Result<(Vec<T>, Position)> {
        let inner = self.store.inner();
        let mut newest = Position::ZERO;
        let mut answers = Vec::with_capacity(inner.partitions.len());
        let mut changing = Vec::new();
        // In their order, as all do who lock several.
        for partition in &inner.partitions {
            let ran = self.run(partition, true, &mut task);
            let ran = ran.unwrap_or_else(|panic| {
                // Nor may those before it become unusable.
                drop(std::mem::take(&mut changing));
                resume_unwind(panic)
            });
            // What it saw before may be why it fails here.
            let (answer, ran) = ran.map_err(|error| error.resting_on(newest))?;
            newest = newest.max(ran.newest);
            answers.push(answer);
            if !ran.staged.is_empty() {
                changing.push(ran);
            }
        }
        let committed = commit::commit(inner, changing).map_err(|error| error.resting_on(newest))?;
        Ok((answers, newest.max(committed)))
    }

    /// Runs it, and leaves the rest to whoever commits. The outer error is a panic of the task's.
    fn run<'p, T>(
        &'p self,
        partition: &'p Partition,
        is_everywhere: bool,
        task: impl FnOnce(&mut Task<'_>) -> Result<T>,
    ) -> std::thread::Result<Result<(T, Task<'p>)>> {
        let mut running = Task {
            space: self,
            partition,
            engine: partition.space(),
            staged: BTreeMap::new(),
            last_number: 0,
            newest: Position::ZERO,
            now_ms: self.store.now_ms(),
            is_everywhere,
        };
        if let Err(error) = partition.check() {
            return Ok(Err(error));
        }
        let ran = {
            let _here = Running::of(self.store.inner());
            catch_unwind(AssertUnwindSafe(|| task(&mut running)))
        };
        match ran {
            Ok(Ok(value)) => Ok(Ok((value, running))),
            // It may have failed because of anything that it saw.
            Ok(Err(error)) => Ok(Err(error.resting_on(running.newest))),
            Err(panic) => {
                // It has changed nothing here, and must not make the partition unusable.
                drop(running);
                Err(panic)
            }
        }
    }
}

fn elsewhere() -> Error {
    let text = "the entry lies in another partition: a task reads and writes entries with its own routing value";
    Error::new(ErrorKind::Invalid, text)
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
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

    /// The entries that match, at most so many and no more than LIMIT says, with what this task has written and without what it
    /// took. What transactions have locked or hold is shown as it was committed last.
    ///
    /// # Errors
    /// `Invalid` when there is no such type, and of ORDER BY and OFFSET.
    pub fn read(&mut self, name: &str, wanted: &Wanted, max: usize) -> Result<Vec<Entry>> {
        let kind = self.kind(name)?;
        wanted.check_unordered("a task")?;
        let max = wanted.limit.map_or(max, |limit| max.min(usize::try_from(limit).unwrap_or(usize::MAX)));
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
        let search = Search {
            of: kind.of,
            filter: &wanted.filter,
            by: EVERYBODY,
            first: None,
            go_on: &|| ControlFlow::Continue(()),
        };
        let _ = self.engine.find(search, look);
        if is_queue {
            found.sort_by_key(|stored| stored.sequence);
            found.extend(anew);
            found.truncate(max);
        }
        if found.len() < max {
            self.note_absence(&kind);
        }
        let newest = found.iter().map(|stored| stored.version).max().unwrap_or_default();
        self.note(&kind, newest);
        Ok(found.into_iter().map(Entry::from).collect())
    }

    /// The entry with this id.
    ///
    /// # Errors
    /// As [`Task::read`]; `Invalid` when the id says that it lies in another partition, unless the task runs in all.
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
        let Some(place) = self.engine.find_id(kind.of, id.scalar()) else {
            self.check_lies_here(kind, id)?;
            self.note_absence(kind);
            return Ok(None);
        };
        let at = LockedPlace::of(&self.engine, self.partition.id, place);
        if self.engine.is_locked(place)
            && self.space.store.inner().spaces.locks.is_in_the_way(NOBODY, at, Mode::Exclusive)
        {
            return Err(Error::new(ErrorKind::Timeout, "a transaction has locked an entry that the task needs"));
        }
        let stored = self.engine.get(place).filter(|it| it.expires_ms == 0 || it.expires_ms > self.now_ms);
        match &stored {
            Some(stored) => self.note(kind, stored.version),
            None => self.note_absence(kind),
        }
        Ok(stored)
    }

    /// The task has seen something of this version. What is in no journal rests on nothing.
    fn note(&mut self, kind: &Kind, version: Position) {
        if kind.is_durable() {
            self.newest = self.newest.max(version);
        }
    }

    /// The task has seen that something is not there.
    fn note_absence(&mut self, kind: &Kind) {
        self.note(kind, self.engine.gone(kind.of));
    }

    /// That an entry is not here says nothing when it would lie elsewhere.
    fn check_lies_here(&self, kind: &Kind, id: &Value) -> Result<()> {
        let definition = kind.definition();
        if self.is_everywhere || definition.routed_by().is_some() && !route::is_single(&definition) {
            return Ok(());
        }
        let there = route::of_wanted(self.space.store.inner(), &definition, &Wanted::id(id.clone()))?;
        if there.iter().any(|partition| partition.id == self.partition.id) {
            return Ok(());
        }
        Err(elsewhere())
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

    /// Writes an entry, which has to lie in this partition. One without an id gets one with which it does, if the type has no routing.
    ///
    /// # Errors
    /// As [`Entries::write`]; `Invalid` when it lies elsewhere.
    pub fn write(&mut self, name: &str, document: &Document, options: &WriteOptions) -> Result<Value> {
        let kind = self.kind(name)?;
        let definition = kind.definition();
        let entries = Entries::new(self.space.store.clone(), Arc::clone(&kind));
        let document = self.placed(&entries, &definition, document)?;
        let id = document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
        let old = self.now(&kind, &id)?;
        let document = next_document(&definition, options, &document, old.as_ref())?;
        let expires_ms = next_expiry(&definition, options.lease, old.as_ref(), self.now_ms);
        self.stage(&kind, &id, old, Some((document, expires_ms)));
        Ok(id)
    }

    /// The document with its id, which lies here. An id that is made is made until it does, if it is the id that decides.
    fn placed(&self, entries: &Entries, definition: &::space::Definition, document: &Document) -> Result<Document> {
        let has_id = !matches!(document.get(&definition.id), None | Some(ValueRef::Null));
        let id_decides = !has_id && definition.routed_by().is_none() && !route::is_single(definition);
        for _ in 0..if id_decides { IDS_MADE_MAX } else { 1 } {
            let document = entries.with_id(definition, document)?;
            if route::of_document(entries.inner(), definition, &document)?.id == self.partition.id {
                return Ok(document);
            }
        }
        Err(elsewhere())
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
    /// As [`Entries::take`]; `Timeout` at once while a transaction has the entry locked, or holds its group.
    pub fn take(&mut self, name: &str, id: impl Into<Value>) -> Result<Option<Entry>> {
        let (kind, id) = (self.kind(name)?, id.into());
        let Some(old) = self.now(&kind, &id)? else { return Ok(None) };
        let place = self.engine.find_id(kind.of, id.scalar());
        if place.is_some_and(|place| self.engine.is_held(place, NOBODY)) {
            return Err(Error::new(
                ErrorKind::Timeout,
                "a transaction holds the group of an entry that the task takes",
            ));
        }
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

    /// How much types and spaces with limits grow by it.
    fn growing(&self) -> Vec<Growing> {
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
        growing
    }
}
