//! Going through entries within a transaction, a batch at a time: first what it has made of them, then what is committed, each as the
//! transaction has it when it is come to.
//!
//! May use: `within`. Must not know: protocols.

use std::collections::{BTreeSet, VecDeque};

use ::space::TypeId;
use journal::Position;

use super::super::entries::Entry;
use super::super::locks::Holder;
use super::super::many::Iteration;
use super::super::route;
use super::super::stop::Stop;
use super::super::wanted::Wanted;
use super::many::Window;
use super::{ReadLock, Within, id_of};
use crate::error::{Error, ErrorKind, Result};

/// Goes through entries within a transaction: from [`Within::iterate`]. Documents that it has come to and not given are kept in memory.
pub struct WithinIteration {
    /// Whose it is, and of which type.
    of: (Holder, TypeId),
    wanted: Wanted,
    /// How many more entries the query's limit lets it give.
    left: usize,
    own: VecDeque<Entry>,
    /// What tells those from others, which are found among what is committed once more.
    own_keys: BTreeSet<Vec<u8>>,
    others: Iteration,
}

impl WithinIteration {
    /// How many entries are kept in memory.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.own.len() + self.own_keys.len() + self.others.kept()
    }

    /// As [`Entries::until`](super::super::Entries::until), for the batches from now on.
    pub fn set_stop(&mut self, stop: Stop) {
        self.others.set_stop(stop);
    }
}

impl Within<'_> {
    /// Goes through all entries that match, up to the query's limit, as this transaction would have them: [`Within::next_of`] has the
    /// batches. What it writes anew after this, or makes match, may not be come to; what it changes or takes else is shown as it is by then,
    /// or not at all.
    ///
    /// # Errors
    /// As [`Entries::iterate`](super::super::Entries::iterate).
    pub fn iterate(&mut self, wanted: &Wanted) -> Result<WithinIteration> {
        let (holder, definition) = (self.begin()?, self.entries.kind.definition());
        let own: VecDeque<Entry> = self.own_all(wanted).into_iter().map(Entry::of_own).collect();
        let own_keys = own.iter().map(|entry| definition.entry_key(entry.document.fields())).collect();
        let others = self.entries.iterate(&Wanted { limit: None, ..wanted.clone() })?;
        let left = wanted.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let wanted = Wanted { limit: None, query: None, ..wanted.clone() };
        Ok(WithinIteration { of: (holder, self.entries.kind.of), wanted, left, own, own_keys, others })
    }

    /// The next entries of an iteration of this transaction, at most so many; none at the end. They are locked as asked; with a lock, those
    /// that another transaction has locked are passed over.
    ///
    /// # Errors
    /// As [`Within::read`]; `Invalid` when the iteration is another transaction's, or of another type.
    pub fn next_of(&mut self, iteration: &mut WithinIteration, lock: ReadLock, max: usize) -> Result<Vec<Entry>> {
        let holder = self.begin()?;
        if iteration.of != (holder, self.entries.kind.of) {
            let text = "the iteration is another transaction's, or of another type: begin one here";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let (max, mut found) = (max.min(iteration.left), Vec::new());
        while found.len() < max {
            let now = self.batch(iteration, max - found.len())?;
            let Some(now) = now else { break };
            let newest = now.iter().map(|entry| entry.version).max().unwrap_or(Position::ZERO);
            let is_durable = self.entries.is_durable();
            self.show(is_durable.then_some(newest))?;
            found.extend(self.locked_of(&iteration.wanted, now, Window::ALL, (holder, lock))?);
        }
        iteration.left -= found.len();
        Ok(found)
    }

    /// Up to so many further entries, less those that are gone or were given; `None` at the end.
    fn batch(&mut self, iteration: &mut WithinIteration, max: usize) -> Result<Option<Vec<Entry>>> {
        let definition = self.entries.kind.definition();
        let mut batch: Vec<Entry> = iteration.own.drain(..iteration.own.len().min(max)).collect();
        if batch.is_empty() {
            batch = iteration.others.next(max)?;
            if batch.is_empty() {
                iteration.own_keys.clear();
                return Ok(None);
            }
            batch.retain(|entry| !iteration.own_keys.contains(&definition.entry_key(entry.document.fields())));
        }
        let mut now = Vec::with_capacity(batch.len());
        for entry in batch {
            now.extend(self.as_it_is(&iteration.wanted, entry)?);
        }
        Ok(Some(now))
    }

    /// What this transaction has made of an entry since it was found: nothing, if it is gone or not wanted any more.
    fn as_it_is(&mut self, wanted: &Wanted, found: Entry) -> Result<Option<Entry>> {
        let definition = self.entries.kind.definition();
        let partition = route::of_document(self.entries.inner(), &definition, &found.document)?.id;
        let Some(staged) = self.staged(&id_of(&definition, &found.document), partition) else { return Ok(Some(found)) };
        let now_ms = self.entries.store.now_ms();
        let seen = staged.seen(now_ms).filter(|(document, _)| wanted.matches(&definition, document.fields()));
        Ok(seen.map(|(document, ends)| Entry::of_own((document.clone(), *ends, staged.clone()))))
    }
}
