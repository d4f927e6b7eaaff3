//! Positions and partition numbers.
//!
//! May use: nothing. Must not know: files.

use std::fmt;

/// A place in the journal: the address of a batch's first byte in one address space that spans all segments.
///
/// Monotone, and never given out twice, not even after a power cut that lost the batch: a reopened journal goes on
/// behind everything it may ever have given out. The version of every object is the position of the batch that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(u64);

impl Position {
    /// Before everything.
    pub const ZERO: Self = Self(0);
    /// After everything.
    pub const MAX: Self = Self(u64::MAX);

    /// The position at this address.
    #[must_use]
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The address.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    pub(crate) const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a partition: an independent part of a store with its own order, counted and chained by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PartitionId(u16);

impl PartitionId {
    /// The partition with this number.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number, to index memory with.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
