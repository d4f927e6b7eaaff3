//! A batch carried out: under the locks of the objects that it names, in a transaction of what it does in spaces, with its points.
//!
//! Nothing in it waits: an entry that a transaction has locked makes the whole fail. Each operation sees what those before it did.
//!
//! May use: the facade, `space_json`. Must not know: HTTP's messages, rights.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use holdfast::series::Rows;
use holdfast::space::{Entries, Entry, ReadLock, ReadOptions, Value, WriteOptions};
use holdfast::{
    Condition, Durability, ErrorKind, Exclusive, Head, Object, Position, PutOptions, Scope, Store, Transaction,
};
use serde_json::json;

use super::operation::{Operation, Point, Which};
use super::{Done, Fault, noted};
use crate::http::failure::Failure;
use crate::http::object::{Expiry, Name, shown_at};
use crate::http::space::Place;
use crate::http::{base64, space_json};
use crate::numbers::PointCounts;
use crate::points::nanos;

/// What bounds a batch.
pub(super) struct Bounds {
    pub(super) operations: usize,
    /// Entries of one operation.
    pub(super) entries: usize,
    /// Bytes of all that is read.
    pub(super) answer_bytes: usize,
    /// When nobody waits for it any more.
    pub(super) end: Instant,
}

/// What an operation did. Versions that are those of the batch are known when it is committed.
enum Answer {
    Written(Value),
    Entries(Vec<Entry>),
    Changed(Entry),
    Put,
    Deleted(bool),
    Got(Option<Object>),
    Count(u64),
    Cleared(u64),
    Points(usize),
    Acknowledged,
}

/// A version that is the batch's own.
const OWN: Position = Position::MAX;

/// Carries a batch out; does not wait for durability.
pub(super) fn run(
    store: &Store,
    counts: &PointCounts,
    operations: Vec<Operation>,
    durability: Durability,
    bounds: &Bounds,
) -> Result<Done, Fault> {
    let only_reads = operations.iter().all(Operation::only_reads);
    let durability = if only_reads { shown_at(durability) } else { durability };
    try_run(store, counts, operations, bounds).map_or_else(
        |fault| {
            // It may have been refused by anything that was written by now: all that lies before the end of the journal.
            let newest = Position::new(store.watermarks().appended.get().saturating_sub(1));
            let rests_on = Some((newest, durability));
            Err(Fault { rests_on, ..fault })
        },
        |(position, answers)| {
            let answers: Vec<String> = answers.iter().map(|answer| answer.to_json(position)).collect();
            let body = format!("{{\"position\":\"{:016x}\",\"answers\":[{}]}}", position.get(), answers.join(","));
            Ok(Done { position, durability, body: body.into_bytes() })
        },
    )
}

fn try_run(
    store: &Store,
    counts: &PointCounts,
    operations: Vec<Operation>,
    bounds: &Bounds,
) -> Result<(Position, Vec<Answer>), Fault> {
    let points = operations.iter().map(|it| if let Operation::Points(points) = it { points.len() } else { 0 }).sum();
    if points > 0 {
        store.series().make_room(points).map_err(Failure::from)?;
    }
    let names: Vec<Name> = operations.iter().filter_map(Operation::object).cloned().collect();
    let mut scope: Vec<(&[u8], &[u8])> = names.iter().map(|name| (&name.bucket[..], &name.key[..])).collect();
    scope.sort_unstable();
    scope.dedup();
    let mut transaction = store.begin().joining();
    let mut rows = Rows::new("default");
    // Where the store keeps listeners is its own affair.
    let is_everywhere = operations.iter().any(|it| matches!(it, Operation::Acknowledge { .. }));
    let scope = if is_everywhere { Scope::All } else { Scope::Keys(&scope) };
    let mut exclusive = store.exclusive(&scope).map_err(Failure::from)?;
    let mut running = Running {
        store,
        bounds,
        exclusive: &mut exclusive,
        transaction: &mut transaction,
        rows: &mut rows,
        types: BTreeMap::new(),
        own: BTreeSet::new(),
        left_bytes: bounds.answer_bytes,
    };
    let mut answers = Vec::with_capacity(operations.len());
    for (number, operation) in operations.into_iter().enumerate() {
        answers.push(running.step(operation).map_err(Fault::of(number))?);
    }
    exclusive.join_spaces(&mut transaction);
    if !rows.is_empty() {
        exclusive.add_points(&mut rows).map_err(Failure::from)?;
    }
    let committed = exclusive.commit().map_err(|error| match error.kind() {
        ErrorKind::Conflict => Failure::new(StatusCode::CONFLICT, error.to_string()),
        _ => error.into(),
    })?;
    if points > 0 {
        counts.written.fetch_add(points as u64, Relaxed);
        counts.batches.fetch_add(1, Relaxed);
    }
    Ok((committed.position, answers))
}

