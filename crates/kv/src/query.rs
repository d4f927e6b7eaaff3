//! Reading one partition's objects, by any thread, beside the engine that changes them.
//!
//! A reader shows the newest state, or holds a view of one moment. Every query names the time it takes for now; an
//! object whose expiry is at or before now is absent.
//!
//! May use: the ledger, the journal's `Log`. Must not know: locks, who waits for what.

use std::ops::{Bound, Deref};
use std::sync::Arc;

use base::crc32c;
use journal::{Log, Position};

use crate::cache::{Entries, Stored};
use crate::command::{Command, Recorded};
use crate::compression::Compression;
use crate::entry::{Entry, Head};
use crate::error::{Error, Result};
use crate::key;
use crate::ledger::{Bounds, Cursor, Reading, View};
use crate::piece::Bytes;

/// Reads objects: the newest, or those of a view. Clones read the same.
#[derive(Clone)]
pub struct Reader {
    pub(crate) entries: Entries,
    view: Option<Arc<dyn View>>,
    pub(crate) log: Arc<dyn Log>,
}

/// An object's value. Dereferences to its bytes.
#[derive(Clone)]
pub struct Value(Bytes);

/// An object: what is known of it, and its value.
#[derive(Debug, Clone)]
pub struct Object {
    /// What is known of it.
    pub head: Head,
    /// Its value.
    pub value: Value,
}

/// An object of any size that was asked for up to some size.
#[derive(Debug, Clone)]
pub enum UpTo {
    /// It is not larger.
    Object(Object),
    /// It is: its value was not touched.
    Larger(Head),
}

impl UpTo {
    /// The object, if its value was read.
    #[must_use]
    pub fn object(self) -> Option<Object> {
        match self {
            Self::Object(object) => Some(object),
            Self::Larger(_) => None,
        }
    }
}

/// What a look-up found, and the version that says so.
#[derive(Debug, Clone)]
pub struct Found<T> {
    /// What was asked for; `None` when absent or expired.
    pub value: Option<T>,
    /// Version of the stored object, also of an expired one; `None` when nothing is stored.
    pub version: Option<Position>,
}

/// A part of a bucket in key order.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Bucket.
    pub bucket: &'a [u8],
    /// First key.
    pub start: Bound<&'a [u8]>,
    /// Last key.
    pub end: Bound<&'a [u8]>,
    /// Most entries to return.
    pub limit: usize,
    /// Whether to return values, not only heads.
    pub values: bool,
}

/// Entries of a page.
#[derive(Debug, Clone, Default)]
pub struct PageOut {
    /// Key, head, and the value if asked for, ascending by key.
    pub entries: Vec<Listed>,
    /// Whether the limit ended the page.
    pub more: bool,
}

impl Value {
    /// A value that is not stored yet.
    #[must_use]
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Value({} bytes)", self.len())
    }
}

impl<T> Found<T> {
    fn nothing() -> Self {
        Self { value: None, version: None }
    }
}

pub(crate) fn decode(slice: &[u8]) -> Result<Entry<'_>> {
    Entry::decode(slice).ok_or_else(damaged)
}

/// What is said of an entry that does not decode.
pub(crate) fn damaged() -> Error {
    Error::Ledger { path: String::new(), reason: "an entry does not decode".into() }
}

/// Whether an entry has expired by `now_ms`, without decoding all of it.
pub(crate) fn is_expired(slice: &[u8], now_ms: u64) -> Result<bool> {
    let expires_ms = Entry::expires_ms_of(slice).ok_or_else(damaged)?;
    Ok(expires_ms != 0 && expires_ms <= now_ms)
}

/// What these partitions have in a range.
pub(crate) fn range_of<'r>(readers: impl Iterator<Item = &'r Reader>, bounds: &Bounds) -> Cursor {
    let mut cursor = Cursor::new(bounds.clone());
    if !bounds.is_empty() {
        readers.for_each(|reader| reader.range_into(&mut cursor));
    }
    cursor
}

/// The value that was stored compressed, proven by its checksum.
fn expand(compression: Compression, stored: &[u8], entry: &Entry<'_>) -> Result<Vec<u8>> {
    let damaged = |reason| Error::Value { at: entry.at, reason };
    let whole = usize::try_from(entry.value_bytes).map_err(|_| damaged("impossible length"))?;
    let value = compression.expand(stored, whole).ok_or_else(|| damaged("it does not decompress"))?;
    if crc32c(&value) == entry.checksum { Ok(value) } else { Err(damaged("checksum mismatch")) }
}

impl Reader {
    pub(crate) fn new(entries: Entries, log: Arc<dyn Log>) -> Self {
        Self { entries, view: None, log }
    }

