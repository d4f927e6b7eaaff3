//! Coming to entries in the order of a query: along an ordered index, so that whoever wants the first few of many need not look at all.
//!
//! May use: `indexes`, `constraint`, `select`. Must not know: who asks, how entries are kept.

use std::ops::{Bound, ControlFlow};

use crate::constraint::{Allowed, Constraint};
use crate::entries::Slot;
use crate::find::{as_slice, bounds, equal_keys};
use crate::indexes::Index;
use crate::select::{Direction, Nulls, Order};

/// Of what matches only the first are wanted, in an order.
#[derive(Debug, Clone, Copy)]
pub struct First<'a> {
    /// The keys of the order.
    pub order: &'a [Order],
    /// How many.
    pub enough: u64,
}

/// A way through an index.
pub(crate) struct Along<'a> {
    pub(crate) index: &'a Index,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    is_backwards: bool,
    /// How many keys of the order entries are come to in.
    pub(crate) keys: usize,
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
        let (start, end) = bounds(&prefix, at + 1 == paths.len(), range);
        Some(Self { index, start, end, is_backwards: first.direction == Direction::Descending, keys })
    }

    /// Comes to what is there, until `look` breaks.
    pub(crate) fn go(&self, mut look: impl FnMut(Slot) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut keys = self.index.range(as_slice(&self.start), as_slice(&self.end));
        if self.is_backwards {
            keys.rev().try_for_each(|(_, slots)| slots.iter().try_for_each(&mut look))
        } else {
            keys.try_for_each(|(_, slots)| slots.iter().try_for_each(&mut look))
        }
    }

    /// How many entries there are on the way, counted up to `most` keys.
    pub(crate) fn count(&self, most: usize) -> u64 {
        let keys = self.index.range(as_slice(&self.start), as_slice(&self.end)).take(most);
        keys.map(|(_, slots)| slots.len() as u64).sum()
    }
}
