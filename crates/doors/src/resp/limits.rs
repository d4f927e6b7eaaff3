//! Every limit of the RESP door, by name, with a default, a reason and a tiny set for tests.
//!
//! May use: `std`. Must not know: anything else of the door.

use std::time::Duration;

/// What one RESP door allows its clients. A bound that is reached is an error reply or a closed connection, never growth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections of the whole door; the next one is told so and closed.
    pub clients_max: usize,
    /// Bytes of one argument. The effective bound is the smaller of this and the store's `value_bytes_max` (at least 64 KiB).
    pub bulk_bytes_max: usize,
    /// Bytes of one command with all its arguments. At most 4 GiB - 1, because argument ranges are 32 bits wide.
    pub command_bytes_max: usize,
    /// Bytes of unfinished commands of all connections together; who needs more is told so and closed.
    pub input_bytes_max: usize,
    /// Arguments of one command. Redis before version 7 had the same bound.
    pub args_max: usize,
    /// Bytes of one line: an inline command, or the header of an array or a bulk string.
    pub line_bytes_max: usize,
    /// Bytes of one argument before the client has authenticated.
    pub unauthenticated_bulk_bytes_max: usize,
    /// Arguments of one command before the client has authenticated.
    pub unauthenticated_args_max: usize,
    /// Unsent reply bytes from which on nothing more is read from the client: back-pressure.
    pub output_pause_bytes: usize,
    /// Bytes of unsent replies of all connections together, the first 64 KiB of each aside. When they are used up a connection starts on
    /// nothing more until its own replies are gone, and a command whose reply has more than `loop_bytes_max` waits until there is room.
    pub replies_bytes_max: usize,
    /// Unsent reply bytes at most. A single reply that would exceed it becomes an error, and its command does nothing.
    pub output_bytes_max: usize,
    /// How long one connection has its commands handled before the others of its event loop have their turn. A command that has begun
    /// is not interrupted.
    pub turn_max: Duration,
    /// Bytes that one connection is sent before the others of its event loop have their turn.
    pub turn_bytes_max: usize,
    /// Bytes that one command reads, compares or copies on the event loop, and an EXEC with all of its; one that comes upon more begins
    /// again in a thread. About a millisecond.
    pub loop_bytes_max: usize,
    /// Such commands that run at a time; the next ones wait for their turn. Each has a value or two in memory.
    pub heavy_commands_max: usize,
    /// Chunks of replies that wait for durability before nothing more is read from the client.
    pub pending_chunks_max: usize,
    /// Commands in one MULTI, or open transaction.
    pub queue_commands_max: usize,
    /// Bytes in one MULTI, or open transaction.
    pub queue_bytes_max: usize,
    /// Commands of open transactions that wait for locks at a time, in threads of their own, and as many that wait for entries, or commit and wait
    /// for a table; the next ones wait for their turn.
    pub transaction_waits_max: usize,
    /// Keys and entries that one open transaction may have read, changed or locked.
    pub transaction_entries_max: usize,
    /// The longest lease of an open transaction, which holds locks.
    pub transaction_lease_max: Duration,
    /// Keys one client may WATCH.
    pub watched_keys_max: usize,
    /// Memory for the keys that clients are to be told of once they change (CLIENT TRACKING), all together: some million short ones. Beyond it,
    /// clients are told of some as if they had changed.
    pub tracked_bytes_max: usize,
    /// SCAN cursors the door remembers; the one not used for longest is forgotten first.
    pub cursors_max: usize,
    /// Keys that one SCAN call looks at, whatever COUNT says.
    pub scan_count_max: usize,
    /// Objects or index entries that one KV.FOLD or KV.INDEX returns at most, whatever LIMIT says.
    pub fold_entries_max: usize,
    /// Objects or index entries that one KV.FOLD or KV.INDEX looks at before it returns what it has and where to go on.
    pub fold_examined_max: usize,
    /// Bytes that one KV.FOLD gathers before it returns; the object that exceeds it is still there.
    pub fold_bytes_max: usize,
    /// Folds and comparisons that run at a time, in threads of their own; the next ones wait for their turn.
    pub long_commands_max: usize,
    /// Writes of points that are held back at a time, in threads of their own, because points come faster than they are packed into
    /// files; the next ones wait for their turn.
    pub held_writes_max: usize,
    /// Items that one FEED returns at most, whatever COUNT says.
    pub feed_items_max: usize,
    /// Bytes of the items of one FEED, unless the first alone has more.
    pub feed_bytes_max: usize,
    /// Clients that wait for the change feed at a time: each looks for news again and again.
    pub feed_waiters_max: usize,
    /// The longest that a FEED waits, whatever BLOCK says: a client that went away unnoticed is found out after it.
    pub feed_block_max: Duration,
    /// Entries that one SPACE.MREAD or SPACE.MTAKE returns at most, whatever COUNT says.
    pub space_entries_max: usize,
    /// Bytes of documents that one SPACE.MTAKE takes before it returns; the entry that exceeds it is still there.
    pub space_bytes_max: usize,
    /// How long one command may go through entries; then it fails. Its partition is locked meanwhile, and few run at a time.
    pub space_time_max: Duration,
    /// How long one command may read time series; then it fails.
    pub series_time_max: Duration,
    /// Iterations through entries that the door remembers; the oldest is forgotten first.
    pub iterations_max: usize,
    /// Entries that all of these together keep in memory; the oldest is forgotten first. One alone may keep more, which are those of
    /// one partition.
    pub iterations_entries_max: usize,
    /// Snapshots that are open at a time in the whole door: each keeps old versions on disk.
    pub snapshots_max: usize,
    /// Snapshots that one connection may have open.
    pub client_snapshots_max: usize,
    /// The longest life of a snapshot, in seconds.
    pub snapshot_seconds_max: u64,
    /// Scripts that the door remembers by their hash; the one not used for longest is forgotten first.
    pub scripts_max: usize,
    /// Bytes of the scripts that the door remembers.
    pub scripts_bytes_max: usize,
    /// Libraries of functions that the store keeps.
    pub libraries_max: usize,
    /// Lines that one run of a script may log; what is more is left out.
    pub script_lines_max: usize,
    /// Entries of the slow log; `CONFIG SET slowlog-max-len` may not exceed it.
    pub slowlog_entries_max: usize,
    /// Samples the latency monitor keeps per event.
    pub latency_samples_max: usize,
    /// Bytes of a client's name, library name and library version, each.
    pub client_name_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            clients_max: 10_000,
            bulk_bytes_max: 512 << 20,
            command_bytes_max: 1 << 30,
            input_bytes_max: 1 << 30,
            args_max: 1 << 20,
            line_bytes_max: 64 << 10,
            unauthenticated_bulk_bytes_max: 16 << 10,
            unauthenticated_args_max: 10,
            output_pause_bytes: 1 << 20,
            replies_bytes_max: 512 << 20,
            output_bytes_max: 256 << 20,
            turn_max: Duration::from_micros(500),
            turn_bytes_max: 256 << 10,
            loop_bytes_max: 1 << 20,
            heavy_commands_max: 2,
            pending_chunks_max: 256,
            queue_commands_max: 1 << 16,
            queue_bytes_max: 64 << 20,
            transaction_waits_max: 128,
            transaction_entries_max: 10_000,
            transaction_lease_max: Duration::from_secs(3600),
            watched_keys_max: 1 << 16,
            tracked_bytes_max: 128 << 20,
            cursors_max: 16 << 10,
            scan_count_max: 100_000,
            fold_entries_max: 10_000,
            fold_examined_max: 100_000,
            fold_bytes_max: 1 << 20,
            long_commands_max: 2,
            held_writes_max: 4,
            feed_items_max: 10_000,
            feed_bytes_max: 1 << 20,
            feed_waiters_max: 64,
            feed_block_max: Duration::from_secs(60),
            space_entries_max: 10_000,
            space_bytes_max: 16 << 20,
            space_time_max: Duration::from_secs(60),
            series_time_max: Duration::from_secs(60),
            iterations_max: 256,
            iterations_entries_max: 2_000_000,
            snapshots_max: 256,
            client_snapshots_max: 16,
            snapshot_seconds_max: 3600,
            scripts_max: 10_000,
            scripts_bytes_max: 64 << 20,
            libraries_max: 1000,
            script_lines_max: 16,
            slowlog_entries_max: 10_000,
            latency_samples_max: 160,
            client_name_bytes_max: 1024,
        }
    }
}

