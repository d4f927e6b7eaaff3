//! Merging what the partitions hold, each in order, into one order.
//!
//! May use: `kv`. Must not know: what is merged, and for whom.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use kv::{IndexEntry, Item};

/// Something with a place in the order.
pub(crate) trait Placed {
    /// Places compare as bytes.
    fn place(&self) -> &[u8];
}

impl Placed for Item {
    fn place(&self) -> &[u8] {
        Self::place(self)
    }
}

impl Placed for IndexEntry {
    fn place(&self) -> &[u8] {
        Self::place(self)
    }
}

/// The least of the next things of all sources, again and again.
pub(crate) struct Merge<T, I> {
    sources: Vec<I>,
    heads: BinaryHeap<Reverse<Head<T>>>,
}

struct Head<T> {
    thing: T,
    source: usize,
}

impl<T: Placed, I: Iterator<Item = kv::Result<T>>> Merge<T, I> {
    pub(crate) fn new(sources: impl Iterator<Item = I>) -> kv::Result<Self> {
        let mut sources: Vec<I> = sources.collect();
        let mut heads = BinaryHeap::with_capacity(sources.len());
        for (source, things) in sources.iter_mut().enumerate() {
            if let Some(thing) = things.next().transpose()? {
                heads.push(Reverse(Head { thing, source }));
            }
        }
        Ok(Self { sources, heads })
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// The next thing, and the number of its source.
    pub(crate) fn next(&mut self) -> kv::Result<Option<(usize, T)>> {
        let Some(mut least) = self.heads.peek_mut() else { return Ok(None) };
        let source = least.0.source;
        let taken = match self.sources.get_mut(source).and_then(Iterator::next).transpose()? {
            Some(thing) => std::mem::replace(&mut least.0.thing, thing),
            None => PeekMut::pop(least).0.thing,
        };
        Ok(Some((source, taken)))
    }
}

impl<T: Placed> PartialEq for Head<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Placed> Eq for Head<T> {}

impl<T: Placed> PartialOrd for Head<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Placed> Ord for Head<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.thing.place().cmp(other.thing.place())
    }
}
