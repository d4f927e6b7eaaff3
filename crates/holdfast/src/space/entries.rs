//! The entries of one type, as users work with them.
//!
//! May use: everything of this folder. Must not know: protocols.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ::space::{
    AtLimit, Definition, Document, Engine, Found, Place, Plan, Reason, Storage, Stored, Usage, Value, ValueRef,
};
use journal::Position;

use super::commit::What;
use super::kind::Kind;
use super::locks::{LockedPlace, Mode, NOBODY};
use super::route;
use super::wait::{Granted, Purpose, Waiter, Waiting};
use super::wanted::Wanted;
use super::within::is_excepted;
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::kv::Shown;
use crate::partition::Partition;
use crate::store::{Inner, Store};

/// How long an operation waits for a transaction to let go of an entry, unless it is told.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The entries of one type.
#[derive(Clone)]
pub struct Entries {
    pub(crate) store: Store,
    pub(crate) kind: Arc<Kind>,
}

/// An entry as it was at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its fields, its id among them.
    pub document: Document,
    /// The position of the batch that wrote it last; of a volatile entry another number that is never the same twice.
    pub version: Position,
    /// When its lease ends, in milliseconds since 1970; `None` is never.
    pub expires_ms: Option<u64>,
}

impl From<Stored> for Entry {
    fn from(stored: Stored) -> Self {
        let expires_ms = (stored.expires_ms != 0).then_some(stored.expires_ms);
        Self { document: stored.document, version: stored.version, expires_ms }
    }
}

/// What a write does with an entry that is there, or not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteMode {
    /// It is written or replaced.
    #[default]
    Upsert,
    /// It must not be there.
    Insert,
    /// It must be there, and is replaced.
    Update,
    /// It must be there; fields that the write does not name stay.
    Partial,
}

/// How long an entry lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lease {
    /// As its type says, from now; an entry that is replaced keeps its lease when the type says nothing.
    #[default]
    Default,
    /// So long from now.
    For(Duration),
    /// For ever.
    Forever,
}

/// How to write.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// What becomes of an entry that is there.
    pub mode: WriteMode,
    /// How long it lives.
    pub lease: Lease,
    /// Only if the entry is there with this version.
    pub version: Option<Position>,
    /// When the answer comes; `None` is as the store does.
    pub durability: Option<Durability>,
    /// How long to wait for a transaction that has locked the entry; `None` is 5 s.
    pub lock_timeout: Option<Duration>,
}

/// What a write did.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The entry's id: given, or made.
    pub id: Value,
    /// Its version now.
    pub version: Position,
    /// What was there before.
    pub previous: Option<Entry>,
}

/// How to read or take.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// How long to wait for an entry; `None` is not at all.
    pub wait: Option<Duration>,
    /// Only wait while there is an entry that is locked by a transaction.
    pub if_exists: bool,
    /// For a take by id: only if the entry has this version.
    pub version: Option<Position>,
    /// When a take's answer comes; `None` is as the store does.
    pub durability: Option<Durability>,
}

/// What was found in one partition.
enum Look {
    Got(Granted),
    /// An entry is there, and locked by a transaction.
    Locked(LockedPlace),
    Nothing,
}

pub(crate) fn is_visible(found: &Found<'_>, now_ms: u64) -> bool {
    found.expires_ms() == 0 || found.expires_ms() > now_ms
}

impl Entries {
    /// What the type is.
    #[must_use]
    pub fn definition(&self) -> Arc<Definition> {
        self.kind.definition()
    }

    pub(crate) fn inner(&self) -> &Inner {
        self.store.inner()
    }

    fn is_durable(&self) -> bool {
        self.kind.definition().storage == Storage::Durable
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.inner().check_open()?;
        self.kind.check()
    }

    /// Waits until what an answer rests on may be shown.
    pub(crate) fn settle<T>(&self, shown: Shown<T>) -> Result<T> {
        if !self.is_durable() {
            return Ok(shown.value);
        }
        self.store.settle(shown)
    }

    fn settle_change(&self, position: Position, durability: Option<Durability>) -> Result<()> {
        if !self.is_durable() {
            return Ok(());
        }
        self.store.wait(position, durability.unwrap_or(self.store.durability()))
    }

