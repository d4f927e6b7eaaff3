//! A ledger's tables at one moment, in runs.
//!
//! The list does not change: whoever replaces tables makes another. So reading takes no lock, and a view is the list as it was.
//!
//! May use: `blocks.rs`. Must not know: the young map, who changes tables.

use std::ops::Bound;
use std::sync::Arc;

use super::block::{Block, Split, Spot};
use super::blocks::{Ahead, Table, Way};
use super::list::Run;
use super::plan::Plan;
use super::{Bounds, Hit, Reading, Slice};
use crate::error::Result;

/// The tables of a ledger.
#[derive(Default)]
pub(super) struct Tables {
    /// Younger runs first.
    pub(super) runs: Vec<Arc<TableRun>>,
}

/// Tables that follow each other and do not overlap.
pub(super) struct TableRun {
    /// As in the list (`list.rs`).
    pub(super) level: u8,
    pub(super) tables: Vec<Arc<Table>>,
}

/// What a table says of a key.
pub(super) struct Said {
    /// `None` when it was removed.
    value: Option<Slice>,
    was_at_hand: bool,
}

impl Said {
    pub(super) fn found(self) -> Option<Hit> {
        let was_at_hand = self.was_at_hand;
        self.value.map(|value| Hit { value, was_at_hand })
    }
}

impl TableRun {
    /// As the list has it.
    pub(super) fn listed(&self) -> Run {
        Run { level: self.level, tables: self.tables.iter().map(|table| table.info.clone()).collect() }
    }

    /// The table that has `key`, if the run has it.
    fn table_with(&self, key: &[u8]) -> Option<&Arc<Table>> {
        let at = self.tables.partition_point(|table| *table.info.greatest < *key);
        self.tables.get(at).filter(|table| *table.info.least <= *key)
    }
}

impl Tables {
    /// The runs that a plan takes its tables from, with those alone, and the runs that are left.
    pub(super) fn split(&self, plan: &Plan) -> (Vec<Arc<TableRun>>, Vec<Arc<TableRun>>) {
        let is_taken = |table: &&Arc<Table>| {
            let number = table.info.number;
            plan.from.contains(&number) || plan.with.contains(&number)
        };
        let parts = self.runs.iter().map(|run| {
            let (taken, left) = run.tables.iter().cloned().partition::<Vec<_>, _>(|table| is_taken(&table));
            [taken, left].map(|tables| Arc::new(TableRun { level: run.level, tables }))
        });
        let (taken, left): (Vec<_>, Vec<_>) = parts.map(|[taken, left]| (taken, left)).unzip();
        let there = |runs: Vec<Arc<TableRun>>| runs.into_iter().filter(|run| !run.tables.is_empty()).collect();
        (there(taken), there(left))
    }

    /// These runs, and tables that come to a level of them.
    pub(super) fn with(mut runs: Vec<Arc<TableRun>>, level: u8, mut tables: Vec<Arc<Table>>) -> Self {
        let at = runs.partition_point(|run| run.level < level);
        // Runs of level 0 stay apart; these are the youngest.
        if let Some(there) = runs.get(at).filter(|run| level > 0 && run.level == level) {
            tables.extend(there.tables.iter().cloned());
            runs.remove(at);
        }
        if !tables.is_empty() {
            tables.sort_by(|one, other| one.info.least.cmp(&other.info.least));
            runs.insert(at, Arc::new(TableRun { level, tables }));
        }
        Self { runs }
    }

    /// Whether nothing is said of `key`, as far as that is known without looking further than memory.
    pub(super) fn say_nothing(&self, key: &[u8], hash: u64) -> bool {
        let mut tables = self.runs.iter().filter_map(|run| run.table_with(key));
        tables.all(|table| table.has_not(hash))
    }

    /// The newest that is said of `key`, a removal too.
    pub(super) fn get(&self, key: &[u8], hash: u64, reading: Reading) -> Result<Option<Said>> {
        for run in &self.runs {
            let Some(table) = run.table_with(key) else { continue };
            if !table.may_have(hash)? {
                continue;
            }
            if let Some((block, number, was_at_hand)) = table.find(key, hash, reading)? {
                let spot = block.spot(number);
                return Ok(Some(Said { value: (!spot.is_removal).then(|| block.slice(spot)), was_at_hand }));
            }
        }
        Ok(None)
    }

