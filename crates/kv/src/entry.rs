//! What the ledger says of an object. This comment is the format's specification.
//!
//! Format: docs/formats/kv.md
//!
//! Layout, sizes in bytes, integers little-endian:
//!   kind           1   low half: 1 the value follows, 2 the value is in the journal
//!                      high half: how the value is compressed, 0 not, 1 LZ4, 2 Zstandard; plus 8 if there are indexes
//!   version        8   position of the batch that last changed the object
//!   modified       8   milliseconds since 1970
//!   expires        8   milliseconds since 1970; 0 is never
//!   at             8   journal address of the put command
//!   command bytes  4   length of the put command
//!   value bytes    4
//!   checksum       4   CRC32C of the value
//!   metadata           behind its 32-bit length
//!   indexes            behind its 32-bit length, if there are any
//!   value              the rest, if it follows, as it is stored
//!
//! May use: nothing. Must not know: where ledgers lie.

use journal::Position;

use crate::bytes::{Fields, put_string};
use crate::compression::Compression;
use crate::indexes::Indexes;
use crate::metadata::Metadata;

const INLINE: u8 = 1;
const IN_JOURNAL: u8 = 2;
const WHERE: u8 = 0x0F;
const COMPRESSION_SHIFT: u32 = 4;
const HAS_INDEXES: u8 = 0x80;
/// Bytes before the metadata.
pub(crate) const FIXED_BYTES: usize = 1 + 8 * 4 + 4 * 3;
/// Where the expiry lies.
const EXPIRES_AT: usize = 1 + 8 * 2;

/// What is known of an object without reading its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Position of the batch that last changed the object.
    pub version: Position,
    /// Length of the value.
    pub value_bytes: u64,
    /// CRC32C of the value.
    pub checksum: u32,
    /// When the object expires, in milliseconds since 1970; `None` is never.
    pub expires_ms: Option<u64>,
    /// When the object was last changed, in milliseconds since 1970.
    pub modified_ms: u64,
    /// What the user noted on it.
    pub metadata: Metadata,
    /// What it is found by.
    pub indexes: Indexes,
    /// How its value is stored.
    pub compression: Compression,
}

/// The little of an object that filters and counts look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brief {
    /// Position of the batch that last changed it.
    pub version: Position,
    /// When it was last changed, in milliseconds since 1970.
    pub modified_ms: u64,
    /// When it expires, in milliseconds since 1970; 0 is never.
    pub expires_ms: u64,
    /// Journal address of the command that put it.
    pub at: u64,
    /// Length of its value.
    pub value_bytes: u64,
}

/// A ledger entry, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) version: Position,
    pub(crate) modified_ms: u64,
    pub(crate) expires_ms: u64,
    pub(crate) at: u64,
    pub(crate) command_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) checksum: u32,
    pub(crate) compression: Compression,
    pub(crate) metadata: &'a [u8],
    pub(crate) indexes: &'a [u8],
    /// The value as it is stored, if it is kept here.
    pub(crate) inline: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let inline = self.inline.unwrap_or_default();
        let mut to = Vec::with_capacity(FIXED_BYTES + 8 + self.metadata.len() + self.indexes.len() + inline.len());
        let place = if self.inline.is_some() { INLINE } else { IN_JOURNAL };
        let indexed = if self.indexes.is_empty() { 0 } else { HAS_INDEXES };
        to.push(place | self.compression.code() << COMPRESSION_SHIFT | indexed);
        to.extend_from_slice(&self.version.get().to_le_bytes());
        to.extend_from_slice(&self.modified_ms.to_le_bytes());
        to.extend_from_slice(&self.expires_ms.to_le_bytes());
        to.extend_from_slice(&self.at.to_le_bytes());
        to.extend_from_slice(&self.command_bytes.to_le_bytes());
        to.extend_from_slice(&self.value_bytes.to_le_bytes());
        to.extend_from_slice(&self.checksum.to_le_bytes());
        put_string(&mut to, self.metadata);
        if !self.indexes.is_empty() {
            put_string(&mut to, self.indexes);
        }
        to.extend_from_slice(inline);
        to
    }

    #[inline]
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        // Of a length that is known nothing needs to be looked at again.
        let (fixed, rest) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let mut from = Fields(fixed);
        let kind = from.u8()?;
        let version = Position::new(from.u64()?);
        let (modified_ms, expires_ms, at) = (from.u64()?, from.u64()?, from.u64()?);
        let (command_bytes, value_bytes, checksum) = (from.u32()?, from.u32()?, from.u32()?);
        let mut from = Fields(rest);
        let compression = Compression::from_code((kind & !HAS_INDEXES) >> COMPRESSION_SHIFT)?;
        let metadata = from.string()?;
        let mut indexes: &[u8] = &[];
        if kind & HAS_INDEXES != 0 {
            indexes = from.string().filter(|indexes| !indexes.is_empty())?;
        }
        let whole = usize::try_from(value_bytes).ok()?;
        let inline = match kind & WHERE {
            INLINE if compression != Compression::None || from.0.len() == whole => Some(from.0),
            IN_JOURNAL if from.0.is_empty() => None,
            _ => return None,
        };
        Some(Self {
            version,
            modified_ms,
            expires_ms,
            at,
            command_bytes,
            value_bytes,
            checksum,
            compression,
            metadata,
            indexes,
            inline,
        })
    }

    /// The little of an encoded entry that needs no look at the rest.
    #[inline]
    pub(crate) fn brief_of(bytes: &[u8]) -> Option<Brief> {
        let (fixed, _) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let mut from = Fields(fixed);
        let _kind = from.u8()?;
        let version = Position::new(from.u64()?);
        let (modified_ms, expires_ms, at) = (from.u64()?, from.u64()?, from.u64()?);
        let (_command_bytes, value_bytes) = (from.u32()?, from.u32()?);
        Some(Brief { version, modified_ms, expires_ms, at, value_bytes: u64::from(value_bytes) })
    }

    /// The expiry of an encoded entry.
    pub(crate) fn expires_ms_of(bytes: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(*bytes.get(EXPIRES_AT..)?.first_chunk()?))
    }

    pub(crate) fn expired(&self, now_ms: u64) -> bool {
        self.expires_ms != 0 && self.expires_ms <= now_ms
    }

    pub(crate) fn head(&self) -> Head {
        Head {
            version: self.version,
            value_bytes: u64::from(self.value_bytes),
            checksum: self.checksum,
            expires_ms: (self.expires_ms != 0).then_some(self.expires_ms),
            modified_ms: self.modified_ms,
            metadata: Metadata::from_encoded(self.metadata),
            indexes: Indexes::from_encoded(self.indexes),
            compression: self.compression,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn garbage_decodes_to_nothing_or_to_itself(mut bytes in proptest::collection::vec(0u8..=255, 0..80), kind in 0u8..4) {
            if let Some(first) = bytes.first_mut() {
                *first = *first & !WHERE | kind;
            }
            if let Some(entry) = Entry::decode(&bytes) {
                assert_eq!(entry.encode(), bytes);
                assert_eq!(Entry::expires_ms_of(&bytes), Some(entry.expires_ms));
                let Entry { version, modified_ms, expires_ms, at, value_bytes, .. } = entry;
                let brief = Brief { version, modified_ms, expires_ms, at, value_bytes: u64::from(value_bytes) };
                assert_eq!(Entry::brief_of(&bytes), Some(brief));
            }
        }
    }
}
