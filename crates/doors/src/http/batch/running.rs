//! Operations carried out one by one, each of which sees what those before it did: of a batch, or within a transaction that stays open.
//!
//! May use: the facade, `operation`, `answer`. Must not know: JSON, HTTP's messages, rights, how it is committed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use holdfast::series::Rows;
use holdfast::space::{Entries, Entry, ManyChanged, ReadLock, ReadOptions, Value, WriteOptions};
use holdfast::{Condition, ErrorKind, Exclusive, Head, Object, Position, PutOptions, Store, Transaction};

use super::answer::{Answer, OWN, UNKNOWN};
use super::operation::{Operation, Point, Previous, Which};
use crate::http::failure::Failure;
use crate::http::object::{Expiry, Name};
use crate::http::space::Place;
use crate::points::nanos;

/// What bounds operations, and how they lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Entries of one operation.
    pub(super) entries: usize,
    /// Bytes of all that is read.
    pub(super) answer_bytes: usize,
    /// When nobody waits for it any more.
    pub(super) end: Instant,
    /// How entries are locked that are read.
    pub(super) lock: ReadLock,
    /// Until when operations may wait for entries that other transactions have locked; `None` is not at all.
    pub(super) lock_until: Option<Instant>,
}

/// Operations under way, between the beginning and the commit of what they are part of.
pub(super) struct Running<'r, 's> {
    pub(super) store: &'r Store,
    pub(super) bounds: Bounds,
    pub(super) objects: Objects<'r, 's>,
    pub(super) transaction: &'r mut Transaction,
    pub(super) rows: &'r mut Rows,
    /// Types by space and name, as far as they were named.
    pub(super) types: BTreeMap<(String, String), Entries>,
    pub(super) own: &'r mut Own,
    /// How much may be read yet.
    pub(super) left_bytes: usize,
    /// An entry was passed by that another transaction has locked, so that what was looked for was not found.
    pub(super) has_met_lock: bool,
}

/// The entries that were written or taken, by space, type and key.
pub(super) type Own = BTreeSet<(String, String, Vec<u8>)>;

/// Where objects are read and changed.
pub(super) enum Objects<'r, 's> {
    /// Under locks that a batch has for its time.
    Locked(&'r mut Exclusive<'s>),
    /// In the transaction, which looks again when it commits.
    Watched,
}

