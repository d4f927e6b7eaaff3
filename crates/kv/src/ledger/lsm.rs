//! The real ledger: tables on disk in levels (`plan.rs`), one folder for each partition, with one cache of blocks for all.
//!
//! It has no log: the journal is its log, and a kill or a power cut costs only what was not written out. A ledger whose files are not
//! what was written is discarded and replayed from the journal when it is opened; one that turns out damaged when it is read condemns
//! itself, by a file in its folder, and is discarded when it is opened next, or emptied on the spot.
//!
//! Changes go to a map in memory ([`Young`]); `rotate` puts it aside and `write_out` makes tables of it, so an entry that was
//! replaced before it was written out never gets to the disk. A read asks the young map, the one put aside, and the tables, and the first
//! to know the key is right.
//!
//! A view is both maps and the list of tables as they are, which costs nothing but the space of tables that were replaced
//! meanwhile: their files go with the last who reads them. So entries need no positions, and no table has a key twice.
//!
//! May use: `base::Files`. Must not know: the journal.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use base::{Files, read_whole};
use journal::{PartitionId, Position};

use super::blocks::{Blocks, Table};
use super::cursor::Part;
use super::disk::{CONDEMNED, Disk, condemn, merge};
use super::filter::hash_of;
use super::list::{LIST, LIST_BYTES_MAX, List, Run};
use super::plan::{self, Plan, Policy};
use super::table::{Style, TableInfo};
use super::tables::{TableRun, Tables};
use super::young::{Change, Young};
use super::{Cursor, Hit, Ledger, Ledgers, Reading, Slice, View};
use crate::cache::Caches;
use crate::coming::{Hint, Step};
use crate::compression::Compression;
use crate::error::{Error, Result};

/// A list that was not finished.
const LIST_BESIDE: &str = "list.new";
/// The folder that the tables of programs before lay in.
const TABLES_BEFORE: &str = "tables";
/// Bytes at which a table ends.
const TABLE_BYTES: u64 = 32 << 20;
/// Merges done in a row before other work gets its turn.
const MERGES_MAX: usize = 4;
/// When tables are merged.
const POLICY: Policy = Policy { runs: 4, drags: 8, first_level_bytes: FIRST_LEVEL_TABLES * TABLE_BYTES, ratio: 10 };
/// Tables of the first level.
const FIRST_LEVEL_TABLES: u64 = 4;
/// Up to this level a table has one filter, which stays in memory: some 1.5 bytes for each entry of the first 128 MiB of a partition.
const WHOLE_FILTERS_LEVEL: u8 = 1;

/// Ledgers under one folder. Clones share the cache.
#[derive(Clone)]
pub struct LsmLedgers {
    dir: PathBuf,
    pub(super) blocks: Arc<Blocks>,
    codec: Compression,
    policy: Policy,
    pub(super) table_bytes: u64,
}

impl LsmLedgers {
    /// Ledgers in `dir` that share a cache of `cache_bytes`, with blocks stored by LZ4.
    #[must_use]
    pub fn new(files: Arc<dyn Files>, dir: &Path, cache_bytes: u64) -> Self {
        let blocks = Arc::new(Blocks::new(files, cache_bytes));
        Self { dir: dir.to_owned(), blocks, codec: Compression::Lz4, policy: POLICY, table_bytes: TABLE_BYTES }
    }

    /// With blocks stored so from now on, but for what was written out lately and is merged soon, which is stored as it
    /// is. Each block says how it is stored.
    #[must_use]
    pub fn compressed(self, codec: Compression) -> Self {
        Self { codec, ..self }
    }

    /// With tables of about so many bytes, and levels in proportion.
    #[must_use]
    pub fn with_table_bytes(self, table_bytes: u64) -> Self {
        let policy = Policy { first_level_bytes: table_bytes.saturating_mul(FIRST_LEVEL_TABLES), ..self.policy };
        Self { table_bytes, policy, ..self }
    }

    pub(super) fn files(&self) -> &Arc<dyn Files> {
        self.blocks.files()
    }

    fn folder(&self, partition: PartitionId) -> PathBuf {
        self.dir.join(format!("{:04}", partition.get()))
    }

