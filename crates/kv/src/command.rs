//! What the key-value engine journals. This comment is the format's specification.
//!
//! Format: docs/formats/kv.md
//!
//! Layout of a command, integers little-endian, strings behind a 32-bit length:
//!   put      1 | modified 8 | expires 8 | value checksum 4 | bucket | key | metadata | value
//!   delete   2 | bucket | key
//!   expire   3 | modified 8 | expires 8 | bucket | key
//!   clear    4 | bucket
//!   object   5 | modified 8 | expires 8 | value checksum 4 | compression 1 | value bytes 4 |
//!                bucket | key | metadata | indexes | stored value
//!   kept     6 | version 8 | put, delete, clear or object
//!   other  64.. | length 4 | what another engine journals; only before all commands of this one
//!
//! Times are milliseconds since 1970-01-01 UTC; expires 0 is never. The value checksum is CRC32C of the value, so that
//! one positioned read of a put proves key and value. An object is a put with indexes, or whose value is compressed:
//! 0 not, 1 LZ4, 2 Zstandard; value bytes is its length before. Commands are effects: they say what became, never how.
//!
//! A kept command says again what a command said at an earlier position, its version: compaction appends what is still
//! needed of a segment before it lets the segment go. It never changes what a reader sees.
//!
//! May use: `base`. Must not know: the ledger.

use base::crc32c;
use journal::Position;

use crate::bytes::{Fields, len32, put_string};
use crate::compression::{Compression, Stored};
use crate::error::{Error, Result};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const EXPIRE: u8 = 3;
const CLEAR: u8 = 4;
const OBJECT: u8 = 5;
const KEPT: u8 = 6;
/// From here on a tag names another engine.
const OTHER: u8 = 64;
/// Bytes before another engine's part.
pub const OTHER_PART_HEADER_BYTES: usize = 5;
/// Bytes of an object command beside its strings, with their lengths: the most that a put needs.
const OBJECT_FIXED_BYTES: usize = 1 + 8 + 8 + 4 + 1 + 4 + 5 * 4;
/// Bytes of an expire command beside its strings, with their lengths.
const EXPIRE_FIXED_BYTES: usize = 1 + 8 + 8 + 2 * 4;
/// Bytes before a command that is kept.
pub(crate) const KEPT_BYTES: usize = 1 + 8;

/// An object as it is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put<'a> {
    /// Bucket.
    pub bucket: &'a [u8],
    /// Key within the bucket.
    pub key: &'a [u8],
    /// Value, as it is stored.
    pub stored: &'a [u8],
    /// How the value is compressed.
    pub compression: Compression,
    /// Length of the value.
    pub value_bytes: u32,
    /// CRC32C of the value.
    pub checksum: u32,
    /// Encoded user metadata.
    pub metadata: &'a [u8],
    /// Encoded index entries.
    pub indexes: &'a [u8],
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
    /// A put of `value` as it is, with its checksum taken.
    #[must_use]
    pub fn new(bucket: &'a [u8], key: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            bucket,
            key,
            stored: value,
            compression: Compression::None,
            value_bytes: len32(value.len()),
            checksum: crc32c(value),
            metadata: &[],
            indexes: &[],
            modified_ms: 0,
            expires_ms: 0,
        }
    }

    /// A put of a value that was made ready before.
    #[must_use]
    pub fn of(bucket: &'a [u8], key: &'a [u8], stored: &'a Stored) -> Self {
        Self {
            bucket,
            key,
            stored: &stored.bytes,
            compression: stored.compression,
            value_bytes: len32(stored.value_bytes),
            checksum: stored.checksum,
            metadata: &[],
            indexes: &[],
            modified_ms: 0,
            expires_ms: 0,
        }
    }

    /// The value, as the user knows it; `None` when it does not decompress, or is not what the checksum says.
    #[must_use]
    pub fn value(&self) -> Option<Vec<u8>> {
        let value = self.compression.expand(self.stored, usize::try_from(self.value_bytes).ok()?)?;
        (crc32c(&value) == self.checksum).then_some(value)
    }

    /// Most bytes that the encoded command takes.
    #[must_use]
    pub fn encoded_len_max(&self) -> usize {
        let strings = [self.bucket, self.key, self.metadata, self.indexes, self.stored];
        OBJECT_FIXED_BYTES + strings.iter().map(|string| string.len()).sum::<usize>()
    }

    fn is_plain(&self) -> bool {
        self.indexes.is_empty() && self.compression == Compression::None
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.reserve(self.encoded_len_max());
        to.push(if self.is_plain() { PUT } else { OBJECT });
        to.extend_from_slice(&self.modified_ms.to_le_bytes());
        to.extend_from_slice(&self.expires_ms.to_le_bytes());
        to.extend_from_slice(&self.checksum.to_le_bytes());
        if !self.is_plain() {
            to.push(self.compression.code());
            to.extend_from_slice(&self.value_bytes.to_le_bytes());
        }
        put_string(to, self.bucket);
        put_string(to, self.key);
        put_string(to, self.metadata);
        if !self.is_plain() {
            put_string(to, self.indexes);
        }
        put_string(to, self.stored);
    }

    fn decode(from: &mut Fields<'a>, plain: bool) -> Option<Self> {
        let (modified_ms, expires_ms, checksum) = (from.u64()?, from.u64()?, from.u32()?);
        let (mut compression, mut value_bytes) = (Compression::None, None);
        if !plain {
            compression = Compression::from_code(from.u8()?)?;
            value_bytes = Some(from.u32()?);
        }
        let (bucket, key, metadata) = (from.string()?, from.string()?, from.string()?);
        let indexes = if plain { Default::default() } else { from.string()? };
        let stored = from.string()?;
        let value_bytes = value_bytes.unwrap_or(len32(stored.len()));
        let put = Self {
            bucket,
            key,
            stored,
            compression,
            value_bytes,
            checksum,
            metadata,
            indexes,
            modified_ms,
            expires_ms,
        };
        let fits = compression != Compression::None || stored.len() == usize::try_from(value_bytes).ok()?;
        (fits && put.is_plain() == plain).then_some(put)
    }
}