    /// Writes an entry: see [`WriteMode`]. Blocks until it is as durable as asked, and while a transaction has locked the
    /// entry that is there.
    ///
    /// # Errors
    /// `Conflict` when the mode or the version does not fit what is there, or a unique index has the value; `Timeout` when
    /// a transaction keeps the entry locked; `Limit` when the type is full, or the document too large; `Invalid` when id or
    /// routing is no string, integer or bytes; `Unavailable` when the disk refuses.
    pub fn write(&self, document: &Document, options: &WriteOptions) -> Result<Written> {
        let written = self.write_shown(document, options)?;
        self.settle_change(written.version, options.durability)?;
        Ok(written)
    }

    /// As [`Entries::write`], and does not wait for durability: what the answer rests on is the version.
    ///
    /// # Errors
    /// As [`Entries::write`].
    pub fn write_shown(&self, document: &Document, options: &WriteOptions) -> Result<Written> {
        self.check()?;
        let definition = self.kind.definition();
        let document = self.with_id(&definition, document)?;
        let id = document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
        let partition = route::of_document(self.inner(), &definition, &document)?;
        let wait = options.lock_timeout.unwrap_or(LOCK_TIMEOUT);
        let deadline = self.inner().clock.now().after(wait);
        loop {
            let at = match self.write_once(&definition, partition, &document, &id, options)? {
                Ok(written) => return Ok(written),
                Err(locked) => locked,
            };
            let left = deadline.since(self.inner().clock.now());
            self.inner().spaces.locks.wait(NOBODY, at, Mode::Exclusive, left)?;
        }
    }

    /// Writes, unless the entry is locked.
    fn write_once(
        &self,
        definition: &Definition,
        partition: &Partition,
        document: &Document,
        id: &Value,
        options: &WriteOptions,
    ) -> Result<std::result::Result<Written, LockedPlace>> {
        let inner = self.inner();
        let now_ms = inner.clock.wall_ms();
        let mut engine = partition.space();
        partition.check()?;
        let place = engine.find_id(self.kind.of, id.stored().get());
        if let Some(place) = place.filter(|place| engine.is_locked(*place)) {
            let at = LockedPlace { partition: partition.id, place };
            if inner.spaces.locks.is_in_the_way(NOBODY, at, Mode::Exclusive) {
                return Ok(Err(at));
            }
        }
        let old =
            place.and_then(|place| engine.get(place)).filter(|old| old.expires_ms == 0 || old.expires_ms > now_ms);
        let document = next_document(options, document, old.as_ref())?;
        engine.check_unique(self.kind.of, &document)?;
        self.make_room(definition, partition, &mut engine, &document, old.as_ref())?;
        let expires_ms = next_expiry(definition, options.lease, old.as_ref(), now_ms);
        let what = What::Write { document, expires_ms };
        let version = inner.change_space(&self.kind, partition, &mut engine, &what)?;
        if self.kind.waiters.any()
            && let Some(place) = engine.find_id(self.kind.of, id.stored().get())
        {
            inner.offer(&self.kind, partition, &mut engine, place);
        }
        drop(engine);
        inner.note_lease(expires_ms);
        Ok(Ok(Written { id: id.clone(), version, previous: old.map(Entry::from) }))
    }

    /// The document with an id, made if it has none.
    pub(crate) fn with_id(&self, definition: &Definition, document: &Document) -> Result<Document> {
        let max = self.inner().options.limits.value_bytes_max;
        if document.as_bytes().len() > max {
            return Err(Error::limit("document", document.as_bytes().len(), max));
        }
        match document.get(&definition.id) {
            Some(ValueRef::Null) | None => {
                let id = self.inner().spaces.next_id(self.inner().clock.wall_ms());
                let mut fields = document.to_fields();
                fields.insert(definition.id.clone(), Value::I64(id));
                Ok(Document::new(&fields))
            }
            Some(id) => route::check_id(&definition.id, id).map(|()| document.clone()),
        }
    }

