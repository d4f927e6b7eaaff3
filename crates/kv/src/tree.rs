//! A Merkle tree over objects, which tells two stores where they differ. This comment is the format's specification.
//!
//! Format: docs/formats/tree.md
//!
//! The tree is a row of 2^n *leaves*, each the xor of 32-bit hashes of the objects under it, so a change is two xors and
//! nothing is ever rebuilt (the TicTac trees of Riak and leveled; "Merkle trees without rebuild"). An object's leaf is the
//! high n bits of its hash, so a smaller tree is the xor of neighbours of a larger one, and trees of disjoint objects, as
//! partitions have them, add up by xor. Above the leaves lie `width` = 2^(n/2) *branches*, each the xor of its `width`
//! leaves: two stores compare the root, which is all branches, then the leaves of the branches that differ.
//!
//! Layout, sizes in bytes, integers little-endian; hashes that are all zero are mostly left out:
//!   version  1   1
//!   size     1   n: 10, 12, 14, 16, 18 or 20
//!   runs     4   how many follow
//!   run*     first leaf 4 | leaves 4 | hash 4 of each
//!
//! A run begins and ends with a leaf that is not zero; up to two zeros between such leaves belong to the run, because they
//! cost no more than a new one; runs ascend. So a tree has one encoding.
//!
//! May use: `base`. Must not know: objects, partitions, how trees are exchanged.

use base::{fetch_ahead, hash64};

use crate::bytes::{Fields, len32};

/// The newest version of the format, and of what the hashes are made of.
const VERSION: u8 = 1;
/// Most zeros within a run.
const GAP_MAX: usize = 2;
/// Leaves that are kept together in memory.
const BLOCK: usize = 256;

/// How many leaves a tree has.
///
/// A leaf is best shared by few objects: when one object differs, all objects of its leaf are looked at. The root and one
/// branch are what even a single difference costs: 256 bytes at 2^10 leaves, 2 KiB at 2^16, 8 KiB at 2^20.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeSize(u8);

/// The hashes of a set of objects; empty leaves take no memory.
#[derive(Debug, Clone)]
pub struct Tree {
    size: TreeSize,
    /// As many as it has leaves for, once there is one.
    blocks: Vec<Option<Box<[u32; BLOCK]>>>,
}

impl TreeSize {
    /// Every size, ascending: 2^10, 2^12, 2^14, 2^16, 2^18 and 2^20 leaves.
    pub const ALL: [Self; 6] = [Self(10), Self(12), Self(14), Self(16), Self(18), Self(20)];

    /// The size with so many leaves.
    #[must_use]
    pub fn with_leaves(leaves: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.leaves() == leaves)
    }

    fn with_bits(bits: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.0 == bits)
    }

    /// How many leaves.
    #[must_use]
    pub const fn leaves(self) -> u32 {
        1 << self.0
    }

    /// How many branches, and how many leaves to a branch.
    #[must_use]
    pub const fn width(self) -> u32 {
        1 << (self.0 / 2)
    }

    /// The leaf of an object by its [`crate::object_hash`].
    #[must_use]
    pub fn leaf(self, object_hash: u64) -> u32 {
        u32::try_from(object_hash >> (64 - self.0)).expect("a leaf's number has at most 20 bits")
    }
}

impl Default for TreeSize {
    /// 2^16 leaves: 256 KiB of hashes for the whole store, 1,500 objects to a leaf when there are 100 million.
    fn default() -> Self {
        Self(16)
    }
}

impl Tree {
    /// The tree of no objects.
    #[must_use]
    pub fn new(size: TreeSize) -> Self {
        Self { size, blocks: Vec::new() }
    }

    /// How many leaves it has.
    #[must_use]
    pub fn size(&self) -> TreeSize {
        self.size
    }

    /// Whether every leaf is zero, as it is when there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// An object changed: what its clock's hash was, `None` if it was not there, and what it is, `None` if it is gone.
    pub fn update(&mut self, object_hash: u64, old: Option<u64>, new: Option<u64>) {
        if old == new {
            return;
        }
        let hash = |clock_hash: Option<u64>| clock_hash.map_or(0, |clock_hash| share(object_hash, clock_hash));
        self.xor(self.size.leaf(object_hash), hash(old) ^ hash(new));
    }

    /// Adds the objects of another tree of the same or a larger size; none may be in both.
    ///
    /// # Panics
    /// When the other tree is smaller: it does not know to which leaf its objects belong.
    pub fn merge(&mut self, other: &Self) {
        assert!(other.size >= self.size, "a smaller tree cannot be added to a larger one");
        let finer = other.size.0 - self.size.0;
        other.iter().for_each(|(leaf, hash)| self.xor(leaf >> finer, hash));
    }

    /// The tree of the same objects with fewer leaves.
    ///
    /// # Panics
    /// When `size` is larger than the tree's.
    #[must_use]
    pub fn fold_down(&self, size: TreeSize) -> Self {
        let mut folded = Self::new(size);
        folded.merge(self);
        folded
    }

