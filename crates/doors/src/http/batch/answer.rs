//! What the operations of a batch did, and how that is told.
//!
//! May use: the facade, `space_json`, `noted`. Must not know: HTTP's messages, rights, how operations are done.

use holdfast::space::{Document, Entry, Value};
use holdfast::{Object, Position};
use serde_json::json;

use super::noted;
use crate::http::{base64, metadata, space_json};

/// What an operation did. Versions that are those of the batch are known when it is committed.
pub(super) enum Answer {
    /// With what was there before, where that is told.
    Written {
        id: Value,
        version: Position,
        previous: Option<Option<Entry>>,
    },
    Entries(Vec<Entry>),
    Changed {
        now: Entry,
        previous: Option<Entry>,
    },
    ChangedAll(usize),
    Renewed(bool),
    Rows(Vec<Document>),
    Put,
    Deleted(bool),
    Got(Option<Object>),
    Count(u64),
    Cleared(u64),
    Points(usize),
    Acknowledged,
}

/// A version that is that of the commit to come.
pub(super) const OWN: Position = Position::MAX;
/// One that nobody knows before the commit, because it is not the commit's: of an entry that is in no journal.
pub(super) const UNKNOWN: Position = Position::ZERO;

/// Answers as a list of JSON. Versions that are the commit's are `position`, or null as long as there is none; so are those that are not known.
pub(super) fn list(answers: &[Answer], position: Option<Position>) -> String {
    let answers: Vec<String> = answers.iter().map(|answer| answer.to_json(position)).collect();
    format!("[{}]", answers.join(","))
}

impl Answer {
    fn to_json(&self, position: Option<Position>) -> String {
        let version = |version: Position| match version {
            OWN => position,
            UNKNOWN => None,
            version => Some(version),
        };
        let entry = |entry: &Entry| space_json::entry(entry, version(entry.version));
        let own = space_json::version(position);
        match self {
            Answer::Written { id, version: written, previous } => {
                let previous = previous.as_ref().map(|was| was.as_ref().map_or_else(|| "null".to_owned(), entry));
                space_json::written(id, version(*written), previous)
            }
            Answer::Put => format!("{{\"version\":{own}}}"),
            Answer::Deleted(is) => json!({ "deleted": is }).to_string(),
            Answer::Count(count) => json!({ "count": count }).to_string(),
            Answer::Cleared(count) => json!({ "cleared": count }).to_string(),
            Answer::ChangedAll(count) => json!({ "changed": count }).to_string(),
            Answer::Renewed(is) => json!({ "renewed": is }).to_string(),
            Answer::Rows(rows) => space_json::rows(rows),
            Answer::Points(count) => json!({ "points": count }).to_string(),
            Answer::Acknowledged => "{}".to_owned(),
            Answer::Changed { now, previous } => space_json::changed(entry(now), previous.as_ref().map(entry)),
            Answer::Entries(entries) => {
                let entries: Vec<String> = entries.iter().map(entry).collect();
                format!("{{\"entries\":[{}]}}", entries.join(","))
            }
            Answer::Got(None) => json!({ "object": null }).to_string(),
            Answer::Got(Some(Object { head, value })) => {
                let version = space_json::version(version(head.version));
                let (key, value) = match std::str::from_utf8(value) {
                    Ok(text) => ("value", text.to_owned()),
                    Err(_) => ("value_base64", base64::encode(value)),
                };
                let kind = head.metadata.iter().find(|(name, _)| *name == metadata::TYPE_NAME);
                let kind = kind.map(|(_, kind)| String::from_utf8_lossy(kind).into_owned());
                let value = json!(value);
                let (metadata, indexes) = (noted::metadata_json(&head.metadata), noted::indexes_json(&head.indexes));
                format!(
                    "{{\"object\":{{\"version\":{version},\"expires_ms\":{},\"content_type\":{},\"metadata\":{metadata},\"indexes\":{indexes},\"{key}\":{value}}}}}",
                    json!(head.expires_ms),
                    json!(kind),
                )
            }
        }
    }
}
