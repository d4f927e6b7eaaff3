//! Changes of documents that are shipped instead of the documents.
//!
//! A change copies the document's bytes up to the value that it changes and behind it; nothing else is read. What it makes is
//! a document again: in one form, and not too deep.
//!
//! May use: `compare`, `document`, `path`, `value`. Must not know: who changes, versions, leases.

use crate::compare::{Class, compare};
use crate::document::Document;
use crate::error::{Error, Result, invalid};
use crate::path::{Path, Step};
use crate::value::{DEPTH_MAX, Decimal, ListRef, MapRef, StoredValue, Value, ValueRef, is_equal_stored, raw, skip};
use base::{Fields, put_string};

/// One change of a document. Paths have no `[*]`: a change is of one value. What is null counts as missing.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The value there becomes this. Maps that are missing on the way are made.
    Set {
        /// Where.
        path: Path,
        /// What.
        value: Value,
    },
    /// There is nothing there any more.
    Unset {
        /// Where.
        path: Path,
    },
    /// The number there grows by this; what is missing counts as 0. Integers stay integers, and a sum that does not fit is an
    /// error; with a decimal it is an exact decimal; with an f64 it is an f64.
    Increment {
        /// Where.
        path: Path,
        /// How much, or less.
        by: Value,
    },
    /// The list there ends with this; a missing list is made.
    Append {
        /// Where.
        path: Path,
        /// What.
        value: Value,
    },
    /// The list there has this: appended, unless an item is equal.
    AddUnique {
        /// Where.
        path: Path,
        /// What.
        value: Value,
    },
    /// The list there has no item that is equal to this.
    RemoveItem {
        /// Where.
        path: Path,
        /// What.
        value: Value,
    },
    /// The map there has this value by this key; a missing map is made.
    PutKey {
        /// Where.
        path: Path,
        /// By which key.
        key: String,
        /// What.
        value: Value,
    },
    /// The map there has no such key.
    RemoveKey {
        /// Where.
        path: Path,
        /// Which key.
        key: String,
    },
}

impl Change {
    /// The document with all changes, in their order.
    ///
    /// # Errors
    /// `Invalid` when there is something else than the change needs, a path has `[*]`, or a sum does not fit; `Limit` when the
    /// document would become too deep. Then nothing is changed.
    pub fn apply(changes: &[Self], document: &Document) -> Result<Document> {
        let mut bytes = document.as_bytes().to_vec();
        let mut changed = Vec::with_capacity(bytes.len());
        for change in changes {
            changed.clear();
            change.write(MapRef(&bytes), &mut changed)?;
            std::mem::swap(&mut bytes, &mut changed);
        }
        Ok(if bytes == document.as_bytes() { document.clone() } else { Document::trusted(&bytes) })
    }

    /// Where it changes something.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Set { path, .. }
            | Self::Unset { path }
            | Self::Increment { path, .. }
            | Self::Append { path, .. } => path,
            Self::AddUnique { path, .. } | Self::RemoveItem { path, .. } => path,
            Self::PutKey { path, .. } | Self::RemoveKey { path, .. } => path,
        }
    }

    fn write(&self, fields: MapRef<'_>, to: &mut Vec<u8>) -> Result<()> {
        let path = self.path();
        let mut steps = path.steps();
        let longer: Vec<Step>;
        if let Self::PutKey { key, .. } | Self::RemoveKey { key, .. } = self {
            longer = steps.iter().cloned().chain([Step::Name(key.as_str().into())]).collect();
            steps = &longer;
        }
        match self {
            Self::Set { value, .. } | Self::PutKey { value, .. } => {
                let value = checked(value, steps.len() - 1)?;
                write_changed(path, fields, steps, to, &mut |_| Ok(Edit::Put(value.clone())))
            }
            Self::Unset { .. } | Self::RemoveKey { .. } => {
                write_changed(path, fields, steps, to, &mut |_| Ok(Edit::Remove))
            }
            Self::Increment { by, .. } => write_changed(path, fields, steps, to, &mut |old| {
                let sum = sum(old.unwrap_or(ValueRef::Null), by);
                sum.map(|sum| Edit::Put(sum.stored()))
                    .map_err(|why| Error::Invalid { text: format!("increment of {path}: {why}") })
            }),
            Self::Append { value, .. } => {
                let value = checked(value, steps.len())?;
                write_changed(path, fields, steps, to, &mut |old| Ok(appended(list(path, old)?, &value)))
            }
            Self::AddUnique { value, .. } => {
                let value = checked(value, steps.len())?;
                write_changed(path, fields, steps, to, &mut |old| {
                    let list = list(path, old)?;
                    let is_there = list.iter().any(|item| compare(item, value.get()).is_eq());
                    Ok(if is_there { Edit::Keep } else { appended(list, &value) })
                })
            }
            Self::RemoveItem { value, .. } => {
                let value = checked(value, steps.len())?;
                write_changed(path, fields, steps, to, &mut |old| match old {
                    None | Some(ValueRef::Null) => Ok(Edit::Keep),
                    old => Ok(without(list(path, old)?, &value)),
                })
            }
        }
    }
}

