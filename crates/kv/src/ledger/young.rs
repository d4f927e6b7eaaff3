//! The youngest part of a ledger: a sorted map in memory whose clones are free and do not change.
//!
//! Two levels: a sorted list of *runs*, each a [`Chunk`] of a few entries with the tag of its first key. What a search
//! costs is the memory it waits for, one place after the other: a skip list or a tree of nodes follows a dozen pointers,
//! and a binary search over keys is no better once they are many. So the runs are searched by their tags, eight bytes from where
//! their first keys begin to differ, which lie in a list of their own.
//!
//! A clone shares everything; a change copies what is shared of its way down, one list of runs and one chunk at the
//! most, so a reader who holds the whole map costs its writer little, and one who let go costs nothing.
//!
//! A key is here with its newest change only. A removal is an entry too: it hides what older parts of the ledger have.
//!
//! May use: `chunk.rs`. Must not know: tables, the disk.

use std::ops::Bound;
use std::sync::Arc;

use journal::Position;

use super::chunk::{CHUNK_MAX, Chunk, tag};
use crate::coming::{Hint, Step};
use crate::key::common_bytes;

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change<'a> {
    /// Its value; `None` when it was removed.
    pub(super) value: Option<&'a [u8]>,
    /// Position of the change.
    pub(super) position: Position,
}

/// The map.
#[derive(Debug, Clone, Default)]
pub(super) struct Young {
    runs: Arc<Runs>,
}

/// Chunks in order, none of them empty.
#[derive(Debug, Clone, Default)]
struct Runs {
    /// What all first keys begin with.
    shared: Vec<u8>,
    /// Tags of the first keys, behind what is shared.
    tags: Vec<u64>,
    chunks: Vec<Arc<Chunk>>,
    /// About how much memory the chunks take.
    bytes: u64,
}

impl Runs {
    /// Index of the run in which `key` is or belongs.
    fn of(&self, key: &[u8]) -> usize {
        let skip = self.shared.len();
        let begins = key.get(..skip).unwrap_or(key);
        if *begins != *self.shared {
            return if *begins < *self.shared { 0 } else { self.chunks.len().saturating_sub(1) };
        }
        let wanted = tag(key, skip);
        let low = self.tags.partition_point(|tag| *tag < wanted);
        let same = self.tags.iter().skip(low).take_while(|tag| **tag == wanted).count();
        let ties = self.chunks.get(low..low + same).unwrap_or_default();
        (low + ties.partition_point(|chunk| chunk.first() <= key)).saturating_sub(1)
    }

    /// Takes note that the first key of the run at `at` is another than before, or that the run is new.
    fn retag(&mut self, at: usize) {
        let (Some(first), Some(last), Some(here)) = (self.chunks.first(), self.chunks.last(), self.chunks.get(at))
        else {
            return;
        };
        let (first, last) = (first.first(), last.first());
        let common = common_bytes(first, last);
        if self.chunks.len() > 1 && common >= self.shared.len() && first.starts_with(&self.shared) {
            let tag = tag(here.first(), self.shared.len());
            self.tags.iter_mut().skip(at).take(1).for_each(|to| *to = tag);
            return;
        }
        self.shared = first.get(..common).unwrap_or_default().to_vec();
        self.tags.clear();
        self.tags.extend(self.chunks.iter().map(|chunk| tag(chunk.first(), common)));
    }

    fn insert(&mut self, at: usize, chunk: Chunk) {
        self.bytes += chunk.cost();
        self.tags.insert(at, 0);
        self.chunks.insert(at, Arc::new(chunk));
        self.retag(at);
    }

    /// Notes what became of `key`, which belongs to the run at `at`; false if that one has no room and is to be split first.
    fn set(&mut self, at: usize, key: &[u8], change: &Change<'_>) -> bool {
        let is_last = at + 1 >= self.chunks.len();
        let Some(shared) = self.chunks.get_mut(at) else {
            self.insert(0, Chunk::new(std::iter::once((key, *change))));
            return true;
        };
        let place = shared.search(key);
        if place.is_err() && shared.len() >= CHUNK_MAX {
            // Keys that come in order leave full chunks behind, not halves.
            let is_behind_all = is_last && place == Err(CHUNK_MAX);
            if is_behind_all {
                self.insert(at + 1, Chunk::new(std::iter::once((key, *change))));
            }
            return is_behind_all;
        }
        // A copy leaves out what is dead.
        let before = shared.cost();
        let chunk = Arc::make_mut(shared);
        match place {
            Ok(place) => chunk.replace(place, change),
            Err(place) => chunk.insert(place, key, change),
        }
        self.bytes = self.bytes - before + chunk.cost();
        if place == Err(0) {
            self.retag(at);
        }
        true
    }

