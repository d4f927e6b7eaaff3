//! Entries of spaces over HTTP: what each route asks the store, in a thread that may wait.
//!
//! May use: the facade, `conditions`, `failure`, `crate::handed`. Must not know: HTTP's messages.

use std::time::Duration;

use holdfast::space::{
    Change, Changed, Definition, Document, Entries, Entry, Lease, ReadOptions, Stop, Value, ValueRef, Wanted,
    WriteMode, WriteOptions, Written,
};
use holdfast::{Durability, Position, Shown, Store};

use super::conditions::{Conditions, State, Verdict};
use super::failure::Failure;
use super::object::shown_at;
use crate::handed::Handed;

/// Where a type is, as a path names it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) space: String,
    pub(crate) name: String,
}

/// One entry, as a path names it.
#[derive(Debug, Clone)]
pub(crate) struct One {
    pub(crate) place: Place,
    pub(crate) id: Value,
    pub(crate) routing: Option<Value>,
}

/// How to write.
#[derive(Debug, Clone)]
pub(crate) struct How {
    pub(crate) mode: WriteMode,
    pub(crate) lease: Lease,
    pub(crate) conditions: Conditions,
    pub(crate) durability: Durability,
}

impl Place {
    /// # Errors
    /// 404 when there is no such type.
    pub(crate) fn entries(&self, store: &Store) -> Result<Entries, Failure> {
        store.space(&self.space).entries(&self.name).map_err(|error| Failure::missing(error.to_string()))
    }
}

impl One {
    fn wanted(&self) -> Wanted {
        let wanted = Wanted::id(self.id.clone());
        match &self.routing {
            Some(routing) => wanted.routed(routing.clone()),
            None => wanted,
        }
    }
}

/// Entries have no time of change: conditions on it do not hold.
fn state(entry: &Entry) -> State {
    State { version: entry.version, modified_ms: u64::MAX }
}

/// Waits until what is shown, or was changed, is as durable as asked. What is volatile is in no journal.
pub(crate) fn settle(
    store: &Store,
    entries: &Entries,
    position: Position,
    durability: Durability,
) -> Result<(), Failure> {
    if entries.is_durable() {
        store.wait(position, durability)?;
    }
    Ok(())
}

/// Hands on what the store says, a refusal when what that rests on may be shown.
pub(crate) fn told<T>(store: &Store, result: holdfast::Result<T>, durability: Durability) -> Result<T, Failure> {
    if let Err(error) = &result
        && let Some(position) = error.rests_on()
    {
        store.wait(position, error.told_at(shown_at(durability)))?;
    }
    Ok(result?)
}

/// Reads one entry, if there is one: and whether only that it has not changed is to be said.
///
/// # Errors
/// 404 when there is no such type, 412 when a condition does not hold.
pub(crate) fn fetch(
    store: &Store,
    one: &One,
    conditions: &Conditions,
    durability: Durability,
) -> Result<Option<(Entry, bool)>, Failure> {
    let entries = one.place.entries(store)?;
    let shown = entries.read_shown(&one.wanted(), &ReadOptions::default())?;
    settle(store, &entries, shown.position, shown_at(durability))?;
    let Some(entry) = shown.value else { return Ok(None) };
    match conditions.read(state(&entry)) {
        Verdict::Failed => Err(Failure::precondition()),
        verdict => Ok(Some((entry, verdict == Verdict::NotModified))),
    }
}

/// Judges the conditions of a change by what is there now: the version that has to be there still when it is made. One that does not hold is
/// told when what is there, or is not, is as durable as asked.
fn judge(
    store: &Store,
    entries: &Entries,
    wanted: &Wanted,
    (conditions, durability): (&Conditions, Durability),
) -> Result<Option<Option<Position>>, Failure> {
    if *conditions == Conditions::default() {
        return Ok(None);
    }
    let Shown { value: now, position } = entries.read_shown(wanted, &ReadOptions::default())?;
    if let Err(failure) = conditions.write(now.as_ref().map(state)) {
        settle(store, entries, position, shown_at(durability))?;
        return Err(failure);
    }
    Ok(Some(now.map(|entry| entry.version)))
}

