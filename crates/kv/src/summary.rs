//! What an engine counts, as it is kept in its ledger. This comment is the format's specification.
//!
//! Format: docs/formats/kv.md
//!
//! Layout, sizes in bytes, integers little-endian, strings behind a 32-bit length; buckets and segments ascend:
//!   count of buckets 4 | (bucket, objects 8)* | count of segments 4 | (base 8, bytes 8)*
//!
//! A summary that does not decode costs a replay of the journal and nothing else.
//!
//! May use: nothing. Must not know: when it is written.

use std::collections::BTreeMap;

use crate::bytes::{Fields, len32, put_string};
use crate::live::LiveBytes;

/// Objects by bucket.
pub(crate) type Counts = BTreeMap<Vec<u8>, u64>;

pub(crate) fn encode(counts: &Counts, live: &LiveBytes) -> Vec<u8> {
    let mut to = Vec::new();
    to.extend_from_slice(&len32(counts.len()).to_le_bytes());
    for (bucket, count) in counts {
        put_string(&mut to, bucket);
        to.extend_from_slice(&count.to_le_bytes());
    }
    live.encode(&mut to);
    to
}

/// The counts of these bytes; `None` when they are not a summary, or anything follows.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Counts, LiveBytes)> {
    let mut from = Fields(bytes);
    let buckets = from.u32()?;
    let counts = (0..buckets).map(|_| Some((from.string()?.to_vec(), from.u64()?))).collect::<Option<_>>()?;
    let live = LiveBytes::decode(&mut from)?;
    (encode(&counts, &live) == bytes).then_some((counts, live))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn summary() -> impl Strategy<Value = Vec<u8>> {
        let names = proptest::collection::vec(0u8..3, 0..4);
        let counts = proptest::collection::btree_map(names, 0u64..=u64::MAX, 0..5);
        let segments = proptest::collection::btree_set(0u64..=u64::MAX, 0..5);
        (counts, segments).prop_map(|(counts, segments)| {
            let mut live = LiveBytes::default();
            segments.into_iter().for_each(|base| live.add(journal::Position::new(base), base / 2));
            let bytes = encode(&counts, &live);
            assert_eq!(decode(&bytes), Some((counts, live)));
            bytes
        })
    }

    proptest::proptest! {
        #[test]
        fn a_summary_that_is_cut_or_continued_does_not_decode(mut bytes in summary(), more in 0u8..=255) {
            for end in 0..bytes.len() {
                assert_eq!(decode(&bytes[..end]), None);
            }
            bytes.push(more);
            assert_eq!(decode(&bytes), None);
        }

        #[test]
        fn garbage_decodes_to_nothing_or_to_itself(mut bytes in summary(), at in 0usize..200, byte in 0u8..=255) {
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Some((counts, live)) = decode(&bytes) {
                assert_eq!(encode(&counts, &live), bytes);
            }
        }
    }
}
