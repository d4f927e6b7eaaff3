//! From where to where a ledger is read, and what for.
//!
//! May use: `block.rs`, for tags. Must not know: what lies there.

use std::ops::Bound;
use std::sync::Arc;

use super::block::tag_of;
use crate::key::common_bytes;

/// What a range is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// A part that may well be asked for again: its blocks are kept at hand.
    Query,
    /// Much, and each entry once: read ahead, and nothing is kept.
    Sweep,
}

/// A range of keys and what it is read for. Clones share it: it is made once for all partitions that are asked.
#[derive(Debug, Clone)]
pub struct Bounds(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    reading: Reading,
    /// Bytes that all keys of the range begin with.
    shared: usize,
}

impl Bounds {
    /// A range of keys.
    #[must_use]
    pub fn new(start: Bound<Vec<u8>>, end: Bound<Vec<u8>>, reading: Reading) -> Self {
        use Bound::{Excluded, Included};
        let shared = match (&start, &end) {
            (Included(from) | Excluded(from), Included(to) | Excluded(to)) => {
                let common = common_bytes(from, to);
                // What ends just before the next beginning begins with this one: `a 00` to before `a 01`, say.
                let next = from.get(common).and_then(|last| last.checked_add(1));
                let is_next = to.len() == common + 1 && to.last().copied() == next;
                common + usize::from(is_next && matches!(end, Excluded(_)))
            }
            _ => 0,
        };
        Self(Arc::new(Ends { start, end, reading, shared }))
    }

    /// All keys there are.
    #[must_use]
    pub fn everything(reading: Reading) -> Self {
        Self::new(Bound::Unbounded, Bound::Unbounded, reading)
    }

    /// What it is read for.
    #[must_use]
    pub fn reading(&self) -> Reading {
        self.0.reading
    }

    /// Where it begins.
    #[must_use]
    pub fn start(&self) -> Bound<&[u8]> {
        self.0.start.as_ref().map(Vec::as_slice)
    }

    /// Where it ends.
    #[must_use]
    pub fn end(&self) -> Bound<&[u8]> {
        self.0.end.as_ref().map(Vec::as_slice)
    }

    /// Whether nothing can lie between.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        use Bound::{Excluded, Included};
        match (self.start(), self.end()) {
            (Included(from), Included(to)) => from > to,
            (Included(from) | Excluded(from), Included(to) | Excluded(to)) => from >= to,
            _ => false,
        }
    }

    /// Whether it begins behind the key.
    pub(crate) fn are_behind(&self, key: &[u8]) -> bool {
        match self.start() {
            Bound::Unbounded => false,
            Bound::Included(start) => key < start,
            Bound::Excluded(start) => key <= start,
        }
    }

    /// Whether it ends before the key.
    pub(crate) fn are_before(&self, key: &[u8]) -> bool {
        match self.end() {
            Bound::Unbounded => false,
            Bound::Included(end) => key > end,
            Bound::Excluded(end) => key >= end,
        }
    }

    /// How many bytes all of its keys begin with the same of.
    pub(super) fn shared(&self) -> usize {
        self.0.shared
    }

    /// The sixteen bytes of a key of this range behind those that all of its keys begin with, as a number of the same order;
    /// zeros for what is not there. Keys of different tags compare as their tags do, which costs one comparison.
    #[must_use]
    pub fn tag(&self, key: &[u8]) -> u128 {
        tag_of(key.get(self.0.shared..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        (0usize..3, proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xFF)], 0..20))
            .prop_map(|(begin, rest)| [&b"begin"[..begin + 2], &rest].concat())
    }

    proptest::proptest! {
        #[test]
        fn tags_of_keys_in_a_range_never_contradict_the_keys(mut keys in proptest::collection::vec(key(), 4)) {
            keys.sort();
            let bounds = Bounds::new(
                Bound::Included(keys[0].clone()),
                Bound::Included(keys[3].clone()),
                Reading::Query,
            );
            let (a, b) = (&keys[1], &keys[2]);
            assert!(bounds.tag(a) <= bounds.tag(b), "{a:?} {b:?}");
            assert!(!bounds.is_empty() && !bounds.are_behind(a) && !bounds.are_before(b));
        }

        #[test]
        fn so_do_tags_of_all_keys_with_the_same_beginning(mut rests in proptest::collection::vec(key(), 2), last in 0u8..0xFF) {
            rests.sort();
            let begin = [b'b', last];
            let bounds = Bounds::new(
                Bound::Included(begin.to_vec()),
                Bound::Excluded(vec![b'b', last + 1]),
                Reading::Query,
            );
            assert_eq!(bounds.0.shared, 2);
            let whole = |rest: &Vec<u8>| bounds.tag(&[&begin[..], rest].concat());
            assert!(whole(&rests[0]) <= whole(&rests[1]), "{rests:?}");
        }
    }
}
