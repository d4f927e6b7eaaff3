//! A block of a ledger's table: entries in the order of their keys, with what all keys begin with only once.
//!
//! This is the specification; sizes in bytes, integers little-endian:
//!
//!   prefix            what all keys of the block begin with
//!   entry*            the rest of its key | its value
//!   ends*             for each entry: where the rest of its key ends | where its value ends; 2 each, 4 each in a *wide* block.
//!                     The highest bit of the second says that the key was removed: then there is no value.
//!   prefix bytes 4 | entries 4, whose highest bit says that the block is wide
//!
//! Ends count from the block's beginning; an entry begins where the one before ends. Of a block that is not wide all entries end before
//! 32768. Blocks of an index are the same: keys are *separators*, at or behind all keys of the block that they tell the place of
//! and before those of the next, and values are places (`stored.rs`).
//!
//! Nothing is decoded to read it: entries are found by number, and what a search waits for is memory, of which
//! what keys share is a third to a half.
//!
//! May use: nothing. Must not know: files, codecs, what keys mean.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::bytes::len32;
use crate::key::common_bytes;

/// What stands behind the ends.
const TAIL_BYTES: usize = 8;
/// In the end of a value that is 2 bytes long, or 4.
const REMOVED: [u32; 2] = [1 << 15, 1 << 31];
/// In the number of entries.
const WIDE: u32 = 1 << 31;
/// Bytes of an end.
const END_BYTES: [usize; 2] = [2, 4];

/// A block, ready to be read. Clones share the bytes.
#[derive(Debug, Clone)]
pub(super) struct Block {
    bytes: Arc<[u8]>,
    prefix: u32,
    /// Where the ends begin.
    ends: u32,
    len: u32,
    wide: bool,
}

/// Where an entry lies in its block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spot {
    start: u32,
    key_end: u32,
    value_end: u32,
    pub(super) is_removal: bool,
}

/// A key in the two pieces in which it is stored.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Split<'a> {
    pub(super) prefix: &'a [u8],
    pub(super) rest: &'a [u8],
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl<'a> Split<'a> {
    /// A key that is in one piece.
    pub(super) fn whole(key: &'a [u8]) -> Self {
        Self { prefix: &[], rest: key }
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        // The longer beginning is cut where the other's ends, so that pieces of the same length face each other.
        let (common, (longer, shorter), turned) = match self.prefix.len().cmp(&other.prefix.len()) {
            Ordering::Less => (self.prefix.len(), (other, self), true),
            _ => (other.prefix.len(), (self, other), false),
        };
        let (begin, more) = longer.prefix.split_at_checked(common).unwrap_or((longer.prefix, &[]));
        let beside = shorter.rest.get(..more.len()).unwrap_or(shorter.rest);
        let compared = begin
            .cmp(shorter.prefix)
            .then_with(|| more.cmp(beside))
            .then_with(|| longer.rest.cmp(shorter.rest.get(more.len()..).unwrap_or_default()));
        if turned { compared.reverse() } else { compared }
    }

    /// The bytes from `from` on that fit a tag, as a number of the same order; zeros for what is not there.
    pub(super) fn tag(self, from: usize) -> u128 {
        if let Some(from) = from.checked_sub(self.prefix.len()) {
            return tag_of(self.rest.get(from..).unwrap_or_default());
        }
        let mut bytes = [0; 16];
        let begin = self.prefix.get(from..).unwrap_or_default();
        bytes.iter_mut().zip(begin.iter().chain(self.rest)).for_each(|(to, byte)| *to = *byte);
        u128::from_be_bytes(bytes)
    }
}

/// The first sixteen bytes as a number of the same order; zeros for what is not there.
pub(super) fn tag_of(bytes: &[u8]) -> u128 {
    if let Some(bytes) = bytes.first_chunk() {
        return u128::from_be_bytes(*bytes);
    }
    bytes.iter().fold((0, 128), |(tag, shift), byte| (tag | u128::from(*byte) << (shift - 8), shift - 8)).0
}

