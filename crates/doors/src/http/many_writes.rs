//! Changing many entries of a type with one request, each by itself.
//!
//! May use: everything of the door but sockets.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use holdfast::space::{Change, Document, Entries, Entry, Lease, Stop, Value, Wanted, WriteOptions, Written};
use holdfast::{Error, ErrorKind, Position, Store};
use serde_json::json;

use super::failure::Failure;
use super::fields::Fields;
use super::handle::{Asked, JSON, say_durability, with_type};
use super::json_body::Becomes;
use super::showing::{Otherwise, Text};
use super::space;
use super::space_json;
use super::spaces::holding;
use super::upload::Upload;

/// Entries that are to be written, and how.
struct Writes {
    documents: Vec<holdfast::Result<Document>>,
    options: WriteOptions,
    /// Bytes of what was there before that are told; none are unless they are wanted.
    previous_bytes: Option<usize>,
}

/// What became of one.
type Outcome = holdfast::Result<Written>;

impl Asked<'_> {
    pub(crate) async fn write_entries(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let (place, durability) = (self.place()?, self.durability()?);
        upload.check_present()?;
        let limits = &self.shared.options.limits;
        let most = (limits.batch_operations_max, limits.documents_bytes_max);
        let read = move |text: &[u8]| writes(text, most);
        let (writes, share) = self.json(upload, Becomes::Values, read).await?;
        let previous = writes.previous_bytes.is_some();
        let write = move |store: &Store| {
            let entries = place.entries(store)?;
            let outcomes = write_each(&entries, writes);
            let rests_on = |outcome: &Outcome| match outcome {
                Ok(written) => Some(written.version),
                Err(refused) => refused.rests_on(),
            };
            let newest = outcomes.iter().filter_map(rests_on).max();
            space::settle(store, &entries, newest.unwrap_or(Position::ZERO), durability)?;
            Ok::<_, Failure>(outcomes)
        };
        let outcomes = self.shared.ask(holding(share, write)).await??;
        let bytes = space_json::stored_bytes(outcomes.iter().flatten().filter_map(|written| written.previous.as_ref()));
        let show = move |text: &mut Text| {
            text.add("{\"written\":[")?;
            text.add_list(outcomes.iter().map(|outcome| told(outcome, previous)))?;
            text.add("]}")
        };
        let body = self.shared.show((bytes, Otherwise::Show), show).await?;
        Ok(say_durability(with_type(JSON, body), durability))
    }

    /// Changes all that match. It goes on when nobody waits for it any more: who sends it and goes means it.
    pub(crate) async fn change_entries(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let (place, durability) = (self.place()?, self.durability()?);
        upload.check_present()?;
        let store = self.shared.store.clone();
        let read = move |text: &[u8]| changes(text, &store);
        let (Changes { wanted, changes, lease }, share) = self.json(upload, Becomes::Values, read).await?;
        let limits = &self.shared.options.limits;
        let stop = Stop { time_max: Some(limits.space_time_max), ..Stop::default() };
        // Threads that wait for locks must leave some to those who could let go.
        let turn = Arc::clone(&self.shared.lock_turns).try_acquire_owned().ok();
        let lock_timeout = turn.as_ref().map_or(Duration::ZERO, |_| limits.answer_timeout / 2);
        let options = WriteOptions {
            lease,
            lock_timeout: Some(lock_timeout),
            durability: Some(durability),
            ..WriteOptions::default()
        };
        let change = move |store: &Store| {
            let _turn = turn;
            Ok::<_, Failure>(place.entries(store)?.until(stop).change_many(&wanted, &changes, &options)?)
        };
        let count = self.shared.ask(holding(share, change)).await??;
        Ok(say_durability(with_type(JSON, json!({ "changed": count }).to_string()), durability))
    }
}

/// Which entries are to be changed, and how.
struct Changes {
    wanted: Wanted,
    changes: Vec<Change>,
    lease: Lease,
}

fn changes(body: &[u8], store: &Store) -> Result<Changes, Failure> {
    let mut fields = Fields::parse(body)?;
    let wanted = space_json::wanted(&mut fields, store)?.kept(store)?;
    let (changes, lease) = (space_json::changes_of(&mut fields)?, fields.lease()?);
    fields.end()?;
    Ok(Changes { wanted, changes, lease })
}

fn writes(body: &[u8], (documents_max, bytes_max): (usize, usize)) -> Result<Writes, Failure> {
    let mut fields = Fields::parse(body)?;
    let documents = fields.list("documents")?;
    if documents.is_empty() {
        return Err(Failure::bad("documents has to be a list of at least one document"));
    }
    if documents.len() > documents_max {
        let text = format!("{documents_max} documents are written at once at the most, not {}", documents.len());
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    let (mode, version) = (space_json::mode(&mut fields)?, fields.version("if_version")?);
    let options = WriteOptions { mode, version, lease: fields.lease()?, ..space::at_once() };
    let previous_bytes = fields.flag("previous")?.then_some(bytes_max);
    fields.end()?;
    Ok(Writes { documents: documents.into_iter().map(document).collect(), options, previous_bytes })
}

fn document(value: Value) -> holdfast::Result<Document> {
    match value {
        Value::Map(fields) => Ok(Document::new(&fields)),
        _ => Err(Error::new(ErrorKind::Invalid, "a document has to be an object")),
    }
}

/// One that fails stops no other. What was there before lies in memory until it is sent, so there is an end to that.
fn write_each(entries: &Entries, writes: Writes) -> Vec<Outcome> {
    let (options, bytes_max) = (writes.options, writes.previous_bytes);
    let mut bytes = 0;
    let write = |document: holdfast::Result<Document>| {
        if bytes_max.is_some_and(|most| bytes >= most) {
            let text = "not written: what was there before the others takes as much memory as one answer may";
            return Err(Error::new(ErrorKind::Limit, text));
        }
        let mut written = entries.write_shown(&document?, &options)?;
        written.previous = written.previous.filter(|_| bytes_max.is_some());
        bytes += written.previous.as_ref().map_or(0, |was: &Entry| was.document.as_bytes().len());
        Ok(written)
    };
    writes.documents.into_iter().map(write).collect()
}

/// What was written; or why not, in words, by its kind, and by the status that it would have alone.
fn told(outcome: &Outcome, previous: bool) -> String {
    match outcome {
        Ok(written) => {
            let previous = previous.then(|| space_json::maybe_entry(written.previous.as_ref()));
            space_json::written(&written.id, Some(written.version), previous)
        }
        Err(error) => {
            let (kind, failure) = (word(error.kind()), Failure::from(error.clone()));
            json!({ "error": failure.text(), "kind": kind, "status": failure.code().as_u16() }).to_string()
        }
    }
}

fn word(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Conflict => "conflict",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Limit => "limit",
        ErrorKind::Timeout => "timeout",
        ErrorKind::Unavailable | ErrorKind::Closed | ErrorKind::Unknown => "unavailable",
        ErrorKind::Corrupt => "corrupt",
        _ => "internal",
    }
}
