//! Writing entries, changing them in place, and their leases.
//!
//! May use: everything of this folder. Must not know: protocols.

use std::time::Duration;

use ::space::{Change, Definition, Document, Engine, Reason, Stored, Value, ValueRef};
use base::Time;
use journal::Position;

use super::commit::{Over, What};
use super::entries::{Entries, Entry};
use super::limit::{self, Growing, Held};
use super::locks::{LockedPlace, Mode, NOBODY};
use super::route;
use super::wanted::Wanted;
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::kv::Shown;
use crate::partition::Partition;

/// How long an operation waits for a transaction to let go of an entry, unless it is told.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

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

/// What a change in place did.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// What was there.
    pub before: Entry,
    /// What is there now.
    pub now: Entry,
}

impl Entries {
    /// Writes an entry: see [`WriteMode`]. Blocks until it is as durable as asked, and while a transaction has locked the
    /// entry that is there.
    ///
    /// # Errors
    /// `Conflict` when the mode or the version does not fit what is there, or a unique index has the value; `Timeout` when
    /// a transaction keeps the entry locked; `Limit` when the type is full, or the document too large; `Invalid` when id or
    /// routing is no string, integer or bytes; `Unavailable` when the disk refuses.
    pub fn write(&self, document: &Document, options: &WriteOptions) -> Result<Written> {
        self.give_way(options.durability);
        let written = self.told(self.write_shown(document, options), options.durability)?;
        self.settle_change(written.version, options.durability)?;
        Ok(written)
    }

    /// As [`Entries::write`], and does not wait for durability: what the answer rests on is the version, and of a refusal what the error
    /// [rests on](Error::rests_on).
    ///
    /// # Errors
    /// As [`Entries::write`].
    pub fn write_shown(&self, document: &Document, options: &WriteOptions) -> Result<Written> {
        self.check()?;
        let definition = self.kind.definition();
        let document = self.with_id(&definition, document)?;
        let id = document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
        let partition = route::of_document(self.inner(), &definition, &document)?;
        let deadline = self.lock_deadline(options.lock_timeout);
        self.unlocked(deadline, &|| self.write_once(&definition, partition, &document, &id, options))
    }

    pub(super) fn lock_deadline(&self, lock_timeout: Option<Duration>) -> Time {
        self.inner().clock.now().after(lock_timeout.unwrap_or(LOCK_TIMEOUT))
    }

    /// Does something `once` nobody has locked the entry any more that it finds.
    fn unlocked<T>(&self, deadline: Time, once: &dyn Fn() -> Result<std::result::Result<T, LockedPlace>>) -> Result<T> {
        loop {
            let at = match once()? {
                Ok(done) => return Ok(done),
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
        let mut engine = partition.space();
        partition.check()?;
        let now_ms = inner.clock.wall_ms();
        let place = engine.find_id(self.kind.of, id.scalar());
        if let Some(place) = place.filter(|place| engine.is_locked(*place)) {
            let at = LockedPlace::of(&engine, partition.id, place);
            if inner.spaces.locks.is_in_the_way(NOBODY, at, Mode::Exclusive) {
                return Ok(Err(at));
            }
        }
        let mut old = place.and_then(|place| engine.get(place));
        if old.as_ref().is_some_and(|old| old.expires_ms != 0 && old.expires_ms <= now_ms) {
            // It is gone for all who look, and must not leave its place in a queue to another.
            let what = What::Remove { id: id.clone(), reason: Reason::Expired };
            inner.change_space(&self.kind, partition, &mut engine, &what)?;
            old = None;
        }
        let refused = |error: Error| error.resting_on(self.ground(&engine, old.as_ref()));
        let document = next_document(definition, options, document, old.as_ref()).map_err(refused)?;
        // Which document it would be rests on what is there, too.
        let ground = self.ground(&engine, old.as_ref());
        self.check_unique(partition, &mut engine, &document, now_ms).map_err(|error| error.resting_on(ground))?;
        self.make_room(partition, &mut engine, &document, old.as_ref())?;
        let expires_ms = next_expiry(definition, options.lease, old.as_ref(), now_ms);
        let what = What::Write { document, expires_ms, over: Over::Any };
        let version = inner.change_space(&self.kind, partition, &mut engine, &what)?;
        if self.kind.waiters.any()
            && let Some(place) = engine.find_id(self.kind.of, id.scalar())
        {
            inner.offer(&self.kind, partition, &mut engine, place);
        }
        drop(engine);
        inner.note_lease(expires_ms);
        Ok(Ok(Written { id: id.clone(), version, previous: old.map(Entry::from) }))
    }

    /// Whether no other entry has what is to be unique.
    fn check_unique(&self, partition: &Partition, engine: &mut Engine, document: &Document, now_ms: u64) -> Result<()> {
        if engine.check_unique(self.kind.of, document).is_err() {
            // What has the value may be over its time.
            self.inner().expire_in(partition, engine, now_ms)?;
            engine.check_unique(self.kind.of, document)?;
        }
        Ok(())
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
                Ok(document.with(&definition.id, Value::I64(id)))
            }
            Some(id) => route::check_id(&definition.id, id).map(|()| document.clone()),
        }
    }

