//! A range over all parts of a ledger: the youngest part that knows a key says what became of it.
//!
//! The parts are kept in the order of their next keys. Most of what a range shows comes from one of them, the largest, so
//! that stepping on usually compares with one other and leaves the order as it is.
//!
//! May use: the young map, tables. Must not know: what is asked for.

use std::cmp::Ordering;
use std::sync::Arc;

use super::lsm::Tree;
use super::tables::RunEntries;
use super::{Bounds, Cursor, young};
use crate::error::Result;

/// One part's entries of a range.
pub(super) enum Part {
    /// Of a map in memory.
    Young(young::Range),
    /// Of a run of tables.
    Run(RunEntries),
}

impl Part {
    fn advance(&mut self) -> lsm_tree::Result<bool> {
        match self {
            Self::Young(range) => Ok(range.advance()),
            Self::Run(run) => run.advance(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Self::Young(range) => range.key(),
            Self::Run(run) => run.key(),
        }
    }

    /// Key and value; no value when the key was removed.
    fn entry(&self) -> (&[u8], Option<&[u8]>) {
        match self {
            Self::Young(range) => range.entry().map_or((&[], None), |(key, change)| (key, change.value)),
            Self::Run(run) => run.entry(),
        }
    }

    fn is_removal(&self) -> bool {
        match self {
            Self::Young(range) => range.entry().is_some_and(|(_, change)| change.value.is_none()),
            Self::Run(run) => run.is_removal(),
        }
    }
}

/// Entries of all parts, ascending; removed ones are left out.
pub(super) struct Merged {
    tree: Arc<Tree>,
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

impl Merged {
    pub(super) fn new(tree: Arc<Tree>, bounds: Bounds, parts: Vec<Part>) -> Self {
        let order = Vec::with_capacity(parts.len());
        Self { tree, bounds, parts, order, is_started: false }
    }

    fn first(&self) -> Option<&Part> {
        self.parts.get(self.order.first()?.part)
    }

    /// How the keys that two parts stand on compare.
    fn compare(&self, one: Standing, other: Standing) -> Ordering {
        let key = |on: Standing| self.parts.get(on.part).map(Part::key);
        one.tag.cmp(&other.tag).then_with(|| key(one).cmp(&key(other)))
    }

    fn start(&mut self) -> lsm_tree::Result<()> {
        self.is_started = true;
        for part in (0..self.parts.len()).rev() {
            self.order.insert(0, Standing { tag: 0, part });
            self.step(0)?;
        }
        Ok(())
    }

    /// Steps on with the part at a place, and puts it where it belongs among those behind.
    fn step(&mut self, mut place: usize) -> lsm_tree::Result<()> {
        let on = self.order.get_mut(place).and_then(|on| Some((self.parts.get_mut(on.part)?, on)));
        let Some((part, on)) = on else { return Ok(()) };
        if !part.advance()? {
            self.order.remove(place);
            return Ok(());
        }
        on.tag = self.bounds.tag(part.key());
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
    fn pass(&mut self) -> lsm_tree::Result<()> {
        while let [first, second, ..] = self.order.as_slice()
            && self.compare(*first, *second).is_eq()
        {
            self.step(1)?;
        }
        if self.order.is_empty() { Ok(()) } else { self.step(0) }
    }

    fn next_shown(&mut self) -> lsm_tree::Result<bool> {
        if self.is_started {
            self.pass()?;
        } else {
            self.start()?;
        }
        while let Some(part) = self.first() {
            if !part.is_removal() {
                return Ok(true);
            }
            self.pass()?;
        }
        Ok(false)
    }
}

impl Cursor for Merged {
    fn advance(&mut self) -> Result<bool> {
        self.next_shown().map_err(|error| {
            // Behind what cannot be read nothing is shown: it would look as if there was nothing between.
            self.order.clear();
            self.tree.failed(&error)
        })
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        let (key, value) = self.first().map_or((&[][..], None), Part::entry);
        (key, value.unwrap_or_default())
    }

    fn tag(&self) -> u128 {
        self.order.first().map_or(0, |first| first.tag)
    }
}
