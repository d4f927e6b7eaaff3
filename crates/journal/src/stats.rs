//! Live numbers of the journal.
//!
//! May use: `base`. Must not know: how numbers are shown.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use base::{Histogram, Quantiles};

use crate::log::Watermarks;
use crate::position::Position;

/// What the journal looks like now.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// How far the log got.
    pub watermarks: Watermarks,
    /// Bytes appended that no sync has covered yet: what a power cut may take.
    pub unsynced_bytes: u64,
    /// Batches appended that no sync has covered yet.
    pub unsynced_batches: u64,
    /// How long ago the oldest of them was written, to the millisecond.
    pub unsynced_age: Duration,
    /// Batches appended since open.
    pub batches: u64,
    /// Bytes appended since open, headers and padding included.
    pub bytes: u64,
    /// Batches per sync.
    pub group_batches: Quantiles,
    /// Duration of a sync in nanoseconds.
    pub sync_nanos: Quantiles,
    /// Segment files.
    pub segments: u64,
    /// Bytes of disk space in segment files.
    pub segment_bytes: u64,
    /// Damaged ranges found since open, those that recovery found included.
    pub damaged_ranges: u64,
    /// Bytes in them.
    pub damaged_bytes: u64,
    /// Whether a failed write or sync has stopped writing.
    pub poisoned: bool,
}

/// One segment of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentStats {
    /// Its first position.
    pub base: Position,
    /// Bytes of its file.
    pub bytes: u64,
    /// Behind its last position.
    pub end: Position,
    /// Behind the last record that it has, so far if it is written to. What lies between here and `end` was never written.
    pub records_end: Position,
    /// Whether it is sealed.
    pub sealed: bool,
    /// Whether it is sealed and has no records: they were let go, or there never were any.
    pub is_stub: bool,
    /// Whether it had records, which were let go: see [`crate::Journal::let_go`].
    pub is_let_go: bool,
    /// Bytes in it that are damaged, torn or void.
    pub damaged_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) appended_batches: AtomicU64,
    pub(crate) appended_bytes: AtomicU64,
    pub(crate) written_batches: AtomicU64,
    pub(crate) synced_batches: AtomicU64,
    pub(crate) group_batches: Histogram,
    pub(crate) sync_nanos: Histogram,
}
