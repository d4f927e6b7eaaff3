//! Going through entries within a transaction, a batch at a time: first what it has made of them, then what is committed, each as the
//! transaction has it when it is come to.
//!
//! May use: `within`. Must not know: protocols.

use std::collections::VecDeque;

use ::space::Storage;
use journal::Position;

use super::super::entries::Entry;
use super::super::many::Iteration;
use super::super::route;
use super::super::stop::Stop;
use super::super::wanted::Wanted;
use super::many::Window;
use super::{ReadLock, Within, id_of};
use crate::error::Result;

/// Goes through entries within a transaction: from [`Within::iterate`]. Documents that it has come to and not given are kept in memory.
pub struct WithinIteration {
    wanted: Wanted,
    own: VecDeque<Entry>,
    others: Iteration,
}

impl WithinIteration {
    /// How many entries are kept in memory.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.own.len() + self.others.kept()
    }

    /// As [`Entries::until`](super::super::Entries::until), for the batches from now on.
    pub fn set_stop(&mut self, stop: Stop) {
        self.others.set_stop(stop);
    }
}

impl Within<'_> {
    /// Goes through all entries that match, up to the query's limit, as this transaction would have them: [`Within::next_of`] has the
    /// batches. What it writes anew after this is not come to; what it changes or takes is shown as it is by then, or not at all.
    ///
    /// # Errors
    /// As [`Entries::iterate`](super::super::Entries::iterate).
    pub fn iterate(&mut self, wanted: &Wanted) -> Result<WithinIteration> {
        self.begin()?;
        let limit = wanted.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let own: VecDeque<Entry> = self.own_all(wanted).into_iter().take(limit).map(Entry::of_own).collect();
        let left = wanted.limit.map(|limit| limit - own.len() as u64);
        let others = self.entries.iterate(&Wanted { limit: left, ..self.others(wanted) })?;
        Ok(WithinIteration { wanted: Wanted { limit: None, query: None, ..wanted.clone() }, own, others })
    }

    /// The next entries of an iteration of this transaction, at most so many; none at the end. They are locked as asked; with a lock, those
    /// that another transaction has locked are passed over.
    ///
    /// # Errors
    /// As [`Within::read`].
    pub fn next_of(&mut self, iteration: &mut WithinIteration, lock: ReadLock, max: usize) -> Result<Vec<Entry>> {
        let holder = self.begin()?;
        if lock != ReadLock::None {
            self.check_durable()?;
        }
        let mut found = Vec::new();
        while found.len() < max {
            let wanted = max - found.len();
            let mut batch: Vec<Entry> = iteration.own.drain(..iteration.own.len().min(wanted)).collect();
            if batch.is_empty() {
                batch = iteration.others.next(wanted)?;
            }
            if batch.is_empty() {
                break;
            }
            let mut now = Vec::with_capacity(batch.len());
            for entry in batch {
                now.extend(self.as_it_is(&iteration.wanted, entry)?);
            }
            let newest = now.iter().map(|entry| entry.version).max().unwrap_or(Position::ZERO);
            let is_durable = self.entries.definition().storage == Storage::Durable;
            self.show(is_durable.then_some(newest))?;
            found.extend(self.locked_of(&iteration.wanted, now, Window::ALL, (holder, lock))?);
        }
        Ok(found)
    }

    /// What this transaction has made of an entry since it was found: nothing, if it is gone or not wanted any more.
    fn as_it_is(&mut self, wanted: &Wanted, found: Entry) -> Result<Option<Entry>> {
        let definition = self.entries.definition();
        let partition = route::of_document(self.entries.inner(), &definition, &found.document)?.id;
        let Some(staged) = self.staged(&id_of(&definition, &found.document), partition) else { return Ok(Some(found)) };
        let now_ms = self.entries.store.now_ms();
        let seen = staged.seen(now_ms).filter(|(document, _)| wanted.matches(&definition, document.fields()));
        Ok(seen.map(|(document, ends)| Entry::of_own((document.clone(), *ends, staged.clone()))))
    }
}
