//! Where in a journal segment the commands begin that are needed: what compaction then need not read.
//!
//! For each part of 16 KiB it is counted how many begin there, a byte for each, so a thousandth of the journal for sixteen
//! partitions. Counted in memory only: what was applied before the engine was opened is not known, and so neither is such
//! a segment.
//!
//! May use: nothing. Must not know: files, what a command is.

use journal::Position;

use crate::live::LiveBytes;

const PART_BYTES: u64 = 16 << 10;
/// So many, or more: from there on it stays.
const MANY: u8 = u8::MAX;

/// One partition's counts in one segment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    /// Bytes of commands that were applied since the engine was opened.
    seen: u64,
    counts: Vec<u8>,
}

impl Parts {
    pub(crate) fn seen(&mut self, bytes: u64) {
        self.seen += bytes;
    }

    /// A command that is needed begins at `offset` in the segment.
    pub(crate) fn add(&mut self, offset: u64) {
        let part = part_of(offset);
        if self.counts.len() <= part {
            self.counts.resize(part + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(part) {
            *count = count.saturating_add(1);
        }
    }

    /// That one is needed no more.
    pub(crate) fn remove(&mut self, offset: u64) {
        if let Some(count) = self.counts.get_mut(part_of(offset)).filter(|count| **count < MANY) {
            *count = count.saturating_sub(1);
        }
    }
}

fn part_of(offset: u64) -> usize {
    usize::try_from(offset / PART_BYTES).unwrap_or(usize::MAX - 1)
}

/// Which parts of one segment any partition needs.
#[derive(Debug)]
pub struct NeededParts {
    segment: Position,
    /// `None` when it is not known.
    parts: Option<Vec<bool>>,
}

impl NeededParts {
    /// Of the segment at `segment`; none, until what partitions need is added.
    #[must_use]
    pub fn new(segment: Position) -> Self {
        Self { segment, parts: Some(Vec::new()) }
    }

    /// All of it, because it is not known what.
    #[must_use]
    pub fn unknown(segment: Position) -> Self {
        Self { segment, parts: None }
    }

    /// Adds what one partition needs.
    pub fn add(&mut self, live: &LiveBytes) {
        let Some((bytes, of)) = live.parts(self.segment) else { return };
        let Some(parts) = self.parts.as_mut().filter(|_| of.seen == bytes.applied) else {
            self.parts = None;
            return;
        };
        if parts.len() < of.counts.len() {
            parts.resize(of.counts.len(), false);
        }
        parts.iter_mut().zip(&of.counts).for_each(|(part, count)| *part |= *count > 0);
    }

    /// Whether a needed command may begin from `from` to before `to`.
    #[must_use]
    pub fn may_begin(&self, from: Position, to: Position) -> bool {
        let part = |at: Position| part_of(at.get().saturating_sub(self.segment.get()));
        let Some(parts) = &self.parts else { return true };
        let touched = parts.iter().take(part(to).saturating_add(1)).skip(part(from));
        touched.into_iter().any(|is_needed| *is_needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: Position = Position::new(1 << 30);

    fn at(offset: u64) -> u64 {
        SEGMENT.get() + offset
    }

    /// Whether something may be needed from one offset to another, by one partition or several.
    fn may_begin(of: &[&LiveBytes], from: u64, to: u64) -> bool {
        let mut needed = NeededParts::new(SEGMENT);
        of.iter().for_each(|live| needed.add(live));
        needed.may_begin(Position::new(at(from)), Position::new(at(to)))
    }

    fn put(live: &mut LiveBytes, offset: u64) {
        live.applied(SEGMENT, 100);
        live.add(SEGMENT, at(offset), 100);
    }

    #[test]
    fn a_part_is_needed_until_the_last_command_that_begins_in_it_is_not() {
        let mut live = LiveBytes::default();
        let offsets = [PART_BYTES, PART_BYTES + 100, 3 * PART_BYTES - 1];
        offsets.into_iter().for_each(|offset| put(&mut live, offset));
        let parts = |live: &LiveBytes| {
            [0, 1, 2, 3].map(|part| may_begin(&[live], part * PART_BYTES, (part + 1) * PART_BYTES - 1))
        };
        assert_eq!(parts(&live), [false, true, true, false]);
        live.subtract(SEGMENT, at(offsets[0]), 100);
        assert_eq!(parts(&live), [false, true, true, false]);
        live.subtract(SEGMENT, at(offsets[1]), 100);
        assert_eq!(parts(&live), [false, false, true, false]);
        assert!(
            may_begin(&[&live], 0, u64::from(u32::MAX)) && may_begin(&[&live], 2 * PART_BYTES + 8, 2 * PART_BYTES + 16)
        );
        live.subtract(SEGMENT, at(offsets[2]), 100);
        assert!(!may_begin(&[&live], 0, u64::from(u32::MAX)));
        let mut other = LiveBytes::default();
        put(&mut other, 9 * PART_BYTES);
        assert!(may_begin(&[&live, &other], 8 * PART_BYTES, 9 * PART_BYTES), "another partition needs it");
    }

    #[test]
    fn what_is_held_stays_needed_and_so_does_a_part_of_very_many() {
        let mut live = LiveBytes::default();
        live.applied(SEGMENT, 30);
        live.hold(SEGMENT, at(5), 30);
        live.release(SEGMENT, 0, 30);
        assert!(may_begin(&[&live], 0, 8), "which of them was released is not known");
        for offset in 0..300 {
            put(&mut live, PART_BYTES + offset);
        }
        (0..300).for_each(|offset| live.subtract(SEGMENT, at(PART_BYTES + offset), 100));
        assert!(may_begin(&[&live], PART_BYTES, PART_BYTES + 8));
    }

    #[test]
    fn a_segment_that_was_there_before_is_needed_whole() {
        let mut live = LiveBytes::default();
        put(&mut live, 0);
        live.subtract(SEGMENT, at(0), 100);
        let mut bytes = Vec::new();
        live.encode(&mut bytes);
        let mut reopened = LiveBytes::decode(&mut crate::bytes::Fields(&bytes)).unwrap();
        assert!(may_begin(&[&reopened], 0, 8));
        put(&mut reopened, PART_BYTES);
        assert!(may_begin(&[&live, &reopened], 0, 8));
        assert!(NeededParts::unknown(SEGMENT).may_begin(SEGMENT, SEGMENT));
    }
}
