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
use lsm_tree::{AbstractTree, AnyTree, InternalValue, Result, SeqNo};

use super::Bounds;
use super::blocks::{Ahead, Blocks, Shelved, Unpacked};

/// Above all numbers that are in use.
const NEWEST: SeqNo = SeqNo::MAX;

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
        let run = |tables: &[lsm_tree::Table]| {
            let shelved = |table: &lsm_tree::Table| match known(table.id()) {
                Some(shelved) => Arc::clone(shelved),
                None => Arc::new(Shelved::new(table.clone(), tree.id())),
            };
            tables.iter().map(shelved).collect()
        };
        Self { runs: runs.map(|tables| run(tables)).collect() }
    }

    /// The newest that is said of `key`, a removal too.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<InternalValue>> {
        let hash = Bloom::get_hash(key);
        for run in &self.runs {
            let at = run.partition_point(|table| table.greatest() < key);
            let Some(shelved) = run.get(at).filter(|table| table.least() <= key) else { continue };
            if let Some(found) = shelved.table.get(key, NEWEST, hash)? {
                return Ok(Some(found));
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
                block: None,
                ahead: Ahead::default(),
                unpacked: None,
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
    /// Where the next block is: its number, unknown while it is that in which the range begins.
    table: usize,
    block: Option<usize>,
    ahead: Ahead,
    unpacked: Option<Arc<Unpacked>>,
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
            let number = match (self.block, self.bounds.start()) {
                (Some(number), _) => number,
                (None, Bound::Unbounded) => 0,
                (None, Bound::Included(start) | Bound::Excluded(start)) => self.blocks.block_of(table, start)?,
            };
            let Some(unpacked) = self.blocks.unpacked(table, number, self.bounds.reading(), &mut self.ahead)? else {
                self.table += 1;
                self.block = Some(0);
                self.ahead.clear();
                continue;
            };
            self.entry = match self.block {
                None => unpacked.before(|key| self.bounds.are_behind(key)),
                // What the block before ended with may go on here, with what it was before that.
                Some(_) => usize::from(
                    unpacked.first().is_some()
                        && unpacked.first() == self.unpacked.as_ref().and_then(|before| before.last()),
                ),
            };
            self.end = unpacked.len();
            if unpacked.last().is_some_and(|greatest| self.bounds.are_before(greatest)) {
                self.is_last = true;
                self.end = unpacked.before(|key| !self.bounds.are_before(key));
            }
            self.unpacked = Some(unpacked);
            self.block = Some(number + 1);
            return Ok(true);
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        self.unpacked.as_ref().map_or(&[], |unpacked| unpacked.key(self.entry.wrapping_sub(1)))
    }

    /// The value; `None` when the key was removed.
    pub(super) fn value(&self) -> Option<&[u8]> {
        self.unpacked.as_ref()?.value(self.entry.wrapping_sub(1))
    }
}