    /// Makes sure that the type stays within its limit.
    fn make_room(
        &self,
        definition: &Definition,
        partition: &Partition,
        engine: &mut Engine,
        document: &Document,
        old: Option<&Stored>,
    ) -> Result<()> {
        if definition.memory_bytes_max == 0 {
            return Ok(());
        }
        // A partition has its share, so that the limit needs no other partition's lock.
        let partitions = if route::is_single(definition) { 1 } else { self.inner().partitions.len() as u64 };
        let max = definition.memory_bytes_max / partitions;
        let used = |engine: &Engine| engine.usage(self.kind.of).map_or(0, |usage| usage.bytes);
        let new =
            ::space::entry_bytes(document).saturating_sub(old.map_or(0, |old| ::space::entry_bytes(&old.document)));
        while used(engine) + new > max {
            let victim = match definition.at_limit {
                AtLimit::Evict => engine.evictable(self.kind.of).next(),
                AtLimit::Refuse => None,
            };
            let Some(stored) = victim.and_then(|place| engine.get(place)) else {
                let (name, limit) = (&definition.name, definition.memory_bytes_max);
                let text = format!(
                    "the type {name} has reached its limit of {limit} bytes: take or clear entries, or raise it"
                );
                return Err(Error::new(ErrorKind::Limit, text));
            };
            let id = stored.document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
            self.inner().change_space(&self.kind, partition, engine, &What::Remove { id, reason: Reason::Evicted })?;
        }
        Ok(())
    }

    /// Writes several entries, each by itself: one that fails stops no other. Waits once for all of them.
    pub fn write_many(&self, documents: &[Document], options: &WriteOptions) -> Vec<Result<Written>> {
        let written: Vec<_> = documents.iter().map(|document| self.write_shown(document, options)).collect();
        let newest = written.iter().flatten().map(|written| written.version).max();
        match newest.map_or(Ok(()), |newest| self.settle_change(newest, options.durability)) {
            Ok(()) => written,
            Err(error) => written.into_iter().map(|written| written.and(Err(error.clone()))).collect(),
        }
    }

    /// Reads one entry; blocks as long as [`ReadOptions::wait`] says while there is none. Of a type with an order the first.
    ///
    /// # Errors
    /// `Invalid`; `Unavailable` when what it would show cannot be made durable; `Closed`.
    pub fn read(&self, wanted: &Wanted, options: &ReadOptions) -> Result<Option<Entry>> {
        self.get(wanted, options, Purpose::Read)
    }

    /// Reads one entry and removes it, atomically: of all who take, one gets it. Blocks as long as [`ReadOptions::wait`]
    /// says while there is none; those who wait are served in the order in which they came.
    ///
    /// # Errors
    /// As [`Entries::read`]; `Conflict` when the entry has another version.
    pub fn take(&self, wanted: &Wanted, options: &ReadOptions) -> Result<Option<Entry>> {
        self.get(wanted, options, Purpose::Take)
    }

    fn get(&self, wanted: &Wanted, options: &ReadOptions, purpose: Purpose) -> Result<Option<Entry>> {
        let granted = self.find_or_wait(wanted, options, purpose)?;
        let Some(Granted { entry, position, .. }) = granted else { return Ok(None) };
        if let Some(position) = position {
            match purpose {
                Purpose::Take => self.settle_change(position, options.durability)?,
                _ => self.store.settle(Shown { value: (), position })?,
            }
        }
        Ok(Some(entry.into()))
    }

    /// One entry, without waiting for it or for durability: what the answer rests on is beside it.
    ///
    /// # Errors
    /// As [`Entries::take`].
    pub fn take_shown(&self, wanted: &Wanted, options: &ReadOptions) -> Result<Option<Shown<Entry>>> {
        let granted = self.find_or_wait(wanted, &ReadOptions { wait: None, ..options.clone() }, Purpose::Take)?;
        Ok(granted.map(shown))
    }

