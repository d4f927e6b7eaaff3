//! The first of what is found, in the order of a query, while not much more than those is kept.
//!
//! May use: the engine's entries. Must not know: partitions.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use ::space::{Direction, First, Found, MapRef, Query, Stored};

/// Entries that are sorted at the least before those behind the ones that are wanted are let go of.
const SORTED_MIN: usize = 1024;

/// What was found by now.
pub(super) struct Ranked<'q> {
    query: &'q Query,
    enough: usize,
    found: Vec<Kept>,
    /// Whether as many as are wanted stand in front, in order: what is not before the last of them is of no use.
    has_enough: bool,
    rank_bytes: u64,
}

struct Kept {
    stored: Stored,
    /// Its place in the order: [`Found::rank`].
    rank: Box<[u8]>,
}

/// An entry's place in the order, and its fields, by which it is compared where it has none.
type Ranks<'a> = (&'a [u8], MapRef<'a>);

impl Kept {
    fn ranks(&self) -> Ranks<'_> {
        (&self.rank, self.stored.document.fields())
    }
}

impl<'q> Ranked<'q> {
    /// Nothing yet, of which the first `enough` are wanted.
    pub(super) fn new(query: &'q Query, enough: usize) -> Self {
        Self { query, enough, found: Vec::new(), has_enough: false, rank_bytes: 0 }
    }

    /// What a search may make use of.
    pub(super) fn first(&self) -> First<'q> {
        First { order: &self.query.order, enough: self.enough as u64 }
    }

    /// Bytes of what is kept, beside the documents, which the space has.
    pub(super) fn bytes(&self) -> u64 {
        // Twice, while the vector of them grows.
        self.found.len() as u64 * 2 * size_of::<Kept>() as u64 + self.rank_bytes
    }

    /// Adds an entry that was found, unless it lies behind those that are wanted; breaks when all that are come to next do.
    pub(super) fn add(&mut self, it: &Found<'_>) -> ControlFlow<()> {
        if self.enough == 0 {
            return ControlFlow::Break(());
        }
        let fields = it.document().fields();
        if let Some(last) = self.last()
            && compare(self.query, (it.rank, fields), last.ranks()).is_ge()
        {
            let is_last = it.along == self.query.order.len()
                || self.query.compare_by(it.along, fields, last.stored.document.fields()).is_gt();
            return if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        }
        self.rank_bytes += it.rank.len() as u64;
        self.found.push(Kept { stored: it.stored(), rank: it.rank.into() });
        // Entries that come in the order are at their end as soon as there are enough.
        let is_full = !self.has_enough && it.along > 0 && self.found.len() == self.enough;
        if is_full || self.found.len() >= self.enough.saturating_mul(2).max(SORTED_MIN) {
            self.cut();
        }
        ControlFlow::Continue(())
    }

    /// The last of those that are wanted, once there are as many.
    fn last(&self) -> Option<&Kept> {
        self.enough.checked_sub(1).filter(|_| self.has_enough).and_then(|at| self.found.get(at))
    }

    /// Sorts them, of equal ones those first that came first, and lets go of those behind the ones that are wanted.
    pub(super) fn cut(&mut self) {
        self.found.sort_by(|a, b| compare(self.query, a.ranks(), b.ranks()));
        self.found.truncate(self.enough);
        self.has_enough = self.found.len() == self.enough;
        self.rank_bytes = self.found.iter().map(|kept| kept.rank.len() as u64).sum();
    }

    /// Those that are wanted, in order.
    pub(super) fn into_sorted(mut self) -> impl Iterator<Item = Stored> {
        self.cut();
        self.found.into_iter().map(|kept| kept.stored)
    }
}

/// Partitions come to their entries in different ways, and not all know the places of theirs.
fn compare(query: &Query, (rank, fields): Ranks<'_>, (other_rank, other): Ranks<'_>) -> Ordering {
    if rank.is_empty() || other_rank.is_empty() {
        return query.compare(fields, other);
    }
    match query.order.last().map(|key| key.direction) {
        Some(Direction::Descending) => other_rank.cmp(rank),
        _ => rank.cmp(other_rank),
    }
}
