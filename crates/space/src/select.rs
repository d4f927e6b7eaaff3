//! What a SELECT asks for, and what becomes of the documents that were found: projected, ordered, cut.
//!
//! May use: `compare`, `path`, `predicate`. Must not know: SQL's text, indexes, how groups are made.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::ControlFlow;

use crate::compare::compare;
use crate::document::Document;
use crate::error::{Error, Result, invalid};
use crate::path::Path;
use crate::predicate::{PATH_BYTES, Predicate};
use crate::value::{MapRef, Value, ValueRef};

/// A query, made by [`Query::parse`].
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Whether it is to be explained instead of answered.
    pub explain: bool,
    /// The type after FROM; `None` when the text was only a condition.
    pub type_name: Option<String>,
    /// Which documents.
    pub predicate: Predicate,
    /// What of them.
    pub projection: Projection,
    /// Whose values make a group.
    pub group_by: Vec<Path>,
    /// Which groups, by the names of outputs.
    pub having: Option<Predicate>,
    /// In which order: by paths into documents or, when there are groups, by the names of outputs.
    pub order: Vec<Order>,
    /// At most so many.
    pub limit: Option<Amount>,
    /// After so many.
    pub offset: Option<Amount>,
    /// How many parameters it has.
    pub parameters: usize,
}

/// What a query gives of each document or group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Projection {
    /// The whole document.
    All,
    /// A document of these.
    Outputs(Vec<Output>),
}

/// One field of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// What it is called.
    pub name: String,
    /// Where it comes from.
    pub source: Source,
    /// Whether it is shown, or only needed by HAVING or ORDER BY.
    pub shown: Shown,
}

/// Whether an output is part of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// It is.
    Yes,
    /// It is only needed to choose and order groups.
    No,
}

/// Where an output comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The value at a path: null when it is missing, a list of all when the path has `[*]`.
    Path(Path),
    /// A figure over the group.
    Aggregate(Aggregate),
}

/// A figure over a group: a function, of what a path comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    /// Which figure.
    pub function: Function,
    /// Of which values; `None` only for `count(*)`.
    pub path: Option<Path>,
}

/// Which figure. All pass over null and missing values; through `[*]` each item counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// How many.
    Count,
    /// How many different ones.
    CountDistinct,
    /// Their sum, exact: an integer of integers, a decimal when one is a decimal, an f64 when one is an f64.
    Sum,
    /// Their mean, always an f64: the exact sum, divided once.
    Avg,
    /// The least.
    Min,
    /// The greatest.
    Max,
}

/// One key of ORDER BY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// By what.
    pub path: Path,
    /// Which way.
    pub direction: Direction,
    /// Where null and missing stand.
    pub nulls: Nulls,
}

/// Which way an order goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the least.
    Ascending,
    /// From the greatest.
    Descending,
}

/// Where nulls stand in an order. Unless the text says so: where they belong as the least of all values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// Before all others.
    First,
    /// Behind all others.
    Last,
}

/// A number in LIMIT and OFFSET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Number(u64),
    /// As many as the parameter of this number says.
    Parameter(usize),
}

impl Query {
    /// The query with values for its parameters.
    ///
    /// # Errors
    /// `Invalid` when they are not as many as it has, or one does not fit its place.
    pub fn bind(&self, parameters: &[Value]) -> Result<Self> {
        if parameters.len() != self.parameters {
            return invalid(format!("the query has {} parameters, {} were given", self.parameters, parameters.len()));
        }
        Ok(Self {
            explain: self.explain,
            type_name: self.type_name.clone(),
            predicate: self.predicate.bind(parameters)?,
            projection: self.projection.clone(),
            group_by: self.group_by.clone(),
            having: self.having.as_ref().map(|having| having.bind(parameters)).transpose()?,
            order: self.order.clone(),
            limit: self.limit.map(|amount| amount.bound(parameters)).transpose()?,
            offset: self.offset.map(|amount| amount.bound(parameters)).transpose()?,
            parameters: 0,
        })
    }

