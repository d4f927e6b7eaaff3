//! Finding entries: which index is used, and in which order entries are come to.
//!
//! The plan is made anew each time from what the indexes hold: of all indexes that fit the conditions that which leads to
//! the fewest entries, counted and not guessed, up to [`COUNT_MAX`] keys of a range. Ids need no index. Whatever an index leads to is
//! checked against the whole predicate.
//!
//! May use: `share`, `indexes`, `predicate`. Must not know: who asks.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};

use journal::Position;

use crate::along::{Along, First};
use crate::command::TypeId;
use crate::constraint::{Allowed, Constraint};
use crate::definition::Order;
use crate::document::Document;
use crate::engine::{Engine, Place};
use crate::entries::{Entry, Slot, Stored};
use crate::indexes::Index;
use crate::key::id_of_key;
use crate::path::Path;
use crate::predicate::Predicate;
use crate::share::Share;
use crate::template::Template;
use crate::value::{MapRef, Value};

/// Who is kept from no group, because he only looks.
pub const EVERYBODY: u64 = u64::MAX;
/// Most keys of a range that are counted before it is taken for long.
const COUNT_MAX: usize = 1024;
/// Bytes of entries that are looked at before a search is asked whether it goes on, where there is one condition; of several each
/// looks at them.
const STRETCH_BYTES: usize = 64 << 10;
/// What an entry counts beside its bytes.
const LOOK_BYTES: usize = 256;

/// What entries are wanted, made ready once and used in every partition.
#[derive(Debug, Clone)]
pub struct Filter {
    predicate: Predicate,
    constraints: Vec<Constraint>,
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

/// How entries are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The index that is used, by name, or the field of ids; `None` when all entries are looked at.
    pub index: Option<String>,
    /// How many entries are looked at: of long ranges at least so many, and of those that are come to in the order that is wanted, with a limit.
    pub candidates: u64,
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

/// Where candidates come from.
enum Source<'a> {
    All,
    /// What has one of the ids that are wanted.
    Ids(Vec<Slot>),
    Keys(&'a Index, Vec<Vec<u8>>),
    Range(&'a Index, Bound<Vec<u8>>, Bound<Vec<u8>>),
}

pub(crate) fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// The least key above all that begin with `prefix`.
fn behind(mut prefix: Vec<u8>) -> Bound<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return Bound::Excluded(prefix);
        }
    }
    Bound::Unbounded
}

impl Source<'_> {
    fn count(&self, share: &Share) -> u64 {
        match self {
            Self::All => share.entries.len() as u64,
            Self::Ids(slots) => slots.len() as u64,
            Self::Keys(index, keys) => {
                keys.iter().filter_map(|key| index.get(key)).map(|slots| slots.len() as u64).sum()
            }
            Self::Range(index, start, end) => {
                let keys = index.range(as_slice(start), as_slice(end)).take(COUNT_MAX);
                keys.map(|(_, slots)| slots.len() as u64).sum()
            }
        }
    }

    /// Whether an entry may be come to more than once.
    fn is_many(&self) -> bool {
        matches!(self, Self::Keys(index, _) | Self::Range(index, _, _) if index.is_many())
    }

    /// Comes to what is in the index, or has the ids, until `look` breaks.
    fn each(&self, look: &mut dyn FnMut(Slot) -> ControlFlow<()>) -> ControlFlow<()> {
        match self {
            Self::All => ControlFlow::Continue(()),
            Self::Ids(slots) => slots.iter().try_for_each(|slot| look(*slot)),
            Self::Keys(index, keys) => {
                keys.iter().filter_map(|key| index.get(key)).try_for_each(|slots| slots.iter().try_for_each(&mut *look))
            }
            Self::Range(index, start, end) => index
                .range(as_slice(start), as_slice(end))
                .try_for_each(|(_, slots)| slots.iter().try_for_each(&mut *look)),
        }
    }

    fn is_long(&self) -> bool {
        let Self::Range(index, start, end) = self else { return false };
        index.range(as_slice(start), as_slice(end)).nth(COUNT_MAX).is_some()
    }
}