impl Running<'_, '_> {
    pub(super) fn step(&mut self, operation: Operation) -> Result<Answer, Failure> {
        if Instant::now() > self.bounds.end {
            return Err(Failure::unavailable("it took too long: nothing of it has happened; make it smaller"));
        }
        match operation {
            Operation::Write { place, document, mode, version, lease, previous } => {
                let entries = self.entries(&place)?;
                let options = WriteOptions { mode, version, lease, ..self.writing() };
                let written = entries.within(self.transaction).write(&document, &options)?;
                let told = match previous {
                    Previous::Told => Some(written.previous.map(|was| self.told(&place, &entries, was)).transpose()?),
                    Previous::Left => None,
                };
                // The document has got an id if it had none.
                let document = document.with(&entries.definition().id, written.id.clone());
                self.note_own(&place, &entries, &document);
                Ok(Answer::Written { id: written.id, version: coming(&entries), previous: told })
            }
            Operation::Read(which) => {
                let entries = self.entries(&which.place)?;
                let reading = self.reading(&which);
                let mut within = entries.within(self.transaction);
                let found = within.read(&which.wanted, self.bounds.lock, &reading)?;
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
                    && let Some(entry) = self.take(&which, &entries, taken.is_empty())?
                {
                    self.spend(entry.document.as_bytes().len())?;
                    taken.push(entry);
                }
                self.check_there(&which, &entries, limit == 0 || !taken.is_empty())?;
                Ok(Answer::Entries(taken))
            }
            Operation::Change { which, changes, lease, previous } => {
                let entries = self.entries(&which.place)?;
                let options = WriteOptions { version: which.version, lease, ..self.writing() };
                let changed = entries.within(self.transaction).change(&which.wanted, &changes, &options);
                let mut changed = changed?.ok_or_else(missing)?;
                changed.now.version = coming(&entries);
                let told = match previous {
                    Previous::Told => Some(self.told(&which.place, &entries, changed.before)?),
                    Previous::Left => None,
                };
                self.note_own(&which.place, &entries, &changed.now.document);
                self.spend(changed.now.document.as_bytes().len())?;
                Ok(Answer::Changed { now: changed.now, previous: told })
            }
            Operation::ChangeAll { which, changes, lease } => {
                let entries = self.entries(&which.place)?;
                let options = WriteOptions { lease, ..self.writing() };
                let most = ManyChanged { entries: self.bounds.entries, bytes: self.left_bytes };
                let changed = entries.within(self.transaction).change_up_to(&which.wanted, &changes, &options, most)?;
                // They stay in memory until the commit, as those of single changes do.
                self.spend(changed.bytes)?;
                Ok(Answer::ChangedAll(changed.entries))
            }
            Operation::Renew { which, lease } => {
                let (entries, patience) = (self.entries(&which.place)?, Some(self.lock_timeout()));
                let renewed = entries.within(self.transaction).renew(&which.wanted, lease, patience)?;
                Ok(Answer::Renewed(renewed))
            }
            Operation::Select { place, sql, parameters } => self.select(&place, &sql, &parameters),
            Operation::Remove(which) => {
                let entries = self.entries(&which.place)?;
                let is_there = self.take(&which, &entries, true)?.is_some();
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
                    Expiry::AfterMs(time) => Some(self.now_ms().saturating_add(time)),
                    Expiry::AtMs(at) => Some(at),
                };
                if condition != Condition::None {
                    check(condition, self.head(&name)?.as_ref())?;
                }
                let keep_expiry = expiry == Expiry::Keep;
                let options = PutOptions { expires_ms, keep_expiry, metadata, indexes, ..PutOptions::default() };
                self.put(&name, &value, &options)?;
                Ok(Answer::Put)
            }
            Operation::Delete { name, condition } => {
                check(condition, self.head(&name)?.as_ref())?;
                Ok(Answer::Deleted(self.delete(&name)?))
            }
            Operation::Get(name) => {
                let Some(head) = self.head(&name)? else { return Ok(Answer::Got(None)) };
                self.spend(usize::try_from(head.value_bytes).unwrap_or(usize::MAX))?;
                Ok(Answer::Got(self.get(&name)?))
            }
            Operation::Acknowledge { place, name, bookmark } => {
                let entries = self.entries(&place)?;
                match &mut self.objects {
                    Objects::Locked(exclusive) => exclusive.acknowledge(&entries, &name, bookmark)?,
                    Objects::Watched => entries.acknowledge_within(self.transaction, &name, bookmark)?,
                }
                Ok(Answer::Acknowledged)
            }
            Operation::Points(points) => {
                points.iter().try_for_each(|point| self.add(point))?;
                Ok(Answer::Points(points.len()))
            }
        }
    }

    fn select(&mut self, place: &Place, sql: &str, parameters: &[Value]) -> Result<Answer, Failure> {
        let (entries, most) = (self.entries(place)?, self.bounds.entries);
        let query = self.store.prepared(sql)?;
        let rows = entries.within(self.transaction).select_up_to(&query, parameters, most.saturating_add(1))?;
        if rows.len() > most {
            return Err(Failure::bad(format!("more than {most} rows: say LIMIT in the SQL")));
        }
        self.spend(rows.iter().map(|row| row.as_bytes().len()).sum())?;
        Ok(Answer::Rows(rows))
    }

    fn now_ms(&self) -> u64 {
        match &self.objects {
            Objects::Locked(exclusive) => exclusive.now_ms(),
            Objects::Watched => self.store.now_ms(),
        }
    }

    fn head(&mut self, name: &Name) -> Result<Option<Head>, Failure> {
        match &mut self.objects {
            Objects::Locked(exclusive) => Ok(exclusive.head(&name.bucket, &name.key)?),
            Objects::Watched => self.transaction.head(&name.bucket, &name.key).map_err(changed),
        }
    }

    fn get(&mut self, name: &Name) -> Result<Option<Object>, Failure> {
        match &mut self.objects {
            Objects::Locked(exclusive) => Ok(exclusive.get(&name.bucket, &name.key)?),
            Objects::Watched => self.transaction.get(&name.bucket, &name.key).map_err(changed),
        }
    }

    fn put(&mut self, name: &Name, value: &[u8], options: &PutOptions) -> Result<(), Failure> {
        match &mut self.objects {
            Objects::Locked(exclusive) => Ok(exclusive.put(&name.bucket, &name.key, value, options)?),
            Objects::Watched => self.transaction.put(&name.bucket, &name.key, value, options).map_err(changed),
        }
    }

    fn delete(&mut self, name: &Name) -> Result<bool, Failure> {
        match &mut self.objects {
            Objects::Locked(exclusive) => Ok(exclusive.delete(&name.bucket, &name.key)?),
            Objects::Watched => self.transaction.delete(&name.bucket, &name.key).map_err(changed),
        }
    }

    fn lock_timeout(&self) -> Duration {
        self.bounds.lock_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    fn writing(&self) -> WriteOptions {
        WriteOptions { lock_timeout: Some(self.lock_timeout()), ..WriteOptions::default() }
    }

    fn reading(&self, which: &Which) -> ReadOptions {
        let wait = Some(self.lock_timeout()).filter(|wait| !wait.is_zero());
        ReadOptions { version: which.version, wait, if_exists: wait.is_some(), ..ReadOptions::default() }
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
        self.types.insert(name, entries.clone());
        Ok(entries)
    }

    fn note_own(&mut self, place: &Place, entries: &Entries, document: &holdfast::space::Document) {
        let key = entries.definition().entry_key(document.fields());
        self.own.insert((place.space.clone(), place.name.clone(), key));
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Failure> {
        self.left_bytes = self.left_bytes.checked_sub(bytes).ok_or_else(|| {
            let text = format!("what is read at once has {} bytes at the most", self.bounds.answer_bytes);
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        })?;
        Ok(())
    }

    /// Takes one; who has some already waits for no more.
    fn take(&mut self, which: &Which, entries: &Entries, waits: bool) -> Result<Option<Entry>, Failure> {
        let mut reading = self.reading(which);
        reading.wait = reading.wait.filter(|_| waits);
        let taken = entries.within(self.transaction).take(&which.wanted, &reading)?;
        Ok(taken.map(|mut entry| {
            self.own_version(&which.place, entries, &mut entry);
            self.note_own(&which.place, entries, &entry.document);
            entry
        }))
    }

    /// What was there before, which is told: with its version, and counted as what is read.
    fn told(&mut self, place: &Place, entries: &Entries, mut was: Entry) -> Result<Entry, Failure> {
        self.spend(was.document.as_bytes().len())?;
        self.own_version(place, entries, &mut was);
        Ok(was)
    }

    fn own_version(&self, place: &Place, entries: &Entries, entry: &mut Entry) {
        let key = entries.definition().entry_key(entry.document.fields());
        // What the transaction itself has written has no version yet.
        if entry.version == Position::ZERO || self.own.contains(&(place.space.clone(), place.name.clone(), key)) {
            entry.version = coming(entries);
        }
    }

    /// Whether what was not found may be missing: an entry that somebody else has locked is there all the same.
    fn check_there(&mut self, which: &Which, entries: &Entries, is_there: bool) -> Result<(), Failure> {
        if is_there {
            return Ok(());
        }
        match entries.within(self.transaction).check_gone(&which.wanted) {
            Ok(()) => {}
            Err(kept) if kept.kind() == ErrorKind::Timeout => {
                self.has_met_lock = true;
                // Of several that may be wanted none is free, which is an answer, too.
                if which.wanted.by_id().is_some() || which.is_needed || which.version.is_some() {
                    return Err(kept.into());
                }
            }
            Err(error) => return Err(error.into()),
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
        let time = point.time.unwrap_or_else(|| nanos(self.now_ms()));
        self.rows.set_database(&point.database);
        let row = self.rows.row(&name, |_| Ok((point.metric.clone(), point.tags.clone()))).map_err(bad)?;
        let slot = self.rows.field(row, 0, point.field.as_bytes(), |_| Ok(point.field.clone())).map_err(bad)?;
        match &point.value {
            holdfast::series::Value::Float(number) => self.rows.push_float(slot, time, *number),
            value => self.rows.push(slot, time, value.as_ref()),
        }
        Ok(())
    }
}

/// Somebody else changed an object that was read before: nothing that a condition says.
fn changed(error: holdfast::Error) -> Failure {
    match error.kind() {
        ErrorKind::Conflict => Failure::new(StatusCode::CONFLICT, error.to_string()),
        _ => error.into(),
    }
}

/// The version of what the commit to come writes.
fn coming(entries: &Entries) -> Position {
    if entries.is_durable() { OWN } else { UNKNOWN }
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
        Some(head) if head.version == OWN => {
            return Err(failed("the object was changed earlier in the same batch or transaction"));
        }
        Some(head) => format!("at version {:016x}", head.version.get()),
    };
    let wanted = match condition {
        Condition::Version(version) => format!("at version {:016x}", version.get()),
        Condition::Present => "there".to_owned(),
        Condition::Absent | Condition::None => "absent".to_owned(),
    };
    Err(failed(format!("the object is {is}, not {wanted}")))
}
