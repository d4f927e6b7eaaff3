//! Finding entries, in the order that the type has or a query wants.
//!
//! Whatever an index leads to is checked against the whole predicate.
//!
//! May use: `plan`, `share`, `predicate`. Must not know: who asks, how an index is chosen.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use journal::Position;

use crate::along::{Behind, First};
use crate::command::TypeId;
use crate::constraint::Constraint;
use crate::definition::Order;
use crate::document::Document;
use crate::engine::{Engine, Place};
use crate::entries::{Entry, Slot, Stored};
use crate::key::id_of_key;
use crate::path::Path;
use crate::plan::{Source, Way, equal_keys, way};
use crate::predicate::Predicate;
use crate::share::Share;
use crate::template::Template;
use crate::value::{MapRef, Value};

/// Who is kept from no group, because he only looks.
pub const EVERYBODY: u64 = u64::MAX;
/// Bytes of entries that are looked at before a search is asked whether it goes on, where there is one condition; of several each
/// looks at them.
const STRETCH_BYTES: usize = 64 << 10;
/// What an entry counts beside its bytes.
const LOOK_BYTES: usize = 256;

/// Of a type with an order so many of those that came first are looked at before all that an index leads to are put in order: where many match, one of
/// these is the first.
const FIRST_LOOKS: usize = 256;
/// So many are passed to be put in order before a search is asked whether it goes on.
const PASSED_AT_ONCE: usize = 1024;

/// What entries are wanted, made ready once and used in every partition.
#[derive(Debug, Clone)]
pub struct Filter {
    predicate: Predicate,
    pub(crate) constraints: Vec<Constraint>,
    effort: usize,
}

impl Filter {
    /// Entries for which the predicate is true.
    #[must_use]
    pub fn new(predicate: Predicate) -> Self {
        let constraints = predicate.constraints();
        let effort = predicate.effort();
        Self { predicate, constraints, effort }
    }

    /// Every entry.
    #[must_use]
    pub fn all() -> Self {
        Self::new(Predicate::True)
    }

    /// Entries whose fields are equal to those of the template.
    #[must_use]
    pub fn template(template: &Document) -> Self {
        Self::new(Predicate::Template(Template::new(template.clone())))
    }

    /// What it takes of memory, roughly; what is looked for in indexes is there twice.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.predicate.memory_bytes() + self.constraints.iter().map(Constraint::memory_bytes).sum::<usize>()
    }

    /// Whether no single path has to have any value in particular.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.constraints.is_empty()
    }

    /// The one value that all entries that are wanted have at the path, if it says so and that is a string, an integer or bytes, as ids and routing values are.
    #[must_use]
    pub fn id_at(&self, path: &Path) -> Option<Value> {
        match equal_keys(&self.constraints, path)? {
            [key] => id_of_key(key),
            _ => None,
        }
    }

    /// Whether an entry with these fields is wanted.
    #[must_use]
    pub fn matches(&self, fields: MapRef<'_>) -> bool {
        self.predicate.matches(fields)
    }
}

/// What is looked for.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    /// Entries of this type.
    pub of: TypeId,
    /// Which of them.
    pub filter: &'a Filter,
    /// Those that a group of another transaction than this one holds back are passed over, where the type is in groups, unless it is
    /// [`EVERYBODY`].
    pub by: u64,
    /// If only the first in an order are wanted: they may be come to in it (see [`Found::along`]).
    pub first: Option<First<'a>>,
    /// Asked each time that some 64 KiB of entries were looked at, whether they matched or not, and more often where that is more
    /// work: who breaks ends the search.
    pub go_on: &'a dyn Fn() -> ControlFlow<()>,
}

/// An entry that was come to.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// Where it lies.
    pub place: Place,
    /// How many keys of the order that is wanted all entries of this search are come to in; 0 in no order.
    pub along: usize,
    /// Its place in that order, where an index has that and nothing else; empty otherwise. Of entries in any partitions the lesser comes first, of a
    /// descending order the greater. Equal ones have the same place.
    pub rank: &'a [u8],
    entry: &'a Entry,
    expires_ms: u64,
}

