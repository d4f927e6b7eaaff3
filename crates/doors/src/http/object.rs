//! Reading, storing and removing one object. Everything here blocks.
//!
//! An answer, a refusal by a condition included, waits until what it rests on is as durable as was asked: nothing is shown
//! that may vanish.
//!
//! May use: the facade, `conditions`, `metadata`, `indexes`. Must not know: sockets.

use axum::http::header::{CONTENT_LENGTH, ETAG, HeaderValue, LAST_MODIFIED};
use axum::http::{HeaderMap, HeaderName};
use holdfast::{Durability, Head, Indexes, Metadata, Position, PutOptions, Scope, Store, Value};

use super::conditions::{self, Conditions, State, VCLOCK, Verdict};
use super::failure::Failure;
use super::{indexes, metadata};
use crate::budget::{Budget, Share};

/// When an object expires, in milliseconds since 1970.
pub(crate) const EXPIRES: &str = "x-holdfast-expires";
/// How durable what an answer says is.
pub(crate) const DURABILITY: &str = "x-holdfast-durability";
/// Values up to so many bytes are sent without a share of the budget: an event loop holds a few of them anyway.
const SMALL_BYTES: u64 = 16 << 10;

/// What has to be waited for before something read may be shown. A window's sync was scheduled by the writer.
pub(crate) fn shown_at(durability: Durability) -> Durability {
    match durability {
        Durability::Synced => Durability::Synced,
        Durability::Window(_) | Durability::Written => Durability::Written,
    }
}

/// What is known of an object, for the headers of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    version: Position,
    modified_ms: u64,
    expires_ms: Option<u64>,
    metadata: Metadata,
    indexes: Indexes,
    value_bytes: u64,
}

impl Facts {
    fn of(head: &Head) -> Self {
        Facts {
            version: head.version,
            modified_ms: head.modified_ms,
            expires_ms: head.expires_ms,
            metadata: head.metadata.clone(),
            indexes: head.indexes.clone(),
            value_bytes: head.value_bytes,
        }
    }

    /// Adds what an answer without a body says too.
    pub(crate) fn write_state(&self, headers: &mut HeaderMap) {
        let modified = std::time::UNIX_EPOCH + std::time::Duration::from_millis(self.modified_ms.min(DATE_MS_MAX));
        for (name, value) in [
            (ETAG, conditions::tag(self.version)),
            (HeaderName::from_static(VCLOCK), conditions::vclock(self.version)),
            (LAST_MODIFIED, httpdate::fmt_http_date(modified)),
        ] {
            insert(headers, name, &value);
        }
        if let Some(expires_ms) = self.expires_ms {
            insert(headers, HeaderName::from_static(EXPIRES), &expires_ms.to_string());
        }
    }

    /// Adds all there is to say.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        self.write_state(headers);
        metadata::write(&self.metadata, headers);
        indexes::write(self.indexes.iter(), headers);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(self.value_bytes));
    }
}

/// The last second of the year 9999: no header's date goes beyond.
const DATE_MS_MAX: u64 = 253_402_300_799_000;

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn state(head: &Head) -> State {
    State { version: head.version, modified_ms: head.modified_ms }
}

/// Bucket and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) bucket: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

/// A value that is being sent, and its share of the budget.
pub(crate) struct Sent {
    value: Value,
    _share: Share,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.value
    }
}

/// What reading finds.
pub(crate) enum Fetched {
    /// The object; the value unless only the head was wanted.
    Object(Facts, Option<Sent>),
    NotModified(Facts),
}

/// How to read.
#[derive(Debug, Clone)]
pub(crate) struct Fetch {
    pub(crate) conditions: Conditions,
    pub(crate) durability: Durability,
    pub(crate) is_head: bool,
}

