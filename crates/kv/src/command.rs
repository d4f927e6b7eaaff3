//! What the key-value engine journals. This comment is the format's specification.
//!
//! Format: docs/formats/kv.md
//!
//! Layout of a command, integers little-endian, strings behind a 32-bit length:
//!   put      1 | modified 8 | expires 8 | value checksum 4 | bucket | key | metadata | value
//!   delete   2 | bucket | key
//!   expire   3 | modified 8 | expires 8 | bucket | key
//!   clear    4 | bucket
//!
//! Times are milliseconds since 1970-01-01 UTC; expires 0 is never. The value checksum is CRC32C of the value, so that
//! one positioned read of a put proves key and value. Commands are effects: they say what became, never how.
//!
//! May use: `base`. Must not know: the ledger.

use base::crc32c;

use crate::bytes::{Fields, put_string};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const EXPIRE: u8 = 3;
const CLEAR: u8 = 4;
/// Bytes of a put beside its four strings, with their lengths.
const PUT_FIXED_BYTES: usize = 1 + 8 + 8 + 4 + 4 * 4;

/// An object as it is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put<'a> {
    /// Bucket.
    pub bucket: &'a [u8],
    /// Key within the bucket.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
    /// CRC32C of the value.
    pub checksum: u32,
    /// Encoded user metadata.
    pub metadata: &'a [u8],
    /// When the object was put, in milliseconds since 1970.
    pub modified_ms: u64,
    /// When it expires, in milliseconds since 1970; 0 is never.
    pub expires_ms: u64,
}

/// One change of a partition's key-value state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// The object is now this.
    Put(Put<'a>),
    /// The object is gone.
    Delete {
        /// Bucket.
        bucket: &'a [u8],
        /// Key within the bucket.
        key: &'a [u8],
    },
    /// The object, if there is one, expires now at another time.
    Expire {
        /// Bucket.
        bucket: &'a [u8],
        /// Key within the bucket.
        key: &'a [u8],
        /// When the change was made, in milliseconds since 1970.
        modified_ms: u64,
        /// When it expires, in milliseconds since 1970; 0 is never.
        expires_ms: u64,
    },
    /// Every object of the bucket in this partition is gone.
    Clear {
        /// Bucket.
        bucket: &'a [u8],
    },
}

impl<'a> Put<'a> {
    /// A put of `value` with its checksum taken.
    #[must_use]
    pub fn new(bucket: &'a [u8], key: &'a [u8], value: &'a [u8]) -> Self {
        Self { bucket, key, value, checksum: crc32c(value), metadata: &[], modified_ms: 0, expires_ms: 0 }
    }

    /// Bytes of the encoded command.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        PUT_FIXED_BYTES + self.bucket.len() + self.key.len() + self.metadata.len() + self.value.len()
    }
}

impl<'a> Command<'a> {
    /// Appends the command to `to`.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Put(put) => {
                to.reserve(put.encoded_len());
                to.push(PUT);
                to.extend_from_slice(&put.modified_ms.to_le_bytes());
                to.extend_from_slice(&put.expires_ms.to_le_bytes());
                to.extend_from_slice(&put.checksum.to_le_bytes());
                put_string(to, put.bucket);
                put_string(to, put.key);
                put_string(to, put.metadata);
                put_string(to, put.value);
            }
            Self::Delete { bucket, key } => {
                to.push(DELETE);
                put_string(to, bucket);
                put_string(to, key);
            }
            Self::Expire { bucket, key, modified_ms, expires_ms } => {
                to.push(EXPIRE);
                to.extend_from_slice(&modified_ms.to_le_bytes());
                to.extend_from_slice(&expires_ms.to_le_bytes());
                put_string(to, bucket);
                put_string(to, key);
            }
            Self::Clear { bucket } => {
                to.push(CLEAR);
                put_string(to, bucket);
            }
        }
    }

    /// The command at the start of `bytes`, and how many bytes it takes.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let mut from = Fields(bytes);
        let command = match from.u8()? {
            PUT => {
                let (modified_ms, expires_ms, checksum) = (from.u64()?, from.u64()?, from.u32()?);
                let (bucket, key) = (from.string()?, from.string()?);
                let (metadata, value) = (from.string()?, from.string()?);
                Self::Put(Put { bucket, key, value, checksum, metadata, modified_ms, expires_ms })
            }
            DELETE => Self::Delete { bucket: from.string()?, key: from.string()? },
            EXPIRE => {
                let (modified_ms, expires_ms) = (from.u64()?, from.u64()?);
                Self::Expire { bucket: from.string()?, key: from.string()?, modified_ms, expires_ms }
            }
            CLEAR => Self::Clear { bucket: from.string()? },
            _ => return None,
        };
        Some((command, bytes.len() - from.0.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_back_as_they_went_in() {
        let put = Put { metadata: b"m", modified_ms: 5, expires_ms: 9, ..Put::new(b"b", b"k", b"value") };
        let commands = [
            Command::Put(put),
            Command::Delete { bucket: b"b", key: b"" },
            Command::Expire { bucket: b"b", key: b"k", modified_ms: 1, expires_ms: 0 },
            Command::Clear { bucket: b"bucket" },
        ];
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| command.encode(&mut bytes));
        let mut rest = bytes.as_slice();
        for command in commands {
            let (found, len) = Command::decode(rest).unwrap();
            assert_eq!(found, command);
            rest = &rest[len..];
        }
        assert!(rest.is_empty());
        for end in 0..put.encoded_len() {
            assert_eq!(Command::decode(&bytes[..end]), None, "a cut command does not decode");
        }
    }

    proptest::proptest! {
        #[test]
        fn garbage_decodes_to_nothing_or_to_itself(bytes in proptest::collection::vec(0u8..=255, 0..200)) {
            if let Some((command, len)) = Command::decode(&bytes) {
                let mut again = Vec::new();
                command.encode(&mut again);
                assert_eq!(again, bytes[..len]);
            }
        }
    }
}
