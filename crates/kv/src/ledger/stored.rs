//! Blocks as they are stored in a table's file, and the places of those.
//!
//! This is the specification; sizes in bytes, integers little-endian:
//!
//!   stored block   the block, or what a codec made of it | codec 1 (0 none, 1 LZ4, 2 Zstandard) | bytes of the block 4
//!   place          offset in the file 8 | bytes of the stored block 4 | xxh3, 64 bits, of the stored block 8
//!
//! Who names a block says what it is: so a block of another table, another ledger or another place, or one that was written before, is not the
//! block that was asked for, however intact it is.
//!
//! May use: codecs. Must not know: what is in blocks.

use std::sync::Arc;

use base::{Fields, hash64};

use crate::bytes::len32;
use crate::compression::Compression;

/// Codec and length.
const TAIL_BYTES: usize = 5;
/// Of a place.
pub(super) const PLACE_BYTES: usize = 20;
/// Bytes of a block at the most: of a block of one entry, whose key and value were let in.
const BLOCK_BYTES_MAX: usize = 1 << 30;

/// Where a block is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) sum: u64,
}

impl Place {
    pub(super) fn encode(self) -> [u8; PLACE_BYTES] {
        let fields =
            self.offset.to_le_bytes().into_iter().chain(self.bytes.to_le_bytes()).chain(self.sum.to_le_bytes());
        let mut bytes = [0; PLACE_BYTES];
        bytes.iter_mut().zip(fields).for_each(|(to, byte)| *to = byte);
        bytes
    }

    /// The first place that the bytes begin with, and what is behind it.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = Fields(bytes);
        let place = Self { offset: fields.u64()?, bytes: fields.u32()?, sum: fields.u64()? };
        Some((place, fields.0))
    }

    pub(super) fn end(self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.bytes))
    }
}

/// Appends a block as it is stored at `offset`, by this codec if that saves something.
pub(super) fn store(block: &[u8], codec: Compression, offset: u64, to: &mut Vec<u8>) -> Place {
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
    let stored = to.get(start..).unwrap_or_default();
    Place { offset, bytes: len32(stored.len()), sum: hash64(stored) }
}

/// The block that was stored so; `None` when it is not what the place says.
pub(super) fn restore(stored: &[u8], place: Place) -> Option<Arc<[u8]>> {
    if hash64(stored) != place.sum {
        return None;
    }
    let (packed, tail) = stored.split_last_chunk::<TAIL_BYTES>()?;
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
    fn a_block_comes_back_by_its_place_alone_and_a_changed_bit_is_seen() {
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
            let place = store(block, codec, 4096, &mut to);
            let stored = &to[6..];
            assert_eq!((place.offset, place.bytes as usize), (4096, stored.len()));
            assert_eq!(stored[stored.len() - TAIL_BYTES], stored_as);
            assert_eq!(restore(stored, place).as_deref(), Some(&block[..]));
            let other = store(b"another", codec, 4096, &mut Vec::new());
            assert_eq!(restore(stored, other), None, "intact, and not what was asked for");
            for at in 0..stored.len() {
                let mut flipped = stored.to_vec();
                flipped[at] ^= 1 << (at % 8);
                assert_eq!(restore(&flipped, place), None, "byte {at}");
                assert_eq!(restore(&stored[..at], place), None);
            }
        }
    }

    #[test]
    fn places_come_back() {
        let place = Place { offset: 1 << 40, bytes: 77, sum: u64::MAX - 5 };
        let encoded = [&place.encode()[..], b"more"].concat();
        assert_eq!(Place::decode(&encoded), Some((place, &b"more"[..])));
        assert_eq!((Place::decode(&encoded[..PLACE_BYTES - 1]), place.end()), (None, Some((1 << 40) + 77)));
    }
}
