//! Matching by example: a document whose fields the others must have.
//!
//! May use: `document`, `path`, `value`. Must not know: SQL, indexes.

use crate::document::Document;
use crate::path::{Path, Step};
use crate::value::{MapRef, StoredValue, ValueRef, is_equal_stored, raw, skip};
use base::Fields;

/// A document as an example of those it matches.
///
/// A field that it has must be there and equal, by the order of queries (`1` matches `1.0`). A null sets no condition. A map
/// matches a map whose fields match those that it names; an empty one matches any map. A list must be equal as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    document: Document,
    wants: Vec<(Box<str>, Want)>,
}

/// What a template says of one field. In byte order of names, as documents have their fields: both are gone through once.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Want {
    Equal(StoredValue),
    Fields(Vec<(Box<str>, Want)>),
}

impl Template {
    /// The template that a document is.
    #[must_use]
    pub fn new(document: Document) -> Self {
        Self { wants: wants_of(document.fields()), document }
    }

    /// The document that it was made of.
    #[must_use]
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// Whether it matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wants.is_empty()
    }

    /// Whether it matches a document of these fields. Allocates nothing.
    #[must_use]
    pub fn matches(&self, fields: MapRef<'_>) -> bool {
        all_match(&self.wants, fields)
    }

    /// Shows each path whose value must be equal to something, and that.
    pub fn equalities(&self, mut see: impl FnMut(Path, ValueRef<'_>)) {
        see_equalities(&self.wants, &mut Vec::new(), &mut see);
    }
}

fn wants_of(fields: MapRef<'_>) -> Vec<(Box<str>, Want)> {
    fields
        .iter()
        .filter_map(|(name, value)| {
            let want = match value {
                ValueRef::Null => return None,
                ValueRef::Map(map) => Want::Fields(wants_of(map)),
                value => Want::Equal(value.stored()),
            };
            Some((name.into(), want))
        })
        .collect()
}

fn all_match(wants: &[(Box<str>, Want)], fields: MapRef<'_>) -> bool {
    let mut rest = Fields(fields.as_bytes());
    wants.iter().all(|(name, want)| find(&mut rest, name).and_then(|()| want.matches(&mut rest)).unwrap_or(false))
}

/// Goes on to the value of a name; `None` when it is not there.
fn find(rest: &mut Fields<'_>, name: &str) -> Option<()> {
    loop {
        match rest.string()?.cmp(name.as_bytes()) {
            std::cmp::Ordering::Less => skip(rest)?,
            std::cmp::Ordering::Equal => return Some(()),
            std::cmp::Ordering::Greater => return None,
        }
    }
}

impl Want {
    fn matches(&self, rest: &mut Fields<'_>) -> Option<bool> {
        Some(match self {
            Self::Equal(wanted) => is_equal_stored(raw(rest)?, wanted.as_bytes()),
            Self::Fields(wants) => match ValueRef::read(rest)? {
                ValueRef::Map(map) => all_match(wants, map),
                _ => false,
            },
        })
    }
}

fn see_equalities(wants: &[(Box<str>, Want)], way: &mut Vec<Step>, see: &mut impl FnMut(Path, ValueRef<'_>)) {
    for (name, want) in wants {
        way.push(Step::Name(name.clone()));
        match want {
            Want::Fields(wants) => see_equalities(wants, way, see),
            // A path that is too deep to be one is only of no use to the planner.
            Want::Equal(value) => {
                if let Ok(path) = Path::of(way.clone()) {
                    see(path, value.get());
                }
            }
        }
        way.pop();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::documents;
    use crate::compare::compare;
    use crate::value::Value;

    fn map(name: &str, value: impl Into<Value>) -> Value {
        Value::Map(BTreeMap::from([(name.to_owned(), value.into())]))
    }

    #[test]
    fn a_template_matches_what_has_its_fields() {
        let document = Document::from_pairs([
            ("address", map("city", "Bonn")),
            ("age", 42.into()),
            ("name", "Ada".into()),
            ("note", Value::Null),
            ("tags", vec!["x", "y"].into()),
        ]);
        let table: Vec<(&str, Value, bool)> = vec![
            ("age", 42.into(), true),
            ("age", 42.0.into(), true),
            ("age", 43.into(), false),
            ("age", "42".into(), false),
            ("age", Value::Null, true),
            ("missing", Value::Null, true),
            ("missing", 1.into(), false),
            ("zebra", 1.into(), false),
            ("note", 1.into(), false),
            ("address", map("city", "Bonn"), true),
            ("address", map("city", "Köln"), false),
            ("address", map("city", Value::Null), true),
            ("address", map("street", "x"), false),
            ("address", Value::Map(BTreeMap::new()), true),
            ("name", Value::Map(BTreeMap::new()), false),
            ("tags", vec!["x", "y"].into(), true),
            ("tags", vec!["x"].into(), false),
        ];
        for (name, value, expected) in table {
            let template = Template::new(Document::from_pairs([(name, value.clone())]));
            assert_eq!(template.matches(document.fields()), expected, "{name} {value:?}");
        }
        let several = Template::new(Document::from_pairs([("age", Value::from(42)), ("name", "Ada".into())]));
        assert!(several.matches(document.fields()));
        assert!(Template::new(Document::new(&BTreeMap::new())).is_empty());
    }

    /// What a template means, said slowly.
    fn obviously_matches(template: MapRef<'_>, fields: MapRef<'_>) -> bool {
        template.iter().all(|(name, wanted)| match (wanted, fields.get(name)) {
            (ValueRef::Null, _) => true,
            (ValueRef::Map(wanted), Some(ValueRef::Map(found))) => obviously_matches(wanted, found),
            (ValueRef::Map(_), _) | (_, None) => false,
            (wanted, Some(found)) => compare(wanted, found).is_eq(),
        })
    }

    proptest! {
        #[test]
        fn the_quick_way_and_the_slow_way_agree(template in documents(), document in documents()) {
            let expected = obviously_matches(template.fields(), document.fields());
            prop_assert_eq!(Template::new(template).matches(document.fields()), expected);
            prop_assert!(Template::new(document.clone()).matches(document.fields()));
        }

        #[test]
        fn bytes_that_are_no_document_are_safe(bytes: Vec<u8>, template in documents()) {
            let _ = Template::new(template).matches(MapRef(&bytes));
        }
    }
}
