//! Changes that wait to be committed together: what a transaction would make of the objects it touched.
//!
//! At most one change per object: a later one replaces an earlier one, so that a batch never holds two of the same key.
//!
//! May use: `kv`. Must not know: locks, the journal.

use std::collections::{BTreeMap, BTreeSet};

use journal::Position;
use kv::{Head, Indexes, Metadata, Stored};

/// What becomes of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Put { stored: Stored, metadata: Metadata, indexes: Indexes, expires_ms: u64 },
    Delete,
    Expire { expires_ms: u64 },
}

impl Change {
    /// What is known of an object after the change, when `stored` is known before it; nothing when it has expired by then. Its
    /// version is [`Position::MAX`] until it is committed.
    pub(crate) fn head(&self, stored: Option<Head>, now_ms: u64) -> Option<Head> {
        let version = Position::MAX;
        let expiry = |at: u64| (at != 0).then_some(at);
        let head = match self {
            Self::Delete => None,
            Self::Expire { expires_ms } => stored.map(|head| Head { version, expires_ms: expiry(*expires_ms), ..head }),
            Self::Put { stored, metadata, indexes, expires_ms } => Some(Head {
                version,
                value_bytes: stored.value_bytes as u64,
                checksum: stored.checksum,
                expires_ms: expiry(*expires_ms),
                modified_ms: now_ms,
                metadata: metadata.clone(),
                indexes: indexes.clone(),
                compression: stored.compression,
            }),
        };
        head.filter(|head| head.expires_ms.is_none_or(|at| at > now_ms))
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Put { stored, metadata, indexes, .. } => (stored.value_bytes + metadata.len() + indexes.len()) as u64,
            Self::Delete | Self::Expire { .. } => 0,
        }
    }

    /// Bytes of the value as it will be journaled.
    fn stored_bytes(&self) -> u64 {
        match self {
            Self::Put { stored, .. } => stored.bytes.len() as u64,
            Self::Delete | Self::Expire { .. } => 0,
        }
    }

    /// The change that sets the expiry on top of an earlier change of the same object.
    pub(crate) fn expire(earlier: Option<&Self>, expires_ms: u64) -> Self {
        match earlier {
            Some(Self::Put { stored, metadata, indexes, .. }) => {
                Self::Put { stored: stored.clone(), metadata: metadata.clone(), indexes: indexes.clone(), expires_ms }
            }
            _ => Self::Expire { expires_ms },
        }
    }
}

/// One object's change.
#[derive(Debug, Clone)]
pub(crate) struct Staged {
    pub(crate) bucket: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) change: Change,
}

/// All changes of one batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    list: Vec<Staged>,
    /// Where each object's change is, once there are many.
    index: BTreeMap<(Vec<u8>, Vec<u8>), usize>,
    /// Buckets that are emptied before the changes.
    cleared: BTreeSet<Vec<u8>>,
    /// Bytes of keys and values in the list.
    bytes: u64,
    /// The same as they will be journaled.
    stored_bytes: u64,
}

/// Up to this many changes are searched one by one.
const SCAN_MAX: usize = 8;

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.cleared.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len() + self.cleared.len()
    }

    /// Bytes of keys and values, as they were before they were compressed.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of keys and values as they will be journaled, once there is this change too: what the batch has at the least.
    pub(crate) fn stored_bytes_with(&self, bucket: &[u8], key: &[u8], change: &Change) -> u64 {
        let before = self.get(bucket, key).map_or(0, |before| key.len() as u64 + before.stored_bytes());
        self.stored_bytes - before + key.len() as u64 + change.stored_bytes()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Staged> {
        self.list.iter()
    }

    pub(crate) fn cleared(&self) -> impl Iterator<Item = &[u8]> {
        self.cleared.iter().map(Vec::as_slice)
    }

    pub(crate) fn is_cleared(&self, bucket: &[u8]) -> bool {
        !self.cleared.is_empty() && self.cleared.contains(bucket)
    }

    fn position(&self, bucket: &[u8], key: &[u8]) -> Option<usize> {
        if self.index.is_empty() {
            return self.list.iter().position(|staged| staged.key == key && staged.bucket == bucket);
        }
        self.index.get(&(bucket.to_vec(), key.to_vec())).copied()
    }

    pub(crate) fn get(&self, bucket: &[u8], key: &[u8]) -> Option<&Change> {
        let at = self.position(bucket, key)?;
        self.list.get(at).map(|staged| &staged.change)
    }

    pub(crate) fn set(&mut self, bucket: &[u8], key: &[u8], change: Change) {
        if let Some(at) = self.position(bucket, key) {
            if let Some(staged) = self.list.get_mut(at) {
                self.bytes = self.bytes - staged.change.bytes() + change.bytes();
                self.stored_bytes = self.stored_bytes - staged.change.stored_bytes() + change.stored_bytes();
                staged.change = change;
            }
            return;
        }
        self.bytes += key.len() as u64 + change.bytes();
        self.stored_bytes += key.len() as u64 + change.stored_bytes();
        self.list.push(Staged { bucket: bucket.to_vec(), key: key.to_vec(), change });
        if self.list.len() > SCAN_MAX {
            self.reindex();
        }
    }

    /// Empties a bucket: earlier changes in it no longer matter.
    pub(crate) fn clear(&mut self, bucket: &[u8]) {
        self.list.retain(|staged| staged.bucket != bucket);
        self.index.clear();
        if self.list.len() > SCAN_MAX {
            self.reindex();
        }
        self.cleared.insert(bucket.to_vec());
        let sum = |bytes: fn(&Change) -> u64| {
            self.list.iter().map(|staged| staged.key.len() as u64 + bytes(&staged.change)).sum()
        };
        (self.bytes, self.stored_bytes) = (sum(Change::bytes), sum(Change::stored_bytes));
    }

    fn reindex(&mut self) {
        for (at, staged) in self.list.iter().enumerate().skip(self.index.len()) {
            self.index.insert((staged.bucket.clone(), staged.key.clone()), at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_of_each_object_counts_however_many_there_are() {
        let mut changes = Changes::default();
        for round in 0..3u64 {
            for key in 0..20u8 {
                changes.set(b"b", &[key], Change::Expire { expires_ms: round });
            }
        }
        assert_eq!(changes.len(), 20);
        assert!((0..20u8).all(|key| changes.get(b"b", &[key]) == Some(&Change::Expire { expires_ms: 2 })));
        changes.set(b"other", b"k", Change::Delete);
        changes.clear(b"b");
        changes.set(b"b", b"new", Change::Delete);
        assert_eq!((changes.get(b"b", &[1]), changes.iter().count()), (None, 2));
        assert!(changes.is_cleared(b"b") && !changes.is_cleared(b"other"));
        assert_eq!((changes.bytes(), changes.stored_bytes), (4, 4));
        let value = |bytes: usize| Change::Put {
            stored: Stored::new(&vec![0; bytes], kv::Compression::Lz4),
            metadata: Metadata::default(),
            indexes: Indexes::default(),
            expires_ms: 0,
        };
        let (large, small) = (value(100_000), value(10));
        assert!((2..10_000).contains(&changes.stored_bytes_with(b"b", b"k", &large)), "as it is compressed");
        changes.set(b"b", b"k", large);
        assert_eq!(changes.stored_bytes_with(b"b", b"k", &small), 4 + 1 + 10, "instead of what was there");
        changes.set(b"b", b"k", small);
        assert_eq!((changes.bytes(), changes.stored_bytes), (15, 15));
    }
}