/// What becomes of a value.
enum Edit {
    Keep,
    Remove,
    Put(StoredValue),
}

/// Writes a map in which what lies at the end of the steps is edited. The depth of this recursion is that of the path.
fn write_changed(
    path: &Path,
    fields: MapRef<'_>,
    steps: &[Step],
    to: &mut Vec<u8>,
    edit: &mut dyn FnMut(Option<ValueRef<'_>>) -> Result<Edit>,
) -> Result<()> {
    let Some((Step::Name(name), inner)) = steps.split_first() else {
        return invalid(format!("{path} may come to many values: a change needs a path without [*]"));
    };
    let all = fields.as_bytes();
    let mut rest = Fields(all);
    // Everything before the name goes as it is; `old` is what the name has, and `rest` what is behind.
    let mut old: Option<&[u8]> = None;
    let mut before = 0;
    loop {
        let mut next = rest;
        match next.string().map(|here| here.cmp(name.as_bytes())) {
            Some(std::cmp::Ordering::Less) => {
                skip(&mut next).ok_or(Error::Malformed { what: "document" })?;
                rest = next;
                before = all.len() - rest.0.len();
            }
            Some(std::cmp::Ordering::Equal) => {
                old = Some(raw(&mut next).ok_or(Error::Malformed { what: "document" })?);
                rest = next;
                break;
            }
            Some(std::cmp::Ordering::Greater) | None => break,
        }
    }
    to.extend_from_slice(all.get(..before).unwrap_or_default());
    let value = old.and_then(|old| ValueRef::read(&mut Fields(old)));
    if inner.is_empty() {
        match (edit(value)?, old) {
            (Edit::Put(value), _) => put(name, value.as_bytes(), to),
            (Edit::Keep, Some(old)) => put(name, old, to),
            (Edit::Keep, None) | (Edit::Remove, _) => {}
        }
    } else {
        let map = match value {
            Some(ValueRef::Map(map)) => Some(map),
            None | Some(ValueRef::Null) => None,
            Some(other) => return invalid(format!("change of {path}: {name} is {}, not a map", other.kind())),
        };
        let mut body = Vec::new();
        write_changed(path, map.unwrap_or(MapRef(&[])), inner, &mut body, edit)?;
        // Removing from what is not there makes nothing.
        match (map, old) {
            (None, Some(old)) if body.is_empty() => put(name, old, to),
            (None, None) if body.is_empty() => {}
            _ => put(name, ValueRef::Map(MapRef(&body)).stored().as_bytes(), to),
        }
    }
    to.extend_from_slice(rest.0);
    Ok(())
}

fn put(name: &str, value: &[u8], to: &mut Vec<u8>) {
    put_string(to, name.as_bytes());
    to.extend_from_slice(value);
}

/// The value in stored form, if a document may hold it behind so many others.
fn checked(value: &Value, behind: usize) -> Result<StoredValue> {
    value.check_depth(DEPTH_MAX.saturating_sub(behind))?;
    Ok(value.stored())
}

fn list<'a>(path: &Path, old: Option<ValueRef<'a>>) -> Result<ListRef<'a>> {
    match old {
        None | Some(ValueRef::Null) => Ok(ListRef(&[])),
        Some(ValueRef::List(list)) => Ok(list),
        Some(other) => invalid(format!("change of {path}: there is {}, not a list", other.kind())),
    }
}

fn appended(list: ListRef<'_>, value: &StoredValue) -> Edit {
    let items = [list.0, value.as_bytes()].concat();
    Edit::Put(ValueRef::List(ListRef(&items)).stored())
}

fn without(list: ListRef<'_>, value: &StoredValue) -> Edit {
    let (mut rest, mut items) = (Fields(list.0), Vec::with_capacity(list.0.len()));
    while let Some(item) = raw(&mut rest) {
        if !is_equal_stored(item, value.as_bytes()) {
            items.extend_from_slice(item);
        }
    }
    Edit::Put(ValueRef::List(ListRef(&items)).stored())
}

