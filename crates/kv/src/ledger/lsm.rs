//! The real ledger: one LSM tree per partition, in `ledger/NNNN`, with one block cache for all.
//!
//! Its sequence numbers are journal positions, so a snapshot of the store is a sequence number here. The tree opens its
//! files itself: it is derived, and a kill or a power cut costs only what was not written out. A tree that does not
//! open is discarded and replayed from the journal; one that turns out damaged when it is read condemns itself, by a
//! file beside it, and is discarded when it is opened next.
//!
//! A reader with an old position uses the tree's old version, which lives as long as `keep` is not above it. So a new
//! version's number must not be above positions that are yet to come; `rotate` and `write_out` set it.
//!
//! May use: `lsm-tree`, `std::fs` (the one exception to the wall: derived files). Must not know: the journal.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use journal::{PartitionId, Position};
use lsm_tree::compaction::Leveled;
use lsm_tree::config::{BlockSizePolicy, CompressionPolicy};
use lsm_tree::{AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, Guard, SequenceNumberCounter};

use super::{Entries, Ledger, Ledgers, Slice};
use crate::error::{Error, Result};

/// Table files held open at the most.
const OPEN_FILES_MAX: usize = 256;
/// Name of the file that condemns a ledger.
const CONDEMNED: &str = "condemned";
/// Bytes of a table the compaction aims at.
const TABLE_BYTES: u64 = 32 << 20;
/// Merges done in a row before other work gets its turn.
const MERGES_MAX: usize = 4;

/// LSM trees under one folder. Clones share the cache.
#[derive(Clone)]
pub struct LsmLedgers {
    dir: PathBuf,
    cache: Arc<Cache>,
    files: Arc<DescriptorTable>,
}

impl LsmLedgers {
    /// Ledgers in `dir` that share a cache of `cache_bytes`.
    #[must_use]
    pub fn new(dir: &Path, cache_bytes: u64) -> Self {
        let cache = Arc::new(Cache::with_capacity_bytes(cache_bytes));
        Self { dir: dir.to_owned(), cache, files: Arc::new(DescriptorTable::new(OPEN_FILES_MAX)) }
    }

    fn path(&self, partition: PartitionId) -> PathBuf {
        self.dir.join(format!("{:04}", partition.get()))
    }

    fn open_tree(&self, path: &Path) -> Result<Tree> {
        let number = SequenceNumberCounter::default();
        let config = Config::new(path, number.clone(), SequenceNumberCounter::default())
            .use_cache(Arc::clone(&self.cache))
            .use_descriptor_table(Some(Arc::clone(&self.files)))
            .data_block_size_policy(BlockSizePolicy::all(4096))
            .data_block_compression_policy(CompressionPolicy::new([CompressionType::None, CompressionType::Lz4]));
        // A damaged file may surprise the tree's own decoding; that is damage like any other.
        let opened = catch_unwind(AssertUnwindSafe(|| config.open()));
        match opened {
            Ok(Ok(tree)) => Ok(Tree { tree, number }),
            Ok(Err(error)) => Err(failed(path, &error)),
            Err(_) => Err(Error::Ledger { path: path.display().to_string(), reason: "it does not decode".into() }),
        }
    }
}

/// Turns the tree's error into ours, and condemns the tree if it is its content that is wrong.
fn failed(path: &Path, error: &lsm_tree::Error) -> Error {
    if let lsm_tree::Error::Io(error) = error
        && !is_damage(error)
    {
        return io_failed(path, error);
    }
    // If even this cannot be noted, the next reader of the damaged part finds it again.
    let _ = condemn(path);
    Error::Ledger { path: path.display().to_string(), reason: error.to_string() }
}

fn io_failed(path: &Path, error: &std::io::Error) -> Error {
    Error::LedgerIo { path: path.display().to_string(), reason: error.to_string() }
}

/// Whether the file is not what was written, rather than the system short of something.
fn is_damage(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    const EIO: i32 = 5;
    matches!(error.kind(), Kind::UnexpectedEof | Kind::InvalidData | Kind::NotFound)
        || error.raw_os_error() == Some(EIO)
}

#[expect(clippy::disallowed_methods, reason = "the ledger is derived, and its tree opens files itself")]
fn condemn(path: &Path) -> Result<()> {
    let note = path.join(CONDEMNED);
    std::fs::write(&note, b"").map_err(|error| io_failed(&note, &error))
}

fn discard(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_failed(path, &error)),
        _ => Ok(()),
    }
}

