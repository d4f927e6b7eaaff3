//! The real ledger: one LSM tree per partition, in a folder of its own (`folders.rs`), with one block cache for all.
//!
//! Its sequence numbers are journal positions. The tree opens its files itself: it is derived, and a kill or a power cut
//! costs only what was not written out. A tree that does not open is discarded and replayed from the journal; one that
//! turns out damaged when it is read condemns itself, by a file in its folder, and is discarded when it is opened next. One
//! that is emptied goes on in another folder, and the old one stays for as long as a view reads it.
//!
//! Changes go to a map in memory ([`Young`]); `rotate` puts it aside and `write_out` makes tables of it, so the tree's own
//! memory stays empty and an entry that was replaced before it was written out never gets there. A read asks the young
//! map, the one put aside, and the tree, and the first to know the key is right.
//!
//! A view is both maps and the list of tables as they are, which costs nothing but the space of tables that the tree has
//! replaced meanwhile.
//!
//! May use: `lsm-tree`, `std::fs` (the one exception to the wall: derived files). Must not know: the journal.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use journal::{PartitionId, Position};
use lsm_tree::compaction::Leveled;
use lsm_tree::config::{BlockSizePolicy, CompressionPolicy, PinningPolicy};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, InternalValue, SequenceNumberCounter,
    ValueType,
};

use super::blocks::Blocks;
use super::folders::{Folder, io_failed};
use super::lookup::Said;
use super::merged::{Merged, Part};
use super::tables::{Tables, hash_of};
use super::young::{Change, Young};
use super::{Bounds, Cursor, Hit, Ledger, Ledgers, Reading, Slice, View};
use crate::cache::Caches;
use crate::coming::{Hint, Step};
use crate::error::{Error, Result};

/// Table files held open at the most.
const OPEN_FILES_MAX: usize = 256;
/// What trees may keep of what they read themselves, for opening and merging.
const TREE_CACHE_BYTES: u64 = 64 << 10;
/// Bytes of a table the compaction aims at.
const TABLE_BYTES: u64 = 32 << 20;
/// Merges done in a row before other work gets its turn.
const MERGES_MAX: usize = 4;
/// Bytes that settling may write for each byte that was written out lately.
const SETTLING_COST_MAX: u64 = 8;
/// Maps and runs that a range usually looks at.
const PARTS_USUAL: usize = 8;

/// LSM trees under one folder. Clones share the cache.
#[derive(Clone)]
pub struct LsmLedgers {
    dir: PathBuf,
    /// Of the trees themselves, which read nothing that is worth keeping.
    cache: Arc<Cache>,
    blocks: Arc<Blocks>,
    files: Arc<DescriptorTable>,
    compression: LedgerCompression,
}

/// How blocks of ledgers are stored that are written from now on; each table says how its own are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LedgerCompression {
    /// As they are.
    None,
    /// By LZ4, but for what was written out lately and is merged soon.
    #[default]
    Lz4,
}

impl std::fmt::Display for LedgerCompression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
        })
    }
}

impl LsmLedgers {
    /// Ledgers in `dir` that share a cache of `cache_bytes`.
    #[must_use]
    pub fn new(dir: &Path, cache_bytes: u64) -> Self {
        let files = Arc::new(DescriptorTable::new(OPEN_FILES_MAX));
        let cache = Arc::new(Cache::with_capacity_bytes(TREE_CACHE_BYTES));
        let blocks = Arc::new(Blocks::new(cache_bytes, Arc::clone(&files)));
        Self { dir: dir.to_owned(), cache, blocks, files, compression: LedgerCompression::default() }
    }

    /// With blocks stored so from now on.
    #[must_use]
    pub fn compressed(self, compression: LedgerCompression) -> Self {
        Self { compression, ..self }
    }

