//! Groups and the figures over them, made by each partition for itself and merged.
//!
//! What comes out does not depend on how documents were spread or in which order they came: sums are exact (see `sum.rs`),
//! and of equal values that look different (`1` and `1.0`) the one with the lesser bytes stands for all.
//!
//! May use: `key`, `select`, `sum`. Must not know: SQL's text, indexes, partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use crate::compare::compare;
use crate::document::Document;
use crate::error::{Error, Result, invalid, limit};
use crate::key::{encode_key, key_of};
use crate::select::{Aggregate, Function, Projection, Query, Shown, Source};
use crate::sum::Sum;
use crate::value::{MapRef, StoredValue, Value, ValueRef};

/// How much groups may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupLimits {
    /// How many groups. 100,000 unless told, which answers in about a second and takes some tens of megabytes.
    pub groups_max: usize,
    /// How many different values all `count(distinct ..)` together. 1,000,000 unless told.
    pub distinct_max: usize,
    /// How many bytes of memory all of it: keys, values and the different ones. 256 MiB unless told.
    pub bytes_max: usize,
}

/// What a group takes beside its key and values, and a value among different ones: an entry of a tree, and a block of memory.
const GROUP_BYTES: usize = 160;
const VALUE_BYTES: usize = 64;

impl Default for GroupLimits {
    fn default() -> Self {
        Self { groups_max: 100_000, distinct_max: 1_000_000, bytes_max: 256 << 20 }
    }
}

/// The groups of some documents.
#[derive(Debug, Clone, PartialEq)]
pub struct Groups {
    limits: GroupLimits,
    /// By the keys of what they are grouped by, one after another.
    groups: BTreeMap<Vec<u8>, Group>,
    size: Size,
}

/// How much there is of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Size {
    /// Different values.
    distinct: usize,
    bytes: usize,
}

