//! Answers to queries of secondary indexes, in the forms in which Riak's clients read them.
//!
//! `$key` finds keys by themselves and `$bucket` all keys of the bucket; every other index is named with its type. All
//! pages of one answer are of one instant; a continuation goes on in the instant of its own request.
//!
//! One answer is a JSON object, `{"keys":[..]}` or `{"results":[{"term":"key"},..]}`, with a `continuation` when
//! `max_results` cut it off; with `stream=true` it is a multipart/mixed of such objects, the continuation in the last.
//!
//! May use: the facade, `indexes`, `pages`, `uri`. Must not know: HTTP.

use std::ops::Bound;

use holdfast::{Durability, IndexCursor, IndexQuery, Regex, Snapshot, Store, Term};
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::indexes::{self, Kind};
use super::pages::{Piece, Pieces};
use super::uri::{self, Query};

const KEY: &[u8] = b"$key";
const BUCKET: &[u8] = b"$bucket";
/// What the continuation of a query of keys begins with: the other ones are the store's, and hexadecimal.
const KEY_CURSOR: &str = "k-";
/// Stands between the parts of a multipart answer. JSON on one line never has it.
pub(crate) const BOUNDARY: &str = "holdfast-2i-part";

/// What is looked for.
enum Wanted {
    /// Keys from one to another.
    Keys { from: Bound<Vec<u8>>, to: Bound<Vec<u8>> },
    /// Terms of an index.
    Terms { index: Vec<u8>, from: Term, to: Term, cursor: Option<IndexCursor> },
}

/// A query, as a request says it.
pub(crate) struct Request {
    bucket: Vec<u8>,
    wanted: Wanted,
    regex: Option<Regex>,
    with_terms: bool,
    is_stream: bool,
    /// Entries still to be shown; `None` is all there are.
    left: Option<usize>,
    entries_max: usize,
}

/// Bounds on a query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) entries_max: usize,
    pub(crate) regex_bytes_max: usize,
}

impl Request {
    /// `range` is the lowest and the highest term, decoded.
    ///
    /// # Errors
    /// 400 when a parameter, a term or the name of the index is badly formed.
    pub(crate) fn parse(
        bucket: &[u8],
        index: &[u8],
        range: (&[u8], &[u8]),
        query: &Query,
        bounds: Bounds,
    ) -> Result<Self, Failure> {
        let continuation = query.get("continuation").filter(|text| !text.is_empty());
        let regex = query.get("term_regex").map(|pattern| regex(pattern, bounds.regex_bytes_max)).transpose()?;
        let left = match query.number("max_results")? {
            Some(0) => return Err(Failure::bad("max_results is at least 1")),
            Some(most) => Some(usize::try_from(most).unwrap_or(usize::MAX)),
            None => None,
        };
        let wanted = if index == KEY || index == BUCKET {
            let is_key = index == KEY;
            let from = if is_key { Bound::Included(range.0.to_vec()) } else { Bound::Unbounded };
            let to = if is_key { Bound::Included(range.1.to_vec()) } else { Bound::Unbounded };
            let from = match continuation {
                Some(text) => Bound::Excluded(after_key(text)?),
                None => from,
            };
            Wanted::Keys { from, to }
        } else {
            let (index, kind) = indexes::index_of(index)?;
            if kind == Kind::Integer && regex.is_some() {
                return Err(Failure::bad("a term_regex works on _bin indexes and $key"));
            }
            let (from, to) = (indexes::term(kind, range.0)?, indexes::term(kind, range.1)?);
            let cursor = continuation.map(|text| IndexCursor::decode(&String::from_utf8_lossy(text)));
            Wanted::Terms { index, from, to, cursor: cursor.transpose()? }
        };
        let (with_terms, is_stream) = (query.flag("return_terms")?, query.flag("stream")?);
        let (bucket, entries_max) = (bucket.to_vec(), bounds.entries_max);
        Ok(Request { bucket, wanted, regex, with_terms, is_stream, left, entries_max })
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Takes a snapshot and waits until it may be shown.
    ///
    /// # Errors
    /// As [`Store::snapshot`] and [`Store::wait`].
    pub(crate) fn begin(self, store: &Store, durability: Durability) -> holdfast::Result<Entries> {
        let snapshot = store.snapshot()?;
        store.wait(snapshot.position(), durability)?;
        Ok(Entries { request: self, snapshot, written: Written::Nothing })
    }
}

fn regex(pattern: &[u8], bytes_max: usize) -> Result<Regex, Failure> {
    if pattern.len() > bytes_max {
        return Err(Failure::bad(format!("a term_regex has at most {bytes_max} bytes")));
    }
    let pattern = std::str::from_utf8(pattern).map_err(|_| Failure::bad("the term_regex is not UTF-8"))?;
    Ok(holdfast::regex(pattern)?)
}

fn after_key(text: &[u8]) -> Result<Vec<u8>, Failure> {
    let key = text.strip_prefix(KEY_CURSOR.as_bytes()).and_then(uri::decode);
    key.ok_or_else(|| Failure::bad("the continuation is not one that this query has given out"))
}

/// Where a query goes on.
enum Next {
    After(Vec<u8>),
    Cursor(IndexCursor),
}

impl Next {
    fn encode(&self) -> String {
        match self {
            Next::After(key) => format!("{KEY_CURSOR}{}", uri::encode(key)),
            Next::Cursor(cursor) => cursor.encode(),
        }
    }
}

/// Terms and keys.
type Rows = Vec<(Term, Vec<u8>)>;

/// The entries that a request asked for, as of one instant.
pub(crate) struct Entries {
    request: Request,
    snapshot: Snapshot,
    written: Written,
}

/// How far an answer that is one JSON object has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Nothing,
    Opening,
    Entries,
}