    fn open_tree(&self, folder: Folder) -> Result<Tree> {
        let path = &folder.path;
        let number = SequenceNumberCounter::default();
        let config = Config::new(path, number.clone(), SequenceNumberCounter::default())
            .use_cache(Arc::clone(&self.cache))
            .use_descriptor_table(Some(Arc::clone(&self.files)))
            .data_block_size_policy(BlockSizePolicy::all(4096))
            .data_block_compression_policy(match self.compression {
                LedgerCompression::None => CompressionPolicy::all(CompressionType::None),
                LedgerCompression::Lz4 => CompressionPolicy::new([CompressionType::None, CompressionType::Lz4]),
            })
            // The filters of all but large levels stay in memory, a few megabytes for each partition at the most, so that a key
            // that is not there costs no look into the cache. (Those of large levels have parts, which do not.)
            .filter_block_pinning_policy(PinningPolicy::all(true))
            .filter_block_partitioning_policy(PinningPolicy::new([false, false, true]))
            // Large tables have their index in parts: of one that is not at hand a small part is read, not all of it.
            .index_block_partitioning_policy(PinningPolicy::new([false, true]));
        // A damaged file may surprise the tree's own decoding; that is damage like any other.
        let opened = catch_unwind(AssertUnwindSafe(|| config.open()));
        match opened {
            Ok(Ok(tree)) => {
                Ok(Tree { tree, number, folder, damaged: AtomicBool::new(false), is_left: AtomicBool::new(false) })
            }
            Ok(Err(error)) => Err(as_ours(path, &error)),
            Err(_) => Err(undecodable(path)),
        }
    }
}

/// Turns the tree's error into ours: `Ledger` when it is the tree's content that is wrong.
fn as_ours(path: &Path, error: &lsm_tree::Error) -> Error {
    match error {
        lsm_tree::Error::Io(error) if !is_damage(error) => io_failed(path, error),
        error => Error::Ledger { path: path.display().to_string(), reason: error.to_string() },
    }
}

fn undecodable(path: &Path) -> Error {
    Error::Ledger { path: path.display().to_string(), reason: "it does not decode".into() }
}

/// Whether the file is not what was written, rather than the system short of something.
fn is_damage(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    const EIO: i32 = 5;
    matches!(error.kind(), Kind::UnexpectedEof | Kind::InvalidData | Kind::NotFound)
        || error.raw_os_error() == Some(EIO)
}

impl LsmLedgers {
    fn open_one(&self, partition: PartitionId) -> Result<LsmLedger> {
        std::fs::create_dir_all(&self.dir).map_err(|error| io_failed(&self.dir, &error))?;
        let newest = Folder::newest(&self.dir, partition)?;
        // What cannot be read is as good as damaged: it is derived.
        let may_open = !newest.is_condemned() && newest.has_sound_list().unwrap_or(false);
        let sound = may_open.then(|| self.open_tree(newest.clone()).ok()).flatten();
        let tree = match sound {
            Some(tree) => tree,
            None => self.open_tree(newest.after(&self.dir, partition)?)?,
        };
        for left in Folder::all(&self.dir, partition)?.into_iter().filter(|folder| *folder != tree.folder) {
            // What cannot be removed is in nobody's way, and is tried again at the next opening.
            let _ = left.discard();
        }
        let persisted = tree.persisted();
        let tables = Arc::new(Tables::of(&tree.tree, &Tables::default()));
        let parts = Parts { young: Young::default(), rotated: None, tables, tree: Arc::new(tree), persisted };
        Ok(LsmLedger {
            home: self.clone(),
            partition,
            parts: RwLock::new(parts),
            memory_bytes: AtomicU64::new(0),
            writing_out: Mutex::default(),
        })
    }
}

impl Ledgers for LsmLedgers {
    fn open(&self, partition: PartitionId) -> Result<Arc<dyn Ledger>> {
        self.open_one(partition).map(|ledger| Arc::new(ledger) as _)
    }

    fn borrow_of(&self, caches: &Caches) {
        let blocks = Arc::downgrade(&self.blocks);
        caches.lend(Box::new(move |bytes| {
            if let Some(blocks) = blocks.upgrade() {
                blocks.borrow(bytes);
            }
        }));
    }

    fn condemn(&self, partition: PartitionId) -> Result<()> {
        Folder::newest(&self.dir, partition)?.condemn()
    }
}