impl Limits {
    /// Bounds so small that tests reach every one of them in milliseconds.
    pub fn tiny() -> Self {
        Limits {
            clients_max: 4,
            bulk_bytes_max: 64 << 10,
            command_bytes_max: 256 << 10,
            input_bytes_max: 512 << 10,
            args_max: 64,
            line_bytes_max: 256,
            unauthenticated_bulk_bytes_max: 64,
            unauthenticated_args_max: 4,
            output_pause_bytes: 4 << 10,
            replies_bytes_max: 256 << 10,
            output_bytes_max: 1 << 20,
            turn_max: Duration::from_micros(20),
            turn_bytes_max: 2 << 10,
            loop_bytes_max: 16 << 10,
            heavy_commands_max: 1,
            pending_chunks_max: 4,
            queue_commands_max: 8,
            queue_bytes_max: 4 << 10,
            transaction_waits_max: 2,
            transaction_entries_max: 32,
            transaction_lease_max: Duration::from_secs(5),
            watched_keys_max: 4,
            tracked_bytes_max: 64 * 512,
            cursors_max: 4,
            scan_count_max: 16,
            fold_entries_max: 8,
            fold_examined_max: 16,
            fold_bytes_max: 1 << 10,
            long_commands_max: 1,
            held_writes_max: 1,
            feed_items_max: 8,
            feed_bytes_max: 1 << 10,
            feed_waiters_max: 1,
            feed_block_max: Duration::from_millis(20),
            space_entries_max: 8,
            space_bytes_max: 1 << 10,
            space_time_max: Duration::from_secs(5),
            series_time_max: Duration::from_secs(5),
            iterations_max: 2,
            iterations_entries_max: 8,
            snapshots_max: 3,
            client_snapshots_max: 2,
            snapshot_seconds_max: 5,
            scripts_max: 3,
            scripts_bytes_max: 8 << 10,
            libraries_max: 2,
            script_lines_max: 2,
            slowlog_entries_max: 4,
            latency_samples_max: 4,
            client_name_bytes_max: 32,
        }
    }
}
