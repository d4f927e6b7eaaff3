//! Listings of buckets and keys, in the forms in which Riak's clients read them.
//!
//! `true` answers one JSON object; `stream` answers JSON objects one after another, the last of them empty. Names that
//! are not UTF-8 are percent-encoded; `encoding=percent` encodes all of them, so that nothing is ambiguous.
//!
//! May use: the facade, `pages`, `uri`. Must not know: HTTP.

use std::ops::Bound;

use holdfast::{Durability, Page, Snapshot, Store};
use serde_json::json;

use super::failure::Failure;
use super::pages::{Piece, Pieces};
use super::uri::{self, Query};

/// Whether a listing is one JSON object or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Nothing was asked for: an empty object.
    Nothing,
    Whole,
    Stream,
}

impl Form {
    /// What the parameter, which has the name of what is listed, asks for.
    ///
    /// # Errors
    /// 400 when it is neither true, false nor stream.
    pub(crate) fn parse(query: &Query, name: &'static str) -> Result<Self, Failure> {
        match query.get(name) {
            Some(value) if value.eq_ignore_ascii_case(b"stream") => Ok(Form::Stream),
            Some(value) if value.eq_ignore_ascii_case(b"true") => Ok(Form::Whole),
            None | Some(b"") => Ok(Form::Nothing),
            Some(value) if value.eq_ignore_ascii_case(b"false") => Ok(Form::Nothing),
            Some(_) => Err(Failure::bad(format!("{name} is true, false or stream"))),
        }
    }
}

/// How names are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Plain,
    Percent,
}

impl Encoding {
    /// # Errors
    /// 400 when the parameter `encoding` is not `percent`.
    pub(crate) fn parse(query: &Query) -> Result<Self, Failure> {
        match query.get("encoding") {
            None => Ok(Encoding::Plain),
            Some(b"percent") => Ok(Encoding::Percent),
            Some(_) => Err(Failure::bad("encoding is percent")),
        }
    }

    fn show(self, name: &[u8]) -> String {
        match self {
            Encoding::Plain => uri::show(name),
            Encoding::Percent => uri::encode(name),
        }
    }
}

/// The keys of a bucket, as of one instant.
pub(crate) struct Keys {
    snapshot: Snapshot,
    bucket: Vec<u8>,
    form: Form,
    encoding: Encoding,
    entries_max: usize,
    after: Option<Vec<u8>>,
}

impl Keys {
    /// Takes a snapshot and waits until it may be shown.
    ///
    /// # Errors
    /// As [`Store::snapshot`] and [`Store::wait`].
    pub(crate) fn begin(
        store: &Store,
        bucket: Vec<u8>,
        (form, encoding): (Form, Encoding),
        durability: Durability,
        entries_max: usize,
    ) -> holdfast::Result<Self> {
        let snapshot = store.snapshot()?;
        store.wait(snapshot.position(), durability)?;
        Ok(Keys { snapshot, bucket, form, encoding, entries_max, after: None })
    }
}

impl Pieces for Keys {
    fn next(&mut self) -> holdfast::Result<Piece> {
        let is_first = self.after.is_none();
        let start = self.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let page = Page { bucket: &self.bucket, start, end: Bound::Unbounded, limit: self.entries_max, values: false };
        let page = self.snapshot.page(&page)?;
        let names: Vec<String> = page.entries.iter().map(|(key, ..)| self.encoding.show(key)).collect();
        let mut text = String::new();
        match self.form {
            Form::Stream => {
                text.push_str(&json!({ "keys": names }).to_string());
                // Clients of Riak know the end by an empty object's keys.
                if !page.more && !names.is_empty() {
                    text.push_str("{\"keys\":[]}");
                }
            }
            Form::Whole | Form::Nothing => {
                text.push_str(if is_first { "{\"keys\":[" } else { "," });
                let names: Vec<String> = names.iter().map(|name| json!(name).to_string()).collect();
                text.push_str(&names.join(","));
                if !page.more {
                    text.push_str("]}");
                }
            }
        }
        let last = page.entries.into_iter().next_back().map(|(key, ..)| key);
        self.after = last.or_else(|| self.after.take());
        Ok(if page.more { Piece::More(text.into()) } else { Piece::Last(text.into()) })
    }
}

/// The answer that lists these buckets.
pub(crate) fn buckets(names: &[Vec<u8>], form: Form, encoding: Encoding) -> String {
    let names: Vec<String> = names.iter().map(|name| encoding.show(name)).collect();
    match form {
        Form::Nothing => "{}".to_owned(),
        Form::Whole => json!({ "buckets": names }).to_string(),
        Form::Stream if names.is_empty() => "{\"buckets\":[]}".to_owned(),
        Form::Stream => format!("{}{{\"buckets\":[]}}", json!({ "buckets": names })),
    }
}

/// What clients that ask for a bucket's properties may rely on: one copy, no siblings.
pub(crate) fn props(bucket: &[u8]) -> serde_json::Value {
    json!({ "props": {
        "name": uri::show(bucket),
        "allow_mult": false,
        "last_write_wins": false,
        "n_val": 1,
        "r": 1, "w": 1, "dw": 1, "rw": 1, "pr": 0, "pw": 0,
        "basic_quorum": false,
        "notfound_ok": true,
        "precommit": [],
        "postcommit": [],
    } })
}
