//! Operations on many entries: reading, taking, counting, clearing, going through them, and figures over them.
//!
//! May use: everything of this folder. Must not know: protocols.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use ::space::{
    AtLimit, Change, Definition, Document, EVERYBODY, Engine, First, Found, Place, Plan, Reason, Search, Stored,
    ValueRef,
};
use journal::{Log, PartitionId, Position};

use super::commit::What;
use super::entries::{Entries, Entry};
use super::locks::NOBODY;
use super::memory::Held;
use super::merged::Page;
use super::ranked::Ranked;
use super::read::{ReadOptions, is_visible};
use super::route;
use super::stop::{Stop, Watch};
use super::wait::Purpose;
use super::wanted::Wanted;
use super::write::WriteOptions;
use crate::durability::Durability;
use crate::error::Result;
use crate::kv::Shown;
use crate::partition::Partition;

/// Entries that are cleared under one lock.
const CLEAR_BATCH_MAX: usize = 256;
/// What an entry takes that was found, while a vector of them grows; its document is shared with the space. And one of which only that
/// is kept.
const ENTRY_BYTES: u64 = 2 * size_of::<Stored>() as u64;
const DOCUMENT_BYTES: u64 = 2 * size_of::<Document>() as u64;

/// How much of the entries is looked at to find some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// Few entries.
    Few,
    /// Perhaps many, but what is come to first may do.
    First,
    /// Many, because the first in order are only known when all have been looked at.
    Many,
}

/// What a search may know of the query's order, when no more than `max` are wanted.
fn first_of(wanted: &Wanted, max: usize) -> Option<First<'_>> {
    let query = wanted.query.as_deref().filter(|query| !query.is_grouped())?;
    let (limit, skip) = query.window();
    let limit = limit.map_or(max as u64, |limit| limit.min(max as u64));
    Some(First { order: &query.order, enough: limit.saturating_add(skip) })
}

