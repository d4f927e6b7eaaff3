//! Going through the objects of one or more partitions in ledger order, over all buckets, reading as little of each as is asked for.
//!
//! May use: readers, the ledger. Must not know: who picks the partitions, what is looked for.

use std::ops::Bound;

use journal::Position;

use crate::bytes::len32;
use crate::clock::Clock;
use crate::command::Put;
use crate::entry::{Brief, Entry, FIXED_BYTES, Head};
use crate::error::{Error, Result};
use crate::key;
use crate::ledger::{Bounds, Cursor, Reading};
use crate::piece::Bytes;
use crate::query::{Reader, Value, damaged, decode, is_expired, range_of};

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

/// One object that a fold came to. Most of it is decoded when it is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    ledger_key: &'a [u8],
    /// As the ledger has it.
    stored: &'a [u8],
}

/// An object that was looked up, as a fold would come to it.
pub struct Looked {
    ledger_key: Vec<u8>,
    stored: Bytes,
}

/// Objects, ascending by bucket, then key; expired ones are left out. It stands on an object once [`Items::advance`] said so.
pub struct Items {
    entries: Cursor,
    now_ms: u64,
}

impl FoldRange<'_> {
    /// Everything, or all of a bucket.
    #[must_use]
    pub fn all(bucket: Option<&[u8]>) -> FoldRange<'_> {
        FoldRange { bucket, start: Bound::Unbounded, end: Bound::Unbounded, after: None }
    }

    /// Whether a place is in its bucket: see [`Item::place`].
    #[must_use]
    pub fn holds(&self, place: &[u8]) -> bool {
        self.bucket.is_none_or(|bucket| place.starts_with(&key::object(bucket, &[])))
    }

    /// Where the range lies in ledgers: the same for all partitions.
    #[must_use]
    pub fn bounds(&self, reading: Reading) -> Bounds {
        let (mut start, end) = match self.bucket {
            Some(bucket) => {
                let place = |key: &[u8]| key::object(bucket, key);
                let end = match self.end {
                    Bound::Unbounded => Bound::Excluded(key::bucket_end(bucket)),
                    end => end.map(place),
                };
                let start = match self.start {
                    Bound::Unbounded => Bound::Included(place(&[])),
                    start => start.map(place),
                };
                (start, end)
            }
            None => (Bound::Included(key::objects().0), Bound::Excluded(key::objects().1)),
        };
        if let Some(after) = self.after
            && let Bound::Included(from) | Bound::Excluded(from) = &start
            && after >= from.as_slice()
        {
            start = Bound::Excluded(after.to_vec());
        }
        Bounds::new(start, end, reading)
    }
}

impl Looked {
    /// The object that a put made, as the ledger has it as long as nothing else has changed it.
    #[must_use]
    pub fn of_put(put: &Put<'_>, version: Position, at: u64, command_bytes: usize) -> Self {
        let entry = Entry {
            version,
            modified_ms: put.modified_ms,
            expires_ms: put.expires_ms,
            at,
            command_bytes: len32(command_bytes),
            value_bytes: put.value_bytes,
            checksum: put.checksum,
            compression: put.compression,
            metadata: put.metadata,
            indexes: put.indexes,
            // Small ones too: whoever has the command has the value.
            inline: None,
        };
        Self { ledger_key: key::object(put.bucket, put.key), stored: Bytes::from(entry.encode()) }
    }

    /// The object.
    ///
    /// # Errors
    /// `Ledger` when it does not decode.
    pub fn item(&self) -> Result<Item<'_>> {
        Item::of(&self.ledger_key, &self.stored)
    }
}

impl<'a> Item<'a> {
    /// The object at a place, as the ledger has it: see [`Item::place`] and [`Item::stored`].
    ///
    /// # Errors
    /// `Ledger` when it is too short.
    pub fn of(ledger_key: &'a [u8], stored: &'a [u8]) -> Result<Self> {
        // What a fold looks at of each object is there; the rest is decoded for who asks.
        if stored.len() < FIXED_BYTES { Err(damaged()) } else { Ok(Self { ledger_key, stored }) }
    }