impl Size {
    fn check(self, limits: GroupLimits) -> Result<()> {
        limit("number of distinct values", self.distinct, limits.distinct_max)?;
        limit("memory of groups and their values", self.bytes, limits.bytes_max)
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Group {
    /// What it is grouped by, in the order of GROUP BY.
    values: Vec<StoredValue>,
    /// One for each aggregate among the outputs, in their order.
    states: Vec<State>,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Count(u64),
    Distinct(BTreeSet<Vec<u8>>),
    Sum(Sum),
    Mean(Sum),
    Least(Option<StoredValue>),
    Greatest(Option<StoredValue>),
}

impl Groups {
    /// No groups yet.
    #[must_use]
    pub fn new(limits: GroupLimits) -> Self {
        Self { limits, groups: BTreeMap::new(), size: Size::default() }
    }

    /// Adds a document that matches the query.
    ///
    /// # Errors
    /// `Limit` when there are too many groups or distinct values, or they are too large; `Invalid` when a value that is no number is to be summed.
    /// What was added so far is of no use then.
    pub fn add(&mut self, query: &Query, fields: MapRef<'_>) -> Result<()> {
        let mut key = Vec::with_capacity(32);
        for path in &query.group_by {
            encode_key(path.first(fields), &mut key);
        }
        let values = || query.group_by.iter().map(|path| path.first(fields));
        let group = match self.groups.get_mut(&key) {
            Some(group) => {
                keep_least_bytes(&mut group.values, values());
                group
            }
            None => {
                limit("number of groups", self.groups.len() + 1, self.limits.groups_max)?;
                let group = Group { values: values().map(ValueRef::stored).collect(), states: states_of(query) };
                self.size.bytes += key.len() + group.size().bytes;
                self.size.check(self.limits)?;
                self.groups.entry(key).or_insert(group)
            }
        };
        for (aggregate, state) in aggregates(query).zip(&mut group.states) {
            let Some(path) = &aggregate.path else {
                state.add(ValueRef::Bool(true), aggregate, &mut self.size)?;
                continue;
            };
            let mut outcome = Ok(());
            let _ = path.values(fields, |value| {
                if value != ValueRef::Null {
                    // Each, because one document may have millions.
                    let added = state.add(value, aggregate, &mut self.size);
                    outcome = added.and_then(|()| self.size.check(self.limits));
                }
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            outcome?;
        }
        Ok(())
    }

    /// How many bytes of memory it takes, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.size.bytes
    }

    /// Adds the groups that another partition made for the same query.
    ///
    /// # Errors
    /// `Limit` and `Invalid` as for [`Groups::add`].
    pub fn merge(&mut self, other: Self) -> Result<()> {
        for (key, theirs) in other.groups {
            let Some(group) = self.groups.get_mut(&key) else {
                limit("number of groups", self.groups.len() + 1, self.limits.groups_max)?;
                let size = theirs.size();
                self.size.distinct += size.distinct;
                self.size.bytes += key.len() + size.bytes;
                self.size.check(self.limits)?;
                self.groups.insert(key, theirs);
                continue;
            };
            let Group { values, states } = theirs;
            keep_least_bytes(&mut group.values, values.iter().map(StoredValue::get));
            for (here, there) in group.states.iter_mut().zip(states) {
                let before = here.size();
                here.merge(there)?;
                let after = here.size();
                self.size.distinct = self.size.distinct - before.distinct + after.distinct;
                self.size.bytes = self.size.bytes - before.bytes + after.bytes;
            }
            self.size.check(self.limits)?;
        }
        Ok(())
    }

    /// The answer: a document for each group that HAVING lets through, in the query's order, and else in the order of what
    /// they are grouped by. Without GROUP BY there is one, also when there are no documents.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit.
    pub fn finish(mut self, query: &Query) -> Result<Vec<Document>> {
        let Projection::Outputs(outputs) = &query.projection else {
            return invalid("groups are answered with named outputs");
        };
        if query.group_by.is_empty() && self.groups.is_empty() {
            self.groups.insert(Vec::new(), Group { values: Vec::new(), states: states_of(query) });
        }
        let mut rows = Vec::with_capacity(self.groups.len());
        for group in self.groups.into_values() {
            let mut row = BTreeMap::new();
            let mut states = group.states.into_iter();
            for output in outputs {
                let value = match &output.source {
                    Source::Aggregate(aggregate) => match states.next() {
                        Some(state) => state.finish(aggregate)?,
                        None => Value::Null,
                    },
                    Source::Path(path) => {
                        let at = query.group_by.iter().position(|grouped| grouped == path);
                        at.and_then(|at| group.values.get(at)).map_or(Value::Null, |value| value.get().to_value())
                    }
                };
                row.insert(output.name.clone(), value);
            }
            let row = Document::new(&row);
            if query.having.as_ref().is_none_or(|having| having.matches(row.fields())) {
                rows.push(row);
            }
        }
        rows.sort_by(|a, b| query.compare(a.fields(), b.fields()));
        let mut rows = query.merge(vec![rows], |row| row.fields());
        if outputs.iter().any(|output| output.shown == Shown::No) {
            for row in &mut rows {
                let shown = outputs.iter().filter(|output| output.shown == Shown::Yes);
                *row = Document::from_pairs(shown.map(|output| {
                    (output.name.as_str(), row.get(&output.name).map_or(Value::Null, ValueRef::to_value))
                }));
            }
        }
        Ok(rows)
    }
}

impl Group {
    /// Without its key.
    fn size(&self) -> Size {
        let values = self.values.iter().map(|value| size_of::<StoredValue>() + value.as_bytes().len()).sum::<usize>();
        let bytes = GROUP_BYTES + values + self.states.len() * size_of::<State>();
        self.states.iter().map(State::size).fold(Size { distinct: 0, bytes }, |sum, one| Size {
            distinct: sum.distinct + one.distinct,
            bytes: sum.bytes + one.bytes,
        })
    }
}

fn aggregates(query: &Query) -> impl Iterator<Item = &Aggregate> {
    let outputs = match &query.projection {
        Projection::All => [].iter(),
        Projection::Outputs(outputs) => outputs.iter(),
    };
    outputs.filter_map(|output| match &output.source {
        Source::Aggregate(aggregate) => Some(aggregate),
        Source::Path(_) => None,
    })
}

fn states_of(query: &Query) -> Vec<State> {
    aggregates(query)
        .map(|aggregate| match aggregate.function {
            Function::Count => State::Count(0),
            Function::CountDistinct => State::Distinct(BTreeSet::new()),
            Function::Sum => State::Sum(Sum::default()),
            Function::Avg => State::Mean(Sum::default()),
            Function::Min => State::Least(None),
            Function::Max => State::Greatest(None),
        })
        .collect()
}

fn keep_least_bytes<'a>(kept: &mut [StoredValue], values: impl Iterator<Item = ValueRef<'a>>) {
    for (kept, value) in kept.iter_mut().zip(values) {
        // Only numbers, alone or within others, have equal ones that look different.
        if !matches!(value, ValueRef::Null | ValueRef::Bool(_) | ValueRef::String(_) | ValueRef::Timestamp(_)) {
            let value = value.stored();
            if value.as_bytes() < kept.as_bytes() {
                *kept = value;
            }
        }
    }
}

impl State {
    fn add(&mut self, value: ValueRef<'_>, aggregate: &Aggregate, size: &mut Size) -> Result<()> {
        let wanted = match self {
            Self::Least(_) => std::cmp::Ordering::Less,
            _ => std::cmp::Ordering::Greater,
        };
        match self {
            Self::Count(count) => *count += 1,
            Self::Distinct(keys) => {
                let key = key_of(value);
                let bytes = VALUE_BYTES + key.len();
                if keys.insert(key) {
                    size.distinct += 1;
                    size.bytes += bytes;
                }
            }
            Self::Least(kept) | Self::Greatest(kept) => {
                let before = bytes_of(kept.as_ref());
                replace_if(kept, value, wanted);
                size.bytes = size.bytes - before + bytes_of(kept.as_ref());
            }
            Self::Sum(sum) | Self::Mean(sum) => {
                if sum.add(value).is_none() {
                    return match value {
                        ValueRef::Decimal(_) | ValueRef::I64(_) | ValueRef::U64(_) => Err(overflow(aggregate)),
                        other => invalid(format!("{aggregate}: {} is no number", other.kind())),
                    };
                }
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) -> Result<()> {
        match (self, other) {
            (Self::Count(here), Self::Count(there)) => *here += there,
            (Self::Distinct(here), Self::Distinct(there)) => here.extend(there),
            (Self::Sum(here), Self::Sum(there)) | (Self::Mean(here), Self::Mean(there)) => {
                here.merge(there).ok_or(Error::Invalid { text: "a sum is larger than 38 digits hold".to_owned() })?;
            }
            (Self::Least(here), Self::Least(Some(there))) => replace_if(here, there.get(), std::cmp::Ordering::Less),
            (Self::Greatest(here), Self::Greatest(Some(there))) => {
                replace_if(here, there.get(), std::cmp::Ordering::Greater);
            }
            _ => {}
        }
        Ok(())
    }

    /// What it takes beside itself.
    fn size(&self) -> Size {
        match self {
            Self::Distinct(keys) => {
                Size { distinct: keys.len(), bytes: keys.iter().map(|key| VALUE_BYTES + key.len()).sum() }
            }
            Self::Least(kept) | Self::Greatest(kept) => Size { distinct: 0, bytes: bytes_of(kept.as_ref()) },
            _ => Size::default(),
        }
    }

    fn finish(self, aggregate: &Aggregate) -> Result<Value> {
        Ok(match self {
            Self::Count(count) => Value::from(count),
            Self::Distinct(keys) => Value::from(keys.len() as u64),
            Self::Sum(sum) => sum.total().ok_or_else(|| overflow(aggregate))?,
            Self::Mean(sum) => sum.mean().ok_or_else(|| overflow(aggregate))?,
            Self::Least(value) | Self::Greatest(value) => value.map_or(Value::Null, |value| value.get().to_value()),
        })
    }
}

fn bytes_of(value: Option<&StoredValue>) -> usize {
    value.map_or(0, |value| value.as_bytes().len())
}

fn replace_if(kept: &mut Option<StoredValue>, value: ValueRef<'_>, wanted: std::cmp::Ordering) {
    let replaces = match kept {
        None => true,
        Some(kept) => match compare(value, kept.get()) {
            std::cmp::Ordering::Equal => value.stored().as_bytes() < kept.as_bytes(),
            order => order == wanted,
        },
    };
    if replaces {
        *kept = Some(value.stored());
    }
}

fn overflow(aggregate: &Aggregate) -> Error {
    Error::Invalid { text: format!("{aggregate} is larger than 38 digits hold") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::documents;

    fn answer(query: &Query, parts: &[Vec<Document>]) -> Result<Vec<Document>> {
        let mut whole = Groups::new(GroupLimits::default());
        for part in parts {
            let mut groups = Groups::new(GroupLimits::default());
            for document in part.iter().filter(|document| query.predicate.matches(document.fields())) {
                groups.add(query, document.fields())?;
            }
            whole.merge(groups)?;
        }
        whole.finish(query)
    }

    fn orders() -> Vec<Vec<Document>> {
        let order = |city: Value, price: Value, tags: &[&str]| {
            Document::from_pairs([("city", city), ("price", price), ("tags", tags.to_vec().into())])
        };
        vec![
            vec![order("Bonn".into(), 5.into(), &["x"]), order("Köln".into(), 7.into(), &[])],
            vec![order("Bonn".into(), 2.5.into(), &["x", "y"]), order(Value::Null, Value::Null, &["z"])],
            vec![],
        ]
    }

    #[test]
    fn the_table_of_answers() {
        let row = |pairs: &[(&str, Value)]| Document::from_pairs(pairs.iter().cloned());
        let table: Vec<(&str, Vec<Document>)> = vec![
            (
                "SELECT count(*), count(price) AS n, sum(price) AS s FROM t",
                vec![row(&[("count(*)", 4.into()), ("n", 3.into()), ("s", 14.5.into())])],
            ),
            (
                "SELECT city, sum(price) AS s FROM t GROUP BY city",
                vec![
                    row(&[("city", Value::Null), ("s", Value::Null)]),
                    row(&[("city", "Bonn".into()), ("s", 7.5.into())]),
                    row(&[("city", "Köln".into()), ("s", 7.into())]),
                ],
            ),
            ("SELECT city FROM t GROUP BY city HAVING count(*) > 1", vec![row(&[("city", "Bonn".into())])]),
            (
                "SELECT city FROM t WHERE price > 0 GROUP BY city ORDER BY max(price) DESC LIMIT 1",
                vec![row(&[("city", "Köln".into())])],
            ),
            (
                "SELECT count(distinct tags[*]) AS d, count(tags[*]) AS n, min(tags[*]) AS a, max(tags[*]) AS z, avg(price) AS m FROM t",
                vec![row(&[
                    ("d", 3.into()),
                    ("n", 4.into()),
                    ("a", "x".into()),
                    ("z", "z".into()),
                    ("m", (14.5 / 3.0).into()),
                ])],
            ),
            (
                "SELECT DISTINCT city FROM t WHERE city IS NOT NULL ORDER BY city DESC OFFSET 1",
                vec![row(&[("city", "Bonn".into())])],
            ),
            (
                "SELECT count(*) AS n, min(price) AS a, sum(price) AS s FROM t WHERE FALSE",
                vec![row(&[("n", 0.into()), ("a", Value::Null), ("s", Value::Null)])],
            ),
            ("SELECT city, count(*) FROM t WHERE FALSE GROUP BY city", vec![]),
        ];
        for (text, expected) in table {
            assert_eq!(answer(&Query::parse(text).unwrap(), &orders()).unwrap(), expected, "{text}");
        }
        let error = answer(&Query::parse("SELECT sum(city) FROM t").unwrap(), &orders()).unwrap_err();
        assert!(error.to_string().contains("sum(city): a string is no number"), "{error}");
    }

    #[test]
    fn too_many_groups_or_values_are_refused() {
        let limits = GroupLimits { groups_max: 2, distinct_max: 2, ..GroupLimits::default() };
        for text in ["SELECT a FROM t GROUP BY a", "SELECT count(distinct a) FROM t"] {
            let query = Query::parse(text).unwrap();
            let mut groups = Groups::new(limits);
            let mut add = |a: i64| groups.add(&query, Document::from_pairs([("a", a)]).fields());
            assert!(add(1).is_ok() && add(2).is_ok() && add(1).is_ok());
            assert!(matches!(add(3), Err(Error::Limit { limit: 2, .. })), "{text}");
            let mut merged = Groups::new(limits);
            assert!(merged.merge(groups).is_err() || text.contains("GROUP"));
        }
    }

    /// Their number was bounded, and not their size: large keys, values and lists took gigabytes.
    #[test]
    fn groups_and_values_that_take_too_much_memory_are_refused() {
        let limits = GroupLimits { bytes_max: 64 << 10, ..GroupLimits::default() };
        let large = |number: usize| Document::from_pairs([("a", Value::from(format!("{number:08}").repeat(1 << 10)))]);
        let refused =
            |groups: &mut Groups, query: &Query, document: &Document| match groups.add(query, document.fields()) {
                Ok(()) => false,
                Err(Error::Limit { what, .. }) => what.starts_with("memory"),
                Err(error) => panic!("{error}"),
            };
        for (text, first_refused) in [
            ("SELECT a FROM t GROUP BY a", 3),
            ("SELECT count(distinct a) FROM t", 7),
            ("SELECT min(a) FROM t", 20),
            ("SELECT a, max(a), min(a) FROM t GROUP BY a", 1),
        ] {
            let query = Query::parse(text).unwrap();
            let mut groups = Groups::new(limits);
            let at = (0..20).find(|number| refused(&mut groups, &query, &large(*number))).unwrap_or(20);
            assert_eq!(at, first_refused, "{text}");
            assert!(groups.bytes() > 8 << 10);
        }
        // One document alone: nothing more of it is taken than there is room for.
        let list: Vec<Value> = (0..100_000).map(Value::from).collect();
        let document = Document::from_pairs([("a", Value::List(list))]);
        let query = Query::parse("SELECT count(distinct a[*]) FROM t").unwrap();
        let mut groups = Groups::new(limits);
        assert!(refused(&mut groups, &query, &document) && groups.bytes() < limits.bytes_max + 1_000);
    }

    proptest! {
        /// What is counted on the way is what is there.
        #[test]
        fn the_memory_of_groups_is_the_sum_of_what_they_hold(all in proptest::collection::vec(documents(), 0..12)) {
            let query = Query::parse("SELECT a, count(distinct b) AS d, min(b), max(c) FROM t GROUP BY a").unwrap();
            let (mut groups, mut merged) = (Groups::new(GroupLimits::default()), Groups::new(GroupLimits::default()));
            for (number, document) in all.iter().enumerate() {
                groups.add(&query, document.fields()).unwrap();
                let mut one = Groups::new(GroupLimits::default());
                one.add(&query, document.fields()).unwrap();
                merged.merge(one).unwrap();
                prop_assert!(groups.groups.len() <= number + 1);
            }
            let of = |groups: &Groups| groups.groups.iter().map(|(key, group)| key.len() + group.size().bytes).sum::<usize>();
            // Of values that are equal and look different the one with the lesser bytes takes the place of another.
            prop_assert!(groups.bytes().abs_diff(of(&groups)) <= 64 * all.len());
            prop_assert!(merged.bytes().abs_diff(of(&merged)) <= 64 * all.len());
        }

        #[test]
        fn no_cut_and_no_order_changes_an_answer(mut all in proptest::collection::vec(documents(), 0..12), cut in 0usize..12) {
            let query = Query::parse(
                "SELECT a, count(*), count(distinct b) AS d, min(b), max(c), count(b[*]) FROM t GROUP BY a HAVING count(*) > 0 \
                 ORDER BY d DESC").unwrap();
            let whole = answer(&query, &[all.clone()]).unwrap();
            let (left, right) = all.split_at(cut.min(all.len()));
            prop_assert_eq!(&answer(&query, &[right.to_vec(), left.to_vec()]).unwrap(), &whole);
            all.reverse();
            prop_assert_eq!(answer(&query, &[all]).unwrap(), whole);
        }
    }
}
