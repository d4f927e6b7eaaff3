//! Going through one partition's objects in ledger order, over all buckets, reading as little of each as is asked for.
//!
//! May use: the ledger. Must not know: other partitions, what is looked for.

use std::ops::Bound;

use journal::Position;

use crate::clock::Clock;
use crate::entry::{Entry, Head};
use crate::error::{Error, Result};
use crate::kept::Bytes;
use crate::key;
use crate::ledger::{self, Slice};
use crate::query::{Reader, Value, decode};

/// Which objects to go through.
#[derive(Debug, Clone, Copy)]
pub struct FoldRange<'a> {
    /// Only this bucket.
    pub bucket: Option<&'a [u8]>,
    /// First key, if there is a bucket.
    pub start: Bound<&'a [u8]>,
    /// Last key, if there is a bucket.
    pub end: Bound<&'a [u8]>,
    /// Only what comes behind this place: see [`Item::place`].
    pub after: Option<&'a [u8]>,
}

/// One object that a fold came to.
#[derive(Debug, Clone)]
pub struct Item {
    ledger_key: Slice,
    entry: Bytes,
}

/// Objects, ascending by bucket, then key; expired ones are left out.
pub struct Items {
    entries: ledger::Entries,
    now_ms: u64,
}

impl Item {
    /// Where it stands among all objects: places compare as bucket, then key do.
    #[must_use]
    pub fn place(&self) -> &[u8] {
        &self.ledger_key
    }

    /// Bucket and key.
    ///
    /// # Errors
    /// `Ledger` when they do not decode.
    pub fn name(&self) -> Result<(Vec<u8>, &[u8])> {
        let damaged = || Error::Ledger { path: String::new(), reason: "a key does not decode".into() };
        key::split_object(&self.ledger_key).ok_or_else(damaged)
    }

    /// Its key, when its bucket is known.
    #[must_use]
    pub fn key_in(&self, bucket: &[u8]) -> &[u8] {
        self.ledger_key.get(key::object_prefix_len(bucket)..).unwrap_or_default()
    }

    fn entry(&self) -> Result<Entry<'_>> {
        decode(&self.entry)
    }

    /// Whether it has expired by `now_ms`.
    ///
    /// # Errors
    /// `Ledger` when it does not decode.
    pub fn is_expired(&self, now_ms: u64) -> Result<bool> {
        Ok(self.entry()?.expired(now_ms))
    }

    /// What is known of it.
    ///
    /// # Errors
    /// `Ledger` when it does not decode.
    pub fn head(&self) -> Result<Head> {
        Ok(self.entry()?.head())
    }

    /// What two stores can compare of it.
    ///
    /// # Errors
    /// `Ledger` when it does not decode.
    pub fn clock(&self) -> Result<Clock> {
        Ok(Clock::from(&self.entry()?))
    }

    /// Its version, when it was last changed in milliseconds since 1970, and the length of its value: what needs no copy.
    ///
    /// # Errors
    /// `Ledger` when it does not decode.
    pub fn brief(&self) -> Result<Brief> {
        let entry = self.entry()?;
        let (version, modified_ms, at) = (entry.version, entry.modified_ms, entry.at);
        Ok(Brief { version, modified_ms, at, value_bytes: u64::from(entry.value_bytes) })
    }
}

/// The little of an object that filters and counts look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brief {
    /// Position of the batch that last changed it.
    pub version: Position,
    /// When it was last changed, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Journal address of the command that put it.
    pub at: u64,
    /// Length of its value.
    pub value_bytes: u64,
}

impl Iterator for Items {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (ledger_key, slice) = match self.entries.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            match decode(&slice).map(|entry| entry.expired(self.now_ms)) {
                Ok(true) => {}
                Ok(false) => return Some(Ok(Item { ledger_key, entry: slice.into() })),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Reader {
    /// Objects of this partition in a range.
    pub fn items(&self, range: &FoldRange<'_>, now_ms: u64) -> Items {
        let (mut start, end) = match range.bucket {
            Some(bucket) => {
                let place = |key: &[u8]| key::object(bucket, key);
                let end = match range.end {
                    Bound::Unbounded => Bound::Excluded(key::bucket_end(bucket)),
                    end => end.map(place),
                };
                let start = match range.start {
                    Bound::Unbounded => Bound::Included(place(&[])),
                    start => start.map(place),
                };
                (start, end)
            }
            None => (Bound::Included(key::objects().0), Bound::Excluded(key::objects().1)),
        };
        if let Some(after) = range.after
            && let Bound::Included(from) | Bound::Excluded(from) = &start
            && after >= from.as_slice()
        {
            start = Bound::Excluded(after.to_vec());
        }
        let entries: ledger::Entries = if is_empty(&start, &end) {
            Box::new(std::iter::empty())
        } else {
            self.range(start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice))
        };
        Items { entries, now_ms }
    }

    /// The object as a fold would come to it.
    ///
    /// # Errors
    /// What the ledger says.
    pub fn item(&self, bucket: &[u8], key: &[u8]) -> Result<Option<Item>> {
        let ledger_key = key::object(bucket, key);
        let found = self.entry(&ledger_key)?.map(|stored| stored.entry);
        Ok(found.map(|entry| Item { ledger_key: Slice::new(&ledger_key), entry }))
    }

    /// The value of an object that a fold came to.
    ///
    /// # Errors
    /// `Value` when the stored bytes are not what was put.
    pub fn value_of(&self, item: &Item) -> Result<Value> {
        let (bucket, key) = item.name()?;
        self.value(&bucket, key, &item.entry)
    }
}

/// Whether nothing can lie between these bounds; sorted maps refuse such ranges.
fn is_empty(start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    match (start, end) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}
