//! The youngest part of a ledger: a sorted map in memory whose clones are free and do not change.
//!
//! Two levels: a sorted list of *runs*, each with its first key and a chunk of up to [`CHUNK_MAX`] entries. What a search
//! costs is the memory it waits for, one place after the other: a skip list or a tree of nodes follows a dozen pointers,
//! and a binary search over keys is no better once they are many. So a chunk has a *tag* of each key in order, eight bytes
//! from where the chunk's keys begin to differ. One tag of each line is looked at, which waits once for all of them, then those
//! of a line, and usually one of the keys. Entries lie in the order of their arrival, so that an insertion moves tags only.
//!
//! A clone shares everything; a change copies what is shared of its way down, one list of runs and one chunk at the
//! most, so a reader who holds the whole map costs its writer little, and one who let go costs nothing.
//!
//! A key is here with its newest change only. A removal is an entry too: it hides what older parts of the ledger have.
//!
//! May use: nothing. Must not know: the tree, the disk.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use journal::Position;

use super::Slice;
use crate::key::common_bytes;

/// Entries of a chunk at which it is split. Each search looks at half a kilobyte of tags then.
const CHUNK_MAX: usize = 64;
/// Tags that are looked at together: those of a line of the processor's cache.
const LINE_TAGS: usize = 8;
/// Bytes that an entry costs beside key and value: its place in a chunk that is two thirds full, and the heads of what
/// it points to.
const OVERHEAD_BYTES: usize = 128;

/// What became of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// Its value; `None` when it was removed.
    pub(super) value: Option<Slice>,
    /// Position of the change.
    pub(super) position: Position,
}

/// Entries that follow each other.
#[derive(Debug)]
struct Chunk {
    /// Bytes that all keys begin with.
    skip: usize,
    /// Tags of the keys, ascending; behind them nothing that matters.
    tags: [u64; CHUNK_MAX],
    /// Where the entry of each tag is.
    order: [u8; CHUNK_MAX],
    entries: Vec<(Slice, Change)>,
}

impl Clone for Chunk {
    fn clone(&self) -> Self {
        let mut entries = Vec::with_capacity(CHUNK_MAX);
        entries.extend_from_slice(&self.entries);
        Self { entries, ..*self }
    }
}

#[derive(Debug, Clone)]
struct Run {
    /// The chunk's least key.
    first: Slice,
    chunk: Arc<Chunk>,
}

/// The map.
#[derive(Debug, Clone, Default)]
pub(super) struct Young {
    runs: Arc<Vec<Run>>,
    bytes: u64,
}

/// The eight bytes of `key` behind the first `skip`, as a number of the same order; zeros for what is not there.
fn tag(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    rest.iter().zip([56, 48, 40, 32, 24, 16, 8]).fold(0, |tag, (byte, shift)| tag | u64::from(*byte) << shift)
}

