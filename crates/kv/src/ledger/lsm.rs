//! The real ledger: one LSM tree per partition, in `ledger/NN`, with one block cache for all.
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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// LSM trees under one folder.
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

    fn open_tree(&self, path: &Path) -> Result<(AnyTree, SequenceNumberCounter)> {
        let number = SequenceNumberCounter::default();
        let config = Config::new(path, number.clone(), SequenceNumberCounter::default())
            .use_cache(Arc::clone(&self.cache))
            .use_descriptor_table(Some(Arc::clone(&self.files)))
            .data_block_size_policy(BlockSizePolicy::all(4096))
            .data_block_compression_policy(CompressionPolicy::new([CompressionType::None, CompressionType::Lz4]));
        // A damaged file may surprise the tree's own decoding; that is damage like any other.
        let opened = catch_unwind(AssertUnwindSafe(|| config.open()));
        match opened {
            Ok(Ok(tree)) => Ok((tree, number)),
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
        let (tree, number) = match self.open_tree(&path) {
            Ok(opened) => opened,
            Err(_) => {
                discard(&path)?;
                self.open_tree(&path)?
            }
        };
        Ok(Arc::new(LsmLedger { tree, number, path, active: AtomicU64::new(0), sealed: AtomicU64::new(0) }))
    }

    fn condemn(&self, partition: PartitionId) -> Result<()> {
        condemn(&self.path(partition))
    }
}

struct LsmLedger {
    tree: AnyTree,
    number: SequenceNumberCounter,
    path: PathBuf,
    /// Bytes in the memory part that grows, and in those that wait to be written out.
    active: AtomicU64,
    sealed: AtomicU64,
}

/// The tree shows what is below a sequence number; the engine asks for at or below.
fn upto(at: Position) -> u64 {
    at.get().saturating_add(1)
}

impl Ledger for LsmLedger {
    fn get(&self, key: &[u8], at: Position) -> Result<Option<Slice>> {
        self.tree.get(key, upto(at)).map_err(|error| failed(&self.path, &error))
    }

    fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, at: Position) -> Entries {
        let path = self.path.clone();
        let entries = self.tree.range::<&[u8], _>((start, end), upto(at), None);
        Box::new(entries.map(move |entry| entry.into_inner().map_err(|error| failed(&path, &error))))
    }

    fn insert(&self, key: &[u8], value: Slice, position: Position) {
        let (_, bytes) = self.tree.insert(key, value, position.get());
        self.active.store(bytes, Ordering::Release);
    }

    fn remove(&self, key: &[u8], position: Position) {
        let (_, bytes) = self.tree.remove(key, position.get());
        self.active.store(bytes, Ordering::Release);
    }

    fn memory_bytes(&self) -> u64 {
        self.active.load(Ordering::Acquire) + self.sealed.load(Ordering::Acquire)
    }

    fn persisted(&self) -> Option<Position> {
        self.tree.get_highest_persisted_seqno().map(Position::new)
    }

    fn rotate(&self, next: Position) {
        self.number.set(next.get());
        if self.tree.rotate_memtable().is_some() {
            self.sealed.fetch_add(self.active.swap(0, Ordering::AcqRel), Ordering::AcqRel);
        }
    }

    fn write_out(&self, keep: Position) -> Result<()> {
        let write = || {
            let waiting = self.sealed.load(Ordering::Acquire);
            let held = self.tree.get_flush_lock();
            self.tree.flush(&held, keep.get())?;
            self.sealed.fetch_sub(waiting, Ordering::AcqRel);
            drop(held);
            let strategy = Arc::new(Leveled::default().with_table_target_size(TABLE_BYTES));
            for _ in 0..MERGES_MAX {
                let before = self.tree.table_count();
                self.tree.compact(strategy.clone(), keep.get())?;
                if self.tree.table_count() == before {
                    break;
                }
            }
            Ok(())
        };
        match catch_unwind(AssertUnwindSafe(write)) {
            Ok(outcome) => outcome.map_err(|error: lsm_tree::Error| failed(&self.path, &error)),
            Err(_) => {
                let _ = condemn(&self.path);
                Err(Error::Ledger { path: self.path.display().to_string(), reason: "it does not decode".into() })
            }
        }
    }
}