/// Writes the entry that the path names; the document may leave its id out.
///
/// # Errors
/// 400 when the document has another id, 412 when a condition or the mode does not hold, and what the store says.
pub(crate) fn put(store: &Store, one: &One, document: &Document, how: &How) -> Result<Written, Failure> {
    let entries = one.place.entries(store)?;
    let field = entries.definition().id.clone();
    let document = match document.get(&field) {
        None | Some(ValueRef::Null) => document.with(&field, one.id.clone()),
        Some(id) if id == one.id.scalar() => document.clone(),
        Some(_) => return Err(Failure::bad(format!("{field} in the document is not the id in the path"))),
    };
    let document = routed(&entries, one, document)?;
    let seen = judge(store, &entries, &one.wanted(), (&how.conditions, how.durability))?;
    let mut options = WriteOptions { mode: how.mode, lease: how.lease, ..at_once() };
    match seen {
        None => {}
        Some(Some(version)) => options.version = Some(version),
        Some(None) => options.mode = WriteMode::Insert,
    }
    let written = told(store, entries.write_shown(&document, &options), how.durability)?;
    settle(store, &entries, written.version, how.durability)?;
    Ok(written)
}

/// The document with the routing that the request names, which it may leave out, and may not have otherwise.
fn routed(entries: &Entries, one: &One, document: Document) -> Result<Document, Failure> {
    let definition = entries.definition();
    let Some(routing) = &one.routing else { return Ok(document) };
    let Some(path) = definition.routed_by() else {
        let is_id = definition.is_together() || *routing == one.id;
        let text = format!("the type {} has no routing: leave it out", definition.name);
        return if is_id { Ok(document) } else { Err(Failure::bad(text)) };
    };
    match path.first(document.fields()) {
        ValueRef::Null => {
            let set = [Change::Set { path: path.clone(), value: routing.clone() }];
            Ok(Change::apply(&set, &document).map_err(holdfast::Error::from)?)
        }
        said if said == routing.scalar() => Ok(document),
        _ => Err(Failure::bad(format!("{path} in the document is not the routing that the request names"))),
    }
}

/// Changes an entry in place.
///
/// # Errors
/// 404 when there is none, 412 when a condition does not hold, and what the store says.
pub(crate) fn change(store: &Store, one: &One, changes: &[Change], how: &How) -> Result<Changed, Failure> {
    let entries = one.place.entries(store)?;
    let version = judge(store, &entries, &one.wanted(), (&how.conditions, how.durability))?.flatten();
    let options = WriteOptions { lease: how.lease, version, ..at_once() };
    let changed = told(store, entries.change_shown(&one.wanted(), changes, &options), how.durability)?;
    settle(store, &entries, changed.position, how.durability)?;
    changed.value.ok_or_else(Failure::not_found)
}

/// Ends an entry's lease at another time.
///
/// # Errors
/// 404 when there is none, 412 when a condition does not hold, and what the store says.
pub(crate) fn renew(store: &Store, one: &One, how: &How) -> Result<(), Failure> {
    let entries = one.place.entries(store)?;
    let version = judge(store, &entries, &one.wanted(), (&how.conditions, how.durability))?.flatten();
    let options = WriteOptions { lease: how.lease, version, ..at_once() };
    let shown = told(store, entries.renew_shown(&one.wanted(), &options), how.durability)?;
    settle(store, &entries, shown.position, how.durability)?;
    if shown.value { Ok(()) } else { Err(Failure::not_found()) }
}

/// Writes an entry that is not there; without an id it is given one.
///
/// # Errors
/// 412 when there is one with its id, and what the store says.
pub(crate) fn create(store: &Store, place: &Place, document: &Document, how: &How) -> Result<Written, Failure> {
    let entries = place.entries(store)?;
    // Nothing is written where something is: conditions are on what is not there.
    how.conditions.write(None)?;
    let options = WriteOptions { mode: WriteMode::Insert, lease: how.lease, ..at_once() };
    let written = told(store, entries.write_shown(document, &options), how.durability)?;
    settle(store, &entries, written.version, how.durability)?;
    Ok(written)
}

