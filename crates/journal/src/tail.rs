//! The growing end of the log: where the next batch goes, and the groups that wait to be written.
//!
//! Everything here is under one lock, held for a few hundred nanoseconds by each writer. Disk space is reserved before
//! a position is given out, so that a full disk is an error of that one batch and not of the journal.
//!
//! May use: `record.rs`, `segment.rs`. Must not know: who waits, how groups are written.

use std::sync::Arc;

use base::Time;

use crate::batch::{Appended, Batch};
use crate::chain::PartitionState;
use crate::footer::{Extent, ExtentKind, Index, footer_bytes_max};
use crate::header::SegmentHeader;
use crate::position::Position;
use crate::record;
use crate::segment::Segment;

/// Bytes that wait to be written to one segment.
pub(crate) struct Group {
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) batches: u64,
    /// When the group's first batch came in.
    pub(crate) since: Time,
}

/// A segment that is full: what its footer will say.
pub(crate) struct Full {
    pub(crate) segment: Arc<Segment>,
    pub(crate) index: Index,
    pub(crate) states: Vec<PartitionState>,
    pub(crate) end: Position,
}

/// The end of the log.
pub(crate) struct Tail {
    pub(crate) segment: Arc<Segment>,
    /// Groups of segments that are full already; rarely any.
    pub(crate) waiting: Vec<Group>,
    /// The open group of the current segment.
    pub(crate) open: Vec<u8>,
    pub(crate) open_batches: u64,
    pub(crate) open_since: Time,
    /// Where the open group starts in the current segment.
    pub(crate) open_offset: u64,
    pub(crate) states: Vec<PartitionState>,
    index: Index,
    pub(crate) full: Vec<Full>,
    /// Nothing is appended any more: the journal is being closed.
    pub(crate) closed: bool,
    store: u128,
    boot: u128,
}

impl Tail {
    /// A tail at the start of `segment`, whose header is the first thing to be written.
    pub(crate) fn new(
        segment: Arc<Segment>,
        states: Vec<PartitionState>,
        previous: (Position, Position),
        store: u128,
        boot: u128,
    ) -> Self {
        let mut tail = Self {
            segment: Arc::clone(&segment),
            waiting: Vec::new(),
            open: Vec::new(),
            open_batches: 0,
            open_since: Time::default(),
            open_offset: 0,
            states,
            index: Index::default(),
            full: Vec::new(),
            closed: false,
            store,
            boot,
        };
        tail.begin(segment, previous);
        tail
    }

    fn begin(&mut self, segment: Arc<Segment>, (previous_base, previous_end): (Position, Position)) {
        let header = SegmentHeader {
            base: segment.base,
            capacity: segment.capacity(),
            previous_base,
            previous_end,
            store: self.store,
            boot: self.boot,
            states: self.states.clone(),
        };
        segment.enter(previous_end);
        self.segment = segment;
        self.open = header.encode();
        self.open_batches = 0;
        self.open_offset = 0;
    }

    /// Offset in the current segment at which the next record goes.
    pub(crate) fn offset(&self) -> u64 {
        self.open_offset + self.open.len() as u64
    }

    /// Position of the next record.
    pub(crate) fn end(&self) -> Position {
        self.segment.base.plus(self.offset())
    }

    /// Up to where the current segment's file needs space once it has a record of `bytes` more, and its footer behind that as far as it
    /// comes to lie within the capacity: the file's length may have to tell that.
    pub(crate) fn needs(&self, bytes: u64) -> u64 {
        let end = self.offset() + bytes;
        let with_footer = end + footer_bytes_max(self.index.len() + 1, self.states.len());
        with_footer.min(self.segment.capacity()).max(end)
    }

    /// Whether the current segment holds records.
    pub(crate) fn has_records(&self) -> bool {
        self.index.len() > 0
    }

    /// Whether a record of `bytes` belongs in a new segment.
    pub(crate) fn must_roll(&self, bytes: u64) -> bool {
        self.offset() + bytes > self.segment.capacity()
    }

    /// Puts the batch at the end. The current segment must have room for it, and the disk space.
    pub(crate) fn push(&mut self, batch: &Batch, sum: u32, synced: Position, now: Time) -> Appended {
        let bytes = batch.record_len();
        debug_assert!(!self.must_roll(bytes));
        debug_assert!(self.offset() + bytes <= self.segment.reserved());
        if self.open_batches == 0 {
            self.open_since = now;
        }
        let position = self.end();
        record::encode(&mut self.open, batch, sum, position, synced, &mut self.states);
        self.open_batches += 1;
        self.index.push(Extent { bytes, kind: ExtentKind::Record });
        let body_at = position.get() + record::header_len(batch.sections.len());
        Appended { position, body_at }
    }

    /// Leaves the current segment, which is full, and goes on in `next`.
    pub(crate) fn roll(&mut self, next: Arc<Segment>) {
        let previous = (self.segment.base, self.end());
        let full = self.take_full();
        if let Some(group) = self.take_open(Vec::new()) {
            self.waiting.push(group);
        }
        self.full.push(full);
        self.begin(next, previous);
    }

    /// What the current segment's footer has to say.
    pub(crate) fn take_full(&mut self) -> Full {
        self.segment.leave(self.end());
        Full {
            segment: Arc::clone(&self.segment),
            index: std::mem::take(&mut self.index),
            states: self.states.clone(),
            end: self.end(),
        }
    }

    /// Takes the open group, if it holds anything that has its disk space, and leaves `spare` in its place. Only the header of a
    /// segment that was made on a full disk may be without.
    pub(crate) fn take_open(&mut self, spare: Vec<u8>) -> Option<Group> {
        if self.open.is_empty() || self.offset() > self.segment.reserved() {
            return None;
        }
        let offset = self.open_offset;
        self.open_offset = self.offset();
        let bytes = std::mem::replace(&mut self.open, spare);
        let batches = std::mem::take(&mut self.open_batches);
        Some(Group { segment: Arc::clone(&self.segment), offset, bytes, batches, since: self.open_since })
    }

    /// Bytes that wait to be written.
    pub(crate) fn buffered(&self) -> usize {
        self.open.len() + self.waiting.iter().map(|group| group.bytes.len()).sum::<usize>()
    }
}

/// The capacity that a segment needs to hold one record of `bytes`.
pub(crate) fn capacity_for(bytes: u64, header: u64, usual: u64) -> u64 {
    usual.max((header + bytes).next_multiple_of(4096))
}

pub(crate) fn shrink(mut buffer: Vec<u8>, bytes_max: usize) -> Vec<u8> {
    buffer.clear();
    buffer.shrink_to(bytes_max);
    buffer
}
