//! What an engine counts, as it is kept in its ledger. This comment is the format's specification.
//!
//! Format: docs/formats/kv.md
//!
//! Layout, sizes in bytes, integers little-endian, strings behind a 32-bit length; buckets and segments ascend:
//!   version             1   F3
//!   store               16  identity of the store whose ledger it is
//!   partition           2   number of the partition whose ledger it is
//!   count of buckets    4 | (bucket, objects 8)*
//!   count of segments   4 | (base 8, applied bytes 8, live bytes 8, held bytes 8)*
//!   tree                    the rest, as `tree.rs` says; nothing when none is kept
//!
//! A summary that does not decode, or is another's, costs a replay of the journal and nothing else.
//!
//! May use: `owner.rs`, `tree.rs`. Must not know: when it is written.

use std::collections::BTreeMap;

use journal::PartitionId;

use crate::bytes::{Fields, len32, put_string};
use crate::live::LiveBytes;
use crate::owner::Owner;
use crate::tree::Tree;

const VERSION: u8 = 0xF3;

/// Objects by bucket.
pub(crate) type Counts = BTreeMap<Vec<u8>, u64>;

/// What an engine keeps in mind beside its ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) owner: Owner,
    pub(crate) counts: Counts,
    pub(crate) live: LiveBytes,
    pub(crate) tree: Option<Tree>,
}

impl Summary {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = vec![VERSION];
        to.extend_from_slice(&self.owner.store.to_le_bytes());
        to.extend_from_slice(&self.owner.partition.get().to_le_bytes());
        to.extend_from_slice(&len32(self.counts.len()).to_le_bytes());
        for (bucket, count) in &self.counts {
            put_string(&mut to, bucket);
            to.extend_from_slice(&count.to_le_bytes());
        }
        self.live.encode(&mut to);
        if let Some(tree) = &self.tree {
            to.extend_from_slice(&tree.encode());
        }
        to
    }

    /// The summary of these bytes; `None` when they are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Fields(bytes);
        if from.u8()? != VERSION {
            return None;
        }
        let store = u128::from_le_bytes(from.array()?);
        let partition = PartitionId::new(u16::from_le_bytes(from.array()?));
        let owner = Owner { store, partition };
        let buckets = from.u32()?;
        let counts = (0..buckets).map(|_| Some((from.string()?.to_vec(), from.u64()?))).collect::<Option<_>>()?;
        let live = LiveBytes::decode(&mut from)?;
        let tree = if from.0.is_empty() { None } else { Some(Tree::decode(from.0)?) };
        let summary = Self { owner, counts, live, tree };
        (summary.encode() == bytes).then_some(summary)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn summary() -> impl Strategy<Value = Vec<u8>> {
        let names = proptest::collection::vec(0u8..3, 0..4);
        let counts = proptest::collection::btree_map(names, 0u64..=u64::MAX, 0..5);
        let segments = proptest::collection::btree_set(0u64..=u64::MAX, 0..5);
        let leaves = proptest::option::of(proptest::collection::vec(0u64..=u64::MAX, 0..4));
        let owner = (0u128..=u128::MAX, 0u16..=u16::MAX);
        (owner, counts, segments, leaves).prop_map(|((store, partition), counts, segments, leaves)| {
            let owner = Owner { store, partition: PartitionId::new(partition) };
            let mut live = LiveBytes::default();
            segments.into_iter().for_each(|base| live.add(journal::Position::new(base), base, base / 2));
            let tree = leaves.map(|leaves| {
                let mut tree = Tree::new(crate::tree::TreeSize::default());
                leaves.into_iter().for_each(|leaf| tree.update(leaf, None, Some(1)));
                tree
            });
            let summary = Summary { owner, counts, live, tree };
            let bytes = summary.encode();
            assert_eq!(Summary::decode(&bytes), Some(summary));
            bytes
        })
    }

    proptest::proptest! {
        #[test]
        fn a_summary_that_is_cut_or_continued_does_not_decode(mut bytes in summary(), more in 0u8..=255) {
            let whole = Summary::decode(&bytes);
            for end in 0..bytes.len() {
                // Cut just before its tree it is the summary that keeps none, and the tree is made anew.
                let cut = Summary::decode(&bytes[..end]);
                assert!(cut.is_none_or(|cut| cut.tree.is_none() && whole.iter().all(|whole| whole.tree.is_some())));
            }
            bytes.push(more);
            assert_eq!(Summary::decode(&bytes), None);
        }

        #[test]
        fn garbage_decodes_to_nothing_or_to_itself(mut bytes in summary(), at in 0usize..200, byte in 0u8..=255) {
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Some(summary) = Summary::decode(&bytes) {
                assert_eq!(summary.encode(), bytes);
            }
        }
    }
}
