//! The youngest part of a ledger: a sorted map in memory whose clones are free and do not change.
//!
//! Two levels: a sorted list of *runs*, each with its first key and a chunk of up to [`CHUNK_MAX`] entries. A search is
//! two binary searches over few neighbouring cache lines, where a skip list or a tree of nodes follows a dozen pointers.
//! A clone shares everything; a change copies what is shared of its way down, one list of runs and one chunk at the
//! most, so a reader who holds the whole map costs its writer little, and one who let go costs nothing.
//!
//! A key is here with its newest change only. A removal is an entry too: it hides what older parts of the ledger have.
//!
//! May use: nothing. Must not know: the tree, the disk.

use std::ops::Bound;
use std::sync::Arc;

use journal::Position;

use super::Slice;

/// Entries of a chunk at which it is split. Inserting moves half of them, searching a list of runs takes longer the
/// fewer they are.
const CHUNK_MAX: usize = 64;
/// Bytes that an entry costs beside key and value: its place in a chunk that is two thirds full, and the heads of what
/// it points to.
const OVERHEAD_BYTES: usize = 112;

/// What became of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// Its value; `None` when it was removed.
    pub(super) value: Option<Slice>,
    /// Position of the change.
    pub(super) position: Position,
}

/// Entries that follow each other. Keys lie together because searching looks at them only.
#[derive(Debug)]
struct Chunk {
    keys: Vec<Slice>,
    changes: Vec<Change>,
}

impl Clone for Chunk {
    fn clone(&self) -> Self {
        let mut copy = Self::new();
        copy.keys.extend_from_slice(&self.keys);
        copy.changes.extend_from_slice(&self.changes);
        copy
    }
}

#[derive(Debug, Clone)]
struct Run {
    /// No key in the chunk is less.
    first: Slice,
    chunk: Arc<Chunk>,
}

/// The map.
#[derive(Debug, Clone, Default)]
pub(super) struct Young {
    runs: Arc<Vec<Run>>,
    bytes: u64,
}

impl Chunk {
    fn new() -> Self {
        Self { keys: Vec::with_capacity(CHUNK_MAX), changes: Vec::with_capacity(CHUNK_MAX) }
    }

    fn search(&self, key: &[u8]) -> Result<usize, usize> {
        self.keys.binary_search_by(|found| (**found).cmp(key))
    }

    fn insert(&mut self, at: usize, key: &[u8], change: Change) {
        self.keys.insert(at, Slice::from(key));
        self.changes.insert(at, change);
    }

    /// Takes away the upper half.
    fn split(&mut self) -> Self {
        let middle = self.keys.len() / 2;
        let mut upper = Self::new();
        upper.keys.extend(self.keys.drain(middle..));
        upper.changes.extend(self.changes.drain(middle..));
        upper
    }

    fn run(self) -> Option<Run> {
        Some(Run { first: self.keys.first()?.clone(), chunk: Arc::new(self) })
    }
}

fn cost(key: &[u8], change: &Change) -> u64 {
    (key.len() + change.value.as_ref().map_or(0, |value| value.len()) + OVERHEAD_BYTES) as u64
}

impl Young {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// About how much memory the entries take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Index of the run in which `key` is or belongs.
    fn run_of(&self, key: &[u8]) -> usize {
        self.runs.partition_point(|run| *run.first <= *key).saturating_sub(1)
    }

    /// What last became of `key`, if this map knows.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Change> {
        let chunk = &self.runs.get(self.run_of(key))?.chunk;
        chunk.changes.get(chunk.search(key).ok()?)
    }

    /// Notes what became of `key`, instead of what was noted before.
    pub(super) fn set(&mut self, key: &[u8], change: Change) {
        let at = self.run_of(key);
        self.bytes += cost(key, &change);
        let last = at + 1 >= self.runs.len();
        let runs = Arc::make_mut(&mut self.runs);
        let Some(run) = runs.get_mut(at) else {
            let mut chunk = Chunk::new();
            chunk.insert(0, key, change);
            runs.extend(chunk.run());
            return;
        };
        let chunk = Arc::make_mut(&mut run.chunk);
        let place = match chunk.search(key) {
            Ok(place) => {
                if let Some(old) = chunk.changes.get_mut(place) {
                    self.bytes -= cost(key, old);
                    *old = change;
                }
                return;
            }
            Err(place) => place,
        };
        if place == 0 {
            run.first = Slice::from(key);
        }
        if chunk.keys.len() < CHUNK_MAX {
            chunk.insert(place, key, change);
            return;
        }
        // Keys that come in order leave full chunks behind, not halves.
        let mut upper = if last && place == CHUNK_MAX { Chunk::new() } else { chunk.split() };
        match place.checked_sub(chunk.keys.len()) {
            Some(place) if place > 0 || upper.keys.is_empty() => upper.insert(place, key, change),
            _ => chunk.insert(place, key, change),
        }
        if let Some(run) = upper.run() {
            runs.insert(at + 1, run);
        }
    }

    /// Where the first entry at or behind `bound` is: its run, and its place there.
    fn place(&self, bound: Bound<&[u8]>, unbounded: (usize, usize)) -> (usize, usize) {
        let (key, behind) = match bound {
            Bound::Unbounded => return unbounded,
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
        };
        let run = self.run_of(key);
        let place = self.runs.get(run).map_or(0, |run| match run.chunk.search(key) {
            Ok(place) => place + usize::from(behind),
            Err(place) => place,
        });
        (run, place)
    }

    /// The entries between two bounds, ascending, as they are now.
    pub(super) fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Range {
        let end = match end {
            // A place is before an entry: what is included ends before what comes behind it.
            Bound::Included(key) => Bound::Excluded(key),
            Bound::Excluded(key) => Bound::Included(key),
            Bound::Unbounded => Bound::Unbounded,
        };
        let (at, end) = (self.place(start, (0, 0)), self.place(end, (self.runs.len(), 0)));
        Range { runs: Arc::clone(&self.runs), at, end }
    }

    /// All entries, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Slice, &Change)> {
        self.runs.iter().flat_map(|run| run.chunk.keys.iter().zip(&run.chunk.changes))
    }
}

/// Entries of a range. It owns what it shows.
#[derive(Debug)]
pub(super) struct Range {
    runs: Arc<Vec<Run>>,
    /// Run and place of the next entry; the place may be just behind its run.
    at: (usize, usize),
    end: (usize, usize),
}

impl Range {
    /// The next entry.
    pub(super) fn peek(&self) -> Option<(&Slice, &Change)> {
        let (mut run, mut place) = self.at;
        if self.runs.get(run)?.chunk.keys.len() <= place {
            (run, place) = (run + 1, 0);
        }
        if (run, place) >= self.end {
            return None;
        }
        let chunk = &self.runs.get(run)?.chunk;
        chunk.keys.get(place).zip(chunk.changes.get(place))
    }

    /// Passes the next entry.
    pub(super) fn advance(&mut self) {
        let (run, place) = self.at;
        let behind = self.runs.get(run).is_none_or(|run| run.chunk.keys.len() <= place);
        self.at = if behind { (run + 1, 1) } else { (run, place + 1) };
    }
}

#[cfg(test)]
#[path = "young_tests.rs"]
mod tests;
