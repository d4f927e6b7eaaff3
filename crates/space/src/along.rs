//! Coming to entries in the order of a query: along an ordered index, so that whoever wants the first few of many need not look at all.
//!
//! May use: `indexes`, `constraint`, `select`. Must not know: who asks, how entries are kept.

use std::ops::{Bound, ControlFlow};

use crate::constraint::{Allowed, Constraint};
use crate::engine::Place;
use crate::entries::{Entries, Slot};
use crate::indexes::Index;
use crate::plan::{as_slice, bounds, equal_keys};
use crate::select::{Direction, Nulls, Order};
use crate::slots::Slots;

/// Of what matches only the first are wanted, in an order.
#[derive(Debug, Clone, Copy)]
pub struct First<'a> {
    /// The keys of the order.
    pub order: &'a [Order],
    /// How many.
    pub enough: u64,
}

/// An entry that a search along an index has come to, and behind which another one goes on.
#[derive(Debug, Clone, Copy)]
pub struct Behind<'a> {
    /// Its [`rank`](crate::Found::rank), which is not empty.
    pub rank: &'a [u8],
    /// Where it lies.
    pub place: Place,
}

/// A way through an index.
pub(crate) struct Along<'a> {
    pub(crate) index: &'a Index,
    /// With what all keys on the way begin.
    prefix: Vec<u8>,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    is_backwards: bool,
    /// How many keys of the order entries are come to in.
    pub(crate) keys: usize,
    /// Whether what is behind that is all of the order, and nothing else.
    is_exact: bool,
    /// Of the entries at the first key, those up to this one are left out.
    behind: Option<Slot>,
}

/// So many entries are waited for at once: each lies somewhere else in memory.
const TOGETHER: usize = 8;

fn look_at<'a>(
    next: &mut Vec<(Slot, &'a [u8])>,
    entries: &Entries,
    look: &mut impl FnMut(Slot, &'a [u8]) -> ControlFlow<()>,
) -> ControlFlow<()> {
    next.iter().for_each(|(slot, _)| entries.fetch_document_ahead(*slot));
    next.drain(..).try_for_each(|(slot, rank)| look(slot, rank))
}

/// Whether nulls stand where their keys do in an index that is gone through in this direction.
fn is_natural(key: &Order) -> bool {
    matches!((key.direction, key.nulls), (Direction::Ascending, Nulls::First) | (Direction::Descending, Nulls::Last))
}

impl<'a> Along<'a> {
    /// The way through the index in which all of `entries` that meet the constraints are come to in the order.
    pub(crate) fn through(
        index: &'a Index,
        constraints: &[Constraint],
        order: &[Order],
        entries: usize,
    ) -> Option<Self> {
        // What has one value only orders nothing.
        let is_fixed = |key: &&Order| matches!(equal_keys(constraints, &key.path), Some([_]));
        let fixed = order.iter().take_while(is_fixed).count();
        let order = order.get(fixed..).unwrap_or_default();
        let first = order.first()?;
        if !index.is_ordered() || index.is_many() {
            return None;
        }
        let paths = &index.definition.paths;
        let at = paths.iter().position(|path| *path == first.path)?;
        let mut prefix = Vec::new();
        for path in paths.iter().take(at) {
            // One value: of several, entries would be come to by the first path and not in the order.
            let [key] = equal_keys(constraints, path)? else { return None };
            prefix.extend_from_slice(key);
        }
        let range = constraints.iter().find_map(|constraint| match &constraint.allowed {
            Allowed::Range(start, end) if constraint.path == first.path => Some((start, end)),
            _ => None,
        });
        // What is null or missing at the first path of an index is not in it.
        let has_all = at > 0 || index.len() == entries;
        if range.is_none() && !(has_all && is_natural(first)) {
            return None;
        }
        let goes_on = |(key, path): &(&Order, &crate::Path)| {
            key.path == **path && key.direction == first.direction && is_natural(key)
        };
        let keys = fixed + 1 + order.iter().zip(paths.iter().skip(at)).skip(1).take_while(goes_on).count();
        let is_exact = keys == fixed + order.len() && at + order.len() == paths.len();
        let (start, end) = bounds(&prefix, at + 1 == paths.len(), range);
        let is_backwards = first.direction == Direction::Descending;
        Some(Self { index, prefix, start, end, is_backwards, keys, is_exact, behind: None })
    }

    /// Whether entries are come to by keys that are the whole order.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// The rest of the way.
    pub(crate) fn behind(mut self, it: Behind<'_>) -> Self {
        debug_assert!(self.is_exact, "only where keys are the order do entries have ranks");
        let from = Bound::Included([&self.prefix, it.rank].concat());
        *(if self.is_backwards { &mut self.end } else { &mut self.start }) = from;
        self.behind = Some(it.place.slot);
        self
    }

    /// Comes to what is there, each with its place in the order where the index has that, until `look` breaks.
    pub(crate) fn go(
        &self,
        entries: &Entries,
        mut look: impl FnMut(Slot, &'a [u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut next = Vec::with_capacity(TOGETHER);
        let mut behind = self.behind;
        let mut at = |(key, slots): (&'a [u8], &'a Slots)| {
            let rank = if self.is_exact { key.get(self.prefix.len()..).unwrap_or_default() } else { &[] };
            let behind = behind.take();
            slots.iter().filter(|slot| behind.is_none_or(|behind| *slot > behind)).try_for_each(|slot| {
                entries.fetch_slot_ahead(slot);
                next.push((slot, rank));
                if next.len() < TOGETHER { ControlFlow::Continue(()) } else { look_at(&mut next, entries, &mut look) }
            })
        };
        let mut keys = self.index.range(as_slice(&self.start), as_slice(&self.end));
        if self.is_backwards { keys.rev().try_for_each(&mut at) } else { keys.try_for_each(&mut at) }?;
        look_at(&mut next, entries, &mut look)
    }

    /// How many entries there are on the way, counted up to `most` keys.
    pub(crate) fn count(&self, most: usize) -> u64 {
        let keys = self.index.range(as_slice(&self.start), as_slice(&self.end)).take(most);
        keys.map(|(_, slots)| slots.len() as u64).sum()
    }
}