    /// What it takes of memory, roughly.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let outputs = match &self.projection {
            Projection::All => 0,
            Projection::Outputs(outputs) => {
                outputs.iter().map(|output| size_of::<Output>() + output.name.len() + PATH_BYTES).sum()
            }
        };
        let paths = (self.group_by.len() + self.order.len()) * (size_of::<Order>() + PATH_BYTES);
        let having = self.having.as_ref().map_or(0, Predicate::memory_bytes);
        size_of::<Self>() + self.predicate.memory_bytes() + having + outputs + paths
    }

    /// Whether it answers with groups instead of documents.
    #[must_use]
    pub fn is_grouped(&self) -> bool {
        let has_aggregate = match &self.projection {
            Projection::All => false,
            Projection::Outputs(outputs) => outputs.iter().any(|output| matches!(output.source, Source::Aggregate(_))),
        };
        has_aggregate || !self.group_by.is_empty()
    }

    /// How many answers it wants at most, from which one on: `limit` and `offset`, once bound.
    #[must_use]
    pub fn window(&self) -> (Option<u64>, u64) {
        let number = |amount: Option<Amount>| match amount {
            Some(Amount::Number(number)) => Some(number),
            _ => None,
        };
        (number(self.limit), number(self.offset).unwrap_or(0))
    }

    /// How many documents, in order, a partition has to give so that the whole can be merged; `None` is all.
    #[must_use]
    pub fn reach(&self) -> Option<u64> {
        let (limit, offset) = self.window();
        limit.map(|limit| limit.saturating_add(offset))
    }

    /// What the query gives of a document, when it has no groups.
    #[must_use]
    pub fn project(&self, document: &Document) -> Document {
        let Projection::Outputs(outputs) = &self.projection else { return document.clone() };
        let mut fields = BTreeMap::new();
        for output in outputs.iter().filter(|output| output.shown == Shown::Yes) {
            if let Source::Path(path) = &output.source {
                fields.insert(output.name.clone(), projected(path, document.fields()));
            }
        }
        Document::new(&fields)
    }

    /// How many bytes of a document the query gives, without making it: a path may be named many times.
    #[must_use]
    pub fn projected_bytes(&self, document: &Document) -> usize {
        let Projection::Outputs(outputs) = &self.projection else { return 0 };
        let mut bytes = 0usize;
        for output in outputs {
            if let (Shown::Yes, Source::Path(path)) = (output.shown, &output.source) {
                bytes = bytes.saturating_add(output.name.len() + path.first(document.fields()).bytes_len());
                if path.has_items() {
                    let _ = path.values(document.fields(), |value| {
                        bytes = bytes.saturating_add(value.bytes_len());
                        ControlFlow::Continue(())
                    });
                }
            }
        }
        bytes
    }

    /// Which of two documents comes first. Equal ones stay as they are: sort with a stable sort.
    #[must_use]
    pub fn compare(&self, a: MapRef<'_>, b: MapRef<'_>) -> Ordering {
        self.compare_by(usize::MAX, a, b)
    }

    /// As [`Query::compare`], by the first so many keys of the order.
    #[must_use]
    pub fn compare_by(&self, keys: usize, a: MapRef<'_>, b: MapRef<'_>) -> Ordering {
        self.order.iter().take(keys).map(|key| key.compare(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Puts together what partitions found, each part in the query's order, and cuts it to LIMIT and OFFSET. Of equal ones
    /// those of the earlier part come first.
    pub fn merge<T>(&self, parts: Vec<Vec<T>>, fields: impl Fn(&T) -> MapRef<'_>) -> Vec<T> {
        let (limit, offset) = self.window();
        let limit = limit.map_or(usize::MAX, saturated);
        let offset = saturated(offset);
        if self.order.is_empty() {
            return parts.into_iter().flatten().skip(offset).take(limit).collect();
        }
        let mut heads: BinaryHeap<Head<'_, T, _>> = parts
            .into_iter()
            .enumerate()
            .filter_map(|(part, items)| {
                let mut rest = items.into_iter();
                Some(Head { item: rest.next()?, rest, part, query: self, fields: &fields })
            })
            .collect();
        let in_order = std::iter::from_fn(|| {
            let mut head = heads.pop()?;
            match head.rest.next() {
                None => Some(head.item),
                Some(next) => {
                    let item = std::mem::replace(&mut head.item, next);
                    heads.push(head);
                    Some(item)
                }
            }
        });
        in_order.skip(offset).take(limit).collect()
    }
}

fn saturated(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn projected(path: &Path, fields: MapRef<'_>) -> Value {
    if !path.has_items() {
        return path.first(fields).to_value();
    }
    let mut items = Vec::new();
    let _ = path.values(fields, |value| {
        items.push(value.to_value());
        ControlFlow::Continue(())
    });
    Value::List(items)
}

impl Order {
    fn compare(&self, a: MapRef<'_>, b: MapRef<'_>) -> Ordering {
        let (a, b) = (self.path.first(a), self.path.first(b));
        match (a == ValueRef::Null, b == ValueRef::Null) {
            (false, false) if self.direction == Direction::Descending => compare(b, a),
            (false, false) => compare(a, b),
            (a, b) if self.nulls == Nulls::First => b.cmp(&a),
            (a, b) => a.cmp(&b),
        }
    }
}

impl Amount {
    fn bound(self, parameters: &[Value]) -> Result<Self> {
        let Self::Parameter(number) = self else { return Ok(self) };
        match parameters.get(number) {
            Some(Value::I64(amount)) if *amount >= 0 => Ok(Self::Number(amount.unsigned_abs())),
            Some(Value::U64(amount)) => Ok(Self::Number(*amount)),
            _ => Err(Error::Invalid {
                text: format!("parameter {} of LIMIT or OFFSET must be an integer from 0", number + 1),
            }),
        }
    }
}

/// The next of a part; the greatest in a heap is the one that comes first.
struct Head<'q, T, F> {
    item: T,
    rest: std::vec::IntoIter<T>,
    part: usize,
    query: &'q Query,
    fields: &'q F,
}

impl<T, F: Fn(&T) -> MapRef<'_>> Ord for Head<'_, T, F> {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.query.compare((self.fields)(&self.item), (self.fields)(&other.item));
        order.then(self.part.cmp(&other.part)).reverse()
    }
}

impl<T, F: Fn(&T) -> MapRef<'_>> PartialOrd for Head<'_, T, F> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T, F: Fn(&T) -> MapRef<'_>> PartialEq for Head<'_, T, F> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T, F: Fn(&T) -> MapRef<'_>> Eq for Head<'_, T, F> {}

impl std::fmt::Display for Aggregate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, before) = match self.function {
            Function::Count => ("count", ""),
            Function::CountDistinct => ("count", "distinct "),
            Function::Sum => ("sum", ""),
            Function::Avg => ("avg", ""),
            Function::Min => ("min", ""),
            Function::Max => ("max", ""),
        };
        match &self.path {
            Some(path) => write!(f, "{name}({before}{path})"),
            None => write!(f, "{name}({before}*)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::documents;

    fn names(documents: &[Document]) -> Vec<Value> {
        documents.iter().filter_map(|document| document.get("n").map(ValueRef::to_value)).collect()
    }

    #[test]
    fn order_puts_nulls_where_it_says() {
        let rows: Vec<Document> = [(0, Value::Null), (1, 5.into()), (2, 4.5.into()), (3, "a".into()), (4, 5.into())]
            .into_iter()
            .map(|(n, a)| Document::from_pairs([("a", a), ("n", n.into())]))
            .collect();
        let table: [(&str, [i64; 5]); 6] = [
            ("ORDER BY a", [0, 2, 1, 4, 3]),
            ("ORDER BY a DESC", [3, 1, 4, 2, 0]),
            ("ORDER BY a NULLS LAST", [2, 1, 4, 3, 0]),
            ("ORDER BY a DESC NULLS FIRST", [0, 3, 1, 4, 2]),
            ("ORDER BY a, n DESC", [0, 2, 4, 1, 3]),
            ("ORDER BY missing, n DESC", [4, 3, 2, 1, 0]),
        ];
        for (text, expected) in table {
            let query = Query::parse(text).unwrap();
            let mut sorted = rows.clone();
            sorted.sort_by(|a, b| query.compare(a.fields(), b.fields()));
            assert_eq!(names(&sorted), expected.map(Value::from), "{text}");
        }
    }

    #[test]
    fn a_projection_names_what_it_gives() {
        let document = Document::from_pairs([("a", Value::from(vec![1, 2])), ("b", "x".into())]);
        let query = Query::parse("SELECT b, a[*] AS items, c.d FROM t").unwrap();
        let expected =
            Document::from_pairs([("b", Value::from("x")), ("items", vec![1, 2].into()), ("c.d", Value::Null)]);
        assert_eq!(query.project(&document), expected);
        let twice = Query::parse("SELECT a AS x, a AS y, a[*] AS items FROM t").unwrap();
        let (bytes, made) = (twice.projected_bytes(&document), twice.project(&document).as_bytes().len());
        assert!(bytes >= made / 2 && bytes <= 4 * made, "{bytes} {made}");
        assert_eq!(Query::parse("SELECT * FROM t").unwrap().project(&document), document);
    }

    proptest! {
        #[test]
        fn merging_is_sorting_all(
            mut parts in proptest::collection::vec(proptest::collection::vec(documents(), 0..6), 0..4),
            limit in 0..12usize, offset in 0..6usize,
        ) {
            let query = Query::parse(&format!("ORDER BY a DESC, b LIMIT {limit} OFFSET {offset}")).unwrap();
            let mut expected: Vec<_> = parts.iter().flatten().cloned().collect();
            expected.sort_by(|a, b| query.compare(a.fields(), b.fields()));
            let expected: Vec<_> = expected.into_iter().skip(offset).take(limit).collect();
            for part in &mut parts {
                part.sort_by(|a, b| query.compare(a.fields(), b.fields()));
                part.truncate(query.reach().unwrap() as usize);
            }
            prop_assert_eq!(query.merge(parts, |document| document.fields()), expected);
        }
    }
}