impl Block {
    /// `None` when the bytes are no block.
    pub(super) fn of(bytes: Arc<[u8]>) -> Option<Self> {
        let (body, tail) = bytes.split_last_chunk::<TAIL_BYTES>()?;
        let (prefix, count) = tail.split_first_chunk::<4>()?;
        let (prefix, count) = (u32::from_le_bytes(*prefix), u32::from_le_bytes(count.try_into().ok()?));
        let (wide, len) = (count & WIDE != 0, count & !WIDE);
        let ends_bytes = to_usize(len).checked_mul(2 * END_BYTES[usize::from(wide)])?;
        let ends = u32::try_from(body.len().checked_sub(ends_bytes)?).ok()?;
        let block = Self { bytes, prefix, ends, len, wide };
        // Checked once, so that entries are where they say whoever asks.
        let mut end = prefix;
        for number in 0..block.len() {
            let spot = block.spot(number);
            if spot.start != end || spot.key_end < spot.start || spot.value_end < spot.key_end {
                return None;
            }
            end = spot.value_end;
        }
        (end == ends).then_some(block)
    }

    pub(super) fn len(&self) -> usize {
        to_usize(self.len)
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn stretch(&self, from: u32, to: u32) -> &[u8] {
        self.bytes.get(to_usize(from)..to_usize(to)).unwrap_or_default()
    }

    fn end<const N: usize>(&self, number: usize) -> [u8; N] {
        let at = to_usize(self.ends) + number * N;
        self.bytes.get(at..).and_then(|ends| ends.first_chunk()).copied().unwrap_or([0; N])
    }

    /// Where an entry's rest of its key ends, and where its value does, with the bit.
    fn ends_of(&self, number: usize) -> (u32, u32) {
        if self.wide {
            let ends = u64::from_le_bytes(self.end(number));
            return ((ends & u64::from(u32::MAX)) as u32, (ends >> 32) as u32);
        }
        let ends = u32::from_le_bytes(self.end(number));
        (ends & 0xFFFF, ends >> 16)
    }

    /// Where an entry lies. There must be one of that number.
    pub(super) fn spot(&self, number: usize) -> Spot {
        self.spot_behind(self.spot_before(number), number)
    }

    /// What ends where the entry of that number begins: the entry before, if there is one.
    pub(super) fn spot_before(&self, number: usize) -> Spot {
        let removed = REMOVED[usize::from(self.wide)];
        let value_end = number.checked_sub(1).map_or(self.prefix, |before| self.ends_of(before).1 & !removed);
        Spot { value_end, ..Spot::default() }
    }

    /// As [`Block::spot`], for who knows what comes before.
    pub(super) fn spot_behind(&self, before: Spot, number: usize) -> Spot {
        let removed = REMOVED[usize::from(self.wide)];
        let (key_end, value_end) = self.ends_of(number);
        let is_removal = value_end & removed != 0;
        Spot { start: before.value_end, key_end, value_end: value_end & !removed, is_removal }
    }

    /// The tag of a key behind its first `shared` bytes.
    pub(super) fn tag(&self, spot: Spot, shared: usize) -> u128 {
        match u32::try_from(shared).ok().and_then(|shared| shared.checked_sub(self.prefix)) {
            Some(skipped) => tag_of(self.stretch(spot.start + skipped, spot.key_end)),
            None => self.key(spot).tag(shared),
        }
    }

    pub(super) fn prefix(&self) -> &[u8] {
        self.stretch(0, self.prefix)
    }

    pub(super) fn key(&self, spot: Spot) -> Split<'_> {
        Split { prefix: self.prefix(), rest: self.stretch(spot.start, spot.key_end) }
    }

    pub(super) fn value(&self, spot: Spot) -> &[u8] {
        self.stretch(spot.key_end, spot.value_end)
    }

    /// As [`Block::value`], for who keeps it: it shares the block's memory.
    pub(super) fn slice(&self, spot: Spot) -> Slice {
        Slice { bytes: Arc::clone(&self.bytes), from: spot.key_end, to: spot.value_end }
    }

    /// How many keys come before `key`.
    pub(super) fn before(&self, key: &[u8]) -> usize {
        self.count(key, Ordering::Less)
    }

    /// How many keys come before `key`, or are it.
    pub(super) fn up_to(&self, key: &[u8]) -> usize {
        self.count(key, Ordering::Equal)
    }

