//! The hash that places an object: in a partition, and under a leaf of the Merkle tree.
//!
//! Both take its high bits, so a partition owns a contiguous range of leaves. It is part of the format of a store: nothing
//! on disk says in which partition an object is (docs/formats/store.md).
//!
//! May use: `base`. Must not know: how many partitions or leaves there are.

use base::hash64;

/// Where an object belongs, evenly spread over 64 bits: `xxh3(key) + rotate_left(xxh3(bucket), 32)` modulo 2^64.
#[must_use]
pub fn object_hash(bucket: &[u8], key: &[u8]) -> u64 {
    hash64(key).wrapping_add(hash64(bucket).rotate_left(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_an_object_never_changes() {
        // xxh3-64 of nothing, as its authors publish it, is 0x2D06_8005_38D3_94C2.
        assert_eq!(object_hash(b"", b""), 0x65DA_14C7_65DA_14C7);
        assert_eq!(object_hash(b"users", b"ada"), 0x60E5_7ACC_E215_2286);
        assert_ne!(object_hash(b"users", b"ada"), object_hash(b"ada", b"users"), "bucket and key are told apart");
    }
}
