//! What a ledger has on disk: making tables of entries, and having the list of tables say which count.
//!
//! May use: `base::Files`. Must not know: what is in memory, when tables are merged.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base::{Files, read_whole, write_new_file};
use journal::Position;

use super::blocks::Table;
use super::cursor::{Cursor, Part};
use super::list::{LIST, LIST_BYTES_MAX, List};
use super::lsm::LsmLedgers;
use super::plan::Plan;
use super::table::{TableWriter, Written};
use super::tables::{RunEntries, Said, TableRun, Tables};
use super::{Bounds, Hit, Reading};
use crate::error::{Error, Result};

/// Name of the file that condemns a ledger.
pub(super) const CONDEMNED: &str = "condemned";
/// How many numbers of tables are tried when somebody else's file has the name.
const NUMBERS_TRIED: usize = 64;

/// What is on disk, until it is emptied: then there is another.
pub(super) struct Disk {
    home: LsmLedgers,
    pub(super) folder: PathBuf,
    /// Held while it is found damaged, and while it is emptied.
    condemning: Mutex<()>,
    damaged: AtomicBool,
    /// The number of the next table.
    next: AtomicU64,
}

impl Disk {
    /// What lies in `folder`, whose next table has the number `next`.
    pub(super) fn new(home: LsmLedgers, folder: PathBuf, next: u64) -> Self {
        Self { home, folder, condemning: Mutex::default(), damaged: AtomicBool::new(false), next: AtomicU64::new(next) }
    }

    /// What lies in the same folder from now on.
    pub(super) fn successor(&self) -> Self {
        Self::new(self.home.clone(), self.folder.clone(), self.next.load(Ordering::Relaxed))
    }

    /// Whether it is not to be relied on: found damaged, or nobody's any more.
    pub(super) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Acquire)
    }

    /// Condemns what is on disk when it is damaged, once: what one that was emptied says later is no news of its successor.
    pub(super) fn noted(&self, error: Error) -> Error {
        if matches!(error, Error::Ledger { .. }) {
            let _one = self.condemning.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.damaged.swap(true, Ordering::AcqRel) {
                // If even this cannot be noted, the next reader of the damaged part finds it again.
                let _ = condemn(&**self.home.files(), &self.folder);
            }
        }
        error
    }

    /// What it says from now on is no news.
    pub(super) fn let_go(&self) {
        self.damaged.store(true, Ordering::Release);
    }

    /// Forgets what is on disk, and lets go. Files of tables stay for those who read them.
    pub(super) fn empty(&self) -> Result<()> {
        let _one = self.condemning.lock().unwrap_or_else(PoisonError::into_inner);
        self.let_go();
        let (files, folder) = (&**self.home.files(), &self.folder);
        // Without a list there is nothing, which takes no space to say.
        let emptied = files
            .discard(&folder.join(LIST))
            .and_then(|()| files.discard(&folder.join(CONDEMNED)))
            .and_then(|()| files.sync_dir(folder));
        emptied.map_err(|error| self.failed(&error))
    }

    /// What the system said when something was to be written: that is never damage.
    fn failed(&self, error: &io::Error) -> Error {
        Error::LedgerIo { path: self.folder.display().to_string(), reason: error.to_string() }
    }

    /// What became of a write.
    pub(super) fn wrote(&self, written: io::Result<()>) -> Result<()> {
        written.map_err(|error| self.failed(&error))
    }

    /// Refuses to write what would not be listed.
    fn check(&self) -> Result<()> {
        if self.is_damaged() {
            let reason = "it is damaged".to_owned();
            return Err(Error::Ledger { path: self.folder.display().to_string(), reason });
        }
        Ok(())
    }

    pub(super) fn get(&self, tables: &Tables, (key, hash): (&[u8], u64), reading: Reading) -> Result<Option<Hit>> {
        let said = tables.get(key, hash, reading).map_err(|error| self.noted(error))?;
        Ok(said.and_then(Said::found))
    }

    fn begin(&self, level: u8) -> Result<TableWriter> {
        let mut tried = 0;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            match TableWriter::create(self.home.files(), &self.folder, number, self.home.style(level)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tried < NUMBERS_TRIED => tried += 1,
                begun => return begun.map_err(|error| self.failed(&error)),
            }
        }
    }

    /// Tables of the entries that `next` gives, ascending, of a level.
    pub(super) fn write(
        &self,
        level: u8,
        mut next: impl FnMut(&mut TableWriter) -> Result<bool>,
    ) -> Result<Vec<Arc<Table>>> {
        self.check()?;
        let mut tables: Vec<Arc<Table>> = Vec::new();
        loop {
            match self.write_one(level, &mut next) {
                Ok((written, goes_on)) => {
                    let table = |written| Arc::new(Table::written(&self.folder, written, &self.home.blocks));
                    tables.extend(written.map(table));
                    if !goes_on {
                        return Ok(tables);
                    }
                }
                Err(error) => {
                    tables.iter().for_each(|table| table.replace());
                    return Err(error);
                }
            }
        }
    }

    /// A table of entries until it is full or there are no more, and whether there may be more.
    fn write_one(
        &self,
        level: u8,
        next: &mut impl FnMut(&mut TableWriter) -> Result<bool>,
    ) -> Result<(Option<Written>, bool)> {
        let mut writer = self.begin(level)?;
        let mut goes_on = true;
        while goes_on && writer.bytes() < self.home.table_bytes {
            goes_on = next(&mut writer)?;
        }
        Ok((writer.finish().map_err(|error| self.failed(&error))?, goes_on))
    }

    /// Has the disk say that these are the tables, of which some were `made` for that; they are gone when it does not.
    pub(super) fn save(&self, tables: &Tables, made: &[Arc<Table>], persisted: Option<Position>) -> Result<()> {
        let files = &**self.home.files();
        let runs = tables.runs.iter().map(|run| run.listed()).collect();
        let list = List { persisted, next: self.next.load(Ordering::Relaxed), runs }.encode();
        let path = self.folder.join(LIST);
        // The names of tables are on the disk before one is in the list.
        let save = || {
            files.sync_dir(&self.folder)?;
            write_new_file(files, &path, &list)
        };
        let saved = self.check().and_then(|()| save().map_err(|error| self.failed(&error)));
        saved.inspect_err(|_| {
            // A list may be there though its folder could not be synced: then the next opening sees what is there of it.
            let is_there = read_whole(files, &path, LIST_BYTES_MAX).is_ok_and(|there| there == list);
            made.iter().filter(|_| !is_there).for_each(|table| table.replace());
        })
    }
}

/// Has what is in a folder be discarded when it is opened next.
pub(super) fn condemn(files: &dyn Files, folder: &Path) -> io::Result<()> {
    match files.create(&folder.join(CONDEMNED)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => files.sync_dir(folder),
    }
}

/// The entries of runs, younger first, in tables of the plan's level.
pub(super) fn merge(disk: &Disk, plan: &Plan, runs: &[Arc<TableRun>]) -> Result<Vec<Arc<Table>>> {
    let everything = Bounds::everything(Reading::Sweep);
    let parts = runs.iter().filter_map(|run| RunEntries::of(run, &everything)).map(Part::Run);
    let mut merging = Cursor::new(everything.clone()).with_removals();
    merging.add(None, parts);
    disk.write(plan.to, |writer| {
        base::step_aside();
        if !merging.advance().map_err(|error| disk.noted(error))? {
            return Ok(false);
        }
        let value = merging.change();
        if value.is_some() || !plan.is_last {
            disk.wrote(writer.add(merging.key(), value))?;
        }
        Ok(true)
    })
}