    /// A reader of what is there now, whatever changes, for as long as it lives: see [`crate::Ledger::view`]. Taken
    /// under the lock of whoever changes the partition, or it may show the half of a batch.
    #[must_use]
    pub fn view(&self) -> Self {
        Self { view: Some(self.entries.ledger.view()), ..self.clone() }
    }

    pub(crate) fn entry(&self, ledger_key: &[u8]) -> Result<Option<Stored>> {
        match &self.view {
            Some(view) => Ok(view.get(ledger_key)?.map(Stored::from)),
            None => self.entries.get(ledger_key),
        }
    }

    pub(crate) fn range(&self, bounds: &Bounds) -> Cursor {
        range_of(std::iter::once(self), bounds)
    }

    fn range_into(&self, cursor: &mut Cursor) {
        match &self.view {
            Some(view) => view.range_into(cursor),
            None => self.entries.ledger.range_into(cursor),
        }
    }

    /// The object at `bucket` and `key`, with its value: one ledger look-up, and one read when the value is large.
    ///
    /// # Errors
    /// `Value` when the stored bytes are not what was put.
    pub fn get(&self, bucket: &[u8], key: &[u8], now_ms: u64) -> Result<Found<Object>> {
        let found = self.get_up_to(bucket, key, now_ms, u64::MAX)?;
        let value = found.value.and_then(UpTo::object);
        Ok(Found { value, version: found.version })
    }

