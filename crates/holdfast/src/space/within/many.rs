//! Reading and changing many entries within a transaction: those that are committed, without what it has taken or changed, and then what it
//! has made of them.
//!
//! May use: `within`. Must not know: protocols.

use std::sync::Arc;

use ::space::{Change, Order, Query};

use super::super::entries::Entry;
use super::super::locks::{Holder, Mode};
use super::super::read::ReadOptions;
use super::super::wait::Purpose;
use super::super::wanted::Wanted;
use super::super::write::WriteOptions;
use super::{ReadLock, Within, by_id_of};
use crate::error::{Error, ErrorKind, Result};

/// Which of the entries that match are answered: so many, behind so many.
#[derive(Clone, Copy)]
pub(super) struct Window {
    skip: usize,
    limit: usize,
}

impl Window {
    pub(super) const ALL: Self = Self { skip: 0, limit: usize::MAX };

    fn of(wanted: &Wanted, max: usize) -> Self {
        let saturated = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let skip = wanted.query.as_deref().map_or(0, |query| saturated(query.window().1));
        Self { skip, limit: wanted.limit.map_or(max, |limit| max.min(saturated(limit))) }
    }
}

/// So many entries that are changed together, and so many bytes of the documents that they become: at the most, or in fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManyChanged {
    /// Entries.
    pub entries: usize,
    /// Bytes of what they become, all together.
    pub bytes: usize,
}

