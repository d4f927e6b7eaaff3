//! Every limit of the store in one place.
//!
//! Each queue, batch, key, value and buffer has a maximum here. Tests run with [`Limits::tiny`], so that edges are
//! reached in milliseconds.
//!
//! May use: nothing. Must not know: who asks.

/// The limits of one store. Exceeding one is an error of kind `Limit` that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest bucket name, in bytes. Bucket and key are copied into the ledger, so they are not values.
    pub bucket_bytes_max: usize,
    /// Longest key, in bytes.
    pub key_bytes_max: usize,
    /// Longest value, in bytes. At most 512 MiB, which is also what RESP can carry.
    pub value_bytes_max: usize,
    /// All user metadata of one object together, in bytes.
    pub metadata_bytes_max: usize,
    /// All index entries of one object together, in bytes: names and terms.
    pub indexes_bytes_max: usize,
    /// Most changes in one batch.
    pub batch_changes_max: usize,
    /// All commands of one batch together, in bytes. Must fit a record's 32-bit length.
    pub batch_bytes_max: usize,
    /// Bytes of the open group beyond which a writer writes it out before adding more: bounds memory, and keeps what is summed
    /// and written in the processor's cache.
    pub group_bytes_max: usize,
    /// Position space of one journal segment; a batch larger than that gets a segment of its own size.
    pub segment_bytes: u64,
    /// How far ahead of the writer the open segment is filled with zeros, so that a sync touches no metadata.
    pub zero_ahead_bytes: u64,
    /// Ledger memory of one partition at which it is written out.
    pub ledger_memory_bytes: u64,
    /// Ledger memory of one partition at which writers wait for it to be written out.
    pub ledger_memory_bytes_max: u64,
    /// Journal bytes that a partition's ledger may lag behind before it is written out: bounds the replay at open.
    pub replay_bytes_max: u64,
    /// Values up to this many bytes are kept in the ledger, larger ones are read from the journal.
    pub inline_bytes_max: usize,
    /// Cache of ledger blocks of the whole store, in bytes.
    pub ledger_cache_bytes: u64,
    /// Cache of single ledger entries of the whole store, in bytes; they may have what values leave of theirs, too.
    pub entry_cache_bytes: u64,
    /// What values that are read one by one may have in that cache, in bytes more; 0 is none.
    pub value_cache_bytes: u64,
    /// Most entries in one answer of a listing.
    pub page_entries_max: usize,
    /// Expired objects removed by one background step.
    pub expiry_batch_max: usize,
    /// How many bytes of journal may lie behind the bookmark of a listener by name before they are not held for it any more, whatever
    /// it asked for.
    pub listener_retain_bytes_max: u64,
    /// Bytes of memory that all queries of spaces may hold together: half of them queries that are kept while their clients wait, listen or
    /// go through entries. What would need more is refused.
    pub space_query_memory_bytes: u64,
    /// Bytes of points in memory at which they are sealed; at twice as much writers wait.
    pub series_memory_bytes: u64,
    /// Bytes of memory that all questions about time series may hold together: points and rows on their way, and what of answers
    /// is not sent yet. What would need more is refused.
    pub series_query_memory_bytes: u64,
    /// Most series. Each takes some hundred bytes of memory.
    pub series_max: usize,
    /// Most tags of a series.
    pub series_tags_max: usize,
    /// Longest metric, field, tag's name or tag's value, in bytes.
    pub series_name_bytes_max: usize,
    /// Longest value that is text, in bytes.
    pub series_text_bytes_max: usize,
    /// Ranges of single series that were deleted and are remembered because files may have points in them: when there are as many,
    /// nothing more is deleted until files were written again. Each takes some forty bytes of memory, and of the manifest.
    pub series_erased_max: usize,
    /// Most transactions that the coordinator remembers: decisions not every branch knows of, tombstones, shared ones
    /// under way. Each takes some hundred bytes of memory.
    pub xa_transactions_max: usize,
    /// Most branches of one distributed transaction. At most 65,535.
    pub xa_branches_max: usize,
    /// Most owners of transactions that are alive at a time.
    pub xa_owners_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bucket_bytes_max: 1 << 10,
            key_bytes_max: 60 << 10,
            value_bytes_max: 64 << 20,
            metadata_bytes_max: 64 << 10,
            indexes_bytes_max: 64 << 10,
            batch_changes_max: 1 << 20,
            batch_bytes_max: 1 << 30,
            group_bytes_max: 256 << 10,
            segment_bytes: 64 << 20,
            zero_ahead_bytes: 1 << 20,
            ledger_memory_bytes: 1 << 20,
            ledger_memory_bytes_max: 16 << 20,
            replay_bytes_max: 512 << 20,
            inline_bytes_max: 128,
            ledger_cache_bytes: 32 << 20,
            entry_cache_bytes: 32 << 20,
            value_cache_bytes: 96 << 20,
            page_entries_max: 100_000,
            expiry_batch_max: 1_000,
            listener_retain_bytes_max: 64 << 30,
            space_query_memory_bytes: 512 << 20,
            series_memory_bytes: 24 << 20,
            series_query_memory_bytes: 512 << 20,
            series_max: 10_000_000,
            series_tags_max: 64,
            series_name_bytes_max: 4 << 10,
            series_text_bytes_max: 1 << 20,
            series_erased_max: 1 << 22,
            xa_transactions_max: 1 << 20,
            xa_branches_max: 1_000,
            xa_owners_max: 10_000,
        }
    }
}

impl Limits {
    /// Limits so small that a handful of operations crosses each of them.
    #[must_use]
    pub fn tiny() -> Self {
        Self {
            bucket_bytes_max: 16,
            key_bytes_max: 64,
            value_bytes_max: 8 << 10,
            metadata_bytes_max: 64,
            indexes_bytes_max: 256,
            batch_changes_max: 64,
            batch_bytes_max: 32 << 10,
            group_bytes_max: 2 << 10,
            segment_bytes: 8 << 10,
            zero_ahead_bytes: 1 << 10,
            ledger_memory_bytes: 2 << 10,
            ledger_memory_bytes_max: 64 << 10,
            replay_bytes_max: 16 << 10,
            inline_bytes_max: 16,
            ledger_cache_bytes: 64 << 10,
            entry_cache_bytes: 4 << 10,
            value_cache_bytes: 16 << 10,
            page_entries_max: 100,
            expiry_batch_max: 3,
            listener_retain_bytes_max: 1 << 20,
            space_query_memory_bytes: 1 << 20,
            series_memory_bytes: 2 << 10,
            series_query_memory_bytes: 16 << 20,
            series_max: 40,
            series_tags_max: 3,
            series_name_bytes_max: 16,
            series_text_bytes_max: 1 << 10,
            series_erased_max: 1 << 10,
            xa_transactions_max: 12,
            xa_branches_max: 4,
            xa_owners_max: 6,
        }
    }
}
