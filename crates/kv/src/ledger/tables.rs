//! What the tree has on disk at one moment: its tables, in runs.
//!
//! The tree's own reads take a lock that it holds while it writes and syncs its manifest, tens of milliseconds under load:
//! a reader would wait for the disk, and with it every writer of the partition. So the list of tables is taken from the
//! tree whenever it changes, and read from here without any lock. Tables are shared and do not change; one that the tree
//! has replaced is deleted when the last list with it is dropped.
//!
//! May use: `lsm-tree`. Must not know: the young map, who changes the tree.

use std::ops::Bound;

use lsm_tree::table::filter::standard_bloom::Builder as Bloom;
use lsm_tree::{AbstractTree, AnyTree, InternalValue, Result, SeqNo, Table};

use super::Slice;

/// Above all numbers that are in use.
const NEWEST: SeqNo = SeqNo::MAX;

/// The tables of a tree.
#[derive(Default)]
pub(super) struct Tables {
    /// Newer runs first. The tables of a run follow each other and do not overlap.
    runs: Vec<Vec<Table>>,
}

fn least(table: &Table) -> &[u8] {
    table.metadata.key_range.min()
}

fn greatest(table: &Table) -> &[u8] {
    table.metadata.key_range.max()
}

impl Tables {
    /// The tables of `tree` as they are now. May wait for the tree's lock.
    pub(super) fn of(tree: &AnyTree) -> Self {
        let version = tree.current_version();
        let runs = version.iter_levels().flat_map(|level| level.iter());
        Self { runs: runs.map(|run| run.iter().cloned().collect()).collect() }
    }

    /// The newest that is said of `key`, a removal too.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<InternalValue>> {
        let hash = Bloom::get_hash(key);
        for run in &self.runs {
            let at = run.partition_point(|table| greatest(table) < key);
            let Some(table) = run.get(at).filter(|table| least(table) <= key) else { continue };
            if let Some(found) = table.get(key, NEWEST, hash)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The keys of a range with their values, ascending; removed ones are left out.
    pub(super) fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Range {
        let (start, end) = (start.map(Slice::from), end.map(Slice::from));
        let mut sources = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            let from = run.partition_point(|table| is_before(table, &start));
            let rest = run.get(from..).unwrap_or_default();
            let until = rest.partition_point(|table| !is_behind(table, &end));
            if let Some(tables) = rest.get(..until).filter(|tables| !tables.is_empty()) {
                let bounds = (start.clone(), end.clone());
                let run = RunEntries { tables: tables.to_vec(), next: 0, bounds, entries: None };
                sources.push(Source { run, head: None });
            }
        }
        Range { sources, last: None, is_started: false }
    }
}

/// Whether all of the table comes before the range.
fn is_before(table: &Table, start: &Bound<Slice>) -> bool {
    match start {
        Bound::Unbounded => false,
        Bound::Included(start) => greatest(table) < &**start,
        Bound::Excluded(start) => greatest(table) <= &**start,
    }
}

/// Whether all of the table comes behind the range.
fn is_behind(table: &Table, end: &Bound<Slice>) -> bool {
    match end {
        Bound::Unbounded => false,
        Bound::Included(end) => least(table) > &**end,
        Bound::Excluded(end) => least(table) >= &**end,
    }
}

/// The entries of a run, one table after the other.
struct RunEntries {
    tables: Vec<Table>,
    /// The next table that is read.
    next: usize,
    bounds: (Bound<Slice>, Bound<Slice>),
    entries: Option<Box<dyn Iterator<Item = Result<InternalValue>> + Send>>,
}

impl RunEntries {
    fn next(&mut self) -> Result<Option<InternalValue>> {
        loop {
            if let Some(entry) = self.entries.as_mut().and_then(Iterator::next) {
                return entry.map(Some);
            }
            let Some(table) = self.tables.get(self.next) else { return Ok(None) };
            self.next += 1;
            self.entries = Some(Box::new(table.range(self.bounds.clone())));
        }
    }
}

struct Source {
    run: RunEntries,
    head: Option<InternalValue>,
}

impl Source {
    fn key(&self) -> Option<&[u8]> {
        self.head.as_ref().map(|head| &*head.key.user_key)
    }
}

/// Entries of a range of all tables. It owns what it reads from.
pub(super) struct Range {
    /// Newer ones first; of equal keys the first says what became of it.
    sources: Vec<Source>,
    /// The key that was taken last: what follows of it is older.
    last: Option<Slice>,
    is_started: bool,
}

impl Range {
    /// Reads the first entry of each run: not before somebody asks, because it may have to come from the disk.
    fn start(&mut self) -> Result<()> {
        self.is_started = true;
        self.sources.iter_mut().try_for_each(|source| source.run.next().map(|head| source.head = head))
    }

    /// The newest entry of the least key.
    fn take(&mut self) -> Result<Option<InternalValue>> {
        let mut least: Option<(usize, &[u8])> = None;
        for (at, source) in self.sources.iter().enumerate() {
            if let Some(key) = source.key()
                && least.is_none_or(|(_, found)| key < found)
            {
                least = Some((at, key));
            }
        }
        let Some((at, _)) = least else { return Ok(None) };
        let source = self.sources.get_mut(at).expect("it was just found there");
        let next = source.run.next()?;
        Ok(std::mem::replace(&mut source.head, next))
    }

    fn next_entry(&mut self) -> Result<Option<(Slice, Slice)>> {
        if !self.is_started {
            self.start()?;
        }
        while let Some(entry) = self.take()? {
            if self.last.as_ref() == Some(&entry.key.user_key) {
                continue;
            }
            self.last = Some(entry.key.user_key.clone());
            if !entry.is_tombstone() {
                return Ok(Some((entry.key.user_key, entry.value)));
            }
        }
        Ok(None)
    }
}

impl Iterator for Range {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        // Behind what cannot be read nothing is shown: it would look as if there was nothing between.
        self.next_entry().inspect_err(|_| self.sources.clear()).transpose()
    }
}
