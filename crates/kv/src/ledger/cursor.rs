//! A range over all parts of one or more ledgers: the youngest part of a ledger that knows a key says what became of it.
//!
//! A query asks every partition, and each has several parts. They are merged all at once, by tags: merging each ledger's by
//! itself, and then the ledgers, compared and copied everything twice.
//!
//! May use: the parts of ledgers. Must not know: what is asked for.

use std::sync::Arc;

use super::block::Split;
use super::disk::Disk;
use super::memory::Copies;
use super::tables::RunEntries;
use super::tournament::{Runner, Tournament};
use super::{Bounds, young};
use crate::error::{Error, Result};

/// Bytes of a key that few exceed.
const KEY_USUAL: usize = 128;

/// One part's entries of a range.
pub(super) enum Part {
    /// Of a map in memory.
    Young(young::Range),
    /// Of a run of tables.
    Run(RunEntries),
    /// Of a ledger that is nothing but a map.
    Copies(Copies),
}

impl Part {
    fn advance(&mut self, bounds: &Bounds) -> Result<bool> {
        match self {
            Self::Young(range) => Ok(range.advance()),
            Self::Run(run) => run.advance(bounds),
            Self::Copies(copies) => Ok(copies.advance()),
        }
    }

    fn key(&self) -> Split<'_> {
        match self {
            Self::Young(range) => Split::whole(range.key()),
            Self::Run(run) => run.key(),
            Self::Copies(copies) => Split::whole(copies.entry().0),
        }
    }

    /// The tag of the key behind its first `shared` bytes.
    fn tag(&self, shared: usize) -> u128 {
        match self {
            Self::Run(run) => run.tag(shared),
            _ => self.key().tag(shared),
        }
    }

    /// No value when the key was removed.
    fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Young(range) => range.entry().and_then(|(_, change)| change.value),
            Self::Run(run) => run.value(),
            Self::Copies(copies) => Some(copies.entry().1),
        }
    }

    fn is_removal(&self) -> bool {
        match self {
            Self::Young(range) => range.is_removal(),
            Self::Run(run) => run.is_removal(),
            Self::Copies(_) => false,
        }
    }
}

/// Goes through the entries of a range, ascending. It owns what it shows, which does not change while it lives, and stands on
/// an entry once [`Cursor::advance`] said so.
pub struct Cursor {
    bounds: Bounds,
    /// Those of each ledger one behind the other, younger ones first.
    parts: Vec<Part>,
    /// Where each ledger's parts end, and what hears of damage there.
    ledgers: Vec<(usize, Option<Arc<Disk>>)>,
    order: Tournament,
    is_begun: bool,
    shows_removals: bool,
    /// The key it stands on, if it has come to one, and its tag.
    key: Vec<u8>,
    tag: u128,
}

impl Cursor {
    /// Over ledgers that are still to be added.
    #[must_use]
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            parts: Vec::new(),
            ledgers: Vec::new(),
            order: Tournament::default(),
            is_begun: false,
            shows_removals: false,
            key: Vec::with_capacity(KEY_USUAL),
            tag: 0,
        }
    }

    /// Shows keys that were removed, too.
    pub(super) fn with_removals(self) -> Self {
        Self { shows_removals: true, ..self }
    }

    /// From where to where it goes.
    pub(super) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Adds what one more ledger has there, younger parts first. No two ledgers may have the same key there: it would be taken for one.
    pub(super) fn add(&mut self, disk: Option<Arc<Disk>>, parts: impl Iterator<Item = Part>) {
        self.parts.extend(parts);
        self.ledgers.push((self.parts.len(), disk));
    }

    /// Steps to the next entry, the first one at first; false when there is none.
    ///
    /// # Errors
    /// `Ledger` when stored bytes do not read back. Behind that nothing is shown: it would look as if there was nothing between.
    pub fn advance(&mut self) -> Result<bool> {
        self.step().inspect_err(|_| self.order.end())
    }

    fn step(&mut self) -> Result<bool> {
        match self.order.first() {
            Some(first) => self.pass(first.number())?,
            None if !self.is_begun => self.begin()?,
            None => return Ok(false),
        }
        while let Some(first) = self.order.first() {
            let Some(part) = self.parts.get(to_index(first.number())) else { break };
            if !self.is_older(first, part) {
                self.tag = first.tag();
                let key = part.key();
                self.key.clear();
                self.key.extend_from_slice(key.prefix);
                self.key.extend_from_slice(key.rest);
                if self.shows_removals || !part.is_removal() {
                    return Ok(true);
                }
            }
            self.pass(first.number())?;
        }
        Ok(false)
    }

    fn begin(&mut self) -> Result<()> {
        self.is_begun = true;
        self.order = Tournament::of(self.parts.len());
        (0..u32::try_from(self.parts.len()).unwrap_or(u32::MAX)).try_for_each(|number| self.pass(number))?;
        // No key yet: none comes before the first.
        self.tag = self.order.first().map_or(0, |first| !first.tag());
        Ok(())
    }

    /// Whether a part stands on the key that was shown last, of which the youngest knew.
    fn is_older(&self, on: Runner, part: &Part) -> bool {
        on.tag() == self.tag && part.key().compare(Split::whole(&self.key)).is_eq()
    }

    /// Steps on with a part.
    fn pass(&mut self, number: u32) -> Result<()> {
        let Some(part) = self.parts.get_mut(to_index(number)) else { return Ok(()) };
        let runner = match part.advance(&self.bounds) {
            Ok(true) => Runner::on(number, part.tag(self.bounds.shared())),
            Ok(false) => Runner::over(number),
            Err(error) => return Err(self.noted(number, error)),
        };
        let key = |on: Runner| self.parts.get(to_index(on.number())).map_or_else(Split::default, Part::key);
        let younger_first =
            |one: Runner, other: Runner| key(one).compare(key(other)).then(one.number().cmp(&other.number())).is_lt();
        self.order.play(runner, younger_first);
        Ok(())
    }

    fn noted(&self, number: u32, error: Error) -> Error {
        match self.ledgers.get(self.ledger_of(to_index(number))) {
            Some((_, Some(disk))) => disk.noted(error),
            _ => error,
        }
    }

    fn ledger_of(&self, part: usize) -> usize {
        self.ledgers.partition_point(|(end, _)| *end <= part)
    }

    fn first(&self) -> Option<&Part> {
        self.parts.get(to_index(self.order.first()?.number()))
    }

    /// Which of the ledgers, in the order in which they were added, has the entry it stands on.
    #[must_use]
    pub fn ledger(&self) -> usize {
        self.order.first().map_or(0, |first| self.ledger_of(to_index(first.number())))
    }

    /// Key of the entry it stands on.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Value of the entry it stands on.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.change().unwrap_or_default()
    }

    /// Likewise; nothing when the key was removed.
    pub(super) fn change(&self) -> Option<&[u8]> {
        self.first()?.value()
    }

    /// Key and value of the entry it stands on.
    #[must_use]
    pub fn entry(&self) -> (&[u8], &[u8]) {
        (self.key(), self.value())
    }

    /// The tag of the key it stands on: see [`Bounds::tag`].
    #[must_use]
    pub fn tag(&self) -> u128 {
        self.tag
    }
}

fn to_index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "cursor_tests.rs"]
mod tests;