impl Within<'_> {
    /// Reads up to `max` entries as this transaction would have them, in the order of [`Entries::read_many`]; without ORDER BY those
    /// that it has written itself come last. They are locked as asked; with a lock, those that another transaction has locked are passed
    /// over. OFFSET counts entries that match, and locks none of them.
    ///
    /// [`Entries::read_many`]: super::super::Entries::read_many
    ///
    /// # Errors
    /// As [`Within::read`].
    pub fn read_many(&mut self, wanted: &Wanted, lock: ReadLock, max: usize) -> Result<Vec<Entry>> {
        let holder = self.begin()?;
        let window = Window::of(wanted, max);
        let mut ask = window.limit.saturating_add(window.skip);
        loop {
            let (candidates, is_all) = self.candidates(wanted, ask)?;
            let found = self.locked_of(wanted, candidates, window, (holder, lock))?;
            if is_all || found.len() >= window.limit {
                return Ok(found);
            }
            // Others have locked some of them: further ones take their places.
            ask = ask.saturating_mul(2);
        }
    }

    /// Takes up to `max` entries that match and that nobody else has locked, those that it has written itself last, by looking for all of them at once: one by
    /// one, each search goes past all that the transaction has taken before. None by an id, of a type in groups, and of a first-in first-out one as long as this
    /// transaction has entries of its own there, whose turn may be before: those are taken by [`Within::take`].
    ///
    /// # Errors
    /// As [`Within::take`].
    pub fn take_many(&mut self, wanted: &Wanted, max: usize) -> Result<Vec<Entry>> {
        let definition = self.entries.kind.definition();
        let is_one_by_one = match definition.order {
            Order::Any => false,
            Order::Fifo => !self.own_all(wanted).is_empty(),
            Order::Groups(_) => true,
        };
        if is_one_by_one || wanted.id.is_some() {
            return Ok(Vec::new());
        }
        wanted.check_unordered("take")?;
        let found = self.read_many(wanted, ReadLock::Exclusive, max)?;
        let plain = Wanted { limit: None, query: None, ..wanted.clone() };
        let mut taken = Vec::with_capacity(found.len());
        for entry in &found {
            let by_id = by_id_of(&definition, &plain, &entry.document);
            taken.extend(self.take(&by_id, &ReadOptions::default())?);
        }
        Ok(taken)
    }

    /// Changes every entry that matches in place, as this transaction would have it, `max` at the most; returns how many. All are locked
    /// before the first is changed; one that does not match any more when it is locked is left alone.
    ///
    /// # Errors
    /// As [`Within::change`], and those before the error are changed; `Limit` when more than `max` match, and then none is.
    pub fn change_many(
        &mut self,
        wanted: &Wanted,
        changes: &[Change],
        options: &WriteOptions,
        max: usize,
    ) -> Result<u64> {
        let most = ManyChanged { entries: max, bytes: usize::MAX };
        Ok(self.change_up_to(wanted, changes, options, most)?.entries as u64)
    }

    /// As [`Within::change_many`], with a bound on what it takes of memory.
    ///
    /// # Errors
    /// As [`Within::change_many`]; `Limit` also when the documents become more bytes than that.
    pub fn change_up_to(
        &mut self,
        wanted: &Wanted,
        changes: &[Change],
        options: &WriteOptions,
        most: ManyChanged,
    ) -> Result<ManyChanged> {
        let max = most.entries;
        self.begin()?;
        let found = self.read_many(wanted, ReadLock::None, max.saturating_add(1))?;
        if found.len() > max {
            let text = format!(
                "more than {max} entries match, and a transaction changes no more at once: say LIMIT, or change them outside"
            );
            return Err(Error::new(ErrorKind::Limit, text));
        }
        let definition = self.entries.kind.definition();
        let deadline = self.entries.lock_deadline(options.lock_timeout);
        let left = || Some(deadline.since(self.entries.inner().clock.now()));
        let plain = Wanted { limit: None, query: None, ..wanted.clone() };
        let mut locked = Vec::with_capacity(found.len());
        for entry in &found {
            let by_id = by_id_of(&definition, &plain, &entry.document);
            let lock_timeout = left();
            if self.lock(&by_id, lock_timeout)?.is_some() {
                locked.push(by_id);
            }
        }
        let mut done = ManyChanged { entries: 0, bytes: 0 };
        for by_id in &locked {
            // One whose lease has ended meanwhile is gone.
            let Some(changed) = self.change(by_id, changes, options)? else { continue };
            done.entries += 1;
            done.bytes = done.bytes.saturating_add(changed.now.document.as_bytes().len());
            if done.bytes > most.bytes {
                let text = format!("the entries become more than {} bytes together: change fewer at once", most.bytes);
                return Err(Error::new(ErrorKind::Limit, text));
            }
        }
        Ok(done)
    }

    /// The first `max` entries that match, in order, and whether these are all. What is committed is shown as far as nothing locks it.
    fn candidates(&mut self, wanted: &Wanted, max: usize) -> Result<(Vec<Entry>, bool)> {
        // Each part from its beginning: what is passed over is of the whole.
        let unbounded = |query: &Arc<Query>| Arc::new(Query { limit: None, offset: None, ..Query::clone(query) });
        let query = wanted.query.as_ref().map(unbounded);
        let others = Wanted { limit: None, query: query.clone(), ..self.others(wanted) };
        let shown = self.entries.read_many_shown(&others, max)?;
        drop(others);
        let is_durable = self.entries.is_durable();
        self.show(is_durable.then_some(shown.position))?;
        let is_all = shown.value.len() < max;
        let mut entries = shown.value;
        entries.extend(self.own_all(wanted).into_iter().map(Entry::of_own));
        if let Some(query) = query.filter(|query| !query.order.is_empty()) {
            entries.sort_by(|a, b| query.compare(a.document.fields(), b.document.fields()));
        }
        // Behind the last of the others there may be more of them, before its own.
        entries.truncate(if is_all { usize::MAX } else { max });
        Ok((entries, is_all))
    }

    /// Those of the candidates that lie in the window, locked.
    pub(super) fn locked_of(
        &mut self,
        wanted: &Wanted,
        candidates: Vec<Entry>,
        window: Window,
        (holder, lock): (Holder, ReadLock),
    ) -> Result<Vec<Entry>> {
        let mode = match lock {
            ReadLock::None => return Ok(candidates.into_iter().skip(window.skip).take(window.limit).collect()),
            ReadLock::Shared => Mode::Shared,
            ReadLock::Exclusive => Mode::Exclusive,
        };
        let definition = self.entries.kind.definition();
        let plain = Wanted { limit: None, query: None, ..wanted.clone() };
        let mut found = Vec::new();
        for entry in candidates.into_iter().skip(window.skip) {
            if found.len() >= window.limit {
                break;
            }
            let by_id = by_id_of(&definition, &plain, &entry.document);
            if self.own(&by_id).is_some() {
                // It has been locked since it was written.
                found.push(entry);
                continue;
            }
            let at_once = ReadOptions::default();
            let Some(granted) = self.entries.find_or_wait(&by_id, &at_once, Purpose::Lock(holder, mode))? else {
                continue;
            };
            self.show(granted.position)?;
            found.push(granted.entry.into());
        }
        Ok(found)
    }
}