/// A batch between its beginning and its commit.
struct Running<'r, 's> {
    store: &'r Store,
    bounds: &'r Bounds,
    exclusive: &'r mut Exclusive<'s>,
    transaction: &'r mut Transaction,
    rows: &'r mut Rows,
    /// Types by space and name, as far as they were named.
    types: BTreeMap<(String, String), Entries>,
    /// The entries that it has written or taken, by space, type and key.
    own: BTreeSet<(String, String, Vec<u8>)>,
    /// How much may be read yet.
    left_bytes: usize,
}

impl Running<'_, '_> {
    fn step(&mut self, operation: Operation) -> Result<Answer, Failure> {
        if Instant::now() > self.bounds.end {
            return Err(Failure::unavailable("the batch took too long: nothing of it has happened; make it smaller"));
        }
        match operation {
            Operation::Write { place, document, mode, version, lease } => {
                let entries = self.entries(&place)?;
                let options = WriteOptions { mode, version, lease, ..at_once() };
                let written = entries.within(self.transaction).write(&document, &options)?;
                // The document has got an id if it had none.
                let document = document.with(&entries.definition().id, written.id.clone());
                self.note_own(&place, &entries, &document);
                Ok(Answer::Written(written.id))
            }
            Operation::Read(which) => {
                let entries = self.entries(&which.place)?;
                let mut within = entries.within(self.transaction);
                let found = within.read(&which.wanted, ReadLock::Shared, &reading(&which))?;
                self.check_there(&which, &entries, found.is_some())?;
                let mut found: Vec<Entry> = found.into_iter().collect();
                for entry in &mut found {
                    self.spend(entry.document.as_bytes().len())?;
                    self.own_version(&which.place, &entries, entry);
                }
                Ok(Answer::Entries(found))
            }
            Operation::Take { which, limit } => {
                let entries = self.entries(&which.place)?;
                let limit = limit.unwrap_or(1).min(self.bounds.entries);
                let mut taken = Vec::new();
                while taken.len() < limit
                    && let Some(entry) = self.take(&which, &entries)?
                {
                    self.spend(entry.document.as_bytes().len())?;
                    taken.push(entry);
                }
                self.check_there(&which, &entries, limit == 0 || !taken.is_empty())?;
                Ok(Answer::Entries(taken))
            }
            Operation::Change { which, changes, lease } => {
                let entries = self.entries(&which.place)?;
                let options = WriteOptions { version: which.version, lease, ..at_once() };
                let changed = entries.within(self.transaction).change(&which.wanted, &changes, &options);
                let changed = changed?.ok_or_else(missing)?;
                self.note_own(&which.place, &entries, &changed.now.document);
                self.spend(changed.now.document.as_bytes().len())?;
                Ok(Answer::Changed(changed.now))
            }
            Operation::Remove(which) => {
                let entries = self.entries(&which.place)?;
                let is_there = self.take(&which, &entries)?.is_some();
                self.check_there(&which, &entries, is_there)?;
                Ok(Answer::Deleted(is_there))
            }
            Operation::Count(which) => {
                let entries = self.entries(&which.place)?;
                Ok(Answer::Count(entries.within(self.transaction).count(&which.wanted)?))
            }
            Operation::Clear(which) => {
                let entries = self.entries(&which.place)?;
                let most = self.bounds.entries;
                Ok(Answer::Cleared(entries.within(self.transaction).clear(&which.wanted, most)?))
            }
            Operation::Put { name, value, metadata, indexes, expiry, condition } => {
                let expires_ms = match expiry {
                    Expiry::Never | Expiry::Keep => None,
                    Expiry::AfterMs(time) => Some(self.exclusive.now_ms().saturating_add(time)),
                    Expiry::AtMs(at) => Some(at),
                };
                if condition != Condition::None {
                    check(condition, self.exclusive.head(&name.bucket, &name.key)?.as_ref())?;
                }
                let keep_expiry = expiry == Expiry::Keep;
                let options = PutOptions { expires_ms, keep_expiry, metadata, indexes, ..PutOptions::default() };
                self.exclusive.put(&name.bucket, &name.key, &value, &options)?;
                Ok(Answer::Put)
            }
            Operation::Delete { name, condition } => {
                check(condition, self.exclusive.head(&name.bucket, &name.key)?.as_ref())?;
                Ok(Answer::Deleted(self.exclusive.delete(&name.bucket, &name.key)?))
            }
            Operation::Get(name) => {
                let Some(head) = self.exclusive.head(&name.bucket, &name.key)? else { return Ok(Answer::Got(None)) };
                self.spend(usize::try_from(head.value_bytes).unwrap_or(usize::MAX))?;
                Ok(Answer::Got(self.exclusive.get(&name.bucket, &name.key)?))
            }
            Operation::Acknowledge { place, name, bookmark } => {
                let entries = self.entries(&place)?;
                self.exclusive.acknowledge(&entries, &name, bookmark)?;
                Ok(Answer::Acknowledged)
            }
            Operation::Points(points) => {
                points.iter().try_for_each(|point| self.add(point))?;
                Ok(Answer::Points(points.len()))
            }
        }
    }