/// The sum, or why there is none.
fn sum(old: ValueRef<'_>, by: &Value) -> std::result::Result<Value, String> {
    let by = by.stored();
    let old = if old == ValueRef::Null { ValueRef::I64(0) } else { old };
    for value in [old, by.get()] {
        if Class::of(value) != Class::Number {
            return Err(format!("{} is no number", value.kind()));
        }
    }
    if let (Some(a), Some(b)) = (integer(old), integer(by.get())) {
        let sum = a + b;
        let fits = i64::try_from(sum).map(Value::I64).or_else(|_| u64::try_from(sum).map(Value::U64));
        return fits.map_err(|_| format!("{sum} does not fit 64 bits"));
    }
    if let (Some(a), Some(b)) = (decimal(old), decimal(by.get())) {
        return a.checked_add(b).map(Value::Decimal).ok_or_else(|| "the sum is larger than 38 digits hold".to_owned());
    }
    let (a, b) = (float(old), float(by.get()));
    let sum = a + b;
    // Two numbers have one as their sum; what was none before stays none.
    if !sum.is_finite() && a.is_finite() && b.is_finite() {
        Err("the sum is larger than an f64 holds".to_owned())
    } else {
        Ok(Value::F64(sum))
    }
}

fn integer(value: ValueRef<'_>) -> Option<i128> {
    match value {
        ValueRef::I64(number) => Some(i128::from(number)),
        ValueRef::U64(number) => Some(i128::from(number)),
        _ => None,
    }
}

fn decimal(value: ValueRef<'_>) -> Option<Decimal> {
    match value {
        ValueRef::Decimal(number) => Some(number),
        value => integer(value).map(Decimal::from),
    }
}

