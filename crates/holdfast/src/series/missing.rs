//! What an answer is missing, because where it is sealed is damaged.
//!
//! May use: what is known of sealed files. Must not know: how they are read, who is answered.

use std::collections::BTreeSet;
use std::fmt;

use ::series::{BlockAt, Range, SealedFile};

use super::folder::points_name;

/// Points that were asked for and cannot be read, because where they are sealed is damaged. Shown as text it is one sentence for who gets
/// the answer.
#[derive(Debug, Clone, Default)]
pub struct Missing {
    /// Blocks by file and offset; a file that cannot be opened is one block.
    blocks: BTreeSet<(u64, u64)>,
    range: Option<Range>,
}

impl Missing {
    pub(super) fn is_some(&self) -> bool {
        !self.blocks.is_empty()
    }

    pub(super) fn note_block(&mut self, of: &SealedFile, at: &BlockAt) {
        self.note((of.file, at.offset), at.range);
    }

    pub(super) fn note_file(&mut self, of: &SealedFile) {
        self.note((of.file, 0), of.range);
    }

    fn note(&mut self, place: (u64, u64), range: Range) {
        self.blocks.insert(place);
        let known = self.range.unwrap_or(range);
        self.range = Some(Range { from: known.from.min(range.from), to: known.to.max(range.to) });
    }

    /// How many blocks are missing; a file that cannot be opened counts as one.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The times, in nanoseconds since 1970, between which all lies that is missing; other points between them may well be there.
    #[must_use]
    pub fn range(&self) -> Range {
        self.range.unwrap_or(Range::ALL)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { from, to } = self.range();
        let files: BTreeSet<u64> = self.blocks.iter().map(|(file, _)| *file).collect();
        let names: Vec<String> = files.into_iter().take(3).map(points_name).collect();
        let (blocks, s) = (self.blocks.len(), if self.blocks.len() == 1 { "" } else { "s" });
        write!(
            f,
            "the answer is incomplete: {blocks} damaged block{s} of points from {from} to {to} ns (in {}); `holdfast inspect --verify` tells the damage",
            names.join(", ")
        )
    }
}