    /// As [`Entries::take_shown`], and leaves the entry.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn read_shown(&self, wanted: &Wanted, options: &ReadOptions) -> Result<Option<Shown<Entry>>> {
        let granted = self.find_or_wait(wanted, &ReadOptions { wait: None, ..options.clone() }, Purpose::Read)?;
        Ok(granted.map(shown))
    }

    pub(crate) fn find_or_wait(
        &self,
        wanted: &Wanted,
        options: &ReadOptions,
        purpose: Purpose,
    ) -> Result<Option<Granted>> {
        self.check()?;
        let found = self.look(wanted, options, purpose)?;
        let (Some(wait), Look::Nothing | Look::Locked(_)) = (options.wait, &found) else {
            return Ok(if let Look::Got(granted) = found { Some(granted) } else { None });
        };
        let deadline = self.inner().clock.now().after(wait);
        if options.if_exists {
            let mut found = found;
            while let Look::Locked(at) = found {
                let left = deadline.since(self.inner().clock.now());
                match self.inner().spaces.locks.wait(holder(purpose), at, mode(purpose), left) {
                    Err(error) if error.kind() == ErrorKind::Timeout => return Ok(None),
                    waited => waited?,
                }
                found = self.look(wanted, options, purpose)?;
            }
            return Ok(if let Look::Got(granted) = found { Some(granted) } else { None });
        }
        let waiter = self.enqueue(wanted, options, purpose)?;
        let granted = waiter.wait(Some(deadline.since(self.inner().clock.now())));
        self.kind.waiters.leave(&waiter);
        granted.transpose()
    }

    /// Waits in the queue, and looks once more: what came between the look and the queue is not missed.
    fn enqueue(&self, wanted: &Wanted, options: &ReadOptions, purpose: Purpose) -> Result<Arc<Waiter>> {
        let waiter = Waiter::new(wanted.clone(), purpose);
        self.kind.waiters.enter(Arc::clone(&waiter));
        let definition = self.kind.definition();
        for partition in route::of_wanted(self.inner(), &definition, wanted)? {
            let mut engine = partition.space();
            // Whoever grants holds the partition, so that nothing is granted twice.
            let is_over = waiter.offer(|| {
                match self.look_locked(&definition, partition, &mut engine, (wanted, options, purpose)) {
                    Ok(Look::Got(granted)) => Some(Ok(granted)),
                    Ok(Look::Locked(_) | Look::Nothing) => None,
                    Err(error) => Some(Err(error)),
                }
            });
            if is_over {
                break;
            }
        }
        Ok(waiter)
    }

    /// Reads or takes one entry in whatever runtime polls the future, which waits until there is one. Dropping it stops
    /// waiting; an entry that was taken by then and not handed out is written back.
    ///
    /// The answer is not waited for to be durable: what it rests on is beside it.
    ///
    /// # Errors
    /// As [`Entries::take`].
    pub fn waiting(
        &self,
        wanted: &Wanted,
        takes: Taking,
    ) -> Result<impl Future<Output = Result<Shown<Entry>>> + Send + use<>> {
        self.check()?;
        let purpose = if takes == Taking::Take { Purpose::Take } else { Purpose::Read };
        let waiter = self.enqueue(wanted, &ReadOptions::default(), purpose)?;
        let (this, left) = (self.clone(), Arc::clone(&waiter));
        let stop = move |granted: Option<Result<Granted>>| {
            this.kind.waiters.leave(&left);
            if let (Some(Ok(granted)), Purpose::Take) = (granted, purpose) {
                this.give_back(&granted.entry);
            }
        };
        let waiting = Waiting { waiter, stop: Some(Box::new(stop)) };
        Ok(async move { waiting.await.map(shown) })
    }

    /// Writes back what was taken for somebody who is gone.
    fn give_back(&self, entry: &Stored) {
        let definition = self.kind.definition();
        let Ok(partition) = route::of_document(self.inner(), &definition, &entry.document) else { return };
        let mut engine = partition.space();
        let what = What::Write { document: entry.document.clone(), expires_ms: entry.expires_ms };
        // A store that refuses writes is reopened, and has the taking or not.
        if self.inner().change_space(&self.kind, partition, &mut engine, &what).is_ok()
            && let Some(id) = entry.document.get(&definition.id)
            && let Some(place) = engine.find_id(self.kind.of, id)
        {
            self.inner().offer(&self.kind, partition, &mut engine, place);
        }
    }

    /// Looks in all partitions where an entry may be, those first whose turn it is.
    fn look(&self, wanted: &Wanted, options: &ReadOptions, purpose: Purpose) -> Result<Look> {
        let definition = self.kind.definition();
        let partitions = route::of_wanted(self.inner(), &definition, wanted)?;
        let first =
            if partitions.len() > 1 { self.kind.turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) } else { 0 };
        let (behind, front) = partitions.split_at(first % partitions.len().max(1));
        let mut locked = None;
        for partition in front.iter().chain(behind) {
            match self.look_locked(&definition, partition, &mut partition.space(), (wanted, options, purpose))? {
                Look::Got(granted) => return Ok(Look::Got(granted)),
                Look::Locked(at) => locked = Some(at),
                Look::Nothing => {}
            }
        }
        Ok(locked.map_or(Look::Nothing, Look::Locked))
    }

    /// Looks in a partition that is locked.
    fn look_locked(
        &self,
        definition: &Definition,
        partition: &Partition,
        engine: &mut Engine,
        (wanted, options, purpose): (&Wanted, &ReadOptions, Purpose),
    ) -> Result<Look> {
        let inner = self.inner();
        partition.check()?;
        let now_ms = inner.clock.wall_ms();
        let who = holder(purpose);
        let mode = mode(purpose);
        let is_durable = definition.storage == Storage::Durable;
        let (mut place, mut locked) = (None, None);
        let mut consider = |here: Place, is_locked: bool| {
            let at = LockedPlace { partition: partition.id, place: here };
            if is_locked && inner.spaces.locks.is_in_the_way(who, at, mode) {
                locked = Some(at);
                return ControlFlow::Continue(());
            }
            place = Some(here);
            ControlFlow::Break(())
        };
        match &wanted.id {
            Some(id) => {
                let found = engine.find_id(self.kind.of, id.stored().get());
                let found = found.and_then(|place| Some((place, engine.get(place)?)));
                if let Some((place, stored)) = found
                    && (stored.expires_ms == 0 || stored.expires_ms > now_ms)
                    && wanted.matches(&definition.id, stored.document.fields())
                {
                    if options.version.is_some_and(|version| version != stored.version) {
                        return Err(Error::new(ErrorKind::Conflict, "the entry has another version: read it again"));
                    }
                    let _ = consider(place, engine.is_locked(place));
                }
            }
            None => {
                let _ = engine.find(self.kind.of, &wanted.filter, who, &mut |found| {
                    let fields = found.document().fields();
                    if !is_visible(&found, now_ms) || is_excepted(&wanted.except, fields.get(&definition.id)) {
                        return ControlFlow::Continue(());
                    }
                    consider(found.place, found.is_locked())
                });
            }
        }
        let Some(place) = place else { return Ok(locked.map_or(Look::Nothing, Look::Locked)) };
        let Some(entry) = engine.get(place) else { return Ok(Look::Nothing) };
        let mut rests_on = entry.version;
        match purpose {
            Purpose::Read => engine.touch(place),
            Purpose::Take => {
                let id = entry.document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
                let what = What::Remove { id, reason: Reason::Taken };
                rests_on = inner.change_space(&self.kind, partition, engine, &what)?;
            }
            Purpose::Lock(holder, mode) => {
                let at = LockedPlace { partition: partition.id, place };
                if inner.lock_entry(holder, at, mode, engine).is_none() {
                    return Ok(Look::Locked(at));
                }
            }
        }
        Ok(Look::Got(Granted { entry, position: is_durable.then_some(rests_on), partition: partition.id }))
    }

    /// Reads up to `max` entries, in the order of the query if it has one.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn read_many(&self, wanted: &Wanted, max: usize) -> Result<Vec<Entry>> {
        let shown = self.read_many_shown(wanted, max)?;
        self.settle(shown)
    }

    /// As [`Entries::read_many`], without waiting: what the answer rests on is beside it.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn read_many_shown(&self, wanted: &Wanted, max: usize) -> Result<Shown<Vec<Entry>>> {
        self.check()?;
        let definition = self.kind.definition();
        let query = wanted.query.as_deref();
        let order = query.filter(|query| !query.order.is_empty());
        let skip = query.map_or(0, |query| query.window().1);
        let limit = wanted.limit.map_or(max, |limit| max.min(usize::try_from(limit).unwrap_or(usize::MAX)));
        let enough = limit.saturating_add(usize::try_from(skip).unwrap_or(usize::MAX));
        let mut found: Vec<Stored> = Vec::new();
        for partition in route::of_wanted(self.inner(), &definition, wanted)? {
            let engine = partition.space();
            partition.check()?;
            let now_ms = self.inner().clock.wall_ms();
            let take = |stored: Stored, found: &mut Vec<Stored>| {
                found.push(stored);
                if order.is_none() && found.len() >= enough {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            if let Some(id) = &wanted.id {
                let stored = engine.find_id(self.kind.of, id.stored().get()).and_then(|place| engine.get(place));
                if let Some(stored) = stored.filter(|it| it.expires_ms == 0 || it.expires_ms > now_ms) {
                    let _ = take(stored, &mut found);
                }
            } else {
                let _ = engine.find(self.kind.of, &wanted.filter, NOBODY, &mut |it| {
                    if is_visible(&it, now_ms) { take(it.stored(), &mut found) } else { ControlFlow::Continue(()) }
                });
            }
            if order.is_none() && found.len() >= enough {
                break;
            }
        }
        if let Some(query) = order {
            found.sort_by(|a, b| query.compare(a.document.fields(), b.document.fields()));
        }
        let position = found.iter().map(|stored| stored.version).max().unwrap_or_default();
        let entries = found.into_iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)).take(limit);
        Ok(Shown { value: entries.map(Entry::from).collect(), position })
    }

    /// Takes up to `max` entries, each at most once. Blocks as [`Entries::take`] does for the first, not for more.
    ///
    /// # Errors
    /// As [`Entries::take`]; entries that were taken before the error are lost to the caller only if it is `Unavailable`.
    pub fn take_many(&self, wanted: &Wanted, max: usize, options: &ReadOptions) -> Result<Vec<Entry>> {
        let mut taken = Vec::new();
        let mut newest = Position::ZERO;
        let mut options = options.clone();
        while taken.len() < max {
            let Some(granted) = self.find_or_wait(wanted, &options, Purpose::Take)? else { break };
            newest = newest.max(granted.position.unwrap_or_default());
            taken.push(granted.entry.into());
            options.wait = None;
        }
        self.settle_change(newest, options.durability)?;
        Ok(taken)
    }

    /// How many entries there are that match.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn count(&self, wanted: &Wanted) -> Result<u64> {
        let shown = self.count_shown(wanted)?;
        self.settle(shown)
    }

    /// As [`Entries::count`], without waiting: what the answer rests on is beside it.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn count_shown(&self, wanted: &Wanted) -> Result<Shown<u64>> {
        self.check()?;
        let definition = self.kind.definition();
        let mut count = 0;
        let mut newest = Position::ZERO;
        for partition in route::of_wanted(self.inner(), &definition, wanted)? {
            let engine = partition.space();
            partition.check()?;
            let now_ms = self.inner().clock.wall_ms();
            let _ = engine.find(self.kind.of, &wanted.filter, NOBODY, &mut |found| {
                if is_visible(&found, now_ms) && wanted.matches(&definition.id, found.document().fields()) {
                    count += 1;
                    newest = newest.max(found.version());
                }
                ControlFlow::Continue(())
            });
        }
        Ok(Shown { value: count, position: newest })
    }

    /// Removes all entries that match and no transaction has locked; returns how many.
    ///
    /// # Errors
    /// As [`Entries::take`].
    pub fn clear(&self, wanted: &Wanted, durability: Option<Durability>) -> Result<u64> {
        let Shown { value, position } = self.clear_shown(wanted)?;
        self.settle_change(position, durability)?;
        Ok(value)
    }

    /// As [`Entries::clear`], without waiting: what the answer rests on is beside it.
    ///
    /// # Errors
    /// As [`Entries::take`].
    pub fn clear_shown(&self, wanted: &Wanted) -> Result<Shown<u64>> {
        self.check()?;
        let definition = self.kind.definition();
        let (mut count, mut newest) = (0, Position::ZERO);
        for partition in route::of_wanted(self.inner(), &definition, wanted)? {
            let mut engine = partition.space();
            partition.check()?;
            let mut ids = Vec::new();
            let _ = engine.find(self.kind.of, &wanted.filter, NOBODY, &mut |found| {
                let fields = found.document().fields();
                if !found.is_locked() && wanted.matches(&definition.id, fields) {
                    ids.extend(fields.get(&definition.id).map(ValueRef::to_value));
                }
                ControlFlow::Continue(())
            });
            for id in ids {
                let what = What::Remove { id, reason: Reason::Cleared };
                newest = newest.max(self.inner().change_space(&self.kind, partition, &mut engine, &what)?);
                count += 1;
            }
        }
        Ok(Shown { value: count, position: newest })
    }

    /// Ends the entry's lease at another time. False if there is no such entry.
    ///
    /// # Errors
    /// As [`Entries::write`].
    pub fn renew(&self, wanted: &Wanted, lease: Lease, durability: Option<Durability>) -> Result<bool> {
        let Shown { value, position } = self.renew_shown(wanted, lease)?;
        self.settle_change(position, durability)?;
        Ok(value)
    }

    /// As [`Entries::renew`], without waiting: what the answer rests on is beside it.
    ///
    /// # Errors
    /// As [`Entries::write`].
    pub fn renew_shown(&self, wanted: &Wanted, lease: Lease) -> Result<Shown<bool>> {
        self.check()?;
        let Some(id) = &wanted.id else {
            return Err(Error::new(ErrorKind::Invalid, "a lease is renewed by the entry's id"));
        };
        let definition = self.kind.definition();
        for partition in route::of_wanted(self.inner(), &definition, wanted)? {
            let mut engine = partition.space();
            partition.check()?;
            let now_ms = self.inner().clock.wall_ms();
            let stored = engine.find_id(self.kind.of, id.stored().get()).and_then(|place| engine.get(place));
            let Some(stored) = stored.filter(|it| it.expires_ms == 0 || it.expires_ms > now_ms) else { continue };
            let expires_ms = next_expiry(&definition, lease, Some(&stored), now_ms);
            let what = What::Renew { id: id.clone(), expires_ms };
            let position = self.inner().change_space(&self.kind, partition, &mut engine, &what)?;
            drop(engine);
            self.inner().note_lease(expires_ms);
            return Ok(Shown { value: true, position });
        }
        Ok(Shown { value: false, position: Position::ZERO })
    }

    /// How entries would be found, in each partition.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn explain(&self, wanted: &Wanted) -> Result<Vec<Plan>> {
        self.check()?;
        let definition = self.kind.definition();
        let partitions = route::of_wanted(self.inner(), &definition, wanted)?;
        Ok(partitions.iter().filter_map(|it| it.space().explain(self.kind.of, &wanted.filter)).collect())
    }

    /// What the type takes of memory.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut all = Usage { entries: 0, bytes: 0, indexes: Vec::new() };
        for usage in self.inner().partitions.iter().filter_map(|it| it.space().usage(self.kind.of)) {
            all.entries += usage.entries;
            all.bytes += usage.bytes;
            for (name, bytes) in usage.indexes {
                match all.indexes.iter_mut().find(|(other, _)| *other == name) {
                    Some((_, sum)) => *sum += bytes,
                    None => all.indexes.push((name, bytes)),
                }
            }
        }
        all
    }

    /// How many wait for entries now.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.kind.waiters.len()
    }
}

