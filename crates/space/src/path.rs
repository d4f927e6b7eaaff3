//! Where in a document a value lies: `name`, `address.city`, `tags[*]`, `orders[*].lines[*].sku`.
//!
//! A name is letters, digits and `_`; other names stand in double quotes, and a double quote in them is doubled:
//! `"unit price"."say ""x"""`. `[*]` goes to every item of a list.
//!
//! May use: `value`. Must not know: who asks.

use std::ops::ControlFlow;

use crate::error::{Error, Result, invalid};
use crate::value::{DEPTH_MAX, MapRef, ValueRef};

/// The way from a document's fields to a value, or to many through `[*]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    steps: Box<[Step]>,
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Step {
    /// To the value of this name in a map.
    Name(Box<str>),
    /// To every item of a list.
    Items,
}

impl Path {
    /// The path that a text says.
    ///
    /// # Errors
    /// `Invalid` when the text is no path, `Limit` when it goes deeper than a document can be.
    pub fn parse(text: &str) -> Result<Self> {
        let mut steps = Vec::new();
        let mut rest = text;
        loop {
            let (name, behind) = take_name(rest).ok_or_else(|| {
                wrong(text, "a name is missing: names are letters, digits and _, others stand in \"quotes\"")
            })?;
            steps.push(Step::Name(name.into()));
            rest = behind;
            while let Some(behind) = rest.strip_prefix("[*]") {
                steps.push(Step::Items);
                rest = behind;
            }
            if rest.is_empty() {
                return Self::of(steps);
            }
            rest = rest
                .strip_prefix('.')
                .ok_or_else(|| wrong(text, "behind a name come . and another name, [*], or the end"))?;
        }
    }

    /// The path to one field of the document.
    #[must_use]
    pub fn field(name: &str) -> Self {
        Self { steps: Box::new([Step::Name(name.into())]) }
    }

    pub(crate) fn of(steps: Vec<Step>) -> Result<Self> {
        if steps.len() > DEPTH_MAX {
            return Err(Error::Limit { what: "depth of a path", actual: steps.len() as u64, limit: DEPTH_MAX as u64 });
        }
        match steps.first() {
            Some(Step::Name(_)) => Ok(Self { steps: steps.into() }),
            _ => invalid("a path begins with the name of a field"),
        }
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The names on the way, the document's own field first; of a `[*]` there is none.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match step {
            Step::Name(name) => Some(&**name),
            Step::Items => None,
        })
    }

    /// Whether it may come to many values, which is to say, has a `[*]`.
    #[must_use]
    pub fn has_items(&self) -> bool {
        self.steps.contains(&Step::Items)
    }

    /// Shows every value that it comes to, in order, until told to stop.
    ///
    /// What is missing on the way shows as one null, as in SQL; an empty list shows nothing. So a path without `[*]` shows
    /// exactly one value.
    pub fn values<'a>(
        &self,
        fields: MapRef<'a>,
        mut see: impl FnMut(ValueRef<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        walk(&self.steps, ValueRef::Map(fields), &mut see)
    }

    /// The first value that it comes to: the value, if there is no `[*]`; null if there is none.
    #[must_use]
    pub fn first<'a>(&self, fields: MapRef<'a>) -> ValueRef<'a> {
        let mut first = ValueRef::Null;
        let _ = self.values(fields, |value| {
            first = value;
            ControlFlow::Break(())
        });
        first
    }
}

/// The depth of this recursion is that of the path, which is bounded.
fn walk<'a, F: FnMut(ValueRef<'a>) -> ControlFlow<()>>(
    steps: &[Step],
    from: ValueRef<'a>,
    see: &mut F,
) -> ControlFlow<()> {
    let (mut steps, mut value) = (steps, from);
    while let Some((step, rest)) = steps.split_first() {
        value = match (step, value) {
            (Step::Name(name), ValueRef::Map(map)) => match map.get(name) {
                Some(value) => value,
                None => return see(ValueRef::Null),
            },
            (Step::Items, ValueRef::List(list)) => {
                for item in list.iter() {
                    walk(rest, item, see)?;
                }
                return ControlFlow::Continue(());
            }
            _ => return see(ValueRef::Null),
        };
        steps = rest;
    }
    see(value)
}

fn wrong(text: &str, why: &str) -> Error {
    Error::Invalid { text: format!("`{text}` is no path: {why}") }
}

