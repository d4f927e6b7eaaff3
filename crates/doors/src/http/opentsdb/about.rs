//! What is the same whatever the points: aggregators, filters, configuration, version, numbers, UIDs.
//!
//! May use: the facade's `series::opentsdb`, `shared`. Must not know: series.

use axum::response::Response;
use holdfast::series::opentsdb::{self, Parameters};
use serde_json::{Map, Value, json};

use super::super::failure::Failure;
use super::super::shared::Snapshot;
use super::asking;

/// What clients are told that they talk to: some ask for less, or in another form, from an older one.
const VERSION: &str = "2.4.0";
/// Names that are given UIDs in one request.
const NAMES_MAX: usize = 10_000;

fn document(value: &Value) -> Response {
    asking::json(value.to_string().into_bytes())
}

pub(super) fn aggregators() -> Response {
    document(&json!(opentsdb::aggregators()))
}

pub(super) fn filters() -> Response {
    let all = opentsdb::filters().map(|(name, examples, description)| {
        (name.to_owned(), json!({ "examples": examples, "description": description }))
    });
    document(&Value::Object(all.collect()))
}

/// Those of OpenTSDB's settings that clients look at, as they would have to stand for this server to do as it does.
pub(super) fn config() -> Response {
    document(&json!({
        "tsd.core.auto_create_metrics": "true",
        "tsd.core.auto_create_tagks": "true",
        "tsd.core.auto_create_tagvs": "true",
        "tsd.http.request.enable_chunked": "true",
        "tsd.http.query.allow_delete": "true",
        "tsd.mode": "rw",
        "tsd.query.skip_unresolved_tagvs": "true",
        "tsd.query.timeout": "0",
    }))
}

pub(super) fn version(own: &str) -> Response {
    document(&json!({
        "version": VERSION,
        "short_revision": own,
        "full_revision": own,
        "repo": "holdfast",
        "repo_status": "MINT",
        "branch": "",
        "host": "",
        "user": "",
        "timestamp": "0",
    }))
}

/// The server's numbers as points, in OpenTSDB's form.
pub(super) fn stats(snapshot: &Snapshot) -> Response {
    let Snapshot { stats, shared, doors, .. } = snapshot;
    let seconds = shared.store.now_ms() / 1_000;
    let mut points = Vec::new();
    let mut add = |metric: &str, value: u64, tags: Value| {
        points.push(json!({ "metric": metric, "timestamp": seconds, "value": value.to_string(), "tags": tags }));
    };
    add("holdfast.uptime_seconds", shared.started.elapsed().as_secs(), json!({}));
    add("holdfast.batches", stats.batches, json!({}));
    add("holdfast.journal_bytes", stats.journal_bytes, json!({}));
    add("holdfast.unsynced_bytes", stats.unsynced_bytes, json!({}));
    add("holdfast.partitions", stats.partitions as u64, json!({}));
    for (class, count) in shared.answers.classes() {
        add("holdfast.http.answers", count, json!({ "class": class }));
    }
    for (door, numbers) in doors {
        add("holdfast.connections", numbers.connections, json!({ "door": door }));
    }
    document(&Value::Array(points))
}

const KINDS: [&str; 3] = ["metric", "tagk", "tagv"];

/// UIDs in place of those that OpenTSDB would give. There are none here: names need not be known before they are written. So a UID is
/// made from the name alone, always the same, and stands for nothing.
fn assign(names: impl Iterator<Item = (&'static str, Vec<String>)>) -> Result<Response, Failure> {
    let mut all = Map::new();
    let mut count = 0;
    for (kind, names) in names {
        let mut given = Map::new();
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            count += 1;
            if count > NAMES_MAX {
                return Err(Failure::bad(format!("at most {NAMES_MAX} names are given UIDs at a time")));
            }
            let uid = format!("{:012X}", hash(&name) >> 16);
            given.insert(name, json!(uid));
        }
        if !given.is_empty() {
            all.insert(kind.to_owned(), Value::Object(given));
        }
    }
    match count {
        0 => Err(Failure::bad("Missing names: write metric=, tagk= or tagv=, each with names between commas")),
        _ => Ok(document(&Value::Object(all))),
    }
}

pub(super) fn assign_from_parameters(parameters: &Parameters) -> Result<Response, Failure> {
    let split = |kind: &'static str| {
        let texts = parameters.all(kind).flat_map(|text| text.split(','));
        (kind, texts.map(|name| name.trim().to_owned()).collect())
    };
    assign(KINDS.into_iter().map(split))
}

pub(super) fn assign_from_json(body: &[u8]) -> Result<Response, Failure> {
    let parsed: Value = serde_json::from_slice(body)
        .map_err(|error| Failure::bad(format!("Unable to parse the given JSON: {error}")))?;
    let names = |kind: &'static str| {
        let list = parsed.get(kind).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        (kind, list.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
    };
    assign(KINDS.into_iter().map(names))
}

/// FNV-1a: nothing depends on it but that a name has one UID for ever.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
