//! What two stores can compare of an object, without its value. This comment is the format's specification.
//!
//! Format: docs/formats/tree.md
//!
//! Layout, sizes in bytes, integers little-endian; 44 bytes in all:
//!   checksum     4   CRC32C of the value as the user knows it
//!   value bytes  8   length of the value as the user knows it
//!   modified     8   milliseconds since 1970
//!   expires      8   milliseconds since 1970; 0 is never
//!   metadata     8   xxh3-64 of the encoded metadata; 0 when there is none
//!   indexes      8   xxh3-64 of the encoded indexes; 0 when there are none
//!
//! Left out is what belongs to one store alone: version, address, codec.
//!
//! May use: `base`, entries. Must not know: trees, positions.

use std::cmp::Ordering;

use base::hash64;

use crate::bytes::Fields;
use crate::entry::{Entry, Head};

/// Bytes of an encoded clock.
const BYTES: usize = 4 + 8 * 5;

/// What two stores can compare of an object: the same in both if and only if the object is.
///
/// Equal clocks mean equal objects, up to a collision of the checksum with all else equal. Of two that differ
/// [`Clock::newer`] tells which is to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock {
    /// CRC32C of the value.
    pub checksum: u32,
    /// Length of the value.
    pub value_bytes: u64,
    /// When the object was last changed, in milliseconds since 1970.
    pub modified_ms: u64,
    /// When it expires, in milliseconds since 1970; `None` is never.
    pub expires_ms: Option<u64>,
    /// Hash of the encoded metadata: see [`Clock::part`].
    pub metadata_hash: u64,
    /// Hash of the encoded indexes: see [`Clock::part`].
    pub indexes_hash: u64,
}

impl Clock {
    /// The hash of a part of an object by its encoding; 0 when there is nothing.
    #[must_use]
    pub fn part(encoded: &[u8]) -> u64 {
        if encoded.is_empty() { 0 } else { hash64(encoded) }
    }

    /// The clock in 64 bits: what trees hold, and what breaks a tie.
    #[must_use]
    pub fn hash(&self) -> u64 {
        hash64(&self.encode())
    }

    /// Which of two clocks of one object is the newer: the one modified later; at the same time the one with the greater
    /// hash, which is arbitrary and the same for everybody who asks. `Equal` when they are.
    #[must_use]
    pub fn newer(&self, other: &Self) -> Ordering {
        if self == other {
            return Ordering::Equal;
        }
        let key = |clock: &Self| (clock.modified_ms, clock.hash(), clock.encode());
        key(self).cmp(&key(other))
    }

    /// The clock's bytes, to send it to another store.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        // In whole words, each a single store: this is made twice for each put.
        let mut to = [0; BYTES];
        let numbers = [
            self.value_bytes,
            self.modified_ms,
            self.expires_ms.unwrap_or_default(),
            self.metadata_hash,
            self.indexes_hash,
        ];
        let (first, rest) = to.split_at_mut(4);
        first.copy_from_slice(&self.checksum.to_le_bytes());
        for (to, number) in rest.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        to
    }

    /// The clock of these bytes; `None` unless they are one and nothing behind it.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Fields(bytes);
        let (checksum, value_bytes, modified_ms) = (from.u32()?, from.u64()?, from.u64()?);
        let expires_ms = Some(from.u64()?).filter(|expires| *expires != 0);
        let (metadata_hash, indexes_hash) = (from.u64()?, from.u64()?);
        let clock = Self { checksum, value_bytes, modified_ms, expires_ms, metadata_hash, indexes_hash };
        from.0.is_empty().then_some(clock)
    }
}

impl From<&Head> for Clock {
    fn from(head: &Head) -> Self {
        Self {
            checksum: head.checksum,
            value_bytes: head.value_bytes,
            modified_ms: head.modified_ms,
            expires_ms: head.expires_ms,
            metadata_hash: Self::part(head.metadata.encoded()),
            indexes_hash: Self::part(head.indexes.encoded()),
        }
    }
}

impl From<&Entry<'_>> for Clock {
    fn from(entry: &Entry<'_>) -> Self {
        Self {
            checksum: entry.checksum,
            value_bytes: u64::from(entry.value_bytes),
            modified_ms: entry.modified_ms,
            expires_ms: (entry.expires_ms != 0).then_some(entry.expires_ms),
            metadata_hash: Self::part(entry.metadata),
            indexes_hash: Self::part(entry.indexes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::Compression;
    use crate::indexes::{Indexes, Term};
    use crate::metadata::Metadata;

    fn clock() -> Clock {
        Clock { checksum: 1, value_bytes: 2, modified_ms: 3, expires_ms: Some(4), metadata_hash: 5, indexes_hash: 6 }
    }

    #[test]
    fn every_field_of_a_clock_counts() {
        let same = clock();
        let others = [
            Clock { checksum: 9, ..same },
            Clock { value_bytes: 9, ..same },
            Clock { modified_ms: 9, ..same },
            Clock { expires_ms: None, ..same },
            Clock { metadata_hash: 9, ..same },
            Clock { indexes_hash: 9, ..same },
        ];
        for other in others {
            assert_ne!(other.hash(), same.hash(), "{other:?}");
            assert_ne!(other.newer(&same), Ordering::Equal);
            assert_eq!(other.newer(&same), same.newer(&other).reverse(), "both sides keep the same one");
        }
        assert_eq!(clock().newer(&same), Ordering::Equal);
        let later = Clock { modified_ms: 4, ..Clock::default() };
        assert_eq!(later.newer(&same), Ordering::Greater, "the later change wins, whatever the hashes");
    }

    #[test]
    fn the_ledger_entry_and_the_head_have_the_same_clock() {
        let (metadata, indexes) = (Metadata::from_pairs([("a", "b")]), Indexes::from_pairs([("i", Term::Integer(1))]));
        for (expires_ms, metadata, indexes) in [(0, &[][..], &[][..]), (9, metadata.encoded(), indexes.encoded())] {
            let entry = Entry {
                version: journal::Position::new(7),
                modified_ms: 1,
                expires_ms,
                at: 8,
                command_bytes: 2,
                value_bytes: 3,
                checksum: 4,
                compression: Compression::None,
                metadata,
                indexes,
                inline: None,
            };
            let clock = Clock::from(&entry);
            assert_eq!(clock, Clock::from(&entry.head()));
            assert_eq!([clock.metadata_hash, clock.indexes_hash].map(|hash| hash != 0), [!metadata.is_empty(); 2]);
            let elsewhere = Entry { version: journal::Position::new(9), at: 1, compression: Compression::Lz4, ..entry };
            assert_eq!(clock, Clock::from(&elsewhere), "what belongs to one store alone is left out");
        }
    }

    proptest::proptest! {
        #[test]
        fn garbage_decodes_to_nothing_or_to_itself(bytes in proptest::collection::vec(0u8..=255, BYTES - 1..BYTES + 2)) {
            match Clock::decode(&bytes) {
                Some(clock) => assert_eq!(clock.encode().as_slice(), bytes),
                None => assert_ne!(bytes.len(), BYTES),
            }
        }
    }
}
