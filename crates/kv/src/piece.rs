//! Stretches of memory that are shared: pieces of the cache, and what of them, or of the ledger, somebody was given.
//!
//! May use: what the ledger's slices are. Must not know: what is in them.

use std::ops::Deref;
use std::sync::Arc;

use crate::coming::fetch_start;
use crate::ledger::Slice;

/// Bytes of the length that a piece begins with.
pub(crate) const LENGTH_BYTES: usize = 4;

/// Bytes, whoever holds them. Dereferences to them; clones share them but for those of its own.
#[derive(Clone)]
pub(crate) struct Bytes {
    holder: Holder,
    from: usize,
    end: usize,
}

#[derive(Clone)]
enum Holder {
    Ledger(Slice),
    Own(Vec<u8>),
    Kept(Arc<[u8]>),
}

/// `length of the head | head | tail`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece(Arc<[u8]>);

impl Bytes {
    fn all(holder: Holder) -> Self {
        let end = holder.bytes().len();
        Self { holder, from: 0, end }
    }

    /// Those from `from` to before `end`.
    pub(crate) fn cut(mut self, from: usize, end: usize) -> Self {
        self.end = self.end.min(self.from + end);
        self.skip(from)
    }

    /// The same without the first `count`.
    pub(crate) fn skip(mut self, count: usize) -> Self {
        self.from += count;
        self
    }

    /// The last `count` of them.
    pub(crate) fn last(self, count: usize) -> Self {
        let skipped = self.len().saturating_sub(count);
        self.skip(skipped)
    }
}

impl Holder {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Ledger(slice) => slice,
            Self::Own(bytes) => bytes,
            Self::Kept(bytes) => bytes,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.holder.bytes().get(self.from..self.end).unwrap_or_default()
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl From<Slice> for Bytes {
    fn from(slice: Slice) -> Self {
        Self::all(Holder::Ledger(slice))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::all(Holder::Own(bytes))
    }
}

fn copy(parts: &[&[u8]], mut to: &mut [u8]) {
    for part in parts {
        let Some((here, rest)) = to.split_at_mut_checked(part.len()) else { return };
        here.copy_from_slice(part);
        to = rest;
    }
}

pub(crate) fn length_of(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

impl Piece {
    pub(crate) fn new(parts: &[&[u8]]) -> Self {
        // Made where it stays: a buffer that is copied when it is whole costs as much again.
        let mut piece: Arc<[u8]> = std::iter::repeat_n(0, length_of(parts)).collect();
        if let Some(to) = Arc::get_mut(&mut piece) {
            copy(parts, to);
        }
        Self(piece)
    }

    /// Writes over it, if it is as long as `parts` and nobody else holds it.
    pub(crate) fn rewrite(&mut self, parts: &[&[u8]]) -> bool {
        let length = length_of(parts);
        match Arc::get_mut(&mut self.0).filter(|piece| piece.len() == length) {
            Some(piece) => {
                copy(parts, piece);
                true
            }
            None => false,
        }
    }

    pub(crate) fn without_tail(&self) -> Self {
        Self::new(&[self.0.get(..self.head_end()).unwrap_or_default()])
    }

    /// All of its own.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn fetch_start(&self) {
        fetch_start(&self.0);
    }

    fn head_end(&self) -> usize {
        let length = self.0.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
        LENGTH_BYTES.saturating_add(usize::try_from(length).unwrap_or(usize::MAX))
    }

    pub(crate) fn head(&self) -> &[u8] {
        self.0.get(LENGTH_BYTES..self.head_end()).unwrap_or_default()
    }

    pub(crate) fn tail_bytes(&self) -> usize {
        self.0.len().saturating_sub(self.head_end())
    }

    /// The head without its first `skipped` bytes, and the tail if there is one.
    pub(crate) fn cut(self, skipped: usize) -> (Bytes, Option<Bytes>) {
        let end = self.head_end();
        let has_tail = self.tail_bytes() > 0;
        let bytes = Bytes::all(Holder::Kept(self.0));
        let tail = has_tail.then(|| bytes.clone().skip(end));
        (bytes.cut(LENGTH_BYTES + skipped, end), tail)
    }
}