struct LsmLedger {
    home: LsmLedgers,
    partition: PartitionId,
    parts: RwLock<Parts>,
    /// Of the young map and the one put aside.
    memory_bytes: AtomicU64,
    /// Held while the tree's files change.
    writing_out: Mutex<()>,
}

struct Parts {
    young: Young,
    /// Waits to be written out, or is being written out.
    rotated: Option<Arc<Young>>,
    /// What the tree has, without what is still put aside.
    tables: Arc<Tables>,
    tree: Arc<Tree>,
    persisted: Option<Position>,
}

pub(super) struct Tree {
    tree: AnyTree,
    number: SequenceNumberCounter,
    folder: Folder,
    damaged: AtomicBool,
    /// The ledger goes on in another folder.
    is_left: AtomicBool,
}

impl Drop for Tree {
    fn drop(&mut self) {
        if self.is_left.load(Ordering::Acquire) {
            // Nobody reads it any more. What cannot be removed now is when the ledger is opened next.
            let _ = self.folder.discard();
        }
    }
}

impl Tree {
    /// Turns the tree's error into ours, and notes when it is the tree's content that is wrong.
    pub(super) fn failed(&self, error: &lsm_tree::Error) -> Error {
        self.noted(as_ours(&self.folder.path, error))
    }

    /// Condemns the tree when it is damaged, once: what a tree that was reset says later is no news of its successor.
    fn noted(&self, error: Error) -> Error {
        if matches!(error, Error::Ledger { .. }) && !self.damaged.swap(true, Ordering::AcqRel) {
            // If even this cannot be noted, the next reader of the damaged part finds it again.
            let _ = self.folder.condemn();
        }
        error
    }

    /// What its tables say of a key.
    fn get(
        &self,
        tables: &Tables,
        (key, hash): (&[u8], u64),
        blocks: &Blocks,
        reading: Reading,
    ) -> Result<Option<Hit>> {
        let said = tables.get((key, hash), blocks, reading).map_err(|error| self.failed(&error))?;
        Ok(said.and_then(Said::found))
    }

    fn persisted(&self) -> Option<Position> {
        self.tree.get_highest_persisted_seqno().map(Position::new)
    }
}

/// A ledger as it was.
struct LsmView {
    young: Young,
    rotated: Option<Arc<Young>>,
    tables: Arc<Tables>,
    tree: Arc<Tree>,
    blocks: Arc<Blocks>,
}

impl View for LsmView {
    fn get(&self, key: &[u8]) -> Result<Option<Hit>> {
        let known = self.young.get(key).or_else(|| self.rotated.as_ref()?.get(key));
        match known {
            Some(change) => Ok(change.value.map(Slice::new).map(Hit::costly)),
            None => self.tree.get(&self.tables, (key, hash_of(key)), &self.blocks, Reading::Query),
        }
    }

    fn range(&self, bounds: &Bounds) -> Box<dyn Cursor> {
        let mut parts = Vec::with_capacity(PARTS_USUAL);
        let young = std::iter::once(&self.young).chain(self.rotated.as_deref()).filter(|young| !young.is_empty());
        parts.extend(young.map(|young| Part::Young(young.range(bounds.start(), bounds.end()))));
        parts.extend(self.tables.range(bounds, &self.blocks).map(Part::Run));
        Box::new(Merged::new(Arc::clone(&self.tree), bounds.clone(), parts))
    }
}

impl LsmLedger {
    fn parts(&self) -> RwLockReadGuard<'_, Parts> {
        self.parts.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn parts_mut(&self) -> RwLockWriteGuard<'_, Parts> {
        self.parts.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn as_it_is(&self) -> LsmView {
        let parts = self.parts();
        LsmView {
            young: parts.young.clone(),
            rotated: parts.rotated.clone(),
            tables: Arc::clone(&parts.tables),
            tree: Arc::clone(&parts.tree),
            blocks: Arc::clone(&self.home.blocks),
        }
    }

    fn set(&self, key: &[u8], value: Option<&[u8]>, position: Position) {
        let mut parts = self.parts_mut();
        parts.young.set(key, &Change { value, position });
        self.note_memory(&parts);
    }

