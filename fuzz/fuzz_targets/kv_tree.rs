//! Decodes foreign bytes as Merkle trees and clocks: nothing panics, what decodes encodes to the same bytes, and a tree of
//! any size adds up.
//!
//! Run: `cargo +nightly fuzz run kv_tree`. May use: `kv`.
#![no_main]

use kv::{Clock, Tree, TreeSize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Some(clock) = Clock::decode(input) {
        assert_eq!(clock.encode().as_slice(), input, "a clock has one encoding");
    }
    let Some(tree) = Tree::decode(input) else { return };
    assert_eq!(tree.encode(), input, "a tree has one encoding");
    assert!(tree.iter().all(|(leaf, hash)| leaf < tree.size().leaves() && hash != 0), "only leaves of the tree");
    let all: Vec<u32> = (0..tree.size().width()).collect();
    let branches = tree.branches(&all).expect("a tree has all its branches");
    let sums: Vec<u32> = branches.iter().map(|leaves| leaves.iter().fold(0, |sum, hash| sum ^ hash)).collect();
    assert_eq!(sums, tree.root(), "the root sums up the leaves");
    for size in TreeSize::ALL.into_iter().filter(|size| *size <= tree.size()) {
        let mut twice = tree.fold_down(size);
        twice.merge(&tree);
        assert!(twice.is_empty(), "the same twice cancels out");
    }
});
