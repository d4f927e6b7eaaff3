//! Trees against a plain map of objects, and their format.

use std::collections::BTreeMap;

use base::Random;
use proptest::prelude::*;

use super::*;
use crate::clock::Clock;
use crate::hash::object_hash;

fn size(leaves: u32) -> TreeSize {
    TreeSize::with_leaves(leaves).unwrap()
}

/// The tree of these objects by key, each with the hash of its clock.
fn tree_of(size: TreeSize, objects: &BTreeMap<u16, u64>) -> Tree {
    let mut tree = Tree::new(size);
    for (key, clock) in objects {
        tree.update(object_hash(b"b", &key.to_le_bytes()), None, Some(*clock));
    }
    tree
}

#[test]
fn the_format_and_the_hashes_are_what_they_were() {
    let mut tree = Tree::new(TreeSize::default());
    let clock = Clock { checksum: 0x2185_9B0F, value_bytes: 8, modified_ms: 1_700_000_000_000, ..Clock::default() };
    tree.update(object_hash(b"users", b"ada"), None, Some(clock.hash()));
    for (leaf, hash) in [(0, 1), (1, 2), (4, 3), (8, 4), (0xFFFF, 0xFFFF_FFFF)] {
        tree.xor(leaf, hash);
    }
    let text: String = tree.encode().iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = concat!(
        "01100400000000000000050000000100000002000000000000000000000003000000",
        "080000000100000004000000",
        "e560000001000000ff87bbc8",
        "ffff000001000000ffffffff",
    );
    assert_eq!(text, golden);
    assert_eq!(Tree::decode(&tree.encode()), Some(tree));
}

#[test]
fn an_empty_tree_is_six_bytes_and_stays_empty() {
    for size in TreeSize::ALL {
        let mut tree = Tree::new(size);
        assert!(tree.is_empty());
        assert_eq!(tree.encode().len(), 6);
        assert!(tree.root().iter().all(|hash| *hash == 0));
        tree.update(1 << 63, None, None);
        assert!(tree.is_empty());
        tree.update(1 << 63, None, Some(1));
        assert!(!tree.is_empty());
        tree.update(1 << 63, Some(1), Some(2));
        tree.update(1 << 63, Some(2), None);
        assert!(tree.is_empty());
        assert_eq!(tree, Tree::new(size), "memory that was used makes no difference");
        assert_eq!(size.width() * size.width(), size.leaves());
        assert_eq!(TreeSize::with_leaves(size.leaves()), Some(size));
    }
    assert_eq!(TreeSize::with_leaves(1 << 11), None);
}

#[test]
fn trees_of_partitions_add_up_to_the_tree_of_the_store_however_many_there_are() {
    let mut random = Random::new(7);
    let objects: Vec<(u64, u64)> = (0..5000).map(|_| (random.next(), random.next())).collect();
    let mut whole = Tree::new(TreeSize::default());
    objects.iter().for_each(|(hash, clock)| whole.update(*hash, None, Some(*clock)));
    for partitions in [1, 2, 3, 16, 1000] {
        let mut trees = vec![Tree::new(TreeSize::default()); partitions];
        for (hash, clock) in &objects {
            let partition = (u128::from(*hash) * partitions as u128) >> 64;
            trees[usize::try_from(partition).unwrap()].update(*hash, None, Some(*clock));
        }
        for size in TreeSize::ALL.into_iter().filter(|size| *size <= whole.size()) {
            let mut sum = Tree::new(size);
            trees.iter().for_each(|tree| sum.merge(tree));
            assert_eq!(sum, whole.fold_down(size));
        }
        let last = |tree: &Tree| tree.iter().map(|(leaf, _)| leaf).last();
        let first = |tree: &Tree| tree.iter().map(|(leaf, _)| leaf).next();
        let full: Vec<&Tree> = trees.iter().filter(|tree| !tree.is_empty()).collect();
        assert!(full.windows(2).all(|pair| last(pair[0]) <= first(pair[1])), "ranges meet at most at a border");
    }
}

#[test]
fn branches_are_the_leaves_that_the_root_sums_up() {
    let mut tree = Tree::new(size(1024));
    let mut random = Random::new(3);
    (0..300).for_each(|_| tree.update(random.next(), None, Some(random.next())));
    let root = tree.root();
    let ids: Vec<u32> = (0..32).rev().collect();
    let branches = tree.branches(&ids).unwrap();
    for (id, leaves) in ids.iter().zip(&branches) {
        assert_eq!(leaves.len(), 32);
        assert_eq!(leaves.iter().fold(0, |sum, hash| sum ^ hash), root[*id as usize]);
    }
    let all: Vec<u32> = branches.into_iter().rev().flatten().collect();
    let sparse: Vec<(u32, u32)> = (0..).zip(all).filter(|(_, hash)| *hash != 0).collect();
    assert_eq!(tree.iter().collect::<Vec<_>>(), sparse);
    assert_eq!(tree.branches(&[32]), None);
    assert_eq!(tree.branches(&[u32::MAX]), None);
}