    /// Makes sure that the type and the space stay within their limits.
    fn make_room(
        &self,
        partition: &Partition,
        engine: &mut Engine,
        document: &Document,
        old: Option<&Stored>,
    ) -> Result<()> {
        if !limit::is_limited(&self.kind) {
            return Ok(());
        }
        let id_field = &self.kind.definition().id;
        let change = (old.map(|old| &old.document), Some(document));
        let growing = Growing::of(&self.kind, (partition.id, engine), std::iter::once(change));
        let keeps = |of, _, id: ValueRef<'_>| of == self.kind.of && document.get(id_field) == Some(id);
        limit::make_room(self.inner(), &mut Held::One(partition.id, engine), &[growing], &keeps)
    }

    /// Writes several entries, each by itself: one that fails stops no other. Waits once for all of them, and for what refusals rest on.
    pub fn write_many(&self, documents: &[Document], options: &WriteOptions) -> Vec<Result<Written>> {
        let written: Vec<_> = documents.iter().map(|document| self.write_shown(document, options)).collect();
        let rests_on = |outcome: &Result<Written>| match outcome {
            Ok(written) => Some(written.version),
            Err(error) => error.rests_on(),
        };
        let newest = written.iter().filter_map(rests_on).max();
        match newest.map_or(Ok(()), |newest| self.settle_change(newest, options.durability)) {
            Ok(()) => written,
            Err(error) => {
                let told = |outcome| if rests_on(&outcome).is_some() { Err(error.clone()) } else { outcome };
                written.into_iter().map(told).collect()
            }
        }
    }

    /// Changes the entry that is wanted by its id in place: the changes travel, not the document. `None` if there is none.
    ///
    /// # Errors
    /// As [`Entries::write`]; `Invalid` when a change does not fit what is there, or would change what decides where the entry
    /// lies.
    pub fn change(&self, wanted: &Wanted, changes: &[Change], options: &WriteOptions) -> Result<Option<Changed>> {
        self.give_way(options.durability);
        let Shown { value, position } = self.told(self.change_shown(wanted, changes, options), options.durability)?;
        self.settle_change(position, options.durability)?;
        Ok(value)
    }

    /// As [`Entries::change`], and does not wait for durability: what the answer rests on is beside it, and of a refusal with the
    /// [error](Error::rests_on).
    ///
    /// # Errors
    /// As [`Entries::change`].
    pub fn change_shown(
        &self,
        wanted: &Wanted,
        changes: &[Change],
        options: &WriteOptions,
    ) -> Result<Shown<Option<Changed>>> {
        let changed = self.change_until(self.lock_deadline(options.lock_timeout), wanted, changes, options)?;
        let position = match &changed {
            Some(changed) => changed.now.version,
            None => self.absence(wanted)?,
        };
        Ok(Shown { value: changed, position })
    }