    /// How a table of a level is to be.
    pub(super) fn style(&self, level: u8) -> Style {
        let codec = if level == 0 { Compression::None } else { self.codec };
        Style { codec, has_whole_filter: level <= WHOLE_FILTERS_LEVEL }
    }

    fn open_one(&self, partition: PartitionId) -> Result<LsmLedger> {
        let (files, folder) = (&**self.files(), self.folder(partition));
        let failed = |error: io::Error| Error::of_ledger(&folder, &error);
        let made = files.create_dir(&folder).or_else(|error| {
            // Something else has the name, and there is nothing there that cannot be made again.
            let is_taken = matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory);
            if is_taken { files.discard(&folder) } else { Err(error) }?;
            files.create_dir(&folder)
        });
        made.map_err(failed)?;
        let names = files.list(&folder).map_err(failed)?;
        let found = self.sound(&folder, &names)?;
        let behind = names.iter().filter_map(|name| name.strip_suffix(".table")?.parse::<u64>().ok()?.checked_add(1));
        let next = behind.chain(found.as_ref().map(|(list, _)| list.next)).max().unwrap_or(0);
        let is_sound = found.is_some();
        let (persisted, tables) = found.map(|(list, tables)| (list.persisted, tables)).unwrap_or_default();
        let named = |name: &str| tables.runs.iter().flat_map(|run| &run.tables).any(|table| table.is_named(name));
        let is_kept = |name: &str| named(name) || (is_sound && name == LIST);
        // What nobody names, and what a program before had there. The note that condemns goes behind all that it condemns.
        let others = [LIST, LIST_BESIDE, TABLES_BEFORE].into_iter();
        for name in names.iter().map(String::as_str).chain(others).filter(|name| !is_kept(name) && *name != CONDEMNED) {
            // What cannot be removed is in nobody's way, and is tried again at the next opening, unless it is the list.
            let gone = files.discard(&folder.join(name));
            if name == LIST && !names.is_empty() {
                gone.and_then(|()| files.sync_dir(&folder)).map_err(failed)?;
            }
        }
        files.discard(&folder.join(CONDEMNED)).map_err(failed)?;
        let disk = Disk::new(self.clone(), folder, next);
        let (tables, disk) = (Arc::new(tables), Arc::new(disk));
        let parts = Parts { young: Young::default(), rotated: None, tables, disk, persisted };
        Ok(LsmLedger {
            home: self.clone(),
            parts: RwLock::new(Arc::new(parts)),
            memory_bytes: AtomicU64::new(0),
            writing_out: Mutex::default(),
        })
    }

    /// The list of tables, if it is there as it was written.
    fn list(&self, folder: &Path) -> Result<Option<List>> {
        let path = folder.join(LIST);
        let list = seen(&path, read_whole(&**self.files(), &path, LIST_BYTES_MAX))?;
        Ok(list.and_then(|list| List::decode(&list)))
    }

    /// The list of tables and these, if all is there as it was written.
    ///
    /// # Errors
    /// When it cannot be seen whether it is: the system is short of something, or refuses it.
    fn sound(&self, folder: &Path, names: &[String]) -> Result<Option<(List, Tables)>> {
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        if has(CONDEMNED) || !has(LIST) {
            return Ok(None);
        }
        let Some(list) = self.list(folder)? else { return Ok(None) };
        let table = |info: &TableInfo| Arc::new(Table::new(folder, info.clone(), &self.blocks));
        let run = |run: &Run| TableRun { level: run.level, tables: run.tables.iter().map(table).collect() };
        let tables = Tables { runs: list.runs.iter().map(|of| Arc::new(run(of))).collect() };
        for table in tables.runs.iter().flat_map(|run| &run.tables) {
            if seen(folder, table.bytes())? != Some(table.info.bytes) {
                return Ok(None);
            }
        }
        Ok(Some((list, tables)))
    }
}

