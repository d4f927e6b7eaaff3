//! A partition's share as it is written beside the journal, so that the journal need not be read from its beginning. This
//! comment is the format's specification.
//!
//! Format: docs/formats/space.md
//!
//! Layout, sizes in bytes, integers little-endian where a size is given, else LEB128:
//!   magic            8   "HOLDSPC\x03"; the last byte is the version
//!   partition        2
//!   last type        4   the highest number that a type was ever given; before version 3 zero
//!   zero             2
//!   applied          8   everything up to this position is in it
//!   next sequence    8
//!   checksum         8   xxh3 of all before this number, plus xxh3 of all behind it; in version 1 only the latter
//!   types: count | (type | definition)*
//!   entries*             type + 1 | version | expires | sequence | document behind its length
//!   end                  0
//!
//! Entries of volatile types are not in it. A snapshot is derived while the journal has what it has; it is written beside
//! and renamed, and the one before is kept, so that a damaged one costs time only.
//!
//! May use: `engine`. Must not know: files, when it is written.

use journal::{PartitionId, Position};

use crate::command::TypeId;
use crate::definition::Definition;
use crate::document::Document;
use crate::engine::Engine;
use crate::entries::{Entry, Stored};
use crate::error::{Error, Result};
use crate::share::Share;
use base::{Fields, Hash64, put_string, put_varint};

const MAGIC: [u8; 8] = *b"HOLDSPC\x03";
const MAGIC_2: [u8; 8] = *b"HOLDSPC\x02";
const MAGIC_1: [u8; 8] = *b"HOLDSPC\x01";
const HEADER_BYTES: usize = 40;
/// What stands before the checksum.
const SUMMED_BYTES: usize = HEADER_BYTES - 8;

/// A partition's share at one position, copied out from under its lock: the documents are shared, not copied.
pub struct Snapshot {
    applied: Position,
    next_sequence: u64,
    last_type: u32,
    types: Vec<(TypeId, Definition)>,
    entries: Vec<(TypeId, Stored)>,
}

impl Snapshot {
    /// Bytes at a file's start that say up to where it goes.
    pub const START_BYTES: usize = HEADER_BYTES;

    /// Up to where a file goes that starts so; `None` when it is no snapshot. Nothing is checked by that.
    #[must_use]
    pub fn applied_of(start: &[u8]) -> Option<Position> {
        let mut from = Fields(start);
        let magic = from.array()?;
        // Partition, last type and zeros lie between.
        from.take(8)?;
        let applied = from.u64()?;
        [MAGIC, MAGIC_2, MAGIC_1].contains(&magic).then(|| Position::new(applied))
    }

    /// The position up to which it has everything.
    #[must_use]
    pub fn applied(&self) -> Position {
        self.applied
    }

    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self, partition: PartitionId) -> Vec<u8> {
        let documents: usize = self.entries.iter().map(|(_, stored)| stored.document.as_bytes().len() + 32).sum();
        let mut to = Vec::with_capacity(HEADER_BYTES + documents);
        to.extend_from_slice(&MAGIC);
        to.extend_from_slice(&partition.get().to_le_bytes());
        to.extend_from_slice(&self.last_type.to_le_bytes());
        to.extend_from_slice(&[0; 2]);
        to.extend_from_slice(&self.applied.get().to_le_bytes());
        to.extend_from_slice(&self.next_sequence.to_le_bytes());
        to.extend_from_slice(&[0; 8]);
        put_varint(&mut to, self.types.len() as u64);
        for (of, definition) in &self.types {
            put_varint(&mut to, u64::from(of.0));
            definition.encode(&mut to);
        }
        for (of, stored) in &self.entries {
            put_varint(&mut to, u64::from(of.0) + 1);
            put_varint(&mut to, stored.version.get());
            put_varint(&mut to, stored.expires_ms);
            put_varint(&mut to, stored.sequence);
            put_string(&mut to, stored.document.as_bytes());
        }
        to.push(0);
        let sum = checksum(&to, to.get(HEADER_BYTES..).unwrap_or_default());
        if let Some(place) = to.get_mut(SUMMED_BYTES..HEADER_BYTES) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
        to
    }
}

/// Checks a file piece by piece, for who has no use for what is in it.
pub struct SnapshotCheck {
    partition: PartitionId,
    header: Vec<u8>,
    body: Hash64,
}

