//! How many bytes of each journal segment are still needed: exact, counted with every change.
//!
//! May use: nothing. Must not know: files.

use std::collections::BTreeMap;

use journal::Position;

use crate::bytes::Fields;

/// Tells which segment an address lies in.
pub trait Places {
    /// The base position of the segment that holds `at`.
    fn segment_of(&self, at: u64) -> Position;
}

/// Live bytes by segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveBytes(BTreeMap<Position, u64>);

impl LiveBytes {
    pub(crate) fn add(&mut self, segment: Position, bytes: u64) {
        *self.0.entry(segment).or_default() += bytes;
    }

    pub(crate) fn subtract(&mut self, segment: Position, bytes: u64) {
        if let Some(left) = self.0.get_mut(&segment) {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                self.0.remove(&segment);
            }
        }
    }

    /// Segments with live bytes, by base position.
    pub fn iter(&self) -> impl Iterator<Item = (Position, u64)> {
        self.0.iter().map(|(segment, bytes)| (*segment, *bytes))
    }

    /// Adds another partition's counts.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(segment, bytes)| self.add(segment, bytes));
    }

    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&crate::bytes::len32(self.0.len()).to_le_bytes());
        for (segment, bytes) in &self.0 {
            to.extend_from_slice(&segment.get().to_le_bytes());
            to.extend_from_slice(&bytes.to_le_bytes());
        }
    }

    pub(crate) fn decode(from: &mut Fields<'_>) -> Option<Self> {
        let count = from.u32()?;
        (0..count).map(|_| Some((Position::new(from.u64()?), from.u64()?))).collect::<Option<_>>().map(Self)
    }
}