/// Reads an object, or only what is known of it when nothing else is needed.
///
/// # Errors
/// 404 when there is none, 412 when a condition does not hold, 503 when too much is being sent already, and what the
/// store says.
pub(crate) fn fetch(store: &Store, budget: &Budget, name: &Name, wanted: &Fetch) -> Result<Fetched, Failure> {
    let Fetch { conditions, durability, is_head } = wanted;
    let shown = store.kv().peek_head(&name.bucket, &name.key)?;
    store.wait(shown.position, shown_at(*durability))?;
    let head = shown.value.ok_or_else(|| missing(conditions))?;
    match conditions.read(state(&head)) {
        Verdict::Failed => return Err(Failure::precondition()),
        Verdict::NotModified => return Ok(Fetched::NotModified(Facts::of(&head))),
        Verdict::Answer if *is_head => return Ok(Fetched::Object(Facts::of(&head), None)),
        Verdict::Answer => {}
    }
    let mut share = Share::default();
    if head.value_bytes > SMALL_BYTES {
        budget.grow(&mut share, usize::try_from(head.value_bytes).unwrap_or(usize::MAX))?;
    }
    let shown = store.kv().peek(&name.bucket, &name.key)?;
    store.wait(shown.position, shown_at(*durability))?;
    let object = shown.value.ok_or_else(|| missing(conditions))?;
    // It may have changed since its head was looked at.
    match conditions.read(state(&object.head)) {
        Verdict::Failed => Err(Failure::precondition()),
        Verdict::NotModified => Ok(Fetched::NotModified(Facts::of(&object.head))),
        Verdict::Answer => {
            Ok(Fetched::Object(Facts::of(&object.head), Some(Sent { value: object.value, _share: share })))
        }
    }
}

fn missing(conditions: &Conditions) -> Failure {
    if conditions.needs_object() { Failure::precondition() } else { Failure::not_found() }
}

/// When a stored object expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    Never,
    /// As the object that is replaced.
    Keep,
    /// After so many milliseconds.
    AfterMs(u64),
    /// At a time, in milliseconds since 1970.
    AtMs(u64),
}

/// What to store, and how.
#[derive(Debug, Clone)]
pub(crate) struct Put {
    pub(crate) value: Vec<u8>,
    pub(crate) options: PutOptions,
    pub(crate) expiry: Expiry,
    pub(crate) conditions: Conditions,
    pub(crate) durability: Durability,
}

/// Stores an object if its conditions hold, and waits until that is durable.
///
/// # Errors
/// 409 or 412 when a condition does not hold, 400 when the expiry has passed, and what the store says.
pub(crate) fn put(store: &Store, name: &Name, put: &Put) -> Result<Facts, Failure> {
    let Put { value, options, expiry, conditions, durability } = put;
    let (bucket, key) = (name.bucket.as_slice(), name.key.as_slice());
    let mut exclusive = store.exclusive(&Scope::Keys(&[(bucket, key)]))?;
    let now_ms = exclusive.now_ms();
    let head = if *conditions == Conditions::default() && *expiry != Expiry::Keep {
        None
    } else {
        exclusive.head(bucket, key)?
    };
    if let Err(failure) = conditions.write(head.as_ref().map(state)) {
        let seen = exclusive.commit()?;
        store.wait(seen.position, shown_at(*durability))?;
        return Err(failure);
    }
    let expires_ms = match expiry {
        Expiry::Never => None,
        Expiry::Keep => head.and_then(|head| head.expires_ms),
        Expiry::AfterMs(time) => Some(now_ms.saturating_add(*time)),
        Expiry::AtMs(at) if *at <= now_ms => return Err(Failure::bad("the time in X-Holdfast-Expires has passed")),
        Expiry::AtMs(at) => Some(*at),
    };
    let options = PutOptions { expires_ms, ..options.clone() };
    exclusive.put(bucket, key, value, &options)?;
    let version = exclusive.commit()?.position;
    store.wait(version, *durability)?;
    let PutOptions { metadata, indexes, .. } = options;
    Ok(Facts { version, modified_ms: now_ms, expires_ms, metadata, indexes, value_bytes: value.len() as u64 })
}

/// Removes an object if its conditions hold, and waits until that is durable.
///
/// # Errors
/// 404 when there is none, 409 or 412 when a condition does not hold, and what the store says.
pub(crate) fn delete(
    store: &Store,
    name: &Name,
    conditions: &Conditions,
    durability: Durability,
) -> Result<(), Failure> {
    let (bucket, key) = (name.bucket.as_slice(), name.key.as_slice());
    let mut exclusive = store.exclusive(&Scope::Keys(&[(bucket, key)]))?;
    let head = exclusive.head(bucket, key)?;
    let refused = conditions.write(head.as_ref().map(state)).err();
    let refused = refused.or_else(|| head.is_none().then(Failure::not_found));
    if refused.is_none() {
        exclusive.delete(bucket, key)?;
    }
    let committed = exclusive.commit()?;
    match refused {
        None => Ok(store.wait(committed.position, durability)?),
        Some(failure) => {
            store.wait(committed.position, shown_at(durability))?;
            Err(failure)
        }
    }
}