    /// How many keys compare to `key` so at the most.
    fn count(&self, key: &[u8], most: Ordering) -> usize {
        let prefix = self.prefix();
        let begin = key.get(..prefix.len()).unwrap_or(key);
        match begin.cmp(prefix) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.len(),
            Ordering::Equal => {}
        }
        let rest = key.get(prefix.len()..).unwrap_or_default();
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let spot = self.spot(middle);
            if self.stretch(spot.start, spot.key_end).cmp(rest) <= most { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The number of the entry of `key`.
    pub(super) fn find(&self, key: &[u8]) -> Option<usize> {
        let number = self.before(key);
        let is_there = number < self.len() && self.key(self.spot(number)).compare(Split::whole(key)).is_eq();
        is_there.then_some(number)
    }
}

/// Bytes that are a part of a block, or their own. Dereferences to them; clones share them.
#[derive(Clone, Default)]
pub struct Slice {
    bytes: Arc<[u8]>,
    from: u32,
    to: u32,
}

impl Slice {
    /// A copy of these bytes.
    ///
    /// # Panics
    /// When there are more than 32 bits count: keys and values of ledgers are limited to less.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self { to: len32(bytes.len()), from: 0, bytes: Arc::from(bytes) }
    }
}

impl std::ops::Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(to_usize(self.from)..to_usize(self.to)).unwrap_or_default()
    }
}

impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Slice {}

/// Makes a block of entries that come in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct Builder {
    /// Keys, whole, and values.
    bytes: Vec<u8>,
    /// Where keys and values end there, and which keys were removed.
    ends: Vec<(u32, u32, bool)>,
    /// Bytes of the first key that all others begin with.
    common: usize,
}

impl Builder {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// About how long the block would be now.
    pub(super) fn bytes(&self) -> usize {
        let saved = self.common * self.len().saturating_sub(1);
        self.bytes.len() + self.len() * 2 * END_BYTES[0] - saved
    }

    fn first_key(&self) -> &[u8] {
        self.bytes.get(..self.ends.first().map_or(0, |(end, ..)| to_usize(*end))).unwrap_or_default()
    }

    /// Adds an entry behind the others; no value when the key was removed.
    pub(super) fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.common = match self.ends.is_empty() {
            true => key.len(),
            false => common_bytes(self.first_key().get(..self.common).unwrap_or_default(), key),
        };
        self.bytes.extend_from_slice(key);
        let key_end = len32(self.bytes.len());
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.ends.push((key_end, len32(self.bytes.len()), value.is_none()));
    }

    /// The block of what was added, and begins with the next.
    pub(super) fn finish(&mut self, to: &mut Vec<u8>) {
        to.clear();
        to.extend_from_slice(self.first_key().get(..self.common).unwrap_or_default());
        let mut start = 0;
        // Where the entries are in the block, in place of where they were.
        for (key_end, value_end, _) in &mut self.ends {
            let (from, end) = (to_usize(start), to_usize(*value_end));
            let key_bytes = *key_end - start;
            start = *value_end;
            to.extend_from_slice(self.bytes.get(from + self.common..end).unwrap_or_default());
            let value_bytes = end - from - to_usize(key_bytes);
            *value_end = len32(to.len());
            *key_end = *value_end - len32(value_bytes);
        }
        let wide = to.len() >= to_usize(REMOVED[0]);
        for (key_end, value_end, is_removal) in &self.ends {
            let value_end = value_end | if *is_removal { REMOVED[usize::from(wide)] } else { 0 };
            let of = END_BYTES[usize::from(wide)];
            for end in [key_end, &value_end] {
                to.extend_from_slice(end.to_le_bytes().get(..of).unwrap_or_default());
            }
        }
        to.extend_from_slice(&len32(self.common).to_le_bytes());
        let wide = if wide { WIDE } else { 0 };
        to.extend_from_slice(&(len32(self.ends.len()) | wide).to_le_bytes());
        self.bytes.clear();
        self.ends.clear();
        self.common = 0;
    }
}

/// The shortest key at or behind `last` and before `next`, which is behind it.
pub(super) fn separator<'k>(last: &'k [u8], next: &'k [u8]) -> &'k [u8] {
    let common = common_bytes(last, next);
    // One byte more of the next is behind the last, and before the next if that goes on.
    match next.get(..=common) {
        Some(short) if short.len() < next.len() && short.len() < last.len() => short,
        _ => last,
    }
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