    fn note_memory(&self, parts: &Parts) {
        let rotated = parts.rotated.as_ref().map_or(0, |rotated| rotated.bytes());
        self.memory_bytes.store(parts.young.bytes() + rotated, Ordering::Release);
    }

    /// Changes the tree's files; `writing_out` is held.
    fn change(&self, act: impl FnOnce(&Tree) -> lsm_tree::Result<()>) -> Result<()> {
        let tree = Arc::clone(&self.parts().tree);
        match catch_unwind(AssertUnwindSafe(|| act(&tree))) {
            Ok(changed) => changed.map_err(|error| tree.failed(&error)),
            Err(_) => Err(tree.noted(undecodable(&tree.folder.path))),
        }
    }

    fn tables_now(&self, tree: &Tree) -> Arc<Tables> {
        let before = Arc::clone(&self.parts().tables);
        Arc::new(Tables::of(&tree.tree, &before))
    }

    /// Makes tables of what was rotated, then lets go of it.
    fn flush(&self, keep: Position) -> lsm_tree::Result<()> {
        let (rotated, tree) = {
            let parts = self.parts();
            (parts.rotated.clone(), Arc::clone(&parts.tree))
        };
        let Some(rotated) = rotated else { return Ok(()) };
        let entries = rotated.iter().map(|(key, change)| {
            let at = change.position.get();
            Ok(match change.value {
                Some(value) => InternalValue::from_components(key, value, at, ValueType::Value),
                None => InternalValue::new_tombstone(key, at),
            })
        });
        if let Some((tables, _)) = tree.tree.flush_to_tables(entries)? {
            tree.tree.register_tables(&tables, None, None, &[], keep.get())?;
        }
        let persisted = tree.persisted();
        let tables = self.tables_now(&tree);
        let mut parts = self.parts_mut();
        parts.persisted = persisted;
        let replaced = std::mem::replace(&mut parts.tables, tables);
        if parts.rotated.as_ref().is_some_and(|now| Arc::ptr_eq(now, &rotated)) {
            parts.rotated = None;
        }
        self.note_memory(&parts);
        // What was written out is freed without the lock, and files are removed.
        drop(parts);
        drop((rotated, replaced));
        Ok(())
    }

    fn compact(&self, strategy: Leveled, keep: Position) -> lsm_tree::Result<()> {
        let tree = Arc::clone(&self.parts().tree);
        let strategy = Arc::new(strategy.with_table_target_size(TABLE_BYTES));
        for _ in 0..MERGES_MAX {
            let before = tree.tree.table_count();
            tree.tree.compact(strategy.clone(), keep.get())?;
            if tree.tree.table_count() == before {
                break;
            }
        }
        let tables = self.tables_now(&tree);
        let replaced = std::mem::replace(&mut self.parts_mut().tables, tables);
        drop(replaced);
        Ok(())
    }
}

/// Merges what was written out as soon as there is some, and is as the usual strategy else.
fn settling() -> Leveled {
    // With what one table takes as the first level's size: the second's is what it is for four, and so on.
    Leveled::default().with_l0_threshold(1).with_level_ratio_policy(vec![40.0, 10.0])
}

/// Whether merging the newest level costs little for what it saves ranges, which look at each of its runs.
fn is_worth_settling(tree: &AnyTree) -> bool {
    let version = tree.current_version();
    let mut levels = version.iter_levels().map(|level| {
        let bytes: u64 = level.iter().flat_map(|run| run.iter()).map(|table| table.metadata.file_size).sum();
        (level.iter().count(), bytes)
    });
    let Some((runs, newest)) = levels.next() else { return false };
    let next = levels.map(|(_, bytes)| bytes).find(|bytes| *bytes > 0);
    let cost = next.unwrap_or_default();
    runs + usize::from(next.is_some()) > 1 && runs > 0 && cost <= TABLE_BYTES.min(newest * SETTLING_COST_MAX)
}

