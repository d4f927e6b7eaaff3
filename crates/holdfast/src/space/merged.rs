//! The first of what is found in the order of an index, merged from partitions that each come to theirs in it.
//!
//! Of a page that lies in all partitions each has about its share. So each is asked for that and a little more, one after the other and under its own
//! lock alone, and is asked again only when all it gave is among the first and there may be more of it. What it gives then lies behind what it gave
//! before if nothing changed there meanwhile. If something did, a merge comes to nothing, and the page is found another way: a partition is shown
//! as of one instant.
//!
//! May use: everything of this folder. Must not know: protocols.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use ::space::{Behind, Definition, Direction, EVERYBODY, First, Place, Query, Search};
use journal::Position;

use super::entries::{Entries, Entry};
use super::memory::Held;
use super::read::is_visible;
use super::route;
use super::stop::Watch;
use super::wanted::Wanted;
use crate::error::Result;
use crate::kv::Shown;
use crate::partition::Partition;

/// What an entry takes that was found, beside its key.
const ENTRY_BYTES: u64 = 2 * size_of::<(Entry, Range<usize>)>() as u64;

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) struct Page<'a> {
    pub(super) wanted: &'a Wanted,
    pub(super) query: &'a Query,
    /// How many, those among them that the query skips.
    pub(super) enough: usize,
}

/// What one partition has given and was not taken yet, in order.
struct Run<'a> {
    partition: &'a Partition,
    /// By what time leases have ended for it: when it was asked first.
    now_ms: Option<u64>,
    /// What [`::space::Engine::changes`] was.
    changes: Option<u64>,
    found: VecDeque<(Entry, Range<usize>)>,
    /// The ranks of what was found, one behind the other.
    ranks: Vec<u8>,
    /// Of the last that was found, where there may be more behind it: its rank, and where it lies.
    last: Option<(Range<usize>, Place)>,
    /// How many it was asked for last.
    asked: usize,
    /// What is behind this rank is behind the page.
    bound: Option<Vec<u8>>,
}

/// The share of a partition, and some more: entries are spread at random, and so one partition in a hundred has more than that.
fn share(enough: usize, partitions: usize) -> usize {
    let mean = enough.div_ceil(partitions.max(1));
    mean.saturating_add(2 * mean.isqrt() + 2).min(enough)
}

impl Run<'_> {
    fn rank(&self) -> Option<&[u8]> {
        self.found.front().and_then(|(_, rank)| self.ranks.get(rank.clone()))
    }

    /// The rank of what it has found last.
    fn last_rank(&self) -> Option<&[u8]> {
        self.found.back().and_then(|(_, rank)| self.ranks.get(rank.clone()))
    }

    fn bytes(&self) -> u64 {
        self.found.len() as u64 * ENTRY_BYTES + self.ranks.len() as u64
    }
}

/// Behind which rank nothing is of the page any more: that of the last found, once as many were found.
fn bound(runs: &[Run<'_>], enough: usize, direction: Direction) -> Option<Vec<u8>> {
    let found: usize = runs.iter().map(|run| run.found.len()).sum();
    let last = runs.iter().filter_map(Run::last_rank);
    let last = if direction == Direction::Descending { last.min() } else { last.max() };
    last.filter(|_| found >= enough).map(<[u8]>::to_vec)
}

/// Runs by what they are at, the one that comes next at the end.
struct Line<'a, 'r> {
    runs: &'r mut [Run<'a>],
    direction: Direction,
    order: Vec<usize>,
}

impl<'a> Line<'a, '_> {
    /// Has a run stand in line again, if it has anything.
    fn enter(&mut self, at: usize) {
        let rank = |at: usize| self.runs.get(at).and_then(Run::rank);
        let Some(own) = rank(at) else { return };
        let comes_later = |other: &usize| {
            let (theirs, own) = (rank(*other), Some(own));
            let order = if self.direction == Direction::Descending { own.cmp(&theirs) } else { theirs.cmp(&own) };
            // Of equal ones those of the first partition come first.
            order.then(other.cmp(&at)).is_gt()
        };
        let place = self.order.partition_point(comes_later);
        self.order.insert(place, at);
    }

    fn next(&mut self) -> Option<(usize, &mut Run<'a>)> {
        let at = self.order.pop()?;
        Some((at, self.runs.get_mut(at)?))
    }
}