    /// As [`Entries::change_shown`], and waits until then for a transaction that has locked the entry.
    pub(super) fn change_until(
        &self,
        deadline: Time,
        wanted: &Wanted,
        changes: &[Change],
        options: &WriteOptions,
    ) -> Result<Option<Changed>> {
        self.check()?;
        let Some(id) = &wanted.id else {
            return Err(Error::new(ErrorKind::Invalid, "an entry is changed by its id"));
        };
        let definition = self.kind.definition();
        for partition in route::of_wanted(self.inner(), &definition, wanted)? {
            let once = || self.change_once(&definition, partition, (id, wanted, changes), options);
            if let Some(changed) = self.unlocked(deadline, &once)? {
                return Ok(Some(changed));
            }
        }
        Ok(None)
    }

    /// Changes the entry if it is in this partition, unless it is locked.
    fn change_once(
        &self,
        definition: &Definition,
        partition: &Partition,
        (id, wanted, changes): (&Value, &Wanted, &[Change]),
        options: &WriteOptions,
    ) -> Result<std::result::Result<Option<Changed>, LockedPlace>> {
        let inner = self.inner();
        let mut engine = partition.space();
        partition.check()?;
        let now_ms = inner.clock.wall_ms();
        let place = engine.find_id(self.kind.of, id.scalar());
        let found = place.and_then(|place| Some((place, engine.get(place)?)));
        let is_wanted = |old: &Stored| {
            (old.expires_ms == 0 || old.expires_ms > now_ms) && wanted.matches(definition, old.document.fields())
        };
        let Some((place, old)) = found.filter(|(_, old)| is_wanted(old)) else { return Ok(Ok(None)) };
        let at = LockedPlace::of(&engine, partition.id, place);
        if engine.is_locked(place) && inner.spaces.locks.is_in_the_way(NOBODY, at, Mode::Exclusive) {
            return Ok(Err(at));
        }
        let refused = |error: Error| error.resting_on(self.ground(&engine, Some(&old)));
        let update = WriteOptions { mode: WriteMode::Update, ..options.clone() };
        let document = changed_document(definition, &old, changes).map_err(refused)?;
        let document = next_document(definition, &update, &document, Some(&old)).map_err(refused)?;
        let ground = self.ground(&engine, Some(&old));
        self.check_unique(partition, &mut engine, &document, now_ms).map_err(|error| error.resting_on(ground))?;
        self.make_room(partition, &mut engine, &document, Some(&old))?;
        let expires_ms = next_expiry(definition, options.lease, Some(&old), now_ms);
        let what = What::Write { document: document.clone(), expires_ms, over: Over::Any };
        let version = inner.change_space(&self.kind, partition, &mut engine, &what)?;
        inner.offer(&self.kind, partition, &mut engine, place);
        drop(engine);
        inner.note_lease(expires_ms);
        let now = Entry { document, version, expires_ms: (expires_ms != 0).then_some(expires_ms) };
        Ok(Ok(Some(Changed { before: old.into(), now })))
    }

    /// Ends the entry's lease at another time. False if there is no such entry. Blocks while a transaction has locked it: what
    /// that writes has a lease of its own.
    ///
    /// # Errors
    /// As [`Entries::write`].
    pub fn renew(&self, wanted: &Wanted, lease: Lease, durability: Option<Durability>) -> Result<bool> {
        self.give_way(durability);
        let options = WriteOptions { lease, ..WriteOptions::default() };
        let Shown { value, position } = self.told(self.renew_shown(wanted, &options), durability)?;
        self.settle_change(position, durability)?;
        Ok(value)
    }

