//! Blocks as they are stored in a table's file, and the places of those.
//!
//! This is the specification; sizes in bytes, integers little-endian:
//!
//!   stored block   the block, or what a codec made of it | codec 1 (0 none, 1 LZ4, 2 Zstandard) | bytes of the block 4 | sum 8
//!   place          offset in the file 8 | bytes of the stored block 4
//!
//! The sum is xxh3, 64 bits, over all that is before it, with the table's number and the offset in the seed: so a block of
//! another table, or of another place, is not the block that was asked for, however intact it is.
//!
//! May use: codecs. Must not know: what is in blocks.

use std::sync::Arc;

use base::{Fields, hash64_seeded};

use crate::bytes::len32;
use crate::compression::Compression;

/// Codec, length and sum.
const TAIL_BYTES: usize = 13;
const SUM_BYTES: usize = 8;
/// Of a place.
pub(super) const PLACE_BYTES: usize = 12;
/// Bytes of a block at the most: of a block of one entry, whose key and value were let in.
const BLOCK_BYTES_MAX: usize = 1 << 30;

/// Where a block is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

impl Place {
    pub(super) fn encode(self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        let (offset, length) = bytes.split_at_mut(8);
        offset.copy_from_slice(&self.offset.to_le_bytes());
        length.copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// The first place that the bytes begin with, and what is behind it.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = Fields(bytes);
        let place = Self { offset: fields.u64()?, bytes: fields.u32()? };
        Some((place, fields.0))
    }

    pub(super) fn end(self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.bytes))
    }
}

fn sum(bytes: &[u8], table: u64, offset: u64) -> u64 {
    hash64_seeded(bytes, table.rotate_left(40) ^ offset)
}

/// Appends a block as it is stored at `offset` of a table, by this codec if that saves something.
pub(super) fn store(block: &[u8], codec: Compression, (table, offset): (u64, u64), to: &mut Vec<u8>) -> u32 {
    let start = to.len();
    let codec = match codec.compress(block) {
        Some(packed) => {
            to.extend_from_slice(&packed);
            codec
        }
        None => {
            to.extend_from_slice(block);
            Compression::None
        }
    };
    to.push(codec.code());
    to.extend_from_slice(&len32(block.len()).to_le_bytes());
    let sum = sum(to.get(start..).unwrap_or_default(), table, offset);
    to.extend_from_slice(&sum.to_le_bytes());
    len32(to.len() - start)
}

/// The block that was stored so at this place; `None` when it is not what was written there.
pub(super) fn restore(stored: &[u8], (table, offset): (u64, u64)) -> Option<Arc<[u8]>> {
    let (summed, found) = stored.split_last_chunk::<SUM_BYTES>()?;
    if u64::from_le_bytes(*found) != sum(summed, table, offset) {
        return None;
    }
    let (packed, tail) = summed.split_last_chunk::<{ TAIL_BYTES - SUM_BYTES }>()?;
    let mut tail = Fields(tail);
    let (codec, bytes) = (Compression::from_code(tail.u8()?)?, usize::try_from(tail.u32()?).ok()?);
    if codec == Compression::None {
        return (packed.len() == bytes).then(|| Arc::from(packed));
    }
    (bytes <= BLOCK_BYTES_MAX).then(|| codec.expand(packed, bytes))?.map(Arc::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_from_its_place_alone_and_a_changed_bit_is_seen() {
        let text = b"blocks of ledgers hold what is known of objects. ".repeat(30);
        let mut noise = vec![0; 500];
        base::Random::new(3).fill(&mut noise);
        for (block, codec, stored_as) in [
            (&text, Compression::None, 0),
            (&text, Compression::Lz4, 1),
            (&text, Compression::Zstd, 2),
            (&noise, Compression::Zstd, 0),
            (&Vec::new(), Compression::Lz4, 0),
        ] {
            let mut to = b"before".to_vec();
            let bytes = store(block, codec, (7, 4096), &mut to);
            let stored = &to[6..];
            assert_eq!((stored.len(), stored[stored.len() - TAIL_BYTES]), (bytes as usize, stored_as));
            assert_eq!(restore(stored, (7, 4096)).as_deref(), Some(&block[..]));
            assert!([(8, 4096), (7, 4097), (7, 0)].iter().all(|other| restore(stored, *other).is_none()));
            for at in 0..stored.len() {
                let mut flipped = stored.to_vec();
                flipped[at] ^= 1 << (at % 8);
                assert_eq!(restore(&flipped, (7, 4096)), None, "byte {at}");
                assert_eq!(restore(&stored[..at], (7, 4096)), None);
            }
        }
    }

    #[test]
    fn places_come_back() {
        let place = Place { offset: 1 << 40, bytes: 77 };
        let encoded = [&place.encode()[..], b"more"].concat();
        assert_eq!(Place::decode(&encoded), Some((place, &b"more"[..])));
        assert_eq!((Place::decode(&encoded[..11]), place.end()), (None, Some((1 << 40) + 77)));
    }
}