    fn entries(&mut self, place: &Place) -> Result<Entries, Failure> {
        let name = (place.space.clone(), place.name.clone());
        if let Some(entries) = self.types.get(&name) {
            return Ok(entries.clone());
        }
        let none = |_| {
            let text = format!("there is no type {} in the space {}", place.name, place.space);
            Failure::new(StatusCode::NOT_FOUND, text)
        };
        let entries = self.store.space(&place.space).entries(&place.name).map_err(none)?;
        if !entries.is_durable() {
            return Err(Failure::bad("entries of a volatile type are in no journal, and so in no batch"));
        }
        self.types.insert(name, entries.clone());
        Ok(entries)
    }

    fn note_own(&mut self, place: &Place, entries: &Entries, document: &holdfast::space::Document) {
        let key = entries.definition().entry_key(document.fields());
        self.own.insert((place.space.clone(), place.name.clone(), key));
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Failure> {
        self.left_bytes = self.left_bytes.checked_sub(bytes).ok_or_else(|| {
            let text = format!("what a batch reads has {} bytes at the most", self.bounds.answer_bytes);
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        })?;
        Ok(())
    }

    fn take(&mut self, which: &Which, entries: &Entries) -> Result<Option<Entry>, Failure> {
        let taken = entries.within(self.transaction).take(&which.wanted, &reading(which))?;
        Ok(taken.map(|mut entry| {
            self.own_version(&which.place, entries, &mut entry);
            self.note_own(&which.place, entries, &entry.document);
            entry
        }))
    }

    fn own_version(&self, place: &Place, entries: &Entries, entry: &mut Entry) {
        let key = entries.definition().entry_key(entry.document.fields());
        if self.own.contains(&(place.space.clone(), place.name.clone(), key)) {
            entry.version = OWN;
        }
    }

    /// Whether what was not found may be missing: an entry that somebody else has locked is there all the same.
    fn check_there(&self, which: &Which, entries: &Entries, is_there: bool) -> Result<(), Failure> {
        if is_there {
            return Ok(());
        }
        if which.wanted.by_id().is_some()
            && let Some(shown) = entries.read_shown(&which.wanted, &ReadOptions::default())?
        {
            let key = entries.definition().entry_key(shown.value.document.fields());
            if !self.own.contains(&(which.place.space.clone(), which.place.name.clone(), key)) {
                return Err(Failure::locked());
            }
        }
        match which.is_needed || which.version.is_some() {
            true => Err(Failure::new(StatusCode::PRECONDITION_FAILED, "there is no such entry")),
            false => Ok(()),
        }
    }

    fn add(&mut self, point: &Point) -> Result<(), Failure> {
        let bad = |error: holdfast::series::SeriesError| Failure::bad(error.to_string());
        let mut name = Vec::with_capacity(64);
        for part in [&point.metric].into_iter().chain(point.tags.iter().flat_map(|(tag, value)| [tag, value])) {
            name.extend_from_slice(&part.len().to_le_bytes());
            name.extend_from_slice(part.as_bytes());
        }
        self.rows.set_database(&point.database);
        let row = self.rows.row(&name, |_| Ok((point.metric.clone(), point.tags.clone()))).map_err(bad)?;
        let slot = self.rows.field(row, 0, point.field.as_bytes(), |_| Ok(point.field.clone())).map_err(bad)?;
        let time = point.time.unwrap_or_else(|| nanos(self.exclusive.now_ms()));
        match &point.value {
            holdfast::series::Value::Float(number) => self.rows.push_float(slot, time, *number),
            value => self.rows.push(slot, time, value.as_ref()),
        }
        Ok(())
    }
}

fn at_once() -> WriteOptions {
    WriteOptions { lock_timeout: Some(Duration::ZERO), ..WriteOptions::default() }
}

fn reading(which: &Which) -> ReadOptions {
    ReadOptions { version: which.version, ..ReadOptions::default() }
}

fn missing() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "there is no such entry")
}

