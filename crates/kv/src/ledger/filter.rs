//! Which keys a table may have: a Bloom filter whose bits of a key lie in one line of the processor's cache.
//!
//! It is the split block filter of Putze, Sanders and Singler ("Cache-, Hash- and Space-Efficient Bloom Filters", 2007) as Apache Parquet has
//! it: blocks of 32 bytes, eight words of 32 bits; the upper half of a key's hash chooses the block, the lower half a bit of each word.
//!
//! This is the specification; sizes in bytes, integers little-endian: block 32 of 8 words, and so on. The hash is xxh3, 64 bits.
//!
//! May use: nothing. Must not know: where it is stored.

use std::sync::Arc;

use base::hash64;

const BLOCK_BYTES: usize = 32;
/// Bits for each key: one key in some 150 passes that is not there.
const BITS_PER_KEY: usize = 12;
/// Parquet's, odd numbers.
const SALTS: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// What filters know a key by.
pub(super) fn hash_of(key: &[u8]) -> u64 {
    hash64(key)
}

/// A filter, ready to be asked. Clones share the bytes.
#[derive(Debug, Clone)]
pub(super) struct Filter(Arc<[u8]>);

fn block_of(hash: u64, blocks: usize) -> usize {
    let blocks = u64::try_from(blocks).unwrap_or(u64::MAX);
    usize::try_from(((hash >> 32) * blocks) >> 32).unwrap_or(0)
}

fn bits_of(hash: u64) -> [u32; 8] {
    let low = (hash & u64::from(u32::MAX)) as u32;
    SALTS.map(|salt| 1 << (low.wrapping_mul(salt) >> 27))
}

fn words(block: &[u8]) -> impl Iterator<Item = u32> {
    block.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

impl Filter {
    /// `None` when the bytes are no filter.
    pub(super) fn of(bytes: Arc<[u8]>) -> Option<Self> {
        bytes.len().is_multiple_of(BLOCK_BYTES).then_some(Self(bytes))
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// False when no key of this hash is there. One without blocks is of no keys.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        let blocks = self.0.len() / BLOCK_BYTES;
        let at = block_of(hash, blocks) * BLOCK_BYTES;
        let Some(block) = self.0.get(at..at + BLOCK_BYTES) else { return false };
        // All of them, without a branch for each: the line is there or it is not.
        words(block).zip(bits_of(hash)).fold(0, |missing, (word, bit)| missing | (!word & bit)) == 0
    }
}

/// The filter of keys with these hashes.
pub(super) fn filter_of(hashes: &[u64]) -> Vec<u8> {
    let blocks = (hashes.len() * BITS_PER_KEY).div_ceil(8 * BLOCK_BYTES);
    let mut bytes = vec![0; blocks * BLOCK_BYTES];
    for hash in hashes {
        let at = block_of(*hash, blocks) * BLOCK_BYTES;
        let block = bytes.get_mut(at..at + BLOCK_BYTES).unwrap_or_default();
        for (word, bit) in block.as_chunks_mut::<4>().0.iter_mut().zip(bits_of(*hash)) {
            *word = (u32::from_le_bytes(*word) | bit).to_le_bytes();
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_passes_and_little_else() {
        for count in [0u64, 1, 21, 22, 1_000, 100_000] {
            let hashes: Vec<u64> = (0..count).map(|number| hash_of(&number.to_le_bytes())).collect();
            let filter = Filter::of(Arc::from(filter_of(&hashes))).unwrap();
            assert!(hashes.iter().all(|hash| filter.may_have(*hash)), "{count}");
            let others = (0..20_000u64).map(|number| hash_of(&(number + (1 << 40)).to_le_bytes()));
            let passed = others.filter(|hash| filter.may_have(*hash)).count();
            assert!(passed < 300, "{passed} of 20000 passed one of {count}");
            assert!(filter.bytes() as u64 <= count * 12 / 8 + 32);
        }
        assert!(Filter::of(Arc::from([0; 33])).is_none());
    }
}