/// A command as the journal holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded<'a> {
    /// The earlier position as of which the command is said, when it is kept; else its batch's position counts.
    pub version: Option<Position>,
    /// What became.
    pub command: Command<'a>,
}

impl<'a> Command<'a> {
    /// The bucket it changes something in.
    #[must_use]
    pub fn bucket(&self) -> &'a [u8] {
        match self {
            Self::Put(put) => put.bucket,
            Self::Delete { bucket, .. } | Self::Expire { bucket, .. } | Self::Clear { bucket } => bucket,
        }
    }

    /// Appends the command to `to`.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Put(put) => put.encode(to),
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

    /// Bytes of an expire command.
    pub(crate) fn expire_bytes(bucket: &[u8], key: &[u8]) -> u64 {
        (EXPIRE_FIXED_BYTES + bucket.len() + key.len()) as u64
    }

    /// Appends the command to `to`, kept as of `version`. Not for an expiry, which its object is kept with.
    pub fn encode_kept(&self, version: Position, to: &mut Vec<u8>) {
        debug_assert!(!matches!(self, Self::Expire { .. }));
        to.push(KEPT);
        to.extend_from_slice(&version.get().to_le_bytes());
        self.encode(to);
    }

    fn decode(from: &mut Fields<'a>) -> Option<Self> {
        Some(match from.u8()? {
            PUT => Self::Put(Put::decode(from, true)?),
            OBJECT => Self::Put(Put::decode(from, false)?),
            DELETE => Self::Delete { bucket: from.string()?, key: from.string()? },
            EXPIRE => {
                let (modified_ms, expires_ms) = (from.u64()?, from.u64()?);
                Self::Expire { bucket: from.string()?, key: from.string()?, modified_ms, expires_ms }
            }
            CLEAR => Self::Clear { bucket: from.string()? },
            _ => return None,
        })
    }
}

/// A command among others of a section.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// What was said.
    pub recorded: Recorded<'a>,
    /// Address of the command itself: what a ledger entry names.
    pub at: u64,
    /// Its bytes, with what stands before a command that is kept.
    pub bytes: &'a [u8],
}

impl Said<'_> {
    /// Bytes of the command itself.
    #[must_use]
    pub fn command_bytes(&self) -> usize {
        self.bytes.len() - self.recorded.prefix_bytes()
    }
}

/// The parts of other engines at the start of a section: the byte that names the engine and its commands; and where this
/// engine's commands begin.
pub fn other_parts(section: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = section;
    std::iter::from_fn(move || {
        let (engine, part, behind) = other_part(rest)?;
        rest = behind;
        Some((engine, part))
    })
}

fn other_part(section: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let mut from = Fields(section);
    let engine = from.u8().filter(|tag| *tag >= OTHER)?;
    let part = from.string()?;
    Some((engine, part, from.0))
}

/// Appends another engine's part of a section: before all commands of this one.
///
/// # Panics
/// When `engine` is below 64, which is where the commands of this engine are.
pub fn put_other_part(to: &mut Vec<u8>, engine: u8, part: &[u8]) {
    assert!(engine >= OTHER, "engines have tags of their own");
    to.push(engine);
    put_string(to, part);
}

/// As [`put_other_part`], of what `write` appends: for parts that are not there yet, and would be copied.
///
/// # Panics
/// As [`put_other_part`].
pub fn write_other_part(to: &mut Vec<u8>, engine: u8, write: impl FnOnce(&mut Vec<u8>)) {
    assert!(engine >= OTHER, "engines have tags of their own");
    to.push(engine);
    let length_at = to.len();
    put_string(to, b"");
    let begin = to.len();
    write(to);
    let length = len32(to.len() - begin).to_le_bytes();
    to.get_mut(length_at..begin).expect("the writer only appends").copy_from_slice(&length);
}