fn failed(text: impl Into<Cow<'static, str>>) -> Failure {
    Failure::new(StatusCode::PRECONDITION_FAILED, text)
}

fn check(condition: Condition, head: Option<&Head>) -> Result<(), Failure> {
    let holds = match condition {
        Condition::None => true,
        Condition::Absent => head.is_none(),
        Condition::Present => head.is_some(),
        Condition::Version(version) => head.is_some_and(|head| head.version == version),
    };
    if holds {
        return Ok(());
    }
    let is = match head {
        None => "absent".to_owned(),
        Some(head) if head.version == OWN => return Err(failed("the object was changed earlier in the same batch")),
        Some(head) => format!("at version {:016x}", head.version.get()),
    };
    let wanted = match condition {
        Condition::Version(version) => format!("at version {:016x}", version.get()),
        Condition::Present => "there".to_owned(),
        Condition::Absent | Condition::None => "absent".to_owned(),
    };
    Err(failed(format!("the object is {is}, not {wanted}")))
}

impl Answer {
    fn to_json(&self, position: Position) -> String {
        let version = |version: Position| if version == OWN { position } else { version };
        let own = position.get();
        match self {
            Answer::Written(id) => format!("{{\"id\":{},\"version\":\"{own:016x}\"}}", id.to_json()),
            Answer::Put => format!("{{\"version\":\"{own:016x}\"}}"),
            Answer::Deleted(is) => json!({ "deleted": is }).to_string(),
            Answer::Count(count) => json!({ "count": count }).to_string(),
            Answer::Cleared(count) => json!({ "cleared": count }).to_string(),
            Answer::Points(count) => json!({ "points": count }).to_string(),
            Answer::Acknowledged => "{}".to_owned(),
            Answer::Changed(entry) => space_json::entry(entry, position),
            Answer::Entries(entries) => {
                let entries: Vec<String> =
                    entries.iter().map(|entry| space_json::entry(entry, version(entry.version))).collect();
                format!("{{\"entries\":[{}]}}", entries.join(","))
            }
            Answer::Got(None) => json!({ "object": null }).to_string(),
            Answer::Got(Some(Object { head, value })) => {
                let version = format!("{:016x}", version(head.version).get());
                let (key, value) = match std::str::from_utf8(value) {
                    Ok(text) => ("value", text.to_owned()),
                    Err(_) => ("value_base64", base64::encode(value)),
                };
                let kind = head.metadata.iter().find(|(name, _)| *name == crate::http::metadata::TYPE_NAME);
                let kind = kind.map(|(_, kind)| String::from_utf8_lossy(kind).into_owned());
                let value = json!(value);
                let (metadata, indexes) = (noted::metadata_json(&head.metadata), noted::indexes_json(&head.indexes));
                format!(
                    "{{\"object\":{{\"version\":\"{version}\",\"expires_ms\":{},\"content_type\":{},\"metadata\":{metadata},\"indexes\":{indexes},\"{key}\":{value}}}}}",
                    json!(head.expires_ms),
                    json!(kind),
                )
            }
        }
    }
}