    fn split(&mut self, at: usize) {
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let (lower, upper) = chunk.split();
        self.bytes = self.bytes - chunk.cost() + lower.cost();
        *chunk = Arc::new(lower);
        self.insert(at + 1, upper);
    }
}

impl Young {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.chunks.is_empty()
    }

    /// About how much memory the entries take.
    pub(super) fn bytes(&self) -> u64 {
        self.runs.bytes
    }

    /// What last became of `key`, if this map knows.
    pub(super) fn get(&self, key: &[u8]) -> Option<Change<'_>> {
        let chunk = self.runs.chunks.get(self.runs.of(key))?;
        let place = chunk.search(key).ok()?;
        chunk.at(place).map(|(_, change)| change)
    }

    /// Fetches what looking for `key` looks at.
    pub(super) fn fetch(&self, key: &[u8], step: Step, hint: &mut Hint) {
        if step == Step::First {
            hint.run = self.runs.of(key);
        }
        if let Some(chunk) = self.runs.chunks.get(hint.run) {
            chunk.fetch(key, step, &mut hint.place);
        }
    }

    /// Notes what became of `key`, instead of what was noted before.
    pub(super) fn set(&mut self, key: &[u8], change: &Change<'_>) {
        let runs = Arc::make_mut(&mut self.runs);
        let at = runs.of(key);
        if !runs.set(at, key, change) {
            runs.split(at);
            let is_set = runs.set(runs.of(key), key, change);
            assert!(is_set, "a half of a chunk has room");
        }
    }

    /// Where the first entry at or behind `bound` is: its run, and its place there.
    fn place(&self, bound: Bound<&[u8]>, unbounded: (usize, usize)) -> (usize, usize) {
        let (key, behind) = match bound {
            Bound::Unbounded => return unbounded,
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
        };
        let run = self.runs.of(key);
        let place = self.runs.chunks.get(run).map_or(0, |chunk| match chunk.search(key) {
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
        let (at, end) = (self.place(start, (0, 0)), self.place(end, (self.runs.chunks.len(), 0)));
        Range { runs: Arc::clone(&self.runs), next: at, end, at: (usize::MAX, 0) }
    }

    /// All entries, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Change<'_>)> {
        self.runs.chunks.iter().flat_map(|chunk| chunk.iter())
    }
}

/// Entries of a range, removals too. It owns what it shows, and stands on an entry once [`Range::advance`] said so.
#[derive(Debug)]
pub(super) struct Range {
    runs: Arc<Runs>,
    /// Run and place of the entry it stands on.
    at: (usize, usize),
    /// Run and place of the next entry; the place may be just behind its run.
    next: (usize, usize),
    end: (usize, usize),
}

impl Range {
    /// What it stands on.
    pub(super) fn entry(&self) -> Option<(&[u8], Change<'_>)> {
        self.runs.chunks.get(self.at.0)?.at(self.at.1)
    }

    /// Whether there never is anything to stand on, as far as that is known without stepping.
    pub(super) fn is_empty(&self) -> bool {
        self.next >= self.end
    }

    /// Whether that is a removal.
    pub(super) fn is_removal(&self) -> bool {
        self.entry().is_some_and(|(_, change)| change.value.is_none())
    }

    /// Steps to the next entry; false when there is none.
    pub(super) fn advance(&mut self) -> bool {
        let (run, place) = self.next;
        let is_behind = self.runs.chunks.get(run).is_some_and(|chunk| chunk.len() <= place);
        let next = if is_behind { (run + 1, 0) } else { (run, place) };
        if next >= self.end || next.0 >= self.runs.chunks.len() {
            return false;
        }
        self.at = next;
        self.next = (next.0, next.1 + 1);
        true
    }

    pub(super) fn key(&self) -> &[u8] {
        let chunk = self.runs.chunks.get(self.at.0);
        chunk.and_then(|chunk| chunk.key(self.at.1)).unwrap_or_default()
    }
}

#[cfg(test)]
#[path = "young_tests.rs"]
mod tests;
