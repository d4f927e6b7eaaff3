//! Some leaves of a Merkle tree, and the objects under them.
//!
//! May use: the sizes of trees. Must not know: hashes of leaves, partitions.

use std::ops::RangeInclusive;

use crate::tree::TreeSize;

/// A set of leaves of a tree: picks the objects that have to be compared, at the cost of one bit for each leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafSet {
    size: TreeSize,
    words: Vec<u64>,
}

impl LeafSet {
    /// These leaves of a tree of this size; `None` when it has no such leaf.
    pub fn new(size: TreeSize, leaves: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut words = vec![0; (size.leaves() / u64::BITS) as usize];
        for leaf in leaves {
            *words.get_mut((leaf / u64::BITS) as usize)? |= 1 << (leaf % u64::BITS);
        }
        Some(Self { size, words })
    }

    /// The size of the tree.
    #[must_use]
    pub fn size(&self) -> TreeSize {
        self.size
    }

    /// The leaves, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.size.leaves()).filter(|leaf| self.holds(*leaf))
    }

    /// Whether the object with this [`crate::object_hash`] lies under one of them.
    #[must_use]
    pub fn contains(&self, object_hash: u64) -> bool {
        self.holds(self.size.leaf(object_hash))
    }

    /// Whether an object whose hash is in this range may lie under one of them: false for a partition to be passed over.
    #[must_use]
    pub fn meets(&self, hashes: RangeInclusive<u64>) -> bool {
        (self.size.leaf(*hashes.start())..=self.size.leaf(*hashes.end())).any(|leaf| self.holds(leaf))
    }

    fn holds(&self, leaf: u32) -> bool {
        self.words.get((leaf / u64::BITS) as usize).is_some_and(|word| word >> (leaf % u64::BITS) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_the_objects_of_its_leaves_and_no_others() {
        let size = TreeSize::with_leaves(1024).unwrap();
        let last = size.leaves() - 1;
        let set = LeafSet::new(size, [last, 0, 63, 64, 64]).unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, last]);
        let lowest = |leaf: u64| leaf << 54;
        assert!(set.contains(0) && set.contains(lowest(1) - 1) && set.contains(u64::MAX) && set.contains(lowest(64)));
        assert!(!set.contains(lowest(1)) && !set.contains(lowest(65)) && !set.contains(lowest(62)));
        assert!(set.meets(lowest(1)..=lowest(63)) && set.meets(0..=0));
        assert!(!set.meets(lowest(1)..=lowest(63) - 1));
        assert!(LeafSet::new(size, []).unwrap().iter().next().is_none());
        assert_eq!(LeafSet::new(size, [1024]), None);
    }
}