/// How the constraints lead into an index, if they do.
fn source<'a>(index: &'a Index, constraints: &[Constraint]) -> Option<Source<'a>> {
    let mut prefix: Vec<u8> = Vec::new();
    let paths = &index.definition.paths;
    for (at, path) in paths.iter().enumerate() {
        match equal_keys(constraints, path) {
            Some(keys) if paths.len() == 1 => return Some(Source::Keys(index, keys.to_vec())),
            Some([key]) => {
                prefix.extend_from_slice(key);
                continue;
            }
            _ => {}
        }
        if !index.is_ordered() {
            return None;
        }
        let range = constraints.iter().find_map(|constraint| match &constraint.allowed {
            Allowed::Range(start, end) if constraint.path == *path => Some((start, end)),
            _ => None,
        });
        let Some((start, end)) = range else {
            let (start, end) = bounds(&prefix, false, None);
            return (at > 0).then_some(Source::Range(index, start, end));
        };
        let (start, end) = bounds(&prefix, at + 1 == paths.len(), Some((start, end)));
        return Some(Source::Range(index, start, end));
    }
    Some(Source::Keys(index, vec![prefix]))
}

/// From which key to which.
type Range<'a> = (&'a Bound<Vec<u8>>, &'a Bound<Vec<u8>>);

/// The keys of an index that begin with `prefix` and have, behind it, a value in the range.
pub(crate) fn bounds(prefix: &[u8], is_last: bool, range: Option<Range<'_>>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let under = |key: &Vec<u8>| [prefix, key.as_slice()].concat();
    let (start, end) = range.unwrap_or((&Bound::Unbounded, &Bound::Unbounded));
    let start = match start {
        Bound::Included(key) => Bound::Included(under(key)),
        // Behind everything that begins with the value, whatever the other paths have.
        Bound::Excluded(key) if is_last => Bound::Excluded(under(key)),
        Bound::Excluded(key) => match behind(under(key)) {
            Bound::Excluded(next) => Bound::Included(next),
            other => other,
        },
        Bound::Unbounded => Bound::Included(prefix.to_vec()),
    };
    let end = match end {
        Bound::Included(key) if is_last => Bound::Included(under(key)),
        Bound::Included(key) => behind(under(key)),
        Bound::Excluded(key) => Bound::Excluded(under(key)),
        Bound::Unbounded => behind(prefix.to_vec()),
    };
    (start, end)
}

/// The keys of which a path has to have one.
pub(crate) fn equal_keys<'a>(constraints: &'a [Constraint], path: &Path) -> Option<&'a [Vec<u8>]> {
    constraints.iter().find_map(|constraint| match &constraint.allowed {
        Allowed::Equal(keys) if constraint.path == *path => Some(keys.as_slice()),
        _ => None,
    })
}

fn best<'a>(share: &'a Share, filter: &Filter) -> (Source<'a>, u64) {
    let mut best = (Source::All, Source::All.count(share));
    if filter.constraints.is_empty() {
        return best;
    }
    let keys = equal_keys(&filter.constraints, &Path::field(&share.definition.id));
    // A long list of a few entries is sooner compared with each.
    if let Some(keys) = keys.filter(|keys| keys.len() <= share.entries.len()) {
        let slot_of = |key: &Vec<u8>| share.find_id(id_of_key(key)?.scalar());
        let slots: Vec<Slot> = keys.iter().filter_map(slot_of).collect();
        let count = slots.len() as u64;
        return (Source::Ids(slots), count);
    }
    for source in share.indexes.iter().filter_map(|index| source(index, &filter.constraints)) {
        let count = source.count(share);
        // Of a range that was not counted to its end, nothing is known but that it is long.
        if count < best.1 || (matches!(best.0, Source::All) && source.is_long()) {
            best = (source, count);
        }
    }
    best
}