    /// The entries of each run in a range, younger runs first; runs that have none may be left out.
    pub(super) fn range(&self, bounds: &Bounds) -> impl Iterator<Item = RunEntries> {
        self.runs.iter().filter_map(|run| RunEntries::of(run, bounds))
    }
}

/// The entries of a run in a range, one block after the other, removals too. It stands on an entry once
/// [`RunEntries::advance`] said so.
pub(super) struct RunEntries {
    run: Arc<TableRun>,
    /// Where the next block is; the way through a table is not known before something of it is read.
    table: usize,
    way: Option<Way>,
    ahead: Ahead,
    block: Option<Block>,
    /// The entry it stands on.
    spot: Spot,
    /// The next entry; `end` is behind the last of this block.
    entry: usize,
    end: usize,
    /// The range ends in this block.
    is_last: bool,
}

impl RunEntries {
    /// The entries of a run; nothing when it has none in the range.
    pub(super) fn of(run: &Arc<TableRun>, bounds: &Bounds) -> Option<Self> {
        let table = run.tables.partition_point(|table| bounds.are_behind(&table.info.greatest));
        run.tables.get(table).filter(|table| !bounds.are_before(&table.info.least))?;
        Some(Self {
            run: Arc::clone(run),
            table,
            way: None,
            ahead: Ahead::default(),
            block: None,
            spot: Spot::default(),
            entry: 0,
            end: 0,
            is_last: false,
        })
    }

    /// Steps to the next entry; false when there is none.
    pub(super) fn advance(&mut self, bounds: &Bounds) -> Result<bool> {
        while self.entry >= self.end {
            if self.is_last || !self.next_block(bounds)? {
                return Ok(false);
            }
        }
        self.spot = self.block.as_ref().map_or_else(Spot::default, |block| block.spot_behind(self.spot, self.entry));
        self.entry += 1;
        Ok(true)
    }

    /// Goes on with the next block; false when there is none.
    fn next_block(&mut self, bounds: &Bounds) -> Result<bool> {
        while let Some(table) = self.run.tables.get(self.table) {
            if bounds.are_before(&table.info.least) {
                return Ok(false);
            }
            let reading = bounds.reading();
            let is_first = self.block.is_none();
            let way = match &mut self.way {
                Some(way) => way,
                none => {
                    let start = match bounds.start() {
                        Bound::Included(start) | Bound::Excluded(start) if is_first => Some(start),
                        _ => None,
                    };
                    none.insert(table.way(start, reading)?)
                }
            };
            let Some(block) = table.next(way, reading, &mut self.ahead)? else {
                self.table += 1;
                self.way = None;
                self.ahead.clear();
                continue;
            };
            self.entry = match bounds.start() {
                Bound::Included(start) if is_first => block.before(start),
                Bound::Excluded(start) if is_first => block.up_to(start),
                _ => 0,
            };
            self.end = block.len();
            let last = block.len().checked_sub(1).map(|last| block.key(block.spot(last)));
            let (end, at_most) = match bounds.end() {
                Bound::Included(end) => (Some(end), true),
                Bound::Excluded(end) => (Some(end), false),
                Bound::Unbounded => (None, true),
            };
            if let (Some(last), Some(end)) = (last, end)
                && last.compare(Split::whole(end)).is_ge()
            {
                self.is_last = true;
                self.end = if at_most { block.up_to(end) } else { block.before(end) };
            }
            self.spot = block.spot_before(self.entry);
            self.block = Some(block);
            return Ok(true);
        }
        Ok(false)
    }

    pub(super) fn key(&self) -> Split<'_> {
        self.block.as_ref().map_or_else(Split::default, |block| block.key(self.spot))
    }

    /// No value when the key was removed.
    pub(super) fn value(&self) -> Option<&[u8]> {
        self.block.as_ref().filter(|_| !self.spot.is_removal).map(|block| block.value(self.spot))
    }

    pub(super) fn is_removal(&self) -> bool {
        self.spot.is_removal
    }

    /// The tag of the key behind its first `shared` bytes.
    pub(super) fn tag(&self, shared: usize) -> u128 {
        self.block.as_ref().map_or(0, |block| block.tag(self.spot, shared))
    }
}
