//! Checksums and hashes: CRC32C where bytes must be proven intact, xxh3 where bytes are summed up or spread.
//!
//! CRC32C (Castagnoli, RFC 3720 appendix B.4; "CRC-32/ISCSI" in catalogues) runs in hardware and can be verified by
//! other tools. xxh3 is the 2020 hash of Yann Collet's xxHash family.
//!
//! May use: the checksum crates. Must not know: what is summed.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    truncate(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// A CRC32C over several pieces, equal to [`crc32c`] of their concatenation.
#[derive(Debug, Clone)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// The checksum of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all pieces so far.
    #[must_use]
    pub fn finish(&self) -> u32 {
        truncate(self.0.finalize())
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// A [`hash64`] over several pieces, equal to that of their concatenation.
#[derive(Default)]
pub struct Hash64(Box<xxhash_rust::xxh3::Xxh3>);

impl Hash64 {
    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all pieces so far.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

/// xxh3, 64 bits: partitions of keys, digests.
#[must_use]
pub fn hash64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// xxh3, 128 bits: the hash chain of a partition's log.
#[must_use]
pub fn hash128(bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128(bytes)
}

fn truncate(sum: u64) -> u32 {
    u32::try_from(sum).expect("a 32-bit checksum fits 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_the_vectors_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn pieces_sum_to_the_whole() {
        let mut sum = Crc32c::new();
        sum.update(b"1234");
        sum.update(b"");
        sum.update(b"56789");
        assert_eq!(sum.finish(), crc32c(b"123456789"));
    }
}