impl Entries {
    /// The first of what is wanted, in order, where all partitions come to theirs by keys that are the whole order; else nothing.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub(super) fn merge(
        &self,
        page: Page<'_>,
        watch: &Watch<'_>,
        held: &mut Held,
    ) -> Result<Option<Shown<Vec<Entry>>>> {
        let definition = self.kind.definition();
        let partitions = route::of_wanted(self.inner(), &definition, page.wanted)?;
        let Some(last) = page.query.order.last().filter(|_| page.enough > 0 && partitions.len() > 1) else {
            return Ok(None);
        };
        let asked = share(page.enough, partitions.len());
        let (mut runs, mut newest, mut bytes) = (Vec::<Run<'_>>::with_capacity(partitions.len()), Position::ZERO, 0);
        for partition in partitions {
            let (found, ranks) = (VecDeque::new(), Vec::new());
            let bound = bound(&runs, page.enough, last.direction);
            let mut run = Run { partition, now_ms: None, changes: None, found, ranks, last: None, asked, bound };
            let asks = (page, &**definition, watch);
            let Some(position) = self.ask(asks, &mut run, (held, bytes))? else { return Ok(None) };
            newest = newest.max(position);
            bytes += run.bytes();
            runs.push(run);
        }
        let order = Vec::with_capacity(runs.len());
        let mut line = Line { runs: &mut runs, direction: last.direction, order };
        (0..partitions.len()).for_each(|at| line.enter(at));
        let found = line.runs.iter().map(|run| run.found.len()).sum();
        let mut entries = Vec::with_capacity(page.enough.min(found));
        while let Some((at, run)) = line.next() {
            entries.extend(run.found.pop_front().map(|(entry, _)| entry));
            if entries.len() >= page.enough {
                break;
            }
            if run.found.is_empty() && run.last.is_some() {
                run.asked = run.asked.saturating_mul(2).min(page.enough - entries.len());
                let asks = (page, &**definition, watch);
                let Some(position) = self.ask(asks, run, (held, bytes))? else { return Ok(None) };
                newest = newest.max(position);
                bytes += run.bytes();
            }
            line.enter(at);
        }
        Ok(Some(Shown { value: entries, position: newest }))
    }

    /// Asks a partition for the next of its entries, and says what these rest on; `held` are so many bytes already. Nothing where it does not come to
    /// its entries in the order alone, or they were changed meanwhile.
    fn ask(
        &self,
        (page, definition, watch): (Page<'_>, &Definition, &Watch<'_>),
        run: &mut Run<'_>,
        (held, bytes): (&mut Held, u64),
    ) -> Result<Option<Position>> {
        let Page { wanted, query, enough } = page;
        let (of, engine) = (self.kind.of, run.partition.space());
        run.partition.check()?;
        let changes = engine.changes(of);
        let last = run.last.take().map(|(rank, place)| (run.ranks.get(rank).unwrap_or_default().to_vec(), place));
        if last.is_some() && run.changes != changes {
            return Ok(None);
        }
        run.changes = changes;
        run.ranks.clear();
        // Behind the wait for the lock: what ended during it is not shown.
        let now_ms = *run.now_ms.get_or_insert_with(|| self.inner().clock.wall_ms());
        let (mut position, mut refused) = (engine.gone(of), None);
        let go_on = || watch.go_on();
        let first = Some(First { order: &query.order, enough: enough as u64 });
        let search = Search { of, filter: &wanted.filter, by: EVERYBODY, first, go_on: &go_on };
        let descends = query.order.last().is_some_and(|last| last.direction == Direction::Descending);
        let bound = run.bound.take();
        let behind = last.as_ref().map(|(rank, place)| Behind { rank, place: *place });
        let came = engine.find_along(search, behind, &mut |it| {
            if bound.as_deref().is_some_and(|bound| if descends { it.rank < bound } else { it.rank > bound }) {
                return ControlFlow::Break(());
            }
            if !is_visible(&it, now_ms) || !wanted.names(definition, it.document().fields()) {
                return ControlFlow::Continue(());
            }
            position = position.max(it.version());
            let begins = run.ranks.len();
            run.ranks.extend_from_slice(it.rank);
            let rank = begins..run.ranks.len();
            run.found.push_back((it.stored().into(), rank.clone()));
            refused = held.reach(bytes + run.bytes()).err();
            if run.found.len() < run.asked && refused.is_none() {
                return ControlFlow::Continue(());
            }
            run.last = Some((rank, it.place));
            ControlFlow::Break(())
        });
        drop(engine);
        watch.check()?;
        refused.map_or(Ok(came.map(|_| position)), Err)
    }
}