/// The way in the order that is wanted, where that leads past fewer entries than there are candidates for sorting.
fn along<'a>(share: &'a Share, filter: &Filter, first: First<'_>, source: &(Source<'a>, u64)) -> Option<Along<'a>> {
    if share.definition.order != Order::Any {
        return None;
    }
    let total = share.entries.len() as u64;
    let candidates = if source.0.is_long() { total } else { source.1 };
    let ways = share.indexes.iter().filter_map(|index| {
        let way = Along::through(index, &filter.constraints, first.order, share.entries.len())?;
        let counted = way.count(COUNT_MAX);
        let on_the_way = if counted < COUNT_MAX as u64 { counted } else { total };
        let is_source = matches!(&source.0, Source::Range(index, ..) if std::ptr::eq(*index, way.index));
        // As if every candidate were wanted, and they lay evenly on the way.
        let visits = u128::from(first.enough) * u128::from(on_the_way);
        (is_source || visits < u128::from(candidates) * u128::from(candidates)).then_some((way, on_the_way))
    });
    ways.min_by_key(|(_, on_the_way)| *on_the_way).map(|(way, _)| way)
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;

impl Engine {
    /// How the entries would be found.
    #[must_use]
    pub fn explain(&self, of: TypeId, filter: &Filter, first: Option<First<'_>>) -> Option<Plan> {
        let (index, candidates, _) = self.plan(of, filter, first)?;
        Some(Plan { index, candidates })
    }

    /// How many entries are looked at at most.
    #[must_use]
    pub fn looks_at_most(&self, of: TypeId, filter: &Filter, first: Option<First<'_>>) -> u64 {
        self.plan(of, filter, first).map_or(0, |(_, _, at_most)| at_most)
    }

    fn plan(&self, of: TypeId, filter: &Filter, first: Option<First<'_>>) -> Option<(Option<String>, u64, u64)> {
        let share = self.types.get(&of)?;
        let (best, total) = (best(share, filter), share.entries.len() as u64);
        if let Some((way, first)) = first.and_then(|first| Some((along(share, filter, first, &best)?, first))) {
            let counted = way.count(COUNT_MAX);
            let at_most = if counted < COUNT_MAX as u64 { counted } else { total };
            return Some((Some(way.index.definition.name.clone()), counted.min(first.enough), at_most));
        }
        let (source, candidates) = best;
        let at_most = if source.is_long() { total } else { candidates };
        let index = match source {
            Source::All => None,
            Source::Ids(_) => Some(share.definition.id.clone()),
            Source::Keys(index, _) | Source::Range(index, _, _) => Some(index.definition.name.clone()),
        };
        Some((index, candidates, at_most))
    }

    /// Comes to the entries that are wanted, in the type's order, until `visit` or the search itself breaks.
    pub fn find(&self, search: Search<'_>, visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        let Search { of, filter, by, first, go_on } = search;
        let Some(share) = self.types.get(&of) else { return ControlFlow::Continue(()) };
        let best = best(share, filter);
        let way = first.and_then(|first| along(share, filter, first, &best));
        let along = way.as_ref().map_or(0, |way| way.keys);
        let mut left = STRETCH_BYTES;
        let mut look = |slot: Slot| {
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
            visit(Found { place: Place { of, slot }, along, entry, expires_ms: share.entries.expires_ms(slot) })
        };
        let is_ordered = share.definition.order != Order::Any;
        if let Some(way) = way {
            return way.go(look);
        }
        let source = best.0;
        match &source {
            Source::All if is_ordered => return share.queue.values().try_for_each(|slot| look(*slot)),
            Source::All => return share.entries.iter().try_for_each(|(slot, _)| look(slot)),
            _ => {}
        }
        if is_ordered {
            let mut slots = Vec::new();
            let _ = source.each(&mut |slot| {
                slots.push(slot);
                ControlFlow::Continue(())
            });
            slots.sort_unstable_by_key(|slot| share.entries.get(*slot).map(Entry::sequence));
            slots.dedup();
            return slots.into_iter().try_for_each(look);
        }
        // An entry with several items may be at several keys.
        let mut seen = source.is_many().then(BTreeSet::new);
        source.each(&mut |slot| {
            let is_new = seen.as_mut().is_none_or(|seen| seen.insert(slot));
            if is_new { look(slot) } else { ControlFlow::Continue(()) }
        })
    }
}