    /// As [`Entries::renew`], without waiting for durability: what the answer rests on is beside it, and of a refusal with the
    /// [error](Error::rests_on). Of the options the lease counts, the
    /// version that the entry has to have, and how long to wait for a transaction that has locked it.
    ///
    /// # Errors
    /// As [`Entries::write`].
    pub fn renew_shown(&self, wanted: &Wanted, options: &WriteOptions) -> Result<Shown<bool>> {
        self.check()?;
        let Some(id) = &wanted.id else {
            return Err(Error::new(ErrorKind::Invalid, "a lease is renewed by the entry's id"));
        };
        let definition = self.kind.definition();
        let deadline = self.lock_deadline(options.lock_timeout);
        for partition in route::of_wanted(self.inner(), &definition, wanted)? {
            if let Some(position) =
                self.unlocked(deadline, &|| self.renew_once(&definition, partition, (id, wanted), options))?
            {
                return Ok(Shown { value: true, position });
            }
        }
        Ok(Shown { value: false, position: self.absence(wanted)? })
    }

    /// Renews the entry if it is in this partition, unless it is locked: a transaction may be about to write it as it was.
    fn renew_once(
        &self,
        definition: &Definition,
        partition: &Partition,
        (id, wanted): (&Value, &Wanted),
        options: &WriteOptions,
    ) -> Result<std::result::Result<Option<Position>, LockedPlace>> {
        let inner = self.inner();
        let mut engine = partition.space();
        partition.check()?;
        let now_ms = inner.clock.wall_ms();
        let place = engine.find_id(self.kind.of, id.scalar());
        let found = place.and_then(|place| Some((place, engine.get(place)?)));
        let is_wanted = |old: &Stored| {
            (old.expires_ms == 0 || old.expires_ms > now_ms) && wanted.names(definition, old.document.fields())
        };
        let Some((place, stored)) = found.filter(|(_, stored)| is_wanted(stored)) else { return Ok(Ok(None)) };
        let at = LockedPlace::of(&engine, partition.id, place);
        if engine.is_locked(place) && inner.spaces.locks.is_in_the_way(NOBODY, at, Mode::Exclusive) {
            return Ok(Err(at));
        }
        check_version(options, Some(&stored)).map_err(|error| error.resting_on(self.ground(&engine, Some(&stored))))?;
        let expires_ms = next_expiry(definition, options.lease, Some(&stored), now_ms);
        let what = What::Renew { id: id.clone(), expires_ms };
        let position = inner.change_space(&self.kind, partition, &mut engine, &what)?;
        drop(engine);
        inner.note_lease(expires_ms);
        Ok(Ok(Some(position)))
    }
}

fn conflict<T>(text: &str) -> Result<T> {
    Err(Error::new(ErrorKind::Conflict, text))
}

/// What the changes make of an entry, if it stays where it is.
pub(crate) fn changed_document(definition: &Definition, old: &Stored, changes: &[Change]) -> Result<Document> {
    let document = Change::apply(changes, &old.document)?;
    let fixed = |document: &Document| {
        let id = document.get(&definition.id).map(ValueRef::to_value);
        (id, definition.routed_by().map(|path| path.first(document.fields()).to_value()))
    };
    if fixed(&document) != fixed(&old.document) {
        let text = "id and routing of an entry are fixed: take it, and write another";
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(document)
}

fn check_version(options: &WriteOptions, old: Option<&Stored>) -> Result<()> {
    match options.version {
        Some(version) if old.is_none_or(|old| old.version != version) => {
            conflict("the entry has another version: read it again")
        }
        _ => Ok(()),
    }
}

/// What will be there, if what is there allows it.
pub(crate) fn next_document(
    definition: &Definition,
    options: &WriteOptions,
    document: &Document,
    old: Option<&Stored>,
) -> Result<Document> {
    check_version(options, old)?;
    if let (Some(path), Some(old)) = (definition.routed_by(), old)
        && path.first(old.document.fields()) != path.first(document.fields())
    {
        return conflict("an entry with this id and other routing is there: take it first");
    }
    match (options.mode, old) {
        (WriteMode::Insert, Some(_)) => conflict("an entry with this id is there already"),
        (WriteMode::Update | WriteMode::Partial, None) => conflict("no entry with this id is there"),
        (WriteMode::Partial, Some(old)) => Ok(old.document.merged(document)),
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
