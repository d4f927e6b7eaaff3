//! What a door tells about itself: the words in which one door counts and another one publishes, so that neither
//! needs to know the other.
//!
//! May use: std, the facade. Must not know: protocols, how numbers are shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use holdfast::series::Written;

/// What a door counts, for `/metrics` and `/stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorNumbers {
    /// Connections that are open now.
    pub connections: u64,
    /// What it has counted, if it is a door that counts.
    pub totals: Option<DoorTotals>,
    /// What came of points, if points come in here.
    pub points: Option<PointTotals>,
}

/// What became of points that came in through a door since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointTotals {
    /// Points that were written to the store.
    pub written: u64,
    /// Points that the store refused: limits, and conflicts of types.
    pub refused: u64,
    /// Points that were lost because the disk, or the store, failed.
    pub lost: u64,
    /// Lines and data points that were not understood.
    pub malformed: u64,
    /// Batches in which points were written.
    pub batches: u64,
    /// Datagrams that arrived.
    pub datagrams: u64,
    /// Datagrams that the system dropped because there was no room for them.
    pub datagrams_dropped: u64,
}

/// Counts what becomes of points, for all threads of a door together.
#[derive(Debug, Default)]
pub(crate) struct PointCounts {
    pub(crate) written: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) malformed: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) datagrams: AtomicU64,
    pub(crate) datagrams_dropped: AtomicU64,
}

impl PointCounts {
    pub(crate) fn totals(&self) -> PointTotals {
        PointTotals {
            written: self.written.load(Relaxed),
            refused: self.refused.load(Relaxed),
            lost: self.lost.load(Relaxed),
            malformed: self.malformed.load(Relaxed),
            batches: self.batches.load(Relaxed),
            datagrams: self.datagrams.load(Relaxed),
            datagrams_dropped: self.datagrams_dropped.load(Relaxed),
        }
    }

    /// Counts what the store made of a batch.
    pub(crate) fn wrote(&self, written: &Written) {
        self.written.fetch_add(written.points, Relaxed);
        self.refused.fetch_add(written.refused.iter().map(|refused| refused.points).sum(), Relaxed);
        self.batches.fetch_add(1, Relaxed);
    }
}

/// What a door has counted since it was opened. Nothing of it survives a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorTotals {
    /// Connections that were let in, those that then failed at TLS included.
    pub connections_accepted: u64,
    /// Connections that were turned away because there were too many.
    pub connections_rejected: u64,
    /// Commands that arrived whole, unknown and refused ones included.
    pub commands: u64,
    /// Commands that were answered with an error.
    pub errors: u64,
    /// Lookups of a key that found it.
    pub hits: u64,
    /// Lookups of a key that did not find it.
    pub misses: u64,
    /// Bytes that clients have sent, without what TLS adds.
    pub received_bytes: u64,
    /// Bytes that were sent to clients, without what TLS adds.
    pub sent_bytes: u64,
}

/// Asks for the numbers of recovery. Must not block.
pub type RecoverySource = Arc<dyn Fn() -> RecoveryNumbers + Send + Sync>;

/// What the server's own recovery of distributed transactions tells about itself. All zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryNumbers {
    /// Resource managers that it looks after.
    pub managers: u64,
    /// Those of them that did not answer when they were asked last.
    pub managers_down: u64,
    /// Branches that were prepared and not settled when their resource manager was asked last.
    pub in_doubt: u64,
    /// How often some of the resource managers were asked.
    pub rounds: u64,
    /// Branches that it committed.
    pub committed: u64,
    /// Branches that it rolled back.
    pub rolled_back: u64,
    /// Branches that had been ended against the decision when it came.
    pub heuristic: u64,
}

/// Asks for the numbers of continuous queries. Must not block.
pub type ContinuousSource = Arc<dyn Fn() -> ContinuousNumbers + Send + Sync>;

/// What the server's runs of continuous queries tell about themselves. All zero where there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContinuousNumbers {
    /// Continuous queries that are kept.
    pub queries: u64,
    /// Runs that came to an end.
    pub runs: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Rows that they wrote.
    pub rows: u64,
    /// Runs that were made up for by later ones.
    pub missed: u64,
    /// How long all runs took together.
    pub nanos: u64,
}

/// Asks for the numbers of mirrors. Must not block.
pub type MirrorsSource = Arc<dyn Fn() -> Vec<MirrorNumbers> + Send + Sync>;

/// What a mirror of the server's tells about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorNumbers {
    /// Its name in the configuration.
    pub name: String,
    /// Whether it follows, and its target answered last.
    pub is_up: bool,
    /// The position up to which the target is known to have everything.
    pub position: u64,
    /// Transactions of the target that were committed.
    pub transactions: u64,
    /// Events that they held.
    pub events: u64,
    /// Transactions that were set aside because the target refused a row.
    pub set_aside: u64,
    /// Times that the target failed, or the mirror ended, and was or will be tried again.
    pub failures: u64,
    /// Entries that were written from rows.
    pub loaded: u64,
}

/// What a type of entries in a space takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeNumbers {
    pub(crate) space: String,
    pub(crate) name: String,
    pub(crate) entries: u64,
    /// With those of its indexes.
    pub(crate) bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) waiters: usize,
    /// The most that the type may take, 0 without a limit.
    pub(crate) limit_bytes: u64,
    /// The most that all types of its space may take together, 0 without a limit.
    pub(crate) space_limit_bytes: u64,
}

/// The numbers of all types. Takes each partition's lock for a moment.
pub(crate) fn types(store: &holdfast::Store) -> Vec<TypeNumbers> {
    let mut all = Vec::new();
    for space in store.spaces() {
        let space = store.space(&space);
        // One that is damaged is none.
        let space_limit_bytes = space.memory().ok().and_then(|memory| memory.bytes_max).unwrap_or(0);
        for definition in space.types() {
            let Ok(entries) = space.entries(&definition.name) else { continue };
            let usage = entries.usage();
            all.push(TypeNumbers {
                space: definition.space.clone(),
                name: definition.name.clone(),
                entries: usage.entries,
                bytes: usage.bytes,
                index_bytes: usage.indexes.iter().map(|(_, bytes)| bytes).sum(),
                waiters: entries.waiters(),
                limit_bytes: definition.memory_bytes_max,
                space_limit_bytes,
            });
        }
    }
    all
}