    /// As [`Reader::get`], but leaves a value alone that has more bytes than `bytes_max`.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn get_up_to(&self, bucket: &[u8], key: &[u8], now_ms: u64, bytes_max: u64) -> Result<Found<UpTo>> {
        key::with_object(bucket, key, |ledger_key| self.get_at((bucket, key), ledger_key, now_ms, bytes_max))
    }

    fn get_at(&self, name: (&[u8], &[u8]), ledger_key: &[u8], now_ms: u64, bytes_max: u64) -> Result<Found<UpTo>> {
        let mut gone = None;
        loop {
            let Some(stored) = self.entry(ledger_key)? else { return Ok(Found::nothing()) };
            let entry = decode(&stored.entry)?;
            let version = Some(entry.version);
            if entry.expired(now_ms) {
                return Ok(Found { value: None, version });
            }
            if u64::from(entry.value_bytes) > bytes_max {
                return Ok(Found { value: Some(UpTo::Larger(entry.head())), version });
            }
            let value = match &stored.value {
                Some(value) => Ok(Value(value.clone())),
                None => self.find_value(name, ledger_key, &stored.entry, &entry),
            };
            match value {
                Ok(value) => {
                    return Ok(Found { value: Some(UpTo::Object(Object { head: entry.head(), value })), version });
                }
                // Compaction has moved the value since the look-up, and the entry says where to; unless it says the same.
                Err(Error::Journal(journal::Error::Missing { .. })) if gone != Some(entry.at) => gone = Some(entry.at),
                Err(error) => return Err(error),
            }
        }
    }

    /// What is known of the object, without touching its value.
    ///
    /// # Errors
    /// What the ledger says.
    pub fn head(&self, bucket: &[u8], key: &[u8], now_ms: u64) -> Result<Found<Head>> {
        let Some(stored) = key::with_object(bucket, key, |ledger_key| self.entry(ledger_key))? else {
            return Ok(Found::nothing());
        };
        let entry = decode(&stored.entry)?;
        let value = (!entry.expired(now_ms)).then(|| entry.head());
        Ok(Found { value, version: Some(entry.version) })
    }

    /// The value that a ledger entry stands for. Does not make room for it among what was used lately: whoever goes through
    /// many values uses each once.
    pub(crate) fn value(&self, bucket: &[u8], key: &[u8], stored: &[u8]) -> Result<Value> {
        let entry = decode(stored)?;
        match (entry.inline, entry.compression) {
            (Some(inline), Compression::None) => Ok(Value::from_vec(inline.to_vec())),
            (Some(inline), compression) => expand(compression, inline, &entry).map(Value::from_vec),
            (None, _) => match key::with_object(bucket, key, |ledger_key| self.entries.value(ledger_key, stored)) {
                Some(value) => Ok(Value(value)),
                None => self.stored_value(bucket, key, &entry),
            },
        }
    }

    /// The value if it is in the ledger itself, or was used lately.
    fn at_hand(&self, ledger_key: &[u8], stored: &Bytes, entry: &Entry<'_>) -> Result<Option<Value>> {
        match (entry.inline, entry.compression) {
            (Some(inline), Compression::None) => Ok(Some(Value(stored.clone().last(inline.len())))),
            (Some(inline), compression) => expand(compression, inline, entry).map(Value::from_vec).map(Some),
            (None, _) => Ok(self.entries.value(ledger_key, stored).map(Value)),
        }
    }

    /// The value that an entry without one at hand stands for; what is read from the journal often is kept at hand from then on.
    fn find_value(
        &self,
        (bucket, key): (&[u8], &[u8]),
        ledger_key: &[u8],
        stored: &Bytes,
        entry: &Entry<'_>,
    ) -> Result<Value> {
        if let Some(value) = self.at_hand(ledger_key, stored, entry)? {
            return Ok(value);
        }
        let value = self.stored_value(bucket, key, entry).inspect_err(|error| {
            if let Error::Value { at, reason } = error {
                self.log.note_damage(*at, u64::from(entry.command_bytes), reason);
            }
        })?;
        self.entries.note_value(ledger_key, stored, &value);
        Ok(value)
    }

    fn stored_value(&self, bucket: &[u8], key: &[u8], entry: &Entry<'_>) -> Result<Value> {
        let at = entry.at;
        let damaged = |reason| Error::Value { at, reason };
        let mut buffer = vec![0; usize::try_from(entry.command_bytes).map_err(|_| damaged("impossible length"))?];
        self.log.read_at(at, &mut buffer)?;
        let put = match Recorded::decode(&buffer) {
            Some((Recorded { version: None, command: Command::Put(put) }, _)) => put,
            _ => return Err(damaged("no put command there")),
        };
        if put.bucket != bucket || put.key != key {
            return Err(damaged("another key's value there"));
        }
        if put.compression != Compression::None {
            return expand(put.compression, put.stored, entry).map(Value::from_vec);
        }
        if put.value_bytes != entry.value_bytes || crc32c(put.stored) != entry.checksum {
            return Err(damaged("checksum mismatch"));
        }
        let bytes = put.stored.len();
        Ok(Value(Bytes::from(buffer).last(bytes)))
    }

    /// Bytes of ledger in memory that were not written out.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.entries.ledger.memory_bytes()
    }

    /// Whether the ledger came upon damage and wants to be built anew: see [`crate::Engine::reset`].
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.entries.ledger.is_damaged()
    }

    /// Everything at or below is in the written-out part of the ledger.
    #[must_use]
    pub fn persisted(&self) -> Option<Position> {
        self.entries.ledger.persisted()
    }

    /// Writes out what the engine has rotated: see [`crate::Ledger::write_out`].
    ///
    /// # Errors
    /// `Ledger` when writing fails.
    pub fn write_out(&self) -> Result<()> {
        self.entries.ledger.write_out()
    }

    /// Merges what was written out: see [`crate::Ledger::merge`].
    ///
    /// # Errors
    /// `Ledger` when writing fails.
    pub fn merge(&self) -> Result<()> {
        self.entries.ledger.merge()
    }

    /// Merges what was written out lately: see [`crate::Ledger::settle`].
    ///
    /// # Errors
    /// `Ledger` when writing fails.
    pub fn settle(&self) -> Result<()> {
        self.entries.ledger.settle()
    }

    /// The first bucket after `after`, if there is another: found by skipping, at a cost per bucket and not per key.
    ///
    /// # Errors
    /// What the ledger says.
    pub fn next_bucket(&self, after: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        let (first, end) = key::objects();
        let start = after.map_or(first, key::bucket_end);
        let mut range = self.range(&Bounds::new(Bound::Included(start), Bound::Excluded(end), Reading::Query));
        if !range.advance()? {
            return Ok(None);
        }
        let split = key::split_object(range.key()).map(|(bucket, _)| bucket);
        split.map(Some).ok_or_else(|| Error::Ledger { path: String::new(), reason: "a key does not decode".into() })
    }

    /// Up to `limit` objects whose expiry is at or before `now_ms`, oldest first: bucket and key.
    ///
    /// # Errors
    /// What the ledger says.
    pub fn expired(&self, now_ms: u64, limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (start, end) = key::expired(now_ms);
        let mut range = self.range(&Bounds::new(Bound::Included(start), Bound::Excluded(end), Reading::Sweep));
        let mut expired = Vec::new();
        while expired.len() < limit && range.advance()? {
            let split = key::split_expiry(range.key()).map(|(bucket, key)| (bucket, key.to_vec()));
            let damaged = || Error::Ledger { path: String::new(), reason: "a key does not decode".into() };
            expired.push(split.ok_or_else(damaged)?);
        }
        Ok(expired)
    }
}

/// Key, head, and the value if asked for.
pub type Listed = (Vec<u8>, Head, Option<Value>);