impl SnapshotCheck {
    /// Of the partition whose share the file is.
    #[must_use]
    pub fn new(partition: PartitionId) -> Self {
        Self { partition, header: Vec::with_capacity(HEADER_BYTES), body: Hash64::default() }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let missing = (HEADER_BYTES - self.header.len()).min(bytes.len());
        let (header, body) = bytes.split_at(missing);
        self.header.extend_from_slice(header);
        self.body.update(body);
    }

    /// Up to where the file goes, once its header was taken. It is to be believed when the file is intact.
    #[must_use]
    pub fn applied(&self) -> Option<Position> {
        Snapshot::applied_of(&self.header)
    }

    /// Whether the bytes so far are a whole file as it was written.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        let Some((summed, sum)) = self.header.split_at_checked(SUMMED_BYTES) else { return false };
        let mut from = Fields(summed);
        let Some(magic) = from.array() else { return false };
        let body = self.body.finish();
        let expected = if magic == MAGIC_1 { body } else { base::hash64(summed).wrapping_add(body) };
        [MAGIC, MAGIC_2, MAGIC_1].contains(&magic)
            && from.array() == Some(self.partition.get().to_le_bytes())
            && sum == expected.to_le_bytes()
    }
}

/// A flipped bit before the body would cost as much as one in it: positions decide what is replayed.
fn checksum(all: &[u8], body: &[u8]) -> u64 {
    base::hash64(all.get(..SUMMED_BYTES).unwrap_or_default()).wrapping_add(base::hash64(body))
}

impl Engine {
    /// A copy of everything durable, when everything up to `through` was applied.
    #[must_use]
    pub fn snapshot(&self, through: Position) -> Snapshot {
        let of_type = |(of, share): (&TypeId, &Share)| (*of, Definition::clone(&share.definition));
        let durable = self.types.iter().filter(|(_, share)| share.is_durable());
        Snapshot {
            applied: through.max(self.applied),
            next_sequence: self.next_sequence,
            last_type: self.last_type,
            types: self.types.iter().map(of_type).collect(),
            entries: durable
                .flat_map(|(of, share)| {
                    share.entries.iter().filter_map(|(slot, _)| Some((*of, share.entries.stored(slot)?)))
                })
                .collect(),
        }
    }

    /// The engine of a snapshot's bytes.
    ///
    /// # Errors
    /// `Malformed` when they are not those of a snapshot of this partition, or damaged.
    pub fn restore(bytes: &[u8], partition: PartitionId) -> Result<Self> {
        Self::read(bytes, partition).ok_or(Error::Malformed { what: "snapshot of the space" })
    }

    fn read(bytes: &[u8], partition: PartitionId) -> Option<Self> {
        let mut from = Fields(bytes);
        let magic = from.array()?;
        let is_ours = [MAGIC, MAGIC_2, MAGIC_1].contains(&magic) && from.array()? == partition.get().to_le_bytes();
        let mut last_type = u32::from_le_bytes(from.array()?);
        if !is_ours || from.take(2)? != [0; 2] {
            return None;
        }
        let applied = Position::new(from.u64()?);
        let next_sequence = from.u64()?;
        let found = from.u64()?;
        let expected = if magic == MAGIC_1 { base::hash64(from.0) } else { checksum(bytes, from.0) };
        if found != expected {
            return None;
        }
        let mut engine = Self { applied, next_sequence, ..Self::default() };
        for _ in 0..from.varint()? {
            let of = TypeId(u32::try_from(from.varint()?).ok()?);
            engine.types.insert(of, Share::new(Definition::read(&mut from)?));
            // An older snapshot knows no more than what is there.
            last_type = last_type.max(of.0);
        }
        engine.last_type = last_type;
        while let Some(of) = from.varint()?.checked_sub(1) {
            let share = engine.types.get_mut(&TypeId(u32::try_from(of).ok()?))?;
            let version = Position::new(from.varint()?);
            let (expires_ms, sequence) = (from.varint()?, from.varint()?);
            let document = Document::trusted(from.string()?);
            share.insert(Entry::new(document, version, sequence), expires_ms);
        }
        from.0.is_empty().then_some(engine)
    }
}