impl Entries {
    /// The next entries, whether or not the expression matches them.
    fn look(&self, limit: usize) -> holdfast::Result<(Rows, Option<Next>)> {
        let bucket = &self.request.bucket;
        match &self.request.wanted {
            Wanted::Keys { from, to } if is_empty(from, to) => Ok((Vec::new(), None)),
            Wanted::Keys { from, to } => {
                let (start, end) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
                let page = holdfast::Page { bucket, start, end, limit, values: false };
                let page = self.snapshot.page(&page)?;
                let next = page.entries.last().filter(|_| page.more).map(|(key, ..)| Next::After(key.clone()));
                let entries = page.entries.into_iter().map(|(key, ..)| (Term::Binary(key.clone()), key));
                Ok((entries.collect(), next))
            }
            Wanted::Terms { from, to, .. } if from > to => Ok((Vec::new(), None)),
            Wanted::Terms { index, from, to, cursor } => {
                let (term_regex, after) = (None, cursor.as_ref());
                let page = self.snapshot.index(&IndexQuery { bucket, index, from, to, term_regex, limit, after })?;
                Ok((page.entries.to_vec(), page.next.map(Next::Cursor)))
            }
        }
    }

    /// At most `limit` of the next entries that match, and the continuation; the request goes on behind them.
    ///
    /// The expression is applied here and not by the store, so that each step costs what one page costs, however few
    /// entries match.
    fn page(&mut self, limit: usize) -> holdfast::Result<(Rows, Option<String>)> {
        let is_match = |regex: &Regex, term: &Term| match term {
            Term::Binary(bytes) => regex.is_match(bytes),
            Term::Integer(_) => false,
        };
        let (entries, next) = match &self.request.regex {
            None => self.look(limit)?,
            Some(regex) => {
                let (mut entries, mut next) = self.look(self.request.entries_max)?;
                let mut matching = entries.iter().enumerate().filter(|(_, (term, _))| is_match(regex, term));
                // The first entry that is too many.
                let end = matching.nth(limit).map(|(index, _)| index);
                if let Some(end) = end {
                    (entries, next) = self.look(end)?;
                }
                entries.retain(|(term, _)| is_match(regex, term));
                (entries, next)
            }
        };
        let continuation = next.as_ref().map(Next::encode);
        match (&mut self.request.wanted, next) {
            (Wanted::Keys { from, .. }, Some(Next::After(key))) => *from = Bound::Excluded(key),
            (Wanted::Terms { cursor, .. }, Some(Next::Cursor(next))) => *cursor = Some(next),
            _ => {}
        }
        Ok((entries, continuation))
    }

    fn values(&self, entries: &[(Term, Vec<u8>)]) -> Vec<Value> {
        let value = |(term, key): &(Term, Vec<u8>)| {
            let key = Value::String(uri::show(key));
            if self.request.with_terms { Value::Object(Map::from_iter([(indexes::show(term), key)])) } else { key }
        };
        entries.iter().map(value).collect()
    }

    fn name(&self) -> &'static str {
        if self.request.with_terms { "results" } else { "keys" }
    }
}

fn is_empty(from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        _ => false,
    }
}

impl Pieces for Entries {
    fn next(&mut self) -> holdfast::Result<Piece> {
        let limit = self.request.left.unwrap_or(usize::MAX).min(self.request.entries_max);
        let (entries, continuation) = self.page(limit)?;
        if let Some(left) = &mut self.request.left {
            *left -= entries.len().min(*left);
        }
        let is_last = continuation.is_none() || self.request.left == Some(0);
        let values = self.values(&entries);
        let text = match self.request.is_stream {
            true => parts(self.name(), values, is_last.then_some(continuation)),
            false => {
                let opening = format!("{{\"{}\":[", self.name());
                part_of_one(&opening, &mut self.written, &values, is_last.then_some(continuation))
            }
        };
        Ok(if is_last { Piece::Last(text.into()) } else { Piece::More(text.into()) })
    }
}

/// A piece of an answer that is one JSON object; `end` is there in the last, with the continuation if it has one.
fn part_of_one(opening: &str, written: &mut Written, values: &[Value], end: Option<Option<String>>) -> String {
    let mut text = String::new();
    if *written == Written::Nothing {
        text.push_str(opening);
        *written = Written::Opening;
    }
    for value in values {
        if *written == Written::Entries {
            text.push(',');
        }
        text.push_str(&value.to_string());
        *written = Written::Entries;
    }
    if let Some(continuation) = end {
        text.push(']');
        if let Some(continuation) = continuation {
            text.push_str(&format!(",\"continuation\":{}", json!(continuation)));
        }
        text.push('}');
    }
    text
}

/// A piece of a multipart answer.
fn parts(name: &str, values: Vec<Value>, end: Option<Option<String>>) -> String {
    let part = |value: &Value| format!("\r\n--{BOUNDARY}\r\nContent-Type: application/json\r\n\r\n{value}");
    let mut text = String::new();
    if !values.is_empty() {
        text.push_str(&part(&Value::Object(Map::from_iter([(name.to_owned(), Value::Array(values))]))));
    }
    if let Some(continuation) = end {
        if let Some(continuation) = continuation {
            text.push_str(&part(&json!({ "continuation": continuation })));
        }
        text.push_str(&format!("\r\n--{BOUNDARY}--\r\n"));
    }
    text
}
