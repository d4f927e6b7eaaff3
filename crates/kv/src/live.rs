//! What each journal segment holds for this engine: exact, counted with every change.
//!
//! May use: nothing. Must not know: files.

use std::collections::BTreeMap;

use journal::Position;

use crate::bytes::Fields;
use crate::parts::Parts;

/// Tells which segment an address lies in.
pub trait Places {
    /// The base position of the segment that holds `at`; `at` itself when there is none, because it was let go of or is missing.
    fn segment_of(&self, at: u64) -> Position;
}

/// Bytes of commands in one segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentBytes {
    /// Of all commands that were applied.
    pub applied: u64,
    /// Of puts whose object is still there: what the ledger points at.
    pub live: u64,
    /// Of deletes, expiries and clears that took effect: a rebuild needs them while older segments are there.
    pub held: u64,
}

/// Counts by segment.
#[derive(Debug, Clone, Default)]
pub struct LiveBytes(BTreeMap<Position, Counted>);

#[derive(Debug, Clone, Default)]
struct Counted {
    bytes: SegmentBytes,
    parts: Parts,
}

/// Equal when the bytes are: where in a segment they lie is a hint.
impl PartialEq for LiveBytes {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for LiveBytes {}

impl SegmentBytes {
    /// Bytes that nothing needs any more.
    #[must_use]
    pub fn dead(&self) -> u64 {
        self.applied.saturating_sub(self.live + self.held)
    }

    fn add(&mut self, other: Self) {
        self.applied += other.applied;
        self.live += other.live;
        self.held += other.held;
    }
}

impl LiveBytes {
    fn at(&mut self, segment: Position) -> &mut Counted {
        self.0.entry(segment).or_default()
    }

    /// What is counted of the segment that `at` lies in. One that is missing is not told, and is the last that is counted before.
    fn counted(&mut self, segment: Position, at: u64) -> Option<(Position, &mut Counted)> {
        let is_told = segment.get() != at;
        let first = if is_told { segment } else { Position::ZERO };
        self.0.range_mut(first..=segment).next_back().map(|(segment, of)| (*segment, of))
    }

    /// A command of so many bytes was applied.
    pub(crate) fn applied(&mut self, segment: Position, bytes: u64) {
        let of = self.at(segment);
        of.bytes.applied += bytes;
        of.parts.seen(bytes);
    }

    /// A put at address `at` is what the ledger points at.
    pub(crate) fn add(&mut self, segment: Position, at: u64, bytes: u64) {
        let of = self.at(segment);
        of.bytes.live += bytes;
        of.parts.add(at.saturating_sub(segment.get()));
    }

    /// It is no more. A segment that was let go has no counts any more; what is taken from it was not counted.
    pub(crate) fn subtract(&mut self, segment: Position, at: u64, bytes: u64) {
        if let Some((segment, of)) = self.counted(segment, at) {
            of.bytes.live = of.bytes.live.saturating_sub(bytes);
            of.parts.remove(at.saturating_sub(segment.get()));
        }
    }

    /// A delete, expiry or clear at address `at` took effect.
    pub(crate) fn hold(&mut self, segment: Position, at: u64, bytes: u64) {
        let of = self.at(segment);
        of.bytes.held += bytes;
        of.parts.add(at.saturating_sub(segment.get()));
    }

    /// It is overtaken. Of these the address is not known, so that its part stays needed.
    pub(crate) fn release(&mut self, segment: Position, at: u64, bytes: u64) {
        if let Some((_, of)) = self.counted(segment, at) {
            of.bytes.held = of.bytes.held.saturating_sub(bytes);
        }
    }

    /// What is counted of one segment, and where in it.
    pub(crate) fn parts(&self, segment: Position) -> Option<(SegmentBytes, &Parts)> {
        self.0.get(&segment).map(|of| (of.bytes, &of.parts))
    }

    /// Drops what is counted of segments that were let go.
    pub(crate) fn retain(&mut self, is_there: impl Fn(Position) -> bool) {
        self.0.retain(|segment, _| is_there(*segment));
    }

    /// Counts of each segment that holds something, by base position.
    pub fn iter(&self) -> impl Iterator<Item = (Position, SegmentBytes)> {
        self.0.iter().map(|(segment, of)| (*segment, of.bytes))
    }

    /// Adds another partition's counts, but not where in a segment they lie.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(segment, bytes)| self.at(segment).bytes.add(bytes));
    }

    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&crate::bytes::len32(self.0.len()).to_le_bytes());
        for (segment, bytes) in self.iter() {
            for number in [segment.get(), bytes.applied, bytes.live, bytes.held] {
                to.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    pub(crate) fn decode(from: &mut Fields<'_>) -> Option<Self> {
        let count = from.u32()?;
        let one = |_| {
            let segment = Position::new(from.u64()?);
            let bytes = SegmentBytes { applied: from.u64()?, live: from.u64()?, held: from.u64()? };
            Some((segment, Counted { bytes, parts: Parts::default() }))
        };
        (0..count).map(one).collect::<Option<_>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lay_in_a_missing_segment_is_taken_from_its_counts_and_from_no_other() {
        let (first, missing, last) = (Position::new(100), Position::new(200), Position::new(300));
        let mut live = LiveBytes::default();
        for segment in [first, missing, last] {
            live.add(segment, segment.get() + 10, 30);
            live.hold(segment, segment.get() + 50, 7);
        }
        // Nobody can tell in which segment it is.
        let nowhere = Position::new(210);
        live.subtract(nowhere, 210, 20);
        live.release(nowhere, 210, 7);
        // Nothing was counted of this one.
        live.subtract(Position::new(250), 260, 30);
        live.subtract(Position::new(90), 90, 30);
        let bytes = |live, held| SegmentBytes { applied: 0, live, held };
        let expected = [(first, bytes(30, 7)), (missing, bytes(10, 0)), (last, bytes(30, 7))];
        assert_eq!(live.iter().collect::<Vec<_>>(), expected);
    }
}