    /// Each branch's hash.
    #[must_use]
    pub fn root(&self) -> Vec<u32> {
        let width = self.size.width();
        let mut root = vec![0; width as usize];
        for (leaf, hash) in self.iter() {
            if let Some(branch) = root.get_mut((leaf / width) as usize) {
                *branch ^= hash;
            }
        }
        root
    }

    /// The leaves' hashes of each of these branches, in the same order; `None` when there is no such branch.
    #[must_use]
    pub fn branches(&self, branches: &[u32]) -> Option<Vec<Vec<u32>>> {
        branches.iter().map(|branch| self.branch(*branch)).collect()
    }

    fn branch(&self, branch: u32) -> Option<Vec<u32>> {
        let width = self.size.width();
        let first = branch.checked_mul(width).filter(|first| *first < self.size.leaves())?;
        Some((first..first + width).map(|leaf| self.leaf(leaf)).collect())
    }

    fn leaf(&self, leaf: u32) -> u32 {
        let (block, at) = place(leaf);
        self.block(block).and_then(|block| block.get(at)).copied().unwrap_or_default()
    }

    fn block(&self, block: usize) -> Option<&[u32; BLOCK]> {
        self.blocks.get(block)?.as_deref()
    }

    /// Fetches the leaf that an object belongs to, before it changes.
    pub(crate) fn fetch(&self, object_hash: u64) {
        let (block, at) = place(self.size.leaf(object_hash));
        if let Some(leaf) = self.block(block).and_then(|block| block.get(at)) {
            fetch_ahead(leaf);
        }
    }

    fn xor(&mut self, leaf: u32, hash: u32) {
        if hash == 0 {
            return;
        }
        if self.blocks.is_empty() {
            self.blocks.resize_with(self.size.leaves() as usize / BLOCK, || None);
        }
        let (block, at) = place(leaf);
        let block = self.blocks.get_mut(block).expect("a leaf's number is below the size");
        let block = block.get_or_insert_with(|| Box::new([0; BLOCK]));
        *block.get_mut(at).expect("a place lies within its block") ^= hash;
    }

    /// Leaves that are not zero, ascending, with their hashes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        let blocks = (0..).step_by(BLOCK).zip(&self.blocks);
        let leaves = blocks.filter_map(|(first, block)| Some((first..).zip(**block.as_ref()?))).flatten();
        leaves.filter(|(_, hash)| *hash != 0)
    }

    /// The tree's bytes, few when few leaves are not zero or those lie together: for the ledger, and for other stores.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut runs: Vec<(u32, Vec<u32>)> = Vec::new();
        for (leaf, hash) in self.iter() {
            if let Some((first, hashes)) = runs.last_mut() {
                let at = (leaf - *first) as usize;
                if at - hashes.len() <= GAP_MAX {
                    hashes.resize(at, 0);
                    hashes.push(hash);
                    continue;
                }
            }
            runs.push((leaf, vec![hash]));
        }
        let mut to = vec![VERSION, self.size.0];
        to.extend_from_slice(&len32(runs.len()).to_le_bytes());
        for (first, hashes) in runs {
            to.extend_from_slice(&first.to_le_bytes());
            to.extend_from_slice(&len32(hashes.len()).to_le_bytes());
            hashes.iter().for_each(|hash| to.extend_from_slice(&hash.to_le_bytes()));
        }
        to
    }

    /// The tree of these bytes; `None` when they are not one, or of a version that is not known.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Fields(bytes);
        let (version, bits, runs) = (from.u8()?, from.u8()?, from.u32()?);
        let size = TreeSize::with_bits(bits).filter(|_| version == VERSION)?;
        let (mut tree, mut free) = (Self::new(size), 0);
        for _ in 0..runs {
            let (first, leaves) = (from.u32()?, from.u32()?);
            let end = first.checked_add(leaves).filter(|end| first >= free && *end <= size.leaves())?;
            for leaf in first..end {
                tree.xor(leaf, from.u32()?);
            }
            free = end;
        }
        // Whatever else a second encoding of the same tree could look like, it is not what `encode` gives.
        (tree.encode() == bytes).then_some(tree)
    }
}

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        self.size == other.size && self.iter().eq(other.iter())
    }
}

impl Eq for Tree {}

/// What an object adds to its leaf: zero, which would hide it, once in 2^32.
fn share(object_hash: u64, clock_hash: u64) -> u32 {
    let both = u128::from(object_hash) | u128::from(clock_hash) << 64;
    u32::try_from(hash64(&both.to_le_bytes()) >> 32).expect("the high half has 32 bits")
}

/// The block of a leaf, and where in it.
fn place(leaf: u32) -> (usize, usize) {
    let leaf = leaf as usize;
    (leaf / BLOCK, leaf % BLOCK)
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
