//! What a backup holds, and that it is whole: the file `backup`, written last. This comment is the format's specification.
//!
//! Format: docs/formats/backup.md
//!
//! Layout, sizes in bytes, integers little-endian:
//!   magic          8   "HOLDBAK\x01"; the last byte is the version
//!   store         16   identity of the store
//!   partitions     4   how many
//!   segments       4   how many
//!   position       8   every batch below it is in the segments
//!   taken          8   when the backup was made, in milliseconds since 1970-01-01 UTC
//!   segment*      24 each, in the order of their bases:
//!     base         8   position of the segment, from which follows the file's name
//!     length       8   of the file
//!     segment sum  4   as in the segment's footer: CRC32C of the file's bytes before the footer
//!     tail sum     4   as in the segment's footer: CRC32C of index and states
//!   checksum       4   CRC32C of all the above
//!
//! May use: `base`. Must not know: files, how a backup is made.

use base::crc32c;

use crate::bytes::{Reader, index, len32};
use crate::position::Position;

const MAGIC: [u8; 7] = *b"HOLDBAK";
const VERSION: u8 = 1;
const FIXED_BYTES: usize = 48;
const SEGMENT_BYTES: usize = 24;
/// Most bytes of a manifest: ten million segments, which is hundreds of terabytes of journal.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 240 << 20;

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Identity of the store.
    pub store: u128,
    /// Number of partitions of the store.
    pub partitions: u16,
    /// Every batch below is in the backup.
    pub position: Position,
    /// When it was made, in milliseconds since 1970.
    pub taken_ms: u64,
    /// Its segments, in the order of their bases.
    pub segments: Vec<ManifestSegment>,
}

/// One sealed segment of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestSegment {
    /// Its first position.
    pub base: Position,
    /// Length of its file in bytes.
    pub bytes: u64,
    /// CRC32C of the file's bytes before the footer.
    pub segment_sum: u32,
    /// CRC32C of the footer's index and states.
    pub tail_sum: u32,
}

impl ManifestSegment {
    /// Name of the segment's file.
    #[must_use]
    pub fn name(&self) -> String {
        crate::segment::file_name(self.base)
    }
}

impl Manifest {
    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().fold(0, |sum, segment| segment.bytes.saturating_add(sum))
    }

    /// The content of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(FIXED_BYTES + self.segments.len() * SEGMENT_BYTES + 4);
        to.extend_from_slice(&MAGIC);
        to.push(VERSION);
        to.extend_from_slice(&self.store.to_le_bytes());
        to.extend_from_slice(&u32::from(self.partitions).to_le_bytes());
        to.extend_from_slice(&len32(self.segments.len()).to_le_bytes());
        to.extend_from_slice(&self.position.get().to_le_bytes());
        to.extend_from_slice(&self.taken_ms.to_le_bytes());
        for segment in &self.segments {
            to.extend_from_slice(&segment.base.get().to_le_bytes());
            to.extend_from_slice(&segment.bytes.to_le_bytes());
            to.extend_from_slice(&segment.segment_sum.to_le_bytes());
            to.extend_from_slice(&segment.tail_sum.to_le_bytes());
        }
        let sum = crc32c(&to);
        to.extend_from_slice(&sum.to_le_bytes());
        to
    }

    /// The manifest in a file's content; `None` when it is damaged or cut, the version if it is intact and not ours.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Result<Self, u8>> {
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        if crc32c(body) != u32::from_le_bytes(*sum) {
            return None;
        }
        let mut from = Reader(body);
        if from.array()? != MAGIC {
            return None;
        }
        let [version] = from.array()?;
        if version != VERSION {
            return Some(Err(version));
        }
        let store = from.u128()?;
        let partitions = u16::try_from(from.u32()?).ok()?;
        let count = u64::from(from.u32()?);
        let (position, taken_ms) = (Position::new(from.u64()?), from.u64()?);
        if from.0.len() as u64 != count * SEGMENT_BYTES as u64 {
            return None;
        }
        let mut segments: Vec<ManifestSegment> = Vec::with_capacity(index(count));
        for _ in 0..count {
            let (base, bytes) = (Position::new(from.u64()?), from.u64()?);
            let (segment_sum, tail_sum) = (from.u32()?, from.u32()?);
            if segments.last().is_some_and(|last| last.base >= base) {
                return None;
            }
            segments.push(ManifestSegment { base, bytes, segment_sum, tail_sum });
        }
        Some(Ok(Self { store, partitions, position, taken_ms, segments }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(segments: u64) -> Manifest {
        let segment =
            |n| ManifestSegment { base: Position::new(n << 13), bytes: 5_000 + n, segment_sum: 7, tail_sum: 9 };
        let segments = (0..segments).map(segment).collect();
        Manifest { store: 42, partitions: 16, position: Position::new(1 << 20), taken_ms: 1_700_000_000_000, segments }
    }

    #[test]
    fn a_manifest_comes_back_as_it_went_in_and_no_changed_or_missing_byte_passes() {
        for segments in [0, 1, 5] {
            let manifest = manifest(segments);
            let bytes = manifest.encode();
            assert_eq!(Manifest::decode(&bytes), Some(Ok(manifest)));
            for at in 0..bytes.len() {
                assert_eq!(Manifest::decode(&bytes[..at]), None);
                let mut changed = bytes.clone();
                changed[at] ^= 4;
                assert_eq!(Manifest::decode(&changed), None, "byte {at}");
            }
        }
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut bytes = manifest(2).encode();
        bytes[7] = 2;
        let end = bytes.len() - 4;
        let sum = crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Manifest::decode(&bytes), Some(Err(2)));
    }
}
