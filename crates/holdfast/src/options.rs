//! How to open a store, and the world it lives in.
//!
//! May use: `base`, `kv`. Must not know: how options are read from files.

use std::path::Path;
use std::sync::Arc;

use base::{Clock, Files, Limits, OsClock, OsFiles};
use kv::{Compression, Ledgers, LsmLedgers, TreeSize};

use crate::durability::Durability;
use crate::schedule::CompactionOptions;
use crate::series::SeriesOptions;

/// Is told sentences.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// How to open a store.
#[derive(Clone)]
pub struct Options {
    /// Durability of requests that do not name one. Default: `Synced`.
    pub durability: Durability,
    /// Into how many partitions a new store is cut, 1 to 1024; an existing store keeps its number. Default: 16.
    pub partitions: u16,
    /// Every limit. Default: see [`Limits`].
    pub limits: Limits,
    /// How values are stored that do not say it themselves. May be changed at any opening. Default: `None`.
    pub compression: Compression,
    /// How blocks of the ledger are stored that are written from now on. May be changed at any opening. Default: `Lz4`.
    pub ledger_compression: Compression,
    /// Size of the Merkle tree that is kept with every change; `None` keeps none, and comparing two stores then looks
    /// through all heads. May be changed at any opening, which then looks through all heads once. Default: 2^16 leaves.
    pub tree: Option<TreeSize>,
    /// Bytes of sealed segments and of sealed files of series that are read and checked each second, in the background, round and
    /// round; 0 turns it off.
    /// Damage found is in [`crate::Stats::damage`]. Default: 4 MiB.
    pub scrub_bytes_per_second: u64,
    /// When and how fast the journal is compacted. Default: see [`CompactionOptions`].
    pub compaction: CompactionOptions,
    /// Whether the background compacts nothing before [`crate::Store::release_compaction`]: whoever needs what lies behind a bookmark, as
    /// mirrors and listeners do, begins in between, and says so before it goes. Default: false.
    pub holds_compaction: bool,
    /// How long points are kept, and how full the disk may become. Default: see [`SeriesOptions`].
    pub series: SeriesOptions,
    /// Whether memory of the *whole process* that is in use anyway is made into pages of 2 MiB, in the background. That takes no memory
    /// and makes entries faster to reach: reading one by id takes a fifth to a third less time where a program has hundreds of megabytes
    /// of them. Ask it of one store, if the program has several. Needs Linux 6.1; elsewhere, and where `/sys/kernel/mm/transparent_hugepage/enabled` says `[never]`, nothing happens. Of a
    /// page that was made, the system gets single freed 4 KiB back later than otherwise. Default: false, as the memory is also yours.
    pub large_pages: bool,
    /// Told in a sentence, with what to do, when background work fails that nobody waits for, and when it works again; not each
    /// time that it is tried. Also when a ledger turns out damaged while the store is open, and is made anew. Default: nobody.
    pub trouble: Option<Tell>,
    /// Told now and then how far a replay is. Default: nobody.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
}

/// How far the replay of the journal is while a store opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of journal replayed.
    pub done_bytes: u64,
    /// Bytes of journal to replay in all.
    pub total_bytes: u64,
    /// Batches replayed.
    pub batches: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Synced,
            partitions: 16,
            limits: Limits::default(),
            compression: Compression::None,
            ledger_compression: Compression::Lz4,
            tree: Some(TreeSize::default()),
            scrub_bytes_per_second: 4 << 20,
            compaction: CompactionOptions::default(),
            holds_compaction: false,
            series: SeriesOptions::default(),
            large_pages: false,
            trouble: None,
            progress: None,
        }
    }
}

impl Options {
    /// Tells whoever wants to hear of trouble.
    pub(crate) fn tell(&self, text: &str) {
        if let Some(tell) = &self.trouble {
            tell(text);
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("durability", &self.durability)
            .field("partitions", &self.partitions)
            .field("limits", &self.limits)
            .field("compression", &self.compression)
            .field("ledger_compression", &self.ledger_compression)
            .field("tree", &self.tree)
            .field("scrub_bytes_per_second", &self.scrub_bytes_per_second)
            .field("large_pages", &self.large_pages)
            .field("compaction", &self.compaction)
            .field("series", &self.series)
            .finish_non_exhaustive()
    }
}

/// The outside world of a store: the real one, or a simulated one.
#[derive(Clone)]
pub struct World {
    /// Files of the journal.
    pub files: Arc<dyn Files>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ledgers.
    pub ledgers: Arc<dyn Ledgers>,
    /// Whether the store may start threads. Without them somebody has to call [`crate::Store::step`].
    pub threads: bool,
    /// Makes the identity of a new store.
    pub entropy: u64,
}

impl World {
    /// The operating system, for a store in `dir`.
    #[must_use]
    pub fn real(dir: &Path, limits: &Limits) -> Self {
        Self::real_for(dir, limits, Compression::Lz4)
    }

    pub(crate) fn real_for(dir: &Path, limits: &Limits, compression: Compression) -> Self {
        let files: Arc<dyn Files> = Arc::new(OsFiles);
        let ledgers = LsmLedgers::new(Arc::clone(&files), &dir.join("ledger"), limits.ledger_cache_bytes);
        Self {
            files,
            clock: Arc::new(OsClock::new()),
            ledgers: Arc::new(ledgers.compressed(compression)),
            threads: true,
            entropy: base::entropy(),
        }
    }
}
