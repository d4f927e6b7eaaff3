//! The limit of memory that all types of a space have together, beside those of each of them.
//!
//! It is an object of a bucket of the store's own, so it is durable, in backups, and moved by compaction without a line for it anywhere else.
//! Key: the space's name. Value, as text: the version `1`, a space, and the bytes, such as `1 1073741824`.
//!
//! A type's limit is divided among partitions, so that a write needs no other's lock. Here types that lie in one partition stand beside others, and a share for each
//! partition would leave those a sixteenth. So all tell one sum what they take; of spaces without a limit nobody does, because a number that all
//! processors write costs as much as the rest of a write in memory.
//!
//! May use: exclusive access, partitions. Must not know: what is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kv::{Compression, Indexes, Metadata, Stored};

use super::{Definition, Space};
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::{Exclusive, Scope};
use crate::staged::Change;
use crate::store::{Inner, lock};

/// Hidden from users, as all whose names begin so.
const BUCKET: &[u8] = b"\0space";

/// What a space takes of memory, and may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceUsage {
    /// Bytes that all entries of all types take, with their indexes.
    pub bytes: u64,
    /// The most that they may take together; `None` is without limit.
    pub bytes_max: Option<u64>,
}

/// A space's limit as its types have it before them.
#[derive(Debug, Default)]
pub(crate) struct SpaceMemory {
    /// 0 is without.
    bytes_max: AtomicU64,
    /// What all of its types take in all partitions, while there is a limit.
    bytes: Arc<AtomicU64>,
}

impl SpaceMemory {
    /// The limit, if there is one.
    pub(crate) fn bytes_max(&self) -> Option<u64> {
        Some(self.bytes_max.load(Ordering::Acquire)).filter(|max| *max > 0)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Space {
    /// Limits the memory that entries of all types of the space take together, with their indexes; `None` takes the limit away. At the limit a write is
    /// refused (`Limit`), unless there are entries of types that evict ([`AtLimit::Evict`](super::AtLimit)): those of its partition and type go first, and of each partition and type those that
    /// were used longest ago. Entries that transactions have locked stay, and partitions in which somebody else is at work at the moment are passed by. What is there already
    /// stays, and what is written at the same moment in several partitions may go beyond it.
    /// Blocks until that is on stable storage.
    ///
    /// # Errors
    /// `Invalid` when the space's name is none; `Unavailable` when the disk refuses.
    pub fn limit_memory(&self, bytes_max: Option<u64>) -> Result<()> {
        Definition::new(&self.name, "any").check()?;
        let inner = self.store.inner();
        inner.check_open()?;
        let _one = lock(&inner.spaces.declaring);
        let bytes_max = bytes_max.filter(|max| *max > 0);
        let key = self.name.as_bytes();
        let mut exclusive = Exclusive::open(inner, &Scope::Keys(&[(BUCKET, key)]))?;
        exclusive.stage(BUCKET, key, bytes_max.map_or(Change::Delete, put))?;
        let position = exclusive.commit()?.position;
        self.store.wait(position, Durability::Synced)?;
        inner.set_space_limit(&self.name, bytes_max);
        Ok(())
    }

    /// What the space takes of memory, and may. Goes through all partitions.
    ///
    /// # Errors
    /// `Corrupt` when the limit is damaged: there is none then until it is set again; `Unavailable` when it cannot be read.
    pub fn memory(&self) -> Result<SpaceUsage> {
        let inner = self.store.inner();
        let bytes_max = inner.kept_limit(&self.name)?;
        let bytes = inner.partitions.iter().map(|partition| partition.space().space_bytes(&self.name)).sum();
        Ok(SpaceUsage { bytes, bytes_max })
    }
}

impl Inner {
    /// Makes known what limit the space has, before a type of it becomes known, unless it is known.
    pub(crate) fn load_space_limit(&self, space: &str) {
        if self.spaces.memory_of(space).bytes_max().is_some() {
            return;
        }
        // A store whose limit is damaged opens all the same: `Space::memory` says why there is none.
        if let Ok(Some(limit)) = self.kept_limit(space) {
            self.set_space_limit(space, Some(limit));
        }
    }

    fn kept_limit(&self, space: &str) -> Result<Option<u64>> {
        let key = space.as_bytes();
        let damaged = || {
            let text = format!("the limit of memory of the space {space} is damaged, so it has none: set it again");
            Error::new(ErrorKind::Corrupt, text)
        };
        match self.read(self.partition(BUCKET, key), |reader| reader.get(BUCKET, key, 0)).map(|shown| shown.value) {
            Ok(None) => Ok(None),
            Ok(Some(object)) => decode(object.value.as_ref()).map(Some).ok_or_else(damaged),
            Err(error) if error.kind() == ErrorKind::Corrupt => Err(damaged()),
            Err(error) => Err(error),
        }
    }

    fn set_space_limit(&self, space: &str, bytes_max: Option<u64>) {
        let memory = self.spaces.memory_of(space);
        let sum = bytes_max.map(|_| &memory.bytes);
        // First of all what is there, or the first writes would pass by it.
        self.partitions.iter().for_each(|partition| partition.space().sum_up(space, sum));
        memory.bytes_max.store(bytes_max.unwrap_or(0), Ordering::Release);
    }
}

fn put(bytes_max: u64) -> Change {
    let stored = Stored::new(format!("1 {bytes_max}").as_bytes(), Compression::None);
    Change::Put { stored, metadata: Metadata::default(), indexes: Indexes::default(), expires_ms: 0 }
}

/// `None` when it is damaged.
fn decode(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.strip_prefix("1 ")?.parse().ok().filter(|max| *max > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stores of earlier versions have on their disks.
    #[test]
    fn what_is_kept_reads_back_and_nothing_else_does() {
        assert_eq!(decode(b"1 1073741824"), Some(1 << 30));
        for odd in ["", "1", "1 ", "1 x", "1 0", "2 7", "1 7 8", "1 -7"] {
            assert_eq!(decode(odd.as_bytes()), None, "{odd}");
        }
    }
}