fn is_bare(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The name at the beginning, and what is behind it.
fn take_name(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find(|letter| !is_bare(letter)).unwrap_or(text.len());
        let (name, behind) = text.split_at_checked(end)?;
        return (!name.is_empty()).then(|| (name.to_owned(), behind));
    };
    let mut name = String::new();
    loop {
        let (piece, behind) = rest.split_once('"')?;
        name.push_str(piece);
        match behind.strip_prefix('"') {
            None => return Some((name, behind)),
            Some(more) => {
                name.push('"');
                rest = more;
            }
        }
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, step) in self.steps.iter().enumerate() {
            match step {
                Step::Items => f.write_str("[*]")?,
                Step::Name(name) => {
                    if i > 0 {
                        f.write_str(".")?;
                    }
                    // A digit in front would read as a number in SQL.
                    if name.chars().all(is_bare) && name.chars().next().is_some_and(|first| !first.is_numeric()) {
                        f.write_str(name)?;
                    } else {
                        write!(f, "\"{}\"", name.replace('"', "\"\""))?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for Path {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::document::Document;
    use crate::value::Value;

    fn order() -> Document {
        let line = |sku: &str| Value::Map(BTreeMap::from([("sku".to_owned(), sku.into())]));
        let lines = |skus: &[&str]| {
            let lines = skus.iter().map(|sku| line(sku)).collect();
            Value::Map(BTreeMap::from([("lines".to_owned(), Value::List(lines))]))
        };
        Document::from_pairs([
            ("name", "Ada".into()),
            ("tags", vec!["x", "y"].into()),
            ("none", Value::List(vec![])),
            ("address", Value::Map(BTreeMap::from([("city".to_owned(), "Bonn".into())]))),
            ("orders", Value::List(vec![lines(&["a", "b"]), lines(&[]), lines(&["c"]), 7.into()])),
            ("unit \"price\"", 3.into()),
        ])
    }

    #[test]
    fn a_path_shows_what_it_comes_to() {
        let table: Vec<(&str, Vec<Value>)> = vec![
            ("name", vec!["Ada".into()]),
            ("address.city", vec!["Bonn".into()]),
            ("address.street", vec![Value::Null]),
            ("name.first", vec![Value::Null]),
            ("missing.far.away", vec![Value::Null]),
            ("tags[*]", vec!["x".into(), "y".into()]),
            ("tags[*].name", vec![Value::Null, Value::Null]),
            ("none[*]", vec![]),
            ("missing[*]", vec![Value::Null]),
            ("name[*]", vec![Value::Null]),
            ("orders[*].lines[*].sku", vec!["a".into(), "b".into(), "c".into(), Value::Null]),
            ("\"unit \"\"price\"\"\"", vec![3.into()]),
        ];
        for (text, expected) in table {
            let path = Path::parse(text).unwrap();
            assert_eq!(path.to_string(), text);
            let (document, mut seen) = (order(), Vec::new());
            let _ = path.values(document.fields(), |value| {
                seen.push(value.to_value());
                ControlFlow::Continue(())
            });
            assert_eq!(seen, expected, "{text}");
            let first = expected.first().cloned().unwrap_or_default();
            assert_eq!(path.first(document.fields()).to_value(), first, "{text}");
        }
    }

    #[test]
    fn a_path_tells_its_names() {
        let path = Path::parse("address.\"a.\"\"b\".lines[*].sku").unwrap();
        assert_eq!(path.names().collect::<Vec<_>>(), ["address", "a.\"b", "lines", "sku"]);
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in ["", ".", "a.", ".a", "a..b", "[*]", "a[*]b", "a[0]", "a[*", "a b", "\"a", "a\"b\"", "a-b", "a.[*]"]
        {
            assert!(Path::parse(text).is_err(), "{text}");
        }
        let deep = vec!["a"; DEPTH_MAX];
        assert!(Path::parse(&deep.join(".")).is_ok());
        assert!(matches!(Path::parse(&format!("{}[*]", deep.join("."))), Err(Error::Limit { .. })));
    }

    proptest! {
        #[test]
        fn any_name_survives_its_text(names in proptest::collection::vec(any::<String>(), 1..4)) {
            let steps: Vec<_> = names.iter().flat_map(|name| [Step::Name(name.as_str().into()), Step::Items]).collect();
            let path = Path::of(steps).unwrap();
            prop_assert_eq!(Path::parse(&path.to_string()).unwrap(), path);
        }

        #[test]
        fn any_text_is_a_path_or_refused(text in "[a\"\\.\\[\\]\\* 0é]{0,12}") {
            if let Ok(path) = Path::parse(&text) {
                prop_assert_eq!(Path::parse(&path.to_string()).unwrap(), path);
            }
        }
    }
}