impl Chunk {
    /// A chunk of ascending entries.
    fn new(ascending: impl Iterator<Item = (Slice, Change)>) -> Self {
        let mut entries = Vec::with_capacity(CHUNK_MAX);
        entries.extend(ascending);
        let order = std::array::from_fn(|place| u8::try_from(place).expect("a chunk has at most 256 entries"));
        let mut chunk = Self { skip: 0, tags: [0; CHUNK_MAX], order, entries };
        if let (Some((first, _)), Some((last, _))) = (chunk.entries.first(), chunk.entries.last()) {
            chunk.retag(common_bytes(first, last));
        }
        chunk
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes the tags anew, from the first `skip` bytes on.
    fn retag(&mut self, skip: usize) {
        self.skip = skip;
        for (to, at) in self.tags.iter_mut().zip(self.order).take(self.entries.len()) {
            *to = self.entries.get(usize::from(at)).map_or(0, |(key, _)| tag(key, skip));
        }
    }

    /// The entry at a place in the order of keys.
    fn at(&self, place: usize) -> Option<(&Slice, &Change)> {
        let (key, change) = self.entries.get(usize::from(*self.order.get(place)?))?;
        Some((key, change))
    }

    /// The place of `key`, or where it belongs. `first` is the chunk's least key.
    fn search(&self, first: &[u8], key: &[u8]) -> Result<usize, usize> {
        let shared = first.get(..self.skip).unwrap_or_default();
        if !key.starts_with(shared) {
            return Err(if *key < *shared { 0 } else { self.len() });
        }
        let wanted = tag(key, self.skip);
        // The first tag of each line of the processor's cache, all at once: a binary search would wait for one line after the
        // other. Then the tags of one line.
        let tags = self.tags.get(..self.len()).unwrap_or_default();
        let lines = tags.iter().step_by(LINE_TAGS).map(|tag| usize::from(*tag < wanted)).sum::<usize>();
        let begin = lines.saturating_sub(1) * LINE_TAGS;
        let behind = tags.get(begin..).unwrap_or_default();
        let mut low = begin + behind.iter().take(LINE_TAGS).map(|tag| usize::from(*tag < wanted)).sum::<usize>();
        let same = tags.get(low..).unwrap_or_default();
        let mut high = low + same.iter().take_while(|tag| **tag == wanted).count();
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.at(middle).map_or(Ordering::Greater, |(found, _)| (**found).cmp(key)) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Inserts an entry where it belongs; there must be room. `first` is the chunk's least key before.
    fn insert(&mut self, first: &[u8], place: usize, key: &[u8], change: Change) {
        let (len, common) = (self.len(), common_bytes(first, key));
        debug_assert!(place <= len && len < CHUNK_MAX, "the caller splits full chunks");
        if common < self.skip {
            self.retag(common);
        }
        self.tags.copy_within(place..len, place + 1);
        self.order.copy_within(place..len, place + 1);
        if let (Some(to), Some(order)) = (self.tags.get_mut(place), self.order.get_mut(place)) {
            *to = tag(key, self.skip);
            *order = u8::try_from(len).expect("a chunk has at most 256 entries");
        }
        self.entries.push((Slice::from(key), change));
    }

    /// The lower and the upper half, in chunks of their own.
    fn split(&self) -> (Self, Self) {
        let ascending = || (0..self.len()).filter_map(|place| self.at(place)).map(|(k, c)| (k.clone(), c.clone()));
        let middle = self.len() / 2;
        (Self::new(ascending().take(middle)), Self::new(ascending().skip(middle)))
    }

    fn run(self) -> Option<Run> {
        Some(Run { first: self.at(0)?.0.clone(), chunk: Arc::new(self) })
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
        let run = self.runs.get(self.run_of(key))?;
        let place = run.chunk.search(&run.first, key).ok()?;
        run.chunk.at(place).map(|(_, change)| change)
    }

    /// Notes what became of `key`, instead of what was noted before.
    pub(super) fn set(&mut self, key: &[u8], change: Change) {
        let at = self.run_of(key);
        self.bytes += cost(key, &change);
        let last = at + 1 >= self.runs.len();
        let runs = Arc::make_mut(&mut self.runs);
        let alone = |change| Chunk::new(std::iter::once((Slice::from(key), change))).run();
        let Some(run) = runs.get_mut(at) else {
            runs.extend(alone(change));
            return;
        };
        let place = match run.chunk.search(&run.first, key) {
            Ok(place) => {
                let chunk = Arc::make_mut(&mut run.chunk);
                let entry = chunk.order.get(place).and_then(|at| chunk.entries.get_mut(usize::from(*at)));
                if let Some((_, old)) = entry {
                    self.bytes -= cost(key, old);
                    *old = change;
                }
                return;
            }
            Err(place) => place,
        };
        if run.chunk.len() < CHUNK_MAX {
            Arc::make_mut(&mut run.chunk).insert(&run.first, place, key, change);
            if place == 0 {
                run.first = Slice::from(key);
            }
        } else if last && place == CHUNK_MAX {
            // Keys that come in order leave full chunks behind, not halves.
            runs.extend(alone(change));
        } else {
            let (lower, upper) = run.chunk.split();
            runs.splice(at..=at, [lower.run(), upper.run()].into_iter().flatten());
            self.bytes -= cost(key, &change);
            self.set(key, change);
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
        let place = self.runs.get(run).map_or(0, |run| match run.chunk.search(&run.first, key) {
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
        Range { runs: Arc::clone(&self.runs), next: at, end, at: (usize::MAX, 0) }
    }

    /// All entries, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Slice, &Change)> {
        self.runs.iter().flat_map(|run| (0..run.chunk.len()).filter_map(|place| run.chunk.at(place)))
    }
}

/// Entries of a range, removals too. It owns what it shows, and stands on an entry once [`Range::advance`] said so.
#[derive(Debug)]
pub(super) struct Range {
    runs: Arc<Vec<Run>>,
    /// Run and place of the entry it stands on.
    at: (usize, usize),
    /// Run and place of the next entry; the place may be just behind its run.
    next: (usize, usize),
    end: (usize, usize),
}

impl Range {
    fn entry(&self) -> Option<(&Slice, &Change)> {
        self.runs.get(self.at.0)?.chunk.at(self.at.1)
    }

    /// Steps to the next entry; false when there is none.
    pub(super) fn advance(&mut self) -> bool {
        let (run, place) = self.next;
        let is_behind = self.runs.get(run).is_some_and(|run| run.chunk.len() <= place);
        let next = if is_behind { (run + 1, 0) } else { (run, place) };
        if next >= self.end || next.0 >= self.runs.len() {
            return false;
        }
        self.at = next;
        self.next = (next.0, next.1 + 1);
        true
    }

    pub(super) fn key(&self) -> &[u8] {
        self.entry().map_or(&[], |(key, _)| key)
    }

    /// The value; `None` when the key was removed.
    pub(super) fn value(&self) -> Option<&[u8]> {
        self.entry()?.1.value.as_deref()
    }
}

#[cfg(test)]
#[path = "young_tests.rs"]
mod tests;