impl LsmLedger {
    fn look_up(&self, key: &[u8], reading: Reading) -> Result<Option<Hit>> {
        let hash = hash_of(key);
        let (tree, tables) = {
            let parts = self.parts();
            let known = parts.young.get(key).or_else(|| parts.rotated.as_ref()?.get(key));
            if let Some(change) = known {
                return Ok(change.value.map(Slice::new).map(Hit::costly));
            }
            // What is nowhere needs no share in tree and tables: all readers would count theirs in the same two places.
            if parts.tables.say_nothing(key, hash).map_err(|error| parts.tree.failed(&error))? {
                return Ok(None);
            }
            (Arc::clone(&parts.tree), Arc::clone(&parts.tables))
        };
        tree.get(&tables, (key, hash), &self.home.blocks, reading)
    }
}

impl Ledger for LsmLedger {
    fn get(&self, key: &[u8]) -> Result<Option<Hit>> {
        self.look_up(key, Reading::Query)
    }

    fn peek(&self, key: &[u8]) -> Result<Option<Hit>> {
        self.look_up(key, Reading::Sweep)
    }

    fn fetch(&self, key: &[u8], step: Step, hint: &mut Hint) {
        if let Ok(parts) = self.parts.try_read() {
            parts.young.fetch(key, step, hint);
        }
    }

    fn range(&self, bounds: &Bounds) -> Box<dyn Cursor> {
        self.as_it_is().range(bounds)
    }

    fn view(&self, _at: Position) -> Arc<dyn View> {
        Arc::new(self.as_it_is())
    }

    fn insert(&self, key: &[u8], value: &[u8], position: Position) {
        self.set(key, Some(value), position);
    }

    fn remove(&self, key: &[u8], position: Position) {
        self.set(key, None, position);
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Acquire)
    }

    fn persisted(&self) -> Option<Position> {
        self.parts().persisted
    }

    fn is_damaged(&self) -> bool {
        self.parts().tree.damaged.load(Ordering::Acquire)
    }

    fn reset(&self) -> Result<()> {
        // Two trees must never write to the same folder.
        let _one = self.writing_out.lock().unwrap_or_else(PoisonError::into_inner);
        let old = Arc::clone(&self.parts().tree);
        let tree = Arc::new(self.home.open_tree(old.folder.after(&self.home.dir, self.partition)?)?);
        let mut parts = self.parts_mut();
        parts.tree = tree;
        parts.tables = Arc::default();
        (parts.young, parts.rotated, parts.persisted) = (Young::default(), None, None);
        self.note_memory(&parts);
        drop(parts);
        // What views still find damaged there is no news. Its files go with the last of them.
        old.damaged.store(true, Ordering::Release);
        old.is_left.store(true, Ordering::Release);
        Ok(())
    }

    fn rotate(&self, next: Position) {
        let mut parts = self.parts_mut();
        // The tree numbers its manifests on from here, so that `keep` lets old ones go.
        parts.tree.number.set(next.get().saturating_sub(1));
        let young = std::mem::take(&mut parts.young);
        if young.is_empty() {
            return;
        }
        parts.rotated = Some(Arc::new(match parts.rotated.take() {
            None => young,
            // What was rotated before could not be written out: what is newer wins.
            Some(waiting) => {
                let mut both = (*waiting).clone();
                young.iter().for_each(|(key, change)| both.set(key, &change));
                both
            }
        }));
        self.note_memory(&parts);
    }

    fn write_out(&self, keep: Position) -> Result<()> {
        let _one = self.writing_out.lock().unwrap_or_else(PoisonError::into_inner);
        self.change(|_| self.flush(keep).and_then(|()| self.compact(Leveled::default(), keep)))
    }

    fn settle(&self, keep: Position) -> Result<()> {
        let _one = self.writing_out.lock().unwrap_or_else(PoisonError::into_inner);
        self.change(|tree| {
            if !is_worth_settling(&tree.tree) {
                return Ok(());
            }
            // The manifest that is written then lets those before it go, and tables with them, as after `rotate`.
            tree.number.set(keep.get().saturating_sub(1));
            self.compact(settling(), keep)
        })
    }
}

#[cfg(test)]
#[path = "lsm_tests.rs"]
mod tests;
