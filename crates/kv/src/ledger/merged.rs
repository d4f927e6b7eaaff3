//! A range over all parts of a ledger: the youngest part that knows a key says what became of it.
//!
//! The parts are kept in the order of their next keys. Most of what a range shows comes from one of them, the largest, so
//! that stepping on usually compares with one other and leaves the order as it is.
//!
//! May use: the young map, tables. Must not know: what is asked for.

use std::cmp::Ordering;
use std::sync::Arc;

use super::block::Split;
use super::disk::Disk;
use super::tables::RunEntries;
use super::{Bounds, Cursor, young};
use crate::error::Result;

/// Bytes of a key that few exceed.
const KEY_USUAL: usize = 128;

/// One part's entries of a range.
pub(super) enum Part {
    /// Of a map in memory.
    Young(young::Range),
    /// Of a run of tables.
    Run(RunEntries),
}

impl Part {
    fn advance(&mut self) -> Result<bool> {
        match self {
            Self::Young(range) => Ok(range.advance()),
            Self::Run(run) => run.advance(),
        }
    }

    fn key(&self) -> Split<'_> {
        match self {
            Self::Young(range) => Split::whole(range.key()),
            Self::Run(run) => run.key(),
        }
    }

    /// No value when the key was removed.
    fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Young(range) => range.entry().and_then(|(_, change)| change.value),
            Self::Run(run) => run.value(),
        }
    }

    fn is_removal(&self) -> bool {
        match self {
            Self::Young(range) => range.entry().is_some_and(|(_, change)| change.value.is_none()),
            Self::Run(run) => run.is_removal(),
        }
    }

    /// Changes whenever the beginning of the keys may be another.
    fn blocks(&self) -> u64 {
        match self {
            Self::Young(_) => 0,
            Self::Run(run) => run.blocks(),
        }
    }
}

/// Entries of all parts, ascending, each key once; removals too. It stands on an entry once [`Merging::advance`] said so.
pub(super) struct Merging {
    bounds: Bounds,
    /// Younger ones first.
    parts: Vec<Part>,
    /// Those that have something left, by the keys they stand on, of the same key the younger first.
    order: Vec<Standing>,
    /// Nothing is read before somebody asks.
    is_started: bool,
}

/// On which key a part stands.
#[derive(Clone, Copy)]
struct Standing {
    tag: u128,
    part: usize,
}

impl Merging {
    pub(super) fn new(bounds: Bounds, parts: Vec<Part>) -> Self {
        let order = Vec::with_capacity(parts.len());
        Self { bounds, parts, order, is_started: false }
    }

    fn first(&self) -> Option<&Part> {
        self.parts.get(self.order.first()?.part)
    }

    /// How the keys that two parts stand on compare.
    fn compare(&self, one: Standing, other: Standing) -> Ordering {
        let key = |on: Standing| self.parts.get(on.part).map_or_else(Split::default, Part::key);
        one.tag.cmp(&other.tag).then_with(|| key(one).compare(key(other)))
    }

    fn start(&mut self) -> Result<()> {
        self.is_started = true;
        for part in (0..self.parts.len()).rev() {
            self.order.insert(0, Standing { tag: 0, part });
            self.step(0)?;
        }
        Ok(())
    }

    /// Steps on with the part at a place, and puts it where it belongs among those behind.
    fn step(&mut self, mut place: usize) -> Result<()> {
        let on = self.order.get_mut(place).and_then(|on| Some((self.parts.get_mut(on.part)?, on)));
        let Some((part, on)) = on else { return Ok(()) };
        if !part.advance()? {
            self.order.remove(place);
            return Ok(());
        }
        on.tag = part.key().tag(self.bounds.shared());
        let standing = *on;
        while let Some(next) = self.order.get(place + 1).copied() {
            // Of the same key the younger comes first.
            if self.compare(standing, next).then(standing.part.cmp(&next.part)).is_lt() {
                break;
            }
            self.order.swap(place, place + 1);
            place += 1;
        }
        Ok(())
    }

    /// Passes the key that comes first, in all parts that know it.
    fn pass(&mut self) -> Result<()> {
        while let [first, second, ..] = self.order.as_slice()
            && self.compare(*first, *second).is_eq()
        {
            self.step(1)?;
        }
        if self.order.is_empty() { Ok(()) } else { self.step(0) }
    }

    /// Steps to the next entry, the first one at first; false when there is none.
    pub(super) fn advance(&mut self) -> Result<bool> {
        if self.is_started {
            self.pass()?;
        } else {
            self.start()?;
        }
        Ok(!self.order.is_empty())
    }

    pub(super) fn key(&self) -> Split<'_> {
        self.first().map_or_else(Split::default, Part::key)
    }

    /// No value when the key was removed.
    pub(super) fn value(&self) -> Option<&[u8]> {
        self.first().and_then(Part::value)
    }

    fn tag(&self) -> u128 {
        self.order.first().map_or(0, |first| first.tag)
    }

    /// Behind what cannot be read nothing is shown: it would look as if there was nothing between.
    fn end(&mut self) {
        self.order.clear();
    }
}

/// Where a key's beginning was taken from.
type Origin = (usize, u64);

/// What a range shows: removed keys are left out, and keys are in one piece.
pub(super) struct Merged {
    disk: Arc<Disk>,
    merging: Merging,
    key: Vec<u8>,
    /// What the key begins with, and how many bytes that is: entries of the same block share it.
    begin: Option<(Origin, usize)>,
}

impl Merged {
    pub(super) fn new(disk: Arc<Disk>, bounds: Bounds, parts: Vec<Part>) -> Self {
        Self { disk, merging: Merging::new(bounds, parts), key: Vec::with_capacity(KEY_USUAL), begin: None }
    }

    fn next_shown(&mut self) -> Result<bool> {
        while self.merging.advance()? {
            let Some(first) = self.merging.order.first().copied() else { break };
            let Some(part) = self.merging.parts.get(first.part).filter(|part| !part.is_removal()) else { continue };
            let (key, origin) = (part.key(), (first.part, part.blocks()));
            match self.begin {
                Some((of, bytes)) if of == origin => self.key.truncate(bytes),
                _ => {
                    self.key.clear();
                    self.key.extend_from_slice(key.prefix);
                    self.begin = Some((origin, key.prefix.len()));
                }
            }
            self.key.extend_from_slice(key.rest);
            return Ok(true);
        }
        Ok(false)
    }
}

impl Cursor for Merged {
    fn advance(&mut self) -> Result<bool> {
        self.next_shown().map_err(|error| {
            self.merging.end();
            self.disk.noted(error)
        })
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        (&self.key, self.merging.value().unwrap_or_default())
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn tag(&self) -> u128 {
        self.merging.tag()
    }
}
