//! Reading sealed segments again and again, slowly, so that bytes that rot are noticed while a backup still has them.
//!
//! May use: `verify.rs`, `journal.rs`. Must not know: time, threads; whoever calls decides how fast.

use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use crate::journal::Journal;
use crate::position::Position;
use crate::segment::Segment;
use crate::verify::{PIECE_BYTES, SegmentCheck, Through};

/// How far a scrubber is.
#[derive(Default)]
pub struct Scrub {
    check: Option<SegmentCheck>,
    /// Segments up to here are done in this round.
    done: Option<Position>,
    through: Through,
}

/// What one step of a scrubber did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scrubbed {
    /// It read so many bytes.
    Bytes(u64),
    /// Every segment that is sealed was read; the next step begins again.
    Round,
}

impl Journal {
    /// Reads at most `bytes_max` (and at most 1 MiB) of the sealed segments, going on from where `scrub` is. Damage is added
    /// to [`Journal::recovery`]. Takes no lock while it reads.
    pub fn scrub(&self, scrub: &mut Scrub, bytes_max: usize) -> Scrubbed {
        let Some(mut check) = scrub.check.take().or_else(|| self.next_check(scrub)) else {
            *scrub = Scrub::default();
            return Scrubbed::Round;
        };
        let step = check.step(bytes_max.clamp(1, PIECE_BYTES));
        let segment = Arc::clone(&check.segment);
        let (bytes, checked) = match step {
            Ok(bytes) if check.left() > 0 => {
                scrub.check = Some(check);
                return Scrubbed::Bytes(bytes as u64);
            }
            Ok(bytes) => (bytes, check.finish()),
            Err(error) => (0, check.give_up(&error)),
        };
        scrub.through.add(&segment, checked, true);
        let found = std::mem::take(&mut scrub.through.damage);
        // What was let go of meanwhile is nobody's loss.
        if self.has(&segment) {
            found.into_iter().for_each(|damage| drop(self.remember(damage)));
        }
        Scrubbed::Bytes(bytes as u64)
    }

    fn next_check(&self, scrub: &mut Scrub) -> Option<SegmentCheck> {
        let after = |done: Option<Position>| (done.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        loop {
            let segment = {
                let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
                segments.range(after(scrub.done)).map(|(_, segment)| Arc::clone(segment)).next()?
            };
            scrub.done = Some(segment.base);
            // One that does not even open for its footer is told by whoever reads from it.
            if let Ok(Some(check)) = SegmentCheck::begin(&segment) {
                return Some(check);
            }
        }
    }

    fn has(&self, segment: &Arc<Segment>) -> bool {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.get(&segment.base).is_some_and(|now| Arc::ptr_eq(now, segment))
    }
}