impl Ledgers for LsmLedgers {
    fn open(&self, partition: PartitionId) -> Result<Arc<dyn Ledger>> {
        std::fs::create_dir_all(&self.dir).map_err(|error| io_failed(&self.dir, &error))?;
        let path = self.path(partition);
        if path.join(CONDEMNED).exists() {
            discard(&path)?;
        }
        let tree = match self.open_tree(&path) {
            Ok(opened) => opened,
            Err(_) => {
                discard(&path)?;
                self.open_tree(&path)?
            }
        };
        let damaged = Arc::default();
        let (active, sealed) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Arc::new(LsmLedger { home: self.clone(), tree: RwLock::new(tree), damaged, path, active, sealed }))
    }

    fn condemn(&self, partition: PartitionId) -> Result<()> {
        condemn(&self.path(partition))
    }
}

struct LsmLedger {
    home: LsmLedgers,
    tree: RwLock<Tree>,
    damaged: Arc<AtomicBool>,
    path: PathBuf,
    /// Bytes in the memory part that grows, and in those that wait to be written out.
    active: AtomicU64,
    sealed: AtomicU64,
}

#[derive(Clone)]
struct Tree {
    tree: AnyTree,
    number: SequenceNumberCounter,
}

impl LsmLedger {
    fn tree(&self) -> Tree {
        self.tree.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Turns the tree's error into ours, and notes when it is the tree's content that is wrong.
    fn failed(&self, error: &lsm_tree::Error) -> Error {
        noted(failed(&self.path, error), &self.damaged)
    }
}

fn noted(error: Error, damaged: &AtomicBool) -> Error {
    if matches!(error, Error::Ledger { .. }) {
        damaged.store(true, Ordering::Release);
    }
    error
}

/// The tree shows what is below a sequence number; the engine asks for at or below.
fn upto(at: Position) -> u64 {
    at.get().saturating_add(1)
}

impl Ledger for LsmLedger {
    fn get(&self, key: &[u8], at: Position) -> Result<Option<Slice>> {
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        tree.tree.get(key, upto(at)).map_err(|error| self.failed(&error))
    }

    fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, at: Position) -> Entries {
        let path = self.path.clone();
        let damaged = Arc::clone(&self.damaged);
        let entries = self.tree().tree.range::<&[u8], _>((start, end), upto(at), None);
        Box::new(entries.map(move |entry| entry.into_inner().map_err(|error| noted(failed(&path, &error), &damaged))))
    }

    fn insert(&self, key: &[u8], value: Slice, position: Position) {
        let (_, bytes) = self.tree().tree.insert(key, value, position.get());
        self.active.store(bytes, Ordering::Release);
    }

    fn remove(&self, key: &[u8], position: Position) {
        let (_, bytes) = self.tree().tree.remove(key, position.get());
        self.active.store(bytes, Ordering::Release);
    }

    fn memory_bytes(&self) -> u64 {
        self.active.load(Ordering::Acquire) + self.sealed.load(Ordering::Acquire)
    }

    fn persisted(&self) -> Option<Position> {
        self.tree().tree.get_highest_persisted_seqno().map(Position::new)
    }

    fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Acquire)
    }

    fn reset(&self) -> Result<()> {
        let mut tree = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        // Snapshots that still read the old tree keep its open files; they may find others gone.
        discard(&self.path)?;
        *tree = self.home.open_tree(&self.path)?;
        self.active.store(0, Ordering::Release);
        self.sealed.store(0, Ordering::Release);
        self.damaged.store(false, Ordering::Release);
        Ok(())
    }

    fn rotate(&self, next: Position) {
        let Tree { tree, number } = self.tree();
        number.set(next.get());
        if tree.rotate_memtable().is_some() {
            self.sealed.fetch_add(self.active.swap(0, Ordering::AcqRel), Ordering::AcqRel);
        }
    }

    fn write_out(&self, keep: Position) -> Result<()> {
        let tree = self.tree().tree;
        let write = || {
            let waiting = self.sealed.load(Ordering::Acquire);
            let held = tree.get_flush_lock();
            tree.flush(&held, keep.get())?;
            self.sealed.fetch_sub(waiting, Ordering::AcqRel);
            drop(held);
            let strategy = Arc::new(Leveled::default().with_table_target_size(TABLE_BYTES));
            for _ in 0..MERGES_MAX {
                let before = tree.table_count();
                tree.compact(strategy.clone(), keep.get())?;
                if tree.table_count() == before {
                    break;
                }
            }
            Ok(())
        };
        match catch_unwind(AssertUnwindSafe(write)) {
            Ok(outcome) => outcome.map_err(|error: lsm_tree::Error| self.failed(&error)),
            Err(_) => {
                let _ = condemn(&self.path);
                self.damaged.store(true, Ordering::Release);
                Err(Error::Ledger { path: self.path.display().to_string(), reason: "it does not decode".into() })
            }
        }
    }
}
