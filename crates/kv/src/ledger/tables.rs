//! What the tree has on disk at one moment: its tables, in runs.
//!
//! The tree's own reads take a lock that it holds while it writes and syncs its manifest, tens of milliseconds under load:
//! a reader would wait for the disk, and with it every writer of the partition. So the list of tables is taken from the
//! tree whenever it changes, and read from here without any lock. Tables are shared and do not change; one that the tree
//! has replaced is deleted when the last list with it is dropped.
//!
//! May use: `lsm-tree`. Must not know: the young map, who changes the tree.

use std::ops::Bound;
use std::sync::Arc;

use lsm_tree::table::filter::standard_bloom::Builder as Bloom;
use lsm_tree::{AbstractTree, AnyTree, Result, Table};

use super::blocks::{Ahead, Blocks, Shelved, Spot, Unpacked, Way};
use super::lookup::Said;
use super::{Bounds, Reading};

/// What tables' filters know a key by.
pub(super) fn hash_of(key: &[u8]) -> u64 {
    Bloom::get_hash(key)
}

/// The tables of a tree.
#[derive(Default)]
pub(super) struct Tables {
    /// Newer runs first. The tables of a run follow each other and do not overlap.
    runs: Vec<Vec<Arc<Shelved>>>,
}

impl Tables {
    /// The tables of `tree` as they are now; what is known of those that were there `before` stays known. May wait for the
    /// tree's lock.
    pub(super) fn of(tree: &AnyTree, before: &Self) -> Self {
        let known = |id| before.runs.iter().flatten().find(|shelved| shelved.table.id() == id);
        let version = tree.current_version();
        let runs = version.iter_levels().flat_map(|level| level.iter());
        let run = |tables: &[Table]| {
            let shelved = |table: &Table| match known(table.id()) {
                Some(shelved) => Arc::clone(shelved),
                None => Arc::new(Shelved::new(table.clone(), tree.id())),
            };
            tables.iter().map(shelved).collect()
        };
        Self { runs: runs.map(|tables| run(tables)).collect() }
    }

    /// The table of a run that has `key`, if the run has it: usually known from what is in memory.
    fn table_with<'t>(run: &'t [Arc<Shelved>], key: &[u8], hash: u64) -> Result<Option<&'t Shelved>> {
        let at = run.partition_point(|table| table.greatest() < key);
        let Some(shelved) = run.get(at).filter(|table| table.least() <= key) else { return Ok(None) };
        let is_absent = match &shelved.table.pinned_filter_block {
            Some(filter) => !filter.maybe_contains_hash(hash)?,
            None => false,
        };
        Ok((!is_absent).then_some(shelved))
    }

    /// Whether nothing is said of `key`, as far as that is known without looking further than memory.
    pub(super) fn say_nothing(&self, key: &[u8], hash: u64) -> Result<bool> {
        for run in &self.runs {
            if Self::table_with(run, key, hash)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The newest that is said of `key`, a removal too.
    pub(super) fn get(&self, (key, hash): (&[u8], u64), blocks: &Blocks, reading: Reading) -> Result<Option<Said>> {
        for run in &self.runs {
            let Some(table) = Self::table_with(run, key, hash)? else { continue };
            if let Some(said) = blocks.get(table, (key, hash), reading)? {
                return Ok(Some(said));
            }
        }
        Ok(None)
    }

    /// The entries of each run in a range, newer runs first; runs that have none may be left out.
    pub(super) fn range(self: &Arc<Self>, bounds: &Bounds, blocks: &Arc<Blocks>) -> impl Iterator<Item = RunEntries> {
        self.runs.iter().enumerate().filter_map(|(number, run)| {
            let from = run.partition_point(|table| bounds.are_behind(table.greatest()));
            run.get(from).filter(|table| !bounds.are_before(table.least()))?;
            Some(RunEntries {
                tables: Arc::clone(self),
                blocks: Arc::clone(blocks),
                bounds: bounds.clone(),
                run: number,
                table: from,
                way: None,
                ahead: Ahead::default(),
                unpacked: None,
                spot: Spot::default(),
                entry: 0,
                end: 0,
                is_last: false,
            })
        })
    }
}

/// The entries of a run in a range, one block after the other, removals too. It stands on an entry once
/// [`RunEntries::advance`] said so.
pub(super) struct RunEntries {
    tables: Arc<Tables>,
    blocks: Arc<Blocks>,
    bounds: Bounds,
    run: usize,
    /// Where the next block is; the way through a table is not known before something of it is read.
    table: usize,
    way: Option<Way>,
    ahead: Ahead,
    unpacked: Option<Arc<Unpacked>>,
    /// The entry it stands on.
    spot: Spot,
    /// The next entry; `end` is behind the last of this block.
    entry: usize,
    end: usize,
    /// The range ends in this block.
    is_last: bool,
}

impl RunEntries {
    /// Steps to the next entry; false when there is none.
    pub(super) fn advance(&mut self) -> Result<bool> {
        while self.entry >= self.end {
            if self.is_last || !self.next_block()? {
                return Ok(false);
            }
        }
        self.spot = self.unpacked.as_ref().map_or_else(Spot::default, |unpacked| unpacked.spot(self.entry));
        self.entry += 1;
        Ok(true)
    }

    /// Unpacks the next block; false when there is none.
    fn next_block(&mut self) -> Result<bool> {
        loop {
            let Some(table) = self.tables.runs.get(self.run).and_then(|run| run.get(self.table)) else {
                return Ok(false);
            };
            if self.bounds.are_before(table.least()) {
                return Ok(false);
            }
            let reading = self.bounds.reading();
            let way = match &mut self.way {
                Some(way) => way,
                none => {
                    let start = match self.bounds.start() {
                        Bound::Included(start) | Bound::Excluded(start) if self.unpacked.is_none() => Some(start),
                        _ => None,
                    };
                    none.insert(self.blocks.way(table, start, reading)?)
                }
            };
            let Some(unpacked) = self.blocks.next(table, way, reading, &mut self.ahead)? else {
                self.table += 1;
                self.way = None;
                self.ahead.clear();
                continue;
            };
            self.entry = match &self.unpacked {
                None => unpacked.before(|key| self.bounds.are_behind(key)),
                // What the block before ended with may go on here, with what it was before that.
                Some(before) => usize::from(unpacked.first().is_some() && unpacked.first() == before.last()),
            };
            self.end = unpacked.len();
            if unpacked.last().is_some_and(|greatest| self.bounds.are_before(greatest)) {
                self.is_last = true;
                self.end = unpacked.before(|key| !self.bounds.are_before(key));
            }
            self.unpacked = Some(unpacked);
            return Ok(true);
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        self.unpacked.as_ref().map_or(&[], |unpacked| unpacked.key(self.spot))
    }

    /// Key and value; no value when the key was removed.
    pub(super) fn entry(&self) -> (&[u8], Option<&[u8]>) {
        self.unpacked.as_ref().map_or((&[], None), |unpacked| unpacked.entry(self.spot))
    }

    pub(super) fn is_removal(&self) -> bool {
        self.spot.is_removal
    }
}