/// What the system said of a file; nothing when that is not there or cannot be read, which is damage.
fn seen<T>(path: &Path, said: io::Result<T>) -> Result<Option<T>> {
    match said.map_err(|error| Error::of_ledger(path, &error)) {
        Ok(seen) => Ok(Some(seen)),
        Err(Error::Ledger { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Ledgers for LsmLedgers {
    fn open(&self, partition: PartitionId) -> Result<Arc<dyn Ledger>> {
        self.open_one(partition).map(|ledger| Arc::new(ledger) as _)
    }

    fn persisted(&self, partition: PartitionId) -> Result<Option<Position>> {
        let list = self.list(&self.folder(partition))?;
        Ok(list.and_then(|list| list.persisted))
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
        let folder = self.folder(partition);
        condemn(&**self.files(), &folder).map_err(|error| Error::of_ledger(&folder, &error))
    }
}

struct LsmLedger {
    home: LsmLedgers,
    /// A view of it is a share in them: what changes them copies them then, a handful of pointers.
    parts: RwLock<Arc<Parts>>,
    /// Of the young map and the one put aside.
    memory_bytes: AtomicU64,
    /// Held while files change.
    writing_out: Mutex<()>,
}

/// A ledger as it is, or was.
#[derive(Clone)]
struct Parts {
    young: Young,
    /// Waits to be written out, or is being written out.
    rotated: Option<Arc<Young>>,
    /// What was written out.
    tables: Arc<Tables>,
    disk: Arc<Disk>,
    persisted: Option<Position>,
}

impl View for Parts {
    fn get(&self, key: &[u8]) -> Result<Option<Hit>> {
        let known = self.young.get(key).or_else(|| self.rotated.as_ref()?.get(key));
        match known {
            Some(change) => Ok(change.value.map(Slice::new).map(Hit::costly)),
            None => self.disk.get(&self.tables, (key, hash_of(key)), Reading::Query),
        }
    }

    fn range_into(&self, cursor: &mut Cursor) {
        let bounds = cursor.bounds().clone();
        let young = std::iter::once(&self.young).chain(self.rotated.as_deref()).filter(|young| !young.is_empty());
        let young = young.map(|young| young.range(bounds.start(), bounds.end())).filter(|range| !range.is_empty());
        cursor
            .add(Some(Arc::clone(&self.disk)), young.map(Part::Young).chain(self.tables.range(&bounds).map(Part::Run)));
    }
}

impl LsmLedger {
    fn parts(&self) -> RwLockReadGuard<'_, Arc<Parts>> {
        self.parts.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the parts. What it returns is dropped without the lock.
    fn change<T>(&self, change: impl FnOnce(&mut Parts) -> T) -> T {
        let mut parts = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        let parts = Arc::make_mut(&mut parts);
        let changed = change(parts);
        let rotated = parts.rotated.as_ref().map_or(0, |rotated| rotated.bytes());
        self.memory_bytes.store(parts.young.bytes() + rotated, Ordering::Release);
        changed
    }

    fn set(&self, key: &[u8], value: Option<&[u8]>, position: Position) {
        self.change(|parts| parts.young.set(key, &Change { value, position }));
    }

    fn look_up(&self, key: &[u8], reading: Reading) -> Result<Option<Hit>> {
        let hash = hash_of(key);
        let (disk, tables) = {
            let parts = self.parts();
            let known = parts.young.get(key).or_else(|| parts.rotated.as_ref()?.get(key));
            if let Some(change) = known {
                return Ok(change.value.map(Slice::new).map(Hit::costly));
            }
            // What is nowhere needs no share in disk and tables: all readers would count theirs in the same two places.
            if parts.tables.say_nothing(key, hash) {
                return Ok(None);
            }
            (Arc::clone(&parts.disk), Arc::clone(&parts.tables))
        };
        disk.get(&tables, (key, hash), reading)
    }

    /// Makes tables of what was rotated, then lets go of it. `writing_out` is held, here and below.
    fn flush(&self) -> Result<()> {
        let (rotated, disk, before, persisted) = {
            let parts = self.parts();
            (parts.rotated.clone(), Arc::clone(&parts.disk), Arc::clone(&parts.tables), parts.persisted)
        };
        let Some(rotated) = rotated else { return Ok(()) };
        let persisted = rotated.iter().map(|(_, change)| change.position).max().max(persisted);
        let is_last = before.runs.is_empty();
        let mut entries = rotated.iter().filter(|(_, change)| change.value.is_some() || !is_last);
        let written = disk.write(0, |writer| {
            base::step_aside();
            let Some((key, change)) = entries.next() else { return Ok(false) };
            disk.wrote(writer.add(key, change.value))?;
            Ok(true)
        })?;
        let young = (!written.is_empty()).then(|| Arc::new(TableRun { level: 0, tables: written.clone() }));
        let tables = Tables { runs: young.into_iter().chain(before.runs.iter().cloned()).collect() };
        disk.save(&tables, &written, persisted)?;
        let tables = Arc::new(tables);
        // What was written out is freed without the lock: by who holds it here.
        self.change(|parts| {
            parts.persisted = persisted;
            parts.tables = tables;
            if parts.rotated.as_ref().is_some_and(|now| Arc::ptr_eq(now, &rotated)) {
                parts.rotated = None;
            }
        });
        Ok(())
    }

    /// The step that `choose` chooses of the tables as they are; false when there is none.
    fn step(&self, choose: impl FnOnce(&[Run]) -> Option<Plan>) -> Result<bool> {
        let (disk, before, persisted) = {
            let parts = self.parts();
            (Arc::clone(&parts.disk), Arc::clone(&parts.tables), parts.persisted)
        };
        let runs: Vec<_> = before.runs.iter().map(|run| run.listed()).collect();
        let Some(plan) = choose(&runs) else { return Ok(false) };
        let (taken, left) = before.split(&plan);
        let as_they_are = || taken.iter().flat_map(|run| &run.tables);
        if plan.may_move && as_they_are().all(|table| self.may_stay(table, plan.to)) {
            let tables = Tables::with(left, plan.to, as_they_are().cloned().collect());
            disk.save(&tables, &[], persisted)?;
            self.change(|parts| parts.tables = Arc::new(tables));
            return Ok(true);
        }
        let made = merge(&disk, &plan, &taken)?;
        let tables = Tables::with(left, plan.to, made.clone());
        disk.save(&tables, &made, persisted)?;
        self.change(|parts| parts.tables = Arc::new(tables));
        as_they_are().for_each(|table| table.replace());
        Ok(true)
    }

    /// Whether a table is as one of a level would be written.
    fn may_stay(&self, table: &Table, level: u8) -> bool {
        let style = self.home.style(level);
        (table.info.codec, table.info.filter.is_some()) == (style.codec, style.has_whole_filter)
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

    fn range_into(&self, cursor: &mut Cursor) {
        let parts = Arc::clone(&self.parts());
        parts.range_into(cursor);
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::clone(&self.parts()) as _
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
        self.parts().disk.is_damaged()
    }

    fn reset(&self) -> Result<()> {
        let _one = self.writing_out.lock().unwrap_or_else(PoisonError::into_inner);
        let (old, tables) = {
            let parts = self.parts();
            (Arc::clone(&parts.disk), Arc::clone(&parts.tables))
        };
        old.empty()?;
        let disk = old.successor();
        let (young, disk) = (Young::default(), Arc::new(disk));
        let empty = Parts { young, rotated: None, tables: Arc::default(), disk, persisted: None };
        drop(self.change(|parts| std::mem::replace(parts, empty)));
        tables.runs.iter().flat_map(|run| &run.tables).for_each(|table| table.replace());
        Ok(())
    }

    fn rotate(&self) {
        self.change(|parts| {
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
        });
    }

    fn write_out(&self) -> Result<()> {
        let _one = self.writing_out.lock().unwrap_or_else(PoisonError::into_inner);
        self.flush()
    }

    fn merge(&self) -> Result<()> {
        let _one = self.writing_out.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..MERGES_MAX {
            if !self.step(|runs| plan::next(runs, self.home.policy))? {
                break;
            }
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        let _one = self.writing_out.lock().unwrap_or_else(PoisonError::into_inner);
        self.step(|runs| plan::settling(runs, self.home.policy)).map(|_| ())
    }
}

impl Drop for LsmLedger {
    fn drop(&mut self) {
        // Views may outlive it, and what they find then is no news of whoever opens the folder next.
        self.parts().disk.let_go();
    }
}

#[cfg(test)]
#[path = "lsm_tests.rs"]
mod tests;