fn float(value: ValueRef<'_>) -> f64 {
    match value {
        ValueRef::F64(number) => number,
        value => decimal(value).map_or(0.0, Decimal::to_f64),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::{documents, values};

    fn map(pairs: &[(&str, Value)]) -> Value {
        Value::Map(pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
    }

    fn decimal(text: &str) -> Value {
        Value::Decimal(Decimal::parse(text).unwrap())
    }

    /// Each row: the field `a` before, the change, and the field after or a part of the error.
    #[test]
    fn the_table_of_changes() {
        type After = std::result::Result<Option<Value>, &'static str>;
        let path = |text: &str| Path::parse(text).unwrap();
        let set = |at: &str, value: Value| Change::Set { path: path(at), value };
        let unset = |at: &str| Change::Unset { path: path(at) };
        let add = |by: Value| Change::Increment { path: path("a"), by };
        let append = |value: Value| Change::Append { path: path("a"), value };
        let unique = |value: Value| Change::AddUnique { path: path("a"), value };
        let remove = |value: Value| Change::RemoveItem { path: path("a"), value };
        let put = |key: &str, value: Value| Change::PutKey { path: path("a"), key: key.to_owned(), value };
        let cut = |key: &str| Change::RemoveKey { path: path("a"), key: key.to_owned() };
        let table: Vec<(Option<Value>, Change, After)> = vec![
            (None, set("a", 1.into()), Ok(Some(1.into()))),
            (Some("x".into()), set("a", Value::U64(1)), Ok(Some(1.into()))),
            (None, set("a.b.c", 1.into()), Ok(Some(map(&[("b", map(&[("c", 1.into())]))])))),
            (Some(Value::Null), set("a.b", 1.into()), Ok(Some(map(&[("b", 1.into())])))),
            (Some(map(&[("c", 2.into())])), set("a.b", 1.into()), Ok(Some(map(&[("b", 1.into()), ("c", 2.into())])))),
            (Some(5.into()), set("a.b", 1.into()), Err("a is a number, not a map")),
            (None, set("a[*]", 1.into()), Err("without [*]")),
            (Some(1.into()), unset("a"), Ok(None)),
            (None, unset("a"), Ok(None)),
            (None, unset("a.b"), Ok(None)),
            (Some(Value::Null), unset("a.b"), Ok(Some(Value::Null))),
            (Some(map(&[("b", 1.into())])), unset("a.b"), Ok(Some(map(&[])))),
            (Some(1.into()), add(2.into()), Ok(Some(3.into()))),
            (None, add((-2).into()), Ok(Some((-2).into()))),
            (Some(Value::Null), add(decimal("0.50")), Ok(Some(decimal("0.50")))),
            (Some(i64::MAX.into()), add(1.into()), Ok(Some((1u64 << 63).into()))),
            (Some((1u64 << 63).into()), add((-1).into()), Ok(Some(i64::MAX.into()))),
            (Some(u64::MAX.into()), add(1.into()), Err("does not fit 64 bits")),
            (Some(i64::MIN.into()), add((-1).into()), Err("does not fit 64 bits")),
            (Some(1e308.into()), add(1e308.into()), Err("larger than an f64 holds")),
            (Some(f64::INFINITY.into()), add(1.into()), Ok(Some(f64::INFINITY.into()))),
            (Some(decimal("1.5")), add(1.into()), Ok(Some(decimal("2.5")))),
            (Some(1.into()), add(decimal("0.25")), Ok(Some(decimal("1.25")))),
            (Some(decimal("170141183460469231731687303715884105727")), add(1.into()), Err("38 digits")),
            (Some(1.into()), add(0.5.into()), Ok(Some(1.5.into()))),
            (Some(decimal("0.5")), add(0.5.into()), Ok(Some(1.0.into()))),
            (Some("x".into()), add(1.into()), Err("a string is no number")),
            (Some(1.into()), add("x".into()), Err("a string is no number")),
            (Some(1.into()), add(Value::Null), Err("null is no number")),
            (None, append(1.into()), Ok(Some(vec![1].into()))),
            (Some(vec![1].into()), append(1.into()), Ok(Some(vec![1, 1].into()))),
            (Some("x".into()), append(1.into()), Err("a string, not a list")),
            (Some(vec![1].into()), unique(1.0.into()), Ok(Some(vec![1].into()))),
            (Some(vec![1].into()), unique(2.into()), Ok(Some(vec![1, 2].into()))),
            (None, unique(2.into()), Ok(Some(vec![2].into()))),
            (Some(vec![1, 2, 1].into()), remove(1.0.into()), Ok(Some(vec![2].into()))),
            (None, remove(1.into()), Ok(None)),
            (None, put("k.x", 1.into()), Ok(Some(map(&[("k.x", 1.into())])))),
            (Some(map(&[("k", 1.into())])), put("k", 2.into()), Ok(Some(map(&[("k", 2.into())])))),
            (Some(map(&[("k", 1.into())])), cut("k"), Ok(Some(map(&[])))),
            (None, cut("k"), Ok(None)),
            (Some(1.into()), cut("k"), Err("not a map")),
        ];
        for (before, change, after) in table {
            let document = |a: Option<Value>| {
                let around = [("B", Value::from("before")), ("z", vec![1, 2].into())];
                Document::from_pairs(around.into_iter().chain(a.map(|a| ("a", a))))
            };
            let found = Change::apply(std::slice::from_ref(&change), &document(before.clone()));
            match (found, after) {
                (Ok(found), Ok(after)) => assert_eq!(found, document(after), "{before:?} {change:?}"),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, after) => panic!("{before:?} {change:?}: {found:?} and not {after:?}"),
            }
        }
    }

    #[test]
    fn changes_go_one_after_another_and_no_deeper_than_a_document() {
        let document = Document::new(&BTreeMap::new());
        let increment = Change::Increment { path: Path::field("n"), by: 1.into() };
        let changed = Change::apply(&[increment.clone(), increment], &document).unwrap();
        assert_eq!(changed, Document::from_pairs([("n", 2)]));
        let deep = |levels: usize| (0..levels).fold(Value::Null, |inner, _| Value::List(vec![inner]));
        let set =
            |at: &str, value: Value| Change::apply(&[Change::Set { path: Path::parse(at).unwrap(), value }], &document);
        for (at, levels) in [("a", DEPTH_MAX), ("a.b", DEPTH_MAX - 1)] {
            assert!(Document::from_stored(set(at, deep(levels)).unwrap().as_bytes()).is_ok());
            assert!(matches!(set(at, deep(levels + 1)), Err(Error::Limit { .. })));
        }
        let append = Change::Append { path: Path::field("a"), value: deep(DEPTH_MAX) };
        assert!(Change::apply(&[append], &document).is_err());
        let put = Change::PutKey { path: Path::field("a"), key: "k".into(), value: deep(DEPTH_MAX) };
        assert!(Change::apply(&[put], &document).is_err());
    }

    proptest! {
        #[test]
        fn a_changed_document_is_a_document(document in documents(), value in values(), at in "[a-c](\\.[a-c]){0,2}", kind in 0..8) {
            let path = Path::parse(&at).unwrap();
            let key = "b".to_owned();
            let change = match kind {
                0 => Change::Set { path: path.clone(), value: value.clone() },
                1 => Change::Unset { path: path.clone() },
                2 => Change::Increment { path: path.clone(), by: value },
                3 => Change::Append { path: path.clone(), value },
                4 => Change::AddUnique { path: path.clone(), value },
                5 => Change::RemoveItem { path: path.clone(), value },
                6 => Change::PutKey { path: path.clone(), key, value },
                _ => Change::RemoveKey { path: path.clone(), key },
            };
            if let Ok(changed) = Change::apply(std::slice::from_ref(&change), &document) {
                let again = Document::from_stored(changed.as_bytes());
                prop_assert_eq!(again.as_ref(), Ok(&changed));
                for (name, value) in document.fields().iter().filter(|(name, _)| !at.starts_with(name)) {
                    prop_assert_eq!(changed.get(name).map(ValueRef::stored), Some(value.stored()));
                }
                match change {
                    Change::Set { value, .. } => prop_assert_eq!(path.first(changed.fields()).to_value().stored(), value.stored()),
                    Change::Unset { .. } => prop_assert_eq!(path.first(changed.fields()), ValueRef::Null),
                    _ => {}
                }
            }
        }
    }
}