/// Removes an entry.
///
/// # Errors
/// 404 when there is none, 412 when a condition does not hold.
pub(crate) fn delete(store: &Store, one: &One, conditions: &Conditions, durability: Durability) -> Result<(), Failure> {
    let entries = one.place.entries(store)?;
    let version = judge(store, &entries, &one.wanted(), (conditions, durability))?.flatten();
    let options = ReadOptions { version, ..ReadOptions::default() };
    let taken = told(store, entries.take_shown(&one.wanted(), &options), durability)?;
    settle(store, &entries, taken.position, durability)?;
    if taken.value.is_some() {
        return Ok(());
    }
    // What a transaction has locked is there for who reads.
    let is_there = entries.read_shown(&one.wanted(), &ReadOptions::default())?.value.is_some();
    Err(if is_there { Failure::locked() } else { Failure::not_found() })
}

/// Threads of the door do not wait for transactions: who asks again does.
pub(crate) fn at_once() -> WriteOptions {
    WriteOptions { lock_timeout: Some(Duration::ZERO), ..WriteOptions::default() }
}

/// Declares a type.
///
/// # Errors
/// What the store says.
pub(crate) fn declare(store: &Store, definition: Definition) -> Result<(), Failure> {
    store.space(&definition.space.clone()).declare(definition)?;
    Ok(())
}

/// What is read or taken.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) wanted: Wanted,
    /// A whole query with columns and figures instead.
    pub(crate) select: Option<(String, Vec<Value>)>,
    pub(crate) limit: usize,
    pub(crate) wait: Duration,
    /// Only wait while there is an entry that a transaction has locked.
    pub(crate) if_exists: bool,
}

/// What a query found.
pub(crate) enum Rows {
    Entries(Vec<Entry>),
    Documents(Vec<Document>),
}

/// Reads what a query wants.
///
/// # Errors
/// What the store says.
pub(crate) fn query(
    store: &Store,
    (place, stop): (&Place, Stop),
    query: &Query,
    durability: Durability,
) -> Result<Rows, Failure> {
    let entries = place.entries(store)?.until(stop);
    if let Some((sql, parameters)) = &query.select {
        let rows = entries.select_up_to(&store.prepared(sql)?, parameters, query.limit.saturating_add(1))?;
        if rows.len() > query.limit {
            return Err(Failure::bad(format!("more than {} rows: say LIMIT in the SQL", query.limit)));
        }
        return Ok(Rows::Documents(rows));
    }
    let shown = entries.read_many_shown(&query.wanted, query.limit)?;
    settle(store, &entries, shown.position, shown_at(durability))?;
    Ok(Rows::Entries(shown.value))
}

/// Entries that were taken, and go back unless they are kept.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) entries: Vec<Entry>,
    handed: Vec<Handed>,
    position: Position,
}

impl Taken {
    pub(crate) fn add(&mut self, store: &Store, of: &Entries, shown: Shown<Entry>) {
        self.position = self.position.max(shown.position);
        self.handed.push(Handed::new(store, of, shown.value.clone()));
        self.entries.push(shown.value);
    }

    /// Takes what is there, up to the query's limit.
    ///
    /// # Errors
    /// What the store says, if nothing was taken.
    pub(crate) fn more(mut self, store: &Store, of: &Entries, query: &Query) -> Result<Self, Failure> {
        while self.entries.len() < query.limit {
            match of.take_shown(&query.wanted, &ReadOptions::default()) {
                Ok(Shown { value: Some(value), position }) => self.add(store, of, Shown { value, position }),
                Ok(Shown { value: None, .. }) => break,
                Err(_) if !self.entries.is_empty() => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self)
    }

    /// Waits until the taking, and that no more is there, is as durable as asked.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn settled(
        self,
        store: &Store,
        of: &Entries,
        query: &Query,
        durability: Durability,
    ) -> Result<Self, Failure> {
        // That there are no more of them is said too.
        let absence = if self.entries.len() < query.limit { of.absence(&query.wanted)? } else { Position::ZERO };
        settle(store, of, self.position.max(absence), durability)?;
        Ok(self)
    }

    /// The client is about to be sent them.
    pub(crate) fn keep(self) -> Vec<Entry> {
        self.handed.into_iter().for_each(Handed::keep);
        self.entries
    }
}
