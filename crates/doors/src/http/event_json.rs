//! What a client wants to hear of, and what it is told, as JSON. docs/reference/http.md describes both for users.
//!
//! May use: the facade, `failure`, `fields`, `space_json`, `uri`. Must not know: who waits, and how.

use std::time::Duration;

use holdfast::space::{
    Bookmark, Document, Entries, Hears, Listen, ListenName, Notice, NoticeKind, Reason, Storage, Value, Wanted,
};

use super::failure::Failure;
use super::fields::Fields;
use super::showing::Text;
use super::space_json::{self, Bounds};
use super::uri::{self, Query};
use crate::argument;
use crate::budget::Exhausted;

/// Events that wait in memory for one listener; of more it reads in the journal. Of a volatile type more are lost.
const BUFFER_EVENTS: usize = 4 << 10;

/// What a request wants to hear.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) wanted: Wanted,
    pub(crate) listen: Listen,
    /// What the listener by name has done with.
    pub(crate) acknowledged: Option<Bookmark>,
    /// The run of the server in which the client heard what it keeps.
    pub(crate) run: Option<String>,
    pub(crate) limit: usize,
    pub(crate) wait: Duration,
}

/// The fields that parameters say, as they would stand in a body.
pub(crate) fn of_query(query: &Query) -> Result<Fields, Failure> {
    let mut fields = Fields::default();
    if query.get("name").is_some() {
        // What is sent to it would be lost for whoever relies on the name.
        return Err(Failure::bad("a listener by name is asked for by POST, with the name in the body"));
    }
    for name in ["from", "hears", "where", "run"] {
        if let Some(text) = query.get(name) {
            let text = std::str::from_utf8(text).map_err(|_| Failure::bad(format!("{name} is not UTF-8")))?;
            fields.put(name, Value::from(text));
        }
    }
    for name in ["wait_ms", "limit"] {
        if let Some(number) = query.get(name) {
            let number = uri::number(number).ok_or_else(|| Failure::bad(format!("{name} has to be a whole number")))?;
            fields.put(name, Value::from(number));
        }
    }
    for name in ["id", "routing", "template", "parameters"] {
        if let Some(word) = query.get(name) {
            fields.put(name, argument::value(word)?);
        }
    }
    fields.put("conflate", Value::Bool(query.flag("conflate")?));
    Ok(fields)
}

/// What fields say. Only a body, which may change something, may have a name.
pub(crate) fn wish(mut fields: Fields, entries: &Entries, bounds: Bounds) -> Result<Wish, Failure> {
    let fields = &mut fields;
    let (wanted, definition) = (space_json::wanted(fields, entries.store())?, entries.definition());
    let limit = space_json::limit(fields, &wanted, bounds.limit_default)?.clamp(1, bounds.limit);
    let wait = fields.number("wait_ms")?.map(Duration::from_millis).unwrap_or_default().min(bounds.wait);
    let all = Hears { updated: definition.history || definition.storage == Storage::Volatile, ..Hears::ALL };
    let hears = fields.text("hears")?.map_or(Ok(all), |words| hears(&words))?;
    let from = fields.text("from")?.map(|text| bookmark(&text)).transpose()?;
    let acknowledged = fields.text("ack")?.map(|text| bookmark(&text)).transpose()?;
    let retain_bytes = fields.number("retain_bytes")?;
    let name = fields.text("name")?.map(|name| ListenName { name, retain_bytes });
    if name.is_none() && (acknowledged.is_some() || retain_bytes.is_some()) {
        return Err(Failure::bad("ack and retain_bytes are for a listener by name"));
    }
    let listen = Listen { hears, from, buffer_events: BUFFER_EVENTS, conflate: fields.flag("conflate")?, name };
    let run = fields.text("run")?;
    std::mem::take(fields).end()?;
    Ok(Wish { wanted, listen, acknowledged, run, limit, wait })
}

/// A bookmark, or `start`.
pub(crate) fn bookmark(text: &str) -> Result<Bookmark, Failure> {
    if text == "start" {
        return Ok(Bookmark::START);
    }
    Ok(text.parse::<Bookmark>()?)
}

fn hears(words: &str) -> Result<Hears, Failure> {
    let mut hears = Hears { written: false, updated: false, taken: false, expired: false, entered: false, left: false };
    for word in words.split(',') {
        *match word {
            "written" => &mut hears.written,
            "updated" => &mut hears.updated,
            "taken" => &mut hears.taken,
            "expired" => &mut hears.expired,
            "entered" => &mut hears.entered,
            "left" => &mut hears.left,
            _ => {
                let text = "hears takes written, updated, taken, expired, entered and left, with commas between";
                return Err(Failure::bad(text));
            }
        } = true;
    }
    Ok(hears)
}

pub(crate) fn kind(notice: &Notice) -> &'static str {
    match notice.kind {
        NoticeKind::Written => "written",
        NoticeKind::Updated => "updated",
        NoticeKind::Taken => "taken",
        NoticeKind::Expired => "expired",
        NoticeKind::Entered => "entered",
        NoticeKind::Left => "left",
    }
}

/// One event.
pub(crate) fn event(notice: &Notice) -> String {
    let document = |document: &Option<Document>| document.as_ref().map_or_else(|| "null".to_owned(), Document::to_json);
    let reason = match notice.removed {
        None => "null",
        Some(Reason::Taken) => "\"taken\"",
        Some(Reason::Expired) => "\"expired\"",
        Some(Reason::Cleared) => "\"cleared\"",
        Some(Reason::Evicted) => "\"evicted\"",
    };
    let (kind, bookmark) = (kind(notice), notice.bookmark);
    let (now, before) = (document(&notice.after), document(&notice.before));
    format!("{{\"kind\":\"{kind}\",\"bookmark\":\"{bookmark}\",\"now\":{now},\"before\":{before},\"reason\":{reason}}}")
}

/// Bytes of the documents in events where they are stored.
pub(crate) fn stored_bytes(notices: &[Notice]) -> usize {
    let documents = notices.iter().flat_map(|notice| [&notice.after, &notice.before]).flatten();
    documents.map(|document| document.as_bytes().len()).sum()
}

/// The answer to who asked.
pub(crate) fn add_events(
    text: &mut Text,
    notices: &[Notice],
    bookmark: Bookmark,
    has_more: bool,
) -> Result<(), Exhausted> {
    text.add(&format!("{{\"bookmark\":\"{bookmark}\",\"more\":{has_more},\"events\":["))?;
    text.add_list(notices.iter().map(event))?;
    text.add("]}")
}
