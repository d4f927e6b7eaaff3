//! The first of what is found, in the order of a query, while not much more than those is kept.
//!
//! May use: the engine's entries. Must not know: partitions.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use ::space::{Document, First, Found, MapRef, Query, Stored};

/// Entries that are sorted at the least before those behind the ones that are wanted are let go of.
const SORTED_MIN: usize = 1024;

/// What was found by now.
pub(super) struct Ranked<'q> {
    query: &'q Query,
    enough: usize,
    found: Vec<Stored>,
    /// The last of those that are wanted, once there are as many: what is not before it is of no use.
    last: Option<Document>,
}

impl<'q> Ranked<'q> {
    /// Nothing yet, of which the first `enough` are wanted.
    pub(super) fn new(query: &'q Query, enough: usize) -> Self {
        Self { query, enough, found: Vec::new(), last: None }
    }

    /// What a search may make use of.
    pub(super) fn first(&self) -> First<'q> {
        First { order: &self.query.order, enough: self.enough as u64 }
    }

    /// How many are kept.
    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    /// Adds an entry that was found, unless it lies behind those that are wanted; breaks when all that are come to next do.
    pub(super) fn add(&mut self, it: &Found<'_>) -> ControlFlow<()> {
        if self.enough == 0 || self.is_last(it.along, it.document().fields()) {
            return ControlFlow::Break(());
        }
        if self.is_behind(it.document().fields()) {
            return ControlFlow::Continue(());
        }
        self.found.push(it.stored());
        // Entries that come in the order are at their end as soon as there are enough.
        let is_full = self.last.is_none() && it.along > 0 && self.found.len() == self.enough;
        if is_full || self.found.len() >= self.enough.saturating_mul(2).max(SORTED_MIN) {
            self.cut();
        }
        ControlFlow::Continue(())
    }

    /// Whether this and all that come behind it, in the order of the first so many keys, lie behind those that are wanted.
    fn is_last(&self, keys: usize, fields: MapRef<'_>) -> bool {
        let Some(last) = self.last.as_ref().filter(|_| keys > 0) else { return false };
        match self.query.compare_by(keys, fields, last.fields()) {
            Ordering::Greater => true,
            Ordering::Equal => keys == self.query.order.len(),
            Ordering::Less => false,
        }
    }

    fn is_behind(&self, fields: MapRef<'_>) -> bool {
        self.last.as_ref().is_some_and(|last| self.query.compare(fields, last.fields()).is_ge())
    }

    /// Sorts them, of equal ones those first that came first, and lets go of those behind the ones that are wanted.
    pub(super) fn cut(&mut self) {
        self.found.sort_by(|a, b| self.query.compare(a.document.fields(), b.document.fields()));
        self.found.truncate(self.enough);
        if let Some(last) = self.enough.checked_sub(1).and_then(|at| self.found.get(at)) {
            self.last = Some(last.document.clone());
        }
    }

    /// Those that are wanted, in order.
    pub(super) fn into_sorted(mut self) -> Vec<Stored> {
        self.cut();
        self.found
    }
}