    /// Where it stands among all objects: places compare as bucket, then key do.
    #[must_use]
    pub fn place(&self) -> &'a [u8] {
        self.ledger_key
    }

    /// What the ledger has of it.
    #[must_use]
    pub fn stored(&self) -> &'a [u8] {
        self.stored
    }

    /// Bucket and key.
    ///
    /// # Errors
    /// `Ledger` when they do not decode.
    pub fn name(&self) -> Result<(Vec<u8>, &'a [u8])> {
        let damaged = || Error::Ledger { path: String::new(), reason: "a key does not decode".into() };
        key::split_object(self.ledger_key).ok_or_else(damaged)
    }

    /// Its key, when its bucket is known.
    #[must_use]
    pub fn key_in(&self, bucket: &[u8]) -> &'a [u8] {
        self.ledger_key.get(key::object_prefix_len(bucket)..).unwrap_or_default()
    }

    /// Whether it has expired by `now_ms`.
    #[must_use]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        let expires_ms = self.brief().expires_ms;
        expires_ms != 0 && expires_ms <= now_ms
    }

    /// What is known of it.
    ///
    /// # Errors
    /// `Ledger` when it does not decode.
    pub fn head(&self) -> Result<Head> {
        Entry::decode(self.stored).map(|entry| entry.head()).ok_or_else(damaged)
    }

    /// What two stores can compare of it.
    ///
    /// # Errors
    /// `Ledger` when it does not decode.
    pub fn clock(&self) -> Result<Clock> {
        Ok(Clock::from(&decode(self.stored)?))
    }

    /// The little of it that filters and counts look at.
    #[must_use]
    pub fn brief(&self) -> Brief {
        Entry::brief_of(self.stored).expect("it is not shorter than what all entries have")
    }
}

impl Items {
    /// Objects of these partitions in a range.
    pub fn of<'r>(readers: impl Iterator<Item = &'r Reader>, bounds: &Bounds, now_ms: u64) -> Self {
        Self { entries: range_of(readers, bounds), now_ms }
    }

    /// Which of the partitions, in the order in which they were named, has the object it stands on.
    #[must_use]
    pub fn reader(&self) -> usize {
        self.entries.ledger()
    }

    /// Steps to the next object, the first one at first; false when there is none.
    ///
    /// # Errors
    /// What the ledger says.
    pub fn advance(&mut self) -> Result<bool> {
        while self.entries.advance()? {
            if !is_expired(self.entries.value(), self.now_ms)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The object it stands on.
    ///
    /// # Errors
    /// `Ledger` when it does not decode.
    pub fn item(&self) -> Result<Item<'_>> {
        let (ledger_key, stored) = self.entries.entry();
        Item::of(ledger_key, stored)
    }

    /// Where the object it stands on stands: see [`Item::place`].
    #[must_use]
    pub fn place(&self) -> &[u8] {
        self.entries.key()
    }

    /// Steps to the next object and shows it.
    ///
    /// # Errors
    /// What the ledger says.
    pub fn step(&mut self) -> Result<Option<Item<'_>>> {
        if self.advance()? { self.item().map(Some) } else { Ok(None) }
    }

    /// A number that compares as the place does, unless it is the same: see [`Bounds::tag`].
    #[must_use]
    pub fn tag(&self) -> u128 {
        self.entries.tag()
    }
}

impl Reader {
    /// Objects of this partition in a range.
    #[must_use]
    pub fn items(&self, bounds: &Bounds, now_ms: u64) -> Items {
        Items::of(std::iter::once(self), bounds, now_ms)
    }

    /// The object as a fold would come to it.
    ///
    /// # Errors
    /// What the ledger says.
    pub fn look_up(&self, bucket: &[u8], key: &[u8]) -> Result<Option<Looked>> {
        let ledger_key = key::object(bucket, key);
        let found = self.entry(&ledger_key)?.map(|stored| stored.entry);
        Ok(found.map(|stored| Looked { ledger_key, stored }))
    }

    /// The value of an object that a fold came to.
    ///
    /// # Errors
    /// `Value` when the stored bytes are not what was put.
    pub fn value_of(&self, item: &Item<'_>) -> Result<Value> {
        let (bucket, key) = item.name()?;
        self.value(&bucket, key, item.stored)
    }
}
