//! What is said of bytes of the journal that are not what was written.
//!
//! May use: segments. Must not know: how it was noticed.

use std::path::PathBuf;

use crate::position::Position;
use crate::segment::Segment;

/// Why bytes of the journal cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// A segment's header. Costs nothing: the records speak for themselves.
    Header,
    /// One or more records: what was in them is lost.
    Record,
    /// A segment's footer. Costs nothing: the segment is scanned instead.
    Footer,
    /// Unfinished or damaged bytes at the end of the log.
    Torn,
    /// Unsynced batches behind a hole that a power cut made.
    Discarded,
    /// A whole segment is missing.
    Missing,
    /// A section does not continue its partition's hash chain.
    Chain,
    /// One of two files that say the same. Costs nothing: the other one is intact.
    Copy,
}

/// The reason of damage that was there when its segment was sealed.
pub(crate) const SET_ASIDE: &str = "set aside by an earlier recovery";

/// A range of bytes of a file that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Why.
    pub kind: DamageKind,
    /// The file.
    pub path: PathBuf,
    /// Where it starts in the file.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// The position of its first byte.
    pub position: Position,
    /// How it was noticed.
    pub reason: &'static str,
}

impl Damage {
    /// Whether it is a damaged record, and all of it is in another range.
    pub(crate) fn is_part_of(&self, whole: &Self) -> bool {
        self.kind == DamageKind::Record
            && self.path == whole.path
            && whole.offset <= self.offset
            && self.offset + self.bytes <= whole.offset + whole.bytes
    }

    /// Whether it is a segment that is missing, and that was not let go of, by where the journal begins.
    pub(crate) fn is_missing_behind(&self, begin: Position) -> bool {
        self.kind == DamageKind::Missing && self.position.plus(self.bytes) > begin
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, path, offset, bytes, position, reason } = self;
        let path = path.display();
        write!(f, "{kind:?} damage in {path}: {bytes} bytes at offset {offset} (position {position}): {reason}")
    }
}

/// Damage of a segment, from `offset` in its file on.
pub(crate) fn damage_at(segment: &Segment, kind: DamageKind, offset: u64, bytes: u64, reason: &'static str) -> Damage {
    Damage { kind, path: segment.path.clone(), offset, bytes, position: segment.base.plus(offset), reason }
}