/// Whether who waits for an entry leaves it or takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// It stays.
    Read,
    /// It is removed.
    Take,
}

fn shown(granted: Granted) -> Shown<Entry> {
    Shown { value: granted.entry.into(), position: granted.position.unwrap_or_default() }
}

fn holder(purpose: Purpose) -> u64 {
    if let Purpose::Lock(holder, _) = purpose { holder } else { NOBODY }
}

/// What must not stand in the way.
fn mode(purpose: Purpose) -> Mode {
    match purpose {
        Purpose::Read => Mode::Shared,
        Purpose::Take => Mode::Exclusive,
        Purpose::Lock(_, mode) => mode,
    }
}

fn conflict<T>(text: &str) -> Result<T> {
    Err(Error::new(ErrorKind::Conflict, text))
}

/// What will be there, if what is there allows it.
pub(crate) fn next_document(options: &WriteOptions, document: &Document, old: Option<&Stored>) -> Result<Document> {
    if let Some(version) = options.version
        && old.is_none_or(|old| old.version != version)
    {
        return conflict("the entry has another version: read it again");
    }
    match (options.mode, old) {
        (WriteMode::Insert, Some(_)) => conflict("an entry with this id is there already"),
        (WriteMode::Update | WriteMode::Partial, None) => conflict("no entry with this id is there"),
        (WriteMode::Partial, Some(old)) => {
            let mut fields = old.document.to_fields();
            fields.extend(document.to_fields());
            Ok(Document::new(&fields))
        }
        _ => Ok(document.clone()),
    }
}

/// When the entry's lease will end, in milliseconds since 1970; 0 is never.
pub(crate) fn next_expiry(definition: &Definition, lease: Lease, old: Option<&Stored>, now_ms: u64) -> u64 {
    let after = |ms: u64| now_ms.saturating_add(ms).max(1);
    match lease {
        Lease::Forever => 0,
        // Rounded up: never early.
        Lease::For(time) => after(u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX / 2)),
        Lease::Default => match definition.lease_ms {
            Some(ms) => after(ms),
            None => old.map_or(0, |old| old.expires_ms),
        },
    }
}
