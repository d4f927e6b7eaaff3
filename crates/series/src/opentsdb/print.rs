//! Answers as JSON, written straight into bytes.
//!
//! May use: `query`, `column`. Must not know: series.

use std::collections::BTreeMap;

use super::column::Value;
use super::query::{Resolution, Shape, Show, tsuid};
use super::time::{MILLISECOND, SECOND};
use crate::error::Error;
use crate::key::Key;
use crate::source::Series;

/// The tag by which a field that is not the default one is shown.
pub(crate) const FIELD_TAG: &str = "_field";

/// Writes a text with its quotes.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a text is written into memory");
}

pub(crate) fn number(out: &mut Vec<u8>, value: Value) {
    match value {
        Value::Integer(value) => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
        Value::Unsigned(value) => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
        Value::Double(value) if value.is_finite() => {
            out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
        }
        // JSON has no such numbers; OpenTSDB quotes them.
        Value::Double(value) if value.is_nan() => out.extend_from_slice(b"\"NaN\""),
        Value::Double(value) => out.extend_from_slice(if value > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" }),
    }
}

/// The document by which OpenTSDB tells an error.
#[must_use]
pub fn error_document(status: u16, message: &str, details: &str) -> Vec<u8> {
    let document = serde_json::json!({ "error": { "code": status, "message": message, "details": details } });
    document.to_string().into_bytes()
}

/// What an error says to OpenTSDB's clients.
#[must_use]
pub fn message(error: &Error) -> String {
    match error {
        Error::Missing { what: "metric", name } => format!("No such name for 'metrics': '{name}'"),
        _ => error.to_string(),
    }
}

/// The tags of a series as OpenTSDB's clients see them.
pub(crate) fn tags(key: &Key) -> impl Iterator<Item = (&str, &str)> {
    let field = (!key.has_default_field()).then_some((FIELD_TAG, key.field.as_str()));
    key.tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(field)
}

/// The value that such a tag has; the empty string when it is not there.
pub(crate) fn tag<'a>(key: &'a Key, name: &str) -> &'a str {
    match name {
        FIELD_TAG if key.has_default_field() => "",
        FIELD_TAG => &key.field,
        _ => key.tag(name),
    }
}

/// An object of texts.
pub(crate) fn texts<'a>(out: &mut Vec<u8>, pairs: impl Iterator<Item = (&'a str, &'a str)>) {
    out.push(b'{');
    for (nth, (name, value)) in pairs.enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        text(out, name);
        out.push(b':');
        text(out, value);
    }
    out.push(b'}');
}

/// A list of texts.
pub(crate) fn list<'a>(out: &mut Vec<u8>, items: impl Iterator<Item = &'a str>) {
    out.push(b'[');
    for (nth, item) in items.enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        text(out, item);
    }
    out.push(b']');
}

/// Writes what stands before the points of a group of series. Tags whose value is one throughout are its tags; those that differ
/// were aggregated.
pub(crate) fn group(out: &mut Vec<u8>, series: &[&Series], show: Show, query: &serde_json::Value) {
    let mut values: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for (name, value) in series.iter().flat_map(|series| tags(&series.key)) {
        let known = values.entry(name).or_insert(Some(value));
        if *known != Some(value) {
            *known = None;
        }
    }
    out.extend_from_slice(b"{\"metric\":");
    text(out, series.first().map_or("", |series| &series.key.metric));
    out.extend_from_slice(b",\"tags\":");
    texts(out, values.iter().filter_map(|(name, value)| Some((*name, (*value)?))));
    out.extend_from_slice(b",\"aggregateTags\":");
    list(out, values.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| *name));
    if show.query {
        out.extend_from_slice(b",\"query\":");
        serde_json::to_writer(&mut *out, query).expect("JSON is written into memory");
    }
    if show.tsuids {
        let mut ids: Vec<String> = series.iter().map(|series| tsuid(series.id)).collect();
        ids.sort();
        out.extend_from_slice(b",\"tsuids\":");
        list(out, ids.iter().map(String::as_str));
    }
    out.extend_from_slice(b",\"dps\":");
}

/// What a number that is none is printed as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nan {
    Quoted,
    Null,
}

/// Writes the points of one group.
///
/// Of points with one printed time an object has the last: that is what readers make of a name that is there twice.
#[derive(Debug)]
pub(crate) struct Printer {
    shape: Shape,
    resolution: Resolution,
    nan: Nan,
    /// The last point, until it is known that the next has another time.
    pending: Option<(i64, Value)>,
    written: u64,
}

impl Printer {
    pub(crate) fn new(shape: Shape, resolution: Resolution, nan: Nan) -> Self {
        Self { shape, resolution, nan, pending: None, written: 0 }
    }

    pub(crate) fn point(&mut self, out: &mut Vec<u8>, time: i64, value: Value) {
        let time = match self.resolution {
            Resolution::Seconds => time.div_euclid(SECOND),
            Resolution::Milliseconds => time.div_euclid(MILLISECOND),
        };
        if let Some((before, waiting)) = self.pending
            && (before != time || self.shape == Shape::Arrays)
        {
            self.write(out, before, waiting);
        }
        self.pending = Some((time, value));
    }

    fn write(&mut self, out: &mut Vec<u8>, time: i64, value: Value) {
        let (open, middle, close): (&[u8], &[u8], &[u8]) = match self.shape {
            Shape::Object => (b"\"", b"\":", b""),
            Shape::Arrays => (b"[", b",", b"]"),
        };
        let before = match (self.written, self.shape) {
            (0, Shape::Object) => b'{',
            (0, Shape::Arrays) => b'[',
            _ => b',',
        };
        self.written += 1;
        out.push(before);
        out.extend_from_slice(open);
        out.extend_from_slice(itoa::Buffer::new().format(time).as_bytes());
        out.extend_from_slice(middle);
        match value {
            Value::Double(value) if value.is_nan() && self.nan == Nan::Null => out.extend_from_slice(b"null"),
            _ => number(out, value),
        }
        out.extend_from_slice(close);
    }

    /// Writes what is left; how many points there were.
    pub(crate) fn end(mut self, out: &mut Vec<u8>) -> u64 {
        if let Some((time, value)) = self.pending.take() {
            self.write(out, time, value);
        }
        let empty: &[u8] = match (self.written, self.shape) {
            (0, Shape::Object) => b"{}",
            (0, Shape::Arrays) => b"[]",
            (_, Shape::Object) => b"}",
            (_, Shape::Arrays) => b"]",
        };
        out.extend_from_slice(empty);
        self.written
    }

    /// Whether no point came yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.written == 0 && self.pending.is_none()
    }
}