/// The commands of a section, in order; at what does not decode an error, and then nothing more.
#[derive(Debug, Clone)]
pub struct Commands<'a> {
    rest: &'a [u8],
    at: u64,
}

impl<'a> Commands<'a> {
    /// Commands of a section whose first byte lies at journal address `at`. Parts of other engines are passed over.
    #[must_use]
    pub fn new(section: &'a [u8], at: u64) -> Self {
        let mut rest = section;
        while let Some((_, _, behind)) = other_part(rest) {
            rest = behind;
        }
        Self { rest, at: at + (section.len() - rest.len()) as u64 }
    }
}

impl<'a> Iterator for Commands<'a> {
    type Item = Result<Said<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let decoded = Recorded::decode(self.rest);
        let split = decoded.and_then(|(recorded, bytes)| Some((recorded, self.rest.split_at_checked(bytes)?)));
        let Some((recorded, (bytes, rest))) = split else {
            self.rest = &[];
            return Some(Err(Error::Command));
        };
        let said = Said { recorded, at: self.at + recorded.prefix_bytes() as u64, bytes };
        self.rest = rest;
        self.at += bytes.len() as u64;
        Some(Ok(said))
    }
}

impl<'a> Recorded<'a> {
    /// The command at the start of `bytes`, and how many bytes it takes.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let mut from = Fields(bytes);
        let mut version = None;
        if bytes.first() == Some(&KEPT) {
            from.u8()?;
            version = Some(Position::new(from.u64()?));
        }
        let command = Command::decode(&mut from)?;
        if version.is_some() && matches!(command, Command::Expire { .. }) {
            return None;
        }
        Some((Self { version, command }, bytes.len() - from.0.len()))
    }

    /// Bytes before the command itself: a value's address is that of its command.
    fn prefix_bytes(&self) -> usize {
        if self.version.is_some() { KEPT_BYTES } else { 0 }
    }

    #[cfg(test)]
    fn encode(&self, to: &mut Vec<u8>) {
        match self.version {
            None => self.command.encode(to),
            Some(version) => self.command.encode_kept(version, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_back_as_they_went_in() {
        let put = Put { metadata: b"m", modified_ms: 5, expires_ms: 9, ..Put::new(b"b", b"k", b"value") };
        let stored = Stored::new(&[7; 300], Compression::Lz4);
        let commands = [
            Command::Put(put),
            Command::Put(Put { indexes: b"entries", ..put }),
            Command::Put(Put { expires_ms: 3, ..Put::of(b"b", b"k", &stored) }),
            Command::Delete { bucket: b"b", key: b"" },
            Command::Expire { bucket: b"b", key: b"k", modified_ms: 1, expires_ms: 0 },
            Command::Clear { bucket: b"bucket" },
        ];
        let mut recorded = Vec::new();
        for command in commands {
            recorded.push(Recorded { version: None, command });
            if !matches!(command, Command::Expire { .. }) {
                recorded.push(Recorded { version: Some(Position::new(77)), command });
            }
        }
        for command in recorded {
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            assert_eq!(Recorded::decode(&bytes), Some((command, bytes.len())));
            for end in 0..bytes.len() {
                assert_eq!(Recorded::decode(&bytes[..end]), None, "a cut command does not decode");
            }
            bytes.push(0);
            assert_eq!(Recorded::decode(&bytes).map(|found| found.1), Some(bytes.len() - 1), "the next one follows");
        }
    }

    #[test]
    fn parts_of_other_engines_are_passed_over() {
        let mut section = Vec::new();
        write_other_part(&mut section, 64, |to| to.extend_from_slice(b"of the space"));
        put_other_part(&mut section, 70, b"");
        let at = section.len() as u64;
        Command::Delete { bucket: b"b", key: b"k" }.encode(&mut section);
        let parts: Vec<(u8, &[u8])> = other_parts(&section).collect();
        assert_eq!(parts, [(64, b"of the space".as_slice()), (70, b"")]);
        let said: Vec<_> = Commands::new(&section, 1000).map(Result::unwrap).collect();
        assert_eq!((said.len(), said[0].at), (1, 1000 + at));
        let cut = &section[..10];
        assert!(matches!(Commands::new(cut, 0).next(), Some(Err(Error::Command))) && other_parts(cut).next().is_none());
    }

    proptest::proptest! {
        #[test]
        fn garbage_decodes_to_nothing_or_to_itself(
            mut bytes in proptest::collection::vec(0u8..=255, 0..200), kind in 0u8..8, inner in 0u8..8
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let (KEPT, Some(byte)) = (kind, bytes.get_mut(KEPT_BYTES)) {
                *byte = inner;
            }
            if let Some((command, len)) = Recorded::decode(&bytes) {
                let mut again = Vec::new();
                command.encode(&mut again);
                assert_eq!(again, bytes[..len]);
            }
        }
    }
}