#[test]
fn a_range_of_leaves_costs_four_bytes_each_and_a_lone_leaf_twelve() {
    let mut dense = Tree::new(TreeSize::default());
    (4096..8192).for_each(|leaf| dense.xor(leaf, 1));
    assert_eq!(dense.encode().len(), 6 + 8 + 4096 * 4);
    let mut sparse = Tree::new(TreeSize::default());
    (0..10).for_each(|at| sparse.xor(at * 1000, 1));
    assert_eq!(sparse.encode().len(), 6 + 10 * 12);
}

#[test]
fn a_second_encoding_of_the_same_tree_is_refused() {
    let encode = |runs: &[(u32, &[u32])]| {
        let mut bytes = vec![VERSION, 10];
        bytes.extend(len32(runs.len()).to_le_bytes());
        for (first, hashes) in runs {
            bytes.extend(first.to_le_bytes());
            bytes.extend(len32(hashes.len()).to_le_bytes());
            hashes.iter().for_each(|hash| bytes.extend(hash.to_le_bytes()));
        }
        bytes
    };
    let decodes = |runs: &[(u32, &[u32])]| Tree::decode(&encode(runs)).is_some();
    assert!(decodes(&[]) && decodes(&[(1, &[1, 0, 0, 2]), (1020, &[1, 2, 3, 4])]));
    for (why, runs) in [
        ("a run of nothing", &[(1, &[][..])][..]),
        ("zero at the start", &[(1, &[0, 1])]),
        ("zero at the end", &[(1, &[1, 0])]),
        ("three zeros within", &[(1, &[1, 0, 0, 0, 1])]),
        ("runs too near", &[(1, &[1]), (4, &[1])]),
        ("runs that overlap", &[(1, &[1, 2]), (2, &[1])]),
        ("runs that descend", &[(100, &[1]), (1, &[1])]),
        ("a run beyond the end", &[(1023, &[1, 2])]),
        ("a run at the end of numbers", &[(u32::MAX, &[1, 2])]),
    ] {
        assert!(!decodes(runs), "{why}");
    }
    let good = encode(&[(1, &[1])]);
    for (at, byte) in [(0, 0), (0, 2), (1, 0), (1, 11), (1, 22), (2, 2)] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(Tree::decode(&bad), None, "byte {at} is {byte}");
    }
    assert!((0..good.len()).all(|end| Tree::decode(&good[..end]).is_none()), "a cut tree does not decode");
    assert_eq!(Tree::decode(&[good, vec![0]].concat()), None, "nothing may follow");
}

/// A change of an object to a clock, or its removal.
fn change() -> impl Strategy<Value = (u16, Option<u64>)> {
    (0u16..200, prop_oneof![3 => (0u64..4).prop_map(Some), 1 => Just(None)])
}

proptest! {
    #[test]
    fn a_tree_depends_on_the_objects_and_not_on_how_they_came_about(changes in proptest::collection::vec(change(), 0..300)) {
        let (mut tree, mut objects) = (Tree::new(size(1 << 14)), BTreeMap::new());
        for (key, clock) in changes {
            let old = match clock {
                Some(clock) => objects.insert(key, clock),
                None => objects.remove(&key),
            };
            tree.update(object_hash(b"b", &key.to_le_bytes()), old, clock);
        }
        assert_eq!(tree, tree_of(tree.size(), &objects));
        assert_eq!(tree.is_empty(), objects.is_empty());
        assert_eq!(tree.fold_down(size(1 << 10)), tree_of(size(1 << 10), &objects));
        assert_eq!(tree.fold_down(tree.size()), tree);
        assert_eq!(Tree::decode(&tree.encode()).as_ref(), Some(&tree));
    }

    #[test]
    fn garbage_decodes_to_nothing_or_to_itself(
        bits in 8u8..24,
        runs in 0u32..4,
        words in proptest::collection::vec(prop_oneof![0u32..12, 0u32..=u32::MAX], 0..20),
        cut in 0usize..4,
    ) {
        let mut bytes = vec![VERSION, bits];
        bytes.extend(runs.to_le_bytes());
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.truncate(bytes.len() - cut);
        if let Some(tree) = Tree::decode(&bytes) {
            assert_eq!(tree.encode(), bytes);
        }
    }

    #[test]
    fn one_changed_byte_is_another_tree_or_none(
        objects in proptest::collection::btree_map(0u16..200, 0u64..4, 1..50),
        at in 0usize..10_000,
        flip in 1u8..=255,
    ) {
        let tree = tree_of(size(1 << 10), &objects);
        let mut bytes = tree.encode();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        assert_ne!(Tree::decode(&bytes), Some(tree));
    }
}
