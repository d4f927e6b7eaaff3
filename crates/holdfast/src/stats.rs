//! Live numbers of a store.
//!
//! May use: `journal`. Must not know: how numbers are shown.

use std::time::Duration;

use crate::compaction::CompactionStats;
use crate::series::SeriesStats;
use base::Quantiles;
use journal::{Damage, Position, Watermarks};

/// What a store looks like now.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// How far the journal got.
    pub watermarks: Watermarks,
    /// The loss window in bytes: acknowledged or about to be, and not yet on stable storage.
    pub unsynced_bytes: u64,
    /// The loss window in batches.
    pub unsynced_batches: u64,
    /// The loss window in time: age of the oldest unsynced batch.
    pub unsynced_age: Duration,
    /// Batches committed since open.
    pub batches: u64,
    /// Bytes appended to the journal since open.
    pub journal_appended_bytes: u64,
    /// Batches per sync.
    pub group_batches: Quantiles,
    /// Duration of a sync in nanoseconds.
    pub sync_nanos: Quantiles,
    /// Segment files.
    pub segments: u64,
    /// Bytes of disk space in segment files.
    pub journal_bytes: u64,
    /// Bytes of objects that are still needed, over all segments.
    pub live_bytes: u64,
    /// Segments with the bytes in them that are still needed.
    pub segment_live: Vec<SegmentLive>,
    /// Bytes of ledger in memory, not yet written out.
    pub ledger_memory_bytes: u64,
    /// How long writers were held back since open because a ledger had much in memory, all together.
    pub write_delay: Duration,
    /// How many writes were held back.
    pub delayed_writes: u64,
    /// Damaged ranges known, each with file and offset.
    pub damage: Vec<Damage>,
    /// What the background scrubber did since open.
    pub scrub: ScrubStats,
    /// What compaction did since open.
    pub compaction: CompactionStats,
    /// Objects that expired and were removed since open.
    pub expired: u64,
    /// Partitions.
    pub partitions: u16,
    /// What the coordinator of distributed transactions did since open, and holds.
    pub xa: xa::Counters,
    /// The transactions that may hold locks.
    pub transactions: TransactionStats,
    /// Queries of spaces that are not parsed each time: [`Store::prepared`](crate::Store::prepared).
    pub query_cache: QueryCacheStats,
    /// How the time series are.
    pub series: SeriesStats,
    /// Why the store refuses writes, when it does.
    pub refuses_writes: bool,
}

/// Transactions that may hold locks: begun with a lease, or come to an entry of a space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransactionStats {
    /// How many are open.
    pub open: u64,
    /// How many were rolled back since open because their lease was over.
    pub expired: u64,
    /// How many were committed since open.
    pub committed: u64,
    /// How many ended otherwise since open: rolled back, or refused when they were to be committed.
    pub rolled_back: u64,
    /// How often one was told since open that somebody else had changed what it saw.
    pub conflicts: u64,
    /// How often one was told since open that it waited for itself.
    pub deadlocks: u64,
    /// How often somebody waited in vain for an entry that one had locked, since open.
    pub lock_timeouts: u64,
    /// How long the oldest of the open ones has been open.
    pub oldest_age: Duration,
    /// How many entries are locked.
    pub locks: u64,
    /// Bytes that the open ones keep in memory until they end.
    pub held_bytes: u64,
}

/// The queries that the store remembers, so that they need not be parsed when they are asked again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueryCacheStats {
    /// How often since open a query was asked that was remembered.
    pub hits: u64,
    /// How often one had to be parsed.
    pub misses: u64,
    /// How many are remembered.
    pub queries: u64,
    /// Bytes of memory that they take, roughly.
    pub bytes: u64,
}

/// A transaction that may hold locks, as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTransaction {
    /// What it was named, if it was.
    pub name: Option<String>,
    /// How long it has been open.
    pub age: Duration,
    /// How long its lease lasts still, if it has one.
    pub left: Option<Duration>,
    /// How many entries it has locked.
    pub locks: u64,
    /// Bytes that it keeps in memory until it ends.
    pub held_bytes: u64,
    /// Whether it waits for an entry that another one has locked.
    pub is_waiting: bool,
}

/// What the background scrubber did since open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubStats {
    /// Bytes read and checked.
    pub bytes: u64,
    /// Rounds through all sealed segments that ended.
    pub rounds: u64,
    /// How long the last of them took.
    pub last_round: Duration,
    /// When it ended, in milliseconds since 1970; 0 before the first.
    pub last_round_ms: u64,
}

/// One journal segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentLive {
    /// Its first position.
    pub base: Position,
    /// Bytes of its file.
    pub bytes: u64,
    /// Bytes in it of objects that are still needed.
    pub live_bytes: u64,
    /// Bytes in it of commands that nothing needs any more: what compaction would win.
    pub dead_bytes: u64,
    /// Whether it is sealed.
    pub sealed: bool,
    /// Whether its records were let go, so that only a header and a footer are left.
    pub is_stub: bool,
}
