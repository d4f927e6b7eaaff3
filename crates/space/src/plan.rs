//! How entries are found: which index is used.
//!
//! The plan is made anew each time from what the indexes hold. Where several indexes fit the conditions, it is that which leads to the
//! fewest entries, counted and not guessed, up to [`COUNT_MAX`] keys of a range. Where one fits, nothing is counted: that took most of the
//! time of a query for the first few of many. Ids need no index.
//!
//! May use: `share`, `indexes`, `constraint`, `along`. Must not know: who asks, predicates.

use std::ops::{Bound, ControlFlow};

use crate::along::{Along, First};
use crate::command::TypeId;
use crate::constraint::{Allowed, Constraint};
use crate::definition::Order;
use crate::engine::Engine;
use crate::entries::Slot;
use crate::find::Filter;
use crate::indexes::Index;
use crate::key::id_of_key;
use crate::path::Path;
use crate::share::Share;

/// Most keys of a range that are counted before it is taken for long.
const COUNT_MAX: usize = 1024;

/// Most keys that are counted of a way that is left as soon as there is enough: a page that is not longer looks at fewer, and to count more would take longer than the page.
const GLANCE_MAX: usize = 256;

/// How entries are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The index that is used, by name, or the field of ids; `None` when all entries are looked at.
    pub index: Option<String>,
    /// How many entries are looked at: of long ranges at least so many, and of those that are come to in the order that is wanted, with a limit.
    pub candidates: u64,
}

/// How much looking it takes to find entries, as far as that was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LooksAt {
    /// How many are looked at at the most.
    pub most: u64,
    /// Whether they are come to in the order that is wanted, so that it may be far fewer.
    pub in_order: bool,
}

/// How entries are come to.
pub(crate) enum Way<'a> {
    /// In the order of a query.
    Along(Along<'a>),
    From(Source<'a>),
}

/// Where candidates come from.
pub(crate) enum Source<'a> {
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
    pub(crate) fn count(&self, share: &Share) -> u64 {
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
    pub(crate) fn is_many(&self) -> bool {
        matches!(self, Self::Keys(index, _) | Self::Range(index, _, _) if index.is_many())
    }

    /// Comes to what is in the index, or has the ids, until `look` breaks.
    pub(crate) fn each(&self, look: &mut dyn FnMut(Slot) -> ControlFlow<()>) -> ControlFlow<()> {
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

    /// How many entries are looked at at the most.
    fn at_most(&self, share: &Share) -> u64 {
        if self.is_long() { share.entries.len() as u64 } else { self.count(share) }
    }

    /// The index that is used, or the field of ids.
    fn name(&self, share: &Share) -> Option<String> {
        match self {
            Self::All => None,
            Self::Ids(_) => Some(share.definition.id.clone()),
            Self::Keys(index, _) | Self::Range(index, _, _) => Some(index.definition.name.clone()),
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

/// The way to what is wanted.
pub(crate) fn way<'a>(share: &'a Share, filter: &Filter, first: Option<First<'_>>) -> Way<'a> {
    let best = best(share, filter);
    let along = first.and_then(|first| along(share, filter, first, &best));
    along.map_or_else(|| Way::From(best), Way::Along)
}

fn best<'a>(share: &'a Share, filter: &Filter) -> Source<'a> {
    if filter.constraints.is_empty() {
        return Source::All;
    }
    let keys = equal_keys(&filter.constraints, &Path::field(&share.definition.id));
    // A long list of a few entries is sooner compared with each.
    if let Some(keys) = keys.filter(|keys| keys.len() <= share.entries.len()) {
        let slot_of = |key: &Vec<u8>| share.find_id(id_of_key(key)?.scalar());
        return Source::Ids(keys.iter().filter_map(slot_of).collect());
    }
    let mut fitting = share.indexes.iter().filter_map(|index| source(index, &filter.constraints));
    let Some(one) = fitting.next() else { return Source::All };
    let Some(other) = fitting.next() else {
        // A range that holds all is hardly slower than all.
        let is_better = matches!(one, Source::Range(..)) || one.count(share) < Source::All.count(share);
        return if is_better { one } else { Source::All };
    };
    let mut best = (Source::All, Source::All.count(share));
    for source in [one, other].into_iter().chain(fitting) {
        let count = source.count(share);
        // Of a range that was not counted to its end, nothing is known but that it is long.
        if count < best.1 || (matches!(best.0, Source::All) && source.is_long()) {
            best = (source, count);
        }
    }
    best.0
}

/// The way in the order that is wanted, where that leads past fewer entries than there are candidates for sorting.
fn along<'a>(share: &'a Share, filter: &Filter, first: First<'_>, source: &Source<'a>) -> Option<Along<'a>> {
    if first.order.is_empty() || share.definition.order != Order::Any {
        return None;
    }
    let total = share.entries.len() as u64;
    let is_source = |way: &Along<'_>| matches!(source, Source::Range(index, ..) if std::ptr::eq(*index, way.index));
    let through = |index| Along::through(index, &filter.constraints, first.order, share.entries.len());
    let mut ways = share.indexes.iter().filter_map(through);
    let one = ways.next()?;
    let Some(other) = ways.next() else {
        let is_better = match source {
            Source::All => first.enough < total,
            source => is_source(&one) || is_shorter(&one, first, total, source.at_most(share)),
        };
        return is_better.then_some(one);
    };
    let candidates = source.at_most(share);
    let ways = [one, other].into_iter().chain(ways);
    let better = ways.filter(|way| is_source(way) || is_shorter(way, first, total, candidates));
    better.min_by_key(|way| on_the_way(way, total, COUNT_MAX))
}

/// As if every candidate were wanted, and they lay evenly on the way.
fn is_shorter(way: &Along<'_>, first: First<'_>, total: u64, candidates: u64) -> bool {
    let visits = u128::from(first.enough) * u128::from(on_the_way(way, total, COUNT_MAX));
    visits < u128::from(candidates) * u128::from(candidates)
}

/// How many there are on the way; all, if they are more than are counted.
fn on_the_way(way: &Along<'_>, total: u64, most: usize) -> u64 {
    let counted = way.count(most);
    if counted < most as u64 { counted } else { total }
}

impl Engine {
    /// How the entries would be found.
    #[must_use]
    pub fn explain(&self, of: TypeId, filter: &Filter, first: Option<First<'_>>) -> Option<Plan> {
        let share = self.types.get(&of)?;
        let (index, candidates) = match way(share, filter, first) {
            Way::Along(way) => {
                let enough = first.map_or(u64::MAX, |first| first.enough);
                (Some(way.index.definition.name.clone()), way.count(COUNT_MAX).min(enough))
            }
            Way::From(source) => (source.name(share), source.count(share)),
        };
        Some(Plan { index, candidates })
    }

    /// How much looking that takes. More than `few` may be told as all that there are.
    #[must_use]
    pub fn looks_at(&self, of: TypeId, filter: &Filter, first: Option<First<'_>>, few: u64) -> LooksAt {
        let Some(share) = self.types.get(&of) else { return LooksAt { most: 0, in_order: true } };
        let total = share.entries.len() as u64;
        let most = usize::try_from(few).unwrap_or(usize::MAX).saturating_add(1).min(COUNT_MAX);
        let page = first.map_or(usize::MAX, |first| usize::try_from(first.enough).unwrap_or(usize::MAX));
        let most = most.min(page.saturating_add(1).max(GLANCE_MAX));
        match way(share, filter, first) {
            Way::Along(way) => LooksAt { most: on_the_way(&way, total, most), in_order: true },
            Way::From(source) => LooksAt { most: source.at_most(share), in_order: false },
        }
    }
}