impl Entries {
    /// Reads up to `max` entries, in the order of the query if it has one.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn read_many(&self, wanted: &Wanted, max: usize) -> Result<Vec<Entry>> {
        let shown = self.read_many_shown(wanted, max)?;
        self.settle(shown)
    }

    /// As [`Entries::read_many`], without waiting: what the answer rests on is beside it.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn read_many_shown(&self, wanted: &Wanted, max: usize) -> Result<Shown<Vec<Entry>>> {
        self.gather(wanted, max, &mut self.inner().query_memory.run())
    }

    /// As [`Entries::read_many_shown`], with the memory that this takes.
    pub(super) fn gather(&self, wanted: &Wanted, max: usize, held: &mut Held) -> Result<Shown<Vec<Entry>>> {
        self.check()?;
        let definition = self.kind.definition();
        let query = wanted.query.as_deref();
        let skip = query.map_or(0, |query| usize::try_from(query.window().1).unwrap_or(usize::MAX));
        let limit = wanted.limit.map_or(max, |limit| max.min(usize::try_from(limit).unwrap_or(usize::MAX)));
        let enough = limit.saturating_add(skip);
        if let (None, Some(query)) = (&wanted.id, query.filter(|query| !query.order.is_empty())) {
            let watch = self.watch();
            if let Some(Shown { mut value, position }) = self.merge(Page { wanted, query, enough }, &watch, held)? {
                value.drain(..skip.min(value.len()));
                return Ok(Shown { value, position });
            }
            let shown = self.gather_in_order(wanted, Ranked::new(query, enough), &watch, held)?;
            return Ok(Shown { value: shown.value.skip(skip).map(Entry::from).collect(), position: shown.position });
        }
        let watch = self.watch();
        let (mut found, mut position, mut refused) = (Vec::<Stored>::new(), Position::ZERO, None);
        let counts_uses = definition.at_limit == AtLimit::Evict && definition.evict_by.is_none();
        let mut used = Vec::<Place>::new();
        for partition in route::of_wanted(self.inner(), &definition, wanted)? {
            let mut engine = partition.space();
            partition.check()?;
            let now_ms = self.inner().clock.wall_ms();
            let mut take = |stored: Stored, place: Place| {
                position = position.max(stored.version);
                found.push(stored);
                if counts_uses && found.len() > skip {
                    used.push(place);
                }
                if found.len() >= enough {
                    return ControlFlow::Break(());
                }
                refused = held.reach(found.len() as u64 * ENTRY_BYTES).err();
                if refused.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            if let Some(id) = &wanted.id {
                let place = engine.find_id(self.kind.of, id.scalar());
                let stored = place.and_then(|place| Some((engine.get(place)?, place)));
                let stored = stored.filter(|(it, _)| it.expires_ms == 0 || it.expires_ms > now_ms);
                let stored = stored.filter(|(it, _)| wanted.matches(&definition, it.document.fields()));
                if let Some((stored, place)) = stored {
                    let _ = take(stored, place);
                }
            } else {
                self.search(&watch, (&engine, wanted, EVERYBODY), &mut |it| {
                    if is_visible(&it, now_ms) && wanted.names(&definition, it.document().fields()) {
                        take(it.stored(), it.place)
                    } else {
                        ControlFlow::Continue(())
                    }
                })?;
            }
            used.drain(..).for_each(|place| engine.touch(place));
            if let Some(refused) = refused {
                return Err(refused);
            }
            if found.len() >= enough {
                break;
            }
            // That there are no more of them.
            position = position.max(engine.gone(self.kind.of));
        }
        let entries = found.into_iter().skip(skip).take(limit);
        Ok(Shown { value: entries.map(Entry::from).collect(), position })
    }

    /// The first of what is wanted, in order. They are known when all partitions have been gone through, so that this is no use of them
    /// that counts against being evicted.
    fn gather_in_order<'q>(
        &self,
        wanted: &Wanted,
        mut ranked: Ranked<'q>,
        watch: &Watch<'_>,
        held: &mut Held,
    ) -> Result<Shown<impl Iterator<Item = Stored> + use<'q>>> {
        let definition = self.kind.definition();
        let (mut position, mut refused) = (Position::ZERO, None);
        for partition in route::of_wanted(self.inner(), &definition, wanted)? {
            let engine = partition.space();
            partition.check()?;
            let now_ms = self.inner().clock.wall_ms();
            let go_on = || watch.go_on();
            let (of, filter, first) = (self.kind.of, &wanted.filter, Some(ranked.first()));
            let search = Search { of, filter, by: EVERYBODY, first, go_on: &go_on };
            let _ = engine.find(search, &mut |it| {
                if !is_visible(&it, now_ms) || !wanted.names(&definition, it.document().fields()) {
                    return ControlFlow::Continue(());
                }
                position = position.max(it.version());
                ranked.add(&it)?;
                refused = held.reach(ranked.bytes()).err();
                if refused.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            position = position.max(engine.gone(self.kind.of));
            drop(engine);
            watch.check()?;
            if let Some(refused) = refused {
                return Err(refused);
            }
            ranked.cut();
        }
        Ok(Shown { value: ranked.into_sorted(), position })
    }

    /// Takes up to `max` entries, each at most once. Blocks as [`Entries::take`] does for the first, not for more.
    ///
    /// # Errors
    /// As [`Entries::take`], when nothing was taken before; `Unavailable` when nothing of what was taken can be made durable.
    pub fn take_many(&self, wanted: &Wanted, max: usize, options: &ReadOptions) -> Result<Vec<Entry>> {
        let mut taken = Vec::new();
        let mut options = options.clone();
        let max = wanted.limit.map_or(max, |limit| max.min(usize::try_from(limit).unwrap_or(usize::MAX)));
        while taken.len() < max {
            let granted = match self.find_or_wait(wanted, &options, Purpose::Take) {
                Ok(Some(granted)) => granted,
                // What was taken by now is not lost: who asks again is told.
                Err(_) if !taken.is_empty() => break,
                Ok(None) => break,
                Err(error) => return self.told(Err(error), options.durability),
            };
            let position = granted.position.unwrap_or_default();
            taken.push(Shown { value: granted.entry.into(), position });
            options.wait = None;
        }
        let absence = if taken.len() < max { self.absence(wanted) } else { Ok(Position::ZERO) };
        // What was taken is not lost because the store was closed meanwhile.
        let absence = absence.or_else(|error| if taken.is_empty() { Err(error) } else { Ok(Position::ZERO) })?;
        self.taken(taken, absence, options.durability)
    }

    /// Waits until entries that were taken, each with what its taking rests on, are as durable as asked, and what it rests on that there are
    /// no more of them. When the disk refuses, those
    /// that are durable all the same: they are nobody else's any more. Of the others nobody knows, until the store is opened
    /// again, whether they were taken.
    ///
    /// # Errors
    /// `Unavailable` when none of them is durable.
    pub fn taken(
        &self,
        taken: Vec<Shown<Entry>>,
        absence: Position,
        durability: Option<Durability>,
    ) -> Result<Vec<Entry>> {
        let newest = taken.iter().map(|shown| shown.position).max().unwrap_or_default().max(absence);
        let Err(error) = self.settle_change(newest, durability) else {
            return Ok(taken.into_iter().map(|shown| shown.value).collect());
        };
        let marks = self.inner().journal.watermarks();
        let end = match durability.unwrap_or(self.store.durability()) {
            Durability::Written => marks.written,
            _ => marks.synced,
        };
        let kept: Vec<Entry> =
            taken.into_iter().filter(|shown| shown.position < end).map(|shown| shown.value).collect();
        if kept.is_empty() { Err(error) } else { Ok(kept) }
    }

    /// How many entries there are that match; no more than the query's limit.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn count(&self, wanted: &Wanted) -> Result<u64> {
        let shown = self.count_shown(wanted)?;
        self.settle(shown)
    }

    /// As [`Entries::count`], without waiting: what the answer rests on is beside it.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn count_shown(&self, wanted: &Wanted) -> Result<Shown<u64>> {
        self.check()?;
        wanted.check_unordered("counting")?;
        let limit = wanted.limit.unwrap_or(u64::MAX);
        let definition = self.kind.definition();
        let watch = self.watch();
        let mut count = 0;
        let mut newest = Position::ZERO;
        for partition in route::of_wanted(self.inner(), &definition, wanted)? {
            let engine = partition.space();
            partition.check()?;
            let now_ms = self.inner().clock.wall_ms();
            self.search(&watch, (&engine, wanted, EVERYBODY), &mut |found| {
                if count >= limit {
                    return ControlFlow::Break(());
                }
                if is_visible(&found, now_ms) && wanted.names(&definition, found.document().fields()) {
                    count += 1;
                    newest = newest.max(found.version());
                }
                ControlFlow::Continue(())
            })?;
            newest = newest.max(engine.gone(self.kind.of));
        }
        Ok(Shown { value: count, position: newest })
    }

    /// Removes all entries that match and no transaction has locked, some at a time; returns how many.
    ///
    /// # Errors
    /// As [`Entries::take`].
    pub fn clear(&self, wanted: &Wanted, durability: Option<Durability>) -> Result<u64> {
        let Shown { value, position } = self.clear_shown(wanted)?;
        self.settle_change(position, durability)?;
        Ok(value)
    }

    /// As [`Entries::clear`], without waiting: what the answer rests on is beside it.
    ///
    /// # Errors
    /// As [`Entries::take`].
    pub fn clear_shown(&self, wanted: &Wanted) -> Result<Shown<u64>> {
        self.check()?;
        wanted.check_unordered("clear")?;
        let definition = self.kind.definition();
        let watch = self.watch();
        let (mut count, mut newest) = (0, Position::ZERO);
        for partition in route::of_wanted(self.inner(), &definition, wanted)? {
            let mut ids = Vec::new();
            {
                let engine = partition.space();
                partition.check()?;
                let now_ms = self.inner().clock.wall_ms();
                self.search(&watch, (&engine, wanted, NOBODY), &mut |found| {
                    let fields = found.document().fields();
                    if !found.is_locked() && is_visible(&found, now_ms) && wanted.names(&definition, fields) {
                        ids.extend(fields.get(&definition.id).map(ValueRef::to_value));
                    }
                    ControlFlow::Continue(())
                })?;
                newest = newest.max(engine.gone(self.kind.of));
            }
            // Others come between, and wait for a few entries at the most.
            for ids in ids.chunks(CLEAR_BATCH_MAX) {
                watch.check()?;
                let mut engine = partition.space();
                partition.check()?;
                for id in ids {
                    let place = engine.find_id(self.kind.of, id.scalar());
                    let is_free = |place: &Place| !engine.is_locked(*place) && !engine.is_held(*place, NOBODY);
                    let stored = place.filter(is_free).and_then(|place| engine.get(place));
                    let is_wanted = stored.is_some_and(|it| wanted.matches(&definition, it.document.fields()));
                    if !is_wanted || wanted.limit.is_some_and(|limit| count >= limit) {
                        continue;
                    }
                    let what = What::Remove { id: id.clone(), reason: Reason::Cleared };
                    newest = newest.max(self.inner().change_space(&self.kind, partition, &mut engine, &what)?);
                    count += 1;
                }
            }
        }
        Ok(Shown { value: count, position: newest })
    }

    /// Changes every entry that matches in place, each by itself; returns how many. One that another changed meanwhile so that it
    /// does not match any more is left alone. For entries that transactions have locked it waits as long as for one, all together.
    ///
    /// # Errors
    /// As [`Entries::change`]; those before the error are changed.
    pub fn change_many(&self, wanted: &Wanted, changes: &[Change], options: &WriteOptions) -> Result<u64> {
        let definition = self.kind.definition();
        let watch = self.watch();
        let shown = self.read_many_shown(wanted, usize::MAX)?;
        let (mut count, mut newest) = (0, shown.position);
        let deadline = self.lock_deadline(options.lock_timeout);
        for entry in shown.value {
            watch.pass(entry.document.as_bytes().len())?;
            let Some(id) = entry.document.get(&definition.id) else { continue };
            // With its own routing, or another of its id were changed in its stead.
            let routing = definition.routed_by().map(|path| path.first(entry.document.fields()).to_value());
            let one = Wanted { id: Some(id.to_value()), routing, ..wanted.clone() };
            let changed = self.told(self.change_until(deadline, &one, changes, options), options.durability)?;
            newest = newest.max(match changed {
                Some(changed) => {
                    count += 1;
                    changed.now.version
                }
                None => self.absence(&one)?,
            });
        }
        self.settle_change(newest, options.durability)?;
        Ok(count)
    }

    /// How entries would be found, in each partition.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn explain(&self, wanted: &Wanted) -> Result<Vec<Plan>> {
        let (partitions, first) = (self.looked_in(wanted)?, first_of(wanted, usize::MAX));
        Ok(partitions.iter().filter_map(|it| it.space().explain(self.kind.of, &wanted.filter, first)).collect())
    }

    /// How much there is to look at to find `max` of them at the most, where no more than `few` entries are few.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn outlook(&self, wanted: &Wanted, max: usize, few: u64) -> Result<Outlook> {
        let (partitions, first) = (self.looked_in(wanted)?, first_of(wanted, max));
        let is_ordered = wanted.is_ordered();
        let (mut all, mut sorted) = (0, 0);
        for partition in partitions {
            let left = few.saturating_sub(all);
            let looks_at = partition.space().looks_at(self.kind.of, &wanted.filter, first, left);
            all += looks_at.most;
            if !looks_at.in_order {
                sorted += looks_at.most;
            }
            if is_ordered && sorted > few {
                return Ok(Outlook::Many);
            }
            if !is_ordered && all > few {
                return Ok(Outlook::First);
            }
        }
        Ok(if all > few { Outlook::First } else { Outlook::Few })
    }

    fn looked_in(&self, wanted: &Wanted) -> Result<&[Partition]> {
        self.check()?;
        route::of_wanted(self.inner(), &self.kind.definition(), wanted)
    }

    /// Folds all entries that match into one value, of each partition by itself, and merges what came out.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn reduce<A>(
        &self,
        wanted: &Wanted,
        start: impl Fn() -> A,
        mut add: impl FnMut(&mut A, &Document),
        mut merge: impl FnMut(A, A) -> A,
    ) -> Result<A> {
        wanted.check_unlimited("reducing")?;
        let mut all = start();
        let mut part = start();
        let position = self.each_partition(wanted, &mut |document| {
            match document {
                Some(document) => add(&mut part, document),
                None => {
                    let done = std::mem::replace(&mut part, start());
                    let before = std::mem::replace(&mut all, start());
                    all = merge(before, done);
                }
            }
            Ok(())
        })?;
        self.settle(Shown { value: all, position })
    }

    /// Shows each document that matches, without waiting for what that rests on, which it returns.
    pub(super) fn each_shown(
        &self,
        wanted: &Wanted,
        visit: &mut dyn FnMut(&Document) -> Result<()>,
    ) -> Result<Position> {
        self.each_partition(wanted, &mut |document| document.map_or(Ok(()), &mut *visit))
    }

    /// Shows each document that matches, and `None` at the end of each partition. What is shown is copied out from under the
    /// lock first, in pieces that share the documents. Returns what it rests on.
    fn each_partition(
        &self,
        wanted: &Wanted,
        visit: &mut dyn FnMut(Option<&Document>) -> Result<()>,
    ) -> Result<Position> {
        self.check()?;
        let definition = self.kind.definition();
        let watch = self.watch();
        let (mut newest, mut held) = (Position::ZERO, self.inner().query_memory.run());
        for partition in route::of_wanted(self.inner(), &definition, wanted)? {
            let mut some = |document: &Document| visit(Some(document));
            newest = newest.max(self.each_in(partition, (wanted, &definition), &watch, &mut held, &mut some)?);
            visit(None)?;
        }
        Ok(newest)
    }

    /// Shows each document of one partition that matches.
    pub(super) fn each_in(
        &self,
        partition: &Partition,
        (wanted, definition): (&Wanted, &Definition),
        watch: &Watch<'_>,
        held: &mut Held,
        visit: &mut dyn FnMut(&Document) -> Result<()>,
    ) -> Result<Position> {
        let (mut found, mut refused, mut newest) = (Vec::new(), None, Position::ZERO);
        {
            let engine = partition.space();
            partition.check()?;
            let now_ms = self.inner().clock.wall_ms();
            self.search(watch, (&engine, wanted, EVERYBODY), &mut |it| {
                if is_visible(&it, now_ms) && wanted.names(definition, it.document().fields()) {
                    newest = newest.max(it.version());
                    found.push(it.document().clone());
                    refused = held.reach(found.len() as u64 * DOCUMENT_BYTES).err();
                }
                if refused.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            newest = newest.max(engine.gone(self.kind.of));
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        for document in &found {
            watch.pass(document.as_bytes().len())?;
            visit(document)?;
        }
        Ok(newest)
    }

    /// Comes to entries that are wanted in one partition, until `visit` breaks.
    fn search(
        &self,
        watch: &Watch<'_>,
        (engine, wanted, by): (&Engine, &Wanted, u64),
        visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let go_on = || watch.go_on();
        let _ = engine.find(Search { of: self.kind.of, filter: &wanted.filter, by, first: None, go_on: &go_on }, visit);
        watch.check()
    }

    /// Goes through all entries that match, up to the query's limit, a batch at a time: each partition as it is when it is come to.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn iterate(&self, wanted: &Wanted) -> Result<Iteration> {
        self.check()?;
        wanted.check_unordered("iterating")?;
        let partitions = route::of_wanted(self.inner(), &self.kind.definition(), wanted)?;
        let left = partitions.iter().map(|partition| partition.id).collect();
        let wanted = wanted.kept(&self.store)?;
        Ok(Iteration { entries: self.clone(), left_max: wanted.limit, wanted, left, found: VecDeque::new() })
    }
}

/// Goes through entries: from [`Entries::iterate`]. Documents that it has come to and not given are kept in memory.
pub struct Iteration {
    entries: Entries,
    wanted: Wanted,
    left: VecDeque<PartitionId>,
    /// How many more entries the query's limit lets it come to.
    left_max: Option<u64>,
    found: VecDeque<Entry>,
}

impl Iteration {
    /// How many entries are kept in memory.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.found.len()
    }

    /// As [`Entries::until`], for the batches from now on.
    pub fn set_stop(&mut self, stop: Stop) {
        self.entries = self.entries.until(stop);
    }

    /// The next entries, at most so many; none at the end.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn next(&mut self, max: usize) -> Result<Vec<Entry>> {
        self.entries.check()?;
        let definition = self.entries.kind.definition();
        let watch = self.entries.watch();
        while self.found.is_empty() {
            let Some(id) = self.left.front() else { break };
            let inner = self.entries.inner();
            let Some(partition) = inner.partitions.get(id.index()) else { break };
            let (mut newest, mut found, mut left_max) = (Position::ZERO, VecDeque::new(), self.left_max);
            {
                let engine = partition.space();
                partition.check()?;
                let now_ms = inner.clock.wall_ms();
                self.entries.search(&watch, (&engine, &self.wanted, EVERYBODY), &mut |it| {
                    if left_max == Some(0) {
                        return ControlFlow::Break(());
                    }
                    if is_visible(&it, now_ms) && self.wanted.names(&definition, it.document().fields()) {
                        newest = newest.max(it.version());
                        found.push_back(it.stored().into());
                        left_max = left_max.map(|left| left - 1);
                    }
                    ControlFlow::Continue(())
                })?;
                newest = newest.max(engine.gone(self.entries.kind.of));
            }
            self.entries.settle(Shown { value: (), position: newest })?;
            // Not before: who is refused, and asks again, misses nothing.
            (self.found, self.left_max) = (found, left_max);
            self.left.pop_front();
        }
        let many = self.found.len().min(max);
        Ok(self.found.drain(..many).collect())
    }
}