impl<'a> Found<'a> {
    /// Its document.
    #[must_use]
    pub fn document(&self) -> &'a Document {
        &self.entry.document
    }

    /// Whether a transaction has locked it.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.entry.is_locked()
    }

    /// A copy, to be handed out.
    #[must_use]
    pub fn stored(&self) -> Stored {
        let Entry { document, version, .. } = self.entry;
        Stored { document: document.clone(), version: *version, expires_ms: self.expires_ms, sequence: self.sequence() }
    }

    /// When its lease ends, in milliseconds since 1970; 0 is never.
    #[must_use]
    pub fn expires_ms(&self) -> u64 {
        self.expires_ms
    }

    /// The position of the batch that wrote it last.
    #[must_use]
    pub fn version(&self) -> Position {
        self.entry.version
    }

    /// Counts first writings in the partition.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.entry.sequence()
    }
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;

impl Engine {
    /// Comes to the entries that are wanted, in the type's order, until `visit` or the search itself breaks.
    pub fn find(&self, search: Search<'_>, visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        let Some(share) = self.types.get(&search.of) else { return ControlFlow::Continue(()) };
        come(share, way(share, search.filter, search.first), search, visit)
    }

    /// As [`Engine::find`], where that comes to entries by keys of an index that are the whole order of [`Search::first`]; elsewhere nothing is
    /// looked at and there is no outcome. From behind an entry that the same search has come to, if [`Engine::changes`] is what it was then.
    pub fn find_along(
        &self,
        search: Search<'_>,
        behind: Option<Behind<'_>>,
        visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Option<ControlFlow<()>> {
        let Some(share) = self.types.get(&search.of) else { return Some(ControlFlow::Continue(())) };
        let Way::Along(mut along) = way(share, search.filter, search.first) else { return None };
        if !along.is_exact() {
            return None;
        }
        if let Some(behind) = behind {
            along = along.behind(behind);
        }
        Some(come(share, Way::Along(along), search, visit))
    }
}

/// Comes to entries on a way.
fn come<'s>(
    share: &'s Share,
    way: Way<'s>,
    search: Search<'_>,
    visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Search { of, filter, by, first: _, go_on } = search;
    let along = if let Way::Along(way) = &way { way.keys } else { 0 };
    let mut left = STRETCH_BYTES;
    let mut look = |slot: Slot, rank| {
        let Some(entry) = share.entries.get(slot) else { return ControlFlow::Continue(()) };
        match left.checked_sub((LOOK_BYTES + entry.document.as_bytes().len()).saturating_mul(filter.effort)) {
            Some(less) => left = less,
            None => {
                go_on()?;
                left = STRETCH_BYTES;
            }
        }
        let fields = entry.document.fields();
        if !filter.matches(fields) || (by != EVERYBODY && share.is_held(fields, by)) {
            return ControlFlow::Continue(());
        }
        visit(Found { place: Place { of, slot }, along, rank, entry, expires_ms: share.entries.expires_ms(slot) })
    };
    let is_ordered = share.definition.order != Order::Any;
    let source = match way {
        Way::Along(way) => return way.go(&share.entries, look),
        Way::From(source) => source,
    };
    match &source {
        Source::All if is_ordered => return share.queue.values().try_for_each(|slot| look(*slot, &[])),
        Source::All => return share.entries.iter().try_for_each(|(slot, _)| look(slot, &[])),
        _ => {}
    }
    if is_ordered {
        let mut behind = None;
        if source.count(share) > FIRST_LOOKS as u64 {
            for (sequence, slot) in share.queue.iter().take(FIRST_LOOKS) {
                look(*slot, &[])?;
                behind = Some(*sequence);
            }
        }
        let (mut slots, mut passed) = (Vec::new(), 0);
        source.each(&mut |slot| {
            passed += 1;
            if passed % PASSED_AT_ONCE == 0 {
                go_on()?;
            }
            let sequence = share.entries.get(slot).map(Entry::sequence);
            slots.extend(sequence.filter(|sequence| Some(*sequence) > behind).map(|sequence| (sequence, slot)));
            ControlFlow::Continue(())
        })?;
        slots.sort_unstable();
        slots.dedup();
        return slots.into_iter().try_for_each(|(_, slot)| look(slot, &[]));
    }
    // An entry with several items may be at several keys.
    let mut seen = source.is_many().then(BTreeSet::new);
    source.each(&mut |slot| {
        let is_new = seen.as_mut().is_none_or(|seen| seen.insert(slot));
        if is_new { look(slot, &[]) } else { ControlFlow::Continue(()) }
    })
}
